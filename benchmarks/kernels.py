"""The kernel suite: every fusion of `fusions.py` under eager, torch.compile (Inductor, `dynamic=True`) and pliant's native backend.

    python -m benchmarks.kernels [--quick] [--threads 1,2] [--dtypes f32,bf16] [--only softmax,gelu] [--json FILE] [--no-inductor]

One fresh process with empty caches for each number of threads. Each answer is checked against eager's before it is timed. Times are
medians of interleaved rounds in one process. Two figures for each system: of the *call* (guards, allocation, launch and all) and of the
*kernels* alone, called again with the tensors of the last call, where nothing but kernels runs. Bytes are those of arguments and results,
and their rate is compared with the machine's copy of as many bytes.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

import pliant
from benchmarks.fusions import FUSIONS, Args, Fusion
from pliant import native
from pliant.codegen.cpu import compile as cpu

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
FIRST = (96, 160)  # the shape that is compiled
QUICK = ((8, 16), (256, 384), (1000, 1000))
SHAPES = ((8, 16), (32, 96), (256, 384), (1000, 1000), (2500, 4000))
ROUNDS = 7
FREE = ("aten::empty", "aten::as_strided", "aten::view", "aten::reshape", "aten::t", "aten::transpose", "aten::detach", "aten::resize_")
Run = Callable[[], object]


# -- the kernels of a compiled program, to call them alone --


class Recorder:
    """Stands in for a kernel for one call, and keeps what it was called with."""

    def __init__(self, kernel: Callable, calls: list[tuple[Callable, tuple]]) -> None:
        self.kernel, self.calls = kernel, calls

    def __call__(self, *args: Any) -> Any:
        self.calls.append((self.kernel, args))
        return self.kernel(*args)


def kernels_of_pliant() -> list[tuple[dict, str]]:
    """The names in compiled functions that launchers are called by."""
    spaces = [d for d in gc.get_objects() if type(d) is dict and "__builtins__" in d]
    return [(d, k) for d in spaces for k, v in list(d.items()) if type(v) is native.Launcher]


def kernels_of_inductor() -> list[tuple[dict, str]]:
    """The same for the modules that Inductor wrote."""
    modules = importlib.import_module("torch._inductor.codecache").PyCodeCache.modules
    return [(vars(m), k) for m in modules for k, v in list(vars(m).items()) if k.startswith("cpp_") and callable(v)]


def alone(names: list[tuple[dict, str]], call: Run) -> Run | None:
    """Runs just the kernels of a call; None where ATen computes part of it."""
    with torch.autograd.profiler.profile(use_kineto=False) as seen:
        call()
    if any(e.name.startswith("aten::") and not e.name.startswith(FREE) for e in seen.function_events):
        return None
    calls: list[tuple[Callable, tuple]] = []
    kept = [(space, name, space[name]) for space, name in names]
    for space, name, kernel in kept:
        space[name] = Recorder(kernel, calls)
    try:
        call()
    finally:
        for space, name, kernel in kept:
            space[name] = kernel
    if not calls:
        return None
    if len(calls) == 1:
        kernel, args = calls[0]
        return lambda: kernel(*args)

    def run() -> None:
        for kernel, args in calls:
            kernel(*args)

    return run


# -- time --


def seconds(runs: list[Run], budget: float, clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """Median seconds of each, interleaved so that noise hits all alike."""
    counts = []
    for run in runs:
        run()
        begun = clock()
        run()
        counts.append(max(1, int(budget / ROUNDS / max(clock() - begun, 1e-7))))
    samples: list[list[float]] = [[] for _ in runs]
    for _ in range(ROUNDS):
        for run, count, into in zip(runs, counts, samples, strict=True):
            begun = clock()
            for _ in range(count):
                run()
            into.append((clock() - begun) / count)
    return [statistics.median(s) for s in samples]


def copy_seconds(total: int, memo: dict[int, float], clock: Callable[[], float]) -> float:
    """Of a copy that moves `total` bytes, read and written, into a buffer that is already there."""
    count = max(total // 8, 1)
    if count not in memo:
        a, b = torch.ones(count), torch.ones(count)
        memo[count] = seconds([lambda: b.copy_(a)], 0.05, clock)[0]
    return memo[count]


def bytes_of(values: Any) -> int:
    """Of distinct memory: a broadcast argument counts once."""
    flat = values if isinstance(values, (tuple, list)) else (values,)
    return sum(t.numel() * t.element_size() for t in flat)


def fresh(fn: Callable) -> Callable:
    """The function with code of its own: compiled versions belong to code."""
    assert isinstance(fn, types.FunctionType)
    return types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)


# -- one process --


def difference(got: Any, want: Any, fusion: Fusion, args: list[torch.Tensor]) -> str:
    """What is wrong with an answer: neither near eager's, nor nearer than twice eager's error to what float64 gives. Empty if nothing."""
    try:
        loose = 3e-2 if any(t.dtype is torch.bfloat16 for t in args) else 2e-4
        torch.testing.assert_close(got, want, rtol=loose, atol=loose)
    except AssertionError as e:
        exact = fusion.fn(*(t.double() if t.is_floating_point() else t for t in args))
        for g, w, x in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want, exact)), strict=True):
            if not (g.double() - x).abs().max() <= 2 * (w.double() - x).abs().max():
                return str(e).splitlines()[0]
    return ""


def caller(fn: Callable, args: list[torch.Tensor]) -> Run:
    return lambda: fn(*args)


def rows(fusion: Fusion, dtype: str, chosen: argparse.Namespace, memo: dict[int, float]) -> list[dict]:
    """Every shape of one fusion, compiled once for all of them."""

    clock = time.process_time if chosen.cpu_time else time.perf_counter

    def made(m: int, n: int) -> list[torch.Tensor]:
        maker = Args(m, n, DTYPES[dtype])
        return [getattr(maker, name)() for name in fusion.args]

    compiled: dict[str, Callable] = {"eager": fusion.fn}
    compile_s, kernels = {}, {}
    native_before, kernels_before = cpu.times.total(), cpu.times.kernels
    finders: dict[str, Callable[[], list[tuple[dict, str]]]] = {"pliant": kernels_of_pliant, "inductor": kernels_of_inductor}
    for system in ("pliant", "inductor") if not chosen.no_inductor else ("pliant",):
        before = {(id(space), name) for space, name in finders[system]()}
        if system == "pliant":
            compiled[system] = pliant.compile(
                fresh(fusion.fn), backend="native", strict=True, dynamic=True, fullgraph=True, background=False
            )
        else:
            compiled[system] = torch.compile(fresh(fusion.fn), dynamic=True, fullgraph=True)
        first = made(*FIRST)
        begun = time.perf_counter()
        compiled[system](*first)
        compile_s[system] = time.perf_counter() - begun
        kernels[system] = [x for x in finders[system]() if (id(x[0]), x[1]) not in before]
    codegen = cpu.times.total() - native_before
    count = cpu.times.kernels - kernels_before
    out = []
    for m, n in QUICK if chosen.quick else SHAPES:
        args = made(m, n)
        want = fusion.fn(*args)
        runs: dict[str, Run] = {}
        for system, fn in compiled.items():
            wrong = difference(fn(*args), want, fusion, args)
            if wrong and system == "pliant":
                raise AssertionError(f"{fusion.name} {dtype} {m}x{n}: {wrong}")
            runs[system] = caller(fn, args)
        for system in list(kernels):
            only = alone(kernels[system], runs[system])
            if only is not None:
                runs[system + " kernel"] = only
        moved = bytes_of(args) + bytes_of(want)
        times = dict(zip(runs, seconds(list(runs.values()), chosen.budget, clock), strict=True))
        times["copy"] = copy_seconds(moved, memo, clock)
        out.append({
            "name": fusion.name, "dtype": dtype, "shape": [m, n], "threads": torch.get_num_threads(), "bytes": moved, "seconds": times,
            "compile_s": compile_s, "codegen_s": codegen, "kernels": count,
        })  # fmt: skip
    return out


def work(chosen: argparse.Namespace) -> None:
    """The rows of one process, as lines of JSON."""
    torch.set_num_threads(int(chosen.threads))
    memo: dict[int, float] = {}
    suite = [f for f in FUSIONS if not chosen.only or any(part in f.name for part in chosen.only.split(","))]
    with torch.no_grad():
        for fusion in suite:
            for dtype in chosen.dtypes.split(","):
                try:
                    for row in rows(fusion, dtype, chosen, memo):
                        print(json.dumps(row), flush=True)
                except Exception as e:  # one program that fails leaves the others their figures
                    print(json.dumps({"name": fusion.name, "dtype": dtype, "error": f"{type(e).__name__}: {e}"[:400]}), flush=True)


# -- the report --


def better(row: dict, over: str, kind: str = "") -> float | None:
    """Seconds of `over` for each second of pliant: above 1 pliant is faster. `kind`: "" for calls, " kernel" for kernels alone."""
    t = row["seconds"]
    one, two = t.get(over + kind), t.get("pliant" + kind)
    return one / two if one and two else None


def mean(values: list[float | None]) -> float:
    kept = [math.log(v) for v in values if v]
    return math.exp(sum(kept) / len(kept)) if kept else math.nan


WIDTHS = {
    "fusion": -24, "dtype": -6, "shape": -11, "thr": 4, "call us": 10, "kernel": 9, "of copy": 8, "x eager": 9, "x ind.": 8, "kernel x": 9,
}  # fmt: skip


def table_row(cells: Iterable[str]) -> str:
    return "".join(f"{c:<{-w}}" if w < 0 else f"{c:>{w}}" for c, w in zip(cells, WIDTHS.values(), strict=True))


def of_copy(row: dict) -> float:
    t = row["seconds"]
    return t["copy"] / (t.get("pliant kernel") or t["pliant"])


def line(row: dict) -> str:
    t = row["seconds"]
    ratio = [better(row, "eager"), better(row, "inductor"), better(row, "inductor", " kernel")]
    kernel = t.get("pliant kernel", math.nan) * 1e6
    cells = [row["name"], row["dtype"], "x".join(map(str, row["shape"])), str(row["threads"]), f"{t['pliant'] * 1e6:.2f}", f"{kernel:.2f}"]
    cells += [f"{of_copy(row):.2f}", *(f"{r:.2f}" if r else "-" for r in ratio)]
    return table_row(cells) + (" *" if min((r for r in ratio[1:] if r), default=1) < 0.95 else "")


def summary(found: list[dict]) -> str:
    """Geometric means, and how many fall short, for each number of threads."""
    out = []
    for threads in sorted({r["threads"] for r in found}):
        mine = [r for r in found if r["threads"] == threads]
        calls, kernels = [better(r, "inductor") for r in mine], [better(r, "inductor", " kernel") for r in mine]
        short = [sum(1 for v in values if v and v < 0.95) for values in (calls, kernels)]
        counted = [sum(1 for v in values if v) for values in (calls, kernels)]
        per = {(r["name"], r["dtype"]): r for r in mine}.values()
        codegen = [r["codegen_s"] / r["kernels"] * 1e3 for r in per if r["kernels"]]
        compiled = mean([r["compile_s"]["inductor"] / r["compile_s"]["pliant"] for r in per if "inductor" in r["compile_s"]])
        out.append(
            f"{threads} thread(s), geometric means: x eager {mean([better(r, 'eager') for r in mine]):.2f}, "
            f"x Inductor {mean(calls):.2f} (call; {short[0]} of {counted[0]} below 0.95), "
            f"{mean(kernels):.2f} (kernel; {short[1]} of {counted[1]} below 0.95); "
            f"of copy bandwidth {mean([of_copy(r) for r in mine]):.2f}; "
            f"code generation {statistics.median(codegen) if codegen else math.nan:.1f} ms a kernel (median), "
            f"{max(codegen, default=math.nan):.1f} at most; first call {compiled:.0f}x sooner than Inductor's"
        )
        for dtype in sorted({r["dtype"] for r in mine}):
            for shape in sorted({tuple(r["shape"]) for r in mine}):
                here = [r for r in mine if r["dtype"] == dtype and tuple(r["shape"]) == shape]
                ratios = [mean([better(r, *k) for r in here]) for k in (("eager",), ("inductor",), ("inductor", " kernel"))]
                label = f"  {dtype} {shape[0]}x{shape[1]}"
                out.append(f"{label:<18} x eager {ratios[0]:.2f}, x Inductor {ratios[1]:.2f} (call), {ratios[2]:.2f} (kernel)")
    return "\n".join(out)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", default="1", help="numbers, separated by commas (1)")
    parser.add_argument("--dtypes", default="f32,bf16")
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--quick", action="store_true", help="three shapes, up to a million elements")
    parser.add_argument("--budget", type=float, default=0.05, help="seconds for each measured figure")
    parser.add_argument("--cpu-time", action="store_true", help="of the process instead of the wall's: for one thread on a busy machine")
    parser.add_argument("--no-inductor", action="store_true")
    parser.add_argument("--json", metavar="FILE", help="also write the figures there")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker:
        work(chosen)
        return
    found, failed = [], []
    print(table_row(WIDTHS))
    for threads in chosen.threads.split(","):
        with tempfile.TemporaryDirectory() as empty:
            env = {
                **os.environ, "PLIANT_CACHE_DIR": f"{empty}/pliant", "TORCHINDUCTOR_CACHE_DIR": f"{empty}/inductor",
                "TORCHINDUCTOR_COMPILE_THREADS": "1", "OMP_NUM_THREADS": threads,
            }  # fmt: skip
            words = [w for w in sys.argv[1:] if w != "--worker"]
            command = [sys.executable, "-m", "benchmarks.kernels", *words, "--worker", "--threads", threads]
            noise = tempfile.TemporaryFile(mode="w+")  # the profiler's and compilers' chatter: shown if the process fails
            with noise, subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=noise, text=True) as child:
                assert child.stdout is not None
                for text in child.stdout:
                    if not text.startswith("{"):
                        continue
                    row = json.loads(text)
                    if "error" in row:
                        failed.append(row)
                        print(f"{row['name']:<24}{row['dtype']:<6}{row['error']}", flush=True)
                    else:
                        found.append(row)
                        print(line(row), flush=True)
                if child.wait():
                    noise.seek(0)
                    raise SystemExit(noise.read()[-2000:] + f"the process for {threads} thread(s) ended with {child.returncode}")
    if found:
        print(summary(found))
    if chosen.json:
        with open(chosen.json, "w") as file:
            json.dump({"torch": torch.__version__, "rows": found, "failed": failed}, file, indent=1)


if __name__ == "__main__":
    main()
