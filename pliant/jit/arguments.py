"""The arguments of `pliant.compile`, checked: what is not understood is refused with a sentence, never taken for something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Argument(NamedTuple):
    """What an argument may be, as a test and in words, and what to do else."""

    admits: Callable[[Any], bool]
    wanted: str
    fix: str = ""


def flag(v: Any) -> bool:
    return type(v) is bool


ARGUMENTS: dict[str, Argument] = {
    "fullgraph": Argument(flag, "True or False"),
    "dynamic": Argument(
        lambda v: v is None or flag(v) or isinstance(v, Mapping),
        "None, True, False, or a dict from parameter names to declared dims",
        'declare one dim with dynamic={"x": {0: pliant.Dim("batch")}}',
    ),
    "backend": Argument(
        lambda v: isinstance(v, str) or callable(v),
        "a name or a callable (GraphModule, example_inputs) -> callable",
        'use "native" or "aten"'
    ),
    "mode": Argument(lambda v: v is None or isinstance(v, str), "None or the name of a mode"),
    "options": Argument(
        lambda v: v is None or (isinstance(v, Mapping) and all(isinstance(k, str) for k in v)), "None or a dict from names to values"
    ),
    "disable": Argument(flag, "True or False"),
    "strict": Argument(lambda v: v is None or flag(v), "None, True or False"),
    "name": Argument(lambda v: v is None or isinstance(v, str), "None or a text"),
    "recompile_limit": Argument(lambda v: v is None or (type(v) is int and v > 0), "None or a whole number above 0"),
    "isolate_recompiles": Argument(flag, "True or False"),
    "background": Argument(lambda v: v is None or flag(v), "None, True or False"),
}


def check(**given: Any) -> None:
    """Raise TypeError for the first argument that is none of what it may be."""
    for name, value in given.items():
        row = ARGUMENTS[name]
        if not row.admits(value):
            fix = f": {row.fix}" if row.fix else ""
            raise TypeError(f"pliant.compile: {name}= is {row.wanted}, not {value!r} (a {type(value).__name__}){fix}")


def on_mesh(on: Any, backend: Any) -> str:
    """The backend of a mesh. TypeError for what is none, ValueError where another backend was asked for too."""
    own = getattr(on, "backend", None)
    if not isinstance(own, str) or not hasattr(on, "workers"):
        raise TypeError(f"pliant.compile: on= is a mesh (pliant.remote.mesh), not {on!r} (a {type(on).__name__})")
    if backend not in (None, own):
        raise ValueError(f"pliant.compile: give either on= or backend={backend!r}: the workers of a mesh have a compiler of their own")
    return own
