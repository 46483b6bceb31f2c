"""CPython 3.13's opcodes: what is called lies below NULL or its first argument, truth is an instruction of its own."""

from __future__ import annotations

from pliant.bytecode import kinds as K
from pliant.bytecode.cpython312 import CACHES, SINCE_312
from pliant.bytecode.operands import COMPARE, FIXED, FORWARD, HIGH, LOW, NONE, PLAIN, SHARED, Opcode, Part, one

THROW_LEAVES_BY_SEND = False  # whether `throw` ends a delegation by the jump of the SEND before it, or a handler does
CALLABLE_FIRST = True
CLOSE_GIVES_A_VALUE = True  # whether `close` gives what the generator returns
JUMPS_ASK = False  # whether a branch asks for the truth of what it is given, or takes True and False alone
LOCALS_ARE_SNAPSHOTS = True  # whether each `locals()` of a function makes a dict, or all of them show one

OPCODES: dict[str, Opcode] = {
    **SHARED,
    **SINCE_312,
    "FOR_ITER": one(K.FOR_ITER, FORWARD, 2),  # behind END_FOR and POP_TOP
    "END_FOR": one(K.END_FOR, FIXED, fixed=1),
    "COMPARE_OP": one(K.COMPARE, COMPARE, 5),
    "TO_BOOL": one(K.TO_BOOL, NONE),
    "CALL_KW": one(K.CALL_KW, PLAIN),
    "MAKE_FUNCTION": one(K.MAKE_FUNCTION, FIXED, fixed=0),
    "SET_FUNCTION_ATTRIBUTE": one(K.SET_FUNCTION_ATTRIBUTE, PLAIN),
    "CONVERT_VALUE": one(K.FORMAT, PLAIN),
    "FORMAT_SIMPLE": one(K.FORMAT, FIXED, fixed=0),
    "FORMAT_WITH_SPEC": one(K.FORMAT, FIXED, fixed=4),
    "LOAD_FAST_LOAD_FAST": Opcode((Part(K.LOAD_LOCAL, HIGH), Part(K.LOAD_LOCAL, LOW))),
    "STORE_FAST_LOAD_FAST": Opcode((Part(K.STORE_LOCAL, HIGH), Part(K.LOAD_LOCAL, LOW))),
    "STORE_FAST_STORE_FAST": Opcode((Part(K.STORE_LOCAL, HIGH), Part(K.STORE_LOCAL, LOW))),
    "EXIT_INIT_CHECK": one(K.NOP, NONE),
    "ENTER_EXECUTOR": one(K.NOP, NONE),
}
__all__ = ["CACHES", "CALLABLE_FIRST", "CLOSE_GIVES_A_VALUE", "JUMPS_ASK", "LOCALS_ARE_SNAPSHOTS", "OPCODES", "THROW_LEAVES_BY_SEND"]
