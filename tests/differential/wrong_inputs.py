"""Operators that are given what they refuse, and whose result nobody reads, or in a `try`; eager against compiled.

    python -m tests.differential.wrong_inputs FIRST COUNT

The first programs give each operator of PyTorch's own samples (`op_db`) the inputs that PyTorch's tests hold to be wrong; those behind
them are samples of which one thing is made another: the dtype, sizes, device, layout or state of a tensor, a number, a keyword, the kind
of an argument. A program is called with the right inputs, the wrong ones, the right ones; or begins with the wrong ones. Compared are
whether it raises, what, its first line, the result, and what the operands hold then.
"""

from __future__ import annotations

import functools
import random
import re
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

import pliant
from pliant.errors import InternalError
from tests.differential.numbered import main
from tests.operator_samples import op_db, samples

CALLS = 3


# ------------------------------------------------------------------------------------------------- programs
def tried(op: Callable, x: Any, args: list, named: dict) -> Any:
    try:
        out = op(*args, **named)
    except Exception as e:
        return x * 2, type(e).__name__, str(e)
    return out, x * 3


def unread(op: Callable, x: Any, args: list, named: dict) -> Any:
    op(*args, **named)
    return x + 1


def unread_in_a_try(op: Callable, x: Any, args: list, named: dict) -> Any:
    y = x + 1
    try:
        op(*args, **named)
        y = y * 2
    except (RuntimeError, TypeError, ValueError, IndexError) as e:
        return y, type(e).__name__
    finally:
        y = y - 1
    return y


FORMS = (tried, unread, unread_in_a_try)
ORDERS = ((0, 1, 0), (1, 0, 1))  # 0: the right inputs, 1: the wrong ones


# ------------------------------------------------------------------------------------------------- one thing made another
DTYPES = (torch.int64, torch.int32, torch.uint8, torch.bool, torch.float16, torch.bfloat16, torch.float64, torch.complex64)
NUMBERS = (-1, 0, 1, 2, -7, 99, 1.5, -0.5, float("nan"), True, None, "a", 1j, (1,), [], torch.float32)
TEXTS = ("other", "", "none", "mean", "sum", None, 0)


def expanded(t: torch.Tensor) -> torch.Tensor:
    return t[:1].expand(3, *t.shape[1:]) if t.dim() else t.expand(3)


def inference(t: torch.Tensor) -> torch.Tensor:
    with torch.inference_mode():
        return t.clone()


TENSORS: dict[str, Callable[[torch.Tensor], Any]] = {
    **{str(d): functools.partial(lambda d, t: t.to(d), d) for d in DTYPES},
    "on meta": lambda t: t.to("meta"),
    "one dim more": lambda t: t.unsqueeze(0),
    "one dim less": lambda t: t[0] if t.dim() and len(t) else t.reshape(-1)[:1],
    "a row more": lambda t: torch.cat([t, t[:1]]) if t.dim() else t,
    "no rows": lambda t: t[:0] if t.dim() else t.expand(0),
    "transposed": lambda t: t.transpose(0, -1) if t.dim() else t,
    "a column less": lambda t: t[..., :-1] if t.dim() else t,
    "expanded": expanded,
    "every second": lambda t: torch.stack([t, t], -1)[..., 0],
    "a scalar": lambda t: t.reshape(-1)[0] if t.numel() else t.new_zeros(()),
    "a leaf": lambda t: t.detach().clone().requires_grad_(t.is_floating_point() or t.is_complex()),
    "of inference": inference,
    "sparse": lambda t: t.to_sparse(),
    "conjugated": lambda t: t.to(torch.complex64).conj(),
    "a list": lambda t: t.tolist(),
    "a number": lambda t: 2.5,
    "None": lambda t: None,
    "a text": lambda t: "a",
    "an array": lambda t: t.numpy(),
    "a tuple of two": lambda t: (t, t),
    "a parameter": lambda t: torch.nn.Parameter(t, t.is_floating_point()),
    "negative": lambda t: t.neg() if t.dtype is not torch.bool else ~t,
}  # fmt: skip
KEYWORDS = (("dim", 9), ("dim", -9), ("dim", "a"), ("dim", (0, 0)), ("keepdim", True), ("out", None), ("dtype", torch.int8),
    ("dtype", "float"), ("dtype", torch.complex64), ("gamma", 1), ("reduction", "other"), ("device", "meta"), ("eps", None),
    ("layout", torch.sparse_coo), ("requires_grad", True), ("generator", None), ("memory_format", torch.channels_last), ("alpha", 1.5),
    ("rounding_mode", "up"))  # fmt: skip
