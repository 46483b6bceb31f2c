"""Random Python programs: eager and compiled must be indistinguishable. See `grammar.py` for what they are made of.

    PLIANT_FUZZ=5000 pytest tests/differential            # many more, fresh seeds, failures shrunk
    PLIANT_SHRINK=1 pytest tests/differential             # shrink what fails in the fixed set
    PLIANT_TEST_IDENTITY=1 pytest tests/differential      # are the programs themselves valid?
"""

from __future__ import annotations

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from benchmarks import fuzz
from tests import helpers
from tests.conftest import FUZZ
from tests.differential.generate import STATES, Program, programs
from tests.helpers import check_world

THEMES = {"pure": 30, "mixed": 20, "breaks": 10, "grad": 8}  # a program with many breaks takes seconds


def run(program: Program) -> None:
    note(repr(program))
    check_world(program.world, *program.arguments(), before=program.before, grad=program.grad, between=program.between, drive=program.drive)


@pytest.mark.parametrize("theme", THEMES)
def test_random_programs(theme: str) -> None:
    @settings(max_examples=FUZZ or THEMES[theme])
    @given(st.data())
    def property(data: st.DataObject) -> None:
        run(data.draw(programs(theme), label="program"))

    property()


@pytest.mark.parametrize("theme", STATES)
def test_a_program_of_each_world(theme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Thousands are tried by `python -m benchmarks.fuzz`; one of each shows that the grammar still makes programs that run."""
    monkeypatch.setattr(helpers, "BACKEND", "aten")
    assert fuzz.examine(f"{theme}:1") == ("right", "")
