"""Attributes of objects that C code reads by name: those that an instance has itself, gets or loses.

`python -m tests.differential.read_by_name 0 500` runs 500 programs. A program is one use of an object, a row of `ROWS`, behind a graph
break or not, called with objects of one class that have different attributes, in another order for each number.
"""

from __future__ import annotations

import abc
import collections
import contextlib
import copy
import dataclasses
import functools
import inspect
import json
import operator
import os
import random
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pliant
from tests.differential import numbered


class Bare:
    def __repr__(self) -> str:
        return "O"


def with_(**attributes: Any) -> Callable[[], Bare]:
    """Makes an object with these."""

    def made() -> Bare:
        o = Bare()
        for k, v in attributes.items():
            setattr(o, k, v)
        return o

    return made


def tried(f: Callable[[], Any]) -> Any:
    try:
        return f()
    except Exception as e:
        return type(e).__name__, str(e)[:80]


class Unfinished(abc.ABC):
    @abc.abstractmethod
    def m(self) -> None: ...


def inherits(o: Any) -> Any:
    class C(Unfinished):
        m = o

    return sorted(C.__abstractmethods__)


def first_base(o: Any) -> Any:
    class Q(o):
        pass

    return Q.__mro__[1]


def entered(o: Any) -> Any:
    with o as q:
        return q is o


def raised_from(o: Any) -> Any:
    raise ValueError from o


def made_abstract(o: Any) -> Any:
    return sorted(abc.ABCMeta("C", (), {"m": o}).__abstractmethods__)


def matched(o: Any) -> Any:
    match o:
        case Bare(a=1):
            return 1
        case Bare(a=v):
            return v, 2
        case _:
            return 0


