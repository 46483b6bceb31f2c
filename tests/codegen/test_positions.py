"""Where extremes are: argmax, argmin, max and min of a dim, aminmax, each alone a kernel. Ties, NaNs, infinities, every dtype, any row."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import pliant
from pliant.codegen import native
from pliant.codegen.cpu.schedule import plan
from tests.codegen.loop_reference import TARGETS

OPERATIONS: dict[str, Callable] = {
    "argmax of rows": lambda x: x.argmax(-1),
    "argmin of columns": lambda x: x.argmin(0),
    "argmax of all": lambda x: x.argmax(),
    "max of rows": lambda x: x.max(-1),
    "min of columns": lambda x: x.min(0, keepdim=True),
    "max of what is turned": lambda x: x.t().max(-1),
    "aminmax": lambda x: x.aminmax(dim=-1),
}
DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool)
SIZES = ((9, 33), (1, 1), (3, 5), (70, 2), (2, 70), (17, 130), (40, 64))


def tensors(m: int, n: int, dtype: torch.dtype) -> list[torch.Tensor]:
    """Few different values, so that there are ties; rows of one value; floats with NaNs and infinities, too."""
    random = torch.Generator().manual_seed(m * n)
    numbers = torch.randint(-3 if dtype.is_signed else 0, 4, (m, n), generator=random).to(dtype)
    numbers[0] = numbers[0, 0]
    if not dtype.is_floating_point:
        return [numbers]
    special = numbers.clone()
    special[torch.rand(m, n, generator=random) < 0.1] = torch.nan
    special[torch.rand(m, n, generator=random) < 0.1] = torch.inf
    special[-1], special[:, -1] = -torch.inf, torch.inf
    return [numbers, special, torch.full((m, n), torch.nan, dtype=dtype), torch.full((m, n), -torch.inf, dtype=dtype)]


def compiled(fn: Callable) -> Callable:
    return pliant.compile(lambda x: fn(x), backend="native", strict=True, dynamic=True)


@pytest.mark.parametrize("to", TARGETS)
@pytest.mark.parametrize("name", OPERATIONS)
def test_positions_are_those_of_eager(name, to, monkeypatch, tmp_path):
    monkeypatch.setenv("PLIANT_CPU", to)
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path))
    made: list = []
    compile_all = native.compile_all
    monkeypatch.setattr(native, "compile_all", lambda launches, *more: (made.extend(launches), compile_all(launches, *more)))
    fn = OPERATIONS[name]
    for dtype in DTYPES if to == TARGETS[0] else DTYPES[:5:2]:
        if dtype is torch.bool and "arg" in name:
            continue  # eager refuses
        call = compiled(fn)
        made.clear()
        for size in SIZES:
            for x in tensors(*size, dtype):
                got, want = call(x), fn(x)
                for g, w in zip(*((v if isinstance(v, tuple) else (v,)) for v in (got, want)), strict=True):
                    assert g.dtype == w.dtype and g.shape == w.shape
                    assert torch.equal(g.nan_to_num(7), w.nan_to_num(7)) and torch.equal(g.isnan(), w.isnan()), (dtype, size)
        assert made, "computed by ATen"


@pytest.mark.parametrize("name", [n for n in OPERATIONS if n != "aminmax"])
def test_what_eager_refuses(name):
    fn = OPERATIONS[name]
    for x in (torch.zeros(0, 0), torch.zeros(3, 4, dtype=torch.complex64)):
        with pytest.raises((RuntimeError, IndexError)) as eager:
            fn(x)
        with pytest.raises(type(eager.value)) as ours:
            pliant.compile(lambda x: fn(x), backend="native")(x)
        assert str(ours.value) == str(eager.value)


def test_a_maximum_and_its_place_are_found_together(monkeypatch):
    """The value that the search for the place keeps is the maximum."""
    made: list = []
    compile_all = native.compile_all
    monkeypatch.setattr(native, "compile_all", lambda launches, *more: (made.extend(launches), compile_all(launches, *more)))

    def call(x):
        best, where = (x * 2).max(-1, keepdim=True)
        return torch.where(x == best, 0, x).sum(-1), best, where, (x * 2).amax(-1)

    x = torch.randn(30, 50)
    for g, w in zip(pliant.compile(call, backend="native", strict=True)(x), call(x), strict=True):
        torch.testing.assert_close(g, w)
    (launch,) = made
    assert {n.attrs[0] for n in plan(launch.kernel, 512, True).nodes if n.op == "reduce"} >= {"max", "argmax"}
