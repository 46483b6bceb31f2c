"""One module of CPython's tests in this process: `python -m benchmarks.cpython_worker list compiled`. Started by `benchmarks.cpython`."""

from __future__ import annotations

import argparse
import faulthandler
import gc
import inspect
import os
import signal
import sys
import tempfile
import traceback
import types
import unittest
import warnings
from collections.abc import Iterator
from typing import Any

import pliant.events
from benchmarks.cpython import METHOD_S
from pliant.cli import workers

KEPT = 4000  # characters of a text


class Slow(BaseException):
    """A method took too long."""


def too_slow(*_: Any) -> None:
    raise Slow


class Outcomes(unittest.TestResult):
    """What became of one method: the worst of what its parts reported."""

    def __init__(self) -> None:
        super().__init__()
        self.kind = "pass"
        self.text = ""

    def note(self, kind: str, err: Any = None) -> None:
        order = ("pass", "skip", "expected failure", "unexpected success", "fail", "error")
        if order.index(kind) >= order.index(self.kind):
            self.kind = kind
            if err is not None:
                self.text = "".join(traceback.format_exception(*err))[-KEPT:]

    def addError(self, test: Any, err: Any) -> None:
        self.note("error", err)

    def addFailure(self, test: Any, err: Any) -> None:
        self.note("fail", err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self.note("fail" if issubclass(err[0], test.failureException) else "error", err)

    def addSkip(self, test: Any, reason: str) -> None:
        self.note("skip")
        self.text = reason

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.note("expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.note("unexpected success")


def flat(suite: Any) -> Iterator[unittest.TestCase]:
    for t in suite:
        if isinstance(t, unittest.TestSuite):
            yield from flat(t)
        else:
            yield t


def body_of(test: unittest.TestCase) -> tuple[Any, Any]:
    """The class and the function of a method, or (class, None) where there is nothing to compile."""
    name = test._testMethodName
    for cls in type(test).__mro__:
        fn = cls.__dict__.get(name)
        if fn is not None:
            plain = type(fn) is types.FunctionType and not inspect.iscoroutinefunction(fn) and not inspect.isgeneratorfunction(fn)
            return cls, fn if plain else None
    return type(test), None


def run_method(test: unittest.TestCase, how: str, times: int) -> dict[str, Any]:
    """The outcome of each call, and what compiling it came to."""
    outcomes, texts = [], []
    cls, fn = body_of(test)
    if how != "plain":
        pliant.reset()
        if fn is not None:
            setattr(cls, test._testMethodName, pliant.compile(fn, backend="aten", strict=how == "strict"))
    try:
        for _ in range(times):
            result = Outcomes()
            fresh = type(test)(test._testMethodName)
            signal.alarm(METHOD_S)
            try:
                unittest.TestSuite([fresh]).run(result)
            finally:
                signal.alarm(0)
            outcomes.append(result.kind)
            texts.append(result.text)
    finally:
        if fn is not None:
            setattr(cls, test._testMethodName, fn)
    counts = {k: pliant.stats()[k] for k in ("captures", "graph_breaks", "fallbacks", "user_errors")} if how != "plain" else {}
    if counts.get("fallbacks"):
        texts += [e.fields["error"] for e in pliant.events.events("fallback")]
    return {"outcomes": outcomes, "texts": texts, **counts}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("module")
    parser.add_argument("side", choices=("plain", "compiled", "strict"))
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--behind", default="", help="go on behind this method")
    parser.add_argument("--only", default="", help="methods whose names contain this")
    parser.add_argument("--show", action="store_true", help="show the texts")
    args = parser.parse_args()
    if not args.show:
        sys.stdout = open(os.devnull, "w")
        sys.stderr = open(os.devnull, "w")
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, too_slow)
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        from test import support

        support.use_resources = []  # what is large, slow, or needs a network or a screen
        support.verbose = 0
        loader = unittest.TestLoader()
        tests = list(flat(loader.loadTestsFromName(f"test.test_{args.module}")))
        if loader.errors:
            raise SystemExit(loader.errors[0])
        behind = args.behind
        for n, test in enumerate(tests):
            name = f"test_{args.module}." + test.id().removeprefix(f"test.test_{args.module}.")
            if behind:
                behind = "" if name == behind else behind
                continue
            if not isinstance(getattr(test, "_testMethodName", None), str) or type(test).__name__ in ("DocTestCase", "FunctionTestCase"):
                continue
            if args.only not in name:
                continue
            workers.report("begin", name=name)
            faulthandler.dump_traceback_later(2 * METHOD_S * args.times, exit=True, file=sys.__stderr__)
            try:
                outcome = run_method(test, args.side, args.times)
            except Slow:
                workers.report("method", name=name, outcomes=["slow"], texts=[])
                os._exit(1)  # what it left half done
            faulthandler.cancel_dump_traceback_later()
            if args.show:
                print(name, outcome["outcomes"], *[t for t in outcome["texts"] if t], {k: v for k, v in outcome.items() if type(v) is int})
            else:
                workers.report("method", name=name, **outcome)
            if n % 20 == 19:
                gc.collect()
        workers.report("end")
        sys.__stdout__.flush()
        os._exit(0)  # threads and exit handlers of tests are nobody's concern


if __name__ == "__main__":
    main()
