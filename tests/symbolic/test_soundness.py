"""No false "known true": random question sequences against all models of a small world."""

from __future__ import annotations

import os

import pytest

from tests.symbolic.models import play

GAMES = int(os.environ.get("PLIANT_SOUNDNESS_GAMES", "1500"))
BLOCKS = 10


@pytest.mark.parametrize("block", range(BLOCKS))
def test_answers_hold_in_every_model(block: int) -> None:
    for seed in range(block * GAMES // BLOCKS, (block + 1) * GAMES // BLOCKS):
        play(seed)
