"""Trials: whether a program in which the graph breaks is faster compiled, or as it is. What is slower for good is left to CPython.

A piece between two breaks pays for guards, for its frame and for the break; where the pieces are small, that is more than it saves. No
count of operations tells, so calls are timed: the entry point runs some of them compiled and some as they are (`native/entry_point.cpp`).

| calls of an entry point                                     | from then on                                                |
|-------------------------------------------------------------|-------------------------------------------------------------|
| all of its code is one entry after the other, no breaks     | asked again after twice as many                             |
| calls have captured more than once                          | asked again after SOON calls                                |
| machine code is waited for                                  | timed as it is by then: it stays so until the code is there,|
|                                                             | or runs in CPython, where that is faster                    |
| it has come while CPython ran the function                  | as many calls as captures run compiled, and are not timed:  |
|                                                             | the first run of a piece of new code takes several times as |
|                                                             | long as the next                                            |
| settled, or MANY captures: a block of calls is timed        | until the difference is three times its error, MOST_BLOCKS  |
| compiled is faster, or that is not certain in the end       | compiled; tried again after PAUSE calls, then GROWTH times  |
| as it is, it is faster                                      | CPython runs the function; tried again, too                 |

Calls that capture are not timed. Those in which CPython runs what no entry fits, for want of rations (`rations.py`), are: the next ones
cost as much.

Where graphs have a backward pass, what is timed is all that passes in the thread from one call to the next: the pass runs there, and
the rest (the optimizer, the data) is the same both ways, on the average. Inside of a checkpoint's function, or under other hooks on saved
tensors, all calls run compiled: a run that is done again has to save what the first one has saved.

There are no trials with `background=False` (what runs would hang on a clock), where everything has to be compiled, and in a process that
is one of a group: each would go by its own clock, and a call that talks to the others is to run the same way in all of them.
"""

from __future__ import annotations

import statistics
import weakref
from collections.abc import Iterable
from typing import Any

from torch import distributed

from pliant import events, native
from pliant.codegen import backends
from pliant.codegen.background import background
from pliant.codegen.freed_results import Freed
from pliant.jit.tiers import Storing

BLOCK = 16
SOON = 4
MOST_BLOCKS = 8
EARLY = 8
"""Calls timed while machine code is waited for. What seems slower then runs as it is until the code is there, certain or not."""
FEWEST = 3
"""Times of either kind that say anything."""
MANY = 64
"""Captures, from which on nobody waits for the end of them: at once, and then each time that they have doubled."""
MOST_WAITS = 32
"""How often machine code is waited for."""
PAUSE, GROWTH = 2048, 8
FOREVER = 1 << 62
CERTAIN = 3.0
"""Standard errors."""
FEW = 1
"""Captures among SOON calls that keep nobody from timing: such calls are not counted."""

Answer = tuple[bool, int, int, bool]
"""Whether the next calls run as they are, how many of them, how many are timed behind these, and whether up to the next call."""


def wanted(config: Any) -> bool:
    """Whether calls of functions compiled with these settings are tried."""
    own = backends.OWN.get(config.backend) is not None and config.backend != backends.REMOTE
    return own and config.background and not config.fullgraph


def hurry(points: Iterable[Any], n: int) -> None:
    """There have been `n` captures."""
    if n >= MANY and not n & n - 1:
        for point in points:
            point._left = 0


class Trial:
    """What the entry point of one function asks. It keeps nothing alive."""

    def __init__(self, region: Any) -> None:
        self.region = weakref.ref(region)
        self.begin()

    def begin(self) -> None:
        """As if nothing had been called."""
        self.pause = PAUSE
        self.captured = self.blocks = self.waits = 0
        self.wait = SOON // 2
        self.early: bool | None = None  # whether it is timed while machine code is waited for; None: that is still to be done
        self.as_is = self.rounds = False
        self.cold = False  # whether machine code has come while CPython ran the function
        self.compiled: list[float] = []
        self.plain: list[float] = []

    def __call__(self, point: Any, compiled: list[float], plain: list[float]) -> Answer:
        region = self.region()
        if region is None:
            return False, FOREVER, 0, False
        self.compiled += compiled
        self.plain += plain
        if self.blocks:
            return self.timed(point, region)
        before, self.captured = self.captured, captures(region)
        if len(region.codes) <= 1 or in_group():
            self.wait = min(2 * self.wait, PAUSE)
            return False, self.wait, 0, False
        if self.captured < MANY and self.captured > before + FEW:
            return False, SOON, 0, False
        if self.captured < MANY and self.waits < MOST_WAITS and busy():
            self.waits += 1
            if self.early is not None:
                return self.as_is, BLOCK, 0, False
            self.early = True
        elif self.cold:
            self.cold = False
            return False, max(BLOCK, min(self.captured, MANY)), 0, False
        self.blocks, self.rounds = 1, differentiates(region)
        return self.as_is, 0, EARLY if self.early else BLOCK, self.rounds

    def timed(self, point: Any, region: Any) -> Answer:
        """A block has been timed."""
        ours, theirs = trimmed(self.compiled), trimmed(self.plain)
        if min(len(ours), len(theirs)) < FEWEST:
            certain = self.captured >= MANY or self.blocks >= 2
            as_is = len(theirs) >= FEWEST  # call after call captures something
        else:
            difference = statistics.fmean(ours) - statistics.fmean(theirs)
            error = (statistics.variance(ours) / len(ours) + statistics.variance(theirs) / len(theirs)) ** 0.5
            wanted = 0.0 if self.early else CERTAIN * error
            certain, as_is = abs(difference) > wanted, difference > wanted
        if self.blocks < MOST_BLOCKS and not certain and not self.early:
            self.blocks += 1
            return self.as_is, 0, BLOCK, self.rounds
        if self.early:
            pause, self.cold = BLOCK, as_is
        else:
            pause, self.pause = self.pause, self.pause * GROWTH
        if as_is != self.as_is:
            what = "calls run as they are, which is faster" if as_is else "calls run compiled again, which is faster"
            if self.early:
                what = f"until machine code is there, {what}"
            took = ", ".join([f"{name} {statistics.fmean(t) * 1e6:.0f} us" for name, t in (("compiled", ours), ("CPython", theirs)) if t])
            code = point._fn.__code__
            events.emit("policy", what=f"{what} ({took})", where=f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}")
        self.as_is, self.early = as_is, False
        self.blocks, self.compiled, self.plain = 0, [], []
        self.captured = captures(region)
        return as_is, pause, 0, False


def in_group() -> bool:
    """Whether this process is one of several that may talk to each other."""
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def captures(region: Any) -> int:
    return sum([r.captures for r in region.records.values()])


def busy() -> bool:
    """Whether machine code is being made, for whomever."""
    return any([job is not None and type(job) is not Storing for job in (background.running, *list(background.jobs))])


def differentiates(region: Any) -> bool:
    """Whether some graph of this region has a backward pass."""
    codes = [code for ref in region.codes if (code := ref()) is not None]
    graphs = [e.info.emitted.executable for code in codes for e in native.entries(code)]
    return any([g is not None and type(g.node) not in (type(None), Freed) for g in graphs])


def trimmed(times: list[float]) -> list[float]:
    """Without the longest eighth, one at least: what else the machine does."""
    return sorted(times)[: len(times) * 7 // 8]


__all__ = ["Trial", "captures", "hurry", "wanted"]
