"""Machine code in memory: objects become an image (`image.py`), which is put where it may run. No LLVM is needed for that.

LLVM's own linker takes what is no ELF of x86-64, or what holds more than code and constants.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pliant import native
from pliant.codegen.cpu import image, machine, runtime
from pliant.codegen.cpu.llvm import llvm
from pliant.errors import PliantError

_linkers: list[Any] = []
_names = itertools.count()


@dataclass(slots=True)
class Code:
    """Machine code in memory. Dropping it unloads the code: whoever holds addresses holds this too."""

    addresses: list[int]
    held: object = field(repr=False)


def link(codes: Iterable[bytes], names: Sequence[str], outside: Mapping[str, int]) -> Code:
    """Objects, which may call each other, in memory; `outside` gives addresses of what they call beyond the C library."""
    codes = tuple(codes)
    try:
        made = image.link(codes, names)
        imports = tuple([outside.get(name) or runtime.address_in_process(name) for name in made.imports])
    except PliantError:
        return by_llvm(codes, names, outside)
    held = native.MachineCode(made.code, imports)
    return Code([held.address + made.exports[name] for name in names], held)


def by_llvm(codes: Iterable[bytes], names: Sequence[str], outside: Mapping[str, int]) -> Code:
    """The same by LLVM's linker."""
    if not _linkers:
        _linkers.append(llvm.create_lljit_compiler(machine.llvm_machine(machine.current()), use_jit_link=True, suppress_errors=False))
    builder = llvm.JITLibraryBuilder().add_current_process()
    for code in codes:
        builder = builder.add_object_img(code)
    for name in names:
        builder = builder.export_symbol(name)
    for name, address in outside.items():
        builder = builder.import_symbol(name, address)
    tracker = builder.link(_linkers[0], f"pliant{next(_names)}")
    return Code([tracker[name] for name in names], tracker)
