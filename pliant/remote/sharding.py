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
from pliant.remote import collectives as c
from pliant.remote.partition import P, Partial, Partitioner, Place, R, Refused, Shard, Sizes
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

aten = torch.ops.aten
RULES: dict[Any, Callable[[Partitioner, Op], Any]] = {}


def rule(names: str) -> Callable:
    """Enter a rule for all overloads of these operators of ATen."""

    def enter(fn: Callable) -> Callable:
        for target in overloads(tuple(names.split())):
            RULES[target] = fn
        return fn

    return enter


def tensors(op: Op) -> tuple[TracedTensor, ...]:
    return liveness.op_inputs(op)


def argument(op: Op, name: str, default: Any = None) -> Any:
    """An argument by its name in the schema."""
    for i, a in enumerate(op.target._schema.arguments):
        if a.name == name:
            return op.args[i] if i < len(op.args) else op.kwargs.get(name, a.default_value if a.has_default_value() else default)
    return default


def bytes_of(t: TracedTensor) -> int:
    n = t.dtype.itemsize
    for s in t.sizes:
        e = liveness.number(s)
        n *= s if e is None else (e.hint if e.hint is not None else 64)
    return n


def is_one(size: Any) -> bool:
    return type(size) is int and size == 1


# -- what has no rule ---------------------------------------------------------------------------------------------------------
def whole(p: Partitioner, op: Op) -> None:
    """On whole tensors, on every worker: right for every operator that computes its results from its operands."""
    written = {t.vid for t in liveness.written(op)}
    for t in tensors(op):
        place = p.place(t)
        if t.vid in written and not isinstance(place, type(R)):
            if isinstance(place, Partial) and t.storage_id not in p.outside:
                settle(p, t)
                continue
            if liveness.draws(op.target) and len(op.outs) == 1:
                drawn(p, op, t)
                return
            raise Refused(f"{p.where()}: {op.target} writes to a sharded tensor, and has no rule for that")
        if isinstance(place, Shard) and t.vid not in written:
            p.gathered.append(f"{op.target} at {p.where()}")
    p.apply(op, lambda t: R, R)


def settle(p: Partitioner, t: TracedTensor) -> None:
    """Partial sums that are about to be written to become a whole tensor, which takes their place."""
    aliases = [vid for vid, sid in p.storages.items() if sid == t.storage_id and vid != t.vid and vid in p.local]
    if aliases:
        raise Refused(f"{p.where()} writes to partial sums of which there are views")
    x = p.redistribute(p.local[t.vid], P, R)
    p.local[t.vid], p.places[t.vid] = x, R


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
    if at < 0 or (is_one(t.sizes[at]) and not is_one(out.sizes[d])):
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
      " argsort topk softmax log_softmax _softmax _log_softmax logcumsumexp cummax cummin kthvalue flip roll native_layer_norm nansum")  # fmt: skip
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
        return NotImplemented
    outs: list[Place] = []
    for o in op.outs:
        if type(o) is not TracedTensor or len(o.sizes) not in (len(x.sizes), len(x.sizes) - len(dims)):
            return NotImplemented
        outs.append(Shard(behind(place.dim, dims, len(o.sizes) == len(x.sizes)), place.base, place.factor))
    p.apply(op, lambda t: place if t is x or (len(t.sizes) == len(x.sizes) and same_sizes(p, t, x)) else R, outs)
    return None


@rule("_softmax_backward_data _log_softmax_backward_data")
def softmax_backward(p: Partitioner, op: Op) -> Any:
    out = op.args[1]
    place = p.place(out)
    if not isinstance(place, Shard):
        place = p.place(op.args[0])
    if not isinstance(place, Shard) or place.dim == op.args[2] % len(out.sizes):
        return NotImplemented
    p.apply(op, lambda t: place, place)
    return None


