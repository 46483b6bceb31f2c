"""Kernels over flat arrays: what the reference target makes of them, and what compiled code does.

Memory is a list of flat arrays, one for each buffer; bf16 ones hold their bits (uint16). `call` runs compiled kernels on the same
arrays, with margins on both sides that must stay as they were.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np

from pliant.codegen.cpu import machine
from pliant.codegen.reference import NUMPY, OPS, Evaluation, convert, from_bf16, to_bf16
from pliant.lower.loops import Kernel

TARGETS = [t for t in ("avx512", "avx2", "portable") if t == "portable" or machine.has(getattr(machine, t.upper()))]
"""The targets that this machine runs, the best one first."""

MARGIN = 64


def reference(kernel: Kernel, memory: list[np.ndarray], sizes: Mapping[Any, int]) -> list[np.ndarray]:
    """The buffers after the kernel; `memory` is left alone."""
    out = [m.copy() for m in memory]
    Evaluation(kernel, out, sizes).run()
    return out


FUNCTION = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)


def call(address: int, kernel: Kernel, memory: list[np.ndarray], sizes: Mapping[Any, int], shrink: int = 0) -> tuple[int, list[np.ndarray]]:
    """(code, buffers after): the compiled kernel on copies with margins. `shrink` takes elements off the end of every buffer's bounds."""
    padded = []
    for m in memory:
        whole = np.full(m.size + 2 * MARGIN, 77, m.dtype)
        whole[MARGIN : MARGIN + m.size] = m
        padded.append(whole)
    slots = [w.ctypes.data + MARGIN * w.itemsize for w in padded] + [sizes[k] for k in kernel.sizes]
    slots += list(itertools.chain.from_iterable((0, m.size - 1 - shrink) for m in memory))
    context = (ctypes.c_int64 * len(slots))(*slots)
    code = FUNCTION(address)(ctypes.addressof(context))
    for whole in padded:
        margin = np.full(MARGIN, 77, whole.dtype)
        assert (whole[:MARGIN] == margin).all() and (whole[-MARGIN:] == margin).all(), "written outside its buffer"
    return code, [w[MARGIN : MARGIN + m.size] for w, m in zip(padded, memory)]


__all__ = ["NUMPY", "OPS", "TARGETS", "call", "convert", "from_bf16", "reference", "to_bf16"]
