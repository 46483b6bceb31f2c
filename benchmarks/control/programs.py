"""Programs with Python control flow on the values of tensors: branches, loops, lists that grow, early exits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Tensor = torch.Tensor
CALLS = 24


@dataclass(frozen=True, slots=True)
class Program:
    """`make()` builds the function or module; `args(i, g)` the arguments of call i, drawn from `g`. `grad`: it is differentiated."""

    name: str
    make: Callable[[], Callable[..., Any]]
    args: Callable[[int, torch.Generator], tuple]
    grad: bool = False


PROGRAMS: dict[str, Program] = {}


def program(args: Callable[[int, torch.Generator], tuple], *, grad: bool = False) -> Callable[[Any], Any]:
    """Decorator: a function, or a class of modules, is a program of the table."""

    def register(made: Any) -> Any:
        make = made if isinstance(made, type) else lambda: made
        PROGRAMS[made.__name__] = Program(made.__name__, make, args, grad)
        return made

    return register


def rows(i: int, g: torch.Generator, width: int = 16) -> Tensor:
    """A batch of changing size, now and then negative on the whole."""
    x = torch.randn(6 + 5 * (i % 7), width, generator=g)
    return x - 3 if i % 11 == 7 else x + 0.5


def positive(i: int, g: torch.Generator) -> tuple:
    return (rows(i, g),)


# -- branches ---------------------------------------------------------------------------------------------------------------------------
@program(positive)
def mid_model_branch(x: Tensor) -> Tensor:
    y = torch.relu(x) * 2 + x.mean()
    if y.sum() > 0:
        return y.softmax(-1) + 1
    return y.sigmoid() * 3


@program(positive)
def branch_of_expressions(x: Tensor) -> Tensor:
    y = x * 2 if x.mean() > 0 else x * 3
    z = y + 1 if y.max() > 1 else y - 1
    return (z - z.mean()) / (z.std() + 1e-5)


@program(positive)
def comprehension_of_branches(x: Tensor) -> Tensor:
    return torch.stack([part.relu() if part.sum() > 0 else part.abs() for part in x[:6]])


@program(lambda i, g: (torch.randn(8, 16, generator=g) * (1 if i % 2 else -1),))
def both_sides_hot(x: Tensor) -> Tensor:
    y = x + x.abs().mean() * 0.1
    if y.sum() > 0:
        y = torch.relu(y) + y.mean(0)
    else:
        y = torch.tanh(y) - y.amax(0)
    return (y @ y.t()).softmax(-1) @ y


@program(lambda i, g: (torch.randn(8, 16, generator=g) + (i % 3 - 1),))
def three_ways(x: Tensor) -> Tensor:
    m = x.mean()
    if m > 0.3:
        y = x.clamp(max=1.0)
    elif m < -0.3:
        y = x.clamp(min=-1.0)
    else:
        y = x * 2
    return y.cumsum(0) / (1 + y.abs().sum())


@program(positive)
def checked_for_nan(x: Tensor) -> Tensor:
    y = x.log1p().nan_to_num(0.5) / 3
    if torch.isnan(y).any() or torch.isinf(y).any():
        raise ValueError("not a number")
    return F.layer_norm(y, (16,))


@program(positive)
def asserted(x: Tensor) -> Tensor:
    p = x.softmax(-1)
    assert torch.isfinite(p).all()
    assert torch.allclose(p.sum(-1), torch.ones(x.shape[0])), "no distribution"
    return -(p * p.log()).sum(-1)


@program(positive)
def printed_when_large(x: Tensor) -> Tensor:
    y = x.square()
    if y.max() > 1e4:
        print("large:", y.max().item())
    return y / y.sum(-1, keepdim=True)


@program(positive)
def empty_selection(x: Tensor) -> Tensor:
    kept = x[x[:, 0] > 1.0]
    if kept.shape[0] == 0:
        return torch.zeros(x.shape[1])
    return kept.mean(0)


@program(lambda i, g: (rows(i, g), rows(i, g) if i % 5 else torch.zeros(6 + 5 * (i % 7), 16)))
def nothing_to_mask(x: Tensor, mask: Tensor) -> Tensor:
    if not mask.any():
        return x
    return x.masked_fill(mask > 1, 0.0) + 1


@program(positive)
def clipped_norm(x: Tensor) -> Tensor:
    norm = x.norm()
    if norm > 10:
        x = x * (10 / norm)
    return x + 1


@program(lambda i, g: (torch.randn(4, 16, generator=g),))
class RunningRange(nn.Module):
    """An observer: the range that was seen so far, wider on the outside now and then."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(()))
        self.register_buffer("high", torch.zeros(()))
        self.widened = 0

    def forward(self, x: Tensor) -> Tensor:
        low, high = x.min(), x.max()
        if low < self.low or high > self.high:
            self.low.copy_(torch.minimum(low, self.low))
            self.high.copy_(torch.maximum(high, self.high))
            self.widened += 1
        scale = (self.high - self.low) / 255
        return ((x - self.low) / scale).round().clamp(0, 255) * scale + self.low


