"""The scalar operators of the loop IR as text of Triton; `functions.py` has those that are more than an operator of the language."""

from __future__ import annotations

from pliant.lower.loops import DTYPES, SCALARS, Node

TYPES = {
    "f32": "tl.float32", "f64": "tl.float64", "bf16": "tl.bfloat16", "f16": "tl.float16", "i8": "tl.int8", "i16": "tl.int16",
    "i32": "tl.int32", "i64": "tl.int64", "u8": "tl.uint8", "bool": "tl.int1",
}  # fmt: skip
POINTERS = {
    "f32": "*fp32", "f64": "*fp64", "bf16": "*bf16", "f16": "*fp16", "i8": "*i8", "i16": "*i16", "i32": "*i32", "i64": "*i64", "u8": "*u8",
    "bool": "*i1",
}  # fmt: skip
"""How Triton calls a pointer to memory of each dtype in the signature of a kernel."""

HALVES = ("bf16", "f16")
INFIX = {"add": "+", "sub": "-", "mul": "*", "eq": "==", "ne": "!=", "and": "&", "or": "|", "xor": "^"}
ORDERED = {"lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# Of these Triton's own are faster and less exact (division, square root), or they are not there.
PLAIN = {
    "floor": "tl.floor({})", "ceil": "tl.ceil({})", "abs": "tl.abs({})", "fma": "tl.fma({}, {}, {})", "where": "tl.where({}, {}, {})",
    "isnan": "({0} != {0})",
}  # fmt: skip
BY_KIND = {
    ("div", "f32"): "tl.div_rn({}, {})", ("div", "f64"): "({} / {})", ("sqrt", "f32"): "tl.sqrt_rn({})", ("sqrt", "f64"): "tl.sqrt({})",
    ("reciprocal", "f32"): "tl.div_rn(1.0, {})", ("reciprocal", "f64"): "(1.0 / {})",
    ("maximum", "bool"): "({} | {})", ("minimum", "bool"): "({} & {})", ("not", "bool"): "({} == 0)",
}  # fmt: skip
HELPED = frozenset((
    "maximum", "minimum", "fmax", "fmin", "sign", "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin",
    "acos", "atan", "atan2", "sinh", "cosh", "tanh", "erf", "erfc", "sigmoid", "pow", "rsqrt", "trunc", "round", "shl", "shr",
))  # fmt: skip
"""Functions of `functions.py` of the same name; those in `OF_KIND` have one for floats and one for integers."""
OF_KIND = frozenset(("floordiv", "truncdiv", "remainder", "fmod"))


def literal(value: float | bool, dtype: str) -> str:
    """A constant of this dtype."""
    return f"tl.full([1, 1], {number(value)}, {TYPES[dtype]})"


def number(value: float | bool) -> str:
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return f'float("{value}")'
    return repr(value)


def scalar(n: Node, args: list[str]) -> str:
    """A row of `SCALARS` on operands of these names."""
    dtype = n.args[-1].dtype if n.op == "where" else n.args[0].dtype
    if dtype in HALVES and n.op != "where":
        return halved(n, args)
    if n.op in INFIX:
        return f"({args[0]} {INFIX[n.op]} {args[1]})"
    if n.op in ORDERED:
        wide = [f"{a}.to(tl.int32)" if dtype == "bool" else a for a in args]
        return f"({wide[0]} {ORDERED[n.op]} {wide[1]})"
    found = BY_KIND.get((n.op, dtype)) or PLAIN.get(n.op)
    if found is not None:
        return found.format(*args)
    kind = DTYPES[dtype].kind
    if n.op == "neg":  # Triton's minus gives 0.0 for 0.0
        return f"({args[0]} * -1.0)" if kind == "f" else f"(-{args[0]})"
    if n.op == "not":
        return f"(~{args[0]})"
    if n.op == "sign" and kind == "u":
        return f"({args[0]} != 0).to({TYPES[dtype]})"
    if n.op in OF_KIND:
        return f"F.{n.op}_{'f' if kind == 'f' else 'i'}({', '.join(args)})"
    return f"F.{n.op}({', '.join(args)})"


def halved(n: Node, args: list[str]) -> str:
    """Arithmetic on halves is done in f32."""
    wide = Node(n.op, tuple(Node("cast", (), "f32") if a.dtype in HALVES else a for a in n.args), "f32")
    text = scalar(wide, [f"{a}.to(tl.float32)" if x.dtype in HALVES else a for a, x in zip(args, n.args, strict=True)])
    return text if SCALARS[n.op].result == "bool" else f"{text}.to({TYPES[n.dtype]})"


def cast(source: str, to: str, x: str) -> str:
    """A value of one dtype in another, as PyTorch converts it."""
    if to == "bool":
        return f"({x} != 0)"
    if DTYPES[source].kind == "f" and DTYPES[to].kind in "iu":
        middle = "tl.int64" if to in ("i64", "u8") else "tl.int32"
        x = f"{x}.to(tl.float32)" if source in HALVES else x
        return f"{x}.to({middle}).to({TYPES[to]})" if middle != TYPES[to] else f"{x}.to({middle})"
    if to in HALVES and source != "f32" or source in HALVES and to != "f32":
        return f"{x}.to(tl.float32).to({TYPES[to]})"
    return f"{x}.to({TYPES[to]})"


def printable(n: Node) -> bool:
    """Is there text for this operator?"""
    return n.op in INFIX or n.op in ORDERED or n.op in PLAIN or n.op in HELPED or n.op in OF_KIND or n.op in OTHERS


OTHERS = frozenset(("neg", "not", "div", "sqrt", "reciprocal"))
