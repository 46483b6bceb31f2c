"""What runs in two processes: programs with collectives, and trainings with DistributedDataParallel and `fully_shard`."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as fc
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pliant

CASES: dict[str, Callable[[int], dict]] = {}
SIZES = (3, 5, 8, 2)


# -- collectives ------------------------------------------------------------------------------------------------------
def all_reduce(x):
    return fc.all_reduce(x * 2, "sum", dist.group.WORLD) + 1


def all_gather(x):
    return fc.all_gather_single(x * 2, 0, dist.group.WORLD).relu()


def all_gather_columns(x):
    return fc.all_gather_single(x * 2, 1, dist.group.WORLD).relu()


def reduce_scatter(x):
    return fc.reduce_scatter_single(torch.cat([x, x]), "sum", 0, dist.group.WORLD) * 3


def all_to_all(x):
    return fc.all_to_all_single(torch.cat([x, x + 1]), None, None, dist.group.WORLD) * 3


def all_to_all_sized(x):
    n = x.shape[0]
    return fc.all_to_all_single(torch.cat([x, x + 1]), [n, n], [n, n], dist.group.WORLD) * 3


def coalesced(x):
    a, b = fc.all_reduce_coalesced([x, x + 1], "sum", dist.group.WORLD)
    return a * b


def permuted(x):
    return fc.permute_tensor((x + 1).flatten(), [1, 0], dist.group.WORLD) * 2


def broadcast(x):
    return fc.broadcast(x + 1, 0, dist.group.WORLD) * 2


def in_place(x):
    y = x * 2
    dist.all_reduce(y, op=dist.ReduceOp.MAX)
    z = y + dist.get_rank()
    dist.broadcast(z, src=1)
    return y + z


def of_an_argument(x):
    dist.all_reduce(x)
    return x + 1


def into_lists(x):
    out = [torch.empty_like(x) for _ in range(dist.get_world_size())]
    dist.all_gather(out, x * 2)
    mine = torch.empty_like(x)
    dist.reduce_scatter(mine, [out[1], out[0] * 2])
    return torch.cat([*out, mine])


def into_tensors(x):
    out = x.new_empty(2 * x.shape[0], *x.shape[1:])
    dist.all_gather_single(out, x * 2)
    mine = torch.empty_like(x)
    dist.reduce_scatter_single(mine, out)
    back = torch.empty_like(out)
    dist.all_to_all_single(back, out + 1)
    return back, mine


def nobody_reads(x):
    y = x * 2
    dist.all_reduce(y)  # the others wait for it all the same
    dist.barrier()
    return x + 1


def in_order(x):
    """Operations of one memory before and behind a collective keep their places."""
    y = x + 1
    before = y.sum()
    dist.all_reduce(y)
    y.mul_(2)
    between = y.sum()
    dist.all_reduce(y)
    return before, between, y


def later(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = x + 1
    work.wait()
    return y + z


def refused_by_gloo(x):
    try:
        dist.all_reduce(x.to(torch.complex64), op=dist.ReduceOp.MAX)
    except Exception as e:
        return x + len(type(e).__name__)


PROGRAMS = (
    all_reduce, all_gather, all_gather_columns, reduce_scatter, all_to_all, all_to_all_sized, coalesced, permuted, broadcast, in_place,
    of_an_argument, into_lists, into_tensors, nobody_reads, in_order,
)  # fmt: skip
DIFFERENTIATED = (all_reduce, all_gather, all_gather_columns, reduce_scatter, all_to_all, all_to_all_sized, coalesced)
BROKEN = (later, refused_by_gloo)


def same(fn: Callable, rank: int, grad: bool = False) -> dict:
    """Is every answer, argument and gradient that of eager? And what it took."""
    compiled = pliant.compile(fn)
    counts = []
    for n in SIZES:
        x = torch.randn(n, 4, generator=torch.Generator().manual_seed(10 * n + rank))
        a, b = x.clone().requires_grad_(grad), x.clone().requires_grad_(grad)
        want, got = fn(a), compiled(b)
        for w, g in zip(*[v if isinstance(v, tuple) else (v,) for v in (want, got)], strict=True):
            torch.testing.assert_close(g + 0, w + 0, rtol=1e-6, atol=1e-6)  # eager's may be one that waits when it is used
            if grad:
                w.sum().backward()
                g.sum().backward()
        assert torch.equal(a, b)
        if grad:
            assert a.grad is not None
            torch.testing.assert_close(b.grad, a.grad, rtol=1e-6, atol=1e-6)
        counts.append(pliant.stats()["captures"])
    return {"captures": counts}


for _fn in (*PROGRAMS, *BROKEN):
    CASES[_fn.__name__] = lambda rank, fn=_fn: same(fn, rank)
for _fn in DIFFERENTIATED:
    CASES[f"{_fn.__name__}, gradients"] = lambda rank, fn=_fn: same(fn, rank, grad=True)


def another_default_group(rank: int) -> dict:
    """Whoever compiles for one group is captured anew for another."""

    def program(x, group):
        return fc.all_reduce(x, "sum", group) * dist.get_world_size(group)

    alone = [dist.new_group([r]) for r in range(2)][rank]
    f = pliant.compile(program)
    x = torch.ones(3) * (rank + 1)
    for group in (dist.group.WORLD, alone, dist.group.WORLD, alone):
        assert torch.equal(f(x, group), program(x, group) + 0)
    return {"captures": pliant.stats()["captures"]}


def one_rank_compiles_more(rank: int) -> dict:
    """One process meets a size that makes it compile, the other does not: nothing is waited for but the program's collectives."""

    def program(x):
        y = x.sum(0) if x.shape[0] > 4 else x.mean(0)
        dist.all_reduce(y)
        return y

    f = pliant.compile(program)
    for n in (3, 4, 9 if rank else 3, 12 if rank else 4, 2):
        x = torch.full((n, 4), float(n))
        assert torch.equal(f(x), program(x))
    return {"captures": pliant.stats()["captures"]}


