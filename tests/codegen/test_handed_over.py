"""Dynamo-style backends answer as eager PyTorch does, whatever changes from call to call, and find in a graph what they rely on.

AOTAutograd and Inductor take seconds a program, so only a share of the programs goes through them here: PLIANT_TEST_BACKENDS=all sends all.
"""

from __future__ import annotations

import os
import sys

import pytest
import torch

import pliant
from pliant.graph.trace import Trace
from tests.codegen.handed_cases import CASES
from tests.helpers import alive, check, compiled, interpreted

ALL = os.environ.get("PLIANT_TEST_BACKENDS") == "all"
AOT = """
    learning_rate float_returned float_branch slice_bounds nested_slices int_arithmetic size_as_tensor item tolist mask
    ragged checked_with_words view_by_item division_of_items written_before_an_assertion written_through_a_view modes_inside
    after_a_break training_with_item
""".split()
INDUCTOR = {"learning_rate": 4, "item": 3, "written_before_an_assertion": 2}
MORE_INDUCTOR = dict.fromkeys("nested_slices training mask float_returned checked_with_words shifted_windows tolist".split(), 9)


def run(name, backend, most=None):
    fn, arg_sets = CASES[name]
    grad = any(isinstance(a, torch.Tensor) and a.requires_grad for args in arg_sets for a in args)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 2000))  # Inductor does where it compiles for the first time, or finds nothing in its cache
    try:
        check(fn, *arg_sets[:most], grad=grad, lines=False, options={"backend": backend})
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("name", CASES)
def test_eager(name):
    run(name, "eager")


@pytest.mark.parametrize("name", CASES)
def test_interpreted(name):
    run(name, interpreted)


@pytest.mark.parametrize("name", CASES if ALL else AOT)
def test_aot_eager(name):
    run(name, "aot_eager")


@pytest.mark.parametrize(("name", "most"), {**INDUCTOR, **(MORE_INDUCTOR if ALL else {})}.items())
def test_inductor(name, most):
    run(name, "inductor", most)


# what a backend sees ------------------------------------------------------------------------------------------------------
class Seen:
    """A backend that remembers what it was given."""

    def __init__(self, run=interpreted):
        self.modules, self.examples, self.run = [], [], run

    def __call__(self, module, examples):
        self.modules.append(module)
        self.examples.append(examples)
        return self.run(module, examples)

    def placeholders(self):
        return [n for n in self.modules[-1].graph.nodes if n.op == "placeholder"]


def test_inputs_and_their_examples():
    def fn(u, lr, n):
        return u[:n] * lr

    seen = Seen()
    run = compiled(fn, backend=seen)
    for n, lr in ((3, 0.5), (4, 0.25), (5, 0.125), (6, 1.5), (1, 2.5), (0, 0.75)):
        u = torch.arange(7.0)
        assert torch.equal(run(u, lr, n), fn(u, lr, n))
    examples, nodes = seen.examples[-1], seen.placeholders()
    assert [n.meta["example_value"] is e for n, e in zip(nodes, examples, strict=True)] == [True] * len(nodes)
    floats = [e for e in examples if isinstance(e, torch.Tensor) and e.dtype is torch.float64]
    tensors = [e for e in examples if isinstance(e, torch.Tensor) and e.dtype is torch.float32]
    numbers = [e for e in examples if not isinstance(e, torch.Tensor)]
    assert len(floats) == 1 and floats[0].shape == () and floats[0].device.type == "cpu"
    assert len(tensors) == 1 and any(tensors[0].shape[0].node.expr == n.node.expr for n in numbers)
    assert {type(n) for n in numbers} == {torch.SymInt}
    assert len(seen.modules) <= 3  # neither a float nor an int needs a graph for each value


def test_nodes_tell_lines_and_example_values():
    def fn(u):
        a = u * 2
        return a[: u.shape[0] - 1]

    seen = Seen()
    compiled(fn, backend=seen)(torch.ones(5))
    module = seen.modules[0]
    calls = [n for n in module.graph.nodes if n.op == "call_function" and isinstance(n.meta.get("example_value"), torch.Tensor)]
    assert len(calls) == 2
    assert "a = u * 2" in calls[0].meta["stack_trace"] and __file__ in calls[0].meta["stack_trace"]
    assert [len(c.meta["example_value"].shape) for c in calls] == [1, 1]
    assert "a = u * 2" in module.print_readable(print_output=False)
    module.recompile()


