"""A small GPT: autocast, gradient scaling and accumulation, checkpoints, clipping, an average, sampling."""

import copy
import math

import torch
import torch.nn as nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(s, d):
        super().__init__()
        s.n1 = nn.LayerNorm(d)
        s.a = nn.MultiheadAttention(d, 4, batch_first=True, dropout=0.1)
        s.n2 = nn.LayerNorm(d)
        s.m = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))

    def forward(s, x, mask):
        h = s.n1(x)
        x = x + s.a(h, h, h, attn_mask=mask, need_weights=False)[0]
        return x + s.m(s.n2(x))


class GPT(nn.Module):
    def __init__(s, v=50, d=32, n=3):
        super().__init__()
        s.e = nn.Embedding(v, d)
        s.p = nn.Embedding(64, d)
        s.b = nn.ModuleList(Block(d) for _ in range(n))
        s.n = nn.LayerNorm(d)
        s.h = nn.Linear(d, v, bias=False)
        s.h.weight = s.e.weight

    def forward(s, x, y=None):
        T = x.size(1)
        h = s.e(x) + s.p(torch.arange(T))
        mask = torch.triu(torch.ones(T, T, dtype=torch.bool), 1)
        for b in s.b:
            h = torch.utils.checkpoint.checkpoint(b, h, mask, use_reentrant=False) if s.training else b(h, mask)
        lg = s.h(s.n(h))
        return lg if y is None else F.cross_entropy(lg.flatten(0, 1), y.flatten(), ignore_index=-1)

    @torch.no_grad()
    def generate(s, x, n, temp=1.0, k=5):
        for _ in range(n):
            lg = s(x[:, -16:])[:, -1] / temp
            v, _ = lg.topk(k)
            lg[lg < v[:, [-1]]] = -float("inf")
            x = torch.cat([x, torch.multinomial(lg.softmax(-1), 1)], 1)
        return x


class EMA:
    def __init__(s, m, d=0.9):
        s.m = copy.deepcopy(m).eval()
        s.d = d

    @torch.no_grad()
    def update(s, m):
        for a, b in zip(s.m.parameters(), m.parameters()):
            a.lerp_(b, 1 - s.d)


def program(compile_):
    m = GPT()
    dec = [p for p in m.parameters() if p.dim() >= 2]
    no = [p for p in m.parameters() if p.dim() < 2]
    opt = torch.optim.AdamW([{"params": dec, "weight_decay": 0.1}, {"params": no, "weight_decay": 0.0}], 3e-3, betas=(0.9, 0.95))
    sc = torch.amp.GradScaler("cpu", enabled=True, init_scale=256.0)
    ema = EMA(m)
    it = [0]

    def lr(i):
        return 3e-3 * min(1, (i + 1) / 5) * 0.5 * (1 + math.cos(math.pi * min(1, i / 30)))

    def step(xs, ys):
        for g in opt.param_groups:
            g["lr"] = lr(it[0])
        tot = 0.0
        for x, y in zip(xs, ys):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                l = m(x, y) / len(xs)
            sc.scale(l).backward()
            tot += l.item()
        sc.unscale_(opt)
        n = nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        sc.step(opt)
        sc.update()
        opt.zero_grad(set_to_none=True)
        ema.update(m)
        it[0] += 1
        return tot, n.item()

    step = compile_(step)
    gen = compile_(m.generate)

    def f(i):
        k = 1 + i % 3
        mk = lambda: torch.randint(0, 50, (2, 5 + i % 6))
        m.train()
        r = list(step([mk() for _ in range(k)], [mk() for _ in range(k)]))
        if i % 4 == 3:
            m.eval()
            r.append(gen(torch.randint(0, 50, (2, 3)), 6))
        return r

    return f
