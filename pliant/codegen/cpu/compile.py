"""From kernels to callable addresses: print, compile, link.

`compile_kernels` is the door, and `segment.compile_module` for whole programs. Functions that are compiled at once share a module, or a few
modules that are compiled side by side where there is much to do and more than one core; objects are kept on disk (`cache.py`).
"""

from __future__ import annotations

import ctypes
import functools
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pliant import events, turns
from pliant.codegen import cache
from pliant.codegen.cpu import linker, machine, runtime
from pliant.codegen.cpu.kernel import Body
from pliant.codegen.cpu.linker import Code
from pliant.codegen.cpu.llvm import llvm, versions
from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.parallel import ONCE, Driver, launcher
from pliant.codegen.cpu.schedule import plan
from pliant.codegen.cpu.split import FinishBody, PartialBody, SplitDriver
from pliant.lower.loops import Kernel

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


_lock = threading.Lock()  # of the parser and the linker
_emitting = threading.Lock()  # of the code generator, which takes long
FORK_S = 0.5
"""So long a fork waits for the code generator to be done."""
_machines: dict[Machine, list[Any]] = {}  # spare ones: what they have learned of their target saves half a millisecond
_kept: list[Code] = []


@dataclass(slots=True)
class Part:
    """The function `name` with those that only it calls, and a line for each other function that they call. `weight`: how long it takes."""

    name: str
    text: str
    declared: dict[str, str]
    weight: int


OF_A_KERNEL = 6000
"""What every kernel costs the code generator beyond its text, in characters of text."""


def kernel_part(kernel: Kernel, name: str, to: Machine, checked: bool = False) -> Part:
    """The functions of one kernel."""
    turns.rest()
    s = plan(kernel, to.vector_bits, to.masks)
    bodies = {"body": PartialBody, "finish": FinishBody} if s.split else {"body": Body}
    context = "box" if s.split else "ctx"
    texts = []
    declared: dict[str, str] = {}
    for part, kind in bodies.items():
        body = kind(s, to, checked)
        text = body.text()
        declared.update(body.b.declared)
        texts.append(f"define internal i32 @{name}.{part}(ptr %{context}, i64 %lo, i64 %hi, i64 %block) #0 {{\nentry:\n{text}\n}}\n")
    driver = SplitDriver(s, name) if s.split else Driver(s, name, s.blocked and not checked)
    texts.append(f"define i32 @{name}(ptr %ctx) {ONCE} {{\nentry:\n{driver.text()}\n}}\n")
    declared.update(driver.b.declared)
    return Part(name, "\n".join(texts), declared, OF_A_KERNEL + sum(map(len, texts)))


def module_of(parts: Iterable[Part]) -> str:
    """One module."""
    there = {p.name: p for p in parts}
    declared = {name: line for p in there.values() for name, line in p.declared.items() if name not in there}
    return "\n".join([*(p.text for p in there.values()), *declared.values(), ATTRIBUTES, ""])


def module_text(kernels: list[Kernel], to: Machine, checked: bool = False) -> str:
    """All kernels in one module: functions @k0, @k1 ..."""
    return module_of([kernel_part(k, f"k{i}", to, checked) for i, k in enumerate(kernels)])


def kernel_text(kernel: Kernel, *, checked: bool = False) -> str:
    """The LLVM IR of one kernel, to read."""
    return module_text([kernel], machine.current(), checked)


ALONE = 40_000
"""So much weight (about 20 ms of LLVM) is not worth a second module."""
MOST_MODULES = 4
"""Compiled side by side."""


