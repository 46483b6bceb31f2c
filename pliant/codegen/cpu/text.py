"""A builder of LLVM IR text with explicit vectors.

A `Value` is an SSA name (or a constant) with its scalar type and number of lanes; lanes 1 is a plain scalar. Operands with one lane are
splatted where the other has more. The builder folds nothing and hoists nothing: whoever calls it decides where code goes.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

SUFFIX = {"float": "f32", "double": "f64", "half": "f16"}
BITS = {"float": 32, "double": 64, "half": 16, "i1": 1, "i8": 8, "i16": 16, "i32": 32, "i64": 64}


class Value(NamedTuple):
    """An SSA name or a constant (`ref`), its scalar LLVM type and its lanes."""

    ref: str
    ty: str
    lanes: int = 1

    @property
    def type(self) -> str:
        return self.ty if self.lanes == 1 else f"<{self.lanes} x {self.ty}>"

    @property
    def constant(self) -> bool:
        return self.ref[0] != "%"

    @property
    def floating(self) -> bool:
        return self.ty in ("float", "double")


def literal(value: float | int | bool, ty: str) -> str:
    """A constant as LLVM writes it; floats by their bits, so that nothing is lost."""
    if ty == "i1":
        return "true" if value else "false"
    if ty == "float":
        try:
            value = struct.unpack("f", struct.pack("f", value))[0]
        except OverflowError:  # beyond the largest float: infinity, as a conversion gives
            value = float("inf") if value > 0 else float("-inf")
    if ty in ("float", "double"):
        return f"0x{struct.unpack('Q', struct.pack('d', value))[0]:016X}"
    return str(int(value))


def const(value: float | int | bool, ty: str) -> Value:
    return Value(literal(value, ty), ty)


def vector_type(ty: str, lanes: int) -> str:
    return ty if lanes == 1 else f"<{lanes} x {ty}>"


class Text:
    """One function's instructions, and the declarations that they need."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.count = 0
        self.block = "entry"

    # -- lines --

    def fresh(self, hint: str = "v") -> str:
        self.count += 1
        return f"{hint}{self.count}"

    def line(self, text: str) -> None:
        self.lines.append("  " + text)

    def op(self, text: str, ty: str, lanes: int = 1) -> Value:
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {text}")
        return Value(name, ty, lanes)

    def label(self, name: str) -> None:
        self.lines.append(f"{name}:")
        self.block = name

    def jump(self, label: str) -> None:
        self.line(f"br label %{label}")

    def enter(self, label: str) -> None:
        """Fall through into a new block."""
        self.jump(label)
        self.label(label)

    def branch(self, cond: Value, yes: str, no: str) -> None:
        self.line(f"br i1 {cond.ref}, label %{yes}, label %{no}")

    # -- values --

    def splat(self, v: Value, lanes: int) -> Value:
        if v.lanes == lanes:
            return v
        assert v.lanes == 1, (v, lanes)
        if v.constant:
            return Value(f"splat ({v.ty} {v.ref})", v.ty, lanes)
        ty = f"<{lanes} x {v.ty}>"
        one = self.op(f"insertelement {ty} poison, {v.ty} {v.ref}, i32 0", v.ty, lanes)
        return self.op(f"shufflevector {ty} {one.ref}, {ty} poison, <{lanes} x i32> zeroinitializer", v.ty, lanes)

    def same(self, *values: Value) -> list[Value]:
        lanes = max(v.lanes for v in values)
        return [self.splat(v, lanes) for v in values]

    def binary(self, opcode: str, a: Value, b: Value) -> Value:
        if a.lanes != b.lanes:
            a, b = self.same(a, b)
        return self.op(f"{opcode} {a.type} {a.ref}, {b.ref}", a.ty, a.lanes)

    def add(self, a: Value, b: Value) -> Value:
        return self.binary("fadd" if a.floating else "add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        return self.binary("fsub" if a.floating else "sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        return self.binary("fmul" if a.floating else "mul", a, b)

    def times(self, a: Value, b: Value) -> Value:
        """An integer product, folded where a factor is 0 or 1: sizes and strides."""
        if a.ref == "0" or b.ref == "1":
            return a
        if b.ref == "0" or a.ref == "1":
            return b
        if a.constant and b.constant and a.lanes == b.lanes == 1:
            return Value(str(int(a.ref) * int(b.ref)), a.ty)
        return self.binary("mul", a, b)

    def plus(self, a: Value, b: Value) -> Value:
        if a.ref == "0":
            return b
        if b.ref == "0":
            return a
        if a.constant and b.constant and a.lanes == b.lanes == 1:
            return Value(str(int(a.ref) + int(b.ref)), a.ty)
        return self.binary("add", a, b)

    def compare(self, predicate: str, a: Value, b: Value) -> Value:
        """`predicate` as LLVM names it: olt, une ... for floats, slt, ult, eq ... for integers."""
        a, b = self.same(a, b)
        return self.op(f"{'fcmp' if a.floating else 'icmp'} {predicate} {a.type} {a.ref}, {b.ref}", "i1", a.lanes)

    def select(self, cond: Value, a: Value, b: Value) -> Value:
        if a.lanes != b.lanes or cond.lanes > a.lanes:
            cond_lanes = cond.lanes
            a, b = (self.splat(v, max(a.lanes, b.lanes, cond_lanes)) for v in (a, b))
        return self.op(f"select {cond.type} {cond.ref}, {a.type} {a.ref}, {b.type} {b.ref}", a.ty, a.lanes)

    def convert(self, opcode: str, v: Value, ty: str) -> Value:
        """`opcode`: sext, zext, trunc, sitofp, uitofp, fptosi, fptoui, fpext, fptrunc, bitcast."""
        return self.op(f"{opcode} {v.type} {v.ref} to {vector_type(ty, v.lanes)}", ty, v.lanes)

    def bitcast(self, v: Value, ty: str) -> Value:
        return v if v.ty == ty else self.convert("bitcast", v, ty)

    def neg(self, v: Value) -> Value:
        if v.floating:
            return self.op(f"fneg {v.type} {v.ref}", v.ty, v.lanes)
        return self.sub(self.splat(const(0, v.ty), v.lanes), v)

    def invert(self, v: Value) -> Value:
        return self.binary("xor", v, const(True if v.ty == "i1" else -1, v.ty))

    def extract(self, v: Value, lane: int) -> Value:
        return v if v.lanes == 1 else self.op(f"extractelement {v.type} {v.ref}, i32 {lane}", v.ty)

    def insert(self, into: Value, v: Value, lane: int) -> Value:
        return self.op(f"insertelement {into.type} {into.ref}, {v.type} {v.ref}, i32 {lane}", into.ty, into.lanes)

    def shuffle(self, a: Value, b: Value | None, lanes: Sequence[int]) -> Value:
        other = b.ref if b is not None else "poison"
        picks = ", ".join(f"i32 {i}" for i in lanes)
        return self.op(f"shufflevector {a.type} {a.ref}, {a.type} {other}, <{len(lanes)} x i32> <{picks}>", a.ty, len(lanes))

    def iota(self, lanes: int, ty: str) -> Value:
        if lanes == 1:
            return const(0, ty)
        return Value("<" + ", ".join(f"{ty} {i}" for i in range(lanes)) + ">", ty, lanes)

    # -- calls --

    def call(self, name: str, ty: str, lanes: int, args: Sequence[str | Value], attributes: str = "", flags: str = "") -> Value:
        """`args`: values, or texts such as "i1 true"; attributes go on the declaration."""
        text = self.call_text(name, vector_type(ty, lanes), args, attributes, flags)
        return self.op(text, ty, lanes)

    def call_text(self, name: str, result: str, args: Sequence[str | Value], attributes: str = "", flags: str = "") -> str:
        written = [a if isinstance(a, str) else f"{a.type} {a.ref}" for a in args]
        if name not in self.declared:
            kinds = ", ".join(argument_type(a) if isinstance(a, str) else a.type for a in args)
            self.declared[name] = f"declare {result} @{name}({kinds}){' ' + attributes if attributes else ''}"
        return f"call {flags + ' ' if flags else ''}{result} @{name}({', '.join(written)})"

    def intrinsic(self, name: str, *args: Value, flags: str = "") -> Value:
        """An overloaded intrinsic whose operands and result are of one type: sqrt, fma, floor, maximum, abs (with its flag) ..."""
        values = self.same(*args)
        v = values[0]
        suffix = ("" if v.lanes == 1 else f"v{v.lanes}") + SUFFIX.get(v.ty, v.ty)
        return self.call(f"llvm.{name}.{suffix}", v.ty, v.lanes, values, flags=flags)

    def fma(self, a: Value, b: Value, c: Value) -> Value:
        return self.intrinsic("fma", a, b, c)

    def reduce_bits(self, name: str, v: Value) -> Value:
        """Whether any ("or") or every ("and") lane of an i1 vector is set."""
        if v.lanes == 1:
            return v
        return self.call(f"llvm.vector.reduce.{name}.v{v.lanes}i1", "i1", 1, [v])

    # -- loops --

    def loop(
        self,
        start: Value,
        stop: Value,
        step: Value | int,
        carried: Sequence[Value],
        body: Callable[[Value, list[Value]], Sequence[Value]],
        hint: str = "loop",
    ) -> list[Value]:
        """`for i in range(start, stop, step)` with i64 counters; `body(i, carried)` returns the next carried values.

        Returns the values carried out. The comparison is signed; `stop` below `start` runs nothing.
        """
        head, inside, out = self.fresh(hint + ".h"), self.fresh(hint + ".b"), self.fresh(hint + ".x")
        before = self.block
        self.enter(head)
        counter = Value("%" + self.fresh("i"), "i64")
        phis = [Value("%" + self.fresh("a"), c.ty, c.lanes) for c in carried]
        at = len(self.lines)
        self.lines.append("")
        self.branch(self.compare("slt", counter, stop), inside, out)
        self.label(inside)
        after = body(counter, list(phis))
        by = const(step, "i64") if isinstance(step, int) else step
        following = self.op(f"add nsw i64 {counter.ref}, {by.ref}", "i64")
        end = self.block
        self.jump(head)
        rows = [f"  {counter.ref} = phi i64 [ {start.ref}, %{before} ], [ {following.ref}, %{end} ]"]
        for phi, first, last in zip(phis, carried, after):
            rows.append(f"  {phi.ref} = phi {phi.type} [ {first.ref}, %{before} ], [ {last.ref}, %{end} ]")
        self.lines[at] = "\n".join(rows)
        self.label(out)
        return phis

    def once(
        self, start: Value, stop: Value, carried: Sequence[Value], body: Callable[[Value, list[Value]], Sequence[Value]]
    ) -> list[Value]:
        """`loop` where there is at most one iteration."""
        return self.when(self.compare("slt", start, stop), lambda: body(start, list(carried)), carried)

    def either(self, cond: Value, one: Callable[[], Sequence[Value]], two: Callable[[], Sequence[Value]]) -> list[Value]:
        """Run one of two; the values of the one that ran."""
        yes, no, out = self.fresh("yes"), self.fresh("no"), self.fresh("end")
        self.branch(cond, yes, no)
        self.label(yes)
        first, first_end = one(), self.block
        self.jump(out)
        self.label(no)
        second, second_end = two(), self.block
        self.jump(out)
        self.label(out)
        rows = zip(first, second)
        return [self.op(f"phi {a.type} [ {a.ref}, %{first_end} ], [ {c.ref}, %{second_end} ]", a.ty, a.lanes) for a, c in rows]

    def when(self, cond: Value, body: Callable[[], Sequence[Value]], otherwise: Sequence[Value] = ()) -> list[Value]:
        """Run `body` only if `cond`; its values, or `otherwise`."""
        yes, out = self.fresh("when.y"), self.fresh("when.x")
        before = self.block
        self.branch(cond, yes, out)
        self.label(yes)
        values = body()
        end = self.block
        self.jump(out)
        self.label(out)
        return [self.op(f"phi {a.type} [ {a.ref}, %{end} ], [ {b.ref}, %{before} ]", a.ty, a.lanes) for a, b in zip(values, otherwise)]


def argument_type(written: str) -> str:
    """The type in "ptr align 4 %p", "<16 x i1> splat (i1 true)", "i32 immarg 4"."""
    kind = written[: written.index(">") + 1] if written.startswith("<") else written.split(" ")[0]
    return kind
