"""Whose version tells that a graph has written to its memory: graphs run below autograd, where nobody counts."""

from __future__ import annotations

from typing import Any

from pliant.graph.handlers import BATCH_NORM
from pliant.graph.operators import Column, overloads
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.rules.pointwise import FUSED_STEPS
from pliant.graph.schema import argument, op_info
from pliant.graph.traced import TracedTensor, tensors_of
from pliant.lower import liveness

UNCOUNTED = Column("uncounted")
STATISTICS = ("running_mean", "running_var", "running_min", "running_max", "scale", "zero_point")
UNCOUNTED.update({
    **{op: op_info(op).writes for op in overloads((*FUSED_STEPS, "_amp_foreach_non_finite_check_and_unscale_", "_cummax_helper",
        "_cummin_helper"))},
    **dict.fromkeys((BATCH_NORM, *overloads(("_batch_norm_with_update", "_fused_moving_avg_obs_fq_helper"))), STATISTICS),
    **dict.fromkeys(overloads(("rrelu_with_noise", "rrelu_with_noise_")), ("noise",)),
    torch.ops.aten._amp_update_scale_.default: ("growth_tracker",),
})  # fmt: skip
"""Arguments that operators write to and PyTorch does not count as written: it counts what is a result, and what operators below write."""


def written_slots(ops: list[Any], slots: list[TracedTensor], versions: dict[int, int] | None = None) -> list[TracedTensor]:
    """The slots whose memory these operations write, and whose version tells so.
    `versions`: how often each had been written to behind these operations, by its `vid`, where more come after them."""
    memory = {t.storage_id for op in ops for t in heard_writes(op)}
    times = {t.vid: times_written(t) for t in slots} if versions is None else versions
    return [t for t in slots if t.storage_id in memory and (times.get(t.vid) or not counted_apart(t))]


def counted_apart(t: TracedTensor) -> bool:
    """Whether some writes to the memory of `t` do not count as its own: those through `.data`, and those behind `t.data = u`, which the
    object counts that goes on with other memory."""
    return t.storage_id in t.trace.data_memory or t.vid in t.trace.replaced


def heard_writes(op: Any) -> list[TracedTensor]:
    """What an operation writes to, and PyTorch counts as written."""
    names = UNCOUNTED.get(op.target)
    if names is None:
        return liveness.written(op)
    info = op_info(op.target)
    return tensors_of([argument(info, op.args, op.kwargs, name) for name in info.writes if name not in names])


def counted(slots: list[TracedTensor]) -> list[TracedTensor]:
    """Each as often as the program has written to it, where that is known: operators on proxies count as they do in eager."""
    memory = [t.storage_id for t in slots]
    return [t for t in slots for _ in range(max(times_written(t), 1) if memory.count(t.storage_id) == 1 else 1)]


def times_written(t: TracedTensor) -> int:
    return 0 if ORIGINAL.is_inference(t) else t._version


def apart(x: torch.Tensor) -> torch.Tensor:
    """An inference tensor as one that is none, laid out alike, in memory that nobody else has."""
    y = torch.empty(0, dtype=x.dtype, device=x.device)
    ORIGINAL.set_(y, ORIGINAL.untyped_storage(x).clone(), ORIGINAL.storage_offset(x), ORIGINAL.size(x), ORIGINAL.stride(x))
    torch._C._autograd._unsafe_set_version_counter((y,), (0,))  # type: ignore[attr-defined]
    return y


def of_results(trace: Any, slots: list[TracedTensor], outputs: list[TracedTensor]) -> list[tuple[TracedTensor, int]]:
    """The results that the program has written to, and how often. Those of other memory's are told apart in `jit/rows.py`."""
    theirs = {t.storage_id for t in slots} | trace.data_memory
    made = {t.vid: t for t in outputs if (t.storage_id not in theirs or t.storage_id == t.vid) and t.constant is None and t.source is None}
    return [(t, times_written(t)) for t in made.values() if times_written(t)]
