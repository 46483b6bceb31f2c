"""`pliant operator add.Tensor`: everything that pliant knows of an ATen operator, and where each part is written."""

from __future__ import annotations

import argparse

import pliant.codegen.native  # noqa: F401 (fills the columns of the rooms above the graph)
from pliant.codegen import target
from pliant.graph.operators import OPERATORS, described


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", nargs="*", help="operators by their names in torch.ops.aten, as `add.Tensor` or `softmax.int`")


def run(args: argparse.Namespace) -> int:
    target.current()
    if not args.names:
        lowered = sum(spec.lowering is not None for spec in OPERATORS.values())
        shaped = sum(spec.shape is not None for spec in OPERATORS.values())
        print(f"{len(OPERATORS)} operators have rows: {shaped} a shape rule, {lowered} a lowering. `pliant operator NAME` shows one.")
    for name in args.names:
        print(described(name))
    return 0
