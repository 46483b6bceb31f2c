"""`torch.Generator`: in a graph it is the tensor of its state, which is written where something draws from it (`graph/seeding.py`).

One from outside is read by the guards, and put into its last state when the graph has run. One that the program makes is made again, in
that state. The generator that all share is no such object: a call that is given it is one that is given none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.seeding import LOAD, OWN, SEEDED_STATE, STORE
from pliant.graph.traced import TracedTensor
from pliant.guards.source import Source
from pliant.guards.views import VIEWS
from pliant.interpret import globalstate
from pliant.interpret.calls import KEYWORDS, METHOD_LOOKASIDES, graph_call
from pliant.interpret.gate import name_of
from pliant.interpret.lookasides import lookaside
from pliant.interpret.random_state import allowed, l_get_rng_state, l_manual_seed, l_set_rng_state, seed_for_graph, state_for_graph
from pliant.interpret.state import Break, vm, writes
from pliant.interpret.tensor_inputs import make_tensor
from pliant.interpret.types.row import row
from pliant.interpret.world import SOURCED, World

CPU = torch.device("cpu")
FIRST_SEED = torch.Generator().initial_seed()
DEFAULT = torch.default_generator


class TracedGenerator:
    """A generator of the CPU. `seed`: what it was seeded with, None where that is not known."""

    __slots__ = ("drawn", "seed", "source", "state", "__weakref__")

    def __init__(self, state: TracedTensor, seed: Any = None, source: Source | None = None) -> None:
        self.state = state
        self.seed = seed
        self.source = source
        self.drawn = False  # it is in another state than it was before the program ran


class GeneratorMethod:
    """A method of a generator, bound."""

    __slots__ = ("name", "owner")

    def __init__(self, owner: TracedGenerator, name: str) -> None:
        self.owner = owner
        self.name = name


def refused(what: str) -> Break:
    return Break("PL0024", what, clean=True)


def locate_generator(world: World, g: torch.Generator, source: Source) -> Any:
    if g is DEFAULT:
        return world.identity(g, source)
    known = world.generators.get(id(g))
    if known is not None:
        if known.source is not source:
            world.guard(source, "ALIAS", known.source)
        return known
    world.guard(source, "TYPE_MATCH", torch.Generator)
    if g.device != CPU or globalstate.heard():  # the mode would be told of its state
        return world.adopt(g, source)
    with world.trace.paused():
        state = VIEWS["generator_state"](g)
    made = TracedGenerator(make_tensor(world, state, source.apply("generator_state")), None, source)
    world.generators[id(g)] = made
    world.keep += (g, made)
    return made


def changed(g: TracedGenerator) -> None:
    """It is about to be in another state."""
    writes()
    allowed()
    vm.world.unusual()
    if g.source is not None and not g.drawn:
        g.state = graph_call(torch.clone, (g.state,), {})
    g.drawn = True


def draw(g: Any, fn: Any, args: tuple, kwargs: dict) -> Any:
    """`fn(*args, **kwargs, generator=g)`."""
    if g is DEFAULT:
        return graph_call(fn, args, kwargs)
    if type(g) is not TracedGenerator:
        return NotImplemented
    changed(g)
    graph_call(LOAD, (g.state,), {})
    out = graph_call(fn, args, {**kwargs, "generator": OWN})
    graph_call(STORE, (g.state,), {})
    return out


KEYWORDS["generator"] = draw


@lookaside(torch.Generator)
def l_make(args: tuple, kw: dict) -> TracedGenerator:
    allowed()
    device = args[0] if args else kw.get("device", CPU)
    if torch.device(device) != CPU:
        raise refused("a generator of a device is made")
    return TracedGenerator(graph_call(SEEDED_STATE, (FIRST_SEED,), {}), FIRST_SEED)


# -- methods ----------------------------------------------------------------------------------------------------------------
def manual_seed(g: TracedGenerator, seed: Any) -> TracedGenerator:
    changed(g)
    g.seed = seed_for_graph(seed)
    graph_call(ORIGINAL.copy_, (g.state, graph_call(SEEDED_STATE, (g.seed,), {})), {}, "copy_")
    return g


def initial_seed(g: TracedGenerator) -> Any:
    if g.seed is None or type(g.seed) is int and g.seed < 0:  # which PyTorch counts from the end
        raise refused("the seed of a generator from outside, or that was put into a state")
    return g.seed


def get_state(g: TracedGenerator) -> TracedTensor:
    return graph_call(torch.clone, (g.state,), {})


def set_state(g: TracedGenerator, new_state: Any) -> TracedGenerator:
    changed(g)
    graph_call(ORIGINAL.copy_, (g.state, state_for_graph(new_state)), {}, "copy_")
    g.seed = None
    return g


def clone_state(g: TracedGenerator) -> TracedGenerator:
    allowed()
    return TracedGenerator(get_state(g), g.seed)


METHODS: dict[str, Callable] = {f.__name__: f for f in (manual_seed, initial_seed, get_state, set_state, clone_state)}


def call_method(m: GeneratorMethod, args: tuple, kw: dict) -> Any:
    if m.name not in METHODS:
        raise refused(f"Generator.{m.name}")
    return METHODS[m.name](m.owner, *args, **kw)


def attribute(g: TracedGenerator, name: str) -> Any:
    if name == "device":
        return CPU
    if name == "__class__":
        return torch.Generator
    return GeneratorMethod(g, name) if callable(getattr(DEFAULT, name)) else refuse(g, name)


def refuse(g: Any, name: Any, *rest: Any) -> Any:
    raise refused(f"{name_of(name) if callable(name) else name} of a generator")


def generator_type(g: TracedGenerator) -> type:
    return torch.Generator


def of_shared(look: Callable) -> Callable:
    """A method of the generator that all share is the function of `torch.random` of its name."""

    def run(g: torch.Generator, args: tuple, kw: dict) -> Any:
        if g is not DEFAULT:
            raise refused("a generator of a device")
        return look(args, kw)

    return run


for _name, _look in {"manual_seed": l_manual_seed, "get_state": l_get_rng_state, "set_state": l_set_rng_state}.items():
    METHOD_LOOKASIDES[(torch.Generator, _name)] = of_shared(_look)

SOURCED.add(TracedGenerator)
row(
    name="generator of random numbers", located=(torch.Generator,), stands=(TracedGenerator,), locate=locate_generator,
    type=generator_type, getattr=attribute, setattr=refuse, delattr=refuse, to_c=lambda fn, g: refuse(g, fn),
    to_graph=lambda fn, g: refuse(g, fn), text=lambda g, fn: refuse(g, fn), hashed=lambda g: g,
)  # fmt: skip
row(name="method of a generator of random numbers", stands=(GeneratorMethod,), call=call_method, to_c=lambda fn, m: refuse(m, fn))
