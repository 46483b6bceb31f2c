"""Programs by feature, of PyTorch's own side: generators of random numbers, hooks, storages, weak references, higher-order operators,
subclasses. One graph each.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops import InvokeQuant, invoke_quant_packed
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.register_hook import register_hook_op
from torch._higher_order_ops.scan import scan

from tests.helpers import compiled
from tests.programs.registry import cases, each, program

F = nn.functional
ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}


# -- generators of random numbers ---------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def generator_made_here(x):
    g = torch.Generator().manual_seed(3)
    first = g.initial_seed()
    drawn = torch.randn(x.shape, generator=g), torch.randint(0, 5, (3,), generator=g), torch.randperm(x.shape[0], generator=g)
    state = g.get_state()
    other = torch.Generator(device="cpu")
    other.set_state(state)
    return drawn, first, state, torch.rand(2, generator=other), torch.rand(2, generator=g), g, g.device, type(g) is torch.Generator


@program(*ROWS, world=True, **WHOLE)
def generators_from_outside():
    a, b = torch.Generator().manual_seed(3), torch.Generator().manual_seed(4)
    held = {"a": a, "b": b, "again": a}

    def f(x):
        noise = [torch.randn(x.shape, generator=g) for g in held.values()]
        return noise, held["a"] is held["again"], x.clone().uniform_(generator=b), torch.multinomial(x.softmax(-1), 2, generator=a)

    return f, lambda: [g.get_state() for g in (a, b)]


@program(*[(x, torch.Generator().manual_seed(i)) for i, (x,) in enumerate(ROWS)], **WHOLE)
def generator_as_argument(x, g):
    return x + torch.rand_like(x, generator=g), g.get_state()


@program(*[(x, 7 + i) for i, (x,) in enumerate(ROWS)], breaks=0)
def generator_seeded_by_argument(x, seed):
    torch.manual_seed(seed)
    return x * torch.rand(x.shape, generator=torch.Generator().manual_seed(seed)) + torch.rand(x.shape)


@program(*ROWS, **WHOLE)
def generator_that_all_share(x):
    g = torch.default_generator
    state = g.get_state()
    a = torch.rand(x.shape, generator=g)
    g.set_state(state)
    return a, torch.rand(x.shape), torch.randn(3, generator=None), g.manual_seed(2) is g


@program(*ROWS)
def generator_that_all_share_over_a_break(x):
    g = torch.default_generator
    torch._dynamo.graph_break()
    return torch.rand(x.shape, generator=g), g.device


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = torch.Generator().manual_seed(1)
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x):
        keep = torch.bernoulli(torch.full_like(x, 0.5), generator=self.generator)
        start = nn.init.normal_(torch.empty(x.shape), generator=self.generator)
        return (x * keep * self.weight + nn.init.kaiming_uniform_(torch.empty(x.shape), generator=self.generator)).sin() + start


program(*GRADS, world=True, **BACK)(Noisy)


@program(*GRADS, grad=True)  # eager draws other numbers in the backward part: the graph breaks
def generator_in_a_checkpoint(x):
    g = torch.Generator().manual_seed(5)
    return torch.utils.checkpoint.checkpoint(lambda v: (v * torch.rand(v.shape, generator=g)).sin(), x, use_reentrant=False)


@program(*GRADS, grad=True)
def checkpoint_that_draws_anew(x):
    return torch.utils.checkpoint.checkpoint(lambda v: F.dropout(v.sin()), x, use_reentrant=False, preserve_rng_state=False)


@program(*ROWS, world=True, breaks=0)  # what was given its seed here comes back as one from outside
def generators_that_change_places():
    class Holder:
        generator = torch.Generator().manual_seed(0)

    held = Holder()

    def f(x):
        first = torch.rand(2, generator=held.generator)
        held.generator = torch.Generator().manual_seed(7)
        return first, torch.rand(2, generator=held.generator), [torch.rand(2, generator=held.generator) for _ in range(3)], x + 1

    return f, lambda: held.generator.get_state()


class Masked(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = torch.rand(x.shape, generator=torch.Generator().manual_seed(1)) > 0.5
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, g):
        return g * ctx.saved_tensors[0]


@program(*GRADS, **BACK)
def generator_in_a_function(x):
    return Masked.apply(x)


@program(*ROWS, world=True)
def generator_behind_a_branch_on_data():
    g = torch.Generator().manual_seed(0)

    def f(x):
        y = torch.rand(2, generator=g) if x.sum() > 0 else torch.zeros(2)
        return y + 1, torch.rand(1, generator=g)

    return f, lambda: g.get_state()


@program(*ROWS)
def generator_over_a_break(x):
    g = torch.Generator().manual_seed(5)
    method = g.get_state
    a = torch.rand(3, generator=g)
    print("between", a.shape)
    torch._dynamo.graph_break()
    return a, torch.rand(3, generator=g), x, method()


@program(*ROWS, world=True)
def generator_and_an_error_of_the_run():
    g = torch.Generator().manual_seed(5)

    def f(x):
        drawn = torch.rand(3, generator=g)
        return drawn if x.shape[0] != 5 else x[x.sum().long() + 100]

    return f, lambda: g.get_state()


# -- leaves from outside ------------------------------------------------------------------------------------------------
@program(*ROWS, **WHOLE)
def forces_of_positions(pos):
    pos.requires_grad_(True)
    energy = (pos.unsqueeze(0) - pos.unsqueeze(1)).pow(2).sum()
    (gradient,) = torch.autograd.grad(energy, pos)
    return energy.detach(), -gradient, pos.requires_grad


@program(*ROWS, **BACK)
def forces_that_are_trained(pos):
    pos.requires_grad = True
    energy = pos.pow(3).sum()
    (gradient,) = torch.autograd.grad(energy, pos, create_graph=True)
    return energy, gradient.pow(2).sum()


@program(*ROWS, **WHOLE)
def leaf_and_backward_inside(x):
    x.requires_grad_()
    (x * x).sum().backward()
    return x.grad


@program(*ROWS, breaks=0)
def leaf_alone(x):
    x.requires_grad_(True)
    return x.shape


@program(*[(x, x) for (x,) in ROWS], **BACK)
def leaf_given_twice(x, y):
    x.requires_grad_(True)
    return x * y, y.requires_grad


@program(*GRADS, **BACK)
def leaf_already(x):
    return x.requires_grad_() * 2, x.detach().requires_grad_(False)


@program(*[({"pos": x},) for (x,) in ROWS], **BACK)
def leaf_in_a_dict(d):
    d["pos"].requires_grad_(True)
    energy = d["pos"].sin().sum()
    return energy, torch.autograd.grad(energy, d["pos"], retain_graph=True)[0]


@program(*[(x, x + 1) for (x,) in ROWS], **BACK)
def two_leaves(a, b):
    a.requires_grad_(True)
    b.requires_grad = True
    return (a * b).sum(), a.view(-1)[1:], b[0] * 2


@program(*ROWS)
def leaf_for_a_while(x):
    x.requires_grad_(True)
    y = (x * x).sum()
    x.requires_grad_(False)
    return y


@program(*ROWS)
def leaf_behind_operations(x):
    y = x + 1
    x.requires_grad_(True)
    return y, x * 2


# -- hooks on leaves from outside ---------------------------------------------------------------------------------------
@program(*GRADS, **BACK)
def hooks_on_a_leaf(x):
    y = x.sin()
    x.register_hook(lambda g: g * 4)
    x.register_hook(lambda g: g / 2 + y)
    gone = x.register_hook(lambda g: g * 100)
    gone.remove()
    with x.register_hook(lambda g: g * 1000):
        z = y * x
    return z, x


@program(*GRADS, world=True, **BACK)
def hook_on_a_leaf_with_effects():
    seen = []

    def f(x):
        x.register_hook(lambda g: seen.append(g.clone()))
        x.register_post_accumulate_grad_hook(lambda p: seen.append(p.grad * 2))
        return (x * x).sum()

    return f, seen


@program(*GRADS)
def hook_on_a_leaf_and_backward_inside(x):
    x.register_hook(lambda g: g * 2)
    (x * x).sum().backward()
    return x.grad


@program(*GRADS[:1], world=True, grad=True)
def gradients_masked_by_hooks():
    m, mask = nn.Linear(4, 4), torch.tril(torch.ones(4, 4))
    nn.init.constant_(m.weight, 0.5), nn.init.zeros_(m.bias)

    def f(x):
        m.weight.register_hook(lambda g: g * mask)
        return m(x)

    return f, m.weight


def test_the_handle_of_a_hook_on_a_leaf():
    def f(x):
        return x * x, x.register_hook(lambda g: g * 2)

    x = torch.ones(3, requires_grad=True)
    y, handle = compiled(f, backend="native")(x)
    y.sum().backward(retain_graph=True)
    handle.remove()
    y.sum().backward()
    assert x.grad.tolist() == [6, 6, 6] and type(handle) is torch.utils.hooks.RemovableHandle


# -- conditions, regions, settings -----------------------------------------------------------------------------------------
@program(*GRADS, **BACK)
def cond_of_a_number(x):
    n = x.detach().abs().sum().item()
    return torch.cond(n > 5.0, lambda v: v * 2, lambda v: v.sin(), (x,))


@program(*GRADS, **BACK)
def region_made_here(x):
    @torch.compiler.nested_compile_region
    def region(a, b):
        return a @ b.t(), a.sin()

    y, z = region(x, x + 1)
    return y, region(z, x)[0]


@program(*ROWS, breaks=0)
def autocast_by_a_size(x):
    with torch.autocast("cpu", torch.bfloat16, enabled=x.shape[0] > 2):
        return x @ x.t()


# -- parameters that tell what they are quantized to ------------------------------------------------------------------------
class Packed(nn.Parameter):
    def __new__(cls, data, requires_grad=False, kind=None):
        return torch.Tensor._make_subclass(cls, data, requires_grad)

    def __init__(self, *args, kind=None, **kwargs):
        self.kind = kind

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), type(self)(self.as_tensor().clone(), kind=self.kind))

    def as_tensor(self):
        return torch.Tensor._make_subclass(torch.Tensor, self, self.requires_grad)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        kind = next((a.kind for a in args if isinstance(a, Packed)), None)
        return cls(out, kind=kind) if isinstance(out, torch.Tensor) else out


@program(*[(Packed(x, kind=4),) for (x,) in ROWS], breaks=0)  # sizes of parameters are constants
def parameters_of_a_kind(x):
    y = x * 2
    y = y + y.kind
    return y.as_tensor() * 3, y, isinstance(y, nn.Parameter), type(y) is Packed


# -- identity -----------------------------------------------------------------------------------------------------------
@program(*GRADS, world=True, **BACK)
def identities_of_parameters():
    first, second = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
    nn.init.constant_(first.weight, 0.5)
    second.weight = first.weight
    m, seen = nn.Sequential(first, second), {id(first.weight): "w"}

    def f(x):
        made = x + 1, x + 2
        return m(x), len({id(p) for p in m.parameters()}), seen[id(second.weight)], len({id(v) for v in (*made, made[0])})

    return f, m


class NoClassMethod(torch.Tensor):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@program(*ROWS)
def function_that_is_no_class_method(x):
    return (x.as_subclass(NoClassMethod) + 1).as_subclass(torch.Tensor)


@program(*ROWS)
def weak_key_that_is_a_tensor(x):
    held = weakref.WeakKeyDictionary({ONE: 3})
    return x, len(held), ONE in KEYED, KEYED.get(ONE, 0)


ONE = torch.ones(1)
KEYED = weakref.WeakKeyDictionary({ONE: 3})


# -- hooks on saved tensors that are disabled ------------------------------------------------------------------------------
GRAPH = torch.autograd.graph
MESSAGE = torch._C._autograd._saved_tensors_hooks_get_disabled_error_message


@program(*GRADS, **BACK)
def saved_hooks_disabled(x):
    with GRAPH.disable_saved_tensors_hooks("not here"):
        y = (x * 2).sin()
        with GRAPH.disable_saved_tensors_hooks("nor here"):
            inner = MESSAGE()
        return y, inner, MESSAGE()


@program(*GRADS, **BACK)
def saved_hooks_disabled_and_set(x):
    said = []
    for _ in range(2):
        try:
            with GRAPH.disable_saved_tensors_hooks("not here"), GRAPH.saved_tensors_hooks(lambda t: t, lambda t: t):
                said.append(x)
        except RuntimeError as e:
            said.append(str(e))
    with GRAPH.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
        return x.sin(), said, MESSAGE()


@program(*GRADS, **BACK)
def saved_hooks_disabled_under_hooks(x):
    with GRAPH.saved_tensors_hooks(lambda t: t, lambda t: t):
        try:
            with GRAPH.disable_saved_tensors_hooks("not here"):
                return x
        except RuntimeError as e:
            return x * len(str(e)), MESSAGE()


@program(*GRADS, grad=True)
def saved_hooks_disabled_around_a_break(x):
    with GRAPH.disable_saved_tensors_hooks("not here"):
        y = x.sin() if float(x.detach().sum()) > 0 else x.cos()
        said = MESSAGE()
    return y * 2, said, MESSAGE()


def test_hooks_that_are_disabled_outside():
    def program(x):
        try:
            with GRAPH.saved_tensors_hooks(lambda t: t * 2, lambda t: t / 2):
                return x * 3
        except RuntimeError as e:
            return str(e)

    fn = compiled(program)
    x = torch.ones(3, requires_grad=True)
    for message in (None, "out", None, "there", "out"):
        if message is None:
            assert torch.equal(fn(x), program(x))
        else:
            with GRAPH.disable_saved_tensors_hooks(message):
                assert fn(x) == program(x) == message


# -- higher-order operators of lists from outside, hints, NumPy in functions of autograd --------------------------------
PAIRS = [([x, x + 1], torch.ones(1)) for (x,) in ROWS]


@program(*PAIRS, breaks=0)
def map_over_a_list_from_outside(xs, y):
    def outer(inner, y):
        return torch_map(lambda v, y: [v[0].cos().add(y), v[1] * 2], [i[None] for i in inner], y)

    return torch_map(lambda v, y: [v[0].cos().add(y), v[1].sin()], xs, y), torch_map(outer, xs, y)


@program(*PAIRS, **WHOLE)
def cond_of_a_list_from_outside(xs, y):
    return torch.cond(y.sum() > 0, lambda a, b: a.sin() + b, lambda a, b: a - b, xs)


@program(*PAIRS, **WHOLE)
def scan_over_a_list_from_outside(xs, y):
    return scan(lambda carry, x: (carry + x[0].sum() + x[1].mean(), carry * x[1]), y.clone(), xs)


QUANT = InvokeQuant()


@program(*GRADS, **BACK)
def invoke_quant(x):
    return QUANT(lambda a, b: (a.sin() * b,), x, x * 2, scheme="nf4")[0] + QUANT(lambda a, k: a * k, x, k=3)


@program(*ROWS, **WHOLE)
def invoke_quant_as_an_operator(x):
    return invoke_quant_packed(lambda a, b: (a.sin() * b, a), x, x + 1, scheme="nf4")[0] * 2


@program(*GRADS, **BACK)
def hook_as_an_operator(x):
    y = x * 2
    z = register_hook_op(x.cos(), lambda g, w: g + w, y.detach())
    return register_hook_op(y, lambda g: g * 3).sin() + z


class CubedInNumPy(torch.autograd.Function):
    """Going forward no gradients are recorded: arrays share the memory of what requires them."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        a = x.numpy() ** 3
        return torch.tensor(a)

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * 3 * x * x


