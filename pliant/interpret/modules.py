"""Calling an `nn.Module` without interpreting `Module.__call__`: where no hook is registered, that is a call of `forward`.

A model calls hundreds of modules, and the two frames of each call do nothing but look for hooks. The look-ups are the same here, and so
are their guards, but that one guard says of each dict of hooks that it is empty.
"""

from __future__ import annotations

import collections
import types
from typing import Any

import torch
from torch.nn.modules import module as torch_module

from pliant.interpret import tracebacks
from pliant.interpret.attributes import dict_of, getattr_, lookup, missing
from pliant.interpret.calls import call, guard_function, inline
from pliant.interpret.capture import UNSET
from pliant.interpret.decode import decode
from pliant.interpret.lookasides import lookaside
from pliant.interpret.opcodes import global_value
from pliant.interpret.slots import truth
from pliant.interpret.state import vm

CALL, CALL_IMPL = torch.nn.Module._wrapped_call_impl, torch.nn.Module._call_impl
HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)


def call_module(args: tuple, kwargs: dict) -> Any:
    """`Module.__call__(*args, **kwargs)`."""
    if not args or not hookless(args[0]):
        return inline(CALL, args, kwargs)
    forward = getattr_(args[0], "forward")
    try:
        return call(forward, args[1:], kwargs)
    except Exception as e:
        tracebacks.passes_at(e, CALL_IMPL.__code__, decode(CALL_IMPL.__code__).names.index("CALL_FUNCTION_EX"))
        names = decode(CALL.__code__).names
        tracebacks.passes_at(e, CALL.__code__, len(names) - 1 - names[::-1].index("CALL_FUNCTION_EX"))
        raise


if CALL.__code__.co_filename == CALL_IMPL.__code__.co_filename == torch_module.__file__:  # nobody had replaced them
    lookaside(CALL, tail=True)(call_module)


def hookless(module: Any) -> bool:
    """Whether a call of `module` is but a call of its `forward`."""
    if torch._C._get_tracing_state() or not plain_class(type(module)):
        return False
    d = dict_of(module, id(module) in vm.world.outside)
    if d is None or "_call_impl" in d:
        return False
    missing(d, "_call_impl")
    if getattr_(module, "_compiled_call_impl") is not None:
        return False
    h = vm.world.by_copy.get(id(d))
    if not all(name in d and is_empty(h, d, name) for name in HOOKS):
        return False
    return not any(truth(global_value(CALL.__globals__, name)) for name in GLOBAL_HOOKS)


def plain_class(t: type) -> bool:
    """Whether calls of this class go the way of `nn.Module`."""
    world = vm.world
    key = (t, call_module)
    found = world.lookups.get(key)
    if found is None:
        watched = vm.history is not None and (vm.history.watches(CALL.__code__) or vm.history.watches(CALL_IMPL.__code__))
        found = not watched and type(lookup(t, "__getattribute__")) is not types.FunctionType and lookup(t, "_call_impl") is CALL_IMPL
        found = world.lookups[key] = found and all(lookup(t, name) is UNSET for name in HOOKS)
        guard_function(CALL)
        guard_function(CALL_IMPL)
    return found


def is_empty(h: Any, d: dict, name: str) -> bool:
    """Whether the dict that an instance has under `name` is empty. What has never been touched stays so: its guard says enough."""
    v = d[name]
    if h is None:
        return not truth(v)
    world = vm.world
    if name in h.located or type(v) is not collections.OrderedDict or id(v) in world.shadows:
        return not truth(world.item(h, name))
    if v:
        return False
    source = h.source.key(name)
    world.guard(source, "EMPTY", collections.OrderedDict)
    world.glimpsed[id(v)] = (v, source)
    return True
