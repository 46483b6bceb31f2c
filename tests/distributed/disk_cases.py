"""Programs of several processes that leave entries to the next ones, and the same programs where something is otherwise."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import register_sharding
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

import pliant

LENGTHS = (4, 6, 4)
VARIANTS = {
    "order": ("product", "part", "training"), "names": ("product", "training"), "placement": ("product", "whole"), "rule": ("product",),
}  # fmt: skip
"""What may be otherwise, and the programs that have to be captured again for it."""
CASES: dict[str, Callable[[int], dict]] = {}


def mesh_here(variant: str) -> Any:
    ranks = list(range(dist.get_world_size()))
    if variant == "names":
        return init_device_mesh("cpu", (len(ranks),), mesh_dim_names=("processes",))
    return dist.DeviceMesh("cpu", ranks[::-1] if variant == "order" else ranks)


def functional_collective(x, mesh):
    return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1


def collective_in_place(x, mesh):
    y = x * 2
    dist.all_reduce(y)
    return y + dist.get_rank()


def product(x, mesh):
    return (x @ x.t()).sin()


def part(x, mesh):
    whole = DTensor.from_local(x.to_local(), mesh, [Shard(0)]).redistribute(placements=[Replicate()]).to_local()
    return whole * mesh.get_local_rank()


def whole(x, mesh):
    return x.redistribute(placements=[Replicate()]).mean()


def local(v: Any) -> Any:
    return (v.placements, v.device_mesh, v.full_tensor() + 0) if type(v) is DTensor else (v + 0,)


def compared(fn: Callable, distributed: bool, variant: str = "") -> Callable[[int], dict]:
    def case(rank: int) -> dict:
        mesh = mesh_here(variant)
        if variant == "rule":
            register_sharding(torch.ops.aten.sin.default)(lambda x: [([Replicate()], [Replicate()])])
        compiled = pliant.compile(fn, background=False, strict=True)
        for n in LENGTHS:
            x = torch.randn(n, 4, generator=torch.Generator().manual_seed(n + (0 if distributed else rank)))
            given = distribute_tensor(x, mesh, [Shard(1 if variant == "placement" else 0)]) if distributed else x
            with torch.no_grad():
                want, got = local(fn(given, mesh)), local(compiled(given, mesh))
            assert want[:-1] == got[:-1]
            torch.testing.assert_close(want[-1], got[-1])
        return {}

    return case


class Feedforward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x):
        return self.down(torch.tanh(self.up(x)))


def training(rank: int, variant: str = "") -> dict:
    mesh = mesh_here(variant)
    torch.manual_seed(0)
    m = parallelize_module(Feedforward(), mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})
    compiled = pliant.compile(m, background=False, strict=True)
    for n in LENGTHS:
        x = torch.randn(n, 4, generator=torch.Generator().manual_seed(n))
        found = []
        for f in (m, compiled):
            m.zero_grad()
            f(x).square().mean().backward()
            found.append([local(p.grad) for p in m.parameters()])
        for want, got in zip(*found, strict=True):
            assert want[:-1] == got[:-1]
            torch.testing.assert_close(want[-1], got[-1])
    return {}


for _fn in (functional_collective, collective_in_place):
    CASES[_fn.__name__] = compared(_fn, False)
for _fn in (product, part, whole):
    CASES[_fn.__name__] = compared(_fn, True)
CASES["training"] = training
ALIKE = list(CASES)
for _variant, _names in VARIANTS.items():
    for _name in _names:
        made = functools.partial(training, variant=_variant) if _name == "training" else compared(globals()[_name], True, _variant)
        CASES[f"{_name}, {_variant}"] = made
OTHERS = [name for name in CASES if name not in ALIKE]
