"""`list(range(n))` and `list(t)`, as long as a size: that stays open, or is pinned where somebody needs the list."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch

import pliant
from pliant.export.signature import SignatureError


def positions(x: Any) -> Any:
    pos = list(range(x.shape[0]))
    pooled = [-1] + pos[1:-1][::2]
    return torch.arange(pooled[0], pooled[-1] + 2), x[: len(pooled)], torch.tensor(pooled, dtype=torch.int64), torch.tensor(pos)


def joined(x: Any) -> Any:
    rows = list(x)
    return torch.cat(rows), torch.stack(rows, 1), rows[0] + rows[-1], len(rows), torch.cat(rows[1:] + [x[0]], dim=-1), torch.cat(rows, -1)


def kept_in_an_object(x: Any) -> Any:
    found = {"rows": list(x), "n": [list(range(x.shape[0]))]}
    return torch.stack(found["rows"]), found["n"][0][-1]


def walked(x: Any) -> Any:
    s = x.new_zeros(x.shape[1:])
    for row in list(x):
        s = s * 0.5 + row
    return s


def sees_writes(x: Any) -> Any:
    y = x.clone()
    rows = list(y)
    y[0] += 1
    rows[-1].mul_(2)
    return torch.stack(rows), y


def falls_back(x: Any) -> Any:
    rows = list(x)
    rows = rows[:2] if rows else rows
    return torch.cat(rows) if len(rows) == 2 else x.sum(0)


OPEN = (positions, joined, kept_in_an_object, walked, sees_writes)


@pytest.mark.parametrize("f", OPEN, ids=lambda f: f.__name__)
def test_the_length_stays_open(f: Any) -> None:
    p = pliant.export(f, (torch.randn(5, 3, 2),))
    for n in (5, 4, 7, 12):
        x = torch.randn(n, 3, 2)
        torch.testing.assert_close(p(x), f(x), rtol=0, atol=0)


def test_it_takes_what_an_empty_list_cannot_give() -> None:
    p = pliant.export(joined, (torch.randn(5, 3, 2),))
    with pytest.raises(SignatureError, match=r"x\.size\(0\) >= 1"):
        p(torch.randn(0, 3, 2))


def given_back(x: Any) -> Any:
    return list(x)


def kept_by_an_output(x: Any) -> Any:
    rows = list(x)
    return {"rows": [rows], "first": torch.stack(rows)}


def appended(x: Any) -> Any:
    rows = list(x)
    rows.append(x[0])
    return torch.stack(rows)


def compared(x: Any) -> Any:
    return x.sum() if list(range(x.shape[0])) == [0, 1, 2, 3, 4] else x


def a_row_is_one_object(x: Any) -> Any:
    rows = list(x)
    first = rows[0]
    return x + 1 if first is rows[0] else x


@pytest.mark.parametrize("f", (given_back, kept_by_an_output, appended, compared, a_row_is_one_object), ids=lambda f: f.__name__)
def test_what_needs_the_list_pins_it(f: Any) -> None:
    x = torch.randn(5, 3)
    p = pliant.export(f, (x,))
    torch.testing.assert_close(p(x), f(x), rtol=0, atol=0)
    with pytest.raises(SignatureError, match=r"x\.size\(0\) == 5"):
        p(torch.randn(6, 3))


def program(rng: random.Random) -> str:
    """Slices and sums of a list of numbers."""
    names = ["a"]
    lines = ["def f(x):", "    a = list(range({}x.shape[0]{}))".format(rng.choice(("", "1, ", "-2, ")), rng.choice(("", ", 2", ", 3")))]
    if ", 2" in lines[-1] or ", 3" in lines[-1]:
        lines[-1] = lines[-1].replace("range(x", "range(0, x")
    for name in "bcd":
        of = rng.choice(names)
        bounds = ":".join(rng.choice(("", "", str(k), str(-k))) for k in (rng.randint(0, 3), rng.randint(1, 3)))
        made = f"{of}[{bounds}:{rng.choice(('', '2', '3'))}]"
        other = rng.choice(("", "", f" + {rng.choice(names)}", " + [7, 8]"))
        lines.append(f"    {name} = {'[9] + ' if rng.random() < 0.3 else ''}{made}{other}")
        names.append(name)
    ends = [f"len({n})" for n in names] + [f"({n}[{k}] if len({n}) > 3 else -1)" for n, k in (("c", 0), ("d", -1), ("d", 2), ("b", -3))]
    lines.append(f"    return {', '.join(ends)}, torch.tensor(d, dtype=torch.float64)")
    return "\n".join(lines)


@pytest.mark.parametrize("seed", range(12))
def test_random_slices(seed: int) -> None:
    text = program(random.Random(seed))
    space: dict[str, Any] = {"torch": torch}
    exec(text, space)
    f = space["f"]
    p = pliant.export(f, (torch.zeros(9),))
    for n in (9, 12, 6, 4, 2, 1, 0):
        x = torch.zeros(n)
        try:
            got = p(x)
        except SignatureError:
            assert n != 9, text
            continue
        torch.testing.assert_close(got, f(x), rtol=0, atol=0, msg=lambda m, n=n: f"{n}: {m}\n{text}")
