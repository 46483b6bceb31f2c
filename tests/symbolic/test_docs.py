"""docs/symbolic.md does what it says: its first example runs, and its worked example makes an operator."""

from __future__ import annotations

import math
import random
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace

import pytest

from pliant.symbolic import Expr, Scope, intervals, ops, rules
from pliant.symbolic.expr import TABLE
from pliant.symbolic.static import static_range

PAGE = (Path(__file__).parents[2] / "docs" / "symbolic.md").read_text()
BLOCKS = [textwrap.dedent(b) for b in re.findall(r"^ *```python\n(.*?)^ *```", PAGE, re.S | re.M)]


def test_the_first_example() -> None:
    """Each line's comment begins with what the line gives."""
    scope_code = {"Scope": Scope, "site": "here"}
    checked = 0
    for line in BLOCKS[0].splitlines():
        code, _, comment = (part.strip() for part in line.partition("#"))
        said = re.match(r"(True|False|\d+)\b", comment)
        if said is None:
            exec(code, scope_code)
            continue
        assert str(eval(code, scope_code)) == said[1], line
        checked += 1
    assert checked >= 5


@pytest.fixture
def gcd(monkeypatch: pytest.MonkeyPatch):
    """The operator, made from the page's own lines."""
    row, make, rule = (next(b for b in BLOCKS if b.startswith(start)) for start in ("_row(", "def make_gcd", "def gcd"))
    in_rules, in_intervals = dict(vars(rules)), dict(vars(intervals))
    exec(make, in_rules)
    exec(rule, in_intervals)
    monkeypatch.setattr(ops, "TABLE", dict(TABLE))  # what the row's line writes to
    namespace = {
        "math": math,
        "_row": ops._row,
        "_door": lambda name: monkeypatch.setitem(TABLE, name, ops.TABLE[name]) or ops._door(name),
        "r": SimpleNamespace(int_only=rules.int_only, make_gcd=in_rules["make_gcd"]),
        "iv": SimpleNamespace(gcd=in_intervals["gcd"]),
    }
    exec(row, namespace)
    return namespace["gcd"]


def test_the_worked_example(gcd) -> None:
    rng = random.Random(0)
    for _ in range(400):
        lo, hi = sorted((rng.randint(-12, 12), rng.randint(-12, 12)))
        values = {n: rng.randint(lo, hi) for n in "ab"}
        scope = Scope()
        a, b = (scope.backed(n, hint=v, lo=lo, hi=hi) for n, v in values.items())
        for x, y in ((a, b), (a, a), (a, 0), (1, b), (a * 2 + 1, b - 3), (4, a)):
            e = gcd(x, y)
            want = math.gcd(*(v.evaluate(values) if isinstance(v, Expr) else v for v in (x, y)))
            assert e.evaluate(values) == want == e.hint
            assert static_range(e)[0] <= want <= static_range(e)[1], e
    assert gcd(12, 18) == 6 and gcd(a, b) is gcd(b, a) and gcd(1, a).const == 1 and gcd(a, 0) is abs(a)
    assert str(gcd(a, b)) == "math.gcd(a, b)" and scope.known_true(gcd(a, b) >= 0)
