"""Context variables: reads are guarded, sets stay inside the capture and are replayed only if they are not undone."""

from __future__ import annotations

import contextvars
from typing import Any

from pliant.guards import source as S
from pliant.interpret.calls import METHOD_LOOKASIDES
from pliant.interpret.capture import UNSET
from pliant.interpret.state import Break, vm

TOKENS = "tokens of context variables"
"""In `vm.refused`: one of them has to be handed to code behind the graph."""
SIMPLE = {type(None), bool, int, float, str, bytes}


class Holds:
    """Guard predicate: the variable still has this value in the caller's context."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __call__(self, var: contextvars.ContextVar) -> bool:
        now = var.get(UNSET)
        if now is self.value:
            return True
        if type(now) is not type(self.value) or type(now) not in SIMPLE:
            return False
        return now == self.value if type(now) is not float else repr(now) == repr(self.value)  # the signs of a zero are two values

    def __repr__(self) -> str:
        return f"holds {self.value!r}"


class Token:
    """What `ContextVar.set` returns inside a capture."""

    __slots__ = ("old", "used", "var")

    def __init__(self, var: Any, old: Any) -> None:
        self.var = var
        self.old = old
        self.used = False

    @property
    def old_value(self) -> Any:
        """What the program reads."""
        return contextvars.Token.MISSING if self.old is UNSET else self.old


def current(var: contextvars.ContextVar) -> Any:
    now = vm.world.context_values.get(id(var))
    if now is not None:
        return now[1]
    v = var.get(UNSET)
    if v is not UNSET and type(v) not in SIMPLE:
        raise Break("PL0007", f"the value of context variable {var.name!r}", clean=True)
    vm.world.guard(S.const(var), "PREDICATE", Holds(v), "value")
    vm.world.context_values[id(var)] = (var, v, v)
    return v


def get(var: contextvars.ContextVar, args: tuple, kw: dict) -> Any:
    v = current(var)
    if v is not UNSET:
        return v
    if args:
        return args[0]
    found = contextvars.Context().run(var.get)  # its default, if it has one, which is for ever; else this raises what the program would see
    return found if type(found) in SIMPLE else vm.world.locate(found, S.const(found))


def put(var: contextvars.ContextVar, value: Any) -> None:
    _, _, first = vm.world.context_values[id(var)]
    vm.world.context_values[id(var)] = (var, value, first)


def set_(var: contextvars.ContextVar, args: tuple, kw: dict) -> Token:
    if TOKENS in vm.refused:
        raise Break("PL0025", f"set() of context variable {var.name!r}, whose token is kept", clean=True)
    t = Token(var, current(var))
    put(var, args[0])
    return t


def reset(var: contextvars.ContextVar, args: tuple, kw: dict) -> None:
    token = args[0]
    if type(token) is not Token or token.var is not var or token.used:
        raise Break("PL0007", f"a token of context variable {var.name!r} that was made outside, is another's, or was used", clean=True)
    token.used = True
    put(var, token.old)


METHOD_LOOKASIDES[(contextvars.ContextVar, "get")] = get
METHOD_LOOKASIDES[(contextvars.ContextVar, "set")] = set_
METHOD_LOOKASIDES[(contextvars.ContextVar, "reset")] = reset
