"""Generators of random numbers inside of what is captured: PyTorch's of the CPU, seeded, read and set, and the one of Python's `random`,
seeded and drawn from. All of it is operators of the graph, in order with what else draws. Numbers of a `random.Random(seed)` that the
program makes are constants."""

from __future__ import annotations

import random
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant import native as engine
from pliant.graph.originals import operator
from pliant.graph.python_random import BELOW, GENERATOR, NUMBERS, SEED
from pliant.graph.seeding import BYTES, GET_STATE, MANUAL_SEED, SET_STATE
from pliant.graph.symnode import concrete
from pliant.graph.traced import SEEDS_OF_OTHERS, TracedTensor
from pliant.guards import source as S
from pliant.interpret import globalstate, policy
from pliant.interpret.calls import METHOD_LOOKASIDES, graph_call, inline, native
from pliant.interpret.lookasides import lookaside
from pliant.interpret.slots import binary
from pliant.interpret.state import Break, vm, writes
from pliant.interpret.types.tensors import item
from pliant.interpret.wrappers import is_stand

FORK: Any = torch.random.fork_rng.__wrapped__  # type: ignore[attr-defined]  # the generator that `contextmanager` has wrapped


def inner_code_interpreted(fn: Any) -> None:
    for code in fn.__code__.co_consts:
        if isinstance(code, types.CodeType):  # comprehensions, up to 3.11
            policy.register(code, policy.INLINE)


policy.register(FORK, policy.INLINE)
inner_code_interpreted(FORK)

LEAST, MOST = -(2**63), 2**63 - 1


def allowed() -> None:
    if globalstate.heard():
        raise Break("PL0024", "a generator's state, while a mode is told of functions", clean=True)
    if vm.rehearsing:
        raise Break("PL0024", "a generator's state, in what autograd will call")
    if SEEDS_OF_OTHERS in vm.refused or vm.asking or vm.world.levels.entered:
        raise Break("PL0024", "a generator's state, in a transform or loop, or for a backend that is not pliant's own", clean=True)


def seed_for_graph(number: Any) -> Any:
    """A seed that an operator of the graph takes."""
    if type(number) is not torch.SymInt and (type(number) is not int or not LEAST <= number <= MOST):
        raise Break("PL0024", "a seed that is no plain number", clean=True)
    allowed()
    return number


def state_for_graph(state: Any) -> TracedTensor:
    """The state of a generator of the CPU."""
    if type(state) is not TracedTensor or is_stand(state) or state.dtype is not torch.uint8 or tuple(state.sizes) != (BYTES,):
        raise Break("PL0024", "a state of a generator that is not known to be one", clean=True)
    allowed()
    return state


@lookaside(torch.random.manual_seed)
def l_manual_seed(args: tuple, kw: dict) -> Any:
    number = seed_for_graph(args[0] if args else kw["seed"])
    if torch.cuda.is_available():
        raise Break("PL0024", "a seed for devices too", clean=True)
    graph_call(MANUAL_SEED, (number,), {})
    return vm.world.locate(torch.default_generator, S.const(torch.default_generator))


@lookaside(torch.random.get_rng_state)
def l_get_rng_state(args: tuple, kw: dict) -> Any:
    allowed()
    return graph_call(GET_STATE, (), {})


@lookaside(torch.random.set_rng_state)
def l_set_rng_state(args: tuple, kw: dict) -> None:
    graph_call(SET_STATE, (state_for_graph(args[0] if args else kw["new_state"]),), {})


# -- Python's own ----------------------------------------------------------------------------------------------------------
PYTHONS = random.Random
for _fn in (PYTHONS.randint, PYTHONS.randrange, PYTHONS.uniform):
    policy.register(_fn, policy.INLINE)  # what they are made of are the draws below


def made_here(generator: Any) -> bool:
    """Whether the program has made a generator from a number: what it draws is known. It is another one from now on."""
    if type(generator) is not PYTHONS or id(generator) in vm.world.outside:
        return False
    writes()
    vm.world.unusual()
    return True


def shared(generator: Any) -> None:
    if generator is not GENERATOR:
        raise Break("PL0024", "a generator of the program's own", clean=True)
    allowed()


