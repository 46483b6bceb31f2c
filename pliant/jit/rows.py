"""How values are made again, type by type: the rows that `reconstruct.Builder` looks up.

To teach it a type: an immutable one needs `literal`, a mutable one `empty` and `fill` (see `reconstruct.Row`). What has no row and is
not an instance of a Python class cannot be reconstructed.
"""

from __future__ import annotations

import array
import collections
import functools
import itertools
import random
import sys
import types
import weakref
from collections.abc import Callable
from enum import Enum
from typing import Any

import numpy as np
import torch
from torch.utils.hooks import RemovableHandle

from pliant.graph.distributed_tensors import is_placement
from pliant.graph.originals import hook_set
from pliant.graph.seeding import generator_in
from pliant.graph.traced import HOOKS, RETAINED, Reconsider, TracedTensor
from pliant.interpret import runtime, set_order, tape, tracebacks
from pliant.interpret.callbacks import Callback
from pliant.interpret.capture import NULL, UNSET
from pliant.interpret.contextvars_ import TOKENS, Token
from pliant.interpret.data_ranges import DataIterator, DataRange
from pliant.interpret.generators import METHODS as GENERATOR_METHODS
from pliant.interpret.generators import Generator
from pliant.interpret.grown_lists import Grown
from pliant.interpret.hooks import LateHandle
from pliant.interpret.immutable import IMMUTABLE
from pliant.interpret.late_items import ListItem, TextAt
from pliant.interpret.late_text import CONVERSIONS, LateText
from pliant.interpret.opaque import Opaque
from pliant.interpret.opcodes import Lazy
from pliant.interpret.shadows import size
from pliant.interpret.types import dict_views
from pliant.interpret.types.functions import BUILTIN, bound_descriptor, is_namespace
from pliant.interpret.types.global_names import Names
from pliant.interpret.types.identities import OwnId, PassingId
from pliant.interpret.types.random_generators import GeneratorMethod, TracedGenerator
from pliant.interpret.types.subclasses import made_by_c
from pliant.interpret.types.thread_locals import ThreadNames
from pliant.jit import immutable_rows, iterator_rows, support
from pliant.jit.exception_rows import EXCEPTION, HEAPTYPE
from pliant.jit.immutable_rows import immutable_row
from pliant.jit.reconstruct import CONSTANT, INSTANCE, Builder, CannotReconstruct, Early, Name, Row, class_of
from pliant.jit.tensor_rows import traced
from pliant.native import EntryPoint, made_in_python
from pliant.native.iterators import state_of

try:
    from pliant.jit import array_rows
except ImportError:  # without NumPy
    array_rows = None  # type: ignore[assignment]


SIMPLE = {type(None), bool, int, float, complex, str, bytes, type(Ellipsis), type(NotImplemented)}


def forbidden(b: Builder, value: Any) -> str:
    raise CannotReconstruct(f"{value!r} as a value")


def token(b: Builder, value: Token) -> str:
    raise Reconsider(value.var.name, "its token is needed behind the graph", TOKENS)


def grown(b: Builder, v: Grown) -> str:
    if not v.more and not v.copied:
        return b.output(v.token)
    found = b.memo.get(id(v))
    return b.make(v, GROWN) if found is None else b.revisit(found)


GROWN = Row(lambda b, v: f"[*{b.output(v.token)}, {b.refs(v.more)}]")


special: dict[type, Callable[[Builder, Any], str]] = {
    **dict.fromkeys(SIMPLE, Builder.simple),
    TracedTensor: traced,
    **dict.fromkeys((torch.SymInt, torch.SymFloat, torch.SymBool), Builder.number),
    Name: lambda b, v: v.text,
    Callback: lambda b, v: b.ref(v.fn),
    Lazy: lambda b, v: b.outside(v.source),
    Opaque: lambda b, v: b.outside(v.source),
    Grown: grown,
    OwnId: lambda b, v: f"{b.constant(id)}({b.ref(v.owner)})",
    PassingId: lambda b, v: f"{b.constant(id)}({b.ref(v.owner)})",
    Token: token,
    Names: lambda b, v: b.constant(v.space),
    type(UNSET): forbidden,
    type(NULL): forbidden,
}


# -- rows ---------------------------------------------------------------------------------------------------------------
def call_row(name: str, parts: Callable[[Any], tuple]) -> Row:
    return Row(lambda b, v: f"{b.constant(support.BUILDERS[name], name)}({b.refs(parts(v))})")


