"""Random programs over random placements against one process: `python -m benchmarks.remote --fuzz 1000`.

A program is a function of a few tensors of float64, float32 or int64, made of operators, views, writes and, in some, gradients. It runs in
this process, and compiled on a mesh of threads, at several sizes, with its arguments placed at random. Values, dtypes, sizes, what was
written and exceptions must agree.
"""

from __future__ import annotations

import contextlib
import random
import time
import traceback
from typing import Any

import torch

import pliant
from pliant import remote

UNARY = ["torch.relu({})", "{} * 2 - 1", "-{}", "torch.sigmoid({})", "torch.tanh({})", "{}.abs()", "{}.clone()", "torch.exp(-{}.abs())",
         "{} / 3", "torch.where({0} > 0, {0}, 0.1 * {0})", "{}.clamp(-1, 1)", "torch.nn.functional.gelu({})", "({} > 0).to({}.dtype)",
         "{}.float().double()", "torch.zeros_like({}) + 1", "torch.nn.functional.silu({})", "{}.detach()"]  # fmt: skip
BINARY = ["{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.atan2({}, {})", "torch.where({0} > {1}, {0}, {1})",
          "torch.lerp({}, {}, 0.3)", "torch.addcmul({0}, {0}, {1}, value=0.5)"]  # fmt: skip
REDUCE = ["{x}.sum({d})", "{x}.mean({d})", "{x}.sum({d}, keepdim=True)", "{x}.mean({d}, keepdim=True)", "{x}.amax({d})",
          "{x}.var({d}, correction=0)",
          "torch.softmax({x}, {d})", "torch.log_softmax({x}, {d})", "{x}.cumsum({d})", "{x}.argmax({d}).to({x}.dtype)",
          "{x}.logsumexp({d})",
          "{x}.sort({d}).values", "{x}.flip({d})", "{x}.norm(dim={d})", "{x}.any({d}).to({x}.dtype)",
          "{x}.std({d}, correction=0)",
          "{x}.unbind({d})[0]", "{x}.select({d}, 0)", "{x}.narrow({d}, 0, 1)", "torch.cat([{x}, {x}], {d})", "torch.stack([{x}, {x}], {d})",
          "{x}[..., :1]", "{x}.index_select({d}, torch.tensor([0, 0]))", "{x}.median({d}).values", "{x}.roll(1, {d})", "{x}.cumprod({d})",
          "{x}.split(1, {d})[0]", "{x}.gather({d}, {x}.argsort({d}))", "torch.nn.functional.pad({x}, (1, 1))"]  # fmt: skip
VIEWS = ["{x}.transpose(0, -1)", "{x}.flatten()", "{x}.reshape(-1)", "{x}.unsqueeze({d})", "{x}.flatten(0, 1)",
         "{x}.permute(*range({n} - 1, -1, -1))",
         "{x}.reshape({x}.shape[0], -1)", "{x}.reshape(-1, {x}.shape[-1])", "{x}.unsqueeze(0).expand(2, *{x}.shape)", "{x}.squeeze()",
         "{x}.reshape({x}.shape)", "{x}.flatten(0, 1).unflatten(0, ({x}.shape[0], {x}.shape[1]))", "{x}.contiguous()",
         "{x}.movedim(0, -1)"]  # fmt: skip
WRITES = ["{x}.add_({y})", "{x}.mul_(0.5)", "{x}.copy_({y})", "{x}.zero_()", "{x}.clamp_(min=0)", "{x}.sub_({y} * 0.1)",
          "{x}[..., 0] = 1", "{x}[0] = 0.5",
          "{x}.masked_fill_({x} > 0, 0.3)", "{x}.transpose(0, -1).add_(1)", "{x}.select({d}, 0).mul_(3)"]  # fmt: skip
ROWS_OF_Y = "{y}.reshape(-1, {y}.shape[-1])"
AS_HEADS = "{}[None, None].flatten(0, -3)"
PRODUCTS = [
    "{x} @ {y}.transpose(-1, -2)", "{x}.transpose(-1, -2) @ {y}", "torch.einsum('...i,...i->...', {x}, {y})",
    f"torch.nn.functional.linear({{x}}, {ROWS_OF_Y})",
    f"torch.nn.functional.linear({{x}}, {ROWS_OF_Y}, {ROWS_OF_Y}.sum(-1))",
    "torch.nn.functional.layer_norm({x}, {x}.shape[-1:])",
    "torch.nn.functional.layer_norm({x}, {x}.shape[-1:], {y}.flatten(0, -2).sum(0))",
    "torch.nn.functional.embedding({x}.abs().long() % {y}.shape[0], {y}.reshape({y}.shape[0], -1))",
    f"torch.nn.functional.cross_entropy({{x}}.reshape(-1, {{x}}.shape[-1]), {ROWS_OF_Y}.argmax(-1) % {{x}}.shape[-1])",
    "torch.nn.functional.mse_loss({x}, {y})",
    f"torch.nn.functional.scaled_dot_product_attention({AS_HEADS.format('{x}')}, {AS_HEADS.format('{y}')}, {AS_HEADS.format('{y}')})",
]


