"""Verification: a share of the calls of a compiled function runs in eager PyTorch too, from the same state, and must come to the same.

The compiled run comes first, on the caller's own objects, as always: guards see what they would see. Then everything that the call can
reach is put back (`snapshot.py`), and eager runs, on the same objects. So whatever the comparison says, the caller has eager's answer and
eager's state, without another step. See docs/verify.md.
"""

from __future__ import annotations

import contextvars
import itertools
import random
import threading
import time
import warnings
import weakref
from types import FunctionType
from typing import Any

import torch

from pliant import events, native
from pliant.errors import PliantError, VerificationError
from pliant.graph.originals import math
from pliant.interpret.state import vm
from pliant.jit.other_compilers import not_for_others
from pliant.jit.persist import entries
from pliant.jit.verify import repro, runs
from pliant.jit.verify.ambient import Ambient, recorded, take_over, unfit
from pliant.jit.verify.compare import Comparer, Difference, Outcome
from pliant.jit.verify.snapshot import Snapshot, State, Unverifiable
from pliant.jit.weak_ids import WeakIdDict
from pliant.symbolic.scope import UNFIT

GIVE_UP = 3
"""Mismatches of one function before it runs in eager PyTorch for good."""

ASKING = frozenset(("is_compiling", "is_dynamo_compiling", "is_torchdynamo_compiling"))
EXHAUSTED = (RecursionError, MemoryError, torch.OutOfMemoryError)
_numbers = itertools.count()
_one_at_a_time = threading.Lock()
_draws = random.Random()
_here = threading.local()


