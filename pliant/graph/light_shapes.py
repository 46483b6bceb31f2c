"""What PyTorch's shape functions ask about sizes, without SymPy, which they would import on first use: a quarter of a second.

Its meta kernels and decompositions in Python (those of `topk`, pooling, `fft`, `cdist`, factorizations of matrices) begin with
`from torch.fx.experimental.symbolic_shapes import expect_true`, whatever they are asked about. (Its rules of type promotion import SymPy
themselves: those of `interpolate`, `glu`, `binary_cross_entropy` still do.) That module is a thin one for sizes that are
ints, or have nodes of ours; so as long as nobody has imported it, another one stands in `sys.modules` while a shape function runs, in which
these questions go to the node at once. Everything else (other names, other nodes) is the real module's, which is imported then.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher

from pliant.graph import light
from pliant.graph.originals import operator
from pliant.graph.symnode import SymNode

PACKAGE, NAME = "torch.fx.experimental", "symbolic_shapes"
SHAPES, CONFIG = f"{PACKAGE}.{NAME}", f"{PACKAGE}._config"


class Shapes(types.ModuleType):
    """In place of `symbolic_shapes`."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(real(), name)


def real() -> types.ModuleType:
    """The module itself, imported if need be."""
    leave()
    return importlib.import_module(SHAPES)


def leave() -> None:
    if sys.modules.get(SHAPES) is STAND:
        del sys.modules[SHAPES]
    package = sys.modules.get(PACKAGE)
    if package is not None and vars(package).get(NAME) is STAND:
        delattr(package, NAME)


def question(name: str, ask: Any) -> Any:
    """The function of this name: a bool is its own answer, and `ask` knows that of a node of ours."""

    def asked(a: Any, *rest: Any, **kwargs: Any) -> Any:
        if type(a) is bool:
            return a
        if type(a) is torch.SymBool and type(a.node) is SymNode:
            return ask(a.node)
        return getattr(real(), name)(a, *rest, **kwargs)

    asked.__name__ = asked.__qualname__ = name
    return asked


def has_guarding_hint(a: Any) -> bool:
    return a.node.has_hint() if type(a) in (torch.SymInt, torch.SymFloat, torch.SymBool) else True


def guarding_hint_or_throw(a: Any) -> Any:
    return a if type(a) in (int, bool) else real().guarding_hint_or_throw(a)


def is_nested_int(a: Any) -> bool:
    return type(a) is torch.SymInt and a.node.is_nested_int()


def sym_and(x: Any, *others: Any) -> Any:
    return functools.reduce(operator.and_, others, x)


def sym_or(x: Any, *others: Any) -> Any:
    return functools.reduce(operator.or_, others, x)


def sym_eq(x: Any, y: Any) -> Any:
    """One relation for lists of sizes, item by item."""
    if type(x) in (tuple, list, torch.Size) and type(y) in (tuple, list, torch.Size):
        return len(x) == len(y) and functools.reduce(operator.and_, map(sym_eq, x, y), True)
    return x == y if type(x) in (int, torch.SymInt) and type(y) in (int, torch.SymInt) else real().sym_eq(x, y)


QUESTIONS = {
    "expect_true": lambda node: node.expect_true(),
    "guard_or_false": lambda node: node.shape_env.evaluate_sym_node(node, fallback_value=False),
    "guard_or_true": lambda node: node.shape_env.evaluate_sym_node(node, fallback_value=True),
    "guard_size_oblivious": lambda node: node.guard_size_oblivious(),
    "statically_known_true": lambda node: bool(node.shape_env._maybe_evaluate_static(node.expr)),
}
STAND = Shapes(SHAPES)
vars(STAND).update({name: question(name, ask) for name, ask in QUESTIONS.items()})
vars(STAND).update({f.__name__: f for f in (has_guarding_hint, guarding_hint_or_throw, is_nested_int, sym_and, sym_or, sym_eq)})


@contextlib.contextmanager
def shape_functions() -> Iterator[None]:
    """PyTorch's shape functions and decompositions in Python are what operators are asked inside."""
    light.prepare()
    stands = SHAPES not in sys.modules and not getattr(sys.modules.get(CONFIG), "backed_size_oblivious", False)
    if stands:
        sys.modules[SHAPES] = STAND
        setattr(importlib.import_module(PACKAGE), NAME, STAND)
    try:
        with enable_python_dispatcher():
            yield
    finally:
        if stands:
            leave()
