"""What CPython would do for one instruction, in the normalized form of `capture.BreakExit.action`.

A row takes the frame as it was before the instruction (operands on the stack) and gives
`(action, number of operands to remove, number of results pushed, byte offset to go on at)`.
"""

from __future__ import annotations

import builtins
import sys
import types
from collections.abc import Callable
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import intrinsic
from pliant.bytecode.kinds import Kind
from pliant.bytecode.version import CALLABLE_FIRST, JUMPS_ASK
from pliant.graph.originals import operator, torch
from pliant.graph.symnode import SYMS
from pliant.interpret import loggers, output, runtime, shadows
from pliant.interpret.capture import AND_NULL, NULL
from pliant.interpret.generators import METHODS, Generator
from pliant.interpret.opcodes import KNOWN_BY_WORTH, OPAQUE_TYPES, super_operands
from pliant.interpret.opcodes_build import call_ex_operands, call_kw_operands, call_operands, callee, spread_operands
from pliant.interpret.opcodes_newer import exit_operands
from pliant.interpret.state import vm

Row = tuple[tuple, int, int]


def native_action(f: Any) -> tuple[tuple, int, int, int]:
    """The action of the instruction that frame `f` has just fetched."""
    i = f.pc - 1
    kind = f.decoded.kinds[i]
    action, pops, pushes = ACTIONS[kind](f, f.decoded.ins[i][1])
    return action, pops, pushes, f.decoded.offsets[i + 1] if i + 1 < len(f.decoded.offsets) else -1


def at(f: Any, index: int) -> int:
    return f.decoded.offsets[index]


def following(f: Any) -> int:
    return f.decoded.offsets[f.pc]


def call(f: Any, n: int) -> Row:
    fn, args, kw = call_operands(f, n)
    f.kw = ()
    return real_call(f, fn, args, kw), n + 2, 1


def real_call(f: Any, fn: Any, args: tuple, kw: dict) -> tuple:
    """The call as CPython must make it from another frame: what looks at its caller gets this frame's names."""
    if type(fn) is types.FunctionType and fn in METHODS:  # methods of the proxy become those of the generator
        return ("call", runtime.call_method, (args[0], fn.__name__, *args[1:]), kw)
    if type(fn) is types.MethodType and type(fn.__self__) is Generator:
        return ("call", runtime.call_method, (fn.__self__, fn.__name__, *args), kw)
    told = output.real_call(f, args, kw) if fn is output.WARN else loggers.real_call(f, fn, args, kw)
    if told is not None:
        return told
    if fn is builtins.globals and not args and not kw:
        return ("call", runtime.globals_of, (f.func,), {})
    if fn is builtins.eval or fn is builtins.exec:
        args, kw = names_by_position(args, kw)
    if (fn is builtins.eval or fn is builtins.exec) and args and not any([given is not None for given in args[1:2]]):
        names = args[2] if len(args) == 3 and args[2] is not None else names_for(f, fn, args[0])
        return ("call", runtime.evaluate, (fn, args[0], f.func, names), kw)
    if fn is builtins.dir and not args:
        return ("call", sorted, (vm.locals(f),), {})
    if (fn is builtins.locals or fn is builtins.vars) and not args and not kw:
        return ("call", dict, (vm.locals(f),), {})
    if (fn is operator.is_ or fn is operator.is_not) and len(args) == 2:
        not_of_numbers(*args)
    if fn is super and not args and not kw:
        try:
            return ("call", super, super_operands(f) or (), {})
        except NameError:  # an empty cell
            pass
    return ("call", fn, args, kw)


def names_for(f: Any, fn: Any, source: Any) -> dict:
    """The dict of the frame's names, for text that is run there. What can neither bind a name nor call leaves no trace in it."""
    shown = f.shown
    names = vm.locals(f)
    if fn is builtins.eval and type(source) is str and "(" not in source and ":=" not in source:
        f.shown = shown
    return names


def names_by_position(args: tuple, kw: dict) -> tuple[tuple, dict]:
    """The operands of `eval` or `exec` whose names are given by keyword, as CPython takes them since 3.13."""
    if sys.version_info < (3, 13) or not 1 <= len(args) <= 2 or not {"globals", "locals"}.intersection(kw):
        return args, kw
    if len(args) == 1:
        args = (*args, kw.get("globals"))
    elif "globals" in kw:  # twice: an error
        return args, kw
    return (*args, kw.get("locals")), {k: v for k, v in kw.items() if k not in ("globals", "locals")}


