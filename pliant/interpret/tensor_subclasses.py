"""Subclasses of tensors: classes with code of their own for torch functions (`__torch_function__`) or operators (`__torch_dispatch__`).

A class of the first kind holds its data itself. What stands for it is a traced tensor whose `pytype` is the class; a torch function of it
is a call of its `__torch_function__`, which is interpreted. C++ says which function that is told: it is given a *probe*, a tensor without
anything in it, in the place of each such tensor.

A class of the second kind wraps others. Autograd sees the wrapper, and below autograd its `__torch_dispatch__` takes the operator apart.
So in a capture wrappers are real: an object of the very class, with symbolic sizes, whose attributes hold traced tensors. C++ calls the
class's code, which is interpreted; what that comes to reaches the trace. On the interpreter's stack a proxy is in its place
(`wrappers.py`). A wrapper from outside is read attribute by attribute, each guarded; one that outlives the graph is made again from what
it was made of. `graph/wrapped.py` has what gradients need at both edges.
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any, cast

from torch.utils import _python_dispatch as python_dispatch

from pliant.errors import Tripwire
from pliant.graph import distributed_tensors, masked_tensors
from pliant.graph.distributed_tensors import is_distributed
from pliant.graph.originals import ORIGINAL, gradients, torch
from pliant.graph.traced import WRAPPED, TracedTensor, Untraceable, is_limit, tensors_of
from pliant.graph.wrapped import ALIAS, Lift, in_slot, leaf_of, parts_of
from pliant.guards import views
from pliant.guards.source import Source
from pliant.interpret import in_torch, jagged, policy, shadows, tensor_dicts, tensor_inputs
from pliant.interpret.attributes import bound, getattr_, lookup, under
from pliant.interpret.calls import LOOKASIDES, call, graph_call, inline
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import captured_call, to_graph
from pliant.interpret.plain_wrappers import plain_wrapper
from pliant.interpret.slots import BINARY_METHODS
from pliant.interpret.state import Break, vm, whole_loops
from pliant.interpret.tensor_inputs import StrideIs, is_leaf
from pliant.interpret.told_of_methods import refuse_replaced
from pliant.interpret.types.row import row
from pliant.interpret.wrappers import Made, is_stand, is_wrapped, on_wrappers, shown, stand_for, wrapper_of

Tensor = torch.Tensor
MAKE: Any = Tensor._make_wrapper_subclass
NO_DISPATCH = torch._C._disabled_torch_dispatch_impl
NO_FUNCTION = torch._C._disabled_torch_function_impl
PLAIN_FUNCTION = Tensor.__dict__["__torch_function__"].__func__
MAKERS = (torch.tensor, torch.as_tensor, torch.asarray)  # they ask no class, and make plain tensors
BUILT_IN = (Tensor, torch.nn.Parameter, torch.nn.Buffer, TracedTensor)


def lookaside(fn: Any) -> Callable:
    """Register a replacement `(args, kwargs) -> value`."""

    def register(replacement: Callable) -> Callable:
        LOOKASIDES[fn] = replacement
        return replacement

    return register


# -- classes -----------------------------------------------------------------------------------------------------------
def wraps(cls: Any) -> bool:
    """Whether operators of tensors of this class are handed to code of the class."""
    return unwrapped(lookup(cls, "__torch_dispatch__")) is not NO_DISPATCH


def function_of(cls: Any) -> Any:
    """The `__torch_function__` of a class; UNSET if torch functions do not ask it."""
    found = unwrapped(lookup(cls, "__torch_function__"))
    return UNSET if found is NO_FUNCTION else found


def unwrapped(raw: Any) -> Any:
    return raw.__func__ if type(raw) in (classmethod, staticmethod) else raw


def left_to_cpython(cls: Any) -> bool:
    """Whether the class is one of PyTorch's, whose code CPython runs on what is traced."""
    return jagged.is_jagged(cls) or is_distributed(cls)


def overrides(cls: Any) -> bool:
    """Whether the class has a `__torch_function__` of its own, which is interpreted."""
    return function_of(cls) not in (UNSET, PLAIN_FUNCTION) and not left_to_cpython(cls)


def is_subclass(x: Any) -> bool:
    """Whether a traced tensor is for the program one of a class that it, or a library, has made."""
    return x.pytype not in BUILT_IN


