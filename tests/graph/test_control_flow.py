"""Branches and loops on data as operations of a trace: `torch.cond` and `torch.while_loop`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pliant


def cond(pred: Any, yes: Any, no: Any, operands: Any = ()) -> Any:
    return yes(*operands) if pred else no(*operands)


def while_loop(test: Any, body: Any, carried: Any) -> Any:
    while test(*carried):
        carried = body(*carried)
    return carried


def one_graph(fn: Any, *calls: tuple) -> None:
    """`fn(cond, while_loop, *args)` compiled into one graph gives what it gives with the plain functions."""
    compiled = pliant.compile(lambda *args: fn(torch.cond, torch.while_loop, *args), fullgraph=True)
    with torch.no_grad():
        for args in calls:
            torch.testing.assert_close(compiled(*args), fn(cond, while_loop, *args))
    stats = pliant.stats()
    assert stats["captures"] == 1 and stats["graph_breaks"] == 0


def two_sides(cond: Any, _: Any, x: Any) -> Any:
    return cond(x.sum() > 0, lambda a: a.cos() * 2, lambda a: a.sin() + 1, (x,))


def closures(cond: Any, _: Any, x: Any, w: Any) -> Any:
    n = x.shape[0]
    y = x * 2
    return cond(x.mean() > 0, lambda: (y @ w, {"n": y + n}), lambda: (w.sum(0) + y.sum(), {"n": x - n}))[0]


def nested(cond: Any, _: Any, x: Any) -> Any:
    def yes(a: Any) -> Any:
        return cond(a.max() > 1, lambda b: b / 2, lambda b: b * 3, (a,))

    return cond(x.sum() > 0, yes, lambda a: a - 1, (x,)) + 1


def other_sizes(cond: Any, _: Any, x: Any) -> Any:
    y = cond(x.sum() > 0, lambda a: torch.cat([a, a]), lambda a: a[:1] + 0, (x,))
    return y * 2, y.shape[0]


def many(cond: Any, _: Any, x: Any) -> Any:
    return cond(x.sum() > 0, lambda a: (a + 1, [a * 2]), lambda a: (a - 1, [a * 3]), (x,))


def with_rows(cond: Any, _: Any, x: Any) -> Any:
    out = []
    for i in range(3):
        out.append(cond(x[i] > 0, lambda a: a.exp(), lambda a: a * 0, (x[i],)))
    return torch.stack(out)


def counting(_: Any, while_loop: Any, n: Any, x: Any) -> Any:
    return while_loop(lambda i, a: i < n, lambda i, a: (i + 1, a * 1.5 + i), (torch.zeros((), dtype=torch.int64), x))


def until(_: Any, while_loop: Any, x: Any, w: Any) -> Any:
    (y,) = while_loop(lambda a: a.abs().sum() > 0.5, lambda a: (torch.tanh(a @ w) * 0.5,), (x,))
    return y + 1


def loop_in_branch(cond: Any, while_loop: Any, x: Any) -> Any:
    def yes(a: Any) -> Any:
        return while_loop(lambda b: b.sum() > 1, lambda b: (b / 2,), (a,))[0]

    return cond(x.sum() > 2, yes, lambda a: a + 5, (x,))


def branch_in_loop(cond: Any, while_loop: Any, x: Any) -> Any:
    def body(i: Any, a: Any) -> Any:
        return i + 1, cond(a.sum() > 3, lambda b: b / 3, lambda b: b + 1, (a,))

    return while_loop(lambda i, a: i < 6, body, (torch.zeros((), dtype=torch.int64), x))


def numbers(*shape: int) -> Any:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).view(shape)


CALLS: dict[Any, list[tuple]] = {
    two_sides: [(numbers(3),), (-numbers(3),), (numbers(7),), (-numbers(5),)],
    closures: [(numbers(3), numbers(3, 3)), (-numbers(3), numbers(3, 3)), (numbers(4), numbers(4, 4))],
    nested: [(numbers(3),), (numbers(2) / 9,), (-numbers(4),)],
    other_sizes: [(numbers(3),), (-numbers(4),), (numbers(5),)],
    many: [(numbers(3),), (-numbers(4),)],
    with_rows: [(torch.tensor([1.0, -1.0, 2.0]),), (torch.tensor([-1.0, 3.0, -2.0]),)],
    counting: [(torch.tensor(4), numbers(3)), (torch.tensor(0), numbers(5)), (torch.tensor(9), numbers(2))],
    until: [(numbers(3), torch.eye(3)), (numbers(4), torch.eye(4) * 0.5), (numbers(2) * 0, torch.eye(2))],
    loop_in_branch: [(numbers(3),), (-numbers(4),), (numbers(9),)],
    branch_in_loop: [(numbers(3),), (-numbers(4),), (numbers(9),)],
}


@pytest.mark.parametrize("fn", CALLS, ids=lambda fn: fn.__name__)
def test_one_graph(fn: Any) -> None:
    one_graph(fn, *CALLS[fn])


def test_what_pytorch_refuses_is_left_to_pytorch() -> None:
    def aliasing(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: a.view(-1), lambda a: a + 1, (x,))

    def other_structures(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda a: (a + 1,), lambda a: [a + 1, a + 2], (x,))

    for fn in (aliasing, other_structures):
        with pytest.raises(pliant.errors.GraphBreakError, match="torch.cond"):
            pliant.compile(fn, fullgraph=True)(torch.ones(3))


def test_gradients_of_a_loop_break_the_graph_and_say_so() -> None:
    def fn(x: Any) -> Any:
        return torch.while_loop(lambda a: a.sum() < 9, lambda a: (a * 2,), (x,))

    with pytest.raises(pliant.errors.GraphBreakError, match="gradients flow"):
        pliant.compile(fn, fullgraph=True)(torch.ones(3, requires_grad=True))


def test_text_of_a_flow() -> None:
    seen: list[str] = []
    stop = pliant.events.subscribe(lambda e: seen.append(str(e.fields["graph"])), ("graph",))
    try:
        one_graph(two_sides, (numbers(3),))
    finally:
        stop()
    (text,) = seen
    assert "= branch(; %2, %0, s0)" in text and "aten.cos.default" in text and "else" in text and text.count("leave (") == 2
