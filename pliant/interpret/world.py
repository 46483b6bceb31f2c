"""The model of the outside world during one capture.

What existed before the capture is *outside*. Reading it goes through `World.locate`, which records a guard and returns the
stand-in that the interpreter works on; writing goes to shadows, and `effects.py` turns the difference into effects.
Nothing outside changes while capturing.
"""

from __future__ import annotations

import collections
import enum
import functools
import types
from typing import Any

import torch

from pliant.graph.symnode import to_sym
from pliant.graph.traced import TracedTensor
from pliant.guards import views
from pliant.guards.guard import Guard
from pliant.guards.source import Source, const, holder
from pliant.interpret import declared, tensor_inputs
from pliant.interpret.capture import UNSET
from pliant.interpret.immutable import IMMUTABLE
from pliant.interpret.state import Break, vm
from pliant.interpret.types.row import LOCATED
from pliant.native import EntryPoint

INT_MIN, INT_MAX = -(2**63), 2**63 - 1
# what a C function of a module has as `__self__` (pybind11 puts a record of its own there)
NAMESPACES = {types.ModuleType, type(torch._C._get_tracing_state.__self__)}  # type: ignore[attr-defined]
TENSOR_TYPES = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}
FunctionType, MethodType, ModuleType = types.FunctionType, types.MethodType, types.ModuleType


class Opaque:
    """Stands for an outside constant that changed too often to be worth a guard: every use of its value breaks the graph."""

    __slots__ = ("source", "value")

    def __init__(self, value: Any, source: Source) -> None:
        self.value = value
        self.source = source

    def __repr__(self) -> str:
        return f"<opaque {self.source.name}>"


def opaque_use(self: Any, *_: Any) -> Any:
    raise Break("PL0017", f"the value of {self.source.name} changes on every call, so it is kept out of the graph")


for _name in (
    "eq ne lt le gt ge add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow neg pos abs bool int float "
    "index hash str format len iter next getitem setitem contains call and or xor invert lshift rshift round matmul"
).split():
    setattr(Opaque, f"__{_name}__", opaque_use)


GENERIC_GETATTR = object.__getattribute__
WRITTEN = type("Written", (), {"__repr__": lambda self: "WRITTEN"})()


class Shadow:
    """An outside container and the copy of it that the program sees. `located`: keys (indexes) whose values went through `locate`."""

    __slots__ = ("all", "copy", "keys_known", "lacks", "lacks_here", "located", "orig", "owner", "source")

    def __init__(self, orig: Any, copy: Any, source: Source, owner: Any) -> None:
        self.orig = orig
        self.copy = copy
        self.source = source
        self.owner = owner  # the instance whose `__dict__` this is, or None
        self.located: dict = {}  # key or index -> the stand-in put there; WRITTEN once the program stored over it
        self.all = False
        self.keys_known = False
        self.lacks: dict[str, Any] = {}  # names that the program relied on to lack here, or to be empty dicts
        self.lacks_here: Guard | None = None  # the DICT_LACKS of the latest instruction that relied on some


