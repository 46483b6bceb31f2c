"""What CPython's own tests, compiled (`benchmarks/cpython.py`), have found: order, identity, errors and hooks."""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import operator
import sys
import types
import warnings

import pytest

from tests.helpers import pliant
from tests.programs.registry import cases, program, t

OrderedDict = collections.OrderedDict


class Ordered(OrderedDict):
    pass


# -- the order of an OrderedDict ---------------------------------------------------------------------------------------
@program(*[(t(2), kind) for kind in (OrderedDict, Ordered, OrderedDict)])
def order_behind_a_break(x, kind):
    d = kind(a=1, b=2, c=x)
    d.move_to_end("a")
    keys = d.keys()
    walk = iter(d)
    next(walk)
    pliant.graph_break()
    e = kind(d)
    e.move_to_end("b")
    return x + 1, list(d), list(keys), list(walk), d, list(reversed(e)), e.popitem(last=False), e


@program(*[(t(2), kind) for kind in (OrderedDict, Ordered, OrderedDict)])
def order_of_what_is_returned(x, kind):
    d = kind(a=1, b=2, c=x + 1)
    d.move_to_end("b")
    d["a"] = 3
    return d, list(d)


@program(*[(t(2), kind) for kind in (OrderedDict, Ordered, OrderedDict)])
def changed_behind_its_back(x, kind):
    d = kind(a=1, b=2)
    dict.pop(d, "a")
    try:
        shown = repr(d)
    except KeyError:
        shown = "KeyError"
    e = kind(a=1)
    dict.__setitem__(e, "b", 2)
    return x + 1, shown, len(d), len(e), list(e), "b" in e


TORN = OrderedDict(a=1, b=2)
dict.__setitem__(TORN, "c", 3)
TORN_TOO = Ordered(a=1, b=2)
dict.pop(TORN_TOO, "a")


@program(*[(t(2), d) for d in ("TORN", "TORN_TOO", "TORN")])
def changed_behind_its_back_before(x, name):
    d = TORN if name == "TORN" else TORN_TOO
    return x + 1, len(d), "b" in d, d.get("c")


# -- generators that hand themselves on -----------------------------------------------------------------------------------
def inner(seen, answer):
    try:
        got = yield 1
        seen.append(got)
    except BaseException as e:
        seen.append((type(e).__name__, type(e.__context__).__name__))
        if answer == "return":
            return 7
        if answer == "raise":
            raise KeyError("another") from None
        if answer == "yield":
            yield 5
        raise


class Inner:
    """An iterator of the program's own; `way`: what it makes of an exception."""

    def __init__(self, seen, way):
        self.seen, self.way, self.n = seen, way, 0

    def __iter__(self):
        return self

    def __next__(self):
        self.n += 1
        return self.n

    def close(self):
        self.seen.append("closed")
        if self.way == "raise":
            raise KeyError("closing")

    def throw(self, *given):
        self.seen.append([g if isinstance(g, type) else type(g).__name__ for g in given])
        if self.way == "return":
            raise StopIteration(8)
        if self.way == "raise":
            raise KeyError("thrown")
        return 9


def outer(seen, kind, way):
    try:
        r = yield from kind(seen, way)
        seen.append(r)
        yield r
    except BaseException as e:
        seen.append((type(e).__name__, type(e.__context__).__name__))
        raise


def of_list(seen, way):
    return iter([1, 2, 3])


KINDS = (inner, Inner, of_list)
THINGS = (GeneratorExit, ValueError, ValueError("x"), StopIteration, StopIteration(3))


@program(*[(t(2), kind, way, thing) for kind in KINDS for thing in THINGS for way in ("return", "raise", "yield", "again")])
def thrown(x, kind, way, thing):
    seen = []
    gen = outer(seen, kind, way)
    try:
        next(gen)
        seen.append(gen.throw(thing))
        seen.append(next(gen))
    except BaseException as e:
        seen.append((type(e).__name__, str(e), type(e.__context__).__name__))
    gen = outer(seen, kind, way)
    try:
        next(gen)
        gen.close()
    except BaseException as e:
        seen.append((type(e).__name__, str(e), type(e.__context__).__name__))
    return x + 1, seen


@program((t(2),), (t(3),))
def context_of_what_is_thrown(x):
    seen = []

    def gen():
        try:
            yield 1
        except BaseException as e:
            seen.append((type(e).__name__, type(e.__context__).__name__))

    def handling(inner):
        try:
            raise OSError
        except OSError:
            yield from inner

    for make in (gen, lambda: handling(gen()), lambda: handling(iter([1]))):
        for leave in (lambda g: g.throw(ValueError), lambda g: g.close()):
            g = make()
            next(g)
            try:
                try:
                    raise KeyError
                except KeyError:
                    leave(g)
            except BaseException as e:
                seen.append((type(e).__name__, type(e.__context__).__name__))
    return x + 1, seen


