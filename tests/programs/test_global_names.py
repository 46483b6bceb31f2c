"""`globals()`, `f.__globals__` and the `__dict__` of a module, read and written name by name; what works on all of it breaks the graph."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import pliant
from pliant import events

NUMBER = 3


class Holder:
    kept: Any = None


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def raised(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def named(x: torch.Tensor, i: int) -> Any:
    return globals()[("doubled", "raised")[i % 2]](x)


def got(x: torch.Tensor, i: int) -> Any:
    return x + globals().get("NUMBER") + globals().get("nothing of the kind", 4), globals().get("len")


def asked(x: torch.Tensor, i: int) -> Any:
    return x, "NUMBER" in globals(), "len" in globals()


def missed(x: torch.Tensor, i: int) -> Any:
    try:
        return globals()["nothing of the kind"]
    except KeyError as e:
        return x + 1, str(e)


def written(x: torch.Tensor, i: int) -> Any:
    globals()["NUMBER"] += i
    y = x + NUMBER
    globals()["NUMBER"] = 3
    return y


def identical(x: torch.Tensor, i: int) -> Any:
    return x, globals() is globals(), globals() is doubled.__globals__, type(globals()) is dict, isinstance(globals(), dict)


def of_function(x: torch.Tensor, i: int) -> Any:
    return x + doubled.__globals__["NUMBER"]


def of_module(x: torch.Tensor, i: int) -> Any:
    return vars(sys.modules[__name__])["doubled"](x)


def kept(x: torch.Tensor, i: int) -> Any:
    Holder.kept = held = [globals()]
    return x + held[0]["NUMBER"]


def behind_a_break(x: torch.Tensor, i: int) -> Any:
    g, get = globals(), globals().get
    time.sleep(0)
    return x + g["NUMBER"] + get("NUMBER"), g is globals()


def walked(x: torch.Tensor, i: int) -> Any:
    return x + sum([globals()[k] for k in globals() if k == "NUMBER"])


def merged(x: torch.Tensor, i: int) -> Any:
    return x + {**globals()}["NUMBER"] + (lambda **names: names["NUMBER"])(**globals()) + dict(globals())["NUMBER"]


def evaluated(x: torch.Tensor, i: int) -> Any:
    return x + eval("NUMBER + 1", globals())


def told(found: Any) -> Any:
    return [told(v) for v in found] if type(found) in (tuple, list) else found.tolist() if isinstance(found, torch.Tensor) else found


WHOLE = [named, got, asked, missed, written, identical, of_function, of_module, kept]


@pytest.mark.parametrize("fn", [*WHOLE, behind_a_break, walked, merged, evaluated], ids=lambda f: f.__name__)
def test_names_of_a_module(fn: Callable) -> None:
    compiled = pliant.compile(fn, backend="aten")
    before = events.counters().get("graph_breaks", 0)
    for i in range(4):
        x = torch.ones(i + 2)
        assert told(fn(x, i)) == told(compiled(x, i))
    if fn in WHOLE:
        assert events.counters().get("graph_breaks", 0) == before


def test_a_global_that_changes_is_guarded() -> None:
    global NUMBER
    compiled = pliant.compile(of_function, backend="aten")
    try:
        for NUMBER in (3, 5, 7, 5):
            assert told(compiled(torch.ones(2), 0)) == told(of_function(torch.ones(2), 0))
    finally:
        NUMBER = 3


def test_a_name_that_comes_and_goes() -> None:
    compiled = pliant.compile(lambda x: x + globals().get("COMES_AND_GOES", 1), backend="aten")
    for there in (False, True, False, True):
        if there:
            globals()["COMES_AND_GOES"] = 5
        assert told(compiled(torch.zeros(2))) == [5.0 if there else 1.0] * 2
        globals().pop("COMES_AND_GOES", None)
