"""What a `torch.nn.Module` has beside its `__dict__`: parameters, buffers, submodules."""

from __future__ import annotations

from typing import Any

from pliant.interpret import shadows
from pliant.interpret.state import Break, vm


def nn_module_getattr(obj: Any, t: type, name: str, d: dict, h: Any) -> Any:
    """`nn.Module.__getattr__` without interpreting it: parameters, buffers, submodules."""
    world = vm.world
    for kind in ("_parameters", "_buffers", "_modules"):
        if kind not in d:
            if h is not None:
                shadows.absent(world, h, kind)
            continue
        if h is not None and shadows.is_empty(world, h, kind):
            continue
        sub = shadows.item(world, h, kind) if h is not None else d[kind]
        if not isinstance(sub, dict):
            raise Break("PL0007", f"attribute {name!r} of a {t.__name__}, whose {kind} is no dict", clean=True)
        inner = world.by_copy.get(id(sub))
        if name in sub:
            return shadows.item(world, inner, name) if inner is not None else sub[name]
        if inner is not None:
            shadows.absent(world, inner, name)
    raise AttributeError(f"{t.__name__!r} object has no attribute {name!r}", name=name, obj=obj)
