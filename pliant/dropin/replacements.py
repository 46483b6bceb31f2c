"""What stands in the place of PyTorch's doors while pliant is installed: each has the signature of what it replaces."""

from __future__ import annotations

import importlib
import inspect
import pathlib
import sys
import tempfile
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

import pliant.jit.compile as ours
from pliant import events
from pliant.codegen import backends
from pliant.config import DEFAULT_BACKEND
from pliant.errors import PliantError
from pliant.interpret.lookasides import lookaside
from pliant.interpret.policy import set_kind
from pliant.jit.compiled_module import stands_for_torchs
from pliant.jit.modes import OPTIONS
from pliant.jit.persist.archive import load_cache, save_cache
from pliant.jit.stance import said_to_torch

REPLACED_BACKEND = "inductor"
TORCH_COMPILE = torch.compile
#: Modules of PyTorch through which programs come. What PyTorch compiles for its own ends stays its own (`flex_attention` in eager).
DOORS_OF_TORCH = ("torch.compiler", "torch.nn.modules.module")
_said: set[str] = set()


def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """`torch.compile`, by pliant. The default backend is pliant's; another one, by name or as a callable, gets pliant's graphs.

    Options of TorchInductor that mean nothing here are passed over, and named once. Raises what `pliant.compile` does, and RuntimeError for
    a mode and options together, as PyTorch does.
    """
    asked = {k: v for k, v in locals().items() if k in ARGUMENTS and k != "model" and v is not DEFAULTS[k]}
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if asked_by_torch():
        return TORCH_COMPILE(**{k: v for k, v in locals().items() if k in ARGUMENTS})
    chosen = backend if backend is not None else said_to_torch("backends.registry", "_default_backend", REPLACED_BACKEND)
    if chosen == REPLACED_BACKEND:
        chosen = DEFAULT_BACKEND
    if isinstance(chosen, str) and chosen in backends.OWN:
        options = understood(options or {})
    if torch.compiler.is_exporting():
        return model if model is not None else lambda model: model
    made = ours.compile(
        model, fullgraph=bool(fullgraph), dynamic=dynamic, backend=chosen, mode=mode, options=options or None, name=name,
        disable=bool(disable), recompile_limit=recompile_limit, isolate_recompiles=bool(isolate_recompiles), shapes_spec=shapes_spec,
    )  # fmt: skip
    return (lambda model: stands_for_torchs(made(model), asked)) if model is None else stands_for_torchs(made, asked)


lookaside(compile)(ours.compiled_within)
DEFAULTS = {k: p.default for k, p in inspect.signature(compile).parameters.items()}
ARGUMENTS = DEFAULTS.keys()


def asked_by_torch() -> bool:
    """Whether the caller of a replacement is PyTorch itself, for its own ends."""
    caller = sys._getframe(2).f_globals.get("__name__", "")
    return caller.partition(".")[0] == "torch" and caller not in DOORS_OF_TORCH


def understood(options: dict[str, Any]) -> dict[str, Any]:
    """The options that pliant's own backends know. The others are named once."""
    for option in options.keys() - OPTIONS.keys():
        say_once(f"the option {option!r} of torch.compile means nothing to pliant and is passed over")
    return {k: v for k, v in options.items() if k in OPTIONS}


def say_once(text: str) -> None:
    if text not in _said:
        _said.add(text)
        events.emit("warning", id="install", text=text)
        warnings.warn(f"pliant: {text}", UserWarning, stacklevel=4)


def allow_in_graph(before: Callable) -> Callable:
    def allow_in_graph(fn: Any) -> Any:
        """As PyTorch's, for both compilers."""
        for each in fn if isinstance(fn, (list, tuple)) else [fn]:
            set_kind(each, "graph")
        return before(fn) if "torch._dynamo" in sys.modules else fn

    return allow_in_graph


def disallow_in_graph(before: Callable) -> Callable:
    def disallow_in_graph(fn: Any) -> Any:
        """As PyTorch's, for both compilers."""
        for each in fn if isinstance(fn, (list, tuple)) else [fn]:
            set_kind(each, "skip")
        return before(fn)

    return disallow_in_graph


def reset(before: Callable) -> Callable:
    def reset() -> None:
        """Forget what was compiled, by both compilers."""
        ours.reset()
        if "torch._dynamo" in sys.modules:
            before()

    return reset


class Artifacts(types.SimpleNamespace):
    """What `save_cache_artifacts` and `load_cache_artifacts` say beside the bytes: how many objects."""


def save_cache_artifacts() -> tuple[bytes, Artifacts] | None:
    """What this process has compiled, as bytes for `load_cache_artifacts`; None where there is nothing (`pliant.save_cache`)."""
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "artifacts")
        try:
            count = save_cache(path)
        except PliantError:
            return None
        return path.read_bytes(), Artifacts(pliant=count)


def load_cache_artifacts(serialized_artifacts: bytes) -> Artifacts | None:
    """Make what `save_cache_artifacts` gave available to this process. Load only what you trust: it holds code (`pliant.load_cache`)."""
    with tempfile.TemporaryDirectory() as place:
        path = pathlib.Path(place, "artifacts")
        path.write_bytes(serialized_artifacts)
        path.chmod(0o600)
        return Artifacts(pliant=load_cache(path))


def optimize(before: Callable) -> Callable:
    def optimize(backend: Any = REPLACED_BACKEND, **settings: Any) -> Any:
        """`torch._dynamo.optimize`, the older door to `torch.compile`. What means nothing here is passed over."""
        if asked_by_torch():
            return before(backend, **settings)
        settings["fullgraph"] = settings.pop("nopython", False)
        return compile(backend=backend, **{k: v for k, v in settings.items() if k in ARGUMENTS})

    return optimize


def optimize_assert(before: Callable) -> Callable:
    def optimize_assert(backend: Any, **settings: Any) -> Any:
        """`torch._dynamo.optimize_assert`: the same, and one graph or an error."""
        if asked_by_torch():
            return before(backend, **settings)
        return compile(backend=backend, **({k: v for k, v in settings.items() if k in ARGUMENTS} | {"fullgraph": True}))

    return optimize_assert


def explain(f: Callable, *given: Any, **keywords: Any) -> Any:
    """`torch._dynamo.explain`: the graphs, breaks and operations of one call, by pliant, in PyTorch's own record."""

    def explained(*args: Any, **kwargs: Any) -> Any:
        graphs: list[torch.fx.GraphModule] = []

        def keep(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
            graphs.append(graph)
            return graph.forward

        breaks: list[Any] = []
        end = events.subscribe(breaks.append, ("graph_break",))
        try:
            ours.compile(f, backend=keep, isolate_recompiles=True)(*args, **kwargs)
        finally:
            end()
        debugging, output_graph = [importlib.import_module(f"torch._dynamo.{part}") for part in ("backends.debugging", "output_graph")]
        ops = [[n.target for n in g.graph.nodes if n.op.startswith("call_")] for g in graphs]
        reasons = [output_graph.GraphCompileReason(f"{e.fields['code']}: {e.fields['reason']}", [f"{e.fields['site']}"]) for e in breaks]
        return debugging.ExplainOutput(graphs, len(graphs), len(breaks), reasons, sum(map(len, ops)), ops, [], None)

    return explained(*given, **keywords) if given or keywords else explained
