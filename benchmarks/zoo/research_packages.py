"""Packages of research, a few calls of each: privacy, curvature, Gaussian processes, molecules, neural operators, attributions, attacks,
self-supervision, poses, differential equations, similarities. Not needed by pliant: `pip install --no-deps opacus curvlinops-for-pytorch
einconv botorch gpytorch linear_operator torchani neuraloperator tensorly tensorly-torch captum zennit torchattacks foolbox lightly pypose
torchsde torchode geomloss piqa pytorch-msssim pykan torchjd`, and what they import (`jaxtyping`, `trampoline`, `opt-einsum`)."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from benchmarks.zoo.model import Model
from benchmarks.zoo.more_packages import Families, function, model, of, rand, randint, randn

ROWS = (5, 9, 4, 12)


def recorded(name: str, make: Callable[[], Any], calls: list[tuple], call: Callable[..., Any]) -> Model:
    """What asks for gradients itself: the crawl has them off where it does not train."""

    def whole(*args: Any) -> Any:
        with torch.enable_grad():
            return call(*args)

    return model(name, make, calls, whole, train=False)


def rows(*shape: int) -> list[tuple]:
    return [(randn(n, *shape),) for n in ROWS]


def small(kind: type[nn.Module] = nn.Tanh) -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), kind(), nn.Linear(8, 3))


def conv() -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4 * 16, 3))


PICTURES = [(rand(n, 3, 8, 8), randint(3, n)) for n in (2, 3, 5, 4)]


# -- privacy, curvature ------------------------------------------------------------------------------------------------------
def private() -> list[Model]:
    def norms(m: Any, x: torch.Tensor) -> Any:
        """Gradients sample by sample, as Opacus' hooks leave them."""
        m.train().zero_grad()
        m(x).square().mean().backward()
        found = [p.grad_sample for p in m.parameters()]
        for p in m.parameters():
            p.grad_sample = None
        return found

    def grads(make: Callable[[], nn.Module], **options: Any) -> Callable[[], Any]:
        return lambda: of("opacus.grad_sample:GradSampleModule")(make(), **options)

    def recurrent(kind: str) -> Any:
        return of(f"opacus.layers:{kind}")(4, 6, batch_first=True)

    sequences = [(randn(b, n, 4),) for b, n in ((2, 5), (3, 7), (1, 4), (2, 6))]
    return [
        recorded("opacus linear", grads(small), rows(4), norms),
        recorded("opacus conv", grads(conv), [(p,) for p, _ in PICTURES], norms),
        recorded("opacus norm", grads(lambda: nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 2))), rows(4), norms),
        recorded("opacus group norm", grads(lambda: nn.Sequential(nn.Conv1d(4, 4, 1), nn.GroupNorm(2, 4))), rows(4, 6), norms),
        *[model(f"opacus {k}", lambda k=k: recurrent(k), sequences, lambda m, x: m(x)[0]) for k in ("DPLSTM", "DPGRU", "DPRNN")],
        model("opacus attention", lambda: of("opacus.layers:DPMultiheadAttention")(4, 2), sequences, lambda m, x: m(x, x, x)[0]),
    ]


