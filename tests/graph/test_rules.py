"""Every shape rule against eager: random sizes, dtypes and memory layouts, at the captured sizes and at others that the guards admit."""

from __future__ import annotations

import itertools
import os
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import pliant
from pliant.errors import InternalError
from pliant.graph.rules import HANDLERS, RULES
from pliant.graph.rules.table import add
from tests.graph.harness import Captured, bind, describe_all, holds

aten = torch.ops.aten
F = torch.nn.functional


def laid_out(sizes: tuple[int, ...], layout: str, dtype: torch.dtype) -> torch.Tensor:
    """A tensor of these sizes whose memory is arranged as `layout` says."""
    n = len(sizes)
    full = torch.arange(4096).remainder(2).to(dtype) if dtype in (torch.int64, torch.bool) else torch.linspace(0.1, 0.9, 4096, dtype=dtype)

    def data(shape: list[int]) -> torch.Tensor:
        count = 1
        for s in shape:
            count *= s
        return full[:count].clone().reshape(shape)

    if layout == "reversed" and n:
        return data(list(reversed(sizes))).permute(*reversed(range(n)))
    if layout == "swapped" and n >= 2:
        order = [*range(n - 2), n - 1, n - 2]
        return data([sizes[d] for d in order]).permute(order)
    if layout == "rotated" and n >= 2:
        return data([sizes[-1], *sizes[:-1]]).permute(*range(1, n), 0)
    if layout == "strided" and n:
        return data([*sizes[:-1], sizes[-1] * 2])[..., ::2]
    if layout == "sliced" and n:
        return data([sizes[0] + 1, *sizes[1:]])[1:]
    if layout == "expanded" and n:
        return data([1, *sizes[1:]]).expand(sizes)
    if layout == "channels_last" and n == 4:
        return data(list(sizes)).to(memory_format=torch.channels_last)
    return data(list(sizes))


LAYOUTS = ("plain", "plain", "reversed", "swapped", "rotated", "strided", "sliced", "expanded", "channels_last")
f32, i64, b8 = torch.float32, torch.int64, torch.bool

#: name -> (function, [dims of each tensor: a letter is a size, a digit that very size], dtypes)
CASES: dict[str, tuple[Callable[..., Any], list[str], list[torch.dtype]]] = {}


def case(fn: Callable[..., Any], *dims: str, name: str = "", dtypes: Any = None) -> None:
    label = f"{name or fn.__name__}({', '.join(dims)})"
    CASES[label if label not in CASES else f"{label}#{len(CASES)}"] = (fn, list(dims), list(dtypes or [f32] * len(dims)))


for _op in "relu exp gelu silu sigmoid tanh neg rsqrt abs floor isnan logical_not erf cos log1p".split():
    case(getattr(aten, _op).default, "abc", name=_op)
    case(getattr(aten, _op).default, "abcd", name=_op)
for _op in ("sqrt", "sin", "reciprocal", "abs"):
    case(getattr(aten, _op).default, "ab", name=_op, dtypes=[i64])
for _op in ("add", "mul", "sub", "div", "eq", "lt"):
    _fn = getattr(aten, _op).Tensor
    for _pair in "abc abc|abc bc|a1c abc|abc a1c|abc | abc|a1 1b|abcd abcd|a b".split("|"):
        case(_fn, *_pair.split(" "), name=_op)
    for _types in ((f32, i64), (i64, f32), (b8, f32), (i64, b8)):
        if _op != "sub" or b8 not in _types:
            case(_fn, "abc", "bc", name=_op, dtypes=_types)
            case(_fn, "abc", "", name=_op, dtypes=_types)
for _op in ("maximum", "remainder", "pow", "atan2", "floor_divide", "logical_and", "fmod", "rsub"):
    _packet = getattr(aten, _op)
    _fn = getattr(_packet, {"pow": "Tensor_Tensor", "remainder": "Tensor", "fmod": "Tensor", "rsub": "Tensor"}.get(_op, "default"))
    case(_fn, "abc", "bc", name=_op)
    case(_fn, "abc", "abc", name=_op)
