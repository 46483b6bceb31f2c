"""Modules that change, optimizers of all kinds, distances, metrics.

Each program yields what has to be eager's, call after call (`training.program`).
"""

from __future__ import annotations

import collections
import copy

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.programs.training import Mlp, program

SIZES = (3, 5, 2, 7, 4, 1, 6)


@program
def freeze_unfreeze(wrap):
    torch.manual_seed(0)
    m = nn.Sequential(Mlp(4, 8, 8), Mlp(8, 8, 3))
    f = wrap(m)
    for k, n in enumerate(SIZES):
        for p in m[0].parameters():
            p.requires_grad_(k % 2 == 1)
        m.train(k != 3)
        o = f(torch.randn(n, 4))
        m.zero_grad(set_to_none=True)
        o.sum().backward()
        yield (o.detach(), [p.grad for p in m.parameters()])


@program
def surgery(wrap):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    f = wrap(m)
    for k, n in enumerate(SIZES):
        if k == 2:
            m[1] = nn.GELU()
        if k == 3:
            m.append(nn.Softmax(-1))
        if k == 4:
            m[2] = nn.Linear(8, 5)
        if k == 5:
            m[0].weight = nn.Parameter(torch.ones(8, 4))
            del m[3]
        if k == 6:
            m[0].register_parameter("bias", None)
        yield f(torch.randn(n, 4)).detach()


@program
def state_dicts(wrap):
    torch.manual_seed(0)
    m = Mlp(bn=True)
    f = wrap(m)
    sd = copy.deepcopy(m.state_dict())
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    od = copy.deepcopy(opt.state_dict())
    for k, n in enumerate(SIZES):
        n = n + 1
        l = f(torch.randn(n, 4)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        if k == 2:
            m.load_state_dict(sd)
            opt.load_state_dict(od)
        if k == 4:
            m.load_state_dict({k: v * 0.5 if v.is_floating_point() else v for k, v in sd.items()}, assign=True)
            opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
        yield (l.detach(), [v.clone() for v in m.state_dict().values()])


@program
def qat(wrap):

    class FQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("lo", torch.tensor(float("inf")))
            self.register_buffer("hi", torch.tensor(-float("inf")))
            self.on = True
            self.enabled = False

        def forward(self, x):
            if self.on:
                self.lo.copy_(torch.minimum(self.lo, x.detach().min()))
                self.hi = torch.maximum(self.hi, x.detach().max())
            if not self.enabled:
                return x
            sc = ((self.hi - self.lo) / 255).clamp(min=1e-08)
            zp = (-self.lo / sc).round().clamp(0, 255)
            return torch.fake_quantize_per_tensor_affine(x, sc, zp.int(), 0, 255)

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 6)
            self.q = FQ()
            self.b = nn.Linear(6, 2)
            self.q2 = FQ()

        def forward(self, x):
            return self.q2(self.b(self.q(F.relu(self.a(x)))))

    torch.manual_seed(0)
    m = M()
    f = wrap(m)
    for k, n in enumerate(SIZES):
        for q in (m.q, m.q2):
            q.enabled = k >= 2
            q.on = k < 5
        o = f(torch.randn(n, 4))
        m.zero_grad()
        o.pow(2).sum().backward()
        yield (o.detach(), m.q.lo.clone(), m.q.hi.clone(), m.a.weight.grad.clone())


@program
def swa(wrap):
    torch.manual_seed(0)
    m = Mlp(bn=True)
    f = wrap(m)
    sw = torch.optim.swa_utils.AveragedModel(m)
    fs = wrap(sw)
    opt = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    sch = torch.optim.swa_utils.SWALR(opt, 0.05, anneal_epochs=3)
    for n in SIZES:
        n += 1
        l = f(torch.randn(n, 4)).pow(2).mean()
        opt.zero_grad()
        l.backward()
        opt.step()
        sw.update_parameters(m)
        sch.step()
        sw.eval()
        yield (l.detach(), fs(torch.randn(n, 4)).detach())


@program
def lion(wrap):

    class Lion(torch.optim.Optimizer):
        def __init__(self, p, lr=0.01, b=(0.9, 0.99), wd=0.1):
            super().__init__(p, dict(lr=lr, betas=b, wd=wd))

        @torch.no_grad()
        def step(self, closure=None):
            for g in self.param_groups:
                for p in g["params"]:
                    if p.grad is None:
                        continue
                    st = self.state[p]
                    if not st:
                        st["m"] = torch.zeros_like(p)
                        st["t"] = 0
                    st["t"] += 1
                    b1, b2 = g["betas"]
                    p.mul_(1 - g["lr"] * g["wd"])
                    p.add_((st["m"] * b1 + p.grad * (1 - b1)).sign_(), alpha=-g["lr"])
                    st["m"].mul_(b2).add_(p.grad, alpha=1 - b2)

    torch.manual_seed(0)
    m = Mlp()
    opt = Lion(m.parameters())
    sch = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(opt, 3)
    st = wrap(opt.step)
    for k, n in enumerate(SIZES):
        opt.zero_grad()
        m(torch.randn(n, 4)).pow(2).sum().backward()
        if k == 3:
            m.a.bias.grad = None
        st()
        sch.step()
        yield ([p.detach().clone() for p in m.parameters()], torch.tensor([s["t"] for s in opt.state.values()]))


