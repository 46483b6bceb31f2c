"""The call policy: what happens when the program calls something that is not simply interpreted.

The knowledge is in `policy_tables/`: rows for functions, classes and methods, and rules for the modules of Python functions. This
file reads them and answers. Most specific first: the user's doors, then a row for the very object, then the rule of its module,
then the default. The default of a Python function is `inline`, of a C function or class `skip`: nobody vouched for it.

Kinds are described in `policy_tables.row.KINDS`. Lookasides of the interpreter win over all of this.
"""

from __future__ import annotations

import enum
import functools
import os
import sys
import types
import weakref
from collections.abc import Callable
from typing import Any

import torch

from pliant.interpret import callers_variables
from pliant.interpret.immutable import HEAPTYPE, IMMUTABLE
from pliant.interpret.policy_tables import python, python_modules, stdlib, torch_ops, torch_python
from pliant.interpret.policy_tables.row import KINDS, Policy, Row, find_space, is_unfinished, member, policy_of

ROWS: list[Row] = python.ROWS + stdlib.ROWS + torch_ops.ROWS + torch_python.ROWS
ASYNC_FLAGS = 0x80 | 0x200  # coroutines, async generators
BuiltinType = types.BuiltinFunctionType

INLINE = Policy("inline")
NATIVE = Policy("native")
ASYNC = Policy("skip", "new", "PL0040", "a coroutine or async generator")
UNKNOWN = Policy("skip", "new", "PL0004", explicit=False)
UNKNOWN_METHOD = Policy("skip", "new", "PL0004", "a method that nobody has vouched for", explicit=False)
OUTSIDE_METHOD = Policy("skip", "new", "PL0007", "it reads or changes an outside object in a way that cannot be guarded")
TENSOR_CLASS = Policy("skip", "new", "PL0011", "a tensor is made through a class")
SCRIPT = Policy("skip", "new", "PL0038", "TorchScript runs by itself")
EXCLUDED = Policy("skip", "new", "PL0021", "you excluded it from compilation")
#: Attributes that PyTorch's own doors (`torch.compiler.*`, `torch._dynamo.*`) leave on a function, and what they ask for.
TORCH_MARKS = {
    "_dynamo_marked_constant": Policy("constant", reads="asserted"),
    "_torchdynamo_disable": EXCLUDED,
    "_dynamo_forbidden": Policy("skip", "new", "PL0021", "it is not to run inside of compiled code"),
}
BY_USER = {
    "inline": INLINE,
    "graph": Policy("graph"),
    "skip": EXCLUDED,
    "native": NATIVE,
}

# -- the tables, keyed by the objects they name --------------------------------------------------------------
_objects: dict[int, tuple[Any, Policy]] = {}  # id -> (the object, kept alive, so the id stays its own)
LOOKASIDES: dict[Any, Callable[[tuple, dict], Any]] = {}  # replacements of functions
_kinds: list[Any] = [0, frozenset()]  # how many they were, and their types then
_methods: dict[tuple[type, str], Policy] = {}  # (class, name or "*")
_by_user: dict[int, tuple[Any, Policy]] = {}
_by_module: dict[str | None, Policy] = {}
_bound: dict[tuple[type, str, bool], Policy] = {}
_classes: weakref.WeakKeyDictionary[type, Policy | None] = weakref.WeakKeyDictionary()
_pending: list[Row] = list(ROWS)
_modules_seen = -1


def _member(space: Any, name: str) -> Any:
    """The object that a row names in its space; None where this version has none."""
    if isinstance(space, type):
        found = next((c.__dict__[name] for c in space.__mro__ if name in c.__dict__), None)
        return found.__func__ if isinstance(found, (staticmethod, classmethod)) else found
    return member(space, name)


def _is_c(obj: Any) -> bool:
    """C functions, and classes that no class statement made."""
    if isinstance(obj, type):  # exceptions are everybody's: `_thread.error` is RuntimeError
        return (not obj.__flags__ & HEAPTYPE or _looks_like_c(obj)) and not issubclass(obj, BaseException)
    return isinstance(obj, BuiltinType)


