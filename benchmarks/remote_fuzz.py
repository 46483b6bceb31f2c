"""Random programs over random placements against one process: `python -m benchmarks.remote --fuzz 1000`.

A program is a function of a few tensors of float64 or float32, made of operators, views, writes and, in some, gradients. It runs in this
process, and compiled on a mesh of threads, at several sizes, with its arguments placed at random. Values, dtypes, sizes, what was
written and exceptions must agree. One in ten trains a random model with a random optimizer, parameters placed at random: losses and
parameters must agree. Three in ten are programs of the controller (`remote_scripts.py`).
"""

from __future__ import annotations

import contextlib
import copy
import functools
import random
import time
import traceback
from typing import Any

import torch

import pliant
from benchmarks import remote_scripts
from pliant import remote
from pliant.remote.transport import Dead, ThreadTransport

UNARY = ["torch.relu({})", "{} * 2 - 1", "-{}", "torch.sigmoid({})", "torch.tanh({})", "{}.abs()", "{}.clone()", "torch.exp(-{}.abs())",
         "{} / 3", "torch.where({0} > 0, {0}, 0.1 * {0})", "{}.clamp(-1, 1)", "torch.nn.functional.gelu({})", "({} > 0).to({}.dtype)",
         "{}.float().double()", "torch.zeros_like({}) + 1", "torch.nn.functional.silu({})", "{}.detach()"]  # fmt: skip
BINARY = ["{} + {}", "{} - {}", "{} * {}", "torch.maximum({}, {})", "torch.atan2({}, {})", "torch.where({0} > {1}, {0}, {1})",
          "torch.lerp({}, {}, 0.3)", "torch.addcmul({0}, {0}, {1}, value=0.5)"]  # fmt: skip
REDUCE = ["{x}.sum({d})", "{x}.mean({d})", "{x}.sum({d}, keepdim=True)", "{x}.mean({d}, keepdim=True)", "{x}.amax({d})",
          "{x}.var({d}, correction=0)",
          "torch.softmax({x}, {d})", "torch.log_softmax({x}, {d})", "{x}.cumsum({d})", "{x}.argmax({d}).to({x}.dtype)",
          "{x}.logsumexp({d})",
          "torch.linalg.vector_norm({x}, 1, {d})", "torch.linalg.vector_norm({x}, float('inf'), {d})", "{x}.prod({d})",
          "{x}.min({d}).values", "{x}.max({d}).indices.to({x}.dtype)", "torch.var_mean({x}, {d})[1]", "({x} > 0).all({d}).to({x}.dtype)",
          "{x}.softmax({d}).cumsum({d})", "{x}.amin({d}, keepdim=True)", "{x}.topk(1, {d}).values", "{x}.logsumexp((0, -1))",
          "{x}.sort({d}).values", "{x}.flip({d})", "{x}.norm(dim={d})", "{x}.any({d}).to({x}.dtype)",
          "{x}.std({d}, correction=0)",
          "{x}.unbind({d})[0]", "{x}.select({d}, 0)", "{x}.narrow({d}, 0, 1)", "torch.cat([{x}, {x}], {d})",
           "torch.stack([{x}, {x}], {d})",
          "{x}[..., :1]", "{x}.index_select({d}, torch.tensor([0, 0]))", "{x}.median({d}).values", "{x}.roll(1, {d})",
           "{x}.cumprod({d})",
          "{x}.split(1, {d})[0]", "{x}.gather({d}, {x}.argsort({d}))", "torch.nn.functional.pad({x}, (1, 1))"]  # fmt: skip
VIEWS = ["{x}.transpose(0, -1)", "{x}.flatten()", "{x}.reshape(-1)", "{x}.unsqueeze({d})", "{x}.flatten(0, 1)",
         "{x}.permute(*range({n} - 1, -1, -1))",
         "{x}.reshape({x}.shape[0], -1)", "{x}.reshape(-1, {x}.shape[-1])", "{x}.unsqueeze(0).expand(2, *{x}.shape)", "{x}.squeeze()",
         "{x}.reshape({x}.shape)", "{x}.flatten(0, 1).unflatten(0, ({x}.shape[0], {x}.shape[1]))", "{x}.contiguous()",
         "{x}.movedim(0, -1)"]  # fmt: skip
