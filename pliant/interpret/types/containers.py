"""Containers: outside ones are copied on first touch (`World.shadow`) and read item by item; C code that is given one may read it all."""

from __future__ import annotations

import collections
from typing import Any

import torch

from pliant.interpret.gate import ORDERLESS, name_of, ordered
from pliant.interpret.state import vm
from pliant.interpret.types.row import read, row
from pliant.interpret.world import World


def whole(fn: Any, o: Any) -> Any:
    vm.world.deep(o)
    return o


def whole_set(fn: Any, o: Any) -> Any:
    vm.world.deep(o)
    if name_of(fn) not in ORDERLESS:
        ordered(o)
    return o


SHADOWED = (collections.OrderedDict, collections.deque, collections.defaultdict, collections.Counter)

for _type in (list, dict):
    row(name=_type.__name__, located=(_type,), stands=(_type,), locate=World.locate_container, getattr=read, to_c=whole)
row(name="containers of collections", located=SHADOWED, stands=SHADOWED, locate=World.locate_container, to_c=whole)
row(name="set", located=(set,), stands=(set,), locate=World.locate_set, getattr=read, to_c=whole_set)
row(name="frozenset", located=(frozenset,), stands=(frozenset,), locate=World.locate_frozenset, getattr=read, to_c=whole_set)
row(name="tuple", located=(tuple,), stands=(tuple,), locate=World.locate_tuple, getattr=read, to_c=whole)
row(name="Size", located=(torch.Size,), stands=(torch.Size,), locate=World.locate_size, getattr=read, to_c=whole)
row(name="slice", located=(slice,), stands=(slice,), locate=World.locate_slice, getattr=read)
