"""The records that a trace is made of: ATen operations, Torch-level calls, and where unbacked symbols come from."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


class Mark:
    """A value that no call returns."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return self.name


PENDING, FAILED = Mark("PENDING"), Mark("FAILED")
CONTAINERS = frozenset((list, tuple, dict))


@dataclass(slots=True)
class Bind:
    """The symbol `symbol` gets its value when the operation has run: `outs[out].size(dim)`, or the number `outs[out]` if dim is None."""

    symbol: Any
    out: int
    dim: int | None = None


@dataclass(slots=True, repr=False)
class Op:
    """One ATen operation: `outs = target(*args, **kwargs)`.

    `args` and `kwargs` hold traced tensors, symbolic numbers and Python constants, nested in lists and tuples.
    `outs` is flat and in order; `out_spec` is None for one result that is not a sequence, "flat" for a tuple or list of results,
    else a pytree spec. `torch_index` is the index of the Torch-level call that it belongs to (-1: none). `binds` tells which
    symbols the results define, `grad` whether autograd was on.
    """

    target: Any
    args: tuple
    kwargs: dict
    outs: list
    out_spec: Any
    site: Any
    torch_index: int
    binds: list[Bind] = field(default_factory=list)
    grad: bool = True  # the grad mode it was recorded in
    again: bool = False  # from a checkpointed function: compute it again for the backward part
    unheard: bool = False  # it writes through `.data`: versions do not tell
    before: tuple | None = None  # sizes, strides and offset that its operand had, where it changes them in place
    reads: tuple | None = field(default=None, init=False, compare=False)  # the traced tensors among the arguments, once asked for,
    numbers: tuple = field(default=(), init=False, compare=False)  # and the expressions of the symbolic numbers there

    def __str__(self) -> str:
        shown = ", ".join([*map(short, self.args), *(f"{k}={short(v)}" for k, v in self.kwargs.items())])
        return f"{', '.join(map(short, self.outs))} = {self.target}({shown})"

    __repr__ = __str__  # the generated one would print sizes as the program does, which pins them


@dataclass(slots=True, repr=False)
class TorchOp:
    """One call at Torch level, before decomposition and autograd.

    `out` is `PENDING` until the call has returned, `FAILED` if it raised. `begin` is the number of operations recorded before it.
    """

    fn: Any
    args: tuple
    kwargs: dict
    out: Any = PENDING
    site: Any = None
    begin: int = 0
    other_default: bool = False  # it was made under another default dtype than the graph's
    decomposed: bool = False  # which the operations that it came to say, and the call does not
    vids: tuple[int, int] | None = None  # the first number of a tensor that it could give, and the first behind it

    def __str__(self) -> str:
        shown = ", ".join([*map(short, self.args), *(f"{k}={short(v)}" for k, v in self.kwargs.items())])
        return f"{short(self.out)} = {getattr(self.fn, '__name__', self.fn)}({shown})"

    __repr__ = __str__


def short(value: Any) -> str:
    """A value as the logs print it."""
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(short, value))}]"
    vid = getattr(value, "vid", None)
    if vid is not None:
        return f"%{vid}"
    node = getattr(value, "node", None)
    return str(node.expr) if node is not None else repr(value)


def settled(value: Any) -> Any:
    """Arguments as they are now: the program may change its lists and dicts after the call."""
    t = type(value)
    if t is list:
        return [settled(v) for v in value]
    if t is dict:
        return {k: settled(v) for k, v in value.items()}
    return tuple([settled(v) for v in value]) if t is tuple else value
