"""Programs that run the machine code of their file: nothing is captured, printed or compiled.

The one interpreter of plans is C++ (`pliant/runtime`), here as part of the extension and called by its C interface, as anybody would.
"""

from __future__ import annotations

import ctypes
import functools
import json
import os
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from pliant import events
from pliant.codegen import target
from pliant.errors import PliantError
from pliant.export import file, run
from pliant.export.program import MUTATION, Input, Output, Program
from pliant.export.signature import Caller, SignatureError
from pliant.native import DTYPES, _core
from pliant.native.probe import LIBTORCH

PLAN, CODE = "plan.json", "code/"
"""Members of a file, besides those of every saved program: the plan, and the machine code for each level."""
MOST_DIMS = 16
OTHER_PROCESSOR = 2
FROM_NUMBER = {number: dtype for dtype, number in DTYPES.items()}
KINDS = {"int": torch.int64, "float": torch.float64, "bool": torch.bool}
PYTHON = {"int": int, "float": float, "bool": bool}


class Tensor(ctypes.Structure):
    """`pliant_tensor`."""

    _fields_ = [
        ("data", ctypes.c_void_p), ("dtype", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("sizes", ctypes.c_int64 * MOST_DIMS), ("strides", ctypes.c_int64 * MOST_DIMS), ("owner", ctypes.c_void_p),
    ]  # fmt: skip


class Options(ctypes.Structure):
    """`pliant_options`."""

    _fields_ = [("size", ctypes.c_size_t), *((name, ctypes.c_char_p) for name in ("level", "torch_library", "blas_library"))]


class CannotRun(PliantError):
    """This processor runs none of the machine code that the file has."""


@functools.cache
def library() -> Any:
    """The runtime's C interface."""
    lib = ctypes.CDLL(_core.__file__)
    for name in ("pliant_error", "pliant_level"):
        getattr(lib, name).restype = ctypes.c_char_p
    lib.pliant_to_dlpack.restype = ctypes.c_void_p
    lib.pliant_free.argtypes = lib.pliant_level.argtypes = [ctypes.c_void_p]
    lib.pliant_run.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    lib.pliant_set_state.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    _core.set_pool(*target.named("ahead").pool())  # type: ignore[attr-defined]
    return lib


def error() -> str:
    return library().pliant_error().decode(errors="replace")


def describe(t: torch.Tensor) -> Tensor:
    """The descriptor of a tensor, which must outlive it."""
    d = Tensor(t.data_ptr(), DTYPES.get(t.dtype, -1), t.dim())
    d.sizes[: t.dim()] = t.shape
    d.strides[: t.dim()] = t.stride()
    return d


class Loaded:
    """A program of the runtime."""

    def __init__(self, path: str, level: str | None) -> None:
        self.handle = ctypes.c_void_p()
        options = Options(ctypes.sizeof(Options), level.encode() if level else None, os.fsencode(LIBTORCH), None)
        status = library().pliant_load(os.fsencode(path), ctypes.byref(options), ctypes.byref(self.handle))
        if status:
            raise (CannotRun if status == OTHER_PROCESSOR else file.FormatError)(error())
        self.free = library().pliant_free

    def __del__(self) -> None:
        if getattr(self, "free", None) is not None and self.handle:
            self.free(self.handle)

    def run(self, inputs: list[torch.Tensor], outputs: int) -> list[torch.Tensor]:
        given = (Tensor * max(len(inputs), 1))(*map(describe, inputs))
        made = (Tensor * max(outputs, 1))()
        if library().pliant_run(self.handle, given, len(inputs), made, outputs):
            raise SignatureError(error())
        return [taken(made[i]) for i in range(outputs)]

    def set_state(self, name: str, value: torch.Tensor) -> None:
        if library().pliant_set_state(self.handle, name.encode(), ctypes.byref(describe(value))):
            raise PliantError(error())


def taken(t: Tensor) -> torch.Tensor:
    """An output as a tensor: its memory is the tensor's from now on. What lies in an input or in the weights is copied."""
    managed = library().pliant_to_dlpack(ctypes.byref(t))
    if managed:
        return torch.from_dlpack(capsule(managed, b"dltensor", None))
    dtype = FROM_NUMBER[t.dtype]
    sizes, strides = tuple(t.sizes[: t.ndim]), tuple(t.strides[: t.ndim])
    extent = 1 + sum((n - 1) * s for n, s in zip(sizes, strides)) if all(sizes) else 0
    if not extent:
        return torch.empty(sizes, dtype=dtype)
    memory = (ctypes.c_char * (extent * dtype.itemsize)).from_address(t.data)
    return torch.frombuffer(memory, dtype=dtype).as_strided(sizes, strides).clone()


capsule = ctypes.pythonapi.PyCapsule_New
capsule.restype = ctypes.py_object
capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]


class Arguments(Caller):
    """From arguments to inputs by name. What tensors must be, the runtime checks."""

    def prepare(self) -> None:
        pass


