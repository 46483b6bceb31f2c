"""The native core: guards, entries of code objects, entry points and the frame hook, in C++.

Importing this package imports torch and connects the core to it: where tensors keep their metadata (`probe.py`), how torch's global
state is read, which tensor types run no user code. Where a connection cannot be made the core asks Python instead, through the
functions below: slower, never wrong.

Names (all of `pliant.native._core`):
- `Guard` (made by `pliant.guards.program.compile_guards`), `global_state()` -> `GlobalState`;
- `Leave(fn, state)`: raised by a target at a side exit, it makes the frame go on as `fn(state)`, without the target's own frame;
- `Again(judge)`: raised by a target that has done nothing yet, it makes the frame run in CPython; the judge hears how that went;
- `Launcher(address, itemsizes, sizes, owner)`: calls a compiled kernel, or a segment of them, with tensors and sizes;
- `MachineCode(image, addresses of imports)`: machine code in memory, while the object lives;
- `empty_of(dtype)`: memory for their results; `Empty(number of a dtype, fallback)` is what it makes; `mask_positions(mask)`: its `nonzero`;
- `arena_functions()`, `arena_bytes()`, `set_arena_limit(bytes)`: the memory of segments;
  `gemm_function(...)`, `attention_function(...)`, `convolution_function()`, `int8_functions(...)`: what they call;
  `own_products()`, `set_pool(...)`: how that is computed;
- `OPS`, `POSTFIX`, `WAYS`, `PRODUCT_FLAGS`, `RECURRENT_FLAGS`, `FAILURES`, `OUT_OF_MEMORY`, `ALIGNMENT`, `MOST_ARGUMENTS`:
  what Python and C++ both know (`shared.h`, `program.h`);
- `decode_units(bytecode, rows, pools, extended_arg)`: instructions with their operands (`bytecode/decode.py`);
- `entries(code)`, `add_entry(code, guard, target, front=True, info=None)`, `remove_entry(code, entry)`, `clear(code)`,
  `set_flags(code, SKIP | SKIP_RECURSIVE | RUN_ONLY | PASS)`, `get_flags(code)`;
- `EntryPoint(fn, miss, verify, trial, origin, follow)`: `verify` gets a share of the calls, `trial` says which are timed or run as they
  are; `follow(fn, origin)` is called where `origin`, whose twin `fn` is, has other code or defaults than before;
  `set_enabled(bool)`, `push_disabled()`, `pop_disabled()`,
  `is_enabled()`, `counters()`, `reset_counters()`;
- `unwritten(original, copy, located, mark)`: nothing was stored in a copied dict but what was put there (`interpret/effects.py`);
- while `torch.profiler` records, each run of an entry or a kernel is an event of its own (`marks.cpp`);
- `same_names(dict or class, names, values)`, `same_code(functions, codes)`: a namespace is what it was (`namespaces.c`);
- `places_in_set(s)`, `set_of(members, places, hashes, frozen)`, `set_become(...)`, `set_clone(s)`: where members lie (`sets.cpp`);
- `layouts(*tensors)`, `places(*tensors)`: what compiled code knows of tensors, as bytes; the latter with the addresses of their memory;
- `ByIdentity(fn)`: a function of one object whose answers are kept (`by_identity.cpp`);
- `has_end(value)`: when the last reference to it goes, code may run;
- `set_mode(OFF | RUN | CAPTURE)`, `get_mode()`, `call_in_mode(mode, fn, args, kwargs)`, `call_below(cb, fn, *args, **kwargs)`,
  `set_run_callback(cb)`, `set_capture_callback(cb, classify)`, `reset_classes()`, `call_captured(fn, args, kwargs)`, `hook_installed()`.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import get_default_dtype, is_grad_enabled, is_inference_mode_enabled
from torch.autograd import forward_ad, profiler
from torch.utils._device import DeviceContext

from pliant.native import _core
from pliant.native._core import (
    ALIGNMENT,
    CAPTURE,
    FAILURES,
    MOST_ARGUMENTS,
    OFF,
    OPS,
    OUT_OF_MEMORY,
    PASS,
    POSTFIX,
    PRODUCT_FLAGS,
    RECURRENT_FLAGS,
    RUN,
    RUN_ONLY,
    SKIP,
    SKIP_RECURSIVE,
    WAYS,
    Again,
    ByIdentity,
    Empty,
    Entry,
    EntryPoint,
    GlobalState,
    Guard,
    Launcher,
    Leave,
    MachineCode,
    add_entry,
    arena_bytes,
    arena_functions,
    attention_function,
    call_below,
    call_captured,
    call_in_mode,
    clear,
    convolution_function,
    counters,
    decode_units,
    entries,
    gemm_function,
    generic_attributes,
    get_flags,
    get_mode,
    global_state,
    has_end,
    hook_installed,
    int8_functions,
    is_enabled,
    layouts,
    lstm_functions,
    made_in_python,
    number,
    own_products,
    places,
    places_in_set,
    pop_disabled,
    push_disabled,
    remove_entry,
    reset_classes,
    reset_counters,
    same_code,
    same_names,
    set_arena_limit,
    set_become,
    set_capture_callback,
    set_clone,
    set_enabled,
    set_flags,
    set_mode,
    set_of,
    set_pool,
    set_run_callback,
    take_slots,
    unwritten,
)
from pliant.native.probe import DTYPES, LIBC10, LIBTORCH, install_allocator, install_layout

__all__ = [
    "ALIGNMENT", "CAPTURE", "FAILURES", "MOST_ARGUMENTS", "OFF", "OPS", "OUT_OF_MEMORY", "PASS", "POSTFIX", "PRODUCT_FLAGS",
    "RECURRENT_FLAGS", "RUN", "RUN_ONLY", "SKIP", "SKIP_RECURSIVE", "WAYS", "Again", "ByIdentity", "Entry", "EntryPoint", "FAST_EMPTY",
    "FAST_STATE", "FAST_TENSORS", "GlobalState", "Guard", "Launcher", "Leave", "MachineCode", "add_entry", "arena_bytes", "arena_functions",
    "call_below",
    "attention_function", "call_captured", "call_in_mode", "clear", "convolution_function", "counters", "decode_units", "empty_of",
    "entries", "gemm_function", "generic_attributes", "get_flags", "get_mode", "global_state", "has_end", "hook_installed",
    "int8_functions", "is_enabled", "layouts", "lstm_functions", "made_in_python", "mask_positions", "number", "own_products", "places",
    "places_in_set",
    "plain_tensor", "pop_disabled", "push_disabled", "remove_entry", "reset_classes", "reset_counters", "same_code", "same_names",
    "set_arena_limit", "set_become", "set_capture_callback", "set_clone", "set_enabled", "set_flags", "set_mode", "set_of",
    "set_pool", "set_run_callback", "share_memory",
    "take_slots", "tensor_number", "unwritten",
]  # fmt: skip

PLAIN_DEVICES = frozenset(("cpu", "cuda", "meta"))  # their tensors keep sizes and strides in TensorImpl itself


class Same:
    """Compares by identity, whatever `==` its object defines."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __eq__(self, other: object) -> bool:
        return type(other) is Same and other.obj is self.obj

    def __hash__(self) -> int:
        return id(self.obj)


