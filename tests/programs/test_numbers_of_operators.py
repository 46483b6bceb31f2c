"""Numbers that are parameters of operators and others in each call: slopes, margins, orders, probabilities. One graph for all."""

from __future__ import annotations

import math

import pytest
import torch

import pliant
from tests.helpers import check

F = torch.nn.functional
VALUES = [0.5, 0.87, 1.24, 1.61, 2.35, 3.5]


def rows(k, width=4, dtype=torch.float32):
    x = torch.linspace(-2, 2, (k % 4 + 2) * width, dtype=dtype).view(-1, width)
    x = (x * 7).sin() * 2
    x[0, 0], x[0, 1] = 0.0, 1.0  # where formulas change
    return x


def labels(x):
    return torch.arange(x.shape[0]) % x.shape[1]


SMOOTH = {
    "pow": lambda x, g: (x.abs() + 0.1) ** g,
    "Tensor.pow": lambda x, g: (x.abs() + 0.1).pow(g - 1),
    "a power of the number": lambda x, g: (g + 0.5) ** x,
    "torch.pow of the number": lambda x, g: torch.pow(g, x),
    "leaky_relu": lambda x, g: F.leaky_relu(x, g),
    "elu": lambda x, g: F.elu(x, g),
    "celu": lambda x, g: F.celu(x, alpha=g),
    "softplus": lambda x, g: F.softplus(x * 20, g),
    "softplus, threshold": lambda x, g: F.softplus(x, 1.0, g),
    "threshold": lambda x, g: F.threshold(x, g, -g),
    "logit": lambda x, g: torch.logit(x.sigmoid(), eps=g / 20),
    "nan_to_num": lambda x, g: torch.nan_to_num(x.log(), nan=g, neginf=-3.0),
    "lerp": lambda x, g: torch.lerp(x, x * 2, g / 4),
    "pad": lambda x, g: F.pad(x, (1, 2), value=g) * 2,
    "vector_norm": lambda x, g: torch.linalg.vector_norm(x, g + 0.2),
    "vector_norm, rows": lambda x, g: torch.linalg.vector_norm(x, g + 0.2, dim=1, keepdim=True),
    "norm": lambda x, g: x.norm(p=g + 0.2, dim=0),
    "dist": lambda x, g: torch.dist(x, x.flip(0) + 1, p=g + 0.2),
    "normalize": lambda x, g: F.normalize(x, p=g + 0.2),
    "normalize, least size": lambda x, g: F.normalize(x, eps=g),
    "pairwise_distance": lambda x, g: F.pairwise_distance(x, x + 1, p=g + 0.2),
    "smooth_l1_loss": lambda x, g: F.smooth_l1_loss(x, x * 0.1, beta=g),
    "huber_loss": lambda x, g: F.huber_loss(x, x * 0.1, delta=g, reduction="sum"),
    "margin_ranking_loss": lambda x, g: F.margin_ranking_loss(x, x.flip(0), x.detach().sign(), margin=g),
    "hinge_embedding_loss": lambda x, g: F.hinge_embedding_loss(x, x.detach().sign(), margin=g, reduction="none"),
    "cosine_embedding_loss": lambda x, g: F.cosine_embedding_loss(x, x.flip(1), 1 - 2 * (labels(x) % 2), margin=g / 5),
    "triplet_margin_loss": lambda x, g: F.triplet_margin_loss(x, x + 1, x.flip(1), margin=g, swap=True),
    "poisson_nll_loss": lambda x, g: F.poisson_nll_loss(x.abs(), x.abs() + 1, log_input=False, eps=g),
    "cross_entropy": lambda x, g: F.cross_entropy(x, labels(x), label_smoothing=g / 5),
    "cross_entropy, rows": lambda x, g: F.cross_entropy(x, labels(x), label_smoothing=g / 5, reduction="none", ignore_index=1),
    "cross_entropy, some ignored": lambda x, g: F.cross_entropy(x, labels(x), label_smoothing=g / 5, ignore_index=1),
    "attention": lambda x, g: F.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None], scale=g),
    "dropout": lambda x, g: F.dropout(x, g / 5),
    "dropout, transposed": lambda x, g: F.dropout(x.t() * 2, g / 5),
    "dropout, a part": lambda x, g: F.dropout(x[:, ::2], g / 5),
    "dropout, one row for all": lambda x, g: F.dropout(x[:1].expand(3, -1), g / 5),
    "alpha_dropout, transposed": lambda x, g: F.alpha_dropout(x.t() * 2, g / 5, True),
    "dropout of nothing": lambda x, g: F.dropout(x[:, :0], g / 5) * 2,
    "dropout, not in training": lambda x, g: F.dropout(x, g / 5, False) * 2,
    "dropout1d": lambda x, g: F.dropout1d(x[None], g / 5),
    "dropout2d": lambda x, g: F.dropout2d(x[None, None].expand(2, 3, *x.shape), g / 5),
    "alpha_dropout": lambda x, g: F.alpha_dropout(x, g / 5, True),
    "math": lambda x, g: x * math.exp(-g) * math.sinh(g) + math.log(g + 1, 2) + math.radians(g) + math.acos(g / 4) - math.degrees(g),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_one_graph(name):
    fn = SMOOTH[name]
    report = check(fn, *[(rows(k).requires_grad_(), g) for k, g in enumerate(VALUES)], grad=True, breaks=0)
    assert report.captures <= 3 and not report.fallbacks


