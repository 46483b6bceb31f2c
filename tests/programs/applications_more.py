"""Further applications: text, text, teachers and students, streams, losses of several parts, physics, pipelines.

Each program yields what has to be eager's, call after call (`training.program`).
"""

from __future__ import annotations

import copy
import enum
import math
import re
import typing

import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.training import Mlp, program

SIZES = (3, 5, 2, 7, 4, 1, 6)


@program
def ner_windows(wrap):

    class Tok:
        def __init__(self):
            self.v = {"[pad]": 0, "[unk]": 1}

        def __call__(self, texts):
            ids = [[self.v.get(t, 1) for t in re.findall("\\w+", x.lower())] for x in texts]
            L = max(map(len, ids))
            return (torch.tensor([i + [0] * (L - len(i)) for i in ids]), torch.tensor([[1] * len(i) + [0] * (L - len(i)) for i in ids]))

    tk = Tok()
    [tk.v.setdefault(t, len(tk.v)) for t in "the cat sat on a mat and dog".split()]
    torch.manual_seed(0)
    e = nn.Embedding(16, 6)
    enc = nn.TransformerEncoderLayer(6, 2, 12, batch_first=True, dropout=0.0)

    @wrap
    def encode(texts, norm=True):
        ids, mask = tk(texts)
        h = enc(e(ids), src_key_padding_mask=mask == 0)
        p = (h * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        return F.normalize(p) if norm else p

    for t in (["the cat", "a dog sat on the mat"], ["cat"], ["The cat sat.", "dog!", "on a mat"], ["a b c d e f g", "the"]):
        yield (encode(t).detach(), encode(t, False).detach())


@program
def masked_lm(wrap):

    class Cfg(typing.NamedTuple):
        vocab: int = 17
        mask: int = 2
        p: float = 0.3

    torch.manual_seed(0)
    cfg = Cfg()
    e = nn.Embedding(17, 8)
    o = nn.Linear(8, 17)

    @wrap
    def step(ids, special):
        lab = ids.clone()
        pm = torch.full(lab.shape, cfg.p)
        pm.masked_fill_(special, 0.0)
        mi = torch.bernoulli(pm).bool()
        lab[~mi] = -100
        r = torch.bernoulli(torch.full(lab.shape, 0.8)).bool() & mi
        x = ids.clone()
        x[r] = cfg.mask
        rr = torch.bernoulli(torch.full(lab.shape, 0.5)).bool() & mi & ~r
        rw = torch.randint(cfg.vocab, lab.shape)
        x[rr] = rw[rr]
        if not mi.any():
            return torch.zeros((), requires_grad=True) * e.weight.sum()
        return F.cross_entropy(o(e(x)).flatten(0, 1), lab.flatten())

    for n in SIZES:
        l = step(torch.randint(3, 17, (2, n)), torch.zeros(2, n, dtype=torch.bool))
        e.zero_grad()
        l.backward()
        yield (l.detach(), e.weight.grad.clone())


@program
def cellular(wrap):
    k = torch.ones(1, 1, 3, 3)
    k[0, 0, 1, 1] = 0

    @wrap
    def life(x, n):
        for _ in range(n):
            c = F.conv2d(F.pad(x[None, None], (1, 1, 1, 1), mode="circular"), k)[0, 0]
            x = ((c == 3) | (x == 1) & (c == 2)).float()
            if x.sum() == 0:
                break
        return x

    torch.manual_seed(0)
    for n in SIZES:
        yield life((torch.rand(n + 3, n + 4) > 0.5).float(), 5)


@program
def sudoku_like(wrap):

    class Op(enum.Enum):
        ADD = 1
        MUL = 2
        NEG = 3

    @wrap
    def run(prog, stack):
        for op, *a in prog:
            match op:
                case Op.ADD:
                    b = stack.pop()
                    stack.append(stack.pop() + b)
                case Op.MUL if a:
                    stack.append(stack.pop() * a[0])
                case Op.MUL:
                    b = stack.pop()
                    stack.append(stack.pop() * b)
                case Op.NEG:
                    stack.append(-stack.pop())
        return stack[-1]

    torch.manual_seed(0)
    for n in SIZES[:5]:
        yield (run([(Op.MUL, float(n)), (Op.NEG,)], [torch.randn(n)]), run([(Op.ADD,), (Op.MUL, 2)], [torch.randn(n), torch.ones(n)]))


@program
def lazy_modules(wrap):
    torch.manual_seed(0)
    m = nn.Sequential(nn.LazyLinear(5), nn.ReLU(), nn.LazyBatchNorm1d(), nn.LazyLinear(2))
    f = wrap(m)
    for n in SIZES:
        yield f(torch.randn(n + 1, 4)).detach()


@program
def weight_norms(wrap):
    torch.manual_seed(0)
    m = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(4, 5)),
        nn.utils.parametrizations.spectral_norm(nn.Linear(5, 5)),
        nn.utils.parametrizations.orthogonal(nn.Linear(5, 5)),
    )
    f = wrap(m)
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for k, n in enumerate(SIZES):
        m.train(k % 3 != 2)
        l = f(torch.randn(n, 4)).pow(2).sum()
        opt.zero_grad()
        l.backward()
        opt.step()
        yield (l.detach(), [p.detach().clone() for p in m.parameters()])


