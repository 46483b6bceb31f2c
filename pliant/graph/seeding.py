"""The states of PyTorch's generators of the CPU as operators: seeding, reading, setting. They stay in order with what draws.

A `torch.Generator` of the program is, in a graph, the tensor of its state. What draws from one is given `OWN` in its place, between two
operators: one lets the thread's own generator go on from that state, the other writes back the state that it has then.
"""

from __future__ import annotations

import threading
from typing import Any

from pliant.graph.originals import torch
from pliant.graph.own_operators import register_fake

LIBRARY = torch.library.Library("pliant", "FRAGMENT")
LIBRARY.define("manual_seed(SymInt seed) -> ()")
LIBRARY.define("get_rng_state() -> Tensor")
LIBRARY.define("set_rng_state(Tensor state) -> ()")
LIBRARY.define("seeded_state(SymInt seed) -> Tensor")
LIBRARY.define("load_generator(Tensor state) -> ()")
LIBRARY.define("store_generator(Tensor(a!) state) -> ()")

MANUAL_SEED: Any = torch.ops.pliant.manual_seed.default
GET_STATE: Any = torch.ops.pliant.get_rng_state.default
SET_STATE: Any = torch.ops.pliant.set_rng_state.default
SEEDED_STATE: Any = torch.ops.pliant.seeded_state.default
LOAD: Any = torch.ops.pliant.load_generator.default
STORE: Any = torch.ops.pliant.store_generator.default
OF_STATES = (SEEDED_STATE, LOAD, STORE)
"""Operators that change nothing but the states that the graph holds."""

OWN = torch.Generator()
"""Stands in a graph for the generator of the thread that runs it (`own_generator`)."""

seed, state, put = torch.random.manual_seed, torch.default_generator.get_state, torch.default_generator.set_state
BYTES = len(state())


def seed_all(number: int) -> None:
    seed(number)


def set_state(value: torch.Tensor) -> None:
    put(value)


class OfThread(threading.local):
    def __init__(self) -> None:
        self.generator = torch.Generator()


OF_THREAD = OfThread()


def own_generator() -> torch.Generator:
    """The generator of this thread that goes on from the states of the program's generators, one after the other."""
    return OF_THREAD.generator


def seeded_state(number: int) -> torch.Tensor:
    """The state of a generator that was seeded just now."""
    return own_generator().manual_seed(number).get_state()


def load(value: torch.Tensor) -> None:
    own_generator().set_state(value)


def store(value: torch.Tensor) -> None:
    value.copy_(own_generator().get_state())


def put_back(generator: torch.Generator, value: torch.Tensor) -> None:
    """A generator of the program goes on from this state."""
    generator.set_state(value)


def generator_in(value: torch.Tensor) -> torch.Generator:
    """A generator in this state."""
    made = torch.Generator()
    made.set_state(value)
    return made


LIBRARY.impl("manual_seed", seed_all, "CompositeExplicitAutograd")
LIBRARY.impl("get_rng_state", state, "CompositeExplicitAutograd")
LIBRARY.impl("set_rng_state", set_state, "CompositeExplicitAutograd")
register_fake(LIBRARY, "manual_seed", lambda number: None)
register_fake(LIBRARY, "get_rng_state", lambda: torch.empty(BYTES, dtype=torch.uint8, device="cpu"))
register_fake(LIBRARY, "set_rng_state", lambda value: None)
LIBRARY.impl("seeded_state", seeded_state, "CompositeExplicitAutograd")
LIBRARY.impl("load_generator", load, "CompositeExplicitAutograd")
LIBRARY.impl("store_generator", store, "CompositeExplicitAutograd")
register_fake(LIBRARY, "seeded_state", lambda number: torch.empty(BYTES, dtype=torch.uint8, device="cpu"))
register_fake(LIBRARY, "load_generator", lambda value: None)
register_fake(LIBRARY, "store_generator", lambda value: None)
