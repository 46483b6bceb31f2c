"""Flags of parameters, and inputs in each other's memory (`held_and_shared.py`): a part of what its command runs."""

from __future__ import annotations

import pytest

from tests.differential import held_and_shared, stateful
from tests.differential.numbered import keeps_first_answer, quietly


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_held_and_shared(first):
    assert not [*quietly(held_and_shared.examine, range(first, first + 40))]


def test_a_compiler_that_keeps_its_first_answer_is_found(monkeypatch):
    monkeypatch.setattr(stateful.pliant, "compile", keeps_first_answer)
    assert all(any(quietly(held_and_shared.examine, range(family, 30, 3))) for family in range(3))
