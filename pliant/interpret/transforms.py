"""Function transforms (`torch.func`): `vmap`, `grad`, `vjp`, `jvp` and what is made of them, captured as the operators that they come to.

PyTorch's transforms are levels of its dispatcher: a tensor is wrapped for a level, operators on wrappers are taken apart by C++ rules, and
what is left of them reaches the trace, which is below all levels. So no rule is written here. PyTorch's Python code of the transforms is
interpreted like any other, and the functions of C++ that enter and leave a level are run. The program's own code inside a transform
meets wrappers; on the interpreter's stack a *proxy* is in the place of each: a `TracedTensor` with the wrapper's sizes that is no
tensor of the trace. `record` puts the wrappers back where torch is called, and proxies in the place of those that it returns.

A graph cannot end inside: a transform whose code would break it is left to CPython as a whole.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch._functorch.apis as apis
import torch._functorch.eager_transforms as eager
import torch._functorch.predispatch as predispatch
import torch._functorch.vmap as batching
import torch.autograd.forward_ad as forward_ad
from torch.utils import _pytree as pytree

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.schema import written
from pliant.graph.traced import TRANSFORMS, TracedTensor, tensors_of
from pliant.interpret import batched_functions, globalstate, in_torch, process_state
from pliant.interpret.attributes import getattr_
from pliant.interpret.binding import in_closure
from pliant.interpret.calls import BY_CODE, LOOKASIDES, call, graph_call, inline
from pliant.interpret.lookasides import lookaside
from pliant.interpret.opcodes import global_value
from pliant.interpret.state import Break, Restart, vm
from pliant.interpret.tracebacks import CALL_IMPL
from pliant.interpret.wrappers import is_stand, on_wrappers, unwind

C: Any = torch._C._functorch


# -- levels --------------------------------------------------------------------------------------------------------------
def on_c(fn: Any, *, of: Callable[..., Any] | None = None) -> None:
    """A function of C++ (or its thin wrapper in Python) about wrappers and levels, which is run on the wrappers themselves."""
    run = fn if of is None else of

    def replacement(args: tuple, kw: dict) -> Any:
        if vm.frame is not None:
            vm.frame.tail = False
        return on_wrappers(lambda a, k: run(*a, **k), args, kw)

    LOOKASIDES[fn] = replacement


def may_enter() -> None:
    if TRANSFORMS in vm.refused:
        raise Break("PL0030", ENDS_INSIDE)


ENDS_INSIDE = "a function transform, of which something is needed behind a graph break or when all is done"


def enters(fn: Any, enter: Callable[..., Any], leave: Callable[..., Any]) -> None:
    def replacement(args: tuple, kw: dict) -> Any:
        may_enter()
        level = enter(*args, **kw)
        vm.world.levels.entered.append((leave, ()))
        vm.world.in_transform = vm.trace.in_transform = True
        return level

    LOOKASIDES[fn] = replacement


def enter_dual_level(args: tuple, kw: dict) -> Any:
    """A level of forward derivatives. No level of `torch.func` tells of it; so the trace does."""
    may_enter()
    level, trace = torch._C._enter_dual_level(), vm.trace
    vm.world.levels.entered.append((leave_dual_level, (trace, level)))
    vm.world.in_transform = trace.in_transform = True
    trace.dual_levels += 1
    return level


def leave_dual_level(trace: Any, level: int) -> None:
    trace.dual_levels -= 1
    torch._C._exit_dual_level(level=level)


def leaves(fn: Any) -> None:
    def replacement(args: tuple, kw: dict) -> Any:
        leave, given = vm.world.levels.entered.pop()
        return leave(*given)

    LOOKASIDES[fn] = replacement


enters(predispatch._vmap_increment_nesting, C._vmap_increment_nesting, C._vmap_decrement_nesting)
enters(C._grad_increment_nesting, C._grad_increment_nesting, C._grad_decrement_nesting)
enters(predispatch._jvp_increment_nesting, C._jvp_increment_nesting, C._jvp_decrement_nesting)
LOOKASIDES[predispatch._enter_dual_level] = LOOKASIDES[torch._C._enter_dual_level] = enter_dual_level
LEAVES: tuple[Any, ...] = (
    predispatch._vmap_decrement_nesting, C._grad_decrement_nesting, predispatch._jvp_decrement_nesting,
    predispatch._exit_dual_level, torch._C._exit_dual_level,
)  # fmt: skip
for _fn in LEAVES:
    leaves(_fn)


def add_batch_dim(x: Any, dim: int, level: int) -> Any:
    return C._add_batch_dim(x, x.ndim + dim if dim < 0 else dim, level)


on_c(predispatch._add_batch_dim, of=add_batch_dim)
on_c(predispatch._remove_batch_dim, of=C._remove_batch_dim)
on_c(predispatch._unwrap_for_grad, of=C._unwrap_for_grad)
on_c(predispatch._make_dual, of=torch._VF._make_dual)
as_given = LOOKASIDES[predispatch._make_dual]


@lookaside(predispatch._make_dual)
def l_make_dual(args: tuple, kw: dict) -> Any:
    """A tangent is of its tensor's dtype: PyTorch makes it so, for numbers of some kinds later than for others."""
    if len({t.dtype for t in (*args, *kw.values()) if type(t) is TracedTensor}) > 1:
        raise Break("PL0030", "a tangent of another dtype than its tensor")
    return as_given(args, kw)


