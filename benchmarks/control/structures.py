"""Control flow on data inside of Python's other structures: exceptions, contexts, generators, recursion, state of objects."""

from __future__ import annotations

import collections
import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from benchmarks.control.programs import Tensor, positive, program, rows


@program(lambda i, g: (torch.randn(6, 5 + i % 4, generator=g),))
def retried(x: Tensor) -> tuple:
    """A factorization, again with a larger diagonal until it succeeds; far from where rounding decides that."""
    a, jitter = x @ x.t() - 0.02 * torch.eye(6), 0.0
    for _ in range(6):
        try:
            return torch.linalg.cholesky(a + jitter * torch.eye(6)), jitter
        except RuntimeError:
            jitter = max(jitter * 10, 1e-3)
    return a, jitter


class Region:
    """A context that counts."""

    def __init__(self) -> None:
        self.entered = self.left = 0

    def __enter__(self) -> Region:
        self.entered += 1
        return self

    def __exit__(self, *_: Any) -> None:
        self.left += 1


@program(positive)
def in_a_context(x: Tensor) -> tuple:
    region = Region()
    with region:
        if x.sum() > 0:
            x = x.relu() * 2
        else:
            x = x.abs() + 1
    with contextlib.suppress(ValueError), region:
        if x.max() > 4:
            return x - 4, region.entered, region.left
    return x, region.entered, region.left


def chunks(x: Tensor, n: int) -> Iterator[Tensor]:
    for i in range(0, x.shape[0], n):
        yield x[i : i + n].cumsum(0)


@program(positive)
def generated(x: Tensor) -> Tensor:
    total = torch.zeros(16)
    for chunk in chunks(x, 4):
        total = total + (chunk.amax(0) if chunk.mean() > 0 else chunk.amin(0))
    return total


@program(positive)
def generated_until(x: Tensor) -> tuple:
    total, n = torch.zeros(16), 0
    for chunk in chunks(x, 4):
        total = total + chunk.mean(0)
        n += 1
        if total.norm() > 6:
            break
    return total, n