PRECISE = ["leaky_relu", "elu", "softplus", "threshold", "lerp", "dropout", "smooth_l1_loss"]


@pytest.mark.parametrize(
    ("name", "dtype"), [(n, t) for n in PRECISE for t in (torch.float64, torch.bfloat16)] + [("pow", torch.float64)], ids=str
)
def test_other_precisions(name, dtype):
    """Powers of low precision are not among these: ATen rounds the exponent first, the graph does not."""
    fn = SMOOTH[name]
    check(lambda x, g: fn(x, g), *[(rows(k, dtype=dtype).requires_grad_(), g) for k, g in enumerate(VALUES)], grad=True, captures=(1, 3))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SMOOTH)
def test_the_dtype_of_the_answer(name, dtype):
    """A number that changes takes no part in what dtype the tensors beside it have, nor how exact they are."""
    pliant.reset()
    fn = SMOOTH[name]
    compiled = pliant.compile(fn, strict=True)
    for k, g in enumerate(VALUES[:3]):
        answers = []
        for f in (fn, compiled):
            torch.manual_seed(0)
            try:
                answers.append(f(rows(k, dtype=dtype), g))
            except (RuntimeError, NotImplementedError) as e:  # no kernel for halves
                answers.append(e)
        want, got = answers
        assert type(want) is type(got)
        if isinstance(want, torch.Tensor):
            assert want.dtype is got.dtype
            close = {torch.float64: 1e-12, torch.float16: 5e-3, torch.bfloat16: 5e-2}[dtype]
            torch.testing.assert_close(got, want, rtol=close, atol=close, equal_nan=True)


DRAWN = {
    "uniform_": lambda n, g: torch.empty(n).uniform_(-g, g),
    "normal_": lambda n, g: torch.empty(n).normal_(0, std=g),
    "normal_, many": lambda n, g: torch.empty(n + 60).normal_(g, g),
    "exponential_": lambda n, g: torch.empty(n).exponential_(g),
    "bernoulli_": lambda n, g: torch.empty(n).bernoulli_(g / 5),
    "bernoulli": lambda n, g: torch.bernoulli(torch.full((n,), 0.5), g / 5),
    "normal": lambda n, g: torch.normal(0.0, g, (n, 2)),
    "normal of means": lambda n, g: torch.normal(torch.arange(n * 1.0), g),
}


@pytest.mark.parametrize("name", DRAWN)
def test_random_numbers(name):
    check(DRAWN[name], *[(3 + k, g) for k, g in enumerate(VALUES)], captures=(1, 3), breaks=0)


