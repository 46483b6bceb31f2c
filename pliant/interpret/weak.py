"""Weak references: what one refers to is known as long as the program certainly holds it.

One that the program makes, without a callback, is made of what stands for its object, and made again of the object where it leaves
the graph.
"""

from __future__ import annotations

import weakref
from typing import Any

from pliant.graph.traced import TracedTensor
from pliant.guards.source import Source
from pliant.interpret.capture import UNSET
from pliant.interpret.effects import unwritten_so_far
from pliant.interpret.immutable import HEAPTYPE
from pliant.interpret.state import Break, vm


def dereference(ref: weakref.ReferenceType) -> Any:
    """What a weak reference of the outside refers to: the same object, where something that is not about to go holds it.

    That is so of what the program still refers to, and of everything that lived when the program began, as long as it has written nothing.
    What had ended by then stays so.
    """
    world = vm.world
    o = ref()
    if id(ref) not in world.outside:
        if o is not None and not in_a_frame(o):
            if type(o) is TracedTensor and o.requires_grad:  # nodes of the region would hold it, which eager's do not
                raise vm.left_to_python("a weak reference to a tensor with gradients that the program has let go of")
            raise Break("PL0007", "what a weak reference gives is decided by the garbage collector", clean=True)
        return o
    known = world.tensors.get(id(o))
    h = world.shadows.get(id(o))
    source = known.source if known is not None else h.source if h is not None else world.sources.get(id(o))
    seen = known if known is not None else h.copy if h is not None else o
    referent, lives = world.sources[id(ref)].apply("referent"), not world.resumed and unwritten_so_far(world)
    if o is None or source is None and lives:
        return world.locate(o, referent)
    if source is None or not lives and not held(o, seen, source):
        raise Break("PL0007", "what a weak reference gives is decided by the garbage collector", clean=True)
    world.guard(referent, "ALIAS", source)
    return seen


def make(args: tuple, kw: dict) -> Any:
    """`weakref.ref(o)`."""
    if kw or len(args) == 2 and args[1] is not None or not args or type(args[0]) is not TracedTensor and not of_the_program(args[0]):
        raise Break("PL0007", "a weak reference with a callback, or to what is not the program's own", clean=True)
    return weakref.ref(args[0])


def of_the_program(o: Any) -> bool:
    """Whether `o` is a plain object of a class that is written in Python, which weak references may refer to."""
    t = type(o)
    if vm.type_of(o) is not t:  # it stands for something else
        return False
    weak = t.__weakrefoffset__ != 0  # since 3.12 it may be below 0
    return type(t) is type and weak and all([c is object or c.__flags__ & HEAPTYPE for c in t.__mro__])


def in_a_frame(o: Any) -> bool:
    """Whether a variable or the stack of a frame of the program holds `o`."""
    f = vm.frame
    while f is not None:
        if any([v is o for v in (*f.stack, *f.fast)]):
            return True
        f = f.parent
    return False


def held(o: Any, seen: Any, source: Source) -> bool:
    """Whether something that is not about to go refers to `o`, for which `seen` stands: a frame of the program, its caller, the world.

    The state behind a graph break does not count: of what is in it, a variable that was deleted since is gone.
    """
    f, world = vm.frame, vm.world
    while f is not None:
        if any([v is seen or getattr(v, "value", UNSET) is o for v in (*f.stack, *f.fast) if v is not None]):
            return True
        f = f.parent
    if source.op == "local":
        return source.arg[1] != "state"
    if source.op in ("const", "func", "global"):
        return source.op != "global" or (id(vm.top_globals), source.arg) not in world.global_writes
    if source.op == "contents":  # of a cell, which the closure of a running function holds
        return source.root.arg != (0, "state") and not any([world.cells[i] is source for i in world.cell_writes])
    if source.op not in ("key", "index"):
        return False
    for h in world.shadows.values():
        if h.source is source.base:
            if not refers(h, source.arg, seen):
                return False
            owner = h.owner if h.owner is not None else h.orig
            return held(owner, owner if h.owner is not None else h.copy, world.sources[id(owner)])
    return False


def refers(h: Any, at: Any, seen: Any) -> bool:
    """Whether the program, which may have changed it, still finds `seen` at this key or index of a container."""
    try:
        return h.copy[at] is seen
    except (KeyError, IndexError):
        return False
