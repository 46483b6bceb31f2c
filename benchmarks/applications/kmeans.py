"""K-means until nothing moves, and silhouettes: loops over clusters and points."""

import numpy as np
import torch


def kmeans(x, k, tol=1e-3, most=30):
    c = x[torch.randperm(x.size(0))[:k]].clone()
    prev = float("inf")
    for turn in range(most):  # noqa: B007  (it is returned)
        d = torch.cdist(x, c)
        a = d.argmin(1)
        inertia = d.gather(1, a[:, None]).pow(2).sum().item()
        for j in range(k):
            mem = x[a == j]
            if len(mem):
                c[j] = mem.mean(0)
        if abs(prev - inertia) < tol * max(1.0, prev):
            break
        prev = inertia
    return c, a, turn, inertia


def silhouette(x, a):
    d = torch.cdist(x, x)
    s = []
    ks = a.unique().tolist()
    for i in range(len(x)):
        own = (a == a[i]) & (torch.arange(len(x)) != i)
        if not own.any():
            s.append(0.0)
            continue
        ai = d[i][own].mean()
        bi = min([d[i][a == k].mean() for k in ks if k != a[i]], default=ai)
        s.append(((bi - ai) / max(ai, bi)).item())
    return float(np.mean(s))


def program(compile_):
    km = compile_(kmeans)
    sl = compile_(silhouette)

    def f(i):
        x = torch.randn(20 + i % 7, 3) + 3 * torch.randint(0, 3, (20 + i % 7, 1))
        c, a, it, inr = km(x, 2 + i % 3)
        return [c, a, it, inr, sl(x[:12], a[:12])]

    return f
