"""The nodes that a training region puts into the autograd graph.

Usually it is one: a `torch.autograd.Function` made of the forward and the backward program. But the engine calls every node below one that
it has called, also with no gradient at all: hooks are called with None, and what was saved there is freed, or already gone. So inputs that
no result comes from get no edge; and results that eager could send backward one after the other, because their histories have no saved
tensors in common and begin at other inputs, get a node for each such part. An input that only some of the results come from hangs under a
node above the one of all of them (`lower/histories.py`): where it has a history or a hook. All share what the one run of the forward
program has kept.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from pliant.codegen.aten import Executable
from pliant.codegen.double_backward import FREED, Twice, versions
from pliant.codegen.heard import of_gradients
from pliant.graph.originals import ORIGINAL, gradients, is_grad_enabled
from pliant.lower.histories import as_bits

_serial = count()
AS_THEY_ARE = nullcontext()
KEEP_GRAPH = torch._C._autograd._get_current_graph_task_keep_graph
PASS = torch._C._current_graph_task_id
"""The number of the call of the engine that is at work."""
WRITTEN = (  # PyTorch's words
    "one of the variables needed for gradient computation has been modified by an inplace operation: [{} {}] is at version {}; expected "
    "version {} instead. Hint: enable anomaly detection to find the operation that failed to compute its gradient, with "
    "torch.autograd.set_detect_anomaly(True, check_nan=False)."
)


def detached(tensors: Sequence[Any]) -> list[Any]:
    """These without their histories. One tensor in two places stays one: who keeps gradients asks whether others have them, too."""
    without = {id(t): ORIGINAL.detach(t) for t in tensors if t is not None}
    return [None if t is None else without[id(t)] for t in tensors]


@dataclass(frozen=True, slots=True)
class Part:
    """Results that are one node: their places among those of the forward program, and of the inputs that have gradients of them (None: all
    are); the backward program, `backward(ctx, one gradient or None per result) -> one gradient or None per input`. `through`: it stands
    above the node of these results, to which their gradients go on."""

    heads: tuple[int, ...] | None
    slots: tuple[int, ...] | None
    through: bool
    backward: Executable
    twice: Twice


@dataclass(frozen=True, slots=True)
class Later:
    """What a region becomes where one of the inputs `watch` (places) has a history or a hook: for each node its heads, inputs, and whether
    it is one above another's, as in `Part`. Inputs of which that is known beforehand are not watched."""

    watch: tuple[int, ...]
    nodes: tuple[tuple[tuple[int, ...], tuple[int, ...], bool], ...]


def node_of(name: str, forward: Callable, parts: Sequence[Part], n_results: int) -> Callable:
    """The forward program as a function whose results have a history; `n_results`: of how many results."""
    if parts[0].heads is None:
        return apply_of(name, forward, parts[0].backward.fn)
    made = [(p.heads, p.slots, p.through, apply_of(name, entering(), leaving(p, n_results))) for p in parts]
    return functools.partial(run_parts, forward, tuple(made))


def watching(watch: Sequence[int], plain: Callable, make: Callable[[], Callable]) -> Callable:
    """`plain`, or what `make` makes where one of these inputs has a history or a hook."""
    other = functools.cache(make)

    def run(*slots: Any) -> Any:
        for i in watch:
            t = slots[i]
            if t.grad_fn is not None or t._backward_hooks:
                return other()(*slots)
        return plain(*slots)

    return run


def apply_of(name: str, forward: Callable, backward: Callable) -> Callable:
    """`apply` of a differentiable node with these methods."""
    methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    node = of_gradients(type(f"Pliant_{name}_{next(_serial)}", (torch.autograd.Function,), methods))
    return super(torch.autograd.Function, node).apply  # type: ignore[misc]  # skips a check for functorch, which guards exclude


def run_parts(forward: Callable, parts: tuple, *slots: Any) -> tuple:
    """Run the forward program, and give its results their histories."""
    shared = Shared()
    with gradients(False):
        results = list(forward(shared, *slots))
    for heads, own, through, apply in parts:
        below = [results[i] for i in heads]
        made = apply(shared, below, *(below if through else ()), *[slots[i] for i in own])
        for i, t in zip(heads, made, strict=True):
            results[i] = t
    return tuple(results)


def entering() -> Callable:
    """The forward method of a part: what the backward program may read has no history, or it would hold its own node. Those of the results
    that it reads are saved here, too, with their history, for gradients of gradients (`double_backward.Passage`)."""
    read: list[tuple[int, int]] | None = None  # (which result, where it is among what the forward program has kept): the same in every call

    def enter(ctx: Any, shared: Shared, results: list[torch.Tensor], *own: Any) -> tuple:
        nonlocal read
        if read is None:
            read = [(k, i) for k, t in enumerate(results) for i, kept in enumerate(shared.held) if kept is t]
        ctx.shared, ctx.read = shared, read
        ctx.set_materialize_grads(False)
        made = tuple([ORIGINAL.detach(t) for t in results])
        if read:
            ctx.save_for_backward(*[made[k] for k, _ in read])
        return made

    return enter


def leaving(part: Part, n_results: int) -> Callable:
    """The backward method of a part."""
    heads, slots, through, backward = part.heads, part.slots, part.through, part.backward.fn
    assert heads is not None and slots is not None

    def leave(ctx: Any, *grads: Any) -> tuple:
        given = [None] * n_results
        for i, g in zip(heads, grads, strict=True):
            given[i] = g
        with ctx.shared.with_histories(ctx) if ctx.read and is_grad_enabled() else AS_THEY_ARE:
            found = backward(ctx.shared, *given)
        return None, None, *(grads if through else ()), *[found[i] for i in slots]

    return leave


