"""Machine code in a program's file, beside the text that any processor can compile.

    plan.json        what runs besides machine code (`plan.py`), and for each kind of processor what its code imports and exports
    code/LEVEL       the code (`codegen/cpu/image.py`) for each of the levels that were asked for (`codegen/cpu/ahead.py`)

docs/decisions/011-machine-code-in-files.md says when such code is run.
"""

from __future__ import annotations

import json
from typing import Any

from pliant.codegen import target
from pliant.errors import PliantError
from pliant.export import file
from pliant.export.compiled import CODE, PLAN
from pliant.export.plan import Code, plan_of
from pliant.export.program import Program

PORTABLE = "ahead"


def levels() -> tuple[str, ...]:
    """What machine code can be made for, the most capable kind of processor first; all run that of the last."""
    return target.named(PORTABLE).levels  # type: ignore[attr-defined]


def here() -> str:
    """The best level that this processor runs."""
    return target.named(PORTABLE).here()  # type: ignore[attr-defined]


def image_of(code: Code, level: str) -> Any:
    """The machine code of everything that a plan calls."""
    return target.named(PORTABLE).image(code.kernels, code.segments, level)  # type: ignore[attr-defined]


def parts_of(program: Program, chosen: tuple[str, ...]) -> dict[str, bytes]:
    """The members of the file that only compiled programs have."""
    plan, code = plan_of(program)
    plan["code"] = {}
    parts: dict[str, bytes] = {}
    for level in chosen:
        made = image_of(code, level)
        plan["code"][level] = {"imports": list(made.imports), "exports": made.exports}
        parts[CODE + level] = made.code
    return {PLAN: json.dumps(plan, separators=(",", ":")).encode(), **parts}


def compile(program: Program, path: Any, wanted: tuple[str, ...] | None = None) -> None:
    """See `Program.compile`. PliantError for what machine code without Python cannot do, with the operator and its line."""
    there = levels()
    chosen = tuple(dict.fromkeys((here(), there[-1]))) if wanted is None else tuple(wanted)
    if not chosen or [level for level in chosen if level not in there]:
        raise PliantError(f"levels={wanted!r}: machine code is made for {', '.join(there)}")
    file.save(program, path, parts_of(program, chosen))
