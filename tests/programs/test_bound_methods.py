"""Special methods that are no functions: static and class methods, partials, objects that are called. CPython binds each in its own way."""

from __future__ import annotations

import functools
import operator
import types

import pytest
import torch

import pliant
from pliant.jit import support


class Answer:
    """What a special method gives; it is there in many forms."""

    def __init__(self, value):
        self.value = value

    def forms(self, arguments: int) -> dict:
        value = self.value

        class Callable:
            def __call__(self, *args):
                return value

        class Descriptor:
            def __get__(self, obj, cls):
                return lambda *args: value

        def method(self, *args):
            return value

        return {
            "partial": functools.partial(method), "object": Callable(), "class": classmethod(method), "descriptor": Descriptor(),
            "static": staticmethod(lambda *a: value if len(a) == arguments else [][1]),
            "partialmethod": functools.partialmethod(lambda self, x, *a: value, 5),
            "method": types.MethodType(method, 4), "property": property(lambda self: lambda *a: value), "none": None, "number": 5,
        }  # fmt: skip


def entered(o):
    with o as v:
        return v


def left(o):
    with o:
        raise KeyError(3)
    return 5


def instance_of(cls):
    return isinstance(3, cls), isinstance("a", (str, cls))


# name -> what it gives, how many arguments it is called with beside the object, what calls it
PROTOCOLS = {
    "__init__": (None, 1, lambda cls: type(cls(1)).__name__), "__new__": (3, 1, lambda cls: cls(1)), "__call__": (5, 1, lambda o: o(1)),
    "__len__": (3, 0, len), "__bool__": (True, 0, lambda o: 3 if o else 4), "__getitem__": (6, 1, lambda o: o[1]),
    "__contains__": (True, 1, lambda o: 2 in o), "__eq__": (True, 1, lambda o: o == 3), "__hash__": (8, 0, hash),
    "__add__": (4, 1, lambda o: o + 1), "__radd__": (4, 1, lambda o: 1 + o), "__index__": (2, 0, lambda o: [1, 2, 3][o]),
    "__getattr__": (7, 1, lambda o: o.other), "__str__": ("s", 0, str),
    "__setitem__": (None, 2, lambda o: operator.setitem(o, 1, 2)), "__next__": (3, 0, next),
    "__enter__": (6, 0, entered), "__exit__": (True, 3, left), "__missing__": (3, 1, lambda d: d["k"]),
    "__instancecheck__": (True, 1, instance_of), "__subclasscheck__": (True, 1, lambda cls: issubclass(int, cls)),
}  # fmt: skip
OF_CLASSES = ("__instancecheck__", "__subclasscheck__")
BESIDE = {"__enter__": {"__exit__": lambda self, *a: None}, "__exit__": {"__enter__": lambda self: self}}


def made(name, method):
    if name in OF_CLASSES:
        return type("Meta", (type,), {name: method})("Thing", (), {})
    cls = type("Thing", (dict,) if name == "__missing__" else (object,), {name: method, **BESIDE.get(name, {})})
    return cls if name in ("__init__", "__new__") else cls()


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as e:
        return type(e), str(e)


def only_strict(want, got) -> bool:
    """Both raise, by other types: strict mode says so, and users get eager's."""
    return type(want[0]) is type(got[0]) is type and f"CPython raised {want[0].__name__}:" in got[1]


@pytest.mark.parametrize("name", PROTOCOLS)
def test_as_cpython_binds_it(name):
    value, arguments, use = PROTOCOLS[name]

    def outside(x, o):
        return (x + 1).tolist(), use(o)

    def inside(x, method):
        return (x + 1).tolist(), use(made(name, method))

    for form, method in Answer(value).forms(arguments).items():
        for program, arg in ((outside, made(name, method)), (inside, method)):
            compiled = pliant.compile(program, backend="aten")
            for x in (torch.ones(2), torch.ones(3)):
                want, got = outcome(program, x, arg), outcome(compiled, x, arg)
                assert want == got or only_strict(want, got), (form, program.__name__, want, got)


def test_a_constructor_that_is_replaced():
    class Thing:
        v = 7

        def __init__(self, v):
            self.v = v

    def program(x, n):
        return x * Thing(n).v

    own, x = Thing.__init__, torch.ones(2)
    compiled = pliant.compile(program, backend="aten", strict=True)
    forms = [
        own, staticmethod(lambda v: None), functools.partial(lambda *a: None), classmethod(lambda cls, v: None), own,
        functools.partialmethod(lambda self, a, b: own(self, a + b), 3),
    ]  # fmt: skip
    for init in forms:
        Thing.__init__ = init
        for n in (2, 3):
            assert torch.equal(compiled(x, n), program(x, n))


