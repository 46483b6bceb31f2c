"""Corners of Python's data model that CPython's own tests have found: numbers, comparisons, classes, namespaces, lifetimes."""

from __future__ import annotations

import abc
import array
import collections
import errno
import gc
import pickle
import sys
import weakref

import pytest

from tests.helpers import compiled
from tests.programs.registry import cases, program, t

NAN = float("nan")
FLOATS = (0.0, -0.0, 1.5, -0.0, 0.0, 2.5, -0.0)


@program(*[(t(2), v) for v in FLOATS])
def complex_of_floats(x, v):
    z = complex(v, -0.0)
    return x + 1, z.real, z.imag, complex(-0.0, v).imag


@program(*[(t(2), n) for n in (1, 2, 3, 4, 5)])
def special_methods_of_numbers(x, n):
    return x + 1, complex.__eq__(complex(n, 0), n), float.__eq__(1.5, n), (1.5).__lt__(n), int.__add__(n, 3)


@program(*[(t(2), n) for n in (errno.EAGAIN, errno.ENOENT, errno.EEXIST, 4242)])
def error_numbers(x, n):
    e = OSError(n, "words")
    return x + 1, type(e).__name__, e.errno


@program(*[(t(2), n) for n in (1, 2, 3, 4, 5)])
def equal_to_a_complex_number(x, n):
    return x + 1, n == complex(n, 0), complex(n, 0) != n, n + 0.0 == complex(n, 0)


@program(*[(t(2), v) for v in (4, 9, 2, -3, -8, 5, 16)])
def powers_of_numbers_of_either_sign(x, i):
    """A negative number to a broken power is complex, and complex numbers have no order."""
    out = []
    for base, exponent in ((i, 0.5), (-2.0, i), (i * 2 - 1, 1.5), (2.5, i)):
        try:
            out.append(base**exponent < 3.0)
        except TypeError as e:
            out.append(str(e))
    return x * abs(i) ** 0.5, out


class Registered(abc.ABC):
    """Its virtual subclass is asked second: only real bases count."""

    def __eq__(self, other):
        LOG.append("registered")
        return NotImplemented

    __hash__ = None


class Virtual:
    def __eq__(self, other):
        LOG.append("virtual")
        return NotImplemented

    __hash__ = None


Registered.register(Virtual)
LOG: list = []


@program((t(2),))
def order_of_comparison(x):
    LOG.clear()
    same = Registered() == Virtual()
    return x + 1, same, list(LOG)


@program((t(2),))
def abstract_property(x):
    class Base(metaclass=abc.ABCMeta):
        @property
        @abc.abstractmethod
        def value(self):
            return 3

    try:
        Base()
        made = "made"
    except TypeError as e:
        made = str(e)
    return x + 1, made


def three():
    return len([1, 2, 3])


@program((t(2),))
def names_written_through_globals(x):
    before = three()
    globals()["len"] = lambda v: 7
    try:
        between = three()
    finally:
        del globals()["len"]
    return x + 1, before, between, three()


class Slots:
    __slots__ = ("z",)
    y = 0


class Dict:
    y = 0


@program((t(2), Slots()), (t(2), Dict()))
def attributes_that_cannot_be(x, o):
    seen = []
    for act in (
        lambda: o.z, lambda: delattr(o, "x"), lambda: delattr(o, "y"),
        *((lambda: setattr(o, "x", 1), lambda: setattr(o, "y", 1)) if type(o) is Slots else ()),
    ):  # fmt: skip
        try:
            act()
        except AttributeError as e:
            seen.append(str(e))
    return x + 1, seen


@program((t(2), ExceptionGroup("g", [ValueError(1)])))
def members_of_c(x, group):
    seen = []
    for name in ("message", "exceptions"):
        try:
            setattr(group, name, "other")
        except AttributeError as e:
            seen.append(str(e))
    return x + 1, seen


@program((t(2),))
def defaults_from_an_iterator(x):
    point = collections.namedtuple("point", "x y", defaults=iter([10, 20]))
    return x + 1, point.__new__.__defaults__, tuple(point()), point._field_defaults


@program((t(2),))
def size_of_an_array(x):
    return x + 1, sys.getsizeof(array.array("b", [1, 2, 3])), sys.getsizeof(array.array("d", (1.0, 2.0)))


def copied(v):
    return pickle.loads(pickle.dumps(v))


@program((t(2),))
def import_below_an_inlined_call(x):
    return x + 1, copied(Dict).__name__, list(copied(iter([1, 2])))


class Watched:
    pass


def test_what_is_deleted_behind_a_break_is_gone():
    def program():
        o = Watched()
        o.child = Watched()
        refs = [weakref.ref(o), weakref.ref(o.child)]
        alive = [r() is not None for r in refs]
        child = o.child
        del o
        dead = [r() is None for r in refs]
        del child
        return alive, dead, refs[1]() is None

    f = compiled(program)
    for _ in range(3):
        assert f() == program() == ([True, True], [True, False], True)


def test_items_of_a_region_loop_are_gone():
    def program(n):
        out = []
        for i in range(n):
            o = Watched()
            ref = weakref.ref(o)
            del o
            out.append(ref() is None)
            gc.get_count()
        return out

    f = compiled(program)
    for n in (2, 3, 5, 2):
        assert f(n) == [True] * n


class Counted:
    """Equal to what has the same number, which may change; it tells of each question."""

    def __init__(self, n, log):
        self.n, self.log = n, log

    def __hash__(self):
        self.log.append(("hash", self.n))
        return 1

    def __eq__(self, other):
        self.log.append(("eq", self.n, other.n))
        return self.n == other.n


@pytest.mark.parametrize("what", ["an item", "found", "hash", "a dict", "a set"])
def test_weak_references_are_keys_as_what_they_refer_to(what):
    def world():
        log = []
        a, b = Counted(1, log), Counted(2, log)
        d = weakref.WeakKeyDictionary({a: 5})
        programs = {
            "an item": lambda x: x + d.get(b, 0),
            "found": lambda x: x + (b in d),
            "hash": lambda x: x + hash(weakref.ref(b)),
            "a dict": lambda x: x + {weakref.ref(a): 3}.get(weakref.ref(b), 0),
            "a set": lambda x: x + len({weakref.ref(a), weakref.ref(b)}),
        }
        return programs[what], a, b, log

    def rounds(wrap):
        fn, a, b, log = world()
        f, out = wrap(fn), []
        for n in (2, 2, 1, 1, 2):
            b.n = n
            del log[:]
            out.append((f(t(2)).tolist(), log[:]))
        return out

    assert rounds(compiled) == rounds(lambda fn: fn)


def test_what_a_slot_held_is_gone():
    box = {}

    def program():
        ref = weakref.ref(box["o"])
        bound = box["o"].__repr__
        bound()
        del bound
        box.clear()
        return ref() is None

    f = compiled(program)
    for _ in range(3):
        box["o"] = Watched()
        assert f()


@pytest.mark.parametrize("case", cases(__name__))
def test_program(case):
    case.run()
