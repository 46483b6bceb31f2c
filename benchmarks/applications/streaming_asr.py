"""Speech recognition in chunks: causal convolutions with caches, an LSTM's state, a greedy transducer, and text that grows."""

import torch
import torch.nn as nn
import torch.nn.functional as F


class Encoder(nn.Module):
    def __init__(s, d=32):
        super().__init__()
        s.c1 = nn.Conv1d(20, d, 3)
        s.c2 = nn.Conv1d(d, d, 3, stride=2)
        s.r = nn.LSTM(d, d, batch_first=True)
        s.n = nn.LayerNorm(d)

    def forward(s, x, cache):
        x = torch.cat([cache["x"], x], 2)
        cache["x"] = x[:, :, -2:]
        h = torch.cat([cache["h"], F.relu(s.c1(x))], 2)
        keep = h.size(2) - 2 * ((h.size(2) - 1) // 2)
        cache["h"] = h[:, :, -keep:]
        y, cache["s"] = s.r(F.relu(s.c2(h)).transpose(1, 2), cache["s"])
        return s.n(y)

    def start(s, d=32):
        return {"x": torch.zeros(1, 20, 2), "h": torch.zeros(1, d, 1), "s": (torch.zeros(1, 1, d), torch.zeros(1, 1, d))}


class Transducer(nn.Module):
    def __init__(s, v=12, d=32):
        super().__init__()
        s.enc = Encoder(d)
        s.emb = nn.Embedding(v, d)
        s.pred = nn.GRUCell(d, d)
        s.join = nn.Linear(2 * d, v)

    def chunk(s, x, state, most=3):
        with torch.no_grad():
            for f in s.enc(x, state["cache"])[0]:
                for _ in range(most):
                    lp = s.join(torch.cat([f, state["p"][0]]).tanh()).log_softmax(0)
                    k = int(lp.argmax())
                    if k == 0:
                        break
                    state["words"].append(k)
                    state["score"] += lp[k].item()
                    state["p"] = s.pred(s.emb(torch.tensor([k])), state["p"])
        return len(state["words"])

    def begin(s, d=32):
        return {"cache": s.enc.start(d), "p": torch.zeros(1, d), "words": [], "score": 0.0}


def program(compile_):
    m = Transducer().eval()
    with torch.no_grad():
        m.join.bias[0] += 0.3

    def listen(sound, sizes):
        state = m.begin()
        at, partial = 0, []
        for n in sizes:
            if at >= sound.size(2):
                break
            m.chunk(sound[:, :, at : at + n], state)
            partial.append("".join(chr(96 + k) for k in state["words"][-4:]))
            at += n
        return state["words"], state["score"], sum(map(len, partial))

    listen = compile_(listen)
    return lambda i: list(listen(torch.randn(1, 20, 24 + 4 * (i % 5)), [6 + (i + j) % 4 for j in range(9)]))
