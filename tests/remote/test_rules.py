"""Rules of placement: each operator on tensors placed in every way gives what one process gives. And random programs of many."""

from __future__ import annotations

import copy
import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import pliant
from benchmarks import remote_fuzz, remote_scripts
from pliant import remote
from pliant.remote import product_rules, sharding, view_rules  # noqa: F401  (the rules that are swept)

A, B, W = (torch.linspace(-1, 1, n).sin().reshape(s).double() for n, s in ((30, (5, 6)), (30, (5, 6)), (24, (4, 6))))
IDS = torch.arange(5) % 4
IMAGES, KERNEL = torch.linspace(-2, 2, 192).cos().reshape(4, 3, 4, 4).double(), torch.linspace(-1, 1, 54).reshape(2, 3, 3, 3).double()
Q = torch.linspace(-2, 2, 96).sin().reshape(2, 4, 3, 4).double()

CASES = {
    "pointwise": (lambda a, b: torch.where(a > b, a * 2, b.exp()) + a.sum(1, keepdim=True), (A, B)),
    "reductions": (lambda a: (a.sum(), a.mean(0), a.mean(1), a.amax(0), a.var(1), a.softmax(1), a.argmax(1), a.log_softmax(0)), (A,)),
    "product": (lambda a, w: (a @ w.t(), F.linear(a, w, w.sum(1)), a.t() @ a), (A, W)),
    "views": (lambda a: (a.t(), a.reshape(5, 2, 3), a.flatten(), a.unsqueeze(1).expand(5, 2, 6), a[:, 1:4], a[1:4], a.unbind(1)[2]), (A,)),
    "joined": (lambda a, b: (torch.cat([a, b]), torch.cat([a, b], 1), torch.stack([a, b], 1)), (A, B)),
    "embedding": (lambda w, i: F.embedding(i, w), (W, IDS)),
    "cross entropy": (lambda w, i: (F.cross_entropy(w[i], i), F.cross_entropy(w[i], i, reduction="sum")), (W, IDS)),
    "mean squares": (lambda a, b: (F.mse_loss(a, b), F.smooth_l1_loss(a, b, reduction="sum")), (A, B.cos())),
    "layer norm": (lambda a, w: F.layer_norm(a, (6,), w[0], w[1]), (A, W)),
    "convolution": (lambda x, k: (F.conv2d(x, k), F.max_pool2d(x, 2), F.avg_pool2d(x, 2)), (IMAGES, KERNEL)),
    "attention": (lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True), (Q,)),
    "writes": (lambda a, b: (a.clone().add_(b).mul_(2), torch.zeros_like(a).copy_(b)), (A, B)),
    "tensors as indices": (lambda a, i: (a[i], a[:, i], a[i, i], a.index_select(0, i), a.gather(1, i[:, None]), a[:, None][i]), (A, IDS)),
    "what indices write": (lambda a, i: (a.index_add(0, i, a), a.index_put((i,), a, accumulate=True), a.scatter_add(1, a.argsort(1), a),
                                         a.scatter(0, a.argsort(0), 0.5), a.index_fill(1, i, 2.0), index_writes(a.clone(), i)), (A, IDS)),
    "batch norm": (lambda a, x: (F.batch_norm(a, None, None, training=True), F.batch_norm(x, KERNEL[0, :, 0, 0], KERNEL[0, :, 0, 1] + 2)),
                   (A, IMAGES)),
    "group norm": (lambda x: F.group_norm(x, 3, x[0, :, 0, 0], x[0, :, 1, 1]), (IMAGES,)),
    "lists": (lambda a, b: (*torch._foreach_add([a, b], [b, a]), *torch._foreach_norm([a, b]), a.norm()), (A, B)),
    "sorting": (lambda a: (a.sort(1).values, a.topk(2, 0).values, a.cumsum(1), a.flip(0)), (A,)),
}


def index_writes(x, i):
    x[i] = 0.5
    x[:, i[:2]] *= 2
    return x.cumsum_(0)


