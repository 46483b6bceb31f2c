"""Applications as people write them, from end to end: decoders, samplers, speech, detection, graphs, recommenders, adapters.

Each program yields what has to be eager's, call after call (`training.program`).
"""

from __future__ import annotations

import collections
import math
import random

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.training import Mlp, program

SIZES = (3, 5, 2, 7, 4, 1, 6)


@program
def crf(wrap):

    class CRF(nn.Module):
        def __init__(self, k):
            super().__init__()
            self.t = nn.Parameter(torch.randn(k, k))
            self.b = nn.Parameter(torch.randn(k))
            self.e = nn.Parameter(torch.randn(k))
            self.k = k

        def nll(self, em, tags, mask):
            return (self.z(em, mask) - self.score(em, tags, mask)).mean()

        def score(self, em, tags, mask):
            B, L, _ = em.shape
            sc = self.b[tags[:, 0]] + em[:, 0].gather(1, tags[:, :1]).squeeze(1)
            for i in range(1, L):
                sc = sc + (self.t[tags[:, i - 1], tags[:, i]] + em[torch.arange(B), i, tags[:, i]]) * mask[:, i]
            last = tags.gather(1, mask.long().sum(1, keepdim=True) - 1).squeeze(1)
            return sc + self.e[last]

        def z(self, em, mask):
            a = self.b + em[:, 0]
            for i in range(1, em.size(1)):
                n = torch.logsumexp(a.unsqueeze(2) + self.t + em[:, i].unsqueeze(1), 1)
                a = torch.where(mask[:, i].bool().unsqueeze(1), n, a)
            return torch.logsumexp(a + self.e, 1)

        def decode(self, em, mask):
            B, L, K = em.shape
            v = self.b + em[:, 0]
            hist = []
            for i in range(1, L):
                n, ix = (v.unsqueeze(2) + self.t).max(1)
                n = n + em[:, i]
                v = torch.where(mask[:, i].bool().unsqueeze(1), n, v)
                hist.append(ix)
            lens = mask.long().sum(1).tolist()
            out = []
            for b in range(B):
                y = int((v[b] + self.e).argmax())
                path = [y]
                for h in reversed(hist[: lens[b] - 1]):
                    y = int(h[b][y])
                    path.append(y)
                path.reverse()
                out.append(path)
            return out

    torch.manual_seed(0)
    m = CRF(4)
    nll = wrap(m.nll)
    dec = wrap(m.decode)
    for n in SIZES:
        em = torch.randn(3, n, 4, requires_grad=True)
        tags = torch.randint(0, 4, (3, n))
        ln = torch.randint(1, n + 1, (3,))
        mask = (torch.arange(n)[None] < ln[:, None]).float()
        l = nll(em, tags, mask)
        l.backward()
        yield (l.detach(), em.grad, m.t.grad.clone(), [torch.tensor(p) for p in dec(em.detach(), mask)])


@program
def hmc(wrap):

    def U(q):
        return (q**4 / 4 - q**2 / 2).sum()

    @wrap
    def leap(q, p, eps, n):

        def gr(q):
            q = q.detach().requires_grad_()
            return torch.autograd.grad(U(q), q)[0]

        p = p - eps / 2 * gr(q)
        for i in range(n):
            q = q + eps * p
            if i < n - 1:
                p = p - eps * gr(q)
        return (q.detach(), (p - eps / 2 * gr(q)).detach())

    torch.manual_seed(0)
    q = torch.randn(5)
    for k in range(8):
        p = torch.randn(5)
        q2, p2 = leap(q, p, 0.1 + 0.01 * k, 4)
        if torch.rand(()) < torch.exp(U(q) - U(q2)):
            q = q2
        yield (q.clone(), p2)


