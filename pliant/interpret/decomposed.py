"""Operators that are interpreted as the decompositions of `in_torch.py`, where a size is open that PyTorch's C++ code would pin."""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable
from typing import Any

from torch._higher_order_ops import wrap as wraps
from torch._higher_order_ops.hints_wrap import HintsWrapper
from torch._higher_order_ops.out_dtype import ALLOWABLE_OPS, OutDtypeOperator, out_dtype
from torch.nn.utils import stateless

from pliant.graph.originals import ORIGINAL, math, operator, torch
from pliant.graph.traced import TracedTensor, tensors_of
from pliant.interpret import in_torch, process_state
from pliant.interpret.attributes import lookup
from pliant.interpret.calls import METHOD_LOOKASIDES, graph_call, inline
from pliant.interpret.lookasides import lookaside
from pliant.interpret.opcodes_build import is_sequence
from pliant.interpret.slots import delitem
from pliant.interpret.state import Break, vm
from pliant.interpret.world import TENSOR_TYPES
from pliant.interpret.wrappers import is_stand


def is_open(values: Any) -> bool:
    """Whether a tensor among these has a size that is not a number."""
    return any([type(v) is TracedTensor and not is_stand(v) and any([type(n) is not int for n in v.sizes]) for v in values])


def decomposed(name: str, own: Callable[..., Any]) -> None:
    """`torch.name` and `Tensor.name`. What the function is not for goes to PyTorch, which says so in its words."""
    takes = inspect.signature(own).parameters
    operands = [n for n, p in takes.items() if p.default is p.empty]

    def call(fn: Any, args: tuple, kw: dict) -> Any:
        given = dict(zip(takes, args)) | kw
        fits = len(args) <= len(takes) and given.keys() <= takes.keys() and all([type(given.get(n)) is TracedTensor for n in operands])
        if fits and is_open(given.values()):
            try:
                return inline(own, args, kw)
            except in_torch.Refused:
                pass
        return graph_call(fn, args, kw)

    function, method = getattr(torch, name), getattr(torch.Tensor, name, None)  # the program may put others there
    lookaside(function)(lambda args, kw: call(function, args, kw))
    if method is not None:
        METHOD_LOOKASIDES[(torch.Tensor, name)] = lambda t, args, kw: call(method, (t, *args), kw)


decomposed("take_along_dim", in_torch.take_along_dim)
decomposed("kron", in_torch.kron)
decomposed("masked_select", in_torch.masked_select)
decomposed("sgn", in_torch.sgn)
decomposed("cov", in_torch.cov)
decomposed("corrcoef", in_torch.corrcoef)


@lookaside(torch._C._nn.pad_sequence)
def l_pad_sequence(args: tuple, kw: dict) -> Any:
    """C++ copies each into its place, which broadcasts; of a traced tensor it puts them there otherwise, which does not."""
    rows, value = args[0] if args else kw.get("sequences"), args[2] if len(args) > 2 else kw.get("padding_value", 0.0)
    if type(rows) in (list, tuple) and rows and all([type(r) is TracedTensor for r in rows]) and len({len(r.sizes) for r in rows}) == 1:
        if not all([vm.truth(a == b) for r in rows[1:] for a, b in zip(rows[0].sizes[1:], r.sizes[1:], strict=True)]):
            raise Break("PL0030", "pad_sequence of tensors of different widths", clean=True)
        if not rows[0].dtype.is_signed and value not in range(256):
            raise Break("PL0030", "pad_sequence with a number that its dtype may not have", clean=True)
        if decomposes_padding(rows, *args[1:], **kw):
            return inline(in_torch.pad_sequence, args, kw)
    return graph_call(torch._C._nn.pad_sequence, args, kw)


def decomposes_padding(rows: Any, batch_first: Any = False, padding_value: Any = 0.0, padding_side: Any = "right", **other: Any) -> bool:
    """Whether `in_torch.pad_sequence` does what C++ does: rows of one kind, of lengths that are not all numbers."""
    one = rows[0]
    if other or len(rows) == 1 or not one.sizes or padding_side not in ("left", "right") or type(batch_first) is not bool:
        return False
    alike = all([(r.dtype, r.device, r.layout) == (one.dtype, one.device, one.layout) and not is_stand(r) for r in rows])
    fits = type(padding_value) in (int, float) and (one.dtype.is_floating_point or float(padding_value).is_integer())
    return alike and fits and any([type(r.sizes[0]) is not int for r in rows])


@lookaside(operator.delitem)
def l_delitem(args: tuple, kw: dict) -> None:
    delitem(*args)


@lookaside(out_dtype, OutDtypeOperator.__call__)
def l_out_dtype(args: tuple, kw: dict) -> Any:
    values = args[1:] if args and args[0] is out_dtype else args
    try:
        if lookup(torch.Tensor, "to") is not ORIGINAL.to:  # which the library calls for parts
            raise in_torch.Refused
        if kw or len(values) < 2 or values[0] not in ALLOWABLE_OPS or type(values[1]) is not torch.dtype:
            raise in_torch.Refused
        return inline(in_torch.out_dtype, tuple(values), {})
    except in_torch.Refused:
        raise Break("PL0030", "out_dtype of what is not decomposed here", clean=True) from None