def dict_filler(set_many: Callable) -> Callable[[Builder, Any, str], None]:
    def fill(b: Builder, v: Any, name: str) -> None:
        if size(v):
            kind = collections.OrderedDict if issubclass(type(v), collections.OrderedDict) else dict  # the former has an order of its own
            b.emit(f"{b.constant(set_many)}({name}, ({''.join(f'({b.key(k)}, {b.ref(x)}), ' for k, x in kind.items(v))}))")

    return fill


def fill_list(b: Builder, v: Any, name: str) -> None:
    if size(v):
        b.emit(f"{b.constant(list.extend, 'extend')}({name}, [{b.refs(list.__iter__(v))}])")


def fill_set(b: Builder, v: Any, name: str) -> None:
    items, table = f"[{', '.join(map(b.key, set.__iter__(v)))}]", in_order(b, v)
    if size(v) or table != "None":
        b.emit(f"{b.constant(set_order.become, 'become')}({name}, {items}, {table})")


def fill_deque(b: Builder, v: Any, name: str) -> None:
    if size(v):
        b.emit(f"{b.constant(collections.deque.extend, 'deque_extend')}({name}, [{b.refs(collections.deque.__iter__(v))}])")


fill_dict_items = dict_filler(support.fill_items)
fill_ordered_items = dict_filler(support.fill_ordered)


def set_literal(b: Builder, v: set) -> str:
    table = in_order(b, v)
    items = f"[{', '.join(map(b.key, v))}]"
    return f"{b.constant(set)}({items if v else ''})" if table == "None" else f"{b.constant(set_order.made, 'set_made')}({items}, {table})"


def in_order(b: Builder, v: Any) -> str:
    """The table of a set, for what makes it again; "None" where a new one gets it by itself, or nothing is known of what it will be."""
    table = set_order.table_of(v)
    items = set_order.members(v)
    if not all([set_order.portable(set_order.known(x)) for x in items]) and len(items) > 1:
        b.world.bound_here = "the order of a set"
    return "None" if table is None or set_order.by_itself(items, table) else b.constant(table, "table")


def cell_fill(b: Builder, cell: Any, name: str) -> None:
    try:
        content = cell.cell_contents
    except ValueError:
        return
    b.emit(f"{name}.cell_contents = {b.ref(content)}")


def cell_literal(b: Builder, cell: Any) -> str:
    make = b.constant(types.CellType, "Cell")
    try:
        content = cell.cell_contents
    except ValueError:
        return f"{make}()"
    return f"{make}({b.ref(content)})"


def own_cell(b: Builder, v: Any) -> Row:
    return Row(cell_literal, lambda b, v: f"{b.constant(types.CellType, 'Cell')}()", cell_fill)


def function_literal(b: Builder, f: types.FunctionType) -> str:
    parts = [b.constant(f.__code__, "code"), b.constant(f.__globals__, "globals"), b.ref(f.__name__)]
    parts += [b.ref(f.__defaults__), b.tuple(f.__closure__) if f.__closure__ else "None"]
    return f"{b.constant(types.FunctionType, 'Function')}({', '.join(parts)})"


def function_after(b: Builder, f: types.FunctionType, name: str) -> None:
    if f.__qualname__ != f.__code__.co_qualname:
        b.emit(f"{name}.__qualname__ = {b.constant(f.__qualname__, 'qualname')}")
    if f.__module__ != f.__globals__.get("__name__"):
        b.emit(f"{name}.__module__ = {b.constant(f.__module__, 'module')}")
    if f.__kwdefaults__:
        b.emit(f"{name}.__kwdefaults__ = {{{b.pairs(f.__kwdefaults__)}}}")
    if getattr(f, "__type_params__", ()):
        b.emit(f"{name}.__type_params__ = {b.tuple(f.__type_params__)}")
    if f.__annotations__:
        b.emit(f"{name}.__annotations__ = {b.ref(f.__annotations__)}")
    consts = f.__code__.co_consts
    if f.__doc__ is not (consts[0] if consts and isinstance(consts[0], str) else None):
        b.emit(f"{name}.__doc__ = {b.constant(f.__doc__, 'doc') if type(f.__doc__) is str else b.ref(f.__doc__)}")
    if f.__dict__:
        b.emit(f"{name}.__dict__.update({{{b.pairs(f.__dict__)}}})")


