"""Values that loops and branches on data carry from block to block, and give: what stands for one that may be either of two."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pliant.graph.control_flow import number_of
from pliant.graph.dispatch import same
from pliant.graph.growing import new_size
from pliant.graph.layout import contiguous_strides
from pliant.graph.symnode import SYMS, expr_of, to_sym
from pliant.graph.traced import TracedTensor, make
from pliant.interpret.capture import UNSET
from pliant.interpret.grown_lists import NUMBERS, PLAIN, Grown
from pliant.interpret.state import by_value, vm
from pliant.interpret.subprograms import Open
from pliant.interpret.types.numbers import floating
from pliant.interpret.world import TENSOR_TYPES
from pliant.symbolic import ops


def equal(a: Any, b: Any) -> bool:
    """Whether two values are the same one."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if type(a) in SYMS:
        return a.node.expr is b.node.expr
    if type(a) is tuple:
        return len(a) == len(b) and all(map(equal, a, b))
    return type(a) in (int, float, bool, str) and repr(a) == repr(b)


def join(first: Any, stands: Any, now: Any, carried: bool, name: str, before: set[str]) -> Any:
    """What stands for a carried value that is `stands` at the beginning of a round and `now` at its end."""
    kind = NUMBERS.get(type(first))
    if kind is not None:
        if NUMBERS.get(type(now)) is not kind:
            raise Open(f"{name} changes its type")
        return stands if carried else to_sym(vm.scope, vm.trace.unbacked(kind))
    if type(first) is not TracedTensor or type(now) is not TracedTensor:
        raise Open(f"{name}, a {type(first).__name__}, is another in the next round")
    sizes = tuple([m if is_new(m, before) else n for m, n in zip(stands.sizes, alike(stands, now, name), strict=True)])
    settled = same(stands.offset, now.offset) or is_new(stands.offset, before)
    if carried and settled and all(map(same, sizes, stands.sizes)):
        return stands
    return tensor(stands, sizes, stands.offset if settled else new_size(vm.trace))


def alike(a: TracedTensor, b: TracedTensor, name: str) -> tuple:
    """The sizes of what may be either tensor: a new symbol where they differ."""
    if a.dtype is not b.dtype or a.device != b.device or len(a.sizes) != len(b.sizes) or a.pytype is not b.pytype:
        raise Open(f"{name} changes its dtype or number of dims")
    if a.pytype not in TENSOR_TYPES:  # the class is given behind the graph, to an object of its own for each result
        raise Open(f"{name} is a {a.pytype.__name__}, and may be one object with another")
    if (a.requires_grad or b.requires_grad) and not vm.differentiates:
        raise Open("gradients flow through it")
    if vm.trace.lazy_bits:
        raise Open("a tensor is the conjugate of its memory")
    sizes = tuple([m if same(m, n) or known_equal(m, n) else new_size(vm.trace) for m, n in zip(a.sizes, b.sizes, strict=True)])
    if not by_value() and not (a.dense and b.dense) and not (all(map(same, a.sizes, b.sizes)) and all(map(same, a.strides, b.strides))):
        raise Open(f"{name} changes its strides")
    return sizes


def known_equal(m: Any, n: Any) -> bool:
    return vm.scope.known_true(ops.eq(expr_of(m, vm.scope), expr_of(n, vm.scope)))


def is_new(n: Any, before: set[str]) -> bool:
    """Whether a size, or an offset, is a symbol that a loop made for one, and not yet there `before`."""
    e = number_of(n)
    return e is not None and e.op == "sym" and e.name in vm.trace.flow_sizes and e.name not in before


def tensor(like: TracedTensor, sizes: tuple, offset: Any) -> TracedTensor:
    """A new tensor with this layout."""
    dense = like.dense or by_value()
    strides = contiguous_strides(sizes) if dense else like.strides
    x = make(vm.trace, sizes, strides, like.dtype, offset, None, like.device, dense)
    x.pytype = like.pytype
    vm.trace.flow_results.add(x.vid)  # two that are carried may be one object
    return x


def apart(values: Iterable[Any]) -> None:
    """Raises `Open` where two of the values at the end of a way are one list."""
    tokens = [v.token.vid for value in values for v in flat(value)[0] if type(v) is Grown]
    if len({*tokens}) < len(tokens):
        raise Open("two of its variables are one list")


def parts(value: Any) -> Any:
    """A carried value as a flow knows it. Raises `Open` for a list with items that its program cannot make."""
    if type(value) is Grown:
        value = value.parts()
    elif type(value) is list:
        value = (None, *value)
    else:
        return None if value is UNSET else value
    if not all(map(printable, value)):
        raise Open("it appends something else than tensors and numbers to a list")
    return value


def printable(v: Any) -> bool:
    if type(v) is tuple:
        return all(map(printable, v))
    if type(v) is TracedTensor:
        if v.requires_grad:
            raise Open("gradients flow through it")
        return True
    return type(v) in PLAIN or type(v) in SYMS


def flat(value: Any) -> tuple[list[Any], Any]:
    """The leaves of nested tuples, and how they are nested."""
    if type(value) is tuple:
        parts = [flat(v) for v in value]
        return [x for leaves, _ in parts for x in leaves], (tuple, *[kind for _, kind in parts])
    return [value], type(value) if type(value) in (TracedTensor, Grown) else NUMBERS.get(type(value)) or id(value)


def rebuilt(value: Any, leaves: list[Any]) -> Any:
    """`value` with these leaves."""
    if type(value) is not tuple:
        return leaves[0]
    parts = []
    for v in value:
        n = len(flat(v)[0])
        parts.append(rebuilt(v, leaves[:n]))
        leaves = leaves[n:]
    return tuple(parts)


def of_the_call(x: Any) -> Any:
    """A float from outside that is known by its worth, as the one that the call has there: what may be it is that very object then."""
    found = vm.world.constants_at.get(id(x)) if type(x) is float else None
    return x if found is None or found[0] is not x else floating(vm.world, x, found[1], changes=True)


def merged(values: list[Any], name: str, outer: Any) -> Any:
    """A result that may be any of these values."""
    first = values[0]
    kind = NUMBERS.get(type(first))
    if kind is not None:
        return to_sym(vm.scope, vm.trace.unbacked(kind))
    if type(first) is not TracedTensor:
        raise Open(f"{name}, a {type(first).__name__}, is another behind it")
    sizes = first.sizes
    for v in values:
        sizes = tuple([m if same(m, n) else new_size(vm.trace) for m, n in zip(sizes, alike(first, v, name), strict=True)])
    if not by_value() and not first.dense and not all(map(outer, first.strides)):
        raise Open(f"{name} changes its strides")
    offset = first.offset if outer(first.offset) and all([same(v.offset, first.offset) for v in values]) else new_size(vm.trace)
    return tensor(first, tuple([s if outer(s) else new_size(vm.trace) for s in sizes]), offset)


__all__ = ["alike", "apart", "equal", "flat", "is_new", "join", "merged", "of_the_call", "parts", "rebuilt", "tensor"]
