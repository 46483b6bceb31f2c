"""Kernels for CUDA devices: answers held against float64, and speed beside eager and `torch.compile(dynamic=True)`.

    python -m benchmarks.gpu checks OUT.json [--only NAME]
    python -m benchmarks.gpu speed OUT.json [--only NAME] [--torch-compile]

On a machine with a GPU and Triton. Each program runs at several sizes; a program is wrong where pliant's error against float64 is
far larger than eager's, or where integers, dtypes or shapes differ. Times are medians of CUDA events; the sizes that are timed are new in
each round.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import statistics
import time
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from benchmarks import older_torch  # isort: skip  (it makes an older PyTorch do for a trial)
import pliant  # isort: skip
from pliant.codegen import target

assert older_torch

Make = Callable[[int], tuple]
DEVICE = os.environ.get("PLIANT_GPU_DEVICE", "cuda")
"""`cpu` with TRITON_INTERPRET=1 and PLIANT_TARGET=triton: the checks by Triton's interpreter, where no GPU is."""


def normal(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)), dtype=torch.float64).to(dtype)


def ints(*shape: int, low: int = -20, high: int = 20, dtype: torch.dtype = torch.int64) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(sum(shape))).to(dtype)


CHECKS: dict[str, tuple[Callable, Make]] = {}


def check(make: Make) -> Callable:
    def register(fn: Callable) -> Callable:
        CHECKS[fn.__name__] = (fn, make)
        return fn

    return register


@check(lambda n: (normal(n, 7), normal(7)))
def pointwise_chain(x, y):
    return ((x * 2 + y).relu() - 0.5) / (y.abs() + 1), (x > y) & (x < 1)


@check(lambda n: (normal(n, 5).abs(), normal(n, 5)))
def elementary(x, y):
    return (
        x.exp() + 1,
        x.log() * 2,
        y.tanh() * 2,
        y.sigmoid() - 1,
        (x + 1).sqrt() + y.sin() + y.cos(),
        torch.erf(y) + 1,
        x.rsqrt() * 2,
        y.expm1() + x.log1p(),
    )


@check(lambda n: (normal(n, 5, dtype=torch.float64).abs(), normal(n, 5, dtype=torch.float64)))
def elementary_f64(x, y):
    return x.exp() + 1, x.log() * 2, y.tanh() * 2, y.sigmoid() - 1, (x + 1).sqrt() + y.sin() + y.cos(), torch.erf(y) + 1, x.rsqrt() * 2


@check(lambda n: (normal(n, 33), normal(n, 33)))
def gelu_silu(x, y):
    return F.gelu(x) * y, F.gelu(x, approximate="tanh") + y, F.silu(x) * y, F.softplus(x) + F.elu(y), F.hardswish(x) * 2


@check(lambda n: (normal(n, 9), normal(9, n), normal(1, n, 1)))
def broadcast_transposed(x, y, z):
    return (x + y.t()) * 2, (x.t() * y + z).relu(), (x[None] + z.transpose(1, 1)) * 3


@check(lambda n: (normal(2 * n, 12),))
def strided_views(x):
    a, b = x[::2, 1:7], x[1::2, 6:]
    return a * b + a.flip(0), (a.unsqueeze(1) * b.unsqueeze(2)).relu(), torch.cat([a * 2, b + 1], 1)


@check(lambda n: (normal(n, 64), normal(3, n)))
def sums(x, y):
    return (x * 2).sum(-1), (x * x).sum(0), (y + 1).sum(), (x + 1).mean((0, 1)), (x.abs() + 1).sum(-1, keepdim=True) * x


@check(lambda n: (normal(n, 3, 40), ints(n, 6)))
def reductions(x, i):
    return (
        (x * 2).amax(-1),
        (x + 1).amin((0, 2)) if x.numel() else x.sum((0, 2)),
        (x * 3).argmax(-1),
        (i * 2).sum(-1),
        (i + 1).amax(1),
        (x > 0).any(-1),
        (x > -9).all(-1),
        (x * x).prod(-1),
    )


