"""Programs with a state, or with loops and tables of their own, as people write them: caches, searches, filters, solvers, buffers.

Each program yields what has to be eager's, call after call. `wrap` compiles a function or module, or gives it back as it is.
"""

from __future__ import annotations

import collections
import dataclasses
import functools

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.training import SIZES, Mlp, program

grad = torch.autograd.grad


@program
def rotary_cache(wrap):

    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0
            self.cos = None
            self.sin = None
            self.l = nn.Linear(8, 8)

        def grow(self, n):
            if n > self.n:
                f = torch.outer(torch.arange(n).float(), 1 / 10000 ** (torch.arange(0, 8, 2) / 8))
                e = torch.cat([f, f], -1)
                self.cos, self.sin, self.n = (e.cos(), e.sin(), n)

        def forward(self, x, past=0):
            self.grow(x.shape[1] + past)
            h = self.l(x)
            a, b = h.chunk(2, -1)
            return h * self.cos[past : past + x.shape[1]] + torch.cat([-b, a], -1) * self.sin[past : past + x.shape[1]]

    torch.manual_seed(0)
    M = R()
    m = wrap(M)
    for n, p in ((3, 0), (5, 1), (2, 0), (7, 4), (4, 9), (20, 0)):
        yield (m(torch.randn(2, n, 8), p).detach(), torch.tensor(M.n))


@program
def kv_decode(wrap):

    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = nn.Linear(8, 24)
            self.o = nn.Linear(8, 11)
            self.e = nn.Embedding(11, 8)

        def forward(self, t, cache):
            q, k, v = self.q(self.e(t)).chunk(3, -1)
            if cache.get("k") is not None:
                k = torch.cat([cache["k"], k], 1)
                v = torch.cat([cache["v"], v], 1)
            cache["k"], cache["v"] = (k, v)
            o = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None], is_causal=t.shape[1] > 1)[:, 0]
            return self.o(o[:, -1])

    torch.manual_seed(0)
    m = wrap(A())
    for n in SIZES:
        c = {}
        t = torch.randint(0, 11, (2, n))
        out = []
        with torch.no_grad():
            for _ in range(4 + n):
                l = m(t, c)
                t = l.argmax(-1, keepdim=True)
                out.append(t)
        yield (torch.cat(out, 1), c["k"].clone())


@dataclasses.dataclass
class State:
    h: torch.Tensor
    steps: int = 0
    best: float = -1000000000.0
    log: list = dataclasses.field(default_factory=list)


@program
def dataclass_state(wrap):
    m = nn.Linear(4, 4)

    @wrap
    def step(s, x):
        h = torch.tanh(m(x) + s.h)
        v = h.max().item()
        s.steps += 1
        s.log.append(s.steps)
        if v > s.best:
            s.best = v
        return dataclasses.replace(s, h=h.mean(0, keepdim=True))

    torch.manual_seed(0)
    s = State(torch.zeros(1, 4))
    with torch.no_grad():
        m.weight.copy_(torch.eye(4))
        m.bias.zero_()
        for n in SIZES:
            s = step(s, torch.randn(n, 4))
            yield (s.h, torch.tensor(s.steps), torch.tensor(s.best), torch.tensor(s.log))


@program
def beam(wrap):
    torch.manual_seed(0)
    W = torch.randn(9, 9)

    @wrap
    def f(start, k, n):
        seqs = start[:, None].expand(-1, k)[..., None]
        sc = torch.zeros(start.shape[0], k)
        sc[:, 1:] = -1000000000.0
        for _ in range(n):
            lp = W[seqs[..., -1]].log_softmax(-1) + sc[..., None]
            v, i = lp.flatten(1).topk(k)
            sc = v
            b = i // 9
            t = i % 9
            seqs = torch.cat([seqs.gather(1, b[..., None].expand(-1, -1, seqs.shape[-1])), t[..., None]], -1)
        return (seqs, sc)

    for k, n in enumerate(SIZES):
        yield f(torch.arange(n), 2 + k % 3, 3 + k)