@program
def gmm_em(wrap):

    @wrap
    def em(x, mu, var, pi):
        lp = -0.5 * ((x[:, None] - mu) ** 2 / var + var.log()).sum(-1) + pi.log()
        r = torch.softmax(lp, 1)
        n = r.sum(0)
        mu = r.T @ x / n[:, None]
        var = torch.einsum("nk,nkd->kd", r, (x[:, None] - mu) ** 2) / n[:, None] + 0.001
        return (mu, var, n / len(x), torch.logsumexp(lp, 1).mean().item())

    torch.manual_seed(0)
    for n in (10, 20, 7, 33):
        x = torch.randn(n, 2)
        mu, var, pi = (x[:3].clone(), torch.ones(3, 2), torch.ones(3) / 3)
        last = -1000000000.0
        for _ in range(20):
            mu, var, pi, ll = em(x, mu, var, pi)
            if ll - last < 0.001:
                break
            last = ll
        yield (mu, var, pi)


@program
def gp_fit(wrap):

    class GP(nn.Module):
        def __init__(self):
            super().__init__()
            self.ls = nn.Parameter(torch.zeros(()))
            self.noise = nn.Parameter(torch.tensor(-1.0))

        def k(self, a, b):
            return torch.exp(-0.5 * torch.cdist(a, b) ** 2 / self.ls.exp() ** 2)

        def forward(self, x, y):
            K = self.k(x, x) + self.noise.exp() * torch.eye(len(x))
            L = torch.linalg.cholesky(K)
            a = torch.cholesky_solve(y[:, None], L)
            return 0.5 * (y @ a.squeeze(1)) + L.diagonal().log().sum() + 0.5 * len(x) * math.log(2 * math.pi)

        @torch.no_grad()
        def predict(self, x, y, z):
            L = torch.linalg.cholesky(self.k(x, x) + self.noise.exp() * torch.eye(len(x)))
            ks = self.k(x, z)
            a = torch.cholesky_solve(y[:, None], L)
            v = torch.linalg.solve_triangular(L, ks, upper=False)
            return ((ks.T @ a).squeeze(1), 1 - (v**2).sum(0))

    torch.manual_seed(0)
    m = GP()
    f = wrap(m)
    pr = wrap(m.predict)
    opt = torch.optim.Adam(m.parameters(), 0.1)
    for n in SIZES:
        x = torch.randn(n, 2)
        y = torch.randn(n)
        opt.zero_grad()
        l = f(x, y)
        l.backward()
        opt.step()
        yield (l.detach(), m.ls.grad.clone(), pr(x, y, torch.randn(n + 1, 2)))


