"""Documented functions, methods and modules that no other program here calls: in-place forms, copies of views, convolutions and pools of
three dims, lazy modules, transforms of distributions, schedules, initialisations.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import operator

import pytest
import torch
import torch.nn.functional as F
from torch import distributions as D
from torch import nn
from torch.distributions import transforms as T
from torch.nn import init
from torch.nn.utils import prune
from torch.optim import lr_scheduler as L

from tests.programs.registry import cases, each, program, programs, t

ROWS = each(3, 5, 2, tail=(4,))
GRADS = each(3, 5, 2, tail=(4,), grad=True)
WHOLE = {"breaks": 0}
BACK = {"grad": True, **WHOLE}
INTS = [(torch.arange(n * 4).reshape(n, 4) % 7 - 3, torch.arange(n * 4).reshape(n, 4) % 3 + 1) for n in (3, 5, 2)]
PAIRS = each(3, 5, 2, tail=(4,), n=2)


def method(name, scale=0.25, shift=0.0, args=()):
    """A method that writes, of a copy that is within its domain; the copy is returned, too, and a view of it sees the write."""

    def run(x):
        y = x * scale + shift
        v = y[0]
        z = getattr(y, name)(*args)
        return z, y, v, z is y

    return run


# -- in place, of one tensor ------------------------------------------------------------------------------------------------------
ONES = "acos arccos asin arcsin atan arctan ceil cos cosh deg2rad erf erfc exp2 expm1 fix floor frac i0 logit"
ONES += " nan_to_num negative rad2deg sigmoid sinc sinh sgn square tan tanh"
ONES += " trunc absolute digamma lgamma erfinv reciprocal rsqrt log10 log1p log2 conj_physical"
IN_DOMAIN = {"logit": (0.1, 0.5), "digamma": (0.25, 2.0), "lgamma": (0.25, 2.0), "reciprocal": (0.25, 2.0), "rsqrt": (0.25, 2.0)}
IN_DOMAIN |= {"log10": (0.25, 2.0), "log1p": (0.25, 2.0), "log2": (0.25, 2.0), "acosh": (0.25, 3.0), "arccosh": (0.25, 3.0)}
WITHOUT_DERIVATIVE = "asinh arcsinh acosh arccosh atanh arctanh".split()  # as far as they write: PyTorch has none
programs(__name__, *GRADS, **BACK)({f"{n}_in_place": method(f"{n}_", *IN_DOMAIN.get(n, ())) for n in ONES.split()})
programs(__name__, *GRADS, grad=True, breaks=0)({f"{n}_in_place": method(f"{n}_", *IN_DOMAIN.get(n, ())) for n in WITHOUT_DERIVATIVE})
programs(__name__, *ROWS, **WHOLE)({f"{n}_in_place_of_constants": method(f"{n}_", *IN_DOMAIN.get(n, ())) for n in WITHOUT_DERIVATIVE})
programs(__name__, *GRADS, **BACK)(
    {
        "clamp_max_in_place": method("clamp_max_", args=(0.1,)),
        "clamp_min_in_place": method("clamp_min_", args=(0.1,)),
        "clip_in_place": method(
            "clip_",
            args=(
                -0.1,
                0.2,
            ),
        ),
        "celu_in_place": lambda x: torch.celu_(x * 1, 0.7),
        "selu_in_place": lambda x: torch.selu_(x * 1),
        "elu_in_place": lambda x: F.elu_(x * 1),
        "hardtanh_in_place": lambda x: F.hardtanh_(x * 1),
        "leaky_relu_in_place": lambda x: F.leaky_relu_(x * 1),
        "rrelu_evaluated": lambda x: torch.rrelu_(x * 1),
        "threshold_in_place": lambda x: F.threshold_(x * 1, 0.2, 7.0),
        "mvlgamma_in_place": method("mvlgamma_", args=(2,), shift=4.0),
        "polygamma_method": lambda x: (x * 0.1 + 2).polygamma(1),
        "renorm_in_place": method(
            "renorm_",
            args=(
                2,
                0,
                0.5,
            ),
        ),
        "cumprod_in_place": method("cumprod_", args=(1,)),
        "tril_in_place": method("tril_", args=(1,)),
        "triu_in_place": method("triu_", args=(-1,)),
        "swapaxes_in_place": lambda x: (x * 1).swapaxes_(0, 1),
        "swapdims_in_place": lambda x: (x * 1).swapdims_(-1, 0),
        "dropout_in_place_not_training": lambda x: torch.dropout_(x * 1, 0.5, False),
        "feature_dropout_trained": lambda x: torch.feature_dropout(x[:, :, None], 0.5, True),
        "alpha_dropout_in_place": lambda x: torch.alpha_dropout_(x * 1, 0.5, True),
        "feature_alpha_dropout_in_place": lambda x: torch.feature_alpha_dropout_((x * 1)[:, :, None], 0.5, True),
        "xlogy_in_place": lambda x: (x * 1).xlogy_(x.detach().abs() + 1),
        "atan2_in_place": lambda x: (x * 1).atan2_(x.detach() + 9),
        "arctan2_in_place": lambda x: (x * 1).arctan2_(x.detach() + 9),
        "copysign_in_place": lambda x: (x * 1).copysign_(-1.0),
        "hypot_in_place": lambda x: (x * 1).hypot_(x.detach() + 9),
        "ldexp_in_place": lambda x: (x * 1).ldexp_(torch.tensor(3)),
        "float_power_in_place": lambda x: (x.double() * 1).float_power_(2),
        "heaviside_in_place": lambda x: (x.detach() * 1).heaviside_(torch.tensor(0.5)) + x,
        "nextafter_in_place": lambda x: (x.detach() * 1).nextafter_(torch.tensor(9.0)) + x,
        "igamma_in_place": lambda x: (x.detach().abs() + 1).igamma_(torch.tensor(2.0)) * x,
        "igammac_method": lambda x: (x.detach().abs() + 1).igammac(torch.tensor(2.0)) * x,
        "subtract_in_place": lambda x: (x * 1).subtract_(x, alpha=3),
        "multiply_in_place": lambda x: (x * 1).multiply_(x),
        "true_divide_in_place": lambda x: (x * 1).true_divide_(3),
        "floor_divide_in_place": lambda x: (x.detach() * 1).floor_divide_(0.3) + x,
    }
)
programs(__name__, *GRADS, **BACK)(
    {
        "addmv_in_place": lambda x: (x[:, 0] * 1).addmv_(x, x[0], beta=2, alpha=3),
        "addmm_in_place": lambda x: (x * 1).addmm_(x, x.T @ x, beta=0.5),
        "addr_in_place": lambda x: (x * 1).addr_(x[:, 1], x[0], alpha=0.5),
        "addbmm_in_place": lambda x: (x.T @ x).addbmm_(x[:, :, None], x[:, None]),
        "baddbmm_in_place": lambda x: (x[:, None] * x[:, :, None]).baddbmm_(x[:, :, None], x[:, None], beta=2),
        "addcdiv_in_place": lambda x: (x * 1).addcdiv_(x, x.detach().abs() + 1, value=0.5),
        "ger_of_vectors": lambda x: torch.ger(x[:, 0], x[0]),
        "ger_method": lambda x: x[:, 1].ger(x[1]),
    }
)

# -- in place, of two ---------------------------------------------------------------------------------------------------------------
INT_METHODS = "bitwise_and_ bitwise_or_ bitwise_xor_ gcd_ lcm_ bitwise_left_shift_ bitwise_right_shift_ floor_divide_".split()
programs(__name__, *INTS, **WHOLE)({f"{n}of_integers": lambda a, b, n=n: getattr(a.abs(), n)(b) for n in INT_METHODS})
programs(__name__, *INTS, **WHOLE)(
    {
        "bitwise_not_in_place": lambda a, b: (a * b).bitwise_not_(),
        "bitwise_right_shift_function": lambda a, b: (torch.bitwise_right_shift(a, b), a.bitwise_right_shift(1)),
        "shifts_by_numbers": lambda a, b: (a << 2, a >> 1, 3 << b, b.__rlshift__(1), operator.ilshift(a * 1, 2)),
        "logical_in_place": lambda a, b: ((a * 1).logical_and_(b), (a * 1).logical_or_(b), (a * 1).logical_xor_(b), (a * 1).logical_not_()),
        "comparisons_in_place": lambda a, b: [
            getattr(a * 1, f"{n}_")(b) for n in "eq ge gt le lt ne greater greater_equal less less_equal not_equal".split()
        ],
        "comparisons_by_long_names": lambda a, b: (torch.not_equal(a, b), a.not_equal(2), torch.less_equal(a, 1), torch.greater(a, b)),
        "casts_to_half_complex": lambda a, b: (a.cdouble(), a.float().chalf()),
        "nonzero_of_known_length": lambda a, b: (torch.nonzero_static(a, size=3), a.nonzero_static(size=5, fill_value=-2)),
        "is_nonzero_of_a_size": lambda a, b: a + int(torch.is_nonzero(torch.tensor(3))),
        "legacy_constructors": lambda a, b: (
            torch.LongTensor([1, 2]),
            torch.FloatTensor(2, 3).shape,
            torch.ByteTensor([3]),
            torch.DoubleTensor([a.shape[0]]),
            torch.ShortTensor([1]),
            torch.CharTensor([1]),
            torch.HalfTensor([1]),
            torch.IntTensor([1]),
        ),
    }
)

# -- copies of views, and views -------------------------------------------------------------------------------------------------------
programs(__name__, *GRADS, **BACK)(
    {
        "copies_of_views": lambda x: (
            torch.alias_copy(x),
            torch.expand_copy(x[:1], (2, 4)),
            torch.permute_copy(x, (1, 0)),
            torch.t_copy(x),
            torch.transpose_copy(x, 0, 1),
            torch.view_copy(x, (-1,)),
        ),
        "copies_of_parts": lambda x: (
            torch.select_copy(x, 0, 1),
            torch.slice_copy(x, 1, 1, 3),
            torch.squeeze_copy(x[:1]),
            torch.squeeze_copy(x[:1], 0),
            torch.unsqueeze_copy(x, 1),
            torch.diagonal_copy(x),
            torch.narrow_copy(x, 1, 1, 2),
            x.narrow_copy(0, 0, 2),
        ),
        "copies_of_pieces": lambda x: (
            torch.split_copy(x, 2, 1),
            torch.split_with_sizes_copy(x, [1, 3], 1),
            torch.unbind_copy(x, 1),
            torch.unfold_copy(x, 1, 2, 1),
            torch.as_strided_copy(x, (2, 2), (4, 1)),
        ),
        "copies_of_complex": lambda x: (torch.view_as_complex_copy(x.view(-1, 2)), torch.view_as_real_copy(torch.complex(x, x))),
        "as_strided_scatter_of_a_part": lambda x: (
            torch.as_strided_scatter(x, x[0, :2] * 9, (2,), (1,), 1),
            x.as_strided_scatter(x[0] * 2, (4,), (1,)),
        ),
        "unsafe_pieces": lambda x: (torch.unsafe_chunk(x, 2, 1), x.unsafe_chunk(2, 0), torch.unsafe_split_with_sizes(x, [1, 3], 1)),
        "splits_by_dims": lambda x: (torch.vsplit(x, [1]), x.vsplit([1]), torch.dsplit(x[None], 2), x[None].dsplit([1, 2])),
        "reshape_as_another": lambda x: (x.reshape_as(x.T), x.view_as(x)),
        "sum_to_size_of_rows": lambda x: (x.sum_to_size(1, 4), x.sum_to_size(x.shape[0], 1), x.sum_to_size(4)),
        "resolve_neg_and_conj": lambda x: (
            x.resolve_neg(),
            torch.conj_physical(torch.complex(x, x)),
            torch.complex(x, x).conj_physical(),
            torch.resolve_neg(torch.complex(x, x).conj().imag),
        ),
        "dims_told": lambda x: (
            x * x.ndimension(),
            x.dim_order(),
            x.is_nonzero() if x.numel() == 1 else 0,
            x.dense_dim(),
            x.sparse_dim() if False else 0,
        ),
        "padded_constant": lambda x: (torch.constant_pad_nd(x, (1, 2), 3.0), torch.constant_pad_nd(x, (-1, 0, 1, 0))),
        "arc_names": lambda x: (
            torch.arccosh(x.abs() + 2),
            torch.arcsinh(x),
            torch.arctanh(x * 0.1),
            (x.abs() + 2).arccosh(),
            x.arcsinh(),
            (x * 0.1).arctanh(),
        ),
    }
)

# -- linear algebra, special functions, fft --------------------------------------------------------------------------------------------
programs(__name__, *GRADS, **BACK)(
    {
        "norms_by_old_names": lambda x: (torch.frobenius_norm(x, [0, 1]), torch.norm_except_dim(x, 2, 0)),
        "pinverse_of_rows": lambda x: ((torch.pinverse(x.T @ x + 9 * torch.eye(4))), x.pinverse().shape),
        "nuclear_norm_of_rows": lambda x: torch.nuclear_norm(x),
        "trapz_of_rows": lambda x: (torch.trapz(x), torch.trapz(x, dx=0.5, dim=0), torch.trapz(x, torch.tensor([0.0, 1, 3, 4]))),
        "fft_of_more_dims": lambda x: (
            torch.fft.hfft2(x.to(torch.complex64)),
            torch.fft.ifft2(x).abs(),
            torch.fft.ifftn(x, norm="ortho").real,
            torch.fft.irfftn(torch.fft.rfftn(x), s=x.shape),
            torch.fft.ihfft2(x).abs(),
        ),
        "fft_hermitian": lambda x: (
            torch.fft.hfftn(x.to(torch.complex64)),
            torch.fft.ihfftn(x).real,
            torch.fft.hfft(x.to(torch.complex64), n=5),
        ),
    }
)
SPECIAL = "airy_ai bessel_y1 modified_bessel_i0 modified_bessel_i1"
SPECIAL += " modified_bessel_k0 scaled_modified_bessel_k0 scaled_modified_bessel_k1 spherical_bessel_j0"
programs(__name__, *ROWS, **WHOLE)({f"special_{n}": lambda x, n=n: getattr(torch.special, n)(x.abs() + 0.5) for n in SPECIAL.split()})
POLYNOMIALS = "chebyshev_polynomial_v chebyshev_polynomial_w shifted_chebyshev_polynomial_t"
POLYNOMIALS += " shifted_chebyshev_polynomial_u shifted_chebyshev_polynomial_v shifted_chebyshev_polynomial_w"
programs(__name__, *ROWS, **WHOLE)({f"special_{n}": lambda x, n=n: getattr(torch.special, n)(x.sigmoid(), 3) for n in POLYNOMIALS.split()})
programs(__name__, *ROWS, **WHOLE)(
    {
        "eig_of_symmetric": lambda x: torch.linalg.eig(x.T @ x + torch.diag(torch.arange(1.0, 5) * 9)).eigenvalues.real.sort().values,
        "ldl_factor_told": lambda x: torch.linalg.ldl_factor_ex(x.T @ x + 20 * torch.eye(4))[0],
        "orgqr_of_geqrf": lambda x: torch.orgqr(*torch.geqrf(x.T @ x + 20 * torch.eye(4))),
        "triangular_solve_old": lambda x: torch.triangular_solve(x.T, torch.eye(4) + x[0, 0]),
        "segment_reduce_of_lengths": lambda x: torch.segment_reduce(x, "sum", lengths=torch.tensor([1, x.shape[0] - 1])),
    }
)

# -- cells, convolutions, pools --------------------------------------------------------------------------------------------------------
CELL = [t(12, 4, seed=1) * 0.3, t(12, 3, seed=2) * 0.3]
programs(__name__, *GRADS, **BACK)(
    {
        "gru_cell_function": lambda x: torch.gru_cell(x, x[:, :3], CELL[0][:9], CELL[1][:9]),
        "lstm_cell_function": lambda x: torch.lstm_cell(x, (x[:, :3], x[:, 1:]), *CELL),
        "rnn_cell_functions": lambda x: (
            torch.rnn_tanh_cell(x, x[:, :3], CELL[0][:3], CELL[1][:3]),
            torch.rnn_relu_cell(x, x[:, :3], CELL[0][:3], CELL[1][:3]),
        ),
        "conv_tbc_function": lambda x: torch.conv_tbc(x[:, None].expand(-1, 2, -1), t(2, 4, 3, seed=1), t(3, seed=2), 1),
        "max_pool1d_told": lambda x: F.max_pool1d_with_indices(x, 2),
        "max_unpool1d_of_rows": lambda x: F.max_unpool1d(*F.max_pool1d(x, 2, return_indices=True), 2),
        "native_channel_shuffle_of_rows": lambda x: torch.native_channel_shuffle(x.detach()[:, :, None, None], 2) * x[0, 0],
        "multi_margin": lambda x: F.multi_margin_loss(x, torch.zeros(x.shape[0], dtype=torch.long), p=2, margin=0.5),
        "triplet_by_distance": lambda x: F.triplet_margin_with_distance_loss(
            x, x.detach() + 0.3, x.detach() * -1, distance_function=F.pairwise_distance, swap=True
        ),
        "upsample_by_old_names": lambda x: (
            F.upsample_nearest(x[:, None], scale_factor=2),
            F.upsample_bilinear(x[None, None], size=(4, 7)),
        ),
        "grid_sampler_by_numbers": lambda x: torch.grid_sampler_2d(
            x[None, None], (x[None, :, :2, None] * 0.2).expand(-1, -1, -1, 2), 0, 0, False
        ),
        "affine_grid_by_name": lambda x: torch.affine_grid_generator(
            x[:, None].expand(-1, 2, -1)[:, :, :3] * 0.1, [x.shape[0], 1, 3, 2], False
        ),
    }
)
CUBES = each(2, 3, 1, tail=(2, 4, 6, 5), grad=True)
K3 = t(2, 3, 2, 3, 2, seed=2)
programs(__name__, *CUBES, **BACK)(
    {
        "conv_transpose3d": lambda x: F.conv_transpose3d(x, K3, stride=2, padding=1),
        "conv_transpose3d_by_name": lambda x: torch.conv_transpose3d(x, K3, dilation=2),
        "avg_pool3d": lambda x: F.avg_pool3d(x, (2, 3, 2), padding=1, count_include_pad=False),
        "max_pool3d": lambda x: (F.max_pool3d(x, 2, 1), torch.max_pool3d(x, 2)),
        "max_pool3d_told": lambda x: F.max_pool3d(x, 2, return_indices=True),
        "max_unpool3d": lambda x: F.max_unpool3d(*F.max_pool3d(x, (2, 2, 1), return_indices=True), (2, 2, 1)),
        "adaptive_pools3d": lambda x: (
            F.adaptive_avg_pool3d(x, (2, 3, 2)),
            F.adaptive_max_pool3d(x, 2),
            F.adaptive_avg_pool3d(x, (None, 1, 2)),
        ),
        "lp_pool3d": lambda x: F.lp_pool3d(x.abs() + 1, 2, 2),
        "dropout3d": lambda x: F.dropout3d(x, 0.5),
        "grid_sampler_3d": lambda x: torch.grid_sampler_3d(
            x, (x[:, :1, :2, :3, :3].permute(0, 2, 3, 4, 1).expand(-1, -1, -1, -1, 3)) * 0.2, 0, 0, True
        ),
        "grid_sampler_any": lambda x: torch.grid_sampler(x[:, :, 0], x.detach()[:, 0, :2, :3, :2] * 0.2, 0, 1, False),
        "max_unpool2d": lambda x: F.max_unpool2d(*F.max_pool2d(x[:, 0, :, :4], 2, return_indices=True), 2),
        "fractional_pools": lambda x: (
            F.fractional_max_pool2d(x[:, 0], 2, output_size=(3, 2), _random_samples=torch.full((x.shape[0], 4, 2), 0.3)),
            F.fractional_max_pool3d(x, 2, output_size=(2, 3, 2), _random_samples=torch.full((x.shape[0], 2, 3), 0.3)),
        ),
        "fractional_drawn": lambda x: F.fractional_max_pool2d(x[:, 0], 2, output_ratio=(0.5, 0.5)),
        "mkldnn_free_max_pool1d": lambda x: torch.max_pool1d_with_indices(x[:, 0, 0], 2),
    }
)

# -- modules ---------------------------------------------------------------------------------------------------------------------------
MODULES = {
    "circular_pad3d": lambda: nn.CircularPad3d(1),
    "reflection_pad3d": lambda: nn.ReflectionPad3d((1, 0, 1, 1, 0, 1)),
    "zero_pad3d": lambda: nn.ZeroPad3d((1, 2, 0, 1, 1, 0)),
    "adaptive_max_pool3d_module": lambda: nn.AdaptiveMaxPool3d((2, None, 1)),
    "lp_pool3d_module": lambda: nn.Sequential(nn.Softplus(), nn.LPPool3d(2, (2, 1, 2))),
    "fractional_module": lambda: nn.FractionalMaxPool3d(2, output_size=2),
    "max_unpool3d_module": lambda: Unpooled(),
    "conv3d_transposed_module": lambda: nn.ConvTranspose3d(2, 3, 2, stride=2, output_padding=1, groups=1),
    "instance_norm3d": lambda: nn.InstanceNorm3d(2, affine=True),
    "batch_norm3d": lambda: nn.BatchNorm3d(2),
    "sync_batch_norm_evaluated": lambda: nn.SyncBatchNorm(2).eval(),
}


class Unpooled(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool, self.back = nn.MaxPool3d(2, return_indices=True), nn.MaxUnpool3d(2)

    def forward(self, x):
        y, at = self.pool(x)
        return self.back(y * 2, at, output_size=x.shape)


def seeded(make):
    def world():
        torch.manual_seed(0)
        m = make()
        return lambda x: m(x), m

    return world


programs(__name__, *CUBES, world=True, **BACK)({n: seeded(m) for n, m in MODULES.items()})
LOSSES = {
    "triplet_with_distance_module": lambda: nn.TripletMarginWithDistanceLoss(distance_function=nn.CosineSimilarity()),
    "replaced_batch_norms": lambda: torch.func.replace_all_batch_norm_modules_(
        nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Flatten(0, 1), nn.BatchNorm1d(4))
    ),
    "fused_linear_and_norm": lambda: fused(),
    "pruned_weight": lambda: prune.l1_unstructured(nn.Linear(4, 3), "weight", 0.5),
    "spectral_norm_old": lambda: nn.utils.spectral_norm(nn.Linear(4, 3)).eval(),
    "weight_norm_old": lambda: nn.utils.weight_norm(nn.Linear(4, 3)),
    "orthogonal_parametrization": lambda: nn.utils.parametrizations.orthogonal(nn.Linear(4, 4)),
    "rnn_base": lambda: OfRows(nn.RNNBase("GRU", 4, 3)),
}


class OfRows(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)[0]


def fused():
    linear, norm = nn.Linear(4, 3).eval(), nn.BatchNorm1d(3).eval()
    return nn.Sequential(nn.utils.fusion.fuse_linear_bn_eval(linear, norm))


programs(__name__, *GRADS, world=True, **BACK)({n: seeded(m) for n, m in LOSSES.items() if n != "triplet_with_distance_module"})


@program(*GRADS, world=True, **BACK)
def triplet_with_distance_module():
    loss = LOSSES["triplet_with_distance_module"]()
    return lambda x: loss(x, x.detach() + 1, x.detach() - 1)


@program(*GRADS, world=True, **BACK)
def unpooled_of_rows():
    pool, back = nn.MaxPool1d(2, return_indices=True), nn.MaxUnpool1d(2)
    return lambda x: back(*pool(x[None]))


def lazy(make, shape):
    def world():
        torch.manual_seed(0)
        m = make()
        m(torch.zeros(shape))
        return lambda x: m(x.reshape(shape[0], shape[1], *[-1, *shape[3:]] if len(shape) > 2 else [])), m

    return world


LAZY = {
    "lazy_conv1d": lazy(lambda: nn.LazyConv1d(2, 1), (1, 4, 3)),
    "lazy_conv_transpose1d": lazy(lambda: nn.LazyConvTranspose1d(2, 2), (1, 4, 3)),
    "lazy_conv2d": lazy(lambda: nn.LazyConv2d(2, (1, 2)), (1, 2, 3, 2)),
    "lazy_conv_transpose2d": lazy(lambda: nn.LazyConvTranspose2d(2, 2), (1, 2, 3, 2)),
    "lazy_conv3d": lazy(lambda: nn.LazyConv3d(2, (1, 2, 1)), (1, 2, 3, 2, 1)),
    "lazy_conv_transpose3d": lazy(lambda: nn.LazyConvTranspose3d(2, 1), (1, 2, 3, 2, 1)),
    "lazy_instance_norm1d": lazy(lambda: nn.LazyInstanceNorm1d(affine=True), (1, 4, 3)),
    "lazy_instance_norm2d": lazy(lambda: nn.LazyInstanceNorm2d(), (1, 2, 3, 2)),
    "lazy_instance_norm3d": lazy(lambda: nn.LazyInstanceNorm3d(), (1, 2, 3, 2, 1)),
    "lazy_batch_norm2d": lazy(lambda: nn.LazyBatchNorm2d(), (1, 2, 3, 2)),
    "lazy_batch_norm3d": lazy(lambda: nn.LazyBatchNorm3d(), (1, 2, 3, 2, 1)),
}
programs(__name__, *GRADS, world=True, **BACK)(LAZY)

# -- distributions and their transforms -------------------------------------------------------------------------------------------------
TRANSFORMS = {
    "abs": lambda: T.AbsTransform(),
    "affine_and_exp": lambda: T.ComposeTransform([T.AffineTransform(1.0, 2.0), T.ExpTransform()]),
    "corr_cholesky": lambda: T.CorrCholeskyTransform(),
    "cumulative": lambda: T.CumulativeDistributionTransform(D.Normal(0.0, 1.0)),
    "independent": lambda: T.IndependentTransform(T.ExpTransform(), 1),
    "power": lambda: T.ComposeTransform([T.SoftplusTransform(), T.PowerTransform(torch.tensor(2.0))]),
    "reshape": lambda: T.ReshapeTransform((4,), (2, 2)),
    "softmax": lambda: T.SoftmaxTransform(),
    "softplus": lambda: T.SoftplusTransform(),
    "stick_breaking": lambda: T.StickBreakingTransform(),
    "sigmoid": lambda: T.SigmoidTransform(),
    "tanh": lambda: T.TanhTransform(),
    "cat": lambda: T.CatTransform([T.ExpTransform(), T.identity_transform], dim=1, lengths=[1, 3]),
    "stack": lambda: T.StackTransform([T.ExpTransform(), T.identity_transform, T.SoftplusTransform(), T.identity_transform], dim=1),
}
NO_DETERMINANT = "abs softmax reshape".split()


def transformed(name, make):
    def run(x):
        x = x * 0.3
        if name == "corr_cholesky":
            x = x[:, :3]
        f = make()
        y = f(x)
        more = () if name in NO_DETERMINANT else (f.log_abs_det_jacobian(x, y),)
        return y, *(() if name == "abs" else (f.inv(y),)), *more

    return run


programs(__name__, *GRADS, **BACK)({f"transform_{n}": transformed(n, m) for n, m in TRANSFORMS.items()})
programs(__name__, *GRADS, **BACK)(
    {
        "lower_cholesky_transform": lambda x: T.LowerCholeskyTransform()((x.T @ x) * 0.1),
        "positive_definite_transform": lambda x: T.PositiveDefiniteTransform()((x.T @ x) * 0.1),
        "vec_to_tril": lambda x: D.utils.vec_to_tril_matrix(x[:, :3]),
        "tril_to_vec": lambda x: D.utils.tril_matrix_to_vec(x.T @ x),
    }
)
DISTRIBUTIONS = {
    "binomial": lambda x: D.Binomial(5, logits=x).log_prob(torch.full_like(x.detach(), 2.0)),
    "chi2": lambda x: (D.Chi2(x.abs() + 1).log_prob(x.detach().abs() + 1), D.Chi2(x.abs() + 1).mean),
    "continuous_bernoulli": lambda x: (
        D.ContinuousBernoulli(logits=x).log_prob(torch.full_like(x.detach(), 0.3)),
        D.ContinuousBernoulli(logits=x).mean,
        D.ContinuousBernoulli(logits=x).entropy(),
    ),
    "generalized_pareto": lambda x: D.GeneralizedPareto(0.0, x.abs() + 1, 0.1).log_prob(x.detach().abs() + 0.1),
    "half_cauchy": lambda x: (
        D.HalfCauchy(x.abs() + 1).log_prob(x.detach().abs()),
        D.HalfCauchy(x.abs() + 1).cdf(x.detach().abs()),
        D.HalfCauchy(x.abs() + 1).entropy(),
    ),
    "logistic_normal": lambda x: D.LogisticNormal(x, x.abs() + 1).log_prob(torch.full((x.shape[0], 5), 0.2)),
    "one_hot_straight_through": lambda x: D.OneHotCategoricalStraightThrough(logits=x).rsample(),
    "relaxed_one_hot": lambda x: (
        D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=x).rsample(),
        D.RelaxedOneHotCategorical(torch.tensor(0.5), logits=x).log_prob(x.detach().softmax(-1)),
    ),
    "relaxed_bernoulli_drawn": lambda x: D.RelaxedBernoulli(torch.tensor(0.5), logits=x).rsample(),
    "lkj_cholesky": lambda x: D.LKJCholesky(3, x[:, 0].abs() + 1).log_prob(torch.eye(3).expand(x.shape[0], 3, 3)),
    "kl_registered": lambda x: (
        D.kl_divergence(D.Chi2(x.abs() + 1), D.Gamma(x.abs() + 2, x.abs() + 1)),
        D.kl_divergence(D.Binomial(3, logits=x), D.Binomial(3, logits=x.detach())),
    ),
    "transformed_by_a_list": lambda x: D.TransformedDistribution(
        D.Normal(x, 1.0), [T.SigmoidTransform(), T.AffineTransform(1.0, 3.0)]
    ).log_prob(torch.full_like(x.detach(), 2.0)),
    "transformed_drawn": lambda x: D.TransformedDistribution(D.Uniform(torch.zeros_like(x), 1.0), T.SigmoidTransform().inv).rsample(),
}
programs(__name__, *GRADS, **BACK)({f"distribution_{n}": f for n, f in DISTRIBUTIONS.items()})


@program(*GRADS, grad=True)
def distribution_wishart(x):  # it warns by what the data is
    return D.Wishart(torch.tensor(5.0), torch.eye(4) + x.T @ x * 0.1).log_prob(torch.eye(4) * 2)


# -- initialisations, schedules, averages -------------------------------------------------------------------------------------------------
INITIALISED = {
    "dirac": lambda w: init.dirac_(w[:, :, None]),
    "kaiming_normal": lambda w: init.kaiming_normal_(w, nonlinearity="leaky_relu", a=0.1),
    "kaiming_uniform": lambda w: init.kaiming_uniform_(w, mode="fan_out"),
    "orthogonal": lambda w: init.orthogonal_(w, 2.0),
    "sparse": lambda w: init.sparse_(w, 0.5),
    "xavier_normal": lambda w: init.xavier_normal_(w, init.calculate_gain("tanh")),
    "xavier_uniform": lambda w: init.xavier_uniform_(w, 2.0),
    "eye": lambda w: init.eye_(w),
    "constant": lambda w: init.constant_(w, 3.0),
    "normal": lambda w: init.normal_(w, 1.0, 2.0),
    "uniform": lambda w: init.uniform_(w, -2, 3),
}
programs(__name__, *ROWS, **WHOLE)(
    {f"initialised_{n}": lambda x, f=f: (f(torch.empty(x.shape[0], 4)), f(x * 1)) for n, f in INITIALISED.items()}
)


@program(*ROWS)
def initialised_trunc_normal(x):  # it draws again as long as some are too large
    return init.trunc_normal_(torch.empty(x.shape[0], 4), 0.1, 0.5, -1, 1), init.trunc_normal_(x * 1)


SCHEDULES = {
    "constant": lambda o: L.ConstantLR(o, 0.5, 2),
    "exponential": lambda o: L.ExponentialLR(o, 0.9),
    "linear": lambda o: L.LinearLR(o, 0.5, total_iters=3),
    "multi_step": lambda o: L.MultiStepLR(o, [1, 3], 0.5),
    "multiplicative": lambda o: L.MultiplicativeLR(o, lambda i: 0.9),
    "polynomial": lambda o: L.PolynomialLR(o, 4, 2.0),
    "cyclic": lambda o: L.CyclicLR(o, 0.01, 0.1, 2),
    "plateau": lambda o: L.ReduceLROnPlateau(o, patience=0),
    "sequential": lambda o: L.SequentialLR(o, [L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9)], [2]),
    "chained": lambda o: L.ChainedScheduler([L.ConstantLR(o, 0.1, 2), L.ExponentialLR(o, 0.9)], optimizer=o),
}


def scheduled(name, make):
    def world():
        torch.manual_seed(0)
        m = nn.Linear(4, 2)
        o = torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9)
        s = make(o)

        def step(x):
            loss = m(x).square().mean()
            o.zero_grad()
            loss.backward()
            o.step()
            s.step(*([1.0] if name == "plateau" else []))
            return loss.detach(), o.param_groups[0]["lr"]

        return step, m

    return world


programs(__name__, *ROWS, *ROWS, world=True, **WHOLE)({f"schedule_{n}": scheduled(n, m) for n, m in SCHEDULES.items()})
AVERAGES = {
    "ema": lambda m: torch.optim.swa_utils.AveragedModel(m, avg_fn=torch.optim.swa_utils.get_ema_avg_fn(0.9)),
    "swa": lambda m: torch.optim.swa_utils.AveragedModel(m, avg_fn=torch.optim.swa_utils.get_swa_avg_fn()),
    "swa_of_many": lambda m: torch.optim.swa_utils.AveragedModel(
        m, multi_avg_fn=torch.optim.swa_utils.get_swa_multi_avg_fn(), use_buffers=True
    ),
}


def averaged(make):
    def world():
        torch.manual_seed(0)
        m = nn.Sequential(nn.Linear(4, 2), nn.BatchNorm1d(2)).eval()
        a = make(m)

        def step(x):
            with torch.no_grad():
                m[0].weight.add_(x.mean())
            a.update_parameters(m)
            return a(x), m(x)

        return step, m

    return world


programs(__name__, *ROWS, *ROWS, world=True)({f"average_{n}": averaged(m) for n, m in AVERAGES.items()})


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
