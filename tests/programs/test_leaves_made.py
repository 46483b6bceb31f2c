"""Leaves, parameters, buffers and optimizers that a compiled function makes: one graph, here and with `backend="eager"`."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import pliant
from tests.programs.registry import cases, each, program, programs

ROWS = each(3, 5, 2, tail=(4,))
WHOLE = {"breaks": 0, "options": {"fullgraph": True}}


@program(*ROWS, **WHOLE)
def ret_leaf(x):
    w = torch.ones(4, requires_grad=True)
    return w


@program(*ROWS, **WHOLE)
def ret_leaf_used(x):
    w = torch.ones(4, requires_grad=True)
    return w, (x * w).sum()


@program(*ROWS, **WHOLE)
def ret_param(x):
    w = nn.Parameter(torch.ones(4))
    return w, x * w


@program(*ROWS, **WHOLE)
def ret_param_only(x):
    return nn.Parameter(x.clone())


@program(*ROWS, **WHOLE)
def ret_param_of_input(x):
    return nn.Parameter(x)


@program(*ROWS, **WHOLE)
def ret_param_nograd(x):
    w = nn.Parameter(x * 2, requires_grad=False)
    return w, w + 1


@program(*ROWS, **WHOLE)
def tensor_rg(x):
    w = torch.tensor([1.0, 2.0, 3.0, 4.0], requires_grad=True)
    return w, x * w


@program(*ROWS, **WHOLE)
def rg_(x):
    w = (x.detach() * 2).requires_grad_()
    y = (w * w).sum()
    y.backward()
    return w, w.grad


@program(*ROWS, **WHOLE)
def rg_ret(x):
    w = (x.detach() * 2).requires_grad_()
    return w, (w * w).sum()


@program(*ROWS, **WHOLE)
def rg_ret2(x):
    w = (x.detach() * 2).requires_grad_()
    return w, (w * w).sum() + x.sum()


@program(*ROWS, **WHOLE)
def rg_ret3(x):
    w = x.detach().requires_grad_()
    return w, (w * w).sum() + x.sum()


@program(*ROWS, world=True, **WHOLE)
def lazy():
    class L(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = None

        def forward(self, x):
            if self.w is None:
                self.w = nn.Parameter(torch.ones(x.shape[-1]))
            return x * self.w

    return L()


@program(*ROWS, world=True, **WHOLE)
def lazy2():
    class L(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_parameter("w", None)

        def forward(self, x):
            if self.w is None:
                self.w = nn.Parameter(torch.zeros(x.shape[-1]))
                with torch.no_grad():
                    self.w.add_(2)
            return x * self.w

    return L()


@program(*ROWS, **WHOLE)
def made_linear(x):
    torch.manual_seed(0)
    m = nn.Linear(4, 3)
    return m(x)


@program(*ROWS, **WHOLE)
def made_linear_ret(x):
    torch.manual_seed(0)
    m = nn.Linear(4, 3)
    return m, m(x)


@program(*ROWS, **WHOLE)
def made_opt(x):
    torch.manual_seed(0)
    m = nn.Linear(4, 3)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    m(x).sum().backward()
    o.step()
    return m.weight.detach().clone(), m.weight.grad


@program(*ROWS, **WHOLE)
def made_opt2(x):
    w = x.detach().clone().requires_grad_()
    o = torch.optim.Adam([w], lr=0.1)
    for i in range(3):
        o.zero_grad()
        (w * w).sum().backward()
        o.step()
    return w.detach()


@program(*ROWS, **WHOLE)
def made_opt3(x):
    w = x.detach().clone().requires_grad_()
    o = torch.optim.SGD([w], lr=0.1, momentum=0.9)
    for i in range(3):
        o.zero_grad()
        (w * w).sum().backward()
        o.step()
    return w


@program(*ROWS, world=True, **WHOLE)
def opt_out():
    w = nn.Parameter(torch.ones(4))

    def f(x):
        o = torch.optim.SGD([w], lr=0.1)
        l = (x * w).sum()
        l.backward()
        o.step()
        return l

    return f, (w,)


@program(*ROWS, **WHOLE)
def made_seq(x):
    torch.manual_seed(0)
    m = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return m(x).sum(), [q for q in m.parameters()]


@program(*ROWS, world=True, **WHOLE)
def setattr_param():
    class L(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(4))

        def forward(self, x):
            self.w = nn.Parameter(self.w * 2)
            return x * self.w

    return L()


@program(*ROWS, world=True, **WHOLE)
def regparam():
    class L(nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, x):
            self.register_parameter("w", nn.Parameter(torch.ones(4)))
            return x * self.w

    return L()


@program(*ROWS, world=True, **WHOLE)
def regbuf():
    class L(nn.Module):
        def __init__(self):
            super().__init__()

        def forward(self, x):
            self.register_buffer("w", torch.ones(4))
            return x * self.w

    return L()


@program(*ROWS, **WHOLE)
def param_of_randn(x):
    torch.manual_seed(3)
    return nn.Parameter(torch.randn(3, x.shape[0]))


@program(*ROWS, **WHOLE)
def dict_of(x):
    return nn.ParameterDict({"a": nn.Parameter(torch.ones(2)), "b": nn.Parameter(x.detach().clone())})["b"]


@program(*ROWS, **WHOLE)
def list_of(x):
    ps = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(3)])
    return [x * q for q in ps], ps[0]


@program(*ROWS, **WHOLE)
def leaf_view(x):
    w = torch.ones(4, 4, requires_grad=True)
    v = w[0]
    return v, w


@program(*ROWS, **WHOLE)
def leaf_view_only(x):
    w = torch.ones(4, 4, requires_grad=True)
    return w.t()


@program(*ROWS, **WHOLE)
def grad_then(x):
    w = torch.ones(4, requires_grad=True)
    (g,) = torch.autograd.grad((x.detach() * w).sum(), w)
    return w, g


@program(*ROWS, **WHOLE)
def leaf_inplace(x):
    w = torch.ones(4, requires_grad=True)
    with torch.no_grad():
        w -= 0.5
    return w


@program(*ROWS, **WHOLE)
def leaf_flags(x):
    w = torch.ones(4, requires_grad=True)
    return w.is_leaf, w.requires_grad, w.grad, w


@program(*ROWS, **WHOLE)
def zeros_grad_fn(x):
    w = nn.Parameter(torch.zeros(4))
    w.grad = torch.ones(4)
    return w


@program(*ROWS, world=True, **WHOLE)
def stored():
    d = {}

    def f(x):
        d["w"] = torch.ones(4, requires_grad=True)
        return x * d["w"]

    return f, d


@program(*ROWS, **WHOLE)
def inner_opt_ret(x):
    w = nn.Parameter(torch.ones(4))
    o = torch.optim.Adam([w], lr=0.1)
    (w * x).sum().backward()
    o.step()
    return o.state[w]["step"], o.state[w]["exp_avg"], w


@program(*ROWS, **WHOLE)
def opt_returned(x):
    w = nn.Parameter(torch.ones(4))
    o = torch.optim.Adam([w], lr=0.1)
    (w * x).sum().backward()
    o.step()
    return o.state_dict(), w


@program(*ROWS, **WHOLE)
def opt_obj(x):
    w = nn.Parameter(torch.ones(4))
    o = torch.optim.SGD([w], lr=0.1)
    return o.param_groups[0]["lr"], len(o.param_groups), w


@program(*ROWS, world=True, **WHOLE)
def opt_kept():
    s = {}

    def f(x):
        w = nn.Parameter(torch.ones(4))
        s["w"] = w
        s["o"] = torch.optim.SGD([w], lr=0.1)
        (w * x).sum().backward()
        s["o"].step()
        return w * 2

    return f, s


@program(*ROWS, **WHOLE)
def ttt(x):
    # test-time training
    m = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    for q in m.parameters():
        nn.init.constant_(q, 0.1)
    o = torch.optim.SGD(m.parameters(), lr=0.1)
    for _ in range(2):
        o.zero_grad()
        F.mse_loss(m(x), x).backward()
        o.step()
    return m(x)


@program(*ROWS, **WHOLE)
def ttt2(x):
    m = nn.Linear(4, 4)
    nn.init.eye_(m.weight)
    nn.init.zeros_(m.bias)
    o = torch.optim.AdamW(m.parameters(), lr=0.1)
    s = torch.optim.lr_scheduler.StepLR(o, 1)
    for _ in range(2):
        F.mse_loss(m(x.detach()), x.detach()).backward()
        o.step()
        s.step()
        o.zero_grad()
    return m(x), m.weight


@program(*ROWS, **WHOLE)
def clip(x):
    w = nn.Parameter(torch.ones(4))
    (w * x.detach()).sum().backward()
    n = nn.utils.clip_grad_norm_([w], 0.5)
    return n, w.grad, w


@program(*ROWS, **WHOLE)
def accum(x):
    w = nn.Parameter(torch.ones(4))
    (w * x.detach()).sum().backward()
    (w * x.detach()).exp().sum().backward()
    return w.grad, w


@program(*ROWS, **WHOLE)
def two_leaves(x):
    a = torch.ones(4, requires_grad=True)
    b = torch.zeros(4, requires_grad=True)
    return {"l": ((a + b) * x).sum(), "a": a, "b": b}


@program(*ROWS, **WHOLE)
def mlist(x):
    m = nn.ModuleList([nn.Linear(4, 4) for _ in range(2)])
    for q in m.parameters():
        nn.init.ones_(q)
    for l in m:
        x = l(x)
    return x, m[0].weight


@program(*ROWS, **WHOLE)
def embed(x):
    e = nn.Embedding(5, 3)
    nn.init.ones_(e.weight)
    return e(torch.arange(x.shape[0]))


@program(*ROWS, **WHOLE)
def conv(x):
    c = nn.Conv1d(1, 2, 3, padding=1)
    nn.init.ones_(c.weight)
    nn.init.zeros_(c.bias)
    return c(x[:, None])


@program(*ROWS, **WHOLE)
def bn(x):
    b = nn.BatchNorm1d(4)
    return b(x), b.running_mean, b.num_batches_tracked


@program(*ROWS, **WHOLE)
def ln(x):
    return nn.LayerNorm(4)(x)


@program(*ROWS, **WHOLE)
def mha(x):
    m = nn.MultiheadAttention(4, 2)
    for q in m.parameters():
        nn.init.ones_(q)
    return m(x, x, x)[0]


@program(*ROWS, **WHOLE)
def lstm(x):
    m = nn.LSTM(4, 3)
    for q in m.parameters():
        nn.init.ones_(q)
    return m(x)[0]


@program(*ROWS, **WHOLE)
def sd(x):
    m = nn.Linear(4, 2)
    nn.init.ones_(m.weight)
    nn.init.zeros_(m.bias)
    return dict(m.state_dict()), m(x)


@program(*ROWS, **WHOLE)
def load_sd(x):
    m = nn.Linear(4, 2)
    m.load_state_dict({"weight": torch.ones(2, 4), "bias": torch.zeros(2)})
    return m(x)


@program(*ROWS, **WHOLE)
def nored(x):
    m = nn.Linear(4, 2)
    nn.init.ones_(m.weight)
    nn.init.zeros_(m.bias)
    m.requires_grad_(False)
    return m(x), m.weight


@program(*ROWS, **WHOLE)
def data_given(x):
    w = torch.ones(4, requires_grad=True)
    w.data = x.detach().sum(0)
    return w * x, w


@program(*ROWS, **WHOLE)
def data_written(x):
    w = nn.Parameter(torch.ones(4))
    w.data.mul_(3)
    w.data[0] = 7
    return w * x, w


@program(*ROWS, **WHOLE)
def init_data(x):
    m = nn.Linear(4, 3)
    m.weight.data.fill_(0.5)
    m.bias.data.zero_()
    return m(x), m.weight


@program(*ROWS, **WHOLE)
def init_copy_and_steps(x):
    m = nn.Linear(4, 4)
    m.weight.data.copy_(torch.eye(4))
    m.bias.data.zero_()
    for _ in range(2):
        l = m(x.detach()).pow(2).sum()
        l.backward()
        for q in m.parameters():
            q.data -= 0.01 * q.grad.data
            q.grad = None
    return m(x)


@program(*ROWS, **WHOLE)
def sgd_data(x):
    w = torch.ones(4, requires_grad=True)
    for _ in range(3):
        (w * x.detach()).sum().backward()
        w.data.sub_(w.grad, alpha=0.1)
        w.grad.zero_()
    return w, w * x


@program(*ROWS, **WHOLE)
def sgd_data_no(x):
    w = torch.ones(4, requires_grad=True)
    (w * x.detach()).exp().sum().backward()
    w.data -= 0.1 * w.grad
    return w


@program(*ROWS, world=True, **WHOLE)
def lazy_init():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.lin = None

        def forward(self, x):
            if self.lin is None:
                self.lin = nn.Linear(x.shape[-1], 2)
                self.lin.weight.data.fill_(0.1)
                self.lin.bias.data.fill_(1.0)
            return self.lin(x)

    return M()


@program(*ROWS, world=True, **WHOLE)
def actnorm():
    class M(nn.Module):
        def __init__(self):
            super().__init__()
            self.s = nn.Parameter(torch.ones(4))
            self.register_buffer("init", torch.tensor(0))
            self.done = False

        def forward(self, x):
            if not self.done:
                self.s.data.copy_(x.detach().std(0) + 1)
                self.done = True
            return x / self.s

    return M()


@program(*ROWS, world=True, **WHOLE)
def weightclip():
    w = nn.Parameter(torch.ones(4))

    def f(x):
        w.data.clamp_(-0.5, 0.5)
        return w * x

    return f, w


@program(*ROWS, world=True, breaks=(0, 9))
def data_written_between():
    w = nn.Parameter(torch.ones(4))

    def f(x):
        y = (w * x).exp()
        w.data.clamp_(-0.5, 0.5)
        return y, w * x

    return f, w


@program(*ROWS, breaks=(0, 9))
def own_data_written_between(x):
    w = nn.Parameter(torch.ones(4))
    y = (w * x).exp()
    w.data.clamp_(-0.5, 0.5)
    return y, w * x, w


def steps(cls, **settings):
    """A function that makes parameters and an optimizer of them, and goes three steps."""

    def fn(x):
        w, v = nn.Parameter(x.detach()[0].clone()), nn.Parameter(torch.ones(4))
        optimizer = cls([w, v], **settings)
        for _ in range(3):
            optimizer.zero_grad()
            ((w * v - 1) ** 2).sum().backward()
            optimizer.step()
        return w, v

    return fn


O = torch.optim
OPTIMIZERS = [
    (O.SGD, {}), (O.SGD, {"momentum": 0.9}), (O.SGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}), (O.Adam, {}),
    (O.AdamW, {}), (O.Adagrad, {}), (O.RMSprop, {}), (O.Adadelta, {}), (O.NAdam, {}), (O.RAdam, {}), (O.Adamax, {}), (O.Rprop, {}),
    (O.Adam, {"foreach": False}), (O.Adam, {"amsgrad": True}), (O.Adam, {"fused": True}),
]  # fmt: skip
programs(__name__, *ROWS, **WHOLE)({f"{cls.__name__}_{'_'.join(kw)}": steps(cls, **kw) for cls, kw in OPTIMIZERS})

OF_DATA = {
    "parameter of the data of a leaf": lambda w, x: nn.Parameter(w.data), "of what it makes": lambda w, x: nn.Parameter(w.sum(1).data),
    "of a view of it": lambda w, x: nn.Parameter(w.data[1:]), "of plain data": lambda w, x: nn.Parameter(x.data),
    "without gradients": lambda w, x: nn.Parameter(w.data, False), "of what is made": lambda w, x: nn.Parameter(w.sum(1).data, False),
    "a leaf": lambda w, x: w.data.requires_grad_(), "a leaf of a view": lambda w, x: w.data[1:].requires_grad_(),
    "used": lambda w, x: (lambda p: (p, (p * x).sum()))(nn.Parameter(w.data)),
    "given other memory": lambda w, x: (lambda p: (setattr(p, "data", x * 2), p)[1])(nn.Parameter(w.detach() * 1)),
}  # fmt: skip


@pytest.mark.parametrize("name", OF_DATA)
@pytest.mark.parametrize("written", ["input", "result"])
def test_a_leaf_over_memory_of_data(name: str, written: str) -> None:
    """Its class, whether it is a leaf, and versions of its own; what is written to the one is seen in the other."""
    fn = OF_DATA[name]
    told = []
    for run in (fn, pliant.compile(fn, backend="aten")):
        for k in (3, 4):
            w, x = nn.Parameter(torch.arange(9.0).reshape(3, 3)), torch.ones(3, 3) * k
            result = run(w, x)
            p = result[0] if isinstance(result, tuple) else result
            told.append((type(p), p.requires_grad, p.is_leaf, p._version, p.data_ptr() == w.data_ptr(), p.data_ptr() == x.data_ptr()))
            with torch.no_grad():
                w.add_(1) if written == "input" else p.add_(1)
            told.append((p._version, w._version, p.tolist(), w.tolist(), x.tolist()))
            if p.requires_grad:
                (p if p is result else result[1]).sum().backward()
                told.append((p.grad.tolist(), w.grad))
    assert told[: len(told) // 2] == told[len(told) // 2 :]


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_with_a_backend_that_runs_the_graph(case):
    case.run_through("eager")


UNSEEN = ("made_opt2", "regbuf", "buffer_made", "buffer_module")
"""Leaves and buffers of which the program shows no more than values: graphs that somebody else differentiates may have them inside."""


@pytest.mark.parametrize("case", [c for i, c in enumerate(cases(__name__)) if i % 8 == 3 or c.name in UNSEEN], ids=repr)
def test_with_a_backend_that_differentiates(case):
    report = case.run_through("aot_eager", between=False, options={"fullgraph": case.name in UNSEEN})
    assert report.captures
