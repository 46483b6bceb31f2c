"""Recurrent networks and packed sequences, by the ONNX operators LSTM, GRU and RNN.

A packed sequence is taken apart for them: its rows go where they stand in a padded sequence, and `sequence_lens` says where each ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import onnx_ir as ir
import torch

from pliant.export.onnx.elementwise import out_dtype
from pliant.export.onnx.graph import Graph, NotExpressible, Tensor, compute

Row = Callable[..., Any]


class Kind(NamedTuple):
    """An operator of ONNX: in which order it has PyTorch's gates, how many states, and what else it is told."""

    name: str
    gates: tuple[int, ...]
    states: int
    attributes: dict[str, Any]


LSTM = Kind("LSTM", (0, 3, 1, 2), 2, {})
GRU = Kind("GRU", (1, 0, 2), 1, {"linear_before_reset": 1})
TANH, RELU = (Kind("RNN", (0,), 1, {"activation": name}) for name in ("Tanh", "Relu"))


def gates(g: Graph, kind: Kind, v: ir.Value, dtype: torch.dtype) -> ir.Value:
    """The rows of a weight or bias, gate by gate as ONNX has them."""
    n = len(kind.gates)
    v = g.cast(v, dtype)
    if n == 1:
        return v
    parts = g.ops("Split", n, v, axis=0, num_outputs=n, dtypes=[dtype] * n)
    return g.op("Concat", *[parts[i] for i in kind.gates], axis=0)


def layers(
    g: Graph, op: Any, kind: Kind, x: ir.Value, lengths: ir.Value | None, hx: list[Tensor], params: list[Tensor], options: tuple
) -> tuple[ir.Value, ...]:
    """(what the last layer says at each step, the last states): `x` is (steps, batch, features), `lengths` of the sequences or None."""
    biases, count, dropout, train, both = options
    if train and dropout > 0:
        raise NotExpressible("a recurrent network that drops values between its layers while it trains")
    ways = 2 if both else 1
    if len(params) != count * ways * (4 if biases else 2):
        raise NotExpressible("a recurrent network with projections")
    if hx[0].dtype is torch.float64:
        raise NotExpressible("ONNX Runtime has no recurrent network of float64")
    dtype = compute(hx[0].dtype)
    width = hx[0].sizes[2]
    if not isinstance(width, int):
        raise NotExpressible("a recurrent network whose width changes")
    x = g.cast(x, dtype)
    ends: list[list[ir.Value]] = [[] for _ in hx]
    given = iter(params)
    for layer in range(count):
        w, r, b = [], [], []
        for _ in range(ways):
            own = [gates(g, kind, next(given).value, dtype) for _ in range(4 if biases else 2)]
            w.append(g.op("Unsqueeze", own[0], g.ints(0)))
            r.append(g.op("Unsqueeze", own[1], g.ints(0)))
            if biases:
                b.append(g.op("Unsqueeze", g.op("Concat", own[2], own[3], axis=0), g.ints(0)))
        at = g.ints(layer * ways), g.ints((layer + 1) * ways), g.ints(0)
        begin = [g.op("Slice", g.cast(h.value, dtype), *at) for h in hx]
        attributes = dict(kind.attributes)
        if "activation" in attributes:
            attributes["activations"] = [attributes.pop("activation")] * ways
        stacked = [g.op("Concat", *v, axis=0) if v else None for v in (w, r, b)]
        out, *last = g.ops(
            kind.name, 1 + kind.states, x, *stacked, lengths, *begin, dtypes=[dtype] * (1 + kind.states), hidden_size=width,
            direction="bidirectional" if both else "forward", **attributes,
        )  # fmt: skip
        x = g.op("Reshape", g.transpose(out, [0, 2, 1, 3]), g.ints(0, 0, width * ways))
        for end, v in zip(ends, last, strict=True):
            end.append(v)
    states = [g.op("Concat", *end, axis=0) if count > 1 else end[0] for end in ends]
    return (x, *states)


def padded(kind: Kind) -> Row:
    def row(g: Graph, op: Any, x: Tensor, hx: Any, params: list, *options: Any) -> tuple:
        *rest, batch_first = options
        hidden = hx if kind.states == 2 else [hx]
        v = g.transpose(x.value, [1, 0, 2]) if batch_first else x.value
        out, *last = layers(g, op, kind, v, None, hidden, params, tuple(rest))
        out = g.transpose(out, [1, 0, 2]) if batch_first else out
        return tuple(g.cast(v, out_dtype(op)) for v in (out, *last))

    return row


