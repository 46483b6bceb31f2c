"""The call policy: what happens when the program calls something. Explicit tables, most specific first.

Kinds: `inline` (interpret its bytecode), `native` (CPython runs it on real objects: pure on what it is given), `graph` (a torch
function: run on traced tensors and recorded), `skip` (graph break). Replacements live in `lookasides.py` and win over all.
"""

from __future__ import annotations

import enum
import functools
import operator
import os
import types
from typing import Any

import torch

from pliant.interpret.immutable import IMMUTABLE

HEAPTYPE = 1 << 9

# -- the user's doors ------------------------------------------------------------------------------------
_by_user: dict[int, tuple[Any, str]] = {}


def set_kind(fn: Any, kind: str) -> None:
    """`pliant.skip`, `pliant.inline`, `pliant.allow_in_graph`, `pliant.disable`: the user's word wins."""
    _by_user[id(fn)] = (fn, kind)
    code = getattr(fn, "__code__", None)
    if code is not None:
        _by_user[id(code)] = (code, kind)
    python_kind.cache_clear()


def user_kind(fn: Any) -> str | None:
    r = _by_user.get(id(fn))
    return r[1] if r is not None else None


# -- Python functions, by module ------------------------------------------------------------------------
# The longest prefix wins; "torch.nn" covers "torch.nn.x" and "torch.nn" itself.
MODULES: dict[str, str] = {
    "torch": "native",
    "torch.nn.functional": "graph",
    "torch.functional": "graph",
    "torch._tensor": "graph",
    "torch.special": "graph",
    "torch.linalg": "graph",
    "torch.fft": "graph",
    "torch.nn": "inline",
    "torch.nn.init": "graph",
    "torch.nn.utils.rnn": "skip",
    "torch.nn.parameter": "skip",
    "torch.nn.parallel": "skip",
    "torch.nn.attention.flex_attention": "skip",
    "torch.autograd": "skip",
    "torch.autograd.grad_mode": "inline",
    "torch.amp.autocast_mode": "inline",
    "torch.cpu.amp": "inline",
    "torch.utils._contextlib": "inline",
    "torch.utils._pytree": "inline",
    "torch.utils.checkpoint": "inline",
    "torch.utils.data": "skip",
    "torch.utils.hooks": "skip",
    "torch.distributions": "inline",
    "torch.optim": "inline",
    "torch._ops": "graph",
    "torch._library": "skip",
    "torch.library": "skip",
    "torch.random": "skip",
    "torch.serialization": "skip",
    "torch.storage": "skip",
    "torch.multiprocessing": "skip",
    "torch.distributed": "skip",
    "torch.fx": "skip",
    "torch._dynamo": "skip",
    "torch._inductor": "skip",
    "torch._functorch": "skip",
    "torch._higher_order_ops": "skip",
    "torch.func": "skip",
    "torch.nested": "skip",
    "torch.sparse": "skip",
    "torch.profiler": "skip",
    "torch.autograd.profiler": "skip",
    "torch.hub": "skip",
    "torch.testing": "skip",
    "torch.jit": "native",
    "torch.cuda": "native",
    "torch.cuda.memory": "skip",
    "torch.cuda.streams": "skip",
    "torch.cuda.random": "skip",
    # the standard library
    "enum": "native",
    "typing": "native",
    "abc": "native",
    "re": "native",
    "inspect": "native",
    "types": "native",
    "numbers": "native",
    "string": "native",
    "textwrap": "native",
    "keyword": "native",
    "posixpath": "native",
    "genericpath": "skip",
    "importlib": "native",
    "sre_compile": "native",
    "sre_parse": "native",
    "fractions": "native",
    "decimal": "native",
    "_pydecimal": "native",
    "datetime": "skip",
    "calendar": "native",
    "uuid": "skip",
    "os": "skip",
    "pathlib": "skip",
    "shutil": "skip",
    "subprocess": "skip",
    "threading": "skip",
    "queue": "skip",
    "concurrent": "skip",
    "multiprocessing": "skip",
    "asyncio": "skip",
    "socket": "skip",
    "selectors": "skip",
    "signal": "skip",
    "random": "skip",
    "secrets": "skip",
    "tempfile": "skip",
    "io": "skip",
    "codecs": "skip",
    "pickle": "skip",
    "json": "skip",
    "csv": "skip",
    "logging": "skip",
    "warnings": "skip",
    "traceback": "skip",
    "linecache": "skip",
    "pdb": "skip",
    "bdb": "skip",
    "unittest": "skip",
    "pytest": "skip",
    "_pytest": "skip",
    "weakref": "skip",
    "gc": "skip",
    "ctypes": "skip",
    "contextvars": "skip",
    "time": "skip",
    "timeit": "skip",
    "ast": "skip",
    "dis": "skip",
    "numpy": "skip",
    "scipy": "skip",
    "pandas": "skip",
    "PIL": "skip",
    "packaging": "native",
    "transformers.utils.logging": "native",
    "transformers.utils.import_utils": "native",
    "huggingface_hub": "skip",
    "pliant": "skip",
}

