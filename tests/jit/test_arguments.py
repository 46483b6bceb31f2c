"""Arguments and settings that mean nothing are refused, with a sentence that says what was given and what is allowed."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import torch

import pliant
from pliant.errors import PliantError


def fn(x: Any) -> Any:
    return x + 1


def named(v: Any) -> str:
    """A test's name for `v`, the same in every process."""
    return re.sub(" at 0x.*", "", repr(v))[:30]


WRONG: list[tuple[str, Any]] = [
    *(("dynamic", v) for v in ("yes", "true", 1, 0, 2.0, [True], (), {1: True}, {"x": "dynamic"}, {"x": 3}, object(), np.bool_(True), fn)),
    *(("fullgraph", v) for v in ("no", 1, 0, None, 1.0, [])),
    *(("backend", v) for v in (3, "no_such_backend", ["native"], b"native", True)),
    *(("mode", v) for v in ("fast", 3, True, ["default"], "")),
    *(("options", v) for v in ("entry_limit", 3, [("entry_limit", 3)], {"unknown": 1}, {3: 4}, {"entry_limit": "many"})),
    *(("options", v) for v in ({"below": "no"}, True)),
    *(("disable", v) for v in ("no", 1, None)),
    *(("strict", v) for v in ("yes", 1, 0, "")),
    *(("name", v) for v in (3, True, fn)),
    *(("recompile_limit", v) for v in (0, -1, 2.0, True, "8")),
    *(("isolate_recompiles", v) for v in (None, 1, "no")),
    *(("shapes_spec", v) for v in ({"x": None}, 3, "x", fn)),
    *(("verify", v) for v in ("often", -1, 2, math.nan, [])),
]


@pytest.mark.parametrize(("name", "value"), WRONG, ids=named)
def test_what_is_refused(name: str, value: Any) -> None:
    for model in (fn, torch.nn.Linear(2, 2), None):
        with pytest.raises((TypeError, ValueError, PliantError)) as error:
            pliant.compile(model, **{name: value})
        assert len(str(error.value)) > 20 and not isinstance(error.value, pliant.errors.InternalError)


RIGHT: list[tuple[str, Any]] = [
    *(("dynamic", v) for v in (None, True, False, {}, {"x": {0: True}}, {"x": {0: pliant.Dim("n")}}, {"x": {0: None}})),
    ("fullgraph", True), ("backend", "aten"), ("backend", "native"), ("backend", lambda module, inputs: module.forward), ("mode", None),
    ("mode", "default"), ("options", None), ("options", {}), ("options", {"entry_limit": 3}), ("disable", True), ("strict", None),
    ("strict", True), ("strict", False), ("verify", None), ("verify", 0), ("verify", 1),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), RIGHT, ids=named)
def test_what_is_taken(name: str, value: Any) -> None:
    assert torch.equal(pliant.compile(fn, **{name: value})(torch.ones(3)), torch.full((3,), 2.0))


def test_the_sentence() -> None:
    with pytest.raises(TypeError, match=r"dynamic= is None, True, False, or a dict .* not 'yes' \(a str\).*pliant\.Dim"):
        pliant.compile(fn, dynamic="yes")


@pytest.mark.parametrize("dim", ["0", 0.0, [0, "1"], True, [[0]]])
@pytest.mark.parametrize("mark", [pliant.mark_dynamic, pliant.maybe_mark_dynamic, pliant.mark_unbacked, pliant.mark_static])
def test_marks(mark: Any, dim: Any) -> None:
    with pytest.raises(TypeError, match="whole number"):
        mark(torch.ones(3, 3), dim)
    with pytest.raises(TypeError, match="tensor"):
        mark([1, 2], 0)
    with pytest.raises(IndexError):
        mark(torch.ones(3), 1)


@pytest.mark.parametrize("given", [{"name": 3}, {"min": "1"}, {"min": 5, "max": 4}, {"min": -1}, {"max": 1.5}, {"multiple_of": 0}])
def test_dims(given: dict) -> None:
    with pytest.raises((TypeError, ValueError)):
        pliant.Dim(**({"name": "n"} | given))


def test_words_of_the_environment(monkeypatch: Any) -> None:
    for word, strict in (("1", True), ("true", True), ("ON", True), ("0", False), ("", False), ("no", False), ("False", False)):
        monkeypatch.setenv("PLIANT_STRICT", word)
        failing = pliant.compile(lambda x: x * 3, backend=broken)
        if strict:
            with pytest.raises(PliantError):
                failing(torch.ones(2))
        else:
            with pytest.warns(RuntimeWarning, match="runs in eager"):
                assert torch.equal(failing(torch.ones(2)), torch.full((2,), 3.0))
        pliant.reset()
    monkeypatch.setenv("PLIANT_STRICT", "perhaps")
    with pytest.raises(ValueError, match="PLIANT_STRICT is 0 or 1 .* not 'perhaps'"):
        pliant.compile(fn)
    assert torch.equal(pliant.compile(fn, strict=False)(torch.ones(2)), torch.full((2,), 2.0))


def broken(module: Any, inputs: Any) -> Any:
    raise ZeroDivisionError("planted")


@pytest.mark.parametrize("name", ["PLIANT_ENTRIES", "PLIANT_TEST_ENTRIES"])
def test_words_that_are_read_at_import(name: str) -> None:
    done = subprocess.run([sys.executable, "-c", "import pliant"], env=os.environ | {name: "perhaps"}, capture_output=True, text=True)
    assert done.returncode == 1 and f"{name} is 0 or 1" in done.stderr
