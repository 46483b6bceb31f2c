"""The parts of a differentiable region that are more than its programs: gradients of gradients, and of some results only.

Both run the forward part again under PyTorch's own autograd (`codegen/double_backward.py`), from a recipe that is read when first needed.
"""

from __future__ import annotations

import functools
import marshal
from dataclasses import replace
from typing import Any

import torch

from pliant.codegen.aten import Executable
from pliant.codegen.batched_gradients import is_legacy, is_wrapped
from pliant.codegen.double_backward import FREED, Number, Recipe, Slot, Step, Twice, Value
from pliant.codegen.nodes import Part, detached, spend, spending, unspent
from pliant.graph.originals import is_grad_enabled
from pliant.jit.persist.guards import Weakly
from pliant.jit.persist.names import Writer
from pliant.jit.persist.tensors import decode_tensor, encode_tensor
from pliant.jit.persist.values import decode, encode


def encode_argument(v: Any, table: Writer) -> tuple:
    if type(v) is Value:
        return "made", v.vid
    if type(v) is Number:
        return "number", v.text, v.names
    if type(v) is list:
        return "list", [encode_argument(x, table) for x in v]
    if isinstance(v, torch.Tensor):
        return "tensor", *encode_tensor(v)
    return "value", encode(v, table.refer)


def decode_argument(data: tuple, objects: Any) -> Any:
    kind, *rest = data
    if kind == "made":
        return Value(*rest)
    if kind == "number":
        return Number(*rest)
    if kind == "list":
        return [decode_argument(x, objects) for x in rest[0]]
    return decode_tensor(*rest) if kind == "tensor" else decode(rest[0], objects.__getitem__)


def encode_recipe(recipe: Recipe, table: Writer) -> bytes:
    """A recipe as data. Raises NotPortable."""
    slots = [s if isinstance(s, str) else (s.vid, s.read, s.wanted, s.written, s.bare) for s in recipe.slots]
    steps = []
    for s in recipe.steps:
        args = [encode_argument(v, table) for v in s.args]
        kwargs = {k: encode_argument(v, table) for k, v in s.kwargs.items()}
        steps.append((table.refer(s.target), args, kwargs, s.outs, s.single, s.binds, s.grad))
    return marshal.dumps((slots, recipe.taken, steps, recipe.heads, recipe.wanted, recipe.results))


def decode_recipe(data: bytes, objects: Any) -> Recipe:
    slots, taken, steps, *rest = marshal.loads(data)
    made = []
    for target, args, kwargs, *told in steps:
        named = {k: decode_argument(v, objects) for k, v in kwargs.items()}
        made.append(Step(objects[target], [decode_argument(v, objects) for v in args], named, *told))
    return Recipe(tuple([s if isinstance(s, str) else Slot(*s) for s in slots]), taken, tuple(made), *rest)


class Later:
    """A recipe, read when it is asked for."""

    def __init__(self, data: bytes | None, objects: list[Any]) -> None:
        self.data = data
        self.objects = Weakly(objects)

    @functools.cached_property
    def recipe(self) -> Recipe:
        assert self.data is not None
        return decode_recipe(self.data, self.objects)

    def __call__(self) -> Recipe:
        return self.recipe


class Partial:
    """The backward part where some result got no gradient: what only such results depend on gets none, as in eager mode. `through`: it
    stands above another node, which frees what was kept."""

    def __init__(self, twice: Twice, heads: int, through: bool) -> None:
        self.twice = twice
        self.heads = heads
        self.through = through

    def __call__(self, ctx: Any, shared: tuple, *grads: Any) -> tuple:
        if self.heads == 1:
            return (None,) * len(self.twice.gives)
        slots = ctx.slots
        if slots is None:
            raise RuntimeError(FREED)
        if self.twice.written(ctx):
            raise RuntimeError("an input of this compiled region was written before its gradients were computed from it again")
        recipe = self.twice.recipe()
        heads = [(s, g is not None) for s, g in zip(shared, grads) if s is not None]
        used, refused, whole = spending([s for s, _ in heads], [on for _, on in heads])
        at = range(len(recipe.taken)) if recipe.taken else None
        saved = unspent(ctx, refused, at) if self.through else spend(ctx, used, refused, whole, at)
        found = self.twice.repeated.gradients(recipe, slots, saved, grads, differentiable=False)
        without = detached(found)
        return tuple(None if i is None else without[i] for i in self.twice.gives)


def parts_of(twice: Twice, nodes: tuple, shared: tuple[int | None, ...]) -> list[Part]:
    """The nodes of a region for inputs with a history or hooks, which nobody has compiled."""
    return [Part(heads, slots, through, Executable(Uncompiled(twice, shared, through), "", 0), twice) for heads, slots, through in nodes]


class Uncompiled:
    """The backward part of one of these nodes."""

    def __init__(self, twice: Twice, shared: tuple[int | None, ...], through: bool) -> None:
        self.shared = shared
        self.partial = Partial(twice, len(shared), through)
        self.twice = replace(twice, backward=self.once)

    def once(self, ctx: Any, *grads: Any) -> tuple:
        return self.partial(ctx, self.shared, *grads)

    def __call__(self, ctx: Any, *grads: Any) -> tuple:
        if not any([g is not None for g in grads]):
            return (None,) * len(self.twice.gives)
        odd = any([g is not None and (is_wrapped(g) or is_legacy(g)) for g in grads])
        return self.twice(ctx, *grads) if odd or is_grad_enabled() else self.once(ctx, *grads)
