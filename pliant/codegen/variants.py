"""The compiled forms of one graph by a backend that is not ours, and the sizes that each admits.

Example inputs are fake tensors whose sizes are symbols of a fresh `ShapeEnv`, which is what such compilers expect for dynamic shapes; a
float is a 0-d tensor whose `item()` is such a symbol. Whatever a compiler assumed about the numbers is in that `ShapeEnv` afterwards; it
is checked on every call, and other numbers get a variant of their own. Sizes 0 and 1, and floats that have no symbol (nan, the
infinities, -0.0), are constants of their variant.

Compilers functionalize: they take it that inputs do not share memory unless they are told so. A call whose inputs overlap what the graph
writes runs the graph as it was captured. So does one that takes `as_strided` of inputs that are written, or begin within their storage.
"""

from __future__ import annotations

import copy
import importlib
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from types import CodeType
from typing import Any

from torch import _guards
from torch.utils._device import DeviceContext

from pliant.codegen.dynamo_graph import Handed, Number, SymbolInfo, TensorSlot, written_by
from pliant.errors import BackendError
from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.traced import NO_DERIVATIVE, NOT_TAKEN, UNBACKED, Reconsider
from pliant.interpret import globalstate
from pliant.lower.autograd import WITHOUT_DERIVATIVE

Backend = Callable[[torch.fx.GraphModule, list[Any]], Callable]

MOST = 8
"""How many variants one graph may have before its graph module runs as it is."""
RESTARTS = 16
SPECIALIZED_FLOAT = "TensorifyScalarRestartAnalysis"
"""What Inductor raises where it found out that it must bake a float in: asked again, it does, and says so in the `ShapeEnv`."""


@dataclass(slots=True)
class Variant:
    """`pinned` are (place among the symbols, value); `condition` is over the symbols that the compiler may have asked about, at `at`."""

    fn: Callable
    pinned: list[tuple[int, Any]]
    condition: CodeType | None
    names: dict[str, Any]
    at: list[int]
    arguments: list[tuple[int, bool]]  # (slot, whether it becomes a tensor)

    def admits(self, values: list[Any]) -> bool:
        if not all(same(values[i], v) for i, v in self.pinned):
            return False
        return self.condition is None or bool(eval(self.condition, self.names, {"L": {f"t{n}": values[i] for n, i in enumerate(self.at)}}))


class Variants:
    """Calling it finds the variant whose assumptions hold, or compiles another.

    `refusal`: what is raised where the backend does anything but run the graph as it is; `raising`: where it raises."""

    def __init__(self, backend: Backend, graph: Handed, refusal: Reconsider | None = None, raising: Reconsider | None = None) -> None:
        self.backend = backend
        self.graph = graph
        self.refusal, self.raising = refusal, refusal or raising
        self.readers = [s.read for s in graph.symbols]
        self.variants: list[Variant] = []
        self.lock = threading.RLock()
        self.written = written_by(graph)
        self.others = [i for i, spec in zip(graph.at, graph.inputs, strict=True) if isinstance(spec, TensorSlot) and not spec.written]
        self.as_captured = arguments_of(graph, set())

    def __call__(self, slots: tuple) -> Any:
        if self.written and overlapping([slots[i] for i in self.written], [slots[i] for i in self.others]):
            return self.plainly(slots)
        if self.graph.strided and (self.written or any(ORIGINAL.storage_offset(slots[i]) for i in self.others)):
            return self.plainly(slots)
        values = [read(slots) for read in self.readers]
        for variant in self.variants:
            if variant.admits(values):
                return variant.fn(*given(slots, variant.arguments))
        with self.lock:
            if len(self.variants) >= MOST:
                return self.plainly(slots)
            try:
                variant = self.compile(values)
            except Reconsider:  # not while a graph is running
                return self.plainly(slots)
        return variant.fn(*given(slots, variant.arguments))

    def plainly(self, slots: tuple) -> Any:
        """The graph as it was captured."""
        return self.graph.module(*given(slots, self.as_captured))

    def compile(self, values: list[Any]) -> Variant:
        """A variant for numbers like `values`. Raises BackendError; Reconsider where the graph has sizes that the backend cannot do."""
        for _ in range(RESTARTS):
            try:
                with unchanged_state():
                    variant = self.attempt(values)
            except Exception as e:
                if type(e).__name__ == SPECIALIZED_FLOAT:
                    continue
                if self.raising is not None:
                    raise self.raising from e
                if self.graph.unbacked:
                    raise Reconsider(name_of(self.backend), f"it raised {type(e).__name__}: {e}", UNBACKED) from e
                if (unknown := without_shape(e)) is not None:
                    raise Reconsider(name_of(self.backend), f"it knows no shape of {unknown}", NOT_TAKEN + unknown) from e
                if (found := WITHOUT_DERIVATIVE.search(str(e))) is not None:  # it differentiates at once; eager says so when asked
                    name = str(found[found.lastindex or 1]).replace(".", "::").removeprefix("aten::")
                    raise Reconsider(name_of(self.backend), f"the derivative of {name} is not implemented", NO_DERIVATIVE + name) from e
                error = BackendError(f"the backend {name_of(self.backend)} raised {type(e).__name__}: {e}")
                error.backend = name_of(self.backend)
                raise error from e
            if not callable(variant.fn):
                raise BackendError(f"the backend {name_of(self.backend)} returned a {type(variant.fn).__name__}, which cannot be called")
            self.variants.append(variant)
            return variant
        raise BackendError(f"the backend {name_of(self.backend)} specializes floats without end")

    def attempt(self, values: list[Any]) -> Variant:
        graph = self.graph
        module = copy.deepcopy(graph.module)  # compilers rewrite what they are given
        numbers = Numbers(graph, values)
        constants = {s.name: values[i] for i, s in enumerate(graph.symbols) if s.name in numbers.pinned}
        examples = []
        placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
        for node, spec in zip(placeholders, graph.inputs, strict=True):
            if isinstance(spec, SymbolInfo) and spec.name in constants:
                without_placeholder(module, node, constants[spec.name])
                continue
            node.meta["example_value"] = numbers.example(spec)
            examples.append(node.meta["example_value"])
        with numbers.env.ignore_fresh_unbacked_symbols():
            for node in module.graph.nodes:
                if node.name in graph.values:
                    node.meta["example_value"] = numbers.value(graph.values[node.name])
        module.recompile()
        with numbers.tracing():
            fn = self.backend(module, examples)
        if self.refusal is not None and fn != module and fn != module.forward:
            raise self.refusal
        pinned = [(i, values[i]) for i, s in enumerate(graph.symbols) if s.name in numbers.pinned]
        return Variant(fn, pinned, *numbers.condition(), arguments_of(graph, set(constants)))


