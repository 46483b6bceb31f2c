"""Long sums stay short: a sum of more than `LONG` symbols is kept as a subtotal plus what came after it.

`u0 + u1 + ... + u499`, built one by one as `sum(lengths)` and `split` do, would cost 500 terms for each of its 500 prefixes. Instead
a *subtotal* atom stands for the oldest terms, in a chain in which each extends the one before:

    A1 = u0 + ... + u31,   A2 = A1 + u32 + ... + u62,   ...      prefix k = A_j + at most LONG terms

Two prefixes built in the same order share their chain, so neighbours differ by plain symbols, and of two far apart the difference is
bounded by the chunks in between, whose ranges are remembered. So 500 lengths with a known sum, and every slice's bounds, take time
linear in their number.
"""

from __future__ import annotations

from collections.abc import Callable

from pliant.symbolic import intervals as iv
from pliant.symbolic.expr import LONG, Context, Expr, Mono, term_order

Item = tuple[Mono, int]


def fold(ctx: Context, items: list[Item]) -> list[Item]:
    """The same sum with neighbouring subtotals of a chain cancelled, and folded where it is long."""
    if ctx.subtotals:
        items = _cancel(items)
    if len(items) > LONG:
        items = _fold_oldest(ctx, items)
    return items


def _cancel(items: list[Item]) -> list[Item]:
    """c*A2 - c*A1 where A2 extends A1, or c*A minus most of what A sums: the subtotal is opened."""
    subtotals = [(m[0], c) for m, c in items if len(m) == 1 and m[0].op == "subtotal"]
    if not subtotals or all(c > 0 for m, c in items if m) or all(c < 0 for m, c in items if m):
        return items
    d = dict(items)
    for child, c in subtotals:
        inner = child.args[0].terms
        chain, depth = child.cache["chain"]
        parent = chain[depth - 2] if depth > 1 else None
        if d.keys().isdisjoint(child.cache["parts"]):
            continue
        if (parent is not None and d.get((parent,)) == -c) or 2 * sum(d.get(m) == -c * k for m, k in inner) >= len(inner):
            del d[(child,)]
            for m, k in inner:
                d[m] = d.get(m, 0) + c * k
            return _cancel([it for it in d.items() if it[1]])
    return items


def _fold_oldest(ctx: Context, items: list[Item]) -> list[Item]:
    """All plain symbols and the chain's last subtotal go into a new subtotal, but the newest symbol."""
    plain = [it for it in items if it[1] == 1 and len(it[0]) == 1 and it[0][0].op in ("sym", "subtotal")]
    if len(plain) <= LONG or sum(it[0][0].op == "subtotal" for it in plain) > 1:
        return items
    plain.sort(key=lambda it: (it[0][0].op == "sym", it[0][0].serial))
    folded = plain[:-1]
    rest = [it for it in items if not any(it is f for f in folded)]
    return [*rest, ((_subtotal(ctx, folded),), 1)]


def _subtotal(ctx: Context, items: list[Item]) -> Expr:
    """The atom for a sum whose first item may be the subtotal that it extends."""
    parent = items[0][0][0] if items[0][0][0].op == "subtotal" else None
    key = ("sum of", *sorted((a.serial for (a,), _ in items)))
    found = ctx.memo.get(key)
    if found is not None:
        return found
    total = Expr(ctx, "sum", (), int)
    total.terms = tuple(sorted(items, key=term_order))
    node = ctx.memo[key] = ctx.node("subtotal", (total,), int)
    node.cache["parts"] = {m for m, _ in items}
    ctx.subtotals = True
    for (a,), _ in items:
        if a is not parent:
            a.cache.setdefault("member", node)
    chain, depth = parent.cache["chain"] if parent is not None else ([], 0)
    if len(chain) > depth:  # the parent was extended before, otherwise: that chain is another
        chain = chain[:depth]
    chain.append(node)
    node.cache["chain"] = chain, depth + 1  # one list serves a chain; each subtotal knows how much of it is its own
    return node


def make(ctx: Context, a: Expr) -> Expr:
    """A subtotal rebuilt, for instance by a substitution: nothing to keep together, the sum folds itself anew."""
    return ctx.poly(dict(a.terms))


def extends(a: Expr, b: Expr) -> bool:
    """Whether the subtotal a contains the subtotal b."""
    (chain, length), (_, depth) = a.cache["chain"], b.cache["chain"]
    return length >= depth and chain[depth - 1] is b


def difference_low(a: Expr, b: Expr, chunk: Callable[[Expr], tuple]) -> int | float:
    """A lower bound of a - b for subtotals of which a extends b: what the chunks in between come to (`chunk` gives the range of one)."""
    (chain, depth), (_, start) = a.cache["chain"], b.cache["chain"]
    low: int | float = 0
    for x in chain[start:depth]:
        low = iv.endpoint_add(low, chunk(x)[0])
    return low


def cover(a: Expr, p: Expr, of: Callable[[Expr], tuple]) -> Expr | None:
    """`a - (the members of a that p subtracts) - c`, which is >= 0: the other members sum to c at least. None if nothing bounds them."""
    negative = {m for m, c in p.terms if c < 0}
    low: int | float = 0
    out: dict[Mono, int] = {(a,): 1}
    for m, _ in a.args[0].terms:
        if m in negative:
            out[m] = -1
        else:
            low = iv.endpoint_add(low, of(m[0])[0])
            if low == -iv.INF:
                return None
    out[()] = -int(low)
    return a.ctx.poly(out, fold=False)


def paired_low(p: Expr, of: Callable[[Expr], tuple], chunk: Callable[[Expr], tuple]) -> int | float:
    """A lower bound of a sum in which a subtotal and a negative one that it extends are taken together; -inf if there are none."""
    subtotals = [(m[0], c) for m, c in p.terms if len(m) == 1 and m[0].op == "subtotal"]
    if len(subtotals) < 2:
        return -iv.INF
    low: int | float = 0
    left = dict(p.terms)
    for a, c in subtotals:
        for b, d in subtotals:
            if c > 0 and d == -c and (a,) in left and (b,) in left and a is not b and extends(a, b):
                low = iv.endpoint_add(low, iv.endpoint_mul(difference_low(a, b, chunk), c))
                del left[(a,)], left[(b,)]
    if len(left) == len(p.terms):
        return -iv.INF
    for m, c in left.items():
        r = (1, 1)
        for a in m:
            r = iv.mul(r, of(a))
        low = iv.endpoint_add(low, iv.endpoint_mul(r[0] if c > 0 else r[1], c))
    return low


def flat(p: Expr) -> dict[Mono, int]:
    """All terms, subtotals opened: linear in their number."""
    out = dict(p.terms)
    while True:
        inner = [m for m in out if len(m) == 1 and m[0].op == "subtotal"]
        if not inner:
            return {m: c for m, c in out.items() if c}
        newest = max(inner, key=lambda m: m[0].serial)
        c = out.pop(newest)
        for m, k in newest[0].args[0].terms:
            out[m] = out.get(m, 0) + c * k


def overlapping(p: Expr) -> bool:
    """Whether opening the subtotals of p may cancel something: some part of a long sum is added and another subtracted."""
    signs = {c > 0 for m, c in p.terms if len(m) == 1 and (m[0].op == "subtotal" or "member" in m[0].cache)}
    return len(signs) == 2 and any(len(m) == 1 and m[0].op == "subtotal" for m, _ in p.terms)
