"""What stands around a graph that somebody else compiled: the program of a few lines that emitted code calls.

It checks what can be checked before the graph runs (assertions over inputs), runs it, gives failed assertions the exception that they are
meant to raise, and puts back what did not go through the graph: constants and inputs among the outputs. Its lines are known to
`codegen/failures.py`, so a graph that failed before it did anything that shows makes CPython run the frame.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.codegen.aten import Executable, source_line, tuple_text
from pliant.codegen.dynamo_graph import Handed, written_by
from pliant.codegen.failures import DRAWN, NEVER, Place, Places, place_of, remember, states
from pliant.codegen.generated import compile_text
from pliant.codegen.variants import Variants
from pliant.codegen.variants import given as arguments
from pliant.graph.originals import ORIGINAL, gradients
from pliant.graph.traced import TracedTensor
from pliant.interpret import globalstate
from pliant.lower import liveness
from pliant.symbolic import maths

CLEAN, UNCLEAN = -1, -2
"""In the place of an assertion's number: another exception, with everything as it was before the graph, or perhaps not."""
MOST_COPIED = 1 << 24
"""Bytes of written inputs that are copied because an operation of the graph may raise. (Because of an assertion, or where the program has
done something before, all are.)"""


def around(
    graph: Handed, variants: Variants | None, inputs: list[Any], outputs: list[Any], given: dict[Any, int], memory: list[Any], name: str
) -> Executable:
    """The executable of `graph`. Without `variants` the module itself runs. `given`: the slot of each input, by `key_of`; `memory`: the
    number of the memory of each result of the graph, None for what is no tensor."""
    params = [f"p{i}" if isinstance(v, TracedTensor) else v.name for i, v in enumerate(inputs)]
    checks = [check for check, _ in graph.checks]
    number = {check.text: i for i, check in reversed(list(enumerate(checks)))}
    within = [check for check in checks if not all(s.name in params for s in check.expr.symbols())]
    run = runner(graph, variants, number, bool(within))
    if variants is not None and sum([at is not None for at in memory]) > 1:
        run = separate(run, memory)
    names: dict[str, Any] = {"_run": run, "math": maths}
    lines: list[str] = []
    places: dict[int, Place] = {}
    known: dict[int, Place] = {}

    def put(line: str, site: Any = None, place: Place | None = None) -> None:
        lines.append(line)
        place = place or place_of(site, known)
        if place is not None:
            places[len(lines) + 1] = place

    def fail(check: Any, values: bool) -> str:
        names[check.error.__name__] = check.error
        symbols = [s.name for s in check.expr.symbols()][:8] if values and not check.message else []
        shown = f" + f' ({', '.join(f'{s} = {{{s}}}' for s in symbols)})'" if symbols else ""
        return f"raise {check.error.__name__}({check.text!r}{shown}{'' if check.message else f' + {source_line(check.site)!r}'})"

    for check in checks:
        if check not in within:
            put(f"if not ({check.expr.python()}): {fail(check, True)}", check.site)
    if graph.draws and (graph.raises or checks):
        names["_states"] = states
        put(f"{DRAWN} = _states{graph.draws}")
    put(f"_out, _error, _failed = _run({tuple_text(params)})")
    all_undone = variants is not None and not graph.foreign
    clean = [(check, all_undone or at < graph.effects_from, i) for i, (check, at) in enumerate(graph.checks)]
    for check, is_clean, i in clean:
        if is_clean:
            put(f"if _failed == {i}: {fail(check, False)} from None", check.site)
    somewhere = Place((), any(place is not None and place.handled for place in (place_of(site, known) for site in graph.sites)))
    put(f"if _failed == {CLEAN}: raise _error", place=somewhere if variants is not None else None)  # else the graph's own lines tell
    effects_from = len(lines) + 2
    for check, is_clean, i in clean:
        if not is_clean:
            put(f"if _failed == {i}: {fail(check, False)} from None", check.site)
    put(f"if _failed == {UNCLEAN}: raise _error")
    put(f"return {returned(outputs, given, params, names)}")
    source = f"def {name}({', '.join(params)}):\n" + "".join(f"    {line}\n" for line in lines)
    fn = compile_text(source, name, names)
    remember(fn, Places(places, effects_from))
    n_ops = sum(n.op.startswith("call") for n in graph.module.graph.nodes)
    return Executable(fn, source + graph.module.code, n_ops, {}, variants)


def returned(outputs: list[Any], given: dict[Any, int], params: list[str], names: dict[str, Any]) -> str:
    """The outputs as text: results of the graph, inputs, constants."""
    items, places = [], {}
    for i, v in enumerate(outputs):
        key = key_of(v)
        if key in given:
            items.append(params[given[key]])
        elif isinstance(v, TracedTensor) or (key is not None and key.const is None):
            items.append(f"_out[{places.setdefault(key, len(places))}]")
        else:
            names[f"c{i}"] = v if key is None else key.const
            items.append(f"c{i}")
    return tuple_text(items)


