"""Workers that are processes of Ray: training, a worker that is killed, a controller that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time

import pytest
import torch

import pliant
from pliant import remote

pytest.importorskip("ray")


def alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0] not in ("Z", "X")
    except FileNotFoundError:
        return False


def step_of(model, optimizer):
    def step(x, y):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def made():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.GELU(), torch.nn.Linear(16, 5))


def batches(steps):
    g = torch.Generator().manual_seed(1)
    return [(torch.randn(4 + i, 6, generator=g), torch.randint(0, 5, (4 + i,), generator=g)) for i in range(steps)]


@pytest.mark.parametrize("killed", [[1], [0, 1]], ids=["one", "all"])
def test_training_goes_on_when_workers_are_killed(ray_session, killed):
    """The losses are those of one process, before and after; shards are there again, too."""
    a, b = made(), made()
    here = step_of(a, torch.optim.AdamW(a.parameters(), lr=1e-2))
    want = [float(here(x, y).detach()) for x, y in batches(8)]
    with remote.mesh(2, timeout=30, lineage=4) as mesh:
        mesh.replicate(b)
        kept = mesh.shard(torch.arange(7.0))
        step = pliant.compile(step_of(b, torch.optim.AdamW(b.parameters(), lr=1e-2)), on=mesh)
        losses = []
        for i, (x, y) in enumerate(batches(8)):
            losses.append(step(mesh.shard(x), mesh.shard(y)))
            mesh.flush()
            if i == 5:
                for rank in killed:
                    os.kill(mesh.pids[rank], signal.SIGKILL)
        assert [float(v) for v in losses] == pytest.approx(want, rel=1e-4)
        assert torch.equal(kept.cpu(), torch.arange(7.0))
        assert mesh.counts["saves"] >= 1 and 1 <= mesh.counts["recoveries"] <= len(killed)
        stats = mesh.stats()
        assert stats["leaked"] == 0 and len({w["pid"] for w in stats["workers"]} | {os.getpid()}) == 3
        moved = mesh[0].put(torch.ones(3)).to_worker(1)
        assert str((moved * 2).placement) == "OnWorker(1)" and torch.equal((moved * 2).cpu(), torch.full((3,), 2.0))


def test_a_lost_controller_leaves_nobody(tmp_path):
    """Killed without a word: workers, and the Ray that it had started, are gone soon after."""
    program = textwrap.dedent("""
        import sys, time, torch
        from pliant import remote
        small = {"object_store_memory": 100_000_000, "_temp_dir": "/tmp/r2", "num_cpus": 1, "log_to_driver": False}
        mesh = remote.mesh(1, timeout=60, init=small)
        (mesh.replicate(torch.ones(2)) + 1).cpu()
        print(mesh.pids[0], flush=True)
        time.sleep(600)
    """)
    p = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    line = ""
    while line is not None and not line.strip().isdigit():
        line = p.stdout.readline()
        assert line or p.poll() is None, "the controller did not start"
    worker = int(line)
    assert alive(worker)
    p.kill()
    p.wait()
    end = time.monotonic() + 60
    while alive(worker) and time.monotonic() < end:
        time.sleep(0.2)
    assert not alive(worker)


def test_a_tree_of_controllers_on_a_mesh_of_two_dims(ray_session):
    """Weights are cut along one dim of the mesh and batches along the other; an actor of the tree is killed."""
    a, b = made(), made()
    here = step_of(a, torch.optim.AdamW(a.parameters(), lr=1e-2))
    want = [float(here(x, y).detach()) for x, y in batches(7)]
    with remote.mesh(shape=(2, 2), names=("data", "tensor"), timeout=30, lineage=4, fanout=2, options={"num_cpus": 0.5}) as mesh:
        assert len(mesh.transport.first) == 2 == len(mesh.transport.relays)
        rows, columns = {"tensor": remote.Shard(0)}, {"tensor": remote.Shard(1)}
        mesh.place(b, {"0.weight": rows, "0.bias": rows, "2.weight": columns})
        step = pliant.compile(step_of(b, torch.optim.AdamW(b.parameters(), lr=1e-2)), on=mesh)
        losses = []
        for i, (x, y) in enumerate(batches(7)):
            losses.append(step(mesh.shard(x, along="data"), mesh.shard(y, along="data")))
            mesh.flush()
            if i == 4:
                mesh.synchronize()
                ray_session.kill(mesh.transport.relays[0][0], no_restart=False)
        assert [float(v) for v in losses] == pytest.approx(want, rel=1e-4)
        assert str(b[0].weight.placement) == "(Replicate(), Shard(0))" and torch.allclose(b[0].weight.cpu(), a[0].weight, atol=1e-5)
        assert mesh.counts["recoveries"] == 1 and mesh.stats()["leaked"] == 0


@pytest.fixture
def no_ray():
    """Ray does not run, before and behind."""
    import ray

    ray.shutdown()
    yield ray
    ray.shutdown()


def test_workers_for_which_there_is_no_room(no_ray, monkeypatch):
    from pliant.remote import transport

    monkeypatch.setattr(transport, "LATE", 1.0)
    monkeypatch.setattr(transport, "START", 3.0)
    with pytest.warns(UserWarning, match=r"worker 0 of 2 has not begun for 1 s: each asks Ray for num_cpus=64"):
        with pytest.raises(remote.RemoteError, match=r"has not begun for 3 s: .* CPUs 2 are free. Ask for less with options="):
            remote.mesh(2, options={"num_cpus": 64}, init={"num_cpus": 2}, timeout=2.0)


def test_on_a_cluster_that_is_there_in_a_placement_group(no_ray):
    from ray.util.placement_group import placement_group, placement_group_table
    from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

    ray = no_ray
    ray.init(num_cpus=4, resources={"shelf": 2}, include_dashboard=False, logging_level="ERROR")
    group = placement_group([{"CPU": 1, "shelf": 1}] * 2)
    ray.get(group.ready())
    options = {"scheduling_strategy": PlacementGroupSchedulingStrategy(group), "resources": {"shelf": 1}}
    with remote.mesh(2, address="auto", options=options, timeout=60) as mesh:
        end = time.monotonic() + 30  # Ray tells of what is free a little late
        while (free := ray.available_resources()).get("shelf") and time.monotonic() < end:
            time.sleep(0.1)
        assert not free.get("shelf") and free["CPU"] == 2  # the workers are in the group, and take nothing beside it
        x = torch.arange(6.0)
        assert torch.equal(pliant.compile(lambda x: (x * 2).sum(), on=mesh)(mesh.shard(x)).cpu(), x.sum() * 2)
    assert placement_group_table(group)["state"] == "CREATED" and ray.is_initialized()  # neither is the mesh's
