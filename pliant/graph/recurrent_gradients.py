"""The derivative of a layer of a recurrent network as one operation of any length: `pliant::recurrent_backward`.

PyTorch differentiates LSTM, GRU and plain networks step by step, so its tape has the length of the sequence in it. Here a layer (both of
its directions) is one node: what the gates were is computed again from the results of the layer, for all steps at once, and only what
depends on the next step's gradient is done step by step.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, gradients, torch
from pliant.graph.rules.shape import new
from pliant.graph.rules.table import rule

LIBRARY = torch.library.Library("pliant", "FRAGMENT")
LIBRARY.define(
    "recurrent_backward(str kind, Tensor x, Tensor? batch_sizes, Tensor[] hx, Tensor out, Tensor[] params, bool biases, bool both, "
    "Tensor? grad_out, Tensor?[] grad_last, bool[3] wanted) -> Tensor[]"
)
LIBRARY.define("packed_rows(Tensor x, Tensor batch_sizes, SymInt rows, bool batch_first) -> Tensor")
LIBRARY.define("unpacked_rows(Tensor x, Tensor batch_sizes, SymInt[] sizes, bool batch_first) -> Tensor")
LIBRARY.define(
    "onednn_lstm(Tensor x, Tensor w, Tensor u, Tensor b, Tensor v, Tensor h, Tensor c, bool reverse, int width, int count, bool biases, "
    "bool both, bool batch_first, bool train) -> (Tensor, Tensor, Tensor, Tensor)"
)
ONEDNN = torch.ops.pliant.onednn_lstm.default
"""`aten::mkldnn_rnn_layer` of an LSTM, with what its derivative needs as the last result, whatever the grad mode."""
BACKWARD = torch.ops.pliant.recurrent_backward.default
"""The gradients of `x`, of the states `hx` and of `params` (as far as `wanted`), each laid out row by row."""
PACKED_ROWS = torch.ops.pliant.packed_rows.default
"""The `rows` rows of a padded sequence that a packed one has."""
UNPACKED_ROWS = torch.ops.pliant.unpacked_rows.default
"""The rows of a packed sequence where they stand in a padded one of these sizes, with zeros beside."""


@rule("pliant::recurrent_backward")
def like_inputs(trace: Any, kind: str, x: Any, batch_sizes: Any, hx: list, out: Any, params: list, *rest: Any) -> list:
    groups = zip(rest[-1], ([x], hx, params), strict=True)
    return [new(trace, t.sizes, t.dtype, t.device) for wanted, group in groups if wanted for t in group]


class Steps:
    """Where the rows of each step of a packed sequence stand, and the order in which one direction takes the steps."""

    def __init__(self, counts: list[int], backwards: bool) -> None:
        starts = [0]
        for n in counts:
            starts.append(starts[-1] + n)
        order = list(range(len(counts)))
        self.order = order[::-1] if backwards else order
        self.counts, self.starts, self.backwards = counts, starts, backwards

    def cut(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """The rows of each step."""
        return x.split(self.counts)  # type: ignore[no-any-return, no-untyped-call]

    def heads(self, x: torch.Tensor) -> list[torch.Tensor]:
        """The rows of a state that take part in each step."""
        found = {n: x[:n] for n in set(self.counts)}
        return [found[n] for n in self.counts]

    def previous(self, out: torch.Tensor, first: torch.Tensor) -> torch.Tensor:
        """What each row's step began with: the result of the step before, or the state at the beginning."""
        pieces = []
        for i in range(len(self.counts)):  # in the order of the rows
            n, before = self.counts[i], i + 1 if self.backwards else i - 1
            there = min(n, self.counts[before]) if 0 <= before < len(self.counts) else 0
            if there:
                pieces.append(out[self.starts[before] : self.starts[before] + there])
            if there < n:
                pieces.append(first[there:n])
        return torch.cat(pieces) if pieces else out


