"""The memory behind a tensor: `x.data`, read, written through and assigned; `set_`, `resize_` and `detach_`.

`x.data` is the memory of `x` without its history, and with a version counter of its own. In the graph it is `detach`. What is written
through it is written to the memory of `x`, whose version does not tell; what leaves the capture is read off the real tensor. Where the
graph is another backend's, or gradients flow past such a write to an input, the capture starts again with a break where `.data` is read.

A tensor that is given other memory is another value of the graph from then on (`graph/rebinding.py`). So only what the program has made
is given some in the graph.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.control_flow import FLOWS
from pliant.graph.layout import contiguous_strides
from pliant.graph.originals import ORIGINAL, data_of, math, set_data, torch
from pliant.graph.rebinding import rebind
from pliant.graph.rules.shape import is_packed
from pliant.graph.schema import op_info, written
from pliant.graph.traced import DATA, TracedTensor
from pliant.interpret import given_memory
from pliant.interpret.calls import KEYWORDS, METHOD_LOOKASIDES, graph_call
from pliant.interpret.state import Break, Restart, vm, whole_loops
from pliant.interpret.tensor_inputs import held
from pliant.interpret.wrappers import is_stand, is_wrapped

RESTART = -1  # the serial of no frame: break at every `.data`


def read(t: Any) -> Any:
    """`t.data` of a traced tensor."""
    if vm.break_at_data or DATA in vm.refused:
        raise Break("PL0012", "a write through .data")
    if t.pytype not in (torch.Tensor, torch.nn.Parameter):  # what is read off the real tensor has a class and versions of its own
        raise Break("PL0012", f".data of a {t.pytype.__name__}", clean=True)
    told = vm.trace.torch_call(data_of, (t,), {})
    told.out = d = t.data
    if id(t) not in vm.world.given:  # else the real tensor has that memory when the graph is done, not before
        vm.world.data_of[id(d)] = (d, t)
    vm.world.data_views[id(d)] = d
    return d


def follow(ops: list) -> None:
    """Operations that were just recorded: views of a `.data` are ones too; what is written through one is written without a word."""
    views, trace = vm.world.data_views, vm.trace
    for op in ops:
        info = op_info(op.target)
        named = {**dict(zip(info.names, op.args, strict=False)), **op.kwargs}
        for v in written(op):
            if id(v) in views:
                if info.inplace_view or vm.exploring or vm.world.in_transform or any([o.target in FLOWS for o in trace.ops]):
                    raise Restart(RESTART, 0, "PL0012", "a write through .data")
                trace.data_memory.add(v.storage_id)
                op.unheard = True
        base = next((v for v in named.values() if id(v) in views), None)
        if base is not None:
            views.update((id(o), o) for o in op.outs if getattr(o, "storage_id", None) == base.storage_id)


# -- other memory ------------------------------------------------------------------------------------------------------------
def own(t: Any, what: str, told: bool = False) -> None:
    """Raises Break unless `t` may be given other memory in the graph. `told`: whether graphs for other backends can say so."""
    made_here = type(t) is TracedTensor and vm.world.real.get(id(t)) is None and t.source is None and t.constant is None
    if not made_here or is_stand(t) or is_wrapped(t) or t.pytype not in (torch.Tensor, torch.nn.Parameter) or not (told or whole_loops()):
        raise Break("PL0039", f"{what} of a tensor from outside", clean=True)
    trace = vm.trace
    if t.requires_grad and t.vid not in trace.own_leaves or id(t) in vm.world.data_of or id(t) in vm.world.retained:
        raise Break("PL0039", f"{what} of a tensor with a history", clean=True)
    if any([i.storage_id == t.storage_id for i in trace.inputs]):
        raise Break("PL0039", f"{what} of a view of a tensor from outside", clean=True)
    if vm.exploring or trace.exits or trace.lazy_bits or t.storage_id in trace.frozen or any([op.target in FLOWS for op in trace.ops]):
        raise Break("PL0039", f"{what} behind a branch or loop on data", clean=True)


def given(t: Any, u: Any, what: str, told: bool = False) -> None:
    """Give `t` the memory and the layout of `u`."""
    own(t, what, told)
    plain = type(u) is TracedTensor and u.pytype in (torch.Tensor, torch.nn.Parameter) and not is_stand(u) and not is_wrapped(u)
    if not plain or u.device != t.device:
        raise Break("PL0039", f"{what} with what is no plain tensor", clean=True)
    if u.storage_id in vm.trace.of_inference or t.storage_id in vm.trace.of_inference or vm.trace.inference:
        raise Break("PL0039", f"{what} with tensors of inference mode", clean=True)
    if DATA in vm.refused:
        raise Break("PL0039", f"{what}, and gradients of what has that memory", clean=True)
    world = vm.world
    world.unusual()
    version = ORIGINAL._version.__get__(t)
    if t is u:
        return
    call = vm.trace.torch_call(set_data, (t, u), {}) if told else None
    old = rebind(vm.trace, t, u)
    if call is not None:
        call.out = t
    old_views = [(key, d) for key, (d, base) in world.data_of.items() if base is t]
    world.data_of.update((key, (d, old)) for key, d in old_views)
    world.keep.append(old)
    world.rebound[id(t)] = t
    vm.trace.data_memory.add(t.storage_id)  # writes to it are told by its own version
    assert ORIGINAL._version.__get__(t) == version


def assign(t: Any, u: Any) -> None:
    """`t.data = u`."""
    if given_memory.from_outside(t):
        given_memory.assign(t, u)
        return
    own(t, "an assignment to .data", True)
    if t.requires_grad and type(u) is TracedTensor and u.dtype is not t.dtype:
        raise Break("PL0039", "an assignment to .data of another dtype", clean=True)
    given(t, u, "an assignment to .data", True)


PLACE = {"storage_offset", "size", "stride"}


def set_(t: Any, args: tuple, kw: dict) -> Any:
    """`t.set_()`, `t.set_(source)`, `t.set_(source, storage_offset, size, stride)`."""
    values = dict(zip(("source", "storage_offset", "size", "stride"), args, strict=False)) | kw
    own(t, "set_()")
    u = values.pop("source", None)
    if t.requires_grad or args and u is None or len(args) > 4:
        raise Break("PL0039", "set_() of a tensor with gradients, or with a storage", clean=True)
    if u is None:
        if values:
            raise Break("PL0039", "set_() without a source", clean=True)
        u = graph_call(torch.empty, ((0,),), {"dtype": t.dtype, "device": t.device})
    elif type(u) is not TracedTensor or u.dtype is not t.dtype or u.requires_grad or values and values.keys() != PLACE:
        raise Break("PL0039", "set_() with a storage, or a tensor of another dtype or with gradients", clean=True)
    elif values:
        u = part(u, values["size"], values["stride"], values["storage_offset"])
    given(t, u, "set_()")
    torch._C._increment_version((t,))
    return t


def part(u: Any, size: Any, stride: Any, offset: Any) -> Any:
    """What `set_(u, offset, size, stride)` shows of the memory of `u`: counted from where `u` begins, and inside of it."""
    numbers = (*size, *stride, offset) if type(size) in SIZES and type(stride) in SIZES and len(size) == len(stride) else (None,)
    if not all([type(n) in (int, torch.SymInt) for n in numbers]) or not all([vm.truth(n >= 0) for n in numbers]):
        raise Break("PL0039", "set_() with sizes, strides or an offset that are none", clean=True)
    if not is_packed(u):
        raise Break("PL0039", "set_() with a tensor that is not contiguous, which PyTorch refuses", clean=True)
    last = offset + sum([(n - 1) * step for n, step in zip(size, stride)])
    if any([vm.truth(n == 0) for n in size]) or not vm.truth(last < math.prod(u.sizes)):
        raise Break("PL0039", "set_() with a tensor whose memory would grow", clean=True)
    return graph_call(torch.as_strided, (u, size, stride, u.offset + offset), {})


SIZES = (tuple, list, torch.Size)


def alone(t: Any) -> bool:
    """Whether the memory of `t` is its own, whole, and nobody else's."""
    return t.dense and type(t.offset) is int and not t.offset and t.storage_id == t.vid and not has_others(t)


