"""Results of a compiled region that come from one another: gradients, hooks and `retain_grad` of the earlier ones see the later ones."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import check, pliant

gradients = torch.autograd.grad


def square(x):
    a = x * x
    return a, a * 3


def features(x):
    h = (x @ x.t()).relu().flatten(1)
    return h, h.log_softmax(-1), h.sum(1)


def chain(x):
    a = x.sin()
    b = a.exp()
    return a, b, (a * b).sum()


def out_given(x):
    a, out = x.sin(), torch.empty(0)
    torch.cat([x.detach(), x.detach()], out=out)
    return a, a.exp(), out


def forgotten(x):
    """What nobody has was made of what is written later."""
    t = torch.zeros(x.shape)
    for i in range(2):
        t[i] = x.sum(0)
        _ = (x * 1).addcmul_(t, x) + 1
    a = t * 1
    return a, a * 2


def woven(x):
    s = x.exp()
    p = s * 2
    r = p * 3
    return p, r, s * r


def numbers(x):
    a = x.sin()
    n = x.shape[0] * 2
    return a, a.exp() * n, n, a.shape


def views(x):
    a = x.sin()
    v = a.view(-1)
    return a, v, v * 2, a.t(), a.t().cos()


def view_of_input(x):
    v = x.view(-1)
    return v, v * 2, x.t().sin()


def parts(x):
    a, b = x.exp().split(2, 1)
    return a, b, a * b


def in_place(x):
    a = x.sin()
    a.mul_(2)
    b = a.cos()
    b.add_(1)
    return a, b, b * 3


def by_data(x):
    a = x.sin()
    kept = a[a > 0.5]
    return a, kept, kept * 2 + kept.numel()


def drawn(x):
    a = F.dropout(x.sin(), 0.5)
    return a, F.dropout(a.exp(), 0.5)


def detached(x):
    a = x.sin()
    return a, a.detach().exp() * x, a.cos()


def without_gradients(x):
    a = x.sin()
    with torch.no_grad():
        n = a.abs().sum()
    b = a / n
    return a, b, n


def buffer(x):
    a = x.sin()
    table = torch.zeros(4)
    table += a.detach().sum(0)
    b = a * table.sum()
    table.add_(1)
    return a, b, table


def asserted(x):
    a = x.sin()
    n = int(a.detach().abs().sum().item()) % 3 + 1
    torch._check(n < 4)
    b = a.exp() * n
    return a, b, b.narrow(1, 0, n)


def broken(x):
    a = x.sin()
    b = a * 2
    pliant.graph_break()
    c = b * a
    return a, b, c, c.exp()


def deep(x):
    out = [x]
    for _ in range(12):
        out.append(out[-1].tanh() @ torch.eye(4))
    return tuple(out[1:])


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2 + 1


def written_by_a_view(x):
    a = x.clone()
    a.view(-1)[::2].mul_(0.25)
    a.t()[0].add_(x.sum())
    return a, torch.maximum(a, x), a.view(-1)


def what_nobody_needs(x, y=None):
    a = x + 2
    torch.stack([a, a.exp()]).mean(0)
    return a, a + a.sum()


def backward_inside(x):
    (g,) = torch.autograd.grad((x.relu() * x).sum(), x)
    a = x.sin() * g
    return a, a.exp()


def own_function(x):
    a = Doubled.apply(x.sin())
    return a, a.exp()


def own_function_and_input(x):
    a = Doubled.apply(x)
    return a, a.exp() * x


def own_function_between(x):
    a = x.sin()
    b = Doubled.apply(a)
    return a, b, b.exp()


def hook_inside(x):
    a = x.sin()
    a.register_hook(lambda g: g * 3)
    b = a.exp()
    b.register_hook(lambda g: g + 1)
    return a, b, b * a * x


def leaf_inside(x):
    a = x.sin()
    w = x.detach().clone().requires_grad_()
    b = a * w
    return a, b, b.exp() * w


def lost_leaf(x):
    a = (x * x).sum()
    return a, a.detach().requires_grad_().sum() + a


def lost_leaf_made_here(x):
    a = (x * x).sum(1)
    w = torch.ones(2, requires_grad=True)
    return a, (w * 2).sum() * a


def branch(x):
    a = x.sin()
    b = torch.cond(a.sum() > 1, lambda a: a * 2, lambda a: a.cos(), (a,))
    return a, b, b.exp()


def multiplied(x):
    """What is changed was made before the result that it comes from."""
    a = x.sin()
    b = x.cos()
    a.mul_(b)
    return a, b


def filled_in_a_loop(x):
    h = x[0] * 1
    out = torch.zeros(x.shape)
    for i in range(x.shape[0]):
        h = (h * x[i]).tanh()
        out[i] = h
    return out, h


def filled_and_listed(x):
    hs = []
    h = x[0].sin()
    out = torch.zeros(x.shape)
    for i in range(x.shape[0]):
        h = (h * x[i]).tanh()
        hs.append(h)
        out[i] = h
    return out, hs[0], hs[-1]


def filled_in_part(x):
    a = torch.zeros(x.shape[0], 2 * x.shape[1])
    f = x.sin()
    g = f.cos()
    a[:, ::2] = f
    a[:, 1::2] = g
    return a, f, g


def drawn_and_filled(x):
    total = x * 2
    e = F.dropout(x, 0.5)
    total += e
    d = F.dropout(e, 0.5)
    total[0].zero_()
    return total, e, d


def written_by_views_of_views(x):
    a = x * 1
    b = a[:1]
    c = b.view(-1)
    c.add_(0.5)
    b.mul_(2)
    return a, b, c, a * 1


def written_by_two_names(x):
    a = x.sin()
    flat, turned = a.view(-1), a.t()
    flat[::2].zero_()
    turned[0] = flat[: x.shape[0]] * 2
    return a, flat, turned, a * flat.sum(), turned.exp()


def pool_of_names(x):
    a = x * 2
    head, tail, turned = a[:1], a[1:], a.t()
    head.mul_(3)
    r = turned.exp()
    tail[-1:].copy_(x[0])
    return a, head, tail, turned, r, turned.t() + a


def turned_in_place(x):
    a = (x * 2).transpose_(0, 1)
    b = a.exp()
    c = (b * 3).unsqueeze_(0)
    return a, b, c.sin()


def into_nothing(x):
    """Memory that was made with another size."""
    scale = torch.empty(0)
    torch.mul(x.detach(), 2, out=scale)
    a = scale * x
    return a, a.exp()


def turned_without_gradients(x):
    y = x.detach()
    y.t_()
    a = x * y.sum(0)[:1].sum()
    return a, a.exp() * y.shape[0]


class Wrapped(torch.Tensor):
    @staticmethod
    def __new__(cls, t):
        return torch.Tensor._make_wrapper_subclass(cls, t.shape, dtype=t.dtype)

    def __init__(self, t):
        self.t = t

    @classmethod
    def __torch_dispatch__(cls, func, types, args, kwargs=None):
        out = func(*[a.t if isinstance(a, cls) else a for a in args], **(kwargs or {}))
        return cls(out) if isinstance(out, torch.Tensor) else out


def by_a_wrapper(x):
    by = Wrapped(x.detach())
    a = x.sin()
    return a, (a * by).t * 2 + a.exp()


PROGRAMS = [
    out_given, forgotten,
    turned_in_place, into_nothing, turned_without_gradients, by_a_wrapper,
    multiplied, written_by_views_of_views, written_by_two_names, pool_of_names,
    filled_in_a_loop, filled_and_listed, filled_in_part, drawn_and_filled,
    square, features, chain, woven, numbers, views, view_of_input, parts, in_place, by_data, drawn, detached, without_gradients, buffer,
    asserted, broken, deep, own_function, own_function_and_input, own_function_between,
    hook_inside, leaf_inside, lost_leaf, lost_leaf_made_here, branch, written_by_a_view, what_nobody_needs, backward_inside,
]  # fmt: skip


def pairwise(out: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
    """Gradients of each result with respect to each other one and to what was given."""
    found: list[Any] = []
    for i, t in enumerate(out):
        found += gradients(t.sum(), [*(o for j, o in enumerate(out) if j != i), *given], retain_graph=True, allow_unused=True)
    return found


def kept(out: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
    for t in out:
        t.retain_grad()
    sum((t * t).sum() for t in out).backward()
    return [t.grad for t in (*out, *given)]


def hooked(out: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
    seen: list[Any] = []
    for i, t in enumerate(out):
        t.register_hook(lambda g, i=i: seen.append((i, g.clone())))
        t.register_hook(lambda g: g * 2)
    sum((t * t).sum() for t in out).backward()
    return [g for _, g in sorted(seen, key=lambda s: s[0])] + [x.grad for x in given]


def one_by_one(out: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
    """Each result goes backward, the last ones first; what was freed by then is said to be."""
    found: list[Any] = []
    for t in reversed(out):
        try:
            t.sum().backward()
        except RuntimeError as e:
            found.append(str(e)[:40])
        found.append([x.grad.clone() if x.grad is not None else None for x in given])
    return found


def twice(out: list[torch.Tensor], given: list[torch.Tensor]) -> list[Any]:
    first = gradients(sum((t * t).sum() for t in out), [*out, *given], create_graph=True)
    return [*first, *gradients(sum((g * g).sum() for g in first if g.requires_grad), given)]


ASKED = {"pairwise": pairwise, "kept": kept, "hooked": hooked, "one by one": one_by_one, "twice": twice}


def same(a: Any, b: Any) -> None:
    if isinstance(a, list):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
        return
    if not isinstance(a, torch.Tensor):
        assert a == b
        return
    torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def answers(fn: Callable, asked: Callable, x: torch.Tensor) -> Any:
    torch.manual_seed(0)
    x = x.clone().requires_grad_()
    out = fn(x)
    moving = [t for t in out if isinstance(t, torch.Tensor) and t.requires_grad]
    values = [t.detach().clone() if isinstance(t, torch.Tensor) else t for t in out]
    return values, [t.grad_fn is None for t in moving], asked(moving, [x])


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_of_results(program, asked, backend):
    if asked == "twice" and (program in (hook_inside, branch) or "own" in program.__name__):
        pytest.skip("a region that branches, or with a hook or a Function that is not linear in gradients, is differentiated once")
    compiled = pliant.compile(program, backend=backend, background=False)
    for n in (3, 4, 5):
        x = torch.rand(n, 4)
        want, got = answers(program, ASKED[asked], x), answers(compiled, ASKED[asked], x)
        same(list(want[0]), list(got[0]))
        assert want[1] == got[1]
        same(want[2], got[2])


def doubled(x):
    x.mul_(2)
    return x.sin()


def scaled_in_part(x):
    x[:, 1:] *= 0.5
    y = x * x
    return y.sin(), y


def added(x):
    x.add_(torch.ones(x.shape) * 3)
    h = x.exp()
    return h * x, h


def read_before(x):
    y = x + 1
    x.mul_(2)
    return y, x * y


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("program", [doubled, scaled_in_part, added, read_before], ids=lambda f: f.__name__)
def test_an_input_that_is_written_is_a_result(program, backend):
    """Of which others come: gradients of these go no further than it, if they are asked for."""
    compiled = pliant.compile(program, backend=backend, background=False)
    for n in (3, 4, 5):
        sides = []
        for fn in (program, compiled):
            base = torch.rand(n, 4, generator=torch.Generator().manual_seed(n)).requires_grad_()
            x = base * 1
            out = fn(x)
            out = [*(out if isinstance(out, tuple) else (out,)), x]
            sides.append([*[t.detach().clone() for t in out], *pairwise(out, [base])])
        same(*sides)


def another_shape(x):
    a = x.sin()
    x.unsqueeze_(0)
    return a, a * x


def needed_by_a_result_and_a_write(x):
    h = x.sin()
    a = h * 1
    h.mul_(2)
    b = a * h
    e = a.exp()
    h.add_(e)
    return a, b, h, e


def written_by_data(x):
    a = x.sin()
    b = a.exp()
    a.data.mul_(2)
    return a, b, b * a


def written_without_gradients(x):
    a = x.sin()
    b = a * x
    with torch.no_grad():
        x.mul_(0.5)
    return a, b


def stored_then_written(x):
    a = x.sin()
    SEEN.append(x.shape[0])
    x.mul_(2)
    return a, a * torch.linalg.cholesky(torch.eye(2) + x.detach().abs().sum()).sum()


def refused_or(t: torch.Tensor, u: torch.Tensor) -> Any:
    try:
        return list(gradients(t.sum(), u, allow_unused=True, retain_graph=True))
    except RuntimeError as e:  # what it needs was written to, says eager
        return str(e)[:40]


SEEN: list[int] = []
HARD = [another_shape, written_by_data, written_without_gradients, stored_then_written]


@pytest.mark.parametrize("program", [*HARD, needed_by_a_result_and_a_write], ids=lambda f: f.__name__)
def test_where_no_cut_can_be_made_the_graph_ends_or_autograd_records_it(program):
    compiled = pliant.compile(program)
    for n in (3, 4, 5):
        sides = []
        for fn in (program, compiled):
            base = torch.rand(n, 4, generator=torch.Generator().manual_seed(n)).requires_grad_()
            x = base * 1
            out = [*fn(x), x]
            values = [t.detach().clone() for t in out]
            sides.append([*values, *[refused_or(t, u) for t in out for u in (*out, base)]])
        same(*sides)
    assert bool(pliant.stats()["graph_breaks"]) == (program in HARD)


def steps_inside(x, scale):
    x[:, 1:] *= 0.5
    (g,) = torch.autograd.grad((x * scale).sum() + scale, scale)
    return g


def test_gradients_inside_do_not_go_through_what_was_written():
    """They want those of a parameter alone: the history of the input is not gone through, and not freed."""
    answers = []
    for fn in (steps_inside, pliant.compile(steps_inside, backend="aten", background=False)):
        base, scale = torch.ones(3, 4, requires_grad=True), torch.tensor(0.5, requires_grad=True)
        x = base * 2
        g = fn(x, scale)
        x.sum().backward()
        answers.append([g, base.grad])
    same(*answers)


def raising(x, i, log, seen):
    log.append("before")
    a = F.dropout(x.sin(), 0.5)
    b = a.exp()[i]
    log.append("after")
    return a, b


def raising_behind_a_write(x, i, log, seen):
    seen.add_(1)
    a = F.dropout(x.sin(), 0.5)
    log.append("written")
    b = a.exp()[i]
    return a, b


def handled(x, i, log, seen):
    a = F.dropout(x.sin(), 0.5)
    try:
        b = a.exp()[i]
    except IndexError:
        log.append("caught")
        b = a * torch.rand(4)
    return a, b


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("kept", [torch.relu, torch.tanh, torch.exp, torch.sigmoid, lambda x: x.softmax(-1)])
def test_gradients_of_gradients_of_what_nodes_keep(kept, backend):
    def fn(x):
        a = gradients((kept(x) * x * x).sum(), x, create_graph=True)[0]
        return a, gradients((a * x * x).sum(), x, create_graph=True)[0]

    compiled = pliant.compile(fn, backend=backend, background=False)
    for n in (3, 4):
        x = torch.rand(n, 4, requires_grad=True)
        want, got = (gradients(sum((t * t).sum() for t in side(x)), x)[0] for side in (fn, compiled))
        torch.testing.assert_close(want, got, rtol=1e-3, atol=1e-3)


def a_gradient_and_its_gradient(x, i, log, seen):
    a = gradients((x.exp() * x * x).sum(), x, create_graph=True)[0]
    return a, gradients((a * x * x).sum(), x, create_graph=True)[0]


def changed_behind_a_view_without_gradients(x, i, log, seen):
    y = x * 2
    with torch.no_grad():
        k = y.view(-1).sum() + y.detach()[0]
    z = y * 3
    y[0] = z[1]
    return z, y.sin() + k


@pytest.mark.parametrize("k", [0, 1, 2])
def test_some_gradients_while_anomalies_are_detected(k):
    """The backward part for those that arrive is made there, of what is traced: nobody asks that for NaN."""

    def three(x, y):
        h = (x * y).exp()
        return h * 2, h + y, h.sum()

    compiled = pliant.compile(three, background=False)
    for n in (3, 5):
        x, y = (torch.rand(n, requires_grad=True) for _ in range(2))
        with torch.autograd.detect_anomaly(check_nan=True):
            found = gradients(compiled(x, y)[k].sum(), x)
            assert torch.is_anomaly_check_nan_enabled()
            same([*found], [*gradients(three(x, y)[k].sum(), x)])
            with pytest.raises(RuntimeError, match="returned nan values"):
                compiled(x, y)[k].sum().backward(torch.tensor(float("nan")))


class AsItIs(torch.autograd.Function):
    """Gives back what it is given: no operation reads it."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return -g


