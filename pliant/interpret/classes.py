"""Classes that the program makes: `class` statements, `type(name, bases, dict)`, dataclasses.

The body is interpreted over its namespace, then the class is made for real, out of proxies, and belongs to the capture as a list
that the program builds does; what hooks it has (`__set_name__`, `__init_subclass__`, a metaclass written in Python) is interpreted.
Where it outlives the frame, the emitted code makes a new one each time, from what the capture's one has become, without its hooks
(`runtime.bare_class`): these have run. Enumerations and named tuples are made by their own makers, again each time. Other metaclasses
that the interpreter does not follow are left to CPython: the graph breaks at the statement.
"""

from __future__ import annotations

import abc
import builtins
import collections
import dataclasses
import enum
import functools
import inspect
import types
import typing
from collections.abc import Iterable
from typing import Any

import torch

from pliant.bytecode import kinds as K
from pliant.guards import source as S
from pliant.interpret import policy, runtime, shadows, waiting
from pliant.interpret.attributes import forget_lookups, getattr_, lookup
from pliant.interpret.binding import bind, make_frame, raise_binding_error
from pliant.interpret.calls import call, inline, native
from pliant.interpret.capture import UNSET
from pliant.interpret.class_writes import METACLASSES
from pliant.interpret.decode import op
from pliant.interpret.gate import to_c
from pliant.interpret.immutable import HEAPTYPE
from pliant.interpret.instances import type_of
from pliant.interpret.lookasides import lookaside
from pliant.interpret.namespaces import SLOTS
from pliant.interpret.opaque import Opaque
from pliant.interpret.opcodes import CellType, cell_name, global_value, load_deref
from pliant.interpret.shadows import WRITTEN
from pliant.interpret.slips import slipped
from pliant.interpret.slots import delitem, getitem, setitem, truth
from pliant.interpret.state import Break, vm, whole_loops
from pliant.interpret.type_names import type_name
from pliant.interpret.type_parameters import sees_its_class

FunctionType = types.FunctionType
PREPARE = vars(type)["__prepare__"]  # which gives an empty dict
REFUSED = "classes"  # an earlier capture of this code found that it cannot make one of its classes again


def refused(what: str) -> Break:
    return Break("PL0013", what, clean=True)


# -- the statement ---------------------------------------------------------------------------------------------
@lookaside(builtins.__build_class__)
def build_class(args: tuple, kw: dict) -> Any:
    body, name, *given = args
    if REFUSED in vm.refused:
        raise refused("a class that cannot be made again by the code that follows the graph")
    if sees_its_class(body):
        raise refused(f"the class {name}, in whose body something is worked out later, with its names")
    bases = resolve_bases(given)
    kw = dict(kw)
    meta = metaclass_of(bases, kw.pop("metaclass", None))
    ns = prepared(meta, name, bases, kw)
    loc = bind(body, (), {})
    if loc is None:
        raise_binding_error(body, (), {})
        raise AssertionError
    f = make_frame(body, loc)
    f.names = ns
    f.parent = vm.frame
    vm.depth += 1
    try:
        cell = vm.run(f)
    finally:
        vm.depth -= 1
    if bases != tuple(given):
        setitem(ns, "__orig_bases__", tuple(given))
    cls = make_class(meta, name, bases, ns, kw)
    if isinstance(cls, type) and type(cell) is CellType:
        held = content(cell)
        if held is UNSET:
            raise RuntimeError(f"__class__ not set defining {name!r} as {cls!r}. Was __classcell__ propagated to type.__new__?")
        if held is not cls:
            raise TypeError(f"__class__ set to {held!r} defining {name!r} as {cls!r}")
    return cls


def prepared(meta: type, name: str, bases: tuple, kw: dict) -> Any:
    """The namespace of a class body: what the metaclass says, by a class method, a static one, a function, or whatever can be called."""
    if lookup(meta, "__prepare__") is PREPARE:
        return {}
    ns = call(getattr_(meta, "__prepare__"), (name, bases), kw)
    if lookup(type(ns), "__getitem__") is UNSET:
        raise TypeError(f"{meta.__name__}.__prepare__() must return a mapping, not {type_name(type_of(ns))}")
    return ns


