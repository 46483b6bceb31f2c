"""Tensors: outside ones are inputs of the graph, and `TracedTensor` stands for each of them and for every result."""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack

from pliant.graph import implemented, layout
from pliant.graph.dispatch import all_same
from pliant.graph.originals import ORIGINAL, math, operator, torch
from pliant.graph.symclasses import as_int
from pliant.graph.symnode import concrete
from pliant.graph.traced import LEAF_VIEWS, TracedTensor
from pliant.guards import source as S
from pliant.guards import views
from pliant.interpret import (
    attributes,
    datafield,
    globalstate,
    in_torch,
    indexing,
    late_text,
    tape,
    tensor_dicts,
    tensor_inputs,
    tensor_subclasses,
    waiting,
    walks,
)
from pliant.interpret.attributes import lookup, not_yet
from pliant.interpret.calls import METHOD_LOOKASIDES, call, graph_call, inline, interp, tensor_method
from pliant.interpret.capture import UNSET
from pliant.interpret.gate import KEYED, captured_call
from pliant.interpret.library_internals import guard_inside
from pliant.interpret.shadows import has
from pliant.interpret.slots import BINARY_METHODS, COMPARE_METHODS, PLAIN_OPERANDS, SYMBOLS, as_length
from pliant.interpret.state import Break, vm
from pliant.interpret.told_of_methods import refuse_replaced
from pliant.interpret.type_names import type_name
from pliant.interpret.types.row import row
from pliant.interpret.world import TENSOR_TYPES, World
from pliant.interpret.wrappers import is_stand, is_wrapped

FunctionType, MethodType = types.FunctionType, types.MethodType


# -- where they come from ---------------------------------------------------------------------------------------------
def locate_tensor(world: World, v: Any, source: S.Source) -> Any:
    """The traced input for a real tensor: sizes symbolic unless 0, 1, a parameter's, or declared static."""
    r = world.tensors.get(id(v))
    if r is not None:
        if r.source is not source:
            world.guard(source, "ALIAS", r.source)
        return r
    if torch._C._len_torch_function_stack():  # what is asked of it here is no question of the program's
        with torch._C.DisableTorchFunction():
            return new_tensor(world, v, source)
    return new_tensor(world, v, source)


def locate_subclass(world: World, v: Any, source: S.Source) -> Any:
    return waiting.locate(world, v, source) if waiting.fits(v) else tensor_subclasses.locate(world, v, source, locate_tensor)


def new_tensor(world: World, v: Any, source: S.Source) -> Any:
    plain = v.layout is torch.strided and not v.is_quantized and not v.is_nested and v.device.type != "meta"
    if not plain or torch._C._functorch.is_functorch_wrapped_tensor(v):
        world.guard(source, "TYPE_MATCH", type(v))
        world.guard(source.apply("kind_of_tensor"), "EQ_MATCH", views.kind_of_tensor(v))  # it has no class of its own
        return world.adopt(v, source)
    if v.requires_grad and ORIGINAL.is_inference(v) and not torch.is_inference_mode_enabled():
        raise vm.capture_failed("an inference tensor with gradients outside of inference mode: C++ finds them below autograd")
    if world.levels.entered:  # what is from outside is of no level
        with temporarily_clear_interpreter_stack():
            return tensor_inputs.make_tensor(world, v, source)
    return tensor_inputs.make_tensor(world, v, source)


# -- as Python sees them ----------------------------------------------------------------------------------------
def seen_type(t: Any) -> type:
    return t.pytype


def truth(t: Any) -> bool:
    if replaced(t, "__bool__") is not None:
        raise Break("PL0001", "a branch on a tensor, of which the __bool__ was replaced", clean=True)
    if globalstate.heard():
        raise Break("PL0001", "a branch on a tensor, of which a mode is told", clean=True)
    if is_stand(t):
        raise Break("PL0001", "a branch on the value of a tensor inside a function transform", clean=True)
    one = all([type(n) is int and n == 1 for n in t.sizes])
    side = vm.side_on_data(t) if one and vm.make_exit is not None else None
    if side is not None:
        return side
    if one and t.trace.scope.oracle is not None:
        return bool(ORIGINAL.item(t))  # somebody captures both sides
    raise Break("PL0001", "a branch on the value of a tensor", clean=True)


