"""Hooks that run in the backward part: `Tensor.register_hook`, and `saved_tensors_hooks`.

Hooks on leaves from outside are set by emitted code, and run by the engine. Of the others:

The autograd engine calls them when the gradients of the region are worked out, on traced tensors, so that what they compute becomes
operations. That is after the capture: so each is interpreted once where it is set, on a made-up tensor, for its guards alone
(`gradients.rehearse` does so for `autograd.Function`). A hook that has an effect beside what it computes breaks the graph.
"""

from __future__ import annotations

import collections
import functools
import sys
import types
from typing import Any

from torch.utils.hooks import BackwardHook, RemovableHandle

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.traced import HOOKS, PYTHON_BACKWARD, REPLAYED, Reconsider, TracedTensor
from pliant.interpret import in_torch, policy, process_state
from pliant.interpret.calls import call, graph_call, inline
from pliant.interpret.effects import effects_of
from pliant.interpret.gate import STORES, name_of
from pliant.interpret.lookasides import lookaside
from pliant.interpret.replayed import Replayed
from pliant.interpret.state import Break, vm, whole_loops, writes
from pliant.interpret.subprograms import rehearsed
from pliant.interpret.tensor_inputs import is_leaf
from pliant.interpret.transforms import hooks_on_saved_tensors
from pliant.interpret.types.row import row
from pliant.interpret.world import TENSOR_TYPES
from pliant.interpret.wrappers import is_stand

PUSH, POP = torch._C._autograd._push_saved_tensors_default_hooks, torch._C._autograd._pop_saved_tensors_default_hooks

DISABLED, DISABLE, ENABLE = [
    getattr(torch._C._autograd, f"_saved_tensors_hooks_{name}") for name in ("get_disabled_error_message", "disable", "enable")
]

policy.register(torch.autograd.graph.disable_saved_tensors_hooks.__wrapped__.__code__, policy.INLINE)  # type: ignore[attr-defined]


def allowed(what: str, replays: bool = False) -> None:
    if not whole_loops() or vm.asking:
        raise Break("PL0027", f"{what}, for a backend that is not pliant's own", clean=True)
    if PYTHON_BACKWARD in vm.refused and (not replays or REPLAYED in vm.refused):
        raise Break("PL0027", f"{what}, or a function of the program's that autograd calls, decides on data", clean=True)


@lookaside(torch.Tensor.register_hook)
def l_register_hook(args: tuple, kw: dict) -> Any:
    """`t.register_hook(hook)` of a tensor that the program has made."""
    t, *rest = args
    if type(t) is not TracedTensor or is_stand(t) or len(rest) != 1 or kw:
        raise Break("PL0027", "a hook on a tensor inside a function transform", clean=True)
    if vm.world.real.get(id(t)) is not None:
        return set_later(t, "register_hook", rest[0])
    allowed("a hook on a tensor", replays=True)
    if HOOKS in vm.refused:
        raise Break("PL0027", "a hook on a tensor, whose handle is needed behind a graph break or when all is done", clean=True)
    hook = rest[0]
    if t.requires_grad:
        g = vm.trace.tangent(t)
        replay = Replayed("PL0027", "a hook on a tensor", (g,), [hook, t]) if PYTHON_BACKWARD in vm.refused else None
        rehearsed("PL0027", "a hook on a tensor", lambda: call(hook, (g,), {}), [hook, t], replay=replay)
        vm.world.rehearsed_hooks.append(("a hook on a tensor", (hook,), HOOKS))
        hook = replay or hook
    with torch._C._DisableTorchDispatch():
        handle = ORIGINAL.register_hook(t, hook)  # it refuses tensors without gradients
    vm.trace.hooked = True
    vm.world.handles[id(handle)] = handle
    return handle


@lookaside(torch.Tensor.register_post_accumulate_grad_hook)
def l_register_post_accumulate_grad_hook(args: tuple, kw: dict) -> Any:
    t, *rest = args
    if type(t) is not TracedTensor or is_stand(t) or len(rest) != 1 or kw or vm.world.real.get(id(t)) is None:
        raise Break("PL0027", "a hook that runs behind the gradient of what is no tensor from outside", clean=True)
    return set_later(t, "register_post_accumulate_grad_hook", rest[0])


MOST_HELD = 4096


def keep_apart(world: Any) -> None:
    """At the end of a capture. What a hook, or the backward part of an `autograd.Function`, reads outside it reads when gradients arrive:
    raises Reconsider where the program has written to some of that, which is an effect, and done behind the graph."""
    if not world.rehearsed_hooks:
        return
    written = {id(e.target) for e in effects_of(world) if e.kind != "call"}
    written |= {id(h.orig) for h in world.shadows.values() if id(h.copy) in written}
    if not written and not world.global_writes:
        return
    for about, held, refusal in world.rehearsed_hooks:
        if reaches(world, [*held], written):
            raise Reconsider(about, "the program writes to what it reads", refusal)


