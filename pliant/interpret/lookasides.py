"""Small replacements for builtins whose answer depends on stand-ins, on the frame, or on what is outside."""

from __future__ import annotations

import dis
import functools
import inspect
import logging
import math
import operator
import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

import torch

from pliant.graph.symnode import concrete
from pliant.interpret.attributes import delattr_, getattr_, lookup, setattr_
from pliant.interpret.calls import CACHED_LOOKASIDES, LOOKASIDES, METHOD_LOOKASIDES, TAIL_LOOKASIDES, call, graph_call, interp, native
from pliant.interpret.capture import UNSET
from pliant.interpret.generators import Generator
from pliant.interpret.opcodes import force, read_cell
from pliant.interpret.slots import (
    SYM_TYPES,
    binary,
    compare,
    contains,
    get_iter,
    get_next,
    getitem,
    hashable,
    length,
    setitem,
    truth,
    unpack,
)
from pliant.interpret.state import Break, vm
from pliant.interpret.texts import LateText, hold_to_type, needed, writable
from pliant.interpret.world import Opaque, opaque_use

FunctionType, MethodType = types.FunctionType, types.MethodType
SYM_BASE = {torch.SymInt: int, torch.SymBool: bool, torch.SymFloat: float}


def lookaside(*fns: Any, tail: bool = False) -> Callable:
    """Register a replacement `(args, kwargs) -> value`."""

    def register(replacement: Callable) -> Callable:
        for fn in fns:
            LOOKASIDES[fn] = replacement
            if tail:
                TAIL_LOOKASIDES.add(fn)
        return replacement

    return register


def type_of(o: Any) -> type:
    """The type that the program sees."""
    t = type(o)
    if t is vm.traced_type:
        return o.pytype
    base = SYM_BASE.get(t)
    if base is not None:
        return base
    if t is Generator:
        return types.GeneratorType
    return str if t is LateText else t


def is_instance(o: Any, cls: Any) -> bool:
    """`isinstance` as the program sees it."""
    if isinstance(cls, tuple):
        return any(is_instance(o, c) for c in cls)
    if isinstance(cls, types.UnionType):
        return any(is_instance(o, c) for c in cls.__args__)
    t = type(o)
    if t is vm.traced_type:
        if issubclass(o.pytype, torch.nn.Parameter) and cls is torch.nn.Parameter:
            return True
        if cls in (torch.nn.Parameter, torch.nn.Buffer, vm.traced_type):
            return o.pytype is cls
        if isinstance(cls, type) and type(cls) is type or cls is torch.Tensor:
            return issubclass(o.pytype, cls)
        if isinstance(cls, type) and type(cls).__module__ == "torch":  # torch.FloatTensor and its kin look at the dtype
            return isinstance(o, cls)
        return issubclass(o.pytype, cls)
    base = SYM_BASE.get(t)
    if base is not None:
        if isinstance(cls, type) and not issubclass(cls, (torch.SymInt, torch.SymBool, torch.SymFloat)):
            return issubclass(base, cls)
        return isinstance(o, cls)
    if t is Generator or t is LateText:
        return issubclass(type_of(o), cls)
    if t is Opaque:
        raise Break("PL0017", f"the type of {o.source.name}")
    m = lookup(type(cls), "__instancecheck__")
    if type(m) is FunctionType and not m.__module__.startswith(("abc", "typing", "torch", "enum")):
        return truth(interp(m, (cls, o), {}))
    return isinstance(o, cls)


@lookaside(isinstance)
def l_isinstance(args: tuple, kw: dict) -> bool:
    return is_instance(*args)


def named(args: tuple) -> None:
    """The name of an attribute decides what is read: one that changes on every call breaks the graph."""
    if len(args) > 1 and type(args[1]) is Opaque:
        raise Break("PL0017", f"{args[1].source.name} is the name of an attribute", clean=True)