on_c(predispatch._unpack_dual, of=torch._VF._unpack_dual)
ON_WRAPPERS: tuple[Any, ...] = (
    C._wrap_for_grad, C._unwrap_batched, C.get_unwrapped, C.is_functorch_wrapped_tensor, C.is_batchedtensor, C.is_gradtrackingtensor,
    C.maybe_get_level, C.maybe_get_bdim, C.current_level, C.maybe_current_level, C.unwrap_if_dead, C.is_dead_tensor_wrapper,
    C.get_inplace_requires_grad_allowed, C.set_inplace_requires_grad_allowed, C.get_dynamic_layer_stack_depth,
    torch._C._set_fwd_grad_enabled,
)  # fmt: skip
for _fn in ON_WRAPPERS:
    on_c(_fn)


@lookaside(predispatch.lazy_load_decompositions)
def l_load_rules(args: tuple, kw: dict) -> None:
    """Rules of `vmap` written in Python, which its first call registers."""
    with vm.trace.paused():
        predispatch.lazy_load_decompositions()


@lookaside(forward_ad._maybe_load_decompositions)
def l_load_decompositions(args: tuple, kw: dict) -> Any:
    """Those of forward derivatives, likewise."""
    with vm.trace.paused():
        return forward_ad._maybe_load_decompositions()


@lookaside(eager._set_tensor_requires_grad)
def l_set_requires_grad(args: tuple, kw: dict) -> Any:
    """Of a wrapper, while that is allowed."""
    if not is_stand(args[0]):
        raise Break("PL0012", "a transform of a tensor that it does not wrap")
    on_wrappers(lambda a, k: ORIGINAL.requires_grad_(a[0]), args, kw)
    return args[0]


@lookaside(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch._utils.is_compiling)
def l_is_compiling(args: tuple, kw: dict) -> bool:
    """Yes, but for transforms that leave inference mode, which PyTorch asks in the hope that a compiler does it: the graph breaks there.
    And not where it would leave a transformed function without the name of the one that it transforms, nor for optimizers that are to be
    capturable, which refuse the devices of their parameters in eager alone, nor for modules with hooks that are called whatever happens:
    a compiler is not told of those where `forward` raises."""
    f = vm.frame
    if f.code is CALL_IMPL.__code__:
        always = global_value(f.globals, "_global_forward_hooks_always_called")
        return not (vm.truth(always) or vm.truth(getattr_(vm.locals(f)["self"], "_forward_hooks_always_called")))
    if f.globals.get("__name__", "").startswith("torch.optim.") and "capturable" in f.code.co_varnames:
        return not vm.truth(vm.locals(f).get("capturable", False))
    return f.globals is not vars(apis) and not (torch.is_inference_mode_enabled() and f.globals is eager.__dict__)


