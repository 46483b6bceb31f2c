"""Classes that a frame makes before a graph break: what follows the break is compiled a bounded number of times."""

from __future__ import annotations

import collections
import dataclasses
import enum
import typing

import pytest
import torch

import pliant
from pliant import events


def class_carried(x: torch.Tensor) -> torch.Tensor:
    class Scaled:
        k = 2

        def of(self, t: torch.Tensor) -> torch.Tensor:
            return t * self.k

    pliant.graph_break()
    return Scaled().of(x) + 1


def instance_carried(x: torch.Tensor) -> torch.Tensor:
    class Held:
        def __init__(self, t: torch.Tensor) -> None:
            self.t = t

        def twice(self) -> torch.Tensor:
            return self.t * 2

    held = Held(x)
    pliant.graph_break()
    return held.twice() + 1


@pytest.mark.parametrize("fn", (class_carried, instance_carried), ids=lambda f: f.__name__)
def test_classes_made_before_a_break(fn) -> None:
    pliant.reset()
    compiled = pliant.compile(fn)
    settled = 0
    before = pliant.stats()
    for i in range(40):
        x = torch.randn(3)
        assert torch.equal(compiled(x), fn(x))
        if i == 20:
            settled = pliant.stats()["captures"]
    after = pliant.stats()
    assert after["captures"] == settled and after["entries"] - before["entries"] <= 14
    assert after["fallbacks"] == before["fallbacks"] and after["calls"] > before["calls"]


def dataclass_carried(x: torch.Tensor) -> object:
    @dataclasses.dataclass
    class D:
        a: object
        b: int = 2

    d = D(x)
    pliant.graph_break()
    e = dataclasses.replace(d, b=4)
    pliant.graph_break()
    return d.a * d.b, e.a * e.b, D(x, 1).b


def enumeration_carried(x: torch.Tensor) -> object:
    E = enum.Enum("E", "A B")
    pliant.graph_break()
    return x * E.A.value, E.B.name, E["A"].value, [m.value for m in E]


def typed_tuple_carried(x: torch.Tensor) -> object:
    class T(typing.NamedTuple):
        a: object
        b: int = 2

    pliant.graph_break()
    t = T(x)
    return tuple(t._replace(b=3)), t.a * t.b, t._asdict()["b"], len(t), [*t]


def carried_round_a_loop(x: torch.Tensor) -> object:
    P = collections.namedtuple("P", "a b", defaults=(1,))
    out = []
    for i in range(3):
        pliant.graph_break()
        p = P(x + i)
        out.append(p.a * p.b)
    return out


def carried_by_a_callee(x: torch.Tensor) -> object:
    P = collections.namedtuple("P", "a b")

    def make(v):
        pliant.graph_break()
        return P(v, 2)

    return make(x).a + make(x + 1).b


def replaced_in_a_loop(x: torch.Tensor) -> object:
    P = collections.namedtuple("P", "a b")
    pliant.graph_break()
    p = P(x, 1) if x.shape[0] > 2 else P(x * 2, 3)
    while p.b < 4:
        p = p._replace(b=p.b + 1)
        pliant.graph_break()
    return p.a * p.b


def two_classes(x: torch.Tensor) -> object:
    P = collections.namedtuple("P", "a b")
    Q = collections.namedtuple("Q", "c d")
    pliant.graph_break()
    p, q = P(x, 1), Q(x + 1, 2)
    r = P(q, p)
    return r.a.c + r.b.a * p.b + q.d


CARRIED = (
    class_carried, instance_carried, dataclass_carried, enumeration_carried, typed_tuple_carried, carried_round_a_loop, carried_by_a_callee,
    replaced_in_a_loop, two_classes,
)  # fmt: skip


@pytest.mark.parametrize("fn", CARRIED, ids=lambda f: f.__name__)
def test_that_each_call_makes_another_class_is_learned_once(fn) -> None:
    """The second call tells that a class is another one; the pieces behind the break, those yet to come, too, need not find out again."""
    pliant.reset()
    compiled = pliant.compile(fn)
    counts = []
    for _ in range(6):
        x = torch.randn(3)
        assert same(compiled(x), fn(x))
        counts.append(pliant.stats()["captures"])
    late = (two_classes, replaced_in_a_loop)  # what is behind the breaks of the second one is left to CPython, and the frame captured again
    assert counts[-1] == counts[2 if fn in late else 1], counts


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    return len(a) == len(b) and all(map(same, a, b)) if isinstance(a, tuple | list) else a == b


KEPT: dict[int, type] = {}


def kept_class() -> type:
    if not KEPT:

        class Kept:
            def of(self, x: torch.Tensor) -> torch.Tensor:
                return x * 3

        KEPT[0] = Kept
    return KEPT[0]


def test_a_class_that_is_kept_is_known() -> None:
    """A function made it, and gives the same one from then on: the graph has what is behind the break."""

    def fn(x: torch.Tensor) -> torch.Tensor:
        held = kept_class()()
        pliant.graph_break()
        return held.of(x) + 1

    KEPT.clear()
    pliant.reset()
    compiled = pliant.compile(fn)
    for _ in range(6):
        x = torch.randn(3)
        assert torch.equal(compiled(x), x * 3 + 1)
    assert pliant.stats()["graph_breaks"] <= 2, pliant.stats()


class Untouchable:
    """A callable that must not be compared."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    __hash__ = object.__hash__

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        pliant.graph_break()
        return x + 1


def test_a_callable_is_not_compared_where_the_graph_breaks() -> None:
    call = pliant.disable(Untouchable().__call__)
    own = Untouchable()
    fn = pliant.compile(lambda x: call(own(x)) * 2)
    assert torch.equal(fn(torch.ones(2)), torch.full((2,), 6.0))


def test_a_break_over_a_changing_value_names_the_value() -> None:
    def pieces(x: torch.Tensor) -> torch.Tensor:
        return torch.stack([p.sum() for p in x.split(4)]).cumsum(0)

    reasons: list[str] = []
    stop = events.subscribe(lambda e: reasons.append(e.fields["reason"]) if e.kind == "graph_break" else None)
    fn = pliant.compile(pieces)
    for n in range(1, 40, 4):
        x = torch.randn(n)
        torch.testing.assert_close(fn(x), pieces(x))
    stop()
    assert any("the value of" in r and "changes on every call" in r for r in reasons), reasons
    assert not any("'source'" in r for r in reasons)
