"""A small GPT, trained on a mesh: data-parallel, tensor-parallel, or as a pipeline.

    python examples/remote/gpt.py --parallel data --workers 4
    python examples/remote/gpt.py --parallel tensor --workers 2
    python examples/remote/gpt.py --parallel pipeline --workers 2

One program, no ranks: the step is the one that a single process runs. The sizes of the batch change with every step.
"""

from __future__ import annotations

import argparse

import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant import remote


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        h = self.norm1(x)
        q, k, v = (f(h).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        h = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(h.transpose(1, 2).reshape(b, t, -1))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Embedded(nn.Module):
    def __init__(self, vocabulary: int, width: int, most: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(most, width)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) + self.places(torch.arange(ids.shape[1]))


class Head(nn.Module):
    def __init__(self, vocabulary: int, width: int) -> None:
        super().__init__()
        self.norm, self.out = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.norm(x))


def gpt(vocabulary: int = 256, width: int = 64, heads: int = 4, layers: int = 2, most: int = 128) -> nn.Sequential:
    return nn.Sequential(Embedded(vocabulary, width, most), *(Block(width, heads) for _ in range(layers)), Head(vocabulary, width))


def loss_of(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), ids[:, 1:].flatten())


def trainer(model: nn.Module, optimizer: torch.optim.Optimizer):
    def step(ids: torch.Tensor) -> torch.Tensor:
        loss = loss_of(model(ids), ids)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def tensor_parallel(mesh: remote.Mesh, model: nn.Sequential) -> nn.Module:
    """Heads and the inner width of each block are cut; the rest is on every worker."""
    for block in model:
        if isinstance(block, Block):
            mesh.place(block, {
                **{f"{n}.{w}": remote.Shard(0) for n in ("q", "k", "v", "up") for w in ("weight", "bias")},
                "out.weight": remote.Shard(1), "down.weight": remote.Shard(1),
            })  # fmt: skip
        else:
            mesh.replicate(block)
    return model


def batches(steps: int, rows: int, most: int, vocabulary: int):
    generator = torch.Generator().manual_seed(0)
    for i in range(steps):
        yield torch.randint(0, vocabulary, (rows + i % 3, 8 + (i * 5) % (most - 8)), generator=generator)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--parallel", choices=("data", "tensor", "pipeline"), default="data")
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--transport", default="ray")
    o = parser.parse_args()
    torch.manual_seed(0)
    model = gpt()
    with remote.mesh(workers=o.workers, transport=o.transport) as mesh:
        if o.parallel == "pipeline":
            pipeline = remote.Pipeline(mesh, model, loss_of, lambda p: torch.optim.AdamW(p, lr=1e-3))
            for i, ids in enumerate(batches(o.steps, 8, 64, 256)):
                print(i, tuple(ids.shape), f"{float(pipeline.step(ids, ids, micro_batches=4)):.4f}")
            return
        if o.parallel == "data":
            mesh.replicate(model)
        else:
            tensor_parallel(mesh, model)
        step = pliant.compile(trainer(model, torch.optim.AdamW(model.parameters(), lr=1e-3)), on=mesh)
        for i, ids in enumerate(batches(o.steps, 8, 64, 256)):
            loss = step(mesh.shard(ids) if o.parallel == "data" else mesh.replicate(ids))
            print(i, tuple(ids.shape), f"{float(loss):.4f}")


if __name__ == "__main__":
    main()
