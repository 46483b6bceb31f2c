"""Programs for what Dynamo-style backends are handed: each is called in order with these arguments, compiled and in eager PyTorch.

A row is a function and its argument sets. Values change from call to call: what a backend bakes in shows at the next call.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

CASES: dict[str, tuple[Callable, list[tuple]]] = {}


def case(*arg_sets: tuple) -> Callable:
    def register(fn: Callable) -> Callable:
        CASES[fn.__name__] = (fn, list(arg_sets))
        return fn

    return register


def x(*shape: int, seed: int = 0) -> torch.Tensor:
    """Fixed numbers, exact in binary."""
    n = math.prod(shape)
    return (((torch.arange(n) * 7 + seed * 3) % 11).to(torch.float32) / 4 - 1).reshape(shape)


def w(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int64)


FLOATS = [(x(3), v) for v in (0.5, 0.25, 0.125, -3.0, 1e-7, 0.0, -0.0, math.inf, 2.0)]
INTS = [(x(4), n) for n in (3, 5, 2, 1, 0, -2, 7)]
SIZES = [(x(n),) for n in (3, 5, 2, 1, 8)]
ROWS = [(x(n, m),) for n, m in ((3, 4), (5, 4), (2, 6), (7, 3))]


# symbolic floats ----------------------------------------------------------------------------------------------------------
@case(*FLOATS)
def learning_rate(u, lr):
    scale = 2.0
    u.mul_(scale * lr)
    return u


@case(*FLOATS)
def float_into_add_with_alpha(u, lr):
    return torch.add(u, u, alpha=lr), u.add(u * 2, alpha=-lr)


@case(*FLOATS[:5])
def float_arithmetic(u, v):
    return u * (v * 2 + 1) - v**2, v / 3, v - 1


@case(*FLOATS)
def float_as_tensor(u, v):
    return torch.tensor(v), torch.full((2,), v), torch.tensor([v, 1.0]) + u[:2]


@case(*FLOATS)
def float_returned(u, v):
    return u + 1, v * 2, -v


@case(*FLOATS)
def float_branch(u, v):
    return u + v if v > 0.2 else u - v


@case(*[(x(3), x(3, seed=1), a, b) for a, b in ((0.1, 0.9), (0.2, 0.8), (0.3, 0.7), (0.1, 0.5), (0.9, 0.5))])
def two_floats(p, g, lr, momentum):
    p.mul_(momentum).add_(g, alpha=-lr)
    return p.lerp(g, momentum)


@case(*[(x(3), v) for v in (0.5, 0.25, 1.5, 2.75, -1.5)])
def float_to_int(u, v):
    return u * int(v), math.floor(v * 4), round(v)


@case(*[(x(4), p) for p in (0.1, 0.2, 0.3, 0.4)])
def clamped_by_floats(u, lo):
    return u.clamp(lo, lo + 1.0), F.leaky_relu(u, lo), F.threshold(u, lo, 0.0)


@case(*[(x(3), v) for v in (2.0, 3.0, 0.5, 1.0, 4.0)])
def exponents(u, v):
    return (u.abs() + 1) ** v, torch.pow(2.0, u * v)


# symbolic ints ------------------------------------------------------------------------------------------------------------
@case(*INTS)
def int_scalar(u, n):
    return u * n + n, n * 2 - 1


@case(*[(x(9), n) for n in (3, 5, 2, 4, 1, 7, 9, 12, -1, -3, 0)])
def slice_bounds(u, n):
    return u[:n], u[n:], u[-2:], u[1:n], u[::3]


@case(*[(x(12), n) for n in (2, 3, 4, 5, 6)])
def strided_slices(u, n):
    return u[::n], u[1::n], u[n : -n + 1 : 2]


@case(*[(x(2, 9, 3), n) for n in (2, 3, 4, 5, 1)])
def nested_slices(u, n):
    s = u.shape[1]
    return u[:, n : s - 1], u[..., : s // 3], u[:, -n:, None], torch.cat([u[:, n:], u[:, :n]], 1)


@case(*INTS)
def int_in_shape(u, n):
    n = abs(n) + 1
    return torch.zeros(n, 2) + n, u.repeat(n), u.new_ones((n,)), torch.arange(n)


@case(*[(x(12), n) for n in (2, 3, 4, 6, 12, 1)])
def int_in_view(u, n):
    return u.view(n, -1), u.reshape(-1, n).sum(0), u.unflatten(0, (n, -1))


@case(*[(x(4), a, b) for a, b in ((7, 2), (9, 4), (-7, 2), (5, -3), (11, 5))])
def int_arithmetic(u, a, b):
    return u + (a // b), u * (a % b), min(a, b), max(a, b), abs(a) + b, divmod(a, b), a / b, a**2


@case(*[(x(4), a) for a in (6, 5, 12, 3, 9)])
def int_bits(u, a):
    return u + (a & 3), (a | 8) * u, a ^ 5, a << 2, a >> 1, ~a


@case(*[(x(4), n) for n in (3, 4, 5, 6)])
def float_of_int(u, n):
    return u * float(n), math.sqrt(n) * u, u / n


@case(*[(x(4), n, m) for n, m in ((3, 4), (5, 4), (4, 6), (7, 3))])
def comparisons(u, n, m):
    a = n < m
    return u + a, u if n == m else -u, torch.tensor(n >= m)


@case(*[(x(5), i) for i in (0, 1, 4, -1, -5, 2)])
def index_by_int(u, i):
    return u[i], u.select(0, i), u[i] + i


@case(*[(x(4, 4), d) for d in (0, 1, 2, -1, 3)])
def diagonal_offset(u, d):
    return torch.triu(u, d), torch.tril(u, d), u.diagonal(d)


@case(*[(x(6), k) for k in (1, 2, 3, 5, 6)])
def topk(u, k):
    return u.topk(k), u.sort().values[:k], u.roll(k)


@case(*[(x(2, 3), a, b) for a, b in ((1, 2), (3, 1), (0, 2), (2, 2))])
def padding(u, a, b):
    return F.pad(u, (a, b)), F.pad(u, (0, 0, a, b), value=float(a))


@case(*[(x(n, 3), True) for n in (3, 4)], *[(x(n, 3), False) for n in (3, 5, 4)])
def bool_argument(u, flag):
    return u.sum(0, keepdim=flag), u + flag


# sizes --------------------------------------------------------------------------------------------------------------------
@case(*ROWS)
def size_arithmetic(u):
    n, m = u.shape
    return u * n + m, u.sum() / (n * m), n // 2, m % 3, u.view(n * m), max(n, m), u.numel()


@case(*SIZES)
def size_as_tensor(u):
    return torch.tensor(u.shape[0]), torch.tensor([u.shape[0], 2]), torch.full((2,), u.shape[0])


@case(*ROWS)
def size_in_slice(u):
    n = u.shape[0]
    half = n // 2
    return u[:half], u[half:], u[n - 1], u[: n - 1, 1:]


@case(*[(x(n, 3), x(m, 3)) for n, m in ((3, 4), (5, 2), (2, 6))])
def sizes_of_two(a, b):
    c = torch.cat([a, b])
    return c.view(a.shape[0] + b.shape[0], 3), c[a.shape[0] :], c.split([a.shape[0], b.shape[0]])


@case(*[(x(n, 1), x(n, m)) for n, m in ((3, 4), (5, 2), (2, 6))])
def expand_to_another(a, b):
    return a.expand_as(b), torch.broadcast_tensors(a, b)[0] * 2, a.expand(-1, b.shape[1])


@case(*ROWS)
def loop_over_a_size(u):
    out = []
    for row in u:
        out.append(row * len(out))
    return torch.stack(out), len(out)


@case(*[(x(b, h, w_, 2), s) for b, h, w_, s in ((1, 4, 4, 2), (2, 6, 6, 2), (1, 8, 4, 2), (2, 6, 3, 3), (1, 6, 6, 3))])
def shifted_windows(u, size):
    b, h, w_, c = u.shape
    s = size // 2
    img = torch.zeros((1, h, w_, 1))
    cnt = 0
    for hs in (slice(0, -size), slice(-size, -s), slice(-s, None)):
        for ws in (slice(0, -size), slice(-size, -s), slice(-s, None)):
            img[:, hs, ws, :] = cnt
            cnt += 1
    rolled = torch.roll(u, shifts=(-s, -s), dims=(1, 2))
    windows = rolled.view(b, h // size, size, w_ // size, size, c).permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size, c)
    masks = img.view(1, h // size, size, w_ // size, size, 1).permute(0, 1, 3, 2, 4, 5).reshape(-1, size * size)
    mask = (masks.unsqueeze(1) - masks.unsqueeze(2)) != 0
    scores = windows @ windows.transpose(1, 2)
    scores = scores.view(b, -1, size * size, size * size).masked_fill(mask, -100.0).view(-1, size * size, size * size)
    return (scores.softmax(-1) @ windows)[:, : size * size - s].contiguous()


@case(*ROWS)
def empty_graph(u):
    return u.shape[0], u


@case(*SIZES)
def only_numbers(u):
    return u.shape[0] + 1, u.shape[0] * 0.5


@case(*ROWS)
def tuple_and_dict(u):
    return {"a": (u + 1, [u.shape[0], u * 2]), "b": None, "c": "text"}


# sizes and numbers from data ------------------------------------------------------------------------------------------------
@case(*[(w(n), x(9)) for n in (3, 5, 2, 1, 0, 9)])
def item(n, u):
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= u.shape[0])
    return u[:k], u * k, k + 1


@case(*[(w(*v), x(3)) for v in ((1, 2, 3), (4, 5, 6), (0, 0, 1), (-1, 2, 2))])
def tolist(n, u):
    a, b, c = n.tolist()
    return u * a + b, c, a + b + c


@case(*[(x(n, seed=n),) for n in (5, 8, 3, 11)])
def mask(u):
    return u[u > 0], (u > 0).nonzero(), u[u > 0].sum() * 2


@case(*[(torch.tensor(v),) for v in ([0, 1, 2], [1, 1, 0], [5, 3, 3, 5], [7])])
def unique(u):
    values, counts = u.unique(return_counts=True)
    return values * 2, counts.sum(), values.shape[0]


@case(*[(w(*v), x(sum(v), 2)) for v in ((1, 2, 3), (2, 2, 2), (3, 0, 1))])
def ragged(lengths, u):
    return [part.sum(0) for part in u.split(lengths.tolist())]


@case(*[(torch.tensor(v), x(3)) for v in (0.5, 1.5, -2.0, 0.0)])
def float_item(f, u):
    v = f.item()
    return u * v, v + 1.0


@case(*[(torch.tensor(v), x(3)) for v in (True, False, True)])
def bool_item(b, u):
    return u + 1 if b.item() else u - 1


@case(*[(w(*v),) for v in ((2, 1), (0, 3), (1, 1))])
def repeated(n):
    return torch.arange(2).repeat_interleave(n), n.sum()


@case(*[(w(n), x(3)) for n in (4, 2, 1, 5, 0)])
def checked_with_words(n, u):
    k = n.item()
    torch._check(k >= 2, lambda: "too small")
    return u * k


@case(*[(w(n), x(6)) for n in (3, 2, 4, 1, 6)])
def view_by_item(n, u):
    k = n.item()
    torch._check(k > 0)
    torch._check(u.shape[0] % k == 0)
    return u.view(k, -1)


@case(*[(x(n), m) for n, m in ((4, 4), (5, 5), (4, 5), (6, 6))])
def checked_size(u, m):
    torch._check(u.shape[0] == m, lambda: "sizes differ")
    return u * m


@case(*[(w(a, b), x(3)) for a, b in ((6, 2), (7, 3), (5, 0), (8, 4))])
def division_of_items(n, u):
    a, b = n.tolist()
    return u * (a // b), a % b


@case(*[(w(*v), x(5)) for v in ((0, 4), (1, 2), (4, 9), (3, 3))])
def index_that_may_be_out_of_range(i, u):
    return u[i] * 2


# effects ------------------------------------------------------------------------------------------------------------------
@case(*[(x(n), x(n, seed=1)) for n in (3, 5, 4)])
def written_input(a, b):
    a.add_(b)
    b[1:] = a[:-1] * 2
    return a.sum(), b


@case(*[(x(n, 3),) for n in (3, 5, 4)])
def written_through_a_view(a):
    v = a[1:]
    v.mul_(2)
    a.t()[0] += 1
    return v + 1, a


@case(*[(x(n, 3),) for n in (3, 5, 4)])
def views_returned(a):
    return a[1:], a.t(), a.view(-1), a[0].unsqueeze(0), a


@case(*[(x(n),) for n in (3, 5, 4)])
def written_and_not_read(a):
    b = a * 2
    b.add_(1)
    a.copy_(a + 1)
    return None


@case(*[(x(n), w(k)) for n, k in ((3, 2), (5, 3), (4, 9), (4, 1))])
def written_before_an_assertion(a, n):
    a.add_(1)
    k = n.item()
    torch._check(k < a.shape[0], lambda: "too large")
    return a * k


@case(*[(x(n),) for n in (3, 5, 4)])
def random_numbers(a):
    return a + torch.rand(a.shape[0]), torch.randn_like(a), F.dropout(a, 0.5), torch.randint(0, 9, (a.shape[0],)), a.clone().uniform_()


@case(*[(x(n), x(n, seed=2), v) for n, v in ((3, 2), (5, 3), (4, 4))])
def lists_that_change(a, b, n):
    parts = [a, b]
    first = torch.cat(parts)
    parts[0] = a * n
    parts.append(first)
    return torch.cat(parts), torch.stack([a, b], n % 2)


@case(*[(x(3, 4), x(n, 4)) for n in (3, 5)])
def modes_inside(a, b):
    with torch.no_grad():
        c = a * 2
    with torch.autocast("cpu", torch.bfloat16):
        d = a @ b.t()
    return c + 1, d.float(), c.requires_grad, d.dtype


@case(*[(x(n, 6),) for n in (3, 5, 1)])
def einsum_and_friends(a):
    return torch.einsum("ij,kj->ik", a, a), torch.meshgrid(a[0], a[0], indexing="ij")[1], torch.atleast_3d(a), F.normalize(a)


# graph breaks -------------------------------------------------------------------------------------------------------------
@case(*[(x(n), f) for n, f in ((3, 0.5), (5, 0.25), (4, 0.125), (3, 2.0))])
def after_a_break(a, f):
    b = a * f
    print(b.shape[0])
    c = b[: b.shape[0] - 1] * (f + 1)
    return c, b.shape[0] * f


@case(*[(x(n), f) for n, f in ((3, 0.5), (5, 0.25), (4, 0.125), (3, 2.0))])
def breaks_in_a_loop(a, f):
    for i in range(3):
        a = a * f + i
        print(i)
        f = f * 0.5
    return a, f


@case(*[(x(n), k) for n, k in ((3, 2), (5, 3), (4, 4), (3, 5))])
def loop_with_a_count(a, k):
    for i in range(k):
        a = a + i * a.shape[0]
    return a


@case(*[(x(n),) for n in (3, 5, 4)])
def break_with_grad_mode(a):
    with torch.no_grad():
        b = a * 2
        print("inside")
        b = b + a.shape[0]
    return b * 3


# training -----------------------------------------------------------------------------------------------------------------
@case(*[(x(n, 3).requires_grad_(), x(3, 2).requires_grad_(), f) for n, f in ((3, 0.5), (5, 0.25), (4, 0.125))])
def training(a, b, f):
    h = torch.tanh(a @ b) * f
    return h[: a.shape[0] - 1].pow(2).sum() / a.shape[0], h


@case(*[(x(n, 3).requires_grad_(), w(k)) for n, k in ((3, 2), (5, 3), (4, 1))])
def training_with_item(a, n):
    k = n.item()
    torch._check(k >= 0)
    torch._check(k <= a.shape[0])
    return (a[:k] * k).sum(), a.exp()


@case(*[(x(n, 3).requires_grad_(),) for n in (3, 5, 4)])
def training_in_place(a):
    b = a * 2
    b.mul_(a.shape[0])
    b[0] = 0
    with torch.no_grad():
        c = b * 2
    return b.sum(), c, a.detach() + 1