@lookaside(getattr, tail=True)
def l_getattr(args: tuple, kw: dict) -> Any:
    named(args)
    if len(args) == 3:
        if vm.frame is not None:
            vm.frame.tail = False
        try:
            return getattr_(args[0], args[1])
        except AttributeError:
            return args[2]
    if len(args) != 2 or not isinstance(args[1], str):
        return getattr(*args)
    return getattr_(args[0], args[1])


@lookaside(hasattr)
def l_hasattr(args: tuple, kw: dict) -> bool:
    named(args)
    try:
        getattr_(args[0], args[1])
    except AttributeError:
        return False
    return True


@lookaside(setattr)
def l_setattr(args: tuple, kw: dict) -> None:
    named(args)
    setattr_(*args)


@lookaside(delattr)
def l_delattr(args: tuple, kw: dict) -> None:
    named(args)
    delattr_(*args)


@lookaside(object.__setattr__)
def l_object_setattr(args: tuple, kw: dict) -> None:
    setattr_(*args, True)


@lookaside(object.__delattr__)
def l_object_delattr(args: tuple, kw: dict) -> None:
    delattr_(*args, True)


@lookaside(object.__getattribute__)
def l_object_getattribute(args: tuple, kw: dict) -> Any:
    return getattr_(args[0], args[1], True)


@lookaside(object.__init__)
def l_object_init(args: tuple, kw: dict) -> None:
    return None


@lookaside(super)
def l_super(args: tuple, kw: dict) -> Any:
    if args:
        return super(*args)
    f = vm.frame
    names = f.code.co_freevars
    if "__class__" not in names:
        raise RuntimeError("super(): __class__ cell not found")
    cell = f.fast[len(f.fast) - len(names) + names.index("__class__")]
    cls = read_cell(cell, f, 0)
    first = force(f, 0)
    if type(first) is types.CellType:
        first = read_cell(first, f, 0)
    return super(cls, first)


@lookaside(id)
def l_id(args: tuple, kw: dict) -> int:
    o = args[0]
    world = vm.world
    world.bound_here = "the id() of an object"
    if type(o) is vm.traced_type:
        raise Break("PL0012", "the id() of a tensor", clean=True)
    h = world.by_copy.get(id(o))
    if h is not None:
        world.guard(h.source, "ID_MATCH", h.orig)
        return id(h.orig)
    if id(o) in world.outside:
        world.guard(world.sources[id(o)], "ID_MATCH", o)
    return id(o)


@lookaside(hash)
def l_hash(args: tuple, kw: dict) -> int:
    o = hashable(args[0])
    if type(o) not in (int, bool, float):
        vm.world.bound_here = "the hash() of an object"
    m = lookup(type(o), "__hash__")
    if type(m) is FunctionType:
        return interp(m, (o,), {})
    if m is object.__hash__:
        l_id(args, kw)
    return native(hash, (o,), {})


@lookaside(iter)
def l_iter(args: tuple, kw: dict) -> Any:
    if len(args) == 2:
        return native(iter, args, kw)
    return get_iter(args[0])


@lookaside(next)
def l_next(args: tuple, kw: dict) -> Any:
    if len(args) == 2:
        try:
            return get_next(args[0])
        except StopIteration:
            return args[1]
    return get_next(args[0])


@lookaside(len, operator.length_hint)
def l_len(args: tuple, kw: dict) -> Any:
    return length(args[0])


@lookaside(bool)
def l_bool(args: tuple, kw: dict) -> Any:
    if args and type(args[0]) is vm.traced_type:
        raise Break("PL0001", "the truth of a tensor", clean=True)
    return truth(args[0]) if args else False


@lookaside(operator.truth)
def l_truth(args: tuple, kw: dict) -> Any:
    return truth(args[0])


@lookaside(operator.not_)
def l_not(args: tuple, kw: dict) -> Any:
    return not truth(args[0])


@lookaside(int)
def l_int(args: tuple, kw: dict) -> Any:
    if len(args) == 1 and not kw:
        v = args[0]
        t = type(v)
        if t is torch.SymInt:
            return v
        if t is torch.SymFloat or t is torch.SymBool:
            return torch.sym_int(v)
        if t is vm.traced_type:
            return tensor_to_number(v, int)
        m = lookup(t, "__int__")
        if type(m) is FunctionType:
            return interp(m, (v,), {})
    return native(int, args, kw)


