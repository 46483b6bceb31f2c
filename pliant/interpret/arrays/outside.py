"""Arrays and scalars from before the capture: how they are found, and what is guarded of them."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import numpy as np
from pliant.graph.originals import torch
from pliant.guards.source import Source
from pliant.guards.views import SMALL, VIEWS
from pliant.interpret.arrays.dtypes import CANON, KNOWN, NUMPY, SCALARS
from pliant.interpret.arrays.proxies import TracedArray, TracedScalar
from pliant.interpret.opaque import Opaque
from pliant.interpret.state import vm
from pliant.interpret.tensor_inputs import make_tensor
from pliant.interpret.types import numbers
from pliant.interpret.world import World

TEXTS = (np.str_, np.bytes_)


def locate_array(world: World, v: Any, source: Source) -> Any:
    """An array whose memory torch can see is an input of the graph; another one is known by its type, and read by nobody."""
    known = world.arrays.get(id(v))
    if known is not None:
        if known.source is not source:
            world.guard(source, "ALIAS", known.source)
        return known
    name = "array_tensor" if v.flags.writeable else "frozen_array_tensor"
    world.guard(source, "TYPE_MATCH", np.ndarray)
    found = tensor_of(v, name)
    if found is None:
        return world.adopt(v, source)
    t = make_tensor(world, found, source.apply(name))
    a = TracedArray(t, NUMPY[found.dtype], source, v.flags.writeable)
    world.arrays[id(v)] = a
    world.keep += (v, a)
    return a


def tensor_of(v: Any, name: str) -> Any:
    """The tensor that the guard will make, or None."""
    if id(v.dtype) not in KNOWN or torch._C._len_torch_function_stack():
        return None
    try:
        with vm.trace.paused(), torch._C._InferenceMode(vm.world.begun_in_inference):  # as it is where guards run
            return VIEWS[name](v)
    except (TypeError, ValueError, RuntimeError):
        return None


def locate_scalar(world: World, v: Any, source: Source) -> Any:
    """By value, as numbers of Python are: symbolic where these would be."""
    dt = SCALARS[type(v)]
    world.sources.setdefault(id(v), source)  # it leaves as the object that it is
    world.keep.append(v)
    world.guard(source, "TYPE_MATCH", type(v))
    n = v.item()
    view = source.apply("scalar_number")
    if dt.kind == "f":
        if view in world.opaque:
            return Opaque(v, source)
        found = numbers.floating(world, n, view)
        return v if found is n else TracedScalar(dt, found, None, source)
    if dt.kind in "iu" and (dt.itemsize < 8 or -SMALL <= n < SMALL):
        lo, hi = (-SMALL, SMALL - 1) if dt.itemsize == 8 else (int(np.iinfo(dt).min), int(np.iinfo(dt).max))
        if dt == CANON["uint64"]:
            lo = 0
        view = source.apply("small_scalar_number" if dt.itemsize == 8 else "scalar_number")
        if view in world.opaque:
            return Opaque(v, source)
        found = numbers.integer(world, n, view, lo, hi)
        return v if found is n else TracedScalar(dt, found, None, source)
    if view in world.opaque:
        return Opaque(v, source)
    world.constant(n, view)
    return v


def locate_text(world: World, v: Any, source: Source) -> Any:
    world.guard(source, "TYPE_MATCH", type(v))
    view = source.apply("scalar_text")
    if view in world.opaque:
        return Opaque(v, source)
    world.constant(v.item(), view)
    return v


def locate_dtype(world: World, v: Any, source: Source) -> Any:
    """By identity: dtypes of other byte orders and of records have the classes that others have, too."""
    return world.identity(v, source)
