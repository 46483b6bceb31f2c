"""Frames below a graph break: Python functions that are called by what CPython runs itself, and are compiled as regions of their own.

Where the graph breaks at a call of Python code that the tables exclude, or of C code that is given functions to call, emitted code makes
that call in run mode (`native.call_below`). Every Python frame that starts in there goes through the frame hook, and `classify_code`
and `worth_it` say which are asked about: code of the user's (not of the standard library, of torch or of pliant) that is given
tensors. What turns out to compute nothing is left alone from then on.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import types
from collections.abc import Callable
from types import CodeType, FunctionType, MethodType
from typing import Any

from pliant import native
from pliant.graph.originals import torch
from pliant.interpret import policy, runtime, shells
from pliant.interpret.immutable import HEAPTYPE
from pliant.jit.weak_ids import WeakIdDict

UNCOMPILED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR | inspect.CO_ITERABLE_COROUTINE
ENGINE, EXCLUDED = "PL0020", "PL0021"
"""Codes of callees for which the hook stays off: the autograd engine, and what the user excluded."""

DRIVES_PYTHON = (types.GeneratorType, map, filter)
LEFT_ALONE = sys.stdlib_module_names | {"torch", "pliant", "numpy", "_pytest", "pytest"}


def calls_python(fn: Any, args: tuple, kwargs: dict) -> bool:
    """Whether calling `fn` starts Python frames that may be compiled: it is Python code, or C code that is given some."""
    callee = args[0] if fn is runtime.call_ex else fn
    if callable(callee) and policy.classify(callee).code in (ENGINE, EXCLUDED):
        return False
    return is_python(fn) or any(map(is_python, args)) or any(map(is_python, kwargs.values()))


def is_python(fn: Any) -> bool:
    t = type(fn)
    if t is FunctionType or t is native.EntryPoint:
        return True
    if t is MethodType:
        return is_python(fn.__func__)
    if t is functools.partial:
        return is_python(fn.func)
    return issubclass(t, torch.nn.Module) or (issubclass(t, type) and bool(fn.__flags__ & HEAPTYPE))


def iterates_python(iterator: Any) -> bool:
    """Whether `next(iterator)` starts Python frames."""
    t = type(iterator)
    return t in DRIVES_PYTHON or bool(t.__flags__ & HEAPTYPE)


def classify_code(fn: FunctionType) -> bool:
    """Whether frames of this code may become regions of their own."""
    code = fn.__code__
    if code.co_flags & UNCOMPILED or code.co_filename.startswith("<pliant"):
        return False
    module = policy.module_of_file(code.co_filename)
    if module is not None and module.partition(".")[0] in LEFT_ALONE:
        return False
    return policy.python_kind(fn) == "inline" and not policy.runs_natively(code)


def worth_it(args: tuple) -> bool:
    """Is the frame given tensors: as arguments, one level down in containers and objects, or as a module?"""
    kinds = (torch.Tensor, torch.nn.Module)
    return any(issubclass(type(a), kinds) or any(issubclass(type(x), torch.Tensor) for x in parts(a)) for a in args)


def parts(a: Any) -> Any:
    """What an object holds, asked of no code of its class's own."""
    t = type(a)
    if issubclass(t, (list, tuple)):
        return list(itertools.islice((list if issubclass(t, list) else tuple).__iter__(a), 8))
    if t is dict:
        return a.values()
    if issubclass(t, (str, bytes, int, float, type, types.ModuleType, FunctionType)) or a is None:
        return ()
    try:
        return list(object.__getattribute__(a, "__dict__").values())
    except (AttributeError, TypeError):
        return ()


_tries: WeakIdDict[int] = WeakIdDict()


class Below:
    """What the frame hook asks about frames below the breaks of one region. `miss` is the region's."""

    TRIES = 3  # calls without a tensor before a code object is let be

    def __init__(self, miss: Callable[[Any, Any, tuple], tuple]) -> None:
        self.miss = miss

    def __call__(self, fn: FunctionType, args: tuple) -> tuple:
        """Like an entry point's miss."""
        code = fn.__code__
        if torch._C._are_functorch_transforms_active():  # what the frame is given are a transform's own tensors
            return ("eager",)
        if not classify_code(fn) and not shells.is_inner_forward(fn, args):
            let_be(code, native.SKIP_RECURSIVE if policy.python_policy(fn).code == EXCLUDED else native.PASS)
            return ("eager",)
        if not worth_it(args):
            tries = _tries[code] = (_tries.get(code) or 0) + 1
            if tries >= self.TRIES:
                let_be(code)
            return ("eager",)
        before = native.entries(code)
        answer = self.miss(None, fn, args)
        if answer[0] == "retry":
            for entry in native.entries(code):
                if entry not in before and entry.info.exit == "Return" and entry.info.emitted.executable is None:
                    native.remove_entry(code, entry)
                    let_be(code)
                    return ("eager",)
        return answer


def let_be(code: CodeType, how: int = native.PASS) -> None:
    native.set_flags(code, native.get_flags(code) | how)
