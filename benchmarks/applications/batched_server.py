"""A server of a language model: requests join and leave the batch between steps, keys and values lie in pages, sampled per request."""

import dataclasses
import math

import torch
import torch.nn as nn


@dataclasses.dataclass
class Request:
    tokens: list
    most: int
    temperature: float
    pages: list = dataclasses.field(default_factory=list)
    length: int = 0
    done: bool = False


class Pages:
    def __init__(s, n, size, layers, d):
        s.size = size
        s.free = list(range(n))
        s.k = torch.zeros(layers, n, size, d)
        s.v = torch.zeros(layers, n, size, d)

    def room(s, r, n):
        while len(r.pages) * s.size < r.length + n:
            if not s.free:
                return False
            r.pages.append(s.free.pop())
        return True

    def slots(s, r, n):
        at = range(r.length, r.length + n)
        return [r.pages[p // s.size] for p in at], [p % s.size for p in at]


class Layer(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.n1, s.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        s.qkv, s.o = nn.Linear(d, 3 * d), nn.Linear(d, d)
        s.m = nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, d))

    def forward(s, x, pages, i, batch, counts):
        q, k, v = s.qkv(s.n1(x)).chunk(3, -1)
        page, slot = [], []
        for r, n in zip(batch, counts):
            a, b = pages.slots(r, n)
            page += a
            slot += b
        at = torch.tensor(page), torch.tensor(slot)
        pages.k[i][at] = k
        pages.v[i][at] = v
        outs, begin = [], 0
        for r, n in zip(batch, counts):
            whole = r.length + n
            keys = pages.k[i][torch.tensor(r.pages)].flatten(0, 1)[:whole]
            values = pages.v[i][torch.tensor(r.pages)].flatten(0, 1)[:whole]
            w = q[begin : begin + n] @ keys.t() / math.sqrt(q.size(1))
            mask = torch.arange(whole) > torch.arange(r.length, whole)[:, None]
            outs.append(w.masked_fill(mask, -torch.inf).softmax(-1) @ values)
            begin += n
        x = x + s.o(torch.cat(outs))
        return x + s.m(s.n2(x))


class LM(nn.Module):
    def __init__(s, v=40, d=32, layers=2):
        super().__init__()
        s.e, s.p = nn.Embedding(v, d), nn.Embedding(64, d)
        s.l = nn.ModuleList(Layer(d) for _ in range(layers))
        s.h = nn.Linear(d, v)

    def forward(s, batch, pages):
        counts = [len(r.tokens) - r.length for r in batch]
        new = torch.tensor([t for r, n in zip(batch, counts) for t in r.tokens[-n:]])
        at = torch.cat([torch.arange(r.length, r.length + n) for r, n in zip(batch, counts)])
        x = s.e(new) + s.p(at)
        for i, l in enumerate(s.l):
            x = l(x, pages, i, batch, counts)
        ends = torch.tensor(counts).cumsum(0) - 1
        for r, n in zip(batch, counts):
            r.length += n
        return s.h(x[ends])


def program(compile_):
    m = LM().eval()
    pages = Pages(24, 4, 2, 32)
    waiting, running = [], []

    @torch.no_grad()
    def step():
        while waiting and len(running) < 4 and pages.room(waiting[0], len(waiting[0].tokens)):
            running.append(waiting.pop(0))
        ready = [r for r in running if pages.room(r, len(r.tokens) - r.length)]
        if not ready:
            return []
        logits = m(ready, pages)
        heat = torch.tensor([r.temperature for r in ready])[:, None]
        picked = torch.multinomial((logits / heat).softmax(-1), 1).flatten().tolist()
        out = []
        for r, t in zip(ready, picked):
            r.tokens.append(t)
            r.most -= 1
            if t == 0 or r.most <= 0:
                r.done = True
                pages.free += r.pages
                out.append(r.tokens)
        running[:] = [r for r in running if not r.done]
        return out

    step = compile_(step)

    def f(i):
        for j in range(i % 3):
            waiting.append(Request(torch.randint(1, 40, (3 + (i + j) % 6,)).tolist(), 3 + (i + 2 * j) % 5, 0.7 + 0.1 * (j % 4)))
        return [step(), step(), len(running), len(waiting), pages.k.sum()]

    return f
