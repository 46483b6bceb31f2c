"""What perturbations found in classes, attributes, copies, random numbers, gradients and shapes."""

from __future__ import annotations

import collections
import copy
import enum
import functools
import inspect
import operator
import re
import sys
import types
import typing
import warnings

import numpy as np
import pytest
import torch
from torch import nn
from torch._higher_order_ops.map import map as torch_map
from torch.utils import _cxx_pytree as cxx_pytree
from torch.utils import _pytree as pytree

from tests.helpers import check, compiled, pliant
from tests.programs.registry import t


def same(run, fn, *args):
    """Both sides, on copies of the arguments: equal values or the same kind of exception."""
    said = []
    for f in (fn, run):
        try:
            said.append(f(*copy.deepcopy(args)))
        except Exception as e:
            said.append(type(e))
    want, got = said
    assert type(want) is type(got), (want, got)
    torch.testing.assert_close(got, want, rtol=0, atol=0) if isinstance(want, torch.Tensor) else None
    return want


# -- resizing --------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("size, factor", [(2, 1.25), (3, 1.3), (4, 2.125), (5, 2.125), (4, 2.0)])
def test_what_nearest_kernels_copy_or_repeat(mode, dims, size, factor):
    """It is by the number of dims, and by the factor alone in other modes."""
    pliant.reset()
    fn = lambda x, s: torch.nn.functional.interpolate(x, None, s, mode)  # noqa: E731
    check(fn, (t(1, 2, *[7] * dims), 1.5), (t(1, 2, *[size, 3, 4][:dims]), factor))


def test_resizing_channels_last_volumes():
    fn = lambda x, s: torch.nn.functional.interpolate(x, scale_factor=s)  # noqa: E731
    check(fn, (t(1, 16, 4, 3, 4), 1.5), (t(1, 16, 4, 3, 4).contiguous(memory_format=torch.channels_last_3d), 1.25))


# -- what nobody reads raises all the same --------------------------------------------------------------------------------
@pytest.mark.parametrize("op", [lambda x: x - 1, lambda x: 1 - x, lambda x: x - x.float(), lambda x: torch.rsub(x, 2)])
def test_subtraction_of_bools(op):
    fn = lambda x: (op(x), x * 2)[1]  # noqa: E731
    run = compiled(fn)
    for x in (t(3), torch.tensor([True, False, True]), t(4)):
        same(run, fn, x)


@pytest.mark.parametrize("op", [torch.mm, torch.matmul, lambda a, b: torch.addmm(b, a, b), lambda a, b: torch.mv(a, b[0]),
    lambda a, b: torch.dot(a[0], b[0]), lambda a, b: torch.bmm(a[None], b[None])])
def test_products_of_other_dtypes(op):
    fn = lambda a, b: (op(a, b), a * 2)[1]  # noqa: E731
    run = compiled(fn)
    for b in (torch.ones(3, 3), torch.ones(3, 3, dtype=torch.float64), torch.ones(3, 3)):
        same(run, fn, torch.ones(3, 3), b)


@pytest.mark.parametrize("op", [lambda x: x.softmax(1), lambda x: torch.cdist(x, x), lambda x: x.mean(), torch.linalg.norm, torch.erfinv])
def test_other_operators_of_dtypes_that_they_refuse(op):
    fn = lambda x: (op(x), x * 2)[1]  # noqa: E731
    run = compiled(fn)
    for dtype in (torch.float32, torch.int64, torch.bool, torch.float16, torch.complex64):
        same(run, fn, torch.ones(3, 3).to(dtype))


# -- random numbers ----------------------------------------------------------------------------------------------------------
def test_another_function_for_numbers_of_numpy(monkeypatch):
    fn = lambda x: x * np.random.rand()  # noqa: E731
    run = compiled(fn)
    state = np.random.rand.__self__
    for of in (None, type(state).normal, type(state).rand):
        if of is not None:
            monkeypatch.setattr(np.random, "rand", types.MethodType(of, state))
        said = []
        for f in (fn, run):
            np.random.seed(3)
            said.append(f(torch.ones(2)))
        torch.testing.assert_close(*said)


def test_draws_before_an_exception_of_the_graph():
    def fn(x, i):
        y = torch.rand(3)
        return y + x[i]

    run = compiled(fn)
    for i in ([0], [1], [9]):
        states = []
        for f in (fn, run):
            torch.manual_seed(3)
            try:
                f(t(3), torch.tensor(i))
            except IndexError:
                pass
            states.append(torch.get_rng_state())
        assert torch.equal(*states)


# -- classes and attributes --------------------------------------------------------------------------------------------------
class Field:
    def __get__(self, obj, cls):
        return self if obj is None else obj.__dict__["_f"]

    def __set__(self, obj, v):
        obj.__dict__["_f"] = v * 2


class Holder:
    f = Field()
    plain = 3


@pytest.mark.parametrize("name", ["__set__", "__get__"])
def test_descriptor_that_loses_a_method(name, monkeypatch):
    def fn(x):
        h = Holder()
        h.f = x
        return h.__dict__.get("_f", x * 7)

    run = compiled(fn)
    same(run, fn, t(3))
    with monkeypatch.context() as m:
        m.delattr(Field, name)
        same(run, fn, t(3))
    same(run, fn, t(3))


def test_attribute_of_a_class_that_becomes_a_property(monkeypatch):
    def fn(x):
        h = Holder()
        h.plain = x
        return h.__dict__.get("plain", x * 7)

    run = compiled(fn)
    same(run, fn, t(3))
    monkeypatch.setattr(Holder, "plain", property(lambda h: 1, lambda h, v: None))
    same(run, fn, t(3))


def test_attributes_are_written_in_the_order_of_the_program():
    def fn(h, x):
        h.k = 2
        h.last = x
        return x + 1

    run = compiled(fn)
    for names in ({}, {"last": 1}, {}, {"k": 1}):
        order = []
        for f in (fn, run):
            h = Holder()
            h.__dict__.update(names)
            f(h, t(3))
            order.append(list(h.__dict__))
        assert order[0] == order[1]


def test_order_of_a_dict_with_a_break_among_its_writes():
    def fn(x):
        d = {"a": x, "b": 1}
        d["c"] = x.to_sparse()
        d.update({"e": 2}, f=3)
        del d["b"]
        d.setdefault("g", []).append(x)
        return list(d), d

    want, got = fn(t(3)), compiled(fn)(t(3))
    assert want[0] == got[0] == list(got[1]) == list(want[1])


