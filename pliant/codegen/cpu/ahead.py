"""The processor as a target of machine code that is kept in files: which of a family will run it is not known.

What a kernel can do is a kernel, and a library routine is our own, because an ATen call would need libtorch in the process that loads
the file. Code is made for *levels* of x86-64, as its ABI names them: it uses a level's instructions and no others, so a processor that has
them runs it whatever its maker or age.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import torch

from pliant import native
from pliant.codegen.cpu import compile as kernels
from pliant.codegen.cpu import image, machine, runtime, segment
from pliant.codegen.cpu.backend import CPU
from pliant.codegen.cpu.image import Image
from pliant.codegen.cpu.llvm import llvm
from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.parallel import INSIDE, NUMBER, PARALLEL, TEAM, THREADS
from pliant.errors import PliantError
from pliant.lower.program import NativeStep
from pliant.lower.segments import Segment

LEVELS: dict[str, tuple[str, int, bool, bool]] = {
    "x86-64-v4": ("avx512", 512, True, True),
    "x86-64-v3": ("avx2", 256, False, True),
    "x86-64": ("portable", 128, False, False),
}
"""Kinds of processors: what the printer calls the vectors, their bits, whether masks are instructions, whether fma and the like are."""


class Ahead(CPU):
    """`levels`: what code can be made for, the most capable kind first; all processors run that of the last."""

    name = "cpu, ahead of time"
    levels = tuple(LEVELS)

    def worth_a_kernel(self, op: Any) -> bool:
        return True

    def worth_a_call(self, step: NativeStep) -> bool:
        return True

    def has_segments(self) -> bool:
        return True

    def product_dtypes(self) -> frozenset[torch.dtype]:
        return frozenset((torch.float32,))

    def has_attention(self) -> bool:
        return True

    def has_convolutions(self) -> bool:
        return True

    def has_int8(self) -> bool:
        return True

    def here(self) -> str:
        """The best level that this processor runs."""
        bits = native.own_products()[0]
        return next(level for level, (_, wanted, *_) in LEVELS.items() if wanted <= max(bits, 128))

    def image(self, of: Mapping[Hashable, tuple[str, Any]], segments: Sequence[tuple[str, Segment]], level: str) -> Image:
        """The machine code of kernels, by their keys with the names that they get, and of segments that call them."""
        to = machine_of(level)
        symbols = {key: name for key, (name, _) in of.items()}
        parts = [kernels.kernel_part(kernel, name, to) for name, kernel in of.values()]
        parts += [segment.part_of(s, name, symbols) for name, s in segments]
        texts = kernels.modules_of(parts) if parts else []
        return image.link(kernels.objects(texts, to).codes, [part.name for part in parts])

    def pool(self) -> list[int]:
        """The functions of PyTorch's thread pool, as `native.set_pool` takes them."""
        found = runtime.addresses()
        return [found[name] for name in (PARALLEL, NUMBER, TEAM, THREADS, INSIDE)]


def machine_of(level: str) -> Machine:
    """What code for a level may use. PliantError where LLVM makes other code here."""
    machine.prepare()
    triple = llvm.get_process_triple()
    if not triple.startswith("x86_64"):
        raise PliantError(f"machine code is kept in files for x86-64 only, and this is {triple}: program.save works everywhere")
    name, bits, masks, fused = LEVELS[level]
    return Machine(name, bits, masks, fused, fused, fused, False, triple, level, "")
