"""Compiled functions under and around other tracers: they answer as eager PyTorch does, and the process lives."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

PRELUDE = """
import copy, io, os, pickle, sys, tempfile, warnings
warnings.simplefilter("ignore")
import torch, pliant
import torch.autograd.forward_ad as forward_ad
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.l, self.bn = nn.Linear(4, 3), nn.BatchNorm1d(3)
    def forward(self, x):
        return torch.relu(self.bn(self.l(x))) * x.shape[0]

class Counts(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.n = 0
    def __torch_dispatch__(self, fn, types, args=(), kwargs=None):
        self.n += 1
        return fn(*args, **(kwargs or {}))

def f(x):
    return (x.sin() + 1) * x.shape[0]

def same(a, b):
    assert torch.allclose(a, b, rtol=1e-4, atol=1e-5), (a, b)

torch.manual_seed(0)
net, x, longer = Net().eval(), torch.randn(5, 4), torch.randn(7, 4)
C = pliant.compile
c, cnet = C(f), C(net)
if WARM:
    c(x), cnet(x)
"""

CASES = {
    "jit.trace of a module": "t = torch.jit.trace(cnet, x); same(t(x), net(x)); same(cnet(longer), net(longer))",
    "jit.trace of a function": "t = torch.jit.trace(c, (x,)); same(t(x), f(x)); same(c(longer), f(longer))",
    "jit.trace of a module that holds one": """
class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = cnet
    def forward(self, x):
        return self.n(x) + 1
t = torch.jit.trace(Outer().eval(), x)
same(t(x), net(x) + 1)
file = io.BytesIO()
torch.jit.save(t, file)
file.seek(0)
same(torch.jit.load(file)(x), net(x) + 1)
""",
    "jit.trace of breaks": """
def g(x):
    y = f(x)
    pliant.graph_break()
    return f(y)
g_ = C(g)
g_(x)
t = torch.jit.trace(g_, (x,))
same(t(x), g(x))
same(g_(longer), g(longer))
""",
    "jit.script of one": """
for model in (cnet, c):
    try:
        torch.jit.script(model)
    except Exception:
        pass
same(c(x), f(x))
""",
    "jit.trace and save inside": """
def g(x):
    m, file = torch.jit.trace(net, x), io.BytesIO()
    torch.jit.save(m, file)
    file.seek(0)
    return torch.jit.load(file)(x) + 1
g_ = C(g)
for v in (x, longer, x):
    same(g_(v), g(v))
""",
    "jit.script and save inside": """
net = nn.Sequential(nn.Linear(4, 3), nn.ReLU()).eval()  # its source is in a file, which TorchScript wants
m = torch.jit.script(net)
def g(x):
    torch.jit.save(m, io.BytesIO())
    m.save(os.devnull)
    return torch.jit.script(net)(x) + m.forward(x) + 1
g_ = C(g)
for v in (x, longer, x):
    same(g_(v), g(v))
""",
    "make_fx": "g = make_fx(c)(x); same(g(x), f(x)); same(g(x + 1), f(x + 1)); same(c(longer), f(longer))",
    "make_fx, symbolic": "g = make_fx(c, tracing_mode='symbolic')(x); same(g(longer), f(longer)); same(c(longer), f(longer))",
    "export": "same(torch.export.export(cnet, (x,), strict=False).module()(x), net(x)); same(cnet(longer), net(longer))",
    "vmap": "same(torch.vmap(c)(x), torch.vmap(f)(x)); same(c(longer), f(longer))",
    "grad": "same(torch.func.grad(lambda v: c(v).sum())(x), torch.func.grad(lambda v: f(v).sum())(x)); same(c(longer), f(longer))",
    "jvp": "a, b = torch.func.jvp(c, (x,), (x,)), torch.func.jvp(f, (x,), (x,)); same(a[0], b[0]); same(a[1], b[1])",
    "hessian": "same(torch.func.hessian(lambda v: c(v).sum())(x), torch.func.hessian(lambda v: f(v).sum())(x))",
    "functional_call": """
p = {k: v * 2 for k, v in net.state_dict().items()}
same(torch.func.functional_call(cnet, p, (x,)), torch.func.functional_call(net, p, (x,)))
same(cnet(x), net(x))
""",
    "forward-mode differentiation": """
with forward_ad.dual_level():
    d = forward_ad.make_dual(x, x)
    a, b = forward_ad.unpack_dual(c(d)), forward_ad.unpack_dual(f(d))
    same(a.primal, b.primal)
    same(a.tangent, b.tangent)
same(c(longer), f(longer))
""",
    "fake tensors": """
with FakeTensorMode() as mode:
    y = c(mode.from_tensor(x))
    assert type(y).__name__ == "FakeTensor" and y.shape == (5, 4)
y = c(FakeTensorMode().from_tensor(x))
assert type(y).__name__ == "FakeTensor"
same(c(x), f(x))
""",
    "a dispatch mode": """
with Counts() as mine:
    same(c(x), f(x))
with Counts() as theirs:
    f(x), f(x)
assert mine.n >= theirs.n, (mine.n, theirs.n)
""",
    "a flop counter": """
with FlopCounterMode(display=False) as mine:
    cnet(x)
with FlopCounterMode(display=False) as theirs:
    net(x)
assert mine.get_total_flops() == theirs.get_total_flops() > 0
""",
    "symbolic_trace": """
class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.l = nn.Linear(4, 3)
    def forward(self, x):
        return self.l(x).relu()
n = Small()
m = C(n)
if WARM:
    m(x)
g = torch.fx.symbolic_trace(m)
same(g(x), n(x))
same(m(longer), n(longer))
""",
    "torch.compile around and inside": """
g = torch.compile(lambda v: c(v) + 1, backend="eager")
same(g(x), f(x) + 1)
h = torch.compile(f, backend="eager")
same(C(lambda v: h(v) + 1)(longer), f(longer) + 1)
""",
    "copies": """
same(copy.deepcopy(cnet)(x), net(x))
same(pickle.loads(pickle.dumps(cnet))(x), net(x))
file = io.BytesIO()
torch.save(cnet, file)
file.seek(0)
same(torch.load(file, weights_only=False)(x), net(x))
same(nn.DataParallel(cnet)(x), net(x))
""",
    "a profiler": """
with torch.profiler.profile() as p:
    same(c(x), f(x))
    same(c(longer), f(longer))
p.key_averages()
def g(x):
    with torch.profiler.profile():
        return f(x)
same(C(g)(x), f(x))
""",
}


ORDERS = [(name, warm, "1") for name in CASES for warm in (False, True)]
ORDERS += [(name, False, "0") for name in ("jit.trace of a module", "jit.trace and save inside", "jit.trace of breaks", "make_fx")]

SERVER = """
import json, os, sys, traceback
import torch, pliant
import torch._dynamo, torch.fx.experimental.proxy_tensor, torch.utils.flop_counter, torch.onnx
for program, path in json.load(sys.stdin):
    child = os.fork()
    if child == 0:
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT), 2)
        try:
            exec(compile(program, "<case>", "exec"), globals())
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""
"""Each program in a process of its own, which begins with what all of them import."""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple, tuple[str, str]]:
    """By order: the exit status, and what was written to stderr."""
    folder = tmp_path_factory.mktemp("cases")
    found = {}
    for strict in ("1", "0"):
        orders = [o for o in ORDERS if o[2] == strict]
        programs = []
        for i, (name, warm, _) in enumerate(orders):
            end = "assert not pliant.stats()['fallbacks']" if strict == "1" else ""
            programs.append((f"WARM = {warm}\n{PRELUDE}{CASES[name]}\n{end}\n", str(folder / f"{strict}{i}")))
        env = os.environ | {"PLIANT_STRICT": strict}
        done = subprocess.run(
            [sys.executable, "-c", SERVER], env=env, input=json.dumps(programs), capture_output=True, text=True, timeout=280
        )
        statuses = done.stdout.split()
        assert len(statuses) == len(orders), done.stderr[-3000:]
        for order, status, (_, path) in zip(orders, statuses, programs, strict=True):
            found[order] = status, pathlib.Path(path).read_text()[-3000:]
    return found


@pytest.mark.parametrize("warm", [False, True], ids=["cold", "warm"])
@pytest.mark.parametrize("name", CASES)
def test_under_another_tracer(name: str, warm: bool, outcomes: dict) -> None:
    status, said = outcomes[name, warm, "1"]
    assert status == "0", said


@pytest.mark.parametrize("name", [name for name, _, strict in ORDERS if strict == "0"])
def test_without_strict(name: str, outcomes: dict) -> None:
    status, said = outcomes[name, False, "0"]
    assert status == "0", said
