"""The verifier: a malformed program for each of its rules, and none among well-formed ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.codegen import target
from pliant.errors import InternalError
from pliant.graph.record import Bind, Op
from pliant.graph.trace import Trace
from pliant.graph.traced import make
from pliant.lower import pipeline, verify
from pliant.lower.kernels import Launch
from pliant.lower.loops import Buffer, Kernel, Node, Store
from pliant.lower.program import CALLS, GRAPH, GROUPS, INSTRUCTIONS, REUSE, RUNS, KernelCall, Program, SegmentCall
from pliant.symbolic.scope import Scope
from tests.codegen.tracing import Captured, tensors_of

aten = torch.ops.aten


def program(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = torch.tanh(x @ w.t()) + 1
    z = torch.softmax(y, -1)
    n = torch.rand(3)
    return z.sum(0) * 2, y.sort(-1)[0], x.clone().add_(1), n, torch.nonzero(z)


LIVE: list[Captured] = []
KEPT: list[Trace] = []
"""Programs know their trace by a weak reference."""


def at(level: str, fn: Callable = program, *given: torch.Tensor) -> Program:
    """The program, lowered to this level."""
    given = given or (torch.randn(5, 4), torch.randn(4, 4))
    c = Captured(fn, *given, compiler=lambda *a: None)
    LIVE.append(c)
    p = Program("planted", c.scope, c.slots, tensors_of(c.nested), list(c.trace.ops), closed=False, target=target.current())
    p = pipeline.run(p, pipeline.SIMPLIFY)
    if level == GRAPH:
        return p
    first = next(i for i, row in enumerate(pipeline.COMPILE) if row.makes == level)
    return pipeline.run(p, pipeline.COMPILE[: first + 1])


def op_of(p: Program, name: str) -> int:
    return next(i for i, op in enumerate(p.steps) if str(op.target).startswith(f"aten.{name}."))


def changed(name: str, **fields: Any) -> Callable[[Program], None]:
    """Plant another field in the first operation of this name."""

    def plant(p: Program) -> None:
        i = op_of(p, name)
        p.steps[i] = replace(p.steps[i], **{k: v(p, p.steps[i]) for k, v in fields.items()})

    return plant


def stranger(like: Any) -> Any:
    """A tensor that nobody makes."""
    return make(like.trace, like.sizes, like.strides, like.dtype, 0, None, like.device, like.dense)


def swapped(p: Program) -> None:
    i, j = op_of(p, "tanh"), op_of(p, "mm")
    p.steps[i], p.steps[j] = p.steps[j], p.steps[i]


def without(name: str) -> Callable[[Program], None]:
    def plant(p: Program) -> None:
        del p.steps[op_of(p, name)]

    return plant


def other_trace(p: Program) -> None:
    x = stranger(p.steps[0].outs[0])
    elsewhere = Trace(Scope())
    KEPT.append(elsewhere)
    y = make(elsewhere, (4, 4), (4, 1), torch.float32, 0, None, None, True)
    y.vid = p.inputs[1].vid if hasattr(p.inputs[1], "vid") else next(t.vid for t in p.inputs if hasattr(t, "vid"))
    i = op_of(p, "tanh")
    p.steps[i] = replace(p.steps[i], args=(y,))
    assert x.trace is not y.trace


def no_result(p: Program) -> None:
    i = op_of(p, "sort")
    p.steps[i] = replace(p.steps[i], outs=p.steps[i].outs[:1])


def of_in_place(p: Program) -> None:
    i = op_of(p, "add_")
    p.steps[i] = replace(p.steps[i], outs=[stranger(p.steps[i].outs[0])])


def view_elsewhere(p: Program) -> None:
    """A view of memory that somebody writes, with memory of its own."""
    i = op_of(p, "add_")
    x = p.steps[i].args[0]
    v = make(x.trace, x.sizes, x.strides, x.dtype, 0, None, x.device, True)
    p.steps.insert(i, Op(aten.alias.default, (x,), {}, [v], None, None, -1))


def not_fresh(p: Program) -> None:
    i = op_of(p, "tanh")
    x = p.steps[i].args[0]
    p.steps[i] = replace(p.steps[i], outs=[make(x.trace, x.sizes, x.strides, x.dtype, 0, x.storage_id, x.device, True)])


def group(p: Program, nest: bool = True) -> Any:
    return next(g for g in p.steps if (g.nest is not None) is nest)


def nested(change: Callable[[Any], None]) -> Callable[[Program], None]:
    return lambda p: change(group(p).nest)


def node(op: str, args: tuple, dtype: str, attrs: tuple = ()) -> Callable[[Any], None]:
    """Stores something made of this node."""

    def change(nest: Any) -> None:
        operand = nest.stores[0].node
        nest.stores[0].node = Node(op, tuple(operand for _ in args), dtype, attrs)

    return change


def relabel(nest: Any) -> None:
    load = nest.loads()[0]
    nest.stores[0].node = Node("load", load.args, load.dtype, (10**6, *load.attrs[1:]))


def loaded_as(nest: Any) -> None:
    load = nest.loads()[0]
    nest.stores[0].node = Node("cast", (Node("load", load.args, "f64", load.attrs),), nest.stores[0].node.dtype)


def shorter(nest: Any) -> None:
    nest.stores[0].strides = nest.stores[0].strides[:-1]


def shorter_load(nest: Any) -> None:
    load = nest.loads()[0]
    nest.stores[0].node = Node("load", load.args, load.dtype, (load.attrs[0], load.attrs[1][:-1], *load.attrs[2:]))


def launch_of(p: Program) -> Launch:
    return next(s for item in p.steps for s in item.steps if isinstance(s, Launch))


def kernel(change: Callable[[Launch], None]) -> Callable[[Program], None]:
    return lambda p: change(launch_of(p))


def extra_node(op: str, attrs: tuple, dtype: str = "i64") -> Callable[[Launch], None]:
    """A store of a node that is not right."""

    def change(launch: Launch) -> None:
        store = launch.kernel.stores[0]
        store.node = Node("cast", (Node(op, (), dtype, attrs),), store.node.dtype)

    return change


def read_elsewhere(launch: Launch) -> None:
    """A kernel that reads what it writes one element further."""
    k = launch.kernel
    s = k.stores[0]
    strides = (*s.strides, *(0,) * (len(k.dims) - len(s.strides)))
    s.node = Node("load", (), k.buffers[s.buffer].dtype, (s.buffer, strides, 1, ()))


def library(p: Program) -> Any:
    return next(s for item in p.steps for s in item.steps if not isinstance(s, Launch))


def segment(p: Program, inner: bool = True) -> Any:
    return next(
        op.target.segment for op in p.steps if type(op.target) is SegmentCall and (op.target.segment.inner or not inner)
    )  # fmt: skip


def segmental(change: Callable[[Any], None]) -> Callable[[Program], None]:
    return lambda p: change(segment(p))


def overlapping(p: Program) -> None:
    s = segment(p)
    s.inner.append(s.inner[0])
    s.intervals.append(s.intervals[0])
    s.plan.place.append(s.plan.place[0])
    s.plan.within.append(s.plan.within[0])


def reused(p: Program) -> None:
    """Another tensor takes the memory of an input that is read later."""
    i = next(i for i, op in enumerate(p.steps) if type(op.target) is SegmentCall)
    x = next(t for t in p.inputs if hasattr(t, "vid"))
    new = stranger(x)
    written = Kernel("k", (4,), 0, [Buffer("f32", True)], [Store(0, (1,), 0, Node("const", (), "f32", (0.0,)))])
    call = Op(KernelCall(Launch(written, "k", [new], [], [])), (new,), {}, [new], "flat", None, -1)
    p.steps[i:i] = [Op(REUSE, (x,), {}, [new], None, None, -1), call]


def read_blank(p: Program) -> None:
    """Memory is read before anybody writes it."""
    i = next(i for i, op in enumerate(p.steps) if type(op.target) is SegmentCall)
    blank = p.steps[i - 1].outs[0]
    made = stranger(blank)
    p.steps.insert(i, Op(aten.tanh.default, (blank,), {}, [made], None, None, -1))


def unused_memory(p: Program) -> None:
    i = next(i for i, op in enumerate(p.steps) if type(op.target) is SegmentCall)
    p.steps.insert(i, replace(p.steps[i - 1], outs=[stranger(p.steps[i - 1].outs[0])]))


def twice(p: Program) -> None:
    i = op_of(p, "tanh")
    p.steps.insert(i + 1, p.steps[i])


def small_slot(s: Any) -> None:
    s.intervals[0].size = 1 << 30
    slot = s.plan.slots[0]
    slot.sizes = [64]
    s.plan.place[0] = 0


PLANTED: list[tuple[str, str, Callable[[Program], None]]] = [
    ("target", GRAPH, changed("tanh", target=lambda p, op: torch.tanh)),
    ("undefined", GRAPH, swapped),
    ("undefined", GRAPH, changed("tanh", args=lambda p, op: (stranger(op.outs[0]),))),
    ("redefined", GRAPH, twice),
    ("output", GRAPH, lambda p: p.outputs.append(stranger(p.outputs[0]))),
    ("symbol", GRAPH, lambda p: p.outputs.append(p.scope.backed("nobody", 3))),
    ("argument", GRAPH, changed("tanh", args=lambda p, op: (torch.ones(3),))),
    ("argument", GRAPH, changed("tanh", args=lambda p, op: (object(),))),
    ("trace", GRAPH, other_trace),
    ("trace", GRAPH, changed("rand", args=lambda p, op: ([pliant_number()],))),
    ("arity", GRAPH, changed("tanh", args=lambda p, op: (*op.args, 1, 2))),
    ("arity", GRAPH, changed("mm", args=lambda p, op: op.args[:1])),
    ("arity", GRAPH, changed("tanh", kwargs=lambda p, op: {"dim": 1})),
    ("results", GRAPH, no_result),
    ("in place", GRAPH, of_in_place),
    ("view", GRAPH, view_elsewhere),
    ("fresh", GRAPH, not_fresh),
    ("bind", GRAPH, changed("tanh", binds=lambda p, op: [Bind(p.scope.unbacked("u77"), 5)])),
    ("bind", GRAPH, changed("tanh", binds=lambda p, op: [Bind(p.scope.unbacked("u78"), 0, 7)])),
    ("metadata", GRAPH, changed("tanh", outs=lambda p, op: [ragged(op.outs[0])])),
    ("positions", GROUPS, lambda p: p.steps.pop()),
    ("positions", GROUPS, lambda p: group(p).ops.append(1000)),
    ("opaque", GROUPS, lambda p: group(p, False).ops.append(group(p, False).ops[0])),
    ("dependence", GROUPS, lambda p: p.steps.reverse()),
    ("rank", GROUPS, nested(shorter)),
    ("rank", GROUPS, nested(shorter_load)),
    ("root", GROUPS, nested(relabel)),
    ("root", GROUPS, nested(lambda n: setattr(n.stores[0], "root", 10**6))),
    ("dtype", GROUPS, nested(lambda n: setattr(n.stores[0], "node", Node("cast", (n.stores[0].node,), "i64")))),
    ("dtype", GROUPS, nested(loaded_as)),
    ("node", GROUPS, nested(node("tan_h", (0,), "f32"))),
    ("node", GROUPS, nested(node("tanh", (0, 1), "f32"))),
    ("node", GROUPS, nested(node("and", (0, 1), "f32"))),
    ("node", GROUPS, nested(node("lt", (0, 1), "f32"))),
    ("loop", GROUPS, nested(lambda n: setattr(n, "reduced", 9))),
    ("loop", GROUPS, nested(lambda n: setattr(n.stores[0], "node", Node("cast", (Node("index", (), "i64", (7,)),), "f32")))),
    ("idle", INSTRUCTIONS, lambda p: (p.steps[0].steps.clear(), setattr(p.steps[0], "op", None))),
    ("dependence", INSTRUCTIONS, lambda p: p.steps.reverse()),
    ("reads", INSTRUCTIONS, lambda p: (p.steps.reverse(), [item.deps.clear() for item in p.steps])),
    ("buffers", INSTRUCTIONS, kernel(lambda x: x.buffers.pop())),
    ("buffers", INSTRUCTIONS, kernel(lambda x: setattr(x.kernel.stores[0], "buffer", 40))),
    ("sizes", INSTRUCTIONS, kernel(lambda x: x.sizes.append(3))),
    ("sizes", INSTRUCTIONS, kernel(extra_node("size", ("n99",)))),
    ("loop", INSTRUCTIONS, kernel(extra_node("index", (11,)))),
    ("made", INSTRUCTIONS, kernel(lambda x: x.made.append(next(i for i, b in enumerate(x.kernel.buffers) if not b.written)))),
    ("written", INSTRUCTIONS, kernel(lambda x: setattr(x.kernel.buffers[x.kernel.stores[0].buffer], "written", False))),
    ("same element", INSTRUCTIONS, kernel(read_elsewhere)),
    ("library", INSTRUCTIONS, lambda p: setattr(library(p).a, "offset", 1.5)),
    ("library", INSTRUCTIONS, lambda p: setattr(library(p).a, "root", library(p).out)),
    ("run", RUNS, lambda p: p.steps[0].instructions.clear()),
    ("run", RUNS, lambda p: p.steps[0].instructions.extend(next(r for r in p.steps if r.native != p.steps[0].native).instructions)),
    ("unwritten", CALLS, read_blank),
    ("wasted", CALLS, unused_memory),
    ("reuse", CALLS, reused),
    ("segment", CALLS, segmental(lambda s: (s.inner.pop(), s.intervals.pop(), s.plan.place.pop(), s.plan.within.pop()))),
    ("arena", CALLS, segmental(lambda s: s.plan.place.pop())),
    ("arena", CALLS, segmental(lambda s: s.plan.place.__setitem__(0, 99))),
    ("overlap", CALLS, overlapping),
    ("slot", CALLS, segmental(small_slot)),
    ("leaves", CALLS, segmental(lambda s: s.leaves.clear())),
    ("arguments", CALLS, segmental(lambda s: s.outer.extend(s.outer * 1000))),
]


def pliant_number() -> torch.SymInt:
    c = Captured(lambda x: x, torch.randn(3, 3), compiler=lambda *a: None)
    return c.trace.inputs[0].sizes[0]


def ragged(t: Any) -> Any:
    t = stranger(t)
    t.strides = t.strides[:1]
    return t


BETWEEN: list[tuple[str, Callable[[Program], Any]]] = [
    ("draws", lambda p: p.replaced([op for op in p.steps if "rand" not in str(op.target)], outputs=p.outputs)),
    ("interface", lambda p: p.replaced(p.steps, outputs=p.outputs[:1])),
    ("interface", lambda p: p.replaced(p.steps, inputs=p.inputs[1:])),
]


@pytest.mark.parametrize("rule, level, plant", PLANTED)
def test_a_malformed_program_is_refused(rule: str, level: str, plant: Callable) -> None:
    p = at(level)
    verify.verify(p, "nothing")
    plant(p)
    with pytest.raises(InternalError, match=rf"behind the pass planted: .* \({rule}\)"):
        verify.verify(p, "planted")


@pytest.mark.parametrize("rule, change", BETWEEN)
def test_what_a_pass_must_keep(rule: str, change: Callable) -> None:
    p = at(GRAPH)
    promise = verify.promised(p)
    with pytest.raises(InternalError, match=rf"\({rule}\)"):
        after = change(p)
        after.closed = False
        if rule == "draws":
            after.outputs[:] = [t for t in after.outputs if t.vid in {o.vid for op in after.steps for o in op.outs}]
            promise = replace(promise, outputs=tuple(map(id, after.outputs)))
        verify.verify(after, "planted", promise)


def test_lost_writes_to_outside() -> None:
    p = at(GRAPH, lambda x, y: x.add_(1) * y, torch.randn(3, 4), torch.randn(3, 4))
    promise = verify.promised(p)
    p.steps[op_of(p, "add_")] = replace(p.steps[op_of(p, "add_")], target=aten.add.Tensor, outs=[stranger(p.steps[0].outs[0])])
    with pytest.raises(InternalError, match=r"\(effect\)"):
        verify.verify(p, "planted", promise)


def test_every_rule_is_broken_by_some_test() -> None:
    assert {row[0] for row in PLANTED} | {row[0] for row in BETWEEN} | {"effect"} == set(verify.RULES)


def test_strict_programs_are_verified(monkeypatch: pytest.MonkeyPatch) -> None:
    """In strict mode, and where the environment says so; else it costs nothing."""
    seen: list = []
    monkeypatch.setattr(pipeline, "verify", lambda p, name, promise=None, known=None: seen.append(name))
    monkeypatch.setenv("PLIANT_STRICT", "0")
    fn = lambda x: F.gelu(x).sum(-1) * 2  # noqa: E731
    pliant.compile(fn, strict=False)(torch.randn(3, 4))
    assert not seen
    pliant.reset()
    pliant.compile(fn, strict=True)(torch.randn(3, 5))
    assert {"cse", "fuse-producers", "emit"} & set(seen)
