"""CPython 3.11's opcodes."""

from __future__ import annotations

import dis
import operator

from pliant.bytecode import kinds as K
from pliant.bytecode.operands import BACKWARD, COMPARE, CONSTANT, FIXED, FLAGGED, FORWARD, NAME, NONE, PLAIN, SHARED, Opcode, one

CACHES: list[int] = dis._inline_cache_entries  # type: ignore[attr-defined]
THROW_LEAVES_BY_SEND = True  # whether `throw` ends a delegation by the jump of the SEND before it, or a handler does
CALLABLE_FIRST = False  # CALL finds NULL or a method below what it calls, or itself
CLOSE_GIVES_A_VALUE = False  # whether `close` gives what the generator returns
JUMPS_ASK = True  # whether a branch asks for the truth of what it is given, or takes True and False alone
LOCALS_ARE_SNAPSHOTS = False  # whether each `locals()` of a function makes a dict, or all of them show one

OPCODES: dict[str, Opcode] = {
    **SHARED,
    "PRECALL": one(K.NOP, NONE),
    "LOAD_CLOSURE": one(K.LOAD_CELL, PLAIN),
    "LOAD_CLASSDEREF": one(K.LOAD_CLASS_DEREF, PLAIN),
    "LOAD_GLOBAL": one(K.LOAD_GLOBAL, FLAGGED, 1),
    "IMPORT_STAR": one(K.IMPORT_STAR, NONE),
    "POP_JUMP_FORWARD_IF_TRUE": one(K.JUMP_IF_TRUE, FORWARD),
    "POP_JUMP_BACKWARD_IF_TRUE": one(K.JUMP_IF_TRUE, BACKWARD),
    "POP_JUMP_FORWARD_IF_FALSE": one(K.JUMP_IF_FALSE, FORWARD),
    "POP_JUMP_BACKWARD_IF_FALSE": one(K.JUMP_IF_FALSE, BACKWARD),
    "POP_JUMP_FORWARD_IF_NONE": one(K.JUMP_IF_NONE, FORWARD),
    "POP_JUMP_BACKWARD_IF_NONE": one(K.JUMP_IF_NONE, BACKWARD),
    "POP_JUMP_FORWARD_IF_NOT_NONE": one(K.JUMP_IF_NOT_NONE, FORWARD),
    "POP_JUMP_BACKWARD_IF_NOT_NONE": one(K.JUMP_IF_NOT_NONE, BACKWARD),
    "JUMP_IF_TRUE_OR_POP": one(K.JUMP_IF_TRUE_OR_POP, FORWARD),
    "JUMP_IF_FALSE_OR_POP": one(K.JUMP_IF_FALSE_OR_POP, FORWARD),
    "FOR_ITER": one(K.FOR_ITER, FORWARD),
    "SEND": one(K.SEND, FORWARD),
    "UNARY_POSITIVE": one(K.UNARY, FIXED, fixed=operator.pos),
    "COMPARE_OP": one(K.COMPARE, COMPARE),
    "LOAD_ATTR": one(K.LOAD_ATTR, NAME),
    "LOAD_METHOD": one(K.LOAD_METHOD, NAME),
    "KW_NAMES": one(K.KEYWORDS, CONSTANT),
    "FORMAT_VALUE": one(K.FORMAT, PLAIN),
    "LIST_TO_TUPLE": one(K.LIST_TO_TUPLE, NONE),
    "PREP_RERAISE_STAR": one(K.PREP_RERAISE_STAR, NONE),
    "ASYNC_GEN_WRAP": one(K.WRAP_ASYNC, NONE),
    "PRINT_EXPR": one(K.PRINT_EXPR, NONE),
}
