"""Runs printed StableHLO through jaxlib's reference interpreter: one module whose main returns every expression."""

from __future__ import annotations

import numpy as np
from jax._src.interpreters import mlir
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import stablehlo

from pliant.symbolic import Expr, straight_line
from tests.symbolic.samples import close, value

TENSORS = {int: "tensor<i64>", float: "tensor<f64>", bool: "tensor<i1>"}
DTYPES = {int: np.int64, float: np.float64, bool: np.bool_}


def module_text(expressions: list[Expr], names: tuple[str, ...], kinds: list[type]) -> str:
    lines, results = [], []
    for i, e in enumerate(expressions):
        body, result = straight_line.stablehlo(e, {n: f"%{n}" for n in names}, prefix=f"%t{i}_")
        lines += body
        results.append(result)
    params = ", ".join(f"%{n}: {TENSORS[k]}" for n, k in zip(names, kinds, strict=True))
    types = ", ".join(TENSORS[e.kind] for e in expressions)
    body = "\n  ".join(lines)
    return f"func.func @main({params}) -> ({types}) {{\n  {body}\n  return {', '.join(results)} : {types}\n}}"


def defined(expressions: list[Expr], env: dict) -> list[Expr]:
    """Division by zero is a trap for the interpreter: leave those out."""
    return [e for e in expressions if value(e, env) is not None]


def run(expressions: list[Expr], names: tuple[str, ...], kinds: list[type], environments: list[dict]) -> None:
    """Compare each expression in each environment with Python's value."""
    with mlir.make_ir_context() as context, ir.Location.unknown(context):
        stablehlo.register_stablehlo_passes()
        for env in environments:
            good = defined(expressions, env)
            module = ir.Module.parse(module_text(good, names, kinds))
            args = []
            for n, k in zip(names, kinds, strict=True):
                data = np.asarray(env[n], DTYPES[k])
                if k is bool:
                    bits = np.packbits(data, bitorder="little")
                    args.append(ir.DenseElementsAttr.get(bits, type=ir.IntegerType.get_signless(1), shape=()))
                else:
                    args.append(ir.DenseElementsAttr.get(data))
            results = stablehlo.eval_module(module, args)
            for e, r in zip(good, results, strict=True):
                got, want = np.asarray(r).item(), value(e, env)
                assert close(e.kind(got), want), (e, env, got, want)