@program
def shampoo(wrap):

    class Sh(torch.optim.Optimizer):
        def __init__(self, p):
            super().__init__(p, dict(lr=0.1))

        @torch.no_grad()
        def step(self):
            for g in self.param_groups:
                for p in g["params"]:
                    st = self.state[p]
                    st.setdefault("k", 0)
                    st["k"] += 1
                    G_ = p.grad
                    if p.dim() == 2:
                        for i in range(2):
                            key = f"P{i}"
                            st[key] = st.get(key, torch.eye(p.size(i)) * 0.01) + (G_ @ G_.T if i == 0 else G_.T @ G_)
                            if st["k"] % 2 == 1:
                                e, v = torch.linalg.eigh(st[key])
                                st[f"I{i}"] = v * e.clamp(min=1e-06).pow(-0.25) @ v.T
                        G_ = st["I0"] @ G_ @ st["I1"]
                    p.sub_(g["lr"] * G_)

    torch.manual_seed(0)
    m = Mlp()
    opt = Sh(m.parameters())
    st = wrap(opt.step)
    for n in SIZES:
        opt.zero_grad()
        m(torch.randn(n + 2, 4)).pow(2).mean().backward()
        st()
        yield [p.detach().clone() for p in m.parameters()]


@program
def lbfgs(wrap):
    torch.manual_seed(0)
    x = torch.randn(4, requires_grad=True)
    opt = torch.optim.LBFGS([x], max_iter=5, line_search_fn="strong_wolfe")

    @wrap
    def rosen(x, a):
        return ((a - x[:-1]) ** 2 + 100 * (x[1:] - x[:-1] ** 2) ** 2).sum()

    for k in range(4):

        def cl():
            opt.zero_grad()
            l = rosen(x, 1.0 + k * 0.1)
            l.backward()
            return l

        l = opt.step(cl)
        yield (l.detach(), x.detach().clone())


@program
def asgd_all(wrap):
    torch.manual_seed(0)
    out = []
    for O, kw in (
        (torch.optim.ASGD, {}),
        (torch.optim.Rprop, {}),
        (torch.optim.Adamax, {}),
        (torch.optim.NAdam, {}),
        (torch.optim.RAdam, {}),
        (torch.optim.Adadelta, {}),
        (torch.optim.RMSprop, dict(centered=True, momentum=0.5)),
        (torch.optim.Adafactor, {}),
        (torch.optim.SparseAdam, {}),
        (torch.optim.Muon, {}),
    ):
        torch.manual_seed(1)
        m = nn.Linear(4, 3, bias=False)
        try:
            opt = O(m.parameters(), lr=0.01, **kw)
        except Exception:
            continue
        if O is torch.optim.SparseAdam:
            continue

        @wrap
        def step(x):
            opt.zero_grad()
            l = m(x).pow(2).sum()
            l.backward()
            opt.step()
            return l.detach()

        for n in SIZES[:4]:
            yield (step(torch.randn(n, 4)), m.weight.detach().clone())


@program
def gradscaler(wrap):
    torch.manual_seed(0)
    m = Mlp()
    opt = torch.optim.SGD(m.parameters(), 0.1)
    sc = torch.amp.GradScaler("cpu", init_scale=2.0**8, growth_interval=2)

    @wrap
    def step(x, bad):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            l = m(x).float().pow(2).mean()
        if bad:
            l = l * float("inf")
        opt.zero_grad()
        sc.scale(l).backward()
        sc.unscale_(opt)
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        sc.step(opt)
        sc.update()
        return l.detach()

    for k, n in enumerate(SIZES):
        l = step(torch.randn(n, 4), k == 3)
        yield (l if k != 3 else torch.tensor(0.0), torch.tensor(sc.get_scale()), [p.detach().clone() for p in m.parameters()])


