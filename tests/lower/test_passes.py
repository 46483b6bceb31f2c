"""Liveness, repetitions, recomposition and the training plan, on traced programs."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from pliant.lower import cse, liveness, pipeline, views
from pliant.lower.autograd import Plan, needs_node
from pliant.lower.program import Program
from tests.codegen.tracing import Captured, tensors_of

aten = torch.ops.aten


def traced(fn, *examples, **options):
    """(trace, slots, flat outputs)"""
    c = Captured(fn, *examples, compiler=lambda *a: None, **options)
    return c.trace, c.slots, tensors_of(c.nested)


def names(ops):
    return [op.target._schema.name.removeprefix("aten::") for op in ops]


def live(fn, *examples):
    trace, slots, outputs = traced(fn, *examples)
    return names(liveness.live_ops(trace.ops, outputs, slots))


def simple(fn, *examples, **options):
    trace, _, outputs = traced(fn, *examples, **options)
    return names(liveness.live_ops(cse.without_repetition(trace.ops, outputs), outputs, []))


x = torch.randn(4, 6)


def test_dead_values_go():
    assert live(lambda t: (t.exp(), t.sin())[1], x) == ["sin"]


def test_writes_to_dead_memory_go():
    def fn(t):
        scratch = t.clone()
        scratch.add_(1)
        return t.sin()

    assert live(fn, x) == ["sin"]


def test_writes_through_views_of_live_memory_stay():
    def fn(t):
        y = t.clone()
        y[0].fill_(1)
        y.t().mul_(2)
        return y

    assert [n for n in live(fn, x) if n.endswith("_")] == ["fill_", "mul_"]


def test_writes_after_the_last_read_go():
    def fn(t):
        y = t.clone()
        z = y.sin()
        y.add_(1)
        return z

    assert live(fn, x) == ["clone", "sin"]


def test_writes_to_inputs_stay():
    assert live(lambda t: (t.t().add_(1), t.shape[0])[1], x) == ["t", "add_"]


def test_random_and_raising_operators_stay():
    assert "rand" in live(lambda t: (torch.rand(2), t.sin())[1], x)
    assert "index_select" in live(lambda t: (t.index_select(0, torch.tensor([0])), t.sin())[1], x)


def test_symbols_keep_what_defines_them():
    assert "nonzero" in live(lambda t: torch.zeros(torch.nonzero(t).shape[0]), x)
    c = Captured(lambda t: torch.nonzero(t).shape[0], x, compiler=lambda *a: None)
    kept = liveness.live_ops(c.trace.ops, [c.nested], c.slots)
    assert names(kept) == ["nonzero"]


def test_views_that_lead_back_go():
    assert simple(lambda t: t.t().t().sin(), x) == ["sin"]
    assert simple(lambda t: t.transpose(0, 1).transpose(1, 0).detach().sin(), x) == ["sin"]
    assert simple(lambda t: t.t().sin(), x) == ["t", "sin"]


def test_outputs_keep_their_identity():
    assert simple(lambda t: t.t().t(), x) == ["t", "t"]
    assert simple(lambda t: (t.sin(), t.sin()), x) == ["sin", "sin"]
    assert simple(lambda t: (t.sin(), t.sin().t()), x).count("sin") == 2


def test_repetitions_go_unless_memory_is_written():
    assert simple(lambda t: t.sin() + t.sin(), x) == ["sin", "add"]

    def fn(t):
        a = t.sin()
        t.add_(1)
        return a + t.sin()

    assert simple(fn, x).count("sin") == 2

    def written(t):
        a, b = t.sin(), t.sin()
        a.add_(1)
        return a * b

    assert simple(written, x).count("sin") == 2
    assert simple(lambda t: torch.rand(3) + torch.rand(3) + t[0, 0], x).count("rand") == 2


def test_arguments_that_differ_only_by_type_are_not_the_same():
    i = torch.arange(4)
    assert simple(lambda t: (t * 2).sum() + (t * 2.0).sum(), i).count("mul") == 2
    assert simple(lambda t: (t * 0.0).sum() + (t * -0.0).sum(), x).count("mul") == 2
    assert simple(lambda t: (t + 1).sum() + (t + True).sum(), i).count("add") == 3


def test_factories_are_recorded_once():
    def fn(t):
        z = torch.zeros(4, 6)
        z[0] = t[0]
        return z

    assert "detach" not in simple(fn, x)


def whole(fn, *examples, **options):
    trace, slots, outputs = traced(fn, *examples, **options)
    roots = [views.root(t, views.view_steps(trace.ops)) for t in outputs]
    program = pipeline.run(Program("test", trace.scope, slots, roots, trace.ops, closed=False), pipeline.SIMPLIFY)
    return names(pipeline.call_aten(program).steps)


def test_linear_is_recomposed():
    w, b = nn.Parameter(torch.randn(5, 8)), nn.Parameter(torch.randn(5))
    with torch.no_grad():
        assert whole(lambda t, w, b: F.linear(t, w, b).sin(), torch.randn(2, 3, 8), w, b) == ["linear", "sin"]
        assert whole(lambda t, w: F.linear(t, w).sin(), torch.randn(2, 3, 8), w) == ["linear", "sin"]
        assert whole(lambda t, w, b: F.linear(t, w, b).sin(), torch.randn(3, 8), w, b) == ["linear", "sin"]
        assert whole(lambda t, w, b: F.linear(t, w, b).sin() + F.linear(t, w, b).cos(), torch.randn(2, 3, 8), w, b).count("linear") == 1
        shared = whole(lambda t, w: F.linear(t, w).sin() + F.linear(t.cos(), w).sin(), torch.randn(2, 3, 8), w)
        assert shared.count("linear") == 2 and "t" not in shared


def test_linear_with_visible_parts_is_left():
    w = nn.Parameter(torch.randn(5, 8))
    with torch.no_grad():
        assert "mm" not in whole(lambda t, w: (F.linear(t, w).sin(), w.t().cos()), torch.randn(3, 8), w)
        assert "t" in whole(lambda t, w: (F.linear(t, w).sin(), w.t().cos()), torch.randn(3, 8), w)

        def written(t, w):
            y = F.linear(t, w).sin()
            w.mul_(2)
            return y

        assert "mm" in whole(written, torch.randn(3, 8), w)


def test_attention_matmuls_are_recomposed():
    def fn(t):
        b, s, d = t.shape
        q, k, v = (u.view(b, s, 2, d // 2).transpose(1, 2) for u in (t, t.sin(), t.cos()))
        return torch.softmax(q @ k.transpose(-1, -2), -1).matmul(v).sin()

    found = whole(fn, torch.randn(2, 5, 8), static=())
    assert found.count("matmul") == 2 and "bmm" not in found and "clone" not in found


def plan_of(fn, *examples, **options):
    trace, slots, outputs = traced(fn, *examples, **options)
    assert needs_node(trace, slots, outputs)
    return Plan(trace, slots, outputs, "region")


def test_plan_keeps_inputs_rather_than_views_of_them():
    w = nn.Parameter(torch.randn(5, 8))
    plan = plan_of(lambda t, w: t @ w.t(), torch.randn(3, 8, requires_grad=True), w)
    backward = plan.trace_backward((True,))
    kept = {t.vid for t in backward.reads}
    alias = plan.kept_views.aliases[plan.slots[1].vid]  # the memory that the view `w.t()` has, which eager keeps
    assert kept == {plan.slots[0].vid, alias.vid}


def test_plan_finds_heads_and_rebased_inputs():
    def fn(t, buffer):
        buffer.copy_(t * 2)
        y = t.exp()
        return y.t(), y[0], buffer, t

    plan = plan_of(fn, torch.randn(3, 4, requires_grad=True), torch.zeros(3, 4))
    assert len(plan.rebased) == 1 and len(plan.heads) == 2 and len(plan.replay) == 2
    assert [t.requires_grad for t in plan.wanted] == [True]


def test_backward_of_one_head_does_not_touch_the_other():
    a, b = nn.Parameter(torch.randn(4, 4)), nn.Parameter(torch.randn(4, 4))
    plan = plan_of(lambda t, a, b: (t @ a, t @ b), torch.randn(3, 4), a, b)
    only = plan.trace_backward((True, False))
    assert [g is None for g in only.grads] == [False, True]


@pytest.mark.parametrize("gradients", [False, True])
def test_calls_that_take_only_a_dtype_wait_for_nothing(gradients):
    """`y.new_zeros(n)` may stand before `y` is made, once fusion has moved that to the scatter: then it is no call that is given `y`."""

    def pooled(x, w, index):
        y = torch.relu(x + w)
        n = index.max().item() + 1
        count = y.new_zeros(n).scatter_add_(0, index, y.new_ones(index.shape[0]))
        return y.new_zeros(n, 4).scatter_add_(0, index[:, None].expand(-1, 4), y) / count.clamp(min=1)[:, None]

    compiled = pliant.compile(pooled, background=False)
    for rows in (10, 3, 17):
        x, w = torch.randn(rows, 4, requires_grad=gradients), torch.randn(4, requires_grad=gradients)
        index = torch.arange(rows) * 3 // rows
        torch.testing.assert_close(compiled(x, w, index), pooled(x, w, index))
