"""Programs and kernels as text: what is read back is what was printed, and what is no program is an error that names the line."""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from pliant.codegen import target
from pliant.codegen.aten import Writer
from pliant.graph.traced import TracedTensor
from pliant.lower import pipeline, verify
from pliant.lower.program import LEVELS, KernelCall, Program, SegmentCall
from pliant.lower.text import kernel_text, program_text, read_kernel, read_program
from pliant.symbolic import ops
from pliant.symbolic.parser import parse
from pliant.symbolic.scope import Scope
from tests.codegen.random_kernels import RandomKernel
from tests.codegen.tracing import Captured, tensors_of


def attention(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    q, k, v = F.linear(x, w).view(*x.shape[:-1], 2, -1).transpose(1, 2).chunk(3, -1)
    return F.scaled_dot_product_attention(q, k, v, is_causal=True).mean(-1, keepdim=True)


PROGRAMS: dict[str, tuple[Callable, tuple]] = {
    "products": (lambda x, w: (torch.tanh(x @ w.t()) + 1.5, x.t()[1:]), (torch.randn(5, 4), torch.randn(3, 4))),
    "attention": (attention, (torch.randn(2, 5, 8), torch.randn(24, 8))),
    "found sizes": (lambda x, i: (torch.nonzero(x > 0), x[i], x.sort(-1)), (torch.randn(4, 6), torch.tensor([1, 0, 2]))),
    "writes": (lambda x, y: (x.clone().mul_(2), y[:, ::2].copy_(x[:, :2]), y.t()), (torch.randn(3, 4), torch.randn(3, 4))),
    "kinds": (lambda x, i: (x.to(torch.bfloat16), i.float() / 3, torch.full((x.shape[0], 2), float("-inf")), x.sum((0, 1)), i > 2),
              (torch.randn(3, 4), torch.randint(5, (2, 3)))),
}  # fmt: skip
LIVE: list[Captured] = []


def lowered(name: str, level: str) -> Program:
    fn, given = PROGRAMS[name]
    c = Captured(fn, *given, compiler=lambda *a: None)
    LIVE.append(c)
    p = Program("region", c.scope, c.slots, tensors_of(c.nested), list(c.trace.ops), closed=False, target=target.current())
    p = pipeline.run(p, pipeline.SIMPLIFY)
    rows = next(i for i, row in enumerate(pipeline.COMPILE) if row.makes == level) + 1 if level != "graph" else 0
    return pipeline.run(p, pipeline.COMPILE[:rows])


def renumbered(text: str) -> str:
    """Tensors numbered in the order in which they are named."""
    numbers: dict[str, int] = {}
    return re.sub(r"%(\d+)", lambda m: f"%{numbers.setdefault(m[1], len(numbers))}", text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_are_read_back(name: str) -> None:
    p = lowered(name, "graph")
    text = program_text(p)
    again = read_program(text)
    verify.verify(again, "reading")
    assert renumbered(program_text(again)) == renumbered(text)


@pytest.mark.parametrize("name", PROGRAMS)
def test_what_was_read_runs(name: str) -> None:
    """A program from text computes what the one that was printed does."""
    p = lowered(name, "graph")
    again = read_program(program_text(p))
    sizes = {s.name: s.hint for s in p.inputs if not isinstance(s, TracedTensor)}
    given = [torch.randn(t.sizes) if t.dtype.is_floating_point else torch.zeros(t.sizes, dtype=t.dtype) for t in concrete(p, sizes)]
    answers = []
    for q in (p, again):
        tensors = iter([t.clone() for t in given])
        fn = Writer("region", q.scope, q.inputs, q.outputs, q.steps, []).finish(None).fn
        answers.append(fn(*[next(tensors) if isinstance(s, TracedTensor) else sizes[s.name] for s in q.inputs]))
    for got, want in zip(*answers, strict=True):
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
        assert got.stride() == want.stride()


class Concrete:
    def __init__(self, sizes: list[int], dtype: torch.dtype) -> None:
        self.sizes, self.dtype = sizes, dtype


def concrete(p: Program, values: dict[str, Any]) -> list[Concrete]:
    tensors = [t for t in p.inputs if isinstance(t, TracedTensor)]
    return [Concrete([n if type(n) is int else n.node.expr.evaluate(values) for n in t.sizes], t.dtype) for t in tensors]


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_has_a_text(level: str) -> None:
    text = program_text(lowered("products", level))
    assert text.startswith("program region") and ("at level" in text) == (level != "graph")
    with pytest.raises(ValueError, match="line 1") if level != "graph" else pytest.raises(ValueError):
        read_program(text if level != "graph" else "program")


def test_kernels_are_read_back() -> None:
    seen = 0
    for name in PROGRAMS:
        for op in lowered(name, "calls").steps:
            launches = [op.target.launch] if type(op.target) is KernelCall else []
            launches += op.target.segment.launches if type(op.target) is SegmentCall else []
            for launch in launches:
                text = kernel_text(launch.kernel)
                again = read_kernel(text)
                verify.check_kernel(again)
                assert kernel_text(again) == text
                seen += 1
    assert seen >= 5


@pytest.mark.parametrize("seed", range(60))
def test_random_kernels_are_read_back(seed: int) -> None:
    kernel = RandomKernel(seed).kernel
    assert kernel_text(read_kernel(kernel_text(kernel))) == kernel_text(kernel)


@pytest.mark.parametrize(
    "line, what",
    [
        ("%9: f32 [s0] strides [1] = aten.tanh.default(%77)", "77"),
        ("%9: f32 [s99] strides [1] = aten.tanh.default(%0)", "no expression"),
        ("%9: f32 [__import__('os')] strides [1] = aten.tanh.default(%0)", "no expression"),
        ("%9: f32 [s0] strides [1] = aten.nothing.default(%0)", "nothing"),
        ("%0: f32 [s0] strides [1] = aten.tanh.default(%0)", "made twice"),
        ("%9: x32 [s0] strides [1] = aten.tanh.default(%0)", "x32"),
        ("input s99", "s99"),
        ("symbol s9 = 5 in", "not a symbol"),
        ("what is this", "not an operation"),
    ],
)
def test_what_is_no_program(line: str, what: str) -> None:
    text = f"program p\n  symbol s0 = 5 in [2, inf] backed size int\n  input %0: f32 [s0] strides [1]\n  {line}\n  output [%0]"
    with pytest.raises(ValueError, match=f"line 4: .*{what}"):
        read_program(text)


@pytest.mark.parametrize("line", ["load b0", "%0 = tanh () (%7): f32", "store set b9", "buffer b5: f32", "%0 = const (os) (): f32"])
def test_what_is_no_kernel(line: str) -> None:
    with pytest.raises(ValueError, match="line 2"):
        read_kernel(f"kernel k0(n0) loops [n0], 0 reduced\n  {line}")
    with pytest.raises(ValueError, match="line 1"):
        read_kernel(line)


@pytest.mark.parametrize("seed", range(40))
def test_expressions_are_read_back(seed: int) -> None:
    """Random expressions over three symbols: the text of what was read is that of what was printed."""
    rng = random.Random(seed)
    scope = Scope()
    names = {n: scope.backed(n, h, lo=0, size_like=True) for n, h in (("a", 3), ("b", 7), ("c", 11))}
    pool: list[Any] = [*names.values(), 2, 5]
    for _ in range(12):
        op = rng.choice([ops.add, ops.sub, ops.mul, ops.floordiv, ops.mod, ops.min_, ops.max_])
        x, y = rng.choice(pool), rng.choice(pool)
        pool.append(op(x, ops.max_(y, 1) if op in (ops.floordiv, ops.mod) else y))
    for e in (pool[-1], ops.le(pool[-1], pool[-2]), ops.where(ops.lt(pool[-3], 4), pool[-1], pool[-2])):
        if hasattr(e, "python"):
            again = parse(e.python(), names)
            assert again is e or again == e.const
