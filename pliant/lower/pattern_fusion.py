"""Putting `linear` and `matmul` together again.

Capture happens below composite operators, so `linear` arrives as `t`, `view`, `addmm`, `view`. Called from Python, four operators cost
four times as much as the one, whose C++ code calls the same four kernels. Results are those of eager to the bit.

Heads of keys and values that were copied for each of the queries that share them are read where they lie (`Repeated`).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import torch

from pliant.graph import lstm, recurrent
from pliant.graph.operators import Column
from pliant.graph.quantized import INT8_MM
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor, make
from pliant.lower import liveness
from pliant.lower.attention import ATTENTION
from pliant.lower.program import Program

aten = torch.ops.aten
VIEWS = (aten.view.default, aten._unsafe_view.default)


class Matcher:
    """Who makes each tensor, how often each is read, and what has been replaced."""

    def __init__(self, p: Program) -> None:
        self.kept = {t.vid for t in liveness.tensors_of(p.outputs)}
        self.sizes = p.sizes
        self.makers: dict[int, Any] = p.fact("makers")
        self.uses: Counter[int] = Counter(p.fact("uses"))
        self.readers: dict[int, Any] = p.fact("readers")
        self.dirty: set[int] = p.fact("dirty")
        self.has_lstm = p.target is not None and p.target.lstm_kernels() is not None
        self.has_int8 = p.target is not None and p.target.has_int8()
        self.gone: set[int] = set()  # ids of operations that are part of another now

    def same(self, a: Any, b: Any) -> bool:
        """Are two sizes equal, by what is known?"""
        return self.sizes.equal(self.sizes.size(a), self.sizes.size(b))

    def equal(self, a: Any, b: Any) -> bool:
        """The same, by what can be proved: takes longer."""
        return self.sizes.surely_equal(self.sizes.size(a), self.sizes.size(b))

    def private(self, t: TracedTensor) -> bool:
        """Nobody else reads it."""
        return self.uses[t.vid] == 1 and t.vid not in self.kept

    def made_by(self, t: Any, *targets: Any) -> Any:
        """The operation that made `t`, if it is one of `targets`."""
        op = self.makers.get(t.vid) if isinstance(t, TracedTensor) else None
        return op if op is not None and op.target in targets else None

    def only_reader(self, t: TracedTensor, *targets: Any) -> Any:
        op = self.readers.get(t.vid) if self.private(t) else None
        return op if op is not None and op.target in targets else None

    def clean(self, *operands: Any) -> bool:
        """None of the operands is written anywhere: then it does not matter when it is read."""
        return all(t.storage_id not in self.dirty for t in operands)


def fuse_patterns(p: Program) -> list[Any]:
    """The operations with each `linear` and each batched `matmul` whole, where no part of it is read by others."""
    patterns = {id(t): PATTERNS[t] for t in liveness.operators(p.steps) if t in PATTERNS}
    if not patterns:
        return p.steps
    m = Matcher(p)
    whole: dict[int, list[Any]] = {}  # id of the operation to replace -> what replaces it
    for op in p.steps:
        pattern = patterns.get(id(op.target))
        found = pattern(m, op) if pattern is not None else None
        if found is not None:
            at, *new = found
            whole[id(at)] = new
    out = []
    for op in p.steps:
        if id(op) in whole:
            out += whole[id(op)]
        elif id(op) not in m.gone:
            out.append(op)
    return out


def match_linear(m: Matcher, op: Any) -> tuple | None:
    """`addmm(b, x, w.t())` or `mm(x, w.t())`, perhaps with `x` and the result seen as matrices."""
    if len(op.args) != (3 if op.target is aten.addmm.default else 2) or op.kwargs:
        return None
    if op.target is aten.mm.default and (found := match_int8(m, op)) is not None:
        return found
    *bias, x, wt = op.args
    transpose = m.made_by(wt, aten.t.default)
    if transpose is None:
        return None
    w, out = transpose.args[0], op.outs[0]
    if bias and (len(bias[0].sizes) != 1 or not m.same(bias[0].sizes[0], out.sizes[1])):
        return None
    at, operand = op, x
    flat, unflat = m.made_by(x, *VIEWS), m.only_reader(out, *VIEWS)
    if flat is not None and unflat is not None:
        big, result = flat.args[0], unflat.outs[0]
        if (
            big.dense
            and len(big.sizes) > 2
            and len(result.sizes) == len(big.sizes)
            and all(map(m.same, (*big.sizes[:-1], out.sizes[1]), result.sizes))
            and m.same(big.sizes[-1], x.sizes[1])
        ):
            at, operand = unflat, big
    if not m.clean(operand, w, out, *bias):
        return None
    m.gone.add(id(op))
    if at is not op:
        drop_if_unread(m, x, flat)
    drop_if_unread(m, wt, transpose)
    return at, replace(at, target=aten.linear.default, args=(operand, w, *bias), kwargs={}, outs=at.outs)


def match_int8(m: Matcher, op: Any) -> tuple | None:
    """`mm(x, w.t().to(x.dtype))`, or `mm(x, w.to(x.dtype).t())`, of f32 and a weight of int8."""
    x, wide = op.args
    if not m.has_int8 or x.dtype is not torch.float32 or (op.outs[0].dtype, op.outs[0].dense) != (torch.float32, True):
        return None
    last = m.made_by(wide, aten._to_copy.default, aten.t.default)
    first = m.made_by(last.args[0], aten._to_copy.default, aten.t.default) if last is not None else None
    if first is None or first.target is last.target:
        return None
    w = first.args[0]
    if w.dtype is not torch.int8 or w.device != x.device or not m.clean(x, w, wide, op.outs[0]):
        return None
    m.gone.add(id(op))
    drop_if_unread(m, wide, last)
    if id(last) in m.gone:
        drop_if_unread(m, last.args[0], first)
    return op, replace(op, target=INT8_MM, args=(x, w), kwargs={}, outs=op.outs)


def drop_if_unread(m: Matcher, t: TracedTensor, maker: Any) -> None:
    """One reader less; without readers, its maker is not needed."""
    m.uses[t.vid] -= 1
    if m.uses[t.vid] == 0 and t.vid not in m.kept:
        m.gone.add(id(maker))


def match_matmul(m: Matcher, op: Any) -> tuple | None:
    """`bmm` of operands of more dims seen as 3-D, with the same batch sizes, its result seen in their dims."""
    if op.kwargs:
        return None
    a, b = (batched(m, t) for t in op.args)
    unflat = m.only_reader(op.outs[0], *VIEWS)
    if a is None or b is None or unflat is None:
        return None
    (x, x_parts), (y, y_parts) = a, b
    result = unflat.outs[0]
    want = (*x.sizes[:-1], y.sizes[-1])
    if len(x.sizes) != len(y.sizes) or not all(map(m.same, x.sizes[:-2], y.sizes[:-2])) or not m.same(x.sizes[-1], y.sizes[-2]):
        return None
    if len(result.sizes) != len(want) or not all(map(m.same, want, result.sizes)) or not m.clean(x, y, op.outs[0]):
        return None
    m.gone.update(map(id, (op, *x_parts, *y_parts)))
    return unflat, *shared_matmul(m, replace(unflat, target=aten.matmul.default, args=(x, y), kwargs={}, outs=unflat.outs))


def batched(m: Matcher, t: TracedTensor) -> tuple[TracedTensor, list[Any]] | None:
    """(the tensor of more dims that `t` shows as `[batch, n, m]`, the operations in between)."""
    view = m.made_by(t, *VIEWS)
    if view is None or not m.private(t):
        return None
    x, parts = view.args[0], [view]
    copy = m.made_by(x, aten.clone.default)
    if copy is not None and m.private(x) and copy.kwargs.get("memory_format") is torch.contiguous_format:
        x, parts = copy.args[0], [view, copy]
    if len(x.sizes) < 4 or not all(map(m.same, x.sizes[-2:], t.sizes[-2:])):
        return None
    return x, parts


@dataclass(slots=True)
class Repeated:
    """`few` [batch, heads, n, d], of which each head was copied several times in a row: `many` [batch, heads, times, n, d] shows them so.

    `turned`: the copy has its last two dims the other way round. `chain` are the operations in between, and what each makes.
    """

    few: TracedTensor
    many: TracedTensor
    turned: bool
    chain: list[tuple[TracedTensor, Any]]

    def replaces(self, m: Matcher, read: TracedTensor) -> None:
        """A reader of the copy reads `read` now: then nobody else may need the copy."""
        m.uses[read.vid] += 1
        for t, maker in self.chain:
            drop_if_unread(m, t, maker)
            if id(maker) not in m.gone:
                break


def repeated(m: Matcher, t: TracedTensor) -> Repeated | None:
    """What `repeat_kv` of transformers, or `repeat_interleave` along heads, was applied to: `unsqueeze`, `expand`, `clone`, `view`."""
    turned, chain = False, []
    while (op := m.made_by(t, aten.expand.default, aten.transpose.int)) is not None:
        if op.target is aten.expand.default:
            if len(t.sizes) != len(op.args[0].sizes) or not all(map(m.equal, t.sizes, op.args[0].sizes)):
                return None
        elif {d % len(t.sizes) for d in op.args[1:3]} != {len(t.sizes) - 2, len(t.sizes) - 1}:
            return None
        else:
            turned = not turned
        chain.append((t, op))
        t = op.args[0]
    flat = m.made_by(t, *VIEWS)
    copy = m.made_by(flat.args[0], aten.clone.default) if flat is not None else None
    grown = m.made_by(copy.args[0], aten.expand.default) if copy is not None else None
    thin = m.made_by(grown.args[0], aten.unsqueeze.default) if grown is not None else None
    if thin is None or len(t.sizes) != 4 or copy.kwargs.get("memory_format") is not torch.contiguous_format:
        return None
    few, many = thin.args[0], grown.outs[0]
    if len(few.sizes) != 4 or thin.args[1] not in (2, -3):
        return None
    if not all(map(m.same, few.sizes, (*many.sizes[:2], *many.sizes[3:]))) or not all(map(m.same, few.sizes[2:], t.sizes[2:])):
        return None
    if not m.same(few.sizes[0], t.sizes[0]) or not m.clean(few):
        return None
    chain += [(t, flat), (flat.args[0], copy), (many, grown), (grown.args[0], thin)]
    return Repeated(few, many, turned, chain)


def match_attention(m: Matcher, op: Any) -> tuple | None:
    """Attention over keys and values that were repeated: ATen's takes them as they are, too."""
    found = [repeated(m, t) for t in op.args[1:3]]
    k, v = found
    if k is None or v is None or k.turned or v.turned or not m.same(k.few.sizes[1], v.few.sizes[1]):
        return None
    for r in (k, v):
        r.replaces(m, r.few)
    return op, replace(op, args=(op.args[0], k.few, v.few, *op.args[3:]))