@program
def fedavg(wrap):
    torch.manual_seed(0)
    g = Mlp()

    @wrap
    def local(m, x, y, lr):
        l = F.cross_entropy(m(x), y)
        gs = torch.autograd.grad(l, list(m.parameters()))
        with torch.no_grad():
            for p, q in zip(m.parameters(), gs):
                p -= lr * q
        return l.detach()

    for r in range(3):
        cl = [copy.deepcopy(g) for _ in range(3)]
        ls = []
        for c, m in enumerate(cl):
            for n in SIZES[:3]:
                ls.append(local(m, torch.randn(n + c, 4), torch.zeros(n + c, dtype=torch.long), 0.1 / (r + 1)))
        with torch.no_grad():
            for p, *q in zip(g.parameters(), *[c.parameters() for c in cl]):
                p.copy_(torch.stack(q).mean(0))
        yield (ls, [p.detach().clone() for p in g.parameters()])


@program
def dtw(wrap):

    @wrap
    def dtw(a, b):
        D = torch.cdist(a, b)
        n, m = D.shape
        R = torch.full((n + 1, m + 1), float("inf"))
        R[0, 0] = 0
        for i in range(1, n + 1):
            for j in range(1, m + 1):
                R[i, j] = D[i - 1, j - 1] + torch.min(torch.stack([R[i - 1, j], R[i, j - 1], R[i - 1, j - 1]]))
        return R[n, m]

    torch.manual_seed(0)
    for n, m in ((3, 4), (4, 3), (3, 4), (2, 2), (4, 4)):
        a = torch.randn(n, 2, requires_grad=True)
        d = dtw(a, torch.randn(m, 2))
        d.backward()
        yield (d.detach(), a.grad)


@program
def softdtw_np(wrap):

    @wrap
    def edit(a, b):
        prev = np.arange(len(b) + 1)
        for i, x in enumerate(a.numpy()):
            cur = np.empty_like(prev)
            cur[0] = i + 1
            for j, y in enumerate(b.numpy()):
                cur[j + 1] = min(prev[j + 1] + 1, cur[j] + 1, prev[j] + (x != y))
            prev = cur
        return torch.tensor(float(prev[-1]))

    torch.manual_seed(0)
    for n in SIZES[:5]:
        yield edit(torch.randint(0, 3, (n,)), torch.randint(0, 3, (n + 1,)))


@program
def confusion(wrap):

    class Metric:
        def __init__(self, k):
            self.m = torch.zeros(k, k, dtype=torch.long)
            self.n = 0
            self.hist = collections.defaultdict(list)

        def update(self, p, t):
            k = len(self.m)
            self.m += torch.bincount(t * k + p, minlength=k * k).view(k, k)
            self.n += len(p)
            self.hist["acc"].append((p == t).float().mean().item())

        def compute(self):
            tp = self.m.diag().float()
            pr = tp / self.m.sum(0).clamp(min=1)
            rc = tp / self.m.sum(1).clamp(min=1)
            f1 = 2 * pr * rc / (pr + rc).clamp(min=1e-09)
            return {"f1": f1.mean(), "acc": tp.sum() / max(self.n, 1), "hist": torch.tensor(self.hist["acc"])}

    torch.manual_seed(0)
    M = Metric(4)
    up, co = (wrap(M.update), wrap(M.compute))
    for n in SIZES:
        up(torch.randint(0, 4, (n,)), torch.randint(0, 4, (n,)))
        yield list(co().values())


@program
def auroc(wrap):

    @wrap
    def auc(s, t):
        o = torch.argsort(s, descending=True, stable=True)
        t = t[o]
        tp = t.cumsum(0)
        fp = (1 - t).cumsum(0)
        d = torch.cat([(s[o][1:] != s[o][:-1]).nonzero().flatten(), torch.tensor([len(t) - 1])])
        tp, fp = (tp[d], fp[d])
        tpr = torch.cat([torch.zeros(1), tp / tp[-1].clamp(min=1)])
        fpr = torch.cat([torch.zeros(1), fp / fp[-1].clamp(min=1)])
        return (torch.trapezoid(tpr, fpr), float(tp[-1]))

    torch.manual_seed(0)
    for n in SIZES:
        a, b = auc((torch.rand(n * 3) * 5).round(), torch.randint(0, 2, (n * 3,)))
        yield (a, torch.tensor(b))


@program
def mixture_density(wrap):

    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = Mlp(2, 8, 9)

        def forward(self, x):
            a, b, c = self.n(x).chunk(3, 1)
            return torch.distributions.MixtureSameFamily(
                torch.distributions.Categorical(logits=a), torch.distributions.Normal(b, F.softplus(c) + 0.001)
            )

    torch.manual_seed(0)
    m = M()

    @wrap
    def loss(x, y):
        return -m(x).log_prob(y).mean()

    @wrap
    def samp(x):
        return m(x).sample()

    for n in SIZES:
        l = loss(torch.randn(n, 2), torch.randn(n))
        m.zero_grad()
        l.backward()
        yield (l.detach(), [p.grad.clone() for p in m.parameters()], samp(torch.randn(n, 2)))
