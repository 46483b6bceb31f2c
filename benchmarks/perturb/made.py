"""What may be done to an object where it is: a table from types to changes, each with the way back.

`MADE`: rows (kind, name, types, object -> undo, or `SKIP`).
"""

from __future__ import annotations

import enum
import types
from collections.abc import Callable
from typing import Any

import torch

from benchmarks.perturb import protocols
from benchmarks.perturb.places import is_library, refill
from benchmarks.perturb.protocols import instance_space, plus_one
from benchmarks.perturb.values import SKIP, changed_constants, subclass_of, values, wrapped


def made_list(change: Callable[[list], Any]) -> Callable[[list], Any]:
    def row(v: list) -> Any:
        if not v:
            return SKIP
        before = list.copy(v)
        change(v)
        return lambda: list.__setitem__(v, slice(None), before)

    return row


def made_dict(change: Callable[[dict], Any]) -> Callable[[dict], Any]:
    def row(v: dict) -> Any:
        if not v or "__builtins__" in v:
            return SKIP
        before = list(dict.items(v))
        if change(v) is SKIP:
            return SKIP
        return lambda: refill(v, before)

    return row


def made_set(change: Callable[[set], Any]) -> Callable[[set], Any]:
    def row(v: set) -> Any:
        before = set(v)
        change(v)
        return lambda: (v.clear(), v.update(before))

    return row


def rename_first(v: dict) -> Any:
    items = list(v.items())
    if not isinstance(items[0][0], str):
        return SKIP
    refill(v, [(items[0][0] + "x", items[0][1]), *items[1:]])
    return None


def set_values(t: torch.Tensor) -> Any:
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.layout is not torch.strided or t.is_inference():
        return SKIP
    new = values(t.detach())
    if new is SKIP:
        return SKIP
    old = t.detach().clone()
    try:
        t.data.copy_(new)
    except RuntimeError:
        return SKIP
    return lambda: t.data.copy_(old)


def set_data(t: torch.Tensor) -> Any:
    """Through `.data`, another size: same object, other form."""
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or not t.dim() or not t.numel() or t.layout is not torch.strided:
        return SKIP
    old = t.data
    t.data = torch.cat([old, old[:1]])
    return lambda: setattr(t, "data", old)


def set_double(t: torch.Tensor) -> Any:
    if type(t) not in (torch.Tensor, torch.nn.Parameter) or t.dtype is not torch.float32 or t.layout is not torch.strided or not t.is_leaf:
        return SKIP
    old, grad = t.data, t.grad
    t.data = old.double()
    return lambda: (setattr(t, "data", old), setattr(t, "grad", grad))


def set_grad(t: torch.Tensor) -> Any:
    if not t.is_leaf or not t.requires_grad or t.grad is not None:
        return SKIP
    t.grad = torch.ones_like(t)
    return lambda: setattr(t, "grad", None)


def set_requires(t: torch.Tensor) -> Any:
    if not t.is_leaf or not t.is_floating_point() or t.is_inference():
        return SKIP
    t.requires_grad_(not t.requires_grad)
    return lambda: t.requires_grad_(not t.requires_grad)


def tensor_attribute(t: torch.Tensor) -> Any:
    if hasattr(t, "note"):
        return SKIP
    t.note = 1
    return lambda: delattr(t, "note")


def code_of(fn: types.FunctionType) -> Any:
    code = changed_constants(fn.__code__)
    if code is None or is_library(fn.__module__):
        return SKIP
    old = fn.__code__
    fn.__code__ = code
    return lambda: setattr(fn, "__code__", old)


def default_gone(fn: types.FunctionType) -> Any:
    if not fn.__defaults__ or is_library(fn.__module__):
        return SKIP
    old = fn.__defaults__
    fn.__defaults__ = old[1:] or None
    return lambda: setattr(fn, "__defaults__", old)


