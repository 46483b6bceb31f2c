"""What C++ tells the code of a class of tensors (`__torch_dispatch__`, `__torch_function__`), as the program is to see it."""

from __future__ import annotations

from typing import Any

from pliant.graph.traced import TracedTensor, tensors_of
from pliant.interpret.state import Break
from pliant.interpret.tensor_subclasses import Probe, from_probe, shown, swapped


def stands_as(fn: Any, args: list, name: str) -> bool:
    """Whether `fn`, called with these arguments, is the method `name` of the first one: whatever it is called itself."""
    if fn.__name__ == name:
        return True
    if len(args) < 3 or type(args[2]) is not tuple:
        return False
    held = [c.__dict__[name] for c in (args[0] if isinstance(args[0], type) else type(args[0])).__mro__ if name in c.__dict__][:1]
    return any([raw is fn or getattr(raw, "__func__", None) is fn for raw in held])


def in_frame(fn: Any, args: list, hears: bool) -> list | None:
    """The arguments of `__torch_dispatch__` or `__torch_function__` (`hears`), called by C++, as the program is to see them; else None."""
    if not hears and not stands_as(fn, args, "__torch_dispatch__"):
        return None
    told: dict[type, None] = {}
    swapped(list(args[3:]), lambda x: told.setdefault(from_probe(x).pytype) if type(x) is Probe else x)
    if hears and type(args[2]) is tuple and TracedTensor in args[2]:  # methods tell of plain tensors, too
        plain = dict.fromkeys([x.pytype for x in tensors_of(args[3:])])
        if len(plain) != 1:
            raise Break("PL0011", "a mode is told of tensors of several classes")
        args = [*args[:2], tuple([*plain, *[c for c in args[2] if c is not TracedTensor]]), *args[3:]]
    return [tuple(told) if len(told) == 1 and type(a) is tuple and len(a) == 1 and a[0] is Probe else seen(a) for a in args]


def seen(v: Any) -> Any:
    if type(v) is tuple and v and all([isinstance(x, type) for x in v]):
        return tuple([x for x in v if x is not TracedTensor])
    return swapped(v, lambda x: shown(from_probe(x)))
