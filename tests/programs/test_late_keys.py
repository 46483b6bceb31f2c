"""Dicts from outside under texts that are others in each call or round (`pliant/interpret/late_keys.py`)."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from pliant import events


class LikeA:
    """A key that is found where "a" is looked up."""

    def __hash__(self) -> int:
        return hash("a")

    def __eq__(self, other: object) -> bool:
        return other == "a"


def item(d: dict, k: Any, x: torch.Tensor) -> Any:
    return x + d[k]


def chosen(d: dict, k: Any, x: torch.Tensor) -> Any:
    return (x + d[k]) * len(d) if k in d else x - 1


def written_before(d: dict, k: Any, x: torch.Tensor) -> Any:
    d["b"] = 5
    return x + d.get(k, 0)


def written_behind(d: dict, k: Any, x: torch.Tensor) -> Any:
    y = d.get(k, 0)
    d["b"] = 5
    return x + y + d["b"] + d.get(k, 1)


def deleted(d: dict, k: Any, x: torch.Tensor) -> Any:
    d.pop("b", None)
    return x + d.get(k, 3) + (1 if k in d else 0)


def both(d: dict, k: Any, x: torch.Tensor) -> Any:
    a, b = d.get(k), d.get("b")
    return x, a is b, a is None


def lacks(d: dict, k: Any, x: torch.Tensor) -> Any:
    try:
        return x + d[k]
    except KeyError as e:
        return x - len(str(e))


def filled(d: dict, k: Any, x: torch.Tensor) -> Any:
    if k not in d:
        d[k] = 2
    return x * d[k]


def dicts(i: int) -> dict:
    names = (("a", "b", "c"), ("b",), ("a", "b", "c", "d"), ("c", "a"), ())[i % 5]
    return {k: torch.full((3,), float(i + j)) if i % 2 else i + j for j, k in enumerate(names)}


KINDS: dict[str, Callable[[dict], dict]] = {
    "dict": dict,
    "odd": lambda d: {LikeA(): 7, **{k: v for k, v in d.items() if k != "a"}},
    "default": lambda d: defaultdict(int, d),
    "ordered": OrderedDict,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("fn", [item, chosen, written_before, written_behind, deleted, both, lacks, filled])
def test_it_is_as_in_eager(fn: Callable, kind: Callable) -> None:
    compiled = pliant.compile(fn, backend="aten")
    for i in range(14):
        k: Any = ("a", "b", "c", "z", 1, "b")[(i * 7 + i // 3) % 6]
        given = [kind(dicts(i)) for _ in range(2)]
        outcomes: list[Any] = []
        for f, d in zip((fn, compiled), given, strict=True):
            try:
                outcomes.append(f(d, k, torch.ones(3)))
            except KeyError as e:
                outcomes.append(str(e))
        if isinstance(outcomes[0], str):
            assert outcomes[1] == outcomes[0]
        else:
            torch.testing.assert_close(outcomes[1], outcomes[0])
        torch.testing.assert_close(*[[*d.values()] for d in given])


class Counted:
    asked = 0

    def __hash__(self) -> int:
        Counted.asked += 1
        return 1


@pytest.mark.parametrize("n", [4, 5])
@pytest.mark.parametrize("odd", [(Counted(), Counted()), ([1], {})], ids=["counted", "unhashable"])
@pytest.mark.parametrize("fn", [item, chosen, written_behind])
def test_keys_that_are_no_texts_any_more(fn: Callable, odd: tuple, n: int) -> None:
    """Nobody asks them but the program, also to find out what has changed."""
    compiled = pliant.compile(fn, backend="aten")
    for k in (*"abcdef"[:n], *odd, "a", "f"):
        outcomes: list[Any] = []
        for f in (fn, compiled):
            Counted.asked = 0
            try:
                outcomes.append(f(dict.fromkeys("abcdef", 1), k, torch.ones(2)).tolist())
            except (KeyError, TypeError) as e:
                outcomes.append(type(e))
            outcomes.append(Counted.asked)
        assert outcomes[:2] == outcomes[2:]


def summed(d: dict, e: dict, s: dict) -> None:
    for k in d:
        s[k] = d[k] + e.get(k, 1)


def averaged(d: dict, e: dict, s: dict) -> None:
    for k, v in d.items():
        if k in s:
            s[k] = s[k] * 0.5 + v
        else:
            s[k] = v * 1


def swapped(d: dict, e: dict, s: dict) -> None:
    for k in d:
        e[k], s[k] = s.get(k, d[k] * 0), e.get(k, d[k])


def in_place(d: dict, e: dict, s: dict) -> None:
    for k in d:
        d[k].add_(1)
        s[k] = "same" if e.get(k) is d[k] else d[k] * 1


@pytest.mark.parametrize("fn", [summed, averaged, swapped, in_place])
def test_loops_whose_rounds_have_other_keys(fn: Callable) -> None:
    """Each round is one entry, whatever its key: captures end."""
    compiled, caps = pliant.compile(fn, backend="aten"), []
    kept: list[dict] = [{}, {}]
    for i in range(12):
        given = []
        for s in kept:
            d = {f"{'abcdefgh'[(i + m) % 8]}{m * (1 + i % 3)}": torch.full((2,), float(m + i)) for m in range(9 + i * 5 % 4)}
            names = list(d)
            d[names[1]] = d[names[0]] if i % 3 == 2 else d[names[1]]  # one tensor under two keys
            given.append((d, {k: v if j % 4 == 0 else v * 2 for j, (k, v) in enumerate(d.items()) if j % 2 == 0}, s))
        fn(*given[0])
        compiled(*given[1])
        for mine, theirs in zip(*given, strict=True):
            assert list(mine) == list(theirs)
            torch.testing.assert_close(*[[v for v in s.values() if isinstance(v, torch.Tensor)] for s in (theirs, mine)])
        caps.append(events.counters().get("captures", 0))
    assert caps[-1] - caps[6] <= 4, caps
