"""Views of keys, values and items that somebody else has made and keeps (`self.names = d.keys()`): of the dict behind, which is located."""

from __future__ import annotations

import collections
from typing import Any

from pliant.guards.views import behind_view
from pliant.interpret import shadows
from pliant.interpret.types.row import row

METHODS = {type(getattr(t(), name)()): name for t in (dict, collections.OrderedDict) for name in ("keys", "values", "items")}


def locate(world: Any, v: Any, source: Any) -> Any:
    before = world.views.get(id(v))
    if before is not None:
        if before[1] is not source:
            world.guard(source, "ALIAS", before[1])
        return before[0]
    world.guard(source, "TYPE_MATCH", type(v))
    behind = behind_view(v)
    if type(behind) not in (dict, collections.OrderedDict) or shadows.keyed_by_objects(behind):
        return world.adopt(v, source)
    d = world.locate(behind, source.apply("behind_view"))
    name, h = METHODS[type(v)], world.by_copy.get(id(d))
    if h is None:
        return world.adopt(v, source)
    if name == "keys":
        shadows.length(world, h)
    else:
        shadows.read_all(world, d)
    r = getattr(d, name)()
    world.views[id(v)] = (r, source, v)
    return world.stands_for(r, v, source)


row(name="view of a dict", located=tuple(METHODS), locate=locate)
