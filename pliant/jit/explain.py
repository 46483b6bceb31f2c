"""`pliant.explain(fn, *args)`: compile and call once, and say what happened."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pliant import events
from pliant.jit.compile import compile


@dataclass(slots=True)
class Explanation:
    """What one call of a freshly compiled function came to. Printing it gives a readable page."""

    name: str
    graphs: list[str] = field(default_factory=list)
    breaks: list[str] = field(default_factory=list)
    guards: list[str] = field(default_factory=list)
    recompiles: list[str] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    value: Any = None
    error: BaseException | None = None

    def __str__(self) -> str:
        title = f"{self.name}: {len(self.graphs)} graphs, {len(self.breaks)} graph breaks, {len(self.guards)} guards"
        parts = [title]
        for what, items in (
            ("graph break", self.breaks), ("recompile", self.recompiles), ("in eager PyTorch", self.fallbacks), ("graph", self.graphs),
            ("guard", self.guards),
        ):  # fmt: skip
            parts += [f"{what}: {item}" if "\n" not in item else f"{what}:\n{item}" for item in items]
        if self.error is not None:
            parts.append(f"raised {type(self.error).__name__}: {self.error}")
        return "\n".join(parts)


def explain(fn: Callable, *args: Any, **kwargs: Any) -> Explanation:
    """Compile `fn` with an empty memory, call it, and report its graphs, graph breaks (each with its line) and guards."""
    found = Explanation(getattr(fn, "__qualname__", type(fn).__qualname__))

    def note(event: events.Event) -> None:
        f = event.fields
        if event.kind == "graph":
            found.graphs.append(str(f["graph"]))
        elif event.kind == "guards":
            found.guards += [f"{g.source}: {g.kind}" if hasattr(g, "source") else str(g.expr) for g in f["guards"]]
        elif event.kind == "graph_break":
            found.breaks.append(f"{f['code']} at {f['site']}: {f['reason']}")
        elif event.kind == "recompile":
            found.recompiles += f["reasons"]
        elif event.kind == "fallback":
            found.fallbacks.append(f"{f['name']}: {f['error']}")

    cancel = events.subscribe(note)
    try:
        found.value = compile(fn, options={"explain": id(found)})(*args, **kwargs)
    except Exception as e:
        found.error = e
    finally:
        cancel()
    return found
