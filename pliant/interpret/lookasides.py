"""Small replacements for builtins whose answer depends on proxies, on the frame, or on what is outside."""

from __future__ import annotations

import functools
import traceback
import types
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from pliant.graph.originals import ORIGINAL, is_inference_mode_enabled, math, operator, torch
from pliant.graph.symclasses import as_int
from pliant.graph.symnode import concrete, divided_at_once, expr_of, to_sym
from pliant.graph.traced import TracedTensor
from pliant.interpret import (
    folded_generators,
    globalstate,
    in_python,
    late_lists,
    mappings,
    process_state,
    tensor_subclasses,
    tracebacks,
    walks,
    weak,
)
from pliant.interpret.arrays.proxies import TracedArray
from pliant.interpret.attributes import delattr_, getattr_, lookup, say_whose, setattr_
from pliant.interpret.binding import STANDS_FOR_C
from pliant.interpret.calls import LOOKASIDES, METHOD_LOOKASIDES, TAIL_LOOKASIDES, call, graph_call, inline, interp, native
from pliant.interpret.capture import UNSET
from pliant.interpret.comparisons import any_of, as_floats, computes_nothing_else, inverted, of_data
from pliant.interpret.gate import captured_call, has_index, index
from pliant.interpret.generators import TAKES, Generator, called_generator
from pliant.interpret.interleaved import lazily, until_heard
from pliant.interpret.iteration import length_hint
from pliant.interpret.late_text import CONVERSIONS, LateText, formatted, needed
from pliant.interpret.local_names import locals_of
from pliant.interpret.names_told import guard_name
from pliant.interpret.opaque import Opaque, opaque_use
from pliant.interpret.opcodes import KNOWN_BY_WORTH, none_opaque, super_operands
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
    unary,
    unpack,
)
from pliant.interpret.state import Break, vm
from pliant.interpret.type_names import type_name
from pliant.interpret.types import tensors
from pliant.interpret.types.containers import is_namespace
from pliant.interpret.types.identities import OwnId, PassingId
from pliant.interpret.types.row import ROWS
from pliant.interpret.wrappers import is_stand
from pliant.native import made_in_python
from pliant.symbolic import ops

FunctionType, MethodType = types.FunctionType, types.MethodType


def lookaside(*fns: Any, tail: bool = False) -> Callable:
    """Register a replacement `(args, kwargs) -> value`."""

    def register(replacement: Callable) -> Callable:
        for fn in fns:
            LOOKASIDES[fn] = replacement
            if tail:
                TAIL_LOOKASIDES.add(fn)
        return replacement

    return register




def named(args: tuple) -> None:
    """The name of an attribute decides what is read: one that changes on every call breaks the graph."""
    if len(args) > 1 and type(args[1]) is Opaque:
        raise Break("PL0017", f"{args[1].source.name} is the name of an attribute", clean=True)
    if len(args) > 1 and not isinstance(args[1], str):
        if type(args[1]) is LateText:
            needed(args[1])
        raise Break("PL0004", "an attribute whose name is no text", clean=True)


lookaside(weakref.ref)(weak.make)


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
    if len(args) != 2:
        return getattr(*args)
    try:
        return getattr_(args[0], args[1])
    except AttributeError as e:
        say_whose(e, args[0], args[1])
        raise


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
    named(args)
    if issubclass(type(args[0]), type):
        object.__setattr__(*args)  # TypeError: it is not for classes
    setattr_(*args, True)  # type: ignore[call-arg]


@lookaside(object.__delattr__)
def l_object_delattr(args: tuple, kw: dict) -> None:
    named(args)
    if issubclass(type(args[0]), type):
        object.__delattr__(*args)  # TypeError: it is not for classes
    delattr_(*args, True)  # type: ignore[call-arg]


@lookaside(object.__getattribute__)
def l_object_getattribute(args: tuple, kw: dict) -> Any:
    named(args)
    return getattr_(args[0], args[1], True)


@lookaside(object.__init__)
def l_object_init(args: tuple, kw: dict) -> None:
    if len(args) > 1 or kw:
        object.__init__(*args, **kw)  # it takes none, and says so unless the class has a constructor of its own


