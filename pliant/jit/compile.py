"""`pliant.compile` and its companions."""

from __future__ import annotations

import contextlib
import functools
import inspect
import itertools
import types
from collections.abc import Callable, Mapping
from types import CodeType, FunctionType
from typing import Any

import torch

from pliant import events, native, turns
from pliant.codegen import backends, recipe_source, target
from pliant.codegen.background import background as tasks
from pliant.config import DEFAULT_BACKEND, Config, as_share, env_flag, env_share
from pliant.errors import PliantError
from pliant.guards import source
from pliant.interpret.lookasides import lookaside
from pliant.jit import arguments, dims, modes, optimized_module
from pliant.jit import shapes_spec as shapes
from pliant.jit.compiled_module import compile_call_of, compile_module, unchanged
from pliant.jit.region import Region, reset_all
from pliant.jit.weak_ids import WeakIdDict

STATISTICS = (
    "captures", "recompiles", "graph_breaks", "fallbacks", "user_errors", "entries", "exit_points", "side_exits", "verified", "mismatches",
    "unverifiable", "exchanged", "background_errors",
)  # fmt: skip
ON_DISK = ("from_disk", "kept", "not_kept", "stale")
UNCOMPILED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE

#: Code object -> its regions, one for each way of compiling it (with the code object that holds the entries).
_compiled: WeakIdDict[dict[Config, tuple[CodeType | None, Region]]] = WeakIdDict()
_isolated = itertools.count(1)


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | Mapping[str, Any] | None = None,
    backend: str | Callable | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
    strict: bool | None = None,
    verify: float | None = None,
    background: bool | None = None,
    on: Any = None,
) -> Any:
    """Compile a function, method, module or callable object: the first call captures it, later calls run what was compiled.

    The arguments down to `shapes_spec` are those of `torch.compile`. Sizes are dynamic unless the program makes them static; `dynamic=` is
    None, True (ints held by objects are symbolic at once, too), False (all static), or dims by parameter, `{"x": {0: Dim("batch")}}`.
    `strict=True` raises pliant's internal errors instead of running that frame eagerly (default: the environment variable PLIANT_STRICT).
    `verify` is the share of calls that run in eager PyTorch too and are compared, 0 to 1 (default: PLIANT_VERIFY, else 0; docs/verify.md).
    `name` is said before each function's name in events and logs. `recompile_limit` is how many versions one function may have (further
    calls run in eager PyTorch; with `fullgraph` they raise RecompileError). `isolate_recompiles` gives this compilation entries of its own:
    else two equal compilations of one function share them. `shapes_spec`: see `pliant.jit.shapes_spec`.
    `background`: the first calls run ATen, and machine code takes over when a thread has made it, at some later call (`synchronize`
    waits for that). False makes the machine code before the first answer: every call gives the same bits (default: PLIANT_BACKGROUND, else
    True).
    `on`: a mesh (`pliant.remote.mesh`), whose workers run the graphs that read its tensors (docs/remote.md).
    Without `model` it is a decorator. `mode` and `options`: see `pliant.jit.modes`. Raises ValueError for an unknown backend or a share
    that is none, PliantError for an unknown mode or option, and TypeError for what cannot be compiled and for an argument of another type.
    """
    if on is not None:
        backend, background = arguments.on_mesh(on, backend), False
    backend = DEFAULT_BACKEND if backend is None else backend
    arguments.check(
        fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options, disable=disable, strict=strict,
        background=background, name=name, recompile_limit=recompile_limit, isolate_recompiles=isolate_recompiles,
    )  # fmt: skip
    if callable(backend) and type(backend).__hash__ is None:
        backend = backend.__call__  # bound methods are told apart by their objects
    if shapes_spec is not None:
        if isinstance(dynamic, Mapping):
            raise PliantError("give either dynamic={...} or shapes_spec=, not both")
        dynamic = shapes.declarations(shapes_spec)
    own = {"entry_limit": recompile_limit} if recompile_limit is not None else {}
    config = Config(
        backend=backend,
        dynamic=dims.table(dynamic) if isinstance(dynamic, Mapping) else dynamic,
        fullgraph=fullgraph,
        strict=env_flag("PLIANT_STRICT") if strict is None else strict,
        verify=env_share("PLIANT_VERIFY") if verify is None else as_share(verify, "verify"),
        background=env_flag("PLIANT_BACKGROUND", "1") if background is None else background,
        name=name or "",
        isolated=next(_isolated) if isolate_recompiles else 0,
        **modes.settings(backend, mode, options) | own,
    )
    backends.lookup(config.backend)  # an unknown name is an error now, not at the first call
    with contextlib.suppress(PliantError):  # which the first call tells
        if config.background:
            target.current().fingerprint()  # the background loads what makes code
        elif config.backend == "native":
            target.current().product_dtypes()  # what makes code is loaded now, not in the first call
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
    clone, region = place_of(fn.__code__, config)
    return region.entry_point(fn) if clone is None else twin_of(fn, clone, region)


