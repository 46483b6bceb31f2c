"""Speech recognition: packed recurrence, CTC, masking by random numbers, decoding to texts and word errors."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class ASR(nn.Module):
    def __init__(s):
        super().__init__()
        s.c = nn.Conv1d(20, 48, 3, 2, 1)
        s.bn = nn.BatchNorm1d(48)
        s.r = nn.LSTM(48, 32, 2, bidirectional=True, dropout=0.1)
        s.o = nn.Linear(64, 28)

    def forward(s, x, l):
        h = F.relu(s.bn(s.c(x.transpose(1, 2)))).permute(2, 0, 1)
        l = (l + 1) // 2
        p = nn.utils.rnn.pack_padded_sequence(h, l.cpu(), enforce_sorted=False)
        o, _ = s.r(p)
        o, ol = nn.utils.rnn.pad_packed_sequence(o)
        return s.o(o).log_softmax(-1), ol


def decode(lp, l):
    res = []
    for b in range(lp.size(1)):
        ids = lp[: l[b], b].argmax(-1)
        ids = torch.unique_consecutive(ids)
        res.append("".join(chr(96 + int(k)) for k in ids if k != 0))
    return res


def spec_augment(x):
    x = x.clone()
    n = int(torch.randint(0, 4, ()))
    f0 = int(torch.randint(0, 16, ()))
    x[:, :, f0 : f0 + n] = 0
    return x


def wer(a, b):
    d = list(range(len(b) + 1))
    for i, x in enumerate(a):
        p, d[0] = d[0], i + 1
        for j, y in enumerate(b):
            p, d[j + 1] = d[j + 1], min(d[j + 1] + 1, d[j] + 1, p + (x != y))
    return d[-1]


def program(compile_):
    m = ASR()
    opt = torch.optim.SGD(m.parameters(), 0.01, momentum=0.9, nesterov=True)
    ctc = nn.CTCLoss(zero_infinity=True)

    def step(x, l, y, yl):
        m.train()
        lp, ol = m(spec_augment(x), l)
        loss = ctc(lp, y, ol, yl)
        opt.zero_grad()
        loss.backward()
        g = nn.utils.clip_grad_norm_(m.parameters(), 5.0)
        opt.step()
        return loss.item(), g.item()

    step = compile_(step)

    @compile_
    def evaluate(x, l, ref):
        m.eval()
        with torch.no_grad():
            lp, ol = m(x, l)
        hyp = decode(lp, ol)
        return sum(wer(h, r) for h, r in zip(hyp, ref)) / max(1, sum(map(len, ref)))

    def f(i):
        b = 2 + i % 3
        l = torch.randint(20, 40 + i, (b,))
        x = torch.randn(b, int(l.max()), 20)
        yl = torch.randint(2, 6, (b,))
        y = torch.randint(1, 28, (int(yl.sum()),))
        r = list(step(x, l, y, yl))
        if i % 3 == 2:
            r.append(evaluate(x, l, ["abc"] * b))
        return r

    return f
