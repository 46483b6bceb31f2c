"""Backends: who turns a captured graph into something that runs.

`"aten"`: straight-line ATen calls, a differentiable node where gradients flow (`codegen/autograd_region.py`). `"native"`, the default: the
same with fused CPU kernels between the calls (`codegen/native.py`). Any other backend is a callable in TorchDynamo's convention,
`(GraphModule, example_inputs) -> callable`: it gets the program at Torch level (not decomposed, before autograd), with sizes as
placeholders (`graph/torch_graph.py`), held to the rules of `codegen/graph_contract.py`. What it returns is called with tensors and
integers in the order of the placeholders. `"eager"` is the simplest of these: it runs the graph module. Names that are not ours
(`"inductor"`, ...) are looked up among TorchDynamo's backends, at the time of the call.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Callable
from typing import Any

import torch

from pliant.codegen.aten import Executable
from pliant.codegen.dynamo_graph import handed
from pliant.codegen.graph_contract import verify
from pliant.codegen.graph_wrapper import around, key_of
from pliant.codegen.region import compile_region
from pliant.codegen.variants import Backend, Variants
from pliant.config import DEFAULT_BACKEND
from pliant.graph import lstm
from pliant.graph.control_flow import FLOWS
from pliant.graph.data_errors import of_others
from pliant.graph.operands import views_without
from pliant.graph.originals import ORIGINAL, is_grad_enabled, new_parameter
from pliant.graph.python_random import BELOW, NUMBERS, SEED
from pliant.graph.recurrent_gradients import ONEDNN
from pliant.graph.rules.pointwise import FUSED_STEPS
from pliant.graph.seeding import GET_STATE, MANUAL_SEED, OF_STATES, SET_STATE
from pliant.graph.traced import (
    DATA,
    LEAF,
    LEAF_VIEWS,
    LOOPS_OF_OTHERS,
    NO_DERIVATIVE,
    NOT_TAKEN,
    SEEDS_OF_OTHERS,
    TRANSFORMS,
    Reconsider,
    TracedTensor,
    Untraceable,
)
from pliant.lower import liveness
from pliant.lower.leaves import nodes_under

Compiler = Callable[..., Executable]
"""`(trace, inputs, outputs, *, name) -> Executable`, as `codegen.region.compile_region`."""


def run_module(module: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable:
    """The backend `"eager"`: PyTorch runs the captured program."""
    return module.forward


REMOTE = "remote"
"""The backend of `pliant.compile(..., on=mesh)`."""
TIERS = {"native": "pliant.codegen.native:two_tiers"}
"""Backends that have something which runs at once and is replaced later: what makes that."""
OWN: dict[str, Compiler | str | None] = {
    "aten": compile_region, "native": "pliant.codegen.native:compile_native",
    "remote": "pliant.remote.backend:compile_remote", "eager": None,
}
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
    later: bool = False,
) -> Executable:
    """The executable of a captured graph by this backend; arguments as for `compile_region` and `lookup`.

    `later`: one whose own `later` makes what runs faster will do, if there is such a one.
    """
    if later and isinstance(backend, str) and backend in TIERS:
        return pkgutil.resolve_name(TIERS[backend])(trace, inputs, outputs, name=name)
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
        given = {key_of(t): i for i, t in enumerate(inputs)}
        refusal = refused(trace, flat, given, name) if backend is not run_module else None
        if is_grad_enabled():
            refuse_derivatives(trace, name)
        live = list({key_of(v): v for v in flat if is_computed(v, given)}.values())
        graph = handed(trace, inputs, live, name)
        verify(graph)
        graph.facts = None
        variants = None
        if backend is not run_module:
            makes = any([call.fn in MAKES_LEAVES for call in trace.torch_ops])
            second = Reconsider(name, "a leaf that is made here, by a compiler that raised", LEAF) if makes else None
            variants = Variants(backend, graph, refusal, second)
            if not (graph.strided and graph.writes):
                variants.compile([s.hint for s in graph.symbols])
        memory = [v.storage_id if isinstance(v, TracedTensor) else None for v in live]
        return around(graph, variants, inputs, flat, given, memory, name)

    return compiler


def refuse_derivatives(trace: Any, name: str) -> None:
    """Raises Reconsider for a custom operator with a derivative of its own, which PyTorch's code for it has called with gradients off."""
    for op in trace.ops:
        if not op.grad and of_others(op.target) and any([t.requires_grad for t in liveness.op_outputs(op)]):
            raise Reconsider(name, "an operator whose derivative is the program's", NO_DERIVATIVE + op.target._schema.name)