def curvature() -> list[Model]:
    def operator(kind: str, make: Callable[[], nn.Module] = small) -> Callable[..., Any]:
        def call(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
            params = [p for p in m.parameters() if p.requires_grad]
            made = of(f"curvlinops:{kind}LinearOperator")(m, nn.CrossEntropyLoss(), params, [(x, y)], check_deterministic=False)
            return made @ torch.ones(made.shape[1])

        return call

    pairs = [(randn(n, 4), randint(3, n)) for n in ROWS]

    def laplace(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        la = of("laplace:Laplace")(m, "classification", subset_of_weights="last_layer", hessian_structure="full")
        la.fit(torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=4))
        return la(x, link_approx="probit")

    def jacobian(m: nn.Module, x: torch.Tensor) -> Any:
        return of("torchjd.autojac:jac")(m(x).mean(0), inputs=list(m.parameters()))

    return [
        *[recorded(f"curvlinops {k}", small, pairs, operator(k)) for k in ("Hessian", "GGN", "EF", "FisherMC", "KFAC", "EKFAC")],
        recorded("laplace", small, pairs, laplace),
        recorded("torchjd jac", small, rows(4), jacobian),
        *[
            function(
                f"torchjd {n}", [(randn(k, 5),) for k in (2, 3, 4, 6)], lambda j, n=n: of(f"torchjd.aggregation:{n}")()(j), train=False
            )
            for n in ("Mean", "PCGrad", "MGDA", "IMTLG", "AlignedMTL", "GradDrop", "Random")
        ],
    ]


# -- Gaussian processes --------------------------------------------------------------------------------------------------------
def gaussian() -> list[Model]:
    def fitted(kind: str) -> Any:
        x = torch.linspace(0, 1, 14).reshape(7, 2).double()
        y = torch.stack([x.sin().sum(1), x.cos().sum(1)], 1) if kind != "one" else x.sin().sum(1, keepdim=True)
        return of("botorch.models:SingleTaskGP")(x, y).eval()

    def acquired(name: str, **options: Any) -> Callable[..., Any]:
        def call(m: Any, x: torch.Tensor) -> Any:
            return of(f"botorch.acquisition:{name}")(m, **options)(x)

        return call

    points = [(rand(b, q, 2).double(),) for b, q in ((5, 1), (9, 1), (4, 1), (12, 1))]
    many = [(rand(b, q, 2).double(),) for b, q in ((5, 2), (9, 2), (4, 3), (12, 2))]
    functions = {
        "LogExpectedImprovement": ({"best_f": 0.3}, points),
        "ExpectedImprovement": ({"best_f": 0.3}, points),
        "UpperConfidenceBound": ({"beta": 0.2}, points),
        "ProbabilityOfImprovement": ({"best_f": 0.3}, points),
        "PosteriorMean": ({}, points),
        "PosteriorStandardDeviation": ({}, points),
        "NoisyExpectedImprovement": ({}, points),
        "qExpectedImprovement": ({"best_f": 0.3}, many),
        "qLogExpectedImprovement": ({"best_f": 0.3}, many),
        "qUpperConfidenceBound": ({"beta": 0.2}, many),
        "qSimpleRegret": ({}, many),
        "qProbabilityOfImprovement": ({"best_f": 0.3}, many),
    }
    tests = ("Ackley", "Branin", "Hartmann", "Rosenbrock", "Levy", "Griewank", "Rastrigin", "StyblinskiTang", "Michalewicz")
    several = ("BraninCurrin", "DTLZ2", "ZDT1", "VehicleSafety", "DH1", "Penicillin", "GMM")
    utilities = {
        "smooth_amax": lambda x: of("botorch.utils.safe_math:smooth_amax")(x),
        "fatmax": lambda x: of("botorch.utils.safe_math:fatmax")(x, 1),
        "log_softplus": lambda x: of("botorch.utils.safe_math:log_softplus")(x),
        "logmeanexp": lambda x: of("botorch.utils.safe_math:logmeanexp")(x, 1),
        "log_prob_normal_in": lambda x: of("botorch.utils.probability.utils:log_prob_normal_in")(x, x + 1),
        "log_ndtr": lambda x: of("botorch.utils.probability.utils:log_ndtr")(x),
        "phi": lambda x: of("botorch.utils.probability.utils:phi")(x),
        "standardize": lambda x: of("botorch.utils.transforms:standardize")(x),
        "normalize": lambda x: of("botorch.utils.transforms:normalize")(x, torch.tensor([[-1.0] * 4, [1.0] * 4])),
        "is_non_dominated": lambda x: of("botorch.utils.multi_objective.pareto:is_non_dominated")(x),
        "hypervolume": lambda x: of("botorch.utils.multi_objective.hypervolume:Hypervolume")(torch.full((4,), -3.0)).compute(x),
        "chebyshev": lambda x: of("botorch.utils.multi_objective.scalarization:get_chebyshev_scalarization")(
            torch.tensor([0.1, 0.2, 0.3, 0.4]), x
        )(x),
        "box decomposition": lambda x: of("botorch.utils.multi_objective.box_decompositions.non_dominated:FastNondominatedPartitioning")(
            torch.full((4,), -3.0), x
        ).get_hypercell_bounds(),
        "round_ste": lambda x: of("botorch.utils.rounding:RoundSTE").apply(x),
    }
    return [
        *[model(f"botorch {n}", lambda: fitted("one"), calls, acquired(n, **o)) for n, (o, calls) in functions.items() if "Noisy" not in n],
        model("botorch posterior", lambda: fitted("one"), points, lambda m, x: (m.posterior(x).mean, m.posterior(x).variance)),
        model("botorch posterior of two", lambda: fitted("two"), points, lambda m, x: (m.posterior(x).mean, m.posterior(x).variance)),
        *[
            function(
                f"botorch {n}",
                [(rand(k, of(f"botorch.test_functions:{n}")().dim),) for k in ROWS],
                lambda x, n=n: of(f"botorch.test_functions:{n}")()(x),
            )
            for n in tests
        ],
        *[
            function(
                f"botorch {n}",
                [(rand(k, 7 if n == "Penicillin" else 5 if n == "VehicleSafety" else 4 if n in ("DTLZ2", "ZDT1") else 2),) for k in ROWS],
                lambda x, n=n: of(f"botorch.test_functions.multi_objective:{n}")(
                    **({"dim": 4} if n in ("DTLZ2", "ZDT1") else {"dim": 2} if n == "DH1" else {})
                )(x),
                train=False,
            )
            for n in several
        ],
        *[function(f"botorch {n}", rows(4), call) for n, call in utilities.items()],
    ]


# -- molecules, neural operators ------------------------------------------------------------------------------------------------
def molecules() -> list[Model]:
    calls = [(torch.stack([torch.randperm(n) % 4 for _ in range(b)]), randn(b, n, 3) * 2) for b, n in ((1, 5), (2, 4), (3, 6), (1, 7))]

    def aev(kind: str) -> Any:
        return of("torchani.aev:AEVComputer").like_2x() if kind == "2x" else of("torchani.aev:AEVComputer").like_1x()

    def forces(m: Any, species: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            return torch.autograd.grad(m(species, x).square().sum(), x)[0]

    return [
        model("torchani AEV 1x", lambda: aev("1x"), calls),
        model("torchani AEV 2x", lambda: aev("2x"), calls),
        recorded("torchani forces", lambda: aev("1x"), calls, forces),
        model(
            "torchani repulsion",
            lambda: of("torchani.potentials:RepulsionXTB")(symbols=["H", "C", "N", "O"]),
            calls,
            lambda m, s, x: m(torch.tensor([1, 6, 7, 8])[s], x),
            train=False,
        ),
    ]


def operators() -> list[Model]:
    maps = [(randn(b, 2, n, n),) for b, n in ((1, 8), (2, 12), (3, 8), (1, 16))]
    lines = [(randn(b, 2, n),) for b, n in ((1, 16), (2, 24), (3, 16), (1, 32))]
    many = {"n_modes": (4, 4), "hidden_channels": 8, "in_channels": 2, "out_channels": 1, "n_layers": 2}
    return [
        model("neuralop FNO", lambda: of("neuralop.models:FNO")(**many), maps),
        model("neuralop TFNO", lambda: of("neuralop.models:TFNO")(**many, rank=0.5), maps),
        model("neuralop FNO 1d", lambda: of("neuralop.models:FNO")(**{**many, "n_modes": (4,)}), lines),
        model(
            "neuralop UNO",
            lambda: of("neuralop.models:UNO")(
                2, 1, 8, uno_out_channels=[8, 8, 8], uno_n_modes=[[4, 4]] * 3, uno_scalings=[[1, 1]] * 3, n_layers=3
            ),
            maps,
        ),
        model("neuralop LocalNO", lambda: of("neuralop.models:LocalNO")(**many, default_in_shape=(8, 8), disco_layers=False), maps),
        model(
            "neuralop RNO",
            lambda: of("neuralop.models:RNO")(n_modes=(4, 4), in_channels=2, out_channels=1, hidden_channels=8, n_layers=1),
            [(randn(b, t, 2, 8, 8),) for b, t in ((1, 3), (2, 4), (1, 2))],
        ),
        model("neuralop SpectralConv", lambda: of("neuralop.layers.spectral_convolution:SpectralConv")(2, 3, (4, 4)), maps),
        model("neuralop H1Loss", lambda: of("neuralop.losses:H1Loss")(d=2), maps, lambda m, x: m(x, x * 0.5 + 1)),
        model("neuralop LpLoss", lambda: of("neuralop.losses:LpLoss")(d=2), maps, lambda m, x: m(x, x * 0.5 + 1)),
        model(
            "pykan", lambda: of("kan:KAN")(width=[4, 3, 2], grid=3, k=3, auto_save=False, save_act=False, symbolic_enabled=False), rows(4)
        ),
    ]


# -- attributions, attacks --------------------------------------------------------------------------------------------------------
def attributions() -> list[Model]:
    def captum(name: str, **options: Any) -> Callable[..., Any]:
        def call(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
            method = of(f"captum.attr:{name}")(m) if "Layer" not in name else of(f"captum.attr:{name}")(m, m[0])
            return method.attribute(x, target=y, **options)

        return call

    kinds = {
        "Saliency": {},
        "InputXGradient": {},
        "IntegratedGradients": {"n_steps": 6},
        "DeepLift": {},
        "GuidedBackprop": {},
        "Deconvolution": {},
        "FeatureAblation": {},
        "Occlusion": {"sliding_window_shapes": (1, 4, 4)},
        "LayerGradCam": {},
        "LayerActivation": {},
        "LayerIntegratedGradients": {"n_steps": 4},
        "LayerConductance": {"n_steps": 4},
        "LRP": {},
    }

    def zennit(composite: str) -> Callable[..., Any]:
        def call(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
            made = of(f"zennit.composites:{composite}")(*((-1.0, 1.0) if False else ()))
            with of("zennit.attribution:Gradient")(model=m, composite=made) as attributor:
                return attributor(x, torch.eye(3)[y])

        return call

    return [
        *[
            recorded(
                f"captum {n}",
                conv,
                PICTURES,
                captum(n, **o) if n != "LayerActivation" else lambda m, x, y: of("captum.attr:LayerActivation")(m, m[0]).attribute(x),
            )
            for n, o in kinds.items()
        ],
        *[
            recorded(f"zennit {n}", conv, PICTURES, zennit(n))
            for n in ("EpsilonPlus", "EpsilonAlpha2Beta1", "EpsilonGammaBox")
            if "Box" not in n
        ],
    ]


def attacks() -> list[Model]:
    def torchattack(name: str, **options: Any) -> Callable[..., Any]:
        def call(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
            return of(f"torchattacks:{name}")(m, **options)(x, y)

        return call

    def foolbox(name: str, **options: Any) -> Callable[..., Any]:
        def call(m: nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                made = of("foolbox:PyTorchModel")(m.eval(), bounds=(0, 1))
                return of(f"foolbox.attacks:{name}")(**options)(made, x, y, epsilons=0.1)

        return call

    ours = {
        "FGSM": {},
        "BIM": {"steps": 3},
        "PGD": {"steps": 3},
        "PGDL2": {"steps": 3},
        "MIFGSM": {"steps": 3},
        "NIFGSM": {"steps": 3},
        "CW": {"steps": 4},
        "TIFGSM": {"steps": 2},
        "DIFGSM": {"steps": 2},
        "FFGSM": {},
        "RFGSM": {"steps": 3},
        "TPGD": {"steps": 3},
        "VMIFGSM": {"steps": 2, "N": 2},
        "EOTPGD": {"steps": 2},
        "GN": {},
        "DeepFool": {"steps": 3},
        "EADL1": {"max_iterations": 2, "binary_search_steps": 1},
    }
    theirs = {"LinfPGD": {"steps": 3}, "L2FastGradientAttack": {}, "LinfDeepFoolAttack": {"steps": 3}, "L2AdditiveGaussianNoiseAttack": {}}
    return [
        *[recorded(f"torchattacks {n}", conv, PICTURES, torchattack(n, **o)) for n, o in ours.items()],
        *[recorded(f"foolbox {n}", conv, PICTURES, foolbox(n, **o)) for n, o in theirs.items()],
    ]


# -- self-supervision, poses, differential equations, similarities -----------------------------------------------------------------
def supervision() -> list[Model]:
    pairs = [(randn(n, 8), randn(n, 8)) for n in (4, 6, 8, 12)]
    names = ("NTXentLoss", "BarlowTwinsLoss", "VICRegLoss", "NegativeCosineSimilarity", "DCLLoss", "DCLWLoss", "TiCoLoss")
    losses = {n: (lambda n=n: of(f"lightly.loss:{n}")()) for n in names}
    labels = [(randn(n, 8), randint(3, n)) for n in (6, 9, 8, 12)]
    metric = {
        "TripletMarginLoss": {},
        "ContrastiveLoss": {},
        "ArcFaceLoss": {"num_classes": 3, "embedding_size": 8},
        "MultiSimilarityLoss": {},
        "NTXentLoss": {},
        "ProxyAnchorLoss": {"num_classes": 3, "embedding_size": 8},
        "SupConLoss": {},
        "CircleLoss": {},
        "LiftedStructureLoss": {},
        "NCALoss": {},
        "FastAPLoss": {},
        "SoftTripleLoss": {"num_classes": 3, "embedding_size": 8},
        "AngularLoss": {},
        "CosFaceLoss": {"num_classes": 3, "embedding_size": 8},
        "SignalToNoiseRatioContrastiveLoss": {},
        "TupletMarginLoss": {},
        "MarginLoss": {},
        "SubCenterArcFaceLoss": {"num_classes": 3, "embedding_size": 8},
        "InstanceLoss": {},
        "P2SGradLoss": {"num_classes": 3, "descriptors_dim": 8},
        "ThresholdConsistentMarginLoss": {},
        "NPairsLoss": {},
        "SphereFaceLoss": {"num_classes": 3, "embedding_size": 8},
        "RankedListLoss": {"margin": 1, "Tn": 1},
        "PNPLoss": {},
        "HistogramLoss": {"n_bins": 10},
        "GeneralizedLiftedStructureLoss": {},
        "IntraPairVarianceLoss": {},
        "ProxyNCALoss": {"num_classes": 3, "embedding_size": 8},
        "LargeMarginSoftmaxLoss": {"num_classes": 3, "embedding_size": 8},
        "NormalizedSoftmaxLoss": {"num_classes": 3, "embedding_size": 8},
    }
    miners = (
        "MultiSimilarityMiner",
        "TripletMarginMiner",
        "BatchHardMiner",
        "BatchEasyHardMiner",
        "PairMarginMiner",
        "AngularMiner",
        "HDCMiner",
        "DistanceWeightedMiner",
    )
    return [
        *[model(f"lightly {n}", make, pairs) for n, make in losses.items()],
        model(
            "lightly MemoryBank",
            lambda: of("lightly.models.modules.memory_bank:MemoryBankModule")(size=(16, 8)),
            pairs,
            lambda m, a, b: m(a, update=True),
            train=False,
        ),
        model(
            "lightly heads", lambda: of("lightly.models.modules.heads:SimCLRProjectionHead")(8, 8, 4), pairs, lambda m, a, b: (m(a), m(b))
        ),
        *[model(f"metric {n}", lambda n=n, o=o: of(f"pytorch_metric_learning.losses:{n}")(**o), labels) for n, o in metric.items()],
        *[model(f"metric {n}", lambda n=n: of(f"pytorch_metric_learning.miners:{n}")(), labels, train=False) for n in miners],
    ]


def poses() -> list[Model]:
    def lie(group: str, algebra: str, size: int, name: str, call: Callable[..., Any]) -> Model:
        def whole(x: torch.Tensor, y: torch.Tensor) -> Any:
            with warnings.catch_warnings():
                p = of("pypose")
                found = call(p, getattr(p, algebra)(x), y)
                return found.tensor() if hasattr(found, "tensor") else found

        return function(f"pypose {group} {name}", [(randn(n, size) * 0.5, randn(n, 3)) for n in ROWS], whole)

    calls: dict[str, Callable[..., Any]] = {
        "Exp": lambda p, a, y: a.Exp(),
        "Exp Log": lambda p, a, y: a.Exp().Log(),
        "Act": lambda p, a, y: a.Exp().Act(y),
        "Inv": lambda p, a, y: a.Exp().Inv(),
        "product": lambda p, a, y: a.Exp() @ a.Exp(),
        "matrix": lambda p, a, y: a.Exp().matrix(),
        "Adj": lambda p, a, y: a.Exp().Adj(a),
        "Jinvp": lambda p, a, y: a.Exp().Jinvp(a),
        "rotation": lambda p, a, y: a.Exp().rotation(),
        "Retr": lambda p, a, y: a.Exp().Retr(a),
    }
    groups = (("SO3", "so3", 3), ("SE3", "se3", 6), ("Sim3", "sim3", 7), ("RxSO3", "rxso3", 4))
    functions = {
        "mat2SO3": lambda p, x: p.mat2SO3(torch.linalg.qr(x)[0] * torch.linalg.qr(x)[0].det()[:, None, None]).tensor(),
        "skew": lambda p, x: p.vec2skew(x),
        "cumsum": lambda p, x: p.cumops(x, 0, torch.add),
        "euler": lambda p, x: p.euler2SO3(x[:, 0]).tensor(),
        "cart2homo": lambda p, x: p.cart2homo(x),
        "point2pixel": lambda p, x: p.point2pixel(x, torch.eye(3)),
        "knn": lambda p, x: p.knn(x[:, 0], x[:, 0], k=2).values,
        "svdtf": lambda p, x: p.svdtf(x, x + 1).tensor(),
    }
    return [
        *[lie(g, a, s, n, call) for g, a, s in groups for n, call in calls.items()],
        *[
            function(f"pypose {n}", rows(3, 3), lambda x, call=call: call(of("pypose"), x), train=n not in ("mat2SO3", "svdtf", "knn"))
            for n, call in functions.items()
        ],
    ]


class Drift(nn.Module):
    noise_type = "diagonal"
    sde_type = "ito"

    def __init__(self, noise_type: str = "diagonal", sde_type: str = "ito") -> None:
        super().__init__()
        self.noise_type, self.sde_type = noise_type, sde_type
        self.mu, self.sigma = nn.Linear(3, 3), nn.Linear(3, 3)

    def f(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.mu(y) - y * t

    def g(self, t: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return self.sigma(y).sigmoid()


def equations() -> list[Model]:
    def solved(m: Any, y: torch.Tensor, method: str) -> torch.Tensor:
        return of("torchsde:sdeint")(
            m, y, torch.linspace(0, 0.5, 3), dt=0.1, method=method, bm=of("torchsde:BrownianInterval")(0.0, 0.5, size=y.shape, entropy=5)
        )

    def ode(y: torch.Tensor, method: str) -> Any:
        t = of("torchode")
        term = t.ODETerm(lambda s, v: -v * 0.5 + v.sin() * 0.1)
        step = getattr(t, method)(term=term)
        solver = t.AutoDiffAdjoint(step, t.IntegralController(atol=1e-3, rtol=1e-3, term=term))
        return solver.solve(t.InitialValueProblem(y0=y, t_eval=torch.linspace(0, 1, 3).repeat(y.shape[0], 1))).ys

    return [
        *[
            model(
                f"torchsde {m}",
                lambda m=m: Drift(sde_type="ito" if m in ("euler", "milstein", "srk") else "stratonovich"),
                rows(3),
                lambda d, y, m=m: solved(d, y, m),
                train=m != "srk",
            )
            for m in ("euler", "milstein", "srk", "midpoint", "heun", "reversible_heun")
        ],
        *[function(f"torchode {m}", rows(3), lambda y, m=m: ode(y, m)) for m in ("Dopri5", "Tsit5", "Heun", "Euler")],
    ]


def similarities() -> list[Model]:
    clouds = [(randn(n, 3), randn(m, 3)) for n, m in ((5, 7), (9, 4), (4, 4), (12, 6))]
    images = [(rand(b, 3, n, n), rand(b, 3, n, n)) for b, n in ((1, 40), (2, 48), (3, 40), (1, 56))]
    kinds = {"sinkhorn": {"p": 2, "blur": 0.1}, "energy": {}, "gaussian": {"blur": 0.5}, "laplacian": {"blur": 0.5}}
    classes = {
        "PSNR": {},
        "SSIM": {"window_size": 7},
        "MS_SSIM": {"window_size": 3},
        "GMSD": {},
        "MS_GMSD": {},
        "TV": {},
        "HaarPSI": {},
        "MDSI": {},
        "VSI": {},
        "FSIM": {},
    }
    return [
        *[
            model(f"geomloss {n}", lambda n=n, o=o: of("geomloss:SamplesLoss")(n, backend="tensorized", **o), clouds)
            for n, o in kinds.items()
        ],
        *[
            model(f"piqa {n}", lambda n=n, o=o: of(f"piqa:{n}")(**o), images, (lambda m, x, y: m(x)) if n == "TV" else None)
            for n, o in classes.items()
        ],
        function("pytorch_msssim ssim", images, lambda x, y: of("pytorch_msssim:ssim")(x, y, data_range=1, win_size=7)),
        function("pytorch_msssim ms_ssim", images, lambda x, y: of("pytorch_msssim:ms_ssim")(x, y, data_range=1, win_size=3)),
    ]


MAKERS: dict[str, Callable[[], list[Model]]] = {
    "private": private,
    "curvature": curvature,
    "gaussian": gaussian,
    "molecules": molecules,
    "operators": operators,
    "attributions": attributions,
    "attacks": attacks,
    "supervision": supervision,
    "poses": poses,
    "equations": equations,
    "similarities": similarities,
}
FAMILIES = Families(MAKERS)
