"""The settings of the process that a program may depend on, each with one other value; they hold only while the program runs."""

from __future__ import annotations

import builtins
import contextlib
import dis
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch

from benchmarks.perturb import around
from benchmarks.perturb.around import attribute, entered, switch
from benchmarks.perturb.changes import Change
from benchmarks.perturb.places import Walk, builtin_names, code_objects, is_library
from benchmarks.perturb.values import SKIP, altered, wrapped


class Passing(torch.overrides.TorchFunctionMode):
    """Lets everything through, and makes additions answer otherwise."""

    def __torch_function__(self, func: Any, kinds: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out + 1 if func in (torch.relu, torch.Tensor.sum) else out


def global_hook() -> Any:
    return torch.nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 1 if isinstance(out, torch.Tensor)
        and out.is_floating_point() else None).remove


def warnings_as_errors() -> Any:
    stack = contextlib.ExitStack()
    stack.enter_context(warnings.catch_warnings())
    warnings.simplefilter("error")
    return stack.close


SETTINGS: dict[str, Callable[[], Any]] = {
    "gradients": switch(torch.is_grad_enabled, torch.set_grad_enabled),
    "inference mode": entered(torch.inference_mode),
    "default dtype float64": switch(torch.get_default_dtype, torch.set_default_dtype, lambda d: torch.float64),
    "default dtype bfloat16": switch(torch.get_default_dtype, torch.set_default_dtype, lambda d: torch.bfloat16),
    "threads": switch(torch.get_num_threads, torch.set_num_threads, lambda n: n + 1),
    "deterministic algorithms": switch(torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms),
    "autocast": entered(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "autocast off": entered(lambda: torch.autocast("cpu", enabled=False)),
    "matmul precision": switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, lambda p: "medium"),
    "default device": entered(lambda: torch.device("cpu")),
    "meta device": entered(lambda: torch.device("meta")),
    "a function mode": entered(Passing),
    "a global forward hook": global_hook,
    "anomaly detection": entered(torch.autograd.detect_anomaly),
    "cudnn.enabled": attribute(torch.backends.cudnn, "enabled"),
    "cudnn.benchmark": attribute(torch.backends.cudnn, "benchmark"),
    "mkldnn.enabled": attribute(torch.backends.mkldnn, "enabled") if hasattr(torch.backends.mkldnn, "enabled") else lambda: SKIP,
    "flash attention": switch(torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.enable_flash_sdp),
    "saved tensors hooks": entered(lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)),
    "subclass functions off": entered(torch._C.DisableTorchFunctionSubclass),
    "recursion limit": switch(sys.getrecursionlimit, sys.setrecursionlimit, lambda n: n + 77),
    "warnings are errors": warnings_as_errors,
    "numpy errors": switch(np.geterr, lambda v: np.seterr(**v), lambda v: {k: "ignore" for k in v}),
    "print options": switch(lambda: torch._tensor_str.PRINT_OPTS.precision, lambda p: torch.set_printoptions(precision=p), lambda p: 2),
    "an environment variable": switch(lambda: os.environ.get("NOTE"), lambda v: os.environ.pop("NOTE", None) if v is None
        else os.environ.__setitem__("NOTE", v), lambda v: "1"),
    "default generator's state": switch(torch.get_rng_state, torch.set_rng_state, lambda s: torch.Generator().manual_seed(5).get_state()),
    "a path": switch(lambda: list(sys.path), lambda v: sys.path.__setitem__(slice(None), v), lambda v: [*v, "/nowhere"]),
    "argv": attribute(sys, "argv", lambda v: [*v, "note"]),
    **around.SETTINGS,
}

# Methods that the harness itself and nearly everything else uses while the program runs; the first two leave slots of CPython's filled.
VITAL = frozenset({"__getitem__", "__len__",
    "shape", "size", "dim", "detach", "__init__", "stride", "requires_grad", "is_leaf", "dtype", "data"})


IMPORTS_KEPT = ("torch", "numpy", "sys", "builtins", "os", "pliant", "threading", "signal", "gc", "contextlib", "random")


def of_settings() -> Iterator[Change]:
    for name, row in SETTINGS.items():
        yield Change("setting", name, "process", row, tight=True)
    for name, call in around.AROUND.items():
        yield Change("call", name, "caller", lambda: lambda: None, tight=True, around=call)