@program((t(2),), (t(3),))
def claims_to_run(x):
    def one():
        seen.append(me.gi_running)
        yield 0
        yield from two()
        yield 3

    def two():
        try:
            yield from me
        except ValueError as e:
            seen.append(str(e))
        yield 2

    seen = []
    me = one()
    seen += [me.gi_running, me.gi_suspended, me.__name__, me.gi_yieldfrom, next(me), me.gi_suspended, next(me), me.gi_yieldfrom.__name__]
    return x + 1, seen, list(me), me.gi_yieldfrom


@program((t(2),), (t(3),))
def generators_for_the_library(x):
    def gen():
        yield x

    made = gen()

    @types.coroutine
    def wrapped():
        return made

    return x + 1, type(wrapped()).__name__, wrapped().__await__() is made


# -- what speaks of a class that is made here ----------------------------------------------------------------------------------
@program((t(2),), (t(3),), (t(4),))
def parts_of_own_classes(x):
    class A(dict):
        def __init__(self, *args):
            if args:
                raise KeyError

    class B:
        __slots__ = ("__dict__", "b")

    make, slot, attributes, alias, union, call, order = A.fromkeys, B.b, B.__dict__["__dict__"], list[A], A | int, B.__call__, B.mro
    pliant.graph_break()
    b = call()
    slot.__set__(b, 5)
    return (
        x + 1, type(make("ab")) is A, make.__self__ is A, b.b, slot.__objclass__ is B, attributes.__objclass__ is B, alias.__args__ == (A,),
        union.__args__ == (A, int), isinstance(A(), union), type(b) is B, order()[0] is B,
    )  # fmt: skip


# -- which object it is ------------------------------------------------------------------------------------------------
class Plain:
    pass


@program((t(2),), (t(3),), (t(4),))
def dicts_of_own_objects(x):
    one, two = Plain(), Plain()
    one.a = x
    d, e = one.__dict__, vars(two)
    one.b = 2
    pliant.graph_break()
    d["c"], e["c"] = 3, x + 1
    return one, d, one.c, one.__dict__ is d, list(d), vars(two) is e, two


@program((t(2),), (t(3),), (t(4),))
def addresses(x):
    class Own:
        pass

    def f():
        pass

    o, own = Plain(), Own()
    words = [
        str(o),
        f"{o}",
        "%r" % o,
        format(o),
        "{}".format(o),
        repr([o]),
        repr(f),
        repr(functools.partial(f)),
        repr(own),
        str(KeyError(o)),
    ]
    h = hash(o), hash((o, 1))
    pliant.graph_break()
    again = [
        str(o),
        f"{o}",
        "%r" % o,
        format(o),
        "{}".format(o),
        repr([o]),
        repr(f),
        repr(functools.partial(f)),
        repr(own),
        str(KeyError(o)),
    ]
    return x + 1, words == again, h == (hash(o), hash((o, 1)))


@program((t(2),), (t(3),), (t(4),))
def ids_asked_by_c(x):
    seq = [1, 2, 3]
    one, many = set(map(id, enumerate(seq))), set(map(id, list(enumerate(seq))))
    return x + 1, len(one), len(many), [a is b for a, b in zip(sorted(seq, key=id), sorted(seq, key=id))]


@program(*[(t(2), n, [n, 1], [int(str(n)), 1]) for n in (1, 5, 5, 200, 7)], *[(t(2), n, [n], [m]) for n, m in ((3, 4), (4, 4), (0, 0))])
def numbers_that_are_one(x, n, some, others):
    m = n + 0
    return x + 1, n is m, operator.is_(n, m), operator.is_not(n, 3), [a is b for a, b in zip(some, others)]


BIG, BIG_AGAIN, HALF, HALF_AGAIN = int("70000"), int("70000"), float("0.5"), float("0.5")


