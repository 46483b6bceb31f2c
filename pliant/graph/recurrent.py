"""Recurrent networks (LSTM, GRU, plain) and packed sequences as single operations, where no gradient is recorded.

PyTorch's C++ code loops over the time steps, or reads how many sequences go on at each step from the data: on stand-ins the first would
pin the length of the sequence, and the second cannot be done. The operator itself takes any length, so it is recorded whole, and the
kernels (oneDNN's or PyTorch's) run as in eager. Where gradients are recorded PyTorch's code says what is captured.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from pliant.graph import symnode
from pliant.graph.decompositions import apply, undisturbed
from pliant.graph.dispatch import check
from pliant.graph.handlers import bound, fresh, new_size, numel
from pliant.graph.layout import ask
from pliant.graph.numbers import NUMBERS
from pliant.graph.originals import is_grad_enabled
from pliant.graph.record import Bind, Op
from pliant.graph.rules.shape import known_equal, new, strided
from pliant.graph.rules.table import handler, rule
from pliant.graph.schema import written
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.symbolic import ops

aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def layers(op: Any, states: int) -> Callable[..., Any]:
    """The spelling of `torch.lstm` (two states), `torch.gru`, `torch.rnn_tanh`, `torch.rnn_relu` (one)."""

    def spelled(x: Any, second: Any, third: Any, *rest: Any) -> Any:
        packed = type(second) is TracedTensor and (states == 2 or type(third) is TracedTensor)
        hx, params = (third, rest[0]) if packed else (second, third)
        trace = undisturbed(x, *(hx if states == 2 else (hx,)), *params, *((second,) if packed else ()))
        options = rest[1:] if packed else rest
        if trace is None or len(options) != (5 if packed else 6) or not all([type(o) in (bool, int, float) for o in options]):
            return NotImplemented
        given = list(hx) if states == 2 else hx
        if packed:
            return apply(trace, op.data, x, second, given, list(params), *options)
        return apply(trace, op.input, x, given, list(params), *options)

    return spelled


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


def pad_packed(data: Any, batch_sizes: Any, *options: Any) -> Any:
    """The spelling of `_pad_packed_sequence`."""
    trace = undisturbed(data, batch_sizes)
    func = aten._pad_packed_sequence.default
    if trace is None or len(options) != 3 or not all([type(o) in (bool, int, float, torch.SymInt) for o in options]):
        return NotImplemented
    return padded(trace, func, (data, batch_sizes, *options), {}) if len(batch_sizes.sizes) == 1 and data.sizes else NotImplemented


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
SPELLED: dict[Any, Callable[..., Any]] = {
    torch.lstm: layers(aten.lstm, 2),
    torch.gru: layers(aten.gru, 1),
    torch.rnn_tanh: layers(aten.rnn_tanh, 1),
    torch.rnn_relu: layers(aten.rnn_relu, 1),
    torch._VF._pad_packed_sequence: pad_packed,
}
"""As `decompositions.SPELLED`."""
WHOLE = frozenset(
    (aten._pad_packed_sequence.default, *(o for op in (aten.lstm, aten.gru, aten.rnn_tanh, aten.rnn_relu) for o in (op.input, op.data)))
)
"""Operators that C++ defines by others, and that are operations of their own here."""
