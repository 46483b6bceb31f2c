"""Text made of what is known only when the graph runs.

`f"call {step}: {n_tokens} tokens"` formats a size, a number that changes on every call, or a tensor. Formatting gives a `LateText`
instead, which may be kept and passed on. Of what its text is made, its `pieces` say: characters, and numbers and strings with a format.
Emitted code makes the text from these, so it may be printed, returned, stored, carried over a graph break. A text without pieces (the
value of a tensor) is thrown away with the check that did not fail, or else is not made late.

Whoever asks for the characters of a text gets them in one of two ways:
- `TextNeeded`: the capture begins again and formats at once, with the graph break or the pinned size that this costs;
- of a `firm` text, made of a value that is not to be pinned (it is opaque, or pinning it has failed before), the graph breaks there.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pliant.interpret.opaque import Opaque
from pliant.interpret.state import Break, Restart, vm

TUPLES = {tuple, torch.Size}  # shapes, mostly
NUMBERS = {torch.SymInt: int, torch.SymFloat: float, torch.SymBool: bool}
PLAIN = {str, int, float, bool, type(None)}  # what formats itself, running no code of the program
CONVERSIONS = (lambda v: v, str, repr, ascii)


class TextNeeded(Restart):
    """Interpret again from the start, making every text when the program makes it."""

    def __init__(self) -> None:
        super().__init__(-1, -1, "PL0005", "the text of a value known only at run time is used")


class Piece(NamedTuple):
    """`format(convert(value), spec)`: `value` a symbolic number, a late text, or an opaque value of a plain type."""

    value: Any
    conversion: int
    spec: str


class LateText:
    """Stands for a string that nobody has read yet."""

    __slots__ = ("__weakref__", "firm", "key", "pieces")

    def __init__(self, pieces: tuple[str | Piece, ...] | None, firm: bool = False, key: tuple[str | Piece, ...] | None = None) -> None:
        self.pieces = pieces
        self.firm = firm
        self.key = pieces if key is None else key  # its pieces where it is looked up in a dict (`chosen`)
        if pieces is None and vm.late_texts is not None:
            vm.late_texts.append(weakref.ref(self))


def needed(self: Any, *_: Any) -> Any:
    """Every operator of a late text."""
    if self.firm:
        raise Break("PL0017", "the text of a value that changes on every call is used")
    raise TextNeeded


for _name in (
    "eq ne lt le gt ge add radd mul rmul mod rmod bool hash str repr format len iter getitem contains int float index call reduce_ex"
).split():
    setattr(LateText, f"__{_name}__", needed)


def formatted(value: Any, conversion: int, spec: Any, firm: bool) -> LateText | None:
    """`format(convert(value), spec)` made late, or None if it has to be made now. `firm`: `value` is not to be pinned."""
    firm = firm or unpinnable(value)
    if type(spec) is str and writable(value, conversion, spec):
        if type(value) is Opaque:
            hold_to_type(value)
        if firm or vm.late_texts is not None and late(value):
            return LateText((Piece(value, conversion, spec),), firm)
    if vm.late_texts is not None and (late(value) or late(spec)):
        return LateText(None)
    return None


def unpinnable(value: Any) -> bool:
    """Whether there is no number, or none that would hold for the next call, to make the text of now."""
    t = type(value)
    return t is Opaque or (value.firm if t is LateText else t in NUMBERS and value.node.expr.hint is None)


def hold_to_type(value: Opaque) -> None:
    """Who makes text of it later must find what formats itself."""
    t = type(value.value)
    vm.world.guard(value.source, *(("INT",) if t is int else ("TYPE_MATCH", t)))


def writable(value: Any, conversion: int, spec: str) -> bool:
    """Whether emitted code can format this. A format fits all values of a type or none; one that would raise is not made late."""
    t = type(value)
    if t is LateText:
        return value.pieces is not None and (not spec or conversion == 0 and fits("", spec))
    if t is Opaque:
        sample = value.value
        if type(sample) not in PLAIN or type(sample) is int and abs(sample) >> 63:
            return False
    elif t in NUMBERS:
        sample = NUMBERS[t](1)
    else:
        return False
    return fits(CONVERSIONS[conversion](sample), spec)


def fits(sample: Any, spec: str) -> bool:
    if spec.endswith("c"):  # of numbers, characters: not of all
        return False
    try:
        format(sample, spec)
    except ValueError:
        return False
    return True


def joined(parts: list[Any]) -> LateText | None:
    """The text of these parts of an f-string, some of them late; None if they are all there."""
    pieces: list[str | Piece] = []
    firm = whole = False
    known = True
    for part in parts:
        t = type(part)
        if t is str:
            pieces.append(part)
            continue
        whole = True
        if t is not LateText:  # opaque: carried here from before a graph break
            part = formatted(part, 0, "", True)
        if part is None:
            raise Break("PL0017", "a part of a text changes on every call", clean=True)
        known = known and part.pieces is not None
        if part.key is None:
            return LateText(None)
        firm = firm or part.firm
        pieces += part.key
    if not whole:
        return None
    return LateText(tuple(pieces), firm) if known else LateText(None, key=tuple(pieces))


def of_item(number: Any) -> LateText:
    """The text of a tensor that is this one integer. Nobody can make it, but it may be the key of a dict."""
    return LateText(None, key=(Piece(number, 0, ""),))


def chosen(d: dict, k: LateText, answers: Callable[[Any], bool], last: Callable[[Any], bool]) -> Any:
    """The key of `d` that this text is: a branch on its number for each that it may be, but for the last one. `k` where none can be."""
    numbers = [i for i, p in enumerate(k.key or ()) if type(p) is not str]
    if k.key is None or len(numbers) != 1:
        return k
    piece: Any = k.key[numbers[0]]
    if type(piece.value) is not torch.SymInt or piece.conversion not in (0, 1) or piece.spec:
        return k
    before, behind = ("".join(part) for part in (k.key[: numbers[0]], k.key[numbers[0] + 1 :]))  # type: ignore[arg-type]
    found: dict[str, int] = {}
    for name in dict.keys(d):
        if type(name) is str and name.startswith(before) and name.endswith(behind):
            n = name[len(before) : len(name) - len(behind)]
            if n.removeprefix("-").isdecimal() and str(int(n)) == n:
                found[name] = int(n)
    if not found:
        return k
    *others, final = found.items()
    for name, number in others:
        if answers(piece.value == number):
            return name
    return final[0] if last(piece.value == final[1]) else k


def late(value: Any) -> bool:
    t = type(value)
    return t in vm.late_types or t in TUPLES and any(map(late, value))


def check_forgotten() -> None:
    """At the end of a capture: a text that is still there and that nobody can make may be read by somebody."""
    if vm.late_texts and any(ref() is not None for ref in vm.late_texts):
        raise TextNeeded


__all__ = [
    "LateText", "Piece", "TextNeeded", "check_forgotten", "chosen", "formatted", "hold_to_type", "joined", "needed", "of_item",
    "writable",
]  # fmt: skip