@rule("native_layer_norm_backward")
def layer_norm_backward(p: Partitioner, op: Op) -> Any:
    x, n = op.args[1], len(op.args[2])
    place = p.place(x)
    if not isinstance(place, Shard):
        place = p.place(op.args[0])
    if not isinstance(place, Shard) or place.dim >= len(x.sizes) - n:
        return NotImplemented
    p.apply(op, lambda t: place if len(t.sizes) == len(x.sizes) and t.vid not in affine(op) else R, [place, P, P])
    return None


def affine(op: Op) -> set[int]:
    return {t.vid for t in op.args[5:7] if isinstance(t, TracedTensor)}


# -- products ---------------------------------------------------------------------------------------------------------------------
def contraction(p: Partitioner, op: Op, operands: list[tuple[TracedTensor, str]], out: str) -> tuple[str, Shard] | None:
    """The letter whose dims are cut, and how: what moves the fewest bytes. None: nothing is cut."""
    best: tuple[int, int, tuple[str, Shard] | None] | None = None
    letters: list[tuple[str, Shard]] = []
    for t, names in operands:
        place = p.place(t)
        if isinstance(place, Shard) and place.dim < len(names):
            letters.append((names[place.dim], place))
    for n, choice in enumerate([*letters, None]):
        cost = 0
        for t, names in operands:
            have = p.place(t)
            want: Place = R
            if choice is not None and choice[0] in names:
                want = Shard(names.index(choice[0]), choice[1].base, choice[1].factor)
            if not p.same(have, want):
                cost += 0 if isinstance(have, type(R)) else bytes_of(t) * (2 if isinstance(have, Partial) else 1)
        whole_ones = [t for t, names in operands if choice is not None and choice[0] in names and not isinstance(p.place(t), Shard)]
        if choice is not None and choice[0] not in out and whole_ones:
            continue  # the other one is whole: nothing is gained by sums of parts
        if best is None or (cost, n) < best[:2]:
            best = cost, n, choice
    return best[2] if best is not None else None


PRODUCTS = {"mm": ("mk", "kn", "mn"), "bmm": ("bmk", "bkn", "bmn"), "mv": ("mk", "k", "m"), "dot": ("k", "k", "")}


def product(p: Partitioner, op: Op, a: TracedTensor, b: TracedTensor, names: tuple[str, str, str]) -> tuple[Callable, Place, str]:
    """(placements wanted of the operands, that of the result, the letter that is cut)."""
    found = contraction(p, op, [(a, names[0]), (b, names[1])], names[2])
    if found is None:
        return (lambda t: R), R, ""
    letter, cut = found

    def want(which: str) -> Place:
        return Shard(which.index(letter), cut.base, cut.factor) if letter in which else R

    if a is b and want(names[0]) != want(names[1]):
        return (lambda t: R), R, ""
    place: Place = Shard(names[2].index(letter), cut.base, cut.factor) if letter in names[2] else P
    return (lambda t: want(names[0]) if t is a else want(names[1])), place, letter


@rule("mm bmm mv dot")
def matmul(p: Partitioner, op: Op) -> Any:
    if len(op.args) != 2 or op.kwargs:
        return NotImplemented
    a, b = op.args
    want, place, _ = product(p, op, a, b, PRODUCTS[op.target._schema.name.removeprefix("aten::")])
    if place is P and not a.dtype.is_floating_point:
        return NotImplemented
    p.apply(op, want, place)
    return None


@rule("addmm baddbmm")
def add_product(p: Partitioner, op: Op) -> Any:
    bias, a, b = op.args[:3]
    if liveness.written(op) or bias is a or bias is b:
        return NotImplemented
    names = PRODUCTS["mm" if len(a.sizes) == 2 else "bmm"]
    want, place, letter = product(p, op, a, b, names)
    out = op.outs[0]
    if isinstance(place, Partial):
        beta, alpha = op.kwargs.get("beta", 1), op.kwargs.get("alpha", 1)
        if not a.dtype.is_floating_point or beta != 1 or alpha != 1:
            return NotImplemented
        x = p.emit(aten.mm.default if len(a.sizes) == 2 else aten.bmm.default, p.at(a, want(a)), p.at(b, want(b)))
        x = p.emit(c.ALL_REDUCE, x, "sum")
        p.give(out, p.emit(aten.add.Tensor, x, p.at(bias, R)), R)
        return None

    def wanted(t: TracedTensor) -> Place:
        if t is not bias:
            return want(t)
        at = dim_in(p, bias, out, place.dim) if isinstance(place, Shard) else None
        return R if at is None else Shard(at, place.base, place.factor)  # type: ignore[union-attr]

    p.apply(op, wanted, place)
    return None


