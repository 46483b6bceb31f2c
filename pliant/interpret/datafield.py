"""`x.data`: the memory of `x` without its history, and with a version counter of its own.

In the graph it is `detach`, which shares the counter. That shows only when somebody writes: a write inside the capture through it (or
through a view of it) starts the capture again, now with a graph break at each reading of `.data`; and what leaves the capture is
read off the real tensor.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.schema import op_info
from pliant.interpret.state import Break, Restart, vm

RESTART = -1  # the serial of no frame: break at every `.data`


def read(t: Any) -> Any:
    """`t.data` of a traced tensor."""
    if vm.break_at_data:
        raise Break("PL0012", "a write through .data")
    d = t.data
    vm.world.data_of[id(d)] = (d, t)
    vm.world.data_views[id(d)] = d
    return d


def follow(ops: list) -> None:
    """Operations that were just recorded: views of a `.data` are ones too; a write to one is not for the graph."""
    views = vm.world.data_views
    for op in ops:
        info = op_info(op.target)
        named = {**dict(zip(info.names, op.args, strict=False)), **op.kwargs}
        for name in info.writes:
            value = named.get(name)
            if any(id(v) in views for v in (value if isinstance(value, list | tuple) else (value,))):
                raise Restart(RESTART, 0, "PL0012", "a write through .data")
        base = next((v for v in named.values() if id(v) in views), None)
        if base is not None:
            views.update((id(o), o) for o in op.outs if getattr(o, "storage_id", None) == base.storage_id)
