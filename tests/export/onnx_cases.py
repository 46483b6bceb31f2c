"""Small programs, one or a few operators each, and inputs of several sizes: what `test_onnx_operators.py` runs in ONNX Runtime."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

SPECIAL = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, 1.5, 2.5, -0.5, -1.5, 1e-9, -1e-9, 1e9, 30.0, -30.0, 100.0]


def seeded(n: int) -> torch.Generator:
    return torch.Generator().manual_seed(n)


def floats(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(sum(shape))).to(dtype)


def ints(*shape: int, lo: int = -9, hi: int = 10, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(lo, hi, shape, generator=seeded(sum(shape) + 1)).to(dtype)


def odd(n: int) -> torch.Tensor:
    """n numbers, among them all that are not ordinary."""
    return torch.tensor((SPECIAL * (n // len(SPECIAL) + 1))[:n])


def bools(*shape: int) -> torch.Tensor:
    return floats(*shape) > 0


Make = Callable[[int], tuple]
one: Make = lambda n: (floats(n, 4),)
strange: Make = lambda n: (odd(n),)
two: Make = lambda n: (floats(n, 4), floats(4))
whole: Make = lambda n: (ints(n, 3), ints(n, 3, lo=1))
signed: Make = lambda n: (ints(n, 3), ints(n, 3, lo=1) * (2 * ints(n, 3, lo=0, hi=2) - 1))
image: Make = lambda n: (floats(2, 3, n + 4, n + 5),)

CASES: dict[str, tuple[Callable[..., Any], Make]] = {}


def case(name: str, make: Make, fn: Callable[..., Any]) -> None:
    assert name not in CASES
    CASES[name] = fn, make


# element by element ---------------------------------------------------------------------------------------------------------------
for _name in (
    "abs ceil floor round trunc frac sqrt rsqrt exp expm1 log log1p log2 log10 sin cos tan asin acos atan sinh cosh tanh asinh acosh atanh"
    " sigmoid erf erfc exp2 neg sign sgn reciprocal square isnan isinf isfinite relu logit nan_to_num positive deg2rad"
).split():
    case(_name, strange, getattr(torch, _name))
for _name in (
    "gelu silu mish softplus elu selu celu leaky_relu hardtanh hardsigmoid hardswish logsigmoid relu6 softsign tanhshrink softshrink"
    " hardshrink"
).split():
    case(_name, one, getattr(F, _name))
case("relu of nan", strange, torch.relu)
case("leaky_relu of nan", strange, F.leaky_relu)
case("clamp of nan", strange, lambda x: x.clamp(-1, 2))
case("hardtanh of nan", strange, lambda x: F.hardtanh(x, -2, 3))
case("threshold", one, lambda x: F.threshold(x, 0.2, 7.0))
case("gelu tanh", one, lambda x: F.gelu(x, approximate="tanh"))
case("softplus beta", one, lambda x: F.softplus(x * 10, 2.0, 5.0))
case("elu alpha", one, lambda x: F.elu(x, 0.7))
case("glu", one, lambda x: F.glu(x, -1))
case("prelu", lambda n: (floats(n, 4), floats(4)), F.prelu)
case("logit eps", one, lambda x: torch.logit(x, 1e-3))
case("nan_to_num set", strange, lambda x: torch.nan_to_num(x, 1.0, 2.0, -3.0))
case("round decimals", one, lambda x: torch.round(x, decimals=2))
case("round ints", lambda n: (ints(n),), lambda x: (x.floor(), x.ceil(), x.round(), x.trunc()))
case(
    "float of ints", lambda n: (ints(n, lo=1),), lambda x: (x.sqrt(), x.exp(), x.sin(), x.sigmoid(), torch.erf(x), x.log(), x.reciprocal())
)
case("neg ints", lambda n: (ints(n), ints(n, lo=0, dtype=torch.uint8), ints(n, dtype=torch.int8)), lambda *xs: tuple(-x for x in xs))
case("sign of ints", lambda n: (ints(n), ints(n, dtype=torch.int32)), lambda *xs: tuple(x.sign() for x in xs) + tuple(x.abs() for x in xs))
case("add alpha", two, lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=3), torch.rsub(x, y, alpha=2), 1 - x))
case("add bool", lambda n: (bools(n), bools(n)), lambda x, y: (x + y, x * y, x | y, x & y, x ^ y, ~x, torch.logical_xor(x, y)))
case("promotion", lambda n: (floats(n), ints(n), bools(n), ints(n, dtype=torch.int32)),
     lambda f, i, b, j: (f + i, i + b, i * 2.5, b + 1, j + i, f * b, j / 2, i / 3, i + 0.5, b * 1.5, j - b.long()))  # fmt: skip
case(
    "half",
    lambda n: (floats(n, 4, dtype=torch.float16), floats(n, 4, dtype=torch.bfloat16)),
    lambda x, y: (x + y, x * 0.1, y * 0.1, x.exp(), y.relu(), x.sum(1), y.mean(1), x.softmax(-1), x.amax(1), torch.where(x > 0, x, x + 1)),
)
case("half data", lambda n: (floats(n, 4, dtype=torch.float16), floats(n, 4, dtype=torch.bfloat16)),
     lambda x, y: (x.t(), y.t(), torch.cat([y, y]), y[1:], y.expand(2, -1, -1), F.pad(x, (1, 2)), F.pad(y, (1, 2)), x.repeat(2, 1),
                   y.clamp(-1, 1),
                   torch.tril(y), y.sort(-1)[0], y > x, y.masked_fill(y > 0, 2.0)))  # fmt: skip
case(
    "double",
    lambda n: (floats(n, 4, dtype=torch.float64),),
    lambda x: (x.exp(), x @ x.t(), x.softmax(-1), x.sum(1), x.relu(), x.sqrt(), x.sigmoid(), x.var(1)),
)
case("double narrowed", lambda n: (floats(n, 4, dtype=torch.float64),), lambda x: (F.gelu(x).float(), torch.erf(x).float()))
case(
    "small ints",
    lambda n: (ints(n, 4, dtype=torch.int8), ints(n, 4, lo=0, dtype=torch.uint8), ints(n, 4, dtype=torch.int16)),
    lambda a, b, c: (
        a + a * 20,
        b * 20 - 50,
        c // 3,
        a.sum(),
        b.amax(1),
        c.clamp(-2, 2),
        a < 3,
        c.cumsum(0),
        b.sort(-1)[0],
        torch.where(a > 0, a, -a),
        a == c,
    ),
)
case(
    "floor divide ints",
    signed,
    lambda x, y: (x // y, torch.div(x, y, rounding_mode="trunc"), x % y, torch.fmod(x, y), x // 3, x % -3, x // -4),
)
case(
    "floor divide floats",
    lambda n: (floats(n, 4) * 5, floats(n, 4) + 0.1),
    lambda x, y: (
        x // y,
        torch.div(x, y, rounding_mode="trunc"),
        x % y,
        torch.fmod(x, y),
        x // 0.3,
        x % -0.7,
        torch.remainder(2.0, y),
        x % 1,
    ),
)
case("divide odd floats", lambda n: (odd(n), odd(n + 3)[3:]), lambda x, y: (x // y, x % y, x / y, torch.fmod(x, y)))
case("divide", whole, lambda x, y: (x / y, x / 4, torch.true_divide(x, y)))
case(
    "pow",
    lambda n: (floats(n, 4).abs() + 0.1,),
    lambda x: (x**2, x**3, x**0.5, x**-0.5, x**-1, x**-2, x**2.7, 2.0**x, x**x, torch.pow(x, 0)),
)
case("pow ints", lambda n: (ints(n, lo=0), ints(n, lo=0, hi=5)), lambda x, y: (x**2, x**3, x**7, x**0, x**y, 2**y, x.int() ** 3))
case("pow large", lambda n: (ints(n, lo=3, hi=4),), lambda x: (x**39, x**31))
case("atan2", lambda n: (odd(n), odd(n + 5)[5:]), torch.atan2)
case(
    "lerp",
    lambda n: (floats(n), floats(n), floats(n)),
    lambda a, b, c: (torch.lerp(a, b, 0.3), torch.lerp(a, b, c), torch.addcmul(a, b, c, value=2), torch.addcdiv(a, b, c + 5)),
)
case("minimum maximum", lambda n: (odd(n), odd(n + 5)[5:]), lambda x, y: (torch.minimum(x, y), torch.maximum(x, y)))
case(
    "compare",
    lambda n: (odd(n), odd(n + 5)[5:], ints(n)),
    lambda x, y, i: (x == y, x != y, x < y, x <= y, x > y, x >= y, i > 0.5, i == 2, x < i, i <= i + 1),
)
case(
    "logical",
    lambda n: (odd(n), ints(n)),
    lambda x, i: (torch.logical_and(x, i), torch.logical_or(x, i), torch.logical_not(x), x.bool(), i.bool()),
)
case("bits", whole, lambda x, y: (x & y, x | y, x ^ y, ~x, x & 6, x << 2, x >> 1, x << y.clamp(0, 3)))
case(
    "where",
    lambda n: (bools(n, 1), floats(n, 4), ints(n, 4)),
    lambda c, x, i: (torch.where(c, x, i), torch.where(c, x, 0), torch.where(c, 1.0, i), x.masked_fill(c, -1), i.masked_fill(c, 7)),
)
case(
    "clamp",
    lambda n: (floats(n), ints(n), floats(n)),
    lambda x, i, y: (x.clamp(min=-0.2), x.clamp(max=0.3), i.clamp(-2, 3), x.clamp(y - 1, y), i.clamp(0.5, 2.5)),
)
case(
    "cast",
    lambda n: (floats(n) * 9, ints(n), odd(n)),
    lambda x, i, y: (x.long(), x.int(), i.float(), i.to(torch.int8), x.double(), y.bool(), x.half(), i.to(torch.uint8)),
)
case("logaddexp", lambda n: (odd(n), odd(n + 5)[5:]), lambda x, y: (torch.logaddexp(x, y), torch.xlogy(x, y)))
case("heaviside", lambda n: (floats(n), floats(n)), torch.heaviside)

# reductions --------------------------------------------------------------------------------------------------------------------------
case(
    "sum",
    lambda n: (floats(n, 4), ints(n, 4), bools(n, 4)),
    lambda x, i, b: (x.sum(), x.sum(0), x.sum(-1, keepdim=True), i.sum(0), b.sum(), i.sum(dtype=torch.float32), x.sum([0, 1])),
)
case(
    "mean",
    lambda n: (floats(n, 4), ints(n, 4)),
    lambda x, i: (x.mean(), x.mean(0), x.mean((0, 1), keepdim=True), i.mean(dtype=torch.float32)),
)
case(
    "mean of nothing", lambda n: (floats(n, 3)[:0], ints(n)), lambda x, i: (x.mean(0), x.sum(0), x.prod(0), x.all(0), x.any(), x.sum(1), i)
)
case(
    "var",
    lambda n: (floats(n + 1, 4),),
    lambda x: (x.var(), x.var(0), x.std(0, unbiased=False), torch.var_mean(x, 1, correction=0), torch.std_mean(x, 0)),
)
case("var of one", lambda n: (floats(1, n),), lambda x: (x.var(0), x.std(0)))
case("prod", lambda n: (floats(n, 4), ints(n, 4)), lambda x, i: (x.prod(), x.prod(1), i.prod(0), x.prod(0, keepdim=True)))
case(
    "any all",
    lambda n: (bools(n, 4), ints(n, 4)),
    lambda b, i: (b.any(), b.any(0), b.all(1), b.all(), i.any(1), i.all(0), torch.any(b, (0, 1))),
)
case(
    "extrema",
    lambda n: (floats(n, 4), ints(n, 4)),
    lambda x, i: (x.amax(0), x.amin((0, 1)), x.max(), i.min(), x.max(1), i.min(0), x.max(1, keepdim=True), x.aminmax(dim=0)),
)
case(
    "extrema of nan",
    lambda n: (odd(n).repeat(2, 1), odd(n)),
    lambda x, y: (x.max(1), x.min(0), y.argmax(), y.argmin(), x.amax(1), x.argmax(1)),
)
case("argmax", lambda n: (ints(n, 4), floats(n, 4)), lambda i, x: (i.argmax(), i.argmax(1), i.argmin(0, keepdim=True), x.argmax(-1)))
case(
    "softmax",
    lambda n: (floats(n, 4), torch.full((n, 4), -math.inf)),
    lambda x, y: (x.softmax(0), x.log_softmax(-1), y.softmax(-1), torch.logsumexp(x, 0), torch.logsumexp(y, 1)),
)
case(
    "norm",
    lambda n: (floats(n, 4),),
    lambda x: (x.norm(), x.norm(dim=1), x.norm(1, dim=0), x.norm(math.inf, dim=1), x.norm(3, dim=1), F.normalize(x, dim=1)),
)
case("cumsum", lambda n: (floats(n, 4), ints(n, 4), bools(n)), lambda x, i, b: (x.cumsum(0), i.cumsum(1), b.cumsum(0), x.cumsum(-1)))
case(
    "sort",
    lambda n: (ints(n, 5, hi=0), floats(n)),
    lambda i, x: (i.sort(dim=-1, stable=True), i.sort(dim=0, descending=True, stable=True), x.argsort(), x.sort()[0]),
)
case("topk", lambda n: (floats(n, 9),), lambda x: (x.topk(3), x.topk(2, largest=False), x.topk(1, dim=0)))
case("count_nonzero", lambda n: (ints(n, 4),), lambda x: (torch.count_nonzero(x), torch.count_nonzero(x, 1)))

# shapes ----------------------------------------------------------------------------------------------------------------------------
case(
    "views",
    lambda n: (floats(n, 4, 6),),
    lambda x: (
        x.view(-1, 6),
        x.reshape(x.shape[0], 2, 2, 6),
        x.flatten(),
        x.transpose(0, 2),
        x.permute(2, 0, 1),
        x[None],
        x.unsqueeze(-1).squeeze(-1),
        x.unflatten(2, (2, 3)),
    ),
)
case("squeeze", lambda n: (floats(n + 1, 3),), lambda x: (x[None].squeeze(0), x[:, None, :, None].squeeze((1, 3))))
case(
    "select slice",
    lambda n: (floats(n, 9),),
    lambda x: (x[0], x[-1], x[:, 2:7], x[:, ::3], x[:, -4:], x[:, 1:-1:2], x[:2], x[100:], x.narrow(1, 2, 3), x[..., 5]),
)
case(
    "split",
    lambda n: (floats(n, 9),),
    lambda x: (x.split(4, 1), x.split([2, 3, 4], 1), x.chunk(2, 1), x.unbind(1)[3], x[:, :4].tensor_split(2, 1)),
)
case(
    "cat",
    lambda n: (floats(n, 4), ints(n, 4)),
    lambda x, i: (
        torch.cat([x, x], 1),
        torch.cat([x, i]),
        torch.stack([x, x + 1], 1),
        torch.cat([torch.zeros(0), x]),
        torch.hstack([x, x]),
    ),
)
def overlapping_chunks(x):
    """Of four rows, each beginning in the middle of the one before; of a tensor whose first dim is not the outermost in memory."""
    x = (x * 2).transpose(0, 1)
    x = x.view(3, x.shape[1] // 4, 4, 2)
    sizes, strides = [*x.shape], [*x.stride()]
    sizes[1], strides[1] = sizes[1] * 2 - 1, strides[1] // 2
    return x.as_strided(sizes, strides)


case("flip roll", lambda n: (floats(n, 4),), lambda x: (x.flip(0), x.flip(0, 1), x.roll(1, 0), x.roll((2, -1), (0, 1)), x.roll(3)))
case("roll nothing", lambda n: (floats(n, 4), floats(n)[:0]), lambda x, e: (x.roll(-1, 0), e.roll(1, 0)))
case(
    "repeat",
    lambda n: (floats(n, 2),),
    lambda x: (x.repeat(2, 3), x.repeat(2, 1, 1), x.expand(3, -1, -1), x.tile(2), x.repeat_interleave(2, 0)),
)
case("unfold", lambda n: (floats(n + 5, 3),), lambda x: (x.unfold(0, 3, 2), x.unfold(1, 2, 1)))
case(
    "diagonal",
    lambda n: (floats(n, 4),),
    lambda x: (x.diagonal(), x.diagonal(1), x[:, :, None].expand(-1, -1, 4).diagonal(0, 1, 2), torch.diag_embed(x)),
)
case("as_strided", lambda n: (floats(n + 3, 4),), lambda x: x.as_strided((3, 2), (4, 1), 1))
case("overlapping chunks", lambda n: (floats(4 * n, 3, 2),), overlapping_chunks)
case(
    "pad",
    lambda n: (floats(n, 3, 5), ints(n, 5)),
    lambda x, i: (
        F.pad(x, (1, 2)),
        F.pad(x, (1, 2, 0, 3), value=7.0),
        F.pad(x, (-1, -1)),
        F.pad(i, (2, 0), value=3),
        F.pad(x, (1, 2), mode="reflect"),
        F.pad(x, (3, 2), mode="replicate"),
    ),
)
case("pad sizes", lambda n: (floats(n, 3),), lambda x: F.pad(x, (0, x.shape[0], 8 - x.shape[0] % 8, 0)))
case(
    "pad 2d",
    lambda n: (floats(2, 3, n + 3, 5),),
    lambda x: (F.pad(x, (1, 2, 2, 1), mode="reflect"), F.pad(x, (3, 2, 1, 0), mode="replicate")),
)
case("tri", lambda n: (floats(n, 4), ints(n, n), bools(n, n)), lambda x, i, b: (x.tril(), x.triu(1), i.tril(-1), b.triu(), b.tril(1)))
case(
    "constants",
    lambda n: (floats(n, 4),),
    lambda x: (
        torch.zeros_like(x),
        torch.ones(x.shape[0]),
        x.new_full((2, x.shape[0]), 3),
        torch.full_like(x, -1, dtype=torch.int64),
        torch.eye(x.shape[0]),
        torch.full((x.shape[0],), math.inf),
    ),
)
case(
    "arange",
    lambda n: (floats(n, 4),),
    lambda x: (
        torch.arange(x.shape[0]),
        torch.arange(2, x.shape[0] + 2),
        torch.arange(0, 3 * x.shape[0], 3),
        torch.arange(x.shape[0], dtype=torch.float32) * 0.1,
        torch.arange(x.shape[0], 0, -1),
        torch.arange(0, 1, 0.1),
        torch.linspace(0, 1, 7),
    ),
)
case(
    "slice_scatter",
    lambda n: (floats(n + 2, 6), floats(n + 2, 2)),
    lambda x, y: (
        torch.slice_scatter(x, y, 1, 2, 4),
        torch.select_scatter(x, y[:, 0], 1, -1),
        torch.slice_scatter(x, x[:, :3] * 0, 1, 0, 6, 2),
    ),
)
case("writes", lambda n: (floats(n + 2, 6),), lambda x: written(x))
case("pixel_shuffle", lambda n: (floats(2, 8, n, 3),), lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(F.pixel_shuffle(x, 2), 2)))
case("meshgrid", lambda n: (floats(n), floats(4)), lambda x, y: torch.meshgrid(x, y, indexing="ij"))
case(
    "size arithmetic",
    lambda n: (floats(n, 4), floats(n + 3)),
    lambda x, y: (
        x.new_ones(x.shape[0] // 2 + y.shape[0] % 3, max(x.shape[0], 3), min(y.shape[0], 5)),
        x.shape[0] * 2 - y.shape[0],
        (x.shape[0] - 9) // 4,
        (3 - x.shape[0]) % 5,
        x.shape[0] / 3,
    ),
)


def written(x: torch.Tensor) -> tuple:
    y = x.clone()
    y[:, 1] = 5.0
    y[1:, 2:4] += 1
    y.transpose(0, 1)[0] = -1
    z = torch.zeros(x.shape[0], 2)
    z.copy_(x[:, :2])
    z[z > 0] = 9.0
    return y, z


# indices ------------------------------------------------------------------------------------------------------------------------------
case("embedding", lambda n: (ints(n, 3, lo=0, hi=7), floats(7, 5)), lambda i, w: F.embedding(i, w))
case("gather", lambda n: (floats(n, 6), ints(n, 3, lo=0, hi=6)), lambda x, i: (x.gather(1, i), x.take(i[:1]), x.index_select(1, i[0])))
case(
    "index",
    lambda n: (floats(n, 6, 5), ints(n, lo=-5, hi=5), ints(n, lo=0, hi=5)),
    lambda x, i, j: (x[:, i], x[:, i, j], x[:, [0, 2]], x[..., i], x[:, :, [1]], x[:, i[:, None], j]),
)
case("index apart", lambda n: (floats(5, n, 6), ints(4, lo=0, hi=5)), lambda x, i: (x[i, :, i], x[i][:, :, i], x[i, :, 2]))
case("index mask", lambda n: (floats(n, 6), bools(n, 6), bools(n)), lambda x, m, r: (x[m], x[r], x.masked_select(m), x[r, 1]))
case(
    "index_put",
    lambda n: (floats(n + 4, 6), ints(3, lo=0, hi=4), floats(3)),
    lambda x, i, v: (x.index_put((i, i), v), x.index_put((i,), torch.tensor(1.0)), x.index_put((i, i), v, accumulate=True)),
)
case(
    "index_put mask",
    lambda n: (floats(n, 6), bools(n, 6)),
    lambda x, m: (x.masked_fill(m, 0.0), torch.index_put(x, (m,), torch.tensor(3.0))),
)
case(
    "scatter",
    lambda n: (floats(n, 6), ints(n, 3, lo=0, hi=6), floats(n, 4)),
    lambda x, i, v: (
        x.scatter(1, i[:, :1], v),
        x.scatter(1, i[:, :1], 9.0),
        x.scatter_add(1, i, v),
        x.scatter_reduce(1, i, v[:, :3], "amax"),
        x.scatter_reduce(1, i, v[:, :3], "sum", include_self=False),
        x.scatter_reduce(1, i, v[:, :3], "mean"),
        x.scatter_reduce(1, i, v[:, :3], "mean", include_self=False),
    ),
)
case(
    "index_add",
    lambda n: (floats(5, n), ints(7, lo=0, hi=5), floats(7, n)),
    lambda x, i, v: (x.index_add(0, i, v), x.index_add(0, i, v, alpha=2), x.index_fill(0, i, 3.0)),
)
case("index_copy", lambda n: (floats(5, n), floats(2, n)), lambda x, v: x.index_copy(0, torch.tensor([3, 1]), v))
case("masked_scatter", lambda n: (floats(n, 6), bools(n, 6), floats(n, 6)), lambda x, m, v: x.masked_scatter(m, v))
case(
    "nonzero",
    lambda n: (ints(n, 3, lo=-1, hi=2), bools(n)),
    lambda x, b: (x.nonzero(), b.nonzero(), b.nonzero(as_tuple=True)[0], torch.where(b)[0]),
)
case("nonzero of one", lambda n: (floats(n),), lambda x: ((x.sum() > 0).nonzero(), x))
case(
    "unique",
    lambda n: (ints(n), floats(n)),
    lambda i, x: (
        torch.unique(i),
        torch.unique(i, return_inverse=True, return_counts=True),
        torch.unique(x),
        torch.unique(i.view(-1, 1), dim=0),
    ),
)
case("unique_consecutive", lambda n: (ints(n, lo=0, hi=2),), lambda i: torch.unique_consecutive(i, return_inverse=True, return_counts=True))
case(
    "item",
    lambda n: (floats(n), ints(n), bools(n)),
    lambda x, i, b: (x.sum().item(), i.sum().item(), x * i.max().item(), x * x.mean().item()),
)
case(
    "repeat_interleave",
    lambda n: (floats(n, 3), ints(n, lo=0, hi=4)),
    lambda x, i: (torch.repeat_interleave(x, i, 0), torch.repeat_interleave(i)),
)
case("histc", lambda n: (floats(n, 4) * 3,), lambda x: (torch.histc(x, 5, -2, 2), torch.histc(x.round(), bins=4, min=0, max=3)))
for _reduction in ("none", "sum", "mean"):
    case(
        f"nll_loss {_reduction}",
        lambda n: (floats(n, 7), ints(n, lo=0, hi=7), floats(7).abs()),
        lambda x, t, w, _r=_reduction: (
            F.cross_entropy(x, t, reduction=_r, ignore_index=3), F.nll_loss(x, t, w, reduction=_r), F.nll_loss(x, t, reduction=_r),
        ),
    )  # fmt: skip
case("nll_loss2d", lambda n: (floats(n, 5, 3, 2), ints(n, 3, 2, lo=0, hi=5)), lambda x, t: F.cross_entropy(x, t, ignore_index=2))
case("_is_all_true", lambda n: (floats(n) > -9,), lambda x: (torch._is_all_true(x), torch._is_all_true(~x)))
case("polar", lambda n: (floats(n, 4).abs(), floats(n, 4)), lambda a, b: torch.view_as_real(torch.polar(a, b)))
case("bincount", lambda n: (ints(n, lo=0, hi=9),), lambda i: (torch.bincount(i), torch.bincount(i, minlength=12)))
case("one_hot", lambda n: (ints(n, lo=0, hi=5),), lambda i: F.one_hot(i, 5))
case(
    "bucketize",
    lambda n: (floats(n), torch.tensor([-1.0, 0.0, 0.5, 2.0])),
    lambda x, b: (torch.bucketize(x, b), torch.bucketize(x, b, right=True), torch.searchsorted(b, x)),
)
case("isin", lambda n: (ints(n), ints(3)), lambda x, y: (torch.isin(x, y), torch.isin(x, y, invert=True)))

# networks ------------------------------------------------------------------------------------------------------------------------------
case(
    "matmul",
    lambda n: (floats(n, 4), floats(4, 3), floats(2, n, 4), floats(4)),
    lambda a, b, c, v: (a @ b, c @ b, a @ v, c @ v, v @ v, torch.outer(v, v), c @ c.transpose(1, 2), torch.einsum("bij,kj->bik", c, b.t())),
)
case(
    "addmm",
    lambda n: (floats(3), floats(n, 4), floats(4, 3)),
    lambda c, a, b: (torch.addmm(c, a, b), torch.addmm(c, a, b, beta=0.5, alpha=2), torch.addmm(c, a, b, beta=0)),
)
case(
    "baddbmm",
    lambda n: (floats(2, n, 3), floats(2, n, 4), floats(2, 4, 3)),
    lambda c, a, b: (torch.baddbmm(c, a, b), torch.baddbmm(c, a, b, beta=2, alpha=0.5)),
)
case("int matmul", lambda n: (ints(n, 4), ints(4, 3)), lambda a, b: a @ b)
case("matmul of nothing", lambda n: (floats(n, 4)[:, :0], floats(4, 3)[:0]), lambda a, b: (a @ b, F.linear(a, b.t(), torch.ones(3))))
case(
    "linear",
    lambda n: (floats(2, n, 4), floats(3, 4), floats(3)),
    lambda x, w, b: (F.linear(x, w, b), F.linear(x, w), F.linear(x[0], w, b), F.linear(x[0, 0], w, b)),
)
case("cdist", lambda n: (floats(n, 4), floats(5, 4)), lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1.0)))
case(
    "conv1d",
    lambda n: (floats(2, 4, n + 6), floats(6, 2, 3), floats(6)),
    lambda x, w, b: (F.conv1d(x, w, b, groups=2), F.conv1d(x, w, stride=2, padding=1, dilation=2, groups=2), F.conv1d(x[0], w, groups=2)),
)
case(
    "conv2d",
    lambda n: (floats(2, 3, n + 4, n + 5), floats(4, 3, 3, 2), floats(4)),
    lambda x, w, b: (F.conv2d(x, w, b), F.conv2d(x, w, b, stride=2, padding=1)),
)
case("conv3d", lambda n: (floats(1, 2, 4, n + 3, 5), floats(3, 2, 2, 3, 2)), lambda x, w: F.conv3d(x, w, padding=1))
case(
    "conv_transpose",
    lambda n: (floats(2, 3, n + 2, 4), floats(3, 4, 3, 2), floats(4)),
    lambda x, w, b: (F.conv_transpose2d(x, w, b, stride=2, output_padding=1), F.conv_transpose1d(x[..., 0], w[..., 0], b)),
)
case("unfold 2d", image, lambda x: (F.unfold(x, (2, 3), padding=1, stride=2), F.unfold(x, 2, dilation=2)))
case("fold", lambda n: (floats(2, 12, 20),), lambda x: F.fold(x, (5, 6), (2, 2)))
case(
    "layer_norm",
    lambda n: (floats(n, 3, 4), floats(4), floats(4)),
    lambda x, w, b: (F.layer_norm(x, (4,), w, b), F.layer_norm(x, (4,)), F.layer_norm(x, (3, 4)), F.rms_norm(x, (4,), w)),
)
case("layer_norm sizes", lambda n: (floats(3, n + 1),), lambda x: F.layer_norm(x, (x.shape[1],)))
case(
    "group_norm",
    lambda n: (floats(2, 6, n + 1), floats(6), floats(6)),
    lambda x, w, b: (F.group_norm(x, 3, w, b), F.group_norm(x, 2), F.instance_norm(x, weight=w, bias=b)),
)
case(
    "batch_norm",
    lambda n: (floats(n + 2, 6, 3), floats(6), floats(6), floats(6), floats(6).abs()),
    lambda x, w, b, m, v: (F.batch_norm(x, m, v, w, b), F.batch_norm(x, m, v), F.batch_norm(x, None, None, w, b, training=True)),
)
case(
    "attention",
    lambda n: (floats(2, 4, n, 8), floats(2, 4, 6, 8), bools(n, 6)),
    lambda q, k, m: (
        F.scaled_dot_product_attention(q, k, k),
        F.scaled_dot_product_attention(q, k, k, attn_mask=m),
        F.scaled_dot_product_attention(q, k, k, attn_mask=m.float()),
        F.scaled_dot_product_attention(q, q, q, is_causal=True),
        F.scaled_dot_product_attention(q, k, k, scale=0.5),
    ),
)
case(
    "attention masked",
    lambda n: (floats(1, 2, n, 8), torch.full((n, n), -math.inf)),
    lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m.triu(1) + m.tril(-10)),
)
case(
    "attention none",
    lambda n: (floats(1, 2, n, 8), torch.zeros(n, n, dtype=torch.bool)),
    lambda q, m: F.scaled_dot_product_attention(q, q, q, attn_mask=m),
)
case(
    "attention groups",
    lambda n: (floats(2, 4, n, 8), floats(2, 2, 6, 8)),
    lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
)
case(
    "max_pool",
    image,
    lambda x: (
        F.max_pool2d(x, 2),
        F.max_pool2d(x, 3, 2, 1),
        F.max_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.max_pool2d(x, 2, 1, dilation=2),
        F.max_pool2d(x, 2, return_indices=True),
    ),
)
case(
    "avg_pool",
    image,
    lambda x: (
        F.avg_pool2d(x, 2),
        F.avg_pool2d(x, 3, 2, 1),
        F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        F.avg_pool2d(x, 3, 2, 1, True, False),
        F.avg_pool2d(x, 2, divisor_override=3),
        F.avg_pool1d(x[0], 2),
    ),
)
case(
    "adaptive pool",
    image,
    lambda x: (
        F.adaptive_avg_pool2d(x, 1),
        F.adaptive_avg_pool2d(x, (3, 2)),
        F.adaptive_max_pool2d(x, (2, 3)),
        F.adaptive_avg_pool2d(x, (None, 2)),
        F.adaptive_avg_pool1d(x[0], 3),
    ),
)
case(
    "nearest",
    image,
    lambda x: (
        F.interpolate(x, scale_factor=2),
        F.interpolate(x, (7, 3)),
        F.interpolate(x, scale_factor=0.7),
        F.interpolate(x, size=(5, 9), mode="nearest-exact"),
        F.interpolate(x[0], size=6),
    ),
)
case(
    "bilinear",
    image,
    lambda x: (
        F.interpolate(x, scale_factor=2, mode="bilinear"),
        F.interpolate(x, (7, 3), mode="bilinear", align_corners=True),
        F.interpolate(x, (5, 9), mode="bilinear"),
        F.interpolate(x[0], 9, mode="linear"),
    ),
)
case(
    "bicubic",
    image,
    lambda x: (F.interpolate(x, (7, 3), mode="bicubic"), F.interpolate(x, scale_factor=1.5, mode="bicubic", align_corners=True)),
)
case("dropout", one, lambda x: F.dropout(x, 0.5, training=False))
case("fmin fmax", lambda n: (odd(n), odd(n + 5)[5:]), lambda x, y: (torch.fmin(x, y), torch.fmax(x, y), torch.hypot(x, y)))
case("trace", lambda n: (floats(n, 4), ints(n, 4)), lambda x, i: (x.trace(), i.trace()))
case(
    "diagonal_scatter",
    lambda n: (floats(n + 1, 4), floats(n + 1)),
    lambda x, v: (torch.diagonal_scatter(x[:, :1], v[:1]), filled_diagonal(x)),
)
case(
    "scatter halves and bools",
    lambda n: (floats(n, 6, dtype=torch.float16), bools(n, 6), ints(n, 3, lo=0, hi=6)),
    lambda x, b, i: (
        x.scatter_add(1, i, x),
        b.scatter_reduce(1, i, b, "amax"),
        b.scatter(1, i, True),
        x.index_add(0, torch.tensor([0]), x[:1]),
    ),
)
case(
    "rows of nothing",
    lambda n: (floats(n).sum(), torch.tensor(0), floats(n)),
    lambda x, i, y: (x.index_add(0, i, x), x.index_select(0, i), x.gather(0, i), y.index_fill(0, i, 2.0)),
)


def filled_diagonal(x: torch.Tensor) -> torch.Tensor:
    y = x[:, :2].clone() * 2
    y.diagonal(1).mul_(0)
    return y


def spectrum(x: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(x.unfold(-1, 16, 4) * torch.hann_window(16)).abs()


case(
    "fft",
    lambda n: (floats(3, n),),
    lambda x: (
        torch.fft.fft(x).real,
        torch.fft.fft(x).imag,
        torch.fft.rfft(x).abs(),
        torch.fft.ifft(x, norm="ortho").imag,
    ),
)
case(
    "inverse fft",
    lambda n: (floats(3, n + 1),),
    lambda x: (torch.fft.irfft(torch.fft.rfft(x), n=x.shape[1]), torch.view_as_real(torch.fft.rfft(x) * (2 + 1j))),
)
case("spectrum", lambda n: (floats(2, 16 * n + 32),), spectrum)
