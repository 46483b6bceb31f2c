"""Operators (`torch.ops.aten`) of tensors whose class has a `__torch_function__`: it is told of what is called, overload or packet."""

import pytest
import torch

import pliant
from tests.helpers import own_backend

aten = torch.ops.aten


class Told(torch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(str(func))
        return super().__torch_function__(func, types, args, kwargs or {})


PROGRAMS = {
    "overload": lambda x: aten.add.Tensor(x, 1),
    "all overloads": lambda x: aten.add(x, x),
    "keywords": lambda x: aten.clamp(x, min=0.0),
    "dims": lambda x: aten.sum.dim_IntList(x, [0]),
    "several results": lambda x: aten.max.dim(x, 0)[0],
    "a list": lambda x: aten.cat([x, x], 1),
    "in place": lambda x: aten.mul_.Tensor(x.clone(), 2),
    "chosen": lambda x: aten.where.self(x > 0, x, -x),
}


@own_backend
@pytest.mark.parametrize("name", PROGRAMS)
def test_told_of_what_is_called(name):
    fn = PROGRAMS[name]
    compiled = pliant.compile(fn)
    for n in (3, 5, 4):
        x, found = torch.randn(n, 4).as_subclass(Told), []
        for f in (fn, compiled):
            Told.calls = []
            out = f(x)
            found.append((type(out), out.as_subclass(torch.Tensor).tolist(), Told.calls))
        assert found[0] == found[1]
    assert pliant.stats()["captures"] == 1 and not pliant.stats()["graph_breaks"]