def _everything(space: Any) -> list[Any]:
    """What `*` means in a space: the C functions and classes of a module or namespace, the methods and properties of a Python class."""
    if isinstance(space, type):
        found = [f.fget if isinstance(f, property) else getattr(f, "__func__", f) for f in vars(space).values()]
        return [f for f in found if isinstance(f, types.FunctionType)]
    if type(space) is types.ModuleType and "__dir__" not in vars(space):
        return [obj for n, obj in list(vars(space).items()) if not n.startswith("__") and _is_c(obj)]
    return [obj for n in dir(space) if not n.startswith("__") and _is_c(obj := member(space, n))]


def _enter(space: Any, row: Row, names: list[str]) -> None:
    policy = policy_of(row)
    for name in names:
        if isinstance(space, type):
            _methods.setdefault((space, name), policy)
        if name == "*":
            for obj in _everything(space):
                _objects.setdefault(id(obj), (obj, policy))
            continue
        obj = _member(space, name)
        for o in (obj, _inside(obj)):
            if o is not None:
                _objects.setdefault(id(o), (o, policy))


def _inside(obj: Any) -> Any:
    """The C function within a method or a property by pybind11."""
    inner = obj.fget if type(obj) is property else getattr(obj, "__func__", None) if type(obj).__name__ == "instancemethod" else None
    return inner if isinstance(inner, types.BuiltinFunctionType) else None


def load() -> None:
    """Enter the rows whose modules have been imported by now. Names win over `*`, earlier rows over later ones."""
    global _pending, _modules_seen
    if _modules_seen == len(sys.modules):
        return
    _modules_seen = len(sys.modules)
    found: list[tuple[Any, Row, list[str]]] = []
    waiting: list[Row] = []
    for row in _pending:
        space = find_space(row.space)
        if space is None:
            waiting.append(row)
        else:
            found.append((space, row, row.names.split()))
    for star in (False, True):
        for space, row, names in found:
            if ("*" in names) is star:
                _enter(space, row, names)
    _pending = waiting
    if any([is_unfinished(m) for m in list(sys.modules.values()) if m is not None]):
        _modules_seen = -1


# -- the user's doors ----------------------------------------------------------------------------------------
def set_kind(fn: Any, kind: str, own: bool = False) -> None:
    """`pliant.skip`, `pliant.inline`, `pliant.allow_in_graph`, `pliant.disable`: the user's word wins over every table. `own`: it is
    pliant's word on a function of PyTorch's, the same in each process."""
    if kind not in BY_USER:
        raise ValueError(f"kind {kind!r} is not one of {sorted(BY_USER)}")
    for key in (fn, getattr(fn, "__func__", None), getattr(fn, "__code__", None)):
        if key is not None:
            _by_user[id(key)] = (key, BY_USER[kind])
            (_own.add if own else _own.discard)(id(key))
    runs_natively.cache_clear()
    reads_objects.cache_clear()


_own: set[int] = set()


def by_the_program() -> list[tuple[Any, Policy]]:
    """What the program has said of functions; of one written in Python by its code, too."""
    return [said for i, said in _by_user.items() if i not in _own]


def allow_in_graph(fn: Any) -> Any:
    """Run `fn` as one torch operation on traced tensors. It must depend on its arguments alone. Usable as a decorator."""
    set_kind(fn, "graph")
    return fn


def skip(fn: Any) -> Any:
    """Break the graph at every call of `fn`; `fn` itself runs in CPython. Usable as a decorator."""
    set_kind(fn, "skip")
    return fn


def inline(fn: Any) -> Any:
    """Interpret `fn` even where a table says otherwise. Usable as a decorator."""
    set_kind(fn, "inline")
    return fn


def _user(fn: Any) -> Policy | None:
    found = _by_user.get(id(fn))
    return found[1] if found is not None else None


def user_kind(fn: Any) -> str | None:
    """The kind that the user gave to `fn`, if any."""
    policy = _user(fn)
    return policy.kind if policy is not None else None


