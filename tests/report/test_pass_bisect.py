"""The pass bisector: planted faults in passes are found by name, and told from faults of kernels' code and of the capture."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pliant.codegen import target
from pliant.codegen.cpu import scalars
from pliant.graph.traced import TracedTensor, make
from pliant.lower import fuse, pipeline
from pliant.lower.loops import Node
from pliant.report import bisect

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """Kernels of these tests are nobody else's; what a verifier would refuse is left to the bisector."""
    monkeypatch.setattr(target.named("cpu"), "launchers", {})
    monkeypatch.setattr(target.named("cpu"), "addresses", {})
    monkeypatch.setenv("PLIANT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(pipeline, "verify", lambda *a: None)


def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = F.linear(x, w, b)
    y = torch.tanh(h + 1) * x.sum(-1, keepdim=True)
    z = (y * 2).exp() + (y * 2).sin()
    s = torch.softmax(z, -1)
    return s @ w, x.t().contiguous().t() + 1, y.cumsum(0), z.sort(-1)[0] * s


def arguments() -> tuple[torch.Tensor, ...]:
    make = torch.Generator().manual_seed(0)
    return torch.rand(6, 9, generator=make), torch.rand(7, 9, generator=make), torch.rand(7, generator=make)


def times(target: Any, factor: int) -> Callable[[list[Any]], list[Any]]:
    """Operations, of which the first one of `target` gets another number."""

    def change(ops: list[Any]) -> list[Any]:
        out = list(ops)
        i = next(i for i, op in enumerate(out) if op.target is target)
        out[i] = replace(out[i], args=(out[i].args[0], factor))
        return out

    return change


def swapped_operands(ops: list[Any]) -> list[Any]:
    """The weight of the first `linear` is read with its rows the other way round."""
    out = list(ops)
    i = next(i for i, op in enumerate(out) if op.target is aten.linear.default)
    flipped = replace(out[i], target=aten.flip.default, args=(out[i].args[0], [0]), outs=[twin(out[i].args[0])])
    out[i : i + 1] = [flipped, replace(out[i], args=(flipped.outs[0], *out[i].args[1:]))]
    return out


def twin(t: TracedTensor) -> TracedTensor:
    return make(t.trace, t.sizes, t.strides, t.dtype, 0, None, t.device, True)


def doubled(groups: list[Any]) -> list[Any]:
    """The first fused store is twice what it was."""
    put = next(g for g in groups if g.nest is not None and g.fused).nest.stores[-1]
    put.node = Node("add", (put.node, put.node), put.node.dtype)
    return groups


def negated(groups: list[Any]) -> list[Any]:
    put = max((g.nest for g in groups if g.nest is not None), key=lambda nest: len(nest.nodes())).stores[0]
    put.node = Node("neg", (put.node,), put.node.dtype)
    return groups


def other_operand(groups: list[Any]) -> list[Any]:
    """A product of the same matrix twice, as far as it goes."""
    found = next(g for g in groups if g.library)
    found.library[0].a.offset = 1
    return groups


def later(items: list[Any]) -> list[Any]:
    """One that others depend on runs behind them."""
    i = next(i for i, item in enumerate(items) if any(item.index in other.deps for other in items))
    return [*items[:i], *items[i + 1 :], items[i]]


def without_first(runs: list[Any]) -> list[Any]:
    """The first instruction of the longest run is lost."""
    longest = max(runs, key=lambda r: len(r.instructions))
    fill = next(i for i, item in enumerate(longest.instructions) if item.steps)
    del longest.instructions[fill]
    return runs


FAULTS: list[tuple[str, Callable]] = [
    ("cse", times(aten.mul.Tensor, 3)),
    ("pattern-fusion", swapped_operands),
    ("pattern-fusion", times(aten.add.Tensor, 2)),
    ("accumulate", times(aten.add.Tensor, 5)),
    ("rematerialize", negated),
    ("fuse-producers", doubled),
    ("fuse-siblings", doubled),
    ("call-library", other_operand),
    ("arrange", later),
    ("sink", later),
    ("join-runs", without_first),
    ("cut-runs", without_first),
]


@pytest.mark.parametrize("name, fault", FAULTS)
def test_a_faulty_pass_is_found(name: str, fault: Callable, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = []
    for row in pipeline.PASSES:
        if row.name == name:
            inner = row.run
            row = replace(row, run=lambda p, inner=inner: fault(inner(p)))
        rows.append(row)
    by_name = {row.name: row for row in rows}
    for attribute in ("SIMPLIFY", "REWRITE", "COMPILE"):
        monkeypatch.setattr(pipeline, attribute, tuple(by_name[row.name] for row in getattr(pipeline, attribute)))
    found = bisect.first_wrong_pass(program, *arguments())
    assert found is not None and found.program.startswith("region"), found
    # what a pass spoils may show only when a later one makes use of it
    assert found.name == name or name == "call-library" and name in found.without, found


def test_nothing_is_wrong() -> None:
    assert bisect.first_wrong_pass(program, *arguments()) is None


def test_wrong_code_is_told_from_a_wrong_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scalars.ROWS, "exp", lambda m, dtype, a: a)
    found = bisect.first_wrong_pass(lambda x: x.exp().sum(-1) * 2, torch.rand(4, 5))
    assert found is not None and found.name == bisect.CODE


def test_a_wrong_lowering_is_no_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    lower = fuse.Builder.lower

    def wrong(self: Any, op: Any) -> Any:
        nests = lower(self, op)
        for nest in nests or ():
            for put in nest.stores:
                if op.target is aten.exp.default:
                    put.node = put.node.args[0]
        return nests

    monkeypatch.setattr(fuse.Builder, "lower", wrong)
    found = bisect.first_wrong_pass(lambda x: x.exp().sum(-1) * 2, torch.rand(4, 5))
    assert found is not None and found.name == bisect.REQUIRED


def test_passes_are_left_out_by_name() -> None:
    with pytest.raises(ValueError, match="no pass that could be left out: emit, nobody"), pipeline.without("emit", "nobody"):
        pass
    with pipeline.without("join-runs"):
        assert "join-runs" in pipeline.off
    assert not pipeline.off
