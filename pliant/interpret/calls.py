"""Calling things: the one place where the call policy is applied."""

from __future__ import annotations

import builtins
import contextlib
import enum
import functools
import inspect
import sys
import types
import typing
import weakref
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable
from typing import Any

import torch

from pliant import native as engine
from pliant.graph.originals import ORIGINAL, operator
from pliant.graph.symnode import concrete
from pliant.graph.traced import LEAF, TracedTensor, held_in
from pliant.guards import source as S
from pliant.guards.question import Raised
from pliant.interpret import (
    called_apart,
    callers_variables,
    gate,
    globalstate,
    heard_warnings,
    late_keys,
    lifetimes,
    policy,
    process_state,
    shadows,
)
from pliant.interpret.arity import binds, fits
from pliant.interpret.attributes import bind_class, lookup
from pliant.interpret.binding import bind, make_frame, raise_binding_error
from pliant.interpret.cached import annotation, cached
from pliant.interpret.capture import UNSET
from pliant.interpret.compiler_settings import SAID
from pliant.interpret.gate import OF_ITEMS, SETTINGS, captured_call, has_c_state, of_another_arithmetic, ordered, readable, to_c, to_graph
from pliant.interpret.generators import ALONE, Generator, Left
from pliant.interpret.immutable import HEAPTYPE, getter_arguments, getter_parts
from pliant.interpret.library_internals import OPERATORS, guard_inside, guard_rules, overload_of
from pliant.interpret.names_told import TEXTS, guard_text
from pliant.interpret.namespaces import SLOTS
from pliant.interpret.slots_of_object import by_identity
from pliant.interpret.special_methods import bound_special, has_ways_of_its_own, undecorated
from pliant.interpret.state import Break, carried, taken, title, vm, writes
from pliant.interpret.type_names import type_name
from pliant.interpret.types.functions import is_namespace
from pliant.interpret.types.holders import ALIASES, made_alias
from pliant.interpret.types.row import ROWS
from pliant.interpret.weak import dereference

FunctionType, MethodType, ModuleType = types.FunctionType, types.MethodType, types.ModuleType
BuiltinType = types.BuiltinFunctionType
MAX_DEPTH = 120

LOOKASIDES = policy.LOOKASIDES
# `(type of self, method name)` of C methods with a replacement of their own
METHOD_LOOKASIDES: dict[tuple[type, str], Callable[[Any, tuple, dict], Any]] = {}
BY_CODE: dict[int, Callable[[Any, tuple, dict], Any]] = {}  # by the id of their code, which lasts: inner functions of the library
TAIL_LOOKASIDES: set[Any] = set()  # replacements whose result is that of the one call they make
APPENDS = {"append", "extend"}  # list methods that need not read the list
SAFE_NEW_TYPES = {
    object, dict, list, set, tuple, frozenset, int, str, float, bytes, OrderedDict, deque, defaultdict,
    *(e for e in vars(builtins).values() if isinstance(e, type) and issubclass(e, BaseException)),
}  # fmt: skip
IDENTITY_NEW = {t.__new__ for t in SAFE_NEW_TYPES}