@pytest.mark.parametrize("one, other", [(BIG, BIG_AGAIN), (HALF, HALF_AGAIN), ("some words", "".join(["some ", "words"]))])
def test_equal_values_that_are_two(one, other):
    def program(a, b):
        return a is b, operator.is_(a, b), operator.is_not(a, b)

    target = pliant.compile(program, backend="aten", strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it leaves the frame to CPython
        for a, b in ((one, other), (other, one), (one, other)):
            assert target(a, b) == (False, False, True)


def test_equal_texts_that_are_two():
    def program(x):
        a = "xyz pdq"
        c = a[:3] + "".join([" pdq"])
        pliant.graph_break()
        return [a, c, a]

    target = pliant.compile(program, backend="aten")
    for _ in range(3):
        a, c, again = target(1)
        assert a == c and a is again and a is not c


# -- keys that are asked ---------------------------------------------------------------------------------------------------
class Moody:
    """Its equality depends on a global that programs set."""

    def __hash__(self):
        return 0

    def __eq__(self, other):
        if moody:
            raise ZeroDivisionError
        return self is other


@program((t(2),), (t(3),), (t(4),))
def keys_that_read_what_was_changed(x):
    global moody
    moody = False
    some, more = {Moody()}, {Moody() for _ in range(4)}
    moody = True
    try:
        some.update(more)
    except ZeroDivisionError:
        return x + 1, "raised", len(more)
    finally:
        moody = False
    return x


@program((t(2),), (t(3),), (t(4),))
def keys_of_own_classes(x):
    asked = 0

    class Key:
        def __hash__(self):
            return hash("key")

        def __eq__(self, other):
            nonlocal asked
            asked += 1
            return isinstance(other, Key) or other == "key"

    d = {"a": 1, Key(): 2}
    e = {Key(), "key"}
    return x + 1, len(d), len(e), asked, sorted(map(str, d.values()))


# -- what C code would read -----------------------------------------------------------------------------------------------
class Holder:
    def __init__(self, x):
        self.x = x


@program(*[(t(2), Holder(v), Holder({"k": v})) for v in (1, 2, "a", 3, 4.5)])
def templates_that_name_attributes(x, o, d):
    spaced = "{x.x:>{w.x[k]}}".format_map({"x": o, "w": Holder({"k": 4})})
    words = spaced, "{.x}".format(o), "{a.x[k]!r:>7}".format(a=d), "{} {.x}".format(1, o), "{1.x} {0}".format(1, o)  # noqa: UP030
    try:
        words += ("{.y}".format(o),)
    except AttributeError as e:
        words += (str(e),)
    return x + 1, words, "{}-{}".format(o.x, 2)


@program(*[(t(2), r) for r in (range(0), range(-10), range(5, 5), range(0, 3, 2), range(0, 4, 2))])
def equal_ranges(x, r):
    return x + 1, r.start, r.stop, r.step, list(r), repr(r)


class MyComplex(complex):
    pass


@program(*[(t(2), a, b) for a, b in ((0.0, 1.0), (0.0, -0.0), (-0.0, 2.0), (1.5, 2.0), (float("inf"), -1.0))])
def numbers_of_own_complex_classes(x, a, b):
    z, w = MyComplex(a, b), complex(MyComplex(a, b))
    pliant.graph_break()
    v = complex(z)
    return x + 1, repr(z), repr(w), repr(v), repr(z.imag), MyComplex(w) == v


class Proxy:
    """Everything but what is its own is asked of another object, and noted."""

    def __init__(self, o):
        self.__o = o
        self.__seen = []

    def __getattribute__(self, name):
        if name.startswith("_Proxy__"):
            return object.__getattribute__(self, name)
        self.__seen.append(name)
        return getattr(self.__o, name)


@program((t(2), Holder), (t(3), Holder), (t(4), Holder))
def proxies(x, kind):
    made = Proxy(kind(x))
    made.y = 5
    before = isinstance(made, kind), isinstance(made, Proxy), isinstance(made, int), isinstance(made, (str, kind)), made.__class__ is kind
    pliant.graph_break()
    return before, made.x, isinstance(made, kind), object.__getattribute__(made, "y"), object.__getattribute__(made, "_Proxy__seen")


# -- classes of classes --------------------------------------------------------------------------------------------------
@program((t(2),), (t(3),), (t(4),))
def members_and_others(x):
    class Inner:
        pass

    class Some(enum.Enum):
        spam = enum.nonmember(Inner)
        eggs = 1
        five = enum.nonmember(5)

    class Kind(type):
        def __setattr__(cls, name, value):
            object.__setattr__(cls, name, value)

    class Of(metaclass=Kind):
        pass

    try:
        Of.a = 1
    except TypeError:
        refused = True
    return x + 1, Some.spam is Inner, list(Some.__members__), Some.five, refused


@program((t(2),), (t(3),), (t(4),))
def modules_that_are_made(x):
    m = types.ModuleType("made")
    known = hasattr(m, "a")
    m.a = 1
    return x + 1, known, m.a, m.__name__


@program((t(2),), (t(3),), (t(4),))
def lengths_that_are_asked_once(x):
    class Seq:
        def __len__(self):
            asked.append(1)
            return 10

        def __getitem__(self, i):
            return i

    asked = []
    r = reversed(Seq())
    pliant.graph_break()
    return x + 1, next(r), len(asked)


class Guarded:
    def isatty(self):  # what other backends ask while they compile
        return False

    def __getattr__(self, name):
        raise RuntimeError(name)


@program((t(2),), (t(3),))
def printing_to_what_cannot_write(x):
    with contextlib.redirect_stdout(Guarded()):
        pliant.graph_break()
        try:
            print("words")
        except RuntimeError as e:
            said = str(e)
    return x + 1, said


def test_frames_that_watch_or_count_are_left_to_cpython():
    def watched(x):
        return x + 1

    def program(x):
        lines = []

        def trace(frame, event, arg):
            lines.append((frame.f_code.co_name, event))
            return trace

        before = sys.gettrace()
        sys.settrace(trace)
        try:
            y = watched(x)
        finally:
            sys.settrace(before)
        return y, lines

    def counting(x):
        marker = object()
        n = sys.getrefcount(marker)
        more = [marker, marker]
        return x + 1, n, sys.getrefcount(marker) - n, len(more)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says so
        for fn in (program, counting):
            target = pliant.compile(fn, backend="aten", strict=False)
            for _ in range(3):
                assert target(1) == fn(1)


@pytest.mark.parametrize("case", cases(__name__))
def test_program(case):
    case.run()