def flat(x):
    return [x] if isinstance(x, torch.Tensor) else list(x)


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients(mesh, name):
    fn, tensors = CASES[name]
    compiled = pliant.compile(fn, on=mesh)
    free = [t.is_floating_point() for t in tensors]
    mine = [t.clone().requires_grad_(f) for t, f in zip(tensors, free, strict=True)]
    want = flat(fn(*mine))
    total = lambda outs: sum((o.double() ** 2).sum() for o in outs if o.is_floating_point())
    gradients = torch.autograd.grad(total(want), [t for t, f in zip(mine, free, strict=True) if f], allow_unused=True)
    for places in itertools.islice(itertools.product(*[["r", *range(t.dim())] for t in tensors]), 0, None, 2 if len(tensors) > 1 else 1):
        put = [mesh.replicate(t) if p == "r" else mesh.shard(t, p) for t, p in zip(tensors, places, strict=True)]
        put = [t.requires_grad_(f) for t, f in zip(put, free, strict=True)]
        got = flat(compiled(*put))
        for a, b in zip(want, got, strict=True):
            assert a.dtype is b.dtype and a.shape == b.shape
            torch.testing.assert_close(b.cpu().detach(), a.detach(), msg=lambda m: f"{places}: {m}")
        found = torch.autograd.grad(total(got), [t for t, f in zip(put, free, strict=True) if f], allow_unused=True)
        for a, b in zip(gradients, found, strict=True):
            torch.testing.assert_close(None if b is None else b.cpu(), a, msg=lambda m: f"gradient, {places}: {m}")


def test_collectives_are_those_that_are_needed(mesh):
    """Data-parallel and weight-parallel products move what they must, nothing is gathered."""
    x, w = mesh.shard(torch.randn(6, 4)), mesh.replicate(torch.randn(4, 3))
    rows = pliant.compile(lambda a, b: (a @ b).relu() * 2, on=mesh)
    assert str(rows(x, w).placement) == "Shard(0)" and mesh.counts["collectives"] == 0
    sums = pliant.compile(lambda a, b: (a.t() @ (a @ b), (a @ b).sum(0)), on=mesh)
    assert [str(t.placement) for t in sums(x, w)] == ["Replicate()"] * 2 and mesh.counts["collectives"] == 1  # both in one go
    up, down = mesh.shard(torch.randn(4, 6), 1), mesh.shard(torch.randn(6, 4), 0)
    before = mesh.counts["collectives"]
    inner = pliant.compile(lambda a, u, d: (a @ u).relu() @ d, on=mesh)
    assert str(inner(mesh.replicate(torch.randn(5, 4)), up, down).placement) == "Replicate()" and mesh.counts["collectives"] - before == 1
    assert pliant.stats()["captures"] == 3 and not pliant.events.events("gathered")


def test_what_has_no_rule_is_gathered_and_says_so(mesh):
    x = torch.randn(6, 6)
    f = pliant.compile(lambda a: torch.linalg.det(a), on=mesh)
    assert torch.allclose(f(mesh.shard(x)).cpu(), torch.linalg.det(x), rtol=1e-4, atol=1e-6) and pliant.events.events("gathered")


@pytest.mark.parametrize("seed", [0, 100, 200])
def test_random_programs(seed):
    with remote.mesh(3, transport="threads", timeout=60, recover=False) as mesh:
        for i in range(seed, seed + 6):
            what, told = (remote_fuzz.training if i % 6 == 5 else remote_scripts.script if i % 6 > 2 else remote_fuzz.one)(mesh, i)
            assert what != "wrong", told


NORMED = [torch.nn.Linear(4, 6), torch.nn.BatchNorm1d(6), torch.nn.Tanh(), torch.nn.Linear(6, 3)]


@pytest.mark.parametrize("how", [{"foreach": True}, {"fused": True}, {}])
def test_optimizers_on_lists(mesh, how):
    """One graph, nothing gathered; statistics of a batch norm are those of all rows, wherever they are."""
    a = torch.nn.Sequential(*[copy.deepcopy(m) for m in NORMED]).double()
    b = copy.deepcopy(a)
    mesh.place(b, {"3.weight": remote.Shard(0), "3.bias": remote.Shard(0)})

    def trainer(model):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, **how)

        def step(x, y):
            loss = F.mse_loss(model(x), y)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    here, there = trainer(a), pliant.compile(trainer(b), on=mesh)
    for n in (5, 7, 4):
        x, y = torch.randn(n, 4).double(), torch.randn(n, 3).double()
        torch.testing.assert_close(there(mesh.shard(x), mesh.shard(y)).cpu(), here(x, y))
    for name, t in a.state_dict().items():
        torch.testing.assert_close(b.state_dict()[name].cpu(), t, msg=name)
    assert not pliant.events.events("gathered") and not pliant.events.events("remote")


