"""What a recording scope writes down, for translation validation (`validate.py`) and replay."""

from __future__ import annotations

import os
import traceback
from dataclasses import dataclass
from typing import Any

from pliant.symbolic.expr import Expr

#: Whether scopes record by default.
RECORD = os.environ.get("PLIANT_VALIDATE", "0") not in ("", "0")
_HERE = os.path.dirname(os.path.abspath(__file__))


@dataclass(frozen=True, slots=True, eq=False)
class Event:
    """One step. `kind`:

    - "apply": the operator `op` on the operands `value` gave `expr`;
    - "answer": the question `expr` was answered `value`;
    - "guard", "assert", "axiom": `expr` became a fact, checked by the entry, by the graph, or true by nature;
    - "simplify": `expr` was replaced by the expression `value`; "range": `expr` was said to lie in `value`.
    """

    kind: str
    expr: Expr
    value: Any
    site: Any
    op: str
    stack: tuple[str, ...]

    def __str__(self) -> str:
        match self.kind:
            case "apply":
                text = f"{self.op}({', '.join(map(str, self.value))}) = {self.expr}"
            case "answer":
                text = f"{self.expr} is {self.value}"
            case "simplify":
                text = f"{self.expr} simplifies to {self.value}"
            case "range":
                text = f"{self.expr} in [{self.value[0]}, {self.value[1]}]"
            case _:
                text = str(self.expr)
        return f"{self.kind}: {text}" + (f" at {self.site}" if self.site is not None else "")


def stack(limit: int = 12) -> tuple[str, ...]:
    """The callers outside this package, innermost first."""
    frames = traceback.StackSummary.extract(traceback.walk_stack(None), limit=limit + 8, lookup_lines=False)
    return tuple(f"{f.filename}:{f.lineno} in {f.name}" for f in frames if not f.filename.startswith(_HERE))[:limit]