# packed sequences ---------------------------------------------------------------------------------------------------------------------
def range_to(g: Graph, n: ir.Value) -> ir.Value:
    return g.op("Range", g.const(0), n, g.const(1))


def first(g: Graph, v: ir.Value) -> ir.Value:
    return g.op("Gather", v, g.const(0), axis=0)


def taken(g: Graph, batch_sizes: ir.Value) -> ir.Value:
    """(steps, batch): whether a sequence goes on at a step."""
    return g.op("Greater", g.op("Unsqueeze", batch_sizes, g.ints(1)), g.op("Unsqueeze", range_to(g, first(g, batch_sizes)), g.ints(0)))


def places(g: Graph, mask: ir.Value) -> ir.Value:
    """(rows, 2): step and sequence of each row of the packed data."""
    return g.op("Transpose", g.op("NonZero", mask), perm=[1, 0])


def lengths_of(g: Graph, mask: ir.Value, dtype: torch.dtype) -> ir.Value:
    return g.op("ReduceSum", g.cast(mask, dtype), g.ints(0), keepdims=0)


def spread(g: Graph, data: ir.Value, mask: ir.Value, steps: ir.Value | None, fill: ir.Value) -> ir.Value:
    """The padded sequence (steps, batch, ...) of packed data; as many steps as `mask` has, or `steps`."""
    shape = g.op("Shape", mask)
    if steps is not None:
        shape = g.op("Concat", steps, g.op("Slice", shape, g.ints(1), g.ints(2)), axis=0)
    rest = g.op("Slice", g.op("Shape", data), g.ints(1), g.ints(1 << 30))
    empty = g.op("Expand", fill, g.op("Concat", shape, rest, axis=0))
    return g.op("ScatterND", empty, places(g, mask), data)


def packed(kind: Kind) -> Row:
    def row(g: Graph, op: Any, data: Tensor, batch_sizes: Tensor, hx: Any, params: list, *options: Any) -> tuple:
        hidden = hx if kind.states == 2 else [hx]
        dtype = compute(data.dtype)
        mask = taken(g, batch_sizes.value)
        x = spread(g, g.cast(data.value, dtype), mask, None, g.const(0.0, dtype))
        out, *last = layers(g, op, kind, x, lengths_of(g, mask, torch.int32), hidden, params, options)
        return tuple(g.cast(v, out_dtype(op)) for v in (g.op("GatherND", out, places(g, mask)), *last))

    return row


def pack(g: Graph, op: Any, x: Tensor, lengths: Tensor, batch_first: bool) -> tuple:
    v = g.transpose(x.value, [1, 0, *range(2, x.rank)]) if batch_first else x.value
    steps = range_to(g, first(g, lengths.value))  # the longest sequence comes first
    mask = g.op("Less", g.op("Unsqueeze", steps, g.ints(1)), g.op("Unsqueeze", lengths.value, g.ints(0)))
    batch_sizes = g.op("ReduceSum", g.cast(mask, torch.int64), g.ints(1), keepdims=0)
    return g.op("GatherND", v, places(g, mask)), batch_sizes


def pad(g: Graph, op: Any, data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Any, total_length: Any) -> tuple:
    given = not isinstance(total_length, int) or total_length > 0
    steps = g.sizes.vector([total_length]) if given else None
    mask = taken(g, batch_sizes.value)
    out = spread(g, data.value, mask, steps, g.number(padding_value, data.dtype))
    out = g.transpose(out, [1, 0, *range(2, data.rank + 1)]) if batch_first else out
    return out, lengths_of(g, mask, torch.int64)


ROWS: dict[str, Row] = {
    **{f"{name}.input": padded(kind) for name, kind in (("lstm", LSTM), ("gru", GRU), ("rnn_tanh", TANH), ("rnn_relu", RELU))},
    **{f"{name}.data": packed(kind) for name, kind in (("lstm", LSTM), ("gru", GRU), ("rnn_tanh", TANH), ("rnn_relu", RELU))},
    "_pack_padded_sequence": pack,
    "_pad_packed_sequence": pad,
}
