"""Which kernel is wrong: `first_wrong(fn, *args)` compiles with fewer and fewer operations in kernels until the answer is eager's.

The first operation whose kernel changes the answer is found by bisection over their number, since a program with its first k operations in
kernels and ATen calls behind them is a program too. A kernel that differs by rounding alone is told from a wrong one by the tolerance.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pliant.codegen import native
from pliant.codegen.cpu.debug import schedule_text
from pliant.errors import PliantError
from pliant.jit.compile import compile as compiled
from pliant.jit.compile import reset
from pliant.lower import fuse, pipeline


@dataclass(frozen=True)
class Culprit:
    """The operation from which on the answer differs: its number, overload, line of the user, kernels, and the difference."""

    number: int
    operation: str
    site: str
    kernels: tuple[Any, ...]
    difference: str

    def __str__(self) -> str:
        head = f"operation {self.number}, {self.operation}, at {self.site}: {self.difference}"
        return "\n".join([head, *map(schedule_text, self.kernels)])


class Trial:
    """Runs the function with its first operations in kernels, and compares with eager."""

    def __init__(self, fn: Callable[..., Any], args: tuple, rtol: float, atol: float) -> None:
        self.fn, self.args, self.rtol, self.atol = fn, args, rtol, atol
        self.random = torch.get_rng_state()
        self.want = self.answer(fn)
        self.launches: list[Any] = []

    def answer(self, fn: Callable[..., Any]) -> Any:
        """What it returns, and what it leaves in its arguments; each run gets its own copy, and the same random numbers."""
        args = copy.deepcopy(self.args)
        torch.set_rng_state(self.random)
        return fn(*args), args

    def difference(self, limit: int | None) -> str:
        """How the answer differs with `limit` operations in kernels; empty if it does not."""
        reset()
        self.launches = []
        compile_all = native.compile_all

        def recording(launches: list[Any], segments: Any = ()) -> None:
            self.launches += launches
            compile_all(launches, segments)

        native.compile_all = recording
        try:
            with fuse.limited(limit), pipeline.without("join-runs"):
                got = self.answer(compiled(self.fn, backend="native"))
        finally:
            native.compile_all = compile_all
            reset()
        try:
            torch.testing.assert_close(got, self.want, rtol=self.rtol, atol=self.atol, equal_nan=True)
        except AssertionError as e:
            return " ".join(str(e).split())
        return ""


def first_wrong(fn: Callable[..., Any], *args: Any, rtol: float = 1e-3, atol: float = 1e-3) -> Culprit | None:
    """The first operation whose kernel makes the answer of `fn(*args)` differ from eager's by more than rounding; None if none does.

    `fn` must give the same answer for the same arguments; it is run about log2(operations) times. Compiled code is forgotten, before and
    after. Raises PliantError where it differs without any kernels: then the fault is elsewhere.
    """
    trial = Trial(fn, args, rtol, atol)
    found = trial.difference(None)
    if not found:
        return None
    right, wrong = 0, len(fuse.limit.seen)
    if trial.difference(0):
        raise PliantError(f"the answer differs from eager's without a kernel, so no kernel is at fault: {found}")
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if trial.difference(middle):
            wrong = middle
        else:
            right = middle
    found = trial.difference(wrong)
    op = fuse.limit.seen[wrong - 1]
    made = {t.vid for t in op.outs if hasattr(t, "vid")}
    guilty = [launch for launch in trial.launches if any(t.vid in made for t in launch.buffers)] or trial.launches[-1:]
    return Culprit(wrong - 1, str(op.target), str(op.site), tuple(launch.kernel for launch in guilty), found)
