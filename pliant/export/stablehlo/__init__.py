"""Programs as StableHLO: MLIR with unknown sizes, portable bytecode, calls through XLA and from jax. Needs jax and jaxlib."""

from __future__ import annotations

from typing import Any

from pliant.errors import PliantError
from pliant.export.program import Program

try:
    import jaxlib

    if tuple(map(int, jaxlib.__version__.split(".")[:2])) < (0, 10):
        raise ImportError(f"jaxlib {jaxlib.__version__} is older than 0.10")
    from pliant.export.stablehlo import artifact
except ImportError as e:  # said once, when somebody asks
    raise PliantError(f"StableHLO needs jax and jaxlib 0.10 or newer (pip install jax): {e}") from e


def to_stablehlo(p: Program, *, bounded: bool = False, composites: bool = False) -> artifact.StableHLO:
    """The program as a verified StableHLO module, one for all sizes.

    Sizes that change are `?` in its types and `get_dimension_size` in its code. `bounded`: a size with a known maximum (`Dim(max=)`)
    carries it in its type (`#stablehlo.bounds`). `composites`: operators that have no direct form (gelu, layer_norm, attention, ...) are
    `stablehlo.composite` calls under their ATen names, with their decompositions beside them.
    Raises `PliantError` that names the operator and the line of what StableHLO cannot say.
    """
    return artifact.StableHLO(p, bounded, composites)


def to_jax(p: Program, **options: Any) -> Any:
    """The program as a function of jax arrays: see `artifact.jax_function`."""
    return artifact.jax_function(p, **options)


__all__ = ["to_jax", "to_stablehlo"]
