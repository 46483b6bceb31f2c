"""Programs that train, keep a state or apply a model, as a whole or in part, beside eager: sizes and numbers change in each call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import pliant
from tests.programs import (  # noqa: F401  (they register themselves)
    applications,
    applications_more,
    module_changes,
    stateful_programs,
    training_gradients,
    training_schedules,
)
from tests.programs.training import PROGRAMS


def flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple)):
        for v in value:
            yield from flat(v)
    else:
        yield value


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_in_eager(name, backend):
    program = PROGRAMS[name]
    want = list(program(lambda fn: fn))
    got = list(program(lambda fn: pliant.compile(fn, backend=backend, background=False)))
    for call, sides in enumerate(zip(want, got, strict=True)):
        for a, b in zip(*map(flat, sides), strict=True):
            assert type(a) is type(b), call
            if a is not None:
                torch.testing.assert_close(b, a, rtol=1e-3, atol=1e-5, msg=lambda m, call=call: f"call {call}: {m}")
    assert pliant.stats()["fallbacks"] == 0
