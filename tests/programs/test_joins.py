"""Branches on data that are operations of the graph: both sides captured once, results exact whichever side a run takes."""

from __future__ import annotations

import contextlib
import io
import logging

import numpy as np
import pytest
import torch

import pliant
from pliant import events, native
from pliant.interpret import subprograms
from pliant.jit import branches
from tests import helpers
from tests.helpers import check, check_converges, check_world, compiled
from tests.programs.registry import t

OURS = helpers.BACKEND in ("aten", "native")
ours = pytest.mark.skipif(not OURS, reason="this backend's graphs have no branches")
HOT, COLD = torch.linspace(0.1, 2, 12).view(3, 4), -torch.linspace(0.1, 2, 12).view(3, 4)
CALLS = [HOT, COLD, HOT * 3, COLD / 7, HOT - 1, torch.cat([HOT, COLD * 2]), torch.full((2, 3), float("nan"))]


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.no_grad():
        yield


def selects(x):
    y = x * 2 if x.mean() > 0 else x * 3
    z = y + 1 if y.max() > 1 else -y.abs()
    z = z * 2 + z.mean()  # CPython repeats the end of a function behind both sides if it is short
    return z.sum(-1)


def of_any_truth(x):
    return x + 1 if x[:1, :1] else x.abs()


def blocks(x):
    if x.sum() > 0:
        y = x.softmax(-1)
    else:
        y = x.cumsum(0).sin()
    return y @ y.t()


def numbers(x):
    k, scale, flag = 1, 0.5, False
    if x.sum() > 0:
        k, scale = x.shape[0], 2.0
        flag = True
    if flag:
        x = x - 1
    return x * k * scale, k, scale, flag


def returns(x):
    if x.max() > 5:
        return x, x.argmax()
    if x.min() < -1:
        return x.flatten()[: x.shape[0] * x.shape[1]].view_as(x) * 2, x.argmin()
    return x.exp(), x.argmax()


def as_it_was(x):
    y = x
    if x.norm() > 3:
        y = x * (3 / x.norm())
    return y, y is x


def lists(x):
    out, k = [x], []
    for row in x[:2]:
        if row.sum() > 0:
            out.append(row * 2)
            k.append(1)
        else:
            out.append(row.cumsum(0))
            k.append(2)
    return out, k


def comprehension(x):
    return torch.stack([p.relu() if p.sum() > 0 else p.cumsum(0) for p in x[:2]]), [1 if p.sum() > 0 else 2 for p in x[:2]]


def nested(x):
    if x.sum() > 0:
        y = x.sort(-1)[0]
        if x.max() > 4:
            y = y * 2
        elif x.max() > 1:
            y = y.cumsum(0)
    else:
        y = -x
    return y + 1


def pick(x):
    if x.sum() > 0:
        return x.amax(0), "max"
    return x.amin(0), "max"


def in_a_callee(x):
    y, word = pick(x)
    z, _ = pick(-x)
    return y - z, word


def sizes(x):
    if x.sum() > 0:
        y = x[x > 0.5]
    else:
        y = x.flatten()[:2]
    return y * 2, y.shape[0], y.numel() > 3


def handled(x):
    try:
        if x.sum() > 0:
            y = x.sort(0)[0]
        else:
            y = x.sort(0)[1].float()
        return y + {3: 1}[x.shape[0]]
    except KeyError:
        return y * 10


def draws(x):
    y = x + torch.rand(1)
    if x.sum() > 0:
        y = y * torch.rand_like(y)
    else:
        y = y - torch.randn_like(y)
    return y + torch.rand(1)


def items(x):
    n = int((x > 0).sum())
    if n > 2:
        n = n - 2
    total = x.sum().item()
    if total > 1.5:
        total = total * 2 + n
    return n, total


def rows(x):
    def each():
        for row in x[:3]:
            yield row * 2 if row.sum() > 0 else row.cumsum(0)

    return list(each())


JOINED = [
    selects, of_any_truth, blocks, numbers, returns, as_it_was, lists, comprehension, nested, in_a_callee, sizes, handled, draws, items,
    rows,
]  # fmt: skip


@pytest.mark.parametrize("fn", JOINED, ids=lambda f: f.__name__)
def test_both_sides_are_exact(fn):
    check(fn, *[(x,) for x in CALLS[: -1 if fn in (of_any_truth, lists, comprehension) else None]])


