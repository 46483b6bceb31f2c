"""LSTM of float32 by kernels of our own: a layer forward (`pliant::lstm`) and back, and a whole network without gradients.

The kernels (`native/recurrent.cpp`) are the target's (`provider`); where it has none, and for what they do not take, PyTorch's own run, and
the derivative is that of `recurrent_gradients.py`. What the kernels keep of a layer for its derivative is its last result: the gates of
each step, and what its cells were.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from pliant.graph import recurrent_gradients
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.recurrent_gradients import LIBRARY
from pliant.graph.rules.shape import new
from pliant.graph.rules.table import rule
from pliant.native import RECURRENT_FLAGS

aten = torch.ops.aten
LIBRARY.define(
    "lstm(Tensor x, Tensor? batch_sizes, Tensor[] hx, Tensor[] params, bool biases, bool both) -> (Tensor, Tensor, Tensor, Tensor)"
)
LIBRARY.define(
    "lstm_backward(Tensor x, Tensor? batch_sizes, Tensor[] hx, Tensor out, Tensor kept, Tensor[] params, bool biases, bool both, "
    "Tensor? grad_out, Tensor?[] grad_last, bool[3] wanted) -> Tensor[]"
)
LIBRARY.define(
    "lstm_padded(Tensor x, Tensor[] hx, Tensor[] params, bool biases, int count, float dropout, bool train, bool both, bool batch_first) "
    "-> (Tensor, Tensor, Tensor)"
)
LIBRARY.define(
    "lstm_packed(Tensor x, Tensor batch_sizes, Tensor[] hx, Tensor[] params, bool biases, int count, float dropout, bool train, bool both) "
    "-> (Tensor, Tensor, Tensor)"
)
LAYER = torch.ops.pliant.lstm.default
"""(result, last h, last c, what the derivative needs) of one layer, both of its directions."""
LAYER_BACKWARD = torch.ops.pliant.lstm_backward.default
"""As `recurrent_gradients.BACKWARD`."""
WHOLE = {
    aten.lstm.input: torch.ops.pliant.lstm_padded.default,
    aten.lstm.data: torch.ops.pliant.lstm_packed.default,
}
"""PyTorch's operators for networks -> ours, with the same arguments and results."""
REVERSE, BIASES, PACKED, HAS_GRAD_OUT, WANT_X, ADD_X, WANT_WEIGHTS = (
    RECURRENT_FLAGS[name] for name in ("REVERSE", "BIASES", "PACKED", "HAS_GRAD_OUT", "WANT_X", "ADD_X", "WANT_WEIGHTS")
)
GATES = 4
FEW = 16
"""Sequences side by side up to which our kernels beat oneDNN's where nothing is kept for a derivative; beyond, the processor decides."""

Kernels = tuple[Callable[..., None], Callable[..., None]]
provider: list[Callable[[], Kernels | None]] = []
"""Asked for the kernels, forward and back, of the target that programs are compiled for (`codegen/target.py`)."""


def available() -> bool:
    """Whether the target has kernels that are faster than PyTorch's."""
    return bool(provider) and provider[0]() is not None


@functools.cache
def kernels() -> Kernels | None:
    """Those of this process: what is kept by one run is read by another."""
    return provider[0]() if provider else None


@rule("pliant::lstm")
def layer(trace: Any, x: Any, batch_sizes: Any, hx: list, params: list, biases: bool, both: bool) -> tuple:
    ways, batch, width = hx[0].sizes
    rows = x.sizes[0] if batch_sizes is not None else x.sizes[0] * x.sizes[1]
    made = [new(trace, (*x.sizes[:-1], width * ways), x.dtype, x.device)]
    made += [new(trace, (ways, batch, width), x.dtype, x.device) for _ in hx]
    return *made, new(trace, (rows * width * (ways * (GATES + 1)),), x.dtype, x.device)


@rule("pliant::lstm_backward")
def like_inputs(trace: Any, x: Any, batch_sizes: Any, hx: list, out: Any, kept: Any, params: list, *rest: Any) -> list:
    groups = zip(rest[-1], ([x], hx, params), strict=True)
    return [new(trace, t.sizes, t.dtype, t.device) for wanted, group in groups if wanted for t in group]


def counts_of(x: torch.Tensor, batch_sizes: torch.Tensor | None, batch: int) -> torch.Tensor | None:
    """The rows of each step for the kernels; None where they do not say what each row is. (A padded sequence: anything.)"""
    if batch_sizes is None:
        return x if x.shape[1] == batch else None
    counts = ORIGINAL.tolist(batch_sizes)
    fits = counts and counts[0] == batch and counts[-1] > 0 and sum(counts) == x.shape[0] and counts == sorted(counts, reverse=True)
    return ORIGINAL.contiguous(batch_sizes) if fits else None