WRITES = ["{x}.add_({y})", "{x}.mul_(0.5)", "{x}.copy_({y})", "{x}.zero_()", "{x}.clamp_(min=0)", "{x}.sub_({y} * 0.1)",
          "{x}[..., 0] = 1", "{x}[0] = 0.5",
          "{x}.masked_fill_({x} > 0, 0.3)", "{x}.transpose(0, -1).add_(1)", "{x}.select({d}, 0).mul_(3)"]  # fmt: skip
IDS = "({y}.detach().abs() * 7).long().reshape(-1)"
AT, ALONG = f"{IDS} % {{x}}.shape[0]", f"{IDS} % {{x}}.shape[{{d}}]"
INDEXED = [f"{{x}}[{AT}]", f"{{x}}[:, {IDS} % {{x}}.shape[1]]", f"{{x}}[{AT}, {IDS} % {{x}}.shape[1]]",
           f"{{x}}[..., {IDS} % {{x}}.shape[-1]]",
           f"{{x}}.index_select({{d}}, {ALONG})", f"{{x}}.index_add({{d}}, ({ALONG})[:1], {{x}}.narrow({{d}}, 0, 1))",
           f"{{x}}.index_copy({{d}}, ({ALONG})[:1], {{x}}.narrow({{d}}, 0, 1))", f"{{x}}.index_fill({{d}}, {ALONG}, 0.5)",
           "{x}.scatter_add({d}, {x}.argsort({d}), {y})", "{x}.scatter({d}, {x}.argsort({d}), 0.3)",
           "{x}.scatter_reduce({d}, {x}.argsort({d}), {y}, 'amax')", f"{{x}}.index_put(({AT},), {{x}}.sum(), accumulate=True)",
           f"torch.zeros_like({{x}}).index_put(({AT},), {{x}}[:1], accumulate=True)",
           "torch.take_along_dim({x}, {x}.argsort({d}), {d})",
           f"{{x}}[:, None][{AT}]", f"{{x}}.gather({{d}}, ({IDS}.reshape({{y}}.shape) % {{x}}.shape[{{d}}]))",
           "torch.zeros_like({x}).index_add({d}, torch.arange({y}.shape[{d}]) % {x}.shape[{d}], {y})"]  # fmt: skip
OTHERS = ["torch.nn.functional.batch_norm({x}.reshape({x}.shape[0], -1), None, None, training=True)",
          "torch.nn.functional.batch_norm({x}[:, :], 0.1 * torch.ones({x}.shape[1]).to({x}), torch.ones({x}.shape[1]).to({x}))",
          "torch.nn.functional.group_norm({x}, 1)", "torch._foreach_add([{x}, {y}], [{y}, {x}])[0]",
           "torch._foreach_mul([{x}, {y}], 2.0)[1]",
          "torch._foreach_norm([{x}, {y}])[0]", "{x}.norm()", "torch._foreach_addcmul([{x}], [{y}], [{y}])[0]",
          "torch._foreach_sqrt([{x}.abs(), {y}.abs()])[1]", "torch.nn.functional.dropout({x}, 0.5).mul(0)",
           "torch.rand_like({x}) * 0 + {x}",
          "{x}.to(torch.float32)", "{x}.to(torch.int32) + 1", "({x} > {y}).long()", "torch.cat([{x}, {y}], {d})",
           "torch.stack([{x}, {y}], {d})",
          "torch.hstack([{x}, {y}])", "{x}[1:]", "{x}[::2]", "{x}[:, 1:]", "{x}.diagonal()", "{x}.as_strided(({x}.shape[0],), (1,), 0)",
          "{x}.unfold({d}, 1, 1)",
           "{x}.split(2, {d})[-1]",
          "{x}.chunk(2, {d})[0]", "{x}.tile(2)", "{x}.repeat(2, *[1] * ({n} - 1))", "torch.tril({x})", "{x}.sum()", "{x}.mean()",
           "{x}.max()",
          "torch.outer({x}.flatten(), {y}.flatten())", "{x}.std()", "torch.where({x} > {y}.mean(), {x}, {y})", "{x}.expand_as({y})",
          "torch.nn.functional.one_hot({x}.argmax(-1), {x}.shape[-1]).to({x}.dtype)", "torch.linalg.vector_norm({x}, dim={d})",
          "torch.addmm({x}[0], {x}, {y}.transpose(-1, -2) @ {x})", "torch.nn.functional.softplus({x})",
           "torch.cumsum({x}.flip({d}), {d})"]  # fmt: skip