# -- from outside ------------------------------------------------------------------------------------------------------
def locate(world: Any, v: Any, source: Source, as_tensor: Callable[[Any, Any, Source], Any]) -> Any:
    """What stands for a tensor of a subclass."""
    cls = type(v)
    if cls is TracedTensor:
        return v
    known = world.tensors.get(id(v))
    if known is not None:
        if known.source is not source:
            world.guard(source, "ALIAS", known.source)
        return known
    if not admitted(cls) or not whole_loops() or type(lookup(cls, "__getattribute__")) is types.FunctionType:
        world.guard(source, "TYPE_MATCH", cls)
        return world.adopt(v, source)
    with torch._C.DisableTorchFunction():
        if not wraps(cls):
            world.has_subclasses = True
            return as_tensor(world, v, source)
        if jagged.is_jagged(cls) and jagged_wrapper_fits(v):
            return jagged_wrapper(world, v, source)
        if is_distributed(cls) and distributed_tensors.fits(v):
            return vm.locate_distributed(world, v, source)
        if not plain_wrapper(v) or (v.requires_grad and not differentiable(v)):
            world.guard(source, "TYPE_MATCH", cls)
            return world.adopt(v, source)
        return wrapper(world, v, source)


LAZY: Any = torch.nn.parameter.UninitializedParameter.__mro__[1]
OF_TRACERS = "torch._subclasses."  # tensors that other tracers make: they show PyTorch what they are not


METACLASSES = (type(Tensor), type(torch.nn.Parameter))


def admitted(cls: type) -> bool:
    return not issubclass(cls, (LAZY, TracedTensor)) and not cls.__module__.startswith(OF_TRACERS) and type(cls) in METACLASSES


def wrapper(world: Any, v: Any, source: Source) -> Any:
    """The proxy for a wrapper from outside. What it wraps is located; its own sizes are those of a part wherever they agree."""
    cls = type(v)
    world.guard(source, "TYPE_MATCH", cls)
    with python_dispatch._disable_current_modes():
        world.guard(source.apply("form_of_wrapper"), "EQ_MATCH", views.form_of_wrapper(v))
    held = v.__dict__
    inside = source.dict()
    parts = {name: world.locate(x, inside.key(name)) for name, x in held.items() if isinstance(x, Tensor)}
    sizes, strides, offset = metadata_of(world, v, source, list(parts.values()))

    def build() -> Any:
        w = MAKE(cls, sizes, strides=strides, storage_offset=offset, dtype=v.dtype, device=v.device)
        for name, x in held.items():
            located = parts.get(name, UNSET)
            w.__dict__[name] = wrapper_of(world.locate(x, inside.key(name)) if located is UNSET else located)
        return w

    if v.requires_grad:
        names, _ = parts_of(v)
        inner = tensor_inputs.masked_parts(parts[names[0]], source) if masked_tensors.is_masked(cls) else [parts[name] for name in names]
        w = with_gradients(source, names, inner, build)
    else:
        with torch._C._DisableTorchDispatch():
            w = build()
    return stands_for(world, w, v, source)


def stands_for(world: Any, w: Any, v: Any, source: Source) -> Any:
    """The proxy for a wrapper `v` from outside, of which `w` is the like in the capture."""
    stand = stand_of(w)
    stand.source = source
    world.tensors[id(v)] = stand
    world.real[id(stand)] = v
    world.keep.append(v)
    return stand


def differentiable(v: Any) -> bool:
    """Whether gradients for a wrapper are gradients for its parts: plain floating-point tensors, as its class tells."""
    if masked_tensors.is_masked(type(v)):
        data = v.__dict__.get(masked_tensors.DATA)
        return type(data) in BUILT_IN and ORIGINAL.is_floating_point(data) and not data.requires_grad
    if not hasattr(type(v), "__tensor_flatten__") or not hasattr(type(v), "__tensor_unflatten__"):
        return False
    held = [v.__dict__.get(name) for name in parts_of(v)[0]]
    return all([type(x) in BUILT_IN and ORIGINAL.is_floating_point(x) and not x.requires_grad for x in held])


def with_gradients(source: Source, names: list[str], inner: list[Any], build: Callable[[], Any], placement: Any = None) -> Any:
    """The wrapper of an input that has gradients: those of its parts."""
    for name, x in zip(names, inner, strict=True):
        vm.world.parts[x.vid] = (source, names, name, placement)
    leaves = [leaf_of(x) for x in inner]
    with gradients(True):
        return Lift.apply(build, names, placement, *leaves)


