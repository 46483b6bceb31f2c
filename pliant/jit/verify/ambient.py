"""What a call draws on and leaves behind in the process: random states, PyTorch's flags, context variables, what it prints."""

from __future__ import annotations

import contextlib
import contextvars
import pickle
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from pliant import native
from pliant.graph.originals import of_own_tensors, torch


class Ambient:
    """The states of the random number generators of torch, Python and NumPy, and PyTorch's flags, as they are now."""

    @of_own_tensors
    def __init__(self) -> None:
        self.torch = torch.get_rng_state()
        self.cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_available() and torch.cuda.is_initialized() else []
        self.python = random.getstate()
        self.numpy = np.random.get_state()
        self.flags = native.slow_state()
        self.setters = [(setter, get()) for get, setter in FLAGS]

    @of_own_tensors
    def restore(self) -> None:
        torch.set_rng_state(self.torch)
        if self.cuda:
            torch.cuda.set_rng_state_all(self.cuda)
        random.setstate(self.python)
        np.random.set_state(self.numpy)
        if native.slow_state() != self.flags:
            for setter, value in self.setters:
                setter(value)

    def differs_for_good(self) -> str | None:
        """Why the flags as they are now cannot be made what they were, if so. Restores them."""
        self.restore()
        return None if native.slow_state() == self.flags else "it changes a setting of PyTorch's that cannot be put back"

    @of_own_tensors
    def told(self, context: contextvars.Context | None = None) -> dict[str, Any]:
        """For the comparison."""
        return {
            "torch's random state": self.torch.numpy().tobytes(),
            "CUDA's random state": tuple(s.cpu().numpy().tobytes() for s in self.cuda),
            "Python's random state": pickle.dumps(self.python),
            "NumPy's random state": pickle.dumps(self.numpy),
            "PyTorch's flags": self.flags,
            "context variables": dict((context or contextvars.copy_context()).items()),
        }


def set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


FLAGS: tuple[tuple[Any, Any], ...] = (
    (torch.is_grad_enabled, torch._C._set_grad_enabled),
    (torch.get_default_dtype, torch.set_default_dtype),
    (lambda: torch.is_autocast_enabled("cpu"), lambda v: torch.set_autocast_enabled("cpu", v)),
    (lambda: torch.get_autocast_dtype("cpu"), lambda v: torch.set_autocast_dtype("cpu", v)),
    (lambda: torch.is_autocast_enabled("cuda"), lambda v: torch.set_autocast_enabled("cuda", v)),
    (lambda: torch.get_autocast_dtype("cuda"), lambda v: torch.set_autocast_dtype("cuda", v)),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        set_deterministic,
    ),
)


@contextlib.contextmanager
def random_states_kept() -> Iterator[None]:
    """What is drawn inside the block is drawn again after it."""
    before = Ambient()
    try:
        yield
    finally:
        before.restore()


@contextlib.contextmanager
def recorded(shown: bool) -> Iterator[list[str]]:
    """What this thread writes to `sys.stdout`, which is printed if `shown`. The stream stays the object that it is: guards may know it."""
    out, text, thread = sys.stdout, [], threading.get_ident()
    original = getattr(out, "write", None)
    own = getattr(out, "__dict__", {}).get("write")

    def write(s: str) -> int:
        if threading.get_ident() != thread:
            return original(s)  # type: ignore[misc]
        text.append(s)
        return original(s) if shown else len(s)  # type: ignore[misc]

    write.only_writes = own is None  # type: ignore[attr-defined]  # to `guards.views.only_writes`
    try:
        out.write = write  # type: ignore[method-assign]
    except (AttributeError, TypeError):  # a stream of another kind is let be: what is printed comes twice
        yield []
        return
    try:
        yield text
    finally:
        if own is None:
            del out.write
        else:
            out.write = own  # type: ignore[method-assign]


def take_over(context: contextvars.Context) -> None:
    """Give the context variables of this context the values that they have in another."""
    for var, value in context.items():
        if var.get(None) is not value:
            var.set(value)


def unfit() -> str | None:
    """Why no call can be verified here at all."""
    if torch._C._are_functorch_transforms_active():
        return "a transform of torch.func is on"
    if torch._C._len_torch_dispatch_stack() or any(type(m).__name__ != "DeviceContext" for m in function_modes()):
        return "a mode of PyTorch's is on"
    if torch._C._get_tracing_state() is not None:
        return "it is being traced"
    if torch.distributed.is_available() and torch.distributed.is_initialized() and torch.distributed.get_world_size() > 1:
        return "other processes take part in it"
    return None


def function_modes() -> list[Any]:
    return [torch._C._get_function_stack_at(i) for i in range(torch._C._len_torch_function_stack())]
