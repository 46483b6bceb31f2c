"""Which dtypes and numbers ATen has code for: PyTorch's shape functions pass what a kernel then refuses.

Such are `relu` of bools, `hardswish` of integers, `|` of floats, and a number that does not fit (300 in an `int8`). What a program calls
is refused while it is captured (`refuse`), as the kernel would. What a pass makes of it stays an ATen call (`implemented`): a kernel of
pliant's would give an answer there. So a pointwise operation on other dtypes than float and double is tried once on small tensors; others,
which ask more of their operands than a dtype, refuse in their lowering.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Sequence
from typing import Any

from torch.utils._pytree import tree_map

from pliant.graph import layout, symnode
from pliant.graph.operands import PLAIN, op_inputs
from pliant.graph.operators import Column, overloads
from pliant.graph.originals import math, torch
from pliant.graph.schema import argument, of_operator, op_info
from pliant.graph.traced import TracedTensor
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr
from pliant.symbolic.magnitude import WORD, bits

aten = torch.ops.aten
ALL = (torch.float32, torch.float64)
"""Dtypes that everything which has a lowering is there for, but for operators of bits."""
FLOATS = (*ALL, torch.float16, torch.bfloat16)
STAND = {torch.SymInt: 1, torch.SymFloat: 0.5, torch.SymBool: True}
SETTINGS = {*PLAIN, *STAND, complex, torch.memory_format, torch.layout}
_known: dict[tuple, Exception | None] = {}
MOST = {t: torch.finfo(t).max for t in (torch.float16, torch.bfloat16, torch.float32)} | {
    t: torch.iinfo(t).max for t in (torch.int8, torch.uint8, torch.int16, torch.int32)
}
WIDE = {torch.bfloat16, torch.float32}


def named(names: str) -> frozenset[str]:
    return frozenset([f"aten::{name}" for name in names.split()])


POINTWISE = named("hardswish hardswish_ gelu_ rsub log_sigmoid_forward")
"""Pointwise, too, although no tag tells."""
TRIED = named(
    "mm bmm addmm addbmm baddbmm addmv addr mv dot vdot trace cat stack clone _to_copy flip roll repeat constant_pad_nd tril triu "
    "cumsum cumprod cummax cummin logcumsumexp sort topk kthvalue mode median nanmedian _softmax _log_softmax _safe_softmax convolution "
    "avg_pool1d avg_pool2d avg_pool3d max_pool2d_with_indices max_pool3d_with_indices adaptive_avg_pool1d _adaptive_avg_pool2d "
    "_adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d "
    "replication_pad2d replication_pad3d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_linear1d upsample_bilinear2d "
    "upsample_bicubic2d upsample_trilinear3d native_layer_norm native_group_norm native_batch_norm linalg_cross diag_embed new_zeros "
    "complex polar new_ones new_full zeros_like ones_like full_like masked_fill nonzero isin bincount histc renorm fill_diagonal_ "
    "count_nonzero bucketize searchsorted "
    "_foreach_add _foreach_add_ _foreach_sub _foreach_sub_ _foreach_mul _foreach_mul_ _foreach_div _foreach_div_")
"""Operators that look at all of their operands before they touch memory, and may be tried on made-up ones, as may those that do the same in
place, or to a list. Others are never run to learn what they say: those that draw would move a generator on, packed weights of the quantized
ones hold addresses."""
TO_LISTS = re.compile("aten::_(foreach|fused_ada|fused_sgd|amp_foreach)")
TOGETHER = Column("meets")
TOGETHER.add(*overloads((
    "native_layer_norm", "native_group_norm", "native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_functional",
    "_batch_norm_with_update", "_batch_norm_with_update_functional", "batch_norm_update_stats", "convolution", "_cdist_forward",
    "_softmax_backward_data", "_log_softmax_backward_data", "grid_sampler_2d", "grid_sampler_3d", "linalg_cross", "masked_select",
)))  # fmt: skip
"""Operators whose kernels say which floats may meet, once they have looked at sizes: they are tried on operands of likely sizes."""
MOST_TRIED = 1 << 20
"""Elements of the largest of these."""
HALVES = TRIED | named(
    "embedding index index_select gather _scaled_dot_product_flash_attention_for_cpu mkldnn_rnn_layer embedding_dense_backward "
    "convolution_backward native_layer_norm_backward native_group_norm_backward native_batch_norm_backward")
"""Operators that are there for all floats."""
CHECKED = frozenset(f"aten::{name}{end}" for end in ("", "_") for name in (
    "masked_fill where clamp clamp_min clamp_max fill scalar_tensor full full_like new_full index_fill scatter constant_pad_nd").split())
"""Operators that convert a number with a check; others compute with it as it is."""
VARIES = (torch.SymInt, torch.SymFloat)


def refuse(op: Any) -> None:
    """Raises what ATen raises where it has no code for this operation and these dtypes, or a number does not fit. What fits and varies is
    guarded to fit; a number that only the run knows is left to ATen, unless it may have too many bits."""
    tensors = op_inputs(op)
    for place, v in (*enumerate(op.args), *(op.kwargs or {}).items()):
        t = type(v)
        if (t is torch.SymInt or t is list and torch.SymInt in map(type, v)) and place in takes_numbers(op.target):
            converts = op.target._schema.name in CHECKED or op.target in RANGES
            given = v if t is list else [v]
            kept = [keep_to_words(n, converts and op.outs[0].dtype is torch.int64) for n in given]
            if any([a is not b for a, b in zip(kept, given)]):
                put_number(op, place, kept if t is list else kept[0])
    if op.target in CONVERTED:
        refuse_options(op)
    odd = unlike(tensors)
    if not odd and takes_usual(op.target) and not (beside_texts(op) or beside_complex(op) or beside_settings(op)):
        return  # most are such
    error = why_not(op, [a for a in op.args if type(a) is TracedTensor])
    if error is None and (odd or has_outs(op.target)) and may_try(op):
        error = refusal(known(op))
    if error is None and odd and op.target in TOGETHER:
        error = refusal(together(op))
    if error is None and op.target in BOUNDS:
        error = beyond_bounds(op)
    if error is not None:
        raise type(error)(*error.args)
    made = op.outs[0] if op.outs else None
    if op.target in RANGES and not op.outs[0].dtype.is_floating_point:
        refuse_ends(op)
    if op.target._schema.name not in CHECKED or type(made) is not TracedTensor:
        return
    wide = made.dtype is torch.int64  # which integers of 64 bits fit
    beyond = any([type(v) is float and math.isfinite(v) and abs(v) > MOST.get(made.dtype, math.inf) for v in op.args])
    if not wide and (made.dtype not in MOST or made.dtype in WIDE) and not beyond and not beside_complex(op):
        return
    least = 0 if made.dtype is torch.uint8 else -127
    one = op.target is aten.scalar_tensor.default  # which converts it otherwise
    convert = torch.scalar_tensor if one else functools.partial(torch.full, (2,))
    for v in (*op.args, *op.kwargs.values()):
        t = type(v)
        if t in VARIES and v.node.expr.backed and not wide:
            cond = fit(v.node.expr, made.dtype)
            declared = isinstance(cond, Expr) and layout.is_declared(cond)  # no example decides it: ATen looks when the graph runs
            if not declared and not layout.ask(v.node.scope, cond, symnode.site_hook()):
                v = symnode.concrete(v)
        lost = t is complex and not made.dtype.is_complex
        large = type(v) is int and (v.bit_length() > 63 or not wide and not least <= v < 127)
        if lost or large or type(v) is float and not least <= v < 127:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                convert(v, dtype=made.dtype, device="cpu")


@of_operator
def takes_usual(target: Any) -> bool:
    """Does nothing but unusual dtypes and settings make an operator refuse what fake tensors take?"""
    name = target._schema.name
    return not (name in CHECKED or "bitwise" in name or has_outs(target) or target in BOUNDS or target in RANGES)


@of_operator
def takes_numbers(target: Any) -> frozenset[Any]:
    """Where, and as what, it takes numbers to compute with, not sizes and settings."""
    kinds = ("number", "Tensor") if pointwise(target) else ("number",)  # which takes a number for a tensor
    places = [(i, a.name) for i, a in enumerate(target._schema.arguments) if any([kind in str(a.type) for kind in kinds])]
    return frozenset(itertools.chain(*places))


BEYOND: tuple[tuple[Callable[[Expr], Any], str, type[Exception]], ...] = (
    (lambda e: ops.lt(e, 2**64), "int too big to convert", OverflowError),
    (lambda e: ops.ge(e, -(2**63)), "can't convert negative int to unsigned", OverflowError),
    (lambda e: ops.lt(e, 2**63), "value cannot be converted to type int64_t without overflow", RuntimeError),
)
"""What PyTorch says of an integer to compute with that 64 bits do not hold, with a sign or without one, and of one that it converts."""


UNPACKED = ((lambda e: ops.and_(ops.ge(e, -(2**63)), ops.lt(e, 2**63)), "Overflow when unpacking long long", ValueError),)
"""The same where PyTorch reads an integer with a sign: `x[0] = n`."""


def unpack(n: Any) -> None:
    """An integer that varies and is read so."""
    kept_within(n.node, UNPACKED)


def kept_within(node: Any, bounds: Any) -> None:
    """That 64 bits hold an integer is an assertion, whoever reads the result."""
    if not may_exceed(node.expr):
        return
    for fits, words, error in bounds:
        if not node.scope.assume(fits(node.expr), symnode.site_hook(), words, error):
            raise error(words)


def may_exceed(e: Expr) -> bool:
    """Whether an integer may have more bits than a number of the graph."""
    return bits(e) > WORD and not all([s.info.size_like for s in e.symbols()])


def keep_to_words(n: Any, converted: bool) -> Any:
    """An operand as the operation has it. One that only an integer without a sign holds is a constant: numbers of the graph have a sign."""
    if type(n) is not torch.SymInt:
        return n
    kept_within(n.node, BEYOND if converted else BEYOND[:2])
    e, scope = n.node.expr, n.node.scope
    if converted or not e.backed or not may_exceed(e):
        return n
    cond = ops.lt(e, 2**63)
    return n if isinstance(cond, Expr) and layout.is_declared(cond) or layout.ask(scope, cond, symnode.site_hook()) else symnode.concrete(n)


def put_number(op: Any, place: Any, value: Any) -> None:
    if type(place) is str:
        op.kwargs[place] = value
    else:
        op.args = (*op.args[:place], value, *op.args[place + 1 :])


RANGES = Column("ends")
RANGES.add(*overloads(("arange",)))


def refuse_ends(op: Any) -> None:
    """Raises what ATen raises for the ends and the step of a range of integers, which it counts in 64 bits whatever their dtype."""
    for v in op.args:
        if type(v) is torch.SymFloat and v.node.expr.backed:
            fits = ops.and_(ops.ge(v.node.expr, -(2.0**63)), ops.lt(v.node.expr, 2.0**63))
            v = 0 if layout.ask(v.node.scope, fits, symnode.site_hook()) else symnode.concrete(v)
        if type(v) is float or type(v) is int and v.bit_length() > 63:
            with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
                torch.full((2,), v, dtype=torch.int64, device="cpu")


BOUNDS = Column("bounds")
BOUNDS.update(dict.fromkeys(overloads(("softshrink",)), (("lambd", ops.ge, 0),)))
BOUNDS.update(dict.fromkeys(overloads(("huber_loss",)), (("delta", ops.gt, 0),)))
"""Settings of which kernels alone ask whether they are in bounds: (name, what has to hold, of which number)."""


CONVERTED = Column("converted")
for _names, _options in (
    ("add add_ sub sub_ rsub addmv addmv_ addr addr_ index_add index_add_", ("alpha", "beta")),
    ("threshold threshold_", ("threshold", "value")),
    ("hardtanh hardtanh_", ("min_val", "max_val")),
    ("pow pow_", ("exponent",)),
    ("logit logit_", ("eps",)),
):
    CONVERTED.update(dict.fromkeys(overloads(_names.split()), _options))
"""Options that kernels convert to the dtype of the result, with a check; they are few of the operators that `CHECKED` are."""


def refuse_options(op: Any) -> None:
    """Raises what ATen raises for an option that varies and its narrow dtype has not; one that fits is guarded to."""
    dtype = op.outs[0].dtype if op.outs and type(op.outs[0]) is TracedTensor else None
    if dtype is not torch.int64 and (dtype not in MOST or dtype in WIDE):
        return
    info = op_info(op.target)
    for name in CONVERTED[op.target]:
        v: Any = argument(info, op.args, op.kwargs, name) if name in info.names else None
        if dtype is torch.int64:
            fits = type(v) is not int or v.bit_length() <= 63
        else:
            fits = type(v) not in VARIES or not v.node.expr.backed or layout.ask(v.node.scope, fit(v.node.expr, dtype), symnode.site_hook())
        if not fits:
            error = tried(op, symnode.concrete)
            if error is not None:
                raise error


def beyond_bounds(op: Any) -> Exception | None:
    """What ATen raises for a setting that is out of bounds. One that varies is guarded to be within."""
    info = op_info(op.target)
    for name, holds, bound in BOUNDS[op.target]:
        v = argument(info, op.args, op.kwargs, name)
        if type(v) in VARIES and v.node.expr.backed:
            within = layout.ask(v.node.scope, holds(v.node.expr, bound), symnode.site_hook())
        else:
            within = type(v) not in (int, float) or bool(holds(v, bound))
        if not within:
            return tried(op, symnode.concrete)
    return None


def unsure(op: Any) -> bool:
    """Whether a setting that has to be in bounds is known to the run alone: ATen looks then."""
    info = op_info(op.target)
    settings = [argument(info, op.args, op.kwargs, name) for name, _, _ in BOUNDS.get(op.target, ())]
    return any([type(v) in VARIES and not v.node.expr.backed for v in settings])


def fit(e: Expr, dtype: torch.dtype) -> Any:
    """That a number is one of this dtype."""
    low = 0 if dtype is torch.uint8 else -MOST[dtype]
    return ops.and_(ops.ge(e, low), ops.le(e, MOST[dtype]))


def implemented(op: Any) -> bool:
    """Whether ATen has code for this operation and the dtypes of its operands, as far as is told before it runs."""
    tensors = op_inputs(op)
    return fits(op, tensors) and why_not(op, tensors) is None and not unsure(op)


def why_not(op: Any, tensors: Sequence[TracedTensor]) -> Exception | None:
    """What ATen says that it does not do for these dtypes, of pointwise operations, or for a text of its settings."""
    usual = not unlike(tensors) and "bitwise" not in op.target._schema.name
    if not usual or beside_texts(op):
        return refusal(known(op)) if pointwise(op.target) and may_try(op) else None
    return refusal(known(op)) if (beside_complex(op) or beside_settings(op)) and may_try(op) else None


def unlike(tensors: Sequence[TracedTensor]) -> bool:
    """Whether there is more, or something else, than floats of one of the usual dtypes."""
    dtypes = {t.dtype for t in tensors}
    return bool(dtypes) and (len(dtypes) > 1 or dtypes.pop() not in ALL)


def together(op: Any) -> Exception | None:
    """What ATen raises for tensors of these dtypes and of likely sizes. None if they are large."""

    def likely(v: Any) -> Any:
        t = type(v)
        if t is TracedTensor:
            sizes = [likely(n) for n in v.sizes]
            if math.prod(sizes) > MOST_TRIED:
                raise OverflowError
            return torch.ones(sizes, dtype=v.dtype, device="cpu")
        return int(v.node.scope.optimization_hint(v.node.expr, 3)) if t is torch.SymInt else STAND.get(t, v)

    key = ("together", op.target, shape_of(op.args), shape_of(op.kwargs))
    if key not in _known:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
            try:
                args, kwargs = tree_map(likely, op.args), tree_map(likely, op.kwargs)
                rows = {len(v) for v in args if isinstance(v, torch.Tensor) and v.ndim == 1}
                if "batch_norm" in op.target._schema.name and rows - {args[0].shape[1]}:  # whose kernel reads beyond them
                    return None
                _known[key] = None
                op.target(*args, **kwargs)
            except OverflowError:
                return None
            except Exception as e:
                _known[key] = e.with_traceback(None)
    return _known[key]


def beside_texts(op: Any) -> bool:
    """Whether an argument is a text."""
    return str in map(type, op.args) or str in map(type, op.kwargs.values())


def beside_complex(op: Any) -> bool:
    """Whether a complex number decides on the dtype that ATen computes in, or stands where only a real one may."""
    return complex in map(type, op.args) or complex in map(type, op.kwargs.values())


def beside_settings(op: Any) -> bool:
    """Whether a factor is a truth (`alpha=True`), or the result is to be of a dtype that may have no code."""
    given = op.kwargs
    return bool(given) and (type(given.get("alpha")) is bool or given.get("dtype") not in (None, *FLOATS))


def pointwise(target: Any) -> bool:
    return torch.Tag.pointwise in target.tags or target._schema.name in POINTWISE


def refusal(error: Exception | None) -> Exception | None:
    """The error, if it is about dtypes: what ATen says of made-up sizes and values does not count."""
    return error if isinstance(error, NotImplementedError) or any([w in str(error) for w in NO_CODE]) else None


def refused(op: Any) -> bool:
    """Whether an operation that nobody reads is there for what eager may raise: ATen has no code for the dtypes of its operands, or nothing
    tells that it has."""
    tensors = op_inputs(op)
    if not tensors or all([t.dtype in ALL or t.layout is not torch.strided for t in tensors]) and not beside_complex(op):
        return False
    schema = op.target._schema
    if not schema.name.startswith("aten::") or any([r.alias_info is not None for r in schema.returns]):
        return False
    halves = all([t.dtype in FLOATS for t in tensors])
    if not may_try(op):
        return not halves or schema.name not in HALVES
    error = known(op)
    return (refusal(error) if halves else error) is not None


def untold(op: Any) -> bool:
    """Whether an operation has operands of unusual dtypes, or is given what it writes its results to, and nothing tells that ATen takes
    them: it may raise when it runs."""
    tensors = op_inputs(op)
    target = op.target
    if not (unlike(tensors) or has_outs(target)) or not target._schema.name.startswith("aten::"):
        return False
    info = op_info(target)
    if not info.writes and None not in info.returns:  # views
        return False
    if target in TOGETHER:
        return together(op) is not None
    if may_try(op):
        return known(op) is not None
    return not (target._schema.name in HALVES and len({t.dtype for t in tensors}) == 1 and tensors[0].dtype in FLOATS)


def may_try(op: Any) -> bool:
    """Whether the operation may be run on made-up operands, to hear what ATen says of their dtypes."""
    target = op.target
    if not pointwise(target) and torch.Tag.reduction not in target.tags and not is_tried(target):
        return False
    if torch.Tag.nondeterministic_seeded in target.tags:
        return False
    if any([t.layout is not torch.strided for t in op_inputs(op)]):
        return False
    counts = [n for v in op.args if type(v) in (list, tuple) for n in v if type(n) is int]
    return max(counts, default=0) <= MOST_COUNTED and all(map(plain, (*op.args, *op.kwargs.values())))


@of_operator
def is_tried(target: Any) -> bool:
    name = target._schema.name
    return name in TRIED or name[-1] == "_" and name[:-1] in TRIED or TO_LISTS.match(name) is not None


@of_operator
def has_outs(target: Any) -> bool:
    """Whether it is given tensors for its results, which may not take them."""
    return any([a.is_out for a in target._schema.arguments])


def plain(v: Any) -> bool:
    """Whether an argument is a tensor, a number or a setting, or holds such alone: no generator, no object of anybody's."""
    t = type(v)
    return t is TracedTensor or t in SETTINGS or t in (list, tuple) and all(map(plain, v))


