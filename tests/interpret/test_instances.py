"""`isinstance`, `type`, `issubclass` and class patterns, of every kind of proxy, against every kind of class."""

from __future__ import annotations

import abc
import collections.abc
import numbers
import types
import typing
from typing import Any

import pytest
import torch
from torch import nn

import pliant
from tests.helpers import check, compiled


class HasShapeMeta(type):
    def __instancecheck__(cls, o: Any) -> bool:
        return hasattr(o, "shape")


class HasShape(metaclass=HasShapeMeta):
    """Its metaclass asks the object."""


class FlaggedMeta(type):
    def __instancecheck__(cls, o: Any) -> bool:
        return super().__instancecheck__(o) or getattr(o, "flag", False) is True


class Flagged(metaclass=FlaggedMeta):
    """Its metaclass asks `type.__instancecheck__`, then the object."""


class FlaggedAbstractMeta(abc.ABCMeta):
    def __instancecheck__(cls, o: Any) -> bool:
        return super().__instancecheck__(o) or getattr(o, "flag", False) is True


class FlaggedAbstract(metaclass=FlaggedAbstractMeta):
    pass


FlaggedAbstract.register(int)


@typing.runtime_checkable
class Shaped(typing.Protocol):
    shape: Any


@typing.runtime_checkable
class Adds(typing.Protocol):
    def __add__(self, o: Any) -> Any: ...


@typing.runtime_checkable
class NamedGoer(typing.Protocol):
    name: str

    def go(self) -> int: ...


class NotCheckable(typing.Protocol):
    shape: Any


class Goes:
    def go(self) -> int:
        return 1


class CanGo(abc.ABC):
    @classmethod
    def __subclasshook__(cls, c: type) -> Any:
        return hasattr(c, "go") or NotImplemented