def unread(d: dict) -> bool:
    """Whether this is a dict from outside of which nobody can guard which keys it has."""
    h = vm.world.by_copy.get(id(d))
    return h is not None and not h.keys_known and shadows.keyed_by_objects(h.orig)


def call_ex(f: Any, flags: int) -> Row:
    fn, args, kw = spread_operands(f, flags)
    if type(args) is tuple and type(kw) is dict and not unread(kw):
        fn, args, kw = call_ex_operands(f, flags)
        return real_call(f, fn, args, kw), 4 if flags & 1 else 3, 1
    return ("call", runtime.call_ex, (fn, args, kw), {}), 4 if flags & 1 else 3, 1


def function(fn: Callable, operands: int, pushes: int = 1, *, order: tuple[int, ...] | None = None) -> Callable[[Any, Any], Row]:
    """An instruction that is one call on its operands, deepest first unless `order` says otherwise."""

    def row(f: Any, a: Any) -> Row:
        s = f.stack
        args = [s[i - operands] for i in range(operands)]
        if order is not None:
            args = [args[i] for i in order]
        return ("call", fn, tuple(args), {}), operands, pushes

    return row


def named(fn: Callable, operands: int, pushes: int = 1) -> Callable[[Any, Any], Row]:
    """An attribute instruction: `fn(object, name[, value])`."""

    def row(f: Any, name: str) -> Row:
        s = f.stack
        extra = (s[-2],) if operands == 2 else ()
        return ("call", fn, (s[-1], name, *extra), {}), operands, pushes

    return row


def load_method(f: Any, name: str) -> Row:
    """The frame goes on with NULL and the bound method."""
    o = f.stack[-1]
    if CALLABLE_FIRST:
        return ("call", getattr, (o, name), {}), 1, AND_NULL
    f.stack[-1] = NULL
    f.stack.append(o)
    return ("call", getattr, (o, name), {}), 1, 1


def super_attr(f: Any, a: tuple[str, int]) -> Row:
    return ("call", runtime.super_attribute, (*f.stack[-3:], a[0], bool(a[1] & 2)), {}), 3, 1


def super_method(f: Any, a: tuple[str, int]) -> Row:
    s = f.stack
    action: tuple = ("call", runtime.super_attribute, (*s[-3:], a[0], bool(a[1] & 2)), {})
    if CALLABLE_FIRST:
        return action, 3, AND_NULL
    s[-3] = NULL
    return action, 2, 1


def load_slice(f: Any, a: Any) -> Row:
    s = f.stack
    return ("call", operator.getitem, (s[-3], slice(s[-2], s[-1])), {}), 3, 1


def store_slice(f: Any, a: Any) -> Row:
    s = f.stack
    return ("call", operator.setitem, (s[-3], slice(s[-2], s[-1]), s[-4]), {}), 4, 0


def call_kw(f: Any, n: int) -> Row:
    fn, args, kw = call_kw_operands(f, n)
    return real_call(f, fn, args, kw), n + 3, 1


def with_operator(f: Any, fn: Callable) -> Row:
    s = f.stack
    return ("call", fn, (s[-2], s[-1]), {}), 2, 1


def comparison(f: Any, fn: Callable) -> Row:
    """Where a jump or `not` follows at once, they are given the truth of it: since 3.13 CPython's take True and False alone."""
    s = f.stack
    if f.pc < len(f.decoded.kinds) and f.decoded.kinds[f.pc] in OF_TRUTH:
        return ("call", runtime.truth_of, (fn, s[-2], s[-1]), {}), 2, 1
    return with_operator(f, fn)


OF_TRUTH = (K.JUMP_IF_TRUE, K.JUMP_IF_FALSE, K.NOT)


def contains(f: Any, invert: int) -> Row:
    s = f.stack
    return ("call", runtime.not_contains if invert else operator.contains, (s[-1], s[-2]), {}), 2, 1