@program
def kalman(wrap):

    @wrap
    def f(z, dt, q, r):
        A = torch.tensor([[1.0, dt], [0.0, 1.0]])
        H = torch.tensor([[1.0, 0.0]])
        x = torch.zeros(2, 1)
        P = torch.eye(2)
        out = []
        for i in range(z.shape[0]):
            x = A @ x
            P = A @ P @ A.t() + q * torch.eye(2)
            S = H @ P @ H.t() + r
            K = P @ H.t() @ torch.linalg.inv(S)
            x = x + K * (z[i] - H @ x)
            P = (torch.eye(2) - K @ H) @ P
            out.append(x[:, 0])
        return (torch.stack(out), P)

    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        yield f(torch.randn(n), 0.1 * (k + 1), 0.01, 0.5)


@program
def viterbi(wrap):

    @wrap
    def f(em, tr, lens):
        out = []
        for b, n in enumerate(lens):
            d = em[b, 0]
            bp = []
            for t in range(1, n):
                v, i = (d[:, None] + tr).max(0)
                d = v + em[b, t]
                bp.append(i)
            p = [int(d.argmax())]
            for i in reversed(bp):
                p.append(int(i[p[-1]]))
            out.append(p[::-1])
        return out

    torch.manual_seed(0)
    for n in SIZES:
        yield [torch.tensor(p) for p in f(torch.randn(2, n, 4), torch.randn(4, 4), [n, max(1, n - 1)])]


@program
def kmeans(wrap):

    @wrap
    def f(x, k, tol, maxit):
        c = x[:k].clone()
        for it in range(maxit):
            a = torch.cdist(x, c).argmin(1)
            n = torch.stack([x[a == j].mean(0) if (a == j).any() else c[j] for j in range(k)])
            if (n - c).norm() < tol:
                break
            c = n
        return (c, a, it)

    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        c, a, i = f(torch.randn(n + 6, 3), 2 + k % 3, 0.001, 10)
        yield (c, a, torch.tensor(i))


@program
def sinkhorn(wrap):

    @wrap
    def f(C, eps, n):
        K = (-C / eps).exp()
        u = torch.ones(C.shape[0]) / C.shape[0]
        v = torch.ones(C.shape[1]) / C.shape[1]
        a, b = (u.clone(), v.clone())
        for _ in range(n):
            u = a / (K @ v)
            v = b / (K.t() @ u)
        return u[:, None] * K * v

    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        yield f(torch.rand(n, n + 1), 0.1 * (k + 1), 5 + k)


