"""Functions and modules of distributed tensors, compiled beside eager in two processes: parts, placements, layouts, gradients."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed import _functional_collectives as functional
from torch.distributed._functional_collectives import AsyncCollectiveTensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.experimental import implicit_replication
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import pliant

CASES: dict[str, Callable[[int], dict]] = {}
LENGTHS = (4, 6, 5, 4)
PLACEMENTS = {"whole": Replicate(), "rows": Shard(0), "columns": Shard(1), "to be summed": Partial()}
PAIRS = (("whole", "whole"), ("rows", "rows"), ("columns", "columns"), ("to be summed", "whole"))
WITH_GRADIENTS = (("rows", "whole"), ("columns", "columns"))

FUNCTIONS: dict[str, Callable] = {
    "sum of two": lambda a, b: a + b,
    "a number": lambda a, b: a * 2.5 - 1,
    "activation": lambda a, b: F.gelu(a),
    "mean": lambda a, b: a.mean(1),
    "largest": lambda a, b: a.max(),
    "softmax": lambda a, b: F.softmax(a, -1),
    "product": lambda a, b: a @ b.t(),
    "transposed product": lambda a, b: a.t() @ b,
    "linear": lambda a, b: F.linear(a, b),
    "view": lambda a, b: a.view(a.shape[0], 2, -1),
    "transposed": lambda a, b: a.t(),
    "concatenated": lambda a, b: torch.cat([a, b], 1),
    "parts": lambda a, b: a.chunk(2, 1)[1],
    "slice": lambda a, b: a[1:],
    "chosen": lambda a, b: torch.where(a > 0, a, b),
    "normalized": lambda a, b: F.layer_norm(a, (a.shape[1],)),
    "sizes": lambda a, b: a * a.shape[0] + a.size(1) / a.numel(),
    "other dtype": lambda a, b: a.double(),
    "own part": lambda a, b: a.to_local() * a.to_local().shape[0],
    "made of a part": lambda a, b: DTensor.from_local(a.to_local() * 2, a.device_mesh, [Shard(0)]) + 1,
    "redistributed": lambda a, b: a.redistribute(placements=[Replicate()]) * 2,
    "into rows": lambda a, b: a.redistribute(placements=[Shard(0)]) + 1,
    "into columns": lambda a, b: a.redistribute(placements=[Shard(1)]),
    "whole tensor": lambda a, b: a.full_tensor() + 1,
    "placement asked": lambda a, b: a * 2 if a.placements[0].is_shard() else a * 3,
    "placements compared": lambda a, b: a + b if a.placements == b.placements else a,
    "mesh asked": lambda a, b: a * a.device_mesh.size() + a.device_mesh.get_local_rank(),
    "written": lambda a, b: a.clone().add_(b),
    "argument written": lambda a, b: (a.add_(1), a * 2)[1],
    "several results": lambda a, b: {"x": (a + b, a.placements), "y": a.shape},
    "chain": lambda a, b: F.gelu(F.linear(a, b)) @ b * 0.5 + a,
    "mixed with plain": lambda a, b: a + torch.ones(a.shape),
    "asked for data": lambda a, b: a * 2 if a.sum().full_tensor().item() > 0 else a * 3,
}


def settled(t: Any) -> Any:
    """A result whose collectives have been waited for: eager gives tensors that wait when they are used."""
    if type(t) in (tuple, list):
        return type(t)(map(settled, t))
    if type(t) is dict:
        return {k: settled(v) for k, v in t.items()}
    return t.wait() if isinstance(t, AsyncCollectiveTensor) else t


def check(want: Any, got: Any) -> None:
    """Same classes, placements, sizes, strides, parts."""
    assert type(want) is type(got), (type(want), type(got))
    if type(want) is DTensor:
        assert want.placements == got.placements and want._spec == got._spec
        assert (want.shape, want.stride(), want.requires_grad) == (got.shape, got.stride(), got.requires_grad)
        check(settled(want._local_tensor), settled(got._local_tensor))
    elif isinstance(want, torch.Tensor):
        assert (want.stride(), want.requires_grad) == (got.stride(), got.requires_grad)
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    elif type(want) in (tuple, list):
        for w, g in zip(want, got, strict=True):
            check(w, g)
    elif type(want) is dict:
        check(list(want.items()), list(got.items()))
    else:
        assert want == got


def answer(fn: Callable, args: list) -> tuple[Any, type | None]:
    try:
        return settled(fn(*args)), None
    except Exception as e:
        return None, type(e)


def arguments(mesh: Any, n: int, pair: tuple[str, str], grad: bool) -> list:
    g = torch.Generator().manual_seed(n)
    out = []
    for placed in pair:
        whole = torch.randn(n, 8, generator=g)
        if placed == "to be summed":
            t = DTensor.from_local(whole / 2, mesh, [Partial()], run_check=False)
        else:
            t = distribute_tensor(whole, mesh, [PLACEMENTS[placed]], src_data_rank=None)
        out.append(t.requires_grad_(grad))
    return out


def own_parts(v: Any) -> Any:
    return v.to_local() if type(v) is DTensor else v


def function(name: str, pair: tuple[str, str], grad: bool) -> Callable[[int], dict]:
    def case(rank: int) -> dict:
        mesh, fn = init_device_mesh("cpu", (2,)), FUNCTIONS[name]

        def program(a, b):
            out = fn(a, b)
            return own_parts(out) if grad else out

        compiled = pliant.compile(program)
        raised = 0
        for n in LENGTHS:
            xs, ys = arguments(mesh, n, pair, grad), arguments(mesh, n, pair, grad)
            (want, error), (got, ours) = answer(program, xs), answer(compiled, ys)
            assert error is ours, (error, ours)
            raised += error is not None
            if error is not None:
                continue
            check(want, got)
            if grad and isinstance(want, torch.Tensor) and want.requires_grad:
                told = [answer(lambda out: (out.float() * out.float()).sum().backward(), [out])[1] for out in (want, got)]
                assert told[0] is told[1], told
            for x, y in zip(xs, ys, strict=True):
                check(x.detach(), y.detach())
                check(x.grad, y.grad)
        return {"raised": raised}

    return case


# -- gradients that arrive at distributed results ------------------------------------------------------------------------
def ones_placed(t: Any, placement: Any) -> Any:
    ones = DTensor.from_local(torch.ones_like(t.to_local()), t.device_mesh, t.placements, run_check=False, shape=t.shape, stride=t.stride())
    return ones.redistribute(placements=[placement])


ARRIVING: dict[str, Callable] = {  # how the gradient of the result is placed: as it is, whole, in rows whatever the result is
    "as the result": lambda t: (t * t).sum(),
    "whole": lambda t: t.sum(),
    "rows": lambda t: (t * ones_placed(t, Shard(0))).sum(),
}


def arriving(name: str, pair: tuple[str, str]) -> Callable[[int], dict]:
    def case(rank: int) -> dict:
        mesh, fn = init_device_mesh("cpu", (2,)), FUNCTIONS[name]
        compiled = pliant.compile(fn)
        for n in LENGTHS:
            for loss in ARRIVING.values():
                xs, ys = arguments(mesh, n, pair, True), arguments(mesh, n, pair, True)
                for out in (fn(*xs), compiled(*ys)):
                    assert type(out) is DTensor and out.requires_grad
                    loss(out).full_tensor().backward()
                for x, y in zip(xs, ys, strict=True):
                    check(x.grad, y.grad)
        return {}

    return case


RESULTS = {f"result, {name}, {a}, {b}": arriving(name, (a, b)) for name, a, b in (
    ("sum of two", "rows", "whole"), ("linear", "rows", "rows"), ("transposed product", "rows", "rows"), ("softmax", "columns", "columns"),
    ("chain", "columns", "columns"), ("redistributed", "rows", "rows"),
)}  # fmt: skip
CASES |= RESULTS


def differentiated_twice(rank: int) -> dict:
    mesh = init_device_mesh("cpu", (2,))
    for fn in (lambda a, b: a * a * a * b, lambda a, b: (a * a * b).to_local(), lambda a, b: (a * b).sin()):
        compiled, found = pliant.compile(fn), []
        for f in (fn, compiled):
            a, b = arguments(mesh, 4, ("rows", "rows"), True)
            out = f(a, b)
            loss = (out * out).sum()
            (first,) = torch.autograd.grad(loss.full_tensor() if type(loss) is DTensor else loss, a, create_graph=True)
            (first * first).sum().full_tensor().backward()
            found.append([first.detach(), a.grad, b.grad])
        check(*found)
    return {}


# -- tensors that wait when they are used ----------------------------------------------------------------------------------
def begun(mesh: Any, n: int, how: str) -> tuple[Any, Any]:
    """Such a tensor, or a distributed one around one; with gradients, the leaf that it comes from."""
    x = torch.randn(n, 8, generator=torch.Generator().manual_seed(n)).requires_grad_("gradients" in how)
    if how == "plain":
        return functional.all_reduce(x, "sum", mesh), None
    t = DTensor.from_local(x, mesh, [Partial()], run_check=False).redistribute(placements=[Replicate()], async_op=True)
    return (t if "distributed" in how else t.to_local()), x if x.requires_grad else None


WAITING: dict[str, Callable] = {
    "used": lambda x: x * 2 + x.shape[0],
    "viewed": lambda x: x.t(),
    "given back": lambda x: (x, x.sum(1)),
    "in a collective": lambda x: functional.all_reduce(x.detach() * 2, "sum", torch.distributed.group.WORLD),
    "class asked": lambda x: (x.wait() if isinstance(x, AsyncCollectiveTensor) else x) * 3,
    "written": lambda x: x.detach().add_(1),
}


HOW = dict.fromkeys(WAITING, ("plain", "gradients"))
HOW |= {"used": ("plain", "gradients", "distributed, gradients"), "in a collective": ("plain",)}


def waiting(name: str, how: str) -> Callable[[int], dict]:
    def case(rank: int) -> dict:
        mesh, fn = init_device_mesh("cpu", (2,)), WAITING[name]
        compiled = pliant.compile(fn)
        for n in LENGTHS:
            (x, p), (y, q) = begun(mesh, n, how), begun(mesh, n, how)
            want, got = fn(x), compiled(y)
            if name == "given back":
                assert got[0] is y
            else:
                assert want.requires_grad == got.requires_grad
                check(settled(want.detach()), settled(got.detach()))
            check(settled(x).detach() + 0, settled(y).detach() + 0)
            if p is not None and name == "used":
                for out in (want, got):
                    loss = (out * out).sum()
                    (loss.full_tensor() if type(loss) is DTensor else loss).backward()
                check(p.grad, q.grad)
        return {}

    return case


OF_WAITING = {f"waiting, {name}, {how}": waiting(name, how) for name in WAITING for how in HOW[name]}
CASES |= OF_WAITING


for _i, _name in enumerate(FUNCTIONS):  # each with two of the pairs: all of them take minutes
    CASES[_name] = function(_name, PAIRS[_i % len(PAIRS)], False)
    if _name not in ("argument written", "several results"):
        CASES[f"{_name}, gradients"] = function(_name, WITH_GRADIENTS[_i % len(WITH_GRADIENTS)], True)


# -- modules -------------------------------------------------------------------------------------------------------------
class Feedforward(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 32), nn.Linear(32, 8)

    def forward(self, x):
        return self.down(F.gelu(self.up(x)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.mlp = nn.LayerNorm(8), nn.LayerNorm(8), Feedforward()
        self.q, self.k, self.v, self.o = [nn.Linear(8, 8) for _ in range(4)]

    def forward(self, x):
        h = self.first(x)
        q, k, v = self.q(h), self.k(h), self.v(h)
        q, k, v = [t.view(*t.shape[:2], -1, 2).transpose(1, 2) for t in (q, k, v)]
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).flatten(2))
        return x + self.mlp(self.second(x))


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.mlp = nn.LayerNorm(8), Feedforward()

    def forward(self, x):
        return self.mlp(self.norm(x))


class Words(nn.Module):
    """Of which the input is words, numbers by the length."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 8), nn.Linear(8, 20)

    def forward(self, x):
        return self.head(self.embedding(x[..., 0].abs().mul(7).long()))


