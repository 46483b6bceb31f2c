"""Programs as users write them: what they return on a mesh is what they return in one process."""

from __future__ import annotations

import pytest

from benchmarks import remote_programs


@pytest.mark.parametrize("name", list(remote_programs.PROGRAMS))
def test_it_is_that_of_one_process(mesh, name):
    wrong, _ = remote_programs.one(name, mesh)
    assert not wrong and not mesh.stats()["leaked"]
