"""Views of leaves that the program makes, among the results: what comes from such a view has gradients to it, as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.helpers import compiled, pliant


def leaf(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone().requires_grad_()


def energy(y: torch.Tensor) -> torch.Tensor:
    return y.exp().sum() ** 2


def view(x):
    made = leaf(x)
    y = made.view_as(made)
    return y, energy(y), made


def view_of_a_view(x):
    made = leaf(x)
    y = made.view_as(made)
    z = y[1:]
    return y, z, energy(z), made


def parameter(x):
    made = torch.nn.Parameter(x * 2)
    y = made[1:]
    return y, energy(y), made


def parts(x):
    made = leaf(x)
    first, second = made.split(2)[:2]
    return first, second, (first.sum() * second.exp().sum()) ** 2, made


def rows(x):
    made = leaf(x)
    ys = made.view(-1, 1)[:2].unbind(0)
    return *ys, sum((k + 1) * y.exp() for k, y in enumerate(ys)) ** 2, made


def two(x):
    first, second = leaf(x), leaf(x * 2)
    y, z = first.view_as(first), second[:]
    return y, z, (y * z).sum() ** 2, first, second


def hidden(x):
    made = leaf(x)
    y = made.view_as(made)
    return y, energy(y)


def expanded(x):
    made = leaf(x)
    y = made.expand(3, -1)
    return y, energy(y), made


def written(x):
    made = leaf(x)
    y = made.view_as(made)
    with torch.no_grad():
        y.mul_(2)
    return y, energy(y), made


def with_its_gradient(x):
    made = leaf(x)
    y = made.view_as(made)
    out = energy(y)
    (g,) = torch.autograd.grad(out, (y,), create_graph=True)
    return y, g, out, made


def one_in_the_other(x):
    made = leaf(x)
    y = made.view_as(made)
    out = energy(y)
    other = leaf(x * 3)
    z = other[:]
    return y, z, out, (z * y).sum() * out, made, other


def gradients(results: Any) -> list[Any]:
    """Of each result by each other."""
    found: list[Any] = []
    for o in results:
        for v in results:
            if o is not v and o.requires_grad and v.requires_grad:
                found.append(torch.autograd.grad(o.sum(), v, retain_graph=True, allow_unused=True)[0])
    return found


@pytest.mark.parametrize(
    "program",
    [view, view_of_a_view, parameter, parts, rows, two, hidden, expanded, written, with_its_gradient, one_in_the_other],
    ids=lambda f: f.__name__,
)
def test_gradients_by_a_view_of_a_leaf(program) -> None:
    fn = compiled(program)
    for n in (4, 5, 6):
        x = torch.randn(n) * 0.3
        got, want = fn(x), program(x)
        for a, b in zip(gradients(got), gradients(want), strict=True):
            assert (a is None) is (b is None)
            if b is not None:
                torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
        assert [(t.is_leaf, t._is_view(), type(t)) for t in got] == [(t.is_leaf, t._is_view(), type(t)) for t in want]


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.expand_as(x).requires_grad_(True),
        lambda x: x.expand(3, x.shape[-1]).contiguous().requires_grad_(x.requires_grad),
        lambda x: x.view(-1).requires_grad_(),
        lambda x: x[1:].requires_grad_(),
        lambda x: (x * 2).requires_grad_(),
        lambda x: x.requires_grad_(),
    ],
)
def test_a_view_made_without_gradients_becomes_a_leaf(program, inside) -> None:
    """It requires gradients before, by what it is a view of, but autograd keeps none for it."""

    def within(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return program(x)

    found = []
    for fn in (within if inside else program, compiled(within if inside else program)):
        for rows in (3, 1, 3):
            for made in (lambda n: torch.ones(n, 4, requires_grad=True), lambda n: torch.ones(n, 4, requires_grad=True) * 2):
                x = made(rows)
                with torch.set_grad_enabled(inside):
                    y = fn(x[:] if inside else x)
                z = (y * 3).sum()
                (g,) = torch.autograd.grad(z, y, allow_unused=True)
                found.append((y.is_leaf, y.requires_grad, y._is_view(), y is x, None if g is None else g.tolist()))
    assert found[: len(found) // 2] == found[len(found) // 2 :]


def test_a_view_from_outside_that_borrows_the_flag_behind_a_leaf_that_has_it() -> None:
    """One entry does not serve both: which of them it is, is guarded."""

    def fn(y: torch.Tensor) -> torch.Tensor:
        y.requires_grad_()
        return y * 2

    def borrowing() -> torch.Tensor:
        x = torch.ones(3, requires_grad=True)
        with torch.no_grad():
            return x[:]

    run = compiled(fn)
    for make in (lambda: torch.ones(3, requires_grad=True), borrowing, lambda: torch.ones(3)[:].requires_grad_(), borrowing):
        y = make()
        run(y).sum().backward()
        assert y.grad is not None and y.grad.tolist() == [2, 2, 2]


def test_hessians_of_changing_sizes() -> None:
    functional = torch.autograd.functional
    programs = (
        lambda x: functional.hessian(energy, x),
        lambda x: functional.jacobian(lambda v: v.exp() * v.sum(), x),
        lambda x: functional.jacobian(lambda v: v.exp() * v.sum(), x, create_graph=True).sum(),
        lambda x: functional.hvp(energy, x, x + 1),
        lambda x: functional.vhp(energy, x, x + 1),
    )
    for program in programs:
        fn = compiled(program)
        for n in (2, 3, 4, 5, 2):
            x = torch.randn(n)
            torch.testing.assert_close(fn(x), program(x), rtol=1e-4, atol=1e-4)


def complex_leaf(n: int) -> torch.Tensor:
    return torch.randn(n, 2, dtype=torch.complex64, generator=torch.Generator().manual_seed(n)).requires_grad_()


class Halves(torch.optim.Optimizer):
    """Complex parameters are stepped as pairs of numbers."""

    def __init__(self, params: Any, broken: bool) -> None:
        super().__init__(params, {})
        self.broken = broken

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        with torch.enable_grad():
            loss = closure()
        for p in self.param_groups[0]["params"]:
            pairs, by = torch.view_as_real(p), torch.view_as_real(p.grad)
            pairs.add_(by, alpha=-0.1)
            if self.broken:
                pliant.graph_break()
            pairs.add_(by.sqrt().nan_to_num(), alpha=-0.1)
        return loss


@pytest.mark.parametrize("broken", [False, True])
def test_optimizers_that_write_through_views_without_gradients(broken: bool) -> None:
    sides = []
    for way in (lambda f: f, compiled):
        params = [complex_leaf(n) for n in (3, 4)]
        optimizer = Halves(params, broken)
        step = way(optimizer.step)

        def closure() -> torch.Tensor:
            for p in params:
                p.grad = None
            loss = sum(torch.view_as_real(p * p.conj()).sum() for p in params)
            loss.backward()
            return loss

        sides.append([step(closure).item() for _ in range(4)])
    assert sides[0] == pytest.approx(sides[1], rel=1e-5)


def test_views_without_gradients_of_what_was_written_since() -> None:
    """Autograd does not say what history they have."""

    def outcome(fn: Any, v: torch.Tensor) -> Any:
        try:
            r = fn(v)
            return r.grad_fn is None, r.tolist()
        except RuntimeError as e:
            return str(e)[:60]

    def doubled(v: torch.Tensor) -> torch.Tensor:
        return v * 2

    @torch.no_grad()
    def written(v: torch.Tensor) -> torch.Tensor:
        v.add_(1)
        return v * 2

    for program in (doubled, written):
        run = compiled(program)
        for kind in ("leaf", "moving", "view", "written", "leaf", "written", "moving"):
            sides = []
            for fn in (program, run):
                v = complex_leaf(3)
                with torch.no_grad():
                    view = torch.view_as_real(v)
                    if kind == "written":
                        view.mul_(2)
                v = view if kind in ("view", "written") else v * 1 if kind == "moving" else v
                sides.append(outcome(fn, v))
            assert sides[0] == sides[1], (program, kind)


def in_one(x, y):
    t = x.detach() * 1
    a, b = t[:1], t[1:]
    a.add_(y[:1])
    b.mul_(0.5)
    return t, b


def before_a_break(x, y):
    t = x.detach() * 1
    a, b = t[:1], t[1:]
    a.add_(y[:1])
    pliant.graph_break()
    b.mul_(0.5)
    return t, b


def behind_a_break(x, y):
    t = x.detach() * 1
    a, b = t[:1], t[1:]
    pliant.graph_break()
    a.add_(y[:1])
    b.mul_(0.5)
    return t, b


def returned(x, y):
    t = torch.zeros(3, 2)
    b = t[1:]
    t[0] = y[0]
    return t, b


def given(x, y):
    a, b = x[:1], x[1:]
    a.add_(y[:1])
    return x, b


def read(x, y):
    t = x.detach() * 1
    a, b = t[:1], t[1:]
    a.add_(y[:1])
    pliant.graph_break()
    c = b * 2
    b.mul_(0.5)
    return c, b


@pytest.mark.parametrize("program", [in_one, before_a_break, behind_a_break, returned, given, read], ids=lambda f: f.__name__)
def test_a_view_that_nobody_read_since_gradients_came(program) -> None:
    """PyTorch refuses writes to it: it makes the history of such a view when it is asked for, and a write does not ask."""
    told = []
    for fn in (program, compiled(program)):
        for n in (3, 4):
            x, y = torch.ones(n, 2), torch.ones(n, 2, requires_grad=True)
            try:
                _, b = fn(x, y)
                b.mul_(2)
                b.sum().backward()
                told.append(y.grad.tolist())
            except RuntimeError as e:
                told.append(str(e))
    assert told[:2] == told[2:]
    assert all("a leaf Variable" in t for t in told) != (program is read)


def test_views_that_are_made_without_gradients() -> None:
    """PyTorch notes of a view that it was made so, and refuses writes with gradients to it."""

    def one(x):
        with torch.no_grad():
            return (x * 1).view(-1)

    def beside_others(x):
        with torch.no_grad():
            first, whole = x[0], (x * 1).view(-1)
        return first, whole, x * 2, (x * 2).view(-1)

    def parts(x):
        with torch.no_grad():
            return (x * 1).split(1)

    def told(out: Any) -> list[Any]:
        meta = torch._C._autograd._get_creation_meta
        return [int(meta(t)) if t._is_view() else None for t in (out if isinstance(out, tuple) else (out,))]

    for program in (one, beside_others, parts):
        run = compiled(program)
        for n in (2, 3):
            for needs in (False, True):
                x = torch.ones(n, 3, requires_grad=needs)
                assert told(run(x)) == told(program(x))
    with pytest.raises(RuntimeError, match="created in no_grad mode"):
        compiled(one)(torch.ones(2, 3)).copy_(torch.ones(6, requires_grad=True))