# -- views --------------------------------------------------------------------------------------------------------------------------
@rule("view _unsafe_view reshape")
def view(p: Partitioner, op: Op) -> Any:
    """The cut dim must begin a group of dims that are flattened, or be what is taken apart again."""
    x, out = op.args[0], op.outs[0]
    place = p.place(x)
    sizes = [p.number(n) for n in out.sizes]
    if isinstance(place, Shard):
        found = through_view(p, x, out, place)
        if found is None:
            p.gathered.append(f"{op.target} at {p.where()}")
            place = R
        else:
            sizes[found.dim] = p.length(found)
            local = p.emit(op.target, p.local[x.vid], sizes)
            p.give(out, local, found)
            return None
    outer: Place = P if isinstance(place, Partial) else R
    if isinstance(p.place(x), Shard):
        p.separated.add(out.storage_id)
    p.give(out, p.emit(op.target, p.at(x, outer), sizes), outer)
    return None


def through_view(p: Partitioner, x: TracedTensor, out: TracedTensor, place: Shard) -> Shard | None:
    """How the result of a view is cut; None where pieces do not stay together."""
    ins, outs = [p.plain(p.number(n)) for n in x.sizes], [p.plain(p.number(n)) for n in out.sizes]
    i = j = 0
    while i < len(ins) and j < len(outs):
        group_in, group_out = [i], [j]
        a, b = ins[i], outs[j]
        i, j = i + 1, j + 1
        while not p.equal(a, b):
            # the shorter product grows; which one that is, hints tell, and equality is proved
            if hint(a) < hint(b) or (hint(a) == hint(b) and j >= len(outs)):
                if i >= len(ins):
                    return None
                a = p.plain(p.symbol(a) * p.symbol(ins[i]))
                group_in.append(i)
                i += 1
            else:
                if j >= len(outs):
                    return None
                b = p.plain(p.symbol(b) * p.symbol(outs[j]))
                group_out.append(j)
                j += 1
        if place.dim in group_in:
            return in_group(p, ins, outs, group_in, group_out, place)
    return None


def in_group(p: Partitioner, ins: list, outs: list, group_in: list[int], group_out: list[int], place: Shard) -> Shard | None:
    before = [d for d in group_in if d < place.dim]
    if any(not (type(ins[d]) is int and ins[d] == 1) for d in before):
        return None
    inner: Any = 1
    for d in group_in:
        if d > place.dim:
            inner = p.symbol(inner) * p.symbol(ins[d])
    lead = next((d for d in group_out if not (type(outs[d]) is int and outs[d] == 1)), group_out[0])
    if any(d > lead for d in group_out[: group_out.index(lead)]):
        return None
    rest: Any = 1
    for d in group_out:
        if d > lead:
            rest = p.symbol(rest) * p.symbol(outs[d])
    # a piece has `length(base) * factor * inner` elements, in rows of `rest`
    total = p.plain(p.symbol(place.factor) * p.symbol(inner)) if place.factor != 1 or inner != 1 else 1
    return divided(p, place, total, p.plain(rest), lead)


