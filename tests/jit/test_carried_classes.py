"""Classes that a frame makes before a graph break: what follows the break is compiled a bounded number of times."""

from __future__ import annotations

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
