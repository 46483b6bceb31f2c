"""What modules hold: their dicts are the global names of functions, so both are read and written at one place, name by name.

Instances of subclasses of `types.ModuleType` (`sys.modules[__name__].__class__ = ...`, lazy modules) have such a dict, too: what their
class says of an attribute comes first (`attributes.instance_getattr`), as with any other object.
"""

from __future__ import annotations

import types
from typing import Any

from pliant.graph.read_later import of_dict
from pliant.guards import source as S
from pliant.interpret.capture import UNSET
from pliant.interpret.state import vm

SLOTS = {types.MethodDescriptorType, types.WrapperDescriptorType}
"""Methods of C types."""

dict_of = vars(types.ModuleType)["__dict__"].__get__
"""The dict of a module, past what its class makes of attributes."""


def item(mod: Any, name: str) -> Any:
    """What the dict of a module has under `name`, guarded. UNSET: nothing, which is guarded, too."""
    world, d = vm.world, dict_of(mod)
    key = (id(d), name)
    if vm.heard is not None:
        vm.heard.append((of_dict, d, name))
    if key in world.global_writes:
        return world.global_writes[key][2]
    r = world.reads.get(key, UNSET)
    if r is UNSET:
        world.namespaces.add(id(d))
        if name in d:
            r = world.reads[key] = world.locate(d[name], S.const(mod).dict().key(name))
        else:
            world.guard(S.const(mod).dict(), "DICT_CONTAINS", (name, False), name)
    return r


def missing(mod: Any, name: str) -> Any:
    """What a module gives for a name that neither its dict nor its class has: the answer of the `__getattr__` in its dict, an error."""
    hook = item(mod, "__getattr__")
    return types.ModuleType.__getattribute__(mod, name) if hook is UNSET else vm.call(hook, (name,), {})


def store(mod: Any, name: str, value: Any) -> None:
    d = dict_of(mod)
    vm.world.reads.pop((id(d), name), None)
    vm.world.global_writes[(id(d), name)] = (d, name, value)


def attribute(mod: Any, name: str) -> Any:
    """An attribute of a plain module."""
    found = item(mod, name)
    if found is not UNSET:
        return found
    raw = next((b.__dict__[name] for b in types.ModuleType.__mro__ if name in b.__dict__), UNSET)
    if raw is UNSET:
        return missing(mod, name)
    if name == "__dict__":
        return vm.names_of(dict_of(mod))
    value = getattr(mod, name)
    return value if type(raw) in SLOTS else vm.world.locate(value, S.const(mod).attr(name))  # those are bound anew with each reading
