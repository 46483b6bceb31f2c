"""Numbers: Python's own, guarded by value or lifted to symbols, and the symbolic ones that stand for them."""

from __future__ import annotations

import itertools
from typing import Any

from pliant import native
from pliant.graph.known_numbers import COUNTED
from pliant.graph.originals import ORIGINAL, in_memory, math, torch
from pliant.graph.schema import written
from pliant.graph.symnode import concrete, to_sym
from pliant.graph.traced import Reconsider
from pliant.guards import views
from pliant.guards.source import Source, holder
from pliant.interpret import declared
from pliant.interpret.capture import UNSET
from pliant.interpret.late_text import LateText, Piece
from pliant.interpret.state import vm
from pliant.interpret.types.row import read, row
from pliant.interpret.world import World

BYTES = 8  # a count has no more, so a tensor of more elements cannot lie in its memory
COUNTS = "counts"  # refused where they share memory with what is written
SCHEDULED = {"lr": "initial_lr", "momentum": "max_momentum"}
INT_MIN, INT_MAX = -(2**63), 2**63 - 1
SEEN = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}


# -- where they come from ---------------------------------------------------------------------------------------------
def integer(world: World, v: int, source: Source, lo: int | None = None, hi: int | None = None, changes: bool = False) -> Any:
    """Arguments are symbolic at once (but 0 and 1), and so are lists that a data object holds; what else hangs on objects becomes so
    after its first change, or is known to change. `lo` and `hi`: what the source itself makes sure of."""
    if not INT_MIN <= v <= INT_MAX:
        return world.constant(v, source)
    h = world.history
    mark = declared.number_mark(world.declared, source) if world.declared else None
    if mark is not None:
        return declared_integer(world, v, source, mark)
    if world.dynamic is False or vm.rehearsing and (source, "int") not in world.reads:
        return world.constant(v, source)
    changed = h is not None and (h.is_dynamic(source) or (h.kin and kin_changed(world, source, h.kin)))
    if not changed:
        special = v in declared.SPECIALIZED_INTS and not world.in_loop and source.op != "index"
        at_once = source.root.op == "local" and (not through_attribute(source) or (source.op == "index" and in_data(world, source)))
        if special or (world.dynamic is not True and not at_once and not changes):
            return world.constant(v, source)
    seen = world.reads.get((source, "int"), UNSET)
    if seen is not UNSET:
        return seen
    name = world.new_symbol(source)
    world.guard(source, "INT")
    r = world.reads[(source, "int")] = to_sym(world.scope, world.scope.backed(name, hint=v, lo=lo, hi=hi, source=source))
    return r


def kin_changed(world: World, source: Source, kin: set[Source]) -> bool:
    """Whether another int of the same list, or of the same argument that is no module, was seen to change: this one will."""
    if source.op == "index" and source.base in kin:
        return True
    return holder(source) in kin and in_data(world, source)


def in_data(world: World, source: Source) -> bool:
    """Whether the path to a value begins at an argument that is an object, no module, and enters none."""
    first = holder(source)
    if first is None:
        return False
    is_module = world.module_holders.get(first)
    if is_module is None:
        found = [i for i, s in world.sources.items() if s is first]
        objects = [world.outside[i] for i in found if i in world.outside]  # a tensor is none
        is_module = world.module_holders[first] = not found or bool(objects) and issubclass(type(objects[0]), torch.nn.Module)
    return not is_module and not goes_through_modules(source)


def through_attribute(source: Source) -> bool:
    """Whether the path to this value goes through an object's attribute (then an int is taken to be configuration)."""
    s: Source | None = source
    while s is not None:
        if s.op in ("dict", "attr", "cell", "contents"):
            return True
        s = s.base
    return False


def goes_through_modules(source: Source) -> bool:
    """Whether the path to this value enters a submodule."""
    s: Source | None = source
    while s is not None:
        if s.op == "key" and s.arg == "_modules":
            return True
        s = s.base
    return False


def declared_integer(world: World, v: int, source: Source, mark: Any) -> Any:
    """An int of which `compile` was told: as `integer`, but 0 and 1 are numbers like others."""
    seen = world.reads.get((source, "int"), UNSET)
    if seen is UNSET:
        seen = declared.symbol(world, mark, v, source)
        world.guard(source, "INT") if isinstance(seen, torch.SymInt) else world.constant(v, source)
        world.reads[(source, "int")] = seen
    return seen


def floating(world: World, v: float, source: Source, changes: bool = False) -> Any:
    """A constant until it changes (or is known to), or until something is there that changes it; then symbolic, if it is ordinary."""
    h = world.history
    if h is None or world.dynamic is False or v != v or v in (float("inf"), float("-inf")):
        return world.constant(v, source)
    if vm.rehearsing and (source, "float") not in world.reads:
        return world.constant(v, source)
    if not changes and not h.is_dynamic(source) and not scheduled(world, source):
        return world.constant(v, source)
    seen = world.reads.get((source, "float"), UNSET)
    if seen is not UNSET:
        return seen
    name = world.new_symbol(source, "f")
    world.guard(source, "FLOAT")
    r = world.reads[(source, "float")] = to_sym(world.scope, world.scope.backed(name, hint=v, kind=float, source=source))
    return r



