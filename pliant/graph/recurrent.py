"""Recurrent networks (LSTM, GRU, plain) and packed sequences as single operations.

PyTorch's C++ code loops over the time steps, or reads how many sequences go on at each step from the data: on proxies the first would
pin the length of the sequence, and the second cannot be done. The operator itself takes any length, so it is recorded whole, and the
kernels (oneDNN's or PyTorch's) run as in eager. Where gradients are recorded each layer is an operation and a node of the tape, whose
backward part is another operation (`recurrent_gradients.py`). Packing and padding again are each other's derivatives.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pliant.graph import lstm, symnode
from pliant.graph.decompositions import NotDecomposed, apply, free, undisturbed
from pliant.graph.dispatch import check, twin
from pliant.graph.handlers import bound, fresh, new_size, numel
from pliant.graph.known_numbers import NUMBERS
from pliant.graph.layout import ask
from pliant.graph.originals import ORIGINAL, is_grad_enabled, torch
from pliant.graph.record import Bind, Op
from pliant.graph.recurrent_gradients import BACKWARD, ONEDNN, PACKED_ROWS, UNPACKED_ROWS
from pliant.graph.rules.shape import known_equal, new, same, strided
from pliant.graph.rules.table import handler, rule
from pliant.graph.schema import written
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.symbolic import ops

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


OPTIONS = (bool,), (int,), (int, float), (bool,), (bool,), (bool,)
"""Types of what follows the parameters: whether there are biases, layers, dropout, training, both ways, the batch first."""


def layers(op: Any, states: int) -> Callable[..., Any]:
    """The decomposition of `torch.lstm` (two states), `torch.gru`, `torch.rnn_tanh`, `torch.rnn_relu` (one)."""

    def decomposed(x: Any, second: Any, third: Any, *rest: Any) -> Any:
        packed = type(second) is TracedTensor and (states == 2 or type(third) is TracedTensor)
        hx, params = (third, rest[0]) if packed else (second, third)
        if not issubclass(type(params), (list, tuple)) or states == 2 and not issubclass(type(hx), (list, tuple)):
            return NotImplemented
        tensors = (x, *(hx if states == 2 else (hx,)), *params, *((second,) if packed else ()))
        options = [symnode.concrete(o) for o in (rest[1:] if packed else rest)]
        if len(options) != (5 if packed else 6):
            return NotImplemented  # which PyTorch refuses
        if not all([type(o) in kinds for o, kinds in zip(options, OPTIONS, strict=False)]):
            raise Untraceable(op.input, "options of other types, which PyTorch refuses or makes numbers of")
        given = list(hx) if states == 2 else hx
        drops, out = options[2] != 0 and options[3], NotImplemented
        if not drops or 0 <= options[2] <= 1:
            with contextlib.suppress(NotDecomposed):
                out = whole(undisturbed(*tensors), tensors, x, second if packed else None, given, list(params), options)
        if out is NotImplemented and (drops or torch._C._is_any_autocast_enabled()):
            raise Untraceable(op.input, "PyTorch's decomposition of it in Python, which forgets dropout and autocast")
        return out

    def whole(trace: Any, tensors: tuple, x: Any, batch_sizes: Any, hx: Any, params: list, options: list) -> Any:
        if trace is None:
            trace = recording(*tensors)
            return NotImplemented if trace is None else stacked(trace, op, x, batch_sizes, hx, params, *options)
        return apply(trace, op.input, x, hx, params, *options) if batch_sizes is None else apply(
            trace, op.data, x, batch_sizes, hx, params, *options)

    return decomposed


def recording(*tensors: Any) -> Any:
    """The trace of these proxies, where a tape is written and nothing else is in the way."""
    if not all([type(t) is TracedTensor for t in tensors]):
        return None
    trace = tensors[0].owner()
    return trace if trace is not None and free(trace) and all([t.owner() is trace for t in tensors]) else None


def stacked(
    trace: Any, op: Any, x: Any, batch_sizes: Any, hx: Any, params: list, biases: bool, count: int, p: float, train: bool, both: bool,
    batch_first: bool = False,
) -> Any:  # fmt: skip
    """The layers one by one, each a node of the tape, with what PyTorch puts between them."""
    states, ways = hx if type(hx) is list else [hx], 2 if both else 1
    each, many = len(params) // count if count > 0 else 0, count * ways
    if count < 1 or each * count != len(params) or each % ways or any([len(h.sizes) != 3 or not same(h.sizes[0], many) for h in states]):
        return NotImplemented
    ranks = ([2, 2, 1, 1, 2] if biases else [2, 2, 2])[: each // ways]
    if [len(w.sizes) for w in params] != ranks * many:
        raise Untraceable(op.input, "weights that some kernels take as others than they are, whose gradients are like the weights")
    x = ORIGINAL.transpose(x, 0, 1) if batch_first else x
    whole = op is aten.lstm and each // ways == (4 if biases else 2)  # no projections
    library = whole and batch_sizes is None and for_onednn(trace, x, states, params)
    ours = whole and lstm.available() and for_our_kernels(trace, x, batch_sizes, states, params)
    how, kept = How(ours, strict=library and not both), library and not ours
    if library:  # as PyTorch, whose copies nobody writes to
        x, states = ORIGINAL.contiguous(x), [ORIGINAL.contiguous(h) for h in states]
    last: list[list] = [[] for _ in states]
    for layer in range(count):
        own = [ORIGINAL.narrow(h, 0, layer * ways, ways) for h in states] if count > 1 else states
        weights = params[layer * each : (layer + 1) * each]
        if kept:
            x, *ends = onednn_layer(x, own, weights, count, biases, both, batch_first, train)
        else:
            x, *ends = Layer.apply(trace, op, (biases, train, both), batch_sizes, how, len(states), x, *own, *weights)
        for found, end in zip(last, ends, strict=True):
            found.append(end)
        if p != 0 and train and layer < count - 1:
            x = torch.dropout(x, p, True)
    final = [torch.cat(found) if count > 1 else found[0] for found in last]
    return (ORIGINAL.transpose(x, 0, 1) if batch_first else x, *final)


def for_onednn(trace: Any, x: Any, states: list, params: list) -> bool:
    """Whether PyTorch gives this LSTM to oneDNN, whose layers are operators with a derivative. (use_mkldnn of RNN.cpp)"""
    if not torch._C._get_mkldnn_enabled() or x.dtype is not torch.float32 or fitting(trace, x, states, params, x.sizes[1], 3) is None:
        return False
    return trace.scope.known_true(ops.gt(numel(trace, x.sizes), 0)) and all([type(h.sizes[2]) is int for h in states])


def for_our_kernels(trace: Any, x: Any, batch_sizes: Any, states: list, params: list) -> bool:
    """Whether this LSTM is one that `lstm.py` has kernels for."""
    batch, dims = (x.sizes[1], 3) if batch_sizes is None else (None, 2)
    if x.dtype is not torch.float32 or len(x.sizes) != dims or fitting(trace, x, states, params, batch, dims) is None:
        return False
    return all([trace.scope.known_true(ops.gt(numel(trace, t.sizes), 0)) for t in (x, *states)])


@dataclass(frozen=True, slots=True)
class How:
    """`ours`: a layer is run by kernels of our own. `strict`: whoever writes to its result cannot have gradients, as with the library that
    eager calls."""

    ours: bool
    strict: bool


def onednn_layer(x: Any, states: list, params: list, count: int, biases: bool, both: bool, batch_first: bool, train: bool) -> tuple:
    """(result, last states) of a layer."""
    each, results, ends = len(params) // (2 if both else 1), [], []
    for way in range(2 if both else 1):
        w, u, *sums = params[way * each : (way + 1) * each]
        sums = sums or [torch.zeros(p.sizes, dtype=p.dtype) for p in (w, u)]  # as PyTorch has it
        h, c = [ORIGINAL.select(s, 0, way) for s in states]
        out, *end = OneDNN.apply((way == 1, states[0].sizes[2], count, biases, both, batch_first, train), x, w, u, *sums, h, c)
        results.append(out)
        ends.append(end)
    return torch.cat(results, -1) if both else results[0], *map(torch.stack, zip(*ends, strict=True))


class OneDNN(torch.autograd.Function):
    """One direction of a layer of an LSTM that oneDNN computes, in the tape of a capture."""

    @staticmethod
    def forward(ctx: Any, options: tuple, *tensors: Any) -> tuple:
        reverse, width, count, biases, both, batch_first, train = options
        *results, kept = ONEDNN(*tensors, reverse, width, count, biases, both, batch_first, train)
        tensors[0].owner().ops[-1].grad = True  # it is the operation that autograd was on for
        ctx.options = options
        ctx.save_for_backward(*tensors, *results, kept)
        ctx.set_materialize_grads(False)
        return tuple(results)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        *tensors, kept = ctx.saved_tensors
        reverse, width, count, biases, both, batch_first, train = ctx.options
        if is_grad_enabled():
            x, *params, h, c = tensors[:7]
            params = params if biases else params[:2]  # in the place of biases are matrices of zeros
            given = ORIGINAL.flip(x, 0) if reverse else x
            out, *last = aten.lstm.input(given, [h[None], c[None]], params, biases, 1, 0.0, train, False, False)
            results = ORIGINAL.flip(out, 0) if reverse else out, *[t[0] for t in last]
            return None, *gradients_of(results, grads, tensors[:7], ctx.needs_input_grad[1:])
        func = aten.mkldnn_rnn_layer_backward.default
        return None, *func(*tensors, *grads, reverse, 2, width, count, biases, train, both, [], batch_first, kept)


@handler("pliant::onednn_lstm")
def onednn_lstm(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """(result, h, c, what the derivative needs). The last is as large as the library says when it runs."""
    check(trace, func, args)
    x, h, c, width = args[0], args[5], args[6], args[8]
    kept = new_size(trace, func)
    results = [new(trace, sizes, x.dtype, x.device) for sizes in ((*x.sizes[:2], width), h.sizes, c.sizes)]
    results.append(fresh(trace, (to_sym(trace.scope, kept),), torch.uint8, x))
    return bound(trace, func, args, kwargs, tuple(results), Bind(kept, 3, 0))


@rule("mkldnn_rnn_layer_backward")
def onednn_backward(trace: Any, x: Any, w: Any, u: Any, b: Any, v: Any, h: Any, c: Any, *rest: Any) -> tuple:
    sums = (w.sizes[:1],) * 2
    return tuple([new(trace, sizes, x.dtype, x.device) for sizes in (x.sizes, w.sizes, u.sizes, *sums, h.sizes, c.sizes)])


class Layer(torch.autograd.Function):
    """One layer of a network, in the tape of a capture."""

    @staticmethod
    def forward(ctx: Any, trace: Any, op: Any, options: tuple, batch_sizes: Any, how: How, states: int, x: Any, *rest: Any) -> tuple:
        out, *last, kept = run_layer(trace, op, options, batch_sizes, how, x, list(rest[:states]), list(rest[states:]))
        trace.ops[-1].grad = True  # it is the operation that autograd was on for
        ctx.trace, ctx.begin, ctx.out, ctx.kept = trace.ref, len(trace.ops), alike(out), kept
        ctx.layer = op, options, batch_sizes, how
        ctx.states = states
        ctx.save_for_backward(x, *rest, *((out,) if how.strict else ()))
        ctx.set_materialize_grads(False)
        return (out, *last)

    @staticmethod
    def backward(ctx: Any, grad_out: Any, *grad_last: Any) -> tuple:
        trace, (op, options, batch_sizes, how), n = ctx.trace(), ctx.layer, ctx.states
        x, *rest = ctx.saved_tensors[:-1] if how.strict else ctx.saved_tensors
        hx, params = rest[:n], rest[n:]
        (biases, _, both), out, kept = options, ctx.out, ctx.kept
        if is_grad_enabled():
            return (None, None, None, None, None, None, *differentiable_gradients(ctx, x, rest, grad_out, grad_last))
        if batch_sizes is not None and written_since(trace, batch_sizes, ctx.begin):
            raise Untraceable(op.data, "its batch sizes were written to")
        if written_since(trace, out, ctx.begin):
            out, *_, kept = run_layer(trace, op, options, batch_sizes, how, x, hx, params)
        needs = ctx.needs_input_grad[6:]
        wanted = [needs[0], any(needs[1 : 1 + n]), any(needs[1 + n :])]
        if how.ours:
            given = (x, batch_sizes, hx, out, kept, params, biases, both, grad_out, list(grad_last), wanted)
            grads = iter(lstm.LAYER_BACKWARD(*given))
        else:
            grads = iter(BACKWARD(op.__name__, x, batch_sizes, hx, out, params, biases, both, grad_out, list(grad_last), wanted))
        groups = zip(wanted, (1, n, len(params)), strict=True)
        return (None, None, None, None, None, None, *[next(grads) if there else None for there, k in groups for _ in range(k)])


def differentiable_gradients(ctx: Any, x: Any, rest: list, grad_out: Any, grad_last: tuple) -> list:
    """The gradients of a layer where they are differentiated again: through PyTorch's own code, which takes a number of steps."""
    (op, (biases, train, both), batch_sizes, _), n = ctx.layer, ctx.states
    if batch_sizes is not None:
        raise Untraceable(op.data, "its gradients are differentiated again")
    given = rest[:n] if op is aten.lstm else rest[0]
    results = op.input(x, given, rest[n:], biases, 1, 0.0, train, both, False)
    return gradients_of(results, (grad_out, *grad_last), [x, *rest], ctx.needs_input_grad[6:])


