"""One handler per kind of instruction: stack, names, control flow, exceptions.

A handler peeks at its operands and removes them only when it succeeded: if it raises `Break`, the frame is exactly as
before the instruction. It returns True to leave the frame.
"""

from __future__ import annotations

import builtins
import types
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.version import CALLABLE_FIRST
from pliant.graph.originals import operator, torch
from pliant.graph.read_later import in_cell, of_dict
from pliant.graph.symnode import concrete
from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.interpret import called_apart, exception_groups, shadows
from pliant.interpret.attributes import CONTENTS, Empty, getattr_, lookup
from pliant.interpret.capture import NULL, UNSET
from pliant.interpret.comparisons import inverted, of_data
from pliant.interpret.decode import op
from pliant.interpret.gate import SYM_TYPES
from pliant.interpret.generators import Generator, out_of_turn
from pliant.interpret.late_items import is_item
from pliant.interpret.late_text import LateText
from pliant.interpret.lifetimes import CODE, STAND
from pliant.interpret.opaque import Opaque
from pliant.interpret.same_objects import identical
from pliant.interpret.slots import QUIET_ITERATORS, binary, compare, contains, get_iter, get_next, truth, unary
from pliant.interpret.special_methods import has_ways_of_its_own, of_special
from pliant.interpret.state import UNDECIDED, Break, LoopBackSignal, changed, taken, vm, writes
from pliant.interpret.tracebacks import about_to_raise, none_at_hand, suppressed
from pliant.interpret.type_names import type_name
from pliant.symbolic import DataDependent

CellType, FunctionType, MethodType = types.CellType, types.FunctionType, types.MethodType


class Lazy:
    """An argument that the program has not looked at yet: located (and guarded) on first use."""

    __slots__ = ("source", "value")

    def __init__(self, value: Any, source: Any) -> None:
        self.value = value
        self.source = source


def force(f: Any, i: int) -> Any:
    """The proxy in local slot `i`."""
    v = f.fast[i]
    if type(v) is Lazy:
        v = f.fast[i] = vm.world.locate(v.value, v.source)
    return v


# -- stack and locals -----------------------------------------------------------------------------


@op(K.NOP, K.RESUME, K.TO_BOOL)
def nop(f: Any, a: Any) -> None:
    pass


@op(K.PUSH_NULL)
def push_null(f: Any, a: Any) -> None:
    f.stack.append(NULL)


@op(K.POP)
def pop_top(f: Any, a: Any) -> None:
    f.stack.pop()
    if vm.pending is not None:  # the last reference to a generator went, and closing it broke the graph
        raise taken()


@op(K.COPY)
def copy(f: Any, n: int) -> None:
    f.stack.append(f.stack[-n])


@op(K.SWAP)
def swap(f: Any, n: int) -> None:
    s = f.stack
    s[-1], s[-n] = s[-n], s[-1]


@op(K.LOAD_CONST)
def load_const(f: Any, a: Any) -> None:
    f.stack.append(a)


@op(K.LOAD_LOCAL)
def load_fast(f: Any, i: int) -> None:
    v = f.fast[i]
    if v is UNSET:
        name = f.code.co_varnames[i] if i < f.code.co_nlocals else "?"
        raise UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")
    if type(v) is Lazy:
        v = f.fast[i] = vm.world.locate(v.value, v.source)
    f.stack.append(v)


@op(K.STORE_LOCAL)
def store_fast(f: Any, i: int) -> None:
    v = f.stack.pop()
    f.fast[i] = v if v is not NULL else UNSET
    if vm.pending is not None:  # of what was there before
        raise taken()


@op(K.DELETE_LOCAL)
def delete_fast(f: Any, i: int) -> None:
    if f.fast[i] is UNSET:
        raise UnboundLocalError(f"cannot access local variable '{f.code.co_varnames[i]}' where it is not associated with a value")
    f.fast[i] = UNSET
    if vm.pending is not None:
        raise taken()


# -- cells -------------------------------------------------------------------------------------------


