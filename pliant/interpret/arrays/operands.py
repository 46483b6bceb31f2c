"""What NumPy makes of what it is given: arrays of nested lists, and the operands of a loop, Python's numbers being weak (NEP 50)."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.originals import numpy as np
from pliant.graph.symnode import expr_of
from pliant.graph.traced import TracedTensor
from pliant.interpret import number_lists
from pliant.interpret.arrays.dtypes import BOOL, NUMPY, SCALARS, TORCH, Unsure, dtype_of, fits, torch_dtype
from pliant.interpret.arrays.proxies import TracedArray, TracedScalar, whole_array
from pliant.interpret.arrays.table import constant
from pliant.interpret.calls import graph_call
from pliant.interpret.slots import unpack
from pliant.interpret.state import vm

WEAK = {int: int, torch.SymInt: int, float: float, torch.SymFloat: float, complex: complex}
MOST_CONSTANTS = 1 << 16
FEW = 64  # symbolic numbers in a sequence, before it is cheaper to pin them
SYMBOLIC = (torch.SymInt, torch.SymFloat)
HALF = 1 << 31
SMALL = ("int8", "int16", "int32", "uint8", "uint16")
with np.errstate(all="ignore"):
    BY_32_BITS = int(np.array([1e10]).astype(np.int32)[0]) == -HALF
"""Whether NumPy's loops make 32-bit integers of floats first, as on x86, where all that does not fit becomes the least of them."""


# -- tensors ------------------------------------------------------------------------------------------------------------
def to(t: Any, dt: np.dtype) -> Any:
    """A tensor in another dtype."""
    want = torch_dtype(dt)
    if t.dtype is want:
        return t
    if t.dtype.is_complex and dt.kind not in "cb":
        raise Unsure("the imaginary part is discarded")
    if t.dtype.is_floating_point and dt.kind == "u" and dt.itemsize > 2:
        raise Unsure(f"floats as {dt}: what does not fit is another number in each of NumPy's loops")
    if t.dtype.is_floating_point and dt.kind in "iu" and dt.itemsize < 8:
        t = graph_call(ORIGINAL.to, (t, torch.int64), {})  # C converts so, and what does not fit wraps around
        if BY_32_BITS and dt.name in SMALL:
            fit = graph_call(torch.logical_and, (graph_call(torch.ge, (t, -HALF), {}), graph_call(torch.lt, (t, HALF), {})), {})
            t = graph_call(torch.where, (fit, t, -HALF), {})
    return graph_call(ORIGINAL.to, (t, want), {})


def full(shape: tuple, v: Any, dt: np.dtype) -> Any:
    return graph_call(torch.full, (shape, v), {"dtype": torch_dtype(dt)})


def fresh(t: Any, *given: Any) -> Any:
    """`t` in memory of its own, whatever the operators made of it."""
    return graph_call(torch.clone, (t,), {}) if any([t.storage_id == g.storage_id for g in given if type(g) is TracedTensor]) else t


def constant_tensor(a: np.ndarray) -> Any:
    """A tensor of what NumPy made of constants."""
    dt = torch_dtype(a.dtype)
    if a.size > MOST_CONSTANTS:
        raise Unsure("a large array of constants")
    if not a.size:
        return graph_call(torch.zeros, (a.shape,), {"dtype": dt})
    return graph_call(torch.tensor, (a.tolist(),), {"dtype": dt})


# -- arrays ---------------------------------------------------------------------------------------------------------------
LENT: set[type] = {torch.Tensor}
"""Classes of tensors over whose memory there are arrays."""


def lent(t: Any) -> TracedArray:
    """`t.numpy()`: over the memory of a tensor."""
    recorded = t.requires_grad and torch.is_grad_enabled()
    if recorded or t.device.type != "cpu" or ORIGINAL.is_conj(t) or ORIGINAL.is_neg(t) or t.pytype not in LENT:
        raise Unsure("a tensor that NumPy cannot read")
    if t.dtype not in NUMPY:
        raise Unsure(f"dtype {t.dtype}")
    return TracedArray(graph_call(ORIGINAL.detach, (t,), {}), NUMPY[t.dtype], None, True, True)


def asarray(x: Any, dtype: Any = None) -> TracedArray:
    """`np.asarray(x, dtype)`."""
    dt = None if dtype is None else dtype_of(dtype)
    t = type(x)
    if t is TracedArray:
        return x if dt is None or dt is x.dtype else whole_array(to(x.tensor, dt))
    if t is TracedScalar:
        found = to(x.tensor, dt or x.dtype)
        return whole_array(fresh(found, x.tensor))
    if t is TracedTensor:
        a = lent(x)
        return a if dt is None or dt is a.dtype else whole_array(to(a.tensor, dt))
    if t is list:
        found = number_lists.as_array(x, TORCH.get(dt))  # type: ignore[arg-type]
        if found is not None:
            return whole_array(found)
    if constant(x):
        return whole_array(constant_tensor(np.array(x, dt)))
    if t in WEAK:
        dt = dt or np.dtype("int64" if t is torch.SymInt else "float64")
        return whole_array(full((), number_in(x, dt), dt))
    if t is list or t is tuple:
        dt = dt or dtype_of(np.array(sample(x)).dtype)
        return whole_array(nested(x, dt))
    if t is range and x and max(abs(x[0]), abs(x[-1])) < 1 << 62:
        found = graph_call(torch.arange, (x.start, x.stop, x.step), {"dtype": torch.int64})
        return whole_array(to(found, dt or np.dtype("int64")))
    raise Unsure(f"an array made of a {t.__name__}")