FUNCTION_MODES = torch._C._len_torch_function_stack, torch._C._get_function_stack_at  # the program may replace them
DISPATCH_MODES = torch._C._len_torch_dispatch_stack, torch._C._get_dispatch_stack_at


def modes_key() -> tuple:
    """The active torch-function and dispatch modes. A device context equals any other for the same device, if both or neither are that of
    the default device: it goes when another default is set."""
    count, at = FUNCTION_MODES
    stack: list[Any] = [at(i) for i in range(count())]
    default = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    below = None if default is None else (str(default.device), default.prev_mode is None)  # perhaps another stands in its place
    functions = tuple(("device", str(m.device), m is default, below) if type(m) is DeviceContext else Same(m) for m in stack)
    count, at = DISPATCH_MODES
    dispatch = tuple(Same(at(i)) for i in range(count()))
    return functions, dispatch


def slow_state() -> tuple:
    """Everything that `GlobalState` holds, through torch's Python functions: used when libtorch's symbols are not found."""
    devices = ("cpu", "cuda")
    return (
        is_grad_enabled(),
        is_inference_mode_enabled(),
        get_default_dtype(),
        tuple((torch.is_autocast_enabled(d), torch.get_autocast_dtype(d)) for d in devices),
        torch.is_autocast_cache_enabled(),
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
        torch._C._is_torch_function_enabled(),
        torch._C._is_torch_function_all_disabled(),
        torch._C._dispatch_tls_local_include_set().raw_repr(),
        torch._C._dispatch_tls_local_exclude_set().raw_repr(),
        torch.is_anomaly_enabled(),
        torch._C._autograd._top_saved_tensors_default_hooks(True) is not None,
        forward_ad._current_level >= 0,
        modes_key(),
    )


_plain_keys: dict[int, bool] = {}


