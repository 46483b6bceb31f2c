"""What ATen refuses for a dtype is refused in kernels, too."""

from __future__ import annotations

import pytest
import torch

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
