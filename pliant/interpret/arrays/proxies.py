"""What stands for arrays and scalars of NumPy on the interpreter's stack.

A `TracedArray` is a tensor of the trace over the array's memory. Where torch has no such view (negative strides, a row whose number only
the run knows) it is *derived*: `remake` reads it off the array that it is a view of, each time it is used, so it is never stale.
A `TracedScalar` is a number with its dtype: a symbolic Python number where one does, else a tensor without dims.
C code that meets a proxy asks it through its methods, which are the interpreter's own slots.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.originals import numpy as np
from pliant.graph.originals import operator, torch
from pliant.graph.symnode import concrete
from pliant.graph.traced import Printing, Untraceable
from pliant.interpret.arrays.dtypes import NUMPY, TORCH, Unsure
from pliant.interpret.calls import LOOKASIDES, graph_call
from pliant.interpret.state import vm
from pliant.symbolic import ops


def no_text() -> None:
    if Printing.recording and not Printing.library:  # C code writes it, or what it is in
        raise Untraceable("numpy.ndarray.__repr__", "the text of an array")


class TracedArray:
    """An array. `source`: where it is outside, None if made here; `how`: of a derived one, (the array it views, method, its arguments)."""

    __slots__ = ("dtype", "found", "how", "lent", "remake", "source", "writeable", "__weakref__")

    def __init__(self, tensor: Any, dtype: np.dtype, source: Any = None, writeable: bool = True, lent: bool = False) -> None:
        self.found = tensor
        self.dtype = dtype
        self.source = source
        self.writeable = writeable
        self.lent = lent  # over the memory of a tensor of the program's, whose version a write would not count
        self.remake: Callable[[], Any] | None = None
        self.how: tuple[TracedArray, str, tuple] | None = None

    @property
    def tensor(self) -> Any:
        """The tensor that holds the values now."""
        return self.found if self.remake is None else self.remake()

    @property
    def sizes(self) -> tuple:
        return tuple(self.found.sizes)

    @property
    def ndim(self) -> int:
        return len(self.found.sizes)

    def __repr__(self) -> str:
        no_text()
        return f"array {self.found!r}"


class TracedScalar:
    """A scalar: `number` (a symbolic int, float or bool) or `found` (a tensor without dims), the other one None until it is asked for.
    `maker`: where the trace has the operation that has then made `found`, and this: on a side of a branch, it is not there behind it."""

    __slots__ = ("dtype", "found", "maker", "number", "source", "__weakref__")

    def __init__(self, dtype: np.dtype, number: Any = None, tensor: Any = None, source: Any = None) -> None:
        self.dtype = dtype
        self.number = number
        self.found = tensor
        self.maker: tuple[int, Any] | None = None
        self.source = source

    @property
    def tensor(self) -> Any:
        ops_there = vm.trace.ops
        if self.maker is not None and (len(ops_there) <= self.maker[0] or ops_there[self.maker[0]] is not self.maker[1]):
            self.found = self.maker = None
        if self.found is None:
            if type(self.number) is torch.SymBool:
                raise Unsure("a condition over sizes as an array")
            self.found = graph_call(torch.full, ((), self.number), {"dtype": TORCH[self.dtype]})
            self.maker = (len(ops_there) - 1, ops_there[-1]) if ops_there else None
        return self.found

    @property
    def numerator(self) -> TracedScalar:
        """What C code of decimals asks of a rational number, and then refuses: it is no Python integer."""
        if self.dtype.kind not in "iu":
            raise AttributeError(f"'{self.dtype.type.__module__}.{self.dtype.type.__name__}' object has no attribute 'numerator'")
        return self

    def __repr__(self) -> str:
        no_text()
        return f"{self.dtype} {self.number if self.found is None else self.found!r}"


class ArrayMethod:
    """A method of an array or scalar, bound."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: Any, name: str) -> None:
        self.owner = owner
        self.name = name


PROXIES = (TracedArray, TracedScalar)


