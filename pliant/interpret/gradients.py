"""What programs do about gradients inside captured code: `autograd.Function`, profiler marks, steps of optimizers, `backward()`.

A `torch.autograd.Function` runs on traced tensors like everything else, and the autograd engine calls its `backward` when the gradients
of the region are worked out. That is after the capture, when nothing that it reads of the world can be guarded any more: so it
is interpreted once where it is applied, on made-up gradients, for its guards alone. What it computes then is forgotten.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Callable, Mapping
from typing import Any

from pliant.graph.dispatch import same
from pliant.graph.distributed_tensors import is_distributed
from pliant.graph.layout import contiguous_strides
from pliant.graph.operands import op_inputs
from pliant.graph.originals import ORIGINAL, gradients, math, new_parameter, torch
from pliant.graph.rules.pointwise import FUSED_STEPS
from pliant.graph.rules.shape import is_dense_in_some_order
from pliant.graph.trace import saves_tensors
from pliant.graph.traced import (
    LEAF,
    MAKES_WRAPPERS,
    PYTHON_BACKWARD,
    READS,
    REPLAYED,
    RETAINED,
    UNWRITTEN,
    WRAPPED,
    WRITTEN_TO,
    TracedTensor,
    Untraceable,
    qualified,
    tensors_of,
)
from pliant.guards import views
from pliant.interpret import checkpoints, frozen_leaves, globalstate, in_torch, policy, tape, tensor_subclasses, wrapped_functions
from pliant.interpret.arrays.proxies import TracedArray
from pliant.interpret.attributes import getattr_, lookup, setattr_
from pliant.interpret.binding import bind, raise_binding_error
from pliant.interpret.calls import BY_CODE, LOOKASIDES, METHOD_LOOKASIDES, call, graph_call, guard_function, inline, run_frame
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import told_by_itself
from pliant.interpret.late_errors import raises
from pliant.interpret.late_text import LateText, hold_to_type
from pliant.interpret.local_names import local_names, local_value
from pliant.interpret.lookasides import lookaside
from pliant.interpret.opaque import Opaque
from pliant.interpret.replayed import Replayed
from pliant.interpret.slots import getitem, unpack
from pliant.interpret.state import Break, vm, whole_loops, writes
from pliant.interpret.subprograms import rehearsed
from pliant.interpret.tensor_inputs import is_leaf, unheard
from pliant.interpret.transformed_functions import applied
from pliant.interpret.world import TENSOR_TYPES
from pliant.interpret.wrappers import is_stand, is_wrapped, wrapper_of

APPLY = torch.autograd.Function.apply.__func__  # type: ignore[attr-defined]
ITS_OWN = torch.autograd.function._SingleLevelFunction
RECORD = torch.autograd.profiler.record_function
optimizers = sys.modules[torch.optim.Optimizer.__module__]  # `torch.optim` hides it


OF_FUNCTIONS = ("forward", "backward", "setup_context", "vjp", "jvp", "vmap", "generate_vmap_rule")


# -- torch.autograd.Function ------------------------------------------------------------------------------------
@lookaside(APPLY)
def l_apply(args: tuple, kw: dict) -> Any:
    if bind(APPLY, args, kw) is None:
        raise_binding_error(APPLY, args, kw)
    for name in OF_FUNCTIONS:  # PyTorch finds them by itself
        found = lookup(args[0], name)
        if found is lookup(torch.autograd.Function, name) or type(found) is bool:
            continue
        if type(found) not in (staticmethod, classmethod):
            raise Break("PL0030", f"an autograd.Function whose {name} is no static or class method", clean=True)
        if type(found.__func__) is not types.FunctionType:
            raise Break("PL0030", f"an autograd.Function whose {name} is no function", clean=True)
        if found.__func__.__code__.co_flags & inspect.CO_GENERATOR:  # what it gives holds the node
            raise Break("PL0030", f"an autograd.Function whose {name} is a generator", clean=True)
        if id(found.__func__) not in vm.world.own_functions:
            guard_function(found.__func__)
    if args[0] is CROSS_MAP and plain_images(*args[1:], **kw):
        args = (in_torch.CrossMapLRN2d, *args[1:])
    if vm.world.levels.entered:
        if kw:
            raise Break("PL0030", "an autograd.Function with keywords in a function transform")
        return applied(args[0], args[1:], lambda cls, values: as_node((cls, *values), {}))
    return as_node(args, kw)


LARGEST_FLOAT = torch.finfo(torch.float32).max
CROSS_MAP = sys.modules["torch.nn.modules._functions"].CrossMapLRN2d


def plain_images(x: Any = None, size: Any = None, *numbers: Any, **others: Any) -> bool:
    """Whether PyTorch's Python code would take the images for `in_torch.CrossMapLRN2d`, forward and backward."""
    known = type(x) is TracedTensor and x.pytype in TENSOR_TYPES and not is_stand(x) and x.dtype in (torch.float32, torch.float64)
    whole = known and type(size) is int and size > 1 and len(x.sizes) == 4 and x.device.type == "cpu" and not others
    if not whole or not all([type(n) in (int, float, torch.SymFloat) for n in numbers]):
        return False
    alpha, beta = (*numbers, *(1e-4, 0.75)[len(numbers) :])[:2]
    try:  # the number that its backward part gives `addcmul_`
        factor = abs(2 * alpha * beta / size)
    except OverflowError:
        return False
    fits = x.dtype is torch.float64 or bool(factor <= LARGEST_FLOAT) or not bool(factor < math.inf)
    return fits and bool(x.sizes[1] >= 1)