def gradients_of(results: Sequence, given: Sequence, inputs: Sequence, needs: Sequence[bool]) -> list:
    """Those of `inputs`, as far as they are needed, which can be differentiated again."""
    heads = [(r, g) for r, g in zip(results, given, strict=True) if g is not None]
    targets = [t for t, needed in zip(inputs, needs, strict=True) if needed]
    grads = iter(torch.autograd.grad([r for r, _ in heads], targets, [g for _, g in heads], create_graph=True, allow_unused=True))
    return [next(grads) if needed else None for needed in needs]


def run_layer(trace: Any, op: Any, options: tuple, batch_sizes: Any, how: How, x: Any, hx: list, params: list) -> Any:
    """(result, last states, what our kernels keep for the derivative) of one layer, recorded."""
    biases, train, both = options
    if how.ours:
        return lstm.LAYER(x, batch_sizes, hx, params, biases, both)
    given = hx if op is aten.lstm else hx[0]
    if batch_sizes is None:
        return *apply(trace, op.input, x, given, params, biases, 1, 0.0, train, both, False), None
    return *apply(trace, op.data, x, batch_sizes, given, params, biases, 1, 0.0, train, both), None


def draws_nothing(op: Any) -> bool:
    """Whether this is a network that drops nothing, whose operator may draw random numbers."""
    if op.target not in WHOLE or op.target is aten._pad_packed_sequence.default:
        return False
    names = [a.name for a in op.target._schema.arguments]
    dropout, train = (op.args[names.index(name)] for name in ("dropout", "train"))
    return dropout == 0 or train is False


