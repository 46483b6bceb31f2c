"""Packages of many fields, a few calls of each: sound, normalizing flows, sequences, tables, agents, manifolds, wavelets. Not needed by
pliant: `pip install --no-deps julius auraloss asteroid-filterbanks zuko nflows normflows pytorch-crf rotary-embedding-torch torchcde
torchdiffeq rtdl-revisiting-models rtdl-num-embeddings pytorch-tabnet stable-baselines3 gymnasium geoopt torch-harmonics ptwt PyWavelets`,
and what they import (`pandas`, `matplotlib`, `librosa`, `farama-notifications` and the like)."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.libraries import define_operators
from benchmarks.zoo.model import Model

G = torch.Generator().manual_seed(0)
ROWS = (5, 9, 4)


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(*shape, generator=G)


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=G)


def randint(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=G)


def of(name: str) -> Any:
    """`package.module:what`, imported when it is needed."""
    module, _, what = name.partition(":")
    found = importlib.import_module(module)
    return getattr(found, what) if what else found


class Applied(torch.nn.Module):
    """What a package has made, and a call of it. Where it is trained the inputs have gradients, too: they are moved along by a parameter,
    each element its own way (what is the same at all scales has no gradient by a scale but rounding)."""

    def __init__(self, inner: Any, call: Callable[..., Any] | None, moved: bool) -> None:
        super().__init__()
        self.inner = inner
        self.call = call
        self.way = torch.nn.Parameter(torch.zeros(())) if moved else None

    def forward(self, *args: Any) -> Any:
        if self.way is not None:
            args = tuple([self.moved(a) if isinstance(a, torch.Tensor) and a.is_floating_point() else a for a in args])
        if self.call is None:
            return self.inner(*args)
        return self.call(self.inner, *args)

    def moved(self, a: torch.Tensor) -> torch.Tensor:
        return a + self.way * torch.arange(a.numel()).cos().reshape(a.shape)


def model(name: str, make: Callable[[], Any], calls: list[tuple], call: Callable[..., Any] | None = None, train: bool = True) -> Model:
    def made() -> Any:
        define_operators()
        torch.manual_seed(0)
        return Applied(make(), call, train).eval()

    return Model(name, made, lambda _: [(args, {}) for args in calls], train)


def function(name: str, calls: list[tuple], call: Callable[..., Any], train: bool = True) -> Model:
    return model(name, lambda: None, calls, lambda _, *args: call(*args), train)


# -- sound -----------------------------------------------------------------------------------------------------------------
SOUNDS = tuple(zip((2, 3, 1, 2), (400, 640, 333, 512), strict=True))


def speech() -> list[Model]:
    one = [(randn(b, 1, n),) for b, n in SOUNDS]
    two = [(randn(b, 1, n), randn(b, 1, n)) for b, n in SOUNDS]
    makers = {
        "julius ResampleFrac": lambda: of("julius:ResampleFrac")(4, 5),
        "julius LowPassFilter": lambda: of("julius:LowPassFilter")(0.2),
        "julius BandPassFilter": lambda: of("julius:BandPassFilter")(0.1, 0.3),
        "julius SplitBands": lambda: of("julius:SplitBands")(16000, n_bands=4),
        "julius FFTConv1d": lambda: of("julius:FFTConv1d")(1, 2, 40),
        **{
            f"asteroid {kind}": lambda kind=kind: of("asteroid_filterbanks:make_enc_dec")(kind, n_filters=16, kernel_size=16)[0]
            for kind in ("free", "stft", "analytic_free", "param_sinc")
        },
    }
    sizes = {"fft_sizes": [64, 128], "hop_sizes": [16, 32], "win_lengths": [48, 96]}
    losses = {
        "auraloss MultiResolutionSTFTLoss": lambda: of("auraloss.freq:MultiResolutionSTFTLoss")(**sizes),
        **{
            f"auraloss {name}": lambda name=name: of(f"auraloss.time:{name}")()
            for name in ("SISDRLoss", "ESRLoss", "LogCoshLoss", "DCLoss", "SNRLoss", "SDSDRLoss")
        },
    }
    return [
        *[model(name, make, one) for name, make in makers.items()],
        *[model(name, make, two, train=False) for name, make in losses.items()],  # most are the same for all scales
        function("julius resample_frac", one, lambda x: of("julius:resample_frac")(x, 3, 4)),
    ]


# -- normalizing flows, sequences --------------------------------------------------------------------------------------------
def log_prob(flow: Any, x: torch.Tensor, *context: torch.Tensor) -> torch.Tensor:
    return (flow(*context) if context else flow).log_prob(x)


def chained(base: str, *parts: tuple) -> Any:
    flows = of("normflows").flows
    made = [getattr(flows, name)(*[a() if callable(a) else a for a in args]) for name, *args in parts]
    return of("normflows:NormalizingFlow")(getattr(of("normflows").distributions.base, base)(4), made)


def masked(n_features: int, kind: str) -> Any:
    t = of("nflows.transforms")
    made = {
        "affine": lambda: t.MaskedAffineAutoregressiveTransform(n_features, 16),
        "splines": lambda: t.MaskedPiecewiseRationalQuadraticAutoregressiveTransform(n_features, 16, tails="linear", tail_bound=3.0),
        "linear": lambda: t.LULinear(n_features),
    }[kind]()
    return of("nflows.flows.base:Flow")(made, of("nflows.distributions.normal:StandardNormal")([n_features]))


SMALL = {"transforms": 2, "hidden_features": [16]}


def flows() -> list[Model]:
    with_context = [(randn(n, 3), randn(n, 4)) for n in ROWS]
    affine = ("AffineCouplingBlock", lambda: of("normflows").nets.MLP([2, 8, 4], init_zeros=False))
    return [
        *[
            model(f"zuko {name}", lambda name=name: of(f"zuko.flows:{name}")(3, 4, **SMALL), with_context, log_prob)
            for name in ("NSF", "MAF", "NICE", "SOSPF", "NAF", "UNAF", "GF", "BPF", "NCSF")
        ],
        *[
            model(f"nflows {kind}", lambda kind=kind: masked(3, kind), [(randn(n, 3),) for n in ROWS], log_prob)
            for kind in ("affine", "splines", "linear")
        ],
        model("normflows coupling", lambda: chained("DiagGaussian", affine, ("Permute", 4, "swap"), ("ActNorm", 4)), rows(4), log_prob),
        model("normflows splines", lambda: chained("DiagGaussian", ("CoupledRationalQuadraticSpline", 4, 1, 8)), rows(4), log_prob),
    ]


def rows(n_features: int) -> list[tuple]:
    return [(randn(n, n_features),) for n in ROWS]


def sequences() -> list[Model]:
    lengths = ((2, 6), (3, 9), (1, 4), (2, 7))
    tags = [(randn(b, n, 5), randint(5, b, n), torch.arange(n)[None].expand(b, n) < n) for b, n in lengths]
    walks = [(randn(b, n, 3),) for b, n in lengths]

    def rotated(m: Any, q: torch.Tensor) -> torch.Tensor:
        return m.rotate_queries_or_keys(q)

    heads = [(randn(1, 2, n, 16),) for n in (5, 9, 7, 12)]
    return [
        model("torchcrf", lambda: of("torchcrf:CRF")(5, batch_first=True), tags),
        model("torchcrf decode", lambda: of("torchcrf:CRF")(5, batch_first=True), tags, lambda m, x, _, k: m.decode(x, k), train=False),
        model("rotary embedding", lambda: of("rotary_embedding_torch:RotaryEmbedding")(8), heads, rotated),
        *[
            function(f"torchcde {name}", walks, lambda x, name=name: of(f"torchcde:{name}")(x))
            for name in ("natural_cubic_coeffs", "linear_interpolation_coeffs", "hermite_cubic_coefficients_with_backward_differences")
        ],
    ]


# -- tables, agents ----------------------------------------------------------------------------------------------------------
FT = {
    "n_cont_features": 4, "cat_cardinalities": [3, 5], "d_out": 2, "n_blocks": 1, "d_block": 8, "attention_n_heads": 2,
    "attention_dropout": 0.0, "ffn_d_hidden_multiplier": 2, "ffn_dropout": 0.0, "residual_dropout": 0.0,
}  # fmt: skip
TABNET = {"n_d": 4, "n_a": 4, "n_steps": 2, "group_attention_matrix": torch.eye(4)}
RESNET = {"n_blocks": 2, "d_block": 8, "d_hidden": None, "d_hidden_multiplier": 2.0, "dropout1": 0.1, "dropout2": 0.0}


def tables() -> list[Model]:
    mixed = [(randn(n, 4), torch.stack([randint(3, n), randint(5, n)], 1)) for n in ROWS]
    return [
        model("rtdl FTTransformer", lambda: of("rtdl_revisiting_models:FTTransformer")(**FT), mixed),
        model("rtdl MLP", lambda: of("rtdl_revisiting_models:MLP")(d_in=4, d_out=2, n_blocks=2, d_block=8, dropout=0.1), rows(4)),
        model("rtdl ResNet", lambda: of("rtdl_revisiting_models:ResNet")(d_in=4, d_out=2, **RESNET), rows(4)),
        model("rtdl PeriodicEmbeddings", lambda: of("rtdl_num_embeddings:PeriodicEmbeddings")(4, 8, lite=False), rows(4)),
        model("tabnet", lambda: of("pytorch_tabnet.tab_network:TabNet")(4, 2, **TABNET), rows(4)),
    ]


def policy(name: str, discrete: bool) -> Any:
    spaces, np = of("gymnasium.spaces"), of("numpy")
    actions = spaces.Discrete(3) if discrete else spaces.Box(-1, 1, (2,), np.float32)
    return of(name)(spaces.Box(-1, 1, (4,), np.float32), actions, lambda _: 1e-3)


def agents() -> list[Model]:
    actor, seen = "stable_baselines3.common.policies:ActorCriticPolicy", rows(4)
    moves, choices = [(randn(n, 4), randn(n, 2)) for n in ROWS], [(randn(n, 4), randint(3, n)) for n in ROWS]

    def evaluated(m: Any, seen: torch.Tensor, done: torch.Tensor) -> Any:
        return m.evaluate_actions(seen, done)

    return [
        model("sb3 evaluate", lambda: policy(actor, False), moves, evaluated),
        model("sb3 evaluate, discrete", lambda: policy(actor, True), choices, evaluated),
        model("sb3 act", lambda: policy(actor, False), seen, train=False),
        model("sb3 values", lambda: policy(actor, True), seen, lambda m, o: m.predict_values(o)),
        model("sb3 DQN", lambda: policy("stable_baselines3.dqn.policies:DQNPolicy", True), seen, lambda m, o: m.q_net(o)),
        model("sb3 SAC", lambda: policy("stable_baselines3.sac.policies:SACPolicy", False), seen, lambda m, o: m.actor.action_log_prob(o)),
    ]


# -- manifolds, wavelets -------------------------------------------------------------------------------------------------------
ON_MANIFOLDS: dict[str, Callable[..., Any]] = {
    "dist": lambda m, x, y: m.dist(m.projx(x * 0.3), m.projx(y * 0.3)),
    "expmap": lambda m, x, y: m.expmap(m.projx(x * 0.3), m.proju(m.projx(x * 0.3), y)),
    "logmap": lambda m, x, y: m.logmap(m.projx(x * 0.3), m.projx(y * 0.3)),
}


def manifolds() -> list[Model]:
    pairs = [(randn(n, 3), randn(n, 3)) for n in ROWS]
    signals = [(randn(b, n),) for b, n in ((2, 32), (3, 41), (1, 24))]
    return [
        *[
            model(f"geoopt {kind} {name}", lambda kind=kind: of(f"geoopt:{kind}")(), pairs, call, train=kind != "Sphere")
            for kind in ("PoincareBall", "Sphere", "Lorentz")
            for name, call in ON_MANIFOLDS.items()
        ],
        model("harmonics RealSHT", lambda: of("torch_harmonics:RealSHT")(8, 16), [(rand(b, 8, 16),) for b in (2, 3, 1)], train=False),
        *[
            function(f"ptwt wavedec {w}", signals, lambda x, w=w: tuple(of("ptwt:wavedec")(x, w, level=2, mode="zero")), train=False)
            for w in ("haar", "db2")
        ],
    ]


MAKERS: dict[str, Callable[[], list[Model]]] = {
    "speech": speech, "flows": flows, "sequences": sequences, "tables": tables, "agents": agents, "manifolds": manifolds,
}  # fmt: skip


class Families(dict):
    """Made when asked for."""

    def __init__(self, makers: dict[str, Callable[[], list[Model]]]) -> None:
        super().__init__()
        self.makers = makers

    def __missing__(self, family: str) -> list[Model]:
        return self.makers[family]()


FAMILIES = Families(MAKERS)
