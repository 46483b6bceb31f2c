"""Operands of every kind (`operands.py`): a part of what `python -m tests.differential.operands` runs."""

from __future__ import annotations

import warnings

import pytest

from tests.differential import operands


@pytest.mark.parametrize("first", range(0, 1500, 100))
def test_operands(first):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert not [f for f in map(operands.examine, range(first, first + 100)) if f]


def test_a_compiler_that_keeps_its_first_answer_is_found(monkeypatch):
    def keeps(f, **settings):
        answers = []

        def first(*args):
            if not answers:
                answers.append(f(*args))
            return answers[0]

        return first

    monkeypatch.setattr(operands.pliant, "compile", keeps)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert all(any(map(operands.examine, range(family, 60, 3))) for family in range(3))
