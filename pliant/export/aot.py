"""Machine code in a program's file, beside the text that any processor can compile.

    plan.json        what runs besides machine code (`plan.py`), and for each kind of processor what its code imports and exports
    code/LEVEL       the code (`codegen/cpu/image.py`), for the levels of x86-64 that its ABI names: x86-64-v4 (AVX-512), v3 (AVX2), x86-64

Code of a level uses that level's instructions and no others, so a processor that has them runs it whatever its maker or age.
docs/decisions/011-machine-code-in-files.md says when such code is run.
"""

from __future__ import annotations

import json
from typing import Any

from pliant import native
from pliant.codegen.cpu import compile as kernels
from pliant.codegen.cpu import image, machine, segment
from pliant.codegen.cpu.image import Image
from pliant.codegen.cpu.llvm import llvm
from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.parallel import launcher
from pliant.errors import PliantError
from pliant.export import file
from pliant.export.compiled import CODE, PLAN
from pliant.export.plan import Code, plan_of
from pliant.export.program import Program

LEVELS: dict[str, tuple[str, int, bool, bool]] = {
    "x86-64-v4": ("avx512", 512, True, True),
    "x86-64-v3": ("avx2", 256, False, True),
    "x86-64": ("portable", 128, False, False),
}
"""Kinds of processors: what the printer calls the vectors, their bits, whether masks are instructions, whether fma and the like are."""
BASELINE = "x86-64"


def machine_of(level: str) -> Machine:
    """What code for a level may use. PliantError where LLVM makes other code here."""
    machine.prepare()
    triple = llvm.get_process_triple()
    if not triple.startswith("x86_64"):
        raise PliantError(f"machine code can be kept in a file for x86-64 only, and this is {triple}: program.save keeps what any processor can compile")
    name, bits, masks, fused = LEVELS[level]
    return Machine(name, bits, masks, fused, fused, fused, False, triple, level, "")


def here() -> str:
    """The best level that this processor runs."""
    bits = native.own_products()[0]
    return "x86-64-v4" if bits == 512 else "x86-64-v3" if bits == 256 else BASELINE


def image_of(code: Code, level: str) -> Image:
    """The machine code of everything that a plan calls."""
    to = machine_of(level)
    symbols = {key: name for key, (name, _) in code.kernels.items()}
    parts = [kernels.kernel_part(kernel, name, to) for name, kernel in code.kernels.values()]
    parts += [segment.part_of(s, name, symbols) for name, s in code.segments]
    texts = kernels.modules_of(parts) if parts else []
    return image.link(kernels.objects([*texts, launcher()], to), [part.name for part in parts])


def parts_of(program: Program, levels: tuple[str, ...]) -> dict[str, bytes]:
    """The members of the file that only compiled programs have."""
    plan, code = plan_of(program)
    plan["code"] = {}
    parts: dict[str, bytes] = {}
    for level in levels:
        made = image_of(code, level)
        plan["code"][level] = {"imports": list(made.imports), "exports": made.exports}
        parts[CODE + level] = made.code
    return {PLAN: json.dumps(plan, separators=(",", ":")).encode(), **parts}


def compile(program: Program, path: Any, levels: tuple[str, ...] | None = None) -> None:
    """See `Program.compile`. PliantError for what machine code without Python cannot do, with the operator and its line."""
    chosen = tuple(dict.fromkeys((here(), BASELINE))) if levels is None else tuple(levels)
    wrong = [level for level in chosen if level not in LEVELS]
    if wrong or not chosen:
        raise PliantError(f"levels={levels!r}: machine code is made for {', '.join(LEVELS)}")
    file.save(program, path, parts_of(program, chosen))