@program
def rk4(wrap):
    m = Mlp(4, 8, 4)

    @wrap
    def f(y, t0, t1, n):
        h = (t1 - t0) / n
        for i in range(n):
            k1 = m(y)
            k2 = m(y + h / 2 * k1)
            k3 = m(y + h / 2 * k2)
            k4 = m(y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        return y

    torch.manual_seed(0)
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
    for k, n in enumerate(SIZES):
        y = f(torch.randn(n, 4), 0.0, 1.0 + k * 0.1, 2 + k)
        yield (y.detach(), grad(y.sum(), m.a.weight))


@program
def masks_cached(wrap):

    @functools.lru_cache(None)
    def mask(n, kind):
        return torch.ones(n, n).tril() if kind == "c" else torch.eye(n)

    cache = {}

    @wrap
    def f(x, kind):
        n = x.shape[0]
        if (n, kind) not in cache:
            cache[n, kind] = mask(n, kind).masked_fill(mask(n, kind) == 0, float("-inf"))
        return (x @ x.t() + cache[n, kind]).softmax(-1)

    torch.manual_seed(0)
    for k, n in enumerate(SIZES + SIZES):
        yield (f(torch.randn(n, 4), "c" if k % 2 else "d"), torch.tensor(len(cache)))


@program
def replay(wrap):

    class B:
        def __init__(self, n):
            self.d = torch.zeros(n, 4)
            self.i = 0
            self.full = False

        def add(self, x):
            for r in x:
                self.d[self.i] = r
                self.i = (self.i + 1) % len(self.d)
                self.full = self.full or self.i == 0

        def sample(self, k):
            n = len(self.d) if self.full else self.i
            return self.d[torch.randint(0, n, (k,))]

    b = B(9)

    @wrap
    def f(x, k):
        b.add(x)
        return b.sample(k)

    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        yield (f(torch.randn(n, 4), 2 + k), b.d.clone(), torch.tensor(b.i))


@program
def meter(wrap):

    class M:
        def __init__(self):
            self.n = 0
            self.s = 0.0
            self.cm = torch.zeros(3, 3, dtype=torch.long)

        def update(self, p, y):
            self.n += len(y)
            self.s += (p.argmax(1) == y).sum().item()
            self.cm.index_put_((y, p.argmax(1)), torch.ones_like(y), accumulate=True)
            return self.s / self.n

    m = M()
    f = wrap(m.update)
    torch.manual_seed(0)
    for n in SIZES:
        yield (torch.tensor(f(torch.randn(n, 3), torch.randint(0, 3, (n,)))), m.cm.clone())


@program
def collate(wrap):

    @wrap
    def f(items, pad):
        order = sorted(range(len(items)), key=lambda i: -len(items[i]))
        L = max(len(i) for i in items)
        x = torch.full((len(items), L), pad)
        for r, i in enumerate(order):
            x[r, : len(items[i])] = items[i]
        m = x != pad
        inv = torch.tensor(order).argsort()
        return (x[inv], m[inv], (x * m).sum(1)[inv])

    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        yield f([torch.randn(1 + (i * 3 + k) % 5) for i in range(n)], -1.0 - k)


@program
def speculative(wrap):
    torch.manual_seed(0)
    A, B = (torch.randn(7, 7), torch.randn(7, 7))

    @wrap
    def f(t, k):
        d = [t]
        for _ in range(k):
            d.append(A[d[-1]].argmax(-1))
        d = torch.stack(d[1:])
        g = B[torch.cat([t[None], d[:-1]])].argmax(-1)
        ok = (d == g).cumprod(0).sum(0)
        n = int(ok.min())
        return (torch.cat([d[:n], g[n : n + 1]]), ok)

    for k, n in enumerate(SIZES):
        yield f(torch.arange(n) % 7, 2 + k)


@program
def stft_stream(wrap):

    class S(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("tail", torch.zeros(0))
            self.win = torch.hann_window(8)

        def forward(self, x):
            x = torch.cat([self.tail, x])
            n = (len(x) - 8) // 4 + 1 if len(x) >= 8 else 0
            if n <= 0:
                self.tail = x
                return x.new_zeros(0, 5)
            f = x.unfold(0, 8, 4) * self.win
            self.tail = x[n * 4 :]
            return torch.fft.rfft(f).abs()

    M = S()
    m = wrap(M)
    torch.manual_seed(0)
    for n in (3, 5, 9, 20, 4, 11):
        yield (m(torch.randn(n)), M.tail.clone())


@program
def particle(wrap):

    @wrap
    def f(p, z, s):
        p = p + torch.randn_like(p) * s
        l = (-((p - z) ** 2) / 2).softmax(0)
        i = torch.multinomial(l, len(p), replacement=True)
        ess = 1 / (l**2).sum()
        return (p[i] if ess < len(p) * 0.9 else p, ess)

    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        yield f(torch.randn(n + 3), 0.5 * k, 0.1 * (k + 1))


@program
def routed(wrap):

    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = nn.ModuleDict({k: nn.Linear(4, i + 1) for i, k in enumerate("abc")})
            self.count = collections.Counter()

        def forward(self, batch):
            out = {}
            for k, x in batch.items():
                self.count[k] += len(x)
                name = k.split("/")[0]
                out.setdefault(name, []).append(self.h[name](x))
            return {k: torch.cat(v) for k, v in sorted(out.items())}

    torch.manual_seed(0)
    M = R()
    m = wrap(M)
    for k, n in enumerate(SIZES):
        o = m({f"{'abc'[(k + i) % 3]}/{i}": torch.randn(n + i, 4) for i in range(1 + k % 3)})
        yield ([o[q].detach() for q in o], torch.tensor(list(M.count.values())))


@program
def welford(wrap):

    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(4))
            self.register_buffer("var", torch.ones(4))
            self.count = 0.0001

        def forward(self, x):
            if self.training:
                bm, bv, bc = (x.mean(0), x.var(0, unbiased=False), x.shape[0])
                d = bm - self.mean
                tot = self.count + bc
                self.mean = self.mean + d * bc / tot
                self.var = (self.var * self.count + bv * bc + d**2 * self.count * bc / tot) / tot
                self.count = tot
            return (x - self.mean) / (self.var + 1e-08).sqrt()

    M = N()
    m = wrap(M)
    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        M.train(k != 3)
        yield (m(torch.randn(n, 4)), M.mean.clone(), M.var.clone(), torch.tensor(M.count))


@program
def newton(wrap):

    @wrap
    def f(x, c, tol):
        n = 0
        while (x**3 - c).abs().max() > tol and n < 50:
            x = x - (x**3 - c) / (3 * x**2 + 1e-09)
            n += 1
        return (x, n)

    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        x, i = f(torch.rand(n) + 0.5, 1.0 + k, 0.0001)
        yield (x, torch.tensor(i))


@program
def anchors(wrap):

    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.cache = {}
            self.c = nn.Conv2d(3, 4, 1)

        def grid(self, h, w, st):
            key = (h, w, st)
            if key not in self.cache:
                y, x = torch.meshgrid(torch.arange(h), torch.arange(w), indexing="ij")
                self.cache[key] = torch.stack([x, y], -1).reshape(-1, 2) * st
            return self.cache[key]

        def forward(self, fs):
            return torch.cat(
                [self.c(f).flatten(2).transpose(1, 2) + F.pad(self.grid(*f.shape[-2:], 2**i).float(), (0, 2)) for i, f in enumerate(fs)], 1
            )

    torch.manual_seed(0)
    m = wrap(A())
    for n in SIZES + SIZES:
        yield m([torch.randn(2, 3, n + 1, n), torch.randn(2, 3, n, n)]).detach()


@program
def pos_interp(wrap):

    class P(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.randn(1, 16, 6))
            self.c = nn.Conv2d(3, 6, 2, 2)

        def forward(self, x):
            h = self.c(x)
            H, W = h.shape[-2:]
            p = self.p
            if H * W != 16:
                p = (
                    F.interpolate(p.reshape(1, 4, 4, 6).permute(0, 3, 1, 2), size=(H, W), mode="bicubic", align_corners=False)
                    .flatten(2)
                    .transpose(1, 2)
                )
            return h.flatten(2).transpose(1, 2) + p

    torch.manual_seed(0)
    m = wrap(P())
    for n in (8, 6, 10, 8, 12):
        o = m(torch.randn(1, 3, n, n + n % 4))
        yield (o.detach(), grad(o.pow(2).sum(), m.p if hasattr(m, "p") else None))


@program
def es(wrap):
    M = Mlp()

    @wrap
    @torch.no_grad()
    def f(x, sigma, lr, pop):
        vs = torch.nn.utils.parameters_to_vector(M.parameters())
        g = torch.zeros_like(vs)
        for _ in range(pop):
            e = torch.randn_like(vs)
            r = []
            for sgn in (1, -1):
                torch.nn.utils.vector_to_parameters(vs + sgn * sigma * e, M.parameters())
                r.append(-M(x).pow(2).mean())
            g += (r[0] - r[1]) * e
        torch.nn.utils.vector_to_parameters(vs + lr * g / (2 * pop * sigma), M.parameters())
        return g.norm()

    torch.manual_seed(0)
    with torch.no_grad():
        for p in M.parameters():
            p.copy_(torch.randn_like(p) * 0.3)
    for k, n in enumerate(SIZES):
        yield (f(torch.randn(n, 4), 0.1, 0.01 * (k + 1), 2), [p.clone() for p in M.parameters()])
