"""What users say of sizes: marks on tensors, declared dims by parameter, `dynamic=`; violations that name the line and the fix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from pliant import Dim


def captures(fn: Callable, *calls: tuple, **options: Any) -> int:
    """How many graphs the calls need; each is compared with eager, and none may break."""
    pliant.reset()
    compiled = pliant.compile(fn, fullgraph=True, strict=True, **options)
    for args in calls:
        assert torch.equal(compiled(*args), fn(*args))
    return pliant.stats()["captures"]


def scale(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + x.shape[0]


def rows(n: int, **how: Any) -> torch.Tensor:
    x = torch.arange(float(3 * n)).reshape(n, 3)
    for mark, arguments in how.items():
        getattr(pliant, mark)(x, *arguments)
    return x


@pytest.mark.parametrize("first", [5, 1, 0])
@pytest.mark.parametrize("mark", ["mark_dynamic", "maybe_mark_dynamic", "mark_unbacked"])
def test_a_marked_dim_is_not_specialized_on_0_and_1(mark: str, first: int) -> None:
    assert captures(scale, (rows(first, **{mark: (0,)}),), *[(rows(n),) for n in (4, 0, 1, 7)]) == 1


def test_unmarked_dims_are() -> None:
    assert captures(scale, (rows(5),), (rows(1),)) == 2


def test_a_static_dim_is_compiled_anew() -> None:
    assert captures(scale, (rows(5, mark_static=(0,)),), (rows(6, mark_static=(0,)),)) == 2
    x = rows(5, mark_static=())
    assert captures(scale, (x,), (x,), (rows(6, mark_static=()),)) == 2


@pytest.mark.parametrize(("dynamic", "graphs"), [(None, 1), (True, 1), (False, 3)])
def test_dynamic_true_and_false(dynamic: bool | None, graphs: int) -> None:
    assert captures(scale, *[(rows(n),) for n in (5, 6, 7)], dynamic=dynamic) == graphs


class Power:
    def __init__(self, n: int) -> None:
        self.n = n

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.n + self.n // 2


@pytest.mark.parametrize(("dynamic", "graphs"), [(None, 2), (True, 1), (False, 3)])
def test_ints_of_objects_under_dynamic(dynamic: bool | None, graphs: int) -> None:
    assert captures(lambda p, x: p(x), *[(Power(n), rows(3)) for n in (5, 6, 7)], dynamic=dynamic) == graphs


def test_a_range_is_guarded() -> None:
    pliant.reset()
    fn = pliant.compile(scale, dynamic={"x": {0: Dim("rows", min=2, max=6)}}, strict=True)
    fn(rows(4))
    with pytest.raises(pliant.PliantError, match=r"size 7 at L\['x'\].size\(\)\[0\] does not fit Dim\('rows', min=2, max=6\)"):
        fn(rows(7))
    x = rows(7)
    pliant.mark_dynamic(x, 0, max=6)
    with pytest.raises(pliant.PliantError, match="widen the Dim"):
        pliant.compile(scale, strict=True)(x)


def test_multiples_are_facts() -> None:
    def halves(x: torch.Tensor) -> torch.Tensor:
        return x.view(x.shape[0] // 8, -1).sum(1)

    pliant.reset()
    fn = pliant.compile(halves, dynamic={"x": [Dim("rows", min=1, max=4096, multiple_of=8), None]}, fullgraph=True, strict=True)
    for n in (16, 8, 64):
        assert torch.equal(fn(rows(n)), halves(rows(n)))
    assert pliant.stats()["captures"] == 1


@pytest.mark.parametrize("flipped", [False, True])
def test_derived_dims_are_tied(flipped: bool) -> None:
    def interleave(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.cat([y, x]).cumsum(0) if flipped else torch.cat([x, y]).cumsum(0)

    s = Dim("s")
    pliant.reset()
    fn = pliant.compile(interleave, dynamic={"x": {0: s}, "y": {0: 2 * s + 1}}, fullgraph=True, strict=True)
    for n in (3, 0, 1, 8):
        args = torch.ones(n), torch.ones(2 * n + 1)
        assert torch.equal(fn(*args), interleave(*args))
    assert pliant.stats()["captures"] == 1
    with pytest.raises(pliant.PliantError, match="must agree"):
        fn(torch.ones(3), torch.ones(9))


def test_ints_and_nested_arguments_are_declared() -> None:
    def fn(n: int, xs: dict) -> torch.Tensor:
        return xs["a"][0] * n + xs["a"][0].shape[0]

    dynamic = {"n": Dim("n"), "xs": {"a": [{0: Dim("rows")}]}}
    assert captures(fn, *[(n, {"a": [rows(k)]}) for n, k in ((5, 4), (0, 0), (1, 1), (7, 9))], dynamic=dynamic) == 1


def test_modules_are_declared_by_the_parameters_of_forward() -> None:
    class Scale(torch.nn.Module):
        def forward(self, x: torch.Tensor, *, bias: torch.Tensor) -> torch.Tensor:
            return scale(x) + bias

    module = Scale()
    pliant.reset()
    fn = pliant.compile(module, dynamic={"x": {0: Dim("rows")}, "bias": {0: Dim("rows")}}, fullgraph=True, strict=True)
    for n in (4, 1, 0):
        assert torch.equal(fn(rows(n), bias=rows(n)), module(rows(n), bias=rows(n)))
    assert pliant.stats()["captures"] == 1


def test_what_pins_a_declared_dim_is_named() -> None:
    def pinned(x: torch.Tensor) -> torch.Tensor:
        return x * [0.5] * x.shape[0] if False else x + len(list(range(x.shape[0])))

    with pytest.raises(pliant.PliantError) as e:
        pliant.compile(pinned, dynamic={"x": {0: Dim("rows")}}, strict=True)(rows(5))
    text = str(e.value)
    line = pinned.__code__.co_firstlineno + 1
    assert f"test_dims.py:{line} in" in text and "needs `rows == 5`" in text and "Dim('rows') of L['x'].size()[0]" in text
    assert "Fix: mark it static (its size is always 5), or remove what pins it" in text


def test_violations_are_raised_without_strict_too() -> None:
    x = rows(5)
    pliant.mark_dynamic(x, 0)
    with pytest.raises(pliant.PliantError, match="declared dynamic is not"):
        pliant.compile(lambda x: x + len(list(range(x.shape[0]))), strict=False)(x)


def test_the_programs_own_branch_is_no_violation() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x[0] if x.shape[0] == 1 else x.sum(0)

    assert captures(branch, *[(rows(n),) for n in (5, 1, 0, 7)], dynamic={"x": {0: Dim("rows")}}) == 2


def test_a_branch_on_an_unbacked_size_has_both_sides() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.shape[0] > 3 else x - 1

    f = pliant.compile(branch, fullgraph=True, strict=True)
    for n in (5, 2, 3, 4):
        assert torch.equal(f(rows(n, mark_unbacked=(0,))), branch(rows(n)))
    assert pliant.stats()["captures"] == 1


def test_a_branch_on_an_unbacked_size_that_has_no_common_result_says_so() -> None:
    def branch(x: torch.Tensor) -> torch.Tensor:
        return x.sort() if x.shape[0] > 3 else x

    with pytest.raises(pliant.PliantError, match=r"cannot decide `s\d > 3` while capturing"):
        pliant.compile(branch, fullgraph=True, strict=True)(rows(5, mark_unbacked=(0,)))


def test_mistakes_are_told() -> None:
    with pytest.raises(ValueError, match=r"declares 'z', but the parameters of function are: x"):
        pliant.compile(scale, dynamic={"z": {0: Dim("rows")}})
    with pytest.raises(TypeError, match="declares nothing"):
        pliant.compile(scale, dynamic={"x": {0: "rows"}})
    with pytest.raises(TypeError, match="dict from parameter names"):
        pliant.compile(scale, dynamic={0: Dim("rows")})
    with pytest.raises(IndexError, match="dim 2 of a tensor with 2 dims"):
        pliant.mark_dynamic(rows(2), 2)
    with pytest.raises(TypeError, match="a tensor is marked"):
        pliant.mark_static([1])  # type: ignore[arg-type]