@pytest.mark.parametrize("name", ["__setattr__", "__delattr__"])
def test_methods_that_are_none(name):
    class Own:
        pass

    setattr(Own, name, None)

    def fn(o, x):
        if name == "__setattr__":
            o.k = x
        else:
            del o.x
        return x

    o = Own()
    o.__dict__["x"] = 1
    for f in (fn, compiled(fn)):
        with pytest.raises(TypeError):
            f(o, t(3))


def test_metaclass_without_an_init():
    class Meta(type):
        __init__ = None

    def fn(x):
        return Meta("Made", (), {}), x

    for f in (fn, compiled(fn)):
        with pytest.raises(TypeError, match="not callable"):
            f(t(3))


class Cached:
    def __init__(self, x):
        self.x = x

    @functools.cached_property
    def twice(self):
        return self.x * 2


def test_cached_property_that_keeps_its_value_elsewhere(monkeypatch):
    def fn(x):
        c = Cached(x)
        return c.twice, list(c.__dict__)

    run = compiled(fn)
    assert run(t(3))[1] == ["x", "twice"]
    monkeypatch.setattr(vars(Cached)["twice"], "attrname", "other")
    assert run(t(3))[1] == ["x", "other"]


def test_call_that_did_not_fit(monkeypatch):
    def fn(x):
        try:
            return Cached()
        except TypeError as e:
            return str(e)

    run = compiled(fn)
    assert "missing" in run(t(3))
    monkeypatch.setattr(Cached.__init__, "__defaults__", (1,))
    assert isinstance(run(t(3)), Cached)


def test_repeating_a_list_by_what_may_get_an_index(monkeypatch):
    class Number:
        pass

    def fn(x):
        try:
            return [1] * Number()
        except TypeError as e:
            return str(e)

    run = compiled(fn)
    assert run(t(3)) == fn(t(3))
    Number.__index__ = lambda self: 2
    assert run(t(3)) == [1, 1]


# -- tensors that are the same ---------------------------------------------------------------------------------------------
def test_tensors_as_members_of_a_set():
    m = nn.LayerNorm(4)
    fn = lambda x: m(x) + len({*m.parameters()})  # noqa: E731
    run = compiled(fn)
    same(run, fn, t(2, 4))
    m.bias = m.weight
    same(run, fn, t(2, 4))
    m.bias = nn.Parameter(torch.zeros(4))
    same(run, fn, t(2, 4))


def test_sparse_or_the_same():
    fn = lambda x, y: x * (2 if x is y else 3)  # noqa: E731
    run, x = compiled(fn), t(3)
    for y in (x.to_sparse(), x, x.to_sparse(), t(3)):
        assert torch.equal(run(x, y), fn(x, y))


def test_copies_of_a_tensor_that_gets_an_attribute():
    fn = lambda x: copy.deepcopy([x, x.shape[0]])[0]  # noqa: E731
    run, x = compiled(fn), t(3)
    assert not run(x).__dict__
    x.note = 1
    assert run(x).note == 1


# -- views and gradients -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("grad", [False, True])
def test_views_that_the_graph_reads_and_returns(grad):
    def fn(x, y):
        a, b = x[1:], y.t()
        return a, b, (a.sum() * b).exp() + 1, b[0]

    with torch.no_grad():
        x, y = t(3, 4).requires_grad_(grad), t(3, 4)
        faces = []
        for f in (fn, compiled(fn)):
            r = f(x, y)
            faces.append([(v._is_view(), v.requires_grad, v._base is x, v._base is y) for v in r])
            before = x._version
            r[0].add_(1)
            assert x._version == r[0]._version == before + 1
    assert faces[0] == faces[1]


def test_gradient_of_a_leaf_with_gaps():
    def fn(x):
        (x * 3).sum().backward()
        return x.grad.stride()

    make = lambda n: torch.stack([t(n), t(n)], -1)[..., 0].requires_grad_()  # noqa: E731
    assert compiled(fn)(make(4)) == fn(make(4))


def test_anomaly_mode_is_left_to_eager():
    """It tells the node that made a nan, and the line of its forward part."""
    m, x = nn.Linear(3, 4), t(2, 3)
    run = compiled(lambda x: m(x).square().sum().sqrt())
    run(x)
    with torch.autograd.set_detect_anomaly(True, check_nan=True):
        with pytest.raises(RuntimeError, match="SqrtBackward0"), pytest.warns(UserWarning, match="Error detected"):
            run(x * float("nan")).backward()
        with torch.no_grad():
            torch.testing.assert_close(run(x), m(x).square().sum().sqrt())
    run(x).backward()


def test_functions_of_pytorch_that_warn():
    """Each call of the program warns, or raises what the warning is made."""
    fn = lambda x, y: torch.nn.functional.mse_loss(x, y)  # noqa: E731
    run = compiled(fn)
    for _ in range(2):
        with pytest.warns(UserWarning, match="target size"):
            run(t(3), t(1))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning):
            run(t(3), t(1))


def test_function_of_a_mode_that_takes_any_arguments(monkeypatch):
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, fn, kinds, args=(), kwargs=None):
            return fn(*args, **(kwargs or {}))

    def fn(x):
        with Mode():
            return x + x

    original = Mode.__torch_function__
    functools.wraps(original)(changed := lambda *args, **kwargs: original(*args, **kwargs) + 1)
    run, x = compiled(fn), t(3)
    for wanted in (original, changed, original):
        Mode.__torch_function__ = wanted
        same(run, fn, x)


def test_modes_are_not_asked_about_inputs():
    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, fn, kinds, args=(), kwargs=None):
            if fn == torch.Tensor.is_quantized.__get__:
                return True
            return fn(*args, **(kwargs or {}))

    run, x = compiled(lambda x: x + 1), t(3)
    with Mode():
        assert torch.equal(run(x), x + 1)
        assert pliant.stats()["graph_breaks"] == 0


@pytest.mark.parametrize("flag", [1, "x", None])
def test_grad_mode_of_what_is_no_bool(flag):
    def fn(x, flag):
        with torch.no_grad():
            torch.set_grad_enabled(flag)
            return x + 1

    run = compiled(fn)
    for v in (True, flag, False, flag):
        same(run, fn, t(3), v)


@pytest.mark.parametrize("op", [lambda a: a[None], lambda a: a[:, None, 1:], lambda a: (a + 1)[..., None], lambda a: np.expand_dims(a, 1)])
def test_strides_of_new_dims_of_arrays(op):
    a = np.ones((3, 4), dtype=np.float32)
    assert compiled(op)(a).strides == op(a).strides


def test_pooling_of_integers():
    """The kernel that eager takes has none."""
    fn = lambda x: torch.nn.functional.max_pool1d(x, 2)  # noqa: E731
    run = compiled(fn)
    for x in (t(1, 2, 8), torch.ones(1, 2, 8, dtype=torch.int32), t(1, 2, 6)):
        same(run, fn, x)


