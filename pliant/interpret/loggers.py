"""Calls of loggers: records are made and handled after the graph where nothing of the program's hears of them, else the graph breaks.

A handler, filter, formatter or logger class of the program's runs code that the program may read the traces of, or that raises: it must
run where the program logs. Those of the library write to a stream, and are asked each time whether they are still the only ones.
"""

from __future__ import annotations

import functools
import itertools
import logging
import types
from collections.abc import Callable
from typing import Any

from pliant.bytecode import instructions
from pliant.bytecode import kinds as K
from pliant.interpret import in_python, runtime
from pliant.interpret.calls import CACHED_LOOKASIDES, LOOKASIDES, inline
from pliant.interpret.library_internals import guard_name
from pliant.interpret.output import keeps, line_of, printable
from pliant.interpret.slots import SYM_TYPES, truth
from pliant.interpret.state import Break, vm

LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
METHODS: dict[Any, int | None] = {getattr(logging.Logger, name): level for name, level in LEVELS.items()} | {logging.Logger.log: None}
"""Functions that log -> the level, None where it is their first argument."""
SAYS_NOTHING = {"exc_info": (None, False), "stack_info": (None, False), "stacklevel": (1,), "extra": (None,)}
CONSTANTS = (str, int, float, bool, type(None))


def place_of(f: Any) -> tuple[str, str, int]:
    """(file, function, line) that a record names: the innermost frame that is not of the library."""
    while f.code.co_filename == logging._srcfile and f.parent is not None:
        f = f.parent
    return f.code.co_filename, f.code.co_name, line_of(f)


def only_written(logger: Any) -> bool:
    """Whether what is logged is written to streams, or kept in lists that the program has not read, and no more happens."""
    if not truth(inline(in_python.only_written, (logger,), {})):
        return False
    lists = []
    while logger is not None:
        lists += [h.__dict__.get("records") for h in logger.handlers]
        logger = logger.parent
    return keeps(*lists)


def printable_late(message: Any, values: tuple) -> bool:
    """Whether the text can be made of what `printable` makes of these values, too."""
    if not values or all([type(v) in CONSTANTS or type(v) in SYM_TYPES for v in values]):
        return True
    return type(message) is str and message.replace("%%", "").count("%") == message.replace("%%", "").count("%s")


def deferred_log(fn: types.FunctionType, level: int | None) -> Callable:
    def log(args: tuple, kw: dict) -> None:
        logger, *rest = args
        if not vm.isinstance(logger, logging.Logger):
            raise Break("PL0005", f"Logger.{fn.__name__} of what is no logger", clean=True)
        if level is not None and guard_name(logging, fn.__name__.upper()) is not level:
            raise Break("PL0005", f"Logger.{fn.__name__}, whose level is another one", clean=True)
        high = level if level is not None else rest.pop(0) if rest else kw.get("level")
        if not rest or type(high) is not int:
            raise Break("PL0005", f"Logger.{fn.__name__} with keywords, or of a level that is no int", clean=True)
        on = vm.call(vm.getattr(logger, "isEnabledFor"), (high,), {})
        if type(on) is bool and not on:
            return
        if not all([k in SAYS_NOTHING and any([v is none for none in SAYS_NOTHING[k]]) for k, v in kw.items()]):
            raise Break("PL0005", f"Logger.{fn.__name__} with keywords", clean=True)
        message, *values = rest
        if not (only_written(logger) and printable_late(message, tuple(values))):
            raise Break("PL0005", "a record that code of the program's may hear of, or whose text may depend on more", clean=True)
        said = [printable(v) for v in (message, *values)]
        vm.world.calls.append((runtime.log_at, (*place_of(vm.frame), logger, high, *said), {}))

    return log


for _fn, _level in METHODS.items():
    LOOKASIDES[_fn] = deferred_log(_fn, _level)


def real_call(f: Any, fn: Any, args: tuple, kw: dict) -> tuple | None:
    """The action of a call of one of `METHODS` that CPython makes: the record names the program's line. None if it cannot be told."""
    if type(fn) is types.MethodType:
        fn, args = fn.__func__, (fn.__self__, *args)
    if fn is logging.Logger.exception:
        fn, kw = logging.Logger.error, {"exc_info": True, **kw}
    if not (type(fn) is types.FunctionType and fn in METHODS) or not kw.keys() <= {"exc_info", "extra"}:
        return None
    return ("call", runtime.log_from, (*place_of(f), fn, METHODS[fn], *args), kw)


@functools.cache
def returns_nothing(code: types.CodeType) -> bool:
    """Whether every `return` of this code gives None."""
    ins = instructions(code)
    return all(before.kind is K.LOAD_CONST and before.operand is None for before, i in itertools.pairwise(ins) if i.kind is K.RETURN)


def logged_once(fn: Any, args: tuple, kw: dict) -> bool:
    """A cached function of a logger (`warning_once`): called for what it writes, after the graph, where its cache decides."""
    if not returns_nothing(fn.__wrapped__.__code__):
        return False
    logger, *rest = args
    if not only_written(logger):
        raise Break("PL0005", "a record that code of the program's may hear of", clean=True)
    vm.world.calls.append((fn, (logger, *[printable(a) for a in rest]), {k: printable(v) for k, v in kw.items()}))
    return True


CACHED_LOOKASIDES[logging.Logger] = logged_once
