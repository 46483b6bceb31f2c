"""How opcodes are described: the kinds of instructions that they are, and how their operands are read. What all versions share is here."""

from __future__ import annotations

import dis
import operator
from dataclasses import dataclass
from types import CodeType
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.kinds import Kind
from pliant.native import WAYS

# How an operand is read; what is not negative is the number of a pool.
FLAGGED, FORWARD, BACKWARD, FIXED, NONE, PLAIN, HIGH, LOW = (
    WAYS[name] for name in "FLAGGED FORWARD BACKWARD FIXED NONE PLAIN HIGH LOW".split()
)
NAME, CONSTANT, BINARY, COMPARE = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Part:
    """What an opcode does, or one of the things that a superinstruction does.

    `shift`: bits below an index; of a jump, how many code units behind its target it goes on. `fixed`: the operand itself.
    """

    kind: Kind
    way: int
    shift: int = 0
    fixed: Any = None


@dataclass(frozen=True, slots=True)
class Opcode:
    """The parts of an opcode; `flagged`, those if the lowest bit of its operand is set, or those for some operands."""

    parts: tuple[Part, ...]
    flagged: tuple[Part, ...] | dict[int, tuple[Part, ...]] = ()


def one(kind: Kind, way: int, shift: int = 0, fixed: Any = None) -> Opcode:
    return Opcode((Part(kind, way, shift, fixed),))


OPERATORS = (
    operator.add, operator.and_, operator.floordiv, operator.lshift, operator.matmul, operator.mul, operator.mod,
    operator.or_, operator.pow, operator.rshift, operator.sub, operator.truediv, operator.xor,
    operator.iadd, operator.iand, operator.ifloordiv, operator.ilshift, operator.imatmul, operator.imul, operator.imod,
    operator.ior, operator.ipow, operator.irshift, operator.isub, operator.itruediv, operator.ixor,
)  # fmt: skip
COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)

