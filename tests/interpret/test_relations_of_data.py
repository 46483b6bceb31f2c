"""What comes of comparing numbers from data is one relation: membership, `any` and `all`, tuples, `math`; what is taken out of a list
of texts at such a place, or formatted of it, is a text made late. The graph does not break for it.

Each is called with 16 floats, NaN and infinities among them, plainly, in a `try`, and behind and in front of a write.
"""

from __future__ import annotations

import bisect
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
(i, NAN) == (1, NAN) | [i, NAN] != [1, NAN] | NAN in (i, NAN) | i in (1, NAN) | (i, f) < (2, 1.0) | (i, 2) <= (2, 1, 5) | [i] > []
(i, "a") >= (1, "b")
(f, 1) < (1.0, 2) | (1, i) > (1, 2)
i > 1 and f > 1 | f > 1 or i == 2 | i or 7 | 0 < i < 3 | i == 2 == f | (x > 0).any() and x.sum() > 1 | not (x > 0).any()
not x[0] and i > 1
round(f, 1) | round(f, -2) | math.hypot(f, i) | math.gcd(i, 6) | math.copysign(i, f) | math.erf(f) | math.atan2(f, i) | math.fabs(f)
pow(i, 3, 5)
nums[i] | nums[-i] | nums[(i > 2)] | floats[i] | [i, 3, i + 1][i % 3] | (f, 1.5, -f)[i % 3] | flags[i] | [f > 1, i > 2][i % 2] | "abcde"[i]
keys[i * 2] | {0: 1.5, 1: f, 2: -f, 3: 0.0, 4: f}[i] | {0: "a", 1: "b", 2: "c", 3: "d", 4: "e", "k": 1}[i] | i in keys | f in keys
i in {1: "a", "b": 2}
"".join(names[j % 5] for j in (i, 1, i + 2)) | x[[i % 2, 0]] | x[[i % 2]]
"""
RAISING = "math.sqrt(f) | math.log(f) | math.log2(f) | math.exp(f) | math.asin(f) | math.acos(f) | math.sin(f) | math.tan(f) | math.log(i)"
RAISING += " | math.exp(x[0]) | math.sqrt(x[0]) | names[i - 9] | tn[i * 7]"
RAISING += " | nums[i + 2] | [1, 2][i] | keys[i] | {1: 'a', 2: 'b'}[i] | math.log10(f) | math.fmod(f, i) | math.isqrt(i - 2) | 'ab'[i]"
LISTS = """
sorted(xs) | sorted(ns, reverse=True) | sorted(ns + [2]) | sorted(range(4), key=xs.__getitem__)
sorted(range(4), key=lambda j: ns[j], reverse=True)
sorted("abcd", key=lambda c: xs["abcd".index(c)]) | sorted([5, 3, 1], key=lambda v: ns[v % 4]) | sorted(xs, key=lambda v: -v)
sorted([1, i])
max(range(4), key=lambda j: xs[j]) | min(range(4), key=xs.__getitem__) | max(ns, key=lambda v: -v)
max("abcd", key=lambda c: ns["abcd".index(c)])
xs.index(max(xs)) | xs.index(min(xs)) | ns.index(ns[2]) | ns.count(2) | xs.count(1.0) | (x > 0).tolist().count(True) | ns.index(max(ns))
ns[ns[0] % 4] | xs[ns[1] % 4] | nums[ns[0] % 5] | table.index(table[i]) | table.count(i) | (ns[0], i, 2).count(2) | (ns.sort(), ns)
(ns.sort(reverse=True), ns) | (xs.sort(), xs) | [ns[j] for j in sorted(range(4), key=xs.__getitem__)] | (1.5, xs[0])[ns[0] % 2]
NAN in [*xs, NAN]
any(v > 2 for v in x) | all(v < 3 for v in x) | sum(1 for v in xs if v > 0) | next((j for j, v in enumerate(xs) if v > 0), -1)
sum(v for v in ns if v % 2 == 0) | sum(p > q for p, q in zip(xs, ns)) | next((v for v in xs if v < 0), 0.5)
sum(1 for j in range(4) if x[j] > x[0])
all(a <= b for a, b in zip(xs, xs[1:])) | sum(v if v > 1 else -v for v in ns if v != 1) | any(v > 1 and v < 4 or v == -1 for v in x)
any(v == 1 for v in ns if v != i) | sum((1 for v in ns if v > 1), i)
"""
LISTS += """
math.hypot(x[0], 1.0) | math.erf(x.mean()) | math.atan2(x[0], x[1])
"yes" if i > 2 else "no" | f"{i} " + ("p" if i > 2 else "q" if i > 1 else "r") | {"k": "a" if f > 1 else "b"} | "%.3f" % x.mean()
"%s %.2f" % (i, x[0])
keys.get(i, -1) | {1: "a", 2: "b"}.get(i, "c") | {True: 1, False: 2}[i > 2] | {True: "a"}.get(f > 1, "b") | {0: f, 2: 1.0}.get(i, 0.5)
bisect.bisect([0.1, 0.5, 1.0], f) | bisect.bisect_left([1, 2, 2, 5], i) | bisect.bisect_left([0.5, 1.0], f) | bisect.bisect(bounds, i)
"""
LISTS_RAISING = "\nns.index(7) | xs.index(2.0) | xs.index(max(x.tolist())) | ns[ns[0] + 3]"
LISTS_OTHERS = """
keys.get(i) | {True: 1}[i > 2] | {1: "a", 2: 1}.get(i, 3) | {i: 1}.get(2, 5) | {1: 2}.get(f, 3) | keys.get(i, None) | {}.get(i, 1)
"a" if ("yes" if i > 2 else "no") == "yes" else "b" | {"yes": xs, "no": ns}["yes" if i > 2 else "no"] | len("abc" if i > 2 else "d")
"%d" % x[0]
("p" if i > 2 else "q") in names | "%.3f" % x | bisect.bisect([3, 1], i) | bisect.bisect([1, NAN], f) | bisect.bisect(floats, f)
sorted(xs, key=lambda v: (SAID.append(1), v)[1]) | max(range(4), key=lambda j: (SAID.append(j), xs[j])[1]) | sorted(map(loud, ns))
xs.index(xs[1])
max(range(3), key=lambda j: (SAID.append(j), [1, "a", 2][j])[1]) | sorted([*xs, 1]) | xs.count(xs[0]) | max([*ns, Loud()], key=lambda v: 1)
x[[i]] | ns.index(ns[0] + 1) | sorted([(xs[0], 1), (xs[1], 2)]) | ns.index(1, 1) | sorted(ns, key=loud)
min(names, key=lambda v: [loud(1), xs[0]][1]) | sorted(zip(ns, names))
sum(v for v in xs if v > 0) | sum(1 for v in xs if loud(v)) | next((v for v in ns if v > 1), 0.5) | next((v for v in ns if v > 1), None)
sum(a != b for a in ns for b in (i, 2)) | sum(10 // v for v in ns if v > 0) | any(names[v] == "a" for v in (i, 1))
any(v is NAN for v in (NAN, f)) | next(v for v in ns if v > 1)
(math.hypot(f, "a"), 1) | [1, 2.0, i][i % 3] | [None, 1][i % 2] | {1: 1, 2: 2.0}[i % 2 + 1] | {1.0: 2}[i] | {True: 1, 0: 2}[i % 2]
"""
OTHERS = """
[f] == [f] | (f,) != (f,) | f in [f] | i in range(0, 10, 2) | i in (True, 3) | i in (2**70, 3) | any(i > a for a in [1, None]) | f in (i, f)
names[i] == "b" | len(names[i]) | d.get(names[i]) | names[i].upper() | names[i % 2] is names[i % 2] | sorted([names[i], "b"])
hash(names[i])
f and i > 2 | names[i] or "none" | (names.append("z"), names[i]) | (names[i], names.append(names[i])) | max(f, 1) | [1, 2][f > 1]
"%.3f" % i
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
ERRORS = (ValueError, OverflowError, TypeError, IndexError, KeyError, ZeroDivisionError)
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
    return [e.strip() for line in text.strip().splitlines() if line for e in line.split(" | ")]


def made(expression: str, form: str) -> Any:
    body = FORMS[form].format(expression)
    lists = "xs = x.tolist()\n    ns = (y * 3).long().tolist()" if expression not in expressions(WHOLE + RAISING + OTHERS) else "pass"
    text = f"def f(x, y):\n    f = x[0].item()\n    i = y.sum().long().item() % 5\n    {lists}\n    {body}\n    return r, x * 2\n"
    names = ["a", "b", "c", "dd", "e"]
    space: dict[str, Any] = {"math": math, "bisect": bisect, "bounds": [1, 2, 4], "Loud": Loud}
    space |= {"loud": loud, "names": names, "tn": ("p", "q", "r"), "d": {"a": 1, "b": 2}, "ERRORS": ERRORS}
    space |= {
        "NAN": math.nan, "nums": [5, -7, 2**40, 2, 0],
        "floats": [0.5, -0.0, math.nan, 1.0, 2.0], "flags": [True, False, True, True, False],
    }
    space |= {"keys": {0: 5, 2: 7, 4: -1, 6: 9, 8: 0, "a": 3}, "table": [3, 1, 2, 4, 0], "SAID": SAID}
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
@pytest.mark.parametrize("expression", expressions(WHOLE + RAISING + OTHERS + LISTS + LISTS_RAISING + LISTS_OTHERS))
def test_relations_of_numbers_from_data(expression: str, form: str) -> None:
    fn, breaks = made(expression, form), []
    stop = events.subscribe(lambda e: breaks.append(e), kinds=("graph_break",))
    try:
        compiled = pliant.compile(made(expression, form), backend="aten")
        for n, value in enumerate(FLOATS):
            more = [0.0, 1.0, -0.0] if expression not in expressions(WHOLE + RAISING + OTHERS) else [0.0]
            x, y = torch.tensor([value, *more], dtype=torch.float64), torch.tensor([n, n % 3, 1, n % 2][: len(more) + 1]).double()
            assert outcome(compiled, x, y.clone()) == outcome(fn, x, y.clone()), value
    finally:
        stop()
    if expression in expressions(WHOLE + LISTS):
        assert not breaks
    elif expression in expressions(RAISING + "\n" + LISTS_RAISING):  # a line that has raised more than once, ends the graph
        assert len(breaks) <= 1


def test_what_is_left_of_a_generator() -> None:
    """What CPython has not asked a generator for, when `any` or `next` stops, is there for whoever asks next."""

    def by_name(xs: list) -> Any:
        g = (v > 1 for v in xs)
        return any(g), list(g)

    def its_iterator(xs: list) -> Any:
        it = iter(xs)
        return any(v > 1 for v in it), list(it)

    def in_zip(xs: list) -> Any:
        it = iter(xs)
        return any(a > b for a, b in zip(it, it)), list(it)

    def in_a_list(xs: list) -> Any:
        gs = [(j for j, v in enumerate(xs) if v > 0)]
        return next(gs[0], -1), sum(gs[0])

    def in_an_object(xs: list) -> Any:
        class Holder:
            pass

        o = Holder()
        o.g = (v > 0 for v in xs)  # type: ignore[attr-defined]
        return any(o.g), list(o.g)  # type: ignore[attr-defined]

    def given_on(xs: list) -> Any:
        return (lambda g: (all(g), list(g)))(v < 1 for v in xs)

    for fn in (by_name, its_iterator, in_zip, in_a_list, in_an_object, given_on):

        def f(x: torch.Tensor, fn: Any = fn) -> Any:
            return fn(x.tolist()), x * 2

        compiled = pliant.compile(f, backend="aten")
        for n in range(8):
            torch.manual_seed(n)
            x = torch.randn(4) * 2
            assert compiled(x)[0] == f(x)[0], fn


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
