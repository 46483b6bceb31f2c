"""Shape rules: one table, `RULES`, filled by the modules of this package."""

from pliant.graph.rules import pointwise, views
from pliant.graph.rules.table import HANDLERS, RULES

__all__ = ["HANDLERS", "RULES", "pointwise", "views"]
