"""Where the data of a remote tensor are, in DTensor's terms: replicated, sharded along a dim, partial sums, or on one worker.

A dim of `n` elements over `w` workers is cut as `torch.chunk` cuts: pieces of `ceil(n / w)`, the last ones shorter, perhaps empty. A dim
made of `base * factor` elements, of which `base` were cut, has pieces `factor` times as long (a flattened batch). No other cuts exist,
so a placement and the sizes of a tensor say which elements each worker has.
"""

from __future__ import annotations

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


def chunk(n: int, workers: int, rank: int) -> tuple[int, int]:
    """(first element, number of elements) of the piece that `rank` has of `n`."""
    size = -(-n // workers)
    start = min(n, rank * size)
    return start, min(size, n - start)


def piece(n: int, placement: Shard, workers: int, rank: int) -> tuple[int, int]:
    """(first element, number of elements) of a dim of `n` elements that is cut by `placement`."""
    if n % placement.factor:
        raise RemoteError(f"a dim of {n} elements is not made of pieces of {placement.factor}")
    start, length = chunk(n // placement.factor, workers, rank)
    return start * placement.factor, length * placement.factor