CASES["another group"] = another_default_group
CASES["one rank compiles more"] = one_rank_compiles_more


# -- training ---------------------------------------------------------------------------------------------------------
class Block(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Model(nn.Module):
    def __init__(self, d: int = 16, words: int = 30) -> None:
        super().__init__()
        self.table = nn.Embedding(words, d)
        self.blocks = nn.ModuleList([Block(d) for _ in range(3)])
        self.out = nn.Linear(d, words)

    def forward(self, x):
        h = self.table(x)
        for block in self.blocks:
            h = block(h)
        return self.out(h)


def sharded(model: Model) -> nn.Module:
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


def batch(rank: int, i: int) -> torch.Tensor:
    return torch.randint(0, 30, (2, 4 + (i * 7) % 23), generator=torch.Generator().manual_seed(100 * i + rank))


OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=1e-3),
    "SGD": lambda ps: torch.optim.SGD(ps, lr=1e-2, momentum=0.9),
}


def losses(rank: int, wrap: Callable, optimizer: str, steps: int, compile_step: bool) -> tuple[list[float], list[int]]:
    torch.manual_seed(0)
    model = wrap(Model())
    opt = OPTIMIZERS[optimizer](list(model.parameters()))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    step = pliant.compile(opt.step) if compile_step else opt.step
    found, captures = [], []
    for i in range(steps):
        x = batch(rank, i)
        loss = F.cross_entropy(model(x).flatten(0, 1), x.flatten())
        opt.zero_grad()
        loss.backward()
        step()
        scheduler.step()
        found.append(loss.item())
        captures.append(pliant.stats()["captures"])
    return found, captures


def trained(wrap: Callable, compiled: Callable, optimizer: str, steps: int = 12) -> Callable[[int], dict]:
    def case(rank: int) -> dict:
        want, _ = losses(rank, wrap, optimizer, steps, False)
        got, captures = losses(rank, compiled, optimizer, steps, True)
        return {"difference": max(abs(a - b) for a, b in zip(want, got, strict=True)), "captures": captures}

    return case


CASES["DDP around a compiled module"] = trained(DistributedDataParallel, lambda m: DistributedDataParallel(pliant.compile(m)), "AdamW")
CASES["a compiled DDP module"] = trained(DistributedDataParallel, lambda m: pliant.compile(DistributedDataParallel(m)), "SGD")
CASES["a compiled sharded module"] = trained(sharded, lambda m: pliant.compile(sharded(m)), "AdamW")


def compiled_units(model: Model) -> nn.Module:
    for i, block in enumerate(model.blocks):
        model.blocks[i] = pliant.compile(block)
    return sharded(model)


CASES["sharded compiled modules"] = trained(sharded, compiled_units, "SGD")


def without_synchronization(rank: int) -> dict:
    """`no_sync()`: gradients of some steps stay with their process, as in eager."""

    def gradients(compiled: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = DistributedDataParallel(Model())
        f = pliant.compile(model) if compiled else model
        for i in range(3):
            with model.no_sync() if i < 2 else torch.enable_grad():
                f(batch(rank, i)).sum().backward()
        return [copy.copy(p.grad) for p in model.parameters()]

    for a, b in zip(gradients(False), gradients(True), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)
    return {}


CASES["DDP without synchronization"] = without_synchronization
