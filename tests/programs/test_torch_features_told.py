"""What a program asks PyTorch about itself, makes of sizes and keeps for the backward part: what broke or failed in one backend alone.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import pytest
import torch
import torch.onnx.operators

import pliant
from tests.helpers import check, compiled
from tests.programs.registry import cases, each, program, programs, t

WHOLE = {"breaks": 0, "captures": 1}
ROWS = each(3, 5, 2, tail=(4,))


# -- questions --------------------------------------------------------------------------------------------------------
programs(__name__, *ROWS, **WHOLE)({
    "traced_by_make_fx": lambda x: (torch.nn.modules.activation._is_make_fx_tracing(), x + 1),
    "checkpoint_valid": lambda x: (torch.autograd._is_checkpoint_valid(), x + 1),
    "unwrapped": lambda x: torch.jit._unwrap_optional(x) + 1,
    "shape_as_data": lambda x: (torch._shape_as_tensor(x), 1 + torch.onnx.operators.shape_as_tensor(x)[0]),
    "shape_of_a_number": lambda x: torch._shape_as_tensor(x.sum()),
})


# -- numbers ----------------------------------------------------------------------------------------------------------
@program(torch.tensor([1, 0, 0, 5]), torch.tensor([1, 0, 2, 5, 6]), **WHOLE)
def new_tensor_of_numbers(a):
    n = a.nonzero().squeeze(-1).numel()
    return (a.new_tensor([n]), a.new_tensor([n, n + 1, n * 2]), a.new_tensor([n * a.shape[0], a.shape[0] - n]),
        a.new_tensor([[n, n + 1], [0, n * n]]), a.new_tensor(n, dtype=torch.float64), a.new_tensor([n], requires_grad=False))


@program(t(2, 3), t(4, 3), t(5, 3), **WHOLE)
def new_tensor_of_sizes(x):
    return x.new_tensor(x.shape[0]), x.new_tensor([x.shape[0], 2]), x.new_tensor((x.shape[0] / 2,), dtype=torch.float16)


def truths(x):
    return bool((x == 0).all()), bool(x.sum()), bool(x[0, 0].item()), bool(x.shape[0])


program(torch.zeros(2, 3), t(3, 3), torch.zeros(4, 3), breaks=0)(truths)


# -- arrays -----------------------------------------------------------------------------------------------------------
@program(*each(3, 5, 2, tail=(4,), grad=True), **WHOLE)
def array_by_force(x):
    return x.numpy(force=True) * 2, (x * 2).numpy(force=True).sum(), x.detach().numpy(force=False)


@program(*[(torch.complex(t(n), t(n, seed=1)),) for n in (3, 5, 2)], **WHOLE)
def array_by_force_of_conjugates(x):
    return x.conj().numpy(force=True), x.imag.numpy(force=True)


# -- tables -----------------------------------------------------------------------------------------------------------
@program(*ROWS, world=True, before=lambda i, table: table.pop(torch.Tensor.cos) if i == 2 else None, breaks=0, captures=2)
def table_of_operators():
    """Keys that C code has made, each equal to itself alone: how many there are, and which, is guarded."""
    table = {torch.sin: 1, torch.ops.aten.cos: 2, torch.ops.aten.cos.default: 3, torch.Tensor.cos: 4, torch.Tensor.shape: 5}
    return (lambda x: (x * len(table), list(table.values()), torch.ops.aten.cos in table)), table


# -- other backends -----------------------------------------------------------------------------------------------------
def drawn(x):
    x = x.clone().random_(**{"from": -10, "to": 10})
    return x.random_(-10, to=10), x.clone().uniform_(**{"from": -1, "to": 2})


def distribution(x):
    return torch.distributions.Dirichlet(x.abs() + 1).rsample()


def without(x):
    return (x * 2).requires_grad_(False) + 1


#: `aot_eager` draws other numbers for `random_` of floats, and has no rule for draws of Dirichlet's.
OTHERS = {drawn: ["eager"], distribution: ["eager"], truths: ["eager", "aot_eager"], without: ["eager", "aot_eager"]}


@pytest.mark.parametrize("fn, backend", [(fn, backend) for fn, backends in OTHERS.items() for backend in backends])
def test_for_other_backends(fn, backend):
    """Arguments named `from`, which no line of Python says; an autograd function of a module of PyTorch's; truth values of data; a
    switch that is there already."""
    check(fn, *ROWS, breaks=0, options={"backend": backend})


# -- gradients given by hand ----------------------------------------------------------------------------------------------
def gradient_of_input(x):
    x.grad = torch.ones_like(x)
    z = x.grad * 3
    x.grad = x.grad + z
    return z, x.detach() * 2


def gradient_taken_away(x):
    before = x.grad is None
    x.grad = None
    return x.detach() + 1, before, x.grad is None


GIVEN = {f.__name__: f for f in (gradient_of_input, gradient_taken_away)}
programs(__name__, *ROWS, **WHOLE)(GIVEN)
programs(__name__, *each(3, 5, 2, tail=(4,), grad=True), **WHOLE)({f"d_{name}": f for name, f in GIVEN.items()})


@pytest.mark.parametrize("backend", ["native", "eager"])
def test_a_tensor_as_its_own_gradient(backend):
    def fn(x):
        x.grad = x

    compiled = pliant.compile(fn, backend=backend)
    for n in (3, 5):
        with pytest.raises(RuntimeError, match="own grad"):
            compiled(t(n))


# -- kept for the backward part -----------------------------------------------------------------------------------------
class Stashed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, z):
        ctx.b = b
        ctx.save_for_backward(a)
        return z + 1

    @staticmethod
    def backward(ctx, g):
        ctx.b.mul_(2)
        return None, None, g + 2 + ctx.saved_tensors[0]


@pytest.mark.parametrize("backend", ["native", "eager"])
def test_a_backward_that_writes_to_what_it_has_kept(backend):
    """Each run of the backward part writes: it is the program's, not the graph's, which failed to compile."""
    compiled = pliant.compile(Stashed.apply, backend=backend)
    for n in (3, 5, 2):
        b, z = torch.ones(n), torch.ones(n, requires_grad=True)
        out = compiled(torch.zeros(n), b, z)
        for k in (2, 4):
            (got,) = torch.autograd.grad(out.sum(), z, retain_graph=True)
            assert torch.equal(got, torch.full((n,), 3.0))
            assert torch.equal(b, torch.full((n,), float(k)))


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


class Plain:
    pass


def own(value):
    o = Plain()
    o.__torch_function__ = value
    return o


def kept(cls, func, types, args=(), kwargs=None):
    return [c.__name__ for c in types]


Kept = type("Kept", (torch.Tensor,), {"__torch_function__": classmethod(kept)})


def gains_one(x, o):
    asked = torch.overrides.is_tensor_like(o)
    o.__torch_function__ = kept
    return asked, torch.overrides.is_tensor_like(o), torch.overrides.has_torch_function((o,))


def loses_one(x, o):
    vars(o).clear()
    return torch.overrides.is_tensor_like(o), torch.overrides.has_torch_function_variadic(x, o)


ASKED = {
    "like": lambda x, o: torch.overrides.is_tensor_like(o),
    "one of them": lambda x, o: torch.overrides.has_torch_function((x, o)),
    "alone": lambda x, o: torch.overrides.has_torch_function_unary(o),
    "handled": lambda x, o: torch.overrides.handle_torch_function(torch.add, (o,), x, o),
    "a sum": lambda x, o: x + o,
    "a function": lambda x, o: torch.nn.functional.relu(o),
    "gained": gains_one,
    "lost": loses_one,
}
TOLD = [Plain, lambda: own(lambda *a, **k: 3), Plain, lambda: own(torch._C._disabled_torch_function_impl), lambda: own(lambda *a, **k: 5)]


@pytest.mark.parametrize("name", ASKED)
def test_objects_with_a_torch_function_of_their_own(name) -> None:
    def ask(x, o):
        try:
            return ASKED[name](x, o)
        except TypeError:
            return "none"

    f = compiled(ask)
    for make in (*TOLD, *TOLD):
        assert f(torch.ones(2), make()) == ask(torch.ones(2), make())


def test_functions_written_in_python_tell_of_plain_tensors_too() -> None:
    def normed(x, w):
        return torch.nn.functional.layer_norm(x, (2,), weight=w), torch.nn.functional.linear(x, w[None])

    f = compiled(normed)
    for x in (torch.ones(2).as_subclass(Kept), torch.ones(3, 2).as_subclass(Kept)):
        assert f(x, torch.ones(2)) == normed(x, torch.ones(2))