def length(t: Any) -> Any:
    if globalstate.heard():
        return length_told(t)
    own = replaced(t, "__len__")
    if own is not None:
        return interp(own, (t,), {})
    if of_class(t):
        refuse_replaced("__len__")
        said = tensor_subclasses.length(t)
        if said is not UNSET:
            return said
    if not t.sizes:
        raise TypeError("len() of a 0-d tensor")
    return t.sizes[0]


def length_told(t: Any) -> Any:
    """`len(t)` while a mode is on."""
    if of_class(t) or replaced(t, "__len__") is not None or torch._C._len_torch_function_stack() > 1:
        raise Break("PL0011", "the length of a tensor of a class of its own, or of which several modes are told", clean=True)
    if vm.world.entry_state["function modes"] or vm.world.source_of(globalstate.function_modes()[-1]) is not None:
        raise Break("PL0011", "the length of a tensor, of which a mode from outside is told", clean=True)
    told = (torch.Tensor,) if t.pytype is torch.Tensor and torch._C._is_torch_function_enabled() else ()  # not of a parameter
    n = tell_mode(ORIGINAL.__len__, told, (t,))
    if type(n) is not int and type(n) is not torch.SymInt:
        raise Break("PL0011", "the length of a tensor, for which a mode has another answer than an int")
    return as_length(n)


def tell_mode(fn: Any, told: tuple, args: tuple) -> Any:
    """What `handle_torch_function` does with the innermost mode, whose own code is interpreted."""
    not_yet()
    mode = torch._C._pop_torch_function_stack()  # type: ignore[attr-defined]
    try:
        return call(attributes.getattr_(mode, "__torch_function__"), (fn, told, args, {}), {})
    finally:
        torch._C._push_on_torch_function_stack(mode)  # type: ignore[attr-defined]


def unbind(t: Any) -> Any:
    """The items that iterating gives: how many is pinned."""
    if not t.sizes:
        raise TypeError("iteration over a 0-d tensor")
    if type(t.sizes[0]) is not int:
        concrete(t.sizes[0])
    return graph_call(ORIGINAL.unbind, (t, 0), {}, "unbind")


def iterate(t: Any) -> Any:
    own = replaced(t, "__iter__")
    if own is not None:
        return interp(own, (t,), {})
    if of_class(t):
        said = tensor_subclasses.iterated(t)
        if said is not UNSET:
            return said
    if globalstate.heard():
        return inline(ORIGINAL.__iter__, (t,), {})
    rows = walks.over_rows(t)
    return rows if rows is not None else iter(unbind(t))


def hinted(v: Any) -> None:
    """A list is made of what iterating gives. Raises Break where a mode would be told that C asks how many there will be."""
    if type(v) is TracedTensor and globalstate.heard():
        raise Break("PL0011", "a list of the items of a tensor, of whose length a mode is told", clean=True)


def contains(t: Any, x: Any) -> Any:
    """`x in t`, perhaps as a truth that only the run knows."""
    held = call(vm.getattr(t, "__contains__"), (x,), {})
    return held if type(held) is torch.SymBool else vm.truth(held)


def number(t: Any, kind: type) -> Any:
    """`int(t)`, `float(t)`: a number known when the graph runs."""
    if replaced(t, f"__{kind.__name__}__") is not None:
        raise Break("PL0011", f"{kind.__name__}() of a tensor, whose method for it was replaced", clean=True)
    if globalstate.heard():
        return conversion_told(t, f"__{kind.__name__}__", (int, torch.SymInt) if kind is int else (float, torch.SymFloat))
    if t.sizes and math.prod(t.sizes) != 1:
        raise ValueError("only one element tensors can be converted to Python scalars")
    if t.dtype.is_complex and kind in (int, float):
        raise Break("PL0001", f"{kind.__name__}() of a complex number, which has to be a real one", clean=True)
    v = item(t)
    if kind is int:
        if type(v) is torch.SymBool:
            return as_int(v)
        return v if type(v) is torch.SymInt else torch.sym_int(v) if type(v) is torch.SymFloat else int(v)
    if kind is float:
        return v if type(v) is torch.SymFloat else torch.sym_float(v) if type(v) is torch.SymInt else float(concrete(v))
    return kind(concrete(v))


