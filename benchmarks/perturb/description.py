"""What a call did, as data, and whether two calls did the same.

A description is a flat list of (path, what, data): two worlds are alike if their descriptions are, up to the rounding of floats. Objects
that were there before the call go by their path, others by the order in which they are met, so identity and aliasing count.
"""

from __future__ import annotations

import collections
import decimal
import enum
import fractions
import re
import types
from typing import Any

import numpy as np
import torch

from benchmarks.perturb.places import ATOMS, slots
from benchmarks.perturb.state import World, items, plain, same_array, storage_of

ADDRESS = re.compile(r"0x[0-9a-f]{6,}|(?<=grad_fn=<)\w+|(?<=,)\s+(?=grad_fn=<)")
"""What differs by nature. (A compiled region is one node of the autograd graph, whose name may go to the next line.)"""
UNREADABLE = (types.GeneratorType, types.CoroutineType, types.FrameType, types.TracebackType, types.CodeType)
UNMARKED = tuple | frozenset | np.generic  # Python and NumPy may share equal ones or not
NUMBERS = (fractions.Fraction, decimal.Decimal)


class Description:
    """The flat list of what was found, given what was known before the call."""

    def __init__(self, known: list[World]) -> None:
        self.labels = {i: path for w in known for i, path in w.labels.items()}
        self.storages = {i: path for w in known for i, path in w.storages.items()}
        self.rows: list[tuple[str, Any, Any]] = []
        self.alive: list[Any] = []
        self.open: set[int] = set()
        self.grads = True  # whether gradients of leaves are told

    def add(self, path: str, what: Any, data: Any = None) -> None:
        self.rows.append((path, what, data))

    def root(self, path: str, obj: Any) -> None:
        """Describe an object's contents even if it was there before."""
        self.open.add(id(obj))
        self.walk(path, obj)

    def walk(self, path: str, obj: Any, depth: int = 0) -> None:
        cls = type(obj)
        name = f"{cls.__module__}.{cls.__qualname__}" if "Backward" not in cls.__name__ else "a node"  # a region is one of its own
        if isinstance(obj, ATOMS):
            if isinstance(obj, types.CodeType):
                self.add(path, (name, obj.co_qualname))
            elif isinstance(obj, float | complex):
                self.add(path, name, obj)
            else:
                self.add(path, (name, ADDRESS.sub("0x", repr(obj))))
            return
        known = self.labels.get(id(obj))
        if known is None:
            self.alive.append(obj)
            self.labels[id(obj)] = path
            if not isinstance(obj, UNMARKED):
                self.open.add(id(obj))
        self.add(path, (name, known if not isinstance(obj, UNMARKED) else ""))
        if (known is not None and id(obj) not in self.open and not isinstance(obj, UNMARKED)) or depth > 60:
            return
        self.open.discard(id(obj))
        if known is not None and isinstance(obj, UNMARKED) and depth > 30:
            return
        self.inside(path, obj, depth + 1)

    def inside(self, path: str, obj: Any, depth: int) -> None:
        if isinstance(obj, torch.Tensor):
            self.tensor(path, obj, depth)
        elif isinstance(obj, np.ndarray):
            if obj.dtype == object:
                self.walk(path + ".tolist()", obj.tolist(), depth)
            else:
                self.add(path, ("array", obj.dtype.str, obj.shape, obj.strides, obj.flags.writeable), obj.copy())
        elif isinstance(obj, np.generic):
            self.add(path, ("scalar", obj.dtype.str), np.asarray(obj))
        elif isinstance(obj, NUMBERS):
            self.add(path, repr(obj))
        elif isinstance(obj, enum.Enum):
            self.add(path, obj.name)
        elif isinstance(obj, type):
            self.add(path, obj.__qualname__)
        elif isinstance(obj, types.FunctionType):
            self.add(path, obj.__qualname__)
            self.walk(path + ".__defaults__", obj.__defaults__, depth)
            self.walk(path + ".__kwdefaults__", obj.__kwdefaults__, depth)
            for name, box in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=False):
                if box != types.CellType():
                    self.walk(f"{path}<{name}>", box.cell_contents, depth)
        elif isinstance(obj, types.MethodType):
            self.walk(path + ".__func__", obj.__func__, depth)
            self.walk(path + ".__self__", obj.__self__, depth)
        elif isinstance(obj, types.BuiltinFunctionType | types.ModuleType):
            self.add(path, getattr(obj, "__qualname__", obj.__name__))
        elif not isinstance(obj, UNREADABLE) and "Backward" not in type(obj).__name__:
            self.containers(path, obj, depth)

    def containers(self, path: str, obj: Any, depth: int) -> None:
        if isinstance(obj, BaseException):
            self.walk(path + ".args", obj.args, depth)
            self.add(path, ADDRESS.sub("0x", message(obj)))
        if isinstance(obj, dict):
            for i, (k, v) in enumerate(items(obj)):
                self.walk(f"{path}.key{i}", k, depth)
                self.walk(f"{path}[{i}]", v, depth)
            self.add(path, len(obj))
        elif isinstance(obj, list | tuple | collections.deque):
            for i, v in enumerate(list(obj) if isinstance(obj, collections.deque) else type(obj).__mro__[-2].__iter__(obj)
                    if type(obj).__mro__[-2] in (list, tuple) else list(obj)):
                self.walk(f"{path}[{i}]", v, depth)
            self.add(path, "end")
        elif isinstance(obj, set | frozenset):
            self.add(path, sorted(ADDRESS.sub("0x", repr(v)) if isinstance(v, ATOMS) else type(v).__qualname__ for v in obj))
        elif isinstance(obj, types.CellType):
            if obj != types.CellType():
                self.walk(path + ".cell_contents", obj.cell_contents, depth)
        if isinstance(obj, types.MappingProxyType):
            self.walk(path, dict(obj), depth)
        try:
            space = object.__getattribute__(obj, "__dict__")
        except AttributeError:
            space = {}
        for name, value in list(space.items()):
            if name == "__notes__" or str(name).endswith("hooks"):
                self.add(f"{path}.{name}", "hooks" if name == "__notes__" else len(value or ()))
            else:
                self.walk(f"{path}.{name}", value, depth)
        for name, slot in slots(type(obj)):
            try:
                self.walk(f"{path}.{name}", slot.__get__(obj), depth)
            except AttributeError:
                self.add(f"{path}.{name}", "unset")

    def tensor(self, path: str, t: torch.Tensor, depth: int) -> None:
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            form: tuple = (tuple(t.shape), t.dtype, t.layout, t.device.type, t.requires_grad, t.is_leaf, t.is_inference())
            if not plain(t):
                self.add(path, form)
                try:
                    self.add(path, "dense", t.detach().to_dense().clone() if t.layout is not torch.strided else None)
                except (RuntimeError, NotImplementedError):
                    self.add(path, "unreadable")
            else:
                storage = storage_of(t)
                self.alive.append(storage)
                place = self.storages.setdefault(storage._cdata, path) if storage.nbytes() else ""
                # where in which memory a gradient lies is the engine's business
                where = () if path.endswith(".grad") else (t.stride(), t.storage_offset(), t.is_conj(), t.is_neg(), place)
                self.add(path, (*form, *where), t.detach().clone())
            grad = t.grad if t.is_leaf and self.grads else None
        if grad is not None:
            self.labels.pop(id(grad), None)
            self.walk(path + ".grad", grad, depth)
        for name, value in list(getattr(t, "__dict__", {}).items()):
            if name == "_dynamo_static_input_type":  # a mark of TorchDynamo's, which eager runs under some operators
                continue
            self.walk(f"{path}.{name}", value, depth)


