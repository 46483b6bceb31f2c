"""Kernels that write a result over an operand which nobody reads afterwards.

Allowed where the kernel reads the operand only at the very element that it writes: no reductions, one access, the same for both. The kernel
is then another one, in which the two are one buffer: printers know what they may do with a buffer that is read and written.
"""

from __future__ import annotations

from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import rewrite
from pliant.lower.loops import Buffer, Kernel, Node, Store


def over(launch: Launch, operand: int, result: int) -> Launch | None:
    """`launch` with buffer `result` in the memory of buffer `operand`, which is then no buffer of its own; None where that may not be."""
    k = launch.kernel
    a, b = k.buffers[operand], k.buffers[result]
    if k.reduced or a.written or not b.written or a.dtype != b.dtype:
        return None
    stores = [s for s in k.stores if s.buffer == result]
    if len(stores) != 1 or stores[0].index or stores[0].predicate is not None or stores[0].mode != "set":
        return None
    place = (stores[0].strides, stores[0].offset)
    for n in k.nodes():
        if n.op == "reduce" or n.op == "load" and n.buffer == result:
            return None
        if n.op == "load" and n.buffer == operand and (n.args or (n.strides, n.offset) != place):
            return None

    def index(i: int) -> int:
        i = result if i == operand else i
        return i - (i > operand)

    def leaf(n: Node) -> Node:
        return Node("load", n.args, n.dtype, (index(n.attrs[0]), *n.attrs[1:])) if n.op == "load" else n

    memo: dict[int, Node] = {}

    def moved(n: Node) -> Node:
        return rewrite(n, leaf, memo)

    changed = [
        Store(index(s.buffer), s.strides, s.offset, moved(s.node), tuple(map(moved, s.index)), s.index_strides,
              None if s.predicate is None else moved(s.predicate), s.mode)
        for s in k.stores
    ]  # fmt: skip
    buffers = [Buffer(x.dtype, x.written, x.unique) for i, x in enumerate(k.buffers) if i != operand]
    kernel = Kernel(f"{k.name}i", k.dims, k.reduced, buffers, changed, k.sizes, k.hints)
    tensors = [t for i, t in enumerate(launch.buffers) if i != operand]
    return Launch(kernel, ("in place", launch.key, operand, result), tensors, [index(i) for i in launch.made], launch.sizes)
