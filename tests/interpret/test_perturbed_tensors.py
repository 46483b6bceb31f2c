"""What perturbations found in classes of tensors, function transforms and settings that hold while a program runs."""

from __future__ import annotations

import contextlib
import copy
import functools
import operator
import weakref

import numpy as np
import pytest
import torch
from torch._higher_order_ops.associative_scan import associative_scan
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.utils import rnn
from torch.overrides import TorchFunctionMode

from tests.helpers import check, compiled, pliant
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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64, torch.complex128, torch.half])
def test_tangents_of_other_dtypes(dtype):
    fn = lambda x, y: torch.func.jvp(lambda v: v.sin() * 2, (x,), (y,))  # noqa: E731
    run = compiled(fn)
    for other in (torch.float32, torch.float64, torch.complex64):
        x, y = t(3).to(other), t(3).to(dtype)
        want, got = outcome(fn, x, y), outcome(run, x, y)
        assert want == got and (want is RuntimeError or [v.dtype for v in fn(x, y)] == [v.dtype for v in run(x, y)])


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


# -- strides and memory ------------------------------------------------------------------------------------------------------
LAYOUTS = {
    "rows": t(3, 4), "transposed": t(4, 3).t(), "permuted": t(2, 3, 4).transpose(0, 2), "outer": t(2, 3, 4).transpose(0, 1),
    "stepped": t(3, 8)[:, ::2], "expanded": t(1, 4).expand(3, 4), "no columns": t(3, 4)[:, :0], "no rows": t(0, 3).t(),
    "nothing": t(2, 3, 0)[:, :2], "one": t(3, 4)[:, :1],
}  # fmt: skip
PLACES = [
    (0, (3, 4), (4, 1)), (1, (2, 2), (4, 1)), (2, (2,), (1,)), (0, (3,), (0,)), (-1, (2,), (1,)), (5, (2,), (-1,)), (0, (0,), (1,)),
    (0, (2, 2), (1,)), (100, (0,), (1,)), (0, (), ()),
]  # fmt: skip


def layout(fn, *args):
    """Sizes, strides, offsets and values of what a call returns, or what it raises."""
    try:
        out = fn(*args)
    except Exception as e:
        return type(e), str(e)
    parts = out if isinstance(out, tuple) else (out,)
    return [(v.shape, v.stride(), v.storage_offset(), v.tolist()) if isinstance(v, torch.Tensor) else v for v in parts]


def leaf_of(x):
    return x.detach().clone().requires_grad_()


def gradient_of_squares(x):
    a = leaf_of(x)
    (a * a).sum().backward()
    return a.grad


def gradient_of_one_input(x):
    a, b = leaf_of(x), leaf_of(x)
    (a * b).sum().backward(inputs=[a])
    return a.grad


def gradient_of_a_copy(x):
    a = leaf_of(x)
    a.mT.contiguous().sum().backward()
    return a.grad


def gradient_of_no_leaf(x):
    y = leaf_of(x) * 2
    (y * y).sum().backward(inputs=[y])
    return y.grad


@pytest.mark.parametrize("program", [gradient_of_squares, gradient_of_one_input, gradient_of_a_copy, gradient_of_no_leaf])
def test_gradients_are_laid_out_like_their_leaves(program):
    run = compiled(program)
    for x in LAYOUTS.values():
        assert layout(run, x) == layout(program, x)


def test_batched_gradients_are_laid_out_like_those_of_a_batch():
    def fn(x):
        y = x.sin().sum(1)
        return torch.autograd.grad(y, x, torch.eye(y.shape[0]), is_grads_batched=True)

    run = compiled(fn)
    for name in ("rows", "transposed", "stepped", "one"):
        x = LAYOUTS[name].detach().requires_grad_()
        assert [v[:3] for v in layout(run, x)] == [v[:3] for v in layout(fn, x)]
        torch.testing.assert_close(run(x), fn(x))


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("behind", [0, 1])
def test_a_part_of_a_tensor_as_memory(place, behind):
    """It counts from where the tensor begins, which has to be contiguous, and is enlarged where it is too small."""

    def fn(x):
        u = torch.cat([x, x]).clone()[x.shape[0] * behind :] if behind else x.clone()
        y = torch.empty(0).set_(u, *place)
        return y.mul_(2), u

    run = compiled(fn)
    for x in (t(3, 4), t(5, 4)[1:], t(4, 3).t(), t(2, 3, 4).transpose(0, 2)):
        assert layout(run, x) == layout(fn, x)
    sizes = lambda f, x: (lambda y, u: (y.shape, y.stride(), y.storage_offset(), u.untyped_storage().nbytes()))(*f(x))  # noqa: E731
    if place[0] >= 0 and len(place[1]) == len(place[2]) and min(place[2], default=1) > 0:
        for x in (t(5), t(1, 3), t(3, 0)):
            assert sizes(run, x) == sizes(fn, x)


