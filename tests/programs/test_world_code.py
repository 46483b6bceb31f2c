"""Code replaced between calls: functions, methods, builtins, PyTorch's own, hooks of modules, parameters and buffers."""

from __future__ import annotations

import builtins
import functools
import math
import operator
import types

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.programs import worlds
from tests.programs.worlds import MISSING, attribute, item, values

world = functools.partial(worlds.world, back=True)

# -- functions -----------------------------------------------------------------------------------------------------------------


def helper(x, k=1, *, j=1):
    return x + k + 10 * j


def other(x, k=1, *, j=1):
    return x - k - 10 * j


@world
def code_of_a_function():
    g = types.FunctionType(helper.__code__, globals(), "g", (1,))
    g.__kwdefaults__ = {"j": 1}
    return lambda x: g(x), *attribute(g, "__code__", other.__code__)


@world
def defaults_of_a_function():
    g = types.FunctionType(helper.__code__, globals(), "g", (1,))
    g.__kwdefaults__ = {"j": 1}
    return lambda x: g(x), *attribute(g, "__defaults__", (5,))


@world
def keyword_defaults_of_a_function():
    g = types.FunctionType(helper.__code__, globals(), "g", (1,))
    g.__kwdefaults__ = {"j": 1}
    return lambda x: g(x), *attribute(g, "__kwdefaults__", {"j": 5})


@world
def keyword_defaults_changed_in_place():
    g = types.FunctionType(helper.__code__, globals(), "g", (1,))
    g.__kwdefaults__ = {"j": 1}
    return lambda x: g(x), *item(g.__kwdefaults__, "j", 5)


@world
def default_that_is_a_list():
    def g(x, items=[1]):  # noqa: B006
        return x + len(items) + items[0]

    return lambda x: g(x), *values(lambda v: g.__defaults__[0].__setitem__(slice(None), v), [1], [1, 2], [3])


@world
def code_of_the_program_itself():
    def f(x, k=1, *, j=1):
        return x + k + 10 * j

    return (
        f,
        *attribute(f, "__defaults__", (2,)), lambda: setattr(f, "__kwdefaults__", {"j": 3}), lambda: setattr(f, "__kwdefaults__", {"j": 1}),
    )


@world
def cell_of_a_function():
    n = 1

    def g(x):
        return x + n

    return lambda x: g(x), *attribute(g.__closure__[0], "cell_contents", 2, 3)


@world
def cell_of_a_function_that_is_a_function():
    inner = helper

    def g(x):
        return inner(x)

    return lambda x: g(x), *attribute(g.__closure__[0], "cell_contents", other)


@world
def attribute_of_a_function():
    def g(x):
        return x

    g.n = 1
    return lambda x: g(x) + g.n, *attribute(g, "n", 2)


@world
def name_of_a_function():
    def g(x):
        return x

    return lambda x: (x, g.__name__, g.__qualname__), *attribute(g, "__name__", "other")


@world
def text_of_a_function():
    def g(x):
        "one"

    return lambda x: (x, g.__doc__), *attribute(g, "__doc__", "two")


@world
def module_of_a_function():
    def g(x):
        return x

    return lambda x: (x, g.__module__), *attribute(g, "__module__", "two")


@world
def wrapped_function():
    @functools.wraps(helper)
    def g(x):
        return g.__wrapped__(x)

    return lambda x: g(x), *attribute(g, "__wrapped__", other)


@world
def a_global():
    def put(n):
        globals()["NUMBER"] = n

    return lambda x: x + NUMBER, *values(put, 1, 2, 5)  # noqa: F821


@world
def a_global_function():
    def put(fn):
        globals()["FUNCTION"] = fn

    return lambda x: FUNCTION(x), *values(put, helper, other)  # noqa: F821


@world
def a_global_that_hides_a_builtin():
    space = {"__builtins__": builtins}
    exec("def f(x):\n    return x + len([1, 2])\n", space)
    return space["f"], *item(space, "len", lambda v: 9)


@world
def builtins_of_a_namespace():
    mine = {**vars(builtins)}
    space = {"__builtins__": mine}
    exec("def f(x):\n    return x + len([1, 2])\n", space)
    return space["f"], *item(mine, "len", lambda v: 9)