LATER = ["torch.bmm({x}.reshape(1, -1, {x}.shape[-1]), {y}.reshape(1, -1, {y}.shape[-1]).mT)", "torch.cdist({x}, {y})",
         "torch.kron({x}, {y})", "torch.tensordot({x}, {y}, dims=([-1], [-1]))", "{x}.triu(1)", "torch.rot90({x})",
         "{x}.repeat_interleave(2, {d})", "torch.bucketize({x}, torch.tensor([-0.5, 0.1, 0.9], dtype={x}.dtype)).to({x}.dtype)",
         "torch.searchsorted({x}.sort(-1).values, {x})", "torch.isin({x}, {x}[:1])", "{x}.logcumsumexp({d})", "{x}.cummax({d}).values",
         "{x}.cummin({d}).indices", "{x}.renorm(2, 0, 0.7)", "torch.remainder({x}, 0.7)", "torch.hypot({x}, {y})", "torch.fmax({x}, {y})",
         "torch.copysign({x}, {y})", "{x}.nanmean({d})", "{x}.nansum({d})", "{x}.quantile(0.3, {d})", "{x}.kthvalue(1, {d}).values",
         "torch.aminmax({x}, dim={d}).max", "torch.diff({x}, dim={d})", "{x}.trace()", "torch.cov({x})", "torch.block_diag({x}, {y})",
         "torch.column_stack([{x}, {y}])", "{x}.tensor_split(2, {d})[1]", "{x}.hsplit(1)[0]", "torch.nn.functional.glu({x}, {d})",
         "torch.nn.functional.elu({x})", "torch.nn.functional.hardtanh({x})", "torch.nn.functional.mish({x})",
         "torch.nn.functional.normalize({x}, dim={d})", "torch.nn.functional.cosine_similarity({x}, {y}, dim={d})",
         "torch.nn.functional.rms_norm({x}, {x}.shape[-1:])", "torch.nn.functional.pairwise_distance({x}, {y})",
         "torch.nn.functional.binary_cross_entropy_with_logits({x}, {y}.sigmoid())", "torch.nn.functional.huber_loss({x}, {y})",
         "torch.nn.functional.l1_loss({x}, {y}, reduction='sum')", "torch.nn.functional.smooth_l1_loss({x}, {y}, reduction='none')",
         "torch.nn.functional.kl_div({x}.log_softmax(-1) - 0.5, {y}.softmax(-1), reduction='batchmean')",
         "torch.nn.functional.conv1d({x}[None], torch.ones(2, {x}.shape[0], 1, dtype={x}.dtype))",
         "torch.nn.functional.avg_pool1d({x}[None], 1)", "torch.nn.functional.max_pool1d({x}[None], 2, 1, 1)",
         "torch.nn.functional.interpolate({x}[None], scale_factor=2)", "torch.nn.functional.pad({x}, (0, 0, 1, 2), value=0.3)",
         f"torch.nn.functional.embedding_bag(({IDS} % {{x}}.shape[0])[None], {{x}}.reshape({{x}}.shape[0], -1), mode='mean')",
         "torch.nn.functional.layer_norm({x}, {x}.shape)", "torch.nn.functional.instance_norm({x}[None])",
         "torch.baddbmm({x}[None], {x}[None], torch.eye({x}.shape[-1], dtype={x}.dtype)[None])", "torch.addmv({x}[0], {x}.T, {x}[:, 0])",
         "torch.linalg.matrix_norm({x})", "torch.meshgrid({x}[0], {y}[0], indexing='ij')[0]", "torch.logaddexp({x}, {y})",
         "{x}.masked_fill({y} > 0, 0.2)", "torch.where({x} > 0, {y}, 0.5)", "torch.clamp({x}, {y} - 1, {y} + 1)", "{x}.swapaxes(0, -1)",
         "torch.atleast_3d({x})", "{x}.new_zeros({x}.shape[0], 2) + {x}[:, :1]", "torch.full_like({x}, 0.25) * {y}",
         "torch.arange({x}.shape[0])[:, None] + {x}", "{x} * {x}.shape[0]", "torch.ones({x}.shape[{d}], dtype={x}.dtype).cumsum(0)",
         "torch.linspace(0, 1, {x}.shape[0], dtype={x}.dtype)[:, None] * {x}", "{x}.unflatten(-1, (1, {x}.shape[-1]))",
         "{x}.argsort({d}, descending=True)", "torch.stack([{x}, {x} * 2], -1).flatten(-2)", "torch.dstack([{x}, {y}])",
         "{x}.view({x}.shape[0], -1)", "torch.complex({x}, {y}).abs()", "{x}.masked_select({x} > 0).sum()",
         "{x}.count_nonzero({d})",
         "torch.nn.functional.gumbel_softmax({x}, dim=-1) * 0", "({x} > 0).logical_xor({y} > 0)", "{x}.to(torch.bfloat16).float()",
         "{x}.sign() + {x}.sgn()", "torch.nn.functional.unfold({x}[None, None], 1)",
         "torch.cross({x}[:, :3], {y}[:, :3], dim=-1)"]  # fmt: skip