OUTS = {
    "of another dtype": lambda t: torch.empty(t.shape, dtype=torch.int32 if t.dtype is not torch.int32 else torch.int8),
    "of other sizes": lambda t: torch.empty((5, *t.shape), dtype=t.dtype),
    "with gradients": lambda t: torch.empty(t.shape, dtype=t.dtype).requires_grad_(t.is_floating_point()),
    "on meta": lambda t: torch.empty(t.shape, dtype=t.dtype, device="meta"),
    "without elements": lambda t: torch.empty(0, dtype=t.dtype),
    "fitting": torch.zeros_like,
}  # fmt: skip


def of_another(op: Any, rng: random.Random, args: list, named: dict) -> tuple[str, list, dict] | None:
    """What is other, and the arguments so; None if there is nothing of that kind."""
    leaves, spec = tree_flatten((args, named))
    way = rng.random()
    if way < 0.12:
        name, value = rng.choice(KEYWORDS)
        return f"{name}={value}", args, {**named, name: value}
    if way < 0.2 and op.supports_out:
        try:
            out = op.op(*tree_map(copied, args), **tree_map(copied, named))
        except Exception:
            return None
        if type(out) is not torch.Tensor:
            return None
        how = rng.choice(list(OUTS))
        return f"out= {how}", args, {**named, "out": OUTS[how](out)}
    if not leaves:
        return None
    place = rng.randrange(len(leaves))
    was = leaves[place]
    if isinstance(was, torch.Tensor):
        how = rng.choice(list(TENSORS))
        try:
            leaves[place] = TENSORS[how](was)
        except Exception:
            return None
        said = f"operand {place} {how}"
    elif isinstance(was, (int, float, complex)):
        leaves[place] = rng.choice(NUMBERS)
        said = f"number {place} is {leaves[place]!r}"
    else:
        leaves[place] = rng.choice(TEXTS)
        said = f"argument {place} is {leaves[place]!r}"
    args, named = tree_unflatten(leaves, spec)
    return said, args, named


# ------------------------------------------------------------------------------------------------- cases
@functools.cache
def refused() -> list[tuple[Any, int, Any]]:
    """Each operator with the inputs that PyTorch's own tests hold to be wrong."""
    return [(op, i, e) for op in op_db if op.error_inputs_func is not None for i, e in enumerate(op.error_inputs("cpu"))]


def samples_of(op: Any, count: int) -> list[Any]:
    """Of floats, where there are any; none of an operator that is not there for the CPU."""
    dtypes = sorted(op.dtypes, key=lambda d: (d is not torch.float32, str(d)))
    return samples(op, dtypes[0], count) if dtypes else []


def given(sample: Any) -> tuple[list, dict]:
    return [sample.input, *sample.args], dict(sample.kwargs)


SKIPPED = re.compile("empty|_like$|^jiterator|^rand|bernoulli|multinomial|uniform|normal|exponential|geometric|cauchy|dropout|poisson"
    "|resize|_segment_reduce")
"""What gives memory that nobody wrote, or is not its own, or random numbers: values are not compared."""


def copied(v: Any) -> Any:
    if not isinstance(v, torch.Tensor):
        return v
    with torch.inference_mode(v.is_inference()), torch.no_grad():
        if v.layout is not torch.strided:
            return v.clone()
        if v.numel() and 0 in [s for s, n in zip(v.stride(), v.shape, strict=True) if n > 1]:
            t = v.as_strided([1 if s == 0 else n for s, n in zip(v.stride(), v.shape, strict=True)], v.stride()).clone().expand(v.shape)
        else:
            t = v.clone()
    if isinstance(v, torch.nn.Parameter):
        return torch.nn.Parameter(t, v.requires_grad)
    return t.requires_grad_() if v.requires_grad else t