def not_of_numbers(a: Any, b: Any) -> None:
    """Behind a break a number may be another object that is equal: only the frame as it was called can tell whether two are one."""
    if all([is_small(v) for v in (a, b)]):
        return
    made_again = [type(v) in KNOWN_BY_WORTH or type(v) in SYMS for v in (a, b)]
    if all(made_again) or any(made_again) and (type(a) in OPAQUE_TYPES or type(b) in OPAQUE_TYPES):
        raise vm.left_to_python("whether two equal numbers are one object")


def is_small(v: Any) -> bool:
    """Whether this is an int of which CPython has one alone: a guard, if it is symbolic."""
    if type(v) is torch.SymInt and all([s.backed for s in v.node.expr.symbols()]):
        return vm.truth(v >= -5) and vm.truth(v <= 256)
    return type(v) is int and -5 <= v <= 256


def is_op(f: Any, invert: int) -> Row:
    s = f.stack
    not_of_numbers(s[-2], s[-1])
    return ("call", operator.is_not if invert else operator.is_, (s[-2], s[-1]), {}), 2, 1


def branch(when: bool, kind: str = "truth") -> Callable[[Any, Any], Row]:
    def row(f: Any, target: int) -> Row:
        v = f.stack[-1]
        rest = f.stack[:-1]
        jump, fall = at(f, target), following(f)
        yes, no = (jump, fall) if when else (fall, jump)
        if kind == "none":
            return ("branch_none", v, yes, no, list(rest), list(rest)), 1, 0
        return ("branch", v, yes, no, list(rest), list(rest)), 1, 0

    return row


def or_pop(when: bool) -> Callable[[Any, Any], Row]:
    def row(f: Any, target: int) -> Row:
        v = f.stack[-1]
        rest, kept = f.stack[:-1], list(f.stack)
        if when:
            return ("branch", v, at(f, target), following(f), kept, list(rest)), 1, 0
        return ("branch", v, following(f), at(f, target), list(rest), kept), 1, 0

    return row


def for_iter(f: Any, target: int) -> Row:
    return ("loop", f.decoded.offsets[f.pc - 1]), 0, 0


def unpack_sequence(f: Any, n: int) -> Row:
    return ("unpack", f.stack[-1], n), 1, n


def unpack_ex(f: Any, a: int) -> Row:
    n = (a & 255) + 1 + (a >> 8)
    return ("unpack_call", runtime.unpack_ex, (f.stack[-1], a & 255, a >> 8), n), 1, n


def format_value(f: Any, flags: int) -> Row:
    s = f.stack
    if flags & 4:
        return ("call", runtime.format_value, (s[-2], flags & 3, s[-1]), {}), 2, 1
    return ("call", runtime.format_value, (s[-1], flags & 3, ""), {}), 1, 1


def import_name(f: Any, name: str) -> Row:
    s = f.stack
    return ("call", builtins.__import__, (name, f.globals, None, s[-1], s[-2]), {}), 2, 1


def into(fn: Callable) -> Callable[[Any, Any], Row]:
    """What extends a container: a call on a container further down the stack, nothing pushed."""

    def row(f: Any, n: int) -> Row:
        s = f.stack
        return ("call", fn, (s[-n - 1], s[-1]), {}), 1, 0

    return row


def dict_merge(f: Any, n: int) -> Row:
    s = f.stack
    return ("call", runtime.dict_merge, (s[-n - 1], s[-1], callee(s, n)), {}), 1, 0


def before_with(f: Any, a: Any) -> Row:
    return ("enter", f.stack[-1]), 1, 2


def with_except(f: Any, a: Any) -> Row:
    e = f.stack[-1]
    return ("call", f.stack[-4], (type(e), e, vm.getattr(e, "__traceback__")), {}), 0, 1


def load_special(f: Any, name: str) -> Row:
    """The frame goes on with the bound method and NULL."""
    return ("call", runtime.special_method, (f.stack[-1], name), {}), 1, AND_NULL


def exit_by_method(f: Any, a: Any) -> Row:
    fn, args = exit_operands(f)
    return ("call", fn, args, {}), 0, 1


def store_global(f: Any, name: str) -> Row:
    return ("call", runtime.set_global, (f.func, name, f.stack[-1]), {}), 1, 0


def store_deref(f: Any, i: int) -> Row:
    return ("call", setattr, (f.fast[i], "cell_contents", f.stack[-1]), {}), 1, 0


