"""Texts that methods and functions make of values: `"{0.x}".format(o)`, `str(n)`, `", ".join(...)`.

Attributes and items that a template names are read as the program would read them, and not by C code; what only the run knows
becomes a piece of a text made late.
"""

from __future__ import annotations

import _string
import itertools
from collections.abc import Callable
from typing import Any

from pliant.interpret import shadows
from pliant.interpret.attributes import getattr_
from pliant.interpret.calls import METHOD_LOOKASIDES, call, native
from pliant.interpret.late_text import LateText, formatted, joined, late
from pliant.interpret.slots import get_next, getitem, iterator
from pliant.interpret.state import vm


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
    if not looks_into(template) and not any(map(late, (*args, *kw.values()))):
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


def filled(template: str, find: Callable) -> Any:
    out = []
    for literal, field, spec, conversion in parsed(template):
        out.append(literal)
        if field is None:
            continue
        first, rest = _string.formatter_field_name_split(field)
        v = find(first)
        for is_attribute, name in rest:
            v = getattr_(v, name) if is_attribute else getitem(v, name)
        inner = filled(spec, find) if spec else ""
        text = formatted(v, CODES[conversion or ""], inner, False)
        if text is None:
            if conversion:
                v = call({"s": str, "r": repr, "a": ascii}[conversion], (v,), {})
            text = call(format, (v, inner), {})
        out.append(text)
    found = joined(out)
    return native("".join, (out,), {}) if found is None else found


CODES = {"": 0, "s": 1, "r": 2, "a": 3}


def l_str_join(sep: str, args: tuple, kw: dict) -> Any:
    """`sep.join(texts)`, some of which may be made late."""
    if len(args) == 1 and not kw and type(args[0]) is not str and hasattr(type(args[0]), "__iter__"):
        texts = args[0] if type(args[0]) in (list, tuple) else call(list, (iterator(args[0], "can only join an iterable"),), {})
        shadows.read_all(vm.world, texts)
        kinds = set(map(type, texts))
        if LateText in kinds and kinds <= {str, LateText}:
            between = itertools.chain.from_iterable(zip(itertools.repeat(sep), texts, strict=False))
            return joined(list(itertools.islice(between, 1, None)))
        args = (texts,)
    return native(sep.join, args, kw)


METHOD_LOOKASIDES[str, "join"] = l_str_join
METHOD_LOOKASIDES[str, "format"] = l_str_format
METHOD_LOOKASIDES[str, "format_map"] = l_str_format_map
