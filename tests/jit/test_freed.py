"""What is compiled holds no longer to a program's modules, tensors and functions than the program does."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.helpers import compiled

X = torch.randn(5, 4)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.l, self.bn = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: Any) -> Any:
        return self.bn(self.l(x)).relu() * x.shape[0]


class Breaking(Net):
    def forward(self, x: Any) -> Any:
        y = self.l(x)
        pliant.graph_break()
        return self.bn(y) * 2


class Raising(Net):
    def forward(self, x: Any) -> Any:
        if x.shape[0] == 3:
            raise ValueError(self)
        return self.l(x)


class Holder:
    def __init__(self) -> None:
        self.w = torch.randn(4, 4)

    def method(self, x: Any) -> Any:
        return x @ self.w

    def __call__(self, x: Any) -> Any:
        return x @ self.w + 1


def call(net: Any, x: Any) -> Any:
    return net(x) * 2


def call_and_break(net: Any, x: Any) -> Any:
    y = net(x)
    pliant.graph_break()
    return y * 2


def module(kind: type = Net, **options: Any) -> list:
    net = kind()
    fn = pliant.compile(net, strict=True, **options)
    fn(X), fn(X[:4])
    return [net, net.l.weight, fn]


def the_only_reference() -> list:
    made: list = []

    class Told(Net):
        def __init__(self) -> None:
            super().__init__()
            made.append(weakref.ref(self))

    kept.append(compiled(Told())(X).detach())
    return made


def result_with_a_graph() -> list:
    net = Net()
    kept.append(compiled(net)(X))  # its gradients lead to the weights, as in eager, and to nothing else
    return [net, net.l]


def trained() -> list:
    net = Net()
    compiled(net)(X).sum().backward()
    return [net, net.l.weight]


def after_errors() -> list:
    net = Raising()
    fn = compiled(net)
    fn(X)
    for bad in (X[:3], torch.randn(2, 9)):
        with pytest.raises((ValueError, RuntimeError)):
            fn(bad)
    return [net, net.l.weight]


def closure() -> list:
    net, w = Net(), torch.ones(4, 4)

    def fn(x: Any) -> Any:
        y = net(x)
        pliant.graph_break()
        return y @ w

    compiled(fn)(X)
    return [net, w, fn]


def bound_method() -> list:
    o = Holder()
    compiled(o.method)(X)
    return [o, o.w]


def callable_object() -> list:
    o = Holder()
    compiled(o)(X)
    return [o, o.w]


def forward_in_place() -> list:
    net = Net()
    net.forward = compiled(net.forward)
    net(X)
    return [net, net.l.weight]


def argument(fn: Callable) -> list:
    net = Net()
    fn(net, X), fn(net, X[:3])
    return [net, net.l.weight]


def inputs(kind: type) -> list:
    fn, x = compiled(kind()), torch.randn(6, 4)
    kept.append(fn)
    fn(x), fn(x)
    return [x]


def replaced_weight() -> list:
    net = Net()
    fn = compiled(net)
    kept.append(fn)
    fn(X)
    old = net.l.weight
    net.l.weight = nn.Parameter(torch.ones(4, 4))
    fn(X)
    return [old]


def train(net: Any, opt: Any, x: Any) -> Any:
    opt.zero_grad()
    loss = net(x).sum()
    loss.backward()
    opt.step()
    return loss


def keys_of_a_state(in_closure: bool) -> list:
    """An optimizer finds its state by the parameters."""
    net = Net()
    opt = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    fn = compiled(lambda x: train(net, opt, x)) if in_closure else lambda x: KEPT_TRAIN(net, opt, x)
    for _ in range(3):
        fn(X)
    return [net, opt, net.l.weight, net.bn.bias, opt.state[net.l.weight]["momentum_buffer"]]


def key(key: Any, there: bool) -> list:
    d = {key: 2.0} if there else {}
    fn = compiled(lambda x: x * d.get(key, 3.0) + (key in d))
    for _ in range(2):
        assert torch.equal(fn(X), X * (2 if there else 3) + there)
    return [key]


def after_reset() -> list:
    found = argument(KEPT)
    pliant.reset()
    return found


kept: list = []
KEPT, KEPT_BREAKING, KEPT_TRAIN = compiled(call), compiled(call_and_break), compiled(train)

CASES: dict[str, Callable[[], list]] = {
    "module": module,
    "module of aten calls": lambda: module(backend="aten"),
    "module of a callable backend": lambda: module(backend=lambda graph, inputs: graph.forward),
    "module with breaks": lambda: module(Breaking),
    "only reference": the_only_reference,
    "result with a graph": result_with_a_graph,
    "training": trained,
    "errors": after_errors,
    "closure": closure,
    "bound method": bound_method,
    "callable object": callable_object,
    "forward in place": forward_in_place,
    "argument": lambda: argument(KEPT),
    "argument, with breaks": lambda: argument(KEPT_BREAKING),
    "inputs": lambda: inputs(Net),
    "inputs, with breaks": lambda: inputs(Breaking),
    "replaced weight": replaced_weight,
    "keys of a state": lambda: keys_of_a_state(False),
    "keys of a state, in a closure": lambda: keys_of_a_state(True),
    "a tensor as a key": lambda: key(torch.ones(3), True),
    "a tensor that is no key": lambda: key(torch.ones(3), False),
    "an object as a key": lambda: key(Holder(), True),
    "an object that is no key": lambda: key(Holder(), False),
    "reset": after_reset,
}


@pytest.mark.usefixtures("young_heap")
@pytest.mark.parametrize("name", CASES)
def test_is_freed(name: str) -> None:
    found = [o if isinstance(o, weakref.ref) else weakref.ref(o) for o in CASES[name]()]
    gc.collect()
    alive = [type(r()).__name__ for r in found if r() is not None]
    kept.clear()
    assert found and not alive
