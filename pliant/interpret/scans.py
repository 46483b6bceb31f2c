"""`associative_scan` in its ordinary operations: each step combines items twice as far apart as the one before (Hillis and Steele).

    step k:  x[i] = combine(x[i - 2**k], x[i])  for i >= 2**k

With a length that is a number, or that the call decides, there are as many steps as it takes. A length that stays open has `STEPS`: those
beyond it combine nothing. What combines must be pointwise, so that it may be given many items at once.
"""

from __future__ import annotations

from typing import Any

from torch._higher_order_ops.associative_scan import associative_scan

from pliant.graph.layout import is_declared
from pliant.graph.originals import torch
from pliant.graph.traced import TracedTensor
from pliant.interpret.calls import call, graph_call
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, current_site, vm
from pliant.symbolic import ops

PARAMETERS = ("combine_fn", "xs", "dim", "reverse", "combine_mode")
STEPS = 20
"""For lengths that stay open: up to a million items. A relation says so."""


@lookaside(associative_scan)
def l_associative_scan(args: tuple, kw: dict) -> Any:
    given = {"reverse": False, "combine_mode": "pointwise"} | dict(zip(PARAMETERS, args)) | kw
    xs, dim, reverse = given["xs"], given["dim"], given["reverse"]
    leaves = list(xs) if type(xs) is tuple else [xs]
    if not all([type(x) is TracedTensor for x in leaves]) or not leaves or type(dim) is not int or type(reverse) is not bool:
        raise Break("PL0030", "associative_scan of other things than a tensor or a tuple of them", clean=True)
    shape = leaves[0].sizes
    if any([len(x.sizes) != len(shape) for x in leaves]) or not -len(shape) <= dim < len(shape):
        raise Break("PL0030", "associative_scan of tensors of different shapes", clean=True)
    if 0 in [n for n in shape if type(n) is int]:
        raise Break("PL0030", "associative_scan of tensors without elements, whose results have sizes of their own", clean=True)
    if given["combine_mode"] not in ("pointwise", "generic"):
        raise Break("PL0030", "associative_scan with another combine_mode, which PyTorch refuses", clean=True)
    if given["combine_mode"] == "pointwise" and any([x.device.type == "cpu" for x in leaves]):
        raise Break("PL0030", 'associative_scan with combine_mode="pointwise" on a CPU, which PyTorch refuses', clean=True)
    leaves = [method("movedim", x, dim, 0) for x in leaves]
    if reverse:
        leaves = [method("flip", x, [0]) for x in leaves]
    n = leaves[0].sizes[0]
    for k in range(steps(n)):
        leaves = step(given["combine_fn"], leaves, n, 1 << k, type(xs) is tuple)
    if reverse:
        leaves = [method("flip", x, [0]) for x in leaves]
    leaves = [method("movedim", x, 0, dim) for x in leaves]
    return tuple(leaves) if type(xs) is tuple else leaves[0]


def method(name: str, *args: Any) -> Any:
    return graph_call(getattr(torch, name), args, {})


def steps(n: Any) -> int:
    """How many steps a scan over `n` items takes."""
    if type(n) is int:
        if n == 0:
            raise Break("PL0030", "associative_scan of nothing, which PyTorch refuses", clean=True)
        return (n - 1).bit_length()
    scope, e, site = vm.scope, n.node.expr, current_site()
    if not e.backed or is_declared(e):
        words = f"associative_scan of more than {1 << STEPS} items, whose number is open"
        if not scope.assume(ops.le(e, 1 << STEPS), site, words) or not scope.assume(ops.ge(e, 1), site, "associative_scan of nothing"):
            raise Break("PL0030", words, clean=True)
        return STEPS
    k = 0
    while scope.decide(ops.gt(e, 1 << k), site):
        k += 1
    return k


def step(combine: Any, leaves: list[Any], n: Any, apart: int, many: bool) -> list[Any]:
    m = n - apart if type(n) is int else torch.sym_max(n - apart, 0)
    earlier, later = [method("narrow", x, 0, 0, m) for x in leaves], [method("narrow", x, 0, n - m, m) for x in leaves]
    before = len(vm.trace.ops)
    made = call(combine, (tuple(earlier), tuple(later)) if many else (earlier[0], later[0]), {})
    found = list(made) if many and type(made) in (tuple, list) else [made]
    if len(found) != len(leaves) or not all([type(x) is TracedTensor for x in found]):
        raise Break("PL0030", "associative_scan with a function that returns another structure than it takes", clean=True)
    rank = len(leaves[0].sizes)
    if not all(map(pointwise, vm.trace.ops[before:], [rank] * len(vm.trace.ops))) or any([len(x.sizes) != rank for x in found]):
        raise Break("PL0030", "associative_scan with a function that is not pointwise")
    out = [method("cat", [method("narrow", x, 0, 0, n - m), y], 0) for x, y in zip(leaves, found, strict=True)]
    for x in out:
        if type(n) is not int and type(x.sizes[0]) is not int:
            vm.scope.learn(ops.eq(x.sizes[0].node.expr, n.node.expr))  # n - m and m of them; sizes stay as short as that
    return out


def pointwise(op: Any, rank: int) -> bool:
    """Whether an operation does the same to each item of `rank` dims, whatever the others are."""
    tensors = [a for a in (*op.args, *op.kwargs.values()) if type(a) is TracedTensor]
    return torch.Tag.pointwise in op.target.tags and all([len(t.sizes) in (0, rank) for t in tensors])