MORE_WRITES = [f"{{x}}[{AT}] = 0.25", f"{{x}}[:, {IDS} % {{x}}.shape[1]] = 0.5",
           f"{{x}}.index_add_({{d}}, ({ALONG})[:1], {{x}}.narrow({{d}}, 0, 1) + 0)",
               "{x}.scatter_({d}, {x}.argsort({d}), 0.5)", "{x}[{x} > 0.5] = 0", "{x}.cumsum_({d})",
           "torch._foreach_mul_([{x}], 0.5)",
               "torch._foreach_add_([{x}], [{y} * 2])", "torch._foreach_sqrt_([{x}.abs_()])",
           "{x}.index_fill_({d}, torch.tensor([0]), 2.0)",
               "{x}[1:].mul_(2)", "{x}.narrow({d}, 0, 1).zero_()", "{x}.tril_()", "{x}.copy_({y}.flip(0))", "{x}.fill_({y}.sum())",
               f"{{x}}.index_put_(({AT},), {{y}}.sum(), accumulate=True)", "{x}.relu_()"]  # fmt: skip
ROWS_OF_Y = "{y}.reshape(-1, {y}.shape[-1])"
AS_HEADS = "{}[None, None].flatten(0, -3)"
PRODUCTS = [
    "{x} @ {y}.transpose(-1, -2)",
    "{x}.transpose(-1, -2) @ {y}",
    "torch.einsum('...i,...i->...', {x}, {y})",
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
            kind = rng.choices(("u", "b", "r", "v", "p", "i", "o", "l", "w"), (2, 3, 3, 3, 3, 3, 4, 4, 2 if not grads else 0))[0]
            d = rng.choice((0, -1, 1))
            form = {"u": UNARY, "b": BINARY, "r": REDUCE, "v": VIEWS, "p": PRODUCTS, "i": INDEXED, "o": OTHERS, "l": LATER,
                    "w": WRITES + MORE_WRITES}[kind]  # fmt: skip
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
        if "one generator, use Ray" in str(e):
            return "refused", str(e)
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
    places = [placement_of(rng, len(s), mesh.ndim) for s in shapes]
    told = f"# seed {seed}, {dtype}, {shapes}, {places}, grads {grads}\n{text}"
    kept = "raises"
    for round_ in range(3):
        rows = rng.choice((1, 2, 3, 4, 6, 7, 8, 9)) if rng.random() < 0.95 else 0
        sizes = {"B": rows, "T": rng.choice((1, 2, 3, 4, 5)), "C": rng.choice((1, 2, 3, 4, 6, 8)), "1": 1}
        args = arguments(rng, shapes, sizes, dtype, grads)
        twins = [t.detach().clone() for t in args]
        put = [mesh.distribute(t, p).requires_grad_(grads) for t, p in zip(twins, places, strict=True)]
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
        if want[0] == "error" and got[0] == "value" and answer(pliant.compile(f, backend="aten"), twins_of(args))[0] == "value":
            kept = "raises"  # in code whose result nobody uses, which is left out without a mesh, too
            continue
        if want[0] != got[0]:
            return "wrong", f"{told}{sizes}: {want[0]} {str(want[1])[:300]} here, {got[0]} {str(got[1])[:600]} there"
        if want[0] == "error":
            continue
        kept = "right" if kept == "raises" else kept
        why = agree(want[1], got[1], 1e-9 if dtype is torch.float64 and "float" not in text else 1e-3)
        if why:
            return "wrong", f"{told}{sizes}: {why}"
    return kept, told


def placement_of(rng: random.Random, dims: int, along: int, share: float = 0.65) -> list[remote.Placement]:
    """A placement for each dim of the mesh, of a tensor with this number of dims."""
    return [remote.Shard(rng.randrange(dims)) if rng.random() < share and dims else remote.Replicate() for _ in range(along)]


def twins_of(args: list[torch.Tensor]) -> list[torch.Tensor]:
    return [t.detach().clone().requires_grad_(t.requires_grad) for t in args]


# -- training -------------------------------------------------------------------------------------------------------------------------
class Looked(torch.nn.Module):
    """An embedding and what it is read by."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(7, width, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table((x.detach().abs() * 5).long()[:, 0] % 7) + self.table.weight[(x.detach().abs() * 3).long()[:, 0] % 7]


def model_of(rng: random.Random, width: int) -> torch.nn.Module:
    f = torch.float64
    layers: list[torch.nn.Module] = []
    for _ in range(rng.randint(1, 4)):
        out = rng.choice((2, 4, 6))
        n = torch.nn
        made, args = rng.choice((
            (n.BatchNorm1d, {"dtype": f}), (n.BatchNorm1d, {"affine": False, "dtype": f}), (n.LayerNorm, {"dtype": f}), (Looked, {}),
            (functools.partial(n.GroupNorm, 1), {"dtype": f}),
        ))  # fmt: skip
        layers.append(made(width, **args) if rng.random() < 0.7 else rng.choice((n.GELU, n.Tanh))())
        layers.append(torch.nn.Linear(width, out, bias=rng.random() < 0.7, dtype=f))
        width = out
    return torch.nn.Sequential(*layers)


def optimizer_of(rng: random.Random) -> Any:
    how = rng.choice(({}, {"foreach": True}, {"fused": True}))
    made, more = rng.choice((
        (torch.optim.SGD, {}), (torch.optim.SGD, {"momentum": 0.9, "nesterov": True}), (torch.optim.Adam, {"amsgrad": True}),
        (torch.optim.AdamW, {}), (torch.optim.AdamW, {"weight_decay": 0.1}), (torch.optim.Adagrad, {}),
    ))  # fmt: skip
    return lambda params: made(params, lr=0.01, **more, **how), f"{made.__name__} {more} {how}"


def training(mesh: Any, seed: int) -> tuple[str, str]:
    """As `one`, of a model and an optimizer."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    width = rng.choice((2, 3, 4))
    a = model_of(rng, width)
    b = copy.deepcopy(a)
    make, named = optimizer_of(rng)
    places = {n: placement_of(rng, t.dim(), mesh.ndim) for n, t in b.named_parameters() if rng.random() < 0.2}
    mesh.place(b, places)
    clip, loss_of = rng.random() < 0.3, rng.choice(("mse", "cross entropy", "sum"))
    told = f"# seed {seed}, {named}, {places}, clip {clip}, {loss_of}\n{a}"

    def trainer(model: Any) -> Any:
        optimizer = make(model.parameters())

        def step(x: Any, y: Any) -> Any:
            out = model(x)
            if loss_of == "cross entropy":
                loss = torch.nn.functional.cross_entropy(out, (y * 5).long().abs()[:, 0] % out.shape[1])
            else:
                loss = ((out - y[:, :1]) ** 2).mean() if loss_of == "mse" else out.sin().sum()
            loss.backward()
            if clip:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            optimizer.zero_grad()
            return loss.detach()

        return step

    here, there = trainer(a), pliant.compile(trainer(b), on=mesh)
    where = placement_of(rng, 1, mesh.ndim, 0.9) if rng.random() < 0.75 else placement_of(rng, 2, mesh.ndim)
    steady = "Ada" not in named  # gradients that are nothing but rounding, of one sign here and another there, are whole steps of others
    for round_ in range(3):
        x, y = torch.randn(rng.choice((2, 3, 4, 5, 7)), width, dtype=torch.float64), torch.randn(7, 2, dtype=torch.float64)
        y = y[: x.shape[0]].contiguous()
        put = lambda t: mesh.distribute(t.clone(), where)
        try:
            want = here(x, y)
        except Exception as e:
            return "raises", f"{told}\n{e!r}"
        try:
            got = there(put(x), put(y)).cpu()
        except remote.Refused:
            return "refused", told
        named_ = [(n, t, u) for (n, t), u in zip(a.state_dict().items(), b.state_dict().values(), strict=True)]
        for name, t, u in [("loss", want, got), *(named_ if steady else ())]:
            if why := agree(t.detach(), u.cpu().detach() if u is not got else u, 1e-6 if steady else 1e-2):
                return "wrong", f"{told}\nround {round_}, {tuple(x.shape)} {where}: {name}: {why}"
    return "right", told


class Lossy(ThreadTransport):
    """Workers that are lost now and then, one or several, wherever the controller waits for them: in the middle of a recovery, too."""

    def __init__(self, shape: tuple[int, ...], timeout: float, share: float, seed: int) -> None:
        super().__init__(shape, timeout)
        self.share, self.rng = share, random.Random(seed)
        self.lives = list(range(self.workers))
        self.row = self.calm = 0  # losses in a row, which get rarer, for a mesh that gives up; waits without one since

    def restart(self, rank: int, hung: bool) -> None:
        super().restart(rank, hung)
        self.lives[rank] += self.workers

    def lose(self) -> None:
        self.calm += 1
        if self.calm > 4:
            self.row = 0
        if self.rng.random() * (1 + self.row) < self.share:
            self.row, self.calm = self.row + 1, 0
            lost = [r for r in range(self.workers) if self.rng.random() < 0.5] or [0]
            for rank in lost[1:]:
                self.restart(rank, False)
            raise Dead(lost[0], "lost on purpose")

    def replies(self, refs: list[Any], timeout: float) -> list[bytes]:
        self.lose()
        return super().replies(refs, timeout)

    def exported(self, rank: int, n: int, handles: list[int]) -> Any:
        self.lose()
        return super().exported(rank, n, handles)

    def join(self, epoch: int, timeout: float) -> list[int]:
        super().join(epoch, timeout)
        return list(self.lives)


def mesh_for(shape: tuple[int, ...], lose: float, seed: int) -> Any:
    if not lose:
        return remote.mesh(shape=shape, transport="threads", timeout=60, recover=False)
    names = tuple(f"dim{i}" for i in range(len(shape)))
    return remote.Mesh(Lossy(shape, 60, lose, seed), timeout=60, lineage=6, window=4, shape=shape, names=names)


def fuzz(count: int, seed: int, shape: tuple[int, ...], seconds: float, verbose: bool = True, lose: float = 0.0) -> dict[str, int]:
    """`lose`: how often a worker is lost where its reply is waited for."""
    counts = {"right": 0, "raises": 0, "refused": 0, "wrong": 0}
    began = time.time()
    mesh = mesh_for(shape, lose, seed)
    recoveries = 0
    for i in range(seed, seed + count):
        if time.time() - began > seconds:
            break
        try:
            what, told = (training if i % 10 == 9 else remote_scripts.script if i % 10 in (2, 4, 7) else one)(mesh, i)
        except Exception:
            what, told = "wrong", f"# seed {i}\n{traceback.format_exc()}"
            recoveries += mesh.counts["recoveries"]
            mesh.close()
            mesh = mesh_for(shape, lose, i + 1)
        counts[what] += 1
        if what == "wrong" and verbose:
            print(told, flush=True)
        if i % 20 == 0:
            pliant.reset()
    if lose:
        counts["recoveries"] = recoveries + mesh.counts["recoveries"]
    mesh.close()
    return counts