@lookaside(float)
def l_float(args: tuple, kw: dict) -> Any:
    if len(args) == 1 and not kw:
        v = args[0]
        t = type(v)
        if t is torch.SymFloat:
            return v
        if t is torch.SymInt:
            return torch.sym_float(v)
        if t is vm.traced_type:
            return tensor_to_number(v, float)
        m = lookup(t, "__float__")
        if type(m) is FunctionType:
            return interp(m, (v,), {})
    return native(float, args, kw)


def tensor_to_number(t: Any, kind: type) -> Any:
    v = tensor_item(t, (), {})
    if kind is int:
        return l_int((v,), {})
    return l_float((v,), {})


def extremum(fn: Any, symbolic: Any) -> Callable:
    """`max` and `min`: of plain numbers, some symbolic, without asking which is the larger."""

    def pick(args: tuple, kw: dict) -> Any:
        values = args if len(args) > 1 else unpack(args[0]) if len(args) == 1 else ()
        if not kw and any(type(v) is torch.SymInt for v in values) and all(type(v) in (int, torch.SymInt) for v in values):
            return functools.reduce(symbolic, values)
        return native(fn, (list(values),) if len(args) == 1 else args, kw)

    return pick


LOOKASIDES[max] = extremum(max, torch.sym_max)
LOOKASIDES[min] = extremum(min, torch.sym_min)


@lookaside(abs, operator.abs)
def l_abs(args: tuple, kw: dict) -> Any:
    v = args[0]
    if type(v) is torch.SymInt or type(v) is torch.SymFloat:
        return torch.sym_max(v, -v)
    if type(v) is vm.traced_type:
        return graph_call(torch.abs, (v,), {})
    m = lookup(type(v), "__abs__")
    return interp(m, (v,), {}) if type(m) is FunctionType else native(abs, args, kw)


@lookaside(divmod)
def l_divmod(args: tuple, kw: dict) -> Any:
    a, b = args
    if type(a) in SYM_TYPES or type(b) in SYM_TYPES:
        return binary(operator.floordiv, a, b), binary(operator.mod, a, b)
    return native(divmod, args, kw)


@lookaside(pow)
def l_pow(args: tuple, kw: dict) -> Any:
    if len(args) == 2 and not kw:
        return binary(operator.pow, *args)
    return native(pow, tuple(concrete(a) if type(a) in SYM_TYPES else a for a in args), kw)


@lookaside(globals)
def l_globals(args: tuple, kw: dict) -> Any:
    raise Break("PL0014", "globals()", clean=True)


@lookaside(locals)
def l_locals(args: tuple, kw: dict) -> dict:
    return locals_of(vm.frame)


def locals_of(f: Any) -> dict:
    """The names that `locals()` shows in frame `f`."""
    if f.names is not None:
        return f.names
    c = f.code
    names = [*c.co_varnames, *[x for x in c.co_cellvars if x not in c.co_varnames], *c.co_freevars]
    out = {}
    for i, name in enumerate(names):
        v = force(f, i)
        if type(v) is types.CellType and (name in c.co_cellvars or name in c.co_freevars):
            try:
                v = read_cell(v, f, i)
            except (NameError, UnboundLocalError):
                continue
        if v is not UNSET:
            out[name] = v
    return out


@lookaside(vars)
def l_vars(args: tuple, kw: dict) -> Any:
    return getattr_(args[0], "__dict__") if args else l_locals(args, kw)


@lookaside(callable)
def l_callable(args: tuple, kw: dict) -> bool:
    t = type(args[0])
    if t is Opaque:
        raise Break("PL0017", f"whether {args[0].source.name} can be called", clean=True)
    return t is not LateText and callable(args[0])


@lookaside(operator.getitem, tail=True)
def l_getitem(args: tuple, kw: dict) -> Any:
    return getitem(*args)