OWN_FUNCTION = Row(function_literal, after=function_after)


def generator_method(b: Builder, f: types.FunctionType) -> str:
    name = f.__name__
    return b.constant(getattr(types.GeneratorType, name), f"generator_{name}")


GENERATOR_METHOD = Row(generator_method)


def method_literal(b: Builder, m: types.MethodType) -> str:
    """A bound method; one of a generator's proxy is the generator's own."""
    if type(m.__self__) is Generator and m.__func__ in GENERATOR_METHODS or type(m.__self__) is Grown:
        return f"{b.constant(getattr)}({b.ref(m.__self__)}, {m.__func__.__name__!r})"
    if not callable(m.__func__):  # C code can bind anything
        if hasattr(type(m.__func__), "__get__"):
            raise CannotReconstruct("a bound method of what cannot be called")
        return f"{b.constant(classmethod)}({b.ref(m.__func__)}).__get__(None, {b.ref(m.__self__)})"
    return f"{b.constant(types.MethodType, 'method')}({b.ref(m.__func__)}, {b.ref(m.__self__)})"


def function_of_class(b: Builder, f: Any) -> str:
    """A function that was made with its class, and will be with the one of the emitted code."""
    cls, name, wrapped = b.world.remade_functions[id(f)]
    return f"{b.ref(cls)}.__dict__[{name!r}]{'.__func__' if wrapped else ''}"


FUNCTION_OF_CLASS = Row(function_of_class)


def function_row(b: Builder, f: Any) -> Row:
    if f in GENERATOR_METHODS:
        return GENERATOR_METHOD
    if id(f) in b.world.remade_functions:
        return FUNCTION_OF_CLASS
    return OWN_FUNCTION if id(f) in b.world.own_functions else CONSTANT


def partial_after(b: Builder, p: Any, name: str) -> None:
    if p.__dict__:
        b.emit(f"{name}.__dict__.update({{{b.pairs(p.__dict__)}}})")


def partial_literal(b: Builder, p: functools.partial) -> str:
    make = b.constant(functools.partial)
    kw = f", **{{{b.pairs(p.keywords)}}}" if p.keywords else ""
    return f"{make}({b.refs((p.func, *p.args))}{kw})"


def array_literal(b: Builder, v: array.array) -> str:
    made = f"{b.constant(array.array)}({v.typecode!r}, {b.simple(v.tobytes())})"
    exact = v.__sizeof__() == array.array(v.typecode).__sizeof__() + len(v) * v.itemsize
    return f"{made}.__copy__()" if exact and v else made  # an array made of bytes has room for more


def property_after(b: Builder, p: property, name: str) -> None:
    _, known_as = b.world.named_properties.get(id(p), (p, None))
    if known_as is not None:
        b.emit(f"{b.constant(property.__dict__['__set_name__'], 'set_name')}({name}, None, {known_as!r})")


def cached_property_after(b: Builder, p: functools.cached_property, name: str) -> None:
    if p.attrname is not None:
        b.emit(f"{name}.attrname = {p.attrname!r}")


def bound_c_row(b: Builder, m: Any) -> Row:
    """A C function: a constant, unless it is bound to an object that the program made or shadowed."""
    owner = m.__self__
    if issubclass(type(owner), type) and id(owner) in b.world.own_functions:  # (`isinstance` would ask it for its class)
        return Row(method_of_own_class)
    if owner is None or is_namespace(type(owner)) or issubclass(type(owner), (types.ModuleType, type)):
        return CONSTANT
    own = bound_descriptor(m)
    on_mesh = type(owner) is TracedTensor and getattr(b.world.history, "on_mesh", False)  # `tolist`, `numpy`: remote tensors have theirs
    if own is None or on_mesh:
        return Row(lambda b, m: f"{b.constant(getattr)}({b.ref(m.__self__)}, {m.__name__!r})")
    return Row(lambda b, m: f"{b.constant(own.__get__, f'bind_{m.__name__}')}({b.ref(m.__self__)}, {class_of(b, m.__self__)})")


