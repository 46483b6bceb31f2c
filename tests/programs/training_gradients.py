"""Ways to use gradients in training, as people write them: penalties, reversals, hooks, inner loops, second orders.

Each program yields what has to be eager's, call after call. `wrap` compiles a function or module, or gives it back as it is.
"""

from __future__ import annotations

import copy

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.programs.training import SIZES, Mlp, program

grad = torch.autograd.grad


@program
def wgan_gp(wrap):
    torch.manual_seed(0)
    D = wrap(Mlp(o=1, p=0.3))
    opt = torch.optim.SGD(D.parameters(), 0.1)
    for n in SIZES:
        real, fake = (torch.randn(n, 4), torch.randn(n, 4))
        e = torch.rand(n, 1)
        x = (e * real + (1 - e) * fake).requires_grad_()
        y = D(x)
        (g,) = grad(y.sum(), x, create_graph=True)
        loss = D(fake).mean() - D(real).mean() + 10 * ((g.norm(2, 1) - 1) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield (loss.detach(), [p.grad.clone() for p in D.parameters()])


@program
def wgan_gp_bn(wrap):
    torch.manual_seed(0)
    D = wrap(Mlp(o=1, bn=True))
    opt = torch.optim.SGD(D.parameters(), 0.1)
    for n in SIZES:
        x = torch.randn(n, 4, requires_grad=True)
        y = D(x)
        (g,) = grad(y.sum(), x, create_graph=True)
        loss = y.mean() + ((g.norm(2, 1) - 1) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield (loss.detach(), [p.grad.clone() for p in D.parameters()], [b.clone() for b in D.buffers()])


class Rev(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, l):
        ctx.l = l
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return (-ctx.l * g, None)


class Dann(nn.Module):
    def __init__(self):
        super().__init__()
        self.f = Mlp(4, 8, 8)
        self.c = nn.Linear(8, 3)
        self.d = nn.Linear(8, 2)

    def forward(self, x, l):
        h = self.f(x)
        return (self.c(h), self.d(Rev.apply(h, l)))


@program
def dann(wrap):
    torch.manual_seed(0)
    m = wrap(Dann())
    opt = torch.optim.Adam(m.parameters())
    for k, n in enumerate(SIZES):
        a, b = m(torch.randn(n, 4), k / 5)
        loss = (
            F.cross_entropy(a, torch.zeros(n, dtype=torch.long))
            if k % 2
            else F.cross_entropy(b, torch.ones(n, dtype=torch.long)) + a.sum() * 0.1
        )
        opt.zero_grad()
        loss.backward()
        opt.step()
        yield (loss.detach(), [p.grad for p in m.parameters()])


@program
def pcgrad(wrap):
    torch.manual_seed(0)
    m = wrap(Dann())
    for n in SIZES:
        a, b = m(torch.randn(n, 4), 1.0)
        gs = []
        for l in (a.pow(2).mean(), b.abs().mean()):
            gs.append(grad(l, list(m.parameters()), retain_graph=True, allow_unused=True))
        yield gs


@program
def gradnorm(wrap):
    torch.manual_seed(0)
    m = wrap(Dann())
    wt = torch.ones(2, requires_grad=True)
    for n in SIZES:
        a, b = m(torch.randn(n, 4), 1.0)
        L = [a.pow(2).mean(), b.abs().mean()]
        W = m.f.b.weight if hasattr(m, "f") else None
        ns = torch.stack([grad(wt[i] * L[i], W, retain_graph=True, create_graph=True)[0].norm() for i in range(2)])
        gl = (ns - ns.mean().detach()).abs().sum()
        yield (gl.detach(), grad(gl, wt))


def of_an_equation(m, residual):
    for n in SIZES:
        x = torch.rand(n, 2, requires_grad=True)
        l = residual(m, x)
        yield (l.detach(), grad(l, list(m.parameters()), allow_unused=True))


def residual(m, x):
    u = m(x)
    (g,) = grad(u.sum(), x, create_graph=True)
    lap = sum(grad(g[:, i].sum(), x, create_graph=True)[0][:, i] for i in range(2))
    return (lap - u[:, 0]).pow(2).mean()


@program
def pinn(wrap):
    torch.manual_seed(0)
    yield from of_an_equation(wrap(Mlp(2, 8, 1)), residual)


@program
def pinn_inside(wrap):
    torch.manual_seed(0)
    yield from of_an_equation(Mlp(2, 8, 1), wrap(residual))


@program
def maml(wrap):
    torch.manual_seed(0)
    m = Mlp()

    @wrap
    def f(ps, x):
        return torch.func.functional_call(m, ps, (x,))

    for n in SIZES:
        ps = dict(m.named_parameters())
        x = torch.randn(n, 4)
        for _ in range(2):
            l = f(ps, x).pow(2).mean()
            gs = grad(l, list(ps.values()), create_graph=True)
            ps = {k: p - 0.1 * g for (k, p), g in zip(ps.items(), gs)}
        l = f(ps, x + 1).abs().mean()
        yield (l.detach(), grad(l, list(m.parameters())))


@program
def maml_inside(wrap):
    torch.manual_seed(0)
    m = Mlp()

    @wrap
    def outer(x):
        ps = dict(m.named_parameters())
        for _ in range(2):
            l = torch.func.functional_call(m, ps, (x,)).pow(2).mean()
            gs = grad(l, list(ps.values()), create_graph=True)
            ps = {k: p - 0.1 * g for (k, p), g in zip(ps.items(), gs)}
        return torch.func.functional_call(m, ps, (x + 1,)).abs().mean()

    for n in SIZES:
        l = outer(torch.randn(n, 4))
        yield (l.detach(), grad(l, list(m.parameters())))


@program
def pgd(wrap):
    torch.manual_seed(0)
    m = wrap(Mlp())
    for n in SIZES:
        x = torch.randn(n, 4)
        y = torch.zeros(n, dtype=torch.long)
        d = torch.zeros_like(x, requires_grad=True)
        for _ in range(3):
            l = F.cross_entropy(m(x + d), y)
            l.backward()
            d.data = (d + 0.1 * d.grad.sign()).clamp(-0.3, 0.3)
            d.grad.zero_()
        yield d.detach().clone()


@program
def pgd_inside(wrap):
    torch.manual_seed(0)
    m = Mlp()

    @wrap
    def attack(x, y):
        d = torch.zeros_like(x, requires_grad=True)
        for _ in range(3):
            l = F.cross_entropy(m(x + d), y)
            (g,) = grad(l, d)
            d = (d + 0.1 * g.sign()).clamp(-0.3, 0.3).detach().requires_grad_()
        return d.detach()

    for n in SIZES:
        yield attack(torch.randn(n, 4), torch.zeros(n, dtype=torch.long))


@program
def vat(wrap):
    torch.manual_seed(0)
    m = wrap(Mlp())
    for n in SIZES:
        x = torch.randn(n, 4)
        with torch.no_grad():
            p = m(x).softmax(-1)
        d = F.normalize(torch.randn_like(x))
        d.requires_grad_()
        kl = F.kl_div(m(x + 0.1 * d).log_softmax(-1), p, reduction="batchmean")
        kl.backward()
        d2 = F.normalize(d.grad)
        m.zero_grad()
        l = F.kl_div(m(x + d2).log_softmax(-1), p, reduction="batchmean")
        l.backward()
        yield (l.detach(), [q.grad for q in m.parameters()])


class Cam(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv2d(3, 4, 3)
        self.l = nn.Linear(4, 5)
        self.g = None

    def save(self, g):
        self.g = g

    def forward(self, x):
        h = F.relu(self.c(x))
        self.h = h
        if h.requires_grad:
            h.register_hook(self.save)
        return self.l(h.mean((2, 3)))


@program
def gradcam_hook(wrap):
    torch.manual_seed(0)
    M = Cam()
    m = wrap(M)
    for n in SIZES:
        o = m(torch.randn(2, 3, n + 4, n + 4))
        o[:, 1].sum().backward()
        yield (o.detach(), M.g.clone(), M.h.detach())


@program
def gradcam_modulehooks(wrap):
    torch.manual_seed(0)
    M = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    st = {}
    M[0].register_forward_hook(lambda m, i, o: st.__setitem__("a", o))
    M[0].register_full_backward_hook(lambda m, gi, go: st.__setitem__("g", go[0]))
    m = wrap(M)
    for n in SIZES:
        o = m(torch.randn(2, 3, n + 4, n + 4))
        o[:, 1].sum().backward()
        yield (o.detach(), st["a"].detach(), st["g"].clone())


@program
def retain_inside(wrap):
    torch.manual_seed(0)

    class R(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(4, 8)
            self.b = nn.Linear(8, 2)

        def forward(self, x):
            self.h = torch.tanh(self.a(x))
            self.h.retain_grad()
            return self.b(self.h)

    M = R()
    m = wrap(M)
    for n in SIZES:
        o = m(torch.randn(n, 4))
        (o**2).sum().backward()
        yield (o.detach(), M.h.grad.clone())


@program
def integrated_gradients(wrap):
    torch.manual_seed(0)
    m = wrap(Mlp())
    for n in SIZES:
        x = torch.randn(n, 4)
        tot = 0
        for a in torch.linspace(0, 1, 5):
            z = (a * x).requires_grad_()
            tot = tot + grad(m(z)[:, 0].sum(), z)[0]
        yield (tot * x)


@program
def sam(wrap):
    torch.manual_seed(0)
    m = wrap(Mlp(bn=True))
    for n in SIZES:
        x = torch.randn(n, 4)
        m(x).pow(2).mean().backward()
        gs = [p.grad.clone() for p in m.parameters()]
        with torch.no_grad():
            for p, g in zip(m.parameters(), gs):
                p.add_(0.05 * g / (g.norm() + 1e-09))
        m.zero_grad()
        l = m(x).pow(2).mean()
        l.backward()
        with torch.no_grad():
            for p, g in zip(m.parameters(), gs):
                p.sub_(0.05 * g / (g.norm() + 1e-09))
                p.sub_(0.1 * p.grad)
        m.zero_grad()
        yield (l.detach(), [p.detach().clone() for p in m.parameters()])


@program
def langevin(wrap):
    torch.manual_seed(0)
    E = Mlp(4, 8, 1)

    @wrap
    def sample(x, noise):
        for i in range(3):
            x = x.detach().requires_grad_()
            (g,) = grad(E(x).sum(), x)
            x = x - 0.1 * g + 0.01 * noise[i]
        return x.detach()

    for n in SIZES:
        yield sample(torch.randn(n, 4), torch.randn(3, n, 4))


@program
def score_matching(wrap):
    torch.manual_seed(0)
    m = Mlp(4, 8, 4)

    @wrap
    def loss(x, v):
        x = x.requires_grad_()
        s = m(x)
        (g,) = grad((s * v).sum(), x, create_graph=True)
        return ((g * v).sum(1) + 0.5 * (s * v).sum(1) ** 2).mean()

    for n in SIZES:
        l = loss(torch.randn(n, 4), torch.randn(n, 4))
        yield (l.detach(), grad(l, list(m.parameters()), allow_unused=True))


@program
def hvp(wrap):
    torch.manual_seed(0)
    m = wrap(Mlp())
    for n in SIZES:
        l = m(torch.randn(n, 4)).pow(3).mean()
        ps = list(m.parameters())
        g = grad(l, ps, create_graph=True)
        v = [torch.ones_like(p) for p in ps]
        yield grad(sum(((a * b).sum() for a, b in zip(g, v))), ps)


@program
def kfac_hooks(wrap):
    torch.manual_seed(0)
    M = Mlp()
    S = {}
    for n_, l in M.named_modules():
        if isinstance(l, nn.Linear):
            l.register_forward_pre_hook(lambda m, i, n_=n_: S.__setitem__(("a", n_), i[0].t() @ i[0]))
            l.register_full_backward_hook(lambda m, gi, go, n_=n_: S.__setitem__(("g", n_), go[0].t() @ go[0]))
    m = wrap(M)
    for n in SIZES:
        l = m(torch.randn(n, 4)).pow(2).mean()
        l.backward()
        yield (l.detach(), [S[k].detach().clone() for k in sorted(S)])


@program
def per_sample(wrap):
    torch.manual_seed(0)
    m = Mlp()
    ps = {k: v.detach() for k, v in m.named_parameters()}

    @wrap
    def f(ps, x, y):

        def one(p, x, y):
            return F.cross_entropy(torch.func.functional_call(m, p, (x[None],)), y[None])

        return torch.func.vmap(torch.func.grad(one), (None, 0, 0))(ps, x, y)

    for n in SIZES:
        yield list(f(ps, torch.randn(n, 4), torch.zeros(n, dtype=torch.long)).values())


@program
def spectral(wrap):
    torch.manual_seed(0)
    m = wrap(
        nn.Sequential(
            nn.utils.parametrizations.spectral_norm(nn.Linear(4, 8)), nn.ReLU(), nn.utils.parametrizations.weight_norm(nn.Linear(8, 2))
        )
    )
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for n in SIZES:
        l = m(torch.randn(n, 4)).pow(2).sum()
        opt.zero_grad()
        l.backward()
        opt.step()
        yield (l.detach(), [p.detach().clone() for p in m.parameters()])


@program
def moco(wrap):

    class Mo(nn.Module):
        def __init__(self):
            super().__init__()
            self.q = Mlp()
            self.k = copy.deepcopy(self.q)
            self.register_buffer("queue", F.normalize(torch.randn(3, 16), dim=0))
            self.register_buffer("ptr", torch.zeros(1, dtype=torch.long))

        @torch.no_grad()
        def enq(self, k):
            n = k.shape[0]
            p = int(self.ptr)
            n = min(n, 16 - p)
            self.queue[:, p : p + n] = k[:n].t()
            self.ptr[0] = (p + n) % 16

        def forward(self, a, b):
            q = F.normalize(self.q(a), dim=1)
            with torch.no_grad():
                for x, y in zip(self.q.parameters(), self.k.parameters()):
                    y.data = y.data * 0.9 + x.data * 0.1
                k = F.normalize(self.k(b), dim=1)
            l = torch.cat([(q * k).sum(1, keepdim=True), q @ self.queue.clone().detach()], 1) / 0.07
            self.enq(k)
            return l

    torch.manual_seed(0)
    M = Mo()
    m = wrap(M)
    opt = torch.optim.SGD(M.q.parameters(), 0.1)
    for n in SIZES:
        o = m(torch.randn(n, 4), torch.randn(n, 4))
        l = F.cross_entropy(o, torch.zeros(n, dtype=torch.long))
        opt.zero_grad()
        l.backward()
        opt.step()
        yield (l.detach(), M.queue.clone(), M.ptr.clone(), [p.detach().clone() for p in M.k.parameters()])


@program
def vqvae(wrap):

    class Vq(nn.Module):
        def __init__(self):
            super().__init__()
            self.e = nn.Linear(4, 6)
            self.d = nn.Linear(6, 4)
            self.register_buffer("cb", torch.randn(8, 6))
            self.register_buffer("n", torch.ones(8))

        def forward(self, x):
            z = self.e(x)
            i = torch.cdist(z, self.cb).argmin(1)
            q = self.cb[i]
            if self.training:
                oh = F.one_hot(i, 8).to(z.dtype)
                self.n.mul_(0.9).add_(oh.sum(0), alpha=0.1)
                self.cb.mul_(0.9).add_(oh.t() @ z.detach() / self.n.clamp(min=0.001)[:, None], alpha=0.1)
            return (self.d(z + (q - z).detach()), F.mse_loss(z, q.detach()))

    torch.manual_seed(0)
    m = wrap(Vq())
    opt = torch.optim.SGD(m.parameters(), 0.1)
    for n in SIZES:
        x = torch.randn(n, 4)
        r, c = m(x)
        l = F.mse_loss(r, x) + c
        opt.zero_grad()
        l.backward()
        opt.step()
        yield (l.detach(), m.cb.clone(), m.n.clone())


@program
def actor_critic_clip(wrap):
    torch.manual_seed(0)
    M = Dann()
    [p.register_hook(lambda g: g.clamp(-0.1, 0.1)) for p in M.parameters()]
    m = wrap(M)
    for k, n in enumerate(SIZES):
        a, b = m(torch.randn(n, 4), 1.0)
        M.zero_grad()
        (a.sum() if k % 2 else b.sum()).backward()
        yield [p.grad for p in M.parameters()]


@program
def hooks_after(wrap):
    torch.manual_seed(0)
    M = Mlp()
    m = wrap(M)
    hs = []
    for k, n in enumerate(SIZES):
        if k == 1:
            hs = [p.register_hook(lambda g: g * 2) for p in M.parameters()]
        if k == 3:
            [h.remove() for h in hs]
        M.zero_grad()
        m(torch.randn(n, 4)).sum().backward()
        yield [p.grad for p in M.parameters()]


@program
def post_acc(wrap):
    torch.manual_seed(0)
    M = Mlp()
    m = wrap(M)
    opts = {p: torch.optim.SGD([p], 0.1) for p in M.parameters()}

    def h(p):
        opts[p].step()
        opts[p].zero_grad()

    for p in M.parameters():
        p.register_post_accumulate_grad_hook(h)
    for n in SIZES:
        m(torch.randn(n, 4)).pow(2).sum().backward()
        yield [p.detach().clone() for p in M.parameters()]


@program
def path_length(wrap):
    torch.manual_seed(0)
    g_ = wrap(Mlp(4, 8, 6))
    mean = torch.zeros(())
    for n in SIZES:
        z = torch.randn(n, 4, requires_grad=True)
        img = g_(z)
        noise = torch.randn_like(img) / img.shape[1] ** 0.5
        (gr,) = grad((img * noise).sum(), z, create_graph=True)
        pl = gr.square().sum(1).sqrt()
        mean = mean.lerp(pl.mean().detach(), 0.1)
        l = (pl - mean).square().mean()
        yield (l.detach(), grad(l, list(g_.parameters()), allow_unused=True))


@program
def implicit(wrap):
    torch.manual_seed(0)
    m = nn.Linear(4, 4)

    class Fix(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, z, f):
            ctx.f = f
            with torch.no_grad():
                for _ in range(20):
                    z = torch.tanh(f(z) * 0.3 + x)
            ctx.save_for_backward(x, z)
            return z

        @staticmethod
        def backward(ctx, g):
            x, z = ctx.saved_tensors
            with torch.enable_grad():
                z = z.detach().requires_grad_()
                y = torch.tanh(ctx.f(z) * 0.3 + x.detach())
            v = g
            for _ in range(10):
                v = grad(y, z, v, retain_graph=True)[0] + g
            return (v, None, None)

    @wrap
    def run(x):
        return Fix.apply(x, torch.zeros_like(x), m)

    for n in SIZES:
        x = torch.randn(n, 4, requires_grad=True)
        o = run(x)
        yield (o.detach(), grad(o.sum(), x))


@program
def checkpointed(wrap):
    torch.manual_seed(0)
    a, b = (Mlp(4, 8, 4, p=0.2), Mlp())

    @wrap
    def run(x):
        return b(checkpoint(a, x, use_reentrant=False))

    for n in SIZES:
        l = run(torch.randn(n, 4)).pow(2).sum()
        yield (l.detach(), grad(l, list(a.parameters()) + list(b.parameters())))


@program
def accumulate_amp(wrap):
    torch.manual_seed(0)
    m = wrap(Mlp())
    opt = torch.optim.AdamW(m.parameters())
    for k, n in enumerate(SIZES):
        with torch.autocast("cpu", torch.bfloat16):
            l = m(torch.randn(n, 4)).float().pow(2).mean() / 2
        l.backward()
        if k % 2:
            nn.utils.clip_grad_norm_(m.parameters(), 0.5)
            opt.step()
            opt.zero_grad()
        yield l.detach()


@program
def whole_step(wrap):
    torch.manual_seed(0)
    m = Mlp(p=0.1)
    opt = torch.optim.Adam(m.parameters())

    @wrap
    def step(x, y):
        opt.zero_grad()
        l = F.cross_entropy(m(x), y)
        l.backward()
        nn.utils.clip_grad_norm_(m.parameters(), 1.0)
        opt.step()
        return l.detach()

    for n in SIZES:
        yield (step(torch.randn(n, 4), torch.zeros(n, dtype=torch.long)), [p.detach().clone() for p in m.parameters()])


@program
def truncated_bptt(wrap):
    torch.manual_seed(0)
    c = wrap(nn.GRUCell(4, 6))
    h = torch.zeros(2, 6)
    for n in SIZES:
        h = h.detach()
        l = 0
        for _t in range(n):
            h = c(torch.randn(2, 4), h)
            l = l + h.pow(2).sum()
        yield (l.detach(), grad(l, list(c.parameters()), retain_graph=True))
