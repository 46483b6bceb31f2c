"""Symbolic scalars: sizes that nobody has to specialize. Pure Python, imports no torch. See docs/symbolic.md."""

from pliant.symbolic import ops
from pliant.symbolic.expr import Expr, Symbol
from pliant.symbolic.scope import Assert, DataDependent, Scope, SymGuard

__all__ = ["Assert", "DataDependent", "Expr", "Scope", "SymGuard", "Symbol", "ops"]
