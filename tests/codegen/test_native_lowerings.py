"""Single operations as kernels, on the inputs that operator samples leave out: NaN, ties, infinities, rows of one, other layouts."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import pliant
from tests.codegen.test_native_opinfo import compiled, gradients, kernels, same  # noqa: F401 (a fixture)

NAN, INF = float("nan"), float("inf")
SPECIAL = torch.tensor([NAN, INF, -INF, -0.0, 0.0, 1e-40, 3.0, -3.0, 0.5, -0.5, 1.0, -1.0, 88.0, -104.0, 6.0, -6.0])
TIES = torch.tensor([[1.0, 3.0, 3.0, -1.0], [NAN, 1.0, NAN, 5.0], [-INF, -INF, -INF, -INF], [0.0, -0.0, 0.0, -0.0]])
aten = torch.ops.aten


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


FORWARD: dict[str, tuple[Callable, tuple]] = {
    "argmax": (lambda x: (x.argmax(1), x.argmax(0), x.argmax(), x.argmin(1), x.argmin()), (TIES,)),
    "argmax of integers": (lambda x: (x.argmax(1), x.argmin(0, keepdim=True)), (torch.tensor([[2, 7, 7], [5, 5, -9]]),)),
    "max and where it is": (lambda x: (*x.max(1), *x.min(0, keepdim=True)), (TIES,)),
    "argmax of another order": (lambda x: (x.t().argmax(), x.t().argmax(1)), (normal(37, 53),)),
    "argmax between": (lambda x: torch.where((x * 2).argmax(-1, keepdim=True) == 3, x, 0.0) + 1, (normal(9, 40),)),
    "aminmax": (lambda x: (*torch.aminmax(x), *torch.aminmax(x, dim=1)), (TIES,)),
    "norms": (lambda x: tuple(torch.linalg.vector_norm(x, p, -1) for p in (0, 1, 2, 3, 0.5, INF, -INF)), (normal(7, 33),)),
    "norms of special values": (lambda x: tuple(torch.linalg.vector_norm(x, p) for p in (1, 2, INF, -INF)), (SPECIAL[1:],)),
    "cumulative": (
        lambda x: (x.cumsum(-1) + 1, (x * 2).cumsum(0), x.cumprod(1).relu(), x.cumsum(1).amax(1), x.softmax(-1).cumsum(-1) * 2),
        (normal(9, 70),),
    ),
    "cumulative numbers": (
        lambda x: (
            (x > 0).cumsum(-1) - 1, x.int().cumsum(0) * 3, x.abs().to(torch.uint8).cumprod(1) + 1, x.cumsum(1, dtype=torch.float64) * 2
        ),
        (normal(9, 70),),
    ),
    "cumulative halves": (
        lambda x: ((x.bfloat16() + 1).cumsum(-1), x.half().cumsum(-1) * 2, x.bfloat16().cumsum(0) * 2), (normal(9, 70),)
    ),
    "cumulative special values": (lambda x: (x.cumsum(0) * 1, x[1:].cumprod(0) * 1, x[2:].cumsum(0) * 1), (SPECIAL,)),
    "cumulative in other orders": (
        lambda x: (x.t().cumsum(0) + x.t(), x.view(5, 2, 7).cumsum(1) * 2, x.flip(1).cumsum(1).flip(1), x.t().cumsum(1) * x[:, 0]),
        (normal(10, 7),),
    ),
    "flip": (lambda x: (x.flip(0), x.flip(1) + 1, x.flip(0, -1) * x), (normal(17, 33),)),
    "flip of a view": (lambda x: x[:, 2:].t().flip(0) * 2, (normal(17, 33),)),
    "roll": (lambda x: (x.roll(3, 0), x.roll(-1, 1) + 1, x.roll(100, 1), x.roll(0, 0)), (normal(17, 33),)),
    "repeat": (lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1) * 2, (x + 1).repeat(1, 2)), (normal(5, 7),)),
    "concatenated while computed": (
        lambda x, r, c: (torch.cat((x * r, (x + c).relu(), -x), 1), torch.cat((x * 2 + c, r - x), 0), torch.cat((c * 2, x), 1) * 2),
        (normal(9, 37), normal(37), normal(9, 1)),
    ),
    "concatenated and kept": (lambda x: (lambda y: (torch.cat((y, y + 1, x), 1), y, torch.cat((-y, x), 0)))(x.exp()), (normal(9, 37),)),
    "concatenated, then overwritten": (
        lambda x: (lambda y: (lambda z: (z, y.add_(1)))(torch.cat((y, x + 1), 1)))(x * 2), (normal(9, 37),)
    ),
    "concatenated numbers": (lambda x: (torch.cat((x > 0, x.isnan()), 0), torch.cat((x.int() * 3, x.int()), 1)), (normal(9, 37),)),
    "stacked while computed": (
        lambda x, r: (torch.stack((x * r, r - x), -1), torch.stack((x, x * 2, -x), 1), torch.stack((x.exp(), x, x, x * 2), -1) + 1),
        (normal(9, 37), normal(37)),
    ),
    "padded while computed": (
        lambda x, r, c: (F.pad(x * r + c, (1, 2, 2, 1), value=3.0), F.pad(x.exp(), (-1, 2)), F.pad(x.abs().log(), (0, 0, 3, 0)) * 2),
        (normal(9, 37), normal(37), normal(9, 1)),
    ),
    "padded by nothing": (
        lambda x, r, c: (F.pad(x * r + c, (0, 0)), F.pad(x.exp(), (0, 0, 0, 0), value=2.0) * 2),
        (normal(9, 37), normal(37), normal(9, 1)),
    ),
    "rotated halves": (
        lambda x, r: tuple(y * r + torch.cat((-y[:, 5:], y[:, :5]), -1) * r for y in (x, x.bfloat16(), x.half(), x.double())),
        (normal(70, 10), normal(10)),
    ),
    "rotated pairs": (lambda x: torch.stack((-x[:, 1::2], x[:, ::2]), -1).flatten(-2) * 2 + x, (normal(9, 74),)),
    "shifts": (
        lambda x, n: (x << n, x >> n, x.to(torch.int32) << n.to(torch.int32), x.to(torch.uint8) >> n.to(torch.uint8)),
        (torch.tensor([1, -1, 5, -70, 255, 3, -8, 9]), torch.tensor([0, 63, 2, 64, 8, 100, 1, 31])),
    ),
    "rounded division": (
        lambda x, y: (torch.div(x, y, rounding_mode="floor"), torch.div(x, y, rounding_mode="trunc"), x // y),
        (SPECIAL[:, None], SPECIAL[None, :]),
    ),
    "activations": (
        lambda x: (F.hardtanh(x), F.softshrink(x), F.hardshrink(x), F.threshold(x, 0.1, -5.0), F.mish(x), F.logsigmoid(x)),
        (SPECIAL,),
    ),
    "more activations": (
        lambda x: (F.elu(x), F.celu(x, 0.5), F.selu(x), F.softplus(x), F.hardsigmoid(x), F.hardswish(x), F.leaky_relu(x), x.frac()),
        (SPECIAL,),
    ),
    "infinities": (lambda x: (x.nan_to_num(), x.nan_to_num(1.0, 2.0, 3.0), x.isposinf(), x.isneginf()), (SPECIAL,)),
    "two operands": (
        lambda x, y: (torch.logaddexp(x, y), torch.xlogy(x, y.abs()), torch.special.entr(x), torch.fmax(x, y), torch.fmin(x, y)),
        (SPECIAL[:, None], SPECIAL[None, :]),
    ),
    "fmax of integers": (lambda x, y: (torch.fmax(x, y), torch.fmin(x, y)), (torch.arange(9), torch.arange(9).flip(0))),
    "clamp between tensors": (lambda x, y: x.clamp(y - 1, y + 1), (SPECIAL[:, None], SPECIAL[None, 1:])),
    "views of complex numbers": (lambda x: (torch.view_as_real(x) * 2, x.real + x.imag), (torch.complex(normal(5, 3), normal(3, 5).t()),)),
    "negated views": (lambda x: (torch._neg_view(x) * 2, x.conj().imag + 1 if x.is_complex() else x + 1), (normal(5, 3),)),
    "other dtypes of one memory": (lambda x: (x.view(torch.int32) + 1, x * 2), (normal(5, 3),)),
    "statistics of halves": (lambda x: aten.native_layer_norm(x, [8], None, None, 1e-5), (normal(5, 8).bfloat16(),)),
}


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("name", FORWARD)
def test_forward(name: str, symbolic: bool, kernels: list) -> None:  # noqa: F811
    fn, args = FORWARD[name]
    run = compiled(lambda args, kwargs: fn(*args), args, {}, symbolic)
    want = fn(*args)
    same(list(run()[0]), list(want) if isinstance(want, tuple) else [want], name)
    assert bool(kernels) == (name != "views of complex numbers")


LABELS = torch.tensor([0, 3, -100, 2, 1, 3, 0])
TRAINED: dict[str, tuple[Callable, tuple]] = {
    "group norm": (lambda x, w, b: F.group_norm(x, 3, w, b), (normal(4, 6, 5, 5), normal(6), normal(6))),
    "group norm of vectors": (lambda x: F.group_norm(x, 2) * 2, (normal(4, 6),)),
    "batch norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (normal(4, 6, 5, 3), normal(6), normal(6))),
    "batch norm of vectors": (lambda x, w: F.batch_norm(x, None, None, w, None, training=True) + 1, (normal(9, 6), normal(6))),
    "layer norm of all": (lambda x, w: F.layer_norm(x, (5, 6), w), (normal(5, 6), normal(5, 6))),
    "cross entropy": (lambda x, y: F.cross_entropy(x * 2, y), (normal(7, 4), LABELS)),
    "weighted cross entropy": (
        lambda x, w, y: F.cross_entropy(x, y, w.double().float(), reduction="sum"),
        (normal(7, 4), torch.arange(1, 5), LABELS),
    ),
    "cross entropy of each": (lambda x, y: F.cross_entropy(x, y, reduction="none"), (normal(7, 4), LABELS)),
    "with logits": (
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y.detach().sigmoid(), pos_weight=w.detach().abs()),
        (normal(7, 4), normal(4, 7).t().contiguous(), normal(4)),
    ),
    "smooth l1": (lambda x, y: F.smooth_l1_loss(x, y) + F.huber_loss(x, y, reduction="sum"), (normal(7, 4), normal(4, 7).t())),
    "activations": (
        lambda x: F.hardtanh(x) + F.elu(x) + F.softplus(x) + F.hardswish(x) + F.mish(x) + F.logsigmoid(x) + F.leaky_relu(x),
        (normal(9, 31) * 4,),
    ),
    "moved": (lambda x: x.roll(2, 1) * x.flip(0) + x.repeat(2, 1)[: x.shape[0]], (normal(6, 5),)),
    "extremes": (lambda x: x.max(1).values + x.min(1).values * x.amax(1), (normal(6, 5),)),
}


@pytest.mark.parametrize("name", TRAINED)
def test_gradients(name: str, kernels: list) -> None:  # noqa: F811
    fn, args = TRAINED[name]
    ours, theirs = ([t.detach().clone().requires_grad_(t.is_floating_point()) for t in args] for _ in range(2))
    run = compiled(lambda args, kwargs: fn(*args), tuple(ours), {}, not name.startswith("group"))  # channels are split in static groups
    got, want = list(run()[0]), [fn(*theirs)]
    same(got, want, name)
    same(*(gradients(out, [t for t in v if t.requires_grad]) for out, v in ((got, ours), (want, theirs))), name, gradients=True)
    assert kernels


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("exponent", [0.5, -0.5, 2, 3, -1, -2, 2.5, -3])
def test_powers_of_what_is_at_the_edge(dtype, exponent):
    def fn(x):
        return (x * 1).pow(exponent) + 0

    run = pliant.compile(fn, backend="native", background=False)
    inf = float("inf")
    for n in (6, 40):
        x = torch.tensor([-inf, inf, 0.0, -0.0, -1.0, float("nan"), *[-inf, 2.0] * 17], dtype=dtype)[:n]
        torch.testing.assert_close(run(x), fn(x), equal_nan=True)


OF_ONE_ELEMENT = {
    "sum": lambda x: (x * 2).sum(),
    "mean": lambda x: (x * 2).mean(),
    "rows": lambda x: (x * 2).unsqueeze(1).sum(1),
    "kept": lambda x: (x[:1] * 2).sum(0, keepdim=True) * 3,
    "running": lambda x: (x[:1] * 2).cumsum(0),
    "no dims": lambda x: (x[0] * 2).sum(),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16])
@pytest.mark.parametrize("of", OF_ONE_ELEMENT)
def test_a_sum_of_one_negative_zero_is_zero(of, dtype):
    compiled = pliant.compile(OF_ONE_ELEMENT[of], backend="native", background=False)
    for values in ([-0.0], [-0.0, -0.0], [-0.0, 1.0], [2.0], [-0.0] * 5):
        x = torch.tensor(values, dtype=dtype)
        assert str(compiled(x)) == str(OF_ONE_ELEMENT[of](x)), values


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", ["layer", "batch", "batch of before"])
def test_norms_without_a_bias_add_a_zero_as_eager_does(name, weighted):
    def fn(x, w):
        w = w if weighted else None
        if name == "layer":
            return F.layer_norm(x * 2, (x.shape[1],), w)
        seen = (None, None) if name == "batch" else (torch.zeros(x.shape[1], dtype=x.dtype), torch.ones(x.shape[1], dtype=x.dtype))
        return F.batch_norm(x * 2, *seen, w, None, name == "batch")

    compiled = pliant.compile(fn, backend="native", background=False)
    for dtype in (torch.float32, torch.float64):
        for row in ([-0.0], [-0.0, -0.0], [-0.0, 1.0, -1.0]):
            x, w = torch.tensor([row, row], dtype=dtype), torch.full((len(row),), -1.0, dtype=dtype)
            want, found = fn(x, w), compiled(x, w)
            torch.testing.assert_close(found, want)
            assert torch.equal(torch.signbit(found), torch.signbit(want))
