"""Backends: who turns a captured graph into something that runs.

`"aten"`: straight-line ATen calls, a differentiable node where gradients flow (`codegen/region.py`). `"native"`, the default: the
same with fused CPU kernels between the calls (`codegen/native.py`). Any other backend is a callable in TorchDynamo's convention,
`(GraphModule, example_inputs) -> callable`: it gets the program at Torch level (not decomposed, before autograd), with sizes as
placeholders, and what it returns is called with tensors and integers in the order of the placeholders. `"eager"` is the simplest of
these: it runs the graph module. Names that are not ours (`"inductor"`, ...) are looked up among TorchDynamo's backends, at the time of
the call: this module is the one place that touches the incumbent.

Example inputs are fake tensors whose sizes are symbols of a fresh `ShapeEnv`, which is what such compilers expect for dynamic shapes.
Whatever a compiler assumed about the sizes is in that `ShapeEnv` afterwards; it is checked on every call, and other sizes get a
variant of their own.
"""

from __future__ import annotations

import copy
import functools
import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pliant.codegen.aten import Executable
from pliant.codegen.region import compile_region
from pliant.config import DEFAULT_BACKEND
from pliant.errors import BackendError
from pliant.graph.fxgraph import to_fx, torch_level
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable]
Compiler = Callable[..., Executable]
"""`(trace, inputs, outputs, *, name) -> Executable`, as `codegen.region.compile_region`."""

VARIANTS = 8
"""How many variants one graph may have before its graph module runs as it is."""


