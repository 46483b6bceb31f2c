"""`except*`: what CPython's CHECK_EG_MATCH and PREP_RERAISE_STAR do, over exceptions that may be from outside.

Follows `exception_group_match` of `Python/ceval.c` and `_PyExc_PrepReraiseStar` of `Objects/exceptions.c`. Exceptions match by their
class alone, whatever a metaclass says about instances. A group from outside is guarded with all that is in it before it is split.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

from pliant.interpret.attributes import getattr_, guard_order, lookup, not_yet
from pliant.interpret.gate import captured
from pliant.interpret.state import vm

mro_of = type.__dict__["__mro__"].__get__  # `cls.__mro__` may be a metaclass's own
NO_CLASS = "catching classes that do not inherit from BaseException is not allowed"
NO_GROUP = "catching ExceptionGroup with except* is not allowed. Use except instead."
READ = ("message", "exceptions", "__traceback__", "__context__", "__cause__")


def is_exception_class(t: Any) -> bool:
    return issubclass(type(t), type) and BaseException in mro_of(t)


def classes_in(t: Any) -> tuple:
    return tuple(tuple.__iter__(t)) if issubclass(type(t), tuple) else (t,)


def check_classes(t: Any) -> None:
    """Raises TypeError unless an `except` clause may name `t`: a class of exceptions or a tuple of such."""
    for c in classes_in(t):
        if not is_exception_class(c):
            raise TypeError(NO_CLASS)


def check_group_classes(t: Any) -> None:
    """Raises TypeError unless an `except*` clause may name `t`."""
    check_classes(t)
    for c in classes_in(t):
        if BaseExceptionGroup in mro_of(c):
            raise TypeError(NO_GROUP)


def matches(e: Any, t: Any) -> bool:
    """`PyErr_GivenExceptionMatches`: no `__instancecheck__` is asked."""
    guard_order(type(e))
    order = mro_of(type(e))
    return any([c in order for c in classes_in(t)])


def is_group(e: Any) -> bool:
    return BaseExceptionGroup in mro_of(type(e))


def known(e: Any) -> None:
    """Guard what C code reads of a group from outside: its fields and those of the groups in it."""
    if not is_group(e):
        return
    if id(e) in vm.world.outside:
        for name in READ:
            getattr_(e, name)
        notes_of(e)
    for x in e.exceptions:
        guard_order(vm.type_of(x))
        known(x)


def notes_of(e: Any) -> Any:
    try:
        return getattr_(e, "__notes__")
    except AttributeError:
        return None


def method_of(e: Any, name: str) -> Any:
    """A method of a group that Python code of the program has overridden, or None."""
    m = lookup(type(e), name)
    if type(m) is FunctionType:
        not_yet()
        return m
    return None


def match(e: Any, t: Any) -> tuple[Any, Any]:
    """(what an `except* t` clause handles of `e`, or None; what is left for the next clause)."""
    if e is None:
        return None, None
    if matches(e, t):
        return (e if is_group(e) else BaseExceptionGroup("", (e,))), None
    if not is_group(e):
        return None, None
    known(e)
    split = method_of(e, "split")
    pair = vm.interp(split, (e, t), {}) if split is not None else captured(BaseExceptionGroup.split, e, t)
    return pair[0], pair[1]


def to_raise(orig: Any, excs: list) -> Any:
    """What a `try` with `except*` clauses raises in the end: `excs` were raised by its handlers, or are what none of them handled."""
    if not excs:
        return None
    if not is_group(orig):
        return excs[0]
    raised: list[Any] = []
    again: set[int] = set()
    for e in excs:
        if e is None:
            continue
        if is_group(e) and same_metadata(e, orig):
            collect_leaves(e, again)
        else:
            raised.append(e)
    known(orig)
    left = projection(orig, again)
    if left is not None:
        raised.append(left)
    return None if not raised else raised[0] if len(raised) == 1 else BaseExceptionGroup("", raised)


def same_metadata(a: Any, b: Any) -> bool:
    """Whether `a` is a part of the group `b` that was not raised anew."""
    return a.__traceback__ is b.__traceback__ and a.__cause__ is b.__cause__ and a.__context__ is b.__context__


def collect_leaves(e: Any, out: set[int]) -> None:
    if is_group(e):
        for x in e.exceptions:
            collect_leaves(x, out)
    else:
        out.add(id(e))


def projection(e: Any, leaves: set[int]) -> Any:
    """The part of `e` that holds these leaves, or None."""
    if not is_group(e):
        return e if id(e) in leaves else None
    kept = [p for x in e.exceptions if (p := projection(x, leaves)) is not None]
    if not kept:
        return None
    derive = method_of(e, "derive")
    part = vm.interp(derive, (e, kept), {}) if derive is not None else BaseExceptionGroup.derive(e, kept)
    if not is_group(part):
        raise TypeError("derive must return an instance of BaseExceptionGroup")
    part.__traceback__, part.__context__, part.__cause__ = e.__traceback__, e.__context__, e.__cause__
    notes = notes_of(e)
    if type(notes) in (list, tuple):
        part.__notes__ = list(notes)
    return part


vm.known_group = known
