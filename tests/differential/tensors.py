"""Random tensor programs at changing dtypes, sizes and layouts, native kernels against eager and float64 (theme `tensors` of `benchmarks.fuzz`).

A program is made by running it: a statement is drawn from the tables, tried in eager on the first inputs, and kept if it does not raise (one
that does ends a few programs). All that is computed is returned. Later calls have inputs of other sizes, layouts and dtypes. A difference
counts where everything before it is the same to the bit, or where eager in float64 is nearer to eager than to the compiled answer.
"""

# ruff: noqa: E501

from __future__ import annotations

import contextlib
import random
import re
import warnings
from collections.abc import Callable
from typing import Any

import torch

import pliant

FLOATS = (torch.float32, torch.float32, torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8, torch.bool)
DTYPES = (*FLOATS, *INTEGERS, torch.complex64)
SIZES = (0, 1, 1, 2, 3, 3, 4, 5, 8, 17, 33)
LAYOUTS = ("plain", "plain", "transposed", "stepped", "offset", "expanded", "channels last", "negative", "conjugate", "flipped axes")
LIMITS = {torch.float16: 1e-2, torch.bfloat16: 6e-2, torch.float32: 2e-5, torch.complex64: 2e-5}

UNARY = """-{x};{x}.abs();torch.exp(-{x}.abs());{x}.sin();{x}.cos();{x}.tanh();torch.sigmoid({x});{x}.relu();{x}.abs().sqrt();torch.log1p({x}.abs())
{x}.floor();{x}.ceil();{x}.round();{x}.trunc();{x}.sign();{x}.square();{x}.reciprocal();~{x};{x}.logical_not();{x}.isnan();torch.erf({x});{x}.frac()
F.gelu({x});F.silu({x});F.hardswish({x});F.leaky_relu({x}, 0.1);F.softplus({x});F.elu({x});{x}.clamp({k}, {l});{x}.clamp(min={k});{x}.clamp(max={k})
{x}.nan_to_num(0.5);{x}.isfinite();{x}.signbit();{x}.atan();{x}.expm1();{x}.log2();{x}.rsqrt();{x}.conj();{x}.real;{x}.angle();{x}.clone();{x}.detach()
torch.zeros_like({x});torch.full_like({x}, {k});torch.ones_like({x}, dtype=torch.int64);{x} ** 2;{x} ** 3;2 ** {x};{x}.pow(0.5);{x}.bitwise_not()"""
BINARY = """{x} + {y};{x} - {y};{x} * {y};{x} / {y};{x} // {y};{x} % {y};torch.maximum({x}, {y});torch.minimum({x}, {y});torch.atan2({x}, {y})
{x} > {y};{x} <= {y};{x} == {y};{x} != {y};{x} & {y};{x} | {y};{x} ^ {y};{x} << 2;{x} >> 1;torch.fmod({x}, {y});torch.remainder({x}, {y})
torch.add({x}, {y}, alpha={k});torch.sub({x}, {y}, alpha=2);torch.rsub({x}, {y});torch.addcmul({x}, {y}, {z}, value=0.5);torch.lerp({x}, {y}, 0.25)
torch.where({x} > 0, {y}, {z});torch.where({x} > {y}, {z}, {k});torch.logical_and({x}, {y});torch.logical_xor({x}, {y});torch.hypot({x}, {y})
{x} + {k};{x} - {k};{k} - {x};{x} * {k};{x} / {k};{k} / {x};{x} // {k};{x} % {k};{k} // {x};{x} > {k};{x} == {k};{x} & 3;{x} | 5;{x} ^ -1;{x} + {y} * {z}
({x} + {y}).relu() * {z};({x} * {y}).sum({d}) + {k};torch.ldexp({x}, {y});torch.copysign({x}, {y});torch.heaviside({x}, {y});torch.gcd({x}, {y})
torch.div({x}, {y}, rounding_mode="floor");torch.div({x}, {y}, rounding_mode="trunc");torch.div({x}, {k}, rounding_mode="trunc");torch.xlogy({x}, {y})"""
REDUCED = """{x}.sum();{x}.sum({d});{x}.sum({d}, keepdim=True);{x}.mean({d});{x}.mean();{x}.amax({d});{x}.amin({d}, keepdim=True);{x}.prod({d});{x}.any({d})
{x}.all();{x}.any();{x}.argmax({d});{x}.argmin();{x}.std({d});{x}.var({d}, correction=0);torch.logsumexp({x}, {d});{x}.softmax({d});{x}.log_softmax({d})
{x}.cumsum({d});{x}.cumprod({d});{x}.max({d}).values;{x}.min({d})[1];{x}.sum((0, -1));{x}.mean((0, 1), keepdim=True);{x}.norm();{x}.count_nonzero({d})
{x}.sum({d}, dtype=torch.float64);{x}.float().sum({d});F.layer_norm({x}, {x}.shape[-1:]);{x}.sum().item();{x}.abs().max();{x}.logcumsumexp({d})
{x} - {x}.mean({d}, keepdim=True);{x} / ({x}.abs().sum({d}, keepdim=True) + 1);F.normalize({x}, dim={d});({x} > {k}).sum({d});({x} * {x}).mean({d})"""
VIEWS = """{x}.t();{x}.transpose({d}, {e});{x}.permute(*range({x}.dim())[::-1]);{x}.reshape(-1);{x}.unsqueeze({d});{x}.squeeze();{x}.squeeze({d});{x}[None]
{x}.expand(2, *{x}.shape);{x}.flip({d});{x}.narrow({d}, 0, {x}.size({d}) // 2);{x}[..., ::2];{x}[1:];{x}[:-1];{x}[0];{x}[..., -1];{x}.select({d}, 0)
{x}.unfold({d}, 2, 1);{x}.diagonal();{x}.movedim(0, -1);{x}.chunk(2, {d})[0];{x}.split(2, {d})[-1];{x}.contiguous();{x}.flatten({d});{x}.unbind({d})[0]
{x}.tile(2);{x}.repeat_interleave(2, {d});{x}.roll(1, {d});{x}.tril();torch.view_as_real({x});{x}.mT;{x}.ravel();{x}.view({x}.shape);{x}.imag;{x}.expand_as({y})
F.pad({x}, (1, 1));F.pad({x}, (-1, 0), value={k});{x}.swapaxes({d}, {e})[1:];{x}.view(-1, {x}.size(-1));{x}[::2, 1:];{x}.broadcast_to({y}.shape)"""
INDEXED = """{x}[{x} > 0];{x}[torch.arange({x}.size(0)) // 2];{x}.index_select({d}, torch.arange({x}.size({d})).flip(0));{x}.masked_fill({x} > {k}, {l})
{x}.gather({d}, torch.zeros_like({x}, dtype=torch.int64));torch.take({x}, torch.tensor([0, -1]));{x}[..., torch.tensor([0, -1, 0])];{x}.nonzero()
{x}.index_add(0, torch.zeros({x}.size(0), dtype=torch.int64), {x});{x}.scatter({d}, torch.zeros_like({x}, dtype=torch.int64), {x});{x}.topk(1, {d})[0]
{x}[[0, -1]];{x}[torch.tensor(0)];{x}.sort({d}).values;{x}.masked_select({y} > 0);{x}.index_fill({d}, torch.tensor([0]), {k});{x}[:, [0, -1]]
{x}.scatter_add({d}, torch.zeros_like({x}, dtype=torch.int64), {x});{x}.argsort({d}, stable=True);{x}[None, ..., 0];torch.take_along_dim({x}, {x}.argsort({d}, stable=True), {d})"""
JOINED = """torch.cat([{x}, {y}]);torch.cat([{x}, {x}], {d});torch.stack([{x}, {y}]);torch.stack([{x}, {x} * 2], {d});{x} @ {y};{x} @ {x}.mT;F.linear({x}, {x})
torch.einsum("...i,...i->...", {x}, {x});torch.matmul({x}, {x}.t()).relu() + {k};torch.outer({x}.reshape(-1)[:5], {y}.reshape(-1)[:5]);torch.cat([{x}, {y} + 1], -1)
torch.vstack([{x}, {y}]);torch.bmm({x}, {x}.mT);torch.tensor_split({x}, 2)[0];torch.meshgrid({x}.reshape(-1)[:3], {x}.reshape(-1)[:3], indexing="ij")[1]"""
CASTS = """{x}.to(torch.float32);{x}.double();{x}.to(torch.bfloat16);{x}.half();{x}.nan_to_num(0).clamp(-99, 99).to(torch.int32);{x}.bool();{x}.to({y}.dtype) if not
{y}.is_floating_point() and {x}.is_floating_point() is False else {x};{x}.to(torch.complex64);{x}.clamp(0, 99).to(torch.uint8) if not {x}.is_floating_point() else {x}
{x}.type_as({y}) if {y}.is_floating_point() and not {x}.is_complex() else {x};{x}.view(torch.int32) if {x}.dtype is torch.float32 else {x}"""
WRITTEN = """{x}.add_({k});{x}.mul_({y});{x}.copy_({y});{x}.clamp_({k}, {l});{x}.zero_();{x}.fill_({k});{x}[..., 0] = {k};{x}[{x} > {k}] = {l};{x}.t().mul_(2)
{x}[1:] = {x}[:-1].clone();{x}.sub_({y}.mean());{x}.view(-1)[::2].add_(1);{x}.select({d}, 0).copy_({k} + {x}.select({d}, -1));{x} += {y};{x} *= {k};{x} -= {x}.clone()
{x}.index_put_((torch.zeros(2, dtype=torch.int64),), torch.ones((), dtype={x}.dtype), accumulate=True);{x}.relu_();{x}.neg_();{x}.narrow({d}, 0, 1).fill_({k})
{x}.masked_fill_({y} > 0, {k});{x}.diagonal().add_(1);{x}[:, ::2] = {y}[:, ::2];{x}.transpose({d}, {e}).sub_({k});{x}.index_fill_({d}, torch.tensor([0]), {k});{x}.abs_()
{x}.scatter_({d}, torch.zeros_like({x}, dtype=torch.int64), {k});torch.add({x}, {y}, out={z});{x}.addcmul_({y}, {y});{x}.squeeze().mul_({k});{x}.flip({d}).add_(1)"""


