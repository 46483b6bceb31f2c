"""Attributes that C code reads by name (`read_by_name.py`): a part of what `python -m tests.differential.read_by_name` runs."""

from __future__ import annotations

import pytest

from tests.differential import read_by_name
from tests.differential.numbered import keeps_first_answer, quietly


@pytest.mark.parametrize("first", range(0, 160, 80))
def test_read_by_name(first):
    assert not [*quietly(read_by_name.examine, range(first, first + 80))]


def test_a_compiler_that_keeps_its_first_answer_is_found(monkeypatch):
    monkeypatch.setattr(read_by_name.pliant, "compile", keeps_first_answer)
    assert any(quietly(read_by_name.examine, range(40)))