def method_of_own_class(b: Builder, m: Any) -> str:
    """A C function bound to a class that the program made: a class method of a base, or a method of its metaclass."""
    cls, name = m.__self__, m.__name__
    for c in cls.__mro__:
        found = c.__dict__.get(name)
        if type(found) is types.ClassMethodDescriptorType and found.__get__(None, cls) == m:
            return f"{b.constant(found.__get__, f'bind_{name}')}(None, {b.ref(cls)})"
    for c in type(cls).__mro__:
        found = c.__dict__.get(name)
        if type(found) in (types.MethodDescriptorType, types.WrapperDescriptorType) and found.__get__(cls, type(cls)) == m:
            return f"{b.constant(found.__get__, f'bind_{name}')}({b.ref(cls)})"
    raise CannotReconstruct(f"{name}() of a class that is made here", type(m))


def descriptor_row(b: Builder, d: Any) -> Row:
    """What C code has put into a class for a slot, its instances' attributes or weak references."""
    return Row(own_descriptor) if id(d.__objclass__) in b.world.own_functions else CONSTANT


def own_descriptor(b: Builder, d: Any) -> str:
    if d.__objclass__.__dict__.get(d.__name__) is not d:
        raise CannotReconstruct(f"the descriptor {d.__name__} of a class that is made here", type(d))
    return f"{b.ref(d.__objclass__)}.__dict__[{d.__name__!r}]"


def own_attributes(b: Builder, d: dict) -> str:
    """The `__dict__` of an object that the program made: there is no other one."""
    return f"{b.constant(support.instance_dict)}({b.ref(b.world.dict_owners[id(d)][1])})"


def super_literal(b: Builder, s: super) -> str:
    read = object.__getattribute__
    return f"{b.constant(super)}({b.refs((read(s, '__thisclass__'), read(s, '__self__')))})"


def weakref_literal(b: Builder, w: weakref.ref) -> str:
    target = w()
    if target is None:
        return f"{b.constant(support.dead_reference)}()"
    callback = w.__callback__
    return f"{b.constant(type(w))}({b.ref(target)}{', ' + b.ref(callback) if callback is not None else ''})"


DEQUE_ITERATOR = type(iter(collections.deque()))


def taken_apart(b: Builder, it: Any) -> tuple:
    """`it.__reduce__()`. Raises RuntimeError if what it walks has changed; that of a deque says so only to `next`."""
    found = b.reductions.get(id(it))
    if found is None:
        found = b.reductions[id(it)] = state_of(it)
        if type(it) is DEQUE_ITERATOR:
            next(it, None)
    return found


REVERSED = (str, bytes, tuple, list, range, dict)


def reduced(b: Builder, it: Any) -> str:
    """An iterator of C: what `copy.copy` would make of it."""
    try:
        fn, args, *rest = taken_apart(b, it)
    except RuntimeError:  # what it walks has changed its size
        kind = next((k for k in support.GROWING if type(iter(k())) is type(it)), None)
        if kind is None:
            raise CannotReconstruct(f"a {type(it).__name__} over what has changed") from None
        return f"{b.constant(support.stale)}({b.constant(iter)}, {b.constant(kind)})"
    state = rest[0] if rest else None
    if fn is iter and len(args) == 1:
        fn = iterator_rows.walker(args[0])
    if fn is reversed and type(args[0]) not in REVERSED:
        raise CannotReconstruct("a reversed over what is asked for its length by it", reversed)
    given = [f"{b.constant(support.Given)}({b.ref(a)})" if fn in ASKING and goes_on(a) else b.ref(a) for a in args]
    text = f"{b.constant(fn)}({', '.join(given)})"
    return text if state is None else f"{b.constant(support.with_state)}({text}, {b.ref(state)})"


def goes_on(it: Any) -> bool:
    """Whether this is an iterator of a class of the program's."""
    return type(it) is not Generator and made_in_python(type(it)) and any(["__next__" in c.__dict__ for c in type(it).__mro__])


def traceback_literal(b: Builder, tb: types.TracebackType) -> str:
    if not tracebacks.is_users(tb):
        return "None"
    make = b.constant(types.TracebackType, "Traceback")
    return f"{make}({b.ref(tb.tb_next)}, {b.constant(tb.tb_frame, 'frame')}, {tb.tb_lasti}, {tb.tb_lineno})"