def as_node(args: tuple, kw: dict) -> Any:
    """`apply` on traced tensors: a node of the tape of the region."""
    trace = vm.trace
    if vm.differentiates and any([type(a) is TracedTensor and a.requires_grad for a in args]):
        raise Break("PL0030", "an autograd.Function in a branch on data that gradients flow through")
    flows = vm.refused and torch.is_grad_enabled() and any([t.requires_grad for t in tensors_of([args[1:], kw])])
    refused = flows and not vm.refused.isdisjoint((PYTHON_BACKWARD, PYTHON_BACKWARD + qualified(args[0])))
    if refused and not replays(args):
        raise Break("PL0020", f"the backward of {args[0].__qualname__} decides on data, or works on the memory of tensors")
    if flows and UNWRITTEN + qualified(args[0]) in vm.refused:
        raise Break("PL0011", f"{args[0].__qualname__}.apply is given an object, which no graph for this backend can say", clean=True)
    if flows and WRITTEN_TO + qualified(args[0]) in vm.refused:
        raise Break("PL0020", f"the program writes to what the backward of {args[0].__qualname__} reads", clean=True)
    if flows and not vm.refused.isdisjoint([f"{READS}{t.vid}" for t in tensors_of([args[1:], kw])]):  # it may give back what it is given
        raise Break("PL0011", READS + "the graph cannot be cut there", clean=True)
    n, n_torch = len(trace.ops), len(trace.torch_ops)
    if WRAPPED in vm.refused and wrapped_functions.has_wrappers(args[1:]) and torch.is_grad_enabled() and gradients_flow(args[1:]):
        raise Break("PL0011", f"an autograd.Function of wrappers, {args[0].__qualname__}, whose gradients cannot be captured", clean=True)
    known = MAKES_WRAPPERS + qualified(args[0]) in vm.refused
    own = not kw and WRAPPED not in vm.refused and (known or wrapped_functions.has_wrappers(args[1:]))
    out = wrapped_functions.applied(args[0], args[1:]) if own else run_frame(APPLY, bind(APPLY, args, kw))  # type: ignore[arg-type]
    # at Torch level it is one call: backends that differentiate by themselves must meet its own backward
    del trace.torch_ops[n_torch:]
    call_ = trace.torch_call(as_function(args[0]), args[1:], kw)
    call_.begin, call_.out = n, out
    for op in trace.ops[n:]:
        op.torch_index = n_torch
    results = out if isinstance(out, tuple) else (out,)
    for t in results:
        if type(t) is TracedTensor and is_wrapped(t) and t.requires_grad and not wrapper_of(t).requires_grad:
            if WRAPPED not in vm.refused and not wrapped_functions.of_pytorch(t.pytype):
                wrapped_functions.FOUND.append(args[0])  # the capture begins again, and knows it
            raise Break("PL0011", f"an autograd.Function that makes a {t.pytype.__name__}, whose gradients cannot be captured")
    if own:  # the backward part is rehearsed as a whole: what it is given is of the class, or is not
        return out
    node = next((t.grad_fn for t in results if type(t) is TracedTensor and t.requires_grad), None)
    if isinstance(node, torch.autograd.function.BackwardCFunction):
        rehearse(args[0], node, results, refused)
    return out


def replays(args: tuple) -> bool:
    """Whether the operations that its backward part comes to may stand for it."""
    own = args[0] is in_torch.Hooked or wrapped_functions.has_wrappers(args[1:])
    return whole_loops() and not own and REPLAYED not in vm.refused and not vm.world.levels.entered


def gradients_flow(values: tuple) -> bool:
    return any([type(v) is TracedTensor and v.requires_grad for v in values])


def as_function(cls: type) -> Callable[..., Any]:
    """`cls.apply` as a plain function, which is what the nodes of a graph can name."""

    def apply(*args: Any, **kwargs: Any) -> Any:
        return cls.apply(*args, **kwargs)  # type: ignore[attr-defined]

    apply.__name__ = apply.__qualname__ = f"apply_{cls.__name__}"
    if cls.__module__.partition(".")[0] != "torch":  # the printer of graphs takes what says so to be a function of that module
        apply.__module__ = cls.__module__
    apply.differentiates = cls  # type: ignore[attr-defined]
    return apply


