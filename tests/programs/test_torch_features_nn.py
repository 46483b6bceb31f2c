"""Modules of `torch.nn` of every kind, forward and backward, and what programs do with modules: one graph each for sizes that change.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from tests.programs.registry import REGISTRY, Case, cases, each, listed, program, t

WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}
ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
SIGNALS = [(t(2, 4, n, grad=True),) for n in (8, 11, 9)]  # batch, channels, length
IMAGES = [(t(2, 4, n, n + 1, grad=True),) for n in (8, 11, 9)]
VOLUMES = [(t(1, 4, 4, n, n + 1, grad=True),) for n in (4, 7, 5)]
SEQUENCES = [(t(2, n, 8, grad=True),) for n in (3, 6, 4)]
TOKENS = [(t(2, n, dtype=torch.int64).abs(),) for n in (3, 6, 4)]


class Bilinear(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.Bilinear(4, 4, 3)

    def forward(self, x):
        return self.m(x, x * 2)


class Attention(nn.Module):
    def __init__(self, **k):
        super().__init__()
        self.m = nn.MultiheadAttention(8, 2, batch_first=True, **k)
        self.masked = "add_bias_kv" not in k

    def forward(self, x):
        if not self.masked:
            return self.m(x, x, x, need_weights=False)
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        return self.m(x, x, x, attn_mask=mask, need_weights=True)


class Cell(nn.Module):
    def __init__(self, kind, steps=2):
        super().__init__()
        self.m, self.steps = kind(8, 5), steps

    def forward(self, x):
        state = None
        for i in range(self.steps):
            state = self.m(x[:, i], state)
        return state


class Unpooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.back = nn.MaxPool2d(2, return_indices=True), nn.MaxUnpool2d(2)

    def forward(self, x):
        y, i = self.pool(x[:, :, :8, :8])
        return self.back(y, i)


class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, 0.0, batch_first=True), 2)

    def forward(self, x):
        return self.m(x, x * 0.5)


class Whole(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.Transformer(8, 2, 1, 1, 16, 0.0, batch_first=True)

    def forward(self, x):
        return self.m(x, x * 0.5)


class Registered(nn.Module):
    """A list, a dict and lists of parameters, buffers that change."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
        self.named = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.Tanh()})
        self.params = nn.ParameterList([nn.Parameter(t(4, seed=i)) for i in range(2)])
        self.table = nn.ParameterDict({"w": nn.Parameter(t(4, seed=9))})
        self.register_buffer("seen", torch.zeros(4))
        self.register_buffer("off", torch.ones(4), persistent=False)

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x) + i
        for name, m in self.named.items():
            x = m(x) if name != "skip" else x
        for p in self.params:
            x = x * p
        with torch.no_grad():
            self.seen += x.mean(0)
        return x + self.table["w"] * self.off, len(self.layers), list(self.named), self.layers[-1] is self.layers[2]


