"""What the variables of a frame hold, by name: `locals()`."""

from __future__ import annotations

import types
from typing import Any

from pliant.bytecode.version import LOCALS_ARE_SNAPSHOTS
from pliant.interpret import shadows
from pliant.interpret.capture import UNSET
from pliant.interpret.opcodes import force, read_cell
from pliant.interpret.state import vm


def locals_of(f: Any) -> dict:
    """The names that `locals()` shows in frame `f`. Up to 3.12 a frame has one dict for them, which each question brings up to date."""
    if f.names is not None:
        return of_class_body(f)
    out = {} if f.shown is None or LOCALS_ARE_SNAPSHOTS else f.shown
    f.shown = out
    for i, name in enumerate(local_names(f.code)):
        v = local_value(f, i, name)
        if v is not UNSET:
            out[name] = v
        else:
            out.pop(name, None)
    return out


def local_names(c: types.CodeType) -> list[str]:
    """Of each slot of a frame."""
    return [*c.co_varnames, *[x for x in c.co_cellvars if x not in c.co_varnames], *c.co_freevars]


def local_value(f: Any, i: int, name: str) -> Any:
    """What the variable in slot `i` holds, in a cell or not; UNSET if nothing."""
    v = force(f, i)
    if type(v) is types.CellType and (name in f.code.co_cellvars or name in f.code.co_freevars):
        try:
            return read_cell(v, f, i)
        except (NameError, UnboundLocalError):
            return UNSET
    return v


def of_class_body(f: Any) -> Any:
    """The names of a class body. In a comprehension there, which since 3.12 runs in the frame of the body with variables that are no names
    of the class, they are shown beside these, and since 3.13 alone, with those of the functions around the class."""
    c = f.code
    if not any([local_value(f, i, name) is not UNSET for i, name in enumerate(c.co_varnames)]):
        return f.names
    slots = [(name, local_value(f, i, name)) for i, name in enumerate(local_names(c))]
    shown = {name: v for name, v in slots if v is not UNSET and (LOCALS_ARE_SNAPSHOTS or name not in c.co_freevars)}
    if LOCALS_ARE_SNAPSHOTS:
        return shown
    shadows.read_all(vm.world, f.names)
    return {**f.names, **shown}
