"""Dependences through memory: what must come after what, step by step in the order of the program.

A reader comes after the last writer, a writer after all readers before it, effects after each other.
"""

from __future__ import annotations

from typing import Any

from pliant.lower import liveness
from pliant.symbolic.expr import Expr, parts, postorder

NOBODY: frozenset[int] = frozenset()


class Dependences:
    """Steps are told in order, by their `index`; what each must wait for is added to its `deps`."""

    def __init__(self) -> None:
        self.last_write: dict[int, int] = {}  # storage -> step
        self.readers: dict[int, set[int]] = {}
        self.last_effect = -1
        self.writes: set[int] = set()  # steps since then that wrote memory from before
        self.checking: set[int] = set()  # steps since then that may raise
        self.own: set[int] = set()  # storages made here
        self.binders: dict[str, int] = {}  # symbol -> the step that makes it known
        self.found: dict[Expr, frozenset[int]] = {}  # expression -> the steps that make its symbols known, of the binders so far

    def read(self, step: Any, storage: int) -> int:
        """The step that wrote this storage last, -1 if none did."""
        w = self.last_write.get(storage, -1)
        if w >= 0:
            step.deps.add(w)
        self.readers.setdefault(storage, set()).add(step.index)
        return w

    def write(self, step: Any, written: set[int], made: set[int], effect: bool, checks: bool = False) -> None:
        """Writers come after earlier readers; effects after each other and after writes that remain.

        What checks data, or checks and writes (`checks`), stays between the effects and writes that it was between, in any order.
        """
        for s in written:
            step.deps |= self.readers.get(s, set()) - {step.index}
            if self.last_write.get(s, -1) >= 0:
                step.deps.add(self.last_write[s])
            self.readers[s] = set()
        self.own |= made - written
        lasting = bool(written - self.own)
        if (effect or lasting) and self.last_effect >= 0:
            step.deps.add(self.last_effect)
        if lasting or effect and not checks:
            step.deps |= self.checking
        if effect:
            step.deps |= self.writes
        if checks:
            self.checking.add(step.index)
        elif effect:
            self.last_effect, self.writes, self.checking = step.index, set(), set()
        if lasting and (checks or not effect):
            self.writes.add(step.index)
        for s in written | made:
            self.last_write[s] = step.index

    def publish(self, storages: set[int]) -> None:
        """Somebody else may look at these from here on, should the program raise."""
        self.own -= storages

    def uses(self, step: Any, values: Any) -> None:
        """Numbers that only a run tells are known after the operation that finds them."""
        if self.binders:
            self.needs(step, [e for v in liveness.leaves(values) if (e := liveness.number(v)) is not None])

    def needs(self, step: Any, expressions: list[Any]) -> None:
        for e in expressions:
            found = self.found.get(e)
            step.deps |= self.finders(e) if found is None else found

    def finders(self, e: Expr) -> frozenset[int]:
        """The steps that make symbols of `e` known. Sums share their parts, as the prefix sums of lengths do: each is looked at once."""
        found = self.found
        for n in postorder(e, done=found):
            if n.op == "sym":
                found[n] = frozenset((self.binders[n.name],)) if n.name in self.binders else NOBODY
            else:
                groups = {found[p] for p in parts(n)} - {NOBODY}
                found[n] = groups.pop() if len(groups) == 1 else NOBODY.union(*groups)
        return found[e]

    def symbols(self, step: Any, op: Any) -> None:
        """What `op` uses, and what it finds."""
        if self.binders:
            read = liveness.op_inputs(op)
            laid_out = [(*t.sizes, *t.strides, t.offset) for t in (*read, *liveness.op_outputs(op))]
            layout = [liveness.number(s) for numbers in laid_out for s in numbers if type(s) is not int]
            self.needs(step, [*liveness.op_numbers(op), *layout])
        for b in op.binds:
            name = liveness.number(b.symbol).name
            if name not in self.binders:
                self.binders[name] = step.index
                self.found.clear()
