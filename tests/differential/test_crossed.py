"""Programs that cross kinds (`crossed.py`): a part of what `python -m tests.differential.crossed` runs."""

from __future__ import annotations

import pytest

from tests.differential import crossed
from tests.differential.numbered import keeps_first_answer, quietly


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_crossed(first):
    assert not [*quietly(crossed.examine, range(first, first + 50))]


def test_a_compiler_that_keeps_its_first_answer_is_found(monkeypatch):
    monkeypatch.setattr(crossed.pliant, "compile", keeps_first_answer)
    assert all(any(quietly(crossed.examine, range(family, 60, 3))) for family in range(3))
