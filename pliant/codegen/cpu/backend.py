"""The CPU as a target: kernels and segments are LLVM IR, compiled for this machine (`machine code` in the caches on disk).

Code is shared by all programs of the process: kernels by their key, segments by what `identity` says of them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch

from pliant import native
from pliant.codegen.cpu import debug, identity, machine, profitability, runtime, segment
from pliant.codegen.cpu.compile import assembly, kernel_text
from pliant.codegen.cpu.llvm import library_version
from pliant.codegen.cpu.segment import compile_module, identity_of
from pliant.lower.conv import Convolution
from pliant.lower.gemm import Gemm
from pliant.lower.int8 import DynamicLinear, Int8Product
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import LoopNest
from pliant.lower.loops import DTYPES, Kernel
from pliant.lower.program import NativeStep, SegmentCall


class CPU:
    """The processor of this machine. `launchers` and `addresses` are by the identity of the code."""

    name = "cpu"

    def __init__(self) -> None:
        self.launchers: dict[Hashable, native.Launcher] = {}
        self.addresses: dict[Hashable, int] = {}

    def supports(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def prints(self, nest: LoopNest, devices: set[torch.device]) -> bool:
        return True

    def worth_a_kernel(self, op: Any) -> bool:
        return profitability.worth_a_kernel(op)

    def worth_a_call(self, step: NativeStep) -> bool:
        return isinstance(step, Int8Product | DynamicLinear) or isinstance(step, Gemm | Convolution) and runtime.own_products()

    def has_segments(self) -> bool:
        return debug.folder() is None  # a dump is of kernels that are called one by one

    def product_dtypes(self) -> frozenset[torch.dtype]:
        return runtime.product_dtypes()

    def has_attention(self) -> bool:
        return runtime.own_bits() > 0

    def has_convolutions(self) -> bool:
        return runtime.own_convolutions()

    def has_int8(self) -> bool:
        return runtime.own_bits() > 0

    def lstm_kernels(self) -> tuple[native.Launcher, native.Launcher] | None:
        return runtime.lstm_kernels() if runtime.own_products() else None

    def fingerprint(self) -> tuple:
        return self.name, library_version(), machine.processor(), native.own_products(), segment.poison

    def link(self, name: str, names: list[str], known: dict[str, int]) -> dict[str, int] | None:
        return segment.link_again(name, names, known)

    def listing(self, kernel: Kernel, kind: str) -> str:
        if kind == "schedule":
            return debug.schedule_text(kernel)
        return kernel_text(kernel) if kind == "llvm" else assembly([kernel])

    def keeps_code(self) -> bool:
        return not identity.extended() and debug.folder() is None

    def launcher(self, launch: Launch) -> Callable[..., None]:
        run, into = self.launchers[launch.key], debug.folder()
        return run if into is None else debug.dumping(run, launch, into)

    def compile(self, launches: list[Launch], segments: list[SegmentCall]) -> None:
        """What was not compiled before in this process, all of it in one module. (Two threads may make the same at once.)"""
        if not launches and not segments:
            return
        every = [*launches, *(launch for call in segments for launch in call.segment.launches)]
        new = {launch.key: launch for launch in reversed(every) if launch.key not in self.launchers}
        identities = [identity_of(call.segment) for call in segments]
        fresh = {i: call.segment for i, call in zip(identities, segments, strict=True) if i not in self.addresses}
        if new or fresh:
            self.add(new, fresh)
        for i, call in zip(identities, segments, strict=True):
            outer = call.segment.outer
            call.launcher = native.Launcher(
                self.addresses[i], bytes(t.dtype.itemsize for t in outer), len(call.segment.leaves), call.segment.label or call.segment.name
            )

    def add(self, new: dict[Hashable, Launch], fresh: dict[Hashable, Any]) -> None:
        symbols: dict[Hashable, str] = {key: f"k{i}" for i, key in enumerate(new)}
        known: dict[str, int] = {}
        for _, called in fresh:
            for key in called:
                if key not in symbols:
                    name = symbols[key] = f"x{len(known)}"
                    known[name] = self.addresses[key]
        made = compile_module({key: launch.kernel for key, launch in new.items()}, fresh, symbols, known)
        for (key, launch), address in zip(new.items(), made.kernels, strict=True):
            itemsizes = bytes(DTYPES[b.dtype].bits // 8 for b in launch.kernel.buffers)
            self.addresses[key] = address  # first: whoever finds the launcher finds the address
            self.launchers[key] = native.Launcher(address, itemsizes, len(launch.sizes), launch.kernel.name)
        self.addresses.update(zip(fresh, made.segments, strict=True))