def fits(x: torch.Tensor, hx: list, params: list, biases: bool, both: bool) -> bool:
    """Whether everything has the sizes that the kernels go by. (What has not, PyTorch refuses.)"""
    h, c = hx
    (ways, batch, width), inputs = h.shape, x.shape[-1]
    sizes = [(GATES * width, inputs), (GATES * width, width)] + ([(GATES * width,)] * 2 if biases else [])
    whole = ways == (2 if both else 1) and c.shape == h.shape and [p.shape for p in params] == sizes * ways
    return bool(whole and batch and width and ORIGINAL.numel(x)) and all([t.dtype is torch.float32 for t in (x, *hx, *params)])


def fits_back(x: torch.Tensor, hx: list, out: torch.Tensor, kept: torch.Tensor, grad_out: torch.Tensor | None, grad_last: list) -> bool:
    """Whether results, what was kept, and gradients are those of such a layer."""
    ways, _, width = hx[0].shape
    sizes: list[tuple] = [(out, (*x.shape[:-1], width * ways)), (kept, (x.shape[:-1].numel() * width * ways * (GATES + 1),))]
    sizes += [(grad_out, sizes[0][1]), *zip(grad_last, [h.shape for h in hx], strict=True)]
    return all([t is None or t.shape == n and t.dtype is torch.float32 for t, n in sizes]) and ORIGINAL.is_contiguous(kept)


def forward(
    x: torch.Tensor, batch_sizes: torch.Tensor | None, hx: list, params: list, biases: bool, both: bool
) -> tuple[torch.Tensor, ...]:
    """`pliant::lstm`."""
    run, fit = kernels(), fits(x, hx, params, biases, both)
    counts = counts_of(x, batch_sizes, hx[0].shape[1]) if run is not None and fit else None
    if run is None or counts is None:
        kept = ORIGINAL.new_empty(x, ORIGINAL.numel(x[..., 0]) * hx[0].shape[2] * hx[0].shape[0] * (GATES + 1))
        return (*by_pytorch(x, batch_sizes, hx, params, biases, both), kept)
    (h, c), x = [ORIGINAL.contiguous(s) for s in hx], ORIGINAL.contiguous(x)
    ways, batch, width = h.shape
    steps, inputs, each = x.shape[0] if batch_sizes is None else counts.shape[0], x.shape[-1], len(params) // ways
    rows = ORIGINAL.numel(x) // inputs
    out, last_h, last_c = [ORIGINAL.new_empty(x, size) for size in ((*x.shape[:-1], width * ways), h.shape, h.shape)]
    kept = ORIGINAL.new_empty(x, rows * width * ways * (GATES + 1))
    flags = (BIASES if biases else 0) | (PACKED if batch_sizes is not None else 0)
    for way in range(ways):
        w, u, *sums = [ORIGINAL.contiguous(p) for p in params[way * each : (way + 1) * each]]
        b, v = sums or (w, w)
        gates = kept[way * (GATES + 1) * rows * width :]
        of_way = (h, c, out, last_h, last_c)
        if way:
            of_way = (h[1], c[1], out[..., width:], last_h[1], last_c[1])
        hw, cw, ow, lh, lc = of_way
        run[0](
            x, counts, hw, cw, w, u, b, v, ow, lh, lc, gates, gates[GATES * rows * width :],
            steps, batch, rows, inputs, width, width * ways, flags | (REVERSE if way else 0),
        )  # fmt: skip
    return out, last_h, last_c, kept


def as_pytorch_s(x: Any, batch_sizes: Any, hx: Any, params: Any, biases: bool, both: bool) -> tuple[Any, tuple]:
    """PyTorch's operator for a layer, and its arguments; what ours keeps for a derivative is not among its results."""
    if batch_sizes is None:
        return aten.lstm.input, (x, hx, params, biases, 1, 0.0, False, both, False)
    return aten.lstm.data, (x, batch_sizes, hx, params, biases, 1, 0.0, False, both)


def by_pytorch(*layer: Any) -> tuple[torch.Tensor, ...]:
    op, args = as_pytorch_s(*layer)
    return op(*args)  # type: ignore[no-any-return]


