"""Training and sampling with numbers that change from call to call: temperatures, ratios, weights, steps.

Each program yields what has to be eager's, call after call. `wrap` compiles a function or module, or gives it back as it is.
"""

from __future__ import annotations

import copy
import math
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.training import SIZES, Mlp, program, trained

grad = torch.autograd.grad


@program
def gumbel(wrap):
    torch.manual_seed(0)
    m = Mlp()

    @wrap
    def f(x, tau, hard):
        return F.gumbel_softmax(m(x), tau=tau, hard=hard)

    for k, n in enumerate(SIZES):
        yield trained(m, (f(torch.randn(n, 4), 1.0 / (k + 1), k % 2 == 0) ** 2).sum())


@program
def beta_vae(wrap):

    class V(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Linear(4, 6)
            self.d = nn.Linear(3, 4)

        def forward(self, x, beta):
            mu, lv = self.e(x).chunk(2, -1)
            z = mu + torch.randn_like(mu) * (0.5 * lv).exp()
            return F.mse_loss(self.d(z), x) + beta * (-0.5 * (1 + lv - mu**2 - lv.exp()).sum(1).mean())

    torch.manual_seed(0)
    m = wrap(V())
    for k, n in enumerate(SIZES):
        yield trained(m, m(torch.randn(n, 4), min(1.0, k / 3)))


@program
def smoothing(wrap):
    torch.manual_seed(0)
    m = Mlp()

    @wrap
    def f(x, y, e, wt):
        return F.cross_entropy(m(x), y, weight=wt, label_smoothing=e, ignore_index=2)

    for k, n in enumerate(SIZES):
        yield trained(m, f(torch.randn(n, 4), torch.arange(n) % 3, k * 0.05, torch.tensor([1.0, 2.0, 0.5])))


@program
def dropout_p(wrap):
    torch.manual_seed(0)
    M = Mlp(p=0.1)
    m = wrap(M)
    for k, n in enumerate(SIZES):
        M.d.p = 0.1 * k
        yield trained(M, m(torch.randn(n, 4)).sum())


@program
def fade_in(wrap):

    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.ModuleList(nn.Conv2d(3, 3, 3, padding=1) for _ in range(3))
            self.alpha = 0.0
            self.depth = 1

        def forward(self, x):
            for i in range(self.depth):
                y = self.a[i](F.interpolate(x, scale_factor=2) if i else x)
                x = (1 - self.alpha) * F.interpolate(x, size=y.shape[-2:]) + self.alpha * y if i == self.depth - 1 else y
            return x

    torch.manual_seed(0)
    M = N()
    m = wrap(M)
    for k, n in enumerate(SIZES):
        M.alpha = k / 4
        M.depth = 1 + k // 2
        yield trained(M, m(torch.randn(1, 3, n, n)).pow(2).mean())


@program
def stochastic_depth(wrap):

    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
            self.p = 0.5

        def forward(self, x):
            for i, l in enumerate(self.l):
                if self.training and torch.rand(1).item() < self.p * i / 4:
                    continue
                x = x + torch.tanh(l(x)) / (1 - self.p * i / 4 if self.training else 1)
            return x

    torch.manual_seed(0)
    m = wrap(N())
    for n in SIZES:
        yield trained(m, m(torch.randn(n, 4)).sum())


@program
def mae_mask(wrap):

    class N(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Linear(4, 8)
            self.d = nn.Linear(8, 4)
            self.t = nn.Parameter(torch.zeros(1, 1, 8))

        def forward(self, x, ratio):
            B, L, _ = x.shape
            keep = int(L * (1 - ratio))
            idx = torch.rand(B, L).argsort(1)
            rest = idx.argsort(1)
            k = idx[:, :keep]
            h = self.e(torch.gather(x, 1, k[..., None].expand(-1, -1, 4)))
            h = torch.cat([h, self.t.expand(B, L - keep, -1)], 1)
            h = torch.gather(h, 1, rest[..., None].expand(-1, -1, 8))
            mask = torch.ones(B, L)
            mask[:, :keep] = 0
            mask = mask.gather(1, rest)
            return ((self.d(h) - x).pow(2).mean(-1) * mask).sum() / mask.sum()

    torch.manual_seed(0)
    m = wrap(N())
    for k, n in enumerate(SIZES):
        yield trained(m, m(torch.randn(2, n * 2 + 2, 4), 0.5 + 0.05 * k))


@program
def cutmix(wrap):
    torch.manual_seed(0)
    m = nn.Conv2d(3, 2, 3)

    @wrap
    def f(x, lam, cx, cy):
        H, W = x.shape[-2:]
        r = math.sqrt(1 - lam)
        h, w_ = (int(H * r), int(W * r))
        x1, x2 = (max(cx - w_ // 2, 0), min(cx + w_ // 2, W))
        y1, y2 = (max(cy - h // 2, 0), min(cy + h // 2, H))
        x = x.clone()
        x[:, :, y1:y2, x1:x2] = x.flip(0)[:, :, y1:y2, x1:x2]
        lam = 1 - (x2 - x1) * (y2 - y1) / (H * W)
        return m(x).mean() * lam + m(x).abs().mean() * (1 - lam)

    random.seed(0)
    for n in SIZES:
        yield trained(m, f(torch.randn(2, 3, n + 6, n + 7), random.random(), random.randrange(n + 7), random.randrange(n + 6)))


@program
def gae(wrap):

    @wrap
    def f(r, v, d, gamma, lam):
        a = torch.zeros_like(r)
        last = 0
        for t in reversed(range(r.shape[0])):
            nv = v[t + 1] if t + 1 < r.shape[0] else torch.zeros_like(v[0])
            delta = r[t] + gamma * nv * (1 - d[t]) - v[t]
            a[t] = last = delta + gamma * lam * (1 - d[t]) * last
        return (a, a + v)

    torch.manual_seed(0)
    for k, n in enumerate(SIZES):
        yield f(torch.randn(n, 2), torch.randn(n, 2), (torch.rand(n, 2) > 0.8).float(), 0.9 + 0.01 * k, 0.95)


@program
def ppo(wrap):
    torch.manual_seed(0)
    M = Mlp()
    m = M

    @wrap
    def f(x, a, old, adv, eps, ent):
        d = torch.distributions.Categorical(logits=m(x))
        r = (d.log_prob(a) - old).exp()
        return -torch.min(r * adv, r.clamp(1 - eps, 1 + eps) * adv).mean() - ent * d.entropy().mean()

    for k, n in enumerate(SIZES):
        yield trained(M, f(torch.randn(n, 4), torch.arange(n) % 3, torch.zeros(n) - 1, torch.randn(n), 0.2 - 0.02 * k, 0.01 * k))


@program
def sac(wrap):
    torch.manual_seed(0)
    pi, q = (Mlp(4, 8, 4), Mlp(6, 8, 1))
    la = torch.zeros(1, requires_grad=True)

    @wrap
    def f(s):
        mu, ls = pi(s).chunk(2, -1)
        d = torch.distributions.Normal(mu, ls.clamp(-5, 2).exp())
        u = d.rsample()
        a = u.tanh()
        lp = (d.log_prob(u) - torch.log(1 - a**2 + 1e-06)).sum(-1)
        qv = q(torch.cat([s, a], -1))[:, 0]
        return ((la.exp().detach() * lp - qv).mean(), -(la * (lp + 2).detach()).mean())

    for n in SIZES:
        a, b = f(torch.randn(n, 4))
        yield (trained(pi, a), torch.autograd.grad(b, la))


@program
def polyak(wrap):
    torch.manual_seed(0)
    a, b = (Mlp(), Mlp())

    @wrap
    @torch.no_grad()
    def up(tau):
        for p, q in zip(a.parameters(), b.parameters()):
            q.mul_(1 - tau).add_(p, alpha=tau)
        for p, q in zip(a.parameters(), b.parameters()):
            q.copy_(torch.lerp(q, p, tau))

    for k in range(5):
        up(min(0.9, (1 + k) / (10 + k)))
        yield [q.clone() for q in b.parameters()]


@program
def ema_lerp_foreach(wrap):
    torch.manual_seed(0)
    a, b = (Mlp(), Mlp())

    @wrap
    def up(tau):
        torch._foreach_lerp_([q.data for q in b.parameters()], [p.data for p in a.parameters()], tau)

    for k in range(5):
        up(0.1 * k)
        yield [q.detach().clone() for q in b.parameters()]


@program
def ddpm(wrap):
    torch.manual_seed(0)
    M = Mlp(5, 8, 4)
    ac = torch.linspace(0.99, 0.1, 20)

    @wrap
    def loss(x, t):
        n = torch.randn_like(x)
        a = ac[t][:, None]
        return F.mse_loss(M(torch.cat([a.sqrt() * x + (1 - a).sqrt() * n, t[:, None] / 20], 1)), n)

    for n in SIZES:
        yield trained(M, loss(torch.randn(n, 4), torch.randint(0, 20, (n,))))


@program
def ddim(wrap):
    torch.manual_seed(0)
    M = Mlp(5, 8, 4)
    ac = torch.linspace(0.99, 0.1, 20)

    @wrap
    @torch.no_grad()
    def sample(x, steps, eta, scale):
        ts = torch.linspace(19, 0, steps).long()
        for i, t in enumerate(ts):
            a = ac[t]
            ap = ac[ts[i + 1]] if i + 1 < len(ts) else torch.ones(())
            e = M(torch.cat([x, (t / 20.0).expand(x.shape[0], 1)], 1))
            e = e + scale * (e - e.mean())
            x0 = (x - (1 - a).sqrt() * e) / a.sqrt()
            s = eta * ((1 - ap) / (1 - a)).sqrt() * (1 - a / ap).clamp(min=0).sqrt()
            x = ap.sqrt() * x0 + (1 - ap - s**2).clamp(min=0).sqrt() * e + s * torch.randn_like(x)
        return x

    for k, n in enumerate(SIZES):
        yield sample(torch.randn(n, 4), 3 + k, k * 0.1, 1.5 * k)


@program
def edm(wrap):
    torch.manual_seed(0)
    M = Mlp(5, 8, 4)

    def D(x, s):
        ci = 1 / (s**2 + 1) ** 0.5
        return x / (s**2 + 1) + s * ci * M(torch.cat([ci * x, (s.log() / 4).expand(x.shape[0], 1)], 1))

    @wrap
    def sample(x, steps, rho):
        i = torch.arange(steps)
        s = (80 ** (1 / rho) + i / (steps - 1) * (0.01 ** (1 / rho) - 80 ** (1 / rho))) ** rho
        s = torch.cat([s, s.new_zeros(1)])
        with torch.no_grad():
            for a, b in zip(s[:-1], s[1:]):
                d = (x - D(x, a)) / a
                xn = x + (b - a) * d
                if b != 0:
                    d2 = (xn - D(xn, b)) / b
                    xn = x + (b - a) * (d + d2) / 2
                x = xn
        return x

    for k, n in enumerate(SIZES):
        yield sample(torch.randn(n, 4), 3 + k, 7)


@program
def focal(wrap):
    torch.manual_seed(0)
    M = Mlp()

    @wrap
    def f(x, y, g, a):
        ce = F.cross_entropy(M(x), y, reduction="none")
        pt = (-ce).exp()
        return (a * (1 - pt) ** g * ce).mean()

    for k, n in enumerate(SIZES):
        yield trained(M, f(torch.randn(n, 4), torch.arange(n) % 3, k * 0.5, 0.25))


@program
def mixup(wrap):
    torch.manual_seed(0)
    M = Mlp()

    @wrap
    def f(x, y, lam):
        p = torch.randperm(x.shape[0])
        o = M(lam * x + (1 - lam) * x[p])
        return lam * F.cross_entropy(o, y) + (1 - lam) * F.cross_entropy(o, y[p])

    rs = np.random.RandomState(0)
    for n in SIZES:
        yield (
            trained(M, f(torch.randn(n, 4), torch.arange(n) % 3, float(rs.beta(1, 1)))),
            trained(M, f(torch.randn(n, 4), torch.arange(n) % 3, rs.beta(1, 1))),
        )


@program
def scheduled(wrap):

    class S(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.GRUCell(4, 6)
            self.o = nn.Linear(6, 4)

        def forward(self, x, tf):
            h = x.new_zeros(x.shape[1], 6)
            y = x[0]
            out = []
            for t in range(x.shape[0]):
                h = self.c(y, h)
                o = self.o(h)
                out.append(o)
                y = x[t] if random.random() < tf else o
            return torch.stack(out)

    torch.manual_seed(0)
    random.seed(0)
    m = wrap(S())
    for k, n in enumerate(SIZES):
        yield trained(m, (m(torch.randn(n, 2, 4), 1 - k * 0.2) ** 2).mean())


@program
def step_lr(wrap):
    torch.manual_seed(0)
    M = Mlp()
    opt = torch.optim.AdamW(M.parameters(), 0.01)
    sch = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=10)

    @wrap
    def step(x):
        opt.zero_grad()
        l = M(x).pow(2).mean()
        l.backward()
        nn.utils.clip_grad_norm_(M.parameters(), 0.5)
        opt.step()
        sch.step()
        return l.detach()

    for n in SIZES:
        yield (step(torch.randn(n, 4)), [p.detach().clone() for p in M.parameters()], torch.tensor(sch.get_last_lr()))


@program
def distill(wrap):
    torch.manual_seed(0)
    T, S = (Mlp(), Mlp(4, 5, 3))

    @wrap
    def f(x, y, t, a):
        with torch.no_grad():
            q = T(x)
        s = S(x)
        return a * F.kl_div((s / t).log_softmax(1), (q / t).softmax(1), reduction="batchmean") * t * t + (1 - a) * F.cross_entropy(s, y)

    for k, n in enumerate(SIZES):
        yield trained(S, f(torch.randn(n, 4), torch.arange(n) % 3, 1.0 + k, 0.1 * k))


@program
def byol(wrap):

    class B(nn.Module):
        def __init__(self):
            super().__init__()
            self.o = Mlp()
            self.t = copy.deepcopy(self.o).requires_grad_(False)
            self.p = nn.Linear(3, 3)
            self.step = 0

        @torch.no_grad()
        def ema(self):
            self.step += 1
            m = 1 - (1 - 0.9) * (math.cos(math.pi * self.step / 10) + 1) / 2
            for a, b in zip(self.o.parameters(), self.t.parameters()):
                b.data.mul_(m).add_(a.data, alpha=1 - m)

        def forward(self, x, y):
            self.ema()
            z = F.normalize(self.p(self.o(x)), dim=-1)
            with torch.no_grad():
                t = F.normalize(self.t(y), dim=-1)
            return 2 - 2 * (z * t).sum(-1).mean()

    torch.manual_seed(0)
    m = wrap(B())
    for n in SIZES:
        yield (trained(m, m(torch.randn(n, 4), torch.randn(n, 4))), [p.clone() for p in m.t.parameters()])


@program
def ema_data(wrap):
    torch.manual_seed(0)
    a, b = (Mlp(), Mlp().requires_grad_(False))

    @wrap
    def up(m):
        for p, q in zip(a.parameters(), b.parameters()):
            q.data = q.data * m + p.data * (1 - m)

    for k in range(5):
        up(0.1 * k)
        yield [q.detach().clone() for q in b.parameters()]


@program
def arcface(wrap):

    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.randn(3, 4))

        def forward(self, x, y, m, sc):
            c = F.linear(F.normalize(x), F.normalize(self.w))
            si = (1 - c**2).clamp(0, 1).sqrt()
            phi = c * math.cos(m) - si * math.sin(m)
            phi = torch.where(c > math.cos(math.pi - m), phi, c - math.sin(math.pi - m) * m)
            oh = torch.zeros_like(c).scatter_(1, y[:, None], 1.0)
            return F.cross_entropy(sc * (oh * phi + (1 - oh) * c), y)

    torch.manual_seed(0)
    m = wrap(A())
    for k, n in enumerate(SIZES):
        yield trained(m, m(torch.randn(n, 4), torch.arange(n) % 3, 0.1 + 0.1 * k, 10 + k))


@program
def triplet(wrap):
    torch.manual_seed(0)
    M = Mlp()

    @wrap
    def f(x, y, margin):
        e = F.normalize(M(x))
        d = torch.cdist(e, e)
        same = y[:, None] == y[None]
        ap = (d * same).max(1)[0]
        an = (d + 1000.0 * same).min(1)[0]
        return F.relu(ap - an + margin).mean()

    for k, n in enumerate(SIZES):
        yield trained(M, f(torch.randn(n + 2, 4), torch.arange(n + 2) % 3, 0.1 * k))


@program
def nerf(wrap):
    torch.manual_seed(0)
    M = Mlp(6, 8, 4)

    @wrap
    def f(o, d, near, far, N, perturb):
        t = torch.linspace(near, far, N)
        t = t + (torch.rand(N) * perturb * (far - near) / N if perturb else 0)
        p = o[:, None] + d[:, None] * t[:, None]
        r = M(torch.cat([p, d[:, None].expand_as(p)], -1))
        s = F.relu(r[..., 3])
        dt = torch.cat([t[1:] - t[:-1], torch.tensor([100.0])])
        al = 1 - (-s * dt).exp()
        T = torch.cumprod(torch.cat([torch.ones_like(al[:, :1]), 1 - al + 1e-06], 1), 1)[:, :-1]
        return ((al * T)[..., None] * r[..., :3].sigmoid()).sum(1)

    for k, n in enumerate(SIZES):
        yield trained(M, f(torch.randn(n, 3), torch.randn(n, 3), 0.1 + 0.1 * k, 2.0, 4 + k, k % 2 * 0.5).sum())
