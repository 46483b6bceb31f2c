"""Lowerings: ATen operations as loop nests. `TABLE` maps an overload to its rule; what has no rule stays an ATen call."""

# Their rules enter the table.
from pliant.lower.lowerings import activations, gathers, moved, norms, pointwise, pooling, reductions, scatters
from pliant.lower.lowerings.builder import TABLE, Builder, Refuse

__all__ = ["TABLE", "Builder", "Refuse", "activations", "gathers", "moved", "norms", "pointwise", "pooling", "reductions", "scatters"]
