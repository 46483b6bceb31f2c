"""Spelled functions record what PyTorch records, and keep out of the way of gradients, autocast and errors."""

from __future__ import annotations

import contextlib
import operator
import re

import numpy as np
import pytest
import torch

from pliant.graph import decompositions, layout
from pliant.graph.traced import TracedTensor, Untraceable
from tests.graph.harness import Captured, describe_all
from tests.helpers import check, compiled, failure, pliant

F = torch.nn.functional
flat, cube = torch.randn(5, 4), torch.randn(3, 5, 4)
weight, bias = torch.randn(6, 4), torch.randn(6)
turned = torch.randn(3, 4, 5).transpose(1, 2)
picture = torch.randn(2, 3, 4, 5)
ones = torch.randn(1, 5, 1)


def heads(rows: int, of: int = 3) -> torch.Tensor:
    return torch.randn(2, rows, of, 4).transpose(1, 2)


query, keys = heads(5), heads(7)
mask = torch.rand(2, 1, 5, 7) > 0.3
attend = F.scaled_dot_product_attention

CASES = [
    (F.linear, (flat, weight, bias)),
    (F.linear, (cube, weight, bias)),
    (F.linear, (cube[1:], weight, bias)),
    (F.linear, (ones, torch.randn(2, 1), torch.randn(2))),
    (F.linear, (cube, torch.randn(4, 6).t(), bias)),
    (F.layer_norm, (cube, (4,), torch.randn(4), torch.randn(4), 1e-5)),
    (F.layer_norm, (cube, [5, 4], None, None, 1e-3)),
    (F.layer_norm, (turned, (4,), torch.randn(4), None, 1e-5)),
    (F.dropout, (cube, 0.3, False, False)),
    (F.dropout, (cube, 0.3, False, True)),
    *[(torch.Tensor.reshape, (x, *shape)) for x in (cube, cube[1:]) for shape in ((-1, 4), (5, -1), ((x.shape[0], 20),), (*x.shape, 1))],
    (torch.Tensor.reshape, (turned, 3, 5, 4)),
    (torch.Tensor.reshape, (turned, 3, -1, 4)),
    (torch.Tensor.reshape, (turned, (3, -1, 4))),
    (torch.Tensor.contiguous, (cube,)),
    (torch.Tensor.contiguous, (ones,)),
    *[(f, (a, b)) for f in (operator.add, operator.sub, operator.mul, operator.truediv)
      for a, b in ((cube, cube), (cube, flat), (cube, turned), (picture, picture.double()), (flat, flat.long()), (flat.int(), flat.int()))],
    (F.gelu, (cube,)),
    (F.gelu, (turned,)),
    (attend, (query, keys, keys)),
    (attend, (query, keys, keys), {"scale": 0.5, "dropout_p": 0.0, "is_causal": False}),
    (attend, (query, keys, keys, mask)),
    (attend, (query, keys, keys), {"attn_mask": mask.float(), "scale": 0.5}),
    (attend, (query, keys, keys), {"attn_mask": mask[:1]}),
    (attend, (query.double(), keys.double(), keys.double()), {"attn_mask": mask}),
    (attend, (query.bfloat16(), keys.bfloat16(), keys.bfloat16()), {"attn_mask": mask}),
]  # fmt: skip

LEFT = [  # to PyTorch
    (F.linear, (turned, weight, bias)),
    (F.linear, (picture, torch.randn(6, 5), bias)),
    (F.linear, (cube, weight.double(), bias.double())),
    (F.linear, (cube, torch.randn(6, 5), bias)),
    (F.linear, (cube, weight, torch.randn(5))),
    (F.layer_norm, (cube, (5,), None, None, 1e-5)),
    (F.dropout, (cube, 0.3, True, False)),
    (F.dropout, (cube, 1.5, False, False)),
    (torch.Tensor.reshape, (turned, -1)),
    (torch.Tensor.reshape, (cube, 7, 7)),
    *[(torch.Tensor.reshape, (x, torch.tensor(3), 5, 4)) for x in (cube, turned)],
    (torch.Tensor.contiguous, (turned,)),
    (operator.add, (cube, torch.randn(7))),
    (operator.add, (cube, 2)),
    (F.gelu, (flat.long(),)),
    (attend, (query, keys, keys), {"is_causal": True}),
    (attend, (query, keys, keys), {"dropout_p": 0.5}),
    (attend, (query, keys, keys[:, :1])),
    (attend, (query[0], keys[0], keys[0])),
    (attend, (query[:, :, :0], keys, keys)),
    (attend, (query, keys, keys), {"attn_mask": mask[..., :3]}),
    (attend, (query.transpose(2, 3), keys[..., :4, :].transpose(2, 3), keys[..., :4, :].transpose(2, 3))),
    (attend, (query, heads(7, 3), keys.double())),
]


