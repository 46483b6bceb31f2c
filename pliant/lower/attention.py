"""Attention that segments compute themselves (native/attention.cpp): which operations are one, over which memory.

f32, any lengths and layouts whose last dim lies dense, masks that are added, causal or not, heads of keys shared by heads of queries.
"""

from __future__ import annotations

import struct
from typing import Any

import torch

from pliant.graph.traced import TracedTensor
from pliant.lower.gemm import LIBRARY, Products, Routine, is_one, reduced_precision_is_off
from pliant.lower.loop_nest import Facts, Size
from pliant.lower.lowerings.builder import arguments
from pliant.symbolic import ops

ATTENTION = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default


class Attention(Routine):
    """`out = softmax(q @ k^T * scale + mask) @ v` (native/attention.cpp). Operands: q, k, v, mask (v, where there is none). Behind the
    offsets, 1 for a mask."""

    __slots__ = ()


def attention_steps(p: Products, op: Any, read: set[int]) -> list[Attention] | None:
    """What to run in place of `op`; None if it is no attention, or not one of these. `read`: the results that somebody reads, by vid."""
    if not p.target.has_attention() or op.outs[1].vid in read:
        return None
    q, k, v, dropout, causal, mask, scale = arguments(op, "query", "key", "value", "dropout_p", "is_causal", "attn_mask", "scale")
    out, facts = op.outs[0], p.facts
    tensors = [q, k, v, *([mask] if mask is not None else [])]
    known = type(dropout) in (int, float) and dropout == 0 and type(causal) is bool
    if not known or scale is not None and (type(scale) is not float or scale == 0) or not reduced_precision_is_off():
        return None
    if not all(map(p.plain, (*tensors, out))) or p.root(out) is not out:
        return None
    size = {id(t): [*map(facts.size, t.sizes)] for t in tensors}
    strides = {id(t): [*map(facts.size, t.strides)] for t in (*tensors, out)}
    batch, heads, rows, depth = size[id(q)]
    kv_heads, keys = size[id(k)][1:3]
    alike = all(map(facts.surely_equal, (*size[id(k)], *size[id(v)]), 2 * [batch, kv_heads, keys, depth]))
    if not alike or not shares(facts, heads, kv_heads):
        return None
    if not all(is_one(strides[id(t)][3]) and facts.at_least(strides[id(t)][2], depth) for t in (q, k, v, out)):
        return None
    moves = masked(p, mask, [batch, heads, rows, keys]) if mask is not None else [0, 0, 0, 0]
    if moves is None:
        return None
    fields = [batch, heads, kv_heads, rows, keys, depth, depth]
    fields += [s for t in (q, k, v, out) for s in strides[id(t)][:3]]
    fields += [*moves, int(causal), struct.unpack("q", struct.pack("d", scale or 0.0))[0]]
    offsets = [p.offset(t) for t in tensors]
    if mask is None:
        offsets.append(0)
    roots = [p.root(t) for t in tensors]
    return [Attention(roots if mask is not None else [*roots, roots[2]], out, [*fields, *offsets, int(mask is not None)])]


def shares(facts: Facts, heads: Size, kv_heads: Size) -> bool:
    """Is there the same number of heads to each head of keys, as far as is known?"""
    if facts.surely_equal(kv_heads, heads):
        return True
    if type(heads) is int and type(kv_heads) is int:
        return kv_heads > 0 and heads % kv_heads == 0
    if type(kv_heads) is int and kv_heads <= 0:
        return False
    return facts.surely_equal(ops.mod(heads, kv_heads), 0) or facts.surely_equal(kv_heads * ops.floordiv(heads, kv_heads), heads)


def masked(p: Products, mask: TracedTensor, whole: list[Size]) -> list[Size] | None:
    """Strides of a mask that is laid over [batch, heads, rows, keys]."""
    skip = 4 - len(mask.sizes)
    out: list[Size] = [0] * 4
    if skip < 0:
        return None
    for d, (n, stride) in enumerate(zip(mask.sizes, mask.strides, strict=True), skip):
        n = p.facts.size(n)
        if is_one(n):
            continue
        if not p.facts.surely_equal(n, whole[d]):
            return None
        out[d] = p.facts.size(stride)
    return out


LIBRARY[ATTENTION] = attention_steps