def rehearse(cls: type, ctx: Any, results: tuple, replays: bool) -> None:
    """Interpret `cls.backward(ctx, …)` for the sake of its guards, and of its operations if these are to stand for it."""
    if cls is in_torch.Hooked:
        return  # its hooks are tried out (`hooks.py`)
    backward = getattr_(cls, "backward")
    if backward in INHERITED:
        backward = getattr_(cls, "vjp")

    what, replay = f"the backward of {cls.__qualname__}", None
    vm.world.rehearsed_hooks.append((what, (cls, backward, vars(ctx)), WRITTEN_TO + qualified(cls)))
    given = tuple([vm.trace.tangent(t) if type(t) is TracedTensor and ORIGINAL.is_floating_point(t) else None for t in results])
    if replays:
        replay = ctx._forward_cls = Replayed("PL0020", what, given, [ctx, results])
    rehearsed("PL0020", what, lambda: call(backward, (ctx, *given), {}), [ctx, results], ctx, replay)


INHERITED = (ITS_OWN.backward, torch.autograd.Function.backward)


# -- switches ------------------------------------------------------------------------------------------------------
SETTERS: set[Any] = set()
"""Functions that change what torch calls do; they are calls of the Torch-level record."""


def switch(setter: Any, getter: Callable[..., Any]) -> None:
    """A setting that later operators obey: backends that get the Torch-level graph find the call in it."""

    def put(args: tuple, kw: dict) -> None:
        *which, value = args
        if type(value) is torch.SymBool:
            value = vm.truth(value)
            args = (*which, value)
        if kw or getter(*which) is not value:  # (what is no bool but equals one is refused)
            vm.trace.torch_call(setter, args, kw).out = setter(*args, **kw)

    lookaside(setter)(put)
    SETTERS.add(setter)


switch(torch._C._set_grad_enabled, torch.is_grad_enabled)
switch(torch.set_autocast_enabled, torch.is_autocast_enabled)
switch(torch.set_autocast_dtype, torch.get_autocast_dtype)


# -- profiler marks ------------------------------------------------------------------------------------------------
@lookaside(RECORD.__init__)
def l_init_mark(args: tuple, kw: dict) -> None:
    mark, *rest = args
    given = dict(zip(("name", "args"), rest, strict=False)) | kw
    if "name" not in given or len(rest) + len(kw) > len(given) or given.keys() - {"name", "args"}:
        raise Break("PL0004", "a profiler's mark that is not made as one", clean=True)
    for name, value in {"args": None, **given, "run_callbacks_on_exit": True, "record": None, "_cupti_monitor_external_id": None}.items():
        setattr_(mark, name, value)


def is_text(name: Any) -> bool:
    if type(name) is Opaque and type(name.value) is str:
        hold_to_type(name)
        return True
    return isinstance(name, str) or type(name) is LateText


@lookaside(RECORD.__enter__)
def l_enter_mark(args: tuple, kw: dict) -> Any:
    if not is_text(getattr_(args[0], "name")) or (more := getattr_(args[0], "args")) is not None and not is_text(more):
        raise Break("PL0004", "a profiler's mark whose name is no text", clean=True)
    setattr_(args[0], "run_callbacks_on_exit", False)  # should CPython leave the block
    return args[0]


@lookaside(RECORD.__exit__)
def l_leave_mark(args: tuple, kw: dict) -> None:
    return None


# -- optimizers ------------------------------------------------------------------------------------------------------
def codes_in(code: types.CodeType) -> set[types.CodeType]:
    """A code object, and those of the comprehensions in it."""
    return {code}.union(*[codes_in(c) for c in code.co_consts if type(c) is types.CodeType])


def steps_of(cls: type) -> set[types.CodeType]:
    """The functions that make a step of an optimizer, for a parameter at a time and for all."""
    there = vars(sys.modules[cls.__module__])
    return set().union(*[codes_in(fn.__code__) for name, fn in there.items() if name.startswith(("_single_tensor_", "_multi_tensor_"))])


NUMBERS_ASKED = steps_of(torch.optim.Adamax) | steps_of(torch.optim.RAdam)
"""Steps that ask how far an optimizer is, or hand it to operators that take numbers. Under a compiler they would go on with the tensor, and
branch on it; here they get the number, as in eager PyTorch."""


def rate_is_a_tensor() -> bool:
    """Whether the step at hand, or the comprehension of one, computes with a learning rate that is a tensor: beside it a number counts
    by its kind alone, and another tensor would make the product wider (a float32 by a float64)."""
    frames = [(f, local_names(f.code)) for f in (vm.frame, vm.frame.parent) if f is not None]
    return any([type(local_value(f, names.index("lr"), "lr")) is TracedTensor for f, names in frames if "lr" in names])


ROUNDED = (torch.float32, torch.float16, torch.bfloat16)


