"""Branches of the exported function whose sides differ: one program for each, the first being that of the example.

A branch on data is captured on both sides: what the branch asks is an assertion of each program, and where it fails in a run, nothing has
been written yet, and another program takes the call. A branch on a size is captured again with an example of another size; which
program takes a call is then known before anything runs. Bounded: `MOST` programs; what is left over is refused, or stays a relation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from pliant import events
from pliant.errors import PliantError
from pliant.export import openings, settle, trees
from pliant.export.program import USER, Input, Output, Program, Relation
from pliant.graph.layout import contiguous_strides
from pliant.graph.symnode import to_sym
from pliant.graph.traced import make
from pliant.jit.dims import is_branch
from pliant.lower import liveness
from pliant.symbolic import ops
from pliant.symbolic.dims import OPEN

MOST = 8
"""Programs of one export."""
QUESTIONS = 6
"""Branches on data on the way through one program: a loop that asks data for more is not unrolled."""

TRIES = 3
"""Examples that are tried for the other side of a branch on sizes."""

SIZE_BRANCH = "branch"
"""`Relation.why` of what a branch of the program itself asked of sizes."""


class Path:
    """One way through the branches on data: `given` answers come first, then True. `asked`: all answers of the last capture."""

    def __init__(self, given: tuple[bool, ...] = ()) -> None:
        self.given = given
        self.asked: list[bool] = []

    def answers(self) -> Callable[[Any, Any], bool | None]:
        """A new capture's oracle (`Scope.oracle`)."""
        asked = self.asked = []

        def answer(c: Any, site: Any) -> bool | None:
            if not is_branch(site) or len(asked) >= QUESTIONS:
                return None
            asked.append(self.given[len(asked)] if len(asked) < len(self.given) else True)
            return asked[-1]

        return answer


def why(g: Any) -> str:
    """`Relation.why` of a guard of the scope."""
    return SIZE_BRANCH if g.why == "decide" and is_branch(g.site) else g.why


Capture = Callable[[tuple, dict, Path], Program]


def explored(args: tuple, kwargs: dict, again: Capture, sizes: bool) -> Program:
    """The program of the example, with its variants."""
    found: list[Program] = []
    examples = [[(args, kwargs)]]
    while examples:
        made = None
        for example in examples.pop(0):
            try:
                made, wide = ways(*example, again, sizes, MOST - len(found))
                break
            except Exception as e:
                if not found:
                    raise
                events.emit("warning", id="export", text=f"the other side of a branch is not served: {type(e).__name__}: {e}")
        if made is None:
            continue
        if found and any(takes_all(q, made[0]) for q in found):
            continue
        found += made
        if sizes:
            for p, example in zip(made, wide, strict=True):
                examples += others(p, *example, found)
        if len(found) >= MOST:
            break
    return together(found)


def ways(args: tuple, kwargs: dict, again: Capture, sizes: bool, most: int) -> tuple[list[Program], list[tuple[tuple, dict]]]:
    """The programs for all ways through the branches on data, and the example that each was captured with."""
    found: list[Program] = []
    examples: list[tuple[tuple, dict]] = []
    first: Exception | None = None
    left: list[tuple[bool, ...]] = [()]
    while left:
        path = Path(left.pop(0))
        if len(found) >= most:
            raise PliantError(f"{found[0].name} branches on data in more than {most} ways: a program would have to hold them all")
        made: Program | None = None
        try:
            made = again(args, kwargs, path)
        except PliantError:
            raise  # what a program cannot be, rather than an error of the function's own on that side
        except Exception as e:
            if not path.asked:
                raise
            first = first or e
        left += [(*path.asked[:i], not path.asked[i]) for i in range(len(path.given), len(path.asked))]
        if made is None:
            continue
        wide, named = args, kwargs
        if sizes:
            taken = Path(tuple(path.asked))

            def capture(a: tuple, k: dict, taken: Path = taken) -> Program:
                return again(a, k, taken)

            made, wide, named = openings.larger(*openings.untied(*openings.widened(made, args, kwargs, capture), capture), capture)
            made = openings.joined(made, wide, named, capture)
        found.append(made)
        examples.append((wide, named))
    if not found:
        assert first is not None
        raise first  # every way raises
    return found, examples


# -- branches on sizes ----------------------------------------------------------------------------------------------------------
TRIED = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 32, 33, 48, 64, 65, 96, 100, 128, 129, 160, 200, 256, 257, 512, 513, 1024)


def others(p: Program, args: tuple, kwargs: dict, found: list[Program]) -> list[list[tuple[tuple, dict]]]:
    """Examples for the other sides of `p`'s branches on sizes: for each side several, the first that can be captured will do."""
    sides = [other_sizes(p, r, found) for r in p.relations if r.why == SIZE_BRANCH]
    return [made for changes in sides if (made := examples_of(p, changes, args, kwargs))]


