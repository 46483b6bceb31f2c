"""Exceptions that are no `Exception`: `sys.exit()`, an interrupt that the program raises, its own. What was done before they leave stays.

An interrupt from outside is another matter: it ends the capture, and is nobody's to handle.
"""

from __future__ import annotations

import contextlib
import signal
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.helpers import check_world, compiled, own_backend, pliant
from tests.programs.registry import t


class Own(BaseException):
    pass


class Stop(KeyboardInterrupt):
    pass


LOG: list[Any] = []


def thrown(kind: type) -> None:
    raise kind("thrown")


@pliant.disable
def thrown_outside(kind: type) -> None:
    LOG.append("outside")
    raise kind("outside")


class Manager:
    def __init__(self, swallows: bool) -> None:
        self.swallows = swallows

    def __enter__(self) -> None:
        LOG.append("enter")

    def __exit__(self, kind: Any, *rest: Any) -> bool:
        LOG.append(kind and kind.__name__)
        return self.swallows


def items(x):
    try:
        yield x
        yield x + 1
    finally:
        LOG.append("closed")


def plain(x, kind):
    LOG.append(x.shape[0])
    x.add_(1)
    raise kind("plain")


def printed(x, kind):
    print("before", x.sum())
    x.add_(torch.rand(()))
    raise kind("printed")


def on_data(x, kind):
    LOG.append(1)
    if x.sum() > 0:
        LOG.append(2)
        x.mul_(2)
        raise kind("on data")
    LOG.append(3)
    return x + 1


def in_callee(x, kind):
    x.add_(1)
    thrown(kind)


def in_callee_outside(x, kind):
    x.add_(1)
    thrown_outside(kind)


def behind_a_break(x, kind):
    pliant.graph_break()
    x.add_(1)
    raise kind("behind")


def handled(x, kind):
    try:
        x.add_(1)
        thrown(kind)
    except kind as e:
        LOG.append(str(e))
    try:
        thrown_outside(kind)
    except kind as e:
        LOG.append(str(e))
    return x + 1


def not_handled(x, kind):
    try:
        thrown(kind)
    except ValueError:
        LOG.append("never")
    finally:
        LOG.append("finally")
        x.add_(1)


def again(x, kind):
    try:
        thrown(kind)
    except:  # noqa: E722
        x.add_(2)
        raise


def another(x, kind):
    try:
        thrown(kind)
    except BaseException as e:
        x.add_(1)
        raise ValueError("another") from e


def managed(x, kind):
    with Manager(True):
        x.add_(1)
        thrown(kind)
    with contextlib.suppress(kind):
        thrown(kind)
    with Manager(False), torch.no_grad():
        x.mul_(2)
        thrown(kind)


def generated(x, kind):
    for y in items(x):
        x.add_(1)
        raise kind(str(y.shape[0]))


def into_a_generator(x, kind):
    g = items(x)
    y = next(g)
    try:
        g.throw(kind("into"))
    except kind:
        LOG.append("back")
    return y


def called_by_c(x, kind):
    x.add_(1)
    return list(map(lambda i: thrown(kind) if i else LOG.append(i), range(3)))


def transformed(x, kind):
    x.add_(1)
    return torch.func.vmap(lambda a: thrown(kind))(x)


def hooked(x, kind):
    m = torch.nn.ReLU()
    m.register_forward_hook(lambda *a: thrown(kind))
    x.add_(1)
    return m(x)


def exits(x, kind):
    LOG.append("exits")
    x.add_(1)
    sys.exit(3)


PROGRAMS = [plain, printed, on_data, in_callee, in_callee_outside, behind_a_break, handled, not_handled, again, another, managed, generated]
PROGRAMS += [into_a_generator, called_by_c, transformed, hooked, exits]


@pytest.mark.parametrize("kind", [SystemExit, GeneratorExit, Own, Stop, KeyboardInterrupt])
@pytest.mark.parametrize("run", PROGRAMS)
def test_what_was_done_before_stays(run, kind):
    def factory() -> tuple[Callable, Any]:
        def f(x):
            LOG.clear()
            return run(x, kind)

        return f, ()

    told = []

    def before(i: int, state: Any) -> None:
        told.append(list(LOG))

    check_world(factory, (t(4) + 3,), (t(4) - 9,), (t(6),), before=before, must_compile=False)
    told.append(list(LOG))
    assert all(told[i] == told[i + 1] for i in range(2, len(told) - 1, 2)), told


class TimeLimit(Exception):
    pass


@own_backend
@pytest.mark.parametrize("kind", [KeyboardInterrupt, TimeLimit, Own])
def test_an_interrupt_from_outside_ends_the_capture(kind):
    """It comes while the program is interpreted, inside of a `try` of the program's: no handler is captured for it."""

    def strike(*_):
        raise kind

    def f(x):
        try:
            for _ in range(1500):
                x = x + 3
        except (KeyboardInterrupt, TimeLimit, Own):
            return "handled"
        return x

    before = signal.signal(signal.SIGALRM, strike)
    try:
        c = compiled(f, backend="aten")
        signal.setitimer(signal.ITIMER_REAL, 0.03)
        with pytest.raises(kind):
            c(torch.ones(2))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert torch.equal(c(torch.ones(2)), torch.full((2,), 4501.0))


def graph_alone(x):
    for _ in range(10):
        x = (x @ x).tanh()
    return x


def with_breaks(x):
    for _ in range(4):
        x = (x @ x).tanh()
        pliant.graph_break()
    return x


def looping(x):
    n = 0
    while x.abs().max() < 99 and n < 10:
        x = (x @ x).tanh()
        n += 1
    return x


@own_backend
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("run", [graph_alone, with_breaks, looping])
def test_an_interrupt_while_a_graph_runs(run, grad):
    """A graph that raises is run anew by CPython, which tells what eager raises. Not so here, where nothing would raise."""

    def strike(*_):
        raise TimeLimit

    c = compiled(run)
    x = torch.full((100, 100), 0.01, requires_grad=grad)
    for _ in range(4):
        c(x)
    start = pliant.stats()["fallbacks"]
    before = signal.signal(signal.SIGALRM, strike)
    try:
        for k in range(8):
            signal.setitimer(signal.ITIMER_REAL, 0.002 + k * 0.001)
            with pytest.raises(TimeLimit):
                while True:
                    y = c(x)
                    if grad:
                        y.sum().backward()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert pliant.stats()["fallbacks"] == start
