"""Functions with a `functools.lru_cache`: what is in the cache is read, and guarded; what is not is CPython's to find out.

A call that misses runs the function once, which may read and change anything: neither a capture nor a guard may do that, unless the
function, interpreted, turns out to do nothing but answer, with a value or tensors that it has computed. Else the graph breaks there, and
the next call finds the answer. Guards
see that the key is there, and ask the function, which then hits; an object is read in the cache itself, where that is a plain dict (it has
no bound). How many hits `cache_info` counts is not kept up.
A function of its arguments alone is interpreted where some are symbols, and its cache is passed over.
Functions of libraries whose answer depends on their arguments alone, or on what is installed, are called at once.
"""

from __future__ import annotations

import enum
import math
import weakref
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MethodDescriptorType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import torch

from pliant.bytecode import instructions
from pliant.bytecode import kinds as K
from pliant.graph.originals import gc
from pliant.graph.schema import written
from pliant.graph.symnode import SYMS
from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.guards.question import Cached, alike, cache_of, is_value, key_of
from pliant.interpret import globalstate, policy
from pliant.interpret.attributes import lookup
from pliant.interpret.effects import unwritten_so_far
from pliant.interpret.immutable import IMMUTABLE, TYPE_PARAMETERS, dict_of
from pliant.interpret.state import Break, title, vm

KEYS = {str, int, float, bool, bytes, type(None), type, FunctionType, ModuleType, torch.dtype, torch.device}


HASHES = (enum.Enum.__hash__, str.__hash__, int.__hash__)
EQUALITIES = (object.__eq__, str.__eq__, int.__eq__)
"""What members of enumerations have."""
OF_C = {MethodDescriptorType, GetSetDescriptorType, WrapperDescriptorType}


def is_key(a: Any) -> bool:
    """Whether a cache may be looked up for this argument: nothing of the program's own is run for it."""
    if type(a) in OF_C or type(a) is BuiltinFunctionType and type(a.__self__) in (type(None), ModuleType):
        return True
    t = type(a)
    if issubclass(t, enum.Enum) and id(t) not in vm.world.own_functions:
        return lookup(t, "__hash__") in HASHES and lookup(t, "__eq__") in EQUALITIES
    if issubclass(t, type):  # one whose metaclass does not compare it otherwise
        plain = all([lookup(t, name) is object.__dict__[name] for name in ("__hash__", "__eq__")])
        return plain and id(a) not in vm.world.own_functions
    return (t in KEYS or t is tuple and all(map(is_key, a))) and id(a) not in vm.world.own_functions


def by_identity(a: Any) -> bool:
    """Whether it is an object from outside that is equal to itself alone: then guards say which one it is."""
    t, world = type(a), vm.world
    plain = id(a) in world.outside and id(a) not in world.by_copy and not isinstance(a, torch.Tensor)
    return plain and all([lookup(t, name) is object.__dict__[name] for name in ("__hash__", "__eq__")])


def function_of(fn: Any) -> Any:
    """The function that a cache asks. `__wrapped__` may be another: `functools.wraps` of what the function itself stands for writes it."""
    wrapped = getattr(fn, "__wrapped__", None)
    return wrapped if any([f is wrapped for f in gc.get_referents(fn)]) else None


