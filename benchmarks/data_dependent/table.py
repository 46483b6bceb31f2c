"""All programs of the table, by name."""

from benchmarks.data_dependent import masks, ragged, scalars, sizes  # noqa: F401  (they register their programs)
from benchmarks.data_dependent.program import PROGRAMS

__all__ = ["PROGRAMS"]