def modules_of(parts: Sequence[Part]) -> list[str]:
    """Modules of about the same weight, as many as pay."""
    cores = len(os.sched_getaffinity(0))
    if turns.in_background():
        cores = max(cores - 1, 1)  # one is the program's
    count = min(cores, MOST_MODULES, sum(p.weight for p in parts) // ALONE + 1, len(parts))
    bins: list[list[Part]] = [[] for _ in range(count)]
    weights = [0] * count
    for p in sorted(parts, key=lambda p: -p.weight):
        at = weights.index(min(weights))
        bins[at].append(p)
        weights[at] += p.weight
    return [module_of(b) for b in bins]


@functools.cache
def unlocked_emit() -> Any:
    """LLVM's code generator without the lock that llvmlite puts around it: contexts and machines of their own work side by side."""
    locked = llvm.ffi.lib.LLVMPY_TargetMachineEmitToMemory
    emit = ctypes.CDLL("llvmlite", handle=llvm.ffi.lib._handle).LLVMPY_TargetMachineEmitToMemory
    emit.argtypes, emit.restype = locked.argtypes, locked.restype
    return emit


def generated(module: Any, machine: Any) -> bytes:
    """Object code of a module, by a machine, that nobody else touches meanwhile; callable from several threads at once."""
    error = ctypes.c_char_p()
    lib = llvm.ffi.lib
    memory = unlocked_emit()(machine, module, 1, ctypes.byref(error))
    if not memory:
        raise RuntimeError((error.value or b"LLVM gave no object").decode(errors="replace"))
    try:
        return ctypes.string_at(lib.LLVMPY_GetBufferStart(memory), lib.LLVMPY_GetBufferSize(memory))
    finally:
        lib.LLVMPY_DisposeMemoryBuffer(memory)


class Job(threading.Thread):
    """Generates the code of one module, beside others."""

    def __init__(self, module: Any, machine: Any) -> None:
        super().__init__(name="pliant-llvm")
        self.module, self.machine = module, machine
        self.code = b""
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.code = generated(self.module, self.machine)
        except BaseException as error:  # raised where it is waited for
            self.error = error

    def result(self) -> bytes:
        if self.error is not None:
            raise self.error
        return self.code


def spare_machine(to: Machine) -> Any:
    """A machine that nobody uses now."""
    try:
        return _machines[to].pop()
    except LookupError:
        return machine.llvm_machine(to)


def emit_objects(texts: Sequence[str], to: Machine) -> list[bytes]:
    """Object code of modules; LLVM's own errors pass through."""
    machine.prepare()
    contexts = [llvm.create_context() for _ in texts]
    modules: list[Any] = []
    jobs: list[Job] = []
    try:
        begun = time.perf_counter()
        for text, context in zip(texts, contexts, strict=True):
            with _lock:
                modules.append(llvm.parse_assembly(text, context))
        times.parse += time.perf_counter() - begun
        begun = time.perf_counter()
        jobs += [Job(module, spare_machine(to)) for module in modules]
        out = side_by_side(jobs)
        times.emit += time.perf_counter() - begun
        return out
    finally:
        if not any(job.is_alive() for job in jobs):  # one may be, where Ctrl-C came while it was waited for
            _machines.setdefault(to, []).extend(job.machine for job in jobs)
            for made in (*modules, *contexts):  # in this order, which a collector of cycles would not keep
                made.close()


def side_by_side(jobs: Sequence[Job]) -> list[bytes]:
    """Object code of modules, each with a context of its own."""
    with _emitting:
        # A third of the time of code generation, to find addresses that the printer has chosen well already. A switch of the whole
        # process, so it is put back for the sake of others who use the same LLVM.
        llvm.set_option("pliant", "--disable-lsr")
        try:
            for job in jobs[1:]:
                try:
                    job.start()
                except RuntimeError:  # no thread is to be had: too many, or the interpreter is ending
                    job.run()
            jobs[0].run()
            for job in jobs[1:]:
                if job.ident is not None:
                    job.join()
            return [job.result() for job in jobs]
        finally:
            llvm.set_option("pliant", "--disable-lsr=false")


class Fork:
    """The child of a fork has no thread that would give back what LLVM and llvmlite have locked, so a fork waits until nobody has."""

    held = False

    @classmethod
    def before(cls) -> None:
        cls.held = _emitting.acquire(timeout=FORK_S)
        _lock.acquire()

    @classmethod
    def in_parent(cls) -> None:
        _lock.release()
        if cls.held:
            _emitting.release()

    @classmethod
    def in_child(cls) -> None:
        global _emitting
        _lock.release()
        _emitting = threading.Lock()


turns.at_fork.append((Fork.before, Fork.in_parent, Fork.in_child))


def assembly(kernels: list[Kernel], *, checked: bool = False) -> str:
    """The machine code as text, to read."""
    to = machine.current()
    return machine.llvm_machine(to).emit_assembly(llvm.parse_assembly(module_text(kernels, to, checked)))


def link(codes: Iterable[bytes], names: Sequence[str], outside: Mapping[str, int]) -> Code:
    """`linker.link`, one at a time."""
    begun = time.perf_counter()
    with _lock:
        made = linker.link(codes, names, outside)
    times.link += time.perf_counter() - begun
    return made


@dataclass(frozen=True, slots=True)
class Objects:
    """Object code of the functions of a program, and of what starts threads for them. `bits`: of the vectors of our library routines."""

    bits: int
    codes: tuple[bytes, ...]


def objects(texts: Sequence[str], to: Machine, name: str | None = None) -> Objects:
    """Object code of modules, from the disk where it is there. `name` is another name of them all, for `remembered`."""
    texts = (*texts, launcher())
    keys = [cache.key(text, (to, versions())) for text in texts]
    found = {key: cache.read(key) for key in keys}
    times.from_disk += sum(found[key] is not None for key in keys[:-1])
    missing = {key: text for key, text in zip(keys, texts, strict=True) if found[key] is None}
    if missing:
        for key, code in zip(missing, emit_objects(list(missing.values()), to), strict=True):
            cache.write(key, code)
            found[key] = code
    bits = runtime.own_bits()
    if name is not None:
        cache.write(name, "\n".join([str(bits), *keys]).encode())
    return Objects(bits, tuple([code for key in keys if (code := found[key]) is not None]))


def remembered(name: str | None) -> Objects | None:
    """The objects that the disk knows by that other name; None if one is not there (any more)."""
    listed = cache.read(name) if name is not None else None
    if listed is None:
        return None
    bits, *keys = listed.decode().split()
    codes = []
    for key in keys:
        code = cache.read(key)
        if code is None:
            return None
        codes.append(code)
    times.from_disk += len(codes) - 1
    return Objects(int(bits), tuple(codes))


def tell(kernels: list[Kernel], checked: bool = False) -> None:
    """Log what is about to be compiled."""
    if events.watched("kernel"):
        for k in kernels:
            events.emit("kernel", kernel=k, checked=checked)


def load(kernels: list[Kernel], *, checked: bool = False) -> Code:
    """Compile kernels, or take their object from the disk. The code lives as long as the result.

    `checked`: every access is compared with the bounds that `ctx` then gives after the sizes, (first, last) valid element for each buffer.
    """
    to = machine.current()
    tell(kernels, checked)
    begun = time.perf_counter()
    texts = modules_of([kernel_part(k, f"k{i}", to, checked) for i, k in enumerate(kernels)])
    times.text += time.perf_counter() - begun
    times.kernels += len(kernels)
    return link(objects(texts, to).codes, [f"k{i}" for i in range(len(kernels))], runtime.addresses())


def compile_kernels(kernels: list[Kernel], *, checked: bool = False) -> list[int]:
    """Addresses of `int32 kernel(int64 *ctx)` for each kernel (the layout of `ctx` is in `lower/loops.py`), good until the process ends."""
    code = load(kernels, checked=checked)
    _kept.append(code)
    return code.addresses
