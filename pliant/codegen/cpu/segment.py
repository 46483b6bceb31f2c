"""The native function of a segment: `int32 segment(int64 *ctx)`, with `ctx` the addresses of its outer tensors, then its leaves.

It computes all sizes from the leaves, takes a block of the arena that holds what only the segment reads, and calls kernels and matrix
products one after the other, each with arguments in one box on the stack. It returns what the first step that failed returned.

Under `PLIANT_POISON=1`, for debugging, memory is filled with NaNs before its first use and after its last.
"""

from __future__ import annotations

import functools
import os
import re
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass

from pliant import native, turns
from pliant.codegen import linked
from pliant.codegen.cpu import compile as kernels
from pliant.codegen.cpu import identity, machine, runtime
from pliant.codegen.cpu.parallel import ONCE, THREADS
from pliant.lower.attention import Attention
from pliant.lower.conv import Convolution
from pliant.lower.gemm import Gemm
from pliant.lower.int8 import DynamicLinear, FloatProduct, Int8Product
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import Size
from pliant.lower.loops import Kernel
from pliant.lower.program import NativeStep
from pliant.lower.segments import Segment, is_native
from pliant.symbolic.straight_line import llvm_all, llvm_declarations

TAKE, GIVE, POISON = "pliant_take", "pliant_give", "pliant_poison"
LIBRARY: dict[type, str] = {
    Gemm: "pliant_gemm", Attention: "pliant_attention", Convolution: "pliant_convolution", Int8Product: "pliant_int8_product",
    DynamicLinear: "pliant_dynamic_linear", FloatProduct: "pliant_float_product",
}  # fmt: skip
"""Steps that are calls, and what they call."""
DECLARED = {
    TAKE: f"declare ptr @{TAKE}(i64)",
    GIVE: f"declare void @{GIVE}(ptr, i64)",
    POISON: f"declare void @{POISON}(ptr, i64)",
    **{name: f"declare i32 @{name}(ptr)" for name in LIBRARY.values()},
    THREADS: f"declare i32 @{THREADS}()",
    "llvm.smax.i64": "declare i64 @llvm.smax.i64(i64, i64)",
}

poison = os.environ.get("PLIANT_POISON", "0") not in ("", "0")