def interp(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Interpret a Python function's frame to its end and return what it returns."""
    look = LOOKASIDES.get(fn)
    if look is not None:
        return look(args, kwargs)
    return inline(fn, args, kwargs)


def inline(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Interpret a Python function, whatever the tables say of it."""
    loc = bind(fn, args, kwargs)
    if loc is None:
        if id(fn) not in vm.world.own_functions and id(fn) not in vm.world.function_sources:
            guard_function(fn)
        raise_binding_error(fn, args, kwargs)
    return run_frame(fn, loc)  # type: ignore[arg-type]


def guard_function(fn: Any) -> None:
    """The program relied on what a function of the outside does: on its code and its defaults."""
    world = vm.world
    key = (fn, "fn")
    if key not in world.lookups:
        world.lookups[key] = True
        world.guard(S.const(fn), "FUNCTION", (fn.__code__, fn.__defaults__, fn.__kwdefaults__))


def new_frame(fn: Any, loc: list) -> Any:
    """A frame of a function, whose code, defaults and closure are guarded if it is of the outside."""
    world = vm.world
    source = world.function_sources.get(id(fn))
    if source is None and id(fn) not in world.own_functions:
        guard_function(fn)
    return make_frame(fn, loc, func_source=source)


def run_frame(fn: Any, loc: list) -> Any:
    caller = vm.frame
    tail = False
    if caller is not None:
        tail, caller.tail = caller.tail, False
    f = new_frame(fn, loc)
    f.is_tail = tail
    f.parent = caller
    if vm.depth > MAX_DEPTH:
        raise Break("PL0010", f"calls nested deeper than {MAX_DEPTH}")
    if vm.frames_made > vm.frames_most:
        raise Break("PL0010", "too many calls on one side of a branch")
    before = called_apart.begins(f)
    vm.depth += 1
    try:
        r = vm.run(f)
    finally:
        vm.depth -= 1
        called_apart.ends(f, before)
    if not f.yielded and sys.getrefcount(f) <= ALONE:  # neither a generator's nor one that a frame object or a traceback shows
        f.ends()
    del f, loc
    if vm.pending is not None:  # a generator among its locals has ended, and that broke the graph
        raise taken()
    return r


ASK_EQUALITY = frozenset({"count", "index", "remove", "split", "subgroup"})  # the last two are those of groups of exceptions
def native(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Run a C function on real objects; Python frames that it starts come back to the interpreter."""
    keyed = kwargs.get("key") is not None and type(fn) is BuiltinType
    args = tuple([(gate.ordered_by if keyed else to_c)(fn, a, i) for i, a in enumerate(args)])
    if kwargs:
        kwargs = {k: a if keyed and k == "key" else to_c(fn, a) for k, a in kwargs.items()}
        if keyed:
            kwargs["key"] = vm.callback_key(kwargs["key"])
    if isinstance(getattr(fn, "__self__", None), set) and fn.__name__ == "pop":
        ordered(fn.__self__)
    if (type(fn) is BuiltinType or type(fn) is types.MethodWrapperType) and fn.__name__ in OF_ITEMS:
        shadows.read_deep(vm.world, fn.__self__, None if keyed else functools.partial(gate.within, fn))
    if type(fn) is BuiltinType and fn.__name__ in ASK_EQUALITY and isinstance(fn.__self__, (list, tuple, BaseExceptionGroup)):
        vm.note_equality(fn.__self__, *args)
    caller = vm.frame
    if caller is not None:
        caller.tail = False
    gate.guard_asked(fn, args)
    if fn in READS_NUMBERS or (type(fn) is type and fn.__flags__ & HEAPTYPE and issubclass(fn, (complex, OSError))):
        args = with_numbers(args)
    try:
        if type(fn) is FunctionType and fn in LOOKASIDES:  # its lookaside has seen to what it reads, and runs it
            r = engine.call_in_mode(engine.OFF, fn, args, kwargs)
        else:
            r = gate.in_c(fn, args, kwargs)
    except (TypeError, ValueError):
        if vm.pending is not None:
            raise
        if any([type(a) in SYMBOLIC for a in (*args, *kwargs.values())]):  # it wants a number, and has done nothing yet
            return on_numbers(fn, args, kwargs)
        if any([symbolic_within(a) for a in (*args, *kwargs.values())]):
            raise plain_wanted(fn) from None
        raise
    if vm.pending is not None:
        raise taken()
    if r is NotImplemented and any([type(a) in SYMBOLIC for a in args]):  # a special method that takes numbers alone
        return on_numbers(fn, args, kwargs)
    if issubclass(type(r), torch.Tensor) and type(r) is not TracedTensor or type(r) in UNTRACED:
        raise Break("PL0018", f"{title(fn)} returned a real tensor or array that has no source")
    if type(r) in TEXTS:
        guard_text(r, getattr(fn, "__self__", None), *args, *kwargs.values())
    elif type(r) in ALIASES:
        made_alias(fn, args, r)
    return carried(r)


UNTRACED: set[type] = set()
"""Types of mutable values that nothing made in a capture is of: something stands for them."""


SYMBOLIC: set[type] = {torch.SymInt, torch.SymFloat, torch.SymBool}


CALLBACKS: set[type] = set()
"""Types of what C code calls in place of functions; `symbolic` tells whether it has seen a symbolic number so."""


OS_ERRORS = [c for c in vars(builtins).values() if isinstance(c, type) and issubclass(c, OSError)]
READS_NUMBERS = {complex, complex.__new__, OSError.__new__, *OS_ERRORS}
"""Functions of C to which a symbolic number says something else: an OSError's class goes by its number, `complex` adds `__complex__`."""


def with_numbers(args: tuple) -> tuple:
    return tuple([concrete(a) if type(a) in SYMBOLIC else with_numbers(a) if type(a) is tuple else a for a in args])


def on_numbers(fn: Any, args: tuple, kwargs: dict) -> Any:
    """The call with plain numbers in place of symbolic ones."""
    given = (*args, *kwargs.values())
    plain = with_numbers(given)
    if all(map(operator.is_, plain, given)):  # arrays, which have none
        raise plain_wanted(fn) from None
    return native(fn, plain[: len(args)], dict(zip(kwargs, plain[len(args) :], strict=True)))


def plain_wanted(fn: Any) -> Break:
    return Break("PL0004", f"call of {title(fn)}, which wants plain numbers in what it is given")


def symbolic_within(a: Any, depth: int = 2) -> bool:
    """Whether an argument is a tensor, or holds or gives symbolic numbers: C code may not take them for numbers."""
    if type(a) in CALLBACKS:
        return a.symbolic
    if type(a) in SYMBOLIC:
        return depth < 2
    if type(a) is TracedTensor:
        return True
    values: Any = held_in(a) if issubclass(type(a), (list, tuple, set, frozenset)) else ()  # `isinstance` believes a `__class__`
    if issubclass(type(a), dict):
        values = [x for pair in dict.items(a) for x in pair]
    return depth > 0 and any([symbolic_within(v, depth - 1) for v in values])


OF_LISTS: dict[type, Callable[[Any, tuple, dict], Any]] = {}
"""By the type of a proxy for a list: (torch function, arguments, of which it is the first, keywords) -> the result."""

KEYWORDS: dict[str, Callable[[Any, Any, tuple, dict], Any]] = {}
"""By the name of a keyword: (its value, torch function, arguments, other keywords) -> the result, NotImplemented if it is like others."""

PASSED = {TracedTensor, *SETTINGS} - {torch.SymBool}
"""Types whose values torch functions are given as they are."""


def graph_call(fn: Any, args: tuple, kwargs: dict, method: str | None = None) -> Any:
    """Run a torch function on traced tensors and record it in the Torch-level graph."""
    if args and type(args[0]) in OF_LISTS:
        return OF_LISTS[type(args[0])](fn, args, kwargs)
    for name in KEYWORDS if kwargs else ():
        if kwargs.get(name) is not None:
            out = KEYWORDS[name](kwargs[name], fn, args, {k: v for k, v in kwargs.items() if k != name})
            if out is not NotImplemented:
                return out
    args = tuple([a if type(a) in PASSED else to_graph(fn, a) for a in args])
    if kwargs:
        kwargs = {k: to_graph(fn, a) for k, a in kwargs.items()}
        if LEAF in vm.refused and kwargs.get("requires_grad") is True:
            raise Break("PL0012", f"{title(fn)} makes a leaf, whose gradients the program may want", clean=True)
    if type(fn) in OPERATORS:
        guard_rules(fn)
        fn = fn if globalstate.user_modes() else overload_of(fn, args, kwargs)  # modes are told of what is called
    caller = vm.frame
    if caller is not None:
        caller.tail = False
    out = vm.record_torch(fn, args, kwargs, method)
    if isinstance(out, torch.Tensor):
        if type(out) is not TracedTensor:
            raise Break("PL0018", f"{title(fn)} returned a real tensor that has no source")
        if kwargs and kwargs.get("requires_grad") is True and out.is_leaf and out.requires_grad:
            vm.trace.own_leaves.add(out.vid)
    elif type(out) in (tuple, list):
        for x in out:
            if issubclass(type(x), torch.Tensor) and type(x) is not TracedTensor:
                raise Break("PL0018", f"{title(fn)} returned a real tensor that has no source")
    return out


def call(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Call `fn` as the program would."""
    t = type(fn)
    if t is FunctionType:
        return call_function(fn, args, kwargs)
    if t is MethodType:
        inner = fn.__func__
        if type(inner) is FunctionType:
            return call_function(inner, (fn.__self__, *args), kwargs)
        return call(inner, (fn.__self__, *args), kwargs)
    if t is BuiltinType or issubclass(type(fn), BuiltinType):
        return call_builtin(fn, args, kwargs)
    look = policy.lookaside_of(fn)
    if look is not None:
        vm.world.pin(fn)
        return call_lookaside(fn, look, args, kwargs)
    if issubclass(type(fn), type):
        return construct(fn, args, kwargs)
    return call_other(fn, t, args, kwargs)


def call_lookaside(fn: Any, look: Callable, args: tuple, kwargs: dict) -> Any:
    if not fits(fn, args, kwargs):
        return native(fn, args, kwargs)
    if fn not in TAIL_LOOKASIDES and vm.frame is not None:
        vm.frame.tail = False
    return look(args, kwargs)


def call_function(fn: Any, args: tuple, kwargs: dict) -> Any:
    look = LOOKASIDES.get(fn)
    if look is not None:
        if not binds(fn.__code__, fn, args, kwargs):
            raise_binding_error(fn, args, kwargs)
        if globalstate.heard_of(fn):
            return inline(fn, args, kwargs)  # which calls it again, with the mode off, or has another answer
        return call_lookaside(fn, look, args, kwargs)
    p = policy.python_policy(fn)
    if p.kind == "inline":
        special = BY_CODE.get(id(fn.__code__))
        return inline(fn, args, kwargs) if special is None else special(fn, args, kwargs)
    return apply_kind(p, fn, args, kwargs)


def wraps_another(fn: Any) -> bool:
    """Whether a Python function of a library calls one that it was given (`types.coroutine`), and may look at what that returns."""
    if type(fn) is not FunctionType or fn.__closure__ is None:
        return False
    held = [getattr(c, "cell_contents", None) for c in fn.__closure__]
    return any([type(f) is FunctionType and f.__globals__ is not fn.__globals__ for f in held])


def is_code(a: Any) -> bool:
    """Whether it can be called, and runs code of the program."""
    return type(a) in (FunctionType, MethodType) or isinstance(a, type) and engine.made_in_python(a)


ASK_ABOUT_CODE = ("inspect", "typing")
"""Modules of the library that are given functions and classes, and call none."""
OURS = ("torch.", "pliant.")  # plumbing that reads no more of the program's objects than its rows say
# calls (what, in which module) that only speak to TorchDynamo: around an optimizer's step, which is captured here as it is, and about
# modules that are made in a frame (once it has run, it patches their constructor)
NO_OPERATION = {("graph_break", "torch.optim.optimizer"), ("GenerationTracker.tag", "torch._dynamo.mutation_guard")}


COMPREHENSIONS = ("<genexpr>", "<listcomp>", "<dictcomp>", "<setcomp>")


def apply_kind(p: policy.Policy, fn: Any, args: tuple, kwargs: dict) -> Any:
    kind = p.kind
    if kind == "graph":
        if type(fn) is FunctionType:
            if fn.__code__.co_name in COMPREHENSIONS:
                return inline(fn, args, kwargs)  # a part of a function that is interpreted
            if any([type(a) not in PASSED and of_another_arithmetic(a) for a in (*args, *kwargs.values())]):
                return inline(fn, args, kwargs)  # beside a symbolic size it would come to another type in CPython's hands
            guard_function(fn)
            guard_inside(fn)
            with heard_warnings.heard(LOOKASIDES):
                return graph_call(fn, args, kwargs)
        return graph_call(fn, args, kwargs)
    if kind == "native" or kind == "symint":
        return native(fn, args, kwargs) if p.reads == "arguments" else answered(p.reads, fn, args, kwargs)
    if kind == "native_python" and not (fn.__module__ or "").startswith(OURS):
        given = (*args, *kwargs.values())
        if not all(map(readable, given)) or wraps_another(fn) or (fn.__module__ not in ASK_ABOUT_CODE and any(map(is_code, given))):
            return inline(fn, args, kwargs)  # it may read any attribute of an object, and call what it is given
    if p.reads == "asserted":
        return asserted(fn, args, kwargs)
    if kind == "native_python" or kind == "constant":
        return answered(p.reads, fn, args, kwargs)
    if kind == "skip":
        if vm.frame is not None and (title(fn), vm.frame.globals.get("__name__")) in NO_OPERATION:
            return None
        said = SAID.get((getattr(fn, "__module__", ""), title(fn)))
        if said is not None:
            return said(*args, **kwargs)
        held = "_torchdynamo_orig_callable"
        if not hasattr(fn, held) and getattr(fn, "__globals__", {}).get("__name__") == "torch._compile":
            held = "__wrapped__"
        inner = vm.getattr(fn, held) if hasattr(fn, held) else None
        if inner is not None and fn.__dict__.get("_is_torch_compile") and not fn.__dict__.get("_torchdynamo_disable"):
            return call(inner, args, kwargs)  # what `torch.compile` was given; here it is captured with the rest
        if inner is not None and ((inner.__module__ or "").startswith("torch.optim.") or LOOKASIDES.get(inner) is not None):
            # TorchDynamo's own mark, not the user's; `functools.wraps` takes it along to what calls the function that has it
            own = fn.__globals__["__name__"].startswith(("torch._dynamo.", "torch._compile"))
            return call(inner, args, kwargs) if own else inline(fn, args, kwargs)
        code, reason = policy.break_of(fn)
        callers_variables.looked_at(fn, args, vm.frame)
        if vm.frame is not None and vm.frame.globals is contextlib.__dict__ and is_generator(fn):
            loc = bind(fn, args, kwargs)
            if loc is not None:  # what is behind a context manager breaks the graph where it is entered
                return Generator(new_frame(fn, loc), Left(fn, args, kwargs, code, reason))
        raise Break(code, reason, clean=True)
    raise Break("PL0003", f"call of {title(fn)}", clean=True)


def is_generator(fn: Any) -> bool:
    return type(fn) is FunctionType and fn.__code__.co_flags & inspect.CO_GENERATOR != 0


def answered(reads: str, fn: Any, args: tuple, kwargs: dict) -> Any:
    """What code that CPython runs answers, and what it read of the world to know (`policy_tables.row.READS`) guarded."""
    state = process_state.WRITTEN.get(reads)
    before = state() if state is not None else None
    try:
        answer = native(fn, args, kwargs)
    except Exception as e:
        if before is None:
            process_state.note(reads, fn, args, kwargs, Raised(type(e), str(e)))
        raise
    finally:
        if state is not None and state() != before:
            process_state.put_back(before)  # type: ignore[arg-type]
            raise Break("PL0003", f"{title(fn)} changes state of the thread that the program may read", clean=True)
    return process_state.note(reads, fn, args, kwargs, answer)


def asserted(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A function whose result stays the same, as the user asserts: CPython runs it, on objects as they are now, and nothing is guarded."""
    if any([type(a) in SYMBOLIC or symbolic_within(a) for a in (*args, *kwargs.values())]):
        raise Break("PL0021", f"{title(fn)} is asserted to give one result, and is given tensors or sizes of this call", clean=True)
    world = vm.world
    given = [world.real.get(id(a), a) for a in args]
    with vm.trace.paused():
        answer = engine.call_in_mode(engine.OFF, fn, tuple(given), kwargs)
    return world.locate(answer, S.const(answer))


def call_builtin(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A C function, or a C method bound to its object."""
    look = LOOKASIDES.get(fn) if hashable(fn) else None
    if look is not None:
        return call_lookaside(fn, look, args, kwargs)
    owner = fn.__self__
    if owner is None or is_namespace(type(owner)):
        return apply_kind(policy.c_policy(fn), fn, args, kwargs)
    t = type(owner)
    name = fn.__name__
    if name in policy.python.CHANGING:
        writes(owner)
    row = ROWS.get(t)
    if row is not None and row.method is not None:
        return row.method(owner, name, args, kwargs)
    world = vm.world
    h = world.by_copy.get(id(owner))
    if h is not None:
        return shadow_method(h, owner, fn, name, args, kwargs)
    if id(owner) in world.shadows:  # a method of the original, bound outside
        return call(getattr(world.shadows[id(owner)].copy, name), args, kwargs)
    if issubclass(t, torch.Tensor):  # one that nothing stands for: it came through a graph break, or is sparse
        raise Break("PL0012", f"Tensor.{name} bound before the capture", clean=True)
    m = METHOD_LOOKASIDES.get((t, name))
    if m is None and (object, name) in METHOD_LOOKASIDES and fn == vars(object)[name].__get__(owner):
        m = METHOD_LOOKASIDES[(object, name)]
    if m is not None:
        if vm.frame is not None:
            vm.frame.tail = False
        return m(owner, args, kwargs)
    if issubclass(t, type):
        look = LOOKASIDES.get((owner, name))
        if look is not None:
            return call_lookaside((owner, name), look, args, kwargs)
        return call_class_builtin(owner, name, fn, args, kwargs)
    if t.__name__.startswith("pybind11_detail_function_record"):  # a function, or a method of its first argument
        return apply_kind(policy.c_policy(fn), fn, args, kwargs)
    outside = id(owner) in world.outside
    if outside and has_c_state(t):  # type: ignore[arg-type]
        raise Break("PL0007", f"{name}() of a {t.__module__}.{t.__qualname__} made outside", clean=True)
    return apply_kind(policy.method_policy(t, name, outside=outside), fn, args, kwargs)


GENERIC = vars(typing.Generic)["__class_getitem__"]


def call_class_builtin(owner: type, name: str, fn: Any, args: tuple, kwargs: dict) -> Any:
    """`object.__new__`, `dict.fromkeys`, `int.from_bytes`, `Function.apply`…"""
    if name == "__new__":
        if args and isinstance(args[0], type):
            lasting(args[0])
        if issubclass(owner, ModuleType):
            raise Break("PL0004", "a module is made", clean=True)
        if args and isinstance(args[0], enum.EnumMeta) and id(args[0]) not in vm.world.own_functions:
            # members are taken for what they are for ever, and their class keeps them
            raise Break("PL0004", f"a member of {args[0].__qualname__} is made", clean=True)
        if fn in IDENTITY_NEW or owner.__module__ in ("builtins", "collections"):
            return native(fn, args, kwargs)
    if name == "__instancecheck__" and fn == type.__instancecheck__.__get__(owner) and len(args) == 1:  # `super()` of a metaclass's own
        return LOOKASIDES[type.__instancecheck__]((owner, *args), kwargs)
    if name == "__class_getitem__" and typing.Generic in owner.__mro__ and type(GENERIC) is types.ClassMethodDescriptorType:  # since 3.12
        if fn == GENERIC.__get__(None, owner):
            return call(typing._generic_class_getitem, (owner, *args), kwargs)  # type: ignore[attr-defined]  # all that it does
    return apply_kind(policy.method_policy(owner, name, outside=False), fn, args, kwargs)


def hashable(fn: Any) -> bool:
    """Bound C methods hash their object, which may be a list."""
    o = fn.__self__
    return o is None or is_namespace(type(o)) or issubclass(type(o), type)



def shadow_method(h: Any, owner: Any, fn: Any, name: str, args: tuple, kwargs: dict) -> Any:
    """A method of an outside container: read only what it reads."""
    world = vm.world
    if name == "__setitem__" and len(args) == 2 and not kwargs:
        return vm.write_item(owner, *args, fn)  # the slot of the C class, whatever the class of `owner` makes of the operator
    if isinstance(owner, dict):
        if name in ("get", "__contains__", "__getitem__") and not kwargs and 1 <= len(args) <= 1 + (name == "get"):
            if (late := late_keys.asked(world, h, name, args)) is not UNSET:
                return late
            k = vm.outside_key(args[0], owner)
            if vm.holds_key(owner, k):
                if name == "__contains__":
                    shadows.present(world, h, k)
                    return True
                return shadows.item(world, h, k)
            shadows.absent(world, h, k)
            if name == "get":
                return args[1] if len(args) > 1 else None
            if name == "__contains__":
                return False
        elif name == "keys" and type(owner) is dict:
            shadows.length(world, h)
            return fn()
    elif isinstance(owner, list) and name in APPENDS:
        return native(fn, args, kwargs)
    shadows.read_all(world, owner)
    if type(owner) is list and name in ("index", "count"):
        return METHOD_LOOKASIDES[list, name](owner, args, kwargs)
    return native(fn, args, kwargs)


def tensor_method(owner: Any, name: str, args: tuple, kwargs: dict) -> Any:
    m = METHOD_LOOKASIDES.get((torch.Tensor, name))
    if vm.world.has_subclasses and name not in OF_CLASSES and owner.pytype not in TENSOR_TYPES:
        fn = TORCHS.get(name) or getattr(ORIGINAL, name, None) or getattr(torch.Tensor, name)
        own = vm.subclass_method(owner, fn, name, args, kwargs)
        if own is not UNSET:
            return own
    if name.startswith("__") and lookup(torch.Tensor, name) is not getattr(ORIGINAL, name, UNSET):
        raise Break("PL0011", f"PyTorch's own {name!r} of tensors, which was replaced", clean=True)
    if m is not None:
        if globalstate.heard() and type(TORCHS.get(name)) is types.MethodDescriptorType and name not in OF_CLASSES:
            if name in EFFECTS:
                raise Break("PL0012", f"Tensor.{name}(), of which a mode is told", clean=True)
            told = captured_call if owner.pytype in TENSOR_TYPES else graph_call
            return told(TORCHS[name], (owner, *args), kwargs)  # C++ tells it
        if vm.frame is not None:
            vm.frame.tail = False
        return m(owner, args, kwargs)
    kind = policy.method_kind(torch.Tensor, name, outside=False)
    if kind == "skip":
        code, reason = policy.break_of_method(torch.Tensor, name)
        raise Break(code, reason, clean=True)
    fn = TORCHS.get(name) or getattr(torch.Tensor, name)
    if kind == "native":  # questions about sizes, strides, dtype: no operation
        return fn(owner, *args, **kwargs)
    return graph_call(fn, (owner, *args), kwargs, name)


OF_CLASSES = ("as_subclass",)  # of which C++ tells nobody
# Emitted code does these, under the modes that are on then.
EFFECTS = {"detach_", "requires_grad_", "resize_", "resize_as_", "retain_grad", "set_"}
TENSOR_TYPES = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer}

TORCHS: dict[str, Any] = {
    name: v
    for kind in (FunctionType, types.MethodDescriptorType)  # of two, that of C: Python code of PyTorch's has called it
    for b in reversed(torch.Tensor.__mro__)
    for name, v in b.__dict__.items()
    if isinstance(v, kind)
}
"""The methods that torch.Tensor had when pliant was imported: a program that replaces one still has the old one to call."""


def call_other(fn: Any, t: type, args: tuple, kwargs: dict) -> Any:
    """Method descriptors, method wrappers, partials, instances with `__call__`, torch ops."""
    world = vm.world
    if t is types.MethodWrapperType:
        return call_method_wrapper(fn, args, kwargs)
    if t is types.MethodDescriptorType or t is types.WrapperDescriptorType or t is types.ClassMethodDescriptorType:
        owner = fn.__objclass__
        if args and t is not types.ClassMethodDescriptorType and owner not in vm.type_of(args[0]).__mro__:
            raise TypeError(foreign(fn, vm.type_of(args[0])))
        row = ROWS.get(type(args[0])) if args else None
        if row is not None and row.method is not None and owner is not object:
            return row.method(args[0], fn.__name__, args[1:], kwargs)
        if args and fn.__name__ in policy.python.CHANGING:
            writes(args[0])
        if owner is dict and args and isinstance(args[0], OrderedDict) and fn.__name__ in policy.python.CHANGING:
            raise Break("PL0006", f"dict.{fn.__name__} of an OrderedDict, which keeps an order of its own", clean=True)
        if fn is object.__hash__ and args and type(args[0]) is TracedTensor:
            raise Break("PL0012", "object.__hash__ of a tensor, which is of its place in memory", clean=True)
        known = args and (id(args[0]) in world.by_copy or id(args[0]) in world.outside)
        if known or args and (owner is object and id(args[0]) in world.standing or (type(args[0]), fn.__name__) in METHOD_LOOKASIDES):
            bound = fn.__get__(args[0], type(args[0]))
            return call(bound, args[1:], kwargs)
        return apply_kind(policy.method_policy(owner, fn.__name__, outside=False), fn, args, kwargs)
    if t is functools.partial:
        k = dict(vm.getattr(fn, "keywords") if id(fn) in world.standing else fn.keywords)  # the program may have written to them
        k.update(kwargs)
        return call(fn.func, (*fn.args, *args), k)
    if t is functools._lru_cache_wrapper:
        return call_cached(fn, args, kwargs)
    if t is engine.EntryPoint:
        return call(fn.__wrapped__, args, kwargs)
    row = ROWS.get(t)
    if row is not None and row.call is not None:
        return row.call(fn, args, kwargs)
    if issubclass(type(fn), (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return graph_call(fn, args, kwargs)
    if t is weakref.ReferenceType:
        return dereference(fn)
    if t is staticmethod:
        return call(vm.getattr(fn, "__func__"), args, kwargs)
    getter = GETTERS.get(t)
    if getter is not None:
        if id(fn) in world.outside:
            raise Break("PL0007", f"a {t.__name__} made outside, which holds what can change", clean=True)
        return getter(fn, args) if len(args) == 1 and not kwargs else native(fn, args, kwargs)
    p = policy.object_policy(fn)
    if p is not None:
        return apply_kind(p, fn, args, kwargs)
    c = lookup(t, "__call__")
    if type(c) is FunctionType:
        return call_function(c, (fn, *args), kwargs)
    if type(c) in (staticmethod, classmethod):
        func = vm.getattr(c, "__func__")
        return call(bind_class(func, vm.type_of(fn)) if type(c) is classmethod else func, args, kwargs)
    if "_pliant_original" in t.__dict__:  # a compiled module, called by what is compiled itself: it is its module
        return call_function(lookup(t.__mro__[2], "__call__"), (fn, *args), kwargs)
    if c is UNSET:
        raise TypeError(f"{type_name(vm.type_of(fn))!r} object is not callable")
    raise Break("PL0004", f"call of a {t.__module__}.{t.__qualname__} object", clean=True)


CACHED_LOOKASIDES: dict[type, Callable[[Any, tuple, dict], bool]] = {}  # by the type of the first argument; True: dealt with


def foreign(fn: Any, t: type) -> str:
    """What CPython says of a method that is called on an object of another class."""
    if type(fn) is types.WrapperDescriptorType:
        return f"descriptor {fn.__name__!r} requires a {type_name(fn.__objclass__)!r} object but received a {type_name(t)!r}"
    return f"descriptor {fn.__name__!r} for {type_name(fn.__objclass__)!r} objects doesn't apply to a {type_name(t)!r} object"


def call_cached(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A `functools.lru_cache` function (`cached.py`), those of annotations and loggers apart."""
    if fn.__module__ == "typing":
        return annotation(fn, with_numbers(args), kwargs)
    if policy.row_kind(fn) == "inline":
        return call(fn.__wrapped__, args, kwargs)
    look = CACHED_LOOKASIDES.get(type(args[0])) if args else None
    if look is not None and look(fn, args, kwargs):
        return None
    return cached(fn, args, kwargs)


def attrgetter(fn: Any, args: tuple) -> Any:
    def one(path: str) -> Any:
        o = args[0]
        for name in path.split("."):
            o = vm.getattr(o, name)
        return o

    names = getter_parts(fn)
    return one(names[0]) if len(names) == 1 else tuple(one(n) for n in names)


def itemgetter(fn: Any, args: tuple) -> Any:
    keys = getter_parts(fn)
    return vm.getitem(args[0], keys[0]) if len(keys) == 1 else tuple(vm.getitem(args[0], k) for k in keys)


def methodcaller(fn: Any, args: tuple) -> Any:
    (name, *given), by_name = getter_arguments(fn)
    return call(vm.getattr(args[0], name), tuple(given), dict(by_name))


GETTERS = {operator.attrgetter: attrgetter, operator.itemgetter: itemgetter, operator.methodcaller: methodcaller}


def call_method_wrapper(fn: Any, args: tuple, kwargs: dict) -> Any:
    """Slots of C types bound to an object: `super().__setattr__`, `x.__eq__`…"""
    o, name = fn.__self__, fn.__name__
    if name in policy.python.CHANGING:
        writes(o)
    if name == "__getattribute__":
        return vm.getattr(o, args[0], True)
    if name == "__setattr__":
        return vm.setattr(o, args[0], args[1], True)
    if name == "__delattr__":
        return vm.delattr(o, args[0], True)
    if name == "__get__" and args and type(args[0]) is TracedTensor and type(o) is types.GetSetDescriptorType:
        return vm.getattr(args[0], o.__name__)
    if name == "__get__" and isinstance(o, property):
        return call(o.fget, args[:1], {})
    if name == "__get__" and type(o) is FunctionType and not kwargs and len(args) in (1, 2):
        return types.MethodType(o, args[0]) if args[0] is not None else native(fn, args, kwargs)
    if name == "__init__" and type(o).__init__ is object.__init__ and not args and not kwargs:
        return None
    row = ROWS.get(type(o))
    if row is not None and row.method is not None:
        return row.method(o, name, args, kwargs)
    h = vm.world.by_copy.get(id(o))
    if h is not None:
        return shadow_method(h, o, fn, name, args, kwargs)
    said = by_identity(fn, args, kwargs)
    if said is not UNSET:
        return said
    if id(o) in vm.world.outside and has_c_state(type(o)):  # type: ignore[arg-type]
        raise Break("PL0007", f"{name}() of a {type(o).__module__}.{type(o).__qualname__} made outside", clean=True)
    if id(o) in vm.world.outside and name not in ("__init__", "__hash__", "__eq__", "__ne__", "__repr__", "__str__"):
        return apply_kind(policy.method_policy(type(o), name, outside=True), fn, args, kwargs)
    return native(fn, args, kwargs)


def lasting(cls: type) -> None:
    """Raises Break where code of the program runs at the end of an instance of `cls`: one that is made now would end as well. Or where
    it runs when the interpreter looks at one."""
    if lookup(cls, "__del__") is not UNSET:
        raise Break(lifetimes.CODE, f"an instance of {cls.__qualname__}, which has a __del__", clean=True)
    if has_ways_of_its_own(cls):
        raise own_ways(cls)


def own_ways(cls: type) -> Break:
    return Break("PL0004", f"an instance of {cls.__qualname__}, which has a way of its own to attributes", clean=True)


def construct(cls: type, args: tuple, kwargs: dict) -> Any:
    """`cls(*args, **kwargs)`."""
    meta = type(cls)
    if issubclass(cls, type) and cls is not type:
        return vm.make_class(cls, args, kwargs)
    if meta is not type:
        m = lookup(meta, "__call__")
        if type(m) is FunctionType:
            return call_function(m, (cls, *args), kwargs)
        if type(m) not in SLOTS:  # a partial, say, or a class (`TypedDict` makes dicts), as it binds itself
            return call(bound_special(m, cls, meta, "__call__"), args, kwargs)
    new = lookup(cls, "__new__")
    if type(new) is staticmethod:
        new = new.__func__
    init = lookup(cls, "__init__")
    python_new, python_init = type(new) is FunctionType, type(init) is FunctionType
    kind = policy.class_kind(cls, id(cls) not in vm.world.own_functions)
    made_of_data = kind == "skip" and not python_new and cls not in TENSOR_TYPES and issubclass(cls, torch.Tensor)
    if kind == "skip" and not made_of_data:
        code, reason = policy.break_of(cls)
        raise Break(code, reason, clean=True)
    if kind == "graph":
        return graph_call(cls, args, kwargs)
    if issubclass(cls, BaseException) and has_ways_of_its_own(cls):
        raise own_ways(cls)
    if kind == "native" or (not made_of_data and not python_new and not python_init and kind != "inline"):
        if kind is None:
            raise Break("PL0004", f"construction of {cls.__module__}.{cls.__qualname__}", clean=True)
        return native(cls, args, kwargs)
    if vm.frame is not None:
        vm.frame.tail = False
    lasting(cls)
    if made_of_data:
        obj = vm.new_tensor_of_class(cls, args, kwargs)
    elif python_new:
        obj = call_function(new, (cls, *args), kwargs)
    elif new is object.__new__:
        obj = object.__new__(cls)
    elif new in IDENTITY_NEW or getattr(new, "__self__", None) in SAFE_NEW_TYPES:
        obj = native(new, (cls, *args), kwargs)
    else:
        raise Break("PL0004", f"construction of {cls.__module__}.{cls.__qualname__}", clean=True)
    if type(obj) is TracedTensor and obj.pytype is cls:
        if python_init:
            r = call_function(undecorated(init), (obj, *args), kwargs)
        else:
            r = None if type(init) in SLOTS else call(bound_special(init, obj, cls, "__init__"), args, kwargs)
        if r is not None:
            raise TypeError(f"__init__() should return None, not {type_name(vm.type_of(r))!r}")
    elif cls in type(obj).__mro__:  # a metaclass's `__subclasscheck__` is not asked
        if type(obj) is not cls:  # `__new__` has made an instance of a subclass, whose constructor counts
            init = lookup(type(obj), "__init__")
            python_init = type(init) is FunctionType
        if init is object.__init__:
            if (args or kwargs) and new is object.__new__:
                raise TypeError(f"{cls.__name__}() takes no arguments")
        elif type(init) in SLOTS:
            native(init, (obj, *args), kwargs)
        else:
            if python_init:
                r = call_function(init, (obj, *args), kwargs)
            else:
                r = call(bound_special(init, obj, type(obj), "__init__"), args, kwargs)
            if r is not None:
                raise TypeError(f"__init__() should return None, not {type_name(vm.type_of(r))!r}")
    return carried(obj)


vm.call = call
vm.interp = interp
vm.native = native
