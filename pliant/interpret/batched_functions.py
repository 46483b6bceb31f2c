"""Functions whose batching rules in C++ read sizes as plain numbers, put together from others whose rules keep them symbolic.

Under `torch.func.vmap` a tensor of a capture is inside a wrapper, and C++ decides what becomes of the batch dim. For some operators
it asks for numbers there: each size of the batch is a capture. What stands here gives the same values, gradients and errors from
indexing, products, sums and choices. A function is replaced only for what it is sure of; else PyTorch's own is called.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.decompositions import NotDecomposed, tried
from pliant.graph.originals import as_it_was, in_place_of, math, operator, torch
from pliant.interpret.state import Break

F = torch.nn.functional
C = torch._C._functorch
PRECISE = frozenset({torch.float32, torch.float64})
WHOLE = slice(None)
MOST = 4  # tensors that are joined by choosing among them


def in_batch(x: Any) -> bool:
    """Whether a wrapper of some level is one of a batch."""
    while isinstance(x, torch.Tensor) and C.is_functorch_wrapped_tensor(x):
        if C.is_batchedtensor(x):
            return True
        x = C.get_unwrapped(x)
    return False


def precise(*tensors: Any) -> None:
    if not all([t is None or isinstance(t, torch.Tensor) and t.dtype in PRECISE for t in tensors]) or torch._C._is_any_autocast_enabled():
        raise NotDecomposed


def only(**options: Any) -> None:
    """These options are not decomposed."""
    if any([v not in (None, False, 0, 0.0) for v in options.values()]):
        raise NotDecomposed


def whole(x: Any, refused: str = "") -> None:
    """Of tensors that lie otherwise in memory, with the batch last say, the results do, too, or PyTorch refuses them."""
    while C.is_functorch_wrapped_tensor(x):
        if C.is_batchedtensor(x) and C.maybe_get_bdim(x) != 0:
            raise NotDecomposed
        x = C.get_unwrapped(x)
    filled(x)
    if not x.is_contiguous():
        raise Break("PL0030", refused, clean=True) if refused else NotDecomposed


def filled(*tensors: Any) -> None:
    """Results without elements are laid out as PyTorch's own rule has it."""
    for x in tensors:
        while C.is_functorch_wrapped_tensor(x):
            x = C.get_unwrapped(x)
        if any([bool(n == 0) for n in x.shape]):
            raise NotDecomposed


def sound(index: Any, size: Any) -> Any:
    """An index that raises where it is negative, as these operators do; indexing by itself counts from the end."""
    if index.dtype is not torch.int64:
        raise NotDecomposed
    return torch.where(index < 0, size, index)


def position(dim: Any, rank: int) -> int:
    """A dim that there is, counted from the first; PyTorch refuses others in its own words."""
    if type(dim) is not int or not -rank <= dim < rank:
        raise NotDecomposed
    return dim % rank