def compile_gradients(fn: FunctionType, backend: str) -> Any:
    """What a region runs to have its gradients differentiable. Machine code comes in the background, as for the program's functions."""
    background = env_flag("PLIANT_BACKGROUND", "1")
    return compile_function(fn, Config(backend=backend, below=False, strict=env_flag("PLIANT_STRICT"), background=background))


recipe_source.capturing.append(compile_gradients)


def place_of(code: CodeType, config: Config, region: Region | None = None) -> tuple[CodeType | None, Region]:
    """The clone of `code` that has its entries for `config`, None if that is itself, and their region: `region`, if this is new."""
    regions = _compiled.get(code)
    if regions is None:
        regions = _compiled[code] = {}
    found = regions.get(config)
    if found is None:
        found = regions[config] = (code.replace() if regions else None, region or Region(config))
    return found


def twin_of(fn: FunctionType, clone: CodeType, region: Region) -> Any:
    """An entry point for `fn` around another function, whose code is `clone`."""
    twin = FunctionType(clone, fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
    twin.__kwdefaults__ = fn.__kwdefaults__
    functools.update_wrapper(twin, fn)

    def follow(twin: FunctionType, fn: FunctionType) -> None:
        """The program has given `fn` other code or defaults."""
        twin.__code__ = place_of(fn.__code__, region.config, region)[0] or fn.__code__
        twin.__defaults__, twin.__kwdefaults__ = fn.__defaults__, fn.__kwdefaults__

    return region.entry_point(twin, origin=fn, follow=follow)


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


APPLY = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]


def compile_method(method: types.MethodType, config: Config) -> Any:
    """A bound method. What `nn.Module.compile` asks for, all modules share: each gets entries of its own."""
    if method.__func__ is torch.nn.Module._call_impl:
        return compile_call_of(method.__self__, config)
    if method.__func__ is APPLY:  # what it means is known of the call, not of its code
        return compile_callable(method, config)
    return types.MethodType(_compile(method.__func__, config, False), method.__self__)


KINDS: list[tuple[type, Callable[[Any, Config], Any]]] = [
    (native.EntryPoint, lambda e, config: compile_function(e._origin or e._fn, config)),
    (torch.nn.Module, compile_module),
    (FunctionType, compile_function),
    (types.MethodType, compile_method),
    (staticmethod, lambda s, config: staticmethod(_compile(s.__func__, config, False))),
    (classmethod, lambda c, config: classmethod(_compile(c.__func__, config, False))),
    (functools.partial, lambda p, config: functools.partial(_compile(p.func, config, False), *p.args, **p.keywords)),
    (type, compile_class),
]


optimized_module.compilers.append(lambda fn, config: _compile(fn, config, False))


@lookaside(compile)
def compiled_within(args: tuple, kwargs: dict) -> Any:
    """`compile` called by a program that is being captured: what it gives is part of that anyway."""
    model = args[0] if args else kwargs.get("model")
    return unchanged if model is None else model


def reset() -> None:
    """Forget everything compiled, learned and counted. Compiled functions stay usable and start anew; what is on the disk stays there."""
    with turns.compiling:  # so that nothing of before is told afterwards
        tasks.store()
        tasks.clear()
        reset_all()
        source.clear_interned()
        events.reset()
        native.reset_counters()


def synchronize(timeout: float | None = None) -> bool:
    """Wait until the background has made all machine code that it was asked for. False if `timeout` seconds were not enough."""
    return tasks.synchronize(timeout)


def stats(on: Any = None) -> dict[str, Any]:
    """Process-wide counts since the last `reset()`. `on`: a mesh, whose own counts and those of its workers are then under "mesh".

    captures, recompiles, graph_breaks, fallbacks (frames given up to eager after an internal failure), user_errors (captures that ended
    with an exception of the program's own, which CPython raised again), entries, from_disk (those of them that another process had
    captured), kept and not_kept (those that were, or could not be, left to other processes), stale (found on disk, but the program or its
    surroundings have changed), exit_points (branches on data behind which a graph goes on), side_exits (runs that left one there),
    exchanged (entries whose machine code has taken over), background_errors (those for which that failed), calls (entries run),
    verified, mismatches and unverifiable (calls with `verify=`: the same as eager, different, not to be judged).
    """
    counted = events.counters()
    found = {name: counted.get(name, 0) for name in STATISTICS} | {name: counted.get(f"entries_{name}", 0) for name in ON_DISK}
    return found | {"calls": native.counters()["calls"]} | ({} if on is None else {"mesh": on.stats()})
