"""Every kind of guard and every source: holds for what it was made from, fails for what differs, says why."""

from __future__ import annotations

import collections
import gc
import math
import operator
import types
import weakref

import pytest
import torch

from pliant import native
from pliant.guards import source as S
from pliant.guards.guard import Guard, TensorSpec
from pliant.guards.program import compile_guards
from pliant.symbolic.scope import Scope

X, Y = S.local(0, "x"), S.local(1, "y")
GLOBAL = [1, 2]


def frame(x, y=None):
    return x


def spec(t, sizes=None, strides=None):
    sizes = tuple(t.shape) if sizes is None else sizes
    strides = t.stride() if strides is None else strides
    return TensorSpec(type(t), t.dtype, t.device, t.requires_grad, t.ndim, sizes, strides, t)


def dynamic(t):
    return spec(t, (None,) * t.ndim, (None,) * t.ndim)


def holds(guard, *args, func=frame):
    """Checked twice (the second time perhaps by a snapshot) and against `explain`."""
    first = guard.check(args, func)
    assert (guard.check(args, func) is None) == (first is None)
    assert (guard.explain(args, func) is None) == (first is not None)
    return first is not None


def one(kind, value=None, source=X):
    return compile_guards([Guard(source, kind, value)])


class Plain:
    attr = "class level"

    def method(self):
        return 1


class Sly:
    """`==`, `len`, attribute access and hashing are user code that must not run."""

    def __eq__(self, other):
        raise AssertionError("user code ran")

    __hash__ = None

    def __len__(self):
        raise AssertionError("user code ran")

    @property
    def prop(self):
        raise AssertionError("user code ran")

    def __getattr__(self, name):
        raise AssertionError("user code ran")


class Meta(type):
    pass


