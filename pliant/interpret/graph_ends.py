"""Where a graph may not end: inside of what is undone with the capture, or in front of what has to be in it. It is captured anew then."""

from __future__ import annotations

from typing import Any

from pliant.graph.traced import HOOKS, INFERENCE, MAKES_WRAPPERS, TRANSFORMS, Reconsider, qualified
from pliant.interpret import checkpoints, hooks, replayed, tensor_inputs, wrapped_functions
from pliant.interpret.state import vm
from pliant.interpret.types import numbers
from pliant.interpret.world import World


def check(world: World, fn: Any, broke: str | None) -> None:
    """Raises Reconsider. `broke`: the code of the graph break that ends it."""
    if world.hooks_set or hooks.disabled_here(world):
        raise Reconsider(fn, "the graph breaks where hooks on saved tensors are on", HOOKS, broke)
    if world.inference:
        raise Reconsider(fn, "the graph breaks inside of inference mode", INFERENCE, broke)
    if world.levels.entered:
        raise Reconsider(fn, "the graph ends inside of a level of derivatives", TRANSFORMS, broke)
    while wrapped_functions.FOUND:
        cls = wrapped_functions.FOUND.pop()
        if MAKES_WRAPPERS + qualified(cls) not in vm.refused:
            raise Reconsider(fn, f"{cls.__qualname__} makes wrappers", MAKES_WRAPPERS + qualified(cls))
    checkpoints.keep_asked_apart(world.trace, broke)
    replayed.keep_apart(world)
    hooks.keep_apart(world)
    numbers.keep_counts_apart(world)
    tensor_inputs.keep_rebased_apart(world)
