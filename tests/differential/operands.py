"""Operands that C code and the interpreter's shortcuts see: classes over C types with a few special methods of their own, numbers that
change beside constants of every kind, and which object it is that a program gets back.

`python -m tests.differential.operands 1000 500` runs 500 programs from number 1000 on. A program is one use of two operands, called
with several of each; its result, what it raises, which methods of the program's it has run, and what containers hold must be eager's.
"""

from __future__ import annotations

import collections
import copy
import decimal
import fractions
import math
import operator
import random
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pliant
from pliant.errors import InternalError
from tests.differential import numbered

told: list[str] = []
Use = Callable[[Any, Any], Any]

SYMBOLS = "add sub mul truediv floordiv mod pow matmul lshift rshift and_ or_ xor lt le eq ne gt ge".split()
BOTH: dict[str, Use] = {n: getattr(operator, n) for n in SYMBOLS} | {
    "in": lambda a, b: a in b, "in a list": lambda a, b: a in [b, 3], "counted": lambda a, b: [b, a].count(a),
    "found": lambda a, b: [b, a].index(a),
    "in tuples": lambda a, b: (a, 1) < (b, 2), "lists": lambda a, b: [a] == [b], "dicts": lambda a, b: {1: a} == {1: b},
    "largest": lambda a, b: max(a, b), "sorted": lambda a, b: sorted([a, b]), "divmod": lambda a, b: divmod(a, b),
    "and": lambda a, b: a and b,
    "or": lambda a, b: a or b, "not": lambda a, b: (not a) is b, "is": lambda a, b: a is b, "item": lambda a, b: b[a],
    "text": lambda a, b: f"{a}{b}",
    "percent": lambda a, b: "%s" % (a,), "key": lambda a, b: {1: 2}.get(a), "members": lambda a, b: len({a, b}),
}  # fmt: skip
ALONE: dict[str, Use] = {
    "neg": lambda a, b: -a, "pos": lambda a, b: +a, "abs": lambda a, b: abs(a), "invert": lambda a, b: ~a, "if": lambda a, b: 1 if a else 2,
    "len": lambda a, b: len(a), "list": lambda a, b: list(a), "walked": lambda a, b: [v for v in a], "unpacked": lambda a, b: [*a],
    "first": lambda a, b: a[0], "stored": lambda a, b: operator.setitem(a, 0, 5), "taken": lambda a, b: operator.delitem(a, 0),
    "repr": lambda a, b: repr(a), "int": lambda a, b: int(a), "float": lambda a, b: float(a), "index": lambda a, b: operator.index(a),
    "slice": lambda a, b: [1, 2, 3, 4][:a], "range": lambda a, b: len(range(a)), "reversed": lambda a, b: list(reversed(a)),
    "mapping": lambda a, b: dict(a), "stars": lambda a, b: dict(**a), "set": lambda a, b: len(set(a)), "sum": lambda a, b: sum(a),
    "any": lambda a, b: any(a), "zip": lambda a, b: list(zip(a, "xy", strict=False)), "round": lambda a, b: round(a),
    "copy": lambda a, b: copy.copy(a) == a,
    "deep": lambda a, b: type(copy.deepcopy(a)).__name__, "attribute": lambda a, b: setattr(a, "tag", 1),
    "tensor": lambda a, b: torch.ones(2) * a,
    "size": lambda a, b: torch.zeros(a).shape, "join": lambda a, b: "".join(a), "bytes": lambda a, b: bytes(a),
}  # fmt: skip

