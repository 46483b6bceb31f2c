"""Machine code that leaves the process: objects linked to one image that runs wherever it is put.

Objects as LLVM makes them (ELF, x86-64, position independent) refer to each other and to their constants by distances, which are worked
out here; what they import is reached through a table of addresses behind the code. So whoever loads an image copies it, fills the table
and makes the pages executable: no linker, no LLVM.

    [code and constants of all objects][one jump for each import] up to a whole page [address of each import]
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, field

from pliant.errors import PliantError

PAGE = 4096
ALLOCATED, WRITTEN, THREADED = 2, 1, 0x400  # flags of sections
RELA, SYMTAB, NOBITS = 4, 2, 8  # types of sections
PC32, PLT32, GOTPCREL, GOTPCRELX, REX_GOTPCRELX, PC64 = 2, 4, 9, 41, 42, 24
THROUGH_TABLE = (GOTPCREL, GOTPCRELX, REX_GOTPCRELX)
JUMP = b"\xff\x25"  # jmp *distance(%rip)
EACH_JUMP = 8


@dataclass(frozen=True, slots=True)
class Image:
    """`code` as it lies in memory; the table is behind it: the address of `imports[i]` goes to `table + 8 * i`. `exports`: functions."""

    code: bytes
    table: int
    imports: tuple[str, ...]
    exports: dict[str, int]


@dataclass(slots=True)
class Section:
    """A section of an object: where it will be, if it is needed in memory."""

    kind: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    at: int = -1


@dataclass(slots=True)
class Symbol:
    name: str
    section: int
    value: int
    is_global: bool


@dataclass(slots=True)
class Object:
    """One ELF file."""

    data: bytes
    sections: list[Section] = field(default_factory=list)
    symbols: list[Symbol] = field(default_factory=list)


def read(data: bytes) -> Object:
    """The sections and symbols of an object. PliantError if it is none for this kind of processor."""
    if data[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<HH", data, 16) != (1, 62):
        raise PliantError("machine code can be kept in a file for x86-64 Linux only: this is another kind of object")
    start, each, count = struct.unpack_from("<Q", data, 40)[0], *struct.unpack_from("<HH", data, 58)
    made = Object(data)
    for i in range(count):
        _, kind, flags, _, offset, size, link, info, align, _ = struct.unpack_from("<IIQQQQIIQQ", data, start + i * each)
        made.sections.append(Section(kind, flags, offset, size, link, info, max(align, 1)))
    for s in made.sections:
        if s.kind == SYMTAB:
            names = made.sections[s.link].offset
            for at in range(s.offset, s.offset + s.size, 24):
                name, info, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, at)
                text = data[names + name : data.index(b"\0", names + name)].decode()
                made.symbols.append(Symbol(text, section, value, info >> 4 != 0))
    return made


def link(objects: Iterable[bytes], exports: Iterable[str]) -> Image:
    """One image of objects that may call each other. PliantError where they hold what cannot be moved about."""
    files = [read(data) for data in objects]
    code = bytearray()
    defined: dict[str, int] = {}
    for f in files:
        place_sections(f, code)
        for s in f.symbols:
            if s.is_global and 0 < s.section < len(f.sections) and f.sections[s.section].at >= 0:
                defined[s.name] = f.sections[s.section].at + s.value
    missing = {s.name: None for f in files for s in f.symbols if s.is_global and s.section == 0 and s.name and s.name not in defined}
    imports = tuple(missing)
    pad(code, 16)
    jumps = len(code)
    table = -(-(jumps + EACH_JUMP * len(imports)) // PAGE) * PAGE
    entry = {name: table + 8 * i for i, name in enumerate(imports)}
    jump = {name: jumps + EACH_JUMP * i for i, name in enumerate(imports)}
    for name in imports:
        code += JUMP + struct.pack("<i", entry[name] - (jump[name] + 6)) + b"\xcc\xcc"
    code += bytes(table - len(code))
    for f in files:
        relocate(f, code, defined, jump, entry)
    return Image(bytes(code), table, imports, {name: defined[name] for name in exports})


def place_sections(f: Object, code: bytearray) -> None:
    """Append what an object needs in memory."""
    for s in f.sections:
        if not s.flags & ALLOCATED or not s.size:
            continue
        if s.flags & (WRITTEN | THREADED) or s.kind == NOBITS:
            raise PliantError("machine code with variables of its own cannot be kept in a file")
        pad(code, max(s.align, 16))
        s.at = len(code)
        code += f.data[s.offset : s.offset + s.size]


def relocate(f: Object, code: bytearray, defined: dict[str, int], jump: dict[str, int], entry: dict[str, int]) -> None:
    """Fill in the distances."""
    for rela in f.sections:
        if rela.kind != RELA or f.sections[rela.info].at < 0:
            continue
        base = f.sections[rela.info].at
        for at in range(rela.offset, rela.offset + rela.size, 24):
            offset, info, addend = struct.unpack_from("<QQq", f.data, at)
            kind, symbol = info & 0xFFFFFFFF, f.symbols[info >> 32]
            place = base + offset
            if symbol.section:
                target = f.sections[symbol.section].at + symbol.value
            else:
                target = defined.get(symbol.name, -1)
            if kind in THROUGH_TABLE and target < 0:
                target = entry[symbol.name]
            elif kind in (GOTPCRELX, REX_GOTPCRELX) and code[place - 2] == 0x8B:  # mov: what it would load is an address that is known
                code[place - 2] = 0x8D  # lea
            elif kind in THROUGH_TABLE:
                raise PliantError(f"machine code takes the address of {symbol.name} in a way that cannot be kept in a file")
            elif target < 0:
                target = jump[symbol.name]
            if kind == PC64:
                struct.pack_into("<q", code, place, target + addend - place)
            elif kind in (PC32, PLT32, *THROUGH_TABLE):
                struct.pack_into("<i", code, place, target + addend - place)
            else:
                raise PliantError(f"machine code with a relocation of type {kind} cannot be kept in a file")


def pad(code: bytearray, to: int) -> None:
    code += b"\xcc" * (-len(code) % to)
