"""Which pass, or which kernel, is wrong: found by bisection, since a program with fewer passes or kernels is as right.

`first_wrong_pass(fn, *args)` lets optional passes run less and less often (LLVM's `-opt-bisect-limit`) until the answer is eager's; where
it never is, it compiles for the reference target, which tells a wrong program from wrong machine code. `first_wrong(fn, *args)` compiles
with fewer and fewer operations in kernels. Rounding is told from a fault by the tolerance.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from pliant.codegen import native, target
from pliant.errors import PliantError
from pliant.jit.compile import compile as compiled
from pliant.jit.compile import reset
from pliant.lower import pipeline, search


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
        return "\n".join([head, *(target.current().listing(k, "schedule") for k in self.kernels)])


class Trial:
    """Runs the function with its first operations in kernels, and compares with eager."""

    def __init__(self, fn: Callable[..., Any], args: tuple, rtol: float, atol: float) -> None:
        self.fn, self.args, self.rtol, self.atol = fn, args, rtol, atol
        self.random = torch.get_rng_state()
        self.want = self.answer(fn)
        self.launches: list[Any] = []
        self.operations: list[Any] = []  # that were asked to go into kernels

    def answer(self, fn: Callable[..., Any]) -> Any:
        """What it returns, and what it leaves in its arguments; each run gets its own copy, and the same random numbers."""
        args = copy.deepcopy(self.args)
        torch.set_rng_state(self.random)
        return fn(*args), args

    def differs(self) -> str:
        """How the answer differs as things stand; empty if it does not. A program that cannot be compiled or called differs, too."""
        reset()
        try:
            got = self.answer(compiled(self.fn, backend="native", strict=True))
        except Exception as e:
            return f"{type(e).__name__}: {e}"
        finally:
            reset()
        return self.compared(got)

    def compared(self, got: Any) -> str:
        try:
            torch.testing.assert_close(got, self.want, rtol=self.rtol, atol=self.atol, equal_nan=True)
        except AssertionError as e:
            return " ".join(str(e).split())
        return ""

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
            with search.KERNELS.first(limit) as self.operations, pipeline.without("join-runs"):
                got = self.answer(compiled(self.fn, backend="native"))
        finally:
            native.compile_all = compile_all
            reset()
        return self.compared(got)


def first_wrong(fn: Callable[..., Any], *args: Any, rtol: float = 1e-3, atol: float = 1e-3) -> Culprit | None:
    """The first operation whose kernel makes the answer of `fn(*args)` differ from eager's by more than rounding; None if none does.

    `fn` must give the same answer for the same arguments; it is run about log2(operations) times. Compiled code is forgotten, before and
    after. Raises PliantError where it differs without any kernels: then the fault is elsewhere.
    """
    trial = Trial(fn, args, rtol, atol)
    found = trial.difference(None)
    if not found:
        return None
    right, wrong = 0, len(trial.operations)
    if trial.difference(0):
        raise PliantError(f"the answer differs from eager's without a kernel, so no kernel is at fault: {found}")
    while wrong - right > 1:
        middle = (right + wrong) // 2
        if trial.difference(middle):
            wrong = middle
        else:
            right = middle
    found = trial.difference(wrong)
    op = trial.operations[wrong - 1]
    made = {t.vid for t in op.outs if hasattr(t, "vid")}
    guilty = [launch for launch in trial.launches if any(t.vid in made for t in launch.buffers)] or trial.launches[-1:]
    return Culprit(wrong - 1, str(op.target), str(op.site), tuple(launch.kernel for launch in guilty), found)


@dataclass(frozen=True)
class CulpritPass:
    """Where the answer begins to differ: the name of a pass (or `REQUIRED`, `CODE`), the program it ran over, and the difference.

    `without`: the passes each of which, left out alone, makes the answer eager's. What a pass spoils may show only behind a later one.
    """

    name: str
    program: str
    difference: str
    without: tuple[str, ...] = ()

    def __str__(self) -> str:
        also = f" (right without one of {', '.join(self.without)})" if self.without else ""
        return f"{self.name} over {self.program or 'every program'}{also}: {self.difference}"


REQUIRED = "a required pass, a lowering or the capture"
CODE = "machine code"


def first_wrong_pass(fn: Callable[..., Any], *args: Any, rtol: float = 1e-3, atol: float = 1e-3) -> CulpritPass | None:
    """The first run of an optional pass that makes the answer of `fn(*args)` differ from eager's by more than rounding; None if none does.

    As `first_wrong` otherwise. Where the answer differs without any optional pass, the culprit is `CODE` if the reference target, which
    runs kernels by interpreting them, answers as eager does, else `REQUIRED`.
    """
    trial = Trial(fn, args, rtol, atol)
    with search.PASSES.first(None) as every:
        found = trial.differs()
    if not found:
        return None
    with search.PASSES.first(0) as none:
        without = trial.differs()
    if without:
        with target.using("reference"):
            interpreted = trial.differs()
        return CulpritPass(REQUIRED if interpreted else CODE, "", without)
    right, wrong = 0, max(len(every), len(none))
    while wrong - right > 1:
        middle = (right + wrong) // 2
        with search.PASSES.first(middle):
            difference = trial.differs()
        if difference:
            wrong, found = middle, difference
        else:
            right = middle
    with search.PASSES.first(wrong) as last:
        found = trial.differs() or found
    return CulpritPass(*last[wrong - 1], found, tuple(name for name in optional() if is_right_without(trial, name)))


def optional() -> list[str]:
    return [row.name for row in pipeline.PASSES if not row.required]


def is_right_without(trial: Trial, name: str) -> bool:
    with pipeline.without(name):
        return not trial.differs()
