"""Hooks on results of a region's node, which hear of gradients alone.

The engine calls the hooks on all results of a node, with None where no gradient has arrived at that one. In eager most results have a node
of their own: hooks on those are not called.
"""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import torch

Hook = Callable[[Any], Any]


class OfGradients:
    """A hook that is not called without a gradient."""

    __slots__ = ("hook",)

    def __init__(self, hook: Hook) -> None:
        self.hook = hook

    def __call__(self, grad: Any) -> Any:
        return None if grad is None else self.hook(grad)


class Hooks(collections.OrderedDict[int, Hook]):
    """The hooks on a tensor, by number. (The engine reads the values as those of any dict.)"""

    def __setitem__(self, number: int, hook: Hook) -> None:
        super().__setitem__(number, hook if type(hook) is OfGradients else OfGradients(hook))


def register(node: Any, t: torch.Tensor) -> None:
    """In place of `node._register_hook_dict(t)`, which `Tensor.register_hook` calls before it puts the first hook into that dict."""
    with torch._C.DisableTorchFunctionSubclass():
        t._backward_hooks = Hooks(t._backward_hooks)  # type: ignore[assignment]
        torch._C._FunctionBase._register_hook_dict(node, t)  # type: ignore[attr-defined]


def of_gradients(function: type[torch.autograd.Function]) -> type[torch.autograd.Function]:
    """A class of nodes whose results are told of gradients alone."""
    function._backward_cls._register_hook_dict = register  # type: ignore[attr-defined]
    return function
