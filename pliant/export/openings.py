"""Examples of size 1 (and 0): another capture with another number, where the first pinned them.

PyTorch takes a short cut for sizes of 1, and a capture that sees one cannot tell a check from a short cut. So a dim that an export has
pinned to the 1 or 0 of its example is given another size and captured again: where that works, what is general is what is meant. Where
the program raises, 1 was needed (a mask that is broadcast), and stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant import events
from pliant.errors import PliantError
from pliant.export import settle
from pliant.export.program import CONSTANT, USER, Program, Relation
from pliant.graph.symnode import expr_of
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr
from pliant.symbolic.parser import parse
from pliant.symbolic.prover import FULL, Prover

OTHER = 3
"""The size that is tried instead."""
LARGEST = 1 << 26
"""Elements of an example that is made larger."""
SINGLY = 6
"""With more pinned dims than that, they are tried all at once only."""


Capture = Callable[[tuple, dict], Program]
"""Captures with other arguments."""
Found = tuple[Program, tuple, dict]
"""A program and the arguments that it was captured with."""


def pinned(p: Program) -> Iterator[tuple[Any, int]]:
    """(input, dim) of each dim of the user's tensors that is 0 or 1 in the example and, by what the program needs, not much else."""
    for i, d, e in sizes(p):
        if e.hint in (0, 1) and (p.scope.simplify(e).const in (0, 1) or (e.op == "sym" and broken(p, {e.name: OTHER}))):
            yield i, d


def sizes(p: Program) -> Iterator[tuple[Any, int, Any]]:
    """(input, dim, expression) of each symbolic size of the user's tensors."""
    for i in p.inputs:
        if i.kind == USER and i.is_tensor:
            for d, size in enumerate(i.value.sizes):
                e = liveness.number(size)
                if e is not None:
                    yield i, d, e


def broken(p: Program, other: dict[str, int]) -> list[Relation]:
    """The relations that do not hold for the example with these symbols changed."""
    out = []
    for r in p.relations:
        symbols = r.expr.symbols()
        if any(s.name in other for s in symbols) and all(s.hint is not None for s in symbols):
            if not holds(r.expr, {s.name: other.get(s.name, s.hint) for s in symbols}):
                out.append(r)
    return out


def holds(e: Any, values: dict[str, Any]) -> bool:
    """Whether a relation holds for these values; one that divides by zero does not."""
    try:
        return bool(e.evaluate(values))
    except (ArithmeticError, ValueError):
        return False


def widened(p: Program, args: tuple, kwargs: dict, again: Capture) -> Found:
    """`p`, or a program that pins fewer dims to 0 and 1. `again` captures with other arguments."""
    places = places_of(p, args, kwargs)
    if not places:
        return p, args, kwargs
    found = attempt(p, places, args, kwargs, again)
    if found is not None:
        return found
    best: Found = p, args, kwargs
    opened: list[tuple[int, int]] = []
    if 1 < len(places) <= SINGLY:
        for place in places:
            q = attempt(best[0], [*opened, place], args, kwargs, again)
            if q is not None:
                best, opened = q, [*opened, place]
    return best


def untied(p: Program, args: tuple, kwargs: dict, again: Capture) -> Found:
    """`p`, or a program without a relation that two dims of one tensor are equal, as they happen to be in a square example."""
    found: Found = p, args, kwargs
    for r in [r for r in p.relations if r.why == "decide" and r.expr.op == "eq"]:
        names = [s.name for s in r.expr.symbols()]
        dims = [(i, d, e) for i, d, e in sizes(found[0]) if e.op == "sym" and e.name in names]
        if len(names) != 2 or len(dims) != 2 or dims[0][0] is not dims[1][0] or dims[0][2].hint != dims[1][2].hint:
            continue
        i, d, e = dims[1]
        places = in_arguments(found[0], [(i, d)], *found[1:])
        if not places:
            continue
        try:
            other = resized(places, *found[1:], to=e.hint + 2, whole=True)
            q = again(*other)
        except Exception as error:
            events.emit("warning", id="export", text=f"two sizes stay equal: {type(error).__name__}: {error}")
            continue
        if q.result == p.result and serves(q, p):
            found = q, *other
    return found


