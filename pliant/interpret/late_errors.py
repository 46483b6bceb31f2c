"""Operations that may raise only when the graph runs, behind a write to memory of others: they end the graph where a handler waits.

A graph that raises runs again in CPython if nothing had been written by then (`codegen/failures.py`): handlers, effects and words are
eager's. Behind a write that cannot be done twice the exception would leave the frame, and the program's own handler would not see it.
"""

from __future__ import annotations

import builtins
import os
import sysconfig
from types import MethodType
from typing import Any

from pliant.bytecode import kinds as K
from pliant.graph.handlers import has_written, is_written
from pliant.graph.operators import overloads
from pliant.graph.schema import ADDING, adds
from pliant.graph.traced import TracedTensor
from pliant.interpret.state import Break, vm
from pliant.symbolic import ops

RAISING = ADDING | frozenset(overloads((
    "index", "index_select", "gather", "embedding", "take", "index_put", "scatter", "scatter_add", "scatter_reduce", "index_add",
    "index_copy", "index_fill", "index_copy_", "index_fill_", "scatter_", "masked_scatter", "masked_scatter_", "put", "nll_loss_forward",
    "nll_loss2d_forward", "_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "linalg_eig", "repeat_interleave", "bincount", "one_hot",
    "multinomial", "bernoulli", "bernoulli_", "floor_divide", "floor_divide_", "remainder", "remainder_", "fmod", "fmod_",
)))  # fmt: skip
"""What they are given may be wrong, and only the run can tell."""


LIBRARIES = tuple({sysconfig.get_paths()[p] + os.sep for p in ("stdlib", "purelib", "platlib")})


def check(trace: Any, n: int, f: Any) -> None:
    """Raises Break if one of the operations from the `n`-th on may raise when it is too late, where the program of frame `f` would see."""
    for i in range(n, len(trace.ops)):
        op = trace.ops[i]
        if op.target not in RAISING and not may_be_negative(op) or not caught(f):
            continue
        if has_written(trace, i) or (adds(op) and is_written(trace, op)):
            raise Break("PL0041", f"{op.target._schema.name} may raise inside a try block, behind a write")


def may_be_negative(op: Any) -> bool:
    """Whether the operation makes a tensor of a size that only the run knows, which may be less than 0."""
    made = op.outs[0] if op.outs else None
    sizes = [n.node for n in made.sizes if type(n) is not int] if type(made) is TracedTensor else ()
    return any([not n.expr.backed and not n.scope.known_true(ops.ge(n.expr, 0)) for n in sizes])


def before_assertion(error: type[Exception]) -> None:
    """Raises Break where the program would handle an assertion that fails, and it may fail when it is too late."""
    if vm.frame is not None and caught(vm.frame, (error,)) and has_written(vm.trace):
        raise Break("PL0041", f"{error.__name__} may be raised inside a try block, behind a write")


def possible(trace: Any) -> bool:
    """Whether what was captured so far may raise when it runs."""
    return bool(trace.scope.asserts) or any([op.target in RAISING for op in trace.ops])


def caught(f: Any, errors: tuple[type[Exception], ...] = (IndexError, RuntimeError)) -> bool:
    """Whether an exception raised now, of one of `errors`, meets an `except` that takes it; in the program's own code also a `finally`, or
    a context manager other than PyTorch's. (Those of libraries put back settings, mostly, and each operation below would end a graph.)"""
    while f is not None:
        i = f.pc - 1
        d = f.decoded
        for _ in range(len(d.table)):
            entry = next(((target, depth) for start, stop, target, depth, _ in d.table if start <= i < stop), None)
            if entry is None:
                break
            i, depth = entry
            if d.kinds[i] is not K.PUSH_EXC_INFO or d.kinds[i + 1] is K.EXIT and of_torch(f.stack[depth - 1]):
                continue
            taken = takes(f, i + 1, errors)
            if taken or taken is None and not f.code.co_filename.startswith(LIBRARIES):
                return True
        f = f.parent
    return False


def takes(f: Any, i: int, errors: tuple[type[Exception], ...]) -> bool | None:
    """Whether the clauses of the handler whose first instruction is `i` take one of these; None for what has no clauses."""
    d = f.decoded
    if d.kinds[i] is K.POP:  # `except:`
        return True
    while d.kinds[i] is not K.RERAISE:
        names = []
        while d.kinds[i] is K.LOAD_GLOBAL:
            names.append(d.ins[i][1][0])
            i += 1
        if d.kinds[i] is K.BUILD_TUPLE and d.ins[i][1] == len(names):
            i += 1
        if not names or d.kinds[i] is not K.CHECK_EXC_MATCH or d.kinds[i + 1] is not K.JUMP_IF_FALSE:
            return None
        for name in names:
            cls = f.globals.get(name, vars(builtins).get(name))
            if not isinstance(cls, type) or any([issubclass(e, cls) for e in errors]):
                return True
        i = d.ins[i + 1][1]
    return False


def of_torch(leave: Any) -> bool:
    """Whether this `__exit__` only puts back a setting of PyTorch, as that of `torch.no_grad()` does."""
    return type(leave) is MethodType and type(leave.__self__).__module__.partition(".")[0] == "torch"
