"""Torch-function and dispatch modes: entered inside, left inside, held across breaks, on before the call."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from tests.helpers import compiled, pliant
from tests.programs.registry import cases, program, t

SHAPES = [(t(3),), (t(4),), (t(5),)]


class Minus(TorchFunctionMode):
    """Turns `torch.add` into `torch.sub`, and counts what it saw."""

    def __init__(self, by=1):
        super().__init__()
        self.by = by
        self.seen = 0

    def __torch_function__(self, fn, types, args=(), kwargs=None):
        if fn in (torch.add, torch.nn.functional.gelu):
            self.seen += 1
            return torch.sub(args[0], args[-1]) * self.by
        return fn(*args, **(kwargs or {}))


class Told(TorchFunctionMode):
    """Writes down what it hears; lengths are one more. `breaks`: the graph breaks in it."""

    def __init__(self, breaks=False):
        super().__init__()
        self.heard, self.breaks = [], breaks

    def __torch_function__(self, fn, types, args=(), kwargs=None):
        self.heard.append((fn.__name__, types, [t.__name__ for t in types], str(types), kwargs))
        if self.breaks:
            pliant.graph_break()
        out = fn(*args, **(kwargs or {}))
        return out + 1 if fn is torch.Tensor.__len__ else out


class Count(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
        self.seen.append(str(fn))
        return fn(*args, **(kwargs or {}))


@program(*SHAPES, breaks=0)
def entered_and_left(x):
    with Minus(2) as m:
        y = torch.add(x, 1)
        z = torch.nn.functional.gelu(x) + torch.nn.functional.dropout(x, 0.5, training=False)
    return torch.add(y, z), m.seen


@program(*SHAPES, breaks=0)
def told_of_lengths(x):
    with Told() as m:
        y = x * len(x)
        n = len(x[1:]) + x.numel() + x.dim()
        z = [len(v) for v in (x, y)]
    return y.sin() + n + len(x), z, m.heard


@program(*SHAPES)
def two_told_of_lengths(x):
    with Told() as outer, Told() as inner:
        y = x.sin() * len(x)
    return y, outer.heard, inner.heard, torch._C._len_torch_function_stack()


@program(*SHAPES, breaks=0)
def told_of_a_parameter(x):
    p = torch.nn.Parameter(x.detach().clone())
    with Told() as m:
        y = p.sin() * len(p) + x
        y = y.numel() + p
    return y.detach(), m.heard


@program(*SHAPES)
def told_and_breaking(x):
    with Told(breaks=True) as m:
        y = x * len(x)
    return y, m.heard, torch._C._len_torch_function_stack()


@program(*SHAPES)
def held_across_a_break(x):
    with Minus(3) as m:
        y = torch.add(x, 1)
        pliant.graph_break()
        y = torch.add(y, x)
    return torch.add(y, 1), m.seen


@program(*SHAPES)
def nested_across_a_break(x):
    with Minus(2) as a:
        with Minus(3) as b:
            pliant.graph_break()
            y = torch.add(x, 1)
        y = torch.add(y, 1)
        pliant.graph_break()
    return y, a.seen, b.seen


@program(*SHAPES)
def left_by_an_exception(x):
    try:
        with Minus(2):
            pliant.graph_break()
            raise ValueError(torch.add(x, 1))
    except ValueError as e:
        return e.args[0], torch.add(x, 1)


@program(*SHAPES)
def dispatch_mode(x):
    with Count() as m:
        y = torch.add(x, 1)
    return y, len(m.seen)


@program(*SHAPES, breaks=0)
def device_as_a_mode(x):
    with torch.device("cpu"):
        return torch.ones(x.shape[0]) + x


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


def test_on_before_the_call():
    def fn(x):
        return torch.add(x, 1) + torch.add(x, x.shape[0])

    target = compiled(fn)
    held = Minus(2)
    for k in range(3, 7):
        assert torch.equal(target(t(k)), fn(t(k)))
        with held:
            assert torch.equal(target(t(k)), (t(k) - 1) * 2 + (t(k) - k) * 2)
        held.by = 2
        assert held.seen == 2 * (k - 2)
        with Minus(5) as m:
            assert torch.equal(target(t(k)), (t(k) - 1) * 5 + (t(k) - k) * 5)
        assert m.seen == 2
    held.by = 4
    with held:
        assert torch.equal(target(t(3)), (t(3) - 1) * 4 + (t(3) - 3) * 4)


def test_entered_inside_from_outside():
    modes = Told(), Told()

    def fn(x, m, log):
        with m:
            y = x * len(x) + x.numel()
        with Told() as own:
            own.heard = log
            y = y + len(x)
        return y + len(x)

    target = compiled(fn)
    mine, theirs = [], []
    for n in (3, 4, 5, 5, 6):
        assert torch.equal(fn(t(n), modes[0], theirs), target(t(n), modes[1], mine))
        assert modes[0].heard == modes[1].heard and mine == theirs


@pytest.mark.parametrize("name", ["mkldnn", "cudnn", "opt_einsum"])
def test_flags_of_backends_inside(name):
    """Modules that read and write what C++ holds: `module.__getattribute__` is bound anew each time that it is read."""
    backend = getattr(torch.backends, name)

    def fn(x):
        with backend.flags(enabled=False):
            y = torch.einsum("ij,jk->ik", x, x)
        return y, backend.enabled

    target, before = compiled(fn), backend.enabled
    for k in (3, 4):
        assert torch.equal(target(t(k, k))[0], fn(t(k, k))[0])
        assert target(t(k, k))[1] == before == backend.enabled


# -- what a mode's own code is, and reads, is guarded where it is told of a length, too ------------------------------------------------
MORE = 1


class Longer(TorchFunctionMode):
    """Lengths are more; nothing else is asked of it in a region."""

    def __torch_function__(self, fn, types, args=(), kwargs=None):
        out = fn(*args, **(kwargs or {}))
        return out + MORE if fn is torch.Tensor.__len__ else out


def length_of(x):
    with Longer():
        n = len(x)
    return n


def told(fn, x):
    try:
        return fn(x)
    except Exception as e:
        return type(e), str(e)


def test_lengths_that_a_mode_says(monkeypatch):
    run, x, own = compiled(length_of), t(3), Longer.__torch_function__
    for value in (1, 2, 1):
        monkeypatch.setattr(f"{__name__}.MORE", value)
        assert run(x) == length_of(x) == 3 + value

    def other(self, fn, types, args=(), kwargs=None):
        return 7 if fn is torch.Tensor.__len__ else fn(*args)

    for new in (other, property(own), staticmethod(own), own):
        monkeypatch.setattr(Longer, "__torch_function__", new)
        assert told(run, x) == told(length_of, x)


def test_classes_of_tensors_under_a_mode():
    class Marked(torch.Tensor):
        pass

    def fn(x):
        with Told() as m:
            y = x * 2
        return y, [told[:4] for told in m.heard]

    run, x = compiled(fn), t(3).as_subclass(Marked)
    want, got = fn(x), run(x)
    assert type(got[0]) is Marked and torch.equal(want[0], got[0]) and want[1] == got[1]


@pytest.mark.parametrize("mode", [None, Told])
def test_functions_that_count_modes_are_replaced(mode, monkeypatch):
    def fn(x):
        return x * 2 if mode is None else inside(x)

    def inside(x):
        with mode() as m:
            y = x * len(x)
        return y, len(m.heard)

    run = compiled(fn)
    want = fn(t(3))
    run(t(3))
    count = torch._C._len_torch_function_stack
    monkeypatch.setattr(torch._C, "_len_torch_function_stack", lambda: count() + 3)
    for n in (3, 4):
        got = run(t(n))
    monkeypatch.undo()
    got = run(t(3))
    assert torch.equal(want, got) if mode is None else torch.equal(want[0], got[0]) and want[1] == got[1]


class Marked(torch.Tensor):
    """A class with nothing of its own."""


class Hears(TorchFunctionMode):
    """Writes down the classes that it is told, and answers what operators give with one more."""

    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_function__(self, fn, types, args=(), kwargs=None):
        self.heard.append((fn.__name__, types))
        out = fn(*args, **(kwargs or {}))
        return out + 1 if isinstance(out, torch.Tensor) else out


@pytest.mark.parametrize("off", [False, True])
@pytest.mark.parametrize("cls", [torch.Tensor, Marked, torch.nn.Parameter])
def test_classes_that_modes_are_told(cls, off):
    def program(x):
        with Hears() as m:
            z = x.detach().as_subclass(Marked) + 0  # nobody is told of `as_subclass`
            y = x * len(x) + x.numel() + x.dim() + x.size(0) + len(z)
            shape, needs = x.shape, x.requires_grad
        return y.tolist(), z.tolist(), tuple(shape), needs, m.heard

    run = compiled(program)
    for n in (3, 5):
        x = t(n).as_subclass(cls) if cls is not torch.nn.Parameter else torch.nn.Parameter(t(n))
        with torch._C.DisableTorchFunctionSubclass() if off else contextlib.nullcontext():
            assert run(x) == program(x)


F = torch.nn.functional
WRITTEN_IN_PYTHON = {
    "relu": lambda x: F.relu(x),
    "softmax": lambda x: F.softmax(x, 1),
    "mse_loss behind a method": lambda x: F.mse_loss(x.sin(), x),
    "cross_entropy": lambda x: F.cross_entropy(x, torch.tensor([0, 1, 2])),
    "dropout": lambda x: F.dropout(x, 0.5),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2),
    "einsum and norm": lambda x: torch.einsum("ij->j", x) + torch.norm(x),
    "split and meshgrid": lambda x: torch.meshgrid(*torch.split(x[0], 2), indexing="ij")[0],
    "layer_norm and gelu": lambda x: F.gelu(F.layer_norm(x, (4,))),
    "attention": lambda x: F.multi_head_attention_forward(
        x[:, None], x[:, None], x[:, None], 4, 2, torch.ones(12, 4), None, None, None, False, 0.0, torch.ones(4, 4), None
    )[0],
}


@pytest.mark.parametrize("name", WRITTEN_IN_PYTHON)
def test_functions_written_in_python_tell_in_each_call(name):
    fn = WRITTEN_IN_PYTHON[name]
    target = compiled(fn)
    want, got = Told(), Told()
    for k in range(3):
        x = torch.rand(3, 4, requires_grad=k == 2)
        results = []
        for f, mode in ((fn, want), (target, got)):
            torch.manual_seed(k)
            with mode:
                results.append(f(x))
        assert torch.allclose(*results)
        assert want.heard == got.heard


class Answers(TorchFunctionMode):
    def __torch_function__(self, fn, types, args=(), kwargs=None):
        return args[0] * 3 if fn is F.relu else fn(*args, **(kwargs or {}))


def test_what_a_mode_says_in_the_place_of_a_function_written_in_python():
    target = compiled(lambda x: F.relu(x.sin()) + 1)
    mode = Answers()
    for _ in range(3):
        x = torch.randn(4)
        with mode:
            got = target(x)
        assert torch.allclose(got, x.sin() * 3 + 1)
    assert torch.allclose(target(x), x.sin().relu() + 1)


def keeps_an_inference_tensor(x, y, w):
    return x * w + y, torch.where(y > 0, x * w, x / w).sin() * (y > 1)


def a_write_beside_an_inference_tensor(x, y, w):
    a = (x * w).add_(y)
    pliant.graph_break()
    return a * w, y.clone().mul_(2) * w.exp().detach()


@pytest.mark.parametrize("fn", [keeps_an_inference_tensor, a_write_beside_an_inference_tensor])
def test_inference_tensors_beside_gradients(fn) -> None:
    """Eager keeps none of them for its backward part; what a region keeps lies apart, for nobody counts writes to them."""
    f = compiled(fn)
    for rows in (2, 3, 4):
        got = []
        for g in (fn, f):
            with torch.inference_mode():
                y = torch.full((2, rows), 2.0).t()
            x, w = torch.ones(rows, 2, requires_grad=True), torch.tensor(0.5, requires_grad=True)
            a, b = g(x, y, w)
            with torch.inference_mode():
                y.mul_(-1)
            first = torch.autograd.grad((a + b).sum(), w, create_graph=True)[0]
            got.append([a, b, first, *torch.autograd.grad(first, x)])
            assert g is fn or "region" in type(a.grad_fn).__name__  # it is not eager that ran
        for p, q in zip(*got, strict=True):
            torch.testing.assert_close(p, q)


def test_inference_tensors_that_eager_refuses_to_keep() -> None:
    def fn(x, y):
        return x * y

    with torch.inference_mode():
        y = torch.ones(3)
    for g in (fn, compiled(fn)):
        with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
            g(torch.ones(3, requires_grad=True), y)