class Proxy:
    """What it says of its class is not its type."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    @property
    def __class__(self) -> type:  # type: ignore[override]
        return self.kind


class Whole(int):
    pass


CLASSES: dict[str, Any] = {
    c.__name__: c
    for c in (
        nn.Parameter, nn.Buffer, nn.UninitializedParameter, nn.UninitializedBuffer, torch.Tensor, torch.FloatTensor, torch.LongTensor,
        torch.autograd.Variable, HasShape, Flagged, FlaggedAbstract, Shaped, Adds, NamedGoer, NotCheckable, CanGo, int, float, bool, str,
        tuple, list, object, type, torch.Size, torch.SymInt, torch.SymFloat, types.GeneratorType, numbers.Number, numbers.Integral,
        numbers.Real, collections.abc.Sized, collections.abc.Iterable, collections.abc.Sequence, collections.abc.Mapping,
        collections.abc.Hashable, collections.abc.Callable, collections.abc.Iterator, collections.abc.Generator, collections.abc.Container,
        typing.SupportsInt, typing.SupportsIndex, typing.SupportsFloat, typing.Any, nn.Module,
    )
} | {
    "List": typing.List, "Hashable": typing.Hashable, "Union": typing.Union[int, torch.Tensor],  # noqa: UP006, UP007
    "Optional": typing.Optional[int], "List[int]": typing.List[int], "int | None": int | None,  # noqa: UP006, UP007, UP045
    "Parameter | None": nn.Parameter | None, "tuple of classes": (int, (str, nn.Parameter)), "no class": 3, "list[int]": list[int],
}  # fmt: skip


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.b = nn.Buffer(torch.ones(3))
        self.register_buffer("c", torch.ones(3))
        self.p = nn.Parameter(torch.ones(3))


NET = Net()
GOER, NAMED = Goes(), Goes()
NAMED.name = "x"  # type: ignore[attr-defined]
MARKED = torch.ones(3)
MARKED._is_param = True
FLAGGED = torch.ones(3)
FLAGGED.flag = True
PROXY, WHOLE, LATE_PARAMETER, LATE_BUFFER = Proxy(str), Whole(4), nn.UninitializedParameter(), nn.UninitializedBuffer()

VALUES: dict[str, Any] = {
    "input": lambda x, n: x,
    "result": lambda x, n: x * 2,
    "view": lambda x, n: x[0],
    "buffer": lambda x, n: NET.b,
    "registered buffer": lambda x, n: NET.c,
    "parameter": lambda x, n: NET.p,
    "of a parameter": lambda x, n: NET.p * 1,
    "detached buffer": lambda x, n: NET.b.detach(),
    "new buffer": lambda x, n: nn.Buffer(x * 1),
    "new parameter": lambda x, n: nn.Parameter(torch.ones(2)),
    "marked": lambda x, n: MARKED,
    "flagged": lambda x, n: FLAGGED,
    "uninitialized parameter": lambda x, n: LATE_PARAMETER,
    "uninitialized buffer": lambda x, n: LATE_BUFFER,
    "size": lambda x, n: x.shape[0],
    "int": lambda x, n: n,
    "fraction": lambda x, n: x.shape[0] / 2,
    "comparison": lambda x, n: x.shape[0] > 3,
    "item": lambda x, n: x.sum().item(),
    "index": lambda x, n: x.argmax().item(),
    "shape": lambda x, n: x.shape,
    "generator": lambda x, n: (i for i in range(3)),
    "late text": lambda x, n: f"{x.shape[0]} rows",
    "length": lambda x, n: len(x),
    "object": lambda x, n: GOER,
    "named object": lambda x, n: NAMED,
    "proxy": lambda x, n: Proxy(int),
    "outside proxy": lambda x, n: PROXY,
    "subclass of int": lambda x, n: WHOLE,
    "module": lambda x, n: NET,
    "list": lambda x, n: [x],
    "dict": lambda x, n: {},
    "None": lambda x, n: None,
    "pair": lambda x, n: (x, n),
    "dtype": lambda x, n: x.dtype,
    "builtin": lambda x, n: len,
}


def by_isinstance(v: Any, cls: Any) -> Any:
    return isinstance(v, cls)


def by_method(v: Any, cls: Any) -> Any:
    return cls.__instancecheck__(v)


def by_type(v: Any, cls: Any) -> Any:
    return type(v) is cls, v.__class__ is cls


def by_subclass(v: Any, cls: Any) -> Any:
    return issubclass(type(v), cls)


def by_pattern(v: Any, cls: Any) -> Any:
    match v:
        case cls():
            return True
    return False


def outcome(fn: Any) -> str:
    x = torch.ones(4, 3)
    try:
        return str(fn(x, 4)[0])
    except (TypeError, AttributeError, RuntimeError) as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("way", [by_isinstance, by_method, by_type, by_subclass, by_pattern], ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", VALUES)
def test_every_class_of_every_value(kind: str, way: Any) -> None:
    wrong = []
    for name, cls in CLASSES.items():

        def program(x: Any, n: int, value: Any = VALUES[kind], cls: Any = cls) -> Any:
            return way(value(x, n), cls), x + 1

        pliant.reset()
        want, got = outcome(program), outcome(compiled(program))
        if want != got:
            wrong.append((name, want, got))
    assert not wrong


def test_a_mark_that_comes_and_goes() -> None:
    """`isinstance` of Parameter and Buffer reads a mark of the tensor, a protocol the object's attributes: both are guarded."""
    x = torch.ones(3)
    thing = Goes()

    def program(x):
        return isinstance(x, nn.Parameter), isinstance(x, nn.Buffer), isinstance(thing, NamedGoer), isinstance(x, HasShape), x + 1

    fn = compiled(program)
    for _ in range(2):
        assert fn(x)[:4] == program(x)[:4] == (False, False, False, True)
        x._is_buffer = True
        assert fn(x)[:4] == program(x)[:4] == (False, True, False, True)
        x._is_param, thing.name = True, "n"
        assert fn(x)[:4] == program(x)[:4] == (True, True, True, True)
        thing.go = None
        assert fn(x)[:4] == program(x)[:4] == (True, True, False, True)
        del x._is_param, x._is_buffer, thing.name, thing.go


