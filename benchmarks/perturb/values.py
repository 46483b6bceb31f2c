"""What may become of a value: a table from types to other values, which a place then holds.

`REPLACED`: rows (kind, name, types, value -> another value). `SKIP` says that a row has nothing to do here. A row gives the same every
time.
"""

from __future__ import annotations

import collections
import copy
import enum
import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.perturb.places import is_library

SKIP = object()


class Count(int):
    """A number of a class of its own."""


class Word(str):
    pass


class Items(list):
    pass


class Table(dict):
    pass


class Indexed:
    """No number, but it can be one where an index is wanted."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __index__(self) -> int:
        return self.n


class Level(enum.IntEnum):
    NONE = 0
    ONE = 1
    TWO = 2
    THREE = 3


class Marked(torch.Tensor):
    """A plain subclass of Tensor."""

    def __deepcopy__(self, memo: dict) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            return copy.deepcopy(self.as_subclass(torch.Tensor), memo).as_subclass(type(self))


class Doubling(Marked):
    """A subclass whose functions answer otherwise."""

    @classmethod
    def __torch_function__(cls, func: Any, kinds: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = super().__torch_function__(func, kinds, args, kwargs or {})
        return out * 2 if func is torch.Tensor.add else out


def of_int(n: int, make: Callable[[int], Any]) -> Any:
    return SKIP if abs(n) > 1 << 40 else make(n)


def other_dtype(d: torch.dtype) -> torch.dtype:
    return {torch.float32: torch.float64, torch.float64: torch.float32, torch.int64: torch.int32, torch.bool: torch.uint8}.get(
        d, torch.float32)


def other_member(e: enum.Enum) -> Any:
    members = list(type(e))
    return members[(members.index(e) + 1) % len(members)] if len(members) > 1 and e in members else SKIP


def altered(value: Any) -> Any:
    """Another value of the same type, for what functions return."""
    if isinstance(value, torch.Tensor):
        return ~value if value.dtype is torch.bool else value + 1
    if isinstance(value, bool):
        return not value
    if type(value) in (int, float):
        return value + 1
    return value


def wrapped(fn: Any) -> Any:
    @functools.wraps(fn)
    def changed(*args: Any, **kwargs: Any) -> Any:
        return altered(fn(*args, **kwargs))

    return changed


def passed_on(fn: Any) -> Any:
    """A function that does the same, and is another object."""

    @functools.wraps(fn)
    def same(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return same


def copied_function(fn: types.FunctionType) -> Any:
    new = types.FunctionType(fn.__code__, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    new.__kwdefaults__ = fn.__kwdefaults__
    new.__dict__.update(fn.__dict__)
    return new


def changed_constants(code: types.CodeType) -> types.CodeType | None:
    """The code with its first small number another."""
    consts = list(code.co_consts)
    for i, c in enumerate(consts):
        if type(c) in (int, float) and abs(c) < 100:
            consts[i] = c + 1
            return code.replace(co_consts=tuple(consts))
        if isinstance(c, types.CodeType):
            inner = changed_constants(c)
            if inner is not None:
                consts[i] = inner
                return code.replace(co_consts=tuple(consts))
    return None


def subclass_of(cls: type) -> Any:
    if is_library(cls.__module__) or issubclass(cls, enum.Enum):
        return SKIP
    return type(cls)(cls.__name__, (cls,), {"__module__": cls.__module__})


def like(new: torch.Tensor, old: torch.Tensor) -> torch.Tensor:
    """With the old one's requires_grad and class, where that goes."""
    new = new.detach()
    if isinstance(old, torch.nn.Parameter) and (new.is_floating_point() or new.is_complex()):
        return torch.nn.Parameter(new, old.requires_grad)
    return new.requires_grad_(old.requires_grad and (new.is_floating_point() or new.is_complex()))


def tensors(make: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    """A row about tensors with memory of their own; the result keeps class and requires_grad."""

    def row(t: torch.Tensor) -> Any:
        if type(t) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer) or t.layout is not torch.strided:
            return SKIP
        with torch.no_grad():
            new = make(t.detach())
        return new if new is SKIP or not isinstance(new, torch.Tensor) or type(new) is not torch.Tensor else like(new, t)

    return row


def longer(t: torch.Tensor, dim: int) -> Any:
    return SKIP if t.dim() <= dim or not t.numel() else torch.cat([t, t.narrow(dim, 0, 1)], dim)


