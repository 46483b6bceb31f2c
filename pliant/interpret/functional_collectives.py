"""What is replaced of PyTorch's functional collectives. Imported once the program has imported them (`needed.py`)."""

from __future__ import annotations

from typing import Any

import torch.distributed as dist
from torch.distributed import _functional_collectives as functional

from pliant.interpret.calls import call
from pliant.interpret.collectives import asked, bound, group_rank, group_size, name_of_group, refused
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import vm


@lookaside(functional._resolve_group)
def l_resolve_group(args: tuple, kw: dict) -> str:
    """What the functional collectives take for a group: it, its name, a mesh of one dim, or a mesh and a dim."""
    group = args[0] if args else kw["group"]
    dim = 0
    if type(group) is tuple and len(group) == 2:
        group, dim = group
    if isinstance(group, dist.DeviceMesh):
        if type(dim) is not int or (type(args[0] if args else None) is not tuple and vm.getattr(group, "ndim") != 1):
            raise refused("a mesh of several dims as a group")
        group = vm.getitem(vm.getattr(group, "_dim_group_names"), dim)
    if group is None or not isinstance(group, (str, dist.ProcessGroup)):
        raise refused("a group given by its ranks")
    return name_of_group(group)


@lookaside(functional.permute_tensor)
def l_permute_tensor(args: tuple, kw: dict) -> Any:
    """Spelled out without the look-up of a group by its ranks, which may make one."""
    x, to, group, *_ = bound(functional.permute_tensor, args, kw).values()
    name = l_resolve_group((group,), {})
    n, mine = asked(group_size, name), asked(group_rank, name)
    elements = call(vm.getattr(x, "numel"), (), {})
    to = [vm.getitem(to, i) for i in range(vm.length(to))]
    if not all([type(i) is int for i in to]):
        raise refused("a permutation that is not constant")
    received = [elements if src < len(to) and to[src] == mine else 0 for src in range(n)]
    sent = [elements if mine < len(to) and to[mine] == dst else 0 for dst in range(n)]
    return call(functional.all_to_all_single, (x, received, sent, name), {})