def reaches(world: Any, todo: list[Any], written: set[int]) -> bool:
    """Whether one of these objects holds, or reads as a global, what is written. Whoever holds more than can be looked through does."""
    seen: set[int] = set()
    while todo:
        v = todo.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        t = type(v)
        if id(v) in written or id(t) in written or len(seen) > MOST_HELD:
            return True
        h = world.by_copy.get(id(v))
        if h is not None:
            todo.append(h.orig)
        if t is types.FunctionType:
            if of_library(v.__globals__.get("__name__")):
                continue
            names = names_of(v.__code__)
            todo += [*(v.__closure__ or ()), *(v.__defaults__ or ()), *(v.__kwdefaults__ or {}).values()]
            todo += [v.__globals__[name] for name in names if name in v.__globals__]
            if any([v.__globals__ is g and name in names for (_, name), (g, *_) in world.global_writes.items()]):
                return True
        elif t is types.CellType:
            todo += [] if v == types.CellType() else [v.cell_contents]
        elif t is types.MethodType:
            todo += [v.__func__, v.__self__]
        elif t in (staticmethod, classmethod):
            todo.append(v.__func__)
        elif issubclass(t, dict):
            todo += dict.values(v)
        elif issubclass(t, (list, tuple, set, frozenset, collections.deque)):
            todo += v
        elif t is functools.partial:
            todo += [v.func, v.args, v.keywords]
        elif issubclass(t, type):
            todo += [] if of_library(v.__module__) else [*vars(v).values(), *v.__mro__]
        elif not issubclass(t, (types.ModuleType, torch.Tensor)):
            todo += [] if of_library(t.__module__) else [t]
            fields = getattr(v, "__dict__", None)
            todo += [fields] if type(fields) is dict else []
    return False


LIBRARIES = {"torch", "numpy", *sys.stdlib_module_names} - {"__main__"}


def of_library(module: Any) -> bool:
    """Whether a module is of a library whose functions and classes read nothing of the program's that they are not given."""
    return type(module) is str and module.partition(".")[0] in LIBRARIES


def names_of(code: types.CodeType) -> set[str]:
    """The names that a function reads, with those inside it."""
    return set(code.co_names).union(*[names_of(c) for c in code.co_consts if type(c) is types.CodeType])


class LateHandle:
    """The handle of a hook on a tensor from outside, which emitted code sets: its gradients come when the graph has run."""

    __slots__ = ("hook", "method", "removed", "t", "__weakref__")

    def __init__(self, t: TracedTensor, method: str, hook: Any) -> None:
        self.t = t
        self.method = method
        self.hook = hook
        self.removed = False


def set_later(t: TracedTensor, method: str, hook: Any) -> LateHandle:
    """A hook on a tensor from outside that is a leaf: what is written to it changes nothing about its gradients."""
    if not t.requires_grad or not is_leaf(t) or t.pytype not in TENSOR_TYPES or vm.rehearsing:
        raise Break("PL0027", "a hook on a tensor from outside that is no leaf with gradients", clean=True)
    writes()
    vm.world.unusual()
    vm.world.hooks_to_set.append(LateHandle(t, method, hook))
    return vm.world.hooks_to_set[-1]


def refuse(h: LateHandle, *rest: Any) -> Any:
    raise Break("PL0027", "the handle of a hook is asked for more than to take it away", clean=True)


def attribute(h: LateHandle, name: str) -> Any:
    found = getattr(RemovableHandle, name, None)
    return types.MethodType(found, h) if type(found) is types.FunctionType else refuse(h)


row(
    name="handle of a hook on a tensor from outside", stands=(LateHandle,), type=lambda h: RemovableHandle, getattr=attribute,
    setattr=refuse, delattr=refuse, to_c=lambda fn, h: h if name_of(fn) in STORES else refuse(h), to_graph=lambda fn, h: refuse(h),
    text=refuse, hashed=lambda h: h,
)  # fmt: skip


@lookaside(RemovableHandle.remove, RemovableHandle.__exit__)
def l_remove(args: tuple, kw: dict) -> None:
    """`handle.remove()` of a hook that was set here."""
    if type(args[0]) is LateHandle:
        writes()
        args[0].removed = True
        return
    of_hook_set_here(args[0]).remove()


@lookaside(RemovableHandle.__enter__)
def l_enter(args: tuple, kw: dict) -> Any:
    return of_hook_set_here(args[0])