def has_others(t: Any) -> bool:
    """Whether results of other instructions have the memory of `t`. (One instruction may take several operations to make it.)"""
    makers = [op for op in vm.trace.ops if any([type(u) is TracedTensor and u.storage_id == t.storage_id for u in op.outs])]
    places = {(id(op.site.code), op.site.offset) if op.site is not None else None for op in makers}
    return len(places) > 1 or any([len(op.outs) > 1 for op in makers])


def empty(t: Any) -> bool:
    return any([type(n) is int and n == 0 for n in t.sizes])


def resize_(t: Any, args: tuple, kw: dict) -> Any:
    """`t.resize_(*sizes)`: fewer elements of the same memory, or more of new memory of which the rest is not set."""
    own(t, "resize_()")
    sizes = args[0] if len(args) == 1 and isinstance(args[0], (tuple, list)) else args
    n, wanted = math.prod(t.sizes), math.prod(sizes)
    whole = type(n) is int and n == 0 or alone(t)
    if kw or t.requires_grad or not all([type(s) in (int, torch.SymInt) for s in sizes]) or not whole:
        raise Break("PL0039", "resize_() of a view, of shared memory, or with a memory format", clean=True)
    if bool(wanted <= n):
        u = graph_call(torch.as_strided, (t, tuple(sizes), contiguous_strides(tuple(sizes))), {})
    else:
        flat = graph_call(torch.empty, ((wanted,),), {"dtype": t.dtype, "device": t.device})
        if not (type(n) is int and n == 0):
            start = graph_call(ORIGINAL.narrow, (flat, 0, 0, n), {}, "narrow")
            graph_call(ORIGINAL.copy_, (start, graph_call(ORIGINAL.view, (t, -1), {}, "view")), {}, "copy_")
        u = graph_call(ORIGINAL.view, (flat, tuple(sizes)), {}, "view")
    given(t, u, "resize_()")
    torch._C._increment_version((t,))
    return t