@op(K.MAKE_CELL)
def make_cell(f: Any, i: int) -> None:
    v = force(f, i)
    f.fast[i] = CellType() if v is UNSET else CellType(v)


@op(K.LOAD_CELL)
def load_closure(f: Any, i: int) -> None:
    f.stack.append(f.fast[i])


@op(K.COPY_FREE_VARS)
def copy_free_vars(f: Any, n: int) -> None:
    f.fast[-n:] = f.func.__closure__


def cell_name(f: Any, i: int) -> str:
    c = f.code
    names = [*c.co_varnames, *[x for x in c.co_cellvars if x not in c.co_varnames], *c.co_freevars]
    return names[i]


def unbound_cell(f: Any, i: int) -> Exception:
    name = cell_name(f, i)
    if name in f.code.co_freevars:
        return NameError(f"cannot access free variable '{name}' where it is not associated with a value in enclosing scope", name=name)
    return UnboundLocalError(f"cannot access local variable '{name}' where it is not associated with a value")


def read_cell(cell: Any, f: Any, i: int) -> Any:
    world = vm.world
    key = id(cell)
    src = world.cells.get(key)
    if src is None:
        try:
            return cell.cell_contents
        except ValueError:
            raise unbound_cell(f, i) from None
    if vm.heard is not None:
        vm.heard.append((in_cell, cell, None))
    got = world.cell_values.get(key)
    if got is None:
        try:
            v = cell.cell_contents
        except ValueError:
            world.guard(src.base, "PREDICATE", Empty(CONTENTS), cell_name(f, i))
            raise unbound_cell(f, i) from None
        got = world.cell_values[key] = (cell, world.locate(v, src))
    if got[1] is UNSET:
        raise unbound_cell(f, i)
    if vm.asking and key in world.cell_writes:
        changed()
    if vm.hashing:
        shadows.hashed_by(got[1], cell)
    return got[1]


def none_opaque(operands: tuple) -> None:
    if Opaque in map(type, operands):
        raise Break("PL0017", "super() of a class or an object that changes on every call", clean=True)


def super_operands(f: Any) -> tuple | None:
    """What `super()` means in frame `f`: its `__class__` cell and its first argument. None: it has no such cell."""
    names = f.code.co_freevars
    if not f.code.co_argcount or "__class__" not in names:
        return None
    cls = read_cell(f.fast[len(f.fast) - len(names) + names.index("__class__")], f, 0)
    first = force(f, 0)
    return cls, read_cell(first, f, 0) if type(first) is types.CellType else first


@op(K.LOAD_DEREF)
def load_deref(f: Any, i: int) -> None:
    f.stack.append(read_cell(f.fast[i], f, i))


@op(K.STORE_DEREF)
def store_deref(f: Any, i: int) -> None:
    cell = f.fast[i]
    if vm.asking or vm.world.hashed_by:
        writes(cell)
    world = vm.world
    if id(cell) in world.cells:
        v = f.stack.pop()
        world.cell_values[id(cell)] = (cell, v)
        world.cell_writes[id(cell)] = cell
    else:
        cell.cell_contents = f.stack.pop()


@op(K.DELETE_DEREF)
def delete_deref(f: Any, i: int) -> None:
    cell = f.fast[i]
    if vm.asking or vm.world.hashed_by:
        writes(cell)
    world = vm.world
    read_cell(cell, f, i)
    if id(cell) in world.cells:
        world.cell_values[id(cell)] = (cell, UNSET)
        world.cell_writes[id(cell)] = cell
    else:
        del cell.cell_contents


# -- names ---------------------------------------------------------------------------------------------


def global_value(g: dict, name: str) -> Any:
    """What `name` means to code with the globals `g`."""
    value = found_global(g, name)
    if vm.hashing:
        shadows.hashed_by(value, g, name)
    return value