@ours
@pytest.mark.parametrize("fn", [fn for fn in JOINED if fn is not as_it_was], ids=lambda f: f.__name__)
def test_one_graph_from_the_first_call_on(fn):
    compiled = helpers.compiled(fn)
    for x in (HOT, COLD, HOT, COLD * 3, HOT * 4):
        compiled(x)
    stats = pliant.stats()
    assert stats["captures"] == 1 and stats["graph_breaks"] == 0 and stats["calls"] == 5, [e.fields for e in events.events("branch_open")]


@ours
def test_cheap_sides_are_selected():
    compiled = helpers.compiled(selects)
    compiled(HOT)
    (entry,) = native.entries(selects.__code__)
    assert "flow" not in entry.info.emitted.executable.source and "raise" not in entry.info.emitted.executable.source


def whole_numbers(x, d):
    return x // d if d.sum() > 0 else x * 0


def writes(x, d):
    y = x * 2
    if d.sum() > 0:
        y += 1
    return y, x


def writes_outside(x, d):
    if d.sum() > 0:
        x.add_(1)
    return x * 2


def prints(x, d):
    if d.sum() > 0:
        print("hot")
        x = x * 2
    return x


def other_kinds(x, d):
    return (x, 1) if d.sum() > 0 else [x]


def may_not_be_there(x, d):
    if d.sum() > 0:
        y = x * 2
    return y if d.sum() > 0 else x


def raises(x, d):
    if d.sum() < 0:
        raise ValueError("negative")
    return x + 1


def divides(x, d):
    n = d.sum().item()
    k = 5
    if n > 0:
        k = 10 // n
    return x * k


@pytest.mark.parametrize(
    "fn", [whole_numbers, writes, writes_outside, prints, other_kinds, may_not_be_there, raises, divides], ids=lambda f: f.__name__
)
def test_what_is_not_closed_is_exact(fn):
    x = torch.arange(1, 7)
    calls = [(x.clone(), torch.full((2,), d)) for d in (1, 0, 2, -1, 0, 3, -2, 1, 1, 1, 0)]
    check(fn, *calls, must_compile=False)


def test_what_is_written_outside_happens_once():
    def factory():
        seen, box = [], {"n": 0}

        def fn(x):
            if x.sum() > 0:
                seen.append("hot")
                box["n"] += 1
            else:
                box["cold"] = len(seen)
            y = x * box["n"]
            if y.sum() > 3:
                y = y.sort()[0]
            return y

        return fn, (seen, box)

    check_world(factory, *[(x,) for x in CALLS[:-1]], must_compile=False)


def test_gradients_are_eagers():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

        def forward(self, x):
            h = self.a(x)
            if x.sum() > 0:  # a parameter that is not used has no gradient, which is not one of zeros
                h = self.b(h)
            scale = 2.0 if x.max() > 1 else 3.0
            return (h * scale).sum()

    torch.manual_seed(0)
    model = Model()
    compiled = helpers.compiled(model)
    with torch.enable_grad():
        for x in [HOT, COLD, HOT, HOT, COLD] * 2:
            got = []
            for m in (model, compiled):
                model.zero_grad(set_to_none=True)
                m(x).backward()
                got.append([p.grad for p in model.parameters()])
            for a, b in zip(*got, strict=True):
                assert (a is None) == (b is None) and (a is None or torch.allclose(a, b, atol=1e-6))


def walk(pattern):
    """`blocks` along the sides in this pattern: how often it was captured."""
    compiled = helpers.compiled(blocks)
    for side in pattern:
        x = HOT if side else COLD
        torch.testing.assert_close(compiled(x), blocks(x))
    return pliant.stats()["captures"]


@ours
@pytest.mark.parametrize("side", [True, False])
def test_a_branch_that_never_takes_its_other_side_is_an_exit(side):
    assert walk([side] * (branches.ALWAYS + 5)) == 2
    stats = pliant.stats()
    assert stats["exit_points"] == 1 and stats["side_exits"] == 0 and stats["graph_breaks"] == 0


@ours
def test_and_is_joined_again_if_it_does():
    n = branches.ALWAYS + 5
    assert walk([True] * n + [False] * 300 + [True] * n + [False, True] * 50) <= 4
    stats = pliant.stats()
    assert stats["graph_breaks"] == 0 and 16 <= stats["side_exits"] <= 64


@ours
def test_both_sides_are_captured_once():
    assert walk([True, False] * 100) == 1
    assert pliant.stats()["exit_points"] == 0


def test_recursion():
    def halves(x, depth):
        if depth < 4 and x.abs().max() > 1:
            return halves(x / 2, depth + 1) + 1
        return x

    check(halves, *[(x, 0) for x in CALLS[:-1]], must_compile=False)