def shared_matmul(m: Matcher, op: Any) -> list[Any]:
    """`matmul(x, y)` by operations that read the few matrices that `y` is copies of, if it is."""
    x, y = op.args
    out = op.outs[0]
    found = repeated(m, y) if len(x.sizes) == 4 else None
    if found is None or not out.dense:
        return [op]
    many, (batch, heads, times) = found.many, found.many.sizes[:3]
    found.replaces(m, many)
    sizes, strides = (batch, heads, times, *x.sizes[2:]), (x.strides[0], x.strides[1] * times, *x.strides[1:])
    parts = make(x.trace, sizes, strides, x.dtype, x.offset, x.storage_id, x.device)
    ops = [Op(aten.view.default, (x, parts.sizes), {}, [parts], None, op.site, -1)]
    if found.turned:
        sizes, strides = ((*values[:3], values[4], values[3]) for values in (many.sizes, many.strides))
        turned = make(many.trace, sizes, strides, many.dtype, many.offset, many.storage_id, many.device)
        ops.append(Op(aten.transpose.int, (many, 3, 4), {}, [turned], None, op.site, -1))
        many = turned
    n = out.sizes[2] * out.sizes[3]
    strides = (heads * times * n, times * n, n, out.sizes[3], 1)
    made = make(out.trace, (batch, heads, times, *out.sizes[2:]), strides, out.dtype, 0, out.storage_id, out.device, True)
    return [*ops, replace(op, args=(parts, many), outs=[made]), Op(aten.view.default, (made, out.sizes), {}, [out], None, op.site, -1)]


def match_lstm(m: Matcher, op: Any) -> tuple | None:
    """A network of float32 that drops nothing."""
    if not m.has_lstm or op.kwargs or not recurrent.draws_nothing(op) or op.args[0].dtype is not torch.float32:
        return None
    return op, replace(op, target=lstm.WHOLE[op.target], outs=op.outs)


PATTERNS = Column("pattern")
PATTERNS.update(
    {
        aten.addmm.default: match_linear,
        aten.mm.default: match_linear,
        aten.bmm.default: match_matmul,
        ATTENTION: match_attention,
        **dict.fromkeys(lstm.WHOLE, match_lstm),
    }
)
