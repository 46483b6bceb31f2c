"""A denoising diffusion model: training, an exponential average by name, and the sampler's loop."""

import math

import torch
import torch.nn as nn


class Emb(nn.Module):
    def forward(s, t, d=32):
        f = torch.exp(-math.log(10000) * torch.arange(d // 2) / (d // 2))
        a = t[:, None] * f[None]
        return torch.cat([a.sin(), a.cos()], -1)


class U(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = Emb()
        s.te = nn.Linear(32, 32)
        s.i = nn.Conv2d(1, 32, 3, padding=1)
        s.d = nn.Conv2d(32, 32, 4, 2, 1)
        s.m = nn.Conv2d(32, 32, 3, padding=1)
        s.u = nn.ConvTranspose2d(32, 32, 4, 2, 1)
        s.o = nn.Conv2d(64, 1, 3, padding=1)
        s.n = nn.GroupNorm(8, 32)

    def forward(s, x, t):
        e = s.te(s.e(t))[:, :, None, None]
        h = s.i(x) + e
        k = h
        h = torch.nn.functional.silu(s.d(h))
        h = s.m(s.n(h)) + h
        h = s.u(h)
        return s.o(torch.cat([h, k], 1))


class DDPM:
    def __init__(s, T=20):
        s.T = T
        s.b = torch.linspace(1e-4, 0.02, T)
        s.a = 1 - s.b
        s.ab = s.a.cumprod(0)

    def q(s, x, t, n):
        return s.ab[t].sqrt()[:, None, None, None] * x + (1 - s.ab[t]).sqrt()[:, None, None, None] * n

    @torch.no_grad()
    def sample(s, m, shape):
        x = torch.randn(shape)
        for t in reversed(range(s.T)):
            tt = torch.full((shape[0],), t, dtype=torch.long)
            e = m(x, tt)
            mean = (x - s.b[t] / (1 - s.ab[t]).sqrt() * e) / s.a[t].sqrt()
            x = mean + (s.b[t].sqrt() * torch.randn_like(x) if t > 0 else 0)
        return x.clamp(-1, 1)


def program(compile_):
    m = U()
    d = DDPM()
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    ema = {k: v.clone() for k, v in m.state_dict().items()}

    def train(x):
        t = torch.randint(0, d.T, (x.size(0),))
        n = torch.randn_like(x)
        l = (m(d.q(x, t, n), t) - n).pow(2).mean()
        opt.zero_grad(set_to_none=True)
        l.backward()
        opt.step()
        with torch.no_grad():
            for k, v in m.state_dict().items():
                ema[k].mul_(0.99).add_(v, alpha=0.01)
        return l.item()

    train = compile_(train)
    sample = compile_(d.sample)

    def f(i):
        r = [train(torch.randn(2 + i % 4, 1, 8 + 4 * (i % 3), 8))]
        if i % 3 == 0:
            r.append(sample(m, (1 + i % 2, 1, 8, 8 + 4 * (i % 2))))
        return r + [ema["o.bias"]]

    return f
