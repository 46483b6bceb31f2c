"""`python -m benchmarks.soak --minutes N`: everything at once for a long time. No wrong answer, no growth, no hang.

One process runs mixed programs in several threads: those of `benchmarks.programs`, loops on data, data-dependent sizes, NumPy, and branches
with side exits, exceptions, writes and prints; each call beside eager's, with the words it printed and the exception it raised. Meanwhile
its main thread resets pliant, forks children that go on with the same programs, collects garbage and waits for the background; other
processes start with the same cache, and one prunes it all the time. Memory, threads, files and entries are sampled.

A thread that does nothing for `STALL_S` seconds, or a child that takes as long, is a hang: the stacks of all threads are printed.
"""

from __future__ import annotations

import argparse
import collections
import copy
import faulthandler
import gc
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

import pliant
from benchmarks import data_loops, numpy_programs
from benchmarks.compare import Mismatch, difference
from benchmarks.data_dependent import judge
from benchmarks.data_dependent.table import PROGRAMS as DATA_DEPENDENT
from benchmarks.programs import PROGRAMS
from pliant import native
from pliant.cli import workers
from pliant.cli.workers import report
from pliant.jit.persist import inventory
from pliant.jit.region import called_regions

STALL_S = 100.0
SAMPLE_S = 2.0
GROWTH = 0.03
"""So much more memory in the last quarter than in the third is growth."""
KEPT_BYTES = 3 << 20
"""What the pruning process leaves of the cache."""
MOST_PAIRS = 20
"""Compiled programs that a thread keeps; others are dropped and compiled again."""
EVENTS_S = {"reset": 25.0, "fork": 5.0, "collect": 8.0, "synchronize": 15.0, "visitor": 40.0}
"""How often each happens, in seconds, on the average."""


# -- what is run ------------------------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class Work:
    """`make()` builds what is compiled; `calls(i)` the arguments of call i, anew each time; `call` makes one. `same` judges two answers."""

    name: str
    make: Callable[[], Callable]
    calls: Callable[[int], tuple]
    call: Callable[[Callable, tuple], Any]
    same: Callable[[Any, Any], str]


def plain(fn: Callable, args: tuple) -> Any:
    return fn(*args)


def without_gradients(fn: Callable, args: tuple) -> Any:
    with torch.no_grad():
        return fn(*args)


def alike(tolerance: float) -> Callable[[Any, Any], str]:
    """What is wrong with an answer, beside eager's; empty if nothing is."""

    def judged(got: Any, want: Any) -> str:
        try:
            apart = difference(got, want)
        except Mismatch as e:
            return str(e)
        return "" if apart <= tolerance else f"differs by {apart:.2g}"

    return judged


def like_arrays(got: Any, want: Any) -> str:
    return "" if numpy_programs.same(want, got) else "differs"


def leaves(x: torch.Tensor, log: list) -> torch.Tensor:
    """A branch on data with effects before and behind it."""
    log.append(x.shape[0])
    y = x * 2
    y += 1
    if y.sum() > 0:
        y = y.relu() + x.mean()
    else:
        print("the other side", x.shape[0])
        log.append("other")
        y = y.cos()
    x.mul_(0.5)
    return y


def raises(x: torch.Tensor, log: list) -> torch.Tensor:
    """One side raises, behind a write."""
    x.add_(1)
    log.append("before")
    if x.max() > 3:
        raise ValueError(f"too large in {x.shape[0]} rows")
    return x.sqrt().sum(0)


def draws(x: torch.Tensor, log: list) -> torch.Tensor:
    """Handlers, context managers and a loop around branches."""
    out = x
    for i in range(3):
        try:
            if out.mean() > 0.2 * i:
                out = out - raises(out.clone() * 2, log).mean()
            else:
                out = out.tanh() + i
        except ValueError as e:
            log.append(str(e))
            with torch.no_grad():
                out = out * 0.1
    return out


def branching(i: int) -> tuple:
    g = torch.Generator().manual_seed(i)
    return torch.randn(2 + i % 7, 5, generator=g).abs() * (1 + i % 3) * (-1) ** (i % 4 == 1), []


def with_log(fn: Callable, args: tuple) -> Any:
    """The answer and what the call left in its arguments."""
    return fn(*args), args


