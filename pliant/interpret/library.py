"""Functions of the standard library that look at state of their own (caches, registries, the exception at hand), answered without it."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import types
import typing
from typing import Any

from pliant.guards import source as S
from pliant.interpret.calls import BY_CODE, LOOKASIDES, native
from pliant.interpret.immutable import IMMUTABLE
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm

# -- texts -------------------------------------------------------------------------------------------------------
for _fn in (str.maketrans, bytes.maketrans):
    LOOKASIDES[_fn] = functools.partial(native, _fn)


# -- loggers -----------------------------------------------------------------------------------------------------
@lookaside(logging.getLogger)
def l_get_logger(args: tuple, kw: dict) -> Any:
    """A name has one logger for the life of the process; asking for it makes it, and that cannot be noticed."""
    if any(type(v) not in (str, type(None)) for v in (*args, *kw.values())):
        raise Break("PL0005", "logging.getLogger of a name that is not constant", clean=True)
    logger = logging.getLogger(*args, **kw)
    return vm.world.adopt(logger, S.const(logger))


# -- the exception at hand ---------------------------------------------------------------------------------------
@lookaside(sys.exc_info)
def l_exc_info(args: tuple, kw: dict) -> Any:
    """Exit stacks want to know where a chain of contexts ends: at what this frame handles."""
    if vm.frame.globals is not contextlib.__dict__:
        raise Break("PL0033", "sys.exc_info()", clean=True)
    e = vm.exc
    return (None, None, None) if e is None else (type(e), e, e.__traceback__)


# -- single dispatch ---------------------------------------------------------------------------------------------
def by_class(fn: types.FunctionType, args: tuple, kw: dict) -> Any:
    """`dispatch(cls)` of a `functools.singledispatch` function: decided by what is registered; its cache only saves time."""
    world = vm.world
    cells = dict(zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True))
    registry = world.locate(cells["registry"].cell_contents, S.const(cells["registry"]).contents())
    if id(fn) in world.own_functions or id(args[0]) in world.own_functions:
        raise Break("PL0004", "functools.singledispatch over what the program makes", clean=True)
    world.all(registry)
    return fn(*args, **kw)


BY_CODE[functools.singledispatch(lambda: None).dispatch.__code__] = by_class

# -- annotations -------------------------------------------------------------------------------------------------
IMMUTABLE.update(
    t for t in (getattr(typing, name, None) for name in (
        "_GenericAlias", "_UnionGenericAlias", "_CallableGenericAlias", "_LiteralGenericAlias", "_AnnotatedAlias", "_SpecialForm",
        "_SpecialGenericAlias", "_CallableType", "_TupleType", "TypeVar", "ForwardRef", "_AnyMeta",
    )) if isinstance(t, type)
)  # fmt: skip
__all__ = ["by_class", "l_exc_info", "l_get_logger"]
