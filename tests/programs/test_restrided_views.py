"""Operators that give a tensor object another layout in place (`t_`, `squeeze_`, ...), of views, which regions make anew behind graphs."""

from __future__ import annotations

import pytest
import torch

from tests.helpers import compiled, pliant
from tests.programs.registry import t

W = torch.ones(3, 4, requires_grad=True)


def long(x):
    """So many operations that the region runs below autograd."""
    for _ in range(20):
        x = x.sin()
    return x


def view_and_its_base(x):
    y = long(x)
    return y, y.view(4, 3).t_()


def detached_beside(x):
    y = long(W * x)
    return y, y.detach().t_()


PROGRAMS = {
    "transposed": lambda x: long(x).view(4, 3).t_(),
    "squeezed": lambda x: long(x).view(1, 3, 4).squeeze_(0),
    "unsqueezed": lambda x: long(x)[1:].unsqueeze_(0),
    "strided": lambda x: long(x).view(12).as_strided_((2, 2), (4, 1)),
    "one of many": lambda x: long(x).split(1)[0].t_(),
    "base": view_and_its_base,
    "beside gradients": lambda x: (long(W * x), long(x).view(4, 3).t_()),
    "base beside gradients": lambda x: (long(W * x), *view_and_its_base(x)),
    "of a mask": lambda x: (long(W * x), (x > 0).view(4, 3).t_(), (x > 0).long().view(1, 3, 4).squeeze_(0)),
    "detached": lambda x: ((W * x).detach().t_(), long(W * x)),
    "detached beside": detached_beside,
    "of an argument": lambda x: (long(W * x), x.view(4, 3).t_()),
}


def told(value):
    return [(tuple(y.shape), y.stride(), y.requires_grad) for y in (value if type(value) is tuple else (value,))]


@pytest.mark.parametrize("autocast", [False, True])
@pytest.mark.parametrize("backend", ["native", "aten"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_views_with_another_layout(name, backend, autocast):
    pliant.reset()
    fn = PROGRAMS[name]
    run = compiled(fn, backend=backend)
    with torch.autocast("cpu", enabled=autocast):
        for seed in (0, 1):
            want, got = fn(t(3, 4, seed=seed)), run(t(3, 4, seed=seed))
            assert told(want) == told(got)
            torch.testing.assert_close(got, want)
