"""What C code asks back (`callbacks.py`): a part of what `python -m tests.differential.callbacks` runs."""

from __future__ import annotations

import pytest

from tests.differential import callbacks
from tests.differential.numbered import keeps_first_answer, quietly


@pytest.mark.parametrize("first", range(0, 180, 60))
def test_callbacks(first):
    assert not [*quietly(callbacks.examine, range(first, first + 60))]


def test_a_compiler_that_keeps_its_first_answer_is_found(monkeypatch):
    monkeypatch.setattr(callbacks.pliant, "compile", keeps_first_answer)
    assert any(quietly(callbacks.examine, range(30)))
