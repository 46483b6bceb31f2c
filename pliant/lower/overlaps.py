"""Whether two elements of one tensor may have the same place in memory: `unfold`, `as_strided`, and what comes from outside."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph import layout
from pliant.graph.traced import TracedTensor
from pliant.lower.aliases import Aliases
from pliant.lower.loop_nest import Facts

aten = torch.ops.aten
MEETING = {aten.unfold.default, aten.as_strided.default, aten.expand.default}
"""Views of which elements may meet where those of the base do not."""
STRIDED = {aten.empty_strided.default, aten.new_empty_strided.default}
"""Operators that make memory with strides that they are told."""


def may_meet(t: TracedTensor, aliases: Aliases, facts: Facts) -> bool:
    """Whether elements of `t` may meet, for all that is known."""
    while not t.dense and not surely_apart(t, facts):
        step = aliases.steps.get(t.vid)
        if step is None:
            maker = aliases.makers.get(t.vid)
            return maker is None or maker.target in STRIDED
        if step.op.target in MEETING:
            return True
        t = step.base
    return False


def surely_apart(t: TracedTensor, facts: Facts) -> bool:
    """Can it be proved of its sizes and strides?"""

    def holds(cond: Any) -> bool:
        return cond if isinstance(cond, bool) else facts.scope.known_true(cond)

    return layout.apart(list(map(facts.size, t.sizes)), list(map(facts.size, t.strides)), holds)
