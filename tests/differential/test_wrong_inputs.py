"""Operators that are given what they refuse (`wrong_inputs.py`): a part of what `python -m tests.differential.wrong_inputs` runs."""

from __future__ import annotations

import pytest

from tests.differential import numbered, wrong_inputs

FOUND = (226, 844, 2188, 2398, 2410, 3406, 3444, 3526, 10105, 10334, 11155, 11729, 11954, 12331, 12490, 13006, 13522, 14117, 14264, 14348,
    14696, 14824, 15395, 15907, 17146, 18502, 20932, 21047, 21781)  # fmt: skip
"""Of which each was wrong once."""


@pytest.mark.parametrize("numbers", [FOUND, range(0, 4176, 131), range(10000, 10020)], ids=["found", "refused", "by lot"])
def test_what_operators_refuse(numbers):
    found = list(numbered.quietly(wrong_inputs.examine, numbers))
    assert not found, "\n".join(found)


@pytest.mark.parametrize("number", [226, 4, 1000])
def test_a_compiler_without_guards_is_found(number, monkeypatch):
    monkeypatch.setattr(wrong_inputs.pliant, "compile", numbered.keeps_first_answer)
    assert list(numbered.quietly(wrong_inputs.examine, range(number, number + 6)))