def terms(r: Relation) -> Any:
    """The terms of a relation's left side."""
    return r.expr.args[0].terms if r.expr.args[0].kind is int else ()


def larger(p: Program, args: tuple, kwargs: dict, again: Capture) -> Found:
    """`p`, or a program of twice the sizes without relations that pin an inner size, which is 1 in the example: one row of patches, say."""
    eqs = [r for r in p.relations if r.why == "decide" and r.expr.op == "eq" and any(a.op != "sym" for m, _ in terms(r) for a in m)]
    names = {s.name for r in eqs for s in r.expr.symbols()}
    groups = [g for g in tied(p) if any(s.name in names for s in g)]
    change = {s.name: s.hint * 2 for g in groups for s in g}
    worse = broken(p, change)
    if not any(r is b for r in eqs for b in worse):
        return p, args, kwargs
    dims = [(i, d, e) for i, d, e in sizes(p) if e.name in change]
    places = in_arguments(p, [(i, d) for i, d, _ in dims], args, kwargs)
    if len(places) < len(dims):
        return p, args, kwargs
    try:
        other = args, kwargs
        for place, (_, _, e) in zip(places, dims, strict=True):
            other = resized([place], *other, to=change[e.name], whole=True)
        q = again(*other)
    except Exception as error:
        events.emit("warning", id="export", text=f"an inner size stays: {type(error).__name__}: {error}")
        return p, args, kwargs
    return (q, *other) if q.result == p.result and serves(q, p) and len(q.relations) < len(p.relations) else (p, args, kwargs)


def attempt(p: Program, places: list[tuple[int, int]], args: tuple, kwargs: dict, again: Capture) -> Found | None:
    try:
        other = resized(places, args, kwargs)
        q = joined(again(*other), *other, again)
    except Exception as e:  # the program's own errors: the size was needed
        events.emit("warning", id="export", text=f"sizes of 1 stay: {type(e).__name__}: {e}")
        return None
    fewer = len(list(pinned(q))) < len(list(pinned(p)))
    return (q, *other) if fewer and q.result == p.result and serves(q, p) else None


def serves(q: Program, p: Program) -> bool:
    """Whether `q` takes the example that `p` was captured with."""
    theirs = {(i.name, d): e.hint for i, d, e in sizes(p)}
    example = {e.name: theirs[i.name, d] for i, d, e in sizes(q) if e.op == "sym" and (i.name, d) in theirs}
    return not broken(q, example)


def places_of(p: Program, args: tuple, kwargs: dict) -> list[tuple[int, int]]:
    """(number of the leaf among the arguments, dim) of what is pinned and lies in containers that pytree knows."""
    return in_arguments(p, [(i, d) for i, d in pinned(p)], args, kwargs)


def in_arguments(p: Program, dims: list[tuple[Any, int]], args: tuple, kwargs: dict) -> list[tuple[int, int]]:
    by_identity = {id(x): n for n, x in enumerate(pytree.tree_leaves((args, kwargs)))}
    found = [(by_identity.get(p.examples.get(i.name, 0)), d) for i, d in dims]
    return [(n, d) for n, d in found if n is not None]


def resized(places: list[tuple[int, int]], args: tuple, kwargs: dict, to: int = OTHER, whole: bool = False) -> tuple[tuple, dict]:
    """The arguments with these dims of size `to`: the first row (with `whole`, all rows in turn) repeated, or zeros of an empty tensor.

    One tensor stays one tensor. ValueError for a tensor that would be too large.
    """
    leaves, spec = pytree.tree_flatten((args, kwargs))
    new: dict[int, torch.Tensor] = {}
    for n, d in places:
        t = new.get(id(leaves[n]), leaves[n])
        with torch.no_grad():
            if t.shape[d] and t.numel() // t.shape[d] * to > LARGEST:
                raise ValueError(f"an example of {t.numel() // t.shape[d] * to} elements")
            if t.shape[d] and whole:
                t2 = t.index_select(d, torch.arange(to) % t.shape[d])
            elif t.shape[d]:
                t2 = t.narrow(d, 0, 1).repeat_interleave(to, d)
            else:
                t2 = t.new_zeros([to if k == d else s for k, s in enumerate(t.shape)])
        new[id(leaves[n])] = t2
    return pytree.tree_unflatten([new.get(id(x), x) for x in leaves], spec)  # type: ignore[return-value]


