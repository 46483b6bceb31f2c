"""`python -m benchmarks.capture_cost`: what it costs to capture a model per ATen operation of its graph, in microseconds.

The model is all-MiniLM-L6-v2, or one of those that `--model` names: BERT of 12 and of 80 small layers, Llama of 12, and a step of T5's
training; `--backend native` has lowering and printing in it, too (machine code is found on disk from the second process on).

Capture only: pliant with backend "aten" (guards and emitted code included), torch.compile with backend "eager" (its front end alone: no
AOTAutograd, no Inductor). Each sample is a fresh process; in it the compiler is first warmed on a small function, so that imports and
one-time set-up are not counted, then the model is captured ("first": much of the code runs for the first time), forgotten, and captured
again ("again": the median of several times; the cost of a compiler that has seen programs). Processor time of the calling thread is told
beside the time on the clock, since machines are busy. The number of ATen operations is counted on an eager call, for both alike.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import transformers as T
from rich.console import Console
from rich.table import Table
from torch.utils._python_dispatch import TorchDispatchMode

from pliant.cli import embedder, systems, workers
from pliant.cli.timing import timed
from pliant.cli.workers import report

OPTIONS = {"pliant": {"backend": "aten"}, "torch": {"backend": "eager"}, "torch-dynamic": {"backend": "eager"}}
TEXTS = ["A sentence to embed.", "Another one, somewhat longer than the first.", "A third."]
SMALL: dict[str, int] = {
    "vocab_size": 256, "hidden_size": 64, "num_attention_heads": 4, "intermediate_size": 128, "max_position_embeddings": 64,
}  # fmt: skip
Case = tuple[Callable[..., Any], dict[str, Any], bool]  # what is compiled, its arguments, whether gradients are on


def minilm() -> Case:
    model, tokenizer = embedder.load()
    return model, tokenizer(TEXTS), False


def bert(layers: int) -> Case:
    return T.BertModel(T.BertConfig(num_hidden_layers=layers, **SMALL)).eval(), {"input_ids": torch.randint(0, 256, (2, 9))}, False


def llama(layers: int) -> Case:
    config = T.LlamaConfig(num_hidden_layers=layers, num_key_value_heads=2, use_cache=False, **SMALL)
    return T.LlamaModel(config).eval(), {"input_ids": torch.randint(0, 256, (2, 9))}, False


def t5_step() -> Case:
    sizes = {"vocab_size": 512, "d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
    model = T.T5ForConditionalGeneration(T.T5Config(decoder_start_token_id=0, dropout_rate=0.0, **sizes)).train()

    def step(input_ids: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        model.zero_grad()
        loss = model(input_ids=input_ids, labels=labels).loss
        loss.backward()
        return loss

    return step, {"input_ids": torch.randint(0, 512, (2, 9)), "labels": torch.randint(0, 512, (2, 7))}, True


MODELS: dict[str, Callable[[], Case]] = {
    "minilm": minilm,
    "bert12": lambda: bert(12),
    "bert80": lambda: bert(80),
    "llama12": lambda: llama(12),
    "t5-step": t5_step,
}


class Count(TorchDispatchMode):
    """Counts the ATen operations that a call dispatches."""

    def __init__(self) -> None:
        super().__init__()
        self.ops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict[str, Any] | None = None) -> Any:
        self.ops += 1
        return func(*args, **(kwargs or {}))


def warm_up(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = torch.nn.functional.layer_norm(x @ y.transpose(0, 1), (x.shape[0],)) + 1
    return x.softmax(-1)


REPEATS = {"pliant": 12, "torch": 3, "torch-dynamic": 3}


def cost(system: systems.System, model: Any, inputs: Any, options: dict[str, Any]) -> tuple[float, float]:
    """(seconds, seconds of this thread's processor time) of the first compiled call less a warm one."""
    fn = system.compile(model, **options)
    began = time.thread_time()
    first, _ = timed(lambda: fn(**inputs))
    busy = time.thread_time() - began
    warm = statistics.median(timed(lambda: fn(**inputs))[0] for _ in range(9))
    return first - warm, busy - warm


def work(name: str, which: str, backend: str) -> None:
    """One sample."""
    system = systems.load(name)
    options = OPTIONS[name] | ({"backend": backend, "background": False} if name == "pliant" else {})
    torch.manual_seed(0)
    model, inputs, training = MODELS[which]()
    torch.set_grad_enabled(training)
    model(**inputs)
    with Count() as count:
        expected = model(**inputs)
    with torch.no_grad():
        system.compile(warm_up, **options)(torch.ones(4, 4), torch.ones(4, 4))
    before = system.counts()
    capture_s, cpu_s = cost(system, model, inputs, options)
    captures = (system.counts() - before).captures
    torch.testing.assert_close(system.compile(model, **options)(**inputs), expected, atol=1e-5, rtol=1e-5)
    again = []
    for _ in range(REPEATS[name]):
        system.reset()
        gc.collect()
        again.append(cost(system, model, inputs, options))
    again_s, again_cpu_s = (statistics.median(column) for column in zip(*again, strict=True))
    report(
        "sample", system=name, ops=count.ops, captures=captures, capture_s=capture_s, cpu_s=cpu_s, again_s=again_s, again_cpu_s=again_cpu_s
    )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.capture_cost", description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default="pliant,torch,torch-dynamic", help="names, separated by commas: " + ", ".join(OPTIONS))
    parser.add_argument("--model", choices=list(MODELS), default="minilm")
    parser.add_argument("--backend", choices=("aten", "native"), default="aten", help="pliant's (%(default)s)")
    parser.add_argument("--samples", type=int, default=5, help="fresh processes for each (5)")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.worker:
        work(args.worker, args.model, args.backend)
        return
    os.environ["PLIANT_ENTRIES"] = "0"  # captures of one process would find each other's entries
    console = Console(width=max(Console().width, 110))
    samples: dict[str, list[dict[str, Any]]] = {name: [] for name in args.systems.split(",")}
    for _ in range(args.samples):
        for name, rows in samples.items():  # in turn, so that a noisy minute touches all alike
            words = ["--worker", name, "--model", args.model, "--backend", args.backend]
            outcome = workers.run("benchmarks.capture_cost", words, limit_s=300)
            sample = outcome.last("sample")
            if sample is None:
                console.print(f"{name}: {outcome.status}\n{outcome.error}", markup=False)
            else:
                rows.append(sample)
    table = Table(title=f"capturing {args.model} once")
    for heading in ("system", "ATen ops", "captures", "first, ms", "µs an op: first", "fastest", "CPU", "again", "fastest", "CPU"):
        table.add_column(heading, justify="left" if heading == "system" else "right")
    for name, rows in samples.items():
        if rows:
            each = {key: [r[key] / r["ops"] * 1e6 for r in rows] for key in ("capture_s", "cpu_s", "again_s", "again_cpu_s")}
            figures = [f"{statistics.median(r['capture_s'] for r in rows) * 1e3:.0f}"]
            for wall, busy in (("capture_s", "cpu_s"), ("again_s", "again_cpu_s")):
                figures += [f"{statistics.median(each[wall]):.0f}", f"{min(each[wall]):.0f}", f"{statistics.median(each[busy]):.0f}"]
            table.add_row(systems.TITLES[name], str(rows[0]["ops"]), str(rows[0]["captures"]), *figures)
    console.print(table)
    if args.json:
        with open(args.json, "w") as file:
            json.dump(samples, file, indent=1)


if __name__ == "__main__":
    main()
