"""`python -m benchmarks.fuzz`: random programs by the thousand, eager and compiled side by side; a program is a theme and a number.

python -m benchmarks.fuzz --count 100000 --json fuzz.json           # a second run goes on where the first one stopped
python -m benchmarks.fuzz --show foreign:1234                       # print one program and what is wrong with it
python -m benchmarks.fuzz --themes foreign --first 5000 --count 500
python -m benchmarks.fuzz --themes tensors                          # tensors of all dtypes, sizes and layouts through native kernels

What programs are made of is in `tests/differential/grammar.py`; how they are compared in `tests/helpers.py`. Programs run in worker
processes, six hundred to a process; one that does not end in eager within its time is counted, and shows that the grammar is wrong.
Entries are not kept on disk; `PLIANT_TEST_ENTRIES=1` sends each through its form there.
"""

from __future__ import annotations

import argparse
import collections
import functools
import gc
import itertools
import json
import logging
import os
import queue
import random
import signal
import threading
import time
import traceback
import warnings
from collections.abc import Callable
from types import CodeType
from typing import Any

import torch
from rich.console import Console

import pliant
from pliant.cli import workers
from pliant.cli.workers import report
from pliant.errors import PliantError
from pliant.jit import branches
from tests import helpers
from tests.differential import tensors
from tests.differential.generate import STATES, seeded
from tests.helpers import Mismatch, Observed, check_world

THEMES = {"pure": 3, "mixed": 3, "foreign": 4, "breaks": 1, "grad": 1, "exits": 2, "python": 6}  # of twenty programs
OTHERS = {"tensors": 1, "leaves": 1, "history": 1, "users": 1, "training": 1, "loops": 1, "reports": 1} | dict.fromkeys(STATES, 1)
"""By name alone: the numbers above keep their programs."""
CHUNK = 600
EAGER_S, WHOLE_S = 2.0, 60.0  # processor time of one call in eager; time of everything


class Slow(helpers.OutOfTime):
    """The program took too long."""


class Endless(Slow):
    """In eager, too."""


def raiser(error: type[Slow]) -> Callable[..., None]:
    def handler(*_: Any) -> None:
        raise error

    return handler


class Bounded:
    """A program as eager runs it."""

    def __init__(self, fn: Callable) -> None:
        self.fn = fn
        self.__code__ = fn.__code__

    def __call__(self, *args: Any) -> Any:
        signal.setitimer(signal.ITIMER_PROF, EAGER_S, 0.5)
        try:
            return self.fn(*args)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)


def numbers(themes: list[str], first: int, count: int) -> list[str]:
    """The programs of a range of numbers: themes take turns by their share."""
    turn = [t for t in themes for _ in range((THEMES | OTHERS)[t])]
    return [f"{turn[i % len(turn)]}:{i}" for i in range(first, first + count)]


def examine(name: str, exits: bool = False) -> tuple[str, str]:
    """(what became of the program, what differs)."""
    theme, number = name.split(":")
    if theme == "tensors":
        return tensors.examine(int(number))
    branches.forced = forced(name) if exits else None
    program = seeded(theme, int(number))
    sides = itertools.chain([Bounded], itertools.repeat(lambda fn: fn))  # the first world is eager's

    def world() -> tuple[Any, Observed]:
        fn, state = program.world()
        return next(sides)(fn), state

    signal.signal(signal.SIGALRM, raiser(Slow))
    signal.signal(signal.SIGPROF, raiser(Endless))
    try:
        signal.setitimer(signal.ITIMER_REAL, WHOLE_S, 0.5)
        how = {"grad": program.grad, "between": program.between, "refused": False, "drive": program.drive}
        check_world(world, *program.arguments(), before=program.before, must_compile=False, **how)
    except Endless:
        return "endless", "does not end in eager"
    except Slow:
        return "slow", f"takes more than {WHOLE_S:.0f} s"
    except Mismatch as e:
        text = str(e)
        return ("error" if "InternalError" in text or "frames were given up" in text else "wrong"), text
    except PliantError:
        return "error", traceback.format_exc()[-1500:]
    except Exception:
        return "broken", traceback.format_exc()[-1500:]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        pliant.reset()
    return "right", ""


def forced(name: str) -> Callable[[CodeType, int], bool | None]:
    """A hot side for every branch on data of a program, so that every second run leaves its graph at a side exit."""

    def side(code: CodeType, offset: int) -> bool | None:
        return random.Random(f"{name} {code.co_name} {offset}").random() < 0.5

    return side


