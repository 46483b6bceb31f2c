"""`pliant.install()`: from then on `torch.compile`, `nn.Module.compile` and what calls them give pliant regions.

    pliant.install()                 # until pliant.uninstall()
    with pliant.install(): ...       # for a block
    $ python -m pliant run script.py

Only what is looked up afterwards is replaced: a library that keeps `torch.compile` itself (`from torch import compile`) before keeps
PyTorch's, and so do functions that PyTorch's compiler has compiled before.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
import threading
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from pliant import events
from pliant.dropin import counters, exceptions, replacements
from pliant.jit import stance


class Door(NamedTuple):
    """A name of PyTorch's, and what makes its replacement from what stood there."""

    module: str
    name: str
    make: Callable[[Any], Any]


def always(new: Any) -> Callable[[Any], Any]:
    return lambda before: new


DOORS = [
    Door("torch", "compile", always(replacements.compile)),
    Door("torch.compiler", "reset", replacements.reset),
    Door("torch.compiler", "set_stance", always(stance.set_stance)),
    Door("torch.compiler", "allow_in_graph", replacements.allow_in_graph),
    Door("torch.compiler", "save_cache_artifacts", always(replacements.save_cache_artifacts)),
    Door("torch.compiler", "load_cache_artifacts", always(replacements.load_cache_artifacts)),
    Door("torch._dynamo", "reset", replacements.reset),
    Door("torch._dynamo", "set_stance", always(stance.set_stance)),
    Door("torch._dynamo", "allow_in_graph", replacements.allow_in_graph),
    Door("torch._dynamo", "disallow_in_graph", replacements.disallow_in_graph),
    Door("torch._dynamo", "optimize", replacements.optimize),
    Door("torch._dynamo", "optimize_assert", replacements.optimize_assert),
    Door("torch._dynamo", "explain", always(replacements.explain)),
]
"""TorchDynamo's rows wait until the program imports it: that takes a second, and most never do."""

_lock = threading.RLock()
_before: dict[tuple[str, str], tuple[Any, Any]] = {}
_endings: list[Callable[[], Any]] = []


class Waiting(importlib.abc.MetaPathFinder):
    """Opens the doors of modules as they are imported."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> Any:
        if name not in MODULES or name in sys.modules:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            run = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                run(module)
                with _lock:
                    if self in sys.meta_path:
                        open_doors(name)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


MODULES = {door.module for door in DOORS} | {counters.MODULE, exceptions.MODULE}
_finder = Waiting()


def open_doors(module: str) -> None:
    """Replace what a module that is there by now has."""
    there = sys.modules.get(module)
    for door in DOORS:
        if door.module == module and there is not None and hasattr(there, door.name) and (module, door.name) not in _before:
            before = getattr(there, door.name)
            new = door.make(before)
            _before[module, door.name] = before, new
            setattr(there, door.name, new)
    if module == counters.MODULE:
        counters.hand_over()
    if module == exceptions.MODULE:
        exceptions.adopt()


class Installed:
    """What `install()` returns: the end of a `with` block takes it back."""

    def __init__(self, mine: bool) -> None:
        self.mine = mine

    def __enter__(self) -> Installed:
        return self

    def __exit__(self, *_: Any) -> None:
        if self.mine:
            uninstall()


def install() -> Installed:
    """Put pliant in the place of PyTorch's compiler, for this process. Does nothing where it is already."""
    with _lock:
        if is_installed():
            return Installed(False)
        sys.meta_path.insert(0, _finder)
        _endings.append(events.subscribe(counters.told, counters.KINDS, passive=True))
        for module in MODULES:
            open_doors(module)
    return Installed(True)


def uninstall() -> None:
    """Put back what stood there. What others have replaced since stays as they left it; compiled functions stay compiled."""
    with _lock:
        if not is_installed():
            return
        sys.meta_path.remove(_finder)
        while _endings:
            _endings.pop()()
        for (module, name), (before, new) in _before.items():
            there = sys.modules[module]
            if getattr(there, name, None) is new:
                setattr(there, name, before)
        _before.clear()
        exceptions.give_back()


def is_installed() -> bool:
    return _finder in sys.meta_path