@pytest.mark.filterwarnings("ignore:flex_attention called without")
@pytest.mark.parametrize("order", [(0, 1, 2, 3), (0, 2, 1, 3), (0, 1, 3, 2), (3, 2, 1, 0), (1, 0, 2, 3), (0, 2, 3, 1)])
def test_flex_attention_is_laid_out_as_its_query(order):
    fn = lambda q, k: flex_attention(q, k, k)  # noqa: E731
    run = compiled(fn)
    for n in (3, 0, 5, 1):
        sizes = (2, 3, n, 8)
        q = t(*[sizes[d] for d in order]).permute(*[order.index(d) for d in range(4)])
        assert run(q, t(2, 3, 4, 8)).stride() == fn(q, t(2, 3, 4, 8)).stride()


# -- settings around a program -----------------------------------------------------------------------------------------------
class Doubled(TorchFunctionMode):
    """Sines are twice what they are."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.sin else out


def pulled_back(x):
    out, back = torch.func.vjp(torch.sin, x)
    return out, back(out), back(torch.ones_like(out))


TRANSFORMED = {
    "vjp": lambda x: [v[0] if isinstance(v, tuple) else v for v in pulled_back(x)],
    "grad": lambda x: [torch.func.grad(lambda v: torch.sin(v).sum())(x)],
    "vmap": lambda x: [torch.vmap(lambda v: torch.sin(v).sum())(x)],
    "jacrev": lambda x: [torch.func.jacrev(torch.sin)(x)],
    "jacfwd": lambda x: [torch.func.jacfwd(torch.sin)(x)],
    "jvp": lambda x: list(torch.func.jvp(torch.sin, (x,), (x,))),
    "independent": lambda x: list(torch.func.jvp(lambda a: torch.ones(3), (x,), (x,))),
}


@pytest.mark.parametrize("around", [Doubled, torch.inference_mode])
@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_inside_of_modes(name, around):
    program = TRANSFORMED[name]
    run = compiled(program)
    for context in (contextlib.nullcontext, around, contextlib.nullcontext, around):
        for x in (t(2, 3), t(3, 4)):
            with context():
                got, want = run(x), program(x)
            assert [(v.is_inference(), v.stride()) for v in got] == [(v.is_inference(), v.stride()) for v in want]
            torch.testing.assert_close(got, want)


def test_a_function_with_a_cache_that_changes(monkeypatch):
    """Its cache has the answers from before, where it has any."""

    @functools.lru_cache
    def area(n, *, k=3):
        return n * 2 + k

    fn = lambda x: x * area(x.shape[0])  # noqa: E731
    run = compiled(fn)
    for n in (3, 5, 7, 9):
        assert fn(t(n, 2)).tolist() == run(t(n, 2)).tolist()
    for k in (5, 3, 4):
        monkeypatch.setattr(area.__wrapped__, "__kwdefaults__", {"k": k})
        for n in (3, 11 + k, 7, 20 + k):
            assert fn(t(n, 2)).tolist() == run(t(n, 2)).tolist()


class Listening(TorchFunctionMode):
    """Writes down what it is told."""

    def __init__(self):
        super().__init__()
        self.told = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.told.append(func.__name__)
        return func(*args, **(kwargs or {}))


def broken(x):
    y = x.sin()
    pliant.graph_break()
    return y + 1, x * 2


HEARD = {
    "dtype": lambda x: (x.dtype, x + 1),
    "shape": lambda x: (x.reshape(x.shape[0], -1) * x.shape[1], x.mT.shape),
    "flags": lambda x: (x.shape, x.requires_grad, x.to(x.dtype), x.ndim),
    "results": lambda x: ((y := x * 2).dtype, y.grad_fn is None, y.shape[0], y.device),
    "numbers": lambda x: (x.numel(), x.is_floating_point(), x.stride(), x.dim(), torch.numel(x)),
    "length": lambda x: (len(x), x * len(x)),
    "break": broken,
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", HEARD)
def test_modes_hear_of_what_the_program_asks_and_of_nothing_else(name, grad):
    """Attributes, lengths and numbers too; nothing of what a compiler looks at."""
    program = HEARD[name]
    run = compiled(program)
    mode = Listening()
    for around in (mode, mode, Listening()):
        for n in (2, 2, 3, 4):
            x, said = t(n, 3).requires_grad_(grad), []
            for f in (program, run):
                around.told.clear()
                with around:
                    f(x)
                said.append(list(around.told))
            assert said[0] == said[1]


# -- who is told of attributes -----------------------------------------------------------------------------------------------
class Ears(TorchFunctionMode):
    """Writes down what it is told."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        Logged.calls.append(func.__name__)
        return func(*args, **(kwargs or {}))