def dict_iterator(b: Builder, it: Any) -> str:
    """An iterator over a dict goes on over that very dict, so that it notices changes of size."""
    owner = next((o for o in support.referents(it) if isinstance(o, dict)), None)
    if owner is None:
        return reduced(b, it)
    view = iterator_rows.OF_DICTS[type(it)]
    try:
        it.__reduce__()
    except RuntimeError:  # it goes on if the dict is as large again by the time that it is asked
        found = support.when_it_began(it, owner)
        if found is None:
            return f"{b.constant(support.stale)}({b.constant(view, view.__name__)})"
        return f"{b.constant(support.as_it_began)}({b.constant(view, view.__name__)}, {b.ref(owner)}, *{found})"
    left = it.__length_hint__()
    return f"{b.constant(support.advance)}({b.constant(view, view.__name__)}({b.ref(owner)}), {size(owner) - left})"


def frozen_literal(b: Builder, v: frozenset) -> str:
    table, items = in_order(b, v), f"[{', '.join(map(b.key, v))}]"
    return f"{b.constant(frozenset)}({items})" if table == "None" else f"{b.constant(set_order.made_frozen, 'frozen')}({items}, {table})"


def set_iterator(b: Builder, it: Any) -> str:
    """Like `dict_iterator`: it must notice that its set has changed its size."""
    owner = next((o for o in support.referents(it) if isinstance(o, (set, frozenset))), None)
    try:
        left = taken_apart(b, it)[1][0]
    except RuntimeError:
        owner = None
    if owner is None or len(left) > size(owner):
        return reduced(b, it)
    return f"{b.constant(iterator_rows.rest_of_set)}({b.ref(owner)}, {b.ref(left)})"


def ordered_iterator(b: Builder, it: Any) -> str:
    """Like `dict_iterator`; of what it gives, keys, values or items, only what is left of them tells."""
    owner = next((o for o in support.referents(it) if isinstance(o, collections.OrderedDict)), None)
    try:
        left = taken_apart(b, it)[1][0]
    except RuntimeError:
        owner = None
    if owner is not None and left:
        for view in iterator_rows.OF_DICTS.values():
            n = size(owner) - len(left)
            if n >= 0 and all(map(same_item, list(view(owner))[n:], left)):
                return f"{b.constant(support.advance)}({b.constant(view, view.__name__)}({b.ref(owner)}), {n})"
    return reduced(b, it)


def same_item(x: Any, y: Any) -> bool:
    """The same object, or two pairs of the same."""
    return x is y or (type(x) is type(y) is tuple and len(x) == len(y) == 2 and x[0] is y[0] and x[1] is y[1])


def itertools_classes() -> list[type]:
    """Those of `itertools` that say what they are made of, but for groups, which move each other on."""
    tied = (itertools.groupby, itertools._grouper)  # type: ignore[attr-defined]
    return [t for t in vars(itertools).values() if isinstance(t, type) and "__reduce__" in vars(t) and t not in tied]


ITERATORS: list[type] = [
    *map(type, (iter([]), iter(()), reversed([]), iter(range(0)), iter(range(2**70)), iter(""), iter("\u00e9"), iter(b""), iter(set()))),
    *map(type, (iter(bytearray()), iter(collections.deque()), reversed(collections.deque()), iter(int, 1))),
    type(iter(collections.OrderedDict())),
    enumerate, zip, map, filter, reversed,
    *itertools_classes(),
]  # fmt: skip


class _GetItemOnly:
    def __getitem__(self, i: int) -> int:
        raise IndexError


ASKING = {enumerate, zip, map, filter, *itertools_classes()} - {getattr(itertools, "_tee_dataobject", None)}
"""Those that ask what they are given for its iterator."""
ITERATORS.append(type(iter(_GetItemOnly())))