@program
def flow_coupling(wrap):

    class C(nn.Module):
        def __init__(self, flip):
            super().__init__()
            self.n = Mlp(2, 8, 4)
            self.flip = flip

        def forward(self, x, inverse=False):
            a, b = x.chunk(2, 1)
            if self.flip:
                a, b = (b, a)
            sc, t = self.n(a).chunk(2, 1)
            sc = torch.tanh(sc)
            b = (b - t) * (-sc).exp() if inverse else b * sc.exp() + t
            o = (b, a) if self.flip else (a, b)
            return (torch.cat(o, 1), sc.sum(1) * (-1 if inverse else 1))

    class Fl(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.ModuleList(C(i % 2 == 1) for i in range(4))
            self.register_buffer("loc", torch.zeros(4))
            self.register_buffer("sc", torch.ones(4))

        def log_prob(self, x):
            ld = torch.zeros(len(x))
            for l in self.l:
                x, d = l(x)
                ld = ld + d
            return torch.distributions.Normal(self.loc, self.sc).log_prob(x).sum(1) + ld

        def sample(self, n):
            z = torch.distributions.Normal(self.loc, self.sc).sample((n,))
            for l in reversed(self.l):
                z, _ = l(z, inverse=True)
            return z

    torch.manual_seed(0)
    m = Fl()
    lp = wrap(m.log_prob)
    sm = wrap(m.sample)
    opt = torch.optim.Adam(m.parameters(), 0.01)
    for n in SIZES:
        l = -lp(torch.randn(n, 4)).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        yield (l.detach(), [p.grad.clone() for p in m.parameters()], sm(n).detach())


@program
def topp_sampling(wrap):

    class LM(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(13, 8)
            self.g = nn.GRU(8, 8, batch_first=True)
            self.o = nn.Linear(8, 13)

        def forward(self, t, h=None):
            y, h = self.g(self.e(t), h)
            return (self.o(y), h)

    torch.manual_seed(0)
    m = LM()

    def pick(lg, temp, k, p, seen):
        lg = lg / temp
        if seen is not None:
            sc = lg.gather(1, seen)
            lg = lg.scatter(1, seen, torch.where(sc < 0, sc * 1.2, sc / 1.2))
        if k > 0:
            lg = lg.masked_fill(lg < torch.topk(lg, min(k, lg.size(-1)))[0][..., -1, None], -float("inf"))
        if p < 1:
            s, i = lg.sort(descending=True)
            c = s.softmax(-1).cumsum(-1)
            r = c > p
            r[..., 1:] = r[..., :-1].clone()
            r[..., 0] = False
            lg = lg.masked_fill(r.scatter(1, i, r), -float("inf"))
        return torch.multinomial(lg.softmax(-1), 1)

    @wrap
    @torch.no_grad()
    def gen(t, n, temp, k, p, eos):
        h = None
        x = t
        out = t
        done = torch.zeros(len(t), dtype=torch.bool)
        for _ in range(n):
            lg, h = m(x, h)
            x = pick(lg[:, -1], temp, k, p, out)
            x = torch.where(done[:, None], torch.full_like(x, eos), x)
            done = done | (x[:, 0] == eos)
            out = torch.cat([out, x], 1)
            if done.all():
                break
        return out

    for n in SIZES:
        torch.manual_seed(n)
        yield (gen(torch.randint(1, 13, (2, n)), 6, 0.7 + n / 20, 5, 0.9, 0), gen(torch.randint(1, 13, (3, n)), 4, 1.0, 0, 1.0, 0))


@program
def ctc_greedy(wrap):

    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.Conv1d(5, 8, 3, 2, 1)
            self.l = nn.LSTM(8, 6, bidirectional=True, batch_first=True)
            self.o = nn.Linear(12, 7)

        def forward(self, x, ln):
            y = F.relu(self.c(x.transpose(1, 2))).transpose(1, 2)
            ol = (ln - 1) // 2 + 1
            p = nn.utils.rnn.pack_padded_sequence(y, ol, batch_first=True, enforce_sorted=False)
            y, _ = self.l(p)
            y, _ = nn.utils.rnn.pad_packed_sequence(y, batch_first=True)
            return (self.o(y).log_softmax(-1), ol)

    torch.manual_seed(0)
    m = A()
    f = wrap(m)

    @wrap
    def greedy(lp, ol):
        out = []
        for row, n in zip(lp.argmax(-1), ol.tolist()):
            r = torch.unique_consecutive(row[:n])
            out.append([int(c) for c in r if c != 0])
        return out

    for n in SIZES:
        T_ = n * 4 + 8
        ln = torch.tensor([T_, T_ - 3])
        x = torch.randn(2, T_, 5)
        lp, ol = f(x, ln)
        l = F.ctc_loss(lp.transpose(0, 1), torch.randint(1, 7, (2, 2)), ol, torch.tensor([2, 1]))
        m.zero_grad()
        l.backward()
        yield (l.detach(), [p.grad.clone() for p in m.parameters()], [torch.tensor(o or [0]) for o in greedy(lp.detach(), ol)])


@program
def melspec(wrap):

    def mel(n, f):
        pts = torch.linspace(0, f - 1, n + 2)
        return torch.stack(
            [
                torch.clamp(
                    torch.minimum(
                        (torch.arange(f) - pts[i]) / (pts[i + 1] - pts[i]), (pts[i + 2] - torch.arange(f)) / (pts[i + 2] - pts[i + 1])
                    ),
                    min=0,
                )
                for i in range(n)
            ]
        )

    fb = mel(6, 33)
    win = torch.hann_window(64)

    @wrap
    def feats(x, train):
        s = torch.stft(x, 64, 16, window=win, return_complex=True).abs() ** 2
        m = (fb @ s).clamp(min=1e-06).log10()
        m = torch.maximum(m, m.amax((-2, -1), keepdim=True) - 8.0)
        m = (m - m.mean(-1, keepdim=True)) / (m.std(-1, keepdim=True) + 1e-05)
        if train:
            t = random.randint(0, m.size(-1) - 1)
            m[..., t : t + 2] = 0
        d = m[..., 1:] - m[..., :-1]
        return torch.cat([m[..., :-1], d], -2)

    torch.manual_seed(0)
    random.seed(0)
    for n in SIZES:
        yield feats(torch.randn(2, 100 + 37 * n), n % 2 == 0)


@program
def griffinlim(wrap):
    win = torch.hann_window(32)

    @wrap
    def gl(mag, it):
        torch.manual_seed(1)
        ang = torch.exp(2j * math.pi * torch.rand(mag.shape))
        prev = torch.tensor(0.0)
        for _ in range(it):
            inv = torch.istft(mag * ang, 32, 8, window=win)
            reb = torch.stft(inv, 32, 8, window=win, return_complex=True)
            ang = reb - 0.99 / 1.99 * prev
            ang = ang / (ang.abs() + 1e-16)
            prev = reb
        return torch.istft(mag * ang, 32, 8, window=win)

    torch.manual_seed(0)
    for n in SIZES:
        yield gl(torch.stft(torch.randn(2, 64 + 8 * n), 32, 8, window=win, return_complex=True).abs(), 4)


@program
def roialign_py(wrap):

    @wrap
    def crop(feat, boxes, out=3):
        B = []
        H, W = feat.shape[-2:]
        for b in boxes:
            x1, y1, x2, y2 = [int(v) for v in b.round().tolist()]
            x2 = max(x2, x1 + 1)
            y2 = max(y2, y1 + 1)
            B.append(F.adaptive_max_pool2d(feat[:, :, y1:y2, x1:x2], out))
        return torch.cat(B) if B else feat.new_zeros((0, feat.size(1), out, out))

    torch.manual_seed(0)
    for n in SIZES:
        xy = torch.rand(n, 2) * 6
        yield (
            crop(torch.randn(1, 3, 10 + n, 12), torch.cat([xy, xy + torch.rand(n, 2) * 5], 1)),
            crop(torch.randn(1, 3, 9, 9), torch.zeros(0, 4)),
        )


@program
def detr_match(wrap):
    from scipy.optimize import linear_sum_assignment

    @wrap
    def match(logits, boxes, labels, tb):
        C = -logits.softmax(-1)[:, labels] + torch.cdist(boxes, tb, p=1)
        i, j = linear_sum_assignment(C.detach().numpy())
        i, j = (torch.as_tensor(i), torch.as_tensor(j))
        cls = torch.full((len(logits),), logits.size(1) - 1)
        cls[i] = labels[j]
        return F.cross_entropy(logits, cls, weight=torch.tensor([1.0] * (logits.size(1) - 1) + [0.1])) + F.l1_loss(
            boxes[i], tb[j], reduction="sum"
        ) / max(len(tb), 1)

    torch.manual_seed(0)
    for n in SIZES:
        lg = torch.randn(8, 4, requires_grad=True)
        bx = torch.rand(8, 4, requires_grad=True)
        l = match(lg, bx, torch.randint(0, 3, (n,)), torch.rand(n, 4))
        l.backward()
        yield (l.detach(), lg.grad, bx.grad)


@program
def yolo_post(wrap):

    @wrap
    def post(p, conf, iou):
        out = []
        for x in p:
            x = x[x[:, 4] > conf]
            if not x.shape[0]:
                out.append(torch.zeros(0, 6))
                continue
            s, c = (x[:, 5:] * x[:, 4:5]).max(1)
            b = torch.stack([x[:, 0] - x[:, 2] / 2, x[:, 1] - x[:, 3] / 2, x[:, 0] + x[:, 2] / 2, x[:, 1] + x[:, 3] / 2], 1)
            o = s.argsort(descending=True)
            keep = []
            while o.numel():
                i = o[0]
                keep.append(i)
                if o.numel() == 1:
                    break
                r = o[1:]
                lt = torch.max(b[i, :2], b[r, :2])
                rb = torch.min(b[i, 2:], b[r, 2:])
                wh = (rb - lt).clamp(min=0)
                inter = wh.prod(1)
                ar = lambda z: (z[..., 2] - z[..., 0]) * (z[..., 3] - z[..., 1])
                u = inter / (ar(b[i]) + ar(b[r]) - inter)
                o = r[(u <= iou) | (c[r] != c[i])]
            k = torch.stack(keep)
            out.append(torch.cat([b[k], s[k, None], c[k, None].float()], 1))
        return out

    torch.manual_seed(0)
    for n in SIZES:
        yield post(torch.rand(2, n * 4, 8), 0.5, 0.3)


@program
def graph_batch(wrap):

    class Conv(nn.Module):
        def __init__(self, i, o):
            super().__init__()
            self.l = nn.Linear(2 * i, o)

        def forward(self, x, ei):
            a, b = ei
            m = F.relu(self.l(torch.cat([x[a], x[b] - x[a]], 1)))
            o = x.new_full((x.size(0), m.size(1)), -float("inf"))
            o = o.scatter_reduce(0, b[:, None].expand_as(m), m, "amax")
            return torch.where(torch.isinf(o), torch.zeros_like(o), o)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.ModuleList([Conv(3, 8), Conv(8, 8)])
            self.o = nn.Linear(16, 2)

        def forward(self, d):
            x = d["x"]
            for c in self.c:
                x = c(x, d["edge"])
            n = int(d["batch"].max()) + 1
            cnt = torch.bincount(d["batch"], minlength=n).clamp(min=1)
            mean = torch.zeros(n, x.size(1)).index_add(0, d["batch"], x) / cnt[:, None]
            mx = torch.stack([x[d["batch"] == i].max(0).values if (d["batch"] == i).any() else x.new_zeros(x.size(1)) for i in range(n)])
            return self.o(torch.cat([mean, mx], 1))

    torch.manual_seed(0)
    m = Net()
    f = wrap(m)
    for n in SIZES:
        N = n * 3
        d = {"x": torch.randn(N, 3), "edge": torch.randint(0, N, (2, N * 2)), "batch": torch.arange(n).repeat_interleave(3)}
        l = f(d).pow(2).sum()
        m.zero_grad()
        l.backward()
        yield (l.detach(), [p.grad.clone() for p in m.parameters()])


@program
def dlrm(wrap):

    class D(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.ModuleList((nn.EmbeddingBag(k, 4, mode=mo, sparse=False) for k, mo in ((10, "sum"), (20, "mean"), (7, "max"))))
            self.b = Mlp(3, 8, 4)
            self.t = Mlp(4 + 6, 8, 1)
            self.h = {}

        def forward(self, dense, sp):
            v = [self.b(dense)] + [e(ix, of) for e, (ix, of) in zip(self.e, sp)]
            z = torch.stack(v, 1)
            g = z @ z.transpose(1, 2)
            i, j = torch.tril_indices(4, 4, -1)
            self.h["calls"] = self.h.get("calls", 0) + 1
            return torch.sigmoid(self.t(torch.cat([v[0], g[:, i, j]], 1))).squeeze(1)

    torch.manual_seed(0)
    m = D()
    f = wrap(m)
    opt = torch.optim.Adagrad(m.parameters(), 0.1)
    for n in SIZES:
        sp = []
        for k in (10, 20, 7):
            ln = torch.randint(0, 4, (n,))
            sp.append((torch.randint(0, k, (int(ln.sum()),)), torch.cat([torch.zeros(1, dtype=torch.long), ln.cumsum(0)[:-1]])))
        l = F.binary_cross_entropy(f(torch.randn(n, 3), sp), torch.ones(n))
        opt.zero_grad()
        l.backward()
        opt.step()
        yield (l.detach(), [p.detach().clone() for p in m.parameters()], torch.tensor(m.h["calls"]))


@program
def treelstm(wrap):

    class Tr(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Embedding(9, 4)
            self.w = nn.Linear(8, 12)

        def forward(self, t):
            if isinstance(t, int):
                return (self.e(torch.tensor(t)), torch.zeros(4))
            (hl, cl), (hr, cr) = (self(t[0]), self(t[1]))
            i, f, o = self.w(torch.cat([hl, hr])).chunk(3)
            c = torch.sigmoid(i) * torch.tanh(hl + hr) + torch.sigmoid(f) * (cl + cr)
            return (torch.sigmoid(o) * torch.tanh(c), c)

    torch.manual_seed(0)
    m = Tr()
    f = wrap(m)
    for t in ((1, 2), ((1, 2), 3), (4, (5, 6)), ((1, 2), (3, 4)), ((7, 1), 2), (((1, 2), 3), 4), 8):
        h, c = f(t)
        m.zero_grad()
        h.sum().backward()
        yield (h.detach(), c.detach(), m.e.weight.grad.clone())


@program
def paged_kv(wrap):

    class Cache:
        def __init__(self, b, d):
            self.b = b
            self.k = torch.zeros(32, b, d)
            self.tab = {}
            self.free = list(range(31, -1, -1))
            self.len = collections.Counter()

        def append(self, i, k):
            for row in k:
                n = self.len[i]
                if n % self.b == 0:
                    self.tab.setdefault(i, []).append(self.free.pop())
                self.k[self.tab[i][-1], n % self.b] = row
                self.len[i] += 1

        def get(self, i):
            return self.k[self.tab[i]].flatten(0, 1)[: self.len[i]]

        def drop(self, i):
            self.free.extend(self.tab.pop(i))
            del self.len[i]

    torch.manual_seed(0)
    c = Cache(3, 4)
    l = nn.Linear(4, 4)

    @wrap
    def step(i, x):
        with torch.no_grad():
            k = l(x)
            c.append(i, k)
            K = c.get(i)
            return torch.softmax(k @ K.T, -1) @ K

    for r, n in enumerate((3, 1, 1, 4, 1, 1, 2)):
        yield (step("a", torch.randn(n, 4)), step("b", torch.randn(1, 4)), torch.tensor(sorted(c.len.values())))
        if r == 4:
            c.drop("b")


@program
def lora_switch(wrap):

    class Lora(nn.Module):
        def __init__(self, b, r=2):
            super().__init__()
            self.b = b
            self.A = nn.ParameterDict()
            self.B = nn.ParameterDict()
            self.on = None
            self.merged = False

        def add(self, n, r):
            self.A[n] = nn.Parameter(torch.randn(r, self.b.in_features) * 0.1)
            self.B[n] = nn.Parameter(torch.randn(self.b.out_features, r) * 0.1)

        def merge(self):
            if self.on and (not self.merged):
                self.b.weight.data += self.B[self.on] @ self.A[self.on]
                self.merged = True

        def forward(self, x):
            y = self.b(x)
            if self.on and (not self.merged):
                y = y + x @ self.A[self.on].T @ self.B[self.on].T
            return y

    torch.manual_seed(0)
    m = nn.Sequential(Lora(nn.Linear(4, 6)), nn.ReLU(), Lora(nn.Linear(6, 2)))
    for l in (m[0], m[2]):
        l.add("x", 2)
        l.add("y", 3)
    f = wrap(m)
    for k, n in enumerate(SIZES):
        for l in (m[0], m[2]):
            l.on = (None, "x", "y")[k % 3]
            if k == 4:
                l.merge()
        o = f(torch.randn(n, 4))
        m.zero_grad()
        o.sum().backward()
        yield (o.detach(), [p.grad for p in m.parameters()])
