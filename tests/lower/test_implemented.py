"""What ATen refuses for a dtype is refused in kernels, too."""

from __future__ import annotations

import pytest
import torch

from pliant.graph import implemented
from tests.helpers import compiled

BOOLS, INTS, HALVES, FLOATS = torch.tensor([True, False]), torch.tensor([1, 2]), torch.tensor([1.0, 2.0]).half(), torch.tensor([1.0, 2.0])
F = torch.nn.functional


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (lambda x: ((x & x).relu(), x | x), (BOOLS,)),
        (lambda x: ((x & x).abs_(), x | x), (BOOLS,)),
        (lambda x: ((x & x).floor(), x | x), (BOOLS,)),
        (lambda x: (F.hardswish(x + x), x * 2), (INTS,)),
        (lambda x: (F.hardsigmoid(x + x), x * 2), (INTS,)),
        (lambda x: ((x + x) & x, x * 2), (FLOATS,)),
        (lambda x: ((x + x).bitwise_not(), x * 2), (HALVES,)),
        (lambda x, y: x.mul_(y + 1), (INTS, HALVES)),
        (lambda x, y: (x.mul_((y + 1).sum()), y * 2), (INTS, FLOATS)),
        (lambda x, y: (x + x).addcmul_(y + 1, y + 1), (INTS, FLOATS)),
        (lambda x: (torch.rsub(x + 1, x, alpha=0.5), x * 2), (INTS,)),
    ],
)
def test_operations_on_dtypes_that_aten_does_not_know_raise(fn, args) -> None:
    for f in (fn, compiled(fn, backend="native"), compiled(fn, backend="aten")):
        given = [a.clone() for a in args]
        with pytest.raises((RuntimeError, NotImplementedError)) as error:
            f(*given)
        assert not isinstance(error.value, AssertionError) and "InternalError" not in type(error.value).__name__
        assert all(map(torch.equal, given, args))


GENERATOR = torch.Generator()


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: torch.rand_like(x, dtype=torch.float32),
        lambda x: torch.randint_like(x, 100),
        lambda x: (torch.randint_like(x, 100), torch.randint_like(x, 100))[1],
        lambda x: torch.randint_like(x, 100, generator=GENERATOR),
        lambda x: torch.bernoulli(x.half(), 0.5, generator=GENERATOR),
    ],
)
def test_what_draws_is_not_tried(draw) -> None:
    x, f = torch.ones(9, dtype=torch.int64), compiled(draw, backend="aten")
    drawn = []
    for g in (draw, f):
        torch.manual_seed(3)
        GENERATOR.manual_seed(4)
        drawn.append([g(x) for _ in range(3)])
    assert all(map(torch.equal, *drawn))


def test_what_reads_packed_memory_is_not_tried(monkeypatch) -> None:
    def fn(x, w):
        torch._weight_int8pack_mm(x, w, torch.ones(w.shape[0], dtype=x.dtype))
        return x + 1

    monkeypatch.setattr(implemented, "_known", {})
    seen, tried = [], implemented.tried
    monkeypatch.setattr(implemented, "tried", lambda op: seen.append(op.target) or tried(op))
    x, w = torch.ones(4, 16, dtype=torch.bfloat16), torch.ones(8, 16, dtype=torch.int8)
    assert torch.equal(compiled(fn, backend="aten")(x, w), fn(x, w))
    assert seen and torch.ops.aten._weight_int8pack_mm.default not in seen