def test_constructors_of_metaclasses():
    class Returns(type):
        def __init__(cls, *args):
            return 3

    class Static(type):
        __init__ = staticmethod(lambda *args: None)

    class Yields(type):
        def __init__(cls, *args):
            yield 3

    for meta in (Returns, Static, Yields):

        def program(x):
            return (x + 1).tolist(), meta("Thing", (), {}).__name__

        assert outcome(pliant.compile(program, backend="aten"), torch.ones(2)) == outcome(program, torch.ones(2))


def test_managers_that_are_entered_behind_a_break():
    class Manager:
        __enter__ = staticmethod(lambda *a: len(a))
        __exit__ = classmethod(lambda cls, *a: len(a) == 3)

    leave, entered = support.enter(Manager())
    assert entered == 0 and leave(None, None, None) is True
    for name in ("__enter__", "__exit__"):
        other = type("Other", (), {name: lambda self, *a: None})()
        with pytest.raises(TypeError) as ours:
            support.enter(other)
        with pytest.raises(TypeError) as theirs, other:
            pass
        assert str(ours.value) == str(theirs.value)


@pytest.mark.parametrize("backend", ["aten", "native"])
def test_nothing_is_resized_to_nothing(backend):
    def program(x, s):
        return torch.nn.functional.interpolate(x, scale_factor=s)

    compiled = pliant.compile(program, backend=backend, strict=True)
    x = torch.randn(1, 2, 8, 8)
    for s in (1.125, 2.0, 5e-324, 1.5, 0.01):
        if s > 0.1:
            torch.testing.assert_close(compiled(x, s), program(x, s))
            continue
        for fn in (program, compiled):
            with pytest.raises(RuntimeError, match="greater than 0"):
                fn(x, s)


class Asked:
    """Says what it is asked for, and answers otherwise than its slots hold."""

    __slots__ = ("n", "t")
    heard: list = []

    def __getattribute__(self, name):
        Asked.heard.append(name)
        value = object.__getattribute__(self, name)
        return value * 10 if type(value) in (int, float) else value

    def __setattr__(self, name, value):
        Asked.heard.append(("set", name))
        object.__setattr__(self, name, value)


class AskedForAttributes(Asked):
    """The same with a `__dict__`."""


def held(cls, n):
    o = cls()
    o.n, o.t = n, torch.ones(2) * n
    return o


def reads(x, o):
    return x * o.n + o.t


def writes(x, o):
    o.n += 1
    o.t = o.t * 2
    return x * 2


@pytest.mark.parametrize("cls", [Asked, AskedForAttributes])
@pytest.mark.parametrize("program", [reads, writes])
def test_guards_and_captures_ask_no_object(cls, program):
    """What the program's `__getattribute__` hears is what the program asks, in captures and where an entry holds."""
    compiled, x = pliant.compile(program, backend="aten", strict=True), torch.ones(2)
    for n in (3, 4, 5, 3, 3.5, 4):
        ours, theirs = held(cls, n), held(cls, n)
        Asked.heard.clear()
        want, said = program(x, theirs), list(Asked.heard)
        Asked.heard.clear()
        got = compiled(x, ours)
        assert Asked.heard == said and torch.equal(got, want)
        for name in ("n", "t"):
            assert str(object.__getattribute__(ours, name)) == str(object.__getattribute__(theirs, name))


class WithFallback:
    k = 1

    def __init__(self):
        self.fallback = self.initial

    def initial(self, x):
        return x + self.k


def test_bound_methods_that_are_compiled_themselves(monkeypatch):
    """They outlive the graph as they are: held by what it makes, as results, and behind a break."""

    def fn(x):
        made = WithFallback()
        method = made.initial
        torch._C._log_api_usage_once("a break")
        return made, made.fallback(x), method, [method]

    eager = fn(torch.ones(2))
    monkeypatch.setattr(WithFallback, "initial", pliant.compile(WithFallback.initial, backend="aten"))
    run = pliant.compile(fn, backend="aten", strict=True)
    for n in (2, 3, 4):
        made, answer, method, held = run(torch.ones(n))
        assert answer.tolist() == [2.0] * n and len(eager) == 4
        assert made.fallback.__self__ is method.__self__ is held[0].__self__ is made
        assert method(torch.ones(n)).tolist() == [2.0] * n
