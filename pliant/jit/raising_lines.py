"""Lines of the program at which graphs have raised, call after call: the graph ends in front of them.

A graph that raises before it has done anything is left to CPython, which runs the frame from its begin: right, and as dear as the graph
and the frame together. For an exception in a thousand calls that is no matter. A program that catches one in every second (an index that
may be out of range, a matrix that may not be positive) pays twice each time; where the graph ends in front of the line, the line runs in
CPython, once, and what is before and behind it stays compiled.

| of a line, with the calls that lead to it              | from then on                                          |
|--------------------------------------------------------|-------------------------------------------------------|
| the frame handled it, TIMES, in one of SHARE or more   | graphs end in front of it; those that have it go, once |
| it left the frame, TIMES_UNCAUGHT, in one of SHARE     | the same: most programs end there, and most that do    |
|                                                        | not (a server, a test) see few                         |
| else                                                   | the graph has it; where it raises, the frame runs anew |

Not where no breaks are wanted (`interpret/raised_before.py`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from types import CodeType

from pliant import events, native
from pliant.jit.weak_ids import WeakIdDict

TIMES, TIMES_UNCAUGHT = 2, 8
SHARE = 16

Calls = tuple[tuple[str, str, int], ...]
"""(file, function, line) of a line and of the calls that lead to it, the outermost first: `Site.calls`."""


@dataclass(slots=True)
class Raised:
    times: int = 0
    gone: WeakIdDict[bool] = field(default_factory=WeakIdDict)  # code objects of which the entries with this line have gone


class RaisingLines:
    """Those of a region. `ended` are the lines in front of which graphs end."""

    def __init__(self) -> None:
        self.known: dict[Calls, Raised] = {}
        self.ended: set[Calls] = set()

    def raised(self, calls: Calls, code: CodeType, caught: bool) -> bool:
        """An entry of `code` has raised at this line. Whether the entries that have it are to go: each of them would raise again, and
        a capture that does not end there after all is not made twice."""
        found = self.known.setdefault(calls, Raised())
        found.times += 1
        if calls not in self.ended:
            seldom = SHARE * found.times < sum([e.hits for e in native.entries(code)])
            if seldom or found.times < (TIMES if caught else TIMES_UNCAUGHT):
                return False
            self.ended.add(calls)
            file, function, line = calls[-1]
            events.emit("policy", what=f"it raised {found.times} times: graphs end in front of it", where=f"{file}:{line} {function}")
        if found.gone.get(code):
            return False
        found.gone[code] = True
        return True