def test_powers_of_whole_numbers():
    """A derivative asks an exponent whether it is 0."""
    for fn in (lambda x, k: x**k, lambda x, k: x.pow(-k), lambda x, k: k**x, lambda x, k: (x * 3).long() ** k, lambda x, k: k ** labels(x)):
        check(fn, *[(rows(k).requires_grad_(), n) for k, n in enumerate([1, 2, 3, 5, 4, 0, 7])], grad=True)
    report = check(lambda x, k: x**k, *[(rows(k).requires_grad_(), n) for k, n in enumerate([2, 3, 5, 4, 7])], grad=True, breaks=0)
    assert report.captures <= 3


def test_refused_as_in_eager():
    for fn, values in (
        (lambda x, p: F.dropout(x, p), [0.1, 0.2, 0.3, 1.5, -0.5]),
        (lambda x, p: torch.empty(3).normal_(0, p) + x, [1.0, 2.0, 3.0, -1.0]),
        (lambda x, p: F.cross_entropy(x, labels(x), label_smoothing=p), [0.1, 0.2, 0.3, 1.5]),
        (lambda x, p: x * math.log(p), [1.0, 2.0, 3.0, 0.0, -1.0]),
        (lambda x, p: x * math.exp(p), [1.0, 2.0, 3.0, 800.0]),
        (lambda x, p: x * math.acos(p), [0.1, 0.2, 0.3, 1.5]),
        (lambda x, p: x * math.sin(p), [0.1, 0.2, 0.3, math.inf]),
    ):
        check(fn, *[(rows(1), p) for p in values])


def test_special_orders():
    """Orders that have a formula of their own come between others."""
    for fn, values in (
        (lambda x, p: x.norm(p=p), [1.5, 2.5, 2.0, 1.0, 0.0, math.inf, 3.0, 0.5]),
        (lambda x, p: F.dropout(x, p), [0.1, 0.2, 0.0, 1.0, 0.4]),
        (lambda x, p: (x.abs() + 1) ** p, [0.5, 2.0, 0.0, 1.0, 3.0, -1.0]),
    ):
        check(fn, *[(rows(k).requires_grad_(), p) for k, p in enumerate(values)], grad=True)


@pytest.mark.parametrize("backend", ["native", "aten", "eager"])
def test_a_focal_loss(backend):
    def focal(x, y, gamma, alpha):
        cost = F.cross_entropy(x, y, reduction="none")
        return (alpha * (1 - (-cost).exp()) ** gamma * cost).mean()

    sets = [(rows(k).requires_grad_(), labels(rows(k)), k * 0.5, 0.25 + k / 20) for k in range(8)]
    check(focal, *sets, grad=True, captures=(1, 4), options={"backend": backend})


def test_a_number_that_only_a_derivative_pins():
    """No instruction is to blame for the guard: after some calls the number is kept out of the graph."""
    report = check(
        lambda x, g: (x.var(1, correction=g) * 2).sum(), *[(rows(k).requires_grad_(), g / 5) for k, g in enumerate(VALUES * 3)], grad=True
    )
    assert report.captures <= 9


def test_a_number_has_no_attributes_of_those_that_stand_for_it():
    """Libraries ask for `_sympy_`, which PyTorch's symbolic numbers have and Python's have not."""

    def fn(x, n):
        names = ("_sympy_", "__sym_float__", "__sym_max__", "absent")
        found = [hasattr(v, name) for v in (n, n * 0.5, n > 3, x.shape[0]) for name in names]
        try:
            n.absent
        except AttributeError as e:
            found.append(str(e))
        return x * n, found

    compiled = pliant.compile(fn, background=False)
    for n in (2, 3, 4, 5, 2):
        x = torch.ones(n + 1)
        want, got = fn(x, n), compiled(x, n)
        assert torch.equal(got[0], want[0]) and got[1] == want[1]


LARGE = 2**40
LARGE_NUMBERS = [3, 5, 7, 2**22, 2**23, 2**23 + 1, 2**24 - 1, 2**24, -(2**23), -(2**23) - 1, -(2**24), 5]