def message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception as e:  # __str__ of the program's own
        return f"<{type(e).__name__}>"


# -------------------------------------------------------------------------------------------------------------------- comparing
RELATIVE = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 1e-9, torch.complex128: 1e-9}


def off(want: torch.Tensor, got: torch.Tensor) -> float:
    """The largest difference in units of what rounding explains: up to 1 is well."""
    if want.dtype.is_complex:
        return max(off(want.real, got.real), off(want.imag, got.imag))
    if not want.dtype.is_floating_point:
        return 0.0 if torch.equal(want, got) else float("inf")
    limit = RELATIVE.get(want.dtype, 1e-5)
    want, got = want.double(), got.double()
    if not torch.equal(want.isnan(), got.isnan()):
        return float("inf")
    apart = torch.where((want == got) | want.isnan(), 0.0, (want - got).abs()).nan_to_num(0.0, posinf=float("inf"))
    largest = want.abs().nan_to_num(0.0, posinf=0.0, neginf=0.0)
    return float(apart.max() / (limit * largest.max().clamp_min(0.1))) if want.numel() else 0.0


def number_off(want: Any, got: Any) -> float:
    return off(torch.tensor(want, dtype=torch.complex128 if isinstance(want, complex) else torch.float32),
        torch.tensor(got, dtype=torch.complex128 if isinstance(want, complex) else torch.float32))


def difference(want: list, got: list) -> tuple[str, float] | None:
    """The first difference of two descriptions as (sentence, how far off it is: infinite if it is no matter of rounding)."""
    rounding: tuple[str, float] | None = None
    for (path, what, data), (path2, what2, data2) in zip(want, got, strict=False):
        if path != path2:
            return f"eager has {path} {what}, compiled {path2} {what2}", float("inf")
        if what != what2:
            return f"{path}: eager {what}, compiled {what2}", float("inf")
        if data is None and data2 is None:
            continue
        if isinstance(data, torch.Tensor):
            far = off(data, data2)
        elif isinstance(data, np.ndarray):
            far = 0.0 if same_array(data, data2) else off(torch.from_numpy(np.atleast_1d(data.astype(complex))), torch.from_numpy(
                np.atleast_1d(data2.astype(complex)))) if data.dtype.kind in "fc" else float("inf")
        else:
            far = 0.0 if data == data2 or (data != data and data2 != data2) else number_off(data, data2)
        if far > 1 and (rounding is None or far > rounding[1]):
            rounding = (f"{path}: eager {show(data)}, compiled {show(data2)}", far)
    if len(want) != len(got):
        return f"eager has {len(want)} rows, compiled {len(got)}: {max(want, got, key=len)[min(len(want), len(got))][:2]}", float("inf")
    return rounding


def show(data: Any) -> str:
    text = " ".join(repr(data).split())
    return text if len(text) < 160 else text[:157] + "..."
