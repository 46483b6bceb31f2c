"""What is left alive when an exception leaves compiled code: what CPython's own frames would hold, and no more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import pliant
from pliant.bytecode import instructions
from pliant.bytecode.assemble import exception_table, handler_at
from pliant.jit.unwinding import _gaps, forgetting

SEEN: list[str] = []


def items(x: torch.Tensor, name: str) -> Iterator[torch.Tensor]:
    try:
        yield x
        yield x + 1
    finally:
        SEEN.append(name)


def broken(x: Any) -> Any:
    pliant.graph_break()
    return x


@pliant.disable
def bad(x: Any) -> None:
    raise ValueError("bad")


def loop_after_break(x: torch.Tensor) -> None:
    for a in items(x, "loose"):
        x = broken(a)
        raise KeyError(1)


def action_raises(x: torch.Tensor) -> None:
    for a in items(x + 1, "loose"):
        bad(a)


def local_is_kept(x: torch.Tensor) -> None:
    g = items(x + 1, "local")
    for a in g:
        bad(a)


def local_is_kept_after_break(x: torch.Tensor) -> None:
    g = items(x, "local")
    for a in g:
        x = broken(a)
        raise KeyError(2)


def inner(x: torch.Tensor) -> None:
    g = items(x, "inner local")
    for a in items(next(g), "inner loose"):
        broken(a)
        raise KeyError(3)


def callers(x: torch.Tensor) -> None:
    h = items(x, "local")
    next(h)
    for a in items(x, "loose"):
        inner(a + 1)


def while_handling(x: torch.Tensor) -> None:
    for a in items(x, "outer"):
        try:
            raise KeyError(4)
        except KeyError:
            for b in items(a, "inner"):
                bad(b)


def the_iterator_raises(x: torch.Tensor) -> torch.Tensor:
    def failing() -> Iterator[torch.Tensor]:
        g = items(x, "held by the generator")
        for v in g:
            yield broken(v)
            raise KeyError(5)

    k = items(x, "local")
    next(k)
    for a in failing():
        x = x + a
    return x


def nested_loops(x: torch.Tensor) -> torch.Tensor:
    for a in items(x, "loose"):
        for n in x.shape:
            x = x + n if broken(a).sum() > 0 else x
        x = x[(a, 1) > 0]
    return x


def a_generator_is_closed(x: torch.Tensor) -> torch.Tensor:
    for a in items(x, "loose"):
        g = items(broken(a), "closed")
        next(g)
        g.close()
        x = x + sum(broken(b) for b in [a])
        raise KeyError(6)
    return x


def run(fn: Callable) -> tuple[list[str], list[str]]:
    """What has ended while the traceback was alive, and what has ended after it."""
    SEEN.clear()
    with pytest.raises((KeyError, ValueError, TypeError)) as error:
        fn(torch.ones(2, 3))
    early = list(SEEN)
    error.value.__traceback__ = None
    del error
    return early, sorted(SEEN)


PROGRAMS = (
    loop_after_break, action_raises, local_is_kept, local_is_kept_after_break, callers, while_handling, the_iterator_raises,
    nested_loops, a_generator_is_closed,
)  # fmt: skip


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_generators_of_frames_that_raised(fn: Callable) -> None:
    want = run(fn)
    compiled = pliant.compile(fn)
    for _ in range(4):  # captured, judged by CPython, compiled
        assert run(compiled) == want


def test_forgetting_keeps_lines_and_what_a_zone_keeps() -> None:
    def fails(fn: Any, value: Any, state: Any) -> None:
        held = [value]
        fn(1)
        value.second(held)

    def raising(_: Any) -> None:
        raise KeyError

    class Value:
        def second(self, _: Any) -> None:
            raise ValueError

    first = fails.__code__.co_firstlineno
    forgetting(fails, (("", ("value", "state")), ("second", ())), ("state", 2))
    first_zone = {"value", "state"}
    for fn, kind, line, left in ((raising, KeyError, 2, first_zone), (len, TypeError, 2, first_zone), (id, ValueError, 3, set())):
        with pytest.raises(kind) as error:
            fails(fn, Value(), (1, 2, 3))
        tb = error.value.__traceback__
        assert tb is not None and tb.tb_next is not None
        entry = tb.tb_next
        assert entry.tb_lineno == first + line and set(entry.tb_frame.f_locals) == left
        assert entry.tb_frame.f_locals.get("state", (1, 2)) == (1, 2)


def handlers(x: Any, files: Any) -> Any:
    x = x + 1
    try:
        with files as f:
            x = f(x)
            try:
                x = [y for y in x if y]
            except KeyError as e:
                x = e
            finally:
                files(1)
    except ValueError:
        return None
    files(2)
    return x


@pytest.mark.parametrize("fn", [handlers, broken, loop_after_break, items, Iterator.__next__], ids=lambda fn: fn.__name__)
def test_what_no_handler_covers(fn: Any) -> None:
    code = fn.__code__
    table = list(exception_table(code))
    gaps = _gaps(table, len(code.co_code))
    for i in instructions(code):
        assert any(a <= i.offset < b for a, b, _ in gaps) is (handler_at(table, i.offset) is None)
    assert gaps == sorted(gaps) and all(a < b for a, b, _ in gaps)