def of_hook_set_here(handle: Any) -> Any:
    if type(handle) is LateHandle:
        return handle
    if id(handle) not in vm.world.handles:
        raise Break("PL0027", "a hook from before is taken away", clean=True)
    return handle


# -- backward hooks of modules -------------------------------------------------------------------------------------------
def inlined(code: types.CodeType) -> None:
    """Interpret what has this code, and the functions that are made in it."""
    policy.register(code, policy.INLINE)
    for c in code.co_consts:
        if isinstance(c, types.CodeType):
            inlined(c)


for _fn in (*vars(torch.autograd.graph.save_on_cpu).values(), *vars(BackwardHook).values()):
    if isinstance(_fn, types.FunctionType):
        inlined(_fn.__code__)
policy.register(BackwardHook, policy.INLINE)


@lookaside(BackwardHook._apply_on_tensors)
def l_apply_on_tensors(args: tuple, kw: dict) -> Any:
    """Hooks on the nodes that a module's arguments and results go through."""
    allowed("a backward hook of a module")
    vm.trace.modules_hooked = True
    return inline(in_torch.apply_on_tensors, args, kw)


@lookaside(in_torch.try_out)
def l_try_out(args: tuple, kw: dict) -> None:
    first, hook, tensors = args

    def run() -> None:
        call(hook, ((), tangents(tensors)), {})
        if first is not None:
            call(first[0], (tangents(first[1]), ()), {})

    rehearsed("PL0027", "a backward hook of a module", run, [first, hook, tensors])


def tangents(tensors: list[Any]) -> tuple:
    return tuple([vm.trace.tangent(t) if t.requires_grad else None for t in tensors])


@lookaside(PUSH)
def l_push(args: tuple, kw: dict) -> None:
    """`with saved_tensors_hooks(pack, unpack)`: a break inside would leave them set, so the graph breaks before."""
    allowed("hooks on saved tensors")
    if HOOKS in vm.refused:
        raise Break("PL0027", "hooks on saved tensors around a graph break", clean=True)
    pack, unpack = args
    like = [t for t in vm.trace.inputs if ORIGINAL.is_floating_point(t)][:1]

    def there_and_back() -> Any:
        saved = vm.trace.tangent(like[0]) if like else graph_call(torch.ones, ((2, 2),), {})
        return call(unpack, (call(pack, (saved,), {}),), {})

    rehearsed("PL0027", "a hook on saved tensors", there_and_back, [pack, unpack, *like])
    told_whether_disabled()
    PUSH(pack, unpack)  # which raises where hooks are disabled
    vm.world.hooks_set += 1
    vm.trace.hooked = True


@lookaside(POP)
def l_pop(args: tuple, kw: dict) -> None:
    if not vm.world.hooks_set:
        raise Break("PL0027", "hooks on saved tensors from before are taken away", clean=True)
    vm.world.hooks_set -= 1
    POP()


def told_whether_disabled() -> Any:
    """The message of whoever has disabled hooks on saved tensors, or None. What it was before is guarded."""
    message, world = DISABLED(), vm.world
    if world.hooks_disabled is None:
        process_state.question(DISABLED, (), {}, message)
        world.hooks_disabled = (message,)
    return message


@lookaside(DISABLED)
def l_disabled(args: tuple, kw: dict) -> Any:
    return told_whether_disabled() if not args and not kw else DISABLED(*args, **kw)


@lookaside(DISABLE)
def l_disable(args: tuple, kw: dict) -> None:
    """`with disable_saved_tensors_hooks(message)`: as with hooks themselves, the graph breaks before where it would break inside."""
    if HOOKS in vm.refused:
        raise Break("PL0027", "hooks on saved tensors are disabled around a graph break", clean=True)
    if vm.world.checkpoints:
        raise Break("PL0027", "hooks on saved tensors are disabled inside of a checkpoint, which raises", clean=True)
    told_whether_disabled()
    if not vm.world.hooks_set:  # else it refuses, which the program does itself
        process_state.question(hooks_on_saved_tensors, (), {}, hooks_on_saved_tensors())
    DISABLE(*args, **kw)


@lookaside(ENABLE)
def l_enable(args: tuple, kw: dict) -> None:
    told_whether_disabled()
    ENABLE(*args, **kw)


def disabled_here(world: Any) -> bool:
    """Whether hooks are disabled, or enabled, by the program, and were not before."""
    return world.hooks_disabled is not None and DISABLED() != world.hooks_disabled[0]


def unset(world: Any) -> None:
    """Take away the hooks of an attempt that did not come to their end."""
    if disabled_here(world):
        (before,) = world.hooks_disabled
        ENABLE() if before is None else DISABLE(before, False)
    while world.hooks_set > 0:
        world.hooks_set -= 1
        POP()
