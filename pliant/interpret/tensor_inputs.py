"""Tensors as inputs of a capture: which of their sizes and strides are symbols, which are pinned, and the guard that says so."""

from __future__ import annotations

import functools
from types import BuiltinMethodType
from typing import TYPE_CHECKING, Any

import torch

from pliant import native
from pliant.graph import masked_tensors, wrapped
from pliant.graph.distributed_tensors import LOCAL
from pliant.graph.layout import contiguous_strides
from pliant.graph.operands import op_inputs, views_without
from pliant.graph.originals import ORIGINAL, gradients
from pliant.graph.schema import written
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.trace import rebased
from pliant.graph.traced import MASKED, READ_BEFORE, REBASED, WRAPPED, Reconsider, TracedTensor
from pliant.guards import views
from pliant.guards.guard import TensorSpec
from pliant.guards.source import Source
from pliant.interpret import declared
from pliant.interpret.declared import SPECIALIZED_INTS
from pliant.interpret.state import Break, vm
from pliant.symbolic import ops

if TYPE_CHECKING:
    from pliant.interpret.world import World


STATE = (torch.nn.Parameter, torch.nn.Buffer)


class StrideIs:
    """`stride symbol == product of sizes`: a relation of the guard program that the scope need not know."""

    __slots__ = ("count", "expr", "stride")

    def __init__(self, stride: Any, expr: Any, count: Any = None) -> None:
        self.stride = stride
        self.expr = expr
        self.count = count  # the number of elements, where it may be 0: then any stride will do

    def symbols(self) -> tuple:
        return tuple(dict.fromkeys((self.stride, *self.expr.symbols(), *(self.count.symbols() if self.count is not None else ()))))

    def postfix(self, index: dict[str, int]) -> list[tuple]:
        is_so = [*self.stride.postfix(index), *self.expr.postfix(index), ("eq",)]
        return is_so if self.count is None else [*is_so, *self.count.postfix(index), ("const", 0), ("eq",), ("or",)]

    def python(self, rename: Any = None) -> str:
        is_so = f"{self.stride.python(rename)} == {self.expr.python(rename)}"
        return is_so if self.count is None else f"{is_so} or {self.count.python(rename)} == 0"

    def __repr__(self) -> str:
        return self.python()


def static_dims(world: World, v: Any, source: Source) -> tuple[bool, ...]:
    """Which dims are specialized from the start, if nothing is declared of them."""
    if world.dynamic is False:
        return (True,) * ORIGINAL.dim(v)
    h = world.history
    if h is not None and h.is_static(source):
        return (True,) * ORIGINAL.dim(v)
    if type(v) in STATE or is_module_state(source) or isinstance(v, torch.nn.Parameter):
        if h is None or not h.is_dynamic(source):
            return (True,) * ORIGINAL.dim(v)
    opens = h is not None and not h.keeps_ones
    if opens:
        h.saw_sizes(source, v.shape)
    return tuple([n in SPECIALIZED_INTS and not (opens and h.is_dynamic(source.size(i))) for i, n in enumerate(v.shape)])


def keep_rebased_apart(world: World) -> None:
    """Guard that an input which is written with gradients flowing may be, and shares its memory with no other: the node of the region
    works on a copy of it, which is written back in the end. Raises Reconsider where that would not do.
    """
    inputs = [t for t in world.trace.inputs if id(t) in world.real]
    with torch._C.DisableTorchFunction():
        rebinds = [t for t in inputs if rebased(world.trace, t)]
    for t in rebinds:
        real = world.real[id(t)]
        others = [o for o in inputs if o is not t]
        if t.vid in world.parts:
            raise Reconsider("input", "writes with gradients to what has a masked one", WRAPPED)
        if not views.takes_gradients_in_place(real) or any([native.share_memory(real, world.real[id(o)]) for o in others]):
            raise Reconsider("input", "writes with gradients to a view of a leaf, or to memory that another input shares", REBASED)
        world.guard(t.source.apply("takes_gradients_in_place"), "EQ_MATCH", True)
        for o in others:
            world.guard(t.source, "STORAGE_OVERLAP", ((t.source, o.source), (False,)))


