"""What modes and classes are told, whatever their `__torch_function__` is called and however it takes its arguments."""

from __future__ import annotations

import contextlib
import functools
import gc
import operator
import random

import pytest
import torch
from torch._higher_order_ops.hints_wrap import hints_wrapper
from torch.overrides import TorchFunctionMode

from tests.helpers import pliant


def usual(self, fn, types, args=(), kwargs=None):
    self.heard.append((fn.__name__, types))
    return fn(*args, **(kwargs or {}))


def open_handed(self, *args, **kwargs):
    return usual(self, *args, **kwargs)


def some_open(self, fn, *rest):
    return usual(self, fn, *rest)


@functools.wraps(usual)
def wrapped(*args, **kwargs):
    return usual(*args, **kwargs)


def named(fn):
    def __torch_function__(*args, **kwargs):  # noqa: N807
        return fn(*args, **kwargs)

    return __torch_function__


SPELLINGS = {
    "usual": usual, "open": open_handed, "some open": some_open, "wrapped": wrapped, "named": named(usual),
    "named, open": named(open_handed),
}  # fmt: skip


def of_mode(kind):
    def program(x):
        with kind() as m:
            y = x * len(x)
            z = [len(v) for v in (x, y)]
            n = x.numel() + x.dim()
            q = torch.add(x, y)
            p = torch.nn.Parameter(x)
            len(p)
            y = y + torch.Tensor([2.0, 3.0])[0]
        return y, q, n, z, m.heard

    return program


def of_class(kind):
    def program(x):
        kind.heard.clear()
        y = x.as_subclass(kind)
        z = y * 2 + x
        len(y), y.numel()
        return z, torch.add(y, x), list(kind.heard)

    return program


@pytest.mark.parametrize("name", SPELLINGS)
@pytest.mark.parametrize("mode", [True, False])
def test_what_is_told(name, mode):
    spelling = SPELLINGS[name]
    if mode:
        kind = type("Kind", (TorchFunctionMode,), {"__torch_function__": spelling, "__init__": begun})
        program = of_mode(kind)
    else:

        class Kind(torch.Tensor):
            heard: list = []  # noqa: RUF012

            @classmethod
            def hear(cls, fn, types, args=(), kwargs=None):
                cls.heard.append((fn.__name__, types))
                return super().__torch_function__(fn, types, args, kwargs or {})

        def given(cls, *args):
            return Kind.hear(*args)

        Kind.__torch_function__ = classmethod(given if "open" in name else named(given))
        program = of_class(Kind)
    compiled = pliant.compile(program)
    for n in (3, 4, 3):
        want, got = program(torch.ones(n)), compiled(torch.ones(n))
        assert type(want[0]) is type(got[0]) and torch.equal(want[0].as_subclass(torch.Tensor), got[0].as_subclass(torch.Tensor))
        assert want[2:] == got[2:]


def begun(self):
    TorchFunctionMode.__init__(self)
    self.heard = []


class Reads:
    def __get__(self, obj, cls=None):
        return type(obj).__name__, cls.__name__, None if obj is None else obj.shape[0]


class Stands(Reads):
    def __set__(self, obj, value):
        raise AttributeError


class Plain(torch.Tensor):
    reads, stands = Reads(), Stands()
    later = functools.partialmethod(lambda self, k: (k, type(self).__name__), 3)


class Told(torch.Tensor):
    reads, stands = Reads(), Stands()
    later = functools.partialmethod(lambda self, k: (k, type(self).__name__), 3)

    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        return super().__torch_function__(fn, types, args, kwargs or {})


@pytest.mark.parametrize("kind", [Plain, Told])
def test_descriptors_of_classes_of_tensors_are_given_the_tensor(kind):
    made = lambda x: (x.as_subclass(kind).reads, x.as_subclass(kind).stands, x.as_subclass(kind).later(), x + 1)  # noqa: E731
    given = lambda x: (x.reads, x.stands, x.later(), x + 1)  # noqa: E731
    for program, convert in ((made, lambda x: x), (given, lambda x: x.as_subclass(kind))):
        compiled = pliant.compile(program)
        for n in (3, 4):
            x = convert(torch.ones(n))
            assert program(x)[:3] == compiled(x)[:3]


