"""Programs as StableHLO: MLIR with unknown sizes, portable bytecode, calls through XLA and from jax. Needs jax and jaxlib."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pliant.errors import PliantError
from pliant.export.program import Program

try:
    import jax
    import jaxlib

    if tuple(map(int, jaxlib.__version__.split(".")[:2])) < (0, 10):
        raise ImportError(f"jaxlib {jaxlib.__version__} is older than 0.10")
except ImportError as e:  # said once, when somebody asks
    raise PliantError(f"StableHLO needs jax and jaxlib 0.10 or newer (pip install jax): {e}") from e

from pliant.export.stablehlo import artifact, jax_function, module  # noqa: E402 -- after it is known that jax is there


def to_stablehlo(p: Program, *, bounded: bool = False, composites: bool = False) -> artifact.StableHLO:
    """The program as a verified StableHLO module, one for all sizes.

    Sizes that change are `?` in its types and `get_dimension_size` in its code. `bounded`: a size with a known maximum (`Dim(max=)`)
    carries it in its type (`#stablehlo.bounds`). `composites`: operators that have no direct form (gelu, layer_norm, attention, ...) are
    `stablehlo.composite` calls under their ATen names, with their decompositions beside them.
    Raises `PliantError` that names the operator and the line of what StableHLO cannot say.
    """
    return artifact.StableHLO(module.sides(p), bounded, composites)


def to_jax(
    p: Program, *, numbers: Mapping[str, Any] | None = None, wide: bool | None = None, checked: bool = True
) -> jax_function.JaxFunction:
    """The program as a function of jax arrays, for `jax.jit` and `jax.export` with symbolic dims; see `jax_function.py`.

    `numbers`: values of the number inputs that sizes are made of; these are no arguments then. `wide`: int64 and float64 as they are (needs
    `jax_enable_x64`, whose setting is the default). `checked`: assertions about data are looked at (by a callback, under `jax.jit`).
    """
    return jax_function.JaxFunction(module.sides(p), numbers or {}, bool(jax.config.jax_enable_x64) if wide is None else wide, checked)  # type: ignore[attr-defined]


__all__ = ["to_jax", "to_stablehlo"]