def rows(text: str) -> list[str]:
    return [row.strip() for row in text.replace(" not\n", " not ").replace("\n", ";").split(";")]


TABLES = [(rows(UNARY), 5), (rows(BINARY), 7), (rows(REDUCED), 4), (rows(VIEWS), 5), (rows(INDEXED), 2), (rows(JOINED), 1), (rows(CASTS), 2)]
TURN = [table for table, share in TABLES for _ in range(share)]
WRITES = rows(WRITTEN)
NUMBERS = ("2", "-1", "0", "0.5", "-1.5", "3", "7", "True", "2**31", "-(2**33)", "1e-3", "255", "-128", "0.0")


def tensor(shape: tuple[int, ...], dtype: torch.dtype, layout: str, seed: int) -> torch.Tensor:
    """A tensor with this shape and memory of that kind."""
    g = torch.Generator().manual_seed(seed)

    def fill(shape: tuple[int, ...]) -> torch.Tensor:
        if dtype is torch.bool:
            return torch.rand(shape, generator=g) > 0.5
        if dtype.is_complex:
            return torch.complex(torch.randn(shape, generator=g), torch.randn(shape, generator=g))
        if dtype.is_floating_point:
            return (torch.randn(shape, generator=g) * 2).to(dtype)
        if dtype is torch.int64 and seed % 5 == 0:
            return torch.randint(-(2**40), 2**40, shape, generator=g)
        return torch.randint(0 if dtype is torch.uint8 else -20, 20, shape, generator=g).to(dtype)

    if layout == "transposed" and len(shape) > 1:
        return fill((*shape[:-2], shape[-1], shape[-2])).mT
    if layout == "stepped" and shape:
        return fill((*shape[:-1], shape[-1] * 2))[..., ::2]
    if layout == "offset" and shape:
        return fill((shape[0] + 2, *shape[1:]))[2:]
    if layout == "expanded" and len(shape) > 1:
        return fill((1, *shape[1:])).expand(shape)
    if layout == "channels last" and len(shape) == 4:
        return fill(shape).contiguous(memory_format=torch.channels_last)
    if layout == "negative" and dtype.is_floating_point and dtype is not torch.bfloat16:
        return fill(shape)._neg_view()
    if layout == "conjugate" and dtype.is_complex:
        return fill(shape).conj()
    if layout == "flipped axes":
        return fill(shape[::-1]).permute(tuple(range(len(shape)))[::-1])
    return fill(shape)


