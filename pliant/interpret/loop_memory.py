"""Memory from before a loop that its rounds write to: its content is carried from round to round, and written back behind the loop.

Each block that writes to it does so in a copy of its own, which it has of the block before; the last one of a round is what the next
round is given. All that a round may know of such memory is one tensor from before the loop: with two views of it, one could not tell what
the other has written. So a loop is refused that uses it by two names, keeps a view of it from round to round, or gives one back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from pliant.graph.dispatch import dispatch, forget_content
from pliant.graph.record import Op
from pliant.graph.schema import written
from pliant.graph.traced import TracedTensor, make, tensors_of
from pliant.interpret.state import counts_rounds, vm
from pliant.interpret.subprograms import Open, Way

aten = torch.ops.aten
BLOCKS = 32
"""Blocks of one way that write to such memory, at most."""


class Cell:
    """Memory that a loop writes to: the tensor that it is known by, what stands for its content in a round, and what it is at first."""

    __slots__ = ("first_copy", "initial", "outermost", "param", "tensor")

    def __init__(self, tensor: TracedTensor) -> None:
        trace = vm.trace
        self.tensor = tensor
        self.initial = dispatch(trace, aten.clone.default, (tensor,), {})
        self.param = like(tensor)
        self.first_copy = trace.next_vid
        trace.next_vid += BLOCKS
        forget_content(trace, tensor)
        self.outermost = tensor.storage_id not in trace.moving
        trace.moving.add(tensor.storage_id)


def like(t: TracedTensor) -> TracedTensor:
    return make(vm.trace, t.sizes, t.strides, t.dtype, 0, None, t.device, True)


class Memory:
    """The memory that one loop carries, by storage."""

    def __init__(self, begin: int) -> None:
        self.begin = begin
        self.cells: dict[int, Cell] = {}
        self.views: set[int] = set()  # ids of the views that rounds have made

    def takes(self, refused: Open) -> bool:
        """Carry the memory that a round was found to write to. False where it is refused for something else, or that cannot be."""
        t = refused.known_as
        if t is None or not counts_rounds() or t.storage_id in self.cells or t.vid >= self.begin:
            return False
        if not t.dense or t.requires_grad or t.pytype is not torch.Tensor or vm.trace.lazy_bits:
            return False
        self.cells[t.storage_id] = Cell(t)
        return True

    def check(self, values: list[Any]) -> None:
        """Raises `Open` if one of the values, which are carried or given back, lies in such memory."""
        for t in tensors_of(values) if self.cells else ():
            if t.storage_id in self.cells or id(t) in self.views:
                refusal = Open("it keeps a view of memory that it writes to")
                refusal.written = t.storage_id
                try:
                    raise refusal
                finally:
                    del refusal  # it holds this frame

    def gives_up(self, storage: int | None) -> bool:
        """No longer carry this memory: the variable that has it is another tensor in the next round. Whether it was carried."""
        cell = self.cells.pop(storage, None) if storage is not None else None
        if cell is not None and cell.outermost:
            vm.trace.moving.discard(storage)
        return cell is not None

    def of_entry(self, ways: list[Way]) -> list[Way]:
        """What runs before the first round reads the content that the loop begins with."""
        for w in ways:
            if any([self.written(op) for op in w.ops]):
                raise Open("its first test writes to memory from before")
            moved = {c.tensor.vid: c.initial for c in self.cells.values()}
            for op in w.ops:
                self.one_name(op, moved)
            w.ops = [replaced(op, moved) for op in w.ops]
        return ways

    def written(self, op: Any) -> list[int]:
        """The storages of such memory that an operation writes to."""
        return [t.storage_id for t in written(op) if t.storage_id in self.cells]

    def in_blocks(self, ways: list[Way]) -> list[Way]:
        """The ways, each block writing to copies of its own; `way.memory` is what each ends with."""
        for w in ways:
            self.in_way(w)
        return ways

    def in_way(self, w: Way) -> None:
        ops: list[Any] = []
        now: dict[int, TracedTensor] = {storage: c.param for storage, c in self.cells.items()}
        moved: dict[int, TracedTensor] = {c.tensor.vid: c.param for c in self.cells.values()}
        own: dict[int, int] = {}  # vid of a view made on the way -> the memory that it views
        stale: set[int] = set()
        ends = [n for _, _, n, _ in w.decisions] + [len(w.ops)]
        shift, begin, positions = 0, 0, []
        for k, end in enumerate(ends):
            block = w.ops[begin:end]
            for storage in dict.fromkeys([s for op in block for s in self.written(op)]):
                if k >= BLOCKS:
                    raise Open("too many blocks write to one memory")
                cell = self.cells[storage]
                copy = numbered(cell.tensor, cell.first_copy + k)
                ops.append(Op(aten.clone.default, (now[storage],), {}, [copy], None, block[0].site, -1, []))
                now[storage] = moved[cell.tensor.vid] = copy
                stale.update(vid for vid, of in own.items() if of == storage)
                shift += 1
            for op in block:
                if stale and any([t.vid in stale for t in tensors_of([op.args, op.kwargs])]):
                    raise Open("it uses a view of memory that was written to behind another branch")
                self.one_name(op, moved)
                for t in tensors_of(op.outs):
                    if t.storage_id in self.cells and t.vid not in moved:
                        own[t.vid] = t.storage_id
                        self.views.add(id(t))
                        t.storage_id = now[t.storage_id].storage_id
                ops.append(replaced(op, moved))
            begin = end
            positions.append(end + shift)
        w.ops = ops
        w.decisions = [(c, said, n, asserts) for (c, said, _, asserts), n in zip(w.decisions, positions)]
        assert w.end is not None
        w.end.values[0].memory = now

    def one_name(self, op: Any, moved: dict[int, TracedTensor]) -> None:
        if any([t.storage_id in self.cells and t.vid not in moved for t in tensors_of([op.args, op.kwargs])]):
            raise Open("it uses memory that it writes to by two names")

    # -- the operation ---------------------------------------------------------------------------------------------------------------
    def params(self) -> list[TracedTensor]:
        return [c.param for c in self.cells.values()]

    def initial(self) -> list[TracedTensor]:
        return [c.initial for c in self.cells.values()]

    def ended(self, memory: dict[int, TracedTensor] | None) -> list[TracedTensor]:
        """What such memory holds at an end of a way: that of the entry has none of its own."""
        return [memory[storage] if memory is not None else c.initial for storage, c in self.cells.items()]

    def results(self) -> list[TracedTensor]:
        return [like(c.tensor) for c in self.cells.values()]

    def put_back(self, results: list[TracedTensor]) -> None:
        """Behind the loop: what it has made of the memory is written there."""
        for c, r in zip(self.cells.values(), results, strict=True):
            if c.outermost:
                vm.trace.moving.discard(c.tensor.storage_id)
            dispatch(vm.trace, aten.copy_.default, (c.tensor, r), {})



def numbered(t: TracedTensor, vid: int) -> TracedTensor:
    """A tensor with this layout and number."""
    trace = vm.trace
    before, trace.next_vid = trace.next_vid, vid
    try:
        return like(t)
    finally:
        trace.next_vid = before


def replaced(op: Any, moved: dict[int, TracedTensor]) -> Any:
    """The operation on other tensors."""
    if not any([t.vid in moved for t in tensors_of([op.args, op.kwargs, op.outs])]):
        return op
    return replace(op, args=put(op.args, moved), kwargs=put(op.kwargs, moved), outs=put(op.outs, moved))


def put(v: Any, moved: dict[int, TracedTensor]) -> Any:
    if type(v) is TracedTensor:
        return moved.get(v.vid, v)
    if type(v) in (list, tuple):
        return type(v)(put(x, moved) for x in v)
    return {k: put(x, moved) for k, x in v.items()} if type(v) is dict else v
