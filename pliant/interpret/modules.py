"""Calling an `nn.Module` without interpreting `Module.__call__`: where no hook is registered, that is a call of `forward`.

A model calls hundreds of modules, and the two frames of each call do nothing but look for hooks. The look-ups are the same here, and so
are their guards, but that one guard says of each dict of hooks that it is empty.
"""

from __future__ import annotations

import types
from typing import Any

from torch.nn.modules import module as torch_module
from torch.nn.modules.lazy import LazyModuleMixin

from pliant.graph.originals import ORIGINAL, torch
from pliant.interpret import shadows, shells, tracebacks
from pliant.interpret.attributes import getattr_, lookup, own_dict
from pliant.interpret.blocks import block_call
from pliant.interpret.calls import guard_function, inline
from pliant.interpret.capture import UNSET
from pliant.interpret.lookasides import lookaside
from pliant.interpret.opcodes import global_value
from pliant.interpret.slots import truth
from pliant.interpret.state import Break, vm
from pliant.interpret.tracebacks import CALL, CALL_IMPL

HOOKS = ("_backward_hooks", "_backward_pre_hooks", "_forward_hooks", "_forward_pre_hooks")
OWN = ("_call_impl", "_compiled_call_impl")  # what an instance may have of its own
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)


def call_module(args: tuple, kwargs: dict) -> Any:
    """`Module.__call__(*args, **kwargs)`."""
    if not args or not hookless(args[0]):
        break_at_shell(args)
        return inline(CALL, args, kwargs)
    forward, caller = getattr_(args[0], "forward"), vm.frame
    before, caller.calls_module = caller.calls_module, True
    try:
        return block_call(args[0], forward, args[1:], kwargs)
    except Exception as e:
        for fn, i in tracebacks.around_forward():
            tracebacks.passes_at(e, fn.__code__, i)
        raise
    finally:
        caller.calls_module = before


def call_hooked(args: tuple, kwargs: dict) -> Any:
    """`Module._call_impl(*args, **kwargs)`."""
    break_at_shell(args)
    return inline(CALL_IMPL, args, kwargs)


@lookaside(LazyModuleMixin._infer_parameters)
def l_infer_parameters(args: tuple, kw: dict) -> Any:
    """A lazy module is called for the first time: it gets its parameters, and another class."""
    if len(args) < 2 or id(args[1]) not in vm.world.outside:
        raise Break("PL0006", "a lazy module that is made here changes its class at its first call", clean=True)
    raise vm.first_call(f"the first call of a {type(args[1]).__qualname__}")


def break_at_shell(args: tuple) -> None:
    """Raises Break at a call of a shell (`pliant.interpret.shells`)."""
    if args and shells.is_shell(args[0]):
        raise Break("PL0028", shells.WHY.format(type(args[0]).__qualname__), clean=True)


if CALL.__code__.co_filename == CALL_IMPL.__code__.co_filename == torch_module.__file__:  # nobody had replaced them
    lookaside(CALL, tail=True)(call_module)
    lookaside(CALL_IMPL)(call_hooked)


def dict_read(d: dict, name: str) -> Any:
    h = vm.world.by_copy.get(id(d))
    return shadows.item(vm.world, h, name) if h is not None else d[name]


def hookless(module: Any) -> bool:
    """Whether a call of `module` is but a call of its `forward`."""
    world = vm.world
    if torch._C._get_tracing_state() or not plain_class(type(module)):
        return False
    d, h = own_dict(module, id(module) in world.outside)
    if d is None:
        return False
    if h is None or not shadows.lacks(world, h, OWN, HOOKS):
        for name in OWN:
            if name in d:
                return False
            if h is not None:
                shadows.absent(world, h, name)
        for name in HOOKS:
            if name not in d or not (h is not None and shadows.is_empty(world, h, name)) and truth(dict_read(d, name)):
                return False
    found = world.lookups.get(call_module)
    if found is None or world.global_writes:
        found = world.lookups[call_module] = [global_value(CALL.__globals__, name) for name in GLOBAL_HOOKS]
        return not any([truth(hooks) for hooks in found])
    return not any(found)


def plain_class(t: type) -> bool:
    """Whether calls of this class go the way of `nn.Module`."""
    world = vm.world
    key = (t, call_module)
    found = world.lookups.get(key)
    if found is None:
        watched = vm.history is not None and (vm.history.watches(CALL.__code__) or vm.history.watches(CALL_IMPL.__code__))
        found = not watched and type(lookup(t, "__getattribute__")) is not types.FunctionType and lookup(t, "_call_impl") is CALL_IMPL
        found = found and getattr_(t, "_compiled_call_impl") is None and all(lookup(t, name) is UNSET for name in HOOKS)
        world.lookups[key] = found
        guard_function(CALL)
        guard_function(CALL_IMPL)
    return found


# -- conversions that change nothing ------------------------------------------------------------------------------------------------
CONVERT = torch.nn.Module.to
REPLACES = "it replaces the tensors of a module"
FLOATING = {"float": torch.float32, "double": torch.float64, "half": torch.float16, "bfloat16": torch.bfloat16}


def parts_of(module: Any) -> tuple:
    """What a conversion walks over. (This is interpreted.)"""
    tensors = [*module.parameters(), *module.buffers()]
    for p in module.parameters():
        if p.grad is not None:
            tensors.append(p.grad)
    return list(module.modules()), tensors


def unchanged(module: Any, device: Any, dtype: Any) -> bool:
    """Whether all tensors of `module` are on this device and of this dtype already, and it is converted as modules are."""
    modules, tensors = vm.interp(parts_of, (module,), {})
    if any([lookup(type(m), "_apply") is not torch.nn.Module._apply for m in modules]):
        return False
    changes = [dtype is not None and (ORIGINAL.is_floating_point(t) or ORIGINAL.is_complex(t)) and t.dtype is not dtype for t in tensors]
    return not any(changes) and (device is None or all([t.device == device for t in tensors]))


@lookaside(CONVERT)
def l_to(args: tuple, kw: dict) -> Any:
    """`module.to(...)` of a module that is there already is that module."""
    module, *how = args
    if any([issubclass(type(v), torch.Tensor) for v in (*how, *kw.values())]):
        raise Break("PL0006", f"call of torch.nn.Module.to: {REPLACES}", clean=True)
    device, dtype, _, memory_format = torch._C._nn._parse_to(*how, **kw)
    if dtype is not None and not dtype.is_floating_point or memory_format is not None or not unchanged(module, device, dtype):
        raise Break("PL0006", f"call of torch.nn.Module.to: {REPLACES}", clean=True)
    return module


def to_floating(name: str) -> Any:
    def convert(args: tuple, kw: dict) -> Any:
        if len(args) != 1 or kw or not unchanged(args[0], None, FLOATING[name]):
            raise Break("PL0006", f"call of torch.nn.Module.{name}: {REPLACES}", clean=True)
        return args[0]

    return convert


for _name in FLOATING:
    lookaside(getattr(torch.nn.Module, _name))(to_floating(_name))