def test_a_graph_that_runs_operator_by_operator_keeps_its_writes(mesh):
    """Tensors of this process among those that one operator writes: they travel, and come back."""
    x, own = mesh.replicate(torch.ones(3)), torch.full((3,), 2.0)
    torch._foreach_mul_([x, own], 3.0)
    assert torch.equal(x.cpu(), torch.full((3,), 3.0)) and torch.equal(own, torch.full((3,), 6.0))


def test_a_view_of_a_copy_is_never_written(mesh):
    """The copy is gone, a view of it is not."""
    x = mesh.shard(torch.arange(32.0).reshape(4, 8))
    row = x.t()[:, 1:][0]
    with pytest.raises(remote.Refused, match="copy"):
        row.fill_(0.5)


def test_as_strided_counts_from_where_memory_begins(mesh):
    x = torch.arange(12.0).reshape(4, 3)
    f = pliant.compile(lambda t: t.as_strided((4,), (3,), 1), on=mesh)
    assert torch.equal(f(mesh.replicate(x)).cpu(), x[:, 1])
    with pytest.raises(remote.Refused, match="as_strided"):
        mesh.shard(x)[1:].as_strided((2,), (1,), 0)


def test_pieces_of_sums_travel_once(mesh):
    """Partial sums that are wanted in pieces are a reduce-scatter."""
    x, y, w = torch.randn(6, 5), torch.randn(6, 4), torch.randn(5, 4)
    f = pliant.compile(lambda a, b, c: a.t() @ b + c, on=mesh)
    out = f(mesh.shard(x), mesh.shard(y), mesh.shard(w))
    torch.testing.assert_close(out.cpu(), x.t() @ y + w)
    text = "".join(text for _, _, text, *_ in mesh.sent.values())
    assert "reduce_scatter" in text and "all_reduce" not in text and str(out.placement) == "Shard(0)"


def test_a_worker_without_rows_in_the_gradient_of_a_norm(mesh):
    """PyTorch's kernel for statistics that are given divides by the number of rows, as whole numbers."""
    fn = lambda x, m, v, w: F.batch_norm(x, m, v + 2, w)
    given = [torch.randn(2, 3).double().requires_grad_(), *[torch.randn(3).double().abs() for _ in range(3)]]
    given[3].requires_grad_()
    put = [mesh.shard(given[0].detach()).requires_grad_(), *[mesh.replicate(t.detach()) for t in given[1:]]]
    put[3].requires_grad_()
    (fn(*given) ** 2).sum().backward()
    (pliant.compile(fn, on=mesh)(*put) ** 2).sum().backward()
    for a, b in ((given[0], put[0]), (given[3], put[3])):
        torch.testing.assert_close(b.grad.cpu(), a.grad)


@pytest.mark.parametrize("fn", [lambda a: a.roll(1, 2), lambda a: a.flip(2), lambda a: a.softmax(3), lambda a: a.sort(2).values])
def test_a_dim_that_is_not_there(mesh, fn):
    with pytest.raises(IndexError, match="out of range"):
        fn(mesh.shard(A))
    with pytest.raises(IndexError, match="out of range"):
        pliant.compile(fn, on=mesh)(mesh.shard(A))


@pytest.mark.parametrize("fn", [lambda i: torch.lerp(i, i, 0.3) * 2, lambda i: F.gelu(i) * 2, lambda i: F.silu(i) + 1])
def test_whole_numbers_where_there_is_no_kernel_for_them(mesh, fn):
    for f in (fn, pliant.compile(fn, on=mesh)):
        with pytest.raises(NotImplementedError, match="not implemented"):
            f(mesh.shard(IDS))


def test_a_view_of_pieces_whose_length_may_be_one(mesh):
    """Whether it is, is no question for the rule: the sizes are open."""

    def f(a, x):
        return x[:, None][(a.detach().abs() * 7).long().reshape(-1) % x.shape[0]].unfold(-1, 1, 1), a.reshape(-1)

    g = pliant.compile(f, on=mesh)
    for n, m in ((7, 6), (3, 4), (5, 1), (1, 5), (1, 1)):
        a, x = torch.randn(n, m), torch.randn(n, m)
        for got, want in zip(g(mesh.shard(a), mesh.shard(x)), f(a, x), strict=True):
            assert torch.equal(got.cpu(), want)