def conversion_told(t: Any, name: str, kinds: tuple[type, ...]) -> Any:
    """What C++ makes of a tensor by its method of that name, of which it tells the modes that are on."""
    told = captured_call if t.pytype in TENSOR_TYPES else graph_call
    r = told(getattr(ORIGINAL, name), (t,), {})
    if type(r) not in kinds:
        raise Break("PL0011", f"{name} of a tensor, for which a mode has another answer than a {kinds[0].__name__}")
    return r


def index(t: Any) -> Any:
    """`operator.index(t)`: of an integer of one element."""
    if globalstate.heard():
        return conversion_told(t, "__index__", (int, torch.SymInt))
    if t.dtype.is_floating_point or t.dtype.is_complex or (t.sizes and math.prod(t.sizes) != 1):
        raise TypeError("only integer tensors of a single element can be converted to an index")
    return number(t, int)


def item(t: Any) -> Any:
    """`t.item()`: an unbacked number bound when the graph runs."""
    return graph_call(ORIGINAL.item, (t,), {}, "item")


def text(t: Any, fn: Any) -> Any:
    raise Break("PL0005", "the text of a tensor", clean=True)


def formatted(t: Any, spec: str) -> Any:
    """`format(t, spec)`: of the number in it, where it has no dims."""
    plain = not t.sizes and t.pytype is torch.Tensor and t.device.type != "meta" and not t.dtype.is_complex and not globalstate.heard()
    if plain and replaced(t, "__format__") is None and replaced(t, "item") is None:
        text = late_text.formatted(item(t), 0, spec, True)
        if text is not None:
            return text
    raise Break("PL0005", "formatting a tensor into a string", clean=True)


# -- items ----------------------------------------------------------------------------------------------------------
def getitem(t: Any, k: Any) -> Any:
    own = replaced(t, "__getitem__")
    if own is not None:
        return interp(own, (t, k), {})
    if globalstate.heard():  # it is told of what the program says, not of how the graph says it
        return graph_call(ORIGINAL.__getitem__, (t, k), {})
    k = indexing.plain(k)
    if indexing.is_symbolic(k):
        t, k = indexing.selected(t, k)
        if k is Ellipsis:
            return t
    return graph_call(operator.getitem, (t, k), {})


def setitem(t: Any, k: Any, v: Any) -> None:
    own = replaced(t, "__setitem__")
    if own is not None:
        interp(own, (t, k, v), {})
        return
    if globalstate.heard():
        graph_call(ORIGINAL.__setitem__, (t, k, v), {})
        return
    if type(v) is torch.SymInt:
        implemented.unpack(v)
    k = indexing.plain(k)
    if indexing.is_symbolic(k):
        t, k = indexing.selected(t, k)
    if t.requires_grad and t._base is not None and torch.is_grad_enabled():
        with layout.whole():
            graph_call(operator.setitem, (t, k, v), {})
        return
    graph_call(operator.setitem, (t, k, v), {})


# -- operators --------------------------------------------------------------------------------------------------------
UNARY = {operator.neg: "__neg__", operator.pos: "__pos__", operator.invert: "__invert__", operator.abs: "__abs__", abs: "__abs__"}


def unary(fn: Callable, t: Any) -> Any:
    own = replaced(t, UNARY[fn])
    if own is not None:
        return interp(own, (t,), {})
    return graph_call(fn, (t,), {})


def binary(fn: Callable, a: Any, b: Any) -> Any:
    """A tensor and a tensor or a number; what other objects have to say is asked first (`slots.binary`)."""
    name, reflected, inplace = BINARY_METHODS[fn]
    if type(a) is str and reflected == "__rmod__" and (text := late_text.percent(a, b)) is not None:
        return text
    first = type(a) is TracedTensor
    own = replaced(a if first else b, (inplace or name) if first else reflected)
    if own is not None:
        return interp(own, (a, b) if first else (b, a), {}) if of_class(a if first else b) else NotImplemented
    if first and type(b) is TracedTensor and of_class(b) and a.pytype is not b.pytype and replaced(b, reflected) is not None:
        raise Break("PL0011", f"{reflected} of a subclass of tensors", clean=True)
    if first and type(b) is TracedTensor and b.pytype in OF_STATES:
        refuse_on_states(b.pytype, reflected)  # asked first if `a` is a plain tensor
    if (type(a) is TracedTensor or type(a) in PLAIN_OPERANDS) and (type(b) is TracedTensor or type(b) in PLAIN_OPERANDS):
        special = TORCHS.get((inplace or name) if first else reflected)
        if type(special) is FunctionType:  # some are Python methods of tensors, which call functions by name
            guard_inside(special)
        return graph_call(fn, (a, b), {})
    return NotImplemented


