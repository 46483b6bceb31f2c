"""What happens when an ATen operator meets a traced tensor: work out the results' metadata, append an operation to the trace.

In order: a shape rule (`rules/`), a handler (operators whose results depend on data, constants, in-place changes of metadata),
the operator's own C++ decomposition, and last PyTorch's meta kernels on twins without data.
"""

from __future__ import annotations

import contextlib
import functools
import sys
from typing import Any

from torch.utils._pytree import tree_flatten, tree_map

from pliant.errors import Tripwire
from pliant.graph import custom_ops, layout, symnode
from pliant.graph.layout import contiguous_strides
from pliant.graph.light_shapes import shape_functions
from pliant.graph.operators import Column
from pliant.graph.originals import ORIGINAL, gc, is_grad_enabled, is_inference_mode_enabled, tensors_as_they_were, torch
from pliant.graph.record import PENDING, Op
from pliant.graph.rules import HANDLERS, RULES
from pliant.graph.rules.outs import with_out
from pliant.graph.schema import argument, op_info, written
from pliant.graph.symclasses import quiet
from pliant.graph.symnode import SYMS
from pliant.graph.traced import TracedTensor, Untraceable, is_limit, leaves, make, tensors_of
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr
from pliant.symbolic.static import static_range

NO_TENSOR = frozenset({int, float, bool, str, type(None), torch.SymInt, torch.SymFloat, torch.SymBool, torch.dtype, torch.device})


TO_COPY, SCALAR = torch.ops.aten._to_copy.default, torch.ops.aten.scalar_tensor.default
NUMBER_DTYPES = {
    bool: torch.bool, int: torch.int64, float: torch.float64, complex: torch.complex128,
    torch.SymBool: torch.bool, torch.SymInt: torch.int64, torch.SymFloat: torch.float64,
}  # fmt: skip


def dispatch(trace: Any, func: Any, args: tuple, kwargs: dict) -> Any:
    """Run one ATen operator on traced tensors. Returns what the operator returns, made of traced tensors of `trace`."""
    if kwargs:
        check(trace, func, kwargs.values())
    handler = HANDLERS.get(func)
    if handler is not None:
        return handler(trace, func, args, kwargs)
    check(trace, func, args)
    rule = RULES.get(func)
    if trace.zeros and func in ZERO_RULES:
        out = of_zeros(trace, func, args, rule)
        if out is not NotImplemented:
            return out
    lazy = trace.lazy_bits and any([ORIGINAL.is_conj(t) or ORIGINAL.is_neg(t) for t in tensors_of([args, kwargs])])
    if rule is not None and not lazy:
        out = rule(trace, *args, **kwargs)
        if out is not NotImplemented:
            record(trace, func, args, kwargs, out)
            return out
    if func is TO_COPY and type(args[0]) in NUMBER_DTYPES:  # of a number, to which a transform gives a dtype of its own
        given = {"dtype": kwargs.get("dtype") or NUMBER_DTYPES[type(args[0])], "device": kwargs.get("device")}
        return dispatch(trace, SCALAR, (args[0],), given)
    info = op_info(func)
    if info.writes and not lazy:
        out = with_out(trace, func, args, kwargs)
        if out is not NotImplemented:
            record(trace, func, args, kwargs, out)
            return out
    if info.composite:
        # (views keep that they require gradients there)
        views = torch._C._SetExcludeDispatchKeyGuard(VIEWS, False) if trace.inference else contextlib.nullcontext()
        with trace.mode, views:
            return func._op_dk(torch.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)
    if info.custom:
        fake = custom_ops.fake_kernel(func)
        if fake is not None:
            out, binds = custom_ops.results(trace, func, fake, args, kwargs)
            record(trace, func, args, kwargs, out).binds.extend(binds)
            return out
    try:
        out = through_meta(trace, func, args, kwargs)
    except RuntimeError as e:
        if not is_limit(e):
            raise
        out = through_meta(trace, func, args, kwargs, pinned=True)  # its shape function wants integers
    record(trace, func, args, kwargs, out)
    return out


