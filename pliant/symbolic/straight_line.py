"""Expressions as LLVM IR and StableHLO: two readings of the operator table over one straight-line program."""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pliant.symbolic.expr import TABLE, Expr, Scalar, Symbol, postorder


@dataclass(frozen=True, slots=True)
class Step:
    """`op` is a row's name applied to earlier steps; "const" and "sym" are leaves with a `value`."""

    op: str
    args: tuple[int, ...]
    kind: type
    value: Scalar | Symbol | None = None


def steps(e: Expr) -> list[Step]:
    """The expression as rows of the table only: sums become add / sub / mul, chains become binary. The last step is the value."""
    return program([e])[0]


class StraightLine:
    """A straight-line program that grows: `rows`, and the step that computes each expression met so far and each of its parts (`done`)."""

    def __init__(self) -> None:
        self.rows: list[Step] = []
        self.done: dict[Expr, int] = {}
        self.emit = _emitter(self.rows, {})

    def add(self, e: Expr) -> int:
        """The step that computes `e`."""
        for n in postorder(e, done=self.done):
            self.done[n] = _step(n, self.done, self.emit)
        return self.done[e]


def program(roots: Iterable[Expr]) -> tuple[list[Step], dict[Expr, int]]:
    """One straight-line program for several expressions, and the step that computes each of them and of their parts."""
    line = StraightLine()
    for e in roots:
        line.add(e)
    return line.rows, line.done


def _emitter(out: list[Step], index: dict[tuple, int]) -> Callable[..., int]:
    def emit(op: str, args: tuple[int, ...], kind: type, value: Scalar | Symbol | None = None) -> int:
        key = (op, args, kind, id(value) if isinstance(value, Symbol) else repr(value))
        if key not in index:
            index[key] = len(out)
            out.append(Step(op, args, kind, value))
        return index[key]

    return emit


def _step(n: Expr, done: dict[Expr, int], emit: Callable[..., int]) -> int:
    """The step of one node whose parts are done."""
    if n.const is not None:
        return emit("const", (), n.kind, n.const)
    if n.op == "sym":
        return emit("sym", (), n.kind, n.info)
    if n.op == "sum":
        return _sum(n, done, emit)
    if TABLE[n.op].arity == -1:
        r = done[n.args[0]]
        for a in n.args[1:]:
            r = emit(n.op, (r, done[a]), n.kind)
        return r
    if "f" + n.op in TABLE and n.kind is bool and any(a.kind is float for a in n.args):
        args = [done[a] if a.kind is float else emit("to_float", (done[a],), float) for a in n.args]
        return emit("f" + n.op, tuple(args), bool)
    return emit(n.op, tuple([done[a] for a in n.args]), n.kind)


def _sum(n: Expr, done: dict[Expr, int], emit: Callable[..., int]) -> int:
    total = -1
    for mono, c in sorted(n.terms, key=lambda t: t[1] < 0):
        minus = c < 0 and total >= 0
        k = -c if minus else c
        term = -1
        for a in mono:
            term = done[a] if term < 0 else emit("mul", (term, done[a]), int)
        if term < 0:
            term = emit("const", (), int, k)
        elif k == -1:
            term = emit("neg", (term,), int)
        elif k != 1:
            term = emit("mul", (term, emit("const", (), int, k)), int)
        total = term if total < 0 else emit("sub" if minus else "add", (total, term), int)
    return total


LLVM_TYPES = {int: "i64", float: "double", bool: "i1"}


def llvm(e: Expr, names: Mapping[str, str], prefix: str = "%t") -> tuple[list[str], str]:
    """(instructions, result) with symbols read from `names` (name -> LLVM value); temporaries are `prefix` and a number.

    `llvm_declarations(lines)` gives what they call.
    """
    lines, value = llvm_all([e], names, prefix)
    return lines, value[e]


