"""A model as stages on different workers, trained by micro-batches in the order 1F1B (one forward, one backward).

The schedule is nothing but the order in which the controller issues commands: each worker does its own in that order, and what it needs of
a neighbour comes straight from there. Stage `s` of `n` runs `n - s - 1` micro-batches ahead, then a backward for each forward, so that at
most `n - s` of them hold their activations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from pliant.jit.compile import compile
from pliant.remote.checkpoint import Optimizers
from pliant.remote.mesh import Mesh
from pliant.remote.tensor import RemoteTensor

FORWARD, BACKWARD = "forward", "backward"


def stage_order(stage: int, stages: int, micro_batches: int) -> list[tuple[str, int]]:
    """What one stage does, in order."""
    ahead = min(stages - stage - 1, micro_batches)
    order = [(FORWARD, m) for m in range(ahead)]
    for m in range(micro_batches - ahead):
        order += [(FORWARD, ahead + m), (BACKWARD, m)]
    return order + [(BACKWARD, m) for m in range(micro_batches - ahead, micro_batches)]


def issue_order(stages: int, micro_batches: int) -> list[tuple[int, str, int]]:
    """(stage, what, micro-batch) of all stages, each behind what it needs of its neighbours."""
    waiting = [stage_order(s, stages, micro_batches) for s in range(stages)]
    done: set[tuple[int, str, int]] = set()
    out: list[tuple[int, str, int]] = []
    while any(waiting):
        before = len(out)
        for s, todo in enumerate(waiting):
            if todo:
                what, m = todo[0]
                need = (s - 1, FORWARD, m) if what == FORWARD else (s + 1, BACKWARD, m)
                if need in done or not 0 <= need[0] < stages:
                    todo.pop(0)
                    done.add((s, what, m))
                    out.append((s, what, m))
        assert len(out) > before, "a schedule that waits for itself"
    return out


def balanced(layers: list[nn.Module], stages: int) -> list[list[nn.Module]]:
    """Consecutive layers for each stage, parameters shared out evenly; each stage gets one at least."""
    if len(layers) < stages:
        raise ValueError(f"{len(layers)} layers cannot be {stages} stages")
    weights = [1 + sum(p.numel() for p in layer.parameters()) for layer in layers]
    out: list[list[nn.Module]] = []
    at = 0
    for s in range(stages):
        left = stages - s - 1
        share = sum(weights[at:]) / (left + 1)
        end, held = at + 1, weights[at]
        while len(layers) - end > left and held + weights[end] / 2 <= share:
            held += weights[end]
            end += 1
        out.append(layers[at : end if left else len(layers)])
        at = end
    return out


class Pipeline:
    """`step(inputs, targets, micro_batches)` trains `model` by one batch and returns the loss, a remote tensor on the last worker.

    `model`: a `nn.Sequential`, or a list of the stages. `loss(outputs, targets)` is a mean over the rows of a micro-batch;
    micro-batches count by their rows. `optimizer(parameters)` makes the optimizer of a stage.
    """

    def __init__(
        self,
        mesh: Mesh,
        model: nn.Sequential | list[nn.Module],
        loss: Callable,
        optimizer: Callable[[Iterable[Any]], torch.optim.Optimizer],
    ) -> None:
        self.mesh = mesh
        n = len(mesh)
        parts = [nn.Sequential(*layers) for layers in balanced(list(model), n)] if isinstance(model, nn.Sequential) else list(model)
        if len(parts) != n:
            raise ValueError(f"{len(parts)} stages on {n} workers")
        shared = [p for part in parts for p in {id(p): p for p in part.parameters()}.values()]
        if len({id(p) for p in shared}) != len(shared):
            raise ValueError("two stages share a parameter, which would be on two workers")
        self.stages = [mesh[s].put(part) for s, part in enumerate(parts)]
        self.optimizers = [optimizer(part.parameters()) for part in self.stages]
        self.forwards = [compile(forward_of(part), on=mesh, isolate_recompiles=True) for part in self.stages[:-1]]
        self.last = compile(last_of(self.stages[-1], loss), on=mesh, isolate_recompiles=True)
        self.updates = [compile(update_of(o), on=mesh, isolate_recompiles=True) for o in self.optimizers]

    def for_checkpoint(self) -> dict[str, Any]:
        """Layers by number and what optimizers have for their parameters, however the layers are shared out."""
        layers = [layer for part in self.stages for layer in (part if isinstance(part, nn.Sequential) else [part])]
        names = {id(p): f"{i}.{name}" for i, layer in enumerate(layers) for name, p in layer.named_parameters()}
        return {"layers": layers, "optimizer": Optimizers(self.optimizers, names)}

    def step(self, inputs: torch.Tensor, targets: torch.Tensor, micro_batches: int = 4) -> RemoteTensor:
        """One training step."""
        if not inputs.shape[0]:
            raise ValueError("a batch without rows")
        xs, ys = ([t for t in ts.tensor_split(micro_batches) if t.shape[0]] for ts in (inputs, targets))
        n, rows = len(self.mesh), inputs.shape[0]
        given: dict[tuple[int, int], Any] = {}
        made: dict[tuple[int, int], Any] = {}
        total: Any = None
        for s, what, m in issue_order(n, len(xs)):
            if what == FORWARD:
                x = self.mesh[0].put(xs[m]) if s == 0 else made[s - 1, m].detach().to_worker(s)
                if s:
                    x.requires_grad_()
                given[s, m] = x
                if s < n - 1:
                    made[s, m] = self.forwards[s](x)
                else:
                    loss = self.last(x, self.mesh[s].put(ys[m]), xs[m].shape[0] / rows)
                    total = loss.detach() if total is None else total + loss.detach()
                    made[s, m] = loss
            elif s == n - 1:
                made.pop((s, m)).backward()
            else:
                grad = given.pop((s + 1, m)).grad
                made.pop((s, m)).backward(grad.to_worker(s))
        for update in self.updates:
            update()
        return total


def forward_of(stage: nn.Module) -> Callable:
    def forward(x: Any) -> Any:
        return stage(x)

    return forward


def last_of(stage: nn.Module, loss: Callable) -> Callable:
    def last(x: Any, y: Any, share: float) -> Any:
        return loss(stage(x), y) * share

    return last


def update_of(optimizer: torch.optim.Optimizer) -> Callable:
    def update() -> None:
        optimizer.step()
        optimizer.zero_grad()

    return update
