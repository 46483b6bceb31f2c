"""Subclasses of tensors: `__torch_function__` classes and modes, objects that are no tensors, `__torch_dispatch__` wrappers.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils._pytree import tree_leaves, tree_map_only

import pliant
from tests.helpers import compiled, own_backend
from tests.programs.registry import cases, each, program, t

aten = torch.ops.aten
ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
WHOLE = {"breaks": 0, "captures": 1}


# -- classes that are told of torch functions ----------------------------------------------------------------------------
class Logged(torch.Tensor):
    """Writes down what it is told."""

    calls: list = []
    tag = "logged"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})

    def twice(self):
        return self * 2

    @property
    def half(self):
        return self / 2

    @classmethod
    def of(cls, x):
        return x.as_subclass(cls)


class Swapped(torch.Tensor):
    """Says nothing about torch functions, and has an operator and a method of its own."""

    def extra(self):
        return self.sum() + 1

    def __add__(self, other):
        return torch.mul(self, other)


class Marked(torch.Tensor):
    """Carries a number, which one torch function uses."""

    @staticmethod
    def __new__(cls, x, scale=1.0):
        return torch.Tensor._make_subclass(cls, x)

    def __init__(self, x, scale=1.0):
        self.scale = scale

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.add or func is torch.Tensor.add:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **kwargs) * args[0].scale
        return super().__torch_function__(func, types, args, kwargs)


class Refusing(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is torch.sub:
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs or {})


class Untold(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Held:
    """No tensor, but torch functions are told of it."""

    def __init__(self, x):
        self.x = x

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*[a.x if isinstance(a, Held) else a for a in args], **(kwargs or {}))


class Shifted(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out + 1 if func is torch.sin else out


@program(*GRADS, grad=True, **WHOLE)
def attributes(x):
    Logged.calls.clear()
    y = x.as_subclass(Logged)
    parts = y.shape, y.ndim, y.dtype, y.tag, y.half, y.T, Logged.of(x).twice(), y.requires_grad, y.device
    return parts, list(Logged.calls)


@program(*GRADS, grad=True, **WHOLE)
def functions_in_python(x):
    Logged.calls.clear()
    y = x.as_subclass(Logged)
    labels = torch.zeros(x.shape[0], dtype=torch.long)
    out = F.layer_norm(y, (4,)), F.softmax(y, -1), F.dropout(y, 0.0), F.cross_entropy(y, labels), F.linear(y, x), 2 - y, y**2
    return out, list(Logged.calls)


@program(*GRADS, grad=True, **WHOLE)
def operators(x):
    Logged.calls.clear()
    y = x.as_subclass(Logged)
    out = y @ y.t(), y > 0, -y, y.sum(0).argmax(), torch.stack([y, y]), torch.where(y > 0, y, x), y.mean(dim=0, keepdim=True)
    return out, list(Logged.calls)


@program(*GRADS, grad=True, **WHOLE)
def written_in_place(x):
    Logged.calls.clear()
    y = x.clone().as_subclass(Logged)
    y.add_(1)
    y[0] = 3
    y += x
    return y, y[1], len(y), list(Logged.calls)


@program(*GRADS, grad=True, breaks=0)  # how many rows there are is pinned
def rows(x):
    Logged.calls.clear()
    y = x.as_subclass(Logged)
    return [r * 2 for r in y], list(Logged.calls)


@program(*GRADS, grad=True, **WHOLE)
def default_function(x):
    y = x.as_subclass(Swapped)
    return y.extra(), y + 2, y - 1, y.view(-1), type(y.sum()) is Swapped, isinstance(y * 2, Swapped), Swapped(x).extra()


@program(*GRADS, grad=True, **WHOLE)
def carries_a_number(x):
    m = Marked(x, 3.0)
    m.other = [1]
    return m + 1, torch.add(m, x), m * 2, m.scale, m.other, m


@program(*ROWS, **WHOLE)
def nobody_answers(x):
    try:
        return torch.sub(x.as_subclass(Refusing), 1)
    except TypeError:
        return x + 1


@program(*GRADS, grad=True, **WHOLE)
def untold(x):
    y = x.as_subclass(Untold)
    return y + 1, y, type(y.sin()) is torch.Tensor


class WithMore(torch.Tensor):
    __slots__ = ("more",)


@program(*GRADS, grad=True, breaks=(1, 9))  # objects with slots are made by PyTorch alone
def slotted(x):
    y = (x + 1).as_subclass(WithMore)
    return y, y * 2


@program(*GRADS, grad=True, **WHOLE)
def views_and_bases(x):
    y = (x + 1).as_subclass(Untold)
    z = y * 2
    given = x.as_subclass(Untold)
    return y, z, given, y.as_subclass(torch.Tensor), [(t._is_view(), t.is_leaf) for t in (y, z, given)]


@program(*GRADS, grad=True, **WHOLE)
def no_tensors(x):
    h = Held(x)
    return torch.add(h, 1), F.relu(h), torch.cat([h.x, x])


@program(*GRADS, grad=True, **WHOLE)
def modes_nested(x):
    with Shifted():
        y = torch.sin(x)
        with Shifted():
            y = y + torch.sin(x.as_subclass(Swapped))
    return y


@program(*GRADS, grad=True, **WHOLE)
def switched_off(x):
    Logged.calls.clear()
    y = x.as_subclass(Logged)
    with torch._C.DisableTorchFunctionSubclass():
        z = y * 2
    return z, type(z) is torch.Tensor, y * 3, list(Logged.calls)


@program(*ROWS, world=True, **WHOLE)
def from_outside():
    held = t(4, seed=2).as_subclass(Logged)
    marked = Marked(t(4, seed=3), 2.0)
    return lambda x: ((x * held + held.twice()).as_subclass(torch.Tensor).sum(0), marked + x, held)


@program(*GRADS, grad=True)
def left_at_a_break(x):
    y = x.as_subclass(Logged) * 2
    pliant.graph_break()
    return y + 1, type(y) is Logged


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
@own_backend
def test_program(case):
    case.run()


# -- wrappers --------------------------------------------------------------------------------------------------------------
class Scaled(torch.Tensor):
    """A tensor times a number, some operators of which change the number alone. Others work on the product."""

    @staticmethod
    def __new__(cls, data, scale, depth=0):
        return torch.Tensor._make_wrapper_subclass(cls, data.shape, dtype=data.dtype, device=data.device, strides=data.stride())

    def __init__(self, data, scale, depth=0):
        super().__init__()
        self.inner = data
        self.scale = scale
        self.depth = depth

    def __tensor_flatten__(self):
        return ["inner"], (self.scale, self.depth)

    @staticmethod
    def __tensor_unflatten__(parts, rest, size, stride):
        return Scaled(parts["inner"], *rest)

    def dense(self):
        return self.inner * self.scale

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is aten.mul.Tensor and isinstance(args[0], Scaled) and isinstance(args[1], (int, float)):
            return Scaled(args[0].inner, args[0].scale * args[1], args[0].depth)
        if func in (aten.t.default, aten.detach.default, aten.clone.default, aten.view.default, aten.alias.default):
            return Scaled(func(args[0].inner, *args[1:], **kwargs), args[0].scale, args[0].depth + 1)
        return func(*tree_map_only(Scaled, Scaled.dense, args), **tree_map_only(Scaled, Scaled.dense, kwargs))


class Quantized(torch.Tensor):
    """Int8 rows with a scale each, of which a table says what operators do."""

    TABLE: dict = {}

    @staticmethod
    def __new__(cls, q, scales, dtype, transposed=False):
        shape = q.shape[::-1] if transposed else q.shape
        return torch.Tensor._make_wrapper_subclass(cls, shape, dtype=dtype, device=q.device)

    def __init__(self, q, scales, dtype, transposed=False):
        self.q, self.scales, self.transposed = q, scales, transposed

    @classmethod
    def of(cls, w):
        scales = w.abs().amax(1, keepdim=True) / 127
        return cls((w / scales).round().to(torch.int8), scales, w.dtype)

    def dense(self):
        w = self.q.to(self.dtype) * self.scales
        return w.t() if self.transposed else w

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return cls.TABLE[func](func, *args, **(kwargs or {}))


def same_kind(func, x):
    return Quantized(x.q, x.scales, x.dtype, x.transposed ^ (func is aten.t.default))


def on_dense(func, *args):
    return func(*[a.dense() if isinstance(a, Quantized) else a for a in args])


Quantized.TABLE.update({aten.t.default: same_kind, aten.detach.default: same_kind, aten.mm.default: on_dense, aten.addmm.default: on_dense})


def compare(want, got, where=""):
    assert type(want) is type(got), (where, type(want), type(got))
    if isinstance(want, torch.Tensor):
        for name in ("shape", "dtype", "requires_grad", "device", "layout"):
            assert getattr(want, name) == getattr(got, name), (where, name, getattr(want, name), getattr(got, name))
        assert want.stride() == got.stride(), (where, want.stride(), got.stride())
        if type(want) in (torch.Tensor, nn.Parameter):
            torch.testing.assert_close(want, got)
        compare(want.__dict__, got.__dict__, where)
        if want.is_leaf and want.requires_grad:
            compare(want.grad, got.grad, f"{where}.grad")
    elif isinstance(want, (list, tuple)):
        assert len(want) == len(got), where
        for i, (a, b) in enumerate(zip(want, got)):
            compare(a, b, f"{where}[{i}]")
    elif isinstance(want, dict):
        assert list(want) == list(got), (where, list(want), list(got))
        for k in want:
            compare(want[k], got[k], f"{where}[{k!r}]")
    else:
        assert want == got, (where, want, got)


def fresh(x, grad):
    """A copy with or without gradients."""
    made = TwoTensor(x.a.clone(), x.b.clone()) if isinstance(x, TwoTensor) else x.clone()
    return made.requires_grad_(grad)


def total(value):
    terms = [(x * x).sum() for x in tree_leaves(value) if isinstance(x, torch.Tensor) and x.requires_grad]
    return sum(terms) if terms else None


def run(fn, calls, grads, captures=1, breaks=0):
    """Eager and compiled, over calls with other sizes, forward and backward."""
    pliant.reset()
    before = pliant.stats()
    target = compiled(fn)
    for args in calls:
        sides = [[fresh(x, g) for x, g in zip(args, grads)] for _ in range(2)]
        results = [fn(*sides[0]), target(*sides[1])]
        compare(*results, "result")
        for loss in map(total, results):
            if loss is not None:
                loss.backward()
        compare(*sides, "arguments")
        assert [x._version for x in sides[0]] == [x._version for x in sides[1]]
    stats = {k: pliant.stats()[k] - before[k] for k in ("captures", "graph_breaks", "fallbacks")}
    assert stats == {"captures": captures, "graph_breaks": breaks, "fallbacks": 0}


def two(n, seed=0):
    return TwoTensor(t(n, 4, seed=seed), t(n, 4, seed=seed + 7))


TWO = [(two(n), t(n, 4, seed=3)) for n in (3, 5, 7)]
PLAIN = [(t(n, 4, seed=3),) for n in (3, 5, 7)]

OF_TWO = {
    "results": lambda x, y: (x * 2 + y, (x * 2).sin(), x),
    "parts": lambda x, y: (x.a + 1, x.b, x.get_elem_a() * 2, (x * 2).a),
    "products": lambda x, y: ((x @ y.t()).relu().sum(0), F.linear(y, x), F.linear(y, x).a),
    "views": lambda x, y: (x.view(-1), x.t(), x[0], x[:, 1:].sum(1), x.split(2, 1), len(x), list(x[:2])),
    "made": lambda x, y: (TwoTensor(y, y + 1) * x, TwoTensor(y, y).b),
    "questions": lambda x, y: (isinstance(x, TwoTensor), type(x) is TwoTensor, x.shape, x.dtype, x.stride(), x.is_leaf, hasattr(x, "c")),
    "functions_in_python": lambda x, y: (F.layer_norm(x, (4,)), F.softmax(x, -1), F.gelu(x), F.mse_loss(x, x * 2), torch.cat([x, x])),
    "factories": lambda x, y: (torch.zeros_like(x), x.new_ones(3), x.detach(), x.clone(), x.to(torch.float64), x.contiguous() is x),
    "sizes": lambda x, y: (x.reshape(x.shape[0] * 2, 2), x.numel(), x.expand(2, -1, -1).mean(1)),
}


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "gradients"])
@pytest.mark.parametrize("name", OF_TWO)
@own_backend
def test_two_tensors(name, grad):
    run(OF_TWO[name], TWO, (grad, False))


def inside(x):
    y = Scaled(x, 2.0)
    return y.dense() + 1, y * 3, (y * 3).scale, y + x, F.linear(x, y), y @ x.t(), y.t(), y.view(-1).depth


def nested(x):
    y = TwoTensor(Scaled(x, 2.0), Scaled(x, 3.0))
    return y + 1, y * 2, (y * 2).a.scale


def sized(x):
    y = Scaled(x, x.shape[0])
    return y * 2, y.sum()


def attributes_set(x):
    y = TwoTensor(x, x + 1)
    y.extra, y.kept = 5, [1]
    return y, y.extra, getattr(y, "nope", 3)


def without_gradients(x):
    y = TwoTensor(x * 1, x + 1) * 2
    with torch.no_grad():
        z = y * 2
    return z, z.requires_grad, F.mse_loss(y.detach(), z)


@pytest.mark.parametrize("grad", [False, True], ids=["plain", "gradients"])
@pytest.mark.parametrize("fn", [inside, nested, sized, attributes_set, without_gradients], ids=lambda fn: fn.__name__)
@own_backend
def test_wrappers_made_inside(fn, grad):
    run(fn, PLAIN, (grad,))


@own_backend
def test_writes_to_what_is_wrapped():
    def write(x, y):
        x.add_(y)
        x.a.mul_(2)
        x[0] = 1
        return x * 2

    run(write, TWO, (False, False))


@own_backend
class Called(torch.Tensor):
    names: list = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        Called.names.append(getattr(fn, "__name__", str(fn)))  # a text with an address: the graph breaks
        return super().__torch_function__(fn, types, args, kwargs or {})


def test_arguments_of_the_default_behind_a_break():
    """They are numbers that are others in each call, in a dict and a tuple that come through the break."""
    for fn in (lambda x, p: x.norm(p=p), lambda x, p: torch.nn.functional.dropout(x, p=p / 9), lambda x, p: x.clamp(0, p / 9)):
        target = compiled(fn)
        for k in range(4):
            x = torch.rand(3, 4)
            results = []
            for f in (fn, target):
                torch.manual_seed(k)
                results.append(f(x.clone().as_subclass(Called), 1.5 + k).as_subclass(torch.Tensor))
            assert torch.allclose(*results), k


def test_a_break_between():
    def broken(x, y):
        z = x * 2
        pliant.graph_break()
        return z + x

    run(broken, TWO, (False, False), captures=2, breaks=1)
    run(broken, TWO, (True, False), captures=2, breaks=1)


@own_backend
def test_what_the_class_is_told_is_guarded():
    """Other metadata of a wrapper is another graph, and never the answer of this one."""
    target = compiled(lambda x: x * 2 + 1)
    for scale, n in itertools.product((2.0, 3.0, 2.0), (3, 5)):
        x = t(n, 4)
        compare(Scaled(x, scale) * 2 + 1, target(Scaled(x, scale)))
    x = Scaled(t(3, 4), 2.0)
    compare(x * 2 + 1, target(x))
    x.scale = 5.0
    compare(x * 2 + 1, target(x))
    x.inner = t(3, 4, seed=5).to(torch.float64)
    compare(x * 2 + 1, target(x))


@own_backend
def test_quantized_weights():
    layers = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3))
    for layer in (layers[0], layers[2]):
        layer.weight = nn.Parameter(Quantized.of(layer.weight.detach()), requires_grad=False)
    run(lambda x: layers(x), PLAIN, (False,))
    for p in layers.parameters():
        p.requires_grad_(False)
    run(lambda x: layers(x), PLAIN, (True,))


@own_backend
def test_training_of_wrapped_parameters():
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    for layer, name in itertools.product((layers[0], layers[2]), ("weight", "bias")):
        p = getattr(layer, name).detach()
        setattr(layer, name, nn.Parameter(TwoTensor(p, p * 2)))

    def train(compile_):
        net = copy.deepcopy(layers)
        step = compiled(net) if compile_ else net
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        losses = []
        for n in (3, 5, 7, 5):
            optimizer.zero_grad()
            loss = step(t(n, 4)).sum()
            loss.backward()
            losses.append(loss.detach())
            optimizer.step()
        return losses, [p.detach() for p in net.parameters()]

    pliant.reset()
    before = pliant.stats()
    compare(train(False), train(True))
    assert pliant.stats()["captures"] - before["captures"] == 1
    assert pliant.stats()["fallbacks"] == before["fallbacks"]


@own_backend
def test_the_gradient_of_a_plain_tensor_that_would_be_a_wrapper_breaks_the_graph():
    def mixed(x, y):
        return x * y

    target = compiled(mixed)
    for n in (3, 5):
        sides = [(two(n), t(n, 4, grad=True)) for _ in range(2)]
        results = [mixed(*sides[0]), target(*sides[1])]
        compare(*results)
        for r in results:
            r.sum().backward()
        compare(sides[0][1].grad, sides[1][1].grad)
    assert pliant.stats()["fallbacks"] == 0


class Tagged(nn.Parameter):
    def __new__(cls, data, tag=1):
        made = torch.Tensor._make_subclass(cls, data, True)
        made.tag = tag
        return made


@own_backend
def test_parameters_of_a_subclass():
    torch.manual_seed(0)
    layer = nn.Linear(4, 3)
    layer.weight = Tagged(layer.weight.detach().clone(), 5)

    def scaled(x):
        return (layer(x) * layer.weight.tag).sum()

    pliant.reset()
    before = pliant.stats()
    target = compiled(scaled)
    for n in (3, 5, 7):
        found = []
        for f in (scaled, target):
            layer.zero_grad()
            f(t(n, 4)).backward()
            found.append((layer.weight.grad, layer.bias.grad))
        compare(*found)
    layer.weight.tag = 2
    compare(scaled(t(3, 4)), target(t(3, 4)))
    assert type(layer.weight) is Tagged
    assert pliant.stats()["graph_breaks"] == before["graph_breaks"]


# -- the backward part -----------------------------------------------------------------------------------------------------
SETTINGS = {"scale": 2.0, "seen": None}


class Scaling(torch.Tensor):
    """Its operators read the world, some of them in the backward part alone."""

    @staticmethod
    def __new__(cls, a):
        made = torch.Tensor._make_wrapper_subclass(cls, a.shape, strides=a.stride(), dtype=a.dtype, requires_grad=a.requires_grad)
        made.a = a
        return made

    def __tensor_flatten__(self):
        return ["a"], None

    @staticmethod
    def __tensor_unflatten__(parts, rest, sizes, strides):
        return Scaling(parts["a"])

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        out = func(*[x.a if isinstance(x, Scaling) else x for x in args], **(kwargs or {}))
        if func is torch.ops.aten.cos.default:
            if SETTINGS["seen"] is not None:
                SETTINGS["seen"].append(func)
            out = out * SETTINGS["scale"]
        return Scaling(out)


def gradient_of(fn, n):
    x = Scaling(torch.arange(float(n))).requires_grad_()
    (g,) = torch.autograd.grad(fn(x), x, Scaling(torch.ones(n)))
    return g.a


@own_backend
def test_backward_part_is_guarded(monkeypatch):
    fn = compiled(lambda x: x.sin())
    for n, scale in ((4, 2.0), (6, 2.0), (5, 5.0), (4, 7.0), (6, 5.0), (3, 2.0)):
        monkeypatch.setitem(SETTINGS, "scale", scale)
        torch.testing.assert_close(gradient_of(fn, n), gradient_of(torch.sin, n))


@own_backend
def test_backward_part_that_changes_the_world(monkeypatch):
    fn = compiled(lambda x: x.sin())
    for n in (4, 6, 5):
        monkeypatch.setitem(SETTINGS, "seen", [])
        torch.testing.assert_close(gradient_of(fn, n), gradient_of(torch.sin, n))
        assert len(SETTINGS["seen"]) == 2


class Slotted(torch.Tensor):
    """A wrapper that keeps its part in a slot, where the guards do not look (as `DTensor` does)."""

    __slots__ = ("part",)

    @staticmethod
    def __new__(cls, part):
        made = torch.Tensor._make_wrapper_subclass(cls, part.shape, strides=part.stride(), dtype=part.dtype)
        made.part = part
        return made

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        out = func(*[x.part if isinstance(x, Slotted) else x for x in args], **(kwargs or {}))
        return Slotted(out) if isinstance(out, torch.Tensor) else out


@own_backend
def test_parts_in_slots():
    fn = compiled(lambda x, y: ((x * 2).part + y, x.part is y))
    start = pliant.stats()
    for n in (3, 5, 2):
        y = torch.arange(float(n))
        value, same = fn(Slotted(y), y)
        assert torch.equal(value, y * 3) and same
    assert pliant.stats()["fallbacks"] == start["fallbacks"]


@own_backend
@pytest.mark.parametrize("held", [False, True])
def test_results_have_their_parts_in_slots(held):
    def made(y, note):
        w = Slotted(y + 1)
        if held:
            w.note = note  # beside the slot, in the `__dict__`
        return w * 2, w

    fn = compiled(made)
    for n, note in ((3, "a"), (5, "b"), (2, "c")):
        y = torch.arange(float(n))
        out, w = fn(y, note)
        assert type(out) is type(w) is Slotted and torch.equal(out.part, (y + 1) * 2) and torch.equal(w.part, y + 1)
        assert vars(w) == ({"note": note} if held else {}) and vars(out) == {}
        assert torch.equal((w + 1).part, y + 2)


class Watching(torch.Tensor):
    """A class whose own function is told of everything, and changes nothing."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