@program(lambda i, g: (torch.randn(8, 16, generator=g) * (3 if i % 3 else 0.1),))
class EarlyExit(nn.Module):
    """Layers until one is sure."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))
        self.heads = nn.ModuleList(nn.Linear(16, 4) for _ in range(4))

    def forward(self, x: Tensor) -> tuple:
        for i, (layer, head) in enumerate(zip(self.layers, self.heads)):
            x = torch.relu(layer(x)) + x
            p = head(x).softmax(-1)
            if p.max(-1).values.mean() > 0.5:
                return p, i
        return p, i


@program(positive, grad=True)
class TrainedBranch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        h = self.a(x)
        if h.abs().mean() > 1e-3:
            h = torch.relu(self.b(h)) + h
        else:
            h = h * 100
        return h.square().mean()


@program(lambda i, g: (torch.randn(8, 16, generator=g), torch.randint(0, 4, (8,), generator=g)), grad=True)
class TrainedMixture(nn.Module):
    """Experts, each with the rows that chose it: sometimes none."""

    def __init__(self) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(self, x: Tensor, chosen: Tensor) -> Tensor:
        out = torch.zeros_like(x)
        for e, expert in enumerate(self.experts):
            (at,) = torch.where(chosen == e)
            if at.numel() == 0:
                continue
            out = out.index_add(0, at, expert(x[at]))
        return out.square().mean()


@program(positive, grad=True)
class SkippedBatch(nn.Module):
    """A loss that is replaced where it is not finite."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(16, 4)
        self.skipped = 0

    def forward(self, x: Tensor) -> Tensor:
        loss = F.cross_entropy(self.layer(x), x[:, :4].argmax(-1))
        if not torch.isfinite(loss):
            self.skipped += 1
            return self.layer.weight.sum() * 0
        return loss


def parts_of(x: Tensor) -> Iterator[Tensor]:
    for part in x.split(8):
        if part.sum() > 0:
            yield part.mean(0)
        else:
            yield part.amax(0)


@program(positive)
def generator_with_a_branch(x: Tensor) -> Tensor:
    return torch.stack(list(parts_of(x)))


@program(positive)
def branch_under_a_handler(x: Tensor) -> Tensor:
    out = {}
    for name in ("left", "right", "top"):
        try:
            if x.sum() < 0:
                x = -x
            out[name] = x.mean(0)
            x = x * {"left": 2, "right": 3}[name]
        except KeyError:
            out[f"no {name}"] = x.amax(0)
    return torch.stack(list(out.values()))


# -- loops that are closed ----------------------------------------------------------------------------------------------------------------
@program(lambda i, g: (torch.rand(32 + i % 5, generator=g),))
def fixed_point(x: Tensor) -> tuple:
    err, n = torch.tensor(1.0), 0
    while err > 1e-3:
        y = torch.cos(x)
        err = (y - x).abs().max()
        x = y
        n += 1
    return x, n


@program(lambda i, g: (torch.rand(32, generator=g) + 0.1,))
def newton(a: Tensor) -> tuple:
    x, i = a, 0
    for i in range(50):  # noqa: B007
        y = x - (x * x - a) / (2 * x)
        if (y - x).abs().max() < 1e-4:
            break
        x = y
    return x, i


@program(lambda i, g: (torch.rand(16, 16, generator=g), torch.rand(16, generator=g)))
def conjugate_gradient(m: Tensor, b: Tensor) -> Tensor:
    a = m @ m.t() + torch.eye(16)
    x = torch.zeros_like(b)
    r = b - a @ x
    p, rs = r, r @ r
    for _ in range(40):
        ap = a @ p
        alpha = rs / (p @ ap)
        x = x + alpha * p
        r = r - alpha * ap
        new = r @ r
        if new.sqrt() < 1e-4:
            break
        p = r + new / rs * p
        rs = new
    return x


@program(lambda i, g: (torch.rand(20, 12, generator=g),))
def sinkhorn(m: Tensor) -> Tensor:
    p = m.exp()
    for _ in range(100):
        p = p / p.sum(1, keepdim=True)
        p = p / p.sum(0, keepdim=True)
        if (p.sum(1) - p.shape[1] / p.shape[0]).abs().max() < 1e-4:
            break
    return p


