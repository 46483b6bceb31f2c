"""How many arguments the builtins take that the interpreter replaces: a wrong call raises what CPython raises, word for word.

A replacement (a lookaside) is only asked for calls that fit; any other is made by CPython, which says what is wrong with it.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import types
import warnings
from typing import Any

ANY = 1 << 30
Takes = tuple[int, int, frozenset[str] | None]  # positional arguments: at least, at most; names of keywords (None: any)
NO_NAMES: frozenset[str] = frozenset()

#: Where CPython has no signature to ask, or where it tells less than the truth.
KNOWN: dict[Any, Takes] = {
    getattr: (2, 3, NO_NAMES),
    iter: (1, 2, NO_NAMES),
    next: (1, 2, NO_NAMES),
    bool: (0, 1, NO_NAMES),
    vars: (0, 1, NO_NAMES),
    super: (0, 2, NO_NAMES),
    type: (1, 3, None),
    warnings._filters_mutated: (0, 0, NO_NAMES),  # type: ignore[attr-defined]
    builtins.__build_class__: (2, ANY, None),
    range: (1, 3, NO_NAMES),
    dict: (0, 1, None),
    set: (0, 1, NO_NAMES),
    frozenset: (0, 1, NO_NAMES),
    print: (0, ANY, frozenset({"sep", "end", "file", "flush"})),
    int: (0, 2, frozenset({"base"})),
    str: (0, 3, frozenset({"object", "encoding", "errors"})),
    object.__init__: (1, ANY, None),
    **dict.fromkeys((max, min, map, filter, zip), (0, ANY, None)),
}


@functools.cache
def takes(fn: Any) -> Takes:
    """What a function of C takes; of any other, that anything may fit."""
    found = KNOWN.get(fn)
    if found is not None:
        return found
    if not isinstance(fn, (types.BuiltinFunctionType, types.WrapperDescriptorType, types.MethodDescriptorType, type)):
        return 0, ANY, None
    try:
        parameters = inspect.signature(fn).parameters.values()
    except (ValueError, TypeError):
        return 0, ANY, None
    kinds = [p.kind for p in parameters]
    if inspect.Parameter.VAR_POSITIONAL in kinds or inspect.Parameter.VAR_KEYWORD in kinds:
        return 0, ANY, None
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    least = sum(p.default is p.empty and p.kind is p.POSITIONAL_ONLY for p in positional)
    return least, len(positional), frozenset(p.name for p in parameters if p.kind is not p.POSITIONAL_ONLY)


def fits(fn: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a call has as many arguments as `fn` takes, and no keyword that it does not know."""
    least, most, names = takes(fn)
    if not least <= len(args) <= most:
        return False
    return not kwargs or names is None or kwargs.keys() <= names


def binds(code: types.CodeType, fn: Any, args: tuple, kwargs: dict) -> bool:
    """Whether a Python function can be called so; nothing is read but its signature."""
    total, given = code.co_argcount + code.co_kwonlyargcount, code.co_varnames
    n = min(len(args), code.co_argcount)
    names = set(given[max(n, code.co_posonlyargcount) : total])
    others = kwargs.keys() - names
    if code.co_flags & inspect.CO_VARKEYWORDS:
        others &= set(given[code.co_posonlyargcount : n])  # given twice
    if others or len(args) > n and not code.co_flags & inspect.CO_VARARGS:
        return False
    without = {*given[n : code.co_argcount - len(fn.__defaults__ or ())], *given[code.co_argcount : total]}
    return without <= (kwargs.keys() & names) | (fn.__kwdefaults__ or {}).keys()
