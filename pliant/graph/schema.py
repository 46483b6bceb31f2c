"""What an operator's schema says about memory: which arguments it writes, and which results share memory with which argument."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from torch.utils._pytree import tree_leaves, tree_map_only

from pliant import native
from pliant.graph import symnode
from pliant.graph.operators import Column
from pliant.graph.originals import torch
from pliant.graph.traced import TracedTensor, tensors_of

T = TypeVar("T")
OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)


@dataclass(frozen=True, slots=True)
class OpInfo:
    """`names` are the arguments in order. `writes` are the names of those written in place. `returns[i]` tells result i:

    None (new memory), or `(name, same)`: it is argument `name` itself (`same`) or shares its memory.
    `inplace_view` is set when the operator changes the sizes or strides of its first argument (`t_`, `squeeze_`, ...).
    `composite` is set when C++ defines the operator by other operators. `custom`: it is not one of PyTorch's own.
    """

    names: tuple[str, ...]
    writes: tuple[str, ...]
    returns: tuple[tuple[str, bool] | None, ...]
    inplace_view: bool
    composite: bool
    random: bool
    custom: bool


KNOWN = ("aten::", "prims::", "pliant::dynamic_linear", "pliant::int8_mm", "pliant::lstm")
"""What the names of operators begin with whose schema and row say all that they do."""
UNDECLARED_VIEWS = Column("view_of")
"""Results that share memory although the schema does not say so."""
UNDECLARED_VIEWS.update({torch.ops.aten._unsafe_view.default: "self", torch.ops.aten._reshape_alias.default: "self"})


def of_operator(fn: Callable[[Any], T]) -> Callable[[Any], T]:
    """`fn` of an operator, worked out once. Looked up by identity: operators hash themselves in Python, which takes longer."""
    return native.ByIdentity(fn)


@of_operator
def op_info(func: Any) -> OpInfo:
    schema = func._schema
    names = tuple(a.name for a in schema.arguments)
    parts = next((a.name for a in schema.arguments if a.alias_info is not None and "*" in a.alias_info.after_set), None)
    by_set = {s: a.name for a in schema.arguments if a.alias_info is not None for s in a.alias_info.before_set}
    writes = tuple(a.name for a in schema.arguments if a.alias_info is not None and a.alias_info.is_write)
    returns: list[tuple[str, bool] | None] = []
    for r in schema.returns:
        found = None
        if r.alias_info is not None:
            for s in (*r.alias_info.before_set, *r.alias_info.after_set):
                if s in by_set:
                    found = (by_set[s], r.alias_info.is_write)
            if found is None and parts is not None:  # a list of views
                found = (parts, False)
        returns.append(found)
    hidden = UNDECLARED_VIEWS.get(func)
    if hidden is not None:
        returns[0] = (hidden, False)
    return OpInfo(
        names,
        writes,
        tuple(returns),
        torch.Tag.inplace_view in func.tags,
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"),
        torch.Tag.nondeterministic_seeded in func.tags,
        not schema.name.startswith((*KNOWN, "prim::")),
    )


WHOLE = re.compile(r"(Optional\[|List\[)*(int|SymInt|bool)(\[\d*\])?\]*")
"""Types of arguments that are no floats."""


def as_schema(fn: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """Arguments of an operator called by `torch.ops`, which takes a symbolic float for a whole number where it refuses a float: it is
    given the number then."""
    if type(fn) not in OPERATORS or not any([type(v) is torch.SymFloat for v in tree_leaves((args, kwargs))]):
        return args, kwargs
    schemas = [fn._schema] if type(fn) is OPERATORS[0] else [getattr(fn, name)._schema for name in fn.overloads()]

    def settled(v: Any, key: Any) -> Any:
        types = [str(a.type) for s in schemas for i, a in enumerate(s.arguments) if key in (i, a.name)]
        return v if not all(map(WHOLE.fullmatch, types)) else tree_map_only(torch.SymFloat, symnode.concrete, v)

    return tuple([settled(v, i) for i, v in enumerate(args)]), {k: settled(v, k) for k, v in kwargs.items()}


def argument(info: OpInfo, args: tuple, kwargs: dict, name: str) -> Any:
    """The value passed for `name`, or None."""
    i = info.names.index(name)
    return args[i] if i < len(args) else kwargs.get(name)


def written(op: Any) -> list[TracedTensor]:
    """The tensors whose memory an operation writes."""
    info = op_info(op.target)
    return tensors_of([argument(info, op.args, op.kwargs, name) for name in info.writes]) if info.writes else []
