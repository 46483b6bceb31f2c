"""Stores to dicts of the program that a graph makes itself, as soon as nothing behind them can raise.

Effects are made behind the graph, so what stood there lives until then: of a cache that grows layer by layer, the old one beside the
new one. So the graph is given the old tensor and the dict in a list, which it empties; it lets go of the tensor behind its last use,
and stores the new one where the frame will not run anew (`codegen/failures.py`): then no more is held than in eager.
`jit/stored_early.py` says which stores may be made here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pliant.codegen.effects import DECLARED, is_kernel, written_by
from pliant.graph import growing
from pliant.graph.control_flow import FLOWS
from pliant.graph.data_errors import may_raise, sized_by_data
from pliant.graph.traced import TracedTensor
from pliant.lower.program import REUSE, ExternalCall

GIVEN = "_given"
"""The variable that holds the list."""


@dataclass(frozen=True, slots=True)
class EarlyStore:
    """`target[key] = value`, where `olds` stood: inputs that nobody else holds. `packed`: stored is a tuple of the values, else the only
    one; the old ones stood in a tuple, too, and need not be all that did."""

    target: Any
    key: Any
    values: tuple[TracedTensor, ...]
    olds: tuple[TracedTensor, ...]
    packed: bool


def given_away(stores: list[EarlyStore]) -> tuple[list[TracedTensor], list[Any]]:
    """(the inputs, the dicts) in the order of the list that is handed to the graph in the place of the first of these inputs."""
    return list({t.vid: t for s in stores for t in s.olds}.values()), list({id(s.target): s.target for s in stores}.values())


def unpacked(stores: list[EarlyStore], names: dict[int, str]) -> list[str]:
    """The first lines of the graph: what it was handed is its own. `names`: the parameters, by vid; changed to those of what was handed."""
    if not stores:
        return []
    tensors, targets = given_away(stores)
    first = names[tensors[0].vid]
    names.update((t.vid, f"v{t.vid}") for t in tensors)
    taken = [*(names[t.vid] for t in tensors), *(f"_to{i}" for i in range(len(targets)))]
    return [f"{GIVEN} = {first}", f"{', '.join(taken)} = {GIVEN}", f"{GIVEN}.clear()"]


def insert(writer: Any, steps: list[Any]) -> int | None:
    """Add the stores to the steps of a program (the first binds symbols, then one of each operation). Returns the number of the first
    step that has one: behind it the frame cannot run anew."""
    if not writer.stores:
        return None
    numbers = {id(target): i for i, target in enumerate(given_away(writer.stores)[1])}
    last = max((i for i, step in enumerate(steps) if can_raise(writer, i, step)), default=0)
    first: int | None = None
    for store in writer.stores:
        names = [writer.names[t.vid] for t in store.values]
        made = [i for i, step in enumerate(steps) if {*step.makes} & {*names} or any([writes(writer, i, t) for t in store.values])]
        at = max(last, *made, 0)
        value = f"({', '.join(names)},)" if store.packed else names[0]
        steps[at].lines.append(f"_to{numbers[id(store.target)]}[{store.key!r}] = {value}")
        steps[at].reads.update(names)
        first = at if first is None else min(first, at)
    return first


def operation(writer: Any, i: int) -> Any:
    """That of step `i`, or None."""
    return writer.ops[i - 1] if 1 <= i <= len(writer.ops) else None


def writes(writer: Any, i: int, t: TracedTensor) -> bool:
    op = operation(writer, i)
    return op is not None and any([x.storage_id == t.storage_id for x in written_by(op)])


def can_raise(writer: Any, i: int, step: Any) -> bool:
    """Whether a step may raise what the program is to see, or may have the frame run anew."""
    if any([line in writer.check_sites for line in step.lines]):
        return True
    op = operation(writer, i)
    if op is None or op.target is REUSE:
        return False
    if type(op.target) is not ExternalCall and is_kernel(op.target):
        return bool(op.target.fails)
    return not is_harmless(op)


def is_harmless(op: Any) -> bool:
    """Whether an operation is one of PyTorch's that raises on nothing that only the run can tell."""
    if type(op.target) is ExternalCall or op.target in FLOWS or op.target in growing.READERS or op.binds:
        return False
    return op.target._schema.name.startswith(DECLARED) and not may_raise(op) and not sized_by_data(op)
