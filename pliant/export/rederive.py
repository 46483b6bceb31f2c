"""What a file says of its tensors is not believed: each operation is recorded anew, and must give what the text says.

Kernels compute addresses from sizes and strides, so a text that lied about them could read memory that is not the program's. What the
recording needs of sizes beyond what the file requires is required, too.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import torch

from pliant.export.flows import is_open, kind_of
from pliant.export.program import Program, Relation, error_name
from pliant.export.rewrite import Rewriter, learn, supposed
from pliant.graph.control_flow import Block, Branch, FlowOp, captures
from pliant.graph.layout import contiguous_strides
from pliant.graph.record import Op
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.traced import TracedTensor, is_lazy
from pliant.lower import liveness
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr
from pliant.symbolic.parser import parse


class Wrong(ValueError):
    """The text says something of a tensor that is not so."""


def check(p: Program) -> None:
    """Raises `Wrong` for an operation whose result is another than the program says. Adds to `p.relations` what that rests on."""
    known = believed(p)
    rewriter = Rewriter(p.trace)
    made = {i.value.vid for i in p.inputs if i.is_tensor}
    bound: set[str] = set()
    for op in p.ops:
        step(rewriter, op, made, bound)
    required(p, known)


def step(rewriter: Rewriter, op: Op, made: set[int], bound: set[str]) -> None:
    """One operation. `made`, `bound`: the tensors and the unbacked symbols that are there."""
    if isinstance(op, FlowOp):
        flow(rewriter, op, made, bound)
    for t in liveness.op_inputs(op):
        if t.vid not in made:
            raise Wrong(f"{op.target} reads a tensor that is made later")
    if not isinstance(op, FlowOp):
        one(rewriter, op)
    made.update(t.vid for t in liveness.op_outputs(op))
    bound.update(name_of(b.symbol) for b in op.binds)


# -- branches and loops on data -------------------------------------------------------------------------------------------------------
def flow(rewriter: Rewriter, op: FlowOp, made: set[int], bound: set[str]) -> None:
    """Every round must give what the next one, and whoever reads the results, is promised."""
    f, scope = op.flow, rewriter.trace.scope
    f.captured = captures(f, scope.simplify)
    op.args = (op.args[0], [c if type(c) is TracedTensor else to_sym(scope, c) for c in f.captured])
    op.reads = None
    loose = {s.name for s in f.captured if type(s) is Expr and not s.info.backed and s.name not in bound}
    if loose:
        raise Wrong(f"a loop or branch reads {', '.join(sorted(loose))}, which nothing makes known")
    if any(type(p) is TracedTensor and not plain(scope, p) for p in (*f.params, *op.outs)):
        raise Wrong("what a loop or branch carries and gives is row-major")
    fits(scope, op.args[0], f.params, f.sizes)
    found = {name_of(b.symbol) for b in op.binds}
    own = {p.vid for p in f.params if type(p) is TracedTensor}
    names = {p.name for p in f.params if type(p) is Expr} | f.sizes
    for b in (f.entry, f.body):
        if b is not None:
            block(rewriter, op, b, made | own, bound | names, f.params if b is f.body else [], found)


def block(rewriter: Rewriter, op: FlowOp, b: Block, made: set[int], bound: set[str], params: list[Any], found: set[str]) -> None:
    scope = rewriter.trace.scope
    with supposed(scope) as assumed:
        for a in b.asserts:
            learn(scope, a.expr)
        for inner in b.ops:
            step(rewriter, inner, made, bound)
        if isinstance(b.end, Branch):
            for side, fact in ((b.end.yes, b.end.test), (b.end.no, ops.not_(b.end.test))):
                with supposed(scope):
                    learn(scope, fact)
                    block(rewriter, op, side, set(made), set(bound), params, found)
        elif b.end.again:
            fits(scope, b.end.values, params, op.flow.sizes)
        else:
            fits(scope, b.end.values, op.outs, found)
    b.asserts += assumed


def plain(scope: Any, t: TracedTensor) -> bool:
    row_major = all(number(scope, x, y, {}) for x, y in zip(t.strides, contiguous_strides(t.sizes)))
    return row_major and number(scope, t.offset, 0, {}) and not is_lazy(t)


def fits(scope: Any, values: list[Any], places: list[Any], open_: Collection[str]) -> None:
    """Whether values are what places promise, whose sizes in `open_` may be any."""
    if len(values) != len(places):
        raise Wrong(f"a loop or branch leaves with {len(values)} values, where {len(places)} are wanted")
    for v, p in zip(values, places, strict=True):
        if type(p) is not TracedTensor or type(v) is not TracedTensor:
            if type(p) is TracedTensor or type(v) is TracedTensor or kind_of(v) is not kind_of(p):
                raise Wrong(f"a loop or branch gives {v!r} for {p!r}")
            continue
        sizes = all(is_open(n, frozenset(open_)) or number(scope, m, n, {}) for m, n in zip(v.sizes, p.sizes))
        if v.dtype is not p.dtype or v.device != p.device or len(v.sizes) != len(p.sizes) or not sizes or not plain(scope, v):
            raise Wrong(f"a loop or branch gives {v} for {p}")


# -- operations -----------------------------------------------------------------------------------------------------------------------
def believed(p: Program) -> tuple[int, int]:
    """Lets the scope know what the program requires and asserts. Returns how much it has been asked so far (`required`)."""
    scope = p.scope
    for r in (*p.relations, *p.asserts):
        if r.expr.const is None and not scope.known_true(r.expr):
            scope.learn(r.expr)
    return len(scope.all_guards), len(scope.asserts)


def required(p: Program, known: tuple[int, int]) -> None:
    """Adds to what the program requires and asserts what its scope was asked since: also what it has, and could not prove from that."""
    scope = p.scope
    relations = [Relation(g.expr, "", g.why) for g in scope.all_guards[known[0] :] if g.why != "declared" and backed(g.expr)]
    asserts = [Relation(a.expr, "", a.message, error_name(a.error)) for a in scope.asserts[known[1] :] if a.expr.const is not True]
    for own, more in ((p.relations, relations), (p.asserts, asserts)):
        told = {r.expr for r in own} if more else set()
        own += [r for r in more if r.expr not in told]


def backed(e: Any) -> bool:
    return all(s.info.backed for s in e.symbols())


def attention(q: TracedTensor, k: TracedTensor, v: TracedTensor, *others: Any, **named: Any) -> tuple:
    return (*q.sizes[:-1], v.sizes[-1])


SIZES = {torch.ops.aten.scaled_dot_product_attention.default: attention}
"""Operators that are recorded anew as others before anything runs (`run.py`): their strides do not matter, their sizes are these."""


def one(rewriter: Rewriter, op: Op) -> None:
    sizes = SIZES.get(op.target)
    if sizes is not None:
        (b,) = op.outs
        want = sizes(*op.args, **op.kwargs)
        if len(want) != len(b.sizes) or not all(number(rewriter.trace.scope, x, y, {}) for x, y in zip(want, b.sizes)):
            raise Wrong(f"{op.target} gives a tensor of the sizes {list(want)}, not {list(b.sizes)}")
        return
    out, made = rewriter.record(op.target, *op.args, **op.kwargs)
    found = next((o for o in made if o.target is op.target), None)
    if found is None:  # a composite operator (attention): what it comes to says what it gives
        if op.binds or any(o.binds for o in made) or not made:
            raise Wrong(f"{op.target} is no operation of its own: it comes to {', '.join(str(m.target) for m in made) or 'nothing'}")
        results = liveness.leaves(out)
        if len(results) != len(op.outs):
            raise Wrong(f"{op.target} gives {len(results)} results, not {len(op.outs)}")
        for a, b in zip(results, op.outs, strict=True):
            agree(rewriter.trace.scope, a, b, {}, op)
        return
    if len(found.outs) != len(op.outs) or len(found.binds) != len(op.binds):
        raise Wrong(
            f"{op.target} gives {len(found.outs)} results with {len(found.binds)} numbers of its own, not {len(op.outs)}, {len(op.binds)}"
        )
    names: dict[str, str] = {}
    for a, b in zip(found.binds, op.binds, strict=True):
        if (a.out, a.dim) != (b.out, b.dim):
            raise Wrong(f"{op.target} defines other numbers")
        names[name_of(a.symbol)] = name_of(b.symbol)
    scope = rewriter.trace.scope
    for a, b in zip(found.outs, op.outs, strict=True):
        agree(scope, a, b, names, op)


def name_of(symbol: Any) -> str:
    e = liveness.number(symbol)
    return e.name


def agree(scope: Any, a: Any, b: Any, names: dict[str, str], op: Op) -> None:
    """`a` is what recording gave, `b` what the text says."""
    if type(a) is not TracedTensor or type(b) is not TracedTensor:
        if type(a) is TracedTensor or type(b) is TracedTensor or not number(scope, a, b, names):
            raise Wrong(f"{op.target} gives {a!r}, not {b!r}")
        return
    if a.dtype is not b.dtype or a.device != b.device or len(a.sizes) != len(b.sizes):
        raise Wrong(f"{op.target} gives {a}, not {b}")
    if (a.is_conj(), a.is_neg()) != (b.is_conj(), b.is_neg()):
        raise Wrong(f"{op.target} gives a tensor that is {'' if is_lazy(a) else 'not '}its memory conjugated or negated")
    if not all(number(scope, x, y, names) for x, y in zip(a.sizes, b.sizes)):
        raise Wrong(f"{op.target} gives {a}, not {b}")
    loose = [not number(scope, x, y, names) and not is_one(scope, s) for x, y, s in zip(a.strides, b.strides, b.sizes)]
    if any(loose) and not empty(scope, b.sizes):
        raise Wrong(f"{op.target} gives a tensor with the strides {list(a.strides)}, not {list(b.strides)}")
    if not number(scope, a.offset, b.offset, names):
        raise Wrong(f"{op.target} gives a tensor at the offset {a.offset}, not {b.offset}")
    memory = {t.storage_id for t in liveness.op_inputs(op)}
    if (a.storage_id in memory) != (b.storage_id in memory) or (a.storage_id in memory and a.storage_id != b.storage_id):
        raise Wrong(f"{op.target} gives {'a view' if a.storage_id in memory else 'memory of its own'}, and the text says otherwise")


def is_one(scope: Any, size: Any) -> bool:
    return size == 1 if type(size) is int else scope.known_true(ops.eq(expr_of(size, scope), 1))


def empty(scope: Any, sizes: tuple) -> bool:
    return any(s == 0 if type(s) is int else scope.known_true(ops.eq(expr_of(s, scope), 0)) for s in sizes)


def number(scope: Any, a: Any, b: Any, names: dict[str, str]) -> bool:
    x, y = liveness.number(a), liveness.number(b)
    if x is None and y is None:
        return a == b or (a is None and b is None)
    if x is not None and names:
        x = parse(x.python(names), scope.symbols)
    left, right = (v if v is not None else w for v, w in ((x, a), (y, b)))
    if not isinstance(left, Expr) and not isinstance(right, Expr):
        return bool(left == right)
    if left is None or right is None:
        return False
    return left is right or bool(scope.known_true(ops.eq(left, right)))
