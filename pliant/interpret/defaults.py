"""Settings of the process and the thread under which tensors are made: the default dtype and device, and inference mode.

They are really set while a program is captured, and put back at its end; what differs then is set again by emitted code. An operator that
takes its dtype from the default is recorded with that dtype, for graphs run under the default that held at their beginning. A tensor made
in inference mode is an inference tensor of the capture: C++ says of it, and refuses, what it would in eager. A graph runs in one mode, and
a result that belongs to the other one is made one of that over the same memory (`jit/support.py`).
"""

from __future__ import annotations

from typing import Any

from torch.utils import _python_dispatch as python_dispatch

from pliant.graph.originals import is_grad_enabled, torch
from pliant.graph.traced import INFERENCE
from pliant.interpret import globalstate, in_torch
from pliant.interpret.calls import LOOKASIDES, call, graph_call
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm, whole_loops

GUARD: Any = torch._C._InferenceMode
SET_GRAD: Any = torch._C._set_grad_enabled
SET_DTYPE: Any = torch._C._set_default_dtype


def in_the_open(what: str) -> None:
    if vm.world.in_transform or vm.exploring:
        raise Break("PL0037", f"{what} in a transform or loop on data", clean=True)


@lookaside(SET_DTYPE)
def l_default_dtype(args: tuple, kw: dict) -> None:
    """`torch.set_default_dtype(dtype)`."""
    in_the_open("another default dtype")
    if kw or len(args) != 1 or type(args[0]) is not torch.dtype:
        raise Break("PL0037", "a default dtype that is none, or changes on every call", clean=True)
    SET_DTYPE(*args)
    vm.trace.other_default = torch.get_default_dtype() is not vm.world.entry_state["default dtype"]


@lookaside(torch.set_default_device)
def l_default_device(args: tuple, kw: dict) -> None:
    """`torch.set_default_device(device)`: factories are given it."""
    in_the_open("another default device")
    (device,) = (*args, *kw.values())
    if device is not None and not isinstance(device, (str, int, torch.device)):
        raise Break("PL0037", "a default device that is none", clean=True)
    default = globalstate.default_context()
    contexts = [m for m in globalstate.all_function_modes() if type(m) is globalstate.DeviceContext]
    if contexts != ([] if default is None else [default]) or default is not None and default.prev_mode is not None:
        # PyTorch takes whichever is at the bottom for that of the default, and puts back which it had found there
        raise Break("PL0037", "a default device, set within the block of another device", clean=True)
    torch.set_default_device(device)


@lookaside(torch.get_default_device)
def l_get_default_device(args: tuple, kw: dict) -> Any:
    """What is set here, or, as every graph's guards know, was set before."""
    with python_dispatch._disable_current_modes():  # it makes a tensor to see where that is
        return torch.get_default_device(*args, **kw)


@lookaside(GUARD)
def l_inference(args: tuple, kw: dict) -> Any:
    """`torch._C._InferenceMode(mode)`, which `torch.inference_mode` makes."""
    if vm.world.in_transform or vm.exploring:
        raise Break("PL0037", "inference mode in a transform or loop on data", clean=True)
    if INFERENCE in vm.refused or len(args) != 1 or kw or type(args[0]) is not bool:
        raise Break("PL0037", "inference mode around a graph break", clean=True)
    if vm.world.begun_in_inference and any([x.requires_grad for x in vm.trace.inputs]):
        raise Break("PL0037", "inference mode is left, with inputs that have gradients", clean=True)
    return call(in_torch.Inference, args, {})


@lookaside(in_torch.enter_inference)
def l_enter(args: tuple, kw: dict) -> None:
    mode = GUARD(args[0])
    mode.__enter__()
    vm.world.inference.append(mode)
    told(vm.trace)


@lookaside(in_torch.leave_inference)
def l_leave(args: tuple, kw: dict) -> None:
    leave(vm.world)
    told(vm.trace)


def told(trace: Any) -> None:
    """The mode is another one. Graphs of other backends are not run in it: they switch gradients off and on, as it does."""
    trace.inference = torch.is_inference_mode_enabled()
    if not whole_loops():
        graph_call(SET_GRAD, (is_grad_enabled(),), {})


def leave(world: Any) -> None:
    world.inference.pop().__exit__(None, None, None)
    world.trace.inference = torch.is_inference_mode_enabled()


def unset(world: Any) -> None:
    """Leave the inference modes of an attempt that did not come to their end."""
    while world.inference:
        leave(world)


__all__ = ["LOOKASIDES", "unset"]