def examples_of(p: Program, changes: list[dict[str, int]], args: tuple, kwargs: dict) -> list[tuple[tuple, dict]]:
    """The arguments with other sizes, for each of these changes."""
    out = []
    for change in changes:
        dims = [(i, d, e) for i, d, e in openings.sizes(p) if e.name in change]
        places = openings.in_arguments(p, [(i, d) for i, d, _ in dims], args, kwargs)
        if len(places) < len(dims):
            continue
        try:
            given = (args, kwargs)
            for n, (_, _, e) in enumerate(dims):
                given = openings.resized([places[n]], *given, to=change[e.name], whole=True)
            for i in p.user_inputs:
                if not i.is_tensor and i.value.name in change:
                    given = with_number(p, i, *given, change[i.value.name])
        except (ValueError, LookupError, TypeError):
            continue
        out.append(given)
    return out


def with_number(p: Program, i: Input, args: tuple, kwargs: dict, value: Any) -> tuple[tuple, dict]:
    """The arguments with another number. LookupError or TypeError where it is held by an object."""
    name, *steps = i.path

    def put(holder: Any, steps: list) -> Any:
        if not steps:
            return type(holder)(value)
        (kind, key), *rest = steps
        if kind not in ("index", "key") or type(holder) not in (tuple, list, dict):
            raise LookupError(key)
        copy: Any = dict(holder) if type(holder) is dict else list(holder)
        copy[key] = put(holder[key], rest)
        return copy if type(holder) is not tuple else tuple(copy)

    if name in kwargs:
        return args, {**kwargs, name: put(kwargs[name], steps)}
    at = p.parameters.index(name)
    return (*args[:at], put(args[at], steps), *args[at + 1 :]), kwargs