ROWS: dict[str, tuple[Callable, list[Callable[[], Bare]]]] = {
    "isinstance __class__": (lambda x, o: (x, isinstance(o, list)), [with_(), with_(__class__=Bare)]),
    "isinstance bases": (
        lambda x, o: (x, tried(lambda: issubclass(o, int)), tried(lambda: isinstance(3, o))),
        [with_(), with_(__bases__=(int,)), with_(__bases__=())],
    ),
    "isinstance 2nd": (lambda x, o: (x, tried(lambda: isinstance(Bare(), o))), [with_(), with_(__bases__=(int,)), with_(__bases__=())]),
    "mro_entries": (
        lambda x, o: (x, tried(lambda: types.new_class("Q", (o,)).__mro__[1])),
        [with_(), with_(__mro_entries__=lambda b: (list,)), with_(__mro_entries__=lambda b: (dict,))],
    ),
    "class stmt": (
        lambda x, o: (x, tried(lambda: first_base(o))),
        [with_(), with_(__mro_entries__=lambda b: (list,)), with_(__mro_entries__=lambda b: (dict,))],
    ),
    "origin": (lambda x, o: (x, tried(lambda: list[o])), [with_(), with_(__parameters__=(1,))]),
    "update": (lambda x, o: (x, tried(lambda: [d := {}, d.update(o)])), [with_(), with_(keys=lambda: []), with_(keys=lambda: ["a"])]),
    "dict": (lambda x, o: (x, tried(lambda: dict(o))), [with_(), with_(keys=lambda: []), with_(keys=lambda: ["a"])]),
    "OrderedDict": (
        lambda x, o: (x, tried(lambda: collections.OrderedDict(o))),
        [with_(), with_(keys=lambda: []), with_(keys=lambda: ["a"])],
    ),
    "Counter": (lambda x, o: (x, tried(lambda: collections.Counter(o))), [with_(), with_(keys=lambda: []), with_(keys=lambda: ["a"])]),
    "defaultdict": (
        lambda x, o: (x, tried(lambda: collections.defaultdict(int, o))),
        [with_(), with_(keys=lambda: []), with_(keys=lambda: ["a"])],
    ),
    "UserDict": (lambda x, o: (x, tried(lambda: collections.UserDict(o))), [with_(), with_(keys=lambda: []), with_(keys=lambda: ["a"])]),
    "ChainMap": (lambda x, o: (x, tried(lambda: collections.ChainMap({}).new_child(o).maps[0])), [with_(), with_(keys=lambda: [])]),
    "print file": (
        lambda x, o: (x, tried(lambda: print("a", file=o))),
        [with_(), with_(write=lambda s: None), with_(write=lambda s: len(s))],
    ),
    "callable": (lambda x, o: (x, callable(o)), [with_(), with_(__call__=1)]),
    "hash": (lambda x, o: (x, hash(o) == object.__hash__(o)), [with_(), with_(__hash__=lambda: 1)]),
    "wrapped": (lambda x, o: (x, inspect.unwrap(o) is o), [with_(), with_(__wrapped__=3)]),
    "vars": (lambda x, o: (x, sorted(vars(o))), [with_(), with_(a=1), with_(b=1)]),
    "dir": (lambda x, o: (x, [n for n in dir(o) if n[0] != "_"]), [with_(), with_(a=1), with_(__dir__=lambda: ["q"])]),
    "hasattr": (lambda x, o: (x, hasattr(o, "a"), getattr(o, "a", 3)), [with_(), with_(a=1), with_(a=2)]),
    "attrgetter": (
        lambda x, o: (x, tried(lambda: operator.attrgetter("a.b")(o))),
        [with_(), with_(a=types.SimpleNamespace(b=1)), with_(a=types.SimpleNamespace(b=2))],
    ),
    "methodcaller": (lambda x, o: (x, tried(lambda: operator.methodcaller("a")(o))), [with_(), with_(a=lambda: 1), with_(a=lambda: 2)]),
    "copy": (lambda x, o: (x, vars(copy.copy(o))), [with_(), with_(a=1), with_(__copy__=lambda: 3), with_(__reduce_ex__=3)]),
    "deepcopy": (lambda x, o: (x, tried(lambda: vars(copy.deepcopy(o)))), [with_(), with_(a=[1]), with_(__deepcopy__=lambda m: Bare())]),
    "update_wrapper": (
        lambda x, o: (x, tried(lambda: functools.update_wrapper(lambda: 1, o).__name__)),
        [with_(), with_(__name__="q"), with_(__name__="z"), with_(__doc__="z", __module__="w")],
    ),
    "singledispatch": (lambda x, o: (x, tried(lambda: functools.singledispatch(lambda a: 1)(o))), [with_(), with_(a=1)]),
    "partial": (lambda x, o: (x, tried(lambda: functools.partial(o)())), [with_(), with_(__call__=lambda: 3)]),
    "fspath": (lambda x, o: (x, tried(lambda: os.fspath(o))), [with_(), with_(__fspath__=lambda: "a")]),
    "with": (lambda x, o: (x, tried(lambda: entered(o))), [with_(), with_(__enter__=lambda: 1, __exit__=lambda *a: 1)]),
    "closing": (
        lambda x, o: (x, tried(lambda: entered(contextlib.closing(o)))),
        [with_(), with_(close=lambda: 1), with_(close=lambda: 1 / 0)],
    ),
    "exc notes": (lambda x, o: (x, tried(lambda: isinstance(ValueError(), o))), [with_(), with_(__instancecheck__=lambda a: True)]),
    "raise from": (lambda x, o: (x, tried(lambda: raised_from(o))), [with_(), with_(__traceback__=None)]),
    "abstract": (
        lambda x, o: (x, getattr(o, "__isabstractmethod__", False), inspect.isabstract(o)),
        [with_(), with_(__isabstractmethod__=True)],
    ),
    "ABC": (
        lambda x, o: (x, tried(lambda: made_abstract(o))),
        [with_(), with_(__isabstractmethod__=True), with_(__isabstractmethod__=False)],
    ),
    "property abs": (
        lambda x, o: (x, property(o).__isabstractmethod__, staticmethod(o).__isabstractmethod__),
        [with_(), with_(__isabstractmethod__=True), with_(__isabstractmethod__=[])],
    ),
    "property doc": (lambda x, o: (x, property(o).__doc__), [with_(), with_(__doc__="a"), with_(__doc__="b")]),
    "classmethod doc": (
        lambda x, o: (x, staticmethod(o).__doc__, getattr(staticmethod(o), "__name__", 1), tried(lambda: classmethod(o).__wrapped__ is o)),
        [with_(), with_(__doc__="a", __name__="n"), with_(__doc__="b", __name__="z")],
    ),
    "method name": (
        lambda x, o: (
            x,
            tried(lambda: types.MethodType(o, 3).__name__),
            tried(lambda: types.MethodType(o, 3).foo),
            types.MethodType(o, 3).__doc__,
        ),
        [with_(), with_(__name__="a", foo=1), with_(__name__="b", foo=2)],
    ),
    "method repr": (lambda x, o: (x, repr(types.MethodType(o, 3))), [with_(), with_(__name__="a", __qualname__="e"), with_(__name__="b")]),
    "sum": (lambda x, o: (x, tried(lambda: sum(o))), [with_(), with_(__iter__=lambda: iter([1]))]),
    "len hint": (lambda x, o: (x, operator.length_hint(o, 5)), [with_(), with_(__length_hint__=lambda: 3)]),
    "set_name": (
        lambda x, o: (x, tried(lambda: type("Q", (), {"a": o}).a is o)),
        [with_(), with_(__set_name__=1), with_(__get__=lambda *a: 3)],
    ),
    "match": (lambda x, o: (x, matched(o)), [with_(), with_(a=1), with_(a=2), with_(__match_args__=("a",))]),
    "json": (lambda x, o: (x, tried(lambda: json.dumps(o, default=lambda q: getattr(q, "a", 4)))), [with_(), with_(a=1), with_(a=2)]),
    "np": (
        lambda x, o: (x, tried(lambda: np.asarray(o).dtype)),
        [with_(), with_(__array__=lambda *a, **k: np.ones(2)), with_(__array_interface__=3)],
    ),
    "torch.as_tensor": (
        lambda x, o: (x, tried(lambda: torch.as_tensor(o))),
        [with_(), with_(__array__=lambda *a, **k: np.ones(2)), with_(dtype=3)],
    ),
    "torch fn": (lambda x, o: (x, tried(lambda: torch.add(x, o))), [with_(), with_(__torch_function__=lambda *a: 3)]),
    "tf2": (lambda x, o: (x, tried(lambda: x + o)), [with_(), with_(__torch_function__=lambda *a: 3), with_(__radd__=lambda a: 3)]),
    "is_tensor_like": (
        lambda x, o: (x, tried(lambda: torch.overrides.is_tensor_like(o))),
        [with_(), with_(__torch_function__=lambda *a: 3)],
    ),
    "has_tf": (
        lambda x, o: (x, tried(lambda: torch.overrides.has_torch_function((o,)))),
        [with_(), with_(__torch_function__=lambda *a: 3)],
    ),
    "weakref": (lambda x, o: (x, weakref.getweakrefcount(o)), [with_(), with_(a=1)]),
    "typing": (
        lambda x, o: (x, tried(lambda: typing.get_type_hints(o))),
        [with_(), with_(__annotations__={"a": int}), with_(__annotations__={"a": str})],
    ),
    "signature": (
        lambda x, o: (x, tried(lambda: str(inspect.signature(o)))),
        [with_(), with_(__signature__=inspect.signature(lambda a: 1)), with_(__signature__=inspect.signature(lambda b: 1))],
    ),
    "dataclass": (lambda x, o: (x, tried(lambda: dataclasses.is_dataclass(o))), [with_(), with_(__dataclass_fields__={})]),
    "namedtuple like": (
        lambda x, o: (x, tried(lambda: torch.utils._pytree.tree_flatten(o)[0] == [o])),
        [with_(), with_(_fields=("a",), a=1)],
    ),
    "getattr static": (lambda x, o: (x, tried(lambda: inspect.getattr_static(o, "a"))), [with_(), with_(a=1), with_(a=2)]),
    "eval globals": (lambda x, o: (x, tried(lambda: eval("o.a", {"o": o}))), [with_(), with_(a=1), with_(a=2)]),
    "str.format": (lambda x, o: (x, tried(lambda: "{o.a}".format(o=o))), [with_(), with_(a=1), with_(a=2)]),
    "reduce": (lambda x, o: (x, tried(lambda: o.__reduce_ex__(2)[2])), [with_(), with_(a=1), with_(a=2), with_(__getstate__=lambda: 3)]),
    "super": (lambda x, o: (x, tried(lambda: super(Bare, o).a)), [with_(), with_(a=1)]),
    "object.__getattribute__": (lambda x, o: (x, tried(lambda: object.__getattribute__(o, "a"))), [with_(), with_(a=1), with_(a=2)]),
    "eq": (lambda x, o: (x, o == 3, [o] == [3]), [with_(), with_(__eq__=lambda a: True)]),
    "set name": (lambda x, o: (x, tried(lambda: type("Q", (), {"a": o, "b": 3}).b)), [with_(), with_(__set_name__=lambda c, n: 1 / 0)]),
    "abstract of bases": (
        lambda x, o: (x, tried(lambda: inherits(o))),
        [with_(), with_(__isabstractmethod__=True), with_(__isabstractmethod__=[])],
    ),
    "abstract static": (lambda x, o: (x, tried(lambda: made_abstract(staticmethod(o)))), [with_(), with_(__isabstractmethod__=True)]),
    "abstract property": (lambda x, o: (x, tried(lambda: made_abstract(property(o)))), [with_(), with_(__isabstractmethod__=True)]),
    "overloaded": (
        lambda x, o: (x, torch.overrides.has_torch_function_variadic(x, o, 3)),
        [with_(), with_(__torch_function__=lambda *a: 3)],
    ),
    "overloaded, alone": (lambda x, o: (x, torch.overrides.has_torch_function_unary(o)), [with_(), with_(__torch_function__=lambda *a: 3)]),
    "handled": (
        lambda x, o: (x, tried(lambda: torch.overrides.handle_torch_function(torch.add, (o,), x, o))),
        [with_(), with_(__torch_function__=lambda *a: 3)],
    ),
    "reflected": (lambda x, o: (x, tried(lambda: o + x)), [with_(), with_(__torch_function__=lambda *a: 3), with_(__add__=lambda a: 3)]),
    "number of torch": (
        lambda x, o: (x, tried(lambda: torch.full((2,), o))),
        [with_(), with_(__torch_function__=lambda *a: 3), with_(__float__=lambda: 2.0)],
    ),
    "index of torch": (
        lambda x, o: (x, tried(lambda: x[o])),
        [with_(), with_(__index__=lambda: 1), with_(__torch_function__=lambda *a: 3)],
    ),
    "sizes of torch": (lambda x, o: (x, tried(lambda: torch.zeros(o))), [with_(), with_(__index__=lambda: 1), with_(__len__=lambda: 1)]),
}
"""By name: what a program does with an object, and the attributes of the objects that it is given."""
CALLS = 2 * max(len(states) for _, states in ROWS.values())


def examine(number: int) -> str | None:
    """What program `number` does wrong, in words."""
    r = random.Random(number)
    names = list(ROWS)
    name, broken = names[number % len(names)], r.random() < 0.5
    use, states = ROWS[name]
    order = [*states, *states]
    r.shuffle(order)

    def program(x: torch.Tensor, o: Any) -> Any:
        if broken:
            pliant.graph_break()
        return use(x, o)

    said = f"{number}: {name}{', behind a break' * broken}"
    return numbered.compared(said, program, ((make(), make()) for make in order))


if __name__ == "__main__":
    numbered.main(examine, CALLS)
