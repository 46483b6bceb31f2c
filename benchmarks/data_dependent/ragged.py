"""Ragged data: values in one tensor, lengths or offsets in another."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from benchmarks.data_dependent.program import data, program

Tensor = torch.Tensor


def lengths(n: int, total: int = 12) -> Tensor:
    """Four lengths, n of them first, that add up to `total`."""
    rest = total - n
    return torch.tensor([n, rest // 2, 0, rest - rest // 2])


def offsets(n: int, total: int = 12) -> Tensor:
    return F.pad(lengths(n, total).cumsum(0), (1, 0))


@program("125519", lambda n: (data(3, 12), lengths(n)))
def split_inner(x: Tensor, sizes: Tensor) -> list:
    return [part.sin() for part in torch.split(x.clone(), sizes.tolist(), dim=1)]


@program("122126", lambda n: (data(12), lengths(n)))
def split_and_sort(x: Tensor, sizes: Tensor) -> tuple:
    parts = torch.ops.aten.split_with_sizes.default(x, sizes.tolist())
    return parts[0].sort(), parts[1].sort(descending=True).values


@program("140835", lambda n: (data(12, 4, grad=True), lengths(n)), grad=True)
def split_and_pool(x: Tensor, sizes: Tensor) -> Tensor:
    return torch.stack([part.sum(0) / (part.shape[0] + 1) for part in x.split(sizes.tolist())])


@program("119468", lambda n: (data(12, 4), offsets(n)))
def slices_between_offsets(x: Tensor, ends: Tensor) -> Tensor:
    at = ends.tolist()
    return torch.stack([x[a:b].sum(0) for a, b in zip(at, at[1:])])


@program("106788", lambda n: (data(12, 4), lengths(n)))
def split_and_rejoin(x: Tensor, sizes: Tensor) -> Tensor:
    parts = [part * (i + 1) for i, part in enumerate(x.split(sizes.tolist()))]
    return torch.cat(parts[::-1]) + x


@program("99929", lambda n: (data(4, 3), lengths(n)))
def repeat_rows(x: Tensor, repeats: Tensor) -> Tensor:
    return torch.repeat_interleave(x, repeats, dim=0).cos()


@program("178290", lambda n: (lengths(n), data(12)), sizes=(5, 0, 1, 2, 7, 12))
def positions_within_segments(sizes: Tensor, x: Tensor) -> Tensor:
    starts = sizes.cumsum(0) - sizes
    segment = torch.repeat_interleave(torch.arange(4), sizes)
    return (torch.arange(segment.shape[0]) - starts[segment]) * x[: segment.shape[0]]


@program("23497", lambda n: (data(12, 2), lengths(n)))
def pad_to_the_longest(values: Tensor, sizes: Tensor) -> tuple:
    longest = sizes.max().item()
    valid = torch.arange(longest)[None, :] < sizes[:, None]
    padded = values.new_zeros(sizes.shape[0], longest, 2)
    padded[valid] = values
    return padded, valid.sum(1), padded.sum(1) / longest


@program("meta-pytorch/torchrec#2043", lambda n: (torch.arange(12) % 5, offsets(n)[:-1], data(5, 3), lengths(n)))
def embedding_bags(ids: Tensor, starts: Tensor, table: Tensor, sizes: Tensor) -> tuple:
    pooled = F.embedding_bag(ids, table, starts, mode="sum")
    first = F.embedding(ids[: sizes[0].item()], table)
    return pooled, first.sum(0)


@program("113406", lambda n: (data(12), lengths(n).cumsum(0)[:-1]))
def tensor_split_at(x: Tensor, at: Tensor) -> list:
    return [part.square().sum() for part in torch.tensor_split(x, at.tolist())]


@program("148497", lambda n: (data(12, 2), offsets(5), torch.tensor(n)), sizes=(1, 0, 2, 3))
def one_row_of_a_jagged_tensor(values: Tensor, ends: Tensor, row: Tensor) -> Tensor:
    i = row.item()
    begin, end = ends[i].item(), ends[i + 1].item()
    return values.narrow(0, begin, end - begin) * 2


@program("148497", lambda n: (data(12, 2), lengths(n)))
def checked_lengths(x: Tensor, sizes: Tensor) -> Tensor:
    a, b, c, d = sizes.tolist()
    for length in (a, b, c, d):
        torch._check_is_size(length)
    torch._check(a + b + c + d == x.shape[0])
    first, second = x[:a], x[a : a + b]
    return torch.cat([second, first, x[a + b :]]).view(x.shape)
