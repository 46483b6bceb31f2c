"""What a Dynamo-style backend is handed, worked out once for each captured graph: the module, its inputs, and what is true of them.

A compiler may keep what it is given as long as it lives, and with it a capture must not live. So everything about traced values is told
here in plain data: sizes are Python text over the names of symbols.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from pliant.codegen.aten import AS_STRIDED
from pliant.codegen.effects import cannot_repeat
from pliant.codegen.failures import drawn_from
from pliant.graph.data_errors import CHECKS_DATA, cannot_undo, leaves_a_part
from pliant.graph.originals import ORIGINAL
from pliant.graph.schema import op_info
from pliant.graph.torch_graph import assembled, stack_trace
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr


@dataclass(slots=True)
class TensorSlot:
    """What a fake tensor is made from: sizes, strides and offset as Python text over the symbols."""

    sizes: str
    strides: str
    offset: str
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool = False
    is_leaf: bool = True
    is_parameter: bool = False
    bits: tuple[bool, bool] = (False, False)  # lazy conjugate, lazy negative
    written: bool = False  # the graph writes its memory


@dataclass(slots=True)
class Number:
    """A number as Python text over the symbols."""

    text: str


@dataclass(slots=True)
class SymbolInfo:
    """A symbol and how it is read at a call. `size`: it is the size of a dim, of which backends take 0 and 1 to be special."""

    name: str
    kind: type
    size: bool
    hint: Any
    read: Callable[[tuple], Any]


@dataclass(slots=True)
class Facts:
    """What the verifier compares a graph with. It holds the capture, so it goes when the graph has been verified.

    `asserts`: the assertions of the capture; `effects`: operations that have to be done; `ops`: the operations of each node; `known`: the
    symbols that the graph can ask about (an assertion about others is checked by the call inside of which they are).
    """

    asserts: list[Any]
    effects: list[Any]
    ops: list[tuple]
    known: set[Expr]


@dataclass(slots=True)
class Handed:
    """`at[i]` is the slot (an argument of the executable) that placeholder `i` stands for; `inputs[i]` is what is known of it.

    `values` has the example value of each node, by name; `effects_from` is the place (among the nodes) of the first node that cannot be
    done twice, or undone where `undone` says that it has to be; `writes` tells whether memory of an input is written; `unbacked`, whether
    the graph makes sizes that only its run knows.
    """

    module: fx.GraphModule
    at: list[int]
    inputs: list[TensorSlot | SymbolInfo]
    symbols: list[SymbolInfo]
    values: dict[str, Any]
    checks: list[tuple[Any, int]]  # (assertion, place among the nodes)
    sites: list[Any]  # of each node
    effects_from: int
    writes: bool
    unbacked: bool
    switches: bool
    strided: bool  # `as_strided` of an input, which counts from the start of its storage: compilers often take it from the input's own
    raises: bool  # an operation may raise on bad data
    foreign: bool  # an operator of somebody else's is in it, which may do anything
    undone: bool  # the program has done something before what may raise: what is written is put back
    draws: tuple[int, ...]  # the generators that it draws from (`failures.GENERATORS`)
    facts: Facts | None


NEVER = 1 << 30


def written_by(graph: Handed) -> list[int]:
    """The slots of the inputs that the graph writes."""
    return [i for i, spec in zip(graph.at, graph.inputs, strict=True) if isinstance(spec, TensorSlot) and spec.written]


def keeps(op: Any) -> bool:
    """Does an operation do more than its results show?"""
    return liveness.mutable(op.target) or liveness.has_effect(op)


def handed(trace: Any, inputs: list[Any], outputs: list[Any], name: str) -> Handed:
    """The graph of a capture, for a backend. Raises what `assembled` raises."""
    module, known = assembled(trace, inputs, tuple(outputs), name, keeps)
    used = used_inputs(module, inputs, trace.scope)
    memory = {t.storage_id for t in inputs if isinstance(t, TracedTensor)}
    written = {t.storage_id for op in trace.ops[: trace.n_forward] for t in liveness.written(op)}
    symbols = symbols_of(inputs)
    by_name = {s.name: s for s in symbols}
    infos = [slot_info(inputs[i], trace, written) if isinstance(inputs[i], TracedTensor) else by_name[inputs[i].name] for i in used]
    ops = trace.ops[: trace.n_forward]
    facts = Facts([c for c in trace.scope.asserts if c.expr.const is not True], list(filter(keeps, ops)), [], known)
    unbacked = any(op.binds for op in ops)
    strided = any(op.target in AS_STRIDED and any(t.storage_id in memory for t in liveness.op_inputs(op)) for op in ops)
    foreign = any(not op.target._schema.name.startswith(("aten::", "prims::")) for op in ops)
    raises = foreign or any(op.target in CHECKS_DATA for op in ops)
    draws = drawn_from(ops) if any([liveness.draws(op.target) for op in ops]) else ()
    made = Handed(
        module, used, infos, symbols, {}, [], [], NEVER, bool(written & memory), unbacked, False, strided, raises, foreign, trace.undone,
        draws, facts,
    )  # fmt: skip
    for i, node in enumerate(module.graph.nodes):
        describe(made, i, node, trace, memory)
    return made


def describe(made: Handed, i: int, node: fx.Node, trace: Any, memory: set[int]) -> None:
    """Turn what the builder noted on a node into plain data."""
    value, site = node.meta.pop("val", None), node.meta.pop("site", None)
    ops, check = node.meta.pop("ops", ()), node.meta.pop("check", None)
    node.meta.pop("source", None)
    kept = node.meta.pop("keep", False)
    made.switches = made.switches or (kept and not ops and check is None)
    if value is not None and node.op != "placeholder":
        made.values[node.name] = recipe(value, trace.scope)
    made.sites.append(site)
    made.facts.ops.append(ops)  # type: ignore[union-attr]
    if site is not None:
        node.meta["stack_trace"] = stack_trace(site)
    if check is not None:
        made.checks.append((check, i))
    if made.effects_from == NEVER:
        made.effects_from = effect_at(made, i, ops, trace, memory)


def effect_at(made: Handed, i: int, ops: Any, trace: Any, memory: set[int]) -> int:
    """From which node on the graph cannot be done twice because of node `i`: from the next one, if its last operation refuses what it is
    given before it writes, or may write again what it has; NEVER if it has no effects."""
    stays = cannot_undo if made.undone else cannot_repeat
    at = next((k for k, op in enumerate(ops) if stays(op, memory)), None)
    if at is None:
        return NEVER
    op = ops[at]
    number = next(n for n, other in enumerate(trace.ops) if other is op)
    return i + (op is ops[-1] and not op_info(op.target).custom and not leaves_a_part(trace.ops, number))


def used_inputs(module: fx.GraphModule, inputs: list[Any], scope: Any) -> list[int]:
    """Drop placeholders that nobody needs: tensors that nothing reads, symbols that neither anything reads nor an input is sized by."""
    nodes = [n for n in module.graph.nodes if n.op == "placeholder"]
    wanted: set[str] = set()
    for node, value in zip(nodes, inputs, strict=True):
        if node.users and isinstance(value, TracedTensor):
            for v in (*value.sizes, *value.strides, value.offset):
                e = liveness.number(v)
                wanted.update(s.name for form in ((e, scope.simplify(e)) if e is not None else ()) for s in form.symbols())
    used = []
    for i, (node, value) in enumerate(zip(nodes, inputs, strict=True)):
        if node.users or (isinstance(value, Expr) and value.name in wanted):
            used.append(i)
        else:
            module.graph.erase_node(node)
    module.recompile()
    return used


def symbols_of(inputs: list[Any]) -> list[SymbolInfo]:
    """The symbols that are inputs, or can be read off the metadata of tensors, each with a way to read it from the slots."""
    found: dict[str, SymbolInfo] = {}

    def add(value: Any, read: Callable[[tuple], Any], size: bool) -> None:
        e = liveness.number(value)
        if e is not None and e.op == "sym" and e.name not in found:
            found[e.name] = SymbolInfo(e.name, e.kind, size, e.hint if e.hint is not None else 2, read)

    for i, slot in enumerate(inputs):
        if not isinstance(slot, TracedTensor):
            add(slot, lambda slots, i=i: slots[i], slot.info.size_like)
    for i, slot in enumerate(inputs):
        if isinstance(slot, TracedTensor):
            for d, size in enumerate(slot.sizes):
                add(size, lambda slots, i=i, d=d: ORIGINAL.size(slots[i], d), True)
            for d, stride in enumerate(slot.strides):
                add(stride, lambda slots, i=i, d=d: ORIGINAL.stride(slots[i], d), True)
            add(slot.offset, lambda slots, i=i: ORIGINAL.storage_offset(slots[i]), True)
    return list(found.values())


def text(value: Any, scope: Any) -> str:
    e = liveness.number(value)
    return scope.simplify(e).python() if e is not None else repr(value)


def texts(values: Any, scope: Any) -> str:
    return f"[{', '.join(text(v, scope) for v in values)}]"


def tensor_slot(x: TracedTensor, scope: Any) -> TensorSlot:
    return TensorSlot(texts(x.sizes, scope), texts(x.strides, scope), text(x.offset, scope), x.dtype, x.device, x.requires_grad)


def slot_info(x: TracedTensor, trace: Any, written: set[int]) -> TensorSlot:
    """What is known of an input."""
    spec = tensor_slot(x, trace.scope)
    spec.is_leaf, spec.is_parameter = x.vid not in trace.leaves, issubclass(x.pytype, torch.nn.Parameter)
    spec.bits, spec.written = (ORIGINAL.is_conj(x), ORIGINAL.is_neg(x)), x.storage_id in written
    return spec


def recipe(value: Any, scope: Any) -> Any:
    """The example value of a node, as data: a tensor, a number, or a nest of them."""
    if isinstance(value, TracedTensor):
        return tensor_slot(value, scope)
    if liveness.number(value) is not None:
        return Number(text(value, scope))
    if isinstance(value, (list, tuple)):
        return tuple(recipe(v, scope) for v in value)
    return value if value is None or type(value) in (bool, int, float, str) else None
