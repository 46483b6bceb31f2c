"""Rules of placement for products, look-ups, losses, attention and convolutions: sums over what is cut are partial."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.remote import collectives as c
from pliant.remote.partition import P, Partial, Partitioner, Place, R, Refused, Shard, argument
from pliant.remote.sharding import bytes_of, dim_in, is_one, of_either, rule, same_sizes, tensors

aten = torch.ops.aten


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
    place, cut = p.place(x), p.place(index)
    n = len(x.sizes)
    if not n or not index.sizes or x is index:
        return NotImplemented
    dim %= n
    if op.target._schema.name == "aten::index_select":
        if isinstance(place, Shard) and place.dim != dim:
            p.apply(op, lambda t: place if t is x else R, place)
        elif isinstance(cut, Shard):
            p.apply(op, lambda t: R if t is x else cut, Shard(dim, cut.base, cut.factor))
        else:
            return NotImplemented
        return None
    if len(index.sizes) != n:
        return NotImplemented  # an index without elements may have other dims
    if isinstance(cut, Shard) and cut.dim == dim and not (isinstance(place, Shard) and place.dim != dim):
        p.apply(op, lambda t: R if t is x else cut, cut)  # each looks up its own in the whole tensor
        return None
    at = place if isinstance(place, Shard) and place.dim != dim else cut
    if not isinstance(at, Shard) or at.dim == dim or not p.equal(p.number(x.sizes[at.dim]), p.number(index.sizes[at.dim])):
        return NotImplemented
    p.apply(op, lambda t: at, at)
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
    place, reduction = of_either(p, x, target), argument(op, "reduction")
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
    grad, x, out = *op.args[:2], op.outs[0]
    place, reduction = of_either(p, x, op.args[2]), argument(op, "reduction")
    if not isinstance(place, Shard) and reduction == MEAN and not bytes_of(x):
        place = R  # PyTorch's shape function divides by the number of elements
    elif not isinstance(place, Shard):
        return NotImplemented
    if not all(same_sizes(p, t, x) for t in tensors(op)[1:]) or op.kwargs.get("out") is not None:
        return NotImplemented
    want = lambda t: place if t is not grad or reduction == NONE else R
    if reduction == NONE:
        p.apply(op, want, place)
        return None
    args, kwargs = with_sum(op)
    p.apply(op, want, place, args, kwargs)
    if reduction == MEAN:
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
            return R if at < 0 or is_one(p, t.sizes[at]) else Shard(at, place.base, place.factor)
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
    if len(op.outs) == 1 or (type(place.base) is int and place.base % p.workers == 0):
        p.apply(op, at, outs)  # type: ignore[arg-type]
        return None
    given = [argument(op, name) for name in ("dropout_p", "is_causal", "attn_mask", "scale")]  # some worker may have none
    args = (*op.args[: 6 if backward else 3], *given)
    p.apply(op, at, outs, args, {}, c.ATTENTION_BACKWARD if backward else c.ATTENTION)  # type: ignore[arg-type]
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