ROWS: dict[type, Row] = {
    list: Row(lambda b, v: f"[{b.refs(v)}]", lambda b, v: "[]", fill_list),
    dict: Row(lambda b, v: f"{{{b.pairs(v)}}}", lambda b, v: "{}", fill_dict_items),
    set: Row(set_literal, lambda b, v: f"{b.constant(set)}()", fill_set),
    tuple: Row(lambda b, v: b.tuple(v)),
    frozenset: Row(frozen_literal),
    torch.Size: Row(lambda b, v: f"{b.constant(torch.Size)}([{', '.join(map(b.key, v))}])"),
    slice: call_row("slice", lambda v: (v.start, v.stop, v.step)),
    range: call_row("range", lambda v: (v.start, v.stop, v.step)),
    collections.OrderedDict: Row(
        None, lambda b, v: f"{b.constant(collections.OrderedDict)}()", fill_ordered_items, Builder.attributes
    ),
    collections.defaultdict: Row(
        None, lambda b, v: f"{b.constant(collections.defaultdict)}({b.ref(v.default_factory)})", fill_dict_items
    ),
    collections.Counter: Row(None, lambda b, v: f"{b.constant(collections.Counter)}()", fill_dict_items),
    collections.deque: Row(
        None, lambda b, v: f"{b.constant(collections.deque)}((), {b.ref(MAXLEN(v))})", fill_deque
    ),
    bytearray: Row(lambda b, v: f"{b.constant(bytearray)}({b.simple(bytes(v))})"),
    array.array: Row(array_literal),
    random.Random: Row(
        None, lambda b, v: f"{b.constant(support.generator_at)}({b.constant(v.getstate(), 'state')})", Builder.attributes
    ),
    types.MappingProxyType: Row(lambda b, v: f"{b.constant(types.MappingProxyType)}({b.ref(support.mapping_of(v))})"),
    types.TracebackType: Row(traceback_literal),
    types.MethodType: Row(method_literal),
    functools.partial: Row(partial_literal, after=partial_after),
    Generator: Row(lambda b, g: b.make_generator(b, g)),
    DataRange: call_row("range", lambda v: (v.start, v.stop, v.step)),
    DataIterator: Row(lambda b, v: f"{b.constant(iter)}({b.ref(v.over if v.over.of is None else v.over.of)})"),
    ThreadNames: Row(lambda b, v: f"{b.constant(vars, 'vars')}({b.ref(v.of)})"),
    super: Row(super_literal),
    weakref.ref: Row(weakref_literal),
    types.SimpleNamespace: Row(None, lambda b, v: f"{b.constant(types.SimpleNamespace)}()", Builder.attributes),
    property: Row(call_row("property", lambda v: (v.fget, v.fset, v.fdel, v.__doc__)).literal, after=property_after),
    staticmethod: Row(call_row("staticmethod", lambda v: (v.__func__,)).literal, after=partial_after),
    functools.cached_property: Row(
        lambda b, p: f"{b.constant(functools.cached_property)}({b.ref(p.func)})", after=cached_property_after
    ),
    classmethod: Row(call_row("classmethod", lambda v: (v.__func__,)).literal, after=partial_after),
    **dict.fromkeys(ITERATORS, Row(reduced)),
    **dict.fromkeys(iterator_rows.OF_DICTS, Row(dict_iterator)),
    type(iter(set())): Row(set_iterator),
    type(iter(collections.OrderedDict())): Row(ordered_iterator),
    **dict.fromkeys(
        (
            torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, types.ModuleType, types.CodeType,
            types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType,
            torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops._OpNamespace, torch._ops._Ops, torch._C.FunctionSchema,
            torch._C.Argument, torch.Generator, torch._C._TorchFunctionState,
            functools._lru_cache_wrapper, EntryPoint, np.longdouble, np.clongdouble, *set(IMMUTABLE).difference(immutable_rows.ROWS),
        ),
        CONSTANT,
    ),
}  # fmt: skip


def text_literal(b: Builder, text: LateText) -> str:
    """`'step %s of %r' % (…)`: CPython compiles this as it does an f-string."""
    if text.pieces is None:
        raise CannotReconstruct("text made of a tensor")
    words, values = [], []
    for piece in text.pieces:
        if type(piece) is str:
            words.append(piece.replace("%", "%%"))
            continue
        value = b.ref(piece.value)
        if piece.spec:
            if piece.conversion:
                value = f"{b.constant(CONVERSIONS[piece.conversion])}({value})"
            value = f"{b.constant(format)}({value}, {piece.spec!r})"
        words.append("%s" if piece.spec else ("%s", "%s", "%r", "%a")[piece.conversion])
        values.append(value)
    return f"{''.join(words)!r} % ({', '.join(values)},)"


ROWS[LateText] = Row(text_literal)
ROWS[ListItem] = Row(lambda b, v: f"{b.outside(v.source)}[{b.ref(v.place)}]")
ROWS[TextAt] = Row(lambda b, v: f"{b.constant(v.texts)}[{b.ref(v.place)}]")