def of_code(walk: Walk) -> Iterator[Change]:
    """Variables of the environment and modules that the code of the program names as it runs."""
    texts: set[str] = set()
    modules: set[str] = set()
    for _, obj in walk.objects:
        if isinstance(obj, types.FunctionType) and not is_library(obj.__module__):
            for code in code_objects(obj.__code__):
                texts.update(c for c in code.co_consts if isinstance(c, str) and len(c) < 40)
                modules.update(i.argval for i in dis.get_instructions(code) if i.opname == "IMPORT_NAME")
    for name, row in around.environment(texts).items():
        yield Change("setting", name, "process", row, tight=True)
    for name in sorted(m for m in modules if m.split(".")[0] not in IMPORTS_KEPT):
        yield Change("name", f"the module {name} is another", "sys.modules", around.imported(name), tight=True)
        yield Change("name", f"the module {name} is gone", "sys.modules", around.gone(name), tight=True)


def of_names(walk: Walk) -> Iterator[Change]:
    """Builtins hidden by a global, and methods of Tensor and of layers made to answer otherwise: those that the code names."""
    names: set[str] = set()
    for path, obj in walk.objects:
        if isinstance(obj, types.FunctionType) and not is_library(obj.__module__):
            for name in builtin_names(obj):
                if callable(getattr(builtins, name)) and not isinstance(getattr(builtins, name), type):
                    yield Change("name", f"{name} hidden by a global", path, lambda g=obj.__globals__, n=name: hide(g, n), tight=True)
            for code in code_objects(obj.__code__):
                names.update(code.co_names)
            for name, module in modules_named(obj):
                yield Change("name", f"{module.__name__}.{name} comes of __getattr__", path, lambda m=module, n=name: answered(m, n),
                    tight=True)
        if isinstance(obj, type) and issubclass(obj, torch.nn.Module) and is_library(obj.__module__) and "forward" in vars(obj):
            yield Change("library", f"{obj.__name__}.forward answers otherwise", path, lambda c=obj: patched(c, "forward"), tight=True)
    for name in sorted(names - VITAL):
        if callable(getattr(torch.Tensor, name, None)):
            yield Change("library", f"Tensor.{name} answers otherwise", "torch.Tensor", lambda n=name: patched(torch.Tensor, n), tight=True)


def modules_named(fn: types.FunctionType) -> Iterator[tuple[str, types.ModuleType]]:
    """(name, module) where the code may read that name of a module among its globals."""
    names = {name for code in code_objects(fn.__code__) for name in code.co_names}
    for at in sorted(names & fn.__globals__.keys()):
        module = fn.__globals__[at]
        if isinstance(module, types.ModuleType) and module not in (torch, sys, builtins):
            for name in sorted(names & vars(module).keys() - {"__name__"}):
                yield name, module


def hide(space: dict, name: str) -> Any:
    if name in space:
        return SKIP
    space[name] = wrapped(getattr(builtins, name))
    return lambda: space.pop(name, None)


def answered(module: types.ModuleType, name: str) -> Any:
    """A name of a module goes, and `__getattr__` of the module has it, another value."""
    space = vars(module)
    if "__getattr__" in space or name not in space:
        return SKIP
    value = space[name]
    methods = [m for c in space.values() if isinstance(c, type) for m in vars(c).values()]
    inside = (f.__code__ for f in [*space.values(), *methods] if isinstance(f, types.FunctionType) and f.__globals__ is space)
    if is_library(module.__name__) and any(name in code.co_names for code in inside):
        return SKIP  # its own functions would miss it, and what these hold is not a matter of the program's
    new = value if isinstance(value, type | types.ModuleType) else wrapped(value) if callable(value) else altered(value)

    def get(asked: str) -> Any:
        if asked == name:
            return new
        raise AttributeError(asked)

    del space[name]
    space["__getattr__"] = get
    return lambda: (space.pop("__getattr__"), space.__setitem__(name, value))


def patched(cls: type, name: str) -> Any:
    inherited = name not in vars(cls)
    old = vars(cls).get(name) or getattr(cls, name)
    if isinstance(old, staticmethod | classmethod):
        return SKIP
    setattr(cls, name, wrapped(old))
    return lambda: delattr(cls, name) if inherited else setattr(cls, name, old)
