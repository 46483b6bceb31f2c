"""`shapes_spec=`: PyTorch's declarations of sizes (`torch.fx.experimental.dynamic_spec`) as the table of `dynamic=`.

A variable is a declared dim there as here: `ShapeVar("n", min=1)` is `Dim("n", min=1)`, and one that stands in two places ties them
together. What is not declared is static to `torch.compile`; here it is as without a declaration.
"""

from __future__ import annotations

import sys
from typing import Any

from pliant.errors import PliantError
from pliant.symbolic.dims import Derived, Dim, Mark

MODULE = "torch.fx.experimental.dynamic_spec"


def declarations(spec: Any) -> dict[str, Any]:
    """What `dynamic=` would be told. Raises TypeError for another object, PliantError for what has no counterpart."""
    types = sys.modules.get(MODULE)  # whoever has a specification has imported it
    if types is None or not isinstance(spec, (types.ShapesSpec, types.ParamsSpec)):
        raise TypeError(f"shapes_spec= is a ShapesSpec or ParamsSpec of {MODULE}, not {spec!r} (a {type(spec).__name__})")
    if isinstance(spec, types.ShapesSpec):
        if spec.assumptions:
            raise PliantError("shapes_spec=: assumptions are not understood. State them in the program with torch._check.")
        spec = spec._params or types.ParamsSpec()
    if spec._varargs is not None or spec._varkw is not None:
        raise PliantError("shapes_spec=: '*args' and '**kwargs' are not understood. Name parameters, or mark tensors (mark_dynamic).")
    return {name: declared(value, types) for name, value in spec._named_args.items()}


def declared(spec: Any, types: Any) -> Any:
    """One declaration, a container of them, or None."""
    if isinstance(spec, types.TensorSpec):
        return {d: what(size, types) for d, size in enumerate(spec) if size is not None} or None
    if isinstance(spec, types.DictSpec):
        return {k: declared(v, types) for k, v in spec.items()}
    if isinstance(spec, types.SeqSpec):
        return [declared(v, types) for v in spec._entries]
    if isinstance(spec, types.ObjectSpec):
        raise PliantError("shapes_spec=: attributes of objects are not understood. Mark the tensors that they hold (mark_dynamic).")
    return what(spec, types)


def what(size: Any, types: Any) -> Dim | Derived | Mark | None:
    """The size of a dim, or an int: a dim, one that follows from a dim, or static."""
    if size is None or type(size) is int:
        return Mark.STATIC
    if isinstance(size, types.IntVar):
        return Mark.MAYBE if not isinstance(size, types.ShapeVar) and (size.min is None or size.min < 0) else dim_of(size)
    if hasattr(size, "node"):
        variables = list(size.node.expr.free_symbols)
        known = types._get_spec_shape_env().var_to_range
        if len(variables) == 1 and variables[0] in known:
            s, r = variables[0], known[variables[0]]
            rest = size.node.expr.subs(s, 0)
            scale = (size.node.expr - rest) / s
            if scale.is_Integer and rest.is_Integer and scale >= 1:
                return dim_named(str(s), *[int(b) if b.is_Integer else None for b in (r.lower, r.upper)]) * int(scale) + int(rest)
    raise PliantError(f"shapes_spec=: {size!r} is no variable, number, or k * variable + c with whole k >= 1")


def dim_of(v: Any) -> Dim:
    return dim_named(str(v.sympy_sym), v.min, v.max)


def dim_named(symbol: str, lo: int | None, hi: int | None) -> Dim:
    """The dim of a variable: its name and number, so that two of one name stay two."""
    if lo is not None and lo < 0:
        raise PliantError(f"shapes_spec=: {symbol} may be negative, and a declared number may not")
    return Dim(symbol.replace("#", "_"), lo or 0, hi)
