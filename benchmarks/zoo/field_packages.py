"""Packages of more fields, a few calls of each: survival, metrics, hyperdimensional vectors, tensor networks, recommenders, graphs of
knowledge, Bayesian layers, sound, recurrent and state space models, optimizers without schedules, minimization. Not needed by pliant:
`pip install --no-deps torchsurv torcheval torch-hd torchtt tensorkrowch deepctr-torch torchkge recbole blitz-bayesian-pytorch
bayesian-torch nnAudio openunmix xlstm mambapy reformer-pytorch iTransformer egnn-pytorch segment-anything open-clip-torch gluonts
torch-cubic-spline-grids torch-ema schedulefree prodigyopt dadaptation pytorch-minimize torchdyn pytorch-wavelets`, and what they import
(`beartype`, `toolz`, `PyWavelets`, `ftfy` and the like)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.model import Model
from benchmarks.zoo.more_packages import Families, function, model, of, rand, randint, randn
from benchmarks.zoo.research_packages import recorded, small

ROWS = (5, 9, 4, 12)


# -- what becomes of patients, and how good a guess was ------------------------------------------------------------------------
def survival() -> list[Model]:
    seen = [(randn(n, 1), randint(2, n).bool().index_fill(0, torch.tensor([0, 1]), True), rand(n) * 9 + 0.5) for n in (7, 12, 9, 21)]
    weibull = [(randn(n, 2), event, time) for n, (_, event, time) in zip((7, 12, 9, 21), seen, strict=True)]

    def cox(ties: str) -> Any:
        return lambda x, e, t: of("torchsurv.loss.cox:neg_partial_log_likelihood")(x, e, t, ties_method=ties)

    def km(x: Any, e: Any, t: Any) -> Any:
        made = of("torchsurv.stats.kaplan_meier:KaplanMeierEstimator")()
        made(e, t)
        return made.predict(t)

    return [
        function("cox efron", seen, cox("efron")),
        function("cox breslow", seen, cox("breslow")),
        function("weibull loss", weibull, lambda x, e, t: of("torchsurv.loss.weibull:neg_log_likelihood_weibull")(x, e, t)),
        function("weibull survival", weibull, lambda x, e, t: of("torchsurv.loss.weibull:survival_function_weibull")(x, t)),
        function("kaplan meier", seen, km, train=False),
        function("ipcw", seen, lambda x, e, t: of("torchsurv.stats.ipcw:get_ipcw")(e, t), train=False),
        function("concordance", seen, lambda x, e, t: of("torchsurv.metrics.cindex:ConcordanceIndex")()(x, e, t), train=False),
        function("auc", seen, lambda x, e, t: of("torchsurv.metrics.auc:Auc")()(x, e, t, new_time=t.sort()[0][1:-1]), train=False),
        function(
            "brier",
            seen,
            lambda x, e, t: of("torchsurv.metrics.brier_score:BrierScore")()(x.sigmoid(), e, t, new_time=t.median()[None]),
            train=False,
        ),
    ]


def scores() -> list[Model]:
    binary = [(rand(n), randint(2, n)) for n in ROWS]
    classes = [(rand(n, 3), randint(3, n)) for n in ROWS]
    numbers = [(rand(n, 2), rand(n, 2)) for n in ROWS]
    texts = [(["a cat sat", "the dog"], ["a cat sat down", "a dog"]), (["one"], ["one two"]), (["x y z", "x"], ["x z", "x"])]

    def row(name: str, calls: list[tuple], **options: Any) -> Model:
        return function(f"torcheval {name}", calls, lambda *a: of(f"torcheval.metrics.functional:{name}")(*a, **options), train=False)

    def streamed(name: str, **options: Any) -> Any:
        def call(x: Any, y: Any) -> Any:
            metric = of(f"torcheval.metrics:{name}")(**options)
            metric.update(x, y)
            metric.update(x.flip(0), y)
            return metric.compute()

        return call

    return [
        *[row(f"binary_{n}", binary) for n in ("accuracy", "auroc", "auprc", "f1_score", "precision", "recall", "precision_recall_curve")],
        *[row(f"binary_{n}", binary, threshold=4) for n in ("binned_auroc", "binned_precision_recall_curve")],
        row("binary_confusion_matrix", binary),
        row("binary_normalized_entropy", [(p.double(), y.double()) for p, y in binary]),
        *[
            row(f"multiclass_{n}", classes, num_classes=3)
            for n in ("auroc", "auprc", "f1_score", "confusion_matrix", "precision_recall_curve")
        ],
        *[row(f"multiclass_{n}", classes, num_classes=3, average="macro") for n in ("accuracy", "precision", "recall")],
        *[row(n, numbers) for n in ("mean_squared_error", "r2_score", "peak_signal_noise_ratio", "mean", "sum")],
        *[row(n, classes) for n in ("hit_rate", "reciprocal_rank")],
        row("click_through_rate", [(y,) for _, y in binary]),
        row("weighted_calibration", binary),
        row("retrieval_precision", binary, k=3),
        *[row(n, texts) for n in ("word_error_rate", "word_information_lost", "word_information_preserved")],
        row("perplexity", [(randn(2, n, 5), randint(5, 2, n)) for n in ROWS]),
        *[function(f"torcheval {n}", binary, streamed(n), train=False) for n in ("BinaryAUROC", "BinaryAccuracy", "BinaryF1Score")],
        function("torcheval R2Score", [(rand(n), rand(n)) for n in ROWS], streamed("R2Score"), train=False),
    ]


# -- vectors and tensors ---------------------------------------------------------------------------------------------------------
def vectors() -> list[Model]:
    pairs = [(n,) for n in (3, 5, 4, 8)]

    def hd(name: str, kind: str, arity: int = 2, **options: Any) -> Model:
        def call(n: int) -> Any:
            made = of("torchhd:random")(n, 64, kind)
            return of(f"torchhd:{name}")(*[made, made.roll(1, 0)][:arity], **options)

        return function(f"torchhd {name} {kind}", pairs, call, train=False)

    def embedded(kind: str, *args: Any, **options: Any) -> Model:
        return model(
            f"torchhd {kind}", lambda: of(f"torchhd.embeddings:{kind}")(*args, **options), [(rand(n, 4),) for n in ROWS], train=False
        )

    def tt(call: Any) -> Any:
        def calls(n: int) -> Any:
            x = torch.arange(n * 12, dtype=torch.float64).sin().reshape(n, 4, 3)
            return call(of("torchtt:TT")(x), of("torchtt"))

        return calls

    def mps(m: Any, x: torch.Tensor) -> Any:
        return m(x)

    return [
        *[hd(n, k) for n in ("bind", "bundle", "cosine_similarity") for k in ("MAP", "HRR", "FHRR", "BSC", "VTB")],
        *[hd(n, k, 1) for n in ("multiset", "multibind", "ngrams", "bundle_sequence", "permute") for k in ("MAP", "FHRR")],
        hd("hard_quantize", "MAP", 1),
        embedded("Sinusoid", 4, 32),
        embedded("Projection", 4, 32),
        function("torchtt full", pairs, tt(lambda x, t: x.full()), train=False),
        function("torchtt sum", pairs, tt(lambda x, t: (x + x * 2).round(1e-9).full()), train=False),
        function("torchtt product", pairs, tt(lambda x, t: (x * x).full()), train=False),
        function("torchtt dot", pairs, tt(lambda x, t: t.dot(x, x)), train=False),
        function("torchtt norm", pairs, tt(lambda x, t: x.norm()), train=False),
        model(
            "tensorkrowch MPSLayer",
            lambda: of("tensorkrowch.models:MPSLayer")(n_features=5, in_dim=2, out_dim=3, bond_dim=3),
            [(torch.stack([rand(n, 4), rand(n, 4)], -1),) for n in ROWS],
            mps,
        ),
        model(
            "cubic splines",
            lambda: of("torch_cubic_spline_grids:CubicCatmullRomGrid2d")(resolution=(4, 5), n_channels=2),
            [(rand(n, 2),) for n in ROWS],
        ),
        model(
            "b splines",
            lambda: of("torch_cubic_spline_grids:CubicBSplineGrid1d")(resolution=5, n_channels=2),
            [(rand(n, 1),) for n in ROWS],
        ),
    ]


# -- recommenders, knowledge, beliefs ----------------------------------------------------------------------------------------------
def recommenders() -> list[Model]:
    def features() -> list[Any]:
        sparse, dense = of("deepctr_torch.inputs:SparseFeat"), of("deepctr_torch.inputs:DenseFeat")
        return [sparse("a", 5, embedding_dim=4), sparse("b", 7, embedding_dim=4), dense("c", 1)]

    def ctr(name: str, **options: Any) -> Any:
        made = of(f"deepctr_torch.models:{name}")
        return lambda: made(features(), **options) if name == "MLR" else made(features(), features(), **options)

    rows = [(torch.cat([randint(5, n, 1).float(), randint(7, n, 1).float(), rand(n, 1)], 1),) for n in ROWS]
    names = ("DeepFM", "xDeepFM", "DCN", "DCNMix", "NFM", "AutoInt", "FiBiNET", "WDL", "IFM", "DIFM", "AFN", "MLR", "ONN")
    triples = [(randint(9, n), randint(9, n), randint(4, n)) for n in ROWS]

    def kge(name: str, *args: Any, **options: Any) -> Model:
        return model(
            f"torchkge {name}",
            lambda: of(f"torchkge.models:{name}")(*args, **options),
            triples,
            lambda m, h, t, r: m.scoring_function(h, t, r),
        )


    return [
        *[model(f"deepctr {n}", ctr(n), rows) for n in names],
        kge("TransEModel", 6, 9, 4),
        kge("TransHModel", 6, 9, 4),
        kge("TransRModel", 6, 5, 9, 4),
        kge("TransDModel", 6, 5, 9, 4),
        kge("TorusEModel", 6, 9, 4, "torus_L2"),
        kge("RESCALModel", 6, 9, 4),
        kge("DistMultModel", 6, 9, 4),
        kge("HolEModel", 6, 9, 4),
        kge("ComplExModel", 6, 9, 4),
        kge("AnalogyModel", 6, 9, 4),
    ]


def beliefs() -> list[Model]:
    rows = [(randn(n, 4),) for n in ROWS]
    sequences = [(randn(b, n, 4),) for b, n in ((2, 5), (3, 7), (1, 4), (2, 6))]
    pictures = [(randn(n, 3, 8, 8),) for n in (2, 3, 5)]

    def layer(kind: str, *args: Any) -> Any:
        return lambda: of(f"bayesian_torch.layers:{kind}")(*args)

    return [
        *[
            model(f"blitz {k}", lambda k=k: of(f"blitz.modules:Bayesian{k}")(4, 3), rows if k == "Linear" else sequences)
            for k in ("Linear", "LSTM", "GRU")
        ],
        model("blitz conv", lambda: of("blitz.modules:BayesianConv2d")(3, 4, (3, 3)), pictures),
        *[model(f"bayesian {k}", layer(k, 4, 3), rows) for k in ("LinearReparameterization", "LinearFlipout")],
        *[model(f"bayesian {k}", layer(k, 3, 4, 3), pictures) for k in ("Conv2dReparameterization", "Conv2dFlipout")],
        *[model(f"bayesian {k}", layer(k, 4, 3), sequences) for k in ("LSTMReparameterization", "LSTMFlipout")],
    ]


# -- sound, sequences, pictures ----------------------------------------------------------------------------------------------------
def series() -> list[Model]:
    sounds = [(randn(b, n),) for b, n in ((1, 2000), (2, 2600), (1, 2333))]
    tokens = [(randint(20, b, n),) for b, n in ((2, 8), (1, 16), (3, 8))]
    states = [(randn(b, n, 8),) for b, n in ((2, 5), (1, 9), (3, 4), (2, 12))]

    def nn_audio(kind: str, **options: Any) -> Model:
        return model(f"nnAudio {kind}", lambda: of(f"nnAudio.features:{kind}")(verbose=False, **options), sounds)

    def xlstm() -> Any:
        p = of("xlstm")
        block = p.mLSTMBlockConfig(mlstm=p.mLSTMLayerConfig(conv1d_kernel_size=4, qkv_proj_blocksize=4, num_heads=2))
        return p.xLSTMBlockStack(p.xLSTMBlockStackConfig(mlstm_block=block, context_length=16, num_blocks=2, embedding_dim=8, slstm_at=[]))

    def slstm() -> Any:
        p = of("xlstm")
        s = p.sLSTMBlockConfig(
            slstm=p.sLSTMLayerConfig(backend="vanilla", num_heads=2, conv1d_kernel_size=4), feedforward=p.FeedForwardConfig(1.3, "gelu")
        )
        return p.xLSTMBlockStack(p.xLSTMBlockStackConfig(slstm_block=s, context_length=16, num_blocks=1, embedding_dim=8, slstm_at=[0]))

    def gluon(kind: str, **options: Any) -> Any:
        return lambda: of(f"gluonts.torch.model.{kind}")(**options)

    return [
        nn_audio("STFT", n_fft=256, hop_length=64),
        nn_audio("MelSpectrogram", sr=8000, n_fft=256, hop_length=64, n_mels=16),
        nn_audio("MFCC", sr=8000, n_mfcc=8, n_fft=256, hop_length=64, n_mels=16),
        nn_audio("CQT1992v2", sr=8000, hop_length=64, fmin=220, n_bins=24),
        nn_audio("Gammatonegram", sr=8000, n_fft=256, hop_length=64, n_bins=16),
        model(
            "openunmix",
            lambda: of("openunmix.model:OpenUnmix")(nb_bins=33, nb_channels=2, hidden_size=8),
            [(rand(b, 2, 33, n),) for b, n in ((2, 5), (1, 9), (2, 7))],
        ),
        model("xlstm mlstm", xlstm, states),
        model("xlstm slstm", slstm, states),
        model("mambapy", lambda: of("mambapy.mamba:Mamba")(of("mambapy.mamba:MambaConfig")(d_model=8, n_layers=2)), states),
        model(
            "mambapy sequential",
            lambda: of("mambapy.mamba:Mamba")(of("mambapy.mamba:MambaConfig")(d_model=8, n_layers=1, pscan=False)),
            states,
        ),
        model(
            "reformer",
            lambda: of("reformer_pytorch:ReformerLM")(num_tokens=20, dim=16, depth=1, heads=2, bucket_size=4, max_seq_len=16, n_hashes=2),
            tokens,
            train=False,
        ),
        model(
            "iTransformer",
            lambda: of("iTransformer:iTransformer")(
                num_variates=3, lookback_len=12, dim=8, depth=1, heads=2, dim_head=4, pred_length=(4, 6)
            ),
            [(randn(n, 12, 3),) for n in ROWS],
        ),
        model("egnn", lambda: of("egnn_pytorch:EGNN")(dim=8), [(randn(2, n, 8), randn(2, n, 3)) for n in ROWS]),
        model(
            "egnn near", lambda: of("egnn_pytorch:EGNN")(dim=8, num_nearest_neighbors=3), [(randn(2, n, 8), randn(2, n, 3)) for n in ROWS]
        ),
        model(
            "segment anything",
            lambda: of("segment_anything.modeling.image_encoder:ImageEncoderViT")(
                img_size=32,
                patch_size=8,
                embed_dim=16,
                depth=2,
                num_heads=2,
                out_chans=8,
                use_rel_pos=True,
                window_size=2,
                global_attn_indexes=(1,),
            ),
            [(randn(n, 3, 32, 32),) for n in (1, 2, 3)],
        ),
        model(
            "segment anything prompts",
            lambda: of("segment_anything.modeling:PromptEncoder")(16, (4, 4), (32, 32), 4),
            [(rand(1, n, 2) * 32, randint(2, 1, n)) for n in (1, 3, 2)],
            lambda m, p, l: m((p, l), None, None),
        ),
        model(
            "open clip vision",
            lambda: of("open_clip.transformer:VisionTransformer")(16, 4, 16, 1, 2, 2.0, output_dim=8),
            [(randn(n, 3, 16, 16),) for n in ROWS],
        ),
        model(
            "gluonts simple",
            gluon("simple_feedforward.module:SimpleFeedForwardModel", context_length=6, prediction_length=3, hidden_dimensions=[8]),
            [(rand(n, 6),) for n in ROWS],
        ),
        model(
            "gluonts dlinear",
            gluon("d_linear.module:DLinearModel", context_length=6, prediction_length=3, hidden_dimension=8, kernel_size=3),
            [(rand(n, 6), torch.ones(n, 6)) for n in ROWS],
        ),
        model(
            "wavelets", lambda: of("pytorch_wavelets:DWTForward")(J=2, wave="db2", mode="zero"), [(randn(n, 1, 16, 12),) for n in (1, 2, 3)]
        ),
        function(
            "torchdyn",
            [(randn(n, 4), torch.linspace(0, 1, 4)) for n in ROWS],
            lambda x, t: of("torchdyn.numerics:odeint")(lambda t, x: x.cos() * t, x, t, "euler"),
            train=False,
        ),
    ]


# -- steps ---------------------------------------------------------------------------------------------------------------------------
def steppers() -> list[Model]:
    rows = [(randn(n, 4),) for n in ROWS]

    def step(kind: str, **options: Any) -> Any:
        def call(m: Any, x: torch.Tensor) -> Any:
            net = copy.deepcopy(m)
            opt = of(kind)(net.parameters(), **options)
            if hasattr(opt, "train"):
                opt.train()
            for _ in range(3):
                opt.zero_grad()
                net(x).square().mean().backward()
                opt.step()
            return [p.detach() for p in net.parameters()]

        return call

    def averaged(m: Any, x: torch.Tensor) -> Any:
        ema = of("torch_ema:ExponentialMovingAverage")(m.parameters(), decay=0.9)
        ema.update()
        with ema.average_parameters():
            return m(x)

    def minimum(method: str) -> Any:
        def call(x: torch.Tensor) -> Any:
            return of("torchmin:minimize")(of("torchmin.benchmarks:rosen"), x.double(), method=method, max_iter=4).x

        return call

    return [
        *[
            recorded(f"step {n}", small, rows, step(k, **o))
            for n, k, o in (
                ("schedulefree", "schedulefree:AdamWScheduleFree", {"lr": 0.01, "foreach": False}),
                ("schedulefree foreach", "schedulefree:AdamWScheduleFree", {"lr": 0.01, "foreach": True}),
                ("schedulefree sgd", "schedulefree:SGDScheduleFree", {"lr": 0.01}),
                ("prodigy", "prodigyopt:Prodigy", {}),
                ("dadapt adam", "dadaptation:DAdaptAdam", {}),
                ("dadapt sgd", "dadaptation:DAdaptSGD", {}),
                ("dadapt lion", "dadaptation:DAdaptLion", {}),
            )
        ],
        model("torch ema", small, rows, averaged, train=False),
        *[
            recorded(f"torchmin {k}", lambda: None, [(randn(n),) for n in (3, 5, 4)], lambda _, x, k=k: minimum(k)(x))
            for k in ("bfgs", "l-bfgs", "cg", "newton-cg", "newton-exact")
        ],
    ]


MAKERS: dict[str, Callable[[], list[Model]]] = {
    "survival": survival,
    "scores": scores,
    "vectors": vectors,
    "recommenders": recommenders,
    "beliefs": beliefs,
    "series": series,
    "steppers": steppers,
}
FAMILIES = Families(MAKERS)
