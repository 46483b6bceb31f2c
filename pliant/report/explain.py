"""`pliant.explain(fn, *args)`: what compiling one call does, as data and as a readable page.

The function is compiled anew, apart from versions that exist already, and called once. Everything comes from the event log.
"""

from __future__ import annotations

import collections
import re
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pliant import events
from pliant.events import Event
from pliant.guards.guard import Site
from pliant.interpret.breaks import BREAKS, format_break
from pliant.jit.compile import compile
from pliant.report.guards import guard_lines, meanings, site_text
from pliant.report.logs import seconds
from pliant.report.tables import graph_table

SHOWN = 20  # guards of a frame on the page; `FrameReport.guards` has them all
SPECIALIZED = re.compile(r"\w+ == -?[\d.]+")


@dataclass(slots=True)
class GraphBreak:
    """One graph break: a row of the registry, what met it and where."""

    code: str
    reason: str
    site: Site | None

    @property
    def title(self) -> str:
        return BREAKS[self.code].title if self.code in BREAKS else self.reason

    @property
    def hints(self) -> tuple[str, ...]:
        return BREAKS[self.code].hints if self.code in BREAKS else ()

    def __str__(self) -> str:
        return format_break(self.code, self.reason, self.site)


@dataclass(slots=True)
class FrameReport:
    """One capture: a function, or the rest of one after a graph break. `seconds`: from its start to its installed entry."""

    frame_id: str
    name: str
    filename: str = ""
    lineno: int = 0
    op_counts: collections.Counter[str] = field(default_factory=collections.Counter)
    table: str = ""
    guards: list[str] = field(default_factory=list)
    specializations: list[str] = field(default_factory=list)
    graph_break: GraphBreak | None = None
    exits: list[str] = field(default_factory=list)  # branches on data behind which the graph goes on
    recompiled_because: list[str] = field(default_factory=list)
    backend_seconds: float = 0.0
    seconds: float = 0.0
    started: float = 0.0

    @property
    def n_ops(self) -> int:
        return sum(self.op_counts.values())


@dataclass(slots=True)
class Explanation:
    """What one call compiled. `str()` of it is a page for people; `result` is what the call returned."""

    frames: list[FrameReport] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    result: Any = None

    @property
    def graphs(self) -> list[FrameReport]:
        """The frames that have something to compute."""
        return [f for f in self.frames if f.n_ops]

    @property
    def breaks(self) -> list[GraphBreak]:
        return [f.graph_break for f in self.frames if f.graph_break is not None]

    @property
    def n_guards(self) -> int:
        return sum(len(f.guards) for f in self.frames)

    @property
    def op_counts(self) -> collections.Counter[str]:
        """ATen operators over all graphs."""
        return sum((f.op_counts for f in self.frames), collections.Counter())

    @property
    def seconds(self) -> float:
        return sum(f.seconds for f in self.frames)

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> Iterable[str]:
        n = len(self.graphs)
        yield f"{n} graph{'s' * (n != 1)}, {len(self.breaks)} graph break{'s' * (len(self.breaks) != 1)}, {self.n_guards} guards, " + (
            f"{sum(self.op_counts.values())} operators, compiled in {seconds(self.seconds)}"
        )
        for f in self.frames:
            yield ""
            yield f"[{f.frame_id}] {f.name} ({f.filename}:{f.lineno}): {f.n_ops} operators, {seconds(f.seconds)}"
            if f.op_counts:
                yield "  operators: " + ", ".join(f"{k} {v}" for k, v in f.op_counts.most_common())
            yield from (f"  recompiled because {r}" for r in f.recompiled_because)
            yield from (f"  specialized: {s}" for s in f.specializations)
            if f.guards:
                yield f"  guards: {len(f.guards)}" + (f", of which {SHOWN} are shown" if len(f.guards) > SHOWN else "")
                yield from (f"  {g}" for g in f.guards[-SHOWN:])  # relations over sizes are at the end
            yield from (f"  side exit: {e}" for e in f.exits)
            if f.graph_break is not None:
                yield from ("  " + line for line in str(f.graph_break).splitlines())
        if self.notes:
            yield ""
            yield from self.notes


