"""A neural differential equation: Dormand-Prince with steps chosen by the error, a loop on data."""

import torch
import torch.nn as nn


class F(nn.Module):
    def __init__(s):
        super().__init__()
        s.n = nn.Sequential(nn.Linear(3, 32), nn.Tanh(), nn.Linear(32, 2))
        s.nfe = 0

    def forward(s, t, y):
        s.nfe += 1
        return s.n(torch.cat([y, t.expand(y.size(0), 1)], 1))


C = [
    (0.2, [0.2]),
    (0.3, [3 / 40, 9 / 40]),
    (0.8, [44 / 45, -56 / 15, 32 / 9]),
    (8 / 9, [19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729]),
    (1.0, [9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656]),
]
B = [35 / 384, 0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84]
E = [71 / 57600, 0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525]


def odeint(f, y, t0, t1, rtol=1e-3, atol=1e-4):
    t = torch.tensor(t0)
    h = 0.2
    n = 0
    while float(t) < t1 and n < 50:
        h = min(h, t1 - float(t))
        k = [f(t, y)]
        for c, a in C:
            k.append(f(t + c * h, y + h * sum(x * w for x, w in zip(k, a))))
        e = h * sum(x * w for x, w in zip(k, E))
        y1 = y + h * sum(x * w for x, w in zip(k, B))
        tol = atol + rtol * torch.max(y.abs(), y1.abs())
        r = ((e / tol) ** 2).mean().sqrt().item()
        if r <= 1:
            t = t + h
            y = y1
        h *= min(5.0, max(0.2, 0.9 * (r + 1e-9) ** -0.2))
        n += 1
    return y, n


def program(compile_):
    f = F()
    opt = torch.optim.Adam(f.parameters(), 0.01)

    def step(y, target, t1):
        f.nfe = 0
        p, n = odeint(f, y, 0.0, t1)
        l = (p - target).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item(), f.nfe, n

    step = compile_(step)
    return lambda i: step(torch.randn(4 + i % 5, 2), torch.randn(4 + i % 5, 2), 0.5 + 0.1 * (i % 4))
