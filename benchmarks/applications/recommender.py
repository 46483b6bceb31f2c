"""A recommender: rows of Python become batches of ragged features, embedding bags, Adagrad, an area under a curve."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class DLRM(nn.Module):
    def __init__(s, tables=(100, 50, 200), d=16):
        super().__init__()
        s.e = nn.ModuleList(nn.EmbeddingBag(n, d, mode=m, sparse=False) for n, m in zip(tables, ("sum", "mean", "max")))
        s.bot = nn.Sequential(nn.Linear(7, 32), nn.ReLU(), nn.Linear(32, d))
        s.top = nn.Sequential(nn.Linear(d + 6, 32), nn.ReLU(), nn.Linear(32, 1))

    def forward(s, dense, cats):
        x = s.bot(dense)
        es = [e(ids, off) for e, (ids, off) in zip(s.e, cats)]
        z = torch.stack([x] + es, 1)
        t = torch.bmm(z, z.transpose(1, 2))
        i, j = torch.tril_indices(z.size(1), z.size(1), -1)
        return s.top(torch.cat([x, t[:, i, j]], 1)).squeeze(1)


def collate(rows):
    cats = []
    for c in range(3):
        ids = [r["cats"][c] for r in rows]
        lens = torch.tensor([len(k) for k in ids])
        off = torch.cat([torch.zeros(1, dtype=torch.long), lens.cumsum(0)[:-1]])
        cats.append((torch.tensor([k for l in ids for k in l], dtype=torch.long), off))
    return torch.tensor([r["dense"] for r in rows]), cats, torch.tensor([r["y"] for r in rows])


def auc(s, y):
    o = s.argsort()
    r = torch.empty_like(s)
    r[o] = torch.arange(1, len(s) + 1, dtype=s.dtype)
    p = y.sum()
    n = len(y) - p
    if p == 0 or n == 0:
        return 0.5
    return ((r[y > 0].sum() - p * (p + 1) / 2) / (p * n)).item()


def program(compile_):
    m = DLRM()
    opt = torch.optim.Adagrad(m.parameters(), 0.05)

    def step(rows):
        d, c, y = collate(rows)
        l = F.binary_cross_entropy_with_logits(m(d, c), y)
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    @torch.no_grad()
    def ev(rows):
        d, c, y = collate(rows)
        return auc(m(d, c).sigmoid(), y)

    step = compile_(step)
    ev = compile_(ev)
    import random

    def f(i):
        rows = [
            {
                "dense": [random.random() for _ in range(7)],
                "cats": [[random.randrange(n) for _ in range(random.randint(1, 5))] for n in (100, 50, 200)],
                "y": float(random.random() < 0.5),
            }
            for _ in range(6 + i % 9)
        ]
        return [step(rows), ev(rows)]

    return f
