"""Functions of the standard library that look at state of their own (caches, registries, the exception at hand), answered without it."""

from __future__ import annotations

import abc
import dataclasses
import enum
import functools
import inspect
import logging
import reprlib
import sys
import types
import typing
from typing import Any

from pliant.bytecode import kinds as K
from pliant.graph.symnode import SYMS
from pliant.guards import source as S
from pliant.interpret import in_python, policy, process_state, shadows
from pliant.interpret.attributes import guard_order, lookup
from pliant.interpret.binding import bind, in_closure, raise_binding_error
from pliant.interpret.calls import BY_CODE, LOOKASIDES, METHOD_LOOKASIDES, call, guard_function, inline, native
from pliant.interpret.capture import UNSET
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, title, vm
from pliant.interpret.tracebacks import at_hand
from pliant.interpret.weak import of_the_program

# -- texts -------------------------------------------------------------------------------------------------------
for _fn in (str.maketrans, bytes.maketrans):
    LOOKASIDES[_fn] = functools.partial(native, _fn)


def coded(fn: Any) -> Any:
    def run(owner: Any, args: tuple, kw: dict) -> Any:
        process_state.codec(*args, **kw)
        return native(getattr(owner, fn), args, kw)

    return run


METHOD_LOOKASIDES[str, "encode"], METHOD_LOOKASIDES[bytes, "decode"] = coded("encode"), coded("decode")


# -- signatures --------------------------------------------------------------------------------------------------
def of_signature(asked: Any, args: tuple, kw: dict) -> Any:
    """Of functions and classes of Python, by what it reads of them."""
    if len(args) != 1 or kw:
        raise Break("PL0007", f"inspect.{asked.__name__} with options", clean=True)
    o = args[0]
    if isinstance(o, type) and type(o) is type:
        guard_signature(lookup(o, "__init__"))
        guard_signature(lookup(o, "__new__"))
        if lookup(o, "__signature__") is not UNSET:
            raise Break("PL0007", f"the signature of {title(o)}", clean=True)
    else:
        guard_signature(o.__func__ if type(o) is types.MethodType else o)
    return native(asked, args, kw)


for _asked in (inspect.signature, inspect.getfullargspec):
    LOOKASIDES[_asked] = functools.partial(of_signature, _asked)


CONSTANTS = (bool, int, float, complex, str, bytes, type(None))


def guard_signature(fn: Any) -> None:
    if isinstance(fn, (types.BuiltinFunctionType, types.WrapperDescriptorType, staticmethod)):
        fn = fn.__func__ if isinstance(fn, staticmethod) else fn
    if isinstance(fn, (types.BuiltinFunctionType, types.WrapperDescriptorType)) or id(fn) in vm.world.own_functions:
        return
    if type(fn) is not types.FunctionType:
        raise Break("PL0007", f"the signature of a {type(fn).__qualname__}", clean=True)
    for v in fn.__defaults__ or ():
        if type(v) not in CONSTANTS and not isinstance(v, (type, types.FunctionType, types.BuiltinFunctionType)):
            # what is handed on has to be this very object
            raise Break("PL0007", f"the signature of {title(fn)}, whose default is a {type(v).__qualname__}", clean=True)
    guard_function(fn)
    world, source = vm.world, S.const(fn)
    for name, held, settled in (("__annotations__", fn.__annotations__, False), ("__kwdefaults__", fn.__kwdefaults__, True)):
        if held is not None:  # a dict, which the program may write to
            at = source.attr(name)
            world.guard(at, "ID_MATCH", held)
            world.guard(at, "DICT_KEYS", list(held))
            for key, v in held.items():
                if type(v) in CONSTANTS:
                    world.guard(at.key(key), "EQ_MATCH", v)
                elif settled:
                    raise Break("PL0007", f"the signature of {title(fn)}, whose default is a {type(v).__qualname__}", clean=True)
                else:
                    world.guard(at.key(key), "ID_MATCH", v)
    for name in ("__signature__", "__wrapped__"):
        if name in fn.__dict__:
            raise Break("PL0007", f"the signature of {title(fn)}, which is a wrapper", clean=True)
        world.guard(source.dict(), "DICT_CONTAINS", (name, False), name)


# -- loggers -----------------------------------------------------------------------------------------------------
@lookaside(logging.getLogger)
def l_get_logger(args: tuple, kw: dict) -> Any:
    """A name has one logger for the life of the process; asking for it makes it, and that cannot be noticed."""
    if any(type(v) not in (str, type(None)) for v in (*args, *kw.values())):
        raise Break("PL0005", "logging.getLogger of a name that is not constant", clean=True)
    logger = logging.getLogger(*args, **kw)
    return vm.world.adopt(logger, S.const(logger))


# -- what is asked of frames and references ---------------------------------------------------------------------------
@lookaside(sys.settrace, sys.setprofile)
def l_watch(args: tuple, kw: dict) -> Any:
    raise vm.left_to_python("it sets a function that is told of every call and line: those of emitted code are others")


@lookaside(sys.getrefcount)
def l_references(args: tuple, kw: dict) -> Any:
    raise vm.left_to_python("it counts references: what was captured, and emitted code, hold others")


# -- attributes through C helpers -------------------------------------------------------------------------------
@lookaside(inspect.isclass)
def l_isclass(args: tuple, kw: dict) -> bool:
    return vm.isinstance(args[0], type)


