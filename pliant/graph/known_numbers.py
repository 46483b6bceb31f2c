"""What is known of the number in a tensor of one element: it was read before, or sizes and such numbers alone decide it.

`t.item()` twice is one symbol, `(t == n).item()` is the relation `u0 == n`, and `torch.div(n, 8, rounding_mode="floor")` is an expression
of the size. All this holds while nothing has written to the memory in question.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

import torch

from pliant.graph.operators import Column
from pliant.graph.originals import ORIGINAL, operator
from pliant.graph.rules.shape import same
from pliant.graph.same_values import equal_always, makers
from pliant.graph.schema import written
from pliant.graph.symnode import expr_of
from pliant.graph.traced import TracedTensor, is_lazy
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

aten = torch.ops.aten
INTS = (int, torch.SymInt)


def remember(trace: Any, x: TracedTensor, symbol: Expr) -> None:
    trace.items.setdefault(x.storage_id, {})[x.vid] = symbol
    trace.read_from[x.vid] = x


def known_number(trace: Any, x: TracedTensor) -> Any:
    """The number in `x`, a tensor of one element, or None."""
    items = trace.items.get(x.storage_id, {})
    found = items.get(x.vid)
    if found is None and items and x.storage_id not in trace.moving:
        found = next((n for vid, n in items.items() if of_one_place(trace.read_from[vid], x)), None)
    if found is not None:
        trace.recalled += 1
        return found
    return computed(trace, x, len(trace.ops))


def of_one_place(a: TracedTensor, b: TracedTensor) -> bool:
    """Whether two tensors of one element, over one memory, are the same bytes read in the same way: `t[i]` and `t[i]`. Not floats: a NaN
    that is read twice is two objects, and one of them is not in a list of the other."""
    whole = a.dtype is b.dtype and not (a.dtype.is_floating_point or a.dtype.is_complex)
    return whole and same(a.offset, b.offset) and not (is_lazy(a) or is_lazy(b))


def counted(trace: Any, x: TracedTensor, until: int) -> Any:
    """The number in `x` before operation `until`: what the guards have read in an input, or what it was made of, and what was added since.

    None if unknown. Whole numbers far below the precision of any dtype: so a step that counts is counted as exactly as by eager.
    """
    if x.sizes or x.storage_id in trace.moving or x.dtype not in COUNTED:
        return None
    is_input = any(map(operator.is_, trace.inputs, repeat(x)))
    if trace.entry_number is None if is_input else not is_constant(trace, x):
        return None
    base: Any = None
    added = 0
    for op in trace.ops[:until]:
        if writes(op, x):
            n = addend(trace, op, x)
            if n is None:
                return None
            added += n
        elif not is_input and op.target is CONSTANT and op.outs[0] is x:
            base = ORIGINAL.item(op.args[0].constant)
            if base != base // 1 or abs(base) >= SMALL:
                return None
    if is_input:
        base = trace.entry_number(x)
    return None if base is None else base + (float(added) if x.dtype.is_floating_point else added)


def is_constant(trace: Any, x: TracedTensor) -> bool:
    """Whether `x` began as a number that the program wrote down."""
    at = maker(trace, x)
    return at is not None and trace.ops[at].target is CONSTANT


def addend(trace: Any, op: Any, x: TracedTensor) -> int | None:
    """The small whole number that an operation adds to `x` in place, or None."""
    if op.target not in ADDITIONS or op.kwargs.get("alpha", 1) != 1 or len(op.args) != 2:
        return None
    n = op.args[1]
    same = [t for t in written(op) if t.storage_id == x.storage_id]
    if type(n) is TracedTensor:
        data = trace.known.get(n.storage_id)
        n = ORIGINAL.item(data) if data is not None and ORIGINAL.numel(data) == 1 else None
    return int(n) if len(same) == 1 and same[0] is x and type(n) in (int, float) and n == n // 1 and abs(n) < SMALL else None


def computed(trace: Any, x: TracedTensor, until: int) -> Any:
    """The number in `x` as it is before operation `until`, by the operation that made it."""
    if x.sizes or x.dtype not in (torch.int64, torch.bool) or x.storage_id in trace.moving:
        return None
    at = maker(trace, x)
    if at is None or at >= until or trace.ops[at].target is CONSTANT:
        return None
    for op in trace.ops[at + 1 : until]:
        if any(map(operator.is_, op.outs, repeat(x))) or writes(op, x):
            return None
    op = trace.ops[at]
    rule = NUMBERS.get(op.target)
    found = rule(Reader(trace, at), *op.args, **op.kwargs) if rule is not None else None
    kind = bool if x.dtype is torch.bool else int
    return found if type(found) is kind or type(found) is Expr and found.kind is kind else None


def maker(trace: Any, x: TracedTensor) -> int | None:
    """Which operation made `x`, if it is one of `NUMBERS` or gave a constant. Each operation is looked at once."""
    made = trace.ops
    n, latest = trace.looked_at
    if n and (n > len(made) or made[n - 1] is not latest):  # some were taken back
        n = 0
    for i in range(n, len(made)):
        if made[i].target in NUMBERS or made[i].target is CONSTANT:
            trace.makers[made[i].outs[0].vid] = i
    trace.looked_at = len(made), made[-1] if made else None
    at = trace.makers.get(x.vid)
    return at if at is not None and at < len(made) and made[at].outs[0] is x else None


def writes(op: Any, x: TracedTensor) -> bool:
    return any([t.storage_id == x.storage_id for t in written(op)])


class Reader:
    """Reads the operands of operation number `at`."""

    __slots__ = ("at", "trace")

    def __init__(self, trace: Any, at: int) -> None:
        self.trace = trace
        self.at = at

    def number(self, a: Any) -> Any:
        """An operand as an expression, or None: an int, or what was in an int64 tensor when the operation ran."""
        trace = self.trace
        if type(a) in INTS:
            return expr_of(a, trace.scope)
        if type(a) is not TracedTensor or a.dtype is not torch.int64 or a.sizes:
            return None
        found = trace.items.get(a.storage_id, {}).get(a.vid)
        if found is None:
            found = computed(trace, a, self.at)
            return counted(trace, a, self.at) if found is None else found
        if any([writes(op, a) for op in trace.ops[self.at :]]):
            return None  # it was read after that
        trace.recalled += 1
        return found


def quotient(reader: Reader, a: Any, b: Any, rounding_mode: Any) -> Any:
    scope, p, q = reader.trace.scope, reader.number(a), reader.number(b)
    if p is None or q is None:
        return None
    whole = rounding_mode == "floor" or rounding_mode == "trunc" and scope.known_true(ops.ge(p, 0))
    return ops.floordiv(p, q) if whole and scope.known_true(ops.gt(q, 0)) else None


def compared(relation: Callable[[Any, Any], Any]) -> Callable[[Reader, Any, Any], Any]:
    def of(reader: Reader, a: Any, b: Any) -> Any:
        p, q = reader.number(a), reader.number(b)
        return relation(p, q) if p is not None and q is not None else None

    return of


def all_equal(reader: Reader, x: Any) -> Any:
    """`torch.eq(a, b).all()` of what holds the same values."""
    made = makers(reader.trace).get(x.vid) if type(x) is TracedTensor and x.dtype is torch.bool else None
    operands = made.args if made is not None and made.target is aten.eq.Tensor and not made.kwargs else ()
    whole = len(operands) == 2 and all([type(t) is TracedTensor for t in operands])
    return True if whole and equal_always(reader.trace, *operands) and not any([writes(op, x) for op in reader.trace.ops]) else None


NUMBERS = Column("number")
"""(reader, operands) -> the number that it makes, or None."""
NUMBERS.update({
    aten.all.default: all_equal,
    aten.div.Tensor_mode: quotient,
    aten.scalar_tensor.default: lambda reader, n, **kwargs: reader.number(n),
    **{
        getattr(getattr(aten, name), overload): compared(getattr(ops, name))
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
        for overload in ("Scalar", "Tensor")
    },
})

CONSTANT = aten.lift_fresh_copy.default
COUNTED = {torch.float32, torch.float64, torch.int64, torch.int32}
SMALL = 1 << 16
ADDITIONS = {aten.add_.Tensor, aten.add_.Scalar, aten._foreach_add_.Scalar, aten._foreach_add_.Tensor}
