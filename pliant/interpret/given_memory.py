"""`p.data = u` of a parameter, or of another leaf from outside: the object stays, and has other memory from then on.

In the graph it is two values, as what is made there is (`graph/rebinding.py`): the input is what it was, and what the program holds is
another one. The real tensor is given the memory when the graph is done, and counts the writes behind that as eager does.

Nothing but the object may be seen of what comes from it later: a view of it made in the graph would not count its versions, and a
backward part outside of the graph might have kept either memory. Then the capture starts again, with a break at the assignment.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.control_flow import FLOWS
from pliant.graph.dispatch import same
from pliant.graph.operands import op_inputs
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.rebinding import rebind
from pliant.graph.traced import DATA, Reconsider, TracedTensor, leaves
from pliant.interpret.calls import graph_call
from pliant.interpret.state import Break, vm
from pliant.interpret.tensor_inputs import held, is_leaf
from pliant.interpret.world import World
from pliant.interpret.wrappers import is_stand, is_wrapped

PLAIN = (torch.Tensor, torch.nn.Parameter)


def from_outside(t: Any) -> bool:
    return type(t) is TracedTensor and vm.world.real.get(id(t)) is not None and t.source is not None


def assign(t: Any, u: Any) -> None:
    """`t.data = u` of a tensor from outside. Raises Break where the program has to do it."""
    why = refused(t, u)
    if why is not None:
        raise Break("PL0039", f"an assignment to .data of a tensor from outside{why}", clean=True)
    world, trace = vm.world, vm.trace
    if t is u:
        return
    world.unusual()
    real = world.real[id(t)]
    with torch._C._DisableTorchDispatch():
        before = ORIGINAL._version.__get__(t)
        counted = world.given.get(id(t), (t, None, before))[2]
    given = graph_call(ORIGINAL.detach, (u,), {})
    old = rebind(trace, t, given)
    old.pytype, old.source = t.pytype, t.source
    with torch._C._DisableTorchDispatch():
        torch._C._autograd._unsafe_set_version_counter((old,), (before,))  # type: ignore[attr-defined]
    at = next((i for i, x in enumerate(trace.inputs) if x is t), None)
    if at is not None:  # (it was given memory before, else)
        trace.inputs[at] = old
        trace.replaced.add(old.vid)
        world.real[id(old)] = real
    for key, (d, base) in list(world.data_of.items()):
        if base is t:  # it shows what was there: the graph gives it
            del world.data_of[key]
            world.rebound[id(d)] = d
    world.keep.append(old)
    world.given[id(t)] = t, given, counted
    world.given_memory |= {old.storage_id, t.storage_id}
    trace.data_memory.add(t.storage_id)


def refused(t: Any, u: Any) -> str | None:
    """Why the graph does not do it, if so. Empty: it is another backend's, or an export, or more was seen of it."""
    world, trace = vm.world, vm.trace
    if vm.history is None or not vm.history.gives_memory or DATA in vm.refused:
        return ""
    tensors = [t, u]
    if not all([type(x) is TracedTensor and x.pytype in PLAIN and not is_stand(x) and not is_wrapped(x) for x in tensors]):
        return " that is no plain one, or with what is none"
    if t.dtype is not u.dtype or t.device != u.device or len(t.sizes) != len(u.sizes):
        return ", of other dims, dtype or device"
    marks = (ORIGINAL.is_conj, ORIGINAL.is_neg)
    if trace.inference or any([x.storage_id in trace.of_inference for x in tensors]) or any([m(x) for m in marks for x in tensors]):
        return ", in inference mode, or with a lazy conjugate"
    busy = vm.exploring or world.in_transform or vm.asking or vm.rehearsing or world.in_loop
    if busy or trace.lazy_bits or in_flows(trace, t):
        return ", behind a branch or loop on data"
    known = (world.made_leaves, world.frozen_leaves, world.waiting, world.retained)
    if any([id(t) in table for table in known]) or t.storage_id in trace.frozen or any([x is t for x in world.counts]):
        return " whose gradients or number the graph depends on"
    if id(t) not in world.given and (not is_leaf(t) or held(t, "_base") is not None):
        return " with a history, or that is a view"
    mine = world.real[id(t)]
    others = [i for i in trace.inputs if i.storage_id == t.storage_id and world.real.get(id(i)) is not mine]
    if others:
        return ", which shares memory with another input"
    return None if all([same(n, m) or vm.truth(n == m) for n, m in zip(t.sizes, u.sizes)]) else ", of another size"


def check(world: World, outputs: list[Any]) -> None:
    """Raises Reconsider where more can be seen of what was given memory than the object."""
    if not world.given:
        return
    made = {id(given) for _, given, _ in world.given.values()}
    since: dict[int, int] = {}
    for t, _, _ in world.given.values():
        since[t.storage_id] = min(t.vid, since.get(t.storage_id, t.vid))
    left = [v for way in (*world.trace.exits, *world.trace.marks) for v in way.values]
    shown = [v for v in (*outputs, *left) if type(v) is TracedTensor]
    if any([id(v) not in made and v.vid > since.get(v.storage_id, v.vid) for v in shown]):
        raise Reconsider("set_data", "more than the object is seen of a tensor that was given other memory", DATA)
    if any([v.requires_grad for v in shown]) and any([keeps(op, world.given_memory) for op in world.trace.ops]):
        raise Reconsider("set_data", "a backward part may keep what was given other memory", DATA)
    if any([in_flows(world.trace, t) for t, *_ in world.given.values()]):
        raise Reconsider("set_data", "a branch or loop on data reads a tensor that was given other memory, or writes to it", DATA)


def keeps(op: Any, memory: set[int]) -> bool:
    """Whether gradients of an operation may need what it reads of this memory."""
    reads = any([t.storage_id in memory for t in op_inputs(op)])
    return reads and any([type(t) is TracedTensor and t.requires_grad for t in (*op.outs, *op_inputs(op))])


def in_flows(trace: Any, t: Any) -> bool:
    """Whether a branch or loop on data is given the tensor: nobody counts what is written in there."""
    return any([v is t for op in trace.ops if op.target in FLOWS for v in leaves([op.args])])
