"""CPython 3.12's opcodes: comprehensions run in the frame around them, loops and delegation end at instructions of their own."""

from __future__ import annotations

import dis
import operator

from pliant.bytecode import kinds as K
from pliant.bytecode.operands import COMPARE, CONSTANT, FIXED, FLAGGED, FORWARD, NAME, NONE, PLAIN, SHARED, Opcode, Part, one

_entries = dis._inline_cache_entries  # type: ignore[attr-defined]
CACHES: list[int] = list(_entries) if isinstance(_entries, list) else [_entries.get(name, 0) for name in dis.opname]
THROW_LEAVES_BY_SEND = False  # whether `throw` ends a delegation by the jump of the SEND before it, or a handler does
CALLABLE_FIRST = False
CLOSE_GIVES_A_VALUE = False  # whether `close` gives what the generator returns
JUMPS_ASK = True  # whether a branch asks for the truth of what it is given, or takes True and False alone
LOCALS_ARE_SNAPSHOTS = False  # whether each `locals()` of a function makes a dict, or all of them show one

SINCE_312: dict[str, Opcode] = {
    "POP_JUMP_IF_TRUE": one(K.JUMP_IF_TRUE, FORWARD),
    "POP_JUMP_IF_FALSE": one(K.JUMP_IF_FALSE, FORWARD),
    "POP_JUMP_IF_NONE": one(K.JUMP_IF_NONE, FORWARD),
    "POP_JUMP_IF_NOT_NONE": one(K.JUMP_IF_NOT_NONE, FORWARD),
    "SEND": one(K.SEND, FORWARD, 1),  # behind END_SEND
    "END_SEND": one(K.END_SEND, NONE),
    "CLEANUP_THROW": one(K.CLEANUP_THROW, NONE),
    "RETURN_CONST": Opcode((Part(K.LOAD_CONST, CONSTANT), Part(K.RETURN, NONE))),
    "LOAD_ATTR": Opcode((Part(K.LOAD_ATTR, NAME, 1),), (Part(K.LOAD_METHOD, NAME, 1),)),
    "LOAD_SUPER_ATTR": Opcode((Part(K.LOAD_SUPER_ATTR, FLAGGED, 2),), (Part(K.LOAD_SUPER_METHOD, FLAGGED, 2),)),
    "LOAD_GLOBAL": one(K.LOAD_GLOBAL, FLAGGED, 1),
    "LOAD_FAST_CHECK": one(K.LOAD_LOCAL, PLAIN),
    "LOAD_FAST_AND_CLEAR": one(K.LOAD_LOCAL_AND_CLEAR, PLAIN),
    "LOAD_LOCALS": one(K.LOAD_LOCALS, NONE),
    "LOAD_FROM_DICT_OR_DEREF": one(K.LOAD_FROM_DICT_OR_DEREF, PLAIN),
    "LOAD_FROM_DICT_OR_GLOBALS": one(K.LOAD_FROM_DICT_OR_GLOBALS, NAME),
    "BINARY_SLICE": one(K.LOAD_SLICE, NONE),
    "STORE_SLICE": one(K.STORE_SLICE, NONE),
    "CALL_INTRINSIC_1": Opcode((Part(K.INTRINSIC_1, PLAIN),), {
        3: (Part(K.STOP_ITERATION_ERROR, NONE),), 4: (Part(K.WRAP_ASYNC, NONE),), 5: (Part(K.UNARY, FIXED, fixed=operator.pos),),
        6: (Part(K.LIST_TO_TUPLE, NONE),),
    }),
    "CALL_INTRINSIC_2": Opcode((Part(K.INTRINSIC_2, PLAIN),), {1: (Part(K.PREP_RERAISE_STAR, NONE),)}),
    "INTERPRETER_EXIT": one(K.NOP, NONE),
    "RESERVED": one(K.NOP, NONE),
}

OPCODES: dict[str, Opcode] = {
    **SHARED,
    **SINCE_312,
    "FOR_ITER": one(K.FOR_ITER, FORWARD, 1),  # behind END_FOR
    "END_FOR": one(K.END_FOR, FIXED, fixed=2),
    "COMPARE_OP": one(K.COMPARE, COMPARE, 4),
    "LOAD_CLOSURE": one(K.LOAD_CELL, PLAIN),
    "KW_NAMES": one(K.KEYWORDS, CONSTANT),
    "FORMAT_VALUE": one(K.FORMAT, PLAIN),
}
