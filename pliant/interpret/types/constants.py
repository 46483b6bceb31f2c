"""Constants: what never changes and is guarded by value or by identity. Code that is not interpreted may read them as they are."""

from __future__ import annotations

import types
from typing import Any

import torch

from pliant.guards.source import Source
from pliant.interpret.opaque import Opaque
from pliant.interpret.types.row import read, row
from pliant.interpret.world import World

TEXT = (str, bytes)
SINGLE = (type(None), type(Ellipsis), type(NotImplemented))
PARTS = ("start", "stop", "step")
OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)


def locate_range(world: World, v: range, source: Source) -> Any:
    """A constant; where it has changed, or loops over changing ranges have been seen, only its iteration is of interest."""
    parts, h = [source.attr(part) for part in PARTS], world.history
    if world.loops_seen or h is not None and any(map(h.is_dynamic, parts)):
        return Opaque(v, source)
    world.guard(source, "TYPE_MATCH", range)
    for part, name in zip(parts, PARTS, strict=True):  # equal ranges may differ in them
        world.guard(part, "EQ_MATCH", getattr(v, name))
    return v


row(name="text", located=TEXT, stands=TEXT, plain=True, locate=World.constant, getattr=read)
row(name="None and its like", located=SINGLE, stands=SINGLE, plain=True, locate=World.identity, getattr=read)
row(name="dtype, layout, memory format", located=OF_TORCH, stands=OF_TORCH, plain=True, locate=World.identity, getattr=read)
row(name="device", located=(torch.device,), stands=(torch.device,), plain=True, locate=World.constant, getattr=read)
row(name="range", located=(range,), stands=(range,), plain=True, locate=locate_range, getattr=read)
row(name="code", located=(types.CodeType,), stands=(types.CodeType,), plain=True, locate=World.identity, getattr=read)
