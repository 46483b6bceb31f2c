"""The model of the outside world during one capture.

What existed before the capture is *outside*. Reading it goes through `World.locate`, which records a guard and returns the
proxy that the interpreter works on; writing goes to shadows, and `effects.py` turns the difference into effects.
Nothing outside changes while capturing. How each type is located is in `types/`, what a shadow knows in `shadows.py`; what is found by all
of them is kept here.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any

import torch

from pliant.graph.traced import TracedTensor
from pliant.guards.guard import Guard
from pliant.guards.source import Source, const, places
from pliant.interpret.immutable import hashes_itself
from pliant.interpret.opaque import Opaque, answers_for_itself, made_again, opaque
from pliant.interpret.state import Break, vm
from pliant.interpret.types.row import KIN, LOCATED
from pliant.interpret.wrappers import Levels

if TYPE_CHECKING:
    from pliant.interpret.shadows import Shadow

TENSOR_TYPES = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}
LISTED = {bool, str, type(None)}
"""Types of items that are opaque where other items of their list have changed. Numbers become symbols."""


class World:
    """Sources, shadows and guards of one capture."""

    def __init__(self, scope: Any, trace: Any, history: Any, dynamic: bool | None = None) -> None:
        self.scope = scope
        self.trace = trace
        self.history = history
        self.declared: dict[str, Any] = dict(dynamic) if isinstance(dynamic, tuple) else {}  # by path, what `compile` was told
        self.dynamic = None if isinstance(dynamic, tuple) else dynamic
        self.loops_seen = False  # some loop of the captured code has become a region
        self.resumed = False  # this is what follows a graph break
        self.resumed_at = -1  # the instruction at which the frame goes on there
        self.in_loop = False  # this is the body of a region loop: its counters take every value
        unbroken = getattr(history, "unbroken", False)
        self.opaque = () if unbroken else getattr(history, "opaque", ())  # sources whose values stay out of the graph
        self.listed = () if unbroken else getattr(history, "listed", ())  # places in lists where all is so
        self.absent = () if unbroken else getattr(history, "absent", ())  # and where tensors are, too
        self.anew = () if unbroken else getattr(history, "anew", ())  # names of classes that are others in each call
        self.keyed = frozenset(() if unbroken else getattr(history, "keyed", ()))  # of objects that are others in each call, as keys
        self.late_keys: dict[int, Source] = {}  # id of a key of outside dicts -> where guards find it
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
        self.views: dict[int, tuple] = {}  # id of an outside view of a dict -> (what stands for it, its source, the view)
        self.generators: dict[int, Any] = {}  # id of an outside `torch.Generator` -> what stands for it
        self.guards: dict[tuple, Guard] = {}
        self.symbols: dict[str, Source] = {}
        self.constants_at: dict[int, tuple[Any, Source]] = {}  # values known by worth, of which each call may have another object
        self.relations: list[Any] = []  # Exprs beyond scope.guards (strides as products of sizes)
        self.type_attrs: dict[type, dict[str, Any]] = {}
        self.reads: dict[tuple, Any] = {}
        self.ways: dict[type, Any] = {}  # how values of a class without a row are located
        self.global_writes: dict[tuple, tuple] = {}
        self.names_of: dict[int, Any] = {}  # id of a dict of global names -> what stands for it
        self.namespaces: set[int] = set()  # ids of dicts whose items were read as global names
        self.cells: dict[int, Source] = {}
        self.cell_values: dict[int, tuple] = {}
        self.cell_writes: dict[int, Any] = {}
        self.own_functions: dict[int, Any] = {}  # functions and classes that the program made
        self.managers: dict[tuple[int, int], list] = {}  # (id of a code, a `with`) -> the `__exit__` of what it has entered
        self.own_classes: list[type] = []
        self.dict_owners: dict[int, tuple] = {}  # id of a `__dict__` that the program has asked for -> (it, the object made here)
        self.named_properties: dict[int, tuple] = {}  # properties that a class has told their name: (property, name)
        self.remade: dict[int, tuple] = {}  # id of a class or annotation -> how it was made: (function, args, kwargs, its attributes)
        self.made_aliases: dict[int, Any] = {}  # `list[int]`, `int | str` and the like that the program made
        self.remade_functions: dict[int, tuple] = {}  # id of a function made with such a class -> (class, name, wrapped or not)
        self.computes = 0, 0, 0  # calls of PyTorch and operations looked at, and how many calls are given tensors
        self.inlined: dict[int, tuple] = {}  # id of a code -> (it, its caller's, operations of a call, whether to its end)
        self.walks: dict[int, tuple] = {}  # id of an iterator -> (it, the code that made it, where, operations before)
        self.walked: dict[int, tuple] = {}  # id of a code -> (it, {where it makes an iterator: operations in a loop over that, to its end})
        self.calls: list[tuple] = []  # deferred calls (print, logging), in order
        self.tensor_writes: dict[tuple, tuple] = {}  # (id, name) -> (a tensor, an object with slots or a class of the outside, what it got)
        self.tensor_dicts: dict[int, tuple] = {}  # id of a tensor made here -> (it, its `__dict__`, whether the program has given it that)
        self.class_writes: set[str] = set()  # names of attributes of classes among them
        self.made_leaves: dict[int, Any] = {}  # id of a tensor from outside -> it, which has gradients from now on
        self.frozen_leaves: dict[int, tuple] = {}  # id of a parameter from outside -> (it, operations before it was without gradients)
        self.own_gradients: dict[int, tuple] = {}  # id of a leaf made here -> (it, its gradient)
        self.keys: dict[type, dict[Source, None]] = {}  # by type, the sources of what was a key by its identity
        self.context_values: dict[int, tuple] = {}  # id(ContextVar) -> (variable, value, value at the start)
        self.counters: dict[int, tuple] = {}  # id of an `itertools.count` of the outside -> (it, next, how often asked)
        self.lookups: dict[tuple, Any] = {}
        self.ordinary: set[type] = set()  # classes whose instances have no special way to their attributes
        self.specialized: dict[str, Any] = {}
        self.keep: list = []
        self.function_sources: dict[int, Source] = {}  # functions known by their code only
        self.known_functions: dict[int, Any] = {}  # functions that are guarded themselves
        self.fresh_globals: set[int] = set()  # namespaces made in the capture
        self.n_symbols = 0
        self.counts: list[TracedTensor] = []  # inputs of which the guards read the number
        self.data_of: dict[int, tuple] = {}  # id of a traced `x.data` -> (it, x)
        self.data_views: dict[int, Any] = {}  # these and their views
        self.rebound: dict[int, Any] = {}  # id of a tensor made here that was given other memory -> it
        self.given: dict[int, tuple] = {}  # id of a tensor from outside that was given other memory -> (it, that, its version then)
        self.given_memory: set[int] = set()  # storage ids: what these had before, and have now
        self.nodes: dict[Any, Any] = {}  # of the autograd graph -> what stands for each
        self.retained: dict[int, Any] = {}  # id of a tensor made here -> it, whose gradient is kept
        self.waiting: dict[int, Source] = {}  # id of an input that is waited for -> where the tensor that waits is (`waiting.py`)
        self.begun_in_inference = trace.inference
        self.inference: list[Any] = []  # the inference modes that the program has entered
        self.decomposed = False  # PyTorch's decompositions in Python were run in the place of its C++ code
        self.replayed = False  # a block was recorded again as it was
        self.hooks_set = 0  # how many pairs of hooks on saved tensors are on
        self.checkpoints = 0  # how many functions are called that a checkpoint sets hooks on saved tensors around
        self.hooks_disabled: tuple | None = None  # (with what message hooks on saved tensors were disabled before, or None,)
        self.error_on_break = False  # the program asked for errors where the graph breaks
        self.texts_running: set[tuple[int, int]] = set()  # (id of a class's own set, id of an object) whose text is being made
        self.kept: dict[int, list] = {}  # by id: what warnings and records will be put into when they are told, after the graph
        self.filters_mutated = 0  # how often the warnings were told that their filters have changed
        self.handles: dict[int, Any] = {}  # of hooks on tensors, set here
        self.rehearsed_hooks: list[tuple] = []  # (what, what it holds, how to refuse it): what autograd will call, for what that will read
        self.in_place_of_code: list[Any] = []  # operations that are done in place of Python code that autograd calls
        self.hooks_to_set: list[Any] = []  # handles of hooks on tensors from outside, which emitted code sets
        self.hashed_by: dict[tuple[int, str], Any] = {}  # what keys of containers were hashed by: (id of an object, attribute) -> it
        self.levels = Levels()
        self.has_subclasses = False  # the program has met a tensor of a class with code of its own (`tensor_subclasses.py`)
        self.tensor_likes: set[type] = set()  # classes that are no tensors, and have a `__torch_function__`
        self.wrappers_made: dict[int, tuple] = {}  # id of a wrapper that the program has made -> what `_make_wrapper_subclass` was given
        self.parts: dict[int, tuple] = {}  # vid of a part of a wrapper with gradients -> (its source, names of parts, own name)
        self.ragged: dict[str, Any] = {}  # symbol of a ragged size -> the offsets that it belongs to
        self.probes: dict[int, tuple] = {}  # id of a probe -> (it, what it is in the place of)
        self.in_transform = False  # the program has entered a transform: there may be proxies
        self.passing: dict[int, tuple] = {}  # exceptions on their way: (exception, traceback before, where it passed)
        self.shown: list[Any] = []  # codes of the frames that tracebacks of the program have proxies for
        self.contexts: dict[int, tuple] = {}  # exceptions that the program is raising: (exception, context and suppression that they get)
        self.interpreted: dict[int, Any] = {}  # the functions whose frames ran
        self.asked: list[tuple] = []  # (function, arguments, keywords, answer): what was asked now, and is taken to stay so
        self.torch_error = 0  # the id of the latest exception that a torch function raised
        self.subclasses: Any = None  # the one guard of what was asked about abstract classes
        self.code: Any = None  # that is captured
        self.entry_state: dict[str, Any] = {}  # torch's global state where the capture began
        self.bound_here = ""  # why what was captured means nothing in another process; empty if it may
        self.log: list[tuple] | None = None  # what was read of containers, while a block is recorded (`blocks.py`)
        self.made: list[Shadow] = []  # the shadows, in the order in which they were made
        self.apart: dict[tuple[int, int], Any] = {}  # pairs of inputs, one written from the other (`late_errors.py`)
        self.aliases: list[Guard] = []  # the guards that two paths lead to one object
        self.blocks: Any = None  # what was recorded of them
        self.unchained: dict[int, Any] = {}  # exceptions whose context is what the caller handles
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
            g = self.guards[k] = Guard(source, kind, value, site)
            if kind == "ALIAS":
                self.aliases.append(g)

    def marked(self, t: Any) -> bool:
        """Whether the program made a tensor a parameter or a buffer by the attribute that says so."""
        held = self.tensor_dicts.get(id(t), (t, ()))[1]
        return "_is_param" in held or "_is_buffer" in held

    def type_attr(self, cls: type, name: str, found: Any) -> None:
        """The program relied on what the class look-up of `name` gives."""
        d = self.type_attrs.get(cls)
        if d is None:
            d = self.type_attrs[cls] = {}
        d[name] = found

    def unusual(self) -> None:
        """Something was asked of the outside that no shadow tells of: a block in which that happens is captured anew each time."""
        if self.log is not None:
            self.log.append(("unusual", None, None, None, None, 0, 0))

    # -- what is outside -----------------------------------------------------------------------
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

    def adopt_member(self, v: Any) -> bool:
        """Whether `v` is a member of an enumeration of the outside, which the program has met as a key: what hangs on it may change."""
        t = type(v)
        if not issubclass(t, enum.Enum) or id(t) in self.own_functions:
            return False
        self.adopt(v, const(v))
        return True

    def known_by_identity(self, o: Any) -> None:
        """`o` became a key, or was looked up as one: an outside object that was another one then has to be another one."""
        source = o.source if type(o) is TracedTensor else self.source_of(o)
        if source is not None:
            self.unusual()
            self.keys.setdefault(o.pytype if type(o) is TracedTensor else type(o), {})[source] = None

    def is_key(self, o: Any, source: Source, d: Any) -> None:
        """`o`, which equals itself alone, is looked up in dict `d`. Its item is found by whichever is there, since guards that found it by
        the object would keep that alive. Another object may be another key: it is guarded itself, but where others have come."""
        self.unusual()
        if self.keyed:
            self.keys.setdefault(type(o), {})[source] = None
        if d is not None:
            self.late_keys[id(o)] = source
        if source not in self.keyed:
            self.guard(source, "ID_MATCH", o)
        elif d is None:
            raise Break("PL0012", "an object that is another one in each call, as a key or by its id()", clean=True)

    def pin(self, o: Any) -> None:
        """The capture relies on what this very object is known to be: one from outside, guarded by its type so far, is guarded itself."""
        if id(o) in self.outside:
            self.guard(self.sources[id(o)], "ID_MATCH", o)

    # -- locate: a value read from outside becomes a proxy -----------------------------------
    def locate(self, v: Any, source: Source) -> Any:
        """The proxy of outside value `v` read at `source`; records the guards that make it valid."""
        if type(type(v)) is not type and hashes_itself(type(v)):
            return Opaque(v, source)
        row = LOCATED.get(type(v))
        if self.opaque and source in self.opaque and type(v) not in TENSOR_TYPES:
            return Opaque(v, source)
        opaque = self.listed if type(v) in LISTED else self.absent if type(v) in TENSOR_TYPES else ()
        if opaque and not opaque.isdisjoint(places(source)):
            return Opaque(v, source)
        if self.anew and made_again(v, source, self.anew):
            return Opaque(v, source)
        if row is not None:
            return row.locate(self, v, source)  # type: ignore[misc]
        t = type(v)  # asked for its class by `isinstance`, an object may run code of the program
        locate = self.ways[t] if t in self.ways else self.way(t)
        if locate is not None:
            return locate(self, v, source)
        h = self.shadows.get(id(v))
        if h is not None:
            if h.source is not source:
                self.guard(source, "ALIAS", h.source)
            return h.copy
        self.guard(source, "TYPE_MATCH", t)
        return self.adopt(v, source)

    def way(self, t: type) -> Any:
        """How values of a class without a row are located; None: as objects with attributes."""
        own = answers_for_itself(t)
        locate = self.ways[t] = opaque if own else next((locate for bases, locate in KIN if issubclass(t, bases)), None)
        return locate

    def constant(self, v: Any, source: Source) -> Any:
        self.guard(source, "EQ_MATCH", v)
        if type(v) in ONE_OF_MANY:
            self.constants_at.setdefault(id(v), (v, source))
        return v

    def identity(self, v: Any, source: Source) -> Any:
        self.guard(source, "ID_MATCH", v)
        return v

    def new_symbol(self, source: Source, prefix: str = "s") -> str:
        name = f"{prefix}{self.n_symbols}"
        self.n_symbols += 1
        self.symbols[name] = source
        return name


ONE_OF_MANY = {int, float, complex, str, bytes}  # equal ones need not be one object
SOURCED: set[type] = {Opaque}  # proxies that know where they came from