class Verifier:
    """What the entry points of one region call in place of a call that is to be verified, and on a miss."""

    def __init__(self, region: Any, share: float) -> None:
        self.region = region
        self.share = share
        self.mismatches: WeakIdDict[int] = WeakIdDict()
        self.first: WeakIdDict[bytes | None] = WeakIdDict()  # arguments of the latest capture, without their numbers
        self.points: weakref.WeakSet[Any] = weakref.WeakSet()

    def entry_point(self, fn: FunctionType, **twin: Any) -> Any:
        point = native.EntryPoint(fn, self.miss, self.sampled, **twin)
        point._left = self.draw()
        self.points.add(point)
        return point

    def draw(self) -> int:
        """How many calls pass before the next one is verified: at random, or what repeats in a program might never be met."""
        if self.share >= 1:
            return 0
        return int(math.log1p(-_draws.random()) / math.log1p(-self.share))

    def noticed(self) -> None:
        """An entry was installed. If no verified call is under way, the next call of the region is one."""
        if not busy():
            for point in list(self.points):
                point._left = 0

    # -- what native code calls ---------------------------------------------------------------------------------------------
    @not_for_others
    def sampled(self, point: Any, args: tuple, kwargs: dict) -> Any:
        """A call that is to be verified."""
        if busy() or vm.active:
            return point._unwatched(*args, **kwargs)
        point._left = self.draw()
        return self.verified(point, args, kwargs)

    @not_for_others
    def miss(self, point: Any, fn: FunctionType, args: tuple) -> tuple:
        """As the region's. The call that made an entry is verified, whatever was drawn."""
        answer = self.region.miss(point, fn, args)
        if answer[0] != "retry" or busy() or vm.active:
            return answer
        point._left = self.draw()
        given, named = native.spread(fn, args)
        self.first[fn.__code__] = repro.sketch(given, named)
        return "value", self.verified(point, given, named)

    # -- one call -----------------------------------------------------------------------------------------------------------
    def verified(self, point: Any, args: tuple, kwargs: dict) -> Any:
        if not _one_at_a_time.acquire(blocking=False):
            point._left = 0
            return self.skip(point, args, kwargs, "another thread is verifying a call")
        _here.busy = True
        try:
            why = unfit()
            try:
                snapshot = None if why else Snapshot(point._fn, args, kwargs)
            except Unverifiable as e:
                why, snapshot = str(e), None
            if snapshot is None:
                return self.skip(point, args, kwargs, why or "")
            value, error = self.twice(point, args, kwargs, snapshot)
        finally:
            _here.busy = False
            _one_at_a_time.release()
        del snapshot
        if error is None:
            return value
        try:
            raise error
        finally:
            del error

    def skip(self, point: Any, args: tuple, kwargs: dict, why: str) -> Any:
        unverifiable(point, why)
        return point._unwatched(*args, **kwargs)

    def twice(self, point: Any, args: tuple, kwargs: dict, snapshot: Snapshot) -> tuple[Any, BaseException | None]:
        """The value or the exception that the caller gets."""
        began = time.perf_counter()
        start, context = Ambient(), contextvars.copy_context()
        hits = self.hits()
        one = runs.perform(lambda: point._unwatched(*args, **kwargs), snapshot, context.copy(), shown=False)
        if isinstance(one.error, PliantError) or not isinstance(one.error, Exception | None):
            return self.as_compiled(one)
        ran = [(code, entry) for code, entry, n in self.hits() if n > hits_before(hits, entry)]
        runs.differentiate(one, snapshot, False)
        why = snapshot.unfit(one.state) or start.differs_for_good()
        if why is not None:
            unverifiable(point, why)
            return self.as_compiled(one)
        snapshot.change(one.state, State())
        eager = runs.eagerly(point._fn, args, kwargs)
        two = runs.perform(eager, snapshot, None, shown=True)
        if not isinstance(two.error, Exception | None) or isinstance(one.error, EXHAUSTED) or isinstance(two.error, EXHAUSTED):
            unverifiable(point, f"it raised {type(two.error or one.error).__name__}")
            return two.value, two.error
        runs.differentiate(two, snapshot, True)
        compare = Comparer(snapshot, two, one)
        found: list[Difference] | None = compare.run()
        if found:
            found = self.judged(point, found, compare.old, one, two, runs.Judge(snapshot, start, context, eager))
        advise(two.error, one.error)
        if found is None:
            return two.value, two.error
        if not found:
            names = [f"[{entry.info.frame_id}]" for _, entry in ran]
            events.count("verified")
            events.emit("verified", name=named(point), entries=names, seconds=time.perf_counter() - began)
            return two.value, two.error
        return self.differ(point, args, kwargs, snapshot, start, two, found, ran)

    def judged(
        self, point: Any, found: list[Difference], old: dict, one: Outcome, two: Outcome, judge: runs.Judge
    ) -> list[Difference] | None:
        """What remains of the differences on second thoughts; None if the call cannot be judged."""
        if not judge.snapshot.returnable(two.state):
            return [d for d in found if not runs.passes(d, None)]
        if judge.snapshot.filled(one.state):
            unverifiable(point, f"a cache that it reads has been filled: {found[0]}")
            return None
        if not ASKING.isdisjoint(judge.snapshot.reach.names):
            unverifiable(point, f"it asks whether it is compiled: {found[0]}")
            return None
        after = Ambient()
        try:
            unsteady = judge.steady(two)
            if unsteady is not None:
                unverifiable(point, f"eager differs from itself: {unsteady}")
                return None
            return judge.excused(one, two, found, old)
        finally:
            after.restore()

    def as_compiled(self, one: Outcome) -> tuple[Any, BaseException | None]:
        """The compiled run was the only one: what it printed and set is shown and set."""
        if one.printed:
            with recorded(True):
                print(one.printed, end="")
        context = one.ambient["context variables"]
        take_over(context)
        return one.value, one.error

    # -- a difference -------------------------------------------------------------------------------------------------------
    def differ(
        self, point: Any, args: tuple, kwargs: dict, snapshot: Snapshot, start: Ambient, two: Outcome, found: list[Difference], ran: list
    ) -> tuple[Any, BaseException | None]:
        """The entries that ran are dropped; the caller hears of it, and has eager's answer."""
        number, code = next(_numbers), point._fn.__code__
        names = [f"[{entry.info.frame_id}]" for _, entry in ran]
        for c, entry in ran:
            native.remove_entry(c, entry)
            entries.forget(self.region.record(c).on_disk.names)
        times = self.mismatches[code] = (self.mismatches.get(code) or 0) + 1
        if times >= GIVE_UP:
            native.set_flags(code, native.get_flags(code) | native.SKIP)
        what = "\n  ".join(str(d) for d in found[:5])
        where = f"{named(point)}, {', '.join(names) or 'no entry'}"
        text = f"the compiled program differs from eager PyTorch in {where}:\n  {what}"
        if snapshot.returnable(two.state):
            snapshot.change(two.state, State())
            file = repro.write(text, point._fn, args, kwargs, self.first.get(code), self.region.config, start, [e for _, e in ran])
            snapshot.change(State(), two.state)
        else:
            file = None
        text += f"\n  reproduce: {file or 'its arguments cannot be written down'}"
        events.count("mismatches")
        events.emit("mismatch", id=number, name=named(point), entries=names, what=what, file=file)
        if self.region.config.strict:
            return None, VerificationError(text)
        if times == 1:
            after = "from now on it runs in eager PyTorch" if times >= GIVE_UP else "these entries are dropped, eager's answer is given"
            warnings.warn(f"pliant V{number}: {text}\n  {after}", RuntimeWarning, stacklevel=4)
        return two.value, two.error

    def hits(self) -> list[tuple[Any, Any, int]]:
        """(code, entry, how often it ran) of every entry of the region."""
        codes = [c for ref in self.region.codes if (c := ref()) is not None]
        return [(c, e, e.hits) for c in codes for e in native.entries(c)]


def advise(error: BaseException | None, compiled: BaseException | None) -> None:
    """Give eager's exception the notes with which the compiled program explains its own."""
    if error is not None:
        for note in getattr(compiled, "__notes__", ()):
            if UNFIT in note and note not in getattr(error, "__notes__", ()):
                error.add_note(note)


def hits_before(hits: list[tuple[Any, Any, int]], entry: Any) -> int:
    return next((n for _, e, n in hits if e is entry), 0)


def busy() -> bool:
    """Is this thread inside a verified call?"""
    return getattr(_here, "busy", False)


def unverifiable(point: Any, why: str) -> None:
    events.count("unverifiable")
    events.emit("unverifiable", name=named(point), reason=why)


def named(point: Any) -> str:
    code = point._fn.__code__
    return f"{code.co_qualname} ({code.co_filename}:{code.co_firstlineno})"
