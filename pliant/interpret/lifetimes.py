"""Values at whose end code of the program runs: generators half way through, objects with a `__del__`, objects that are watched by a weak
reference with a callback.

A frame that goes on behind a graph break is handed its values in a list. While it is interpreted, they are real objects that others
hold, so their end cannot be seen: what is watched is whether the frame still has them, and where it has not, the graph ends. Emitted code
has emptied the list by then, and drops its own variables before it goes on. Generators that the capture itself has made are proxies,
which end as the real ones do (`generators.py`).
"""

from __future__ import annotations

import itertools
import types
import weakref
from typing import Any

from pliant import native

CODE = "PL0042"
STAND = ("stand",)
ITERATORS = (
    enumerate, zip, map, filter, itertools.accumulate, itertools.chain, itertools.compress, itertools.dropwhile, itertools.filterfalse,
    itertools.islice, itertools.starmap, itertools.takewhile, itertools.zip_longest,
)  # fmt: skip
"""Types that may hold a generator, and nobody else does."""


LASTING = (type, types.FunctionType, types.ModuleType)
"""What is watched by libraries and does not end with a frame."""


CONTAINERS = (list, tuple, dict)
MOST, DEEPEST = 64, 3  # items of a container to look at; containers in containers


def held_by(v: Any) -> Any:
    """What a list, tuple or dict holds, as far as anybody looks."""
    items = itertools.chain(v, v.values()) if type(v) is dict else v
    return itertools.islice(items, MOST)


def may_end(v: Any, depth: int = DEEPEST) -> bool:
    """Whether code of the program may run when the last reference to `v`, a real object, goes."""
    if any([type(v) is kind for kind in CONTAINERS]):  # `in` would ask a metaclass
        return depth > 0 and any([may_end(x, depth - 1) for x in held_by(v)])
    return native.has_end(v) or any([type(v) is t for t in ITERATORS]) or (weakref.getweakrefcount(v) > 0 and watched(v))


def watched(v: Any) -> bool:
    """Whether a weak reference calls something when `v` ends."""
    if isinstance(v, LASTING):
        return False
    return any([type(r) is not weakref.ref or r.__callback__ is not None for r in weakref.getweakrefs(v)])  # a proxy hides it


def let_go(f: Any) -> bool:
    """Whether frame `f` has let go of something that it held; of that no more is heard."""
    still = [v for v in f.held if any([v is o for o in f.stack]) or any([v is o for o in f.fast])]
    gone = len(still) < len(f.held)
    f.held = still
    return gone