def text(captured: Captured) -> list[str]:
    """What was recorded, its tensors numbered in the order of their appearance."""
    numbers: dict[str, str] = {}
    return [re.sub(r"%\d+", lambda m: numbers.setdefault(m[0], f"%{len(numbers)}"), str(op)) for op in captured.trace.ops]


@pytest.mark.parametrize("dynamic", [None, lambda x, d, s: True, lambda x, d, s: d == 0], ids=["static", "dynamic", "rows"])
@pytest.mark.parametrize("fn, args, kwargs", [(*c, {})[:3] for c in CASES], ids=lambda v: getattr(v, "__name__", None))
def test_the_same_operators(fn, args, kwargs, dynamic):
    def by_pytorch(*args, **kwargs):
        with layout.framework():
            return fn(*args, **kwargs), *args

    def by_us(*args, **kwargs):
        trace = next(a for a in args if type(a) is TracedTensor).trace
        with layout.framework():
            out = decompositions.decompose(fn, args, kwargs, trace)
        assert out is not NotImplemented or dynamic is not None  # sizes that nobody has compared yet are PyTorch's affair
        return fn(*args, **kwargs) if out is NotImplemented else out, *args

    with torch.no_grad():
        want, got = Captured(by_pytorch, args, dynamic, kwargs), Captured(by_us, args, dynamic, kwargs)
    assert text(got) == text(want)
    assert describe_all(got.out[0], got.symbols) == describe_all(want.out[0], want.symbols)
    assert [got.out[0] is a for a in got.out[1:]] == [want.out[0] is a for a in want.out[1:]]
    assert got.out[0]._is_view() == want.out[0]._is_view()
    assert {str(g.expr) for g in got.scope.guards} <= {str(g.expr) for g in want.scope.guards}


@pytest.mark.parametrize("fn, args, kwargs", [(*c, {})[:3] for c in LEFT], ids=lambda v: getattr(v, "__name__", None))
def test_what_is_left_to_pytorch_leaves_no_trace(fn, args, kwargs):
    def ours(*args, **kwargs):
        trace = args[0].trace
        with contextlib.suppress(Untraceable):  # what PyTorch may refuse
            assert decompositions.decompose(fn, args, kwargs, trace) is NotImplemented
        assert not trace.ops

    with torch.no_grad():
        Captured(ours, args, kwargs=kwargs)


def test_gradients_autocast_and_transforms_are_pytorchs():
    def ours(x, w, b):
        trace = x.trace
        args = (x, w, b)
        assert decompositions.decompose(F.linear, args, {}, trace) is not NotImplemented
        with torch.autocast("cpu"):
            assert decompositions.decompose(F.linear, args, {}, trace) is NotImplemented
        with torch.enable_grad():
            assert decompositions.decompose(F.linear, args, {}, trace) is not NotImplemented
            w.requires_grad_()
            assert decompositions.decompose(F.linear, args, {}, trace) is NotImplemented
        torch.func.vmap(lambda t: check(args, trace) or t)(x)

    def check(args, trace):
        assert decompositions.decompose(F.linear, args, {}, trace) is NotImplemented

    with torch.no_grad():
        Captured(ours, (cube, weight, bias))


class Holder:
    """What the program reads its arguments from."""

    args: list
    settings: dict


