"""From kernels to callable addresses: print, compile, link.

`compile_kernels` is the door. Several kernels go into one module and are compiled at once; objects are kept on disk (`cache.py`).
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import llvmlite
import llvmlite.binding as llvm

from pliant import events
from pliant.codegen.cpu import cache, runtime, target
from pliant.codegen.cpu.kernel import Body
from pliant.codegen.cpu.parallel import LAUNCH, Driver, launcher
from pliant.codegen.cpu.split import FinishBody, PartialBody, SplitDriver
from pliant.codegen.cpu.target import Target
from pliant.lower.loops import Kernel
from pliant.lower.schedule import plan

ATTRIBUTES = 'attributes #0 = { nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512" }'


@dataclass(slots=True)
class Times:
    """Seconds spent, in all: printing, in LLVM's parser, in its code generator, linking; kernels, and modules found on disk."""

    text: float = 0.0
    parse: float = 0.0
    emit: float = 0.0
    link: float = 0.0
    kernels: int = 0
    from_disk: int = 0

    def total(self) -> float:
        return self.text + self.parse + self.emit + self.link


times = Times()


@dataclass(slots=True)
class Code:
    """Machine code in memory. Dropping it unloads the code: whoever holds addresses holds this too."""

    addresses: list[int]
    tracker: object = field(repr=False)


_lock = threading.Lock()
_linkers: dict[Target, object] = {}
_kept: list[Code] = []
_names = itertools.count()


def definitions(kernel: Kernel, name: str, to: Target, checked: bool, declared: dict[str, str]) -> str:
    """The functions of one kernel; what they call is added to `declared`."""
    s = plan(kernel, to.vector_bits, to.masks)
    bodies = {"body": PartialBody, "finish": FinishBody} if s.split else {"body": Body}
    context = "box" if s.split else "ctx"
    parts = []
    for part, kind in bodies.items():
        body = kind(s, to, checked)
        text = body.text()
        declared.update(body.b.declared)
        parts.append(f"define internal i32 @{name}.{part}(ptr %{context}, i64 %lo, i64 %hi, i64 %block) #0 {{\nentry:\n{text}\n}}\n")
    driver = SplitDriver(s, name) if s.split else Driver(s, name, s.blocked and not checked)
    parts.append(f"define i32 @{name}(ptr %ctx) #0 {{\nentry:\n{driver.text()}\n}}\n")
    declared.update(driver.b.declared)
    return "\n".join(parts)


def module_text(kernels: list[Kernel], to: Target, checked: bool = False) -> str:
    """All kernels in one module: functions @k0, @k1 ..."""
    declared: dict[str, str] = {}
    parts = [definitions(k, f"k{i}", to, checked, declared) for i, k in enumerate(kernels)]
    return "\n".join([*parts, *declared.values(), ATTRIBUTES, ""])


def kernel_text(kernel: Kernel, *, checked: bool = False) -> str:
    """The LLVM IR of one kernel, to read."""
    return module_text([kernel], target.current(), checked)


def emit_object(text: str, to: Target) -> bytes:
    """Object code of a module; LLVM's own errors pass through."""
    target.prepare()
    begun = time.perf_counter()
    module = llvm.parse_assembly(text)
    times.parse += time.perf_counter() - begun
    begun = time.perf_counter()
    with _lock:
        # A third of the time of code generation, to find addresses that the printer has chosen well already. A switch of the whole
        # process, so it is put back for the sake of others who use the same LLVM.
        llvm.set_option("pliant", "--disable-lsr")
        try:
            out = target.machine(to).emit_object(module)
        finally:
            llvm.set_option("pliant", "--disable-lsr=false")
    times.emit += time.perf_counter() - begun
    return out


def assembly(kernels: list[Kernel], *, checked: bool = False) -> str:
    """The machine code as text, to read."""
    to = target.current()
    return target.machine(to).emit_assembly(llvm.parse_assembly(module_text(kernels, to, checked)))


def link(code: bytes, names: list[str], to: Target, outside: Mapping[str, int]) -> Code:
    """Put object code into memory; `outside` gives addresses of what it calls beyond the C library."""
    begun = time.perf_counter()
    with _lock:
        linker = _linkers.get(to)
        if linker is None:
            linker = _linkers[to] = llvm.create_lljit_compiler(target.machine(to), use_jit_link=True, suppress_errors=False)
        builder = llvm.JITLibraryBuilder().add_object_img(code).add_current_process()
        for name in names:
            builder = builder.export_symbol(name)
        for name, address in outside.items():
            builder = builder.import_symbol(name, address)
        tracker = builder.link(linker, f"pliant{next(_names)}")
        made = Code([tracker[name] for name in names], tracker)
    times.link += time.perf_counter() - begun
    return made


def build(text: str, names: list[str], to: Target, outside: Mapping[str, int]) -> Code:
    """The functions `names` of a module, its object from the disk if it is there."""
    key = cache.key(text, to, (llvmlite.__version__, llvm.llvm_version_info))
    code = cache.read(key)
    if code is None:
        code = emit_object(text, to)
        cache.write(key, code)
    else:
        times.from_disk += 1
    return link(code, names, to, outside)


@functools.cache
def outside(to: Target) -> dict[str, int]:
    """What kernels call: the function that starts threads, built once."""
    code = build(launcher(), [LAUNCH], to, runtime.addresses())
    _kept.append(code)
    return {LAUNCH: code.addresses[0]}


def tell(kernels: list[Kernel], checked: bool = False) -> None:
    """Log what is about to be compiled."""
    if events.watched():
        for k in kernels:
            events.emit("kernel", kernel=k, checked=checked)


def load(kernels: list[Kernel], *, checked: bool = False) -> Code:
    """Compile kernels, or take their object from the disk. The code lives as long as the result.

    `checked`: every access is compared with the bounds that `ctx` then gives after the sizes, (first, last) valid element for each buffer.
    """
    to = target.current()
    tell(kernels, checked)
    begun = time.perf_counter()
    text = module_text(kernels, to, checked)
    times.text += time.perf_counter() - begun
    times.kernels += len(kernels)
    return build(text, [f"k{i}" for i in range(len(kernels))], to, outside(to))


def compile_kernels(kernels: list[Kernel], *, checked: bool = False) -> list[int]:
    """Addresses of `int32 kernel(int64 *ctx)` for each kernel (the layout of `ctx` is in `lower/loops.py`), good until the process ends."""
    code = load(kernels, checked=checked)
    _kept.append(code)
    return code.addresses
