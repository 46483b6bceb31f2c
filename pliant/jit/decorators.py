"""The doors that users have into the call policy: `disable`, `skip`, `inline`, `allow_in_graph`, `graph_break`, `is_compiling`."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from pliant import native
from pliant.interpret.lookasides import lookaside
from pliant.interpret.policy import EXCLUDED, allow_in_graph, inline, register, skip
from pliant.interpret.policy_tables.row import Policy
from pliant.interpret.state import vm

ASKED = Policy("skip", "new", "PL0019", "you asked for it")


def is_compiling() -> bool:
    """True while a program is being captured (also inside it: the compiled program saw True)."""
    return vm.active


def graph_break() -> None:
    """Break the graph here. Outside of a capture it does nothing."""


def disable(fn: Any = None, *, recursive: bool = True) -> Any:
    """`fn` runs in eager PyTorch, and (with `recursive`) so does every compiled function that it calls. Usable as a decorator.

    A module is changed in place: its `forward` is disabled.
    """
    if fn is None:
        return functools.partial(disable, recursive=recursive)
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive=recursive)
        return fn
    if isinstance(fn, type):
        name = "forward" if issubclass(fn, torch.nn.Module) else "__call__"
        setattr(fn, name, disable(getattr(fn, name), recursive=recursive))
        return fn
    target = fn._origin or fn._fn if isinstance(fn, native.EntryPoint) else fn
    return run_disabled(target) if recursive else run_here_disabled(target)


def run_disabled(fn: Callable) -> Callable:
    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        native.push_disabled()
        try:
            return fn(*args, **kwargs)
        finally:
            native.pop_disabled()

    register(disabled, EXCLUDED)
    return disabled


def run_here_disabled(fn: Callable) -> Callable:
    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    register(disabled, EXCLUDED)
    return disabled


register(graph_break, ASKED)
lookaside(is_compiling)(lambda args, kw: True)

__all__ = ["allow_in_graph", "disable", "graph_break", "inline", "is_compiling", "skip"]
