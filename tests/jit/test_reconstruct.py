"""Values made again from text: equal, with the same aliasing, cycles and state."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import re
import types
import weakref
from typing import Any

import pytest
import torch

import pliant
from pliant.jit import rows
from pliant.jit.reconstruct import Builder, CannotReconstruct


class World:
    """The parts of the interpreter's world that a builder asks."""

    def __init__(self, own_functions=()):
        self.by_copy = {}
        self.symbols = {}
        self.constants_at = {}
        self.real = {}
        self.own_functions = {id(f): f for f in own_functions}
        self.remade = {}
        self.remade_functions = {}
        self.dict_owners = {}
        self.unchained = {}

    def source_of(self, obj):
        return None


def rebuilt(value, own=()):
    b = Builder(rows, World(own), None, [], False, None)
    text = b.ref(value)
    body = "".join(f"    {line}\n" for line in b.lines)
    namespace = dict(b.env)
    exec(f"def make():\n{body}    return {text}\n", namespace)
    return namespace["make"]()


Point = collections.namedtuple("Point", "x y")


class Colour(enum.Enum):
    RED = 1


class Slotted:
    __slots__ = ("__hidden", "a")

    def __init__(self):
        self.a = [1]
        self.__hidden = 2

    def __eq__(self, other):
        return (self.a, self.__hidden) == (other.a, other.__hidden)


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int
    b: list


class Many(dict):
    pass


class Longer(list):
    pass


class Guarded:
    def __init__(self):
        self.a = 1

    def __setattr__(self, name, value):
        if name in self.__dict__:
            raise AttributeError(name)
        self.__dict__[name] = value

    def __eq__(self, other):
        return self.__dict__ == other.__dict__


def many():
    m = Many(a=1)
    m.extra = [2]
    return m


VALUES = [
    None, True, 3, -3, 2.5, -0.0, float("inf"), 1 + 2j, "x", b"y", "z" * 500, ..., NotImplemented,
    [], [1, [2]], (), (1,), (1, (2, "a")), {}, {"a": [1], 2: {3}}, {1, 2}, set(), frozenset([1]), slice(1, None, 2), range(1, 9, 3),
    collections.OrderedDict(b=1, a=2), collections.defaultdict(list, a=[1]), collections.Counter("abca"), collections.deque([1, 2], 3),
    Point(1, [2]), Colour.RED, Slotted(), Frozen(1, [2]), many(), Longer([1, 2]), Guarded(), types.SimpleNamespace(a=1, b=[2]), int, len,
    types.MappingProxyType({"a": 1}), [[], []], {"k": (1, {"z": [None]})},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=lambda v: re.sub(" at 0x.*", "", repr(v)))
def test_equal(value):
    made = rebuilt(value)
    assert type(made) is type(value)
    assert made == value
    assert getattr(made, "__dict__", None) == getattr(value, "__dict__", None)
    assert repr(made) == repr(value) or "object at" in repr(value)


def test_mutable_values_are_new():
    for value in ([1], {"a": 1}, {1}, Slotted(), collections.deque([1])):
        assert rebuilt(value) is not value


def test_aliasing_survives():
    a = [1]
    made = rebuilt([a, {"x": a}, (a,)])
    assert made[0] is made[1]["x"] is made[2][0]


def test_cycles():
    xs = [1]
    xs.append(xs)
    made = rebuilt(xs)
    assert made[1] is made and made[0] == 1

    d = {}
    t = (d, [d])
    d["t"] = t
    made = rebuilt(t)
    assert made[0]["t"] is made and made[1][0] is made[0]
    made = rebuilt(d)
    assert made["t"][0] is made

    node = types.SimpleNamespace(children=[])
    child = types.SimpleNamespace(parent=node, all=(node,))
    node.children.append(child)
    made = rebuilt(node)
    assert made.children[0].parent is made and made.children[0].all[0] is made


def test_a_tuple_reached_from_both_ends():
    inner = []
    t = (inner, 1)
    inner.append((t, inner))
    made = rebuilt([inner, t])
    assert made[0][0][0] is made[1] and made[0][0][1] is made[0] and made[1][0] is made[0]


def test_functions_share_their_cells():
    def make():
        n = 1

        def up():
            nonlocal n
            n += 1
            return n

        def down(by=2, *, also: int = 3):
            nonlocal n
            n -= by + also
            return n

        down.mark = "m"
        return up, down

    pair = make()
    up, down = rebuilt(pair, pair)
    assert up() == 2 and down() == -3 and up() == -2 and down(1, also=0) == -3
    assert down.mark == "m" and down.__qualname__ == pair[1].__qualname__ and down.__annotations__ == pair[1].__annotations__
    assert pair[0]() == 2  # the first ones have cells of their own


def test_recursive_function():
    def make():
        def f(n):
            return 1 if n == 0 else n * f(n - 1)

        return f

    f = make()
    made = rebuilt(f, [f])
    assert made is not f and made(5) == 120
    assert made.__closure__[0].cell_contents is made


def test_outside_functions_are_themselves():
    assert rebuilt(rebuilt) is rebuilt
    assert rebuilt([len, dict.get, World.source_of]) == [len, dict.get, World.source_of]


def test_bound_things():
    xs = [1]
    made, append, method = rebuilt([xs, xs.append, xs.__len__])
    append(5)
    assert made == [1, 5] and method() == 2
    c = collections.Counter("a")
    made, update = rebuilt((c, c.update))
    update("ab")
    assert made == {"a": 2, "b": 1}
    assert rebuilt(functools.partial(max, 3, key=abs))(-5) == -5