FUNCTIONS: dict[Any, str] = {
    torch.autograd.grad: "graph",
    torch.is_tensor: "native",
    torch.manual_seed: "skip",
    torch.set_default_dtype: "skip",
    torch.set_default_device: "skip",
    torch.set_default_tensor_type: "skip",
    torch.use_deterministic_algorithms: "skip",
    torch.set_num_threads: "skip",
    torch.utils._pytree.tree_map_only: "inline",
    torch.nn.parameter.is_lazy: "native",
    torch.nn.Module.register_forward_hook: "skip",
    torch.nn.Module.register_forward_pre_hook: "skip",
    torch.nn.Module.to: "skip",
    torch.nn.Module._apply: "skip",
    torch.nn.Module.load_state_dict: "skip",
    torch.nn.Module.state_dict: "skip",
    torch.optim.Optimizer.zero_grad: "skip",
}  # fmt: skip


def module_rule(module: str | None) -> str | None:
    """The row of `MODULES` for a module name."""
    while module:
        r = MODULES.get(module)
        if r is not None:
            return r
        module = module.rpartition(".")[0]
    return None


@functools.lru_cache(maxsize=None)
def python_kind(fn: Any) -> str:
    """The kind of a Python function."""
    r = user_kind(fn) or user_kind(fn.__code__)
    if r is not None:
        return r
    r = FUNCTIONS.get(fn)
    if r is not None:
        return r
    if fn.__code__.co_flags & 0x280:
        return "skip"  # coroutines and async generators
    return module_rule(fn.__globals__.get("__name__")) or "inline"


# -- C functions, by module ------------------------------------------------------------------------------
C_MODULES: dict[str, str] = {
    "math": "native", "cmath": "native", "_operator": "native", "operator": "native", "itertools": "native", "_functools": "native",
    "functools": "native", "_collections": "native", "collections": "native", "_bisect": "native", "_heapq": "native", "_struct": "native",
    "_sre": "native", "_string": "native", "unicodedata": "native", "_statistics": "native", "_abc": "native", "_typing": "native",
    "_json": "native", "_decimal": "native", "binascii": "native", "zlib": "native", "_hashlib": "native", "builtins": "native",
    "types": "native", "_stat": "native", "_tokenize": "native", "optree._C": "skip",
}  # fmt: skip

BUILTINS_SKIPPED = {"open", "input", "exec", "eval", "compile", "__build_class__", "breakpoint", "exit", "quit", "dir", "memoryview", "help"}
SYS_NATIVE = {"intern", "getrecursionlimit", "getdefaultencoding", "getfilesystemencoding", "is_finalizing", "audit"}

# torch._C._VariableFunctions that are no operators on what they are given
GRAPH_EXCEPTIONS: dict[str, str] = {
    **dict.fromkeys(
        (
            "from_file", "frombuffer", "from_numpy", "sparse_coo_tensor", "sparse_csr_tensor", "sparse_csc_tensor", "sparse_bsr_tensor",
            "sparse_bsc_tensor", "sparse_compressed_tensor", "_sparse_coo_tensor_unsafe", "nested_tensor", "seed", "asarray", "_sync",
            "_to_functional_tensor", "_from_functional_tensor", "_enable_functionalization", "_disable_functionalization", "resize_as_",
            "quantize_per_tensor", "quantize_per_channel", "set_",
        ),
        "skip",
    ),
    **dict.fromkeys(
        (
            "is_floating_point", "is_complex", "is_signed", "is_conj", "is_neg", "is_inference", "is_nonzero_", "is_distributed",
            "is_same_size", "is_vulkan_available", "promote_types", "result_type", "can_cast", "numel", "get_device", "_is_zerotensor",
            "_has_compatible_shallow_copy_type", "_use_cudnn_ctc_loss", "_debug_has_internal_overlap", "_cudnn_rnn_flatten_weight",
            "_fused_sdp_choice", "_nnpack_available", "cudnn_is_acceptable", "_is_functional_tensor", "sym_numel",
        ),
        "native",
    ),
}  # fmt: skip

