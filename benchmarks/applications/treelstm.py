"""A Tree-LSTM: recursion over trees of Python objects, other ones in each call."""

import random

import torch
import torch.nn as nn


class Node:
    def __init__(s, w=None, ch=()):
        s.w = w
        s.ch = list(ch)

    @property
    def depth(s):
        return 1 + max((c.depth for c in s.ch), default=0)


class Tree(nn.Module):
    def __init__(s, d=16):
        super().__init__()
        s.e = nn.Embedding(20, d)
        s.iou = nn.Linear(d, 3 * d)
        s.u = nn.Linear(d, 3 * d, bias=False)
        s.f = nn.Linear(d, d)
        s.o = nn.Linear(d, 2)
        s.d = d

    def node(s, n):
        if not n.ch:
            x = s.e(torch.tensor(n.w))
            i, o, u = (s.iou(x)).chunk(3)
            c = i.sigmoid() * u.tanh()
            return o.sigmoid() * c.tanh(), c
        st = [s.node(c) for c in n.ch]
        h = torch.stack([a for a, _ in st])
        c = torch.stack([b for _, b in st])
        i, o, u = s.u(h.sum(0)).chunk(3)
        f = s.f(h).sigmoid()
        c = i.sigmoid() * u.tanh() + (f * c).sum(0)
        return o.sigmoid() * c.tanh(), c

    def forward(s, t):
        return s.o(s.node(t)[0])


def gen(d):
    return Node(random.randrange(20)) if d == 0 or random.random() < 0.3 else Node(None, [gen(d - 1) for _ in range(random.randint(2, 3))])


def program(compile_):
    m = Tree()
    opt = torch.optim.SGD(m.parameters(), 0.1)

    def step(trees, ys):
        l = sum(nn.functional.cross_entropy(m(t)[None], torch.tensor([y])) for t, y in zip(trees, ys)) / len(trees)
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    step = compile_(step)
    return lambda i: step([gen(2) for _ in range(2 + i % 2)], [random.randrange(2) for _ in range(2 + i % 2)])
