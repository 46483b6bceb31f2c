"""Dependences through memory: what must come after what, step by step in the order of the program.

A reader comes after the last writer, a writer after all readers before it, effects after each other.
"""

from __future__ import annotations

from typing import Any

from pliant.lower import liveness


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
        self.names: dict[Any, list[str]] = {}  # expression -> its symbols

    def read(self, step: Any, storage: int) -> int:
        """The step that wrote this storage last, -1 if none did."""
        w = self.last_write.get(storage, -1)
        if w >= 0:
            step.deps.add(w)
        self.readers.setdefault(storage, set()).add(step.index)
        return w

    def write(self, step: Any, written: set[int], made: set[int], effect: bool, checks: bool = False) -> None:
        """Writers come after earlier readers; effects after each other and after writes that remain.

        What does nothing but check data (`checks`) stays between the effects and writes that it was between, in any order.
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
        if (effect or lasting) and not checks:
            step.deps |= self.checking
        if effect:
            step.deps |= self.writes
        if checks:
            self.checking.add(step.index)
        elif effect:
            self.last_effect, self.writes, self.checking = step.index, set(), set()
        elif lasting:
            self.writes.add(step.index)
        for s in written | made:
            self.last_write[s] = step.index

    def uses(self, step: Any, values: Any) -> None:
        """Numbers that only a run tells are known after the operation that finds them."""
        if self.binders:
            self.needs(step, [e for v in liveness.leaves(values) if (e := liveness.number(v)) is not None])

    def needs(self, step: Any, expressions: list[Any]) -> None:
        for e in expressions:
            names = self.names.get(e)
            if names is None:
                names = self.names[e] = liveness.symbols_of(e)
            step.deps |= {self.binders[n] for n in names if n in self.binders}

    def symbols(self, step: Any, op: Any) -> None:
        """What `op` uses, and what it finds."""
        if self.binders:
            read = liveness.op_inputs(op)
            sizes = [liveness.number(s) for t in (*read, *liveness.op_outputs(op)) for s in t.sizes if type(s) is not int]
            self.needs(step, [*liveness.op_numbers(op), *sizes])
        for b in op.binds:
            self.binders.setdefault(liveness.symbols_of(b.symbol)[0], step.index)
