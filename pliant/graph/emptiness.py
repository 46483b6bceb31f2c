"""Operators for which "is this empty?" is no idle question, and those for which it is.

Eager asks whether a size is 0 or 1 before it chooses a kernel. For a size that only the run knows there is one path for all; what must not
reach a kernel empty goes another way here (`CAREFUL`). For a declared size the question is a guard, unless the general path has been
found to serve all sizes (`GENERAL`: `tests/graph/test_general.py` holds each of them, and the careful ones, against eager at 0 and 1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.nn import functional as F

from pliant.graph import symnode
from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.symbolic import ops

#: Names of torch functions whose general path serves all sizes.
GENERAL = frozenset(
    "matmul mm bmm linear conv1d conv2d conv3d einsum tensordot cdist reshape view flatten contiguous outer cartesian_prod roll".split()
)


@contextmanager
def math_attention() -> Iterator[None]:
    """Attention by matrix products: the fused kernels divide by sizes."""
    before = torch._C._get_flash_sdp_enabled()
    torch._C._set_sdp_use_flash(False)
    try:
        yield
    finally:
        torch._C._set_sdp_use_flash(before)


def attention(fn: Any, args: tuple, kwargs: dict) -> Any:
    with math_attention():
        return fn(*args, **kwargs)


#: What the functions below are given, in order.
NORM = ("x", "mean", "var", "weight", "bias", "training", "momentum", "eps")
OTHER_NAMES = {"input": "x", "running_mean": "mean", "running_var": "var", "use_input_stats": "training"}
NO_ROW = "select(): index 0 out of range for tensor of size [0] at dimension 0"
SINGLE = "Expected more than 1 value per channel when training"


def several(values: Any, x: TracedTensor, words: str) -> bool:
    """Whether there is not just one value, of which PyTorch makes no statistics: what only the run knows is asserted."""
    if type(values) is not torch.SymInt:
        return bool(values != 1)
    return bool(x.trace.scope.assume(ops.ne(values.node.expr, 1), symnode.site_hook(), words, ValueError))


def of_norm(args: tuple, kwargs: dict) -> dict[str, Any]:
    return dict(zip(NORM, args)) | {OTHER_NAMES.get(k, k): v for k, v in kwargs.items()}


def batch_norm(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Spelled out: its kernels, forward and backward, divide by the batch. PyTorch's look at the sizes is an assertion."""
    bound = of_norm(args, kwargs)
    x, mean, var, weight, bias, training = (bound.get(name) for name in NORM[:6])
    if type(x) is not TracedTensor or training and (len(x.sizes) < 2 or x.dtype not in (torch.float32, torch.float64)):
        return fn(*args, **kwargs)
    if training:
        dims = [0, *range(2, len(x.sizes))]
        if not several(math.prod([x.shape[d] for d in dims]), x, SINGLE):
            return fn(*args, **kwargs)
        return normalized(x, dims, bound)
    if mean is None or var is None:
        return fn(*args, **kwargs)
    shape = [1, -1, *[1] * (ORIGINAL.dim(x) - 2)]
    scale = torch.rsqrt(var + bound.get("eps", 1e-5))
    if weight is not None:
        scale = scale * weight
    out = (x - ORIGINAL.view(mean, shape)) * ORIGINAL.view(scale, shape)
    return out if bias is None else out + ORIGINAL.view(bias, shape)


def instance_norm(fn: Any, args: tuple, kwargs: dict) -> Any:
    """`F.instance_norm` likewise."""
    bound = of_norm(args, kwargs)
    x = bound.get("x")
    if type(x) is not TracedTensor or len(x.sizes) < 3 or x.dtype not in (torch.float32, torch.float64) or not bound.get("training", True):
        return fn(*args, **kwargs)
    if not several(math.prod(x.shape[2:]), x, SINGLE.replace("value per channel", "spatial element")):
        return fn(*args, **kwargs)
    if type(x.shape[0]) is torch.SymInt and not bound.get("weight") is bound.get("bias") is None:
        x.trace.scope.assume(ops.ne(x.shape[0].node.expr, 0), symnode.site_hook(), NO_ROW, IndexError)
    return normalized(x, [*range(2, len(x.sizes))], bound)


