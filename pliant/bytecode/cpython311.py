"""CPython 3.11: of what kind each opcode is and how its operand is read; how instructions, exception tables and line tables are written.

Another CPython is another file like this one.
"""

from __future__ import annotations

import dis
import operator
from types import CodeType
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.kinds import Kind

EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
CACHE = dis.opmap["CACHE"]
CACHES: list[int] = dis._inline_cache_entries  # type: ignore[attr-defined]

# How an operand is read, as native/decode.cpp has them; not negative: the number of a pool.
GLOBAL, FORWARD, BACKWARD, FIXED, NONE, PLAIN = -1, -2, -3, -4, -5, -6
NAME, CONSTANT, BINARY, COMPARE = 0, 1, 2, 3

OPERATORS = (
    operator.add, operator.and_, operator.floordiv, operator.lshift, operator.matmul, operator.mul, operator.mod,
    operator.or_, operator.pow, operator.rshift, operator.sub, operator.truediv, operator.xor,
    operator.iadd, operator.iand, operator.ifloordiv, operator.ilshift, operator.imatmul, operator.imul, operator.imod,
    operator.ior, operator.ipow, operator.irshift, operator.isub, operator.itruediv, operator.ixor,
)  # fmt: skip
COMPARISONS = (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)

OPCODES: dict[str, tuple[Kind, int] | tuple[Kind, int, Any]] = {
    "CACHE": (K.NOP, NONE),
    "NOP": (K.NOP, NONE),
    "PRECALL": (K.NOP, NONE),
    "RESUME": (K.RESUME, PLAIN),
    "POP_TOP": (K.POP, NONE),
    "COPY": (K.COPY, PLAIN),
    "SWAP": (K.SWAP, PLAIN),
    "PUSH_NULL": (K.PUSH_NULL, NONE),
    "LOAD_CONST": (K.LOAD_CONST, CONSTANT),
    "LOAD_FAST": (K.LOAD_LOCAL, PLAIN),
    "STORE_FAST": (K.STORE_LOCAL, PLAIN),
    "DELETE_FAST": (K.DELETE_LOCAL, PLAIN),
    "MAKE_CELL": (K.MAKE_CELL, PLAIN),
    "LOAD_CLOSURE": (K.LOAD_CELL, PLAIN),
    "COPY_FREE_VARS": (K.COPY_FREE_VARS, PLAIN),
    "LOAD_DEREF": (K.LOAD_DEREF, PLAIN),
    "STORE_DEREF": (K.STORE_DEREF, PLAIN),
    "DELETE_DEREF": (K.DELETE_DEREF, PLAIN),
    "LOAD_CLASSDEREF": (K.LOAD_CLASS_DEREF, PLAIN),
    "LOAD_GLOBAL": (K.LOAD_GLOBAL, GLOBAL),
    "STORE_GLOBAL": (K.STORE_GLOBAL, NAME),
    "DELETE_GLOBAL": (K.DELETE_GLOBAL, NAME),
    "LOAD_NAME": (K.LOAD_NAME, NAME),
    "STORE_NAME": (K.STORE_NAME, NAME),
    "DELETE_NAME": (K.DELETE_NAME, NAME),
    "SETUP_ANNOTATIONS": (K.SETUP_ANNOTATIONS, NONE),
    "LOAD_BUILD_CLASS": (K.LOAD_BUILD_CLASS, NONE),
    "LOAD_ASSERTION_ERROR": (K.LOAD_ASSERTION_ERROR, NONE),
    "IMPORT_NAME": (K.IMPORT_NAME, NAME),
    "IMPORT_FROM": (K.IMPORT_FROM, NAME),
    "IMPORT_STAR": (K.IMPORT_STAR, NONE),
    "JUMP_FORWARD": (K.JUMP, FORWARD),
    "JUMP_BACKWARD": (K.JUMP, BACKWARD),
    "JUMP_BACKWARD_NO_INTERRUPT": (K.JUMP, BACKWARD),
    "POP_JUMP_FORWARD_IF_TRUE": (K.JUMP_IF_TRUE, FORWARD),
    "POP_JUMP_BACKWARD_IF_TRUE": (K.JUMP_IF_TRUE, BACKWARD),
    "POP_JUMP_FORWARD_IF_FALSE": (K.JUMP_IF_FALSE, FORWARD),
    "POP_JUMP_BACKWARD_IF_FALSE": (K.JUMP_IF_FALSE, BACKWARD),
    "POP_JUMP_FORWARD_IF_NONE": (K.JUMP_IF_NONE, FORWARD),
    "POP_JUMP_BACKWARD_IF_NONE": (K.JUMP_IF_NONE, BACKWARD),
    "POP_JUMP_FORWARD_IF_NOT_NONE": (K.JUMP_IF_NOT_NONE, FORWARD),
    "POP_JUMP_BACKWARD_IF_NOT_NONE": (K.JUMP_IF_NOT_NONE, BACKWARD),
    "JUMP_IF_TRUE_OR_POP": (K.JUMP_IF_TRUE_OR_POP, FORWARD),
    "JUMP_IF_FALSE_OR_POP": (K.JUMP_IF_FALSE_OR_POP, FORWARD),
    "GET_ITER": (K.GET_ITER, NONE),
    "FOR_ITER": (K.FOR_ITER, FORWARD),
    "RETURN_VALUE": (K.RETURN, NONE),
    "RETURN_GENERATOR": (K.RETURN_GENERATOR, NONE),
    "YIELD_VALUE": (K.YIELD, NONE),
    "GET_YIELD_FROM_ITER": (K.GET_YIELD_FROM_ITER, NONE),
    "SEND": (K.SEND, FORWARD),
    "UNARY_NOT": (K.NOT, NONE),
    "UNARY_NEGATIVE": (K.UNARY, FIXED, operator.neg),
    "UNARY_POSITIVE": (K.UNARY, FIXED, operator.pos),
    "UNARY_INVERT": (K.UNARY, FIXED, operator.invert),
    "BINARY_OP": (K.BINARY, BINARY),
    "COMPARE_OP": (K.COMPARE, COMPARE),
    "IS_OP": (K.IS, PLAIN),
    "CONTAINS_OP": (K.CONTAINS, PLAIN),
    "LOAD_ATTR": (K.LOAD_ATTR, NAME),
    "LOAD_METHOD": (K.LOAD_METHOD, NAME),
    "STORE_ATTR": (K.STORE_ATTR, NAME),
    "DELETE_ATTR": (K.DELETE_ATTR, NAME),
    "BINARY_SUBSCR": (K.LOAD_ITEM, NONE),
    "STORE_SUBSCR": (K.STORE_ITEM, NONE),
    "DELETE_SUBSCR": (K.DELETE_ITEM, NONE),
    "KW_NAMES": (K.KEYWORDS, CONSTANT),
    "CALL": (K.CALL, PLAIN),
    "CALL_FUNCTION_EX": (K.CALL_EX, PLAIN),
    "MAKE_FUNCTION": (K.MAKE_FUNCTION, PLAIN),
    "BUILD_TUPLE": (K.BUILD_TUPLE, PLAIN),
    "BUILD_LIST": (K.BUILD_LIST, PLAIN),
    "BUILD_SET": (K.BUILD_SET, PLAIN),
    "BUILD_MAP": (K.BUILD_MAP, PLAIN),
    "BUILD_CONST_KEY_MAP": (K.BUILD_CONST_KEY_MAP, PLAIN),
    "BUILD_STRING": (K.BUILD_STRING, PLAIN),
    "BUILD_SLICE": (K.BUILD_SLICE, PLAIN),
    "FORMAT_VALUE": (K.FORMAT, PLAIN),
    "LIST_APPEND": (K.LIST_APPEND, PLAIN),
    "SET_ADD": (K.SET_ADD, PLAIN),
    "MAP_ADD": (K.MAP_ADD, PLAIN),
    "LIST_EXTEND": (K.LIST_EXTEND, PLAIN),
    "SET_UPDATE": (K.SET_UPDATE, PLAIN),
    "DICT_UPDATE": (K.DICT_UPDATE, PLAIN),
    "DICT_MERGE": (K.DICT_MERGE, PLAIN),
    "LIST_TO_TUPLE": (K.LIST_TO_TUPLE, NONE),
    "UNPACK_SEQUENCE": (K.UNPACK_SEQUENCE, PLAIN),
    "UNPACK_EX": (K.UNPACK_EX, PLAIN),
    "GET_LEN": (K.GET_LEN, NONE),
    "MATCH_MAPPING": (K.MATCH_MAPPING, NONE),
    "MATCH_SEQUENCE": (K.MATCH_SEQUENCE, NONE),
    "MATCH_KEYS": (K.MATCH_KEYS, NONE),
    "MATCH_CLASS": (K.MATCH_CLASS, PLAIN),
    "RAISE_VARARGS": (K.RAISE, PLAIN),
    "RERAISE": (K.RERAISE, PLAIN),
    "PUSH_EXC_INFO": (K.PUSH_EXC_INFO, NONE),
    "POP_EXCEPT": (K.POP_EXCEPT, NONE),
    "CHECK_EXC_MATCH": (K.CHECK_EXC_MATCH, NONE),
    "CHECK_EG_MATCH": (K.CHECK_EG_MATCH, NONE),
    "PREP_RERAISE_STAR": (K.PREP_RERAISE_STAR, NONE),
    "BEFORE_WITH": (K.ENTER, NONE),
    "WITH_EXCEPT_START": (K.EXIT, NONE),
    "GET_AWAITABLE": (K.GET_AWAITABLE, PLAIN),
    "GET_AITER": (K.GET_AITER, NONE),
    "GET_ANEXT": (K.GET_ANEXT, NONE),
    "END_ASYNC_FOR": (K.END_ASYNC_FOR, NONE),
    "BEFORE_ASYNC_WITH": (K.ENTER_ASYNC, NONE),
    "ASYNC_GEN_WRAP": (K.WRAP_ASYNC, NONE),
    "PRINT_EXPR": (K.PRINT_EXPR, NONE),
}

WRITTEN = {
    "NOP", "RESUME", "POP_TOP", "COPY", "SWAP", "PUSH_NULL", "LOAD_CONST", "LOAD_FAST", "STORE_FAST", "DELETE_FAST", "COPY_FREE_VARS",
    "JUMP_FORWARD", "RETURN_VALUE", "RETURN_GENERATOR", "YIELD_VALUE", "SEND", "CALL_FUNCTION_EX", "BUILD_SLICE", "BINARY_SUBSCR",
    "UNPACK_SEQUENCE", "PUSH_EXC_INFO", "POP_EXCEPT", "RERAISE",
}  # fmt: skip
OPCODE: dict[Kind, int] = {OPCODES[name][0]: dis.opmap[name] for name in WRITTEN}
"""The opcode of each kind that resume functions are written with."""


def pools(code: CodeType) -> tuple[tuple, ...]:
    """What operands index, by the number of the pool."""
    return code.co_names, code.co_consts, OPERATORS, COMPARISONS


def exception_table(code: CodeType) -> list[tuple[int, int, int, int, bool]]:
    return [(e.start, e.end, e.target, e.depth, e.lasti) for e in dis._parse_exception_table(code)]  # type: ignore[attr-defined]
