"""Programs that cross kinds (`crossed.py`): a part of what `python -m tests.differential.crossed` runs."""

from __future__ import annotations

import warnings

import pytest

from tests.differential import crossed


@pytest.mark.parametrize("first", range(0, 300, 50))
def test_crossed(first):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not [f for f in map(crossed.examine, range(first, first + 50)) if f]


def test_a_compiler_that_keeps_its_first_answer_is_found(monkeypatch):
    def keeps(f, **settings):
        answers = []

        def first(*args):
            if not answers:
                answers.append(f(*args))
            return answers[0]

        return first

    monkeypatch.setattr(crossed.pliant, "compile", keeps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(any(map(crossed.examine, range(family, 60, 3))) for family in range(3))