@lookaside(super)
def l_super(args: tuple, kw: dict) -> Any:
    if args:
        none_opaque(args)
        if len(args) == 2 and type(args[1]) is TracedTensor:
            return tensor_subclasses.Super(*args)
        return super(*args)
    f = vm.frame
    if not f.code.co_argcount:
        raise RuntimeError("super(): no arguments")
    try:
        operands = super_operands(f)
    except (NameError, UnboundLocalError):
        raise RuntimeError("super(): empty __class__ cell") from None
    if operands is None:
        raise RuntimeError("super(): __class__ cell not found")
    none_opaque(operands)
    return tensor_subclasses.Super(*operands) if type(operands[1]) is TracedTensor else super(*operands)


@lookaside(id)
def l_id(args: tuple, kw: dict) -> int:
    o = args[0]
    world = vm.world
    world.bound_here = "the id() of an object"
    if type(o) is TracedTensor:
        return id_of_tensor(o)
    if type(o) is Opaque:
        raise Break("PL0017", f"the id() of {o.source.name}", clean=True)
    h = world.by_copy.get(id(o))
    if h is not None:
        world.guard(h.source, "ID_MATCH", h.orig)
        return id(h.orig)
    if id(o) in world.outside:
        world.guard(world.sources[id(o)], "ID_MATCH", o)
        return id(o)
    if id(o) in world.standing:
        _, real, source = world.standing[id(o)]
        world.guard(source, "ID_MATCH", real)
        return id(real)
    if id(o) in world.own_functions or not (issubclass(type(o), LASTING) or o is None or o is Ellipsis or o is NotImplemented):
        return OwnId(o)
    return id(o)


@lookaside(traceback.clear_frames)
def l_clear_frames(args: tuple, kw: dict) -> None:
    """Frames that an exception of the program came through hold nothing (`tracebacks.py`)."""
    tb = args[0] if len(args) == 1 and not kw else None
    while isinstance(tb, types.TracebackType) and tracebacks.is_users(tb):
        tb = tb.tb_next
    if tb is not None or not args:
        raise Break("PL0033", "frames from before the capture are cleared", clean=True)


def id_of_tensor(t: TracedTensor) -> int:
    """That of a parameter is the same on each call. Of others it is asked anew when all is done, and compared with others alone."""
    real = vm.world.real.get(id(t))
    if real is None and t.source is None and not is_stand(t):
        return OwnId(t)
    if real is not None and t.pytype not in (torch.nn.Parameter, torch.nn.Buffer) and not is_stand(t):
        return PassingId(t)
    if real is None:
        raise Break("PL0012", "the id() of a tensor that is another one on each call", clean=True)
    return id(tensors.outside_key(t))


LASTING = (type, FunctionType, types.ModuleType, types.BuiltinFunctionType, bool)
"""Guarded by identity wherever they are read."""


@lookaside(next)
def l_next(args: tuple, kw: dict) -> Any:
    if len(args) == 2:
        if (chosen := folded_generators.first(args, args[1])) is not UNSET:
            return chosen
        try:
            return get_next(args[0])
        except StopIteration:
            return args[1]
    return get_next(args[0])


@lookaside(len)
def l_len(args: tuple, kw: dict) -> Any:
    return length(args[0])


@lookaside(operator.length_hint)
def l_length_hint(args: tuple, kw: dict) -> Any:
    if kw or not args or len(args) == 2 and type(args[1]) is not int:
        return native(operator.length_hint, args, kw)
    if lookup(type(args[0]), "__len__") is UNSET and not made_in_python(vm.type_of(args[0])):
        return native(operator.length_hint, args, kw)
    return length_hint(*args, *(0,) * (2 - len(args)))


@lookaside(bool)
def l_bool(args: tuple, kw: dict) -> Any:
    one = not vm.asking and args and type(args[0]) is TracedTensor and tensors.replaced(args[0], "__bool__") is None
    if one and globalstate.heard():
        return tensors.conversion_told(args[0], "__bool__", (bool, torch.SymBool))
    if one and all([type(n) is int and n == 1 for n in args[0].sizes]):
        number = graph_call(ORIGINAL.item, (args[0],), {}, "item")  # what branches on it may be the test of a loop
        return number if args[0].dtype is torch.bool else compare(operator.ne, number, 0)
    if args and type(args[0]) in (torch.SymInt, torch.SymFloat) and not all([s.backed for s in expr_of(args[0], vm.scope).symbols()]):
        return compare(operator.ne, args[0], 0)
    return truth(args[0]) if args else False