@check(lambda n: (normal(n, 50).masked_fill(normal(n, 50, seed=3) > 2, float("nan")),))
def nan_propagates(x):
    return (x * 2).amax(-1), (x + 1).argmax(-1), torch.maximum(x * 2, x.flip(1) + 1), (x * 2).clamp(-1, 1), x.relu() + 1, (x * 2).sum(0)


@check(lambda n: (normal(n, 100),))
def softmax(x):
    return torch.softmax(x * 2, -1), torch.log_softmax(x + 1, -1), torch.logsumexp(x * 3, -1), (x * 2).var(-1)


@check(lambda n: (normal(4, n + 1, 5),))
def softmax_dim1(x):
    return torch.softmax(x * 2, 1), (x * 2).sum(1), (x + 1).mean((0, 1))


@check(lambda n: (normal(n, 96), normal(96), normal(96)))
def layer_norm(x, w, b):
    return F.layer_norm(x * 2, (96,), w, b) + 1, x * (x.pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt() * w


@check(lambda n: (normal(n, 8, 6, 5), normal(8), normal(8)))
def group_norm(x, w, b):
    return F.group_norm(x * 2, 2, w, b).relu()


@check(lambda n: (normal(n, 64, dtype=torch.bfloat16), normal(64, dtype=torch.bfloat16)))
def bf16_chain(x, y):
    return F.gelu(x * 2 + y) * y, torch.softmax(x * 2, -1), F.layer_norm(x + 1, (64,), y, y), (x * 2).sum(-1), (x + y).float() * 2


@check(lambda n: (normal(n, 64, dtype=torch.float16), normal(64, dtype=torch.float16)))
def f16_chain(x, y):
    return F.gelu(x * 2 + y) * y, torch.softmax(x * 2, -1), F.layer_norm(x + 1, (64,), y, y), (x * 2).amax(-1), (x + y).double() * 2


@check(lambda n: (ints(n, 9), ints(9, low=1, high=7), ints(n, 9, dtype=torch.int32), ints(n, 9, low=0, dtype=torch.uint8)))
def integers(a, b, c, u):
    return (
        (a // b) * 2,
        (a % b) + 1,
        torch.div(a, b, rounding_mode="trunc") - 1,
        (c * c) ^ c,
        (c << 2) | 1,
        (c >> 1) & 3,
        (u * 20) + 3,
        (a * 2).float() / 3,
        (~c) + 1,
        -(a * 3),
    )


@check(lambda n: (normal(n, 9) * 100,))
def conversions(x):
    return (
        (x * 2).long() + 1,
        (x * 2).int() - 1,
        ((x * 2).to(torch.int16) + 1),
        (x + 0.5).bool() | (x > 9),
        (x.abs() + 1).to(torch.uint8) + 1,
        (x * 2).half() + 1,
    )


@check(lambda n: (normal(n, 9), normal(n, 9, seed=5).abs() + 0.1))
def float_division(x, y):
    return (
        x // y + 1,
        x % y + 1,
        torch.fmod(x, y) * 2,
        torch.div(x, y, rounding_mode="trunc") + 1,
        x / y + 1,
        (x * 2).round() + x.floor() - x.ceil() + x.trunc(),
        (x * 2).sign() + 1,
        torch.atan2(x, y) * 2,
        (y * 2).pow(x) + 1,
    )


@check(lambda n: (normal(n, 20),))
def conditionals(x):
    return torch.where(x > 0, x * 2, -x), (x * 2).masked_fill(x < 0, 3.0), (x + 1).tril(), (x * 2).clamp(min=0), F.pad(x * 2, (1, 2)) + 1


@check(lambda n: (normal(2, 4, n, 16), normal(2, 4, n, 16), normal(2, 4, n, 16)))
def attention_by_hand(q, k, v):
    n = q.shape[-2]
    s = q @ k.transpose(-1, -2) / 4
    mask = torch.ones(n, n, dtype=torch.bool, device=q.device).tril()
    return s.masked_fill(~mask, float("-inf")).softmax(-1) @ v


@check(lambda n: (normal(2, n, 64), torch.arange(n)))
def rotary(x, at):
    angle = at[:, None] * (10000.0 ** (-torch.arange(0, 32, device=x.device) / 32))
    c, s = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)
    half = torch.cat([-x[..., 32:], x[..., :32]], -1)
    return x * c + half * s


@check(lambda n: (normal(n, 32), ints(n, low=0, high=5)))
def gathers(x, i):
    table = torch.linspace(0, 1, 5 * 32, device=x.device).view(5, 32)
    return F.embedding(i, table) * x, (x * 2)[:, i % 5] if x.shape[0] else x * 2, x.gather(1, i[:, None]) + 1, F.one_hot(i, 5) * 2


@check(lambda n: (normal(n, 10), ints(n, low=0, high=10)))
def losses(x, y):
    return (
        F.cross_entropy(x * 2, y),
        F.mse_loss(x, x * 2),
        F.smooth_l1_loss(x, x + 2),
        F.binary_cross_entropy_with_logits(x, (x > 0).float()),
    )


@check(lambda n: (normal(n, 40),))
def in_place(x):
    y = x * 2
    y += 1
    y[:, ::2] *= 3
    y.relu_().add_(x)
    x.mul_(2).add_(1)
    return y, x.sum(-1)


@check(lambda n: (normal(n, 6), normal(6)))
def mixed_devices(x, y):
    host = torch.arange(6, dtype=torch.float32) * 2 + 1  # on the CPU
    scale = torch.tensor(2.0) * 3
    return (x * scale + y).relu(), (host * host).sum(), x + host.to(x.device) * 2


@check(lambda n: (normal(n, 8),))
def scans(x):
    return (x * 2).cumsum(-1) + 1, (x + 1).cumsum(0) * 2, (x * 2).sort(-1).values + 1, (x + 1).topk(3, -1).values * 2


@check(lambda n: (normal(n, 3, 16, 16),))
def images(x):
    return F.avg_pool2d(x * 2, 2) + 1, F.max_pool2d(x + 1, 2) * 2, F.interpolate(x * 2, scale_factor=2, mode="nearest") + 1


@check(lambda n: tuple(normal(n + 3 * i, 8) for i in range(3)))
def ragged_features(a, b, c):
    return (
        torch.cat([(t * 2).sum(0, keepdim=True) for t in (a, b, c)]),
        torch.cat([a.relu() * 2, b + 1, c]),
        [t.softmax(0) if t.shape[0] else t for t in (a, b, c)],
    )


def modules() -> dict[str, tuple[torch.nn.Module, Make]]:
    torch.manual_seed(0)
    nn = torch.nn
    mlp = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 8))
    conv = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 4, 3),
        nn.BatchNorm2d(4),
        nn.SiLU(),
        nn.AdaptiveAvgPool2d(1),
    )
    block = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, activation="gelu", batch_first=True, norm_first=True)
    return {
        "mlp": (mlp, lambda n: (normal(n, 32),)),
        "convolutions": (conv, lambda n: (normal(n + 1, 3, 12, 12),)),
        "transformer_block": (block, lambda n: (normal(2, n + 1, 64),)),
        "gpt_block": (Block(64, 4), lambda n: (normal(2, n + 1, 64),)),
    }


