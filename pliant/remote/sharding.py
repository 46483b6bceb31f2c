"""Rules of placement: for each family of operators, what is wanted of the operands, and how the results are placed.

`RULES[operator](partitioner, op)` records the operation on local tensors (`Partitioner.apply`), or returns NotImplemented: then it runs on
whole tensors. The words are DTensor's: replicate, shard, partial.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.graph.operators import overloads
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.remote.partition import P, Partial, Partitioner, Place, R, Refused, Shard, argument

aten = torch.ops.aten
RULES: dict[Any, Callable[[Partitioner, Op], Any]] = {}


ACROSS: dict[str, Callable] = {}
"""Rules for reductions and the like where one of the dims that they go over is cut (`reduction_rules.py`)."""


def rule(names: str) -> Callable:
    """Enter a rule for all overloads of these operators of ATen."""

    def enter(fn: Callable) -> Callable:
        for target in overloads(tuple(names.split())):
            RULES[target] = fn
        return fn

    return enter


def rule_of_cut(names: str, *operands: int) -> Callable:
    """As `rule`: `fn(p, op, place)` is called where one of these arguments is cut, by number, with the place of the first that is."""

    def enter(fn: Callable) -> Callable:
        def found(p: Partitioner, op: Op) -> Any:
            places = [p.place(op.args[i]) for i in operands]
            place = next((pl for pl in places if isinstance(pl, Shard)), None)
            return NotImplemented if place is None else fn(p, op, place)

        rule(names)(found)
        return fn

    return enter


def tensors(op: Op) -> tuple[TracedTensor, ...]:
    return liveness.op_inputs(op)


def of_either(p: Partitioner, x: TracedTensor, y: TracedTensor) -> Place:
    """The place of `x` if that is cut, else that of `y`."""
    place = p.place(x)
    return place if isinstance(place, Shard) else p.place(y)


def bytes_of(t: TracedTensor) -> int:
    n = t.dtype.itemsize
    for s in t.sizes:
        e = liveness.number(s)
        n *= s if e is None else (e.hint if e.hint is not None else 64)
    return n


def is_one(p: Partitioner, size: Any) -> bool:
    return p.equal(p.number(size), 1)


# -- what has no rule ---------------------------------------------------------------------------------------------------------
def whole(p: Partitioner, op: Op) -> None:
    """On whole tensors, on every worker: right for every operator that computes its results from its operands."""
    written = liveness.written(op)
    for t in written:
        if isinstance(p.place(t), Partial):
            settle_or_refuse(p, t)
    cut = [t for t in written if isinstance(p.place(t), Shard)]
    if len(cut) == len(written) == len(op.outs) == 1 and liveness.draws(op.target):
        drawn(p, op, cut[0])
        return
    for t in tensors(op):
        if isinstance(p.place(t), Shard):
            p.gathered.append(f"{op.target} at {p.where()}")
    if cut:
        taken_back(p, op, cut)
    else:
        p.apply(op, lambda t: R, R)


def taken_back(p: Partitioner, op: Op, cut: list[TracedTensor]) -> None:
    """The operation writes to whole copies of what is cut; of these, each worker takes its piece."""
    own = {t.vid: (p.local[t.vid], p.place(t)) for t in cut}
    memory = {t.storage_id for t in cut}
    if len(memory) != len(cut) or any(t.storage_id in memory and t.vid not in own for t in (*tensors(op), *liveness.op_outputs(op))):
        raise Refused(f"{p.where()}: {op.target} writes to a sharded tensor of which it reads or gives a view, and has no rule for that")
    full, before = {t.vid: p.at(t, R) for t in cut}, set(p.separated)
    p.apply(op, lambda t: R, R)
    p.separated = before
    for vid, (x, place) in own.items():
        p.emit(aten.copy_.default, x, p.redistribute(full[vid], R, place))
        p.local[vid], p.places[vid] = x, place


def settle(p: Partitioner, t: TracedTensor, want: Place = R) -> None:
    """What the graph has made, and is about to write to, is placed otherwise: partial sums become a whole tensor, a whole one is cut."""
    others = [vid for vid, sid in p.storages.items() if sid == t.storage_id and vid != t.vid and vid in p.local]
    if any(p.last_use.get(vid, -1) >= p.index for vid in others):
        raise Refused(f"{p.where()} writes to memory of which there are views that would have to move with it")
    p.local[t.vid], p.places[t.vid] = p.at(t, want), want


def drawn(p: Partitioner, op: Op, t: TracedTensor) -> None:
    """Random numbers for a sharded tensor: every worker draws them for the whole one, and takes its own."""
    place = p.place(t)
    assert isinstance(place, Shard)
    sizes = [p.number(n) for n in t.sizes]
    full = p.emit(aten.empty.memory_format, sizes, dtype=t.dtype, device=t.device)
    rest = [p.at(a, R) if type(a) is TracedTensor else p.converted(a) for a in op.args[1:]]
    named = {k: p.at(v, R) if type(v) is TracedTensor else p.converted(v) for k, v in op.kwargs.items()}
    p.emit(op.target, full, *rest, **named)
    x = p.local[t.vid]
    p.emit(aten.copy_.default, x, p.redistribute(full, R, place))
    p.give(op.outs[0], x, place)


def reduced(p: Partitioner, op: Op) -> Callable[[TracedTensor], Place]:
    """Operands as they are, partial sums made whole."""
    return lambda t: R if isinstance(p.place(t), Partial) else p.place(t)


# -- element by element ---------------------------------------------------------------------------------------------------------
LINEAR_OF_ONE = frozenset(overloads(("neg", "alias", "detach", "clone", "_to_copy", "lift_fresh", "contiguous")))
SUMS = frozenset(overloads(("add", "sub")))
SCALED = frozenset(overloads(("mul", "div")))


def linear(p: Partitioner, op: Op) -> bool:
    """Whether partial sums may stay partial: the operator is linear in all operands that are."""
    args = tensors(op)
    partial = [isinstance(p.place(t), Partial) for t in args]
    if not any(partial) or any(not t.dtype.is_floating_point for t in (*args, *liveness.op_outputs(op))):
        return False
    if op.target in LINEAR_OF_ONE:
        return True
    if op.target in SUMS:
        return len(args) == 2 and all(partial) and same_sizes(p, *args)
    if op.target in SCALED and "rounding_mode" not in op.kwargs:
        if not isinstance(op.args[0], TracedTensor) or not isinstance(p.place(op.args[0]), Partial):
            return False
        other = op.args[1]
        return not isinstance(other, TracedTensor) or (isinstance(p.place(other), type(R)) and not other.sizes)
    return False


def same_sizes(p: Partitioner, a: TracedTensor, b: TracedTensor) -> bool:
    return len(a.sizes) == len(b.sizes) and all(p.equal(p.number(x), p.number(y)) for x, y in zip(a.sizes, b.sizes, strict=True))


def dim_in(p: Partitioner, t: TracedTensor, out: TracedTensor, d: int) -> int | None:
    """The dim of an operand that becomes dim `d` of the result when it is broadcast; None if it has none, or one of size 1."""
    at = d - (len(out.sizes) - len(t.sizes))
    if at < 0 or (is_one(p, t.sizes[at]) and not is_one(p, out.sizes[d])):
        return None
    return at


def pointwise(p: Partitioner, op: Op) -> Any:
    """All operands are cut alike where the result is; what is broadcast along that dim is whole."""
    written = liveness.written(op)
    outs = liveness.op_outputs(op)
    if not outs:
        return NotImplemented
    if len(written) > 1 or any(type(a) in (list, tuple) and any(type(v) is TracedTensor for v in a) for a in op.args):
        return NotImplemented
    if written:
        target = written[0]
        if isinstance(p.place(target), Partial):
            if linear(p, op) and p.place(target) is P:
                p.apply(op, lambda t: p.place(t), P)
                return None
            settle_or_refuse(p, target)
        return spread(p, op, target, p.place(target))
    if linear(p, op):
        p.apply(op, lambda t: p.place(t), P)
        return None
    out = outs[0]
    if any(len(o.sizes) != len(out.sizes) for o in outs):
        return NotImplemented
    return spread(p, op, out, chosen(p, op, out))


def settle_or_refuse(p: Partitioner, t: TracedTensor) -> None:
    if t.storage_id in p.outside:
        raise Refused(f"{p.where()} writes to partial sums")
    settle(p, t)


def chosen(p: Partitioner, op: Op, out: TracedTensor) -> Place:
    """How the result of a pointwise operation is cut: as its largest operand."""
    best: tuple[int, Place] = (-1, R)
    for t in tensors(op):
        place = p.place(t)
        if isinstance(place, Shard):
            d = place.dim + len(out.sizes) - len(t.sizes)
            if dim_in(p, t, out, d) == place.dim and bytes_of(t) > best[0]:
                best = bytes_of(t), Shard(d, place.base, place.factor)
    return best[1]


def spread(p: Partitioner, op: Op, out: TracedTensor, place: Place) -> None:
    def want(t: TracedTensor) -> Place:
        if not isinstance(place, Shard):
            return R
        at = dim_in(p, t, out, place.dim)
        return R if at is None else Shard(at, place.base, place.factor)

    p.apply(op, want, place)


@rule("zeros_like ones_like empty_like full_like")
def like(p: Partitioner, op: Op) -> Any:
    """The operand says sizes only."""
    t = tensors(op)[0]
    place = p.place(t)
    p.apply(op, lambda t: place, place if isinstance(place, Shard) else R)


# -- reductions -------------------------------------------------------------------------------------------------------------------
def dims_of(op: Op, x: TracedTensor, name: str = "dim") -> list[int]:
    """The dims that a reduction goes over."""
    dim = argument(op, name)
    n = len(x.sizes)
    if dim is None or (isinstance(dim, (list, tuple)) and not dim):
        return list(range(n))
    return [d % n if n else 0 for d in (dim if isinstance(dim, (list, tuple)) else [dim])]


def behind(d: int, dims: Iterable[int], keepdim: bool) -> int:
    """The number of dim `d` in the result."""
    return d if keepdim else d - sum(1 for e in dims if e < d)


@rule("sum mean")
def sums(p: Partitioner, op: Op) -> Any:
    x = op.args[0]
    place, out = p.place(x), op.outs[0]
    dims = dims_of(op, x)
    if isinstance(place, Partial) and x.dtype.is_floating_point:
        p.apply(op, lambda t: P, P)
        return None
    if not isinstance(place, Shard):
        return NotImplemented
    if place.dim not in dims:
        d = behind(place.dim, dims, bool(argument(op, "keepdim", False)))
        p.apply(op, lambda t: place, Shard(d, place.base, place.factor))
        return None
    keep = bool(argument(op, "keepdim", False))
    local = p.emit(aten.sum.dim_IntList, p.local[x.vid], dims, keep, dtype=out.dtype)
    if op.target._schema.name == "aten::mean":
        count: Any = 1
        for d in dims:
            count = count * p.number(x.sizes[d])
        local = p.emit(aten.div.Tensor, local, count)
    p.give(out, local, P)
    return None


@rule("amax amin max min argmax argmin any all prod var std var_mean std_mean logsumexp norm linalg_vector_norm median cumsum cumprod sort"
      " argsort topk softmax log_softmax _softmax _log_softmax logcumsumexp cummax cummin kthvalue flip roll"
      " native_layer_norm nansum")  # fmt: skip
def along(p: Partitioner, op: Op) -> Any:
    """Each row along certain dims is computed by itself: others may be cut. Operands of the same rank are cut alike."""
    x = op.args[0]
    if op.target in (aten.max.other, aten.min.other):
        return pointwise(p, op)
    if not isinstance(x, TracedTensor) or any(isinstance(p.place(t), Partial) for t in tensors(op)[1:]):
        return NotImplemented
    place = p.place(x)
    if not isinstance(place, Shard) or (op.target._schema.name == "aten::norm" and argument(op, "dim") is None):
        return NotImplemented
    name = op.target._schema.name
    if name == "aten::native_layer_norm":
        n = len(argument(op, "normalized_shape"))
        dims = list(range(len(x.sizes) - n, len(x.sizes)))
    elif name in ("aten::flip", "aten::roll"):
        dims = dims_of(op, x, "dims")
    elif any(a.name == "dim" for a in op.target._schema.arguments):
        dims = dims_of(op, x)
    else:
        return NotImplemented
    if place.dim in dims:
        return ACROSS[name](p, op, x, place, dims) if name in ACROSS else NotImplemented
    outs: list[Place] = []
    for o in op.outs:
        if type(o) is not TracedTensor or len(o.sizes) not in (len(x.sizes), len(x.sizes) - len(dims)):
            return NotImplemented
        outs.append(Shard(behind(place.dim, dims, len(o.sizes) == len(x.sizes)), place.base, place.factor))
    p.apply(op, lambda t: place if t is x or (len(t.sizes) == len(x.sizes) and same_sizes(p, t, x)) else R, outs)
    return None


@rule("native_layer_norm_backward")
def layer_norm_backward(p: Partitioner, op: Op) -> Any:
    x, n = op.args[1], len(op.args[2])
    place = of_either(p, x, op.args[0])
    if not isinstance(place, Shard) or place.dim >= len(x.sizes) - n:
        return NotImplemented
    p.apply(op, lambda t: place if len(t.sizes) == len(x.sizes) and t.vid not in affine(op) else R, [place, P, P])
    return None


def affine(op: Op) -> set[int]:
    return {t.vid for t in op.args[5:7] if isinstance(t, TracedTensor)}


# -- all others ---------------------------------------------------------------------------------------------------------------------------
MADE = frozenset(overloads(("copy_", "fill_", "zero_", "masked_fill", "masked_fill_", "where", "clamp", "gelu_backward",
                            "threshold_backward",
                            "sigmoid_backward", "tanh_backward", "silu_backward", "lerp", "lerp_", "addcmul", "addcmul_", "addcdiv",
                            "addcdiv_", "native_dropout_backward", "contiguous", "rsub", "alias", "detach", "clone",
                            "_to_copy", "isnan", "hardtanh_backward", "leaky_relu_backward", "elu_backward", "softplus_backward",
                            "hardswish_backward", "hardsigmoid_backward", "mish_backward", "logit_backward")))  # fmt: skip
"""Pointwise operators that PyTorch does not tag so."""


def default(p: Partitioner, op: Op) -> Any:
    """Pointwise where PyTorch says so, else on whole tensors."""
    if (op.target in MADE or torch.Tag.pointwise in op.target.tags) and not liveness.draws(op.target):
        if pointwise(p, op) is not NotImplemented:
            return
    whole(p, op)


ALL = RULES, default, whole


__all__ = ["ALL", "RULES", "default"]