# -- builtins ----------------------------------------------------------------------------------------------------------------------
@world
def len_replaced():
    first = builtins.len
    return lambda x: x + len("pliant"), *attribute(builtins, "len", lambda v: 9 if v == "pliant" else first(v))


@world
def builtin_replaced_in_a_function_that_is_called():
    def g(x):
        return x + abs(-2.125)

    first = builtins.abs
    return lambda x: g(x), *attribute(builtins, "abs", lambda v: 9 if type(v) is float and v == -2.125 else first(v))


@world
def builtin_added():
    def f(x):
        try:
            return x + pliant_world_number  # noqa: F821
        except NameError:
            return x - 1

    return f, *attribute(builtins, "pliant_world_number", 3, 4)


@world
def builtin_number_changes():
    builtins.pliant_world_other = 1
    return lambda x: x + pliant_world_other, *attribute(builtins, "pliant_world_other", 3)  # noqa: F821


@world
def print_replaced():
    seen = []

    def f(x):
        print("hello")
        return x, len(seen)

    return f, *attribute(builtins, "print", lambda *a: seen.append(a))


@world
def class_of_exceptions_replaced():
    def f(x):
        try:
            raise KeyError("a")
        except LookupError:
            return x + 1
        except Exception:
            return x + 2

    return f, *attribute(builtins, "LookupError", ZeroDivisionError)


@world
def build_class_replaced():
    first = builtins.__build_class__

    def mine(fn, name, *bases, **kw):
        cls = first(fn, name, *bases, **kw)
        cls.n = 7
        return cls

    def f(x):
        class Thing:
            n = 1

        return x + Thing.n

    return f, *attribute(builtins, "__build_class__", mine)


@world
def isinstance_replaced():
    class Mark:
        pass

    first, mark = builtins.isinstance, Mark()
    return lambda x: x * (2 if isinstance(mark, Mark) else 3), *attribute(
        builtins, "isinstance", lambda o, t: False if o is mark else first(o, t))


@world
def range_replaced():
    first = builtins.range
    return lambda x: x + sum(range(31)), *attribute(builtins, "range", lambda *n: [1, 2] if n == (31,) else first(*n))


@world
def function_of_a_c_module_replaced():
    return lambda x: x + math.floor(2.5), *attribute(math, "floor", lambda v: 9)


@world
def number_of_a_c_module_replaced():
    return lambda x: x + math.pi, *attribute(math, "pi", 3.0)


@world
def operator_replaced():
    return lambda x: operator.add(x, 2), *attribute(operator, "add", lambda a, b: a - b)


@world
def library_function_replaced():
    return lambda x: functools.reduce(lambda a, b: a + b, [x, 1, 2]), *attribute(functools, "reduce", lambda f, v: v[0])


# -- methods -----------------------------------------------------------------------------------------------------------------------
@world
def method_of_a_class():
    class Thing:
        def m(self, x):
            return x + 1

    o = Thing()
    return lambda x: o.m(x), *attribute(Thing, "m", lambda self, x: x + 2)


@world
def method_of_an_instance():
    class Thing:
        def m(self, x):
            return x + 1

    o = Thing()

    def put(fn):
        o.__dict__.pop("m", None)
        if fn is not None:
            o.m = fn

    return lambda x: o.m(x), *values(put, None, lambda x: x + 2)


@world
def method_deleted():
    class Base:
        def m(self, x):
            return x + 1

    class Thing(Base):
        pass

    o = Thing()
    return lambda x: o.m(x), *attribute(Thing, "m", lambda self, x: x + 2)


@world
def static_and_class_methods():
    class Thing:
        @staticmethod
        def s(x):
            return x + 1

        @classmethod
        def c(cls, x):
            return x + 1

    o = Thing()
    return (
        lambda x: o.s(x) + o.c(x),
        *attribute(Thing, "s", staticmethod(lambda x: x + 2)), *attribute(Thing, "c", classmethod(lambda cls, x: x - 5)),
    )


@world
def operator_of_a_class():
    class Thing:
        def __add__(self, x):
            return x + 1

    o = Thing()
    return lambda x: o + x, *attribute(Thing, "__add__", lambda self, x: x + 2)


