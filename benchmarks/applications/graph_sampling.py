"""GraphSAGE on neighbours that Python's random numbers choose: lists, dicts, then tensors of every size."""

import random

import torch
import torch.nn as nn
import torch.nn.functional as F


class SAGE(nn.Module):
    def __init__(s, i, o):
        super().__init__()
        s.l = nn.Linear(i, o)
        s.r = nn.Linear(i, o, bias=False)

    def forward(s, x, ei, n):
        src, dst = ei
        agg = torch.zeros(n, x.size(1)).index_add_(0, dst, x[src])
        deg = torch.bincount(dst, minlength=n).clamp(min=1).unsqueeze(1)
        return s.l(agg / deg) + s.r(x[:n])


class Graph:
    def __init__(s, n, d):
        s.nb = [[random.randrange(n) for _ in range(random.randint(1, d))] for _ in range(n)]
        s.x = torch.randn(n, 16)
        s.y = torch.randint(0, 4, (n,))

    def sample(s, seeds, fan):
        nodes = list(seeds)
        idx = {v: i for i, v in enumerate(nodes)}
        layers = []
        for f in fan:
            src, dst = [], []
            n = len(nodes)
            for i in range(n):
                for u in random.sample(s.nb[nodes[i]], min(f, len(s.nb[nodes[i]]))):
                    if u not in idx:
                        idx[u] = len(nodes)
                        nodes.append(u)
                    src.append(idx[u])
                    dst.append(i)
            layers.append((torch.tensor([src, dst]), n))
        return nodes, layers[::-1]


def program(compile_):
    g = Graph(200, 8)
    c1, c2 = SAGE(16, 32), SAGE(32, 4)
    opt = torch.optim.Adam([*c1.parameters(), *c2.parameters()], 0.01)

    def step(seeds):
        nodes, ls = g.sample(seeds, (4, 3))
        x = g.x[torch.tensor(nodes)]
        for k, (c, (ei, n)) in enumerate(zip((c1, c2), ls)):
            x = c(x, ei, n)
            if k == 0:
                x = F.dropout(F.relu(x), 0.2)
        l = F.cross_entropy(x, g.y[torch.tensor(seeds)])
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    step = compile_(step)
    return lambda i: step(random.sample(range(200), 8 + i % 7))
