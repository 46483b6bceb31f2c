"""A chain of 24 kernels as one native function: `python -m benchmarks.segments [--threads 1]`.

Microseconds a call, medians over interleaved rounds: eager, torch.compile (`dynamic=True`; leave it out with `--no-inductor`), pliant with
kernels called one by one, pliant with segments. Below: bytes of the planned arena against what eager holds at most for intermediate
results, counted by a dispatch mode that watches storages come and go.
"""

from __future__ import annotations

import argparse
import statistics
import time
import weakref
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import pliant
from pliant.codegen import native
from pliant.codegen.cpu.backend import CPU
from pliant.lower.memory import value

SIZES = ((8, 48), (32, 96), (128, 256))
KERNELS = 24


def chain(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Rows and columns are reduced in turn, so that each round is two kernels."""
    for _ in range(KERNELS // 2):
        x = F.layer_norm(x, (x.shape[-1],)) * w + b
        x = F.gelu(x) + x.mean(0)
        x = x + torch.softmax(x, 0)
    return x


def block(x: torch.Tensor, w: torch.Tensor, v: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """Four feed-forward layers with residuals: kernels and matrix products in turn."""
    for _ in range(4):
        h = F.gelu(F.linear(F.layer_norm(x, (x.shape[-1],)), w, b))
        x = x + F.linear(h, v)
    return x


PROGRAMS: dict[str, tuple[Callable, Callable]] = {
    "24 kernels": (chain, lambda n, m: (torch.randn(n, m), torch.randn(m), torch.randn(m))),
    "feed-forward": (block, lambda n, m: (torch.randn(n, m), torch.randn(4 * m, m) / m, torch.randn(m, 4 * m) / m, torch.randn(4 * m))),
}


class Peak(TorchDispatchMode):
    """The most bytes that tensors made inside held at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.most = 0
        self.seen: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        out = func(*args, **(kwargs or {}))
        for t in tree_leaves(out):
            storage = t.untyped_storage() if isinstance(t, torch.Tensor) else None
            if storage is not None and storage._cdata not in known and storage._cdata not in self.seen:
                self.seen.add(storage._cdata)
                self.now += storage.nbytes()
                self.most = max(self.most, self.now)
                weakref.finalize(storage, self.gone, storage._cdata, storage.nbytes())
        return out

    def gone(self, key: int, size: int) -> None:
        self.seen.discard(key)
        self.now -= size


def microseconds(fn: Callable, args: tuple, seconds: float) -> float:
    begun, n = time.perf_counter(), 0
    while n < 3 or time.perf_counter() - begun < seconds:
        fn(*args)
        n += 1
    return (time.perf_counter() - begun) / n * 1e6


def one_by_one(fn: Callable, args: tuple) -> Callable:
    """Compiled without segments."""
    has_segments, CPU.has_segments = CPU.has_segments, lambda self: False  # type: ignore[method-assign]
    try:
        compiled = pliant.compile(fn, backend="native", strict=True, background=False)
        compiled(*args)
    finally:
        CPU.has_segments = has_segments  # type: ignore[method-assign]
    return compiled


def with_segments(fn: Callable, args: tuple) -> tuple[Callable, list[Any]]:
    """Compiled, and the segments it was made of."""
    made: list[Any] = []
    compile_all = native.compile_all

    def record(launches: list[Any], segments: Any = ()) -> None:
        made.extend(call.segment for call in segments)
        compile_all(launches, segments)

    native.compile_all = record
    try:
        compiled = pliant.compile(fn, backend="native", strict=True, background=False)
        compiled(*args)
    finally:
        native.compile_all = compile_all
    return compiled, made


def bytes_planned(made: list[Any], first: tuple, args: tuple) -> int:
    """The arena and the results that come with it, at the sizes of `args`.

    Symbols are told by their hints, which are the sizes of `first`, all of them different.
    """
    now = {a: b for x, y in zip(first, args, strict=True) for a, b in zip(x.shape, y.shape, strict=True)}

    def bytes_of(s: Any) -> int:
        env = {leaf.name: now[leaf.hint] for leaf in s.leaves}
        return s.plan.bytes(env) + sum(value(size, env) for size in s.given_bytes)

    return max(map(bytes_of, made), default=0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.05, help="of each measurement")
    parser.add_argument("--no-inductor", action="store_true")
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)
    with torch.no_grad():
        for name, (fn, arguments) in PROGRAMS.items():
            first = arguments(16, 64)
            systems = {"eager": fn, "one by one": one_by_one(lambda *a, fn=fn: fn(*a), first)}
            systems["segments"], made = with_segments(lambda *a, fn=fn: fn(*a), first)
            if not chosen.no_inductor:
                systems["torch.compile"] = torch.compile(fn, dynamic=True, fullgraph=True)
            print(f"{name}: {sum(len(s.steps) for s in made)} steps in {len(made)} segments")
            for n, m in SIZES:
                args = arguments(n, m)
                want = fn(*args)
                for system in systems.values():
                    torch.testing.assert_close(system(*args), want, rtol=1e-4, atol=1e-4)
                times: dict[str, list[float]] = {system: [] for system in systems}
                for _ in range(chosen.rounds):
                    for system, run in systems.items():
                        times[system].append(microseconds(run, args, chosen.seconds))
                medians = {system: statistics.median(t) for system, t in times.items()}
                row = "  ".join(f"{system} {t:8.1f} ({t / medians['segments']:.2f}x)" for system, t in medians.items())
                with Peak() as peak:
                    fn(*args)
                planned = bytes_planned(made, first, args)
                print(f"  {n:4d} x {m:<4d} {row}  bytes: planned {planned}, eager {peak.most}")


if __name__ == "__main__":
    main()