def wrapper(cls: type, own: Callable[..., Any]) -> None:
    """A higher-order operator that runs a function as it is."""

    def call(args: tuple, kw: dict) -> Any:
        if any([t.pytype not in TENSOR_TYPES for t in tensors_of([args, kw])]):
            raise Break("PL0030", f"{cls.__name__} of tensors of a class, which is told of it", clean=True)
        try:
            return inline(own, args, kw)
        except in_torch.Refused:
            raise Break("PL0030", f"{cls.__name__} of what is not decomposed here", clean=True) from None

    lookaside(cls.__call__)(call)


wrapper(wraps.Wrap, in_torch.wrap)
wrapper(wraps.WrapWithSetGradEnabled, in_torch.wrap_with_set_grad_enabled)
wrapper(wraps.WrapWithAutocast, in_torch.wrap_with_autocast)
wrapper(wraps.DynamoBypassingWrapper, in_torch.bypassing_wrapper)
wrapper(HintsWrapper, in_torch.hints_wrapper)


@lookaside(torch.compile)
def l_compile(args: tuple, kw: dict) -> Any:
    """Inside of what is compiled, what a function compiles is captured with the rest."""
    model = args[0] if args else kw.get("model")
    if len(args) > 1 or model is not None and type(model) not in (types.FunctionType, types.MethodType):
        raise Break("PL0030", "torch.compile of what is no function", clean=True)
    return in_torch.itself if model is None else model


@lookaside(torch.set_anomaly_enabled)
def l_anomaly(args: tuple, kw: dict) -> None:
    """Switching off what is off."""
    now = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    given = {"check_nan": True} | dict(zip(("mode", "check_nan"), args)) | kw
    if (given.get("mode"), given["check_nan"]) != now or now[0]:
        raise Break("PL0037", "torch.set_anomaly_enabled", clean=True)
    for getter, answer in zip((torch.is_anomaly_enabled, torch.is_anomaly_check_nan_enabled), now):
        process_state.question(getter, (), {}, answer)


METHOD_LOOKASIDES[(torch.Size, "numel")] = lambda size, args, kw: math.prod(size)


# -- torch.tensor of lists that hold tensors ------------------------------------------------------------------------------------
NUMBERS = {bool: torch.bool, torch.SymBool: torch.bool, int: torch.int64, torch.SymInt: torch.int64}


def leaves(data: Any) -> tuple[list, tuple] | None:
    """The values in nested lists, and the sizes of the tensor that they make; None where PyTorch would not make one of them."""
    if type(data) not in (list, tuple):
        return [data], ()
    parts = [leaves(x) for x in data]
    if not parts or any([p is None or p[1] != parts[0][1] for p in parts]):  # type: ignore[index]
        return None
    return [v for found, _ in parts for v in found], (len(parts), *parts[0][1])  # type: ignore[misc, index]


def dtype_of(v: Any) -> Any:
    """What PyTorch takes a value in a list to be; None for what it reads in another way."""
    if type(v) in (float, torch.SymFloat):
        return torch.get_default_dtype()
    if type(v) is not TracedTensor:
        return NUMBERS.get(type(v))
    plain = v.pytype is torch.Tensor and not is_stand(v) and not v.sizes and not v.requires_grad and v.device.type == "cpu"
    return v.dtype if plain and not v.dtype.is_complex else None


def tensors_are_sequences() -> bool:
    """Whether C code takes a tensor for a sequence. It does from when `torch.Tensor.__getitem__` has once been set, for ever.

    `torch.tensor` then asks a tensor of no dims for its length, and raises.
    """
    return bool(is_sequence(torch.empty(())))


def made_of_list(fn: Any, args: tuple, kw: dict) -> Any:
    """`torch.tensor` and `torch.as_tensor`: those of lists with tensors in them are decomposed."""
    found = leaves(args[0]) if len(args) == 1 and type(args[0]) in (list, tuple) and kw.keys() <= {"dtype", "device"} else None
    modes = torch._C._len_torch_function_stack() or torch.utils._device.CURRENT_DEVICE is not None
    device = kw.get("device")
    here = device is None or type(device) in (str, torch.device) and torch.device(device) == torch.device("cpu")
    if found is None or modes or not here or not any([type(v) is TracedTensor for v in found[0]]):
        return graph_call(fn, args, kw)
    dtypes = [dtype_of(v) for v in found[0]]
    if None in dtypes:
        return graph_call(fn, args, kw)
    if tensors_are_sequences():
        raise Break("PL0003", f"torch.{fn.__name__}() of tensors that have become sequences", clean=True)
    process_state.question(tensors_are_sequences, (), {}, False)
    common = functools.reduce(torch.promote_types, dtypes)
    dtype = kw.get("dtype") or common
    if not dtype.is_floating_point and (dtype != common or not set(dtypes) <= {common}):
        return graph_call(fn, args, kw)  # Python numbers on their way to integers: some do not fit
    return inline(in_torch.tensor_of, (found[0], dtype, found[1]), {})


for _fn in (torch.tensor, torch.as_tensor):
    lookaside(_fn)(functools.partial(made_of_list, _fn))


@lookaside(stateless._untie_named_tensors_map)
def l_untied(args: tuple, kw: dict) -> Any:
    try:
        return inline(in_torch.untied, args, kw)
    except in_torch.Refused:
        return inline(stateless._untie_named_tensors_map, args, kw)
