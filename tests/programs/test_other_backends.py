"""A share of all programs through backends that are handed a graph: one that runs it node by node, and one that differentiates it itself.

PLIANT_TEST_BACKEND=eager (or aot_eager, checked) sends every program of every test through such a backend. Here is one program in
`EVERY` of those that are registered, with another start for each backend.
"""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._dynamo.backends.registry import lookup_backend
from torch._higher_order_ops.while_loop import while_loop
from torch.nn import functional as F

import pliant
from tests.helpers import check, interpreted
from tests.programs.registry import KNOWN, REGISTRY, Case, each, t

NOT_AS_EAGER = ("BatchNorm", "train_and_eval", "Switched", "_node", "packed_through_layers", "cond_backward_of_random_numbers",
                "gradients of a view of a dict")
"""Of `aot_eager`: it writes running statistics back with a copy, which versions tell (`train_and_eval` and `Switched` have some), its nodes
of autograd have names of their own, of packed sequences its shape functions ask for numbers that nobody knows, it draws again in the
backward part of a branch, and a graph whose backward part has run gives its memory away (what is asked for once more is refused)."""
REFUSED = {"function_for_autocast", "function_that_logs", "function_with_variables"}
REFUSED |= {"recurrent_dropped_between", "loss_multilabel_margin"}
"""An `autograd.Function` made inside, with variables of the function around it, breaks the graph there. The others are the backend's own
(`test_what_is_the_backend_s_own`)."""
EVERY = {"interpreted": (interpreted, 12), "aot_eager": ("aot_eager", 40)}


THEIR_OWN = ("test_copies_made", "test_leaves_made", "test_loops_of_backends")
"""Modules whose programs go through other backends where they are, without a break."""


def registered() -> Iterator[Case]:
    for path in sorted(pathlib.Path(__file__).parent.glob("test_*.py")):
        if path.stem != pathlib.Path(__file__).stem and path.stem not in THEIR_OWN:
            importlib.import_module(f"tests.programs.{path.stem}")
    for name in sorted(REGISTRY):
        if name.rpartition(".")[2] in THEIR_OWN:
            continue
        yield from REGISTRY[name]


