"""`torch.distributed` in the interpreter: process groups are known by name, in-place collectives become operators of the graph.

The functional collectives are Python code, which is interpreted; here and in `functional_collectives.py` are the functions below it that
ask about groups. Nothing in a capture talks to other processes: a group that would have to be made, and whatever is not listed, breaks
the graph.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from pliant.graph.collectives import OPS, REDUCTIONS, RENAMED, group_named
from pliant.graph.originals import ORIGINAL, is_grad_enabled, torch
from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.guards import views
from pliant.interpret import process_state
from pliant.interpret.calls import graph_call
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm


def refused(why: str) -> Break:
    return Break("PL0028", why, clean=True)


# -- groups ---------------------------------------------------------------------------------------------------------
@lookaside(c10d._WorldMeta.__dict__["WORLD"].fget)
def l_world(args: tuple, kw: dict) -> Any:
    """The default group."""
    return vm.world.locate(c10d._world.default_pg, S.const(c10d.GroupMember).apply("world_group"))


def name_of_group(group: Any) -> str:
    """The name of a group, which is guarded, as its size is. Raises Break for what is no group of this process."""
    if group is None:
        group = l_world((), {})
    if type(group) is str:
        return group
    source = vm.world.sources.get(id(group))
    if not isinstance(group, dist.ProcessGroup) or source is None:
        raise refused("a collective of a group that is none, or of which this process is no member")
    try:
        known = views.group_identity(group)
    except Exception as e:
        raise refused(f"a process group that its name does not lead to ({e})") from e
    vm.world.guard(source.apply("group_identity"), "EQ_MATCH", known)
    return str(group.group_name)


def group_size(name: str) -> int:
    """How many processes a group has. The guards of each call ask it again."""
    return group_named(name).size()


def group_rank(name: str) -> int:
    """Which of them this one is."""
    return group_named(name).rank()


def asked(fn: Callable[[str], int], name: str) -> int:
    try:
        return int(process_state.note("itself", fn, (name,), {}, fn(name)))
    except RuntimeError as e:
        raise refused(f"a process group that its name does not lead to ({e})") from e


@lookaside(c10d._get_group_size_by_name)
def l_group_size(args: tuple, kw: dict) -> int:
    return asked(group_size, name_of_group(*args, **kw))


def of_group(fn: Any, ask: Callable[[str], int]) -> None:
    def answer(args: tuple, kw: dict) -> int:
        group = args[0] if args else kw.get("group")
        if group is None:
            return int(process_state.note("itself", fn, (), {}, fn()))
        return asked(ask, name_of_group(group))

    lookaside(fn)(answer)


of_group(dist.get_rank, group_rank)
of_group(dist.get_world_size, group_size)


@lookaside(torch._utils._chunk_or_narrow_cat)
def l_chunk_cat(args: tuple, kw: dict) -> Any:
    """Without the question whether sizes are known."""
    x, n, split, joined = bound(torch._utils._chunk_or_narrow_cat, args, kw).values()
    return graph_call(torch.cat, (graph_call(torch.chunk, (x, n, split), {}), joined), {})


# -- in place -------------------------------------------------------------------------------------------------------
def bound(fn: Any, args: tuple, kw: dict) -> dict[str, Any]:
    """Arguments by name, defaults among them. What does not fit is left to CPython, which says so."""
    try:
        b = inspect.signature(fn).bind(*args, **kw)
    except TypeError as e:
        raise refused(str(e)) from e
    b.apply_defaults()
    return dict(b.arguments)


def reduction(op: Any) -> str:
    """The name of a reduction."""
    name = next((name for name, text in REDUCTIONS.items() if str(op) == text), "")
    if not name or not isinstance(op, (dist.ReduceOp, dist.ReduceOp.RedOpType)):
        raise refused("a reduction with a factor, or that is none")
    source = vm.world.source_of(op)
    if source is not None:
        vm.world.guard(source, "ID_MATCH", op)
    return name


def tensor_list(v: Any) -> list[TracedTensor]:
    found = [vm.getitem(v, i) for i in range(vm.length(v))] if type(v) in (list, tuple) else []
    if not found or not all([type(x) is TracedTensor for x in found]):
        raise refused("a collective of a list that holds other things than tensors")
    return found


LISTS = {"tensor_list", "input_list"}


def in_place(name: str, called: str = "") -> None:
    """Register the replacement of a function of `torch.distributed` that waits: the operator of its name, which may be an older one."""
    fn, target = getattr(dist, called or name, None), getattr(OPS, name + "_").default
    if fn is None:
        return
    names = [a.name for a in target._schema.arguments if a.name != "group"]

    def run(args: tuple, kw: dict) -> None:
        given = bound(signed, args, kw)
        if given.get("async_op") is not False:
            raise refused("a collective that the program waits for later")
        if any([given.get(k) is not None for k in ("group_src", "group_dst", "device_ids")]):
            raise refused("a collective with a rank of its group, or with devices")
        group = name_of_group(given["group"])
        values = [reduction(given[k]) if k == "op" else tensor_list(given[k]) if k in LISTS else given[k] for k in names]
        tensors = [x for v in values for x in (v if type(v) is list else [v]) if type(x) is TracedTensor]
        if is_grad_enabled() and any([x.requires_grad for x in tensors]):
            raise refused("an in-place collective of tensors with gradients")
        if any([ORIGINAL.is_complex(x) for x in tensors]) or c10d._world.pg_coalesce_state:
            raise refused("a collective of complex numbers, or one that is coalesced with others")
        graph_call(target, (*values, group), {})

    signed: Any = fn
    while isinstance(fn, types.FunctionType):  # the function itself, and wrappers that log, but not those that warn
        if fn.__globals__.get("__name__", "").startswith("torch.distributed"):
            lookaside(fn)(run)
        fn = getattr(fn, "__wrapped__", None)


for _name in (
    "all_reduce", "broadcast", "reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter", "reduce_scatter_tensor",
    "all_to_all_single", "barrier",
):  # fmt: skip
    in_place(_name)
for _name, _new in RENAMED.items():
    in_place(_name.rstrip("_"), _new)
