"""Numbers read from tensors (`item`, `tolist`) that become indexes, bounds, lengths and shapes."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from benchmarks.data_dependent.program import data, program, whole

Tensor = torch.Tensor
PAIRS = ((3, 3), (0, 0), (1, 4), (4, 1), (1, 1), (0, 1), (1, 0), (5, 5))


@program("143249", lambda n: (data(8, 4), whole(n)), sizes=(5, 0, 1, -1, 7, -8))
def select_by_item(x: Tensor, index: Tensor) -> Tensor:
    return torch.select(x, 0, index.item()) * 2 + x[index.item()]


@program("131911", lambda n: (data(9), torch.arange(6) * n % 9), sizes=(5, 0, 1, 2, 7, 8))
def count_by_item(a: Tensor, b: Tensor) -> Tensor:
    work = torch.zeros(a.shape[0])
    for i in range(b.shape[0]):
        work[b[i].item()] += 1
    return work


@program("158058", lambda n: (whole(2, 2 + n),))
def range_between_items(bounds: Tensor) -> Tensor:
    first, last = bounds.tolist()
    return torch.arange(first, last) * 2


@program("133338", lambda n: (whole(n),))
def range_of_floats(x: Tensor) -> Tensor:
    n = x.item()
    r = torch.arange(n, dtype=torch.float32)
    torch._check(r.size(0) == n)
    return r / 2


@program("122296", lambda n: (whole(n),))
def square_of_ones(x: Tensor) -> Tensor:
    n = x.item()
    torch._check(n <= 10)
    return torch.ones(n, n).cumsum(0) + torch.eye(n)


@program("122296", lambda n: (whole(n),))
def checked_number(x: Tensor) -> Tensor:
    n = x.item()
    torch._check(n >= 0, lambda: "not negative")
    torch._check_index(n <= 8)
    assert n != 6, "not six"
    if n == 4:
        raise ValueError("not four")
    return torch.ones(n).cumsum(0)


@program("185185", lambda n: (data(8, 3), whole(1, 1 + n)), sizes=(5, 0, 1, 2, 7, 3))
def slice_between_items(x: Tensor, bounds: Tensor) -> Tensor:
    first, last = bounds.tolist()
    return x[first:last].sum(1)


@program("142062", lambda n: (data(6, 8), whole(n, 3)), sizes=(5, 0, 1, 2, 7, 9, -2))
def slice_beyond_the_end(x: Tensor, where: Tensor) -> Tensor:
    start, length = where.tolist()
    return x[:, start : start + length] + 1


@program("153441", lambda n: (data(4, 9), torch.arange(9).clamp(max=n)))
def narrow_to_the_first_k(x: Tensor, ranks: Tensor) -> Tensor:
    k = ranks.max().item()
    first = x.narrow(1, 0, k)
    return first < first.size(1)


@program("166361", lambda n: (data(9, 2), whole(1, n)))
def narrow_anywhere(x: Tensor, where: Tensor) -> Tensor:
    start, length = where.tolist()
    return x.narrow(0, start, length).t() * 3


@program("128645", lambda n: (data(4, 1), data(4), whole(n)))
def expand_by_item(x: Tensor, y: Tensor, repeats: Tensor) -> Tensor:
    n = repeats.item()
    return x.expand(-1, n) * y.unsqueeze(1).expand(-1, n)


@program("148519", lambda n: (whole(n),))
def view_of_a_range(x: Tensor) -> tuple:
    n = x.item()
    r = torch.arange(n * 4)
    return r.view(n, 4), r.view(-1, 4).sum(0), r.reshape(-1, 2, 2)


@program("153198", lambda n: (data(9, 6), whole(n)))
def reshape_of_a_transpose(x: Tensor, rows: Tensor) -> Tensor:
    n = rows.item()
    return x[:n].t().reshape(2, 3 * n).cos()


@program("123793", lambda n: (whole(n, 3),))
def joined_ranges(sizes: Tensor) -> Tensor:
    a, b = sizes.tolist()
    x, y = torch.arange(a, dtype=torch.float32), torch.ones(b)
    return torch.cat([x, x, y]).sin()


@program("124652", lambda n: (whole(n, 4), data(1, grad=True)), grad=True)
def joined_and_differentiated(sizes: Tensor, w: Tensor) -> Tensor:
    a, b = sizes.tolist()
    return torch.cat([torch.ones(a) * w, torch.arange(b) * w]).sigmoid()


@program("155162", lambda n: (whole(n, 2), data(16, 1, 7)))
def convolution_over_a_length(sizes: Tensor, weight: Tensor) -> Tensor:
    a, b = sizes.tolist()
    x = torch.ones(1, a + b, 16).permute(0, 2, 1)
    return F.conv1d(x, weight, padding=3, groups=16)


@program("155131", lambda n: (data(9, 12), whole(n), data(8, 12, seed=1)))
def layer_norm_of_a_slice(x: Tensor, rows: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(F.linear(x[: rows.item()], w), (8,))


@program("155260", lambda n: (data(9, 8), whole(n), data(8, 8, seed=1)))
def attention_scores_of_a_slice(x: Tensor, rows: Tensor, w: Tensor) -> Tensor:
    y = x[: rows.item()] @ w
    return (y @ y.t()).softmax(-1) @ y


@program("158786", lambda n: (whole(2 * n, 4),))
def position_ids_of_a_grid(size: Tensor) -> Tensor:
    h, w = size.tolist()
    rows = torch.arange(h).unsqueeze(1).expand(-1, w)
    return rows.reshape(h // 2, 2, w // 2, 2).permute(0, 2, 1, 3).flatten()


@program("pytorch/executorch#8988", lambda n: (data(9, 3), whole(n)), sizes=(5, 1, 2, 7, 9, 3))
def all_but_the_last_of_a_slice(x: Tensor, length: Tensor) -> tuple:
    n = length.item()
    return x[: n - 1], x[n - 1], x[n - 1 : n].sum(0)


@program("104025", lambda n: (data(9), whole(n)))
def top_k_by_item(x: Tensor, k: Tensor) -> tuple:
    values, index = x.topk(k.item())
    return values.cumsum(0), x[index]


@program("152656", lambda n: (data(6), data(6, seed=1), whole(*PAIRS[n])), sizes=(0, 1, 2, 3, 4, 5, 6, 7))
def broadcast_of_two_slices(x: Tensor, y: Tensor, sizes: Tensor) -> tuple:
    """Nothing tells which of the two is stretched: the run does."""
    a, b = sizes.tolist()
    z = x[:a] + y[:b]
    return z, z.sum(), z.shape[0]


@program("162109", lambda n: (data(6, 3), data(6, 3, seed=1), whole(n)), sizes=(6, 1))
def broadcast_against_an_input(x: Tensor, y: Tensor, rows: Tensor) -> Tensor:
    chosen = x[: rows.item()]
    return torch.where(chosen > 0, y, chosen * y).sum(1)


@program("meta-pytorch/torchtune#1663", lambda n: (data(1, 2, 10, 4), data(1, 2, 1, 4, seed=1), whole(n)))
def write_and_read_a_cache(cache: Tensor, new: Tensor, position: Tensor) -> tuple:
    p = position.item()
    filled = cache.clone()
    filled[:, :, p : p + 1] = new
    keys = filled[:, :, : p + 1]
    return F.scaled_dot_product_attention(new, keys, keys), keys.shape[2]


@program("93468", lambda n: (data(3, 5), torch.arange(12).reshape(3, 4), whole(n)), sizes=(5, 0, 1, 2, 7, 15))
def beam_search_step(scores: Tensor, tokens: Tensor, beams: Tensor) -> tuple:
    best, flat = scores.log_softmax(-1).view(-1).topk(beams.item())
    beam, word = flat // scores.shape[1], flat % scores.shape[1]
    return best, torch.cat([tokens[beam], word[:, None]], dim=1)


@program("155290", lambda n: (data(2, 3), whole(n)))
def repeat_by_item(x: Tensor, times: Tensor) -> Tensor:
    n = times.item()
    return torch.cat([x.repeat(n, 1), x]).view(n + 1, 2, 3).sum(1)


@program("160255", lambda n: (data(12, 4), whole(n)))
def view_with_a_computed_size(x: Tensor, rows: Tensor) -> Tensor:
    y = x[: rows.item()]
    return y.reshape(y.shape[0] * 2, 2).unflatten(0, (-1, 2)).flatten(1)