def found_global(g: dict, name: str) -> Any:
    world = vm.world
    key = (id(g), name)
    if vm.heard is not None:
        vm.heard.append((of_dict, g, name))
    r = world.reads.get(key, UNSET)
    if r is not UNSET:
        return r
    world.namespaces.add(id(g))
    if id(g) in world.shadows:
        raise Break("PL0014", "a dict that holds the global names of a function, and is read as a dict as well", clean=True)
    written = key in world.global_writes
    if written:
        if vm.asking:
            changed()
        v = world.global_writes[key][2]
        if v is not UNSET:
            return v
    elif name in g:
        if id(g) in world.fresh_globals:
            return g[name]
        r = world.reads[key] = world.locate(g[name], vm.global_source(g, name))
        return r
    b = g["__builtins__"] if "__builtins__" in g else builtins
    b = b if type(b) is dict else b.__dict__
    if not written:  # what the program has deleted was there before
        world.guard(vm.globals_source(g), "DICT_CONTAINS", (name, False), name)
    if name not in b:
        world.guard(S.const(builtins).dict() if b is builtins.__dict__ else S.const(b), "DICT_CONTAINS", (name, False), name)
        raise NameError(f"name '{name}' is not defined", name=name)
    r = world.reads[key] = builtin(b, name)
    return r


def builtin(b: dict, name: str) -> Any:
    """What `name` is among the builtins `b`."""
    source = S.const(builtins).dict() if b is builtins.__dict__ else S.const(b)
    return vm.world.locate(b[name], source.key(name))


@op(K.LOAD_GLOBAL)
def load_global(f: Any, a: tuple) -> None:
    v = global_value(f.globals, a[0])
    s = f.stack
    if not a[1]:
        s.append(v)
    elif CALLABLE_FIRST:
        s += (v, NULL)
    else:
        s += (NULL, v)


@op(K.STORE_GLOBAL)
def store_global(f: Any, name: str) -> None:
    set_global(f.globals, name, f.stack[-1])
    f.stack.pop()


def set_global(g: dict, name: str, value: Any) -> None:
    """`name = value`, of a global name."""
    if vm.asking or vm.world.hashed_by:
        writes(g, name)
    key = (id(g), name)
    if key in vm.world.global_writes and vm.world.global_writes[key][2] is UNSET:
        raise Break("PL0006", f"setting {name}, which was deleted here: it comes to the end of its dict", clean=True)
    vm.world.reads.pop(key, None)
    vm.world.global_writes[key] = (g, name, value)


@op(K.DELETE_GLOBAL)
def delete_global(f: Any, name: str) -> None:
    if vm.asking or vm.world.hashed_by:
        writes(f.globals, name)
    key = (id(f.globals), name)
    w = vm.world.global_writes.get(key)
    there = name in f.globals if w is None else w[2] is not UNSET
    if w is None:
        vm.world.guard(vm.globals_source(f.globals), "DICT_CONTAINS", (name, there), name)
    if not there:
        raise NameError(f"name '{name}' is not defined", name=name)
    vm.world.reads.pop(key, None)
    vm.world.global_writes[key] = (f.globals, name, UNSET)


@op(K.LOAD_BUILD_CLASS)
def load_build_class(f: Any, a: Any) -> None:
    f.stack.append(builtin(builtins.__dict__, "__build_class__"))


@op(K.LOAD_ASSERTION_ERROR)
def load_assertion_error(f: Any, a: Any) -> None:
    f.stack.append(AssertionError)


# -- control flow -----------------------------------------------------------------------------------------


@op(K.RETURN)
def return_value(f: Any, a: Any) -> bool:
    if f.top and out_of_turn(f):
        raise Break(CODE, "the end of a generator, behind that of other objects", clean=True, action=STAND)
    f.ret = f.stack.pop()
    return True


@op(K.RETURN_GENERATOR)
def return_generator(f: Any, a: Any) -> bool:
    if f.code.co_flags & 0x280:  # coroutines and async generators run uncompiled
        raise Break("PL0008", f"the coroutine {f.code.co_qualname}")
    f.ret = Generator(f)
    f.yielded = f.is_tail = False
    return True