def of_class(t: Any) -> bool:
    """Whether a tensor is for the program one of a subclass."""
    return t.pytype not in TENSOR_TYPES


def slot(t: Any, name: str, other: Any) -> Any:
    """A tensor operator whose other side may answer it: NotImplemented passes on."""
    try:
        return graph_call(getattr(ORIGINAL, name), (t, other), {}, name)
    except TypeError:
        return NotImplemented


def compare(fn: Callable, a: Any, b: Any) -> Any:
    other = b if type(a) is TracedTensor else a
    t = type(other)
    mine = a if type(a) is TracedTensor else b
    own = replaced(mine, COMPARE_METHODS[fn][type(a) is not TracedTensor])
    if mine is a and t is TracedTensor and b.pytype in OF_STATES:
        refuse_on_states(b.pytype, COMPARE_METHODS[fn][1])
    if own is not None:
        return interp(own, (mine, other), {}) if of_class(mine) else NotImplemented
    if t is not TracedTensor and t not in PLAIN_OPERANDS:
        name, mirrored = COMPARE_METHODS[fn]
        m = lookup(t, mirrored if other is b else name)
        if type(m) is FunctionType:
            asks = [lambda: interp(m, (other, mine), {}), lambda: slot(mine, mirrored if other is a else name, other)]
            for ask in asks if other is a else reversed(asks):
                if (r := ask()) is not NotImplemented:
                    return r
            return unlike(fn, a, b)
    return graph_call(fn, (a, b), {})


def unlike(fn: Callable, a: Any, b: Any) -> bool:
    """What a comparison gives that neither side answers."""
    if fn in (operator.eq, operator.ne):
        return fn is operator.ne
    raise TypeError(f"{SYMBOLS[fn]!r} not supported between instances of {type_name(vm.type_of(a))!r} and {type_name(vm.type_of(b))!r}")


# -- as keys ------------------------------------------------------------------------------------------------------------
def outside_key(t: Any, d: Any = None) -> Any:
    """For the proxy of an outside tensor, that tensor: tensors are keys by identity. `d`: the dict, if it is looked up in one; where that
    has not come with this key, the proxy is what it is stored under."""
    world = vm.world
    real = world.real.get(id(t))
    if real is None:
        raise Break("PL0012", "a tensor made here as the key of a dict", clean=True)
    world.is_key(real, t.source, d if lookup(t.pytype, "__hash__") is ORIGINAL.__hash__ else None)
    world.sources[id(real)] = t.source
    return t if d is not None and not has(world.by_copy[id(d)].orig, real) else real


# -- attributes -----------------------------------------------------------------------------------------------------------
TENSOR_BREAKS = {
    "_backward_hooks", "__array_interface__", "__cuda_array_interface__", "_cdata", "_base",
}  # fmt: skip


OWN_OF_PROXIES = ("numpy", "tolist", "data_ptr", "untyped_storage")
"""Methods that a proxy has of its own, for C++ code: the program means PyTorch's."""


