"""A share of all programs through backends that are handed a graph: one that runs it node by node, and one that differentiates it itself.

PLIANT_TEST_BACKEND=eager (or aot_eager, checked) sends every program of every test through such a backend. Here is one program in
`EVERY` of those that are registered, with another start for each backend.
"""

from __future__ import annotations

import importlib
import pathlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import pliant
from tests.helpers import interpreted
from tests.programs.registry import KNOWN, REGISTRY, Case

NOT_AS_EAGER = ("BatchNorm", "_node", "packed_through_layers")
"""Of `aot_eager`: it writes running statistics back with a copy, which versions tell, its nodes of autograd have names of their own, and of
packed sequences its shape functions ask for numbers that nobody knows."""
EVERY = {"interpreted": (interpreted, 12), "aot_eager": ("aot_eager", 40)}


def registered() -> Iterator[Case]:
    for path in sorted(pathlib.Path(__file__).parent.glob("test_*.py")):
        if path.stem != pathlib.Path(__file__).stem:
            importlib.import_module(f"tests.programs.{path.stem}")
    for name in sorted(REGISTRY):
        yield from (c for c in REGISTRY[name] if c.name not in KNOWN)


def shares() -> list[Any]:
    programs = list(registered())
    return [
        pytest.param(case, backend, id=f"{case.fn.__module__.rpartition('.')[2]}-{case.name}-{name}")
        for name, (backend, every) in EVERY.items()
        for case in programs[every // 2 :: every]
        if name != "aot_eager" or not any([word in case.name for word in NOT_AS_EAGER])
    ]


@pytest.mark.parametrize(("case", "backend"), shares())
def test_program(case, backend):
    case.run_through(backend)


@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_what_nobody_reads_of_an_input_that_nobody_reads(backend):
    target = pliant.compile(lambda x: x.shape == x.T.shape, backend=backend)
    assert [target(torch.ones(3, n)) for n in (4, 3, 5)] == [False, True, False]


@pytest.mark.parametrize("module, name, backend", [
    ("test_torch_features_operators", "custom_backward", "interpreted"), ("test_subclasses", "switched_off", "interpreted"),
    ("test_torch_features_numeric", "windows_of_a_number", "aot_eager"),
])  # fmt: skip
def test_what_others_would_lose(module, name, backend):
    """Gradients of an operator with a derivative of its own, and of a leaf that is made inside; a manager that is on at a graph break."""
    importlib.import_module(f"tests.programs.{module}")
    case = next(c for cases in REGISTRY.values() for c in cases if c.name == name and c.fn.__module__.endswith(module))
    case.run_through(EVERY[backend][0])