def hook_handle(b: Builder, v: Any) -> str:
    raise Reconsider("register_hook", "a handle of a hook, which is part of the graph, is needed later", HOOKS)


ROWS[RemovableHandle] = Row(hook_handle)
ROWS[LateHandle] = Row(lambda b, h: f"{b.constant(hook_set)}({b.ref(h.t)}, {h.method!r}, {b.ref(h.hook)}, {h.removed})")


def random_generator(b: Builder, g: TracedGenerator) -> str:
    """Once for each proxy."""
    if g.source is not None:
        return b.outside(g.source)
    found = b.memo.get(id(g))
    return b.make(g, RANDOM_GENERATOR) if found is None else b.revisit(found)


RANDOM_GENERATOR = Row(lambda b, g: f"{b.constant(generator_in)}({b.output(g.state)})")
ROWS[GeneratorMethod] = Row(lambda b, m: f"{b.constant(getattr)}({b.ref(m.owner)}, {m.name!r})")


def node(b: Builder, v: Any) -> str:
    raise Reconsider("grad_fn", "a node of the autograd graph is needed later", RETAINED)


ROWS[tape.NodeOf] = Row(node)


def view_literal(method: str) -> Row:
    def literal(b: Builder, v: Any) -> str:
        d = support.viewed(v)
        if type(d) in (dict, collections.OrderedDict):
            return f"{b.ref(d)}.{method}()"
        return f"{b.constant(getattr(iterator_rows.dict_of(d), method), method)}({b.ref(d)})"  # whatever its class makes of that method

    return Row(literal)


for _view, _method in dict_views.METHODS.items():
    ROWS[_view] = view_literal(_method)

BY_VALUE: dict[type, Callable[[Builder, Any], Row]] = {
    types.FunctionType: function_row,
    types.CellType: own_cell,
    **dict.fromkeys(BUILTIN, bound_c_row),
    types.GetSetDescriptorType: descriptor_row,
    types.MemberDescriptorType: descriptor_row,
    **dict.fromkeys(immutable_rows.ROWS, immutable_row),
    **dict.fromkeys(immutable_rows.OF_TYPING, immutable_rows.typing_row),
}


def row_of(b: Builder, value: Any) -> Row:
    """The row of a value. Raises CannotReconstruct."""
    t = type(value)
    if t is dict and id(value) in b.world.dict_owners:
        return Row(own_attributes)
    row = ROWS.get(t)
    if row is not None:
        return row
    choose = BY_VALUE.get(t)
    if choose is not None:
        return choose(b, value)
    if issubclass(t, type):
        return OWN_CLASS if id(value) in b.world.own_functions else CONSTANT
    if issubclass(t, types.ModuleType) or is_placement(t):
        return CONSTANT
    if issubclass(t, Enum):
        return OWN_MEMBER if id(t) in b.world.own_functions else CONSTANT
    if issubclass(t, BaseException):
        return EXCEPTION
    if issubclass(t, tuple) and made_by_c(t):
        raise CannotReconstruct(f"a {t.__module__}.{t.__qualname__}", t)
    for base, row in SUBCLASSES.items():
        if issubclass(t, base):
            return row
    if plain_new(t):
        return CONSTANT if is_sentinel(value) else INSTANCE
    raise CannotReconstruct(f"a {t.__module__}.{t.__qualname__}", t)


def is_sentinel(value: Any) -> bool:
    """Whether an instance is a global of the module of its class (`dataclasses.MISSING`): code that CPython ran has handed it out."""
    module = sys.modules.get(type(value).__module__)
    return module is not None and any([v is value for v in vars(module).values()])


def plain_new(t: type) -> bool:
    """Does `object.__new__` make instances of this class (whatever its own `__new__` does besides)?"""
    try:
        object.__new__(t)
    except TypeError:  # some base is a class of C
        return False
    return bool(t.__flags__ & HEAPTYPE)


SHAPING = ("__slots__", "__module__", "__doc__", "__abstractmethods__")  # what a class must be made with