class World:
    """Sources, shadows and guards of one capture."""

    def __init__(self, scope: Any, trace: Any, history: Any, dynamic: bool | None = None) -> None:
        self.scope = scope
        self.trace = trace
        self.history = history
        self.declared: dict[str, Any] = dict(dynamic) if isinstance(dynamic, tuple) else {}  # by path, what `compile` was told
        self.dynamic = None if isinstance(dynamic, tuple) else dynamic
        self.loops_seen = False  # some loop of the captured code has become a region
        self.in_loop = False  # this is the body of a region loop: its counters take every value
        self.opaque = getattr(history, "opaque", ())  # sources whose values stay out of the graph
        self.outside: dict[int, Any] = {}
        self.sources: dict[int, Source] = {}
        self.standing: dict[int, tuple] = {}  # id of a value that stands for an immutable one of the outside: (it, that one, its source)
        self.module_holders: dict[Source, bool] = {}
        self.shadows: dict[int, Shadow] = {}
        self.by_copy: dict[int, Shadow] = {}
        self.glimpsed: dict[tuple, tuple[Any, Shadow]] = {}  # (id, key) of a shadow -> an empty dict that needs none
        self.tensors: dict[int, Any] = {}
        self.real: dict[int, Any] = {}  # id(TracedTensor input) -> real tensor
        self.arrays: dict[int, Any] = {}  # id of an outside array of NumPy -> what stands for it
        self.guards: dict[tuple, Guard] = {}
        self.symbols: dict[str, Source] = {}
        self.relations: list[Any] = []  # Exprs beyond scope.guards (strides as products of sizes)
        self.type_attrs: dict[type, dict[str, Any]] = {}
        self.reads: dict[tuple, Any] = {}
        self.global_writes: dict[tuple, tuple] = {}
        self.cells: dict[int, Source] = {}
        self.cell_values: dict[int, tuple] = {}
        self.cell_writes: dict[int, Any] = {}
        self.own_functions: dict[int, Any] = {}  # functions and classes that the program made
        self.own_classes: list[type] = []
        self.remade: dict[int, tuple] = {}  # id of a class -> how it was made: (function, args, kwargs, its attributes then)
        self.calls: list[tuple] = []  # deferred calls (print, logging), in order
        self.tensor_writes: dict[tuple, tuple] = {}
        self.keys: dict[type, dict[Source, None]] = {}  # by type, the sources of what was a key by its identity
        self.context_values: dict[int, tuple] = {}  # id(ContextVar) -> (variable, value, value at the start)
        self.lookups: dict[tuple, Any] = {}
        self.ordinary: set[type] = set()  # classes whose instances have no special way to their attributes
        self.specialized: dict[str, Any] = {}
        self.keep: list = []
        self.function_sources: dict[int, Source] = {}  # functions known by their code only
        self.fresh_globals: set[int] = set()  # namespaces made in the capture
        self.n_symbols = 0
        self.data_of: dict[int, tuple] = {}  # id of a traced `x.data` -> (it, x)
        self.data_views: dict[int, Any] = {}  # these and their views
        self.passing: dict[int, tuple] = {}  # exceptions on their way: (exception, traceback before, where it passed)
        self.contexts: dict[int, tuple] = {}  # exceptions that the program is raising: (exception, context and suppression that they get)
        self.interpreted: dict[int, Any] = {}  # the functions whose frames ran
        self.asked: list[tuple] = []  # (function, arguments, keywords, answer): what was asked now, and is taken to stay so
        self.torch_error = 0  # the id of the latest exception that a torch function raised
        self.subclasses: Any = None  # the one guard of what was asked about abstract classes
        self.bound_here = ""  # why what was captured means nothing in another process; empty if it may
        self.raised_outside: dict[int, tuple] = {}  # exceptions from outside that the program raised, with their fields before

    def release(self) -> None:
        """Let go of the program's objects, which nobody needs any more: until the next garbage collection, cycles keep the world."""
        for name, held in vars(self).items():
            if name != "opaque" and type(held) in (dict, list, set):  # that one is the history's
                held.clear()

    # -- guards ------------------------------------------------------------------------------
    def guard(self, source: Source, kind: str, value: Any = None, key: Any = None) -> None:
        """Record a guard once."""
        k = (source, kind, key)
        if k not in self.guards:
            f = vm.frame
            site = f.decoded.site(f.pc - 1 if f.pc else 0) if f is not None else None
            self.guards[k] = Guard(source, kind, value, site)

    def type_attr(self, cls: type, name: str, found: Any) -> None:
        """The program relied on what the class look-up of `name` gives."""
        d = self.type_attrs.get(cls)
        if d is None:
            d = self.type_attrs[cls] = {}
        d[name] = found

    # -- what is outside -----------------------------------------------------------------------
    def is_outside(self, obj: Any) -> bool:
        return id(obj) in self.outside

    def source_of(self, obj: Any) -> Source | None:
        """Where an outside object (an instance, or the original of a shadow) came from."""
        if type(obj) in SOURCED:
            return obj.source
        found = self.sources.get(id(obj))
        if found is None and id(obj) in self.standing:
            return self.standing[id(obj)][2]
        return found

    def stands_for(self, r: Any, v: Any, source: Source) -> Any:
        """`r`, made of located parts, is for the program the very object `v`."""
        if id(r) not in self.standing:
            self.standing[id(r)] = (r, v, source)
        return r

    def original_of(self, copy: Any) -> Any:
        """The outside container of which `copy` is the shadow copy, or None."""
        h = self.by_copy.get(id(copy))
        return h.orig if h is not None else None

    def adopt(self, obj: Any, source: Source) -> Any:
        """Register an outside instance; a second path to the same object is guarded to stay the same object."""
        i = id(obj)
        if i in self.outside:
            first = self.sources[i]
            if first is not source:
                self.guard(source, "ALIAS", first)
        else:
            self.outside[i] = obj
            self.sources[i] = source
        return obj

    def known_by_identity(self, o: Any) -> None:
        """`o` became a key, or was looked up as one: an outside object that was another one then has to be another one."""
        source = o.source if type(o) is TracedTensor else self.sources.get(id(o))
        if source is not None:
            self.keys.setdefault(o.pytype if type(o) is TracedTensor else type(o), {})[source] = None

    # -- locate: a value read from outside becomes a stand-in -----------------------------------
    def locate(self, v: Any, source: Source) -> Any:
        """The stand-in of outside value `v` read at `source`; records the guards that make it valid."""
        row = LOCATED.get(type(v))
        if self.opaque and source in self.opaque and type(v) not in TENSOR_TYPES:
            return Opaque(v, source)
        if row is not None:
            return row.locate(self, v, source)  # type: ignore[misc]
        return self.locate_other(v, source)

    def locate_other(self, v: Any, source: Source) -> Any:
        t = type(v)  # asked for its class by `isinstance`, an object may run code of the program
        if issubclass(t, torch.Tensor):
            if t is TracedTensor:
                return v
            self.guard(source, "TYPE_MATCH", t)
            return self.adopt(v, source)
        if issubclass(t, (type, enum.Enum)) or t in IMMUTABLE:
            self.guard(source, "ID_MATCH", v)
            if issubclass(t, enum.Enum) and id(v) not in self.outside:  # what hangs on a member may change
                self.outside[id(v)] = v
                self.sources[id(v)] = const(v)
            return v
        if issubclass(t, tuple):
            return self.locate_tuple_subclass(v, source)
        if issubclass(t, (int, float, str, bytes)):  # subclasses of constants keep their identity
            self.guard(source, "ID_MATCH", v)
            return self.adopt(v, source)
        h = self.shadows.get(id(v))
        if h is not None:
            if h.source is not source:
                self.guard(source, "ALIAS", h.source)
            return h.copy
        if issubclass(t, (dict, list)) and shadowable_subclass(t):
            return self.shadow_subclass(v, source).copy
        if t is EntryPoint:
            self.guard(source, "ID_MATCH", v)
            return self.adopt(v, source)
        self.guard(source, "TYPE_MATCH", t)
        return self.adopt(v, source)

    def constant(self, v: Any, source: Source) -> Any:
        self.guard(source, "EQ_MATCH", v)
        return v

    def identity(self, v: Any, source: Source) -> Any:
        self.guard(source, "ID_MATCH", v)
        return v

    def integer(self, v: int, source: Source, lo: int | None = None, hi: int | None = None) -> Any:
        """Arguments are symbolic at once (but 0 and 1), and so are lists that a data object holds; what else hangs on objects becomes so
        after its first change. `lo` and `hi`: what the source itself makes sure of."""
        if not INT_MIN <= v <= INT_MAX:
            return self.constant(v, source)
        h = self.history
        mark = declared.number_mark(self.declared, source) if self.declared else None
        if mark is not None:
            return self.declared_integer(v, source, mark)
        if self.dynamic is False:
            return self.constant(v, source)
        changed = h is not None and (h.is_dynamic(source) or (h.kin and self.kin_changed(source, h.kin)))
        if not changed:
            special = v in declared.SPECIALIZED_INTS and not self.in_loop and source.op != "index"
            at_once = source.root.op == "local" and (not through_attribute(source) or (source.op == "index" and self.in_data(source)))
            if special or (self.dynamic is not True and not at_once):
                return self.constant(v, source)
        seen = self.reads.get((source, "int"), UNSET)
        if seen is not UNSET:
            return seen
        name = self.new_symbol(source)
        self.guard(source, "INT")
        r = self.reads[(source, "int")] = to_sym(self.scope, self.scope.backed(name, hint=v, lo=lo, hi=hi, source=source))
        return r

    def kin_changed(self, source: Source, kin: set[Source]) -> bool:
        """Whether another int of the same list, or of the same argument that is no module, was seen to change: this one will."""
        if source.op == "index" and source.base in kin:
            return True
        return holder(source) in kin and self.in_data(source)

    def in_data(self, source: Source) -> bool:
        """Whether the path to a value begins at an argument that is an object, no module, and enters none."""
        first = holder(source)
        if first is None:
            return False
        is_module = self.module_holders.get(first)
        if is_module is None:
            objects = [self.outside[i] for i, s in self.sources.items() if s is first]
            is_module = self.module_holders[first] = not objects or isinstance(objects[0], torch.nn.Module)
        return not is_module and not goes_through_modules(source)

    def declared_integer(self, v: int, source: Source, mark: Any) -> Any:
        """An int of which `compile` was told: as `integer`, but 0 and 1 are numbers like others."""
        seen = self.reads.get((source, "int"), UNSET)
        if seen is UNSET:
            seen = declared.symbol(self, mark, v, source)
            self.guard(source, "INT") if isinstance(seen, torch.SymInt) else self.constant(v, source)
            self.reads[(source, "int")] = seen
        return seen

    def floating(self, v: float, source: Source) -> Any:
        """A constant until it changes; then symbolic, if it is an ordinary number."""
        h = self.history
        if h is None or self.dynamic is False or v != v or v in (float("inf"), float("-inf")) or not h.is_dynamic(source):
            return self.constant(v, source)
        seen = self.reads.get((source, "float"), UNSET)
        if seen is not UNSET:
            return seen
        name = self.new_symbol(source, "f")
        self.guard(source, "FLOAT")
        r = self.reads[(source, "float")] = to_sym(self.scope, self.scope.backed(name, hint=v, kind=float, source=source))
        return r

    def new_symbol(self, source: Source, prefix: str = "s") -> str:
        name = f"{prefix}{self.n_symbols}"
        self.n_symbols += 1
        self.symbols[name] = source
        return name

    def locate_tuple(self, v: tuple, source: Source) -> tuple:
        self.guard(source, "TYPE_MATCH", type(v))
        self.guard(source, "LENGTH", len(v))
        items = [self.locate(x, source.index(i)) for i, x in enumerate(v)]
        for a, b in zip(items, v, strict=True):
            if a is not b:
                return self.stands_for(tuple(items), v, source)
        return self.stands_for(v, v, source) if v else v

    def locate_slice(self, v: slice, source: Source) -> slice:
        """By value; bounds that are objects are located like any others."""
        if all([type(b) in CONSTANT_TYPES for b in (v.start, v.stop, v.step)]):
            return self.constant(v, source)
        self.guard(source, "TYPE_MATCH", slice)
        return slice(*[self.locate(getattr(v, name), source.attr(name)) for name in ("start", "stop", "step")])

    def locate_size(self, v: Any, source: Source) -> Any:
        return torch.Size(self.locate_tuple(v, source))

    def locate_tuple_subclass(self, v: Any, source: Source) -> Any:
        t = type(v)
        if getattr(t, "n_fields", 0) > getattr(t, "n_sequence_fields", 0):  # a structseq with fields that are no items
            return self.identity(v, source)
        self.guard(source, "TYPE_MATCH", t)
        self.guard(source, "LENGTH", len(v))
        items = [self.locate(x, source.index(i)) for i, x in enumerate(v)]
        if hasattr(t, "n_sequence_fields") and all([x is y for x, y in zip(items, v, strict=True)]):
            return v
        try:
            r = tuple.__new__(t, items)
        except TypeError:  # structseq: a C type that makes itself from a sequence
            r = t(items)
        if getattr(v, "__dict__", None):
            d = source.dict()
            for k, x in v.__dict__.items():
                r.__dict__[k] = self.locate(x, d.key(k))
        return self.stands_for(r, v, source)

    def locate_method(self, v: Any, source: Source) -> Any:
        self.guard(source, "TYPE_MATCH", MethodType)
        f = self.locate(v.__func__, source.attr("__func__"))
        o = self.locate(v.__self__, source.attr("__self__"))
        return MethodType(f, o) if (f is not v.__func__ or o is not v.__self__) else v

    def locate_builtin(self, v: Any, source: Source) -> Any:
        owner = v.__self__
        if owner is None or type(owner) in NAMESPACES or isinstance(owner, type):
            return self.identity(v, source)
        self.guard(source, "TYPE_MATCH", type(v))  # a bound C method: its object is outside state
        if isinstance(owner, torch.Tensor):
            return self.adopt(v, source)
        self.guard(source.attr("__name__"), "EQ_MATCH", v.__name__)
        o = self.locate(owner, source.attr("__self__"))
        if o is owner:
            return v
        own = bound_descriptor(v)
        if type(o) is Opaque:
            return Opaque(v, source)
        return getattr(o, v.__name__) if own is None else own.__get__(o)

    def locate_partial(self, v: Any, source: Source) -> Any:
        self.guard(source, "TYPE_MATCH", functools.partial)
        f = self.locate(v.func, source.attr("func"))
        args = self.locate(v.args, source.attr("args"))
        kw = self.locate(v.keywords, source.attr("keywords"))
        self.all(kw)
        r = functools.partial(f, *args, **kw)
        if v.__dict__:
            d = source.dict()
            self.guard(d, "DICT_KEYS", list(v.__dict__))
            r.__dict__.update({k: self.locate(x, d.key(k)) for k, x in v.__dict__.items()})
        return self.stands_for(r, v, source)

    def range_(self, v: range, source: Source) -> Any:
        """A constant; where loops over changing ranges have been seen, only its iteration is of interest."""
        if self.loops_seen:
            return Opaque(v, source)
        return self.constant(v, source)

    def locate_function(self, v: Any, source: Source) -> Any:
        if (source.root.op == "local" and source.root.arg[1] == "state") or (self.history is not None and self.history.is_dynamic(source)):
            # made anew for each call: its code and defaults count, not its identity
            self.guard(source, "FUNCTION", (v.__code__, v.__defaults__, v.__kwdefaults__))
            if id(v) not in self.function_sources:
                self.function_sources[id(v)] = source
                self.adopt(v, source)
            return v
        self.guard(source, "ID_MATCH", v)
        return v

    # -- shadows ------------------------------------------------------------------------------
    def shadow(self, v: Any, source: Source, owner: Any = None) -> Shadow:
        copy = v.copy() if owner is None else dict(v)
        h = Shadow(v, copy, source, owner)
        self.shadows[id(v)] = h
        self.by_copy[id(copy)] = h
        self.outside[id(v)] = v
        self.sources[id(v)] = source
        if owner is None:
            self.guard(source, "TYPE_MATCH", type(v))
            for name in C_FIELDS.get(type(v), ()):  # type: ignore[call-overload]
                self.locate(getattr(v, name), source.attr(name))
            if type(v) is collections.OrderedDict:  # unlike the others, it takes attributes
                self.attributes(h)
            elif type(v) is collections.defaultdict:
                copy.default_factory = self.locate(v.default_factory, source.attr("default_factory"))  # type: ignore[union-attr]
            elif type(v) is collections.deque:
                self.guard(source.attr("maxlen"), "EQ_MATCH", v.maxlen)
        return h

    def attributes(self, h: Shadow) -> None:
        """The attributes of a shadowed container, and that there are no others."""
        d = getattr(h.orig, "__dict__", None)
        if d is None:
            return
        source = h.source.dict()
        self.guard(source, "DICT_KEYS", list(d))
        for k, x in d.items():
            h.copy.__dict__[k] = self.locate(x, source.key(k))

    def shadow_subclass(self, v: Any, source: Source) -> Shadow:
        t = type(v)
        base = dict if isinstance(v, dict) else list
        if issubclass(t, collections.OrderedDict):
            base = collections.OrderedDict
        copy = t.__new__(t)  # type: ignore[call-overload]
        if issubclass(t, collections.defaultdict):
            copy.default_factory = self.locate(v.default_factory, source.attr("default_factory"))
        if base is list:
            list.extend(copy, list.__iter__(v))
        else:  # what is stored: `update` would ask the class's own `__getitem__` and `__iter__`
            for k, x in base.items(v):  # type: ignore[union-attr]
                base.__setitem__(copy, k, x)
        h = Shadow(v, copy, source, None)
        self.shadows[id(v)] = h
        self.by_copy[id(copy)] = h
        self.outside[id(v)] = v
        self.sources[id(v)] = source
        self.guard(source, "TYPE_MATCH", t)
        self.attributes(h)
        return h

    def locate_container(self, v: Any, source: Source) -> Any:
        h = self.shadows.get(id(v))
        if h is None:
            if id(v) in self.by_copy:
                return v
            h = self.shadow(v, source)
        elif h.source is not source:
            self.guard(source, "ALIAS", h.source)
        return h.copy

    def locate_set(self, v: Any, source: Source) -> Any:
        if id(v) in self.shadows or id(v) in self.by_copy:
            return self.locate_container(v, source)
        for x in v:
            if not (type(x) in CONSTANT_TYPES or isinstance(x, (type, FunctionType, enum.Enum))):
                self.guard(source, "TYPE_MATCH", type(v))
                return self.adopt(v, source)  # members with state: only identity is known of it
        h = self.shadow(v, source)
        self.guard(source, "SET_EQUALS", frozenset(v))
        h.all = True
        return h.copy

    def locate_frozenset(self, v: Any, source: Source) -> Any:
        self.guard(source, "SET_EQUALS", v)
        return self.stands_for(v, v, source)

    def instance_dict(self, obj: Any) -> Shadow | None:
        """The shadow of an outside instance's `__dict__` (None: it has none)."""
        try:
            d = GENERIC_GETATTR(obj, "__dict__")  # whatever the class's own `__getattribute__` would do
        except AttributeError:
            return None
        h = self.shadows.get(id(d))
        if h is None:
            if type(d) is not dict:
                return None
            h = self.shadow(d, self.sources[id(obj)].dict(), obj)
        return h

    def item(self, h: Shadow, k: Any) -> Any:
        """Read one key of a dict through its shadow."""
        v = dict.__getitem__(h.copy, k)  # subclasses may say otherwise; a shadow is the plain content
        if k not in h.located and dict.__contains__(h.orig, k):
            h.located[k] = WRITTEN
            w = h.located[k] = self.locate(v, h.source.key(k))
            if w is not v:
                dict.__setitem__(h.copy, k, w)
                return w
        return v

    def absent(self, h: Shadow, k: Any) -> None:
        """The program relied on `k` not being in this dict."""
        if not dict.__contains__(h.orig, k):
            if type(k) is str:
                self.lacking(h, k, None)
            else:
                self.guard(h.source, "DICT_CONTAINS", (k, False), k)

    def lacking(self, h: Shadow, name: str, kind: type | None) -> None:
        """The program relied on `name` not being in this dict, or on an empty dict of this kind there: a guard for each instruction."""
        if name not in h.lacks:
            self.lacking_all(h, {name: kind})

    def lacking_all(self, h: Shadow, kinds: dict[str, Any]) -> None:
        """`lacking` of names that are new."""
        h.lacks.update(kinds)
        f = vm.frame
        site = f.decoded.site(f.pc - 1 if f.pc else 0) if f is not None else None
        g = h.lacks_here
        if g is not None and g.site is site:
            g.value.update(kinds)
        else:
            h.lacks_here = self.guards[h.source, "DICT_LACKS", next(iter(kinds))] = Guard(h.source, "DICT_LACKS", kinds, site)

    def lacks(self, h: Shadow, absent: tuple[str, ...], empty: tuple[str, ...]) -> bool:
        """`absent` of all of these and `is_empty` of all of those, or False, and nothing is recorded."""
        d, known = h.copy, h.lacks
        new: dict[str, Any] = {}
        for k in absent:
            if k in d:
                return False
            if k not in known and k not in h.orig:
                new[k] = None
        for k in empty:
            v = d.get(k)
            if type(v) not in DICTS or v or k in h.located or id(v) in self.shadows:
                return False
            if k in known:
                if self.glimpsed[id(h), k][0] is not v:
                    return False
            elif id(v) in self.by_copy:
                return False
            else:
                new[k] = type(v)
        for k in empty:
            if k in new:
                self.glimpsed[id(h), k] = (d[k], h)
        if new:
            self.lacking_all(h, new)
        return True

    def is_empty(self, h: Shadow, k: Any) -> bool:
        """Whether the dict under `k` is empty and was not touched yet. Then its guard says enough, and it needs no shadow."""
        v = h.copy[k]
        if v or k in h.located or id(v) in self.shadows:
            return False
        seen = self.glimpsed.get((id(h), k))
        if seen is None:
            if type(v) not in DICTS or id(v) in self.by_copy:
                return False
            self.lacking(h, k, type(v))
            seen = self.glimpsed[id(h), k] = (v, h)
        return seen[0] is v

    def present(self, h: Shadow, k: Any) -> None:
        if dict.__contains__(h.orig, k):
            self.guard(h.source, "DICT_CONTAINS", (k, True), k)

    def index(self, h: Shadow, i: int) -> Any:
        """Read one index of a list through its shadow."""
        v = list.__getitem__(h.copy, i)
        n = list.__len__(h.orig)
        if i < 0:
            self.length(h)
            i += list.__len__(h.copy)
        if i not in h.located and i < n and v is list.__getitem__(h.orig, i):
            w = h.located[i] = self.locate(v, h.source.index(i))
            if w is not v:
                list.__setitem__(h.copy, i, w)
                return w
        return v

    def length(self, h: Shadow) -> None:
        """The program relied on how many items there are."""
        if not h.keys_known:
            h.keys_known = True
            if isinstance(h.orig, dict):
                keys = list(stored(h.orig))
                for k in keys:
                    if type(k) not in CONSTANT_TYPES and not plain_key(k):
                        raise Break("PL0007", f"the keys of {h.source.name}, which are objects")
                self.guard(h.source, "DICT_KEYS", keys)
            elif not isinstance(h.orig, (set, frozenset)):
                self.guard(h.source, "LENGTH", list.__len__(h.orig) if isinstance(h.orig, list) else len(h.orig))

    def countable(self, h: Shadow) -> bool:
        """Whether the program knows no more of how many items there are than by how many they have become more or fewer."""
        return not h.keys_known and h.owner is None and type(h.orig) in (list, dict)

    def changing_length(self, h: Shadow) -> Any:
        """How many items there are, as a symbolic number."""
        source = h.source.length()
        before = self.reads.get((source, "int"), UNSET)
        if before is UNSET:
            name = self.new_symbol(source)
            before = self.reads[(source, "int")] = to_sym(self.scope, self.scope.backed(name, hint=len(h.orig), lo=0, source=source))
        return before + (len(h.copy) - len(h.orig))

    def all(self, c: Any) -> None:
        """The program (or C code) may read anything in container `c`: locate every item."""
        h = self.by_copy.get(id(c))
        if h is None or h.all:
            return
        h.all = True
        self.length(h)
        if isinstance(c, dict):
            for k in list(stored(h.orig)):
                if dict.__contains__(c, k) and k not in h.located:
                    self.item(h, k)
        elif isinstance(c, list):
            for i in range(min(list.__len__(h.orig), list.__len__(c))):
                if i not in h.located:
                    self.index(h, i)
        elif isinstance(c, collections.deque):
            for i, v in enumerate(h.orig):
                if i not in h.located:
                    w = h.located[i] = self.locate(v, h.source.index(i))
                    if w is not v:
                        c[i] = w

    def deep(self, c: Any, seen: set | None = None) -> None:
        """`all`, and whatever containers are inside: C code may walk them."""
        t = type(c)
        if t not in CONTAINERS and id(c) not in self.by_copy:
            return
        if seen is None:
            seen = set()
        if id(c) in seen:
            return
        seen.add(id(c))
        if id(c) in self.by_copy:
            self.all(c)
        for x in stored(c).values() if isinstance(c, dict) else c:
            tx = type(x)
            if tx in CONTAINERS or id(x) in self.by_copy:
                self.deep(x, seen)

    # -- tensors ----------------------------------------------------------------------------------
    def tensor(self, v: Any, source: Source) -> Any:
        """The traced input for a real tensor: sizes symbolic unless 0, 1, a parameter's, or declared static."""
        r = self.tensors.get(id(v))
        if r is not None:
            if r.source is not source:
                self.guard(source, "ALIAS", r.source)
            return r
        if torch._C._len_torch_function_stack():  # what is asked of it here is no question of the program's
            with torch._C.DisableTorchFunction():
                return self.new_tensor(v, source)
        return self.new_tensor(v, source)

    def new_tensor(self, v: Any, source: Source) -> Any:
        if v.layout is not torch.strided or v.is_quantized or v.device.type == "meta" or torch._C._functorch.is_functorch_wrapped_tensor(v):
            self.guard(source, "TYPE_MATCH", type(v))
            self.guard(source.apply("kind_of_tensor"), "EQ_MATCH", views.kind_of_tensor(v))  # it has no class of its own
            return self.adopt(v, source)
        return tensor_inputs.make_tensor(self, v, source)