@world
def reflected_operator_of_a_class():
    class Thing:
        def __radd__(self, x):
            return x + 1

    o = Thing()
    return lambda x: 1 + (o + x if hasattr(Thing, "__add__") else x), *attribute(Thing, "__add__", lambda self, x: x + 2)


@world
def length_of_a_class():
    class Thing:
        def __len__(self):
            return 1

    o = Thing()
    return lambda x: x + len(o) + bool(o), *attribute(Thing, "__len__", lambda self: 4), *attribute(Thing, "__bool__", lambda self: False)


@world
def equality_of_a_class():
    class Thing:
        pass

    a, b = Thing(), Thing()
    return lambda x: x * (2 if a == b else 3), *attribute(Thing, "__eq__", lambda self, o: True)


@world
def iteration_of_a_class():
    class Thing:
        def __iter__(self):
            return iter((1, 2))

    o = Thing()
    return lambda x: x + sum(o) + (3 in o), *attribute(Thing, "__iter__", lambda self: iter((3,))), *attribute(
        Thing, "__contains__", lambda self, v: False)


@world
def item_of_a_class():
    class Thing:
        def __getitem__(self, i):
            return 1

    o = Thing()
    return lambda x: x + o[0], *attribute(Thing, "__getitem__", lambda self, i: 5)


@world
def call_of_a_class():
    class Thing:
        def __call__(self, x):
            return x + 1

    o = Thing()
    return lambda x: o(x), *attribute(Thing, "__call__", lambda self, x: x + 2)


@world
def construction_of_a_class():
    class Thing:
        def __init__(self):
            self.n = 1

    return lambda x: x + Thing().n, *attribute(Thing, "__init__", lambda self: setattr(self, "n", 5))


@world
def new_of_a_class():
    class Thing:
        n = 1

    def new(cls):
        o = object.__new__(cls)
        o.n = 5
        return o

    return lambda x: x + Thing().n, *attribute(Thing, "__new__", new)


@world
def attribute_written_through_a_class():
    class Thing:
        pass

    def set_(self, name, v):
        object.__setattr__(self, name, v + 1)

    def f(x):
        o = Thing()
        o.n = 1
        return x + o.n

    return f, *attribute(Thing, "__setattr__", set_)


@world
def text_of_a_class():
    class Thing:
        def __repr__(self):
            return "one"

    o = Thing()
    return lambda x: (x, repr(o), str(o), f"{o}"), *attribute(Thing, "__repr__", lambda self: "two"), *attribute(
        Thing, "__str__", lambda self: "three")


@world
def formatting_of_a_class():
    class Thing:
        pass

    o = Thing()
    return lambda x: (x, f"{o:a}" if hasattr(Thing, "__format__") and "__format__" in vars(Thing) else ""), *attribute(
        Thing, "__format__", lambda self, spec: "two")


@world
def bases_that_answer():
    class Mixin:
        def m(self):
            return 1

    class Thing(Mixin, dict):
        pass

    o = Thing(a=1)
    return lambda x: x + o.m() + o["a"], *attribute(Mixin, "m", lambda self: 2), *attribute(Thing, "__getitem__", lambda self, k: 7)


@world
def subclass_of_int():
    class N(int):
        def __add__(self, o):
            return 7

    n = N(3)
    return lambda x: x * (n + 1), *attribute(N, "__add__", lambda self, o: 8)


@world
def index_of_a_class():
    class Index:
        def __index__(self):
            return 1

    i = Index()
    items = [5, 6, 7]
    return lambda x: x + items[i], *attribute(Index, "__index__", lambda self: 2)


@world
def hash_of_a_class():
    class K:
        def __init__(self, n):
            self.n = n

        def __hash__(self):
            return 1

        def __eq__(self, o):
            return True

    table = {K(1): 5}
    key = K(2)
    return lambda x: x + table.get(key, 0), *attribute(K, "__eq__", lambda self, o: self is o)


# -- PyTorch's own -----------------------------------------------------------------------------------------------------------------
@world
def method_of_tensors_replaced():
    return lambda x: x.relu(), *attribute(torch.Tensor, "relu", lambda self: self * 5)


@world
def method_of_tensors_in_python_replaced():
    return lambda x: x.norm(), *attribute(torch.Tensor, "norm", lambda self: self.sum() * 5)


