"""What perturbations found in gradients that are worked out inside compiled code, or behind it."""

from __future__ import annotations

import weakref

import pytest
import torch

from tests.helpers import compiled, pliant
from tests.programs.registry import t


class Marked(torch.Tensor):
    """A class with nothing of its own."""


class Told(torch.Tensor):
    """Writes down what it is told."""

    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(getattr(func, "__name__", str(func)))
        return super().__torch_function__(func, types, args, kwargs or {})


def shown(value):
    return [(type(v), v.tolist(), v.stride(), v.requires_grad) if isinstance(v, torch.Tensor) else v for v in value]


# -- the class of what backward() leaves -----------------------------------------------------------------------------------------
def of_a_parameter(x):
    p = torch.nn.Parameter(torch.ones(4))
    (x.detach() * p).sum().backward()
    with torch.no_grad():
        p -= 0.1 * p.grad
    return p.detach().clone(), p.grad


def of_the_argument(x):
    x = x.detach().requires_grad_()
    (x * x).sum().backward()
    return x.grad, x.grad * 2


def of_an_argument_itself(x):
    (x * 3).sum().backward()
    g = x.grad
    x.grad = None
    return (g,)


def of_both(x):
    w = torch.arange(4.0).requires_grad_()
    torch.autograd.backward((w * x.detach()).sum())
    torch.autograd.backward([(w + x.detach()).sum()])
    return (w.grad,)


def with_a_seed(x):
    w = torch.arange(4.0).requires_grad_()
    (w * 2).backward(x.detach()[0])
    return (w.grad,)


def asked_for(x):
    w = torch.arange(4.0).requires_grad_()
    return torch.autograd.grad((w * x.detach()).sum(), w)


def as_a_result(x):
    w = torch.arange(4.0).requires_grad_()
    y = w * x.detach()
    y.sum().backward()
    return y.detach(), w.grad, w.grad + y.detach()


@pytest.mark.parametrize("cls", [torch.Tensor, Marked, Told])
@pytest.mark.parametrize("fn", [of_a_parameter, of_the_argument, of_an_argument_itself, of_both, with_a_seed, asked_for, as_a_result])
def test_gradients_are_plain_whatever_the_class_of_the_operands(fn, cls):
    run = compiled(fn)
    for n in (3, 5):
        x, y = (t(n, 4).as_subclass(cls).requires_grad_() for _ in range(2))
        Told.calls.clear()
        want, told = shown(fn(x)), list(Told.calls)
        Told.calls.clear()
        assert shown(run(y)) == want
        assert Told.calls == told


@pytest.mark.parametrize("create_graph", [False, True])
@pytest.mark.parametrize("fn", [lambda x: x * x, lambda x: x + 1, lambda x: (x * 2).t()], ids=["product", "sum", "transposed"])
def test_the_backward_part_asks_no_class_of_the_gradients_that_it_is_given(fn, create_graph):
    """They were of the seed's class, whose function was told of the compiled region's operations."""
    run = compiled(fn)
    for cls in (torch.Tensor, Marked, Told):
        found = []
        for f in (fn, run):
            x = t(3, 4).requires_grad_()
            y, seed = f(x), (fn(t(3, 4)) + 1).as_subclass(cls)
            Told.calls.clear()
            torch.autograd.backward(y, seed, create_graph=create_graph)
            found.append((shown((x.grad,)), list(Told.calls), x.grad.data_ptr() == seed.data_ptr()))
            x.grad = None
        assert found[1] == found[0]


def linearized_outside(x, y):
    out, forward = torch.func.linearize(lambda v: v * 2 + v * v, x)
    return out, forward(y), forward(x)


OF_CLASSES = {
    "as_tensor": lambda x: (torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(x) is x),
    "asarray": lambda x: (torch.asarray(x, dtype=torch.float64), torch.asarray(x, copy=True), torch.asarray(x) is x),
    "functionalized": lambda x: (torch.func.functionalize(lambda v: v.clone().add_(1))(x),),
    "functionalized without elements": lambda x: (torch.func.functionalize(lambda v: v.clone().add_(1))(x[:, :0]),),
    "functionalized, met inside": lambda x: (torch.func.functionalize(lambda v: v * x)(torch.ones(4)),),
    "linearized": lambda x: linearized_outside(x, t(3, 4)),
    "linearized, along": lambda x: linearized_outside(t(3, 4), x),
}


