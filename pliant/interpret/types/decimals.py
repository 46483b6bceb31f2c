"""Decimals: constants whose arithmetic reads the context of the thread, and writes there which signals have come."""

from __future__ import annotations

import decimal
from collections.abc import Callable
from typing import Any

from pliant.interpret.calls import answered
from pliant.interpret.types.row import row
from pliant.interpret.world import World

Decimal = decimal.Decimal
OPERANDS = {Decimal, int, bool, float, str, complex, type(None)}


def getattr_(o: Any, name: str) -> Any:
    return getattr(o, name)


def method(o: Any, name: str, args: tuple, kw: dict) -> Any:
    return answered("decimal", getattr(o, name), args, kw)


def unary(fn: Callable, o: Any) -> Any:
    return answered("decimal", fn, (o,), {})


def binary(fn: Callable, a: Any, b: Any) -> Any:
    """With another decimal or a number; what other objects have to say is asked first (`slots.binary`)."""
    return answered("decimal", fn, (a, b), {}) if type(a) in OPERANDS and type(b) in OPERANDS else NotImplemented


def slot(o: Any, name: str, other: Any) -> Any:
    return answered("decimal", getattr(o, name), (other,), {})


def text(o: Any, fn: Any) -> Any:
    return answered("decimal", fn, (o,), {})


def formatted(o: Any, spec: str) -> Any:
    return answered("decimal", format, (o, spec), {})


row(
    name="decimal", located=(Decimal,), stands=(Decimal,), plain=True, locate=World.identity, getattr=getattr_, method=method, unary=unary,
    binary=binary, compare=binary, slot=slot, text=text, format=formatted,
)  # fmt: skip