def values(t: torch.Tensor) -> Any:
    if not t.numel():
        return SKIP
    if t.dtype is torch.bool:
        return ~t
    if t.is_floating_point() or t.is_complex():
        return t * 1.5 + 0.25
    return torch.where(t > 0, t - 1, t + 1)


def one_value(t: torch.Tensor) -> Any:
    out = t.clone(memory_format=torch.preserve_format)
    if not t.numel():
        return SKIP
    out[(0,) * t.dim()] = values(t)[(0,) * t.dim()]
    return out


def cut(t: torch.Tensor, dim: int, n: int) -> Any:
    return SKIP if t.dim() <= dim or t.shape[dim] <= n else t.narrow(dim, 0, n).clone()


def strided_otherwise(t: torch.Tensor) -> Any:
    return SKIP if t.dim() < 2 else t.transpose(0, -1).contiguous().transpose(0, -1)


def inside_larger(t: torch.Tensor) -> Any:
    if not t.dim() or not t.numel():
        return SKIP
    room = torch.zeros([n + 2 for n in t.shape], dtype=t.dtype)
    at = tuple(slice(1, n + 1) for n in t.shape)
    room[at] = t
    return room[at]


def every_other(t: torch.Tensor) -> Any:
    return SKIP if not t.dim() else torch.stack([t, t], -1)[..., 0]


def spread(t: torch.Tensor) -> Any:
    return SKIP if not t.dim() or not t.numel() else t[:1].expand(t.shape)


def other_float(t: torch.Tensor, dtype: torch.dtype) -> Any:
    return SKIP if t.dtype is dtype else t.to(dtype)


def special(t: torch.Tensor, value: float) -> Any:
    if not t.is_floating_point() or not t.numel():
        return SKIP
    out = t.clone()
    out.view(-1)[0] = value if out.is_contiguous() else value
    return out


def as_class(cls: type) -> Callable[[torch.Tensor], Any]:
    def row(t: torch.Tensor) -> Any:
        return SKIP if type(t) is not torch.Tensor or t.requires_grad else t.clone().as_subclass(cls)

    return row


def to_numpy(t: torch.Tensor) -> Any:
    return SKIP if type(t) is not torch.Tensor or t.requires_grad or t.is_conj() or t.is_neg() else t.numpy().copy()


def flipped_grad(t: torch.Tensor) -> Any:
    if not (t.is_floating_point() or t.is_complex()) or type(t) not in (torch.Tensor, torch.nn.Parameter):
        return SKIP
    return t.detach().clone(memory_format=torch.preserve_format).requires_grad_(not t.requires_grad)


def parameter(t: torch.Tensor) -> Any:
    if type(t) is torch.nn.Parameter:
        return t.detach().clone().requires_grad_(t.requires_grad)
    return torch.nn.Parameter(t.detach().clone(), t.requires_grad) if type(t) is torch.Tensor and t.is_floating_point() else SKIP


def inference(t: torch.Tensor) -> Any:
    if type(t) is not torch.Tensor or t.requires_grad:
        return SKIP
    with torch.inference_mode():
        return t.clone()


def array(make: Callable[[np.ndarray], Any]) -> Callable[[np.ndarray], Any]:
    return lambda a: SKIP if a.dtype == object or not a.ndim or not a.size else make(a)


def read_only(a: np.ndarray) -> Any:
    new = a.copy()
    new.flags.writeable = False
    return new


def other_array(a: np.ndarray) -> np.ndarray:
    return ~a if a.dtype.kind == "b" else a + a.dtype.type(1) if a.dtype.kind in "iufc" else a[::-1].copy()


def same_kind(old: Any, new: Any) -> Any:
    """A tuple of the old one's class."""
    cls = type(old)
    return new if cls is tuple else SKIP


def shallow(obj: Any) -> Any:
    """An equal object that is another one."""
    if isinstance(obj, type | types.ModuleType | types.FunctionType | enum.Enum) or is_library(type(obj).__module__) and not isinstance(
            obj, torch.nn.Module | list | dict | set):
        return SKIP
    new = copy.copy(obj)
    return SKIP if new is obj else new


class Answering:
    """An object that is called in place of a function."""

    def __init__(self, fn: Callable) -> None:
        self.fn = fn

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return altered(self.fn(*args, **kwargs))