def getattr_(t: Any, name: str) -> Any:
    """An attribute of a traced tensor."""
    if t.pytype not in TENSOR_TYPES and type(lookup(t.pytype, "__getattribute__")) is types.FunctionType:
        raise Break("PL0012", f"attribute {name!r} of a {t.pytype.__name__}, which has a __getattribute__ of its own", clean=True)
    if t.pytype in OF_STATES:
        refuse_on_states(t.pytype, name)
    if vm.world.waiting:
        waiting.refuse_attribute(t, name)
    if name == "__class__":
        return t.pytype
    raw = lookup(torch.Tensor, name)
    if type(raw) is types.GetSetDescriptorType and globalstate.heard():
        if of_class(t):
            return tensor_subclasses.told(getattr, (t, name), {})
        return captured_call(raw.__get__, (t,), {})
    if raw is not TORCHS.get(name, UNSET) and lookup(t.pytype, name) is raw:
        return replacement(t, name, raw) if vm.frame.globals is not in_torch.__dict__ else getattr(ORIGINAL, name).__get__(t)
    if t.pytype not in TENSOR_TYPES:
        own = tensor_subclasses.attribute(t, name, raw)
        if own is not UNSET:
            return own
    if name == "dtype" or name == "device":
        return getattr(t, name)
    world = vm.world
    if is_stand(t) and (type(raw) in COMPUTED or name in HISTORY):
        return wrapped_attribute(t, name)
    w = world.tensor_writes.get((id(t), name))
    if w is not None:
        return w[1]
    real = world.real.get(id(t))
    if name == "__dict__":
        return tensor_dicts.whole(t)
    if type(raw) not in COMPUTED and tensor_dicts.there(t, name):  # hides a method
        return tensor_dicts.get(t, name)
    if name in OWN_OF_PROXIES:
        return getattr(ORIGINAL, name).__get__(t)
    if name in OF_CLASS:
        return of_class_itself(t, name, real)
    if name in OF_TAPE:
        return OF_TAPE[name](t)
    if name in TENSOR_BREAKS:
        raise Break("PL0012", f"tensor attribute {name!r}", clean=True)
    if name == "nbytes":
        return math.prod(t.sizes) * t.itemsize
    if name == "is_leaf":
        return tensor_inputs.is_leaf(t)
    if name == "data" or name == "grad":
        world.unusual()
    if name == "data":
        return datafield.read(t)
    if name == "grad":
        if real is None:
            return world.own_gradients.get(id(t), (t, None))[1]
        if not tensor_inputs.is_leaf(t):
            raise Break("PL0012", "the .grad of a tensor that is not a leaf", clean=True)
        return tensor_inputs.held(t, "grad")
    if name == "trace":  # a method of tensors, and a property of the proxy
        return ORIGINAL.trace.__get__(t)
    if real is None and name in OWN_TENSOR_SLOTS:
        raise AttributeError(f"'Tensor' object has no attribute {name!r}")
    cls_has = hasattr(torch.Tensor, name)
    if real is not None and not cls_has:
        if t.pytype is not torch.Tensor and hasattr(t.pytype, name):
            tensor_dicts.get(t, name)
            return getattr(t.pytype, name).__get__(t) if callable(getattr(t.pytype, name)) else getattr(real, name)
        tensor_dicts.get(t, name)
        raise AttributeError(f"{t.pytype.__name__!r} object has no attribute {name!r}")
    if type(raw) is FunctionType:
        own = lookup(t.pytype, name)  # parameters have some of their own
        return MethodType(own if t.pytype in TENSOR_TYPES and type(own) is FunctionType else raw, t)
    if name == "__str__":
        return getattr_(t, "__repr__")
    if real is not None and type(raw) is types.GetSetDescriptorType and name not in TOLD:
        return world.locate(getattr(real, name), t.source.attr(name))
    n = len(vm.trace.ops)
    found = getattr(t, name)
    if LEAF_VIEWS in vm.refused:
        tensor_inputs.check_views(vm.trace, n)
    return found if t.pytype in TENSOR_TYPES else tensor_subclasses.of_attribute(found, t.pytype)


OF_CLASS = frozenset(
    "__module__ __doc__ __annotations__ __slots__ __static_attributes__ __firstlineno__ __torch_function__ __torch_dispatch__".split()
)
"""What the class of the proxy has for itself."""


def of_class_itself(t: Any, name: str, real: Any) -> Any:
    """What a tensor has of the class that the program sees, unless it holds one itself."""
    held = tensor_dicts.get(t, name)
    if held is not UNSET:
        return held
    for c in t.pytype.__mro__:
        if name in c.__dict__:
            return vm.getattr(c if name == "__annotations__" else t.pytype, name)  # classes tell only their own
    raise AttributeError(f"{t.pytype.__name__!r} object has no attribute {name!r}")


