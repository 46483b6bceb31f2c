"""Training regions inside of a checkpoint that is set around them (`torch.utils.checkpoint.checkpoint(compiled, x, use_reentrant=False)`).

A checkpoint hears of each tensor that PyTorch saves, keeps none, and runs its function again when the first of them is wanted: as many have
to be saved then, of the same kinds. What a compiled region saves is its own affair, so such a call saves what the region was given, and
nothing else, before it computes. In the backward part the checkpoint hands these tensors back, made again, and the region runs once more
to be differentiated. Which entry serves is settled by `jit/checkpoints.py`: the same in both runs.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from torch._C._autograd import SavedTensor, _make_saved_tensor

from pliant import native
from pliant.codegen.double_backward import FREED
from pliant.codegen.heard import of_gradients
from pliant.codegen.nodes import KEEP_GRAPH, Shared
from pliant.graph.originals import ORIGINAL, gradients, is_grad_enabled, torch
from pliant.graph.python_random import draws_from_numpy, draws_from_python
from pliant.lower import liveness

TOP, PUSH, POP = (getattr(torch._C._autograd, f"_{name}_saved_tensors_default_hooks") for name in ("top", "push", "pop"))
STATE, SET_STATE = torch.random.get_rng_state, torch.random.set_rng_state
ON: list[Any] = []
"""The hooks of the checkpoints in which compiled functions run at the moment, in all threads. Emitted code looks whether there are any."""
_own = threading.local()


@contextmanager
def hooks_off() -> Iterator[list[Any]]:
    """Without hooks on saved tensors. Gives those that were on, the outermost first."""
    found: list[Any] = []
    while (hooks := TOP(True)) is not None:
        found.insert(0, hooks)
        POP()
    try:
        yield found
    finally:
        for hooks in found:
            PUSH(*hooks)


@contextmanager
def inside(hooks: Any) -> Iterator[None]:
    """Regions that run here save what they are given with these hooks."""
    outer = getattr(_own, "hooks", None)
    _own.hooks = hooks
    ON.append(hooks)
    try:
        yield
    finally:
        ON.remove(hooks)
        _own.hooks = outer


def why_not(plan: Any) -> str:
    """Why this region must not run again, or an empty text."""
    if plan.trace.hooked or plan.trace.exits or plan.rebased or plan.freed:
        return "hooks, side exits, writes with gradients"
    given = {t.storage_id for t in plan.slots}
    for op in plan.program:
        if any([t.storage_id in given for t in liveness.written(op)]):
            return "it writes to what it is given"
        if draws_from_python(op) or draws_from_numpy(op) or (not op.target._schema.name.startswith("aten::") and not op.outs):
            return "it has an effect"
    return ""


def draws(plan: Any) -> bool:
    """Whether it draws from PyTorch's generator."""
    return any([liveness.RANDOM in op.target.tags for op in plan.program])


def entered(apply: Callable, forward: Callable, plain: Sequence[int], drawn: bool) -> Callable:
    """What an emitted program calls in place of `apply`, a region's node, while there are checkpoints. `plain`: its results without
    gradients."""
    return functools.partial(run, apply, (apply, forward, tuple(plain), drawn))


def run(apply: Callable, program: tuple, *slots: Any) -> Any:
    """The region, inside of a checkpoint of this thread or not."""
    if getattr(_own, "hooks", None) is None or not is_grad_enabled():
        return apply(*slots)
    return Checkpointed.apply(program, *slots)


@of_gradients
class Checkpointed(torch.autograd.Function):
    """A region that keeps nothing but what it is given, by way of the checkpoint's hooks."""

    @staticmethod
    def forward(ctx: Any, program: tuple, *slots: Any) -> Any:
        _, forward, plain, drawn = program
        PUSH(*_own.hooks)
        try:
            ctx.state = _make_saved_tensor(STATE(), is_output=False) if drawn else None
            ctx.slots = [_make_saved_tensor(s, is_output=False) if isinstance(s, torch.Tensor) else s for s in slots]
        finally:
            POP()
        ctx.program, ctx.layouts = program, native.layouts(*[s for s in slots if isinstance(s, torch.Tensor)])
        results = forward(Shared(), *slots)
        ctx.mark_non_differentiable(*[results[i] for i in plain])
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        if ctx.slots is None:
            raise RuntimeError(FREED)
        state = ctx.state.unpack() if ctx.state is not None else None
        given = [s.unpack() if isinstance(s, SavedTensor) else s for s in ctx.slots]
        if not KEEP_GRAPH():
            ctx.slots = ctx.state = None
        if native.layouts(*[s for s in given if isinstance(s, torch.Tensor)]) != ctx.layouts:
            raise RuntimeError("what a compiled region in a checkpoint was given has another layout now, when it is computed again")
        wanted = [i for i, needed in enumerate(ctx.needs_input_grad[1:]) if needed]
        again = is_grad_enabled()  # the gradients are to be differentiated, too
        for i in wanted:
            given[i] = torch.ops.aten.alias.default(given[i]) if again else ORIGINAL.requires_grad_(ORIGINAL.detach(given[i]))
        with gradients(True), hooks_off(), drawing_from(state):
            results = ctx.program[0](*given)
            used = [
                (r, g) for r, g in zip(results, grads, strict=True) if g is not None and isinstance(r, torch.Tensor) and r.requires_grad
            ]
            if not used:
                return (None,) * (1 + len(given))
            heads, tangents = zip(*used, strict=True)
            leaves = [given[i] for i in wanted]
            found = dict(zip(wanted, torch.autograd.grad(heads, leaves, tangents, create_graph=again, allow_unused=True), strict=True))
        return None, *[found.get(i) for i in range(len(given))]


@contextmanager
def drawing_from(state: Any) -> Iterator[None]:
    """Random numbers go on from this state here, if there is one, and not outside."""
    if state is None:
        yield
        return
    before = STATE()
    SET_STATE(state)
    try:
        yield
    finally:
        SET_STATE(before)