@lookaside(optimizers._get_value)
def l_get_value(args: tuple, kw: dict) -> Any:
    if kw or len(args) != 1 or type(args[0]) is not TracedTensor:
        return inline(optimizers._get_value, args, kw)
    plain = args[0].sizes == () and args[0].dtype in (*ROUNDED, torch.float64)
    of_ours = args[0].pytype.__module__.startswith("pliant.")  # a tensor of a mesh stands for one of PyTorch's
    asks_otherwise = lookup(torch.Tensor if of_ours else args[0].pytype, "item") is not ORIGINAL.item
    if not plain or asks_otherwise or vm.frame.code in NUMBERS_ASKED or rate_is_a_tensor():
        return call(getattr_(args[0], "item"), (), {})  # (of many numbers it raises)
    # the tensor goes on as under any compiler, but 1 - beta ** step is computed with Python's precision: a step is a float32
    return graph_call(ORIGINAL.double, args, {}, "double") if args[0].dtype in ROUNDED else args[0]


ZERO_GRAD: Any = torch.optim.Optimizer.zero_grad


@lookaside(ZERO_GRAD)
def l_zero_grad(args: tuple, kw: dict) -> Any:
    """The function under the mark that keeps TorchDynamo out."""
    fn = ZERO_GRAD.__wrapped__
    located = bind(fn, args, kw)
    if located is None:
        raise_binding_error(fn, args, kw)
    return run_frame(fn, located)  # type: ignore[arg-type]


def step_of(fn: Any, args: tuple, kw: dict) -> Any:
    """`Optimizer.step`, below the mark for profilers. Raises Break where parameters are of a class of tensors that graphs do not take:
    one break for the whole step, in place of some for each of its tensors."""
    if args and isinstance(args[0], torch.optim.Optimizer):
        for i, group in enumerate(args[0].param_groups):
            for j, p in enumerate(group["params"]):
                cls = p.pytype if type(p) is TracedTensor else type(p)
                if cls not in TENSOR_TYPES and not is_distributed(cls):
                    params = vm.world.by_copy.get(id(getitem(getitem(getattr_(args[0], "param_groups"), i), "params")))
                    if params is not None:  # another optimizer's step is another capture
                        vm.world.guard(params.source.index(j), "TYPE_MATCH", type(p))
                    raise Break("PL0012", f"a step of an optimizer of {type(p).__qualname__} parameters", clean=True)
    return inline(fn, args, kw)


BY_CODE[id(optimizers._use_grad_for_differentiable(lambda self: None).__code__)] = step_of


def stacked(args: tuple, kw: dict) -> Any:
    """`_stack_if_compiling`: numbers as a tensor. Beside distributed tensors PyTorch takes the numbers alone."""
    if len(args) == 1 and not kw and any(map(is_distributed, vm.trace.wrapping)):
        return args[0]
    return inline(STACK, args, kw)


STACK = optimizers._stack_if_compiling
LOOKASIDES[STACK] = stacked


def fused(fn: Any) -> Any:
    """A fused step of an optimizer: a learning rate that changes is given as a tensor, which it takes as well."""

    def run(args: tuple, kw: dict) -> Any:
        if type(kw.get("lr")) is torch.SymFloat:
            kw = kw | {"lr": graph_call(torch.scalar_tensor, (kw["lr"],), {"dtype": torch.float64})}
        return graph_call(fn, args, kw)

    return run


for _name in FUSED_STEPS:
    _fused = getattr(torch, _name)
    lookaside(_fused)(fused(_fused))


@lookaside(torch._C._group_tensors_by_device_and_dtype)
def l_group_tensors(args: tuple, kw: dict) -> dict:
    """Lists of tensors sorted by the device and dtype of those in the first list."""
    nested, with_indices = (*args, kw.get("with_indices", False))[:2]
    lists = [unpack(x) for x in unpack(nested)]
    if not lists or not lists[0]:
        raise Break("PL0011", "no tensors are grouped, which PyTorch refuses", clean=True)
    groups: dict[tuple, tuple[list, list]] = {}
    for i, first in enumerate(lists[0]):
        parts, indices = groups.setdefault((first.device, first.dtype), ([[] for _ in lists], []))
        for part, items in zip(parts, lists, strict=True):
            if items:
                part.append(items[i])
        if with_indices:
            indices.append(i)
    return groups


# -- leaves that are made here ---------------------------------------------------------------------------------------
def requires_grad_(t: Any, args: tuple, kw: dict) -> Any:
    """`t.requires_grad_()` of a tensor that the program has made, and that nobody sees when it is done (`lower/autograd.py`)."""
    on = args[0] if args else kw.get("requires_grad", True)
    if is_stand(t) or type(on) is not bool or len(args) + len(kw) > 1:
        raise Break("PL0012", "requires_grad_() inside a function transform, or of what is no bool", clean=True)
    real = vm.world.real.get(id(t))
    if real is not None:
        if on and t.requires_grad:
            takes_gradients(t, "requires_grad_()")
        if t.requires_grad is on or frozen_leaves.switch(t, on):
            return t
        if not on:
            raise Break("PL0012", "requires_grad_(False) of a tensor from outside", clean=True)
        return make_leaf(t, real)
    if t.requires_grad is on and not (on and borrows(t)):
        return t
    if LEAF in vm.refused or on and t.vid in vm.trace.frozen:
        raise Break("PL0012", "requires_grad_() makes a leaf, whose gradients the program may want", clean=True)
    told = vm.trace.torch_call(ORIGINAL.requires_grad_, (t, on), {})
    try:
        with torch._C._DisableTorchDispatch():
            ORIGINAL.requires_grad_(t, on)
    finally:
        told.out = t
    if on:
        vm.trace.own_leaves.add(t.vid)
        if id(t) in vm.world.data_views:
            vm.trace.rebound_leaves.add(t.vid)
    return t


