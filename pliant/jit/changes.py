"""All that a call comes with that is another than an entry was compiled for, of what is a symbol once it has changed.

A guard tells of the first difference that it meets. Where several things change from call to call (the caches of all layers, the numbers of
a schedule), each would take a capture of its own to be learned; and a guard may fail elsewhere for them, on an equation between a size
that is a symbol and one that is compiled in, where no instruction is to blame.
"""

from __future__ import annotations

from collections.abc import Iterable
from types import FunctionType, MemberDescriptorType
from typing import Any

from pliant.graph.originals import ORIGINAL, torch
from pliant.guards.guard import Guard
from pliant.guards.source import Source, ending, places
from pliant.jit.persist.names import ABSENT, from_frame, read

KINDS = ("_parameters", "_buffers")
PLAIN = (torch.Tensor, torch.nn.Parameter)
NUMBERS = (int, float)


def module_state(source: Source) -> bool:
    """A parameter or buffer: `….__dict__['_parameters' | '_buffers'][name]`."""
    b = source.base
    return source.op == "key" and b is not None and b.op == "key" and b.arg in KINDS


def changed(lessons: Iterable[Any], fn: FunctionType, args: tuple, failed: Guard | None = None) -> list[Guard]:
    """The guards of parameters and buffers that have other sizes now, and as many; of numbers that are others of their type; of functions
    and keys that others stand in the place of. `lessons`: of all guards of an entry; `failed`: the guard that did not hold."""
    found: list[Guard] = []
    by_place: list[Guard] = []
    known: dict[Source, Any] = {}
    for lesson in lessons:
        is_other = CHANGES.get(lesson.kind)
        if is_other is None or not is_other(lesson, UNREAD):
            continue
        guard = lesson.guard()
        if guard is None or guard.kind == "TENSOR_MATCH" and not module_state(guard.source):
            continue
        if is_other(lesson, at(guard.source, fn, args, known)):
            found.append(guard)
        elif lesson.one is not None and lesson.one.by_place:
            by_place.append(guard)
    if by_place:  # where one of a list is another, those may be others as well that came to lie where the old ones were
        moved = {ending(g.source) for g in (*found, failed) if g is not None and g.kind == "ID_MATCH"} - {None}
        found += [g for g in by_place if ending(g.source) in moved]
    return found


UNREAD = object()
"""In the place of a value: whether some value may be another."""


def other_sizes(lesson: Any, now: Any) -> bool:
    asked = lesson.value.sizes
    if now is UNREAD:
        return any([n is not None for n in asked])
    if type(now) not in PLAIN:
        return False
    sizes = ORIGINAL.size(now)
    return len(asked) == len(sizes) and any([a is not None and a != n for a, n in zip(asked, sizes, strict=True)])


def other_number(lesson: Any, now: Any) -> bool:
    t = type(lesson.value)
    return t in NUMBERS and (now is UNREAD or type(now) is t and now != lesson.value)


def another(lesson: Any, now: Any) -> bool:
    if lesson.one is None:
        return False
    return now is UNREAD or type(now) is lesson.value and not lesson.one.holds(now)


CHANGES = {"TENSOR_MATCH": other_sizes, "EQ_MATCH": other_number, "ID_MATCH": another}


def at(source: Source, fn: FunctionType, args: tuple, known: dict[Source, Any]) -> Any:
    """What is at a source now, as far as no code of the program's has to run to tell; else ABSENT."""
    if source not in known:
        if source.base is None:
            place = source.arg[0] if source.op == "local" else source.arg
            known[source] = source.arg.obj if source.op == "const" else from_frame((fn, args, None), source.op, place)
        else:
            base = at(source.base, fn, args, known)
            arg = at(source.arg, fn, args, known) if source.op == "item" else source.arg
            known[source] = base if base is ABSENT else step(base, source.op, arg)
    return known[source]


def listed(lessons: Iterable[Any], fn: FunctionType, args: tuple, failed: Guard | None) -> list[tuple[Source, str]]:
    """The flags, texts and what may be None that are others now in the lists where `failed` is about one, and what has become of each
    (`other_flag`): a guard tells of the first alone, and each call may bring another combination."""
    known = set(places(failed.source)) if failed is not None else ()
    now: dict[Source, Any] = {}
    if not known or not other_flag(failed, at(failed.source, fn, args, now)):
        return []
    found = []
    for lesson in lessons:
        if lesson.kind in CHANGES and (guard := lesson.guard()) is not None and not known.isdisjoint(places(guard.source)):
            what = other_flag(guard, at(guard.source, fn, args, now))
            if what:
                found.append((guard.source, what))
    return found


def other_flag(guard: Any, now: Any) -> str:
    """What a guard of an entry says now: that a tensor has come in the place of None, or gone; that a flag or text is another ("other")."""
    t = type(guard.value)
    if guard.kind == "EQ_MATCH":
        return "other" if t in (bool, str) and type(now) is t and now != guard.value else ""
    if guard.kind == "TENSOR_MATCH":
        return "goes" if now is None else ""
    return "comes" if guard.value is type(None) and type(now) in PLAIN else ""


BY_IDENTITY = (object.__hash__, ORIGINAL.__hash__)


def step(o: Any, op: str, arg: Any) -> Any:
    """One step of a source: what the disk can name, and slots. (No numbers of NumPy's scalars: two places may hold one object.)"""
    if op == "item":
        return read(o, "key", arg) if type(arg) is str or type(arg).__hash__ in BY_IDENTITY else ABSENT
    slot = next((vars(c)[arg] for c in type(o).__mro__ if arg in vars(c)), None) if op == "attr" else None
    if type(slot) is not MemberDescriptorType:
        return read(o, op, arg)
    try:
        return slot.__get__(o)
    except AttributeError:
        return ABSENT
