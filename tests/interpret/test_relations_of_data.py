"""What comes of comparing numbers from data is one relation: membership, `any` and `all`, tuples, `math`; what is taken out of a list
of texts at such a place, or formatted of it, is a text made late. The graph does not break for it.

Each is called with 16 floats, NaN and infinities among them, plainly, in a `try`, and behind and in front of a write.
"""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

import pliant
from pliant import events

FLOATS = [
    1.0, -1.0, 0.0, math.nan, math.inf, -math.inf, 709.0, 710.0, 709.782712893384, 2.0, 0.5, 1e308, -1e-320, 5.0, 1.0, 3.0,
]  # fmt: skip
WHOLE = """
f in (1.0, 2) | i in range(0, 3) | i in [i] | i in {1, "a", 2.0} | i in frozenset() | i not in (1, 2) | 3 in [i, i + 1] | i in (None, 2)
(f, 1) == (1.0, 1) | (i, "a") == (1, "a") | (i, None) == (1, "b") | [i, f] == [1, 1.0] | (i, 2) != (1, 2) | (i, i) == (1,) | [i] == [i]
any([f > 1, f < -1]) | all([f > 1, f < 5]) | any(f > a for a in (1, 2)) | all(f > a for a in (1, 2)) | any([f]) | all([f, 1])
any([f, "a"]) | any([0, f, None]) | any(i == a for a in [1, None, "x"]) | any(a is None for a in [None, i]) | all(a != i for a in {4, 5})
any(a and i == a for a in (0, 1, 2)) | any((i == 1, f == 1.0)) | any(i == a for a in range(2)) | all([]) | any(i in (a, 3) for a in [1, 2])
not i | not f | not (i > 1) | [not i, not f]
(f > 1) + (f > 2) | (f > 1) * 3.5 | 5 - (f > 1) | True + (i > 1) | (i > 1) - True | (i > 1) + (f > 1) + i
sum([i > 1, f > 1]) | i * (f > 1)
names[i] | names[i - 3] | names[-i] | tn[i % 3] | ["a", "b"][f > 1] | ("lo", "hi")[int(f > 1)] | names[y.sum().long() % 5]
[names[i], tn[i % 2]]
names[i] + "!" | f"{names[i]}-{i}" | {"k": names[i]} | f"{x[0]:.3f}" | f"{x[0]}" | "{:.2f} {}".format(x[0], i) | "%.2f and %d" % (f, i)
"%8.3f" % f
"%e" % f | str(f) + names[i] | max([f, 1.0, f * 2]) | min([f, f + 1, -f]) | int(x[0] > 1) | names[f > 100] | isinstance(names[i], str)
math.exp(min(f, 20)) | float(max(f, 1)) | math.sqrt(max(f, 0)) | math.tanh(max(2, f, 1.5))
math.isnan(f) | math.isinf(f) | math.isfinite(f) | math.atan(f) | math.tanh(f) | math.exp(i) | math.sqrt(i)
"""
RAISING = "math.sqrt(f) | math.log(f) | math.log2(f) | math.exp(f) | math.asin(f) | math.acos(f) | math.sin(f) | math.tan(f) | math.log(i)"
RAISING += " | math.exp(x[0]) | math.sqrt(x[0]) | names[i - 9] | tn[i * 7]"
OTHERS = """
[f] == [f] | (f,) != (f,) | f in [f] | i in range(0, 10, 2) | i in (True, 3) | i in (2**70, 3) | any(i > a for a in [1, None]) | f in (i, f)
names[i] == "b" | len(names[i]) | d.get(names[i]) | names[i].upper() | names[i % 2] is names[i % 2] | sorted([names[i], "b"])
hash(names[i])
names[i] or "none" | (names.append("z"), names[i]) | (names[i], names.append(names[i])) | max(f, 1) | [1, 2][f > 1] | "%.3f" % i
names[i:i + 2]
math.exp(min(20, f, i)) | math.tanh(max(i, f)) | str(min(f, 2)) | [min(f, 20)] | any(loud(a) for a in (1, i)) | any([i == 1, Loud()])
i in [Loud(), 1] | (i, Loud()) == (1, Loud()) | sum(i > a for a in (1, 2))
"""
"""What is decided by the program's own code, or by identity: eager's answer all the same."""

FORMS = {
    "plainly": "r = {}",
    "in a try": "r = None\n    try: r = {}\n    except ERRORS as e: r = type(e).__name__, str(e)",
    "among writes": "y.add_(1)\n    r = {}\n    y.add_(1)",
}
ERRORS = (ValueError, OverflowError, TypeError, IndexError)
SAID: list[Any] = []


class Loud:
    """Says when it is asked."""

    def __eq__(self, other: object) -> bool:
        SAID.append("eq")
        return False

    def __bool__(self) -> bool:
        SAID.append("bool")
        return True

    __hash__ = None  # type: ignore[assignment]


def loud(a: Any) -> bool:
    SAID.append("called")
    return a == 1


def expressions(text: str) -> list[str]:
    return [e.strip() for line in text.strip().splitlines() for e in line.split(" | ")]


def made(expression: str, form: str) -> Any:
    body = FORMS[form].format(expression)
    text = f"def f(x, y):\n    f = x[0].item()\n    i = y.sum().long().item() % 5\n    {body}\n    return r, x * 2\n"
    names = ["a", "b", "c", "dd", "e"]
    space = {"math": math, "Loud": Loud, "loud": loud, "names": names, "tn": ("p", "q", "r"), "d": {"a": 1, "b": 2}, "ERRORS": ERRORS}
    exec(compile(text, f"<{expression} {form}>", "exec"), space)
    return space["f"]


def outcome(fn: Any, x: torch.Tensor, y: torch.Tensor) -> list[Any]:
    SAID.clear()
    try:
        r, z = fn(x, y)
    except ERRORS as e:
        return [type(e).__name__, str(e), y.tolist(), SAID.copy()]
    return [repr(r), repr(z), y.tolist(), SAID.copy()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("expression", expressions(WHOLE + RAISING + OTHERS))
def test_relations_of_numbers_from_data(expression: str, form: str) -> None:
    fn, breaks = made(expression, form), []
    stop = events.subscribe(lambda e: breaks.append(e), kinds=("graph_break",))
    try:
        compiled = pliant.compile(made(expression, form), backend="aten")
        for n, value in enumerate(FLOATS):
            x = torch.tensor([value, 0.0], dtype=torch.float64)
            assert outcome(compiled, x, torch.full((2,), float(n))) == outcome(fn, x, torch.full((2,), float(n))), value
    finally:
        stop()
    if expression in expressions(WHOLE):
        assert not breaks
    elif expression in expressions(RAISING):  # a line that has raised more than once, ends the graph
        assert len(breaks) <= 1


def test_tokens_until_one_of_several() -> None:
    """Greedy decoding until one of the tokens that end a text: one graph, in which the loop is one operation."""

    def decode(table: torch.Tensor, token: int, stop: tuple, most: int):
        out = []
        for _ in range(most):
            token = table[token].argmax().item()
            out.append(token)
            if token in stop:
                break
        return out, table.sum()

    compiled, before = pliant.compile(decode, backend="aten"), pliant.stats()
    for i in range(12):
        torch.manual_seed(i)
        args = torch.randn(9, 9), i % 9, (i % 9, 3, 5), 20
        assert compiled(*args)[0] == decode(*args)[0]
    after = pliant.stats()
    assert after["graph_breaks"] == before["graph_breaks"] and after["captures"] - before["captures"] <= 2