def test_a_class_that_a_proxy_changes() -> None:
    def program(x):
        return isinstance(PROXY, str), isinstance(PROXY, int), x + 1

    fn = compiled(program)
    for kind, want in ((str, (True, False)), (int, (False, True)), (float, (False, False)), (str, (True, False))):
        PROXY.kind = kind
        assert fn(torch.ones(2))[:2] == program(torch.ones(2))[:2] == want
    PROXY.kind = str


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


class Odd:
    __match_args__ = ["x"]


class Odder:
    __match_args__ = ("x", 3)
    x = 1


def test_class_patterns() -> None:
    def program(v, p):
        found = []
        for o in (v, v.shape[0], Whole(3), [v], p, "text", (v, 2)):
            match o:
                case Point(x, y=0):
                    found.append(("axis", x))
                case Point(a, b):
                    found.append(("point", a, b))
                case torch.Tensor(ndim=1) as t:
                    found.append(("tensor", t.shape[0]))
                case Whole(n):
                    found.append(("whole", n))
                case int(n):
                    found.append(("int", n))
                case list([torch.Tensor() as t]):
                    found.append(("list", t))
                case str(s):
                    found.append(s)
                case (torch.Tensor(), 2):
                    found.append("pair")
        return found

    check(program, (torch.ones(3), Point(1, 0)), (torch.ones(4), Point(1, 2)), (torch.ones(2), Point(torch.ones(1), 5)), breaks=0)


@pytest.mark.parametrize("number", range(5))
def test_class_patterns_that_are_wrong(number: int) -> None:
    def program(x):
        o = [Point(1, 2), Odd(), Odder(), Point(1, 2), 3][number]
        match o:
            case Point(_, _, _) if number == 0:
                return x + 1
            case Odd(_) if number == 1:
                return x + 2
            case Odder(_, _) if number == 2:
                return x + 3
            case Point(_, x=_) if number == 3:
                return x + 4
            case int(_, _):
                return x + 5
        return x

    check(program, (torch.ones(3),), must_compile=False)


def test_names_of_a_proxys_own_slots_are_no_attributes_of_a_tensor() -> None:
    def program(x):
        y = x + 1
        names = ("vid", "owner", "pytype", "source", "sizes", "strides", "offset", "dense", "storage_id", "constant", "meta", "handler")
        return y, y[:, None].trace(), x[:, None].trace(), [getattr(y, n, None) for n in names], [getattr(x, n, None) for n in names]

    marked = torch.ones(3)
    marked.source, marked.meta = "mine", 5
    check(program, (torch.ones(3),), breaks=0)
    assert compiled(program)(marked)[3:] == program(marked)[3:]


def test_what_a_protocol_asks_for_may_change() -> None:
    @typing.runtime_checkable
    class Sized(typing.Protocol):
        def size_of(self): ...

    class Mine:
        name = "a"

    o = Mine()
    program = lambda x: x * (2 if isinstance(o, Sized) else 3)  # noqa: E731
    made = compiled(program)
    changes = [
        lambda: None, lambda: setattr(Mine, "size_of", lambda s: 1), lambda: delattr(Mine, "size_of"), lambda: setattr(Sized, "name", 3),
        lambda: delattr(Sized, "size_of"), lambda: setattr(Mine, "name", None), lambda: setattr(Sized, "name", len),
        lambda: Sized.__annotations__.update(other=int),
    ]  # fmt: skip
    answers = []
    for change in changes:
        change()
        answers.append(program(torch.ones(1)).item())
        assert made(torch.ones(1)).item() == answers[-1]
    assert len(set(answers)) == 2
