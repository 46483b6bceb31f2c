"""Generator expressions of which data decides what they give: `sum(1 for v in scores if v > 0)`, `any(v > 2 for v in x)`,
`next((i for i, v in enumerate(scores) if v > 0), -1)`.

Where all that such an expression does is to compare and add plain values and tensors of one element, nobody sees how far it is asked.
Then all its rounds are worked out, both ways where a branch is on data, and what it gives is a list of items, each with the condition on
which it is given (`rounds`). What reads it is one relation.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

from pliant.bytecode import kinds as K
from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.symnode import expr_of, to_sym, truth
from pliant.graph.traced import TracedTensor
from pliant.interpret import globalstate
from pliant.interpret.calls import graph_call
from pliant.interpret.capture import UNSET
from pliant.interpret.comparisons import COMPARED, FEW_TYPES, NUMBERS, PLAIN_TENSORS, QUIET, WALKERS, inverted, is_one, of_data
from pliant.interpret.generators import Generator
from pliant.interpret.state import Break, Frame, vm
from pliant.interpret.types import tensors
from pliant.symbolic import DataDependent, ops

MOST_ROUNDS = 64
MOST_WAYS = 8
"""Ways through one round."""
ITERATORS = (*WALKERS, type(iter(torch.Size(()))))
CHAINED = (zip, enumerate)
DOES = QUIET | {K.UNPACK_SEQUENCE, K.LOAD_GLOBAL, K.BINARY, K.UNARY, K.LOAD_ITEM}
DIVIDING = (operator.mod, operator.floordiv)
ARITHMETIC = (operator.add, operator.sub, operator.mul)


class Unfit(Exception):
    """The generator does something else."""


def rounds(args: tuple) -> list[tuple[Any, Any]] | None:
    """All items that a generator, the first of the arguments of a call, may give, in their order, each with the truth on which it does;
    None where somebody could see that it was asked for all of them, or that it was not. The generator itself has not moved."""
    if type(args[0]) is not Generator or args[0].started or args[0].left is not None or vm.asking or globalstate.user_modes():
        return None
    f = args[0].frame
    if f.code.co_name != "<genexpr>" or not DOES.issuperset(f.decoded.kinds) or is_held(args):
        return None
    frame = vm.frame
    try:
        return Rounds(f, frame).all()
    except (Unfit, Break, DataDependent, TypeError, ValueError, IndexError, RuntimeError, ArithmeticError) as e:
        if vm.internal_error(e):
            raise
        return None
    finally:
        vm.frame = frame


def is_held(args: tuple) -> bool:
    """Whether anybody else than this call, whose first argument it is, has the generator, so that what is left of it may be asked for."""
    own = (object(),)
    stack = vm.frame.stack if vm.frame is not None else []
    return sys.getrefcount(args[0]) - sys.getrefcount(own[0]) > sum([v is args[0] for v in stack])


class Rounds:
    def __init__(self, f: Frame, caller: Any) -> None:
        self.f = f
        self.caller = caller
        self.given: list[tuple[Any, Any]] = []

    def all(self) -> list[tuple[Any, Any]]:
        f = self.f
        at = [i for i in range(len(f.fast)) if is_one(f.fast[i], (*ITERATORS, *CHAINED))]
        if len(at) != 1 or f.code.co_varnames[at[0]] != ".0":
            raise Unfit
        items = self.items(f.fast, at[0])
        g = self.fork(f)
        g.stack.append(None)  # what is sent at first
        ended = iter(())
        g.fast[at[0]] = ended
        vm.frame = g
        self.to_header(g, True)
        if g.stack[-1] is not ended:
            raise Unfit
        header = g.pc
        for x in items:
            g = self.round(g, header, x)
        return self.given

    def items(self, fast: list, i: int) -> list[Any]:
        """What the generator walks."""
        own = [iter(())]
        if sys.getrefcount(fast[i]) - (id(fast[i]) in vm.world.walks) > sys.getrefcount(own[0]):
            raise Unfit  # somebody else goes on with it
        items = list(copied(fast[i]))
        if len(items) > MOST_ROUNDS:
            raise Unfit
        return items

    def round(self, g: Frame, header: int, x: Any) -> Frame:
        """One round, on all ways: the frame at its end."""
        first = self.fork(g)
        first.stack.append(x)
        first.pc = header + 1
        ways, ends = [(first, True)], []
        while ways:
            way, condition = ways.pop()
            c = self.to_header(way, condition)
            if c is None:
                ends.append(way)
                continue
            kind, at = way.decoded.kinds[way.pc], way.decoded.ins[way.pc][1]
            for side in (True, False):
                other = self.fork(way)
                jumps = side is JUMPS[kind]
                if not jumps or kind not in KEEPS:
                    other.stack.pop()
                other.pc = at if jumps else way.pc + 1
                ways.append((other, both(condition, c if side else inverted(c))))
            if len(ways) + len(ends) > MOST_WAYS:
                raise Unfit
        end = ends[0]
        for other in ends:
            same = all([v is w for v, w in zip(other.fast, end.fast, strict=True)])
            if other.pc != header or len(other.stack) != len(end.stack) or not same:
                raise Unfit
        return end

    def fork(self, g: Frame) -> Frame:
        other = Frame(g.decoded, g.func, list(g.fast), g.globals)
        other.pc, other.stack, other.parent = g.pc, list(g.stack), self.caller
        return other

    def to_header(self, g: Frame, condition: Any) -> Any:
        """Run the frame to the header of its loop: None, or to a branch on data: its truth."""
        vm.frame = g
        kinds, ins = g.decoded.kinds, g.ins
        while kinds[g.pc] is not K.FOR_ITER:
            kind, (handler, a) = kinds[g.pc], ins[g.pc]
            if kind in JUMPS:
                v = plain_truth(g.stack[-1])
                if of_data(v):
                    return v if type(v) is torch.SymBool else v != 0
                if v is not g.stack[-1]:
                    raise Unfit
            elif kind is K.YIELD:
                self.given.append((condition, g.stack[-1]))
                g.stack[-1] = None  # what is sent
                g.pc += 1
                continue
            elif kind in CHECKED and not CHECKED[kind](g.stack, a):
                raise Unfit
            elif kind is K.RETURN or kind is K.RERAISE:
                raise Unfit
            g.pc += 1
            handler(g, a)
        return None


def copied(it: Any) -> Any:
    """What an iterator has yet to give, which stays there."""
    if not is_one(it, CHAINED):
        if not is_one(it, ITERATORS):
            raise Unfit
        return copy.copy(it)
    make, given, *strict = it.__reduce__()
    if make is enumerate:
        hold_to_own(make, given, 0)
        return enumerate(copied(given[0]), *given[1:])
    if strict:  # about lengths
        raise Unfit
    for i in range(len(given)):
        hold_to_own(make, given, i)
    return zip(*map(copied, given), strict=False)


def hold_to_own(make: Any, given: tuple, i: int) -> None:
    """An iterator that another one asks is nobody else's."""
    kept = make(iter(()))
    alike = kept.__reduce__()[1]
    if sys.getrefcount(given[i]) - (id(given[i]) in vm.world.walks) > sys.getrefcount(alike[0]):
        raise Unfit


