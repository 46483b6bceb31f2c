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

import re
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from pliant.graph.originals import operator
from pliant.graph.traced import TracedTensor
from pliant.interpret import shadows
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

    __slots__ = ("__weakref__", "branch", "firm", "key", "pieces")

    def __init__(
        self, pieces: tuple[str | Piece, ...] | None, firm: bool = False, key: tuple[str | Piece, ...] | None = None, branch: Any = None
    ) -> None:
        self.pieces = pieces
        self.branch = branch  # that has chosen it, as `vm.unjoined` knows it
        self.firm = firm
        self.key = pieces if key is None else key  # its pieces where it is looked up in a dict (`chosen`)
        if pieces is None and vm.late_texts is not None:
            vm.late_texts.append(weakref.ref(self))


def needed(self: Any, *_: Any) -> Any:
    """Every operator of a late text."""
    if self.firm:
        raise Break("PL0017", "the text of a value that changes on every call is used")
    if self.branch is not None:
        raise vm.unjoined(self.branch)
    raise TextNeeded


for _name in (
    "eq ne lt le gt ge add radd mul rmul mod rmod bool hash str repr format len iter getitem contains int float index call reduce_ex"
).split():
    setattr(LateText, f"__{_name}__", needed)


def formatted(value: Any, conversion: int, spec: Any, firm: bool) -> LateText | None:
    """`format(convert(value), spec)` made late, or None if it has to be made now. `firm`: `value` is not to be pinned."""
    firm = firm or unpinnable(value)
    if type(value) in CONTAINERS and spec == "" and conversion != 3 and (firm or vm.late_texts is not None):
        pieces = pieces_of(value)
        if pieces is not None and not all([type(p) is str for p in pieces]):
            return LateText(pieces, firm)
    if type(spec) is str and writable(value, conversion, spec):
        if type(value) is Opaque:
            hold_to_type(value)
        if firm or vm.late_texts is not None and late(value):
            return LateText((Piece(value, conversion, spec),), firm)
    if vm.late_texts is not None and late(value) and type(spec) is str and may_fit(value, conversion, spec):
        return LateText(None)
    return None


#: Containers whose text is made of those of their items: what stands before, between and behind these.
CONTAINERS: dict[type, tuple[str, str]] = {tuple: ("(", ")"), list: ("[", "]"), torch.Size: ("torch.Size([", "])"), dict: ("{", "}")}


def pieces_of(value: Any, depth: int = 0) -> tuple[str | Piece, ...] | None:
    """The pieces of `repr(value)`, of what formats itself and of containers of that; None if something else is in there."""
    t = type(value)
    if t is str or t in PLAIN:
        return (repr(value),)
    if t is not LateText and writable(value, 2, ""):
        if t is Opaque:
            hold_to_type(value)
        return (Piece(value, 2, ""),)
    if t not in CONTAINERS or depth > 4:
        return None
    shadows.read_all(vm.world, value)
    out: list[str | Piece] = [CONTAINERS[t][0]]
    for i, item in enumerate(value.items() if t is dict else value):
        out.append(", " if i else "")
        for j, part in enumerate(item if t is dict else (item,)):
            pieces = pieces_of(part, depth + 1)
            if pieces is None:
                return None
            out += [": ", *pieces] if j else pieces
    out.append(",)" if t is tuple and len(value) == 1 else CONTAINERS[t][1])
    return tuple(out)


def unpinnable(value: Any) -> bool:
    """Whether there is no number, or none that would hold for the next call, to make the text of now."""
    t = type(value)
    return t is Opaque or (value.firm if t is LateText else t in NUMBERS and value.node.expr.hint is None)


def varies(value: Any) -> bool:
    """Whether a number, or one in a text, has changed before or changes in each round of a loop: to pin it would be an entry for each."""
    if type(value) is LateText:
        values = [p.value for p in value.pieces or () if isinstance(p, Piece)]
        return any([type(v) not in NUMBERS or varies(v) for v in values])
    if type(value) is not torch.SymInt or not value.node.expr.backed:
        return False
    return any([s.info.source is not None and vm.history.varies(s.info.source) for s in value.node.expr.symbols()])


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


def may_fit(value: Any, conversion: int, spec: str) -> bool:
    """Whether to format this raises nothing, so that it may be left out where nobody reads the text. (That of a width may raise.)"""
    t = type(value)
    if t in NUMBERS:
        return fits(CONVERSIONS[conversion](NUMBERS[t](1)), spec)
    return not spec or t is LateText and fits("", spec)


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


def added(fn: Any, a: Any, b: Any) -> Any:
    """`a + b` of texts, one of which is made late. Every other operator needs the characters."""
    if fn in (operator.add, operator.iadd) and {type(a), type(b)} <= {str, LateText}:
        return joined([a, b])
    return needed(a if type(a) is LateText else b)


DIRECTIVE = re.compile(r"%(%|[srd]|(?:[1-9]\d*)?(?:\.\d+)?[fFeEgG])")


def percent(template: str, given: Any) -> LateText | None:
    """`template % given` made late; None if it has to be made now, or is to raise. Of directives, those without flags are known."""
    values = list(given) if issubclass(type(given), tuple) else [given]  # a shape is a tuple
    parts = DIRECTIVE.split(template)
    if not any(map(late, values)) or any("%" in words for words in parts[::2]):
        return None
    if sum(d != "%" for d in parts[1::2]) != len(values) or type(given) is dict:
        return None
    out: list[Any] = [parts[0]]
    for directive, words in zip(parts[1::2], parts[2::2], strict=True):
        if directive == "%":
            out += ["%", words]
            continue
        value = values.pop(0)
        if directive == "d" and type(value) not in (int, bool, torch.SymInt):
            return None
        if directive[-1] in "fFeEgG":
            value = vm.call(float, (value,), {}) if type(value) is TracedTensor else value
            if type(value) not in (float, torch.SymFloat):  # of an integer it is the text of a float
                return None
        spec = "" if directive in ("s", "r") else directive
        conversion = {"s": 1, "r": 2}.get(directive, 0)
        text: Any = formatted(value, conversion, spec, False)
        if text is None and type(value) not in PLAIN:
            return None
        out += [format(CONVERSIONS[conversion](value), spec) if text is None else text, words]
    return joined(out)


def late(value: Any) -> bool:
    t = type(value)
    return t in vm.late_types or t in TUPLES and any(map(late, value))


def check_forgotten() -> None:
    """At the end of a capture: a text that is still there and that nobody can make may be read by somebody."""
    if vm.late_texts and any(ref() is not None for ref in vm.late_texts):
        raise TextNeeded
