"""Options of modules, losses, optimizers and functions that programs seldom give: each with several sizes.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

from tests.programs.registry import cases, each, listed, program, programs, t

GRADS = each(3, 5, 2, tail=(4,), grad=True)
ROWS = each(3, 5, 2, tail=(4,))
IMAGES = each(2, 3, 1, tail=(2, 6, 5), grad=True)
LONG = each(7, 9, 5, tail=(2, 4), grad=True)
WHOLE = {"breaks": 0}
BACK = {"grad": True, **WHOLE}


def seeded(make, call=lambda m, x: m(x)):
    def world():
        torch.manual_seed(0)
        m = make()
        return lambda x: call(m, x), m

    return world


def of_self(m, x, **how):
    return m(x, x, x, **how)


# -- modules ---------------------------------------------------------------------------------------------------------------------------
ATTENTIONS = {
    "bias_kv": seeded(lambda: nn.MultiheadAttention(4, 2, add_bias_kv=True), of_self),
    "zero_attn": seeded(lambda: nn.MultiheadAttention(4, 2, add_zero_attn=True), of_self),
    "other_dims": seeded(lambda: nn.MultiheadAttention(4, 2, kdim=3, vdim=2), lambda m, x: m(x, x[..., :3], x[..., :2])),
    "each_head": seeded(lambda: nn.MultiheadAttention(4, 2), lambda m, x: of_self(m, x, average_attn_weights=False)),
    "no_weights": seeded(lambda: nn.MultiheadAttention(4, 2, bias=False), lambda m, x: of_self(m, x, need_weights=False)),
    "key_padding": seeded(
        lambda: nn.MultiheadAttention(4, 2), lambda m, x: of_self(m, x, key_padding_mask=torch.arange(x.shape[0]).expand(2, -1) > 3)
    ),
    "causal": seeded(
        lambda: nn.MultiheadAttention(4, 2),
        lambda m, x: of_self(
            m, x, attn_mask=nn.Transformer.generate_square_subsequent_mask(x.shape[0]), is_causal=True, need_weights=False
        ),
    ),
    "unbatched": seeded(lambda: nn.MultiheadAttention(4, 2), lambda m, x: m(x[:, 0], x[:, 1], x[:, 1])),
    "dropped": seeded(lambda: nn.MultiheadAttention(4, 2, dropout=0.5), of_self),
    "decoder_layer": seeded(lambda: nn.TransformerDecoderLayer(4, 2, 8, dropout=0.0, norm_first=True), lambda m, x: m(x, x * 0.5)),
    "encoder_causal": seeded(
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation="gelu"), 2, norm=nn.LayerNorm(4)),
        lambda m, x: m(x, mask=nn.Transformer.generate_square_subsequent_mask(x.shape[0]), is_causal=True),
    ),
    "transformer": seeded(lambda: nn.Transformer(4, 2, 1, 1, 8, dropout=0.1, batch_first=True), lambda m, x: m(x, x[:, :1])),
}
programs(__name__, *LONG, world=True, **BACK)({f"attention_{n}": w for n, w in ATTENTIONS.items()})
RECURRENT = {
    "projected": seeded(lambda: nn.LSTM(4, 3, proj_size=2)),
    "both_ways": seeded(lambda: nn.GRU(4, 3, 2, bidirectional=True)),
    "relu_batch_first": seeded(lambda: nn.RNN(4, 3, nonlinearity="relu", batch_first=True)),
    "given_state": seeded(lambda: nn.LSTM(4, 3), lambda m, x: m(x, (x[:1, :, :3] * 0.1, x[1:2, :, :3] * 0.2))),
    "no_bias": seeded(lambda: nn.GRU(4, 3, bias=False)),
    "unbatched": seeded(lambda: nn.LSTM(4, 3, bidirectional=True), lambda m, x: m(x[:, 0])),
    "dropped_between": seeded(lambda: nn.LSTM(4, 3, 2, dropout=0.5)),
    "packed": seeded(
        lambda: nn.GRU(4, 3),
        lambda m, x: nn.utils.rnn.pad_packed_sequence(m(nn.utils.rnn.pack_padded_sequence(x, torch.tensor([x.shape[0], 2])))[0])[0],
    ),
    "cells_in_a_loop": seeded(lambda: nn.LSTMCell(4, 3), lambda m, x: looped(m, x)),
}


def looped(m, x):
    state = None
    for row in x:
        state = m(row, state)
    return state


programs(__name__, *LONG, world=True, grad=True)({f"recurrent_{n}": w for n, w in RECURRENT.items()})
BAGS = {
    "sums": seeded(lambda: nn.EmbeddingBag(7, 3, mode="sum"), lambda m, x: m(index(x)) * x.sum()),
    "means_of_offsets": seeded(
        lambda: nn.EmbeddingBag(7, 3, mode="mean"), lambda m, x: m(index(x).flatten(), torch.arange(0, x.numel(), 2))
    ),
    "greatest": seeded(lambda: nn.EmbeddingBag(7, 3, mode="max"), lambda m, x: m(index(x))),
    "weighted": seeded(lambda: nn.EmbeddingBag(7, 3, mode="sum"), lambda m, x: m(index(x), per_sample_weights=x)),
    "padded": seeded(lambda: nn.EmbeddingBag(7, 3, mode="mean", padding_idx=0), lambda m, x: m(index(x))),
    "last_offset": seeded(
        lambda: nn.EmbeddingBag(7, 3, mode="sum", include_last_offset=True),
        lambda m, x: m(index(x).flatten(), torch.tensor([0, 2, x.numel()])),
    ),
    "renormed": seeded(lambda: nn.Embedding(7, 3, max_norm=0.5), lambda m, x: m(index(x)) * x[..., :1]),
    "scaled_by_frequency": seeded(lambda: nn.Embedding(7, 3, scale_grad_by_freq=True, padding_idx=2), lambda m, x: m(index(x))),
    "adaptive_log_softmax": seeded(lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 7, [2, 5]), lambda m, x: m(x, index(x)[:, 0]).loss),
    "adaptive_log_probability": seeded(lambda: nn.AdaptiveLogSoftmaxWithLoss(4, 7, [3]), lambda m, x: (m.log_prob(x), m.predict(x))),
    "bilinear": seeded(lambda: nn.Bilinear(4, 2, 3, bias=False), lambda m, x: m(x, x[:, :2])),
    "prelu_by_channel": seeded(lambda: nn.PReLU(4)),
    "group_norm": seeded(lambda: nn.GroupNorm(2, 4, affine=False)),
    "rms_norm": seeded(lambda: nn.RMSNorm(4, elementwise_affine=False)),
    "layer_norm_no_bias": seeded(lambda: nn.LayerNorm((4,), bias=False)),
    "batch_norm_momentum_none": seeded(lambda: nn.BatchNorm1d(4, momentum=None)),
    "batch_norm_no_statistics": seeded(lambda: nn.BatchNorm1d(4, track_running_stats=False, affine=False)),
    "instance_norm_tracking": seeded(lambda: nn.InstanceNorm1d(2, track_running_stats=True), lambda m, x: m(x.view(x.shape[0], 2, 2))),
    "local_response": seeded(lambda: nn.LocalResponseNorm(2), lambda m, x: m(x[:, :, None])),
    "softmax2d": seeded(lambda: nn.Softmax2d(), lambda m, x: m(x[:, :, None, None])),
}


def index(x):
    return (x.detach().abs() * 4).long() % 7


programs(__name__, *GRADS, world=True, **BACK)({f"module_{n}": w for n, w in BAGS.items()})


class Doubled(nn.Module):
    def forward(self, w):
        return w * 2

    def right_inverse(self, w):
        return w / 2


@program(*GRADS, world=True, **BACK)
def parametrized_twice_and_cached():
    torch.manual_seed(0)
    m = nn.Linear(4, 3)
    parametrize.register_parametrization(m, "weight", Doubled())
    parametrize.register_parametrization(m, "weight", nn.Tanh())

    def run(x):
        with parametrize.cached():
            return m(x) + m(x * 2), m.weight is m.weight

    return run, m


@program(*GRADS, world=True, **BACK)
def vectors_of_parameters():
    torch.manual_seed(0)
    m = nn.Linear(4, 3)
    return lambda x: (m(x), nn.utils.parameters_to_vector(m.parameters()).square().sum(), nn.utils.get_total_norm(list(m.parameters()))), m


listed(
    __name__,
    {
        "module_adaptive_log_softmax": "which rows each cluster has, and whether there are any, the data says",
        "module_adaptive_log_probability": "`predict` branches on whether all are in the shortlist",
    },
)


# -- losses ------------------------------------------------------------------------------------------------------------------------------
def classes(x):
    return (x.detach().abs() * 4).long().sum(1) % 4


LOSSES = {
    "cross_entropy_smoothed": lambda x: F.cross_entropy(x, classes(x), label_smoothing=0.1, weight=torch.tensor([1.0, 2, 3, 4])),
    "cross_entropy_ignored": lambda x: F.cross_entropy(x, classes(x), ignore_index=1, reduction="sum"),
    "cross_entropy_of_probabilities": lambda x: F.cross_entropy(x, x.detach().softmax(1), reduction="none"),
    "cross_entropy_of_images": lambda x: F.cross_entropy(x[:, :, None].expand(-1, -1, 3), classes(x)[:, None].expand(-1, 3)),
    "nll_weighted": lambda x: F.nll_loss(x.log_softmax(1), classes(x), weight=torch.tensor([1.0, 2, 3, 4]), reduction="none"),
    "bce_weighted": lambda x: F.binary_cross_entropy(x.sigmoid(), (x.detach() > 0).float(), weight=x.detach().abs(), reduction="sum"),
    "bce_logits_pos_weight": lambda x: F.binary_cross_entropy_with_logits(
        x, (x.detach() > 0).float(), pos_weight=torch.tensor([1.0, 2, 3, 4])
    ),
    "kl_of_logs": lambda x: F.kl_div(x.log_softmax(1), (x.detach() * 2).log_softmax(1), log_target=True, reduction="batchmean"),
    "gaussian_full": lambda x: F.gaussian_nll_loss(x, x.detach() + 1, x.abs() + 0.5, full=True),
    "poisson_full": lambda x: F.poisson_nll_loss(x, x.detach().abs() * 4, full=True, reduction="none"),
    "huber_weighted": lambda x: F.huber_loss(x, x.detach().flip(0), delta=0.3, reduction="sum", weight=x.detach().abs()),
    "smooth_l1_zero": lambda x: F.smooth_l1_loss(x, x.detach().flip(0), beta=0.0),
    "cosine_embedding": lambda x: F.cosine_embedding_loss(x, x.detach().flip(1), torch.ones(x.shape[0]), margin=0.2),
    "hinge_embedding": lambda x: F.hinge_embedding_loss(x, (x.detach() > 0).float() * 2 - 1, margin=0.3),
    "margin_ranking": lambda x: F.margin_ranking_loss(x, x.detach().flip(0), torch.ones_like(x), margin=0.1, reduction="none"),
    "multilabel_margin": lambda x: F.multilabel_margin_loss(x, torch.tensor([0, 2, -1, 1]).expand(x.shape[0], 4)),
    "multilabel_soft_margin": lambda x: F.multilabel_soft_margin_loss(x, (x.detach() > 0).float(), weight=torch.ones(4)),
    "soft_margin": lambda x: F.soft_margin_loss(x, (x.detach() > 0).float() * 2 - 1, reduction="sum"),
    "triplet_swapped": lambda x: F.triplet_margin_loss(x, x.detach().flip(0), x.detach().flip(1), p=1, swap=True, reduction="none"),
    "mse_weighted": lambda x: F.mse_loss(x, x.detach().flip(0), weight=x.detach().abs()),
    "ctc_zero_infinity": lambda x: F.ctc_loss(
        x[:, None].expand(-1, 2, -1).log_softmax(2), torch.tensor([[1, 2], [3, 1]]), (x.shape[0], 2), (2, 1), blank=0, zero_infinity=True
    ),
    "embedding_distances": lambda x: (
        F.pairwise_distance(x, x.detach().flip(0), p=3, keepdim=True),
        F.cosine_similarity(x[:, None], x[None], dim=-1),
        F.pdist(x),
    ),
}
programs(__name__, *GRADS, **BACK)({f"loss_{n}": f for n, f in LOSSES.items()})

# -- images ------------------------------------------------------------------------------------------------------------------------------
GRID = (t(1, 3, 4, 2, seed=3) * 0.7).detach()
IMAGE = {
    **{
        f"interpolated_{mode}_{align}": lambda x, mode=mode, align=align: F.interpolate(
            x, scale_factor=(1.5, 2), mode=mode, align_corners=align
        )
        for mode in ("bilinear", "bicubic")
        for align in (True, False)
    },
    "interpolated_area": lambda x: F.interpolate(x, size=(4, 7), mode="area"),
    "interpolated_nearest_exact": lambda x: F.interpolate(x, scale_factor=0.6, mode="nearest-exact"),
    "interpolated_antialiased": lambda x: F.interpolate(x, size=(3, 3), mode="bilinear", antialias=True),
    **{
        f"sampled_{mode}_{pad}": lambda x, mode=mode, pad=pad: F.grid_sample(
            x, GRID.expand(x.shape[0], -1, -1, -1), mode, pad, align_corners=False
        )
        for mode in ("bilinear", "nearest", "bicubic")
        for pad in ("zeros", "border", "reflection")
    },
    "folded": lambda x: F.fold(F.unfold(x, (2, 3), padding=1, stride=2), (6, 5), (2, 3), padding=1, stride=2),
    "unfolded_dilated": lambda x: F.unfold(x, 2, dilation=2),
    "shuffled": lambda x: (F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2), F.pixel_unshuffle(x[:, :, :, :4], 2), F.channel_shuffle(x, 2)),
    "shuffled_natively": lambda x: torch.native_channel_shuffle(x.detach(), 2) * x,
    "shuffled_volumes": lambda x: (
        torch.channel_shuffle(x[..., None].repeat(1, 3, 1, 1, 2).to(memory_format=torch.channels_last_3d), 3),
        torch.channel_shuffle(x[..., 0].repeat(1, 2, 1), 2),
    ),
    **{
        f"padded_{mode}": lambda x, mode=mode: F.pad(x, (1, 2, 2, 1), mode=mode)
        for mode in ("reflect", "replicate", "circular", "constant")
    },
    "pooled_ceil": lambda x: (
        F.avg_pool2d(x, 2, ceil_mode=True, divisor_override=3),
        F.max_pool2d(x, 3, 2, padding=1, dilation=1, ceil_mode=True),
    ),
    "pooled_lp": lambda x: F.lp_pool2d(x.abs() + 0.1, 3, 2, ceil_mode=True),
    "pooled_adaptive": lambda x: (F.adaptive_avg_pool2d(x, (None, 2)), F.adaptive_max_pool2d(x, (3, None), return_indices=True)),
    "convolved_grouped": lambda x: F.conv2d(
        x, t(4, 1, 3, 2, seed=1), t(4, seed=2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2
    ),
    "convolved_same": lambda x: F.conv2d(x, t(3, 2, 3, 4, seed=1), padding="same"),
    "convolved_back": lambda x: F.conv_transpose2d(x, t(2, 1, 3, 2, seed=1), stride=2, padding=1, output_padding=1, groups=2),
    "normalized_weights": lambda x: (
        F.normalize(x, p=1, dim=1),
        F.instance_norm(x),
        F.group_norm(x, 2, eps=0.1),
        F.local_response_norm(x, 2),
    ),
    "dropped_channels": lambda x: (
        F.dropout2d(x, 0.5),
        F.feature_alpha_dropout(x, 0.3, training=True),
        F.alpha_dropout(x, 0.3, training=True),
    ),
    "resized_last": lambda x: (
        x.to(memory_format=torch.channels_last).relu() + F.max_pool2d(x.contiguous(memory_format=torch.channels_last), 1)
    ),
}
programs(__name__, *IMAGES, **BACK)({f"image_{n}": f for n, f in IMAGE.items()})

# -- tensors -----------------------------------------------------------------------------------------------------------------------------
TENSORS = {
    **{
        f"quantile_{i}": lambda x, i=i: (
            x.quantile(0.3, 0, interpolation=i),
            x.nanquantile(torch.tensor([0.1, 0.7]), 1, True, interpolation=i),
        )
        for i in ("linear", "lower", "higher", "nearest", "midpoint")
    },
    **{
        f"scattered_{r}": lambda x, r=r: x.scatter_reduce(1, index(x) % 4, x * 2, r, include_self=False)
        for r in ("sum", "mean", "amax", "amin", "prod")
    },
    **{f"distances_{p}": lambda x, p=p: torch.cdist(x, x.detach() + 0.3, p=p) for p in (0.5, 1.0, 2.0, 3.0, float("inf"))},
    "running": lambda x: (x.cummax(0), x.cummin(1), x.logcumsumexp(0), x.cumsum(1, dtype=torch.float64)),
    "chosen": lambda x: (x.kthvalue(2, 0), x.mode(1), x.nanmedian(1), x.median(0), x.msort(), x.topk(2, 0, largest=False, sorted=True)),
    "taken": lambda x: (
        x.take(torch.tensor([0, 5, -1])),
        torch.take_along_dim(x, x.argsort(1), 1),
        x.gather(0, torch.zeros(1, 4, dtype=torch.long)),
    ),
    "put": lambda x: (
        (x * 1).put_(torch.tensor([1, 1, 3]), x[0, :3], accumulate=True),
        x.index_add(0, torch.tensor([0, 0]), x[:2], alpha=3),
    ),
    "filled": lambda x: (
        x.index_fill(1, torch.tensor([0, 2]), 7.0),
        x.masked_fill(x > 0, x[0, 0]),
        x.masked_scatter(x > 0, x.flatten()),
        x.index_copy(0, torch.tensor([1, 0]), x[:2]),
    ),
    "turned": lambda x: (x.roll((1, -1), (0, 1)), x.roll(3), x.rot90(3), x.flip(0, 1), x.fliplr(), x.flipud()),
    "combined": lambda x: (
        torch.block_diag(x, x[:1]),
        torch.cartesian_prod(x[:, 0], x[0]),
        torch.combinations(x[0], 2, True),
        torch.meshgrid(x[0], x[:, 0], indexing="xy"),
    ),
    "tensordots": lambda x: (
        torch.tensordot(x, x, ([0], [0])),
        torch.tensordot(x, x.T, 1),
        torch.inner(x, x[:2]),
        torch.kron(x, x[:1]),
        torch.outer(x[0], x[:, 0]),
    ),
    "einsums": lambda x: (
        torch.einsum("ij,kj->ik", x, x),
        torch.einsum("...j,j->...", x, x[0]),
        torch.einsum(x, [0, 1], x, [0, 2], [1, 2]),
        torch.einsum("ii->i", x.T @ x),
    ),
    "norms": lambda x: (
        x.norm(float("inf"), 0),
        x.norm(0),
        torch.linalg.vector_norm(x, 3, (0, 1)),
        torch.linalg.matrix_norm(x, "nuc"),
        torch.linalg.matrix_norm(x, 1),
        x.norm("fro", dim=(0, 1)),
    ),
    "deviations": lambda x: (
        x.std(0, correction=0),
        x.var(1, unbiased=False, keepdim=True),
        torch.std_mean(x, 1),
        torch.var_mean(x, (0, 1), correction=2),
        x.T.cov(),
        x.corrcoef(),
    ),
    "differences": lambda x: (
        x.diff(n=2),
        x.diff(dim=0, prepend=x[:1]),
        torch.gradient(x, spacing=2.0, dim=1),
        torch.trapezoid(x, dim=0),
        torch.cumulative_trapezoid(x),
    ),
    "as_other_dtypes": lambda x: (
        x.view(torch.int32),
        x.detach().view(torch.uint8),
        x.to(torch.bfloat16).float(),
        x.double().to(x),
        x.type_as(x.double()),
        torch.result_type(x, 1.0),
    ),
    "windows_of_rows": lambda x: (
        x.unfold(1, 2, 1).sum(-1),
        x.as_strided((2, 2), (1, 2), 1),
        x.diagonal(1),
        x.diag_embed(-1),
        torch.diagonal_scatter(x, x[0, : min(x.shape)]),
        x.select_scatter(x[0], 0, 1),
        x.slice_scatter(x[:, :2], 1, 1, 3),
    ),
    "clamped_by_tensors": lambda x: (
        x.clamp(x.detach() - 0.1, x.detach() + 0.1),
        torch.clamp(x, max=x[0]),
        x.clip(min=0),
        torch.maximum(x, x[0]),
        torch.fmin(x, -x),
        torch.where(x > 0, x, 0.0),
    ),
    "lerps": lambda x: (
        x.lerp(x[0], 0.3),
        torch.lerp(x, x.flip(0), x.sigmoid()),
        torch.addcmul(x, x, x, value=2),
        torch.addcdiv(x, x, x.abs() + 1),
        torch.dist(x, x.flip(0), 3),
    ),
    "complex_parts": lambda x: (
        torch.polar(x.abs() + 1, x).real,
        torch.complex(x, x).angle(),
        torch.view_as_real(torch.complex(x, -x).conj() * 1j),
        torch.complex(x, x).abs(),
        torch.sgn(torch.complex(x, x)).imag,
    ),
    "stacked": lambda x: (
        torch.hstack((x, x)),
        torch.vstack((x[0], x)),
        torch.dstack((x, x)),
        torch.column_stack((x[:, 0], x)),
        torch.row_stack((x, x)),
    ),
    "pieces": lambda x: (
        x.tensor_split(3, 1),
        x.tensor_split((1,), 0),
        x.hsplit(2),
        x.chunk(3, 1),
        x.split([1, 3], 1),
        x.unflatten(1, (2, -1)),
        x.unsafe_split(2, 1),
    ),
    "moved": lambda x: (
        x.movedim(0, 1),
        x[None].moveaxis((0, 1), (1, 0)),
        x.swapaxes(0, 1),
        x[None].permute(2, 0, 1),
        x.mT,
        x[None].mH,
        x.adjoint(),
        x.ravel(),
        x[None].squeeze((0,)),
    ),
    "softmaxes": lambda x: (
        F.gumbel_softmax(x, hard=True),
        x.softmax(0, torch.float64),
        F.softmin(x, 1),
        F.log_softmax(x, 0),
        F.softsign(x),
        F.glu(x),
        F.hardshrink(x),
        F.tanhshrink(x),
        F.softshrink(x, 0.3),
        F.threshold(x, 0.1, 5.0),
        F.logsigmoid(x),
    ),
    "solved": lambda x: (
        torch.linalg.solve(x.T @ x + 9 * torch.eye(4), x.T),
        torch.linalg.lstsq(x.T @ x + 9 * torch.eye(4), x.T).solution,
        torch.linalg.cholesky(x.T @ x + 9 * torch.eye(4)).logdet(),
        torch.linalg.matrix_power(x.T @ x, 3),
    ),
    "multi_dot": lambda x: (
        torch.linalg.multi_dot([x, x.T, x]),
        torch.chain_matmul(x, x.T),
        x.matrix_exp() if x.shape[0] == x.shape[1] else (x.T @ x * 0.1).matrix_exp(),
        torch.linalg.householder_product(x.T, x[:, 0][: min(x.shape)]),
    ),
}
programs(__name__, *GRADS, **BACK)({f"tensor_{n}": f for n, f in TENSORS.items()})
COUNTS = {
    "bucketized": lambda x: (
        torch.bucketize(x, torch.tensor([-1.0, 0, 1]), right=True),
        torch.searchsorted(x.sort().values, x[:, :2].contiguous(), side="right"),
        torch.searchsorted(torch.tensor([0.0, 1]), 0.5),
    ),
    "histograms": lambda x: (
        torch.histc(x, 4, -1, 1),
        torch.histogram(x, 3, range=(-1.0, 1.0)),
        torch.bincount(index(x).flatten(), minlength=8),
        torch.bincount(index(x).flatten(), x.flatten().double()),
    ),
    "uniques": lambda x: (
        index(x).unique(return_counts=True),
        torch.unique_consecutive(index(x).flatten(), return_inverse=True),
        index(x).unique(dim=0),
        torch.isin(index(x), torch.tensor([1, 2]), invert=True),
    ),
    "found": lambda x: (
        x.argwhere(),
        (x > 0).nonzero(as_tuple=True),
        x.count_nonzero(1),
        x.argmax(0, keepdim=True),
        x.aminmax(dim=1),
        x.argmin(),
        (x > 0).any(0),
        (x > 9).all(),
    ),
    "compared": lambda x: (
        torch.isclose(x, x + 1e-9),
        torch.allclose(x, x),
        torch.equal(x, x + 0),
        x.eq(x[0]),
        torch.logical_xor(x > 0, x < 1),
        x.isfinite(),
        x.isposinf(),
        x.signbit(),
        torch.is_same_size(x, x.T),
    ),
    "made": lambda x: (
        torch.linspace(0, 1, x.shape[0]),
        torch.logspace(0, 2, x.shape[0], base=2),
        torch.full_like(x, 3, dtype=torch.int64),
        x.new_full((x.shape[0],), 2),
        torch.eye(x.shape[0], 3),
        torch.tril_indices(x.shape[0], 3, 1),
        torch.vander(x[0], x.shape[0]),
        torch.arange(0, x.shape[0], 0.5),
        torch.zeros_like(x, memory_format=torch.contiguous_format),
    ),
    "integers": lambda x: (
        index(x).bitwise_and(3),
        index(x) // 2,
        index(x) % 3,
        index(x).remainder(-2),
        index(x).fmod(-2),
        torch.gcd(index(x), index(x) + 2),
        torch.div(index(x), 2, rounding_mode="trunc"),
        index(x).pow(2),
        2 ** index(x),
        -index(x),
        ~index(x),
    ),
    "numbers": lambda x: (
        x.frexp(),
        x.ldexp(torch.tensor(2)),
        x.nextafter(x + 1),
        x.copysign(-1.0),
        torch.heaviside(x, torch.tensor(0.3)),
        x.nan_to_num(0.0),
        x.float_power(2),
        x.hypot(x),
        x.sinc(),
        x.logaddexp(x),
        x.logaddexp2(x),
        x.round(decimals=1),
    ),
    "drawn": lambda x: (
        torch.randperm(x.shape[0]),
        torch.randint(2, 9, x.shape),
        torch.bernoulli(x.sigmoid()),
        torch.multinomial(x.softmax(1), 2),
        torch.normal(x, 1.0),
        torch.poisson(x.abs() * 3),
        torch.empty_like(x).exponential_(2.0),
        torch.empty_like(x).geometric_(0.3),
        torch.empty_like(x).cauchy_(),
        torch.empty_like(x).log_normal_(),
        (x * 1).random_(0, 9),
        torch.binomial(x.abs().round() + 1, x.sigmoid()),
    ),
}
programs(__name__, *ROWS, grad=False)({f"count_{n}": f for n, f in COUNTS.items()})

# -- NumPy's generator ----------------------------------------------------------------------------
DRAWN = {
    "rows": lambda x: (np.random.rand(2), np.random.rand(), np.random.rand(x.shape[0], 3), np.random.rand(0, 2), x * 2),
    "gauss": lambda x: (np.random.randn(3), np.random.randn(), np.random.randn(x.shape[0]), np.random.standard_normal((2, 2))),
    "uniform": lambda x: (x * np.random.uniform(0, x.shape[0]), np.random.uniform(-1, 2, 3), np.random.uniform(size=(2, x.shape[0]))),
    "normal": lambda x: (np.random.normal(1, 2, size=(x.shape[0],)), np.random.normal(), np.random.normal(0.5, size=2) * x.shape[0]),
    "noise": lambda x: x + torch.from_numpy(np.random.randn(*x.shape)).float(),
    "samples": lambda x: (np.random.random_sample(3), np.random.random(x.shape), x[0] * np.random.rand(4)[0]),
}
programs(__name__, *ROWS, **WHOLE, captures=1)({f"drawn_by_numpy_{n}": f for n, f in DRAWN.items()})
programs(__name__, *ROWS)(
    {
        "drawn_by_numpy_refused": lambda x: np.random.normal(0, -1, size=2),
        "drawn_by_numpy_no_dims": lambda x: (np.random.random_sample(()), np.random.uniform(0, 1, ())),
        "drawn_by_numpy_bounds_of_data": lambda x: np.random.uniform(x.numpy()[0], 3.0),
        "drawn_by_numpy_wrong_size": lambda x: np.random.rand(-1, x.shape[0]),
        "drawn_by_numpy_no_such_argument": lambda x: np.random.rand(2, size=3),
    }
)

# -- optimizers ---------------------------------------------------------------------------------------------------------------------------
OPTIMIZERS = {
    "sgd_nesterov": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=0.1, foreach=False),
    "sgd_maximized": lambda p: torch.optim.SGD(p, 0.1, maximize=True, dampening=0.2, momentum=0.5),
    "adam_amsgrad": lambda p: torch.optim.Adam(p, 0.1, amsgrad=True, weight_decay=0.1),
    "adam_decoupled": lambda p: torch.optim.Adam(p, 0.1, decoupled_weight_decay=True, weight_decay=0.1, foreach=False),
    "adamw_fused": lambda p: torch.optim.AdamW(p, 0.1, fused=True),
    "adamw_lr_tensor": lambda p: torch.optim.AdamW(p, torch.tensor(0.1), foreach=False, capturable=False),
    "adamax": lambda p: torch.optim.Adamax(p, 0.1, weight_decay=0.1, maximize=True),
    "nadam": lambda p: torch.optim.NAdam(p, 0.1, momentum_decay=0.01, decoupled_weight_decay=True),
    "radam": lambda p: torch.optim.RAdam(p, 0.1, weight_decay=0.1),
    "adagrad": lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.1, initial_accumulator_value=0.2),
    "adadelta": lambda p: torch.optim.Adadelta(p, 0.5, rho=0.8),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.1, centered=True, momentum=0.9),
    "rprop": lambda p: torch.optim.Rprop(p, 0.1, etas=(0.4, 1.3)),
    "asgd": lambda p: torch.optim.ASGD(p, 0.1, t0=1.0, weight_decay=0.1),
    "adafactor": lambda p: torch.optim.Adafactor(p, 0.1),
    "groups": lambda p: torch.optim.SGD([{"params": p[:1], "lr": 0.5}, {"params": p[1:], "momentum": 0.9}], 0.1),
}


def stepped(make):
    def world():
        torch.manual_seed(0)
        m = nn.Linear(4, 3).double()
        o = make(list(m.parameters()))

        def step(x):
            o.zero_grad()
            loss = m(x.double()).tanh().square().mean()
            loss.backward()
            nn.utils.clip_grad_norm_(m.parameters(), 1.0)
            o.step()
            return loss.detach()

        return step, m

    return world


programs(__name__, *ROWS, *ROWS, world=True)({f"optimizer_{n}": stepped(m) for n, m in OPTIMIZERS.items()})


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
