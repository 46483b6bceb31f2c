"""`"{0.x}".format(o)`: attributes and items that a template names are read as the program would read them, and not by C code."""

from __future__ import annotations

import _string
from collections.abc import Callable
from typing import Any

from pliant.interpret.attributes import getattr_
from pliant.interpret.calls import METHOD_LOOKASIDES, call, native
from pliant.interpret.late_text import LateText, needed
from pliant.interpret.slots import get_next, getitem


def looks_into(template: str) -> bool:
    """Whether a template of `str.format` names attributes or items, which C code would read."""
    return any([not {".", "["}.isdisjoint(field or "") or looks_into(spec or "") for _, field, spec, _ in parsed(template)])


def parsed(template: str) -> list:
    try:
        return list(_string.formatter_parser(template))
    except ValueError:  # CPython says what is wrong
        return []


def l_str_format(template: str, args: tuple, kw: dict) -> Any:
    """`"{0.x}".format(o)`: what the template names is read as the program would."""
    if not looks_into(template):
        return native(template.format, args, kw)
    unnamed = iter(args)

    def find(first: Any) -> Any:
        if first == "":
            return get_next(unnamed)
        return args[first] if type(first) is int else kw[first]

    try:
        return filled(template, find)
    except StopIteration:
        raise IndexError(f"Replacement index {len(args)} out of range for positional args tuple") from None


def l_str_format_map(template: str, args: tuple, kw: dict) -> Any:
    if len(args) != 1 or kw or not looks_into(template):
        return native(template.format_map, args, kw)
    return filled(template, lambda first: getitem(args[0], first))


def filled(template: str, find: Callable) -> str:
    out = []
    for literal, field, spec, conversion in parsed(template):
        out.append(literal)
        if field is None:
            continue
        first, rest = _string.formatter_field_name_split(field)
        v = find(first)
        for is_attribute, name in rest:
            v = getattr_(v, name) if is_attribute else getitem(v, name)
        if conversion:
            v = call({"s": str, "r": repr, "a": ascii}[conversion], (v,), {})
        out.append(call(format, (v, filled(spec, find) if spec else ""), {}))
    return native("".join, ([needed(x) if type(x) is LateText else x for x in out],), {})


METHOD_LOOKASIDES[str, "format"] = l_str_format
METHOD_LOOKASIDES[str, "format_map"] = l_str_format_map