def cached(fn: Any, args: tuple, kwargs: dict) -> Any:
    """What the cached function answers, as a proxy of the outside. Raises Break if it would have to run."""
    wrapped, given = function_of(fn), (*args, *kwargs.values())
    same = type(wrapped) is not FunctionType or as_it_was(wrapped)
    if not all([is_key(a) or by_identity(a) for a in given]):
        if all([type(a) in SYMS or is_key(a) for a in given]) and same and by_arguments(wrapped):
            return computed(wrapped, args, kwargs)
        raise unknown(fn, "with objects as keys")
    world = vm.world
    for a in given:
        if not is_key(a):
            world.unusual()
            world.guard(world.sources[id(a)], "ID_MATCH", a)
    known = policy.python_policy(wrapped) if type(wrapped) is FunctionType else None
    if known is not None and known.kind in ("native_python", "constant") and known.reads in ("arguments", "process"):
        answer = fn(*args, **kwargs)
        world.asked.append((fn, args, kwargs, answer))
        if type(answer) in KEYS or type(answer) is tuple and all(map(is_key, answer)):
            return answer
    found = cache_of(fn)
    if found is None:
        raise unknown(fn, "of another make")
    cache, bounded = found
    key = key_of(fn, args, kwargs)
    if key in cache:
        if not unwritten_so_far(world):  # an answer from before is no matter of what has changed since
            world.guard(S.const(cache), "DICT_CONTAINS", (key, True), key)
    else:
        world.guard(S.const(cache), "DICT_CONTAINS", (key, False), key)  # what ends here is no longer needed once there is an answer
        if not unwritten_so_far(world):
            raise unknown(fn, "after the program has changed something")
        if bounded and fn.cache_info().currsize >= fn.cache_info().maxsize:
            raise unknown(fn, "which is full: an older answer would go")
        if not fills(fn, args, kwargs):
            raise unknown(fn, "which has no answer yet")
        del world.guards[S.const(cache), "DICT_CONTAINS", key]
    if not bounded and not is_value(cache[key]):
        return world.locate(cache[key], S.const(cache).key(key))
    with torch._C._DisableTorchDispatch():
        answer = fn(*args, **kwargs)
    world.guard(S.const(fn), "ANSWER", Cached(fn, args, dict(kwargs), answer), repr((args, kwargs)))
    if not is_value(answer):
        return world.locate(answer, S.const(answer))
    world.asked.append((fn, args, kwargs, answer))
    return answer


MET: weakref.WeakKeyDictionary[FunctionType, list] = weakref.WeakKeyDictionary()
"""The code and the defaults that cached functions had when they were first called in a capture; nothing where they have changed since."""


def as_it_was(fn: FunctionType) -> bool:
    """Whether a cached function is what it was: else its cache has answers that it would not give now, for arguments that nobody knows."""
    now = [fn.__code__, fn.__defaults__, dict(fn.__kwdefaults__ or {})]
    before = MET.setdefault(fn, now)
    if before and not alike(before, now):
        before.clear()
    return bool(before)


PURE = "abs bool divmod float int max min pow range round sum tuple len reversed enumerate zip".split()


def by_arguments(fn: Any) -> bool:
    """Whether a function reads nothing but its arguments, of what may change: it names itself, `math` and some builtins alone."""
    if type(fn) is not FunctionType or fn.__code__.co_freevars:
        return False
    return all([is_key(d) for d in (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())]) and plain(fn, fn.__code__)


def plain(fn: FunctionType, code: CodeType) -> bool:
    for i in instructions(code):
        if i.kind in OUTWARD:
            return False
        if i.kind is K.LOAD_GLOBAL:
            name = i.operand[0]
            found = fn.__globals__.get(name)
            if found is not math and (name in fn.__globals__ or name not in PURE):
                return False
    return all([plain(fn, c) for c in code.co_consts if type(c) is CodeType])


OUTWARD = {K.STORE_GLOBAL, K.DELETE_GLOBAL, K.IMPORT_NAME, K.LOAD_NAME, K.LOAD_BUILD_CLASS}


def computed(fn: Any, args: tuple, kwargs: dict) -> Any:
    """What a function of its arguments alone answers where some are symbols: its cache would say the same, if it said anything."""
    n = len(vm.trace.ops)
    answer = vm.interp(fn, args, kwargs)
    parts = answer if type(answer) is tuple else (answer,)
    if len(vm.trace.ops) != n or not all([type(v) in SYMS or is_key(v) for v in parts]):
        raise unknown(fn, "and answers other things than numbers")
    return answer


