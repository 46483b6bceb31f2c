"""Functionalization: a program without writes. What is written becomes a new value, and views of the same memory are made anew from it.

The method is that of PyTorch's functionalization pass (torch/csrc, `FunctionalTensorWrapper`), on a recorded program: each memory has a
base, views know how they were made, a write to a view is undone through the chain of views ("view inverses", such as `slice_scatter`)
up to the base, and other views are replayed when somebody reads them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export.rewrite import Rewriter
from pliant.graph.record import Op
from pliant.graph.schema import op_info
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness, views

aten = torch.ops.aten


class Memory:
    """What is known of one storage: its base, and how often it has been written."""

    __slots__ = ("base", "version")

    def __init__(self, base: TracedTensor) -> None:
        self.base = base
        self.version = 0


class Functionalizer(Rewriter):
    """One use: `run(ops)`, then `value(t)` says what a tensor of the old program is at the end."""

    def __init__(self, trace: Any, inputs: list[TracedTensor]) -> None:
        super().__init__(trace)
        self.memory: dict[int, Memory] = {}
        self.steps: dict[int, tuple[Op, int, TracedTensor]] = {}  # vid of a view -> how it was made, as which result, of what
        self.version: dict[int, int] = {}  # vid -> the version of its memory that `values` speaks of
        self.outside: dict[int, list[TracedTensor]] = {}
        for t in inputs:
            self.outside.setdefault(t.storage_id, []).append(t)
            self.memory.setdefault(t.storage_id, Memory(t))

    def run(self, ops: list[Op]) -> list[Op]:
        """The operations without writes. PliantError for one that has no functional form."""
        for op in ops:
            self.step(op)
        return self.ops

    def step(self, op: Op) -> None:
        if liveness.mutable(op.target) or op.target in STATISTICS:
            self.write(op)
        else:
            self.read(op)

    def written(self) -> set[int]:
        """The storages that were written."""
        return {s for s, m in self.memory.items() if m.version}

    # -- reading --------------------------------------------------------------------------------------------------------
    def value(self, t: TracedTensor) -> TracedTensor:
        m = self.memory.get(t.storage_id)
        if m is None or self.version.get(t.vid, 0) == m.version:
            return self.values.get(t.vid, t)
        step = self.steps.get(t.vid)
        if step is None:
            return self.values.get(t.vid, t)
        op, i, base = step
        self.value(base)
        args = tuple([self.value(a) if a is base else self.now(a) for a in op.args])
        out = self.put(op.target, *args, site=op.site, **self.now(op.kwargs))
        outs = [out] if op.out_spec is None else liveness.leaves(out)
        for k, old in enumerate(op.outs):
            if type(old) is TracedTensor and old.vid in self.steps and self.steps[old.vid][0] is op:
                self.values[old.vid] = outs[k]
                self.version[old.vid] = m.version
        return self.values[t.vid]

    def read(self, op: Op) -> None:
        self.again(op)
        for i, out in enumerate(op.outs):
            if type(out) is not TracedTensor:
                continue
            base = views.view_base(op, i)
            if base is None and out.storage_id in self.memory and not any(out is t for t in liveness.op_inputs(op)):
                base = next((t for t in liveness.op_inputs(op) if t.storage_id == out.storage_id), None)
            if base is not None and base is not out:
                self.steps.setdefault(out.vid, (op, i, base))
            m = self.memory.setdefault(out.storage_id, Memory(out))
            self.version[out.vid] = m.version

    # -- writing --------------------------------------------------------------------------------------------------------
    def write(self, op: Op) -> None:
        rule = RULES.get(op.target)
        if rule is not None:
            rule(self, op)
            return
        info = op_info(op.target)
        target = functional(op.target)
        names = [a.name for a in op.target._schema.arguments]
        given = dict(zip(names, op.args)) | op.kwargs
        writes = [given[n] for n in names if n in info.writes and given.get(n) is not None]
        if target is None or not writes:
            raise PliantError(f"{op.target} writes to its operands and has no functional form{at(op)}")
        kept = {a.name for a in target._schema.arguments}
        args = {k: self.now(v) for k, v in given.items() if k in kept}
        out = self.put(calling(target), args, site=op.site)
        outs = liveness.leaves(out)
        targets = liveness.leaves(writes)
        others = [not any(o is t for t in targets) for o in op.outs]  # results beside what is written: the new values come behind them
        beside = len(op.outs) if op.out_spec == "flat" and any(others) else 0
        news = outs[beside:] if beside and len(outs) > beside else outs[: len(targets)]
        for old, new, other in zip(op.outs, outs, others):
            if type(old) is TracedTensor and other:
                self.values[old.vid] = new
        for t, new in zip(targets, news, strict=True):
            self.set(t, new, op)

    def set(self, t: TracedTensor, new: TracedTensor, op: Op) -> None:
        """`t` has the value `new` from now on, and so have all that share its memory."""
        if new.dtype is not t.dtype:
            new = self.put(aten._to_copy.default, new, dtype=t.dtype, site=op.site)
        others = self.outside.get(t.storage_id, ())
        if len(others) > 1:
            raise PliantError(f"{op.target} writes to memory that {len(others)} inputs share{at(op)}: pass them apart, or as one")
        m = self.memory.setdefault(t.storage_id, Memory(t))
        chain: list[tuple[TracedTensor, TracedTensor]] = [(t, new)]
        x = t
        while x.vid in self.steps:
            view, i, base = self.steps[x.vid]
            inverse = INVERSES.get(view.target.overloadpacket)
            if inverse is None:
                raise PliantError(f"{op.target} writes to a view made by {view.target}, which cannot be undone{at(op)}")
            before = self.value(base)
            args = (before, *[self.now(a) for a in view.args[1:]])
            new = self.put(lambda: inverse(i, new, *args, **self.now(view.kwargs)), site=op.site)  # noqa: B023
            chain.append((base, new))
            x = base
        m.version += 1
        for y, value in chain:
            self.values[y.vid] = value
            self.version[y.vid] = m.version


def at(op: Op) -> str:
    return f" at {op.site}" if op.site is not None else ""


def calling(target: Any) -> Callable[[dict], Any]:
    """`target` called with all arguments by name, those that must be positional so."""

    def call(given: dict[str, Any]) -> Any:
        args = [given[a.name] for a in target._schema.arguments if not a.kwarg_only and a.name in given]
        return target(*args, **{a.name: given[a.name] for a in target._schema.arguments if a.kwarg_only and a.name in given})

    return call


def functional(target: Any) -> Any:
    """The operator that gives what this one writes: `add_.Tensor` -> `add.Tensor`. None if there is none."""
    space, name = target._schema.name.split("::")
    overload = target._overloadname
    packets = [getattr(torch.ops, space)]
    for candidate in (name.removesuffix("_"), f"{name.removesuffix('_')}_functional", name):
        packet = getattr(packets[0], candidate, None)
        if packet is None:
            continue
        for o in (overload, overload.removesuffix("_out"), overload.removesuffix("out") or "default", "default"):
            found = getattr(packet, o, None) if o in packet.overloads() else None
            if found is not None and found is not target and not found._schema.is_mutable and fits(target, found):
                return found
    return None


def fits(target: Any, found: Any) -> bool:
    """Whether `found` takes what `target` does, but for what it writes (`out=`)."""
    writes = op_info(target).writes
    names = [a.name for a in target._schema.arguments]
    theirs = [a.name for a in found._schema.arguments]
    return theirs == names or theirs == [n for n in names if n not in writes]


# -- rules of their own ---------------------------------------------------------------------------------------------------------------
def copy(f: Functionalizer, op: Op) -> None:
    t, source = op.args[0], f.now(op.args[1])
    new = source
    if new.dtype is not t.dtype or new.device != t.device:
        new = f.put(aten._to_copy.default, new, dtype=t.dtype, device=t.device, site=op.site)
    new = f.put(lambda: aten.expand.default(new, list(t.sizes)), site=op.site)
    f.set(t, new, op)


def fill(f: Functionalizer, op: Op) -> None:
    t, value = op.args[0], f.now(op.args[1])
    if type(value) is TracedTensor:
        if value.dtype is not t.dtype:
            value = f.put(aten._to_copy.default, value, dtype=t.dtype, site=op.site)
        new = f.put(lambda: aten.expand.default(value, list(t.sizes)), site=op.site)
    else:
        new = f.put(aten.full.default, list(t.sizes), value, dtype=t.dtype, device=t.device, site=op.site)
    f.set(t, new, op)


def zero(f: Functionalizer, op: Op) -> None:
    t = op.args[0]
    f.set(t, f.put(aten.full.default, list(t.sizes), 0, dtype=t.dtype, device=t.device, site=op.site), op)


def batch_norm(f: Functionalizer, op: Op) -> None:
    """It writes running statistics, though its schema does not say so."""
    args = [*op.args, *[op.kwargs[a.name] for a in op.target._schema.arguments[len(op.args) :]]]
    x, weight, bias, mean, var, training, momentum, eps = args
    if not training or mean is None:
        f.read(op)
        return
    now = [f.now(a) for a in (x, weight, bias, mean, var)]
    outs = f.put(aten._native_batch_norm_legit_functional.default, *now, training, momentum, eps, site=op.site)
    f.replace(op.outs, list(outs[:3]))
    f.set(mean, outs[3], op)
    f.set(var, outs[4], op)


STATISTICS = frozenset((aten.native_batch_norm.default, aten._native_batch_norm_legit.default, aten.cudnn_batch_norm.default))

RULES: dict[Any, Callable[[Functionalizer, Op], None]] = {
    aten.copy_.default: copy, aten.fill_.Scalar: fill, aten.fill_.Tensor: fill, aten.zero_.default: zero,
    aten.native_batch_norm.default: batch_norm, aten._native_batch_norm_legit.default: batch_norm,
}  # fmt: skip


# -- view inverses: (which result, its new value, the base as it was, the view's other arguments) -> the base as it is now ------------
def reshaped(i: int, new: Any, base: Any, *args: Any, **kwargs: Any) -> Any:
    return torch.reshape(new, base.shape)


def permuted(i: int, new: Any, base: Any, dims: list[int]) -> Any:
    n = base.dim()
    order = [0] * n
    for at_, d in enumerate(dims):
        order[d % n] = at_
    return aten.permute.default(new, order)


def split(i: int, new: Any, base: Any, size: Any, dim: int = 0) -> Any:
    start = size * i if not isinstance(size, (list, tuple)) else sum(size[:i])
    return aten.slice_scatter.default(base, new, dim, start, start + new.shape[dim])


INVERSES: dict[Any, Callable[..., Any]] = {
    aten.view: reshaped, aten._unsafe_view: reshaped, aten._reshape_alias: reshaped, aten.unsqueeze: reshaped, aten.squeeze: reshaped,
    aten.unflatten: reshaped,
    aten.alias: lambda i, new, base: new,
    aten.detach: lambda i, new, base: new,
    aten.lift_fresh: lambda i, new, base: new,
    aten.t: lambda i, new, base: aten.t.default(new),
    aten.transpose: lambda i, new, base, a, b: aten.transpose.int(new, a, b),
    aten.permute: permuted,
    aten.select: lambda i, new, base, dim, index: aten.select_scatter.default(base, new, dim, index),
    aten.slice: lambda i, new, base, dim=0, start=None, end=None, step=1: aten.slice_scatter.default(base, new, dim, start, end, step),
    aten.diagonal: lambda i, new, base, offset=0, dim1=0, dim2=1: aten.diagonal_scatter.default(base, new, offset, dim1, dim2),
    aten.split: split, aten.split_with_sizes: split,
    aten.unbind: lambda i, new, base, dim=0: aten.select_scatter.default(base, new, dim, i),
    aten.view_as_real: lambda i, new, base: aten.view_as_complex.default(new),
    aten.view_as_complex: lambda i, new, base: aten.view_as_real.default(new),
}  # fmt: skip
"""The inverse of each view operator, by name. `expand` has none: eager refuses to write to memory that overlaps itself."""
