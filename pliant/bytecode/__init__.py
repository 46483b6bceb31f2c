"""Bytecode of CPython, read and written. Rooms above know kinds of instructions, no opcode of any version.

`kinds.py` says what instructions do, `cpython311.py` which opcodes they are, `decode.py` reads code objects, `assemble.py` writes them,
`stack.py` tells what a frame's stack holds.
"""

from pliant.bytecode.decode import Instruction, Row, disassembly, instruction_at, instructions, kind_at, rows, units
from pliant.bytecode.kinds import Kind

__all__ = ["Instruction", "Kind", "Row", "disassembly", "instruction_at", "instructions", "kind_at", "rows", "units"]