class AndMore(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        more = torch.ones(x.shape)
        ctx.mark_non_differentiable(more)
        return x, more

    @staticmethod
    def backward(ctx, g, _):
        return g * 3


def reversed_features(x):
    h = x * 2
    return h, AsItIs.apply(h)


def twice_as_it_is(x):
    h = AsItIs.apply(x)
    return h, AsItIs.apply(h)


def as_it_is_with_more(x):
    h, more = AndMore.apply(x * 2)
    return h, AsItIs.apply(h) * 1, AndMore.apply(h)[0], more


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("program", [reversed_features, twice_as_it_is, as_it_is_with_more])
def test_functions_that_give_back_a_result(program, backend):
    """It was an internal error: the graph was to end in front of an operation that reads it, and there is none."""
    compiled = pliant.compile(program, backend=backend, background=False, strict=True)
    for n in (3, 4, 6):
        sides = []
        for fn in (program, compiled):
            x = torch.rand(n, 4, generator=torch.Generator().manual_seed(n)).requires_grad_()
            out = fn(x)
            (inner,) = gradients(out[1].sum(), out[0], retain_graph=True)
            sum((k + 1) * t.sum() for k, t in enumerate(out)).backward()
            sides.append([*(t.detach() for t in out), inner, x.grad])
        same(*sides)


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("program", [a_gradient_and_its_gradient, changed_behind_a_view_without_gradients, raising_behind_a_write])
def test_a_region_that_cannot_be_cut_between_two_results_is_no_region(program, backend):
    """Gradients of the one by the other were none: the capture ends before what is in the way of a cut."""
    compiled = pliant.compile(program, backend=backend, background=False)
    for n, i in (3, [0]), (4, [1, 2]), (6, [1]):
        x = torch.rand(n, 4, requires_grad=True)
        found = []
        for f in (program, compiled):
            torch.manual_seed(0)
            a, b = f(x, torch.tensor(i), [], torch.zeros(4))
            found.append(gradients(b.sum(), a)[0])
        torch.testing.assert_close(*found)


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("program", [raising, raising_behind_a_write, handled], ids=lambda f: f.__name__)
def test_a_later_section_that_raises(program, backend):
    """What the sections before it have drawn is drawn anew where the frame runs again, and what they have written is not written twice."""
    sizes = (3, [0]), (4, [9, 1]), (5, [1]), (3, [7])
    given = [(torch.rand(n, 4, requires_grad=True), torch.tensor(i), [], torch.zeros(4)) for n, i in sizes]
    if program is not raising_behind_a_write:
        check(program, *given, grad=True, options={"backend": backend})
        return
    compiled = pliant.compile(program, backend=backend, background=False)
    for x, i, _, _ in given:  # machine code has words of its own there
        sides = []
        for f in (program, compiled):
            torch.manual_seed(0)
            log, seen = [], torch.zeros(4)
            with contextlib.suppress(IndexError):
                log.append(f(x, i, log, seen)[1].detach())
            sides.append([log, seen, torch.rand(2)])
        same(*sides)


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.ReLU())
        self.head = torch.nn.Linear(4, 5)

    def forward(self, x, y):
        found = self.body(x)
        scores = self.head(found.mean((2, 3)))
        return found, scores, F.cross_entropy(scores, y)


