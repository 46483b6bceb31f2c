"""Two arguments that are two objects while a program is captured, and one in a later call: what is done to one is seen on the other.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import collections
import itertools
import threading
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from tests.helpers import compiled

grad = torch.autograd.grad
T = torch.Tensor


# -- gradients -----------------------------------------------------------------------------------------------------------------
def of_first(x: T, y: T) -> Any:
    return grad((x * y).sum(), x)[0]


def of_second(x: T, y: T) -> Any:
    return grad((x * y).sum(), y)[0]


def of_both(x: T, y: T) -> Any:
    return grad((x * y).sum(), (x, y))


def unused(x: T, y: T) -> Any:
    return grad(y.sum(), x, allow_unused=True)[0]


def of_gradients(x: T, y: T) -> Any:
    first = grad((x * y * y).sum(), x, create_graph=True)[0]
    return first, grad(first.sum(), y, allow_unused=True)[0]


def backward(x: T, y: T) -> Any:
    (x * y).sum().backward()
    return x * 1


def read_behind(x: T, y: T) -> Any:
    (x * 2).sum().backward()
    return y.grad


def cleared_behind(x: T, y: T) -> Any:
    (x * 2).sum().backward()
    y.grad = None
    return x.grad


def stepped(x: T, y: T) -> Any:
    optimizer = torch.optim.SGD([x], lr=0.5)
    (x * y).sum().backward()
    optimizer.step()
    return y + 0


def hooked(x: T, y: T) -> Any:
    handle = x.register_hook(lambda g: g * 3)
    (y * 2).sum().backward()
    handle.remove()
    return x.grad


# -- attributes of tensors -----------------------------------------------------------------------------------------------------
def named(x: T, y: T) -> Any:
    x.note = 1  # type: ignore[attr-defined]
    return getattr(y, "note", 0)


def told(x: T, y: T) -> Any:
    x.requires_grad_()
    return (y * 2).requires_grad


def given_gradient(x: T, y: T) -> Any:
    x.grad = torch.ones_like(x)
    return y.grad is None


TENSORS = [(f, True) for f in (of_first, of_second, of_both, unused, of_gradients, backward, read_behind, cleared_behind, stepped, hooked)]
TENSORS += [(f, False) for f in (named, told, given_gradient)]


def leaf(needed: bool) -> T:
    return torch.arange(6.0).reshape(3, 2).requires_grad_(needed)


@pytest.mark.parametrize("program, needed", TENSORS, ids=[f.__name__ for f, _ in TENSORS])
def test_tensors(program: Callable, needed: bool) -> None:
    fn = compiled(program)
    for _ in range(2):
        apart = [[leaf(needed), leaf(needed)] for _ in range(2)]
        same(program(*apart[0]), fn(*apart[1]))
        one, other = leaf(needed), leaf(needed)
        same(program(one, one), fn(other, other))
        same(one.grad, other.grad)


def same(want: Any, got: Any) -> None:
    if isinstance(want, tuple):
        for a, b in zip(want, got, strict=True):
            same(a, b)
    elif isinstance(want, T):
        assert got is not None and torch.equal(want, got) and want.requires_grad == got.requires_grad
    else:
        assert want == got


def test_two_places_of_a_list() -> None:
    """The same in containers, and of a module's weights."""

    def program(items: list, layer: torch.nn.Linear) -> Any:
        loss = (items[0] * items[1]).sum() + layer(items[0]).sum()
        return grad(loss, [items[0], layer.weight])

    fn = compiled(program)
    layer = torch.nn.Linear(2, 2)
    fn([leaf(True), leaf(True)], layer)
    x = leaf(True)
    same(program([x, x], layer), fn([x, x], layer))


# -- other objects -------------------------------------------------------------------------------------------------------------
class Slots:
    __slots__ = ("v",)

    def __init__(self) -> None:
        self.v = 0


class Below(Slots):
    """With a dict, too."""


def set_attribute(a: Any, b: Any) -> Any:
    a.v = 3
    return getattr(b, "v", 0)


def set_item(a: Any, b: Any) -> Any:
    a["k"] = 3
    return b.get("k")


def numbered(a: Any, b: Any) -> Any:
    a[7] = 3
    return 7 in b


def added(a: set, b: set) -> Any:
    a.add(3)
    return 3 in b


def counted(a: Any, b: Any) -> Any:
    return next(a), next(b)


OBJECTS = [(set_attribute, kind) for kind in (Slots, Below, types.SimpleNamespace, threading.local, type("Plain", (), {}))]
OBJECTS += [(f, kind) for f in (set_item, numbered) for kind in (dict, collections.OrderedDict, collections.Counter)]
OBJECTS += [(set_item, lambda: collections.defaultdict(int)), (added, set), (counted, itertools.count)]


@pytest.mark.parametrize("program, kind", OBJECTS)
def test_objects(program: Callable, kind: Callable[[], Any]) -> None:
    def with_graph(a: Any, b: Any, x: T) -> Any:
        return program(a, b), x + 1

    fn = compiled(with_graph)
    x = torch.ones(2)
    for _ in range(2):
        assert fn(kind(), kind(), x)[0] == program(kind(), kind())
        one, other = kind(), kind()
        assert fn(one, one, x)[0] == program(other, other)


def test_no_guard_on_what_is_only_read() -> None:
    """Nothing is changed: one object for two needs no new entry beyond the first."""

    def program(a: Any, b: Any, x: T, y: T) -> Any:
        return x * a.v + y * b.v

    fn = compiled(program)
    fn(Slots(), Slots(), torch.ones(3), torch.ones(3))
    before = pliant.stats()["captures"]
    a, x = Slots(), torch.ones(3)
    fn(a, a, x, x)
    assert pliant.stats()["captures"] == before
