"""PyTorch's own operator samples through fused kernels: values, dtypes and strides as eager's.

Every operation that has a lowering becomes a kernel here, also where alone it is not worth one; each sample runs once as it is and once
between two more elementwise operations, so that fusion sees it from both sides. Gradients too, where the operator has them.
`PLIANT_OPINFO_SAMPLES=1000` takes all samples of all dtypes of all operators; by default two of `f32` and one of another dtype.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils._pytree import tree_flatten, tree_map

from pliant.codegen import native
from pliant.codegen.cpu.backend import CPU
from pliant.codegen.native import compile_native
from pliant.graph.traced import Untraceable, is_limit
from pliant.lower.lowerings import TABLE
from pliant.symbolic import DataDependent
from tests.graph.harness import Captured
from tests.operator_samples import op_db
from tests.operator_samples import samples as samples_of

SAMPLES = int(os.environ.get("PLIANT_OPINFO_SAMPLES", "0"))
OTHERS = (torch.bfloat16, torch.float16, torch.float64, torch.int32, torch.int64, torch.uint8, torch.bool)
REFUSALS = (Untraceable, DataDependent)
SKIPPED = frozenset(
    (
        "native_group_norm _native_batch_norm_legit _batch_norm_with_update empty empty_like new_empty new_empty_strided empty_strided "
        "empty_permuted cauchy exponential geometric log_normal normal uniform bernoulli multinomial randn randn_like rand_like randint "
        "randint_like svd_lowrank pca_lowrank resize_ resize_as_ nn.functional.rrelu native_dropout_backward"
    ).split()
)
"""What has no result to compare, or none that is the same twice; norms whose statistics PyTorch's own shape functions tell wrongly."""

ROUNDING = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2**-7, torch.float16: 2**-10}


def dtypes_of(op: Any, position: int) -> list[torch.dtype]:
    supported = op.supported_dtypes("cpu")
    others = [d for d in OTHERS if d in supported]
    if not SAMPLES and others:
        others = [others[position % len(others)]]
    return [d for d in (torch.float32, *others) if d in supported]


def samples(op: Any, dtype: torch.dtype, grad: bool) -> list[tuple[tuple, dict]]:
    """Dense samples that eager accepts."""
    out = []
    wanted = SAMPLES or (2 if dtype is torch.float32 else 1)
    for s in samples_of(op, dtype, wanted, grad):
        call = (s.input, *s.args), s.kwargs
        if all(t.layout is torch.strided for t in tree_flatten(call)[0] if isinstance(t, torch.Tensor)):
            out.append(call)
    return out


def copied(values: Any) -> Any:
    def copy(t: Any) -> Any:
        if not isinstance(t, torch.Tensor):
            return t
        return t.detach().clone(memory_format=torch.preserve_format).requires_grad_(t.requires_grad)

    return tree_map(copy, values)


def before(t: Any) -> Any:
    """An operation that changes no value."""
    if not isinstance(t, torch.Tensor) or t.dtype.is_complex:
        return t
    return t * 1.0 if t.dtype.is_floating_point else t & True if t.dtype == torch.bool else t + 0


def behind(t: Any) -> Any:
    """An operation that loses nothing."""
    if not isinstance(t, torch.Tensor) or t.dtype.is_complex:
        return t
    return -t if t.dtype.is_floating_point else ~t


def program(op: Any, fused: bool) -> Callable:
    def run(args: tuple, kwargs: dict) -> Any:
        if not fused:
            return op.op(*args, **kwargs)
        return tree_map(behind, op.op(*tree_map(before, args), **tree_map(before, kwargs)))

    return run


def gradients(out: Any, inputs: list[torch.Tensor]) -> list[Any]:
    """Of the sum of all results, each weighted."""
    heads = [t for t in tree_flatten(out)[0] if isinstance(t, torch.Tensor) and t.requires_grad and not t.dtype.is_complex]
    if not heads:
        return []
    seeds = [torch.linspace(0.5, 1.5, max(h.numel(), 1), dtype=h.dtype)[: h.numel()].view(h.shape) for h in heads]
    return list(torch.autograd.grad(heads, inputs, seeds, allow_unused=True))


def compiled(fn: Callable, args: tuple, kwargs: dict, symbolic: bool) -> Callable:
    """`fn(*args, **kwargs)` captured and compiled: call it with the tensors in place of those seen."""
    c = Captured(fn, (args, kwargs), dynamic=(lambda x, d, s: True) if symbolic else None)
    slots: list[Any] = []
    seen = set()
    values = []
    for traced, real in c.inputs:
        for s, v in zip((*traced.sizes, *traced.strides), (*real.size(), *real.stride()), strict=True):
            e = s.node.expr if isinstance(s, torch.SymInt) else None
            if e is not None and e.op == "sym" and e.name not in seen:
                seen.add(e.name)
                slots.append(e)
                values.append(v)
        slots.append(traced)
        values.append(real)
    flat, spec = tree_flatten(c.out)
    executable = compile_native(c.trace, slots, flat)
    return lambda: (executable.fn(*values), spec)