class Block(torch.nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        nn = torch.nn
        self.heads = heads
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, w = x.shape
        q, k, v = [t.view(b, n, self.heads, w // self.heads).transpose(1, 2) for t in self.qkv(self.first(x)).chunk(3, -1)]
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, w)
        x = x + self.out(a)
        return x + self.down(F.gelu(self.up(self.second(x)), approximate="tanh"))


# -- comparing ---------------------------------------------------------------------------------------------------------------
def leaves(tree: Any) -> list[Any]:
    return torch.utils._pytree.tree_leaves(tree)


def moved(tree: Any, to: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda t: t.to(to) if isinstance(t, torch.Tensor) else t, tree)


def doubled(tree: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda t: t.double() if isinstance(t, torch.Tensor) and t.is_floating_point() else t, tree)


def distance(a: torch.Tensor, exact: torch.Tensor) -> float:
    """How far `a` is from the exact answer, relative to its size; NaN and infinities in other places count as infinite."""
    a, exact = a.double().cpu(), exact.double().cpu()
    if not a.numel():
        return 0.0
    odd = ~torch.isfinite(exact)
    if not torch.equal(odd, ~torch.isfinite(a)) or not torch.equal(a[odd].nan_to_num(7e7), exact[odd].nan_to_num(7e7)):
        return float("inf")
    return float(((a - exact)[~odd].abs() / exact[~odd].abs().clamp(min=1)).max()) if (~odd).any() else 0.0


TINY = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 1e-2, torch.float16: 1.5e-3}


def judge(got: list, want: list, exact: list, slack: float = 1) -> str:
    """ "" where `got` is as right as eager's `want`; else what is wrong."""
    if len(got) != len(want):
        return f"{len(got)} results for {len(want)}"
    for i, (g, w, e) in enumerate(zip(got, want, exact, strict=True)):
        if not isinstance(w, torch.Tensor):
            if g != w:
                return f"result {i}: {g} for {w}"
            continue
        if g.shape != w.shape or g.dtype is not w.dtype or g.device != w.device or g.stride() != w.stride():
            return (
                f"result {i}: {g.dtype}{tuple(g.shape)}{g.stride()} on {g.device} for {w.dtype}{tuple(w.shape)}{w.stride()} on {w.device}"
            )
        if not w.is_floating_point():
            if not torch.equal(g, w):
                return f"result {i}: {int((g != w).sum())} of {w.numel()} differ"
            continue
        mine, theirs = distance(g, e), distance(w, e)
        if not mine <= 4 * theirs + slack * TINY.get(w.dtype, 0):
            direct = distance(g, w)
            if not direct <= slack * TINY.get(w.dtype, 0):
                return f"result {i}: {mine:.3g} from float64, eager {theirs:.3g}, from eager {direct:.3g}"
    return ""


SIZES = (5, 1, 0, 2, 17, 300, 64, 1025)


def run_check(fn: Callable, make: Make, sizes: tuple) -> dict:
    compiled, wrong = pliant.compile(fn), []
    for n in sizes:
        try:
            args = make(n)
        except Exception as e:
            wrong.append(f"{n}: {e!r}")
            continue
        results = []
        for f, given in ((compiled, moved(args, DEVICE)), (fn, moved(args, DEVICE)), (fn, moved(doubled(args), DEVICE))):
            try:
                results.append((leaves([f(*given), given]), None))
            except Exception as e:
                results.append((None, e))
        (got, e1), (want, e2), (exact, _) = results
        if e1 is not None or e2 is not None:
            if e2 is None:
                wrong.append(f"{n}: raised {type(e1).__name__}: {str(e1)[:1500]}\n" + "".join(traceback.format_tb(e1.__traceback__)[-4:]))
            elif e1 is None:
                wrong.append(f"{n}: did not raise {type(e2).__name__}")
            continue
        found = judge(got, want, exact if exact is not None else want)
        if found:
            wrong.append(f"{n}: {found}")
    return {"wrong": wrong}


def train(module: torch.nn.Module, forward: Callable, args: tuple) -> list[torch.Tensor]:
    module.zero_grad()
    x = args[0].clone().requires_grad_(True)
    out = forward(x)
    out.square().sum().backward()
    return [out.detach(), x.grad, *[p.grad for p in module.parameters()]]


def run_module(module: torch.nn.Module, make: Make, sizes: tuple) -> dict:
    wrong = []
    ours, theirs, exact = (copy.deepcopy(module).to(DEVICE) for _ in range(3))
    exact = exact.double()
    compiled = pliant.compile(ours)
    for training in (False, True):
        for m in (ours, theirs, exact):
            m.train(training)
        for n in sizes:
            args = moved(make(n), DEVICE)
            try:
                if training:
                    got, want, right = train(ours, compiled, args), train(theirs, theirs, args), train(exact, exact, doubled(args))
                else:
                    with torch.no_grad():
                        got, want, right = [compiled(*args)], [theirs(*args)], [exact(*doubled(args))]
            except Exception as e:
                wrong.append(f"{n} {training}: {type(e).__name__}: {str(e)[:1500]}\n" + "".join(traceback.format_tb(e.__traceback__)[-4:]))
                continue
            strides = [g.contiguous() if g is not None else None for g in got], [w.contiguous() if w is not None else None for w in want]
            found = judge(*strides, right, slack=8)
            if found:
                wrong.append(f"{n} {'training' if training else 'inference'}: {found}")
    return {"wrong": wrong}


def run_streams() -> dict:
    """Kernels run on the stream that is current, behind what it has to do."""
    fn = pliant.compile(lambda x: (x * 2 + 1).relu())
    wrong = []
    fn(torch.ones(1000, device="cuda"))
    for n in (1 << 20, 1 << 22):
        side = torch.cuda.Stream()
        x = torch.zeros(n, device="cuda")
        torch.cuda.synchronize()
        with torch.cuda.stream(side):
            torch.cuda._sleep(50_000_000)
            x.fill_(3)
            y = fn(x)
            done = side.record_event()
        if done.query():
            wrong.append(f"{n}: the launch waited")
        side.synchronize()
        if not bool((y == 7).all()):
            wrong.append(f"{n}: ran before its stream")
    return {"wrong": wrong}


def run_graphs() -> dict:
    """A CUDA graph of compiled calls."""
    fn = pliant.compile(lambda x: torch.softmax(x * 2 + 1, -1))
    x = torch.randn(64, 100, device="cuda")
    for _ in range(3):
        fn(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = fn(x)
    x.normal_()
    graph.replay()
    torch.cuda.synchronize()
    return {"wrong": [] if torch.allclose(y, torch.softmax(x * 2 + 1, -1), atol=1e-6) else ["the replay gives another answer"]}


def run_large() -> dict:
    """More than 2**31 elements."""
    fn = pliant.compile(lambda x: (x * 2 + 1).abs())
    x = torch.ones(2**31 + 5000, dtype=torch.int8, device="cuda")
    x[-7:] = 5
    y = fn(x)
    wrong = [] if int(y[-7:].sum()) == 77 and int(y[:9].sum()) == 27 and int(y[2**31 - 3 : 2**31 + 3].sum()) == 18 else ["values"]
    return {"wrong": wrong}


def run_checks(only: str, sizes: tuple) -> dict:
    out: dict = {}
    jobs: dict[str, Callable[[], dict]] = {name: lambda fn=fn, make=make: run_check(fn, make, sizes) for name, (fn, make) in CHECKS.items()}
    jobs |= {name: lambda m=m, make=make: run_module(m, make, sizes[:1] + sizes[3:6]) for name, (m, make) in modules().items()}
    if DEVICE == "cuda":
        jobs |= {"streams": run_streams, "cuda_graphs": run_graphs, "large": run_large}
    for name, job in jobs.items():
        if only and only not in name:
            continue
        start, before = time.time(), len(launchers())
        try:
            row = job()
        except Exception as e:
            row = {"wrong": [f"{type(e).__name__}: {str(e)[:1500]}\n" + "".join(traceback.format_tb(e.__traceback__)[-5:])]}
        row |= {"kernels": len(launchers()) - before, "seconds": round(time.time() - start, 1)}
        out[name] = row
        print(f"{name:22} {row['kernels']:3} kernels {row['seconds']:6} s  {'ok' if not row['wrong'] else 'WRONG'}", flush=True)
        for line in row["wrong"][:4]:
            print("    " + line.replace("\n", "\n      "), flush=True)
    return out


def launchers() -> dict:
    return target.named("triton").launchers  # type: ignore[attr-defined]


# -- speed --------------------------------------------------------------------------------------------------------------------
def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def speeds() -> dict[str, tuple[Callable, Make, int]]:
    """Programs, their arguments at a size, and a typical size."""
    cuda = {"device": "cuda"}
    block = Block(768, 12).cuda().bfloat16()

    def chain(x, y):
        return F.gelu(x * 2 + y) * (x - 1) + y.tanh()

    def norm(x, w, b):
        return F.layer_norm(x * 2 + 1, (1024,), w, b) * x

    def rms(x, w):
        return (x.float() * (x.float().pow(2).mean(-1, keepdim=True) + 1e-5).rsqrt()).to(x.dtype) * w

    def soft(x):
        return torch.softmax(x / 8 + 1, -1) * 2

    def wide(x, b):
        return (x + b).relu().sum(0)

    def swiglu(x, y):
        return F.silu(x) * y

    w, b, w768 = torch.randn(1024, **cuda), torch.randn(1024, **cuda), half(768)
    return {
        "pointwise f32": (chain, lambda n: (torch.randn(n, 1024, **cuda), torch.randn(n, 1024, **cuda)), 8192),
        "pointwise small": (chain, lambda n: (torch.randn(n, 64, **cuda), torch.randn(n, 64, **cuda)), 128),
        "layer norm f32": (norm, lambda n: (torch.randn(n, 1024, **cuda), w, b), 8192),
        "rms norm bf16": (rms, lambda n: (half(n, 768), w768), 16384),
        "softmax f32": (soft, lambda n: (torch.randn(4096, n, **cuda),), 1000),
        "swiglu bf16": (swiglu, lambda n: (half(n, 3072), half(n, 3072)), 8192),
        "bias relu sum(0)": (wide, lambda n: (torch.randn(n, 1024, **cuda), b), 8192),
        "gpt block bf16": (lambda x: block(x), lambda n: (half(8, n, 768),), 512),
    }


def median_ms(fn: Callable, make: Make, size: int, rounds: int) -> tuple[float, float]:
    """(milliseconds of the device, of the host to launch), over sizes that are new in each round."""
    device, host = [], []
    for i in range(rounds):
        args = make(size + 1 + i)
        fn(*args)
        torch.cuda.synchronize()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(5):
            fn(*args)
        end.record()
        torch.cuda.synchronize()
        device.append(begin.elapsed_time(end) / 5)
        start = time.perf_counter()
        fn(*args)
        host.append((time.perf_counter() - start) * 1e3)
        torch.cuda.synchronize()
    return statistics.median(device), statistics.median(host)


def run_speed(only: str, beside: bool) -> dict:
    out: dict = {}
    with torch.no_grad():
        for name, (fn, make, size) in speeds().items():
            if only and only not in name:
                continue
            row: dict = {}
            ways = {"eager": fn, "pliant": pliant.compile(fn)} | ({"torch.compile": torch.compile(fn, dynamic=True)} if beside else {})
            for way, f in ways.items():
                try:
                    start = time.time()
                    f(*make(size))
                    f(*make(size + 100))
                    torch.cuda.synchronize()
                    row[way + " first"] = round(time.time() - start, 2)
                    row[way], row[way + " host"] = (round(v, 4) for v in median_ms(f, make, size, 15))
                except Exception as e:
                    row[way + " error"] = f"{type(e).__name__}: {str(e)[:300]}"
            out[name] = row
            print(f"{name:20} {row}", flush=True)
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("checks", "speed"))
    parser.add_argument("out")
    parser.add_argument("--only", default="")
    parser.add_argument("--torch-compile", action="store_true")
    options = parser.parse_args()
    sizes = SIZES if DEVICE == "cuda" else (5, 1, 0, 3)
    found = run_checks(options.only, sizes) if options.what == "checks" else run_speed(options.only, options.torch_compile)
    about = {"torch": torch.__version__, "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "none"}
    with open(options.out, "w") as file:
        json.dump({"about": about, options.what: found}, file, indent=1)
    if options.what == "checks":
        print(f"{sum(not row['wrong'] for row in found.values())} of {len(found)} right; {about}; {pliant.stats()}")


if __name__ == "__main__":
    main()
