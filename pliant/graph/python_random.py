"""Random numbers of Python and of NumPy as operators: seeding Python's `random`, drawing from the generator that its functions share, and
from the one that the functions of `numpy.random` share. They stay in order."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from pliant.graph.originals import torch
from pliant.graph.own_operators import register_fake
from pliant.graph.seeding import LIBRARY

GENERATOR: random.Random = random.seed.__self__  # type: ignore[attr-defined]
RANDOM = (torch.Tag.nondeterministic_seeded,)

#: What one draw is, by the name of the operator. The two normal ones are drawn as mean 0 and deviation 1, which is what others are made of.
DRAWS: dict[str, Callable[[], float]] = {
    "python_random": GENERATOR.random,
    "python_gauss": lambda: GENERATOR.gauss(0.0, 1.0),
    "python_normalvariate": lambda: GENERATOR.normalvariate(0.0, 1.0),
}


try:
    from numpy.random.mtrand import _rand as NUMPYS
except ImportError:
    NUMPYS = None  # type: ignore[assignment]
if NUMPYS is not None:
    DRAWS |= {"numpy_random": NUMPYS.random_sample, "numpy_gauss": NUMPYS.standard_normal}


def drawn(draw: Callable[[], float]) -> Callable[[], torch.Tensor]:
    return lambda: torch.tensor(draw(), dtype=torch.float64, device="cpu")


for _name, _draw in DRAWS.items():
    LIBRARY.define(f"{_name}() -> Tensor", tags=RANDOM)
    LIBRARY.impl(_name, drawn(_draw), "CompositeExplicitAutograd")
    register_fake(LIBRARY, _name, lambda: torch.empty((), dtype=torch.float64, device="cpu"))


def below(n: int) -> torch.Tensor:
    return torch.tensor(GENERATOR._randbelow(n), device="cpu")  # type: ignore[attr-defined]


def seed(number: int) -> None:
    GENERATOR.seed(number)


LIBRARY.define("python_randbelow(SymInt n) -> Tensor", tags=RANDOM)
LIBRARY.impl("python_randbelow", below, "CompositeExplicitAutograd")
register_fake(LIBRARY, "python_randbelow", lambda n: torch.empty((), dtype=torch.int64, device="cpu"))
LIBRARY.define("python_seed(int seed) -> ()")
LIBRARY.impl("python_seed", seed, "CompositeExplicitAutograd")
register_fake(LIBRARY, "python_seed", lambda number: None)

if NUMPYS is not None:
    for _name in ("numpy_random", "numpy_gauss"):  # many at once: as one after the other
        LIBRARY.define(f"{_name}_many(SymInt n) -> Tensor", tags=RANDOM)
        LIBRARY.impl(f"{_name}_many", lambda n, draw=DRAWS[_name]: torch.from_numpy(draw(n)), "CompositeExplicitAutograd")
        register_fake(LIBRARY, f"{_name}_many", lambda n: torch.empty((n,), dtype=torch.float64, device="cpu"))

NUMBERS: dict[str, Any] = {name: getattr(torch.ops.pliant, name).default for name in DRAWS}
MANY: dict[str, Any] = {name: getattr(torch.ops.pliant, f"{name}_many").default for name in DRAWS if name.startswith("numpy_")}
OF_NUMPY = frozenset((*MANY.values(), *(op for name, op in NUMBERS.items() if name.startswith("numpy_"))))
BELOW: Any = torch.ops.pliant.python_randbelow.default
SEED: Any = torch.ops.pliant.python_seed.default


def draws_from_python(op: Any) -> bool:
    """Whether an operation draws from the generator of Python's `random`, or a branch or loop in which one may."""
    return op.target is BELOW or op.target in NUMBERS.values() or any([draws_from_python(o) for o in flow_of(op)])


def draws_from_numpy(op: Any) -> bool:
    """The same for NumPy's."""
    return op.target in OF_NUMPY or any([draws_from_numpy(o) for o in flow_of(op)])


def flow_of(op: Any) -> list:
    flow = getattr(op, "flow", None)
    return list(flow.ops()) if flow is not None else []