def jagged_wrapper_fits(v: Any) -> bool:
    held = jagged.held(v)
    given = [x for x in held.values() if x is not None]
    plain = all([type(x) in BUILT_IN and x.layout is torch.strided and x.device.type != "meta" and not x.requires_grad for x in given])
    return plain and (ORIGINAL.is_floating_point(held["_values"]) or not v.requires_grad)


def jagged_wrapper(world: Any, v: Any, source: Source) -> Any:
    """The proxy for a jagged tensor from outside."""
    cls, inside = type(v), source.dict()
    world.guard(source, "TYPE_MATCH", cls)
    with python_dispatch._disable_current_modes():
        world.guard(source.apply("form_of_wrapper"), "EQ_MATCH", views.form_of_wrapper(v))
        jagged.dummy()
    world.guard(inside.key("_ragged_idx"), "EQ_MATCH", v._ragged_idx)
    parts: dict[str, Any] = {}
    for name, x in jagged.held(v).items():
        cached = name in ("min_seqlen", "max_seqlen")
        if cached and x is None:
            parts[name] = None
            world.guard(inside.key("_metadata_cache"), "DICT_CONTAINS", (name, name in v._metadata_cache), name)
        else:
            parts[name] = world.locate(x, (inside.key("_metadata_cache") if cached else inside).key(name))

    def build() -> Any:
        jagged.ragged_size(parts["_offsets"] if parts["_lengths"] is None else parts["_lengths"])
        return jagged.build(cls, parts, v._ragged_idx)

    vm.trace.wrapping.add(cls)
    if v.requires_grad:
        w = with_gradients(source, ["_values"], [parts["_values"]], build)
    else:
        w = build()
    return stands_for(world, w, v, source)


def metadata_of(world: Any, v: Any, source: Source, parts: list[Any]) -> tuple[tuple, tuple, Any]:
    """Sizes, strides and offset of the proxy for a wrapper, guarded."""
    form = source.apply("sizes_of_wrapper")
    with python_dispatch._disable_current_modes():
        flat = views.sizes_of_wrapper(v)
    for p in parts:
        real = world.real.get(id(p))
        if real is None:
            continue
        if (*ORIGINAL.size(real), *ORIGINAL.stride(real), ORIGINAL.storage_offset(real)) == flat:
            values = (*p.sizes, *p.strides, p.offset)
            break
    else:
        static = all(tensor_inputs.static_dims(world, v, source))
        values = flat if static else tuple([world.locate(n, form.index(i)) for i, n in enumerate(flat)])
    world.guard(form, "TYPE_MATCH", tuple)
    for i, (n, value) in enumerate(zip(flat, values, strict=True)):
        at = form.index(i)
        if type(value) is int:
            world.guard(at, "EQ_MATCH", n)
        elif value.node.expr not in [s for s in value.node.expr.symbols() if world.symbols.get(s.name) is at]:
            name = world.new_symbol(at, "t")
            world.guard(at, "INT")
            world.relations.append(StrideIs(world.scope.backed(name, hint=n, source=at), value.node.expr))
    n = len(flat) // 2
    return tuple(values[:n]), tuple(values[n : 2 * n]), values[2 * n]


def stand_of(w: Any) -> Any:
    """The proxy for a wrapper of a capture."""
    vm.world.has_subclasses = True
    stand = stand_for(w, Made)
    stand.pytype = type(w)
    return stand


# -- made by the program -----------------------------------------------------------------------------------------------
@lookaside(MAKE)
def l_make(args: tuple, kw: dict) -> Any:
    """`torch.Tensor._make_wrapper_subclass(cls, sizes, …)`."""
    cls = args[0] if args else None
    if not isinstance(cls, type) or not issubclass(cls, Tensor) or id(cls) in vm.world.own_functions or not whole_loops():
        raise Break("PL0011", "a tensor of a class that is made here", clean=True)
    given = tuple([to_graph(MAKE, a) for a in args[1:]])
    named = {k: to_graph(MAKE, a) for k, a in kw.items()}
    with torch._C._DisableTorchDispatch():
        w = MAKE(cls, *given, **named)
    stand = stand_of(w)
    vm.world.wrappers_made[id(w)] = (given, named)
    return stand