def test_attention_by_gradients():
    """Grad-CAM: gradients of a class's score with respect to the features that the model returns beside it."""
    torch.manual_seed(0)
    model = Net()
    compiled = pliant.compile(model, background=False)
    for n in (4, 5, 6):
        x, y = torch.rand(2, 3, n, n), torch.tensor([1, 2])
        maps = []
        for f in (model, compiled):
            found, scores, loss = f(x, y)
            shown = gradients(scores[:, 3].sum(), found, retain_graph=True)
            maps.append([*shown, *gradients(loss, [found, scores, *model.parameters()])])
        for a, b in zip(*maps, strict=True):
            same(a, b)
    assert pliant.stats()["graph_breaks"] == 0


def unread_sum(x, y):
    w = -x
    x.sum() * y.sum()  # noqa: B018
    return w, w + 1


def unread_number(x, y):
    float(y.sum())
    w = x * x
    return w, w.exp()


def constants(x, y):
    w = x * torch.tensor([3.0, 4.0])
    return w, w.exp() * torch.tensor(0.5)


def unread_write(x, y):
    w = x * x
    y.clone().mul_(2)
    return w, w.exp()


@pytest.mark.parametrize("fn", [unread_sum, unread_number, unread_write, constants], ids=lambda f: f.__name__)
def test_operations_that_nobody_reads_are_in_no_section(fn):
    """What only they read is no input of the region."""
    compiled = pliant.compile(fn)
    for n in (2, 3):
        said = []
        for run in (fn, compiled):
            x, y = torch.ones(n, 2, requires_grad=True), torch.ones(n, requires_grad=True)
            w, out = run(x, y)
            said.append(list(torch.autograd.grad(out.sum(), (w, x))))
        same(*said)