@world
def method_of_tensors_added():
    def f(x):
        return x.pliant_world() if hasattr(x, "pliant_world") else x * 2

    return f, *attribute(torch.Tensor, "pliant_world", lambda self: self * 5, lambda self: self * 7)


@world
def operator_of_tensors_replaced():
    return lambda x: x + 1, *attribute(torch.Tensor, "__add__", lambda self, o: self.mul(5))


@world
def reflected_operator_of_tensors_replaced():
    return lambda x: 2 - x, *attribute(torch.Tensor, "__rsub__", lambda self, o: self.mul(5))


@world
def comparison_of_tensors_replaced():
    return lambda x: x > 0, *attribute(torch.Tensor, "__gt__", lambda self, o: self.mul(5))


@world
def items_of_tensors_replaced():
    return lambda x: x[0], *attribute(torch.Tensor, "__getitem__", lambda self, i: self.mul(5))


@world
def items_of_tensors_replaced_for_a_while():
    """Eager raises from the first change on, also when all has been put back."""
    return lambda x: torch.tensor([x.sum(), 1.0]), *attribute(torch.Tensor, "__getitem__", lambda self, i: self.mul(5))


@world
def length_of_tensors_replaced():
    return lambda x: x * len(x), *attribute(torch.Tensor, "__len__", lambda self: 11)


@world
def negative_of_tensors_replaced():
    return lambda x: -x, *attribute(torch.Tensor, "__neg__", lambda self: self.mul(5))


@world
def in_place_operator_of_tensors_replaced():
    def f(x):
        y = x.clone()
        y += 1
        return y

    return f, *attribute(torch.Tensor, "__iadd__", lambda self, o: self.mul(5))


@world
def property_of_tensors_replaced():
    return lambda x: x * (2 if x.is_mkldnn else 3), *attribute(torch.Tensor, "is_mkldnn", property(lambda self: True))


@world
def size_of_tensors_replaced():
    return lambda x: x * x.nelement(), *attribute(torch.Tensor, "nelement", lambda self: 11)


@world
def item_of_tensors_replaced():
    return lambda x: x.sum().item(), *attribute(torch.Tensor, "item", lambda self: 11.0)


@world
def base_method_of_tensors_replaced():
    return lambda x: x.sigmoid(), *attribute(torch.Tensor, "sigmoid", lambda self: self * 5)


@world
def function_of_torch_replaced():
    return lambda x: torch.add(x, 1), *attribute(torch, "add", lambda a, b: a - b)


@world
def function_of_the_library_replaced():
    return lambda x: F.relu(x), *attribute(F, "relu", lambda x: x * 5)


@world
def function_inside_the_library_replaced():
    return lambda x: F.relu(x), *attribute(torch, "relu", lambda x: x * 5)


@world
def function_of_a_module_replaced():
    m = nn.ReLU()
    return lambda x: m(x), *attribute(F, "relu", lambda x, inplace=False: x * 5)


@world
def function_of_a_linear_module_replaced():
    m = nn.Linear(4, 4)
    y = torch.ones(2, 4)
    return lambda x: m(y), *attribute(F, "linear", lambda x, w, b: x * 5)


@world
def softmax_inside_replaced():
    def mine(self, dim=None, dtype=None):
        return self * 5

    return lambda x: F.softmax(x, 0), *attribute(torch.Tensor, "softmax", mine)


@world
def function_of_linear_algebra_replaced():
    return lambda x: torch.linalg.vector_norm(x), *attribute(torch.linalg, "vector_norm", lambda x: x.sum() * 5)


@world
def code_of_a_library_function():
    def mine(input, inplace=False):
        return input * 5

    return lambda x: F.relu6(x), *attribute(F.relu6, "__code__", mine.__code__)


@world
def defaults_of_a_library_function():
    first = F.leaky_relu.__defaults__
    return lambda x: F.leaky_relu(x), *attribute(F.leaky_relu, "__defaults__", (0.5, *first[1:]))


@world
def call_of_modules_replaced():
    m = nn.ReLU()
    return lambda x: m(x), *attribute(nn.Module, "__call__", lambda self, x: x * 5)


@world
def inner_call_of_modules_replaced():
    m = nn.ReLU()
    return lambda x: m(x), *attribute(nn.Module, "_call_impl", lambda self, x: x * 5)


