"""Output of the program: prints, logs and warnings are made after the graph, in order, with what it came to."""

from __future__ import annotations

import os
import sys
import types
import warnings
from typing import Any

from pliant.graph.originals import torch
from pliant.graph.symnode import concrete
from pliant.graph.traced import TracedTensor
from pliant.guards.views import only_writes
from pliant.interpret import process_state, runtime, shadows, tracebacks
from pliant.interpret.calls import native
from pliant.interpret.decode import decode
from pliant.interpret.effects import sequence_difference
from pliant.interpret.late_errors import handlers
from pliant.interpret.late_text import CONTAINERS, LateText, hold_to_type, needed, pieces_of, writable
from pliant.interpret.lookasides import lookaside
from pliant.interpret.opaque import Opaque
from pliant.interpret.slots import SYM_TYPES
from pliant.interpret.state import Break, vm


def printable(v: Any) -> Any:
    """What a deferred print may show later: text made now, or a symbolic number."""
    t = type(v)
    if t in SYM_TYPES or t in (str, int, float, bool, type(None), bytes):
        return v
    if t is LateText:
        return v if v.pieces is not None else needed(v)
    if t is Opaque and writable(v, 0, ""):
        hold_to_type(v)
        return v
    if t is TracedTensor or holds_tensor(v):
        raise Break("PL0005", "printing a tensor", clean=True)
    pieces = pieces_of(v) if t in CONTAINERS else None
    return LateText(pieces, True) if pieces is not None and not all([type(p) is str for p in pieces]) else native(str, (v,), {})


def holds_tensor(v: Any, depth: int = 0) -> bool:
    t = type(v)
    if t is TracedTensor:
        return True
    if t in (list, tuple, set, dict) and depth < 4:
        shadows.read_all(vm.world, v)
        return any(holds_tensor(x, depth + 1) for x in (v.values() if t is dict else v))
    return False


@lookaside(only_writes)
def is_stream(args: tuple, kw: dict | None = None) -> bool:
    """Whether what is written to a file, an object from outside, may be written after the graph: no code of the program's hears of it."""
    (file,) = args
    source = vm.world.source_of(file) if id(file) in vm.world.outside else None
    if file is None or source is None:
        return file is None
    found = only_writes(file)
    vm.world.guard(source.apply("only_writes"), "EQ_MATCH", found)
    return found


@lookaside(print)
def l_print(args: tuple, kw: dict) -> None:
    if (id(sys.__dict__), "stdout") in vm.world.global_writes:
        raise Break("PL0005", "print to a redirected stdout", clean=True)
    if kw.get("file") is None:
        if not process_state.prints_are_written():
            raise Break("PL0005", "print to a stdout that is the program's own, or has no write", clean=True)
        process_state.question(process_state.prints_are_written, (), {}, True)
    if kw.get("file") is not None and not is_stream((kw["file"],)) or "flush" in kw and type(kw["flush"]) is not bool:
        raise Break("PL0005", "print(file=…)", clean=True)
    if any(not isinstance(kw.get(k), (str, type(None))) for k in ("sep", "end")):
        raise Break("PL0005", "print with a wrong separator", clean=True)
    vm.world.calls.append((print, tuple(printable(a) for a in args), dict(kw)))


WARN = warnings.warn
OWN = os.path.dirname(os.path.dirname(__file__)) + os.sep


def put_back(world: Any, space: dict, name: str, value: Any) -> bool:
    """Whether a global is written what it was before."""
    before = space.get(name)
    h = world.shadows.get(id(before))
    if h is None:
        return value is before
    changes: list = []
    if value is h.copy and type(h.copy) is list:
        sequence_difference(world, h, changes)
    return value is h.copy and type(h.copy) is list and not changes


def redirections() -> list[tuple[str, Any]]:
    """What the program has written to the module of warnings, and not put back."""
    world = vm.world
    return [(name, v) for g, name, v in world.global_writes.values() if g is warnings.__dict__ and not put_back(world, g, name, v)]


