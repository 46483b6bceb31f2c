"""Collectives as operators of a program: `pliant_remote::all_reduce`, `all_gather`, `reduce_scatter`, `agree`.

What they do is asked of the group of the worker that runs the program (`using`), so that a program names no process group. Each has a
fake kernel, so that programs with collectives are recorded, written and read as all others are. `gather` and `scatter` take the dim, how
many elements of it were cut (`base`) and how many elements belong to one of these (`factor`), from which each worker knows every piece.
All but `agree` go along one dim of the mesh.

Each writes to a token, a tensor of the worker that nobody reads: that keeps them in order, and none of them is left out.

`agree` has no value: behind it every worker knows that all of them came so far, or all raise `Cancelled`. It stands before a program's
first write to memory from before, so that an error of one worker leaves no other with half a step.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

from pliant.export.text import SPACES
from pliant.remote.placements import RemoteError, chunk

SPACE = "pliant_remote"
RECURRENT = ("lstm", "lstm_backward", "onednn_lstm", "packed_rows", "recurrent_backward", "unpacked_rows")
PROGRAM_SPACES = SPACES | {SPACE, *[f"pliant.{name}.default" for name in RECURRENT]}
"""Whose operators the program of a worker may name. Those of recurrent layers look at what they are given."""


class Cancelled(RemoteError):
    """The program ended because another worker could not go on."""


class Group(Protocol):
    """What collectives ask of the workers that run a program together."""

    rank: int
    size: int

    def along(self, mesh_dim: int) -> Group:
        """The workers that differ from this one along one dim of the mesh only."""

    def all_reduce(self, x: torch.Tensor, op: str, owned: bool = False) -> torch.Tensor:
        """`owned`: nobody needs `x` any more."""

    def all_gather(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The tensors of all workers, which have the same sizes."""

    def reduce_scatter(self, pieces: list[torch.Tensor]) -> torch.Tensor:
        """The sum, over the workers, of the pieces that are for this one."""


class Current(threading.local):
    group: Group | None = None
    done = 0  # collectives that the running program has been through
    wire: list[Any] | None = None  # bytes that they moved


current = Current()


@contextmanager
def using(group: Group | None) -> Iterator[Current]:
    """Inside, programs of this thread run on `group`."""
    before = current.group, current.done
    current.group, current.done = group, 0
    try:
        yield current
    finally:
        current.group, current.done = before


def here(mesh_dim: int | None = None) -> Group:
    if current.group is None:
        raise RemoteError("a program with collectives runs outside of a mesh")
    current.done += 1
    return current.group if mesh_dim is None else current.group.along(mesh_dim)


library = torch.library.Library(SPACE, "DEF")
library.define("all_reduce(Tensor x, str op, int mesh_dim, Tensor(a!) token) -> Tensor")
library.define("all_reduce_many(Tensor[] xs, str op, int mesh_dim, Tensor(a!) token) -> Tensor[]")
library.define("all_gather(Tensor x, int dim, SymInt base, SymInt factor, int mesh_dim, Tensor(a!) token) -> Tensor")
library.define("reduce_scatter(Tensor x, int dim, SymInt base, SymInt factor, SymInt length, int mesh_dim, Tensor(a!) token) -> Tensor")
library.define("part(Tensor x, int dim, SymInt begin, SymInt length) -> Tensor")
library.define("agree(Tensor(b!)[] written, Tensor(a!) token) -> ()")


def spelled_out(x: torch.Tensor) -> torch.Tensor:
    """In memory as it reads: without the bits that say that elements are to be conjugated or negated."""
    return x.resolve_conj().resolve_neg()


def all_reduce(x: torch.Tensor, op: str, mesh_dim: int, token: torch.Tensor) -> torch.Tensor:
    return here(mesh_dim).all_reduce(spelled_out(x).contiguous(), op)


BUCKET = 32 << 20
"""Bytes that are put together for one go: gradients of a large model are never there a third time."""