# -- classes over C types --------------------------------------------------------------------------------------------------
BASES: dict[type, tuple] = {
    list: ([1], [1, 2], []), set: ({1}, {2}, set()), dict: ({1: 2}, {}, {1: 3}), tuple: ((1,), (1, 2), ()), int: (1, 2, 0),
    float: (1.0, 2.0, 0.0),
    str: ("a", "b", ""), frozenset: ({1}, {2}, set()), bytes: (b"a", b"b", b""), complex: (1j, 2j, 0j),
    collections.OrderedDict: ({1: 2}, {}, {1: 3}),
    collections.deque: ([1], [2], []), collections.Counter: ("aab", "b", ""), collections.defaultdict: ({1: 2}, {}, {1: 3}),
}  # fmt: skip
ANSWERS: dict[str, Any] = {
    "len": 5, "bool": True, "hash": 7, "index": 2, "int": 4, "float": 2.5, "complex": 3j, "str": "S", "repr": "R", "format": "F",
    "contains": False,
    "bytes": b"q",
}  # fmt: skip
SPECIAL = (
    "eq ne lt le gt ge add radd sub rsub mul rmul truediv mod rmod pow and rand or ror xor lshift neg pos abs invert bool len hash "
    "iter contains getitem setitem delitem iadd imul ior repr str format int float index reversed missing matmul rmatmul round "
    "complex bytes copy"
).split()
OTHERS: dict[str, Callable[[], Any]] = {
    "tensor": lambda: torch.ones(3), "number": lambda: torch.tensor(2), "size": lambda: torch.Size([3]), "int": lambda: 3,
    "float": lambda: 1.5,
    "none": lambda: None, "text": lambda: "a", "list": lambda: [1], "tuple": lambda: (1,), "dict": lambda: {1: 2}, "set": lambda: {1},
    "dtype": lambda: torch.float32, "array": lambda: np.ones(3), "int64": lambda: np.int64(3), "float32": lambda: np.float32(3),
    "fraction": lambda: fractions.Fraction(1, 2), "decimal": lambda: decimal.Decimal(2), "object": object,
    "deque": lambda: collections.deque([1]),
}  # fmt: skip


def method(base: type, name: str, way: str) -> Any:
    theirs = getattr(base, f"__{name}__", None)
    if way == "none" or way == "theirs" and theirs is None:
        return None

    def said(self: Any, *args: Any) -> Any:
        told.append(name)
        if way == "theirs":
            return theirs(self, *args)
        return NotImplemented if way == "passes" else iter([7, 8]) if name in ("iter",
    "reversed") else ANSWERS.get(name, f"{name}{len(told)}")

    return said


def over_c(r: random.Random) -> tuple[str, Use, Callable[[int], tuple]]:
    base = r.choice(list(BASES))
    names = r.sample(SPECIAL, r.choice((1, 1, 2, 3)))
    ways = {name: r.choice(("answers", "answers", "answers", "passes", "theirs", "theirs", "none")) for name in names}
    cls: Any = type("Own", (base,), {f"__{name}__": method(base, name, way) for name, way in ways.items()})
    label, use = r.choice(list((BOTH | ALONE).items()))
    other, turned = r.choice([*OTHERS, "own", "plain"]), label in BOTH and r.random() < 0.4

    def made(kind: Any, i: int) -> Any:
        given = BASES[base][i % 3]
        return kind(int, given) if base is collections.defaultdict else kind(given)

    def operands(i: int) -> tuple:
        b = made(cls, i + 1) if other == "own" else made(base, i) if other == "plain" else OTHERS[other]()
        return (b, made(cls, i)) if turned else (made(cls, i), b)

    return f"{base.__name__} with {ways}, {other}, {label}{' turned' * turned}", use, operands


