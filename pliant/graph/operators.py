"""One row per ATen operator: everything that pliant knows of it, found by the operator's name.

A row (`OpSpec`) is put together by the rooms that know a part: the shape rule here, the lowering in `lower/`, the spelling in `codegen/`.
Each of these parts is a *column* (`Column`), a dictionary by operator that its room reads, and a view of the rows. `operator(...)` writes a
row at once: adding an operator is one call (docs/adding-an-operator.md). What has no row goes PyTorch's way: its meta kernel says the
shapes, its schema the effects, and ATen is called.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from pliant.errors import InternalError, PliantError


@dataclass(slots=True, eq=False)
class OpSpec:
    """What pliant knows of one overload. None or False: nothing beyond its schema.

    shape           `rule(trace, *args, **kwargs) -> result(s)`: sizes, strides, dtype, aliasing (`graph/rules/`)
    handler         `handler(trace, func, args, kwargs)`: records what is needed itself, in place of one operation
    view_of         the argument whose memory the result shares although the schema does not say so
    identity        gives its operand a new tensor object, and nothing else
    reinterprets    a view whose elements are not those of what it is a view of
    checks_data     raises on bad data, so it runs although nobody reads its result
    refuses         `refuses(get) -> bool`: may its kernel refuse the arguments `get(name)`, which fake tensors take?
    bounds          (name, comparison, number) of each setting that its kernel alone holds against a number
    meets           its kernel says which floats may meet, once it has looked at sizes
    overwrites      what it writes does not depend on what was there, unless it accumulates or reduces
    uncounted       PyTorch's version counters do not tell of what it writes
    number          `rule(reader, *operands)`: the number in its result, where that is known (`graph/known_numbers.py`)
    stretched       its strides are given: its memory may be larger than 64 bits count
    ends            it converts its numbers, the ends and the step of a range, to 64 bits
    certain         its results lie as its shape rule says, and need not be looked at
    lowering        `rule(builder, op)`: the operation as a loop nest (`lower/lowerings/`)
    pattern         `match(matcher, op)`: a bigger operation that it is a part of (`lower/pattern_fusion.py`)
    library         `steps(products, op, read)`: library calls that may run in its place (`lower/gemm.py`, ...)
    worth           `worth(op) -> bool`: is it, alone, faster as a kernel than as the ATen call
    binding         (name, renderer): the cheapest spelling of the call in generated code (`codegen/fastops.py`)
    """

    target: Any
    shape: Callable | None = None
    handler: Callable | None = None
    view_of: str | None = None
    identity: bool = False
    reinterprets: bool = False
    checks_data: bool = False
    refuses: Callable | None = None
    bounds: tuple | None = None
    converted: tuple[str, ...] | None = None
    meets: bool = False
    overwrites: bool = False
    uncounted: bool = False
    number: Callable | None = None
    stretched: bool = False
    ends: bool = False
    certain: bool = False
    lowering: Callable | None = None
    pattern: Callable | None = None
    library: Callable | None = None
    worth: Callable | None = None
    binding: tuple | None = None

    def filled(self) -> dict[str, Any]:
        """The columns that say something of this operator."""
        return {name: value for name in FIELDS if (value := getattr(self, name)) not in (None, False)}


FIELDS = tuple(name for name in OpSpec.__dataclass_fields__ if name != "target")
HOME = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
OPERATORS: dict[Any, OpSpec] = {}
"""The rows, by overload."""
COLUMNS: dict[str, Column] = {}
OWN: dict[tuple[Any, str], Any] = {}
FOREIGN: dict[tuple[Any, str], Any] = {}
"""What others have put into the rows, or taken out, and what was pliant's own there."""


class Column(dict[Any, Any]):
    """One column of the rows, by overload: a dictionary in its own right, so that reading it costs what a dictionary does."""

    def __init__(self, field: str) -> None:
        if field not in FIELDS or field in COLUMNS:
            raise InternalError(f"{field} is no column of the operators, or is one already")
        super().__init__()
        self.field = field
        COLUMNS[field] = self

    def __setitem__(self, target: Any, value: Any) -> None:
        super().__setitem__(target, value)
        setattr(row(target), self.field, value)
        self.note(target, value, from_outside(value))

    def __delitem__(self, target: Any) -> None:
        super().__delitem__(target)
        setattr(row(target), self.field, OpSpec.__dataclass_fields__[self.field].default)
        self.note(target, None, True)

    def note(self, target: Any, value: Any, outside: bool) -> None:
        """Tell what is not pliant's own; what is put back as it was is."""
        cell = target, self.field
        if not outside:
            OWN[cell] = value
        if outside and OWN.get(cell) is not value:
            FOREIGN[cell] = value
        else:
            FOREIGN.pop(cell, None)

    def update(self, *others: Any, **named: Any) -> None:
        for target, value in dict(*others, **named).items():
            self[target] = value

    def add(self, *targets: Any) -> None:
        """These operators have the property that the column is about."""
        for target in targets:
            self[target] = True