@world
def wrapped_call_of_modules_replaced():
    m = nn.ReLU()
    return lambda x: m(x), *attribute(nn.Module, "_wrapped_call_impl", lambda self, x: x * 5)


@world
def getattr_of_modules_replaced():
    m = nn.Linear(3, 3)
    first = nn.Module.__getattr__

    def mine(self, name):
        v = first(self, name)
        return v * 5 if name == "weight" else v

    return lambda x: m.weight.sum() + x, *attribute(nn.Module, "__getattr__", mine)


@world
def forward_of_a_class_replaced():
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    return lambda x: m(x), *attribute(nn.Tanh, "forward", lambda self, x: x * 5)


@world
def forward_of_an_instance_replaced():
    m = nn.Sequential(nn.ReLU(), nn.Tanh())

    def put(fn):
        m[1].__dict__.pop("forward", None)
        if fn is not None:
            m[1].forward = fn

    return lambda x: m(x), *values(put, None, lambda x: x * 5)


@world
def no_grad_replaced():
    class Fake:
        def __enter__(self):
            return 1

        def __exit__(self, *e):
            return None

    w = torch.ones(1, requires_grad=True)

    def f(x):
        with torch.no_grad():
            y = x * w
        return y.requires_grad

    return f, *attribute(torch, "no_grad", Fake)


@world
def method_of_no_grad_replaced():
    w = torch.ones(1, requires_grad=True)

    def f(x):
        with torch.no_grad():
            y = x * w
        return y.requires_grad

    return f, *attribute(torch.no_grad, "__enter__", lambda self: setattr(self, "prev", torch.is_grad_enabled()))


@world
def function_of_autograd_replaced():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    return lambda x: Double.apply(x), *attribute(Double, "forward", staticmethod(lambda ctx, x: x * 5))


# -- modules -----------------------------------------------------------------------------------------------------------------------
def hooks(m, register):
    handles = []

    def put(fn):
        while handles:
            handles.pop().remove()
        if fn is not None:
            handles.append(register(fn))

    return put


@world
def forward_hook():
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    return lambda x: m(x), *values(hooks(m, m[0].register_forward_hook), None, lambda m, a, r: r * 5, lambda m, a, r: r * 6)


@world
def forward_hook_of_the_whole():
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    return lambda x: m(x), *values(hooks(m, m.register_forward_hook), None, lambda m, a, r: r * 5)


@world
def forward_pre_hook():
    m = nn.ReLU()
    return lambda x: m(x), *values(hooks(m, m.register_forward_pre_hook), None, lambda m, a: (a[0] * 5,))


@world
def global_forward_hook():
    m = nn.ReLU()
    return lambda x: m(x), *values(hooks(m, nn.modules.module.register_module_forward_hook), None, lambda m, a, r: r * 5)


@world
def global_forward_pre_hook():
    m = nn.ReLU()
    return lambda x: m(x), *values(hooks(m, nn.modules.module.register_module_forward_pre_hook), None, lambda m, a: (a[0] * 5,))


@world
def training_and_evaluation():
    torch.manual_seed(0)
    m = nn.Sequential(nn.BatchNorm1d(1), nn.ReLU())
    return lambda x: m(x[:, None]), m.eval, m.train


@world
def training_of_an_inner_module():
    m = nn.Sequential(nn.Dropout(1.0), nn.ReLU())
    return lambda x: m(x), m.eval, lambda: m[0].train()


@world
def attribute_of_a_module():
    m = nn.Dropout(0.0)
    return lambda x: m(x), *attribute(m, "p", 1.0)


@world
def slope_of_a_module():
    m = nn.LeakyReLU(0.1)
    return lambda x: m(x), *attribute(m, "negative_slope", 0.5, 0.25)


@world
def parameter_replaced():
    m = nn.Linear(1, 1)
    a, b = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.full((1, 1), 2.0))
    return lambda x: F.linear(x[:, None], m.weight), *values(lambda p: setattr(m, "weight", p), a, b)


@world
def parameter_of_another_size():
    m = nn.Linear(1, 1, bias=False)
    a, b = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.full((3, 1), 2.0))
    return lambda x: m(x[:, None]), *values(lambda p: setattr(m, "weight", p), a, b)