def borrows(t: Any) -> bool:
    """Whether a tensor requires gradients only by what it is a view of, made without them: autograd keeps none for it so far."""
    if t.vid in vm.trace.own_leaves:
        return False
    try:
        return t.is_leaf
    except (Untraceable, RuntimeError):  # a view whose memory was written since has a history
        return False


def make_leaf(t: Any, real: Any) -> Any:
    """`x.requires_grad_()` of a tensor from outside. Emitted code does it before the graph, so none before it has read `x` or may raise."""
    given = unheard(real, "requires_grad") or unheard(real, "is_inference")
    if given or t.pytype not in TENSOR_TYPES or not whole_loops() or vm.asking or vm.rehearsing:
        raise Break("PL0012", "requires_grad_() of a tensor from outside that has gradients, or is no plain one", clean=True)
    behind = any([raises(op) or any([o.storage_id == t.storage_id for o in op_inputs(op)]) for op in vm.trace.ops])
    if behind or vm.trace.exits or vm.trace.marks or vm.world.loops_seen or vm.world.in_loop:
        raise Break("PL0012", "requires_grad_() of a tensor from outside, behind other operations", clean=True)
    with torch._C._DisableTorchDispatch():
        ORIGINAL.requires_grad_(t, True)  # it refuses integers
    writes()
    vm.world.unusual()
    vm.world.made_leaves[id(t)] = t
    return t


METHOD_LOOKASIDES[(torch.Tensor, "requires_grad_")] = requires_grad_


# -- backward() -------------------------------------------------------------------------------------------------------
OF_BACKWARD = ("self", "gradient", "retain_graph", "create_graph", "inputs")
OF_AUTOGRAD = ("tensors", "grad_tensors", "retain_graph", "create_graph", "grad_variables", "inputs")


@lookaside(torch.Tensor.backward)
def l_backward(args: tuple, kw: dict) -> None:
    """`loss.backward()`."""
    values = dict(zip(OF_BACKWARD, args, strict=False)) | kw
    gradient, tensor = values.get("gradient"), values.get("self")
    if type(tensor) is TracedTensor and tensor_subclasses.overrides(tensor.pytype) and torch._C._is_torch_function_enabled():
        call(torch.overrides.handle_torch_function, (ORIGINAL.backward, (tensor,), tensor),
            {k: values.get(k, default) for k, default in zip(OF_BACKWARD[1:], (None, None, False, None), strict=True)})
        return
    backward([tensor], None if gradient is None else [gradient], values)


@lookaside(torch.autograd.backward)
def l_autograd_backward(args: tuple, kw: dict) -> None:
    """`torch.autograd.backward(tensors, …)`."""
    values = dict(zip(OF_AUTOGRAD, args, strict=False)) | kw
    heads, seeds = values.get("tensors"), values.get("grad_tensors")
    if values.get("grad_variables") is not None:
        raise Break("PL0020", "backward()", clean=True)
    backward(several(heads), None if seeds is None else several(seeds), values)


def several(tensors: Any) -> list[Any]:
    return [tensors] if type(tensors) is TracedTensor else unpack(tensors)


def gone_through(tensors: Any) -> Any:
    """What PyTorch makes a tuple of (a view of a dict, a generator, an object with an `__iter__`), as a tuple; anything else as it is."""
    t = type(tensors)
    if t is TracedTensor or issubclass(t, (list, tuple, dict, Mapping)) or lookup(t, "__torch_function__") is not UNSET:
        return tensors
    if lookup(t, "__iter__") is UNSET and lookup(t, "__getitem__") is UNSET or told_by_itself(tensors):
        return tensors
    return tuple(unpack(tensors))