def backward(
    x: torch.Tensor, batch_sizes: torch.Tensor | None, hx: list, out: torch.Tensor, kept: torch.Tensor, params: list, biases: bool,
    both: bool, grad_out: torch.Tensor | None, grad_last: list, wanted: list[bool],
) -> list[torch.Tensor]:  # fmt: skip
    """`pliant::lstm_backward`."""
    run, fit = kernels(), fits(x, hx, params, biases, both)
    fit = fit and fits_back(x, hx, out, kept, grad_out, grad_last)
    counts = counts_of(x, batch_sizes, hx[0].shape[1]) if run is not None and fit else None
    if run is None or counts is None:
        return recurrent_gradients.backward("lstm", x, batch_sizes, hx, out, params, biases, both, grad_out, grad_last, wanted)
    (h, c), x, out = [ORIGINAL.contiguous(s) for s in hx], ORIGINAL.contiguous(x), ORIGINAL.contiguous(out)
    ways, batch, width = h.shape
    steps, inputs, each = len(x) if batch_sizes is None else len(counts), x.shape[-1], len(params) // ways
    rows = ORIGINAL.numel(x) // inputs
    # The kernel adds to these what each step says.
    rows_first = torch.contiguous_format
    d_states = [ORIGINAL.new_zeros(x, h.shape) if g is None else ORIGINAL.clone(g, memory_format=rows_first) for g in grad_last]
    d_x = ORIGINAL.new_empty(x, x.shape) if wanted[0] else x
    d_params = [ORIGINAL.new_empty(x, p.shape) for p in params] if wanted[2] else params
    flags = (BIASES if biases else 0) | (PACKED if batch_sizes is not None else 0) | (WANT_X if wanted[0] else 0)
    flags |= (WANT_WEIGHTS if wanted[2] else 0) | (0 if grad_out is None else HAS_GRAD_OUT)
    given = out if grad_out is None else ORIGINAL.contiguous(grad_out)
    for way in range(ways):
        w, u = [ORIGINAL.contiguous(p) for p in params[way * each : way * each + 2]]
        d_w, d_u, *sums = d_params[way * each : (way + 1) * each]
        d_b, d_v = sums or (d_w, d_w)
        gates, side = kept[way * (GATES + 1) * rows * width :], width * way
        run[1](
            x, counts, h[way], c[way], w, u, out[..., side:], gates, gates[GATES * rows * width :], given[..., side:],
            d_states[0][way], d_states[1][way], d_x, d_w, d_u, d_b, d_v,
            steps, batch, rows, inputs, width, width * ways, width * ways, flags | (REVERSE | ADD_X if way else 0),
        )  # fmt: skip
    groups = zip(wanted, ([d_x], d_states, d_params), strict=True)
    return [g for needed, group in groups if needed for g in group]


def padded(
    x: torch.Tensor, hx: list, params: list, biases: bool, count: int, dropout: float, train: bool, both: bool, batch_first: bool
) -> tuple[torch.Tensor, ...]:
    """`aten::lstm.input` without gradients: oneDNN's where it is as fast."""
    if kernels() is not None and not (dropout and train) and ORIGINAL.dim(x) == 3 and x.shape[0 if batch_first else 1] <= FEW:
        found = layers(ORIGINAL.transpose(x, 0, 1) if batch_first else x, None, hx, params, biases, count, both)
        if found is not None:
            return (found[0].transpose(0, 1) if batch_first else found[0], *found[1:])
    return aten.lstm.input(x, hx, params, biases, count, dropout, train, both, batch_first)  # type: ignore[no-any-return]


def packed(
    x: torch.Tensor, batch_sizes: torch.Tensor, hx: list, params: list, biases: bool, count: int, dropout: float, train: bool, both: bool
) -> tuple[torch.Tensor, ...]:
    """`aten::lstm.data` without gradients."""
    if kernels() is not None and not (dropout and train) and ORIGINAL.dim(x) == 2:
        found = layers(x, batch_sizes, hx, params, biases, count, both)
        if found is not None:
            return found
    return aten.lstm.data(x, batch_sizes, hx, params, biases, count, dropout, train, both)  # type: ignore[no-any-return]


def layers(
    x: torch.Tensor, batch_sizes: torch.Tensor | None, hx: list, params: list, biases: bool, count: int, both: bool
) -> tuple[torch.Tensor, ...] | None:
    """All layers by our kernels; None for what they do not take."""
    ways = 2 if both else 1
    each = (4 if biases else 2) * ways
    if count < 1 or len(params) != each * count or len(hx) != 2 or any([ORIGINAL.dim(s) != 3 or len(s) != ways * count for s in hx]):
        return None
    if not fits(x, [s[:ways] for s in hx], params[:each], biases, both):
        return None
    ends = []
    for at in range(count):
        states, weights = [s[at * ways : (at + 1) * ways] for s in hx], params[at * each : (at + 1) * each]
        x, *last, _ = forward(x, batch_sizes, states, weights, biases, both)
        ends.append(last)
    h, c = ends[0] if count == 1 else map(torch.cat, zip(*ends, strict=True))
    return x, h, c


LIBRARY.impl("lstm", forward, "CPU")
LIBRARY.impl("lstm_backward", backward, "CPU")
LIBRARY.impl("lstm_padded", padded, "CPU")
LIBRARY.impl("lstm_packed", packed, "CPU")
