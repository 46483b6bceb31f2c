"""Training on a mesh: the losses are those of one process, with data in parallel, weights cut, and stages on workers."""

from __future__ import annotations

import copy

import pytest
import torch

import pliant
from pliant import remote
from pliant.remote.pipeline_parallel import balanced, issue_order, stage_order


def losses(gpt, steps):
    torch.manual_seed(0)
    model = gpt.gpt(vocabulary=64, width=16, heads=2, layers=1, most=32)
    twin = copy.deepcopy(model)
    step = gpt.trainer(model, torch.optim.AdamW(model.parameters(), lr=1e-2))
    return twin, [float(step(ids)) for ids in gpt.batches(steps, 5, 24, 64)]


def check(gpt, step, want):
    return [float(step(ids)) for ids in gpt.batches(len(want), 5, 24, 64)] == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("kind", ["data", "tensor"])
def test_gpt(gpt, kind):
    model, want = losses(gpt, 4)
    with remote.mesh(2, transport="threads", timeout=60) as mesh:
        if kind == "data":
            mesh.replicate(model)
        else:
            gpt.tensor_parallel(mesh, model)
        step = pliant.compile(gpt.trainer(model, torch.optim.AdamW(model.parameters(), lr=1e-2)), on=mesh)
        put = mesh.shard if kind == "data" else mesh.replicate
        assert check(gpt, lambda ids: step(put(ids)), want)
        sent, programs = mesh.counts["messages"], mesh.counts["programs"]
        captures = pliant.stats()["captures"]
        for ids in gpt.batches(3, 6, 24, 64):
            step(put(ids))
            mesh.flush()
        mesh.synchronize()
        assert mesh.counts["messages"] - sent == 3 * len(mesh), "one message a worker a step"
        assert mesh.counts["programs"] == programs and pliant.stats()["captures"] == captures, "sizes change, programs do not"
        if kind == "tensor":  # two in the block and two in its gradient, then all workers agree: nothing else moves
            assert [text.count("= pliant_remote.all_reduce") for _, _, text, *_ in mesh.sent.values()] == [4, 4]
            assert not any("all_gather" in text for _, _, text, *_ in mesh.sent.values())
        weights = [p.placement for p in model.parameters()]
        assert (remote.Shard(0) in weights) == (kind == "tensor")


def test_pipeline(gpt):
    model, want = losses(gpt, 3)
    with remote.mesh(2, transport="threads", timeout=60) as mesh:
        pipeline = remote.Pipeline(mesh, model, gpt.loss_of, lambda p: torch.optim.AdamW(p, lr=1e-2))
        assert check(gpt, lambda ids: pipeline.step(ids, ids, 3), want)
        assert {str(p.placement) for p in model.parameters()} == {"OnWorker(0)", "OnWorker(1)"}


OPTIMIZERS = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
    "AdamW, groups": lambda p: torch.optim.AdamW([{"params": [q], "lr": 0.01 * (i + 1)} for i, q in enumerate(p)], weight_decay=0.1),
    "Adam, a learning rate in a tensor": lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01)),
    "RMSprop": lambda p: torch.optim.RMSprop(p, lr=0.01, centered=True, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.1),
    "Adagrad, fused": lambda p: torch.optim.Adagrad(p, lr=0.1, fused=True),  # counts its steps in tensors of this process
    "NAdam": lambda p: torch.optim.NAdam(p),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_optimizers_schedules_and_clipping(kind):
    """On a batch that is cut, with weights that are cut, and on one worker."""
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(4, 6), torch.nn.LayerNorm(6), torch.nn.Tanh(), torch.nn.Linear(6, 3)).double()
    batches = [torch.randn(n, 4).double() for n in (5, 7, 2, 6)]

    def train(model, on, put):
        optimizer = OPTIMIZERS[kind](model.parameters())
        schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)

        def step(x):
            loss = torch.nn.functional.cross_entropy(model(x), x.argmax(1) % 3)
            optimizer.zero_grad()
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 0.05)
            optimizer.step()
            return loss.detach(), norm

        step, out = on(step), []
        for x in batches:
            out += [t.cpu() for t in step(put(x))]
            schedule.step()
        return out + [p.detach().cpu() for p in model.parameters()]

    want = train(copy.deepcopy(net), lambda f: f, lambda t: t)
    with remote.mesh(3, transport="threads", timeout=60) as mesh:
        cut = {"0.weight": remote.Shard(0), "0.bias": remote.Shard(0), "3.weight": remote.Shard(1)}
        for place, put in ((mesh.replicate, mesh.shard), (lambda m: mesh.place(m, cut), mesh.replicate), (mesh[1].put, mesh[1].put)):
            got = train(place(copy.deepcopy(net)), lambda f: pliant.compile(f, on=mesh), put)
            for a, b in zip(want, got, strict=True):
                assert torch.allclose(a, b, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("how", ["cut otherwise", "worker to worker", "two meshes", "fetched", "sent", "within a step"])
def test_gradients_go_back_where_tensors_are_moved(how):
    torch.manual_seed(0)
    first, second = torch.nn.Linear(4, 5).double(), torch.nn.Linear(5, 3).double()
    twins, x = (copy.deepcopy(first), copy.deepcopy(second)), torch.randn(6, 4).double()
    want = second(first(x).tanh()).square().sum()
    want.backward()
    with remote.mesh(2, transport="threads", timeout=60) as a, remote.mesh(3, transport="threads", timeout=60) as b:
        there = b if how == "two meshes" else a
        if how == "worker to worker":
            for worker, m in zip(a, twins, strict=True):
                worker.put(m)
        else:
            if how != "sent":
                a.replicate(twins[0])
            if how != "fetched":
                there.replicate(twins[1])

        def moved(h):
            if how == "fetched":
                return h.cpu()
            return a[1].put(h) if how == "worker to worker" else there.shard(h, 1 if how == "cut otherwise" else 0)

        def step(x):
            return twins[1](moved(twins[0](x).tanh())).square().sum()

        step = pliant.compile(step, on=a) if how == "within a step" else step
        loss = step(x if how == "sent" else a[0].put(x) if how == "worker to worker" else a.shard(x))
        loss.backward()
        assert torch.allclose(loss.detach().cpu(), want)
        for p, q in zip((*first.parameters(), *second.parameters()), (*twins[0].parameters(), *twins[1].parameters()), strict=True):
            assert torch.allclose(p.grad, q.grad.cpu())


@pytest.mark.parametrize("stages, micro_batches", [(1, 3), (2, 1), (2, 4), (4, 8), (4, 2), (5, 5)])
def test_the_order_is_1f1b(stages, micro_batches):
    order = issue_order(stages, micro_batches)
    for s in range(stages):
        own = [(what, m) for t, what, m in order if t == s]
        assert own == stage_order(s, stages, micro_batches)
        held = most = 0
        for what, _ in own:
            held += 1 if what == "forward" else -1
            most = max(most, held)
        assert most <= stages - s and held == 0
    for i, (s, what, m) in enumerate(order):
        if what == "forward" and s:
            assert (s - 1, "forward", m) in order[:i]
        if what == "backward" and s < stages - 1:
            assert (s + 1, "backward", m) in order[:i]


def test_layers_are_shared_out():
    layers = [torch.nn.Linear(n, n) for n in (8, 8, 8, 8, 1, 1)]
    found = balanced(layers, 3)
    assert [x for part in found for x in part] == layers and all(found) and len(found[0]) <= 3
    with pytest.raises(ValueError, match="stages"):
        balanced(layers, 7)