# -- from events -------------------------------------------------------------------------------------------
class Collector:
    """Builds an `Explanation` out of events; subscribe it."""

    def __init__(self) -> None:
        self.explanation = Explanation()
        self.frames: dict[str, FrameReport] = {}

    def __call__(self, event: Event) -> None:
        handler = HANDLERS.get(event.kind)
        if handler is not None:
            handler(self, event)

    def frame(self, event: Event) -> FrameReport:
        """The report of the event's frame; a recompile is told before its capture starts."""
        i = str(event.fields.get("frame_id", "?"))
        found = self.frames.get(i)
        if found is None:
            found = self.frames[i] = FrameReport(i, i, started=event.at)
            self.explanation.frames.append(found)
        return found

    def capture_start(self, e: Event) -> None:
        f = self.frame(e)
        f.name, f.filename, f.lineno, f.started = e.fields["name"], e.fields["filename"], e.fields["lineno"], e.at

    def recompile(self, e: Event) -> None:
        self.frame(e).recompiled_because += map(str, e.fields["reasons"])

    def graph_break(self, e: Event) -> None:
        self.frame(e).graph_break = GraphBreak(e.fields["code"], e.fields["reason"], e.fields.get("site"))

    def exit_point(self, e: Event) -> None:
        where, side, takes = (e.fields[name] for name in ("where", "side", "takes"))
        self.frame(e).exits.append(f"{where}: the graph goes on where the branch is {side}; taken {takes}")

    def graph(self, e: Event) -> None:
        f, graph = self.frame(e), e.fields["graph"]
        f.table = graph_table(graph, e.fields.get("outputs"))
        ops = getattr(graph, "ops", None)
        targets = (o.target for o in ops) if ops is not None else (n.target for n in graph.nodes if n.op.startswith("call"))
        f.op_counts.update(str(t) if ops is not None else getattr(t, "__name__", str(t)) for t in targets)

    def guards(self, e: Event) -> None:
        f = self.frame(e)
        f.guards += guard_lines(e.fields["guards"])
        for g in e.fields["guards"]:
            if SPECIALIZED.fullmatch(str(getattr(g, "user_form", ""))):
                f.specializations.append(" ".join(filter(None, (str(g.user_form), meanings(g.user_form), site_text(g.site)))))

    def specialization(self, e: Event) -> None:
        self.frame(e).specializations.append(f"{e.fields['expr']} == {e.fields['value']}  # {e.fields.get('site')}")

    def backend_compile(self, e: Event) -> None:
        self.frame(e).backend_seconds += e.fields["seconds"]

    def entry_added(self, e: Event) -> None:
        f = self.frame(e)
        f.seconds = e.at - f.started

    def note(self, e: Event) -> None:
        shown = ", ".join(f"{k} {v}" for k, v in e.fields.items())
        self.explanation.notes.append(f"{e.kind.replace('_', ' ')}: {shown}")


HANDLERS: dict[str, Callable[[Collector, Event], None]] = {
    "capture_start": Collector.capture_start,
    "recompile": Collector.recompile,
    "graph_break": Collector.graph_break,
    "exit_point": Collector.exit_point,
    "graph": Collector.graph,
    "guards": Collector.guards,
    "specialization": Collector.specialization,
    "backend_compile": Collector.backend_compile,
    "entry_added": Collector.entry_added,
    "fallback": Collector.note,
    "limit": Collector.note,
    "policy": Collector.note,
    "warning": Collector.note,
}


def collect(run: Callable[[], Any]) -> Explanation:
    """Call `run()` and explain everything that was compiled meanwhile, on any thread."""
    collector = Collector()
    cancel = events.subscribe(collector, HANDLERS)
    try:
        collector.explanation.result = run()
    finally:
        cancel()
    return collector.explanation


def fresh(fn: Any) -> Any:
    """A callable that does what `fn` does and that nothing compiled knows: a function with a code object of its own."""
    fn = getattr(fn, "_fn", fn)  # an entry point: what it was made of
    if isinstance(fn, types.FunctionType):
        twin = types.FunctionType(fn.__code__.replace(), fn.__globals__, fn.__name__, fn.__defaults__, fn.__closure__)
        twin.__kwdefaults__, twin.__qualname__ = fn.__kwdefaults__, fn.__qualname__
        return twin
    if isinstance(fn, types.MethodType) and isinstance(fn.__func__, types.FunctionType):
        return types.MethodType(fresh(fn.__func__), fn.__self__)

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    name = type(fn).__name__
    call.__code__ = call.__code__.replace(co_name=name, co_qualname=name)
    return call


def explain(fn: Any, *args: Any, **kwargs: Any) -> Explanation:
    """Compile a fresh twin of `fn` (a function, method, module or callable object), call it once and explain what was compiled.

    The call is a real one: it has the effects that `fn` has. Its result is in `.result`; its exceptions are raised. Print the
    explanation, or look into `.frames`, `.breaks` and `.op_counts`.
    """
    compiled = compile(fresh(fn), background=False)
    return collect(lambda: compiled(*args, **kwargs))