@lookaside(eager._disable_inference_mode)
def l_disable_inference_mode(args: tuple, kw: dict) -> Any:
    if torch.is_inference_mode_enabled():
        raise Break("PL0030", IN_INFERENCE, clean=True)
    return inline(eager._disable_inference_mode, args, kw)


@lookaside(eager._autograd_grad)
def l_autograd_grad(args: tuple, kw: dict) -> tuple:
    """Gradients inside a level; zeros where there is no path."""
    given = {"grad_outputs": None, "create_graph": True} | dict(zip(AUTOGRAD, args)) | kw
    outputs, inputs, tangents = given["outputs"], given["inputs"], given["grad_outputs"]
    pairs = [(o, g) for o, g in zip(outputs, outputs if tangents is None else tangents) if o.requires_grad]
    if not pairs:
        return tuple([graph_call(torch.zeros_like, (x,), {}) for x in inputs])
    heads, seeds = zip(*pairs)
    found = graph_call(
        torch.autograd.grad,
        (heads, tuple(inputs), None if tangents is None else seeds),  # the tape is kept: the call may be tried in several ways
        {"retain_graph": True, "create_graph": given["create_graph"], "allow_unused": True},
    )
    return tuple([graph_call(torch.zeros_like, (x,), {}) if g is None else g for g, x in zip(found, inputs)])


IN_INFERENCE = "a function transform that records gradients, in inference mode"
AUTOGRAD = ("outputs", "inputs", "grad_outputs", "retain_graph", "create_graph")


