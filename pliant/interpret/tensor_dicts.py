"""What tensors hold in their `__dict__`: the attributes that the program, or the code of their class, has given them.

The dict of a tensor from outside has a shadow, as that of any object. A tensor made here has a dict of its own (`World.tensor_dicts`),
which becomes that of the real tensor where one is made (`jit/tensor_rows.py`): nobody sees those of the others.
Wrappers keep what they hold in an object of their class (`tensor_subclasses.py`).
"""

from __future__ import annotations

from typing import Any

from pliant.interpret import shadows
from pliant.interpret.capture import UNSET
from pliant.interpret.state import Break, vm
from pliant.interpret.wrappers import is_wrapped


def shadow_of(t: Any) -> shadows.Shadow | None:
    """The shadow of the dict of a tensor from outside; None for one that was made here."""
    world = vm.world
    real = world.real.get(id(t))
    if real is None:
        return None
    world.unusual()
    world.sources.setdefault(id(real), t.source)
    return shadows.instance_dict(world, real)


def own(t: Any) -> tuple:
    """(the tensor, its dict, whether the program has given it that dict) for one that was made here."""
    entry = vm.world.tensor_dicts.get(id(t))
    if entry is None:
        entry = vm.world.tensor_dicts[id(t)] = (t, {}, False)
    return entry


def any_of(t: Any) -> bool:
    """Whether a tensor made here has any attributes, or a dict that the program has given it."""
    entry = vm.world.tensor_dicts.get(id(t))
    return entry is not None and (entry[2] or bool(entry[1]))


def whole(t: Any) -> dict:
    """`t.__dict__`."""
    h = shadow_of(t)
    if h is not None:
        shadows.read_all(vm.world, h.copy)
        return h.copy
    _, d, given = own(t)
    if not given:
        vm.world.dict_owners[id(d)] = (d, t)
    return d


def get(t: Any, name: str) -> Any:
    """What a tensor holds under this name; UNSET if nothing, which is guarded then."""
    h = shadow_of(t)
    if h is None:
        entry = vm.world.tensor_dicts.get(id(t))
        return UNSET if entry is None else entry[1].get(name, UNSET)
    if name in h.copy:
        return shadows.item(vm.world, h, name)
    shadows.absent(vm.world, h, name)
    return UNSET


def there(t: Any, name: str) -> bool:
    """Whether it holds anything under this name just now: nothing is guarded if it does not."""
    real = vm.world.real.get(id(t))
    if real is None:
        entry = vm.world.tensor_dicts.get(id(t))
        return entry is not None and name in entry[1]
    h = vm.world.shadows.get(id(real.__dict__))
    return name in (real.__dict__ if h is None else h.copy)


def put(t: Any, name: str, value: Any) -> None:
    """`t.name = value`, where no descriptor has a say in it."""
    h = shadow_of(t)
    if h is None:
        own(t)[1][name] = value
        return
    was = h.located.pop(name, UNSET) if h.located.get(name) is not shadows.WRITTEN else shadows.WRITTEN  # in the order of the writes
    shadows.writes_to(h, name, was)
    h.copy[name] = value


def drop(t: Any, name: str) -> None:
    """`del t.name`, likewise."""
    h = shadow_of(t)
    d = own(t)[1] if h is None else h.copy
    if name not in d:
        if h is not None:
            shadows.absent(vm.world, h, name)
        raise AttributeError(f"{t.pytype.__name__!r} object has no attribute {name!r}")
    if h is not None:
        shadows.present(vm.world, h, name)
        h.located[name] = shadows.WRITTEN
    del d[name]


def replace(t: Any, d: Any) -> None:
    """`t.__dict__ = d`: from now on that very dict."""
    world = vm.world
    if vm.world.real.get(id(t)) is not None or is_wrapped(t):
        raise Break("PL0006", "the __dict__ of a tensor from outside, or of a wrapper, is replaced", clean=True)
    if type(d) is not dict or id(d) in world.by_copy or id(d) in world.outside or id(d) in world.dict_owners:
        raise Break("PL0006", "the __dict__ of a tensor becomes one that another object has, or one from outside", clean=True)
    before = world.tensor_dicts.get(id(t))
    if before is not None:
        world.dict_owners.pop(id(before[1]), None)
        world.keep.append(before[1])
    world.tensor_dicts[id(t)] = (t, d, True)


__all__ = ["any_of", "drop", "get", "put", "replace", "there", "whole"]
