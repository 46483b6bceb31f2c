"""What perturbations found in classes of tensors, function transforms and settings that hold while a program runs."""

from __future__ import annotations

import operator

import pytest
import torch

from tests.helpers import compiled, pliant
from tests.programs.registry import t


class Logged(torch.Tensor):
    """Writes down what it is told; additions are not captured."""

    calls: list = []
    half = 0.5

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(func.__name__)
        if func is torch.Tensor.add:
            pliant.graph_break()
        return super().__torch_function__(func, types, args, kwargs or {})


class Held:
    """No tensor, but torch functions are told of it."""

    def __init__(self, x):
        self.x = x

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return func(*[a.x if isinstance(a, Held) else a for a in args], **(kwargs or {}))


def outcome(fn, *args):
    """What a call returns, tensors with their class, or the type of what it raises."""
    try:
        out = fn(*args)
    except Exception as e:
        return type(e)
    return [(type(v), v.tolist()) if isinstance(v, torch.Tensor) else v for v in (out if isinstance(out, tuple) else (out,))]


# -- classes -----------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("fn", [operator.neg, operator.pos, operator.abs, operator.inv, operator.invert, operator.not_, operator.truth])
def test_functions_for_unary_operators(fn):
    program = lambda x: fn(x)  # noqa: E731
    run = compiled(program)
    for x in (torch.tensor([2]), torch.tensor([2]).as_subclass(Logged), torch.tensor([True]), torch.tensor([2.0]), 3, -2.5, True, None):
        assert outcome(run, x) == outcome(program, x)


def test_a_method_of_all_tensors_that_is_replaced_is_not_that_of_a_class_with_its_own(monkeypatch):
    fn = lambda x: (x.as_subclass(Logged).half, x * 2)  # noqa: E731
    run = compiled(fn)
    assert run(t(3))[0] == 0.5
    monkeypatch.setattr(torch.Tensor, "half", lambda x: 7)
    assert run(t(3))[0] == fn(t(3))[0] == 0.5


def test_classes_are_told_no_keywords_where_a_call_has_none(monkeypatch):
    """The default of their function counts then."""
    fn = lambda x: torch.add(Held(x), 1)  # noqa: E731
    run = compiled(fn)
    for default in (None, {"alpha": 2}, 1, None):
        monkeypatch.setattr(Held.__torch_function__.__func__, "__defaults__", ((), default))
        assert outcome(run, t(3)) == outcome(fn, t(3))


def test_operators_tell_no_keywords_either(monkeypatch):
    class Told(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, {} if kwargs is None else kwargs)

    fn = lambda x: x.as_subclass(Told) * 2 + torch.neg(x.as_subclass(Told))  # noqa: E731
    run = compiled(fn)
    for default in (None, {}, {"nothing": 2}, 1, None):
        monkeypatch.setattr(Told.__torch_function__.__func__, "__defaults__", ((), default))
        assert outcome(run, t(3)) == outcome(fn, t(3))


