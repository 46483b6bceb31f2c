"""What a step of a printed program does that others could notice."""

from __future__ import annotations

from typing import Any

from pliant.codegen.failures import drawn_from
from pliant.graph import growing
from pliant.graph.control_flow import FLOWS
from pliant.graph.leaving import WAYS
from pliant.graph.schema import KNOWN
from pliant.graph.seeding import OF_STATES
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.program import OURS, ExternalCall

OWN = FLOWS | growing.READERS | WAYS | {*OF_STATES}
"""Operations of pliant's own that write nothing of others."""
RECURRENT = ("onednn_lstm", "packed_rows", "unpacked_rows", "recurrent_backward")
DECLARED = (*KNOWN, *[f"pliant::{name}" for name in RECURRENT], "pliant::number_", "pliant_numpy::")
"""What the names of operators begin with whose schema tells what they write."""


def is_kernel(target: Any) -> bool:
    """Is this a kernel of ours, in the place of operators?"""
    return type(target) in OURS


def cannot_repeat(op: Any, memory: set[int]) -> bool:
    """Whether doing this again could be noticed: it writes to memory of others, or is unknown.

    Random numbers are drawn again, from the state that the generator had (`note_state`).
    """
    if type(op.target) is ExternalCall:
        return True
    if len(drawn_from([op])) > 1:
        return False
    unknown = not is_kernel(op.target) and op.target not in OWN and not op.target._schema.name.startswith(DECLARED)
    return unknown or any([t.storage_id in memory for t in written_by(op)])


def draws(op: Any) -> bool:
    """Whether a step of a printed program draws random numbers."""
    return not is_kernel(op.target) and liveness.draws(op.target)


def written_by(op: Any) -> list[TracedTensor]:
    """What a step of a printed program writes to."""
    if type(op.target) is ExternalCall:
        return op.target.writes
    if is_kernel(op.target):
        return list(op.outs)
    return [] if op.target in OWN else liveness.written(op)
