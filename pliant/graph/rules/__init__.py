"""Shape rules: one table, `RULES`, filled by the modules of this package."""

from pliant.graph.rules import factory, index, linalg, matmul, nn, nn_backward, pointwise, reduce, views
from pliant.graph.rules.table import HANDLERS, RULES

__all__ = ["HANDLERS", "RULES", "factory", "index", "linalg", "matmul", "nn", "nn_backward", "pointwise", "reduce", "views"]