def alike(x: TracedTensor) -> TracedTensor:
    """Another object for the same tensor of the trace. (A node that held its own result would never be freed.)"""
    y = twin(x)
    y.vid = x.vid
    return y


def written_since(trace: Any, x: TracedTensor, begin: int) -> bool:
    """Whether an operation from `begin` on may have written to the memory of `x`."""
    return any([t.storage_id == x.storage_id for op in trace.ops[begin:] for t in written(op)])


@rule("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input")
def padded_layers(
    trace: Any, x: Any, hx: Any, params: list, biases: bool, count: int, dropout: float, train: bool, both: bool, batch_first: bool
) -> Any:
    batch, steps = x.sizes[:2] if batch_first else x.sizes[1::-1]
    hidden = fitting(trace, x, hx, params, batch, 3)
    if hidden is None:
        return NotImplemented
    width = hidden[0].sizes[2] * (2 if both else 1)
    out = new(trace, (steps, batch, width), x.dtype, x.device)
    if batch_first:
        s = out.strides
        out = strided(trace, (batch, steps, width), (s[1], s[0], s[2]), x.dtype, x.device)
    return (out, *last_states(trace, x, hidden, batch))


@rule("lstm.data", "gru.data", "rnn_tanh.data", "rnn_relu.data")
def packed_layers(
    trace: Any, x: Any, batch_sizes: Any, hx: Any, params: list, biases: bool, count: int, dropout: float, train: bool, both: bool
) -> Any:
    hidden = fitting(trace, x, hx, params, None, 2)
    if hidden is None:
        return NotImplemented
    out = new(trace, (x.sizes[0], hidden[0].sizes[2] * (2 if both else 1)), x.dtype, x.device)
    return (out, *last_states(trace, x, hidden, hidden[0].sizes[1]))