class Asked(nn.Module):
    """What modules know of themselves."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 3), nn.Sequential(nn.Linear(3, 2), nn.ReLU())

    def forward(self, x):
        n = sum(p.numel() for p in self.parameters())
        names = [k for k, _ in self.named_parameters()] + [k for k, _ in self.named_modules()]
        kinds = [type(m).__name__ for m in self.modules()] + [type(m).__name__ for m in self.children()]
        assert self.training == self.a.training and isinstance(self.b[1], nn.ReLU)
        norm = sum(p.pow(2).sum() for p in self.parameters())
        return self.b(self.a(x)) * n + norm, names, kinds, self.get_submodule("b.0").weight.shape, next(self.parameters()).dtype


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 8), nn.Linear(8, 9, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, i):
        return self.head(self.embed(i).relu())


class Functional(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(t(3, 4))
        self.bias = None
        self.scale = 2.0

    def forward(self, x):
        y = nn.functional.linear(x, self.w, self.bias)
        return nn.functional.dropout(y, 0.5, self.training) * self.scale, self.extra_repr(), self._get_name()


class Parametrized(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.Linear(4, 4)
        nn.utils.parametrize.register_parametrization(self.m, "weight", Symmetric())

    def forward(self, x):
        return self.m(x)


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).T


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.Linear(4, 4)
        self.m.register_forward_hook(lambda m, i, o: o * 2)
        self.m.register_forward_pre_hook(lambda m, i: (i[0] + 1,))

    def forward(self, x):
        return self.m(x)


class KeywordHooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = Functional().eval()
        self.m.register_forward_hook(lambda m, a, k, o: o[0] + len(k), with_kwargs=True)
        self.m.register_forward_pre_hook(lambda m, a, k: (a, {"x": k["x"] * 2}), with_kwargs=True)

    def forward(self, x):
        return self.m(x=x)


KEYWORD_HOOKED = KeywordHooked()  # (a hook made later has another number)


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.Linear(4, 4)

    def forward(self, x):
        return self.m(self.m(x).relu()) + self.m(x)


class Frozen(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(4, 4).requires_grad_(False), nn.Linear(4, 2)

    def forward(self, x):
        return self.b(self.a(x)), self.a.weight.requires_grad


class Switched(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Dropout(0.5)
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        return self.a(self.norm(x)) if self.training else x


class Recorded(nn.Module):
    """Attributes written by `forward`."""

    def __init__(self):
        super().__init__()
        self.last = torch.zeros(())
        self.m = nn.Linear(4, 4)

    def forward(self, x):
        y = self.m(x)
        self.last = y.detach().mean()
        return y


class Loss(nn.Module):
    def __init__(self, kind, **k):
        super().__init__()
        self.m = kind(**k)

    def forward(self, x):
        classes = torch.zeros(x.shape[0], dtype=torch.int64)
        given = {
            nn.CrossEntropyLoss: (classes,), nn.NLLLoss: (classes,), nn.MultiMarginLoss: (classes,), nn.CosineEmbeddingLoss: (x + 1,
            classes + 1),
            nn.TripletMarginLoss: (x + 1, x - 1), nn.MarginRankingLoss: (x + 1, torch.ones_like(x)), nn.GaussianNLLLoss: (x * 2, x.exp()),
            nn.MultiLabelMarginLoss: (torch.zeros(x.shape, dtype=torch.int64),), nn.BCELoss: (torch.full_like(x, 0.5),),
            nn.KLDivLoss: (x.detach().softmax(1),),
        }.get(type(self.m))  # fmt: skip
        if given is None:
            given = (torch.ones_like(x),)
        value = x.log_softmax(1) if type(self.m) in (nn.NLLLoss, nn.KLDivLoss) else x.sigmoid() if type(self.m) is nn.BCELoss else x
        return self.m(value, *given)


def rnn(kind, **k):
    return lambda: kind(8, 5, batch_first=True, **k)


MODULES = [
    (GRADS, {
        "Linear": lambda: nn.Linear(4, 3), "Linear no bias": lambda: nn.Linear(4, 3, bias=False), "Bilinear": Bilinear,
            "Identity": nn.Identity,
        "Flatten": lambda: nn.Flatten(0), "Unflatten": lambda: nn.Unflatten(1, (2, 2)), "Sequential": lambda: nn.Sequential(nn.Linear(4,
            8), nn.ReLU(), nn.Linear(8, 2)),
        "LayerNorm": lambda: nn.LayerNorm(4), "LayerNorm plain": lambda: nn.LayerNorm(4, elementwise_affine=False),
            "RMSNorm": lambda: nn.RMSNorm(4),
        "BatchNorm1d": lambda: nn.BatchNorm1d(4), "BatchNorm1d eval": lambda: nn.BatchNorm1d(4).eval(),
            "BatchNorm1d untracked": lambda: nn.BatchNorm1d(4, track_running_stats=False),
        "GroupNorm": lambda: nn.GroupNorm(2, 4), "Dropout": lambda: nn.Dropout(0.3), "Dropout eval": lambda: nn.Dropout(0.3).eval(),
            "AlphaDropout": lambda: nn.AlphaDropout(0.2),
        "FeatureAlphaDropout": lambda: nn.FeatureAlphaDropout(0.2), "GLU": nn.GLU, "Softmax": lambda: nn.Softmax(1),
            "Softmax2d": lambda: nn.Sequential(nn.Unflatten(1, (2, 2, 1)), nn.Softmax2d()),
        "AdaptiveLogSoftmax": lambda: AdaptiveLoss(), "CosineSimilarity": lambda: Two(nn.CosineSimilarity()),
            "PairwiseDistance": lambda: Two(nn.PairwiseDistance()),
        "Registered": Registered, "Asked": Asked, "Functional": Functional, "Functional eval": lambda: Functional().eval(),
            "Parametrized": Parametrized,
        "weight_norm": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
            "spectral_norm": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)),
        "orthogonal": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)), "Hooked": Hooked,
        "KeywordHooked": lambda: copy.deepcopy(KEYWORD_HOOKED),
            "Shared": Shared, "Frozen": Frozen, "Switched": Switched,
        "Switched eval": lambda: Switched().eval(), "Recorded": Recorded, "pruned": lambda: prune.l1_unstructured(nn.Linear(4, 3),
            "weight", 0.5), "LazyLinear": lambda: made(nn.LazyLinear(3), t(2, 4)),
        "deep copy": lambda: copy.deepcopy(nn.Linear(4, 3)), "double": lambda: nn.Sequential(Cast(), nn.Linear(4, 2).double()),
            "bfloat16": lambda: nn.Sequential(Cast(torch.bfloat16), nn.Linear(4, 2).bfloat16()),
    }),
    (GRADS, {name: getattr(nn, name) for name in (
        "ReLU ReLU6 LeakyReLU ELU SELU CELU GELU SiLU Mish Sigmoid Tanh LogSigmoid Softplus Softsign Softshrink Hardshrink Hardtanh"
        " Hardswish Hardsigmoid Tanhshrink PReLU RReLU"
        " Softmin LogSoftmax").split()} | {"Threshold": lambda: nn.Threshold(0.1, 2.0),
            "ReLU in place": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))}),
    (GRADS, {name: lambda kind=getattr(nn, name): Loss(kind) for name in (
        "MSELoss L1Loss SmoothL1Loss HuberLoss CrossEntropyLoss NLLLoss KLDivLoss BCELoss BCEWithLogitsLoss CosineEmbeddingLoss"
        " TripletMarginLoss MarginRankingLoss HingeEmbeddingLoss"
        " SoftMarginLoss MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss GaussianNLLLoss PoissonNLLLoss").split()} | {
        "CrossEntropyLoss smooth": lambda: Loss(nn.CrossEntropyLoss, label_smoothing=0.2, reduction="none"),
            "MSELoss sum": lambda: Loss(nn.MSELoss, reduction="sum")}),
    (SIGNALS, {
        "Conv1d": lambda: nn.Conv1d(4, 3, 3), "Conv1d same": lambda: nn.Conv1d(4, 4, 3, padding="same", groups=2),
            "Conv1d circular": lambda: nn.Conv1d(4, 3, 3, padding=1, padding_mode="circular"),
        "ConvTranspose1d": lambda: nn.ConvTranspose1d(4, 3, 3, stride=2, output_padding=1), "MaxPool1d": lambda: nn.MaxPool1d(2),
            "AvgPool1d": lambda: nn.AvgPool1d(3, 2, 1), "LPPool1d": lambda: nn.LPPool1d(2, 2),
        "AdaptiveAvgPool1d": lambda: nn.AdaptiveAvgPool1d(3), "AdaptiveMaxPool1d": lambda: nn.AdaptiveMaxPool1d(2),
            "InstanceNorm1d": lambda: nn.InstanceNorm1d(4, affine=True), "BatchNorm1d of signals": lambda: nn.BatchNorm1d(4),
        "Dropout1d": lambda: nn.Dropout1d(0.5), "ReflectionPad1d": lambda: nn.ReflectionPad1d(2),
            "ReplicationPad1d": lambda: nn.ReplicationPad1d((1, 2)), "ConstantPad1d": lambda: nn.ConstantPad1d(1, 3.0),
        "ZeroPad1d": lambda: nn.ZeroPad1d(1), "CircularPad1d": lambda: nn.CircularPad1d(1),
            "Upsample linear": lambda: nn.Upsample(scale_factor=2, mode="linear"), "GroupNorm of signals": lambda: nn.GroupNorm(2, 4),
    }),
    (IMAGES, {
        "Conv2d": lambda: nn.Conv2d(4, 3, 3), "Conv2d strided": lambda: nn.Conv2d(4, 8, 3, stride=2, padding=1, bias=False),
            "Conv2d depthwise": lambda: nn.Conv2d(4, 4, 3, groups=4, dilation=2), "Conv2d reflect": lambda: nn.Conv2d(4, 3, 3, padding=1,
                padding_mode="reflect"),
        "ConvTranspose2d": lambda: nn.ConvTranspose2d(4, 3, 2, stride=2), "MaxPool2d": lambda: nn.MaxPool2d(2, ceil_mode=True),
            "AvgPool2d": lambda: nn.AvgPool2d(3, 2, 1, count_include_pad=False), "LPPool2d": lambda: nn.LPPool2d(2, 2),
        "AdaptiveAvgPool2d": lambda: nn.AdaptiveAvgPool2d((2, None)), "AdaptiveMaxPool2d": lambda: nn.AdaptiveMaxPool2d(2),
            "FractionalMaxPool2d": lambda: nn.FractionalMaxPool2d(2, output_size=3), "MaxUnpool2d": Unpooled,
        "BatchNorm2d": lambda: nn.BatchNorm2d(4), "InstanceNorm2d": lambda: nn.InstanceNorm2d(4, track_running_stats=True),
            "LocalResponseNorm": lambda: nn.LocalResponseNorm(2), "Dropout2d": lambda: nn.Dropout2d(0.5),
        "ReflectionPad2d": lambda: nn.ReflectionPad2d(1), "ReplicationPad2d": lambda: nn.ReplicationPad2d((1, 0, 2, 1)),
            "ZeroPad2d": lambda: nn.ZeroPad2d(1), "ConstantPad2d": lambda: nn.ConstantPad2d((1, 2, 0, 1), 1.5),
                "CircularPad2d": lambda: nn.CircularPad2d(1),
        "Upsample nearest": lambda: nn.Upsample(scale_factor=2), "Upsample bilinear": lambda: nn.UpsamplingBilinear2d(size=(7, 7)),
            "UpsamplingNearest2d": lambda: nn.UpsamplingNearest2d(scale_factor=3), "PixelShuffle": lambda: nn.PixelShuffle(2),
                "PixelUnshuffle": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.PixelUnshuffle(2)),
        "CrossMapLRN2d": lambda: nn.CrossMapLRN2d(3, 0.3), "CrossMapLRN2d wide": lambda: nn.CrossMapLRN2d(6, 0.3, 0.5, 2),
            "CrossMapLRN2d channels last": lambda: nn.Sequential(nn.Conv2d(4, 5, 2).to(memory_format=torch.channels_last),
                nn.CrossMapLRN2d(2, 0.3)),
        "ChannelShuffle": lambda: nn.ChannelShuffle(2), "Unfold": lambda: nn.Unfold(3, stride=2),
            "Fold": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Unfold(2), nn.Fold((4, 4), 2)),
                "channels last": lambda: nn.Conv2d(4, 3, 3).to(memory_format=torch.channels_last),
        "residual": lambda: Residual(),
    }),
    (VOLUMES, {
        "Conv3d": lambda: nn.Conv3d(4, 2, 3, padding=1), "ConvTranspose3d": lambda: nn.ConvTranspose3d(4, 2, 2),
            "MaxPool3d": lambda: nn.MaxPool3d(2), "AvgPool3d": lambda: nn.AvgPool3d(2),
                "AdaptiveAvgPool3d": lambda: nn.AdaptiveAvgPool3d(2),
        "BatchNorm3d": lambda: nn.BatchNorm3d(4), "InstanceNorm3d": lambda: nn.InstanceNorm3d(4), "Dropout3d": lambda: nn.Dropout3d(0.5),
            "ReplicationPad3d": lambda: nn.ReplicationPad3d(1), "ConstantPad3d": lambda: nn.ConstantPad3d(1, 2.0),
                "Upsample trilinear": lambda: nn.Upsample(scale_factor=2, mode="trilinear"),
    }),
    (SEQUENCES, {
        "RNN": rnn(nn.RNN), "RNN relu": rnn(nn.RNN, nonlinearity="relu", bidirectional=True), "LSTM": rnn(nn.LSTM),
            "LSTM deep": rnn(nn.LSTM, num_layers=2, bidirectional=True, dropout=0.0), "LSTM projected": rnn(nn.LSTM, proj_size=3),
                "GRU": rnn(nn.GRU),
        "GRU deep": rnn(nn.GRU, num_layers=2, bias=False), "RNNCell": lambda: Cell(nn.RNNCell), "LSTMCell": lambda: Cell(nn.LSTMCell),
            "GRUCell": lambda: Cell(nn.GRUCell), "MultiheadAttention": Attention,
                "MultiheadAttention biased": lambda: Attention(add_bias_kv=True),
        "TransformerEncoderLayer": lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True),
            "TransformerEncoder": lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True,
                norm_first=True), 2), "TransformerDecoder": Decoder, "Transformer": Whole,
        "LayerNorm of sequences": lambda: nn.LayerNorm((8,)), "Linear of sequences": lambda: nn.Linear(8, 3),
    }),
    (TOKENS, {
        "Embedding": lambda: nn.Embedding(9, 4), "Embedding padded": lambda: nn.Embedding(9, 4, padding_idx=0),
            "Embedding scaled": lambda: nn.Embedding(9, 4, scale_grad_by_freq=True), "Embedding max norm": lambda: nn.Embedding(9, 4,
                max_norm=1.0), "EmbeddingBag": lambda: nn.EmbeddingBag(9, 4),
        "EmbeddingBag sum": lambda: nn.EmbeddingBag(9, 4, mode="sum", padding_idx=1), "EmbeddingBag max": lambda: nn.EmbeddingBag(9, 4,
            mode="max"), "from pretrained": lambda: nn.Embedding.from_pretrained(t(9, 4)), "Tied": Tied,
    }),
]  # fmt: skip


class AdaptiveLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.m = nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4])

    def forward(self, x):
        return self.m.log_prob(x)


class Two(nn.Module):
    def __init__(self, m):
        super().__init__()
        self.m = m

    def forward(self, x):
        return self.m(x, x * 2 + 1)


class Cast(nn.Module):
    def __init__(self, dtype=torch.float64):
        super().__init__()
        self.dtype = dtype

    def forward(self, x):
        return x.to(self.dtype)


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Conv2d(4, 4, 3, padding=1))

    def forward(self, x):
        return torch.relu(self.body(x) * 0.01 + x)


def made(module, *x):
    module(*x)
    return module


def build(make):
    torch.manual_seed(0)
    return make()


REGISTRY.setdefault(__name__, []).extend(
    Case(name, (lambda make=make: build(make)), tuple(given), True, dict(BACK)) for given, table in MODULES for name, make in table.items()
)


# -- modules made, changed and called in functions ---------------------------------------------------------------------
@program(*ROWS, world=True, **WHOLE)
def state_dict_read():
    m = build(lambda: nn.Linear(4, 3))
    return lambda x: (m(x), [k for k, _ in m.named_parameters()], m.in_features), m


@program(*ROWS, world=True, **WHOLE)
def module_in_a_dict():
    table = {"a": build(lambda: nn.Linear(4, 3)), "b": [nn.ReLU()]}
    return lambda x: table["b"][0](table["a"](x)), table


@program(*GRADS, **BACK)
def functional_modules(x):
    return nn.ReLU()(x), nn.Softmax(dim=1)(x), nn.Flatten()(x[None]), nn.LayerNorm(4, elementwise_affine=False)(x)


@program(*ROWS, world=True, grad=True, **WHOLE)
def module_methods():
    m = build(Registered)
    return lambda x: (m.layers[0](x), m.named["a"](x), m.params[1] * 2, m.layers[1:][0](x)), m


@program(*ROWS, world=True, grad=True, **WHOLE)
def module_under_autocast():
    m = build(lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))

    def run(x):
        with torch.autocast("cpu", torch.bfloat16):
            return m(x)

    return run, m


@program(*ROWS, world=True, **WHOLE)
def module_without_gradients():
    m = build(lambda: nn.Linear(4, 3))

    def run(x):
        with torch.no_grad():
            y = m(x)
        return y.requires_grad, y

    return run, m


# -- statistics that batch normalization writes without its schema saying so --------------------------------------------
STATISTICS = [(t(n, 4), t(4, seed=1), t(4, seed=2).abs() + 1) for n in (3, 5, 2)]


@program(*STATISTICS, **WHOLE)
def statistics_read_before_and_behind(x, mean, var):
    a = mean * 2
    y = nn.functional.batch_norm(x, mean, var, training=True)
    return y.relu(), a, mean * 3, var.sum()


@program(*STATISTICS, **WHOLE)
def statistics_made_here(x, mean, var):
    m, v = mean.clone(), torch.stack([var, var])
    y = nn.functional.batch_norm(x, m, v[1], training=True)
    return y + 1, m * 2, v.sum(0), nn.functional.batch_norm(y, m, v[1], training=False)


@program(*[(x.clone().requires_grad_(), m, v) for x, m, v in STATISTICS], **BACK)
def statistics_written_twice(x, mean, var):
    y = nn.functional.batch_norm(x, mean, var, training=True)
    return nn.functional.batch_norm(y * 2, mean, var, training=True), mean + var


listed(__name__, {
    **dict.fromkeys(["RNN", "RNN relu", "LSTM", "LSTM deep", "LSTM projected", "GRU", "GRU deep"], "in training, steps are unrolled"),
    "FractionalMaxPool2d": "its shape function wants integers",
}, breaks=0)  # fmt: skip


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
