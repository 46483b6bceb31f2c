"""`torch.equal` and `torch.allclose`, and `n in (2, 3)` of a number from data: what comes of them only the run knows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pliant.bytecode import kinds as K
from pliant.graph.handlers import equal as truth_of_two
from pliant.graph.originals import ORIGINAL, math, operator, torch
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.traced import TracedTensor
from pliant.interpret import shadows
from pliant.interpret.calls import LOOKASIDES, METHOD_LOOKASIDES, graph_call
from pliant.interpret.capture import UNSET
from pliant.interpret.decode import given_on
from pliant.interpret.state import Break, by_value, vm, whole_loops
from pliant.symbolic import ops


def compared(fn: Any, overload: Any) -> Callable:
    """`torch.equal`, `torch.allclose`: C++ would want the answer at once, so the truth value is recorded here."""

    def look(args: tuple, kw: dict) -> Any:
        plain = len(args) >= 2 and all([type(x) is TracedTensor and x.pytype in PLAIN_TENSORS for x in args[:2]])
        settings = (*args[2:], *kw.values())
        if not plain or not whole_loops() or not all([type(v) in (float, int, bool) for v in settings]):
            return graph_call(fn, args, kw)
        fits = not settings if overload is EQUAL else len(settings) <= 3 and kw.keys() <= {"rtol", "atol", "equal_nan"}
        if not fits or torch._C._len_torch_function_stack():
            return graph_call(fn, args, kw)
        if args[0].dtype is not args[1].dtype:
            raise Break("PL0041", f"{fn.__name__} of two dtypes, which PyTorch refuses", clean=True)
        if vm.frame is not None:
            vm.frame.tail = False
        if by_value():
            return of_elements(fn, overload, args, kw)
        return truth_of_two(vm.trace, overload, args, kw)

    return look


def of_elements(fn: Any, overload: Any, args: tuple, kw: dict) -> Any:
    """The same of operators that all formats of an export have."""
    a, b = args[:2]
    if overload is EQUAL:
        if a.dtype is not b.dtype or a.storage_id == b.storage_id:  # it raises; NaN is equal to itself in the same memory
            return graph_call(fn, args, kw)
        if len(a.sizes) != len(b.sizes) or not all([vm.truth(m == n) for m, n in zip(a.sizes, b.sizes, strict=True)]):
            return False
    alike = graph_call(torch.eq if overload is EQUAL else torch.isclose, args, kw)
    return graph_call(ORIGINAL.item, (graph_call(torch.all, (alike,), {}),), {}, "item")


def as_floats(values: Any, args: tuple) -> list[Any] | None:
    """Expressions of floats, of which `max(...)` or `min(...)` is one: of floats alone, or beside integers where what comes of it goes
    to a function that wants a float (`math.exp(min(loss, 20))`). None: which of them it is would be seen by its type."""
    kinds = {*map(type, values)}
    if not kinds <= FLOATS:
        small = all([type(v) in FLOATS or type(v) is int and abs(v) < 2**53 for v in values])
        if not small or torch.SymFloat not in kinds or len(args) < 2 or not for_a_float(vm.frame, len(args)):
            return None
    return [expr_of(float(v) if type(v) is int else v, vm.scope) for v in values]


def for_a_float(f: Any, given: int) -> bool:
    """Whether what the call of `given` arguments, which this frame has begun, gives is the argument of `float` or a function of `math`."""
    if f is None or f.decoded.kinds[f.pc - 1] is not K.CALL or f.decoded.ins[f.pc - 1][1] != given:
        return False
    return any([v is fn for v in given_on(f)[1] for fn in OF_A_FLOAT])


FLOATS = {float, torch.SymFloat}
OF_A_FLOAT = (float, math.exp, math.log, math.log2, math.sqrt, math.tanh, math.sin, math.cos)


def is_one(v: Any, kinds: tuple[type, ...]) -> bool:
    """Whether it is exactly of one of these types; `in` would ask a metaclass of the program's."""
    t = type(v)
    return any([t is kind for kind in kinds])


def of_data(v: Any) -> bool:
    """Whether a symbolic number or truth comes from data."""
    t = type(v)  # `in` would ask a metaclass of the program's
    return (t is torch.SymInt or t is torch.SymFloat or t is torch.SymBool) and expr_of(v, vm.scope).hint is None


def comparable(values: tuple) -> bool:
    """Whether some of these come from data, and to compare them runs no code of the program. Symbolic numbers are of 64 bits."""
    plain = any(map(of_data, values)) and all([is_one(v, COMPARED) for v in values])
    return plain and not any([type(v) is int and v.bit_length() > 63 for v in values])


def among(c: Any, x: Any) -> Any:
    """`x in c` of a few numbers, some of which come from data: whether it is one, as one relation. UNSET where it is something else."""
    if not is_one(x, NUMBERS):
        return UNSET
    if type(c) is range and c.step == 1 and type(x) is torch.SymInt and of_data(x):
        return operator.and_(x >= c.start, x < c.stop)
    if not is_one(c, FEW_TYPES) or len(c) > FEW or not comparable((x, *c)) or any([same_float(x, y) for y in c]):
        return UNSET
    return any_of([x is y or x == y for y in c if type(y) in NUMBERS])