@pytest.mark.parametrize("late", [False, True])
def test_a_device_context_is_on_the_stack_once(late):
    def program(x):
        n = torch.nested.as_nested_tensor([x, x[:1].sin()], layout=torch.jagged)
        return (n * 2).to_padded_tensor(0.0), n.sin().values()

    compiled = pliant.compile(program)
    if late:
        compiled(torch.ones(3, 4))
    depth = torch._C._len_torch_function_stack()
    for _ in range(2):
        with torch.device("cpu"):
            compiled(torch.ones(3, 4))
            gc.collect()
            assert torch._C._len_torch_function_stack() == depth + 1
    assert torch._C._len_torch_function_stack() == depth


class Doubles(torch.Tensor):
    @classmethod
    def __torch_function__(cls, fn, types, args=(), kwargs=None):
        out = super().__torch_function__(fn, types, args, kwargs or {})
        with torch._C.DisableTorchFunctionSubclass():
            return (out * 2).as_subclass(cls) if isinstance(out, torch.Tensor) and torch.is_floating_point(out) else out


def test_a_class_is_told_of_operators_that_run_functions():
    program = lambda x: hints_wrapper(lambda a, b: a + b, (x, x), {}, hints={"k": True})  # noqa: E731
    compiled = pliant.compile(program)
    for x in (torch.ones(3), torch.ones(3).as_subclass(Doubles), torch.ones(4).as_subclass(Doubles)):
        want, got = program(x), compiled(x)
        assert type(want) is type(got)
        with torch._C.DisableTorchFunctionSubclass():
            assert torch.equal(want, got)


def sets_and_unsets(x):
    torch.set_default_device("cpu")
    y = torch.zeros(4)
    torch.set_default_device(None)
    return x + y


def sets_within(x):
    with torch.device("cpu"):
        torch.set_default_device("cpu")
        y = torch.zeros(4)
    return x + y


def unsets(x):
    torch.set_default_device(None)
    return x + torch.zeros(4)


@pytest.mark.parametrize("program", [sets_and_unsets, sets_within, unsets])
def test_a_device_that_is_set_is_told_from_one_that_is_entered(program):
    """Setting another default ends the one, and not the other."""
    run = pliant.compile(program, strict=True, backend="aten")
    stack = lambda: [torch._C._get_function_stack_at(i).device.type for i in range(torch._C._len_torch_function_stack())]  # noqa: E731

    def entered(fn):
        torch._C._push_on_torch_function_stack(torch.utils._device.DeviceContext("cpu"))  # as `with torch.device("cpu")` does
        return result(fn)

    def put(fn):
        torch.set_default_device("cpu")
        return result(fn)

    def both(fn):
        torch.utils._device.DeviceContext("meta").__enter__()
        torch.set_default_device("cpu")
        return result(fn)

    def result(fn):
        try:
            said = fn(torch.ones(4)).tolist()
        except Exception as e:
            said = repr(e)
        found = said, stack(), str(torch.utils._device.CURRENT_DEVICE)
        while torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()
        torch.utils._device.CURRENT_DEVICE = torch._GLOBAL_DEVICE_CONTEXT.device_context = None
        return found

    for around in (result, entered, put, both, entered, put, result):
        assert around(run) == around(program), around


def test_a_default_device_stays_after_functions_of_torch_written_in_python():
    """Those that ask `has_torch_function` tell it of themselves while it is off."""
    def program(x):
        return torch.nn.functional.triplet_margin_with_distance_loss(x, x + 0.3, x * -1) * 2

    run, x = pliant.compile(program, backend="aten"), torch.ones(3, 4)
    want = program(x)
    torch.set_default_device("cpu")
    try:
        for _ in range(3):
            assert torch.equal(run(x), want)
            assert torch._C._len_torch_function_stack() == 1
    finally:
        torch.set_default_device(None)
    assert torch.equal(run(x), want)
    assert torch._C._len_torch_function_stack() == 0


def twice_with_a_hook(x):
    y = x * 2
    y.register_hook(lambda g: g.clamp(-0.5, 0.5))
    (g,) = torch.autograd.grad(y.sin().sum(), x, create_graph=True)
    return g.sum() + y


def of_named(x):
    y = x.sin()
    a = torch.autograd.grad(y.sum(), {"x": x}, retain_graph=True)["x"]
    (b,) = torch.autograd.grad([y.sum(), (y * y).sum()], [x], allow_unused=True)
    return a + b


def in_batches(x):
    return torch.autograd.grad(x.exp(), x, torch.eye(4), is_grads_batched=True)[0] + x


def inside_of_a_mode(x):
    with Doubling():
        return torch.autograd.grad(x.exp().sum(), x)[0] + x


