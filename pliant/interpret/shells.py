"""Shells: modules around a computation that keep the processes of a training in step, as data-parallel wrappers do.

What DistributedDataParallel and `fully_shard` do before and behind a forward (buckets, gathered parameters, hooks on gradients) is
bookkeeping with collectives, which runs as it is. The forward inside is what is compiled: a region of its own, one a unit.
"""

from __future__ import annotations

import functools
import inspect
import types
from typing import Any

import torch

WHY = "the hooks of {} talk to other processes: they run as they are, and the forward inside is compiled"
OURS, NOT_OURS = "torch.distributed.", "torch.distributed.tensor"  # whose hooks give tensors another layout, and are interpreted
INSIDE = {
    ("torch.nn.parallel.distributed", "DistributedDataParallel"): "module",
    ("torch.distributed.fsdp.fully_sharded_data_parallel", "FullyShardedDataParallel"): "_fsdp_wrapped_module",
}
"""Wrappers, and where the module is that they wrap."""
HOOKS = ("_forward_pre_hooks", "_forward_hooks")


def wraps(cls: type) -> str:
    """The name under which a wrapper keeps its module; empty for other classes."""
    return next((name for c in cls.__mro__ if (name := INSIDE.get((c.__module__, c.__qualname__)))), "")


def is_shell(module: Any) -> bool:
    """Is a call of this module a computation with communication around it?"""
    if not issubclass(type(module), torch.nn.Module):
        return False
    if wraps(type(module)):
        return True
    d = object.__getattribute__(module, "__dict__")
    return any([hook_talks(hook) for name in HOOKS for hook in (d.get(name) or {}).values()])


def hook_talks(hook: Any) -> bool:
    if isinstance(hook, functools.partial):
        hook = hook.func
    where = getattr(hook, "__module__", None) if isinstance(hook, (types.FunctionType, types.MethodType)) else None
    return where is not None and where.startswith(OURS) and not where.startswith(NOT_OURS)


def inside(module: Any) -> Any:
    """The module whose forward is the computation."""
    while name := wraps(type(module)):
        module = getattr(module, name)
    return module


def is_inner_forward(fn: types.FunctionType, args: tuple) -> bool:
    """Is a frame the forward inside of a shell?"""
    module = args[0] if args else None
    t = type(module)
    if not issubclass(t, torch.nn.Module) or wraps(t) or getattr(inspect.getattr_static(t, "forward"), "__code__", None) is not fn.__code__:
        return False
    active = torch.nn.parallel.DistributedDataParallel._active_ddp_module if torch.distributed.is_available() else None
    return is_shell(module) or active is not None and active.module is module
