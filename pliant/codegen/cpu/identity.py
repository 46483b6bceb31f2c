"""What the code of kernels and segments depends on, as names, without printing it.

Printing a program only to look for its object on the disk takes a third of a warm start. So modules have a second name besides that of
their text: a hash of the canonical form of their kernels and segments, of the machine, and of *the generator*, the source of all that turns
such a form into text. Where that second name is known the disk tells the objects; where it is not, the text decides as before.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import time
from collections.abc import Hashable, Iterable, Mapping
from typing import Any

from pliant import turns
from pliant.codegen.cpu.machine import Machine
from pliant.codegen.cpu.scalars import ROWS
from pliant.lower.gemm import Gemm
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import Size
from pliant.lower.loops import DTYPES, SCALARS, Kernel
from pliant.lower.program import NativeStep
from pliant.lower.segments import Segment, is_native
from pliant.symbolic.expr import TABLE, Expr, postorder

ROOMS = ("symbolic", "lower", "codegen")
"""Rooms of pliant whose code has a say in what is printed."""
HOME = pathlib.Path(__file__).parents[2]
BEGUN = time.time() - 1  # clocks of file systems lag

TABLES: tuple[dict, ...] = (ROWS, SCALARS, DTYPES, TABLE)
AS_WRITTEN = [dict(table) for table in TABLES]


def extended() -> bool:
    """Has somebody changed or added rows of operators? Their source is not in `generator`."""
    return any(table != rows for table, rows in zip(TABLES, AS_WRITTEN, strict=True))


@functools.cache
def generator(root: pathlib.Path = HOME, begun: float = BEGUN) -> bytes | None:
    """A hash of the source files in `ROOMS`; None if that is not surely the code that runs in this process.

    It is not where files are missing, or were written after this process loaded them. (The time of a file's last change of status is the
    system's: nobody can set it back.)
    """
    digest = hashlib.sha256()
    found = 0
    try:
        for room in ROOMS:
            for folder, inner, names in os.walk(root / room):
                inner.sort()
                turns.rest()
                for name in sorted(names):
                    if name.endswith(".py"):
                        path = os.path.join(folder, name)
                        with open(path, "rb", buffering=0) as file:
                            if os.fstat(file.fileno()).st_ctime > begun:
                                return None
                            digest.update(f"{path[len(str(root)) :]}\0{hashlib.sha256(file.read()).hexdigest()}\n".encode())
                        found += 1
    except OSError:
        return None
    return digest.digest() if found else None


def module(new: Iterable[Kernel], keys: Iterable[Hashable], segments: Iterable[Any], to: Machine, versions: object) -> str | None:
    """The name of a module of kernels, whose keys are `keys`, and segments; None if it has to be printed.

    `segments` hold what `of_segment` gives, and the names of the functions that each calls.
    """
    code = generator() if not extended() else None
    if code is None:
        return None
    machine = (to.name, to.triple, to.cpu, to.features, versions)
    kernels = [(key, tuple(kernel.hints.items())) for kernel, key in zip(new, keys, strict=True)]
    return hashlib.sha256(code + repr((machine, kernels, list(segments))).encode()).hexdigest()


def of_segment(s: Segment, poison: bool) -> tuple[Hashable, tuple[Hashable, ...]]:
    """All that the text of a segment depends on, and the keys of its kernels in order of their first call. Equal ones are equal code."""
    place: dict[int, int] = {}  # of a tensor, by vid
    for t in (*s.outer, *s.inner):
        place.setdefault(t.vid, len(place))
    called: dict[Hashable, int] = {}
    number, rows = expressions(s)

    def size(value: Size) -> Any:
        return ("e", number[value]) if type(value) is Expr else value

    def step(x: NativeStep) -> tuple:
        tensors = [*x.buffers, *(() if isinstance(x, Launch | Gemm) else x.operands), *(() if type(x) is Launch else (x.out,))]
        if type(x) is Launch:
            kind: Any = called.setdefault(x.key, len(called))
        else:
            kind = ("product", x.flags) if type(x) is Gemm else (type(x).__name__, len(tensors))
        return kind, len(x.buffers), tuple([place.setdefault(t.vid, len(place)) for t in tensors]), tuple(map(size, x.sizes))

    steps = tuple(map(step, s.steps))
    plan = (tuple([tuple(map(size, slot.sizes)) for slot in s.plan.slots]), tuple(s.plan.place), tuple([place[t.vid] for t in s.given]))
    plan = (*plan, tuple(map(size, s.plan.within)))
    shared = tuple([(place[a], place[b]) for a, b in s.shared.items()])
    lives = tuple([(size(i.size), i.last) for i in s.intervals]) if poison else ()
    return (len(s.outer), len(s.inner), len(s.leaves), rows, steps, plan, shared, poison, lives), tuple(called)


def expressions(s: Segment) -> tuple[Mapping[Expr, int], tuple]:
    """The number of each size of a segment, and what each is: a leaf, or an operator of earlier ones."""
    number: dict[Expr, int] = {leaf: k for k, leaf in enumerate(s.leaves)}
    rows: list[tuple] = []
    for e in s.expressions():
        if e in number or not is_native(e):
            continue
        for n in postorder(e, done=number):
            if n.op == "sum":
                row: tuple = tuple([(c, *[number[a] for a in mono]) for mono, c in n.terms])
            elif n.const is not None:
                row = (n.kind.__name__, repr(n.const))
            else:
                row = (n.op, n.kind.__name__, *[number[a] for a in n.args])
            number[n] = len(number)
            rows.append(row)
    return number, tuple(rows)
