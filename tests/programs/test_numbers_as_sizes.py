"""Numbers that only the data knows, where PyTorch's functions take sizes and positions: one graph, eager's answers and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.utils import _pytree as pytree

import pliant
from tests import helpers

X = torch.randn(12, 6, generator=torch.Generator().manual_seed(0))
V = torch.randn(24, generator=torch.Generator().manual_seed(1))
I = torch.arange(12) * 5 % 6


def drawn() -> torch.Generator:
    return torch.Generator().manual_seed(1)


PROGRAMS: dict[str, Callable[[int], Any]] = {
    "torch.zeros(k)": lambda k: torch.zeros(k),
    "torch.zeros(k,3)+1": lambda k: torch.zeros(k, 3) + 1,
    "torch.ones(3,k)": lambda k: torch.ones(3, k),
    "torch.full((k,),2.0)": lambda k: torch.full((k,), 2.0),
    "torch.arange(k)": lambda k: torch.arange(k),
    "torch.arange(1,k+1)": lambda k: torch.arange(1, k + 1),
    "torch.arange(0,k,2)": lambda k: torch.arange(0, k, 2),
    "torch.eye(k)": lambda k: torch.eye(k),
    "torch.eye(k,4)": lambda k: torch.eye(k, 4),
    "X[:k]": lambda k: X[:k],
    "X[k:]": lambda k: X[k:],
    "X[:,:k]": lambda k: X[:, :k],
    "X[-k:]": lambda k: X[-k:],
    "X[:-k]": lambda k: X[:-k],
    "X[k]": lambda k: X[k],
    "X[:,k-1]": lambda k: X[:, k - 1],
    "X.narrow(0,0,k)": lambda k: X.narrow(0, 0, k),
    "X.narrow(1,0,k)": lambda k: X.narrow(1, 0, k),
    "X.narrow(0,k,2)": lambda k: X.narrow(0, k, 2),
    "X.select(0,k)": lambda k: X.select(0, k),
    "V[:k*4].view(k,4)": lambda k: V[: k * 4].view(k, 4),
    "V[:k*4].view(-1,k)": lambda k: V[: k * 4].view(-1, k),
    "V[:k*4].reshape(k,-1)": lambda k: V[: k * 4].reshape(k, -1),
    "V[:k*4].unflatten(0,(k,4))": lambda k: V[: k * 4].unflatten(0, (k, 4)),
    "V.view(24,1).expand(24,k)": lambda k: V.view(24, 1).expand(24, k),
    "X[0].expand(k,6)": lambda k: X[0].expand(k, 6),
    "X.repeat(k,1)": lambda k: X.repeat(k, 1),
    "X.repeat(1,k)": lambda k: X.repeat(1, k),
    "X.tile(k)": lambda k: X.tile(k),
    "X[0].repeat_interleave(k)": lambda k: X[0].repeat_interleave(k),
    "X.repeat_interleave(k,dim=0)": lambda k: X.repeat_interleave(k, dim=0),
    "X.roll(k,0)": lambda k: X.roll(k, 0),
    "X.roll(-k,1)": lambda k: X.roll(-k, 1),
    "X.tril(k)": lambda k: X.tril(k),
    "X.triu(-k)": lambda k: X.triu(-k),
    "X.topk(k,1)": lambda k: X.topk(k, 1),
    "X.kthvalue(k,1)": lambda k: X.kthvalue(k, 1),
    "X.cumsum(0)[k]": lambda k: X.cumsum(0)[k],
    "F.pad(X,(0,k))": lambda k: F.pad(X, (0, k)),
    "F.pad(X,(k,k),value=1.0)": lambda k: F.pad(X, (k, k), value=1.0),
    "F.pad(X,(-1,k))": lambda k: F.pad(X, (-1, k)),
    "F.one_hot(I%k,k)": lambda k: F.one_hot(I % k, k),
    "torch.bincount(I,minlength=k)": lambda k: torch.bincount(I, minlength=k),
    "F.interpolate(X[None],size=k)": lambda k: F.interpolate(X[None], size=k),
    "F.interpolate(X[None],size=k,mode='linear')": lambda k: F.interpolate(X[None], size=k, mode="linear"),
    "F.interpolate(X[None,None],size=(k,k),mode='bilinear')": lambda k: F.interpolate(X[None, None], size=(k, k), mode="bilinear"),
    "torch.cartesian_prod(V[:k],V[:3])": lambda k: torch.cartesian_prod(V[:k], V[:3]),
    "torch.meshgrid(V[:k],V[:3],indexing='ij')": lambda k: torch.meshgrid(V[:k], V[:3], indexing="ij"),
    "X.index_fill(0,torch.tensor([k]),0.0)": lambda k: X.index_fill(0, torch.tensor([k]), 0.0),
    "X.clone().fill_(k)": lambda k: X.clone().fill_(k),
    "X.clone().index_fill_(0,I%k,1.0)": lambda k: X.clone().index_fill_(0, I % k, 1.0),
    "X*k": lambda k: X * k,
    "X/k": lambda k: X / k,
    "X**k": lambda k: X**k,
    "X+k": lambda k: X + k,
    "k-X": lambda k: k - X,
    "X//k": lambda k: X // k,
    "X%k": lambda k: X % k,
    "X>k": lambda k: X > k,
    "torch.where(X>0,k,X)": lambda k: torch.where(X > 0, k, X),
    "torch.tensor([k,k+1])": lambda k: torch.tensor([k, k + 1]),
    "torch.tensor(k)": lambda k: torch.tensor(k),
    "torch.as_tensor(k)*2": lambda k: torch.as_tensor(k) * 2,
    "X.new_zeros(k,X.shape[1])": lambda k: X.new_zeros(k, X.shape[1]),
    "X.new_full((k,),1.5)": lambda k: X.new_full((k,), 1.5),
    "X.new_tensor([k])": lambda k: X.new_tensor([k]),
    "torch.empty(k).fill_(3.0)": lambda k: torch.empty(k).fill_(3.0),
    "torch.rand(k,generator=torch.Generator().manual_seed(1))": lambda k: torch.rand(k, generator=drawn()),
    "torch.randint(0,k,(4,),generator=torch.Generator().manual_seed(1))": lambda k: torch.randint(0, k, (4,), generator=drawn()),
    "torch.randn(k,2,generator=torch.Generator().manual_seed(1))": lambda k: torch.randn(k, 2, generator=drawn()),
    "torch.randperm(k,generator=torch.Generator().manual_seed(1))": lambda k: torch.randperm(k, generator=drawn()),
    "torch.zeros(k,6).index_add(0,I%k,X)": lambda k: torch.zeros(k, 6).index_add(0, I % k, X),
    "torch.zeros(k,6).scatter_add(0,(I%k)[:,None].expand(12,6),X)": lambda k: torch.zeros(k, 6).scatter_add(
        0, (I % k)[:, None].expand(12, 6), X
    ),
    "torch.zeros(k,6).index_copy(0,torch.arange(k),X[:k])": lambda k: torch.zeros(k, 6).index_copy(0, torch.arange(k), X[:k]),
    "torch.full((k,6),float('-inf')).scatter_reduce(0,(I%k)[:,None].expand(12,6),X,'amax')": lambda k: torch.full(
        (k, 6), float("-inf")
    ).scatter_reduce(0, (I % k)[:, None].expand(12, 6), X, "amax"),
    "torch.segment_reduce(V[:k*4],'sum',lengths=torch.full((k,),4))": lambda k: torch.segment_reduce(
        V[: k * 4], "sum", lengths=torch.full((k,), 4)
    ),
    "torch.nn.functional.embedding(I%k,torch.ones(k,3))": lambda k: torch.nn.functional.embedding(I % k, torch.ones(k, 3)),
    "torch.stack([X[0]]*2)[:, :k]": lambda k: torch.stack([X[0]] * 2)[:, :k],
    "torch.cat([X[:k],X[k:]])": lambda k: torch.cat([X[:k], X[k:]]),
    "torch.cat([X[:k],X])": lambda k: torch.cat([X[:k], X]),
    "torch.stack([V[:k],V[:k]])": lambda k: torch.stack([V[:k], V[:k]]),
    "X[:k].T": lambda k: X[:k].T,
    "X[:k].mean()": lambda k: X[:k].mean(),
    "X[:k].std(0)": lambda k: X[:k].std(0),
    "X[:k].var(1)": lambda k: X[:k].var(1),
    "X[:k].max(0)": lambda k: X[:k].max(0),
    "X[:k].softmax(0)": lambda k: X[:k].softmax(0),
    "X[:k].sort(0)": lambda k: X[:k].sort(0),
    "X[:k].argsort(0)": lambda k: X[:k].argsort(0),
    "X[:k].median(0)": lambda k: X[:k].median(0),
    "X[:k].unbind(1)": lambda k: X[:k].unbind(1),
    "X[:k]@X.T": lambda k: X[:k] @ X.T,
    "X[:k].T@X[:k]": lambda k: X[:k].T @ X[:k],
    "torch.einsum('ij,kj->ik',X[:k],X)": lambda k: torch.einsum("ij,kj->ik", X[:k], X),
    "F.layer_norm(X[:k],(6,))": lambda k: F.layer_norm(X[:k], (6,)),
    "F.normalize(X[:k])": lambda k: F.normalize(X[:k]),
    "F.cosine_similarity(X[:k],X[:1])": lambda k: F.cosine_similarity(X[:k], X[:1]),
    "F.cross_entropy(X[:k],I[:k])": lambda k: F.cross_entropy(X[:k], I[:k]),
    "F.mse_loss(X[:k],X[:k]*2)": lambda k: F.mse_loss(X[:k], X[:k] * 2),
    "X[:k].norm()": lambda k: X[:k].norm(),
    "X[:k].flip(0)": lambda k: X[:k].flip(0),
    "X[:k].cumsum(0)": lambda k: X[:k].cumsum(0),
    "X[:k].unique()": lambda k: X[:k].unique(),
    "X[:k].nonzero()": lambda k: X[:k].nonzero(),
    "X[:k][X[:k]>0]": lambda k: X[:k][X[:k] > 0],
    "X[:k].flatten()": lambda k: X[:k].flatten(),
    "X[:k].reshape(-1,2)": lambda k: X[:k].reshape(-1, 2),
    "X[:k].unsqueeze(0).transpose(1,2)": lambda k: X[:k].unsqueeze(0).transpose(1, 2),
    "X[:k].sum(1,keepdim=True).expand(-1,4)": lambda k: X[:k].sum(1, keepdim=True).expand(-1, 4),
    "torch.block_diag(X[:k],X[:2])": lambda k: torch.block_diag(X[:k], X[:2]),
    "torch.kron(X[:k],X[:2])": lambda k: torch.kron(X[:k], X[:2]),
    "torch.outer(V[:k],V)": lambda k: torch.outer(V[:k], V),
    "torch.dot(V[:k],V[:k])": lambda k: torch.dot(V[:k], V[:k]),
    "F.scaled_dot_product_attention(X[None,:k],X[None],X[None])": lambda k: F.scaled_dot_product_attention(X[None, :k], X[None], X[None]),
    "F.scaled_dot_product_attention(X[None,:k],X[None,:k],X[None,:k],is_causal=True)": lambda k: F.scaled_dot_product_attention(
        X[None, :k], X[None, :k], X[None, :k], is_causal=True
    ),
    "F.multi_margin_loss(X[:k],I[:k])": lambda k: F.multi_margin_loss(X[:k], I[:k]),
    "F.gumbel_softmax(X[:k]*0+50*torch.eye(12,6)[:k],hard=True)": lambda k: F.gumbel_softmax(
        X[:k] * 0 + 50 * torch.eye(12, 6)[:k], hard=True
    ),
    "torch.searchsorted(V.sort().values,V[:k])": lambda k: torch.searchsorted(V.sort().values, V[:k]),
    "torch.bucketize(V[:k],V.sort().values)": lambda k: torch.bucketize(V[:k], V.sort().values),
    "torch.histc(V[:k],bins=4)": lambda k: torch.histc(V[:k], bins=4),
    "torch.quantile(V[:k],0.5)": lambda k: torch.quantile(V[:k], 0.5),
    "X[:k].masked_fill(X[:k]>0,0.0)": lambda k: X[:k].masked_fill(X[:k] > 0, 0.0),
    "X[:k].index_select(1,I[:3])": lambda k: X[:k].index_select(1, I[:3]),
    "X[:k].gather(1,I[:k,None])": lambda k: X[:k].gather(1, I[:k, None]),
    "X.clone().index_put((torch.arange(k),),X[:k]*2)": lambda k: X.clone().index_put((torch.arange(k),), X[:k] * 2),
    "len(X[:k])": lambda k: len(X[:k]),
    "max(k,3)": lambda k: max(k, 3),
    "min(k,3)": lambda k: min(k, 3),
    "abs(-k)": lambda k: abs(-k),
    "float(k)": lambda k: float(k),
    "k/2": lambda k: k / 2,
    "k//2": lambda k: k // 2,
    "k%2": lambda k: k % 2,
    "k**2": lambda k: k**2,
    "-k": lambda k: -k,
    "k<<1": lambda k: k << 1,
    "k&3": lambda k: k & 3,
    "str(k)": lambda k: str(k),
    "f'{k:03d}'": lambda k: f"{k:03d}",
    "divmod(k,2)": lambda k: divmod(k, 2),
}
"""By their text."""


def outcome(fn: Callable, *args: Any) -> Any:
    try:
        return fn(*args)
    except Exception as e:
        return type(e)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_from_data(name: str) -> None:
    of = PROGRAMS[name]

    def fn(t: torch.Tensor) -> Any:
        k = int(t.max())
        y = torch.relu(t.float()) * 2
        return of(k), y

    compiled = helpers.compiled(fn)
    for k in (3, 5, 2, 1, 6):
        t = torch.tensor([0, k, 1])
        got, want = outcome(compiled, t), outcome(fn, t)
        assert pytree.tree_structure(got) == pytree.tree_structure(want), k
        for a, b in zip(pytree.tree_leaves(got), pytree.tree_leaves(want), strict=True):
            assert type(a) is type(b)
            if isinstance(a, torch.Tensor):
                torch.testing.assert_close(a, b, equal_nan=True)
            else:
                assert a == b
    stats = pliant.stats()
    assert stats["graph_breaks"] == 0
    assert stats["captures"] <= 2


def regulated(h: torch.Tensor, lens: torch.Tensor, repeats: torch.Tensor, b: int) -> Any:
    return torch.repeat_interleave(h[b, : lens[b]], repeats[b, : lens[b]], dim=0)


def read_again(h: torch.Tensor, lens: torch.Tensor, repeats: torch.Tensor, b: int) -> Any:
    first = h[b, : lens[b]] * repeats[b, : lens[b], None]
    n = int(lens[b])
    lens[b:].add_(-1)
    return first, n, h[b, : lens[b]] * repeats[b, : lens.view(-1)[b], None], int(lens[b])


def another_dtype(h: torch.Tensor, lens: torch.Tensor, repeats: torch.Tensor, b: int) -> Any:
    z = lens + 2j
    return lens[b].item(), lens.view(torch.int32)[2 * b].item(), z.imag[b].item(), z.conj().imag[b].item(), z.real[b].item()


@pytest.mark.parametrize("fn", [regulated, read_again, another_dtype], ids=lambda f: f.__name__)
def test_a_number_that_is_read_twice(fn: Callable[..., Any]) -> None:
    """Each `lens[b]` is another tensor; the place in memory is one."""
    run = helpers.compiled(fn)
    for i in range(12):
        torch.manual_seed(i)
        n, m = 1 + i % 3, 5 + i % 4
        given = torch.randn(n, m, 2), torch.randint(2, 4, (n,)), torch.randint(0, 3, (n, m))
        results = []
        for f in (fn, run):
            h, lens, repeats = (t.clone() for t in given)
            results.append((f(h, lens, repeats, i % n), lens))
        torch.testing.assert_close(*results)
    assert pliant.stats()["graph_breaks"] == 0


def test_repeats_of_other_sizes() -> None:
    """Dims that were equal so far, and one repeat for all rows."""
    run = helpers.compiled(regulated)
    for m, k, length in ((5, 5, 3), (6, 6, 4), (7, 3, 3), (4, 8, 4), (5, 1, 3), (3, 3, 1), (6, 6, 1), (4, 2, 3)):
        args = torch.randn(2, m, 2), torch.tensor([1, length]), torch.randint(0, 3, (2, k)), 1
        results = []
        for f in (regulated, run):
            try:
                results.append(f(*args))
            except RuntimeError as e:
                results.append(torch.tensor([ord(c) for c in str(e)]))
        torch.testing.assert_close(*results)


def read_twice_in_one_place(x: torch.Tensor, n: torch.Tensor, m: torch.Tensor) -> tuple:
    a = n[1].item()
    m[0] += 2
    return x * a, n[1].item()


def one_tensor_twice(x: torch.Tensor, n: torch.Tensor, m: torch.Tensor) -> tuple:
    t = n[1]
    a = t.item()
    m[0] = 7
    return x[:a], t.item(), int(n.view(-1)[1])


def written_in_a_loop(x: torch.Tensor, n: torch.Tensor, m: torch.Tensor) -> tuple:
    a = n[1].item()
    while m[0] < 6:
        m[0] += 1
    return x * a, n[1].item()


@pytest.mark.parametrize("fn", [read_twice_in_one_place, one_tensor_twice, written_in_a_loop])
@pytest.mark.parametrize("backend", ["aten", "native"])
def test_a_number_in_memory_that_another_input_writes_to(fn: Callable[..., Any], backend: str) -> None:
    run = pliant.compile(fn, backend=backend, strict=True)
    for k in (1, 2, 3):
        found = []
        for f in (fn, run):
            b, apart = torch.tensor([4, k, 3, 2]), torch.tensor([k, 2])
            x = torch.arange(5.0)
            found.append((f(x, b[:2], b[1:3]), b, f(x, b[:2], apart), b))
        torch.testing.assert_close(*found)
