"""EntryPoint: CPython's binding exactly, entries, the miss protocol, descriptors, disabling, re-entrancy, threads."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import pickle
import random
import sys
import threading
import weakref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pliant import native
from pliant.guards import source as S
from pliant.guards.guard import Guard
from pliant.guards.program import compile_guards

X = S.local(0, "x")
ALWAYS = compile_guards([])


def when(value, slots=()):
    return compile_guards([Guard(X, "EQ_MATCH", value)], {}, [], slots)


def never(*args):
    raise AssertionError("the miss callback ran")


def eagerly(entry, fn, args):
    return ("eager",)


def fresh(fn):
    """A function of its own code object, so that entries of one test stay there."""
    fn.__code__ = fn.__code__.replace()
    return fn


# ---- binding ----

NAMES = ["a", "b", "c", "d", "e", "f"]


@st.composite
def signatures(draw):
    names = list(draw(st.permutations(NAMES)))
    count = draw(st.integers(0, 5))
    positional, posonly = names[: draw(st.integers(0, count))], 0
    keyword = names[len(positional) : count]
    posonly = draw(st.integers(0, len(positional)))
    defaults = draw(st.integers(0, len(positional)))
    parts = []
    for i, n in enumerate(positional):
        parts.append(f"{n}='default {n}'" if i >= len(positional) - defaults else n)
        if i + 1 == posonly:
            parts.append("/")
    star = draw(st.booleans())
    if star:
        parts.append("*args")
    elif keyword:
        parts.append("*")
    parts += [f"{n}='default {n}'" if draw(st.booleans()) else n for n in keyword]
    if draw(st.booleans()):
        parts.append("**kw")
    names = [*positional, *keyword, *(["args"] if star else []), *(["kw"] if parts and parts[-1] == "**kw" else [])]
    return f"def fn({', '.join(parts)}):\n    return ({''.join(n + ', ' for n in names)})\n"


positionals = st.lists(st.integers(0, 9), max_size=6).map(tuple)
calls = st.tuples(positionals, st.dictionaries(st.sampled_from([*NAMES, "z"]), st.integers(10, 19), max_size=5))


def outcome(fn, args, kwargs):
    try:
        return "value", fn(*args, **kwargs)
    except TypeError as e:
        return "error", str(e)


@given(signatures(), st.lists(calls, min_size=1, max_size=6))
def test_binding_is_that_of_cpython(source, several):
    scope = {}
    exec(source, scope)
    fn = scope["fn"]
    compiled = []

    def target(*frame_args):
        compiled.append(frame_args)
        return tuple(frame_args)

    native.add_entry(fn.__code__, ALWAYS, target)
    entry = native.EntryPoint(fn, never)
    for args, kwargs in several:
        compiled.clear()
        want = outcome(fn, args, kwargs)
        assert outcome(entry, args, kwargs) == want
        assert len(compiled) == (want[0] == "value")
        for x in compiled[0] if compiled else ():
            assert type(x) is not dict or x is not kwargs


def test_changed_defaults_and_code_are_used():
    @fresh
    def fn(x, y=1, *, z=2):
        return x, y, z

    native.add_entry(fn.__code__, ALWAYS, lambda *a: a)
    entry = native.EntryPoint(fn, never)
    assert entry(0) == (0, 1, 2)
    fn.__defaults__, fn.__kwdefaults__ = (5,), {"z": 6}
    assert entry(0) == (0, 5, 6)
    fn.__code__ = (lambda x, y, *, z: "new code").__code__
    entry._miss = eagerly
    assert entry(0) == "new code"


def test_str_subclass_keywords():
    class Str(str):
        pass

    @fresh
    def fn(x, **kw):
        return x, kw

    native.add_entry(fn.__code__, ALWAYS, lambda *a: a)
    entry = native.EntryPoint(fn, never)
    assert entry(**{Str("x"): 1, Str("y"): 2}) == fn(**{Str("x"): 1, Str("y"): 2})


# ---- entries ----


def test_slots_follow_the_frame_arguments():
    @fresh
    def fn(x, y=(7, 8)):
        return "plain"

    guard = compile_guards([Guard(X, "EQ_MATCH", 3)], {"k": X}, [], [S.local(1, "y").index(1), "k"])
    entry = native.add_entry(fn.__code__, guard, lambda *a: a, info="note")
    point = native.EntryPoint(fn, eagerly)
    assert point(3) == (3, (7, 8), 8, 3)
    assert point(4) == "plain"
    assert (entry.hits, entry.info, entry.guard is guard) == (1, "note", True)


def test_most_recently_used_first():
    @fresh
    def fn(x):
        return "plain"

    made = [native.add_entry(fn.__code__, when(i), lambda x, i=i: i, front=False) for i in range(4)]
    point = native.EntryPoint(fn, eagerly)
    assert native.entries(fn.__code__) == made
    assert [point(i) for i in (2, 0, 2, 9)] == [2, 0, 2, "plain"]
    assert native.entries(fn.__code__) == [made[2], made[0], made[1], made[3]]
    native.remove_entry(fn.__code__, made[2])
    native.remove_entry(fn.__code__, made[2])
    assert point(2) == "plain"
    native.clear(fn.__code__)
    assert native.entries(fn.__code__) == [] and point(0) == "plain"


def test_what_ran_next_the_last_time_is_looked_at_first():
    """The layers of a loop take turns: without that, each call would ask all the others first."""

    @fresh
    def fn(x):
        return "plain"

    made = [native.add_entry(fn.__code__, when(i), lambda x, i=i: i, front=False) for i in range(10)]
    point = native.EntryPoint(fn, eagerly)

    def misses():
        return sum(e.guard.stats()["misses"] for e in made)

    for _ in range(2):
        assert [point(i) for i in range(10)] == list(range(10))
    before = misses()
    for _ in range(3):
        assert [point(i) for i in range(10)] == list(range(10))
    assert misses() == before
    assert point(5) == 5 and point(77) == "plain" and misses() > before
    native.remove_entry(fn.__code__, made[6])  # which ran after it
    assert [point(i) for i in (6, 7, 5, 7, 5, 7)] == ["plain", 7, 5, 7, 5, 7]
    state = random.Random(3)
    for _ in range(300):
        i = state.randrange(11)
        assert point(i) == (i if i in (0, 1, 2, 3, 4, 5, 7, 8, 9) else "plain")


def test_entries_whose_objects_died_are_dropped():
    class Thing:
        pass

    @fresh
    def fn(x):
        return "plain"

    things = [Thing(), Thing(), Thing()]
    for t in things:
        native.add_entry(fn.__code__, compile_guards([Guard(X, "ID_MATCH", t)]), lambda x: "hit")
    del t
    things.pop(1)
    gc.collect()
    assert native.EntryPoint(fn, eagerly)(None) == "plain"
    assert len(native.entries(fn.__code__)) == 2
    assert native.EntryPoint(fn, never)(things[0]) == "hit"


def test_entries_die_with_the_code():
    def make():
        scope = {}
        exec("def fn(x): return x", scope)
        return scope["fn"]

    fn, target = make(), lambda x: x
    alive = weakref.ref(target)
    native.add_entry(fn.__code__, ALWAYS, target)
    del fn, target
    gc.collect()
    assert alive() is None


def test_flags_and_switches():
    @fresh
    def fn(x):
        return "plain"

    native.add_entry(fn.__code__, when(1), lambda x: "compiled")
    point = native.EntryPoint(fn, never)
    assert point(1) == "compiled"
    native.set_flags(fn.__code__, native.SKIP)
    assert native.get_flags(fn.__code__) == native.SKIP and point(1) == point(2) == "plain"
    native.set_flags(fn.__code__, native.RUN_ONLY)
    assert (point(1), point(2)) == ("compiled", "plain")
    native.set_flags(fn.__code__, 0)
    assert native.set_enabled(False) is True
    assert point(1) == "plain"
    assert native.set_enabled(True) is False
    native.push_disabled()
    native.push_disabled()
    elsewhere = []
    thread = threading.Thread(target=lambda: elsewhere.append(point(1)))
    thread.start()
    thread.join()
    assert point(1) == "plain" and elsewhere == ["compiled"] and not native.is_enabled()
    native.pop_disabled()
    assert point(1) == "plain"
    native.pop_disabled()
    assert point(1) == "compiled"
    with pytest.raises(RuntimeError):
        native.pop_disabled()


def test_counters():
    @fresh
    def fn(x):
        return x

    native.add_entry(fn.__code__, when(1), lambda x: x)
    point = native.EntryPoint(fn, eagerly)
    native.reset_counters()
    for i in (1, 1, 2):
        point(i)
    assert native.counters() == {"calls": 2, "misses": 1, "eager": 1}


# ---- the miss protocol ----


def test_miss_answers():
    seen = []

    @fresh
    def fn(x, *rest, k=0, **kw):
        return "eager"

    def miss(entry, f, args):
        seen.append(args)
        assert entry is point and f is fn
        return answer

    point = native.EntryPoint(fn, miss)
    answer = ("value", 7)
    assert point(1, 2, k=3, z=4) == 7 and seen == [(1, 3, (2,), {"z": 4})]
    answer = ("eager",)
    assert point(1) == "eager"
    answer, seen[:] = ("retry",), []
    assert point(1) == "eager" and 1 < len(seen) < 10  # bounded
    for answer in (None, "retry", (), ("value",), ("nonsense",)):
        with pytest.raises(TypeError, match="miss callback"):
            point(1)


def test_miss_that_installs_an_entry_is_retried():
    @fresh
    def fn(x):
        return "plain"

    def miss(entry, f, args):
        native.add_entry(f.__code__, when(args[0]), lambda x: ("compiled", x))
        return ("retry",)

    point = native.EntryPoint(fn, miss)
    native.reset_counters()
    assert [point(i) for i in (1, 2, 1, 2)] == [("compiled", 1), ("compiled", 2)] * 2
    assert native.counters()["misses"] == 2


def test_exceptions_pass_through():
    @fresh
    def fn(x):
        raise KeyError(x)

    def failing(entry, f, args):
        raise OSError("in miss")

    native.add_entry(fn.__code__, when(1), lambda x: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        native.EntryPoint(fn, never)(1)
    with pytest.raises(OSError, match="in miss"):
        native.EntryPoint(fn, failing)(2)
    with pytest.raises(KeyError):
        native.EntryPoint(fn, eagerly)(2)


# ---- re-entrancy ----


def test_entries_may_change_while_they_are_walked():
    @fresh
    def fn(x):
        return "plain"

    def sabotage(x):
        native.clear(fn.__code__)
        gc.collect()
        return True

    def multiply(x):
        for _ in range(5):
            native.add_entry(fn.__code__, when("never"), lambda x: "never")
        return False

    point = native.EntryPoint(fn, eagerly)
    native.add_entry(fn.__code__, when(1), lambda x: "last")
    native.add_entry(fn.__code__, compile_guards([Guard(X, "PREDICATE", sabotage)]), lambda x: "sabotaged")
    assert point(1) == "sabotaged" and native.entries(fn.__code__) == []
    native.add_entry(fn.__code__, when(1), lambda x: "last")
    native.add_entry(fn.__code__, compile_guards([Guard(X, "PREDICATE", multiply)]), lambda x: "no")
    assert point(1) in ("last", "plain") and len(native.entries(fn.__code__)) > 6


def test_a_running_entry_may_be_removed():
    @fresh
    def fn(x):
        return "plain"

    def target(x):
        native.clear(fn.__code__)
        gc.collect(0)
        return point(x - 1) if x else ("end", x)

    point = native.EntryPoint(fn, lambda e, f, a: native.add_entry(f.__code__, ALWAYS, target) and ("retry",))
    assert point(20) == ("end", 0)


def test_deep_recursion_raises_recursion_error():
    @fresh
    def fn(x):
        return point(x + 1)

    point = native.EntryPoint(fn, eagerly)
    with pytest.raises(RecursionError):
        point(0)


def test_threads():
    @fresh
    def fn(x):
        return "plain"

    def miss(entry, f, args):
        if len(native.entries(f.__code__)) > 6:
            native.clear(f.__code__)
        native.add_entry(f.__code__, when(args[0]), lambda x: x)
        return ("retry",)

    point, wrong = native.EntryPoint(fn, miss), []

    def work(seed):
        for i in range(3000):
            x = (i * seed) % 11
            got = point(x)
            if got != x and got != "plain":
                wrong.append((x, got))

    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(s,)) for s in range(1, 9)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(old)
    assert wrong == []


# ---- being a function ----


def documented(x: int, y: str = "") -> bool:
    """What it does."""
    return True


documented.note = "kept"
def test_calls_that_are_to_be_verified():
    """Every so many calls go to `verify`, with the frame hook off; `_unwatched` and what `SKIP` marks do not."""

    def fn(a, *rest, k=0):
        return (a, rest, k)

    seen = []

    def verify(entry_point, args, kwargs):
        seen.append((entry_point, args, kwargs, native.get_mode()))
        entry_point._left = 2
        return "verified"

    point = native.EntryPoint(fn, eagerly, verify)
    assert [point(1, 2, k=3) for _ in range(4)] == ["verified", (1, (2,), 3), (1, (2,), 3), "verified"]
    assert seen == [(point, (1, 2), {"k": 3}, native.OFF)] * 2
    point._left = 0
    assert point._unwatched(1, k=2) == (1, (), 2) and len(seen) == 2
    native.push_disabled()
    assert point(1) == (1, (), 0)
    native.pop_disabled()
    native.set_flags(fn.__code__, native.SKIP)
    assert point(1) == (1, (), 0) and len(seen) == 2
    native.set_flags(fn.__code__, 0)
    assert native.call_in_mode(native.RUN, point, (1,)) == "verified"


def test_verify_may_raise():
    def verify(entry_point, args, kwargs):
        raise KeyError("no")

    with pytest.raises(KeyError):
        native.EntryPoint(lambda: 1, eagerly, verify)()


point_to_documented = native.EntryPoint(documented, eagerly)


def test_it_looks_like_the_function():
    p = point_to_documented
    assert (p.__name__, p.__qualname__, p.__module__, p.__doc__) == ("documented", "documented", __name__, "What it does.")
    assert p.__wrapped__ is documented and p.note == "kept" and p.__code__ is documented.__code__
    assert p.__annotations__ == documented.__annotations__ and p.__defaults__ == ("",)
    assert inspect.signature(p) == inspect.signature(documented)
    assert inspect.unwrap(p) is documented
    p.extra = 1
    assert p.extra == 1 and not hasattr(documented, "extra")
    with pytest.raises(AttributeError):
        p.missing
    assert "documented" in repr(p) and callable(p)
    assert functools.wraps(p)(lambda: 0).__name__ == "documented"
    assert copy.deepcopy(p) is p and copy.copy(p) is p
    with pytest.raises(TypeError):
        native.EntryPoint(len, eagerly)


def test_pickled_by_name():
    global documented
    plain, documented = documented, point_to_documented
    try:
        assert pickle.loads(pickle.dumps(point_to_documented)) is point_to_documented
    finally:
        documented = plain


def test_methods():
    @fresh
    def fn(*args):
        return "plain", args

    native.add_entry(fn.__code__, ALWAYS, lambda args: args)
    p = native.EntryPoint(fn, never)

    class A:
        method = p
        static = staticmethod(p)
        of_class = classmethod(p)
        prop = property(p)

    a = A()
    assert a.method(1) == (a, 1) and A.method(a, 1) == (a, 1)
    bound = a.method
    assert bound(2) == (a, 2) and bound.__self__ is a and bound.__func__ is p
    assert a.static(1) == A.static(1) == (1,)
    assert a.of_class(1) == A.of_class(1) == (A, 1)
    assert a.prop == (a,)
    assert functools.partial(p, 1)(2) == (1, 2)
    assert list(map(p, [1, 2])) == [(1,), (2,)]


def test_generator_functions():
    @fresh
    def gen(x):
        yield x

    async def coro(x):
        return x

    point = native.EntryPoint(gen, eagerly)
    assert list(point(3)) == [3]
    c = native.EntryPoint(coro, eagerly)(3)
    with pytest.raises(StopIteration, match="3"):
        c.send(None)


# ---- memory ----


def test_cycles_are_collected():
    def make():
        def fn(x):
            return x

        p = native.EntryPoint(fn, eagerly)
        p.me = p
        p._miss = lambda *a: p
        return weakref.ref(p), weakref.ref(fn)

    refs = [make() for _ in range(10)]
    gc.collect()
    assert all(a() is None and b() is None for a, b in refs)


def test_calls_do_not_leak():
    @fresh
    def fn(x, y=(), *args, k=None, **kw):
        return x

    class Thing:
        pass

    x, y = Thing(), (Thing(),)
    guard = compile_guards([Guard(X, "TYPE_MATCH", Thing)], {}, [], [X, S.local(1, "y").index(0)])
    native.add_entry(fn.__code__, guard, lambda *a: len(a))
    point = native.EntryPoint(fn, eagerly)

    def everything():
        point(x, y)
        point(x, y, 1, 2, k=3, z=y)
        point(y=y, x=x)
        point(1, y)
        for bad in ({}, {"y": y, "q": 1}):
            with pytest.raises(TypeError):
                native.EntryPoint(lambda a, b: a, eagerly)(x, **bad)

    everything()
    before = [sys.getrefcount(o) for o in (x, y, y[0], fn, point)]
    for _ in range(200):
        everything()
    gc.collect()
    assert [sys.getrefcount(o) for o in (x, y, y[0], fn, point)] == before
