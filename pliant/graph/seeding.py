"""The state of PyTorch's generator of the CPU as operators: seeding it, reading it, setting it. They stay in order with what draws."""

from __future__ import annotations

from typing import Any

import torch

LIBRARY = torch.library.Library("pliant", "FRAGMENT")
LIBRARY.define("manual_seed(int seed) -> ()")
LIBRARY.define("get_rng_state() -> Tensor")
LIBRARY.define("set_rng_state(Tensor state) -> ()")

MANUAL_SEED: Any = torch.ops.pliant.manual_seed.default
GET_STATE: Any = torch.ops.pliant.get_rng_state.default
SET_STATE: Any = torch.ops.pliant.set_rng_state.default

seed, state, put = torch.random.manual_seed, torch.default_generator.get_state, torch.default_generator.set_state
BYTES = len(state())


def seed_all(number: int) -> None:
    seed(number)


def set_state(value: torch.Tensor) -> None:
    put(value)


LIBRARY.impl("manual_seed", seed_all, "CompositeExplicitAutograd")
LIBRARY.impl("get_rng_state", state, "CompositeExplicitAutograd")
LIBRARY.impl("set_rng_state", set_state, "CompositeExplicitAutograd")
torch.library.register_fake("pliant::manual_seed", lambda number: None, lib=LIBRARY)
torch.library.register_fake("pliant::get_rng_state", lambda: torch.empty(BYTES, dtype=torch.uint8, device="cpu"), lib=LIBRARY)
torch.library.register_fake("pliant::set_rng_state", lambda value: None, lib=LIBRARY)
