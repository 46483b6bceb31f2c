"""What special methods answer is checked as CPython checks it; members of flags, tokens of context variables and caches that are full."""

from __future__ import annotations

import contextvars
import enum
import functools
from typing import Any

import pytest
import torch

from tests.helpers import Observed, check_world, pliant

SETS = [(torch.ones(m), n) for m, n in ((2, 3), (3, 4), (2, 5), (2, 6), (5, 0), (2, 1), (3, 2), (1, 3))]

WORLD = """
class Answers:
    def __init__(self, n, make):
        self.n, self.make = n, make
    def answer(self, *_):
        return self.make(self.n)
    def __eq__(self, other):
        return True
    __hash__ = __len__ = __bool__ = __index__ = __float__ = __int__ = __str__ = __repr__ = __iter__ = __contains__ = __format__ = answer
    __complex__ = __round__ = __bytes__ = __dir__ = answer

class Small(int):
    pass

def tried(f, *args):
    try:
        return f(*args)
    except Exception as e:
        return type(e).__name__, str(e)

KINDS = (int, float, bool, str, Small, lambda v: -1, lambda v: -v, lambda v: None, lambda v: 2**61 - 1 + v, lambda v: 2**64 + v,
    lambda v: Small(-1), lambda v: iter([v]))

class Bits(enum.Flag):
    R = 1
    W = 2
    X = 4

class Numbers(enum.IntFlag):
    R = 1
    W = 2
    X = 4

class Open(enum.Enum):
    A = 1
    @classmethod
    def _missing_(cls, value):
        made = object.__new__(cls)
        made._value_, made._name_ = value, f"made {value}"
        cls._value2member_map_[value] = made
        return made

VAR = contextvars.ContextVar("var", default=3)

@functools.lru_cache(maxsize=3)
def noted(k):
    SEEN.append(k)
    return k * 3

@functools.lru_cache(maxsize=2)
def narrow(k):
    return k * 2
"""

ASKED = {
    "hash": "hash(o)", "set": "len({o})", "len": "len(o)", "bool": "bool(o)", "if": "1 if o else 2", "index": "[1, 2, 3, 4, 5, 6][o]",
    "slice": "[1, 2, 3][o:]", "float": "float(o)", "int": "int(o)", "str": "str(o)", "format": "f'{o}{o!r}'", "iter": "next(iter(o))",
    "for": "[v for v in o]", "in": "3 in o", "complex": "complex(o)", "round": "round(o)", "range": "list(range(o)[:9])", "dir": "dir(o)",
}  # fmt: skip


def world(body: str) -> Any:
    def make() -> tuple:
        space: dict[str, Any] = {
            "torch": torch, "enum": enum, "contextvars": contextvars, "functools": functools, "pliant": pliant, "SEEN": [],
        }  # fmt: skip
        exec(WORLD, space)
        exec("def fn(x, n):\n" + "".join(f"    {line}\n" for line in body.splitlines()), space)
        return space["fn"], Observed(lambda: [space["SEEN"], space["VAR"].get(), sorted(map(str, space["Bits"]._value2member_map_))])

    return make


@pytest.mark.parametrize("how", ASKED)
def test_answers_are_checked(how):
    body = f"return x + 1, [tried(lambda o: {ASKED[how]}, Answers(n, make)) for make in KINDS]"
    check_world(world(body), *SETS[:5], must_compile=False, lines=False)


OTHERS = {
    "flag": "SEEN.append((Bits(n) | Bits.R).value)\nreturn x + 1",
    "value of a flag": "return x + Bits(n).value",
    "flag of a size": "return x + Bits(x.shape[0] + 1).value",
    "flag, the same one": "return x, Bits(n) is Bits(n), Bits.R in Bits(n), {Bits(n): 2}[Bits(n)], ~Bits(n)",
    "texts of a flag": "return x, (Bits.R | Bits(n)).value, str(Bits(n)), len(Bits(n)), [b for b in Bits(n)]",
    "int flag": "return x + Numbers(n).value + (Numbers(n) | 1), Numbers(n), Numbers.X ^ n",
    "missing member": "return x + 1, Open(n).name, Open(n).value",
    "default of a variable": "return x + VAR.get() + VAR.get(n)",
    "token": "t = VAR.set(n)\npliant.graph_break()\na = VAR.get()\nVAR.reset(t)\nreturn x + a",
    "two tokens": "t = VAR.set(n)\nu = VAR.set(n + 1)\nSEEN.append(VAR.get())\nVAR.reset(u)\npliant.graph_break()\n"
    "VAR.reset(t)\nreturn x + VAR.get()",
    "old value": "t = VAR.set(n)\nSEEN.append(t.old_value is contextvars.Token.MISSING)\nVAR.reset(t)\nreturn x + 1",
    "token in a list": "t = [VAR.set(x.shape[0])]\ny = x.sum().item() if n > 3 else 0\nVAR.reset(t[0])\nreturn x + VAR.get() + y",
    "token used twice": "t = VAR.set(n)\nVAR.reset(t)\ntry:\n    VAR.reset(t)\nexcept RuntimeError:\n    SEEN.append('twice')\n"
    "return x + 1",
    "cache": "SEEN.append('a')\ny = x + noted(n)\nSEEN.append('b')\nreturn y * noted(n + 1) + noted(n)",
    "cache with effects alone": "return x + noted(n)",
    "cache that is full": "return x + narrow(n) + narrow(n + 1) + narrow(1)",
}


@pytest.mark.parametrize("case", OTHERS)
def test_members_tokens_caches(case):
    check_world(world(OTHERS[case]), *SETS, must_compile=False, lines=False)


def test_special_methods_with_two_names():
    """`__hash__ = key`: what C code asks for is an int, and the class may be given another one later."""

    def make() -> Any:
        class Key:
            def __init__(self, n: int) -> None:
                self.n = n

            def key(self) -> int:
                return self.n % 2

            def same(self, other: Any) -> bool:
                return self.n % 2 == other.n % 2

            def size(self) -> int:
                return self.n

            __hash__, __eq__, __index__ = key, same, size  # type: ignore[assignment]
            __repr__ = __str__ = lambda self: f"k{self.n}"

        def fn(x, n):
            k = Key(n)
            return x + 1, len({k, Key(n + 2), Key(n + 1)}), list(range(9))[k], f"{k}{k!r}", [3, 1][k:], Key

        return fn, Key

    def before(i: int, cls: Any) -> None:
        changes = {
            3: ("__hash__", lambda s: 5 * s.n), 5: ("__eq__", lambda s, o: True), 6: ("__index__", lambda s: 0),
            7: ("__repr__", lambda s: "r"),
        }  # fmt: skip
        if i in changes:
            setattr(cls, *changes[i])

    check_world(make, *[(torch.ones(2), n) for n in (3, 4, 2, 3, 4, 3, 4, 3, 4)], before=before, must_compile=False)