def array(tensor: Any) -> Any:
    """What a function of NumPy returns for a tensor of the trace: an array, or, without dims, a scalar."""
    if not tensor.sizes:
        return scalar(tensor)
    return whole_array(tensor)


def whole_array(tensor: Any) -> TracedArray:
    dt = NUMPY.get(tensor.dtype)
    if dt is None:
        raise Unsure(f"dtype {tensor.dtype}")
    return TracedArray(tensor, dt)


def view_of(base: TracedArray, tensor: Any, method: str | None = None, *args: Any) -> TracedArray:
    """An array over the memory of another; `base.method(*args)` makes it, too, and knows the strides where there are no elements."""
    made = TracedArray(tensor, base.dtype, None, base.writeable, base.lent)
    if method is not None and may_be_empty(tensor):
        made.how = (base, method, args)
    return made


def may_be_empty(tensor: Any) -> bool:
    for s in tensor.sizes:
        if s == 0 if type(s) is int else not s.node.scope.known_true(ops.gt(s.node.expr, 0)):
            return True
    return False


def derived(base: TracedArray, method: str, args: tuple, remake: Callable[[], Any]) -> TracedArray:
    """The array `base.method(*args)`, a view that torch does not have: read off `base` whenever it is used."""
    made = view_of(base, remake())
    made.remake = remake
    made.how = (base, method, args)
    return made


def scalar(tensor: Any) -> TracedScalar:
    dt = NUMPY.get(tensor.dtype)
    if dt is None:
        raise Unsure(f"dtype {tensor.dtype}")
    return TracedScalar(dt, None, tensor)


def scalar_of(number: Any, dt: np.dtype) -> Any:
    """A scalar of a Python number that is known to fit: the real one if it is a constant."""
    if type(number) in (torch.SymInt, torch.SymFloat, torch.SymBool):
        e = number.node.expr
        if e.const is None:
            return TracedScalar(dt, number)
        number = e.const
    return dt.type(number)


# -- what C code asks ---------------------------------------------------------------------------------------------------
def _through(name: str, answer: Callable[..., Any], classes: tuple[type, ...] = PROXIES) -> None:
    LOOKASIDES[answer] = lambda args, kw: answer(*args, **kw)  # run, not interpreted
    for cls in classes:
        setattr(cls, name, answer)


def _operator(name: str, fn: Callable[..., Any], mirrored: bool) -> None:
    def method(self: Any, other: Any) -> Any:
        return vm.call(fn, (other, self) if mirrored else (self, other), {})

    method.__name__ = name
    _through(name, method)


def _unary(name: str, fn: Callable[..., Any]) -> None:
    _through(name, lambda self: vm.call(fn, (self,), {}))


for _n in "add and floordiv lshift matmul mul mod or pow rshift sub truediv xor".split():
    _fn = getattr(operator, _n + "_" if _n in ("and", "or") else _n)
    _operator(f"__{_n}__", _fn, False)
    _operator(f"__r{_n}__", _fn, True)
for _n in "lt le eq ne gt ge".split():
    _operator(f"__{_n}__", getattr(operator, _n), False)
for _n in "neg pos abs invert".split():
    _unary(f"__{_n}__", getattr(operator, _n))
_through("__bool__", lambda self: vm.truth(self))
_through("__len__", lambda self: concrete(vm.length(self)), (TracedArray,))
_through("__iter__", lambda self: vm.iter(self), (TracedArray,))
_through("__getitem__", lambda self, k: vm.getitem(self, k), (TracedArray,))
_through("__setitem__", lambda self, k, v: vm.setitem(self, k, v), (TracedArray,))
_through("__contains__", lambda self, x: vm.contains(self, x), (TracedArray,))
_through("__index__", lambda self: concrete(vm.call(operator.index, (self,), {})))
_through("__int__", lambda self: concrete(vm.call(int, (self,), {})))
_through("__float__", lambda self: concrete(vm.call(float, (self,), {})))
_through("__hash__", lambda self: hash(vm.hashable(self)))