def among_keys(world: Any, h: Any, d: dict, x: Any) -> Any:
    """`x in d` of a number from data and a dict of few keys, all known; UNSET where it is something else."""
    keys = list(dict.keys(d))
    if not of_data(x) or type(d) is not dict or len(keys) > FEW or not all([is_one(k, (bool, *COMPARED)) for k in keys]):
        return UNSET
    if h is not None:
        shadows.length(world, h)
    return among([int(k) if type(k) is bool else k for k in keys], x)


def alike(fn: Any, a: Any, b: Any) -> Any:
    """`a == b` or `a != b` of two tuples or lists of plain values, some of which come from data, as one relation; UNSET where it is
    something else."""
    if not comparable((*a, *b)) or any(map(same_float, a, b)):
        return UNSET
    for h in [h for h in (vm.world.by_copy.get(id(x)) for x in (a, b)) if h is not None]:
        shadows.read_all(vm.world, h.copy)
    if len(a) != len(b):
        return fn is operator.ne
    other = any_of([differ(x, y) for x, y in zip(a, b, strict=True)])
    return other if fn is operator.ne else inverted(other)


def differ(x: Any, y: Any) -> Any:
    """Whether containers take two plain values for different ones."""
    return x is not y and (x != y if (type(x) in NUMBERS) is (type(y) in NUMBERS) else True)


def in_order(fn: Any, a: Any, b: Any) -> Any:
    """`a < b` and its like of two tuples or lists of plain values, some of which come from data: the first two that differ decide."""
    pairs = list(zip(a, b))
    if not comparable((*a, *b)) or any(map(same_float, a, b)) or len(pairs) > FEW:
        return UNSET
    if not all([type(x) in NUMBERS and type(y) in NUMBERS or type(x) is type(y) is str for x, y in pairs]):
        return UNSET
    for h in [h for h in (vm.world.by_copy.get(id(x)) for x in (a, b)) if h is not None]:
        shadows.read_all(vm.world, h.copy)
    found = fn(len(a), len(b))
    for x, y in reversed(pairs):
        other = differ(x, y)
        if other is True:
            found = fn(x, y)
        elif other is not False:
            found = operator.or_(operator.and_(other, fn(x, y)), operator.and_(inverted(other), found))
    return found


def inverted(v: Any) -> Any:
    """`not v`, of a truth, or of a number from data."""
    return to_sym(vm.scope, ops.not_(v.node.expr)) if type(v) is torch.SymBool else v == 0  # no mode is told, as of `torch.sym_not`


def same_float(x: Any, y: Any) -> bool:
    """Whether these may be one float: containers find what is there itself, also where it is NaN and equals nothing."""
    return type(x) is torch.SymFloat and type(y) is torch.SymFloat and expr_of(x, vm.scope) is expr_of(y, vm.scope)


def any_of(truths: list[Any]) -> Any:
    """Whether one of these is true, as one relation; each may be a symbol."""
    return True if any([t is True for t in truths]) else functools.reduce(operator.or_, [t for t in truths if t is not False], False)


def computes_nothing_else(items: Any) -> bool:
    """Whether all items of `any(...)` may be worked out, though CPython stops at the first that decides: they are there already."""
    return is_one(items, (list, tuple)) and all([is_one(x, PLAIN_TRUTHS) for x in items])


FEW_TYPES = (tuple, list, set, frozenset)
FEW = 64
NUMBERS = (int, float, torch.SymInt, torch.SymFloat)
COMPARED = (*NUMBERS, str, bytes, type(None))  # which run no code of the program, and those that are no numbers equal none
PLAIN_TRUTHS = (*COMPARED, bool, torch.SymBool)
WALKERS: tuple[type, ...] = (type(iter(())), type(iter([])), type(iter(set())), type(iter(range(0))))
QUIET = {
    K.NOP, K.RESUME, K.POP, K.COPY, K.SWAP, K.LOAD_CONST, K.LOAD_LOCAL, K.STORE_LOCAL, K.COPY_FREE_VARS, K.LOAD_DEREF, K.JUMP, K.FOR_ITER,
    K.JUMP_IF_TRUE, K.JUMP_IF_FALSE, K.JUMP_IF_TRUE_OR_POP, K.JUMP_IF_FALSE_OR_POP, K.RETURN, K.RETURN_GENERATOR, K.YIELD, K.COMPARE, K.IS,
    K.CONTAINS, K.NOT, K.BUILD_TUPLE, K.BUILD_LIST, K.TO_BOOL, K.END_FOR, K.STOP_ITERATION_ERROR, K.RERAISE,
}  # fmt: skip
"""What a generator is made of that compares values."""

PLAIN_TENSORS = (torch.Tensor, torch.nn.Parameter)
EQUAL = torch.ops.aten.equal.default
for _compare, _overload in ((torch.equal, EQUAL), (torch.allclose, torch.ops.aten.allclose.default)):
    LOOKASIDES[_compare] = _look = compared(_compare, _overload)
    METHOD_LOOKASIDES[(torch.Tensor, _compare.__name__)] = functools.partial(lambda look, t, a, k: look((t, *a), k), _look)
