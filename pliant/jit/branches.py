"""Branches on data: which form each of them has, and what was counted of them.

| form   | when                                               | what compiled code does                                     |
|--------|----------------------------------------------------|-------------------------------------------------------------|
| select | both sides are a few operations on elements, which | both sides run, `torch.where` chooses (`interpret/selects`) |
|        | cannot fail                                        |                                                             |
| joined | both sides are closed over tensors and numbers     | an operation of the graph runs one of them                  |
|        |                                                    | (`interpret/joins.py`); takes are counted                   |
| exit   | joined, and the first ALWAYS runs took one side    | the graph goes on there; the other side is a way out of it  |
| joined | more than every fourth run has left by that way    | for good; takes are counted no more                         |
| break  | else at first, and where nothing else is possible  | the graph ends, both sides are resume functions; takes count |
| exit   | of TAKES, 4, 8, 16... takes of a side all but 1/5  | as above                                                    |
| other  | more than every fourth run has left by that way    | the same with the sides exchanged                           |
| both   | they left by the other way, too                    | a break for good; takes are counted no more                 |

A branch changes its form at most MOST_CHANGES times, each of which costs one capture of what it is in. A way out costs what a break costs
(the resume function is the same one) and a few microseconds more.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Any

from pliant import events, native
from pliant.guards.guard import Site
from pliant.jit.weak_ids import WeakIdDict

TAKES = 3
ALWAYS = 64
FIRST_LOOK = 16
"""Ways out taken before it is first asked whether they are too many; then at twice as many, and so on."""
MOST_CHANGES = 3


forced: Callable[[CodeType, int], bool | None] | None = None
"""Chooses the hot sides from the first capture on (tests)."""


joins = True
"""Whether both sides of a branch may be one operation. False: exits and breaks alone (tests)."""


class Branch:
    """One branch on data. Called by compiled code with the side that a run takes where the graph ends."""

    __slots__ = (
        *("__weakref__", "changes", "code", "counting", "hot", "left", "lineno", "nested"),
        *("next_look", "path", "refused", "roots", "takes"),
    )

    def __init__(self, code: CodeType, path: tuple, lineno: int) -> None:
        self.code = weakref.ref(code)
        self.path = path
        self.lineno = lineno
        self.hot: bool | None = None
        self.takes = [0, 0]
        self.left = 0  # ways out taken since the last change
        self.next_look = FIRST_LOOK
        self.changes = 0
        self.refused = ""
        self.nested = False  # whether too many branches are inside of its sides to look at all ways
        self.counting: bool | None = None  # the runs of the operation that it is with both sides; None: it is no such
        self.roots: list[weakref.ref[CodeType]] = []  # code objects with entries in which it is

    @property
    def decided(self) -> bool:
        """Whether nothing is to be counted any more."""
        return bool(self.refused) or self.changes >= MOST_CHANGES

    def __call__(self, side: bool) -> None:
        takes = self.takes
        takes[side] = n = takes[side] + 1
        if (n == TAKES or n > TAKES and not n & n - 1) and n > 4 * takes[not side] and self.hot is None and not self.decided:
            self.change(side, "the graph goes on behind the branch")

    def begins_joined(self) -> bool:
        """It is about to become an operation of the graph: whether the sides that its runs take are counted."""
        if self.counting is None:
            self.counting, self.takes = not self.decided, [0, 0]
        return self.counting

    def joined(self, side: bool) -> None:
        """A run of the operation takes this side."""
        takes = self.takes
        takes[side] = n = takes[side] + 1
        if takes[not side]:
            self.counting = False
        elif n >= ALWAYS and self.counting:
            self.counting = False
            self.change(side, "the graph goes on behind the branch")

    def leaves(self) -> None:
        """A run leaves by the way out."""
        self.takes[not self.hot] += 1
        self.left += 1
        events.count("side_exits")
        if self.left >= self.next_look and not self.decided:
            self.next_look *= 2
            if 4 * self.left > sum(e.hits for _, e in self.entries()):
                if self.changes == 1 and self.counting is None:
                    self.change(not self.hot, "the other side of the branch is the hot one")
                else:
                    self.change(None, "both sides of the branch are hot")

    def change(self, hot: bool | None, why: str) -> None:
        """Another form: what was compiled with the one before goes, and is captured anew when it is called again."""
        for root, e in list(self.entries()):
            native.remove_entry(root, e)
        self.hot = hot
        self.changes += 1
        self.left, self.next_look = 0, FIRST_LOOK
        self.roots = []
        self.tell(why)

    def entries(self) -> Iterator[tuple[CodeType, Any]]:
        """(code object, entry) for each entry that has this branch."""
        for ref in self.roots:
            root = ref()
            for e in native.entries(root) if root is not None else ():
                if root is not None and self in getattr(e.info, "branches", ()):
                    yield root, e

    def adopt(self, root: CodeType, hot: bool | None) -> None:
        """An entry from the disk has it: with `hot`, the graph goes on behind it."""
        self.found_in(root)
        if hot is not None and self.hot is None and not self.decided:
            self.hot = hot
            self.changes = max(self.changes, 1)

    def refuse(self, why: str) -> None:
        """It stays a graph break."""
        self.hot, self.refused = None, why
        self.tell(f"the graph ends at the branch: {why}")

    def tell(self, what: str) -> None:
        side = "" if self.hot is None else f" ({self.hot})"
        events.emit("policy", what=f"{what}{side}, {self.taken} so far", where=self.where)

    @property
    def taken(self) -> str:
        """How often each side was taken, as far as that is counted: where the graph ends, and by the way out."""
        return f"{self.takes[True]} true, {self.takes[False]} false"

    @property
    def where(self) -> str:
        code = self.code()
        return f"{code.co_filename}:{self.lineno} {code.co_qualname}" if code is not None else "?"

    def found_in(self, root: CodeType) -> None:
        """An entry of this code object has it."""
        if all(ref() is not root for ref in self.roots):
            self.roots.append(weakref.ref(root))


class Branches:
    """All branches on data that a region has met: one in a function that is called from two places is two."""

    def __init__(self) -> None:
        self.table: WeakIdDict[dict[tuple, Branch]] = WeakIdDict()

    def at(self, site: Site) -> Branch:
        return self.known(site.code, path(site), site.lineno)

    def known(self, code: CodeType, path: tuple, lineno: int) -> Branch:
        found = self.table.get(code)
        if found is None:
            found = self.table[code] = {}
        if path not in found:
            found[path] = Branch(code, path, lineno)
        return found[path]

    def hot_side(self, site: Site) -> bool | None:
        if forced is not None and not self.at(site).refused:
            self.at(site).hot = forced(site.code, site.offset)
        found = self.table.get(site.code)
        branch = found.get(path(site)) if found is not None else None
        return branch.hot if branch is not None else None

    def refuse(self, site: Site, why: str) -> None:
        self.at(site).refuse(why)


def path(site: Site) -> tuple:
    """The branch's instruction, and the calls that lead to it."""
    outer: list[Any] = []
    caller = site.outer
    while caller is not None:
        outer += (caller.function, caller.offset)
        caller = caller.outer
    return (site.offset, *outer)