# -- a size of 1 that a branch excludes ------------------------------------------------------------------------------------------
def joined(p: Program, args: tuple, kwargs: dict, again: Capture) -> Program:
    """`p`, serving size 1 too where the program branches on it and both sides come to the same operations.

    `if x.shape[1] > 1 and mask is None` asks of a size what does not matter in this call. The other side is captured; where it is the same
    program, what `p` needs becomes: what either of the two needs.
    """
    for group in tied(p):
        change = {s.name: 1 for s in group}
        if not broken(p, change):
            continue
        dims = [(i, d) for i, d, e in sizes(p) if e.op == "sym" and e.name in change]
        places = in_arguments(p, dims, args, kwargs)
        if len(places) < len(dims):
            continue
        try:
            q = again(*resized(places, args, kwargs, to=1))
        except Exception as e:
            events.emit("warning", id="export", text=f"size 1 is not served: {type(e).__name__}: {e}")
            continue
        merged = either(p, q)
        if merged is not None and merged is not p.relations:
            own = p.relations
            try:
                p = rebuilt(p, merged)
            except PliantError as e:  # something in it has no text: it serves what it was captured for
                p.relations = own
                events.emit("warning", id="export", text=f"size 1 is not served: {e}")
    return p


def rebuilt(p: Program, relations: list[Relation]) -> Program:
    """`p` with these relations, in a scope that knows no more than they say: the one of its capture knows what the capture decided.

    Its operations are recorded anew (`rederive.py`), so what they need beyond these relations is required, too.
    """
    p.relations = relations
    return settle.read_again(p)


def tied(p: Program, but: Relation | None = None) -> list[list[Any]]:
    """The symbols of sizes beyond 1, in groups that the program needs to be equal; `but` is not looked at."""
    group: dict[str, list[Any]] = {e.name: [e] for _, _, e in sizes(p) if e.op == "sym" and e.hint is not None and e.hint > 1}
    for r in p.relations:
        e = r.expr
        if r is not but and e.op == "eq" and len(e.symbols()) == 2 and all(s.name in group for s in e.symbols()):
            a, b = e.symbols()
            if a.hint == b.hint and group[a.name] is not group[b.name]:
                both = group[a.name] + group[b.name]
                for s in both:
                    group[s.name] = both
    unique = {id(g): g for g in group.values()}
    return list(unique.values())


def either(p: Program, q: Program) -> list[Relation] | None:
    """The relations of `p` so that it serves what `q` serves, too; None where the two are not the same program."""
    if not Same(p, q).holds():
        return None
    theirs = [translated(r.expr, q.scope) for r in p.relations]
    common = [q.scope.known_true(e) for e in theirs]
    own = [r for r, c in zip(p.relations, common, strict=True) if not c]
    if not own:
        return p.relations
    mine = {str(r.expr) for r in p.relations}
    back = [translated(r.expr, p.scope) for r in q.relations if str(r.expr) not in mine]
    kept = [r for r, c in zip(p.relations, common, strict=True) if c]
    return [*kept, *(Relation(e, own[0].site, "either side of a branch") for e in disjunction(p.scope, [r.expr for r in own], back))]


def disjunction(scope: Any, one: list[Any], other: list[Any]) -> list[Any]:
    """What must hold where all of `one` or all of `other` hold: a list of conditions, as simple as proofs make it."""
    if len(one) == 1:  # `a or (not a and b)` is `a or b`; and that is `b` if `a` implies it
        rest = [e for e in other if not implied(e, ops.not_(one[0]))]
        if all(implied(e, one[0]) for e in rest):
            return [e for e in rest if e.const is not True]
        other = rest
    return [ops.or_(conjunction(scope, one), conjunction(scope, other))]


def implied(e: Any, premise: Any) -> bool:
    """Whether `premise` alone implies `e`; not in the scope of a program, which knows what that program relies on."""
    if e.const is not None:
        return bool(e.const)
    facts = Prover()
    if premise.const is None:
        facts.learn(premise)
    return facts.prove(e, FULL) is True


def conjunction(scope: Any, parts: list[Any]) -> Any:
    out = scope.ctx.true
    for e in parts:
        out = ops.and_(out, e)
    return out