def test_other_sizes():
    check(blocks, *[(t(n, 3, seed=n) + s,) for n in range(2, 9) for s in (5, -5)])


def many_ways(x):
    n = 0
    while x.abs().max() > 0.5 and n < 20:
        x = x * 0.9 if x.sum() > 0 else x.sin()
        if x[0] > 0:
            x = x - 0.01
        else:
            x = x.cumsum(0) * 0.5
        if x.mean() > 0.1:
            n += 1
        if x.max() > 1:
            x = x / 2
        elif x.min() < -1:
            x = x.relu() + 0.1
        if x[1] > 0.3:
            n += 1
            x = x * 0.7
        n += 1
    return x, n


def many_ways_in_a_side(x):
    y = x
    if x.sum() > 3:
        for i in range(6):
            if y[i] > 0:
                y = y.cumsum(0) * 0.5
            else:
                y = y.sin()
    return y


@ours
@pytest.mark.parametrize("fn", [many_ways, many_ways_in_a_side], ids=lambda f: f.__name__)
def test_many_ways_become_branches_inside(fn):
    compiled = helpers.compiled(fn)
    for i in range(20):
        x = torch.randn(8, generator=torch.Generator().manual_seed(i)) * 3
        torch.testing.assert_close(compiled(x), fn(x))
    assert pliant.stats()["captures"] == 1 and pliant.stats()["graph_breaks"] == 0


def tells(x, seen):
    if x.sum() < 0:
        print("negative:", x.shape[0], f"of {tuple(x.shape)}", sep="|")
        x = -x
    seen.append(len(seen))
    print("always", len(seen) > 3)
    y = x.square()
    if y.max() > 9:
        print("large:", int(y.max() * 10), f"and {int(y.sum())!r:>8}", end="!\n")
    elif y.max() > 2:
        print(f"middle {int(y.max() * 100)}")
        logging.getLogger("pliant.tests").info("middle %s", "one")
    return y / y.sum()


def tells_what_it_makes(x, seen):
    if x.sum() < 0:
        print([1, 2], {"k": x.shape[0]}, x.shape)
    return x * 2


@pytest.mark.parametrize("fn", [tells, tells_what_it_makes], ids=lambda f: f.__name__)
def test_prints_of_a_side_happen_once_and_in_order(fn, caplog):
    def factory():
        seen = []
        return (lambda x: fn(x, seen)), seen

    calls = [x for x in CALLS[:-1]] * 2
    check_world(factory, *[(x,) for x in calls])
    compiled, mine, told = helpers.compiled(fn), [], []
    with caplog.at_level("INFO", logger="pliant.tests"):
        for run in (fn, compiled):
            caplog.clear()
            with contextlib.redirect_stdout(io.StringIO()) as text:
                for x in calls:
                    run(x, mine)
            told.append((text.getvalue(), [r.getMessage() for r in caplog.records]))
            mine.clear()
    assert told[0] == told[1]
    assert not OURS or fn is not tells or pliant.stats()["graph_breaks"] == 0


class Marked(torch.Tensor):
    """A class of its own: an object is made of it behind the graph."""


def either(x):
    if x.sum() > 3:
        y = x + 1
    elif x.min() < -2 and x.max() < 0:
        y = x - 1
    else:
        y = x * 2
    z = y.relu() if y[0, 0] > 0 else y
    w = z + 1 if y.min() > 3 else z
    return y, z, w, x.relu() if x[0, 1] > 0 else x


@pytest.mark.parametrize("kind", [torch.Tensor, Marked])
@pytest.mark.parametrize("backend", ["aten", "native"])
def test_a_result_that_may_be_another_one_is_the_same_object(kind, backend) -> None:
    x = torch.tensor([[-1.5, 0.25], [-1.25, 0.5], [-1.0, 0.75]])
    fn = compiled(either, backend=backend)
    for values in (x, -x, torch.cat([x, -x])[::2], torch.cat([-x, x])[::2], (x * 4).t().contiguous().t()):
        want, got = ([v, *f(v)] for v, f in ((values.as_subclass(kind), either), (values.as_subclass(kind), fn)))
        assert [a is b for a in got for b in got] == [a is b for a in want for b in want]
        assert [*map(type, got)] == [*map(type, want)] and all(map(torch.equal, want, got))