class Up(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Linear(8, 32)

    def forward(self, x):
        return self.up(x) * 2


MLP = {"up": ColwiseParallel(), "down": RowwiseParallel()}
IN_BLOCK = {f"mlp.{name}": style for name, style in MLP.items()}
MODULES: dict[str, tuple[Callable[[], nn.Module], dict]] = {
    "feedforward": (Feedforward, MLP),
    "block": (Block, {**dict.fromkeys("qkv", ColwiseParallel()), "o": RowwiseParallel(), **IN_BLOCK}),
    "sequence parallel": (Normed, {
        "norm": SequenceParallel(),
        "mlp.up": ColwiseParallel(input_layouts=Shard(1)), "mlp.down": RowwiseParallel(output_layouts=Shard(1)),
    }),
    "prepared input": (Feedforward, {"": PrepareModuleInput(input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),)), **MLP}),
    "rows of words": (Words, {
        "embedding": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(output_layouts=Replicate()),
    }),
    "columns of words": (Words, {
        "embedding": ColwiseParallel(output_layouts=Replicate()), "head": ColwiseParallel(use_local_output=False),
    }),
    "distributed result": (Up, {"up": ColwiseParallel(use_local_output=False)}),
}  # fmt: skip


def training(name: str) -> Callable[[int], dict]:
    """Losses, gradients and parameters of a few steps, lengths changing."""

    def case(rank: int) -> dict:
        mesh = init_device_mesh("cpu", (2,))
        make, plan = MODULES[name]
        torch.manual_seed(0)
        base = make()
        plain, other = [parallelize_module(copy.deepcopy(base), mesh, plan) for _ in range(2)]
        compiled = pliant.compile(other)
        optimizers = [torch.optim.SGD(m.parameters(), lr=0.1, momentum=0.9) for m in (plain, other)]
        for n in LENGTHS:
            x = torch.randn(2, 2 * n, 8, generator=torch.Generator().manual_seed(n))
            for m in (plain, compiled):
                loss = (m(x) + 0).square().mean()  # eager: a tensor that waits when it is used
                (loss.full_tensor() if type(loss) is DTensor else loss).backward()
            for p, q in zip(plain.parameters(), other.parameters(), strict=True):
                check(p.grad, q.grad)
            for o in optimizers:
                o.step()
                o.zero_grad()
            for p, q in zip(plain.parameters(), other.parameters(), strict=True):
                check(p.detach(), q.detach())
            with torch.no_grad():
                check(settled(plain(x)), compiled(x))
        return {}

    return case