def translated(e: Any, scope: Any, names: dict[str, str] | None = None) -> Any:
    """An expression over symbols of the same names, or of these, in another scope. ValueError for a name that it lacks."""
    if not isinstance(e, Expr):
        return e
    found = parse(e.python(names), scope.symbols)
    return found if isinstance(found, Expr) else scope.ctx.lift(found)


SHAPED = frozenset((torch.ops.aten.view.default, torch.ops.aten._unsafe_view.default, torch.ops.aten.expand.default))
"""Operators whose sizes are those of their result, which may be written -1."""


def same_numbers(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a is b or (a.dtype is b.dtype and a.device == b.device and torch.equal(a, b))


class Same:
    """Whether two programs have the same operations, given what the second needs of sizes."""

    def __init__(self, p: Program, q: Program) -> None:
        self.p = p
        self.q = q
        self.tensors: dict[int, int] = {}

    def holds(self) -> bool:
        p, q = self.p, self.q
        if len(p.ops) != len(q.ops) or len(p.outputs) != len(q.outputs) or p.result != q.result or (p.checks, p.puts) != (q.checks, q.puts):
            return False
        if [(i.name, i.kind) for i in p.inputs] != [(i.name, i.kind) for i in q.inputs] or len(p.asserts) != len(q.asserts):
            return False
        if not all(same_numbers(p.state[i.name], q.state[i.name]) for i in p.inputs if i.kind == CONSTANT):
            return False  # made of numbers that the example had
        try:
            inputs = all(self.made(a.value, b.value) for a, b in zip(p.inputs, q.inputs))
            steps = inputs and all(map(self.step, p.ops, q.ops))
            asserts = steps and all(self.number(a.expr, b.expr) for a, b in zip(p.asserts, q.asserts))
            return asserts and all(self.same(a.value, b.value) and a.name == b.name for a, b in zip(p.outputs, q.outputs))
        except (ValueError, KeyError):
            return False

    def step(self, a: Any, b: Any) -> bool:
        if a.target is not b.target or len(a.outs) != len(b.outs) or len(a.binds) != len(b.binds):
            return False
        told = 1 if a.target in SHAPED else None
        if not (self.same(a.args[:told], b.args[:told]) and self.same(a.kwargs, b.kwargs)):
            return False
        return all(map(self.made, a.outs, b.outs)) and all(
            (x.out, x.dim) == (y.out, y.dim) and self.same(x.symbol, y.symbol) for x, y in zip(a.binds, b.binds)
        )

    def made(self, a: Any, b: Any) -> bool:
        if type(a) is not TracedTensor or type(b) is not TracedTensor:
            return self.same(a, b)
        if a.vid in self.tensors:
            return self.tensors[a.vid] == b.vid
        self.tensors[a.vid] = b.vid
        if a.dtype is not b.dtype or len(a.sizes) != len(b.sizes) or not self.number(a.offset, b.offset):
            return False
        return all(map(self.number, a.sizes, b.sizes)) and all(map(self.stride, a.strides, b.strides, b.sizes))

    def stride(self, a: Any, b: Any, size: Any) -> bool:
        """Strides of a dim of size 1 do not matter."""
        return self.number(a, b) or self.q.scope.known_true(ops.eq(expr_of(size, self.q.scope), 1))

    def number(self, a: Any, b: Any) -> bool:
        x, y = liveness.number(a), liveness.number(b)
        if x is None and y is None:
            return type(a) is type(b) and a == b
        there = translated(x if x is not None else a, self.q.scope)
        return self.q.scope.known_true(ops.eq(there, y if y is not None else b))

    def same(self, a: Any, b: Any) -> bool:
        if type(a) is TracedTensor:
            return type(b) is TracedTensor and self.tensors.get(a.vid) == b.vid
        if isinstance(a, (list, tuple)):
            return isinstance(b, (list, tuple)) and len(a) == len(b) and all(map(self.same, a, b))
        if isinstance(a, dict):
            return isinstance(b, dict) and a.keys() == b.keys() and all(self.same(v, b[k]) for k, v in a.items())
        if liveness.number(a) is not None or liveness.number(b) is not None:
            return self.number(a, b)
        return type(a) is type(b) and (a == b or a != a)
