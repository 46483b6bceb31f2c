"""`copy.copy` and `copy.deepcopy` of what consists of plain Python objects, without `__reduce_ex__`, which only C code can run.

Objects with a protocol of their own, and classes with state that only C code sees, go through the functions of the standard library.
"""

from __future__ import annotations

import copy
import copyreg
import enum
import types
from typing import Any

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.interpret import shadows
from pliant.interpret.attributes import getattr_, lookup
from pliant.interpret.binding import bind, raise_binding_error
from pliant.interpret.calls import LOOKASIDES, graph_call, run_frame
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import has_c_state
from pliant.interpret.library_internals import guard_name
from pliant.interpret.slots import unpack
from pliant.interpret.state import Break, vm

COPY, DEEPCOPY = copy.copy, copy.deepcopy
ATOMS = {
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), types.FunctionType, types.BuiltinFunctionType, range,
    torch.SymInt, torch.SymFloat, torch.SymBool, torch.dtype, torch.device, torch.layout, torch.memory_format,
}  # fmt: skip
PROTOCOLS = ("__reduce_ex__", "__reduce__", "__getstate__")  # object's own, or the class has ideas about its state
HOOKS = ("__setstate__", "__getnewargs__", "__getnewargs_ex__", "__deepcopy__", "__copy__", "__slots__", "__del__")


def plain_instance(t: type) -> bool:
    """Whether the attributes of an instance are all that there is to copy, and setting them makes the copy."""
    if issubclass(t, (type, enum.Enum, torch.Tensor, torch.nn.Module)) or has_c_state(t):  # type: ignore[arg-type]
        return False
    table = vm.world.locate(copyreg.dispatch_table, S.const(copyreg).dict().key("dispatch_table"))
    if vm.contains(table, t):
        return False
    if any(lookup(t, name) is not object.__dict__[name] for name in PROTOCOLS):
        return False
    return all(lookup(t, name) is UNSET for name in HOOKS) and "__dict__" in dir(t)


def attributes(o: Any) -> dict:
    """The attributes of an instance, each guarded where it comes from outside."""
    return getattr_(o, "__dict__", True)


def identity(o: Any) -> int:
    h = vm.world.by_copy.get(id(o))
    if h is None:
        vm.world.known_by_identity(o)
        return id(o)
    vm.world.known_by_identity(h.orig)
    return id(h.orig)


def library(fn: Any, args: tuple) -> Any:
    """The function of the standard library, interpreted."""
    loc = bind(fn, args, {})
    assert loc is not None
    return run_frame(fn, loc)


def shallow(o: Any) -> Any:
    t = type(o)
    if t in ATOMS:
        return o
    if not plain_instance(t):
        return library(COPY, (o,))
    made = object.__new__(t)
    made.__dict__.update(attributes(o))
    return made


def deep(o: Any, memo: dict) -> Any:
    t = type(o)
    if t in ATOMS:
        return o
    found = memo.get(identity(o), UNSET)
    if found is not UNSET:
        return found
    if t is TracedTensor:
        return remember(memo, o, deep_tensor(o, memo))
    if t is list:
        made: Any = []
        remember(memo, o, made)
        made.extend(deep(x, memo) for x in unpack(o))
        return made
    if t is dict:
        shadows.read_all(vm.world, o)
        made = {}
        remember(memo, o, made)
        for k, v in o.items():
            made[deep(k, memo)] = deep(v, memo)
        return made
    if t is set:
        shadows.read_all(vm.world, o)
        return remember(memo, o, {deep(x, memo) for x in list(o)})
    if t is tuple:
        items = tuple(deep(x, memo) for x in o)
        if all(a is b for a, b in zip(items, o, strict=True)):
            return o
        return remember(memo, o, items)
    if not plain_instance(t):
        return library(DEEPCOPY, (o, memo))
    made = remember(memo, o, object.__new__(t))
    for k, v in attributes(o).items():
        made.__dict__[k] = deep(v, memo)
    return made


def deep_tensor(o: Any, memo: dict) -> Any:
    """A tensor with memory of its own. The library copies memory as a whole: tensors that share some, or see a part, are left to it."""
    real = vm.world.real.get(id(o))
    if real is not None:
        vm.world.guard(o.source.dict(), "DICT_KEYS", tuple(real.__dict__))
    plain = o.pytype is torch.Tensor and not o.requires_grad and not o.is_conj() and not o.is_neg() and o.dense
    if not plain or (real is not None and (real.__dict__ or ORIGINAL.is_inference(real))) or (o.storage_id, "memory") in memo:
        raise Break("PL0012", "copy.deepcopy of a tensor that is a view, a parameter or has gradients", clean=True)
    if o.offset != 0:
        raise Break("PL0012", "copy.deepcopy of a tensor that does not begin where its memory does", clean=True)
    memo[(o.storage_id, "memory")] = o
    return graph_call(torch.clone, (o,), {})


def remember(memo: dict, o: Any, made: Any) -> Any:
    memo[identity(o)] = made
    memo.setdefault(id(memo), []).append(o)  # as the library does: what was copied must live as long as the memo
    return made


def l_copy(args: tuple, kw: dict) -> Any:
    return shallow(*bound(COPY, args, kw))


def l_deepcopy(args: tuple, kw: dict) -> Any:
    o, memo, *_ = bound(DEEPCOPY, args, kw)
    hold(DEEPCOPY, "deepcopy")
    if id(memo) in vm.world.by_copy:  # it holds what the library noted there
        raise Break("PL0012", "copy.deepcopy with a memo from outside", clean=True)
    return deep(o, {} if memo is None else memo)


def hold(fn: Any, name: str) -> None:
    """The library's own function is the one that it calls for the parts."""
    if guard_name(copy, name) is not fn:
        raise Break("PL0011", f"copy.{name}, which was replaced, is called for parts", clean=True)


def bound(fn: Any, args: tuple, kw: dict) -> list:
    loc = bind(fn, args, kw)
    if loc is None:
        raise_binding_error(fn, args, kw)
        raise AssertionError
    return loc[: fn.__code__.co_argcount]


LOOKASIDES[COPY] = l_copy
LOOKASIDES[DEEPCOPY] = l_deepcopy