@lookaside(operator.index)
def l_index(args: tuple, kw: dict) -> Any:
    if len(args) != 1 or kw:
        return operator.index(*args, **kw)  # raises
    return index(args[0])


@lookaside(operator.truth)
def l_truth(args: tuple, kw: dict) -> Any:
    return truth(args[0])


def not_(v: Any) -> Any:
    v = l_bool((v,), {}) if type(v) is TracedTensor else v
    return inverted(v) if of_data(v) else not truth(v)


def converted(v: Any, *names: str) -> Any:
    """What a conversion written in Python gives, which may be symbolic; UNSET if there is none."""
    for name in names:
        m = lookup(type(v), name)
        if m is not UNSET:
            return interp(m, (v,), {}) if type(m) is FunctionType else UNSET
    return UNSET


@lookaside(int)
def l_int(args: tuple, kw: dict) -> Any:
    if len(args) == 1 and not kw:
        if type(args[0]) is torch.SymBool and of_data(args[0]):
            return as_int(args[0])
        row = ROWS.get(type(args[0]))
        if row is not None and row.number is not None:
            return row.number(args[0], int)
        r = converted(args[0], "__int__", "__index__")
        if type(r) in (int, torch.SymInt):
            return r
    process_state.digits(*args[:1])
    return native(int, args, kw)


@lookaside(float)
def l_float(args: tuple, kw: dict) -> Any:
    if len(args) == 1 and not kw:
        row = ROWS.get(type(args[0]))
        if row is not None and row.number is not None:
            return row.number(args[0], float)
        r = converted(args[0], "__float__")
        if type(r) in (float, torch.SymFloat):
            return r
    return native(float, args, kw)


def extremum(fn: Any, symbolic: Any) -> Callable:
    """`max` and `min`: of plain numbers, some symbolic, without asking which is the larger."""

    def pick(args: tuple, kw: dict) -> Any:
        if not kw.keys() <= {"key", "default"}:
            return native(fn, args, kw)  # which says so before it reads anything
        values, rest = (args, None) if len(args) != 1 else until_heard(args[0])
        if rest is not None:
            return inline(in_python.largest if fn is max else in_python.smallest, (*values, rest), {})
        if not kw and any([type(v) is TracedTensor for v in values]):
            return inline(in_python.largest if fn is max else in_python.smallest, (*values, ()), {})
        if not kw and any(type(v) is torch.SymInt for v in values) and all(type(v) in (int, torch.SymInt) for v in values):
            return functools.reduce(symbolic, values)
        if not kw and len(values) == 2 and any([type(v) is torch.SymFloat and not v.node.expr.backed for v in values]):
            if all([type(v) in (float, torch.SymFloat) for v in values]):  # CPython keeps the first, unless the other one wins
                a, b = [expr_of(v, vm.scope) for v in values]
                return to_sym(vm.scope, ops.where(ops.gt(b, a) if fn is max else ops.lt(b, a), b, a))
        if not kw and len(values) <= MOST_FLOATS and any(map(of_data, values)) and (found := as_floats(values, args)) is not None:
            return to_sym(vm.scope, functools.reduce(ops.DOORS["fmax" if fn is max else "fmin"], found))
        return native(fn, (list(values),) if len(args) == 1 else args, kw)

    return pick


MOST_FLOATS = 64  # of which the largest or smallest is one expression


LOOKASIDES[max] = extremum(max, torch.sym_max)
LOOKASIDES[min] = extremum(min, torch.sym_min)


@lookaside(abs, operator.abs)
def l_abs(args: tuple, kw: dict) -> Any:
    v = args[0]
    if type(v) is torch.SymInt:
        return torch.sym_max(v, -v)  # type: ignore[operator]
    return unary(operator.abs, v)


@lookaside(divmod)
def l_divmod(args: tuple, kw: dict) -> Any:
    a, b = args
    symbolic = type(a) in SYM_TYPES or type(b) in SYM_TYPES
    unlike = any([type(x) is float and not math.isfinite(x) for x in args])
    if symbolic and not unlike and {type(a), type(b)} <= {*SYM_TYPES, int, bool, float}:
        divided_at_once(vm.scope, a, b)
        return binary(operator.floordiv, a, b), binary(operator.mod, a, b)
    return native(divmod, (concrete(a), concrete(b)) if symbolic else args, kw)