@program(lambda i, g: (torch.randn(60, 2, generator=g) + torch.randint(0, 3, (60, 1), generator=g) * 4,))
def k_means(x: Tensor) -> tuple:
    centers = x[:3]
    previous = torch.full((x.shape[0],), -1)
    while True:
        nearest = torch.cdist(x, centers).argmin(1)
        if torch.equal(nearest, previous):
            break
        centers = torch.stack([x[nearest == k].mean(0) for k in range(3)]).nan_to_num(0.0)
        previous = nearest
    return centers, nearest


@program(lambda i, g: (torch.randn(10, generator=g),))
def line_search(x: Tensor) -> tuple:
    """Steps halved until the value falls enough, inside of descent until it settles."""
    steps = 0
    for _ in range(20):
        grad = 2 * x + torch.cos(x)
        value = (x * x + torch.sin(x)).sum()
        t = 1.0
        while True:
            y = x - t * grad
            if (y * y + torch.sin(y)).sum() <= value - 0.5 * t * (grad @ grad) + 1e-3 or t < 1e-6:
                break
            t = t / 2
            steps += 1
        x = y
        if grad.norm() < 0.1:
            break
    return x, steps


@program(lambda i, g: (torch.randint(0, 20, (1 + i % 4,), generator=g), torch.randn(20, 16, generator=g)))
def greedy_tokens(ids: Tensor, table: Tensor) -> Tensor:
    for _ in range(12):
        token = (table @ torch.tanh(table[ids].mean(0))).argmax()
        ids = torch.cat([ids, token[None]])
        if token.item() % 5 == 0:
            break
    return ids


@program(lambda i, g: (torch.tensor(2.0 + i % 3),))
def adaptive_steps(end: Tensor) -> tuple:
    """An integrator that chooses its step by the error."""
    t, h, y = torch.tensor(0.0), torch.tensor(0.1), torch.ones(4)
    accepted = rejected = 0
    while t < end:
        h = torch.minimum(h, end - t)
        k1 = -y * torch.sin(t)
        k2 = -(y + h * k1) * torch.sin(t + h)
        err = (h * (k2 - k1) / 2).abs().max()
        if err < 1e-2:
            t, y = t + h, y + h * (k1 + k2) / 2
            accepted += 1
        else:
            rejected += 1
        h = h * (0.9 * (1e-2 / (err + 1e-8)).sqrt()).clamp(0.3, 2.0)
    return y, accepted, rejected


# -- loops with lists ---------------------------------------------------------------------------------------------------------------------
@program(lambda i, g: (torch.rand(10 + i, 2, generator=g) * 60, torch.rand(10 + i, 2, generator=g) * 30, torch.rand(10 + i, generator=g)))
def suppression(corner: Tensor, size: Tensor, scores: Tensor) -> Tensor:
    boxes = torch.cat([corner, corner + 10 + size], 1)
    order = scores.argsort(descending=True)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(1)
    keep = []
    while order.numel() > 0:
        i = order[0]
        keep.append(i)
        rest = order[1:]
        low = torch.maximum(boxes[i, :2], boxes[rest, :2])
        high = torch.minimum(boxes[i, 2:], boxes[rest, 2:])
        inter = (high - low).clamp(min=0).prod(1)
        order = rest[inter / (areas[i] + areas[rest] - inter) <= 0.4]
    return torch.stack(keep)


@program(lambda i, g: (torch.randn(20, 16, generator=g), torch.randint(1, 20, (), generator=g)))
def tokens_in_a_list(table: Tensor, first: Tensor) -> tuple:
    tokens = [first.item()]
    h = table[0]
    while len(tokens) < 15:
        h = torch.tanh(h + table[tokens[-1]])
        token = int((table @ h).argmax())
        tokens.append(token)
        if token == 0:
            break
    return torch.tensor(tokens), len(tokens)


@program(lambda i, g: (torch.randn(16, 16, generator=g), torch.randn(16, generator=g)))
def states_until_settled(w: Tensor, x: Tensor) -> Tensor:
    states = [x]
    for _ in range(30):
        x = torch.tanh(w @ x * 0.1)
        states.append(x)
        if x.abs().max() < 1e-2:
            break
    return torch.stack(states)


@program(lambda i, g: (torch.randn(16, generator=g) * (1 + i % 3),))
def history_of_losses(x: Tensor) -> tuple:
    losses = []
    while True:
        loss = (x * x).sum()
        losses.append(loss.item())
        if losses[-1] < 0.5:
            break
        x = x * 0.8
    return x, torch.tensor(losses)