for _op in ("bitwise_and", "bitwise_or", "bitwise_xor"):
    case(getattr(aten, _op).Tensor, "abc", "bc", name=_op, dtypes=[i64, i64])
    case(getattr(aten, _op).Tensor, "abc", "abc", name=_op, dtypes=[b8, i64])
for _op in ("gelu_backward", "silu_backward", "sigmoid_backward", "tanh_backward"):
    case(getattr(aten, _op).default, "abc", "abc", name=_op)
case(lambda g, x: aten.threshold_backward(g, x, 0), "abc", "abc", name="threshold_backward")
case(lambda x: x + 1, "abc", name="add 1")
case(lambda x: x + 1.5, "abc", name="add 1.5", dtypes=[i64])
case(lambda x: 2 - x, "abcd", name="2 - x")
case(lambda x: x**2, "abc", name="square")
case(lambda x: 2.0**x, "abc", name="2 ** x")
case(lambda x: x.clamp(0.2, 0.5), "abcd", name="clamp")
case(lambda x: x.clamp(0.5), "abc", name="clamp int", dtypes=[i64])
case(lambda x, y: x.clamp(min=y), "abc", "bc", name="clamp tensor")
case(lambda x: torch.div(x, 2, rounding_mode="floor"), "abc", name="div floor", dtypes=[i64])
case(lambda x: x.div(3), "abc", name="div int", dtypes=[i64])
case(lambda x: x // 2, "abc", name="x // 2", dtypes=[i64])
case(lambda x: x % 2, "abc", name="x % 2")
case(lambda x: (x > 0) & (x < 1), "abc", name="compare")
case(torch.where, "abc", "bc", "", dtypes=[b8, f32, f32], name="where")
case(torch.where, "abc", "abc", "abc", dtypes=[b8, f32, i64], name="where")
case(lambda c, x: torch.where(c, x, 0.0), "abc", "abc", name="where number", dtypes=[b8, f32])
case(lambda x, m: x.masked_fill(m, 0.0), "abc", "bc", name="masked_fill", dtypes=[f32, b8])
case(lambda x, m: x.masked_fill(m, 0.0), "a1c", "abc", name="masked_fill", dtypes=[f32, b8])
case(torch.addcmul, "abc", "bc", "abc", name="addcmul")
case(lambda x, y: torch.lerp(x, y, 0.5), "abc", "abc", name="lerp")
case(lambda x, y: x.clone().add_(y), "abc", "bc", name="add_")
case(lambda x, y: x.clone().copy_(y), "abc", "bc", name="copy_")
case(lambda x: x.clone().zero_(), "abc", name="zero_")
# views
case(lambda x: x.t(), "ab", name="t")
case(lambda x: x.transpose(0, -1), "abc", name="transpose")
case(lambda x: x.permute(2, 0, 1), "abc", name="permute")
case(lambda x: x.unsqueeze(1), "abc", name="unsqueeze")
case(lambda x: x.unsqueeze(-1), "abc", name="unsqueeze")
case(lambda x: x.squeeze(), "a1b1", name="squeeze")
case(lambda x: x.squeeze(1), "a1b", name="squeeze")
case(lambda x: x.squeeze((0, 2)), "1a1b", name="squeeze")
case(lambda x: x.expand(3, -1, -1), "ab", name="expand")
case(lambda x: x.expand(1, -1, 4), "a1", name="expand")
case(lambda x: x.expand(1, 1), "", name="expand")
case(lambda x: x.reshape(x.shape[0], -1), "abc", name="reshape")
case(lambda x: x.reshape(-1), "abc", name="reshape")
case(lambda x: x.reshape(x.shape[0] * x.shape[1], x.shape[2]), "abc", name="reshape")
case(lambda x: x.view(x.shape[0], x.shape[1], 2, 3), "ab6", name="view last")
case(lambda x: x.reshape(x.shape[0], x.shape[1], 2, 3).transpose(1, 2), "ab6", name="heads")
case(lambda x: x[1:], "abc", name="slice")
case(lambda x: x[:, :-1], "abc", name="slice")
case(lambda x: x[..., ::2], "abc", name="slice")
case(lambda x: x[:, 1::3], "abc", name="slice")
case(lambda x: x[:5], "abc", name="slice")
case(lambda x: x[: x.shape[1]], "abc", name="slice")
case(lambda x: x[-2:], "abc", name="slice")
case(lambda x: x[x.shape[0] - 1 :], "abc", name="slice")
case(lambda x: x[-1], "abc", name="select")
case(lambda x: x[:, 1], "abc", name="select")
case(lambda x: x.select(2, x.shape[2] - 1), "abc", name="select")
case(lambda x: x.chunk(2, 1), "abc", name="chunk")
case(lambda x: x.split(2, 0), "abc", name="split")
case(lambda x: x.split([1, x.shape[1] - 1], 1), "abc", name="split_with_sizes")
case(lambda x: x.unbind(1), "abc", name="unbind")
case(lambda x: x.narrow(1, 1, 1), "abc", name="narrow")
case(lambda x: x.diagonal(), "33a", name="diagonal")
case(lambda x: x.unfold(1, 2, 1), "a5", name="unfold")
case(lambda x: x.detach(), "abc", name="detach")
case(lambda x: x[None, :, None], "ab", name="None")
# copies
for _fmt in (torch.preserve_format, torch.contiguous_format):
    case(lambda x, f=_fmt: x.clone(memory_format=f), "abc", name=f"clone {_fmt}")
case(lambda x: x.contiguous(), "abcd", name="contiguous")
case(lambda x: x.to(torch.float64), "abc", name="to float64")
case(lambda x: x.to(torch.int64), "abcd", name="to int64")
case(lambda x: torch.zeros_like(x), "abc", name="zeros_like")
case(lambda x: torch.empty_like(x, dtype=i64), "abcd", name="empty_like")
case(lambda x: x.new_zeros(x.shape[1], 2), "abc", name="new_zeros")
case(lambda x: torch.zeros(x.shape[0], x.shape[1] + 1), "ab", name="zeros")
case(lambda x: torch.full((x.shape[0],), 7), "ab", name="full")
case(lambda x: torch.arange(x.shape[0]), "ab", name="arange")
case(lambda x: torch.arange(x.shape[0] * 2, dtype=f32), "ab", name="arange")
case(lambda x: torch.arange(1, x.shape[0] + 1, 2), "ab", name="arange step")
# reductions
for _op in ("sum", "mean", "amax", "prod", "any", "argmax", "logsumexp", "std", "var_mean", "cumsum", "max", "min"):
    _fn = getattr(torch, _op)
    _dims = (0, 1, -1)
    for _d in _dims:
        case(lambda x, f=_fn, d=_d: f(x, d), "abc", name=f"{_op} {_d}")
    if _op != "cumsum":
        case(lambda x, f=_fn: f(x, -1, keepdim=True), "abc", name=f"{_op} keepdim")
for _op in ("sum", "mean", "amax", "std", "var_mean"):
    case(lambda x, f=getattr(torch, _op): f(x, (0, 2)), "abc", name=f"{_op} dims")
for _op in ("sum", "mean", "max", "min", "any", "all", "argmax", "prod"):
    case(getattr(torch, _op), "abc", name=f"{_op} all")
case(torch.sum, "abc", name="sum bool", dtypes=[b8])
case(lambda x: x.cumsum(0), "ab", name="cumsum int", dtypes=[b8])
case(lambda x: F.softmax(x, 1), "abc", name="softmax")
case(lambda x: F.log_softmax(x, -1), "abc", name="log_softmax")
case(lambda g, y: aten._softmax_backward_data(g, y, 1, f32), "abc", "abc", name="softmax backward")
case(lambda x: torch.sort(x, 1), "abc", name="sort")
case(lambda x: torch.topk(x, 2, 1), "abc", name="topk")
case(lambda x: x.norm(dim=1), "abc", name="norm")
case(lambda x: x.tril(), "abc", name="tril")
# products
case(torch.mm, "ab", "bc", name="mm")
case(torch.addmm, "c", "ab", "bc", name="addmm")
case(torch.bmm, "nab", "nbc", name="bmm")
case(torch.baddbmm, "nac", "nab", "nbc", name="baddbmm")
case(torch.matmul, "nab", "bc", name="matmul")
case(torch.matmul, "nab", "b", name="matmul")
case(torch.matmul, "xnab", "xnbc", name="matmul")
case(torch.mv, "ab", "b", name="mv")
case(torch.dot, "a", "a", name="dot")
case(F.linear, "nab", "cb", "c", name="linear")
case(F.scaled_dot_product_attention, "bhqd", "bhkd", "bhkd", name="attention")
case(lambda q, k, v: aten._scaled_dot_product_flash_attention_for_cpu(q, k, v), "bhq8", "bhk8", "bhk8", name="flash attention")
case(lambda *qkv: F.scaled_dot_product_attention(*[t.transpose(1, 2) for t in qkv]), "bqh8", "bkh8", "bkh8", name="heads attention")
# indexing
INDEX = [f32, i64]
case(F.embedding, "ab", "cd", name="embedding", dtypes=[i64, f32])
INDEXED = ("ab c111 111c", "ab c11 1d", "abc 11 1", "a1c d1 1d", "1bc d d", "ab1 1d1 d11", "abcd e11 1e1", "abc1 1d d1", "abc 1 11d")
for _x, _i, _j in map(str.split, INDEXED):
    case(lambda x, i, j: x[i, j], _x, _i, _j, name="index", dtypes=[f32, i64, i64])
    case(lambda x, i, j: x[:, i], _x, _i, _j, name="index", dtypes=[f32, i64, i64])
    if len(_x) > 2:
        case(lambda x, i, j: x[:, i, j], _x, _i, _j, name="index", dtypes=[f32, i64, i64])
        case(lambda x, i, j: x[i, :, j], _x, _i, _j, name="index", dtypes=[f32, i64, i64])
case(lambda x, i: x.index_select(1, i), "abc", "d", name="index_select", dtypes=INDEX)
case(lambda x, i: x[i], "abc", "d", name="index", dtypes=INDEX)
case(lambda x, i: x[:, i], "abc", "d", name="index", dtypes=INDEX)
case(lambda x, i: x[i, :, i], "abc", "de", name="index", dtypes=INDEX)
case(lambda x, i, j: x[i, j], "abc", "d", "1", name="index", dtypes=[f32, i64, i64])
case(lambda x, i: x.gather(1, i), "abc", "abc", name="gather", dtypes=INDEX)
case(lambda x, i, y: x.scatter(1, i, y), "abc", "abc", "abc", name="scatter", dtypes=[f32, i64, f32])
case(lambda x, i, y: x.scatter_add(0, i, y), "abc", "abc", "abc", name="scatter_add", dtypes=[f32, i64, f32])
case(lambda x, i, y: x.index_add(0, i, y), "abc", "d", "dbc", name="index_add", dtypes=[f32, i64, f32])
case(lambda x, i: x.index_put((i,), torch.tensor(1.0)), "abc", "d", name="index_put", dtypes=INDEX)
case(lambda x, y: torch.cat([x, y], 1), "abc", "adc", name="cat")
case(lambda x, y: torch.cat([x, y, x]), "ab", "cb", name="cat")
case(lambda x, y: torch.cat([x, y], 1), "abcd", "aecd", name="cat")
case(lambda x, y: torch.cat([x[:0, 0, 0], y.transpose(1, 2)], -2), "abc", "adb", name="cat")
case(lambda x, y: torch.cat([x.transpose(1, 2), y.transpose(1, 2)], -1), "ab38", "cb38", name="cat")
case(lambda x, y: torch.cat([-x[..., 2:].transpose(1, 2), y.transpose(1, 2)], -1), "ab38", "ab34", name="cat")
case(lambda x, y: torch.cat([x[:, :, 1:], y.permute(0, 2, 1, 3, 4)], 2), "a3b24", "ab324", name="cat")
case(lambda x, y: torch.stack([x, y], 1), "abc", "abc", name="stack")
case(lambda x: x.repeat(2, 1, 3), "bc", name="repeat")
case(lambda x: x.flip(0), "abc", name="flip")
case(F.logsigmoid, "abc", name="logsigmoid")
case(F.logsigmoid, "abcd", name="logsigmoid")
for _dims in ("a8bc", "a4bc", "18bb"):
    case(lambda x: F.pixel_shuffle(x, 2), _dims, name="pixel_shuffle")
    case(lambda x: F.channel_shuffle(x, 2), _dims, name="channel_shuffle")
for _dims in ("ab46", "1b24"):
    case(lambda x: F.pixel_unshuffle(x, 2), _dims, name="pixel_unshuffle")
case(lambda x: x.roll(1, 0), "abc", name="roll")
case(lambda x: F.pad(x, (1, 2)), "abc", name="pad")
case(lambda g, i: aten.embedding_dense_backward(g, i, 10, -1, False), "abc", "ab", name="embedding backward", dtypes=INDEX)
# layers
case(lambda x, w, b: aten.native_layer_norm(x, [x.shape[-1]], w, b, 1e-5), "abc", "c", "c", name="layer_norm")
case(lambda x, w, b: F.conv2d(x, w, b, padding=1), "ab67", "cb33", "c", name="conv2d")
case(lambda x, w: F.conv2d(x, w, stride=2), "2bhw", "cb12", name="conv2d")
case(lambda x, w: F.conv1d(x, w, padding=2), "nbt", "cb3", name="conv1d")
case(lambda x, w: F.conv_transpose2d(x, w, stride=2, padding=1), "2bhw", "bc33", name="conv_transpose2d")
case(lambda x: F.max_pool2d(x, 2, return_indices=True), "abhw", name="max_pool2d")
case(lambda x: F.avg_pool2d(x, 2, padding=1), "abhw", name="avg_pool2d")
case(lambda x: F.adaptive_avg_pool2d(x, 1), "abhw", name="adaptive pool")
case(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), "abhw", "b", "b", name="batch_norm")
case(lambda x, m, v: aten.native_batch_norm(x, None, None, m, v, False, 0.1, 1e-5), "abhw", "b", "b", name="batch_norm eval")
case(lambda x: F.group_norm(x, 2), "a4hw", name="group_norm")
# their gradients