def fitting(trace: Any, x: Any, hx: Any, params: list, batch: Any, dims: int) -> list | None:
    """The states that the layers begin with, if everything is as the kernels want it."""
    hidden = [hx] if type(hx) is TracedTensor else list(hx)
    if len(x.sizes) != dims or x.dtype not in FLOATS or any([len(h.sizes) != 3 for h in hidden]):
        return None
    if any([t.dtype is not x.dtype or t.device.type != "cpu" for t in (x, *hidden, *params)]):
        return None
    return hidden if all([known_equal(trace, h.sizes[1], hidden[0].sizes[1] if batch is None else batch) for h in hidden]) else None


def last_states(trace: Any, x: Any, hidden: list, batch: Any) -> list:
    return [new(trace, (h.sizes[0], batch, h.sizes[2]), x.dtype, x.device) for h in hidden]


PADDING = (bool,), (bool, int, float, torch.SymInt), (int, torch.SymInt)
"""Types of what `_pad_packed_sequence` is told: whether the batch is first, the value, the total length."""


def pad_packed(data: Any, batch_sizes: Any, *options: Any) -> Any:
    """The decomposition of `_pad_packed_sequence`."""
    trace, func = undisturbed(data, batch_sizes), aten._pad_packed_sequence.default
    if len(options) != 3 or not all([type(o) in kinds for o, kinds in zip(options, PADDING, strict=True)]):
        return NotImplemented  # which PyTorch refuses, if not for a scalar of another type
    taped = recording(data, batch_sizes) if trace is None else None
    if (trace is None and taped is None) or len(batch_sizes.sizes) != 1 or not data.sizes:
        return NotImplemented
    return padded(trace, func, (data, batch_sizes, *options), {}) if taped is None else Padded.apply(taped, data, batch_sizes, *options)


