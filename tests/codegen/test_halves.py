"""bf16 and f16 through kernels, bit for bit as eager: which operands and which steps it rounds.

Eager's kernels take other formulas for the last few elements of an array (what does not fill a vector): arrays here have none such.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import pliant

N = 4096
RANGE = torch.arange(-2000, N - 2000)
SINGLE = torch.tensor(3.14)

POINTWISE: dict[str, Callable] = {
    "add a multiple": lambda a, b, c: torch.add(a, b, alpha=-3.14),
    "subtract a multiple": lambda a, b, c: torch.sub(a, b, alpha=3.14),
    "reversed, a multiple": lambda a, b, c: torch.rsub(a, b, alpha=3.14),
    "add a number": lambda a, b, c: a + 3.14,
    "a multiple of a number": lambda a, b, c: torch.add(a, 3.14, alpha=1.7),
    "a number minus": lambda a, b, c: 3.14 - a,
    "times a number": lambda a, b, c: a * 3.14,
    "by a number": lambda a, b, c: a / 3.14,
    "one f32 element": lambda a, b, c: (a + SINGLE, SINGLE - a, a * SINGLE, SINGLE * a, a / SINGLE, SINGLE / a),
    "integers": lambda a, b, c: (a + RANGE, a * RANGE, a / RANGE, torch.where(a * 1000 > RANGE, a, b)),
    "comparisons": lambda a, b, c: (torch.where(a > 0.31, a, b), torch.where(a * 100 <= 31.4, b, 0.7)),
    "in place": lambda a, b, c: a.clone().mul_(3.14).add_(3.14, alpha=1.7).sub_(b, alpha=0.3).div_(0.7),
    "pow": lambda a, b, c: (a.abs() ** 1.3, 1.3**a, a**3, a.abs() ** b),
    "remainders": lambda a, b, c: (torch.fmod(a, 0.31), torch.remainder(a, 0.31), a // 0.31, torch.div(a, 0.31, rounding_mode="trunc")),
    "atan2": lambda a, b, c: torch.atan2(a, SINGLE),
    "hardshrink": lambda a, b, c: F.hardshrink(a, 0.31),
    "softshrink": lambda a, b, c: F.softshrink(a, 0.31),
    "xlogy": lambda a, b, c: (torch.xlogy(a, b.abs()), torch.special.xlog1py(a, b.abs()), torch.special.entr(a.abs())),
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=3.14),
    "lerp": lambda a, b, c: (torch.lerp(a, b, 0.3), torch.lerp(a, b, 0.73)),
    "clamp": lambda a, b, c: a.clamp(-0.31, 0.77),
    "activations": lambda a, b, c: (F.leaky_relu(a, 0.13), F.elu(a, 0.7), F.gelu(a), F.silu(a), a.sigmoid(), a.tanh()),
    "losses": lambda a, b, c: (F.huber_loss(a, b, reduction="none", delta=0.3), F.mse_loss(a, b, reduction="none")),
}
ROWS: dict[str, Callable] = {
    "log_softmax": lambda a, b, c: (a.view(64, 64).log_softmax(-1), a.view(64, 64).log_softmax(0)),
    "logsumexp": lambda a, b, c: (a.view(64, 64).logsumexp(-1), a.view(64, 64).logsumexp(0)),
    "softmax": lambda a, b, c: a.view(64, 64).softmax(-1),
    "sums": lambda a, b, c: (a.view(64, 64).sum(-1), a.view(64, 64).mean(0)),
    "prod": lambda a, b, c: a.abs().view(512, 8).prod(-1),
}


def differing(fn: Callable, dtype: torch.dtype) -> float:
    """The share of elements that are neither eager's nor those of double precision, rounded once: eager's kernels are not the same on
    every processor. Two more operations make a kernel of any one."""

    def between(*args: torch.Tensor) -> list[torch.Tensor]:
        out = fn(*(-x for x in args))
        return [-t for t in (out if isinstance(out, tuple) else (out,))]

    numbers = torch.Generator().manual_seed(0)
    args = [torch.randn(N, generator=numbers).to(dtype) for _ in range(3)]
    got, want = pliant.compile(between, backend="native", strict=True)(*args), between(*args)
    exact = between(*(x.double() for x in args))
    worst = 0.0
    for g, w, e in zip(got, want, exact, strict=True):
        assert g.dtype == w.dtype
        worst = max(worst, ((g != w) & ~(g.isnan() & w.isnan()) & (g != e.to(dtype))).double().mean().item())
    return worst


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", POINTWISE)
def test_elements_are_eagers(name, dtype):
    # f32 functions may differ in their last bit, which decides one rounding in many
    assert differing(POINTWISE[name], dtype) <= (1 if dtype is torch.bfloat16 else 4) / N


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ROWS)
def test_rows_are_eagers(name, dtype):
    assert differing(ROWS[name], dtype) <= 0.02  # sums are taken in another order


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_gradients_compare_in_the_dtype_of_the_operand(dtype):
    assert differing(lambda a, b, c: torch.ops.aten.hardshrink_backward(a, b, 0.31), dtype) == 0