VIEWS = torch._C.DispatchKey.ADInplaceOrView
MUL = torch.ops.aten.mul.Tensor
ZEROS = torch.ops.aten.zeros.default
ZERO_RULES = {torch.ops.aten.mul.Tensor: (0, 1), torch.ops.aten.div.Tensor: (0,)}
"""Operators that give zeros where one of these arguments is a tensor of zeros as forward derivatives use it: whatever the other one is."""


def of_zeros(trace: Any, func: Any, args: tuple, rule: Any) -> Any:
    """Zeros, if PyTorch gives them without looking at the other argument; NotImplemented if not."""
    are = [type(a) is TracedTensor and a.storage_id in trace.zeros for a in args[:2]]
    if not any([are[i] for i in ZERO_RULES[func]]) or (func is not MUL and all(are)):
        return NotImplemented
    out = rule(trace, *args)
    if out is not NotImplemented:
        record(trace, ZEROS, (list(out.sizes),), {"dtype": out.dtype, "device": out.device}, out)
        trace.zeros.add(out.storage_id)
    return out


def check(trace: Any, func: Any, values: Any) -> None:
    """The tripwire: every tensor among `values` must belong to this trace."""
    for a in values:
        t = type(a)
        if t is TracedTensor:
            if a.owner is not trace.ref:
                raise Tripwire(f"{func} was given a tensor of an abandoned capture, at {symnode.site_hook()}")
        elif t in NO_TENSOR:
            continue
        elif t is list or t is tuple:
            check(trace, func, a)
        elif isinstance(a, torch.Tensor):
            raise Tripwire(
                f"{func} was given a real {t.__name__} of shape {tuple(a.shape)} that the capture does not know, at {symnode.site_hook()}. "
                "Pass it as an argument, or keep it where pliant can see it read (a global, an attribute, a closure)."
            )


def record(trace: Any, func: Any, args: tuple, kwargs: dict, out: Any) -> Op:
    """Append the operation `func(*args, **kwargs) -> out` to the trace."""
    t = type(out)
    if t is TracedTensor or out is None or t in SYMS:
        outs: list[Any] = [out]
        spec: Any = None
    elif (t is tuple or t is list) and not any(type(o) in (tuple, list) for o in out):
        outs, spec = list(out), "flat"
    else:
        outs, spec = tree_flatten(out)
    if trace.stale and any([t.storage_id in trace.stale for t in tensors_of([args, kwargs])]):
        raise Untraceable(func, "it reads what a loop or a branch on data gave back, which may be what was written to since")
    check_sizes(trace, func, args, kwargs, outs)
    info = op_info(func)
    calls = trace.torch_ops
    of_call = bool(calls) and calls[-1].out is PENDING
    if trace.other_default:
        before, kwargs = kwargs, with_dtype(func, info, args, kwargs, outs)
        if of_call and kwargs is not before:
            calls[-1].decomposed = True
    op = Op(func, args, kwargs, outs, spec, symnode.site_hook(), len(calls) - 1 if of_call else -1)
    for x in written(op):
        note_write(trace, func, x)
        if func.__name__.startswith("_foreach_") and not ORIGINAL.is_inference(x):  # its kernels count, tensor by tensor
            torch._C._increment_version((x,))
    op.grad = is_grad_enabled()
    if trace.before is not None:
        op.before, trace.before = trace.before if info.inplace_view else None, None
    trace.ops.append(op)
    return op