def everything() -> list[Work]:
    found = [
        Work(p.name, p.make, lambda i, p=p: (given := p.inputs())[i % len(given)], p.call, alike(max(p.tolerance, 1e-3)))
        for p in PROGRAMS.values()
    ]
    for fn, args in data_loops.programs().items():
        found.append(Work(f"loop {fn.__name__}", lambda fn=fn: fn, lambda i, args=args: args, without_gradients, alike(1e-3)))
    for p in DATA_DEPENDENT.values():
        call, sizes = (lambda fn, args, p=p: judge.answer(fn, p, args[0])), p.sizes
        found.append(Work(f"sizes {p.name}", lambda p=p: p.fn, lambda i, sizes=sizes: (sizes[i % len(sizes)],), call, alike(1e-3)))
    for q in numpy_programs.PROGRAMS:
        given = lambda i, q=q: q.make(np.random.default_rng(i), 6 + 2 * (i % 9))
        found.append(Work(f"numpy {q.name}", lambda q=q: q.fn, given, plain, like_arrays))
    found += [Work(f"exits {fn.__name__}", lambda fn=fn: fn, branching, with_log, alike(1e-3)) for fn in (leaves, raises, draws)]
    return found


class Words:
    """Standard output that every thread has for itself."""

    def __init__(self) -> None:
        self.of = threading.local()

    def write(self, text: str) -> int:
        self.of.__dict__.setdefault("text", []).append(text)
        return len(text)

    def flush(self) -> None:
        pass

    def taken(self) -> str:
        return "".join(self.of.__dict__.pop("text", []))


words = Words()


def outcome(work: Work, fn: Callable, i: int) -> tuple[Any, str, str]:
    """(answer, exception, what was printed) of one call."""
    args = work.calls(i)
    words.taken()
    try:
        return work.call(fn, args), "", words.taken()
    except Exception as e:
        return None, f"{type(e).__name__}: {e}", words.taken()


def wrong(work: Work, eager: Callable, compiled: Callable, i: int) -> str:
    """What is wrong with one call; empty if nothing is."""
    want, got = outcome(work, eager, i), outcome(work, compiled, i)
    if want[1:] != got[1:]:
        return f"{work.name}, call {i}: raised {got[1]!r} and printed {got[2]!r}, eager {want[1]!r} and {want[2]!r}"
    why = "" if want[1] else work.same(got[0], want[0])
    return f"{work.name}, call {i}: {why}" if why else ""