@lookaside(pow)
def l_pow(args: tuple, kw: dict) -> Any:
    if len(args) == 2 and not kw:
        return binary(operator.pow, *args)
    return native(pow, tuple(concrete(a) if type(a) in SYM_TYPES else a for a in args), kw)


@lookaside(FunctionType)
def l_function(args: tuple, kw: dict) -> Any:
    """`types.FunctionType(code, globals)`: names are looked up in namespaces of modules alone."""
    space = args[1] if len(args) > 1 else kw.get("globals")
    if isinstance(space, dict) and not is_namespace(space):
        raise Break("PL0014", "a function whose global names are the items of a dict", clean=True)
    return native(FunctionType, args, kw)


@lookaside(locals)
def l_locals(args: tuple, kw: dict) -> dict:
    return locals_of(vm.frame)


@lookaside(vars)
def l_vars(args: tuple, kw: dict) -> Any:
    if not args:
        return l_locals(args, kw)
    try:
        return getattr_(args[0], "__dict__")
    except AttributeError:
        pass
    raise TypeError("vars() argument must have __dict__ attribute")


@lookaside(operator.getitem, tail=True)
def l_getitem(args: tuple, kw: dict) -> Any:
    return getitem(*args)


@lookaside(operator.setitem)
def l_setitem(args: tuple, kw: dict) -> None:
    setitem(*args)


@lookaside(operator.is_)
def l_is(args: tuple, kw: dict) -> bool:
    return same(*args)


@lookaside(operator.is_not)
def l_is_not(args: tuple, kw: dict) -> bool:
    return not same(*args)


def same(a: Any, b: Any) -> bool:
    if type(a) is Opaque or type(b) is Opaque:
        raise Break("PL0017", "an identity test of an opaque input", clean=True)
    return True if a is b and type(a) not in KNOWN_BY_WORTH else vm.same_object(a, b)


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
        **dict.fromkeys((operator.neg, operator.pos, operator.invert), unary),
    }
    for fn, slot in from_slots.items():
        LOOKASIDES[fn] = functools.partial(lambda slot, fn, args, kw: slot(fn, *args), slot, fn)


_operator_rows()
LOOKASIDES[operator.inv] = LOOKASIDES[operator.invert]
LOOKASIDES[operator.truth] = lambda args, kw: truth(*args)
LOOKASIDES[operator.not_] = lambda args, kw: not_(*args)


@lookaside(all)
def l_all(args: tuple, kw: dict) -> Any:
    other = found(args, False)
    return inverted(other)


@lookaside(any)
def l_any(args: tuple, kw: dict) -> Any:
    return found(args, True)


def found(args: tuple, wanted: bool) -> Any:
    """Whether the truth of one of the items is `wanted`; no further one is asked for then. Of truths from data it is one relation, where
    nobody can see that all are asked for."""
    given = folded_generators.rounds(args)
    if given is not None and (known := folded_generators.truths(given, wanted)) is not None:
        return any_of(known)
    items = args[0]
    quiet = computes_nothing_else(items)
    truths: list[Any] = []
    it = get_iter(items)
    while True:
        try:
            x = get_next(it)
        except StopIteration:
            return any_of(truths)
        except Exception as e:
            if not truths or vm.internal_error(e):
                raise
            raise Break("PL0002", f"any() or all() of what data decides, and an item raises {type(e).__name__}", clean=True) from None
        if quiet and of_data(x):
            told = x if type(x) is torch.SymBool else x != 0
            truths.append(told if wanted else inverted(told))
        elif truth(x) is wanted:
            return True


def sequence(cls: type) -> Callable:
    def make(args: tuple, kw: dict) -> Any:
        if len(args) == 1 and not kw:
            tensors.hinted(args[0])
            late = late_lists.made_of(args[0]) if cls is list else None
            if late is not None:
                return late
            return args[0] if type(args[0]) is cls is tuple else cls(unpack(args[0], hint=True))
        return native(cls, args, kw)

    return make


