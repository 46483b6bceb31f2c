"""What autograd will call and CPython cannot run on proxies, as the operations that it comes to: NumPy in a hook or in a `backward`.

A function or hook is interpreted where it is set (`subprograms.rehearsed`), mostly for its guards alone: CPython runs it once more when the
gradients are worked out. Where it cannot (`PYTHON_BACKWARD`), the operations of the rehearsal are done then in its place. So the gradients
that arrive have to be laid out as those that it was rehearsed with, and what it holds has to be the same at the end of the capture.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.dispatch import same
from pliant.graph.originals import is_grad_enabled, torch
from pliant.graph.schema import op_info
from pliant.graph.traced import REPLAYED, Reconsider, TracedTensor
from pliant.interpret.state import Break, vm
from pliant.interpret.subprograms import as_before, reachable


class Replayed:
    """A function of the program's, as the operations of its rehearsal. `given`: the gradients of that, `out` what came of them."""

    __slots__ = ("about", "code", "given", "held", "ops", "out", "what")

    vjp = staticmethod(torch.autograd.Function.vjp)  # what the engine asks of an `autograd.Function`

    def __init__(self, code: str, what: str, given: tuple, held: list[Any]) -> None:
        self.code = code
        self.what = what
        self.given = given
        self.about = held
        self.held: list[tuple] = []  # the objects that it holds, each with what was in it when it was rehearsed
        self.ops: list[Any] = []
        self.out: Any = None
        vm.world.in_place_of_code.append(self)

    def learn(self, ops: list[Any], out: Any, asserts: int) -> None:
        """What the rehearsal has recorded. Raises Break where that is not all that there is to do."""
        plain = not any([op.binds or op_info(op.target).custom or op_info(op.target).writes for op in ops])
        known = out is None or type(out) is TracedTensor or type(out) is tuple and all([v is None or type(v) is TracedTensor for v in out])
        if asserts or not plain or not known or torch._C._is_any_autocast_enabled():  # which is off, mostly, when gradients arrive
            raise Break(self.code, f"{self.what} decides on data, or does what cannot be done in its place")
        self.ops, self.out, self.held = ops, out, list(reachable(list(self.about)))

    def check(self) -> None:
        """Raises Reconsider if what it holds has changed since."""
        if not all([as_before(v, inside) for v, inside in self.held]):
            raise self.refusal("what it holds has changed since then")

    def refusal(self, why: str) -> Reconsider:
        return Reconsider(self.what, why, REPLAYED)

    def backward(self, ctx: Any, *grads: Any) -> Any:
        ctx.saved_tensors  # noqa: B018  (raises where one was written since)
        return self(*grads)

    def __call__(self, *grads: Any) -> Any:
        if is_grad_enabled() or len(grads) != len(self.given) or not all(map(alike, grads, self.given)):
            raise self.refusal("gradients arrive in another form than they were rehearsed in")
        found = {t.vid: g for t, g in zip(self.given, grads, strict=True) if t is not None}

        def now(v: Any) -> Any:
            if type(v) is TracedTensor:
                return found.get(v.vid, v)
            return type(v)(map(now, v)) if type(v) in (list, tuple) else v

        for op in self.ops:
            made = op.target(*now(op.args), **{k: now(v) for k, v in op.kwargs.items()})
            outs = (made,) if op.out_spec is None else made if op.out_spec == "flat" else torch.utils._pytree.tree_leaves(made)
            found.update((o.vid, m) for o, m in zip(op.outs, outs, strict=True) if type(o) is TracedTensor)
        return now(self.out)


def alike(g: Any, t: Any) -> bool:
    """Whether a gradient is laid out as the one that stood for it."""
    if type(g) is not TracedTensor or type(t) is not TracedTensor:
        return g is None and t is None
    if g.dtype is not t.dtype or g.device != t.device or g.pytype is not t.pytype or len(g.sizes) != len(t.sizes):
        return False
    return all(map(same, (*g.sizes, *g.strides, g.offset), (*t.sizes, *t.strides, t.offset)))


def keep_apart(world: Any) -> None:
    """At the end of a capture."""
    for r in world.in_place_of_code:
        r.check()