def backward(heads: list[Any], seeds: list[Any] | None, values: dict[str, Any]) -> None:
    """The gradients of the leaves that the heads reach, then what `AccumulateGrad` does with each.

    Captured where all leaves are plain parameters of the outside, or made here; anything else (hooks, `create_graph`, inputs that have a
    history outside) is left to the engine.
    """
    if globalstate.heard():
        raise Break("PL0020", "backward(), of which a mode is told", clean=True)
    told = [t for t in tensors_of([heads, seeds, values.get("inputs")]) if tensor_subclasses.overrides(t.pytype)]
    if told and torch._C._is_torch_function_enabled():
        raise Break("PL0020", "backward() of tensors whose class is told of it", clean=True)
    keep = values.get("retain_graph")
    plain = not values.get("create_graph") and keep in (None, False, True)
    if not plain or "backward" in vm.refused or not all([type(h) is TracedTensor and h.grad_fn is not None for h in heads]):
        raise Break("PL0020", "backward()", clean=True)
    found = [reach(h.grad_fn) for h in heads]
    nodes = set().union(*[n for n, _ in found])
    leaves = list({id(x): x for _, ends in found for x in ends}.values())
    frozen_leaves.refuse_gradients(leaves)
    if values.get("inputs") is not None:
        checkpoints.gradients_asked(True)
        wanted = several(values["inputs"].values() if type(values["inputs"]) is dict else values["inputs"])
        if not wanted or not all([any(x is leaf for leaf in leaves) or inside(x) for x in wanted]):
            raise Break("PL0020", "backward(inputs=…) of others than leaves", clean=True)
        if not all(map(made_here, wanted)):
            for end in leaves:
                end_outside(end)
        leaves = list({id(x): x for x in wanted}.values())  # one that is named twice accumulates once
        ends = [node for n in nodes for node, _ in n.next_functions if any([leaf_of(node) is x for x in leaves])]
        nodes = leading_to(nodes, ends + [x.grad_fn for x in leaves if not x.is_leaf])
    for leaf in leaves:
        real = vm.world.real.get(id(leaf))
        if made_here(leaf) and (leaf.is_leaf or inside(leaf)):
            continue
        if real is None or not is_leaf(leaf):
            raise Break("PL0020", "backward() into the history of an input", clean=True)
        if leaf.pytype not in TENSOR_TYPES and tensor_subclasses.overrides(leaf.pytype):
            raise Break("PL0020", "backward() into a tensor whose class is told of its attributes", clean=True)
        vm.world.known_by_identity(leaf)
        without_hooks(leaf, "backward()")
        takes_gradients(leaf, "backward()")
        if type(getattr_(leaf, "grad")) not in (types.NoneType, TracedTensor):  # asked before the tape is gone through, and freed
            raise Break("PL0020", "backward() into a gradient that the graph does not take", clean=True)
    if not leaves:
        raise Break("PL0020", "backward() that comes to no leaf", clean=True)
    refuse_freed(nodes)
    given: dict[str, Any] = {} if seeds is None else {"grad_outputs": seeds}
    before = len(vm.trace.ops)
    with torch._C.DisableTorchFunctionSubclass():  # the engine's gradients are plain, of whatever classes the operands are
        grads = graph_call(torch.autograd.grad, (heads, leaves), {**given, "retain_graph": True})
    tape.keep_retained()
    made = {o.storage_id for op in vm.trace.ops[before:] for o in op.outs if type(o) is TracedTensor}
    if keep is not True:
        free(nodes)
        vm.trace.torch_ops[-1].kwargs["retain_graph"] = False
    taken: set[int] = set()
    for leaf, g in zip(leaves, grads, strict=True):
        accumulate(leaf, g, g.storage_id in made and g.storage_id not in taken)
        taken.add(g.storage_id)


HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def made_here(x: Any) -> bool:
    return vm.world.real.get(id(x)) is None and id(x) not in vm.world.tensors and x.source is None


def end_outside(end: Any) -> None:
    """Raises Break where the tape ends at an input with a history, which may lead on to one whose gradient is asked for."""
    if made_here(end):
        return
    if vm.world.real.get(id(end)) is None or not is_leaf(end):
        raise Break("PL0020", "backward() into the history of an input", clean=True)
    vm.world.known_by_identity(end)  # were it one of these, its gradients would be theirs


def inside(x: Any) -> bool:
    """Whether `x` is a result of the program's, whose gradient is wanted and kept. Raises LeftToPython where nobody could keep it."""
    if type(x) is not TracedTensor or not made_here(x) or x.is_leaf or not x.requires_grad or id(x) in vm.world.retained:
        return False
    if RETAINED in vm.refused:
        raise vm.left_to_python("a gradient of a tensor that is made here, and is needed outside of the graph")
    return True


def reach(node: Any) -> tuple[set[Any], list[Any]]:
    """The nodes of the autograd graph under `node`, and the leaves at its ends."""
    seen, todo = {node}, [node]
    ends: dict[Any, Any] = {}  # by node: nodes are compared with nodes alone, `==` of a tensor is an operator
    while todo:
        node = todo.pop()
        if node.name() == "torch::autograd::AccumulateGrad":
            ends[node] = node.variable
            continue
        for below, _ in node.next_functions:
            if below is not None and below not in seen:
                seen.add(below)
                todo.append(below)
    return seen - ends.keys(), list({id(x): x for x in ends.values()}.values())


