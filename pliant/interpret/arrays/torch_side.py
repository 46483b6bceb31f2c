"""What torch's functions make of arrays and scalars of NumPy.

Constant scalars are handed over as they are: torch's C code looks at them as it does in eager. A symbolic one is a number. An array is
read by the functions here, and as a subscript; any other function that is given one breaks the graph.
"""

from __future__ import annotations

import operator
from typing import Any

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.originals import numpy as np
from pliant.graph.traced import LEAF, PARTS, TracedTensor
from pliant.interpret import globalstate, number_lists
from pliant.interpret.arrays.dtypes import SCALARS, Unsure
from pliant.interpret.arrays.operands import WEAK, asarray, fresh, lent
from pliant.interpret.arrays.operators import torch_number
from pliant.interpret.arrays.proxies import TracedArray, TracedScalar
from pliant.interpret.arrays.table import CODE, compute
from pliant.interpret.arrays.ufuncs import t
from pliant.interpret.calls import LOOKASIDES, METHOD_LOOKASIDES, call, graph_call
from pliant.interpret.gate import name_of
from pliant.interpret.slots import unpack
from pliant.interpret.state import Break, vm
from pliant.symbolic.magnitude import WORD, bits

SUBSCRIPTS = (operator.getitem, operator.setitem)


def array_for(fn: Any, a: TracedArray) -> Any:
    """What a torch function is given for an array."""
    if fn in SUBSCRIPTS and a.ndim and a.dtype.name in ("bool", "int64", "int32"):
        return a.tensor
    raise Break(CODE, f"{name_of(fn)} would read an array", clean=True)


def scalar_for(fn: Any, s: TracedScalar) -> Any:
    if fn is SUBSCRIPTS[1] and s.dtype.kind not in "iu" and s.dtype.name != "float64":  # an item of a tensor takes what Python has, too
        raise TypeError(f"can't assign a numpy.{s.dtype.name} to a torch.FloatTensor")
    return torch_number(s)


def holds_numpy(x: Any, depth: int = 4) -> bool:
    c = type(x)
    if c is TracedArray or c is TracedScalar or c in SCALARS:
        return True
    return (c is list or c is tuple) and depth > 0 and any([holds_numpy(v, depth - 1) for v in unpack(x)])


SEQUENCES = {list, tuple, torch.Size}
FEW = 64  # symbolic numbers and others in a sequence of which a tensor is made in the graph


def holds_symbols(x: Any, depth: int = 4) -> bool:
    """Whether it is, or a short sequence holds, a symbolic number, beside plain ones and nothing else."""
    c = type(x)
    if c is torch.SymInt or c is torch.SymFloat:
        return True
    if c not in SEQUENCES or depth == 0:
        return False
    items = unpack(x)
    return 0 < len(items) <= FEW and any([holds_symbols(v, depth - 1) for v in items]) and all([plain(v) for v in items])


def plain(x: Any) -> bool:
    return type(x) in WEAK or type(x) is bool or type(x) in SEQUENCES and all([plain(v) for v in unpack(x)])


def plain_device(device: Any) -> bool:
    if device is None:
        return torch.get_default_device().type == "cpu"
    return torch.device(device).type == "cpu"


def made_of(fn: Any, data: Any, dtype: Any, device: Any, requires_grad: Any, copies: bool) -> Any:
    """A tensor of an array, a scalar, or a sequence with some in it."""
    if not plain_device(device) or type(requires_grad) is not bool:
        raise Unsure("a device")
    if dtype is not None and type(dtype) is not torch.dtype:
        raise Unsure("a dtype")
    if requires_grad and LEAF in vm.refused:
        raise Unsure("a leaf, whose gradients the program may want")
    c = type(data)
    if c is TracedArray:
        if data.remake is not None:
            raise Unsure("negative strides")
        x = data.found
        if 0 in [n for n in x.sizes if type(n) is int]:
            raise Unsure("the strides of no elements")  # NumPy's are 0 for what it has allocated, and a slice keeps those of its base
        if not copies:
            as_mode_says(data, x)
        shared = t(ORIGINAL.detach, x)
        r = shared if dtype is None or dtype is x.dtype else t(ORIGINAL.to, x, dtype)
        if copies and r.storage_id == x.storage_id:
            r = t(torch.clone, x)
        elif r.storage_id == x.storage_id and r.offset is not (begins := beginning(x)):
            if PARTS in vm.refused:
                raise Unsure("a tensor over a part of an array: its storage begins where the part does")
            vm.trace.parts[r.vid] = begins
    elif c is TracedScalar or c in SCALARS:
        a = asarray(data)
        taken(data, dtype)
        r = a.tensor if dtype is None else converted(a, dtype)
    else:
        r = sequence(data, dtype)
    return t(ORIGINAL.requires_grad_, r, True) if requires_grad else r