class Shared:
    """What the parts of a region know together: it stands where a single node's context would stand."""

    def __init__(self) -> None:
        self.slots: tuple | None = None
        self.late: tuple | None = None
        self.held: tuple[torch.Tensor, ...] = ()
        self.then: tuple[int, ...] = ()
        self.histories: dict[int, torch.Tensor] = {}  # of results that were kept: by their places, while somebody reads them

    def save_for_backward(self, *tensors: torch.Tensor) -> None:
        """Keep these; they may not be written until they are read."""
        self.held, self.then = tensors, versions(tensors)

    @property
    def saved_tensors(self) -> tuple[torch.Tensor, ...]:
        """What was kept. Raises RuntimeError if it is gone, or was written."""
        if self.slots is None:
            raise RuntimeError(FREED)
        held = unwritten(self.held, self.then, range(len(self.held)))
        return tuple([self.histories.get(i, t) for i, t in enumerate(held)]) if self.histories else held

    @contextmanager
    def with_histories(self, ctx: Any) -> Iterator[None]:
        """The results that a part reads have their history, unless the engine has freed that."""
        with suppress(RuntimeError):
            self.histories = {i: t for (_, i), t in zip(ctx.read, ctx.saved_tensors, strict=True)}
        try:
            yield
        finally:
            self.histories = {}  # it would hold its own node

    def maybe_clear_saved_tensors(self) -> None:
        """Forget them."""
        self.held, self.then = (), ()

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        """Results that are of no part have no history."""

    def set_materialize_grads(self, on: bool) -> None:
        """Each part says so."""


def unwritten(tensors: tuple[torch.Tensor, ...], then: tuple[int, ...], at: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """The tensors at these places. Raises RuntimeError if one of them was written since it had that version."""
    found = tuple([tensors[i] for i in at])
    for t, i in zip(found, at, strict=True):
        if t._version != then[i]:
            raise RuntimeError(WRITTEN.format(t.type(), list(t.shape), t._version, then[i]))
    return found


def refuse_spent() -> None:
    """Gradients arrive at a node that has been gone through for the last time."""
    raise RuntimeError(FREED)


def held_late(*tensors: torch.Tensor) -> tuple[tuple[torch.Tensor, ...], tuple[int, ...]]:
    """What is kept besides, and how often each was written: apart from what the node saves, of which all is checked whatever is read. A
    result among them would hold its node."""
    return tuple([ORIGINAL.detach(t) for t in tensors]), versions(tensors)


def late_of(ctx: Any, at: Sequence[int]) -> tuple[torch.Tensor, ...]:
    """Of these, those at these places. Raises RuntimeError if they are gone, or one was written."""
    if ctx.late is None:
        raise RuntimeError(FREED)
    return unwritten(*ctx.late, at)


def spending(shared: Sequence[int], mask: Sequence[bool]) -> tuple[int, int, int]:
    """What `spend` is told of gradients for the heads in `mask`: these, those that must be unspent, and when everything is. As bits."""
    used = as_bits(mask)
    refused = functools.reduce(int.__or__, [s for s, on in zip(shared, mask, strict=True) if on], 0)
    saving = as_bits(list(map(bool, shared)))
    return used & saving, refused, saving if all(shared) else -1  # the others may be asked again and again


def unspent(ctx: Any, refused: int, at: Sequence[int] | None) -> tuple:
    """What `spend` gives, of which nothing is freed: gradients of the same heads go on to a node that does."""
    if spent_before(ctx) & refused or ctx.slots is None:
        raise RuntimeError(FREED)
    return kept(ctx, at)[0]


def spend(ctx: Any, used: int, refused: int, whole: int, at: Sequence[int] | None) -> tuple:
    """Those `at` these places of what the forward part kept (None: it keeps nothing), for gradients of the heads `used` (bits). They are
    refused if gradients went for the last time through one of `refused` before, which have saved tensors in common with these. The engine
    clears what the node saved behind its first call, so it is held on the side while there are heads that had no gradients yet, detached:
    a head among them would hold its node."""
    if spent_before(ctx) & refused:
        raise RuntimeError(FREED)
    read, held = kept(ctx, at)
    if not KEEP_GRAPH():
        ctx.spent |= used
        ctx.kept = None
        if ctx.spent == whole:
            ctx.slots = ctx.late = None
            ctx.maybe_clear_saved_tensors()
        elif held is not None:
            ctx.kept = held, versions(held)
    return read


def spent_before(ctx: Any) -> int:
    """The heads that gradients went through for the last time in an earlier call of the engine: in this one, eager adds them up first."""
    at = PASS()
    if ctx.at != at:
        ctx.at, ctx.before = at, ctx.spent
    return ctx.before


def kept(ctx: Any, at: Sequence[int] | None) -> tuple[tuple, tuple | None]:
    """Those at these places of what the forward part kept, which may not have been written since; and all of it, to be held on the side
    where the engine clears the node's. A single node's saved tensors are checked as a whole."""
    if at is None:
        return (), None
    if type(ctx) is Shared:
        if ctx.slots is None:
            raise RuntimeError(FREED)
        return unwritten(ctx.held, ctx.then, at), None
    if ctx.kept is None:
        saved = ctx.saved_tensors
        return tuple([saved[i] for i in at]), tuple([ORIGINAL.detach(t) for t in saved])
    return unwritten(*ctx.kept, at), ctx.kept[0]