ITERATORS = [
    lambda: iter([1, 2, 3]), lambda: iter((1, 2, 3)), lambda: reversed([1, 2, 3]), lambda: iter(range(3)), lambda: iter("abc"),
    lambda: iter(b"abc"), lambda: iter({1, 2, 3}), lambda: iter({1: 2, 3: 4, 5: 6}), lambda: iter({1: 2, 3: 4, 5: 6}.values()),
    lambda: iter({1: 2, 3: 4, 5: 6}.items()), lambda: reversed({1: 2, 3: 4}), lambda: enumerate([5, 6, 7], 3), lambda: zip([1, 2], "ab"),
    lambda: map(abs, [-1, -2]), lambda: filter(None, [0, 1, 2]),
    lambda: itertools.chain([1], [2, 3]), lambda: itertools.islice([1, 2, 3], 2),
    lambda: itertools.product([1, 2], [3]), lambda: itertools.zip_longest([1], [2, 3]), lambda: itertools.accumulate([1, 2, 3]),
    lambda: iter(collections.deque([1, 2, 3])), lambda: iter(collections.OrderedDict(a=1, b=2)),
    lambda: itertools.takewhile(bool, [1, 1, 0]),
]  # fmt: skip


@pytest.mark.parametrize("make", ITERATORS, ids=range(len(ITERATORS)))
@pytest.mark.parametrize("taken", [0, 1, 2])
def test_iterators_go_on_where_they_were(make, taken):
    a, b = make(), make()
    for it in (a, b):
        for _ in range(taken):
            next(it, None)
    assert list(rebuilt(a)) == list(b)


def test_iterator_of_a_dict_notices_changes():
    d = {1: 2, 3: 4}
    it = iter(d)
    next(it)
    made, again = rebuilt((d, it))
    made[9] = 9
    with pytest.raises(RuntimeError):
        next(again)


def test_iterators_share_what_they_walk():
    xs = [1, 2, 3]
    it = iter(xs)
    next(it)
    made, a, z = rebuilt((xs, it, zip(it, it, strict=False)))
    made.append(4)
    assert next(z) == (2, 3) and list(a) == [4]


def test_exceptions():
    try:
        try:
            raise KeyError("k")
        except KeyError as e:
            raise OSError(2, "gone", "f") from e
    except OSError as e:
        e.note = [1]
        original = e
    made = rebuilt(original)
    assert (type(made), made.args, made.errno, made.filename) == (FileNotFoundError, original.args, 2, "f")
    assert type(made.__cause__) is KeyError and made.__cause__ is made.__context__ and made.__suppress_context__
    assert made.note == [1]
    stop = rebuilt(StopIteration(3))
    assert stop.value == 3


def test_weak_references():
    n = World()
    made, ref = rebuilt((n, weakref.ref(n)))
    assert ref() is made


def test_super():
    class A:
        def f(self):
            return "A"

    class B(A):
        def f(self):
            return "B"

    b = B()
    assert rebuilt(super(B, b)).f() == "A"


def test_a_class_of_the_program():
    class Local:
        "words"
        __slots__ = ("a", "__dict__")
        b = [1]

        def __init__(self, a):
            self.a = a

        def me(self):
            return __class__

    value = Local(3)
    value.c = 4
    made = rebuilt(value, [Local, Local.__init__, Local.me])
    new = type(made)
    assert new is not Local and (made.a, made.c, new.b) == (3, 4, [1]) and new.b is not Local.b
    assert made.me() is new and new(5).a == 5 and list(vars(new)) == list(vars(Local))
    assert (new.__doc__, new.__qualname__, new.__module__) == (Local.__doc__, Local.__qualname__, Local.__module__)


def test_what_cannot_be_made_again_says_so():
    for value in (open, iter):
        assert rebuilt(value) is value
    with pytest.raises(CannotReconstruct):
        rebuilt(x for x in [1])
    with pytest.raises(CannotReconstruct):
        rebuilt(memoryview(b"x"))


def grown(s: Any, x: torch.Tensor, change: Any) -> torch.Tensor:
    for v in s.items() if change == "items" else s:
        pliant.graph_break()
        if change == "delete":
            del s[v]
        elif change == "add":
            s.add(v + 100)
        else:
            s[100 if change == "items" else v + 100] = 1
    return x + 1


@pytest.mark.parametrize(
    ("made", "change", "error"),
    [
        (lambda: {1, 2}, "add", "Set changed size during iteration"),
        (lambda: collections.OrderedDict.fromkeys((1, 2)), "set", "OrderedDict mutated during iteration"),
        (lambda: collections.OrderedDict.fromkeys((1, 2)), "items", "OrderedDict mutated during iteration"),
        (lambda: collections.OrderedDict.fromkeys((1, 2, 3)), "delete", "OrderedDict mutated during iteration"),
        (lambda: {1: 1, 2: 2}, "set", "dictionary changed size during iteration"),
    ],
)
def test_a_container_that_changes_after_a_break_in_its_own_loop(made: Any, change: str, error: str) -> None:
    fn = pliant.compile(grown)
    for _ in range(4):
        want, got = made(), made()
        with pytest.raises(RuntimeError, match=error):
            grown(want, torch.ones(2), change)
        with pytest.raises(RuntimeError, match=error):
            fn(got, torch.ones(2), change)
        assert list(got) == list(want)
