"""Ragged lengths in the symbolic engine: n lengths from one `tolist()`, their known sum, and what split, slices and re-concatenation ask.

    python benchmarks/symbolic_ragged.py [10 100 500 2000]

Prints seconds for each n, how many questions were proven, and the exponent of growth between the first and the last (1 is linear).
"""

from __future__ import annotations

import math
import sys
import time

from pliant.symbolic import Expr, Scope, ops


def questions(n: int) -> tuple[float, int, int]:
    """(seconds, questions that must be proven, questions proven) for n lengths."""
    start = time.perf_counter()
    scope = Scope(record=False)
    size = scope.backed("s0", hint=3 * n, size_like=True)
    lengths = [scope.unbacked(f"u{i}", size_like=True) for i in range(n)]
    scope.assume(ops.sum_(lengths) == size)
    offset: Expr | int = 0
    proven = 0
    for u in lengths:
        end = offset + u
        proven += scope.known_true(ops.ge(offset, 0)) + scope.known_true(ops.le(end, size)) + scope.known_true(u <= size)
        proven += scope.known_true(ops.eq(end - offset, u))
        scope.decide_or_false(u == 0)
        scope.decide_or_false(u == 1)
        offset = end
    proven += scope.known_true(ops.eq(offset, size))
    return time.perf_counter() - start, 4 * n + 1, proven


def main() -> None:
    sizes = [int(a) for a in sys.argv[1:]] or [10, 100, 500, 2000]
    questions(20)
    seconds = []
    for n in sizes:
        t, asked, proven = min((questions(n) for _ in range(3)), key=lambda r: r[0])
        seconds.append(t)
        print(f"{n:6} lengths  {t:8.3f} s  {t / n * 1e6:8.1f} µs each  {proven} of {asked} proven")
    if len(sizes) > 1:
        print(f"exponent {math.log(seconds[-1] / seconds[0]) / math.log(sizes[-1] / sizes[0]):.2f}")


if __name__ == "__main__":
    main()