class Printer:
    """Prints one segment. `symbol` gives the function of a kernel."""

    def __init__(self, segment: Segment, name: str, symbol: Callable[[Launch], str]) -> None:
        self.s = segment
        self.name = name
        self.symbol = symbol
        self.lines: list[str] = []
        self.declared: dict[str, str] = {}
        self.serial = 0
        self.values: dict[Size, str] = {}
        self.addresses: dict[int, str] = {}  # vid -> i64

    def op(self, text: str) -> str:
        name = f"%v{self.serial}"
        self.serial += 1
        self.lines.append(f"  {name} = {text}")
        return name

    def line(self, text: str) -> None:
        self.lines.append(f"  {text}")

    def call(self, function: str, type_: str, arguments: str) -> str:
        self.declared[function] = DECLARED[function]
        text = f"call {type_} @{function}({arguments})"
        if type_ == "void":
            self.line(text)
            return ""
        return self.op(text)

    def size(self, size: Size) -> str:
        return str(size) if type(size) is int else self.values[size]

    def text(self) -> str:
        """The definition; `declared` holds what it calls."""
        s = self.s
        longest = max(len(step.buffers) + len(step.sizes) + 2 * (type(step) is not Launch) for step in s.steps)
        self.line(f"%box = alloca [{longest} x i64], align 16")
        self.fields = [self.op(f"getelementptr i64, ptr %box, i64 {k}") for k in range(longest)]
        self.read_arguments()
        if s.inner:
            self.take()
        for operand, result in reversed(s.shared.items()):  # a result may be written over in its turn
            self.addresses[operand] = self.addresses[result]
        failures = []
        if any(type(step) is not Launch for step in s.steps):
            self.call(THREADS, "i32", "")  # a thread learns of the number of threads by asking
        for i, step in enumerate(s.steps):
            self.fill(step)
            if isinstance(step, Launch):
                rc = self.op(f"call i32 @{self.symbol(step)}(ptr %box)")
            else:
                rc = self.call(LIBRARY[type(step)], "i32", "ptr %box")
            bad = self.op(f"icmp ne i32 {rc}, 0")
            failures.append(f"[ {rc}, %step{i} ]")
            self.line(f"br i1 {bad}, label %end, label %step{i + 1}")
            self.lines.append(f"step{i + 1}:")
            if poison:
                self.poison_dead(i)
        self.line("br label %end")
        self.lines.append("end:")
        self.line(f"%rc = phi i32 {', '.join(failures)}, [ 0, %step{len(s.steps)} ]")
        if s.inner:
            self.call(GIVE, "void", "ptr %arena, i64 %total")
        self.line("ret i32 %rc")
        body = "\n".join(self.lines)
        # Quick code generation takes an eighth of the time here, and its stores of arguments and calls are as fast.
        return f"define i32 @{self.name}(ptr %ctx) {ONCE} {{\nentry:\n{body}\n}}\n"

    def read_arguments(self) -> None:
        """Addresses, leaves, and all sizes."""
        s = self.s
        loaded = []
        for k in range(len(s.outer) + len(s.leaves)):
            at = self.op(f"getelementptr i64, ptr %ctx, i64 {k}")
            loaded.append(self.op(f"load i64, ptr {at}"))
        self.addresses.update({t.vid: v for t, v in zip(s.outer, loaded, strict=False)})
        names = {}
        for leaf, v in zip(s.leaves, loaded[len(s.outer) :], strict=True):
            self.values[leaf] = v
            if leaf.op == "sym":
                names[leaf.name] = self.op(f"icmp ne i64 {v}, 0") if leaf.kind is bool else v
        computed = [e for e in s.expressions() if e not in self.values and is_native(e)]
        lines, values = llvm_all(computed, names)
        for text in llvm_declarations(lines):
            self.declared[re.search(r"@([\w.]+)\(", text)[1]] = text  # type: ignore[index]
        self.lines += [f"  {line}" for line in lines]
        self.values.update(values)
        if not s.inner:
            self.line("br label %step0")
            self.lines.append("step0:")

    def at_most(self, sizes: list[Size]) -> str:
        """The largest of some sizes, and at least 0."""
        most = "0"
        for size in sizes:
            most = self.call("llvm.smax.i64", "i64", f"i64 {most}, i64 {self.size(size)}")
        return most

    def take(self) -> None:
        """Memory for the slots, and the addresses of what is in them."""
        s = self.s
        offsets, total = [], "0"
        for slot in s.plan.slots:
            offsets.append(total)
            up = self.op(f"add i64 {self.at_most(slot.sizes)}, {native.ALIGNMENT - 1}")
            total = self.op(f"add i64 {total}, {self.op(f'and i64 {up}, {-native.ALIGNMENT}')}")
        self.line(f"%total = add i64 {total}, 0")
        self.declared[TAKE] = DECLARED[TAKE]
        self.line(f"%arena = call ptr @{TAKE}(i64 %total)")
        missing = self.op("icmp eq ptr %arena, null")
        self.line(f"br i1 {missing}, label %missing, label %step0")
        self.lines.append("missing:")
        self.line(f"ret i32 {native.OUT_OF_MEMORY}")
        self.lines.append("step0:")
        base = self.op("ptrtoint ptr %arena to i64")
        places = [self.op(f"add i64 {base}, {offset}") for offset in offsets]
        for t, k, at in zip(s.inner, s.plan.place, s.plan.within, strict=True):
            place = places[k] if k >= 0 else self.addresses[s.given[-1 - k].vid]
            self.addresses[t.vid] = place if type(at) is int and at == 0 else self.op(f"add i64 {place}, {self.size(at)}")
        if poison:
            self.call(POISON, "void", "ptr %arena, i64 %total")

    def fill(self, step: NativeStep) -> None:
        """The arguments of a step, into the box."""
        values = [self.addresses[t.vid] for t in step.buffers]
        sizes = [self.size(size) for size in step.sizes]
        if isinstance(step, Gemm):
            *sizes, offset_a, offset_b, offset_bias = sizes
            shift = 2 if step.out.dtype.itemsize == 4 else 1
            values = [self.moved(values[0], offset_a, shift), self.moved(values[1], offset_b, shift), *values[2:]]
            sizes.append(str(step.flags))
            sizes += [self.moved(v, offset_bias, shift) for v in values[3:]]
            values = values[:3]
        elif isinstance(step, Attention):
            *sizes, oq, ok, ov, om, masks = sizes
            places = [self.addresses[t.vid] for t in step.operands]
            values = [self.moved(at, offset) for at, offset in zip(places, (oq, ok, ov, om), strict=True)]
            values = [*values[:3], values[3] if masks == "1" else "0", self.addresses[step.out.vid]]
        elif isinstance(step, Convolution):
            n = len(step.operands)
            sizes, offsets = sizes[:-n], sizes[-n:]
            values = [self.moved(self.addresses[t.vid], offset) for t, offset in zip(step.operands, offsets, strict=True)]
            values = [*values, *["0"] * (3 - n), self.addresses[step.out.vid]]
        elif isinstance(step, Int8Product | DynamicLinear):
            n = len(step.operands)
            sizes, offsets = sizes[:-n], sizes[-n:]
            shifts = [t.dtype.itemsize.bit_length() - 1 for t in step.operands]
            values = [self.moved(self.addresses[t.vid], *by) for t, *by in zip(step.operands, offsets, shifts, strict=True)]
            values = [*values, *["0"] * (5 - n if type(step) is DynamicLinear else 0), self.addresses[step.out.vid]]
        for k, v in enumerate((*values, *sizes)):
            self.line(f"store i64 {v}, ptr {self.fields[k]}")

    def moved(self, address: str, elements: str, shift: int = 2) -> str:
        if elements == "0":
            return address
        return self.op(f"add i64 {address}, {self.op(f'shl i64 {elements}, {shift}')}")

    def poison_dead(self, step: int) -> None:
        for t, interval in zip(self.s.inner, self.s.intervals, strict=True):
            if interval.last == step:
                at = self.op(f"inttoptr i64 {self.addresses[t.vid]} to ptr")
                self.call(POISON, "void", f"ptr {at}, i64 {self.at_most([interval.size])}")


