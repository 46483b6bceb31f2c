"""Programs and the worlds they run in: what a function reads beyond its arguments changes between calls, and changes back.

A case is a factory. It makes a program and settings, callables that put the world into one of its states; the first is how the world was.
Each side, eager and compiled, gets a factory's worth of its own, so that caches and classes are its own too. After each setting the
program is called on both sides, and what it answers or raises is compared.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch

from tests.helpers import IDENTITY, Call, Comparer, Mismatch, Outcome, compare_errors, compiled, perform, pliant

CASES: dict[str, tuple[Callable, int | None, bool]] = {}


def world(fn: Callable | None = None, *, breaks: int | None = None, back: bool = False) -> Any:
    """Register a factory `() -> (program, setting, setting, ...)`; `breaks`: how often the graph may break over all calls.

    `back`: the world is put back after each call, before anything is compared, since the comparison would be another one there.
    """
    if fn is None:
        return functools.partial(world, breaks=breaks, back=back)
    name = f"{fn.__module__}.{fn.__qualname__}"
    assert name not in CASES
    CASES[name] = (fn, breaks, back)
    return fn


def of(module: str) -> list[str]:
    """The names of a module's cases."""
    return [name for name in CASES if name.startswith(module + ".")]


def same() -> None:
    """A setting that leaves the world as it is."""


def values(put: Callable[[Any], Any], *options: Any) -> tuple[Callable[[], Any], ...]:
    """Settings that call `put` with each of these."""
    return tuple([functools.partial(put, v) for v in options])


def attribute(obj: Any, name: str, *options: Any) -> tuple[Callable[[], Any], ...]:
    """Settings of an attribute: as it is now, then these."""
    own = vars(obj) if isinstance(obj, type) or hasattr(obj, "__dict__") and not isinstance(getattr(type(obj), name, None), DATA) else {}
    had = own.get(name, MISSING) if isinstance(obj, type) or name in own else MISSING if own else getattr(obj, name, MISSING)

    def put(v: Any) -> None:
        if v is not MISSING:
            setattr(obj, name, v)
        elif name in vars(obj):
            delattr(obj, name)

    return values(put, had, *options)


def item(d: Any, key: Any, *options: Any) -> tuple[Callable[[], Any], ...]:
    """Settings of an item: as it is now, then these."""

    def put(v: Any) -> None:
        d.pop(key, None) if v is MISSING else d.__setitem__(key, v)

    return values(put, d.get(key, MISSING), *options)


MISSING = object()
DATA = (types.GetSetDescriptorType, types.MemberDescriptorType, property)


def steps(n: int) -> Iterator[int]:
    """Which of `n` settings is on at each call: each change and back, and each state twice in a row."""
    yield from (0, 0)
    for k in range(1, n):
        yield from (k, k, 0, k)
    if n > 2:
        yield from range(n - 1, -1, -1)
    yield 0


def performed(fn: Callable, x: torch.Tensor, put_back: Callable) -> Outcome:
    """`fn(x)` and nothing around it that what was replaced may change."""
    value, error = None, None
    try:
        value = fn(x)
    except Exception as e:
        error = e
    finally:
        put_back()
    return Outcome(value, error, "", {}, [])


def check_apart(name: str) -> None:
    """`check` in a process of its own, for a case that leaves something in this one that nobody can take back."""
    module = name.rpartition(".")[0]
    code = f"from tests import conftest\nimport {module}\n{module}.worlds.check({name!r})"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if run.returncode:
        raise Mismatch(run.stderr)


def check(name: str) -> None:
    """Run a case on both sides. Raises Mismatch where they differ."""
    with torch.backends.__allow_nonbracketed_mutation():  # PyTorch's own test tables forbid it to the whole process, once imported
        compare_in_every_state(name)


def compare_in_every_state(name: str) -> None:
    pliant.reset()
    factory, breaks, back = CASES[name]
    torch.manual_seed(0)
    eager, *settings = factory()
    torch.manual_seed(0)
    program, *settings_there = factory()
    target = compiled(program)
    compare = Comparer()
    try:
        for i, k in enumerate(steps(len(settings))):
            where = f"{name}, call {i} in state {k}"
            outcomes = []
            for fn, there in ((eager, settings), (target, settings_there)):
                x = torch.linspace(-1, 1, 3 + i % 3, dtype=torch.float32, device="cpu")
                there[k]()
                outcomes.append(perform(fn, Call((x,), {}), None, seed=i) if not back else performed(fn, x, there[0]))
            want, got = outcomes
            with torch.device("cpu"):  # whatever the default device is by now
                compare_errors(want.error, got.error, None, compare, where)
                compare(want.value, got.value, where)
            if want.printed != got.printed:
                raise Mismatch(f"{where}: printed {want.printed!r} in eager, {got.printed!r} compiled")
            for what, v in () if back else want.state.items():
                if v != got.state[what]:
                    raise Mismatch(f"{where}: {what} differs afterwards")
    finally:
        settings[0]()
        settings_there[0]()
    if not IDENTITY:
        stats = pliant.stats()
        assert not stats["fallbacks"], name
        if breaks is not None:
            assert stats["graph_breaks"] <= breaks, f"{name}: {stats['graph_breaks']} graph breaks"