def put(x, v):
    x = x.clone()
    x[0] = v
    return x


FLOATS_OF_LARGE = {
    "list": lambda x, n: torch.tensor([n * LARGE, 0.5]), "dtype": lambda x, n: torch.tensor([n * LARGE, 2], dtype=torch.float64),
    "rows": lambda x, n: torch.tensor([[n * LARGE], [n]], dtype=torch.float32), "odd": lambda x, n: torch.tensor([n * 2**36 + 1, 0.5]),
    "one": lambda x, n: torch.tensor(n * LARGE, dtype=torch.float32), "as_tensor": lambda x, n: torch.as_tensor([n * LARGE, 0.5]),
    "new_tensor": lambda x, n: x.new_tensor([n * LARGE, 0.5]), "beside_data": lambda x, n: torch.tensor([n * LARGE, x[0, 0]]),
    "integers": lambda x, n: torch.tensor([n * LARGE, 2]), "put": lambda x, n: put(x, n * LARGE),
    "put_integer": lambda x, n: put(x.long(), n * LARGE), "masked": lambda x, n: x.clone().masked_fill_(x > 0, n * LARGE),
    "add": lambda x, n: x + n * LARGE, "add_": lambda x, n: x.clone().add_(n * LARGE), "mul": lambda x, n: x.clone().mul_(n * LARGE),
    "clamp": lambda x, n: x.clone().clamp_(max=n * LARGE), "value": lambda x, n: x.clone().addcmul_(x, x, value=n * LARGE),
    "alpha": lambda x, n: x.clone().add_(x, alpha=n * LARGE), "whole_alpha": lambda x, n: x.long().add_(x.long(), alpha=n * LARGE),
    "fill": lambda x, n: x.clone().fill_(n * LARGE) * 2, "where": lambda x, n: torch.where(x > 0, n * LARGE, 0.5),
    "compare": lambda x, n: x * 1e19 >= n * LARGE, "power": lambda x, n: (n * LARGE) ** x, "remainder": lambda x, n: x * 1e19 % (n * LARGE),
    "halves": lambda x, n: x.to(torch.bfloat16).mul_(n * LARGE),
    "whole": lambda x, n: torch.full((3,), n * LARGE, dtype=torch.float32) + x[0, :1],
}  # fmt: skip


@pytest.mark.parametrize("name", FLOATS_OF_LARGE)
def test_integers_that_64_bits_do_not_hold(name):
    """Of floats PyTorch makes each its double, whatever integer it is; what is put into a tensor has 64 bits with a sign; operators have
    numbers without a sign, too."""
    check(FLOATS_OF_LARGE[name], *[(rows(1), n) for n in LARGE_NUMBERS], options={"background": False})


HALF_OPTIONS = {
    "add": lambda x, a: torch.add(x, x, alpha=a), "sub": lambda x, a: torch.sub(x, x, alpha=a),
    "number": lambda x, a: torch.add(x, 1, alpha=a), "threshold": lambda x, a: F.threshold(x, a, a), "pow": lambda x, a: x**a,
    "hardtanh": lambda x, a: F.hardtanh(x, -abs(a), abs(a)), "mul": lambda x, a: x * a,
    "index_add": lambda x, a: x.index_add(0, torch.tensor([0]), x[:1], alpha=a),
}  # fmt: skip


@pytest.mark.parametrize("name", HALF_OPTIONS)
@pytest.mark.parametrize("values", [(2, 3, 4, 70000), (0.5, 0.75, 0.25, 70000.0 * 4), (2, 3, -70000)])
def test_options_that_half_precision_has_not(name, values):
    x = torch.ones(2, 2, dtype=torch.float16)
    check(HALF_OPTIONS[name], *[(x, v) for v in values], options={"background": False})


def test_floats_that_float32_has_not():
    check(lambda x: torch.where(x > 0, x, 1e39), (rows(1),), options={"background": False})