def plain_truth(v: Any) -> Any:
    """What a branch asks of a value: of a tensor of one element the number in it."""
    if type(v) is not TracedTensor:
        return v
    if not is_plain_tensor(v) or not all([type(n) is int and n == 1 for n in v.sizes]):
        raise Unfit
    return graph_call(ORIGINAL.item, (v,), {}, "item")


def is_plain_tensor(v: Any) -> bool:
    return type(v) is TracedTensor and v.pytype in PLAIN_TENSORS and not tensors.of_class(v)


def is_plain(v: Any) -> bool:
    return is_one(v, (bool, torch.SymBool, *COMPARED)) or is_plain_tensor(v)


def is_known_list(v: Any) -> bool:
    return is_one(v, FEW_TYPES) and id(v) not in vm.world.by_copy and id(v) not in vm.world.outside and all(map(is_plain, v))


def takes_item(s: list[Any], a: Any) -> bool:
    o, k = s[-2:]
    if is_plain_tensor(o):
        return type(k) is int and k >= 0 and bool(o.sizes) and not of_data(o.sizes[0]) and vm.truth(o.sizes[0] > k)
    if type(k) is not int or type(o) not in (list, tuple) or not is_known_list(o):
        return False
    return -len(o) <= k < len(o)


def computes(s: list[Any], fn: Any) -> bool:
    if not is_one(s[-1], NUMBERS) or not is_one(s[-2], NUMBERS):
        return False
    return any([fn is f for f in ARITHMETIC]) or any([fn is f for f in DIVIDING]) and type(s[-1]) is int and s[-1] != 0


