"""What instructions do, whatever a CPython calls them: one object for each kind, with how many items it takes from the stack and leaves.

Rooms above switch on these. Which opcode of which CPython is of what kind, `cpython311.py` and its like say.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Effect = tuple[int, int]  # (items popped, items pushed)


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """A kind of instruction. `effect` is its stack effect, or gives it for an operand; `jump_effect` that of the way that jumps."""

    name: str
    effect: Effect | Callable[[Any], Effect]
    jump_effect: Effect | None = None
    ends: bool = False  # the instruction behind it is not reached from it
    branch: bool = False  # decides where the program goes on

    def __repr__(self) -> str:
        return self.name

    def stack_effect(self, operand: Any, *, jump: bool = False) -> Effect:
        effect = self.jump_effect if jump and self.jump_effect is not None else self.effect
        return effect if isinstance(effect, tuple) else effect(operand)


def kind(name: str, pops: int, pushes: int, **more: Any) -> Kind:
    return Kind(name, (pops, pushes), **more)


def of(name: str, effect: Callable[[Any], Effect], **more: Any) -> Kind:
    return Kind(name, effect, **more)


def takes(n: int) -> Effect:
    return n, 1


# -- the frame and its stack ----------------------------------------------------------------------------------------------
NOP = kind("nop", 0, 0)
RESUME = kind("resume", 0, 0)
POP = kind("pop", 1, 0)
COPY = kind("copy", 0, 1)  # operand: how deep, 1 is the top
SWAP = kind("swap", 0, 0)
PUSH_NULL = kind("push null", 0, 1)
LOAD_CONST = kind("load constant", 0, 1)

# -- names: operand is a slot, or a name --------------------------------------------------------------------------------------
LOAD_LOCAL = kind("load local", 0, 1)
STORE_LOCAL = kind("store local", 1, 0)
DELETE_LOCAL = kind("delete local", 0, 0)
MAKE_CELL = kind("make cell", 0, 0)
LOAD_CELL = kind("load cell", 0, 1)
COPY_FREE_VARS = kind("copy free variables", 0, 0)
LOAD_DEREF = kind("load from cell", 0, 1)
STORE_DEREF = kind("store in cell", 1, 0)
DELETE_DEREF = kind("delete from cell", 0, 0)
LOAD_CLASS_DEREF = kind("load from class or cell", 0, 1)
LOAD_LOCAL_AND_CLEAR = kind("load local and clear it", 0, 1)
LOAD_LOCALS = kind("load locals", 0, 1)
LOAD_FROM_DICT_OR_DEREF = kind("load from dict or cell", 1, 1)
OF_CELLS = frozenset((MAKE_CELL, LOAD_CELL, LOAD_DEREF, STORE_DEREF, DELETE_DEREF, LOAD_CLASS_DEREF, LOAD_FROM_DICT_OR_DEREF))
LOAD_FROM_DICT_OR_GLOBALS = kind("load from dict or globals", 1, 1)
LOAD_GLOBAL = of("load global", lambda operand: (0, 1 + operand[1]))  # operand: (name, whether NULL goes with it)
STORE_GLOBAL = kind("store global", 1, 0)
DELETE_GLOBAL = kind("delete global", 0, 0)
LOAD_NAME = kind("load name", 0, 1)
STORE_NAME = kind("store name", 1, 0)
DELETE_NAME = kind("delete name", 0, 0)
SETUP_ANNOTATIONS = kind("set up annotations", 0, 0)
LOAD_BUILD_CLASS = kind("load __build_class__", 0, 1)
LOAD_ASSERTION_ERROR = kind("load AssertionError", 0, 1)
IMPORT_NAME = kind("import", 2, 1)
IMPORT_FROM = kind("import from", 0, 1)
IMPORT_STAR = kind("import *", 1, 0)

# -- control flow: the operand of a jump is where it goes -------------------------------------------------------------------
JUMP = kind("jump", 0, 0, ends=True)
JUMP_IF_TRUE = kind("jump if true", 1, 0, branch=True)
JUMP_IF_FALSE = kind("jump if false", 1, 0, branch=True)
JUMP_IF_NONE = kind("jump if None", 1, 0, branch=True)
JUMP_IF_NOT_NONE = kind("jump if not None", 1, 0, branch=True)
JUMP_IF_TRUE_OR_POP = kind("jump if true or pop", 1, 0, jump_effect=(0, 0), branch=True)
JUMP_IF_FALSE_OR_POP = kind("jump if false or pop", 1, 0, jump_effect=(0, 0), branch=True)
GET_ITER = kind("iter", 1, 1)
FOR_ITER = kind("for", 0, 1, jump_effect=(1, 0), branch=True)
RETURN = kind("return", 1, 0, ends=True)
RETURN_GENERATOR = kind("return generator", 0, 1)
YIELD = kind("yield", 1, 1)
GET_YIELD_FROM_ITER = kind("iter of yield from", 1, 1)
SEND = kind("send", 1, 1, jump_effect=(2, 1))
END_SEND = kind("end of sending", 2, 1)
CLEANUP_THROW = kind("end of throwing", 3, 2)
END_FOR = of("end of for", lambda n: (n, 0))

# -- operators, attributes, items ---------------------------------------------------------------------------------------------
NOT = kind("not", 1, 1)
TO_BOOL = kind("truth", 1, 1)  # only before a jump or `not`: interpreted ones ask themselves, those of CPython take True and False alone
UNARY = kind("unary operator", 1, 1)  # operand: the function of `operator`
BINARY = kind("binary operator", 2, 1)
COMPARE = kind("comparison", 2, 1)
IS = kind("is", 2, 1)  # operand: whether the answer is inverted
CONTAINS = kind("in", 2, 1)
LOAD_ATTR = kind("load attribute", 1, 1)
LOAD_METHOD = kind("load method", 1, 2)
LOAD_SUPER_ATTR = kind("load attribute of super", 3, 1)  # operand: (name, flags)
LOAD_SUPER_METHOD = kind("load method of super", 3, 2)
STORE_ATTR = kind("store attribute", 2, 0)
DELETE_ATTR = kind("delete attribute", 1, 0)
LOAD_ITEM = kind("load item", 2, 1)
STORE_ITEM = kind("store item", 3, 0)
DELETE_ITEM = kind("delete item", 2, 0)
LOAD_SLICE = kind("load slice", 3, 1)
STORE_SLICE = kind("store slice", 4, 0)

# -- calls and functions --------------------------------------------------------------------------------------------------------
KEYWORDS = kind("names of keyword arguments", 0, 0)
CALL = of("call", lambda n: (n + 2, 1))
CALL_KW = of("call with keywords", lambda n: (n + 3, 1))
CALL_EX = of("call with * and **", lambda flags: (3 + (flags & 1), 1))
MAKE_FUNCTION = of("make function", lambda flags: (1 + (flags & 15).bit_count(), 1))
SET_FUNCTION_ATTRIBUTE = kind("set attribute of function", 2, 1)
STOP_ITERATION_ERROR = kind("StopIteration to RuntimeError", 1, 1)
INTRINSIC_1 = kind("intrinsic function", 1, 1)
INTRINSIC_2 = kind("intrinsic function of two", 2, 1)

# -- building and unpacking -------------------------------------------------------------------------------------------------------
BUILD_TUPLE = of("build tuple", takes)
BUILD_LIST = of("build list", takes)
BUILD_SET = of("build set", takes)
BUILD_MAP = of("build dict", lambda n: (2 * n, 1))
BUILD_CONST_KEY_MAP = of("build dict of constant keys", lambda n: (n + 1, 1))
BUILD_STRING = of("build string", takes)
BUILD_SLICE = of("build slice", takes)
BUILD_INTERPOLATION = of("build interpolation", lambda flags: (2 + (flags & 1), 1))
BUILD_TEMPLATE = kind("build template", 2, 1)
FORMAT = of("format", lambda flags: (1 + (flags & 4 == 4), 1))  # operand: 4, a specification is on top; 1-3, str, repr, ascii
LIST_APPEND = kind("append to list", 1, 0)  # operand: how deep the container is
SET_ADD = kind("add to set", 1, 0)
MAP_ADD = kind("add to dict", 2, 0)
LIST_EXTEND = kind("extend list", 1, 0)
SET_UPDATE = kind("update set", 1, 0)
DICT_UPDATE = kind("update dict", 1, 0)
DICT_MERGE = kind("merge keyword arguments", 1, 0)
LIST_TO_TUPLE = kind("list to tuple", 1, 1)
UNPACK_SEQUENCE = of("unpack", lambda n: (1, n))
UNPACK_EX = of("unpack with *", lambda a: (1, (a & 255) + 1 + (a >> 8)))

# -- patterns ----------------------------------------------------------------------------------------------------------------------
GET_LEN = kind("length", 0, 1)
MATCH_MAPPING = kind("match mapping", 0, 1)
MATCH_SEQUENCE = kind("match sequence", 0, 1)
MATCH_KEYS = kind("match keys", 0, 1)
MATCH_CLASS = kind("match class", 3, 1)

# -- exceptions and contexts ---------------------------------------------------------------------------------------------------------
RAISE = of("raise", lambda n: (n, 0), ends=True)
RERAISE = kind("raise again", 1, 0, ends=True)
PUSH_EXC_INFO = kind("enter handler", 1, 2)
POP_EXCEPT = kind("leave handler", 1, 0)
CHECK_EXC_MATCH = kind("match exception", 1, 1)
CHECK_EG_MATCH = kind("match exception group", 2, 2)
PREP_RERAISE_STAR = kind("collect exceptions", 2, 1)
ENTER = kind("enter context", 1, 2)
EXIT = kind("leave context with exception", 0, 1)
LOAD_SPECIAL = kind("load special method", 1, 2)  # operand: its name, looked up on the type
EXIT_METHOD = kind("leave context with exception by a method", 0, 1)  # what to call lies below NULL or its first argument

# -- coroutines: pliant leaves them to CPython ----------------------------------------------------------------------------------------
GET_AWAITABLE = kind("await", 1, 1)
GET_AITER = kind("asynchronous iter", 1, 1)
GET_ANEXT = kind("asynchronous next", 0, 1)
END_ASYNC_FOR = kind("end asynchronous for", 2, 0)
ENTER_ASYNC = kind("enter asynchronous context", 1, 2)
WRAP_ASYNC = kind("wrap asynchronous value", 1, 1)
PRINT_EXPR = kind("print expression", 1, 0)

BRANCHES = frozenset(k for k in list(globals().values()) if isinstance(k, Kind) and k.branch)
JUMPS = BRANCHES | {JUMP, SEND}
