"""Distributed tensors in the interpreter: their functions are run as they are, their meshes are known by identity.

`graph/distributed_tensors.py` has what PyTorch's code is answered meanwhile. A mesh is never changed by anybody; what it says of the
processes is asked again by the guards of each call: its groups by name, how many each has, and which of them this process is.
"""

from __future__ import annotations

import functools
import sys
import types
from typing import Any

import torch
from torch.distributed.device_mesh import DeviceMesh

from pliant.graph import distributed_tensors
from pliant.graph.traced import TracedTensor
from pliant.interpret import policy
from pliant.interpret.calls import LOOKASIDES
from pliant.interpret.collectives import asked, group_rank, group_size, refused
from pliant.interpret.gate import captured_call
from pliant.interpret.state import Break, vm, whole_loops
from pliant.interpret.tensor_subclasses import of_distributed, refuse_gradients
from pliant.interpret.types.row import ROWS, read, row
from pliant.interpret.world import World
from pliant.interpret.wrappers import wrapper_of

STATIC = ("from_local",)
PLAIN = (int, bool, float, str, type(None), torch.dtype, torch.Size, torch.SymInt)


def of_mesh(mesh: Any) -> Any:
    """A mesh, as PyTorch's code is given it."""
    world = vm.world
    if id(mesh) not in world.sources:
        raise refused("a mesh that is made here")
    world.known_by_identity(mesh)
    for name in mesh._dim_group_names:
        asked(group_size, name)
        asked(group_rank, name)
    return mesh


def given(v: Any) -> Any:
    """What PyTorch's code is given for an argument of a function of distributed tensors."""
    t = type(v)
    if t is TracedTensor or t in PLAIN or t in distributed_tensors.placement_classes():
        return v
    if t is DeviceMesh:
        return of_mesh(v)
    if t in (list, tuple):
        return t(map(given, v))
    raise Break("PL0028", f"a function of distributed tensors is given a {t.__name__}", clean=True)


def call(fn: Any, args: tuple, kw: dict) -> Any:
    """A function of PyTorch about distributed tensors, which is run as it is."""
    if not whole_loops():
        raise Break("PL0028", "a distributed tensor, for a backend that is not pliant's own", clean=True)
    cls: Any = sys.modules[distributed_tensors.API].DTensor
    vm.trace.wrapping.add(cls)
    vm.world.has_subclasses = True
    refuse_gradients(fn, args, kw)
    return of_distributed(fn, tuple(map(given, args)), {k: given(v) for k, v in kw.items()})




def asked_of_itself(o: Any, name: str, args: tuple, kw: dict) -> Any:
    """`placement.is_shard(dim)` and its like."""
    if name not in ASKED:
        raise Break("PL0028", f"{type(o).__name__}.{name}", clean=True)
    return getattr(o, name)(*args, **kw)


ASKED = ("is_shard", "is_replicate", "is_partial", "__repr__", "__str__")


def compared(fn: Any, a: Any, b: Any) -> Any:
    return fn(a, b) if type(a) in ROWS and type(b) in ROWS else NotImplemented


@functools.cache
def enter(cls: type) -> None:
    """The functions of the class, once it is there."""
    for name in ("from_local", "to_local", "redistribute", "full_tensor"):
        raw: Any = cls.__dict__[name]
        fn = raw if type(raw) is types.FunctionType else raw.__func__
        LOOKASIDES[fn] = functools.partial(call, fn)
    for module in (sys.modules[distributed_tensors.API], sys.modules[distributed_tensors.REDISTRIBUTION]):
        for function in vars(module).values():
            if isinstance(function, type) and issubclass(function, torch.autograd.Function) and function.__module__ == module.__name__:
                LOOKASIDES[function.backward] = functools.partial(backward, function.backward)
    for name in ("placements", "device_mesh"):
        prop: Any = cls.__dict__[name]
        LOOKASIDES[prop.fget] = functools.partial(of_spec, prop.fget)
    for code in vars(sys.modules[distributed_tensors.API])["distribute_module"].__code__.co_consts:
        if type(code) is types.CodeType:  # the hooks that it registers: they call what they were given
            policy.set_kind(code, "inline")
    kinds = distributed_tensors.placement_classes()
    row(name="placement", located=kinds, stands=kinds, plain=True, locate=World.constant, getattr=read, method=asked_of_itself, compare=compared)


def backward(fn: Any, args: tuple, kw: dict) -> Any:
    """The backward part of a function of PyTorch's: the engine calls it, and gets what it returns."""
    return captured_call(fn, args, kw)


def of_spec(fget: Any, args: tuple, kw: dict) -> Any:
    (t,) = args
    return fget(wrapper_of(t))


def known() -> None:
    module = sys.modules.get(distributed_tensors.API)
    if module is not None:
        enter(module.DTensor)