def grads_of(fn: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """The gradients of a layer with respect to all its inputs, with a row-major and with a transposed tangent."""

    def run(*inputs: torch.Tensor) -> Any:
        leaves = [t.detach().requires_grad_() for t in inputs]
        out = fn(*leaves)
        plain = torch.ones_like(out, memory_format=torch.contiguous_format)
        tangents = plain, plain.transpose(-1, -2).contiguous().transpose(-1, -2)
        return [g for up in tangents for g in torch.autograd.grad(out, leaves, up, retain_graph=True)]

    return run


case(grads_of(lambda x, w, b: F.conv2d(x, w, b, padding=1)), "ab67", "cb33", "c", name="conv2d gradients")
case(grads_of(lambda x, w, b: F.conv_transpose2d(x, w, b, stride=2)), "ab67", "bc33", "c", name="conv_transpose2d gradients")
case(grads_of(lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True)), "abhw", "b", "b", name="batch_norm gradients")
case(grads_of(lambda x, w, b: F.group_norm(x, 2, w, b)), "a4hw", "4", "4", name="group_norm gradients")
case(grads_of(lambda x, w, b: F.layer_norm(x, [4], w, b)), "ab4", "4", "4", name="layer_norm gradients")
case(grads_of(lambda x: F.max_pool2d(x, 2)), "abhw", name="max_pool2d gradients")
case(grads_of(lambda x: F.avg_pool2d(x, 2)), "abhw", name="avg_pool2d gradients")
case(grads_of(lambda x: F.adaptive_avg_pool2d(x, 2)), "abhw", name="adaptive_avg_pool2d gradients")
case(grads_of(lambda x: F.gelu(x).softmax(-1)), "abc", name="gelu softmax gradients")
case(grads_of(F.scaled_dot_product_attention), "bhq8", "bhk8", "bhk8", name="attention gradients")
case(grads_of(lambda x, w, b: F.linear(x, w, b)), "nab", "cb", "c", name="linear gradients")
case(lambda x, t: aten.nll_loss_forward(x, t, None, 1, -100), "a9", "a", name="nll_loss", dtypes=INDEX)
case(torch.geqrf, "ab", dtypes=[f32])
case(torch.geqrf, "abc", dtypes=[f32], name="geqrf batch")
case(lambda a, b: torch.linalg.lstsq(a, b), "ab", "ac", name="lstsq", dtypes=[f32, f32])
case(lambda a, b: torch.linalg.lstsq(a, b), "nab", "nac", name="lstsq batch", dtypes=[f32, f32])
case(F.bilinear, "na", "nb", "cab", name="bilinear")
case(grads_of(F.bilinear), "nma", "nmb", "cab", name="bilinear gradients")
case(lambda x: torch.histogram(x, 5, range=(0.0, 1.0)), "ab", dtypes=[f32], name="histogram")
case(lambda x: torch.poisson(x), "ab", dtypes=[f32], name="poisson")
case(lambda x: torch._standard_gamma(x), "ab", dtypes=[f32], name="gamma")
case(lambda x: torch._sample_dirichlet(x), "ab", dtypes=[f32], name="dirichlet")
case(lambda x, y: aten._standard_gamma_grad(x, y), "ab", "ab", dtypes=[f32, f32], name="gamma gradient")
case(lambda x, m: torch._masked_softmax(x, m, -1, 2), "ab", "ab", dtypes=[f32, b8], name="masked softmax")
case(lambda x, t: aten.nll_loss_forward(x, t, None, 0, -100), "a9", "a", name="nll_loss none", dtypes=INDEX)