MOST_COUNTED = 16
"""What is tried makes nothing large of small operands: `repeat`, `pad`."""
NO_CODE = ("not support", "only support", "no longer support", "expected dtype", "not implemented", "argument alpha must", "must be either",
    "Boolean alpha", "cannot be converted to type", "can't be cast to the desired output type", "a non-complex scalar",
    "not yet implemented", "Expected object of scalar type", "to be one of", "same dtype", "should be the same", "expected scalar type",
    "to have same dtype", "mixed dtype", "to have int dtype", "expected scalar_type", "to have dtype", "of scalar type",
    "to have scalar type", "dtype is wrong", "expected BoolTensor", "negative integer powers")
"""What a kernel says of dtypes and kinds of numbers, and of texts that it does not know (the `approximate` of `gelu`)."""


def known(op: Any) -> Exception | None:
    """What ATen raises for small tensors of these dtypes."""
    key = (op.target, shape_of(op.args), shape_of(op.kwargs))
    if key not in _known:
        _known[key] = tried(op)
    return _known[key]


def fits(op: Any, tensors: Sequence[TracedTensor]) -> bool:
    """Whether each plain number among the arguments is one of the dtypes of the tensors beside it; those that vary may not be."""
    narrow = {t.dtype for t in tensors if t.dtype in MOST}
    if any([type(v) is int and v.bit_length() > 63 for v in op.args]):
        return False
    given = (*op.args, *op.kwargs.values())
    if op.target._schema.name in CHECKED:
        into = narrow | {t.dtype for t in op.outs if type(t) is TracedTensor and t.dtype in MOST}
        for v in given if not into <= WIDE else ():
            if type(v) in VARIES and not all([v.node.scope.known_true(fit(v.node.expr, t)) for t in into]):
                return False
    if not narrow:
        return True
    numbers = [v for v in given if type(v) in (int, float) and not -128 < v < 127 and math.isfinite(v)]
    return not any([not -MOST[t] - 1 <= v <= MOST[t] for v in numbers for t in narrow])


