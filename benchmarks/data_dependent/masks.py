"""Masks, `nonzero`, `unique` and their like: sizes that count elements."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from benchmarks.data_dependent.program import data, flags, program

Tensor = torch.Tensor
WIDE = (5, 0, 1, 2, 9, 12)


@program("161393", lambda n: (flags(n, 12).reshape(3, 4).float(),), sizes=WIDE)
def nonzero_all_but_last(x: Tensor) -> Tensor:
    return x.nonzero()[:-1]


@program("130624", lambda n: (flags(n, 12).reshape(1, 3, 4),), sizes=WIDE)
def nonzero_squared(x: Tensor) -> Tensor:
    positions = x.nonzero()
    return positions * positions + positions.shape[0]


@program("180202", lambda n: (data(9, 4, 16), flags(n, 9), data(48, 16, seed=1)))
def attention_over_chosen_rows(x: Tensor, chosen: Tensor, w: Tensor) -> Tensor:
    y = F.linear(x[chosen], w)
    batch, length = y.shape[0], y.shape[1]
    q, k, v = (t.view(batch, length, 2, 8).transpose(1, 2) for t in y.chunk(3, dim=-1))
    return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(batch, length, 16)


@program("181084", lambda n: (data(9, 2, 4, 8), flags(n, 9), flags(12, 16).reshape(1, 1, 4, 4)))
def attention_with_a_mask_for_each(x: Tensor, chosen: Tensor, mask: Tensor) -> Tensor:
    y = x[chosen]
    seen = mask.expand(y.shape[0], 1, 4, 4) | torch.eye(4, dtype=torch.bool)
    return F.scaled_dot_product_attention(y, y, y, attn_mask=seen)


@program("147672", lambda n: (data(9, 256), flags(n, 9)))
def chosen_rows_flattened(x: Tensor, chosen: Tensor) -> Tensor:
    flat = x[chosen].view(-1)
    return flat.view(-1, 256).softmax(-1).sum(0) + flat.shape[0]


@program("26034", lambda n: (data(12, 4), flags(n, 12)), sizes=WIDE)
def masked_select_of_boxes(boxes: Tensor, confident: Tensor) -> tuple:
    chosen = boxes.masked_select(confident[:, None]).reshape(-1, 4)
    return chosen, chosen.sum(0), chosen.numel()


@program("113118", lambda n: (torch.arange(12) * n // 12,), sizes=(5, 1, 2, 7, 12, 3))
def runs(x: Tensor) -> tuple:
    values, counts = torch.unique_consecutive(x, return_counts=True)
    return values.float() * counts, counts.cumsum(0)


@program("151722", lambda n: (torch.arange(12) % max(n, 1) * 3 if n else torch.arange(12)[:0],), sizes=(5, 1, 2, 7, 12, 3))
def unique_and_back(x: Tensor) -> tuple:
    values, inverse, counts = torch.unique(x, return_inverse=True, return_counts=True)
    return values[inverse] - x, counts.float() / values.shape[0]


@program("99609", lambda n: ({"a": data(9, 2), "b": data(9, 3, seed=1)}, flags(n, 9)))
def mask_in_a_nested_function(features: dict, mask: Tensor) -> dict:
    out = {}

    def keep(m: Tensor) -> None:
        for name, value in features.items():
            out[name] = torch.tanh(value[m])

    keep(mask)
    return out


@program("194166", lambda n: (data(9, 8), flags(n, 9), data(8, seed=1), data(8, seed=2).square() + 0.1))
def norm_of_the_masked_rows(x: Tensor, mask: Tensor, mean: Tensor, var: Tensor) -> Tensor:
    out = x.clone()
    out[mask] = F.batch_norm(x[mask], mean, var)
    return out


@program("134241", lambda n: (flags(n, 9), data(9, 3, grad=True)), grad=True)
def masked_copy_differentiated(mask: Tensor, z: Tensor) -> Tensor:
    x = torch.zeros_like(z)
    x[mask] = z[mask]
    return (x * 2).sin()


@program("93421", lambda n: (data(9), flags(n, 9), data(9, seed=1)))
def index_put_of_a_mask(x: Tensor, mask: Tensor, values: Tensor) -> Tensor:
    chosen = values[: mask.nonzero().shape[0]]
    return torch.index_put(x, (mask,), chosen)


@program("187415", lambda n: (data(3, 9), flags(n, 9)))
def columns_outside_a_mask(w: Tensor, mask: Tensor) -> Tensor:
    rest = w[:, ~mask]
    return rest.square().sum(1, keepdim=True) + rest.sum() - w[:, mask].sum(1, keepdim=True)


@program("huggingface/transformers#38518", lambda n: (data(8, 4), data(8, 3, seed=n), data(3, 4, 4, seed=9)), sizes=(5, 0, 1, 2, 3, 4))
def mixture_of_experts(x: Tensor, router: Tensor, experts: Tensor) -> Tensor:
    chosen = router.argmax(-1)
    out = torch.zeros_like(x)
    for e in range(experts.shape[0]):
        (rows,) = torch.where(chosen == e)
        out.index_add_(0, rows, torch.relu(x[rows] @ experts[e]))
    return out


@program("154559", lambda n: (data(12, 4), torch.arange(12) * n % 3 * (n > 0), data(3, 4, 4, seed=9)), sizes=(5, 0, 1, 2, 7, 3))
def sorted_experts(x: Tensor, chosen: Tensor, experts: Tensor) -> Tensor:
    order = chosen.argsort(stable=True)
    counts = torch.bincount(chosen, minlength=3)[:3].tolist()
    ordered, outputs, start = x[order], [], 0
    for weight, count in zip(experts, counts):
        outputs.append(ordered[start : start + count] @ weight)
        start = start + count
    done = torch.cat(outputs)
    back = torch.empty_like(done)
    back[order] = done
    return back


@program("89628", lambda n: (torch.arange(12) % max(n, 1),), sizes=(5, 0, 1, 2, 7, 12))
def histogram(x: Tensor) -> Tensor:
    counts = torch.bincount(x)
    return counts / counts.sum()


@program("186029", lambda n: (torch.arange(8) % max(n, 1), data(8)), sizes=(5, 0, 1, 2, 7, 8))
def weighted_histogram(x: Tensor, weights: Tensor) -> tuple:
    counts = x.bincount(weights=weights, minlength=6)
    return counts, counts.count_nonzero()


@program("146152", lambda n: (data(9, 4).abs().cumsum(1), flags(n, 9).float() * 0.9 + data(9).sigmoid() / 20))
def suppress_overlaps(boxes: Tensor, scores: Tensor) -> tuple:
    """Non-maximum suppression as matrices: a box goes if a better one that stays covers it."""
    (candidates,) = torch.where(scores > 0.5)
    order = candidates[scores[candidates].argsort(descending=True)]
    b = boxes[order]
    low = torch.maximum(b[:, None, :2], b[None, :, :2])
    high = torch.minimum(b[:, None, 2:], b[None, :, 2:])
    overlap = (high - low).clamp(min=0).prod(-1)
    area = (b[:, 2:] - b[:, :2]).prod(-1)
    covered = (overlap / (area[:, None] + area[None, :] - overlap + 1e-9) > 0.3).triu(1)
    kept = torch.ones_like(order, dtype=torch.bool)
    for _ in range(4):
        kept = ~(covered & kept[:, None]).any(0)
    keep = order[kept]
    return keep, boxes[keep]


@program("108805", lambda n: (data(9), flags(n, 9)))
def best_of_the_candidates(scores: Tensor, valid: Tensor) -> tuple:
    candidates = scores[valid]
    best, index = candidates.topk(min(4, candidates.shape[0]))
    return best, torch.where(valid)[0][index]