for _name in MODULES:
    CASES[f"training, {_name}"] = training(_name)


OPTIMIZERS: dict[str, Callable] = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9, weight_decay=0.1),
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.01),
    "AdamW, foreach": lambda ps: torch.optim.AdamW(ps, lr=0.01, foreach=True),
    "Adagrad": lambda ps: torch.optim.Adagrad(ps, lr=0.01),
}


def stepping(name: str) -> Callable[[int], dict]:
    """A compiled step over distributed parameters, with clipping, under a scheduler: parameters, states, versions."""

    def case(rank: int) -> dict:
        mesh = init_device_mesh("cpu", (2,))
        torch.manual_seed(0)
        base = Feedforward()
        modules = [parallelize_module(copy.deepcopy(base), mesh, MLP) for _ in range(2)]
        optimizers = [OPTIMIZERS[name](list(m.parameters())) for m in modules]
        schedulers = [torch.optim.lr_scheduler.StepLR(o, 2, gamma=0.5) for o in optimizers]
        steps = [optimizers[0].step, pliant.compile(optimizers[1].step)]
        clips = [nn.utils.clip_grad_norm_, pliant.compile(nn.utils.clip_grad_norm_)]
        for n in (*LENGTHS, 7):
            for m, o, s, step, clip in zip(modules, optimizers, schedulers, steps, clips, strict=True):
                (m(torch.randn(n, 8, generator=torch.Generator().manual_seed(n))) + 0).square().mean().backward()
                clip(list(m.parameters()), 0.1)
                step()
                o.zero_grad()
                s.step()
            for p, q in zip(*[m.parameters() for m in modules], strict=True):
                check(p.detach(), q.detach())
                assert p._version == q._version
                check(*[dict(o.state[t]) for o, t in zip(optimizers, (p, q), strict=True)])
        return {}

    return case


