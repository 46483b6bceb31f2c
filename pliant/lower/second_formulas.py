"""Gradients put together from operators that can be differentiated at any size, for nodes whose own second derivatives cannot.

PyTorch's C++ code for the second derivative of a norm or a convolution asks for sizes as plain numbers, or compares strides. Where that
would pin one, a hook on such a node gives the same first gradients by a formula instead, and the engine differentiates that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from pliant.graph.originals import ORIGINAL, torch

aten = torch.ops.aten
WHOLE = (torch.float32, torch.float64)
Formula = Callable[[Any, Any], Sequence[Any]]


def signed(dim: int) -> int:
    """A dim as it was given: nodes tell -1 as an unsigned number."""
    return dim - 2**64 if dim >= 2**63 else dim


def sides(x: Any, dim: int) -> list[int]:
    """All dims but one."""
    return [d for d in range(ORIGINAL.dim(x)) if d != dim]


def batch_norm(node: Any, g: Any) -> Sequence[Any]:
    x, w = node._saved_input, node._saved_weight
    dims, shape = sides(x, 1), [1, -1] + [1] * (ORIGINAL.dim(x) - 2)
    if node._saved_training:
        centred = x - ORIGINAL.mean(x, dims, keepdim=True)
        scale = ORIGINAL.rsqrt(ORIGINAL.mean(ORIGINAL.pow(centred, 2), dims, keepdim=True) + node._saved_eps)
    else:
        centred = x - ORIGINAL.view(node._saved_running_mean, shape)
        scale = ORIGINAL.rsqrt(ORIGINAL.view(node._saved_running_var, shape) + node._saved_eps)
    normed = centred * scale
    weighted = g if w is None else g * ORIGINAL.view(w, shape)
    if node._saved_training:
        own = weighted - ORIGINAL.mean(weighted, dims, keepdim=True) - normed * ORIGINAL.mean(weighted * normed, dims, keepdim=True)
    else:
        own = weighted
    return own * scale, ORIGINAL.sum(g * normed, dims), ORIGINAL.sum(g, dims)


def group_norm(node: Any, g: Any) -> Sequence[Any]:
    x, w, shape = node._saved_input, node._saved_weight, [1, -1] + [1] * (ORIGINAL.dim(node._saved_input) - 2)
    grouped = ORIGINAL.reshape(x, x.shape[0], node._saved_group, -1)
    centred = grouped - ORIGINAL.mean(grouped, 2, keepdim=True)
    scale = ORIGINAL.rsqrt(ORIGINAL.mean(ORIGINAL.pow(centred, 2), 2, keepdim=True) + node._saved_eps)
    normed = centred * scale
    weighted = ORIGINAL.reshape(g if w is None else g * ORIGINAL.view(w, shape), normed.shape)
    own = (weighted - ORIGINAL.mean(weighted, 2, keepdim=True) - normed * ORIGINAL.mean(weighted * normed, 2, keepdim=True)) * scale
    dims = sides(x, 1)
    return ORIGINAL.reshape(own, x.shape), ORIGINAL.sum(g * ORIGINAL.reshape(normed, x.shape), dims), ORIGINAL.sum(g, dims)


def convolution(node: Any, g: Any) -> Sequence[Any]:
    """A convolution slides over `slid` and gives `fixed`; a transposed one the other way round. Padding is spelled out, and what no window
    reaches cut off, so that all sizes follow from those of operands."""
    x, w, groups, transposed = node._saved_input, node._saved_weight, node._saved_groups, node._saved_transposed
    stride, padding, dilation = map(list, (node._saved_stride, node._saved_padding, node._saved_dilation))
    none, dims = [0] * (ORIGINAL.dim(x) - 2), range(ORIGINAL.dim(x) - 2)
    arrives = row_major(g)
    if transposed:
        own = aten.convolution.default(arrives, w, None, stride, padding, dilation, False, none, groups)
    else:
        own = aten.convolution.default(arrives, w, None, stride, none, dilation, True, none, groups)
        own = padded(own, none, [s - 1 for s in stride])
        for i in dims:
            own = ORIGINAL.narrow(own, 2 + i, padding[i], x.shape[2 + i])
    slid, fixed = [row_major(t) for t in ((g, x) if transposed else (x, g))]
    slid = padded(slid, padding, padding)
    for i in dims:
        slid = ORIGINAL.narrow(slid, 2 + i, 0, (fixed.shape[2 + i] - 1) * stride[i] + dilation[i] * (w.shape[2 + i] - 1) + 1)
    pairs = zip(ORIGINAL.chunk(slid, groups, 1), ORIGINAL.chunk(fixed, groups, 1), strict=True) if groups > 1 else [(slid, fixed)]
    parts = []
    for pair in pairs:
        turned = [ORIGINAL.transpose(t, 0, 1) for t in pair]
        a, b = [aten.clone.default(t, memory_format=torch.contiguous_format) for t in turned]  # asks nothing of strides
        parts.append(aten.convolution.default(a, b, None, dilation, none, stride, False, none, 1).transpose(0, 1))
    return own, parts[0] if groups == 1 else torch.cat(parts), ORIGINAL.sum(row_major(g), sides(g, 1))


def row_major(x: Any) -> Any:
    """The tensor; its gradient is laid out row by row, and adding others to it asks nothing of their strides."""
    return ORIGINAL.narrow(x, 0, 0, x.shape[0])


def padded(x: Any, before: list[int], behind: list[int]) -> Any:
    """With so many zeros at both ends of the last dims."""
    pads = [n for pair in reversed([*zip(before, behind, strict=True)]) for n in pair]
    return aten.constant_pad_nd.default(x, pads) if any(pads) else x


def glu(node: Any, g: Any) -> Sequence[Any]:
    x, dim = node._saved_self, signed(node._saved_dim)
    half = x.shape[dim] // 2
    a, gate = ORIGINAL.narrow(x, dim, 0, half), ORIGINAL.sigmoid(ORIGINAL.narrow(x, dim, half, half))
    return (torch.cat([g * gate, g * (a * gate * (1 - gate))], dim),)


def weight_norm(node: Any, g: Any) -> Sequence[Any]:
    v, scale, dim = node._saved_v, node._saved_g, signed(node._saved_dim)
    dims = sides(v, dim) if dim >= 0 else list(range(ORIGINAL.dim(v)))
    norm = ORIGINAL.sqrt(ORIGINAL.sum(ORIGINAL.pow(v, 2), dims, keepdim=True))
    along = ORIGINAL.sum(g * v, dims, keepdim=True) / norm
    return (g - v * (along / norm)) * (scale / norm), ORIGINAL.reshape(along, scale.shape)


def embedding(node: Any, g: Any) -> Sequence[Any]:
    at, padding = node._saved_indices, node._saved_padding_idx
    padding = padding if type(padding) is not int else signed(padding)
    if node._saved_scale_grad_by_freq or type(padding) is not int:
        return (None,)
    kept = g if padding < 0 else ORIGINAL.masked_fill(g, ORIGINAL.unsqueeze(aten.eq.Scalar(at, padding), -1), 0)
    rows, width = node._saved_weight_sym_argsize_0, g.shape[-1]
    return (ORIGINAL.index_add(ORIGINAL.new_zeros(g, rows, width), 0, ORIGINAL.reshape(at, -1), ORIGINAL.reshape(kept, -1, width)),)


FORMULAS: dict[str, Formula] = {
    "NativeGroupNormBackward0": group_norm,
    "NativeBatchNormBackward0": batch_norm,
    "NativeBatchNormLegitBackward0": batch_norm,
    "ConvolutionBackward0": convolution,
    "EmbeddingBackward0": embedding,
    "GluBackward0": glu,
    "WeightNormInterfaceBackward0": weight_norm,
}


def stands(formula: Formula, node: Any) -> Callable[[Sequence[Any], Sequence[Any]], Any]:
    def hook(found: Sequence[Any], given: Sequence[Any]) -> Any:
        if given[0] is None or given[0].dtype not in WHOLE:
            return None
        made = [*formula(node, given[0]), *[None] * len(found)]
        return tuple([f if f is None or m is None else m for f, m in zip(found, made)])

    return hook


@contextlib.contextmanager
def decomposed(nodes: Iterable[Any]) -> Iterator[None]:
    """Inside, these nodes' gradients come by formulas, where there is one."""
    handles = [node.register_hook(stands(FORMULAS[node.name()], node)) for node in nodes if node.name() in FORMULAS]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