def masked_twice(x, by):
    m = x.detach() > 0
    a = x.clone()
    a[m] = by
    b = a.clone().index_put_([m], by, accumulate=True)
    return a, b


def masked_apart(x, by):
    m = x.detach() > 0
    return x.index_put([m], by, accumulate=True), (x * 2).index_put([m], by, accumulate=True).sum(0)


@pytest.mark.parametrize("fn", [masked_twice, masked_apart], ids=lambda f: f.__name__)
def test_masks_that_only_the_backward_part_looks_through(fn):
    """What the backward part of one section, or of a region that is cut in the end, has read off a mask is no value of another's."""
    sizes = ((8, 4), (5, 4), (2, 3), (1, 4), (0, 4))
    given = [(torch.randn(*s).requires_grad_(), torch.randn(()).requires_grad_()) for s in sizes]
    check(fn, *given, grad=True, breaks=0, options={"fullgraph": True})


def beside_its_base(x, n):
    whole = x * 1
    part, turned = whole[1:], whole.t()
    whole.mul_(2)
    return whole, part, turned, n + 1


def test_a_view_of_what_was_written_since_beside_a_number_that_no_operation_reads():
    check(beside_its_base, *[(torch.ones(k, 3, requires_grad=True), k) for k in (2, 3, 5)], grad=True)


