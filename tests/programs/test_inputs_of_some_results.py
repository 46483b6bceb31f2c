"""Inputs that only some results of a region come from: gradients of the others do not reach them, not even as None.

The engine calls all nodes below one that it has called. So hooks of such inputs would be called with None, and their history be freed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import pliant
from tests.helpers import check

gradients = torch.autograd.grad


def two(x, y, z):
    return x.sin() * 2, x * y


def three(x, y, z):
    return (x * y).exp(), y.cos() * z, z * z * x


def nested(x, y, z):
    a = x.exp()
    b = a * y
    return a.sin(), b.cos(), b * z


def pairs(x, y, z):
    t = (x * x).tanh()
    return t * y, t + y, t * z, t.sum()


def chain(x, y, z):
    return x * y.sin(), y.sin() * z.sin(), z.exp()


def in_sections(x, y, z):
    a = x.exp()
    return a, a.sin() * y, a.cos() * z, a * 2


def views(x, y, z):
    a = (x * y).t()
    return a[0], (x * z)[:, 1:], a.sum(0)


def by_data(x, y, z):
    n = int((x.detach() > 0.5).sum())
    return x.flatten()[:n] * 2, (x * y).flatten()[:n], z * n


class Noted(torch.autograd.Function):
    """A node outside that is called, or not."""

    called: list[str] = []

    @staticmethod
    def forward(ctx, x, name):
        ctx.name = name
        return x * 3

    @staticmethod
    def backward(ctx, g):
        Noted.called.append(ctx.name)
        return g * 3, None


def kinds(seen: list, clone: Callable = torch.clone) -> dict[str, Callable[[torch.Tensor, str], torch.Tensor]]:
    def hooked(t: torch.Tensor, name: str) -> torch.Tensor:
        t.register_hook(lambda g: seen.append((name, clone(g))))
        return t

    return {
        "leaves": lambda t, name: t,
        "leaves with hooks": hooked,
        "results": lambda t, name: t * t,
        "results with hooks": lambda t, name: hooked(t * t, name),
        "of functions": lambda t, name: Noted.apply(t, name),
    }


def one_of(out, given, leaves):
    """Each result alone, until something has been freed (what gradients reach before that is noticed is the engine's affair)."""
    found: list[Any] = []
    for t in out:
        try:
            t.sum().backward()
        except RuntimeError as e:
            return [*found, str(e)[:40]]
        found.append([x.grad.clone() if x.grad is not None else None for x in leaves])
    return found


def first_and_given(out, given, leaves):
    """One result, then what the inputs have been made of."""
    out[0].sum().backward()
    found: list[Any] = []
    for t in given:
        try:
            t.sum().backward()
        except RuntimeError as e:
            found.append(str(e)[:40])
    return [*found, *(x.grad for x in leaves)]


def some(out, given, leaves):
    found = []
    for mask in range(1, 1 << len(out)):
        total = sum(((t * t).sum() for i, t in enumerate(out) if mask >> i & 1), torch.zeros(()))
        total.backward(retain_graph=True)
        found += [x.grad.clone() if x.grad is not None else None for x in leaves]
    return found


def twice(out, given, leaves):
    first = gradients((out[-1] * out[-1]).sum(), leaves, create_graph=True, allow_unused=True)
    return [*first, *gradients(sum((g * g).sum() for g in first if g is not None), leaves, allow_unused=True)]


def batched(out, given, leaves):
    rows = torch.eye(out[1].numel()).view(-1, *out[1].shape)
    return list(gradients(out[1], leaves, rows, is_grads_batched=True, allow_unused=True, retain_graph=True))


ASKED = {"one": one_of, "first": first_and_given, "some": some, "twice": twice, "batched": batched}
PROGRAMS = [two, three, nested, pairs, chain, in_sections, views, by_data]


def answers(fn: Callable, kind: str, asked: Callable, values: list[torch.Tensor]) -> list[Any]:
    seen: list[Any] = []
    Noted.called.clear()
    make = kinds(seen, (lambda g: None) if asked is batched else torch.clone)[kind]  # what is batched may not be kept
    leaves = [v.clone().requires_grad_() for v in values]
    given = [make(t, name) for t, name in zip(leaves, "xyz", strict=True)]
    out = fn(*given)
    found = asked([t for t in out if t.requires_grad], given, leaves)
    raised = isinstance(found[-1], str)
    told = [] if raised else sorted(seen, key=lambda s: s[0])
    return [[t.detach() for t in out], found, [n for n, _ in told], [g for _, g in told], [] if raised else sorted(Noted.called)]


def same(a: Any, b: Any) -> None:
    assert type(a) is type(b)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            same(x, y)
    elif isinstance(a, torch.Tensor):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    else:
        assert a == b


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("asked", ASKED)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_gradients_of_some_results(program, asked, backend):
    """The kind of input changes from call to call: what a region of leaves has become, one of results need not be."""
    compiled = pliant.compile(program, backend=backend, background=False)
    for n, kind in enumerate([*kinds([]), *kinds([])]):
        values = [torch.rand(3 + n % 3, 4) for _ in range(3)]
        same(*[answers(f, kind, ASKED[asked], values) for f in (program, compiled)])


class ActorAndCritic(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.actor, self.critic = torch.nn.Linear(4, 8), torch.nn.Linear(8, 3), torch.nn.Linear(8, 1)

    def forward(self, x):
        h = F.relu(self.body(x))
        return self.actor(h), self.critic(h)


def trained(compiled: bool) -> list[Any]:
    torch.manual_seed(0)
    net = ActorAndCritic()
    step = pliant.compile(net, background=False) if compiled else net
    found: list[Any] = []
    for k in range(6):
        if k == 2:  # the usual way to clip gradients: it cannot take None
            for p in net.parameters():
                p.register_hook(lambda g: g.clamp(-0.5, 0.5))
        scores, value = step(torch.rand(k + 2, 4))
        loss = [scores.log_softmax(-1)[:, 0].sum(), value.pow(2).sum(), scores.sum() + value.sum()][k % 3]
        net.zero_grad()
        loss.backward()
        found.append([p.grad for p in net.parameters()])
    return found


def test_clipped_gradients_of_one_head():
    same(trained(False), trained(True))


def test_one_node_where_nothing_hangs_below():
    """Leaves without hooks: one backward program for all results."""
    compiled = pliant.compile(nested, background=False)
    x, y, z = (torch.rand(3, 4, requires_grad=True) for _ in range(3))

    def nodes(out: Any) -> set[Any]:
        """(All results but the first of a node have one on top of it.)"""
        return {n.next_functions[0][0] if (n := t.grad_fn).name() == "LiftBackward0" else n for t in out}

    assert len(nodes(compiled(x, y, z))) == 1
    assert len(nodes(compiled(x, y * 2, z))) == 3


def two_losses(policy, critic, temperature, x):
    actions = policy(x).tanh()
    value = critic(actions)
    return (temperature.exp().detach() * actions.sum(1) - value[:, 0]).mean(), (temperature * actions.detach().sum(1)).mean()


@pytest.mark.parametrize("backend", ["aten", "native"])
def test_a_step_between_two_losses(backend):
    """The parameters of the first are written before the second goes backward, which has not saved them."""
    found = []
    for compiled in (False, True):
        torch.manual_seed(0)
        policy, critic, temperature = torch.nn.Linear(4, 3), torch.nn.Linear(3, 1), torch.zeros(1, requires_grad=True)
        losses = pliant.compile(two_losses, backend=backend, background=False) if compiled else two_losses
        optimizer = torch.optim.SGD(policy.parameters(), 0.1)
        for n in (3, 5, 4):
            first, second = losses(policy, critic, temperature, torch.rand(n, 4))
            first.backward()
            optimizer.step()
            optimizer.zero_grad()
            second.backward()
        found.append([temperature.grad, *(p.detach() for p in policy.parameters())])
    same(*found)


def test_a_written_parameter_that_a_loss_has_saved_is_refused():
    policy, critic, temperature = torch.nn.Linear(4, 3), torch.nn.Linear(3, 1), torch.zeros(1, requires_grad=True)
    losses = pliant.compile(two_losses, background=False)
    first, second = losses(policy, critic, temperature, torch.rand(3, 4))
    with torch.no_grad():
        critic.weight.add_(1)
    second.backward()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        first.backward()


class Unread(torch.autograd.Function):
    """Its forward part reads the first argument alone; all of them get gradients."""

    @staticmethod
    def forward(ctx, x, *others):
        ctx.n = len(others)
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return (g, *[g * (i + 3) for i in range(ctx.n)])


class Shaped(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, other):
        ctx.of = other.shape
        return x + 1

    @staticmethod
    def backward(ctx, g):
        return g, g.new_ones(ctx.of)


UNREAD = [
    lambda x, y: Unread.apply(x, y),
    lambda x, y: Unread.apply(x.detach(), y, x).sum() * 3,
    lambda x, y: (Unread.apply(x, y * 2), x * 5),
    lambda x, y: Shaped.apply(x, y.exp()[:1]),
    lambda x, y: Unread.apply(x, y if y.shape[0] > 4 else y + x.sum()),
]


@pytest.mark.parametrize("dynamic", [None, False])
@pytest.mark.parametrize("fn", UNREAD)
def test_inputs_that_only_a_backward_part_gives_gradients(fn, dynamic):
    given = [(torch.randn(n).requires_grad_(), torch.randn(n).requires_grad_()) for n in (8, 5, 3, 1, 0)]
    check(fn, *given, grad=True, options={"dynamic": dynamic, "fullgraph": True})


def test_parameters_that_only_a_backward_part_gives_gradients():
    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = torch.nn.Parameter(torch.ones(4))

        def forward(self, x):
            return Unread.apply(x, self.scale)

    check(Model(), torch.randn(4), torch.randn(4), grad=True)
    check(Model(), torch.randn(4).requires_grad_(), grad=True)


def test_a_view_of_what_was_written_since():
    """Autograd makes the history of such a view anew, once it is asked for."""

    def parts(x, y):
        a = Unread.apply(x, y) * 1
        v = a[1:]
        a[0] = y.sum()
        return v * 2, v

    check(parts, *[(torch.randn(n).requires_grad_(), torch.randn(n).requires_grad_()) for n in (4, 5, 3)], grad=True)
