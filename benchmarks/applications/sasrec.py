"""Self-attentive recommendation: negatives sampled with NumPy in a `while` loop, ranks and NDCG."""

import random

import numpy as np
import torch
import torch.nn as nn


class SAS(nn.Module):
    def __init__(s, n=60, d=16, L=12):
        super().__init__()
        s.i = nn.Embedding(n + 1, d, padding_idx=0)
        s.p = nn.Embedding(L, d)
        s.l = nn.TransformerEncoderLayer(d, 2, 32, 0.1, batch_first=True)
        s.n = nn.LayerNorm(d)
        s.L = L

    def feats(s, seqs):
        x = s.i(torch.LongTensor(seqs)) * s.i.embedding_dim**0.5
        pos = np.tile(np.array(range(seqs.shape[1])), [seqs.shape[0], 1])
        x = x + s.p(torch.LongTensor(pos))
        m = torch.BoolTensor(seqs == 0)
        x = x * ~m.unsqueeze(-1)
        L = x.shape[1]
        am = ~torch.tril(torch.ones((L, L), dtype=torch.bool))
        return s.n(s.l(x, src_mask=am))

    def forward(s, seq, pos, neg):
        f = s.feats(seq)
        return (f * s.i(torch.LongTensor(pos))).sum(-1), (f * s.i(torch.LongTensor(neg))).sum(-1)


def sample(user_hist, L, n):
    seq = np.zeros([L], np.int32)
    pos = np.zeros([L], np.int32)
    neg = np.zeros([L], np.int32)
    nxt = user_hist[-1]
    idx = L - 1
    ts = set(user_hist)
    for it in reversed(user_hist[:-1]):
        seq[idx] = it
        pos[idx] = nxt
        if nxt != 0:
            t = np.random.randint(1, n + 1)
            while t in ts:
                t = np.random.randint(1, n + 1)
            neg[idx] = t
        nxt = it
        idx -= 1
        if idx == -1:
            break
    return seq, pos, neg


def ndcg(m, hist, n):
    r = 0.0
    for h in hist:
        seq = np.zeros([12], np.int32)
        k = h[:-1][-12:]
        seq[-len(k) :] = k
        cand = [h[-1]] + [random.randint(1, n) for _ in range(9)]
        sc = -(m.feats(seq[None])[:, -1] @ m.i(torch.LongTensor(cand)).T)[0]
        rank = sc.argsort().argsort()[0].item()
        if rank < 5:
            r += 1 / np.log2(rank + 2)
    return r / len(hist)


def program(compile_):
    m = SAS()
    opt = torch.optim.Adam(m.parameters(), 1e-3, betas=(0.9, 0.98))
    bce = nn.BCEWithLogitsLoss()

    def step(hist):
        m.train()
        seq, pos, neg = map(np.array, zip(*[sample(h, 12, 60) for h in hist]))
        p, n = m(seq, pos, neg)
        idx = np.where(pos != 0)
        l = bce(p[idx], torch.ones_like(p)[idx]) + bce(n[idx], torch.zeros_like(n)[idx])
        for q in m.i.parameters():
            l += 1e-4 * torch.sum(q**2)
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    step = compile_(step)
    ev = compile_(lambda h: ndcg(m, h, 60))

    def f(i):
        h = [[random.randint(1, 60) for _ in range(random.randint(4, 14))] for _ in range(4 + i % 3)]
        r = [step(h)]
        if i % 4 == 3:
            m.eval()
            with torch.no_grad():
                r.append(ev(h[:2]))
        return r

    return f