@pytest.mark.parametrize("backend", ["aten", "native"])
def test_writes_where_a_stride_becomes_0(backend):
    """An entry for any stride writes to memory that elements share, which eager refuses after what was done before."""

    def fn(x, items):
        items.append(x + 1)
        x.add_(1)
        items.append(x * 2)
        x.mul_(2)
        return items

    run = pliant.compile(fn, backend=backend, strict=True)
    for n in (3, 4, 2):
        run(torch.ones(3 * n)[::n], [])
    for x in (torch.ones(1).expand(3), torch.ones(2, 1).expand(2, 3), torch.ones(6)[::2]):
        said = []
        for f in (fn, run):
            items, y = [], x.clone(memory_format=torch.preserve_format) if x.stride(-1) else x
            try:
                said.append(f(y, items))
            except RuntimeError as e:
                said.append([*items, torch.tensor(len(str(e)))])
        torch.testing.assert_close(said[1], said[0])


class Level(enum.IntEnum):
    ONE = 1


class Count(int):
    pass


class Numbered:
    def __init__(self, x):
        self.x = x


@pytest.mark.parametrize("value", [Level.ONE, Count(7), 2.5, True, torch.tensor(1), np.float64(3), np.array(1)], ids=repr)
def test_keys_that_c_code_compares_some_of_which_are_symbols(value):
    def fn(values):
        os = [Numbered(v) for v in values]
        os[0].x = os[0].x + 1
        try:
            return max(os, key=operator.attrgetter("x")).x, [o.x for o in sorted(os, key=lambda o: o.x)]
        except TypeError as e:
            return str(e)

    run = compiled(fn)
    for n in (1, 2, 3, 4):
        assert run([n, n + 1]) == fn([n, n + 1])
    for values in ([2, value], [value, 2], [5, 6]):
        assert repr(run(values)) == repr(fn(values))


METHODS = (int.__add__, int.__radd__, float.__mul__, str.__add__, int.__lt__, list.append, str.startswith, dict.get)
VALUES = (1, Level.ONE, 2.5, None, "a", torch.tensor(1), torch.ones(3), np.array(1), np.int64(3), [1], {1: 2})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_methods_of_other_classes(method, value):
    """CPython says whose method it is."""

    def fn(v):
        try:
            return method(v, "a" if method in (str.__add__, str.startswith) else 1)
        except TypeError as e:
            return str(e)

    run = compiled(fn)
    for v in (value, 3, value):
        assert repr(run(v)) == repr(fn(v))


def test_calls_that_fit_no_builtin():
    """They say so before they read anything, and of arrays, too."""

    def fn(xs):
        out = []
        for call in (lambda: max(xs, keys=1), lambda: min(xs, keys=1), lambda: sum(xs, 1, 2), lambda: sorted(xs, len)):
            try:
                out.append(call())
            except Exception as e:
                out.append((type(e).__name__, str(e)))
        return out

    run = compiled(fn)
    for xs in ([1, 2], None, np.array([1, 2]), 5, torch.ones(2)):
        assert run(xs) == fn(xs)


def test_a_reflected_operator_that_comes_back(monkeypatch):
    class Reflected:
        def __rmul__(self, other):
            return "times"

    def fn(x):
        try:
            return x, operator.imul([1], Reflected())
        except TypeError:
            return x, None

    run = compiled(fn)
    own = Reflected.__rmul__
    for method in (own, None, own):
        Reflected.__rmul__ = method
        assert run(t(2))[1] == fn(t(2))[1]


class Numbers(list):
    pass


class Named(dict):
    pass


SPECIAL = {
    "__getitem__": (lambda c: c[1], lambda k: k + 10),
    "__len__": (lambda c: len(c), lambda: 7),
    "__iter__": (lambda c: [*c], lambda: iter([4, 5])),
    "__contains__": (lambda c: 99 in c, lambda k: k == 99),
    "__setitem__": (lambda c: operator.setitem(c, 1, 4), lambda k, v: None),
    "__delitem__": (lambda c: operator.delitem(c, 1), lambda k: None),
}
HOLDERS = {
    "static method": staticmethod,
    "class method": lambda fn: classmethod(lambda cls, *args: fn(*args)),
    "property": lambda fn: property(lambda self: fn),
    "partial": functools.partial,
    "a static method that fits none": lambda fn: staticmethod(lambda self, *args: fn(*args)),
}


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("name", SPECIAL)
@pytest.mark.parametrize("kind", [Numbers, Named])
def test_special_methods_of_containers_that_are_no_functions(kind, name, holder, monkeypatch):
    read, answer = SPECIAL[name]

    def program(x, c):
        try:
            return x + 1, read(c), list(c)
        except TypeError as e:
            return type(e)

    def fresh():
        return kind([1, 2, 3]) if kind is Numbers else kind({1: 2, 3: 4})

    run = compiled(program)
    x = torch.ones(2)
    assert repr(run(x, fresh())) == repr(program(x, fresh()))
    monkeypatch.setattr(kind, name, HOLDERS[holder](answer), raising=False)
    assert repr(run(x, fresh())) == repr(program(x, fresh()))
    monkeypatch.undo()
    assert repr(run(x, fresh())) == repr(program(x, fresh()))


class Counted(int):
    pass


Grade = enum.IntEnum("Grade", "ONE TWO THREE")


@pytest.mark.parametrize("read", [
    lambda a: sorted(a), lambda a: a.sort() or a, lambda a: a.index(a[2]), lambda a: a[2] in a[:2], lambda a: max(a), lambda a: min(a),
    lambda a: a.count(a[2]), lambda a: sum(a), lambda a: (a[0], 1) < (a[1], 2), lambda a: a[:1] == a[2:],
    lambda a: a[2] in tuple(a[:1]),
])  # fmt: skip
def test_numbers_beside_those_of_a_class(read):
    program = lambda x, a: (x.sum(), read(a))  # noqa: E731
    run = compiled(program)
    lists = [3, 1, 2], [5, 4, 7], [3, Counted(1), 2], [3, Grade.ONE, 2], [Grade.TWO, 3, 2], [Counted(7), 3, 7], [Grade.THREE, 3, 3]
    for a in lists:
        want, got = program(torch.ones(1), list(a))[1], run(torch.ones(1), list(a))[1]
        assert got == want and type(got) is type(want) and repr(got) == repr(want), a


