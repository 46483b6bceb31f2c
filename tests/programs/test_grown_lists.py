"""Loops on data that append to lists, and that go over ranges whose length is data: one graph, whatever the number of rounds."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import pliant
from pliant.codegen import autograd_region
from tests.helpers import check, compiled

X = [(torch.linspace(0.2, 1.5, n),) for n in (5, 8, 3, 9)]


def stacked(x: Any) -> Any:
    kept = []
    while x.sum() > 0.5:
        kept.append(x[0])
        x = x * 0.5
    return torch.stack(kept), len(kept)


def returned(x: Any) -> Any:
    states = [x]
    while x.sum() > 0.5:
        x = x * 0.5
        states.append(x)
    return states, x, states[-1] is x, states[0]


def of_numbers(x: Any) -> Any:
    losses = []
    while True:
        losses.append(x.square().sum().item())
        if losses[-1] < 0.5:
            break
        x = x * 0.7
    return losses, torch.tensor(losses), len(losses)


def last_is_read(x: Any) -> Any:
    tokens = [int(x.argmax())]
    while len(tokens) < 9:
        token = (tokens[-1] * 3 + 1) % x.shape[0]
        x = x.roll(1) + x[token]
        tokens.append(int(x.argmin()))
        if tokens[-1] == tokens[-2]:
            break
    return tokens, x


def of_pairs(x: Any) -> Any:
    found = []
    n = 0
    while x.sum() > 0.5:
        x = x * 0.6
        n += 1
        if x.max() < 1:
            found.append((n, x))
    if not found:
        return x
    return found, len(found)


def grows_on(x: Any) -> Any:
    kept = []
    while x.sum() > 0.5:
        kept.append(x)
        x = x * 0.5
    kept.append(x + 1)
    more = [*kept, x]
    kept += [x - 1]
    return kept, more, torch.cat(kept), kept[-1]


def nested(x: Any) -> Any:
    kept, counts = [], []
    while x.sum() > 0.5:
        n = 0
        y = x
        while y.max() > 0.3:
            y = y * 0.7
            kept.append(y.sum())
            n += 1
        counts.append(n)
        x = x * 0.5
    return torch.stack(kept), counts


def two_names(x: Any) -> Any:
    kept: list[Any] = []
    other = kept
    while x.sum() > 0.5:
        kept.append(x)
        x = x * 0.5
    return other, other is kept


def written_later(x: Any) -> Any:
    kept = [x]
    while x.sum() > 0.5:
        x = x * 0.5
        kept.append(x)
    x += 1
    return kept


def shrinks(x: Any) -> Any:
    kept = [x]
    while x.sum() > 0.5:
        x = x * 0.5
        kept.append(x)
        if len(kept) > 3:
            kept.pop(0)
    return kept


WHOLE = (stacked, returned, of_numbers, last_is_read, of_pairs, grows_on, nested)


@pytest.mark.parametrize("fn", [*WHOLE, two_names, written_later, shrinks])
def test_a_list_that_grows(fn: Any) -> None:
    check(fn, *X)


@pytest.mark.parametrize("fn", WHOLE)
def test_one_graph(fn: Any) -> None:
    compiled = pliant.compile(fn, backend="aten")
    with torch.no_grad():
        compiled(*X[0])
    breaks = fn in (returned, of_pairs)  # behind the loop: at the identity of an item, at a branch on the length
    assert pliant.stats()["captures"] == 1 + breaks
    assert pliant.stats()["graph_breaks"] == breaks


def test_an_empty_list_raises_as_eager_does() -> None:
    check(stacked, *X, (torch.zeros(3),))


def over_range(x: Any, n: Any) -> Any:
    for i in range(int(n)):
        x = torch.sin(x) + i
    return x


def backwards(x: Any, n: Any) -> Any:
    for i in range(n.item(), -2, -1):
        for j in range(i):
            x = x + j * 0.1
            if x.sum() > 20:
                break
    return x


def counts(x: Any, n: Any) -> Any:
    k = n.item()
    i = -1
    for i in range(2, k, 3):
        if x.sum() > 30:
            break
        x = x + i
    else:
        x = x * 2
    return x, i


def printed(x: Any, n: Any) -> Any:
    for i in range(n.item()):
        print(i)
        x = x + 1
    return x


def read(x: Any, n: Any) -> Any:
    r = range(n.item())
    return x * len(r), list(r), r, 2 in r


def gathered(x: Any, n: Any) -> Any:
    return [x * i for i in range(n.item())]


def maybe_unbound(x: Any, n: Any) -> Any:
    for i in range(n.item()):
        x = x + i
    return x, i


@pytest.mark.parametrize("fn", [over_range, backwards, counts, printed, read, gathered, maybe_unbound])
def test_a_range_over_data(fn: Any) -> None:
    check(fn, *[(torch.linspace(0, 1, m), torch.tensor(n)) for m, n in ((3, 4), (5, 0), (2, 1), (4, 9), (3, -2))])


@pytest.mark.parametrize("fn", [over_range, backwards, counts])
def test_a_range_over_data_is_one_graph(fn: Any) -> None:
    check(fn, *[(torch.linspace(0, 1, m), torch.tensor(n)) for m, n in ((3, 4), (5, 0), (4, 9))], captures=1, breaks=0)


def set_in_the_first_round(x: Any, n: Any) -> Any:
    for i in range(6):
        y = x * i
        total = y.sum().item()
        if total > 8 + n:
            break
        x = x + 0.5
    return x, y, total


def set_behind_a_branch(x: Any, n: Any) -> Any:
    for i in range(5):
        if x.sum() > n:
            y = x * i
        x = x + 0.5
    return x, y


def set_too_late(x: Any, n: Any) -> Any:
    for _ in range(5):
        if x.sum() > n:
            break
        y = x * 2
        x = x + 0.5
    return x, y


def read_before_it_is_set(x: Any, n: Any) -> Any:
    for i in range(5):
        if i > 0 and x.sum() > n:
            x = x + y  # noqa: F821
        y = x[: 1 + i]  # noqa: F841
        x = x + 0.5
    return x


def grows_in_the_first_round(x: Any, n: Any) -> Any:
    for i in range(4):
        z = torch.cat([x, x[:1]]) if i else x
        if z.sum() > 3 + n:
            break
        x = torch.cat([x, x[:1]])
    return z, x


@pytest.mark.parametrize(
    "fn", [set_in_the_first_round, set_behind_a_branch, set_too_late, read_before_it_is_set, grows_in_the_first_round]
)
def test_a_local_that_the_first_round_sets(fn: Any) -> None:
    check(fn, *[(torch.linspace(0, 1, m), torch.tensor(n)) for m, n in ((3, 4), (5, 0), (2, 1), (4, 9), (3, -2))])


def over_rows(x: Any) -> Any:
    total = torch.zeros(x.shape[1])
    for i in torch.nonzero(x[:, 0] > 0.4).flatten():
        total = total + x[i] * 2
    return total


def over_chosen(x: Any) -> Any:
    kept = []
    for row in x[x[:, 0] > 0.4]:
        kept.append(row + 1)
        if row.sum() > 3:
            break
    return kept


def rows_are_views(x: Any) -> Any:
    y = x[x[:, 0] > 0.4]
    for row in y:
        row += 1
    return y


def rows_in_a_list(x: Any) -> Any:
    return [row * 2 for row in x[x[:, 0] > 0.4]]


@pytest.mark.parametrize("fn", [over_rows, over_chosen, rows_are_views, rows_in_a_list])
def test_the_rows_of_a_selection(fn: Any) -> None:
    check(fn, *[(torch.rand(n, 3, generator=torch.Generator().manual_seed(n)),) for n in (6, 1, 0, 9, 3)])


def until_equal(x: Any) -> Any:
    before = torch.full_like(x, -1)
    n = 0
    while not torch.equal(before, x):
        before, x = x, (x * 0.5 * 64).round() / 64
        n += 1
    return x, n


def until_close(x: Any) -> Any:
    y = x * 0.5
    while True:
        if torch.allclose(x, y, atol=1e-3) or x.allclose(y, rtol=1e-2):
            break
        x, y = y, y * 0.7 + 0.1
    return x, y


@pytest.mark.parametrize("fn", [until_equal, until_close])
def test_loops_until_tensors_are_equal(fn: Any) -> None:
    check(fn, *X, captures=1, breaks=0)


def both(a: Any, b: Any) -> Any:
    return torch.equal(a, b), a.equal(a), a + torch.equal(b, a)


def of_two_dtypes(a: Any, b: Any) -> Any:
    try:
        return torch.allclose(a, b.double(), atol=1e-6)
    except RuntimeError as e:
        return str(e)


@pytest.mark.parametrize("fn", [both, of_two_dtypes])
def test_equal_tensors(fn: Any) -> None:
    check(fn, *[(torch.ones(3), b) for b in (torch.ones(3), torch.zeros(3), torch.full((3,), torch.nan))])


def in_place(x: Any) -> Any:
    y = x.clone()
    while y.abs().max() > 0.1:
        y *= 0.7
        y[0] = 0.0
    return y


def rows_of_a_buffer(x: Any) -> Any:
    buffer = torch.zeros(8, x.shape[0])
    n = 0
    while x.sum() > 0.3 and n < 8:
        buffer[n] = x
        x = x * 0.7
        n += 1
    return buffer[:n], n


def in_a_counted_loop(x: Any) -> Any:
    y = x.clone()
    for i in range(int(x.shape[0] + x.sum().abs())):
        y[0] += i
        if y.sum() > 9:
            break
    return y


def by_two_names(x: Any) -> Any:
    y = x.clone()
    z = y
    while y.abs().max() > 0.1:
        y *= 0.7
    return y, z


def kept_and_written(x: Any) -> Any:
    y = x.clone()
    kept = []
    while y.abs().max() > 0.1:
        y *= 0.7
        kept.append(y)
    return y, kept


def kept_once(x: Any) -> Any:
    y, z = x.clone(), x
    while y.abs().max() > 0.1:
        y *= 0.7
        if y.sum() > 1:
            z = y
    return y, z


def by_a_view(x: Any) -> Any:
    y = x.clone()
    v = y[1:]
    while y.abs().max() > 0.1:
        y *= 0.7
    return y, v


def of_the_caller(x: Any) -> Any:
    while x.abs().max() > 0.1:
        x *= 0.7
    return x


WRITING = (in_place, rows_of_a_buffer, in_a_counted_loop, by_two_names, kept_and_written, kept_once, by_a_view, of_the_caller)


@pytest.mark.parametrize("fn", WRITING)
def test_a_round_that_writes(fn: Any) -> None:
    whole = fn in (in_place, rows_of_a_buffer, in_a_counted_loop)
    check(fn, *[(x.clone(),) for (x,) in X], **({"captures": 1, "breaks": 0} if whole else {}))


def one_object(x: Any) -> Any:
    y = x
    n = 0
    while x.sum() > 0.5:
        n += x is y
        x = x * 0.6
        y = x
    return x, n


def cluster(x: Any) -> Any:
    centers, previous = x[:2], torch.zeros(2)
    while not torch.allclose(centers, previous, atol=1e-2):
        nearest = (x[:, None] - centers).abs().argmin(1)
        previous = centers
        centers = torch.stack([(x * (nearest == k)).mean() + centers[k] * 0.1 for k in range(2)])
    return centers


def closed_over(x: Any) -> Any:
    n = 0

    def seen() -> int:
        return n

    while x.sum() > 0.5:
        n += 1
        x = x * 0.6 + seen() * 0.001
    return x, seen(), n


def caught(x: Any) -> Any:
    n = 0
    for i in range(6):
        try:
            n = n + w
        except NameError:
            n = n + 100
        w = i
        x = x * 0.6
        if x.sum() < 1:
            break
    return x, n, w


def caught_inside(x: Any) -> Any:
    n = 0
    while True:

        def get() -> int:
            try:
                return w
            except NameError:
                return 100

        n = n + get()
        w = 1
        x = sum([x * 0.5 + w * 0 for _ in range(1)])
        if x.sum() < 0.5:
            break
    return x, n


def set_a_round_before(x: Any) -> Any:
    while True:
        if x.sum() < 0.5:
            break
        w = x * 0.5
        x = sum([w for _ in range(1)])
    return x, w


@pytest.mark.parametrize("fn", [one_object, cluster, closed_over, caught, caught_inside, set_a_round_before])
def test_identity_closures_and_names_that_are_not_there(fn: Any) -> None:
    check(fn, *X)


def test_variables_of_inner_functions_are_carried() -> None:
    check(cluster, *X, captures=1, breaks=0)


def its_own_before(x: Any) -> Any:
    k = 3.0
    while x.sum() > 0.5:
        x = sum([x * 0.4 + k * 0 for k in range(2)]) * 0.5 + k * 0
    return x * k


def its_own_behind(x: Any) -> Any:
    while x.sum() > 0.5:
        x = sum([x * 0.2 for k in range(2)])
    return [x * k for k in range(3)]


def its_own_in_rounds(x: Any) -> Any:
    for i in range(3):
        if x.sum() > 100:
            break
        k = x * i
        x = x + sum([x * 0.2 for k in range(2)]) + k
    return x, k


def filled_on_the_way(x: Any) -> Any:
    while x.sum() > 0.5:
        x = sum([x * 0.2 for k in range(2)])
        k = x.sum()
    return x * k


def emptied_by_none(x: Any) -> Any:
    n = 0
    while x.sum() > 0.5:
        x = sum([x * 0.2 for k in range(2)])
        n = n + 1
    try:
        return x, k, n  # noqa: F821
    except NameError:
        return x, n


@pytest.mark.parametrize("fn", [its_own_before, its_own_behind, its_own_in_rounds, filled_on_the_way, emptied_by_none])
def test_variables_of_comprehensions_are_their_own(fn: Any) -> None:
    check(fn, *X)


@pytest.mark.parametrize("fn", [its_own_before, its_own_behind])
def test_loops_with_comprehensions_are_in_the_graph(fn: Any) -> None:
    check(fn, *X, captures=1, breaks=0)


def a_view_of_what_it_was_given(x: Any) -> Any:
    y = x * 2
    k = 0
    while k < 7 and x.sum() < 100:
        k += 1
        y = x.detach() if k % 2 else x[1:]
        if k > 2:
            break
    y[0] = 3.0
    return y + 1, x._version


def test_a_view_that_a_loop_gives_back_is_known_to_autograd() -> None:
    check(a_view_of_what_it_was_given, *[(x.clone(),) for (x,) in X])


def beside_gradients(mean: Any, scale: Any, x: Any) -> Any:
    with torch.no_grad():
        mean.lerp_(x.mean(), 0.1)
    y = (x - mean) * scale
    parts = []
    for _ in range(len(y[x > 0.6]) % 5):
        parts.append(torch.arange(x.shape[0]))
    return y, torch.cat(parts) if parts else mean.clone()


def with_statistics(fn: Any, x: torch.Tensor) -> list:
    mean, scale = torch.tensor(0.5), torch.tensor(2.0, requires_grad=True)
    y, parts = fn(mean, scale, x)
    y.sum().backward()
    return [*y.tolist(), *parts.reshape(-1).tolist(), mean.item(), mean._version, scale.grad.item()]


@pytest.mark.parametrize("backend", ["aten", "native"])
def test_a_list_that_grows_beside_gradients_and_a_write(backend: str) -> None:
    c = compiled(beside_gradients, backend=backend)
    for (x,) in X:
        assert with_statistics(c, x) == pytest.approx(with_statistics(beside_gradients, x))


def test_what_pytorch_raises_behind_a_node_that_has_written_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(autograd_region, "is_list", lambda t: False)  # PyTorch refuses the list, and the node's forward part has run
    mean, scale = torch.tensor(0.5), torch.tensor(2.0, requires_grad=True)
    with pytest.raises(RuntimeError, match="mark_non_differentiable"):
        compiled(beside_gradients, backend="aten")(mean, scale, X[0][0])
    assert mean._version == 1  # it is not done twice