OF_TAPE = {"grad_fn": tape.grad_fn, "_version": tape.version, "retains_grad": tape.retains_grad}
TOLD = frozenset(
    "T H mT mH shape dtype layout device ndim nbytes itemsize real imag names name requires_grad is_cuda is_mtia is_cpu is_xla "
    "is_xpu is_ipu is_sparse is_sparse_csr is_mkldnn is_mps is_maia is_vulkan is_quantized is_meta is_nested".split()
)
"""Attributes of tensors worked out in C that the guard of an input tells, or an operator of the graph."""
COMPUTED = (types.GetSetDescriptorType, property)
HISTORY = frozenset(
    "register_hook register_post_accumulate_grad_hook grad_fn data grad _base _version is_leaf __dict__".split()
)


def wrapped_attribute(t: Any, name: str) -> Any:
    """An attribute of a tensor inside a function transform, which C++ works out on the wrapper."""
    if name in HISTORY:
        raise Break("PL0030", f"Tensor.{name} inside a function transform", clean=True)
    return t.requires_grad if name == "requires_grad" else graph_call(getattr, (t, name), {})


TORCHS: dict[str, Any] = {name: v for b in reversed(torch.Tensor.__mro__) for name, v in b.__dict__.items()}
"""What torch.Tensor had when pliant was imported."""


OF_STATES: dict[type, dict[str, Any]] = {c: dict(vars(c)) for c in (torch.nn.Parameter, torch.nn.Buffer)}
"""What the classes of parameters and of buffers had for themselves when pliant was imported."""
WAYS = ("__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__class__")


def refuse_on_states(cls: type, name: str) -> None:
    """Breaks the graph if the program has put this attribute, or a way to attributes, on the class of parameters or of buffers itself.
    That nothing is there is guarded, too: it would come before what tensors have."""
    for n in (name, *WAYS):
        now, there = lookup(cls, n), OF_STATES[cls].get(n, UNSET)
        if now is not UNSET and not hasattr(type(now), "__get__"):
            vm.world.type_attr(cls, n, now)  # data, which `lookup` leaves to who reads it
        asked = n == "__annotations__" and there is UNSET and type(now) is dict and not now  # CPython puts it there when it is read
        if now is not there and not asked and (there is not UNSET or now is not lookup(torch.Tensor, n)):
            raise Break("PL0011", f"{n!r} on the class {cls.__name__}, which the program has put there", clean=True)


def replacement(t: Any, name: str, raw: Any) -> Any:
    """An attribute of tensors that the program has put on torch.Tensor, or has deleted."""
    if raw is UNSET:
        raise AttributeError(f"'Tensor' object has no attribute {name!r}")
    if type(raw) is FunctionType:
        return MethodType(raw, t)
    if type(raw) is property:
        return call(raw.fget, (t,), {})
    if hasattr(type(raw), "__get__"):
        raise Break("PL0011", f"{name!r} of tensors was replaced", clean=True)
    return vm.world.locate(raw, S.const(torch.Tensor).attr(name))


def replaced(t: Any, name: str) -> Any:
    """The function that the program, or the class of `t`, has put in the place of a special method; None if it is PyTorch's own."""
    raw = lookup(t.pytype if type(t) is TracedTensor else torch.Tensor, name)
    if raw is TORCHS.get(name, UNSET):
        return None
    of_states = type(t) is TracedTensor and t.pytype in OF_STATES and raw is not lookup(torch.Tensor, name)
    if of_states or type(raw) is not FunctionType:
        raise Break("PL0011", f"{name!r} of tensors was replaced", clean=True)
    return raw


def takes_grad(t: Any, value: Any) -> bool:
    """Whether `t.grad = value` is an ordinary write: to a leaf of the outside, of nothing or of a gradient like the tensor."""
    if vm.world.real.get(id(t)) is None or not tensor_inputs.is_leaf(t):
        return False
    if value is None:
        return True
    if type(value) is not TracedTensor or value is t or value.dtype is not t.dtype or value.device != t.device:
        return False
    return all_same(value.sizes, t.sizes)


def own_grad(t: Any, value: Any) -> bool:
    """Whether `t.grad = value` is a write to a leaf made here, and was done."""
    own = vm.world.own_gradients
    if vm.world.real.get(id(t)) is not None or t.vid not in vm.trace.own_leaves:
        return False
    if value is None:
        own.pop(id(t), None)
        return True
    if type(value) is not TracedTensor or is_stand(value) or value.dtype is not t.dtype or value is t or value.requires_grad:
        return False
    if value.device != t.device or not all_same(value.sizes, t.sizes):
        return False
    own[id(t)] = (t, value)
    return True


