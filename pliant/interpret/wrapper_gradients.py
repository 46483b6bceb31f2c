"""What the backward part of a capture asks of the classes of wrappers, found out while that can be guarded.

Operators of the backward part reach `__torch_dispatch__`, too: when the gradients of the region are worked out, which is after the capture.
So the engine goes through the tape once at the end of the capture, on made-up gradients, and the code of the classes that it calls is
interpreted, for the guards alone. What it records is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from pliant.graph import arriving, symnode
from pliant.graph.distributed_tensors import LOCAL, is_distributed
from pliant.graph.masked_tensors import OF_RESULT, is_masked
from pliant.graph.originals import ORIGINAL
from pliant.graph.symnode import SYMS
from pliant.graph.traced import MASKED, WRAPPED, Reconsider, TracedTensor, leaves
from pliant.graph.wrapped import lowered, parts_of
from pliant.interpret import capture as C
from pliant.interpret import jagged
from pliant.interpret.gate import captured_call
from pliant.interpret.state import Break, Restart, vm
from pliant.interpret.subprograms import reachable, rehearsed
from pliant.interpret.wrappers import is_stand, is_wrapped, wrapper_of

METADATA = ("size", "stride", "offset")
ENGINE: Any = torch.autograd.Variable._execution_engine


def left(exit_: Any, effects: list[Any]) -> list[Any]:
    """What outlives the graph."""
    values: list[Any] = [e.args for e in effects]
    if type(exit_) is C.Return:
        return [exit_.value, *values]
    frames = [exit_.frame] if type(exit_) is C.LoopBack else exit_.frames
    return [*values, *[v for f in frames for v in (*f.fast, *f.stack)], *(exit_.action if type(exit_) is C.BreakExit else ())]


def with_gradients(values: list[Any]) -> Iterator[Any]:
    """The tensors among these values, and in what they hold, that have gradients."""
    seen: set[int] = set()
    for v in [*values, *[x for _, inside in reachable(list(values)) for x in inside]]:
        if type(v) is TracedTensor and id(v) not in seen and not is_stand(v) and not wrapper_of(v).is_leaf:
            seen.add(id(v))
            yield v


def heads_of(t: Any) -> list[Any]:
    """What the gradients of a result are given for: itself, or the parts of a wrapper."""
    if not is_wrapped(t):
        return [t]
    w = wrapper_of(t)
    if is_masked(type(w)):
        return [x for x in lowered(w, OF_RESULT) if x.requires_grad] if type(w._masked_data) is TracedTensor else []
    if not hasattr(type(w), "__tensor_flatten__"):
        return []
    names, _ = parts_of(w)
    if is_distributed(type(w)):
        return [x for x in lowered(w, [LOCAL]) if x.requires_grad]
    plain = all([type(w.__dict__.get(name)) is TracedTensor and ORIGINAL.is_floating_point(w.__dict__[name]) for name in names])
    return [x for x in lowered(w, names) if x.requires_grad] if plain else []


def pin(ops: list[Any]) -> None:
    """The backward part of the graph reads numbers of the world as they are now, which the guards are to know; sizes come with tensors."""
    scope, symbols = vm.scope, vm.world.symbols
    for v in leaves([(op.args, op.kwargs) for op in ops]):
        if type(v) in SYMS:
            for s in v.node.expr.symbols():
                if s.name in symbols and symbols[s.name].op not in METADATA:
                    scope.specialize(s, symnode.site_hook())


def rehearse(exit_: Any, effects: list[Any]) -> None:
    """Interpret what the classes of wrappers do in the backward part. Raises Reconsider where that cannot be captured."""
    trace = vm.trace
    if WRAPPED in vm.refused or not any([not jagged.is_jagged(cls) for cls in trace.wrapping]):
        return
    results = list(with_gradients(left(exit_, effects)))
    if not results:
        return

    def run() -> list[Any]:
        with torch.enable_grad():
            heads = [h for t in results for h in heads_of(t)]
        targets = [t for t in (trace.leaves.get(i.vid, i) for i in trace.inputs) if t.requires_grad]
        if heads and targets:
            given = tuple(heads), tuple([trace.tangent(h) for h in heads]), True, False, tuple(targets)
            n = len(trace.ops)
            with arriving.taken():
                grads = captured_call(ENGINE.run_backward, given, {"allow_unreachable": True, "accumulate_grad": False})
            pin(trace.ops[n:])
            return [t for t, g in zip(targets, grads, strict=True) if g is not None and is_masked(type(g))]
        return []

    try:
        with trace.recording():
            masked = rehearsed("PL0011", "the __torch_dispatch__ of a wrapper, in the backward part,", run)
    except (Break, Restart) as e:
        vm.pending = None
        raise Reconsider("backward", getattr(e, "reason", str(e)), WRAPPED) from None
    except RuntimeError:
        return  # the region says what of it (`lower/autograd.py`)
    for t in masked:
        raise Reconsider("backward", f"the gradient of {t.source} is masked", MASKED + str(t.source))
