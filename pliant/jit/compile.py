"""`pliant.compile` and its companions."""

from __future__ import annotations

import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch

from pliant import events, native
from pliant.codegen import backends, target
from pliant.config import DEFAULT_BACKEND, Config, as_share, env_flag, env_share
from pliant.errors import PliantError
from pliant.guards import source
from pliant.jit import arguments, dims, modes
from pliant.jit.identity import WeakIdDict
from pliant.jit.module import compile_module
from pliant.jit.region import Region, all_regions

STATISTICS = ("captures", "recompiles", "graph_breaks", "fallbacks", "user_errors", "entries", "exit_points", "side_exits",
              "verified", "mismatches", "unverifiable")  # fmt: skip
UNCOMPILED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE

#: Code object -> its regions, one for each way of compiling it (with the code object that holds the entries).
_compiled: WeakIdDict[dict[Config, tuple[CodeType | None, Region]]] = WeakIdDict()


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | Mapping[str, Any] | None = None,
    backend: str | Callable = DEFAULT_BACKEND,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
    strict: bool | None = None,
    verify: float | None = None,
) -> Any:
    """Compile a function, method, module or callable object: the first call captures it, later calls run what was compiled.

    The arguments are those of `torch.compile`. Sizes are dynamic unless the program makes them static; `dynamic=` is None, True (ints held
    by objects are symbolic at once, too), False (all static), or declared dims by parameter, `{"x": {0: Dim("batch")}}`. `strict=True`
    raises pliant's internal errors instead of running that frame eagerly (default: the environment variable PLIANT_STRICT).
    `verify` is the share of calls that run in eager PyTorch too and are compared, 0 to 1 (default: PLIANT_VERIFY, else 0; docs/verify.md).
    Without `model` it is a decorator. `mode` and `options`: see `pliant.jit.modes`. Raises ValueError for an unknown backend or a share
    that is none, PliantError for an unknown mode or option, and TypeError for what cannot be compiled and for an argument of another type.
    """
    arguments.check(
        fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable, strict=strict
    )  # fmt: skip
    config = Config(
        backend=backend,
        dynamic=dims.table(dynamic) if isinstance(dynamic, Mapping) else dynamic,
        fullgraph=fullgraph,
        strict=env_flag("PLIANT_STRICT") if strict is None else strict,
        verify=env_share("PLIANT_VERIFY") if verify is None else as_share(verify, "verify"),
        **modes.settings(backend, mode, options),
    )
    backends.lookup(backend)  # an unknown name is an error now, not at the first call
    with contextlib.suppress(PliantError):  # which the first call tells
        target.current().fingerprint()  # what makes code is imported now, not in the first call
    if model is None:
        return functools.partial(_compile, config=config, disable=disable)
    return _compile(model, config, disable)


def _compile(model: Any, config: Config, disable: bool) -> Any:
    if disable:
        return model
    config = dims.bound_to(model, config)
    for kind, compiler in KINDS:
        if isinstance(model, kind):
            return compiler(model, config)
    if callable(model):
        return compile_callable(model, config)
    raise TypeError(f"pliant.compile needs a function, a module or a callable object, not {type(model).__name__}")


def compile_function(fn: FunctionType, config: Config) -> Any:
    """An entry point for `fn`. The first way of compiling a code object keeps its entries on it; others get a clone of it."""
    if fn.__code__.co_flags & UNCOMPILED:
        events.emit("warning", id="PL0040", text=f"{fn.__qualname__} is a generator or coroutine function: it runs uncompiled")
        return fn
    regions = _compiled.get(fn.__code__)
    if regions is None:
        regions = _compiled[fn.__code__] = {}
    found = regions.get(config)
    if found is None:
        clone = fn.__code__.replace() if regions else None
        found = regions[config] = (clone, Region(config))
    clone, region = found
    if clone is None:
        return region.entry_point(fn)
    twin = FunctionType(clone, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    twin.__kwdefaults__ = fn.__kwdefaults__
    functools.update_wrapper(twin, fn)
    return region.entry_point(twin)


def compile_callable(model: Any, config: Config) -> Any:
    """A builtin or an object with `__call__`: captured as the call of it."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return model(*args, **kwargs)

    call.__code__ = call.__code__.replace()
    if hasattr(model, "__name__"):
        functools.update_wrapper(call, model)
    return Region(config).entry_point(call)


def compile_class(cls: type, config: Config) -> type:
    """A class: its `forward` (a module) or `__call__` is compiled in place."""
    name = "forward" if issubclass(cls, torch.nn.Module) else "__call__"
    method = cls.__dict__.get(name) or getattr(cls, name)
    setattr(cls, name, _compile(method, config, False))
    return cls


KINDS: list[tuple[type, Callable[[Any, Config], Any]]] = [
    (native.EntryPoint, lambda e, config: compile_function(e._fn, config)),
    (torch.nn.Module, compile_module),
    (FunctionType, compile_function),
    (types.MethodType, lambda m, config: types.MethodType(_compile(m.__func__, config, False), m.__self__)),
    (staticmethod, lambda s, config: staticmethod(_compile(s.__func__, config, False))),
    (classmethod, lambda c, config: classmethod(_compile(c.__func__, config, False))),
    (functools.partial, lambda p, config: functools.partial(_compile(p.func, config, False), *p.args, **p.keywords)),
    (type, compile_class),
]


def reset() -> None:
    """Forget everything compiled, learned and counted. Compiled functions stay usable and start anew."""
    for region in all_regions():
        region.reset()
    source.clear_interned()
    events.reset()
    native.reset_counters()


def stats() -> dict[str, int]:
    """Process-wide counts since the last `reset()`.

    captures, recompiles, graph_breaks, fallbacks (frames given up to eager after an internal failure), user_errors (captures that ended
    with an exception of the program's own, which CPython raised again), entries, from_disk (those of them that another process had
    captured), exit_points (branches on data behind which a graph goes on), side_exits (runs that left one there), calls (entries run),
    verified, mismatches and unverifiable (calls with `verify=`: the same as eager, different, not to be judged).
    """
    counted = events.counters()
    found = {name: counted.get(name, 0) for name in STATISTICS}
    return found | {"from_disk": counted.get("entries_from_disk", 0), "calls": native.counters()["calls"]}
