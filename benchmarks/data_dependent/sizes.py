"""Input sizes that were declared dynamic, 0 and 1 among them, and sizes derived from them."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from benchmarks.data_dependent.program import data, program
from pliant import Dim

Tensor = torch.Tensor
ROWS = Dim("rows")
FIRST = ((0, 0, ROWS),)
FEW = Dim("rows", min=1, max=256)


@program("133653", lambda n: (data(n, 3, 8, 8), data(4, 3, 3, 3), data(4, 5)), dims=FIRST, captures=2)
def small_resnet(x: Tensor, kernel: Tensor, head: Tensor) -> Tensor:
    """Eager normalizes an empty batch in another way."""
    y = F.conv2d(x, kernel, padding=1)
    y = F.relu(F.batch_norm(y, torch.zeros(4), torch.ones(4)))
    y = y + F.conv2d(x, kernel, padding=1)
    return F.adaptive_avg_pool2d(y, 1).flatten(1) @ head


@program("145775", lambda n: (data(n, 5),), dims=FIRST)
def join_with_ones(x: Tensor) -> Tensor:
    return torch.cat([x, torch.ones(5, 5)]).mean(1)


@program("135005", lambda n: (data(n, 8), data(4, 8)), dims=((0, 0, Dim("rows", max=8196)),))
def ranged_batch(x: Tensor, w: Tensor) -> Tensor:
    return F.linear(x, w).softmax(-1).argmax(-1)


@program("120482", lambda n: (data(4), data(n)), dims=((1, 0, ROWS),))
def outer_product(a: Tensor, b: Tensor) -> Tensor:
    return torch.outer(a, b) + b


@program("145587", lambda n: (data(n, 3),), dims=FIRST, captures=2)
def special_case_for_one(x: Tensor) -> Tensor:
    if x.shape[0] == 1:
        return x.squeeze(0) * 2
    return x.sum(0)


@program("101014", lambda n: (data(1, 1, n + 4), data(1, 1, 4)), dims=((0, 2, Dim("length", min=4)),))
def padding_by_parity(x: Tensor, kernel: Tensor) -> Tensor:
    padding = math.ceil((kernel.shape[-1] + x.shape[-1] % 2) / 2) - 1
    return F.conv1d(x, kernel, padding=padding, stride=2)


@program("121063", lambda n: (data(n), data(2 * n + 1, seed=1)), dims=((0, 0, ROWS), (1, 0, 2 * ROWS + 1)))
def twice_plus_one(x: Tensor, y: Tensor) -> Tensor:
    return y[1::2] * x + y[:-1:2] - y[2::2]


@program("198201", lambda n: (data(1, 2, n + 1, 4),), dims=((0, 2, Dim("height", min=1)),))
def enlarge_by_a_factor(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=1.5, mode="bilinear") + 1


@program("147261", lambda n: (data(1, 2, 300 * (n + 1)),), dims=((0, 2, Dim("length", min=300)),))
def shrink_by_a_factor(x: Tensor) -> Tensor:
    return F.interpolate(x, scale_factor=1 / 300, mode="linear")


@program("114752", lambda n: (data(1, 50 + 10 * n, 4),), dims=((0, 1, Dim("length", min=1)),))
def resample_by_rates(features: Tensor) -> Tensor:
    seconds = features.shape[1] / 50.0
    wanted = int(seconds * 30) + 1
    return F.interpolate(features.transpose(1, 2), size=wanted, mode="linear", align_corners=True).transpose(1, 2)


@program("134663", lambda n: (data(n + 7),), dims=((0, 0, Dim("length", min=7)),))
def three_chunks(x: Tensor) -> Tensor:
    a, b, c = torch.chunk(x, 3)
    return a.sum() * b.sum() + c.cumsum(0)


@program("141251", lambda n: (data(n + 1, 2), data(n + 1, 2, seed=1)), dims=((0, 0, FEW), (1, 0, FEW)))
def one_piece_of_256(x: Tensor, y: Tensor) -> Tensor:
    piece = torch.split(x, 256)[0]
    return torch.slice_scatter(y, piece, 0, 0, 256)


@program("141034", lambda n: (data(n, 10), torch.arange(n) % 10), dims=((0, 0, ROWS), (1, 0, ROWS)))
def summed_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, ignore_index=3, reduction="sum")


@program("116493", lambda n: (data(3, n + 1),), dims=((0, 1, Dim("length", min=1)),))
def differences(x: Tensor) -> Tensor:
    return torch.diff(x, dim=-1).sum(-1)


@program("103892", lambda n: (data(1, n + 1),), dims=((0, 1, Dim("length", min=1)),))
def pool_to_one(x: Tensor) -> Tensor:
    return F.adaptive_max_pool1d(x, 1)


@program("microsoft/onnxscript#2539", lambda n: (data(n, 2),), dims=FIRST)
def pad_to_a_multiple(x: Tensor) -> Tensor:
    n = x.shape[0]
    windows = F.pad(x, (0, 0, 0, -n % 4)).view(-1, 4, 2)
    return windows.sum(1).cumsum(0)


@program("115492", lambda n: (data(n + 4),), dims=((0, 0, Dim("length", min=4)),))
def overlapping_frames(x: Tensor) -> Tensor:
    return x.unfold(0, 4, 2) * torch.hann_window(4)


@program("127830", lambda n: (data(2, 3, n + 1, 5),), dims=((0, 2, Dim("height", min=1)),))
def image_to_tokens_and_back(x: Tensor) -> Tensor:
    height, width = x.size(2), x.size(3)
    tokens = x.flatten(2).transpose(1, 2)
    return tokens.reshape(-1, height, width, 3).permute(0, 3, 1, 2).contiguous()


@program("135099", lambda n: (data(4, 3), data(n, 3, seed=1)), dims=((1, 0, ROWS),))
def nearest_few(a: Tensor, b: Tensor) -> tuple:
    return torch.cdist(a, b).topk(min(3, b.size(0)), 1, False)


@program("139307", lambda n: (data(16 * n),), dims=((0, 0, Dim("length", multiple_of=16)),))
def multiples_of_sixteen(x: Tensor) -> Tensor:
    return x.view(x.shape[0] // 16, 16).sum(1)


@program("140011", lambda n: (data(2, n, 4),), dims=((0, 1, Dim("length")),))
def causal_scores(x: Tensor) -> Tensor:
    n = x.shape[1]
    seen = torch.arange(n)[:, None] >= torch.arange(n)[None, :]
    return (x @ x.transpose(1, 2)).masked_fill(~seen, -1e9).softmax(-1)


@program("122294", lambda n: (data(1, 4, n + 1, 6), data(3, 4, seed=1)), dims=((0, 2, Dim("height", min=1)),))
def prompts_before_pixels(image: Tensor, prompts: Tensor) -> Tensor:
    pixels = image.flatten(2).permute(0, 2, 1)
    tokens = torch.cat([prompts.expand(pixels.shape[0], -1, -1), pixels], dim=1)
    return tokens[:, 3:] - tokens[:, :3].mean(1, keepdim=True)


@program("153174", lambda n: (data(4 * n, 3),), dims=((0, 0, Dim("rows", multiple_of=4)),))
def quarter_view(x: Tensor) -> Tensor:
    rows = x.shape[0]
    return x.view(rows // 4, 4, 3).transpose(0, 1).reshape(4, -1).roll(1, 0)


@program("151356", lambda n: (data(2, n, 4), data(2, n, 4, seed=1)), dims=((0, 1, Dim("length")), (1, 1, Dim("length"))), captures=3)
def two_inputs_of_one_length(query: Tensor, key: Tensor) -> Tensor:
    """Eager attends to nothing, and to one, in other ways."""
    return F.scaled_dot_product_attention(query, key, key)[:, ::2]