class Reading:
    """A descriptor that is not data: attributes of the instance come first."""

    def __init__(self, fget: Callable) -> None:
        self.fget = fget

    def __get__(self, obj: Any, cls: Any = None) -> Any:
        return self if obj is None else altered(self.fget(obj))


class Wording(enum.StrEnum):
    ONE = "one"


def refusing(fn: types.FunctionType) -> Any:
    @functools.wraps(fn)
    def refused(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("note")

    return refused


def generating(fn: types.FunctionType) -> Any:
    @functools.wraps(fn)
    def generated(*args: Any, **kwargs: Any) -> Any:
        yield fn(*args, **kwargs)

    return generated


def first_exchanged(s: str) -> Any:
    return SKIP if not s else chr(ord(s[0]) ^ 1) + s[1:]


def with_history(t: torch.Tensor) -> Any:
    if not t.is_floating_point() or type(t) is not torch.Tensor or t.layout is not torch.strided:
        return SKIP
    return t.detach().clone().requires_grad_() * 1


def unaligned(t: torch.Tensor) -> Any:
    """Memory that begins four bytes behind what vectors want."""
    if not t.numel() or t.element_size() > 4:
        return SKIP
    room = torch.zeros(t.numel() + 8, dtype=t.dtype)
    step = max(1, 4 // t.element_size())
    new = room[step : step + t.numel()].view(t.shape)
    new.copy_(t)
    return new


def permuted(t: torch.Tensor) -> Any:
    if t.dim() < 3:
        return SKIP
    order = [1, 2, 0, *range(3, t.dim())]
    back = [order.index(i) for i in range(t.dim())]
    return t.permute(order).contiguous().permute(back)


REPLACED: tuple[tuple[str, str, tuple, Callable[[Any], Any]], ...] = (
    ("number", "n + 1", (int,), lambda n: of_int(n, lambda n: n + 1)),
    ("number", "n + 2", (int,), lambda n: of_int(n, lambda n: n + 2)),
    ("number", "n - 1", (int,), lambda n: of_int(n, lambda n: n - 1)),
    ("number", "0", (int, float), lambda n: SKIP if n == 0 else type(n)(0)),
    ("number", "1", (int, float), lambda n: SKIP if n == 1 else type(n)(1)),
    ("number", "-1", (int, float), lambda n: SKIP if n == -1 else type(n)(-1)),
    ("number", "x * 1.5 + 0.25", (float,), lambda x: x * 1.5 + 0.25),
    ("number", "nan", (float,), lambda x: float("nan")),
    ("number", "inf", (float,), lambda x: float("inf")),
    ("number", "-0.0", (float,), lambda x: -0.0),
    ("number", "conjugate + 1", (complex,), lambda x: x.conjugate() + 1),
    ("number type", "int to float", (int,), lambda n: of_int(n, float)),
    ("number type", "int to bool", (int,), lambda n: bool(n)),
    ("number type", "int to its subclass", (int,), lambda n: Count(n)),
    ("number type", "int to IntEnum", (int,), lambda n: Level(n) if 0 <= n <= 3 else SKIP),
    ("number type", "int to an __index__", (int,), lambda n: Indexed(n)),
    ("number type", "int to text", (int,), lambda n: str(n)),
    ("number type", "float to int", (float,), lambda x: int(x) if x == x and abs(x) < 1e9 else SKIP),
    ("number type", "number to tensor", (int, float), lambda n: of_int(n, torch.tensor) if isinstance(n, int) else torch.tensor(n)),
    ("number type", "number to None", (int, float), lambda n: None),
    ("numpy", "int to numpy.int64", (int,), lambda n: of_int(n, np.int64)),
    ("numpy", "int to numpy.int32", (int,), lambda n: np.int32(n) if abs(n) < 1 << 30 else SKIP),
    ("numpy", "int to numpy.uint8", (int,), lambda n: np.uint8(n) if 0 <= n < 256 else SKIP),
    ("numpy", "float to numpy.float64", (float,), np.float64),
    ("numpy", "float to numpy.float32", (float,), np.float32),
    ("numpy", "bool to numpy.bool_", (bool,), np.bool_),
    ("numpy", "number to 0-d array", (int, float), lambda n: of_int(n, np.array) if isinstance(n, int) else np.array(n)),
    ("numpy", "tensor to array", (torch.Tensor,), to_numpy),
    ("numpy", "list of numbers to array", (list, tuple), lambda v: np.array(v) if v and all(type(x) in (int, float) for x in v) else SKIP),
    ("numpy", "scalar + 1", (np.generic,), lambda s: s.dtype.type(s + 1) if s.dtype.kind in "iuf" else SKIP),
    ("numpy", "bool_ flipped", (np.bool_,), lambda s: np.bool_(not s)),
    ("numpy", "scalar's type", (np.generic,), lambda s: s.astype(np.float64 if s.dtype.kind != "f" else np.int64)),
    ("numpy", "scalar to Python's", (np.generic,), lambda s: s.item()),
    ("numpy", "array's values", (np.ndarray,), array(other_array)),
    ("numpy", "array longer", (np.ndarray,), array(lambda a: np.concatenate([a, a[:1]]))),
    ("numpy", "array shorter", (np.ndarray,), array(lambda a: a[:-1].copy())),
    ("numpy", "array's dtype", (np.ndarray,), array(lambda a: a.astype(np.float64 if a.dtype != np.float64 else np.float32))),
    ("numpy", "array's strides", (np.ndarray,), array(lambda a: np.repeat(a, 2, -1)[..., ::2])),
    ("numpy", "array backwards", (np.ndarray,), array(lambda a: a[::-1].copy()[::-1])),
    ("numpy", "array read-only", (np.ndarray,), array(read_only)),
    ("numpy", "array in Fortran's order", (np.ndarray,), array(lambda a: np.asfortranarray(a) if a.ndim > 1 else SKIP)),
    ("numpy", "array to list", (np.ndarray,), array(lambda a: a.tolist())),
    ("numpy", "array to tensor", (np.ndarray,), array(lambda a: torch.from_numpy(a.copy()))),
    ("number", "large", (int,), lambda n: (1 << 62) + n),
    ("number", "too large", (int,), lambda n: (1 << 64) + n),
    ("number", "small", (float,), lambda x: 5e-324),
    ("number", "larger than float32", (float,), lambda x: 1e300),
    ("number type", "int to complex", (int, float), complex),
    ("flag", "flipped", (bool,), lambda b: not b),
    ("flag", "bool to int", (bool,), int),
    ("flag", "bool to None", (bool,), lambda b: None),
    ("text", "other", (str,), lambda s: s + "x"),
    ("text", "other case", (str,), lambda s: s.swapcase() if s.swapcase() != s else SKIP),
    ("text", "first letter", (str,), first_exchanged),
    ("text", "a letter out of the alphabet", (str,), lambda s: s + "\u00e9\U0001f600"),
    ("text", "to StrEnum", (str,), lambda s: Wording.ONE),
    ("text", "empty", (str,), lambda s: "" if s else SKIP),
    ("text", "to its subclass", (str,), Word),
    ("text", "equal, another object", (str,), lambda s: "".join([*s, ""]) if len(s) > 1 else SKIP),
    ("text", "to bytes", (str,), lambda s: s.encode()),
    ("text", "other bytes", (bytes,), lambda s: s + b"x"),
    ("text", "bytes to bytearray", (bytes,), bytearray),
    ("none", "None to 1", (type(None),), lambda _: 1),
    ("none", "None to True", (type(None),), lambda _: True),
    ("none", "None to text", (type(None),), lambda _: "x"),
    ("none", "None to a tensor", (type(None),), lambda _: torch.ones(1)),
    ("none", "None to ()", (type(None),), lambda _: ()),
    ("none", "something to None", (list, dict, tuple, torch.Tensor, torch.nn.Module, str), lambda _: None),
    ("constant", "other member", (enum.Enum,), other_member),
    ("constant", "dtype", (torch.dtype,), other_dtype),
    ("constant", "memory format", (torch.memory_format,), lambda m: torch.channels_last if m is not torch.channels_last
        else torch.contiguous_format),
    ("constant", "range", (range,), lambda r: range(r.start, r.stop + r.step, r.step)),
    ("constant", "slice", (slice,), lambda s: slice(s.start, (s.stop or 0) + 1, s.step) if type(s.stop) in (int, type(None)) else SKIP),
    ("tensor values", "all", (torch.Tensor,), tensors(values)),
    ("tensor values", "one", (torch.Tensor,), tensors(one_value)),
    ("tensor values", "a nan", (torch.Tensor,), tensors(lambda t: special(t, float("nan")))),
    ("tensor values", "zeros", (torch.Tensor,), tensors(torch.zeros_like)),
    ("tensor values", "equal, another object", (torch.Tensor,), tensors(lambda t: t.clone(memory_format=torch.preserve_format))),
    ("tensor size", "first dim + 1", (torch.Tensor,), tensors(lambda t: longer(t, 0))),
    ("tensor size", "second dim + 1", (torch.Tensor,), tensors(lambda t: longer(t, 1))),
    ("tensor size", "third dim + 1", (torch.Tensor,), tensors(lambda t: longer(t, 2))),
    ("tensor size", "first dim 1", (torch.Tensor,), tensors(lambda t: cut(t, 0, 1))),
    ("tensor size", "first dim 0", (torch.Tensor,), tensors(lambda t: cut(t, 0, 0))),
    ("tensor size", "second dim 1", (torch.Tensor,), tensors(lambda t: cut(t, 1, 1))),
    ("tensor size", "second dim 0", (torch.Tensor,), tensors(lambda t: cut(t, 1, 0))),
    ("tensor size", "twice as long", (torch.Tensor,), tensors(lambda t: torch.cat([t, t]) if t.dim() else SKIP)),
    ("tensor rank", "one more", (torch.Tensor,), tensors(lambda t: t.unsqueeze(0))),
    ("tensor rank", "one less", (torch.Tensor,), tensors(lambda t: t[0].clone() if t.dim() and t.shape[0] else SKIP)),
    ("tensor rank", "flat", (torch.Tensor,), tensors(lambda t: t.reshape(-1).clone() if t.dim() > 1 else SKIP)),
    ("tensor dtype", "float64", (torch.Tensor,), tensors(lambda t: other_float(t, torch.float64))),
    ("tensor dtype", "float16", (torch.Tensor,), tensors(lambda t: other_float(t, torch.float16))),
    ("tensor dtype", "bfloat16", (torch.Tensor,), tensors(lambda t: other_float(t, torch.bfloat16))),
    ("tensor dtype", "int64", (torch.Tensor,), tensors(lambda t: other_float(t, torch.int64) if not t.is_complex() else SKIP)),
    ("tensor dtype", "int32", (torch.Tensor,), tensors(lambda t: other_float(t, torch.int32) if not t.is_complex() else SKIP)),
    ("tensor dtype", "bool", (torch.Tensor,), tensors(lambda t: other_float(t, torch.bool))),
    ("tensor dtype", "complex64", (torch.Tensor,), tensors(lambda t: other_float(t, torch.complex64))),
    ("tensor dtype", "uint8", (torch.Tensor,), tensors(lambda t: other_float(t, torch.uint8) if not t.is_complex() else SKIP)),
    ("tensor dtype", "complex128", (torch.Tensor,), tensors(lambda t: other_float(t, torch.complex128))),
    ("tensor layout", "conjugated", (torch.Tensor,), tensors(lambda t: t.conj() if t.is_complex() else SKIP)),
    ("tensor layout", "unaligned", (torch.Tensor,), tensors(unaligned)),
    ("tensor layout", "permuted in memory", (torch.Tensor,), tensors(permuted)),
    ("tensor layout", "last dim spread", (torch.Tensor,), tensors(lambda t: t[..., :1].expand(t.shape) if t.dim() and t.numel() else SKIP)),
    ("tensor gradient", "with a history", (torch.Tensor,), with_history),
    ("tensor type", "on meta", (torch.Tensor,), tensors(lambda t: t.to("meta"))),
    ("tensor layout", "transposed in memory", (torch.Tensor,), tensors(strided_otherwise)),
    ("tensor layout", "a part of a larger one", (torch.Tensor,), tensors(inside_larger)),
    ("tensor layout", "every other number", (torch.Tensor,), tensors(every_other)),
    ("tensor layout", "one row for all", (torch.Tensor,), tensors(spread)),
    ("tensor layout", "later in memory", (torch.Tensor,), tensors(lambda t: torch.cat([t[:1], t])[1:] if t.dim() and t.numel() else SKIP)),
    ("tensor layout", "channels last", (torch.Tensor,), tensors(lambda t: t.contiguous(memory_format=torch.channels_last)
        if t.dim() == 4 else SKIP)),
    ("tensor layout", "negative bit", (torch.Tensor,), tensors(lambda t: torch._neg_view(-t) if t.is_floating_point() else SKIP)),
    ("tensor gradient", "requires_grad", (torch.Tensor,), flipped_grad),
    ("tensor gradient", "made in inference mode", (torch.Tensor,), inference),
    ("tensor type", "Parameter or not", (torch.Tensor,), parameter),
    ("tensor type", "a subclass", (torch.Tensor,), as_class(Marked)),
    ("tensor type", "a subclass with __torch_function__", (torch.Tensor,), as_class(Doubling)),
    ("tensor type", "sparse", (torch.Tensor,), lambda t: t.detach().to_sparse() if type(t) is torch.Tensor and t.dim() and t.layout
        is torch.strided and not t.requires_grad else SKIP),
    ("length", "list longer", (list,), lambda v: [*v, v[-1]] if v and type(v) is list else SKIP),
    ("length", "list shorter", (list,), lambda v: v[:-1] if v and type(v) is list else SKIP),
    ("length", "list empty", (list,), lambda v: [] if v and type(v) is list else SKIP),
    ("length", "tuple longer", (tuple,), lambda v: same_kind(v, (*v, v[-1])) if v else SKIP),
    ("length", "tuple shorter", (tuple,), lambda v: same_kind(v, v[:-1]) if v else SKIP),
    ("length", "dict empty", (dict,), lambda v: {} if v and type(v) is dict else SKIP),
    ("order", "list reversed", (list,), lambda v: v[::-1] if len(v) > 1 and type(v) is list else SKIP),
    ("order", "tuple reversed", (tuple,), lambda v: same_kind(v, v[::-1]) if len(v) > 1 else SKIP),
    ("order", "dict reversed", (dict,), lambda v: dict(reversed(list(v.items()))) if len(v) > 1 and type(v) is dict else SKIP),
    ("container type", "list to tuple", (list,), lambda v: tuple(v) if type(v) is list else SKIP),
    ("container type", "list to its subclass", (list,), lambda v: Items(v) if type(v) is list else SKIP),
    ("container type", "list to deque", (list,), lambda v: collections.deque(v) if type(v) is list else SKIP),
    ("container type", "tuple to list", (tuple,), lambda v: list(v) if type(v) is tuple else SKIP),
    ("container type", "dict to OrderedDict", (dict,), lambda v: collections.OrderedDict(v) if type(v) is dict else SKIP),
    ("container type", "dict to defaultdict", (dict,), lambda v: collections.defaultdict(int, v) if type(v) is dict else SKIP),
    ("container type", "dict to its subclass", (dict,), lambda v: Table(v) if type(v) is dict else SKIP),
    ("container type", "dict to list", (dict,), lambda v: list(v) if type(v) is dict else SKIP),
    ("container type", "set to frozenset", (set,), frozenset),
    ("identity", "equal, another object", (object,), shallow),
    ("function", "answers otherwise", (types.FunctionType,), wrapped),
    ("function", "goes through another", (types.FunctionType,), passed_on),
    ("function", "an equal copy", (types.FunctionType,), copied_function),
    ("function", "a partial", (types.FunctionType,), lambda f: functools.partial(wrapped(f))),
    ("function", "an object that is called", (types.FunctionType,), Answering),
    ("function", "raises", (types.FunctionType,), refusing),
    ("function", "is a generator now", (types.FunctionType,), generating),
    ("function", "a static method", (types.FunctionType,), staticmethod),
    ("function", "a property", (types.FunctionType,), lambda f: property(wrapped(f))),
    ("module", "to Identity", (torch.nn.Module,), lambda m: torch.nn.Identity()),
    ("function", "not there", (types.FunctionType,), lambda f: None),
    ("method", "static method answers otherwise", (staticmethod,), lambda m: staticmethod(wrapped(m.__func__))),
    ("method", "class method answers otherwise", (classmethod,), lambda m: classmethod(wrapped(m.__func__))),
    ("method", "property answers otherwise", (property,), lambda p: property(wrapped(p.fget), p.fset, p.fdel) if p.fget else SKIP),
    ("method", "property to a descriptor", (property,), lambda p: Reading(p.fget) if p.fget else SKIP),
    ("method", "property to a value", (property,), lambda p: 3),
    ("method", "bound method to its function", (types.MethodType,), lambda m: m.__func__),
    ("class", "a subclass", (type,), subclass_of),
)
