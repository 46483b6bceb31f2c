"""Processors as plug-ins: what the rooms above the machine code ask of one.

A `Target` answers what it can run, makes code of kernels and segments, and names itself for the caches on disk. `lower/` asks through
`Program.target`, everybody else through `current()`; nothing outside of a target's own package (`codegen/cpu/`) knows more of it.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import pkgutil
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Protocol

import torch

from pliant.errors import PliantError
from pliant.graph import lstm
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import LoopNest
from pliant.lower.loops import Kernel
from pliant.lower.program import NativeStep, SegmentCall


class Target(Protocol):
    """A processor, and how code is made for it. What need not be said: it has kernels alone, no segments and no library."""

    name: str

    def supports(self, device: torch.device) -> bool:
        """May kernels read and write tensors there?"""

    def prints(self, nest: LoopNest, devices: set[torch.device]) -> bool:
        """Can it make code of this nest, whose tensors lie there, and of what such nests are fused to?"""
        return True

    def worth_a_kernel(self, op: Any) -> bool:
        """Is this single operation faster as a kernel than as the ATen call?"""

    def worth_a_call(self, step: NativeStep) -> bool:
        """Is this library call, alone, faster than the ATen call?"""
        return False

    def has_segments(self) -> bool:
        """Can several kernels and library calls be one native function?"""
        return False

    def product_dtypes(self) -> frozenset[torch.dtype]:
        """The dtypes of which it has matrix products to call."""
        return frozenset()

    def has_attention(self) -> bool:
        return False

    def has_convolutions(self) -> bool:
        return False

    def has_int8(self) -> bool:
        """Has it products of int8, and linear layers that quantize their input?"""
        return False

    def lstm_kernels(self) -> tuple[Callable[..., None], Callable[..., None]] | None:
        """What runs a layer of an LSTM forward and back (`graph/lstm.py`), if that is faster than PyTorch's."""
        return None

    def compile(self, launches: list[Launch], segments: list[SegmentCall]) -> None:
        """Make code of these kernels and segments, or find it among what was made before; segments get their `launcher`."""

    def launcher(self, launch: Launch) -> Callable[..., None]:
        """What runs a kernel that was compiled: called with its buffers (tensors), then its sizes (integers)."""

    def link(self, name: str, names: list[str], known: dict[str, int]) -> dict[str, int] | None:
        """Addresses of the functions of a module that another process made (`linked.py`), by name; None if the disk has lost it.

        `known`: functions of other modules that it calls.
        """

    def listing(self, kernel: Kernel, kind: str) -> str:
        """A kernel as people read it: its "schedule", or its code as "llvm" or "asm"."""

    def fingerprint(self) -> tuple:
        """What code made here depends on, besides the program: equal ones may share code on disk."""

    def keeps_code(self) -> bool:
        """May what is made now be kept on disk? Not while something is changed that `fingerprint` does not tell."""


TARGETS = {
    "cpu": "pliant.codegen.cpu.backend:CPU",
    "triton": "pliant.codegen.triton.backend:TritonTarget",
    "reference": "pliant.codegen.reference:ReferenceTarget",
    "ahead": "pliant.codegen.cpu.ahead:Ahead",
}
"""Where each is found. A target is one object."""

_chosen: list[str] = []


@functools.cache
def named(name: str) -> Target:
    """The target of this name. Raises PliantError for one that there is none of."""
    if name not in TARGETS:
        raise PliantError(f"there is no target {name!r} (PLIANT_TARGET): choose one of {', '.join(TARGETS)}")
    return pkgutil.resolve_name(TARGETS[name])()


def chosen() -> str | None:
    """The target that was asked for: by `using`, or `PLIANT_TARGET`."""
    return _chosen[-1] if _chosen else os.environ.get("PLIANT_TARGET")


def current() -> Target:
    """The target that programs are compiled for: the one asked for, else this machine's processor."""
    return named(chosen() or "cpu")


ACCELERATORS = {"cuda": ("triton", "triton")}
"""Devices that have a target of their own, where a module is installed: the target, the module."""


def serving(devices: Iterable[torch.device]) -> Target:
    """The target for a program with tensors on these devices: the one asked for, else an accelerator's, else the processor's."""
    if chosen() is None:
        for name, module in [ACCELERATORS[d.type] for d in devices if d.type in ACCELERATORS]:
            if importable(module):
                return named(name)
    return current()


@functools.cache
def importable(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


lstm.provider.append(lambda: current().lstm_kernels())


@contextlib.contextmanager
def using(name: str) -> Iterator[Target]:
    """Inside, programs are compiled for this target."""
    _chosen.append(name)
    try:
        yield named(name)
    finally:
        _chosen.pop()