def all_reduce_many(xs: list[torch.Tensor], op: str, mesh_dim: int, token: torch.Tensor) -> list[torch.Tensor]:
    """Several tensors of one dtype, in as few goes as `BUCKET` allows."""
    group, out = here(mesh_dim), []
    xs = [spelled_out(x) for x in xs]
    for some in buckets([x.numel() * x.element_size() for x in xs]):
        mine = xs[some]
        if len(mine) == 1:
            out.append(group.all_reduce(mine[0].reshape(-1), op).reshape(mine[0].shape))
            continue
        found = group.all_reduce(torch.cat([x.reshape(-1) for x in mine]), op, True)
        out += [part.clone().reshape(x.shape) for part, x in zip(found.split([x.numel() for x in mine]), mine, strict=True)]
    return out


def buckets(sizes: list[int]) -> list[slice]:
    """Neighbours that go together, by their bytes. All workers find the same."""
    out, begin, held = [], 0, 0
    for i, n in enumerate(sizes):
        if i > begin and held + n > BUCKET:
            out.append(slice(begin, i))
            begin, held = i, 0
        held += n
    return [*out, slice(begin, len(sizes))] if sizes else out


def padded(x: torch.Tensor, dim: int, length: int) -> torch.Tensor:
    """`x` with `length` elements along `dim`, the new ones zero."""
    if x.shape[dim] == length:
        return x.contiguous()
    sizes = list(x.shape)
    sizes[dim] = length
    out = x.new_zeros(sizes)
    out.narrow(dim, 0, x.shape[dim]).copy_(x)
    return out


def all_gather(x: torch.Tensor, dim: int, base: int, factor: int, mesh_dim: int, token: torch.Tensor) -> torch.Tensor:
    group = here(mesh_dim)
    pieces = [chunk(base, group.size, r)[1] * factor for r in range(group.size)]
    if x.shape[dim] != pieces[group.rank]:
        raise RemoteError(f"a piece of {pieces[group.rank]} elements along dim {dim} is to be gathered, but it has {x.shape[dim]}")
    found = group.all_gather(padded(spelled_out(x), dim, pieces[0]))
    return torch.cat([t.narrow(dim, 0, n) for t, n in zip(found, pieces, strict=True)], dim)


def reduce_scatter(x: torch.Tensor, dim: int, base: int, factor: int, length: int, mesh_dim: int, token: torch.Tensor) -> torch.Tensor:
    group = here(mesh_dim)
    return group.reduce_scatter(pieces_of(spelled_out(x), dim, base, factor, group.size))


def pieces_of(x: torch.Tensor, dim: int, base: int, factor: int, size: int) -> list[torch.Tensor]:
    """What each worker has of a whole tensor."""
    cuts = [chunk(base, size, rank) for rank in range(size)]
    return [x.narrow(dim, start * factor, n * factor).contiguous() for start, n in cuts]


def part(x: torch.Tensor, dim: int, begin: int, length: int) -> torch.Tensor:
    """The piece of a whole tensor that a worker has."""
    return x.narrow(dim, begin, length).clone(memory_format=torch.contiguous_format)


def agree(written: list[torch.Tensor], token: torch.Tensor) -> None:
    if here().all_reduce(torch.zeros(1, dtype=torch.int64), "sum").item():
        raise Cancelled("another worker could not go on")


def fake_gather(x: Any, dim: int, base: Any, factor: Any, mesh_dim: int, token: Any) -> Any:
    sizes = list(x.shape)
    sizes[dim] = base * factor
    return x.new_empty(sizes)


def fake_part(x: Any, dim: int, begin: Any, length: Any) -> Any:
    sizes = list(x.shape)
    sizes[dim] = length
    return x.new_empty(sizes)


def fake_scatter(x: Any, dim: int, base: Any, factor: Any, length: Any, mesh_dim: int, token: Any) -> Any:
    sizes = list(x.shape)
    sizes[dim] = length
    return x.new_empty(sizes)


FLASH = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
FLASH_BACKWARD = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward.default
library.define(
    "attention(Tensor q, Tensor k, Tensor v, float dropout_p, bool is_causal, Tensor? attn_mask, float? scale) -> (Tensor, Tensor)"
)
library.define(
    "attention_backward(Tensor grad, Tensor q, Tensor k, Tensor v, Tensor out, Tensor lse, float dropout_p, bool is_causal,"
    " Tensor? attn_mask, float? scale) -> (Tensor, Tensor, Tensor)"
)


