"""Operands that kernels of ours do not take (dtypes that eager refuses, numbers that do not fit, negative bits): eager is followed."""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch
import torch.nn.functional as F

import pliant

INTS, FLOATS, BOOLS = torch.arange(12).view(3, 4), torch.randn(3, 4), torch.randn(3, 4) > 0

REFUSED = {
    "and of floats": (lambda x: x & 3, FLOATS),
    "xor of floats": (lambda x: x ^ x, FLOATS.double()),
    "gelu of integers": (F.gelu, INTS),
    "softmax of integers": (lambda x: x.softmax(1), INTS),
    "log_softmax of integers": (lambda x: x.log_softmax(0), INTS.int()),
    "lerp of integers": (lambda x: torch.lerp(x, x + 1, 0.5), INTS),
    "softplus of integers": (F.softplus, INTS),
    "silu of booleans": (F.silu, BOOLS),
    "abs of booleans": (lambda x: x.abs() ** 0.5, BOOLS),
    "floor of booleans": (lambda x: x.floor(), BOOLS),
    "argmax of booleans": (lambda x: x.argmax(1), BOOLS),
}


@pytest.mark.parametrize("name", REFUSED)
def test_eager_refuses_it(name):
    fn, x = REFUSED[name]
    with pytest.raises(Exception) as expected:
        fn(x)
    compiled = pliant.compile(fn, background=False)
    for _ in range(2):
        with pytest.raises(type(expected.value)) as given:
            compiled(x)
        assert str(given.value) == str(expected.value)


def test_a_call_that_shape_functions_refuse():
    def fn(x, b):
        return x * 2 + (b << 2), x + 1

    compiled = pliant.compile(fn, background=False)
    for n in (2, 3, 4):
        x, b = torch.ones(n), torch.arange(n) > 0
        assert [t.tolist() for t in compiled(x, b)] == [t.tolist() for t in fn(x, b)]
    assert pliant.stats()["fallbacks"] == 0


