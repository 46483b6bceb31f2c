"""What tensors say of their history: their version, the nodes of the autograd graph behind them, and gradients that they retain.

The tape of a capture is PyTorch's own, on proxies: what it says of a tensor that the program has made is what it says in eager. Of
inputs it begins where the capture begins: versions are counted from there, and a history from before is not told.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.control_flow import FLOWS
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.schema import written
from pliant.graph.traced import RETAINED, TracedTensor
from pliant.interpret.calls import METHOD_LOOKASIDES
from pliant.interpret.state import Break, ReplayFailed, vm, whole_loops
from pliant.interpret.tensor_inputs import held, is_leaf
from pliant.interpret.types.row import row
from pliant.interpret.wrappers import is_stand, is_wrapped

Node = torch.autograd.graph.Node


# -- versions --------------------------------------------------------------------------------------------------------------
def version(t: Any) -> Any:
    """`t._version`: how often the program has written to the memory of `t`, and how often it was written to before."""
    world, trace = vm.world, vm.trace
    if is_stand(t) or is_wrapped(t) or t.storage_id in trace.of_inference or torch.is_inference_mode_enabled():
        raise Break("PL0012", "the version of a tensor of a transform, a wrapper, or in inference mode", clean=True)
    if any([op.target in FLOWS for op in trace.ops]):
        raise Break("PL0012", "the version of a tensor behind a loop or a branch on data, which may write to it", clean=True)
    if world.replayed:
        raise ReplayFailed  # operators that are recorded again count nothing
    world.unusual()
    inputs = [i for i in trace.inputs if i.storage_id == t.storage_id]
    refuse_fused(t)
    now = ORIGINAL._version.__get__(t)
    if id(t) in world.given:
        return held(t, "_version") + now
    if any([g.storage_id == t.storage_id for g, *_ in world.given.values()]):
        raise Break("PL0012", "the version of a tensor whose memory was given to one from outside", clean=True)
    if not inputs or id(t) in world.data_views:
        return now
    real = world.real.get(id(inputs[0]))
    if len(inputs) > 1 or real is None:
        raise Break("PL0012", "the version of a tensor that shares memory with two inputs", clean=True)
    others = {i.storage_id for i in trace.inputs} - {t.storage_id}
    if any([t.storage_id in others for op in trace.ops for t in written(op)]):
        raise Break("PL0012", "the version of an input behind a write to another, which may share its memory", clean=True)
    before = held(inputs[0], "_version")
    return before + now


def refuse_fused(t: Any) -> None:
    """Nobody counts what a fused step of an optimizer writes."""
    for op in vm.trace.ops:
        if op.target._schema.name.startswith("aten::_fused_") and any([u.storage_id == t.storage_id for u in written(op)]):
            raise Break("PL0012", "the version of a tensor that a fused operator has written", clean=True)


# -- nodes -----------------------------------------------------------------------------------------------------------------
class NodeOf:
    """Stands for a node of the autograd graph that the program has made."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node


def node_of(node: Any) -> NodeOf | None:
    """The proxy for a node: the same one each time."""
    if node is None:
        return None
    nodes = vm.world.nodes
    if node not in nodes:
        if isinstance(node, torch.autograd.function.BackwardCFunction) and type(node).__module__.startswith("pliant."):
            raise Break("PL0012", "the history of a tensor from before the graph", clean=True)
        nodes[node] = NodeOf(node)
    return nodes[node]


def grad_fn(t: Any) -> Any:
    """`t.grad_fn` of a tensor that the program has made, or that has no history."""
    real = vm.world.real.get(id(t))
    if is_leaf(t):
        return None
    known = real is None
    if RETAINED in vm.refused or not known or not whole_loops() or id(t) in vm.world.data_views:
        raise Break("PL0012", "the history of a tensor from before the graph, or one that is needed later", clean=True)
    with torch._C._DisableTorchDispatch():
        return node_of(t.grad_fn)