def content(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


def resolve_bases(given: list) -> tuple:
    """The bases of a class statement, `__mro_entries__` of what is no class asked."""
    out: list[Any] = []
    for b in given:
        if type(b) is Opaque:
            raise Break("PL0017", f"{b.source.name} is the base of a class", clean=True)
        if isinstance(b, type):
            out.append(b)
            continue
        if b is typing.NamedTuple:
            out.append(NAMED_TUPLE)
            continue
        if type(b) is FunctionType:  # typing.TypedDict
            raise refused(f"a class made by {b.__qualname__}")
        entries = type(b).__mro_entries__(b, tuple(given)) if isinstance(b, types.GenericAlias) else mro_entries(b, tuple(given))
        if type(entries) is not tuple:
            raise TypeError("__mro_entries__ must return a tuple")
        out.extend(entries)
    return tuple(out)


def mro_entries(b: Any, given: tuple) -> Any:
    try:
        asked = getattr_(b, "__mro_entries__")
    except AttributeError as e:
        if slipped(e):
            raise
        return (b,)
    return call(asked, (given,), {})


def metaclass_of(bases: tuple, given: Any) -> type:
    """The most derived metaclass; breaks where construction is not interpreted, or a base is no class."""
    if any([not issubclass(type_of(b), type) for b in bases]):
        raise refused("a class with a base that is no class")
    meta = given if given is not None else type(bases[0]) if bases else type
    if not isinstance(meta, type):
        raise refused("a class made by a metaclass that is a function")
    for b in bases:
        t = type(b)
        if issubclass(meta, t):
            continue
        if not issubclass(t, meta):
            raise TypeError(
                "metaclass conflict: the metaclass of a derived class must be a (non-strict) subclass of the metaclasses of all its bases"
            )
        meta = t
    check_metaclass(meta)
    return meta


def check_metaclass(meta: Any) -> None:
    if meta in METACLASSES or meta in MAKERS:
        return
    if not issubclass(meta, type):
        raise refused(f"a class whose base is an object of {meta.__qualname__}")
    for m in meta.__mro__:
        if m in METACLASSES or m is object:
            continue
        if not m.__flags__ & HEAPTYPE or "__module__" not in m.__dict__ or not interpreted(m) or "mro" in m.__dict__:
            raise refused(f"a class made by the metaclass {m.__qualname__}")


def interpreted(cls: type) -> bool:
    """Whether the methods of a class are the program's own, or at least are interpreted like its own."""
    functions = [v.__func__ if type(v) in (classmethod, staticmethod) else v for v in vars(cls).values()]
    rule = policy.python_modules.module_policy(cls.__module__).kind
    return rule == "inline" and all(policy.python_kind(f) == "inline" for f in functions if type(f) is FunctionType)


def make_class(meta: type, name: str, bases: tuple, ns: Any, kw: dict) -> Any:
    """`meta(name, bases, ns, **kw)`."""
    if meta in METACLASSES:
        return new_class(meta, name, bases, in_module(ns, "abc") if meta is abc.ABCMeta else ns, kw)
    maker = MAKERS.get(meta)
    if maker is not None:
        return maker(meta, name, bases, ns, kw)
    if type(meta) is not type:
        raise refused("a class made by a metaclass that has one itself")
    if type.__getattribute__(meta, "__hash__") is not type.__hash__:
        raise refused(f"a class made by {meta.__qualname__}, which says what its hash is")
    new, init = lookup(meta, "__new__"), lookup(meta, "__init__")
    python_new = new.__func__ if type(new) is staticmethod else new
    if type(python_new) not in (FunctionType, types.BuiltinFunctionType) or init is None:
        raise refused(f"a class made by {meta.__qualname__}, part of which is no function")
    cls = call(python_new, (meta, name, bases, ns), kw) if type(python_new) is FunctionType else new_class(meta, name, bases, ns, kw)
    if isinstance(cls, meta) and type(init) is FunctionType:
        made = call(init, (cls, name, bases, ns), kw)
        if made is not None:
            raise TypeError(f"__init__() should return None, not {type_name(type_of(made))!r}")
    elif isinstance(cls, meta) and type(init) not in SLOTS:
        raise refused(f"a class made by {meta.__qualname__}, whose __init__ is no function")
    return cls


def call_metaclass(meta: type, args: tuple, kw: dict) -> Any:
    """`Meta(name, bases, namespace)`."""
    if len(args) != 3 or REFUSED in vm.refused or any(not isinstance(b, type) for b in args[1]):
        raise refused(f"a class made by calling {meta.__qualname__}")
    return make_class(metaclass_of(args[1], meta), *args, kw)


# -- the class -------------------------------------------------------------------------------------------------
def new_class(meta: type, name: str, bases: tuple, ns: Any, kw: dict) -> Any:
    """`type.__new__`: the class without its hooks, then its hooks."""
    world = vm.world
    shadows.read_all(world, ns)
    content = dict(in_module(ns, vm.frame.globals.get("__name__")))
    for key, v in content.items():
        if type(v) is Opaque:
            raise Break("PL0017", f"{v.source.name} becomes the attribute {key!r} of a class, which may bind it", clean=True)
    if not all(type(k) is str for k in content):
        raise refused("a class whose namespace has keys that are no names")
    if type(content.get("__new__")) is types.BuiltinFunctionType or not data_names(meta).isdisjoint(content):
        raise refused(f"the class {name}, of whose attributes some only come about when it is made")
    cls = runtime.bare_class(meta, name, bases, content)
    if cls is None:
        raise refused(f"the class {name}, whose bases have an __init_subclass__ that cannot be called apart from making it")
    world.own_functions[id(cls)] = cls
    world.own_classes.append(cls)
    for key, v in content.items():
        hook = lookup(type(v), "__set_name__")
        if type(hook) is FunctionType:
            try:
                call(hook, (v, cls, key), {})
            except Exception as e:
                raise RuntimeError(f"Error calling __set_name__ on {type(v).__name__!r} instance {key!r} in {name!r}") from e
        elif hook is PROPERTY_SET_NAME and id(v) not in world.outside:
            PROPERTY_SET_NAME(v, cls, key)
            world.named_properties[id(v)] = (v, key)
        elif hook is not UNSET:
            raise refused(f"the class {name}, which tells a {type(v).__qualname__} its name")
    hook = getattr_(super(cls, cls), "__init_subclass__")
    if type(hook) is types.BuiltinMethodType:
        hook(**kw)
    else:
        call(hook, (), kw)
    if issubclass(meta, abc.ABCMeta):
        type.__setattr__(cls, "__abstractmethods__", frozenset(abstract_names(cls, content)))
    return cls


def abstract_names(cls: Any, content: dict) -> list[str]:
    """What `ABCMeta` asks of a new class: which of the attributes it was given, and of those that its bases had left abstract, are that."""
    found = [name for name, v in content.items() if is_abstract(v)]
    for b in cls.__bases__:
        for name in or_else(b, "__abstractmethods__", ()):
            if is_abstract(or_else(cls, name, None)):
                found.append(name)
    return found


def is_abstract(v: Any) -> Any:
    return type(v) not in NEVER_ABSTRACT and truth(or_else(v, "__isabstractmethod__", False))


NEVER_ABSTRACT = (type(None), bool, int, float, str, tuple)


def or_else(o: Any, name: str, otherwise: Any) -> Any:
    """`getattr(o, name, otherwise)`."""
    try:
        return getattr_(o, name)
    except AttributeError as e:
        if slipped(e):
            raise
        return otherwise


PROPERTY_SET_NAME = property.__dict__["__set_name__"]


@functools.cache
def data_names(meta: type) -> frozenset[str]:
    """What cannot be set on a class of this metaclass once it is made, or is set on something else: its data descriptors."""
    given = {"__doc__", "__module__", "__qualname__", "__name__", "__annotations__", "__abstractmethods__", "__type_params__"}
    return frozenset({k for c in meta.__mro__ for k, v in vars(c).items() if hasattr(type(v), "__set__")} - given)


def l_type_new(args: tuple, kw: dict) -> Any:
    meta, *rest = args
    if len(rest) == 1 and meta is type:
        return type_of(rest[0])
    name, bases, ns = rest
    check_metaclass(meta)
    if metaclass_of(bases, meta) is not meta:
        raise refused("a class made by another metaclass than that of its bases")
    return new_class(meta, name, bases or (object,), ns, kw)


lookaside(type.__new__)(l_type_new)


@lookaside(abc.ABCMeta.__new__)
def l_abc_new(args: tuple, kw: dict) -> Any:
    """Its frame is one of the module `abc`."""
    meta, *rest = args
    if len(rest) == 3:
        rest[2] = in_module(rest[2], "abc")
    return l_type_new((meta, *rest), kw)


def in_module(ns: Any, module: str | None) -> Any:
    """The namespace of a class that is made in a frame of this module: it names it, in a copy, unless the program does."""
    if module is None or type(ns) is not dict or "__module__" in ns:
        return ns
    shadows.read_all(vm.world, ns)
    return {**ns, "__module__": module}


@lookaside(type)
def l_type(args: tuple, kw: dict) -> Any:
    if len(args) == 1 and not kw:
        if type(args[0]) is Opaque:
            raise Break("PL0017", f"the type of {args[0].source.name}")
        if vm.world.waiting:
            waiting.refuse(args[0])
        return type_of(args[0])
    if len(args) != 3:
        raise TypeError("type() takes 1 or 3 arguments")
    name, bases, ns = args
    if not (isinstance(name, str) and isinstance(bases, tuple) and isinstance(ns, dict)):
        return native(type, args, kw)  # which says what is wrong
    return call_metaclass(type, (name, bases or (object,), ns), kw)


# -- classes with makers of their own ----------------------------------------------------------------------------
NAMED_TUPLE: type = typing.NamedTuple.__mro_entries__((typing.NamedTuple,))[0]  # type: ignore[attr-defined]
RUN_AT_CREATION = {"__new__", "__init__", "__init_subclass__", "__set_name__", "__classcell__", "_generate_next_value_", "__prepare__"}
PLAIN_VALUES = (int, float, complex, str, bytes, bool, type(None))


def remade(cls: type, fn: Any, args: tuple, kw: dict) -> type:
    """`cls` was made by `fn(*args, **kw)`, which depends on its arguments alone: so will be the one of the emitted code."""
    world = vm.world
    world.own_functions[id(cls)] = cls
    world.own_classes.append(cls)
    world.remade[id(cls)] = (fn, args, kw, dict(vars(cls)))
    return cls


def make_named_tuple(meta: type, name: str, bases: tuple, ns: Any, kw: dict) -> type:
    if bases != (NAMED_TUPLE,) or kw or "__classcell__" in ns or any(hasattr(type(v), "__set_name__") for v in ns.values()):
        raise refused("a named tuple with other bases, or with methods that use super()")
    for v in (*ns.values(), *ns.get("__annotations__", {}).values()):
        to_c(meta, v)
    return named_tuple(remade(meta(name, bases, dict(ns)), meta, (name, bases, dict(ns)), {}), ns.values())


def named_tuple(cls: type, given: Iterable[Any] = ()) -> type:
    """The functions that CPython has made for it are as much the capture's own as the class: they end with it; no guard may ask for one."""
    known = set(map(id, given))
    for name, v in vars(cls).items():
        fn = v.__func__ if type(v) in (staticmethod, classmethod) else v
        if type(fn) is FunctionType and id(fn) not in known and fn.__qualname__ == f"{cls.__name__}.{name}":
            vm.world.own_functions[id(fn)] = fn
            vm.world.remade_functions[id(fn)] = (cls, name, fn is not v)
    return cls


def make_enum(meta: Any, name: str, bases: tuple, ns: Any, kw: dict) -> type:
    """An enumeration whose members are plain values: no code of the program runs while it is made."""
    for b in bases:
        if id(b) in vm.world.own_functions or not (b in (int, str, float) or b.__module__ == "enum"):
            raise refused("an enumeration with a base of the program's own")
    prepared = meta.__prepare__(name, bases)
    runs = any(k in RUN_AT_CREATION and ns[k] is not prepared.get(k) for k in ns)
    if runs or any(type(ns[k]) not in PLAIN_VALUES for k in ns._member_names):
        raise refused("an enumeration that runs code of its own when it is made, or whose values are no constants")
    pairs = tuple(ns.items())
    for key, v in pairs:  # `nonmember` and `member` have left no trace in the namespace but this
        plain = not (key.startswith("_") or any([hasattr(type(v), n) for n in ("__get__", "__set__", "__delete__")]))
        if plain is not (key in ns._member_names) and not key.startswith("_"):
            raise refused(f"the enumeration {name}, with attributes that were said to be members, or none")
    return remade(runtime.make_enum(meta, name, bases, pairs, kw), runtime.make_enum, (meta, name, bases, pairs, kw), {})


def make_autograd_function(meta: type, name: str, bases: tuple, ns: Any, kw: dict) -> type:
    """A `torch.autograd.Function`, whose metaclass numbers it. Other backends hold the capture's one, so it must not see the frame."""
    functions = [v.__func__ if type(v) in (staticmethod, classmethod) else v for v in ns.values()]
    if kw or not runtime.quiet(bases) or any(hasattr(type(v), "__set_name__") for v in functions):
        raise refused("an autograd function whose making runs code")
    if not whole_loops() and any(getattr(v, "__closure__", None) for v in functions):
        raise refused("an autograd function that uses variables of the function around it, for a backend that is not pliant's own")
    return remade(meta(name, bases, dict(ns)), meta, (name, bases, dict(ns)), {})


MAKERS: dict[type, Any] = {
    type(NAMED_TUPLE): make_named_tuple,
    enum.EnumMeta: make_enum,
    type(torch.autograd.Function): make_autograd_function,
}


@lookaside(collections.namedtuple)
def l_namedtuple(args: tuple, kw: dict) -> type:
    kw = dict(kw)
    kw.setdefault("module", vm.frame.globals.get("__name__", "__main__"))  # CPython looks at the calling frame
    if type(kw.get("defaults", ())) not in (tuple, list, types.NoneType):
        raise refused("a named tuple whose defaults are made while it is")  # it is made twice, here and by the emitted code
    for a in (*args, *kw.values()):
        to_c(collections.namedtuple, a)
    return named_tuple(remade(collections.namedtuple(*args, **kw), collections.namedtuple, args, kw))


def l_make_dataclass(args: tuple, kw: dict) -> type:
    """Since 3.12 it asks which module the calling frame is of."""
    return inline(dataclasses.make_dataclass, args, {"module": vm.frame.globals.get("__name__", "__main__"), **kw})


if "module" in inspect.signature(dataclasses.make_dataclass).parameters:
    lookaside(dataclasses.make_dataclass)(l_make_dataclass)


def enum_maker(cls: Any) -> Any:
    def make(args: tuple, kw: dict) -> Any:
        if len(args) == 1 and not kw:
            return native(cls, args, kw)
        if "names" not in kw and len(args) < 2 or "type" in kw:
            raise refused("an enumeration made by a call of another kind")
        kw = dict(kw)
        kw.setdefault("module", vm.frame.globals.get("__name__"))  # CPython looks at the calling frame
        for a in (*args, *kw.values()):
            to_c(cls, a)
        return remade(cls(*args, **kw), cls, args, kw)

    return make


for _cls in (enum.Enum, enum.IntEnum, enum.StrEnum, enum.Flag, enum.IntFlag):
    lookaside(_cls)(enum_maker(_cls))


# -- dataclasses -----------------------------------------------------------------------------------------------
PROCESS = dataclasses._process_class  # type: ignore[attr-defined]
FIELDS = "__dataclass_fields__"
LIST_FIELDS = dataclasses.fields


@lookaside(LIST_FIELDS)
def l_fields(args: tuple, kw: dict) -> Any:
    """`dataclasses.fields`, interpreted once for each table of fields: libraries ask for them with every attribute that they set."""
    world = vm.world
    try:
        table = getattr_(args[0], FIELDS) if len(args) == 1 and not kw else None
    except AttributeError:
        table = None
    h = world.by_copy.get(id(table))
    if h is None or type(table) is not dict:
        return inline(LIST_FIELDS, args, kw)
    known = world.lookups.get((l_fields, id(table)))
    if known is None or len(table) != known[0] or WRITTEN in h.located.values():
        found = inline(LIST_FIELDS, args, kw)
        known = world.lookups[l_fields, id(table)] = (len(table), found)
    return known[1]


@lookaside(PROCESS)
def l_process_class(args: tuple, kw: dict) -> Any:
    """What `@dataclass` does to a class: it writes code from the names of fields, so CPython does it, on the capture's class."""
    world = vm.world
    cls = args[0]
    options = bind(PROCESS, args, kw)
    if id(cls) not in world.own_functions or options is None or options[-2]:  # weakref_slot; slots=True makes yet another class
        raise refused("a dataclass made of a class of the outside")
    if options[PROCESS.__code__.co_varnames.index("slots")]:
        raise refused("a dataclass with slots")
    for annotation in vars(cls).get("__annotations__", {}).values():
        to_c(PROCESS, annotation)
    known = set(map(id, vars(cls).values()))
    for name in vars(cls).get("__annotations__", ()):
        v = vars(cls).get(name)
        if not (v is None or isinstance(v, (dataclasses.Field, int, float, str, bool, types.MemberDescriptorType, *MUTABLE))):
            raise refused("a dataclass with a default that is no plain value")
    for b in cls.__mro__:
        if b is not cls and id(b) not in world.own_functions and FIELDS in b.__dict__:
            lookup(b, FIELDS)
            world.guard(S.const(b).attr(FIELDS), "ID_MATCH", b.__dict__[FIELDS])
    if vm.frame is not None:
        vm.frame.tail = False
    PROCESS(*args, **kw)
    forget_lookups(None)
    for v in vars(cls).values():
        fn = v.fget if type(v) is property else v
        if id(v) not in known and type(fn) is FunctionType:
            world.own_functions[id(fn)] = fn
    return cls


MUTABLE = (list, dict, set)  # refused by dataclasses itself


@lookaside(functools.cached_property)
def l_cached_property(args: tuple, kw: dict) -> Any:
    return functools.cached_property(*args, **kw)  # its constructor makes a lock


# -- names in the body -----------------------------------------------------------------------------------------
def load_name(f: Any, name: str) -> None:
    if f.names is not None:
        if type(f.names) is dict:
            if name in f.names:
                f.stack.append(f.names[name])
                return
        else:
            try:
                f.stack.append(getitem(f.names, name))
                return
            except KeyError:
                pass
    f.stack.append(global_value(f.globals, name))


def store_name(f: Any, name: str) -> None:
    if f.names is None:
        raise Break("PL0009", "the instruction STORE_NAME")
    if type(f.names) is dict:
        f.names[name] = f.stack[-1]
    else:
        setitem(f.names, name, f.stack[-1])
    f.stack.pop()


def delete_name(f: Any, name: str) -> None:
    if f.names is None:
        raise Break("PL0009", "the instruction DELETE_NAME")
    try:
        delitem(f.names, name)
    except KeyError:
        raise NameError(f"name {name!r} is not defined", name=name) from None


def load_classderef(f: Any, i: int) -> None:
    name = cell_name(f, i)
    if f.names is not None and vm.contains(f.names, name):
        f.stack.append(getitem(f.names, name))
        return
    load_deref(f, i)


def setup_annotations(f: Any, a: Any) -> None:
    if f.names is None:
        raise Break("PL0009", "the instruction SETUP_ANNOTATIONS")
    if not vm.contains(f.names, "__annotations__"):
        setitem(f.names, "__annotations__", {})


op(K.LOAD_NAME)(load_name)
op(K.STORE_NAME)(store_name)
op(K.DELETE_NAME)(delete_name)
op(K.LOAD_CLASS_DEREF)(load_classderef)
op(K.SETUP_ANNOTATIONS)(setup_annotations)
vm.make_class = call_metaclass
