"""torch's global state: captured programs may set it (`no_grad`, autocast, default dtype); the world must not notice until replay.

One row a setting: how to read it, how to set it. A capture restores every row at its end, and what differs becomes an effect.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils._device import DeviceContext

from pliant.graph.originals import torch
from pliant.interpret.capture import Effect

Row = tuple[Callable[[], Any], Callable[[Any], Any]]


def set_deterministic(v: tuple[bool, bool]) -> None:
    torch._C._set_deterministic_algorithms(v[0], warn_only=v[1])


def get_deterministic() -> tuple[bool, bool]:
    return torch._C._get_deterministic_algorithms(), torch._C._get_deterministic_algorithms_warn_only()


def autocast_row(device: str) -> dict[str, Row]:
    return {
        f"autocast {device}": (lambda: torch.is_autocast_enabled(device), lambda v: torch.set_autocast_enabled(device, v)),
        f"autocast dtype {device}": (lambda: torch.get_autocast_dtype(device), lambda v: torch.set_autocast_dtype(device, v)),
    }


def nesting() -> int:
    """Depth of autocast regions (no getter exists: step in and out)."""
    n = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return n


def set_nesting(v: int) -> None:
    while nesting() < v:
        torch.autocast_increment_nesting()
    while nesting() > v:
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()  # as where the program leaves the outermost region itself


def default_device() -> Any:
    """The device that was set as the default; None if none was."""
    context = default_context()
    return None if context is None else context.device


def default_context() -> Any:
    return getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)


def function_modes() -> tuple:
    """The torch-function modes that are on, outermost first, but for that of the default device."""
    default = default_context()
    return tuple([m for m in all_function_modes() if m is not default])


def all_function_modes() -> list[Any]:
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]


def default_on_stack() -> bool:
    """Whether the context of the default device, if there is one, is among the modes: the end of another device's block takes it away."""
    default = default_context()
    return default is None or any([m is default for m in all_function_modes()])


def put_default_on_stack(on: bool) -> None:
    default, modes = default_context(), all_function_modes()
    for _ in modes:
        torch._C._pop_torch_function_stack()
    for m in [*[default] * (on and default is not None), *[m for m in modes if m is not default]]:
        torch._C._push_on_torch_function_stack(m)


def user_modes() -> bool:
    """Whether a torch-function mode is on that may change what a torch call does (a device context only chooses where to create)."""
    return any(type(m) is not DeviceContext for m in function_modes())


def heard() -> bool:
    """Whether a mode of the program's is told of what is asked of tensors."""
    return torch._C._len_torch_function_stack() > 0 and user_modes() and torch._C._is_torch_function_mode_enabled()


def heard_of(fn: Any) -> bool:
    """Whether a function of PyTorch's about tensors and gradients, written in Python, tells a mode of itself before all else."""
    return heard() and fn.__module__ in ("torch._tensor", "torch.autograd") and "handle_torch_function" in fn.__code__.co_names


def set_function_modes(modes: tuple) -> None:
    """Make exactly `modes` the stack, leaving those at the bottom that are there already."""
    now = function_modes()
    same = 0
    while same < min(len(now), len(modes)) and now[same] is modes[same]:
        same += 1
    for _ in now[same:]:
        torch._C._pop_torch_function_stack()
    for m in modes[same:]:
        torch._C._push_on_torch_function_stack(m)


#: Which kernels of attention PyTorch may choose among (`torch.nn.attention.sdpa_kernel`). The choice is made while capturing.
ATTENTION: dict[str, Row] = {
    f"attention {name}": (getattr(torch._C, f"_get_{name}_sdp_enabled"), getattr(torch._C, f"_set_sdp_use_{name}"))
    for name in ("flash", "mem_efficient", "math", "cudnn", "overrideable")
}
ATTENTION["attention priority"] = torch._C._get_sdp_priority_order, torch._C._set_sdp_priority_order

TORCH_FUNCTIONS: Row = torch._C._get_torch_function_state, torch._C._set_torch_function_state  # type: ignore[attr-defined]
"""Whether classes and modes are told of torch functions."""

#: How the autograd engine goes about its work.
ENGINE: dict[str, Row] = {
    "backward in threads": (torch._C._is_multithreading_enabled, torch._C._set_multithreading_enabled),
    "views are replayed": (torch._C._is_view_replay_enabled, torch._C._set_view_replay_enabled),
}

ROWS: dict[str, Row] = {  # the default device before the modes, below which it lies
    "grad mode": (torch.is_grad_enabled, torch._C._set_grad_enabled),
    **autocast_row("cpu"),
    **autocast_row("cuda"),
    "autocast cache": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "autocast nesting": (nesting, set_nesting),
    "default dtype": (torch.get_default_dtype, torch._C._set_default_dtype),
    "default device": (default_device, torch.set_default_device),
    "deterministic": (get_deterministic, set_deterministic),
    "torch functions": TORCH_FUNCTIONS,
    "function modes": (function_modes, set_function_modes),
    "default device is heard": (default_on_stack, put_default_on_stack),
    **ATTENTION,
    **ENGINE,
}
READERS: dict[Any, str] = {get: name for name, (get, _) in (ATTENTION | ENGINE).items()}
READERS |= {getattr(torch.backends.cuda, f"{n}_sdp_enabled"): f"attention {n}" for n in ("flash", "mem_efficient", "math", "cudnn")}
"""Getters that programs call, which are asked again by the guards of each call: there they must say what holds at its beginning."""


def save() -> dict[str, Any]:
    """The present settings, by row."""
    return {name: get() for name, (get, _) in ROWS.items()}


def restore(state: dict[str, Any]) -> None:
    """Put the settings back; only rows that differ are touched."""
    if default_device() != state["default device"]:
        set_function_modes(())  # the context of a default takes in which it finds at the bottom
    for name, (get, put) in ROWS.items():
        if get() != state[name]:
            put(state[name])


def differences(before: dict[str, Any]) -> list[Effect]:
    """What the program set, as effects."""
    return [Effect("global_state", put, (get(),)) for name, (get, put) in ROWS.items() if get() != before[name]]