# -- signatures ------------------------------------------------------------------------------------------------------------
def test_defaults_and_annotations_that_are_written_to():
    """The dict stays the same object: what is in it is guarded."""

    def asked(a, *, d=3, e: int = 4):
        pass

    def fn(x):
        found = inspect.getfullargspec(asked)
        return found.kwonlydefaults, str(inspect.signature(asked)), found.annotations

    run, x = compiled(fn), t(3)
    assert run(x) == fn(x)
    for value in (4, True, None, "x", x, [1], 3):
        asked.__kwdefaults__["d"] = value
        assert run(x) == fn(x)
    for name in ("e", "a"):
        asked.__annotations__[name] = float
        assert run(x) == fn(x)
    del asked.__kwdefaults__["e"]
    assert run(x) == fn(x)


def test_what_a_caller_handles_is_raised_again():
    def fn(x):
        try:
            raise
        except RuntimeError as e:
            return x, str(e)

    run, x = compiled(fn, strict=False), t(3)
    for _ in range(2):
        assert run(x) == fn(x)
        try:
            raise KeyError("note")
        except KeyError:
            with pytest.raises(KeyError):
                run(x)


def test_one_hot_under_another_default_device():
    run = compiled(lambda x: torch.nn.functional.one_hot(x, 4))
    with torch.device("meta"):
        assert run(torch.arange(3, device="cpu")).device.type == "cpu"


