"""What profilers and tracers see of compiled functions: `torch.profiler`, `cProfile`, `sys.settrace`."""

from __future__ import annotations

import cProfile
import os
import sys

import pytest
import torch
from torch import nn
from torch.profiler import profile, record_function

import pliant

HERE = os.path.basename(__file__)


def helper(x):
    return x.cos() + 1


def plain(x, w):
    with record_function("mine"):
        y = torch.relu(x @ w + 1)
    return torch.softmax(helper(y) * 2, -1), y.topk(2)


def broken(x, w):
    y = plain(x, w)[0]
    pliant.graph_break()
    return (y @ w).sin() * 2


def fails(x, w):
    return (x @ w)[torch.tensor([99])]


def names(run) -> list[str]:
    with profile() as p:
        run()
    return [e.name for e in p.events()]


def ready(fn, *args):
    pliant.reset()
    compiled = pliant.compile(fn, background=False)
    compiled(*args)
    return compiled


X, W = torch.randn(5, 8), torch.randn(8, 8)


def test_regions_and_kernels_have_the_names_of_the_program():
    compiled = ready(plain, X, W)
    seen = names(lambda: compiled(torch.randn(7, 8), W))
    assert [n for n in seen if n.startswith("pliant: ")] == [f"pliant: plain ({HERE}:{plain.__code__.co_firstlineno})"]
    (kernel,) = [n for n in seen if n.startswith("pliant kernel: ")]
    line = plain.__code__.co_firstlineno + 2
    assert "mm+add+relu" in kernel.replace("mm+relu", "mm+add+relu") and f"{HERE}:{line}" in kernel
    assert "aten::topk" in seen


def test_regions_around_a_break():
    compiled = ready(broken, X, W)
    seen = [n for n in names(lambda: compiled(torch.randn(7, 8), W)) if n.startswith("pliant: ")]
    assert len(seen) == 2 and all(HERE in n for n in seen) and seen[0].startswith("pliant: broken")


def test_kernels_of_the_backward_part():
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    compiled = pliant.compile(lambda x: model(x).pow(2).sum(), background=False)
    compiled(X).backward()
    out = compiled(torch.randn(6, 8))
    assert any(n.startswith("pliant kernel: ") for n in names(out.backward))


@pytest.mark.parametrize("fn", [plain, broken])
def test_answers_are_the_same_under_a_profiler(fn):
    compiled = ready(fn, X, W)
    x = torch.randn(9, 8)
    want = fn(x, W)
    with profile():
        got = compiled(x, W)
        cold = pliant.compile(lambda a, b: fn(a, b), background=False)(x, W)
    torch.testing.assert_close(got, want)
    torch.testing.assert_close(cold, want)


def test_an_error_passes_through_the_marks():
    compiled = ready(lambda x, w: x @ w, X, W)
    pliant.reset()
    compiled = pliant.compile(fails, background=False)
    for _ in range(2):
        with profile() as p, pytest.raises(IndexError):
            compiled(X, W)
        assert sum(e.name.startswith("pliant: ") for e in p.events()) <= 1


def test_nothing_is_marked_when_nobody_looks():
    compiled = ready(plain, X, W)
    names(lambda: compiled(X, W))
    with torch.autograd.profiler.profile() as p:
        pass
    compiled(X, W)
    assert not [e for e in p.function_events if e.name.startswith("pliant")]


def test_cprofile_names_functions_of_the_program():
    compiled = ready(broken, X, W)
    p = cProfile.Profile()
    p.runcall(compiled, torch.randn(7, 8), W)
    python = [e.code for e in p.getstats() if not isinstance(e.code, str)]
    assert {c.co_name for c in python if os.path.basename(c.co_filename) == HERE} == {"broken"}


def traced(compiled, saw):
    """What a call answers while a trace function is set, which tells `saw` of each event."""

    def trace(frame, event, arg):
        saw(frame, event)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        return compiled(X, W)
    finally:
        sys.settrace(before)


def test_a_trace_function_sees_frames_of_the_program():
    compiled, seen = ready(broken, X, W), []

    def saw(frame, event):
        if os.path.basename(frame.f_code.co_filename) == HERE:
            seen.append((frame.f_code.co_name, frame.f_lineno))

    got = traced(compiled, saw)
    torch.testing.assert_close(got, broken(X, W))
    first = broken.__code__.co_firstlineno
    lines = {line for name, line in seen if name == "broken"}
    assert lines and all(first <= line <= first + 3 for line in lines)


def test_a_first_call_under_a_trace_function():
    pliant.reset()
    compiled, events = pliant.compile(plain, background=False), []
    got = traced(compiled, lambda frame, event: events.append(event))
    torch.testing.assert_close(got, plain(X, W))
    assert pliant.stats()["captures"] == 1 and not pliant.stats()["graph_breaks"]
