"""Momentum contrast: a queue in a buffer, averaged weights, augmentation by random numbers, a cosine schedule."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Enc(nn.Module):
    def __init__(s):
        super().__init__()
        s.c = nn.Conv2d(3, 16, 3, 2, 1)
        s.b = nn.BatchNorm2d(16)
        s.f = nn.Linear(16, 32)

    def forward(s, x):
        return F.normalize(s.f(F.relu(s.b(s.c(x))).mean((2, 3))), dim=1)


class MoCo(nn.Module):
    def __init__(s, K=64, m=0.99, T=0.07):
        super().__init__()
        s.q = Enc()
        s.k = copy.deepcopy(s.q)
        s.K, s.m, s.T = K, m, T
        for p in s.k.parameters():
            p.requires_grad = False
        s.register_buffer("queue", F.normalize(torch.randn(32, K), dim=0))
        s.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def momentum(s):
        for a, b in zip(s.q.parameters(), s.k.parameters()):
            b.data = b.data * s.m + a.data * (1.0 - s.m)

    @torch.no_grad()
    def enqueue(s, k):
        n = k.shape[0]
        p = int(s.ptr)
        if p + n > s.K:
            p = 0
        s.queue[:, p : p + n] = k.T
        s.ptr[0] = (p + n) % s.K

    def forward(s, a, b):
        q = s.q(a)
        with torch.no_grad():
            s.momentum()
            idx = torch.randperm(b.size(0))
            k = s.k(b[idx])[torch.argsort(idx)]
        pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
        neg = torch.einsum("nc,ck->nk", [q, s.queue.clone().detach()])
        lg = torch.cat([pos, neg], 1) / s.T
        s.enqueue(k)
        return lg, torch.zeros(lg.shape[0], dtype=torch.long)


def augment(x):
    if torch.rand(1).item() < 0.5:
        x = x.flip(3)
    x = x * (1 + 0.2 * torch.randn(x.size(0), 1, 1, 1))
    s = int(torch.randint(0, 3, (1,)))
    return F.pad(x, (s, s, s, s), mode="reflect")[:, :, s : s + x.size(2), s : s + x.size(3)] if s else x


def program(compile_):
    m = MoCo()
    opt = torch.optim.SGD(m.q.parameters(), 0.03, momentum=0.9, weight_decay=1e-4)

    def adjust(ep):
        for g in opt.param_groups:
            g["lr"] = 0.03 * 0.5 * (1.0 + math.cos(math.pi * ep / 30))

    def step(x, ep):
        adjust(ep)
        lg, y = m(augment(x), augment(x))
        l = F.cross_entropy(lg, y)
        acc = (lg.argmax(1) == y).float().mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item(), acc.item()

    step = compile_(step)
    return lambda i: [*step(torch.randn(8 + i % 4, 3, 12, 12), i), m.queue.sum(), m.ptr]
