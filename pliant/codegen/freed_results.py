"""Results whose history is gone: `backward()` was captured with what made them, and they say so when gradients are asked for again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pliant.codegen.aten import Executable
from pliant.codegen.double_backward import ALIAS, freed
from pliant.graph.originals import gradients, torch


@dataclass(frozen=True, slots=True)
class Freed:
    """The program of a region, and which of its results and inputs are told apart."""

    program: Executable
    at: list[int]  # results with such a history
    through: list[int]  # inputs that it leads to
    bare: list[int]  # results among these that are views made without gradients: they have no history of their own

    def __call__(self, *given: Any) -> tuple:
        out = list(self.program.fn(*given))
        through = [given[i] for i in self.through] or [torch.empty(0, requires_grad=True)]
        for i, t in zip(self.at, freed([out[i] for i in self.at], through), strict=True):
            out[i] = t
        with gradients(False):
            for i in self.bare:
                out[i] = ALIAS(out[i])
        return tuple(out)

    def executable(self) -> Executable:
        """The region, to be called."""
        made = self.program
        return Executable(self.__call__, made.source, made.n_ops, made.globals, self)