STEPS = {f"step, {name}": stepping(name) for name in OPTIMIZERS}
CASES |= STEPS


# -- what is guarded -------------------------------------------------------------------------------------------------------
def other_placement(rank: int) -> dict:
    mesh = init_device_mesh("cpu", (2,))
    compiled = pliant.compile(lambda a: a @ a.t())
    for placed in ("whole", "rows", "columns", "whole", "rows"):
        (a, _) = arguments(mesh, 4, (placed, placed), False)
        check(a @ a.t(), compiled(a))
    return {}


def other_mesh(rank: int) -> dict:
    """A mesh of the same processes in the other order: each holds the other's rows."""
    compiled = pliant.compile(lambda a: a.full_tensor() * a.device_mesh.get_local_rank())
    for ranks in ([0, 1], [1, 0], [0, 1]):
        mesh = torch.distributed.DeviceMesh("cpu", ranks)
        (a, _) = arguments(mesh, 4, ("rows", "rows"), False)
        check(settled(a.full_tensor()) * mesh.get_local_rank(), compiled(a))
    return {}


def mesh_of_the_result(rank: int) -> dict:
    """Meshes of the same processes, in the same order, under other names: a result is on that of the argument."""
    compiled = pliant.compile(lambda a: (a @ a.t()).sin())
    for name in ("a", "b", "a"):
        mesh = init_device_mesh("cpu", (2,), mesh_dim_names=(name,))
        (a, _) = arguments(mesh, 4, ("rows", "rows"), False)
        with torch.no_grad():
            got = compiled(a)
        check((a @ a.t()).sin(), got)
        assert got.device_mesh is mesh
    return {}


def dispatcher_told(rank: int) -> dict:
    """Plain tensors beside distributed ones raise, unless PyTorch is told to take them."""
    mesh = init_device_mesh("cpu", (2,))
    program = FUNCTIONS["mixed with plain"]
    compiled = pliant.compile(program)
    args = arguments(mesh, 4, ("whole", "whole"), False)
    for told in (False, True, False, True):
        if told:
            with implicit_replication():
                (want, error), (got, ours) = answer(program, args), answer(compiled, args)
        else:
            (want, error), (got, ours) = answer(program, args), answer(compiled, args)
        assert error is ours and (error is None) is told
        check(want, got)
    return {}


CASES |= {fn.__name__: fn for fn in (other_placement, other_mesh, mesh_of_the_result, dispatcher_told, differentiated_twice)}