def pack(x: Any, lengths: Any, batch_first: Any) -> Any:
    """The decomposition of `_pack_padded_sequence` where gradients are recorded."""
    trace = recording(x, lengths)
    if trace is None or not is_grad_enabled() or not x.requires_grad or type(batch_first) is not bool:
        return NotImplemented
    return Packed.apply(trace, x, lengths, batch_first)


class Padded(torch.autograd.Function):
    """A packed sequence padded again, in the tape of a capture."""

    @staticmethod
    def forward(ctx: Any, trace: Any, data: Any, batch_sizes: Any, *options: Any) -> Any:
        out = padded(trace, aten._pad_packed_sequence.default, (data, batch_sizes, *options), {})
        trace.ops[-1].grad = True
        ctx.save_for_backward(batch_sizes)
        ctx.rows, ctx.batch_first = data.sizes[0], options[0]
        ctx.mark_non_differentiable(out[1])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> tuple:
        if is_grad_enabled():
            raise Untraceable(aten._pad_packed_sequence.default, "its gradients are differentiated again")
        return None, PACKED_ROWS(grad, *ctx.saved_tensors, ctx.rows, ctx.batch_first), None, None, None, None


class Packed(torch.autograd.Function):
    """A padded sequence packed, in the tape of a capture."""

    @staticmethod
    def forward(ctx: Any, trace: Any, x: Any, lengths: Any, batch_first: bool) -> Any:
        out = pack_padded(trace, aten._pack_padded_sequence.default, (x, lengths, batch_first), {})
        trace.ops[-1].grad = True
        ctx.sizes, ctx.batch_first, ctx.batch_sizes = x.sizes, batch_first, alike(out[1])
        ctx.trace, ctx.begin = trace.ref, len(trace.ops)
        ctx.mark_non_differentiable(out[1])
        return out

    @staticmethod
    def backward(ctx: Any, grad: Any, _: Any) -> tuple:
        if is_grad_enabled() or written_since(ctx.trace(), ctx.batch_sizes, ctx.begin):
            raise Untraceable(aten._pack_padded_sequence.default, "its gradients are differentiated again, or its batch sizes written to")
        return None, UNPACKED_ROWS(grad, ctx.batch_sizes, ctx.sizes, ctx.batch_first), None, None


@rule("pliant::packed_rows")
def rows_of_padded(trace: Any, x: Any, batch_sizes: Any, rows: Any, batch_first: bool) -> Any:
    return new(trace, (rows, *x.sizes[2:]), x.dtype, x.device)


@rule("pliant::unpacked_rows")
def padded_like(trace: Any, x: Any, batch_sizes: Any, sizes: Any, batch_first: bool) -> Any:
    if not batch_first:
        return new(trace, tuple(sizes), x.dtype, x.device)
    batch, steps, *rest = sizes
    s = new(trace, (steps, batch, *rest), x.dtype, x.device).strides
    return strided(trace, tuple(sizes), (s[1], s[0], *s[2:]), x.dtype, x.device)


