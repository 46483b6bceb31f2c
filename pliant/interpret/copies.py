"""`copy.copy` and `copy.deepcopy` of what consists of plain Python objects, without `__reduce_ex__`, which only C code can run.

Objects with a protocol of their own, and classes with state that only C code sees, go through the functions of the standard library.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import enum
import types
from collections import OrderedDict
from typing import Any

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.interpret import shadows
from pliant.interpret.attributes import getattr_, lookup
from pliant.interpret.binding import bind, raise_binding_error
from pliant.interpret.calls import LOOKASIDES, METHOD_LOOKASIDES, call, graph_call, run_frame
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import has_c_state
from pliant.interpret.library_internals import guard_name
from pliant.interpret.slots import unpack
from pliant.interpret.state import Break, vm
from pliant.interpret.tensor_inputs import is_leaf

COPY, DEEPCOPY = copy.copy, copy.deepcopy
COPY_OF_PARAMETER = torch.nn.Parameter.__deepcopy__
ATOMS = {
    int, float, complex, bool, str, bytes, type(None), type(Ellipsis), types.FunctionType, types.BuiltinFunctionType, range,
    torch.SymInt, torch.SymFloat, torch.SymBool, torch.dtype, torch.device, torch.layout, torch.memory_format,
}  # fmt: skip
REDUCING = ("__reduce_ex__", "__reduce__")  # object's own, or the class has ideas about its copies
HOOKS = ("__getnewargs__", "__getnewargs_ex__", "__deepcopy__", "__copy__", "__slots__", "__del__")


def plain_instance(t: type) -> bool:
    """Whether copies are made of the state of an instance alone: its attributes, or what `__getstate__` and `__setstate__` make of them."""
    if issubclass(t, (type, enum.Enum, torch.Tensor)) or has_c_state(t):  # type: ignore[arg-type]
        return False
    table = vm.world.locate(copyreg.dispatch_table, S.const(copyreg).dict().key("dispatch_table"))
    if vm.contains(table, t) or any(lookup(t, name) is not object.__dict__[name] for name in REDUCING):
        return False
    return all(lookup(t, name) is UNSET for name in HOOKS) and "__dict__" in dir(t)


OF_INSTANCES = ("__deepcopy__", "__reduce_ex__", "__reduce__", "__getstate__", "__setstate__", "__getnewargs__", "__getnewargs_ex__")


def answers_itself(o: Any) -> bool:
    """Whether an instance may answer for names that its class lacks, or in its class's place: the library asks it for some of them."""
    t = type(o)
    if lookup(t, "__getattribute__") is not object.__dict__["__getattribute__"]:
        return True
    hook = lookup(t, "__getattr__")
    if hook is not UNSET and hook is not torch.nn.Module.__getattr__:
        return True
    if any([vm.contains(attributes(o), name) for name in OF_INSTANCES]):
        return True
    return hook is not UNSET and any([type(attributes(o).get(name)) not in DICTS for name in PARTS])


DICTS = (dict, OrderedDict)
PARTS = ("_parameters", "_buffers", "_modules")


def fresh(t: type) -> Any:
    """An instance without attributes."""
    own = lookup(t, "__new__")
    own = own.__func__ if type(own) is staticmethod else own
    return object.__new__(t) if own is object.__new__ else call(own, (t,), {})


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
    if not plain_instance(t) or answers_itself(o):
        return library(COPY, (o,))
    made = fresh(t)
    give(made, state_of(o))
    return made


def state_of(o: Any) -> Any:
    """What a copy is made of. None: of nothing."""
    own = lookup(type(o), "__getstate__")
    return call(own, (o,), {}) if own is not object.__dict__["__getstate__"] else dict(attributes(o)) or None


def give(made: Any, state: Any) -> None:
    """The copy gets its state."""
    if state is None:
        return
    own = lookup(type(made), "__setstate__")
    if own is not UNSET:
        call(own, (made, state), {})
    elif type(state) is dict:
        made.__dict__.update(state)
    else:
        raise Break("PL0006", "a copy of an object whose state is no dict", clean=True)


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
    if t is OrderedDict and not attributes(o):
        shadows.read_all(vm.world, o)
        made = remember(memo, o, OrderedDict())
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
    if not plain_instance(t) or answers_itself(o):
        return library(DEEPCOPY, (o, memo))
    made = remember(memo, o, fresh(t))
    give(made, deep(state_of(o), memo))
    return made


