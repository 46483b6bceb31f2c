"""The user's say over input sizes: `mark_dynamic`, `mark_unbacked`, `mark_static`, `maybe_mark_dynamic`, and `compile(dynamic={...})`.

    batch = pliant.Dim("batch", min=1, max=4096, multiple_of=8)
    fn = pliant.compile(model, dynamic={"x": {0: batch}, "y": {0: 2 * batch + 1, 1: True}, "n": pliant.Dim("n")})
    pliant.mark_dynamic(x, 0, min=1, max=4096)

A declared dim is not specialized on 0 and 1, and `PliantError` is raised, with the line and the fix, where the program pins it to a number.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import itertools
import types
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from pliant import native
from pliant.bytecode import kind_at
from pliant.bytecode import kinds as K
from pliant.config import Config
from pliant.graph.originals import ORIGINAL
from pliant.guards.guard import Site
from pliant.interpret.declared import MARKS, Declared, Path
from pliant.symbolic.dims import Derived, Dim, Mark, check_specialized, promised

Dims = int | Iterable[int]
_numbers = itertools.count()


def mark_dynamic(t: torch.Tensor, dim: Dims, *, min: int | None = None, max: int | None = None, multiple_of: int = 1) -> None:
    """Declare sizes of `t` dynamic, within [min, max]: what is compiled serves them all, 0 and 1 too.

    Each dim is on its own; to tie sizes together declare them with one `Dim` in `pliant.compile(dynamic=...)`. Calls outside the range
    raise. Raises `PliantError` at the call if the size does not fit, or the program pins it to a number.
    """
    for d in each(t, dim):
        put(t, d, Dim(f"dim{next(_numbers)}", min or 0, max, multiple_of))


def maybe_mark_dynamic(t: torch.Tensor, dim: Dims) -> None:
    """Let sizes of `t` be symbolic, 0 and 1 too; if the program specializes one, so be it."""
    for d in each(t, dim):
        put(t, d, Mark.MAYBE)


def mark_unbacked(t: torch.Tensor, dim: Dims) -> None:
    """Compile without looking at these sizes, as if they came from data: a branch of the program on one breaks the graph."""
    for d in each(t, dim):
        put(t, d, Mark.UNBACKED)


def mark_static(t: torch.Tensor, dim: Dims | None = None) -> None:
    """Let these sizes (default: all) be part of what is compiled: another size is compiled anew."""
    for d in each(t, dim):
        put(t, d, Mark.STATIC)


def each(t: torch.Tensor, dim: Dims | None) -> Iterator[int]:
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"a tensor is marked, not {type(t).__name__}")
    for d in range(ORIGINAL.dim(t)) if dim is None else [dim] if isinstance(dim, int) or not isinstance(dim, Iterable) else dim:
        if type(d) is not int:
            raise TypeError(f"a dim is a whole number (or several in a list), not {d!r} (a {type(d).__name__})")
        if not -ORIGINAL.dim(t) <= d < ORIGINAL.dim(t):
            raise IndexError(f"dim {d} of a tensor with {ORIGINAL.dim(t)} dims")
        yield d % ORIGINAL.dim(t)


def put(t: torch.Tensor, d: int, mark: Declared) -> None:
    marks = getattr(t, MARKS, None)
    if marks is None:
        marks = {}
        setattr(t, MARKS, marks)
    marks[d] = mark


# compile(dynamic={...}) --------------------------------------------------------------------------------------
Table = tuple[tuple[Path, tuple[tuple[int | None, Declared], ...]], ...]
WORDS: dict[Any, Declared] = {True: Mark.MAYBE, False: Mark.STATIC, None: Mark.STATIC}


def table(dynamic: Mapping[str, Any]) -> Table:
    """A declaration by parameter as a hashable table: (path, ((dim, what), ...)); the dim of an int is None.

    A tensor is declared by `{dim: what}` or by one `what` for each of its dims; `what` is a `Dim`, one derived from it, True (symbolic),
    False or None (static), or a `Mark`. An int parameter is declared by a `what`. Lists, tuples and dicts nest as the arguments do.
    """
    if not isinstance(dynamic, Mapping) or not all(isinstance(k, str) for k in dynamic):
        raise TypeError("dynamic= is None, True, False, or a dict from parameter names to declared dims")
    return tuple(row for name, spec in dynamic.items() for row in rows((name,), spec))


def rows(path: Path, spec: Any) -> Iterator[tuple[Path, tuple]]:
    if is_what(spec):
        yield path, ((None, what(spec)),)
    elif isinstance(spec, Mapping):
        if spec and all(type(k) is int for k in spec) and all(map(is_what, spec.values())):
            yield path, tuple((d, what(v)) for d, v in spec.items())
        else:
            for k, v in spec.items():
                yield from rows((*path, ("key", k)), v)
    elif isinstance(spec, (list, tuple)):
        if spec and all(map(is_what, spec)):
            yield path, tuple((d, what(v)) for d, v in enumerate(spec))
        else:
            for i, v in enumerate(spec):
                yield from rows((*path, ("index", i)), v)
    else:
        raise TypeError(f"dynamic[{path[0]!r}]: {spec!r} declares nothing: use a Dim, True, False, None, or containers of them")


def is_what(spec: Any) -> bool:
    return spec is None or isinstance(spec, (bool, Dim, Derived, Mark))


def what(spec: Any) -> Declared:
    return WORDS[spec] if spec is None or isinstance(spec, bool) else spec


def bound_to(model: Any, config: Config) -> Config:
    """`config` with its declarations said of the frame that is captured for `model`. ValueError if one names no parameter."""
    later = isinstance(model, (type, functools.partial, staticmethod, classmethod))  # it is asked again for what is inside
    if not isinstance(config.dynamic, tuple) or not config.dynamic or later:
        return config
    plain = isinstance(model, (types.FunctionType, types.MethodType, native.EntryPoint))
    target = model.__func__ if isinstance(model, types.MethodType) else model._fn if isinstance(model, native.EntryPoint) else model
    parameters = inspect.signature(target.forward if isinstance(target, torch.nn.Module) else target).parameters
    wrong = sorted({path[0] for path, _ in config.dynamic} - set(parameters))
    if wrong:
        known = ", ".join(parameters) or "none"
        raise ValueError(f"dynamic= declares {', '.join(map(repr, wrong))}, but the parameters of {type(model).__name__} are: {known}")
    return config if plain else dataclasses.replace(config, dynamic=spread(config.dynamic, list(parameters.values())))


def spread(declared: Table, parameters: list[inspect.Parameter]) -> Table:
    """Modules and callable objects are called through `(*args, **kwargs)`: where each parameter is then to be found."""
    out = []
    for (name, *steps), marks in declared:
        at = next(i for i, p in enumerate(parameters) if p.name == name)
        kind = parameters[at].kind
        if kind is inspect.Parameter.VAR_POSITIONAL:
            (_, first), *steps = steps
            out.append((("args", ("index", at + first), *steps), marks))
        elif kind is inspect.Parameter.VAR_KEYWORD:
            out.append((("kwargs", *steps), marks))
        else:
            out += [(("args", ("index", at), *steps), marks), (("kwargs", ("key", name), *steps), marks)]
    return tuple(out)


# after a capture ---------------------------------------------------------------------------------------------
def is_branch(site: Any) -> bool:
    """Whether the instruction at `site` decides where the program goes on: its own branch, with a graph for each side."""
    if not isinstance(site, Site) or site.code is None or not 0 <= site.offset < len(site.code.co_code):
        return False
    kind = kind_at(site.code, site.offset)
    return kind.branch or kind is K.JUMP


def check(scope: Any) -> None:
    """Raise `ConstraintViolation` if the capture pinned a declared size."""
    if any(map(promised, scope.symbols.values())):
        check_specialized(scope, is_branch)