def attention(q: Any, k: Any, v: Any, p: float, causal: bool, mask: Any, scale: float | None) -> Any:
    """PyTorch's attention on the CPU, which ends the process where a worker has no batch or no heads."""
    if q.numel() and k.numel():
        return FLASH(q, k, v, p, causal, attn_mask=mask, scale=scale)
    batch, heads, rows, width = q.shape
    return v.new_zeros(batch, rows, heads, width).transpose(1, 2), v.new_zeros(batch, rows, heads).transpose(1, 2)


def attention_backward(grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, p: float, causal: bool, mask: Any, scale: Any) -> Any:
    if q.numel() and k.numel():
        return FLASH_BACKWARD(grad, q, k, v, out, lse, p, causal, attn_mask=mask, scale=scale)
    return torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)


def fake_attention(q: Any, k: Any, v: Any, p: float, causal: bool, mask: Any, scale: Any) -> Any:
    return FLASH(q, k, v, p, causal, attn_mask=mask, scale=scale)


def fake_backward(grad: Any, q: Any, k: Any, v: Any, out: Any, lse: Any, p: float, causal: bool, mask: Any, scale: Any) -> Any:
    return FLASH_BACKWARD(grad, q, k, v, out, lse, p, causal, attn_mask=mask, scale=scale)


for name, kernel, fake in (
    ("attention", attention, fake_attention),
    ("attention_backward", attention_backward, fake_backward),
    ("all_reduce", all_reduce, lambda x, op, mesh_dim, token: x.new_empty(x.shape)),
    ("all_reduce_many", all_reduce_many, lambda xs, op, mesh_dim, token: [x.new_empty(x.shape) for x in xs]),
    ("all_gather", all_gather, fake_gather),
    ("reduce_scatter", reduce_scatter, fake_scatter),
    ("part", part, fake_part),
    ("agree", agree, lambda written, token: None),
):
    library.impl(name, kernel, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{SPACE}::{name}", fake, lib=library)

ALL_REDUCE = torch.ops.pliant_remote.all_reduce.default
ALL_REDUCE_MANY = torch.ops.pliant_remote.all_reduce_many.default
ALL_GATHER = torch.ops.pliant_remote.all_gather.default
ATTENTION = torch.ops.pliant_remote.attention.default
ATTENTION_BACKWARD = torch.ops.pliant_remote.attention_backward.default
REDUCE_SCATTER = torch.ops.pliant_remote.reduce_scatter.default
PART = torch.ops.pliant_remote.part.default
AGREE = torch.ops.pliant_remote.agree.default
COLLECTIVES = (ALL_REDUCE, ALL_REDUCE_MANY, ALL_GATHER, REDUCE_SCATTER, AGREE)


def proxy(target: Any, sizes: list[tuple[int, ...]], dtype: torch.dtype, args: tuple) -> None:
    """The part of a worker that cannot go on in a collective of the others: zeros of the right sizes, or the bad news.

    `sizes` and `dtype` are those of the operands, `args` what is behind them, numbers for expressions.
    """
    group = here(None if target is AGREE else args[-1])
    if target is AGREE:
        group.all_reduce(torch.ones(1, dtype=torch.int64), "sum")
        raise Cancelled("this worker could not go on")
    if target is ALL_REDUCE_MANY:
        for some in buckets([math.prod(n) * dtype.itemsize for n in sizes]):
            group.all_reduce(torch.zeros(sum(map(math.prod, sizes[some])), dtype=dtype), args[0])
        return
    x = torch.zeros(sizes[0], dtype=dtype)
    if target is ALL_GATHER:
        dim, base, factor = args[:3]
        group.all_gather(padded(x, dim, chunk(base, group.size, 0)[1] * factor))
    elif target is REDUCE_SCATTER:
        group.reduce_scatter(pieces_of(x, args[0], args[1], args[2], group.size))
    else:
        group.all_reduce(x, args[0])