@lookaside(PYTHONS)
def l_make(args: tuple, kw: dict) -> Any:
    seeds = (*args, *kw.values())
    if not seeds or not all([type(seed) in SEEDS for seed in seeds]):
        raise Break("PL0024", "a generator that is not made of a plain number or text", clean=True)
    return plainly(PYTHONS, args, kw)


def plainly(fn: Callable, args: tuple, kw: dict) -> Any:
    """Code of `random` that is run as it is, on plain values."""
    return engine.call_in_mode(engine.OFF, fn, tuple(map(concrete, args)), {k: concrete(v) for k, v in kw.items()})


SEEDS = (int, torch.SymInt, float, str, bytes)


def draw(name: str) -> Any:
    return item(graph_call(NUMBERS[name], (), {}))


@lookaside(PYTHONS._randbelow)  # type: ignore[attr-defined]
def l_randbelow(args: tuple, kw: dict) -> Any:
    if made_here(args[0]):
        return plainly(PYTHONS._randbelow, args, kw)  # type: ignore[attr-defined]
    shared(args[0])
    number = args[1]
    if type(number) not in (int, torch.SymInt) or type(number) is int and not 0 < number <= MOST:
        raise Break("PL0024", "a random number below what is no plain number", clean=True)
    return item(graph_call(BELOW, (number,), {}))


def normal(name: str, fn: Callable) -> Callable:
    def replacement(args: tuple, kw: dict) -> Any:
        if made_here(args[0]):
            return inline(fn, args, kw)
        given = dict(zip(("self", "mu", "sigma"), args)) | kw
        shared(given["self"])
        scaled = binary(operator.mul, draw(name), given.get("sigma", 1.0))
        return binary(operator.add, given.get("mu", 0.0), scaled)

    return replacement


lookaside(PYTHONS.gauss)(normal("python_gauss", PYTHONS.gauss))
lookaside(PYTHONS.normalvariate)(normal("python_normalvariate", PYTHONS.normalvariate))


def of_known(fn: Callable) -> Callable:
    """A method that is interpreted for a generator made here alone."""

    def replacement(args: tuple, kw: dict) -> Any:
        if not args or not made_here(args[0]):
            raise Break(*policy.break_of(fn), clean=True)
        return inline(fn, args, kw)

    return replacement


for _name in (
    "choice choices sample shuffle triangular expovariate lognormvariate vonmisesvariate gammavariate betavariate paretovariate"
    " weibullvariate binomialvariate randbytes"
).split():
    if hasattr(PYTHONS, _name):
        inner_code_interpreted(getattr(PYTHONS, _name))
        lookaside(getattr(PYTHONS, _name))(of_known(getattr(PYTHONS, _name)))


@lookaside(PYTHONS.getstate)
def l_getstate(args: tuple, kw: dict) -> Any:
    if not args or not made_here(args[0]):
        raise Break(*policy.break_of(PYTHONS.getstate), clean=True)
    return plainly(PYTHONS.getstate, args, kw)


@lookaside(PYTHONS.seed)
def l_seed(args: tuple, kw: dict) -> None:
    if len(args) == 2 and not kw and type(args[1]) in SEEDS and made_here(args[0]):
        plainly(PYTHONS.seed, args, kw)
        return
    shared(args[0])
    if len(args) != 2 or kw or type(args[1]) is not int or not LEAST <= args[1] <= MOST:
        raise Break("PL0024", "a seed that is no plain number", clean=True)
    graph_call(SEED, (args[1],), {})


def random_of(generator: Any, args: tuple, kw: dict) -> Any:
    if made_here(generator):
        return native(generator.random, args, kw)
    shared(generator)
    return draw("python_random")


def bits_of(generator: Any, args: tuple, kw: dict) -> Any:
    if made_here(generator):
        return native(generator.getrandbits, args, kw)
    raise Break(*policy.break_of_method(PYTHONS, "getrandbits"), clean=True)


METHOD_LOOKASIDES[(PYTHONS, "random")] = random_of
METHOD_LOOKASIDES[(PYTHONS, "getrandbits")] = bits_of


__all__ = ["l_manual_seed"]
