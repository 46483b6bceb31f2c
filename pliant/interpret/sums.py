"""`sum` of numbers of which some are symbolic floats, and `math.sumprod`.

Since 3.12 CPython adds floats up with a compensation for what rounding lost (Neumaier): the sum of ten 0.1 is 1.0. So does this, in
the same steps, with a selection where CPython compares.
"""

from __future__ import annotations

import sys
from typing import Any

from pliant.graph.originals import math, operator, torch
from pliant.interpret import folded_generators, in_python
from pliant.interpret.calls import LOOKASIDES, inline, native, with_numbers
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import SYM_TYPES
from pliant.interpret.interleaved import until_heard
from pliant.interpret.lookasides import lookaside
from pliant.interpret.slots import binary, unpack

ADD = operator.add
INTS, FLOATS = (int, bool, torch.SymInt, torch.SymBool), (float, torch.SymFloat)
NUMBERS = {int, float, bool, complex, *SYM_TYPES}
COMPENSATED = sum([0.1] * 10) == 1.0  # since 3.12
LONG = 1 << 63
LARGEST = sys.float_info.max


@lookaside(sum)
def l_sum(args: tuple, kw: dict) -> Any:
    if not 1 <= len(args) <= 2 or (kw and (len(args) == 2 or kw.keys() != {"start"})):
        return native(sum, args, kw)
    start = args[1] if len(args) == 2 else kw.get("start", 0)
    if isinstance(start, (str, bytes, bytearray)):
        return native(sum, args, kw)
    given = folded_generators.rounds(args)
    if given is not None and (found := folded_generators.total(given, start)) is not UNSET:
        return found
    items, rest = until_heard(args[0])
    if rest is not None:
        return inline(in_python.added, (total(start, items), rest), {})
    types = {type(start), *map(type, items)}
    if types <= NUMBERS and (not COMPENSATED or types.isdisjoint(FLOATS) or types.isdisjoint(SYM_TYPES)):
        return native(sum, (items, start), {})
    return total(start, items)


def total(start: Any, items: Any) -> Any:
    """CPython's loops one after another: over ints, over floats, and over anything, each left at the first item that it does not take.

    The first two take no subclasses, and ints of 64 bits; symbolic ones are."""
    state = INTS if type(start) in (int, torch.SymInt) else FLOATS if type(start) in FLOATS else None
    lost: Any = 0.0
    if not COMPENSATED:
        state = None
    for x in items:
        t = type(x)
        if state is FLOATS and t in FLOATS:
            start, lost = add(start, x, lost)
            continue
        if state is FLOATS and not (t in INTS and fits(x)):
            start, state = compensated(start, lost), None
        after = binary(ADD, start, x)
        if state is INTS and not (t in INTS and fits(x) and fits(after)):
            state = FLOATS if type(after) in FLOATS else None
        start = after
    return compensated(start, lost) if state is FLOATS else start


def fits(n: Any) -> bool:
    return type(n) is not int or -LONG <= n < LONG


def choose(which: Any, yes: Any, no: Any) -> Any:
    return (yes if which else no) if type(which) is bool else which.__sym_ite__(yes, no)


def add(a: Any, b: Any, lost: Any) -> tuple[Any, Any]:
    """(`a + b`, what rounding has lost so far)."""
    s = a + b
    return s, lost + choose(abs(a) >= abs(b), (a - s) + b, (b - s) + a)


def compensated(s: Any, lost: Any) -> Any:
    """The sum and what was lost, unless that is nothing or not finite: the sum keeps its sign and its infinity."""
    finite = choose(abs(lost) <= LARGEST, s + lost, s)
    return choose(lost == 0.0, s, finite)


def sumprod(args: tuple, kw: dict) -> Any:
    """Exact for floats, in ways that only plain ones have."""
    if len(args) == 2 and not kw:
        args = tuple([tuple(unpack(a)) for a in args])
        if any([type(x) in FLOATS for a in args for x in a]):
            args = with_numbers(args)
    return native(math.sumprod, args, kw)  # type: ignore[attr-defined]


if hasattr(math, "sumprod"):  # since 3.12
    LOOKASIDES[math.sumprod] = sumprod