# -- functions whose C++ code asks for numbers that wrappers of proxies have not got -------------------------------------
def dropout(input: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if not training or p == 0 or ORIGINAL.numel(input) == 0:
        return input
    if p == 1:
        noise = torch.zeros_like(input)
    else:
        one = torch.empty((), dtype=input.dtype, device=input.device)
        made = ORIGINAL.expand(one, input.shape)  # as PyTorch does: not laid out like `input`
        noise = ORIGINAL.div_(ORIGINAL.bernoulli(made, 1 - p), 1 - p)
    return ORIGINAL.mul_(input, noise) if inplace else input * noise


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {torch.nn.functional.dropout: dropout}


def decomposed(fn: Any, args: tuple, kwargs: dict) -> Any:
    """What is called in the place of `fn`, which is given wrappers."""
    own = DECOMPOSITIONS.get(fn)
    if own is None:
        return batched_functions.decomposed(fn, vm.trace) or fn
    p = args[1] if len(args) > 1 else kwargs.get("p", 0.5)
    return own if own is not None and type(p) in (int, float) and 0 <= p <= 1 else fn


@lookaside(torch.func.linearize)
def l_linearize(args: tuple, kw: dict) -> Any:
    if vm.world.has_subclasses or any([not t.dense and 0 in ORIGINAL.stride(t) for t in tensors_of([args, kw])]):
        raise Break("PL0030", "linearize of tensors of a subclass, or that overlap: PyTorch makes a graph for them", clean=True)
    if vm.world.levels.entered:
        raise Break("PL0030", WITH_GRADIENTS, clean=True)
    return inline(in_torch.linearize, args, kw)


WITH_GRADIENTS = "linearize of what has gradients, or in another transform: PyTorch makes a graph in which the primals are constants"


@lookaside(in_torch.linearized)
def l_linearized(args: tuple, kw: dict) -> Any:
    raise Break("PL0030", WITH_GRADIENTS, clean=True)


# -- transforms ------------------------------------------------------------------------------------------------------------
def closed(fn: FunctionType, args: tuple, kw: dict) -> Any:
    """A function that enters a level, interpreted; where the graph would break in it, it breaks before."""
    if vm.asking:
        raise Break("PL0030", "a function transform, where only a question is asked", clean=True)
    if TRANSFORMS in vm.refused:
        raise Break("PL0030", ENDS_INSIDE, clean=True)
    if globalstate.user_modes():
        raise Break("PL0030", "a function transform under a function mode, which would hear what becomes of wrappers", clean=True)
    if torch.is_inference_mode_enabled() and id(fn.__code__) not in OF_VMAP:
        raise Break("PL0030", IN_INFERENCE, clean=True)
    levels = vm.world.levels
    depth, frames = len(levels.entered), vm.frames_made
    make_exit, vm.make_exit = vm.make_exit, None
    replays, vm.replays = vm.replays, False
    try:
        return inline(fn, args, kw)
    except Break as b:
        code, reason = b.code, b.reason
    except Restart as r:
        if r.serial <= frames:  # of a frame further out, or about no frame
            raise
        code, reason = r.code, r.reason
    finally:
        unwind(levels, depth)
        vm.make_exit, vm.replays = make_exit, replays
    raise Break(code, reason)


def hooks_on_saved_tensors() -> bool:
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def without_hooks(fn: FunctionType, args: tuple, kw: dict) -> Any:
    """What PyTorch decorates with a check that there are no hooks on saved tensors."""
    if hooks_on_saved_tensors() or vm.world.checkpoints:
        raise Break("PL0030", "a function transform, which PyTorch refuses while there are hooks on saved tensors", clean=True)
    process_state.question(hooks_on_saved_tensors, (), {}, False)
    return closed(vm.getattr(fn, "__wrapped__"), args, kw)


def functionalized(fn: FunctionType, args: tuple, kw: dict) -> Any:
    """What `torch.func.functionalize` has made of a function: the function, as graphs are made so anyway. Left to PyTorch where one could
    tell: it writes to memory from before, or gives back memory that something else has, too."""
    if vm.asking or vm.world.levels.entered:
        raise Break("PL0030", "functionalize in a transform", clean=True)
    if any([isinstance(t, torch.Tensor) and type(t) is not TracedTensor for t in pytree.tree_leaves((args, kw))]):
        raise Break("PL0030", "functionalize of tensors that graphs do not take", clean=True)
    if vm.world.has_subclasses or any([type(n) is int and n == 0 for t in tensors_of([args, kw]) for n in t.sizes]):
        raise Break("PL0030", "functionalize where there are tensors of a subclass, or without elements", clean=True)
    func, trace = in_closure(fn, "func"), vm.trace
    n, begin = len(trace.ops), trace.next_vid
    out = call(func, args, kw)
    given = [t for t in pytree.tree_leaves((args, kw)) if type(t) is TracedTensor]
    found = [t for t in pytree.tree_leaves(out) if type(t) is TracedTensor and not any([t is g for g in given])]
    memory = {t.storage_id for t in found}
    if vm.world.has_subclasses:
        raise Break("PL0030", "functionalize of a function that meets tensors of a subclass")
    if len(memory) != len(found) or any([m < begin for m in memory]):
        raise Break("PL0030", "functionalize of a function that gives back memory which something else has, too")
    if any([t.storage_id < begin for op in trace.ops[n:] for t in written(op)]):
        raise Break("PL0030", "functionalize of a function that writes to what it is given")
    if any([underivable(op) for op in trace.ops[n:]]):
        raise Break("PL0030", "functionalize of a write of which PyTorch makes an operator without a derivative")
    return out


def underivable(op: Any) -> bool:
    """Whether a write with gradients is, once PyTorch has made it one without a write, `copy`, or a scatter of complex numbers."""
    tensors = [t for t in written(op) if t.requires_grad]
    return any([op.target is torch.ops.aten.copy_.default or (t.dtype.is_complex and t.storage_id != t.vid) for t in tensors])


ENTERING: tuple[Any, ...] = (batching._flat_vmap, eager.grad_and_value_impl, eager._jvp_with_argnums)
for _fn in ENTERING:
    BY_CODE[id(_fn.__code__)] = closed
OF_VMAP = {id(f.__code__) for f in (batching._flat_vmap, batching.restore_vmap(None, 0, 0, "error"))}  # type: ignore[arg-type]
BY_CODE.update(dict.fromkeys(OF_VMAP, closed))
BY_CODE[id(eager.functionalize(lambda: None).__code__)] = functionalized
BY_CODE[id(batching.doesnt_support_saved_tensors_hooks(lambda: None).__code__)] = without_hooks

__all__ = ["closed"]