def check_sizes(trace: Any, func: Any, args: tuple, kwargs: dict, outs: list) -> None:
    """No size of a result is less than 0, and none has more elements, or bytes of its own, than 64 bits can count, or eager raises, whoever
    reads it: an assertion where it is not known. In a call for which it is not so, PyTorch says what is wrong with these numbers."""
    scope, known = trace.scope, trace.sizes
    for o in outs:
        if type(o) is not TracedTensor:
            continue
        large = False  # a size may be what no memory can be
        for n in o.sizes:
            if type(n) is int:
                large = large or n >= LARGE
                continue
            e = n.node.expr
            if e in known:
                large = large or e in trace.numbers
                continue
            if static_range(e)[0] < 0:
                if scope.is_closed():
                    continue
                if not scope.assume(ops.ge(e, 0), symnode.site_hook(), NEGATIVE):
                    through_meta(trace, func, args, kwargs, pinned=True)
                    raise RuntimeError(NEGATIVE)
                trace.numbers.add(e)
                large = True
            known.add(e)
        if large and not scope.is_closed() and trace.n_forward is None:  # in a backward part nobody asks for sizes
            sizes = [n if type(n) is int else n.node.expr for n in o.sizes]
            total = functools.reduce(ops.mul, sizes, o.dtype.itemsize if o.storage_id == o.vid else 1)
            for n in (*sizes, total):
                if not scope.assume(ops.le(n, 2**63 - 1), symnode.site_hook(), UNCOUNTED):
                    through_meta(trace, func, args, kwargs, pinned=True)
                    raise RuntimeError(UNCOUNTED)
    if func in GIVEN_STRIDES and not scope.is_closed():
        check_memory(trace, func, args, kwargs, outs[0])


def check_memory(trace: Any, func: Any, args: tuple, kwargs: dict, out: TracedTensor) -> None:
    """The same of the memory that is made for these strides."""
    sizes: list[Any] = [n if type(n) is int else n.node.expr for n in out.sizes]
    strides: list[Any] = [n if type(n) is int else n.node.expr for n in out.strides]
    last = functools.reduce(ops.add, [ops.mul(ops.sub(n, 1), s) for n, s in zip(sizes, strides)], 1)
    usual = all([n < LARGE if type(n) is int else static_range(n)[0] >= 0 for n in (*sizes, *strides)])
    if usual or any([type(n) is int and not n for n in sizes]):
        return
    if not trace.scope.assume(ops.le(ops.mul(last, out.dtype.itemsize), 2**63 - 1), symnode.site_hook(), UNCOUNTED):
        through_meta(trace, func, args, kwargs, pinned=True)
        raise RuntimeError(UNCOUNTED)


GIVEN_STRIDES = Column("stretched")
GIVEN_STRIDES.add(torch.ops.aten.empty_strided.default, torch.ops.aten.new_empty_strided.default)
NEGATIVE = "Trying to create tensor with negative dimension"
UNCOUNTED = "numel: integer multiplication overflow"
LARGE = 2**31


def with_dtype(func: Any, info: Any, args: tuple, kwargs: dict, outs: list) -> dict:
    """The keywords of an operator with the dtype that it takes from the default, which the program has changed. Raises Untraceable where it
    takes none, and its result (or what it compares) may be of that dtype."""
    given = leaves([args, kwargs])
    if any([(ORIGINAL.is_floating_point(a) or ORIGINAL.is_complex(a)) for a in given if type(a) is TracedTensor]):
        return kwargs
    made = [o for o in outs if type(o) is TracedTensor and (ORIGINAL.is_floating_point(o) or ORIGINAL.is_complex(o))]
    if "dtype" in info.names:
        return {**kwargs, "dtype": made[0].dtype} if made and argument(info, args, kwargs, "dtype") is None else kwargs
    if made or any([type(a) in (float, complex, torch.SymFloat) for a in given]):
        raise Untraceable(func, "it takes its dtype from the default, which is another one than where the graph begins")
    return kwargs


def note_write(trace: Any, func: Any, written: TracedTensor) -> None:
    """An operator writes to this tensor: what was known of its memory is so no more. Raises Untraceable where the write cannot be told."""
    if spread(written):  # PyTorch refuses most such writes: there, and after what the program does before
        raise Untraceable(func, "it writes to a tensor whose elements share memory")
    if not written.dense:
        for x in trace.inputs:
            if x.storage_id == written.storage_id and not x.dense:
                told_apart(x)
    if written.storage_id in trace.frozen:
        shared = trace.frozen[written.storage_id]
        if not trace.by_value or written.storage_id in shared:
            raise Untraceable(func, "it writes to memory that a loop or a branch on data was given, or gave back")
        trace.stale |= shared
    if written.storage_id in trace.of_inference and not is_inference_mode_enabled():
        raise Untraceable(func, "it writes to a tensor that was made in inference mode")
    forget_content(trace, written)