@lookaside(operator.setitem)
def l_setitem(args: tuple, kw: dict) -> None:
    setitem(*args)


@lookaside(operator.contains)
def l_contains(args: tuple, kw: dict) -> bool:
    return contains(*args)


def _operator_rows() -> None:
    from_slots = {
        **{fn: compare for fn in (operator.lt, operator.le, operator.eq, operator.ne, operator.gt, operator.ge)},
        **{
            getattr(operator, n): binary
            for n in (
                "add and_ floordiv lshift matmul mul mod or_ pow rshift sub truediv xor iadd iand ifloordiv ilshift imatmul imul imod "
                "ior ipow irshift isub itruediv ixor"
            ).split()
        },
    }
    for fn, slot in from_slots.items():
        LOOKASIDES[fn] = functools.partial(lambda slot, fn, args, kw: slot(fn, *args), slot, fn)


_operator_rows()


@lookaside(all)
def l_all(args: tuple, kw: dict) -> bool:
    it = get_iter(args[0])
    while True:
        try:
            if not truth(get_next(it)):
                return False
        except StopIteration:
            return True


@lookaside(any)
def l_any(args: tuple, kw: dict) -> bool:
    it = get_iter(args[0])
    while True:
        try:
            if truth(get_next(it)):
                return True
        except StopIteration:
            return False


def sequence(cls: type) -> Callable:
    def make(args: tuple, kw: dict) -> Any:
        if len(args) == 1 and not kw:
            return cls(unpack(args[0]))
        return native(cls, args, kw)

    return make


LOOKASIDES[list] = sequence(list)
LOOKASIDES[tuple] = sequence(tuple)
LOOKASIDES[torch.Size] = sequence(torch.Size)


def hashed(cls: type) -> Callable:
    def make(args: tuple, kw: dict) -> Any:
        if len(args) == 1 and not kw:
            return native(cls, ([hashable(x) for x in unpack(args[0])],), {})
        return native(cls, args, kw)

    return make


LOOKASIDES[set] = hashed(set)
LOOKASIDES[frozenset] = hashed(frozenset)


@lookaside(dict)
def l_dict(args: tuple, kw: dict) -> dict:
    out: dict = {}
    if args:
        v = args[0]
        if isinstance(v, dict) and type(lookup(type(v), "keys")) is not FunctionType:
            vm.world.all(v)
            out.update(v)
        elif hasattr(type(v), "keys"):
            for k in unpack(call(getattr_(v, "keys"), (), {})):
                out[hashable(k)] = getitem(v, k)
        else:
            for pair in unpack(v):
                k, x = unpack(pair)
                out[hashable(k)] = x
    out.update(kw)
    return out


@lookaside(range)
def l_range(args: tuple, kw: dict) -> range:
    return range(*[concrete(a) if type(a) in SYM_TYPES else a for a in args], **kw)


def text(fn: Any) -> Callable:
    def make(args: tuple, kw: dict) -> Any:
        if args and type(args[0]) is vm.traced_type:
            raise Break("PL0005", "the text of a tensor", clean=True)
        return native(fn, tuple(concrete(a) if type(a) in SYM_TYPES else a for a in args), kw)

    return make


for _fn in (str, repr, ascii, format):
    LOOKASIDES[_fn] = text(_fn)


@lookaside(map)
def l_map(args: tuple, kw: dict) -> Any:
    return native(map, (args[0], *[iterable(a) for a in args[1:]]), kw)


@lookaside(filter)
def l_filter(args: tuple, kw: dict) -> Any:
    return native(filter, (args[0], iterable(args[1])), kw)


@lookaside(zip)
def l_zip(args: tuple, kw: dict) -> Any:
    return native(zip, tuple(iterable(a) for a in args), kw)


@lookaside(enumerate)
def l_enumerate(args: tuple, kw: dict) -> Any:
    return native(enumerate, (iterable(args[0]), *[concrete(a) if type(a) in SYM_TYPES else a for a in args[1:]]), kw)