def register(fn: Any, policy: Policy) -> None:
    """Give one object a row of its own, for as long as the process lives. It wins over the tables, not over the user's doors."""
    _objects[id(fn)] = (fn, policy)


#: Wrappers that one decorator makes share their code: a row for the code is a row for all of them.
register(torch.jit.script_if_tracing(lambda: None).__code__, INLINE)
#: The call of a graph module only calls the module: what `recompile` puts into its class, and what that asks.
for _code in torch.fx.GraphModule.recompile.__code__.co_consts:
    if isinstance(_code, types.CodeType) and _code.co_name == "call_wrapped":
        register(_code, INLINE)
register(torch.fx.graph_module._WrappedCall.__call__, INLINE)


# -- Python functions ----------------------------------------------------------------------------------------
LEFT = Policy("skip", "new", "PL0033", "what it calls looks at its variables")


def python_policy(fn: Any) -> Policy:
    """The policy of a Python function: its own row, else the rule of the module whose globals it uses."""
    code = fn.__code__
    if _by_user:
        policy = _user(fn) or _user(code)
        if policy is not None:
            return policy
    found = _objects.get(id(fn))
    if found is not None:
        return found[1]
    said = said_to_torch(fn)
    if said is not None:
        return said
    if callers_variables.left(code) or callers_variables.read_by(fn):
        return LEFT
    if code.co_flags & ASYNC_FLAGS:
        return ASYNC
    module = fn.__globals__.get("__name__")
    rule = _by_module.get(module)
    if rule is None:
        load()  # a module met for the first time may have rows that were waiting for it
        rule = _by_module[module] = python_modules.module_policy(module)
        found = _objects.get(id(fn))
        if found is not None:
            return found[1]
    if rule.kind == "skip":
        found = _objects.get(id(code))
        if found is not None:
            return found[1]
    return rule


def said_to_torch(fn: Any) -> Policy | None:
    """What the program told PyTorch's compiler of a Python function, by a mark on it or in its list of functions to leave whole."""
    if fn.__dict__:
        for name in TORCH_MARKS:
            if fn.__dict__.get(name):
                return TORCH_MARKS[name]
    rules = sys.modules.get("torch._dynamo.trace_rules")
    allowed = getattr(getattr(rules, "_allowed_callable_ids", None), "function_ids", None)
    return BY_USER["graph"] if allowed and id(fn) in allowed else None


def lookaside_of(fn: Any) -> Callable[[tuple, dict], Any] | None:
    """What replaces a callable, if something does. Others are not looked up by: their `__hash__` may be the program's."""
    if _kinds[0] != len(LOOKASIDES):
        _kinds[:] = len(LOOKASIDES), frozenset(map(type, LOOKASIDES))
    return LOOKASIDES.get(fn) if type(fn) in _kinds[1] else None


def stands_alone(fn: types.FunctionType) -> bool:
    """Whether what a call of this function does is told for it alone: another of the same code may be another operator (`F.max_pool2d`)."""
    return fn in LOOKASIDES or row_kind(fn) is not None or python_kind(fn) not in ("inline", "skip")


def python_kind(fn: Any) -> str:
    """The kind of a Python function."""
    return python_policy(fn).kind


# -- C functions and their methods ---------------------------------------------------------------------------
def c_policy(fn: Any) -> Policy:
    """The policy of a C function of a module."""
    if _by_user:
        policy = _user(fn)
        if policy is not None:
            return policy
    found = _objects.get(id(fn))
    if found is None:
        load()
        found = _objects.get(id(fn))
    return found[1] if found is not None else UNKNOWN


def row_kind(fn: Any) -> str | None:
    """The kind that a row gives to this very object, if there is one."""
    load()
    found = _objects.get(id(fn))
    return found[1].kind if found is not None else None


def c_kind(fn: Any) -> str:
    """The kind of a C function of a module."""
    return c_policy(fn).kind


def method_policy(t: type, name: str, outside: bool = False) -> Policy:
    """The policy of method `name` of C type `t`; `outside`: its object existed before the capture."""
    key = (t, name, outside)
    policy = _bound.get(key)
    if policy is None:
        load()
        policy = _bound[key] = _method_policy(t, name, outside)
    return policy


