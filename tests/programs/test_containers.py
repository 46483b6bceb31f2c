"""Lists, dicts, sets, tuples, deques and the rest: made inside, passed in, mutated, nested, aliased.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import bisect
import collections
import copy
import functools
import heapq
import itertools
import operator
import random
import types

import pytest
import torch

from pliant import native
from pliant.interpret import set_order
from tests.helpers import IDENTITY, check, compiled, pliant
from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)


@program(*SHAPES, captures=1, breaks=0)
def build_all(x):
    return [x, x + 1], (x * 2, 3), {"a": x, 2: [x]}, {x.dim(), "s"}, frozenset([1]), [], (), {}, set()


@program(*SHAPES, breaks=0)
def list_methods(x):
    a = [0, 1, "s"]
    a.append(2)
    a.extend((3, 4))
    a.insert(1, "i")
    b = a.pop()
    a.reverse()
    c = a.copy()
    a.remove(0)
    del a[0]
    a[0:1] = [7, 8]
    a += [9]
    a *= 1
    return a + [x], b, c, a.index(9), a.count(7), len(a), 8 in a, a[-1], a[::2], a[1:3], a + c, [0] * 3


@program(*SHAPES, breaks=0)
def list_sort(x):
    a = [3, 1, x.shape[0], 2]
    a.sort()
    b = sorted(a, key=lambda v: -v)
    c = sorted([("b", 2), ("a", 3)], reverse=True)
    return a, b, c, max(a), min(a), sum(a), x + a[-1]


@program(*[([t(n), t(n, seed=1)],) for n in (3, 4)], breaks=0)
def list_argument_mutated(items):
    items.append(items[0] + items[1])
    items[0] = items[-1] * 2
    items.insert(0, 5)
    del items[1]
    return items[-1]


@program(*[([t(3, seed=k) for k in range(n)],) for n in (1, 2, 3, 4)], breaks=0)
def list_argument_popped(items):
    last = items.pop()
    total = last
    while items:
        total = total + items.pop(0)
    items.extend([total, total])
    return total


@program(*SHAPES, breaks=0)
def dict_methods(x):
    d = {"a": x, "b": 1}
    d["c"] = x + 1
    d.update({"e": 2}, f=3)
    gone = d.pop("b")
    missing = d.pop("zz", None)
    d.setdefault("g", []).append(x)
    last = d.popitem()
    e = d | {"h": 1}
    e |= {"i": 2}
    del d["e"]
    return d, gone, missing, last, e, list(d), list(d.items()), list(d.values()), d.get("a"), d.get("q", 4), "a" in d, len(d), d == e


@program(*[({"a": t(n), "b": t(n, seed=1)},) for n in (3, 4)], breaks=0)
def dict_argument_mutated(d):
    d["c"] = d["a"] + d.pop("b")
    d["a"] = 1
    for k in list(d):
        d[k + k] = d[k]
    return d["c"]


@program(*[({k: t(3, seed=i) for i, k in enumerate(ks)},) for ks in ("ab", "ba", "abc", "xyz")], breaks=0)
def dict_argument_keys(d):
    out = 0
    for k, v in d.items():
        out = out + v * (1 if k == "a" else 2)
    return out, sorted(d)


@program(({1: t(2), 2.5: t(2), None: t(2), (1, "a"): t(2), True: 3},), breaks=0)
def dict_odd_keys(d):
    return d[1], d[2.5] + d[None], d[1, "a"], list(d)


@program(*[({t(3): 1},) for _ in range(2)])
def dict_tensor_keys(d):
    k = next(iter(d))
    return d[k], k + 1


@program(*SHAPES, breaks=0)
def set_methods(x):
    s = {1, 2, x.dim()}
    s.add(5)
    s.discard(9)
    s.update([6, 7])
    s.remove(2)
    u = s | {8}
    return x + len(s), s, u, s & u, u - s, s ^ {1}, s <= u, 5 in s, sorted(s)


@program(*[({1, 2, n}, t(n)) for n in (3, 4)])
def set_argument(s, x):
    s.add(10)
    if 3 in s:
        x = x + 1
    s.discard(1)
    return x


@program(*SHAPES, breaks=0)
def tuple_methods(x):
    a = (x, 1, 2, 1)
    return a + (3,), a * 2, a[1:], a.count(1) if x is None else 0, len(a), a[-1], (1, 2) < (1, 3), hash((1, 2)) == hash((1, 2))


@program(*SHAPES, breaks=0)
def deque_methods(x):
    q = collections.deque([x, 1], maxlen=4)
    q.append(2)
    q.appendleft(x + 1)
    q.extend([3])
    q.rotate(1)
    return q, q.popleft(), q.pop(), len(q), list(q), q.maxlen


@program(*[(collections.deque([t(n), t(n, seed=1)]),) for n in (3, 4)])
def deque_argument(q):
    q.append(q[0] + q[1])
    return q.popleft() * 2


Pair = collections.namedtuple("Pair", "a b", defaults=[3])


@program(*SHAPES, breaks=0)
def namedtuples(x):
    p = Pair(x)
    q = p._replace(b=x + 1)
    a, b = q
    return p, q, a + b, q._asdict(), p.b, q[0], Pair._fields, isinstance(q, tuple), Pair(*[1, 2])


@program(*[(Pair(t(n), n),) for n in (3, 4)], breaks=0)
def namedtuple_argument(p):
    return p.a + p.b, p


@program(*SHAPES, breaks=0)
def defaultdict(x):
    d = collections.defaultdict(list)
    d["a"].append(x)
    d["b"] += [1]
    n = collections.defaultdict(lambda: 5)
    n["z"] += 1
    return d, n["z"], len(d), "q" in d


@program(*[(collections.defaultdict(list, {"a": [t(n)]}),) for n in (3, 4)])
def defaultdict_argument(d):
    d["a"].append(d["a"][0] + 1)
    d["new"].append(3)
    return len(d)


@program(*[(collections.OrderedDict(a=t(n), b=1),) for n in (3, 4)])
def ordereddict_argument(d):
    d.move_to_end("a")
    d["c"] = d["a"] + 1
    return list(d)


@program(*SHAPES)
def counter_and_chainmap(x):
    c = collections.Counter("abca")
    m = collections.ChainMap({"k": x}, {"k": 1, "j": 2})
    return c.most_common(1), m["k"] + m["j"], dict(c)


@program(*SHAPES, breaks=0)
def comprehensions(x):
    n = x.shape[0]
    a = [x + i for i in range(n) if i % 2 == 0]
    b = {i: x * i for i in range(3)}
    c = {i % 2 for i in range(n)}
    d = list(x + i for i in range(2))
    e = [[j for j in range(i)] for i in range(3)]
    f = [u + v for u in a for v in d]
    return a, b, c, d, e, f


@program(*SHAPES, breaks=0)
def unpacking(x):
    a, b = x, x + 1
    c, *d = [1, 2, 3]
    *e, f = (1, 2, x)
    (g, h), i = (1, 2), 3
    [j, k] = "jk"
    m, *n, o = range(5)
    p = [*d, *e, 4]
    q = (*d, x)
    r = {**{"a": x}, "b": 1}
    s = {*d, 9}
    return a, b, c, d, e, f, g, h, i, j, k, m, n, o, p, q, r, s


@program(*SHAPES)
def unpack_errors(x):
    out = []
    for src in ([1], [1, 2, 3]):
        try:
            a, b = src
        except ValueError as e:
            out.append(str(e))
    try:
        a, *b, c = [1]
    except ValueError as e:
        out.append(str(e))
    try:
        a, b = 5
    except TypeError as e:
        out.append(str(e))
    return out, x + 1


@program(*each(3, 4, tail=(2, 3)), breaks=0)
def unpack_shape(x):
    a, b, c = x.shape
    n, *rest = x.size()
    return x.reshape(a * b, c), n, rest, x.view(b, a, c).shape


@program(*[(t(2, 3), t(n)) for n in (3, 4)], breaks=0)
def unpack_tensor(x, y):
    a, b = x
    first, *others = y
    return a + b, first, others


@program(*SHAPES, breaks=0)
def slices(x):
    a = list(range(10))
    n = x.shape[0]
    return a[n:], a[:n], a[-n:], a[::n], a[slice(1, n)], x[1:], x[:-1], x[None], x[..., 0], "abcdef"[n:]


@program(*SHAPES, breaks=0)
def slice_assignment(x):
    a = list(range(6))
    a[1:3] = [x]
    a[::2] = ["p", "q", "r"] if len(a[::2]) == 3 else a[::2]
    del a[1:3]
    return a


@program(*SHAPES, breaks=0)
def nested_aliasing(x):
    inner = [x]
    outer = [inner, inner, {"k": inner}]
    inner.append(x + 1)
    outer[0][0] = 5
    return outer, inner


@program(*SHAPES, breaks=0)
def self_containing(x):
    a = [x]
    a.append(a)
    d = {"x": x}
    d["d"] = d
    return a, d, a[1][1][0] + 1


@program(*[([t(n)] * 2,) for n in (3, 4)], ([t(3), t(3)],), breaks=0)
def aliased_items(items):
    items[0].add_(1)
    return items[0] is items[1], items[1] * 2


@program(*[((lambda a: (a, a))([t(n)])) for n in (3, 4)], ([t(3)], [t(3)]), breaks=0)
def aliased_lists(a, b):
    a.append(1)
    return len(b), a is b


@program(*SHAPES, breaks=0)
def itertools_all(x):
    return (
        list(itertools.chain([x], [1])),
        list(itertools.islice(itertools.count(2), 3)),
        list(itertools.product([1, 2], "ab")),
        list(itertools.combinations([1, 2, 3], 2)),
        list(itertools.accumulate([1, 2, 3])),
        list(itertools.accumulate([x, x, x], lambda a, b: a + b)),
        list(itertools.zip_longest([1, 2], [x], fillvalue=0)),
        [(k, list(g)) for k, g in itertools.groupby([1, 1, 2])],
        list(itertools.starmap(lambda a, b: a + b, [(x, 1)])),
        list(itertools.takewhile(lambda v: v < 3, range(9))),
        list(itertools.repeat(x, 2)),
        list(itertools.permutations([1, 2])),
        list(itertools.pairwise([1, 2, 3])),
        next(itertools.cycle([x])),
    )


@program(*SHAPES, breaks=0)
def builtins_over_iterables(x):
    n = x.shape[0]
    xs = [x, x + 1, x + 2]
    return (
        list(zip(xs, range(n))), list(map(lambda a, b: a + b, xs, [1, 2, 3])), list(filter(None, [0, n, 2])), list(enumerate(xs, 5)),
        list(reversed(xs)), any(v > 2 for v in range(n)), all([1, n]), sum([1, n]), sum(xs), max(1, n), min([n, 3], key=lambda v: -v),
        list(range(0, n, 2)), tuple(xs), dict(a=x), dict([("k", n)]), set([n]), abs(-n), divmod(n, 2), pow(2, 3), round(2.567,
            1), isinstance(x, (int, torch.Tensor)),
        functools.reduce(lambda a, b: a * b, xs), operator.add(x, 1), operator.itemgetter(0,
            1)(xs), len(range(n)), bool(n), int("3"), str(n), float(n), chr(97), ord("b"),
        hash("a") == hash("a"), callable(len), type(x) is torch.Tensor, getattr(x, "nope", 7), hasattr(x,
            "shape"), next(iter(xs)), next(iter([]), "d"),
    )  # fmt: skip


@program(*SHAPES)
def heap_and_bisect(x):
    h = [5, 1, x.shape[0]]
    heapq.heapify(h)
    heapq.heappush(h, 2)
    return heapq.heappop(h), heapq.nlargest(2, h), bisect.bisect_left([1, 3, 5], x.shape[0]), x + 1


@program(*SHAPES)
def copies(x):
    a = [x, [1]]
    b = copy.copy(a)
    c = copy.deepcopy([1, {"k": [2]}])
    b[1].append(2)
    return a, b, c


@program(*SHAPES, breaks=0)
def strings(x):
    n = x.shape[0]
    s = f"{n}-{n:>4}-{n!r}-{x.dim()}-{1.5:.2f}-{'q'!s:^5}"
    return (s, "%d %s" % (n, "a"), "{} {k}".format(n, k=2), s.split("-"), "-".join(["a", "b"]), s.upper(), "a" * n, "ab" in "cab", s[0],
        s.startswith("3"), "é".encode(),)


@program(*SHAPES, breaks=0)
def mappingproxy_and_namespace(x):
    ns = types.SimpleNamespace(a=x, b=2)
    ns.c = ns.a + ns.b
    m = types.MappingProxyType({"k": x})
    return ns, m["k"] * 2, vars(ns)["b"]


@program(*SHAPES, breaks=0)
def equality(x):
    a = [1, [2, (3,)], {"k": 4}]
    return (a == [1, [2, (3,)], {"k": 4}], a != [1], (1, 2.0) == (1, 2), {1} == {1.0}, [x] == [x], x is x, [1, 2] < [1, 3],
        x.shape == (x.shape[0],),)


@program(*[(t(3), {"w": {"deep": [t(3), {"k": n}]}}) for n in (1, 2, 5)], breaks=0)
def nested_argument(x, cfg):
    cfg["w"]["deep"][1]["k"] += 1
    cfg["w"]["deep"].append(x)
    return x * cfg["w"]["deep"][1]["k"] + cfg["w"]["deep"][0]


@program(*[([n, 2, 3], t(n)) for n in (2, 3, 7)], breaks=0)
def ints_in_a_list(ns, x):
    return x.repeat(ns[1]), sum(ns), x + ns[0]


@program(*[((n, (n + 1, "s")), t(n)) for n in (2, 3, 7)], breaks=0)
def ints_in_a_tuple(p, x):
    n, (m, s) = p
    return x.view(1, n), x + m, s


@program(*[(range(n), t(3)) for n in (2, 3, 4)])
def range_argument(r, x):
    for i in r:
        x = x + i
    return x


@program(*[(iter([t(3), t(3, seed=1)]),) for _ in range(1)], must_compile=False)
def iterator_argument(it):
    a = next(it)
    return a + sum(it)


@program(*SHAPES, breaks=0)
def iterators_made_inside(x):
    it = iter([x, x + 1, x + 2])
    a = next(it)
    rest = list(it)
    z = zip([1, 2], rest)
    n, m = next(z)
    return a, rest, n, m, next(it, None), list(z)


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


class Bag(dict):
    pass


def tagged(kind, n, **attributes):
    c = kind(a=n)
    vars(c).update(attributes)
    return c


@pytest.mark.parametrize("kind", [collections.OrderedDict, Bag])
def test_dicts_with_attributes(kind):
    def fn(x, d):
        own = kind(b=x)
        own.tag, own.more = 1, {"x": x}
        old = getattr(d, "tag", "none")
        d.tag = [old]
        d["rows"] = x.shape[0]
        return own, old, d.tag, hasattr(d, "other"), kind(own)

    check(fn, *[(t(n), tagged(kind, n, **a)) for n, a in ((3, {}), (4, {}), (5, {"tag": 2}), (2, {"other": 1}), (3, {"tag": 3, "q": 1}))])


def growing(grow, make):
    """A container changes its size while it is walked, on either side of a graph break."""

    def before(x, c):
        out = []
        for k in c:
            grow(c, x)
            pliant.graph_break()
            out.append(k)
        return out

    def after(x, c):
        out = []
        for k in c:
            pliant.graph_break()
            grow(c, x)
            out.append(k)
        return out

    return [(fn, [(t(n, 4), make(n)) for n in (3, 4, 2, 3)]) for fn in (before, after)]


GROWTHS = {
    "dict": growing(lambda d, x: d.update(z=x), lambda n: {"a": 1, "b": n}),
    "dict that has it": growing(lambda d, x: d.update(z=x), lambda n: {"a": 1, "z": n} if n < 4 else {"a": 1}),
    "items": [
        (lambda x, d: [(k, pliant.graph_break(), d.setdefault("z", x)) for k, _ in d.items()], [(t(n), {"a": n}) for n in (3, 4, 2)])
    ],
    "set": growing(lambda s, x: s.add(100 + x.shape[0]), lambda n: {1, 2})[:1],
    "deque": growing(lambda q, x: q.append(x), lambda n: collections.deque([1, n])),
    "ordered": growing(lambda d, x: d.update(z=x), lambda n: collections.OrderedDict(a=1, b=n))[:1],
}


@pytest.mark.parametrize("name", GROWTHS)
def test_containers_that_grow_while_they_are_walked(name):
    for fn, arg_sets in GROWTHS[name]:
        check(fn, *arg_sets, must_compile=False)


LENGTHS = {
    "of a list": lambda x, c, d: (x * len(c), len(c) > 4, f"{len(c)} of {len(c) + len(d)}"),
    "after it has grown": lambda x, c, d: (c.append(x), c.extend([1, 2]), len(c), x + len(c), c[0]),
    "before it shrinks": lambda x, c, d: (len(c), c.pop(), len(c), x[: len(c)]),
    "of a dict": lambda x, c, d: (d.update({"new": x}) if len(d) % 2 else d.pop("k0", None), len(d), x / (len(d) + 1)),
    "of one that is written": lambda x, c, d: (d.__setitem__("k0", x), d.__setitem__("other", 1), len(d), "k1" in d, x - len(d)),
    "and its items": lambda x, c, d: (len(c), sum(c) if len(c) > 3 else [v * 2 for v in c], len(c), x + 1),
    "in a loop": lambda x, c, d: [x + i * len(c) for i in range(len(c))],
    "of both": lambda x, c, d: (len(c) == len(d), [len(v) for v in (c, d)], torch.zeros(len(c), len(d) + 1), x),
    "as a key": lambda x, c, d: ({len(c): x}, [x, x + 1, x + 2][len(c) % 3], hash(len(d))),
}


@pytest.mark.parametrize("name", LENGTHS)
def test_lengths_that_change(name):
    body = LENGTHS[name]

    def fn(x, c, d):
        y = x + 1
        return body(y, c, d), y, len(c)

    check(fn, *[(t(5, 2), list(range(n)), {f"k{i}": i for i in range(n * 3 % 7)}) for n in (3, 4, 6, 2, 5, 1, 7, 8, 2, 9)])


def test_lengths_take_no_version_each():
    def fn(x, seen):
        seen.append(x.shape[0])
        return x * len(seen), f"{len(seen)} so far"

    report = check(fn, *[(t(5, 2), list(range(n))) for n in range(2, 40)])
    if not IDENTITY:
        assert report.history[-1]["captures"] == report.history[12]["captures"]
        assert report.history[-1]["graph_breaks"] == 0


GROWN = set()
for _n in (40, 8, 16, 24, 3, 11, 75, 99, 123, 256, 512):
    GROWN.add(_n)
WALKS = {
    "listed": lambda x, s: list(s), "iterated": lambda x, s: [x * k for k in s], "starred": lambda x, s: [*s],
    "constants": lambda x, s: list({40, 8, 16, 24, 3, 11}), "starred into one": lambda x, s: list({*s}),
    "more": lambda x, s: list(s | {1, 2}),
    "both": lambda x, s: list(s & GROWN), "fewer": lambda x, s: list(s - {8}), "given back": lambda x, s: set(s),
    "made": lambda x, s: {40, 8, 16, 24, 3, x.shape[0]}, "frozen": lambda x, s: frozenset([24, 16, 8, 40]),
    "global": lambda x, s: list(GROWN),
}
SETS = (
    {8, 16, 24, 40}, {40, 24, 16, 8}, set(GROWN), GROWN, set([40, 8, 16, 24, 3]), {3, 24, 16, 8, 40}, frozenset((24, 8, 40)),  # noqa: C405
    frozenset((40, 8, 24)),
)  # fmt: skip


@pytest.mark.parametrize("name", WALKS)
def test_the_order_of_sets(name):
    """Equal sets are walked otherwise where their tables are of another size, or their members came in another order."""
    fn = WALKS[name]
    ours = compiled(fn)
    for s in SETS:
        want, got = (f(torch.ones(2), s) for f in (fn, ours))
        assert repr(list(want)) == repr(list(got))


WORDS = [a + b for a in "abcdefghij" for b in ("", "lpha", "et", "amma", "elta")]
CHANGES = (
    lambda s, t, r: s.add(r.choice(WORDS)), lambda s, t, r: s.discard(r.choice(WORDS)), lambda s, t, r: s.update(r.sample(WORDS, 5)),
    lambda s, t, r: s.difference_update(r.sample(WORDS, 9)), lambda s, t, r: s.intersection_update(r.sample(WORDS, 40)),
    lambda s, t, r: s.symmetric_difference_update(r.sample(WORDS, 7)), lambda s, t, r: s.pop() if s else None,
    lambda s, t, r: t.update(s), lambda s, t, r: t.difference_update({*s, *WORDS[::3]}), lambda s, t, r: t.add(r.choice(WORDS)),
    lambda s, t, r: s.update(frozenset(t)), lambda s, t, r: pliant.graph_break(),
)  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_sets_go_on_as_they_would(seed):
    """Sets of texts from outside and made inside, changed over several calls: what is walked, and what becomes of what is added later."""
    steps = random.Random(seed).choices(CHANGES, k=6)

    def program(x, s, r):
        t = {*WORDS[: seed % 7]}
        for step in steps:
            step(s, t, r)
        return x + 1, t, frozenset(t), list(t), list(s)

    ours, seen = compiled(program), []
    for f in (program, ours):
        start = random.Random(seed)
        s = set(start.sample(WORDS, 20))
        s -= set(start.sample(WORDS, 12))
        found = [f(torch.ones(1), s, random.Random(seed + n % 2)) for n in range(3)]
        seen.append([[list(t), list(u), a, b, list(s)] for _, t, u, a, b in found])
    assert seen[0] == seen[1]


@pytest.mark.parametrize("seed", range(40))
def test_tables_of_sets(seed):
    """What is made with the table of another set goes on as that one."""
    r = random.Random(seed)
    s = set(r.sample(WORDS, r.randrange(30)))
    for w in r.sample(WORDS, 20):
        s.discard(w)
    table = set_order.table_of(s)
    again, clone, other = set_order.made(list(s), table), native.set_clone(s), {"another", "one"}
    set_order.become(other, list(s), table)
    assert list(set_order.made_frozen(list(s), table)) == list(s)
    for w in r.choices(WORDS, k=40):
        for x in (s, again, clone, other):
            (x.discard if len(w) == 2 else x.add)(w)
        assert list(s) == list(again) == list(clone) == list(other)
    places, hashes = table
    assert set_order.made(sorted(again), (places, tuple([h + 1 for h in hashes]))) == again  # another process: its own table


# -- sets of functions ---------------------------------------------------------------------------------------------------------
OF_FUNCTIONS = {torch.add, torch.Tensor.add, operator.add, len, torch.Tensor.grad.__get__, torch.ops.aten.mul.Tensor, torch.ops.aten.sub}
FROZEN = frozenset(OF_FUNCTIONS)


@pytest.mark.parametrize("held", [OF_FUNCTIONS, FROZEN], ids=["set", "frozenset"])
def test_membership_in_sets_of_functions_of_c(held):
    def f(x):
        asked = torch.add, torch.mul, torch.ops.aten.mul.Tensor, torch.ops.aten.sub, torch.ops.aten.mul, len, repr, operator.add
        found = [fn in held for fn in asked]
        found.append(torch.Tensor.grad.__get__ in held)
        found.append(torch.Tensor.data.__get__ in held)
        return x + 1, found

    c = compiled(f, fullgraph=True)
    for _ in range(2):
        assert c(torch.zeros(2))[1] == f(torch.zeros(2))[1]
    if held is OF_FUNCTIONS:
        for change in (held.add, held.discard):
            change(torch.mul)
            assert c(torch.zeros(2))[1] == f(torch.zeros(2))[1]


ITEMS = [1]
BOUND = {ITEMS.append, ITEMS.__len__}


def test_membership_of_what_is_bound():
    """Such functions are equal if they are bound to one object."""

    def f(x):
        return x + 1, ITEMS.append in BOUND, ITEMS.__len__ in BOUND, [].append in BOUND, [1].__len__ in BOUND

    c = compiled(f)
    for _ in range(3):
        assert c(torch.zeros(2))[1:] == f(torch.zeros(2))[1:] == (True, True, False, False)


def test_functions_of_a_set_are_called():
    fns = {torch.square, torch.neg}

    def f(x):
        for fn in sorted(fns, key=lambda fn: fn.__name__):
            x = fn(x)
        return x

    c = compiled(f, fullgraph=True)
    for more in (torch.abs, torch.positive):
        assert torch.equal(c(torch.full((3,), 2.0)), f(torch.full((3,), 2.0)))
        fns.add(more)
