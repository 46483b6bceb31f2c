"""`hash()`: of what the program has, not of what stands for it in a capture."""

from __future__ import annotations

from types import FunctionType
from typing import Any

from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.symnode import concrete
from pliant.graph.traced import TracedTensor
from pliant.interpret.attributes import lookup
from pliant.interpret.calls import LOOKASIDES, interp, native
from pliant.interpret.lookasides import l_id, lookaside
from pliant.interpret.slots import hashable
from pliant.interpret.state import Break, vm
from pliant.interpret.types import tensors
from pliant.interpret.types.identities import OwnId


@lookaside(hash)
def l_hash(args: tuple, kw: dict) -> int:
    o = hashable(args[0])
    if type(o) not in (int, bool, float):
        vm.world.bound_here = "the hash() of an object"
    if type(o) is TracedTensor:
        return hash_of_tensor(o)
    m = lookup(type(o), "__hash__")
    if type(m) is FunctionType:
        return as_hash(interp(m, (o,), {}))
    if m is object.__hash__ or type(o) in (tuple, frozenset):
        lasts(o)
    return native(hash, (stood_for_as_key(o),), {})


def hash_of_tensor(t: TracedTensor) -> int:
    m = lookup(t.pytype, "__hash__")
    if m is not ORIGINAL.__hash__ and type(m) is FunctionType:
        return as_hash(interp(m, (t,), {}))
    if m is not ORIGINAL.__hash__:
        raise Break("PL0012", "the hash() of a tensor of a class of its own", clean=True)
    return hash_of_identity(t)


def hash_of_identity(t: Any) -> int:
    """What PyTorch's own `Tensor.__hash__` answers."""
    found = l_id((t,), {})
    if type(found) is not int:
        raise Break("PL0012", "the hash() of a tensor that is another one on each call", clean=True)
    return hash(found)


def stood_for_as_key(o: Any, found: bool = False) -> Any:
    """`o`, or what of the outside it stands for if its hash is of its identity; so of what a tuple or frozenset holds. `found`: what that
    takes is guarded by now."""
    if type(o) is TracedTensor:
        real = vm.world.real.get(id(o))
        return o if real is None else real if found else tensors.outside_key(o)
    if issubclass(type(o), (tuple, frozenset)):
        base = tuple if issubclass(type(o), tuple) else frozenset
        held = [*base.__iter__(o)]
        items = [stood_for_as_key(x, found) for x in held]
        if all(map(operator.is_, items, held)):
            return o
        if type(o) is not base:
            raise Break("PL0007", f"a {type(o).__qualname__} of tensors as a key", clean=True)
        return base(items)
    if id(o) in vm.world.standing and lookup(type(o), "__hash__") is object.__hash__:
        _, real, source = vm.world.standing[id(o)]
        if not found:
            vm.world.is_key(real, source, None)
        return real
    if not found and id(o) in vm.world.outside and lookup(type(o), "__hash__") is object.__hash__:
        vm.world.is_key(o, vm.world.sources[id(o)], None)
    return o


vm.stood_for_as_key = stood_for_as_key


def as_hash(r: Any) -> Any:
    """What `hash()` makes of the answer of a `__hash__` of the program's."""
    if type(r) is torch.SymBool:
        r = concrete(r)
    if not isinstance(r, int) and type(r) is not torch.SymInt:
        raise TypeError("__hash__ method should return an integer")
    if not -(1 << 63) <= r < 1 << 63:
        return native(hash, (concrete(r),), {})
    if r == -1:
        return -2
    return int.__add__(r, 0) if isinstance(r, int) else r


def lasts(o: Any) -> None:
    """Raises Break where the hash of `o` is made of the `id()` of an object that is made here."""
    if type(o) is tuple or type(o) is frozenset:
        for x in o:
            lasts(x)
    elif type(o) is TracedTensor:
        hash_of_tensor(o)
    elif lookup(type(o), "__hash__") is object.__hash__ and type(l_id((o,), {})) is OwnId:
        raise Break("PL0035", "the hash() of an object that is made here", clean=True)


@lookaside(torch.SymInt.__hash__)
def l_symbol_hash(args: tuple, kw: dict) -> int:
    """C code puts a symbolic number into a set or makes it a key: its hash is its value."""
    return hash(concrete(args[0]))


LOOKASIDES[torch.Tensor.__hash__] = lambda args, kw: (hash_of_identity if type(args[0]) is TracedTensor else ORIGINAL.__hash__)(args[0])
