"""Special methods as CPython finds them: on the type, past the instance, and bound as their descriptors say."""

from __future__ import annotations

from types import FunctionType, MethodType, WrapperDescriptorType
from typing import Any

from pliant.interpret.attributes import bound, getattr_, is_property, lookup, of_property
from pliant.interpret.namespaces import SLOTS
from pliant.interpret.opaque import ways_to_attributes
from pliant.interpret.state import Break


def of_special(m: Any, obj: Any, t: type, name: str) -> Any:
    """The method `m`, found on the type of `obj`, bound to it."""
    if type(m) is FunctionType:
        return MethodType(m, obj)
    return getattr_(obj, name) if type(m) in SLOTS else bound_special(m, obj, t, name)


def bound_special(m: Any, obj: Any, t: type, name: str) -> Any:
    """One that is no function: a static method, say, or a partial, is not given the object; a property is asked each time."""
    at = next((c for c in t.__mro__ if name in c.__dict__), t)
    if is_property(type(m), "__get__"):
        return of_property(m, obj, t, at, name)
    return bound(m, obj, t, at, name)


def undecorated(init: Any) -> Any:
    """The constructor under what PyTorch has put around it for the sake of its own compilers."""
    while init.__globals__.get("__name__") in ("torch._compile", "torch._export.wrappers"):
        held = [c.cell_contents for c in init.__closure__ or ()]
        inner = [f for f in held if type(f) is FunctionType]
        if not inner:
            raise Break("PL0004", "a constructor that PyTorch has decorated", clean=True)
        init = inner[0]
    return init


def has_ways_of_its_own(cls: type) -> bool:
    """`opaque.answers_for_itself`, guarded."""
    return any([type(lookup(cls, name)) is not WrapperDescriptorType for name in ways_to_attributes(cls)])
