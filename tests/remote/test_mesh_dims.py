"""Meshes of several dims: placements along each, collectives along one, training with data and weights cut."""

from __future__ import annotations

import copy
import itertools

import pytest
import torch
import torch.nn.functional as F

import pliant
from benchmarks import remote_fuzz
from pliant import remote
from pliant.remote import Replicate, Shard
from pliant.remote.groups import slices


@pytest.fixture
def grid():
    with remote.mesh(shape=(2, 3), names=("data", "tensor"), transport="threads", timeout=30) as m:
        yield m


def test_workers_of_a_slice():
    assert [[first for first, _, _ in slices((2, 3), r)] for r in range(6)] == [[0, 0], [1, 0], [2, 0], [0, 3], [1, 3], [2, 3]]
    assert [[at for _, at, _ in slices((2, 3), r)] for r in range(6)] == [[i, j] for i in range(2) for j in range(3)]


@pytest.mark.parametrize("rows, columns", [(7, 5), (1, 6), (0, 3), (2, 2), (12, 1)])
def test_placements(grid, rows, columns):
    x = torch.randn(rows, columns)
    for told in itertools.product((Replicate(), Shard(0), Shard(1)), repeat=2):
        y = grid.distribute(x, told)
        assert torch.equal(y.cpu(), x) and y.placements == told
        assert torch.equal((y * 2).cpu(), x * 2) and torch.allclose(y.sum(0).cpu(), x.sum(0), atol=1e-6)
        for other in ((Shard(1), Shard(0)), Replicate()):
            assert torch.equal(grid.distribute(y, other).cpu(), x)
        assert torch.equal(y.to_worker(4).cpu(), x) and torch.equal(grid.distribute(y.to_worker(4), told).cpu(), x)
    assert str(grid.shard(x, 1, along="tensor").placement) == "(Replicate(), Shard(1))" == str(grid.distribute(x, {1: Shard(1)}).placement)
    assert grid[1, 2].rank == 5 and grid.shape == (2, 3)


def test_what_is_told_is_checked(grid, mesh):
    x = torch.ones(4, 2)
    with pytest.raises(TypeError, match="along="):
        grid.shard(x)
    with pytest.raises(ValueError, match="along which"):
        grid.distribute(x, Shard(0))
    with pytest.raises(KeyError, match="pipe"):
        grid.distribute(x, {"pipe": Shard(0)})
    with pytest.raises(ValueError, match="placement"):
        grid.distribute(x, (Shard(0),))
    with pytest.raises(IndexError, match="shape"):
        grid[2, 0]
    with pytest.raises(remote.RemoteError, match="dims"):
        grid.distribute(x, (Shard(2), Replicate()))
    for wrong in ({"shape": (0, 2)}, {"names": ("a", "a")}, {"workers": 5}, {"names": ("a",)}):
        with pytest.raises(ValueError, match="shape=|names="):
            remote.mesh(**{"shape": (2, 2), **wrong}, transport="threads")
    assert mesh.shard(x, along=0).placement == Shard(0)


def test_collectives_go_along_the_dim_that_needs_them(grid):
    """Rows cut along one dim of the mesh, weights along the other: one all-reduce, of three workers."""
    x, u, v = torch.randn(5, 4), torch.randn(4, 6), torch.randn(6, 3)
    f = pliant.compile(lambda a, b, c: (a @ b).relu() @ c, on=grid)
    out = f(grid.shard(x, along="data"), grid.shard(u, 1, along="tensor"), grid.shard(v, along="tensor"))
    torch.testing.assert_close(out.cpu(), (x @ u).relu() @ v)
    ((_, _, text, *_),) = grid.sent.values()
    assert str(out.placement) == "(Shard(0), Replicate())" and grid.counts["collectives"] == 1
    assert text.count("= pliant_remote.") == 1 and "'sum', 1, " in text
    assert not pliant.events.events("gathered")


def model():
    torch.manual_seed(0)
    return torch.nn.ModuleDict({"up": torch.nn.Linear(6, 12), "down": torch.nn.Linear(12, 5)}).double()


def trainer(m):
    optimizer = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)

    def step(x, y):
        loss = F.cross_entropy(m["down"](F.gelu(m["up"](x))), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


def test_training_with_data_and_weights_cut(grid, tmp_path):
    """One program and message a step; the state of the optimizer lies as the weights do; a checkpoint fits a mesh of another shape."""
    a, b = model(), model()
    grid.place(b, {"up.weight": {"tensor": Shard(0)}, "up.bias": {"tensor": Shard(0)}, "down.weight": {"tensor": Shard(1)}})
    here, there = trainer(a), pliant.compile(trainer(b), on=grid)
    for i, n in enumerate((5, 7, 4, 9, 1)):
        x, y = torch.randn(n, 6).double(), torch.randint(0, 5, (n,))
        sent = grid.counts["messages"]
        loss = there(grid.shard(x, along="data"), grid.shard(y, along="data"))
        grid.synchronize()
        assert i < 2 or grid.counts["messages"] - sent == len(grid), "one message a worker"
        torch.testing.assert_close(loss.cpu(), here(x, y))
    for name, t in a.state_dict().items():
        torch.testing.assert_close(b.state_dict()[name].cpu(), t)
    assert not pliant.events.events("gathered") and not pliant.events.events("remote")
    grid.checkpoint(tmp_path / "c", b)
    with remote.mesh(2, transport="threads", timeout=30) as other:
        c = other.place(copy.deepcopy(model()), {"up.weight": Shard(1)})
        other.restore(tmp_path / "c", c)
        assert torch.equal(c["up"].weight.cpu(), b["up"].weight.cpu())


def test_a_lost_worker_gets_its_pieces_again():
    with remote.mesh(shape=(2, 2), transport="threads", timeout=30, lineage=3) as mesh:
        x, s = mesh.distribute(torch.arange(35.0).reshape(7, 5), (Shard(0), Shard(1))), torch.arange(35.0).reshape(7, 5)
        for i in range(6):
            x, s = x + i, s + i
            mesh.flush()
            if i in (2, 4):
                mesh.recover(remote.transport.Dead(i - 1, "a test"))
        assert torch.equal(x.cpu(), s) and mesh.counts["recoveries"] == 2


@pytest.mark.parametrize("shape, seed", [((2, 2), 1000), ((2, 3), 2000), ((2, 1, 2), 3000)])
def test_random_programs(shape, seed):
    with remote.mesh(shape=shape, transport="threads", timeout=60, recover=False) as mesh:
        for i in range(seed, seed + 5):
            what, told = (remote_fuzz.training if i % 5 == 4 else remote_fuzz.one)(mesh, i)
            assert what != "wrong", told
