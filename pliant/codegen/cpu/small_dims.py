"""Dims of two to four points whose elements lie side by side, as `stack(..., -1)` and pairs make them: written out instead of looped over.

The kernel then has a store for each of those points, a stride of that many elements apart, which the printer weaves into whole vectors.
"""

from __future__ import annotations

from dataclasses import replace

from pliant.codegen.cpu.index_set_splitting import ABOVE, known, simpler, truth
from pliant.lower.loops import Kernel, Node, Size, Store, operands_first

MOST = 4
LIGHT = 40
"""Bodies of more nodes are left alone: each point of the dim gets one."""


def written_out(kernel: Kernel) -> Kernel:
    """The kernel without a loop over such a dim, if it has one."""
    if kernel.reduced or any(s.mode != "set" or s.index for s in kernel.stores):
        return kernel
    nodes = kernel.nodes()
    for d, size in enumerate(kernel.dims):
        if type(size) is int and 2 <= size <= MOST and len(nodes) * size <= LIGHT * 2 and fits(kernel, nodes, d, size):
            stores = [made for k in range(size) for s in kernel.stores for made in at_point(s, d, k)]
            dims = tuple(1 if i == d else n for i, n in enumerate(kernel.dims))
            return replace(kernel, dims=dims, stores=stores)
    return kernel


def fits(kernel: Kernel, nodes: list[Node], d: int, size: int) -> bool:
    """Do all stores walk `d` side by side, another dim `size` apart, and is every address known at each of its points?"""
    woven = all(s.strides[d] == 1 and any(n == size and type(n) is int for n in s.strides) for s in kernel.stores)
    return woven and all(moves(n.strides[d], n.offset) for n in nodes if n.op == "load") and all(moves(1, s.offset) for s in kernel.stores)


def moves(stride: Size, offset: Size) -> bool:
    return type(stride) is int and (stride == 0 or type(offset) is int)


def at_point(s: Store, d: int, k: int) -> list[Store]:
    """The store where the counter of `d` is `k`, if there is one."""
    done: dict[int, Node] = {}
    predicates = (s.predicate,) if s.predicate is not None else ()
    for n in operands_first((*predicates, s.node)):
        args = tuple(done[id(a)] for a in n.args)
        if n.op == "index" and n.attrs == (d,):
            done[id(n)] = Node("const", (), "i64", (k,))
        elif n.op == "load" and n.strides[d] != 0:
            place = (n.buffer, still(n.strides, d), moved(n.offset, n.strides[d], k), *n.attrs[3:])
            done[id(n)] = simpler(Node("load", n.args, n.dtype, place), args)
        elif all(a is b for a, b in zip(args, n.args, strict=True)):
            done[id(n)] = n
        elif n.op in ABOVE and all(a.op == "const" for a in args):
            done[id(n)] = truth((args[0].attrs[0] >= args[1].attrs[0] + ABOVE[n.op][0]) == ABOVE[n.op][1])
        else:
            done[id(n)] = simpler(n, args)
    predicate = None if s.predicate is None else done[id(s.predicate)]
    if predicate is not None and (on := known(predicate)) is not None:
        if not on:
            return []
        predicate = None
    return [replace(s, node=done[id(s.node)], strides=still(s.strides, d), offset=moved(s.offset, 1, k), predicate=predicate)]


def still(strides: tuple[Size, ...], d: int) -> tuple[Size, ...]:
    return tuple(0 if i == d else n for i, n in enumerate(strides))


def moved(offset: Size, stride: Size, k: int) -> Size:
    assert type(offset) is int and type(stride) is int
    return offset + k * stride
