"""A node's gradients under `create_graph=True` by a program for gradients of gradients (`lower/second_backward.py`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pliant import turns
from pliant.codegen.aten import Executable
from pliant.codegen.double_backward import Refuse
from pliant.codegen.heard import of_gradients
from pliant.codegen.nodes import Shared, detached, kept, late_of
from pliant.graph.originals import ORIGINAL, gradients, is_grad_enabled, torch

NOT_TWICE = "trying to differentiate twice a function that was marked with @once_differentiable"
"""PyTorch's words."""
THRICE = (
    "this compiled region has hooks, writes to its inputs or uses a torch.autograd.Function, and can be differentiated twice, not three "
    "times (create_graph=True on its second gradients). Decorate the function with pliant.disable"
)


@dataclass(frozen=True, slots=True)
class SecondPart:
    """`program(kept, sizes, *tangents, *their gradients) -> a gradient or None for each of sources and tangents`.

    `heads`: the places of the tangents among what arrives; `places`: among those of the inputs, of the gradients that have a history;
    `sources`: of the inputs that these depend on. `begins`: for each of `places`, which of sources and tangents it depends on. `reads`,
    `late` and `sized`: what it takes of what the forward part has kept. `delayed`: whoever goes back to all leaves meets a function that
    is differentiable once. `still`: not for tangents with a history.
    """

    program: Executable
    heads: tuple[int, ...]
    places: tuple[int, ...]
    sources: tuple[int, ...]
    begins: tuple[frozenset[int], ...]
    reads: int
    late: tuple[int, ...]
    sized: bool
    delayed: bool
    still: bool

    def __call__(self, ctx: Any, backward: Callable[..., tuple], grads: Sequence[Any]) -> tuple:
        """The gradients of the inputs."""
        slots, sizes = ctx.slots, ctx.sizes if self.sized else ()
        besides = late_of(ctx, self.late) if self.late else ()
        held = tuple([ORIGINAL.detach(t) for t in (*held_by(ctx, self.reads), *besides)])
        with gradients(False):
            out = list(backward(ctx, *grads))
        below = [*(slots[i] for i in self.sources), *(grads[i] for i in self.heads)]
        like = [(g.shape, g.dtype, g.device) for g in (out[i] for i in self.places)]
        for own in self.nodes(below):
            begins = frozenset().union(*[self.begins[k] for k in own])
            edges = [t if i in begins else ORIGINAL.detach(t) for i, t in enumerate(below)]
            given = [out[self.places[k]] for k in own]
            made = Differentiable.apply(self, own, like, held, sizes, *given, *edges, *self.raising())  # type: ignore[no-untyped-call]
            for k, g in zip(own, made, strict=True):
                out[self.places[k]] = g
        return tuple(out)

    def nodes(self, below: list[torch.Tensor]) -> list[tuple[int, ...]]:
        """Which of `places` are one node. The engine goes on below a node to all that it has edges to, with no gradient, too: hooks
        are called there with None, and what a history has saved is freed. So those that depend on others of these are apart."""
        heard = frozenset([i for i, t in enumerate(below) if t.requires_grad and (t.grad_fn is not None or t._backward_hooks)])
        apart: dict[frozenset[int], list[int]] = {}
        for k, begins in enumerate(self.begins):
            apart.setdefault(begins & heard, []).append(k)
        return [tuple(own) for own in apart.values()]

    def raising(self) -> list[torch.Tensor]:
        """What PyTorch hangs below the gradients of such a function."""
        return [torch._C._functions.DelayedError(NOT_TWICE, 1)(torch.zeros((), requires_grad=True))] if self.delayed else []


def held_by(ctx: Any, count: int) -> tuple:
    """What the forward part has kept, so many tensors."""
    if not count:
        return ()
    parts = type(ctx) is Shared or hasattr(ctx, "kept")
    return kept(ctx, range(count))[0] if parts else tuple(ctx.saved_tensors)


@dataclass(slots=True)
class Seconds:
    """Those of a node, by the results that got a gradient: of these `heads` (places). `build` makes one for a mask, or gives None."""

    heads: tuple[int, ...]
    known: dict[tuple[bool, ...], SecondPart | None]
    build: Callable[[tuple[bool, ...]], SecondPart | None] | None

    def __call__(self, ctx: Any, backward: Callable[..., tuple], grads: Sequence[Any]) -> tuple | None:
        """The gradients of the inputs. None if there is no program for them."""
        mask = tuple([grads[i] is not None for i in self.heads])
        if mask not in self.known and self.build is not None:
            with turns.compiling:
                self.known[mask] = self.build(mask)
        part = self.known.get(mask)
        if part is None or part.still and any([g is not None and g.requires_grad for g in grads]):
            return None
        return part(ctx, backward, grads)


@of_gradients
class Differentiable(torch.autograd.Function):
    """Gradients of a region, which are given a history."""

    @staticmethod
    def forward(ctx: Any, part: SecondPart, own: tuple[int, ...], like: list, held: tuple, sizes: tuple, *given: Any) -> tuple:
        n = len(own)
        ctx.part, ctx.own, ctx.like, ctx.sizes, ctx.n_held = part, own, like, sizes, len(held)
        ctx.sources = given[n : n + len(part.sources)]
        ctx.save_for_backward(*held, *given[n + len(part.sources) :][: len(part.heads)])
        ctx.set_materialize_grads(False)
        on = [t.requires_grad for t in given[n:]]
        grads = detached(given[:n])
        still = [g for g, k in zip(grads, own, strict=True) if not any([on[i] for i in part.begins[k]])]
        ctx.mark_non_differentiable(*still)
        return tuple(grads)

    @staticmethod
    def backward(ctx: Any, *seconds: Any) -> tuple:
        part, own = ctx.part, ctx.own
        saved = ctx.saved_tensors
        held, tangents = saved[: ctx.n_held], saved[ctx.n_held :]
        arrived = {k: s for k, s in zip(own, seconds, strict=True) if s is not None}
        reached = frozenset().union(*[part.begins[k] for k in arrived])
        with gradients(False):
            moving = [arrived[k] if k in arrived else torch.zeros(sizes, dtype=d, device=at) for k, (sizes, d, at) in enumerate(ctx.like)]
            found = part.program.fn(held, ctx.sizes, *[ORIGINAL.detach(t) for t in tangents], *moving)
        results = [r if i in reached else None for i, r in enumerate(found)]
        if is_grad_enabled():
            made = [r for r in results if r is not None]
            on = [t for t in (*ctx.sources, *tangents, *seconds) if t is not None and t.requires_grad]
            refusing = iter(Refuse.apply(THRICE, len(made), *made, *on))  # type: ignore[no-untyped-call]
            results = [r if r is None else next(refusing) for r in results]
        return (None,) * (5 + len(own)) + tuple(results) + (None,) * part.delayed


@of_gradients
class Before(torch.autograd.Function):
    """The tensor, and the history that it has now: what is written to it later has no part in that."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.set_materialize_grads(False)
        return ORIGINAL.detach(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def before_the_write(x: torch.Tensor) -> torch.Tensor:
    """What stands for an input that is about to be written, in front of the node."""
    kept: torch.Tensor = Before.apply(x)  # type: ignore[no-untyped-call]
    return kept
