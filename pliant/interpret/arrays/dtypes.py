"""Dtypes: those of NumPy that torch has as well, and what a Python number must be to fit into one."""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.originals import numpy as np
from pliant.interpret.state import vm

PAIRS: dict[str, torch.dtype] = {
    "bool": torch.bool, "int8": torch.int8, "int16": torch.int16, "int32": torch.int32, "int64": torch.int64, "uint8": torch.uint8,
    "uint16": torch.uint16, "uint32": torch.uint32, "uint64": torch.uint64, "float16": torch.float16, "float32": torch.float32,
    "float64": torch.float64, "complex64": torch.complex64, "complex128": torch.complex128,
}  # fmt: skip
CANON: dict[str, np.dtype] = {name: np.dtype(name) for name in PAIRS}
TORCH: dict[np.dtype, torch.dtype] = {CANON[name]: t for name, t in PAIRS.items()}
NUMPY: dict[torch.dtype, np.dtype] = {t: dt for dt, t in TORCH.items()}
KNOWN: dict[int, torch.dtype] = {id(dt): t for dt, t in TORCH.items()}
"""By the identity of the dtype: others that compare equal are other types to a program: with metadata, or `ulonglong`, which is that of
integers from 2**63 on, and which PyTorch refuses."""
SCALARS: dict[type, np.dtype] = {dt.type: dt for dt in TORCH}
BOOL, INT64, FLOAT64 = CANON["bool"], CANON["int64"], CANON["float64"]
SCARCE = frozenset({torch.uint16, torch.uint32, torch.uint64})
"""Dtypes of torch with few operators: arrays of them are moved and converted, not computed with."""


class Unsure(Exception):
    """A row of the tables does not know for certain what NumPy would answer: the graph breaks around the call."""


def dtype_of(spelled: Any) -> np.dtype:
    """The dtype that a program spelled as a class, a name or a dtype. Raises Unsure for those that torch lacks."""
    if spelled is not None and not isinstance(spelled, (type, str, np.dtype)):
        raise Unsure("a dtype spelled by an object")
    dt = np.dtype(spelled)
    torch_dtype(dt)
    return dt


def torch_dtype(dt: np.dtype) -> torch.dtype:
    t = KNOWN.get(id(dt))
    if t is None:
        raise Unsure(f"dtype {dt!r}")
    return t


def range_of(v: Any) -> tuple[Any, Any]:
    """The least and the greatest value that a number, perhaps symbolic, may have."""
    if type(v) is torch.SymInt:
        lo, hi = vm.scope.range(v.node.expr)
        return lo, hi
    return v, v


def of_sizes(e: Any) -> bool:
    """Whether an expression is one symbol, whose guard keeps it to 64 bits, or made of sizes, which memory keeps far below."""
    symbols = vm.world.symbols
    return e.op == "sym" or all([s.name in symbols and symbols[s.name].op in ("size", "length") for s in e.symbols()])


def fits(v: Any, dt: np.dtype) -> bool:
    """Whether an int, perhaps symbolic, is known to be one of this integer dtype."""
    if dt.kind == "b":
        return False
    info = np.iinfo(dt)
    lo, hi = range_of(v)
    if dt.itemsize == 8 and dt.kind == "i" and type(v) is torch.SymInt and of_sizes(v.node.expr):
        return True
    return lo is not None and hi is not None and info.min <= lo and hi <= info.max