def refused(trace: Any, outputs: list[Any], given: dict[Any, int], name: str) -> Reconsider | None:
    """What somebody else's compiler, which differentiates itself, would lose: leaves that are made here, gradients of what comes of no
    input, the end of a history that `backward()` has gone through. (Who runs the graph as it is loses nothing.)"""
    if any([op.target in STATES for op in trace.ops]):
        return Reconsider(name, "states of generators, by somebody else's compiler", SEEDS_OF_OTHERS)
    if any(map(loops, trace.ops)):
        return Reconsider(name, "a loop on data, by somebody else's compiler", LOOPS_OF_OTHERS)
    called = {op.target._schema.name.removeprefix("aten::") for op in trace.ops}
    if fused := [step for step in FUSED_STEPS if step in called]:  # PyTorch's functionalization refuses their empty lists
        return Reconsider(name, "a fused step of an optimizer, by somebody else's compiler", NOT_TAKEN + fused[0])
    if trace.data_memory:
        return Reconsider(name, "writes through .data, by somebody else's compiler", DATA)
    if any([key_of(t) not in given and t.pytype is not torch.Tensor for t in liveness.tensors_of(outputs)]):
        return Reconsider(name, "a parameter or buffer that is made here, by somebody else's compiler", LEAF)
    if not is_grad_enabled():
        return None
    if odd := [op.target for op in trace.ops if op.target in LSTMS and op.outs[0].requires_grad and not op.args[0].requires_grad]:
        # AOTAutograd saves None for the gradient of its input, and raises
        return Reconsider(name, "an LSTM of what has no gradients, by somebody else's compiler", NOT_TAKEN + odd[0]._schema.name)
    ours = {trace.leaves.get(t.vid, t).vid for t in trace.inputs}
    for t in liveness.tensors_of(outputs):
        if key_of(t) in given or not t.requires_grad or t.constant is not None:
            continue
        try:
            under = nodes_under([t.grad_fn])
        except Untraceable:  # autograd would make the history of a view anew: of a base that was written
            continue
        # Where a derivative is not implemented, PyTorch raises if it is asked for.
        if trace.in_transform and any([n.name().endswith("NotImplemented") for n in under]):
            return Reconsider(name, "an operator in a function transform that has no derivative", TRANSFORMS)
        if trace.freed & under:
            return Reconsider(name, "backward() has gone through what an output depends on", "backward")
        begins = {n.variable.vid for n in under if hasattr(n, "variable")} if under else {t.vid}
        if begins.isdisjoint(ours):
            word = LEAF_VIEWS if begins.isdisjoint(trace.own_leaves) and views_without(trace.ops) else LEAF
            return Reconsider(name, "an output has gradients that do not come from any input", word)
    return None


def loops(op: Any) -> bool:
    """Whether an operation is a loop on data, or a branch with one inside."""
    return op.target in FLOWS and (op.flow.loops or op.flow.entry is not None or any(map(loops, op.flow.ops())))


LSTMS = (lstm.LAYER, ONEDNN)
"""Layers by kernels of ours and by PyTorch's library: the processor decides between them."""
MAKES_LEAVES = (ORIGINAL.requires_grad_, new_parameter)
"""Calls that give a tensor another place in autograd. What others compile may have them inside, if they take them."""


STATES = frozenset((*OF_STATES, GET_STATE, MANUAL_SEED, SET_STATE, BELOW, SEED, *NUMBERS.values()))
"""Operators of pliant's own on the states of generators."""


def is_computed(value: Any, given: dict[Any, int]) -> bool:
    """Whether an output comes from the graph. Constants do not, nor do inputs: a backend might hand back another tensor object."""
    key = key_of(value)
    return key not in given and (isinstance(value, TracedTensor) or (key is not None and key.const is None))