@pytest.mark.parametrize("name", OF_CLASSES)
def test_what_makes_plain_tensors_of_those_of_a_class(name):
    run = compiled(OF_CLASSES[name])
    for cls in (torch.Tensor, Marked, Told):
        found = []
        for f in (OF_CLASSES[name], run):
            Told.calls.clear()
            try:
                found.append((shown(f(t(3, 4).as_subclass(cls))), list(Told.calls)))
            except TypeError as e:  # PyTorch's linearize, of a class
                found.append(str(e)[:60])
        assert found[1] == found[0]


class Pruned(torch.nn.Module):
    """The weight that it computes with is a result of the region, too: its result comes from another one."""

    def __init__(self, place):
        super().__init__()
        self.w, self.mask, self.place = torch.nn.Parameter(torch.arange(12.0).reshape(3, 4)), torch.ones(3, 4), place
        if place == "hook":
            self.register_forward_pre_hook(lambda m, args: setattr(m, "weight", m.w * m.mask))

    def forward(self, x):
        if self.place == "inside":
            self.weight = self.w * self.mask
        weight = self.w * 2 if self.place == "result" else self.weight
        y = torch.nn.functional.linear(x, weight)
        return (y, weight) if self.place == "result" else y


@pytest.mark.parametrize("place", ["hook", "inside", "result"])
def test_backward_hooks_of_modules_whose_results_come_from_others(place):
    found = []
    for wrap in (lambda m: m, compiled):
        m, x = Pruned(place), t(2, 4).requires_grad_()
        m.register_full_backward_hook(lambda m, gi, go: tuple(None if g is None else g * 2 for g in gi))
        out = wrap(m)(x)
        y, weight = (out if place == "result" else (out, m.weight))
        y.sum().backward(retain_graph=True)
        found.append((x.grad, m.w.grad, *torch.autograd.grad(y.sum(), weight, allow_unused=True)))
    assert shown(found[1]) == shown(found[0])


def outcome(fn, *args):
    try:
        return shown((fn(*args),))
    except RuntimeError as e:
        return str(e)


def test_linearize_refuses_what_overlaps():
    """PyTorch writes to memory that is laid out like the tangent."""
    fn = lambda x, y: torch.func.linearize(lambda v: v * v, x)[1](y)  # noqa: E731
    run = compiled(fn)
    for x in (t(3, 4), t(3, 1).expand(3, 4)):
        for y in (t(3, 4), t(3, 1).expand(3, 4)):
            assert outcome(run, x, y) == outcome(fn, x, y)


# -- weak references ---------------------------------------------------------------------------------------------------------------
def let_go(x):
    y = x * 2
    z = y.exp()
    r = weakref.ref(y)
    there = r() is not None
    del y
    return there, r() is None, z


def test_weak_references_to_tensors_with_gradients_that_are_gone():
    """The region's nodes held what eager's do not: the frame is left to CPython, which is counted and no error."""
    run = pliant.compile(let_go, strict=True)
    assert run(t(3))[:2] == let_go(t(3))[:2] == (True, True)
    before = pliant.stats()["fallbacks"]
    assert run(t(3).requires_grad_())[:2] == (True, True)
    assert pliant.stats()["fallbacks"] == before + 1


# -- methods of tensors that are replaced, of which a class of tensors has its own ------------------------------------------------
PARAMETER = torch.nn.Parameter(torch.ones(2))


def test_what_parameters_have_themselves_is_not_the_replaced_method_of_tensors(monkeypatch):
    def program(x):
        made = PARAMETER.__deepcopy__({})
        return x + made[0], type(made), made.requires_grad

    c = compiled(program)
    x = torch.ones(2)
    assert shown(c(x)) == shown(program(x))
    original = torch.Tensor.__deepcopy__
    monkeypatch.setattr(torch.Tensor, "__deepcopy__", lambda self, memo: original(self, memo) * 2)
    assert shown(c(x)) == shown(program(x))


@pytest.mark.parametrize("name", ["forward", "backward"])
def test_a_function_of_autograd_that_is_a_generator(name):
    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x / 2

        @staticmethod
        def backward(ctx, g):
            return g / 2

    def generating(*args):
        yield args[1]

    def program(x):
        out = Halved.apply(x)
        return x * 3, type(out).__name__

    setattr(Halved, name, staticmethod(generating))
    run = pliant.compile(program, backend="aten")
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        (want, kind), (got, other) = program(x), run(x)
        assert torch.equal(want, got) and kind == other