def leaf_of(node: Any) -> Any:
    """The leaf that a node of the autograd graph adds gradients to; None for other nodes."""
    return node.variable if node is not None and node.name() == "torch::autograd::AccumulateGrad" else None


def leading_to(nodes: set[Any], ends: list[Any]) -> set[Any]:
    """Those of the nodes that gradients come through on their way to one of `ends`."""
    above: dict[Any, list[Any]] = {}
    for n in nodes:
        for below, _ in n.next_functions:
            above.setdefault(below, []).append(n)
    found: set[Any] = set()
    todo = list(ends)
    while todo:
        more = [n for n in above.get(todo.pop(), ()) if n not in found]
        found.update(more)
        todo += more
    return found


def free(nodes: set[Any]) -> None:
    """The engine has gone through these nodes for the last time: what they saved is gone. Those that save nothing may be used again."""
    vm.trace.freed |= {n for n in nodes if saves_tensors(n)}


def refuse_freed(nodes: set[Any]) -> None:
    if not vm.trace.freed.isdisjoint(nodes):
        raise Break("PL0020", "gradients of what was freed, which raises", clean=True)


def without_hooks(t: Any, what: str) -> None:
    """Guard that a tensor from outside has no hooks."""
    if any([h.t is t and not h.removed for h in vm.world.hooks_to_set]):
        raise Break("PL0027", f"{what} of a tensor with hooks", clean=True)
    for name in HOOKS:
        if vm.world.locate(getattr(vm.world.real[id(t)], name), t.source.attr(name)) is not None:
            raise Break("PL0027", f"{what} of a tensor with hooks", clean=True)


def takes_gradients(t: Any, what: str) -> None:
    """Guard that a tensor from outside is none of the views, made without gradients, of what has some: these say that they have gradients,
    and get none."""
    if t.pytype is torch.nn.Parameter or id(t) not in vm.world.real or not is_leaf(t):  # a parameter is no view, whatever it was made of
        return
    if views.is_view_of_gradients(vm.world.real[id(t)]):
        raise Break("PL0020", f"{what} of a view of what has gradients", clean=True)
    vm.world.guard(t.source.apply("is_view_of_gradients"), "EQ_MATCH", False)


OF_GRAD = tuple(inspect.signature(torch.autograd.grad).parameters)
for _code in torch.autograd.grad.__code__.co_consts:
    if isinstance(_code, types.CodeType) and _code.co_name == "<genexpr>":  # which arguments are tensors, in front of what tells a mode
        policy.register(_code, policy.INLINE)


@lookaside(torch.autograd.grad)
def l_grad(args: tuple, kw: dict) -> Any:
    """`torch.autograd.grad(outputs, inputs, …)`: the engine's, on the tape of the capture.

    What the engine would do beyond the region breaks the graph: go on into the history of an input, on the way to another; call hooks
    that were set before; refuse what was freed. The tape is kept, since the region may be differentiated too.
    """
    values = dict(zip(OF_GRAD, args, strict=False)) | kw
    values |= {n: gone_through(values[n]) for n in OF_GRAD[:3] if values.get(n) is not None}
    args, kw = tuple([values[n] for n in OF_GRAD[: len(args)]]), {k: values[k] for k in kw}
    if "outputs" not in values or "inputs" not in values or not set(values) <= set(OF_GRAD):
        return graph_call(torch.autograd.grad, args, kw)
    heads, inputs = (several(values[n].values() if type(values[n]) is dict else values[n]) for n in ("outputs", "inputs"))
    if vm.world.levels.entered:
        stay_inside(*[[t for t in several_ if type(t) is TracedTensor and not is_stand(t)] for several_ in (heads, inputs)])
        return graph_call(torch.autograd.grad, args, kw)
    if not all([type(t) is TracedTensor and not is_stand(t) for t in (*heads, *inputs)]):
        raise Break("PL0020", "autograd.grad() of others than tensors", clean=True)
    if "backward" in vm.refused:
        raise Break("PL0020", "autograd.grad() through a part of what is differentiated later", clean=True)
    checkpoints.gradients_asked(True, values.get("is_grads_batched"))
    through = stay_inside(heads, inputs)
    given = {k: v for k, v in values.items() if k not in OF_GRAD[: min(len(args), 3)]}
    calls = len(vm.trace.torch_ops)
    out = graph_call(torch.autograd.grad, args[:3], given | {"retain_graph": True})
    vm.trace.differentiated = True
    tape.keep_retained()
    keep = values.get("retain_graph")
    if not (values.get("create_graph") if keep is None else keep) and not vm.rehearsing:
        free(through)
        for call_ in vm.trace.torch_ops[calls:]:  # (behind a transform, calls are not recorded)
            call_.kwargs["retain_graph"] = False
    return out


