"""A trace: the ATen operations of one capture, forward and backward, with the Torch-level calls beside them."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from pliant.graph import casts, distributed_tensors, handlers, probe, symnode
from pliant.graph.dispatch import apply_metadata, copy_bits, dispatch, is_dense, twin
from pliant.graph.layout import contiguous_strides
from pliant.graph.originals import ORIGINAL, gradients, has_no_history, torch
from pliant.graph.read_later import ReadLater
from pliant.graph.record import CONTAINERS, PENDING, Bind, Op, TorchOp, settled
from pliant.graph.rules.shape import is_dense_in_some_order
from pliant.graph.schema import written
from pliant.graph.traced import Printing, TracedTensor, Untraceable, make
from pliant.symbolic.scope import Scope

NOTHING = nullcontext()


class Recorder(TorchDispatchMode):
    """Sends every ATen operator to the trace, those without tensor arguments too."""

    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace.ref  # weak: a trace and its mode that held each other would wait for the collector

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch wraps the method, and imports TorchDynamo to do so

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        trace = self.trace()
        if len(types) and (types[0] is not TracedTensor or len(types) > 1) and trace is not None and trace.steps_aside(types):
            return NotImplemented
        try:
            return dispatch(trace, func, args, kwargs or {})
        except Exception:
            if trace is not None:
                trace.failed_node = torch._C._current_autograd_node()
            raise


def engine_gradients(
    heads: Sequence[Any], targets: Sequence[Any], tangents: Sequence[Any], differentiable: bool = False
) -> tuple[Any, ...]:
    """The autograd engine's gradients of `heads` with respect to `targets`, None where there is no path; the tape is kept.
    `differentiable`: they have a history in turn.

    `torch.autograd.grad` first compares shapes, for which it imports sympy (half a second, once); tangents have their head's shape.
    """
    run = torch.autograd.Variable._execution_engine.run_backward
    return run(tuple(heads), tuple(tangents), True, differentiable, tuple(targets), allow_unreachable=True, accumulate_grad=False)


class Carry(torch.autograd.Function):
    """Makes a non-leaf out of a leaf, without an operation: for inputs that have a history outside the capture."""

    @staticmethod
    def forward(ctx: Any, leaf: TracedTensor) -> TracedTensor:
        ctx.set_materialize_grads(False)
        return like(leaf)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


def like(x: TracedTensor) -> TracedTensor:
    """A tensor with the metadata and the memory of `x`."""
    y = twin(x)
    y.pytype, y.source = x.pytype, x.source
    return y


SAVING: dict[type, bool] = {}


def saves_tensors(node: Any) -> bool:
    """Whether a node of the autograd graph keeps tensors, which are gone once gradients have gone through. (Each is an attribute.)
    That of a write to a part is gone as a whole."""
    kind = type(node)
    found = SAVING.get(kind)
    if found is None:
        named = any([name.startswith("_raw_saved_") for name in dir(kind)])
        found = SAVING[kind] = named and kind.__name__ != "CarryBackward" or kind.__name__ == "CopySlices"
    return found


def has_hooks(real: torch.Tensor) -> bool:
    """Whether there are hooks on this tensor, of which its class is not told."""
    with torch._C.DisableTorchFunction():
        return bool(real._backward_hooks)


CARRIES = ("CarryBackward", "CarryMaskedBackward")
"""Nodes that stand for what is outside of the capture."""


def rebased(trace: Trace, t: TracedTensor) -> bool:
    """Was this input written in place with gradients flowing into it?"""
    fn = t.grad_fn
    return fn is not None and (t.vid not in trace.leaves or fn.name() not in CARRIES)


class Trace:
    """What one capture records. `scope` owns the sizes; `ops[:n_forward]` is the forward part once `backward` has run."""

    def __init__(self, scope: Scope, allow_unbacked: bool = True) -> None:
        self.ref = weakref.ref(self)
        self.scope = scope
        self.allow_unbacked = allow_unbacked
        self.ops: list[Op] = []
        self.torch_ops: list[TorchOp] = []
        self.inputs: list[TracedTensor] = []
        self.constants: list[TracedTensor] = []
        self.exits: list[Any] = []  # ways out on the way (`leaving.Exit`), by number
        self.marks: list[Any] = []  # what is to be done first should it raise (`leaving.Exit`), by number
        self.stores: list[Any] = []  # effects that the graph makes itself (`codegen.early_stores.EarlyStore`)
        self.undone = False  # whether the program has done something before what may raise: what the graph has written by then is put back
        self.first_write: tuple[int | None, int, Any] = None, 0, None  # the first that writes to memory of others (`late_errors.is_dirty`)
        self.assumed: list[Any] = []  # branches that it assumes to go one way (`leaving.Elsewhere`): jit's, by number
        self.leaves: dict[int, TracedTensor] = {}  # vid of an input with history -> the leaf under it
        self.watched: set[int] = set()  # vids of inputs that have a hook now
        self.known: dict[int, Any] = {}  # storage id -> real tensor: constants that nothing has written to
        self.masks: dict[int, dict[int, TracedTensor]] = {}  # storage id -> vid of a mask that was indexed with -> where it is set
        self.items: dict[int, dict[int, Any]] = {}  # storage id -> vid of a tensor of one element -> the number that was read from it
        self.read_from: dict[int, TracedTensor] = {}  # vid of such a tensor -> it
        self.moving: set[int] = set()  # storage ids of memory that the loop which is being captured writes to in some round
        self.entry_number: Any = None  # of an input of one element: the number that the guards read in it, or None
        self.recalled = 0  # how often one of these two was found
        self.journal: list[tuple] = []
        self.before: tuple | None = None  # metadata that the operator which is being recorded has changed in place
        self.strides_memo: dict[tuple, tuple] = {}
        self.templates: dict[Any, TracedTensor] = {}  # (`traced.make`)
        self.sizes: set[Any] = set()  # expressions that are the size of a result, hence not less than 0
        self.numbers: set[Any] = set()  # those of them that are no sizes of memory, and may be as large as numbers are
        self.next_vid = 0
        self.next_unbacked = 0
        self.n_forward: int | None = None
        self.hooked = False  # whether a hook on a tensor, or on what is saved, was set
        self.modules_hooked = False  # whether one was that hears of a module's arguments what another has heard of its results
        self.flags_changed = False  # parameters had no gradients for a while, or have none at the end: no node is planned by their flags
        self.differentiated = False  # by `autograd.grad`, whose results may have gradients
        self.freed: set[Any] = set()  # nodes of the autograd graph whose buffers `backward()` would have freed
        self.failed_node: Any = None  # the node of the autograd graph that called for the last operator that could not be recorded
        self.of_inference: set[int] = set()  # storage ids of inference tensors
        self.reentered = self.asked = False  # the program has come through a checkpoint that reenters; what `gradients_asked` refuses
        self.shown: set[int] = set()  # storage ids of arrays over whose memory the program has made tensors
        self.parts: dict[int, Any] = {}  # vid of a tensor over an array -> the offset at which the storage begins that PyTorch gives it
        self.data_memory: set[int] = set()  # storage ids of memory that is written through `.data`
        self.replaced: set[int] = set()  # vids of inputs whose objects were given other memory, which count what comes later
        self.other_default = False  # the program has set another default dtype than that under which the graph runs
        self.inference = torch.is_inference_mode_enabled()  # whether the program is in inference mode just now
        self.frozen: dict[int, set[int]] = {}  # storage id of results and operands of control flow -> those of results that may share it
        self.by_value = False  # whether such an operand may be written to, if the results are not used any more (export)
        self.stale: set[int] = set()  # storage ids of such results
        self.behind: dict[Any, list[TracedTensor]] = {}  # node of an `autograd.Function`, or a number (a hook) -> what it reads back then
        self.read_later = ReadLater()  # what such a node, or a hook, reads of the outside then
        self.zeros: set[int] = set()  # storage ids of zeros that stand for a derivative which is not there
        self.own_leaves: set[int] = set()  # vids of tensors that the program made and told to have gradients
        self.rebound_leaves: set[int] = set()  # those among them that were given other memory, whose versions are their own
        self.flow_results: set[int] = set()  # vids of such results, which may be one object
        self.mask_parts: set[int] = set()  # vids of inputs whose gradient is the mask of another part's gradient
        self.flow_sizes: set[str] = set()  # symbols that are sizes of what loops carry, which each round reads anew
        self.makers: dict[int, int] = {}  # vid of a tensor that numbers may decide -> the operation that made it (`numbers.maker`)
        self.made_by: tuple[int, Any, dict[int, Any]] = (0, None, {})  # `same_values.makers`
        self.looked_at: tuple[int, Any] = (0, None)  # how many operations were looked at for that, and the last of them
        self.in_transform = False  # whether a transform of `torch.func` was entered: its C++ code squeezes what it has made itself
        self.dual_levels = 0  # how many levels of forward derivatives the program is in: tensors may have tangents, which C++ alone knows
        self.by_autograd = False  # whether autograd itself may record its operations when it runs (`codegen/recorded.py`)
        self.relaid = False  # it has to: a tensor with gradients that is a view, or has some, was given another layout
        self.lazy_bits = False  # whether a tensor with a conjugate or negative bit was met: shape rules do not know these
        self.wrapping: set[type] = set()  # classes of wrappers that the capture has met or made
        self.wholes: dict[int, tuple[type, Any]] = {}  # of parts of distributed tensors whose gradients are asked for: class and metadata
        self.depth = 0
        self.mode = Recorder(self)

    def input(
        self,
        real: torch.Tensor,
        source: Any,
        sizes: tuple,
        strides: tuple | None = None,
        offset: Any = 0,
        requires_grad: bool | None = None,
        storage_id: int | None = None,
    ) -> TracedTensor:
        """The proxy for an outside tensor. `sizes`, `strides` and `offset` hold ints and `SymInt`s.

        Without `strides` it is row-major. `storage_id`: that of another input whose memory it shares.
        Raises `Untraceable` for layouts that cannot be captured (sparse, quantized, nested).
        """
        if real.layout is not torch.strided or real.is_quantized or real.is_nested:
            raise Untraceable("input", f"a {real.layout} tensor (sparse, quantized or nested) cannot be captured")
        sizes = tuple(sizes)
        strides = contiguous_strides(sizes) if strides is None else tuple(strides)
        if requires_grad is None:
            requires_grad = real.requires_grad
        with torch._C._DisableTorchDispatch():
            x = make(
                self, sizes, strides, real.dtype, offset, storage_id, real.device, is_dense(sizes, strides), requires_grad,
                ORIGINAL.is_inference(real),
            )  # fmt: skip
            x.pytype = type(real)
            x.source = source
            copy_bits(self, real, x)
            if requires_grad and not has_no_history(real):
                leaf = x
                with gradients(True):
                    x = Carry.apply(leaf)
                self.leaves[x.vid] = leaf
            if requires_grad and has_hooks(real):
                self.watched.add(x.vid)
        self.inputs.append(x)
        return x

    def steps_aside(self, types: Any) -> bool:
        """Whether an operator is one of wrappers, whose class takes it apart."""
        return any([t is not TracedTensor and t in self.wrapping for t in types])

    @contextmanager
    def recording(self) -> Iterator[Trace]:
        """While inside, every torch operator is recorded here. May be nested in `paused`."""
        self.depth += 1
        Printing.recording += 1
        try:
            with self.mode, distributed_tensors.answers(self) if self.depth == 1 else NOTHING:
                yield self
        finally:
            Printing.recording -= 1
            self.depth -= 1

    def paused(self) -> Any:
        """A context in which real tensors may be used freely and nothing is recorded."""
        return torch._C._DisableTorchDispatch()

    def unbacked(self, kind: type = int, size_like: bool = False, lo: Any = None, hi: Any = None) -> Any:
        """A new unbacked symbol (an expression)."""
        name = f"u{self.next_unbacked}"
        self.next_unbacked += 1
        return self.scope.unbacked(name, lo=lo, hi=hi, size_like=size_like, kind=kind)

    # the Torch-level record --------------------------------------------------------
    def torch_call(self, fn: Any, args: tuple, kwargs: dict) -> TorchOp:
        """Begin a Torch-level call: ATen operations recorded from now on belong to it, until its `out` is set."""
        if any([type(a) in CONTAINERS for a in args]) or kwargs:
            args, kwargs = settled(args), settled(kwargs)
        op = TorchOp(fn, args, kwargs, site=symnode.site_hook(), begin=len(self.ops), other_default=self.other_default)
        if not self.torch_ops or self.torch_ops[-1].out is not PENDING:  # else it is a part of that call
            self.torch_ops.append(op)
        return op

    @contextmanager
    def forgetting(self) -> Iterator[None]:
        """While inside, what is read from data is remembered as always; afterwards, only what was before: the operations that follow are
        not in one program with those that are recorded here."""
        before = [{memory: frozenset(found) for memory, found in memo.items()} for memo in (self.masks, self.items)]
        try:
            yield
        finally:
            for memo, old in zip((self.masks, self.items), before, strict=True):
                for memory, found in list(memo.items()):
                    memo[memory] = {vid: value for vid, value in found.items() if vid in old.get(memory, ())}

    # autograd ----------------------------------------------------------------------
    def backward(self, outputs: list[TracedTensor], inputs: list[TracedTensor]) -> tuple[list[TracedTensor], list[TracedTensor | None]]:
        """Append the backward operations of `outputs` (those that require grad) with respect to `inputs`.

        Returns the tangents, one for each differentiable output in order, and the gradients of the inputs (None: no path).
        Tangents have the output's sizes, and its strides where these are dense, else row-major ones: make them so at run time.
        """
        with self.recording():
            heads = [o for o in outputs if o.requires_grad]
            self.n_forward = len(self.ops)
            tangents = [self.tangent(o) for o in heads]
            targets = [self.leaves.get(i.vid, i) for i in inputs]
            wanted = [t for t in targets if t.requires_grad]
            found = iter(engine_gradients(heads, wanted, tangents) if heads and wanted else ())
            grads = [next(found, None) if t.requires_grad else None for t in targets]
        return tangents, grads

    def tangent(self, out: TracedTensor) -> TracedTensor:
        """A gradient for `out`, laid out as `out` is."""
        strides = out.strides if is_dense_in_some_order(out) else contiguous_strides(out.sizes)
        return make(self, out.sizes, strides, out.dtype, 0, None, out.device, is_dense(out.sizes, strides))

    # going back --------------------------------------------------------------------
    def take_back(self, n: int) -> None:
        """Takes back the operations since `n`, and what they have read from data: it is read again by whoever wants it."""
        gone = self.ops[n:]
        del self.ops[n:]
        if gone and (self.items or self.masks):
            read = {b.symbol for op in gone for b in op.binds} | {o.vid for op in gone for o in op.outs if type(o) is TracedTensor}
            for memo in (self.items, self.masks):
                for memory, found in list(memo.items()):
                    memo[memory] = {vid: v for vid, v in found.items() if (v.vid if type(v) is TracedTensor else v) not in read}

    def snapshot(self) -> tuple:
        """A token for `rollback`."""
        return (
            len(self.ops), len(self.torch_ops), len(self.inputs), len(self.constants), len(self.journal),
            dict(self.known), self.n_forward, self.next_vid, self.scope.snapshot(),
        )  # fmt: skip

    def rollback(self, token: tuple) -> None:
        """Forget everything since `token`.

        Raises `Untraceable` if that includes an in-place operation on an older tensor with an autograd history: the C++ tape cannot
        be unwound. (Abandon the whole capture then.)
        """
        ops, torch_ops, inputs, constants, journal, known, n_forward, next_vid, scope = token
        for op in self.ops[ops:]:
            if any([t.vid < next_vid and t.requires_grad for t in written(op)]):
                raise Untraceable(op.target, "an in-place operation on a tensor with gradients cannot be undone")
        for x, sizes, strides, offset in reversed(self.journal[journal:]):
            apply_metadata(self, x, sizes, strides, offset)
        del self.ops[ops:], self.torch_ops[torch_ops:], self.inputs[inputs:], self.constants[constants:], self.journal[journal:]
        casts.forget()
        self.known, self.n_forward = known, n_forward
        self.masks.clear()
        self.items.clear()
        self.sizes.clear()
        self.scope.rollback(scope)

    def __str__(self) -> str:
        return "\n".join(map(str, self.ops))


tolist = handlers.tolist

__all__ = ["probe", "tolist", "Bind", "Op", "TorchOp", "Trace", "TracedTensor", "Untraceable"]