def forget_content(trace: Any, written: TracedTensor) -> None:
    """What was known of the content of this memory is so no more; if it is from outside, of all that is: inputs may share memory."""
    if trace.known or trace.masks or trace.items:
        outside = {x.storage_id for x in trace.inputs}
        for storage in outside if written.storage_id in outside else (written.storage_id,):
            for memory in (trace.known, trace.masks, trace.items):
                memory.pop(storage, None)


def told_apart(x: TracedTensor) -> bool:
    """Whether no two elements of `x`, from outside, have one place, guarded: kernels that write to it want to know."""
    sizes, strides = ([n if type(n) is int else n.node.expr for n in dims] for dims in (x.sizes, x.strides))
    return layout.apart(sizes, strides, lambda cond: layout.ask(x.trace.scope, cond, symnode.site_hook()))


def spread(x: TracedTensor) -> bool:
    """Whether elements of `x`, which has some, share memory, as those of an expanded tensor do; guarded where that depends on a stride."""
    if x.dense or any([n == 0 if type(n) is int else x.trace.scope.known_true(ops.eq(n.node.expr, 0)) for n in x.sizes]):
        return False
    apart = [stride for n, stride in zip(x.sizes, x.strides, strict=True) if not (type(n) is int and n < 2)]
    return any(s == 0 if type(s) is int else layout.ask(x.trace.scope, ops.eq(s.node.expr, 0), symnode.site_hook()) for s in apart)


# PyTorch's meta kernels ------------------------------------------------------------------------
META = torch.device("meta")


def meta_of(x: TracedTensor) -> torch.Tensor:
    """The twin of `x` on the meta device."""
    m = x.meta
    if m is None:
        with layout.proofs():  # how much memory it would need is asked, and means nothing
            m = torch.empty_strided(x.sizes, x.strides, dtype=x.dtype, device=META)
        if type(x.offset) is not int or x.offset:
            m = ORIGINAL.as_strided(torch.empty_strided((1,), (1,), dtype=x.dtype, device=META), x.sizes, x.strides, x.offset)
        if ORIGINAL.is_conj(x):
            torch._C._set_conj(m, True)
        if ORIGINAL.is_neg(x):
            torch._C._set_neg(m, True)
        x.meta = m
    return m


def pinned_twin(x: TracedTensor) -> torch.Tensor:
    """A twin with every size a number, each guarded."""
    sizes, strides = [[int(symnode.concrete(v)) for v in vs] for vs in (x.sizes, x.strides)]
    if type(x.offset) is int and not x.offset:
        return torch.empty_strided(sizes, strides, dtype=x.dtype, device=META)
    return ORIGINAL.as_strided(torch.empty_strided((1,), (1,), dtype=x.dtype, device=META), sizes, strides, int(symnode.concrete(x.offset)))


def through_meta(trace: Any, func: Any, args: tuple, kwargs: dict, pinned: bool = False) -> Any:
    """Metadata of the results from PyTorch's meta kernels and Python decompositions, sizes symbolic (or `pinned`)."""
    made: dict[int, torch.Tensor] = {}
    twins: dict[int, TracedTensor] = {}
    device = None

    def lower(x: Any) -> Any:
        nonlocal device
        if type(x) is TracedTensor:
            if device is None or (x.device.type != "cpu" and x.sizes):
                device = x.device
            m = made.get(id(x))
            if m is None:
                m = made[id(x)] = pinned_twin(x) if pinned else meta_of(x)
                twins[id(m)] = x
            return m
        if isinstance(x, torch.Generator):
            return None
        return symnode.concrete(x) if pinned else x

    margs = tree_map(lower, args)
    mkwargs = tree_map(lower, kwargs)
    if "device" in mkwargs or (device is None and "device" in op_info(func).names):
        if mkwargs.get("device") is not None:
            device = torch.device(mkwargs["device"])
        if device is None:
            device = torch.device(torch._C._get_default_device())  # type: ignore[attr-defined]
        mkwargs["device"] = META
    if mkwargs.get("pin_memory"):
        mkwargs["pin_memory"] = False
    info = op_info(func)
    try:
        modules = len(sys.modules)
        with quiet(), shape_functions(), layout.metadata(), tensors_as_they_were():
            out = func(*margs, **mkwargs)
        if len(sys.modules) != modules:  # imports leave cycles, some of which hold the frames below: those of the interpreter
            gc.collect(0)
    except NotImplementedError as e:
        for t in twins.values():
            t.meta = None
        said = str(e).splitlines()[0]
        more = "" if NO_KERNEL in said else f" ({said})"
        raise Untraceable(func, f"PyTorch has no shape function for it{more}") from e
    for m in made.values():
        refresh(trace, func, twins[id(m)], m)

    def lift(o: torch.Tensor, alias: tuple[str, bool] | None) -> TracedTensor:
        known = twins.get(id(o))
        if known is not None:
            return known
        base = argument(info, args, kwargs, alias[0]) if alias is not None else None
        return adopt(trace, o, device, base.storage_id if type(base) is TracedTensor else None)

    if type(out) is tuple and len(info.returns) == len(out) > 1:
        return tuple(lift_all(lift, o, a) for o, a in zip(out, info.returns))
    return lift_all(lift, out, info.returns[0] if info.returns else None)