def entry_number(world: World, t: Any) -> Any:
    """The count that a tensor on the CPU keeps for an object (the step of an optimizer, the batches that a mean has seen): a symbol that
    the guards read, so that what the program decides by it is a guard. None for other tensors."""
    source, v = t.source, world.real.get(id(t))
    if v is None or source is None or id(t) in world.given:
        return None
    if ORIGINAL.dim(v) or v.dtype not in COUNTED or v.device.type != "cpu" or v.requires_grad:
        return None
    view = source.apply("count_held")
    h = world.history
    kept = source.op in ("key", "item", "index", "attr") and through_attribute(source) and h is not None and not h.is_static(source)
    if not kept or view in world.opaque or COUNTS in vm.refused or world.dynamic is False or type(v) is not torch.Tensor:
        return None
    try:
        with world.trace.paused():
            n = views.count_held(v)
    except (ValueError, RuntimeError):
        return None
    known = world.reads.get((view, "count"))
    if known is None:
        world.unusual()
        kind = type(n)
        world.guard(view, "FLOAT" if kind is float else "INT")
        name = world.new_symbol(view, "f" if kind is float else "s")
        world.counts.append(t)
        known = world.reads[view, "count"] = world.scope.backed(name, hint=n, kind=kind, source=view)
    return known


def keep_counts_apart(world: World) -> None:
    """Guard that nothing which the program writes lies over a count that the guards read. Raises Reconsider if something does."""
    if not world.counts:
        return
    trace, real = world.trace, world.real
    memory = {t.storage_id for op in trace.ops for t in written(op)}
    near = [t for t in trace.inputs if t.storage_id in memory and not (all(map(fixed, t.sizes)) and math.prod(t.sizes) > BYTES)]
    near = [t for t in near if id(t) not in real or in_memory(real[id(t)])]
    found = list({id(t): t for t in (*world.counts, *near)}.values())
    if any([id(t) not in real for t in found]) or any(
        [native.share_memory(real[id(a)], real[id(b)]) for a, b in itertools.combinations(found, 2)]
    ):
        raise Reconsider("item", "a count shares memory with what is written", COUNTS)
    if len(found) > 1:
        flags = (False,) * (len(found) * (len(found) - 1) // 2)
        world.guard(found[0].source, "STORAGE_OVERLAP", (tuple([t.source for t in found]), flags))


def fixed(size: Any) -> bool:
    return type(size) is int


def scheduled(world: World, source: Source) -> bool:
    """Whether a scheduler of learning rates sets this number of an optimizer's group: it notes there where it began."""
    if source.op == "index" and source.arg == 0 and source.base is not None and source.base.arg == "betas":
        name, source = "max_momentum", source.base
    else:
        name = SCHEDULED.get(source.arg, "") if source.op == "key" and type(source.arg) is str else ""
    return bool(name) and any([h.source is source.base and type(h.orig) is dict and name in h.orig for h in reversed(world.made)])


# -- symbolic numbers ---------------------------------------------------------------------------------------------------
def symbolic_getattr(o: Any, name: str) -> Any:
    seen = SEEN[type(o)]
    if name == "__class__":
        return seen
    if hasattr(seen, name):
        return getattr(concrete(o), name)  # PyTorch's symbolic numbers lack them, or answer otherwise than Python's
    if name == "node":  # methods of PyTorch's symbolic numbers, which C code calls, are interpreted
        return getattr(o, name)
    return getattr(seen(), name)  # which has none: what PyTorch's have beside (`_sympy_`) is no part of the program's number


def seen_type(o: Any) -> type:
    return SEEN[type(o)]


def index(o: Any) -> Any:
    if type(o) is torch.SymFloat:
        raise TypeError("'float' object cannot be interpreted as an integer")
    return o if type(o) is torch.SymInt else torch.sym_int(o)


def number(o: Any, kind: type) -> Any:
    """`int(o)`, `float(o)` of a symbolic number stay symbolic."""
    t = type(o)
    if kind is int:
        return o if t is torch.SymInt else torch.sym_int(o)
    if kind is float:
        return o if t is torch.SymFloat else torch.sym_float(o) if t is torch.SymInt else float(concrete(o))
    return kind(concrete(o))


def pinned(o: Any) -> Any:
    """Its hash is its value."""
    return concrete(o)


def text(o: Any, fn: Any) -> Any:
    if vm.exploring and fn is str and type(o) is torch.SymInt and o.node.expr.hint is None:  # the name of a module in a list, perhaps
        return LateText((Piece(o, 0, ""),), True)
    return fn(concrete(o))


def formatted(o: Any, spec: str) -> Any:
    return format(concrete(o), spec)


def refuse_set(o: Any, name: str, value: Any) -> None:
    setattr(concrete(o), name, value)  # raises, in CPython's words


def refuse_delete(o: Any, name: str) -> None:
    delattr(concrete(o), name)


def as_it_is(fn: Any, o: Any) -> Any:
    return o


row(name="int", located=(int,), stands=(int,), plain=True, locate=integer, getattr=read)
row(name="float", located=(float,), stands=(float,), plain=True, locate=floating, getattr=read)
row(name="bool and complex", located=(bool, complex), stands=(bool, complex), plain=True, locate=World.constant, getattr=read)
row(
    name="symbolic number", stands=tuple(SEEN), type=seen_type, getattr=symbolic_getattr, truth=bool, index=index,
    number=number, hashed=pinned, text=text, format=formatted, to_graph=as_it_is,
    setattr=refuse_set, delattr=refuse_delete,
)  # fmt: skip