def sample(x: Any, depth: int = 0) -> Any:
    """Something with the types of a nested sequence, for NumPy to tell the dtype of its array."""
    t = type(x)
    if t is list or t is tuple:
        if depth > 8:
            raise Unsure("nested deeply")
        return [sample(v, depth + 1) for v in unpack(x)]
    if t is TracedArray:
        return np.zeros((1,) * x.ndim, x.dtype)
    if t is TracedScalar:
        return x.dtype.type(1)
    if t is TracedTensor:
        return np.zeros((1,) * ORIGINAL.dim(x), lent(x).dtype)
    if t in WEAK and t in SYMBOLIC:
        return WEAK[t](1)
    if t in WEAK or t is bool or t in SCALARS:
        return x
    raise Unsure(f"an array made of a {t.__name__}")


def nested(x: Any, dt: np.dtype) -> Any:
    """The tensor of a nested sequence."""
    if type(x) is list or type(x) is tuple:
        items = unpack(x)
        if not items:
            return graph_call(torch.zeros, ((0,),), {"dtype": torch_dtype(dt)})
        if all([type(v) in WEAK or type(v) is bool for v in items]) and (len(items) > FEW or not any([type(v) in SYMBOLIC for v in items])):
            return graph_call(torch.tensor, ([number_in(v, dt) for v in items],), {"dtype": torch_dtype(dt)})
        parts = [nested(v, dt) for v in items]
        if len({ORIGINAL.dim(p) for p in parts}) != 1:
            raise Unsure("a ragged sequence")
        return graph_call(torch.stack, (parts,), {})
    if type(x) in (TracedArray, TracedScalar):
        return to(x.tensor, dt)
    if type(x) is TracedTensor:
        return to(lent(x).tensor, dt)
    return full((), number_in(x, dt), dt)


# -- operands of loops ------------------------------------------------------------------------------------------------------
def operand(x: Any) -> tuple[Any, Any]:
    """(its dtype, or the Python type of a weak number; what stands for it)."""
    t = type(x)
    if t is TracedArray or t is TracedScalar:
        return x.dtype, x
    if t in SCALARS:
        return SCALARS[t], x
    if t is bool:
        return BOOL, x
    weak = WEAK.get(t)
    if weak is not None:
        return weak, x
    if t is list or t is tuple:
        a = asarray(x)
        return a.dtype, a
    raise Unsure(f"an operand of type {t.__name__}")


def number_in(v: Any, dt: np.dtype) -> Any:
    """A number, perhaps symbolic, as a Python number of dtype `dt`."""
    t = type(v)
    kind = dt.kind
    if t in SYMBOLIC:
        if kind == "f":
            n = torch.sym_float(v)
            if dt.itemsize < 8 and beyond(n, dt):
                raise Unsure(f"a number that is no {dt}")
            return n
        if kind in "iu" and t is torch.SymInt and fits(v, dt):
            return v
        raise Unsure(f"a symbolic number as {dt}")
    if kind in "iu" and type(v) is int and not fits(v, dt):
        raise Unsure(f"{v} is no {dt}")
    if kind in "iu" and not isinstance(v, (bool, int, np.integer, np.bool_)):
        raise Unsure(f"a {t.__name__} as {dt}")
    with np.errstate(all="ignore"):
        n = dt.type(v).item()
    if type(n) is float and math.isinf(n) and not math.isinf(v):
        raise Unsure(f"{v} is no {dt}")
    return n


def beyond(n: Any, dt: np.dtype) -> bool:
    """Whether a symbolic number is finite and larger than `dt` holds: PyTorch refuses it where NumPy stores an infinite one."""
    if type(n) is not torch.SymFloat or not all([s.backed for s in expr_of(n, vm.scope).symbols()]):
        return False
    size: Any = abs(n)  # type: ignore[arg-type]
    return vm.truth(size > float(np.finfo(dt).max)) and vm.truth(size < math.inf)


def in_loop(x: Any, dt: np.dtype) -> Any:
    """An operand as a tensor, or a Python number, of the dtype of a loop."""
    t = type(x)
    if t is TracedArray:
        return to(x.tensor, dt)
    if t is TracedScalar:
        return number_in(x.number, dt) if type(x.number) in SYMBOLIC and dt.kind in "iuf" else to(x.tensor, dt)
    return number_in(x, dt)


def tensor_in(x: Any, dt: np.dtype) -> Any:
    """An operand as a tensor."""
    v = in_loop(x, dt)
    return v if type(v) is TracedTensor else full((), v, dt)


def scalar_operand(x: Any) -> bool:
    """Whether an operand has no dims: of such NumPy makes scalars."""
    return type(x) is not TracedArray or not x.ndim


def is_proxy(x: Any) -> bool:
    return type(x) is TracedArray or type(x) is TracedScalar


_ = vm, TORCH