# -- numbers that change ----------------------------------------------------------------------------------------------------
CHANGING: dict[str, Callable[[Any, int, float], Any]] = {
    "size": lambda x, n, f: x.shape[0], "elements": lambda x, n, f: x.numel(), "int": lambda x, n, f: n, "float": lambda x, n, f: f,
    "half": lambda x, n, f: x.shape[0] / 2, "quotient": lambda x, n, f: n // 2, "negative": lambda x, n, f: -n,
    "square": lambda x, n, f: n * n,
    "comparison": lambda x, n, f: n > 3, "product": lambda x, n, f: f * n, "rest": lambda x, n, f: n % 3,
    "data": lambda x, n, f: x.sum().item(),
}  # fmt: skip
CONSTANTS: dict[str, Any] = {
    "1": 1, "0": 0, "-2": -2, "large": 2**70, "2.5": 2.5, "0.0": 0.0, "inf": math.inf, "nan": math.nan, "True": True,
    "fraction": fractions.Fraction(1, 3),
    "decimal": decimal.Decimal("1.5"), "int64": np.int64(3), "float32": np.float32(1.5), "float64": np.float64(0.5), "uint8": np.uint8(200),
    "bool_": np.bool_(True), "complex": 1 + 2j, "text": "ab", "list": [1, 2], "tuple": (1, 2), "number": torch.tensor(2),
    "tensor": torch.ones(2),
    "none": None, "size": torch.Size([2, 3]), "array": np.ones(2), "set": {1}, "bytes": b"a", "range": range(3),
}  # fmt: skip
OF_NUMBERS: dict[str, Use] = {
    "hypot": math.hypot, "atan2": math.atan2, "fmod": math.fmod, "copysign": math.copysign, "isclose": math.isclose, "gcd": math.gcd,
    "comb": math.comb,
    "remainder": math.remainder, "modular": lambda a, b: pow(a, b, 7), "round": lambda a, b: round(a, b),
    "complex": lambda a, b: complex(a, b),
    "fsum": lambda a, b: math.fsum([a, b]), "total": lambda a, b: sum([a, b]), "whole": lambda a,
    b: (math.floor(a), math.ceil(a), math.trunc(a)),
    "kinds": lambda a, b: (isinstance(a, int), isinstance(a, float), type(a).__name__), "bits": lambda a, b: a.bit_length() + b,
    "ratio": lambda a, b: a.as_integer_ratio(), "parts": lambda a, b: (a.real, a.imag), "root": lambda a, b: math.sqrt(a),
    "log": lambda a, b: math.log(a, b),
    "letters": lambda a, b: "abcdefgh"[a:b], "filled": lambda a, b: torch.full((2,), a) * b,
    "clamped": lambda a, b: torch.arange(5.0).clamp(a, b),
    "range": lambda a, b: list(range(a, a + 3)), "own power": lambda a, b: a**a, "hashes": lambda a, b: hash(a) == hash(b),
}  # fmt: skip
CALLS = ((3, 3, 0.5), (5, 4, 1.5), (2, 7, -2.0), (3, 3, 0.5), (0, 0, 0.0), (1, 1, 1.0))


def of_numbers(r: random.Random) -> tuple[str, Callable, Callable[[int], tuple]]:
    kind, beside = r.choice(list(CHANGING)), r.choice(list(CONSTANTS))
    label, use = r.choice(list((BOTH | OF_NUMBERS).items()))
    turned = r.random() < 0.35
    number = CHANGING[kind]

    def program(x: torch.Tensor, n: int, f: float, b: Any) -> Any:
        a = number(x, n, f)
        return use(b, a) if turned else use(a, b)

    def operands(i: int) -> tuple:
        size, n, f = CALLS[i % len(CALLS)]
        return torch.ones(size, 2), n, f, copy.deepcopy(CONSTANTS[beside])

    return f"{kind} beside {beside}, {label}{' turned' * turned}", program, operands


# -- which object comes back ------------------------------------------------------------------------------------------------
class Held:
    def __init__(self, value: Any) -> None:
        self.value = value


