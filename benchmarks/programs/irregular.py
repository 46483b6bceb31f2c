"""Work whose sizes come from the data, and Python that is mostly control flow."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from benchmarks.programs.program import Program, generator, seeded, sizes

COUNT = 30


def masks(x: torch.Tensor, labels: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Keep what is positive, gather it by class, normalize each class by its count."""
    kept = x[x > 0.3]
    index = (labels > 1).nonzero().squeeze(1)
    classes, inverse, counts = torch.unique(labels, return_inverse=True, return_counts=True)
    sums = torch.zeros(classes.shape[0], x.shape[1]).index_add_(0, inverse, x)
    means = sums / counts[:, None].to(x.dtype)
    if index.numel() > 4:
        means = means + x[index].mean(0)
    return kept.sum(), kept.shape[0] * torch.ones(()), means, classes


def labelled() -> list[tuple]:
    g = generator()
    return [(torch.randn(n, 32, generator=g), torch.randint(0, 12, (n,), generator=g)) for n in sizes(COUNT, 10, 2000, seed=21)]


class Mixture(nn.Module):
    """Top-2 routing; a Python loop over the experts, each given the tokens that chose it (sometimes none)."""

    def __init__(self, width: int = 64, experts: int = 8) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, 128), nn.SiLU(), nn.Linear(128, width)) for _ in range(experts))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        weights, chosen = self.router(x).softmax(-1).topk(2, dim=-1)
        out = torch.zeros_like(x)
        for i, expert in enumerate(self.experts):
            token, slot = torch.where(chosen == i)
            if token.numel() == 0:
                continue
            out.index_add_(0, token, expert(x[token]) * weights[token, slot, None])
        return out


def token_rows() -> list[tuple]:
    g = generator()
    return [(torch.randn(n, 64, generator=g),) for n in sizes(COUNT, 2, 300, seed=22)]


def pool_ragged(values: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
    """Split by 100 lengths (zeros among them), pool each piece, stack."""
    pieces = values.split(lengths.tolist())
    pooled = [piece.sum(0) / max(piece.shape[0], 1) for piece in pieces]
    return torch.stack(pooled)


def ragged() -> list[tuple]:
    g = generator()
    out = []
    for _ in range(COUNT):
        lengths = torch.randint(0, 20, (100,), generator=g)
        out.append((torch.randn(int(lengths.sum()), 16, generator=g), lengths))
    return out


class GraphNetwork(nn.Module):
    """Three rounds of messages along edges, summed and max-pooled at their targets, then one vector a graph."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.message = nn.ModuleList(nn.Linear(2 * width, width) for _ in range(3))
        self.update = nn.ModuleList(nn.Linear(3 * width, width) for _ in range(3))

    def forward(self, x: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
        source, target = edges
        for message, update in zip(self.message, self.update):
            m = torch.relu(message(torch.cat([x[source], x[target]], dim=1)))
            total = torch.zeros_like(x).scatter_add(0, target[:, None].expand_as(m), m)
            largest = torch.zeros_like(x).scatter_reduce(0, target[:, None].expand_as(m), m, reduce="amax")
            x = x + torch.relu(update(torch.cat([x, total, largest], dim=1)))
        graphs = int(graph.max()) + 1
        counts = torch.bincount(graph, minlength=graphs).clamp(min=1)
        return torch.zeros(graphs, x.shape[1]).index_add(0, graph, x) / counts[:, None]


def graphs() -> list[tuple]:
    g = generator()
    out = []
    for nodes, edges, count in zip(sizes(COUNT, 20, 400, seed=23), sizes(COUNT, 40, 1500, seed=24), sizes(COUNT, 2, 9, seed=25)):
        graph = torch.randint(0, count, (nodes,), generator=g).sort().values
        out.append((torch.randn(nodes, 64, generator=g), torch.randint(0, nodes, (2, edges), generator=g), graph))
    return out


def nms(boxes: torch.Tensor, scores: torch.Tensor, threshold: float = 0.5) -> torch.Tensor:
    """Greedy suppression, one kept box a turn of the loop: the indices of the kept boxes, best first."""
    order = scores.argsort(descending=True)
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i)
        rest = order[1:]
        low = torch.maximum(boxes[i, :2], boxes[rest, :2])
        high = torch.minimum(boxes[i, 2:], boxes[rest, 2:])
        inter = (high - low).clamp(min=0).prod(1)
        overlap = inter / (areas[i] + areas[rest] - inter)
        order = rest[overlap <= threshold]
    return torch.stack(keep)


def detections() -> list[tuple]:
    g = generator()
    out = []
    for n in sizes(COUNT, 5, 60, seed=26):
        corner = torch.rand(n, 2, generator=g) * 60
        out.append((torch.cat([corner, corner + 10 + torch.rand(n, 2, generator=g) * 30], dim=1), torch.rand(n, generator=g)))
    return out


class Flow(nn.Module):
    """Settings from a dict, a step counter, branches on sizes and on data, a list that grows, prints, an exception caught."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Linear(16, 16)
        self.calls = 0
        self.log: list[tuple[int, int]] = []

    def forward(self, xs: list[torch.Tensor], settings: dict[str, Any]) -> dict[str, torch.Tensor]:
        self.calls += 1
        out: dict[str, torch.Tensor] = {}
        for i, x in enumerate(xs):
            if settings.get("scale") and i % 2 == 0:
                x = self.scale(x)
            if x.shape[0] > 16:
                x = x[: x.shape[0] // 2]
            if x.sum() < 0:
                print(f"call {self.calls}: part {i} is negative")
                x = -x
            try:
                out[settings["names"][i]] = x.mean(0)
            except IndexError:
                print(f"call {self.calls}: no name for part {i}, {len(settings['names'])} names")
                out[f"part{i}"] = x.amax(0)
        self.log.append((self.calls, len(out)))
        if len(self.log) > 5:
            self.log.pop(0)
        return {name: value * len(self.log) for name, value in sorted(out.items())}


def parts() -> list[tuple]:
    g = generator()
    out = []
    for call, count in enumerate(sizes(COUNT, 1, 6, seed=27)):
        xs = [torch.randn(n, 16, generator=g) for n in sizes(count, 2, 40, seed=100 + call)]
        out.append((xs, {"scale": call % 3 != 0, "names": ["left", "right", "top", "bottom"][: 1 + call % 4]}))
    return out


PROGRAMS = (
    Program("masks", "masks, nonzero, unique", lambda: masks, labelled),
    Program("moe", "mixture of experts, loop", seeded(lambda: Mixture().eval()), token_rows),
    Program("ragged", "100 ragged lengths, split, pool", lambda: pool_ragged, ragged),
    Program("gnn", "GNN, scatter", seeded(lambda: GraphNetwork().eval()), graphs),
    Program("nms", "NMS loop", lambda: nms, detections),
    Program("flow", "Python-heavy flow with prints", seeded(lambda: Flow().eval()), parts),
)
