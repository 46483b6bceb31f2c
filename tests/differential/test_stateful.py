"""Programs with state that crosses kinds (`stateful.py`): a part of what `python -m tests.differential.stateful` runs."""

from __future__ import annotations

import pytest

from tests.differential import stateful
from tests.differential.numbered import keeps_first_answer, quietly


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 400, 50))
def test_stateful_programs(first):
    found = [*quietly(stateful.examine, range(first, first + 50))]
    assert not found, "\n".join(found)


@pytest.mark.filterwarnings("ignore")
def test_a_compiler_that_keeps_its_first_answer_is_found(monkeypatch):
    monkeypatch.setattr(stateful.pliant, "compile", keeps_first_answer)
    assert all(any(quietly(stateful.examine, range(family, 40, 4))) for family in range(4))
