# ruff: noqa: E501 -- a table: one case a line
"""Each operator through StableHLO and XLA against eager, exported once at one size and run at others."""

from __future__ import annotations

import math
import operator

import pytest
import torch
import torch.nn.functional as F

pytest.importorskip("jaxlib")

from pliant.export import export  # noqa: E402
from pliant.export.stablehlo import to_stablehlo  # noqa: E402
from tests.export.onnx_cases import overlapping_chunks  # noqa: E402

INF, NAN = math.inf, math.nan
A = torch.ops.aten
SPECIAL = [0.0, -0.0, 1.0, -1.5, 2.5, 0.5, -0.5, INF, -INF, NAN, 3.0, 1e-3, 7.25]


def rand(*shape, dtype=torch.float32):
    g = torch.Generator().manual_seed(len(shape) * 31 + sum(shape))
    return torch.randn(shape, generator=g).to(dtype)


def ints(*shape, lo=-9, hi=10, dtype=torch.int64):
    g = torch.Generator().manual_seed(len(shape) * 17 + sum(shape))
    return torch.randint(lo, hi, shape, generator=g).to(dtype)


def special(n):
    """Values at which operators differ: zeros of both signs, halves, infinities, nan."""
    return torch.tensor((SPECIAL * (n // len(SPECIAL) + 2))[: n + 6])


def nonzero(x):
    return torch.where(x == 0, 3, x)


def one(fn, *others):
    """A case with one tensor of n x 6."""
    return lambda *a: fn(*a, *others), lambda n: (rand(n, 6),)


UNARY = {
    name: getattr(torch, name)
    for name in (
        "abs neg exp expm1 sin cos tan tanh ceil floor round trunc sign erf erfc sinh cosh asinh atan exp2 square sigmoid relu isnan isinf"
        " isfinite logical_not frac signbit isposinf isneginf sgn deg2rad rad2deg reciprocal"
    ).split()
}
POSITIVE = {name: getattr(torch, name) for name in "log log1p log2 log10 sqrt rsqrt lgamma digamma".split()}
UNIT = {name: getattr(torch, name) for name in "asin acos atanh erfinv logit".split()}
ACTIVATIONS = {
    "gelu": F.gelu, "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "mish": F.mish, "hardswish": F.hardswish,
    "hardsigmoid": F.hardsigmoid, "hardtanh": F.hardtanh, "relu6": F.relu6, "leaky_relu": lambda x: F.leaky_relu(x, 0.2), "elu": F.elu,
    "celu": lambda x: F.celu(x, 1.3), "selu": F.selu, "softplus": lambda x: F.softplus(x, 2.0, 3.0), "logsigmoid": F.logsigmoid,
    "softshrink": F.softshrink, "hardshrink": F.hardshrink, "threshold": lambda x: F.threshold(x, 0.1, 20.0), "softsign": F.softsign,
    "tanhshrink": F.tanhshrink, "prelu": lambda x: F.prelu(x, torch.full((6,), 0.3)), "round_2": lambda x: torch.round(x, decimals=2),
}  # fmt: skip
BINARY = {
    name: getattr(torch, name)
    for name in "add sub mul div atan2 maximum minimum fmax fmin remainder fmod floor_divide copysign hypot eq ne lt le gt ge logaddexp".split()
}
INTEGER = {
    "add": torch.add, "mul": torch.mul, "floor_divide": torch.floor_divide, "remainder": torch.remainder, "fmod": torch.fmod,
    "true": torch.div, "trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"), "floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "and": torch.bitwise_and, "or": torch.bitwise_or, "xor": torch.bitwise_xor, "shl": lambda a, b: a << (b & 7), "shr": lambda a, b: a >> (b & 7),
    "max": torch.maximum, "lt": torch.lt, "pow": lambda a, b: a ** (b & 3), "logical_and": torch.logical_and, "rsub": lambda a, b: 5 - a * b,
}  # fmt: skip

CASES: dict[str, tuple] = {}
for _n, _f in UNARY.items():
    CASES[_n] = (_f, lambda n: (special(n),))
for _n, _f in POSITIVE.items():
    CASES[_n] = (_f, lambda n: (rand(n, 6).abs() + 0.1,))
for _n, _f in UNIT.items():
    CASES[_n] = (_f, lambda n: (rand(n, 6).sigmoid() * 0.9 + 0.02,))
for _n, _f in ACTIVATIONS.items():
    CASES[f"act_{_n}"] = (_f, lambda n: (rand(n, 6) * 3,))
for _n, _f in BINARY.items():
    CASES[f"float_{_n}"] = (_f, lambda n: (special(n)[:, None], special(n)[None, :]))
for _n, _f in INTEGER.items():
    CASES[f"int_{_n}"] = (_f, lambda n: (ints(n, 6), nonzero(ints(6, lo=-4, hi=5))))

CASES |= {
    # promotion and numbers
    "promote_int_float": (lambda x, y: (x + y, x * 2.5, x / 2, y > x), lambda n: (ints(n, 6), rand(n, 6))),
    "promote_zero_dim": (lambda x, y: (x + y, x * y, y < x), lambda n: (rand(n, 6, dtype=torch.bfloat16), torch.tensor(2.7))),
    "promote_bool": (lambda x: ((x > 0) + (x < 1), (x > 0) * 3, (x > 0) & (x < 1), (x > 0).sum()), lambda n: (rand(n, 6),)),
    "promote_u8": (lambda x: (x + 200, x // 7, x - 3, x.float() / 2), lambda n: (ints(n, 6, lo=0, hi=255, dtype=torch.uint8),)),
    "bfloat16": (lambda x: (x * 1.1 + 0.3, x.exp(), F.gelu(x), x.softmax(-1), x.sum(-1), x @ x.T), lambda n: (rand(n, 6, dtype=torch.bfloat16),)),
    "float16": (lambda x: (x * 1.1 + 0.3, x.tanh(), x.mean(-1), F.layer_norm(x, (6,))), lambda n: (rand(n, 6, dtype=torch.float16),)),
    "float64": (lambda x: (x.exp(), x @ x.T, x.erf()), lambda n: (rand(n, 6, dtype=torch.float64),)),
    "alpha": (lambda x, y: (torch.add(x, y, alpha=3), torch.sub(x, y, alpha=2)), lambda n: (rand(n, 6), rand(6))),
    "pow": (lambda x: (x**2, x**3, x.abs() ** 0.5, (x.abs() + 1) ** -1.5, 2**x, x.abs() ** x), lambda n: (rand(n, 6),)),
    "casts": (lambda x: (x.long(), x.int(), x.bool(), x.double(), x.to(torch.bfloat16), x.to(torch.int8)), lambda n: (rand(n, 6) * 5,)),
    "size_as_number": (lambda x: (x * x.shape[0], x.new_full((3,), x.shape[0] / 2), x.shape[0] * 2 + 1), lambda n: (rand(n, 6),)),
    "number_input": (lambda x, k, a: (x * k + a, x // (k + 20)), lambda n: (rand(n, 6), n + 3, 0.25 * n + 0.1)),
    # choices
    "where": (lambda x, y: (torch.where(x > 0, x, y), torch.where(x > 0, 1.0, 0.0), torch.where(x > 0, x, 2)), lambda n: (rand(n, 6), rand(6))),
    "float_sizes": (lambda x: (x.new_zeros(int(x.shape[0] * 1.5)), x.new_ones(math.ceil(x.shape[0] / 2)), x[: x.shape[0] // 2 + math.floor(x.shape[1] / 4)]), lambda n: (rand(n, 6),)),
    "masked_fill": (lambda x: (x.masked_fill(x > 0, -INF), x.masked_fill(x > 0, torch.tensor(3.0))), lambda n: (rand(n, 6),)),
    "clamp": (lambda x: (x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=1), x.clamp(x.mean(), x.max())), lambda n: (rand(n, 6),)),
    "clamp_nan": (lambda x: x.clamp(-0.5, 0.5), lambda n: (special(n),)),
    "lerp": (lambda x, y: (torch.lerp(x, y, 0.3), torch.lerp(x, y, x)), lambda n: (rand(n, 6), rand(1, 6))),
    "addcmul": (lambda x, y: (torch.addcmul(x, y, y, value=0.5), torch.addcdiv(x, y, y + 9)), lambda n: (rand(n, 6), rand(1, 6))),
    "xlogy": (lambda x, y: (torch.xlogy(x, y), torch.heaviside(x, y)), lambda n: (special(n), special(n))),
    "isin": (lambda x, y: torch.isin(x, y), lambda n: (ints(n, 6), ints(4))),
    "nan_to_num": (lambda x: torch.nan_to_num(x), lambda n: (special(n),)),
    # views
    "expand_computed": (lambda x, y: y.expand(x.shape[0] * 2 - x.shape[0], x.shape[1]), lambda n: (rand(n, 6), rand(1, 6))),
    "views": (lambda x: (x.view(-1), x.reshape(6, -1), x.unsqueeze(1), x[None].squeeze(0), x.flatten(), x.t(), x.view(-1, 2, 3)), lambda n: (rand(n, 6),)),
    "permute": (lambda x: (x.permute(2, 0, 1), x.transpose(0, -1), x.movedim(0, 2), x.mT, x.swapaxes(0, 1)), lambda n: (rand(n, 3, 4),)),
    "select": (lambda x: (x[0], x[-1], x[:, 2], x[..., -2], x.select(1, 3)), lambda n: (rand(n, 6),)),
    "select_number": (lambda x, k: (x[k], x[:, k % 6]), lambda n: (rand(n + 3, 6), n - 1)),
    "slice": (lambda x: (x[1:], x[:-1], x[::2], x[-3:], x[:, 1:5:3], x[1:3], x[:100]), lambda n: (rand(n, 6),)),
    "slice_number": (lambda x, k: (x[k:], x[:k], x[:, : k - 1]), lambda n: (rand(n + 3, 6), 3)),
    "split": (lambda x: (*x.chunk(3, 1), *x.split([1, 5], 1), *x.split(4, 1), *x.unbind(1)), lambda n: (rand(n, 6),)),
    "cat": (lambda x, y: (torch.cat([x, y]), torch.cat([x, x[:, :2]], 1), torch.stack([x, x], 1), torch.cat([x.long(), x])), lambda n: (rand(n, 6), rand(n + 2, 6))),
    "repeat": (lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.tile(2), x.repeat_interleave(3, 0), x.expand(4, -1, -1)), lambda n: (rand(n, 6),)),
    "flip_roll": (lambda x: (x.flip(0, 1), x.roll(2, 0), x.roll(-1, 1), x.roll((1, 2), (0, 1)), x.roll(7), x.rot90()), lambda n: (rand(n, 6),)),
    "diagonal": (lambda x: (x.diagonal(), x.diagonal(1, 0, 2), x.diagonal(-1, 1, 2), torch.diag_embed(x), torch.diag_embed(x, 1, 0, 2)), lambda n: (rand(n + 2, 5, 6),)),
    "unfold": (lambda x: (x.unfold(0, 2, 1), x.unfold(1, 3, 2)), lambda n: (rand(n + 1, 6),)),
    "pixel_shuffle": (lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2)), lambda n: (rand(n, 4, 2 * n, 6),)),
    "as_strided": (lambda x: (x * 2).as_strided((x.shape[0], 3), (6, 2), 1), lambda n: (rand(n, 6),)),
    "overlapping_chunks": (overlapping_chunks, lambda n: (rand(4 * n, 3, 2),)),
    "scatter_views": (lambda x, y: (x.slice_scatter(y, 1, 0, 6, 2), x.select_scatter(y[:, 0], 1, -1), x.slice_scatter(y, 1, 2, 5), torch.diagonal_scatter(x[:3, :3] * 1, x[0, :3])), lambda n: (rand(n + 3, 6), rand(n + 3, 3))),
    "in_place": (lambda x: in_place(x), lambda n: (rand(n + 1, 6),)),
    "pad": (lambda x: (F.pad(x, (1, 2)), F.pad(x, (0, -1, 2, 0), value=3.0), F.pad(x, (0, x.shape[0]))), lambda n: (rand(n, 6),)),
    "pad_modes": (lambda x: (F.pad(x, (2, 3), mode="reflect"), F.pad(x, (1, 4), mode="replicate"), F.pad(x, (1, 2), mode="circular")), lambda n: (rand(1, n + 3, 6),)),
    "pad_2d": (lambda x: (F.pad(x, (1, 2, 2, 1), mode="reflect"), F.pad(x, (1, 0, 2, 3), mode="replicate")), lambda n: (rand(1, 2, n + 3, 6),)),
    # from nothing
    "create": (lambda x: (torch.zeros(x.shape[0], 2), torch.ones_like(x), torch.full((2, x.shape[0]), 7), torch.eye(x.shape[0]), x.new_ones(3)), lambda n: (rand(n, 6),)),
    "arange": (lambda x: (torch.arange(x.shape[0]), torch.arange(2, 2 + x.shape[0] * 3, 3), torch.arange(x.shape[0]) * 0.5, torch.arange(0.0, 1.0, 0.25), torch.linspace(0, 1, 7)), lambda n: (rand(n, 6),)),
    "triangles": (lambda x: (x.tril(), x.triu(1), x.tril(-1), torch.ones(x.shape[0], x.shape[0]).triu()), lambda n: (rand(n, 6),)),
    "meshgrid": (lambda x: torch.meshgrid(torch.arange(x.shape[0]), torch.arange(6), indexing="ij"), lambda n: (rand(n, 6),)),
    "one_hot": (lambda x: F.one_hot(x, 7), lambda n: (ints(n, 2, lo=0, hi=7),)),
    # reductions
    "sum": (lambda x: (x.sum(), x.sum(0), x.sum((0, 1), keepdim=True), x.long().sum(1), (x > 0).sum(), x.sum(dtype=torch.float64)), lambda n: (rand(n, 6),)),
    "mean": (lambda x: (x.mean(), x.mean(1), x.mean(0, keepdim=True)), lambda n: (rand(n, 6),)),
    "prod": (lambda x: (x.prod(), x.prod(1), ints_like(x).prod(0)), lambda n: (rand(n, 6),)),
    "extremes": (lambda x: (x.amax(1), x.amin(0), x.max(), x.min(), *x.max(1), *x.min(1, keepdim=True), *torch.aminmax(x)), lambda n: (rand(n, 6),)),
    "extremes_nan": (lambda x: (x.max(), x.amin(), x.argmax(), x.argmin(), *x.max(0), *x.min(0)), lambda n: (special(n + 3),)),
    "argmax": (lambda x: (x.argmax(), x.argmax(1), x.argmin(1, keepdim=True), x.argmax(0)), lambda n: (ints(n, 6, lo=0, hi=3),)),
    "any_all": (lambda x: ((x > 0).any(), (x > 0).all(1), x.any(0), x.all()), lambda n: (rand(n, 6),)),
    "var": (lambda x: (x.var(1), x.std(1), x.var(1, correction=0), *torch.var_mean(x, 1), x.std((0, 1), unbiased=False)), lambda n: (rand(n, 6),)),
    "norm": (lambda x: (x.norm(), x.norm(dim=1), x.norm(1, 1), torch.linalg.vector_norm(x, INF), torch.linalg.vector_norm(x, 3, 1), torch.linalg.vector_norm(x, 0, 1), F.normalize(x, dim=1)), lambda n: (rand(n, 6),)),
    "softmax": (lambda x: (x.softmax(-1), x.softmax(0), x.log_softmax(1), x.logsumexp(1), x.logsumexp((0, 1))), lambda n: (rand(n, 6),)),
    "softmax_inf": (lambda x: (x.softmax(0), x.log_softmax(0), x.logsumexp(0)), lambda n: (torch.full((n, 2), -INF),)),
    "cumsum": (lambda x: (x.cumsum(0), x.cumsum(1), x.long().cumsum(0), (x > 0).cumsum(0), x.cumprod(0)), lambda n: (rand(n, 6),)),
    "cumulative": (lambda x: (*x.cummax(0), *x.cummin(0), *x.cummax(1), x.logcumsumexp(0)), lambda n: (rand(n, 6),)),
    "cummax_nan": (lambda x: (*x.cummax(0), *x.cummin(0)), lambda n: (special(n + 6),)),
    "losses": (lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.smooth_l1_loss(x, y), F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.huber_loss(x, y), F.cosine_similarity(x, y)), lambda n: (rand(n, 6), rand(n, 6) + 0.1)),
    "cross_entropy": (lambda x, y: (F.cross_entropy(x, y), F.cross_entropy(x, y, ignore_index=2, reduction="sum"), F.cross_entropy(x, y, label_smoothing=0.1), F.nll_loss(x, y, reduction="none")), lambda n: (rand(n, 6), ints(n, lo=0, hi=6))),
    # linear
    "mm": (lambda x, y: (x @ y, torch.mm(x, y), torch.addmm(y[0], x, y, beta=0.5, alpha=2.0), x @ y[:, 0], x[0] @ y), lambda n: (rand(n, 6), rand(6, 6))),
    "bmm": (lambda x, y: (torch.bmm(x, y), x @ y[0], torch.baddbmm(x[:, :, :1], x, y), torch.einsum("bij,bjk->bki", x, y)), lambda n: (rand(n, 3, 6), rand(n, 6, 4))),
    "matmul_broadcast": (lambda x, y: (x[:, None] @ y, y.mT @ y, x @ y[0]), lambda n: (rand(n, 3, 6), rand(5, 6, 2))),
    "linear": (lambda x, w, b: (F.linear(x, w, b), F.linear(x, w), F.bilinear(x, x, torch.ones(2, 6, 6))), lambda n: (rand(n, 3, 6), rand(4, 6), rand(4))),
    "int_mm": (lambda x, y: (x @ y, torch.dot(x[0], y[:, 0])), lambda n: (ints(n, 6), ints(6, 3))),
    "cdist": (lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1.0)), lambda n: (rand(n, 6), rand(4, 6))),
    "conv1d": (lambda x, w: (F.conv1d(x, w), F.conv1d(x, w, stride=2, padding=2, dilation=2), F.conv1d(x, w, padding="same")), lambda n: (rand(2, 4, n + 6), rand(5, 4, 3))),
    "conv2d": (lambda x, w, b: (F.conv2d(x, w, b, padding=1), F.conv2d(x, w, stride=(2, 1)), F.conv2d(x[0], w)), lambda n: (rand(n, 4, n + 4, 7), rand(6, 4, 3, 3), rand(6))),
    "conv_groups": (lambda x, w: (F.conv2d(x, w, groups=2), F.conv2d(x, w[:4, :1], groups=4, padding=1)), lambda n: (rand(n, 4, n + 4, 7), rand(6, 2, 3, 3))),
    "conv3d": (lambda x, w: F.conv3d(x, w, padding=1), lambda n: (rand(1, 2, n, 4, 5), rand(3, 2, 3, 3, 3))),
    "conv_transpose": (lambda x, w: (F.conv_transpose2d(x, w, stride=2), F.conv_transpose2d(x, w, padding=1, output_padding=1, stride=(2, 3)), F.conv_transpose2d(x, w, groups=2, dilation=2)), lambda n: (rand(n, 4, n + 1, 3), rand(4, 3, 3, 2))),
    "conv_bfloat16": (lambda x, w: F.conv2d(x, w, padding=1), lambda n: (rand(n, 4, n + 4, 7, dtype=torch.bfloat16), rand(6, 4, 3, 3, dtype=torch.bfloat16))),
    # normalization and attention
    "layer_norm": (lambda x, w: (F.layer_norm(x, (6,), w, w), F.layer_norm(x, (3, 6)), F.rms_norm(x, (6,), w)), lambda n: (rand(n, 3, 6), rand(6))),
    "group_norm": (lambda x, w: (F.group_norm(x, 2, w, w), F.instance_norm(x)), lambda n: (rand(n, 4, n + 1, 3), rand(4))),
    "batch_norm": (lambda x, m, v: (F.batch_norm(x, m, v), F.batch_norm(x, m, v, v, m)), lambda n: (rand(n, 4, n + 1, 3), rand(4), rand(4).abs())),
    "attention": (lambda q, k: (F.scaled_dot_product_attention(q, k, k), F.scaled_dot_product_attention(q, q, q, is_causal=True), F.scaled_dot_product_attention(q, k, k, scale=0.3)), lambda n: (rand(2, 3, n, 8), rand(2, 3, n + 2, 8))),
    "attention_mask": (lambda q, m: (F.scaled_dot_product_attention(q, q, q, m), F.scaled_dot_product_attention(q, q, q, torch.where(m, 0.0, -INF))), lambda n: (rand(2, 3, n, 8), mask(n))),
    "attention_gqa": (lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True), lambda n: (rand(2, 4, n, 8), rand(2, 2, n + 1, 8))),
    # indices
    "embedding": (lambda w, i: (F.embedding(i, w), F.embedding(i[0], w, padding_idx=0)), lambda n: (rand(9, 6), ints(n, 3, lo=0, hi=9))),
    "index": (lambda x, i: (x[i], x[:, i % 6], x[i, i % 6], x[i[:, None], i[None] % 6], x[-1 - i]), lambda n: (rand(9, 6), ints(n, lo=0, hi=9))),
    "index_3d": (lambda x, i: (x[:, i], x[i, :, i], x[:, i, i], x[..., i[None]]), lambda n: (rand(4, 4, 4), ints(n, lo=-4, hi=4))),
    "index_put": (lambda x, i: (put(x, i, 1.0), put(x, i, x[i] * 2), torch.index_put(x, (i, i % 6), x[0, 0], accumulate=True)), lambda n: (rand(9, 6), torch.arange(9)[: n + 1] * 2 % 9)),
    "index_mask_fill": (lambda x: mask_fill(x), lambda n: (rand(n, 6),)),
    "index_select": (lambda x, i: (x.index_select(0, i), x.T.index_select(1, i), x.index_add(0, i, x[: i.shape[0]]), x.index_copy(0, i, x[: i.shape[0]]), x.index_fill(0, i, 2.0)), lambda n: (rand(9, 6), torch.arange(9)[:n] * 2 % 9)),
    "gather": (lambda x, i: (x.gather(1, i % 6), x.take(i)), lambda n: (rand(n, 6), ints(n, 3, lo=0, hi=6))),
    "scatter": (lambda x, i: (x.scatter(1, i, x[:, 3:]), x.scatter(1, i, 2.0), x.scatter_add(1, i * 0, x), x.scatter_add(0, i * 0, x)), lambda n: (rand(n, 6), torch.arange(3).repeat(n, 1))),
    "scatter_reduce": (lambda x, i: [x.scatter_reduce(1, i, x, r, include_self=s) for r in ("sum", "prod", "amax", "amin", "mean") for s in (True, False)], lambda n: (rand(n, 6), ints(n, 4, lo=0, hi=6))),
    "masked_scatter": (lambda x, y: x.masked_scatter(x > 0, y), lambda n: (rand(n, 6), rand(n, 6))),
    "sort": (lambda x: (*x.sort(0), *x.sort(1, descending=True), x.argsort(1), *torch.sort(x, dim=1, stable=True)), lambda n: (rand(n, 6),)),
    "sort_nan": (lambda x: (*torch.sort(x, dim=0, stable=True), *torch.sort(x, dim=0, stable=True, descending=True)), lambda n: (special(n + 3),)),
    "topk": (lambda x: (*x.topk(3), *x.topk(2, largest=False), *x.topk(1, 0), x.kthvalue(2, 1).values, x.median(1).values), lambda n: (rand(n, 6),)),
    "searchsorted": (lambda x, y: (torch.searchsorted(x, y), torch.bucketize(y, x, right=True)), lambda n: (torch.arange(5.0), rand(n, 6) * 4)),
    "mask_from_lengths": (lambda x, k: (torch.arange(x.shape[1])[None] < k[:, None], x.masked_fill(torch.arange(x.shape[1]) >= k[:, None], 0)), lambda n: (rand(n, 6), ints(n, lo=0, hi=6))),
    # windows
    "max_pool": (lambda x: (F.max_pool2d(x, 2), F.max_pool2d(x, 3, 2, 1), F.max_pool2d(x, 3, 2, ceil_mode=True), F.max_pool2d(x, 2, 1, dilation=2)), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "max_pool_indices": (lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "max_pool_indices_ceil": (lambda x: F.max_pool2d(x, 3, 2, 1, ceil_mode=True, return_indices=True), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "avg_pool": (lambda x: (F.avg_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), F.avg_pool2d(x, 3, 2, 1, ceil_mode=True), F.avg_pool1d(x[0], 2), F.avg_pool2d(x, 2, divisor_override=3)), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "adaptive_pool": (lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_avg_pool2d(x, (3, 4)), F.adaptive_avg_pool1d(x[0], 3)), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "nearest": (lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, size=(5, 9)), F.interpolate(x, size=(5, 9), mode="nearest-exact")), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "bilinear": (lambda x: (F.interpolate(x, scale_factor=2, mode="bilinear"), F.interpolate(x, size=(5, 9), mode="bilinear", align_corners=True), F.interpolate(x[0], size=7, mode="linear")), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "bicubic": (lambda x: (F.interpolate(x, size=(5, 9), mode="bicubic"), F.interpolate(x, size=(9, 4), mode="bicubic", align_corners=True)), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "rotary": (lambda x, a: torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (3, 2))) * torch.polar(torch.ones_like(a), a)), lambda n: (rand(n, 6), rand(3))),
    "fft": (lambda x: (torch.fft.fft(x).real, torch.fft.fft2(x).imag, torch.fft.ifft(x, norm="ortho").abs() * 0, torch.view_as_real(torch.fft.rfft(x, dim=0))), lambda n: (rand(n, 6),)),
    "grouped_mm": (lambda x, w, o: grouped(x, w, o), lambda n: (rand(3 * n, 6), rand(4, 6, 5), torch.tensor([0, n, n, 2 * n]))),
    "histc": (lambda x: torch.histc(x, 5, -2, 2), lambda n: (rand(n, 6),)),
    # what gradients are made of, called by name
    "activation_backward": (lambda g, x: (A.gelu_backward(g, x), A.gelu_backward(g, x, approximate="tanh"), A.silu_backward(g, x), A.sigmoid_backward(g, x), A.tanh_backward(g, x), A.threshold_backward(g, x, 0)), lambda n: (rand(n, 6), rand(n, 6) * 2)),
    "softmax_backward": (lambda g, x: (A._softmax_backward_data(g, x.softmax(-1), -1, torch.float32), A._log_softmax_backward_data(g, x.log_softmax(-1), -1, torch.float32)), lambda n: (rand(n, 6), rand(n, 6) * 2)),
    "conv_backward": (lambda g, x, w: A.convolution_backward(g[..., : (x.shape[2] + 1) // 2, :], x, w, [4], [2, 1], [1, 1], [1, 1], False, [0, 0], 1, [True] * 3), lambda n: (rand(2, 4, n + 5, 7), rand(2, 3, n + 5, 7), rand(4, 3, 3, 3))),
    "conv_groups_backward": (lambda x, w: A.convolution_backward(F.conv2d(x, w, groups=2, dilation=2, padding=1), x, w, [6], [1, 1], [1, 1], [2, 2], False, [0, 0], 2, [True] * 3), lambda n: (rand(2, 4, n + 5, 7), rand(6, 2, 3, 3))),
    "layer_norm_backward": (lambda g, x, w: A.native_layer_norm_backward(g, x, [6], *A.native_layer_norm(x, [6], w, w, 1e-5)[1:], w, w, [True] * 3), lambda n: (rand(n, 3, 6), rand(n, 3, 6) * 2, rand(6))),
    "group_norm_backward": (lambda g, x, w: A.native_group_norm_backward(g, x, *A.native_group_norm(x, w, w, x.shape[0], 4, x.shape[2], 2, 1e-5)[1:], w, x.shape[0], 4, x.shape[2], 2, [True] * 3), lambda n: (rand(n, 4, n + 3), rand(n, 4, n + 3) * 2, rand(4))),
    "pool_backward": (lambda x: (A.max_pool2d_with_indices_backward(*pooled(x)), A.avg_pool2d_backward(F.avg_pool2d(x, 3, 2, 1), x, [3, 3], [2, 2], [1, 1], False, True, None), A._adaptive_avg_pool2d_backward(F.adaptive_avg_pool2d(x, (2, 3)), x)), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "embedding_backward": (lambda g, i: A.embedding_dense_backward(g, i, 9, 0, False), lambda n: (rand(n, 3, 6), ints(n, 3, lo=0, hi=9))),
    "nll_backward": (lambda x, y: A.nll_loss_backward(torch.ones_like(x[0, 0]), x, y, None, 1, -100, torch.ones_like(x[0, 0]) * x.shape[0]), lambda n: (rand(n, 6), ints(n, lo=0, hi=6))),
    "col2im": (lambda x: F.fold(F.unfold(x, (2, 3), padding=1, stride=2), (x.shape[2], x.shape[3]), (2, 3), padding=1, stride=2), lambda n: (rand(1, 2, n + 5, n + 6),)),
    "embedding_bag": (lambda w, i, o: (F.embedding_bag(i, w, o, mode="sum"), F.embedding_bag(i, w, o, mode="mean")), lambda n: (rand(9, 6), ints(3 * n, lo=0, hi=9), torch.arange(n) * 2)),
    "im2col": (lambda x: F.unfold(x, (2, 3), padding=1, stride=2), lambda n: (rand(1, 2, n + 5, n + 6),)),
}  # fmt: skip


@torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=()) if not hasattr(torch.ops.transformers, "grouped_mm_fallback") else lambda f: f
def grouped_rows(input: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
    out = input.new_zeros(input.shape[0], weight.shape[2])
    start = 0
    for i, end in enumerate(offs.tolist()):
        out[start:end] = input[start:end] @ weight[i]
        start = end
    return out


if hasattr(grouped_rows, "register_fake"):
    grouped_rows.register_fake(lambda input, weight, offs: input.new_empty(input.shape[0], weight.shape[2]))


def grouped(x, w, o):
    return torch.ops.transformers.grouped_mm_fallback(x, w, o)


def pooled(x):
    y, i = F.max_pool2d(x, 3, 2, 1, return_indices=True)
    return y, x, [3, 3], [2, 2], [1, 1], [1, 1], False, i


def ints_like(x):
    return (x * 3).long()


def in_place(x):
    y = x * 2
    y[0] = 1.0
    y[:, 1:3] += 5
    y.mul_(2)[-1].zero_()
    return y


def put(x, i, v):
    y = x.clone()
    y[i] = v
    return y


def mask_fill(x):
    y = x.clone()
    y[x > 0] = 7.0
    return y


def mask(n):
    m = torch.ones(n, n, dtype=torch.bool).tril()
    m[0] = False
    return m


def leaves(value):
    return [v for x in value for v in leaves(x)] if isinstance(value, (tuple, list)) else [value]


def named(fn, args):
    names = [f"x{i}" for i in range(len(args))]
    scope = {"fn": fn}
    exec(f"def f({', '.join(names)}):\n    return fn({', '.join(names)})", scope)  # the inputs are named by the parameters
    return scope["f"], dict(zip(names, args))


def agree(got, want):
    assert len(got) == len(want)
    for k, (a, b) in enumerate(zip(got, want)):
        if not isinstance(b, torch.Tensor):
            assert a == b, k
            continue
        assert a.dtype == b.dtype and a.shape == b.shape, (k, a.dtype, b.dtype, a.shape, b.shape)
        half = b.dtype in (torch.float16, torch.bfloat16)
        torch.testing.assert_close(a, b, rtol=2e-2 if half else 2e-5, atol=1e-2 if half else 2e-5, equal_nan=True, msg=lambda m: f"result {k}: {m}")  # noqa: B023


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_eager(name: str) -> None:
    fn, make = CASES[name]
    f, _ = named(fn, make(5))
    made = to_stablehlo(export(f, make(5)))
    for n in (7, 1):
        _, inputs = named(fn, make(n))
        agree(list(made.run(inputs).values()), leaves(fn(*make(n))))
    assert operator.index(len(made.bytecode())) > 0