GRAPH_NAMESPACES = ("_VariableFunctions", "_nn", "_linalg", "_special", "_fft")
_graph_functions: set[int] = set()
for _space in GRAPH_NAMESPACES:
    _owner = getattr(torch._C, _space)
    for _name in dir(_owner):
        _f = getattr(_owner, _name)
        if callable(_f) and not _name.startswith("__"):
            _graph_functions.add(id(_f))
for _name in dir(torch):  # the public names are other objects than those of _VariableFunctions
    _f = getattr(torch, _name)
    if type(_f) is types.BuiltinFunctionType and hasattr(torch._C._VariableFunctions, _name):
        _graph_functions.add(id(_f))

# torch._C: readers and setters of state that `globalstate` saves, and pure predicates
TORCH_C_NATIVE = {
    "_set_grad_enabled", "is_grad_enabled", "get_default_dtype", "is_autocast_enabled", "set_autocast_enabled",
    "get_autocast_dtype", "set_autocast_dtype", "is_autocast_cache_enabled", "set_autocast_cache_enabled", "autocast_increment_nesting",
    "autocast_decrement_nesting", "clear_autocast_cache", "is_autocast_cpu_enabled", "set_autocast_cpu_enabled", "get_autocast_cpu_dtype",
    "set_autocast_cpu_dtype", "get_autocast_gpu_dtype", "set_autocast_gpu_dtype", "is_any_autocast_enabled", "is_inference_mode_enabled",
    "_log_api_usage_once", "_get_tracing_state", "_is_tracing", "_get_deterministic_algorithms", "_set_deterministic_algorithms",
    "_get_deterministic_algorithms_warn_only", "_is_torch_function_enabled", "_is_torch_function_mode_enabled", "_len_torch_function_stack",
    "_len_torch_dispatch_stack", "_get_cudnn_enabled", "_get_mkldnn_enabled", "_get_flash_sdp_enabled", "_get_math_sdp_enabled",
    "_get_mem_efficient_sdp_enabled", "_get_cudnn_sdp_enabled", "_has_storage", "_is_alias_of", "get_num_threads", "_jit_get_profiling_mode",
    "is_autocast_available", "_is_autocast_available", "_get_default_device", "_autograd_init", "_will_engine_execute_node",
    "_get_privateuse1_backend_name", "_get_accelerator", "_has_torch_function", "_has_torch_function_unary", "_has_torch_function_variadic", "_are_functorch_transforms_active",
}  # fmt: skip


def c_kind(fn: Any) -> str:
    """The kind of a C function of a module."""
    r = user_kind(fn)
    if r is not None:
        return r
    name = fn.__name__
    if id(fn) in _graph_functions:
        return GRAPH_EXCEPTIONS.get(name, "graph")
    module = fn.__module__
    if module is None and fn.__self__ is not None:
        module = getattr(fn.__self__, "__name__", None)
    if module == "builtins":
        return "skip" if name in BUILTINS_SKIPPED else "native"
    if module == "sys":
        return "native" if name in SYS_NATIVE else "skip"
    if module is None or module.startswith("torch"):
        if name in TORCH_C_NATIVE:
            return "native"
        return "skip"
    return C_MODULES.get(module, "skip")


# -- methods of C types ------------------------------------------------------------------------------------
TENSOR_METADATA = {
    "size", "dim", "stride", "numel", "nelement", "ndimension", "is_contiguous", "is_floating_point", "is_complex", "is_signed",
    "element_size", "storage_offset", "get_device", "has_names", "is_conj", "is_neg", "is_inference", "is_same_size", "sym_size",
    "is_pinned", "type", "is_shared", "__len__", "sym_numel", "sym_stride", "sym_storage_offset", "_is_view", "is_coalesced",
    "is_non_overlapping_and_dense", "dim_order", "__hash__", "is_distributed", "__dir__", "is_cuda", "_is_zerotensor",
}  # fmt: skip