@op(K.YIELD)
def yield_value(f: Any, a: Any) -> bool:
    f.ret = f.stack.pop()
    f.yielded = True
    return True


@op(K.GET_YIELD_FROM_ITER)
def get_yield_from_iter(f: Any, a: Any) -> None:
    f.stack[-1] = get_iter(f.stack[-1])


@op(K.SEND)
def send(f: Any, a: int) -> None:
    s = f.stack
    v, it = s[-1], s[-2]
    try:
        if v is None:
            r = get_next(it)
        elif type(it) is Generator:
            r = it.send(v)
        else:
            r = vm.call(getattr_(it, "send"), (v,), {})
        s[-1] = r
    except StopIteration as e:
        s.pop()
        s[-1] = e.value
        f.pc = a


@op(K.JUMP)
def jump(f: Any, a: int) -> None:
    if a == f.loop_header:
        f.pc = a
        raise LoopBackSignal
    f.pc = a


def jumps_on(f: Any, v: Any, a: int, side: bool) -> bool:
    """Whether a jump for what is `side` is taken. Where one side only raises, that is an assertion; a jump backward is a loop's."""
    if type(v) in DATA and a >= f.pc:
        if vm.needed(f, v, side, f.pc):
            return True
        if vm.needed(f, v, not side, a):
            return False
    return asked(v) if side else not asked(v)


DATA = frozenset((TracedTensor, *SYM_TYPES))


def asked(v: Any) -> bool:
    """The truth of an operand. Of a number that only the run knows the graph breaks with nothing done yet: the capture goes on to here."""
    if type(v) not in SYM_TYPES:
        return truth(v)
    try:
        return truth(v)
    except DataDependent as e:
        raise Break(UNDECIDED, e.args[0], clean=True) from e


@op(K.JUMP_IF_TRUE)
def jump_if_true(f: Any, a: int) -> None:
    v = f.stack[-1]
    if type(v) in DATA and vm.at_branch(f, v):
        return
    jumps = v is True or (v is not False and jumps_on(f, v, a, True))
    f.stack.pop()
    if jumps:
        jump(f, a)


@op(K.JUMP_IF_FALSE)
def jump_if_false(f: Any, a: int) -> None:
    v = f.stack[-1]
    if type(v) in DATA and vm.at_branch(f, v):
        return
    jumps = v is False or (v is not True and jumps_on(f, v, a, False))
    f.stack.pop()
    if jumps:
        jump(f, a)


def is_none(v: Any) -> bool:
    if type(v) in OPAQUE_TYPES:
        raise Break("PL0017", f"a comparison of {v.source.name} with None", clean=True)
    return v is None


OPAQUE_TYPES: set[type] = set()


@op(K.JUMP_IF_NONE)
def jump_if_none(f: Any, a: int) -> None:
    jumps = is_none(f.stack[-1])
    f.stack.pop()
    if jumps:
        jump(f, a)


@op(K.JUMP_IF_NOT_NONE)
def jump_if_not_none(f: Any, a: int) -> None:
    jumps = not is_none(f.stack[-1])
    f.stack.pop()
    if jumps:
        jump(f, a)


@op(K.JUMP_IF_TRUE_OR_POP)
def jump_if_true_or_pop(f: Any, a: int) -> None:
    if type(f.stack[-1]) in DATA and vm.at_branch(f, f.stack[-1]):
        return
    if asked(f.stack[-1]):
        f.pc = a
    else:
        f.stack.pop()


@op(K.JUMP_IF_FALSE_OR_POP)
def jump_if_false_or_pop(f: Any, a: int) -> None:
    if type(f.stack[-1]) in DATA and vm.at_branch(f, f.stack[-1]):
        return
    if not asked(f.stack[-1]):
        f.pc = a
    else:
        f.stack.pop()


@op(K.GET_ITER)
def op_get_iter(f: Any, a: Any) -> None:
    f.stack[-1] = it = get_iter(f.stack[-1])
    if type(it) in QUIET_ITERATORS:
        called_apart.walk_begins(f, it)