def plain_tensor(t: torch.Tensor) -> bool:
    """May this tensor's metadata be read from memory? Tensors with the same dispatch keys answer alike."""
    if not FAST_TENSORS:
        return False
    keys = torch._C._dispatch_keys(t)
    raw = keys.raw_repr()
    plain = _plain_keys.get(raw)
    if plain is None:
        has = keys.has
        key = torch._C.DispatchKey
        odd = any(has(k) for k in (key.Python, key.PythonTLSSnapshot, key.Functionalize, key.FuncTorchBatched, key.FuncTorchGradWrapper))
        plain = not odd and t.layout is torch.strided and not t.is_nested and not t.is_quantized and t.device.type in PLAIN_DEVICES
        _plain_keys[raw] = plain
    return plain


BASE = torch._C.TensorBase  # a program may replace methods of `torch.Tensor`


def tensor_number(t: Any, what: int, dim: int) -> int | None:
    """Size (0), stride (1) of a dim, or storage offset (2), through Python; None when there is none."""
    if not isinstance(t, torch.Tensor):
        return None
    with torch._C.DisableTorchFunction():
        if what == 2:
            return BASE.storage_offset(t)
        values = t.shape if what == 0 else BASE.stride(t)
        return values[dim] if dim < len(values) else None


def match_slowly(t: Any, spec: Any) -> bool:
    """TENSOR_MATCH through Python attributes. `spec` is `(TensorSpec, dispatch keys, layout, conj, neg)`."""
    want, keys, layout, conj, neg = spec
    if type(t) is not want.pytype:
        return False
    with torch._C.DisableTorchFunction():
        if torch._C._dispatch_keys(t).raw_repr() != keys or (t.layout, BASE.is_conj(t), BASE.is_neg(t)) != (layout, conj, neg):
            return False
        if t.dtype is not want.dtype or t.device != want.device or t.requires_grad is not want.requires_grad or t.ndim != want.ndim:
            return False
        if any(w is not None and w != s for w, s in zip(want.sizes, t.shape, strict=True)):
            return False
        if layout is not torch.strided or all(w is None for w in want.strides):
            return True
        return not any(w is not None and w != s for w, s in zip(want.strides, BASE.stride(t), strict=True))


def spread(fn: Any, frame_args: tuple) -> tuple[tuple, dict]:
    """The arguments of the call of `fn` that starts its frame with these arguments."""
    code = fn.__code__
    n, m = code.co_argcount, code.co_kwonlyargcount
    rest = list(frame_args[n + m :])
    more = rest.pop(0) if code.co_flags & 4 else ()
    keywords = dict(zip(code.co_varnames[n : n + m], frame_args[n : n + m], strict=True))
    return (*frame_args[:n], *more), keywords | (rest[0] if rest else {})


def share_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Do the address ranges of two tensors meet? What the flags of a STORAGE_OVERLAP guard say."""
    ranges = []
    for t in (a, b):
        if BASE.numel(t) == 0:
            return False
        storage = BASE.untyped_storage(t)
        base = storage.data_ptr() or storage._cdata
        lo = base + BASE.storage_offset(t) * BASE.element_size(t)
        ranges.append((lo, lo + (1 + sum((n - 1) * s for n, s in zip(t.shape, BASE.stride(t), strict=True))) * BASE.element_size(t)))
    (lo_a, hi_a), (lo_b, hi_b) = ranges
    return lo_a < hi_b and lo_b < hi_a


@functools.cache
def empty_of(dtype: torch.dtype) -> Any:
    """`torch.empty` of this dtype on the CPU, called with the sizes one by one: a quarter of the time."""
    return Empty(DTYPES[dtype], functools.partial(torch.empty, dtype=dtype, device="cpu"))


def mask_positions(mask: torch.Tensor) -> torch.Tensor:
    """`mask.nonzero()` of a tensor on the CPU."""
    rows = _core.positions(mask)
    return BASE.nonzero(mask) if rows is None else BASE.t(rows)


FAST_TENSORS: bool = install_layout()
FAST_STATE: bool = _core.set_state_source(LIBC10, LIBTORCH, modes_key, slow_state, forward_ad.__dict__)
FAST_EMPTY: bool = install_allocator()
_core.watch_profiler(profiler.__dict__, "_is_profiler_enabled", torch._C._profiler._RecordFunctionFast)
_core.set_spread(spread)
_core.set_tensor_readers(match_slowly, tensor_number)
_core.set_tensor_type(torch.Tensor, (torch.Tensor.__dict__["__torch_function__"], torch.nn.Parameter.__dict__["__torch_function__"]))