def resize_as_(t: Any, args: tuple, kw: dict) -> Any:
    if len(args) != 1 or kw or type(args[0]) is not TracedTensor:
        raise Break("PL0039", "resize_as_() with a memory format", clean=True)
    return resize_(t, tuple(args[0].sizes), {})


def written_to(out: Any, fn: Any, args: tuple, kw: dict) -> Any:
    """`fn(…, out=out)` where that has no elements, and no views, so that it gets the memory that `fn` makes."""
    single = type(out) is TracedTensor
    outs = [out] if single else list(out) if type(out) in (tuple, list) else []
    if not outs or not all([type(t) is TracedTensor and empty(t) and not has_others(t) for t in outs]):
        return NotImplemented
    for t in outs:
        own(t, "out=")
    before = vm.trace.snapshot()
    made = graph_call(fn, args, kw)
    found = [made] if single else list(made)
    if [type(u) is TracedTensor and u.dtype for u in found] != [t.dtype for t in outs] or any([t.requires_grad for t in (*outs, *found)]):
        vm.trace.rollback(before)
        raise Break("PL0011", f"{fn.__name__} with out= of another dtype, or with gradients", clean=True)
    if all([len(t.sizes) == len(u.sizes) and all([vm.truth(n == m) for n, m in zip(t.sizes, u.sizes)]) for t, u in zip(outs, found)]):
        vm.trace.rollback(before)
        return NotImplemented  # it is not resized, and keeps its strides
    for t, u in zip(outs, found, strict=True):
        given(t, u, "out=")
        torch._C._increment_version((t,))
    return out if single else getattr(torch.return_types, f"{type(made).__name__}_out", type(made))(tuple(outs))


KEYWORDS["out"] = written_to


def detach_(t: Any, args: tuple, kw: dict) -> Any:
    """`t.detach_()`: the history of a tensor made here ends."""
    if args or kw or is_stand(t) or is_wrapped(t) or not whole_loops() or vm.exploring or id(t) in vm.world.retained:
        raise Break("PL0039", "detach_() of a tensor of a transform, or for a backend that is not pliant's own", clean=True)
    if vm.world.real.get(id(t)) is not None or t.source is not None or t.vid in vm.trace.own_leaves or t.pytype is not torch.Tensor:
        raise Break("PL0039", "detach_() of a tensor from outside, a leaf, or of a subclass, whose results are views", clean=True)
    others = [u for op in vm.trace.ops for u in op.outs if u is not t and type(u) is TracedTensor and u.storage_id == t.storage_id]
    if any([u.requires_grad for u in others]):
        raise Break("PL0039", "detach_() of a tensor of which there are views with a history", clean=True)
    with torch._C._DisableTorchDispatch():
        ORIGINAL.detach_(t)
    return t


def is_view(t: Any, args: tuple, kw: dict) -> bool:
    """`t._is_view()`: what stands for a tensor from outside is none."""
    real = vm.world.real.get(id(t))
    if real is None or is_stand(t) or is_wrapped(t):
        return bool(ORIGINAL._is_view(t))
    return held(t, "_base") is not None


for _name, _fn in (("_is_view", is_view), ("set_", set_), ("resize_", resize_), ("resize_as_", resize_as_), ("detach_", detach_)):
    METHOD_LOOKASIDES[(torch.Tensor, _name)] = _fn