class Compiled:
    """A program with machine code for this processor: `program(*args)`, `program.run({name: tensor})`. `level`: what it was made for."""

    def __init__(self, path: Any, signature: Any, plan: Any, level: str | None) -> None:
        self.loaded = Loaded(str(path), level)
        self.level = library().pliant_level(self.loaded.handle).decode()
        first = plan["variants"][0]
        inputs = [Input(i["name"], i["kind"], None) for i in first["inputs"]]  # type: ignore[arg-type]
        outputs = [Output(o["name"], o["kind"], None, o.get("of", "")) for o in first["outputs"]]
        self.signature = Program(plan["name"], "core", None, inputs, outputs, [], [], [], [], None, {})
        file.put_signature(self.signature, signature)
        self.caller = Arguments(self.signature)
        self.numbers = {i["name"]: i["number"] for i in first["inputs"] if "number" in i}
        self.results = [o.get("number") for o in first["outputs"]]
        state = {i.name for i in inputs if i.kind != "user"}
        self.keeps = [o.kind == MUTATION and o.of in state for o in outputs]

    @property
    def name(self) -> str:
        return self.signature.name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """What the exported function gives. `SignatureError` for arguments that do not fit."""
        p = self.signature
        given = self.caller.bind(args, kwargs)
        values = self.caller.flat(given)
        outs = self.flat(values)
        kept = [(o, v) for o, v, keep in zip(p.outputs, outs, self.keeps, strict=True) if not keep]
        if any(o.kind == MUTATION for o, _ in kept):
            rest = replace(p, outputs=[o for o, _ in kept])
            run.apply_mutations(rest, State(self.caller), given, values, [v for _, v in kept])  # type: ignore[arg-type]
        return run.result(p, self.caller, given, outs)

    def run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Outputs by name for inputs by name."""
        missing = [i.name for i in self.caller.users if i.name not in inputs]
        extra = inputs.keys() - {i.name for i in self.caller.users}
        if missing or extra:
            wrong = f"the input {missing[0]} is missing" if missing else f"there is no input {', '.join(sorted(extra))}"
            raise SignatureError(f"{self.name}: {wrong}; its inputs are {', '.join(i.name for i in self.caller.users)}.")
        return {o.name: v for o, v in zip(self.signature.outputs, self.flat(inputs), strict=True)}

    def flat(self, values: dict[str, Any]) -> list[Any]:
        """The outputs, in order; what buffers have become is kept."""
        with torch.no_grad():
            tensors = [self.tensor(i.name, values[i.name]) for i in self.caller.users]
            outs = self.loaded.run(tensors, len(self.results))
        for o, v, keep in zip(self.signature.outputs, outs, self.keeps, strict=True):
            if keep:
                self.loaded.set_state(o.of, v)
        return [v if kind is None else PYTHON[kind](v.item()) for v, kind in zip(outs, self.results, strict=True)]

    def tensor(self, name: str, value: Any) -> torch.Tensor:
        """What the runtime gets for an input."""
        kind = self.numbers.get(name)
        if kind is not None and not isinstance(value, torch.Tensor):
            if type(value) is not PYTHON[kind] or (type(value) is int and not -(2**63) <= value < 2**63):
                raise SignatureError(f"{name} must be a Python {kind}, but it is a {type(value).__name__}.")
            return torch.tensor(value, dtype=KINDS[kind])
        known = isinstance(value, torch.Tensor) and value.layout is torch.strided and value.device.type == "cpu"
        if not known or value.dim() > MOST_DIMS:
            raise SignatureError(f"{name} must be a tensor on the CPU, but it is a {type(value).__name__}.")
        return value.resolve_conj().resolve_neg()


class State:
    """What `run.apply_mutations` asks of a runner: here the runtime keeps the state."""

    state: dict[str, torch.Tensor] = {}

    def __init__(self, caller: Caller) -> None:
        self.caller = caller


def members(path: Any) -> Iterator[tuple[str, Any]]:
    """The two members that are JSON."""
    with zipfile.ZipFile(path) as z:
        if PLAN not in z.namelist():
            raise PliantError(f"{Path(path).name} has no machine code: it was saved, but not compiled (program.compile)")
        if file.SIGNATURE not in z.namelist():
            raise file.FormatError(f"{Path(path).name} is damaged: it lacks {file.SIGNATURE}")
        for name in (file.SIGNATURE, PLAN):
            yield name, json.loads(file.read_text(z, name))


def load(path: Any, libraries: Any, level: str | None = None) -> Any:
    """The program with its machine code; where this processor runs none of it, the program, to be compiled here, and a warning."""
    path = Path(path)
    try:
        parts = dict(members(path))
    except (PliantError, OSError):
        raise
    except Exception as e:  # of zipfile, zlib and json: there are many
        raise file.FormatError(f"{path.name} is no saved program, or is damaged: {type(e).__name__}: {e}") from e
    try:
        return Compiled(path, parts[file.SIGNATURE], parts[PLAN], level)
    except CannotRun as e:
        events.emit("warning", id="machine-code", text=f"{e}; it is compiled here")
        return file.load(path, libraries=libraries)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as e:
        if isinstance(e, PliantError):
            raise
        raise file.FormatError(f"{path.name} is damaged: {type(e).__name__}: {e}") from e

