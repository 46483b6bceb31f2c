"""Binding call arguments to a frame's local slots, as CPython does."""

from __future__ import annotations

import types
from typing import Any

from pliant.graph.read_later import OF_FUNCTIONS, of_function
from pliant.guards import source as S
from pliant.interpret.capture import UNSET
from pliant.interpret.decode import decode
from pliant.interpret.state import Frame, tries_loop, vm

VARARGS, VARKEYWORDS = 4, 8
_empty = (lambda: None).__code__


def guard_signature(fn: Any) -> None:
    """Which arguments a function of the outside takes, and has defaults for. (One that is made anew is guarded so when it is met.)"""
    world = vm.world
    if id(fn) in world.own_functions or id(fn) in world.function_sources:
        return
    world.guard(S.const(fn), "FUNCTION", (fn.__code__, fn.__defaults__, fn.__kwdefaults__))
    if fn.__kwdefaults__ is not None:
        world.guard(S.const(fn).attr("__kwdefaults__"), "DICT_KEYS", list(fn.__kwdefaults__))  # FUNCTION guards which dict it is


STANDS_FOR_C: dict[Any, Any] = {}  # methods of proxies: what a wrong call of theirs, `(args, kwargs)`, raises


def raise_binding_error(fn: Any, args: tuple, kwargs: dict) -> None:
    """Let CPython say what is wrong: call a function of the same signature with an empty body."""
    if fn in STANDS_FOR_C:
        STANDS_FOR_C[fn](args, kwargs)
    c = fn.__code__
    guard_signature(fn)
    stub = types.FunctionType(
        c.replace(co_code=_empty.co_code, co_consts=_empty.co_consts, co_names=(), co_exceptiontable=b"", co_linetable=_empty.co_linetable,
                  co_freevars=(), co_cellvars=(), co_flags=c.co_flags & ~0x2A0, co_stacksize=8),
        {}, fn.__name__, fn.__defaults__,
    )  # fmt: skip
    stub.__kwdefaults__ = fn.__kwdefaults__
    stub.__qualname__ = fn.__qualname__
    stub(*args, **kwargs)
    raise TypeError(f"{fn.__qualname__}() could not be called with these arguments")


def default(fn: Any, which: str, key: Any, value: Any) -> Any:
    """A default value: of the outside unless the function was made in this capture."""
    world = vm.world
    if id(fn) in world.own_functions:
        return value
    anew = world.function_sources.get(id(fn))
    c = anew or S.const(fn)
    src = c.attr("__defaults__").index(key) if which == "defaults" else c.attr("__kwdefaults__").key(key)
    t = type(value)
    if anew is None and which == "defaults" and t in (int, float, bool, str, type(None)):
        return value  # FUNCTION guards the tuple of defaults, and these never change
    return world.locate(value, src)


def with_defaults(fn: Any, args: list) -> list:
    """The local slots of a frame that C code has started, and filled with defaults as they are: those are of the outside."""
    c, loc = fn.__code__, list(args)
    given = fn.__defaults__ or ()
    first = c.co_argcount - len(given)
    for i, value in enumerate(given):
        if loc[first + i] is value:
            loc[first + i] = default(fn, "defaults", i, value)
    if c.co_kwonlyargcount and fn.__kwdefaults__:
        for i in range(c.co_argcount, c.co_argcount + c.co_kwonlyargcount):
            name = c.co_varnames[i]
            if name in fn.__kwdefaults__ and loc[i] is fn.__kwdefaults__[name]:
                loc[i] = default(fn, "kwdefaults", name, loc[i])
    return loc


def bind(fn: Any, args: tuple, kw: dict) -> list | None:
    """The frame's first local slots for this call, or None where CPython would raise."""
    c = fn.__code__
    na = c.co_argcount
    nk = c.co_kwonlyargcount
    flags = c.co_flags
    n = len(args)
    if n == na and not kw and not nk and not flags & (VARARGS | VARKEYWORDS):
        return list(args)
    names = c.co_varnames
    total = na + nk
    loc: list[Any] = list(args[:na])
    loc += [UNSET] * (total - len(loc))
    extra: tuple = ()
    if n > na:
        if not flags & VARARGS:
            return None
        extra = tuple(args[na:])
    rest: dict[str, Any] = {}
    if kw:
        posonly = c.co_posonlyargcount
        for key, v in kw.items():
            try:
                i = names.index(key, posonly, total)
            except ValueError:
                if not flags & VARKEYWORDS:
                    return None
                rest[key] = v
                continue
            if loc[i] is not UNSET:
                return None
            loc[i] = v
    if n < na:
        d = fn.__defaults__ or ()
        first = na - len(d)
        for i in range(n, na):
            if loc[i] is UNSET:
                if i < first:
                    return None
                loc[i] = default(fn, "defaults", i - first, d[i - first])
    if nk:
        kd = fn.__kwdefaults__ or {}
        for i in range(na, total):
            if loc[i] is UNSET:
                if names[i] not in kd:
                    return None
                loc[i] = default(fn, "kwdefaults", names[i], kd[names[i]])
    if flags & VARARGS:
        loc.append(extra)
    if flags & VARKEYWORDS:
        loc.append(rest)
    return loc


def cell_source(fn: Any, i: int) -> S.Source:
    """Where cell `i` of the closure of a function of the outside is found: a function that is made anew brings its own."""
    source = vm.world.function_sources.get(id(fn))
    return S.const(fn.__closure__[i]) if source is None else source.attr("__closure__").index(i)


def in_closure(fn: Any, name: str) -> Any:
    """What the variable `name` of the closure of `fn` holds."""
    world, i = vm.world, fn.__code__.co_freevars.index(name)
    held = fn.__closure__[i].cell_contents
    return held if id(fn) in world.own_functions else world.locate(held, cell_source(fn, i).contents())


def make_frame(fn: Any, loc: list, *, func_source: Any = None) -> Frame:
    """A frame ready to run `fn` on bound locals; registers the outside cells that its closure reaches."""
    vm.world.interpreted[id(fn)] = fn
    if vm.heard is not None:
        vm.heard.extend([(of_function, fn, name) for name in OF_FUNCTIONS])
    d = decode(fn.__code__)
    loc += d.template[len(loc) :]
    f = Frame(d, fn, loc, fn.__globals__)
    h = vm.history
    if h is not None:
        f.watched = h.watches(d.code) or bool(vm.loops) and tries_loop(d.code)
    closure = fn.__closure__
    if closure is not None and id(fn) not in vm.world.own_functions:
        cells = vm.world.cells
        for i, cell in enumerate(closure):
            if id(cell) not in cells:
                src = S.const(cell) if func_source is None else func_source.attr("__closure__").index(i)
                cells[id(cell)] = src.contents()
                vm.world.adopt(cell, src)
    return f