def function_attribute(fn: types.FunctionType) -> Any:
    fn.__dict__["note"] = 1
    return lambda: fn.__dict__.pop("note", None)


def new_class(obj: Any) -> Any:
    """`__class__` becomes a subclass that adds nothing."""
    if instance_space(obj) is None:
        return SKIP
    cls = type(obj)
    sub = subclass_of(cls) if not isinstance(obj, torch.nn.Module) else type(cls.__name__, (cls,), {"__module__": cls.__module__})
    if sub is SKIP:
        return SKIP
    object.__setattr__(obj, "__class__", sub)
    return lambda: object.__setattr__(obj, "__class__", cls)


def public_methods(cls: type) -> list[str]:
    return [n for c in cls.__mro__ if not is_library(c.__module__) for n, v in vars(c).items()
        if isinstance(v, types.FunctionType) and (not n.startswith("__") or n in ("__call__", "__len__", "__getitem__", "__add__"))]


def overridden(obj: Any) -> Any:
    """`__class__` becomes a subclass whose methods answer otherwise."""
    if instance_space(obj) is None:
        return SKIP
    cls = type(obj)
    names = public_methods(cls) or (["forward"] if isinstance(obj, torch.nn.Module) else [])
    if not names or (is_library(cls.__module__) and not isinstance(obj, torch.nn.Module)) or issubclass(cls, enum.Enum):
        return SKIP
    sub = type(cls)(cls.__name__, (cls,), {"__module__": cls.__module__, **{n: wrapped(getattr(cls, n)) for n in names}})
    object.__setattr__(obj, "__class__", sub)
    return lambda: object.__setattr__(obj, "__class__", cls)


def shadowed(obj: Any) -> Any:
    """A method of the class gets an attribute of the instance in front of it."""
    space = instance_space(obj)
    names = public_methods(type(obj)) if space is not None else []
    names = [n for n in names if not n.startswith("__")]
    if isinstance(obj, torch.nn.Module):
        names.append("forward")
    if not names or space is None or names[-1] in space:
        return SKIP
    space[names[-1]] = wrapped(getattr(obj, names[-1]))
    return lambda: space.pop(names[-1], None)


def attribute_added(obj: Any) -> Any:
    space = instance_space(obj)
    if space is None or "note" in space:
        return SKIP
    space["note"] = 1
    return lambda: space.pop("note", None)


def method_replaced(cls: type) -> Any:
    """All methods of the class answer otherwise."""
    if is_library(cls.__module__) or cls.__flags__ & (1 << 8):
        return SKIP
    old = {n: v for n, v in vars(cls).items() if isinstance(v, types.FunctionType) and n in public_methods(cls)}
    if not old:
        return SKIP
    for n, v in old.items():
        type.__setattr__(cls, n, wrapped(v))
    return lambda: [type.__setattr__(cls, n, v) for n, v in old.items()]


def module_row(change: Callable[[torch.nn.Module], Any]) -> Callable[[Any], Any]:
    return lambda m: change(m)


def hook(name: str, fn: Callable) -> Callable[[torch.nn.Module], Any]:
    def row(m: torch.nn.Module) -> Any:
        return getattr(m, name)(fn).remove

    return row


def training(m: torch.nn.Module) -> Any:
    before = {x: x.training for x in m.modules()}
    m.train(not m.training)
    return lambda: [setattr(x, "training", v) for x, v in before.items()]


def frozen(m: torch.nn.Module) -> Any:
    own = list(m.parameters(recurse=False))
    if not own:
        return SKIP
    before = [p.requires_grad for p in own]
    for p in own:
        p.requires_grad_(not p.requires_grad)
    return lambda: [p.requires_grad_(b) for p, b in zip(own, before, strict=True)]


def parameter_added(m: torch.nn.Module) -> Any:
    m.register_parameter("note", torch.nn.Parameter(torch.ones(1)))
    return lambda: m._parameters.pop("note")


