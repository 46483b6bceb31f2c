"""Questions: what a program asked a function about the state of the process, to be asked again by each call's guards.

`torch.get_num_threads()`, `sys.getrecursionlimit()`, a cached function: nothing that a source can read tells what they will answer.
So the guard (`ANSWER`) calls them, after everything else was found as it was, and compares. A question is a C function or a short
Python one; the same one is asked once per entry.
"""

from __future__ import annotations

import functools
import struct
import types
import weakref
from abc import ABCMeta, get_cache_token
from collections.abc import Callable
from dataclasses import dataclass
from gc import get_referents
from typing import Any

import torch

EQUAL = {bool, int, str, bytes, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format, range, slice, type(Ellipsis)}


def alike(a: Any, b: Any) -> bool:
    """Whether two answers are the same to a program: the same object, or equal values of the same types all through."""
    if a is b:
        return True
    t = type(a)
    if t is not type(b):
        return False
    if t in EQUAL or is_member(t):
        return bool(a == b)
    if t is float:
        return struct.pack("d", a) == struct.pack("d", b)
    if t is complex:
        return alike(a.real, b.real) and alike(a.imag, b.imag)
    if t is list or isinstance(a, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if t is dict:
        return alike(list(a), list(b)) and alike(list(a.values()), list(b.values()))
    return (t is set or t is frozenset) and len(a) == len(b) and a == b and all(type(x) in EQUAL for x in (*a, *b))


def is_member(t: type) -> bool:
    """Whether instances are members of an enumeration of C++ (pybind11 makes them anew for each who asks)."""
    return t.__module__.startswith("torch._C") and hasattr(t, "__members__")


def is_value(a: Any) -> bool:
    """Whether `alike` compares it by what it is, not by which object it is, and nobody can change it."""
    t = type(a)
    if t in EQUAL or t is float or t is complex or is_member(t):
        return True
    return isinstance(a, tuple) and t.__flags__ & (1 << 9) == 0 and all(map(is_value, a))


@dataclass(frozen=True, slots=True)
class Raised:
    """The answer of a question that raises."""

    kind: type
    text: str


WEAKLY = (types.FunctionType, functools._lru_cache_wrapper)


class Question:
    """Guard predicate: `fn(*args, **kwargs)` answers as it did when the program asked. Keeps no Python function alive."""

    __slots__ = ("answer", "args", "held", "kwargs")

    def __init__(self, fn: Callable, args: tuple, kwargs: dict, answer: Any) -> None:
        self.held: Any = weakref.ref(fn) if isinstance(fn, WEAKLY) else fn
        self.args = args
        self.kwargs = kwargs
        self.answer = answer

    @property
    def fn(self) -> Callable | None:
        """The function; None if it is gone."""
        return self.held() if type(self.held) is weakref.ref else self.held

    def __call__(self) -> bool:
        held = self.held  # asked by each call: no further function is called for what is the very object
        fn = held() if type(held) is weakref.ref else held
        try:
            answer = fn(*self.args, **self.kwargs)  # type: ignore[misc]
        except Exception as e:
            return bool(Raised(type(e), str(e)) == self.answer)
        return answer is self.answer or alike(answer, self.answer)

    def told(self) -> str:
        """What it demands, in words."""
        given = [*map(repr, self.args), *(f"{k}={v!r}" for k, v in self.kwargs.items())]
        answer = self.answer if is_value(self.answer) else f"a {type(self.answer).__qualname__}"
        return f"{getattr(self.fn, '__qualname__', self.fn)}({', '.join(given)}) answers {answer!r}"


def cache_of(fn: Any) -> tuple[dict, bool] | None:
    """The dict that the cache of a `functools.lru_cache` function is, and whether it has a bound (then it holds links, not answers)."""
    mine = get_referents(fn)
    caches = [o for o in mine if type(o) is dict and o is not fn.__dict__]
    return (caches[0], fn.cache_parameters()["maxsize"] is not None) if len(caches) == 1 else None


def key_of(fn: Any, args: tuple, kwargs: dict) -> Any:
    """The key under which `functools` keeps an answer."""
    typed = fn.cache_parameters()["typed"]
    if not typed and not kwargs:
        return args[0] if len(args) == 1 and type(args[0]) in (str, int) else args
    key: tuple = args
    if kwargs:  # an object of the function's own marks where keywords begin
        mark = next(o for o in get_referents(fn) if type(o) is object)
        key += (mark, *[x for pair in kwargs.items() for x in pair])
    return (*key, *map(type, args), *map(type, kwargs.values())) if typed else key


class Cached(Question):
    """Guard predicate: a cached function has this answer in its cache. The function itself is never run for it."""

    __slots__ = ("cache", "key")

    def __init__(self, fn: Callable, args: tuple, kwargs: dict, answer: Any) -> None:
        super().__init__(fn, args, kwargs, answer)
        found = cache_of(fn)
        self.cache = found[0] if found is not None else {}
        self.key = key_of(fn, args, kwargs)

    def __call__(self) -> bool:
        return self.key in self.cache and super().__call__()


CHECK = ABCMeta.__subclasscheck__


class Subclasses:
    """Guard predicate: `issubclass(t, cls)` of these classes is what it was. Asked again only if a class was registered somewhere."""

    __slots__ = ("answers", "token")

    def __init__(self, token: Any = None) -> None:
        self.token = get_cache_token() if token is None else token
        self.answers: list[tuple[weakref.ref[type], weakref.ref[type], bool]] = []

    @classmethod
    def of(cls, answers: list[tuple[type, type, bool]]) -> Subclasses:
        """As another process has found them: asked anew at the first call."""
        made = cls(-1)
        made.answers = [(weakref.ref(t), weakref.ref(c), answer) for t, c, answer in answers]
        return made

    def note(self, t: type, cls: type) -> bool:
        """Ask now, and keep the answer."""
        answer = CHECK(cls, t)  # type: ignore[arg-type]
        self.answers.append((weakref.ref(t), weakref.ref(cls), answer))
        return answer

    def __call__(self) -> bool:
        token = get_cache_token()
        if token != self.token:
            for t, cls, answer in self.answers:
                a, b = t(), cls()
                if a is None or b is None or CHECK(b, a) is not answer:  # type: ignore[arg-type]
                    return False
            self.token = token
        return True

    def told(self) -> str:
        return "the same virtual subclasses"
