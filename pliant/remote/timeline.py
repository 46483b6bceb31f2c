"""One trace of the controller and all workers, as Perfetto and chrome://tracing read it."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

from pliant.remote.mesh import Mesh


@contextlib.contextmanager
def timeline(mesh: Mesh, path: Any) -> Iterator[None]:
    """What happens inside is written to `path`: on the controller sending and waiting, on each worker the commands, and in
    them where it waits for others (`all_reduce`, ..., `receive 2` from worker 2): those who wait least are waited for."""
    told(mesh, True)
    mesh.times, mesh.timed = [], True
    try:
        yield
    finally:
        mesh.synchronize()
        mesh.timed = False
        found = told(mesh, False)
        lines = [("controller", 0, mesh.times), *[(f"worker {r}", r + 1, times) for r, times in enumerate(found)]]
        events: list[dict[str, Any]] = []
        for name, pid, times in lines:
            events.append({"ph": "M", "pid": pid, "tid": 0, "name": "process_name", "args": {"name": name}})
            for what, began, ended in times:
                events.append({"ph": "X", "pid": pid, "tid": 0, "name": what, "ts": began * 1e6, "dur": (ended - began) * 1e6})
        with open(path, "w") as f:
            json.dump({"traceEvents": events, "displayTimeUnit": "ms"}, f)


def told(mesh: Mesh, on: bool) -> list[Any]:
    with mesh.lock:
        mesh.flush()
        mesh.issue(["trace", on])
        return [answers[-1] for answers in mesh.answered(mesh.flush())]