ODD = (
    None, True, 0, 4, -1, 4.0, 0.5, "4", 1j, np.float32(0.5), np.int64(4), np.bool_(True), torch.tensor(4), torch.float64, float, int,
    "cpu", [], (), [4], (4.0,), [np.int64(4)], [True], [None], ["4"], range(4, 5), {4: 1}, float("inf"),
)  # fmt: skip
LENGTH = object()
MADE = {"dtype": torch.float32, "device": "cpu", "requires_grad": False}
GIVEN: list = [
    (F.linear, [cube, weight, bias], {}),
    (F.layer_norm, [cube, (4,), torch.ones(4), torch.ones(4), 1e-5], {}),
    (F.dropout, [cube, 0.3, False, False], {}),
    (attend, [query, keys, keys], {"attn_mask": None, "dropout_p": 0.0, "is_causal": False, "scale": 0.5}),
    (torch.Tensor.reshape, [cube, 3, 20], {}),
    (F.gelu, [cube], {"approximate": "none"}),
    (torch.linspace, [0, 1, LENGTH], MADE),
    (torch.logspace, [0, 1, LENGTH], {"base": 2.0, **MADE}),
    (torch.tril_indices, [LENGTH, 3], {"offset": 0, "dtype": torch.int64}),
    (torch.hann_window, [LENGTH], {"periodic": True, **MADE}),
    (torch.kaiser_window, [LENGTH], {"periodic": True, "beta": 12.0, **MADE}),
]


def told(fn, x):
    torch.manual_seed(0)
    try:
        y = fn(x)
    except Exception as e:
        return type(e), str(e)
    return y


@pytest.mark.parametrize("fn, args, kwargs", GIVEN, ids=lambda v: getattr(v, "__name__", None))
def test_arguments_of_other_kinds(fn, args, kwargs):
    """What PyTorch's parser takes or refuses, each argument in its turn, behind a call with the right ones."""
    held = Holder()

    def program(x):
        return fn(*[x.shape[0] if a is LENGTH else a for a in held.args], **held.settings)

    places = [*range(len(args)), *kwargs]
    with torch.no_grad():
        for place in [p for p in places if p != 0 or args[0] is LENGTH]:
            run = compiled(program)
            for i, odd in enumerate(ODD):
                if i % 4 == 0:
                    pliant.reset()
                    held.args, held.settings = args, kwargs
                    run(torch.ones(3))
                    run(torch.ones(7))
                held.args = [odd if i == place else a for i, a in enumerate(args)]
                held.settings = {k: odd if k == place else v for k, v in kwargs.items()}
                want, got = told(program, torch.ones(7)), told(run, torch.ones(7))
                if not isinstance(want, torch.Tensor) or not isinstance(got, torch.Tensor):
                    assert want == got, (place, odd)
                else:
                    torch.testing.assert_close(got, want, equal_nan=True)


aten = torch.ops.aten
PACKETS = {
    "a value in a tensor": lambda x, m, i: aten.masked_fill(x, m, torch.tensor(3.5)),
    "a value in a tensor, by keyword": lambda x, m, i: aten.masked_fill(x, mask=m, value=torch.tensor(2)),
    "a source": lambda x, m, i: aten.scatter(x, 0, i, x * 2),
    "a number": lambda x, m, i: aten.scatter(x, 0, i, 1.5) + aten.mul(x, x.shape[0]),
    "a dim": lambda x, m, i: (aten.sum(x, [0]), aten.sum(x), aten.max(x, 0), aten.pow(2, x), aten.pow(x, x)),
    "in place": lambda x, m, i: aten.index_fill_(x * 1, 0, i[:, 0], torch.tensor(4.0)),
}


@pytest.mark.parametrize("name", PACKETS)
def test_overloads_that_the_arguments_choose(name):
    """C++ tries the overloads of a packet one after the other, and writes down, with the texts of the arguments, which do not fit."""
    given = [(torch.randn(n, 4), torch.randn(n, 4) > 0, torch.randint(0, n, (n, 4))) for n in (8, 5, 3)]
    check(PACKETS[name], *given, options={"fullgraph": True}, captures=(1, 2))


def test_an_overload_that_no_arguments_choose():
    def wrong(x):
        return aten.masked_fill(x, "mask", torch.tensor(1.0))

    assert re.search("failed to match any schema", str(failure(compiled(wrong), torch.ones(3))))