# -- the process that is watched ----------------------------------------------------------------------------------------------------
@dataclass
class Soak:
    """What its threads share."""

    until: float
    seed: int
    works: list[Work]
    threads: list[threading.Thread] = field(default_factory=list)
    moved: dict[str, float] = field(default_factory=dict)  # thread -> when it last did something
    doing: dict[str, str] = field(default_factory=dict)
    counts: collections.Counter = field(default_factory=collections.Counter)
    ending: bool = False

    def found(self, what: str, text: str) -> None:
        self.counts[what] += 1
        report("found", what=what, text=text[:6000])

    def some(self, rng: random.Random, pairs: dict[str, tuple], calls: int) -> None:
        """Some calls of one program; its compiled form is one of before, or a new one."""
        work = rng.choice(self.works)
        me = threading.current_thread().name
        self.doing[me] = work.name
        if work.name not in pairs or rng.random() < 0.05:
            while len(pairs) >= MOST_PAIRS:
                del pairs[next(iter(pairs))]
            eager = work.make()  # copied: threads that make the same model at once would share the state that its weights are drawn from
            pairs[work.name] = eager, pliant.compile(copy.deepcopy(eager), background=rng.random() < 0.9)
        for _ in range(calls):
            why = wrong(work, *pairs[work.name], rng.randrange(40))
            self.moved[me] = time.monotonic()
            self.counts["calls"] += 1
            if why:
                self.found("wrong", why)

    def run(self, number: int) -> None:
        rng, pairs = random.Random(f"{self.seed} {number}"), {}
        while not self.ending:
            try:
                self.some(rng, pairs, rng.choice((1, 2, 5, 12)))
            except Exception:
                self.found("error", traceback.format_exc())

    def watch(self) -> None:
        """Samples; and whoever stands still for too long is shown with all stacks, and the process ends."""
        base = time.monotonic()
        while not self.ending:
            time.sleep(SAMPLE_S)
            now = time.monotonic()
            if all(now - self.moved.get(t.name, base) < STALL_S for t in self.threads):
                faulthandler.dump_traceback_later(STALL_S, exit=True)
            report("sample", **sampled(), calls=self.counts["calls"], doing=dict(self.doing))

    def fork(self, rng: random.Random) -> None:
        """A child goes on with the same programs, compiled before and anew."""
        seed = rng.random()
        stacks = tempfile.TemporaryFile(mode="w+")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of forks beside threads: that is what is tried
            child = os.fork()
        if not child:
            faulthandler.register(signal.SIGUSR1, file=stacks)
            self.counts.clear()
            for _ in range(6):
                self.some(random.Random(seed := seed + 1), self.shared, 2)
            os._exit(3 if self.counts["wrong"] else 0)
        limit = time.monotonic() + STALL_S / 2
        status: int | None = None
        while status is None and time.monotonic() < limit:
            time.sleep(0.05)
            self.moved["main"] = time.monotonic()
            done, code = os.waitpid(child, os.WNOHANG)
            status = os.waitstatus_to_exitcode(code) if done else None
        if status is None:
            for number in (signal.SIGUSR1, signal.SIGKILL):
                os.kill(child, number)
                time.sleep(1.0)
            os.waitpid(child, 0)
            stacks.seek(0)
            self.found("hang", f"the child of a fork\n{stacks.read()}")
        elif status not in (0, 3):  # of 3 the child has told
            self.found("error", f"the child of a fork ended with {status}")

    def main(self, threads: int) -> None:
        rng = random.Random(self.seed)
        self.shared: dict[str, tuple] = {}
        due = {what: time.monotonic() + rng.uniform(0.1, 1) * every for what, every in EVENTS_S.items()}
        faulthandler.dump_traceback_later(STALL_S, exit=True)
        self.threads = [threading.Thread(target=self.run, args=(n,), name=f"soak-{n}") for n in range(threads)]
        watch = threading.Thread(target=self.watch, name="watch")
        visitors: list[subprocess.Popen] = []
        for t in (*self.threads, watch):
            t.start()
        while time.monotonic() < self.until:
            what = min(due, key=lambda w: due[w])
            if due[what] > time.monotonic():
                self.some(rng, self.shared, 2)
                continue
            due[what] = time.monotonic() + rng.uniform(0.5, 1.5) * EVENTS_S[what]
            self.counts[what] += 1
            if what == "reset":
                pliant.reset()
            elif what == "fork":
                self.fork(rng)
            elif what == "collect":
                gc.collect()
            elif what == "synchronize":
                if not pliant.synchronize(STALL_S):
                    self.found("hang", "the background is not done")
            else:
                visitors = [v for v in visitors if v.poll() is None]
                command = [sys.executable, "-m", "benchmarks.soak", "--visitor", str(rng.randrange(10**6))]
                visitors.append(subprocess.Popen(command, stdout=sys.__stdout__.fileno()))
        self.ending = True
        for t in (*self.threads, watch):
            t.join()
        for v in visitors:
            try:
                v.wait(STALL_S)
            except subprocess.TimeoutExpired:
                v.kill()
                self.found("hang", "a visiting process")
        if not pliant.synchronize(STALL_S):
            self.found("hang", "the background is not done")
        report("end", counts=dict(self.counts), stats=pliant.stats(), **sampled())


def sampled() -> dict[str, Any]:
    """Memory in bytes, and how many there are of what must not grow."""
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[1])
    entries = 0
    for region in called_regions():
        for ref in list(region.codes):
            code = ref()
            entries += len(native.entries(code)) if code is not None else 0
    counts = {"threads": len(os.listdir("/proc/self/task")), "files": len(os.listdir("/proc/self/fd")), "entries": entries}
    return {"rss": pages * os.sysconf("SC_PAGE_SIZE"), "arena": native.arena_bytes()[0], **counts}


def work(minutes: float, threads: int, seed: int) -> None:
    sys.stdout = words  # type: ignore[assignment]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)  # the child of a fork has none of OpenMP's threads
    Soak(time.monotonic() + 60 * minutes, seed, everything()).main(threads)


