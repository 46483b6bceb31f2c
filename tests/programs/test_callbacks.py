"""C code that calls functions and walks containers for the program: what it reads of the outside is guarded like anything else.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import bisect
import difflib
import functools
import heapq
import itertools
import json
import operator
import re
import types
from collections import OrderedDict, defaultdict, deque

import pytest
import torch

from tests.helpers import check, compiled
from tests.programs.registry import cases, program


class Thing:
    def __init__(self, x, items):
        self.x = x
        self.items = items

    def __repr__(self):
        return f"Thing{self.x}"


def things(*rows):
    return ([Thing(x, list(items)) for x, items in rows],)


SETS = [
    things((3, [3]), (1, [1]), (2, [2])),
    things((3, [3, 1]), (1, [1]), (2, [2])),
    things((0, [3, 1, 1]), (1, [1]), (2, [])),
    things((1, [0]), (1, [7]), (2, [2, 2])),
    things((2, []), (2, [1]), (0, [2])),
    things((5, [3]), (1, [1, 9]), (4, [2])),
]

PROGRAMS = {
    "sorted by an attribute": lambda os: [o.x for o in sorted(os, key=operator.attrgetter("x"))],
    "sorted by a length": lambda os: [len(k) for k in sorted([o.items for o in os], key=len)],
    "sorted lists": lambda os: sorted(o.items for o in os),
    "sort in place": lambda os: os.sort(key=operator.attrgetter("x")) or [o.x for o in os],
    "map of an attribute": lambda os: list(map(operator.attrgetter("x"), os)),
    "map of len": lambda os: list(map(len, (o.items for o in os))),
    "map of text": lambda os: ",".join(map(str, os)) + str(list(map(repr, os))),
    "map of items": lambda os: [str(x) for x in map(str, {o.x: o.items for o in os}.items())],
    "map of getters": lambda os: list(map(getattr, os, "xxx")),
    "map of a method": lambda os: list(map(operator.methodcaller("count", 1), (o.items for o in os))),
    "map of a descriptor": lambda os: list(map(list.copy, (o.items for o in os))) + list(map(list.__len__, [o.items for o in os])),
    "map of classes": lambda os: [list(map(c, (o.items for o in os))) for c in (list, tuple, bool, sorted)],
    "map of vars": lambda os: list(map(dict, map(vars, os))),
    "map of a partial": lambda os: list(map(functools.partial(getattr), os, ["x"] * 3)),
    "filter by truth": lambda os: (list(filter(None, (o.items for o in os))), list(filter(None, [o.x for o in os]))),
    "filterfalse": lambda os: list(itertools.filterfalse(len, (o.items for o in os))),
    "takewhile": lambda os: list(itertools.takewhile(len, (o.items for o in os))),
    "dropwhile": lambda os: list(itertools.dropwhile(operator.attrgetter("x"), os)),
    "compress": lambda os: list(itertools.compress("abc", (o.items for o in os))),
    "chained": lambda os: list(itertools.chain.from_iterable(o.items for o in os)),
    "chained, starred": lambda os: list(itertools.chain(*[o.items for o in os])),
    "groups": lambda os: [(k, list(map(repr, g))) for k, g in itertools.groupby(os, operator.attrgetter("x"))],
    "groups without a key": lambda os: [k for k, g in itertools.groupby(o.items for o in os)],
    "accumulated": lambda os: list(itertools.accumulate(o.items for o in os)),
    "accumulated maxima": lambda os: list(itertools.accumulate((o.items for o in os), max)),
    "starmap": lambda os: list(itertools.starmap(max, ((o.items, [o.x]) for o in os))),
    "reduced": lambda os: functools.reduce(operator.add, (o.items for o in os)),
    "summed": lambda os: (sum((o.items for o in os), []), sum(o.x for o in os), sum([len(o.items) for o in os], start=2)),
    "largest": lambda os: (max(os, key=operator.attrgetter("x")).x, min(o.items for o in os), min(os, key=lambda o: o.items).x),
    "nearest": lambda os: heapq.nsmallest(2, (o.items for o in os)) + heapq.nlargest(1, os, key=operator.attrgetter("x"))[0].items,
    "bisected": lambda os: (bisect.bisect([[1], [2]], os[0].items), bisect.bisect_left(os, 1, key=operator.attrgetter("x"))),
    "any and all": lambda os: (any(o.items for o in os), all(map(len, [o.items for o in os]))),
    "counted": lambda os: ([3, 1] in deque(o.items for o in os), deque(o.items for o in os).count([3]), list(zip(*[o.items for o in os]))),
    "called until": lambda os: list(iter(functools.partial(next, iter([len(o.items) for o in os] + [0])), 0)),
    "left half way": lambda os: (lambda it: (next(it), list(it)))(map(len, [o.items for o in os])),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_callback(name):
    check(PROGRAMS[name], *SETS)


@program(*SETS)
def written_before(os):
    os[0].x += 1
    os[0].items.append(os[0].x)
    first = max(os, key=operator.attrgetter("x"))
    return first.x, list(map(len, (o.items for o in os))), sorted(os, key=operator.attrgetter("x"))[0].x


@program(*SETS)
def iterator_handed_out(os):
    return map(len, [o.items for o in os]), filter(None, [o.items for o in os]), itertools.starmap(max, [(o.items, [1]) for o in os])


@program(([1, 2],), ([3],))
def wrong_calls(xs):
    out = []
    for call in (
        lambda: map(), lambda: map(len), lambda: filter(None), lambda: sorted(), lambda: sorted(xs, len), lambda: sum(),
        lambda: sum(xs, 1, 2), lambda: sum(["a"], ""), lambda: sum(xs, start=1, stop=2), lambda: functools.reduce(max),
        lambda: functools.reduce(max, []), lambda: max(), lambda: max(xs, keys=1), lambda: max([]), lambda: itertools.groupby(),
        lambda: itertools.accumulate(xs, None, 3), lambda: list(map(len, xs)), lambda: list(itertools.chain.from_iterable(xs)),
        lambda: iter(3, 4), lambda: iter(), lambda: iter(xs, 1, 2),
    ):  # fmt: skip
        try:
            out.append(call())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


SCALE = 1.0


def as_text(match):
    return str(SCALE)


def as_number(*_):
    return SCALE


def is_small(_):
    return SCALE < 2


def compared(a, b):
    return (a - b) * (1 if SCALE < 2 else -1)


class Encoder(json.JSONEncoder):
    def encode(self, o):
        return str(SCALE)


LIBRARY = {
    "re.sub": lambda x: x * float(re.sub("a", as_text, "a")),
    "re.subn": lambda x: x * float(re.subn("a", as_text, "a")[0]),
    "json.loads, a hook": lambda x: x * json.loads('{"a": 1}', object_hook=as_number),
    "json.loads, numbers": lambda x: x * json.loads("1.5", parse_float=as_number),
    "json.dumps, a class": lambda x: x * float(json.dumps([1], cls=Encoder)),
    "difflib": lambda x: x * difflib.SequenceMatcher(is_small, "abc ", "abd ").ratio(),
    "types.new_class": lambda x: x * types.new_class("A", (), {}, lambda ns: ns.update(v=as_number())).v,
    "cmp_to_key": lambda x: x * sorted([1.0, 2.0], key=functools.cmp_to_key(compared))[0],
    "cmp_to_key, made inside": lambda x: x * min([1.0, 2.0], key=functools.cmp_to_key(lambda a, b: compared(a, b))),
}


@pytest.mark.parametrize("name", LIBRARY)
def test_functions_that_the_library_calls_back(name, monkeypatch):
    """What they read of the world is guarded, whoever calls them."""
    fn = LIBRARY[name]
    target = compiled(fn)
    x = torch.ones(3)
    for value in (1.0, 1.0, 2.0, 3.0, 1.0):
        monkeypatch.setitem(globals(), "SCALE", value)
        assert torch.equal(target(x), fn(x)), value


class OfKeys:
    keys = ("a",)


# What Python code answers to C code that has called it back, and what C code finds in that: (methods, use, what `held` is).
KEYS = {"keys": lambda s: s.held, "__getitem__": lambda s, k: 1}
AT = {"at": lambda s, i: s.held[i]}
EQUAL = {"__eq__": lambda s, o: s.held, "__hash__": lambda s: 1}
SOME, PAIRS = (["a"], ["b"], ["a", "b"], []), ([["a", 1]], [["b", 2]])
TRUTHS, LISTS = ([[1], []], [[], [1]]), ([[1, 2], [3, 0]], [[1, 0], [2, 1]])
ANSWERS = {
    "keys of a mapping": (KEYS, lambda o: [d := {}, d.update(o)], SOME),
    "keys of a mapping, made": (KEYS, OrderedDict, SOME),
    "keys of a mapping, in place": (KEYS, lambda o: {}.__ior__(o), SOME),
    "keys of a mapping, more": (KEYS, lambda o: dict.update(d := {"q": 1}, o, z=1) or d, SOME),
    "keys of a mapping, behind a factory": (KEYS, lambda o: (defaultdict(dict, o), defaultdict(OrderedDict), defaultdict(OfKeys)), SOME),
    "pairs": ({"__iter__": lambda s: iter(s.held)}, lambda o: [d := {}, d.update(o)], PAIRS),
    "pairs, mapped": (AT, lambda o: [d := {}, d.update(map(o.at, [0]))], PAIRS),
    "pairs of a generator": ({"__iter__": lambda s: (p for p in s.held)}, lambda o: ({}.__ior__(o), OrderedDict(p for p in o.held)), PAIRS),
    "pairs of iterators": ({"each": lambda s: iter(s.held)}, lambda o: (OrderedDict(o.each()), dict.update(d := {}, o.each()) or d), PAIRS),
    "truth in a filter": (AT, lambda o: list(filter(o.at, [0, 1])), TRUTHS),
    "truth in takewhile": (AT, lambda o: list(itertools.takewhile(o.at, [0, 1])), TRUTHS),
    "truth of any": (AT, lambda o: (any(map(o.at, [0])), all(map(o.at, [1]))), TRUTHS),
    "arguments": (AT, lambda o: list(itertools.starmap(max, map(o.at, [0, 1]))), LISTS),
    "looked for": (AT, lambda o: [1] in map(o.at, [0]), TRUTHS),
    "equality of an item": (EQUAL, lambda o: ([1, 2].count(o), o in [5], [1, o] == [1, 2], (1, o) != (1, 2), {3: o} == {3: 4}), ([1], [])),
    "equality of a key": (EQUAL, lambda o: ({1: 5}.get(o), o in {1}, len({1} | {o})), ([1], [])),
    "order": ({"__lt__": lambda s, o: s.held}, lambda o: (sorted([type(o)(), o])[0] is o, min(type(o)(), o) is o), ([1], [])),
    "an item that a text shows": ({"__getitem__": lambda s, k: s.held}, lambda o: "%(a)s" % o + "{a}".format_map(o), ([1], [2])),
    "what a factory gives": ({"made": lambda s: s.held}, lambda o: [d := defaultdict(o.made), d[0], str(d)][2], SOME),
}


@pytest.mark.parametrize("way", ["another object", "the same object"])
@pytest.mark.parametrize("name", ANSWERS)
def test_answers_that_c_code_looks_into(name, way):
    methods, use, states = ANSWERS[name]
    cls = type("Answers", (), {**methods, "__repr__": lambda s: "Answers"})
    cls.held = None

    def fn(x, o):
        return x + 1, use(o)

    target = compiled(fn)
    x = torch.ones(2)
    o = cls()
    o.held = list(states[0])
    for held in (*states, *states):
        if way == "another object":
            o = cls()
            o.held = list(held)
        else:
            o.held[:] = held
        assert repr(target(x, o)) == repr(fn(x, o)), held
