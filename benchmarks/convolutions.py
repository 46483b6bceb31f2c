"""Convolutions of f32 by geometry, alone: `python -m benchmarks.convolutions [--threads 1]`.

Microseconds a call, medians, of ATen's call on row-major tensors, of the same channels-last, of oneDNN with weights packed beforehand and
everything channels-last, and of the native function of pliant's segments (compiled, with guards and allocation). One thread: of the
processor; more: of the clock.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from rich.console import Console
from rich.table import Table

import pliant

ROUNDS = 15
# input; features, channels of a group, kernel; stride; groups
GEOMETRIES: list[tuple[tuple[int, ...], tuple[int, int, int], int, int]] = [
    ((1, 3, 64, 64), (16, 3, 3), 2, 1),
    ((4, 16, 16, 16), (16, 16, 3), 1, 1),
    ((4, 64, 6, 6), (64, 64, 3), 1, 1),
    ((1, 3, 224, 224), (64, 3, 7), 2, 1),
    ((1, 64, 56, 56), (64, 64, 3), 1, 1),
    ((1, 64, 56, 56), (256, 64, 1), 1, 1),
    ((1, 128, 28, 28), (128, 128, 3), 1, 1),
    ((1, 256, 56, 56), (512, 256, 1), 2, 1),
    ((1, 256, 14, 14), (256, 256, 3), 1, 1),
    ((1, 512, 7, 7), (512, 512, 3), 1, 1),
    ((4, 512, 7, 7), (512, 512, 3), 1, 1),
    ((1, 2048, 7, 7), (512, 2048, 1), 1, 1),
    ((1, 64, 200, 200), (64, 64, 3), 1, 1),
    ((1, 64, 56, 56), (128, 2, 3), 1, 32),
    ((1, 3, 224, 224), (768, 3, 16), 16, 1),
    ((8, 480, 1, 1), (20, 480, 1), 1, 1),
    ((1, 32, 112, 112), (32, 1, 3), 1, 32),
    ((1, 96, 112, 112), (96, 1, 3), 2, 96),
    ((1, 384, 14, 14), (384, 1, 3), 1, 384),
    ((4, 64, 20, 20), (64, 1, 5), 2, 64),
    ((1, 768, 14, 14), (768, 1, 7), 1, 768),
]


def systems(x: torch.Tensor, w: torch.Tensor, stride: int, groups: int) -> dict[str, Callable[[], Any]]:
    kernel = w.shape[2]
    pad = kernel // 2 if stride < kernel else 0
    last, w_last = x.to(memory_format=torch.channels_last), w.to(memory_format=torch.channels_last)
    geometry: Any = ([pad, pad], [stride, stride], [1, 1], groups)
    packed = torch.ops.mkldnn._reorder_convolution_weight(w, *geometry, list(last.shape))
    layer = torch.nn.Conv2d(x.shape[1], w.shape[0], kernel, stride, pad, 1, groups, bias=False)
    layer.weight = torch.nn.Parameter(w)
    compiled = pliant.compile(layer, background=False)
    return {
        "ATen": lambda: F.conv2d(x, w, None, stride, pad, 1, groups),
        "channels-last": lambda: F.conv2d(last, w_last, None, stride, pad, 1, groups),
        "packed": lambda: torch.ops.mkldnn._convolution_pointwise(last, packed, None, *geometry, "none", [], ""),
        "pliant": lambda: compiled(x),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    clock = time.thread_time if args.threads == 1 else time.perf_counter
    table = Table(title=f"convolutions, {args.threads} thread(s): microseconds")
    for head in ("input", "weight", "stride", "ATen", "channels-last", "packed", "pliant", "GFLOP/s", "ATen / pliant", "packed / pliant"):
        table.add_column(head, justify="right")
    ratios = []
    with torch.no_grad():
        for shape, (features, channels, kernel), stride, groups in GEOMETRIES:
            x, w = torch.randn(shape), torch.randn(features, channels, kernel, kernel)
            fns = systems(x, w, stride, groups)
            want = fns["ATen"]()
            for fn in fns.values():
                torch.testing.assert_close(fn(), want, rtol=1e-3, atol=1e-3)
            times: dict[str, list[float]] = {name: [] for name in fns}
            for _ in range(ROUNDS):
                for name, fn in fns.items():
                    begun = clock()
                    for _ in range(3):
                        fn()
                    times[name].append((clock() - begun) / 3)
            us = {name: 1e6 * statistics.median(t) for name, t in times.items()}
            work = 2e-3 * want.numel() * w[0].numel() / us["pliant"]
            ratios.append(us["ATen"] / us["pliant"])
            sizes = ["x".join(map(str, s)) for s in (x.shape, w.shape)]
            cells = [f"{v:.0f}" for v in (*us.values(), work)]
            table.add_row(*sizes, str(stride), *cells, f"{ratios[-1]:.2f}", f"{us['packed'] / us['pliant']:.2f}")
    console = Console(width=150)
    console.print(table)
    console.print(f"ATen / pliant, geometric mean: {statistics.geometric_mean(ratios):.2f}")


if __name__ == "__main__":
    main()
