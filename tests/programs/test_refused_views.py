"""Views that autograd refuses: of what several views were made at once, or without gradients, or of a class, and was written since."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from tests.helpers import compiled

HEARD: list[int] = []


class Sub(torch.Tensor):
    """A tensor of a class."""


def dead(x: Any, y: Any, k: Any) -> Any:
    y * 2
    return x.shape[0]


def without(x: Any, y: Any, k: Any) -> Any:
    with torch.no_grad():
        return y * 2


def detached_first(x: Any, y: Any, k: Any) -> Any:
    return y.detach() * 2


def asked_about(x: Any, y: Any, k: Any) -> Any:
    return y > 0


def part(x: Any, y: Any, k: Any) -> Any:
    y[0]
    return 3


def live(x: Any, y: Any, k: Any) -> Any:
    return y * 2 + x


def detached_last(x: Any, y: Any, k: Any) -> Any:
    return (y * 2).detach()


def behind_a_write(x: Any, y: Any, k: Any) -> Any:
    with torch.no_grad():
        k.mul_(2)
    return (y * 2).detach()


def unread_behind_a_write(x: Any, y: Any, k: Any) -> Any:
    k.add_(1)
    y.sum()
    return k


def in_front_of_a_write(x: Any, y: Any, k: Any) -> Any:
    z = y * 2
    k.mul_(2)
    return z.detach()


def past_autograd(x: Any, y: Any, k: Any) -> Any:
    k.data.mul_(2)
    return (y * 2).detach()


def caught(x: Any, y: Any, k: Any) -> Any:
    try:
        z = y * 3
    except RuntimeError:
        return "caught"
    return z.detach()


def behind_an_effect(x: Any, y: Any, k: Any) -> Any:
    HEARD.append(1)
    return y.view(-1).shape


def behind_a_break(x: Any, y: Any, k: Any) -> Any:
    k.mul_(3)
    print(end="")
    y + 1
    return k


def on_data(x: Any, y: Any, k: Any) -> Any:
    a = x.detach() * 2
    if k.sum() > 3:
        y * 2
    return a


def many(x: Any, y: Any, k: Any, *others: Any) -> Any:
    return sum([(o * 2).detach() for o in others]) + (y * 2).detach()


PROGRAMS = [
    dead, without, detached_first, asked_about, part, live, detached_last, behind_a_write, unread_behind_a_write, in_front_of_a_write,
    past_autograd, caught, behind_an_effect, behind_a_break, on_data,
]  # fmt: skip
VIEWS: dict[str, Callable[[Any], Any]] = {
    "unbind": lambda base: base.unbind(0),
    "chunk": lambda base: base.chunk(2),
    "indexed": lambda base: (base[0], base[1]),
    "of a class": lambda base: base.as_subclass(Sub).unbind(0),
}
WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "none": lambda base, k: None,
    "base": lambda base, k: base.mul_(2),
    "another view": lambda base, k: k.mul_(2),
}


def made(how: str, write: str, rows: int) -> tuple[Any, Any, Any]:
    base = torch.arange(2.0 * rows).reshape(2, rows).requires_grad_() * 1
    k = base.detach()
    if how == "without gradients":
        with torch.no_grad():
            x, y = base[0], base[1]
    else:
        x, y = VIEWS[how](base)
    WRITES[write](base, k)
    return x, y, k


def told(fn: Callable, args: tuple) -> list:
    """What becomes of a call: the result or the error, and the arguments."""
    HEARD.clear()
    try:
        r = fn(*args)
        out = [type(r).__name__, r.tolist() if isinstance(r, torch.Tensor) else r, getattr(r, "requires_grad", None)]
    except RuntimeError as e:
        out = [str(e)]
    for t in args:
        out += [t.detach().tolist(), t._version]
        try:
            out.append(t.grad_fn is None)
        except RuntimeError as e:
            out.append(str(e))
    return [*out, len(HEARD)]


@pytest.mark.parametrize("how", [*VIEWS, "without gradients"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_refused_where_an_operation_records_them(program: Callable, how: str) -> None:
    compiled = pliant.compile(program)
    for i, write in enumerate(("none", "base", "another view", "none", "base", "another view")):
        rows = 3 + i % 3
        assert told(compiled, made(how, write, rows)) == told(program, made(how, write, rows)), (write, i)


def test_refused_among_many() -> None:
    compiled = pliant.compile(many)
    for write in ("none", "base", "none", "another view"):
        given = [tuple([*made("unbind", write, 3), *[torch.ones(3).requires_grad_() * 1 for _ in range(12)]]) for _ in range(2)]
        assert told(compiled, given[0]) == told(many, given[1]), write


def test_what_is_asked_of_inputs_that_the_graph_does_not_read():
    """An operation that nobody reads asks autograd all the same, of an input that is none of the graph's. Beside it, many inputs are handed
    to the graph as one."""

    def fn(items, like, item):
        torch.relu(item[0])
        total = items[0] * 2
        for t in items[1:]:
            total = total + t
        return total, total.reshape(-1).reshape(like[0].shape)

    compiled = pliant.compile(fn, background=False)
    for n, m, grad in ((4, 2, False), (6, 3, False), (8, 3, True), (5, 7, True), (4, 2, True)):
        items = [torch.arange(float(n * m)).reshape(n, m) + i for i in range(10)]
        given = items, [torch.ones(m, n)], [torch.ones(n + 1, m, requires_grad=grad)]
        for got, want in zip(compiled(*given), fn(*given), strict=True):
            torch.testing.assert_close(got, want)


LARGEST = 2**63 - 1
HUGE = {
    "start": lambda x: x[LARGEST:],
    "columns": lambda x: x[:, LARGEST:] * 2,
    "end": lambda x: x[:LARGEST] + 1,
    "operator": lambda x: torch.ops.aten.slice(x, 0, LARGEST),
    "step": lambda x: x[..., ::LARGEST],
    "large step": lambda x: x[:: LARGEST - 1],
    "step from one": lambda x: x[1::LARGEST] + 1,
}


@pytest.mark.parametrize("name", HUGE)
def test_bounds_as_large_as_numbers_are(name):
    """The largest number stands for no end, not for no beginning; what ATen's arithmetic makes of a step like that is its own affair."""
    f = compiled(HUGE[name])
    for rows in (2, 1, 4):
        got = []
        for g in (HUGE[name], f):
            try:
                got.append(g(torch.ones(rows, 3)).tolist())
            except RuntimeError:
                got.append("refused")
        assert got[0] == got[1]