TENSOR_SKIPPED: dict[str, tuple[str, str]] = {
    **dict.fromkeys(("backward",), ("PL0020", "Tensor.backward() inside the compiled function")),
    **dict.fromkeys(("numpy", "__array__", "__array_wrap__", "__dlpack__", "__dlpack_device__"), ("PL0012", "a tensor handed to NumPy or DLPack")),
    **dict.fromkeys(
        ("register_hook", "register_post_accumulate_grad_hook", "retain_grad", "data_ptr", "storage", "untyped_storage", "share_memory_",
         "apply_", "map_", "map2_", "__reduce_ex__", "__reduce__", "__setstate__", "__deepcopy__", "requires_grad_", "set_", "resize_as_", "rename",
         "rename_", "refine_names", "align_to", "align_as", "pin_memory", "record_stream", "_make_subclass", "as_subclass", "module_load",
         "__torch_function__", "__torch_dispatch__", "to_dense", "to_sparse", "to_mkldnn", "coalesce", "_values", "_indices", "_nnz"),
        ("PL0012", "an operation on a tensor that the graph cannot hold"),
    ),
}  # fmt: skip

PURE_TYPES = {
    int, float, complex, bool, str, bytes, bytearray, tuple, list, dict, set, frozenset, type(None), range, slice, torch.Size,
    type({}.keys()), type({}.values()), type({}.items()), types.MappingProxyType, types.SimpleNamespace, types.CodeType,
    torch.dtype, torch.device, torch.SymInt, torch.SymFloat, torch.SymBool, torch.finfo, torch.iinfo, types.CellType,
    type(iter([])), type(iter(())), type(iter({})), type(iter(set())), type(iter(range(0))), type(iter("")), zip, map, filter, enumerate, reversed,
    types.FunctionType, types.MethodType, property, functools.partial, types.TracebackType, super,
}  # fmt: skip
PURE_MODULES = {"collections", "itertools", "builtins", "_collections", "_collections_abc", "operator", "functools", "types"}
OBJECT_READERS = {"__reduce_ex__", "__reduce__", "__getstate__", "__sizeof__", "__dir__"}


def method_kind(t: type, name: str, outside: bool) -> str:
    """The kind of method `name` of C type `t`; `outside`: its object existed before the capture."""
    if issubclass(t, torch.Tensor):
        if name in TENSOR_METADATA:
            return "native"
        return "skip" if name in TENSOR_SKIPPED else "graph"
    if t in PURE_TYPES or t in IMMUTABLE:
        return "native"
    if issubclass(t, BaseException):
        return "native"
    if issubclass(t, torch.autograd.Function):
        return "skip"
    if outside:
        return "skip" if t is not object or name in OBJECT_READERS else "native"
    if t is object or t is type or isinstance(t, enum.EnumMeta):
        return "skip" if name in OBJECT_READERS else "native"
    if t.__module__ in PURE_MODULES:
        return "native"
    for b in t.__mro__:
        if b in PURE_TYPES or b.__module__ in PURE_MODULES and b is not object:
            return "native"
    if t.__flags__ & HEAPTYPE and not t.__module__.startswith(("torch", "_")):
        return "native" if name in ("__init__", "__new__", "__init_subclass__", "__eq__", "__ne__", "__hash__", "__repr__", "__str__") else "skip"
    return "skip"


# -- classes ------------------------------------------------------------------------------------------------
CLASSES_NATIVE = {
    torch.Size, torch.device, torch.finfo, torch.iinfo, types.SimpleNamespace, types.MappingProxyType, types.MethodType, types.CellType,
    functools.partial, slice, range, property, staticmethod, classmethod, super, types.GenericAlias, operator.attrgetter, operator.itemgetter,
    operator.methodcaller, complex, bytearray, bytes,
}  # fmt: skip
CLASSES_SKIPPED = {torch.Generator, torch.nn.Parameter, torch.nn.Buffer, memoryview}
CLASS_MODULES_SKIPPED = (
    "threading", "_thread", "io", "_io", "socket", "subprocess", "random", "_random", "queue", "multiprocessing", "ctypes", "_ctypes", "numpy",
    "weakref", "contextvars", "_contextvars", "torch.cuda", "torch.utils.data", "torch.distributed", "torch.storage", "torch.autograd.profiler",
    "torch.profiler", "time", "pathlib", "tempfile",
)  # fmt: skip


