"""Printed kernels as functions: compiled by Triton for the device of their tensors, launched on its current stream."""

from __future__ import annotations

import hashlib
import linecache
import threading
from collections.abc import Callable
from typing import Any

import triton
import triton.language as tl

from pliant.codegen.triton import functions
from pliant.codegen.triton.printer import module_text
from pliant.codegen.triton.scalars import POINTERS
from pliant.codegen.triton.schedule import Schedule, schedule
from pliant.graph.originals import torch
from pliant.lower.loops import Kernel

WIDE = 2**31 - 2**16
"""Positions from here on are counted in 64 bits; the rest is for the tile that reaches over the end."""
OPTIONS = {"enable_fp_fusion": False, "enable_reflect_ftz": False}
"""A product and a sum are rounded one by one, and small numbers are not flushed to 0: as in PyTorch's kernels."""


def function(kernel: Kernel, index: str, plan: Schedule) -> Any:
    """The kernel as a function of Triton's. Its name tells its content, so that Triton finds it among what it has compiled before."""
    text = module_text(kernel, "kernel", index, plan)
    name = f"pliant_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    text = text.replace("def kernel(", f"def {name}(", 1)
    file = f"<triton {name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    space = {"triton": triton, "tl": tl, "F": functions, "__name__": __name__}
    exec(compile(text, file, "exec"), space)
    return space[name]


class Launcher:
    """Runs a kernel: called with its buffers (tensors), then its sizes (integers)."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel
        self.plan = schedule(kernel)
        self.buffers = len(kernel.buffers)
        self.grid = grid_of(kernel, self.plan)
        self.functions: dict[str, Any] = {}
        self.compiled: dict[tuple[str, int], Any] = {}
        self.lock = threading.Lock()

    def function(self, index: str) -> Any:
        found = self.functions.get(index)
        if found is None:
            found = self.functions[index] = function(self.kernel, index, self.plan)
        return found

    def __call__(self, *args: Any) -> None:
        blocks, wide = self.grid(*args[self.buffers :])
        if blocks:
            index = "tl.int64" if wide else "tl.int32"
            if functions.INTERPRETED:
                self.function(index)[(blocks, 1, 1)](*args)
            else:
                self.run(args[0].device.index, index, blocks, args)

    def prepare(self, device: int | None) -> None:
        """Compile for this CUDA device (the current one, if None), before the first launch."""
        if not functions.INTERPRETED:
            self.compile("tl.int32", torch.cuda.current_device() if device is None else device)

    def run(self, device: int, index: str, blocks: int, args: tuple) -> None:
        code = self.compiled.get((index, device)) or self.compile(index, device)
        if device == torch.cuda.current_device():
            code[(blocks, 1, 1)](*args)
        else:
            with torch.cuda.device(device):
                code[(blocks, 1, 1)](*args)

    def compile(self, index: str, device: int) -> Any:
        """The code for this device. Triton keeps it on disk."""
        with self.lock, torch.cuda.device(device):
            key = index, device
            if key not in self.compiled:
                major, minor = torch.cuda.get_device_capability(device)
                self.compiled[key] = compiled(self.function(index), self.kernel, self.plan, major * 10 + minor)
            return self.compiled[key]


def compiled(fn: Any, kernel: Kernel, plan: Schedule, capability: int) -> Any:
    """The code of a function of `kernel` for devices of this capability: for every size and alignment."""
    signature = {f"b{i}": POINTERS[b.dtype] for i, b in enumerate(kernel.buffers)} | {str(s): "i64" for s in kernel.sizes}
    source = triton.compiler.ASTSource(fn, signature, {}, {})
    target = triton.backends.compiler.GPUTarget("cuda", capability, 32)
    known = triton.compiler.make_backend(target).parse_options({}).__dict__
    options = {name: value for name, value in OPTIONS.items() if name in known} | {"num_warps": plan.warps}
    return triton.compile(source, target=target, options=options)


def grid_of(kernel: Kernel, plan: Schedule) -> Callable[..., tuple[int, bool]]:
    """From the sizes of a launch: how many tiles there are, and whether positions take more than 32 bits."""
    names = [str(s) for s in kernel.sizes]
    rows, lanes = (" * ".join(map(str, dims)) or "1" for dims in (kernel.dims[: plan.outer], kernel.dims[plan.outer :]))
    tiles = f"-(-rows // {plan.rows})" + ("" if kernel.reduced else f" * -(-lanes // {plan.lanes})")
    text = f"def grid({', '.join(names)}):\n    rows, lanes = {rows}, {lanes}\n    return {tiles}, rows > {WIDE} or lanes > {WIDE}\n"
    space: dict[str, Any] = {}
    exec(text, space)
    return space["grid"]
