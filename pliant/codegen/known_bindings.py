"""Calls whose first spelling (`fastops.py`) is known to be right in the PyTorch named below, so that nobody has to try it.

A row: the overload, without `aten.` and `.default`, and the arguments for which that was seen. T: a tensor with dims, t: one without; i, f,
b, s: a number, symbolic or not, or a string; -: None; d: a dtype, D: a device; lists are in brackets, with their length up to two.
`tests/codegen/test_fastops.py` tries every row.
"""

from __future__ import annotations

from typing import Any

import torch

from pliant.graph.originals import ORIGINAL

TORCH = "2.13."

ROWS = {
    "_local_scalar_dense": "t",
    "_log_softmax": "T i b",
    "_log_softmax_backward_data": "T T i d",
    "_safe_softmax": "T i",
    "_scaled_dot_product_flash_attention_for_cpu": "T T T | T T T attn_mask=T scale=f | T T T f b scale=f | T T T scale=f",
    "_softmax": "T i b",
    "_softmax_backward_data": "T T i d",
    "_to_copy": "T dtype=d | T dtype=d device=D",
    "_unique2": "T b b b",
    "abs": "T",
    "add.Tensor": "T T | T f | T i | t T",
    "add_.Tensor": "T T",
    "addmm": "T T T",
    "all": "T",
    "amax": "T [i]1 | T [i]1 b",
    "any": "T",
    "arange": "i device=D pin_memory=b | i dtype=d device=D pin_memory=b",
    "argmax": "T | T i | T i b",
    "bitwise_and.Tensor": "T T | t T",
    "bitwise_not": "T",
    "bitwise_or.Tensor": "T T",
    "bmm": "T T",
    "cat": "[T]2 i",
    "clamp": "T - i | T f | T f f | T i",
    "clamp_min": "T f | T i",
    "clone": "T | T memory_format=torch.contiguous_format",
    "constant_pad_nd": "T [i]2 | T [i]2 f | T [i]2 i",
    "convolution": "T T - [i]2 [i]2 [i]2 b [i]2 i | T T T [i]2 [i]2 [i]2 b [i]2 i",
    "copy_": "T T",
    "cos": "T",
    "cumsum": "T i",
    "div.Tensor": "T T | T f | T i",
    "embedding": "T T | T T i",
    "eq.Scalar": "T f | T i",
    "eq.Tensor": "T T",
    "erf": "T",
    "exp": "T",
    "expand": "T [i]2",
    "fill_.Tensor": "T t",
    "flip": "T [i]1",
    "full": "[i]2 f device=D pin_memory=b",
    "full_like": "T i pin_memory=b",
    "gather": "T i T",
    "ge.Scalar": "T f | T i",
    "ge.Tensor": "T T",
    "gelu": "T | T approximate=s",
    "gt.Scalar": "T f | T i",
    "gt.Tensor": "T T",
    "index.Tensor": "T [T]1",
    "index_add": "T i T T",
    "index_add_": "T i T T",
    "le.Scalar": "T f | T i",
    "le.Tensor": "T T",
    "leaky_relu": "T f",
    "linalg_vector_norm": "T f [i]1 b | T i [i]1 b",
    "linear": "T T | T T T",
    "log": "T",
    "logical_and": "T T",
    "logical_not": "T",
    "lt.Scalar": "T f | T i | t i",
    "lt.Tensor": "T T",
    "masked_fill.Scalar": "T T f | T T i",
    "masked_fill_.Scalar": "T T i",
    "max": "T",
    "max.dim": "T i | T i b",
    "max_pool2d_with_indices": "T [i]2 [i]2 [i]2",
    "maximum": "T T",
    "mean": "T",
    "mean.dim": "T [i]1 | T [i]1 b | T [i]2 b",
    "minimum": "T T",
    "mm": "T T",
    "mul.Tensor": "T T | T f | T i | t i",
    "native_batch_norm": "T T T T T b f f",
    "native_group_norm": "T T T i i i i f",
    "native_layer_norm": "T [i]1 - - f | T [i]1 T T f",
    "ne.Scalar": "T f | T i",
    "ne.Tensor": "T T",
    "neg": "T",
    "new_ones": "T []0 dtype=d pin_memory=b",
    "new_zeros": "T [i]2 pin_memory=b",
    "nonzero": "T",
    "ones": "[]0 device=D pin_memory=b | [i]2 device=D pin_memory=b",
    "permute": "T [i]2",
    "pow.Tensor_Scalar": "T f | T i",
    "prod.dim_int": "T i",
    "reciprocal": "T",
    "relu": "T",
    "repeat": "T [i]2",
    "rsqrt": "T",
    "scalar_tensor": "f dtype=d device=D | f dtype=d layout=torch.strided device=D | i dtype=d device=D",
    "scatter_add": "T i T T",
    "scatter_reduce.two": "T i T T s",
    "select.int": "T i i",
    "sigmoid": "T",
    "silu": "T",
    "sin": "T",
    "slice.Tensor": "T i i i",
    "softplus": "T",
    "sort": "T i b",
    "split.Tensor": "T i i",
    "split_with_sizes": "T [i]2",
    "sqrt": "T",
    "squeeze.dim": "T i",
    "stack": "[T]2 | [t]2",
    "sub.Tensor": "T T | T f | T i",
    "sum": "T",
    "sum.dim_IntList": "T [i]1 | T [i]1 b | T [i]2 b",
    "t": "T",
    "tanh": "T",
    "topk": "T i",
    "transpose.int": "T i i",
    "tril": "T | T i",
    "triu": "T i",
    "unbind.int": "T | T i",
    "unsqueeze": "T i",
    "view": "T [i]1 | T [i]2",
    "where.self": "T T T | T T t | T t t",
    "zeros": "[i]1 device=D pin_memory=b | [i]2 device=D pin_memory=b | [i]2 dtype=d device=D pin_memory=b",
    "zeros_like": "T pin_memory=b",
}

KNOWN = {name: frozenset(row.split(" | ")) for name, row in ROWS.items()} if torch.__version__.startswith(TORCH) else {}
LETTERS: dict[type, str] = {
    bool: "b", torch.SymBool: "b", int: "i", torch.SymInt: "i", float: "f", torch.SymFloat: "f", str: "s", type(None): "-",
    torch.dtype: "d", torch.device: "D",
}  # fmt: skip


def letter(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return "T" if ORIGINAL.dim(value) else "t"
    if isinstance(value, (list, tuple)):
        return f"[{''.join(dict.fromkeys(map(letter, value)))}]{min(len(value), 2)}"
    return LETTERS.get(type(value)) or str(value)


def is_known(target: Any, args: list, kwargs: dict) -> bool:
    """Whether the first candidate for this call needs no trying."""
    rows = KNOWN.get(str(target).removeprefix("aten.").removesuffix(".default"))
    return rows is not None and " ".join([*map(letter, args), *[f"{k}={letter(v)}" for k, v in kwargs.items()]]) in rows