def make_inputs(dims: list[str], dtypes: list[torch.dtype], sizes: dict[str, int], layouts: Sequence[str]) -> list[torch.Tensor]:
    shapes = [tuple(int(c) if c.isdigit() else sizes[c] for c in d) for d in dims]
    return [laid_out(s, lay, t) for s, lay, t in zip(shapes, layouts, dtypes)]


def random_sizes(dims: list[str], rng: random.Random) -> dict[str, int]:
    return {c: rng.randint(2, 5) for c in sorted(set("".join(dims))) if not c.isdigit()}


def attempt(fn: Callable[..., Any], inputs: list[torch.Tensor]) -> Any:
    """What eager does: the result, or None if it refuses these inputs."""
    try:
        return (fn(*inputs),)
    except (RuntimeError, IndexError, ValueError):
        return None


@pytest.mark.parametrize("label", list(CASES))
def test_rule_gives_what_eager_gives(label: str) -> None:
    fn, dims, dtypes = CASES[label]
    rng = random.Random(label)
    checked = 0
    every = list(itertools.product(dict.fromkeys(LAYOUTS), repeat=len(dims)))  # PLIANT_LAYOUTS=1000: all of them
    many = 32 if label.startswith("index") else 8  # most of these indices are out of range
    drawn = rng.sample(every, min(len(every), int(os.environ.get("PLIANT_LAYOUTS", many))))
    for layouts in (every[0], *drawn):
        inputs = make_inputs(dims, dtypes, random_sizes(dims, rng), layouts)
        want = attempt(fn, inputs)
        if want is None:
            continue
        captured = Captured(fn, inputs, dynamic=lambda x, d, s: True)
        for again in range(4):
            env: dict[str, int] = {}
            if again:
                inputs = make_inputs(dims, dtypes, random_sizes(dims, rng), layouts)
                want = attempt(fn, inputs)
            fits = all([bind(t, r, env) for (t, _), r in zip(captured.inputs, inputs)]) and holds(captured.scope, env)
            if not fits:
                assert again, f"the guards refuse the very call that was captured: {layouts} {env} {captured.scope.guards}"
                continue
            assert want is not None, f"eager refuses sizes that the guards admit: {env}"
            assert describe_all(captured.out, env) == describe_all(want[0], {}), (layouts, env, str(captured.trace), captured.scope.guards)
            checked += 1
    assert checked or label.startswith("add(a, b)") or "(a, b)" in label