# -- attributes ----------------------------------------------------------------------------------------------------------
COMPUTED = (types.GetSetDescriptorType, property)
HISTORY = frozenset(("grad_fn", "data", "grad", "_base", "_version", "__dict__"))


def attribute(t: Any, name: str, raw: Any) -> Any:
    """An attribute of a tensor of a subclass; UNSET if it is that of any tensor. `raw`: what tensors have under this name."""
    computed = type(raw) in COMPUTED
    if left_to_cpython(t.pytype) and computed and name not in HISTORY and name not in ("requires_grad", "is_leaf"):
        return graph_call(getattr, (t, name), {})
    if computed and name != "__dict__" and torch._C._is_torch_function_enabled() and overrides(t.pytype):
        if name == "_version":
            raise Break("PL0012", f"the version of a {t.pytype.__name__}, whose __torch_function__ has a say in it", clean=True)
        return told(getattr, (t, name), {})
    own = own_attribute(t, name)
    if own is not UNSET or not is_wrapped(t):
        return own
    if name == "requires_grad":
        return t.requires_grad
    if name == "is_leaf":
        return wrapper_of(t).is_leaf if vm.world.real.get(id(t)) is None else is_leaf(t)
    if name in HISTORY and (name != "grad" or vm.world.real.get(id(t)) is None):
        raise Break("PL0012", f"tensor attribute {name!r} of a wrapper", clean=True)
    return graph_call(getattr, (t, name), {}) if computed and name != "grad" else UNSET


OF_OTHERS = frozenset("requires_grad_ register_hook numpy tolist retain_grad __deepcopy__ __reduce_ex__ detach_".split())