class Fields(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


@pytest.mark.parametrize("fn", [lambda x: (hasattr(Fields(u=1), "q"), x), lambda x: (getattr(Fields(u=1), "q", 5), x)])
def test_dicts_made_inside_whose_class_comes_to_have_what_is_missing(monkeypatch, fn):
    run = compiled(fn)
    assert run(t(3))[0] == fn(t(3))[0]
    with monkeypatch.context() as m:
        m.setattr(Fields, "__missing__", lambda self, key: 7, raising=False)
        assert run(t(3))[0] == fn(t(3))[0]
    assert run(t(3))[0] == fn(t(3))[0]


Held = typing.TypeVar("Held")


class Boxed(typing.Generic[Held]):
    def __init__(self, v):
        self.v = v


class BoxedInC:
    __class_getitem__ = classmethod(types.GenericAlias)

    def __init__(self, v):
        self.v = v


ALIAS = Boxed[int]


@pytest.mark.parametrize("fn", [lambda x: Boxed[int](x).v, lambda x: ALIAS(x).v, lambda x: BoxedInC[int](x).v,
    lambda x: Boxed.__class_getitem__(int)(x).v])
def test_classes_that_are_called_through_an_alias(monkeypatch, fn):
    run = compiled(fn)
    assert run(t(3)).tolist() == fn(t(3)).tolist()
    for cls in (Boxed, BoxedInC):
        with monkeypatch.context() as m:
            m.setattr(cls, "__init__", lambda self, v: setattr(self, "v", v * 5))
            assert run(t(3)).tolist() == fn(t(3)).tolist()
    assert run(t(3)).tolist() == fn(t(3)).tolist()


COUNTED = {"n": 1}


class Telling(Exception):
    if sys.version_info < (3, 13):

        @classmethod
        @property
        def count(cls):
            return COUNTED["n"], cls.__name__
    else:
        count = None


def raised(x):
    try:
        raise Telling(3)
    except Telling as e:
        return repr(e), f"{e!r}", x


@pytest.mark.parametrize("fn", [lambda x: (Telling.count, x), lambda x: (Telling().count, x), raised, lambda x: (repr(Telling(1)), x)])
def test_names_of_classes_and_properties_of_classes(monkeypatch, fn):
    """A property under a class method ran without a guard, and so did what C writes of an exception."""
    run = compiled(fn)
    assert run(t(3))[:-1] == fn(t(3))[:-1]
    Telling.__name__ = "Other"
    try:
        assert run(t(3))[:-1] == fn(t(3))[:-1]
    finally:
        Telling.__name__ = "Telling"
    monkeypatch.setitem(COUNTED, "n", 2)
    assert run(t(3))[:-1] == fn(t(3))[:-1]


# -- identity that C code sees, and that of partials ---------------------------------------------------------------------------
class Plain:
    """Equal to itself alone."""


KEPT: dict = {}
BY_IDENTITY = [
    lambda x: (x + 1, KEPT["a"] == KEPT["b"], KEPT["a"] != KEPT["b"], KEPT["a"] is KEPT["b"]),
    lambda x: (x + 1, KEPT["a"].__eq__(KEPT["b"]), KEPT["a"].__ne__(KEPT["b"]), object.__eq__(KEPT["a"], KEPT["b"])),
    lambda x: (x + 1, (KEPT["a"],) == (KEPT["b"],), [1, [KEPT["a"]]] == [1, [KEPT["b"]]]),
    lambda x: (x + 1, {"k": KEPT["a"]} == {"k": KEPT["b"]}),
    lambda x: (x + 1, KEPT["a"] in [3, KEPT["b"]], KEPT["a"] in (KEPT["b"],)),
    lambda x: (x + 1, [KEPT["a"]].count(KEPT["b"]), (KEPT["a"],).count(KEPT["b"])),
    lambda x: (x + 1, len({KEPT["a"], KEPT["b"]}), {(KEPT["a"],)} == {(KEPT["b"],)}),
    lambda x: (x + 1, KEPT["b"].__hash__(), hash(KEPT["b"]), hash((KEPT["b"],)), object.__hash__(KEPT["b"])),
    lambda x: (x + 1, KEPT["held"].get(KEPT["b"]), KEPT["b"] in KEPT["held"]),
]


@pytest.mark.parametrize("first", [True, False], ids=["the same first", "others first"])
@pytest.mark.parametrize("make", [Plain, lambda: functools.partial(print)], ids=["objects", "partials"])
@pytest.mark.parametrize("program", BY_IDENTITY)
def test_objects_compared_by_identity(program, make, first):
    a, other = make(), make()
    run, x = compiled(program), torch.ones(3)
    for same in (first, not first, first, not first):
        KEPT.update(a=a, b=a if same else other, held={a: 5})
        assert run(x)[1:] == program(x)[1:]


def test_partials_held_by_a_class():
    class Scaled:
        def times(self, x):
            return x * 2

    held = Scaled()

    def program(x):
        return x + 1, held.times.__eq__(held.times), held.times == held.times, held.times.__hash__() == hash(held.times)

    run, x, own = compiled(program), torch.ones(3), Scaled.times
    for times in (own, functools.partial(own, held), staticmethod(functools.partial(own, held)), own):
        Scaled.times = times
        assert run(x)[1:] == program(x)[1:]


def test_keywords_of_a_partial_that_are_written_to():
    held = {"f": functools.partial(lambda x, by: x * by, by=1)}

    def program(x):
        f = held["f"]
        before = f(x)
        f.keywords["by"] = 3
        after = held["f"](x)
        f.keywords["by"] = 1
        return before, after, f is held["f"], held["f"](x)

    run, x = compiled(program), torch.ones(3)
    for _ in range(3):
        assert str(run(x)) == str(program(x))


class HashedByNumber:
    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return self.n

    def __eq__(self, other):
        return type(other) is HashedByNumber and self.n == other.n


class HashedByHeld(HashedByNumber):
    def __hash__(self):
        return len(self.n) if type(self.n) is list else self.n.n

    def __eq__(self, other):
        return self is other


class HashedBySlot(HashedByNumber):
    __slots__ = ("n",)


class HashedByClass:
    number = 3

    def __hash__(self):
        return self.number


class HashedByGlobal:
    def __hash__(self):
        return NUMBER


class Growing(dict):
    def __hash__(self):
        return len(self)


NUMBER = 3


def written(kind, write, *more):
    def program(x):
        key = kind(*copy.deepcopy(more))
        held, members = {key: 1}, {key, (1, key)}
        write(key)
        return held, members, key

    return program


def another_global(key):
    global NUMBER
    NUMBER = 4


def by_a_cell(x):
    number = 3

    class ByCell:
        def __hash__(self):
            return number

    def up():
        nonlocal number
        number = 4

    key = ByCell()
    held, members = {key: 1}, {key}
    up()
    return held, members, key


def given_another_number(x):
    key, other = HashedByNumber(3), HashedByNumber(4)
    held, members = {key: 1, other: 2}, frozenset([key, other])
    key.n = 4
    return held, members, key


def counted(x):
    key = HashedByNumber(3)
    held = collections.defaultdict(list)
    held[key].append(1)
    key.n = 4
    held[key].append(2)
    return held, set(), key


HASHED = {
    "attribute": written(HashedByNumber, lambda key: setattr(key, "n", 4), 3),
    "deleted": written(HashedByNumber, lambda key: (key.__dict__.update(n=5), delattr(key, "n"), setattr(key, "n", 4)), 3),
    "by the dict": written(HashedByNumber, lambda key: key.__dict__.__setitem__("n", 4), 3),
    "held object": written(HashedByHeld, lambda key: setattr(key.n, "n", 4), HashedByNumber(3)),
    "held list": written(HashedByHeld, lambda key: key.n.append(0), [0]),
    "slot": written(HashedBySlot, lambda key: setattr(key, "n", 4), 3),
    "class": written(HashedByClass, lambda key: setattr(HashedByClass, "number", 4)),
    "hides the class's": written(HashedByClass, lambda key: setattr(key, "number", 4)),
    "global": written(HashedByGlobal, another_global),
    "itself": written(Growing, lambda key: key.update(a=1)),
    "its class": written(HashedByNumber, lambda key: setattr(key, "__class__", HashedByHeld) or setattr(key, "n", [1]), 3),
    "cell": by_a_cell,
    "one as the other": given_another_number,
    "twice": counted,
}


@pytest.mark.parametrize("name", HASHED)
def test_what_keys_were_hashed_by_is_changed(name):
    """A container finds its key where it was put; made again behind the change, it would find it elsewhere."""
    global NUMBER
    said = []
    for fn in (HASHED[name], compiled(HASHED[name])):
        NUMBER, HashedByClass.number = 3, 3
        held, members, key = fn(torch.ones(2))
        said.append((key in held, key in members, len(held), len(members), list(held.values()), hash(key)))
    NUMBER, HashedByClass.number = 3, 3
    assert said[0] == said[1]


def test_a_tensor_of_a_class_is_made_of_an_array():
    class Marked(torch.Tensor):
        pass

    program = lambda x, a: x.new_tensor(a)  # noqa: E731
    run = compiled(program)
    for x in (torch.ones(2), torch.ones(2).as_subclass(Marked), torch.nn.Parameter(torch.ones(2))):
        want, got = program(x, np.arange(3.0)), run(x, np.arange(3.0))
        assert type(want) is type(got) and want.dtype is got.dtype and want.tolist() == got.tolist()


# -- `__get__` that is no function ------------------------------------------------------------------------------------------
class Describing:
    def __get__(self, obj, cls=None):
        return obj is None, cls.__name__


class DescribedHere:
    n = Describing()


class DescribedBehind(DescribedHere):
    def behind(self):
        return super().n


class DescribingMeta(type):
    n = Describing()


class DescribedClass(metaclass=DescribingMeta):
    pass


class Stored(Describing):
    def __set__(self, obj, value):
        obj.__dict__["n"] = value


class DescribedByData:
    n = Stored()


def described(x):
    h, d = DescribedHere(), DescribedByData()
    before = h.n
    h.__dict__["n"] = 5
    d.n = 7
    return x + 1, before, DescribedHere.n, DescribedBehind().behind(), DescribedClass.n, h.n, d.n, DescribedByData.n


OWN_GET = Describing.__get__


@pytest.mark.parametrize(
    "get",
    [
        functools.partial(OWN_GET), staticmethod(OWN_GET), lambda self, obj, cls=None: 8, functools.lru_cache(lambda *args: 4), tuple,
        functools.partial(lambda *args: len(args)), classmethod(lambda *args: 8), property(lambda self: lambda *args: 9), None, len,
    ],
    ids=["partial", "static method", "another", "cached", "class", "number of arguments", "class method", "property", "None", "builtin"],
)  # fmt: skip
def test_descriptors_whose_get_is_no_function(get):
    """It is called as it lies in the class, bound to nothing, with the descriptor, the object and the class."""
    run, x = compiled(described), torch.ones(2)
    for value in (OWN_GET, get, OWN_GET):
        Describing.__get__ = value
        said = []
        try:
            for fn in (described, run):
                try:
                    said.append(str(re.sub("0x[0-9a-f]+", "", str(fn(x)))))
                except TypeError as e:
                    said.append(str(e))
        finally:
            Describing.__get__ = OWN_GET
        assert said[0] == said[1]


# -- names of generators ----------------------------------------------------------------------------------------------------
def named_as():
    return 3


@functools.wraps(named_as)
def wrapping(*args):
    yield 1
    yield 2


def generators_begun(x):
    new, begun, ended = wrapping(), wrapping(), wrapping()
    next(begun), list(ended)
    wrapping.__name__ = "later"
    last = wrapping()
    wrapping.__name__ = "named_as"
    return x + 1, new, begun, ended, last


def test_generators_have_the_names_of_their_functions():
    run, x = compiled(generators_begun), torch.ones(2)
    for _ in range(2):
        names = [[(g.__name__, g.__qualname__) for g in fn(x)[1:]] for fn in (generators_begun, run)]
        assert names[0] == names[1] and names[0][0] == ("named_as", "named_as")


@pytest.mark.parametrize("which", [(), (0,), (1,), (0, 1)])
def test_map_with_tensors_of_a_class(which):
    class Marked(torch.Tensor):
        pass

    programs = [
        lambda x, y: torch_map(lambda v, y: (v * 2 + y, v.sum()), x, y),
        lambda x, y: torch_map(lambda v, y: v[0] * 2, [x, x + 1], y),
    ]
    for program in programs:
        run = compiled(program)
        args = [torch.arange(6.0).view(2, 3), torch.ones(3)]
        for i in which:
            args[i] = args[i].as_subclass(Marked)
        want, got = (pytree.tree_leaves(fn(*args)) for fn in (program, run))
        assert [(type(a), a.tolist()) for a in want] == [(type(a), a.tolist()) for a in got]


class Moved:
    """A key whose hash changes with it."""

    def __init__(self, n):
        self.n = n

    def __hash__(self):
        return hash(self.n)

    def __eq__(self, other):
        return self.n == other.n


def found_in(containers, *keys):
    return [[k in c for k in keys] for c in containers]


def put_again_behind_a_loop(x):
    k = Moved(1)
    d = {k: 1}
    for i in range(3):
        y = float(x.sum())
        k.n = i + 5
    d[k] = 7
    return [(k.n, v) for k, v in d.items()], y


def put_in_a_loop(x):
    k, d = Moved(1), {}
    for i in range(3):
        d[k] = i
        y = float(x.sum())
        k.n += 1
    return list(d.values()), found_in([d], *map(Moved, range(6))), y


def taken_out_behind_a_loop(x):
    k, d = Moved(1), {}
    for i in range(3):
        d[k] = i
        y = float(x.sum())
        k.n += 1
    k.n = 2
    del d[k]
    return list(d.values()), y


def made_of_a_dict(x):
    k = Moved(1)
    d = {k: 1}
    y = float(x.sum())
    k.n = 9
    made = [d, dict(d), {**d}, d.copy(), dict(d.items()), {k: v for k, v in d.items()}, set(d), {*d}, d | {}, {**d, **{}}]
    z = float(x.sum())
    return found_in(made, Moved(1), Moved(9), k), y, z


def made_of_its_views(x):
    k = Moved(1)
    d = {k: 1}
    views = d.keys(), d.items(), d.values()
    y = float(x.sum())
    k.n = 9
    z = float(x.sum())
    return [len(v) for v in views], k in views[0], [v for _, v in views[1]], list(views[2]), y, z


@pytest.mark.parametrize("fn", [put_again_behind_a_loop, put_in_a_loop, taken_out_behind_a_loop, made_of_a_dict, made_of_its_views])
def test_keys_that_are_hashed_and_then_changed(fn):
    """Where they lie in a dict tells of what they were; whoever puts them in anew asks again."""
    check(fn, (torch.ones(4),), (torch.ones(3),))


class Slotted:
    __slots__ = ("n",)
    __init__, __hash__, __eq__ = Moved.__init__, Moved.__hash__, Moved.__eq__


LOOKED_UP = {
    "get": lambda k, d, s: d.get(k),
    "in": lambda k, d, s: (k in d, k in s),
    "subscript": lambda k, d, s: d[k],
    "methods": lambda k, d, s: (d.__contains__(k), dict.get(d, k)),
    "stored": lambda k, d, s: d.__setitem__(k, 5),
    "stored and gone": lambda k, d, s: (operator.setitem(d, k, 5), setattr(k, "n", 1), d.pop(k)),
    "taken out": lambda k, d, s: operator.delitem(d, k),
    "setdefault": lambda k, d, s: d.setdefault(k, 5),
    "update": lambda k, d, s: d.update({k: 8}),
    "joined": lambda k, d, s: list((d | {k: 2}).values()),
    "views": lambda k, d, s: ((k, 1) in d.items(), k in d.keys(), len(d.keys() - {k})),
    "added": lambda k, d, s: s.add(k),
}


@pytest.mark.parametrize("name", LOOKED_UP)
@pytest.mark.parametrize("kind", [Moved, Slotted])
def test_keys_that_are_changed_before_they_are_looked_up(kind, name):
    """C asks a key as it is, and what the program has written to it here is not there yet."""

    def program(k, d, s):
        k.n = 2
        try:
            r = LOOKED_UP[name](k, d, s)
        except KeyError:
            r = "missing"
        return r, list(d.values()), len(s), found_in([d, s], *map(kind, range(4)))

    fn = compiled(program, strict=True)
    for _ in range(2):
        answers = []
        for f in (program, fn):
            k = kind(1)
            d, s = {k: 1}, {k}
            answers.append((f(k, d, s), [(k.n, v) for k, v in d.items()], len(s)))
        assert answers[0] == answers[1]


# -- functions that C code calls, and those whose arguments do not fit ---------------------------------------------------------
def with_defaults(x, box=[1], *, k=2, more=None):  # noqa: B006
    return x, sum(box), k, more


CALLED_BY_C = {
    "map": lambda x: [*map(with_defaults, [x.shape[0]])], "next": lambda x: next(map(with_defaults, [1])),
    "filter": lambda x: [*filter(with_defaults, [1])],
    "tree": lambda x: pytree.tree_map(with_defaults, [x.shape[0]]), "sorted": lambda x: sorted([2, 1], key=with_defaults),
    "called": lambda x: with_defaults(1), "partial": lambda x: functools.partial(with_defaults, 1)(),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLED_BY_C)
def test_defaults_of_functions_that_c_code_calls(name):
    """C fills them in, so that a frame begins with objects of the outside; where one is missing, no frame begins."""
    program, held, box = CALLED_BY_C[name], with_defaults.__kwdefaults__, with_defaults.__defaults__[0]

    def told(x):
        try:
            return program(x)
        except TypeError as e:
            return str(e)

    run, x = compiled(told, strict=True), torch.ones(2)

    def alike():
        assert str(run(x)) == str(told(x))

    def both(change, undo):
        alike()
        change()
        alike()
        undo()
        alike()

    both(lambda: box.append(3), box.pop)
    both(lambda: held.update(k=5), lambda: held.update(k=2))
    both(lambda: held.pop("k"), lambda: (held.clear(), held.update(k=2, more=None)))
    both(lambda: setattr(with_defaults, "__kwdefaults__", None), lambda: setattr(with_defaults, "__kwdefaults__", held))
    both(lambda: setattr(with_defaults, "__defaults__", ([7],)), lambda: setattr(with_defaults, "__defaults__", (box,)))


class Called:
    def method(self, *, k=2):
        return k

    @classmethod
    def of_class(cls, *, k=2):
        return k

    @staticmethod
    def static(*, k=2):
        return k

    def __init_subclass__(cls, *, k=2):
        cls.k = k


@pytest.mark.parametrize("ask", [
    lambda: Called().method(), lambda: Called.of_class(), lambda: Called.static(), lambda: type("Made", (Called,), {}).k])
def test_keyword_defaults_that_go_and_come_back(ask):
    functions = [vars(Called)[n] for n in ("method", "of_class", "static", "__init_subclass__")]
    functions = [getattr(f, "__func__", f) for f in functions]

    def program(x):
        try:
            return ask()
        except TypeError as e:
            return str(e)

    run, x = compiled(program, strict=True), torch.ones(2)
    names = [f.__qualname__ for f in functions]
    for held in ({"k": 2}, {}, {"k": 2}, {"k": 3}, {}, {"k": 2}):
        for f in functions:
            f.__kwdefaults__.clear()
            f.__kwdefaults__.update(held)
        assert run(x) == program(x)
        for f, n in zip(functions, names, strict=True):
            f.__qualname__ = "other"
        assert run(x) == program(x)
        for f, n in zip(functions, names, strict=True):
            f.__qualname__ = n


# -- hashes of tensors ---------------------------------------------------------------------------------------------------------
class Hashed(torch.Tensor):
    def __hash__(self):
        return 7


PARAMETER = nn.Parameter(torch.ones(2))
HASHES = {
    "hash": lambda x: hash(x) == id(x), "method": lambda x: x.__hash__() == id(x),
    "of the class": lambda x: torch.Tensor.__hash__(x) == id(x),
    "in a tuple": lambda x: hash((x, 1)) == hash((id(x), 1)), "made here": lambda x: (lambda y: hash(y) == id(y))(x + 1),
    "of a parameter": lambda x: (hash(PARAMETER) == id(PARAMETER), hash((PARAMETER, 1)) == hash((id(PARAMETER), 1))),
    "of two": lambda x: (lambda y: (hash(x) == hash(y), hash(y) == hash(y), len({x, y}), {y: 1}[y]))(x * 2),
    "of objects": lambda x: object.__hash__(x) == id(x) >> 4, "of a class": lambda x: hash(x.as_subclass(Hashed)),
}  # fmt: skip


@pytest.mark.parametrize("name", HASHES)
def test_hashes_of_tensors(name):
    run = compiled(HASHES[name], strict=True)
    for _ in range(2):
        x = torch.ones(2)
        assert run(x) == HASHES[name](x)


# -- attributes and words ------------------------------------------------------------------------------------------------------
def test_a_module_that_has_lost_its_parameters():
    m = nn.FractionalMaxPool2d(2, output_size=3, _random_samples=torch.rand(1, 4, 2))
    m._buffers["_random_samples"] = None
    run, x = compiled(lambda x: m._random_samples, strict=True), torch.ones(1)
    held = m._parameters
    for now in (held, None, held, {}, None, "gone", held):
        m.__dict__.pop("_parameters") if now == "gone" else m.__dict__.__setitem__("_parameters", now)
        same(run, lambda x: m._random_samples, x)


class Name(str):
    pass


def test_a_cached_property_under_a_name_of_a_class():
    class Holder:
        @functools.cached_property
        def made(self):
            return 3

    vars(Holder)["made"].attrname = Name("made")

    def program(x):
        o = Holder()
        return x * o.made, [type(k) for k in vars(o)]

    assert compiled(program, strict=True)(torch.ones(2))[1] == program(torch.ones(2))[1] == [Name]


def generated():
    yield 1


@pytest.mark.parametrize("ask", [
    lambda g: g.nothing, lambda g: g[0], lambda g: g + 1, len, lambda g: -g, int, lambda g: "a" + g, lambda g: [1] + g, lambda g: g < g,
    round, reversed, operator.index])
def test_generators_in_words(ask):
    def program(x):
        try:
            return ask(generated())
        except (TypeError, AttributeError) as e:
            return str(e)

    assert compiled(program, strict=True)(torch.ones(2)) == program(torch.ones(2))


# -- lists of other lengths ----------------------------------------------------------------------------------------------------
def stored_in_a_handler(items, x):
    try:
        items[0] = x
    except IndexError:
        return "none"
    return x


def stored_between(items, x):
    x.add_(1)
    items[1] = x
    x.mul_(2)
    return x


def stored_one_by_one(items, x):
    n = 0
    for i in range(3):
        try:
            items[i] = i
        except IndexError:
            break
        n += 1
    return n


LENGTHS = {
    "appended": lambda items, x: (items.append(2), items[1]),
    "appended, stored": lambda items, x: (items.append(2), operator.setitem(items, 0, 4), items[1]),
    "extended": lambda items, x: (items.extend([2, 3]), items[1]), "joined": lambda items, x: (operator.iadd(items, [2]), items[0]),
    "stored in a handler": stored_in_a_handler, "stored between": stored_between, "stored one by one": stored_one_by_one,
    "two stored": lambda items, x: (operator.setitem(items, 0, 3), operator.setitem(items, 1, 4)), "behind a break": lambda items, x: (
        items.append(2), pliant.graph_break(), items[1]),
}  # fmt: skip


@pytest.mark.parametrize("name", LENGTHS)
@pytest.mark.parametrize("kind", [list, collections.deque, type("Items", (list,), {})])
def test_where_things_are_in_lists_of_other_lengths(kind, name):
    """What is appended lies behind as many items as there were, and an item is stored only where there is one."""
    program = LENGTHS[name]
    run = compiled(program, strict=True)
    for n in (1, 3, 0, 2, 5, 1, 0):
        said = []
        for f in (program, run):
            items, x = kind(range(n)), torch.ones(2)
            try:
                r = str(f(items, x))
            except (IndexError, TypeError) as e:
                r = str(e)
            said.append((r, str(list(items)), x.tolist()))
        assert said[0] == said[1]


def moved_attribute(o):
    del o.a
    o.a = 9


def attribute_gone_again(o):
    o.a = 9
    del o.a


def attribute_stored_thrice(o):
    o.a = 9
    del o.a
    o.a = 8


def moved_key(o):
    d = vars(o)
    del d["a"]
    d["a"] = 9


@pytest.mark.parametrize("change", [moved_attribute, attribute_gone_again, attribute_stored_thrice, moved_key])
@pytest.mark.parametrize("kind", [types.SimpleNamespace, type("Plain", (), {})])
def test_names_that_go_and_are_stored_again(kind, change):
    """They go behind all others; where they were not there before, nothing is left of them."""
    run = compiled(lambda o, x: (change(o), x)[1], strict=True)
    for held in ({"a": 1}, {"a": 1, "b": 2}, {"b": 2, "a": 1}, {"b": 2}, {"a": 1, "c": 3, "b": 2}, {}, {"c": 3}, {"a": 1}):
        said = []
        for f in (lambda o, x: (change(o), x)[1], run):
            o = kind()
            vars(o).update(held)
            try:
                f(o, torch.ones(2))
                said.append(list(vars(o).items()))
            except (AttributeError, KeyError) as e:
                said.append((type(e), list(vars(o).items())))
        assert said[0] == said[1]


class Pair(typing.NamedTuple):
    first: int
    rest: list


class Row(tuple):
    pass


ASKED_OF_TUPLES = {
    "equal": lambda p: p == (1, [3]), "less": lambda p: p < (1, [2, 5]), "count": lambda p: [p].count((1, [3])),
    "index": lambda p: (1, [3]) in ((1, [4]), p), "sort": lambda p: sorted([p, (1, [2, 5])]), "largest": lambda p: max(p, (1, [2, 5])),
    "text": lambda p: f"{p} {[p]!r}", "leaves": lambda p: cxx_pytree.tree_leaves([p]), "slice": lambda p: slice(p) == slice((1, [3])),
    "method": lambda p: p.__eq__((1, [3])), "value": lambda p: (1, [3]) in {1: p}.values(),
}  # fmt: skip


@pytest.mark.parametrize("make", [Pair, lambda *a: Row(a), lambda *a: a], ids=["named", "row", "plain"])
@pytest.mark.parametrize("ask", ASKED_OF_TUPLES.values(), ids=ASKED_OF_TUPLES)
def test_c_code_walks_tuples_of_any_class(ask, make):
    def program(x, p):
        return x + 1, ask(p)

    compiled = pliant.compile(program, strict=True, backend="aten")
    x, held = torch.ones(2), [2]
    kept = make(1, held)
    for n in (2, 3, 4, 2):
        held[0] = n
        for p in (kept, make(1, [n])):
            assert repr(compiled(x, p)) == repr(program(x, p))


class AnswersForAll:
    def __init__(self):
        self.n = 1

    def __getattr__(self, name):
        if name == "__deepcopy__":
            return lambda memo: 7
        raise AttributeError(name)


class Refuses:
    def __getattr__(self, name):
        raise TypeError(name)


def linear_with(change):
    m = nn.Linear(2, 2)
    change(m.__dict__)
    return m


def held_by(name, answer):
    """An instance that has this itself."""
    thing = type("Thing", (), {})()
    setattr(thing, name, answer)
    return thing


COPIED = {
    "getattr": AnswersForAll, "refuses": Refuses, "deepcopy": lambda: held_by("__deepcopy__", lambda memo: 5),
    "reduce": lambda: held_by("__reduce_ex__", lambda protocol: "x"),
    "module": lambda: linear_with(lambda d: d.update(__deepcopy__=lambda m: 6)),
    "no parameters": lambda: linear_with(lambda d: d.update(_parameters=None)),
}  # fmt: skip


@pytest.mark.parametrize("make", COPIED.values(), ids=COPIED)
@pytest.mark.parametrize("copying", [copy.copy, copy.deepcopy])
def test_instances_answer_for_their_copies(copying, make):
    o = make()

    def program(x):
        made = copying(o)
        return x + 1, type(made), made is o

    said = []
    for f in (program, pliant.compile(program, strict=True, backend="aten")):
        try:
            said.append(repr(f(torch.ones(2))))
        except TypeError as e:
            said.append(str(e))
    assert said[0] == said[1]


@pytest.mark.parametrize("one, other", [("_parameters", "_buffers"), ("_buffers", "_modules"), ("_modules", "_parameters")])
def test_one_dict_for_two_parts_of_a_module(one, other):
    class Holds(nn.Module):
        def forward(self, x):
            self.kept = nn.ReLU()
            return x + 1

    said = []
    for compiling in (False, True):
        m = Holds()
        m.__dict__[one] = m.__dict__[other]
        run = (lambda x, m=m: m(x)) if not compiling else pliant.compile(lambda x, m=m: m(x), strict=True, backend="aten")
        said.append((run(torch.ones(3)).tolist(), sorted(m._modules), sorted(m._buffers)))
    assert said[0] == said[1]


def test_class_method_of_what_cannot_be_called():
    class Bound:
        it = classmethod(3)

    def program(x):
        return x + 1, Bound.it

    (a, m), (b, n) = program(torch.ones(2)), pliant.compile(program, strict=True, backend="aten")(torch.ones(2))
    assert torch.equal(a, b) and (m.__func__, m.__self__) == (n.__func__, n.__self__)


def test_a_branch_on_a_count_whose_side_makes_a_list():
    o = types.SimpleNamespace(n=torch.tensor(3))

    def program():
        if 1 > o.n:
            return [5]
        return [o.n * 0.5]

    run = pliant.compile(program, strict=True, backend="aten")
    for n in (3, 0, 4):
        o.n = torch.tensor(n)
        assert run() == program()


@pytest.mark.parametrize("kind", [torch.optim.RMSprop, torch.optim.Adam])
@pytest.mark.parametrize("foreach", [False, True])
def test_an_optimizer_that_is_to_be_capturable(kind, foreach):
    m = nn.Linear(2, 2)
    o = kind(m.parameters(), foreach=foreach)

    def step(x):
        m(x).sum().backward()
        o.step()
        return x + 1

    run = pliant.compile(step, strict=True, backend="aten")
    run(torch.ones(2))
    o.param_groups[0]["capturable"] = True
    with pytest.raises(AssertionError, match="capturable=True"):
        run(torch.ones(2))


@pytest.mark.parametrize("getter", [lambda self, other: True, lambda self: lambda other: NotImplemented, lambda self: lambda other: "no"])
def test_a_property_as_a_comparison(getter):
    class Number:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

        def __gt__(self, other):
            return self.n > other.n

        def __eq__(self, other):
            return self.n == other.n

    def program(x):
        return x + 1, Number(1) < Number(2), Number(1) == Number(1)

    run = pliant.compile(program, strict=True, backend="aten")
    assert repr(run(torch.ones(2))) == repr(program(torch.ones(2)))
    Number.__lt__ = Number.__eq__ = property(getter)
    assert repr(run(torch.ones(2))) == repr(program(torch.ones(2)))
