"""Seeding, reading and setting the generator of the CPU inside of what is captured: operators of the graph, in order with what draws."""

from __future__ import annotations

import types
from typing import Any

import torch

from pliant.graph.seeding import BYTES, GET_STATE, MANUAL_SEED, SET_STATE
from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.interpret import policy
from pliant.interpret.calls import graph_call
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm, whole_loops
from pliant.interpret.wrappers import is_stand

FORK: Any = torch.random.fork_rng.__wrapped__  # type: ignore[attr-defined]  # the generator that `contextmanager` has wrapped
policy.register(FORK, policy.INLINE)
for _code in FORK.__code__.co_consts:
    if isinstance(_code, types.CodeType):  # comprehensions, up to 3.11
        policy.register(_code, policy.INLINE)

LEAST, MOST = -(2**63), 2**63 - 1


def allowed() -> None:
    if not whole_loops() or vm.asking or vm.world.levels.entered:
        raise Break("PL0024", "a generator's state, in a transform or loop, or for a backend that is not pliant's own", clean=True)


@lookaside(torch.random.manual_seed)
def l_manual_seed(args: tuple, kw: dict) -> Any:
    number = args[0] if args else kw["seed"]
    if type(number) is not int or not LEAST <= number <= MOST or torch.cuda.is_available():
        raise Break("PL0024", "a seed that is no plain number, or one for devices too", clean=True)
    allowed()
    graph_call(MANUAL_SEED, (number,), {})
    return vm.world.locate(torch.default_generator, S.const(torch.default_generator))


@lookaside(torch.random.get_rng_state)
def l_get_rng_state(args: tuple, kw: dict) -> Any:
    allowed()
    return graph_call(GET_STATE, (), {})


@lookaside(torch.random.set_rng_state)
def l_set_rng_state(args: tuple, kw: dict) -> None:
    state = args[0] if args else kw["new_state"]
    if type(state) is not TracedTensor or is_stand(state) or state.dtype is not torch.uint8 or tuple(state.sizes) != (BYTES,):
        raise Break("PL0024", "a state of a generator that is not known to be one", clean=True)
    allowed()
    graph_call(SET_STATE, (state,), {})


__all__ = ["l_manual_seed"]
