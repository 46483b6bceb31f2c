"""Functions of the standard library that C code, or a cache, stands before: spelled out in Python. Interpreted, never called."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from pliant.guards.views import only_writes


def cmp_to_key(mycmp: Callable[[Any, Any], Any]) -> Any:
    """`functools.cmp_to_key`."""

    class K:
        __slots__ = ("obj",)
        __hash__ = None  # type: ignore[assignment]

        def __init__(self, obj: Any) -> None:
            self.obj = obj

        def __lt__(self, other: Any) -> bool:
            return mycmp(self.obj, other.obj) < 0

        def __gt__(self, other: Any) -> bool:
            return mycmp(self.obj, other.obj) > 0

        def __eq__(self, other: Any) -> bool:
            return mycmp(self.obj, other.obj) == 0

        def __le__(self, other: Any) -> bool:
            return mycmp(self.obj, other.obj) <= 0

        def __ge__(self, other: Any) -> bool:
            return mycmp(self.obj, other.obj) >= 0

    return K


def is_enabled_for(self: Any, level: Any) -> bool:
    """`logging.Logger.isEnabledFor`, which keeps its answers until a level is set anew."""
    if self.disabled or self.manager.disable >= level:
        return False
    return level >= self.getEffectiveLevel()


def only_written(self: Any) -> bool:
    """Whether what this logger is told is written to streams of the library's, and nothing of the program's hears of it."""
    cls = type(self)
    for name in METHODS_OF_LOGGERS:
        if getattr(cls, name) is not getattr(logging.Logger, name):
            return False
    factory = logging._logRecordFactory  # type: ignore[attr-defined]  # Ray has one of its own, which notes the time
    if self.filters or factory is not logging.LogRecord and not factory.__module__.startswith("ray."):
        return False
    found = False
    while self:
        for handler in self.handlers:
            found = True
            if not written(handler):
                return False
        if not self.propagate:
            break
        self = self.parent
    return found or logging.lastResort is None or written(logging.lastResort)


def written(handler: Any) -> bool:
    """Whether a handler of the library writes to a stream of the library's, in the library's format."""
    cls = type(handler)
    kept = cls.__module__ + "." + cls.__name__ in HANDLERS_OF_OTHERS
    if not kept and (cls.__module__ not in ("logging", "logging.handlers") or cls.__name__ not in HANDLERS) or handler.filters:
        return False
    if not kept and handler.formatter is not None and type(handler.formatter) is not logging.Formatter:
        return False
    if issubclass(cls, logging.NullHandler):
        return True
    return only_writes(sys.stderr if cls.__name__ == "_StderrHandler" else handler.stream)


METHODS_OF_LOGGERS = ("_log", "findCaller", "makeRecord", "handle", "filter", "callHandlers", "isEnabledFor", "getEffectiveLevel")
HANDLERS = ("StreamHandler", "_StderrHandler", "FileHandler", "NullHandler", "RotatingFileHandler", "TimedRotatingFileHandler",
    "WatchedFileHandler")  # fmt: skip
HANDLERS_OF_OTHERS = ("_pytest.logging.LogCaptureHandler", "_pytest.logging._LiveLoggingNullHandler", "_pytest.logging._FileHandler",
    "ray._private.log.PlainRayHandler")  # fmt: skip
def dispatched_method(self: Any, obj: Any, cls: Any = None) -> Any:
    """`functools.singledispatchmethod.__get__` for what is called at once, without its cache."""
    dispatch = self.dispatcher.dispatch
    name = getattr(self.func, "__name__", "singledispatchmethod method")

    def _method(*args: Any, **kwargs: Any) -> Any:
        if not args:
            raise TypeError(f"{name} requires at least 1 positional argument")
        return dispatch(args[0].__class__).__get__(obj, cls)(*args, **kwargs)

    return _method


def largest(found: Any, *others: Any) -> Any:
    """`max` without a key: CPython asks each value whether it is the larger one. The last of `others` gives more of them, one by one."""
    *known, rest = others
    for values in (known, rest):
        for v in values:
            if v > found:
                found = v
    return found


def smallest(found: Any, *others: Any) -> Any:
    """`min` without a key."""
    *known, rest = others
    for values in (known, rest):
        for v in values:
            if v < found:
                found = v
    return found


def added(found: Any, rest: Any) -> Any:
    """The rest of a `sum`."""
    for v in rest:
        found = found + v
    return found


def items_of(array: Any, n: int) -> Any:
    """`iter` of an array of one dim: each item is read in its turn, since the array may be written in between."""
    for i in range(n):
        yield array[i]