class Told(torch.Tensor):
    """Writes down what it is told, and breaks no graph."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Logged.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def written_and_left(x):
    y = x * 2
    pliant.graph_break()
    y.mul_(2)
    pliant.graph_break()
    return y + x


def written_twice(x):
    x.mul_(2)
    return x * 2


def detached_in_place(x):
    y = x * 2
    y.detach_()
    return y + 1


def with_gradient_set(x):
    x.grad = torch.ones_like(x)
    return x.grad * 2


def differentiated(x):
    (x * 2).sum().backward()
    return x.grad


def made_to_require(x):
    x.requires_grad = True
    return x * 2


ASKING = [
    lambda x: x * 2 if x.grad is None else x.grad + 1,
    lambda x: x * 2 if x.is_leaf else x + 1,
    lambda x: (x * 2, x._version),
    lambda x: (x * 2, x._is_view()),
    lambda x: (x.equal(x), x.allclose(x), x.is_inference(), x.nelement(), x.numel()),
    lambda x: x.requires_grad_() * 2,
    written_and_left, written_twice, detached_in_place, with_gradient_set, differentiated, made_to_require,
]


def heard(fn, make, mode):
    """What a call tells, of a tensor of three sizes, the first of them twice."""
    told = []
    for n in (3, 3, 4, 5):
        x = make(n)
        Logged.calls.clear()
        try:
            with Ears() if mode else contextlib.nullcontext():
                fn(x)
        except RuntimeError:
            Logged.calls.append("raised")
        told.append(list(Logged.calls))
    return told


MAKERS = {
    "plain": torch.ones,
    "leaf": lambda n: torch.ones(n, requires_grad=True),
    "result": lambda n: torch.ones(n, requires_grad=True) * 1,
    "sparse": lambda n: torch.ones(n).to_sparse(),
    "class": lambda n: torch.ones(n).as_subclass(Told),
    "leaf of a class": lambda n: torch.ones(n).as_subclass(Told).requires_grad_(),
    "result of a class": lambda n: torch.ones(n, requires_grad=True).as_subclass(Told),
}


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("fn", ASKING)
def test_guards_and_the_compiler_tell_nobody_that_they_read_a_tensor(fn, kind):
    run = compiled(fn)
    assert heard(run, MAKERS[kind], "class" not in kind) == heard(fn, MAKERS[kind], "class" not in kind)


def test_only_leaves_can_be_made_to_require_gradients_by_assignment():
    run = compiled(made_to_require)
    for make in (MAKERS["plain"], MAKERS["leaf"], MAKERS["result"]):
        assert outcome(run, make(3)) == outcome(made_to_require, make(3))


@pytest.mark.parametrize("default", [torch.ones(1), {}, None])
def test_the_default_of_keywords_given_back(default, monkeypatch):
    def fn(x):
        Logged.calls.clear()
        y = x.clone().as_subclass(Told)
        y.add_(1)
        y[0] = 3
        y += x
        return list(Logged.calls), len(y)

    run = compiled(fn)
    x = t(3).requires_grad_()
    assert outcome(run, x) == outcome(fn, x)
    for _ in range(2):
        with monkeypatch.context() as m:
            m.setattr(Told.__torch_function__.__func__, "__defaults__", ((), default))
            assert outcome(run, x) == outcome(fn, x)
        for _ in range(3):
            assert outcome(run, x) == outcome(fn, x)


# -- custom operators ----------------------------------------------------------------------------------------------------------
@torch.library.custom_op("pliant_perturbed::scaled", mutates_args=())
def scaled(x: torch.Tensor, k: float) -> torch.Tensor:
    return x * k


scaled.register_fake(lambda x, k: torch.empty_like(x))
scaled.register_vmap(lambda info, in_dims, x, k: (scaled(x, k), in_dims[0]))
scaled.register_autograd(lambda ctx, g: (g * ctx.k, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "k", inputs[1]))


def differentiated_operator(x):
    x = x.detach().requires_grad_()
    return torch.autograd.grad(scaled(x, 2.0).sum(), x)[0]


@pytest.mark.parametrize("fn", [
    lambda x: torch.vmap(lambda r: scaled(r, 2.0))(x), lambda x: torch.vmap(lambda r: torch.ops.pliant_perturbed.scaled(r, 2.0))(x),
    lambda x: torch.vmap(lambda r: torch.ops.pliant_perturbed.scaled.default(r, 2.0))(x), differentiated_operator,
])  # fmt: skip
def test_rules_of_an_operator_that_others_replace(fn, monkeypatch):
    run = compiled(fn)
    rules = {
        "_vmap_fn": lambda info, in_dims, x, k: (scaled(x, k + 1), in_dims[0]),
        "_backward_fn": lambda ctx, g: (g * 7, None),
        "_setup_context_fn": lambda ctx, inputs, output: setattr(ctx, "k", 5.0),
    }
    assert outcome(run, t(3, 4)) == outcome(fn, t(3, 4))
    for name, rule in rules.items():
        with monkeypatch.context() as m:
            m.setattr(scaled, name, rule)
            assert outcome(run, t(3, 4)) == outcome(fn, t(3, 4))
        assert outcome(run, t(3, 4)) == outcome(fn, t(3, 4))


def test_rules_for_batches_are_given_tensors_with_their_class():
    fn = lambda x: torch.vmap(lambda r: scaled(r, 2.0))(x)  # noqa: E731
    run = compiled(fn)
    for x in (t(3, 4), t(3, 4).as_subclass(Told), t(3, 4)):
        assert outcome(run, x) == outcome(fn, x)


# -- classes and rules that change ---------------------------------------------------------------------------------------------
class Counted(torch.Tensor):
    @staticmethod
    def __new__(cls, x, scale=1.0):
        return torch.Tensor._make_subclass(cls, x)

    def __init__(self, x, scale=1.0):
        self.scale = scale


@pytest.mark.parametrize("init", [functools.partial(lambda x, scale: None), staticmethod(lambda x, scale: None), lambda self, x, scale: 3])
def test_constructors_of_tensors_that_are_no_functions(init, monkeypatch):
    fn = lambda x: (Counted(x, 2.0).sum() * 2, getattr(Counted(x, 3.0), "scale", None))  # noqa: E731
    run = compiled(fn)
    for replaced in (False, True, False):
        with monkeypatch.context() as m:
            if replaced:
                m.setattr(Counted, "__init__", init)
            assert outcome(run, t(3)) == outcome(fn, t(3))


def test_a_class_of_tensors_with_a_getattribute(monkeypatch):
    fn = lambda x: (x.half_of, (x.as_subclass(Counted) * 2).half_of, x.shape[0])  # noqa: E731
    Counted.half_of = 5
    run = compiled(fn)
    other = lambda self, name: 7 if name == "half_of" else torch.Tensor.__getattribute__(self, name)  # noqa: E731
    for replaced in (False, True, False):
        with monkeypatch.context() as m:
            if replaced:
                m.setattr(Counted, "__getattribute__", other)
            x = torch.ones(3).as_subclass(Counted)
            assert run(x) == fn(x)


class Ruled(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 2


@pytest.mark.parametrize("name", ["forward", "setup_context"])
@pytest.mark.parametrize("rule", [staticmethod(None), staticmethod(property(lambda x: x)), classmethod(lambda cls, x: x * 3), None])
def test_rules_that_are_no_static_methods(name, rule, monkeypatch):
    fn = lambda x: Ruled.apply(x) + 1  # noqa: E731
    run = compiled(fn)
    for replaced in (False, True, False):
        with monkeypatch.context() as m:
            if replaced:
                m.setattr(Ruled, name, rule)
            assert outcome(run, t(3)) == outcome(fn, t(3))


class Unanswered(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return NotImplemented if func is torch.sub else super().__torch_function__(func, types, args, kwargs or {})


@pytest.mark.parametrize("holder", [property, staticmethod, functools.partial, classmethod])
def test_class_methods_that_hold_no_functions(holder, monkeypatch):
    def program(x):
        try:
            return torch.sub(x.as_subclass(Unanswered), 1), x * 2
        except TypeError:
            return x + 1

    run, x = compiled(program), t(3)
    assert outcome(run, x) == outcome(program, x)
    monkeypatch.setattr(Unanswered, "__torch_function__", classmethod(holder(Unanswered.__dict__["__torch_function__"].__func__)))
    assert outcome(run, x) == outcome(program, x)
    inside = x.as_subclass(Unanswered)
    later = lambda v: v - 1  # noqa: E731
    assert outcome(compiled(later), inside) == outcome(later, inside)


@pytest.mark.parametrize("widths", [(3, 3, 3), (3, 1, 3), (3, 3, 1), (4, 4, 4)])
def test_padding_of_rows_of_other_widths(widths):
    program = lambda rows: rnn.pad_sequence(rows, batch_first=True) + 1  # noqa: E731
    run = compiled(program)
    for given in ((3, 3, 3), widths, (5, 5, 5)):
        rows = [t(n, w) for n, w in zip((3, 2, 1), given, strict=True)]
        torch.testing.assert_close(run(rows), program(rows), rtol=0, atol=0)


class Labelled(torch.Tensor):
    pass


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("more", [{}, {"return_lse": True}])
def test_flex_attention_of_tensors_of_a_subclass(place, more):
    program = lambda *heads: flex_attention(*heads, **more)  # noqa: E731
    given = [t(1, 2, 4, 8, seed=i) for i in range(3)]
    given[place] = given[place].as_subclass(Labelled)
    got, want = compiled(program)(*given), program(*given)
    for a, b in zip(got, want, strict=True) if more else [(got, want)]:
        assert type(a) is type(b)
        torch.testing.assert_close(a, b)


class WithForward(torch.autograd.Function):
    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def vmap(info, dims, x):
        return x * 2, dims[0]


@pytest.mark.parametrize("name", ["vmap", "setup_context"])
def test_forward_that_is_another_function_of_its_class(name, monkeypatch):
    program = lambda x: torch.vmap(WithForward.apply)(x)  # noqa: E731
    run = compiled(program)
    assert outcome(run, t(3, 4)) == outcome(program, t(3, 4))
    monkeypatch.setattr(WithForward, "forward", WithForward.__dict__[name])
    assert outcome(run, t(3, 4)) == outcome(program, t(3, 4)) is TypeError


def test_scans_of_tensors_without_elements():
    program = lambda x: associative_scan(lambda a, b: a + b, x, 0, combine_mode="generic")  # noqa: E731
    run = compiled(program)
    for x in (t(3, 4), torch.ones(3, 0), t(4, 4)):
        got, want = run(x), program(x)
        assert got.shape == want.shape and got.stride() == want.stride()


def test_padding_of_rows_that_are_not_all_captured():
    program = lambda rows: rnn.pad_sequence(rows).shape == (3, 2, 2)  # noqa: E731
    run = compiled(program)
    for rows in ([t(3, 2), t(2, 2)], [t(3, 2).to("meta"), t(2, 2)], [t(3, 2), t(2, 2).to_sparse()]):
        assert outcome(run, rows) == outcome(program, rows)


# -- checkpoints and hooks on saved tensors -------------------------------------------------------------------------------
def test_checkpoints_where_hooks_on_saved_tensors_are_disabled_or_set():
    """They are such hooks: they raise where these are disabled, and what is saved inside goes to no other ones."""

    def fn(x):
        return torch.utils.checkpoint.checkpoint(lambda v: v.sin() * v, x, use_reentrant=False)

    def gradient(f, x):
        x = x.clone().requires_grad_()
        f(x).sum().backward()
        return x.grad

    run, seen = compiled(fn), []
    halves = torch.autograd.graph.saved_tensors_hooks(lambda v: seen.append(1) or v.half(), lambda v: v.float())
    for hooks in (contextlib.nullcontext(), halves):
        with hooks:
            torch.testing.assert_close(gradient(run, t(3)), gradient(fn, t(3)))
    for n in (3, 4):
        with torch.autograd.graph.disable_saved_tensors_hooks("none here"):
            with pytest.raises(RuntimeError, match="none here"):
                run(t(n).requires_grad_())
            with torch.no_grad():
                assert torch.equal(run(t(n)), fn(t(n)))
        torch.testing.assert_close(gradient(run, t(n)), gradient(fn, t(n)))


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_dropout_in_vmap_draws_by_slices_however_the_tensor_lies(randomness):
    dropped = lambda x: torch.func.vmap(lambda r: torch.nn.functional.dropout(r, 0.5), randomness=randomness)(x)  # noqa: E731
    along = lambda x: torch.func.vmap(lambda r: torch.nn.functional.dropout(r, 0.5), 1, randomness=randomness)(x)  # noqa: E731
    for fn in (dropped, along):
        run = compiled(fn)
        for x in (t(3, 4), t(4, 3).t(), t(6, 4)[::2], t(4, 3, 2).permute(2, 1, 0), t(3, 1).expand(3, 4)):
            torch.manual_seed(0)
            want = fn(x)
            torch.manual_seed(0)
            got = run(x)
            assert got.tolist() == want.tolist() and got.stride() == want.stride()


@pytest.mark.parametrize("fn", [lambda x: x.T, lambda x: x.mT, lambda x: x.view_as(x), lambda x: x.t(), lambda x: (x * 2).T])
def test_views_in_inference_mode_keep_that_they_require_gradients(fn):
    run = compiled(fn)
    for n in (3, 4):
        x = t(n, 4).requires_grad_()
        with torch.inference_mode():
            got, want = run(x), fn(x)
            assert (got.requires_grad, got.is_inference(), got.is_leaf) == (want.requires_grad, want.is_inference(), want.is_leaf)


# -- what is put on the class of parameters, or of buffers, itself ------------------------------------------------------------
WEIGHT = torch.nn.Parameter(torch.ones(3, 2))
MEAN = torch.nn.Buffer(torch.ones(3))
PUT = [
    (lambda x: (x + 1, WEIGHT.sum()), "sum", lambda p: 77),
    (lambda x: (x + 1, hasattr(WEIGHT, "found_later"), getattr(WEIGHT, "found_later", 3)), "found_later", 5),
    (lambda x: (x + 1, len(WEIGHT)), "__len__", lambda p: 77),
    (lambda x: (x + 1, WEIGHT[0]), "__getitem__", lambda p, k: 77),
    (lambda x: (x + 1, WEIGHT == WEIGHT), "__eq__", lambda p, q: 77),
    (lambda x: (x + 1, x[0, 0] * WEIGHT), "__rmul__", lambda p, q: 77),
    (lambda x: (x + 1, x[0] == WEIGHT), "__eq__", lambda p, q: 77),
    (lambda x: (x + 1, -WEIGHT), "__neg__", lambda p: 77),
    (lambda x: (x + 1, torch.nn.Parameter(x).sum()), "sum", lambda p: 77),
    (lambda x: (x + 1, WEIGHT.sum()), "__getattribute__", lambda p, n: (lambda: 77) if n == "sum" else torch.Tensor.__getattribute__(p, n)),
]


@pytest.mark.parametrize(("program", "name", "put"), PUT, ids=[f"{i} {n}" for i, (_, n, _) in enumerate(PUT)])
def test_methods_put_on_the_class_of_parameters(program, name, put, monkeypatch):
    run, x = compiled(program), torch.ones(2, 2)
    assert outcome(run, x) == outcome(program, x)
    with monkeypatch.context() as m:
        m.setattr(torch.nn.Parameter, name, put, raising=False)
        assert outcome(run, x) == outcome(program, x)
    assert outcome(run, x) == outcome(program, x)


def test_methods_put_on_the_class_of_buffers(monkeypatch):
    def program(x):
        return x + 1, MEAN.sum()

    run, x = compiled(program), torch.ones(2)
    assert outcome(run, x) == outcome(program, x)
    monkeypatch.setattr(torch.nn.Buffer, "sum", lambda p: 77, raising=False)
    assert outcome(run, x) == outcome(program, x)


# -- kernels that draw no whole numbers --------------------------------------------------------------------------------------
DRAWN = {
    "rand": lambda y: torch.rand(3, dtype=y.dtype), "randn": lambda y: torch.randn(3, dtype=y.dtype), "rand_like": torch.rand_like,
    "randn_like": torch.randn_like, "uniform_": lambda y: y.clone().uniform_(), "normal_": lambda y: y.clone().normal_(),
    "exponential_": lambda y: y.clone().exponential_(), "of another dtype": lambda y: torch.rand_like(y.float(), dtype=y.dtype),
}  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.float32, torch.complex64])
@pytest.mark.parametrize("name", DRAWN)
def test_what_is_done_before_a_kernel_refuses_to_draw(name, dtype):
    def program(x, items, y):
        items.append(items[0])
        x.add_(1)
        return DRAWN[name](y)

    said = []
    for fn in (program, compiled(program)):
        x, y = torch.ones(4), torch.arange(4).to(dtype)
        items = [x]
        torch.manual_seed(0)
        try:
            out = fn(x, items, y).tolist()
        except (NotImplementedError, RuntimeError) as e:
            out = type(e), str(e)
        said.append((out, len(items), x.tolist()))
    assert said[0] == said[1]


def test_pixels_of_nothing():
    """The kernel leaves what has no elements as it is, and PyTorch's own gradient of that has another size."""
    fn = lambda x: (torch.nn.functional.pixel_unshuffle(x, 2) + 1, torch.nn.functional.pixel_unshuffle(x.mT, 2).shape)  # noqa: E731
    check(fn, *[(torch.zeros(s),) for s in ((2, 3, 4, 4), (0, 4, 4, 4), (2, 0, 4, 4), (2, 4, 0, 4), (4, 4, 4), (0, 4, 4), (2, 3, 2, 6))])