@pytest.mark.parametrize("answer", [NotImplemented, None])
def test_words_about_operators_that_no_class_does(answer):
    class Mute(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return answer

    def fn(x, op):
        try:
            return op(x.as_subclass(Mute), 1)
        except TypeError as e:
            return str(e)

    run = compiled(fn)
    for op in (operator.add, operator.mul, operator.sub, torch.add, operator.add):
        assert run(t(3), op) == fn(t(3), op)


@pytest.mark.parametrize("answer", [None, classmethod(lambda cls, func, types, args=(), kwargs=None: 5), classmethod(None)])
def test_a_class_whose_function_goes_or_is_another(answer, monkeypatch):
    class Own(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    fn = lambda x: (torch.sub(x.as_subclass(Own), 1), 2)  # noqa: E731
    run = compiled(fn)
    assert outcome(run, t(3)) == outcome(fn, t(3))
    own = vars(Own)["__torch_function__"]
    Own.__torch_function__ = answer
    assert outcome(run, t(3)) == outcome(fn, t(3))
    Own.__torch_function__ = own
    assert outcome(run, t(3)) == outcome(fn, t(3))
    del Own.__torch_function__
    assert outcome(run, t(3)) == outcome(fn, t(3))


def test_a_compiler_does_not_ask_the_classes_of_tensors_from_outside():
    def fn(x):
        y = x.as_subclass(Logged)
        return y + 1 if y.dtype is not torch.bool else y

    said = []
    for f in (fn, run := compiled(fn), run):
        Logged.calls.clear()
        f(t(3))
        said.append(list(Logged.calls))
    assert said == [["__get__", "add"]] * 3


# -- transforms --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("transform", [torch.func.grad, torch.func.jacrev, lambda f: lambda x: torch.func.vjp(f, x)[0]])
def test_transforms_that_refuse_hooks_on_saved_tensors(transform):
    fn = lambda x: transform(lambda v: (v * v).sum())(x)  # noqa: E731
    run = compiled(fn)
    hooks = torch.autograd.graph.saved_tensors_hooks
    assert outcome(run, t(3)) == outcome(fn, t(3))
    with hooks(lambda x: x, lambda x: x):
        assert outcome(run, t(3)) is outcome(fn, t(3)) is RuntimeError
    assert outcome(run, t(3)) == outcome(fn, t(3))
    pliant.reset()
    with hooks(lambda x: x, lambda x: x):
        assert outcome(run, t(3)) is RuntimeError
    assert outcome(run, t(3)) == outcome(fn, t(3))


def test_transforms_of_subclasses():
    """Which results are of the class, C++ decides."""

    class Named(torch.Tensor):
        pass

    def fn(x):
        out, back = torch.func.vjp(lambda v: v * 2, x)
        return out, *back(torch.ones_like(out)), torch.func.jvp(lambda v: v * 2, (x,), (torch.ones_like(x),))[1]

    run = compiled(fn)
    for x in (t(3), t(3).as_subclass(Named), t(3)):
        assert outcome(run, x) == outcome(fn, x)


def test_what_hooks_on_saved_tensors_call_is_guarded(monkeypatch):
    """The hooks are set before the function has met a tensor."""

    def fn(x):
        with torch.autograd.graph.saved_tensors_hooks(lambda v: v.half(), lambda v: v.float()):
            return (x * x).sum()

    run, own = compiled(fn), torch.Tensor.half
    for half in (own, lambda v: own(v) + 1, own):
        monkeypatch.setattr(torch.Tensor, "half", half)
        gradients = []
        for f in (fn, run):
            x = torch.ones(3, requires_grad=True)
            f(x).backward()
            gradients.append(x.grad.tolist())
        assert gradients[0] == gradients[1]


@pytest.mark.parametrize("ask", [torch.numel, torch.is_inference, lambda x: x.nelement(), lambda x: torch.numel(input=x)])
def test_questions_about_sparse_tensors(ask):
    fn = lambda x: ask(x)  # noqa: E731
    run = compiled(fn)
    for x in (t(3), t(3).to_sparse(), t(4)):
        assert outcome(run, x) == outcome(fn, x)


@pytest.mark.parametrize("given", [t(3), t(4), t(3).double(), torch.ones(3, dtype=torch.int64)])
def test_tangents_that_do_not_fit(given):
    def fn(x, y):
        out, forward = torch.func.linearize(lambda v: v * 2, x)
        return out, forward(y)

    run = compiled(fn)
    assert outcome(run, t(3), given) == outcome(fn, t(3), given)
    assert outcome(run, given, t(3)) == outcome(fn, given, t(3))


# -- settings ------------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("make", [lambda n: torch.linspace(0, 1, n), lambda n: torch.logspace(0, 1, n), lambda n: torch.tril_indices(n, 4),
    lambda n: torch.triu_indices(n, 3), lambda n: torch.hann_window(n), lambda n: torch.arange(n), lambda n: torch.zeros(n)])
def test_factories_of_an_open_size_on_a_device(make):
    fn = lambda x: make(x.shape[0])  # noqa: E731
    run = compiled(fn)
    given = t(4), t(5)
    for device in ("cpu", "meta", "cpu"):
        with torch.device(device):
            for x in given:
                assert run(x).device.type == device
