"""Small packages, a few calls of each: transforms of signals, linear attention, meta learning. Not needed by pliant: `pip install
--no-deps kymatio diffsptk torch-dct fft-conv-pytorch performer-pytorch linformer local-attention axial-positional-embedding higher lpips`,
and what they import (`scipy`, `einops`, `librosa`, `torchaudio`, `soundfile`, `plum-dispatch`, `hyper-connections`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.zoo.model import Model
from benchmarks.zoo.more_packages import Families, function, model, of, rand, randint, randn

SOUNDS = tuple([(randn(b, 256),) for b in (2, 3, 1, 4)])
FRAMES = tuple([(randn(b, n, 16),) for b, n in ((2, 5), (3, 7), (1, 4), (2, 6))])
SPECTRA = tuple([(rand(b, n, 17) + 0.1,) for b, n in ((2, 5), (3, 7), (1, 4), (2, 6))])


def signals() -> list[Model]:
    def spoken(kind: str, *args: Any, **options: Any) -> Callable[[], Any]:
        return lambda: of(f"diffsptk:{kind}")(*args, **options)

    frames = {
        "Autocorrelation": (16, 4), "LPC": (16, 4), "DCT": (16,), "DST": (16,), "Window": (16,), "ZeroCrossingAnalysis": (16,),
        "MelCepstrumToMLSADigitalFilterCoefficients": (15,), "FrequencyTransform": (15, 8, 0.3),
        "CepstrumToNegativeDerivativeOfPhaseSpectrum": (15, 32),
        "WalshHadamardTransform": (16,), "HilbertTransform": (16,), "ParcorCoefficientsToLinearPredictiveCoefficients": (15,),
    }  # fmt: skip
    sounds = {"Frame": (32, 8), "STFT": (32, 8, 32), "PQMF": (3, 8), "ZeroCrossingAnalysis": (32,)}
    spectra = {
        "MelFilterBankAnalysis": {"fft_length": 32, "n_channel": 5, "sample_rate": 8000}, "MFCC": {
            "fft_length": 32, "mfcc_order": 4, "n_channel": 6, "sample_rate": 8000,
        }, "MelCepstralAnalysis": {"fft_length": 32, "cep_order": 6, "alpha": 0.3, "n_iter": 2},
        "CepstralAnalysis": {"fft_length": 32, "cep_order": 6, "n_iter": 2}, "PLP": {
            "fft_length": 32, "plp_order": 4, "n_channel": 6, "sample_rate": 8000,
        },
    }  # fmt: skip
    pictures = [(randn(b, 16, 16),) for b in (2, 3, 1, 4)]
    return [
        *[model(f"diffsptk {k}", spoken(k, *a), list(FRAMES)) for k, a in frames.items()],
        *[model(f"diffsptk {k} of sounds", spoken(k, *a), list(SOUNDS)) for k, a in sounds.items()],
        *[model(f"diffsptk {k}", spoken(k, **o), list(SPECTRA)) for k, o in spectra.items()],
        *[
            function(f"torch_dct {n}", list(FRAMES), lambda x, n=n: of(f"torch_dct:{n}")(x))
            for n in ("dct", "idct", "dct_2d", "idct_2d", "dct1")
        ],
        function("fft_conv 1d", [(randn(b, 3, n), randn(4, 3, 5)) for b, n in ((2, 20), (3, 33), (1, 16), (2, 40))], of_fft),
        function("fft_conv 2d", [(randn(b, 3, n, 9), randn(4, 3, 3, 3)) for b, n in ((2, 10), (3, 13), (1, 8), (2, 15))], of_fft),
        model("kymatio 1d", lambda: of("kymatio.torch:Scattering1D")(J=3, shape=256, Q=2), list(SOUNDS)),
        model("kymatio 2d", lambda: of("kymatio.torch:Scattering2D")(J=2, shape=(16, 16), L=3), pictures),
    ]


def of_fft(x: torch.Tensor, w: torch.Tensor) -> Any:
    return of("fft_conv_pytorch:fft_conv")(x, w, padding=1)


def attentions() -> list[Model]:
    texts = [(randn(b, n, 16),) for b, n in ((2, 8), (3, 16), (1, 8), (2, 24))]
    tokens = [(randint(20, b, n),) for b, n in ((2, 8), (3, 12), (1, 6), (2, 16))]
    heads = [(randn(b, 2, n, 8), randn(b, 2, n, 8), randn(b, 2, n, 8)) for b, n in ((2, 8), (3, 12), (1, 6), (2, 16))]
    meta = [(randn(n, 4), randint(3, n)) for n in (5, 9, 4, 12)]

    whole = [(randn(b, 16, 16),) for b in (2, 3, 1, 4)]
    images = [(rand(b, 3, 64, 64), rand(b, 3, 64, 64)) for b in (2, 3, 1, 4)]

    def adapted(m: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> Any:
        """Two inner steps, whose loss is differentiated through."""
        with torch.enable_grad():
            inner = torch.optim.SGD(m.parameters(), lr=0.1)
            with of("higher:innerloop_ctx")(m, inner, copy_initial_weights=False) as (fast, step):
                for _ in range(2):
                    step.step(torch.nn.functional.cross_entropy(fast(x), y))
                loss = torch.nn.functional.cross_entropy(fast(x), y)
            return loss, torch.autograd.grad(loss, list(m.parameters()))

    small = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    return [
        model("performer attention", lambda: of("performer_pytorch:SelfAttention")(dim=16, heads=2, dim_head=8, causal=False), texts),
        model("performer fast attention", lambda: of("performer_pytorch:FastAttention")(dim_heads=8, nb_features=16), heads),
        model("performer", lambda: of("performer_pytorch:Performer")(dim=16, depth=1, heads=2, dim_head=8), texts),
        model(
            "performer LM",
            lambda: of("performer_pytorch:PerformerLM")(num_tokens=20, max_seq_len=32, dim=16, depth=1, heads=2, dim_head=8), tokens,
        ),  # fmt: skip
        model("linformer", lambda: of("linformer:Linformer")(dim=16, seq_len=16, depth=2, heads=2, k=8), whole),
        model(
            "linformer LM", lambda: of("linformer:LinformerLM")(num_tokens=20, dim=16, seq_len=12, depth=1, heads=2, k=6),
            [(randint(20, b, 12),) for b in (2, 3, 1, 4)],
        ),  # fmt: skip
        model("local attention", lambda: of("local_attention:LocalAttention")(dim=8, window_size=4, causal=True, autopad=True), heads),
        model("local MHA", lambda: of("local_attention:LocalMHA")(dim=16, window_size=4, heads=2, dim_head=8), texts),
        model("axial positions", lambda: of("axial_positional_embedding:AxialPositionalEmbedding")(16, (4, 8)), texts),
        model("higher", lambda: small, meta, adapted, train=False),
        model("lpips", lambda: of("lpips:LPIPS")(pretrained=False, pnet_rand=True, verbose=False), images),
    ]


MAKERS: dict[str, Callable[[], list[Model]]] = {"signals": signals, "attentions": attentions}
FAMILIES = Families(MAKERS)