@op(K.FOR_ITER)
def for_iter(f: Any, a: int) -> None:
    try:
        f.stack.append(get_next(f.stack[-1]))
    except StopIteration:
        called_apart.walk_ends(f.stack.pop())
        f.pc = a


# -- operators --------------------------------------------------------------------------------------------


@op(K.NOT)
def unary_not(f: Any, a: Any) -> None:
    v = f.stack[-1]
    if type(v) is TracedTensor:
        v = vm.truth_of_tensor(v)
    f.stack[-1] = inverted(v) if of_data(v) else not asked(v)


@op(K.UNARY)
def unary_op(f: Any, fn: Any) -> None:
    f.stack[-1] = unary(fn, f.stack[-1])


@op(K.BINARY)
def binary_op(f: Any, fn: Any) -> None:
    s = f.stack
    r = binary(fn, s[-2], s[-1])
    s.pop()
    s[-1] = r


@op(K.COMPARE)
def compare_op(f: Any, fn: Any) -> None:
    s = f.stack
    r = compare(fn, s[-2], s[-1])
    s.pop()
    s[-1] = r


@op(K.IS)
def is_op(f: Any, invert: int) -> None:
    s = f.stack
    b, a = s[-1], s[-2]
    if a is None or b is None:
        r = is_none(a) and is_none(b)
    elif type(a) in OPAQUE_TYPES or type(b) in OPAQUE_TYPES:
        raise Break("PL0017", "an identity test of an opaque input", clean=True)
    elif a is not b and (is_item(a) or is_item(b)) and {type(a), type(b)} <= {str, LateText}:
        raise Break("PL0017", "an identity test of an item of a list at a place that changes", clean=True)
    else:
        r = True if a is b and type(a) not in KNOWN_BY_WORTH else vm.same_object(a, b)
    s.pop()
    s[-1] = (not r) if invert else r


@op(K.CONTAINS)
def contains_op(f: Any, invert: int) -> None:
    s = f.stack
    r = contains(s[-1], s[-2])
    s.pop()
    s[-1] = inverted(r) if invert else r


# -- exceptions --------------------------------------------------------------------------------------------


@op(K.RAISE)
def raise_varargs(f: Any, n: int) -> None:
    s = f.stack
    if n == 0:
        if vm.exc is None:
            none_at_hand("a raise of the exception that a caller handles")
            raise RuntimeError("No active exception to reraise")
        about_to_raise(vm.exc, again=True)
        raise vm.exc
    e = s[-n]
    cause = s[-1] if n == 2 else None
    if any([type(given) is Opaque or has_ways_of_its_own(type(given)) for given in (e, cause)]):
        raise Break("PL0007", "the raise of an exception that is not known, or whose class has a way of its own to attributes", clean=True)
    if is_exception_class(e):
        cls, e = e, vm.call(e, (), {})
        if not issubclass(type(e), BaseException):
            raise TypeError(f"calling {cls!r} should have returned an instance of BaseException, not {type(e)!r}")
    elif not issubclass(type(e), BaseException):
        raise TypeError("exceptions must derive from BaseException")
    if is_exception_class(cause):
        cause = vm.call(cause, (), {})
    if not issubclass(type(cause), (BaseException, types.NoneType)):
        raise TypeError("exception causes must derive from BaseException")
    about_to_raise(e)
    if n == 2:
        e.__cause__ = cause
        suppressed(e)
    try:
        raise e
    finally:
        del e, cause


def is_exception_class(v: Any) -> bool:
    return issubclass(type(v), type) and issubclass(v, BaseException)  # `isinstance` would ask the value for its class


@op(K.PUSH_EXC_INFO)
def push_exc_info(f: Any, a: Any) -> None:
    s = f.stack
    e = s.pop()
    s.append(vm.exc)
    s.append(e)
    f.handling.append(e)
    vm.exc = e


