"""`scan`: a loop over the items of tensors that carries values along and keeps what each round gives.

The first round is captured where the loop begins: it says what rounds give. The others are one `Flow` (`HigherOrder.loop`): how far it
is, the carried values and the tensors that hold the results are what it carries; results are written in place. What gradients flow
through is unrolled, where the number of rounds is no more than `UNROLLED`: the graph is for that number.
"""

from __future__ import annotations

from typing import Any

from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree

from pliant.graph import casts
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.symnode import concrete
from pliant.graph.traced import LOOPS_OF_OTHERS, TracedTensor
from pliant.interpret.calls import call, graph_call
from pliant.interpret.higher_order import HigherOrder, flattened
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm
from pliant.interpret.subprograms import Open

UNROLLED = 64
NAMES = ("combine_fn", "init", "xs")


@lookaside(scan)
def l_scan(args: tuple, kw: dict) -> Any:
    given = {"dim": 0, "reverse": False} | dict(zip(NAMES, args)) | kw
    xs, x_spec = flattened(given["xs"])
    first, spec = flattened(given["init"])
    dim, reverse = given["dim"], given["reverse"]
    if not xs:
        return given["init"], []
    if LOOPS_OF_OTHERS in vm.refused or vm.asking or vm.world.levels.entered:
        raise Break("PL0030", "scan inside a transform, or for a backend that is not pliant's own")
    if not first or not all([type(t) is TracedTensor for t in (*xs, *first)]) or type(dim) is not int or type(reverse) is not bool:
        raise Break("PL0030", "scan of other things than tensors", clean=True)
    dim = dim % max(len(xs[0].sizes), 1)
    if any([len(x.sizes) <= dim for x in xs]) or not all([vm.truth(x.sizes[dim] == xs[0].sizes[dim]) for x in xs]):
        raise Break("PL0030", "scan of tensors without that dim, or of several lengths", clean=True)
    xs = [torched("movedim", x, dim, 0) if dim else x for x in xs]
    if reverse:
        xs = [torched("flip", x, [0]) for x in xs]
    n = xs[0].sizes[0]
    if not vm.truth(n > 0):
        raise Break("PL0030", "scan of nothing, which PyTorch refuses")
    shape: list[Any] = []

    def combine(carry: list[Any], items: list[Any]) -> tuple[list[Any], list[Any]]:
        made = call(given["combine_fn"], (pytree.tree_unflatten(carry, spec), pytree.tree_unflatten(items, x_spec)), {})
        if type(made) is not tuple or len(made) != 2:
            raise Break("PL0030", "scan of a function that does not return a pair, which PyTorch refuses")
        after, now = pytree.tree_flatten(made[0])
        out, out_spec = pytree.tree_flatten(made[1])
        if now != spec or not all([type(t) is TracedTensor for t in (*after, *out)]):
            raise Break("PL0030", "scan of a function that carries something else than it was given")
        if any([a.dtype is not b.dtype or len(a.sizes) != len(b.sizes) for a, b in zip(after, carry, strict=True)]):
            raise Break("PL0030", "scan of a function that carries tensors of another kind than it was given")
        shape[:] = [out_spec]
        return after, out

    before = len(vm.trace.ops)
    try:
        carry, results = rounds(combine, first, xs, n)
    except Open as e:
        casts.take_back(vm.trace, before)
        if type(n) is not int and n.node.expr.backed is False or concrete(n) > UNROLLED:
            raise Break("PL0030", f"scan: {e}") from None
        carry, results = unrolled(combine, first, xs, int(concrete(n)))
    if reverse:
        results = [torched("flip", r, [0]) for r in results]
    results = [torched("movedim", r, 0, dim) if dim and dim < len(r.sizes) else r for r in results]
    return pytree.tree_unflatten(carry, spec), pytree.tree_unflatten(results, shape[0])


def torched(name: str, *args: Any, **kwargs: Any) -> Any:
    return graph_call(getattr(torch, name), args, kwargs)


def rounds(combine: Any, first: list[Any], xs: list[Any], n: Any) -> tuple[list[Any], list[Any]]:
    """The carried values at the end, and the results of all rounds. Raises `Open`."""
    if torch.is_grad_enabled() and any([t.requires_grad for t in (*xs, *first)]):
        raise Open("gradients flow through it")
    carry, out = combine(first, [torched("select", x, 0, 0) for x in xs])
    if torch.is_grad_enabled() and any([t.requires_grad for t in (*carry, *out)]):
        raise Open("gradients flow through it")
    carry = [torched("clone", c) for c in carry]  # results may be what is carried
    held = [graph_call(torch.empty, ((n, *y.sizes),), {"dtype": y.dtype, "device": y.device}) for y in out]
    for h, y in zip(held, out, strict=True):
        graph_call(ORIGINAL.copy_, (torched("select", h, 0, 0), y), {}, "copy_")
    if type(n) is int and n == 1:
        return carry, held
    limit = torched("scalar_tensor", n, dtype=torch.int64)
    at = torched("ones", (), dtype=torch.int64)
    k = len(carry)

    def going(at: Any, *rest: Any) -> Any:
        return torched("lt", at, limit)

    def around(at: Any, *rest: Any) -> tuple:
        index = torched("reshape", at, (1,))
        items = [torched("squeeze", torched("index_select", x, 0, index), 0) for x in xs]
        after, made = combine(list(rest[:k]), items)
        for h, y in zip(rest[k:], made, strict=True):
            graph_call(ORIGINAL.index_copy_, (h, 0, index, torched("unsqueeze", y, 0)), {}, "index_copy_")
        return torched("add", at, 1), *[torched("clone", c) for c in after], *rest[k:]

    found = HigherOrder().loop(going, around, (at, *carry, *held), written=len(held))
    return list(found[1 : 1 + k]), list(found[1 + k :])


def unrolled(combine: Any, carry: list[Any], xs: list[Any], n: int) -> tuple[list[Any], list[Any]]:
    """The same, round by round."""
    made = []
    for i in range(n):
        carry, out = combine(carry, [torched("select", x, 0, i) for x in xs])
        made.append(out)
    return carry, [torched("stack", list(column)) for column in zip(*made, strict=True)]