def backward_of_both_kinds(x):
    x.sin().sum().backward()
    torch.autograd.backward([(x * 3).sum()], [torch.ones(())])
    return x.grad * x


def hooks_on_leaves(x):
    x.register_hook(lambda g: g * 3)
    x.register_post_accumulate_grad_hook(lambda t: t.grad.mul_(2) is None or None)
    return x * 2


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return tuple([2 * g for g in out]) if func is torch.autograd.grad else out


class Instead(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return (torch.ones(4),) if func is torch.autograd.grad else func(*args, **(kwargs or {}))


class Listening(TorchFunctionMode):
    def __init__(self):
        super().__init__()
        self.heard = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.heard.append((func.__name__, types, len(args), sorted(kwargs or ())))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", [Doubling, Instead, Listening])
@pytest.mark.parametrize("program", [twice_with_a_hook, of_named, in_batches, inside_of_a_mode, backward_of_both_kinds, hooks_on_leaves])
def test_modes_are_told_of_what_takes_gradients(program, kind):
    if program is of_named and kind is Instead:
        pytest.skip("eager cannot index what the mode gives")
    run, said = pliant.compile(program, backend="aten"), []
    for fn in (program, run, run):
        x = torch.linspace(-1, 1, 4, requires_grad=True)
        with kind() as mode:
            out = fn(x)
        if out.requires_grad:
            out.sum().backward()
        said.append((out.tolist(), x.grad, getattr(mode, "heard", None)))
    assert str(said[0]) == str(said[1]) == str(said[2])


class OfAClass(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


# -- what syntax asks of tensors ------------------------------------------------------------------------------------------
def told_truth(x, i, s):
    return x + 1 if s > 0 else x - 1


def told_assert(x, i, s):
    assert s > 0
    return x + 1


def told_rows(x, i, s):
    total = 0
    for r in x:
        total = total + r
    return total


def told_setitem(x, i, s):
    y = x * 1
    y[i[1]] = s
    y[0:2] = s
    return y


SYNTAX = {
    "float": lambda x, i, s: float(x[0]), "int": lambda x, i, s: int(x[0]), "bool": lambda x, i, s: bool(s),
    "index of a list": lambda x, i, s: [1, 2, 3][i[1]], "index": lambda x, i, s: operator.index(i[1]), "not": lambda x, i, s: not s,
    "items": lambda x, i, s: (x[i[1]], x[1:], x[x > 0]), "set items": told_setitem, "truth": told_truth, "assert": told_assert,
    "rows": told_rows, "zip": lambda x, i, s: [a + b for a, b in zip(x, x)], "//": lambda x, i, s: (x // 2, 2 // x, x // x),
    "of Python": lambda x, i, s: (2 % x, x**2, 2**x, 1 - x, 1 / x, 1 << i, 8 >> i, abs(x)), "numel": lambda x, i, s: (x.numel(), x.dim()),
    "method": lambda x, i, s: (s.__bool__(), i[0].__index__(), x[0].__float__()),
}  # fmt: skip


@pytest.mark.parametrize("name", SYNTAX)
@pytest.mark.parametrize("modes", [1, 2])
@pytest.mark.parametrize("kind", [torch.Tensor, OfAClass])
def test_modes_are_told_of_what_syntax_asks(name, modes, kind):
    """Conversions by their own methods, items before they are taken apart, rows by Python's `__iter__`; nothing of pliant's."""
    ask = SYNTAX[name]

    def program(x, i, s):
        with Listening() as outer:
            if modes == 2:
                with Listening() as inner:
                    r = ask(x, i, s)
            else:
                inner, r = outer, ask(x, i, s)
        return r, outer.heard, inner.heard

    run, said = pliant.compile(program, backend="aten", strict=True), []
    for fn in (program, run, run):
        x = torch.tensor([-1.5, 0.25, 1.25])
        said.append(str(fn(x.as_subclass(kind) if kind is not torch.Tensor else x, torch.tensor([2, 1]), torch.tensor(1.0))))
    assert said[0] == said[1] == said[2]


def test_items_of_a_class_behind_a_break_in_a_mode():
    def program(x):
        with Listening() as m:
            n = len(x)
            y = x[1:]
            y[0] = 2.0
        return y, n, m.heard

    x = torch.arange(3.0).as_subclass(OfAClass)
    assert str(program(x)) == str(pliant.compile(program, backend="aten", strict=True)(x.clone()))


GENERATOR = torch.Generator()
ASKED = {
    "list": lambda x: list(x), "tuple": lambda x: tuple(x), "starred": lambda x: [*x], "array": lambda x: x.numpy() + 1,  # noqa: PLW0108
    "memory": lambda x: torch.from_numpy(x.numpy()), "seed": lambda x: (torch.manual_seed(3), torch.rand(2))[1],
    "state": lambda x: torch.get_rng_state().shape, "generator": lambda x: torch.rand(2, generator=torch.Generator().manual_seed(3)),
    "of outside": lambda x: torch.rand(2, generator=GENERATOR), "python's": lambda x: random.random() * x,
}


@pytest.mark.parametrize("name", ASKED)
def test_what_a_mode_from_outside_hears(name):
    """Lengths that C asks for, arrays, generators: once each, and nothing that a graph says of them."""

    class Hears(TorchFunctionMode):
        __torch_function__ = usual

    said = []
    for fn in (ASKED[name], pliant.compile(ASKED[name])):
        GENERATOR.manual_seed(1)
        random.seed(1)
        x = torch.linspace(-1, 1, 3)
        for _ in range(2):
            with Hears() as m:
                m.heard = []
                out = fn(x)
            said.append(([n for n, _ in m.heard], str(out)))
    assert said[:2] == said[2:]


class Scaling(torch.overrides.TorchFunctionMode):
    factor, heard = 2, []  # noqa: RUF012

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.heard.append(str(func))
        found = func(*args, **(kwargs or {}))
        return found * Scaling.factor if "sin" in str(func) else found


OF_OPERATORS = {
    "packet": lambda x: torch.ops.aten.sin(x) + 1, "overload": lambda x: torch.ops.aten.sin.default(x) + 1,
    "primitive": lambda x: torch.ops.prims.sin(x) + 1, "written": lambda x: torch.ops.aten.sin_(x + 1),
    "given": lambda x: torch.ops.aten.sin(x, out=torch.empty(3)),
}  # fmt: skip


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("fn", OF_OPERATORS.values(), ids=OF_OPERATORS)
def test_modes_hear_of_operators(fn, inside):
    def program(x):
        if not inside:
            return fn(x)
        with Scaling():
            return fn(x)

    run = pliant.compile(program, strict=True, backend="aten")
    x = torch.ones(3)
    for factor in (2, 3, 2):
        Scaling.factor, said = factor, []
        for f in (program, run):
            Scaling.heard.clear()
            with contextlib.nullcontext() if inside else Scaling():
                said.append((f(x).tolist(), list(Scaling.heard)))
        assert said[0] == said[1]


def test_a_derivative_of_an_operator_that_raises():
    def twice(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def derivative(ctx, g):
        raise ValueError("no gradient today")

    op = torch.library.custom_op("pliant_perturbed::twice", mutates_args=())(twice)
    op.register_fake(lambda x: torch.empty_like(x))
    op.register_autograd(derivative)
    run = pliant.compile(lambda x: op(x).sin(), strict=True, backend="aten")
    x = torch.ones(3, requires_grad=True)
    y = run(x)
    assert torch.equal(y, (x * 2).sin())
    with pytest.raises(ValueError, match="no gradient today"):
        y.sum().backward()


class Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(w)
        return x @ w

    @staticmethod
    def backward(ctx, g):
        return g @ ctx.saved_tensors[0].T, None


def test_a_function_whose_backward_raises_outside_of_autocast():
    run = pliant.compile(lambda x, w: Product.apply(x, w) * 2, strict=True, backend="aten")
    x, w = torch.ones(3, 4, requires_grad=True), torch.ones(4, 3)
    with torch.autocast("cpu", dtype=torch.float16):
        y = run(x, w)
    assert y.dtype is torch.float16
    with pytest.raises(RuntimeError, match="dtype"):
        y.sum().backward()
    run(x, w).sum().backward()
    assert torch.equal(x.grad, torch.full((3, 4), 6.0))


class Slope(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        return g * 2

    @staticmethod
    def backward(ctx, g):
        raise ValueError("no second derivative")


class Twofold(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return Slope.apply(ctx.saved_tensors[0], g)


def test_a_function_that_a_backward_applies_and_whose_own_backward_raises():
    run = pliant.compile(lambda x: torch.autograd.grad(Twofold.apply(x).sum(), x, create_graph=True)[0] * x, strict=True, backend="aten")
    x = torch.ones(3, requires_grad=True)
    assert torch.equal(run(x), torch.full((3,), 2.0))