CHECKED = {
    K.COMPARE: lambda s, a: is_plain(s[-1]) and is_plain(s[-2]),
    K.CONTAINS: lambda s, a: is_plain(s[-2]) and is_known_list(s[-1]),
    K.NOT: lambda s, a: is_plain(s[-1]),
    K.BINARY: computes,
    K.UNARY: lambda s, a: a is operator.neg and is_one(s[-1], NUMBERS),
    K.LOAD_ITEM: takes_item,
    K.UNPACK_SEQUENCE: lambda s, a: type(s[-1]) in (tuple, list) and len(s[-1]) == a,
    K.RETURN_GENERATOR: lambda s, a: False,
}  # fmt: skip
"""What holds of the operands, or code of the program may run, or the instruction may raise."""
JUMPS = {K.JUMP_IF_TRUE: True, K.JUMP_IF_FALSE: False, K.JUMP_IF_TRUE_OR_POP: True, K.JUMP_IF_FALSE_OR_POP: False}
KEEPS = {K.JUMP_IF_TRUE_OR_POP, K.JUMP_IF_FALSE_OR_POP}


def both(a: Any, b: Any) -> Any:
    return b if a is True else operator.and_(a, b)


# -- what reads them ------------------------------------------------------------------------------------------------------
def truths(given: list[tuple[Any, Any]], wanted: bool) -> list[Any] | None:
    """Of each item, whether it is given, and its truth is `wanted`; None where an item is something else than a plain value."""
    if not all([is_plain(v) for _, v in given]):
        return None
    found = []
    for condition, v in given:
        v = plain_truth(v)
        told = (v if type(v) is torch.SymBool else v != 0) if of_data(v) else bool(v)
        if not wanted:
            told = inverted(told)
        found.append(condition if told is True else False if told is False else both(condition, told))
    return found


def total(given: list[tuple[Any, Any]], start: Any) -> Any:
    """The sum of integers that are given, or UNSET."""
    if all([c is True for c, _ in given]) or not all([is_one(v, INTS) for _, v in given]) or not is_one(start, INTS):
        return UNSET
    e = whole(start)
    for condition, v in given:
        added = ops.add(e, whole(v))
        e = added if condition is True else ops.where(expr_of(condition, vm.scope), added, e)
    return to_sym(vm.scope, e)


INTS = (int, bool, torch.SymInt, torch.SymBool)


def whole(v: Any) -> Any:
    return ops.to_int(expr_of(v, vm.scope))


def first(args: tuple, default: Any) -> Any:
    """The first item that is given, else the default: of numbers of one type. Or UNSET."""
    given = rounds(args)
    if not given or all([c is True for c, _ in given]):
        return UNSET
    kinds = {KINDS.get(type(v)) for v in (default, *[v for _, v in given])}
    if len(kinds) > 1 or None in kinds:
        return UNSET
    e = expr_of(default, vm.scope)
    for condition, v in reversed(given):
        e = expr_of(v, vm.scope) if condition is True else ops.where(truth(expr_of(condition, vm.scope)), expr_of(v, vm.scope), e)
    return to_sym(vm.scope, e)


KINDS = {int: int, float: float, torch.SymInt: int, torch.SymFloat: float}