def as_mode_says(a: Any, x: Any) -> None:
    """An array is of no mode: the first tensor over its memory is an inference tensor if it is made in inference mode."""
    trace, memory = vm.trace, x.storage_id
    if (memory in trace.of_inference) is not trace.inference:
        arrays = {id(other.found) for other in vm.world.arrays.values() if type(other) is TracedArray}
        if a.lent or memory in trace.shown or any([i.storage_id == memory and id(i) not in arrays for i in trace.inputs]):
            raise Unsure("a tensor over memory of which there are tensors that were made outside of inference mode, or inside")
        (trace.of_inference.add if trace.inference else trace.of_inference.discard)(memory)
    trace.shown.add(memory)


def beginning(x: Any) -> Any:
    """The offset of the array outside that this is the memory of, where the storage of the tensor that stands for it begins; else 0."""
    return next((a.found.offset for a in vm.world.arrays.values() if type(a) is TracedArray and a.found.storage_id == x.storage_id), 0)


def converted(x: Any, dtype: Any) -> Any:
    """A scalar or array as PyTorch goes through it: it makes a Python number of each scalar, and refuses what its C type does not hold."""
    dt = x.dtype
    if dtype is torch.uint64 or dt.name == "uint64":
        raise Unsure(f"a scalar of {dt} as {dtype}: PyTorch refuses some")
    if dtype is not torch.bool and not dtype.is_floating_point and not dtype.is_complex:
        if not np.can_cast(dt, str(dtype).removeprefix("torch.")):
            raise Unsure(f"a scalar of {dt} as {dtype}: PyTorch refuses some")
    elif dtype in NARROW and dt.kind in "iu":  # by way of a float of C
        return t(ORIGINAL.to, t(ORIGINAL.to, x.tensor, torch.float64), dtype)
    return t(ORIGINAL.to, x.tensor, dtype)


def taken(data: Any, dtype: Any) -> Any:
    """The dtype of a tensor of values of these types, as real torch says. Raises Unsure where it takes none of them."""
    with vm.trace.paused():
        try:
            return torch.tensor(probe(data), dtype=dtype).dtype
        except (RuntimeError, TypeError, ValueError) as e:
            raise Unsure(f"a tensor of scalars that PyTorch refuses ({e})") from None


def sequence(data: Any, dtype: Any) -> Any:
    """A tensor of a sequence with some in it."""
    return stacked(data, taken(data, dtype))


def probe(x: Any) -> Any:
    c = type(x)
    if c in SEQUENCES:
        return [probe(v) for v in unpack(x)]
    if c is TracedArray:
        return np.ones([1] * x.ndim, x.dtype)
    if c is TracedScalar:
        return x.dtype.type(1)
    if c in SCALARS or c in (bool, int, float, complex):
        return c(1)
    if c in WEAK:
        return WEAK[c](1)
    raise Unsure(f"a tensor made of a {c.__name__}")


NARROW = {torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64, torch.complex64: torch.complex128}
"""Dtypes whose fills refuse a number that is too large, and what holds each: of such a number `torch.tensor` makes infinity."""
EXACT = 53.0
"""Bits of the integers that a double has each. PyTorch asks what becomes a float for its double, whatever integer it is."""


def stacked(x: Any, dtype: torch.dtype) -> Any:
    c = type(x)
    if c in SEQUENCES:
        items = unpack(x)
        if not items:
            raise Unsure("an empty sequence")
        return t(torch.stack, [stacked(v, dtype) for v in items])
    if c is TracedArray or c is TracedScalar:
        return converted(x, dtype)
    if c in SCALARS:
        x = x.item()
    if type(x) is torch.SymInt and dtype.is_floating_point and bits(x.node.expr) > (EXACT if x.node.expr.backed else WORD):
        x = torch.sym_float(x)
    if type(x) in (float, torch.SymFloat) and dtype in NARROW:
        return t(ORIGINAL.to, t(torch.full, (), x, dtype=NARROW[dtype], device="cpu"), dtype)
    return t(torch.full, (), x, dtype=dtype, device="cpu")