def turned(x, items):
    """Ways that change a list twice leave it as it was: each is looked at by itself."""
    if x.sum() > 0:
        for i in range(3):
            if items[0].sum() > i:
                break
            items.reverse()
    return x + 1


def test_a_list_that_is_turned_once_or_twice() -> None:
    fn = compiled(turned)
    for first, second in ((0.5, -1.0), (-1.0, -1.0), (-1.0, 1.5), (2.5, 0.0), (-1.0, 0.5), (-1.0, -2.0)):
        mine, theirs = ([torch.full((2,), first), torch.full((3,), second)] for _ in range(2))
        before = list(mine), list(theirs)
        turned(torch.ones(2), mine)
        fn(torch.ones(2), theirs)
        assert [t is before[0][0] for t in mine] == [t is before[1][0] for t in theirs]


def read_on_one_side(x, y):
    z = x * 2 if x.sum() > 0 else y * 3
    y.add_(1)
    return z, y


def test_what_a_side_is_the_first_to_read_stays_the_same_object() -> None:
    for s in (1.0, -1.0):
        x = torch.full((3,), s)
        check(read_on_one_side, (x, torch.ones(3)), must_compile=False)
        check(read_on_one_side, (x, x[:]), must_compile=False)


def fib(k):
    return k if k < 2 else fib(k - 1) + fib(k - 2)


