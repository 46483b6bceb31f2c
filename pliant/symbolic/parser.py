"""Expressions read back from the Python text that `printers.python` writes. Nothing is evaluated: unknown syntax is an error."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from typing import Any

from pliant.symbolic import ops

BINARY: dict[type, Callable] = {
    ast.Add: ops.add, ast.Sub: ops.sub, ast.Mult: ops.mul, ast.FloorDiv: ops.floordiv, ast.Mod: ops.mod, ast.Div: ops.truediv,
    ast.Pow: ops.pow_, ast.BitAnd: ops.bit_and, ast.BitOr: ops.bit_or, ast.BitXor: ops.bit_xor, ast.LShift: ops.lshift,
    ast.RShift: ops.rshift,
}  # fmt: skip
UNARY: dict[type, Callable] = {ast.USub: ops.neg, ast.UAdd: lambda a: a, ast.Not: ops.not_, ast.Invert: ops.bit_not}
COMPARE: dict[type, Callable] = {ast.Eq: ops.eq, ast.NotEq: ops.ne, ast.Lt: ops.lt, ast.LtE: ops.le, ast.Gt: ops.gt, ast.GtE: ops.ge}
LOGIC: dict[type, Callable] = {ast.And: ops.and_, ast.Or: ops.or_}
CALLS: dict[str, Callable] = {
    "min": ops.min_, "max": ops.max_, "abs": ops.abs_, "int": ops.to_int, "float": ops.to_float, "bool": ops.to_bool, "round": ops.round_,
} | {
    f"math.{name}": ops.DOORS[name]
    for name in "floor ceil trunc sqrt copysign exp log log2 sin cos tan asin acos atan sinh cosh tanh".split()
}  # fmt: skip
SPECIAL = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


def parse(text: str, names: Mapping[str, Any]) -> Any:
    """The expression (or number) that `text` says, over the symbols in `names`. ValueError for what is no expression."""
    try:
        tree = ast.parse(text, mode="eval").body
    except SyntaxError as e:
        raise ValueError(f"no expression: {text!r}") from e
    return built(tree, names)


def built(tree: ast.AST, names: Mapping[str, Any]) -> Any:
    """The expression of a syntax tree."""
    match tree:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Name(id=name) if name in names:
            return names[name]
        case ast.BinOp(left=a, op=op, right=b) if type(op) in BINARY:
            return BINARY[type(op)](built(a, names), built(b, names))
        case ast.UnaryOp(op=op, operand=a) if type(op) in UNARY:
            return UNARY[type(op)](built(a, names))
        case ast.Compare(left=a, ops=[op], comparators=[b]) if type(op) in COMPARE:
            return COMPARE[type(op)](built(a, names), built(b, names))
        case ast.BoolOp(op=op, values=[first, *rest]):
            out = built(first, names)
            for v in rest:
                out = LOGIC[type(op)](out, built(v, names))
            return out
        case ast.IfExp(test=c, body=a, orelse=b):
            return ops.where(built(c, names), built(a, names), built(b, names))
        case ast.Call(func=ast.Name(id="float"), args=[ast.Constant(value=str() as text)], keywords=[]) if text in SPECIAL:
            return SPECIAL[text]
        case ast.Call(func=fn, args=[first, *rest], keywords=[]) if ast.unparse(fn) in CALLS:
            make = CALLS[ast.unparse(fn)]
            args = [built(first, names), *(built(a, names) for a in rest)]
            if make in (ops.min_, ops.max_) and len(args) > 2:
                out = args[0]
                for a in args[1:]:
                    out = make(out, a)
                return out
            return make(*args)
    raise ValueError(f"no expression: {ast.unparse(tree)!r}")
