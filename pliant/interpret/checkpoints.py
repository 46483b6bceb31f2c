"""Checkpoints: a checkpointed function is captured like any other. Its operations are marked, so that the backward part computes their
results again in place of keeping them (`lower/autograd.py`).

What PyTorch refuses, in the forward part or in the backward part, CPython runs and raises.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch.utils.checkpoint as checkpoints

from pliant.graph.originals import is_grad_enabled, torch
from pliant.graph.schema import op_info, written
from pliant.graph.seeding import LOAD
from pliant.graph.traced import CHECKPOINTS, Reconsider, TracedTensor
from pliant.interpret import process_state
from pliant.interpret.attributes import getattr_
from pliant.interpret.calls import call
from pliant.interpret.hooks import told_whether_disabled
from pliant.interpret.lookasides import lookaside
from pliant.interpret.slots import unpack
from pliant.interpret.state import Break, LoopBackSignal, Restart, vm
from pliant.interpret.subprograms import Open, Unchanged
from pliant.interpret.transforms import hooks_on_saved_tensors

FLAGS = ("use_reentrant", "debug", "early_stop", "preserve_rng_state")
OPTIONS = (*FLAGS, "context_fn", "determinism_check")
NOOP = checkpoints.noop_context_fn
CHECKS = checkpoints._allowed_determinism_checks_to_fns
KEPT = (checkpoints.CheckpointPolicy.MUST_SAVE, checkpoints.CheckpointPolicy.PREFER_SAVE)
UNTOLD = checkpoints.SAC_IGNORED_OPS
"""Operators of which no policy is told."""


@lookaside(checkpoints.checkpoint)
def l_checkpoint(args: tuple, kw: dict) -> Any:
    options = {k: kw[k] for k in OPTIONS if k in kw}
    if not args or options.get("use_reentrant") is None:
        raise Break("PL0020", "a checkpoint without use_reentrant=, which warns", clean=True)
    if CHECKPOINTS in vm.refused:
        raise Break("PL0020", "a checkpoint that gradients of some inputs alone are asked to go through", clean=True)
    fn, *values = args
    rest = {k: v for k, v in kw.items() if k not in options}
    refused(options, rest)
    trace = vm.trace
    n = len(trace.ops)
    recorded = is_grad_enabled()
    if options["use_reentrant"]:
        if not any(type(v) is TracedTensor and v.requires_grad for v in values):
            raise Break("PL0020", "a reentrant checkpoint of inputs without gradients, which warns", clean=True)
    elif recorded:
        if told_whether_disabled() is not None:
            raise Break("PL0020", "a checkpoint while hooks on saved tensors are disabled, which raises", clean=True)
        if hooks_on_saved_tensors():
            raise Break("PL0020", "a checkpoint among hooks on saved tensors, which do not hear of what is saved inside", clean=True)
        process_state.question(hooks_on_saved_tensors, (), {}, False)
    context_fn = options.get("context_fn", NOOP)
    policy = None if context_fn is NOOP else selective(context_fn)
    unchanged, begin = Unchanged() if recorded else None, trace.next_vid
    hooked = recorded and not options["use_reentrant"]
    vm.world.checkpoints += hooked
    try:
        out = call(fn, tuple(values), rest)
    finally:
        vm.world.checkpoints -= hooked
    ops = trace.ops[n:]
    if unchanged is not None and needs_gradients(ops):
        repeats_nothing(unchanged, ops, begin)
    drawn = [op for op in ops if torch.Tag.nondeterministic_seeded in op.target.tags or op.target is LOAD]
    if drawn and (drawn[0].target is LOAD or not options.get("preserve_rng_state", True)) and needs_gradients(ops):
        raise Break("PL0020", "a checkpoint whose random numbers are drawn anew in the backward part")
    kept = [op for op in ops if op.target not in UNTOLD and policy(op)] if policy is not None and recorded else []
    kept_unwritten(kept, ops)
    for op in ops:
        op.again = True
    trace.reentered = trace.reentered or recorded and options["use_reentrant"]
    for op in kept:
        op.again = False
    return out


def refused(options: dict, rest: dict) -> None:
    """Breaks where PyTorch raises for these options, or where they are of other types than the words say."""
    for name in FLAGS:
        if name in options and type(options[name]) is not bool:
            raise Break("PL0020", f"a checkpoint whose {name} is no bool", clean=True)
    if options["use_reentrant"]:
        if rest or options.get("context_fn", NOOP) is not NOOP or options.get("debug"):
            raise Break("PL0020", "a reentrant checkpoint with keywords, which raises", clean=True)
        return
    check = options.get("determinism_check", "none")
    if type(check) is not str or check not in CHECKS:
        raise Break("PL0020", "a checkpoint with a determinism_check that PyTorch refuses", clean=True)
    if options.get("context_fn", NOOP) is not NOOP:
        debug = getattr_(checkpoints, "_checkpoint_debug_enabled")  # `with set_checkpoint_debug_enabled(...)` counts for more
        if options.get("debug", False) if debug is None else debug:
            raise Break("PL0020", "a checkpoint with contexts and debug=True, which raises", clean=True)


def repeats_nothing(unchanged: Unchanged, ops: list[Any], begin: int) -> None:
    """What a checkpointed function changes it changes again when the backward part calls it: statistics, counters, logs."""
    try:
        unchanged.check()
    except Open as e:
        raise Break("PL0020", f"a checkpointed function changes what is outside of it, again in the backward part: {e}") from None
    outside = {t.storage_id for t in vm.trace.inputs}
    if any([t.storage_id < begin or t.storage_id in outside for op in ops for t in written(op)]):
        raise Break("PL0020", "a checkpointed function writes to a tensor from outside, again in the backward part")


def gradients_asked(some: Any, batched: Any = False) -> None:
    """Gradients of `some` inputs alone are asked for: a reentrant checkpoint shows its parameters to nobody, and refuses. Those of a batch:
    a checkpoint that draws does not run again under `vmap`. Then the capture leaves its checkpoints to CPython."""
    drawn = batched and any([op.again and torch.Tag.nondeterministic_seeded in op.target.tags for op in vm.trace.ops])
    if some and vm.trace.reentered or drawn:
        vm.trace.asked = True
        raise Break("PL0020", "gradients of some inputs alone, or of a batch, that go through a checkpoint", clean=True)


def keep_asked_apart(trace: Any, broke: Any) -> None:
    if trace.asked:
        raise Reconsider("checkpoint", "gradients of some inputs go through a checkpoint", CHECKPOINTS, broke)


def needs_gradients(ops: list[Any]) -> bool:
    return any([t.requires_grad for op in ops for t in op.outs if type(t) is TracedTensor])


def kept_unwritten(kept: list[Any], ops: list[Any]) -> None:
    """What a policy keeps must not be written to, nor be given another shape: the backward part raises then."""
    memory = {t.storage_id for op in kept for t in op.outs if type(t) is TracedTensor}
    if any([t.storage_id in memory for op in ops for t in written(op)]):
        raise Break("PL0020", "a checkpointed function writes to what its policy keeps, which raises in the backward part")


class Selection:
    """What `create_selective_checkpoint_contexts` gives here: which results are kept."""

    __slots__ = ("keeps",)

    def __init__(self, keeps: Any) -> None:
        self.keeps = keeps


@lookaside(checkpoints.create_selective_checkpoint_contexts)
def l_selective(args: tuple, kw: dict) -> tuple:
    given = dict(zip(("policy_fn_or_list", "allow_cache_entry_mutation"), args)) | kw
    if len(args) + len(kw) != len(given) or len(args) > 2 or "policy_fn_or_list" not in given:
        raise Break("PL0020", "contexts of a checkpoint that PyTorch refuses to make", clean=True)
    if given.get("allow_cache_entry_mutation", False) is not False:
        raise Break("PL0020", "a checkpoint whose kept results may be written to", clean=True)
    chosen = given["policy_fn_or_list"]
    if isinstance(chosen, list):
        if not all([isinstance(op, torch._ops.OpOverload) for op in unpack(chosen)]):
            raise Break("PL0020", "a list of operators to save that PyTorch refuses", clean=True)
    elif not call(callable, (chosen,), {}):
        raise Break("PL0020", "a policy of a checkpoint that cannot be called, which PyTorch refuses", clean=True)
    return (Selection(chosen), None)


def selective(context_fn: Any) -> Callable[[Any], bool]:
    """Whether the result of an operation is kept by the policy that a checkpoint's contexts stand for."""
    made = call(context_fn, (), {})
    if type(made) in (tuple, list) and [type(c) for c in made] == [contextlib.nullcontext] * 2:
        return lambda op: False
    if type(made) is not tuple or type(made[0]) is not Selection:
        raise Break("PL0020", "a checkpoint with contexts of its own")
    chosen = made[0].keeps
    if isinstance(chosen, list):
        kept = set(unpack(chosen))
        return lambda op: op.target in kept
    unchanged = Unchanged()

    def keeps(op: Any) -> bool:
        n = len(vm.trace.ops)
        if op_info(op.target).inplace_view:
            raise Break("PL0020", "a policy of a checkpoint beside an operation that changes a shape in place")  # it sees the one of before
        context = checkpoints.SelectiveCheckpointContext(is_recompute=False, op_output=result(op))
        said = answer(chosen, (context, op.target, *op.args), dict(op.kwargs))
        try:
            unchanged.check()
        except Open as e:
            raise Break("PL0020", f"a policy of a checkpoint that does more than to answer: {e}") from None
        if len(vm.trace.ops) != n:
            raise Break("PL0020", "a policy of a checkpoint that records operations")
        return said is True or (type(said) is checkpoints.CheckpointPolicy and said in KEPT)

    return keeps


def result(op: Any) -> Any:
    """What an operation gave, as the policy is told of it."""
    if op.out_spec is None:
        return op.outs[0]
    return tuple(op.outs) if op.out_spec == "flat" else op.out_spec.unflatten(op.outs)


def answer(policy: Any, args: tuple, kw: dict) -> Any:
    """What a policy says. It is told of operations while they run: what it raises the checkpointed function might handle."""
    try:
        return call(policy, args, kw)
    except (Break, Restart, LoopBackSignal):
        raise
    except Exception as e:
        if vm.internal_error(e):
            raise
        raise Break("PL0020", f"a policy of a checkpoint raises {type(e).__name__}") from None