NO_KERNEL = "attempted to run this operator with Meta tensors"
"""PyTorch's words for just that."""


def lift_all(lift: Any, o: Any, alias: Any) -> Any:
    """`lift` every tensor. (A function that refers to itself is a cycle, and would keep the trace alive.)"""
    if isinstance(o, torch.Tensor):
        return lift(o, alias)
    return type(o)(lift_all(lift, v, alias) for v in o) if isinstance(o, (tuple, list)) else o


def plain(sizes: Any) -> tuple:
    """Sizes or strides as a tuple of ints and `SymInt`s that are really symbolic."""
    return tuple(s if type(s) is int else plain_one(s) for s in sizes)


def plain_one(s: Any) -> Any:
    if type(s) is torch.SymInt:
        c = s.node.expr.const
        return s if c is None else c
    return s


def row_major_but_for_empty(sizes: tuple, strides: tuple) -> bool:
    """Whether these are row-major strides as PyTorch's own code has them, which counts each symbolic size as one at least."""
    step: Any = 1
    found = False
    for size, stride in zip(reversed(sizes), reversed(strides), strict=True):
        e = stride if type(stride) is int else stride.node.expr
        if e is not step and not (type(e) is int and type(step) is int and e == step):
            return False
        if type(size) is not int:
            step, found = ops.mul(ops.max_(size.node.expr, 1), step), True
        elif size > 1:
            step = ops.mul(step, size) if type(step) is not int else step * size
        if type(step) is Expr and step.const is not None:
            step = step.const
    return found


def adopt(trace: Any, m: torch.Tensor, device: Any, storage_id: int | None) -> TracedTensor:
    """A traced tensor with the metadata of the meta tensor `m`."""
    if m.layout is not torch.strided or m.is_quantized:
        raise Untraceable("result", f"layout {m.layout} is not supported")
    sizes, strides, offset = plain(ORIGINAL.size(m)), plain(ORIGINAL.stride(m)), plain_one(ORIGINAL.storage_offset(m))
    if row_major_but_for_empty(sizes, strides):
        strides = contiguous_strides(sizes)
    x = make(trace, sizes, strides, m.dtype, offset, storage_id, device, is_dense(sizes, strides))
    copy_bits(trace, m, x)
    return x


def copy_bits(trace: Any, source: torch.Tensor, x: TracedTensor) -> None:
    """Carry the lazy conjugate and negative bits over to `x`. Once a trace has met one, PyTorch's own kernels do the bookkeeping."""
    set_bits(trace, x, ORIGINAL.is_conj(source), ORIGINAL.is_neg(source))


def set_bits(trace: Any, x: TracedTensor, conj: bool, neg: bool) -> None:
    if conj:
        torch._C._set_conj(x, True)
        trace.lazy_bits = True
    if neg:
        torch._C._set_neg(x, True)
        trace.lazy_bits = True


