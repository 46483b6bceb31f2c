"""Operators that need more than a shape rule: data-dependent results, constants, and those that cannot be captured."""

from __future__ import annotations

from typing import Any

from pliant.graph import layout, symnode
from pliant.graph.dispatch import check, dispatch, is_dense, record, same, through_meta
from pliant.graph.known_numbers import counted, known_number, remember
from pliant.graph.layout import contiguous_strides
from pliant.graph.originals import ORIGINAL, is_grad_enabled, math, torch
from pliant.graph.python_random import SEED
from pliant.graph.record import Bind
from pliant.graph.rules.shape import new
from pliant.graph.rules.table import RULES, handler
from pliant.graph.schema import argument, op_info, written
from pliant.graph.seeding import MANUAL_SEED, SET_STATE
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.traced import TracedTensor, Untraceable, make
from pliant.symbolic import DataDependent, ops

aten = torch.ops.aten


# constants -----------------------------------------------------------------------------------------
@handler("lift_fresh", "lift", "lift_fresh_copy")
def lift_fresh(trace: Any, func: Any, args: tuple, kwargs: dict) -> TracedTensor:
    """Data made in the capture from Python numbers: a constant of the trace, copied on every run as eager would make it anew."""
    real = args[0]
    if type(real) is TracedTensor:
        check(trace, func, args)
        return real
    sizes, strides = tuple(ORIGINAL.size(real)), tuple(ORIGINAL.stride(real))
    const = make(trace, sizes, strides, real.dtype, 0, None, real.device, ORIGINAL.is_contiguous(real))
    const.constant = real
    trace.constants.append(const)
    strides = contiguous_strides(const.sizes)
    out = make(trace, const.sizes, strides, real.dtype, 0, None, real.device, True)
    record(trace, aten.lift_fresh_copy.default, (const,), {}, out)
    trace.known[out.storage_id] = real
    return out


@handler("_efficientzerotensor")
def zeros(trace: Any, func: Any, args: tuple, kwargs: dict) -> TracedTensor:
    """A tensor of zeros without memory, which forward derivatives use where there is none: in the graph, one with memory."""
    out = dispatch(trace, aten.zeros.default, args, {k: v for k, v in kwargs.items() if k in ("dtype", "device")})
    trace.zeros.add(out.storage_id)
    return out