class Named(torch.Tensor):
    pass


def classes(value):
    return [type(value).__name__, *map(classes, value)] if isinstance(value, tuple | list) else type(value).__name__


@pytest.mark.parametrize("kind", [Named, Watching])
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: (x.max(0), torch.sort(x, 1), torch.topk(x, 2).indices, x.aminmax(), torch.linalg.qr(x)),
        lambda x: (torch.unique(x), torch.unique(x, return_inverse=True), torch.unique(x, False, False, True)),
        lambda x: (torch.unique_consecutive(x), torch.unique_consecutive(x, True, True)),
        lambda x: (torch.split(x, 1), x.unbind(), torch.meshgrid(x[0], x[1], indexing="ij"), torch.broadcast_tensors(x, x[0])),
    ],
)
def test_results_have_the_class_also_in_named_tuples_and_behind_a_choice_of_functions(kind, fn) -> None:
    x = torch.tensor([[-1.5, 0.25, 0.5], [2.0, 0.25, -3.0]])
    want, ours = fn(x.as_subclass(kind)), compiled(fn)
    for _ in range(2):
        got = ours(x.as_subclass(kind))
        assert classes(got) == classes(want)


@pytest.mark.parametrize("kind", [Named, Watching])
def test_the_memory_behind_a_tensor_of_a_class_is_of_that_class(kind) -> None:
    def plain(x):
        return x.data, x.data + 1, x.data.add_(1), x

    def written(x):
        d = x.data
        d.mul_(2)
        return d, d._version, x._version, x

    def assigned(x):
        y = x + 1
        y.data = x * 2
        return y, y.data, y._version

    def told(value):
        return [(type(v), v.tolist(), v._version) if isinstance(v, torch.Tensor) else v for v in value]

    for fn in (plain, written, assigned):
        ours = compiled(fn)
        for _ in range(2):
            want, got = (told(f(torch.tensor([1.0, 2.0]).as_subclass(kind))) for f in (fn, ours))
            assert got == want