LOOKASIDES[list] = sequence(list)
LOOKASIDES[tuple] = sequence(tuple)


@lookaside(torch.Size)
def l_size(args: tuple, kw: dict) -> Any:
    """Its items are taken by their `__index__`: tensors of one whole number, for one."""
    if len(args) != 1 or kw:
        return native(torch.Size, args, kw)
    sizes = unpack(args[0])
    for i, n in enumerate(sizes):
        if issubclass(vm.type_of(n), np.integer) and not issubclass(type(n), np.integer):  # it stays what it is
            raise Break("PL0026", "a torch.Size with an integer of NumPy's that is not known yet", clean=True)
        if not issubclass(type(n), np.integer) and type(n) not in (int, bool) and has_index(n):
            try:
                sizes[i] = index(n)
            except TypeError:
                raise TypeError(f"torch.Size() takes an iterable of 'int' (item {i} is '{type_name(vm.type_of(n))}')") from None
    return torch.Size(sizes)



def hashed(cls: type) -> Callable:
    def make(args: tuple, kw: dict) -> Any:
        if len(args) == 1 and not kw:
            if type(args[0]) is dict or issubclass(type(args[0]), (set, frozenset)):  # they know the hashes of their members
                return native(cls, args, kw)
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
        if mappings.is_mapping(v):
            out.update(mappings.entries(v))
        else:
            for n, pair in enumerate(lazily(v)):
                setitem(out, *key_and_value(n, pair))
    out.update(kw)
    return out


def key_and_value(n: int, pair: Any) -> list:
    """One item of what a dict is made from."""
    t = vm.type_of(pair)
    if lookup(t, "__iter__") in (UNSET, None) and lookup(t, "__getitem__") is UNSET:
        raise TypeError(f"cannot convert dictionary update sequence element #{n} to a sequence")
    items = unpack(pair)
    if len(items) != 2:
        raise ValueError(f"dictionary update sequence element #{n} has length {len(items)}; 2 is required")
    return items


@lookaside(range)
def l_range(args: tuple, kw: dict) -> Any:
    if not all([type(a) is int or has_index(a) for a in args]):
        return range(*args, **kw)  # raises
    bounds = [index(a) for a in args]
    walked = walks.over_range(bounds) if not kw else None
    return walked if walked is not None else range(*map(concrete, bounds), **kw)  # type: ignore[arg-type]


TEXTS = {str: ("__str__", "__repr__"), repr: ("__repr__",), ascii: ("__repr__",), format: ("__format__", "__str__", "__repr__")}


def text(fn: Any) -> Callable:
    def make(args: tuple, kw: dict) -> Any:
        if not kw and (len(args) == 1 or len(args) == 2 and fn is format):
            later = formatted(args[0], CONVERSIONS.index(fn) if fn is not format else 0, args[1] if len(args) == 2 else "", False)
            if later is not None:
                return later
        process_state.digits(*args[:1])
        for name in TEXTS[fn] if args and ROWS.get(type(args[0])) is None else ():
            lookup(type(args[0]), name)
        if args and issubclass(type(args[0]), BaseException) and fn is not str:
            guard_name(type(args[0]))  # which the text begins with
        if fn is str and len(args) + len(kw) > 1:
            process_state.codec(*args[1:], **{k: v for k, v in kw.items() if k != "object"})
        if fn is format and len(args) > 1 and type(args[1]) is str and args[1].endswith("n"):
            raise Break("PL0003", "formatting as the locale has it", clean=True)
        row = ROWS.get(type(args[0])) if args else None
        if row is not None and fn is format and row.format is not None and len(args) < 3:
            return row.format(args[0], args[1] if len(args) > 1 else "")
        if row is not None and fn is not format and row.text is not None and len(args) == 1:
            return row.text(args[0], fn)
        return native(fn, tuple(concrete(a) if type(a) in SYM_TYPES else a for a in args), kw)

    return make


for _fn in (str, repr, ascii, format):
    LOOKASIDES[_fn] = text(_fn)


@lookaside(zip)
def l_zip(args: tuple, kw: dict) -> Any:
    return native(zip, tuple(iterable(a) for a in args), kw)


@lookaside(enumerate)
def l_enumerate(args: tuple, kw: dict) -> Any:
    if not args or kw.keys() - {"start"}:
        return native(enumerate, args, kw)
    return native(enumerate, (iterable(args[0]), *[concrete(a) if type(a) in SYM_TYPES else a for a in args[1:]]), kw)