def tried(s: Any) -> list[Any]:
    """Other values of a symbol: sizes, or numbers of the arguments."""
    n = s.hint
    if s.kind is bool:
        return [not n]
    if s.kind is float:
        return [0.0, -n, n + 1, n - 1, n * 2, 1.0, -1.0, 10.0, -10.0, 1e-4, 1e4]
    numbers = [*TRIED, n * 2, n + 1, max(n // 2, 1)]
    return numbers if s.info.size_like else [*numbers, 0, -1, -2, n - 1]


def other_sizes(p: Program, r: Relation, found: list[Program]) -> list[dict[str, int]]:
    """Sizes for which `r` does not hold, all else that `p` needs does, and no known program takes: by symbol, the best first.

    What the program needs behind the branch is not asked of the other side. Sizes like the example's are likelier to be what others of the
    program's steps are good for.
    """
    at = next(n for n, x in enumerate(p.relations) if x is r)
    before = p.relations[:at]
    symbols = [s for s in r.expr.symbols() if s.hint is not None]
    groups = [g for g in openings.tied(p, but=r) if any(s is x for s in symbols for x in g)]
    groups += [[s] for s in symbols if not any(s is x for g in groups for x in g)]
    best: list[tuple[int, float, dict[str, int]]] = []
    for g in groups:
        for n in dict.fromkeys(tried(g[0])):
            change = dict.fromkeys([s.name for s in g], n)
            broken = openings.broken(p, change)
            early = [b for b in broken if any(b is x for x in before)]
            if n == g[0].hint or not any(b is r for b in broken) or any(b.why != SIZE_BRANCH for b in early):
                continue
            if not any(takes(q, p, change) for q in found):
                best.append((len([b for b in broken if b.why == SIZE_BRANCH]), away(n, g[0].hint), change))
    best.sort(key=lambda b: b[:2])
    return [change for *_, change in best[:TRIES]]


def away(n: Any, hint: Any) -> float:
    """How far a value is from the example's."""
    return abs(math.log(n / hint)) if n > 0 and hint > 0 else 8.0 + abs(n - hint) / 1e6


def known(p: Program) -> Iterator[tuple[tuple[str, int], Any]]:
    """The symbols that a call of `p` tells, and where: a dim of an input, or (-1) a number."""
    yield from (((i.name, d), e) for i, d, e in openings.sizes(p) if e.op == "sym")
    yield from (((i.name, -1), i.value) for i in p.user_inputs if not i.is_tensor)


def example_of(p: Program, change: dict[str, int]) -> dict[tuple[str, int], int]:
    return {place: change.get(e.name, e.hint) for place, e in known(p) if e.hint is not None}


def takes(q: Program, p: Program, change: dict[str, int]) -> bool:
    """Whether `q` takes the example of `p` with these sizes changed."""
    given = example_of(p, change)
    return not openings.broken(q, {e.name: given[place] for place, e in known(q) if place in given})


def takes_all(v: Program, q: Program) -> bool:
    """Whether `v` takes the example of `q`, so that `q` is not needed."""
    return takes(v, q, {})


# -- put together ---------------------------------------------------------------------------------------------------------------
def together(found: list[Program]) -> Program:
    """The first program, with the others as its variants: they have the same signature, and share their state."""
    align(found)
    share_inputs(found)
    found = [settle.settled(q) for q in found]
    p, *rest = found
    for k, q in enumerate(rest, 1):
        same = [o.name for o in p.outputs] == [o.name for o in q.outputs] and p.result == q.result
        if not same:
            raise PliantError(
                f"the sides of a branch of {p.name} give results of another structure, or write to other places:"
                f" {', '.join(o.name for o in p.outputs)} against {', '.join(o.name for o in q.outputs)}"
            )
        if p.form == "aten" and any(i.written for x in (p, q) for i in x.inputs):
            raise PliantError(f'{p.name} writes to its inputs and branches on data or sizes: export it with form="core"')
        for i in q.inputs:
            if i.kind != "user":
                value = q.state[i.name]
                if i.name in p.state and p.state[i.name] is not value:
                    i.name = f"{i.name}_variant{k}"
                p.state[i.name] = value
        q.state = p.state
    p.variants = rest
    return p


def share_inputs(found: list[Program]) -> None:
    """What one side takes, all take: a call is made before it is known which side it is for."""
    order: list[str] = []
    first: dict[str, tuple[Program, Input]] = {}
    for q in found:
        at = 0
        for i in q.user_inputs:
            if i.name not in first:
                first[i.name] = q, i
                order.insert(at, i.name)
            at = order.index(i.name) + 1
    for q in found:
        own = {i.name: i for i in q.user_inputs}
        users = [own[name] if name in own else unread(q, *first[name]) for name in order]
        q.inputs = [*[i for i in q.inputs if i.kind != USER], *users]


def unread(q: Program, p: Program, i: Input) -> Input:
    """The input `i` of `p` as one of `q`, which does not read it."""

    def symbol(value: Any, kind: type, size: bool) -> Any:
        e = liveness.number(value)
        hint = value if e is None else e.evaluate({s.name: s.info.hint for s in e.symbols()})
        letter = "f" if kind is float else "s"
        name = next(n for k in range(len(q.scope.symbols) + 1) if (n := f"{letter}{k}") not in q.scope.symbols)
        more = {"dim": OPEN} if size else {}
        return q.scope.backed(name, hint=hint, lo=0 if size else None, kind=kind, size_like=size, **more)

    if not i.is_tensor:
        return Input(i.name, i.kind, symbol(i.value, i.value.kind, False), i.path)
    sizes = tuple(to_sym(q.scope, symbol(n, int, True)) for n in i.value.sizes)
    value = make(q.trace, sizes, contiguous_strides(sizes), i.value.dtype, 0, None, i.value.device, True)
    return Input(i.name, i.kind, value, i.path)


def align(found: list[Program]) -> None:
    """A number that one side computes and another knows, or that each knows as another, is an output of all."""
    rows = [[t for t in q.result.walk() if t.kind in trees.LEAVES] for q in found]
    if len({len(r) for r in rows}) > 1:
        return
    names: dict[int, str] = {}
    for q, leaves in zip(found, rows, strict=True):
        for n, t in enumerate(leaves):
            if t.kind == "output":
                names.setdefault(n, q.outputs[t.value].name)
    for n, column in enumerate(zip(*rows, strict=True)):
        if n not in names and all(t.kind == "constant" and type(t.value) in (int, float, bool) for t in column):
            if len({repr(t.value) for t in column}) > 1 and len({type(t.value) for t in column}) == 1:
                names[n] = ".".join(map(str, trees.paths(found[0].result)[n])) or "output"
    for q, leaves in zip(found, rows, strict=True):
        users = [o for o in q.outputs if o.kind == USER]
        others = [o for o in q.outputs if o.kind != USER]
        if not all(
            t.kind == "output" or (t.kind == "constant" and type(t.value) in (int, float, bool)) for n, t in enumerate(leaves) if n in names
        ):
            return
        new = []
        for n, t in enumerate(leaves):
            if n in names:
                value = users[t.value].value if t.kind == "output" else t.value
                new.append(Output(names[n], USER, value))
                t.kind, t.value = "output", len(new) - 1
        q.outputs = [*new, *others]


def needed(p: Program, scope: Any) -> Iterator[tuple[Any, str]]:
    """What sizes must be for some program to take them, in the words of `scope`: (expression, line)."""
    if not p.variants:
        yield from ((openings.translated(r.expr, scope), r.site) for r in p.relations)
        return
    whole = None
    mine = {place: e.name for place, e in known(p)}
    for q in (p, *p.variants):
        names = {e.name: mine[place] for place, e in known(q) if place in mine}
        told = [r.expr for r in q.relations if all(s.name in names for s in r.expr.symbols())]
        both = openings.conjunction(scope, [openings.translated(e, scope, names) for e in told])
        whole = both if whole is None else ops.or_(whole, both)
    yield whole, next((r.site for r in p.relations if r.why == SIZE_BRANCH), "")
