"""The registry of graph breaks: complete, readable, and the page of the docs made from it."""

from __future__ import annotations

import json
import pathlib
import re

import pytest
import torch

import pliant
from pliant.guards.guard import Site
from pliant.interpret import breaks
from pliant.interpret.breaks import BREAKS
from tests import helpers

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_codes_count_up():
    assert list(BREAKS) == sorted(BREAKS)
    assert len({info.title for info in BREAKS.values()}) == len(BREAKS)


@pytest.mark.parametrize("code", BREAKS)
def test_each_break_is_explained_and_has_a_fix(code):
    info = BREAKS[code]
    assert info.title and not info.title.endswith(".")
    assert info.explanation.endswith(".") and len(info.explanation) > 40
    assert info.hints and all(h.endswith((".", ").")) and len(h) > 15 for h in info.hints)


def test_codes_are_registered_and_used():
    files = [path for path in (ROOT / "pliant").rglob("*.py") if path.name != "breaks.py"]
    used = {c for path in files for c in re.findall(r"\bPL\d{4}\b", path.read_text())}
    assert used == set(BREAKS)


def test_format_break():
    site = Site("model.py", 12, "forward", outer=Site("train.py", 80, "step", outer=Site("train.py", 99, "main")))
    text = breaks.format_break("PL0001", "a branch on `x.sum() > 0`", site)
    assert text.splitlines()[:3] == [
        "Graph break PL0001: Branch on the value of a tensor",
        "  what: a branch on `x.sum() > 0`",
        "  where: model.py:12 in forward",
    ]
    parts = [text.index(p) for p in ("train.py:99 in main", "train.py:80 in step", "why:", "fix: Compute both sides")]
    assert parts == sorted(parts)
    assert "called from:\n    a.py:1\n" in breaks.format_break("PL0001", "", None, ["a.py:1"])
    assert breaks.format_break("PL9999", "something new") == "Graph break PL9999: something new"


def test_the_page_of_the_docs_is_in_step():
    """After a change of the table: `python -m pliant.interpret.breaks docs/graph-breaks.md benchmarks/break_codes.json`."""
    counted = json.loads((ROOT / "benchmarks" / "break_codes.json").read_text(encoding="utf-8"))
    assert (ROOT / "docs" / "graph-breaks.md").read_text(encoding="utf-8") == breaks.docs_page(counted)
    assert all(corpus["met"].keys() <= breaks.BREAKS.keys() for corpus in counted.values())


def test_reasons_are_in_the_words_of_the_program():
    """Not in those of the C++ code that cannot work on a proxy."""

    def fn(x):
        return torch.histogramdd(x, [3, 3, 3])

    told = [line for line in str(pliant.explain(fn, torch.randn(5, 3))).splitlines() if line.strip().startswith("what:")]
    assert len(told) == 1 and "histogramdd" in told[0] and len(told[0]) < 120, told


SHOWN = {
    "data_ptr": lambda x: x.data_ptr(),
    "untyped_storage": lambda x: x.untyped_storage(),
    "__reduce_ex__": lambda x: x.__reduce_ex__(2)[1][2:4],
    "__getstate__": lambda x: x.__getstate__(),
}


@pytest.mark.parametrize("name", SHOWN)
def test_a_method_that_shows_memory_breaks_once(name):
    """At its call, not already where it is read."""

    def fn(x):
        y = x.relu()
        return y + 1, SHOWN[name](x)

    compiled = helpers.compiled(fn)
    for n in (3, 5):
        x = torch.randn(n, 2)
        got, want = compiled(x), fn(x)
        assert torch.equal(got[0], want[0]) and type(got[1]) is type(want[1])
        assert name == "untyped_storage" or got[1] == want[1]
    assert pliant.stats()["graph_breaks"] == 1