@pytest.mark.parametrize("kind", [Named, Watching])
def test_what_is_made_in_inference_mode_is_of_it_in_every_class(kind) -> None:
    def fn(x):
        y = x + 1
        with torch.inference_mode():
            z = y * 2
        return y, z

    ours = compiled(fn)
    for _ in range(2):
        want, got = (f(torch.ones(2).as_subclass(kind)) for f in (fn, ours))
        assert [(type(t), t.is_inference(), t.tolist()) for t in got] == [(type(t), t.is_inference(), t.tolist()) for t in want]


class Kept(torch.Tensor):
    """Attributes that PyTorch works out are of the class, too; `torch.tensor` asks no class."""


def test_the_class_of_attributes():
    def fn(x):
        return x.T, x.mT, x.H, x.real, torch.fft.fft(x).real, torch.tensor(x), torch.as_tensor(x), x.shape

    compiled = pliant.compile(fn)
    for n in (2, 3, 4):
        x = torch.ones(n, 2).as_subclass(Kept)
        assert [type(t) for t in compiled(x)] == [type(t) for t in fn(x)]


class Stranger(torch.Tensor):
    pass


class Nearer(Kept):
    pass


class Told(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("fn", [
    lambda a, b: a + b, lambda a, b: a == b, lambda a, b: a != b, lambda a, b: a < b, lambda a, b: torch.cat([a, b]), lambda a, b: a[b > 0],
    lambda a, b: a.add_(b), lambda a, b: torch.where(a > 0, a, b),
])  # fmt: skip
def test_classes_that_are_no_relatives(fn):
    """Neither answers for the other: an operator raises, `==` asks the first alone."""
    ours = compiled(fn)
    for kinds in itertools.product((Kept, Stranger, Nearer, Told), repeat=2):
        said = []
        for f in (fn, ours):
            try:
                y = f(*[torch.ones(2).as_subclass(k) for k in kinds])
                said.append((type(y), y.tolist() if isinstance(y, torch.Tensor) else y))
            except TypeError as e:
                said.append(str(e))
        assert said[0] == said[1], kinds


class Nameless(torch.Tensor):
    pass


def broken_without_gradients(x, y):
    with torch.no_grad():
        y = y + 1
        pliant.graph_break()
    return y * x, x.sin(), x


def turned_on(x, y):
    with torch.enable_grad():
        return y * x, x.sin(), x


@pytest.mark.parametrize("fn", [broken_without_gradients, turned_on])
@pytest.mark.parametrize("make", [lambda x: x, lambda x: x * 1, lambda x: torch.cat([x, x]).chunk(2)[1]])
def test_frames_that_begin_without_gradients_keep_the_history_of_subclasses(fn, make) -> None:
    f = compiled(fn)
    for rows in (2, 3, 4):
        got = []
        for g in (fn, f):
            x = make(torch.full((rows, 2), 0.5).as_subclass(Nameless).requires_grad_())
            with torch.set_grad_enabled(fn is not turned_on):
                a, b, _ = g(x, torch.ones(rows, 2))
            got.append([a, b, *torch.autograd.grad(a.sum(), x, retain_graph=True), *torch.autograd.grad(b.sum(), x)])
        for p, q in zip(*got, strict=True):
            assert type(p) is type(q)
            torch.testing.assert_close(p, q)