class Maker:
    """One random program as text."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.lines: list[str] = []
        self.same: dict[str, int] = {}  # variables -> a number for their sizes

    def text(self, grads: bool) -> tuple[str, int]:
        rng = self.rng
        n = rng.randint(2, 4)
        names = [f"a{i}" for i in range(n)]
        ops = rng.randint(2, 9)
        pool = list(names)
        for i in range(ops):
            x, y = rng.choice(pool[-5:]), rng.choice(pool)
            kind = rng.choices(("u", "b", "r", "v", "p", "w"), (2, 4, 4, 3, 3, 1 if not grads else 0))[0]
            d = rng.choice((0, -1, 1))
            form = {"u": UNARY, "b": BINARY, "r": REDUCE, "v": VIEWS, "p": PRODUCTS, "w": WRITES}[kind]
            shape = rng.choice(form)
            if kind == "u" or kind == "b":
                text = shape.format(x, y if kind == "b" else x)
            else:
                text = shape.format(x=x, y=y, d=d, n=f"{x}.dim()")
            if kind == "w":
                self.lines.append(text)
            else:
                self.lines.append(f"v{i} = {text}")
                pool.append(f"v{i}")
        made = [v for v in pool if v not in names]
        out = ", ".join(made[-3:]) or names[0]
        body = [f"    {line}" for line in self.lines]
        if grads:
            total = " + ".join(f"{v}.double().square().mean()" for v in made[-2:] or names[:1])
            body += [f"    loss = {total}", "    loss.backward()", f"    return loss, {out}"]
        else:
            body.append(f"    return {out},")
        return f"def f({', '.join(names)}):\n" + "\n".join(body) + "\n", n


def arguments(rng: random.Random, shapes: list[str], sizes: dict[str, int], dtype: torch.dtype, grads: bool) -> list[torch.Tensor]:
    out = []
    for shape in shapes:
        t = torch.randn([sizes[c] for c in shape], dtype=torch.float64).to(dtype)
        out.append(t.requires_grad_(grads))
    return out


def answer(f: Any, args: list[Any]) -> tuple[str, Any]:
    try:
        out = f(*args)
        found = [x.cpu().detach() if isinstance(x, torch.Tensor) else x for x in out]
        after = [x.cpu().detach() for x in args]
        grads = [None if x.grad is None else x.grad.cpu().detach() for x in args]
        return "value", (found, after, grads)
    except remote.Refused as e:
        return "refused", str(e)
    except Exception as e:
        return "error", f"{type(e).__name__}: {e}"


def agree(a: Any, b: Any, tolerance: float) -> str:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        if a.dtype is not b.dtype or a.shape != b.shape:
            return f"{a.dtype} {tuple(a.shape)} and {b.dtype} {tuple(b.shape)}"
        if not torch.allclose(a.double(), b.double(), rtol=tolerance, atol=tolerance, equal_nan=True):
            return f"differ by {(a.double() - b.double()).abs().max().item():g}"
        return ""
    if isinstance(a, (list, tuple)):
        return next((w for x, y in zip(a, b, strict=True) if (w := agree(x, y, tolerance))), "")
    return "" if a == b else f"{a!r} and {b!r}"


def one(mesh: Any, seed: int) -> tuple[str, str]:
    """(what came of it, the program and why)."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    grads = rng.random() < 0.4
    text, n = Maker(rng).text(grads)
    dtype = rng.choice((torch.float64, torch.float64, torch.float32))
    rank = rng.choice((2, 2, 3))
    base = "BC" if rank == 2 else "BTC"
    shapes = [base if rng.random() < 0.75 else base[rng.randint(0, rank - 1) :] for _ in range(n)]
    if rng.random() < 0.2:
        shapes[-1] = "B" + "1" * (rank - 2) + "C" if rank > 2 else "B1"
    space: dict[str, Any] = {"torch": torch}
    exec(compile(text, f"<program {seed}>", "exec"), space)
    f = space["f"]
    compiled = pliant.compile(f, on=mesh)
    places = [rng.choice(["r", *range(len(s))]) for s in shapes]
    told = f"# seed {seed}, {dtype}, {shapes}, {places}, grads {grads}\n{text}"
    kept = "raises"
    for round_ in range(3):
        sizes = {"B": rng.choice((1, 2, 3, 4, 6, 7, 8, 9)), "T": rng.choice((2, 3, 4, 5)), "C": rng.choice((2, 3, 4, 6, 8)), "1": 1}
        args = arguments(rng, shapes, sizes, dtype, grads)
        twins = [t.detach().clone() for t in args]
        put = [(mesh.replicate(t) if p == "r" else mesh.shard(t, p)).requires_grad_(grads) for t, p in zip(twins, places, strict=True)]
        torch.manual_seed(seed + round_)
        want = answer(f, args)
        got = answer(compiled, put)
        with contextlib.suppress(remote.RemoteError):  # what a program that raised anyway left behind
            mesh.synchronize()
        if got[0] == "refused":
            kept = "refused"
            continue
        if want[0] == "error" and "refer to a single memory location" in want[1]:
            continue  # pieces that overlap here lie apart there
        if want[0] != got[0]:
            return "wrong", f"{told}{sizes}: {want[0]} {str(want[1])[:300]} here, {got[0]} {str(got[1])[:600]} there"
        if want[0] == "error":
            continue
        kept = "right" if kept == "raises" else kept
        why = agree(want[1], got[1], 1e-9 if dtype is torch.float64 else 1e-3)
        if why:
            return "wrong", f"{told}{sizes}: {why}"
    return kept, told


def fuzz(count: int, seed: int, workers: int, seconds: float, verbose: bool = True) -> dict[str, int]:
    counts = {"right": 0, "raises": 0, "refused": 0, "wrong": 0}
    began = time.time()
    mesh = remote.mesh(workers, transport="threads", timeout=60, recover=False)
    for i in range(seed, seed + count):
        if time.time() - began > seconds:
            break
        try:
            what, told = one(mesh, i)
        except Exception:
            what, told = "wrong", f"# seed {i}\n{traceback.format_exc()}"
            mesh.close()
            mesh = remote.mesh(workers, transport="threads", timeout=60, recover=False)
        counts[what] += 1
        if what == "wrong" and verbose:
            print(told, flush=True)
        if i % 20 == 0:
            pliant.reset()
    mesh.close()
    return counts
