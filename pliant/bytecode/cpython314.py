"""CPython 3.14's opcodes: `with` is calls of special methods, items are read by an operator, small numbers stand in the instruction.

Read and written only: no interpreter of pliant's runs there yet (decision 009), which `versions.py` says at import.
"""

from __future__ import annotations

from pliant.bytecode import kinds as K
from pliant.bytecode.cpython313 import CACHES
from pliant.bytecode.cpython313 import OPCODES as OF_313
from pliant.bytecode.operands import BINARY, FIXED, HIGH, LOW, NONE, PLAIN, Opcode, Part, one

THROW_LEAVES_BY_SEND = False
CALLABLE_FIRST = True
CLOSE_GIVES_A_VALUE = True
JUMPS_ASK = False
LOCALS_ARE_SNAPSHOTS = True

GET_ITEM = 26  # the operand of BINARY_OP that stands for `a[b]`
WRITTEN_AS = {"BINARY_SUBSCR": "BINARY_OP"}
OPERANDS = {K.LOAD_ITEM: GET_ITEM}  # what is written with an opcode of several kinds
COMMON = (AssertionError, NotImplementedError, tuple, all, any)
SPECIAL = ("__enter__", "__exit__", "__aenter__", "__aexit__")
GONE = {"BEFORE_WITH", "BEFORE_ASYNC_WITH", "BINARY_SUBSCR", "BUILD_CONST_KEY_MAP", "LOAD_ASSERTION_ERROR", "RETURN_CONST"}


def by_operand(kind: K.Kind, values: tuple) -> Opcode:
    """An opcode whose operand is an index into values that no code object holds."""
    found: dict[int, tuple[Part, ...]] = {i: (Part(kind, FIXED, 0, v),) for i, v in enumerate(values)}
    return Opcode(found[0], found)


OPCODES: dict[str, Opcode] = {
    **{name: opcode for name, opcode in OF_313.items() if name not in GONE},
    "BINARY_OP": Opcode((Part(K.BINARY, BINARY),), {GET_ITEM: (Part(K.LOAD_ITEM, NONE),)}),
    "BUILD_INTERPOLATION": one(K.BUILD_INTERPOLATION, PLAIN),
    "BUILD_TEMPLATE": one(K.BUILD_TEMPLATE, NONE),
    "CALL_FUNCTION_EX": one(K.CALL_EX, FIXED, fixed=1),  # NULL where there are no keyword arguments
    "LOAD_COMMON_CONSTANT": by_operand(K.LOAD_CONST, COMMON),
    "LOAD_FAST_BORROW": one(K.LOAD_LOCAL, PLAIN),
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": Opcode((Part(K.LOAD_LOCAL, HIGH), Part(K.LOAD_LOCAL, LOW))),
    "LOAD_SMALL_INT": one(K.LOAD_CONST, PLAIN),
    "LOAD_SPECIAL": by_operand(K.LOAD_SPECIAL, SPECIAL),
    "NOT_TAKEN": one(K.NOP, NONE),
    "POP_ITER": one(K.POP, NONE),
    "WITH_EXCEPT_START": one(K.EXIT_METHOD, NONE),
}
__all__ = [
    "CACHES", "CALLABLE_FIRST", "CLOSE_GIVES_A_VALUE", "JUMPS_ASK", "LOCALS_ARE_SNAPSHOTS", "OPCODES", "OPERANDS",
    "THROW_LEAVES_BY_SEND", "WRITTEN_AS",
]  # fmt: skip
