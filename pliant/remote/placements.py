"""Where the data of a remote tensor are, in DTensor's terms: replicated, sharded along a dim, partial sums, or on one worker.

Each dim of a mesh has a placement of its own (`Placements`); a tensor is cut along the first
dim of the mesh, and its pieces along the next.

A dim of `n` elements over `w` workers is cut as `torch.chunk` cuts: pieces of `ceil(n / w)`, the last ones shorter, perhaps empty. A dim
made of `base * factor` elements, of which `base` were cut, has pieces `factor` times as long (a flattened batch). No other cuts exist,
so a placement and the sizes of a tensor say which elements each worker has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pliant.errors import PliantError


class RemoteError(PliantError):
    """Something on a mesh failed, or cannot be done there."""


class Placement:
    """Base class of the placements."""

    __slots__ = ()

    def is_shard(self, dim: int | None = None) -> bool:
        return False

    def is_replicate(self) -> bool:
        return False


@dataclass(frozen=True, slots=True)
class Replicate(Placement):
    """Every worker has all of it."""

    def is_replicate(self) -> bool:
        return True

    def __str__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True, slots=True)
class Shard(Placement):
    """Each worker has a piece along `dim`. `factor`: how many elements of the dim belong to one that was cut."""

    dim: int
    factor: int = 1

    def is_shard(self, dim: int | None = None) -> bool:
        return dim is None or dim == self.dim

    def __str__(self) -> str:
        return f"Shard({self.dim})" if self.factor == 1 else f"Shard({self.dim}, pieces of {self.factor})"


@dataclass(frozen=True, slots=True)
class OnWorker(Placement):
    """One worker has it."""

    rank: int

    def __str__(self) -> str:
        return f"OnWorker({self.rank})"


@dataclass(frozen=True, slots=True)
class Placements(Placement):
    """On a mesh of several dims: a placement for each of them."""

    of: tuple[Placement, ...]

    def is_shard(self, dim: int | None = None) -> bool:
        return any(p.is_shard(dim) for p in self.of)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.of))})"


def each(placement: Placement, dims: int) -> tuple[Placement, ...]:
    """A placement for each dim of a mesh."""
    return placement.of if isinstance(placement, Placements) else (placement,) * dims


def together(of: tuple[Placement, ...]) -> Placement:
    """Placements for each dim of a mesh as one."""
    return of[0] if len(of) == 1 or len(set(of)) == 1 and of[0].is_replicate() else Placements(of)


def chunk(n: int, workers: int, rank: int) -> tuple[int, int]:
    """(first element, number of elements) of the piece that `rank` has of `n`."""
    size = -(-n // workers)
    start = min(n, rank * size)
    return start, min(size, n - start)


def cuts_of(placement: Placement, dims: int) -> list[list[int]]:
    """[dim of the mesh, dim of the tensor, factor] of each cut, in order."""
    return [[i, p.dim, p.factor] for i, p in enumerate(each(placement, dims)) if isinstance(p, Shard)]


def pieces(sizes: list[int], cuts: list[list[int]], along: Callable[[int], tuple[int, int]]) -> list[tuple[int, int, int, int, int, int]]:
    """(dim of the mesh, dim, base, factor, first element, number of elements) of each cut. `along(i)`: (size, rank) along dim `i`.

    `sizes` become those of the worker's piece.
    """
    out = []
    for axis, dim, factor in cuts:
        if sizes[dim] % factor:
            raise RemoteError(f"a dim of {sizes[dim]} elements is not made of pieces of {factor}")
        base = sizes[dim] // factor
        begin, length = chunk(base, *along(axis))
        sizes[dim] = length * factor
        out.append((axis, dim, base, factor, begin * factor, length * factor))
    return out