def method(t: Any, fn: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """A method of all tensors, called on one of a subclass; UNSET if nothing is different."""
    if is_wrapped(t):
        if name in OF_OTHERS:
            raise Break("PL0012", f"Tensor.{name} of a wrapper", clean=True)
    elif not torch._C._is_torch_function_enabled():
        return UNSET
    elif not overrides(t.pytype):
        refuse_replaced(name)
        return UNSET
    return graph_call(fn, (t, *args), kwargs, name)


def call_as_it_is(fn: Any, args: tuple, kw: dict) -> Any:
    """A function of PyTorch about jagged tensors, which is run as it is."""
    with python_dispatch._disable_current_modes():
        jagged.dummy()
    vm.trace.wrapping.add(jagged.class_())
    vm.world.has_subclasses = True
    args = tuple([a if type(a) is TracedTensor else to_graph(fn, a) for a in args])
    return native_code(fn, args, {k: a if type(a) is TracedTensor else to_graph(fn, a) for k, a in kw.items()})


def makes_jagged(fn: Any) -> None:
    def make(args: tuple, kw: dict) -> Any:
        if not whole_loops():
            raise Break("PL0034", "a jagged tensor, for a backend that is not pliant's own", clean=True)
        return call_as_it_is(fn, args, kw)

    LOOKASIDES[fn] = make


for _fn in (torch.nested.nested_tensor_from_jagged, torch.nested.to_padded_tensor):
    makes_jagged(_fn)


def own_attribute(t: Any, name: str) -> Any:
    """An attribute that the class of `t`, or `t` itself, has beside those of all tensors; UNSET if there is none."""
    cls = t.pytype
    raw = lookup(cls, name)
    of_tensors = raw is lookup(Tensor, name)
    if not of_tensors and type(raw) is property:
        return call(under(raw, "fget", cls, name), (t,), {})
    if is_wrapped(t):
        found = of_wrapper(t, name)
        if found is not UNSET:
            return found
    if raw is UNSET:
        own = lookup(cls, "__getattr__")
        return call(own, (t, name), {}) if own is not UNSET and tensor_dicts.get(t, name) is UNSET else UNSET
    if of_tensors or name == "__dict__":  # a class beside Tensor has one of its own
        return UNSET
    if type(raw) is types.FunctionType:
        if jagged.is_jagged(cls):
            LOOKASIDES.setdefault(raw, functools.partial(call_as_it_is, raw))
        return types.MethodType(raw, t)
    if type(raw) is classmethod:
        return types.MethodType(under(raw, "__func__", cls, name), cls)
    if type(raw) is staticmethod:
        return under(raw, "__func__", cls, name)
    kind = type(raw)
    describes = hasattr(kind, "__get__")
    if describes and type(lookup(kind, "__get__")) is not types.FunctionType or kind is functools.cached_property:
        raise Break("PL0012", f"attribute {name!r} of a {cls.__name__}, which a {kind.__qualname__} makes", clean=True)
    if describes and (hasattr(kind, "__set__") or hasattr(kind, "__delete__")):
        return bound(raw, t, cls, cls, name)
    if tensor_dicts.get(t, name) is not UNSET:
        return UNSET
    return bound(raw, t, cls, cls, name) if describes else getattr_(cls, name)


def length(t: Any) -> Any:
    """`len(t)`, of which a class that overrides torch functions is told; UNSET if nothing is different."""
    return inline(Tensor.__len__, (t,), {}) if overrides(t.pytype) and torch._C._is_torch_function_enabled() else UNSET


def iterated(t: Any) -> Any:
    """`iter(t)`, likewise."""
    return inline(Tensor.__iter__, (t,), {}) if overrides(t.pytype) and torch._C._is_torch_function_enabled() else UNSET


def of_wrapper(t: Any, name: str) -> Any:
    """What a wrapper holds under this name."""
    w = wrapper_of(t)
    if is_distributed(t.pytype):
        if name == "_spec":
            raise Break("PL0012", "the spec of a distributed tensor", clean=True)
        return shown(w._local_tensor) if name == distributed_tensors.LOCAL else UNSET
    d = w.__dict__
    if name == "__dict__":
        raise Break("PL0007", "the __dict__ of a tensor")
    if name not in d:
        return UNSET
    written = vm.world.tensor_writes.get((id(t), name))
    if written is not None:
        return written[1]
    return shown(d[name])


def set_own(t: Any, name: str, value: Any) -> bool:
    """`t.name = value` of a wrapper. False if that is a matter of all tensors."""
    raw = lookup(t.pytype, name)
    if raw is not UNSET and raw is not lookup(Tensor, name) and type(raw) is property:
        if raw.fset is None:
            property.__set__(raw, t, None)  # AttributeError
        call(under(raw, "fset", t.pytype, name), (t, value), {})
        return True
    own = lookup(t.pytype, "__setattr__")
    if type(own) is types.FunctionType and own is not lookup(Tensor, "__setattr__"):
        raise Break("PL0012", f"attribute {name!r} of a tensor whose class has a __setattr__", clean=True)
    if not is_wrapped(t) or type(lookup(Tensor, name)) in COMPUTED:
        return False
    w, held = wrapper_of(t), wrapper_of(value)
    w.__dict__[name] = held
    in_slot(w, name, held)  # whoever reads it here looks into the `__dict__`; the class's own code for CPython does not
    if vm.world.real.get(id(t)) is not None:
        vm.world.tensor_writes[(id(t), name)] = (t, value)
    return True


class Super:
    """`super(start, tensor)`."""

    __slots__ = ("start", "tensor")

    def __init__(self, start: Any, tensor: Any) -> None:
        if not isinstance(start, type) or not issubclass(tensor.pytype, start):
            raise TypeError("super(type, obj): obj must be an instance or subtype of type")
        self.start = start
        self.tensor = tensor


def nothing(*args: Any, **kwargs: Any) -> None:
    """`__init__` of a tensor, which is whole when it is made."""


LOOKASIDES[nothing] = lambda args, kw: None


def of_super(o: Super, name: str) -> Any:
    """An attribute of what `super()` gives: that of the first class behind `start` which has it."""
    t, mro, raw = o.tensor, o.tensor.pytype.__mro__, cast(Any, UNSET)
    for cls in mro[mro.index(o.start) + 1 :]:
        if name not in cls.__dict__:
            lookup(cls, name)  # passed over: it may be given one
            continue
        raw = lookup(cls, name)
        if cls in Tensor.__mro__:
            break
        if type(raw) is types.FunctionType:
            return types.MethodType(raw, t)
        if type(raw) is property:
            return call(under(raw, "fget", cls, name), (t,), {})
        if type(raw) is classmethod:
            return types.MethodType(under(raw, "__func__", cls, name), t.pytype)
        return under(raw, "__func__", cls, name) if type(raw) is staticmethod else getattr_(cls, name)
    if name == "__init__":
        return types.MethodType(nothing, t)
    if raw is UNSET:
        raise AttributeError(f"'super' object has no attribute {name!r}")
    if type(raw) is classmethod:
        return types.MethodType(raw.__func__, t.pytype)
    if type(raw) in COMPUTED:
        return graph_call(getattr, (t, name), {})
    if not hasattr(type(raw), "__get__"):
        return getattr_(cls, name)
    return types.MethodType(raw, t) if type(raw) is types.FunctionType else raw.__get__(t)


row(name="super of a tensor", stands=(Super,), getattr=of_super, type=lambda o: super)


# -- torch functions -----------------------------------------------------------------------------------------------------
class Probe(Tensor):
    """What C++ is given in the place of a tensor whose class has a say about torch functions, to hear which function it is told."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple = (), kwargs: Any = UNSET) -> Any:
        raise Untraceable(func, "a probe outside of a capture")


PROBED = Probe.__dict__["__torch_function__"].__func__


REPLACED = (PROBED.__code__, PLAIN_FUNCTION.__code__)


def among(value: Any, found: list[Any]) -> list[Any]:
    """The tensors of subclasses in the arguments of a torch function, in order."""
    t = type(value)
    if t is TracedTensor:
        if value.pytype not in BUILT_IN:
            found.append(value)
    elif t in (list, tuple) or issubclass(t, (list, tuple)):
        for x in value:
            among(x, found)
    elif t is dict:
        for x in value.values():
            among(x, found)
    elif t is slice:
        among((value.start, value.stop, value.step), found)
    elif t in vm.world.tensor_likes:
        found.append(value)
    return found


def class_of(x: Any) -> type:
    return x.pytype if type(x) is TracedTensor else type(x)


def in_order(tensors: list[Any]) -> list[type]:
    """The classes whose `__torch_function__` is asked, in the order in which PyTorch asks."""
    order: list[type] = []
    for t in tensors:
        cls = class_of(t)
        if cls in order or function_of(cls) is UNSET:
            continue
        at = next((i for i, other in enumerate(order) if issubclass(cls, other)), len(order))
        order.insert(at, cls)
    return order


def swapped(v: Any, swap: Callable[[Any], Any]) -> Any:
    """The arguments of a torch function with other tensors in the place of these."""
    if isinstance(v, Tensor):
        return swap(v)
    t = type(v)
    if t in (list, tuple):
        return t([swapped(x, swap) for x in v])
    if issubclass(t, tuple) and hasattr(t, "_fields"):
        return t(*[swapped(x, swap) for x in v])
    if t is dict:
        return {k: swapped(x, swap) for k, x in v.items()}
    if t is slice:
        return slice(*[swapped(x, swap) for x in (v.start, v.stop, v.step)])
    return v


def to_probe(x: Any) -> Any:
    if type(x) is not TracedTensor or x.pytype in BUILT_IN:
        return x
    probes = vm.world.probes
    for p, stand in probes.values():
        if stand is x:
            return p
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():  # no mode is told of it
        p = Tensor._make_subclass(Probe, torch.empty(0))
    probes[id(p)] = (p, x)
    return p


def from_probe(x: Any) -> Any:
    return vm.world.probes[id(x)][1] if type(x) is Probe else x


def call_torch(tensors: list[Any], record: Callable[..., Any], fn: Any, args: tuple, kwargs: dict, under_modes: bool) -> Any:
    """A torch function of tensors of subclasses. `record`: how one of plain tensors is captured."""
    if vm.world.in_transform and not all([type(t) is TracedTensor and (is_stand(t) or jagged.is_jagged(t.pytype)) for t in tensors]):
        raise Break("PL0030", "a function transform of tensors of a subclass: which of them keep their class, C++ decides", clean=True)
    order = in_order(tensors) if torch._C._is_torch_function_enabled() and fn not in MAKERS else []
    if any([is_distributed(class_of(t)) for t in tensors]):
        return vm.call_distributed(fn, args, kwargs)
    if any([jagged.is_jagged(class_of(t)) for t in tensors]):
        return native_code(fn, args, kwargs)
    if under_modes or any([overrides(cls) for cls in order]):
        return told(fn, args, kwargs)
    if order:
        if not all([issubclass(order[0], cls) for cls in order]):
            raise Break("PL0011", f"{getattr(fn, '__name__', fn)} of tensors of classes that are no relatives", clean=True)
        refuse_replaced(fn.__name__ if type(fn) in (types.MethodDescriptorType, types.WrapperDescriptorType) else "")
    if any([type(t) is TracedTensor and is_wrapped(t) for t in tensors]):
        out = on_parts(fn, args, kwargs)
    else:
        out = record(fn, args, kwargs)
    return of_class(out, order[0]) if order else out


def native_code(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A torch function of wrappers of PyTorch's own, whose code is run as it is."""
    refuse_gradients(fn, args, kwargs)
    if fn is torch.nn.functional.scaled_dot_product_attention:
        given = attention(args, kwargs)
        if given is not None:
            return inline(in_torch.jagged_attention, given, {})
    return taken_apart(fn, args, kwargs)


ATTENTION = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")


def attention(args: tuple, kwargs: dict) -> tuple | None:
    """What `in_torch.jagged_attention` is given for a call that it answers."""
    given = dict(zip(ATTENTION, args, strict=False)) | kwargs
    parts = [given.pop(name, None) for name in ATTENTION[:3]]
    scale = given.pop("scale", None)
    if any(given.values()) or not all([type(t) is TracedTensor and jagged.is_jagged(t.pytype) for t in parts]):
        return None
    inner = [wrapper_of(t) for t in parts]
    first = inner[0]
    fits = all([w._ragged_idx == 2 and ORIGINAL.dim(w) == 4 and w._lengths is None and w._offsets is first._offsets for w in inner])
    return (*parts, scale) if fits and first.device.type == "cpu" else None


def refuse_gradients(fn: Any, args: tuple, kwargs: dict) -> None:
    if WRAPPED in vm.refused and torch.is_grad_enabled() and any([t.requires_grad for t in tensors_of([args, kwargs])]):
        raise Break("PL0011", f"{getattr(fn, '__name__', fn)} of wrappers, whose gradients cannot be captured", clean=True)


def taken_apart(fn: Any, args: tuple, kwargs: dict) -> Any:
    """What C++ makes of a torch function of wrappers."""
    try:
        return on_wrappers(lambda a, k: captured_call(fn, a, k), args, kwargs)
    except (RuntimeError, NotImplementedError) as e:
        if is_limit(e):
            raise Break("PL0011", f"{getattr(fn, '__name__', fn)} of wrappers: {str(e).splitlines()[0]}") from e
        raise


def on_parts(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A torch function of wrappers: C++ takes it to operators, and these to the code of the class."""
    world = vm.world
    refuse_gradients(fn, args, kwargs)
    wrapped = {id(t): t for t in among([args, kwargs], []) if type(t) is TracedTensor and is_wrapped(t)}
    outside = [t for t in wrapped.values() if world.real.get(id(t)) is not None]
    before = [(t, wrapper_of(t), wrapper_of(t).grad_fn, wrapper_of(t)._version) for t in outside]
    with torch._C.DisableTorchFunctionSubclass():
        if type(fn) is types.FunctionType:  # what CPython runs for it would start the code of the classes past the interpreter
            return inline(fn, args, kwargs)
        out = taken_apart(fn, args, kwargs)
    for t, w, node, version in before:
        if w.grad_fn is not node:
            raise Break("PL0011", f"a {t.pytype.__name__} from outside is written with gradients")
        if w._version != version:
            world.calls.append((torch.autograd.graph.increment_version, (t,), {}))
    return out


def told(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A torch function of which the classes or modes that ask for it are told: by C++, or by the function itself if it is Python's."""
    if type(fn) is types.FunctionType:
        return inline(fn, args, kwargs)
    names = BINARY_METHODS.get(fn)
    if names is not None and len(args) == 2:  # some operators are Python methods of tensors
        first = type(args[0]) is TracedTensor
        special = lookup(Tensor, (names[2] or names[0]) if first else names[1])
        if type(special) is types.FunctionType:
            return inline(special, args if first else args[::-1], kwargs)
    probes, vm.world.probes = vm.world.probes, {}
    in_c = fn._op if isinstance(fn, torch._ops.OpOverload | torch._ops.OpOverloadPacket) else fn  # not what Python code tells
    try:
        return swapped(captured_call(in_c, swapped(args, to_probe), swapped(kwargs, to_probe)), from_probe)
    except Tripwire:
        raise Break("PL0011", f"{getattr(fn, '__name__', fn)} of a tensor whose class has a __torch_function__", clean=True) from None
    except TypeError as e:  # of operators that no class could do
        if len(e.args) == 1 and type(e.args[0]) is str:
            e.args = (of_classes(e.args[0], among([args, kwargs], [])),)
        raise
    finally:
        vm.world.probes = probes


def of_classes(words: str, tensors: list[Any]) -> str:
    """Words about probes, as they are about the tensors behind them."""
    for t in tensors:
        words = words.replace(f"'{Probe.__name__}'", f"'{class_of(t).__name__}'", 1)
    return words


OF_EQUALITY = torch._C.TensorBase.__eq__  # C++ tells the first operand's class alone


@lookaside(PROBED)
def l_probed(args: tuple, kw: dict) -> Any:
    """What C++ says to a probe: the classes of the tensors behind the probes are asked, one after the other."""
    _, func, _, *given = args
    given = swapped([v for v in given if v is not UNSET], from_probe)  # no keywords where the call had none: the class's own default counts
    relevant = given[0][:1] if func is OF_EQUALITY else given
    return asked(in_order(among(relevant, [])), func, given)


def asked(order: list[type], func: Any, given: list) -> Any:
    """What the first class says that has an answer. `given`: the arguments, and the keywords if it is told of them."""
    for cls in order:
        raw = lookup(cls, "__torch_function__")
        if type(raw) is types.FunctionType or type(raw) is classmethod and type(raw.__func__) is property:
            raise Break("PL0011", f"the __torch_function__ of {cls.__name__} is no class method: PyTorch warns, or has its own way")
        out = call(getattr_(cls, "__torch_function__"), (func, tuple(order), *given), {})
        if out is not NotImplemented:
            return out
    return NotImplemented


# A generator of CPython's would put the mode back when an attempt that was given up is collected: once more, and for good.
policy.register(torch.overrides._pop_mode_temporarily.__wrapped__, policy.INLINE)  # type: ignore[attr-defined]


@lookaside(PLAIN_FUNCTION)
def l_plain(args: tuple, kw: dict) -> Any:
    """`torch.Tensor.__torch_function__`: the function itself, its results made tensors of the class."""
    names = ("cls", "func", "types", "args", "kwargs")
    values = dict(zip(names, args)) | kw
    cls, func = values["cls"], values["func"]
    given, named = values.get("args", ()), values.get("kwargs") or {}
    for part in (given, named):  # they may have come through a graph break
        shadows.read_all(vm.world, part)
    if not all([issubclass(cls, t) for t in values["types"]]):
        return NotImplemented
    with torch._C.DisableTorchFunctionSubclass():
        out = call(func, tuple(given), dict(named))
    return out if func in torch.overrides.get_default_nowrap_functions() else of_class(out, cls)


def of_attribute(out: Any, cls: type) -> Any:
    """What PyTorch has worked out for an attribute of a tensor of the class (`T`, `real`): of the class, if it is a tensor."""
    return of_class(out, cls) if type(out) is TracedTensor and torch._C._is_torch_function_enabled() else out


def has_slots(cls: Any) -> bool:
    """Whether its objects are laid out otherwise than tensors: a result cannot become one behind the graph (`support.of_class`)."""
    return bool(cls.__basicsize__ != Tensor.__basicsize__)


def of_class(out: Any, cls: type) -> Any:
    """Results of the default `__torch_function__`: tensors of the class, views of the plain ones."""
    if cls is Tensor:
        return out
    if type(out) is TracedTensor:
        if issubclass(out.pytype, cls):
            return out
        if lookup(Tensor, "as_subclass") is not ORIGINAL.as_subclass:
            raise Break("PL0011", "'as_subclass' of tensors was replaced, which PyTorch calls for the results of subclasses", clean=True)
        if is_wrapped(out) or wraps(cls):
            raise Break("PL0011", f"a plain result of operators of {cls.__name__}, which is made one of that class", clean=True)
        if has_slots(cls):
            raise Break("PL0011", f"a result made a {cls.__name__}, whose objects have slots", clean=True)
        with torch._C.DisableTorchFunction():
            out = graph_call(ALIAS, (out,), {})
        out.pytype = cls
        vm.world.has_subclasses = True
        return out
    if isinstance(out, list | tuple):  # (named results of PyTorch, too; a named tuple of the program's raises there, as it does in eager)
        return type(out)([of_class(x, cls) for x in out])
    return out


vm.subclass_method = method
