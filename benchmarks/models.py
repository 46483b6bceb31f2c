"""Models of their usual size, with random weights, in eager and compiled: `python -m benchmarks.models [--only bert,vit] [--torch]`.

Each model has a process of its own without caches, and is called at two shapes. Times are of the processor with one thread, else of the
clock: the first call, and medians over interleaved rounds afterwards. Answers are held against eager's before anything is timed. With
`--torch`, `torch.compile(dynamic=True)` takes part, which needs minutes a model.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
import transformers as T
from rich.console import Console
from rich.table import Table

import pliant
from pliant.cli import workers

ROUNDS = 5
LIMIT_S = 900.0


def ids(batch: int, length: int) -> torch.Tensor:
    return torch.randint(0, 1000, (batch, length))


def pictures(*shapes: tuple[int, int, int]) -> list[dict[str, Any]]:
    return [{"pixel_values": torch.randn(b, 3, h, w)} for b, h, w in shapes]


def texts(*shapes: tuple[int, int]) -> list[dict[str, Any]]:
    return [{"input_ids": ids(*shape)} for shape in shapes]


def llama() -> Any:
    sizes = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16, "num_key_value_heads": 4}
    return T.LlamaModel(T.LlamaConfig(vocab_size=4000, **sizes))


def whisper() -> Any:
    sizes = {"layers": 4, "attention_heads": 6, "ffn_dim": 1536}
    sides = {f"{side}_{what}": n for side in ("encoder", "decoder") for what, n in sizes.items()}
    return T.WhisperModel(T.WhisperConfig(d_model=384, **sides))


def spoken() -> list[dict[str, Any]]:
    return [{"input_features": torch.randn(1, 80, 3000), "decoder_input_ids": ids(1, n)} for n in (5, 17)]


USUAL = ((1, 224, 224), (2, 160, 192))
FIXED = ((1, 224, 224), (2, 224, 224))
MODELS: dict[str, tuple[Callable[[], Any], Callable[[], list[dict[str, Any]]]]] = {
    "bert-base": (lambda: T.BertModel(T.BertConfig()), lambda: texts((1, 128), (4, 37))),
    "llama, 8 layers": (llama, lambda: texts((1, 64), (1, 200))),
    "vit-base": (lambda: T.ViTModel(T.ViTConfig()), lambda: pictures(*FIXED)),
    "swin-tiny": (lambda: T.SwinModel(T.SwinConfig()), lambda: pictures(*FIXED)),
    "resnet-50": (lambda: T.ResNetModel(T.ResNetConfig()), lambda: pictures(*USUAL)),
    "regnet": (lambda: T.RegNetModel(T.RegNetConfig()), lambda: pictures(*USUAL)),
    "mobilenet-v2": (lambda: T.MobileNetV2Model(T.MobileNetV2Config()), lambda: pictures(*USUAL)),
    "convnext-tiny": (lambda: T.ConvNextModel(T.ConvNextConfig()), lambda: pictures(*USUAL)),
    "segformer-b0": (lambda: T.SegformerModel(T.SegformerConfig()), lambda: pictures((1, 256, 256), (1, 320, 192))),
    "yolos-base": (lambda: T.YolosModel(T.YolosConfig(image_size=[256, 320])), lambda: pictures((1, 256, 320), (1, 288, 320))),
    "whisper-tiny": (whisper, spoken),
    "wav2vec2-base": (lambda: T.Wav2Vec2Model(T.Wav2Vec2Config()), lambda: [{"input_values": torch.randn(1, n)} for n in (16000, 24000)]),
}


def distance(got: Any, want: Any) -> float:
    return float((got - want).abs().max() / want.abs().max().clamp(min=1))


def measure(name: str, threads: int, beside: bool) -> None:
    """In a worker: report every shape of one model."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    make, calls = MODELS[name]
    model = make().eval()
    clock = time.process_time if threads == 1 else time.perf_counter
    systems: dict[str, Callable] = {"eager": model, "pliant": pliant.compile(model)}
    if beside:
        systems["torch"] = torch.compile(model, dynamic=True)
    with torch.no_grad():
        given = calls()
        wanted = [model(**call)[0] for call in given]
        first: dict[str, float] = {}
        for system, fn in systems.items():
            for call, want in zip(given, wanted, strict=True):
                begun = time.perf_counter()
                off = distance(fn(**call)[0], want)
                first.setdefault(system, time.perf_counter() - begun)
                if off > 1e-3:
                    raise AssertionError(f"{name}, {system}: differs from eager by {off:.1e}")
        pliant.synchronize()
        for call in given:
            times: dict[str, list[float]] = {system: [] for system in systems}
            for _ in range(ROUNDS):
                for system, fn in systems.items():
                    begun = clock()
                    fn(**call)
                    times[system].append(clock() - begun)
            shape = ", ".join("x".join(map(str, v.shape)) for v in call.values())
            workers.report("shape", name=name, shape=shape, first=first, ms={k: 1e3 * statistics.median(v) for k, v in times.items()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts of names, comma separated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--torch", action="store_true", help="torch.compile(dynamic=True) beside")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        measure(args.inside, args.threads, args.torch)
        return
    systems = ["eager", "pliant", *(["torch"] if args.torch else [])]
    table = Table(title=f"models of usual size, {args.threads} thread(s): milliseconds, speed over eager, first call in seconds")
    for head in ("model", "shape", *systems, *(f"{s} / eager" for s in systems[1:]), *(f"{s} first" for s in systems)):
        table.add_column(head, justify="left" if head in ("model", "shape") else "right")
    rows, ratios = [], []
    for name in (n for n in MODELS if any(part in n for part in args.only.split(","))):
        words = ["--inside", name, "--threads", str(args.threads), *(["--torch"] if args.torch else [])]
        outcome = workers.run("benchmarks.models", words, limit_s=LIMIT_S)
        for r in outcome.reports:
            ms, first = r["ms"], r["first"]
            speeds = [ms["eager"] / ms[s] for s in systems[1:]]
            ratios.append(speeds[0])
            cells = [*(f"{ms[s]:.1f}" for s in systems), *(f"{v:.2f}" for v in speeds), *(f"{first[s]:.2f}" for s in systems)]
            table.add_row(r["name"], r["shape"], *cells)
        rows += outcome.reports
        if outcome.status != "ok":
            table.add_row(name, outcome.status, (outcome.error.splitlines() or [""])[-1])
    console = Console(width=130)
    console.print(table)
    if ratios:
        console.print(f"pliant over eager, geometric mean: {statistics.geometric_mean(ratios):.2f}")
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
