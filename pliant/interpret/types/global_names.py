"""`globals()`: the names of a module as a dict. They are read and written one by one, as functions read and write them.

Whatever works on all of them breaks the graph. Behind a break there is the dict itself.
"""

from __future__ import annotations

from typing import Any

from pliant.interpret.capture import UNSET
from pliant.interpret.lookasides import lookaside
from pliant.interpret.opcodes import found_global, set_global
from pliant.interpret.shadows import hashed_by
from pliant.interpret.state import Break, changed, vm
from pliant.interpret.types.row import row


class Names:
    """What stands for the dict `space`."""

    __slots__ = ("space",)

    def __init__(self, space: dict) -> None:
        self.space = space

    keys = None  # it is a mapping, which is asked for its keys

    def get(self: Any, *args: Any) -> Any:
        """What the program is given as `globals().get`; behind a break, `self` is the dict."""
        return dict.get(self, *args)


def names_of(space: dict) -> Any:
    """The one that stands for this dict."""
    world = vm.world
    if id(space) in world.shadows or id(space) in world.fresh_globals:
        raise Break("PL0014", "globals()", clean=True)
    world.unusual()
    world.namespaces.add(id(space))
    return world.names_of.setdefault(id(space), Names(space))


@lookaside(globals)
def l_globals(args: tuple, kw: dict) -> Any:
    if args or kw:
        raise Break("PL0014", "globals()", clean=True)
    return names_of(vm.frame.globals)


def whole(*_: Any) -> Any:
    raise Break("PL0014", "all names of globals()", clean=True)


def held(o: Names, name: Any) -> Any:
    """What the dict has under `name`, guarded. UNSET: nothing, which is guarded, too."""
    if type(name) is not str:
        whole()
    world, g = vm.world, o.space
    written = world.global_writes.get((id(g), name))
    if written is not None:
        if vm.asking:
            changed()
        found = written[2]
    elif name in g:
        found = found_global(g, name)
    else:
        world.guard(vm.globals_source(g), "DICT_CONTAINS", (name, False), name)
        found = UNSET
    if vm.hashing:
        hashed_by(found, g, name)
    return found


def getitem(o: Names, name: Any) -> Any:
    found = held(o, name)
    if found is UNSET:
        raise KeyError(name)
    return found


@lookaside(Names.get)
def l_get(args: tuple, kw: dict) -> Any:
    if type(args[0]) is not Names or kw or not 2 <= len(args) <= 3:
        whole()
    found = held(*args[:2])
    return found if found is not UNSET else args[2] if len(args) > 2 else None


def setitem(o: Names, name: Any, value: Any) -> None:
    if type(name) is not str:
        whole()
    set_global(o.space, name, value)


def getattr_(o: Names, name: str) -> Any:
    return o.get if name == "get" else dict if name == "__class__" else whole()


row(
    name="globals()", stands=(Names,), type=lambda o: dict, getattr=getattr_, setattr=whole, delattr=whole, getitem=getitem,
    setitem=setitem, delitem=whole, contains=lambda o, name: held(o, name) is not UNSET, iter=whole, next=whole, length=whole,
    truth=whole, index=whole, number=whole, slot=whole, outside_key=whole, hashed=whole, text=whole, format=whole, unary=whole,
    binary=whole, compare=whole, rank=9, method=whole, call=whole, to_c=whole, to_graph=whole,
)  # fmt: skip

vm.names_of = names_of
