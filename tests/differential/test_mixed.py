"""Values of ever other kinds at one place (`mixed.py`): a part of what `python -m tests.differential.mixed` runs."""

from __future__ import annotations

import pytest

from tests.differential import mixed
from tests.differential.numbered import keeps_first_answer


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("first", range(0, 200, 20))
def test_mixed_values(first):
    found = [f for f in map(mixed.examine, range(first, first + 20)) if f]
    assert not found, "\n".join(found)


def test_a_stale_answer_is_found(monkeypatch):
    """The harness sees a compiler that keeps the first answer."""
    monkeypatch.setattr(mixed.pliant, "compile", keeps_first_answer)
    assert any(map(mixed.examine, range(30)))
