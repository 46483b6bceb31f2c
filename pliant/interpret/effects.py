"""At the end of a capture: the difference between shadows and originals, as an ordered list of effects."""

from __future__ import annotations

import _warnings
import collections
from operator import is_, is_not
from typing import Any

from pliant.graph.originals import ORIGINAL, give_memory, make_leaf, needed, torch
from pliant.graph.seeding import put_back
from pliant.graph.traced import TracedTensor
from pliant.guards.views import walked
from pliant.interpret import frozen_leaves, set_order, shadows, tracebacks
from pliant.interpret.capture import UNSET, Effect
from pliant.interpret.late_text import TextNeeded
from pliant.interpret.shadows import WRITTEN, Shadow, stored, stored_items, unchanged
from pliant.interpret.world import World
from pliant.native import unwritten


def effects_of(world: World) -> list[Effect]:
    """Everything that the program wrote to the outside, to be replayed after the graph."""
    written: list[Shadow] = []
    out = written_so_far(world, written)
    keep_apart(world, written)
    keep_changed_apart(world)
    return out


def written_so_far(world: World, written: list[Shadow]) -> list[Effect]:
    """The same, of a capture that goes on; the containers among that are added to `written`."""
    out: list[Effect] = []
    for h in list(world.shadows.values()):
        n = len(out)
        DIFFERENCES[shadows.base_of(h.copy)](world, h, out)
        if len(out) > n or any([v is WRITTEN for v in h.located.values()]):  # or written and put back
            written.append(h)
            if h.late:
                raise TextNeeded
    for (_, name), (g, _name, v) in world.global_writes.items():
        out.append(Effect("global_del", g, (name,)) if v is UNSET else Effect("global_set", g, (name, v)))
    for key, cell in world.cell_writes.items():
        v = world.cell_values[key][1]
        out.append(Effect("cell_del", cell, ()) if v is UNSET else Effect("cell_set", cell, (v,)))
    for (_, name), (obj, v) in world.tensor_writes.items():
        out.append(Effect("delattr", obj, (name,)) if v is UNSET else Effect("setattr", obj, (name, v)))
    for var, now, first in world.context_values.values():
        if now is not first and now is not UNSET:
            out.append(Effect("call", var.set, ((now,), {})))
    for counter, _, times in world.counters.values():
        out += [Effect("call", next, ((counter,), {}))] * times
    out += [Effect("call", _warnings._filters_mutated, ((), {}))] * world.filters_mutated  # type: ignore[attr-defined]
    out += assignments(world)
    out += [Effect("call", make_leaf, ((t,), {})) for t in world.made_leaves.values()]
    out += frozen_leaves.effects(world)
    out += [Effect("call", needed, ((h,), {})) for h in world.hooks_to_set if not h.removed]
    out += [Effect("call", put_back, ((g, g.state), {})) for g in drawn_from(world)]
    out += tracebacks.effects()
    for fn, args, kwargs in world.calls:
        out.append(Effect("call", fn, (args, kwargs)))
    return out


def assignments(world: World) -> list[Effect]:
    """`p.data = u` of tensors from outside (`given_memory.py`)."""
    found = []
    for t, given, before in world.given.values():
        with torch._C._DisableTorchDispatch():
            written = ORIGINAL._version.__get__(t) - before
        found.append(Effect("call", give_memory, ((t, given, written), {})))
    return found


def drawn_from(world: World) -> list[Any]:
    """The generators from outside that are in another state now. Each has to be another object than the others that were met."""
    met = list(world.generators.values())
    drawn = [g for g in met if g.drawn]
    for g in drawn:
        others = tuple([o.source for o in met if o is not g])
        if others:
            world.guard(g.source, "NOT_ALIAS", others, others)
    return drawn


def unwritten_so_far(world: World) -> bool:
    """Whether the program has written nothing to the outside yet."""
    if world.global_writes or world.cell_writes or world.tensor_writes or world.calls or world.given:
        return False
    return not any([v is WRITTEN for h in world.shadows.values() for v in h.located.values()]) and not effects_of(world)


def keep_apart(world: World, written: list[Shadow]) -> None:
    """A container that was written must not be another one that was read: the program would have seen the write."""
    if not written:
        return
    groups: dict[tuple, list[Shadow]] = {}
    for h in world.shadows.values():
        groups.setdefault((type(h.orig), type(h.owner)), []).append(h)
    for h in written:
        mine = h.owner if h.owner is not None else h.orig
        src = world.sources[id(mine)]
        others = []
        for o in groups[(type(h.orig), type(h.owner))]:
            if o is not h:  # whatever was read of it: that it lacks an item, too
                others.append((o.orig, world.sources[id(o.owner if o.owner is not None else o.orig)]))
        others += [
            (o, above.source.key(k)) for (_, k), (o, above) in world.glimpsed.items() if type(o) is type(h.orig) and o is not h.orig
        ]
        for sources in of_different(others):
            world.guard(src, "NOT_ALIAS", sources, sources)


def of_different(met: list[tuple[Any, Any]]) -> list[tuple]:
    """The sources in groups, none of which has two for one object: a guard says that no two of its sources give the same."""
    groups: list[dict[int, Any]] = []
    for o, source in {(id(o), source): (o, source) for o, source in met}.values():
        group = next((g for g in groups if id(o) not in g), None)
        if group is None:
            groups.append(group := {})
        group[id(o)] = source
    return [tuple(g.values()) for g in groups]