ACTIONS: dict[Kind, Callable[[Any, Any], Row]] = {
    K.CALL: call,
    K.CALL_EX: call_ex,
    K.CALL_KW: call_kw,
    K.LOAD_SUPER_ATTR: super_attr,
    K.LOAD_SUPER_METHOD: super_method,
    K.LOAD_SLICE: load_slice,
    K.STORE_SLICE: store_slice,
    K.LOAD_ATTR: named(getattr, 1),
    K.LOAD_METHOD: load_method,
    K.STORE_ATTR: named(setattr, 2, 0),
    K.DELETE_ATTR: named(delattr, 1, 0),
    K.STORE_GLOBAL: store_global,
    K.STORE_DEREF: store_deref,
    K.LOAD_ITEM: function(operator.getitem, 2),
    K.STORE_ITEM: function(operator.setitem, 3, 0, order=(1, 2, 0)),
    K.DELETE_ITEM: function(operator.delitem, 2, 0),
    K.BINARY: with_operator,
    K.COMPARE: with_operator if JUMPS_ASK else comparison,
    K.CONTAINS: contains,
    K.IS: is_op,
    K.NOT: function(operator.not_, 1),
    K.UNARY: lambda f, fn: (("call", fn, (f.stack[-1],), {}), 1, 1),
    K.GET_ITER: function(iter, 1),
    K.GET_LEN: lambda f, a: (("call", len, (f.stack[-1],), {}), 0, 1),
    K.FOR_ITER: for_iter,
    K.JUMP_IF_TRUE: branch(True),
    K.JUMP_IF_FALSE: branch(False),
    K.JUMP_IF_NONE: branch(True, "none"),
    K.JUMP_IF_NOT_NONE: branch(False, "none"),
    K.JUMP_IF_TRUE_OR_POP: or_pop(True),
    K.JUMP_IF_FALSE_OR_POP: or_pop(False),
    K.UNPACK_SEQUENCE: unpack_sequence,
    K.UNPACK_EX: unpack_ex,
    K.FORMAT: format_value,
    K.BUILD_STRING: lambda f, n: (("call", runtime.build_string, tuple(f.stack[len(f.stack) - n :]), {}), n, 1),
    K.IMPORT_NAME: import_name,
    K.IMPORT_FROM: lambda f, name: (("call", runtime.import_from, (f.stack[-1], name), {}), 0, 1),
    K.LIST_APPEND: into(list.append),
    K.LIST_EXTEND: into(list.extend),
    K.LIST_TO_TUPLE: function(tuple, 1),
    K.SET_UPDATE: into(set.update),
    K.SET_ADD: into(set.add),
    K.MAP_ADD: lambda f, n: (("call", operator.setitem, (f.stack[-n - 2], f.stack[-2], f.stack[-1]), {}), 2, 0),
    K.DICT_UPDATE: into(runtime.dict_update),
    K.DICT_MERGE: dict_merge,
    K.INTRINSIC_1: lambda f, n: (("call", intrinsic(n, 1), (f.stack[-1],), {}), 1, 1),
    K.INTRINSIC_2: lambda f, n: (("call", intrinsic(n, 2), tuple(f.stack[-2:]), {}), 2, 1),
    K.MATCH_MAPPING: lambda f, a: (("call", runtime.is_mapping, (f.stack[-1],), {}), 0, 1),
    K.MATCH_SEQUENCE: lambda f, a: (("call", runtime.is_sequence, (f.stack[-1],), {}), 0, 1),
    K.MATCH_KEYS: lambda f, a: (("call", runtime.match_keys, (f.stack[-2], f.stack[-1]), {}), 0, 1),
    K.MATCH_CLASS: lambda f, n: (("call", runtime.match_class, (f.stack[-3], f.stack[-2], n, f.stack[-1]), {}), 3, 1),
    K.ENTER: before_with,
    K.EXIT: with_except,
    K.LOAD_SPECIAL: load_special,
    K.EXIT_METHOD: exit_by_method,
    K.BUILD_SET: lambda f, n: (("call", runtime.build_set, tuple(f.stack[len(f.stack) - n :]), {}), n, 1),
    K.BUILD_MAP: lambda f, n: (("call", runtime.build_map, tuple(f.stack[len(f.stack) - 2 * n :]), {}), 2 * n, 1),
}
