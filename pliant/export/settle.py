"""Programs whose files come back as they are.

A capture knows more of sizes than a program requires: two strides may be equal by what the example was, and a size be written in a shorter
way. A reader, which records every operation anew, cannot know that. So a program is read back once before it is given out; where what is
read is not the same, its operations are recorded anew with what a reader knows, and what these give is the program.
"""

from __future__ import annotations

import dataclasses
from typing import Any

from pliant import events
from pliant.export import rederive, text
from pliant.export.flows import all_ops
from pliant.export.program import Program
from pliant.export.rewrite import VIEWS, Rewriter
from pliant.graph.control_flow import FlowOp
from pliant.graph.record import Op
from pliant.lower import liveness

CARRIED = ("checks", "puts", "result", "state", "parameters", "keywords", "rest", "defaults", "dims", "notes", "module", "examples")
"""What the text of a program does not say."""
READINGS = 4
"""How often a program is read back at most: what one reading has to require may be all that the next one needs."""


def spaces(p: Program) -> frozenset[str]:
    return frozenset(op.target._schema.name.partition("::")[0] for op in all_ops(p.ops) if not isinstance(op, FlowOp))


def read_again(p: Program) -> Program:
    """`p` by its text: recorded in a scope that knows no more than the program requires. FormatError where it cannot be read."""
    return carried(p, text.Reader(spaces(p)).program(text.one_text(p)))


def carried(p: Program, q: Program) -> Program:
    """`q`, with what the text of `p` did not say."""
    for i, own in zip(q.inputs, p.inputs, strict=True):
        i.path = own.path
    for o, mine in zip(q.outputs, p.outputs, strict=True):
        o.path = mine.path
    for name in CARRIED:
        setattr(q, name, getattr(p, name))
    q.cache["scope"] = p.cache.get("scope", p.scope)  # it has what was declared
    return q


def settled(p: Program) -> Program:
    """`p`, or the same program as a reader has it. What cannot be made so is given out as it is."""
    if p.form not in ("core", "training"):
        return p
    try:
        words = text.one_text(p)
        try:
            if text.one_text(text.Reader(spaces(p)).program(words)) == words:
                return p
        except text.FormatError:
            pass
        q = anew(p, words)
        for _ in range(READINGS):
            words = text.one_text(q)
            try:
                again = text.Reader(spaces(q)).program(words)
            except text.FormatError:
                q = anew(q, words)  # knowing from its first operation on what its last ones require
                continue
            if text.one_text(again) == words:
                return carried(p, q)
            q = again  # it requires more: what a reader has to be told for what it could not prove
        why: Any = "a file of it is read as another program"
    except text.UNREADABLE as e:
        why = e
    events.emit("warning", id="export", text=f"{p.name} will not come back from a file as it is: {why}")
    return p


def anew(p: Program, words: str) -> Program:
    """`p`, all operations recorded with what a reader knows, each on what those before it give."""
    q = text.Reader(spaces(p)).program(words, checked=False)
    known = rederive.believed(q)
    rewriter = Renewer(q.trace)
    for op in q.ops:
        rewriter.step(op)
    q.ops = rewriter.ops
    for o in q.outputs:
        o.value = rewriter.now(o.value)
    rederive.required(q, known)
    return q


class Renewer(Rewriter):
    """Records operations on what their operands are now; their results are those that they are found to give."""

    def step(self, op: Op) -> None:
        if isinstance(op, FlowOp):
            self.flow(op)
            return
        args, kwargs = self.now(op.args), self.now(op.kwargs)
        moved = dataclasses.replace(op, args=args, kwargs=kwargs)
        if op.binds or not op.outs or op.target in rederive.SIZES:
            self.ops.append(moved)
            return
        try:
            out, made = self.record(op.target, *args, site=op.site, **kwargs)
        except (RuntimeError, ValueError):
            if op.target not in VIEWS:
                raise
            out, made = self.record(VIEWS[op.target], *args, site=op.site, **kwargs)
            self.replace(op.outs, [out])
            self.ops += made
            return
        found = next((o for o in made if o.target is op.target), None)
        moved.outs = found.outs if found is not None else liveness.leaves(out)
        self.replace(op.outs, moved.outs)
        self.ops.append(moved)
