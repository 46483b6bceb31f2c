"""Loops and scans that the program spells as such: one graph, here and with backends that run it as it is; others break it."""

from __future__ import annotations

import pytest
import torch
from torch._higher_order_ops import associative_scan, scan, while_loop

import pliant
from pliant.errors import GraphBreakError
from tests.programs.registry import cases, each, program

ROWS = each(3, 5, 2, tail=(4,))
WHOLE = {"breaks": 0, "options": {"fullgraph": True}}


@program(*ROWS, **WHOLE)
def nested(x):
    def body(i, v):
        j, v = while_loop(lambda j, v: j < 2, lambda j, v: (j + 1, v + 1), (torch.tensor(0), v))
        return i + 1, v * 2

    return while_loop(lambda i, v: i < 3, body, (torch.tensor(0), x))


@program(*ROWS, **WHOLE)
def closure(x):
    k = x.sum(0)
    n = x.shape[0]
    return while_loop(lambda v: v.sum() < n * 10, lambda v: (v + k.abs() + 1,), (x,))


@program(*ROWS, **WHOLE)
def ints(x):
    return while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, v * 2), (0, x))


@program(*ROWS, **WHOLE)
def ints_of_size(x):
    return while_loop(lambda i, v: i < x.shape[0], lambda i, v: (i + 1, v * 2), (0, x))


@program(*ROWS, **WHOLE)
def random(x):
    torch.manual_seed(0)
    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v + torch.rand(4)), (torch.tensor(0), x))


@program(*ROWS, **WHOLE)
def never(x):
    return while_loop(lambda v: v.sum() > 1e9, lambda v: (v * 2,), (x,))


@program(*ROWS, **WHOLE)
def cond_inside(x):
    def body(i, v):
        v = torch.cond(v.sum() > 0, lambda v: v - 1, lambda v: v + 1, (v,))
        return i + 1, v

    return while_loop(lambda i, v: i < 5, body, (torch.tensor(0), x))


@program(*ROWS, **WHOLE)
def loop_in_cond(x):
    return torch.cond(
        x.sum() > 0, lambda v: while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (torch.tensor(0), v))[1], lambda v: v + 1, (x,)
    )


@program(*ROWS, **WHOLE)
def after(x):
    i, y = while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, v * 2), (torch.tensor(0), x))
    y = y + 1
    z = while_loop(lambda i, v: i < 2, lambda i, v: (i + 1, v.sin()), (torch.tensor(0), y))[1]
    return y, z, i


@program(*ROWS, **WHOLE)
def scan_rev(x):
    return scan(lambda c, v: (c + v, c * 2), x[:, 0] * 0, x, dim=1, reverse=True)


@program(*each(3, 5, 2, tail=(4,), grad=True), grad=True, **WHOLE)
def scan_grad(x):
    return scan(lambda c, v: (c + v, c * v), x[0] * 0, x, dim=0)


@program(*ROWS, **WHOLE)
def assoc(x):
    return associative_scan(lambda a, b: a * b, x, dim=1, combine_mode="generic")


@program(*ROWS, **WHOLE)
def mod_body(x):
    m = torch.nn.Linear(4, 4)
    torch.nn.init.eye_(m.weight)
    torch.nn.init.ones_(m.bias)
    m.requires_grad_(False)
    return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, m(v)), (torch.tensor(0), x))


@program(*ROWS, **WHOLE)
def mixed(x):
    return while_loop(
        lambda i, v, w: (i < 3) & (w.sum() < 100), lambda i, v, w: (i + 1, v + w[:, :1], w * 2), (torch.tensor(0), x, x.abs())
    )


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_with_a_backend_that_runs_the_graph(case):
    case.run_through("eager")


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_with_a_callable_that_gives_the_graph_back(case):
    case.run_through(lambda module, example_inputs: module.forward)


def doubled(x):
    return while_loop(lambda i, v: i < 4, lambda i, v: (i + 1, v * 2), (torch.tensor(0), x))[1]


@pytest.mark.parametrize("backend", ["aot_eager", lambda module, example_inputs: torch.fx.Interpreter(module).run])
def test_what_others_compile_has_no_loop(backend):
    compiled = pliant.compile(doubled, backend=backend)
    for n in (3, 4):
        assert torch.equal(compiled(torch.ones(n, 4)), doubled(torch.ones(n, 4)))
    with pytest.raises(GraphBreakError, match="PL0030"):
        pliant.compile(doubled, backend=backend, fullgraph=True)(torch.ones(2, 4))