def check_rebased(trace: Any, n: int) -> None:
    """Break the graph where the operations from number `n` on write with gradients to an input, to what was detached, or has a view."""
    own = {t.storage_id for t in trace.inputs}
    for op in trace.ops[:n]:
        given = {t.vid: t.storage_id for t in op_inputs(op)}
        own.update([t.storage_id for t in op.outs if type(t) is TracedTensor and t.vid not in given and t.storage_id in given.values()])
    if any([t.requires_grad and t.storage_id in own for op in trace.ops[n:] for t in written(op)]):
        for t in trace.inputs:  # the operation is behind the break, and the history that it has given an input is none
            if t.grad_fn is not None and t.vid not in trace.leaves:
                with trace.paused():
                    ORIGINAL.detach_(t)
        raise Break("PL0012", "a write with gradients to what was detached, to a view of a leaf, or to memory that inputs or views share")


def check_read(trace: Any, n: int) -> None:
    """Break the graph where the operations from number `n` on write to what one with gradients has read. Eager refuses that backward part,
    if ever gradients arrive there: PyTorch sees it, too, where the write is outside of the region that has kept it."""
    own = trace.ops
    for i in range(n, len(own)):
        memory = {t.storage_id for t in written(own[i])}
        if memory and any([t.storage_id in memory for op in own[:i] if any_requires(op.outs) for t in op_inputs(op)]):
            raise Break("PL0011", READ_BEFORE)


def any_requires(outs: Any) -> bool:
    return any([type(t) is TracedTensor and t.requires_grad for t in outs])


def check_views(trace: Any, n: int) -> None:
    """Break the graph where the operations from number `n` on make a view, without gradients, of what has some. An earlier capture of this
    code has shown such a leaf, or what has gradients from nothing else."""
    if views_without(trace.ops[n:]):
        raise Break("PL0012", "a view that is made without gradients is a leaf, whose gradients the program may want")


def unheard(real: Any, name: str) -> Any:
    """An attribute of a tensor from outside, or what a method without arguments says: neither its class nor a mode is told."""
    with torch._C.DisableTorchFunction():
        value = getattr(real, name)
        return value() if type(value) is BuiltinMethodType else value


def held(t: Any, name: str) -> Any:
    """An attribute that a tensor from outside holds in C, guarded."""
    return vm.world.locate(unheard(vm.world.real[id(t)], name), t.source.attr(name))


def is_leaf(t: Any) -> bool:
    """Whether a tensor has no history; guarded, where it is from outside."""
    real = vm.world.real.get(id(t))
    if not t.requires_grad or real is None:
        return t.is_leaf
    return bool(vm.world.locate(views.is_leaf(real), t.source.apply("is_leaf")))


def is_module_state(source: Source) -> bool:
    """Parameters and buffers keep static sizes: `…__dict__['_parameters' | '_buffers'][name]`, and so do the tensors that they wrap."""
    if source.op == "attr" and source.arg == LOCAL and source.base is not None:
        source = source.base
    b = source.base
    while source.op == "key" and b is not None and b.op == "dict" and b.base is not None:  # an attribute
        source, b = b.base, b.base.base
    return source.op == "key" and b is not None and b.op == "key" and b.arg in ("_parameters", "_buffers")


def make_tensor(world: World, v: Any, source: Source) -> Any:
    static = static_dims(world, v, source)
    marks = declared.marks_of(world.declared, v, source)
    scope = world.scope
    shape, stride = tuple(v.shape), ORIGINAL.stride(v)
    if not marks and all(static):
        return place(world, v, source, shape, stride, ORIGINAL.storage_offset(v), shape, stride)
    sizes: list[Any] = []
    spec_sizes: list[int | None] = []
    if marks:
        static = tuple([marks[i] is declared.Mark.STATIC if i in marks else s for i, s in enumerate(static)])
    for i, n in enumerate(shape):
        if static[i]:
            sizes.append(n)
            spec_sizes.append(n)
        elif i in marks:
            sizes.append(declared.symbol(world, marks[i], n, source.size(i)))
            spec_sizes.append(None)
        else:
            name = world.new_symbol(source.size(i))
            open_ = world.history is not None and world.history.is_dynamic(source.size(i))
            lo, dim = (0, world.history.open_dim) if open_ else (2 if n > 1 else 0, None)
            sizes.append(to_sym(scope, scope.backed(name, hint=n, lo=lo, source=source.size(i), size_like=True, dim=dim)))
            spec_sizes.append(None)
    strides, spec_strides = trace_strides(world, source, shape, stride, sizes, all(static))
    offset: Any = ORIGINAL.storage_offset(v)
    if not all(static):
        name = world.new_symbol(source.offset())
        offset = to_sym(scope, scope.backed(name, hint=offset, size_like=True, source=source.offset()))
    return place(world, v, source, tuple(sizes), tuple(strides), offset, tuple(spec_sizes), tuple(spec_strides))