def shown(v: Any, values: bool) -> Any:
    if not isinstance(v, torch.Tensor):
        return v if isinstance(v, (int, str, bool, type(None))) else re.sub("0x[0-9a-f]+", "0x", repr(v))
    told = [type(v).__name__, str(v.dtype), tuple(v.shape), v.device.type, v.requires_grad, str(v.layout), v.is_inference()]
    if v.layout is torch.strided and v.device.type == "cpu":
        told += [v.stride() if v.numel() and 1 not in v.shape else None, v.is_conj(), v.is_neg()]
        if values:
            told.append(Held(v.detach().resolve_conj().resolve_neg().reshape(-1).clone()))
    return told


class Held:
    """The values of a tensor: equal to others that are as near as kernels are that add up in another order."""

    __hash__ = None  # type: ignore[assignment]

    def __init__(self, t: torch.Tensor) -> None:
        self.t = t

    def __eq__(self, other: Any) -> bool:
        rtol = 1e-2 if self.t.dtype.itemsize < 4 else 1e-4
        a, b = (t.to(torch.complex128 if t.is_complex() else torch.float64) for t in (self.t, other.t))
        return torch.allclose(a, b, rtol, rtol * 1e-1, equal_nan=True)

    def __repr__(self) -> str:
        return str(self.t[:4].tolist())


def outcome(f: Callable, op: Callable, args: list, named: dict, values: bool) -> list:
    x = torch.arange(3.0)
    args, named = tree_map(copied, (args, named))
    torch.manual_seed(3)
    try:
        out = tree_map(lambda v: shown(v, values), f(op, x, args, named))
    except InternalError as e:
        return [f"an internal error: {e}"]
    except Exception as e:
        out = [type(e).__name__, str(e)]
    return [first_lines(out), tree_map(lambda v: shown(v, values), (args, named))]


def first_lines(out: Any) -> Any:
    return tree_map(lambda v: re.sub("0x[0-9a-f]+", "0x", v.partition("\n")[0]) if isinstance(v, str) else v, out)


def case(number: int) -> tuple[str, Any, Callable, tuple, list[tuple[list, dict]]] | None:
    """What program `number` is: in words, the operator, the program, the order of calls, the right and the wrong arguments."""
    wrong, ways = refused(), len(FORMS) * len(ORDERS)
    form, order = FORMS[number % len(FORMS)], ORDERS[number // len(FORMS) % len(ORDERS)]
    if number < len(wrong) * ways:
        op, i, e = wrong[number // ways]
        right = samples_of(op, 1)
        if not right:
            return None
        return f"{op.full_name}, wrong input {i}", op, form, order, [given(right[0]), given(e.sample_input)]
    rng = random.Random(number)
    op = rng.choice(op_db)
    torch.manual_seed(number)
    found = samples_of(op, 8)
    if not found:
        return None
    right = given(rng.choice(found))
    other = of_another(op, rng, *right)
    if other is None:
        return None
    said, *both = other
    return f"{op.full_name}, {said}", op, form, order, [right, tuple(both)]


def examine(number: int, backend: str = "aten") -> str | None:
    found = case(number)
    if found is None:
        return None
    said, op, form, order, inputs = found
    pliant.reset()
    compiled = pliant.compile(form, strict=True, backend=backend)
    values = not SKIPPED.search(op.name) and "meta" not in said  # whose kernels of the CPU give memory that nobody wrote
    function = op.op
    if number % 7 == 0 and op.inplace_variant is not None:
        function, said = op.inplace_variant, f"{said}, in place"
    for i, which in enumerate(order):
        want, got = (outcome(f, function, *inputs[which], values) for f in (form, compiled))
        for at, (w, g) in enumerate(zip(want, got, strict=False)):
            if w != g:
                told = f"{number}: {said}, {form.__name__}, call {i} of {order}{', operands' if at else ''}"
                return f"{told}:\n   want {str(w)[:300]}\n   got  {str(g)[:300]}"
    return None


if __name__ == "__main__":
    main(examine, CALLS)