def twin(x: TracedTensor) -> TracedTensor:
    """Another tensor object over the memory of `x`, laid out as `x` is."""
    y = make(x.trace, x.sizes, x.strides, x.dtype, x.offset, x.storage_id, x.device, x.dense)
    copy_bits(x.trace, x, y)
    return y


def is_dense(sizes: tuple, strides: tuple) -> bool:
    """Whether the strides are, structurally, those of a new row-major tensor."""
    step: Any = 1
    for n, s in zip(reversed(sizes), reversed(strides)):
        if s is not step and not same(s, step):
            return False
        if type(n) is not int:
            step = n * step
        elif n > 1:
            step = step * n
    return True


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are the same expression; never asks the scope."""
    if type(a) is int or type(b) is int:
        return type(a) is type(b) and a == b
    return a is b or a.node.expr is b.node.expr


def all_same(a: tuple, b: tuple) -> bool:
    """`same`, of as many sizes here as there."""
    if len(a) != len(b):
        return False
    for x, y in zip(a, b):
        if x is not y and not same(x, y):
            return False
    return True


def agree(now: Any, before: Any) -> bool:
    if same(now, before):
        return True
    return type(now) is int and type(before) is torch.SymInt and before.node.scope.simplify(before.node.expr).const == now


def refresh(trace: Any, func: Any, x: TracedTensor, m: torch.Tensor) -> None:
    """After an in-place operator: give `x` the metadata that its twin has now."""
    sizes, strides = plain(ORIGINAL.size(m)), plain(ORIGINAL.stride(m))
    if m.ndim == len(x.sizes) and all(map(agree, sizes, x.sizes)) and all(map(agree, strides, x.strides)):
        return
    if not op_info(func).inplace_view:
        raise Untraceable(func, "resizes a tensor in place")
    if x.requires_grad and not trace.in_transform and is_or_has_view(trace, x):
        if not trace.by_autograd:
            raise Untraceable(func, "gives another layout to a tensor with gradients that is a view, or of which there are views")
        trace.relaid = True
    set_metadata(trace, x, plain(ORIGINAL.size(m)), plain(ORIGINAL.stride(m)), plain_one(ORIGINAL.storage_offset(m)))


def is_or_has_view(trace: Any, x: TracedTensor) -> bool:
    """Whether an operation has made `x` a view, or a view of it."""
    for op in trace.ops:
        outs, given = tensors_of(op.outs), tensors_of([op.args, op.kwargs])
        ours = any([t is x for t in outs]), any([t is x for t in given])
        if ours[0] and any([t is not x and t.storage_id == x.storage_id for t in given]):
            return True
        if ours[1] and any([t is not x and t.storage_id == x.storage_id for t in outs]):
            return True
    return False


def set_metadata(trace: Any, x: TracedTensor, sizes: tuple, strides: tuple, offset: Any) -> None:
    """Change the sizes of `x` in place, here and in C++; the trace's journal can undo it."""
    trace.before = (x.sizes, x.strides, x.offset)
    trace.journal.append((x, *trace.before))
    apply_metadata(trace, x, sizes, strides, offset)


def apply_metadata(trace: Any, x: TracedTensor, sizes: tuple, strides: tuple, offset: Any) -> None:
    donor = make(trace, sizes, strides, x.dtype, offset, x.storage_id, x.device)
    copy_bits(trace, x, donor)
    with torch._C._DisableTorchDispatch():
        x.data = donor
    x.sizes, x.strides, x.offset, x.dense, x.meta = sizes, strides, offset, is_dense(sizes, strides), None
    if not x.dense:
        layout.note_loose(trace.scope, sizes)


def on_class(func: Any, args: tuple, kwargs: dict) -> Any:
    """`TracedTensor.__torch_dispatch__`: reached from a handler's own operators (a mode is off while it handles one)."""
    for x in tree_flatten((args, kwargs))[0]:
        if type(x) is TracedTensor:
            trace = x.trace
            if trace is None or not trace.depth:
                raise Untraceable(func, "a traced tensor was used while its trace was not recording")
            return dispatch(trace, func, args, kwargs)
    raise Tripwire(f"{func} reached a traced tensor without one")


TracedTensor.handler = staticmethod(on_class)
