"""Functions outside that compiled kernels call, by address: PyTorch's thread pool.

The symbols of its libraries are not global, so the linker cannot find them by itself.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib

import torch

from pliant import native
from pliant.codegen.cpu import machine
from pliant.codegen.cpu.parallel import INSIDE, NUMBER, PARALLEL, TEAM, THREADS
from pliant.errors import PliantError

# Name in kernels -> name in PyTorch's libraries. at::get_num_threads is lazy for each thread, which the raw OpenMP call is not.
SYMBOLS = {
    THREADS: "_ZN2at15get_num_threadsEv",
    INSIDE: "_ZN2at18in_parallel_regionEv",
    PARALLEL: "GOMP_parallel",
    NUMBER: "omp_get_thread_num",
    TEAM: "omp_get_num_threads",
}


PRODUCTS = ("sgemm_", "cblas_sgemm_batch")
"""Matrix products of f32 in the BLAS that PyTorch was built with."""


@functools.cache
def library() -> ctypes.CDLL:
    """Its handle also finds what it links: its own OpenMP."""
    return ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))


@functools.cache
def products() -> tuple[int, ...] | None:
    """Addresses of `PRODUCTS`; None where PyTorch has another BLAS."""
    if not torch.backends.mkl.is_available() or not all(hasattr(library(), name) for name in PRODUCTS):
        return None
    return tuple(ctypes.cast(getattr(library(), name), ctypes.c_void_p).value or 0 for name in PRODUCTS)


def own_bits() -> int:
    """Bits of the vectors that loops of our own (`native/matmul_loops.h`) run with; 0 where there are none for this machine."""
    wide, bits = native.own_products()[0], machine.current().vector_bits
    return min(wide, bits) if bits >= 256 else 0


def own_products() -> bool:
    """Whether products are our own: where they are known to be faster than PyTorch's BLAS."""
    return own_bits() > 0 and native.own_products()[1]


def product_dtypes() -> frozenset[torch.dtype]:
    """What products there are for inside of segments. PyTorch's of f16 take 3 to 100 times as long as ours, those of bf16 1 to 9 times."""
    halves = []
    if own_products():
        halves.append(torch.float16)
        if native.own_products()[2] and own_bits() >= 512:
            halves.append(torch.bfloat16)
    return frozenset((torch.float32, *halves)) if products() is not None else frozenset()


LSTM_BUFFERS = (4, 8, *(4,) * 11), (4, 8, *(4,) * 15)
"""Bytes of an element of each tensor that the kernels of an LSTM take (`native/recurrent.cpp`), forward and back."""


@functools.cache
def lstm_kernels() -> tuple[native.Launcher, native.Launcher]:
    """Those of our own, forward and back, where there are products of our own."""
    share_pool()
    forward, backward = (bytes(sizes) for sizes in LSTM_BUFFERS)
    here = native.lstm_functions(own_bits())
    return native.Launcher(here[0], forward, 7, "pliant::lstm"), native.Launcher(here[1], backward, 8, "pliant::lstm_backward")


def own_convolutions() -> bool:
    """Whether convolutions are (`native/conv.cpp`): there is one width of vectors for them."""
    return own_bits() == 512 and own_products()


@functools.cache
def address_in_process(name: str) -> int:
    """Where a function is that the process has for everybody: of the C library, above all. Raises PliantError where there is none."""
    found = getattr(_process(), name, None)
    if found is None:
        raise PliantError(f"machine code calls {name}, which this process does not have")
    return ctypes.cast(found, ctypes.c_void_p).value or 0


@functools.cache
def _process() -> ctypes.CDLL:
    return ctypes.CDLL(None)


@functools.cache
def addresses() -> dict[str, int]:
    """Address of every outside function."""
    found: dict[str, int] = {}
    for name, symbol in SYMBOLS.items():
        found[name] = ctypes.cast(getattr(library(), symbol), ctypes.c_void_p).value or 0
    return found


def share_pool() -> None:
    """The library routines work with PyTorch's threads."""
    found = addresses()
    native.set_pool(*[found[name] for name in (PARALLEL, NUMBER, TEAM, THREADS, INSIDE)])
