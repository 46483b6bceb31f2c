"""Backends: names, Dynamo-style callables, changing sizes, gradients, in-place writes, errors; Inductor once."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from pliant.codegen.backends import compile_graph, lookup
from pliant.codegen.region import compile_region
from pliant.errors import BackendError
from pliant.graph.traced import TracedTensor
from tests.codegen.tracing import Captured, tensors_of

ACCESSORS = ("__get__", "__set__", "size", "dim", "stride", "__len__")


class TorchLevel(TorchFunctionMode):
    """Records the Torch-level calls, as the interpreter does."""

    def __init__(self):
        super().__init__()
        self.depth = 0

    def __torch_function__(self, fn, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        traced = [t for t in tensors_of([args, kwargs]) if isinstance(t, TracedTensor)]
        if not traced or getattr(fn, "__name__", "") in ACCESSORS:
            return fn(*args, **kwargs)
        record = traced[0].trace.torch_call(fn, args, kwargs)
        record.out = fn(*args, **kwargs)
        return record.out


def recorded(fn):
    def run(*args):
        with TorchLevel():
            return fn(*args)

    return run


def captured(fn, *examples, backend, **options):
    return Captured(recorded(fn), *examples, compiler=lambda t, i, o: compile_graph(t, i, o, backend=backend), **options)


def model(x, w, b):
    h = torch.nn.functional.linear(x, w, b)
    return torch.softmax(h, -1) * x.shape[0], h.view(-1), x.shape[1], 3


def weights():
    return nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(5))


def compare(fn, backend, shapes=((3, 6, 4), (5, 2, 4), (2, 9, 4))):
    w, b = weights()
    c = captured(fn, torch.randn(3, 6, 4), w, b, backend=backend)
    for shape in shapes:
        x = torch.randn(shape)
        if not c.guards_hold(x, w, b):
            continue
        got, want = c(x, w, b), fn(x, w, b)
        assert got[2:] == want[2:]
        torch.testing.assert_close(got[:2], want[:2])
        grads = [torch.autograd.grad(out[0].pow(2).sum() + out[1].sum(), (w, b)) for out in (got, want)]
        torch.testing.assert_close(*grads, rtol=1e-4, atol=1e-4)
    return c


def test_eager():
    compare(model, "eager")


def test_a_callable_sees_the_torch_level_graph():
    seen = []

    def backend(module, example_inputs):
        seen.append((module, example_inputs))
        return module.forward

    compare(model, backend)
    assert len(seen) == 1
    module, examples = seen[0]
    targets = [n.target for n in module.graph.nodes if n.op.startswith("call")]
    assert torch.nn.functional.linear in targets or torch._C._nn.linear in targets
    assert not any("addmm" in str(t) for t in targets)
    assert len(examples) == len([n for n in module.graph.nodes if n.op == "placeholder"])
    assert [tuple(x.shape) for x in examples if isinstance(x, torch.Tensor)][0][:2] == (3, 6)
    assert any(isinstance(x, torch.SymInt) for x in examples)


def test_what_the_backend_assumes_about_sizes_is_checked():
    compiled = []

    def backend(module, example_inputs):
        size = next(int(x) for x in example_inputs if isinstance(x, torch.SymInt))  # specializes
        compiled.append(size)
        return lambda *args: [args[1 if len(args) == 2 else -1] * size]

    c = captured(lambda x: (x * x.shape[0],), torch.randn(3), backend=backend)
    for n in (3, 4, 3, 4, 6):
        torch.testing.assert_close(c(torch.ones(n))[0], torch.full((n,), float(n)))
    assert compiled == [3, 4, 6]


def test_in_place_writes_and_returned_inputs():
    def fn(x, y):
        x.add_(y)
        return x, x * 2, y

    c = captured(fn, torch.zeros(3), torch.ones(3), backend="eager", static=(0, 1))
    x, y = torch.zeros(3), torch.ones(3)
    out = c(x, y)
    assert out[0] is x and out[2] is y and x.tolist() == [1, 1, 1] and out[1].tolist() == [2, 2, 2]


def test_without_a_torch_level_record_the_aten_graph_is_used():
    c = Captured(lambda x: (x + 1).relu(), torch.randn(3, 4), compiler=lambda t, i, o: compile_graph(t, i, o, backend="eager"))
    x = torch.randn(5, 6)
    torch.testing.assert_close(c(x), (x + 1).relu())


def test_errors():
    def raises(module, example_inputs):
        raise KeyError("not today")

    with pytest.raises(BackendError, match="raises raised KeyError"):
        captured(lambda x: x + 1, torch.randn(3), backend=raises)
    with pytest.raises(BackendError, match="cannot be called"):
        captured(lambda x: x + 1, torch.randn(3), backend=lambda module, inputs: 7)
    with pytest.raises(ValueError, match="unknown backend 'nonesuch'"):
        lookup("nonesuch")


def test_own_names_do_not_ask_the_incumbent():
    assert lookup("aten") is compile_region


def test_inductor():
    """A real compiler, three shapes, gradients."""
    compare(model, "inductor")
