"""Operands of every kind (`operands.py`): a part of what `python -m tests.differential.operands` runs."""

from __future__ import annotations

import pytest

from tests.differential import operands
from tests.differential.numbered import keeps_first_answer, quietly


@pytest.mark.parametrize("first", range(0, 1500, 100))
def test_operands(first):
    assert not [*quietly(operands.examine, range(first, first + 100))]


def test_a_compiler_that_keeps_its_first_answer_is_found(monkeypatch):
    monkeypatch.setattr(operands.pliant, "compile", keeps_first_answer)
    assert all(any(quietly(operands.examine, range(family, 60, 3))) for family in range(3))