def places_of(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    """An index of `x` for each of its dims: `index` along `dim`, and everywhere else the places that stand beside."""
    rank = x.dim()
    if index.dim() != rank or rank == 0:
        raise NotDecomposed
    found = []
    for d in range(rank):
        if d == position(dim, rank):
            found.append(sound(index, x.size(d)))
        else:
            found.append(torch.arange(index.size(d), device=x.device).reshape([-1 if i == d else 1 for i in range(rank)]))
    return tuple(found)


def picked(x: Any, dim: int, index: Any) -> Any:
    """Along `dim`, the elements at these places; everywhere else, those that stand beside them. (gather)"""
    return x[places_of(x, dim, index)]


def gather(x: Any, dim: Any, index: Any, *, sparse_grad: Any = False, out: Any = None) -> Any:
    only(sparse_grad=sparse_grad, out=out)
    filled(index)
    return picked(x, dim, index).contiguous()  # indexing lays out what it gives as the index is


def item(x: Any, index: Any) -> Any:
    """Views by whole dims, new dims and places. C++ would slice the whole dims, and the derivative of a slice asks for sizes."""
    parts = index if type(index) is tuple else (index,)
    if not isinstance(x, torch.Tensor) or not all([p is None or p is Ellipsis or type(p) in (int, slice) for p in parts]):
        raise NotDecomposed
    if WHOLE not in parts or parts.count(Ellipsis) > 1 or any([type(p) is slice and p != WHOLE for p in parts]):
        raise NotDecomposed
    used = len([p for p in parts if p is not None and p is not Ellipsis])
    if used > x.dim():
        raise NotDecomposed
    dim = 0
    for p in parts:
        if p is None:
            x, dim = x.unsqueeze(dim), dim + 1
        elif type(p) is int:
            x = x.select(dim, p)
        else:
            dim += x.dim() - dim - len([q for q in parts[parts.index(Ellipsis) + 1 :] if q is not None]) if p is Ellipsis else 1
    return x


def scatter_add(x: Any, dim: Any, index: Any, src: Any, *, out: Any = None) -> Any:
    only(out=out)
    if src.dtype is not x.dtype or src.dim() != index.dim() or not all([bool(m == n) for m, n in zip(src.shape, index.shape, strict=True)]):
        raise NotDecomposed
    return x.index_put(places_of(x, dim, index), src, accumulate=True)


def index_add(x: Any, dim: Any, index: Any, source: Any, *, alpha: Any = 1, out: Any = None) -> Any:
    only(out=out, alpha=alpha != 1)
    whole(x)
    rank = x.dim()
    if rank == 0 or index.dim() != 1 or source.dim() != rank or source.dtype is not x.dtype:
        raise NotDecomposed
    wide = [-1 if d == position(dim, rank) else 1 for d in range(rank)]
    if not all([bool(m == n) for d, (m, n) in enumerate(zip(source.shape, x.shape, strict=True)) if d != position(dim, rank)]):
        raise NotDecomposed
    if not bool(source.size(dim) == index.size(0)):
        raise NotDecomposed
    return scatter_add(x, dim, index.reshape(wide).expand(source.shape), source)


def index_select(x: Any, dim: Any, index: Any, *, out: Any = None) -> Any:
    only(out=out)
    if index.dim() != 1 or x.dim() == 0:
        raise NotDecomposed
    dim = position(dim, x.dim())
    if dim == 0:
        return x[sound(index, x.size(0))]
    sizes = [index.size(0) if d == dim else n for d, n in enumerate(x.shape)]
    return picked(x, dim, index.reshape([-1 if d == dim else 1 for d in range(x.dim())]).expand(sizes))


def embedding(
    index: Any, weight: Any, padding_idx: Any = None, max_norm: Any = None, norm_type: Any = 2.0, scale_grad_by_freq: Any = False,
    sparse: Any = False,
) -> Any:  # fmt: skip
    only(padding=padding_idx is not None, norm=max_norm is not None, scale=scale_grad_by_freq, sparse=sparse)
    return weight[sound(index, weight.size(0))]


def cat(tensors: Any, dim: Any = 0, *, out: Any = None) -> Any:
    only(out=out)
    if type(tensors) not in (list, tuple) or not 2 <= len(tensors) <= MOST or len({(t.dim(), t.dtype) for t in tensors}) != 1:
        raise NotDecomposed
    filled(*tensors)
    rank = tensors[0].dim()
    if rank == 0 or type(dim) is not int or tensors[0].dtype.is_complex:
        raise NotDecomposed
    dim = position(dim, rank)
    sizes = [t.size(dim) for t in tensors]
    if not all([bool(t.size(d) == tensors[0].size(d)) for t in tensors[1:] for d in range(rank) if d != dim]):
        raise NotDecomposed
    total = sum(sizes)
    at = torch.arange(total, device=tensors[0].device).reshape([-1 if d == dim else 1 for d in range(rank)])
    begin: Any = 0
    out = None
    for t, n in zip(tensors, sizes, strict=True):
        own = torch.constant_pad_nd(t, [*[0] * (2 * (rank - 1 - dim)), begin, total - begin - n], 0)
        out = own if out is None else torch.where(at < begin, out, own)
        begin = begin + n
    return out


def layer_norm(x: Any, shape: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Any:
    precise(x, weight, bias)
    whole(x)
    dims = len(shape)
    if not 0 < dims <= x.dim() or not all([bool(a == b) for a, b in zip(x.shape[-dims:], shape, strict=True)]):
        raise NotDecomposed
    return scaled(normalized(x, tuple(range(-dims, 0)), eps), weight, bias)


def normalized(x: Any, dims: tuple[int, ...], eps: Any) -> Any:
    apart = x - x.mean(dims, keepdim=True)
    return apart * torch.rsqrt((apart * apart).mean(dims, keepdim=True) + eps)


def scaled(x: Any, weight: Any, bias: Any) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def group_norm(x: Any, groups: Any, weight: Any = None, bias: Any = None, eps: Any = 1e-5) -> Any:
    precise(x, weight, bias)
    whole(x, "PyTorch's rule for a group norm of a batch wants it to be contiguous")
    if x.dim() < 2 or not bool(x.size(1) % groups == 0):
        raise NotDecomposed
    apart = normalized(x.reshape(x.size(0), groups, -1), (2,), eps).reshape(x.shape)
    wide = [1, -1, *[1] * (x.dim() - 2)]
    return scaled(apart, None if weight is None else weight.reshape(wide), None if bias is None else bias.reshape(wide))


def nll_loss(
    logs: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: Any = -100, reduce: Any = None,
    reduction: Any = "mean",
) -> Any:  # fmt: skip
    precise(logs)
    only(weight=weight is not None, average=size_average is not None, reduce=reduce is not None)
    if reduction not in ("none", "mean", "sum") or logs.dim() not in (1, 2) or target.dim() != logs.dim() - 1:
        raise NotDecomposed
    counted = target != ignore_index
    index = sound(torch.where(counted, target, 0), logs.size(-1))
    one = logs[index.reshape(1)][0] if logs.dim() == 1 else logs[torch.arange(logs.size(0), device=logs.device), index]
    cost = torch.where(counted, -one, torch.zeros_like(one))
    if reduction == "none":
        return cost
    return cost.sum() if reduction == "sum" else cost.sum() / counted.sum()


def cross_entropy(
    x: Any, target: Any, weight: Any = None, size_average: Any = None, ignore_index: Any = -100, reduce: Any = None,
    reduction: Any = "mean", label_smoothing: Any = 0.0,
) -> Any:  # fmt: skip
    only(smoothing=label_smoothing)
    precise(x)
    return nll_loss(torch.log_softmax(x, -1), target, weight, size_average, ignore_index, reduce, reduction)


def attention(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: Any = 0.0, is_causal: Any = False, scale: Any = None, enable_gqa: Any = False
) -> Any:
    precise(q, k, v)
    only(dropout=dropout_p, heads=enable_gqa)
    if not all([bool(n != 0) for t in (q, k, v) for n in t.shape]):
        raise NotDecomposed
    if attn_mask is not None and (is_causal or attn_mask.dtype not in (torch.bool, q.dtype)):
        raise NotDecomposed
    width = q.size(-1)
    usual = (1.0 / math.sqrt(width) if type(width) is int else 1.0 / torch.sym_sqrt(width)) if scale is None else scale
    scores = (q @ k.transpose(-2, -1)) * usual
    if is_causal:
        attn_mask = torch.ones((q.size(-2), k.size(-2)), dtype=torch.bool, device=q.device).tril()
    if attn_mask is not None and attn_mask.dtype is torch.bool:
        if not is_causal:
            raise NotDecomposed  # rows that see nothing are zeros there
        scores = torch.where(attn_mask, scores, -math.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    return torch.softmax(scores, -1) @ v


def gelu(x: Any, approximate: Any = "none") -> Any:
    precise(x)
    if approximate == "none":
        return x * 0.5 * (1.0 + torch.erf(x * math.sqrt(0.5)))
    if approximate != "tanh":
        raise NotDecomposed
    return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)))


