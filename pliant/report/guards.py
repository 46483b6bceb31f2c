"""Guards as people read them: by source and kind, with what each demands and the line that needed it."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from typing import Any

from pliant.guards.guard import Guard, TensorSpec
from pliant.interpret.policy import full_name
from pliant.report.tables import clip

ROOTS = (
    (re.compile(r"^L\['([^']+)'\]"), r"local '\1'"),
    (re.compile(r"^G\['([^']+)'\]"), r"global '\1'"),
    (re.compile(r"^F\b"), "function"),
)


def source_text(name: str) -> str:
    """`L['a'].weight` -> `local 'a'.weight`."""
    for pattern, text in ROOTS:
        name, n = pattern.subn(text, name)
        if n:
            break
    return name


def tensor_text(spec: TensorSpec) -> str:
    """What TENSOR_MATCH demands; a dimension that may change is `?`."""
    sizes = ", ".join("?" if n is None else str(n) for n in spec.sizes)
    kind = "" if spec.pytype.__name__ == "Tensor" else f"{spec.pytype.__name__} "
    grad = ", requires_grad" if spec.requires_grad else ""
    return f"{kind}{str(spec.dtype).removeprefix('torch.')}[{sizes}] on {spec.device}{grad}"


def name_of(value: Any) -> str:
    return full_name(value) if hasattr(value, "__name__") else f"a {type(value).__name__}"


VALUE_TEXTS: dict[str, Callable[[Any], str]] = {
    "TYPE_MATCH": name_of,
    "ID_MATCH": name_of,
    "EQ_MATCH": lambda v: f"== {v!r}",
    "LENGTH": lambda v: f"len == {v}",
    "EMPTY": lambda v: f"an empty {v.__name__}",
    "DICT_KEYS": lambda v: f"keys {list(v)!r}",
    "DICT_CONTAINS": lambda v: f"{v[0]!r} {'in' if v[1] else 'not in'} it",
    "DICT_LACKS": lambda v: ", ".join(f"no {k!r}" if t is None else f"an empty {t.__name__} as {k!r}" for k, t in v.items()),
    "SET_EQUALS": lambda v: f"== {v!r}",
    "TENSOR_MATCH": tensor_text,
    "INT": lambda v: "any int",
    "FLOAT": lambda v: "any float",
    "BOOL": lambda v: "any bool",
    "ALIAS": lambda v: f"is {source_text(v.name)}",
    "DICT_LACKS_ITEM": lambda v: f"{source_text(v.name)} not in it",
    "NOT_ALIAS": lambda v: "distinct from " + ", ".join(source_text(s.name) for s in v),
    "STORAGE_OVERLAP": lambda v: "memory shared, or not, as then: " + ", ".join(source_text(s.name) for s in v[0]),
    "FUNCTION": lambda v: "the same code and defaults",
    "TYPE_ATTRS": lambda v: "the same attributes " + ", ".join(v),
    "GLOBAL_STATE": lambda v: "grad mode, autocast, default dtype and device, …",
    "ANSWER": lambda v: v.told(),
    "PREDICATE": name_of,
}


def demand(guard: Guard) -> str:
    """What the guard demands of the value at its source; "" where the kind says it all."""
    text = VALUE_TEXTS.get(guard.kind)
    return clip(text(guard.value)) if text is not None else ""


def site_text(site: Any) -> str:
    return f"# {os.path.basename(site.filename)}:{site.lineno}" if site is not None else ""


def guard_lines(guards: Iterable[Any]) -> list[str]:
    """One line a guard, in three columns: source and kind, what is demanded, the line that needed it. Relations over sizes come last.

    A relation is a `symbolic.scope.SymGuard`. A range declared with its symbol is left out if it only says that a size is not negative.
    """
    rows, relations = [], []
    for g in guards:
        if isinstance(g, Guard):
            rows.append((f"{source_text(g.source.name)} {g.kind}", demand(g), site_text(g.site)))
        elif not (g.why == "declared" and re.fullmatch(r"\w+ >= 0", str(g.user_form))):
            relations.append((f"size {g.user_form}", meanings(g.user_form), site_text(g.site)))
    rows += relations
    if not rows:
        return []
    left = max(len(r[0]) for r in rows)
    middle = max(len(r[1]) for r in rows)
    return [f" - {a.ljust(left)}  {b.ljust(middle)}  {c}".rstrip() for a, b, c in rows]


def meanings(relation: Any) -> str:
    """`s0 = local 'x'.size()[0]` for each symbol of a relation that is read somewhere."""
    found = []
    for symbol in relation.symbols():
        source = symbol.info.source
        if source is not None:
            found.append(f"{symbol} = {source_text(getattr(source, 'name', str(source)))}")
    return ", ".join(found)
