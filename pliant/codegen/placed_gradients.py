"""Backward parts for gradients of distributed results that are placed otherwise than the result is.

How they are placed is known when they arrive. PyTorch's code for the region is then gone through once more, on the tape of the capture,
for gradients that are placed like these, so what becomes of them is what eager makes of them. What that code asks of sizes nobody guards
any more: it is answered for the sizes of this call, and the program is for calls whose sizes give the same answers.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from torch.utils._python_dispatch import _disable_current_modes

from pliant import turns
from pliant.codegen.double_backward import FREED, TWICE
from pliant.graph.arriving import Arrived
from pliant.graph.distributed_tensors import local_sizes, placed
from pliant.graph.originals import is_grad_enabled
from pliant.lower.histories import Share
from pliant.symbolic.expr import Expr

AGAIN = "gradients of a distributed result that are placed otherwise than it is"
MORE = (
    "the gradient of a distributed result arrives placed as {}: the compiled region has not kept what that needs. Redistribute it, or "
    "decorate the function with pliant.disable"
)


@dataclass(slots=True)
class Placed:
    """What a node does with such gradients. `region`: the `AutogradRegion`."""

    region: Any
    share: Share
    made: dict[tuple, list[tuple[list[Expr], Callable]]] = field(default_factory=dict)

    def __call__(self, ctx: Any, *grads: Any) -> tuple:
        if ctx.slots is None:
            raise RuntimeError(FREED)
        if is_grad_enabled():
            raise RuntimeError(TWICE.format(AGAIN))
        plan = self.region.plan
        values = dict(zip([s.name for s in self.region.full.symbols], getattr(ctx, "sizes", ()), strict=True))
        heads = [(g, h) for g, h in zip(grads, plan.heads, strict=False) if h.vid in plan.differentiable_vids]
        forms = tuple([placed(g.whole._spec) if type(g) is Arrived else g is not None for g, _ in heads])
        known = self.made.setdefault(forms, [])
        fn = self.fitting(known, values)
        if fn is None:
            with turns.compiling:  # the background may be lowering this very region
                fn = self.fitting(known, values) or self.make(forms, known, values, [h for _, h in heads])
        for g, _ in heads:
            if type(g) is Arrived and tuple(g.whole._local_tensor.shape) != local_sizes(placed(g.whole._spec), g.whole.shape):
                raise RuntimeError("the part of a distributed gradient has other sizes than its placement says")
        return fn(ctx, *[g.whole._local_tensor if type(g) is Arrived else g for g in grads])  # type: ignore[no-any-return]

    def arrives(self) -> bool:
        """Whether such gradients can come: some result is the part of a distributed tensor."""
        plan = self.region.plan
        return any([h.vid in plan.trace.wholes for h in plan.heads])

    @staticmethod
    def fitting(known: list[tuple[list[Expr], Callable]], values: dict) -> Callable | None:
        """The program that was made for sizes about which the same is true."""
        return next((fn for asked, fn in known if all([c.evaluate(values) for c in asked])), None)

    def make(self, forms: tuple, known: list, values: dict, heads: list[Any]) -> Callable:
        region, plan = self.region, self.region.plan
        arrives = {h.vid: form for h, form in zip(heads, forms, strict=True) if type(form) is tuple}
        mask = tuple([form is not False for form in forms])
        with _disable_current_modes(), region.scope.answered_by(values) as asked:
            b = region.with_sizes(plan.trace_backward(mask, self.share.slots, arrives))
            kept = {t.vid for t in region.full.reads}
            if not all([t.vid in kept for t in b.reads]) or not all([s.name in values for s in b.symbols]):
                raise RuntimeError(MORE.format([form[1] for form in arrives.values()]))
            fn: Callable = region.write_backward(b, replace(self.share, mask=mask)).fn
            known.append((list(asked), fn))
        return fn
