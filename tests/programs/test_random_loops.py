"""Random programs with loops on data against eager: values, identities, effects, printed text, exceptions, random numbers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conftest import FUZZ
from tests.helpers import check_world
from tests.programs.loop_programs import arguments, program


@pytest.mark.parametrize("seed", range(max(FUZZ, 30)))
def test_random_loop(seed: int) -> None:
    def fresh() -> tuple[Any, Any]:
        fn, state, _ = program(seed)
        return fn, state

    check_world(fresh, *arguments(seed), must_compile=False)


@pytest.mark.parametrize("seed", range(max(FUZZ, 30)))
def test_random_loop_that_writes(seed: int) -> None:
    def fresh() -> tuple[Any, Any]:
        fn, state, _ = program(seed, 0.05, 0.35)
        return fn, state

    check_world(fresh, *arguments(seed), must_compile=False)


@pytest.mark.parametrize("seed", range(max(FUZZ, 30)))
def test_random_loop_with_lists(seed: int) -> None:
    def fresh() -> tuple[Any, Any]:
        fn, state, _ = program(seed, 0.35)
        return fn, state

    check_world(fresh, *arguments(seed), must_compile=False)