SHAPELESS = ("DynamicOutputShapeException", "DataDependentOutputException", "UnsupportedOperatorException")


def without_shape(e: BaseException | None) -> str | None:
    """The operator (as `NO_DERIVATIVE` names them) whose results fake tensors cannot be given a shape, if that is what a compiler says."""
    while e is not None:
        if type(e).__name__ in SHAPELESS:
            return str(e.func._schema.name).removeprefix("aten::")  # type: ignore[attr-defined]
        e = e.__cause__
    return None


class Numbers:
    """The symbols of a graph as symbols of one `ShapeEnv`, with values for which it is compiled."""

    def __init__(self, graph: Handed, values: list[Any]) -> None:
        self.shapes = importlib.import_module("torch.fx.experimental.symbolic_shapes")
        self.env = self.shapes.ShapeEnv(duck_shape=False)
        self.fake_mode = importlib.import_module("torch._subclasses.fake_tensor").FakeTensorMode(
            shape_env=self.env, allow_non_fake_inputs=True
        )
        self.infos = graph.symbols
        self.pinned: set[str] = set()
        self.symbols: dict[str, Any] = {}
        self.namespace: dict[str, Any] = {"min": torch.sym_min, "max": torch.sym_max, "float": torch.sym_float, "math": math}
        for info, value in zip(self.infos, values, strict=True):
            if is_special(info, value):
                self.pinned.add(info.name)
                self.namespace[info.name] = value
            else:
                self.namespace[info.name] = self.symbols[info.name] = self.symbol(info, value)

    def symbol(self, info: SymbolInfo, value: Any) -> Any:
        source = Named(info.name)
        dynamic = self.shapes.DimDynamic.DYNAMIC
        if info.size:
            s = self.env.create_symbol(value, source, dynamic, constraint_dim=None)
        else:
            s = self.env.create_unspecified_symbol(value, source, dynamic)
        make = self.env.create_symfloatnode if info.kind is float else self.env.create_symintnode
        return make(s, hint=value, source=source)

    def example(self, spec: TensorSlot | SymbolInfo) -> Any:
        """An input of the graph."""
        if isinstance(spec, TensorSlot):
            return self.tensor(spec)
        if spec.kind is not float:
            return self.symbols[spec.name]
        with self.fake_mode:
            x = torch.empty((), dtype=torch.float64, device="cpu")
        x.item_memo = self.symbols[spec.name]
        return x

    def tensor(self, spec: TensorSlot) -> Any:
        sizes, strides, offset = self.eval(spec.sizes), self.eval(spec.strides), self.eval(spec.offset)
        with self.fake_mode, torch.no_grad():
            x = torch.empty_strided(sizes, strides, dtype=spec.dtype, device=spec.device)
            if type(offset) is not int or offset:
                memory = torch.empty((offset + sum(n * s for n, s in zip(sizes, strides)) + 1,), dtype=spec.dtype, device=spec.device)
                x = ORIGINAL.as_strided(memory, sizes, strides, offset)
        if spec.bits[0]:
            torch._C._set_conj(x, True)
        if spec.bits[1]:
            torch._C._set_neg(x, True)
        if spec.is_parameter:
            return torch.nn.Parameter(x, spec.requires_grad)
        if spec.requires_grad:
            ORIGINAL.requires_grad_(x, True)
            if not spec.is_leaf:
                with self.fake_mode, torch.enable_grad():
                    x = ORIGINAL.view_as(x, x)
        return x

    def value(self, recipe: Any) -> Any:
        """The example value of an inner node."""
        if isinstance(recipe, (TensorSlot, Number)):
            try:
                return self.tensor(recipe) if isinstance(recipe, TensorSlot) else self.eval(recipe.text)
            except Exception:  # PyTorch's own symbols may not know or prove what ours do: the node then has no example
                return None
        return tuple(map(self.value, recipe)) if isinstance(recipe, tuple) else recipe

    def eval(self, text: str) -> Any:
        while True:
            try:
                return eval(text, self.namespace)
            except NameError as e:  # a symbol that the graph makes
                self.namespace[e.name] = self.env.create_unbacked_symint()

    def tracing(self) -> AbstractContextManager:
        return _guards.tracing(_guards.TracingContext(self.fake_mode))

    def condition(self) -> tuple[CodeType | None, dict[str, Any], list[int]]:
        """What the compiler assumed about the symbols: code over `L`, its names, and the places of the symbols."""
        at = [i for i, info in enumerate(self.infos) if info.name in self.symbols]
        text = self.env.produce_guards_expression([self.symbols[self.infos[i].name] for i in at]) if at else None
        if text is None:
            return None, {}, at
        return compile(text, "<the backend's assumptions>", "eval"), dict(self.shapes.SYMPY_INTERP), at


