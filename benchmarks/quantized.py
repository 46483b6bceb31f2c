"""Quantized BERT and Llama of small size on the CPU, 30 lengths: `python -m benchmarks.quantized [--only bert] [--torch]`.

Every system has a process of its own without caches: the model in f32 and in bf16, and quantized in three ways, each in eager, compiled by
pliant and, with `--torch`, by `torch.compile(dynamic=True)`, which takes minutes a model. Times are of the processor with one thread,
else of the clock: the median of each length over the rounds, summed over the lengths. Weights are random.
"""

from __future__ import annotations

import argparse
import json
import random
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
LIMIT_S = 1200.0
BATCH, LENGTHS = 2, 30
VOCABULARY = 8000


def bert() -> Any:
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "intermediate_size": 1536}
    return T.BertModel(T.BertConfig(vocab_size=VOCABULARY, **sizes))


def llama() -> Any:
    sizes = {"hidden_size": 384, "num_hidden_layers": 6, "num_attention_heads": 6, "num_key_value_heads": 3, "intermediate_size": 1024}
    return T.LlamaModel(T.LlamaConfig(vocab_size=VOCABULARY, use_cache=False, **sizes))


MODELS: dict[str, Callable[[], Any]] = {"bert": bert, "llama": llama}


def dynamic(model: Any) -> Any:
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def torchao(config: str) -> Callable[[Any], Any]:
    def change(model: Any) -> Any:
        import torchao.quantization as ao

        ao.quantize_(model, getattr(ao, config)())
        return model

    return change


KINDS: dict[str, Callable[[Any], Any]] = {
    "f32": lambda model: model,
    "bf16": lambda model: model.bfloat16(),
    "quantize_dynamic": dynamic,
    "torchao int8 dynamic": torchao("Int8DynamicActivationInt8WeightConfig"),
    "torchao int8 weights": torchao("Int8WeightOnlyConfig"),
}
TORCHLESS = ("quantize_dynamic",)
"""What `torch.compile` leaves to eager, layer by layer."""


def measure(name: str, kind: str, system: str, threads: int) -> None:
    """In a worker: report one model, quantized in one way, in one system."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = KINDS[kind](MODELS[name]().eval())
    rng = random.Random(0)
    calls = [torch.randint(0, VOCABULARY, (BATCH, rng.randint(8, 128))) for _ in range(LENGTHS)]
    fn = {"eager": lambda: model, "pliant": lambda: pliant.compile(model), "torch": lambda: torch.compile(model, dynamic=True)}[system]()
    clock = time.process_time if threads == 1 else time.perf_counter
    with torch.no_grad():
        begun = time.perf_counter()
        fn(calls[0])
        first = time.perf_counter() - begun
        off = 0.0
        for call in calls:
            got = fn(call).last_hidden_state
            if system != "eager":
                want = model(call).last_hidden_state
                off = max(off, float((got - want).abs().max() / want.abs().max()))
        pliant.synchronize()
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(ROUNDS):
            for call, spent in zip(calls, times, strict=True):
                begun = clock()
                fn(call)
                spent.append(clock() - begun)
    counts = pliant.stats()
    ms = 1e3 * sum(map(statistics.median, times))
    told = {"captures": counts["captures"], "breaks": counts["graph_breaks"]} if system == "pliant" else {}
    workers.report("done", name=name, kind=kind, system=system, first_s=first, ms=ms, off=off, **told)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="parts of names of models, comma separated")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--torch", action="store_true", help="torch.compile(dynamic=True) beside")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.inside:
        measure(*args.inside, args.threads)
        return
    table = Table(title=f"{LENGTHS} lengths, batches of {BATCH}, {args.threads} thread(s)")
    for head in ("model", "kind", "system", "ms", "over bf16", "first, s", "captures", "breaks", "off"):
        table.add_column(head, justify="left" if head in ("model", "kind", "system") else "right")
    rows = []
    for name in (n for n in MODELS if any(part in n for part in args.only.split(","))):
        bf16 = 0.0
        for kind in KINDS:
            systems = ["eager", "pliant", *(["torch"] if args.torch and kind not in TORCHLESS else [])]
            for system in systems:
                words = ["--inside", name, kind, system, "--threads", str(args.threads)]
                outcome = workers.run("benchmarks.quantized", words, limit_s=LIMIT_S)
                r = outcome.last("done")
                if r is None:
                    table.add_row(name, kind, system, outcome.status, (outcome.error.splitlines() or [""])[-1])
                    continue
                rows.append(r)
                print(f"{name}, {kind}, {system}: {r['ms']:.0f} ms, first answer {r['first_s']:.1f} s", flush=True)
                bf16 = r["ms"] if (kind, system) == ("bf16", "eager") else bf16
                over = f"{bf16 / r['ms']:.2f}" if bf16 else ""
                counts = (str(r.get("captures", "")), str(r.get("breaks", "")))
                table.add_row(name, kind, system, f"{r['ms']:.0f}", over, f"{r['first_s']:.2f}", *counts, f"{r['off']:.1e}")
    Console(width=130).print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