def shape_of(v: Any) -> Any:
    """What an argument is, without its values; of numbers that some dtype has not, as much as tells which."""
    t = type(v)
    if t is int:
        return t if 0 <= v < 128 else (t, v < 0, (~v if v < 0 else v).bit_length())
    if t is float:
        return t if 0 <= v < 128 else repr(v)
    if t is TracedTensor:
        return (v.dtype, len(v.sizes), v.device)
    if t in (list, tuple):
        return (t, *map(shape_of, v))
    if t is dict:
        return tuple([(k, shape_of(x)) for k, x in v.items()])
    return v if t in (torch.dtype, str) else t


def small(v: Any, number: Any = None) -> Any:
    t = type(v)
    if t is TracedTensor:
        stand = 1 + 1j if v.dtype.is_complex else 1  # which is no real number
        return torch.full((2,) * len(v.sizes), stand, dtype=v.dtype, device=v.device)
    if t in (list, tuple):
        return t([small(x, number) for x in v])
    if t is dict:
        return {k: small(x, number) for k, x in v.items()}
    return number(v) if t in STAND and number else STAND.get(t, v)


def tried(op: Any, number: Any = None) -> Exception | None:
    """What it raises for small tensors. Numbers that vary are those of `STAND`, or what `number` makes of them."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction(), torch.no_grad():
        try:
            op.target(*small(op.args, number), **small(op.kwargs, number))
        except Exception as e:
            return e.with_traceback(None)
    return None


__all__ = ["implemented", "refuse", "refused", "untold"]