def shares() -> list[Any]:
    programs = list(registered())
    return [
        pytest.param(case, backend, id=f"{case.fn.__module__.rpartition('.')[2]}-{case.name}-{name}")
        for name, (backend, every) in EVERY.items()
        for case in programs[every // 2 :: every]
        if case.name not in REFUSED | KNOWN.keys() and (name != "aot_eager" or not any([word in case.name for word in NOT_AS_EAGER]))
    ]


@pytest.mark.parametrize(("case", "backend"), shares())
def test_program(case, backend):
    one_node = {"between": False} if backend == "aot_eager" else {}  # a graph is one node to autograd, whatever its results come from
    case.run_through(backend, **one_node)


OF_THE_BACKEND = {
    "loss_multilabel_margin": lambda x: F.multilabel_margin_loss(x, torch.tensor([[0, 2, -1, 1]] * 3)),
    "recurrent_dropped_between": lambda x: torch.lstm(
        x[:, None], (t(2, 1, 4),) * 2, [t(16, 4) if n % 4 < 2 else t(16) for n in range(8)], True, 2, 0.5, True, False, False
    )[0],
    "results_from_results": lambda x: (lambda y: (y, y.log()))(x.exp()),
}


@pytest.mark.parametrize("name", OF_THE_BACKEND)
def test_what_is_the_backend_s_own(name):
    """The same calls, handed over by hand: another loss (PyTorch's Python code for it), other draws, gradients that skip a result. Where
    one is mended in PyTorch, its program goes from `REFUSED`."""
    graph = torch.fx.symbolic_trace(lambda x: (made if isinstance(made := OF_THE_BACKEND[name](x), tuple) else (made,)))
    answers = []
    for ask in (graph, lookup_backend("aot_eager")(graph, [t(3, 4, grad=True)])):
        torch.manual_seed(0)
        out = ask(t(3, 4, grad=True))
        first, *others = out
        if others:
            first.retain_grad()
            others[0].sum().backward()
        answers.append(first.grad if others else first.detach())
    assert answers[1] is None or not torch.allclose(*answers)


def test_an_operator_that_a_backend_does_not_take():
    """PyTorch has no shape function for it: the graph breaks there. This raised."""

    def fn(x):
        return torch.linalg.lstsq(x.T @ x + torch.eye(4), x.T * 2).solution + 1

    check(fn, *each(3, 5, 2, tail=(4,)), breaks=1, options={"backend": "aot_eager"})
    check(fn, *each(3, 5, 2, tail=(4,)), breaks=0, options={"backend": "eager"})


def test_an_operator_without_a_derivative():
    """A compiler that differentiates at once refuses it; eager does where gradients arrive."""

    def fn(x):
        return torch.linalg.ldl_factor(x.T @ x + 5 * torch.eye(4))[0] * 2

    check(fn, *each(3, 5, 2, tail=(4,), grad=True), grad=True, breaks=1, options={"backend": "aot_eager"})


# -- one operation for two ----------------------------------------------------------------------------------------------------
@torch.no_grad()
def without_any(x):
    return x.sin(), x.sin(), x.detach()[:, :2], x.detach()[:, :2]


TWICE = {
    "views": lambda x: (x.split(2, 1), x.chunk(2, 1)[1], x[:, 2:]),
    "results": lambda x: (x.sin(), x.sin(), x.shape[0], x.shape[0]),
    "written": lambda x: [(a.add_(1), b) for a, b in [(x.sin(), x.sin())]],
    "views_of_what_is_made": lambda x: [(y[:2], y[:2]) for y in [x.sin()]],
    "made": lambda x: (torch.zeros(2), torch.zeros(2), torch.ones(2)),
    "without_gradients": without_any,
}


@pytest.mark.parametrize("name", TWICE)
def test_what_is_done_twice(name):
    """Results are objects of their own, although a compiler does one operation for two that are alike."""
    for grad in (False, True):
        arg_sets = each(3, 5, 2, tail=(4,), grad=grad)
        check(TWICE[name], *arg_sets, grad=grad, between=name != "views_of_what_is_made", breaks=0, options={"backend": "aot_eager"})


# -- views made without gradients ----------------------------------------------------------------------------------------------
def view_shown(x):
    with torch.no_grad():
        return x.T, x[1:], x.view(-1)


def view_used(x):
    with torch.no_grad():
        v = x[:, :2]
    return (v * 2).sum(), v, x * 2


def view_hidden(x):
    with torch.no_grad():
        v = x[:, :2]
    return v + 1


def view_of_what_is_made(x):
    y = x.sin()
    with torch.no_grad():
        v = y[:, :2]
    return v * 3, y, v * x[:, 2:]


def view_switched(x):
    torch.set_grad_enabled(False)
    v = x[1:]
    torch.set_grad_enabled(True)
    return v, v + 1, x + 1


def backward_inside(x):
    with torch.no_grad():
        v = x[:, :2]
    (v * x[:, 1:3]).sum().backward()
    return v, x.grad, v.grad


WITHOUT = [view_shown, view_used, view_hidden, view_of_what_is_made, view_switched, backward_inside]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("fn", WITHOUT, ids=lambda fn: fn.__name__)
def test_a_view_without_gradients_of_what_has_some(fn, backend):
    """It says that it requires gradients, and so does what is made of it, and no gradients arrive anywhere. These were internal errors, and
    in graphs of our own what is made of it said that it has none."""
    check(fn, *each(3, 5, 2, tail=(4,), grad=True), grad=True, between=backend != "aot_eager", options={"backend": backend})


def test_backward_into_a_view_without_gradients():
    """From outside it looks like a leaf: it was given gradients."""

    def fn(v, w):
        (v * w).sum().backward()
        return v.grad, w.grad

    for first in (False, True):
        compiled = pliant.compile(fn)
        for n, plain in ((3, first), (5, first), (4, not first)):
            x, w = t(n, 4, grad=True), t(n, 2, grad=True)
            with torch.no_grad():
                v = x[:, :2]
            assert compiled(t(n, 2, grad=True) if plain else v, w)[0] is None or plain
            assert torch.equal(w.grad, t(n, 2) if plain else v) and v.grad is None
        pliant.reset()


def test_backward_that_comes_to_no_leaf():
    def fn(x):
        with torch.no_grad():
            v = x[:, :2]
        (v * 2).sum().backward()
        return x + 1

    check(fn, *each(3, 5, 2, tail=(4,), grad=True))


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_what_nobody_reads_of_an_input_that_nobody_reads(backend):
    target = pliant.compile(lambda x: x.shape == x.T.shape, backend=backend)
    assert [target(torch.ones(3, n)) for n in (4, 3, 5)] == [False, True, False]


@pytest.mark.parametrize("module, name, backend", [
    ("test_torch_features_operators", "custom_backward", "interpreted"), ("test_subclasses", "switched_off", "interpreted"),
    ("test_torch_features_numeric", "windows_of_a_number", "aot_eager"),
])  # fmt: skip
def test_what_others_would_lose(module, name, backend):
    """Gradients of an operator with a derivative of its own, and of a leaf that is made inside; a manager that is on at a graph break."""
    importlib.import_module(f"tests.programs.{module}")
    case = next(c for cases in REGISTRY.values() for c in cases if c.name == name and c.fn.__module__.endswith(module))
    case.run_through(EVERY[backend][0])


class Square(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * x

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, g):
        return 2 * ctx.saved_tensors[0] * g


def without_gradients(x):
    with torch.no_grad():
        return x * x


TRANSFORMED = {
    "gradient": lambda x: torch.func.grad(lambda v: v.sin().pow(2).sum())(x),
    "gradient_of_norms": lambda x: torch.func.grad(lambda v: F.layer_norm(v, (4,)).pow(3).sum())(x) * 2,
    "gradient_of_a_part_without": lambda x: torch.func.grad(lambda v: (v * without_gradients(v)).sum())(x),
    "hessian": lambda x: torch.func.hessian(lambda v: (v**3).sum())(x).sum() * x,
    "both_products": lambda x: torch.func.vjp(torch.sin, x)[1](x * 2)[0] + torch.func.jvp(torch.sin, (x,), (x,))[1],
    "batches_of_noise": lambda x: torch.vmap(lambda v: F.dropout(v, 0.5), randomness="different")(x),
    "writes_inside": lambda x: torch.vmap(lambda v: v.clone().mul_(2))(x) + torch.func.grad(lambda v: v.clone().mul_(3).sin_().sum())(x),
    "functionalized": lambda x: torch.func.functionalize(lambda v: v.clone().add_(1))(x),
    "a_gradient_per_row": lambda x: torch.vmap(torch.func.grad(lambda v: v.logsumexp(0)))(x) * x,
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms(name, backend):
    """In graphs for others a function transform is the operators that it comes to: one graph for all sizes, with and without gradients."""
    for grad in (False, True):
        arg_sets = [(t(n, 4, dtype=torch.float64, grad=grad),) for n in (3, 5, 2)]
        check(TRANSFORMED[name], *arg_sets, grad=grad, breaks=0, captures=1, options={"backend": backend})


def test_a_transform_of_an_autograd_function():
    def fn(x):
        return torch.func.grad(lambda v: Square.apply(v).sum())(x) + torch.vmap(Square.apply)(x)

    check(fn, *[(t(n, 4),) for n in (3, 5, 2)], breaks=0, captures=1, options={"backend": "eager"})


def test_a_transform_whose_gradients_have_no_derivative():
    """PyTorch raises where they are asked for. A compiler that differentiates the graph at once would raise before, and nobody asks."""

    def fn(x):
        q = x[None, None]
        return torch.func.grad(lambda v: F.scaled_dot_product_attention(v, v, v).sum())(q) * 2

    check(fn, *[(t(n, 4, grad=True),) for n in (3, 5, 2)], must_compile=False, options={"backend": "aot_eager"})


WEIGHTS = t(4, 4, seed=2, grad=True)


def of_two(x):
    y = x * 2
    return torch.cond(x.sum() > 0, lambda v: (v @ WEIGHTS + y, v.sum()), lambda v: (v @ WEIGHTS, v.mean()), [x])


BRANCHES = {
    "of_two": of_two,
    "nested": lambda x: torch.cond(
        x.sum() > 0, lambda v: torch.cond(v.max() > 1, lambda u: u * 2, lambda u: u * 3, [v]), lambda v: v - 1, [x]
    ),
    "of_sizes": lambda x: torch.cond(x.sum() > 0, lambda v: v + v.shape[0], lambda v: v * v.shape[1], [x]) * 2,
    "written_inside": lambda x: torch.cond(x.sum() > 0, lambda v: v.clone().mul_(2), lambda v: v.sin().cos(), [x]) + x,
    "of_variables": lambda x: torch.cond(x.sum() > 0, lambda: x + 1, lambda: x - 1, []),
    "noise": lambda x: torch.cond(x.sum() > 0, lambda v: F.dropout(v, 0.5), lambda v: v - 1, [x]),
}
SIGNED = [(3, 1), (3, -1), (5, 1), (2, -1)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", BRANCHES)
def test_branches_on_data(name, backend):
    """`torch.cond` is the operator of two graph modules that TorchDynamo makes of it, with gradients too; one graph for all sizes."""
    for grad in (False, True):
        arg_sets = [((t(n, 4).abs() * sign + sign).requires_grad_(grad),) for n, sign in SIGNED]
        check(BRANCHES[name], *arg_sets, grad=grad, breaks=0, captures=1, options={"backend": backend})


# -- inference mode ---------------------------------------------------------------------------------------------------------
def calm_beside_recorded(x):
    a = x.sin()
    with torch.inference_mode():
        b = x.cos().sum()
        with torch.inference_mode(False):
            c = x * 4
        d = x + 1
    return a * c.sum(), b, c.detach(), d, [v.is_inference() for v in (a, b, c, d)], torch.is_grad_enabled()


def calm_in_no_grad(x):
    with torch.no_grad():
        with torch.inference_mode():
            b = x * 2
        c = b.clone() * 3
    return x * 5, b, c


@torch.inference_mode()
def calmed(x):
    return F.relu(x).view(-1)


CALM = {
    "beside_recorded": calm_beside_recorded,
    "in_no_grad": calm_in_no_grad,
    "decorated": lambda x: (calmed(x), x * 2),
    "read_after": lambda x: x.detach() + calmed(x).sum(),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", CALM)
def test_inference_mode(name, backend):
    """Graphs of others are not run in it: they switch gradients off and on, and what was made in it is made an inference tensor."""
    for grad in (False, True):
        check(CALM[name], *each(3, 5, 2, tail=(4,), grad=grad), grad=grad, breaks=0, captures=1, options={"backend": backend})


# -- another default dtype, leaves inside ---------------------------------------------------------------------------------------
def made_as_double(x):
    torch.set_default_dtype(torch.float64)
    y = torch.ones(3) * 2, torch.tensor(1.5), torch.linspace(0, 1, x.shape[0]), torch.arange(3.0), torch.rand(2)
    torch.set_default_dtype(torch.float32)
    return y, x * 1.5, torch.zeros(2)


def divided_as_double(x):
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        return x * torch.full((4,), 0.5) + torch.eye(4)[0], x + 1
    finally:
        torch.set_default_dtype(before)


def left_as_double(x):
    torch.set_default_dtype(torch.float64)
    return torch.zeros(x.shape[0], 2) + x[:, :2]


def gradient_of_a_leaf(x):
    p = x.detach().requires_grad_()
    (g,) = torch.autograd.grad((p.sin() * 3).sum(), p)
    return x * g, g


def gradient_of_a_parameter(x):
    w = torch.nn.Parameter(torch.full((4,), 2.0))
    (x.detach() @ w).pow(2).sum().backward()
    return x * w.grad, w.detach() * 3


def steps_of_a_leaf(x):
    p = torch.zeros(4, requires_grad=True)
    for _ in range(3):
        (g,) = torch.autograd.grad(((x.detach() - p) ** 2).mean(), p)
        p = (p - 0.1 * g).detach().requires_grad_()
    return x - p.detach()


INSIDE = [made_as_double, divided_as_double, left_as_double, gradient_of_a_leaf, gradient_of_a_parameter, steps_of_a_leaf]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", INSIDE, ids=lambda fn: fn.__name__)
def test_inside_of_graphs_for_others(fn, backend):
    """Calls under another default dtype stand as the operators that they came to, which say it; leaves that nobody sees are values."""
    for grad in (False, True):
        try:
            check(fn, *each(3, 5, 2, tail=(4,), grad=grad), grad=grad, between=False, breaks=0, options={"backend": backend})
        finally:
            torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_recurrent_networks_whose_input_has_no_gradients(kind):
    """Of an LSTM AOTAutograd raises where it runs: it is no part of such a graph."""
    torch.manual_seed(0)
    check(kind(4, 3), *[(t(n, 2, 4),) for n in (3, 5)], grad=True, between=False, options={"backend": "aot_eager"})


def fused_steps(x):
    w = torch.ones(4, requires_grad=True)
    (x.detach() * w).sum().backward()
    torch.optim.Adam([w], lr=0.1, fused=True).step()
    return w.detach() * 1


def loop_in_a_branch(x):
    def rounds(v):
        return while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 2), (torch.tensor(0), v))[1]

    return torch.cond(x.sum() > 0, rounds, torch.sin, (x,))


@pytest.mark.parametrize("fn", [fused_steps, loop_in_a_branch])
def test_what_others_do_not_take(fn):
    """These were errors of the backend's."""
    check(fn, *each(3, 5, 2, tail=(4,)), options={"backend": "aot_eager"})


# -- asked only about its layout ------------------------------------------------------------------------------------------------
ASKED = {
    "data": lambda x: (x.data.stride(), x.data.storage_offset(), x.data.is_leaf),
    "view_of_data": lambda x: (x.data.t().stride(), x.shape),
    "detached": lambda x: (x.detach().stride(), x.detach().requires_grad),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_tensor_that_is_asked_only_about_its_layout(name):
    """It is no input of the graph, and what asks is not in it: this failed to compile."""
    check(ASKED[name], *each(3, 5, 2, tail=(4,)), breaks=0, options={"backend": "eager"})


# -- branches, seen from there ----------------------------------------------------------------------------------------------------
def test_a_branch_as_others_see_it():
    """The sides are modules of the graph's, which hold nothing of the capture."""
    seen = []

    def keep(graph, inputs):
        seen.append(graph)
        return graph.forward

    pliant.compile(of_two, backend=keep, fullgraph=True)(t(3, 4))
    (graph,) = seen
    branch = next(n for n in graph.graph.nodes if n.target is torch.ops.higher_order.cond)
    sides = [getattr(graph, side.target) for side in branch.args[1:3]]
    assert all(isinstance(side, torch.fx.GraphModule) for side in sides)
    assert not any(n.meta for side in sides for n in side.graph.nodes)


def test_a_branch_that_gives_other_sizes():
    def fn(x):
        return torch.cond(x.sum() > 0, lambda v: v[:1] + 1, lambda v: v[:2] - 1, [x])

    for backend in ("eager", "aot_eager"):
        check(fn, *[(t(n, 4).abs() * sign + sign,) for n, sign in SIGNED], breaks=0, options={"backend": backend})


def adds_to_numbers(x, n):
    c = n
    c += x
    d = 0
    d += c
    m = n
    m *= d  # a graph that says so by writing to `n` has another `n` behind it
    return c, d, m, x * n, {"k": 2.5}.pop("k") - x


@pytest.mark.parametrize("backend", ["eager", "aot_eager", interpreted])
def test_augmented_assignments_to_numbers(backend):
    fn = pliant.compile(adds_to_numbers, backend=backend, fullgraph=True)
    for n in (3, 4, 5, 6):
        x = torch.arange(n) / 7
        for a, b in zip(fn(x, n), adds_to_numbers(x, n), strict=True):
            torch.testing.assert_close(a, b)


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, layers, k):
        ctx.k = k
        with torch.no_grad():
            for layer in layers:
                x = layer(x)
        return x * k

    @staticmethod
    def backward(ctx, g):
        return g * ctx.k * 2, None, None


@pytest.mark.parametrize("backend", ["eager", "aot_eager", interpreted])
def test_an_autograd_function_that_is_given_an_object(backend):
    layers = torch.nn.ModuleList([torch.nn.Linear(4, 4) for _ in range(2)])

    def program(x, k):
        return Reversible.apply(x * 2, layers, k).sin() + 1

    fn = pliant.compile(program, backend=backend, strict=True)
    for n in (2, 3, 4):
        for gradients in (False, True):
            x = torch.randn(n, 4, requires_grad=gradients)
            a, b = fn(x, n), program(x, n)
            torch.testing.assert_close(a, b)
            if gradients:
                torch.testing.assert_close(*[torch.autograd.grad(y.sum(), x) for y in (a, b)])
    assert 0 < pliant.stats()["graph_breaks"] <= 2 and not pliant.stats()["fallbacks"]
