"""Functions outside that compiled kernels call, by address: PyTorch's thread pool.

The symbols of its libraries are not global, so the linker cannot find them by itself.
"""

from __future__ import annotations

import ctypes
import functools
import pathlib

import torch

from pliant.codegen.cpu.parallel import INSIDE, NUMBER, PARALLEL, TEAM, THREADS

# Name in kernels -> name in PyTorch's libraries. at::get_num_threads is lazy for each thread, which the raw OpenMP call is not.
SYMBOLS = {
    THREADS: "_ZN2at15get_num_threadsEv",
    INSIDE: "_ZN2at18in_parallel_regionEv",
    PARALLEL: "GOMP_parallel",
    NUMBER: "omp_get_thread_num",
    TEAM: "omp_get_num_threads",
}


@functools.cache
def addresses() -> dict[str, int]:
    """Address of every outside function. The library's handle also finds what it links: its own OpenMP."""
    library = ctypes.CDLL(str(pathlib.Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
    found: dict[str, int] = {}
    for name, symbol in SYMBOLS.items():
        found[name] = ctypes.cast(getattr(library, symbol), ctypes.c_void_p).value or 0
    return found