@program(lambda i, g: (torch.randn(12, 8, generator=g), torch.randn(8, generator=g)))
def beam_search(table: Tensor, start: Tensor) -> tuple:
    """Three beams, those that end go to a list."""
    scores, states = torch.zeros(1), start[None]
    tokens = torch.zeros(1, 0, dtype=torch.long)
    finished = []
    for step in range(8):
        log = (states @ table.t()).log_softmax(-1) + scores[:, None]
        best, at = log.flatten().topk(3)
        beam, token = at // 12, at % 12
        tokens = torch.cat([tokens[beam], token[:, None]], 1)
        states = torch.tanh(states[beam] + table[token])
        done = token == 0
        if done.any():
            finished.append(best[done].max() / (step + 1))
        scores = best.masked_fill(done, float("-inf"))
        if done.all():
            break
    if not finished:
        return tokens[0], best[0]
    return tokens[0], torch.stack(finished).max()


@program(lambda i, g: (torch.randint(0, 4, (14,), generator=g),))
def run_lengths(x: Tensor) -> list:
    runs: list[list[int]] = []
    for v in x.tolist():
        if runs and runs[-1][0] == v:
            runs[-1][1] += 1
        else:
            runs.append([v, 1])
    return runs


@program(lambda i, g: (torch.randn(12, 6, generator=g),))
def collapsed(log: Tensor) -> list:
    """Greedy decoding of a CTC model: repeats and blanks go."""
    out = []
    previous = -1
    for token in log.argmax(-1).tolist():
        if token not in (previous, 0):
            out.append(token)
        previous = token
    return out


@program(lambda i, g: ((torch.rand(10, 10, generator=g) < 0.15) | torch.eye(10, dtype=torch.bool),))
def breadth_first(edges: Tensor) -> tuple:
    seen = torch.zeros(10, dtype=torch.bool)
    seen[0] = True
    frontier, depth = seen, 0
    while frontier.any():
        reached = edges[frontier].any(0)
        frontier = reached & ~seen
        seen = seen | reached
        depth += 1
    return seen, depth


@program(lambda i, g: (torch.randn(8, 16, generator=g), torch.randint(1, 6, (3,), generator=g)))
def rounds_from_data(x: Tensor, counts: Tensor) -> Tensor:
    for n in counts.tolist():
        for _ in range(n):
            x = torch.sin(x) + 0.1
    return x


@program(lambda i, g: (torch.randn(16, 16, generator=g), torch.rand(16, generator=g)))
def nonzero_rows(x: Tensor, p: Tensor) -> Tensor:
    out = torch.zeros(16)
    for i in torch.nonzero(p > 0.7).flatten():
        out = out + x[i] * p[i]
    return out


@program(lambda i, g: (torch.randn(16, 16, generator=g), torch.randint(0, 3, (16,), generator=g)))
def groups(x: Tensor, labels: Tensor) -> dict:
    out = {}
    for label in labels.unique().tolist():
        out[label] = x[labels == label].mean(0)
    return out


@program(lambda i, g: (torch.randn(6, 5, generator=g), torch.rand(6, generator=g)))
def speculative(logits: Tensor, u: Tensor) -> tuple:
    """Accept drafted tokens until one is refused."""
    p = logits.softmax(-1)
    accepted = []
    for i in range(6):
        token = logits[i].argmax()
        if u[i] < p[i, token] * 1.8:
            accepted.append(token)
        else:
            accepted.append(p[i].argmin())
            break
    return torch.stack(accepted), len(accepted)


@program(lambda i, g: (torch.rand(5, 16, generator=g) * 0.3 + 0.02,))
class AdaptiveTime(nn.Module):
    """Halting: steps until the probabilities of all rows add up to one."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.halt = nn.Linear(16, 16), nn.Linear(16, 1)

    def forward(self, x: Tensor) -> tuple:
        total, out, steps = torch.zeros(x.shape[0]), torch.zeros_like(x), 0
        while (total < 0.99).any() and steps < 10:
            x = torch.tanh(self.cell(x))
            p = torch.minimum(torch.sigmoid(self.halt(x)).squeeze(1), 1 - total)
            out = out + x * p[:, None]
            total = total + p
            steps += 1
        return out, steps


@program(lambda i, g: (torch.randn(16, generator=g) * 4,), grad=True)
class TrainedLoop(nn.Module):
    """A recurrence until its state is small, differentiated."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        while x.norm() > 1:
            x = torch.tanh(self.cell(x)) * 0.5
        return x.sum()


@program(lambda i, g: (torch.randn(40, generator=g),))
def in_place_until(x: Tensor) -> Tensor:
    y = x.clone()
    while y.abs().max() > 0.1:
        y *= 0.7
        y[0] = 0.0
    return y


@program(lambda i, g: (torch.randn(40, generator=g),))
def chatty_loop(x: Tensor) -> Tensor:
    n = 0
    while x.abs().max() > 0.5:
        x = x * 0.6
        n += 1
        print("round", n)
    return x