def sizes_made_equal(x, items):
    first = x * 1
    pliant.graph_break()
    a = (next((t for t in items if t.shape[0] > 1), first) * 1).scatter_(0, torch.zeros(1, x.shape[1], dtype=torch.long), first[:1])
    return a, a * 2, torch.zeros(x.shape)


def sizes_of_an_unread_input(x, y):
    a = (x * 1).index_add_(0, torch.zeros(1, dtype=torch.long), y[:1])
    return a, a * 2, torch.ones(y.shape[0], y.shape[1])


@pytest.mark.parametrize("fn", [sizes_made_equal, sizes_of_an_unread_input], ids=lambda f: f.__name__)
def test_sections_of_which_a_backward_part_finds_sizes_equal(fn):
    """A size that one section was given stood for no size of the next one any longer, and the region was not cut."""

    def given(n, m):
        x, y = (torch.randn(n, m, requires_grad=True) for _ in range(2))
        return (x, [y, y]) if fn is sizes_made_equal else (x, y)

    check(fn, *[given(n, m) for n, m in ((2, 3), (3, 4), (5, 2))], grad=True)


@torch.no_grad()
def zeroed(x):
    x[:1].zero_()


def refused_beside_a_view(x):
    zeroed(x)
    a = x * 1
    b = a * a
    a.add_(1)
    return b