@op(K.POP_EXCEPT)
def pop_except(f: Any, a: Any) -> None:
    vm.exc = f.stack.pop()
    if f.handling:
        f.handling.pop()
        if f.top and not f.handling and vm.exc is not None:  # a resumed frame: the handler around this one was entered before
            f.handling.append(vm.exc)


@op(K.CHECK_EXC_MATCH)
def check_exc_match(f: Any, a: Any) -> None:
    s = f.stack
    exception_groups.check_classes(s[-1])
    s[-1] = exception_groups.matches(s[-2], s[-1])


@op(K.CHECK_EG_MATCH)
def check_eg_match(f: Any, a: Any) -> None:
    s = f.stack
    exception_groups.check_group_classes(s[-1])
    match, rest = exception_groups.match(s[-2], s[-1])
    s[-1] = match
    if match is not None:
        s[-2] = rest
        f.handling[-1] = vm.exc = match


@op(K.PREP_RERAISE_STAR)
def prep_reraise_star(f: Any, a: Any) -> None:
    s = f.stack
    r = exception_groups.to_raise(s[-2], s[-1])
    s.pop()
    s[-1] = r


@op(K.RERAISE)
def reraise(f: Any, n: int) -> None:
    # `lasti` (n > 0) only restores the line for tracebacks: the handler is looked up at this instruction
    about_to_raise(f.stack[-1], again=True)
    raise f.stack.pop()


def special_method(obj: Any, name: str, missed: str = "") -> Any:
    """A method of a context manager bound through its type, as CPython looks it up."""
    t = vm.type_of(obj)
    m = lookup(t, name)
    if m is UNSET:
        raise TypeError(f"{type_name(t)!r} object does not support the context manager protocol{missed}")
    return of_special(m, obj, t, name)


@op(K.ENTER)
def before_with(f: Any, a: Any) -> None:
    s = f.stack
    m = s[-1]
    enter = special_method(m, "__enter__")
    leave = special_method(m, "__exit__", " (missed __exit__ method)")
    vm.world.managers.setdefault((id(f.code), f.pc - 1), []).append(leave)
    r = vm.call(enter, (), {})
    s[-1] = leave
    s.append(r)


@op(K.EXIT)
def with_except_start(f: Any, a: Any) -> None:
    s = f.stack
    e = s[-1]
    f.tail = True
    r = vm.call(s[-4], (type(e), e, getattr_(e, "__traceback__")), {})
    f.tail = False
    s.append(r)


def same_object(a: Any, b: Any) -> bool:
    ta, tb = type(a), type(b)
    if ta in VALUES and tb in VALUES:
        return same_value(a, b)
    return identical(a, b)


VALUES = {int, float, complex, str, bytes, bool, *SYM_TYPES}


KNOWN_BY_WORTH = VALUES - {bool}
"""Of these, one that is read at two places may be two objects the next time."""


def same_value(a: Any, b: Any) -> bool:
    """`a is b` of two values, which are guarded by what they are worth. Only CPython knows whether equal ones are one object."""
    if a is b and type(a) is torch.SymFloat:
        return True  # one for each place that is read, and for each operation, as in CPython; sizes are ints made anew at each look
    if {type(a), type(b)} & SYM_TYPES and not truth(compare(operator.eq, a, b)):
        return False
    a, b = concrete(a), concrete(b)
    if a is b and type(a) is str:
        the_same_text(a)
        return True
    if type(a) is not type(b) or (a != b and (a == a or b == b)):
        return False
    if type(a) is bool or (type(a) is int and -5 <= a <= 256):
        return True
    raise vm.left_to_python(f"whether two equal objects of type {type(a).__name__} are one object")


def the_same_text(a: str) -> None:
    """Texts are mostly names, of which there is one each: every place where this one was found holds the very object."""
    world = vm.world
    world.unusual()
    for g in [g for g in world.guards.values() if g.kind == "EQ_MATCH" and g.value is a]:
        world.guard(g.source, "ID_MATCH", a)
        world.bound_here = "which text is which"


vm.same_object = same_object
