"""`python -m benchmarks.distributed`: training in two processes over gloo, eager, compiled by pliant and by `torch.compile`.

A small GPT is trained on 30 lengths with DistributedDataParallel or `fully_shard` and each optimizer under a scheduler; model and
optimizer step are compiled. Every row runs in fresh processes with one thread each: eager, then the other, so ratios are those of one
moment. "step" is the mean of a second pass over the lengths, by the clock and by the time of the processor (which counts no waiting).
"late" are captures in that second pass, "difference" the largest of a loss from eager's.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

import pliant

WORLD, LENGTHS, WORDS = 2, 30, 512
OPTIMIZERS: dict[str, Callable[[Any], torch.optim.Optimizer]] = {
    "Adam": lambda ps: torch.optim.Adam(ps, lr=1e-3),
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=1e-3),
    "SGD": lambda ps: torch.optim.SGD(ps, lr=1e-2, momentum=0.9),
    "Adafactor": lambda ps: torch.optim.Adafactor(ps, lr=1e-2),
}


class Block(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.proj = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.up, self.down = nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, d = x.shape
        q, k, v = [t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, n, d))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class GPT(nn.Module):
    def __init__(self, d: int = 128, heads: int = 4, layers: int = 4) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, d), nn.Embedding(256, d)
        self.blocks = nn.ModuleList([Block(d, heads) for _ in range(layers)])
        self.norm, self.out = nn.LayerNorm(d), nn.Linear(d, WORDS)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.words(x) + self.places(torch.arange(x.shape[1]))
        for block in self.blocks:
            h = block(h)
        return self.out(self.norm(h))


def sharded(model: GPT) -> nn.Module:
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return model


WRAPS: dict[str, Callable[[Any], nn.Module]] = {"DDP": DistributedDataParallel, "FSDP2": sharded}
COMPILERS: dict[str, Callable[[Any], Any]] = {
    "eager": lambda f: f,
    "pliant": pliant.compile,
    "torch": lambda f: torch.compile(f, dynamic=True),
}


def batch(rank: int, i: int) -> torch.Tensor:
    n = 16 + (i * 37) % 113
    return torch.randint(0, WORDS, (8, n), generator=torch.Generator().manual_seed(1000 * i + rank))


def captures(system: str) -> int:
    if system == "pliant":
        return pliant.stats()["captures"]
    return torch._dynamo.utils.counters["stats"]["unique_graphs"] if system == "torch" else 0


def work(rank: int, folder: str, system: str, wrap: str, optimizer: str) -> None:
    """One process: two passes over the lengths."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    limit = timedelta(seconds=300)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORLD, timeout=limit)
    torch.manual_seed(0)
    compiler = COMPILERS[system]
    model = WRAPS[wrap](GPT())
    opt = OPTIMIZERS[optimizer](list(model.parameters()))
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 2 * LENGTHS)
    run, step = compiler(model), compiler(opt.step)
    losses, seconds, marks = [], [], []
    for i in range(2 * LENGTHS):
        if i == LENGTHS:
            if system == "pliant":
                pliant.synchronize()
            dist.barrier()
            marks = [captures(system), time.perf_counter(), time.process_time()]
        start = time.perf_counter()
        x = batch(rank, i % LENGTHS)
        loss = F.cross_entropy(run(x).flatten(0, 1), x.flatten())
        opt.zero_grad()
        loss.backward()
        step()
        scheduler.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
    found = {
        "losses": losses, "first": seconds[0], "cold": sum(seconds[:LENGTHS]), "captures": captures(system),
        "late": captures(system) - marks[0], "clock": (time.perf_counter() - marks[1]) / LENGTHS,
        "processor": (time.process_time() - marks[2]) / LENGTHS, "breaks": pliant.stats()["graph_breaks"] if system == "pliant" else
        sum(torch._dynamo.utils.counters["graph_break"].values()) if system == "torch" else 0,
    }  # fmt: skip
    dist.destroy_process_group()
    if rank == 0:
        with open(os.path.join(folder, "found.json"), "w") as out:
            json.dump(found, out)


def measured(system: str, wrap: str, optimizer: str, limit: float) -> dict | None:
    """What rank 0 saw; None if the processes did not finish."""
    with tempfile.TemporaryDirectory() as folder:
        context = torch.multiprocessing.get_context("spawn")
        workers = [context.Process(target=work, args=(rank, folder, system, wrap, optimizer), daemon=True) for rank in range(WORLD)]
        for w in workers:
            w.start()
        end = time.monotonic() + limit
        for w in workers:
            w.join(max(0.0, end - time.monotonic()))
        for w in workers:
            if w.is_alive():
                w.kill()
                w.join()
        path = os.path.join(folder, "found.json")
        return json.load(open(path)) if os.path.exists(path) else None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--systems", default="pliant", help="of pliant, torch")
    parser.add_argument("--wraps", default="DDP,FSDP2")
    parser.add_argument("--optimizers", default="Adam,AdamW,SGD,Adafactor")
    parser.add_argument("--limit", type=float, default=300, help="seconds for a row")
    parser.add_argument("--json")
    given = parser.parse_args()
    heads = "training, system, first step, 30 lengths, clock, processor, captures, late, breaks, difference"
    table = Table(*heads.split(", "), title="in brackets: eager; clock and processor: how many times as fast a step is in the second pass")
    rows = []
    for wrap in given.wraps.split(","):
        for optimizer in given.optimizers.split(","):
            eager = measured("eager", wrap, optimizer, given.limit)
            for system in given.systems.split(","):
                found = measured(system, wrap, optimizer, given.limit)
                if eager is None or found is None:
                    table.add_row(f"{wrap}, {optimizer}", system, "not finished")
                    continue
                difference = max(abs(a - b) for a, b in zip(eager["losses"], found["losses"], strict=True))
                rows.append({"training": f"{wrap}, {optimizer}", "system": system, **found, "eager": eager, "difference": difference})
                table.add_row(
                    f"{wrap}, {optimizer}", system, f"{found['first']:.2f} s ({eager['first']:.2f})",
                    f"{found['cold']:.2f} s ({eager['cold']:.2f})", f"{eager['clock'] / found['clock']:.2f}x",
                    f"{eager['processor'] / found['processor']:.2f}x",
                    str(found["captures"]), str(found["late"]), str(found["breaks"]), f"{difference:.1e}",
                )  # fmt: skip
    Console(width=160).print(table)
    if given.json:
        with open(given.json, "w") as out:
            json.dump(rows, out)


if __name__ == "__main__":
    main()