def test_the_operator_that_eager_refuses_beside_a_view_made_without_gradients():
    """It was looked for by its node among all, and that of such a view may not be asked for."""
    mine, theirs = torch.ones(3, 2, requires_grad=True), torch.ones(3, 2, requires_grad=True)
    torch.testing.assert_close(pliant.compile(refused_beside_a_view, background=False)(mine), refused_beside_a_view(theirs))


def without(make):
    with torch.no_grad():
        return make()


BESIDE = {
    "view": lambda x: without(lambda: x.view(-1)),
    "row of a result": lambda x: without(lambda: (x * 2)[0]),
    "rows": lambda x: without(lambda: x.unbind()),
    "rows of what was written since": lambda x: (lambda z: (z.unbind(), z.mul_(2))[0])(x * 1),
}


@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("beside", BESIDE)
def test_beside_views_that_have_no_history_to_tell(beside, first):
    def fn(x):
        early = BESIDE[beside](x) if first else None
        a = x + 2
        b = a.exp()
        return a, b, early if first else BESIDE[beside](x)

    got = []
    for f in (fn, pliant.compile(fn)):
        x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
        a, b, _ = f(x)
        (a.sum() + b.sum()).backward(inputs=[a, b, x])
        got.append((a.grad, b.grad, x.grad))
    torch.testing.assert_close(*got)