def place(world: World, v: Any, source: Source, sizes: tuple, strides: tuple, offset: Any, spec_sizes: tuple, spec_strides: tuple) -> Any:
    """The input, and its guard."""
    requires_grad = v.requires_grad
    masked = requires_grad and vm.refused and MASKED + str(source) in vm.refused and WRAPPED not in vm.refused
    t = world.trace.input(v, source, sizes, strides, offset, requires_grad and not masked)
    if masked:
        t = with_masked_gradient(t, source)
    if type(v) is not torch.Tensor:
        t.pytype = type(v)
    world.tensors[id(v)] = t
    world.real[id(t)] = v
    world.keep.append(v)
    spec = TensorSpec(type(v), v.dtype, v.device, requires_grad, len(sizes), spec_sizes, spec_strides, v)
    world.guard(source, "TENSOR_MATCH", spec)
    return t


def masked_parts(data: Any, source: Source) -> list[Any]:
    """What gradients of a masked tensor are given for, or of a plain one whose gradient is masked: the data, and nothing but a place for
    the gradient's mask."""
    trace, real = vm.trace, vm.world.real.get(id(data))
    like = real if real is not None else data
    mask = trace.input(like, source.apply("mask_of_gradient"), data.sizes, contiguous_strides(data.sizes), 0, False)
    trace.mask_parts.add(mask.vid)
    return [data, mask]


def with_masked_gradient(t: Any, source: Source) -> Any:
    """A plain input with gradients, which may be masked."""
    own = masked_parts(t, source)
    for x, name in zip(own, masked_tensors.NAMES, strict=True):
        vm.world.parts[x.vid] = (source, masked_tensors.NAMES, name, None)
    with gradients(True):
        out = wrapped.CarryMasked.apply([t], *[wrapped.leaf_of(x) for x in own])
    return out


def trace_strides(
    world: World, source: Source, shape: tuple, stride: tuple, sizes: list, static: bool
) -> tuple[list[Any], list[int | None]]:
    """Strides as products of sizes where the example's are such products (guarded), else as symbols of their own."""
    if static:
        return list(stride), list(stride)
    n = len(shape)
    out: list[Any] = [None] * n
    spec: list[int | None] = [None] * n
    scope = world.scope
    done: list[int] = []
    if tuple(stride) == contiguous_strides(shape) and any([may_be_small(scope, s, h) for s, h in zip(sizes, shape)]):
        return packed_strides(world, source, stride, sizes, contiguous_strides(tuple(sizes)))
    for i in sorted(range(n), key=lambda i: (stride[i], -i)):
        st = stride[i]
        if st in (0, 1) or shape[i] == 0:
            out[i] = spec[i] = st
            done.append(i)
            continue
        for j in reversed(done):
            if shape[j] not in (0, 1) and stride[j] * shape[j] == st:
                out[i] = out[j] * sizes[j]
                break
        if out[i] is None:
            name = world.new_symbol(source.stride(i), "t")
            out[i] = to_sym(scope, scope.backed(name, hint=st, size_like=True, source=source.stride(i)))
        elif type(out[i]) is int:
            spec[i] = st
        else:
            name = world.new_symbol(source.stride(i), "t")
            world.relations.append(StrideIs(scope.backed(name, hint=st, size_like=True, source=source.stride(i)), out[i].node.expr))
        done.append(i)
    return out, spec


def may_be_small(scope: Any, size: Any, hint: int) -> bool:
    """Whether a symbolic size is, or may come to be, 0 or 1: then strides do not tell by themselves how a tensor is laid out."""
    return type(size) is not int and (hint in SPECIALIZED_INTS or scope.range(size.node.expr)[0] < 1)


def packed_strides(world: World, source: Source, stride: tuple, sizes: list, packed: tuple) -> tuple[list[Any], list[int | None]]:
    """Strides of a row-major input as products of its sizes; those of a tensor without elements may be anything."""
    scope = world.scope
    count = functools.reduce(ops.mul, [expr_of(s, scope) for s in sizes])
    spec: list[int | None] = []
    for i, p in enumerate(packed):
        spec.append(p if type(p) is int else None)
        if type(p) is not int:
            name = world.new_symbol(source.stride(i), "t")
            s = scope.backed(name, hint=stride[i], lo=0, source=source.stride(i))
            world.relations.append(StrideIs(s, p.node.expr, count))
    return list(packed), spec