def fills(fn: Any, args: tuple, kwargs: dict) -> bool:
    """Fill the cache, if the function does nothing but answer: then it makes no difference that it runs now."""
    wrapped, trace = function_of(fn), vm.trace
    if type(wrapped) is not FunctionType or fn.cache_parameters()["maxsize"] == 0 or globalstate.heard() or vm.world.levels.entered:
        return False
    n, n_torch, begin = len(trace.ops), len(trace.torch_ops), trace.next_vid
    try:
        answer = vm.interp(wrapped, args, kwargs)
    except Break as e:
        raise Break("PL0004", f"call of {title(fn)}, which has an lru_cache and cannot be captured: {e.reason}") from None
    ops = trace.ops[n:]
    trace.take_back(n)
    del trace.torch_ops[n_torch:]
    if not unwritten_so_far(vm.world) or not all([computes(op, begin) for op in ops]):
        raise more(fn, "it changes something, or draws")
    if not made_of(answer, len(ops)):
        raise more(fn, f"it answers a {type(answer).__qualname__}")
    with torch._C._DisableTorchDispatch(), torch._C._DisablePythonDispatcher():  # type: ignore[attr-defined]
        real = fn(*args, **kwargs)
    return bool(ops) or alike(real, answer)


def computes(op: Any, begin: int) -> bool:
    """Whether an operation does nothing but give a tensor or a number, made since `begin`: the same each time."""
    target = op.target
    plain = isinstance(target, torch._ops.OpOverload) and target.namespace == "aten"
    return plain and torch.Tag.nondeterministic_seeded not in target.tags and all([t.storage_id >= begin for t in written(op)])


def made_of(answer: Any, n_ops: int) -> bool:
    """Whether an answer is a value, something from outside that is known by identity, or, where it was computed, tensors in containers."""
    if is_value(answer) or is_key(answer):
        return True
    if type(answer) in (tuple, list, dict):
        return n_ops > 0 and all([made_of(x, n_ops) for x in (answer.values() if type(answer) is dict else answer)])
    return n_ops > 0 and type(answer) is TracedTensor and answer.pytype is torch.Tensor


def more(fn: Any, why: str) -> Break:
    return Break("PL0004", f"call of {title(fn)}, which has an lru_cache and does more than answer: {why}")


def unknown(fn: Any, why: str) -> Break:
    return Break("PL0004", f"call of {title(fn)}, which has an lru_cache, {why}", clean=True)


# -- annotations ---------------------------------------------------------------------------------------------------------
def mentions_own(a: Any) -> bool:
    """Whether a part of an annotation was made by the program."""
    if isinstance(a, (tuple, list)):
        return any(map(mentions_own, a))
    return type(a) is TracedTensor or id(a) in vm.world.own_functions or any(map(mentions_own, getattr(a, "__args__", ())))


def annotation(fn: Any, args: tuple, kwargs: dict) -> Any:
    """What `typing` makes of some parts: the same for the same ones, while its cache holds them.

    Of parts that are the capture's own it is made once, and not through that cache, which outlives the capture. Where parts belong to this
    call, emitted code asks the cache again, so that whoever asks behind a graph break finds the same one."""
    world = vm.world
    own = any(map(mentions_own, args))
    if kwargs:
        return cached(fn, args, kwargs) if own else fn(*args, **kwargs)
    parts = [x for a in args for x in (a if type(a) is tuple else (a,))]
    if not own and not any([id(x) in world.outside for x in parts]):
        return fn(*args)
    key = annotation, id(fn), len(args), tuple(map(id, parts))
    known = world.lookups.get(key)
    if known is None:
        run = fn if not own else fn.__wrapped__ if all(map(real, args)) else None
        made = vm.call(fn.__wrapped__, args, {}) if run is None else run(*args)
        known = world.lookups[key] = args, made
        if type(made) in IMMUTABLE and id(made) not in world.own_functions and id(made) not in world.outside:
            world.remade[id(made)] = (fn, args, {}, dict(dict_of(made)))
            if own:
                world.own_functions[id(made)] = made
    return known[1]


def real(a: Any) -> bool:
    """Whether all that is the capture's own in a part of an annotation are type parameters, which are made for real."""
    if isinstance(a, (tuple, list)):
        return all(map(real, a))
    if type(a) is TracedTensor or id(a) in vm.world.own_functions and type(a) not in IMMUTABLE:
        return type(a) in TYPE_PARAMETERS
    return all(map(real, getattr(a, "__args__", ())))


__all__ = ["annotation", "cached"]
