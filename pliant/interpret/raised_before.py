"""Lines at which graphs have raised again and again (`jit/raising_lines.py`): the graph ends in front of what may raise there."""

from __future__ import annotations

from typing import Any

from pliant.interpret.state import Break, vm

REASON = "it raised when the graph ran, more than once"


def at(site: Any) -> bool:
    """Whether the graph is to end in front of what may raise at this site."""
    ended = getattr(vm.history, "ended", None)
    if not ended or site is None or site.code is None or vm.rehearsing or vm.config.fullgraph or vm.world.error_on_break:
        return False
    return site.calls() in ended


def check(site: Any, what: Any) -> None:
    """Raises Break in front of what has raised before."""
    if at(site):
        raise Break("PL0041", f"{what}: {REASON}")
