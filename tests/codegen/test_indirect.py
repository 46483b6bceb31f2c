"""Loads and stores at computed positions as kernels: equal to eager, also in what they raise."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import pliant
from pliant.codegen.cpu import compile as cpu
from pliant.codegen.cpu.backend import CPU
from pliant.lower.emit import Emitter
from pliant.lower.loops import OUT_OF_BOUNDS, Buffer, Kernel, Node, Store
from tests.codegen.loop_reference import call, reference

aten = torch.ops.aten
SIZES = ((9, 11), (40, 64), (3, 19), (2, 2))


def operands(n: int, d: int) -> tuple[torch.Tensor, ...]:
    """A matrix, more rows, rows' numbers for these, places in columns, a few columns of each row, negative ones."""
    g = torch.Generator().manual_seed(n * d)
    x, rows = torch.randn(n, d, generator=g), torch.randn(n + 5, d, generator=g)
    i, e = torch.randint(0, n, (n + 5,), generator=g), torch.randint(0, n, (n + 5, d), generator=g)
    return x, rows, i, e, torch.randint(0, d, (n, 2), generator=g), torch.randint(-d, d, (n,), generator=g)


GATHERS: dict[str, Callable] = {
    "rows": lambda x, s, i, e, c, b: x[i] * 2,
    "rows from the end": lambda x, s, i, e, c, b: x[:, b].relu(),
    "rows of a transposed matrix": lambda x, s, i, e, c, b: x.t().index_select(1, i) + 1,
    "a table": lambda x, s, i, e, c, b: F.embedding(i, x) + F.embedding(e[:, 0].to(torch.int32), x),
    "a table and a norm": lambda x, s, i, e, c, b: F.layer_norm(F.embedding(i, x) + s, (x.shape[1],)),
    "pairs": lambda x, s, i, e, c, b: x[torch.arange(x.shape[0])[:, None], c] - 1,
    "pairs as decompositions write them": lambda x, s, i, e, c, b: torch.ops.aten._unsafe_index(s * 2, [i[:, None] % 3, c[:1, 0]]) + 1,
    "pairs apart": lambda x, s, i, e, c, b: s.unsqueeze(1).expand(-1, 3, -1)[i, :, b[:1]] * 2,
    "each its own": lambda x, s, i, e, c, b: x.gather(1, c) + 1,
    "each its own row": lambda x, s, i, e, c, b: (x * 1).gather(0, e[: x.shape[0]]).sum(0),
    "one": lambda x, s, i, e, c, b: x[i[0]] + 1,
    "none": lambda x, s, i, e, c, b: x[i[:0]] + 1,
    "labels": lambda x, s, i, e, c, b: F.cross_entropy(x * 2, torch.where(c[:, 0] == 1, -100, c[:, 0])),
    "labels with weights": lambda x, s, i, e, c, b: F.nll_loss(x * 2, c[:, 0], x[0].abs(), reduction="sum") + 1,
    "labels of each": lambda x, s, i, e, c, b: F.nll_loss(x.double() * 2, c[:, 0], reduction="none", ignore_index=0) + 1,
    "along": lambda x, s, i, e, c, b: torch.take_along_dim(x, x.argsort(1), 1) * 2,
    "other dtypes": lambda x, s, i, e, c, b: (x.bfloat16()[i] * 2, x.double().gather(1, c) + 1, (x > 0)[i] ^ True, i[i % 3] + 1),
}
SCATTERS: dict[str, Callable] = {
    "rows": lambda x, s, i, e, c, b: x.index_add(0, i, s),
    "computed rows": lambda x, s, i, e, c, b: (x * 2).index_add(0, i, s.relu(), alpha=0.5) + 1,
    "columns": lambda x, s, i, e, c, b: x.index_add(1, c[0], x[:, :2]),
    "columns of a transposed matrix": lambda x, s, i, e, c, b: x.t().index_add(1, i, s.t() * 2),
    "in place": lambda x, s, i, e, c, b: torch.zeros_like(x).index_add_(0, i, s * 2) / 2,
    "messages": lambda x, s, i, e, c, b: torch.zeros_like(x).scatter_add(0, i[:, None].expand_as(s), s.relu()),
    "each its own": lambda x, s, i, e, c, b: torch.zeros_like(x).scatter_add(0, e, s.relu() * 2),
    "each its own column": lambda x, s, i, e, c, b: x.scatter_add(1, c, s[: x.shape[0], :2]),
    "the last one stays": lambda x, s, i, e, c, b: x.scatter(1, c, s) + 1,
    "numbers": lambda x, s, i, e, c, b: x.scatter(1, c, 3.5) + 1,
    "largest": lambda x, s, i, e, c, b: torch.zeros_like(x).scatter_reduce(0, i[:, None].expand_as(s), s, reduce="amax"),
    "smallest": lambda x, s, i, e, c, b: x.scatter_reduce(0, e, s, reduce="amin") * 1,
    "copied rows": lambda x, s, i, e, c, b: x.index_copy(0, torch.arange(2), s[:2]) * 2,
    "put": lambda x, s, i, e, c, b: x.index_put((i,), s) + 1,
    "put and added": lambda x, s, i, e, c, b: x.index_put((i,), s * 2, accumulate=True) + 1,
    "put as decompositions write it": lambda x, s, i, e, c, b: torch.ops.aten._unsafe_index_put(x, [i], s.neg(), True) * 2,
    "put from the end": lambda x, s, i, e, c, b: x.index_put((torch.arange(x.shape[0]), b), s[0, 0], accumulate=True),
    "put at pairs": lambda x, s, i, e, c, b: x.index_put((torch.arange(x.shape[0])[:, None], c), s[: x.shape[0], :2], accumulate=True),
    "where a mask is true": lambda x, s, i, e, c, b: x.clone().index_put_((x > 0,), torch.tensor(3.0)) + 1,
    "counts": lambda x, s, i, e, c, b: torch.zeros(x.shape[0], dtype=torch.int64).index_add_(0, i, torch.ones_like(i)),
}


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> list:
    """Every nest becomes a kernel; the operations that stayed ATen calls are collected."""
    calls: list = []
    emit = Emitter.emit

    def watched(self: Emitter) -> list:
        out = emit(self)
        calls.extend(str(o.target) for o in out)
        return out

    monkeypatch.setattr(CPU, "worth_a_kernel", lambda self, op: True)
    monkeypatch.setattr(Emitter, "emit", watched)
    return calls