def lstm(x: Any, steps: Steps, hx: list, out: Any, params: list, grads: list) -> tuple:
    """Gates i, f, g, o; c' = f c + i g; h' = o tanh(c'), which a last parameter may project."""
    w, u, b, v, p = params
    h0, c0 = hx
    width = c0.shape[1]
    before = steps.previous(out, h0)
    gates = both_products(x, w, b, before, u, v)
    gates[:, : 2 * width].sigmoid_()
    gates[:, 2 * width : 3 * width].tanh_()
    gates[:, 3 * width :].sigmoid_()
    i, f, g, o = gates.split(width, 1)
    c_before, c_after, c = torch.empty_like(i), i * g, ORIGINAL.clone(c0)
    state, kept, new, forget = steps.heads(c), steps.cut(c_before), steps.cut(c_after), steps.cut(f)
    for at in steps.order:
        ORIGINAL.copy_(kept[at], state[at])
        ORIGINAL.copy_(state[at], ORIGINAL.addcmul_(new[at], state[at], forget[at]))
    t = c_after.tanh()
    to_c = steps.cut(o * (1 - t * t))
    of_c = steps.cut(torch.stack([g * i * (1 - i), c_before * f * (1 - f), i * (1 - g * g)], 1))
    of_h = steps.cut(t * o * (1 - o))
    d_gates = torch.empty_like(gates)
    d_steps, d_c, d_h = steps.cut(d_gates), steps.cut(ORIGINAL.view(d_gates, -1, 4, width)[:, :3]), steps.cut(d_gates[:, 3 * width :])
    d_out = steps.cut(grads[0] if p is None else ORIGINAL.clone(grads[0]))
    last_h, last_c = ORIGINAL.clone(grads[1]), ORIGINAL.clone(grads[2])
    rest_h, rest_c = steps.heads(last_h), steps.heads(last_c)
    for at in reversed(steps.order):
        if p is None:
            dh = rest_h[at] + d_out[at]
        else:
            dh = ORIGINAL.add_(d_out[at], rest_h[at]) @ p
        dc = torch.addcmul(rest_c[at], dh, to_c[at])
        torch.mul(ORIGINAL.unsqueeze(dc, 1), of_c[at], out=d_c[at])
        torch.mul(dh, of_h[at], out=d_h[at])
        torch.mm(d_steps[at], u, out=rest_h[at])
        torch.mul(dc, forget[at], out=rest_c[at])
    of_x, weights = of_products(d_gates, d_gates, x, w, before, b is not None)
    if p is not None:
        weights.append(ORIGINAL.t(torch.cat(d_out)) @ (o * t))
    return of_x, [last_h, last_c], weights


def gru(x: Any, steps: Steps, hx: list, out: Any, params: list, grads: list) -> tuple:
    """Gates r, z, n = tanh(W x + r (U h)); h' = (1 - z) n + z h."""
    w, u, b, v, _ = params
    before = steps.previous(out, hx[0])
    width = before.shape[1]
    of_x = torch.addmm(b, x, ORIGINAL.t(w)) if b is not None else x @ ORIGINAL.t(w)
    of_before = torch.addmm(v, before, ORIGINAL.t(u)) if v is not None else before @ ORIGINAL.t(u)
    r, z = (of_x[:, : 2 * width] + of_before[:, : 2 * width]).sigmoid_().split(width, 1)
    n_of_before = of_before[:, 2 * width :]
    n = torch.addcmul(of_x[:, 2 * width :], r, n_of_before).tanh_()
    of_n = (1 - z) * (1 - n * n)
    of_h = steps.cut(torch.stack([of_n * n_of_before * r * (1 - r), (before - n) * z * (1 - z), of_n * r], 1))
    d_before, d_rows, last = torch.empty_like(of_x), torch.empty_like(out), ORIGINAL.clone(grads[1])
    gates, gates3, rows = steps.cut(d_before), steps.cut(ORIGINAL.view(d_before, -1, 3, width)), steps.cut(d_rows)
    d_out, rest, keep = steps.cut(grads[0]), steps.heads(last), steps.cut(z)
    for at in reversed(steps.order):
        dh = torch.add(rest[at], d_out[at], out=rows[at])
        torch.mul(ORIGINAL.unsqueeze(dh, 1), of_h[at], out=gates3[at])
        torch.mul(dh, keep[at], out=rest[at])
        rest[at].addmm_(gates[at], u)
    d_x = torch.cat([d_before[:, : 2 * width], d_rows * of_n], 1)
    found, weights = of_products(d_x, d_before, x, w, before, b is not None)
    return found, [last], weights


def plain(derivative: Any) -> Any:
    """h' = f(W x + U h): `derivative` puts into `out` what a gradient of h' is for what f is given, as it tells of h'."""

    def run(x: Any, steps: Steps, hx: list, out: Any, params: list, grads: list) -> tuple:
        w, u, b, _, _ = params
        before, made = steps.previous(out, hx[0]), steps.cut(out)
        d_rows, last = torch.empty_like(out), ORIGINAL.clone(grads[1])
        rows, d_out, rest = steps.cut(d_rows), steps.cut(grads[0]), steps.heads(last)
        for at in reversed(steps.order):
            derivative(rest[at] + d_out[at], made[at], rows[at])
            torch.mm(rows[at], u, out=rest[at])
        found, weights = of_products(d_rows, d_rows, x, w, before, b is not None)
        return found, [last], weights

    return run


def both_products(x: Any, w: Any, b: Any, h: Any, u: Any, v: Any) -> torch.Tensor:
    out = x @ ORIGINAL.t(w) if b is None else torch.addmm(b, x, ORIGINAL.t(w))
    out.addmm_(h, ORIGINAL.t(u))
    return out if v is None else ORIGINAL.add_(out, v)