def keep_changed_apart(world: World) -> None:
    """A tensor, an instance with slots or a counter that was changed without a shadow must not be another one that was met."""
    changed = [o for o, _ in world.tensor_writes.values()] + [o for o, *_ in world.counters.values()]
    changed += [*world.made_leaves.values(), *[t for t, _ in world.frozen_leaves.values()], *[h.t for h in world.hooks_to_set]]
    changed += [t for t, *_ in world.given.values()]
    for o in {id(o): o for o in changed}.values():
        if issubclass(type(o), type):  # classes are known by identity
            continue
        if type(o) is TracedTensor:
            source = o.source
            met = [t.source for t in world.tensors.values() if type(t) is TracedTensor and t.pytype is o.pytype and t is not o]
        else:
            source = world.source_of(o)
            met = [world.sources[i] for i, v in world.outside.items() if type(v) is type(o) and v is not o]
        if source is not None and met:
            world.guard(source, "NOT_ALIAS", tuple(met), tuple(met))


def untouched(h: Shadow, o: dict, c: dict) -> bool:
    """Whether `unchanged` holds for every item, which is so for nearly all dicts."""
    if type(o) is dict and type(c) is dict:
        return unwritten(o, c, h.located, WRITTEN)
    if len(o) != len(c) or not all(map(is_, o, c)):
        return False  # other keys, or another order
    n = sum(map(is_not, o.values(), c.values()))
    for k, put in h.located.items():  # where nothing was put, no key is asked for its hash
        if put is WRITTEN or k not in o or c[k] is not put:
            return False
        n -= put is not o[k]
    return not n


def dict_difference(world: World, h: Shadow, out: list[Effect]) -> None:
    o, c = stored(h.orig), stored(h.copy)
    if untouched(h, o, c):
        extra_attributes(world, h, out)
        return
    removed = [k for k in o if k not in c]
    changed = [k for k in c if k not in o or not unchanged(h, k, c[k], o[k])]
    if len(changed) > 1 and h.owner is not None and all([h.located.get(k) is WRITTEN for k in changed]):
        order = {k: i for i, k in enumerate(h.located)}  # of the writes: nobody has guarded which attributes were there before
        changed.sort(key=order.__getitem__)
    expected = [k for k in o if k in c] + [k for k in c if k not in o]
    if list(c) != expected:
        shadows.read_all(world, h.copy)
        out.append(Effect("dict_replace", h.orig, (list(stored(h.copy).items()),)))
    else:
        out.extend(Effect("dict_del", h.orig, (k,)) for k in removed)
        out.extend(Effect("dict_set", h.orig, (k, c[k])) for k in changed)
    extra_attributes(world, h, out)


def extra_attributes(world: World, h: Shadow, out: list[Effect]) -> None:
    """Attributes of a shadowed dict, list or set subclass instance."""
    if h.owner is not None or type(h.copy) in (dict, list):
        return
    mine = getattr(h.copy, "__dict__", None)
    if mine is None:
        return
    theirs = h.orig.__dict__
    for k, v in mine.items():
        if k not in theirs or (v is not theirs[k] and v is not proxy(world, theirs[k])):
            out.append(Effect("setattr", h.orig, (k, v)))
    out.extend(Effect("delattr", h.orig, (k,)) for k in theirs if k not in mine)


def proxy(world: World, v: Any) -> Any:
    t = world.tensors.get(id(v))
    if t is not None:
        return t
    h = world.shadows.get(id(v))
    return h.copy if h is not None else v


def sequence_difference(world: World, h: Shadow, out: list[Effect]) -> None:
    o, c = stored_items(h.orig), stored_items(h.copy)
    n = len(o)
    kind = "list" if isinstance(h.orig, list) else "deque"
    same = [i < len(c) and unchanged(h, i, c[i], v) for i, v in enumerate(o)]
    if all(same) and len(c) == n:
        pass
    elif all(same) and kind == "list":
        out.append(Effect("list_extend", h.orig, (list(c[n:]),)))
    elif len(c) == n and (kind == "list" or all([same[i] or h.located.get(i) is WRITTEN for i in range(n)])):
        out.extend(Effect("dict_set", h.orig, (i, c[i])) for i in range(n) if not same[i])
    else:
        shadows.read_all(world, h.copy)
        out.append(Effect("deque_replace", h.orig, (list(h.copy),)) if kind == "deque" else spliced(h))
    extra_attributes(world, h, out)


def spliced(h: Shadow) -> Effect:
    """What became of a list whose items have moved: those before and behind the change stay the objects that they are."""
    before = [h.located.get(i, v) for i, v in enumerate(list.__iter__(h.orig))]
    now = list(list.__iter__(h.copy))
    n, m = len(before), len(now)
    start = end = 0
    while start < min(n, m) and now[start] is before[start]:
        start += 1
    while end < min(n, m) - start and now[m - 1 - end] is before[n - 1 - end]:
        end += 1
    return Effect("list_splice", h.orig, (start, n - end, now[start : m - end]))


def set_difference(world: World, h: Shadow, out: list[Effect]) -> None:
    if set_order.differ(h.copy, h.orig):
        table = set_order.table_of(h.copy)
        if table is not None:  # which is what comes of that of the original
            world.guard(h.source.apply("walked"), "EQ_MATCH", walked(h.orig))
        out.append(Effect("set_replace", h.orig, (set_order.members(h.copy), table)))
    extra_attributes(world, h, out)


DIFFERENCES = {dict: dict_difference, list: sequence_difference, collections.deque: sequence_difference, set: set_difference}
