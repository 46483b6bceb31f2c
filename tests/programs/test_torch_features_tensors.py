"""Functions and methods of tensors, with the forms that their arguments take: one graph each for sizes that change.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import math

import pytest
import torch

from tests.programs.registry import cases, each, programs, t

F = torch.nn.functional
WHOLE = {"breaks": 0, "captures": 1}
BACK = {"grad": True, **WHOLE}
ROWS = each(3, 5, 2, tail=(4,))
TWO = each(3, 5, 2, tail=(4,), n=2)
GRADS = each(3, 5, 2, tail=(4,), grad=True)
GRADS2 = each(3, 5, 2, tail=(4,), n=2, grad=True)
INTS = each(3, 5, 2, tail=(4,), dtype=torch.int64)
CUBES = each(2, 3, 5, tail=(4, 6))
IMAGES = [(t(2, 3, n, n + 2, grad=True),) for n in (6, 9, 8)]

programs(__name__, *ROWS, **WHOLE)({
    # -- making tensors
    "arange_forms": lambda x: (torch.arange(x.shape[0]), torch.arange(1, x.shape[0] + 3), torch.arange(0, 9, x.shape[0]),
                               torch.arange(x.shape[0], 0, -1), torch.arange(0.0, 1.0, 0.25), torch.arange(end=x.shape[0] * 2, dtype=torch.float64)),
    "linspace_forms": lambda x: (torch.linspace(0, 1, 5), torch.linspace(0, 1, x.shape[0]), torch.linspace(-1, x.shape[0], 7, dtype=torch.float64),
                                 torch.linspace(x[0, 0], x[0, 1], 3)),
    "logspace_forms": lambda x: (torch.logspace(0, 1, 5), torch.logspace(0, 1, x.shape[0], base=2.0), torch.logspace(0, 2, x.shape[0] + 1)),
    "full_forms": lambda x: (torch.full((x.shape[0], 2), 3), torch.full((2,), 1.5), torch.full((x.shape[0],), True),
                             torch.full_like(x, 2.0), torch.full_like(x, 2, dtype=torch.int32), x.new_full((x.shape[0] + 1,), 7)),
    "zeros_forms": lambda x: (torch.zeros(x.shape), torch.zeros(x.shape[0], 2), torch.zeros([x.shape[0]]), torch.zeros(()),
                              torch.zeros_like(x, dtype=torch.bool), x.new_zeros(x.size(0), 3), torch.zeros(*x.shape, dtype=torch.int8)),
    "ones_forms": lambda x: (torch.ones(x.shape) * x, torch.ones(2, x.shape[0]), torch.ones_like(x, dtype=torch.float64), x.new_ones((2, 2))),
    "empty_forms": lambda x: (torch.empty(x.shape).fill_(1), torch.empty_like(x).zero_(), x.new_empty(x.shape[0]).fill_(2),
                              torch.empty_strided((2, 3), (3, 1)).fill_(0), torch.empty((x.shape[0], 2), dtype=torch.int64).fill_(4)),
    "eye_forms": lambda x: (torch.eye(3), torch.eye(x.shape[0]), torch.eye(x.shape[0], 4), torch.eye(2, dtype=torch.int64)),
    "tensor_forms": lambda x: (torch.tensor(3), torch.tensor([1.0, 2.0]), torch.tensor([[1, 2], [3, 4]]), torch.tensor(x.shape[0]),
                               torch.tensor([x.shape[0], 2]), torch.tensor(True), torch.tensor([1, 2], dtype=torch.float64), torch.tensor([])),
    "as_tensor_forms": lambda x: (torch.as_tensor(x), torch.as_tensor([1, 2]), torch.as_tensor(x, dtype=torch.float64), torch.asarray(x) is x),
    "scalar_tensor": lambda x: (torch.scalar_tensor(2.5), torch.scalar_tensor(x.shape[0])),
    "tri_indices": lambda x: (torch.tril_indices(x.shape[0], 4), torch.triu_indices(4, x.shape[0], offset=1), torch.tril_indices(3, 3)),
    "windows": lambda x: (torch.hann_window(8), torch.hamming_window(x.shape[0] + 3), torch.bartlett_window(6, periodic=False),
                          torch.blackman_window(x.shape[0] + 4), torch.kaiser_window(5)),
    "vander_and_cauchy": lambda x: (torch.vander(x[:, 0]), torch.vander(x[0], N=3, increasing=True), torch.outer(x[0], x[:, 0])),
    "cartesian": lambda x: (torch.cartesian_prod(x[0], x[:, 1]), torch.combinations(x[0]), torch.combinations(x[0], r=3)),
    "meshgrids": lambda x: (torch.meshgrid(x[:, 0], x[0], indexing="ij"), torch.meshgrid(x[:, 0], x[0], indexing="xy")),
    "complex_made": lambda x: (torch.complex(x, x + 1), torch.polar(x.abs(), x), x.to(torch.complex64), torch.view_as_complex(x.reshape(-1, 2))),
    # -- shapes
    "sizes_asked": lambda x: (x.shape, x.size(), x.size(0), x.size(-1), x.stride(), x.stride(0), x.numel(), x.dim(), x.ndim, x.nelement(), len(x)),
    "metadata_asked": lambda x: (x.dtype, x.device, x.layout, x.is_contiguous(), x.is_floating_point(), x.is_complex(), x.requires_grad,
                                 x.is_leaf, x.element_size(), x.itemsize, x.nbytes, x.storage_offset(), x.is_sparse, x.is_quantized),
    "types_asked": lambda x: (x.type(), x.is_same_size(x), torch.is_tensor(x), torch.is_floating_point(x), torch.numel(x), torch.is_nonzero(x.new_ones(1)[0] > 0)),
    "tuple_of_shape": lambda x: (tuple(x.shape), list(x.shape), x.shape[::-1], x.shape + (1,), x.shape.numel(), x.shape[0] in x.shape, x.shape == x.T.shape),
    "transposes": lambda x: (x.T, x.t(), x.mT, x.transpose(0, 1), x.swapaxes(0, 1), x.swapdims(-1, 0), torch.adjoint(x), x.H),
    "squeezes": lambda x: (x[None].squeeze(0), x[:, None].squeeze(), x[:, None, :, None].squeeze((1, 3)), x.unsqueeze(-1), torch.unsqueeze(x, 0)),
    "flattens": lambda x: (x.flatten(), torch.flatten(x[None], 1), x[None].flatten(0, 1), x.ravel(), x.reshape(-1), x.view(-1), x.unflatten(1, (2, 2)),
                           x.unflatten(1, (2, -1))),
    "views": lambda x: (x.view(x.shape[0], 2, 2), x.view(-1, 2), x.view(x.shape), x.view_as(x), x.view(torch.int32), x.view(x.size(0) * 2, -1)),
    "expands": lambda x: (x.expand(2, -1, -1), x[:1].expand(3, 4), x[:, :1].expand_as(x), x[0].expand(x.shape), torch.broadcast_to(x[0], (2, 4))),
    "broadcasts": lambda x: (torch.broadcast_tensors(x, x[:1], x[0]), torch.broadcast_shapes(x.shape, (1, 4)), torch.atleast_3d(x), torch.atleast_2d(x[0]),
                             torch.atleast_1d(x[0, 0])),
    "repeats": lambda x: (x.repeat(2, 1), x.repeat(1, 2, 3), torch.tile(x, (2,)), x.tile(2, 2), x.repeat_interleave(2), x.repeat_interleave(3, dim=1)),
    "flips": lambda x: (x.flip(0), x.flip(0, 1), x.flip((1,)), x.fliplr(), x.flipud(), x.rot90(), x.rot90(2, (0, 1)), x.roll(1), x.roll((1, 2), (0, 1))),
    "diagonals": lambda x: (x.diag(), x.diagonal(), x.diagonal(1), torch.diag(x[0]), torch.diag_embed(x), torch.diagflat(x[0], 1), x.tril(), x.triu(1),
                            x.tril(-1), torch.trace(x)),
    "moves": lambda x: (x[None].movedim(0, 2), torch.moveaxis(x, 0, 1), x[None].permute(2, 0, 1), x[None].permute((0, 2, 1)), torch.permute(x, (1, 0))),
    "unfolds": lambda x: (x.unfold(1, 2, 1), x.unfold(1, 2, 2), x.unfold(0, 2, 1), x.T.unfold(0, 3, 1)),
    "narrow_select": lambda x: (x.narrow(0, 1, 1), x.narrow(1, 1, 2), torch.narrow(x, 0, 0, x.shape[0] - 1), x.select(1, 2), x.select(0, -1), torch.select(x, 0, 0)),
    "contiguity": lambda x: (x.T.contiguous(), x.contiguous() is x, x[None, None].contiguous(memory_format=torch.channels_last).stride(), x.T.is_contiguous(),
                             x[None, None].to(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)),
    "clones": lambda x: (x.clone(), torch.clone(x.T), x.detach().clone(), x.T.clone(memory_format=torch.contiguous_format), x.T.clone(memory_format=torch.preserve_format)),
    "conversions": lambda x: (x.double(), x.half(), x.bfloat16(), x.int(), x.long(), x.short(), x.char(), x.bool(), x.abs().byte(), x.float() is x, x.cfloat()),
    "to_forms": lambda x: (x.to(torch.float64), x.to("cpu"), x.to(torch.device("cpu")), x.to(x.new_zeros(1, dtype=torch.int64)), x.to("cpu", torch.float16),
                           x.to(torch.float32) is x, x.to(torch.float32, copy=True) is x, x.type(torch.float64), x.type_as(x.double()), x.cpu()),
    # -- joining and splitting
    "cat_forms": lambda x: (torch.cat([x, x]), torch.cat((x, x), 1), torch.cat([x, x], dim=-1), torch.concat([x, x]), torch.concatenate([x, x], axis=1),
                            torch.cat([x, x.double()]), torch.cat([x, torch.empty(0)])),
    "stack_forms": lambda x: (torch.stack([x, x]), torch.stack((x, x), 1), torch.stack([x, x], dim=-1), torch.vstack([x, x]), torch.hstack([x, x]),
                              torch.dstack([x, x]), torch.column_stack([x, x]), torch.row_stack((x, x))),
    "split_forms": lambda x: (x.split(2, 1), torch.split(x, [1, 3], dim=1), x.chunk(2, 1), x.tensor_split(3, dim=1), torch.tensor_split(x, (1, 2), dim=1),
                              torch.hsplit(x, 2), x.unsafe_split(2, 1), x.unbind(1)),
    "block_diag": lambda x: (torch.block_diag(x, x.T), torch.block_diag(x, x[0]), torch.kron(x, torch.eye(2))),
    # -- indexing
    "index_basic": lambda x: (x[0], x[-1], x[:, 1], x[..., 2], x[1:], x[:-1], x[::2], x[:, 1:3], x[None], x[:, None], x[..., None], x[0, 1], x[0:1, -1]),
    "index_advanced": lambda x: (x[[0, 1]], x[:, [0, 2]], x[torch.tensor([1, 0])], x[torch.tensor([[0], [1]]), torch.tensor([0, 2])], x[[0, 1], [1, 2]],
                                 x[:, torch.tensor([True, False, True, False])], x[None, [0]], x[..., [3]]),
    "index_by_symbols": lambda x: (x[x.shape[0] - 1], x[: x.shape[0] - 1], x[x.shape[0] // 2 :], x[slice(0, x.shape[0], 2)], x[torch.arange(x.shape[0] - 1)]),
    "take_and_gather": lambda x: (torch.take(x, torch.tensor([0, 3])), x.gather(1, torch.tensor([[0, 1]]).expand(x.shape[0], 2)),
                                  torch.take_along_dim(x, x.argsort(1), 1), x.index_select(0, torch.tensor([1, 0])), torch.index_select(x, 1, torch.tensor([3]))),
    "masks": lambda x: (torch.where(x > 0, x, 0.0), torch.where(x > 0, x, -x), x.where(x > 0, torch.tensor(2.0)), x.masked_fill(x > 0, -1), torch.where(x > 0, 1, 0)),
    "index_writes": lambda x: [y for y in [x.clone()] if not any([y.__setitem__(0, 1.0), y.__setitem__((slice(None), 1), 2.0), y.__setitem__((0, 2), x[1, 1]),
                                                                   y.__setitem__(([0, 1], [1, 2]), 5.0), y.__setitem__(y > 3, 0.0), y.__setitem__(Ellipsis, y * 2)])],
    "index_functions": lambda x: (x.index_add(0, torch.tensor([0, 0]), x[:2], alpha=2), x.index_copy(0, torch.tensor([1]), x[:1]), x.index_fill(1, torch.tensor([0, 3]), 9.0),
                                  x.index_put((torch.tensor([0, 1]),), x[:2] * 3), x.select_scatter(x[0], 0, 1), x.slice_scatter(x[:1], 0, 0, 1), x.diagonal_scatter(x.diagonal() * 0)),
    "scatter_forms": lambda x: (x.scatter(1, torch.zeros(x.shape[0], 1, dtype=torch.int64), 5.0), x.scatter(1, x.argsort(1), x), x.scatter(1, x.argsort(1), 2.0, reduce="add"),
                                x.scatter_add(0, torch.zeros_like(x, dtype=torch.int64), x), x.scatter_reduce(1, x.argsort(1), x, "sum", include_self=False),
                                x.scatter_reduce(1, x.argsort(1) // 2, x, "mean"), x.scatter_reduce(1, x.argsort(1) // 2, x, "prod")),
    "put_and_bucket": lambda x: (x.put(torch.tensor([0]), torch.tensor([9.0])), torch.bucketize(x, torch.tensor([-1.0, 0.0, 1.0])),
                                 torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x, right=True), torch.bucketize(0.5, torch.tensor([0.0, 1.0]))),
    # -- reductions
    "sums": lambda x: (x.sum(), x.sum(0), x.sum(-1, keepdim=True), x.sum((0, 1)), x.sum(dim=(1,)), torch.sum(x, 1, dtype=torch.float64), x.nansum(), x.sum([]), x.bool().sum()),
    "means": lambda x: (x.mean(), x.mean(1), x.mean((0, 1), keepdim=True), torch.mean(x, 0, dtype=torch.float64), x.nanmean(1)),
    "variances": lambda x: (x.var(), x.var(1), x.std(0, unbiased=False), x.std(dim=1, correction=0), torch.var_mean(x, 1), torch.std_mean(x, dim=(0, 1), correction=1)),
    "extremes": lambda x: (x.max(), x.min(), x.max(1), x.min(0, keepdim=True), x.amax(1), x.amin((0, 1)), torch.aminmax(x), torch.aminmax(x, dim=1), x.maximum(x.flip(1)),
                           torch.max(x, -x), torch.fmax(x, x * 2)),
    "args_of_extremes": lambda x: (x.argmax(), x.argmax(1), x.argmin(0), x.argmax(1, keepdim=True), torch.argmin(x, dim=-1)),
    "products": lambda x: (x.prod(), x.prod(1), torch.prod(x, 0, keepdim=True), x.long().prod(1)),
    "truths": lambda x: ((x > 0).any(), (x > 0).all(1), (x > 0).any(0, keepdim=True), torch.all(x != 0), x.any(), x.count_nonzero(), torch.count_nonzero(x, 1), (x > 0).any((0, 1))),
    "norms": lambda x: (x.norm(), x.norm(1), x.norm(2, 1), x.norm(p="fro"), torch.linalg.vector_norm(x, 3, dim=1), torch.linalg.norm(x, dim=0), x.norm(dim=1, keepdim=True),
                        torch.linalg.matrix_norm(x), torch.dist(x, x * 2)),
    "cumulatives": lambda x: (x.cumsum(0), x.cumsum(1, dtype=torch.float64), x.cumprod(1), x.cummax(0), x.cummin(1), x.logcumsumexp(1), torch.diff(x), torch.diff(x, dim=0, n=1),
                              torch.cumulative_trapezoid(x, dim=1), torch.trapezoid(x, dx=0.5)),
    "logsums": lambda x: (x.logsumexp(1), torch.logsumexp(x, (0, 1)), x.softmax(0), x.log_softmax(-1), torch.softmax(x, 1, dtype=torch.float64), F.softmin(x, 1)),
    "quantiles": lambda x: (x.quantile(0.5), x.quantile(torch.tensor([0.25, 0.75]), dim=1), x.nanquantile(0.3, dim=0), x.median(), x.nanmedian(1), x.quantile(0.4, 1, True, interpolation="lower")),
    "sorts": lambda x: (x.sort(), x.sort(0, descending=True), torch.sort(x, stable=True), x.argsort(1, descending=True), x.msort(), x.topk(2), x.topk(1, 0, largest=False), x.kthvalue(2, 1)),
    "counts": lambda x: (x.abs().long().flatten().bincount(minlength=5).sum(), torch.histc(x, 4, -2, 2), x.long().unique(sorted=True).sum(), torch.histogram(x, 4, range=(-2.0, 2.0)).hist),
    "covariances": lambda x: (torch.cov(x), torch.corrcoef(x), torch.cov(x.T, correction=0)),
    # -- arithmetic
    "adds": lambda x: (x + 1, 1 + x, x.add(2), torch.add(x, x, alpha=3), x - 1, 1 - x, x.sub(x, alpha=2), torch.rsub(x, 1), x.subtract(1), -x, +x, torch.negative(x)),
    "products_of_two": lambda x: (x * 2, 2 * x, x.mul(x), x / 2, 2 / (x + 9), x.div(2, rounding_mode="floor"), torch.div(x, 3, rounding_mode="trunc"), x.true_divide(4), torch.multiply(x, 2)),
    "integer_division": lambda x: (x // 2, x % 2, x.fmod(2), torch.remainder(x, 3), x.floor_divide(2), 7 // (x + 9), 7 % (x + 9), divmod(x, 2)),
    "powers": lambda x: (x**2, 2**x, x.abs() ** 0.5, x.pow(3), torch.pow(2, x), torch.float_power(x, 2), x.square(), x.abs().sqrt(), (x.abs() + 1).rsqrt(), x**-1.0),
    "exponentials": lambda x: (x.exp(), x.exp2(), x.expm1(), (x.abs() + 1).log(), (x.abs() + 1).log2(), (x.abs() + 1).log10(), x.abs().log1p(), torch.logaddexp(x, x), torch.logaddexp2(x, x),
                               torch.xlogy(x.abs(), x.abs() + 1), x.sigmoid().logit(), torch.special.entr(x.abs())),
    "trigonometry": lambda x: (x.sin(), x.cos(), x.tan(), (x / 3).asin(), (x / 3).acos(), x.atan(), torch.atan2(x, x + 1), x.sinh(), x.cosh(), x.tanh(), x.asinh(), (x.abs() + 1).acosh(),
                               (x / 3).atanh(), x.sinc(), torch.hypot(x, x), x.deg2rad(), x.rad2deg()),
    "roundings": lambda x: (x.floor(), x.ceil(), x.round(), x.trunc(), x.frac(), x.round(decimals=1), x.sign(), x.sgn(), x.signbit(), torch.copysign(x, -x), x.fix(), torch.nextafter(x, x + 1)),
    "clamps": lambda x: (x.clamp(-1, 1), x.clamp(min=0), x.clamp(max=0.5), x.clip(-0.5, 0.5), torch.clamp(x, x * 0, x * 0 + 1), x.clamp_min(0), x.clamp_max(1), x.nan_to_num(0.0), x.hardshrink(0.5)),
    "special": lambda x: (torch.special.erf(x), x.erfc(), (x / 3).erfinv(), x.abs().lgamma(), x.abs().add(1).digamma(), torch.special.i0(x), torch.special.expit(x), torch.special.ndtr(x),
                          torch.special.bessel_j0(x), torch.special.zeta(x.abs() + 2, 1.0), torch.mvlgamma(x.abs() + 3, 2), torch.polygamma(1, x.abs() + 1), torch.special.log_ndtr(x)),
    "comparisons": lambda x: (x > 0, x >= 0, x < x.flip(0), x <= 1, x == 0, x != 0, torch.gt(x, 0), x.eq(x), x.isclose(x + 1e-9), torch.isclose(x, x * 2), x.greater_equal(0), x.isfinite(),
                              x.isnan(), x.isinf(), x.isposinf(), x.isreal(), torch.isin(x, torch.tensor([0.5, 1.0]))),
    "logic": lambda x: ((x > 0) & (x < 1), (x > 0) | (x < -1), (x > 0) ^ (x > 1), ~(x > 0), torch.logical_and(x, x), torch.logical_not(x), torch.logical_xor(x, x), (x > 0).logical_or(x < 0)),
    "lerps": lambda x: (x.lerp(x * 2, 0.25), torch.lerp(x, x + 1, x.sigmoid()), torch.addcmul(x, x, x, value=0.5), torch.addcdiv(x, x, x + 9, value=2), x.heaviside(torch.tensor(0.5))),
    "complex_numbers_used": lambda x: [c for c in [torch.complex(x, x + 1)] for c in (c.real, c.imag, c.abs(), c.angle(), c.conj(), c * c, torch.view_as_real(c), c.conj().resolve_conj(), c.is_complex())],
    # -- products
    "matmuls": lambda x: (x @ x.T, x.matmul(x.T), torch.mm(x, x.T), x[None] @ x.T, x @ x[0], x[0] @ x.T, torch.bmm(x[None], x.T[None]), x.mv(x[0]), torch.dot(x[0], x[0]), x[0].inner(x[1]), torch.inner(x, x)),
    "matmul_adds": lambda x: (torch.addmm(x @ x.T, x, x.T, beta=0.5, alpha=2), torch.addmv(x[:, 0], x, x[0]), torch.addr(x, x[:, 0], x[0]), torch.baddbmm(x[None] @ x.T, x[None], x.T[None]),
                              torch.addbmm(x @ x.T, x[None], x.T[None]), torch.chain_matmul(x, x.T, x), torch.linalg.multi_dot([x, x.T, x])),
    "tensordots": lambda x: (torch.tensordot(x, x, dims=2), torch.tensordot(x, x.T, dims=1), torch.tensordot(x, x, dims=([0], [0])), torch.cross(x[:, :3], x[:, 1:], dim=1), torch.vdot(x[0], x[1])),
    "einsums": lambda x: (torch.einsum("ij,kj->ik", x, x), torch.einsum("ij->ji", x), torch.einsum("ij->", x), torch.einsum("ij,j->i", x, x[0]), torch.einsum("i,j->ij", x[:, 0], x[0]), torch.einsum("...j,...j", x, x)),
    "distances": lambda x: (torch.cdist(x, x), torch.cdist(x, x, p=1.0), F.pairwise_distance(x, x * 2), F.cosine_similarity(x, x + 1), torch.pdist(x), F.pdist(x, 1.0), torch.renorm(x, 2, 0, 1.0)),
    "linalg_forms": lambda x: [torch.linalg.solve(a, x.T) for a in [x.T @ x + 5 * torch.eye(4)]] + [f(x.T @ x + 5 * torch.eye(4)) for f in (torch.linalg.inv, torch.linalg.det, torch.linalg.slogdet,
                               torch.linalg.cholesky, torch.linalg.matrix_rank, torch.linalg.eigvalsh, torch.linalg.svdvals, torch.linalg.pinv, torch.logdet, torch.linalg.matrix_exp)],
    "linalg_more": lambda x: (torch.linalg.qr(x.T).R.abs(), torch.linalg.lu_factor(x.T @ x + torch.eye(4)), torch.linalg.matrix_power(x.T @ x, 3), torch.linalg.cond(x.T @ x + torch.eye(4)),
                              torch.linalg.lstsq(x.T @ x + 5 * torch.eye(4), x.T).solution, torch.cholesky_solve(x.T, torch.linalg.cholesky(x.T @ x + 5 * torch.eye(4))),
                              torch.linalg.solve_triangular((x.T @ x).triu() + 9 * torch.eye(4), x.T, upper=True), torch.linalg.vecdot(x, x), torch.linalg.diagonal(x)),
    # -- in place, out=
    "in_place": lambda x: x.clone().add_(1).mul_(2).sub_(0.5).div_(4).clamp_(-1, 1).neg_().abs_().sqrt_().pow_(2).exp_().log_().round_().t_().unsqueeze_(0).squeeze_(0),
    "in_place_fills": lambda x: (x.clone().fill_(2), x.clone().zero_(), x.clone().copy_(x[0]), x.clone().fill_diagonal_(7), x.clone().masked_fill_(x > 0, 1), x.clone().index_fill_(0, torch.tensor([0]), 3)),
    "in_place_operators": lambda x: [y for y in [x.clone()] for y in [y.__iadd__(1), y.__imul__(2), y.__isub__(x), y.__itruediv__(3)]],
    "outs": lambda x: (torch.add(x, 1, out=torch.empty_like(x)), torch.mm(x, x.T, out=torch.empty(x.shape[0], x.shape[0])), torch.max(x, 1, out=(torch.empty(0), torch.empty(0, dtype=torch.int64)))[0],
                       torch.cat([x, x], out=torch.empty(0)), torch.sort(x, 1, out=(torch.empty_like(x), torch.empty(x.shape, dtype=torch.int64)))[1]),
    "writes_to_views": lambda x: [y for y in [x.clone()] if [y[0].add_(1), y[:, 1].zero_(), y.T[2].mul_(3), y.view(-1)[-1:].fill_(9), y.diagonal().neg_()]],
    "swaps": lambda x: [(b, a) for a, b in [(x.clone(), x + 1)] if [a.copy_(b), b.zero_()]],
    # -- conversions to Python
    "to_python": lambda x: (x.sum().item(), x.shape[0] * 2.5, float(x.max()), int(x.long().max()), x[0].tolist(), x.long()[:1].tolist()),
    "python_math": lambda x: (x * math.pi, math.sqrt(x.shape[0]), x / math.sqrt(x.shape[1]), math.prod(x.shape), max(x.shape), min(*x.shape), sum(x.shape), round(x.shape[0] / 2), abs(-x.shape[0])),
    "iterations": lambda x: ([c.sum() for c in x.T], [a + b for a, b in zip(x[0], x[1])], sum(x[0]), list(map(torch.sin, x.unbind(1))), [i for i, _ in enumerate(x[0])], max(x[0].unbind(), key=lambda v: v.ndim)),
    "unpacking": lambda x: [a + b + c + d for a, b, c, d in [x.T]] + [torch.stack([first, *rest]) for first, *rest in [x.unbind(1)]],
    "gradient_of_samples": lambda x: (torch.gradient(x, dim=1), torch.gradient(x, spacing=2.0, dim=1)),
    "interpolations": lambda x: (F.interpolate(x[None], scale_factor=2), F.interpolate(x[None, None], size=(6, 8), mode="bilinear"), F.interpolate(x[None], size=8, mode="linear", align_corners=True)),
    "pads": lambda x: (F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 2), value=3.0), F.pad(x[None], (1, 1), mode="reflect"), F.pad(x[None], (2, 1), mode="replicate"), F.pad(x[None], (1, 1), mode="circular"), F.pad(x, (-1, 0))),
    "one_hots": lambda x: (F.one_hot(x.abs().long(), 4), F.embedding(x.abs().long(), torch.eye(4)), F.normalize(x), F.normalize(x, p=1, dim=0), F.glu(x), F.threshold(x, 0.5, 9.0)),
    "activations": lambda x: (F.relu(x), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x), F.elu(x), F.selu(x), F.celu(x), F.leaky_relu(x, 0.2), F.softplus(x), F.hardtanh(x), F.hardswish(x),
                              F.hardsigmoid(x), F.logsigmoid(x), F.tanhshrink(x), F.softshrink(x), F.softsign(x), F.relu6(x), F.rrelu(x), F.prelu(x, torch.tensor([0.1]))),
    "dtype_questions": lambda x: (torch.promote_types(x.dtype, torch.float64), torch.result_type(x, 1), torch.can_cast(x.dtype, torch.int64), torch.finfo(x.dtype).eps, torch.iinfo(torch.int32).max,
                                  x.dtype.is_floating_point, torch.get_default_dtype(), x.dtype.itemsize, str(x.dtype)),
    "fft_forms": lambda x: (torch.fft.fft(x), torch.fft.ifft(x), torch.fft.rfft(x, n=6), torch.fft.hfft(x), torch.fft.fftn(x), torch.fft.irfftn(torch.fft.rfftn(x), s=x.shape), torch.fft.rfftfreq(5), torch.fft.ifftshift(x)),
    "foreach_forms": lambda x: (torch._foreach_add([x, x], [x, x]), torch._foreach_mul([x], 2), torch._foreach_sqrt([x.abs()]), torch._foreach_lerp([x], [x + 1], 0.5), torch._foreach_addcmul([x], [x], [x], value=2)),
    "asserts_about_sizes": lambda x: (torch._check(x.shape[0] > 0), torch._check(x.ndim == 2, lambda: "two"), torch._assert(x.shape[1] == 4, "four"), x * 2)[3],
    "named_results": lambda x: (x.max(1).values, x.max(1).indices, x.sort().values, torch.linalg.eigh(x.T @ x).eigenvalues, x.topk(2).indices, torch.return_types.max((x, x)).values is x),
    "keyword_forms": lambda x: (torch.sum(input=x, dim=1), torch.cat(tensors=[x, x], dim=0), torch.add(input=x, other=x), x.sum(axis=0), x.mean(axis=(0, 1)), torch.stack(tensors=(x,), dim=0), torch.transpose(input=x, dim0=0, dim1=1)),
})  # fmt: skip
programs(__name__, *INTS, **WHOLE)({
    "bits": lambda x: (x & 1, x | 2, x ^ 3, ~x, x << 1, x >> 1, torch.bitwise_and(x, 3), x.bitwise_not(), torch.bitwise_left_shift(x, 2), x.bitwise_xor(x)),
    "integers": lambda x: (x // 2, x % 3, -x // 2, x.abs(), x.gcd(x + 6), torch.lcm(x, x), x.sum(), x.cumsum(0), x.float().mean(), x.clamp(0, 2), x.sign(), x**2, x / 2),
    "integer_indexing": lambda x: (torch.arange(9)[x.abs()], torch.eye(9)[x[0].abs()], x.new_zeros(9).scatter_add(0, x.abs().flatten(), x.flatten()), x.flatten().sort()[0]),
})  # fmt: skip
programs(__name__, *TWO, **WHOLE)({
    "two_broadcast": lambda x, y: (x + y[0], x[:, :1] * y, x[:1] - y, torch.maximum(x, y[:1]), x[:, None] + y[None], x.unsqueeze(-1) @ y.unsqueeze(1)),
    "two_in_place": lambda x, y: (x.clone().add_(y).mul_(y).addcmul_(x, y, value=2).lerp_(y, 0.5), x.clone().copy_(y), x.clone().masked_scatter_(y > 0, y)),
    "two_compared": lambda x, y: (torch.equal(x.sign(), x.sign()), x.eq(y), torch.allclose(x, x), (x < y).sum(), x.isclose(y), torch.minimum(x, y), torch.fmin(x, y), torch.where(x < y, x, y)),
    "two_joined": lambda x, y: (torch.cat([x, y]), torch.stack([x, y], 2), torch.vstack((x, y)), torch.cat([x, y], -1).chunk(2, -1)[1] is y, torch.kron(x[:1], y)),
    "two_products": lambda x, y: (x @ y.T, torch.einsum("ij,ij->i", x, y), (x * y).sum(-1), F.linear(x, y), F.bilinear(x, y, torch.ones(2, 4, 4)), torch.linalg.vecdot(x, y)),
})  # fmt: skip
programs(__name__, *GRADS, **BACK)({
    "d_reductions": lambda x: (x.sum(1), x.mean(), x.var(1), x.std(), x.prod(1), x.logsumexp(1), x.norm(dim=1), x.amax(1), x.max(1).values, x.median(1).values, x.cumsum(0), x.cumprod(1)),
    "d_pointwise": lambda x: (x.sin(), x.tanh(), x.exp(), x.abs(), x.sigmoid(), x**3, x.clamp(-1, 1), x.relu(), 1 / (x + 9), x.atan(), torch.where(x > 0, x * 2, x), x.erf()),
    "d_shapes": lambda x: (x.T, x.reshape(-1), x.flip(0), x.roll(1), x.expand(2, -1, -1), x.repeat(2, 1), x.diagonal(), x.unfold(1, 2, 1), x[None].movedim(0, 1), x.tril(), x.T.contiguous()),
    "d_indexing": lambda x: (x[0], x[:, 1:3], x[[0, 1]], x[:, [0, 0]], x.gather(1, x.argsort(1)), x.index_select(0, torch.tensor([0, 0])), x.take_along_dim(x.argsort(1), 1), x.masked_fill(x > 0, 0.0)),
    "d_writes": lambda x: [y for y in [x * 2] if [y[0].mul_(3) is None, y.__setitem__((slice(None), 1), x[:, 0]), y.add_(x)]],
    "d_scatters": lambda x: (x.scatter(1, x.argsort(1), x * 2), x.index_add(0, torch.tensor([0, 0]), x[:2]), x.scatter_add(1, x.argsort(1), x), x.index_copy(0, torch.tensor([0]), x[1:2]), x.index_put((torch.tensor([0]),), x[:1] * 3)),
    "d_joins": lambda x: (torch.cat([x, x * 2]), torch.stack([x, x]), x.split(2, 1), x.chunk(2, 1)[1], x.unbind(1)[0], torch.cat([x[:1], x.sin()], 0)),
    "d_products": lambda x: (x @ x.T, x.matmul(x[0]), torch.addmm(x @ x.T, x, x.T), torch.einsum("ij,ik->jk", x, x), torch.bmm(x[None], x.T[None]), torch.outer(x[0], x[1]), torch.cdist(x, x + 1)),
    "d_linalg": lambda x: [f(x.T @ x + 5 * torch.eye(4)) for f in (torch.linalg.inv, torch.linalg.det, torch.linalg.cholesky, torch.logdet, torch.linalg.eigvalsh, torch.linalg.pinv, torch.linalg.matrix_exp)],
    "d_softmaxes": lambda x: (x.softmax(1), x.log_softmax(0), F.gumbel_softmax(x * 0, dim=1).sum(), F.normalize(x), F.layer_norm(x, (4,)), F.cosine_similarity(x, x + 1), F.gelu(x), F.silu(x)),
    "d_casts": lambda x: (x.double(), x.half().float(), x.bfloat16(), x.to(torch.float64) * 2, x.type_as(x.double()), x.to("cpu")),
    "d_complex": lambda x: (torch.complex(x, x * 2).abs(), torch.view_as_real(torch.complex(x, x)), torch.fft.rfft(x).abs(), torch.polar(x, x).real, torch.complex(x, x).angle()),
    "d_sorts": lambda x: (x.sort(1).values, x.topk(2).values, x.kthvalue(2).values, x.quantile(0.5, dim=1), x.msort(), torch.sort(x, descending=True)[0]),
    "d_detached": lambda x: (x.detach() * x, (x * 2).detach(), x.data * 3, x.clone().requires_grad, x.detach().requires_grad, (x * 1).is_leaf),
    "d_disabled": lambda x: [[torch.set_grad_enabled(True), y, x * y][1:] for y in [[torch.set_grad_enabled(False), x * 2][1]]],
    "d_checked": lambda x: (x.requires_grad, (x * 2).requires_grad, (x > 0).requires_grad, x.grad_fn is None, (x * 2).grad_fn is not None, x.is_leaf, x.grad),
})  # fmt: skip
programs(__name__, *GRADS2, **BACK)({
    "d_two": lambda x, y: (x * y, x @ y.T, torch.maximum(x, y), torch.where(x > y, x, y), x.lerp(y, 0.3), torch.addcmul(x, x, y), torch.atan2(x, y), torch.hypot(x + 9, y), x / (y + 9)),
    "d_losses": lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y, reduction="none"), F.smooth_l1_loss(x, y, beta=0.5), F.huber_loss(x, y), F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
                              F.binary_cross_entropy_with_logits(x, y.sigmoid()), F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), F.cosine_embedding_loss(x, y, torch.ones(x.shape[0])), F.cross_entropy(x, y.softmax(1)),
                              F.margin_ranking_loss(x, y, torch.ones_like(x)), F.soft_margin_loss(x, y.sign()), F.hinge_embedding_loss(x, y.sign()), F.multilabel_soft_margin_loss(x, y.sigmoid())),
})  # fmt: skip
programs(__name__, *CUBES, **WHOLE)({
    "cube_reductions": lambda x: (x.sum((0, 2)), x.mean(-1), x.amax((1, 2)), x.std((0, 1)), x.softmax(1), x.cumsum(1), x.argmax(1), x.flatten(1).norm(dim=1), x.all(2)),
    "cube_shapes": lambda x: (x.permute(2, 0, 1), x.transpose(1, 2).reshape(x.shape[0], -1), x.flatten(0, 1), x.view(x.shape[0], 2, 2, 6), x.unfold(2, 3, 3), x.movedim(-1, 0), x.mT, x.chunk(3, -1), x.reshape(-1, 8)),
    "cube_products": lambda x: (x @ x.mT, torch.bmm(x, x.transpose(1, 2)), torch.einsum("bij,bkj->bik", x, x), x @ torch.ones(6, 2), torch.matmul(x[:, None], x.mT[None]), F.linear(x, torch.ones(3, 6), torch.ones(3))),
    "cube_pools": lambda x: (F.max_pool1d(x, 2), F.avg_pool1d(x, 3, 1), F.adaptive_avg_pool1d(x, 2), F.adaptive_max_pool1d(x, 3), F.lp_pool1d(x, 2, 2), F.max_pool1d(x, 2, return_indices=True)[1]),
    "cube_attention": lambda x: (F.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(x[:, None], x[:, None], x[:, None], is_causal=True), F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(4, 4).tril().bool(), scale=0.5)),
    "cube_norms": lambda x: (F.layer_norm(x, (6,)), F.layer_norm(x, x.shape[1:]), F.group_norm(x, 2), F.instance_norm(x), F.rms_norm(x, (6,)), F.batch_norm(x, torch.zeros(4), torch.ones(4)), F.local_response_norm(x, 2)),
})  # fmt: skip
programs(__name__, *IMAGES, **BACK)({
    "image_convolutions": lambda x: (F.conv2d(x, torch.ones(4, 3, 3, 3)), F.conv2d(x, torch.ones(3, 1, 3, 3), groups=3, padding=1), F.conv2d(x, torch.ones(2, 3, 3, 3), stride=2, dilation=1, padding="valid"), F.conv_transpose2d(x, torch.ones(3, 2, 2, 2), stride=2)),
    "image_pools": lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 3, 2, 1), F.adaptive_avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, (1, None)), F.lp_pool2d(x, 2, 2), F.max_pool2d(x, 3, 2, 1, ceil_mode=True)),
    "image_resizes": lambda x: (F.interpolate(x, scale_factor=2, mode="nearest"), F.interpolate(x, size=(5, 5), mode="bilinear", align_corners=False), F.interpolate(x, scale_factor=0.5, mode="area"), F.interpolate(x, size=(8, 8), mode="bicubic"),
                                F.upsample(x, scale_factor=2)),
    "image_pads": lambda x: (F.pad(x, (1, 1, 2, 2)), F.pad(x, (1, 1, 1, 1), mode="reflect"), F.pad(x, (2, 2, 1, 1), mode="replicate"), F.pad(x, (1, 1, 1, 1), "circular"), F.pad(x, (0, -1, 0, -1))),
    "image_folds": lambda x: (F.unfold(x, 3, padding=1), F.fold(F.unfold(x, 2, stride=1), x.shape[2:], 2), F.pixel_unshuffle(x[:, :, :6, :6], 2), F.channel_shuffle(x, 3), F.grid_sample(x, torch.zeros(2, 3, 3, 2), align_corners=True),
                              F.affine_grid(torch.eye(2, 3)[None].expand(2, 2, 3), x.shape, align_corners=False)),
})  # fmt: skip


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