def is_special(info: SymbolInfo, value: Any) -> bool:
    """Whether a number is a constant of its variant."""
    if info.kind is float:
        return not math.isfinite(value) or (value == 0.0 and math.copysign(1.0, value) < 0)
    return info.kind is bool or (info.size and value < 2)


def same(a: Any, b: Any) -> bool:
    """Equal to the bit, but for nan payloads."""
    if type(b) is float:
        return (a != a and b != b) or (a == b and math.copysign(1.0, a) == math.copysign(1.0, b))
    return bool(a == b)


class Named(_guards.Source):
    """Where a symbol of a `ShapeEnv` comes from: a name, which is all that its messages and its guards need."""

    text: str

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "text", name)

    @property
    def guard_source(self) -> Any:
        return _guards.GuardSource.CONSTANT

    @property
    def name(self) -> str:
        return self.text

    @property
    def _name_template(self) -> str:
        return self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return type(other) is Named and other.text == self.text


def without_placeholder(module: torch.fx.GraphModule, node: Any, value: Any) -> None:
    """Put a constant in the place of a number that is an input."""
    for user in list(node.users):
        if type(value) is float:  # its `item()`
            user.replace_all_uses_with(value)
            module.graph.erase_node(user)
    if type(value) is not float:
        node.replace_all_uses_with(value)
    module.graph.erase_node(node)


def arguments_of(graph: Handed, constants: set[str]) -> list[tuple[int, bool]]:
    """The slots that a variant takes, and which of them are floats."""
    out = []
    for i, spec in zip(graph.at, graph.inputs, strict=True):
        if isinstance(spec, TensorSlot):
            out.append((i, False))
        elif spec.name not in constants:
            out.append((i, spec.kind is float))
    return out


def given(slots: tuple, arguments: list[tuple[int, bool]]) -> list[Any]:
    return [torch.tensor(slots[i], dtype=torch.float64, device="cpu") if is_float else slots[i] for i, is_float in arguments]


def overlapping(written: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    """Whether memory that is written may be seen through two of these tensors."""
    memory = [(ORIGINAL.untyped_storage(t), True) for t in written] + [(ORIGINAL.untyped_storage(t), False) for t in others]
    spans = sorted((s.data_ptr(), s.nbytes(), mark) for s, mark in memory if s.nbytes())
    end, last = -1, False
    for start, size, mark in spans:
        if start < end and (mark or last):
            return True
        if start + size > end:
            end, last = start + size, mark
    return False


class unchanged_state:
    """Compilers run the program to see what it does; what it sets (grad mode, autocast) they may leave so. User modes do not see it."""

    def __enter__(self) -> None:
        self.state = globalstate.save()
        if globalstate.user_modes():
            globalstate.set_function_modes(tuple([m for m in globalstate.function_modes() if type(m) is DeviceContext]))

    def __exit__(self, *_: Any) -> None:
        globalstate.restore(self.state)


def name_of(backend: Any) -> str:
    backend = getattr(backend, "func", backend)  # of a partial
    return getattr(backend, "__qualname__", None) or type(backend).__name__