def llvm_all(roots: Iterable[Expr], names: Mapping[str, str], prefix: str = "%t") -> tuple[list[str], dict[Expr, str]]:
    """(instructions, value of each expression): like `llvm`, for several expressions that share their parts."""
    wanted = list(roots)
    rows, index = program(wanted)
    lines: list[str] = []
    value: list[str] = []
    for s in rows:
        if s.op == "const":
            value.append(_llvm_const(s.value))  # type: ignore[arg-type]
        elif s.op == "sym":
            value.append(names[s.value.name])  # type: ignore[union-attr]
        else:
            value.append(_statements(TABLE[s.op].llvm, [value[a] for a in s.args], LLVM_TYPES[s.kind], prefix, lines))
    return lines, {e: value[index[e]] for e in wanted}


def _llvm_const(v: Scalar) -> str:
    if isinstance(v, bool):
        return "true" if v else "false"
    if isinstance(v, int):
        return str(v)
    return f"0x{_float_bits(v):016X}"


def _float_bits(v: float) -> int:
    return int.from_bytes(struct.pack(">d", v), "big")


def _statements(template: str, args: list[str], type_: str, prefix: str, lines: list[str]) -> str:
    """Append a row's statements; its last one is the result."""
    local: dict[str, str] = {"T": type_}
    for statement in template.split("; "):
        name, assigned, instruction = statement.strip().rstrip(";").partition(" = ")
        if not assigned or not name.isidentifier():
            name, instruction = "", statement.strip()
        target = f"{prefix}{len(lines)}"
        lines.append(f"{target} = {instruction.format(*args, **local)}")
        local[name or "result"] = target
    return local["result"]


def llvm_declarations(lines: list[str]) -> list[str]:
    """A `declare` (or definition) for each function that the instructions call."""
    out = {}
    for line in lines:
        m = re.search(r"call (\w+) @([\w.]+)\(([^)]*)\)", line)
        if m:
            types = ", ".join(a.split()[0] for a in m[3].split(","))
            out[m[2]] = LLVM_POW if m[2] == "pl_pow" else f"declare {m[1]} @{m[2]}({types})"
    return list(out.values())


HLO_TYPES = {int: "I", float: "F", bool: "B"}
HLO_TENSORS = {"I": "tensor<i64>", "F": "tensor<f64>", "B": "tensor<i1>"}


def stablehlo(e: Expr, names: Mapping[str, str], prefix: str = "%t") -> tuple[list[str], str]:
    """(operations, result) of the StableHLO dialect over scalar tensors; `names` maps symbols to values."""
    lines: list[str] = []
    value: list[str] = []
    for s in steps(e):
        kind = HLO_TYPES[s.kind]
        if s.op == "const":
            value.append(_statements(f"constant dense<{_hlo_const(s.value)}> @{kind}", [], kind, prefix, lines))  # type: ignore[arg-type]
        elif s.op == "sym":
            value.append(names[s.value.name])  # type: ignore[union-attr]
        else:
            value.append(_statements(TABLE[s.op].stablehlo, [value[a] for a in s.args], kind, prefix, lines))
    return [_hlo_line(line) for line in lines], value[-1]


def _hlo_const(v: Scalar) -> str:
    if isinstance(v, bool):
        return "true" if v else "false"
    return str(v) if isinstance(v, int) else f"0x{_float_bits(v):016X}"


def _hlo_line(line: str) -> str:
    """The dialect's prefix and the types that the table abbreviates."""
    target, _, rest = line.partition(" = ")
    rest, _, types = rest.rpartition(" @")
    if ">" in types:
        inputs, _, output = types.partition(">")
        shown = f"({', '.join(HLO_TENSORS[t] for t in inputs)}) -> {HLO_TENSORS[output]}"
    else:
        shown = ", ".join(HLO_TENSORS[t] for t in types.split(","))
    return f"{target} = stablehlo.{rest} : {shown}"


LLVM_POW = """define internal i64 @pl_pow(i64 %a, i64 %n) {
entry:
  br label %loop
loop:
  %k = phi i64 [ %n, %entry ], [ %k1, %body ]
  %r = phi i64 [ 1, %entry ], [ %r1, %body ]
  %more = icmp sgt i64 %k, 0
  br i1 %more, label %body, label %done
body:
  %r1 = mul i64 %r, %a
  %k1 = sub i64 %k, 1
  br label %loop
done:
  ret i64 %r
}"""
