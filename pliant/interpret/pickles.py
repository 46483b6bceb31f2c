"""`pickle.dumps` of plain values, which libraries use as keys of their caches: its answer is known while capturing.

The text of a pickle says not only what the values are but which of them are one object. That is the same in each call only where no two
of them could be one: two equal texts, or lists, are refused. So is what pickles by code of its own, and numbers that only guards know.
"""

from __future__ import annotations

import pickle
from typing import Any

from pliant.graph.symnode import SYMS
from pliant.interpret import shadows
from pliant.interpret.calls import LOOKASIDES
from pliant.interpret.state import Break, vm

ONCE = {str, bytes, tuple, list, dict}
"""Types of which a pickle remembers the objects that it has seen."""
NUMBERS = {int, float, bool, type(None)}


def plain(v: Any, seen: list[Any]) -> bool:
    """Whether a value pickles by what it is alone. `seen`: the values of types that are remembered."""
    t = type(v)
    if t in NUMBERS:
        return True
    if t not in ONCE or id(v) in vm.world.dict_owners or any([type(x) is t and (x is v or x == v) for x in seen]):
        return False
    if t is str or t is bytes:
        seen.append(v)
        return True
    if not all([plain(x, seen) for x in ([*v.keys(), *v.values()] if t is dict else v)]):
        return False
    seen.append(v)
    return True


def dumps(args: tuple, kw: dict) -> bytes:
    protocol = kw.get("protocol", args[1] if len(args) > 1 else None)
    if not 1 <= len(args) <= 2 or kw.keys() - {"protocol"} or type(protocol) not in (int, type(None)) or type(args[0]) in SYMS:
        raise Break("PL0022", "pickle.dumps with a buffer or of a number that may change", clean=True)
    shadows.read_deep(vm.world, args[0])
    if not plain(args[0], []):
        raise Break("PL0022", "pickle.dumps of other things than plain values that are there once", clean=True)
    return pickle.dumps(args[0], protocol)


LOOKASIDES[pickle.dumps] = dumps