@handler("_pad_packed_sequence")
def padded(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """(padded, lengths). How many sequences there are is the first of `batch_sizes`."""
    data, batch_sizes, batch_first, _, total_length = args
    given = type(total_length) is int and total_length > 0 or type(total_length) is torch.SymInt
    steps = total_length if given else batch_sizes.sizes[0]
    if type(total_length) is torch.SymInt and not ask(trace.scope, ops.gt(total_length.node.expr, 0), symnode.site_hook()):
        raise Untraceable(func, "whether there is a total length is known only when it runs", "data-dependent")
    batch, binds = batch_of(trace, batch_sizes), []
    if batch is None:
        u = new_size(trace, func, numel(trace, data.sizes[:1]), at_least=1)
        batch, binds = to_sym(trace.scope, u), [Bind(u, 1, 0)]
    out = new(trace, (steps, batch, *data.sizes[1:]), data.dtype, data.device)
    if batch_first:
        s = out.strides
        out = strided(trace, (batch, steps, *data.sizes[1:]), (s[1], s[0], *s[2:]), data.dtype, data.device)
    return bound(trace, func, args, kwargs, (out, new(trace, (batch,), torch.int64, batch_sizes.device)), *binds)


@handler("_pack_padded_sequence")
def pack_padded(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """(data, batch_sizes): as many rows as the lengths sum to, as many steps as the longest has."""
    check(trace, func, args)
    x, lengths, batch_first = args
    if is_grad_enabled() and x.requires_grad:
        raise Untraceable(func, "its backward reads how many sequences go on at each step", "data-dependent")
    if len(x.sizes) < 2 or len(lengths.sizes) != 1 or lengths.dtype is not torch.int64 or lengths.device.type != "cpu":
        raise Untraceable(func, "it refuses these arguments")
    for n in x.sizes[:2]:
        trace.scope.learn(ops.ge(expr_of(n, trace.scope), 1))  # it refuses others
    total = new_size(trace, func, numel(trace, x.sizes[:2]), at_least=1)
    steps = new_size(trace, func, expr_of(x.sizes[1 if batch_first else 0], trace.scope), at_least=1)
    data = fresh(trace, (to_sym(trace.scope, total), *x.sizes[2:]), x.dtype, x)
    sizes = fresh(trace, (to_sym(trace.scope, steps),), torch.int64, lengths)
    return bound(trace, func, args, kwargs, (data, sizes), Bind(total, 0, 0), Bind(steps, 1, 0))


def maker(trace: Any, x: TracedTensor) -> Op | None:
    """The operation that made `x`, if nothing has written to its memory since."""
    for op in reversed(trace.ops):
        if any([o is x for o in op.outs]):
            return op
        if any([t.storage_id == x.storage_id for t in written(op)]):
            return None
    return None


def batch_of(trace: Any, batch_sizes: TracedTensor) -> Any:
    """How many sequences a packed one holds, if this trace packed it."""
    op = maker(trace, batch_sizes)
    if op is None or op.target is not aten._pack_padded_sequence.default or op.outs[1] is not batch_sizes:
        return None
    x, _, batch_first = op.args
    return x.sizes[0 if batch_first else 1]


def first_of(trace: Any, x: TracedTensor, dim: Any, index: Any) -> Any:
    """The value of `batch_sizes[0]`."""
    n = batch_of(trace, x) if type(index) is int and index == 0 else None
    return None if n is None else expr_of(n, trace.scope)


NUMBERS[aten.select.int] = lambda reader, *args: first_of(reader.trace, *args)
DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    torch.lstm: layers(aten.lstm, 2),
    torch.gru: layers(aten.gru, 1),
    torch.rnn_tanh: layers(aten.rnn_tanh, 1),
    torch.rnn_relu: layers(aten.rnn_relu, 1),
    torch._VF._pad_packed_sequence: pad_packed,
    torch._VF._pack_padded_sequence: pack,
}
"""As `decompositions.DECOMPOSITIONS`."""
WHOLE = frozenset(
    (aten._pad_packed_sequence.default, *(o for op in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu) for o in (op.input, op.data)))
)
"""Operators that C++ defines by others, and that are operations of their own here."""
