"""Programs as functions of jax arrays."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

jax = pytest.importorskip("jax")

from pliant.errors import PliantError  # noqa: E402
from pliant.export import export  # noqa: E402
from pliant.export.signature import SignatureError  # noqa: E402
from pliant.export.stablehlo import to_jax  # noqa: E402

jnp = jax.numpy


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8)).eval()


@pytest.fixture
def program():
    m = net()

    def f(ids, k):
        h = m(ids)
        return {"h": h[:, ::2], "s": h.sum() * k, "n": ids.shape[0] * 2}

    return f, export(f, (torch.randint(0, 10, (3, 5)), 2))


def close(got, want):  # a sum of 1,848 numbers about zero is off by 1e-4 on either side
    np.testing.assert_allclose(np.asarray(got), want.detach().numpy() if isinstance(want, torch.Tensor) else want, rtol=1e-5, atol=5e-4)


@pytest.mark.parametrize("shape", [(2, 4), (1, 1), (7, 33)])
def test_agrees_with_eager(program, shape) -> None:
    f, p = program
    g = to_jax(p)
    ids = torch.randint(0, 10, shape)
    want = f(ids, 3)
    jitted = jax.jit(lambda state, x: g.apply(state, {"ids": x, "k": 3}))
    for out in (g(ids.numpy(), 3), g({"ids": ids.numpy(), "k": 3}), g(ids=ids.numpy(), k=3), jitted(g.state, ids.numpy())):
        assert set(out) == {"h", "s", "n"}
        for name in out:
            close(out[name], want[name])


def test_exported_with_symbolic_dims(program) -> None:
    f, p = program
    g = to_jax(p)
    b, s = jax.export.symbolic_shape("b, s")
    made = jax.export.export(jax.jit(lambda x: g(x, 3)["h"] * 2))(jax.ShapeDtypeStruct((b, s), jnp.int32))
    assert str(made.out_avals[0].shape) == "(b, floordiv(s + 1, 2), 8)"
    loaded = jax.export.deserialize(made.serialize())
    ids = torch.randint(0, 10, (4, 7))
    close(loaded.call(ids.numpy().astype(np.int32)), f(ids, 3)["h"] * 2)


def test_other_weights(program) -> None:
    f, p = program
    g = to_jax(p)
    ids = np.zeros((2, 3), np.int32)
    zero = {k: jnp.zeros_like(v) for k, v in g.state.items()}
    assert not np.any(np.asarray(g.apply(zero, {"ids": ids, "k": 1})["h"]))
    assert np.any(np.asarray(g(ids, 1)["h"]))


def test_dtypes_follow_the_setting_of_jax(program) -> None:
    _, p = program
    ids = np.zeros((2, 3), np.int64)
    assert to_jax(p)(ids, 3)["n"].dtype == np.int32
    with jax.enable_x64(True):
        assert to_jax(p)(ids, 3)["n"].dtype == np.int64


def test_sizes_that_do_not_fit_are_told_in_the_programs_words() -> None:
    g = to_jax(export(lambda x, y: x @ y, (torch.randn(3, 4), torch.randn(4, 5))))
    with pytest.raises((SignatureError, PliantError), match="but"):
        g(np.zeros((3, 4), np.float32), np.zeros((5, 5), np.float32))
    h = to_jax(export(lambda x: x.reshape(2, -1, 3), (torch.randn(12),)))
    with pytest.raises(SignatureError, match="% 6 == 0"):
        h(np.zeros(10, np.float32))


def test_sizes_that_jax_has_no_words_for_run_closed() -> None:
    def f(x, y):
        return x.new_ones(math.ceil(x.shape[0] * 1.5), 4) * y.sum()

    g = to_jax(export(f, (torch.randn(6, 4), torch.randn(6, 4))))
    assert g.exported is None
    for n, m in ((3, 3), (3, 2), (2, 7)):
        x, y = torch.randn(n, 4), torch.randn(m, 4)
        close(g(x.numpy(), y.numpy())["output"], f(x, y))
        close(jax.jit(lambda a, b: g(a, b)["output"])(x.numpy(), y.numpy()), f(x, y))
    n = jax.export.symbolic_shape("n")[0]
    with pytest.raises(PliantError, match="no counterpart"):
        jax.export.export(jax.jit(lambda a: g(a, a)["output"]))(jax.ShapeDtypeStruct((n, 4), jnp.float32))


def test_empty_arrays() -> None:
    g = to_jax(export(lambda x: (x.cumsum(0), x.sum(0)), (torch.randn(5, 3),)))
    a, b = g(np.zeros((0, 3), np.float32)).values()
    assert a.shape == (0, 3) and not np.any(np.asarray(b))


def test_numbers_that_sizes_are_made_of_are_said_beforehand() -> None:
    p = export(lambda x, k: x[:k] * k, (torch.randn(8), 3))
    with pytest.raises(PliantError, match="numbers="):
        to_jax(p)
    g = to_jax(p, numbers={"k": 4})
    close(g(np.arange(8, dtype=np.float32))["output"], torch.arange(4.0) * 4)


def test_assertions_about_data_are_raised() -> None:
    def f(x, t):
        n = t.item()
        torch._check(n >= 0)
        return x * n

    g = to_jax(export(f, (torch.randn(3), torch.tensor(4))))
    with pytest.raises(RuntimeError, match="u0 >= 0"):
        g(np.ones(3, np.float32), -1)
    with pytest.raises(Exception, match="u0 >= 0"):
        jax.block_until_ready(jax.jit(lambda x, t: g(x, t))(np.ones(3, np.float32), -1))
        jax.effects_barrier()


def test_unknown_names_are_refused(program) -> None:
    _, p = program
    g = to_jax(p)
    with pytest.raises(PliantError, match="has no input idz"):
        g(idz=np.zeros((2, 3)), k=1)
    with pytest.raises(PliantError, match="needs k"):
        g(ids=np.zeros((2, 3)))


def test_attention_of_halves() -> None:
    def f(q):
        return F.scaled_dot_product_attention(q, q, q, is_causal=True)

    q = torch.randn(2, 2, 6, 8).bfloat16()
    g = to_jax(export(f, (q,)))
    got = np.asarray(g(jnp.asarray(q.float().numpy(), jnp.bfloat16))["output"].astype(jnp.float32))
    np.testing.assert_allclose(got, f(q).float().numpy(), rtol=3e-2, atol=3e-2)