@program
def mean_teacher(wrap):
    torch.manual_seed(0)
    s = Mlp(p=0.2, bn=True)
    t = copy.deepcopy(s)
    [p.requires_grad_(False) for p in t.parameters()]
    opt = torch.optim.SGD(s.parameters(), 0.1)
    it = 0

    @wrap
    def step(x, it):
        with torch.no_grad():
            tgt = t(x).softmax(-1)
        l = F.mse_loss(s(x + 0.1 * torch.randn_like(x)).softmax(-1), tgt) * min(1.0, it / 4)
        opt.zero_grad()
        l.backward()
        opt.step()
        a = min(1 - 1 / (it + 1), 0.99)
        with torch.no_grad():
            for p, q in zip(t.parameters(), s.parameters()):
                p.mul_(a).add_(q, alpha=1 - a)
            for p, q in zip(t.buffers(), s.buffers()):
                p.copy_(q)
        return l.detach()

    for it, n in enumerate(SIZES):
        yield (step(torch.randn(n + 1, 4), it), [p.clone() for p in t.parameters()])


@program
def deepspeech_stream(wrap):

    class S(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.Conv1d(3, 4, 5)
            self.g = nn.GRU(4, 4, batch_first=True)
            self.buf = None
            self.h = None

        def reset(self):
            self.buf = None
            self.h = None

        def forward(self, x):
            if self.buf is not None:
                x = torch.cat([self.buf, x], 2)
            if x.size(2) < 5:
                self.buf = x
                return x.new_zeros(x.size(0), 0, 4)
            self.buf = x[:, :, -4:]
            y, self.h = self.g(self.c(x).transpose(1, 2), self.h)
            return y

    torch.manual_seed(0)
    m = S()
    f = wrap(m)
    with torch.no_grad():
        for r in range(2):
            m.reset()
            for n in (2, 4, 1, 6, 8, 1, 1, 3):
                yield f(torch.randn(1, 3, n))


@program
def bucket_sampler(wrap):

    class Ds:
        def __init__(self):
            self.x = [torch.arange(float(n)) for n in (3, 1, 4, 1, 5, 9, 2, 6)]

        def __len__(self):
            return len(self.x)

        def __getitem__(self, i):
            return (self.x[i], i % 2)

    ds = Ds()

    @wrap
    def coll(b):
        x, y = zip(*b)
        L = torch.tensor([len(i) for i in x])
        return (nn.utils.rnn.pad_sequence(x, batch_first=True, padding_value=-1), L, torch.tensor(y))

    for k in range(2):
        yield from torch.utils.data.DataLoader(ds, batch_size=3, collate_fn=coll, sampler=sorted(range(8), key=lambda i: len(ds.x[i])))


@program
def two_towers(wrap):

    class A(nn.Module):
        def __init__(self):
            super().__init__()
            self.t = nn.Parameter(torch.tensor(math.log(1 / 0.07)))
            self.a = Mlp(4, 8, 6)
            self.b = Mlp(5, 8, 6)
            self.q = []

        def forward(self, x, y):
            u, v = (F.normalize(self.a(x), dim=-1), F.normalize(self.b(y), dim=-1))
            sc = self.t.exp().clamp(max=100)
            lg = sc * u @ v.T
            n = len(x)
            lab = torch.arange(n)
            l = (F.cross_entropy(lg, lab) + F.cross_entropy(lg.T, lab)) / 2
            if self.q:
                l = l + (u @ torch.cat(self.q).T).logsumexp(1).mean() * 0.1
            self.q.append(v.detach())
            self.q = self.q[-2:]
            return (l, (lg.argmax(1) == lab).float().mean())

    torch.manual_seed(0)
    m = A()
    f = wrap(m)
    for n in SIZES:
        l, a = f(torch.randn(n, 4), torch.randn(n, 5))
        m.zero_grad()
        l.backward()
        yield (l.detach(), a, [p.grad.clone() for p in m.parameters()])


@program
def sparse_moe_cap(wrap):

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.g = nn.Linear(4, 3)
            self.e = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.register_buffer("load", torch.zeros(3))

        def forward(self, x):
            p = self.g(x).softmax(-1)
            w_, i = p.topk(2)
            cap = max(1, int(1.25 * len(x) * 2 / 3))
            out = torch.zeros_like(x)
            for k, e in enumerate(self.e):
                t, sl = (i == k).nonzero(as_tuple=True)
                t, sl = (t[:cap], sl[:cap])
                if len(t) == 0:
                    continue
                out.index_add_(0, t, e(x[t]) * w_[t, sl, None])
                self.load[k] += len(t)
            return (out, (p.mean(0) * torch.bincount(i[:, 0], minlength=3) / len(x)).sum() * 3)

    torch.manual_seed(0)
    m = M()
    f = wrap(m)
    for n in SIZES:
        o, a = f(torch.randn(n, 4))
        m.zero_grad()
        (o.sum() + a).backward()
        yield (o.detach(), a.detach(), m.load.clone(), [p.grad for p in m.parameters()])


@program
def callbacks_trainer(wrap):

    class CB:
        def on_step(self, tr): ...

    class Log(CB):
        def __init__(self):
            self.l = []

        def on_step(self, tr):
            self.l.append(float(tr.loss))

    class Stop(CB):
        def __init__(self):
            self.best = 1000000000.0
            self.bad = 0

        def on_step(self, tr):
            if tr.loss < self.best:
                self.best = tr.loss.item()
                self.bad = 0
            else:
                self.bad += 1
                tr.stop = self.bad > 3

    class Trainer:
        def __init__(self, m):
            self.m = m
            self.opt = torch.optim.SGD(m.parameters(), 0.1)
            self.cb = [Log(), Stop()]
            self.step = 0
            self.stop = False
            self.loss = None

        def fit_batch(self, x):
            self.opt.zero_grad()
            l = self.m(x).pow(2).mean()
            l.backward()
            self.opt.step()
            self.loss = l.detach()
            self.step += 1
            for c in self.cb:
                c.on_step(self)
            return self.stop

    torch.manual_seed(0)
    t = Trainer(Mlp())
    fb = wrap(t.fit_batch)
    for n in SIZES * 2:
        st = fb(torch.randn(n, 4))
        yield (t.loss, torch.tensor(t.step), torch.tensor(t.cb[0].l), torch.tensor(st))


@program
def jac_phys(wrap):
    torch.manual_seed(0)
    m = Mlp(4, 8, 1)

    def lag(q, v):
        return m(torch.cat([q, v])[None]).squeeze()

    @wrap
    def acc(q, v):
        H = torch.func.hessian(lag, 1)(q, v)
        Gq = torch.func.grad(lag, 0)(q, v)
        J = torch.func.jacrev(torch.func.grad(lag, 1), 0)(q, v)
        return torch.linalg.solve(H + torch.eye(2) * 3, Gq - J @ v)

    torch.manual_seed(0)
    for n in range(4):
        yield acc(torch.randn(2), torch.randn(2)).detach()


@program
def batched_acc(wrap):
    torch.manual_seed(0)
    m = Mlp(4, 8, 1)

    def u(x, p):
        return torch.func.functional_call(m, p, (x[None],)).squeeze()

    @wrap
    def lap(x):
        p = dict(m.named_parameters())
        return torch.vmap(lambda z: torch.func.hessian(u)(z, p).diagonal().sum())(x)

    for n in SIZES:
        l = lap(torch.randn(n, 4)).pow(2).mean()
        m.zero_grad()
        l.backward()
        yield (l.detach(), [p.grad for p in m.parameters()])


@program
def generator_pipeline(wrap):
    torch.manual_seed(0)
    m = nn.Linear(4, 2)

    def chunks(x, n):
        for i in range(0, len(x), n):
            yield x[i : i + n]

    @wrap
    def run(x, n, keep=None):
        out = [m(c) for c in chunks(x, n)]
        tot = torch.cat(out)
        if keep:
            tot = tot[list(keep)]
        return (tot, sum(len(o) for o in out), max(out, key=len).shape)

    torch.manual_seed(0)
    for n in SIZES:
        a, b, c = run(torch.randn(n * 2, 4), 3, {0, 1} if n % 2 else None)
        yield (a.detach(), torch.tensor(b), torch.tensor(list(c)))


@program
def string_keyed(wrap):

    class Multi(nn.Module):
        def __init__(self):
            super().__init__()
            self.h = nn.ModuleDict({"cls": nn.Linear(4, 3), "reg": nn.Linear(4, 1)})
            self.w = {"cls": 1.0, "reg": 0.5}
            self.stats = {}

        def forward(self, b):
            tot = 0.0
            logs = {}
            for k, t in b["targets"].items():
                o = self.h[k](b["x"])
                l = F.cross_entropy(o, t) if k == "cls" else F.mse_loss(o.squeeze(-1), t)
                logs[f"loss/{k}"] = l.detach()
                tot = tot + self.w[k] * l
                self.stats[k] = self.stats.get(k, 0) + 1
            return (tot, logs)

    torch.manual_seed(0)
    m = Multi()
    f = wrap(m)
    for k, n in enumerate(SIZES):
        t = {}
        if k % 3 != 1:
            t["cls"] = torch.zeros(n, dtype=torch.long)
        if k % 3 != 2:
            t["reg"] = torch.randn(n)
        m.w["reg"] = 0.5 + k
        l, lg = f({"x": torch.randn(n, 4), "targets": t})
        m.zero_grad()
        l.backward()
        yield (l.detach(), [lg[k] for k in sorted(lg)], [p.grad for p in m.parameters()], torch.tensor(sorted(m.stats.values())))
