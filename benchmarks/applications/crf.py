"""A tagger: words to numbers, an LSTM, a conditional random field, Viterbi's paths, spans and F1."""

import random

import torch
import torch.nn as nn


class CRF(nn.Module):
    def __init__(s, k):
        super().__init__()
        s.t = nn.Parameter(torch.randn(k, k) * 0.1)
        s.s = nn.Parameter(torch.randn(k))
        s.e = nn.Parameter(torch.randn(k))
        s.k = k

    def score(s, em, tags, mask):
        b, n = tags.shape
        sc = s.s[tags[:, 0]] + em[torch.arange(b), 0, tags[:, 0]]
        for i in range(1, n):
            sc = sc + (s.t[tags[:, i - 1], tags[:, i]] + em[torch.arange(b), i, tags[:, i]]) * mask[:, i]
        last = mask.long().sum(1) - 1
        return sc + s.e[tags[torch.arange(b), last]]

    def norm(s, em, mask):
        sc = s.s + em[:, 0]
        for i in range(1, em.size(1)):
            nx = torch.logsumexp(sc.unsqueeze(2) + s.t + em[:, i].unsqueeze(1), 1)
            sc = torch.where(mask[:, i].unsqueeze(1).bool(), nx, sc)
        return torch.logsumexp(sc + s.e, 1)

    @torch.no_grad()
    def viterbi(s, em, mask):
        out = []
        for e, m in zip(em, mask):
            n = int(m.sum())
            sc = s.s + e[0]
            bp = []
            for i in range(1, n):
                v = sc.unsqueeze(1) + s.t
                best, idx = v.max(0)
                sc = best + e[i]
                bp.append(idx)
            tag = int((sc + s.e).argmax())
            path = [tag]
            for idx in reversed(bp):
                tag = int(idx[tag])
                path.append(tag)
            out.append(path[::-1])
        return out


class Tagger(nn.Module):
    def __init__(s):
        super().__init__()
        s.e = nn.Embedding(100, 16, padding_idx=0)
        s.l = nn.LSTM(16, 16, bidirectional=True, batch_first=True)
        s.o = nn.Linear(32, 5)
        s.c = CRF(5)

    def em(s, x):
        return s.o(s.l(s.e(x))[0])


class Vocab:
    def __init__(s):
        s.w = {"<pad>": 0, "<unk>": 1}

    def __call__(s, w):
        return s.w.setdefault(w.lower(), len(s.w)) if len(s.w) < 100 else s.w.get(w.lower(), 1)


def spans(path):
    r = []
    st = None
    for i, t in enumerate(path + [0]):
        if t == 1:
            if st is not None:
                r.append((st, i))
            st = i
        elif t != 2 and st is not None:
            r.append((st, i))
            st = None
    return r


def program(compile_):
    m = Tagger()
    v = Vocab()
    opt = torch.optim.Adam(m.parameters(), 0.01)

    def batch(sents, tags=None):
        ids = [[v(w) for w in s.split()] for s in sents]
        n = max(map(len, ids))
        x = torch.tensor([i + [0] * (n - len(i)) for i in ids])
        mask = torch.tensor([[1.0] * len(i) + [0.0] * (n - len(i)) for i in ids])
        y = None if tags is None else torch.tensor([t + [0] * (n - len(t)) for t in tags])
        return x, mask, y

    def train(sents, tags):
        x, mask, y = batch(sents, tags)
        em = m.em(x)
        l = (m.c.norm(em, mask) - m.c.score(em, y, mask)).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        return l.item()

    @torch.no_grad()
    def f1(sents, tags):
        x, mask, _ = batch(sents)
        p = m.c.viterbi(m.em(x), mask)
        tp = sum(len(set(spans(a)) & set(spans(b))) for a, b in zip(p, tags))
        return 2 * tp / max(1, sum(len(spans(a)) + len(spans(b)) for a, b in zip(p, tags)))

    train = compile_(train)
    f1 = compile_(f1)
    W = "the quick brown fox jumps over lazy dog in Paris with Anna and Bob near river bank".split()

    def f(i):
        s = [" ".join(random.choice(W) for _ in range(random.randint(3, 7))) for _ in range(2 + i % 3)]
        t = [[random.randrange(5) for _ in x.split()] for x in s]
        return [train(s, t), f1(s, t)]

    return f