def attribute(o: NodeOf, name: str) -> Any:
    """What is read of a node. Its hooks, and what it has saved, are the engine's."""
    if name == "__class__":
        return kind(o)
    if name == "name":
        kind(o)
        return Named(o.node)
    if name == "next_functions":
        kind(o)
        return tuple([(node_of(below), i) for below, i in o.node.next_functions])
    raise vm.left_to_python(f"it asks for {name!r} of a node of the autograd graph: behind the graph there is only the region's")


def kind(o: NodeOf) -> type:
    """The class of a node. Raises LeftToPython where that of eager may be another: it knows more of sizes, or decomposes less."""
    if vm.world.decomposed or type(o.node).__name__ == "SliceBackward0":
        raise vm.left_to_python("it asks for the kind of a node of the autograd graph, which is another one in eager")
    return type(o.node)


class Named:
    """The bound method `name` of a node."""

    __slots__ = ("node",)

    def __init__(self, node: Any) -> None:
        self.node = node


row(
    name="node of the autograd graph", stands=(NodeOf,), type=kind, getattr=attribute, truth=lambda o: True,
    to_c=lambda fn, o: refused(o), to_graph=lambda fn, o: refused(o), text=lambda o, fn: refused(o), hashed=lambda o: o,
)  # fmt: skip
row(
    name="name of a node", stands=(Named,), type=lambda o: type(o.node.name), call=lambda o, args, kw: o.node.name(*args, **kw),
    to_c=lambda fn, o: refused(o), to_graph=lambda fn, o: refused(o),
)  # fmt: skip


def refused(o: Any) -> Any:
    raise vm.left_to_python("it hands on a node of the autograd graph: behind the graph there is only the region's")


# -- gradients that are kept -------------------------------------------------------------------------------------------------
def retain_grad(t: Any, args: tuple, kw: dict) -> None:
    """`t.retain_grad()`: of a tensor made here, which the program alone sees."""
    real = vm.world.real.get(id(t))
    if args or kw or is_stand(t) or is_wrapped(t) or not t.requires_grad:
        raise Break("PL0012", "retain_grad()", clean=True)
    if real is not None and is_leaf(t):
        return
    if RETAINED in vm.refused and real is None:
        left_alone(t, "its gradient is retained")
    if real is not None or not whole_loops() or RETAINED in vm.refused:
        raise Break("PL0012", "retain_grad() of a tensor that is seen outside of the graph", clean=True)
    with torch._C._DisableTorchDispatch():
        ORIGINAL.retain_grad(t)
    vm.world.retained[id(t)] = t


def left_alone(t: Any, why: str) -> None:
    """The graph ends here. Raises LeftToPython where it would give `t` and what is made of it: gradients of the one pass by the other."""
    if any([u is not t and type(u) is TracedTensor and u.requires_grad and comes_from(u, t) for op in vm.trace.ops for u in op.outs]):
        raise vm.left_to_python(f"a tensor was used before {why}, and is needed outside of the graph")


def comes_from(u: Any, t: Any) -> bool:
    """Whether the history of `u` leads through `t`."""
    seen, todo = {None}, [u.grad_fn]
    while todo:
        node = todo.pop()
        if node not in seen:
            seen.add(node)
            todo += [below for below, _ in node.next_functions]
    return u.grad_fn is not t.grad_fn and t.grad_fn in seen


def retains_grad(t: Any) -> bool:
    real = vm.world.real.get(id(t))
    if real is None:
        return bool(ORIGINAL.retains_grad.__get__(t))
    return bool(vm.world.locate(real.retains_grad, t.source.attr("retains_grad")))


def keep_retained() -> None:
    """The engine went through the tape: gradients that it has kept are those of the program's tensors."""
    for t in vm.world.retained.values():
        with torch._C._DisableTorchDispatch():
            g = ORIGINAL.grad.__get__(t)
        if type(g) is TracedTensor:
            vm.world.own_gradients[id(t)] = (t, g)


METHOD_LOOKASIDES[(torch.Tensor, "retain_grad")] = retain_grad