@pytest.mark.parametrize("fn, sizes", [
    (lambda x: torch.nn.functional.pixel_unshuffle(torch.relu(x), 2), ((2, 4, 4, 4), (0, 4, 4, 4), (2, 0, 4, 4), (0, 4, 4))),
    (lambda x: torch.nn.functional.group_norm(x, 2), ((3, 4), (3, 0), (0, 4))),
])  # fmt: skip
def test_gradients_of_nothing(fn, sizes):
    """Eager refuses those of `pixel_unshuffle`, if gradients ever arrive."""
    run = compiled(fn)
    for size in sizes:
        said = []
        for f in (fn, run):
            x = torch.zeros(size, requires_grad=True)
            y = f(x)
            try:
                y.sum().backward()
                said.append((y.shape, x.grad.shape))
            except RuntimeError as e:
                said.append((y.shape, str(e)))
        assert said[0] == said[1]


# -- tensors whose insides are swapped ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("program", [
    lambda m, x: (m(x), id(m.weight) == id(m.bias)), lambda m, x: (m(x), len({id(p) for p in m.parameters()})),
    lambda m, x: (m(x), {p: i for i, p in enumerate(m.parameters())}[m.bias]), lambda m, x: (m(x), [m.bias is p for p in m.parameters()]),
    lambda m, x: (m.load_state_dict({k: v + 1 for k, v in m.state_dict().items()}), m(x))[1],
])  # fmt: skip
def test_guards_do_not_keep_parameters_from_being_swapped(program):
    """`swap_tensors` refuses a tensor to which somebody has a weak reference."""
    before = torch.__future__.get_swap_module_params_on_conversion()
    torch.__future__.set_swap_module_params_on_conversion(True)
    try:
        torch.manual_seed(0)
        module, x = torch.nn.Linear(4, 2), torch.ones(1, 4)
        copied, run = copy.deepcopy(module), pliant.compile(program, strict=True, backend="aten")
        for dtype in (torch.float32, torch.float64, torch.float32):
            module.to(dtype), copied.to(dtype)
            torch.testing.assert_close(run(module, x.to(dtype)), program(copied, x.to(dtype)))
            assert not any(weakref.getweakrefs(p) for p in module.parameters())
    finally:
        torch.__future__.set_swap_module_params_on_conversion(before)