def class_kind(cls: type) -> str | None:
    """The kind of constructing `cls`: native, graph, skip, inline; None where nothing is known of a C type."""
    r = user_kind(cls)
    if r is not None:
        return r
    if cls in CLASSES_NATIVE or isinstance(cls, enum.EnumMeta):
        return "native"
    if cls in CLASSES_SKIPPED or issubclass(cls, torch.Tensor) or type(cls).__name__ == "pybind11_type":
        return "skip"
    module = cls.__module__
    if module.startswith(CLASS_MODULES_SKIPPED):
        return "skip"
    if cls.__flags__ & HEAPTYPE and cls.__init__ is not cls and not module.startswith("torch._C"):
        for b in cls.__mro__:
            if b.__flags__ & HEAPTYPE == 0 and b is not object and b.__module__ not in PURE_MODULES and not issubclass(b, BaseException):
                return "native" if b in IMMUTABLE or b in CLASSES_NATIVE else None
        return "inline"
    if module in PURE_MODULES or module in ("decimal", "fractions", "enum") or cls in IMMUTABLE:
        return "native"
    if issubclass(cls, BaseException):
        return "native"
    if issubclass(cls, tuple):  # structseq and torch.return_types
        return "native"
    return None


def kind_of_object(o: Any) -> str | None:
    """The kind of calling a C object that is neither function nor class; None: look at its class."""
    r = user_kind(o)
    if r is not None:
        return r
    if isinstance(o, (torch.jit.ScriptFunction, torch.jit.ScriptModule)):
        return "skip"
    return None


def break_of(fn: Any) -> tuple[str, str]:
    """Graph-break code and reason for calling a skipped function or class."""
    name = f"{getattr(fn, '__module__', None) or ''}.{getattr(fn, '__qualname__', type(fn).__name__)}".lstrip(".")
    if name == "builtins.__build_class__":
        return "PL0013", "a class defined inside the compiled function"
    if isinstance(fn, types.BuiltinFunctionType) or isinstance(fn, type):
        return "PL0004", f"call of {name}, a C function that is not known to be pure" if c_unknown(fn) else f"call of {name}, which acts outside the graph"
    r = user_kind(fn)
    return "PL0003", f"call of {name}, " + ("which you excluded from capture" if r == "skip" else "which is not captured")


def c_unknown(fn: Any) -> bool:
    return getattr(fn, "__module__", None) not in ("builtins", "time", "posix", "_io", "_thread", "sys", "_random")


def break_of_method(t: type, name: str) -> tuple[str, str]:
    """Graph-break code and reason for a skipped tensor method."""
    code, reason = TENSOR_SKIPPED.get(name, ("PL0004", "a method that is not known to be pure"))
    return code, f"Tensor.{name}: {reason}"


# -- frames that C code starts ---------------------------------------------------------------------------------
_TORCH = os.path.dirname(torch.__file__) + os.sep
_PLIANT = os.path.dirname(os.path.dirname(__file__)) + os.sep
_STDLIB = os.path.dirname(os.__file__) + os.sep
TORCH_INTERPRETED = ("nn/modules/", "utils/_contextlib.py", "utils/_pytree.py", "autograd/grad_mode.py", "amp/", "optim/", "distributions/")
STDLIB_NATIVE = ("enum.py", "typing.py", "abc.py", "_py_abc.py", "re/", "importlib/", "inspect.py", "types.py", "linecache.py", "traceback.py")


@functools.lru_cache(maxsize=None)
def runs_natively(code: types.CodeType) -> bool:
    """Whether a Python frame that C code starts during capture is left to CPython."""
    path = code.co_filename
    if path.startswith(_PLIANT) or path.startswith("<frozen"):
        return True
    if path.startswith(_TORCH):
        return not path[len(_TORCH) :].startswith(TORCH_INTERPRETED)
    if path.startswith(_STDLIB) and "site-packages" not in path:
        return path[len(_STDLIB) :].startswith(STDLIB_NATIVE)
    return False