def normalized(x: TracedTensor, dims: list[int], bound: dict[str, Any]) -> Any:
    """`x` by its own statistics over `dims`, which the running ones follow; those stay as they are where there is nothing."""
    shape = [1, -1, *[1] * (ORIGINAL.dim(x) - 2)]
    var, mean = torch.var_mean(x, dims, correction=0, keepdim=True)
    out = (x - mean) * torch.rsqrt(var + bound.get("eps", 1e-5))
    if bound.get("weight") is not None:
        out = out * ORIGINAL.view(bound["weight"], shape)
    if bound.get("bias") is not None:
        out = out + ORIGINAL.view(bound["bias"], shape)
    momentum = bound.get("momentum", 0.1)
    count = torch.scalar_tensor(math.prod([x.shape[d] for d in dims]), dtype=torch.float64, device=x.device)
    with torch.no_grad():
        for running, now in ((bound.get("mean"), mean), (bound.get("var"), var * (count / (count - 1)))):
            if running is not None:
                now = ORIGINAL.to(ORIGINAL.flatten(ORIGINAL.mean(now, 0)), running.dtype)
                ORIGINAL.copy_(running, torch.where(count > 0, running * (1 - momentum) + now * momentum, running))
    return out


def group_norm(fn: Any, args: tuple, kwargs: dict) -> Any:
    """`F.group_norm` without its look at the sizes."""
    bound = dict(zip(("input", "num_groups", "weight", "bias", "eps"), args)) | kwargs
    x, groups = bound["input"], bound["num_groups"]
    if ORIGINAL.dim(x) < 2 or type(groups) is not int or groups < 1:
        return fn(*args, **kwargs)
    if not several(x.shape[0] * x.shape[1] // groups * math.prod(x.shape[2:]), x, SINGLE):
        return fn(*args, **kwargs)
    return torch.group_norm(x, groups, bound.get("weight"), bound.get("bias"), bound.get("eps", 1e-5))


def pooled(fn: Any, args: tuple, kwargs: dict) -> Any:
    """The kernel for one dim on a CPU has no integers; that with indices, of which captured operators consist, has them."""
    x = args[0] if args else kwargs.get("input")
    if type(x) is TracedTensor and x.device.type == "cpu" and not ORIGINAL.is_floating_point(x):
        raise NotImplementedError(f"max_pool1d of {x.dtype}")
    bound = dict(zip(("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode"), args)) | kwargs
    long = type(x) is TracedTensor and x.sizes and type(x.sizes[-1]) is torch.SymInt
    if long and len(args) < 7 and not bound.pop("return_indices", False):
        if bound.get("stride") is None:
            bound.pop("stride", None)
        out = torch.max_pool1d_with_indices(**bound)[0]  # the other kernel wants the length itself
    else:
        out = fn(*args, **kwargs)
    if type(x) is TracedTensor and type(out) is TracedTensor and not out.dense and not (x.requires_grad and torch.is_grad_enabled()):
        return torch.clone(out, memory_format=torch.contiguous_format)  # laid out row by row where nobody wants indices for a derivative
    return out


def of_no_classes(fn: Any, args: tuple, kwargs: dict, x: Any) -> Any:
    if any([s == 0 for s in x.sizes]):
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    raise Untraceable("one_hot", "the data decides which of two errors it raises for no classes")


def one_hot(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Proxies are compared with a range, which keeps their strides, and nobody looks whether a class is in it; eager looks, and fills a
    new row-major tensor. A number of classes that is symbolic, or only the data knows, would be pinned or asked for by the operator."""
    bound = dict(zip(("tensor", "num_classes"), args)) | kwargs
    x, n = bound.get("tensor", bound.get("input")), bound.get("num_classes", -1)
    if len(args) > 2 or kwargs.keys() - {"tensor", "input", "num_classes"}:
        return fn(*args, **kwargs)
    if type(x) is not TracedTensor or x.dtype is not torch.int64 or x.device.type != "cpu" or type(n) not in (int, torch.SymInt):
        return fn(*args, **kwargs)
    if type(n) is torch.SymInt and n.node.expr.backed and x.trace.scope.decide(ops.eq(n.node.expr, -1), symnode.site_hook()):
        n = -1  # as many as the data has
    if type(n) is torch.SymInt and not n.node.expr.backed and not x.trace.scope.known_false(ops.eq(n.node.expr, -1)):
        data = torch.cat([ORIGINAL.reshape(x, -1), torch.full((1,), -1)])  # of nothing there are no classes, which is refused below
        most = symnode.expr_of(ORIGINAL.item(ORIGINAL.max(data)), x.trace.scope)
        n = symnode.to_sym(x.trace.scope, ops.where(ops.eq(n.node.expr, -1), ops.add(most, 1), n.node.expr))
    if type(n) is int and n == -1 and not any([type(s) is int and s == 0 for s in x.sizes]):
        n = ORIGINAL.item(ORIGINAL.max(x)) + 1
    if type(n) is torch.SymInt:
        if not x.trace.scope.assume(ops.gt(n.node.expr, 0), symnode.site_hook(), "Class values must be smaller than num_classes."):
            return of_no_classes(fn, args, kwargs, x)
    elif n < 1:
        return of_no_classes(fn, args, kwargs, x)
    classes = torch.arange(n, device=x.device)
    x = ORIGINAL.reshape(ORIGINAL.gather(classes, 0, ORIGINAL.reshape(x, -1)), x.shape)
    out = fn(x, n) if type(n) is int else (ORIGINAL.unsqueeze(x, -1) == classes).to(torch.int64)
    return out if type(out) is not TracedTensor or out.dense else ORIGINAL.contiguous(out)


def pieces(fn: Any, args: tuple, kwargs: dict) -> Any:
    """ATen adds the number of pieces and the size of what is cut: beyond 64 bits that is what it happens to be."""
    chunks = symnode.concrete((dict(zip(("input", "chunks"), args)) | kwargs).get("chunks"))  # ATen takes a plain number
    if type(chunks) is int and chunks >= 2**62:
        raise Untraceable("chunk", "there are to be more pieces than ATen can count")
    return fn(*args, **kwargs)


def of_all(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Variances of all elements: over all dims, of which the derivative does not ask how many elements there are."""
    if not args or len(args) > 2 or not {type(a) for a in args[1:]} <= {bool} or kwargs.keys() - {"unbiased", "correction", "keepdim"}:
        return fn(*args, **kwargs)
    unbiased = args[1] if len(args) > 1 else kwargs.get("unbiased", True)
    correction = kwargs.get("correction")
    dims = [*range(ORIGINAL.dim(args[0]))]
    return fn(args[0], dims, correction=int(unbiased) if correction is None else correction, keepdim=kwargs.get("keepdim", False))


def cdist(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Eager takes matrix products from 25 rows on; here both are given up for differences, which are right for any number."""
    bound = dict(zip(("x1", "x2", "p", "compute_mode"), args)) | kwargs
    if bound.get("compute_mode", "use_mm_for_euclid_dist_if_necessary") == "use_mm_for_euclid_dist_if_necessary":
        bound["compute_mode"] = "donot_use_mm_for_euclid_dist"
    return fn(**bound)


def trapezoid(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Of no points eager gives zeros that no derivative leads to: a graph with derivatives takes for granted that there are some."""
    y, dim = args[0] if args else kwargs["y"], kwargs.get("dim", -1)
    leads = torch.is_grad_enabled() and any([type(a) is TracedTensor and a.requires_grad for a in (*args, *kwargs.values())])
    if leads and type(y) is TracedTensor and type(dim) is int and -len(y.sizes) <= dim < len(y.sizes):
        n = y.sizes[dim]
        if type(n) is torch.SymInt and not n.node.expr.backed:
            y.trace.scope.assume(ops.ne(n.node.expr, 0), symnode.site_hook())
    return fn(*args, **kwargs)


ALWAYS = (pooled, one_hot, pieces)
CAREFUL: dict[Any, Callable[[Any, tuple, dict], Any]] = {
    F.scaled_dot_product_attention: attention,
    torch._C._nn.scaled_dot_product_attention: attention,
    F.batch_norm: batch_norm,
    torch.cdist: cdist,
    F.group_norm: group_norm,
    F.instance_norm: instance_norm,
    F.max_pool1d: pooled,
    torch.max_pool1d: pooled,
    F.one_hot: one_hot,
    **dict.fromkeys((torch.chunk, torch.Tensor.chunk, torch.unsafe_chunk, torch.Tensor.unsafe_chunk), pieces),
    torch.trapezoid: trapezoid,
    torch.trapz: trapezoid,
    **dict.fromkeys((torch.var, torch.std, torch.var_mean, torch.std_mean, torch.Tensor.var, torch.Tensor.std), of_all),
}


def careful(fn: Any, args: tuple, kwargs: dict) -> Callable[[Any, tuple, dict], Any] | None:
    """How to call `fn` on tensors that may turn out empty; None: as it is."""
    way = CAREFUL.get(fn)
    return way if way in ALWAYS or way is not None and any([may_be_empty(a) for a in (*args, *kwargs.values())]) else None


def may_be_empty(x: Any) -> bool:
    """Whether only the run can tell if `x` has elements."""
    if type(x) is not TracedTensor:
        return False
    unknown = [s.node.expr for s in x.sizes if type(s) is torch.SymInt and not s.node.expr.backed]
    return any([not x.trace.scope.known_true(ops.gt(e, 0)) for e in unknown])