SHARED: dict[str, Opcode] = {
    "CACHE": one(K.NOP, NONE),
    "NOP": one(K.NOP, NONE),
    "RESUME": one(K.RESUME, PLAIN),
    "POP_TOP": one(K.POP, NONE),
    "COPY": one(K.COPY, PLAIN),
    "SWAP": one(K.SWAP, PLAIN),
    "PUSH_NULL": one(K.PUSH_NULL, NONE),
    "LOAD_CONST": one(K.LOAD_CONST, CONSTANT),
    "LOAD_FAST": one(K.LOAD_LOCAL, PLAIN),
    "STORE_FAST": one(K.STORE_LOCAL, PLAIN),
    "DELETE_FAST": one(K.DELETE_LOCAL, PLAIN),
    "MAKE_CELL": one(K.MAKE_CELL, PLAIN),
    "COPY_FREE_VARS": one(K.COPY_FREE_VARS, PLAIN),
    "LOAD_DEREF": one(K.LOAD_DEREF, PLAIN),
    "STORE_DEREF": one(K.STORE_DEREF, PLAIN),
    "DELETE_DEREF": one(K.DELETE_DEREF, PLAIN),
    "STORE_GLOBAL": one(K.STORE_GLOBAL, NAME),
    "DELETE_GLOBAL": one(K.DELETE_GLOBAL, NAME),
    "LOAD_NAME": one(K.LOAD_NAME, NAME),
    "STORE_NAME": one(K.STORE_NAME, NAME),
    "DELETE_NAME": one(K.DELETE_NAME, NAME),
    "SETUP_ANNOTATIONS": one(K.SETUP_ANNOTATIONS, NONE),
    "LOAD_BUILD_CLASS": one(K.LOAD_BUILD_CLASS, NONE),
    "LOAD_ASSERTION_ERROR": one(K.LOAD_ASSERTION_ERROR, NONE),
    "IMPORT_NAME": one(K.IMPORT_NAME, NAME),
    "IMPORT_FROM": one(K.IMPORT_FROM, NAME),
    "JUMP_FORWARD": one(K.JUMP, FORWARD),
    "JUMP_BACKWARD": one(K.JUMP, BACKWARD),
    "JUMP_BACKWARD_NO_INTERRUPT": one(K.JUMP, BACKWARD),
    "GET_ITER": one(K.GET_ITER, NONE),
    "RETURN_VALUE": one(K.RETURN, NONE),
    "RETURN_GENERATOR": one(K.RETURN_GENERATOR, NONE),
    "YIELD_VALUE": one(K.YIELD, NONE),
    "GET_YIELD_FROM_ITER": one(K.GET_YIELD_FROM_ITER, NONE),
    "UNARY_NOT": one(K.NOT, NONE),
    "UNARY_NEGATIVE": one(K.UNARY, FIXED, fixed=operator.neg),
    "UNARY_INVERT": one(K.UNARY, FIXED, fixed=operator.invert),
    "BINARY_OP": one(K.BINARY, BINARY),
    "IS_OP": one(K.IS, PLAIN),
    "CONTAINS_OP": one(K.CONTAINS, PLAIN),
    "STORE_ATTR": one(K.STORE_ATTR, NAME),
    "DELETE_ATTR": one(K.DELETE_ATTR, NAME),
    "BINARY_SUBSCR": one(K.LOAD_ITEM, NONE),
    "STORE_SUBSCR": one(K.STORE_ITEM, NONE),
    "DELETE_SUBSCR": one(K.DELETE_ITEM, NONE),
    "CALL": one(K.CALL, PLAIN),
    "CALL_FUNCTION_EX": one(K.CALL_EX, PLAIN),
    "MAKE_FUNCTION": one(K.MAKE_FUNCTION, PLAIN),
    "BUILD_TUPLE": one(K.BUILD_TUPLE, PLAIN),
    "BUILD_LIST": one(K.BUILD_LIST, PLAIN),
    "BUILD_SET": one(K.BUILD_SET, PLAIN),
    "BUILD_MAP": one(K.BUILD_MAP, PLAIN),
    "BUILD_CONST_KEY_MAP": one(K.BUILD_CONST_KEY_MAP, PLAIN),
    "BUILD_STRING": one(K.BUILD_STRING, PLAIN),
    "BUILD_SLICE": one(K.BUILD_SLICE, PLAIN),
    "LIST_APPEND": one(K.LIST_APPEND, PLAIN),
    "SET_ADD": one(K.SET_ADD, PLAIN),
    "MAP_ADD": one(K.MAP_ADD, PLAIN),
    "LIST_EXTEND": one(K.LIST_EXTEND, PLAIN),
    "SET_UPDATE": one(K.SET_UPDATE, PLAIN),
    "DICT_UPDATE": one(K.DICT_UPDATE, PLAIN),
    "DICT_MERGE": one(K.DICT_MERGE, PLAIN),
    "UNPACK_SEQUENCE": one(K.UNPACK_SEQUENCE, PLAIN),
    "UNPACK_EX": one(K.UNPACK_EX, PLAIN),
    "GET_LEN": one(K.GET_LEN, NONE),
    "MATCH_MAPPING": one(K.MATCH_MAPPING, NONE),
    "MATCH_SEQUENCE": one(K.MATCH_SEQUENCE, NONE),
    "MATCH_KEYS": one(K.MATCH_KEYS, NONE),
    "MATCH_CLASS": one(K.MATCH_CLASS, PLAIN),
    "RAISE_VARARGS": one(K.RAISE, PLAIN),
    "RERAISE": one(K.RERAISE, PLAIN),
    "PUSH_EXC_INFO": one(K.PUSH_EXC_INFO, NONE),
    "POP_EXCEPT": one(K.POP_EXCEPT, NONE),
    "CHECK_EXC_MATCH": one(K.CHECK_EXC_MATCH, NONE),
    "CHECK_EG_MATCH": one(K.CHECK_EG_MATCH, NONE),
    "BEFORE_WITH": one(K.ENTER, NONE),
    "WITH_EXCEPT_START": one(K.EXIT, NONE),
    "GET_AWAITABLE": one(K.GET_AWAITABLE, PLAIN),
    "GET_AITER": one(K.GET_AITER, NONE),
    "GET_ANEXT": one(K.GET_ANEXT, NONE),
    "END_ASYNC_FOR": one(K.END_ASYNC_FOR, NONE),
    "BEFORE_ASYNC_WITH": one(K.ENTER_ASYNC, NONE),
}

WRITTEN = {
    "NOP", "RESUME", "POP_TOP", "COPY", "SWAP", "PUSH_NULL", "LOAD_CONST", "LOAD_FAST", "STORE_FAST", "DELETE_FAST", "COPY_FREE_VARS",
    "JUMP_FORWARD", "RETURN_VALUE", "RETURN_GENERATOR", "YIELD_VALUE", "SEND", "CALL_FUNCTION_EX", "BUILD_SLICE", "BINARY_SUBSCR",
    "DELETE_SUBSCR", "UNPACK_SEQUENCE", "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE", "DICT_MERGE",
}  # fmt: skip


def pools(code: CodeType) -> tuple[tuple, ...]:
    """What operands index, by the number of the pool."""
    return code.co_names, code.co_consts, OPERATORS, COMPARISONS


def numbers(opcodes: dict[str, Opcode], others: dict[str, str]) -> dict[Kind, int]:
    """The opcode of each kind that resume functions are written with; `others` for names that a version has not."""
    return {(opcodes.get(name) or SHARED[name]).parts[0].kind: dis.opmap[others.get(name, name)] for name in WRITTEN}
