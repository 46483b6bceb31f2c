"""How a program is called: from a handler, another thread, another context, deeper down, under tracing; more settings of the process.

`AROUND`: name -> (function -> a function that calls it so). `SETTINGS`: name -> row, as in `settings`.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import decimal
import functools
import gc
import io
import locale
import logging
import os
import random
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.attention
import torch.nn.utils.parametrize
import torch.utils._python_dispatch
from torch.optim.optimizer import register_optimizer_step_post_hook

from benchmarks.perturb.values import SKIP, altered


# ------------------------------------------------------------------------------------------------------------------ how it is called
def in_handler(fn: Callable) -> Callable:
    def program(*args: Any, **kwargs: Any) -> Any:
        try:
            raise KeyError("note")
        except KeyError:
            return fn(*args, **kwargs)

    return program


def in_thread(fn: Callable) -> Callable:
    def program(*args: Any, **kwargs: Any) -> Any:
        said: list = []

        def work() -> None:
            try:
                said.append((fn(*args, **kwargs), None))
            except BaseException as e:
                said.append((None, e))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if said[0][1] is not None:
            raise said[0][1]
        return said[0][0]

    return program


def in_context(fn: Callable) -> Callable:
    """Context variables have no values there."""
    return lambda *args, **kwargs: contextvars.Context().run(fn, *args, **kwargs)


def in_coroutine(fn: Callable) -> Callable:
    def program(*args: Any, **kwargs: Any) -> Any:
        async def main() -> Any:
            return fn(*args, **kwargs)

        return asyncio.run(main())

    return program


def in_generator(fn: Callable) -> Callable:
    def program(*args: Any, **kwargs: Any) -> Any:
        def generator() -> Any:
            yield fn(*args, **kwargs)

        return next(generator())

    return program


def deeper(fn: Callable) -> Callable:
    def program(*args: Any, n: int = 30, **kwargs: Any) -> Any:
        return fn(*args, **kwargs) if n == 0 else program(*args, n=n - 1, **kwargs)

    return program


def from_c(fn: Callable) -> Callable:
    return lambda *args, **kwargs: next(map(lambda _: fn(*args, **kwargs), (0,)))


def traced(fn: Callable) -> Callable:
    def program(*args: Any, **kwargs: Any) -> Any:
        before = sys.gettrace()
        sys.settrace(lambda *_: None)
        try:
            return fn(*args, **kwargs)
        finally:
            sys.settrace(before)

    return program


def profiled(fn: Callable) -> Callable:
    def program(*args: Any, **kwargs: Any) -> Any:
        sys.setprofile(lambda *_: None)
        try:
            return fn(*args, **kwargs)
        finally:
            sys.setprofile(None)

    return program


AROUND: dict[str, Callable[[Callable], Callable]] = {
    "in a handler": in_handler,
    "in another thread": in_thread,
    "in an empty context": in_context,
    "in a coroutine": in_coroutine,
    "in a generator": in_generator,
    "deeper down": deeper,
    "from C": from_c,
    "under a trace function": traced,
    "under a profile function": profiled,
    "as another partial": functools.partial,
}


# ------------------------------------------------------------------------------------------------------------- settings of the process
def switch(get: Callable[[], Any], put: Callable[[Any], Any], other: Callable[[Any], Any] = lambda v: not v) -> Callable[[], Any]:
    def row() -> Any:
        old = get()
        put(other(old))
        return lambda: put(old)

    return row


def entered(make: Callable[[], Any]) -> Callable[[], Any]:
    """A context manager that the call happens in."""

    def row() -> Any:
        stack = contextlib.ExitStack()
        stack.enter_context(make())
        return stack.close

    return row


def attribute(obj: Any, name: str, other: Callable[[Any], Any] = lambda v: not v) -> Callable[[], Any]:
    return switch(lambda: getattr(obj, name), lambda v: setattr(obj, name, v), other)


def decimals(name: str, other: Any) -> Callable[[], Any]:
    return switch(lambda: getattr(decimal.getcontext(), name), lambda v: setattr(decimal.getcontext(), name, v), lambda v: other)


def removed(register: Callable, fn: Callable) -> Callable[[], Any]:
    return lambda: register(fn).remove


def added(value: Any) -> Any:
    return value + 1 if isinstance(value, torch.Tensor) and value.is_floating_point() else value


class Dispatching(torch.utils._python_dispatch.TorchDispatchMode):
    """Lets everything through, and makes multiplications answer otherwise."""

    def __torch_dispatch__(self, func: Any, kinds: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out + 1 if func is torch.ops.aten.mul.Tensor else out


def other_filters(action: str) -> Callable[[], Any]:
    def row() -> Any:
        stack = contextlib.ExitStack()
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter(action)  # type: ignore[arg-type]
        return stack.close

    return row


def other_folder() -> Any:
    here = os.getcwd()
    os.chdir(tempfile.gettempdir())
    return lambda: os.chdir(here)


def zone() -> Any:
    old = os.environ.get("TZ")
    os.environ["TZ"] = "Asia/Tokyo"
    time.tzset()

    def undo() -> None:
        os.environ.pop("TZ") if old is None else os.environ.__setitem__("TZ", old)
        time.tzset()

    return undo


def precision(name: str, module: Any) -> Callable[[], Any]:
    return attribute(module, name, lambda v: "ieee" if v != "ieee" else "tf32") if hasattr(module, name) else lambda: SKIP


def locale_numbers() -> Any:
    old = locale.setlocale(locale.LC_CTYPE)
    try:
        locale.setlocale(locale.LC_CTYPE, "C" if old != "C" else "C.UTF-8")
    except locale.Error:
        return SKIP
    return lambda: locale.setlocale(locale.LC_CTYPE, old)


def output() -> Any:
    old = sys.stdout
    sys.stdout = io.StringIO()
    return lambda: setattr(sys, "stdout", old)


OPTIONS = torch._tensor_str.PRINT_OPTS
SETTINGS: dict[str, Callable[[], Any]] = {
    "numpy errors raised": switch(np.geterr, lambda v: np.seterr(**v), lambda v: {k: "raise" for k in v}),
    "numpy print options": switch(np.get_printoptions, lambda v: np.set_printoptions(**v), lambda v: {**v, "precision": 2}),
    "numpy's generator": switch(np.random.get_state, np.random.set_state, lambda s: np.random.RandomState(5).get_state()),
    "random's state": switch(random.getstate, random.setstate, lambda s: random.Random(5).getstate()),
    "decimal precision": decimals("prec", 5),
    "decimal rounding": decimals("rounding", decimal.ROUND_UP),
    "decimal exponents": decimals("Emax", 3),
    "decimal traps": switch(lambda: decimal.getcontext().traps[decimal.Inexact], lambda v: decimal.getcontext().traps.__setitem__(
        decimal.Inexact, v)),
    "locale": locale_numbers,
    "time zone": zone,
    "folder": other_folder,
    "warnings always": other_filters("always"),
    "warnings ignored": other_filters("ignore"),
    "warnings shown otherwise": attribute(warnings, "showwarning", lambda f: lambda *a, **k: None),
    "digits of numbers": switch(sys.get_int_max_str_digits, sys.set_int_max_str_digits, lambda n: 700),
    "switch interval": switch(sys.getswitchinterval, sys.setswitchinterval, lambda n: 0.01),
    "collector off": switch(gc.isenabled, lambda on: gc.enable() if on else gc.disable()),
    "output": output,
    "logging off": switch(lambda: logging.root.manager.disable, logging.disable, lambda n: logging.CRITICAL),
    "name of the thread": attribute(threading.current_thread(), "name", lambda n: "note"),
    "dispatch mode": entered(Dispatching),
    "autocast to float16": entered(lambda: torch.autocast("cpu", dtype=torch.float16)),
    "autocast's dtype": switch(lambda: torch.get_autocast_dtype("cpu"), lambda d: torch.set_autocast_dtype("cpu", d),
        lambda d: torch.float16),
    "autocast without a cache": switch(torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "default device set": switch(lambda: None, torch.set_default_device, lambda _: "cpu"),
    "deterministic, warnings only": switch(torch.is_deterministic_algorithms_warn_only_enabled,
        lambda on: torch.use_deterministic_algorithms(on, warn_only=on)),
    "memory is filled": attribute(torch.utils.deterministic, "fill_uninitialized_memory"),
    "no multithreading": switch(torch.autograd.is_multithreading_enabled, torch._C._set_multithreading_enabled)
        if hasattr(torch.autograd, "is_multithreading_enabled") else entered(lambda: torch.autograd.set_multithreading_enabled(False)),
    "warn always": switch(torch.is_warn_always_enabled, torch.set_warn_always),
    "denormals": switch(lambda: False, torch.set_flush_denormal),
    "mkldnn's precision": precision("fp32_precision", torch.backends.mkldnn),
    "precision of matmul in mkldnn": precision("fp32_precision", getattr(torch.backends.mkldnn, "matmul", None)),
    "math attention": entered(lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH)),
    "opt_einsum": attribute(torch.backends.opt_einsum, "enabled"),
    "engine": attribute(torch.backends.quantized, "engine", lambda e: next((x for x in torch.backends.quantized.supported_engines
        if x not in (e, "none")), e)),
    "sparse invariants": entered(torch.sparse.check_sparse_tensor_invariants),
    "print options, sci_mode": switch(lambda: OPTIONS.sci_mode, lambda v: torch.set_printoptions(sci_mode=v), lambda v: True),
    "print options, threshold": switch(lambda: OPTIONS.threshold, lambda v: torch.set_printoptions(threshold=v), lambda v: 1),
    "print options, width": switch(lambda: OPTIONS.linewidth, lambda v: torch.set_printoptions(linewidth=v), lambda v: 20),
    "arguments of distributions": switch(lambda: torch.distributions.Distribution._validate_args,
        torch.distributions.Distribution.set_default_validate_args),
    "swapped on conversion": switch(torch.__future__.get_swap_module_params_on_conversion,
        torch.__future__.set_swap_module_params_on_conversion),
    "overwritten on conversion": switch(torch.__future__.get_overwrite_module_params_on_conversion,
        torch.__future__.set_overwrite_module_params_on_conversion),
    "global forward pre-hook": removed(torch.nn.modules.module.register_module_forward_pre_hook,
        lambda m, a: tuple(map(added, a))),
    "global backward hook": removed(torch.nn.modules.module.register_module_full_backward_hook,
        lambda m, gi, go: tuple(None if g is None else g * 2 for g in gi)),
    "hook of parameters": removed(torch.nn.modules.module.register_module_parameter_registration_hook,
        lambda m, name, p: None),
    "hook of optimizers": removed(register_optimizer_step_post_hook, lambda o, a, k: print("step")),
    "no hooks on saved tensors": entered(lambda: torch.autograd.graph.disable_saved_tensors_hooks("note")),
    "saved tensors are halves": entered(lambda: torch.autograd.graph.saved_tensors_hooks(
        lambda t: t.half() if t.is_floating_point() else t, lambda t: t.float() if t.is_floating_point() else t)),
    "saved tensors may be written": entered(torch.autograd.graph.allow_mutation_on_saved_tensors),
    "forward gradients": entered(torch.autograd.forward_ad.dual_level),
    "a record for the profiler": entered(lambda: torch.autograd.profiler.record_function("note")),
    "parametrizations cached": entered(torch.nn.utils.parametrize.cached),
    "all functions off": entered(torch._C.DisableTorchFunction),
}


def environment(texts: set[str]) -> dict[str, Callable[[], Any]]:
    """Variables of the environment that a program's texts name."""

    def row(name: str) -> Callable[[], Any]:
        def put(value: str | None) -> None:
            os.environ.pop(name, None) if value is None else os.environ.__setitem__(name, value)

        return switch(lambda: os.environ.get(name), put, lambda v: "3" if v is None else v + "1")

    return {f"the variable {n}": row(n) for n in sorted(texts) if n.isupper() and n.isidentifier()
        and not n.startswith(("PLIANT", "OMP", "LD_", "PYTHON"))}


def imported(name: str) -> Callable[[], Any]:
    """A module that is imported is another, whose functions and numbers are others."""

    def row() -> Any:
        module = sys.modules.get(name)
        if module is None:
            return SKIP
        other = type(module)(name)
        for k, v in list(vars(module).items()):
            vars(other)[k] = altered(v) if type(v) in (int, float) else v
        other.__name__ = name
        sys.modules[name] = other
        return lambda: sys.modules.__setitem__(name, module)

    return row


def gone(name: str) -> Callable[[], Any]:
    def row() -> Any:
        if name not in sys.modules:
            return SKIP
        module = sys.modules[name]
        sys.modules[name] = None  # type: ignore[assignment]
        return lambda: sys.modules.__setitem__(name, module)

    return row
