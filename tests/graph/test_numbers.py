"""Numbers read from tensors: the same tensor gives the same number, and a comparison of it is a relation of that number."""

from __future__ import annotations

import inspect
import types
from typing import Any

import pytest
import torch

import pliant


def sizes_of_one_number(x: Any, n: Any) -> Any:
    m = n.max()
    y = x.new_zeros(m, 3) + x.new_ones(m, 1)
    assert list(y.size()) == [m, 3]
    return y


def written_between(x: Any, n: Any) -> Any:
    m = n.sum()
    a = x.new_zeros(m.item())
    same = m == 4
    m += 1
    b = x.new_zeros(m.item())
    return a, b, torch.full((1,), 1.0) * same.item(), torch.full((1,), 1.0) * (m == 5).item()


def written_through_a_view(x: Any, n: Any) -> Any:
    m = n.sum()
    a = x.new_zeros(m.item())
    m.view(1)[0] = 2
    return a, x.new_zeros(m.item())


def compared_with_each_other(x: Any, n: Any) -> Any:
    a, b = n.max(), n.min()
    y = x.new_zeros(a) if a == a else x
    return y, x.new_zeros(b), (a >= b).item() + 0 * x.new_zeros(a).sum()


PROGRAMS = [sizes_of_one_number, written_between, written_through_a_view, compared_with_each_other]


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("how", ["compile", "export"])
def test_numbers(f: Any, how: str) -> None:
    calls = [(torch.rand(4), torch.tensor(n)) for n in ([1, 3], [2, 2], [4, 1, 2], [5])]
    g = pliant.compile(f) if how == "compile" else pliant.export(f, calls[0])
    for x, n in calls:
        torch.testing.assert_close(g(x, n.clone()), f(x, n.clone()))


def test_repeated_blocks_read_their_own_number() -> None:
    """A block that finds a number which was read before is no template for one that is given another tensor."""

    class Block(torch.nn.Module):
        def forward(self, x: Any, n: Any) -> Any:
            return x + torch.ones(n.item()).sum()

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = torch.nn.ModuleList([Block() for _ in range(4)])

        def forward(self, x: Any, a: Any, b: Any) -> Any:
            first = torch.zeros(a.item()).sum()
            for block, n in zip(self.blocks, (a, a, b, b), strict=True):
                x = block(x, n)
            return x + first

    net = Net()
    g, p = pliant.compile(net), pliant.export(net, (torch.rand(2), torch.tensor(3), torch.tensor(5)))
    for n, m in ((3, 5), (2, 9), (7, 7)):
        args = torch.rand(2), torch.tensor(n), torch.tensor(m)
        assert g(*args).equal(net(*args)) and p(*args).equal(net(*args))


# -- read-only views of dicts ----------------------------------------------------------------------------------------------------
def signed(x: Any, n: int = 3, *, k: int = 2) -> Any:
    return x


SIGNATURE = inspect.signature(signed)
SHOWN: dict[str, Any] = {"a": 1, "b": 4}
VIEW = types.MappingProxyType(SHOWN)


def by_signature(x: Any, *args: Any, **kwargs: Any) -> Any:
    bound = SIGNATURE.bind(x, *args, **kwargs)
    bound.apply_defaults()
    return x * bound.arguments["n"] + bound.arguments["k"]


def through_view(x: Any) -> Any:
    return x * VIEW["a"] + len(VIEW) + sum(VIEW.values()) + ("b" in VIEW) + VIEW.get("c", 7), VIEW is VIEW


def test_mapping_proxy() -> None:
    x = torch.rand(3)
    assert pliant.export(by_signature, (x,), {"k": 7})(x, k=7).equal(by_signature(x, k=7))
    g = pliant.compile(through_view)
    for change in ({"b": 5}, {"a": 50}, {"c": 1}):
        assert g(x)[0].equal(through_view(x)[0]) and g(x)[1]
        SHOWN.update(change)
        assert g(x)[0].equal(through_view(x)[0])
