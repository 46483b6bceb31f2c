"""What moves across a side exit when a graph is lowered: nothing with an effect, and nothing that costs the other side."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant import native
from pliant.jit import branches
from pliant.lower import verify

pytestmark = pytest.mark.usefixtures("no_joins")


def printed(fn, *args):
    """The program of the hot side of `fn`."""
    pliant.reset()
    compiled = pliant.compile(fn, backend="native")
    with torch.no_grad():
        for _ in range(5):
            compiled(*args)
    (entry,) = native.entries(fn.__code__)
    assert pliant.stats()["exit_points"] == 1
    return entry.info.emitted.executable.source.splitlines()


def place(lines, text):
    found = [i for i, line in enumerate(lines) if text in line]
    assert found, "\n".join(lines)
    return found


def test_a_small_kernel_of_the_hot_side_runs_in_the_native_call_before():
    def fn(x):
        return x + 1 if x.sum() > 0 else x - 1

    assert len(place(printed(fn, torch.ones(4, 4)), "_segment")) == 1


def test_a_large_one_does_not():
    def fn(x):
        return x.exp() if x.sum() > 0 else x - 1

    lines = printed(fn, torch.ones(512, 512))
    (out,) = place(lines, "raise _Left")
    made = [i for i, line in enumerate(lines) if "_empty_float32" in line]
    assert len(made) == 1 and made[0] > out  # not even its memory is asked for


def test_products_and_calls_of_aten_stay_behind():
    def fn(x, w):
        if x.sum() > 0:
            return torch.linalg.norm(x @ w @ w), x.sort()[0]
        return x

    lines = printed(fn, torch.ones(8, 8), torch.eye(8))
    (out,) = place(lines, "raise _Left")
    assert min(place(lines, "sort")) > out


def test_writes_and_draws_stay_on_their_side():
    def fn(x, y):
        y.mul_(2)
        a = torch.rand(3)
        if x.sum() > 0:
            y.add_(1)
            return a + torch.rand(3)
        return a

    x, y = torch.ones(4), torch.ones(5)
    lines = printed(fn, x, y)
    (out,) = place(lines, "raise _Left")
    first, second = place(lines, "rand")
    assert first < out < second
    for side in (1, -1, 1, -1):
        outs = []
        for f in (fn, pliant.compile(fn, backend="native")):
            torch.manual_seed(side)
            z = torch.ones(5)
            outs.append((f(x * side, z), z, torch.rand(1), z._version > 0))
        assert all(torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b for a, b in zip(*outs, strict=True))


def test_every_pass_keeps_an_exit():
    """The verifier runs after each pass here; and a program without one of them is as right."""
    def fn(x):
        y = x.relu() * 2
        z = y.t()
        if y.sum() > 3:
            return z.softmax(-1) + 1
        return z - y.t()

    assert "effect" in verify.RULES
    for forced in (lambda code, offset: True, lambda code, offset: False):
        branches.forced = forced
        try:
            pliant.reset()
            compiled = pliant.compile(fn, backend="native", strict=True)
            with torch.no_grad():
                for x in (torch.ones(3, 4), -torch.ones(3, 4)):
                    torch.testing.assert_close(compiled(x), fn(x))
            assert pliant.stats()["side_exits"] == 1
        finally:
            branches.forced = None
