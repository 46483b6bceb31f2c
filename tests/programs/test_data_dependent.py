"""The table of `benchmarks/data_dependent`: each program in one graph, eager's answer at every size, 0 and 1 among them."""

from __future__ import annotations

import pytest

from benchmarks.data_dependent.judge import under_pliant
from benchmarks.data_dependent.table import PROGRAMS


def test_the_table_is_wide() -> None:
    assert len(PROGRAMS) >= 60
    few = {p.name for p in PROGRAMS.values() if len(p.sizes) < 5}
    assert few <= {"broadcast_against_an_input", "one_row_of_a_jagged_tensor"}  # eager takes two, and there are four rows
    assert sum(1 in p.sizes or 0 in p.sizes for p in PROGRAMS.values()) == len(PROGRAMS)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_program(name: str) -> None:
    verdict = under_pliant(PROGRAMS[name])
    assert verdict.fine, verdict