def run_module(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable:
    """The backend `"eager"`: PyTorch runs the captured program."""
    return module.forward


OWN: dict[str, Compiler | str | None] = {"aten": compile_region, "native": "pliant.codegen.native:compile_native", "eager": None}
"""Our own backends; one that takes long to import is named by its place."""


def lookup(backend: str | Backend, extra: dict[str, Any] | None = None) -> Compiler:
    """The compiler of this name, or of this Dynamo-style callable. Raises ValueError for a name that nobody knows.

    `extra`: keywords for a backend that is not ours.
    """
    if callable(backend):
        return from_callable(functools.partial(backend, **extra) if extra else backend)
    if backend == "eager":
        return from_callable(run_module)
    own = OWN.get(backend)
    if own is None:
        found = theirs(backend)
        return from_callable(functools.partial(found, **extra) if extra else found)
    return pkgutil.resolve_name(own) if isinstance(own, str) else own


def compile_graph(
    trace: Any,
    inputs: list[Any],
    outputs: Any,
    *,
    name: str = "region",
    backend: str | Backend = DEFAULT_BACKEND,
    extra: dict[str, Any] | None = None,
) -> Executable:
    """The executable of a captured graph by this backend; arguments as for `compile_region` and `lookup`."""
    return lookup(backend, extra)(trace, inputs, outputs, name=name)


def theirs(name: str) -> Backend:
    """A backend registered with TorchDynamo."""
    registry = importlib.import_module("torch._dynamo.backends.registry")
    try:
        return registry.lookup_backend(name)
    except Exception as e:
        known = ", ".join(sorted({*OWN, *registry.list_backends(exclude_tags=())}))
        raise ValueError(f"unknown backend {name!r}: use one of {known}, or a callable (GraphModule, example_inputs)") from e


def from_callable(backend: Backend) -> Compiler:
    """A compiler that hands the Torch-level graph to `backend`."""

    def compiler(trace: Any, inputs: list[Any], outputs: Any, *, name: str = "region") -> Executable:
        flat = liveness.leaves(outputs)
        live = [v for v in flat if isinstance(v, TracedTensor) or liveness.number(v) is not None]
        module = module_of(trace, inputs, live, name)
        variants = Variants(backend, module, trace, inputs)
        variants.compile([e.hint if e.hint is not None else 2 for e in variants.symbols])
        return Executable(refill(variants, flat), module.code, len(module.graph.nodes), {}, variants)

    return compiler


def module_of(trace: Any, inputs: list[Any], outputs: list[Any], name: str) -> torch.fx.GraphModule:
    """The graph as the program wrote it; where the Torch-level record does not lead from inputs to outputs, its ATen operations."""
    try:
        module = torch_level(trace, inputs, tuple(outputs), name)
    except KeyError:
        module = to_fx(trace, inputs, tuple(outputs), trace.ops[: trace.n_forward], name)
    module.graph.eliminate_dead_code(is_impure_node=lambda node: node.op != "get_attr")
    for node in module.graph.nodes:
        for key in ("val", "source", "site"):  # a compiler may keep the module: it must not keep the capture
            node.meta.pop(key, None)
    module.recompile()
    return module


def refill(variants: Variants, flat: list[Any]) -> Callable[..., tuple]:
    """Constants among the outputs did not go through the graph: put them back."""
    is_live = [isinstance(v, TracedTensor) or liveness.number(v) is not None for v in flat]
    if all(is_live):
        return lambda *slots: tuple(variants(*slots))

    def fn(*slots: Any) -> tuple:
        results = iter(variants(*slots))
        return tuple(next(results) if on else v for v, on in zip(flat, is_live, strict=True))

    return fn


@dataclass(slots=True)
class Variant:
    """One compiled form and the sizes that it admits."""

    admits: Callable[[list[Any]], bool]
    fn: Callable


class Variants:
    """The compiled forms of one graph. Calling it finds the one whose assumptions about sizes hold, or compiles another."""

    def __init__(self, backend: Backend, module: torch.fx.GraphModule, trace: Any, inputs: list[Any]) -> None:
        self.backend = backend
        self.module = module
        self.specs = [spec_of(slot, trace.scope) for slot in inputs]
        self.symbols: list[Expr] = []
        self.readers: list[Callable[[tuple], Any]] = []
        self.variants: list[Variant] = []
        seen: set[str] = set()
        for i, slot in enumerate(inputs):
            if not isinstance(slot, TracedTensor):
                self.add_symbol(slot, seen, lambda slots, i=i: slots[i])
        for i, slot in enumerate(inputs):
            for d, size in enumerate(slot.sizes if isinstance(slot, TracedTensor) else ()):
                self.add_symbol(liveness.number(size), seen, lambda slots, i=i, d=d: slots[i].size(d))
            for d, stride in enumerate(slot.strides if isinstance(slot, TracedTensor) else ()):
                self.add_symbol(liveness.number(stride), seen, lambda slots, i=i, d=d: slots[i].stride(d))

    def add_symbol(self, e: Expr | None, seen: set[str], reader: Callable[[tuple], Any]) -> None:
        if e is not None and e.op == "sym" and e.name not in seen:
            seen.add(e.name)
            self.symbols.append(e)
            self.readers.append(reader)

    def __call__(self, *slots: Any) -> Any:
        values = [read(slots) for read in self.readers]
        for variant in self.variants:
            if variant.admits(values):
                return variant.fn(*slots)
        if len(self.variants) >= VARIANTS:
            return self.module(*slots)
        self.compile(values)
        return self.variants[-1].fn(*slots)

    def compile(self, values: list[Any]) -> None:
        """Compile a variant for sizes like `values`."""
        module = copy.deepcopy(self.module)  # compilers rewrite what they are given
        shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
        env = shapes.ShapeEnv()
        numbers = {e.name: symbolic_number(shapes, env, e, v) for e, v in zip(self.symbols, values, strict=True)}
        fake_mode = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode(shape_env=env, allow_non_fake_inputs=True)
        guards = importlib.import_module("torch._guards")
        try:
            examples = [example(spec, numbers, fake_mode) for spec in self.specs]
            with guards.tracing(guards.TracingContext(fake_mode)):
                fn = self.backend(module, examples)
        except Exception as e:
            raise BackendError(f"the backend {name_of(self.backend)} raised {type(e).__name__}: {e}") from e
        if not callable(fn):
            raise BackendError(f"the backend {name_of(self.backend)} returned a {type(fn).__name__}, which cannot be called")
        symbols = [n for n in numbers.values() if isinstance(n, torch.SymInt)]
        at = [i for i, n in enumerate(numbers.values()) if isinstance(n, torch.SymInt)]
        text = env.produce_guards_expression(symbols) if symbols else None
        if text is None:
            self.variants.append(Variant(lambda _: True, fn))
        else:
            self.variants.append(Variant(lambda values: env.evaluate_guards_expression(text, [values[i] for i in at]), fn))


def name_of(backend: Any) -> str:
    backend = getattr(backend, "func", backend)  # of a partial
    return getattr(backend, "__qualname__", None) or type(backend).__name__


@dataclass(slots=True)
class TensorSlot:
    """What a fake tensor is made from: sizes and strides as Python text over the symbols."""

    sizes: str
    strides: str
    dtype: torch.dtype
    device: torch.device
    requires_grad: bool


def spec_of(slot: Any, scope: Any) -> TensorSlot | str:
    """The recipe of an example input; for a symbol, its name."""
    if not isinstance(slot, TracedTensor):
        return slot.name
    text = [", ".join(number_text(n, scope) for n in numbers) for numbers in (slot.sizes, slot.strides)]
    return TensorSlot(f"[{text[0]}]", f"[{text[1]}]", slot.dtype, slot.device, slot.requires_grad)


def number_text(value: Any, scope: Any) -> str:
    e = liveness.number(value)
    return scope.simplify(e).python() if e is not None else repr(value)


def symbolic_number(shapes: Any, env: Any, e: Expr, value: Any) -> Any:
    """A `SymInt` of `env` for an integer symbol; other numbers as they are."""
    if e.kind is not int:
        return value
    source = importlib.import_module("torch._dynamo.source").ConstantSource(e.name)
    symbol = env.create_symbol(value, source, shapes.DimDynamic.DYNAMIC, constraint_dim=None)
    return env.create_symintnode(symbol, hint=value, source=source)


def example(spec: TensorSlot | str, numbers: dict[str, Any], fake_mode: Any) -> Any:
    if isinstance(spec, str):
        return numbers[spec]
    namespace = {"min": torch.sym_min, "max": torch.sym_max, "math": importlib.import_module("math"), **numbers}
    sizes, strides = eval(spec.sizes, namespace), eval(spec.strides, namespace)
    with fake_mode:
        x = torch.empty_strided(sizes, strides, dtype=spec.dtype, device=spec.device)
    return x.requires_grad_(True) if spec.requires_grad else x