def test_the_tables_do_not_overlap_by_accident() -> None:
    """`index.Tensor` has both: its handler expands masks and then uses the rule. That of `native_batch_norm` records it as one that says
    what it writes, where it writes."""
    assert set(RULES) & set(HANDLERS) == {aten.index.Tensor, aten.native_batch_norm.default}


def test_an_operator_has_one_rule() -> None:
    with pytest.raises(InternalError, match="relu has a shape rule already"):
        add(lambda trace, x: x, "relu")


DEMANDS: dict[str, tuple[Callable[..., Any], list[tuple[int, ...]]]] = {
    "layer_norm": (lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), [(4, 6), (6,), (6,)]),
    "layer_norm over two": (lambda x, w, b: F.layer_norm(x, x.shape[-2:], w, b), [(4, 6, 3), (6, 3), (6, 3)]),
    "rms_norm": (lambda x, w: F.rms_norm(x, x.shape[-1:], w), [(4, 6), (6,)]),
    "group_norm": (lambda x, w, b: F.group_norm(x, 2, w, b), [(4, 6, 3), (6,), (6,)]),
    "batch_norm": (lambda x, m, v, w, b: F.batch_norm(x, m, v, w, b), [(4, 6, 3), (6,), (6,), (6,), (6,)]),
    "linear": (lambda x, w, b: F.linear(x, w, b), [(4, 6), (3, 6), (3,)]),
    "bmm": (torch.bmm, [(5, 4, 6), (5, 6, 3)]),
    "cat": (lambda x, y: torch.cat((x, y), 1), [(4, 6, 3), (4, 5, 3)]),
    "conv1d": (lambda x, w, b: F.conv1d(x, w, b), [(4, 6, 9), (7, 6, 3), (7,)]),
    "conv_transpose1d": (lambda x, w, b: F.conv_transpose1d(x, w, b), [(4, 6, 9), (6, 7, 3), (7,)]),
}


