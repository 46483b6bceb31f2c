"""Kernels evaluated by PyTorch, one operator of the loop IR after the other: what compiled code is compared with.

Slow and literal. Tests of fusion run on it, and the search for the first kernel that departs from eager (`PLIANT_CPU=reference`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.lower.loops import Kernel, Node, Size
from pliant.lower.lowerings.scalars import NAMES

DTYPES = {name: dtype for dtype, name in NAMES.items()}


SPECIAL: dict[str, Callable] = {
    "div": torch.true_divide,
    "fma": lambda a, b, c: (a.double() * b.double() + c.double()).to(a.dtype),
    "floordiv": torch.floor_divide,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "and": torch.bitwise_and,
    "or": torch.bitwise_or,
    "xor": torch.bitwise_xor,
    "not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
    "where": torch.where,
}
REDUCE: dict[str, Callable] = {
    "sum": lambda x: x.sum(-1, dtype=x.dtype),
    "prod": lambda x: x.prod(-1, dtype=x.dtype),
    "max": lambda x: x.amax(-1) if x.shape[-1] else x.new_full(x.shape[:-1], lowest(x.dtype)),
    "min": lambda x: x.amin(-1) if x.shape[-1] else x.new_full(x.shape[:-1], highest(x.dtype)),
    "any": lambda x: x.any(-1),
    "all": lambda x: x.all(-1),
    "argmax": lambda x: x.argmax(-1),
    "argmin": lambda x: x.argmin(-1),
}


def lowest(dtype: torch.dtype) -> Any:
    return -torch.inf if dtype.is_floating_point else False if dtype == torch.bool else torch.iinfo(dtype).min


def highest(dtype: torch.dtype) -> Any:
    return torch.inf if dtype.is_floating_point else True if dtype == torch.bool else torch.iinfo(dtype).max


class Reference:
    """Stands in for a compiled kernel: `run(*tensors, *sizes)` writes what the kernel would write."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, *args: Any) -> None:
        k = self.kernel
        n = len(k.buffers)
        tensors, values = args[:n], dict(zip(k.sizes, args[n:], strict=True))

        def size(s: Size) -> int:
            return s if type(s) is int else values[s]

        dims = [size(d) for d in k.dims]
        outer = len(dims) - k.reduced
        memo: dict[int, torch.Tensor] = {}

        def at(buffer: int, strides: Any, offset: Size, over: list[int]) -> torch.Tensor:
            t = tensors[buffer]
            return torch.as_strided(t, over, [size(s) for s in strides], t.storage_offset() + size(offset))

        def gathered(node: Node) -> torch.Tensor:
            t = tensors[node.buffer]
            index, keep = [value(a) for a in node.args], None
            if node.predicated:
                keep = index.pop()
            address = torch.tensor(t.storage_offset() + size(node.offset))
            for d, stride in enumerate(node.strides):
                address = address + torch.arange(dims[d]).view([-1 if i == d else 1 for i in range(len(dims))]) * size(stride)
            for i, stride in zip(index, node.attrs[3], strict=True):
                address = address + i * size(stride)
            memory = torch.tensor([], dtype=t.dtype).set_(t.untyped_storage())
            if keep is None:
                return memory[address]
            address, keep = torch.broadcast_tensors(address, keep)
            out = torch.zeros(address.shape, dtype=t.dtype)
            out[keep] = memory[address[keep]]
            return out

        def value(node: Node) -> torch.Tensor:
            found = memo.get(id(node))
            if found is None:
                found = memo[id(node)] = evaluate(node)
            return found

        def evaluate(node: Node) -> torch.Tensor:
            dtype = DTYPES[node.dtype]
            if node.op == "load":
                if node.args or any(size(st) < 0 for st in node.strides):  # `as_strided` knows no steps back
                    return gathered(node)
                still = [n if i < outer or size(st) else 1 for i, (n, st) in enumerate(zip(dims, node.strides, strict=True))]
                return at(node.buffer, node.strides, node.offset, still).clone()
            if node.op == "const":
                return torch.tensor(node.attrs[0], dtype=dtype)
            if node.op == "size":
                return torch.tensor(size(node.attrs[0]))
            if node.op == "index":
                d = node.attrs[0]
                return torch.arange(dims[d]).view([-1 if i == d else 1 for i in range(len(dims))])
            args = [value(a) for a in node.args]
            if node.op == "cast":
                return args[0] != 0 if dtype == torch.bool else args[0].to(dtype)
            if node.op == "reduce":
                full = args[0].expand(dims).reshape([*dims[:outer], count(dims[outer:])])
                return REDUCE[node.attrs[0]](full).view([*dims[:outer], *[1] * k.reduced])
            if node.op == "scan":
                full = args[0].expand(dims).reshape([*dims[:outer], count(dims[outer:])])
                return (torch.cumsum if node.attrs[0] == "sum" else torch.cumprod)(full, -1, dtype=dtype).view(dims)
            fn = SPECIAL.get(node.op) or getattr(torch, node.op, None) or getattr(torch.special, node.op)
            return fn(*args).to(dtype)

        done = [(s, value(s.node)) for s in k.stores]
        for s, v in done:
            over = dims[: len(s.strides)]
            target = at(s.buffer, s.strides, s.offset, over)
            target.copy_(v.expand([*over, *[1] * (v.dim() - len(over))]).reshape(over) if v.dim() > len(over) else v.expand(over))


def count(sizes: list[int]) -> int:
    out = 1
    for s in sizes:
        out *= s
    return out