def deep_tensor(o: Any, memo: dict) -> Any:
    """A tensor with memory of its own. The library copies memory as a whole: tensors that share some, or see a part, are left to it."""
    real = vm.world.real.get(id(o))
    if o.pytype is torch.nn.Parameter and lookup(torch.nn.Parameter, "__deepcopy__") is COPY_OF_PARAMETER:
        return call(torch.nn.Parameter, (clone(o), o.requires_grad), {})  # without its gradient, and what else it has
    if real is not None:
        vm.world.guard(o.source.dict(), "DICT_KEYS", tuple(real.__dict__))
    if o.requires_grad and not is_leaf(o) or getattr_(o, "grad") is not None:  # (one without gradients may have been given one)
        raise Break("PL0012", "copy.deepcopy of a tensor that has a history or a gradient", clean=True)
    plain = o.pytype is torch.Tensor and not ORIGINAL.is_conj(o) and not ORIGINAL.is_neg(o) and o.dense
    if not plain or (real is not None and (real.__dict__ or ORIGINAL.is_inference(real))) or (o.storage_id, "memory") in memo:
        raise Break("PL0012", "copy.deepcopy of a tensor that is a view, or of a class of its own", clean=True)
    if o.offset != 0:
        raise Break("PL0012", "copy.deepcopy of a tensor that does not begin where its memory does", clean=True)
    if real is not None:
        others = memo.setdefault(TENSORS, [])
        if any([ORIGINAL.untyped_storage(vm.world.real[id(t)])._cdata == ORIGINAL.untyped_storage(real)._cdata for t in others]):
            raise Break("PL0012", "copy.deepcopy of tensors that share memory", clean=True)
        others.append(o)
    memo[(o.storage_id, "memory")] = o
    made = clone(o)
    if not ORIGINAL.is_inference(made):  # the library gives an empty tensor its memory in place (`set_`), which counts as a write
        torch._C._increment_version((made,))
    return call(ORIGINAL.requires_grad_, (made,), {}) if o.requires_grad else made


TENSORS = ("tensors", "memory")
"""In a memo: tensors of the outside that were copied, each with memory of its own."""


def apart(tensors: list[Any]) -> None:
    """Tensors of the outside, each of which begins where its memory does, do not share any: a guard."""
    if len(tensors) > 1:
        flags = (False,) * (len(tensors) * (len(tensors) - 1) // 2)
        vm.world.guard(tensors[0].source, "STORAGE_OVERLAP", (tuple([t.source for t in tensors]), flags))


def clone(o: Any) -> Any:
    """The same values, without a history."""
    return graph_call(torch.clone, (graph_call(ORIGINAL.detach, (o,), {}, "detach"),), {})


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
    if type(memo) not in (dict, type(None)):
        raise Break("PL0012", "copy.deepcopy with a memo that is no dict", clean=True)
    memo = {} if memo is None else memo
    within = TENSORS in memo
    made = deep(o, memo)
    if not within:
        apart(memo.pop(TENSORS, []))
    return made


def reduce_ex(o: Any, args: tuple, kw: dict) -> Any:
    """`object.__reduce_ex__` of an instance that has nothing but attributes: the library calls it where the class answers for names itself.

    C code asks the instance for `__reduce__`, and goes by the class's; what `__getstate__` is, it asks, too.
    """
    t = type(o)
    if kw or len(args) != 1 or type(args[0]) is not int or args[0] < 2 or not plain_instance(t):
        raise Break("PL0007", f"call of {t.__qualname__}.__reduce_ex__: it reads the whole object at once", clean=True)
    with contextlib.suppress(AttributeError):
        getattr_(o, "__reduce__")
    getstate = getattr_(o, "__getstate__")
    if type(getstate) is types.BuiltinMethodType and getstate == object.__dict__["__getstate__"].__get__(o):
        held = attributes(o)
        shadows.read_all(vm.world, held)
        state = held or None
    else:
        state = call(getstate, (), {})
    return guard_name(copyreg, "__newobj__"), (t,), state, None, None


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
METHOD_LOOKASIDES[(object, "__reduce_ex__")] = reduce_ex