def halves(x, k):
    return x + 1 if k <= 1 else halves(x, k // 2) + halves(x * 2, k - k // 2)


RECURSIONS = {"bounded": lambda x, n: x + fib(n % 6), "number": lambda x, n: x + fib(n), "tensors": halves}


@pytest.mark.parametrize("fn", RECURSIONS.values(), ids=RECURSIONS)
def test_recursions_in_two_directions_on_a_number_that_changes(fn):
    """On the side on which the number is large, each call is two, without end: this took minutes."""
    check_converges(lambda: fn, [(torch.ones(2), n) for n in (3, 4, 5, 2, 7, 11, 6, 3, 5, 2, 7, 11, 6, 4)], 30)


def rated(confusion):
    tn, fp, fn, tp = confusion.reshape(-1)
    if tp + tn != 0 and fp + fn == 0:
        return torch.tensor(1.0)
    if tp + tn == 0 and fp + fn != 0:
        return torch.tensor(-1.0)
    confusion = confusion.float()
    actual, predicted, total = confusion.sum(-1), confusion.sum(-2), confusion.sum()
    above = torch.trace(confusion) * total - (actual * predicted).sum()
    below = (total**2 - (predicted * predicted).sum()) * (total**2 - (actual * actual).sum())
    if below == 0:
        eps = torch.tensor(1e-7)
        if fn == 0 and tn == 0:
            above = torch.sqrt(eps) * (tp - fp)
        elif fp == 0 and tn == 0:
            above = torch.sqrt(eps) * (tp - fn)
        elif tp == 0 and fn == 0:
            above = torch.sqrt(eps) * (tn - fp)
        elif tp == 0 and fp == 0:
            above = torch.sqrt(eps) * (tn - fn)
        elif tp == 0:
            above = tn - fp * fn
        elif fp == 0 or fn == 0:
            above = tp * tn
        else:
            return torch.tensor(0.0)
        below = (tp + fp + eps) * (tp + fn + eps) * (tn + fp + eps) * (tn + fn + eps)
    return above / torch.sqrt(below)


def test_branches_within_branches_are_captured_in_bounded_time(monkeypatch):
    runs, one_way = [], subprograms.one_way
    monkeypatch.setattr(subprograms, "one_way", lambda *args, **kw: runs.append(1) or one_way(*args, **kw))
    compiled = helpers.compiled(rated)
    tables = [torch.tensor(t).reshape(2, 2) for t in ([5, 1, 2, 7], [3, 0, 0, 4], [0, 3, 0, 4], [0, 0, 5, 4], [2, 3, 0, 0], [9, 2, 3, 1])]
    for table in tables * 3:
        torch.testing.assert_close(compiled(table), rated(table))
    assert len(runs) < 40 * subprograms.RUNS


def number_as_a_tensor(x, k):
    a = b = x
    if x.sum() > 1:
        a = torch.as_tensor(k) + x
    if x.sum() * 2 > 1:
        b = torch.as_tensor(k) * x
    return a, b, np.asarray(k) + 1


@pytest.mark.parametrize("k", [np.int64(3), np.float64(2.5), np.bool_(True)], ids=str)
def test_a_number_of_numpy_that_one_side_makes_a_tensor_of(k):
    """What the side has made is not there behind it."""
    for x in (HOT, COLD, HOT * 0.04, COLD * 2):
        check(number_as_a_tensor, (x, k), (x, k + k if k is not np.True_ else np.False_), must_compile=False)


def lowest(buffer, x, scale):
    best = buffer.detach()
    if x.mean() < 0:
        best = x.norm().detach()
    loss = (x * scale).sum()
    buffer.copy_(x.sum())
    return best, loss


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("backend", ["aten", "native"])
def test_a_view_that_a_side_leaves_alone_has_the_version_of_its_base(gradients, backend) -> None:
    c = compiled(lowest, backend=backend)
    for x in [HOT, COLD, HOT * 3, COLD / 7]:
        told = []
        for fn in (lowest, c):
            buffer, scale = torch.tensor(1.0), torch.tensor(2.0, requires_grad=gradients)
            with torch.set_grad_enabled(gradients):
                best, _ = fn(buffer, x, scale)
            told.append((buffer._version, best._version, best.data_ptr() == buffer.data_ptr(), best.item()))
        assert told[0] == pytest.approx(told[1])


def beside_gradients_taken_inside(buffer, x, w):
    best = buffer.detach()
    if x.mean() < 0:
        best = x.norm().detach()
    (g,) = torch.autograd.grad((x * w - buffer).sum(), w)
    buffer.mul_(2)
    return best, g


def beside_what_has_no_gradients(buffer, x, w):
    best = buffer[None]
    if x.mean() < 0:
        best = x.norm()[None].detach()
    with torch.no_grad():
        y = (x * w + x).sum() - buffer * 3
    buffer.mul_(2)
    return best, y


@pytest.mark.parametrize("fn", [beside_gradients_taken_inside, beside_what_has_no_gradients])
@pytest.mark.parametrize("backend", ["aten", "native"])
@torch.enable_grad()
def test_such_a_view_in_a_region_with_gradients_of_which_no_result_has_any(fn, backend) -> None:
    """That ran below autograd, which saw no view made: what is written to it with gradients later was lost to its base."""
    c = compiled(fn, backend=backend)
    for x in [HOT, COLD, HOT * 3, COLD / 7]:
        told = []
        for f in (fn, c):
            buffer, w = torch.tensor(1.0), torch.tensor(2.0, requires_grad=True)
            best, y = f(buffer, x, w)
            versions = buffer._version, best._version
            best.mul_(w)
            told.append((*versions, buffer.requires_grad, best.requires_grad, y.requires_grad, buffer.item(), best.item(), buffer._version))
        assert told[0] == pytest.approx(told[1])


def in_full_precision(buffer, x, w):
    best = buffer.detach()
    if x.mean() < 0:
        best = x.norm().detach()
    with torch.autocast("cpu", enabled=False):
        y = x @ w
    return best, y, x @ w


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("backend", ["aten", "native"])
def test_operations_beside_such_a_view_are_cast_as_they_were_captured(gradients, backend) -> None:
    c, w = compiled(in_full_precision, backend=backend), torch.full((4, 2), 0.3, requires_grad=gradients)
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.set_grad_enabled(gradients):
        for x in (HOT, COLD, HOT * 3):
            want, got = (fn(torch.tensor(1.0), x, w) for fn in (in_full_precision, c))
            assert [v.dtype for v in got] == [v.dtype for v in want] == [torch.float32, torch.float32, torch.bfloat16]
            torch.testing.assert_close(got, want)


def one_number_or_another(x, a):
    v, w = (x.tolist()[0] and a), (x.tolist()[-1] or a)
    pliant.graph_break()
    return v is a, w is a


def one_of_a_side_with_more_to_do(x, a):
    if x.sum() > 1:
        x, v = x.cumsum(0), a
    else:
        x, v = x.sort()[0], 2.5
    pliant.graph_break()
    return v is a


def one_of_a_round(x, a):
    v = 0.5
    while x.sum() < 9:
        x, v = x + 1, a
    pliant.graph_break()
    return v is a


@pytest.mark.parametrize("fn", [one_number_or_another, one_of_a_side_with_more_to_do, one_of_a_round])
def test_a_float_that_may_be_one_from_outside_is_that_object(fn) -> None:
    c = compiled(fn)
    for i, values in enumerate(([4.0, 0.0], [1.0, 0.0], [0.0, 3.0], [0.0, 0.0], [9.0, 5.0])):
        told = []
        for f in (fn, c):
            told.append(f(torch.tensor(values), float(f"{i}.25")))
        assert told[0] == told[1]