def divided(p: Partitioner, place: Shard, total: Any, rest: Any, dim: int) -> Shard | None:
    """Pieces of `length(base) * total` elements as rows of `rest`."""
    if p.equal(total, rest):
        return Shard(dim, place.base, 1)
    if type(rest) is int and rest == 1:
        return Shard(dim, place.base, total)
    if type(total) is int and type(rest) is int:
        if total % rest == 0:
            return Shard(dim, place.base, total // rest)
        whole_ = place.base * total if type(place.base) is int else None
        if whole_ is not None and place.base % p.workers == 0 and (place.base // p.workers * total) % rest == 0:
            n = whole_ // rest
            return Shard(dim, n, 1) if n % p.workers == 0 else None
        return None
    e = expr(p, total)
    f = expr(p, rest)
    q = p.scope.simplify(ops.floordiv(e, f))
    if p.scope.known_true(ops.eq(ops.mul(q, f), e)):
        return Shard(dim, place.base, q if q.const is None else q.const)
    return None


def expr(p: Partitioner, x: Any) -> Expr:
    return x if isinstance(x, Expr) else p.scope.ctx.lift(x)


def hint(x: Any) -> int:
    return x if type(x) is int else (x.hint if x.hint is not None else 64)


def moved_dims(p: Partitioner, op: Op, order: list[int]) -> Any:
    """A permutation: dim `order[i]` becomes dim `i`."""
    place = p.place(op.args[0])
    out: Place = Shard(order.index(place.dim), place.base, place.factor) if isinstance(place, Shard) else place
    p.apply(op, lambda t: place, out)


@rule("permute t transpose")
def permute(p: Partitioner, op: Op) -> Any:
    if liveness.mutable(op.target):
        return NotImplemented
    n = len(op.args[0].sizes)
    order = list(range(n))
    name = op.target._schema.name
    if name == "aten::permute":
        order = [d % n for d in op.args[1]]
    elif n > 1:
        i, j = (0, 1) if name == "aten::t" else (op.args[1] % n, op.args[2] % n)
        order[i], order[j] = order[j], order[i]
    return moved_dims(p, op, order)


@rule("unsqueeze")
def unsqueeze(p: Partitioner, op: Op) -> Any:
    x = op.args[0]
    place, d = p.place(x), op.args[1] % (len(x.sizes) + 1)
    out = Shard(place.dim + (place.dim >= d), place.base, place.factor) if isinstance(place, Shard) else place
    p.apply(op, lambda t: place, out)


@rule("squeeze")
def squeeze(p: Partitioner, op: Op) -> Any:
    """Dims of size 1 go; which ones these are, the graph has decided, and a piece of another dim may have that size too."""
    x, out = op.args[0], op.outs[0]
    place = p.place(x)
    if liveness.mutable(op.target):
        return NotImplemented
    if not isinstance(place, Shard):
        p.apply(op, lambda t: place, place)
        return None
    asked = argument(op, "dim")
    n = len(x.sizes)
    dims = range(n) if asked is None else [d % n for d in (asked if isinstance(asked, (list, tuple)) else [asked])]
    gone = [d for d in dims if is_one(x.sizes[d])]
    if place.dim in gone or len(gone) != n - len(out.sizes):
        return NotImplemented
    local = p.emit(aten.squeeze.dims, p.local[x.vid], gone) if gone else p.emit(aten.alias.default, p.local[x.vid])
    p.give(out, local, Shard(behind(place.dim, gone, False), place.base, place.factor))
    return None


@rule("expand")
def expand(p: Partitioner, op: Op) -> Any:
    x, out = op.args[0], op.outs[0]
    place = p.place(x)
    if isinstance(place, Shard):
        d = place.dim + len(out.sizes) - len(x.sizes)
        if is_one(x.sizes[place.dim]):
            return NotImplemented
        place_out: Place = Shard(d, place.base, place.factor)
    else:
        place_out = place
    p.apply(op, lambda t: place, place_out, (x, Sizes(p.sizes(out, place_out))), {})
    return None


@rule("slice select split split_with_sizes unbind narrow")
def along_others(p: Partitioner, op: Op) -> Any:
    """Parts along a dim that is not cut."""
    x = op.args[0]
    place = p.place(x)
    if not isinstance(place, Shard):
        p.apply(op, lambda t: place, place)
        return None
    n = len(x.sizes)
    name = op.target._schema.name
    dim = (argument(op, "dim", 0) or 0) % n
    if dim == place.dim:
        out = op.outs[0]
        if name == "aten::slice" and p.equal(p.number(out.sizes[dim]), p.number(x.sizes[dim])):
            p.give(out, p.emit(aten.alias.default, p.local[x.vid]), place)
            return None
        return NotImplemented
    gone = name in ("aten::select", "aten::unbind")
    p.apply(op, lambda t: place, Shard(behind(place.dim, [dim] if gone else [], False), place.base, place.factor))
    return None


@rule("slice_backward select_backward")
def part_backward(p: Partitioner, op: Op) -> Any:
    grad, sizes, dim = op.args[:3]
    place, out = p.place(grad), op.outs[0]
    dim %= len(sizes)
    if isinstance(place, Partial):
        p.apply(op, lambda t: P, P)
        return None
    if not isinstance(place, Shard):
        return NotImplemented
    selected = op.target._schema.name == "aten::select_backward"
    d = place.dim + (selected and place.dim >= dim)
    if d == dim and not selected and p.equal(p.number(out.sizes[dim]), p.number(grad.sizes[dim])):
        p.give(out, p.emit(aten.clone.default, p.local[grad.vid]), place)  # all of it was taken
        return None
    if d == dim:
        return NotImplemented
    at = Shard(d, place.base, place.factor)
    p.apply(op, lambda t: place, at, (grad, Sizes(p.sizes(out, at)), *op.args[2:]))
    return None


@rule("cat stack")
def joined(p: Partitioner, op: Op) -> Any:
    """Pieces joined along a dim that is not cut."""
    parts, out = op.args[0], op.outs[0]
    n = len(out.sizes)
    dim = (argument(op, "dim", 0) or 0) % n
    if any(len(t.sizes) != len(parts[0].sizes) for t in parts):
        return NotImplemented
    shift = op.target._schema.name == "aten::stack"
    if all(isinstance(p.place(t), Partial) for t in parts) and out.dtype.is_floating_point:
        p.apply(op, lambda t: P, P)
        return None
    found = None
    for t in sorted(parts, key=bytes_of, reverse=True):
        place = p.place(t)
        if isinstance(place, Shard) and found is None:
            found = place
    if found is None:
        return NotImplemented
    d = found.dim + (shift and found.dim >= dim)
    if d == dim:
        return NotImplemented
    p.apply(op, lambda t: found, Shard(d, found.base, found.factor))
    return None


# -- looking up -----------------------------------------------------------------------------------------------------------------------
@rule("embedding")
def embedding(p: Partitioner, op: Op) -> Any:
    weight, index = op.args[:2]
    w, i, n = p.place(weight), p.place(index), len(index.sizes)
    if isinstance(i, Shard) and not (isinstance(w, Shard) and w.dim == 1):
        p.apply(op, lambda t: R if t is weight else i, i)
    elif isinstance(w, Shard) and w.dim == 1:
        p.apply(op, lambda t: w if t is weight else R, Shard(n, w.base, w.factor))
    else:
        return NotImplemented
    return None


@rule("embedding_dense_backward")
def embedding_backward(p: Partitioner, op: Op) -> Any:
    grad, index = op.args[:2]
    g, i = p.place(grad), p.place(index)
    if op.args[4]:
        return NotImplemented  # by how often a row was read
    if isinstance(g, Shard) and g.dim == len(index.sizes):
        p.apply(op, lambda t: g if t is grad else R, Shard(1, g.base, g.factor))
        return None
    cut = i if isinstance(i, Shard) else g
    if not isinstance(cut, Shard):
        return NotImplemented
    p.apply(op, lambda t: cut, P)
    return None


@rule("index_select gather")
def picked(p: Partitioner, op: Op) -> Any:
    x, dim, index = op.args[:3]
    place = p.place(x)
    if not isinstance(place, Shard) or place.dim == dim % max(len(x.sizes), 1):
        if op.target._schema.name == "aten::gather" and isinstance(cut := p.place(index), Shard):
            d = cut.dim
            if d != dim % len(x.sizes) and p.equal(p.number(x.sizes[d]), p.number(index.sizes[d])):
                p.apply(op, lambda t: cut, cut)
                return None
        return NotImplemented
    if op.target._schema.name == "aten::index_select":
        p.apply(op, lambda t: place if t is x else R, place)
        return None
    d = place.dim
    if not p.equal(p.number(x.sizes[d]), p.number(index.sizes[d])):
        return NotImplemented
    p.apply(op, lambda t: place, place)
    return None


# -- losses -----------------------------------------------------------------------------------------------------------------------------
NONE, MEAN, SUM = 0, 1, 2


@rule("nll_loss_forward")
def nll_loss(p: Partitioner, op: Op) -> Any:
    """Means are sums over all workers divided by the weight of all of them."""
    x, target, weight, reduction = op.args[:4]
    place = p.place(x)
    if not isinstance(place, Shard) or place.dim != 0 or len(x.sizes) != 2 or op.target is not aten.nll_loss_forward.default:
        return NotImplemented
    want = lambda t: place if t is x or t is target else R
    if reduction == NONE:
        p.apply(op, want, [place, R])
        return None
    local, total = p.emit(
        op.target, p.at(x, place), p.at(target, Shard(0, place.base, place.factor)), None if weight is None else p.at(weight, R), SUM,
        *map(p.converted, op.args[4:]),
    )  # fmt: skip
    total = p.emit(c.ALL_REDUCE, total, "sum")
    p.give(op.outs[1], total, R)
    if reduction == MEAN:
        local = p.emit(aten.div.Tensor, local, total)
    p.give(op.outs[0], local, P)
    return None


@rule("nll_loss_backward")
def nll_loss_backward(p: Partitioner, op: Op) -> Any:
    grad, x, target, weight, reduction = op.args[:5]
    place = p.place(x)
    if not isinstance(place, Shard) or place.dim != 0 or len(x.sizes) != 2:
        return NotImplemented
    p.apply(op, lambda t: place if t is x or t is target or (t is grad and reduction == NONE) else R, place)
    return None


@rule("mse_loss smooth_l1_loss huber_loss binary_cross_entropy")
def element_loss(p: Partitioner, op: Op) -> Any:
    """Losses of elements: a mean is the sum over all workers divided by the number of all elements."""
    x, target = op.args[:2]
    place, reduction = p.place(x), argument(op, "reduction")
    if not isinstance(place, Shard):
        place = p.place(target)
    if not isinstance(place, Shard) or not all(same_sizes(p, t, x) for t in tensors(op)):
        return NotImplemented
    if reduction == NONE:
        p.apply(op, lambda t: place, place)
        return None
    args, kwargs = with_sum(op)
    p.apply(op, lambda t: place, P, args, kwargs)
    if reduction == MEAN:
        out = op.outs[0]
        p.give(out, p.emit(aten.div.Tensor, p.local[out.vid], count_of(p, x)), P)
    return None


@rule("mse_loss_backward smooth_l1_loss_backward huber_loss_backward binary_cross_entropy_backward")
def element_loss_backward(p: Partitioner, op: Op) -> Any:
    grad, x = op.args[:2]
    place, reduction = p.place(x), argument(op, "reduction")
    if not isinstance(place, Shard):
        place = p.place(op.args[2])
    if not isinstance(place, Shard) or not all(same_sizes(p, t, x) for t in tensors(op)[1:]) or op.kwargs.get("out") is not None:
        return NotImplemented
    want = lambda t: place if t is not grad or reduction == NONE else R
    if reduction == NONE:
        p.apply(op, want, place)
        return None
    args, kwargs = with_sum(op)
    p.apply(op, want, place, args, kwargs)
    if reduction == MEAN:
        out = op.outs[0]
        p.give(out, p.emit(aten.div.Tensor, p.local[out.vid], count_of(p, x)), place)
    return None


def with_sum(op: Op) -> tuple[tuple, dict]:
    """The arguments of a loss, its reduction a sum."""
    at = next(i for i, a in enumerate(op.target._schema.arguments) if a.name == "reduction")
    if at < len(op.args):
        return (*op.args[:at], SUM, *op.args[at + 1 :]), op.kwargs
    return op.args, {**op.kwargs, "reduction": SUM}


def count_of(p: Partitioner, x: TracedTensor) -> Any:
    n: Any = 1
    for s in x.sizes:
        n = n * p.number(s)
    return n


# -- attention, convolutions --------------------------------------------------------------------------------------------------------------
@rule("_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward scaled_dot_product_attention")
def attention(p: Partitioner, op: Op) -> Any:
    """Batches and heads are independent."""
    backward = op.target._schema.name.endswith("_backward")
    q, k, v = op.args[1:4] if backward else op.args[:3]
    if (argument(op, "dropout_p", 0.0) or 0.0) != 0.0 or len(q.sizes) != 4:
        return NotImplemented
    place = next((pl for t in (q, k, v) if isinstance(pl := p.place(t), Shard) and pl.dim < 2), None)
    if place is None:
        return NotImplemented
    d = place.dim
    size = p.number(q.sizes[d])
    if not all(p.equal(p.number(t.sizes[d]), size) for t in (k, v)):
        return NotImplemented
    mask = argument(op, "attn_mask")
    full = {id(t) for t in (q, k, v, *((op.args[0], op.args[4]) if backward else ()))}

    def at(t: TracedTensor) -> Place:
        if id(t) in full:
            return place
        if t is mask:
            at = d - (4 - len(t.sizes))
            return R if at < 0 or is_one(t.sizes[at]) else Shard(at, place.base, place.factor)
        return lse(t)

    def lse(t: TracedTensor) -> Place:
        """The sums of exponentials, [batch, rows, heads] or [batch, heads, rows]."""
        if d == 0:
            return Shard(0, place.base, place.factor)
        dims = [i for i in (1, 2) if p.equal(p.number(t.sizes[i]), size)]
        if len(dims) != 1:
            raise Refused("attention whose heads cannot be told from its rows")
        return Shard(dims[0], place.base, place.factor)

    if backward or len(op.outs) == 1:
        outs = [place] * len(op.outs)
    else:
        rest = [lse(o) if type(o) is TracedTensor else R for o in op.outs[1:]]
        outs = [place, *rest]  # type: ignore[list-item]
    p.apply(op, at, outs)  # type: ignore[arg-type]
    return None


@rule("convolution")
def convolution(p: Partitioner, op: Op) -> Any:
    x = op.args[0]
    place = p.place(x)
    if not isinstance(place, Shard) or place.dim != 0:
        return NotImplemented
    p.apply(op, lambda t: place if t is x else R, place)
    return None


@rule("convolution_backward")
def convolution_backward(p: Partitioner, op: Op) -> Any:
    grad, x = op.args[:2]
    place = p.place(x)
    if not isinstance(place, Shard) or place.dim != 0:
        return NotImplemented
    p.apply(op, lambda t: place if t is x or t is grad else R, [place, P, P])
    return None


@rule("max_pool2d_with_indices avg_pool2d _adaptive_avg_pool2d max_pool2d_with_indices_backward avg_pool2d_backward"
      " _adaptive_avg_pool2d_backward reflection_pad2d replication_pad2d constant_pad_nd pixel_shuffle glu")  # fmt: skip
def of_images(p: Partitioner, op: Op) -> Any:
    """Each image of a batch by itself."""
    x = op.args[0]
    place = p.place(x)
    if not isinstance(place, Shard) or place.dim != 0 or len(x.sizes) < 4:
        return NotImplemented
    if op.target is aten.constant_pad_nd.default and len(op.args[1]) > 2 * (len(x.sizes) - 1):
        return NotImplemented
    p.apply(op, lambda t: place, place)
    return None


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


__all__ = ["RULES", "default"]