def separate(run: Callable[[tuple], tuple], memory: list[Any]) -> Callable[[tuple], tuple]:
    """`run` with results that are objects of their own: where two operations do the same, compilers give what one makes for both."""

    def run_separated(slots: tuple) -> tuple:
        out, error, failed = run(slots)
        if out is not None and len(set(map(id, out))) < len(out):
            out = apart(out, memory)
        return out, error, failed

    return run_separated


def apart(results: Any, memory: list[Any]) -> tuple:
    """In the place of a tensor that is there twice, a view of it each time, or a copy where the program's do not share memory."""
    ids = list(map(id, results))
    out = []
    for x, at in zip(results, memory, strict=True):
        if at is not None and ids.count(id(x)) > 1:
            with gradients(x.requires_grad):
                x = ORIGINAL.view_as(x, x) if memory[ids.index(id(x))] == at else ORIGINAL.clone(x)
        out.append(x)
    return tuple(out)


def key_of(value: Any) -> Any:
    """What two values that are one have in common: the number of a tensor, the expression of a number; None for a constant."""
    return value.vid if isinstance(value, TracedTensor) else liveness.number(value)


def runner(graph: Handed, variants: Variants | None, number: dict[str, int], asserting: bool) -> Callable[[tuple], tuple]:
    """`run(slots) -> (outputs, exception, number of the assertion that it is)`.

    What others compiled writes inputs when it likes, before an assertion that comes first in the program or behind one that comes last.
    So inputs that it writes are copied where it may raise, and put back where it does. The graph as it is writes in the order of the
    program: that matters only if the program has done something else before.
    """
    restore = graph.switches
    call: Callable[[tuple], Any] = plain_call(graph) if variants is None else variants
    written = written_by(graph) if variants is not None or graph.undone else []
    may_raise = asserting or graph.raises or graph.undone
    all_copied = asserting or graph.undone

    def run(slots: tuple) -> tuple:
        state = globalstate.save() if restore else None
        copied = may_raise and written and (all_copied or sum(slots[i].nbytes for i in written) <= MOST_COPIED)
        copies = [copy_of(slots[i]) for i in written] if copied else None
        try:
            return call(slots), None, None
        except Exception as e:
            if state is not None:
                globalstate.restore(state)
            if copies is not None:
                for i, copy in zip(written, copies, strict=True):
                    put_back(slots[i], *copy)
            failed = assertion(e, number)
            spoilt = variants is not None and (graph.foreign or (written and copies is None))
            return None, e, UNCLEAN if failed == CLEAN and spoilt else failed

    return run


def copy_of(x: torch.Tensor) -> tuple[torch.Tensor, int | None]:
    """The contents of a tensor, and how often it was written to."""
    return ORIGINAL.clone(ORIGINAL.detach(x)), None if ORIGINAL.is_inference(x) else x._version


def put_back(x: torch.Tensor, contents: torch.Tensor, version: int | None) -> None:
    ORIGINAL.copy_(x.data, contents)
    if version is not None:
        torch._C._autograd._unsafe_set_version_counter((x,), (version,))  # type: ignore[attr-defined]


def plain_call(graph: Handed) -> Callable[[tuple], Any]:
    """The graph module as it is."""
    at = [(i, getattr(spec, "kind", None) is float) for i, spec in zip(graph.at, graph.inputs, strict=True)]
    known_lines(graph)
    forward = graph.module.forward
    return lambda slots: forward(*arguments(slots, at))


def assertion(e: Exception, number: dict[str, int]) -> int:
    """Which assertion failed, if it was one. Interpreters add lines of their own to a message."""
    text = str(e)
    if type(e) is not RuntimeError or text in number:
        return number.get(text, CLEAN)
    return next((i for own, i in number.items() if text.startswith(own + "\n")), CLEAN)


def known_lines(graph: Handed) -> None:
    """Tell `failures` which line of the module's own code is which line of the user's."""
    code = graph.module.graph.python_code("self")
    nodes = graph.sites
    known: dict[int, Place] = {}
    lines: dict[int, Place] = {}
    effects_from = NEVER
    start = code._prologue_start
    for line, i in (code._lineno_map or {}).items():
        if i is None:
            continue
        place = place_of(nodes[i], known)
        if place is not None:
            lines[line + start] = place
        if i >= graph.effects_from:
            effects_from = min(effects_from, line + start)
    forward = graph.module.forward
    remember(getattr(forward, "__func__", forward), Places(lines, effects_from))