@lookaside(reversed)
def l_reversed(args: tuple, kw: dict) -> Any:
    o = args[0]
    if type(o) is TracedTensor:
        return graph_call(ORIGINAL.__reversed__, (o,), {}, "__reversed__")
    m = lookup(type(o), "__reversed__")
    if type(m) is FunctionType and type(o) in ROWS:  # pliant's own, of what stands for an object
        return m(o)
    if type(m) is FunctionType:
        return interp(m, (o,), {})
    return native(reversed, args, kw)


def iterable(o: Any) -> Any:
    """What C code may iterate natively: our iterators and generators come back to us anyway."""
    t = type(o)
    if t is TracedTensor:
        return unpack(o)
    if t in SEQUENCES and id(o) not in vm.world.by_copy:
        return o
    if t is types.GenericAlias:
        return tuple([native(next, (get_iter(o),), {})])  # another one in each call, which is noted
    if t is not Generator and t not in ROWS and type(lookup(t, "__iter__")) is FunctionType:
        return o  # its `__iter__` comes back to us as well, and may do anything: it is called once
    return get_iter(o)


SEQUENCES = {list, tuple, str, range, torch.Size}


# -- tensors ------------------------------------------------------------------------------------------------


PYTHON_ALONE = "the numbers of `tolist()`, with which only Python works"


def tensor_tolist(t: Any, args: tuple, kw: dict) -> Any:
    if vm.history is not None and vm.frame is not None and vm.scope.oracle is None and vm.history.python_behind(vm.frame.code):
        raise Break("PL0002", PYTHON_ALONE, clean=True)
    return numbers_of(t)


def numbers_of(t: Any) -> Any:
    if not t.sizes:
        return tensors.item(t)
    n = t.sizes[0]
    if type(n) is not int:
        concrete(n)  # a list has a length
    return [numbers_of(x) for x in unpack(t)]


@lookaside(torch.Tensor.__contains__)
def l_tensor_contains(args: tuple, kw: dict) -> Any:
    """A truth that only the run knows; of what is no number, PyTorch's own function says that it is none."""
    fits = not kw and len(args) == 2 and type(args[1]) in (TracedTensor, int, float, bool, complex, *SYM_TYPES)
    if not fits or type(args[0]) is not TracedTensor or tensors.of_class(args[0]) or torch._C._len_torch_function_stack():
        return graph_call(ORIGINAL.__contains__, args, kw)
    equal = compare(operator.eq, args[1], args[0])
    return call(getattr_(call(getattr_(equal, "any"), (), {}), "item"), (), {})


def tensor_numel(t: Any, args: tuple, kw: dict) -> Any:
    if globalstate.heard():
        return captured_call(ORIGINAL.numel, (t, *args), kw)
    return math.prod(t.sizes)


def tensor_is_inference(t: Any, args: tuple, kw: dict) -> bool:
    """Whether it was made in inference mode: inputs say so (their dispatch keys are guarded), a view is what its base is."""
    return t.storage_id in vm.trace.of_inference if type(t.owner) is weakref.ref else is_inference_mode_enabled()


def function_of(fn: Any, method: Callable[[Any, tuple, dict], Any]) -> None:
    """`torch.name(tensor)` does what the method does; a tensor that nothing stands for is let through the gate, or not."""

    @lookaside(fn)
    def ask(args: tuple, kw: dict) -> Any:
        (t,) = (*args, *kw.values())
        return method(t, (), {}) if type(t) is TracedTensor else graph_call(fn, args, kw)


def without_arguments(name: str, method: Callable[[Any, tuple, dict], Any]) -> Callable[[Any, tuple, dict], Any]:
    """A method of tensors that takes none: with some it raises, in words that depend on how it was looked up."""

    def called(t: Any, args: tuple, kw: dict) -> Any:
        if args or kw:
            raise Break("PL0011", f"Tensor.{name}() is given arguments, which it refuses", clean=True)
        return method(t, args, kw)

    return called