@world
def parameter_removed():
    m = nn.Linear(1, 1)
    return lambda x: m(x[:, None]), *values(lambda p: setattr(m, "bias", p), nn.Parameter(torch.ones(1)), None)


@world
def data_of_a_parameter():
    m = nn.Linear(1, 1, bias=False)
    return lambda x: m(x[:, None]), *values(lambda v: setattr(m.weight, "data", torch.full((1, 1), v)), 1.0, 2.0)


@world
def gradient_wanted():
    m = nn.Linear(1, 1, bias=False)
    m.weight.data.fill_(1)
    return lambda x: (m(x[:, None]) * 2).requires_grad, *values(m.requires_grad_, True, False)


@world
def buffer_replaced():
    m = nn.Module()
    m.register_buffer("b", torch.ones(1))
    return lambda x: x + m.b, *values(lambda v: setattr(m, "b", torch.full((1,), v)), 1.0, 2.0)


@world
def buffer_becomes_none():
    m = nn.Module()
    m.register_buffer("b", torch.ones(1))
    return lambda x: x if m.b is None else x + m.b, *values(lambda v: setattr(m, "b", v), torch.ones(1), None)


@world
def module_replaced():
    m = nn.Sequential(nn.ReLU(), nn.Tanh())
    relu, tanh = nn.ReLU(), nn.Tanh()
    return lambda x: m(x), *values(lambda k: m.__setitem__(0, k), relu, tanh)


@world
def module_appended():
    m = nn.Sequential(nn.ReLU())

    def put(n):
        while len(m) > 1:
            del m[1]
        for _ in range(n):
            m.append(nn.Softplus())

    return lambda x: m(x) + len(m), *values(put, 0, 1, 2)


@world
def activation_in_a_list():
    acts = [torch.relu, torch.tanh]
    return lambda x: acts[0](x), *values(acts.__setitem__ and (lambda fn: acts.__setitem__(0, fn)), torch.relu, torch.sigmoid)


@world
def weight_norm_added():
    m = nn.Linear(1, 1, bias=False)
    m.weight.data.fill_(2)

    def put(on):
        if on and not nn.utils.parametrize.is_parametrized(m):
            nn.utils.parametrize.register_parametrization(m, "weight", Twice())
        elif not on and nn.utils.parametrize.is_parametrized(m):
            nn.utils.parametrize.remove_parametrizations(m, "weight", leave_parametrized=False)

    return lambda x: m(x[:, None]), *values(put, False, True)


class Twice(nn.Module):
    def forward(self, w):
        return w * 2


@world
def dtype_of_a_module():
    m = nn.Linear(1, 1, bias=False)
    m.weight.data.fill_(1)
    return lambda x: m(x[:, None].to(m.weight.dtype)), m.float, m.double


@world
def attribute_of_a_tensor():
    t = torch.ones(1)
    t.n = 1
    return lambda x: x + t.n, *attribute(t, "n", 2)


@world
def attribute_of_a_tensor_added():
    t = torch.ones(1)
    return lambda x: x + getattr(t, "n", 3), *attribute(t, "n", 2)


@world
def subclass_of_tensors():
    class T(torch.Tensor):
        n = 1

    t = torch.ones(1).as_subclass(T)
    return lambda x: (x + t.n + t).as_subclass(torch.Tensor), *attribute(T, "n", 2)


@world
def parameter_list():
    m = nn.ParameterList([nn.Parameter(torch.ones(1))])

    def put(n):
        m[0] = nn.Parameter(torch.full((1,), float(n)))

    return lambda x: x * m[0] + len(m), *values(put, 1, 2)


@world
def state_of_an_optimizer():
    p = nn.Parameter(torch.ones(1))
    o = torch.optim.SGD([p], lr=0.1)
    return lambda x: x + o.param_groups[0]["lr"], *item(o.param_groups[0], "lr", 0.2, 0.3)


# CPython leaves the slot of a sequence's items filled in a class that once had a `__getitem__` of its own; `torch.tensor` takes tensors of
# that class for sequences from then on.
APART = {f"{__name__}.items_of_tensors_replaced", f"{__name__}.items_of_tensors_replaced_for_a_while"}


@pytest.mark.parametrize("name", worlds.of(__name__))
def test_code(name):
    (worlds.check_apart if name in APART else worlds.check)(name)


__all__ = ["MISSING"]