@handler("is_same_size")
def same_size(trace: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether two tensors have the same sizes: guarded, and no operation."""
    check(trace, func, args)
    a, b = args[0].sizes, args[1].sizes
    return len(a) == len(b) and all([same(m, n) or bool(m == n) for m, n in zip(a, b, strict=True)])


@handler("_new_zeros_with_same_feature_meta")
def zeros_with_layout(trace: Any, func: Any, args: tuple, kwargs: dict) -> TracedTensor:
    """Zeros for the derivative of what a view is of: laid out like that, from the same place in memory on, behind dims for batches."""
    check(trace, func, args)
    x, other = args
    batch, how = x.sizes[: kwargs.get("self_num_batch_dims", 0)], {"dtype": x.dtype, "device": x.device}
    if other.dense and type(other.offset) is int and not other.offset:
        return dispatch(trace, aten.zeros.default, ([*batch, *other.sizes],), how)
    if other.dense:
        n = math.prod(other.sizes)
        room = dispatch(trace, aten.zeros.default, ([*batch, other.offset + n],), how)
        rest = dispatch(trace, aten.slice.Tensor, (room, len(batch), other.offset, other.offset + n), {})
        return dispatch(trace, aten.view.default, (rest, [*batch, *other.sizes]), {})
    out = through_meta(trace, func, args, kwargs)
    record(trace, func, args, kwargs, out)
    return out


@handler("_has_same_storage_numel")
def same_storage(trace: Any, func: Any, args: tuple, kwargs: dict) -> bool:
    """Whether two tensors have as much memory. Forward derivatives ask it before they compare sizes and strides; what it adds to these is
    memory beside a view, which `as_strided` alone could reach, and does not where it is not there."""
    check(trace, func, args)
    return True


def known_data(trace: Any, x: TracedTensor) -> torch.Tensor | None:
    """The data of `x` if it is a constant that nothing has written to."""
    real = trace.known.get(x.storage_id)
    if real is None or not all(type(v) is int for v in (*x.sizes, *x.strides, x.offset)) or x.dtype is not real.dtype:
        return None
    with torch._C._DisableTorchDispatch():
        return ORIGINAL.as_strided(ORIGINAL.contiguous(real), x.sizes, x.strides, x.offset)


# numbers from data -----------------------------------------------------------------------------------
def need_unbacked(trace: Any, func: Any) -> None:
    if not trace.allow_unbacked:
        raise Untraceable(func, "its result depends on the data of a tensor", "data-dependent")


@handler("_local_scalar_dense")
def item(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """`x.item()`: a symbol that the run defines."""
    check(trace, func, args)
    x = args[0]
    data = known_data(trace, x)
    if data is not None:
        with torch._C._DisableTorchDispatch():
            return ORIGINAL.item(data)
    number = known_number(trace, x)
    if number is None:
        number = counted(trace, x, len(trace.ops))
    if type(number) in (int, float, bool):
        return number
    if number is not None:
        return to_sym(trace.scope, number)
    need_unbacked(trace, func)
    if x.dtype.is_complex:
        raise Untraceable(func, "a complex number cannot be symbolic", "data-dependent")
    kind = bool if x.dtype is torch.bool else float if x.dtype.is_floating_point else int
    symbol = trace.unbacked(kind, lo=0 if x.dtype in UNSIGNED else None)
    if kind is int and x.dtype.itemsize < 8:
        bounds = torch.iinfo(x.dtype)
        trace.scope.learn(ops.and_(ops.ge(symbol, bounds.min), ops.le(symbol, bounds.max)))
    op = record(trace, func, args, kwargs, to_sym(trace.scope, symbol))
    op.binds.append(Bind(symbol, 0))
    remember(trace, x, symbol)
    return op.outs[0]


UNSIGNED = {torch.uint8, torch.uint16, torch.uint32, torch.uint64}


@handler("equal", "allclose")
def equal(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """`torch.equal`, `torch.allclose`: a truth value from data."""
    check(trace, func, args)
    need_unbacked(trace, func)
    symbol = trace.unbacked(bool)
    op = record(trace, func, args, kwargs, to_sym(trace.scope, symbol))
    op.binds.append(Bind(symbol, 0))
    return op.outs[0]


def tolist(x: TracedTensor) -> Any:
    """`x.tolist()` as nested lists of symbols. PyTorch reads the data pointer, so the interpreter calls this instead.

    Raises `Untraceable` if a size is symbolic.
    """
    if not x.sizes:
        return ORIGINAL.item(x)
    if not all(type(s) is int for s in x.sizes):
        raise Untraceable("tolist", "the number of elements is symbolic", "data-dependent")
    return [tolist(row) for row in torch.unbind(x, 0)]  # type: ignore[arg-type]


# sizes from data ---------------------------------------------------------------------------------------
def numel(trace: Any, sizes: tuple) -> Any:
    n: Any = 1
    for s in sizes:
        n = ops.mul(expr_of(s, trace.scope), n)
    return n


def new_size(trace: Any, func: Any, at_most: Any = None, at_least: int = 0) -> Any:
    """A size that the run defines, with the bounds that hold by the operator's meaning."""
    need_unbacked(trace, func)
    u = trace.unbacked(int, size_like=True, lo=at_least)
    if at_most is not None:
        trace.scope.learn(ops.le(u, at_most))
    return u


def fresh(trace: Any, sizes: tuple, dtype: torch.dtype, like: TracedTensor, strides: tuple | None = None) -> TracedTensor:
    strides = contiguous_strides(sizes) if strides is None else strides
    return make(trace, sizes, strides, dtype, 0, None, like.device, is_dense(sizes, strides))


def bound(trace: Any, func: Any, args: tuple, kwargs: dict, out: Any, *binds: Bind) -> Any:
    record(trace, func, args, kwargs, out).binds.extend(binds)
    return out


@handler("nonzero")
def nonzero(trace: Any, func: Any, args: tuple, kwargs: dict) -> TracedTensor:
    check(trace, func, args)
    x = args[0]
    u = new_size(trace, func, numel(trace, x.sizes))
    n = to_sym(trace.scope, u)
    out = fresh(trace, (n, len(x.sizes)), torch.int64, x, (1, n))  # column by column
    return bound(trace, func, args, kwargs, out, Bind(u, 0, 0))


@handler("masked_select")
def masked_select(trace: Any, func: Any, args: tuple, kwargs: dict) -> TracedTensor:
    check(trace, func, args)
    x, mask = args
    shape = torch.broadcast_shapes(tuple(x.sizes), tuple(mask.sizes)) if x.sizes != mask.sizes else x.sizes
    u = new_size(trace, func, numel(trace, tuple(shape)))
    return bound(trace, func, args, kwargs, fresh(trace, (to_sym(trace.scope, u),), x.dtype, x), Bind(u, 0, 0))


@handler("_unique2", "unique_consecutive")
def unique(trace: Any, func: Any, args: tuple, kwargs: dict) -> tuple:
    """(values, inverse, counts), flat; the optional ones are empty when not asked for."""
    check(trace, func, args)
    x = args[0]
    if func is aten.unique_consecutive.default:
        inverse, counts = option(args, kwargs, 1, "return_inverse"), option(args, kwargs, 2, "return_counts")
        dim = option(args, kwargs, 3, "dim")
        if dim is not None:
            return unique_dim(trace, aten.unique_dim_consecutive.default, (x, dim, bool(inverse), bool(counts)), {})
    else:
        inverse, counts = option(args, kwargs, 2, "return_inverse"), option(args, kwargs, 3, "return_counts")
    elements = numel(trace, x.sizes)
    u = new_size(trace, func, elements)
    trace.scope.learn(ops.ge(u, ops.min_(trace.scope.ctx.lift(elements), 1)))
    n = (to_sym(trace.scope, u),)
    none = (0,)
    out = (
        fresh(trace, n, x.dtype, x),
        fresh(trace, x.sizes if inverse else none, torch.int64, x),
        fresh(trace, n if counts else none, torch.int64, x),
    )
    return bound(trace, func, args, kwargs, out, Bind(u, 0, 0))


@handler("unique_dim", "unique_dim_consecutive")
def unique_dim(trace: Any, func: Any, args: tuple, kwargs: dict) -> tuple:
    """(slices, inverse, counts) along a dim; inverse and counts always have their sizes on the CPU."""
    check(trace, func, args)
    x, dim = args[0], option(args, kwargs, 1, "dim")
    at = 2 if func is aten.unique_dim_consecutive.default else 3
    inverse, counts = option(args, kwargs, at, "return_inverse"), option(args, kwargs, at + 1, "return_counts")
    dim = dim % len(x.sizes)
    u = new_size(trace, func, expr_of(x.sizes[dim], trace.scope))
    n = to_sym(trace.scope, u)
    sizes = (*x.sizes[:dim], n, *x.sizes[dim + 1 :])
    order = [dim, *(d for d in range(len(sizes)) if d != dim)]
    packed = contiguous_strides(tuple(sizes[d] for d in order))
    strides = [0] * len(sizes)
    for d, s in zip(order, packed):
        strides[d] = s
    out = (
        fresh(trace, sizes, x.dtype, x, tuple(strides)),
        fresh(trace, (x.sizes[dim],) if inverse or x.device.type == "cpu" else (0,), torch.int64, x),
        fresh(trace, (n,) if counts or x.device.type == "cpu" else (0,), torch.int64, x),
    )
    return bound(trace, func, args, kwargs, out, Bind(u, 0, dim))


@handler("repeat_interleave.Tensor")
def repeat_interleave(trace: Any, func: Any, args: tuple, kwargs: dict) -> TracedTensor:
    check(trace, func, args)
    repeats = args[0]
    size = option(args, kwargs, 1, "output_size")
    if size is not None:
        n = repeats.sizes[0] if repeats.sizes else 1
        if type(n) is int and n == 0:
            size = 0  # whatever was said
        elif type(n) is torch.SymInt and not trace.scope.known_true(ops.gt(n.node.expr, 0)):
            size = to_sym(trace.scope, ops.where(ops.eq(n.node.expr, 0), 0, size if type(size) is int else size.node.expr))
        out = fresh(trace, (size,), repeats.dtype, repeats)
        record(trace, func, args, kwargs, out)
        return out
    u = new_size(trace, func)
    return bound(trace, func, args, kwargs, fresh(trace, (to_sym(trace.scope, u),), repeats.dtype, repeats), Bind(u, 0, 0))


@handler("bincount")
def bincount(trace: Any, func: Any, args: tuple, kwargs: dict) -> TracedTensor:
    check(trace, func, args)
    x, weights = args[0], option(args, kwargs, 1, "weights")
    minlength = option(args, kwargs, 2, "minlength")
    u = new_size(trace, func)
    if minlength is not None:
        trace.scope.learn(ops.ge(u, expr_of(minlength, trace.scope)))
    dtype = torch.int64 if weights is None else weights.dtype if weights.dtype is torch.float32 else torch.float64
    return bound(trace, func, args, kwargs, fresh(trace, (to_sym(trace.scope, u),), dtype, x), Bind(u, 0, 0))


def option(args: tuple, kwargs: dict, i: int, name: str) -> Any:
    return args[i] if i < len(args) else kwargs.get(name)


@handler("index.Tensor")
def index(trace: Any, func: Any, args: tuple, kwargs: dict) -> TracedTensor:
    """Indexing with masks is indexing with `nonzero` of the masks: then every size has one origin."""
    check(trace, func, args)
    x, indices = args
    if not any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
        return by_rule(trace, func, args, kwargs)
    expanded: list[Any] = []
    for i in indices:
        if i is not None and i.dtype in (torch.bool, torch.uint8):
            for d, s in enumerate(i.sizes):
                at = len(expanded) + d
                fits = ops.eq(expr_of(s, trace.scope), expr_of(x.sizes[at] if at < len(x.sizes) else -1, trace.scope))
                if not (fits is True or fits is False or fits.backed or trace.scope.known_true(fits)) and has_written(trace):
                    raise DataDependent(fits, symnode.site_hook())  # what was done before shows, should it not fit: CPython asks
                if not trace.scope.assume(fits, symnode.site_hook(), error=IndexError):
                    raise IndexError(mismatch(i.sizes, d, x.sizes, at))
            where = set_positions(trace, i)
            expanded.extend(dispatch(trace, aten.select.int, (where, 1, d), {}) for d in range(len(i.sizes)))
        else:
            expanded.append(i)
    return by_rule(trace, func, (x, expanded), kwargs)


def has_written(trace: Any, n: int | None = None) -> bool:
    """Whether memory from outside is written by now (the `n`-th operation), or a custom operator has run: the frame could not run again
    from its beginning."""
    return any([is_written(trace, op) for op in trace.ops[:n]])


def is_written(trace: Any, op: Any) -> bool:
    """Whether the operation writes memory from outside, or is a custom operator."""
    info = op_info(op.target)
    if info.custom and (op.target in SEEDING or not op.target._schema.name.startswith("pliant::")):
        return True
    if not info.writes:
        return False
    memory = {t.storage_id for t in written(op)}
    return bool(memory) and any([t.storage_id in memory for t in trace.inputs])


SEEDING = (MANUAL_SEED, SET_STATE, SEED)


def mismatch(mask: tuple, d: int, sizes: tuple, at: int) -> str:
    """ATen's words for a mask that does not fit."""
    of, to = ([symnode.concrete(n) for n in dims] for dims in (mask, sizes))
    return f"The shape of the mask {of} at index {d} does not match the shape of the indexed tensor {to} at index {at}"


def set_positions(trace: Any, mask: TracedTensor) -> TracedTensor:
    """`mask.nonzero()`, once for each mask: what is indexed with the same mask, in the backward part too, has the same size."""
    found = trace.masks.setdefault(mask.storage_id, {})
    where = found.get(mask.vid)
    if where is None:
        where = found[mask.vid] = dispatch(trace, aten.nonzero.default, (mask,), {})
    else:
        trace.recalled += 1
    return where


def by_rule(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """What the shape rule, or PyTorch's meta kernel, makes of the operator."""
    rule = RULES.get(func)
    out = rule(trace, *args, **kwargs) if rule is not None else NotImplemented
    if out is NotImplemented:
        out = through_meta(trace, func, args, kwargs)
    record(trace, func, args, kwargs, out)
    return out


# what cannot be captured -----------------------------------------------------------------------------------
REFUSED = {
    "resize_": "changes the memory of a tensor",
    "resize_as_": "changes the memory of a tensor",
    "set_.source_Tensor": "changes the memory of a tensor",
    "set_.source_Storage": "changes the memory of a tensor",
    "set_.source_Storage_storage_offset": "changes the memory of a tensor",
    "set_.source_Tensor_storage_offset": "changes the memory of a tensor",
    "set_": "changes the memory of a tensor",
    "_pin_memory": "pins host memory",
    "is_pinned": "asks about host memory",
    "record_stream": "asks about device memory",
}


def refuse(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    raise Untraceable(func, next(why for name, why in REFUSED.items() if name.split(".")[0] == func._schema.name.split("::")[1]))


handler(*REFUSED)(refuse)


# connectionist temporal classification ------------------------------------------------------------------------
@handler("_ctc_loss", "_ctc_loss.Tensor")
def ctc_loss(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """The losses, and the table of paths, which is as wide as the longest target asks: known when it runs if lengths are a tensor."""
    check(trace, func, args)
    x, lengths = args[0], args[3]
    if len(x.sizes) != 3:
        raise Untraceable(func, "its log probabilities are no batch")
    steps, n, _ = x.sizes
    binds = []
    if type(lengths) is TracedTensor:
        need_unbacked(trace, func)
        width: Any = trace.unbacked(int, lo=1)
        binds, width = [Bind(width, 1, 2)], to_sym(trace.scope, width)
    else:
        width = 2 * max([int(v) for v in lengths]) + 1
    out = new(trace, (n,), x.dtype, x.device), new(trace, (n, steps, width), x.dtype, x.device)
    record(trace, func, args, kwargs, out).binds.extend(binds)
    return out


# metadata as plain integers -----------------------------------------------------------------------------------
# C++ code that is not written for symbolic sizes asks for integers. The first time, the call is made again where PyTorch's Python code
# stands in for such code; if it asks even then, each is pinned, with the guard on record.
def integer(s: Any) -> int:
    if type(s) is not int and layout.Framework.depth and not layout.Framework.last_try:
        raise RuntimeError(f"expected to contain only concrete integers, not {s.node.expr}")
    return int(symnode.concrete(s))


@handler("size")
def size(trace: Any, func: Any, args: tuple, kwargs: dict) -> list[int]:
    x = args[0]
    return [integer(s) for s in (x.sizes if type(x) is TracedTensor else ORIGINAL.size(x))]  # TorchScript asks of wrappers, too


@handler("stride")
def stride(trace: Any, func: Any, args: tuple, kwargs: dict) -> list[int]:
    return [integer(s) for s in args[0].strides]


@handler("numel")
def number_of_elements(trace: Any, func: Any, args: tuple, kwargs: dict) -> int:
    return math.prod(integer(s) for s in args[0].sizes)


@handler("storage_offset")
def storage_offset(trace: Any, func: Any, args: tuple, kwargs: dict) -> int:
    return integer(args[0].offset)


@handler("dim")
def dim(trace: Any, func: Any, args: tuple, kwargs: dict) -> int:
    return len(args[0].sizes)


@handler("sym_size", "sym_stride", "sym_numel", "sym_storage_offset")
def symbolic(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    x = args[0]
    what = func._schema.name
    if what == "aten::sym_numel":
        return to_sym(trace.scope, trace.scope.ctx.lift(numel(trace, x.sizes)))
    return {"aten::sym_size": x.sizes, "aten::sym_stride": x.strides, "aten::sym_storage_offset": x.offset}[what]


# writes that the schema does not tell ----------------------------------------------------------------------------
@handler("native_batch_norm")
def batch_norm(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """In training it writes the running statistics: recorded as the operator whose schema says so, which does the same."""
    check(trace, func, args)
    names = op_info(func).names
    given = [argument(op_info(func), args, kwargs, name) for name in names]
    _, _, _, mean, var, training, *_ = given
    if training is True and mean is not None and var is not None:
        return by_rule(trace, BATCH_NORM, tuple(given), {})
    return by_rule(trace, func, args, kwargs)


BATCH_NORM = aten._native_batch_norm_legit.default


# operators that look at more than their arguments -----------------------------------------------------------------
@handler("mkldnn_rnn_layer")
def recurrent_layer(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """oneDNN's LSTM makes what its backward needs only where gradients are on when it runs; compiled forward parts run without."""
    if is_grad_enabled() and any(type(a) is TracedTensor and a.requires_grad for a in args):
        raise Untraceable(func, "its backward needs what only a run with gradients makes")
    out = through_meta(trace, func, args, kwargs)
    record(trace, func, args, kwargs, out)
    return out