@functools.cache
def functions(bits: int) -> dict[str, int]:
    """Addresses of what segments and kernels call. `bits`: of the vectors of the library routines (`runtime.own_bits`)."""
    take, give, fill = native.arena_functions()
    routines = runtime.products()
    runtime.share_pool()
    gemm = native.gemm_function(*routines, bits if bits and native.own_products()[1] else 0) if routines is not None else 0
    calls = (gemm, native.attention_function(bits), native.convolution_function(), *native.int8_functions(bits, True))
    library = dict(zip(LIBRARY.values(), calls, strict=True))
    return {TAKE: take, GIVE: give, POISON: fill, **library, **runtime.addresses()}


Identity = tuple[Hashable, tuple[Hashable, ...]]
"""What `identity.of_segment` gives: equal ones are equal code."""


def identity_of(segment: Segment) -> Identity:
    """What the code of a segment depends on, and the keys of the kernels that it calls."""
    return identity.of_segment(segment, poison)


def part_of(segment: Segment, name: str, symbols: Mapping[Hashable, str]) -> kernels.Part:
    """The function of a segment; `symbols`: key of a kernel -> its function."""
    printer = Printer(segment, name, lambda launch: symbols[launch.key])
    text = printer.text()
    called = {symbols[launch.key] for launch in segment.launches}
    declared = printer.declared | {function: f"declare i32 @{function}(ptr)" for function in sorted(called)}
    return kernels.Part(name, text, declared, len(text) // 3)


@dataclass(slots=True)
class Compiled:
    """Addresses of kernels and of segments, in the order they were given."""

    kernels: list[int]
    segments: list[int]


def compile_module(
    new: Mapping[Hashable, Kernel], segments: Mapping[Identity, Segment], symbols: Mapping[Hashable, str], known: dict[str, int]
) -> Compiled:
    """Compile kernels, by their keys (they become `k0`, `k1`, ...), and segments, or take them from the disk.

    `symbols`: key of a kernel -> the function that segments call: one of those, or one compiled before, whose address is in `known`.
    """
    to = machine.current()
    kernels.tell(list(new.values()))
    kernels.times.kernels += len(new)
    begun = time.perf_counter()
    shapes = [(shape, *(symbols[key] for key in called)) for shape, called in segments]
    name = identity.module(new.values(), new, shapes, to, kernels.versions())
    found, texts = kernels.remembered(name), []
    if found is None:
        parts = [kernels.kernel_part(kernel, f"k{i}", to) for i, kernel in enumerate(new.values())]
        for i, segment in enumerate(segments.values()):
            parts.append(part_of(segment, f"s{i}", symbols))
            turns.rest()
        texts = kernels.modules_of(parts)
        kernels.times.text += time.perf_counter() - begun
    else:
        kernels.times.text += time.perf_counter() - begun
    names = [f"k{i}" for i in range(len(new))] + [f"s{i}" for i in range(len(segments))]
    with turns.outside():
        found = found or kernels.objects(texts, to, name)
        code = kernels.link(found.codes, names, functions(found.bits) | known)
    kernels._kept.append(code)
    linked.remember(name, names, code.addresses, known)
    return Compiled(code.addresses[: len(new)], code.addresses[len(new) :])


def link_again(name: str, names: list[str], known: dict[str, int]) -> dict[str, int] | None:
    """The functions of a module that another process compiled, by name; None if the disk does not know it (any more)."""
    found = kernels.remembered(name)
    if found is None:
        return None
    code = kernels.link(found.codes, names, functions(found.bits) | known)
    kernels._kept.append(code)
    linked.remember(name, names, code.addresses, known)
    return dict(zip(names, code.addresses, strict=True))
