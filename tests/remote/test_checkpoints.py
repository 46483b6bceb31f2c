"""Checkpoints that are taken up by other numbers of workers, and by optimizers that are new: training goes on as if nothing had been."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pliant
from pliant import remote

KINDS = {
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.05, amsgrad=True),
    "fused": lambda p: torch.optim.AdamW(p, lr=0.05, fused=True),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True, foreach=True),
    "SGD": lambda p: torch.optim.SGD(p, lr=0.05),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.05),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.05, centered=True, momentum=0.5),
    "groups": lambda p: torch.optim.Adam([{"params": [q], "lr": 0.01 * (i + 1)} for i, q in enumerate(p)]),
}


def made():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.BatchNorm1d(8), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 5)).double()


def batches():
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(6 + i, 6, generator=g).double(), torch.randint(0, 5, (6 + i,), generator=g)) for i in range(8)]


def trainer(model, optimizer):
    def step(x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def run(kind, some, place=lambda m: m, compiled=lambda f: f, put=lambda t: t, before=None, after=None):
    model = place(made())
    optimizer = KINDS[kind](model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    state = {"model": model, "optimizer": optimizer, "schedule": schedule, "epoch": 0, "losses": [0.0]}
    if before is not None:
        before(state)
    step, losses = compiled(trainer(model, optimizer)), []
    for x, y in some:
        losses.append(step(put(x), put(y)).cpu())
        schedule.step()
        state["epoch"], state["losses"][0] = state["epoch"] + 1, float(losses[-1])
    if after is not None:
        after(state)
    return losses, {k: v.cpu() for k, v in model.state_dict().items()}, state


@pytest.mark.parametrize("kind", KINDS)
def test_training_goes_on_where_it_was(mesh, kind, tmp_path):
    want, weights, _ = run(kind, batches())
    path = tmp_path / "c"
    on = lambda m: {"compiled": lambda f: pliant.compile(f, on=m), "put": m.shard}
    first, _, _ = run(kind, batches()[:4], mesh.replicate, **on(mesh), after=lambda s: mesh.checkpoint(path, s))
    plans = {2: lambda m, model: m.place(model, {"3.weight": remote.Shard(0)}), 1: lambda m, model: m[0].put(model)}
    for workers, place in plans.items():
        with remote.mesh(workers, transport="threads", timeout=60) as other:
            how = on(other) if workers > 1 else {**on(other), "put": other[0].put}
            took = lambda s, other=other: other.restore(path, s)
            later, found, state = run(kind, batches()[4:], lambda m, o=other, p=place: p(o, m), **how, before=took)
        torch.testing.assert_close(torch.stack(first + later), torch.stack(want))
        for k, v in weights.items():
            torch.testing.assert_close(found[k], v)
        assert state["epoch"] == 8 and abs(state["losses"][0] - want[-1]) < 1e-6
    later, found, _ = run(kind, batches()[4:], before=lambda s: mesh.restore(path, s))  # in one process
    torch.testing.assert_close(torch.stack(first + later), torch.stack(want))


def test_a_pipeline_with_other_stages(tmp_path):
    def layers():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 5)).double()

    loss, data = nn.functional.cross_entropy, batches()
    here = layers()
    optimizer = KINDS["AdamW"](here.parameters())
    want = [trainer(here, optimizer)(x, y) for x, y in data]
    got, path = [], tmp_path / "c"
    for at, workers in enumerate((2, 3)):
        with remote.mesh(workers, transport="threads", timeout=60) as mesh:
            pipe = remote.Pipeline(mesh, layers(), loss, KINDS["AdamW"])
            if at:
                mesh.restore(path, pipe)
            got += [pipe.step(x, y, 2).cpu() for x, y in data[4 * at : 4 * at + 4]]
            mesh.checkpoint(path, pipe)
    torch.testing.assert_close(torch.stack(got), torch.stack(want))


def test_nothing_is_put_where_the_state_is_another_one(mesh, tmp_path):
    path = tmp_path / "c"
    layer = mesh.replicate(nn.Linear(2, 2))
    mesh.checkpoint(path, {"layer": layer, "at": (1, 2), "rate": 0.5})
    before = layer.weight.cpu()
    with torch.no_grad():
        layer.weight.add_(1)
    for other, words in (
        ({"layer": layer, "at": (1, 2)}, "other tensors: rate"),
        ({"layer": nn.Linear(2, 3), "at": (1, 2), "rate": 0.5}, "layer/weight is"),
        ({"layer": layer, "at": torch.ones(2), "rate": 0.5}, "at is a tensor here"),
        ({"layer": layer, "at": [1, 2], "rate": 0.5}, "other tensors: at"),
    ):
        with pytest.raises(remote.RemoteError, match=words):
            mesh.restore(path, other)
    assert torch.equal(layer.weight.cpu(), before + 1)
    mesh.restore(path, state := {"layer": layer, "at": (0, 0), "rate": 0.1})
    assert torch.equal(layer.weight.cpu(), before) and state["at"] == (1, 2) and state["rate"] == 0.5
    with pytest.raises(remote.RemoteError, match="a object, which"):
        mesh.checkpoint(path, {"layer": layer, "what": object()})
    with pytest.raises(remote.RemoteError, match="other tensors"):
        mesh.restore(path, {"layer": layer})


def test_a_file_of_version_1_has_tensors_alone(mesh, tmp_path):
    path, weight = tmp_path / "c", torch.arange(4.0).view(2, 2)
    tensors = {"layer/weight": weight, "layer/bias": torch.ones(2), "at/0": torch.tensor(3.0)}
    torch.save({"pliant.remote checkpoint": 1, "tensors": tensors}, path)
    state = {"layer": mesh.replicate(nn.Linear(2, 2)), "at": [torch.zeros(())], "rate": 0.5}
    mesh.restore(path, state)
    assert torch.equal(state["layer"].weight.cpu(), weight) and state["at"][0] == 3 and state["rate"] == 0.5
    with pytest.raises(remote.RemoteError, match="other tensors: at/0"):
        mesh.restore(path, {"layer": state["layer"]})
    torch.save({"pliant.remote checkpoint": 3, "tensors": tensors}, path)
    with pytest.raises(remote.RemoteError, match="no checkpoint of version 2"):
        mesh.restore(path, state)