def bound_descriptor(m: Any) -> Any:
    """The method of a C class that `m` is, bound to an object whose class has overridden it: asking that object gives another one."""
    name, owner, overridden = m.__name__, m.__self__, False
    for c in type(owner).__mro__:
        found = c.__dict__.get(name, UNSET)
        if type(found) in C_METHODS and found.__get__(owner) == m:
            return found if overridden else None
        overridden = overridden or found is not UNSET
    return None


C_METHODS = {types.MethodDescriptorType, types.WrapperDescriptorType}


def stored(d: dict) -> dict:
    """What a dict holds: iterating and subscribing an instance of a subclass may run that class's own methods."""
    t = type(d)
    if t is dict or t is collections.OrderedDict:
        return d
    return dict((collections.OrderedDict if isinstance(d, collections.OrderedDict) else dict).items(d))


SOURCED: set[type] = {Opaque}  # stand-ins that know where they came from


def plain_key(k: Any) -> bool:
    """Keys that stand for themselves in a capture."""
    if isinstance(k, tuple):
        return all(type(x) in CONSTANT_TYPES or plain_key(x) for x in k)
    return isinstance(k, (type, FunctionType, enum.Enum, ModuleType)) or type(k) in IMMUTABLE


def through_attribute(source: Source) -> bool:
    """Whether the path to this value goes through an object's attribute (then an int is taken to be configuration)."""
    s: Source | None = source
    while s is not None:
        if s.op in ("dict", "attr", "cell", "contents"):
            return True
        s = s.base
    return False


def goes_through_modules(source: Source) -> bool:
    """Whether the path to this value enters a submodule."""
    s: Source | None = source
    while s is not None:
        if s.op == "key" and s.arg == "_modules":
            return True
        s = s.base
    return False


def shadowable_subclass(t: type) -> bool:
    """Subclasses of dict and list made in Python, with plain construction and no slots."""
    if t.__flags__ & (1 << 9) == 0:  # Py_TPFLAGS_HEAPTYPE
        return False
    new = t.__new__
    if new not in (dict.__new__, list.__new__, collections.OrderedDict.__new__):
        return False
    return not any(b.__dict__.get("__slots__") for b in t.__mro__ if b.__flags__ & (1 << 9))


C_FIELDS = {collections.defaultdict: ("default_factory",), collections.deque: ("maxlen",)}
DICTS = (dict, collections.OrderedDict)
CONTAINERS = {list, dict, set, collections.OrderedDict, collections.deque, collections.defaultdict, collections.Counter, tuple}
CONSTANT_TYPES = {str, bytes, bool, type(None), complex, type(Ellipsis), type(NotImplemented), int, float, torch.dtype, torch.device}