def heard() -> bool:
    """Whether the frames that run now have said that warnings are to be raised or kept: what the graph computes tells of none."""
    told = redirections()
    changed = vm.world.shadows.get(id(warnings.filters))
    lists = [v for name, v in told if name == "filters"] + ([] if changed is None else [changed.copy])
    if any([name != "filters" for name, _ in told]) or not all([type(v) is list and spared(v) for v in lists]):
        return True
    kept = [leave.__self__ for *_, leave in handlers(vm.frame) if type(leave) is types.MethodType]  # open since before a graph break
    return any([issubclass(type(m), warnings.catch_warnings) and m.__dict__.get("_record") for m in kept])


def spared(filters: list) -> bool:
    """Whether these raise nothing, as far as is known."""
    return all([type(f) is tuple and type(f[0]) is str and f[0] != "error" for f in filters])


@lookaside(WARN)
def l_warn(args: tuple, kw: dict, asks: types.FrameType | None = None) -> None:
    """`warnings.warn`, after the graph, as from the line that it is about. `asks`: a frame of PyTorch's, run as it is, that calls it."""
    if redirections() or process_state.some_warning_raises():
        raise Break("PL0005", "a warning while warnings are redirected, or raise", clean=True)
    process_state.question(process_state.some_warning_raises, (), {}, False)
    way, kept = process_state.way_of_warnings(), process_state.kept_warnings()
    if way == "heard" or not keeps(kept):
        raise Break("PL0005", "a warning that code of the program's hears of", clean=True)
    process_state.question(process_state.way_of_warnings, (), {}, way)
    said = parts_of(args, kw)
    if said is None:
        raise Break("PL0005", "a warning that may be refused, or that names what it comes from", clean=True)
    message, category, level = said
    if not isinstance(message, Warning):  # one says its category itself
        message = printable(message)
    most = level
    while asks is not None and not asks.f_code.co_filename.startswith(OWN):
        if level == 1:
            line = asks.f_globals.get("__name__"), asks.f_code.co_filename, asks.f_lineno
            vm.world.calls.append((runtime.warn_in, (*line, message, category), {}))
            return
        asks, level = asks.f_back, level - 1
    place = place_of(vm.frame, level)
    if place is None or most < 1:  # of whoever calls what is captured
        vm.world.calls.append((WARN, (message, category, level), {}))
    else:
        vm.world.calls.append((runtime.warn_at, (*place, message, category), {}))


def keeps(*lists: list | None) -> bool:
    """Whether the program has not read these lists, into which something is put after the graph: from now on, reading one breaks it."""
    found = {id(kept): kept for kept in lists if kept is not None}
    if any([i in vm.world.shadows for i in found]):
        return False
    vm.world.kept |= found
    return True


def parts_of(args: tuple, kw: dict) -> tuple | None:
    """(message, category, stack level) of a call of `warnings.warn` that only warns; None if it may do more."""
    given = dict(zip(("message", "category", "stacklevel", "source"), args, strict=False)) | kw
    message, category, level, source = [given.pop(name, None) for name in ("message", "category", "stacklevel", "source")]
    level = 1 if level is None else concrete(level) if type(level) is torch.SymInt else level
    plain = type(level) is int and (category is None or isinstance(category, type) and issubclass(category, Warning))
    return None if given or not plain or source is not None or not (args or "message" in kw) else (message, category, level)


def place_of(f: Any, level: int) -> tuple[types.FunctionType, int] | None:
    """(function, line) that a warning of frame `f` is about; None for one of whoever calls what is captured."""
    while level > 1 and f.parent is not None:
        f, level = f.parent, level - 1
        if f.calls_module:
            if level <= 2:
                fn, i = tracebacks.around_forward()[level - 1]
                return fn, decode(fn.__code__).line(i)
            level -= 2
    return (f.func, line_of(f)) if level == 1 else None


def line_of(f: Any) -> int:
    """Where frame `f` is."""
    return f.decoded.site(max(f.pc - 1, 0)).lineno


def real_call(f: Any, args: tuple, kw: dict) -> tuple | None:
    """The action of a call of `warnings.warn` that CPython makes: it is about the program's line. None if that cannot be told."""
    said = parts_of(args, kw)
    place = None if said is None else place_of(f, said[2])
    return None if said is None or place is None else ("call", runtime.warn_at, (*place, *said[:2]), {})


@lookaside(warnings._filters_mutated)  # type: ignore[attr-defined]
def l_filters_mutated(args: tuple, kw: dict) -> None:
    """What was shown once per place may be shown again: said after the graph."""
    vm.world.filters_mutated += 1
