"""CUDA devices as a target: kernels alone, no segments and no library. What it has no text for stays an ATen call."""

from __future__ import annotations

import pkgutil
from collections.abc import Callable, Hashable
from typing import Any

from pliant.codegen.target import Target
from pliant.codegen.triton.printer import module_text
from pliant.codegen.triton.scalars import TYPES, printable
from pliant.errors import InternalError
from pliant.graph.originals import math, torch
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import LoopNest
from pliant.lower.loops import SCALARS, Kernel, Node
from pliant.lower.program import SegmentCall
from pliant.lower.text import kernel_text

PLACES = "pliant.codegen.triton.launch"
NODES = frozenset(("load", "const", "size", "index", "cast", "bitcast", "reduce"))
"""What is printed beside the scalar operators. Not "bounded": a kernel could not tell which index was none; not "scan"."""


class TritonTarget(Target):
    """Kernels of CUDA devices. While Triton interprets (`TRITON_INTERPRET=1`), of the CPU: for tests."""

    name = "triton"

    def __init__(self) -> None:
        self.launchers: dict[Hashable, Any] = {}

    def supports(self, device: torch.device) -> bool:
        return device.type == ("cpu" if pkgutil.resolve_name(f"{PLACES}:functions").INTERPRETED else "cuda")

    def prints(self, nest: LoopNest, devices: set[torch.device]) -> bool:
        """All in one device's memory, every node with text, and no two points that may write one element."""
        if few_and_long(nest):
            return False
        return len(devices) == 1 and not any([p.index or p.mode != "set" for p in nest.stores]) and all(map(known, nest.nodes()))

    def worth_a_kernel(self, op: Any) -> bool:
        return False  # PyTorch's own is as fast, and there

    def compile(self, launches: list[Launch], segments: list[SegmentCall]) -> None:
        if segments:
            raise InternalError("the Triton target has no segments")
        launcher = pkgutil.resolve_name(f"{PLACES}:Launcher")
        for launch in launches:
            if launch.key not in self.launchers:
                self.launchers.setdefault(launch.key, launcher(launch.kernel))
            self.launchers[launch.key].prepare(launch.buffers[0].device.index)

    def launcher(self, launch: Launch) -> Callable[..., None]:
        return self.launchers[launch.key]

    def link(self, name: str, names: list[str], known: dict[str, int]) -> dict[str, int] | None:
        return None

    def listing(self, kernel: Kernel, kind: str) -> str:
        return kernel_text(kernel) if kind == "schedule" else module_text(kernel, kernel.name)

    def fingerprint(self) -> tuple:
        return (self.name,)

    def keeps_code(self) -> bool:
        return False


LONG, FEW = 4096, 2048
UNKNOWN = 64


def few_and_long(nest: LoopNest) -> bool:
    """Does it reduce a few long rows, typically? PyTorch spreads a row over many programs; here each is walked by one."""
    sizes = [d if type(d) is int else UNKNOWN if d.hint is None else int(d.hint) for d in nest.dims]
    return bool(nest.reduced) and math.prod(sizes[nest.outer :]) >= LONG and math.prod(sizes[: nest.outer]) < FEW


def known(n: Node) -> bool:
    return n.dtype in TYPES and (n.op in NODES or n.op in SCALARS and printable(n))