@pytest.mark.parametrize("name", DEMANDS)
def test_what_eager_demands_of_parameters_is_a_fact(name: str) -> None:
    """Each parameter made one longer, where it must not be: eager refuses it, and so do the guards."""
    fn, shapes = DEMANDS[name]
    captured = Captured(fn, [torch.rand(s) for s in shapes], dynamic=lambda x, d, s: True)
    refused = 0
    for i, shape in enumerate(shapes[1:], 1):
        for d in range(len(shape)):
            other = [torch.rand(s if j != i else (*s[:d], s[d] + 1, *s[d + 1 :])) for j, s in enumerate(shapes)]
            env: dict[str, int] = {}
            fits = all([bind(t, r, env) for (t, _), r in zip(captured.inputs, other)]) and holds(captured.scope, env)
            if attempt(fn, other) is None:
                assert not fits, (shape, d)
                refused += 1
            else:
                assert fits, (shape, d)
    assert refused


def test_parts_of_a_pinned_size_ask_nothing() -> None:
    captured = Captured(lambda x: x.unbind(0), [torch.rand(7, 3)], dynamic=lambda x, d, s: d == 0)
    scope, x = captured.scope, captured.inputs[0][0]
    assert len(captured.out) == 7
    answers = len(scope.known)
    with captured.trace.recording():
        parts = [x.select(0, 3), x[-1], x[2:], x[:-1], *x.split(2)]
    assert len(scope.known) == answers
    assert [tuple(map(int, p.sizes)) for p in parts] == [(3,), (3,), (5, 3), (6, 3), (2, 3), (2, 3), (2, 3), (1, 3)]
    assert len(scope.guards) == 1


@pytest.mark.parametrize("mode, last", [(0, False), (0, True), (1, False), (1, True), (2, False), (2, True)])
@pytest.mark.parametrize("packed", [True, False])
def test_sizes_of_what_embedding_bag_keeps(mode: int, last: bool, packed: bool) -> None:
    """PyTorch's meta kernel says other ones than the CPU's gives."""

    def f(w: torch.Tensor, i: torch.Tensor, o: torch.Tensor) -> list:
        return [tuple(t.shape) for t in torch.embedding_bag(w, i, o, False, mode, False, None, last)]

    compiled = pliant.compile(f, fullgraph=True)
    for rows, n, bags in ((7, 5, 3), (4, 9, 2), (6, 3, 3)):
        w = torch.randn(rows, 4) if packed else torch.randn(4, rows).t()
        i, o = torch.arange(n) % rows, torch.arange(bags)
        for grad in (False, True):
            assert compiled(w.detach().requires_grad_(grad), i, o) == f(w.detach().requires_grad_(grad), i, o)