def row(target: Any) -> OpSpec:
    """The row of an overload, made if there is none."""
    found = OPERATORS.get(target)
    if found is None:
        found = OPERATORS[target] = OpSpec(target)
    return found


def overload(name: str) -> Any:
    """The operator of a name such as `add.Tensor`; `relu` is `relu.default`, `mylib::f` of another library. None if there is none."""
    space, _, rest = name.rpartition("::")
    packet, _, which = rest.partition(".")
    found = getattr(getattr(torch.ops, space or "aten"), packet, None)
    return getattr(found, which or "default", None) if found is not None else None


def overloads(names: Iterable[str]) -> list[Any]:
    """Every overload of the operators of these names."""
    out = []
    for name in names:
        packet = getattr(torch.ops.aten, name, None)
        out += [getattr(packet, which) for which in packet.overloads()] if packet is not None else []
    return out


def operator(name: str, **columns: Any) -> OpSpec:
    """Write the row of an operator, or columns of it: `operator("hypot", shape=..., lowering=...)`.

    Returns the row. Raises PliantError for an operator that this PyTorch does not have, and for a column that there is not.
    """
    target = overload(name)
    if target is None:
        raise PliantError(f"operator({name!r}): this PyTorch has no such operator; its name is that of torch.ops.aten, as in 'add.Tensor'")
    unknown = sorted(set(columns) - set(COLUMNS))
    if unknown:
        raise PliantError(f"operator({name!r}): no column {', '.join(unknown)}; choose from {', '.join(FIELDS)}")
    for field, value in columns.items():
        COLUMNS[field][target] = value
    return row(target)


def described(name: str) -> str:
    """The row of an operator as text, one column a line."""
    target = overload(name)
    if target is None:
        raise PliantError(f"no operator {name!r}: its name is that of torch.ops.aten, as in 'add.Tensor'")
    found = OPERATORS.get(target) or OpSpec(target)
    lines = [str(target._schema), *(f"  {field:14}{place_of(value)}" for field, value in found.filled().items())]
    missing = [field for field in ("shape", "lowering") if getattr(found, field) is None]
    says = {"shape": "PyTorch's meta kernel", "lowering": "stays an ATen call"}
    return "\n".join([*lines, *(f"  {field:14}({says[field]})" for field in missing)])


def place_of(value: Any) -> str:
    """Where a part of a row is written."""
    code = getattr(value, "__code__", None)
    if code is None:
        return repr(value[0]) if isinstance(value, tuple) else repr(value)
    return f"{value.__module__}.{value.__qualname__}, line {code.co_firstlineno}"


def from_outside(value: Any) -> bool:
    """Is a part of a row not pliant's own, or put there by somebody else?"""
    code = getattr(value, "__code__", None)
    if code is not None and not code.co_filename.startswith(HOME):
        return True
    frame = sys._getframe(2)
    while frame.f_globals is globals() and frame.f_back is not None:
        frame = frame.f_back
    return not frame.f_code.co_filename.startswith(HOME)


def fingerprint() -> bytes:
    """A hash of what others have put into the rows: part of every key on disk, so that what another table made is never used.

    Pliant's own parts are told by its source, which is in those keys already.
    """
    rows = sorted([(target.name(), field, repr(identity_of(value))) for (target, field), value in FOREIGN.items()])
    return hashlib.sha256(repr(rows).encode()).digest() if rows else b""


SIMPLE = (str, int, float, bool, type(None))


def identity_of(value: Any) -> Any:
    """What tells one part of a row from another, in any process."""
    if value is None or value is False:
        return 0
    code = getattr(value, "__code__", None)
    if code is None:
        if isinstance(value, tuple):
            return tuple(map(identity_of, value))
        return value if isinstance(value, SIMPLE) else getattr(value, "__qualname__", type(value).__name__)
    cells = [c.cell_contents for c in value.__closure__ or ()]
    inside = [c if isinstance(c, SIMPLE) else getattr(c, "__qualname__", type(c).__name__) for c in cells]
    return value.__module__, value.__qualname__, code.co_firstlineno, inside, 0 if code.co_filename.startswith(HOME) else told(code)


def told(code: CodeType) -> str:
    """A hash of what a function does, wherever its file lies."""
    consts = [told(c) if isinstance(c, CodeType) else repr(sorted(map(repr, c)) if isinstance(c, frozenset) else c) for c in code.co_consts]
    return hashlib.sha256(code.co_code + repr((consts, code.co_names)).encode()).hexdigest()
