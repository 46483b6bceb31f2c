"""Workers that are lost, wherever that is: what is computed is what a mesh gives that loses nobody."""

from __future__ import annotations

import pytest
import torch

from benchmarks import remote_fuzz
from pliant import remote
from pliant.remote.transport import Dead


@pytest.mark.parametrize("workers", [1, 3])
def test_all_workers_are_lost(workers):
    """What is replicated is then taken from the cluster's object store, as pieces are."""
    with remote_fuzz.mesh_for((workers,), 1e-9, 0) as mesh:
        x, w, one = mesh.shard(torch.arange(8.0)), mesh.replicate(torch.ones(8)), mesh[0].put(torch.ones(2))
        s, t, u = torch.arange(8.0), torch.ones(8), torch.ones(2)
        for i in range(24):
            w.add_(x * i)
            t.add_(s * i)
            one.mul_(0.5).add_(i)
            u.mul_(0.5).add_(i)
            x, s = x + 1, s + 1
            mesh.flush()
            if i % 5 == 4:
                for rank in range(1, workers):
                    mesh.transport.restart(rank, False)
                mesh.recover(Dead(0, "a test"))
        assert torch.equal(w.cpu(), t) and torch.equal(x.cpu(), s) and torch.equal(one.cpu(), u)
        assert mesh.counts["saves"] >= 2 and mesh.counts["recoveries"] == 4
        stats = mesh.stats()
        assert stats["leaked"] == 0 and stats["handles"] == 3


def test_a_worker_is_lost_while_the_mesh_is_saved():
    with remote_fuzz.mesh_for((2,), 1e-9, 0) as mesh:
        transport, stored, lost = mesh.transport, mesh.transport.exported, []

        def exported(rank, n, handles):
            if rank == 1 and n not in lost:
                lost.append(n)
                raise Dead(1, "a test")
            return stored(rank, n, handles)

        transport.exported = exported
        x, s = mesh.shard(torch.arange(8.0)), torch.arange(8.0)
        for _ in range(30):
            x, s = x * 0.5 + 1, s * 0.5 + 1
            mesh.flush()
        assert torch.equal(x.cpu(), s)
        assert mesh.counts["saves"] >= 3 and mesh.counts["recoveries"] == len(lost) >= 3


def test_a_recovery_that_failed_is_tried_again_before_anything_else():
    """Else workers that have gone back to what was saved would go on beside others that have not."""
    with remote_fuzz.mesh_for((2,), 1e-9, 0) as mesh:
        x, w, t = mesh.shard(torch.arange(8.0)), mesh.replicate(torch.ones(8)), torch.ones(8)
        for i in range(10):
            w.add_(x * i)
            t.add_(torch.arange(8.0) * i)
            mesh.flush()
        for _ in range(3):
            mesh.transport.share = 100.0
            with pytest.raises(remote.RemoteError, match="could not be made whole"):
                w.cpu()
            with pytest.raises(remote.RemoteError, match="could not be made whole"):
                (w + 1).cpu()
            mesh.transport.share = 0.0
            assert torch.equal(w.cpu(), t)
            w.mul_(2)
            t.mul_(2)


@pytest.mark.parametrize("shape, seed", [((3,), 9320000), ((2, 2), 9320010)])
def test_random_programs_whose_workers_are_lost(shape, seed):
    found = remote_fuzz.fuzz(10, seed, shape, 600, lose=0.15)
    assert found["wrong"] == 0 and found["recoveries"] > 10


class Rows(torch.nn.Module):
    def forward(self, x, lengths):
        return x.sum(1) / lengths


def test_a_server_goes_on():
    with remote_fuzz.mesh_for((3,), 0.1, 7) as mesh:
        server = mesh.serve(Rows, batch=4, queue=8)
        answers = [(r := torch.full((1 + i % 5,), float(i)), server.submit(r)) for i in range(80)]
        assert all(a.result(60) == r[0] for r, a in answers)
        server.close()
        assert mesh.counts["recoveries"] > 2 and server.counts["requests"] == 80