def visit(seed: int) -> None:
    """Another process with the same cache: a few programs, and it is gone."""
    sys.stdout = words  # type: ignore[assignment]
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(STALL_S, exit=True)
    soak, rng, pairs = Soak(0.0, seed, everything()), random.Random(seed), {}
    for _ in range(12):
        soak.some(rng, pairs, 2)
    stats = pliant.stats()
    report("visited", calls=soak.counts["calls"], captures=stats["captures"], from_disk=stats["from_disk"])


def prune() -> None:
    """Takes away what others write, until it is killed."""
    while True:
        inventory.prune(None, KEPT_BYTES)
        time.sleep(1.0)


# -- the table ------------------------------------------------------------------------------------------------------------------------
def show(run: workers.Run, console: Console) -> bool:
    """Whether all was well."""
    samples = [r for r in run.reports if r["event"] == "sample"]
    found = [r for r in run.reports if r["event"] == "found"]
    visits = [r for r in run.reports if r["event"] == "visited"]
    end = run.last("end")
    table = Table(title="medians over each quarter of the time")
    for heading in ("", "1st", "2nd", "3rd", "4th"):
        table.add_column(heading, justify="right" if heading else "left")
    quarters = [samples[len(samples) * k // 4 : len(samples) * (k + 1) // 4] for k in range(4)]
    grown = 0.0
    if all(quarters):
        for key, scale in (("rss", 1 << 20), ("arena", 1 << 20), ("threads", 1), ("files", 1), ("entries", 1)):
            middle = [statistics.median(s[key] for s in q) / scale for q in quarters]
            table.add_row(key + (" (MiB)" if scale > 1 else ""), *(f"{m:.0f}" for m in middle))
            if key == "rss":
                grown = middle[3] / middle[2] - 1
        rates = [(q[-1]["calls"] - q[0]["calls"]) / max(len(q) - 1, 1) / SAMPLE_S for q in quarters]
        table.add_row("calls a second", *(f"{r:.1f}" for r in rates))
        console.print(table)
    for r in found[:20]:
        console.print(f"{r['what']}: {r['text']}", markup=False)
    if end is None:
        console.print(f"it did not come to its end ({run.status}):\n{run.error}", markup=False)
        return False
    counts = end["counts"]
    told = ", ".join(f"{n} {what}" for what, n in sorted(counts.items()))
    calls, captures, from_disk = (sum(v[key] for v in visits) for key in ("calls", "captures", "from_disk"))
    console.print(f"{told}; visits: {len(visits)} with {calls} calls, {captures} captures and {from_disk} entries from the disk")
    console.print(f"memory in the last quarter: {grown:+.1%} of the third; at the end {end['threads']} threads; {end['stats']}")
    return not found and grown <= GROWTH and not end["stats"]["background_errors"]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=30, help="how long (30)")
    parser.add_argument("--threads", type=int, default=2, help="threads beside the main one (2)")
    parser.add_argument("--seed", type=int, default=0, help="of what is run when")
    parser.add_argument("--json", metavar="FILE", help="also write what was reported there")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--visitor", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--pruner", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.pruner:
        prune()
    if args.visitor is not None:
        visit(args.visitor)
        return
    if args.worker:
        work(args.minutes, args.threads, args.seed)
        return
    command = ["--worker", "--minutes", str(args.minutes), "--threads", str(args.threads), "--seed", str(args.seed)]
    with tempfile.TemporaryDirectory(prefix="pliant-soak-") as caches:
        env = os.environ | {"PLIANT_CACHE_DIR": os.path.join(caches, "pliant_cache_dir")}
        pruner = subprocess.Popen([sys.executable, "-m", "benchmarks.soak", "--pruner"], env=env)
        try:
            run = workers.run("benchmarks.soak", command, limit_s=60 * args.minutes + 6 * STALL_S, caches=caches)
        finally:
            pruner.kill()
            pruner.wait()
    fine = show(run, Console(width=120))
    if args.json:
        with open(args.json, "w") as file:
            json.dump(run.reports, file)
    sys.exit(not fine)


if __name__ == "__main__":
    main()