# -- the exception at hand ---------------------------------------------------------------------------------------
@lookaside(sys.exc_info)
def l_exc_info(args: tuple, kw: dict) -> Any:
    e = at_hand("sys.exc_info()")
    return (None, None, None) if e is None else (type(e), e, e.__traceback__)


@lookaside(sys.exception)
def l_exception(args: tuple, kw: dict) -> Any:
    return at_hand("sys.exception()")


# -- what functions of the library hold ------------------------------------------------------------------------
# -- single dispatch ---------------------------------------------------------------------------------------------
def by_class(fn: types.FunctionType, args: tuple, kw: dict) -> Any:
    """`dispatch(cls)` of a `functools.singledispatch` function: decided by what is registered; its cache only saves time."""
    world = vm.world
    cls = args[0] if len(args) == 1 and not kw else kw.get("cls") if not args and len(kw) == 1 else None
    if not isinstance(cls, type):
        raise Break("PL0004", "functools.singledispatch asked about what is no class", clean=True)
    registry = in_closure(fn, "registry")
    if id(fn) in world.own_functions or id(cls) in world.own_functions:
        raise Break("PL0004", "functools.singledispatch over what the program makes", clean=True)
    shadows.read_all(world, registry)
    guard_order(cls)
    for base in registry:
        if isinstance(base, abc.ABCMeta):
            process_state.is_subclass(cls, base)
    return fn(cls)


BY_CODE[id(functools.singledispatch(lambda: None).dispatch.__code__)] = by_class  # type: ignore[misc]


METHOD_LOADS = (K.LOAD_METHOD, K.LOAD_SUPER_METHOD)
GET_DISPATCHED: Any = functools.singledispatchmethod.__get__


def dispatched_method(args: tuple, kw: dict) -> Any:
    """CPython 3.13.0 and 3.13.1 keep what they bind in a dict of weak references, for the life of the object (gh-127750 took that out).

    Where it is loaded to be called, nobody sees which function it is, and the object finds its own by its identity."""
    f = vm.frame
    called = f is not None and f.decoded.kinds[f.pc - 1] in METHOD_LOADS and bool(f.stack) and f.stack[-1] is args[1]
    if called and of_the_program(args[1]) and lookup(type(args[1]), "__hash__") is object.__hash__:
        return inline(in_python.dispatched_method, args, kw)
    return inline(GET_DISPATCHED, args, kw)


if hasattr(functools.singledispatchmethod(len), "_method_cache"):
    LOOKASIDES[GET_DISPATCHED] = dispatched_method


# -- texts of objects that may hold themselves -------------------------------------------------------------------
def not_again(fn: types.FunctionType, args: tuple, kw: dict) -> Any:
    """A `__repr__` that says "..." where it is running already, for this object and in this thread (`reprlib`, `dataclasses`)."""
    world = vm.world
    given = bind(fn, args, kw)
    if given is None:
        raise_binding_error(fn, args, kw)
        raise AssertionError
    running = in_closure(fn, "repr_running")
    if vm.truth(running):
        raise Break("PL0025", "the text of an object while that of another is made", clean=True)
    key = id(running), id(given[0])
    if key in world.texts_running:
        return in_closure(fn, "fillvalue") if "fillvalue" in fn.__code__.co_freevars else "..."
    world.texts_running.add(key)
    try:
        return call(in_closure(fn, "user_function"), (given[0],), {})
    finally:
        world.texts_running.discard(key)


BY_CODE[id(reprlib.recursive_repr()(lambda self: "").__code__)] = not_again
if hasattr(dataclasses, "_recursive_repr"):  # up to Python 3.12
    BY_CODE[id(dataclasses._recursive_repr(lambda self: "").__code__)] = not_again


# -- an order from a comparison ----------------------------------------------------------------------------------
MISSING = enum.Flag.__dict__["_missing_"].__func__


@lookaside(MISSING)
def l_missing(args: tuple, kw: dict) -> Any:
    """The member of flags for a number that no member has yet."""
    if not args or id(args[0]) not in vm.world.own_functions:
        raise Break("PL0004", "a member of an enumeration is made, which its class keeps", clean=True)
    return inline(MISSING, args, kw)


@lookaside(functools.cmp_to_key)
def l_cmp_to_key(args: tuple, kw: dict) -> Any:
    if len(args) != 1 or kw or type(args[0]) not in (types.FunctionType, types.MethodType):
        return native(functools.cmp_to_key, args, kw)  # it raises, or gives what no sort will use
    return inline(in_python.cmp_to_key, args, kw)


@lookaside(logging.Logger.isEnabledFor)
def l_is_enabled_for(args: tuple, kw: dict) -> Any:
    level = args[1] if len(args) > 1 else kw.get("level")
    if type(level) not in (int, bool, *SYMS):  # the logger's cache has answers for what is equal
        raise Break("PL0007", "whether a logger is on for a level that is no int", clean=True)
    return inline(in_python.is_enabled_for, args, kw)


for _level in (logging.Logger.getEffectiveLevel, logging.Manager.disable.fget):  # type: ignore[attr-defined]
    policy.register(_level, policy.INLINE)
policy.register(inspect.getmro, policy.INLINE)
# What calls of `Boxed[int]`, and of a new type, come to is the program's.
for _alias in (typing._BaseGenericAlias, typing.NewType):  # type: ignore[attr-defined]
    policy.register(vars(_alias)["__call__"], policy.INLINE)
