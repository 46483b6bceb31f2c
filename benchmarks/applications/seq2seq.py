"""Translation with attention: packed sequences, teacher forcing by Python's random numbers, greedy decoding."""

import random

import torch
import torch.nn as nn


class Enc(nn.Module):
    def __init__(s, v, h):
        super().__init__()
        s.e = nn.Embedding(v, h, padding_idx=0)
        s.g = nn.GRU(h, h, bidirectional=True, batch_first=True)
        s.f = nn.Linear(2 * h, h)

    def forward(s, x, l):
        p = nn.utils.rnn.pack_padded_sequence(s.e(x), l, batch_first=True, enforce_sorted=False)
        o, h = s.g(p)
        o, _ = nn.utils.rnn.pad_packed_sequence(o, batch_first=True)
        return o, torch.tanh(s.f(torch.cat([h[-2], h[-1]], 1)))


class Att(nn.Module):
    def __init__(s, h):
        super().__init__()
        s.w = nn.Linear(3 * h, h)
        s.v = nn.Linear(h, 1, bias=False)

    def forward(s, h, o, mask):
        n = o.size(1)
        e = s.v(torch.tanh(s.w(torch.cat([h.unsqueeze(1).repeat(1, n, 1), o], 2)))).squeeze(2)
        return e.masked_fill(mask == 0, -1e10).softmax(1)


class Dec(nn.Module):
    def __init__(s, v, h):
        super().__init__()
        s.e = nn.Embedding(v, h)
        s.a = Att(h)
        s.c = nn.GRUCell(3 * h, h)
        s.o = nn.Linear(4 * h, v)

    def forward(s, y, h, o, mask):
        a = s.a(h, o, mask).unsqueeze(1)
        w = torch.bmm(a, o).squeeze(1)
        e = s.e(y)
        h = s.c(torch.cat([e, w], 1), h)
        return s.o(torch.cat([h, w, e], 1)), h


class S2S(nn.Module):
    def __init__(s, v=30, h=24):
        super().__init__()
        s.enc = Enc(v, h)
        s.dec = Dec(v, h)
        s.v = v

    def forward(s, x, l, y, tf=0.5):
        o, h = s.enc(x, l)
        mask = x[:, : o.size(1)] != 0
        outs = torch.zeros(y.size(1), x.size(0), s.v)
        inp = y[:, 0]
        for t in range(1, y.size(1)):
            p, h = s.dec(inp, h, o, mask)
            outs[t] = p
            inp = y[:, t] if random.random() < tf else p.argmax(1)
        return outs

    @torch.no_grad()
    def greedy(s, x, l, eos=2, mx=15):
        o, h = s.enc(x, l)
        mask = x[:, : o.size(1)] != 0
        inp = torch.ones(x.size(0), dtype=torch.long)
        done = torch.zeros(x.size(0), dtype=torch.bool)
        out = []
        for _ in range(mx):
            p, h = s.dec(inp, h, o, mask)
            inp = p.argmax(1)
            out.append(inp)
            done |= inp == eos
            if done.all():
                break
        return torch.stack(out, 1)


def program(compile_):
    m = S2S()
    opt = torch.optim.Adam(m.parameters(), 1e-3)
    crit = nn.CrossEntropyLoss(ignore_index=0)
    sched = torch.optim.lr_scheduler.StepLR(opt, 5, 0.5)

    def train(x, l, y):
        m.train()
        opt.zero_grad()
        o = m(x, l, y)
        loss = crit(o[1:].reshape(-1, o.size(-1)), y.t()[1:].reshape(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return loss.item()

    train = compile_(train)
    greedy = compile_(m.greedy)

    def f(i):
        b = 3 + i % 3
        l = torch.randint(2, 7 + i % 4, (b,))
        x = torch.zeros(b, int(l.max()), dtype=torch.long)
        for j, n in enumerate(l.tolist()):
            x[j, :n] = torch.randint(3, 30, (n,))
        y = torch.randint(3, 30, (b, 4 + i % 5))
        r = [train(x, l, y)]
        if i % 2:
            m.eval()
            r.append(greedy(x, l))
        sched.step()
        return r

    return f
