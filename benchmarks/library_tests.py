"""`python -m benchmarks.library_tests --on LIBRARY PATH ...`: a library's own test suite, run plainly and on pliant.

Three ways: `eager`; `bodies`, the body of each test is compiled; `functions`, each function and method that the modules of the library
`--on` define is compiled by itself, so that what one test left in entries meets the arguments of all others. Outcomes (passed, failed,
skipped, with the exception's first line) must be the same. Internal errors count as different: pliant runs strict.

    python -m benchmarks.library_tests --on gpytorch --ways bodies,functions gpytorch-1.15.2/test -k kernels --json FILE
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import types
from collections import Counter
from typing import Any

LONGEST = 60  # seconds of a test
WAY, LIBRARY, RESULT = (os.environ.get(f"PLIANT_LIBRARY_{what}", "") for what in ("WAY", "NAME", "RESULT"))


# ------------------------------------------------------------------------------------------------------ inside pytest, as a plugin
def compiled(fn: Any) -> Any:
    import pliant

    return pliant.compile(fn, strict=True, background=False, backend=os.environ.get("PLIANT_LIBRARY_BACKEND", "aten"))


def compile_library(name: str) -> int:
    """Every plain function and method of the library's loaded modules is its compiled form from now on. How many."""
    made: dict[Any, Any] = {}

    def instead(fn: Any) -> Any:
        if fn not in made:
            made[fn] = compiled(fn)
        return made[fn]

    def own(fn: Any) -> bool:
        plain = type(fn) is types.FunctionType and not inspect.iscoroutinefunction(fn) and not inspect.isgeneratorfunction(fn)
        return plain and (fn.__module__ or "").split(".")[0] == name

    for module in [m for n, m in list(sys.modules.items()) if n.split(".")[0] == name and isinstance(m, types.ModuleType)]:
        for key, value in list(vars(module).items()):
            if own(value):
                setattr(module, key, instead(value))
            elif isinstance(value, type) and value.__module__.split(".")[0] == name:
                for attribute, method in list(vars(value).items()):
                    if own(method) and not attribute.startswith("__") or attribute in ("__call__", "__init__") and own(method):
                        with contextlib.suppress(AttributeError, TypeError):
                            setattr(value, attribute, instead(method))
    for fn in list(made):  # a default that is such a function is pickled by its name, under which the compiled one stands now
        if fn.__defaults__:
            fn.__defaults__ = tuple(made.get(d, d) if type(d) is types.FunctionType else d for d in fn.__defaults__)
        for parameter, default in (fn.__kwdefaults__ or {}).items():
            fn.__kwdefaults__[parameter] = made.get(default, default) if type(default) is types.FunctionType else default
    return len(made)


def pytest_collection_finish(session: Any) -> None:
    if WAY == "functions":
        if not compile_library(LIBRARY):
            raise RuntimeError(f"no function of {LIBRARY} is loaded")


def too_long(*_: Any) -> None:
    raise TimeoutError(f"a test took more than {LONGEST} s")


def pytest_runtest_teardown(item: Any) -> None:
    signal.alarm(0)


def pytest_runtest_setup(item: Any) -> None:
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)
    signal.signal(signal.SIGALRM, too_long)
    signal.alarm(LONGEST)


def pytest_runtest_call(item: Any) -> None:
    if WAY == "bodies" and hasattr(item, "obj"):
        fn = item.obj
        item.obj = compiled(fn) if type(fn) in (types.FunctionType, types.MethodType) else fn


def pytest_runtest_logreport(report: Any) -> None:
    if RESULT and (report.when == "call" or report.outcome != "passed"):
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(report.longrepr or "")
        with open(RESULT, "a") as f:  # line by line: a run that ends early tells of those before
            f.write(json.dumps([report.nodeid, report.outcome, text.strip().split("\n")[0][:300], report.duration]) + "\n")


# ------------------------------------------------------------------------------------------------------------- the runs, and a table
def run(way: str, library: str, given: list[str], seconds: float) -> dict[str, list[str]]:
    """The outcome of each test: [outcome, the exception's first line]."""
    with tempfile.TemporaryDirectory() as cache:
        result = os.path.join(cache, "outcomes")
        env = dict(os.environ, PLIANT_LIBRARY_WAY=way, PLIANT_LIBRARY_NAME=library, PLIANT_LIBRARY_RESULT=result, PLIANT_CACHE_DIR=cache)
        plugin, others = ("-p", "benchmarks.library_tests"), ("-p", "no:cacheprovider", "--continue-on-collection-errors")
        command = [sys.executable, "-m", "pytest", "-q", *plugin, *others, *given]
        output = "too slow"
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(command, env=env, timeout=seconds, capture_output=True, text=True)
            output = f"exit status {done.returncode}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
        if not os.path.exists(result):
            print(f"{way}: no result, {output}", file=sys.stderr)
            return {}
        with open(result) as f:
            return {name: [outcome, text] for name, outcome, text, _ in map(json.loads, f)}


def alike(a: list[str], b: list[str]) -> bool:
    return a[0] == b[0] and (a[0] != "failed" or a[1].split(":")[0] == b[1].split(":")[0])


def main(argv: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--on", required=True, help="the library, by the name that it is imported by")
    p.add_argument("--ways", default="bodies,functions", help="of bodies, functions")
    p.add_argument("--seconds", type=float, default=1800, help="of one run")
    p.add_argument("--backend", default="aten", help="of pliant: `aten` tries capture and guards, `native` the kernels, too")
    p.add_argument("--json", help="differences, to a file")
    options, given = p.parse_known_args(argv)
    os.environ["PLIANT_LIBRARY_BACKEND"] = options.backend
    eager = run("eager", options.on, given, options.seconds)
    print(f"{options.on}, eager: {dict(Counter(o for o, _ in eager.values()))}", flush=True)
    found: dict[str, dict[str, Any]] = {}
    for way in options.ways.split(","):
        there = run(way, options.on, given, options.seconds)
        other = {k: [v, there.get(k, ["not run", ""])] for k, v in eager.items() if not alike(v, there.get(k, ["not run", ""]))}
        found[way] = other
        print(f"{options.on}, {way}: {dict(Counter(o for o, _ in there.values()))}, other outcomes: {len(other)}", flush=True)
        for name, (a, b) in other.items():
            print(f"  {name}\n    eager:  {' '.join(a)}\n    pliant: {' '.join(b)}", flush=True)
    if options.json:
        with open(options.json, "w") as f:
            json.dump(found, f, indent=1)
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