def maker(fn: Any, impl: Any, first: str = "data") -> None:
    """A torch function that makes a tensor: of what is NumPy's by `impl`, of anything else by torch."""
    before = LOOKASIDES.get(fn)

    def look(args: tuple, kw: dict) -> Any:
        data = args[0] if args else kw.get(first)
        if type(data) in (TracedArray, TracedScalar) or holds_numpy(data):
            return compute(name_of(fn), impl, args, kw)
        if impl in (tensor, as_tensor) and holds_symbols(data):
            try:
                return impl(*args, **kw)
            except (Unsure, TypeError):  # torch says what is wrong
                pass
        return before(args, kw) if before is not None else graph_call(fn, args, kw)

    LOOKASIDES[fn] = look


def tensor(data: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False) -> Any:
    return made_of(torch.tensor, data, dtype, device, requires_grad, True)


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    return made_of(torch.as_tensor, data, dtype, device, False, False)


def torch_asarray(obj: Any, *, dtype: Any = None, device: Any = None, copy: Any = None, requires_grad: bool = False) -> Any:
    if copy is False or type(obj) is not TracedArray:
        raise Unsure("copy=")
    return made_of(torch.asarray, obj, dtype, device, requires_grad, copy is True)


def from_numpy(ndarray: Any) -> Any:
    if type(ndarray) is not TracedArray or not ndarray.writeable:
        raise Unsure("an array that may only be read: PyTorch warns")
    return made_of(torch.from_numpy, ndarray, None, None, False, False)


maker(torch.tensor, tensor)
maker(torch.as_tensor, as_tensor)
maker(torch.asarray, torch_asarray, "obj")
maker(torch.from_numpy, from_numpy, "ndarray")


# -- methods of tensors -----------------------------------------------------------------------------------------------------
def numpy(x: Any, args: tuple, kw: dict) -> Any:
    if globalstate.heard():
        raise Break(CODE, "numpy() of a tensor, of which a mode is told", clean=True)
    return compute("Tensor.numpy", tensor_numpy, (x, *args), kw)


def tensor_numpy(x: Any, *, force: bool = False) -> Any:
    """The array over the memory of a tensor; forced, of what NumPy can read of it."""
    if type(force) is not bool:
        raise Unsure("force= that is no bool")
    if force and x.device.type == "cpu":
        for forced in (ORIGINAL.detach, ORIGINAL.resolve_conj, ORIGINAL.resolve_neg):
            x = t(forced, x)
    return lent(x)


def array_protocol(x: Any, args: tuple, kw: dict) -> Any:
    return compute("Tensor.__array__", lambda *a: asarray(x, *a), args, kw)


PLAIN_KINDS = (torch.Tensor, torch.nn.Parameter)
NEW_TENSOR = {"data", "dtype", "device", "requires_grad"}


def new_of_list(x: Any, data: list, kw: dict) -> Any:
    """`x.new_tensor(data)` of a list of numbers that is one input of the graph, or None."""
    dtype, device = kw.get("dtype") or x.dtype, kw.get("device") or x.device
    if type(dtype) is not torch.dtype or not number_lists.on_cpu(device) or not kw.keys() <= NEW_TENSOR or kw.get("requires_grad"):
        return None
    return number_lists.tensor_of(data, dtype)


def new_tensor(x: Any, args: tuple, kw: dict) -> Any:
    data = args[0] if args else kw.get("data")
    if type(data) is list and type(x) is TracedTensor and x.pytype in PLAIN_KINDS and len(args) + ("data" in kw) == 1:
        if (made := new_of_list(x, data, kw)) is not None:
            return made
    if holds_symbols(data) and type(x) is TracedTensor and x.pytype in PLAIN_KINDS and len(args) <= 1 and kw.keys() <= NEW_TENSOR:
        kinds = {k: kw.get(k, getattr(x, k)) for k in ("dtype", "device")}
        return call(torch.tensor, (data,), kinds | {"requires_grad": kw.get("requires_grad", False)})
    if not holds_numpy(data):
        return graph_call(ORIGINAL.new_tensor, (x, *args), kw, "new_tensor")
    if type(data) is not TracedArray or len(args) != 1 or kw or x.device.type != "cpu":
        raise Break(CODE, "new_tensor of scalars of NumPy", clean=True)
    if type(x) is not TracedTensor or x.pytype not in PLAIN_KINDS:  # what is made is of the class of `x`
        raise Break(CODE, "new_tensor of an array, of a tensor of a class", clean=True)
    return compute("Tensor.new_tensor", made_of, (torch.tensor, data, x.dtype, None, False, True), {})


METHOD_LOOKASIDES[(torch.Tensor, "numpy")] = numpy
METHOD_LOOKASIDES[(torch.Tensor, "__array__")] = array_protocol
METHOD_LOOKASIDES[(torch.Tensor, "new_tensor")] = new_tensor
_ = TracedTensor, fresh
