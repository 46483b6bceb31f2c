"""Small programs, registered where they are written: a theme's file is a list of `@program(...)` functions and one parametrized test."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from tests.helpers import Report, check, check_world

REGISTRY: dict[str, list[Case]] = {}


@dataclasses.dataclass
class Case:
    """A program, the argument sets it is called with in order, and what may be said of its compilation."""

    name: str
    fn: Callable
    arg_sets: tuple
    world: bool
    options: dict

    def run(self) -> Report:
        return (check_world if self.world else check)(self.fn, *self.arg_sets, **self.options)

    def run_through(self, backend: Any, **more: Any) -> Report:
        """The same with another backend, which may capture and break differently. `more`: other options than the program's."""
        given = {k: v for k, v in self.options.items() if k not in ("captures", "breaks", "entries", "lines")} | more
        given["options"] = {**given.get("options", {}), "backend": backend}
        return (check_world if self.world else check)(self.fn, *self.arg_sets, **given, lines=False)

    def __repr__(self) -> str:
        return self.name


def program(*arg_sets: Any, world: bool = False, **options: Any) -> Callable:
    """Register a function (or, with `world`, a factory of one). `options` are those of `helpers.check_world`: grad, breaks, captures…"""

    def register(fn: Any) -> Any:
        cases = REGISTRY.setdefault(fn.__module__, [])
        assert fn.__name__ not in [c.name for c in cases], f"{fn.__name__} is there twice"
        cases.append(Case(fn.__name__, fn, arg_sets, world, options))
        return fn

    return register


def programs(module: str, *arg_sets: Any, world: bool = False, **options: Any) -> Callable:
    """Register a table `{name: function}` of programs that take the same arguments."""

    def register(table: dict[str, Callable]) -> None:
        there = REGISTRY.setdefault(module, [])
        assert not table.keys() & {c.name for c in there}, table.keys() & {c.name for c in there}
        there += [Case(name, fn, arg_sets, world, options) for name, fn in table.items()]

    return register


def listed(module: str, reasons: dict[str, str], **options: Any) -> None:
    """Programs of which less is promised, each with the reason: in place of `breaks` and `captures`, these options hold."""
    there = {c.name: c for c in REGISTRY[module]}
    for name in reasons:
        kept = {k: v for k, v in there[name].options.items() if k not in ("breaks", "captures")}
        there[name].options = kept | options


# Programs that still differ from eager, or from what was hoped for, and why.
KNOWN: dict[str, str] = {}


def cases(module: str) -> list:
    def marked(c: Case) -> Any:
        return pytest.param(c, marks=pytest.mark.xfail(strict=False, reason=KNOWN[c.name])) if c.name in KNOWN else c

    return [marked(c) for c in REGISTRY[module]]


def t(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32, grad: bool = False) -> torch.Tensor:
    """A tensor of fixed values, exact in binary and of both signs."""
    n = 1
    for s in shape:
        n *= s
    flat = ((torch.arange(n) * 7 + seed * 5) % 13 - 6).to(torch.float64) / 4
    return flat.reshape(shape).to(dtype).requires_grad_(grad)


def each(*sizes: int, tail: tuple[int, ...] = (), n: int = 1, **kw: Any) -> list[tuple]:
    """One argument set per size: `n` tensors of shape (size, *tail)."""
    return [tuple(t(s, *tail, seed=i, **kw) for i in range(n)) for s in sizes]


def code_objects(code: types.CodeType) -> Iterable[types.CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, types.CodeType):
            yield from code_objects(const)
