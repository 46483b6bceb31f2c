"""`PLIANT_LOGS=graph,guards,bytecode,breaks,recompiles,passes,...` and `pliant.set_logs(...)`: the event log, printed as it happens.

Each channel is a row of `CHANNELS`: which events it listens to and how it prints one. Everything goes to stderr, or where
`set_logs(..., file=...)` says.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from pliant import events
from pliant.bytecode import disassembly
from pliant.codegen import target
from pliant.events import Event
from pliant.interpret.breaks import format_break
from pliant.report.guards import guard_lines
from pliant.report.tables import graph_table


def heading(event: Event, title: str) -> str:
    return f"[{event.fields.get('frame_id', '-')}] {title}"


def graph_text(e: Event) -> str:
    name = e.fields.get("name") or f"graph of {e.fields.get('frame_id', '?')}"
    return f"{heading(e, 'TRACED GRAPH')} {name}\n{graph_table(e.fields['graph'], e.fields.get('outputs'))}"


def guards_text(e: Event) -> str:
    return "\n".join([heading(e, "GUARDS:"), *guard_lines(e.fields["guards"])])


def bytecode_text(e: Event) -> str:
    original, modified = e.fields["original"], e.fields["modified"]
    where = f"{original.co_name} {original.co_filename} line {original.co_firstlineno}"
    return (
        f"{heading(e, 'ORIGINAL BYTECODE')} {where}\n{disassembly(original)}\n\n"
        f"{heading(e, 'MODIFIED BYTECODE')} {where}\n{disassembly(modified)}"
    )


def break_text(e: Event) -> str:
    f = e.fields
    return heading(e, format_break(f["code"], f["reason"], f.get("site"), f.get("user_stack") or ()))


def recompile_text(e: Event) -> str:
    return "\n".join([heading(e, "RECOMPILE: no compiled version fits"), *(f"    {r}" for r in e.fields["reasons"])])


def pass_text(e: Event) -> str:
    """What a pass has changed, as a difference of texts; a program at another level is printed whole."""
    before, after = e.fields["before"], e.fields["after"]
    title = heading(e, f"PASS {e.fields['name']} over {e.fields['program']}")
    if e.fields["level"]:
        return f"{title}, to level {e.fields['level']}\n{after}"
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=1)
    changed = [line for line in lines if not line.startswith(("---", "+++", "@@"))]
    return "\n".join([title, *(changed or ["  (nothing that the text shows)"])])


def line_of(*names: str) -> Callable[[Event], str]:
    """One line: the kind and some fields."""

    def text(e: Event) -> str:
        shown = (f"{n}={seconds(v) if n == 'seconds' else v}" for n in names if (v := e.fields.get(n)) is not None)
        return heading(e, " ".join([e.kind.replace("_", " "), *shown]))

    return text


def listing(e: Event, kind: str) -> str:
    return target.current().listing(e.fields["kernel"], kind)


def seconds(value: float) -> str:
    return f"{value * 1e3:.1f} ms" if value < 1 else f"{value:.2f} s"


Printer = Callable[[Event], str]
CHANNELS: dict[str, dict[str, Printer]] = {
    "graph": {"graph": graph_text},
    "guards": {"guards": guards_text},
    "bytecode": {"bytecode": bytecode_text},
    "breaks": {"graph_break": break_text},
    "loops": {"loop_open": line_of("where", "why"), "branch_open": line_of("where", "why")},
    "exits": {"exit_point": line_of("where", "side", "takes")},
    "recompiles": {"recompile": recompile_text, "limit": line_of("name", "limit"), "short_lived": line_of("name", "died", "skipped")},
    "specializations": {"specialization": line_of("expr", "value", "site"), "policy": line_of("what", "where")},
    "captures": {
        "capture_start": line_of("name", "filename", "lineno"),
        "capture_end": line_of("ops", "guards", "exit", "seconds"),
        "backend_compile": line_of("backend", "seconds"),
        "entry_added": line_of("name", "seconds"),
        "exchanged": line_of("name", "seconds"),
    },
    "disk": {"disk": line_of("what", "where")},
    "passes": {"pass": pass_text},
    "schedule": {"kernel": lambda e: f"SCHEDULE of {listing(e, 'schedule')}"},
    "llvm": {"kernel": lambda e: f"LLVM IR of kernel {e.fields['kernel'].name}\n{listing(e, 'llvm')}"},
    "asm": {"kernel": lambda e: f"ASSEMBLY of kernel {e.fields['kernel'].name}\n{listing(e, 'asm')}"},
    "verify": {
        "verified": line_of("name", "entries", "seconds"),
        "mismatch": line_of("id", "name", "entries", "what", "file"),
        "unverifiable": line_of("name", "reason"),
    },
    "remote": {
        "fetch": line_of("why", "sizes", "dtype", "placement"),
        "gathered": line_of("what"),
        "remote": line_of("what", "worker", "text"),
    },
    "warnings": {
        "fallback": line_of("id", "name", "error"),
        "background_error": line_of("name", "error"),
        "warning": line_of("id", "text"),
    },
}


class Printers:
    """What is printed now, and where to. `file` None is stderr as it is when the event comes."""

    def __init__(self) -> None:
        self.rows: dict[str, list[Printer]] = {}
        self.file: TextIO | None = None
        self.cancel: Callable[[], None] | None = None

    def __call__(self, event: Event) -> None:
        for printer in self.rows.get(event.kind, ()):
            print(printer(event), end="\n\n", file=self.file or sys.stderr)


_printers = Printers()


def parse_channels(text: str) -> list[str]:
    """`"graph, guards"` -> `["graph", "guards"]`; `all` means every channel. ValueError names what is unknown."""
    names = [n for n in (part.strip() for part in text.split(",")) if n]
    unknown = [n for n in names if n not in CHANNELS and n != "all"]
    if unknown:
        raise ValueError(f"unknown log {', '.join(map(repr, unknown))}: choose from {', '.join(CHANNELS)}, all")
    return list(CHANNELS) if "all" in names else names


def set_logs(*channels: str, file: TextIO | None = None, **switches: bool) -> None:
    """Print these channels from now on, and no others: `set_logs("graph", "guards")`, `set_logs(breaks=True)`, `set_logs()` for silence.

    `file`: where to print (default: stderr). Raises ValueError for an unknown channel.
    """
    names = parse_channels(",".join([*channels, *switches]))
    names = [n for n in names if switches.get(n, True)]
    if _printers.cancel is not None:
        _printers.cancel()
        _printers.cancel = None
    _printers.rows = {}
    for n in dict.fromkeys(names):
        for kind, printer in CHANNELS[n].items():
            _printers.rows.setdefault(kind, []).append(printer)
    _printers.file = file
    if names:
        _printers.cancel = events.subscribe(_printers, _printers.rows)


def set_logs_from_environment() -> None:
    """Obey `PLIANT_LOGS`. A name that is no channel is told on stderr and passed over: a typing error must not stop a program."""
    wanted = os.environ.get("PLIANT_LOGS", "")
    good = []
    for name in filter(None, (part.strip() for part in wanted.split(","))):
        try:
            good += parse_channels(name)
        except ValueError as e:
            print(f"PLIANT_LOGS: {e}", file=sys.stderr)
    if good:
        set_logs(*good)


@contextlib.contextmanager
def logging_to(file: TextIO, *channels: str) -> Any:
    """Print these channels to `file` inside the `with` block; what was printed before comes back at its end."""
    rows, old_file, was_on = _printers.rows, _printers.file, _printers.cancel is not None
    set_logs(*channels, file=file)
    try:
        yield file
    finally:
        set_logs()
        _printers.rows, _printers.file = rows, old_file
        if was_on:
            _printers.cancel = events.subscribe(_printers, _printers.rows)