def of_products(d_x: Any, d_h: Any, x: Any, w: Any, h: Any, biases: bool) -> tuple:
    """The gradient of `x`, and those of the weights and biases of `x w + b` and `h u + v`."""
    sums = [ORIGINAL.sum(d_x, 0), ORIGINAL.sum(d_h, 0)] if biases else []
    return d_x @ w, [ORIGINAL.t(d_x) @ x, ORIGINAL.t(d_h) @ h, *sums]


KINDS = {
    "lstm": lstm, "gru": gru, "rnn_tanh": plain(lambda g, h, out: torch.mul(g, 1 - h * h, out=out)),
    "rnn_relu": plain(lambda g, h, out: torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=out)),
}  # fmt: skip


def backward(
    kind: str, x: Any, batch_sizes: Any, hx: list, out: Any, params: list, biases: bool, both: bool, grad_out: Any, grad_last: list,
    wanted: list[bool],
) -> list[torch.Tensor]:  # fmt: skip
    """`pliant::recurrent_backward`. Numbers of 16 bits are computed in float32."""
    inner = torch.float32 if x.dtype in (torch.bfloat16, torch.float16) else x.dtype
    counts = [x.shape[1]] * x.shape[0] if batch_sizes is None else ORIGINAL.tolist(batch_sizes)
    rows, ways, each = ORIGINAL.flatten(ORIGINAL.to(x, inner), 0, -2), 2 if both else 1, len(params) // (2 if both else 1)
    states = [ORIGINAL.to(h, inner) for h in hx]
    results = ORIGINAL.flatten(ORIGINAL.to(out, inner), 0, -2).chunk(ways, 1)
    given = [None] * ways if grad_out is None else ORIGINAL.flatten(ORIGINAL.to(grad_out, inner), 0, -2).chunk(ways, 1)
    d_x, d_states, d_params = torch.zeros_like(rows), [torch.empty_like(h) for h in states], []
    for way in range(ways):
        w, u, *others = [ORIGINAL.to(p, inner) for p in params[way * each : (way + 1) * each]]
        b, v = others[:2] if biases else (None, None)
        p = others[-1] if len(others) % 2 else None
        ours = ORIGINAL.contiguous(results[way])
        grads = [torch.zeros_like(ours) if given[way] is None else given[way]]
        grads += [torch.zeros_like(h[way]) if g is None else ORIGINAL.to(g[way], inner) for h, g in zip(states, grad_last, strict=True)]
        own, last, weights = KINDS[kind](rows, Steps(counts, way == 1), [h[way] for h in states], ours, [w, u, b, v, p], grads)
        d_x += own
        for d, g in zip(d_states, last, strict=True):
            d[way] = g
        d_params += weights
    groups = zip(wanted, ([ORIGINAL.view(d_x, x.shape)], d_states, d_params), strict=True)
    return [ORIGINAL.contiguous(ORIGINAL.to(g, x.dtype)) for needed, group in groups if needed for g in group]


def packed_rows(x: torch.Tensor, batch_sizes: torch.Tensor, rows: int, batch_first: bool) -> torch.Tensor:
    x = ORIGINAL.transpose(x, 0, 1) if batch_first else x
    return torch.cat([x[step, :n] for step, n in enumerate(ORIGINAL.tolist(batch_sizes))])


def unpacked_rows(x: torch.Tensor, batch_sizes: torch.Tensor, sizes: list[int], batch_first: bool) -> torch.Tensor:
    out = ORIGINAL.new_zeros(x, (sizes[1], sizes[0], *sizes[2:]) if batch_first else sizes)
    counts = ORIGINAL.tolist(batch_sizes)
    for step, rows in enumerate(x.split(counts)):
        out[step, : counts[step]] = rows
    return ORIGINAL.transpose(out, 0, 1) if batch_first else out


def as_library_s(x: Any, w: Any, u: Any, b: Any, v: Any, h: Any, c: Any, reverse: bool, *options: Any) -> tuple[Any, tuple]:
    """PyTorch's operator for `ONEDNN`, which has a derivative, and its arguments."""
    return torch.ops.aten.mkldnn_rnn_layer.default, (x, w, u, b, v, h, c, reverse, [], 2, *options)


def onednn_lstm(*layer: Any) -> Any:
    op, args = as_library_s(*layer)
    with gradients(True), torch._C._AutoDispatchBelowAutograd():
        return op(*args)


LIBRARY.impl("onednn_lstm", onednn_lstm, "CPU")
LIBRARY.impl("packed_rows", packed_rows, "CPU")
LIBRARY.impl("unpacked_rows", unpacked_rows, "CPU")
LIBRARY.impl("recurrent_backward", backward, "CPU")
