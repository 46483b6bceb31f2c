"""What recording one ATen operation costs: microseconds of CPU time, shape rules against PyTorch's meta kernels.

    python -m benchmarks.dispatch_cost

The program is a transformer block with symbolic batch and length. Ratios matter; absolute figures are those of the machine at hand.
"""

from __future__ import annotations

import gc
import time
from typing import Any

import torch

from pliant.graph.rules import RULES
from pliant.graph.symnode import to_sym
from pliant.graph.trace import Trace
from pliant.symbolic import Scope

F = torch.nn.functional
SIZES = {"gain": (64,), "bias": (64,), "q": (64, 64), "k": (64, 64), "v": (64, 64), "o": (64, 64), "up": (256, 64), "down": (64, 256)}


def block(x: torch.Tensor, p: dict[str, Any]) -> torch.Tensor:
    h = F.layer_norm(x, (64,), p["gain"], p["bias"])
    b, s, _ = h.shape
    q, k, v = (F.linear(h, p[n], p["bias"]).view(b, s, 4, 16).transpose(1, 2) for n in "qkv")
    a = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, s, 64)
    x = F.layer_norm(x + F.linear(a, p["o"], p["bias"]), (64,), p["gain"], p["bias"])
    return x + F.linear(F.gelu(F.linear(x, p["up"])), p["down"], p["bias"])


def capture() -> tuple[float, Trace]:
    """Microseconds per operation of one capture, and its trace."""
    scope = Scope()
    trace = Trace(scope)
    params = {n: trace.input(torch.empty(s), None, s) for n, s in SIZES.items()}
    b, s = (to_sym(scope, scope.backed(n, hint=h, lo=2, size_like=True)) for n, h in (("b", 3), ("s", 7)))
    x = trace.input(torch.empty(3, 7, 64), None, (b, s, 64))
    with trace.recording(), torch.no_grad():
        start = time.process_time()
        for _ in range(4):
            x = block(x, params)
        spent = time.process_time() - start
    return spent / len(trace.ops) * 1e6, trace


def single(what: str, fn: Any, repeat: int = 300) -> None:
    """The cost of one operator, C++ dispatcher included."""
    scope = Scope()
    trace = Trace(scope)
    b, s = (to_sym(scope, scope.backed(n, hint=h, lo=2, size_like=True)) for n, h in (("b", 3), ("s", 7)))
    x = trace.input(torch.empty(3, 7, 64), None, (b, s, 64))
    with trace.recording(), torch.no_grad():
        fn(x)
        before = len(trace.ops)
        start = time.process_time()
        for _ in range(repeat):
            fn(x)
        spent = time.process_time() - start
    print(f"{what:24} {spent / (len(trace.ops) - before) * 1e6:8.1f} us an op")


def main() -> None:
    gc.collect()
    gc.disable()
    capture()
    cost, trace = min((capture() for _ in range(5)), key=lambda r: r[0])
    guards = sum(g.why != "declared" for g in trace.scope.guards)
    print(f"transformer block        {cost:8.1f} us an op, {len(trace.ops)} ops, {guards} guards")
    for what, fn in (
        ("x + x", lambda x: x + x),
        ("gelu", F.gelu),
        ("transpose", lambda x: x.transpose(0, 1)),
        ("softmax", lambda x: x.softmax(-1)),
        ("sum", lambda x: x.sum(-1)),
        ("slice", lambda x: x[:, 1:]),
    ):
        single(what, fn)
    rules = dict(RULES)
    RULES.clear()
    try:
        print(f"block without rules      {min(capture()[0] for _ in range(2)):8.1f} us an op")
    finally:
        RULES.update(rules)


if __name__ == "__main__":
    main()