def test_another_tensor_where_one_was_is_not_that_one():
    known = [0]
    run = pliant.compile(lambda x, t: x + (1 if id(t) == known[0] else 2), strict=True, backend="aten")
    t = torch.ones(2)
    known[0] = id(t)
    assert run(torch.zeros(1), t) == 1
    for _ in range(20):
        del t
        t = torch.ones(2)  # mostly at the same address
        assert run(torch.zeros(1), t) == (1 if id(t) == known[0] else 2)
    other = torch.ones(2)
    torch.utils.swap_tensors(t, other)
    known[0] = id(t)
    assert (run(torch.zeros(1), t), run(torch.zeros(1), other)) == (1, 2)


# -- methods of C behind those that PyTorch has written in Python -----------------------------------------------------------------
def said(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as e:
        return type(e).__name__, str(e)


@pytest.mark.parametrize("program", [
    lambda x, n: x.unflatten(1, (n, 4 // n)), lambda x, n: torch.nn.Unflatten(1, (n, -1))(x), lambda x, n: x.unflatten(n - 1, (-1, 1)),
    lambda x, n: super(torch.Tensor, x).unflatten(1, (n, -1)), lambda x, n: super(torch.Tensor, x).split(n),
    lambda x, n: super(torch.Tensor, x).norm(n), lambda x, n: (super(torch.Tensor, x).__hash__, n),
])  # fmt: skip
def test_methods_of_c_behind_super(program):
    x = torch.linspace(-1, 1, 12).reshape(3, 4)
    for kind in (int, np.int64, np.uint8, float):
        run = pliant.compile(program, strict=True, backend="aten")
        for n in (2, 1, 2):
            assert said(run, x, kind(n)) == said(program, x, kind(n)), (kind, n)


MEMORY = {
    "_overlaps": lambda x, y: (torch._C._overlaps(x[:2], x), torch._C._overlaps(x, y)),
    "_is_alias_of": lambda x, y: (torch._C._is_alias_of(x[:2], x), torch._C._is_alias_of(x, y)),
    "_dispatch_keys": lambda x, y: str(torch._C._dispatch_keys(x * 1)),
    "_infer_size": lambda x, y: torch._C._infer_size(x.shape, y.shape),
}


@pytest.mark.parametrize("name", MEMORY)
def test_questions_of_the_c_library_about_memory_and_keys(name) -> None:
    """What stands for a tensor while a frame is captured has memory and dispatch keys of its own."""
    fn = pliant.compile(MEMORY[name], backend="aten")
    for n, one in ((3, False), (3, True), (4, False)):
        x = torch.ones(n, 4)
        y = x if one else torch.ones(n, 4)
        assert fn(x, y) == MEMORY[name](x, y)


STATE = torch.Generator()


def state_and_numbers(n):
    with torch.inference_mode():
        return STATE.get_state(), torch.rand(n, generator=STATE)


@pytest.mark.parametrize("inference", [False, True])
def test_the_state_of_a_generator_that_comes_up_in_inference_mode(inference) -> None:
    told = []
    for run in (state_and_numbers, pliant.compile(state_and_numbers, backend="aten")):
        STATE.manual_seed(3)
        with torch.inference_mode(inference):
            results = [run(n) for n in (3, 4, 3)]
        told.append([[(t.is_inference(), t.tolist()) for t in pair] for pair in results])
    assert told[0] == told[1]