@pytest.mark.parametrize("kind, name", [("load", n) for n in GATHERS] + [("store", n) for n in SCATTERS])
def test_equal_to_eager(kind: str, name: str, kernels: list) -> None:
    fn = (GATHERS if kind == "load" else SCATTERS)[name]
    compiled = pliant.compile(fn, backend="native", strict=True)
    for n, d in SIZES:
        args = operands(n, d)
        got, want = compiled(*args), fn(*args)
        for g, w in zip(got, want, strict=True) if isinstance(want, tuple) else ((got, want),):
            assert g.stride() == w.stride() and g.dtype == w.dtype
            torch.testing.assert_close(g, w, rtol=1e-6, atol=1e-6)
    indirect = ("aten.index", "aten._unsafe_index", "aten.gather", "aten.embedding", "aten.scatter", "aten.nll")
    left = {c for c in kernels if c.startswith(indirect)}
    assert not left and any(c.startswith(("k", "segment")) for c in kernels), kernels


TRAINED: dict[str, Callable] = {
    "table": lambda w, i: (F.embedding(i, w, padding_idx=0) * 2).sum(1),
    "whole table": lambda w, i: F.embedding(i, w).sin(),
    "rows": lambda w, i: w[i].relu(),
    "pairs": lambda w, i: w[i, i],
    "places": lambda w, i: w.gather(1, i),
    "selected": lambda w, i: w.index_select(0, i[:, 0]),
    "labels": lambda w, i: F.cross_entropy(w[:, 0:16] * 2, i.new_tensor(range(20)) % 16) * 3,
    "added": lambda w, i: (w * 2).index_add(0, i[:, 0], w[: i.shape[0]].cos()),
}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name: str, kernels: list) -> None:
    fn = TRAINED[name]

    def gradient(w: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(fn(w, i).square().sum(), w)[0]

    compiled = pliant.compile(gradient, backend="native", strict=True)
    g = torch.Generator().manual_seed(0)
    for n in (5, 12):
        w, i = torch.randn(20, 16, generator=g, requires_grad=True), torch.randint(0, 16, (n, 7), generator=g)
        torch.testing.assert_close(compiled(w, i), gradient(w, i), rtol=1e-5, atol=1e-5)
    assert kernels


BAD: dict[str, tuple[Callable, int]] = {
    "a table": (lambda x, i: F.embedding(i, x) * 2, -1),
    "selected": (lambda x, i: x.index_select(0, i) * 2, -1),
    "indexed": (lambda x, i: x[i] * 2, -10),
    "indexed beyond": (lambda x, i: x[i] * 2, 9),
    "gathered": (lambda x, i: x.gather(0, i[:, None]) * 2, -1),
    "added": (lambda x, i: x.index_add(0, i, x[: i.shape[0]] * 2), 9),
    "scattered": (lambda x, i: x.scatter_add(0, i[:, None], x) * 2, 9),
    "put": (lambda x, i: x.index_put((i,), x[0]) * 2, 9),
    "labelled": (lambda x, i: F.nll_loss(x * 2, i), 37),
    "unread": (lambda x, i: (x[i] * 2, x + 1)[1], 9),
}


@pytest.mark.parametrize("name", BAD)
def test_indices_out_of_range_raise_what_eager_raises(name: str, kernels: list) -> None:
    fn, bad = BAD[name]
    compiled = pliant.compile(fn, backend="native", strict=True)
    x, i = torch.randn(9, 37), torch.arange(9) % 9
    torch.testing.assert_close(compiled(x, i), fn(x, i))
    i = i.clone()
    i[5] = bad
    with pytest.raises((IndexError, RuntimeError)) as want:
        fn(x, i)
    with pytest.raises(want.type, match=str(want.value).splitlines()[0][:20].replace("(", r"\(")):
        compiled(x, i)


MISMATCHED: dict[str, tuple[Callable, tuple, tuple]] = {
    "gather": (lambda x, i, s: x.gather(0, i) * 2, (4, 5), (4, 7)),
    "scatter": (lambda x, i, s: x.scatter_add(0, i, s), (4, 5), (7, 5)),
    "scatter wide": (lambda x, i, s: x.scatter_add(0, i, s), (4, 5), (4, 6)),
    "rows": (lambda x, i, s: x.index_add(0, i[:, 0], i.float()), (4, 5), (4, 6)),
    "copied rows": (lambda x, i, s: x.index_copy(0, i[:, 0], i.float()), (4, 5), (4, 6)),
    "fewer rows": (lambda x, i, s: x.index_add(0, i[1:, 0], s[: i.shape[1]]), (7, 6), (8, 6)),
    "put": (lambda x, i, s: x.index_put((i[:, 0],), i.float()), (4, 5), (4, 6)),
}


@pytest.mark.parametrize("name", MISMATCHED)
def test_sizes_that_eager_refuses(name: str, kernels: list) -> None:
    """Nothing outside the memory of an operand is ever touched."""
    fn, good, bad = MISMATCHED[name]
    compiled = pliant.compile(fn, backend="native", strict=True)
    x, s = torch.randn(9, 5), torch.randn(6, 5)
    g = torch.Generator().manual_seed(0)
    for shape in (good, bad, good):
        i = torch.randperm(9, generator=g)[: shape[0], None] + torch.zeros(shape, dtype=torch.int64)
        if shape == bad:
            with pytest.raises((RuntimeError, IndexError)) as want:
                fn(x, i, s)
            with pytest.raises(want.type):
                compiled(x, i, s)
        else:
            torch.testing.assert_close(compiled(x, i, s), fn(x, i, s))


def test_what_was_written_before_a_bad_index_is_written() -> None:
    def fn(x: torch.Tensor, y: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        z = x[i] * 2
        y.add_(1)
        return z.exp() + y[0]

    compiled = pliant.compile(fn, backend="native", strict=True)
    for bad in (False, True):
        x, i = torch.randn(9, 5), torch.arange(4)
        i[2] = 100 if bad else 3
        ours, theirs = torch.zeros(3, 5), torch.zeros(3, 5)
        if bad:
            for y, f in ((ours, compiled), (theirs, fn)):
                with pytest.raises(IndexError):
                    f(x, y, i)
        else:
            torch.testing.assert_close(compiled(x, ours, i), fn(x, theirs, i))
        assert torch.equal(ours, theirs)


def bounded_sum(wraps: bool, masked: bool) -> Kernel:
    """Rows of a table, by number, where the number is not 7 if `masked`."""
    index = Node("load", (), "i64", (0, (1, 0), 0, ()))
    args: tuple = (index,)
    if masked:
        args = (index, Node("ne", (index, Node("const", (), "i64", (7,))), "bool"))
    at = Node("bounded", args, "i64", ("rows", wraps, OUT_OF_BOUNDS))
    if masked:
        at = Node("where", (args[1], at, Node("const", (), "i64", (0,))), "i64")
    value = Node("load", (at,), "f32", (1, (0, 1), 0, ("d",)))
    buffers = [Buffer("i64", False), Buffer("f32", False), Buffer("f32", True)]
    return Kernel("rows", ("n", "d"), 0, buffers, [Store(2, ("d", 1), 0, value)], ("n", "d", "rows"))


@pytest.mark.parametrize("wraps, masked, numbers, fails", [
    (False, False, [0, 4, 2], False), (False, False, [0, -1, 2], True), (False, False, [0, 5, 2], True), (True, False, [-5, 4, -1], False),
    (True, False, [-6, 4, 0], True), (False, True, [7, 4, 7], False), (False, True, [7, 4, 8], True),
])  # fmt: skip
@pytest.mark.parametrize("checked", [False, True])
def test_bounded(wraps: bool, masked: bool, numbers: list[int], fails: bool, checked: bool) -> None:
    kernel = bounded_sum(wraps, masked)
    (address,) = cpu.compile_kernels([kernel], checked=checked)
    for d in (1, 5, 16, 37):
        sizes = {"n": 3, "d": d, "rows": 5}
        memory = [np.array(numbers, np.int64), np.arange(5 * d, dtype=np.float32), np.zeros(3 * d, np.float32)]
        rc, got = call(address, kernel, memory, sizes)
        if fails:
            assert rc == OUT_OF_BOUNDS
            with pytest.raises(IndexError):
                reference(kernel, memory, sizes)
        else:
            assert rc == 0
            np.testing.assert_array_equal(got[2], reference(kernel, memory, sizes)[2])


def test_a_size_that_is_one_but_does_not_say_so():
    def f(x):
        n = 2 + (-1 // x.shape[0])
        found = torch.zeros(1, 1).index_put((torch.zeros(1, dtype=torch.long),), x.sum() * torch.ones(n, 1), accumulate=True)
        return found + torch.ones(n, 1)

    g = pliant.compile(f, strict=True)
    for rows in (3, 5, 9):
        x = torch.randn(rows, 3)
        assert torch.allclose(g(x), f(x), atol=1e-5)
