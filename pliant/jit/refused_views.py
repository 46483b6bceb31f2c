"""Views that autograd refuses: what several views were made of at once (`unbind`), or one without gradients, was written since.

Eager raises at the first operation that records one. A node of a region would, too, but only if gradients flow through it, and only behind
what its forward part has done. So an emitted function asks for their histories before it calls its graph, and where PyTorch refuses the
frame runs in CPython.
"""

from __future__ import annotations

from typing import Any

from pliant.codegen.failures import Places, remember
from pliant.graph import wrapped
from pliant.graph.originals import CREATED, FOLLOWED, torch
from pliant.graph.traced import TracedTensor, leaves
from pliant.lower import liveness

BASE, HISTORY = [vars(torch._C.TensorBase)[name].__get__ for name in ("_base", "grad_fn")]
STORAGE = torch.Tensor.untyped_storage


def asked(trace: Any) -> tuple[list[TracedTensor], list[tuple[TracedTensor, list[TracedTensor]]]]:
    """The inputs whose histories the program's operations ask for; of those that are asked for behind writes, with what has been written
    by then. A parameter is no view."""
    views = {t.vid: t for t in trace.inputs if t.requires_grad and t.pytype is not torch.nn.Parameter}
    found: dict[int, set[int]] = {}  # -> the memory that is written before
    written: set[int] = set()
    for op in trace.ops[: trace.n_forward] if views else ():
        if op.grad and any([type(o) is TracedTensor and o.requires_grad for o in leaves(op.outs)]):
            for t in liveness.op_inputs(op):
                if t.vid in views:
                    found.setdefault(t.vid, set()).update(written)
        written.update(t.storage_id for t in liveness.written(op) if not op.unheard)
    behind = [(views[vid], [x for x in trace.inputs if x.storage_id in memory]) for vid, memory in found.items()]
    return [views[vid] for vid in found], [(t, own) for t, own in behind if own]


def lines(trace: Any, builder: Any, passed_on: set[str], slots: str) -> list[str]:
    """The statements that ask. Slots that the graph gets as one tuple are in the variable `slots` alone."""

    def text(tensors: list[TracedTensor]) -> str:
        names = dict.fromkeys([builder.outside(t.source) for t in tensors])
        return ", ".join([*(x for x in names if x not in passed_on), *([f"*{slots}"] if passed_on.intersection(names) else [])])

    entering, behind = asked(trace)
    out = [f"{builder.constant(ask)}({text(entering)})"] if entering else []
    return [*out, *[f"{builder.constant(ask_behind)}([{text(written)}], {text([t])})" for t, written in behind]]


def refuses(t: Any) -> bool:
    """Whether this is a view whose history PyTorch refuses to make anew once its memory is written through another name."""
    return isinstance(t, torch.Tensor) and BASE(t) is not None and CREATED(t) != FOLLOWED


def ask(*slots: Any) -> None:
    """Raises what autograd says of a tensor that it refuses. One that follows what was written is not asked: that would change what may be
    written to it. (Slots that go to the graph as one tuple come here as one, too: with numbers, and tensors that nobody asks.)"""
    with torch._C.DisableTorchFunction():
        for t in slots:
            if refuses(t):
                HISTORY(t)


def ask_behind(written: list[Any], *slots: Any) -> None:
    """Raises where autograd will refuse a tensor by the time that the graph has written to these: CPython tells what it says."""
    with torch._C.DisableTorchFunction():
        for t in slots:
            if refuses(t) and any([isinstance(w, torch.Tensor) and in_one_memory(t, w) for w in written]):
                raise RuntimeError("a view that autograd refuses behind a write of the graph")


def in_one_memory(t: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors, of any class, lie in one storage."""
    return STORAGE(t)._cdata == STORAGE(other)._cdata


for _fn in (ask, ask_behind, wrapped.plain):
    remember(_fn, Places({}))  # what it raises comes before anything was done: CPython runs the frame