HISTORIES = {
    "of the leaf": lambda w, v: w * 3, "of another": lambda w, v: v * 3, "of both": lambda w, v: w * v, "a view": lambda w, v: w[:],
    "itself": lambda w, v: w, "none": lambda w, v: w.detach() * 2,
}  # fmt: skip
OF_INPUTS = {
    "one": lambda loss, w, v, y: loss.backward(inputs=[w]), "two": lambda loss, w, v, y: loss.backward(inputs=(w, v)),
    "function": lambda loss, w, v, y: torch.autograd.backward([loss], inputs=w),
    "twice": lambda loss, w, v, y: loss.backward(inputs=[w, w]),
    "and where it comes from": lambda loss, w, v, y: loss.backward(inputs=[y, w]),
}  # fmt: skip


@pytest.mark.parametrize("history", HISTORIES)
@pytest.mark.parametrize("inputs", OF_INPUTS)
def test_backward_of_some_inputs_goes_through_the_history_of_others(history, inputs) -> None:
    """What is not asked for may lead to what is."""

    def run(w, v, y):
        loss = (y * 2).sum() + (w * v).sum()
        OF_INPUTS[inputs](loss, w, v, y)

    told = []
    for fn in (run, pliant.compile(run, backend="aten")):
        for _ in range(3):
            w, v = torch.ones(3, requires_grad=True), torch.full((3,), 2.0, requires_grad=True)
            try:
                fn(w, v, HISTORIES[history](w, v))
            except RuntimeError as e:
                told.append(type(e))
            told.append([None if t.grad is None else t.grad.tolist() for t in (w, v)])
    assert told[: len(told) // 2] == told[len(told) // 2 :]


def test_backward_of_some_inputs_behind_a_break() -> None:
    def run(w, x):
        try:
            y = (w * x).sum()
            loss = y.sin() + w.sum()
            loss.backward(inputs=[w])
            return max(1, w.grad.sum().item())
        except ValueError:
            return y

    fn = pliant.compile(run, backend="aten")
    for n in (1.0, 2.0, 3.0):
        found = []
        for each in (run, fn):
            w = torch.ones(3, requires_grad=True)
            found.append((each(w, torch.full((3,), n)), w.grad.tolist()))
        assert found[0] == found[1]


def test_writes_to_lists_of_tensors_without_a_derivative():
    """Eager says so once gradients arrive."""

    def fn(a, b):
        a = [t * 1 for t in a]
        torch._foreach_copy_(a, b)
        return a

    c = compiled(fn)
    for n in (2, 3):
        for of in (fn, c):
            a, b = [torch.rand(n, requires_grad=True), torch.rand(2)], [torch.rand(n), torch.rand(2)]
            copied = of(a, b)
            assert all(torch.equal(x, y) for x, y in zip(copied, b, strict=True)) and copied[0].requires_grad
            with pytest.raises(RuntimeError, match="_foreach_copy_ is not implemented"):
                copied[0].sum().backward()


class Answering(torch.autograd.Function):
    """Its `backward` gives back whatever is asked for."""

    answer = staticmethod(lambda g: g)

    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    def backward(ctx, g):
        return Answering.answer(g)


ANSWERS = {
    "of no dim": lambda g: g.sum(), "too large": lambda g: torch.cat([g, g]), "two": lambda g: (g, g), "none": lambda g: (),
    "a text": lambda g: "a", "a list": lambda g: [g], "expanded": lambda g: g[None].expand(2, 3),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("asked", [False, True])
def test_backward_gives_what_is_no_gradient(name, asked, monkeypatch):
    """Eager says so if ever gradients arrive."""

    def fn(x):
        return Answering.apply(x * 2)

    c = compiled(fn)
    for answer in (lambda g: g, ANSWERS[name]):
        monkeypatch.setattr(Answering, "answer", staticmethod(answer))
        found = []
        for of in (fn, c):
            x = torch.arange(3.0).requires_grad_()
            y = of(x)
            try:
                if asked:
                    y.sum().backward()
                found.append((y.tolist(), x.grad if x.grad is None else x.grad.tolist()))
            except RuntimeError as e:
                found.append(str(e))
        assert found[0] == found[1]