def chosen(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that chooses elements along a dim: which ones is asked of it without gradients, the elements are picked."""

    def choose(x: Any, *args: Any, **kwargs: Any) -> Any:
        precise(x)
        whole(x)
        found = fn(x.detach(), *args, **kwargs)
        if not isinstance(found, tuple) or len(found) != 2:
            raise NotDecomposed
        made: Any = type(found)
        index, names = found[1], dict(zip(DIMS[fn], args)) | kwargs
        dim = names.get("dim", -1)
        if type(dim) is not int or names.get("out") is not None:
            raise NotDecomposed
        if index.dim() == x.dim():
            return made((picked(x, dim, index), index))
        return made((picked(x, dim, index.unsqueeze(dim)).squeeze(dim), index))

    return choose


DIMS: dict[Any, tuple[str, ...]] = {
    **dict.fromkeys((torch.max, torch.Tensor.max, torch.min, torch.Tensor.min), ("dim", "keepdim")),
    **dict.fromkeys((torch.sort, torch.Tensor.sort), ("dim", "descending")),
    **dict.fromkeys((torch.topk, torch.Tensor.topk), ("k", "dim")),
}
TABLE: dict[Any, Callable[..., Any]] = in_place_of({
    operator.getitem: item, torch.Tensor.__getitem__: item, torch.gather: gather, torch.Tensor.gather: gather,
    torch.index_select: index_select, torch.Tensor.index_select: index_select,
    torch.scatter_add: scatter_add, torch.Tensor.scatter_add: scatter_add, torch.index_add: index_add, torch.Tensor.index_add: index_add,
    F.embedding: embedding, torch.cat: cat, torch.concat: cat, F.layer_norm: layer_norm, F.group_norm: group_norm, F.nll_loss: nll_loss,
    F.cross_entropy: cross_entropy, F.scaled_dot_product_attention: attention, F.gelu: gelu, **{fn: chosen(fn) for fn in DIMS},
})  # fmt: skip


def decomposed(fn: Any, trace: Any) -> Callable[..., Any] | None:
    """What is called in the place of `fn` on wrappers, some of them of a batch; None: nothing is."""
    own = TABLE.get(fn)
    if own is None or not as_it_was(fn):
        return None
    if len([level for level in C.get_interpreter_stack() or () if level.key() == C.TransformType.Vmap]) != 1:
        return None  # of batches of batches the results would lie otherwise in memory

    def call(*args: Any, **kwargs: Any) -> Any:
        given = [*args, *kwargs.values()]
        if any([in_batch(a) for a in given] + [in_batch(t) for a in given if type(a) in (list, tuple) for t in a]):
            out = tried(trace, own, args, kwargs, (NotDecomposed, TypeError, RuntimeError, IndexError))
            if out is not NotImplemented:
                return out
        return fn(*args, **kwargs)

    return call
