"""The table of lowerings: for each ATen operator the function that makes its StableHLO.

A lowering is `fn(b, *args, **kwargs)`: `b` the builder, the arguments those of the operator, with tensors as `Value`s and symbolic numbers
as expressions. It gives a `Value`, or a list of them (None for one that nobody uses, see `b.used`). What the trace says of the results is
in `b.outs`. An operator, or an overload, without a row is refused; a case that a row does not cover raises `Unsupported` with the reason.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LOWERINGS: dict[str, Row] = {}


@dataclass(frozen=True, slots=True)
class Row:
    """`composite`: it is also written as a `stablehlo.composite` call, so that others may know it by name."""

    fn: Callable[..., Any]
    composite: bool = False


def lowering(names: str, composite: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Register for the overloads `names` ("add.Tensor add.Scalar") of the namespace aten, or of another that is written out."""

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        for name in names.split():
            full = name if "::" in name else f"aten::{name}"
            if full in LOWERINGS:
                raise ValueError(f"two lowerings of {full}")
            LOWERINGS[full] = Row(fn, composite)
        return fn

    return register


def key(target: Any) -> str:
    """The name of an operator's row: "aten::add.Tensor"; "aten::neg.default" where the schema has no overload."""
    schema = target._schema
    return f"{schema.name}.{schema.overload_name or 'default'}"