@program(*GRADS, **BACK)
def numpy_forward(x):
    return CubedInNumPy.apply(x * 2)


class Detaching(torch.autograd.Function):
    """What it saves for its backward part nothing but `detach` reads going forward."""

    @staticmethod
    def forward(ctx, x, inner):
        y = x.sin() if inner else x
        ctx.save_for_backward(y)
        return y.detach() ** 3

    @staticmethod
    def backward(ctx, g):
        (y,) = ctx.saved_tensors
        return g * 3 * y * y, None


@program(*GRADS, **BACK)
def detached_of_what_is_saved(x):
    return Detaching.apply(x * 2, False) + Detaching.apply(x, True), Detaching.apply(x.cos(), True)


class BackInNumPy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return torch.tensor(g.numpy() * np.cos(x.numpy()))


@program(*GRADS, grad=True, breaks=0)
def numpy_backward(x):
    return CubedInNumPy.apply(BackInNumPy.apply(x * 2)) + x


@program(*GRADS, grad=True, breaks=0)
def numpy_in_a_hook(x):
    y = x * 2
    y.register_hook(lambda g: torch.tensor(g.numpy() * 3))
    return y.sin()


@program(*GRADS, **BACK)
def numpy_without_recording(x):
    with torch.no_grad():
        scale = torch.from_numpy(np.abs(x.numpy())).max()
    return x / scale


@program(*GRADS)
def numpy_of_what_is_recorded(x):
    return (x * 2).numpy()


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_higher_features(case):
    case.run()