def work(themes: list[str], first: int, count: int, backend: str, exits: bool, total: float | None) -> None:
    helpers.BACKEND = backend
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.getLogger("pliant").setLevel(logging.CRITICAL)
    gc.freeze()
    names = numbers(themes, first, count)
    started = told = time.monotonic()
    right: list[str] = []
    for name in names:
        if total is not None and time.monotonic() - started > total:
            break
        report("try", program=name) if time.monotonic() - told > 0.5 else None
        verdict, text = examine(name, exits)
        if verdict == "right":
            right.append(name)
        else:
            report("found", program=name, verdict=verdict, text=text[:2000])
        if time.monotonic() - told > 0.5:
            report("right", programs=len(right))
            right, told = [], time.monotonic()
    report("right", programs=len(right))
    report("end")


class Run:
    """What the workers found, in a file."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.lock = threading.Lock()
        self.data: dict[str, Any] = {"chunks": [], "right": 0, "found": []}
        if args.json and os.path.exists(args.json):
            with open(args.json) as file:
                self.data = json.load(file)

    def hear(self, event: dict[str, Any], state: dict[str, Any]) -> None:
        with self.lock:
            if event["event"] == "right":
                self.data["right"] += event["programs"]
                state["n"] += event["programs"]
            elif event["event"] == "found":
                state["n"] += 1
                self.data["found"].append({k: event[k] for k in ("program", "verdict", "text")})
                if event["verdict"] != "error":
                    print(f"{event['verdict']:8} {event['program']}: {event['text'].strip().splitlines()[0][:300]}", flush=True)

    def chunk(self, first: int, count: int, until: float | None) -> None:
        end = first + count
        at = first
        while at < end:
            state = {"n": 0}
            left = [] if until is None else ["--total", str(max(until - time.monotonic(), 0))]
            outcome = workers.run("benchmarks.fuzz", ["--work", str(at), "--count", str(end - at), "--themes", ",".join(self.args.themes),
                "--backend", self.args.backend, *(["--exits"] if self.args.exits else []), *left],
                functools.partial(self.hear, state=state), limit_s=120 + 8 * (end - at))
            at += state["n"]
            if outcome.status == "ok":
                break
            name = numbers(self.args.themes, at, 1)[0]  # (not always this one: what was right is told now and then)
            self.hear({"event": "found", "program": name, "verdict": "crash", "text": f"{outcome.status} {outcome.error[-600:]}"}, state)
            at += 1
        with self.lock:
            if at == end:  # not where time was up
                self.data["chunks"].append([first, count, ",".join(self.args.themes)])
            if self.args.json:
                with open(self.args.json + ".new", "w") as file:
                    json.dump(self.data, file, indent=1)
                os.replace(self.args.json + ".new", self.args.json)

    def go(self) -> None:
        done = {(c[0], c[2]) for c in self.data["chunks"]}
        todo: queue.Queue = queue.Queue()
        last = self.args.first + self.args.count
        for first in range(self.args.first, last, CHUNK):
            if (first, ",".join(self.args.themes)) not in done:
                todo.put((first, min(CHUNK, last - first)))
        end = time.monotonic() + self.args.total if self.args.total else None

        def serve() -> None:
            while end is None or time.monotonic() < end:
                try:
                    self.chunk(*todo.get_nowait(), end)
                except queue.Empty:
                    return

        threads = [threading.Thread(target=serve) for _ in range(self.args.jobs)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.fuzz", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="number of the first program")
    parser.add_argument("--themes", default=",".join(THEMES))
    parser.add_argument("--backend", default="aten", help="`native` takes five times as long")
    parser.add_argument("--exits", action="store_true", help="branches on data are side exits from the first call on, of any side")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--total", type=float, help="start no more programs after so many seconds")
    parser.add_argument("--json", metavar="FILE", help="keep what was found there, and go on from it")
    parser.add_argument("--show", metavar="THEME:NUMBER", help="print one program and compare it")
    parser.add_argument("--work", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.themes = args.themes.split(",")
    if args.show:
        theme, number = args.show.split(":")
        print(tensors.Program(int(number)) if theme == "tensors" else seeded(theme, int(number)))
        helpers.BACKEND = args.backend
        print(*examine(args.show, args.exits), sep="\n")
        return
    if args.work is not None:
        work(args.themes, args.work, args.count, args.backend, args.exits, args.total)
        return
    os.environ.setdefault("PLIANT_ENTRIES", "0")
    run = Run(args)
    run.go()
    verdicts = collections.Counter(f["verdict"] for f in run.data["found"])
    Console().print(f"{run.data['right'] + len(run.data['found'])} programs: {run.data['right']} right, {dict(verdicts)}", markup=False)
    raise SystemExit(any(verdicts[v] for v in ("wrong", "crash", "broken", "endless")))


if __name__ == "__main__":
    main()