class Program:
    """A program of a seed: its text, and the inputs of each call as (shape, dtype, layout, seed)."""

    def __init__(self, number: int) -> None:
        self.dice = random.Random(f"tensors {number}")
        self.rank = self.dice.choice((0, 1, 2, 2, 2, 3, 3, 4))
        self.inputs = self.dice.randint(1, 3)
        dtypes = [self.dice.choice(DTYPES) for _ in range(self.inputs)]
        if self.dice.random() < 0.5:
            dtypes = [dtypes[0]] * self.inputs
        self.forms = [[self.dice.random() < 0.2 for _ in range(self.rank)] for _ in dtypes]  # whether a dim is 1 there
        first = self.call(dtypes, (2, 3, 3, 4, 5, 8))
        same = [self.call(dtypes, SIZES) for _ in range(3)]
        other = self.call([self.dice.choice(DTYPES) for _ in dtypes], SIZES)
        self.calls = [first, *same, other, first]
        self.lines = self.written()
        names = [f"a{i}" for i in range(self.inputs)]
        made = [m[0][:-3] for line in self.lines if (m := re.match(r"v\d+ = ", line))]
        self.text = "\n".join([f"def f({', '.join(names)}):", *(f"    {line}" for line in self.lines), f"    return [{', '.join(made)}]"])

    def call(self, dtypes: list[torch.dtype], sizes: tuple[int, ...]) -> list[tuple]:
        shape = [self.dice.choice(sizes) for _ in range(self.rank)]
        return [(tuple(1 if one else n for one, n in zip(form, shape, strict=True)), dtype, self.dice.choice(LAYOUTS), self.dice.randint(0, 99))
            for form, dtype in zip(self.forms, dtypes, strict=True)]

    def written(self) -> list[str]:
        space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
        space.update((f"a{i}", tensor(*spec)) for i, spec in enumerate(self.calls[0]))
        tensors, lines = [*space][2:], []
        wanted = self.dice.randint(2, 12)
        for _ in range(60):
            if len(lines) == wanted:
                break
            recent = tensors[-3:] * 2 + tensors
            names = {k: self.dice.choice(recent) for k in "xyz"} | {k: self.dice.choice(NUMBERS) for k in "kl"}
            names |= {k: str(self.dice.randint(-self.rank, max(self.rank - 1, 0))) for k in "de"}
            writes = self.dice.random() < 0.15
            text = self.dice.choice(WRITES if writes else self.dice.choice(TURN)).format(**names)
            line = text if writes else f"v{len(lines)} = {text}"
            try:
                exec(line, space)  # a write that raises half way has written nothing, or the same in both
            except Exception:
                continue
            lines.append(line)
            made = space.get(f"v{len(lines) - 1}")
            if isinstance(made, torch.Tensor) and not writes:
                if made.numel() > 1 << 16:
                    lines.pop()
                    continue
                tensors.append(f"v{len(lines) - 1}")
        return lines

    def __str__(self) -> str:
        return "\n".join([*(f"# {[(tuple(s), str(d).removeprefix('torch.'), w, n) for s, d, w, n in c]}" for c in self.calls), self.text])