KEPT: dict[str, Callable[[Any, Held, dict, list], Any]] = {
    "argument": lambda v, o, d, s: v, "attribute": lambda v, o, d, s: o.value, "item": lambda v, o, d, s: d["k"],
    "of a list": lambda v, o, d, s: s[0],
    "stored": lambda v, o, d, s: (setattr(o, "other", v), o.other)[1], "appended": lambda v, o, d, s: (s.append(v), s[-1])[1],
    "of an object": lambda v, o, d, s: Held(v).value, "behind a break": lambda v, o, d, s: (print(end=""), v)[1],
    "taken": lambda v, o, d, s: d.pop("k"),
    "of a closure": lambda v, o, d, s: (lambda: v)(), "nested": lambda v, o, d, s: {"a": (v, [v])}["a"][1][0],
    "or": lambda v, o, d, s: v or 3,
}  # fmt: skip
ANEW: list[Callable[[int], Any]] = [
    lambda i: float(f"{i}.5"), lambda i: int(f"{i + 1}000001"), lambda i: "".join(["a b", str(i)]), lambda i: bytes(bytearray([65, i])),
    lambda i: complex(f"{i}j"), lambda i: int(f"{i + 1}{'0' * 30}"), lambda i: (i, float(f"{i}.5")), lambda i: fractions.Fraction(i, 7),
]  # fmt: skip


def kept(r: random.Random) -> tuple[str, Callable, Callable[[int], tuple]]:
    label, found = r.choice(list(KEPT.items()))
    new, same, order = r.choice(ANEW), r.random() < 0.5, [r.randrange(3) for _ in CALLS]

    def program(x: torch.Tensor, v: Any, o: Held, d: dict, s: list) -> Any:
        y = x * 2
        got = found(v, o, d, s)
        return y, got

    def operands(i: int) -> tuple:
        v = new(order[i % len(order)])
        w = v if same else new(order[i % len(order)])
        return torch.ones(2), v, Held(w), {"k": w}, [w]

    return f"{label}, {'one' if same else 'two'} of {new(1)!r}", program, operands


def which(operands: tuple, result: Any) -> Any:
    """Which of the operands a result is."""
    y, got = result
    return y.tolist(), repr(got), got is operands[1], got is operands[4][0]


# -- comparing -----------------------------------------------------------------------------------------------------------------
def words(v: Any) -> Any:
    """A result, as far as eager says the same twice: addresses are left out, and floats are rounded."""
    if isinstance(v, torch.Tensor):
        return "Tensor", str(v.dtype), tuple(v.shape), [words(e) for e in v.flatten().tolist()]
    if isinstance(v, np.ndarray):
        return "array", str(v.dtype), v.shape, [words(e) for e in v.flatten().tolist()]
    if type(v) in (list, tuple):
        return type(v).__name__, [words(e) for e in v]
    if type(v) is float and math.isfinite(v):
        return "float", float(f"{v:.6g}"), math.copysign(1, v)
    try:
        return type(v).__name__, re.sub(r" at 0x\w+", "", repr(v))
    except Exception as e:
        return type(v).__name__, type(e).__name__


def holds(v: Any) -> Any:
    """What a container of a class of the program's holds."""
    for base in (list, dict, set, frozenset, tuple):
        if isinstance(v, base):
            walked = (dict.items if base is dict else base.__iter__)(v)  # type: ignore[attr-defined]
            return words(list(walked)), sorted(getattr(v, "__dict__", ()))
    return None


FAMILIES = (over_c, of_numbers, kept)


def examine(number: int) -> str | None:
    """What program `number` does wrong, in words."""
    r = random.Random(number)
    family = FAMILIES[number % len(FAMILIES)]
    label, use, operands = family(r)
    program = (lambda x, a, b: use(a, b)) if family is over_c else use
    pliant.reset()
    compiled = pliant.compile(program, backend="aten", strict=True)
    for i in range(len(CALLS)):
        outcomes = []
        for run in (program, compiled):
            told.clear()
            try:
                given = operands(i)
                given = (torch.ones(1), *given) if family is over_c else given
                result = run(*given)
                seen = which(given, result) if family is kept else words(result)
                outcomes.append((seen, list(told), [holds(g) for g in given]))
            except InternalError as e:
                outcomes.append(("an internal error", str(e)))
            except Exception as e:
                outcomes.append((type(e).__name__, list(told)))
        if outcomes[0] != outcomes[1]:
            want, got = outcomes
            return f"{number}: {label}, call {i}: want {want!r:.160}, got {got!r:.200}"
    return None


if __name__ == "__main__":
    numbered.main(examine, len(CALLS))