def _method_policy(t: type, name: str, outside: bool) -> Policy:
    for c in t.__mro__:
        policy = _methods.get((c, name))
        if policy is None and name in c.__dict__:
            policy = _methods.get((c, "*"))
        if policy is None:
            continue
        if outside and policy.kind in ("native", "symint") and (c not in UNCHANGING or name in _mutators(c)):
            return OUTSIDE_METHOD
        return policy
    if t in IMMUTABLE:
        return NATIVE
    if isinstance(t, enum.EnumMeta) and not outside:
        return NATIVE
    return UNKNOWN_METHOD


def _mutators(c: type) -> list[str]:
    return python.MUTATORS.get(f"{c.__module__}.{c.__qualname__}", "").split()


def method_kind(t: type, name: str, outside: bool = False) -> str:
    """The kind of method `name` of C type `t`."""
    return method_policy(t, name, outside).kind


# Types whose methods may run on outside objects: immutable, shadowed by the world model, or reading nothing that changes.
UNCHANGING: set[Any] = IMMUTABLE | {find_space(path) for path in f"{python.VALUE_TYPES} {python.CONTAINER_TYPES}".split()}
UNCHANGING |= {torch._C.TensorBase, torch.Tensor, torch.Size, torch.dtype, torch.device, torch.SymInt, torch.SymFloat, torch.SymBool}
UNCHANGING.add(BaseException)


def _builtin_policy(fn: Any) -> Policy:
    """A C function, or a C method bound to its object."""
    owner = fn.__self__
    if owner is None or issubclass(type(owner), types.ModuleType) or id(fn) in _objects:  # (`isinstance` would ask it for its class)
        return c_policy(fn)
    return method_policy(owner if issubclass(type(owner), type) else type(owner), fn.__name__)


# -- classes -------------------------------------------------------------------------------------------------
def class_policy(cls: type, lasting: bool = True) -> Policy | None:
    """How to construct `cls`; None where nothing is known of a C type. A class that is not `lasting` is not kept alive."""
    if _by_user:
        policy = _user(cls)
        if policy is not None:
            return policy
    if not lasting:
        return _class_policy(cls)
    try:
        return _classes[cls]
    except KeyError:
        policy = _classes[cls] = _class_policy(cls)
        return policy


def _class_policy(cls: type) -> Policy | None:
    found = _objects.get(id(cls))
    if found is None:
        load()
        found = _objects.get(id(cls))
    if found is not None:
        return found[1]
    if isinstance(cls, enum.EnumMeta):
        return NATIVE
    if issubclass(cls, torch.Tensor):
        new = cls.__new__ if cls.__flags__ & HEAPTYPE else None
        return INLINE if type(new) is types.FunctionType and cls.__module__ != "torch.nn.parameter" else TENSOR_CLASS
    rule = python_modules.module_policy(cls.__module__)
    if rule.kind == "skip":
        return rule
    if "__dict__" in cls.__dict__ or "__module__" in cls.__dict__ and cls.__flags__ & HEAPTYPE and not _looks_like_c(cls):
        return _python_class_policy(cls)
    if cls in IMMUTABLE or issubclass(cls, (BaseException, tuple)):
        return NATIVE  # exceptions, structseqs, torch.return_types: they hold what they are given
    return None


def _looks_like_c(cls: type) -> bool:
    """A heap type of a C extension: nothing of it, nor of the heap types that it comes from, is Python's."""
    if cls.__module__.startswith("torch._C"):
        return True
    attributes = [(k, v) for c in cls.__mro__ if c.__flags__ & HEAPTYPE for k, v in c.__dict__.items()]
    return not any(k in ("__dict__", "__slots__") or type(v) is types.FunctionType for k, v in attributes)


