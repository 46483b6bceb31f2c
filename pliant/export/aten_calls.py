"""The form "torch" as calls of ATen's composite operators: the graph that PyTorch's graph-mode quantization (torchao's PT2E) starts from.

`torch.conv2d(x, w)` becomes `aten.conv2d.default(x, w)`, a method likewise; functions of `torch.nn.functional` that are written in Python
and that quantizers look for are decomposed into the operators that they come to (`DECOMPOSITIONS`). Any other call stays as it is.
Nodes have fake tensors in `meta["val"]`, of the example's sizes, and their function in `meta["source_fn_stack"]`, which quantizers read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

from pliant.graph.traced import TracedTensor
from pliant.lower import liveness

aten = torch.ops.aten


def batch_norm(
    x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5
) -> Any:
    return aten.batch_norm.default, (x, weight, bias, mean, var, training, momentum, eps, torch.backends.cudnn.enabled)


def relu(x: Any, inplace: bool = False) -> Any:
    return (aten.relu_ if inplace else aten.relu).default, (x,)


def dropout(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    return (aten.dropout_ if inplace else aten.dropout).default, (x, p, training)


def max_pool2d(
    x: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False
) -> Any:
    pairs = [
        [v, v] if isinstance(v, int) else list(v or ())
        for v in (kernel_size, stride if stride is not None else kernel_size, padding, dilation)
    ]
    return None if return_indices else (aten.max_pool2d.default, (x, *pairs, ceil_mode))


def adaptive_avg_pool2d(x: Any, output_size: Any) -> Any:
    sizes = [output_size] * 2 if isinstance(output_size, int) else list(output_size)
    return None if None in sizes else (aten.adaptive_avg_pool2d.default, (x, sizes))


def softmax(x: Any, dim: int | None = None, _stacklevel: int = 3, dtype: Any = None) -> Any:
    return None if dim is None else (aten.softmax.int, (x, dim, dtype))


def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Any:
    return aten.layer_norm.default, (x, list(shape), weight, bias, eps, torch.backends.cudnn.enabled)


def hardtanh(x: Any, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False) -> Any:
    return (aten.hardtanh_ if inplace else aten.hardtanh).default, (x, min_val, max_val)


def unary(name: str) -> Callable[..., Any]:
    def decomposed(x: Any, inplace: bool = False) -> Any:
        return getattr(aten, f"{name}_" if inplace else name).default, (x,)

    return decomposed


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    F.batch_norm: batch_norm, F.relu: relu, F.dropout: dropout, F.max_pool2d: max_pool2d, F.adaptive_avg_pool2d: adaptive_avg_pool2d,
    F.softmax: softmax, F.layer_norm: layer_norm, F.hardtanh: hardtanh,
    F.relu6: lambda x, inplace=False: ((aten.relu6_ if inplace else aten.relu6).default, (x,)),
    F.hardswish: unary("hardswish"), F.hardsigmoid: unary("hardsigmoid"), F.silu: unary("silu"), F.mish: unary("mish"),
    torch.flatten: lambda x, start_dim=0, end_dim=-1: (aten.flatten.using_ints, (x, start_dim, end_dim)),
}  # fmt: skip
"""Functions written in Python: from their arguments to (operator, arguments), or None where the operator is not the whole of them."""


NUMBERS = ("_operator", "math", "builtins")
"""Modules of functions that sizes are computed with."""


def aten_calls(module: fx.GraphModule) -> fx.GraphModule:
    """A copy of the module, which shares its parameters, with ATen's operators in place of calls of the torch API."""
    graph = fx.Graph()
    env: dict[fx.Node, fx.Node] = {}
    mode = FakeTensorMode()
    for node in module.graph.nodes:
        new = env[node] = graph.node_copy(node, lambda n: env[n])
        found = decomposed(node)
        if found is not None:
            new.op, new.target = "call_function", found[0]
            new.args, new.kwargs = fx.map_arg((found[1], found[2]), lambda n: env[n])  # type: ignore[assignment]
        if node.op in ("call_function", "call_method"):
            source = node.target if node.op == "call_function" else getattr(torch.Tensor, str(node.target), node.target)
            new.meta["source_fn_stack"] = [(node.name, source)]
        new.meta["val"] = pytree.tree_map(lambda v: fake(mode, v), node.meta.get("val"))
        if node.op == "get_attr":
            new.meta["val"] = fake(mode, attribute_of(module, str(node.target)))
    made = fx.GraphModule(module, graph, type(module).__name__)
    made.meta.update(module.meta)
    return made


def decomposed(node: fx.Node) -> tuple[Any, tuple, dict] | None:
    """The operator that a node calls, and its arguments (nodes among them); None if it is not one."""
    if node.op == "call_function":
        row = DECOMPOSITIONS.get(node.target)
        if row is not None:
            found = row(*node.args, **node.kwargs)
            return None if found is None else (*found, {})
    elif node.op != "call_method":
        return None
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if isinstance(node.target, torch._ops.OpOverload) or not (
        node.op == "call_method" or type(node.target).__name__ == "builtin_function_or_method"
    ):
        return None
    packet = getattr(aten, name, None)
    if packet is None or getattr(node.target, "__module__", None) in NUMBERS or name in ("size", "stride", "dim"):
        return None
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda n: n.meta.get("val"))
    try:
        overload = torch._C._jit_resolve_packet(f"aten::{name}", *args, **kwargs)
    except RuntimeError:
        return None
    return getattr(packet, overload or "default"), node.args, dict(node.kwargs)


def attribute_of(module: Any, name: str) -> Any:
    for word in name.split("."):
        module = getattr(module, word)
    return module


def fake(mode: Any, v: Any) -> Any:
    """A fake tensor like this one, of the example's sizes; a number of the example."""
    if type(v) is TracedTensor:
        sizes = [hint(s) for s in v.sizes]
        with mode:
            return torch.empty(sizes, dtype=v.dtype, device=v.device)
    if isinstance(v, torch.Tensor):
        return mode.from_tensor(v.detach(), static_shapes=True)
    e = liveness.number(v)
    return v if e is None else hint(v)


def hint(s: Any) -> Any:
    e = liveness.number(s)
    return s if e is None else e.hint if e.hint is not None else 2
