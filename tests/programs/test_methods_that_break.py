"""Special methods that break the graph half-way: what they did before is done once, and the instruction goes on as CPython would.

Each row is tried with a call of a function that is not captured inside of each method that it comes to call, one after the other.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.helpers import check_world, pliant
from tests.programs.registry import t

LOG: list[str] = []
BREAKS_IN: list[str | None] = [None]


@pliant.disable
def outside() -> None:
    LOG.append("outside")


def step(name: str) -> None:
    LOG.append(name)
    if BREAKS_IN[0] == name:
        outside()
    LOG.append("after " + name)


def method(name: str, answer: Callable) -> Callable:
    def special(self: Any, *args: Any) -> Any:
        step(name)
        return answer(self, *args)

    return special


def total(a: Any) -> float:
    return float(a.v.sum()) if isinstance(a, Told) else 0.0


class Told:
    """An object that tells each of its special methods."""

    def __init__(self, v: torch.Tensor) -> None:
        self.v = v
        step("init")

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        step("getattr")
        return self.v * 3

    @property
    def prop(self) -> Any:
        step("prop")
        return self.v + 1

    @prop.setter
    def prop(self, x: Any) -> None:
        step("set prop")
        self.v = self.v + x

    def __setitem__(self, i: Any, x: Any) -> None:
        step("setitem")
        self.v = self.v + x

    def __delitem__(self, i: Any) -> None:
        step("delitem")
        self.v = self.v * 0


def refuse(self: Any, *args: Any) -> Any:
    return NotImplemented


ANSWERS: dict[str, Callable] = {
    "add": refuse, "iadd": refuse, "lt": refuse, "matmul": refuse, "and": refuse,
    "radd": lambda s, o: (o.v if isinstance(o, Told) else o) + s.v,
    "gt": lambda s, o: total(s) > total(o),
    "eq": lambda s, o: isinstance(o, Told) and s.v.shape == o.v.shape,
    "hash": lambda s: 7,
    "bool": lambda s: True,
    "len": lambda s: 2,
    "iter": lambda s: iter([s.v, s.v * 2]),
    "contains": lambda s, x: x == 1,
    "getitem": lambda s, i: s.v[i],
    "call": lambda s, x: x + s.v,
    "enter": lambda s: s.v,
    "exit": lambda s, *a: False,
    "index": lambda s: 1, "float": lambda s: 2.5, "int": lambda s: 3, "complex": lambda s: 1j, "trunc": lambda s: 3,
    "str": lambda s: "told", "repr": lambda s: "Told()", "format": lambda s, spec: "F" + spec, "bytes": lambda s: b"x",
    "neg": lambda s: s.v, "invert": lambda s: s.v, "abs": lambda s: s.v.abs(),
    "reversed": lambda s: iter([s.v]),
    "rmatmul": lambda s, o: s.v, "rand": lambda s, o: s.v,
    "divmod": lambda s, o: (s.v, 1), "pow": lambda s, *o: s.v**2, "round": lambda s, *n: s.v,
    "copy": lambda s: s.v, "deepcopy": lambda s, memo: s.v,
    "dir": lambda s: ["a"],
    "length_hint": lambda s: 1,
    "get": lambda s, o, cls=None: s.v,
    "set": lambda s, o, x: None,
    "set_name": lambda s, o, n: None,
}  # fmt: skip
for _name, _answer in ANSWERS.items():
    setattr(Told, f"__{_name}__", method(_name, _answer))


class Twin(Told):
    """One of another class: what the first one refuses is asked of the second."""


class Falling:
    """Attributes that are found by one method after another."""

    def __init__(self, v: torch.Tensor) -> None:
        object.__setattr__(self, "v", v)

    @property
    def refused(self) -> Any:
        step("refused")
        raise AttributeError("refused")

    def __getattribute__(self, name: str) -> Any:
        if name in ("w", "u"):
            step("getattribute")
            raise AttributeError(name)
        return object.__getattribute__(self, name)

    def __getattr__(self, name: str) -> Any:
        step("getattr")
        return self.v

    def __setattr__(self, name: str, x: Any) -> None:
        step("setattr")
        object.__setattr__(self, name, x)

    def __delattr__(self, name: str) -> None:
        step("delattr")


class Meta(type):
    def __instancecheck__(cls, o: Any) -> bool:
        step("instancecheck")
        return True

    def __subclasscheck__(cls, o: Any) -> bool:
        step("subclasscheck")
        return True

    def __call__(cls, *a: Any) -> Any:
        step("call of the class")
        return type.__call__(cls, *a)

    def __getattr__(cls, name: str) -> Any:
        step("getattr of the class")
        return 3

    def __iter__(cls) -> Any:
        step("iter of the class")
        return iter([1, 2])


class Made(metaclass=Meta):
    def __new__(cls, *a: Any) -> Made:
        step("new")
        return object.__new__(cls)

    def __init__(self, *a: Any) -> None:
        step("init")

    def __init_subclass__(cls, **kw: Any) -> None:
        step("init_subclass")

    def __class_getitem__(cls, k: Any) -> Any:
        step("class_getitem")
        return k


class Missing(dict):
    def __missing__(self, k: Any) -> int:
        step("missing")
        self[k] = 5
        return 5


def entered(a, b):
    with a as x, b as y:
        return x + y


def raised(a):
    try:
        with a:
            raise ValueError("inside")
    except ValueError as e:
        return str(e)


def added(a, b):
    a += b
    return a


def items(a, x):
    a[0] = x
    a[0] += x
    del a[0]
    return a.v


def attributes(a, x):
    a.prop = x
    a.prop += x
    return a.v


def described(a):
    class C:
        told = a

    C().told = 3
    return C().told


def subclass():
    class C(Made):
        pass

    return C.__name__


def falling(g, x):
    g.k = x
    del g.k
    return g.w, hasattr(g, "u"), g.refused, getattr(g, "refused", None)


def matched(a):
    match a:
        case Told(v=v) if v.sum() > -99:
            return v


def unpacked(a):
    x, y = a
    z, *rest = a
    return x + y + z, rest


def keys(a, b):
    d = {a: 1}
    d[b] = 2
    return len(d), d[a], b in d, d.get(a), d.setdefault(b, 3), d.pop(a), len({a, b})


def asked(a, b):
    assert a
    n = 0
    while a and n < 2:
        n += 1
    return (a and b).v, not a, (a or b).v, n if a else 0, [x for x in a if a]


# what is done with `x`, `a`, `b`: objects that are made, or were there before
ROWS: dict[str, Callable] = {
    "+": lambda x, a, b: a + b,
    "tensor + a": lambda x, a, b: x + a,
    "1.0 + a": lambda x, a, b: 1.0 + a,
    "+=": lambda x, a, b: added(a, b),
    "tensor += a": lambda x, a, b: added(x.clone(), a),
    "sum": lambda x, a, b: sum([a, b], torch.zeros(())),
    "reduce": lambda x, a, b: functools.reduce(operator.add, [x, a]),
    "a < b < a": lambda x, a, b: a < b < a,
    "sorted": lambda x, a, b: [v.v for v in sorted([a, b])],
    "max": lambda x, a, b: max(a, b).v,
    "==": lambda x, a, b: (a == b, a != b, (a,) == (b,), {1: a} == {1: b}),
    "in a list": lambda x, a, b: (a in [b, a], [b, a].index(a), [b, a].count(a)),
    "keys": lambda x, a, b: keys(a, b),
    "truth": lambda x, a, b: asked(a, b),
    "all": lambda x, a, b: (all([a, b]), [v.v for v in filter(None, [a, b])]),
    "len": lambda x, a, b: (len(a), list(a), 1 in a, list(reversed(a)), list(enumerate(a))),
    "unpacked": lambda x, a, b: unpacked(a),
    "zip": lambda x, a, b: list(zip(a, b)),  # noqa: B905
    "items": lambda x, a, b: (a[0], items(a, 1)),
    "called": lambda x, a, b: a(x),
    "with": lambda x, a, b: entered(a, b),
    "with, raising": lambda x, a, b: raised(a),
    "index": lambda x, a, b: ([10, 20, 30][a], [1, 2, 3][a:], range(5)[a], "abc"[a], [0] * a, list(range(a, 3))),
    "sizes": lambda x, a, b: (x[a:], torch.zeros(a, 2), operator.itemgetter(a)([1, 2])),
    "numbers": lambda x, a, b: (float(a), int(a), complex(a), math.sqrt(a), math.floor(a)),
    "arithmetic": lambda x, a, b: (round(a), round(a, 1), abs(a), divmod(a, 2), a**2),
    "texts": lambda x, a, b: (str(a), repr([a]), f"{a}{b:>3}{a!r}{a!s}", "{} {:x}".format(a, b), "%s %r" % (a, b), bytes(a), dir(a)),
    "printed": lambda x, a, b: print(a, b),
    "unary": lambda x, a, b: (-a, ~a),
    "@": lambda x, a, b: a @ b,
    "tensor @ a": lambda x, a, b: x @ a,
    "&": lambda x, a, b: a & b,
    "copies": lambda x, a, b: (copy.copy(a), copy.deepcopy([b])),
    "getattr": lambda x, a, b: (a.other, hasattr(a, "more"), getattr(a, "most", 1), a.prop),
    "setattr": lambda x, a, b: attributes(a, 1),
    "descriptor": lambda x, a, b: described(a),
    "falling": lambda x, a, b: falling(Falling(x), x),
    "missing": lambda x, a, b: (lambda m: (m[1], m[1], m.get(2)))(Missing()),
    "class": lambda x, a, b: (isinstance(x, Made), issubclass(int, Made), type(Made(1)).__name__),
    "of the class": lambda x, a, b: (Made.zzz, list(Made), Made[3], subclass()),
    "match": lambda x, a, b: matched(a),
}  # fmt: skip


@pytest.mark.parametrize("made", [True, False], ids=["made", "there before"])
@pytest.mark.parametrize("name", ROWS)
def test_a_break_in_each_method(name, made):
    row = ROWS[name]
    BREAKS_IN[0] = None
    LOG.clear()
    row(t(4), Told(t(4)), Twin(t(4, seed=1)))
    called = [n for n in dict.fromkeys(LOG) if not n.startswith("after ")]
    for where in [None, *called]:

        def factory() -> Any:
            BREAKS_IN[0] = None
            a, b = Told(t(4)), Twin(t(4, seed=1))
            BREAKS_IN[0] = where  # noqa: B023

            def f(x):
                LOG.clear()
                r = row(x, *((Told(x), Twin(x + 1)) if made else (a, b)))
                return r, x.sum() * 2, list(LOG)

            return f, (f, a, b)

        check_world(factory, (t(4),), (t(6),), must_compile=False, lines=False)
