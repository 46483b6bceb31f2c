"""Tensors as Python sees them: queries, sizes, iteration, indexing, factories, subclasses, numpy.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import math
import operator

import numpy as np
import pytest
import torch
from torch.nn import functional as F  # noqa: N812

from tests.programs.registry import cases, each, program, t

SHAPES = each(3, 5, 2)
WIDE = each(3, 5, 2, tail=(4,))


@program(*WIDE, captures=1, breaks=0)
def queries(x):
    return (
        x.shape, x.size(), x.size(0), x.size(-1), x.dim(), x.ndim, x.numel(), x.dtype, x.device, x.layout,
        x.stride(), x.stride(0), x.storage_offset(), x.is_contiguous(), x.requires_grad, x.is_leaf,
        x.is_floating_point(), x.is_complex(), x.element_size(), x.itemsize, x.nbytes,
        x.is_cuda, len(x), x.T.shape, x.mT.shape, torch.is_tensor(x), x.grad, x.is_sparse,
        torch.numel(x), torch.finfo(x.dtype).max, x.type(), x.device.type, str(x.dtype), x.nelement(), x.get_device(), x.is_meta,
    )  # fmt: skip


@program(*WIDE)
def queries_of_the_object_itself(x):
    y = x + 1
    return x.data_ptr() == x.data_ptr(), y.data_ptr() == x.data_ptr(), x.grad_fn, y.grad_fn, id(x) == id(x), id(x) == id(y), x._version >= 0


@program(*[(t(n, 4, dtype=d),) for n, d in ((3, torch.float32), (3, torch.float64), (5, torch.int64), (3, torch.bool),
    (3, torch.float16), (4, torch.float64))])
def dtypes(x):
    if x.dtype == torch.bool:
        return ~x
    if x.dtype.is_floating_point:
        return x / 2, x.to(torch.int32), x.float(), x.type(torch.float64), torch.result_type(x, 1), torch.promote_types(x.dtype, torch.int8)
    return x // 2, x % 3, x.float().mean(), x + 1.5


@program(*WIDE, breaks=0)
def sizes(x):
    s = x.shape
    n, m = s
    return (s[0], s[-1], s[:1], s + (2,), (1,) + tuple(s), len(s), list(s), s.numel(), n * m, s == torch.Size([n, m]), s == x.size(),
        4 in s, s.index(4), s.count(4), max(s), sum(s), math.prod(s), torch.Size([n]), [*s], {s: 1}[s], hash(s) == hash(tuple(s)),)


class Four:
    def __index__(self):
        return 4


def refused(items):
    try:
        return torch.Size(items)
    except TypeError as e:
        return str(e)


@program(*WIDE, breaks=0)
def sizes_of_what_has_an_index(x):
    n = (x == x).sum()
    s = torch.Size([n, Four(), np.int64(2), x.shape[0]])
    return s, torch.zeros(s), torch.ones(torch.Size((n,))), refused([2, x.sum() * 1.5]), refused([1.0]), refused([n, "a"]), refused([x])


@program(*WIDE, breaks=0)
def size_arithmetic(x):
    n = x.shape[0]
    return (x.new_zeros(n + 1), x.new_ones(n * 2, n // 2 + 1), torch.zeros((n - 1) % 7), torch.arange(n), x[: n // 2], x[n - 1],
        x.repeat(1, n), x.reshape(2, -1), x.view(n * 2, 2), torch.linspace(0, 1, n), torch.eye(n), n / 2, n**2, math.sqrt(n),
        math.ceil(n / 2), int(n * 0.5), -n, n % 3, divmod(n, 2), round(n / 3, 2), float(n), bool(n), f"{n}", x.flatten(0, 1).shape,
        x.expand(2, n, 4), x.unflatten(1, (2, 2)), x.split(2), x.chunk(2), x.narrow(0, 0, n - 1), F.pad(x, (n, 1)),
        F.interpolate(x[None], size=n),)


@program(*WIDE, breaks=0)
def size_comparisons(x):
    n, m = x.shape
    return (n > 1, n == m, n != m, n < 100, not n, n if n > 2 else m, [n, m] == [m, n], (n, 1) < (m, 2), n in (3, 5),
        {3: "three"}.get(n), [10, 20, 30, 40, 50, 60][n], n is None, isinstance(n, int), type(n), min(n, m), n & 1, n << 1, str(n),
        repr(n), hash(n) == hash(int(n)), range(n), "x" * n, [0] * n,)


@program(*WIDE, breaks=0)
def iteration(x):
    rows = list(x)
    a = [r.sum() for r in x]
    first, *rest = x.unbind(1)
    b = [i * r for i, r in enumerate(x)]
    return rows, a, first, rest, b, list(zip(x, x)), list(map(lambda r: r + 1, x)), sum(x), list(reversed(x)), [*x[0]]


@program(*each(4, 6, tail=(5,)), breaks=0)
def basic_indexing(x):
    n = x.shape[0]
    return (x[0], x[-1], x[1:3], x[::2], x[:, 1], x[..., -1], x[None], x[:, None], x[0, 0], x[1:, :-1], x[n - 1], x[slice(0, 2)],
        x[(0, 1)], x[..., None], x[:0], x[True], x[0:n:2, 1::3],)


@program(*each(4, 6, tail=(5,)))
def advanced_indexing(x):
    i = torch.tensor([0, 2])
    return (x[i], x[:, i], x[i, i], x[i, 1:], x[[0, 1]], x[x > 0], x[x[:, 0] > -9], x[i[:, None], i], x[None, i], x.take(i),
        x[torch.arange(x.shape[0])],)


@program(*each(4, 6, tail=(5,)))
def index_errors(x):
    out = []
    for f in (lambda: x[100], lambda: x[:, 9], lambda: x[0, 0, 0], lambda: x.view(7, 7), lambda: x @ x, lambda: x.size(4),
        lambda: torch.cat([x, x[0]]), lambda: x["a"], lambda: x.reshape(-1, 11), lambda: x.sum(3)):
        try:
            f()
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out, x + 1


@program(*SHAPES, breaks=0)
def factories(x):
    n = x.shape[0]
    return (
        torch.zeros(n), torch.ones(n, 2), torch.full((n,), 3), torch.full((2,), 1.5), torch.arange(0, n,
            2), torch.empty(n).shape, torch.tensor([1, 2]), torch.tensor([[1.0, n]]), torch.tensor(n), torch.eye(n, 2),
        torch.zeros_like(x), torch.ones_like(x, dtype=torch.int32), torch.full_like(x, 2), torch.arange(n,
            dtype=torch.float32), torch.zeros(x.shape), torch.zeros(*x.shape), x.new_full((n, 2), 1), x.new_tensor([1.0]),
        torch.as_tensor([1, n]), torch.scalar_tensor(2.0), torch.tril(torch.ones(n, n)), torch.linspace(0, 1,
            5), torch.zeros(0), torch.logspace(0, 1, 3), torch.tensor(True), torch.tensor([]), torch.zeros(size=(n,)),
        torch.tril_indices(3, 3), torch.meshgrid(torch.arange(2), torch.arange(n),
            indexing="ij"), torch.hann_window(4), torch.complex(x, x), torch.zeros(n, device="cpu", dtype=torch.bool),
    )  # fmt: skip


@program(*WIDE, breaks=0)
def operators(x):
    y = x + 1
    return (x + y, x - 1, 2 - x, x * 2, x / 3, x // 2, x % 2, x**2, 2**x, -x, +x, abs(x), x == y, x != y, x < y, x >= 0,
        (x > 0) & (y > 0), (x > 0) | (y > 0), (x > 0) ^ (y > 0), ~(x > 0), x @ y.t(), x.long() << 1, x.long() >> 1, 1 / (x + 10),
        divmod(x, 2) if False else 0, operator.add(x, y), x.__add__(1), torch.Tensor.add(x, 1), torch.add(x, y, alpha=2),)


@program(*WIDE, breaks=0)
def inplace_operators(x):
    y = x + 0
    z = y
    y += 1
    y -= x
    y *= 2
    y /= 3
    y **= 2
    y //= 0.5
    y %= 5
    m = x > 0
    m &= y > 0
    m |= y > 1
    m ^= y > 2
    k = x.long()
    k <<= 1
    k >>= 1
    w = x
    w @= torch.ones(4, 4)
    return y, y is z, m, k, w is x


@program(*WIDE, breaks=0)
def reductions(x):
    return (x.sum(), x.sum(0), x.sum(1, keepdim=True), x.mean(), x.max(), x.max(0), x.min(1)[1], x.argmax(), x.std(0),
        x.var(unbiased=False), x.prod(1), x.norm(), x.any(), x.all(1), x.amax((0, 1)), x.median(), x.logsumexp(1), x.cumsum(0),
        x.topk(2, 1), x.sort(0, descending=True), x.mode(1)[0], x.count_nonzero(), x.aminmax(), torch.std_mean(x),)


@program(*WIDE, breaks=0)
def shapes_and_layouts(x):
    return (x.t(), x.transpose(0, 1), x.permute(1, 0), x.unsqueeze(0).squeeze(), x.flatten(), x.reshape(-1), x.view(-1, 2),
        x.expand(3, *x.shape), x.flip(1), x.roll(1, 0), x.rot90(), x.movedim(0, 1), x.repeat(2, 1), x.tile(2),
        x.repeat_interleave(2, 0), torch.cat([x, x], 1), torch.stack([x, x], 1), torch.hstack([x, x]), torch.vstack((x, x)),
        x.split([1, 3], 1), x.chunk(3), x.unbind(1), x.diagonal(), x.triu(), x.unfold(1, 2, 1), torch.broadcast_to(x, (2, *x.shape)),
        x.swapaxes(0, 1), x.view_as(x), torch.atleast_3d(x), x.contiguous().is_contiguous(), x.t().contiguous(),
        x.as_strided((2, 2), (1, 1)),)


@program(*WIDE)
def writes_through_needless_views(x):
    a, b = x.t().t(), x.view_as(x).detach()
    a.zero_()
    b.add_(1)
    return a, [a], b, [b, x]


@program(*WIDE)
def linear_algebra(x):
    w = torch.ones(4, 3)
    return (x @ w, torch.mm(x, w), torch.matmul(x[None], w), torch.bmm(x[None], w[None]), torch.einsum("ij,jk->ki", x, w),
        F.linear(x, w.t()), torch.addmm(torch.zeros(3), x, w), torch.outer(x[0], x[1]), x[0].dot(x[1]), torch.mv(w.t(), x[0]),
        torch.tensordot(x, w, 1), torch.cdist(x, x), torch.linalg.norm(x), torch.linalg.inv(torch.eye(3) * 2),)


@program(*WIDE)
def functional(x):
    return (F.relu(x), F.gelu(x), F.silu(x), F.softmax(x, -1), F.log_softmax(x, 0), F.layer_norm(x, (4,)), F.normalize(x),
        F.pad(x, (1, 1)), F.one_hot(x.long().abs()), F.cosine_similarity(x, x), F.leaky_relu(x), F.softplus(x), F.hardtanh(x),
        F.glu(x), F.rms_norm(x, (4,)), F.scaled_dot_product_attention(x[None], x[None], x[None]), F.avg_pool1d(x[None], 2),
        F.embedding(torch.tensor([0, 1]), x), F.group_norm(x, 2), F.logsigmoid(x), F.threshold(x, 0.1, 2),)


@program(*WIDE)
def scatter_and_gather(x):
    i = torch.zeros_like(x, dtype=torch.long)
    j = torch.arange(x.shape[0]) % 2
    return (x.gather(0, i), torch.zeros(2, 4).index_add(0, j, x), torch.zeros_like(x).scatter_add(0, i, x),
        torch.zeros(2, 4).scatter_reduce(0, j[:, None].expand(-1, 4), x, "amax"), torch.bincount(j),
        torch.searchsorted(torch.tensor([0.0, 1.0]), x), torch.bucketize(x, torch.tensor([0.0])), torch.where(x > 0, x, 0.0),
        torch.where(x > 0), torch.isin(j, torch.tensor([1])),)


@program(*[(torch.tensor(v), torch.tensor(n)) for v, n in ((1.5, 2), (-2.0, 3), (0.0, 5))])
def scalars(x, n):
    return (x + 1, n * 2, x.item() * 2, int(n), float(x), bool(x > 0), n.item() + 1, torch.zeros(n), x.shape, x.dim(),
        [1, 2, 3, 4, 5, 6][n], list(range(n)), x.tolist(), math.floor(x), round(float(x)), f"{x:.2f}", x.numel(),)


@program(*SHAPES)
def numpy_interop(x):
    a = x.numpy()
    b = np.sin(a) + 1
    c = torch.from_numpy(b)
    a[0] = 100
    return c * 2, b, np.asarray(x).shape, torch.tensor(np.arange(3)), x.shape[0] * np.float32(2), np.int64(3) + 1


@program(*[(np.arange(n, dtype=np.float32), np.float64(n), np.int64(n)) for n in (3, 4)])
def numpy_arguments(a, f, i):
    return torch.from_numpy(a) * 2, a + 1, f * 2, i + 1, torch.zeros(int(i)), torch.tensor(a)


def copy_subclass(self, memo):
    with torch._C.DisableTorchFunctionSubclass():
        return self.clone().as_subclass(type(self))


class Logged(torch.Tensor):
    """A plain subclass with behaviour in __torch_function__."""

    __deepcopy__ = copy_subclass

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if func is torch.Tensor.add or func is torch.add:
            return out * 2
        return out


class Bare(torch.Tensor):
    __deepcopy__ = copy_subclass

    def twice(self):
        return self * 2


class Wrapper:
    def __init__(self, data):
        self.data = data

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        args = [a.data if isinstance(a, Wrapper) else a for a in args]
        return Wrapper(func(*args, **(kwargs or {})))


@program(*[(t(n).as_subclass(Logged),) for n in (3, 4)])
def torch_function_subclass(x):
    y = x.add(1)
    return y, torch.add(x, 2), type(y).__name__, x * 2


@program(*[(t(n).as_subclass(Bare),) for n in (3, 4)])
def bare_subclass(x):
    return x.twice(), type(x + 1), x.as_subclass(torch.Tensor), isinstance(x, Bare)


@program(*[(Wrapper(t(n)), t(n)) for n in (3, 4)])
def duck_tensor(w, x):
    return torch.add(w, 1).data, torch.mul(w, x), torch.sum(w).data


@program(*SHAPES)
def subclass_made_inside(x):
    b = x.as_subclass(Bare)
    return b.twice(), (b + 1).twice()


class Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.relu:
            return args[0] * 1000
        return func(*args, **(kwargs or {}))


@program(*SHAPES)
def torch_function_mode_inside(x):
    with Mode():
        y = torch.relu(x)
    return y, torch.relu(x)


@program(*[(t(2, n).to_sparse(),) for n in (3, 4)])
def sparse_arguments(s):
    return s.to_dense() * 2, (s * 2).to_dense(), s.is_sparse


@program(*SHAPES)
def complex_numbers(x):
    c = torch.complex(x, x + 1)
    return c * 1j, c.real, c.imag, c.abs(), c.conj(), torch.view_as_real(c), c.conj() * 2, torch.fft.fft(x), c.angle()


@program(*[(torch.nn.Parameter(t(n)), t(n)) for n in (3, 4)])
def parameter_argument(p, x):
    return p * x, type(p), isinstance(p, torch.nn.Parameter), p.requires_grad


@program(*[(t(0),), (t(1),), (t(3),), (t(0, 3),), (t(1, 1),), (t(),)])
def odd_shapes(x):
    return (x * 2, x.sum(), x.reshape(-1), x.numel(), x.unsqueeze(0), torch.cat([x.reshape(-1), x.reshape(-1)]), x.new_zeros(x.shape),
        x + torch.ones(x.shape),)


@program(*[(t(n, m), t(m)) for n, m in ((3, 4), (1, 4), (3, 1), (1, 1), (0, 4), (5, 2))], breaks=0)
def broadcasting(x, y):
    return x + y, x * y[None], x @ y, torch.where(x > y, x, y), torch.broadcast_shapes(x.shape, y.shape), x.expand_as(x), torch.max(x, y)


@program(*SHAPES)
def printing_tensors(x):
    return repr(x), str(x.shape), f"{x}", f"{x.shape[0]:>5}", "%s" % (x.dtype,), str(torch.float32)


@program(*SHAPES)
def torch_settings(x):
    return (torch.get_default_dtype(), torch.get_num_threads() > 0, torch.is_grad_enabled(), torch.__version__[:1],
        torch.cuda.is_available(), torch.backends.mkldnn.enabled in (True, False), x + torch.finfo(torch.float32).eps,)


@program(*[(torch.float64, torch.device("cpu"), t(n), torch.Size([n, 2])) for n in (3, 4)],
    (torch.int32, torch.device("cpu"), t(3), torch.Size([3, 4])))
def torch_objects_as_arguments(dtype, device, x, size):
    return x.to(dtype), torch.zeros(size, dtype=dtype, device=device), size[0] + 1, device.type


@program(*SHAPES, breaks=0, captures=1)
def attributes_of_tensor_types(x):
    """Of the class's metaclass, which come before what the class holds for its tensors."""
    kinds = torch.ByteTensor, torch.FloatTensor, torch.DoubleTensor, torch.BoolTensor
    return x + 1, [(k.dtype, k.is_cuda, k.layout, k.is_sparse) for k in kinds]


@program(*SHAPES)
def numbers_of_complex_tensors(x):
    found = []
    for c in (torch.tensor([2 + 0j]), torch.tensor([2 + 1j]), torch.tensor(-1.5 + 0j)):
        for kind in (int, float, complex, bool, lambda v: v.reshape(()).__int__()):
            try:
                found.append(kind(c))
            except RuntimeError as e:
                found.append(str(e))
    return x + 1, found


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