def stay_inside(heads: list[Any], inputs: list[Any]) -> set[Any]:
    """The nodes that gradients of `heads` come through on their way to `inputs`. Raises Break where the way leads out of the region."""
    leaves, carried = vm.trace.leaves, {id(leaf): vid for vid, leaf in vm.trace.leaves.items()}
    outside = {t.vid: t for t in inputs if id(t) in vm.world.real}
    nodes: set[Any] = set()
    for h in heads:
        if h.grad_fn is None:
            continue  # a leaf, or PyTorch refuses it
        below, ends = reach(h.grad_fn)
        frozen_leaves.refuse_gradients(ends)
        nodes |= below
        for end in ends:
            if id(end) in vm.world.real:
                is_leaf(end)  # it had no history
                vm.world.known_by_identity(end)
            elif id(end) in carried and outside.keys() - {carried[id(end)]}:
                raise Break("PL0020", "autograd.grad() into the history of an input", clean=True)
    for t in outside.values():
        without_hooks(t, "autograd.grad()")
        takes_gradients(t, "autograd.grad()")
        vm.world.known_by_identity(t)  # were it another one of these, too, it would get the gradients of both
    targets = [t.grad_fn for t in inputs if t.grad_fn is not None]
    targets += [node for n in nodes for node, _ in n.next_functions if any([leaf_of(node) is leaves.get(t.vid, t) for t in inputs])]
    through = leading_to(nodes, targets)
    refuse_freed(through)
    return through


def laid_out(t: Any, strides: tuple) -> bool:
    """Whether a tensor has these strides, as the engine asks: those of dims of size 1 are no matter, but of an expanded one, of 0."""
    return all([not same(a, 0) if type(n) is int and n == 1 else same(a, b) for n, a, b in zip(t.sizes, t.strides, strides)])


def accumulate(leaf: Any, g: Any, own: bool) -> None:
    """`leaf.grad += g`, as the engine does it: a gradient of its own, laid out like the leaf, or row by row where the leaf has gaps or
    overlaps, or is none; into the one that is there."""
    real = vm.world.real.get(id(leaf))
    now = getattr_(leaf, "grad")
    with gradients(False), torch._C.DisableTorchFunctionSubclass():
        if now is not None:
            graph_call(ORIGINAL.add_, (now, g), {}, "add_")
            return
        strides = leaf.strides if is_leaf(leaf) and is_dense_in_some_order(leaf) else contiguous_strides(leaf.sizes)
        if not own or not laid_out(g, strides) or g.offset != 0:
            copy = graph_call(torch.empty_strided, (leaf.sizes, strides), {"dtype": g.dtype, "device": g.device})
            g = graph_call(ORIGINAL.copy_, (copy, g), {}, "copy_")
    if real is None:
        vm.world.own_gradients[id(leaf)] = (leaf, g)
    else:
        vm.world.tensor_writes[(id(leaf), "grad")] = (leaf, g)


# -- tensors made through their classes -----------------------------------------------------------------------------
@lookaside(torch.nn.Parameter)
def l_parameter(args: tuple, kw: dict) -> Any:
    """`Parameter(data)` of a tensor that the program has made: the same memory, as a leaf that nobody sees when it is done."""
    given = dict(zip(("data", "requires_grad"), args)) | kw
    data, on = given.get("data"), given.get("requires_grad", True)
    if globalstate.heard():
        raise Break("PL0011", "a parameter is made, of which modes are not told", clean=True)
    if data is None and given.keys() <= {"data", "requires_grad"} and len(args) <= 2:
        data = graph_call(torch.empty, (0,), {})
    if type(data) is not TracedTensor or is_stand(data) or data.pytype is not torch.Tensor or type(on) is not bool or LEAF in vm.refused:
        raise Break("PL0011", "a parameter is made", clean=True)
    p = graph_call(ORIGINAL.detach, (data,), {}, "detach")
    p.pytype = torch.nn.Parameter
    vm.trace.torch_call(new_parameter, (p, False), {}).out = p
    return requires_grad_(p, (on,), {}) if on else p


@lookaside(torch.nn.Buffer)
def l_buffer(args: tuple, kw: dict) -> Any:
    return inline(torch.nn.Buffer.__new__, (torch.nn.Buffer, *args), kw)


@lookaside(torch.Tensor)
def l_tensor(args: tuple, kw: dict) -> Any:
    """`torch.Tensor(list)`, `torch.Tensor(array)` and `torch.Tensor(*sizes)`."""
    if globalstate.heard():
        raise Break("PL0011", "a tensor is made through its class, of which modes are not told", clean=True)
    if len(args) == 1 and type(args[0]) is TracedArray and args[0].ndim and not kw:
        return call(torch.as_tensor, args, {"dtype": torch.get_default_dtype()})
    if kw or (args and type(args[0]) not in (list, tuple, int, torch.SymInt)):
        raise Break("PL0011", "a tensor is made through a class", clean=True)
    if args and type(args[0]) in (list, tuple) and len(args) == 1:
        return graph_call(torch.tensor, (args[0],), {"dtype": torch.get_default_dtype()})
    return graph_call(torch.empty, (args or (0,),), {})