def test_an_operator_without_a_derivative():
    def fn(x):
        return (x // 2).sum() * x.sum()

    compiled = pliant.compile(fn, background=False)
    for n in (2, 3, 4):
        x, y = torch.arange(float(n), requires_grad=True), torch.arange(float(n), requires_grad=True)
        out, expected = compiled(x), fn(y)
        assert torch.equal(out, expected) and out.requires_grad == expected.requires_grad
    assert pliant.stats()["fallbacks"] == 0


FILLED = {
    "masked_fill": lambda x, n: (x + x).masked_fill(x > 2, n),
    "where": lambda x, n: torch.where(x > 2, x, n),
    "full": lambda x, n: torch.full((3,), n, dtype=x.dtype) + x[:3],
    "fill": lambda x, n: x.clone().fill_(n) + x,
}


@pytest.mark.parametrize("name", FILLED)
@pytest.mark.parametrize(("dtype", "number"), [(torch.int8, 300), (torch.int32, 2**40), (torch.float16, 2**40)])
def test_numbers_that_do_not_fit(dtype, number, name):
    x, fn = torch.arange(6).to(dtype), FILLED[name]
    compiled = pliant.compile(fn, background=False)

    def follows(compiled, *args):
        try:
            want = fn(*args)
        except RuntimeError as e:
            with pytest.raises(RuntimeError, match=str(e)):
                compiled(*args)
        else:
            assert torch.equal(compiled(*args), want)

    for n in (2, 3, number, 4, -number, -3):  # a number that varies
        follows(compiled, x, n)
    follows(pliant.compile(fn, dynamic=False, background=False), x, number)


def test_deviations_of_what_has_no_square():
    torch.manual_seed(0)
    x = torch.randn(4, 8) * 1e30
    fn = lambda x: ((x - x.mean(1, keepdim=True)) / x.std(1, keepdim=True), x.var(0))  # noqa: E731
    given, expected = pliant.compile(fn, background=False)(x), fn(x)
    assert all(torch.allclose(g, e, atol=1e-5) for g, e in zip(given, expected, strict=True))


VIEWS = [lambda x: x, lambda x: x[:, :2], lambda x: x.t(), lambda x: x.split(2, 1)[0], lambda x: x.unbind()[1]]


@pytest.mark.parametrize("view", VIEWS)
def test_inputs_with_a_negative_bit_and_a_history(view):
    """Kernels, which do not know the bit, are not used on these."""
    z = torch.complex(torch.arange(12.0).view(3, 4), torch.arange(12.0).view(3, 4) + 1)
    v = view(z.conj().imag.detach().requires_grad_())
    assert v.is_neg()
    fn = pliant.compile(lambda v: (v * 2, v.sum()), background=False)
    for _ in range(2):
        assert torch.equal(fn(v)[0], v * 2) and torch.equal(fn(v)[1], v.sum())


def test_the_gradient_of_a_loss_of_nothing():
    fn = pliant.compile(lambda x: F.mse_loss(x, x * 2), background=False)
    for n in (3, 4, 0):
        x = torch.ones(n, 4, requires_grad=True)
        fn(x).backward()
        assert x.grad.shape == x.shape


@pytest.mark.parametrize("backend", ["aten", "native"])
def test_what_is_refused_is_refused_in_its_turn(backend, capsys):
    """Although nobody reads the result, before what comes behind it, and after what was done before."""

    def fn(x):
        print("before")
        x.bitwise_not()
        x.zero_()
        return x + 1

    compiled = pliant.compile(fn, backend=backend, background=False)
    for x in (torch.arange(3), torch.ones(3).half(), torch.ones(3)):
        want = x.clone()
        for f, y in ((fn, want), (compiled, x)):
            with contextlib.suppress(NotImplementedError):
                f(y)
        assert torch.equal(x, want)
    assert capsys.readouterr().out == "before\n" * 6


def test_integers_become_halves_before_they_are_multiplied():
    a, b = torch.tensor([2**40, 3, -(2**40), 0, 70000]), torch.tensor([1, 0.5, 1, 2, 1]).half()
    for fn in (torch.xlogy, lambda a, b: torch.addcmul(b, a, b - b)):
        assert torch.allclose(pliant.compile(fn, background=False)(a, b), fn(a, b), equal_nan=True, atol=1e-6)


MIXED = {
    "layer norm": lambda x, w, b: F.layer_norm(x, (4,), w, b),
    "batch norm": lambda x, w, b: F.batch_norm(x, torch.zeros(4, dtype=b.dtype), torch.ones(4, dtype=b.dtype), w, b),
    "batch norm of a batch": lambda x, w, b: F.batch_norm(x, None, None, w, b, True),
    "group norm": lambda x, w, b: F.group_norm(x, 2, w, b),
    "instance norm": lambda x, w, b: F.instance_norm(x[:, :, None].expand(2, 4, 3), weight=w, bias=b),
}


@pytest.mark.parametrize("name", MIXED)
def test_parameters_of_another_dtype(name):
    """Rows of halves may be normalized with parameters of float32, and nothing else is of two dtypes."""
    fn, dtypes = MIXED[name], (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    given = torch.arange(8.0).view(2, 4) / 3, torch.tensor([1, 0.5, 2, 1]), torch.tensor([0.5, 0, -1, 1])
    made = {d: [t.to(d) for t in given] for d in dtypes}
    compiled = pliant.compile(fn, background=False, recompile_limit=100)
    for of_x, of_w, of_b in itertools.product(dtypes, dtypes, dtypes):
        args = (made[of_x][0], made[of_w][1], made[of_b][2])
        try:
            want = fn(*args)
        except RuntimeError:
            with pytest.raises(RuntimeError):
                compiled(*args)
        else:
            torch.testing.assert_close(compiled(*args), want, rtol=2e-2, atol=2e-2)


WIDE = {
    "where": lambda x, n: torch.where(x > 0, x, n), "masked_fill": lambda x, n: x.masked_fill(x > 0, n), "product": lambda x, n: x * n,
    "product with a size": lambda x, n: x * (x.shape[0] + n), "compared": lambda x, n: x > n, "clamp": lambda x, n: x.clamp(max=n),
}  # fmt: skip


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("name", WIDE)
def test_numbers_beyond_64_bits(name, backend):
    """They are no symbols, and what is computed of symbols with them is Python's."""
    fn, compiled = WIDE[name], pliant.compile(WIDE[name], backend=backend, background=False, strict=False)
    for x in (INTS, FLOATS):
        for n in (3, 5, 2**64 + 2, 2**63, -(2**63), -(2**63) - 1, 2**63 - 1, 4):
            try:
                want = fn(x, n)
            except (OverflowError, RuntimeError) as e:
                with pytest.raises(type(e)):
                    compiled(x, n)
            else:
                assert torch.equal(compiled(x, n), want)
