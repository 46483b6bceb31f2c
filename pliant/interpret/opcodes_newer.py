"""One handler per kind of instruction that CPython has had since 3.12: comprehensions in place, `super()` in one, slices, ends of loops."""

from __future__ import annotations

from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.version import CALLABLE_FIRST
from pliant.interpret.attributes import getattr_, lookup, say_whose
from pliant.interpret.capture import NULL, UNSET
from pliant.interpret.decode import op
from pliant.interpret.opcodes import cell_name, force, global_value, load_deref
from pliant.interpret.opcodes_build import push_method
from pliant.interpret.slots import getitem, setitem
from pliant.interpret.special_methods import of_special
from pliant.interpret.state import Break, vm
from pliant.interpret.tracebacks import about_to_raise
from pliant.interpret.type_names import missed_special
from pliant.interpret.type_parameters import INTRINSICS


@op(K.LOAD_LOCAL_AND_CLEAR)
def load_fast_and_clear(f: Any, i: int) -> None:
    v = force(f, i)
    f.stack.append(v if v is not UNSET else NULL)
    f.fast[i] = UNSET


# -- super ------------------------------------------------------------------------------------------------------------
def of_super(f: Any, name: str, flags: int) -> tuple[Any, Any]:
    """(the attribute, the object); the operands stay."""
    fn, cls, o = f.stack[-3:]
    proxy = vm.call(fn, (cls, o) if flags & 2 or fn is super else (), {})
    try:
        return getattr_(proxy, name), o
    except AttributeError as e:
        say_whose(e, proxy, name)
        raise


@op(K.LOAD_SUPER_ATTR)
def load_super_attr(f: Any, a: tuple[str, int]) -> None:
    r, _ = of_super(f, *a)
    del f.stack[-2:]
    f.stack[-1] = r


@op(K.LOAD_SUPER_METHOD)
def load_super_method(f: Any, a: tuple[str, int]) -> None:
    r, o = of_super(f, *a)
    del f.stack[-3:]
    push_method(f.stack, r, o)


# -- contexts ---------------------------------------------------------------------------------------------------------
@op(K.LOAD_SPECIAL)
def load_special(f: Any, name: str) -> None:
    """A method of what stands on top, found on its type; what to call lies below its first argument, or NULL."""
    o = f.stack[-1]
    t = vm.type_of(o)
    m = lookup(t, name)
    if m is UNSET:
        raise TypeError(missed_special(t, name, lambda other: hasattr(type(lookup(t, other)), "__get__")))
    r = of_special(m, o, t, name)
    f.stack.pop()
    push_method(f.stack, r, o)


@op(K.EXIT_METHOD)
def exit_by_method(f: Any, a: Any) -> None:
    fn, args = exit_operands(f)
    f.tail = True
    r = vm.call(fn, args, {})
    f.tail = False
    f.stack.append(r)


def exit_operands(f: Any) -> tuple[Any, tuple]:
    """The `__exit__` of the manager whose block has raised what is on top of the stack, and its operands."""
    fn, o, e = f.stack[-5], f.stack[-4], f.stack[-1]
    if not CALLABLE_FIRST and fn is NULL:
        fn, o = o, NULL
    told = type(e), e, vm.getattr(e, "__traceback__")
    return fn, told if o is NULL else (o, *told)


# -- slices -----------------------------------------------------------------------------------------------------------
@op(K.LOAD_SLICE)
def load_slice(f: Any, a: Any) -> None:
    s = f.stack
    r = getitem(s[-3], slice(s[-2], s[-1]))
    del s[-2:]
    s[-1] = r


@op(K.STORE_SLICE)
def store_slice(f: Any, a: Any) -> None:
    s = f.stack
    setitem(s[-3], slice(s[-2], s[-1]), s[-4])
    del s[-4:]


# -- ends of loops, of delegation, of generators --------------------------------------------------------------------------
@op(K.END_FOR)
def end_for(f: Any, n: int) -> None:
    del f.stack[len(f.stack) - n :]


@op(K.END_SEND)
def end_send(f: Any, a: Any) -> None:
    del f.stack[-2]


@op(K.CLEANUP_THROW)
def cleanup_throw(f: Any, a: Any) -> None:
    """An exception thrown into a delegation: the value of a StopIteration is that of the whole."""
    s = f.stack
    e = s[-1]
    if isinstance(e, StopIteration):
        s[-3:] = [None, e.value]
        return
    try:
        about_to_raise(e, again=True)
        raise e
    finally:
        del e


@op(K.STOP_ITERATION_ERROR)
def stop_iteration_error(f: Any, a: Any) -> None:
    e = f.stack[-1]
    if isinstance(e, StopIteration):
        said = RuntimeError("generator raised StopIteration")
        said.__cause__ = said.__context__ = e
        f.stack[-1] = said


# -- names in class bodies --------------------------------------------------------------------------------------------
@op(K.LOAD_LOCALS)
def load_locals(f: Any, a: Any) -> None:
    if f.names is None:
        raise Break("PL0009", "the local names of a function as a dict")
    f.stack.append(f.names)


@op(K.LOAD_FROM_DICT_OR_GLOBALS)
def load_from_dict_or_globals(f: Any, name: str) -> None:
    names = f.stack[-1]
    f.stack[-1] = getitem(names, name) if vm.contains(names, name) else global_value(f.globals, name)


@op(K.LOAD_FROM_DICT_OR_DEREF)
def load_from_dict_or_deref(f: Any, i: int) -> None:
    names, name = f.stack[-1], cell_name(f, i)
    if vm.contains(names, name):
        f.stack[-1] = getitem(names, name)
        return
    load_deref(f, i)
    del f.stack[-2]


# -- functions of the interpreter -----------------------------------------------------------------------------------------
@op(K.INTRINSIC_1)
def intrinsic_of_one(f: Any, number: int) -> None:
    f.stack[-1] = known_intrinsic(1, number)(number, f.stack[-1])


@op(K.INTRINSIC_2)
def intrinsic_of_two(f: Any, number: int) -> None:
    f.stack[-2:] = [known_intrinsic(2, number)(number, *f.stack[-2:])]


def known_intrinsic(operands: int, number: int) -> Any:
    known = INTRINSICS.get((operands, number))
    if known is None:
        raise Break("PL0013", "a function of the interpreter's own")
    return known
