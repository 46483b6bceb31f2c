"""A language model by truncated backpropagation: hidden states handed on, learning rate by validation."""

import time

import torch
import torch.nn as nn


class LM(nn.Module):
    def __init__(s, v=40, d=24, n=2):
        super().__init__()
        s.d = nn.Dropout(0.2)
        s.e = nn.Embedding(v, d)
        s.r = nn.LSTM(d, d, n, dropout=0.2)
        s.o = nn.Linear(d, v)
        s.o.weight = s.e.weight
        s.n, s.h = n, d

    def forward(s, x, h):
        o, h = s.r(s.d(s.e(x)), h)
        return s.o(s.d(o)).view(-1, 40).log_softmax(1), h

    def init(s, b):
        w = next(s.parameters())
        return (w.new_zeros(s.n, b, s.h), w.new_zeros(s.n, b, s.h))


def repackage(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(repackage(v) for v in h)


def batchify(d, b):
    n = d.size(0) // b
    return d.narrow(0, 0, n * b).view(b, -1).t().contiguous()


def get(src, i, L):
    n = min(L, len(src) - 1 - i)
    return src[i : i + n], src[i + 1 : i + 1 + n].view(-1)


def program(compile_):
    m = LM()
    st = {"lr": 5.0, "best": None, "log": []}

    def train(data, L):
        m.train()
        tot = 0.0
        h = m.init(4)
        t0 = time.time()
        for b, i in enumerate(range(0, data.size(0) - 1, L)):
            x, y = get(data, i, L)
            m.zero_grad()
            h = repackage(h)
            o, h = m(x, h)
            l = nn.functional.nll_loss(o, y)
            l.backward()
            torch.nn.utils.clip_grad_norm_(m.parameters(), 0.25)
            for p in m.parameters():
                p.data.add_(p.grad, alpha=-st["lr"])
            tot += l.item()
            if b % 2 == 0:
                st["log"].append(round(tot / (b + 1), 2))
                (time.time() - t0)
        return tot

    def evaluate(data, L):
        m.eval()
        tot = 0.0
        h = m.init(4)
        with torch.no_grad():
            for i in range(0, data.size(0) - 1, L):
                x, y = get(data, i, L)
                o, h = m(x, h)
                h = repackage(h)
                tot += len(x) * nn.functional.nll_loss(o, y).item()
        v = tot / (len(data) - 1)
        if st["best"] is None or v < st["best"]:
            st["best"] = v
        else:
            st["lr"] /= 4.0
        return v

    train = compile_(train)
    evaluate = compile_(evaluate)
    return lambda i: [
        train(batchify(torch.randint(0, 40, (120 + 8 * (i % 5),)), 4), 7 + i % 3),
        evaluate(batchify(torch.randint(0, 40, (60,)), 4), 7),
        st["lr"],
    ]
