"""Classes over C types with a few special methods of their own: who is asked, in which order, each time anew."""

from __future__ import annotations

import collections
import copy
import itertools
import operator

import pytest
import torch

import pliant

told: list[str] = []
EQUALITY, ORDER = ("__eq__", "__ne__"), ("__lt__", "__le__", "__gt__", "__ge__")
VALUES = {
    list: ([1], [1, 2], []), set: ({1}, {2}, set()), dict: ({1: 2}, {}, {1: 3}),
    tuple: ((1,), (1, 2), ()), int: (1, 2, 0), str: ("a", "b", ""),
}  # fmt: skip


def telling(base: type, names, says=None) -> type:
    def method(name):
        def said(self, other):
            told.append(name)
            return f"{name}{len(told)}" if says is None else says

        return said

    return type("Telling", (base,), {**{name: method(name) for name in names}, "__hash__": None})


def run(f, *args):
    try:
        return f(*args)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("base", VALUES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("names", [("__eq__",), ("__ne__",), EQUALITY, ()], ids=str)
@pytest.mark.parametrize("says", [None, NotImplemented], ids=["answers", "passes on"])
def test_equal_and_unequal(base, names, says):
    cls = telling(base, names, says)
    for op in (operator.eq, operator.ne):

        def f(x, a, b, op=op):
            return op(a, b)

        compiled = pliant.compile(f, backend="aten")
        for v, w in itertools.product(VALUES[base], repeat=2):
            for a, b in ((cls(v), base(w)), (base(v), cls(w)), (cls(v), cls(w)), (cls(v), None)):
                told.clear()
                want, heard = f(None, a, b), list(told)
                told.clear()
                assert compiled(torch.ones(1), a, b) == want and told == heard


@pytest.mark.parametrize("base", [tuple, list, dict, set, int, float, complex, object], ids=lambda t: t.__name__)
@pytest.mark.parametrize("left", [True, False], ids=["tensor first", "tensor second"])
@pytest.mark.parametrize("says", [None, NotImplemented], ids=["answers", "passes on"])
def test_beside_a_tensor(base, left, says):
    cls = telling(base, (*EQUALITY, *ORDER, "__radd__", "__rmul__", "__add__"), says)
    for op in (operator.eq, operator.ne, operator.lt, operator.ge, operator.add, operator.mul):

        def f(x, a, op=op):
            return op(x, a) if left else op(a, x)

        compiled = pliant.compile(f, backend="aten")
        for i in range(3):
            a = cls() if base is object else cls(VALUES.get(base, (2, 3, 4))[0])
            told[:] = ["before"] * i
            want, heard = run(f, torch.ones(2), a), list(told)
            told[:] = ["before"] * i
            got = run(compiled, torch.ones(2), a)
            assert told == heard and type(got) is type(want)
            assert torch.equal(got, want) if isinstance(want, torch.Tensor) else got == want


class Tracked(set):
    def __init__(self, values=(), tracker=None):
        self.tracker = tracker
        super().__init__(values)

    def add(self, value):
        if self.tracker is not None:
            self.tracker.append(value)
        super().add(value)


class Sorted(set):
    def __iter__(self):
        return iter(sorted(super().__iter__(), key=str))

    def __len__(self):
        return super().__len__() + 100


def tagged(s):
    s.tag = 5
    return sorted(vars(s))


READERS = {
    "iterated": lambda s: [v for v in s],
    "listed": list,
    "told": lambda s: (len(s), bool(s), "a" in s, s == {"a", "b"}, s <= {"a", "b", "c"}, f"{s}", type(s).__name__),
    "joined": lambda s: (type(s | {9}).__name__, list(s | {9}), list({"a", 7} - s), type(s.copy()).__name__),
    "copied": lambda s: (type(copy.copy(s)).__name__, list(copy.copy(s)), type(copy.deepcopy(s)).__name__),
    "added": lambda s: (s.add("z"), len(s), list(s)),
    "grown": lambda s: (s.update(["q", "r"], [1]), s.discard("a")),
    "popped": lambda s: s.pop() if set.__len__(s) else None,
    "cleared": lambda s: s.clear(),
    "tagged": tagged,
}


@pytest.mark.parametrize("cls", [Tracked, Sorted, type("Plain", (set,), {})], ids=lambda t: t.__name__)
@pytest.mark.parametrize("name", READERS)
def test_sets_of_a_subclass(cls, name):
    def f(x, s):
        return x + 1, READERS[name](s)

    state = lambda s: (list(set.__iter__(s)), sorted(vars(s).items()))
    compiled = pliant.compile(f, backend="aten", fullgraph=True)
    for values in (["a", "b"], ["b", "a", 3], [], [1, 2, 3], ["b", "a", "c", "d", "e", "f"], ["a", "b"]):
        a, b = cls(values), cls(values)
        if cls is Tracked and len(values) % 2:
            a.tracker, b.tracker = [], []
        want, got = f(torch.ones(1), a)[1], compiled(torch.ones(1), b)[1]
        assert repr(got) == repr(want) and state(b) == state(a)


def test_names_are_asked_without_the_programs_code():
    class Text(str):
        __getattr__ = None

    assert pliant.compile(lambda x, s: (x + 1, "".join(s)))(torch.ones(1), Text("ab"))[1] == "ab"


class Joined(tuple):
    def __radd__(self, other):
        return "radd"

    def __rmul__(self, other):
        return "rmul"


class Times(int):
    def __rmul__(self, other):
        return "rmul"

    def __radd__(self, other):
        return "radd"


@pytest.mark.parametrize("f", [
    lambda x, r: x.shape + r, lambda x, r: (1, 2) + r, lambda x, r: [1] + r, lambda x, r: x.shape * r, lambda x, r: (1,) * r,
    lambda x, r: "a" * r, lambda x, r: b"a" + r, lambda x, r: r + x.shape, lambda x, r: 3 * r,
])  # fmt: skip
@pytest.mark.parametrize("right", [Joined((1,)), Times(2), torch.Size([1]), 2, (3,)], ids=lambda r: type(r).__name__)
def test_sequences_are_joined_when_numbers_have_said_no(f, right):
    want, got = run(f, torch.ones(2, 3), right), run(pliant.compile(f, backend="aten"), torch.ones(2, 3), right)
    assert type(got) is type(want) and got == want


SAYS = {
    "__contains__": True, "__len__": 50, "__getitem__": 7, "__bool__": True, "__eq__": True, "get": 8, "pop": 3, "copy": 4, "update": 5,
    "keys": ["q"], "values": [1], "items": [("q", 1)], "setdefault": 3, "index": 1, "count": 1, "append": 6, "add": 6, "discard": 6,
}  # fmt: skip


def lying(base):
    """A class whose methods say nothing of what it holds."""

    def method(name):
        def said(self, *args):
            told.append(name)
            return SAYS[name]

        return said

    def walked(self):
        told.append("__iter__")
        return iter(["zz"])

    own = {name: method(name) for name in SAYS if hasattr(base, name) or name == "__bool__"}
    return type("Lying", (base,), {**own, "__iter__": walked, "__hash__": None})


def stored(d):
    d[0] = 9


def taken(d):
    del d[0]


def attributed(d):
    d.tag = 1


WAYS = {
    "stored": stored, "taken": taken, "attributed": attributed, "length": len, "in": lambda d: "a" in d, "walked": list,
    "if": lambda d: 1 if d else 2, "item": lambda d: d["a"], "got": lambda d: d.get("a"), "equal": lambda d: d == 3,
    "unpacked": lambda d: [*d], "kept": lambda d: [d] and 1, "stored by name": lambda d: dict.update(d, b=3),
    "in by name": lambda d: dict.__contains__(d, "a"), "popped by name": lambda d: dict.pop(d, "a"),
    "items by name": lambda d: list(dict.items(d)), "behind a break": lambda d: (stored(d), print(end=""))[0],
}  # fmt: skip
BASES = [dict, collections.OrderedDict, collections.defaultdict, collections.Counter, list, set]


@pytest.mark.parametrize("base", BASES, ids=lambda t: t.__name__)
@pytest.mark.parametrize("way", WAYS)
def test_what_a_container_holds_is_not_what_its_class_says(base, way):
    cls, f = lying(base), WAYS[way]
    held = dict.items if issubclass(base, dict) else base.__iter__
    compiled = pliant.compile(lambda x, d: (x + 1, f(d))[1], backend="aten")
    for items in (["a", 0], ["a", 0], [0, 1, 2]):
        given = dict.fromkeys(items, 1)
        made = lambda given=given: cls(int, given) if base is collections.defaultdict else cls(given)
        a, b = made(), made()
        told.clear()
        want, heard = run(f, a), list(told)
        told.clear()
        got = run(compiled, torch.ones(1), b)
        assert got == want and told == heard and list(held(b)) == list(held(a)) and vars(b) == vars(a)


# -- made here, and given back as what C knows of it -------------------------------------------------------------------------
OWN_WAYS = {
    "no length": {"__len__": lambda s: 0},
    "another length": {"__len__": lambda s: 5}, "walked otherwise": {"__iter__": lambda s: iter([8, 9])},
    "false": {"__bool__": lambda s: False}, "holds nothing": {"__contains__": lambda s, k: False}, "no walking": {"__iter__": None},
    "other views": {"keys": lambda s: ["q"], "values": lambda s: [1], "items": lambda s: [("q", 1)]},
    "no extending": {"extend": lambda s, *a: None, "update": lambda s, *a: None},
}  # fmt: skip
FILLED: dict = {
    list: lambda n: [n, 1, 2], set: lambda n: {n, 11, 12}, frozenset: lambda n: {n, 11}, tuple: lambda n: (n, 1, 2),
    dict: lambda n: {"a": n, "b": 2}, collections.OrderedDict: lambda n: {"a": n, "b": 2}, collections.deque: lambda n: [n, 1, 2],
}  # fmt: skip


def is_made(x, base, cls, items):
    return x + 1, cls(items)


def is_walked(x, base, cls, items):
    v = cls(items)
    it = base.__iter__(v)
    return x + 1, next(it), it, v


def is_viewed(x, base, cls, items):
    v = cls(items)
    if not issubclass(base, dict):
        return x
    pairs = iter(base.items(v))
    return x + 1, next(pairs), pairs, base.keys(v), base.values(v)


def is_added_to(x, base, cls, items):
    v = cls(items)
    if issubclass(base, (dict, set, frozenset)):
        v |= base(items)
    else:
        v += base(items)
    return x + 1, v


def is_copied(x, base, cls, items):
    v = cls(items)
    return x + 1, set(v) if issubclass(base, (set, frozenset)) else None


def in_c(v):
    """What C knows that a value of these programs is and holds."""
    base = next((b for b in (*FILLED, type({}.keys()), type({}.values())) if isinstance(v, b)), None)
    if isinstance(v, collections.OrderedDict):
        return type(v).__name__, list(collections.OrderedDict.items(v))
    if base is dict:
        return type(v).__name__, list(dict.items(v))
    if base is not None or hasattr(type(v), "__next__"):
        return type(v).__name__, [in_c(i) for i in (base or type(v)).__iter__(v)]
    return v.tolist() if isinstance(v, torch.Tensor) else v


@pytest.mark.parametrize("base", FILLED, ids=lambda t: t.__name__)
@pytest.mark.parametrize("way", OWN_WAYS)
def test_what_is_made_holds_what_was_put_into_it(base, way):
    cls = type("Own", (base,), OWN_WAYS[way])
    for f in (is_made, is_walked, is_viewed, is_added_to, is_copied):
        compiled = pliant.compile(f, backend="aten")
        for n in (3, 4, 5, 3):
            want, got = (run(g, torch.ones(1), base, cls, FILLED[base](n)) for g in (f, compiled))
            assert in_c(want) == in_c(got), f