def class_shell(b: Builder, cls: type) -> str:
    made = b.world.remade.get(id(cls))
    if made is not None:
        fn, args, kw, _ = made
        try:
            return f"{b.constant(fn)}({b.refs(args)}{f', **{{{b.pairs(kw)}}}' if kw else ''})"
        except Early as e:
            if e.target is not b.memo[id(cls)]:
                raise
            raise CannotReconstruct("a class whose methods name it, made by a metaclass of its own") from None
    content = runtime.class_content(cls)
    given = {k: v for k, v in content.items() if k in SHAPING and k != "__abstractmethods__"}
    bases = b.tuple(cls.__bases__)
    parts = [class_of(b, cls), repr(cls.__name__), repr(cls.__qualname__), bases, repr(tuple(content)), f"{{{b.pairs(given)}}}"]
    return f"{b.constant(runtime.shell, 'new_class')}({', '.join(parts)})"


def class_fill(b: Builder, cls: type, name: str) -> None:
    content = {k: v for k, v in runtime.class_content(cls).items() if k not in ("__slots__", "__module__", "__doc__")}
    made = b.world.remade.get(id(cls))
    if made is not None:
        content = {k: v for k, v in content.items() if v is not made[3].get(k, made)}
        for k in made[3].keys() - vars(cls).keys():
            b.emit(f"{b.constant(type.__delattr__, 'delattr')}({name}, {k!r})")
    if content:
        b.emit(f"{b.constant(runtime.fill_class)}({name}, {{{b.pairs(content)}}})")


OWN_MEMBER = Row(lambda b, v: f"{class_of(b, v)}({b.ref(v._value_)})")
OWN_CLASS = Row(None, class_shell, class_fill)


def subclass_row(base: type, fill: Callable[[Builder, Any, str], None]) -> Row:
    """A mutable builtin subclassed in Python: content and attributes."""

    def both(b: Builder, v: Any, name: str) -> None:
        fill(b, v, name)
        b.attributes(v, name)

    return Row(None, lambda b, v: f"{b.constant(base.__new__, f'new_{base.__name__}')}({class_of(b, v)})", both)


FACTORY = vars(collections.defaultdict)["default_factory"]


def defaultdict_fill(b: Builder, v: Any, name: str) -> None:
    b.emit(f"{b.constant(FACTORY.__set__)}({name}, {b.ref(FACTORY.__get__(v))})")  # past what a class of the program makes of attributes
    fill_dict_items(b, v, name)


def tuple_literal(b: Builder, v: tuple) -> str:
    t = type(v)
    make = b.constant(t) if hasattr(t, "n_sequence_fields") else f"{b.constant(tuple.__new__, 'new_tuple')}"
    items = f"[{b.refs(tuple.__iter__(v))}]"
    return f"{make}({items})" if hasattr(t, "n_sequence_fields") else f"{make}({class_of(b, v)}, {items})"


def value_literal(base: type) -> Callable[[Builder, Any], str]:
    return lambda b, v: f"{b.constant(base.__new__, f'new_{base.__name__}')}({class_of(b, v)}, {b.ref(PLAIN_VALUE[base](v))})"


#: What an instance of a subclass holds, whatever its class says about conversions.
PLAIN_VALUE: dict[type, Callable[[Any], Any]] = {
    **{t: t.__pos__ for t in (int, float, complex)},
    **{t: functools.partial(lambda t, v: t.__getitem__(v, slice(None)), t) for t in (str, bytes)},
    frozenset: lambda v: frozenset.__or__(frozenset(), v),
}


MAXLEN = vars(collections.deque)["maxlen"].__get__


def deque_empty(b: Builder, v: Any) -> str:
    return f"{b.constant(support.new_deque)}({class_of(b, v)}, {b.ref(MAXLEN(v))})"


def deque_fill(b: Builder, v: Any, name: str) -> None:
    fill_deque(b, v, name)
    b.attributes(v, name)


SUBCLASSES: dict[type, Row] = {
    collections.OrderedDict: subclass_row(collections.OrderedDict, fill_ordered_items),
    collections.defaultdict: subclass_row(collections.defaultdict, defaultdict_fill),
    dict: subclass_row(dict, fill_dict_items),
    list: subclass_row(list, fill_list),
    set: subclass_row(set, fill_set),
    collections.deque: Row(None, deque_empty, deque_fill),
    functools.partial: Row(partial_literal, after=partial_after),
    tuple: Row(tuple_literal, after=Builder.attributes),
    **{base: Row(value_literal(base), after=Builder.attributes) for base in (int, float, complex, str, bytes, frozenset)},
}


special[TracedGenerator] = random_generator
if array_rows is not None:
    special.update(array_rows.SPECIAL)
    ROWS.update(array_rows.ROWS)