@lookaside(reversed)
def l_reversed(args: tuple, kw: dict) -> Any:
    o = args[0]
    if type(o) is vm.traced_type:
        return graph_call(torch.Tensor.__reversed__, (o,), {}, "__reversed__")
    m = lookup(type(o), "__reversed__")
    if type(m) is FunctionType:
        return interp(m, (o,), {})
    return native(reversed, args, kw)


def iterable(o: Any) -> Any:
    """What C code may iterate natively: our iterators and generators come back to us anyway."""
    t = type(o)
    if t is vm.traced_type:
        return unpack(o)
    if t in SEQUENCES and id(o) not in vm.world.by_copy:
        return o
    return get_iter(o)


SEQUENCES = {list, tuple, str, range, torch.Size}


# -- output: deferred, in order --------------------------------------------------------------------------


def printable(v: Any) -> Any:
    """What a deferred print may show later: text made now, or a symbolic number."""
    t = type(v)
    if t in SYM_TYPES or t in (str, int, float, bool, type(None), bytes):
        return v
    if t is LateText:
        return v if v.pieces is not None else needed(v)
    if t is Opaque and writable(v, 0, ""):
        hold_to_type(v)
        return v
    if t is vm.traced_type or holds_tensor(v):
        raise Break("PL0005", "printing a tensor", clean=True)
    return native(str, (v,), {})


def holds_tensor(v: Any, depth: int = 0) -> bool:
    t = type(v)
    if t is vm.traced_type:
        return True
    if t in (list, tuple, set, dict) and depth < 4:
        vm.world.all(v)
        return any(holds_tensor(x, depth + 1) for x in (v.values() if t is dict else v))
    return False


@lookaside(print)
def l_print(args: tuple, kw: dict) -> None:
    if (id(sys.__dict__), "stdout") in vm.world.global_writes:
        raise Break("PL0005", "print to a redirected stdout", clean=True)
    if kw.get("file") is not None or "flush" in kw and type(kw["flush"]) is not bool:
        raise Break("PL0005", "print(file=…)", clean=True)
    vm.world.calls.append((print, tuple(printable(a) for a in args), dict(kw)))


def deferred_log(name: str) -> Callable:
    fn = getattr(logging.Logger, name)

    def log(args: tuple, kw: dict) -> None:
        if kw.get("exc_info") or kw.get("stack_info"):
            raise Break("PL0005", f"Logger.{name} with the current exception", clean=True)
        logger, *rest = args
        vm.world.calls.append((fn, (logger, *[printable(a) for a in rest]), dict(kw)))

    return log


for _name in ("debug", "info", "warning", "error", "critical", "log"):
    LOOKASIDES[getattr(logging.Logger, _name)] = deferred_log(_name)


@functools.cache
def returns_nothing(code: types.CodeType) -> bool:
    """Whether every `return` of this code gives None."""
    ins = list(dis.get_instructions(code))
    return all(
        before.opname == "LOAD_CONST" and before.argval is None
        for before, i in zip(ins, ins[1:], strict=False)
        if i.opname == "RETURN_VALUE"
    )


def logged_once(fn: Any, args: tuple, kw: dict) -> bool:
    """A cached function of a logger (`warning_once`): called for what it writes, after the graph, where its cache decides."""
    if not returns_nothing(fn.__wrapped__.__code__):
        return False
    logger, *rest = args
    vm.world.calls.append((fn, (logger, *[printable(a) for a in rest]), {k: printable(v) for k, v in kw.items()}))
    return True


CACHED_LOOKASIDES[logging.Logger] = logged_once


@lookaside(warnings.warn)
def l_warn(args: tuple, kw: dict) -> None:
    if any(g is warnings.__dict__ for g, _, _ in vm.world.global_writes.values()):
        raise Break("PL0005", "a warning while warnings are redirected", clean=True)
    vm.world.calls.append((warnings.warn, tuple(printable(a) if not isinstance(a, type) else a for a in args), dict(kw)))


