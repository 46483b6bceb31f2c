"""What an exported function writes besides its result, and what becomes of it.

- A tensor put into an object among the arguments (the keys of a cache), or into a buffer of a module: an output of kind "mutation".
- A constant put into an object among the arguments: a call of the program puts it there (`Program.puts`); other formats leave it out.
- An attribute of a module that the program does not read: left out, with a note.
- Everything else, and an attribute that is read before it is written (a step counter): refused, for the program would give other answers
  than the function from its second call on.
"""

from __future__ import annotations

import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export import naming
from pliant.export.program import MUTATION, Output, Put
from pliant.graph.traced import TracedTensor
from pliant.guards.source import Source
from pliant.interpret.capture import Effect

ITEMS = ("dict_set", "setattr")


@dataclass(slots=True)
class Write:
    """A value that goes to a place: the path of an object among the arguments, or the name of a buffer."""

    value: Any
    path: tuple = ()
    of: str = ""


def sorted_out(writer: Any) -> tuple[list[Effect], list[Write]]:
    """The effects that the program keeps as outputs, and what they write. Raises PliantError for those that it cannot have."""
    kept, written = [], []
    for e in writer.found.effects:
        w = write_of(writer, e)
        if w is not None:
            kept.append(e)
            written.append(w)
    return kept, written


def write_of(writer: Any, e: Effect) -> Write | None:
    world = writer.found.world
    if e.kind == "call":
        if harmless(e.target, *e.args[:1]):
            writer.notes.append(f"it calls {getattr(e.target, '__qualname__', e.target)}")
            return None
        raise refused(writer, f"it calls {getattr(e.target, '__qualname__', e.target)}, which acts on the outside")
    if e.kind == "global_state":
        return None  # put back, or as it was, at the end of the frame: of no use to who calls the program
    source = world.source_of(e.target) or owner_of(world, e.target)
    if source is None or e.kind not in ITEMS:
        raise refused(writer, f"it changes {source.name if source is not None else type(e.target).__name__} ({e.kind.replace('_', ' ')})")
    name, value = e.args
    if naming.of_argument(source):
        at = source.key(name) if e.kind == "dict_set" else source.attr(name)
        return Write(value, path=writer.path(at))
    if source.op == "key" and source.arg == "_buffers":
        if type(value) is TracedTensor and value.source is source.key(name):
            return None  # written in place: the operations say so
        if type(value) is not TracedTensor and not isinstance(value, torch.Tensor):
            raise refused(writer, f"it puts something else than a tensor into the buffer {name}")
        real = e.target.get(name) if isinstance(e.target, dict) else None
        of = writer.names.known.get(id(real), ("", naming.source_name(source.key(name))))[1]
        return Write(value, of=of)
    if known_to_be(writer.found, source, name, value):
        return None
    if read_before(writer.found, source, name):
        raise refused(writer, f"it reads and then writes {source.name}[{name!r}]: state that is no buffer. Use register_buffer for it")
    writer.notes.append(f"it writes {source.name}[{name!r}]")
    return None


def owner_of(world: Any, target: Any) -> Source | None:
    """The source of an instance dictionary."""
    for h in world.shadows.values():
        if h.orig is target:
            return h.source if hasattr(h, "source") else world.sources.get(id(h.owner if h.owner is not None else h.orig))
    return None


def known_to_be(found: Any, source: Source, name: Any, value: Any) -> bool:
    """Whether the program relies on the very value being there that it writes."""
    at = {source.key(name), source.dict().key(name), source.attr(name)}
    for g in found.guards:
        if g.source in at and (g.kind == "ID_MATCH" and g.value is value or g.kind == "EQ_MATCH" and same_constant(g.value, value)):
            return True
    return False


def same_constant(a: Any, b: Any) -> bool:
    return type(a) is type(b) and type(a) in (int, float, bool, str, type(None)) and repr(a) == repr(b)


def read_before(found: Any, source: Source, name: Any) -> bool:
    """Whether the program relies on what was there."""
    holders = {source, source.dict()}
    at = {source.key(name), source.dict().key(name), source.attr(name)}
    for g in found.guards:
        if g.source in at and g.kind in ("EQ_MATCH", "ID_MATCH", "TENSOR_MATCH", "INT", "FLOAT"):
            return True
        if (
            g.kind == "DICT_LACKS" and g.source in holders and name in g.value
        ):  # its class has one, or the program asked whether it is there
            return True
    return False


LOGGERS: tuple[Callable, ...] = (warnings.warn, warnings.warn_explicit)


def harmless(fn: Any, args: tuple = ()) -> bool:
    """Words to people: they are said where the function runs, not by the program."""
    owner = getattr(fn, "__self__", args[0] if args else None)
    return fn in LOGGERS or fn is print or isinstance(owner, logging.Logger)


def refused(writer: Any, what: str) -> PliantError:
    return PliantError(f"{naming.title(writer.f)} has an effect that a program cannot have: {what}.")


def outputs(writer: Any, written: list[Write], values: list[Any], given: dict[int, Any]) -> tuple[list[Output], list[Put]]:
    """The outputs of kind "mutation" for values that go to objects and buffers, and the constants that go to objects."""
    out: list[Output] = []
    puts: list[Put] = []
    for w, value in zip(written, values, strict=True):
        traced = given.get(id(value))
        name = naming.path_name(w.path) if w.path else w.of
        if traced is not None:
            out.append(Output(f"{name}.out", MUTATION, traced, of=name, path=w.path))
        elif isinstance(value, (bool, int, float, str, type(None))):
            writer.notes.append(f"it writes {name} = {value!r}")
            puts.append(Put(w.path, value, out[-1].name if out else ""))
        else:
            raise refused(writer, f"it puts a {type(value).__name__} into {name}")
    return out, puts
