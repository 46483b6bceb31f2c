"""Which stores of a program its graph may make itself (`codegen/early_stores.py`), and how it is handed what these need.

The frame must hold nothing of what stood there: only tensors that the guard found in the program's objects, which the graph alone reads.
And no more may be told from when a store is made than in eager: all that comes before it among the effects only stores, too.
"""

from __future__ import annotations

import re
from typing import Any

from pliant.codegen.early_stores import GIVEN, EarlyStore, given_away
from pliant.graph.traced import TracedTensor
from pliant.interpret import late_errors
from pliant.interpret.world import TENSOR_TYPES
from pliant.lower import liveness, views
from pliant.lower.autograd import needs_node

STORING = frozenset(("dict_set", "setattr", "list_extend", "cell_set", "global_set"))
"""Effects that run no code of the program's."""
LARGE = 64 << 10
"""Bytes from which on tensors of a known size are worth it."""


def stores(emitter: Any, tensors: list[TracedTensor]) -> dict[int, EarlyStore]:
    """By the number of the effect: those that the graph makes itself. `tensors`: its inputs."""
    b, capture = emitter.builder, emitter.capture
    found = dict(candidates(emitter, {id(capture.world.real.get(id(t))): t for t in tensors}))
    if not found or not may_store(capture, [*tensors], [value for value, _ in b.outputs.values()]):
        return {}
    made = made_here(capture.trace, tensors, [t for s in found.values() for t in s.values])
    written = {t.storage_id for op in capture.trace.ops for t in liveness.written(op)}
    return {
        n: s for n, s in found.items()
        if all([t.vid in made for t in s.values]) and not {t.storage_id for t in (*s.values, *s.olds)} & written
        and not any([id(t) in b.outputs for t in s.olds])
    }  # fmt: skip


def candidates(emitter: Any, inputs: dict[int, TracedTensor]) -> Any:
    """Stores of a result where an input stands that nothing but the graph reads."""
    b = emitter.builder
    for n, effect in enumerate(emitter.capture.effects):
        if effect.kind not in STORING:
            return
        target, (key, value) = effect.target, effect.args if len(effect.args) == 2 else (None, None)
        if effect.kind != "dict_set" or type(target) not in (dict, list) or type(key) not in (str, int):
            continue
        there = target[key] if type(target) is list else target.get(key)
        packed = type(value) is tuple and type(there) is tuple
        values, olds = (value, there) if packed else ((value,), (there,))
        if not values or not all([type(t) is TracedTensor and id(t) in b.outputs and is_plain(t) for t in values]):
            continue
        known = tuple([inputs[id(t)] for t in olds if id(t) in inputs])
        if not known or not all(map(is_plain, known)) or not any(map(pays, values)):
            continue
        if packed and not is_own_tuple(emitter, n, value, known):
            continue
        if all([is_own_slot(b, t.source) for t in known]) and emitter.target(target) in b.slots.values():
            yield n, EarlyStore(target, key, values, known, packed)


def is_own_tuple(emitter: Any, n: int, value: tuple, olds: tuple[TracedTensor, ...]) -> bool:
    """Whether only effect `n` has the tuple that it stores, which the emitted function has made for it; nor is the old one read whole."""
    b = emitter.builder
    made = b.memo.get(id(value))
    if made is None or any([t.source.op != "index" or t.source.base in b.slots for t in olds]):
        return False
    effects = emitter.replayed
    own = effects[emitter.ends[n - 1] if n else 0 : emitter.ends[n]]
    name = re.compile(rf"\b{made.name}\b")
    return len(own) == 1 and sum(bool(name.search(line)) for line in (*b.lines, *effects, *emitter.tail)) == 2


def without_tuples(emitter: Any, lines: list[str]) -> list[str]:
    """Without those that make a tuple which the graph makes instead."""
    effects = [emitter.capture.effects[n] for n, store in emitter.stored.items() if store.packed]
    names = {emitter.builder.memo[id(effect.args[1])].name for effect in effects}
    return [line for line in lines if line.split(" ", 1)[0] not in names] if names else lines


def is_plain(t: TracedTensor) -> bool:
    return t.pytype in TENSOR_TYPES and not t.requires_grad


def pays(t: TracedTensor) -> bool:
    """Whether it is of a size that changes, or large."""
    if any([type(n) is not int for n in t.sizes]):
        return True
    n = t.dtype.itemsize
    for size in t.sizes:
        n *= size
    return n >= LARGE


def is_own_slot(b: Any, source: Any) -> bool:
    """Whether the tensor at `source` will be in a slot that nothing has asked for yet."""
    of_state = b.state_param and source.op == "index" and source.base is not None and source.base.op == "local"
    return source.op not in ("local", "const") and not of_state and source not in b.slots


def may_store(capture: Any, inputs: list[Any], outputs: list[Any]) -> bool:
    """Whether the graph is one plain function that returns, and an exception that it raises late would meet no handler in the frame."""
    trace = capture.trace
    if capture.under_modes or capture.world.made_leaves or capture.world.parts or trace.parts or trace.data_memory:
        return False
    if trace.exits or trace.marks or trace.assumed or trace.hooked or trace.wrapping or needs_node(trace, inputs, outputs):
        return False
    known: dict[int, bool] = {}
    return not any([may_be_caught(capture.world, op.site, known) for op in trace.ops])


def may_be_caught(world: Any, site: Any, known: dict[int, bool]) -> bool:
    """Whether the program may handle what an operation at `site` raises. `known`: what was found of sites, by `id`."""
    if site is None or site.code is None:
        return False
    found = known.get(id(site))
    if found is None:
        found = known[id(site)] = may_be_caught(world, site.outer, known) or late_errors.may_catch(world, site.code, site.offset)
    return found


def made_here(trace: Any, inputs: list[TracedTensor], values: list[TracedTensor]) -> set[int]:
    """The vids of those values whose memory an operation has made, and which are no views of it."""
    outside = {t.storage_id for t in (*inputs, *trace.inputs)}
    steps = views.output_steps(trace.ops, values)
    made = {t.vid for op in trace.ops for t in liveness.op_outputs(op)}
    return {v.vid for v in values if v.vid in made and v.vid not in steps and v.storage_id not in outside and v.constant is None}


def handing(emitter: Any, made: list[EarlyStore]) -> tuple[list[str], dict[int, str], list[str]]:
    """(lines in front of the graph, how each input in them is spelled in its call, the variables that were handed over)"""
    if not made:
        return [], {}, []
    tensors, targets = given_away(made)
    slots = [emitter.as_input(t) for t in tensors]
    given = [*slots, *map(emitter.target, targets)]
    spelled = dict.fromkeys([t.vid for t in tensors], "None") | {tensors[0].vid: GIVEN}
    return [f"{GIVEN} = [{', '.join(given)}]", f"{' = '.join(slots)} = None"], spelled, given
