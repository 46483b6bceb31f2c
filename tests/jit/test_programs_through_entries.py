"""Rooms of `tests/programs` once more, each entry through its form on disk: what an entry forgets on its way there is an error, or a wrong
answer, of the next process alone."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WITHOUT_TAPE = "not written_between"
"""Gradients of some results, of inputs that were written since, need the tape of the capture: a clear error in another process."""


@pytest.mark.parametrize("rooms", [
    ("test_history", "test_second_gradients"), ("test_kept_for_backward", "test_holders", "test_torch_features_arguments"),
    ("test_torch_features_library", "test_attributes_told"), ("test_numbers_of_backward", "test_training"),
], ids="-".join)  # fmt: skip
def test_rooms(rooms: tuple[str, ...]) -> None:
    paths = [f"tests/programs/{room}.py" for room in rooms]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", WITHOUT_TAPE, *paths]
    ran = subprocess.run(command, cwd=ROOT, env=os.environ | {"PLIANT_TEST_ENTRIES": "1"}, capture_output=True, text=True, timeout=600)
    assert ran.returncode == 0, ran.stdout[-4000:]
    assert " passed" in ran.stdout