def test_assertions_are_nodes_that_raise():
    def fn(n, u):
        k = n.item()
        torch._check(k >= 2, lambda: "too small")
        return u * k

    seen = Seen()
    run = compiled(fn, backend=seen)
    assert run(torch.tensor(3), torch.ones(2)).tolist() == [3, 3]
    (node,) = [n for n in seen.modules[0].graph.nodes if n.target is torch.ops.aten._assert_scalar.default]
    assert node.args[1] == "too small"
    with pytest.raises(RuntimeError, match="too small"):
        seen.modules[0](torch.tensor(1), torch.ones(2), *[2] * (len(seen.placeholders()) - 2))
    with pytest.raises(RuntimeError, match="too small"):
        run(torch.tensor(1), torch.ones(2))


def test_the_backend_may_bake_a_float_in():
    def bakes(module, examples):
        at = next((i for i, e in enumerate(examples) if isinstance(e, torch.Tensor) and e.dtype is torch.float64), None)
        if at is None:
            return module.forward
        value = float(examples[at].item_memo)
        return lambda *args: module.forward(*args[:at], torch.tensor(value, dtype=torch.float64), *args[at + 1 :])

    def fn(u, v):
        return u * v

    run = compiled(fn, backend=bakes)
    for v in (0.5, 0.25, 0.125, 0.25, 3.0, float("inf"), float("nan"), -0.0, 0.0):
        u = torch.ones(3)
        torch.testing.assert_close(run(u, v), fn(u, v), equal_nan=True)
        assert str(run(u, v)) == str(fn(u, v))


def test_inputs_that_share_memory():
    def fn(a, b):
        a.add_(1)
        return b * 2

    whole = torch.arange(6.0)
    pairs = [(torch.ones(4), torch.ones(4)), (whole[:4], whole[1:5]), (whole[2:], whole[:4]), (torch.zeros(4), torch.ones(4))]
    check(fn, *pairs, options={"backend": "aot_eager"})


def test_offsets_into_memory():
    def fn(u):
        return u[1:], u.as_strided((2,), (1,), 1), u * 2

    def written(u):
        u.add_(1)
        return u.as_strided((2,), (1,), 3)

    for program in (fn, written):
        check(program, *[(torch.arange(9.0)[i:],) for i in (0, 2, 1, 5)], options={"backend": "aot_eager"})


def test_lists_are_taken_as_they_were():
    def fn(a, b):
        parts = [a, b]
        first = torch.cat(parts)
        parts[0] = b
        return first, torch.cat(parts)

    for backend in ("eager", interpreted):
        check(fn, *[(torch.zeros(n), torch.ones(n)) for n in (2, 3)], options={"backend": backend})


def test_a_backend_that_cannot_do_sizes_from_data_gets_graphs_without_them():
    given = []

    def picky(module, examples):
        given.append(module)
        if any(n.target == "item" or n.target is torch.Tensor.item for n in module.graph.nodes):
            raise NotImplementedError("item")
        return module.forward

    def fn(u, n):
        v = u * 2
        return v[: n.item()] + 1

    run = compiled(fn, backend=picky)
    for k in (2, 3, 1):
        u, n = torch.arange(4.0), torch.tensor(k)
        assert torch.equal(run(u, n), fn(u, n))
    assert pliant.stats()["graph_breaks"] >= 1 and pliant.stats()["fallbacks"] == 0


def test_what_a_failed_graph_left_switched_is_put_back():
    def fn(u, i):
        with torch.no_grad():
            with torch.autocast("cpu", torch.bfloat16):
                return u[i] * 2

    for backend in ("eager", interpreted, "aot_eager"):
        check(fn, *[(torch.ones(3), torch.tensor(i)) for i in (1, 2, 9, 0)], lines=False, options={"backend": backend})


def test_nothing_is_kept_of_the_capture():
    before = alive(Trace)
    seen = Seen()
    compiled(lambda u: (u * 2).relu(), backend=seen)(torch.ones(3))
    assert not [o for o in alive(Trace) if o.torch_ops and not any(o is b for b in before)]
    assert seen.modules


def test_compilers_may_leave_modes_behind():
    def leaves_grad_off(module, examples):
        torch._C._set_grad_enabled(False)
        return module.forward

    run = compiled(lambda u: u * 2, backend=leaves_grad_off)
    assert run(torch.ones(3, requires_grad=True)).requires_grad and torch.is_grad_enabled()