@program(lambda i, g: (torch.randn(33, generator=g), 5 + i % 20))
def selected(x: Tensor, k: int) -> Tensor:
    """The k-th smallest, by recursion."""
    pivot = x[x.shape[0] // 2]
    low, high = x[x < pivot], x[x > pivot]
    if k < low.shape[0]:
        return selected(low, k)
    if k >= x.shape[0] - high.shape[0]:
        return selected(high, k - (x.shape[0] - high.shape[0]))
    return pivot


@program(lambda i, g: (torch.randn(40, 4, generator=g),))
def split_tree(x: Tensor, depth: int = 0) -> list:
    """Halves until they vary little: the means of the leaves."""
    if depth == 3 or x.shape[0] < 4 or x.var(0).max() < 0.7:
        return [x.mean(0)]
    axis = int(x.var(0).argmax())
    middle = x[:, axis].median()
    return split_tree(x[x[:, axis] <= middle], depth + 1) + split_tree(x[x[:, axis] > middle], depth + 1)


@program(positive)
class Counted(nn.Module):
    """Counts which way it went."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.hot, self.level = 0, 0, 1.0
        self.seen = {"long": 0, "short": 0}

    def forward(self, x: Tensor) -> tuple:
        self.calls += 1
        if x.sum() > 0:
            self.hot += 1
            x = x * self.level
        else:
            self.level = self.level * 0.9
        if x.shape[0] > 16:
            self.seen["long"] += 1
        else:
            self.seen["short"] += 1
        return x + self.hot, self.seen["long"], self.calls


@program(lambda i, g: (torch.randn(4 + i % 5, 16, generator=g),))
class EarlyExit(nn.Module):
    """Layers until the answer is sure."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.heads = nn.ModuleList(nn.Linear(16, 3) for _ in range(4))

    def forward(self, x: Tensor) -> tuple:
        for i, (layer, head) in enumerate(zip(self.layers, self.heads, strict=True)):
            x = torch.relu(layer(x)) + x
            p = head(x).softmax(-1)
            if p.amax(-1).min() > 0.4:
                return p, i
        return p, -1


@program(lambda i, g: (torch.randn(8, generator=g) * 2,))
def line_search(x: Tensor) -> tuple:
    """Backtracking, `for` and `else`."""
    grad, f0 = 4 * x**3 - 2 * x, (x**4 - x**2).sum()
    step = 1.0
    for _ in range(12):
        y = x - step * grad
        if (y**4 - y**2).sum() < f0 - 1e-4 * step * (grad * grad).sum():
            break
        step *= 0.5
    else:
        y = x
    return y, step


@program(lambda i, g: (torch.randint(0, 5, (12,), generator=g), torch.randn(12, 4, generator=g)))
def matched(labels: Tensor, x: Tensor) -> Tensor:
    match int((labels > 2).sum()):
        case 0:
            return x
        case 1 | 2 | 3:
            return x[labels > 2].mean(0)
        case n if n % 2:
            return x * n
    return x.cumsum(0)


@program(lambda i, g: (torch.rand(24, 24, generator=g) > 0.93,))
def components(adjacent: Tensor) -> Tensor:
    """Labels go along the edges until none changes."""
    both = adjacent | adjacent.t() | torch.eye(24, dtype=torch.bool)
    labels, changed = torch.arange(24), True
    while changed:
        new = torch.where(both, labels[None, :], 24).amin(1)
        changed = bool((new != labels).any())
        labels = new
    return labels


@program(lambda i, g: (torch.randn(14, 3, generator=g),))
def far_apart(x: Tensor) -> Tensor:
    """Keep points that are far from all kept before."""
    kept = [x[0]]
    for p in x[1:]:
        if all((p - q).norm() > 1.2 for q in kept):
            kept.append(p)
    return torch.stack(kept)


@program(positive)
class Windowed(nn.Module):
    """Clips what is large beside the last four."""

    def __init__(self) -> None:
        super().__init__()
        self.norms: collections.deque[float] = collections.deque(maxlen=4)
        self.spikes = 0

    def forward(self, x: Tensor) -> tuple:
        norm = x.norm().item()
        if self.norms and norm > 1.3 * sum(self.norms) / len(self.norms):
            self.spikes += 1
            x = x * 0.5
        self.norms.append(norm)
        return x + 1, self.spikes


@program(lambda i, g: ([torch.randn(2 + (3 * i + 5 * j) % 14, 8, generator=g) for j in range(3)],))
def bucketed(parts: list[Tensor]) -> Tensor:
    """Each part padded to one of two lengths."""
    out = []
    for p in parts:
        n = 16 if p.shape[0] > 8 else 8
        padded = torch.zeros(n, 8)
        padded[: p.shape[0]] = p
        out.append(padded.cumsum(0)[-1] / n)
    return torch.stack(out)


class Found(Exception):
    """Carries what was found."""


def look(x: Tensor) -> None:
    for row in x[:4]:
        if row.max() > 2.5:
            raise Found(row.argmax())


@program(positive)
def found_by_exception(x: Tensor) -> tuple:
    try:
        look(x)
    except Found as e:
        return x + e.args[0], True
    return x - 1, False


@program(lambda i, g: ([torch.randn(6, generator=g) for _ in range(5)],))
def ordered(parts: list[Tensor]) -> Tensor:
    return torch.stack(sorted(parts, key=lambda p: p.sum().item())).cumsum(0)


@program(lambda i, g: (rows(i, g), ["a", "b", "c", "d"][: 1 + i % 4]))
def named(x: Tensor, names: list[str]) -> dict:
    """Pieces under names, as far as there are any."""
    out = {}
    for i, piece in enumerate(x.split(8)):
        key = names[i] if i < len(names) else f"rest{i}"
        out[key] = piece.mean(0) if piece.shape[0] == 8 else piece.sum(0)
    return out


@program(lambda i, g: (torch.randn(5, 12, generator=g), torch.randn(12, 12, generator=g) * 0.5))
def beams(start: Tensor, step: Tensor) -> list:
    """Beam search over lists of (score, tokens); those that end are set aside."""
    live: list[tuple] = [(0.0, [0])]
    done: list[tuple] = []
    for t in range(5):
        grown = []
        for score, tokens in live:
            logp = (start[t] + step[tokens[-1]]).log_softmax(-1)
            best = logp.topk(2)
            for p, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
                grown.append((score + p, [*tokens, token]))
        grown.sort(key=lambda b: -b[0])
        live = [b for b in grown[:3] if b[1][-1] != 3]
        done += [b for b in grown[:3] if b[1][-1] == 3]
        if not live:
            break
    return [tokens for _, tokens in sorted(done + live, key=lambda b: -b[0])]