def _python_class_policy(cls: type) -> Policy | None:
    """A Python class is constructed by interpreting its `__new__` and `__init__`, if each C base below it is known."""
    for base in cls.__mro__:
        if base is object or "__module__" in base.__dict__ and base.__flags__ & HEAPTYPE and not _looks_like_c(base):
            continue
        if issubclass(base, BaseException) or base in IMMUTABLE:
            continue
        found = _objects.get(id(base))
        if found is None and base.__flags__ & HEAPTYPE:
            continue  # a class statement without methods (a mixin, a Generic)
        if found is None or found[1].kind == "skip":
            return found[1] if found is not None else None
    return INLINE


def class_kind(cls: type, lasting: bool = True) -> str | None:
    """The kind of constructing `cls`: None where nothing is known of a C type."""
    policy = class_policy(cls, lasting)
    return policy.kind if policy is not None else None


# -- everything else -----------------------------------------------------------------------------------------
def object_policy(o: Any) -> Policy | None:
    """The policy of calling an instance that is neither function nor class; None: look at its class's `__call__`."""
    if _by_user:
        policy = _user(o)
        if policy is not None:
            return policy
    if issubclass(type(o), (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return BY_USER["graph"]
    if issubclass(type(o), (torch.jit.ScriptFunction, torch.jit.ScriptModule)):
        return SCRIPT
    if issubclass(type(o), BuiltinType):  # `builtin_method`: a method of a heap type, bound (`re.Pattern.match`)
        return _builtin_policy(o)
    found = _objects.get(id(o))
    return found[1] if found is not None else None


def kind_of_object(o: Any) -> str | None:
    """The kind of calling an instance that is neither function nor class."""
    policy = object_policy(o)
    return policy.kind if policy is not None else None


def classify(fn: Any) -> Policy:
    """The policy of any callable, as the interpreter would apply it (lookasides aside)."""
    t = type(fn)
    if t is types.FunctionType:
        return python_policy(fn)
    if t is types.MethodType:
        return classify(fn.__func__)
    if t is functools.partial:
        return classify(fn.func)
    if issubclass(t, functools._lru_cache_wrapper):  # (`isinstance` would ask it for its class)
        return c_policy(fn) if id(fn) in _objects else classify(fn.__wrapped__)
    if issubclass(t, BuiltinType):
        return _builtin_policy(fn)
    if t in (types.MethodDescriptorType, types.WrapperDescriptorType, types.ClassMethodDescriptorType):
        return method_policy(fn.__objclass__, fn.__name__)
    if t is types.MethodWrapperType:
        return method_policy(type(fn.__self__), fn.__name__)
    if issubclass(t, type):
        return class_policy(fn) or UNKNOWN
    policy = object_policy(fn)
    if policy is not None:
        return policy
    found = next((c.__dict__["__call__"] for c in t.__mro__ if "__call__" in c.__dict__), None)
    return python_policy(found) if isinstance(found, types.FunctionType) else UNKNOWN


# -- what a break says ---------------------------------------------------------------------------------------
def name_of_owner(o: Any) -> str | None:
    """Of a module or class: another object would be asked by code of its own."""
    return getattr(o, "__name__", None) if issubclass(type(o), (types.ModuleType, type)) else None


def full_name(fn: Any) -> str:
    """`module.qualname`, as well as it can be told."""
    name = str(getattr(fn, "__qualname__", None) or getattr(fn, "__name__", None) or type(fn).__name__)
    module = getattr(fn, "__module__", None) or name_of_owner(getattr(fn, "__self__", None))
    if name.startswith(("_VariableFunctionsClass.", "pybind11_")):
        name = fn.__name__
    return f"{module}.{name}" if module and module != "builtins" else name


def break_of(fn: Any) -> tuple[str, str]:
    """Graph-break code and reason for calling a skipped function or class."""
    policy = classify(fn)
    code = policy.code or "PL0003"
    return code, f"call of {full_name(fn)}" + (f": {policy.why}" if policy.why else "")


def break_of_method(t: type, name: str) -> tuple[str, str]:
    """Graph-break code and reason for a skipped method of a C type."""
    policy = method_policy(t, name)
    return policy.code or "PL0004", f"call of {t.__name__}.{name}" + (f": {policy.why}" if policy.why else "")


# -- frames that C code starts -------------------------------------------------------------------------------
_PLIANT = os.path.dirname(os.path.dirname(__file__)) + os.sep
_TORCH = os.path.dirname(torch.__file__) + os.sep
_ROOTS = sorted({os.path.dirname(os.__file__) + os.sep, os.path.dirname(os.path.dirname(torch.__file__)) + os.sep}, key=len, reverse=True)


def module_of_file(path: str) -> str | None:
    """The dotted module name of a source file of the standard library or of an installed package; None elsewhere."""
    if path.startswith("<frozen ") and path.endswith(">"):
        return path[8:-1]
    for root in _ROOTS:
        if path.startswith(root):
            name = path[len(root) :].removesuffix(".py").replace(os.sep, ".")
            return name.removesuffix(".__init__")
    return None


DISABLES = (_PLIANT + "jit/decorators.py", _TORCH + "_dynamo/", _TORCH + "fx/proxy.py")
OF_SHARDINGS = (_TORCH + "distributed/tensor/", _TORCH + "distributed/device_mesh.py", _TORCH + "distributed/_mesh_layout.py")
"""Specs and meshes, which C++ code keeps by what they say (`meshes.py`)."""
ASKED_BY_C = frozenset(
    "__str__ __repr__ __format__ __bytes__ __len__ __length_hint__ __iter__ __next__ __reversed__ __contains__ __getitem__ __setitem__ "
    "__delitem__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __int__ __float__ __index__ __complex__ __getattr__ "
    "__getattribute__ __setattr__ __delattr__ __dir__ __add__ __radd__ __iadd__ __sub__ __rsub__ __mul__ __rmul__ __or__ __and__".split()
)
GENERATED: set[types.CodeType] = set()
"""Functions without a file that PyTorch's C++ code calls, as that of their module (`meshes.py`)."""
SPELLINGS = ("interpret/in_python.py", "interpret/in_torch.py")
"""Code of pliant's that is interpreted in the place of other code."""


@functools.cache
def runs_natively(code: types.CodeType) -> bool:
    """Whether a Python frame that C code starts during capture is left to CPython; otherwise it is interpreted (or breaks)."""
    policy = _user(code)
    if policy is not None:
        return policy.kind in ("graph", "native")
    if code in GENERATED:
        return True
    path = code.co_filename
    if path.startswith(_PLIANT):
        return not path.endswith(SPELLINGS)
    rule = python_modules.module_policy(module_of_file(path))
    if path.startswith(_TORCH):
        return rule.kind != "inline"  # the dispatcher runs torch's own kernels and tracers
    return rule.kind in ("native_python", "graph")


@functools.cache
def may_be_excluded(code: types.CodeType) -> bool:
    """Whether functions of this code of ours, or of PyTorch's, may be none to run in a capture: `disable` returns wrappers of one code for
    what the user excluded, proxies of `torch.fx` write down what they are told, and special methods of PyTorch's classes (`str(graph)`)
    read what nobody has guarded."""
    path = code.co_filename
    if path.startswith(DISABLES):
        return True
    if path.startswith(OF_SHARDINGS):
        return False
    return code.co_name in ASKED_BY_C and path.startswith(_TORCH) and python_modules.module_policy(module_of_file(path)).kind == "skip"


@functools.cache
def reads_objects(code: types.CodeType) -> bool:
    """Whether this is code of the standard library that CPython runs only where all that it could read is guarded (`gate.readable`)."""
    path = code.co_filename
    ours = path.startswith((_PLIANT, _TORCH)) or _user(code) is not None
    return not ours and python_modules.module_policy(module_of_file(path)).kind == "native_python"


load()

__all__ = ["KINDS", "ROWS", "Policy", "allow_in_graph", "break_of", "break_of_method", "c_kind", "class_kind", "classify", "inline"]
__all__ += ["kind_of_object", "load", "method_kind", "python_kind", "reads_objects", "runs_natively", "set_kind", "skip", "user_kind",
    "may_be_excluded"]
