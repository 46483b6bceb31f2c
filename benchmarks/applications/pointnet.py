"""PointNet++: farthest points in a loop of writes by index and mask, balls, sorted neighbours."""

import torch
import torch.nn as nn
import torch.nn.functional as F


def fps(xyz, n):
    B, N, _ = xyz.shape
    c = torch.zeros(B, n, dtype=torch.long)
    d = torch.ones(B, N) * 1e10
    far = torch.randint(0, N, (B,))
    bi = torch.arange(B)
    for i in range(n):
        c[:, i] = far
        p = xyz[bi, far].view(B, 1, 3)
        dist = ((xyz - p) ** 2).sum(-1)
        m = dist < d
        d[m] = dist[m]
        far = d.max(-1)[1]
    return c


def index(p, idx):
    B = p.shape[0]
    v = [B] + [1] * (idx.dim() - 1)
    bi = torch.arange(B).view(v).expand_as(idx)
    return p[bi, idx]


def ball(r, k, xyz, new):
    B, N, _ = xyz.shape
    S = new.shape[1]
    g = torch.arange(N).view(1, 1, N).repeat(B, S, 1)
    d = torch.cdist(new, xyz) ** 2
    g[d > r**2] = N
    g = g.sort(-1)[0][:, :, :k]
    f = g[:, :, 0:1].repeat(1, 1, k)
    m = g == N
    g[m] = f[m]
    return g


class SA(nn.Module):
    def __init__(s, n, r, k, i, mlp):
        super().__init__()
        s.n, s.r, s.k = n, r, k
        s.c = nn.ModuleList()
        s.b = nn.ModuleList()
        for o in mlp:
            s.c.append(nn.Conv2d(i, o, 1))
            s.b.append(nn.BatchNorm2d(o))
            i = o

    def forward(s, xyz, f):
        new = index(xyz, fps(xyz, s.n))
        idx = ball(s.r, s.k, xyz, new)
        g = index(xyz, idx) - new.unsqueeze(2)
        g = torch.cat([g, index(f, idx)], -1) if f is not None else g
        g = g.permute(0, 3, 2, 1)
        for c, b in zip(s.c, s.b):
            g = F.relu(b(c(g)))
        return new, g.max(2)[0].transpose(1, 2)


class PN(nn.Module):
    def __init__(s):
        super().__init__()
        s.a = SA(12, 0.6, 6, 3, [16, 16])
        s.b = SA(4, 1.2, 4, 19, [32])
        s.f = nn.Linear(32, 5)

    def forward(s, x):
        p, f = s.a(x, None)
        p, f = s.b(p, f)
        return s.f(f.max(1)[0])


def program(compile_):
    m = PN()
    opt = torch.optim.AdamW(m.parameters(), 1e-3)
    sch = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 20)

    def step(x, y):
        l = F.cross_entropy(m(x), y, label_smoothing=0.1)
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    step = compile_(step)

    def f(i):
        r = step(torch.randn(2 + i % 2, 30 + i % 9, 3), torch.randint(0, 5, (2 + i % 2,)))
        sch.step()
        return r

    return f
