"""What perturbations found in metaclasses, and in special methods that are no functions."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.helpers import pliant


def said(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as e:
        return type(e), str(e)


class Meta(type):
    def __call__(cls, *args):
        made = super().__call__(*args)
        made.called = True
        return made


class Made(metaclass=Meta):
    def __init__(self, n=0):
        self.n = n

    def __repr__(self):
        return f"{type(self).__name__} {vars(self)}"


class Called:
    def __call__(self, *args):
        return "called", args


class Reads:
    def __get__(self, obj, cls=None):
        return lambda *args: ("read", obj, args)


class Holds:
    def __init__(self, *args):
        self.args = args

    def __repr__(self):
        return f"holds {self.args}"


def kept(*args):
    return args


WAYS = {
    "none": None, "a number": 5,
    "a property": property(lambda cls: lambda *args: (cls, args)), "a property that raises": property(lambda cls: cls.nowhere),
    "a partial": functools.partial(kept, 3), "a static method": staticmethod(kept), "a class method": classmethod(kept),
    "an object": Called(), "a descriptor": Reads(), "a class": Holds, "a builtin": len, "another function": kept,
    "excluded": pliant.disable(kept), "a bound method": Called().__call__, "a partial method": functools.partialmethod(kept, 7),
    "with a cache": functools.lru_cache(kept),
}  # fmt: skip


@pytest.mark.parametrize("way", list(WAYS))
def test_what_calls_a_class_is_what_its_metaclass_has(way):
    def program(x):
        return x + 1, Made(3)

    run, before, x = pliant.compile(program, strict=True, backend="aten"), Meta.__call__, torch.ones(2)
    assert said(run, x) == said(program, x)
    try:
        Meta.__call__ = WAYS[way]
        assert said(run, x) == said(program, x)
        assert said(pliant.compile(lambda x: program(x), strict=True, backend="aten"), x) == said(program, x)
    finally:
        Meta.__call__ = before
    assert said(run, x) == said(program, x)


@pytest.mark.parametrize("way", ["a partial", "a class method", "an object", "with a cache"])
def test_a_class_whose_metaclass_makes_it_by_no_function(way):
    class Makes(type):
        __new__ = WAYS[way]

    def program(x):
        class Inside(metaclass=Makes):
            k = 3

        return x + 1, isinstance(Inside, type), isinstance(Makes("B", (), {}), type)

    assert said(pliant.compile(program, strict=True, backend="aten"), torch.ones(2)) == said(program, torch.ones(2))


@pytest.mark.parametrize("parts", [("__hash__",), ("__eq__",), ("__hash__", "__eq__")])
def test_metaclasses_that_say_what_a_hash_is_are_not_asked(parts):
    heard = []

    def counted(cls, *other):
        heard.append(other)
        return type.__eq__(cls, *other) if other else type.__hash__(cls)

    Counts = type("Counts", (type,), dict.fromkeys(parts, counted))
    Counted = Counts("Counted", (), {"k": 3, "f": lambda self, x: x + self.k})
    one = Counted()

    def of_an_object(x):
        return one.f(x), len(heard)

    def of_one_made_here(x):
        return Counted().f(x), len(heard)

    def of_the_class(x):
        return x + Counted.k, len(heard)

    def of_a_class_made_here(x):
        class Inside(metaclass=Counts):
            k = 4

        return x + Inside.k, len(heard)

    for program in (of_an_object, of_one_made_here, of_the_class, of_a_class_made_here):
        run = pliant.compile(program, strict=True, backend="aten")
        for n in (2, 3, 2):
            assert said(run, torch.ones(n)) == said(program, torch.ones(n))
    assert not heard


def test_a_partial_that_enters_is_the_class_s():
    class Manager:
        __enter__ = functools.partial(lambda: 3)

        def __exit__(self, *args):
            return True

    manager = Manager()
    vars(manager)["__enter__"] = lambda: 7

    def program(x):
        with manager as n:
            return x + n

    assert said(pliant.compile(program, strict=True, backend="aten"), torch.ones(2)) == said(program, torch.ones(2))


def shared(cls):
    return cls


class Shares(type):
    f, n, some = shared, 1, [1]
    static, of_class, told = staticmethod(shared), classmethod(shared), property(lambda cls: 5)


class Shared(metaclass=Shares):
    f, n, some, static, of_class = shared, 1, Shares.some, vars(Shares)["static"], vars(Shares)["of_class"]
    told = vars(Shares)["told"]


class Below(Shared):
    pass


@pytest.mark.parametrize("owner", [Shares, Shared, Below])
@pytest.mark.parametrize("name, value", [("f", lambda cls: 9), ("n", 2), ("n", 1), ("some", [2]), ("f", 3), ("static", 4), (
    "n", property(lambda cls: 8))])
def test_what_a_class_and_its_metaclass_both_have(owner, name, value):
    def program(x):
        own = Shared.f(3), Shared.n, Shared.some, Shared.told, Shared.static, Shared.of_class().__name__, Shared.__hash__, Shared.__init__
        return x + 1, own, Below.f(4), Below.n, Below.some, Below.told, Below.static

    run, x = pliant.compile(program, strict=True, backend="aten"), torch.ones(2)
    assert said(run, x) == said(program, x)
    had, before = name in vars(owner), vars(owner).get(name)
    for _ in range(2):
        type.__setattr__(owner, name, value)
        assert said(run, x) == said(program, x)
        type.__setattr__(owner, name, before) if had else type.__delattr__(owner, name)
        assert said(run, x) == said(program, x)


# -- descriptors that have lost a half of what they did ----------------------------------------------------------------------------
def stores(w, x):
    w.d = w.d + 1
    return x * w.d


def deletes(w, x):
    del w.d
    return x * w.d


@pytest.mark.parametrize("gone", [("__set__",), ("__delete__",), ("__get__",), ("__set__", "__delete__"), ("__get__", "__set__")])
@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("program", [stores, deletes])
def test_descriptors_that_lose_their_methods(program, held, gone):
    """What can be stored alone cannot be deleted, and the other way round."""
    def told(compiled):
        class Held:
            def __get__(self, o, t=None):
                return self if o is None else o.__dict__.get("_d", 1)

            def __set__(self, o, v):
                o.__dict__["_d"] = v

            def __delete__(self, o):
                o.__dict__.pop("_d", None)

        class With:
            d = Held()

        w, x, out = With(), torch.ones(2), []
        run = pliant.compile(program, strict=True, backend="aten") if compiled else program

        def call():
            try:
                out.append(run(w, x).tolist())
            except Exception as e:
                out.append((type(e).__name__, str(e)))
            out.append(sorted(w.__dict__.items()))

        call(), call()
        before = {n: Held.__dict__[n] for n in gone}
        for n in gone:
            delattr(Held, n)
        if held:
            w.__dict__["d"] = 5
        call(), call()
        for n, v in before.items():
            setattr(Held, n, v)
        call()
        return out

    assert told(True) == told(False)


class Plain:
    def __repr__(self):
        return "Plain"


def as_base(o):
    class Made(o):
        pass

    return [c.__name__ for c in Made.__mro__]


BY_NAME = {
    "the doc of a property": (lambda o: property(o).__doc__, {"__doc__": "a"}, {"__doc__": "b"}),
    "an abstract property": (lambda o: property(o).__isabstractmethod__, {"__isabstractmethod__": True}, {"__isabstractmethod__": []}),
    "what a static method takes over": (lambda o: (staticmethod(o).__doc__, getattr(staticmethod(o), "__name__", 1)), {"__doc__": "a",
        "__name__": "n"}, {"__doc__": "b"}),
    "what a class method takes over": (lambda o: (classmethod(o).__doc__, classmethod(o).__isabstractmethod__), {"__doc__": "a"},
        {"__isabstractmethod__": True}),
    "a class, to isinstance": (lambda o: isinstance(Plain(), o), {"__bases__": (int,)}, {"__bases__": ()}),
    "a class, to issubclass": (lambda o: issubclass(o, int), {"__bases__": (int,)}, {"__bases__": ()}),
    "a base": (as_base, {"__mro_entries__": lambda given: (list,)}, {"__mro_entries__": lambda given: (dict, Plain)}),
    "keys": (dict, {"keys": lambda: []}, {"keys": lambda: ["a"]}),
    "keys of an update": (lambda o: [d := {}, d.update(o)], {"keys": lambda: []}, {"keys": lambda: ["a"]}),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_NAME)
def test_attributes_of_objects_that_c_code_reads_by_name(name):
    use, *held = BY_NAME[name]
    held = [{}, *held, {}, held[0]]

    def fn(x, o):
        return x + 1, use(o)

    target = pliant.compile(fn, backend="aten", strict=True)
    for given in held:
        o = Plain()
        vars(o).update(given)
        assert said(target, torch.ones(1), o) == said(fn, torch.ones(1), o), given