function_of(torch.is_inference, tensor_is_inference)
function_of(torch.numel, tensor_numel)
for _name, _method in {
    "is_inference": tensor_is_inference, "numel": tensor_numel, "nelement": tensor_numel, "tolist": tensor_tolist,
}.items():  # fmt: skip
    METHOD_LOOKASIDES[(torch.Tensor, _name)] = without_arguments(_name, _method)
METHOD_LOOKASIDES[(torch.Tensor, "__len__")] = lambda t, a, k: length(t)
METHOD_LOOKASIDES[(torch.Tensor, "__int__")] = lambda t, a, k: tensors.number(t, int)
METHOD_LOOKASIDES[(torch.Tensor, "__float__")] = lambda t, a, k: tensors.number(t, float)
METHOD_LOOKASIDES[(torch.Tensor, "__bool__")] = lambda t, a, k: l_bool((t,), {})
METHOD_LOOKASIDES[(torch.Tensor, "__index__")] = lambda t, a, k: tensors.index(t)
METHOD_LOOKASIDES[(torch.Tensor, "__iter__")] = lambda t, a, k: get_iter(t)

LOOKASIDES[opaque_use] = lambda args, kw: opaque_use(*args)  # the break is about the value, not about what it takes to say so

for _name in TAKES:  # methods of the proxy: nothing to interpret
    LOOKASIDES[getattr(Generator, _name)] = STANDS_FOR_C[getattr(Generator, _name)] = functools.partial(called_generator, _name)


@lookaside(torch.jit.is_scripting, torch.jit.is_tracing, torch.compiler.is_exporting, torch.nn.modules.activation._is_make_fx_tracing)
def l_false(args: tuple, kw: dict) -> bool:
    return False


@lookaside(torch._C._get_tracing_state)
def l_none(args: tuple, kw: dict) -> None:
    return None


@lookaside(torch._shape_as_tensor)
def l_shape_as_tensor(args: tuple, kw: dict) -> Any:
    """The sizes, as data on the CPU."""
    given = (*args, *kw.values())
    if len(given) != 1 or type(given[0]) is not TracedTensor or tensors.of_class(given[0]) or globalstate.heard():
        raise Break("PL0011", "_shape_as_tensor of a tensor of a class, or of which a mode is told", clean=True)
    return call(torch.tensor, (list(given[0].sizes),), {"dtype": torch.int64, "device": "cpu"})


@lookaside(torch._assert)
def l_assert(args: tuple, kw: dict) -> Any:
    cond = args[0] if args else kw.get("condition")
    if type(cond) is not TracedTensor and truth(cond):
        return None  # the message, which may be late, is not looked at
    return graph_call(torch._assert, args, kw)


def of_type(cls: Any, dtype: torch.dtype) -> Any:
    """`torch.IntTensor([1, 2])`, `torch.IntTensor(2, 3)`: the old names for a tensor with this data, or of these sizes."""

    def made(args: tuple, kw: dict) -> Any:
        if kw or torch.utils._device.CURRENT_DEVICE is not None:
            raise Break("PL0004", f"construction of torch.{cls.__name__}", clean=True)
        if len(args) == 1 and type(args[0]) in (list, tuple):
            return vm.call(torch.tensor, args, {"dtype": dtype})
        if len(args) == 1 and type(args[0]) is TracedArray and args[0].ndim and not globalstate.heard():  # its memory, if it has that dtype
            return vm.call(torch.as_tensor, args, {"dtype": dtype})
        if all([type(n) in (int, torch.SymInt) for n in args]):
            return graph_call(torch.empty, (args or (0,),), {"dtype": dtype})
        raise Break("PL0004", f"construction of torch.{cls.__name__}", clean=True)

    return made


for _name, _dtype in {
    "Float": torch.float32, "Double": torch.float64, "Half": torch.float16, "BFloat16": torch.bfloat16, "Byte": torch.uint8,
    "Char": torch.int8, "Short": torch.int16, "Int": torch.int32, "Long": torch.int64, "Bool": torch.bool,
}.items():  # fmt: skip
    _cls = getattr(torch, f"{_name}Tensor")
    LOOKASIDES[_cls] = of_type(_cls, _dtype)

LOOKASIDES[needed] = lambda args, kw: needed(*args)  # run, not interpreted


vm.locals = locals_of
vm.truth_of_tensor = lambda t: l_bool((t,), {})
vm.specialize = concrete