PARTS = ("real", "imag")
"""Attributes that are views, into which is copied what is assigned."""
OWN_TENSOR_SLOTS = {*TracedTensor.__slots__, "handler"}


def is_told(t: Any) -> bool:
    """Whether the class of a tensor is told of what is asked of it."""
    return t.pytype not in TENSOR_TYPES and tensor_subclasses.overrides(t.pytype) and torch._C._is_torch_function_enabled()


def setattr_(t: Any, name: str, value: Any) -> None:
    if t.pytype in OF_STATES:
        refuse_on_states(t.pytype, name)
    elif t.pytype not in TENSOR_TYPES and tensor_subclasses.set_own(t, name, value):
        return
    if type(lookup(torch.Tensor, name)) in (types.GetSetDescriptorType, property) and (globalstate.heard() or is_told(t)):
        raise Break("PL0012", f"assignment to tensor attribute {name!r}, of which a mode or the class is told", clean=True)
    if name == "requires_grad" and type(value) is bool:
        if not tensor_inputs.is_leaf(t):
            raise Break("PL0012", "assignment to tensor attribute 'requires_grad' of a tensor that is no leaf", clean=True)
        METHOD_LOOKASIDES[(torch.Tensor, "requires_grad_")](t, (value,), {})
        return
    if name == "grad" and own_grad(t, value):
        return
    if name == "data":
        datafield.assign(t, value)
        return
    if name in PARTS and (type(value) is TracedTensor or type(value) in (int, float, bool)):
        part = vm.getattr(t, name)
        write = ("copy_", ORIGINAL.copy_) if type(value) is TracedTensor else ("fill_", ORIGINAL.fill_)
        graph_call(write[1], (part, value), {}, write[0])
        return
    if name != "grad" or not takes_grad(t, value):
        if name in ("data", "grad", "requires_grad", "names", "real", "imag", "_backward_hooks"):
            raise Break("PL0012", f"assignment to tensor attribute {name!r}", clean=True)
    if name == "grad":
        vm.world.tensor_writes[(id(t), name)] = (t, value)
    elif name == "__dict__":
        tensor_dicts.replace(t, value)
    elif has_say(t, name, "__set__"):
        raise Break("PL0012", f"assignment to tensor attribute {name!r}, of which a descriptor has a say", clean=True)
    else:
        tensor_dicts.put(t, name, value)


def has_say(t: Any, name: str, method: str) -> bool:
    """Whether a descriptor takes what is stored (`__set__`) or deleted (`__delete__`) under this name."""
    raw = lookup(t.pytype, name)
    return raw is not UNSET and lookup(type(raw), method) is not UNSET


def delattr_(t: Any, name: str) -> None:
    if t.pytype in OF_STATES:
        refuse_on_states(t.pytype, name)
    deleter = lookup(t.pytype, "__delattr__")
    if is_wrapped(t) or name == "__dict__" or has_say(t, name, "__delete__") or deleter is not lookup(torch.Tensor, "__delattr__"):
        raise Break("PL0012", f"deleting tensor attribute {name!r}", clean=True)
    tensor_dicts.drop(t, name)


def hashed(t: Any) -> Any:
    if t.pytype in OF_STATES:
        refuse_on_states(t.pytype, "__hash__")
    vm.world.known_by_identity(t)
    return t


def to_c(fn: Any, t: Any) -> Any:
    if isinstance(getattr(fn, "__self__", None), KEYED):
        vm.world.known_by_identity(t)
    return t


def admitted(fn: Any, t: Any) -> Any:
    return t


ROW = row(
    name="tensor", located=tuple(TENSOR_TYPES), stands=(TracedTensor,), locate=locate_tensor, type=seen_type,
    getattr=getattr_, setattr=setattr_, delattr=delattr_, getitem=getitem, setitem=setitem, contains=contains, iter=iterate, length=length,
    truth=truth, index=index, number=number, outside_key=outside_key, text=text, format=formatted, unary=unary, binary=binary, slot=slot,
    compare=compare, rank=10, method=tensor_method, to_graph=admitted, to_c=to_c,
    hashed=hashed,
)  # fmt: skip

METHOD_LOOKASIDES[(torch.Tensor, "item")] = lambda t, args, kw: graph_call(ORIGINAL.item, (t, *args), kw, "item")