def buffer_added(m: torch.nn.Module) -> Any:
    m.register_buffer("note", torch.ones(1))
    return lambda: m._buffers.pop("note")


def children_reversed(m: torch.nn.Module) -> Any:
    if len(m._modules) < 2:
        return SKIP
    before = list(m._modules.items())
    refill(m._modules, before[::-1])
    return lambda: refill(m._modules, before)


MADE: tuple[tuple[str, str, tuple, Callable[[Any], Any]], ...] = (
    ("length", "appended", (list,), made_list(lambda v: v.append(v[-1]))),
    ("length", "popped", (list,), made_list(lambda v: v.pop())),
    ("length", "cleared", (list,), made_list(lambda v: v.clear())),
    ("length", "duplicated in front", (list,), made_list(lambda v: v.insert(0, v[0]))),
    ("order", "reversed in place", (list,), made_list(lambda v: v.reverse())),
    ("keys", "added", (dict,), made_dict(lambda v: v.__setitem__("note", next(iter(v.values()))))),
    ("keys", "first removed", (dict,), made_dict(lambda v: v.__delitem__(next(iter(v))))),
    ("keys", "last removed", (dict,), made_dict(lambda v: v.popitem() and None)),
    ("keys", "first renamed", (dict,), made_dict(rename_first)),
    ("keys", "a key that is a number", (dict,), made_dict(lambda v: v.__setitem__(77, next(iter(v.values()))))),
    ("order", "first key last", (dict,), made_dict(lambda v: SKIP if len(v) < 2 else refill(v, [*[*v.items()][1:], *[*v.items()][:1]]))),
    ("keys", "set member added", (set,), made_set(lambda v: v.add("note"))),
    ("keys", "set member removed", (set,), made_set(lambda v: v and v.pop())),
    ("tensor values", "written in place", (torch.Tensor,), set_values),
    ("tensor size", "other data, same object", (torch.Tensor,), set_data),
    ("tensor dtype", "other dtype, same object", (torch.Tensor,), set_double),
    ("tensor gradient", "grad is there", (torch.Tensor,), set_grad),
    ("tensor gradient", "requires_grad, same object", (torch.Tensor,), set_requires),
    ("attribute", "on a tensor", (torch.Tensor,), tensor_attribute),
    ("function", "other constants in its code", (types.FunctionType,), code_of),
    ("function", "one default less", (types.FunctionType,), default_gone),
    ("attribute", "on a function", (types.FunctionType,), function_attribute),
    ("attribute", "on an instance", (object,), attribute_added),
    ("class", "__class__ a plain subclass", (object,), new_class),
    ("class", "__class__ a subclass that answers otherwise", (object,), overridden),
    ("method", "shadowed by the instance", (object,), shadowed),
    ("method", "all of a class answer otherwise", (type,), method_replaced),
    ("module", "training", (torch.nn.Module,), training),
    ("module", "parameters frozen", (torch.nn.Module,), frozen),
    ("module", "a parameter more", (torch.nn.Module,), parameter_added),
    ("module", "a buffer more", (torch.nn.Module,), buffer_added),
    ("module", "children reversed", (torch.nn.Module,), children_reversed),
    ("hook", "forward hook", (torch.nn.Module,), hook("register_forward_hook", lambda m, a, out: plus_one(out))),
    ("hook", "forward hook that only looks", (torch.nn.Module,), hook("register_forward_hook", lambda m, a, out: None)),
    ("hook", "forward pre-hook", (torch.nn.Module,), hook("register_forward_pre_hook", lambda m, a: tuple(map(plus_one, a)))),
    ("hook", "backward hook", (torch.nn.Module,), hook("register_full_backward_hook", lambda m, gi, go: tuple(
        None if g is None else g * 2 for g in gi))),
    ("hook", "tensor hook", (torch.nn.Parameter,), lambda p: p.register_hook(lambda g: g * 3).remove if p.requires_grad else SKIP),
    *protocols.MADE,
)