def outcome(fn: Callable, call: list[tuple], double: bool = False) -> tuple[list[Any], str]:
    """(what was returned, then the arguments; how it raised)."""
    args = [tensor(*spec) for spec in call]
    if double:
        args = [a.to(torch.complex128 if a.is_complex() else torch.float64) if a.is_floating_point() or a.is_complex() else a for a in args]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [*fn(*args), *args], ""
    except Exception as e:
        return args, f"{type(e).__name__}: {e}"


def form(t: torch.Tensor) -> tuple:
    strides = tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ()
    return (tuple(t.shape), t.dtype, strides, t.is_conj(), t.is_neg())


def limit_of(values: list[Any]) -> float:
    """What rounding explains: of the coarsest dtype among all that was made: writes bring it to what was there before."""
    return max([LIMITS.get(v.dtype, 1e-11) for v in values if isinstance(v, torch.Tensor)], default=1e-11)


def off(a: torch.Tensor, b: torch.Tensor, limit: float) -> float:
    """How far off `b` is, in units of what rounding explains."""
    if not (a.is_floating_point() or a.is_complex()):
        return 0.0 if torch.equal(a, b) else float("inf")
    kind = torch.complex128 if a.is_complex() else torch.float64
    a, b = a.to(kind), b.to(kind)
    if a.is_complex():
        a, b = torch.view_as_real(a.resolve_conj()), torch.view_as_real(b.resolve_conj())
    if not torch.equal(a.isnan(), b.isnan()):
        return float("inf")
    apart = torch.where((a == b) | a.isnan(), 0.0, (a - b).abs())
    size = a.abs().nan_to_num(0.0, posinf=0.0, neginf=0.0)
    return float(apart.max() / (limit * size.max().clamp_min(0.1))) if a.numel() else 0.0