def test_pieces_of_a_size_below_zero_that_nobody_reads():
    def shapes(x, n):
        return [p.shape for p in x.split(n)]

    f = compiled(shapes)
    for n in (2, -1, 1, -1, -3):
        x = torch.ones(4, 2)
        if n > 0:
            assert f(x, n) == shapes(x, n)
        else:
            with pytest.raises(RuntimeError, match="non-negative"):
                f(x, n)


def test_a_view_of_a_leaf_of_a_class_that_was_written():
    """It is a view of memory that no gradient leads to: PyTorch does not say whether it has a history, and raises where it is used."""

    def made(written):
        pieces = torch.ones(4, 2).as_subclass(Sub).requires_grad_().chunk(2)
        if written:
            with torch.no_grad():
                pieces[0].add_(1)
        return pieces

    def fn(a, b):
        return a * 2 + b

    compiled = pliant.compile(fn)
    for written in (True, False, True):
        want, got = (str(said(f, made(written))) for f in (fn, compiled))
        assert want == got and ("RuntimeError" in got) is written


def said(fn, args):
    try:
        return fn(*args)
    except RuntimeError as e:
        return type(e), str(e)


WHOLE: dict[str, Callable[[Any, Any, int], Any]] = {
    "everything": lambda b, v, n: operator.setitem(b, (..., slice(None)), v),
    "so many rows": lambda b, v, n: operator.setitem(b, slice(n), v),
    "from its own length": lambda b, v, n: operator.setitem(b, slice(0, len(b)), v),
    "more than there are": lambda b, v, n: operator.setitem(b, slice(100), v),
}


@pytest.mark.parametrize("how", WHOLE)
def test_a_slice_of_everything_is_the_tensor_itself(how):
    """PyTorch refuses to write to a view of what got gradients since it was made, but not to a view of that view."""

    def fn(x, n):
        m = torch.zeros(x.shape[0], x.shape[0])
        a, b = m.diagonal(), m.diagonal(1)
        a[...] = x * 2
        WHOLE[how](b, x[0], n)
        return m.detach()

    compiled = pliant.compile(fn)
    for rows, n in ((3, 2), (4, 3), (5, 2), (4, 9), (6, 1)):
        x = torch.ones(rows, requires_grad=True)
        assert str(said(compiled, (x, n))) == str(said(fn, (x, n))), (rows, n)


CHAINS: dict[str, Callable[[Any], Any]] = {
    "row": lambda m: m[1],
    "part of a row": lambda m: m[1][1:],
    "flat": lambda m: m.view(-1)[1:],
    "turned": lambda m: m.t()[0],
    "three": lambda m: m.unsqueeze(0)[0][:2],
}


@pytest.mark.parametrize("how", CHAINS)
def test_results_that_are_views_which_nobody_has_asked_since(how):
    def fn(x):
        m = torch.zeros(3, 3)
        b = CHAINS[how](m)
        m.mul_(x.sum())
        return b

    for f in (fn, compiled(fn)):
        with pytest.raises(RuntimeError, match="leaf Variable"):
            f(torch.ones(3, requires_grad=True)).mul_(2)
        b = f(torch.ones(3, requires_grad=True))
        assert type(b.grad_fn).__name__ == "AsStridedBackward0"
        b.mul_(2)