def check(op: Any, args: tuple, kwargs: dict, fused: bool, symbolic: bool, grad: bool) -> bool:
    """Compare one sample; False if it was refused."""
    fn = program(op, fused)
    ours, theirs = copied((args, kwargs)), copied((args, kwargs))
    try:
        torch.manual_seed(42)
        want = fn(*theirs)
    except (RuntimeError, ValueError, IndexError, TypeError, NotImplementedError):
        return True
    try:
        run = compiled(fn, *ours, symbolic)
    except REFUSALS:
        return False
    except RuntimeError as e:
        if is_limit(e):
            return False
        raise
    torch.manual_seed(42)
    got, spec = run()
    where = f"{op.name} {'fused ' if fused else ''}{'symbolic ' if symbolic else ''}{args} {kwargs}"
    try:
        same(list(got), tree_flatten(want)[0], where)
    except AssertionError:
        if not as_near(list(got), tree_flatten(want)[0], fn, args, kwargs):
            raise
    if grad:
        inputs = [[t for t in tree_flatten(v)[0] if isinstance(t, torch.Tensor) and t.requires_grad] for v in (ours, theirs)]
        results = torch.utils._pytree.tree_unflatten(list(got), spec)
        same(gradients(results, inputs[0]), gradients(want, inputs[1]), f"gradients of {where}", gradients=True)
    return True


def as_near(got: list, want: list, fn: Callable, args: tuple, kwargs: dict) -> bool:
    """Are results in f32 as near as eager's to what float64 gives? Exponentials of large scores lose digits in both."""

    def double(t: Any) -> Any:
        return t.detach().double() if isinstance(t, torch.Tensor) and t.dtype == torch.float32 else t

    exact = tree_flatten(fn(*tree_map(double, (args, kwargs))))[0]
    for g, w, e in zip(got, want, exact, strict=True):
        if not isinstance(w, torch.Tensor) or w.dtype != torch.float32 or g.shape != w.shape or g.dtype != w.dtype:
            return False
        ours, theirs = ((t.detach() - e).abs().max().item() for t in (g, w))
        if not ours <= theirs + 1e-6 * max(1.0, e.abs().max().item()):
            return False
    return True


def same(got: list, want: list, where: str, gradients: bool = False) -> None:
    """Gradients may be laid out otherwise, and lose digits where terms cancel."""
    assert len(got) == len(want), where
    for g, w in zip(got, want, strict=True):
        if not isinstance(w, torch.Tensor):
            assert type(g) is type(w) and (g == w or g != g), where
            continue
        assert g.dtype == w.dtype and g.shape == w.shape, f"{where}: {g.dtype} {g.shape}, {w.dtype} {w.shape}"
        assert gradients or g.numel() == 0 or g.stride() == w.stride(), f"{where}: strides {g.stride()}, {w.stride()}"
        tolerance = ROUNDING.get(w.dtype, 0)
        if w.is_complex():
            tolerance = 1e-5
        if gradients:
            tolerance *= 30
        top = w.detach().abs().nan_to_num(0, 0, 0).max().item() if tolerance and w.numel() else 0
        atol = tolerance * (0.6 if w.element_size() == 2 else 0.1) * (max(top, 1.0) if gradients else min(top, 1.0))
        torch.testing.assert_close(g.detach(), w.detach(), rtol=tolerance, atol=atol, equal_nan=True, msg=lambda m: f"{where}\n{m}")


@pytest.fixture
def kernels(monkeypatch):
    """Every nest becomes a kernel; what was made is collected."""
    made: list = []
    compile_all = native.compile_all

    def record(launches, segments=()):
        made.extend([*launches, *(launch for call in segments for launch in call.segment.launches)])
        compile_all(launches, segments)

    monkeypatch.setattr(CPU, "worth_a_kernel", lambda self, op: True)
    monkeypatch.setattr(native, "compile_all", record)
    return made


COMPOSITE = frozenset(
    (
        "softmax log_softmax true_divide isclose column_stack hstack tile kron outer norm nn.functional.cross_entropy "
        "nn.functional.normalize nn.functional.group_norm nn.functional.layer_norm nn.functional.rms_norm nn.functional.instance_norm "
        "nn.functional.batch_norm nn.functional.pad nn.functional.elu nn.functional.celu nn.functional.selu nn.functional.prelu "
        "nn.functional.silu nn.functional.mish nn.functional.logsigmoid nn.functional.hardsigmoid nn.functional.threshold "
        "nn.functional.softplus nn.functional.glu nn.functional.mse_loss nn.functional.l1_loss nn.functional.huber_loss "
        "nn.functional.smooth_l1_loss nn.functional.kl_div nn.functional.nll_loss nn.functional.binary_cross_entropy_with_logits "
        "nn.functional.scaled_dot_product_attention linalg.norm view_as_real masked.softmax"
    ).split()
)
"""Functions that PyTorch makes of operators with lowerings."""
LOWERED = {target._schema.name.removeprefix("aten::") for target in TABLE}
CHOSEN = [
    op
    for op in op_db
    if op.name not in SKIPPED
    and not op.name.startswith("jiterator")
    and (SAMPLES or op.name in COMPOSITE or (op.aten_name or op.name) in LOWERED)
]


@pytest.mark.parametrize("position", range(len(CHOSEN)), ids=lambda i: f"{CHOSEN[i].name}.{CHOSEN[i].variant_test_name}")
def test_operator(position: int, kernels: list) -> None:
    op = CHOSEN[position]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for dtype in dtypes_of(op, position):
            grad = op.supports_autograd and dtype in (torch.float32, torch.float64)
            between = dtype is not torch.float32  # by default the first sample runs as it is, others between operations
            for args, kwargs in samples(op, dtype, grad):
                for fused in (False, True) if SAMPLES else (between,):
                    check(op, args, kwargs, fused, fused, grad)
                between = True
            if not kernels:
                return  # no lowering