@pytest.mark.parametrize(
    "kind, value, good, bad",
    [
        ("TYPE_MATCH", int, [1, 2**70], [True, 1.0, None]),
        ("TYPE_MATCH", Plain, [Plain()], [type("Plain", (Plain,), {})(), 1]),
        ("TYPE_MATCH", type(None), [None], [0, False]),
        ("ID_MATCH", None, [None], [0, False]),
        ("ID_MATCH", GLOBAL, [GLOBAL], [[1, 2]]),
        ("EQ_MATCH", 1, [1], [True, 1.0, 2, Sly()]),
        ("EQ_MATCH", True, [True], [1, False]),
        ("EQ_MATCH", 0.0, [0.0], [-0.0, 0, 0.5]),
        ("EQ_MATCH", math.nan, [float("nan")], [1.0, math.inf]),
        ("EQ_MATCH", 2**80, [2**80], [2**80 + 1]),
        ("EQ_MATCH", 1j, [1j], [complex(-0.0, 1), 1.0]),
        ("EQ_MATCH", "a", ["a", "".join(["a"])], ["b", b"a"]),
        ("EQ_MATCH", b"a", [b"a"], ["a"]),
        ("EQ_MATCH", (1, ("a", 2.0)), [(1, ("a", 2.0))], [(1, ("a", 2)), (True, ("a", 2.0)), (1,), [1, ("a", 2.0)]]),
        ("EQ_MATCH", frozenset({1, "a"}), [frozenset({"a", 1})], [frozenset({True, "a"}), frozenset({1}), {1, "a"}]),
        ("EQ_MATCH", slice(1, None), [slice(1, None)], [slice(1, 2), slice(True, None)]),
        ("EQ_MATCH", range(3), [range(3)], [range(4)]),
        ("EQ_MATCH", torch.float32, [torch.float32], [torch.float64]),
        ("EQ_MATCH", torch.device("cpu"), [torch.device("cpu")], [torch.device("meta")]),
        ("EQ_MATCH", torch.Size([1, 2]), [torch.Size([1, 2])], [(1, 2), torch.Size([1, 3])]),
        ("LENGTH", 2, [[1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, collections.deque([1, 2])], [[1], (), Sly(), collections.deque(), 2]),
        ("DICT_KEYS", ["a", 1], [{"a": 0, 1: 0}, collections.OrderedDict(a=0) | {1: 2}], [{1: 0, "a": 0}, {"a": 0, True: 0}, {"a": 0}, []]),
        ("DICT_KEYS", [], [{}], [{1: 1}]),
        ("DICT_CONTAINS", ("a", True), [{"a": 1}, collections.OrderedDict(a=1)], [{}, {"b": 1}, 3]),
        ("DICT_CONTAINS", ("a", False), [{}, {"b": 1}], [{"a": 1}, 3]),
        ("DICT_LACKS", {"a": None, "b": dict}, [{"b": {}}, {"b": {}, "c": 1}], [{}, {"a": 1, "b": {}}, {"b": {1: 1}}, {"b": []}, {"b": 3}]),
        ("DICT_LACKS", {"a": None}, [{}, {"b": 1}], [{"a": 1}, 3]),
        ("DICT_LACKS", {"a": collections.OrderedDict}, [{"a": collections.OrderedDict()}], [{"a": {}}, collections.OrderedDict(a=1)]),
        ("SET_EQUALS", {1, "a"}, [{"a", 1}], [{True, "a"}, {1}, {1, "a", 2}, [1, "a"]]),
        ("SET_EQUALS", frozenset({1}), [{1}, frozenset({1})], [{1.0}]),
        ("INT", None, [0, -5, 2**63 - 1, -(2**63)], [True, 1.0, 2**63, None]),
        ("FLOAT", None, [1.0, math.nan], [1, True]),
        ("BOOL", None, [True, False], [1, 0]),
        ("PREDICATE", lambda x: x > 3, [4], [3, None]),
    ],
)
def test_kind(kind, value, good, bad):
    guard = one(kind, value)
    for x in good:
        assert holds(guard, x), x
    for x in bad:
        assert not holds(guard, x), x
        where, relation, text, *_ = guard.explain((x,), frame)
        assert (where, relation) == (0, None)
        assert "L['x']" in text and (kind in text or not isinstance(x, dict))


def test_order_of_an_ordered_dict_is_its_own():
    d = collections.OrderedDict(a=1, b=2)
    guard = one("DICT_KEYS", ["a", "b"])
    assert holds(guard, d)
    d.move_to_end("a")
    assert not holds(guard, d)


def test_user_code_never_runs():
    sly = Sly()
    assert not holds(one("EQ_MATCH", 3), sly)
    assert not holds(one("EQ_MATCH", Sly()), sly)  # its == is Python: only the same object would do
    assert not holds(one("EQ_MATCH", 1, X.attr("prop")), sly)
    assert not holds(one("EQ_MATCH", 1, X.attr("missing")), sly)
    assert not holds(one("LENGTH", 0), sly)


class Slotted:
    __slots__ = ("field",)

    def __init__(self, field):
        self.field = field


class Base:
    @staticmethod
    def static():
        return 1

    @classmethod
    def cls(cls):
        return cls

    def plain(self):
        return 2


@pytest.mark.parametrize(
    "source, holder, value",
    [
        (X.attr("field"), Slotted(5), 5),
        (X.attr("attr"), Plain(), "class level"),
        (X.attr("real"), 7, 7),
        (X.attr("__name__"), Plain, "Plain"),
        (X.attr("__name__"), frame, "frame"),
        (X.attr("pi"), math, math.pi),
        (X.dict().key("k"), types.SimpleNamespace(k=3), 3),
        (X.dict().key("pi"), math, math.pi),
        (X.dict().key("attr"), Plain, "class level"),
        (X.key("k"), {"k": 4}, 4),
        (X.key(3), {3: 4}, 4),
        (X.key((1, "a")), collections.OrderedDict({(1, "a"): 4}), 4),
        (X.index(1), [0, 9], 9),
        (X.index(1), (0, 9), 9),
        (X.index(-1), (0, 9), 9),
        (X.index(0), torch.Size([6, 2]), 6),
        (X.index(1), collections.deque([0, 9]), 9),
        (X.contents(), types.CellType(8), 8),
        (X.key("a").index(0).dict().key("b"), {"a": [types.SimpleNamespace(b="deep")]}, "deep"),
    ],
)
def test_sources(source, holder, value):
    guard = compile_guards([Guard(source, "EQ_MATCH", value)], {}, [], [source])
    assert guard.check((holder,), frame) == (value,)
    assert holds(guard, holder)
    for wrong in (None, 3.5, [], (), {}, types.SimpleNamespace(), types.CellType()):
        assert not holds(guard, wrong)


def test_object_sources():
    assert holds(one("ID_MATCH", Plain, X.type()), Plain())
    assert not holds(one("ID_MATCH", Plain, X.type()), 1)
    assert holds(one("ID_MATCH", Base.static, X.attr("static")), Base())
    assert holds(one("ID_MATCH", Base.static, X.attr("static")), Base)
    assert holds(one("ID_MATCH", Base.plain, X.attr("plain")), Base)
    assert holds(one("ID_MATCH", Base, X.attr("cls").attr("__self__")), Base())
    bound = Base().plain
    assert holds(one("ID_MATCH", bound.__func__, X.attr("__func__")), bound)
    assert holds(one("ID_MATCH", bound.__self__, X.attr("__self__")), bound)


def test_globals_builtins_function_and_cells():
    n, unset = 3, None
    del unset

    def inner(x):
        return x, n, GLOBAL, len, unset  # noqa: F821

    free = inner.__code__.co_freevars
    guard = compile_guards(
        [
            Guard(S.global_("GLOBAL"), "ID_MATCH", GLOBAL),
            Guard(S.global_("len"), "ID_MATCH", len),
            Guard(S.func(), "ID_MATCH", inner),
            Guard(S.func().cell(free.index("n")), "EQ_MATCH", 3),
        ]
    )
    assert holds(guard, 0, func=inner)
    assert not holds(guard, 0, func=frame)
    n = 4
    assert not holds(guard, 0, func=inner)
    assert not holds(one("EQ_MATCH", 1, S.func().cell(free.index("unset"))), 0, func=inner)
    assert not holds(one("EQ_MATCH", 1, S.func().cell(7)), 0, func=inner)
    assert not holds(one("EQ_MATCH", 1, S.global_("no_such_name")), 0)


def test_too_few_arguments_fail():
    guard = one("EQ_MATCH", None, Y)
    assert guard.check((1,), frame) is None
    with pytest.raises(ValueError, match="2 frame arguments, 1 were given"):
        guard.explain((1,), frame)


# ---- class attributes and functions ----


def test_type_attrs():
    class Parent:
        shared = [1]

    class Child(Parent):
        none = None

    source = S.const(Child)
    guard = one("TYPE_ATTRS", {"shared": Parent.shared, "missing": None, "none": None}, source)
    assert holds(guard, 0)
    Child.unrelated = 1  # the class changed, the names did not
    assert holds(guard, 0)
    Child.missing = None  # nothing is not the same as None
    assert not holds(guard, 0)
    del Child.missing
    assert holds(guard, 0)
    Child.none = 0
    assert not holds(guard, 0)
    Child.none = None
    Parent.shared = [1]
    assert not holds(guard, 0)


def test_function():
    def f(a, b=2, *, c=3):
        return a

    guard = one("FUNCTION", (f.__code__, f.__defaults__, f.__kwdefaults__))
    assert holds(guard, f)
    assert not holds(guard, frame)
    f.__defaults__ = tuple([2])  # equal, but not the same
    assert not holds(guard, f)
    plain = one("FUNCTION", (frame.__code__, frame.__defaults__, None))
    assert holds(plain, frame)


# ---- several objects ----


def test_alias_and_not_alias():
    a, b = [], []
    assert holds(one("ALIAS", Y), a, a)
    assert not holds(one("ALIAS", Y), a, b)
    assert holds(one("NOT_ALIAS", (Y,)), a, b)
    assert not holds(one("NOT_ALIAS", (Y,)), a, a)
    many = tuple(X.index(i) for i in range(20))
    guard = one("NOT_ALIAS", many[1:], many[0])
    objects = [object() for _ in range(20)]
    assert holds(guard, objects)
    assert not holds(guard, objects[:19] + [objects[4]])


def test_not_alias_between_a_module_and_an_argument():
    m = torch.nn.Linear(3, 3)
    t = torch.ones(3)
    parameters = X.dict().key("_parameters")
    guard = compile_guards(
        [Guard(parameters.key(k), "TENSOR_MATCH", spec(p)) for k, p in m.named_parameters()]
        + [Guard(Y, "NOT_ALIAS", (parameters.key("weight"), parameters.key("bias")))]
    )
    for _ in range(3):
        assert holds(guard, m, t)
        assert not holds(guard, m, m.bias)
        assert not holds(guard, m, m.weight)


def test_storage_overlap():
    base = torch.zeros(10)
    lo, hi, all_ = base[:5], base[5:], base
    for pair, flag in (((lo, hi), False), ((lo, all_), True), ((hi, torch.zeros(5)), False)):
        assert native.share_memory(*pair) is flag
        guards = [Guard(s, "TENSOR_MATCH", spec(t)) for s, t in zip((X, Y), pair, strict=True)]
        guard = compile_guards([*guards, Guard(X, "STORAGE_OVERLAP", ((X, Y), (flag,)))])
        assert holds(guard, *pair)
    guard = compile_guards([*guards, Guard(X, "STORAGE_OVERLAP", ((X, Y), (False,)))])
    assert not holds(guard, lo, lo)
    assert not holds(guard, lo, base[4:9])
    assert holds(guard, lo, hi)
    with pytest.raises(ValueError, match="one flag for each pair"):
        compile_guards([*guards, Guard(X, "STORAGE_OVERLAP", ((X, Y), (False, True)))])


# ---- relations ----


def test_lengths_are_numbers():
    scope = Scope()
    n, m = (scope.backed(name, hint=h, lo=0) for name, h in (("n", 3), ("m", 2)))
    types = [Guard(X, "TYPE_MATCH", list), Guard(Y.key("d"), "TYPE_MATCH", dict)]
    guard = compile_guards(types, {"n": X.length(), "m": Y.key("d").length()}, [n > m], ["m", "n"])
    assert guard.check(([1, 2, 3], {"d": {1: 1}}), frame) == (1, 3)
    assert guard.check(([], {"d": {}}), frame) is None
    assert guard.check((list(range(1000)), {"d": {}}), frame) == (0, 1000)
    assert holds(guard, [1], {"d": {}}) and not holds(guard, (1, 2), {"d": {}}) and not holds(guard, Sly(), {"d": {}})
    assert guard.explain(([1], {"d": {1: 1, 2: 2}}), frame)[2] == "n > m is false: n = 1, m = 2"



def test_relations_over_sizes_and_ints():
    scope = Scope()
    s0, s1, k = (scope.backed(n, hint=h, lo=None, hi=None) for n, h in (("s0", 6), ("s1", 4), ("k", 2)))
    t = torch.zeros(6, 4)
    relations = [s0 == s1 + k, s0 % 3 == 0, s1 // k > -7]
    guard = compile_guards(
        [Guard(X, "TENSOR_MATCH", dynamic(t)), Guard(Y, "INT")],
        {"s0": X.size(0), "s1": X.size(1), "k": Y},
        relations,
        ["k", X, "s1", X.size(0), X.stride(0)],
    )
    assert guard.check((t, 2), frame) == (2, t, 4, 6, 4)
    assert holds(guard, torch.zeros(9, 11), -2)
    assert not holds(guard, torch.zeros(9, 11), 2)
    where = guard.explain((torch.zeros(8, 4), 4), frame)
    assert where[0] is None and where[1] == 1 and "s0 = 8" in where[2]
    assert not holds(guard, torch.zeros(6, 6), 0)  # division by zero fails the guard
    assert not holds(guard, torch.zeros(3, 1), 2**62 * 2 - 1)  # overflow fails the guard, too
    assert not holds(guard, t, 2**63)


def test_relations_whose_sums_need_more_than_64_bits():
    scope = Scope()
    k, m = (scope.backed(n, hint=3, lo=None, hi=None) for n in ("k", "m"))
    top = 2**63 - 1
    guard = compile_guards([Guard(X, "INT"), Guard(Y, "INT")], {"k": X, "m": Y}, [k + m >= 5, m * k - k * 3 > -top], ["k"])
    assert holds(guard, top, 6) and holds(guard, top, top) and holds(guard, 6, top)
    assert not holds(guard, top, 5 - top) and not holds(guard, top, -top - 1) and not holds(guard, 2, 2) and not holds(guard, -2, top)
    assert not holds(guard, -top, top)


@pytest.mark.parametrize("compare", ["eq", "ne", "lt", "le", "gt", "ge"])
def test_bounds_of_an_expression_and_a_constant(compare):
    """Such a constant goes to the other side when the guard is built, as far as 64 bits hold it."""
    test = getattr(operator, compare)
    top = 2**63 - 1
    for made in (lambda k: k, lambda k: 3 * k, lambda k: k * k):
        for a in (0, 2, -7, top, -top - 1):
            for b in (0, 5, -1, top, -top - 1):
                k = Scope().backed("k", hint=4, lo=None, hi=None)
                guard = compile_guards([Guard(X, "INT")], {"k": X}, [test(made(k) + a, b)], ["k"])
                for v in (0, 1, -1, 2, 5, 7, -9, top, top - 2, -top - 1, 2**31):
                    if abs(made(v)) < 2**100:
                        assert holds(guard, v) == test(made(v) + a, b), (compare, a, b, v)


def test_relations_over_floats_and_wide_operators():
    scope = Scope()
    f = scope.backed("f0", hint=0.5, kind=float)
    s = scope.backed("s0", hint=3, lo=None, hi=None)
    guard = compile_guards(
        [Guard(X, "FLOAT"), Guard(Y, "TENSOR_MATCH", dynamic(torch.ones(3)))],
        {"f0": X, "s0": Y.size(0)},
        [f * s > 1, s < 2**70],
        ["f0", "s0"],
    )
    assert guard.check((0.5, torch.ones(3)), frame) == (0.5, 3)
    assert not holds(guard, 0.5, torch.ones(2))
    assert not holds(guard, 3, torch.ones(3))
    assert guard.explain((0.25, torch.ones(3)), frame)[:2] == (None, 0)


def test_size_equals_a_constant():
    t = torch.zeros(2, 3)
    guard = compile_guards([Guard(X, "TENSOR_MATCH", dynamic(t)), Guard(X.size(1), "EQ_MATCH", 3)])
    assert holds(guard, torch.zeros(9, 3))
    assert not holds(guard, torch.zeros(9, 4))
    assert "saw 4" in guard.explain((torch.zeros(9, 4),), frame)[2]


# ---- weak references ----


def test_guards_keep_nothing_alive():
    m = torch.nn.Linear(2, 2)
    alive = weakref.ref(m)
    guard = compile_guards([Guard(X, "ID_MATCH", m), Guard(S.const(m).dict().key("training"), "EQ_MATCH", True)])
    S.clear_interned()
    assert holds(guard, m)
    del m
    gc.collect()
    assert alive() is None
    assert guard.dead
    assert not holds(guard, None)
    assert not holds(guard, torch.nn.Linear(2, 2))


def test_dead_guard_never_takes_a_new_object_at_the_old_address():
    class Thing:
        pass

    x = Thing()
    guard, old = one("ID_MATCH", x), id(x)
    del x
    for _ in range(1000):
        y = Thing()
        assert not guard.check((y,), frame)
        if id(y) == old:
            break


def test_a_class_that_died_matches_nothing():
    cls = type("Temporary", (), {})
    alive = weakref.ref(cls)
    guard = one("TYPE_MATCH", cls)
    assert holds(guard, cls())
    del cls
    gc.collect()
    assert alive() is None
    assert not holds(guard, type("Temporary", (), {})())
    assert not holds(guard, None)


def test_guards_do_not_leak():
    import sys

    S.clear_interned()
    root = S.local(0, "x")  # a path holds the steps that were made from it
    value, key = ("a", 10**30), "key" * 3

    def counts(rounds, root):
        for _ in range(rounds):
            guard = compile_guards([Guard(root.key(key), "EQ_MATCH", value), Guard(root, "LENGTH", 1)], {}, [], [root.key(key), root])
            d = {key: value}
            assert guard.check((d,), frame) == (value, d)
            assert guard.check(({key: 1},), frame) is None
            assert guard.explain(({},), frame)
            assert guard.check(({},), frame) is None
        gc.collect()
        return sys.getrefcount(value), sys.getrefcount(key), sys.getrefcount(None)

    before = counts(3, root)  # what others left behind is gone by then, too
    after = counts(300, root)
    assert after[:2] == before[:2]
    assert abs(after[2] - before[2]) < 50


def test_hits():
    guard = one("EQ_MATCH", 1)
    for x in (1, 2, 1):
        guard.check((x,), frame)
    assert guard.hits == 2
    assert guard.stats()["misses"] == 1


@pytest.mark.parametrize("kind", ["NONSENSE"])
def test_unknown_kind_is_refused(kind):
    with pytest.raises(ValueError, match="unknown guard kind"):
        one(kind)


KEYS = {"tensor": lambda: torch.ones(2), "parameter": lambda: torch.nn.Parameter(torch.ones(2)), "object": object, "instance": Plain}


@pytest.mark.parametrize("make", KEYS.values(), ids=KEYS)
def test_items_of_a_dict_under_whichever_object_is_there(make):
    held = [Guard(X.item(Y), "EQ_MATCH", 5)]
    through = [Guard(X.item(X.key("which")), "EQ_MATCH", 5), Guard(X.item(X.item(X.key("which"))), "NOT_ALIAS", ())]
    for _ in range(3):  # another one each time, of one program
        k, other = make(), make()
        for guard, d, there in ((held, {k: 5}, True), (held, {k: 6}, False), (held, {other: 5}, False), (held, {}, False)):
            assert holds(compile_guards(guard), d, k) == there
            assert holds(compile_guards([Guard(X, "DICT_LACKS_ITEM", Y)]), d, k) == (k not in d)
        assert holds(compile_guards(through[:1]), {"which": k, k: 5})
        assert not holds(compile_guards(through), {"which": k, k: 5})
        assert holds(compile_guards(through[1:]), {"which": k, k: other, other: 1})
    assert not holds(compile_guards([Guard(X, "DICT_LACKS_ITEM", Y)]), [make()], make())


def test_an_item_under_what_does_not_equal_itself_alone_is_not_read():
    guard = compile_guards([Guard(X.item(Y), "EQ_MATCH", 5)])
    assert holds(guard, {"a": 5}, "a")  # a text runs no code of the program
    assert not holds(guard, {1: 5}, 1)
    assert not holds(guard, {1: 5}, Sly())
    assert not holds(compile_guards([Guard(X, "DICT_LACKS_ITEM", Y)]), {}, Sly())
