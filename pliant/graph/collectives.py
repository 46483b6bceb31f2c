"""Collectives of `torch.distributed` as operators of the graph.

Each is one operator that starts the collective and waits for it: a step with an effect, which no pass drops, repeats or moves past another.
PyTorch's own functional operators come in pairs, the start and `wait_tensor`; where a program that is being captured calls these, the
start is recorded as ours, and there is nothing left to wait for. A group is named, not held: its name is guarded
(`interpret/collectives.py`).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from pliant.graph.dispatch import check, dispatch
from pliant.graph.operators import overload
from pliant.graph.rules.factory import like
from pliant.graph.rules.shape import new
from pliant.graph.rules.table import HANDLERS, RULES
from pliant.graph.traced import TracedTensor, Untraceable, tensors_of

FUNCTIONAL = {
    "all_reduce": "(Tensor input, str reduce_op, str group) -> Tensor",
    "all_reduce_coalesced": "(Tensor[] inputs, str reduce_op, str group) -> Tensor[]",
    "all_gather_into_tensor": "(Tensor input, int group_size, str group) -> Tensor",
    "all_gather_into_tensor_coalesced": "(Tensor[] inputs, int group_size, str group) -> Tensor[]",
    "reduce_scatter_tensor": "(Tensor input, str reduce_op, int group_size, str group) -> Tensor",
    "reduce_scatter_tensor_coalesced": "(Tensor[] inputs, str reduce_op, int group_size, str group) -> Tensor[]",
    "all_to_all_single": "(Tensor input, SymInt[] output_split_sizes, SymInt[] input_split_sizes, str group) -> Tensor",
    "broadcast": "(Tensor input, int src, str group) -> Tensor",
}
"""PyTorch's functional collectives: the results are new memory."""

IN_PLACE = {
    "all_reduce_": "(Tensor(a!) tensor, str op, str group) -> ()",
    "broadcast_": "(Tensor(a!) tensor, int src, str group) -> ()",
    "reduce_": "(Tensor(a!) tensor, int dst, str op, str group) -> ()",
    "all_gather_": "(Tensor(a!)[] tensor_list, Tensor tensor, str group) -> ()",
    "all_gather_into_tensor_": "(Tensor(a!) output_tensor, Tensor input_tensor, str group) -> ()",
    "reduce_scatter_": "(Tensor(a!) output, Tensor[] input_list, str op, str group) -> ()",
    "reduce_scatter_tensor_": "(Tensor(a!) output, Tensor input, str op, str group) -> ()",
    "all_to_all_single_":
        "(Tensor(a!) output, Tensor input, SymInt[]? output_split_sizes, SymInt[]? input_split_sizes, str group) -> ()",
    "barrier_": "(str group) -> ()",
}  # fmt: skip
"""Functions of `torch.distributed`, under their names with an underscore."""

RENAMED = {"all_gather_into_tensor_": "all_gather_single", "reduce_scatter_tensor_": "reduce_scatter_single"}  # the old names warn
LIBRARY = torch.library.Library("pliant_collectives", "DEF")
OPS = torch.ops.pliant_collectives
REDUCTIONS = {op: str(getattr(dist.ReduceOp, op)) for op in ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR")}


def group_named(name: str) -> Any:
    """The process group of a name. Raises what PyTorch raises if it is gone."""
    return torch._C._distributed_c10d._resolve_process_group(name)  # type: ignore[attr-defined, arg-type]


def functional(name: str) -> Any:
    """PyTorch's operator and the wait for its results."""
    packet = getattr(torch.ops._c10d_functional, name)
    start, wait = packet.default, torch.ops._c10d_functional.wait_tensor.default

    def run(*args: Any) -> Any:
        out = start(*args)
        return list(map(wait, out)) if isinstance(out, (list, tuple)) else wait(out)

    return run


def in_place(name: str) -> Any:
    """PyTorch's function, as the program would have called it."""
    fn = getattr(dist, RENAMED.get(name, ""), None) or getattr(dist, name.rstrip("_"))
    reduces = " op," in IN_PLACE[name]

    def run(*args: Any) -> None:
        *given, group = args
        if reduces:
            given[-1] = getattr(dist.ReduceOp, given[-1])
        fn(*given, group=group_named(group))

    return run


def shape(trace: Any, x: TracedTensor, sizes: tuple) -> TracedTensor:
    return new(trace, sizes, x.dtype, x.device)


def gathered(trace: Any, x: TracedTensor, n: int, group: str) -> TracedTensor:
    return shape(trace, x, (x.sizes[0] * n, *x.sizes[1:]) if x.sizes else (n,))


def scattered(trace: Any, x: TracedTensor, op: str, n: int, group: str) -> Any:
    return shape(trace, x, (x.sizes[0] // n, *x.sizes[1:])) if x.sizes else NotImplemented


def reduced(trace: Any, x: TracedTensor, op: str, group: str) -> TracedTensor:
    return shape(trace, x, x.sizes)


def exchanged(trace: Any, x: TracedTensor, received: Any, sent: Any, group: str) -> Any:
    return shape(trace, x, (sum(received), *x.sizes[1:])) if x.sizes else NotImplemented


def sent_to_all(trace: Any, x: TracedTensor, src: int, group: str) -> Any:
    return like(trace, x)


def of_each(rule: Any) -> Any:
    """The rule of several collectives at once."""
    return lambda trace, xs, *args: [rule(trace, x, *args) for x in xs]


SHAPES = {
    "all_reduce": reduced, "all_reduce_coalesced": of_each(reduced), "all_gather_into_tensor": gathered,
    "all_gather_into_tensor_coalesced": of_each(gathered), "reduce_scatter_tensor": scattered,
    "reduce_scatter_tensor_coalesced": of_each(scattered), "all_to_all_single": exchanged, "broadcast": sent_to_all,
}  # fmt: skip


def started(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """A functional collective of PyTorch's, recorded as the one that waits."""
    if kwargs or type(args[-1]) is not str:
        raise Untraceable(func, "its group is not given by name")
    if any([x.requires_grad for x in tensors_of(args)]) and (func not in DIFFERENTIABLE or func in REDUCING and args[1] != "sum"):
        raise Untraceable(func, "PyTorch has no derivative for it")
    return dispatch(trace, OURS[func], args, {})


def waited(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Every collective of the graph has been waited for. Raises Untraceable for a tensor from outside, of which nobody knows."""
    check(trace, func, args)
    x = args[0]
    if not any([x.storage_id in {o.storage_id for o in op.outs if type(o) is TracedTensor} for op in trace.ops if op.target in STARTED]):
        raise Untraceable(func, "it waits for a collective that was started outside")
    return x


def nothing_new(trace: Any, *args: Any) -> None:
    """In-place collectives return nothing."""


for _name, _schema in (FUNCTIONAL | IN_PLACE).items():
    LIBRARY.define(_name + _schema)
    LIBRARY.impl(_name, (functional if _name in FUNCTIONAL else in_place)(_name), "CompositeExplicitAutograd")
    RULES[getattr(OPS, _name).default] = SHAPES.get(_name, nothing_new)

OURS = {op: getattr(OPS, name).default for name in FUNCTIONAL if (op := overload(f"_c10d_functional::{name}")) is not None}
DIFFERENTIABLE = {op for op in OURS if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "Autograd")}
REDUCING = {op for op in OURS if "reduce_op" in [a.name for a in op._schema.arguments]}
STARTED = set(OURS.values())
for _op in OURS:
    HANDLERS[_op] = started
HANDLERS[torch.ops._c10d_functional.wait_tensor.default] = waited