# -- tensors ------------------------------------------------------------------------------------------------


def tensor_item(t: Any, args: tuple, kw: dict) -> Any:
    """`t.item()`: an unbacked number bound when the graph runs."""
    return graph_call(torch.Tensor.item, (t,), {}, "item")


def tensor_tolist(t: Any, args: tuple, kw: dict) -> Any:
    if not t.sizes:
        return tensor_item(t, (), {})
    n = t.sizes[0]
    if type(n) is not int:
        concrete(n)  # a list has a length
    return [tensor_tolist(x, (), {}) for x in unpack(t)]


METHOD_LOOKASIDES[(torch.Tensor, "item")] = tensor_item


def tensor_numel(t: Any, args: tuple, kw: dict) -> Any:
    return math.prod(t.sizes)


def tensor_is_inference(t: Any, args: tuple, kw: dict) -> bool:
    """Whether it was made in inference mode: inputs say so (their dispatch keys are guarded), a view is what its base is."""
    for real in [vm.world.real[id(i)] for i in vm.trace.inputs if i.storage_id == t.storage_id and id(i) in vm.world.real]:
        return real.is_inference()
    return torch.is_inference_mode_enabled()  # no region enters or leaves it


LOOKASIDES[torch.is_inference] = lambda args, kw: tensor_is_inference(args[0], (), {})
METHOD_LOOKASIDES[(torch.Tensor, "is_inference")] = tensor_is_inference
LOOKASIDES[torch.numel] = lambda args, kw: tensor_numel(args[0], (), {})
METHOD_LOOKASIDES[(torch.Tensor, "numel")] = METHOD_LOOKASIDES[(torch.Tensor, "nelement")] = tensor_numel
METHOD_LOOKASIDES[(torch.Tensor, "tolist")] = tensor_tolist
METHOD_LOOKASIDES[(torch.Tensor, "__len__")] = lambda t, a, k: length(t)
METHOD_LOOKASIDES[(torch.Tensor, "__int__")] = lambda t, a, k: tensor_to_number(t, int)
METHOD_LOOKASIDES[(torch.Tensor, "__float__")] = lambda t, a, k: tensor_to_number(t, float)
METHOD_LOOKASIDES[(torch.Tensor, "__bool__")] = lambda t, a, k: truth(t)
METHOD_LOOKASIDES[(torch.Tensor, "__iter__")] = lambda t, a, k: get_iter(t)

LOOKASIDES[opaque_use] = lambda args, kw: opaque_use(*args)  # the break is about the value, not about what it takes to say so

for _name in ("send", "throw", "close", "__next__", "__iter__"):  # methods of the stand-in: nothing to interpret
    LOOKASIDES[getattr(Generator, _name)] = functools.partial(lambda fn, args, kw: fn(*args), getattr(Generator, _name))


@lookaside(torch.compiler.is_compiling, torch.compiler.is_dynamo_compiling, torch._utils.is_compiling)
def l_true(args: tuple, kw: dict) -> bool:
    return True


@lookaside(torch.jit.is_scripting, torch.jit.is_tracing, torch.compiler.is_exporting)
def l_false(args: tuple, kw: dict) -> bool:
    return False


@lookaside(torch._C._get_tracing_state)
def l_none(args: tuple, kw: dict) -> None:
    return None


@lookaside(torch._assert)
def l_assert(args: tuple, kw: dict) -> Any:
    cond = args[0] if args else kw.get("condition")
    if type(cond) is not vm.traced_type and truth(cond):
        return None  # the message, which may be late, is not looked at
    return graph_call(torch._assert, args, kw)


LOOKASIDES[needed] = lambda args, kw: needed(*args)  # run, not interpreted


# -- attributes through C helpers -------------------------------------------------------------------------------


@lookaside(inspect.isclass)
def l_isclass(args: tuple, kw: dict) -> bool:
    return isinstance(args[0], type)


vm.type_of = type_of
vm.locals = locals_of
vm.isinstance = is_instance
vm.specialize = concrete
