"""What code that autograd will call reads of the outside, which may be another thing by then.

It is interpreted where it is set (`subprograms.rehearsed`), and what it read is noted meanwhile: names of modules, attributes of objects
and of classes, items, cells, the code of functions. The region asks all that again when gradients arrive (`graph/read_later.py`), and
where some of it has changed has its backward part traced anew, by CPython, which reads what is there. What it must not meet then is a
copy of what is outside, in what the code holds (`ctx.table = TABLE`): there the graph breaks. What libraries read is theirs.
"""

from __future__ import annotations

import types
from typing import Any

import torch

from pliant.graph import read_later
from pliant.graph.control_flow import number_of
from pliant.guards.source import Source
from pliant.interpret import shadows
from pliant.interpret.immutable import IMMUTABLE
from pliant.interpret.library_internals import of_library
from pliant.interpret.shadows import CONSTANT_TYPES, Shadow
from pliant.interpret.state import Break, current_site, vm
from pliant.interpret.world import World

NUMBERS = (torch.SymInt, torch.SymFloat, torch.SymBool)
SETTLED = (types.ModuleType, type, types.FunctionType, types.BuiltinFunctionType)  # which of them it is is guarded, if it is used


def of_theirs(module: Any) -> bool:
    return of_library(module) and module != "__main__" or str(module).partition(".")[0] == "pliant"


class Heard:
    """What one piece of code reads while it is interpreted. `copies`: ids of the copies of outside containers that it holds."""

    def __init__(self, code: str, what: str, copies: set[int]) -> None:
        self.code = code
        self.what = what
        self.copies = copies
        self.outer = vm.heard, vm.world.log
        self.log: list[tuple] = []
        self.found: list[tuple] = []

    def __enter__(self) -> Heard:
        vm.heard, vm.world.log = self.found, self.log
        return self

    def __exit__(self, *_: Any) -> None:
        vm.heard, vm.world.log = self.outer
        if self.outer[0] is not None:
            self.outer[0].extend(self.found)
        if self.outer[1] is not None:
            self.outer[1].extend(self.log)

    def refused(self, why: str) -> Break:
        return Break(self.code, f"{self.what} reads {why}, which may change before gradients arrive")

    def settle(self, replayed: bool) -> None:
        """Note all of it for the region, and guard that it is about these objects. Raises Break for what nobody can ask again.
        `replayed`: its operations stand for it (`replayed.py`), so that nobody can trace it anew."""
        world, later = vm.world, vm.trace.read_later
        if replayed and (self.log or not all(map(fixed, self.found))):
            raise self.refused("what is outside of it")
        for event in self.log:
            how, h, k, result = event[:4]
            if how == "unusual":
                raise self.refused("what is not guarded item by item")
            if id(h.copy) in self.copies:
                raise self.refused(f"{h.source.name}, of which it holds a copy")
            self.item(world, h, how, k, result, later)
        for read, of, name in self.found:
            if not ours(read, of, name):
                continue
            if read is read_later.in_cell:
                source = world.cells[id(of)].base
                if source is not None and not source.op == "const":
                    world.guard(source, "ID_MATCH", of)
            later.add(read, of, name)
            self.value(read(of, name), None)

    def item(self, world: World, h: Shadow, how: str, k: Any, result: Any, later: read_later.ReadLater) -> None:
        """Something that was asked of a container."""
        of, is_dict = h.orig, issubclass(type(h.orig), dict)
        if how in (shadows.ITEM, shadows.INDEX, shadows.PRESENT, shadows.ABSENT) and type(k) not in CONSTANT_TYPES:
            raise self.refused(f"an item of {h.source.name} by its key")
        if is_dict and how in (shadows.ITEM, shadows.PRESENT, shadows.ABSENT):
            names: Any = [k]
        elif is_dict and how == shadows.LACKS:
            names = list(k)
        elif how == shadows.INDEX:
            names = [k]
        else:
            names = list(dict.keys(of)) if is_dict and how == shadows.ALL else range(shadows.size(of)) if how == shadows.ALL else []
            later.add(read_later.keys_of if is_dict else read_later.how_many, of, None)
            if how == shadows.ALL and not is_dict and not issubclass(type(of), list):
                raise self.refused(f"all of {h.source.name}")
        if h.owner is None:
            world.guard(h.source, "ID_MATCH", of)
        else:
            world.pin(h.owner)
        for name in names:
            if h.located.get(name) is shadows.WRITTEN:
                continue
            if h.owner is not None:
                later.add(read_later.of_object, h.owner, name)
                there = read_later.of_object(h.owner, name)
            else:
                read = read_later.of_dict if is_dict else read_later.of_list
                later.add(read, of, name)
                there = read(of, name)
            self.value(there, h.source.key(name) if is_dict else h.source.index(name % shadows.size(of)))
        if type(result) in NUMBERS:
            vm.scope.specialize(number_of(result), current_site())
        if len(later.places) > read_later.MOST:
            raise self.refused("so much")

    def value(self, v: Any, source: Source | None) -> None:
        """What was there, which has to be the very same thing again: guarded, as far as it is not known by its value."""
        t = type(v)
        if issubclass(t, torch.Tensor):
            raise self.refused("a tensor from outside")
        if source is None or t in CONSTANT_TYPES or t in IMMUTABLE or issubclass(t, SETTLED) or v is read_later.NOTHING:
            return
        if issubclass(t, tuple) and all([type(x) in CONSTANT_TYPES for x in v]):
            return
        vm.world.guard(source, "ID_MATCH", v)


def fixed(found: tuple) -> bool:
    """Whether what was read is a library's, or a function, class or module of the program's, which are hardly ever others."""
    read, of, name = found
    return not ours(*found) or read is read_later.of_function or issubclass(type(read(of, name)), SETTLED)


def ours(read: Any, of: Any, name: Any) -> bool:
    """Whether something is no library's, and was not made in the capture."""
    world = vm.world
    if id(of) in world.own_functions or id(of) in world.fresh_globals:
        return False
    if read is read_later.of_dict:
        return not of_theirs(of.get("__name__"))
    if read is read_later.of_class or read is read_later.of_function:
        return not of_theirs(of.__module__) and not (type(name) is str and name.startswith("__") and read is read_later.of_class)
    return True
