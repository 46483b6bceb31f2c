"""Calls of compiled functions inside of a checkpoint set around them: which entry serves, in the forward part and when it runs again.

The function of `torch.utils.checkpoint.checkpoint(..., use_reentrant=False)` runs twice, and has to save as many tensors of the same kinds
both times, so a call that is compiled takes the entry that it took before, and one that ran in eager PyTorch runs so again. Served are
entries that compute, return and do nothing else, whose regions may run again (`codegen/checkpointed.py`); the rest runs in eager PyTorch.
Other hooks on saved tensors are the program's own: they are told what eager saves.
"""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from torch.utils import checkpoint as checkpoints

from pliant import native
from pliant.codegen.autograd_region import Node
from pliant.codegen.checkpointed import TOP, hooks_off, inside
from pliant.codegen.region import Chain
from pliant.jit.weak_ids import WeakIdDict

MOST_TRIES = 4


def code_of_pack_hook(hooks: type) -> CodeType:
    """The code of the `pack_hook` that such a pair of hooks is made with."""
    return next(c for c in hooks.__init__.__code__.co_consts if isinstance(c, CodeType) and c.co_name == "pack_hook")  # type: ignore[misc]


FORWARD, AGAIN = map(code_of_pack_hook, (checkpoints._checkpoint_hook, checkpoints._recomputation_hook))


class Record:
    """The calls in one run of a checkpoint's forward part: of each its code, and the entry that served it, or None for eager PyTorch."""

    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls: list[tuple[CodeType, Any]] = []


_records: WeakIdDict[Record] = WeakIdDict()  # by the checkpoint's frame
_runs: WeakIdDict[list[int]] = WeakIdDict()  # by the hook of a run that is done again: how many calls it has made


class Place:
    """A call inside of a checkpoint: what was recorded, the number of the call if it is done again, and whether random numbers are the
    same then."""

    def __init__(self, frame: Any, number: int | None) -> None:
        self.record, self.number = record_of(frame), number
        again = frame.recompute_fn
        known = dict(zip(again.__code__.co_freevars, again.__closure__ or (), strict=True))
        self.draws_alike = "preserve_rng_state" in known and bool(known["preserve_rng_state"].cell_contents)

    def taken(self, code: CodeType) -> Any:
        """What served this call in the forward part."""
        calls = self.record.calls
        if self.number is None or self.number >= len(calls) or calls[self.number][0] is not code:
            return None
        return calls[self.number][1]


def place() -> Place | None:
    """Where this call stands, if the hooks on saved tensors are those of a checkpoint."""
    hooks = TOP(True)
    pack = hooks[0] if hooks is not None else None
    pack = getattr(pack, "_torchdynamo_orig_callable", pack)
    if type(pack) is not FunctionType:
        return None
    cells = dict(zip(pack.__code__.co_freevars, pack.__closure__ or (), strict=True))
    if pack.__code__ is FORWARD:
        return Place(cells["frame"].cell_contents, None)
    if pack.__code__ is not AGAIN:
        return None
    frame = cells["target_frame_ref"].cell_contents()
    if frame is None:
        return None
    run = _runs.get(pack)
    if run is None:
        run = _runs[pack] = [0]
    run[0] += 1
    return Place(frame, run[0] - 1)


def record_of(frame: Any) -> Record:
    found = _records.get(frame)
    if found is None:
        found = _records[frame] = Record()
    return found


def awaited(code: CodeType) -> bool:
    """Whether a call of this code may be done again for a checkpoint: it must be asked about then, too."""
    return any([known is code for record in _records.values() for known, _ in record.calls])


def serves(entry: Any, draws_alike: bool) -> bool:
    """Whether an entry may be used inside of a checkpoint."""
    emitted = entry.info.emitted
    return emitted.repeats and (emitted.executable is None or runs_again(emitted.executable, draws_alike))


def runs_again(executable: Any, draws_alike: bool) -> bool:
    node = executable.node
    if type(node) is Chain:
        return all([runs_again(part, draws_alike) for part in node.parts])
    if type(node) is not Node:
        return node is None
    return node.kept is not None and (draws_alike or not node.kept[1])


def serve(here: Place, fn: FunctionType, args: tuple, miss: Callable[[], tuple]) -> tuple:
    """What a miss inside of a checkpoint is answered. `miss`: what one is answered without hooks."""
    code, entry, slots = fn.__code__, None, None
    with hooks_off() as hooks:
        if here.number is not None:
            entry = here.taken(code)
            slots = entry.guard.check(args, fn) if entry is not None else None
        else:
            for _ in range(MOST_TRIES):
                found = [(e, s) for e in native.entries(code) if (s := e.guard.check(args, fn)) is not None]
                if found or miss()[0] != "retry":
                    break
            entry, slots = next(((e, s) for e, s in found if serves(e, here.draws_alike)), (None, None))
            here.record.calls.append((code, entry))
        if slots is None:
            return ("eager",)
        with inside(hooks[-1]):
            try:
                return "value", entry.target(*args, *slots)
            except native.Again as e:
                return "eager", *e.args