WRITTEN = {
    "rows": lambda x: (lambda y: (y.__setitem__(-1, 2.0), y.__setitem__(2, y[3]), y)[2])(x.clone()),
    "shifted": lambda x: (lambda y: (y.__setitem__(slice(1, None), x[:-1]), y)[1])(x.clone()),
    "a view that lives": lambda x: (lambda y: (lambda v: (v.mul_(3), y.add_(1), v + 0 * y.sum())[2])(y[1:4]))(x * 1),
    "a loop": lambda x: (lambda y: ([y[i].copy_(x[i] * i) for i in range(3)], y)[1])(torch.zeros_like(x)),
    "a mask and columns": lambda x: (lambda y: (y.__setitem__(x > 0, 0.0), y[:, 0].fill_(5), y[:, 2:].copy_(y[:, :2]), y)[3])(x.clone()),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_what_a_graph_makes_is_written_through_views_of_pieces(mesh, name):
    """It is made whole, on every worker; what it is made of stays as it was."""
    there = pliant.compile(WRITTEN[name], on=mesh)
    for rows in (7, 5, 8):
        x = torch.randn(rows, 4, dtype=torch.float64)
        for dim in (0, 1):
            given = mesh.shard(x, dim)
            assert torch.allclose(there(given).cpu(), WRITTEN[name](x)) and torch.equal(given.cpu(), x)


PLACES = {
    "replicated": lambda m, t: m.replicate(t), "rows": lambda m, t: m.shard(t), "columns": lambda m, t: m.shard(t, 1),
    "one worker": lambda m, t: m[2].put(t),
}  # fmt: skip


@pytest.mark.parametrize("place", PLACES)
def test_views_of_what_lies_otherwise_on_the_workers(mesh, place):
    """Gathered, a view is a tensor of its own there, without the gaps that it has in one process."""
    for shape in ((2, 1, 8), (4, 3, 8), (1, 2, 8)):
        a = torch.linspace(-1, 1, math.prod(shape)).reshape(shape)
        here, there = a[..., 6:], PLACES[place](mesh, a)[..., 6:]
        if shape[1] == 1:
            here, there = here.flatten(0, 1), there.flatten(0, 1)
        else:
            here, there = here[:, 0], there[:, 0]
        assert here.stride() == there.stride()
        for view in (lambda t: t.unflatten(0, (-1, 1)), lambda t: t.view(-1, 1, 2), lambda t: t[:1].flatten(), lambda t: t.unsqueeze(1)):
            assert torch.equal(view(there).cpu(), view(here))


def scaled(x):
    out = F.mse_loss(x, x * 2)
    x.masked_fill_(x > 0, 0.3)
    return out


def scaled_and_viewed(x):
    out = F.mse_loss(x, x * 2)
    x.masked_fill_(x > 0, 0.3)
    return out, x.flatten()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("fn", [scaled, scaled_and_viewed])
def test_writes_to_what_lies_otherwise_on_the_workers(mesh, place, fn):
    """A program that goes by the order of strides, on pieces of one element or none, whose strides say nothing, and on views with gaps."""
    compiled = pliant.compile(fn, on=mesh)
    done = 0
    views = (lambda t: t, torch.t, lambda t: t[:, ::2], lambda t: t[:1])
    for shape, view in itertools.product(((1, 2), (4, 2), (3, 5), (1, 1), (0, 2)), views):
        a = torch.linspace(-1, 1, math.prod(shape)).reshape(shape)
        r = PLACES[place](mesh, a.clone())
        here, there = view(a), view(r)
        want = flat(fn(here))
        try:
            got = flat(compiled(there))
        except remote.Refused:  # a view of pieces that is a copy
            continue
        for x, y in zip(want, got, strict=True):
            torch.testing.assert_close(y.cpu(), x, equal_nan=True)
        assert torch.equal(r.cpu(), a)
        assert torch.equal(there.cpu(), here)
        done += 1
    assert done >= 11


@pytest.mark.parametrize("workers, seed", [(3, 9103297), (2, 9200168)])
def test_random_programs_that_lay_otherwise(workers, seed):
    assert remote_fuzz.fuzz(1, seed, (workers,), 600)["wrong"] == 0
