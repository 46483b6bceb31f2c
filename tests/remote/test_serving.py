"""Pools of replicas: what happens where too many ask, or nobody wants the answer."""

from __future__ import annotations

import time

import pytest
import torch


class Rows(torch.nn.Module):
    def forward(self, x, lengths):
        if x.dtype is torch.int64:
            x = x.double()
        return x.flatten(1).sum(1) / lengths


def test_a_full_queue_blocks(mesh):
    """Who submits waits while the workers are busy; nothing is lost, and requests of other sizes and dtypes get batches of their own."""
    server = mesh.serve(Rows, batch=2, queue=4)
    kinds = (lambda i: torch.ones(2 + i % 3), lambda i: torch.full((2, 3), float(i)), lambda i: torch.arange(1 + i % 4))
    want = lambda r: r.double().sum() / len(r)
    first = kinds[0](0)
    torch.testing.assert_close(server(first).double(), want(first))
    with mesh.lock:
        for rank in range(3):
            mesh.issue(["sleep", 1.0, rank])
        mesh.flush()
    answers, began, after = [], time.monotonic(), []
    for i in range(12):
        answers.append((r := kinds[i % 3](i), server.submit(r)))
        after.append(time.monotonic() - began)
    assert after[2] < 0.8 < after[-1] and server.counts["blocked"] >= 1
    for r, a in answers:
        torch.testing.assert_close(a.result(60).double(), want(r))
    server.close()


def test_requests_that_nobody_wants_and_requests_that_are_none(mesh):
    server = mesh.serve(Rows, batch=4, wait=0.3, queue=3)
    for _ in range(3):  # none of them takes a place in the queue for good
        kept, gone = server.submit(torch.ones(3)), server.submit(torch.ones(3))
        assert gone.cancel()
        assert kept.result(60) == 1
    for bad in (torch.tensor(1.0), 3, None):
        with pytest.raises(TypeError, match="request"):
            server.submit(bad)
    assert server(torch.ones(2)) == 1 and server.counts["cancelled"] == 3
    server.close()
