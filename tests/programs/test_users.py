"""What random programs of users (`differential/grammar_users.py`) have shown: modules with state, optimizers, sizes of 0 and 1."""

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import call, check, check_world, compiled

SHAPES = [(0, 3), (2, 1), (1, 1), (1, 3), (3, 0), (0, 0), (2, 3), (4, 1), (0, 1)]


# -- gradients of what has sizes of 0 and 1 ------------------------------------------------------------------------------------------
LOSSES = {
    "mse": F.mse_loss, "l1": F.l1_loss, "smooth l1": F.smooth_l1_loss, "huber": F.huber_loss, "soft margin": F.soft_margin_loss,
    "logits": F.binary_cross_entropy_with_logits, "divergence": F.kl_div, "poisson": F.poisson_nll_loss,
    "mean": lambda x, y: (x - y).mean(),
    "classes": lambda x, y: F.cross_entropy(x, torch.zeros(x.shape[0], dtype=torch.long)),
}  # fmt: skip


@pytest.mark.parametrize("loss", LOSSES)
def test_losses_of_nothing(loss):
    def fn(x, y, w):
        return LOSSES[loss](x * w, y)

    w = torch.tensor(2.0, requires_grad=True)
    shapes = SHAPES if loss != "classes" else [s for s in SHAPES if s[1]]
    check(fn, *[call(torch.ones(s, requires_grad=True), torch.zeros(s), w) for s in shapes], grad=True)


def squares(x, w):
    (x * w).pow(2).sum().backward()


def sums(x, w):
    x.sum().backward()


def softmax(x, w):
    (x + x.sum()).softmax(1).sum().backward()


def kept(x, w):
    x.sum(0, keepdim=True).pow(2).sum().backward()


def transposed(shape):
    return torch.ones(shape[::-1]).t().requires_grad_()


def part(shape):
    return torch.ones(shape[0], shape[1] + 2)[:, : shape[1]].detach().requires_grad_()


@pytest.mark.parametrize("make", [lambda s: torch.ones(s, requires_grad=True), transposed, part], ids=["plain", "transposed", "part"])
@pytest.mark.parametrize("fn", [squares, sums, softmax, kept], ids=lambda f: f.__name__)
def test_strides_of_gradients(fn, make):
    """The engine copies a gradient whose stride is 0 where the leaf's dim is one of size 1."""
    program = compiled(fn)
    for shape in SHAPES:
        found = []
        for run in (fn, program):
            x = make(shape)
            run(x, torch.tensor(2.0))
            found.append((x.grad.stride(), x.grad.storage_offset()))
        assert found[0] == found[1], shape


# -- what has been stored where a graph with gradients may raise ---------------------------------------------------------------------
class Counted(torch.nn.Module):
    """Statistics in buffers, the last input, a counter, a log, a cache by size."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.5))
        self.register_buffer("mean", torch.zeros(()))
        self.last, self.steps, self.log, self.cache = None, 0, [], {}

    def positions(self, n):
        if n not in self.cache:
            self.cache[n] = torch.arange(n, dtype=torch.float32) / max(n, 1)
        return self.cache[n]

    def forward(self, t):
        with torch.no_grad():
            self.mean.lerp_(t.mean(), 0.1)
        self.steps += 1
        self.last = t.detach()
        self.log.append(t.detach())
        return torch.tanh((t - self.mean) * self.scale) + self.positions(t.shape[0])[:, None]


def items(net, x):
    out = net(x)
    for row in x:
        out = out + row.sum()
    return out


def a_number(net, x):
    out = net(x)
    return out, float(x.detach().sum())


def an_index(net, x):
    return net(x)[x.detach().argmax(0)]


def twice(net, x):
    out = net(net(x)).sum()
    return out, x.detach().reshape(-1)[x.detach().argmax()]


@pytest.mark.parametrize("detached", [False, True])
@pytest.mark.parametrize("fn", [items, a_number, an_index, twice], ids=lambda f: f.__name__)
def test_what_was_stored_is_told_where_a_graph_raises(fn, detached):
    """What was stored by then is a result of the graph: `x.detach()` of an input without gradients was left out of one with gradients."""

    def world():
        net = Counted()
        return (lambda x: fn(net, x)), net

    check_world(world, *[torch.ones(s, requires_grad=not detached) for s in ((3, 2), (2, 2), (4, 3))], grad=True)
