"""Constants: what never changes and is guarded by value or by identity. Code that is not interpreted may read them as they are."""

from __future__ import annotations

import types

import torch

from pliant.interpret.types.row import read, row
from pliant.interpret.world import World

TEXT = (str, bytes)
SINGLE = (type(None), type(Ellipsis), type(NotImplemented))
OF_TORCH = (torch.dtype, torch.layout, torch.memory_format)

row(name="text", located=TEXT, stands=TEXT, plain=True, locate=World.constant, getattr=read)
row(name="None and its like", located=SINGLE, stands=SINGLE, plain=True, locate=World.identity, getattr=read)
row(name="dtype, layout, memory format", located=OF_TORCH, stands=OF_TORCH, plain=True, locate=World.identity, getattr=read)
row(name="device", located=(torch.device,), stands=(torch.device,), plain=True, locate=World.constant, getattr=read)
row(name="range", located=(range,), stands=(range,), plain=True, locate=World.range_, getattr=read)
row(name="code", located=(types.CodeType,), stands=(types.CodeType,), plain=True, locate=World.identity, getattr=read)