def compare(want: list[Any], got: list[Any], exact: Callable[[], list[Any]]) -> str:
    """What differs, or ""."""
    same_bits = True
    for i, (a, b) in enumerate(zip(want, got, strict=True)):
        if not isinstance(a, torch.Tensor):
            if type(a) is not type(b):
                return f"item {i}: eager {a!r}, compiled {b!r}"
            a, b = torch.tensor(a), torch.tensor(b)
        elif form(a) != form(b):
            data = not same_bits and a.shape != b.shape  # what rounding decided
            return "" if data else f"item {i}: eager {form(a)}, compiled {form(b)}"
        limit = limit_of(want)
        far = off(a, b, limit)
        if far > 1:
            if same_bits:
                right = exact()
                whole = i < len(right) and isinstance(right[i], torch.Tensor) and not (a.is_floating_point() or a.is_complex())
                if whole and right[i].dtype is b.dtype and torch.equal(right[i], b):
                    return ""  # what is written over since was rounding, to eager
                if i >= len(right) or not isinstance(right[i], torch.Tensor) or right[i].shape != a.shape or far == float("inf"):
                    return f"item {i}: {far:.3g} times rounding: eager {a.flatten()[:6]}, compiled {b.flatten()[:6]}"
                mine, theirs = (off(right[i].to(a.dtype), t, limit) for t in (b, a))
                if mine > 4 * theirs + 1:
                    return f"item {i}: {mine:.3g} times rounding from float64, eager {theirs:.3g}: {a.flatten()[:6]}, compiled {b.flatten()[:6]}"
            return ""  # what comes behind may be of rounding's making
        same_bits = same_bits and (torch.equal(a, b) or bool(a.isnan().any()))
    return ""


def examine(number: int, backend: str = "native") -> tuple[str, str]:
    """(what became of the program, what differs)."""
    program = Program(number)
    space: dict[str, Any] = {"torch": torch, "F": torch.nn.functional}
    exec(compile(program.text, f"<tensors {number}>", "exec"), space)
    eager = space["f"]
    fn = pliant.compile(eager, backend=backend, strict=True, background=False)
    try:
        for i, call in enumerate(program.calls):
            want, raised = outcome(eager, call)
            got, ours = outcome(fn, call)
            if raised or ours:
                if "InternalError" in ours or "PliantError" in ours:
                    return "error", f"call {i}: eager {raised[:200]!r}, compiled {ours[:900]}"
                if bool(raised) != bool(ours) or raised.split(":")[0] != ours.split(":")[0]:
                    return "wrong", f"call {i}: eager {raised[:300]!r}, compiled {ours[:600]!r}"
            text = compare(want, got, lambda call=call: outcome(eager, call, True)[0])
            if text:
                return "wrong", f"call {i}: {text}"
    finally:
        with contextlib.suppress(Exception):
            pliant.reset()
    return "right", ""
