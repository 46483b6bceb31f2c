"""Objects that an entry knows by identity, by what they are called: how another process finds its own, and sees that it is the same.

A row says where an object is (`mod` a module, `dict` its namespace, `path` what a module calls by its qualified name, `attr` an attribute
that a class looks up, `base` a class that it comes from, `cell` of a function's closure, `key` an item of a namespace, `code` inside a
function's code, `top` the compiled function, `walk` and `frame` what a guard's path leads to, ...), and beside it what was known of it
without a guard (`prints.py`). Rows are made for what finds itself again *here*; they are resolved before anything runs, each object is
compared with what its row says, and two rows are never the same object. So what the program saw as `is` and `is not` is as it was.
"""

from __future__ import annotations

import builtins
import collections
import enum
import functools
import logging
import sys
import types
from collections.abc import Callable
from types import CodeType, FunctionType, ModuleType
from typing import Any

import torch

from pliant.graph.distributed_tensors import is_distributed, is_spec
from pliant.graph.python_random import NUMPYS
from pliant.jit.persist import frames
from pliant.jit.persist.frames import Frame
from pliant.jit.persist.prints import OF_NUMPY, PROXY, links_of, print_of, wrapped
from pliant.jit.persist.values import NotPortable, decode, encode

ABSENT = object()

#: Namespaces of C functions and types that do not say where they live.
SPACES: tuple[tuple[str, str], ...] = (
    ("torch", "_C._VariableFunctions"), ("torch", "_C._nn"), ("torch", "_C._linalg"), ("torch", "_C._special"), ("torch", "_C._fft"),
    ("torch", "_C._autograd"), ("torch", "_C"), ("torch", ""), ("types", ""), ("torch._ops", ""), ("builtins", ""), ("collections", ""),
    ("itertools", ""), ("functools", ""), ("operator", ""), ("math", ""),
)  # fmt: skip


#: Types of the interpreter that no module calls by their own name.
TYPES = {id(v): name for name, v in vars(types).items() if isinstance(v, type)}


def said(value: Any, name: str) -> Any:
    """An attribute of a value of the program's, without its `__getattr__`; None where there is none."""
    try:
        return (type if issubclass(type(value), type) else object).__getattribute__(value, name)
    except AttributeError:
        return None


class Missing(Exception):
    """The other process has nothing of that name, or something else."""


# -- where it is -----------------------------------------------------------------------------------------------------------
def step(o: Any, name: str) -> Any:
    """An attribute by its place in a namespace: nobody's code runs."""
    if isinstance(o, (ModuleType, type)):
        found = vars(o).get(name, ABSENT)
        if found is not ABSENT:
            return found.__func__ if type(found) in (staticmethod, classmethod) else found
        if o is torch._C._VariableFunctions or isinstance(o, type):
            return getattr(o, name, ABSENT)
        return ABSENT
    return getattr(o, name, ABSENT)  # a namespace of `torch._C`


def at_path(module: str, path: str) -> Any:
    o: Any = sys.modules.get(module, ABSENT)
    if o is ABSENT:
        return ABSENT
    for name in path.split(".") if path else ():
        o = step(o, name)
        if o is ABSENT:
            return ABSENT
    return o


def path_of(value: Any) -> tuple[str, str] | None:
    """(module, path) of what a module calls by its qualified name."""
    name = said(value, "__qualname__") or said(value, "__name__")
    if not isinstance(name, str) or "<" in name:
        return None
    if id(value) in TYPES:
        return "types", TYPES[id(value)]
    module = said(value, "__module__")
    if isinstance(module, str) and at_path(module, name) is value:
        return module, name
    short = said(value, "__name__") or name
    for space, prefix in SPACES:
        path = f"{prefix}.{short}" if prefix else short
        if at_path(space, path) is value:
            return space, path
    if type(value) is type(builtins.len) and isinstance(value.__self__, type):  # `object.__new__`
        owner = value.__self__
        path = f"{owner.__qualname__}.{short}"
        if at_path(owner.__module__, path) is value:
            return owner.__module__, path
    return None


def class_of_module(module: str, name: str) -> Any:
    """A class of the object that stands for a module, which has hidden the namespace where the class was written (`torch.backends`)."""
    kinds = type(sys.modules.get(module)).__mro__
    return next((c for c in kinds if c.__qualname__ == name and c.__module__ == module), ABSENT)


def class_attr(cls: type, name: str) -> Any:
    return next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), ABSENT)


def inner_code(owner: Any, path: tuple) -> Any:
    """A code object inside that of a function, or inside another one: the way there leads through `co_consts`."""
    code = owner if type(owner) is CodeType else frames.own_code(owner) if type(owner) is FunctionType else ABSENT
    for i in path:
        code = code.co_consts[i] if type(code) is CodeType and i < len(code.co_consts) else ABSENT
    return code


def cell_of(fn: Any, i: int) -> Any:
    closure = fn.__closure__ if type(fn) is FunctionType else None
    return closure[i] if closure is not None and i < len(closure) else ABSENT


def item_of(d: Any, key: Any) -> Any:
    return dict.get(d, key, ABSENT) if issubclass(type(d), dict) else ABSENT


def operator_of(name: str, overload: str) -> Any:
    space, _, base = name.partition("::")
    packet = getattr(getattr(torch.ops, space), base, ABSENT)
    return getattr(packet, overload, ABSENT) if overload else packet


def logger_of(name: str) -> Any:
    return logging.Logger.manager.loggerDict.get(name, ABSENT)


def read(o: Any, op: str, arg: Any) -> Any:
    """One step of a source, as the guard engine reads it where no code of the program's runs (`isinstance` would ask an object for its
    class); else ABSENT."""
    try:
        if op == "dict":
            return vars(o) if issubclass(type(o), ModuleType) else object.__getattribute__(o, "__dict__")
        if op == "key":
            return item_of(o, arg)
        if op == "index":
            return o[arg] if type(o) in (list, tuple, torch.Size) or issubclass(type(o), tuple) else ABSENT
        if op == "attr":
            if type(o) in READABLE or is_distributed(type(o)) or is_spec(type(o)):
                return getattr(o, arg, ABSENT)
            return class_attr(o, arg) if issubclass(type(o), type) else ABSENT
    except (AttributeError, IndexError, ValueError):
        return ABSENT
    if op == "cell":
        return content_of(cell_of(o, arg))
    return content_of(o) if op == "contents" else type(o) if op == "type" else ABSENT


READABLE = (FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, collections.defaultdict)


def content_of(cell: Any) -> Any:
    try:
        return cell.cell_contents if type(cell) is types.CellType else ABSENT
    except ValueError:
        return ABSENT


def walk(o: Any, steps: tuple) -> Any:
    """What a path leads to, from its root."""
    for op, arg in steps:
        if o is ABSENT:
            break
        o = read(o, op, arg)
    return o


def from_frame(frame: Frame, kind: str, arg: Any) -> Any:
    """A root of sources: an argument, a global or the function of the frame."""
    fn, args, _ = frame
    if kind == "local":
        return args[arg] if arg < len(args) else ABSENT
    return fn if kind == "func" else fn.__globals__.get(arg, ABSENT)


def dtype_of(spelled: str) -> Any:
    """A dtype of NumPy, of which there is one."""
    return OF_NUMPY[-1](spelled)


PLACES: dict[str, Callable[..., Any]] = {
    "mod": lambda name: sys.modules.get(name, ABSENT),
    "dict": lambda module: vars(module),
    "path": at_path,
    "class of": class_of_module,
    "type of": lambda module, path: type(at_path(module, path)),
    "attr": class_attr,
    "member": lambda cls, name: getattr(cls, "_member_map_", {}).get(name, ABSENT),
    "base": lambda module, path, i: dict(enumerate(getattr(at_path(module, path), "__mro__", ()))).get(i, ABSENT),
    "cell": cell_of,
    "key": item_of,
    "code": inner_code,
    "op": operator_of,
    "raw op": lambda overload: overload._op,
    "logger": logger_of,
    "dtype": dtype_of,
    "walk": walk,
    "frame": lambda frame, kind, arg, steps: walk(from_frame(frame, kind, arg), steps),
    "contents": content_of,
    "func": lambda fn, name: getattr(fn, name, ABSENT),
    **frames.PLACES,
}
"""Where objects are: functions of strings, numbers and earlier rows."""
OF_FRAME = {"frame", *frames.PLACES}
"""Those that are given the frame, too."""

FOUND = frozenset(("attr", "member", "path", "mod", "op"))
"""Places that have been looked at by the time they are told, and whose arguments are names."""

handed: list[Any] = []
"""For the tests' mode: objects without a name that stay in this process are handed over as they are."""
PLACES["handed"] = handed.__getitem__


class Writer:
    """The table of one entry, as it is made. `hand_over`: objects without a name may stay in this process."""

    def __init__(self, frame: Frame, hand_over: bool = False) -> None:
        self.frame = frame
        self.top = frame.fn
        self.own_code = None if frame.fn is None else frames.own_code(frame.fn)
        self.rows: list[tuple] = []
        self.known: dict[int, int] = {}
        self.keep: list[Any] = []
        self.hints: dict[int, tuple[str, Any, Any]] = {}  # id -> (place, object, operand): where else it was seen
        self.hinted: list[Any] = []  # alive, so that ids stay theirs
        self.finding: set[int] = set()  # whose hints are being followed: one that leads back leads nowhere
        self.hand_over = hand_over
        self.classes: list[type] = []
        self.functions: list[FunctionType] = []
        self.modules: list[ModuleType] = []

    def hint(self, value: Any, place: str, owner: Any, operand: Any) -> None:
        """`value` was found at that place of `owner`."""
        if id(value) not in self.hints:
            self.hints[id(value)] = (place, owner, operand)
            self.hinted.append(value)
            for name, part in wrapped(value).items():
                self.hint(part, "func", value, name)

    def refer(self, value: Any) -> int:
        """The row of an object. Raises NotPortable."""
        i = self.known.get(id(value))
        if i is None:
            try:
                place, arguments = self.find(value)
                if place not in FOUND and place_value(place, arguments, self.frame, self.keep) is not value:
                    raise NotPortable(f"{type(value).__qualname__} is not found again where it was")
                row = (place, arguments, print_of(value))
                links = tuple([self.refer(x) for x in links_of(value)])
            except NotPortable:
                if not self.hand_over:
                    raise
                handed.append(value)
                row, links = ("handed", (len(handed) - 1,), None), ()
            if (i := self.known.get(id(value))) is not None:  # handed over by now: what leads to it has met it itself
                return i
            i = self.known[id(value)] = len(self.rows)
            self.rows.append((*row, links))
            self.keep.append(value)  # its index is the row's
            self.note(value)
        return i

    def note(self, value: Any) -> None:
        """What the entry depends on: `dependencies.py` looks at the files of these."""
        if issubclass(type(value), type):
            self.classes.append(value)
        elif type(value) is FunctionType:
            if not frames.is_made(value):
                self.functions.append(value)
        elif issubclass(type(value), functools._lru_cache_wrapper):
            if type(getattr(value, "__wrapped__", None)) is FunctionType:  # it has none yet while it is being made
                self.functions.append(value.__wrapped__)
        elif issubclass(type(value), ModuleType):
            self.modules.append(value)
        else:
            self.functions += [f for f in wrapped(value).values() if type(f) is FunctionType]

    def find(self, value: Any) -> tuple[str, tuple]:
        if value is self.top:
            return "top", ()
        if value is self.own_code:
            return "own code", ()
        if type(value) is dict and value is getattr(self.top, "__globals__", None):  # perhaps those of a module, perhaps only here
            return "func", (("@", self.refer(self.top)), "__globals__")
        if type(value) in DESCRIPTORS:  # most are
            found = self.by_class(value) or self.by_hint(value)
        else:
            found = frames.place_of(value, self.refer) or self.by_own_name(value) or self.by_hint(value) or self.by_subclass(value)
        if found is None:
            raise NotPortable(f"{type(value).__qualname__} {said(value, '__qualname__') or ''!r} has no name that leads to it")
        return found

    def by_hint(self, value: Any) -> tuple[str, tuple] | None:
        hint = self.hints.get(id(value))
        if hint is None or id(value) in self.finding:
            return None
        self.finding.add(id(value))
        try:
            return self.follow(value, *hint)
        finally:
            self.finding.discard(id(value))

    def follow(self, value: Any, place: str, owner: Any, operand: Any) -> tuple[str, tuple] | None:
        if place == "frame":
            return (place, tuple([encode(x, self.refer) for x in operand])) if PLACES[place](self.frame, *operand) is value else None
        arguments = () if operand is None else (encode(operand, self.refer),)
        if PLACES[place](owner, *(() if operand is None else (operand,))) is not value:
            return None
        return place, (("@", self.refer(owner)), *arguments)

    def by_class(self, value: Any) -> tuple[str, tuple] | None:
        """Of a descriptor that C made: it knows the class that it is of."""
        owner, name = value.__objclass__, value.__name__
        return ("attr", (("@", self.refer(owner)), name)) if class_attr(owner, name) is value else None

    def by_subclass(self, value: Any) -> tuple[str, tuple] | None:
        """Of a class that was made where a class was made of it: `class Keys(namedtuple("Pair", ...))`."""
        if issubclass(type(value), type):
            for below in type.__subclasses__(value):
                if (path := path_of(below)) is not None:
                    return "base", (*path, below.__mro__.index(value))
        return None

    def by_own_name(self, value: Any) -> tuple[str, tuple] | None:
        t = type(value)
        if issubclass(type(value), ModuleType):
            return ("mod", (value.__name__,)) if sys.modules.get(value.__name__) is value else None
        if t is dict:
            module = sys.modules.get(value.get("__name__"))  # type: ignore[arg-type]
            return ("dict", (("@", self.refer(module)),)) if module is not None and vars(module) is value else None
        if t is torch._ops.OpOverload or t is torch._ops.OpOverloadPacket:
            name = value._schema.name if t is torch._ops.OpOverload else value._qualified_op_name
            place = (name, value._overloadname if t is torch._ops.OpOverload else "")
            return ("op", place) if operator_of(*place) is value else None
        if issubclass(type(value), logging.Logger):
            return ("logger", (value.name,)) if logger_of(value.name) is value else None
        if issubclass(type(value), enum.Enum):
            name = vars(value).get("_name_")  # members that were made by a call are no attributes
            return ("member", (("@", self.refer(t)), name)) if t._member_map_.get(name) is value else None
        if issubclass(type(value), OF_NUMPY) and not hasattr(value, "__name__"):
            return ("dtype", (value.str,)) if dtype_of(value.str) is value else None
        if value is PROXY:
            return "path", ("pliant.jit.persist.prints", "PROXY")
        if value is NUMPYS and value is not None:
            return "path", ("numpy.random.mtrand", "_rand")
        forward = vars(value).get("_forward_cls") if issubclass(type(value), type) else None  # of the node of an autograd.Function
        if isinstance(forward, type) and class_attr(forward, "_backward_cls") is value:
            return "attr", (("@", self.refer(forward)), "_backward_cls")
        path = path_of(value)
        if path is None and issubclass(t, type):
            if class_of_module(value.__module__, value.__qualname__) is value:
                return "class of", (value.__module__, value.__qualname__)
            if value in OF_TYPES:
                return "type of", OF_TYPES[value]
        return ("path", path) if path is not None else None


OF_TYPES = {type(torch.FloatTensor): ("torch", "FloatTensor")}
"""Classes of C that only what is of them leads to."""

DESCRIPTORS = (
    types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType, types.MemberDescriptorType,
    types.ClassMethodDescriptorType,
)  # fmt: skip


def place_value(place: str, arguments: tuple, frame: Frame, objects: list[Any]) -> Any:
    """What is at a place, or ABSENT."""
    found = [decode(a, objects.__getitem__) if type(a) is tuple else a for a in arguments]
    if place == "top":
        return frame.fn
    return PLACES[place](frame, *found) if place in OF_FRAME else PLACES[place](*found)


def still(value: Any, seen: Any) -> bool:
    """Whether an object is what was there when the entry was made; of a kind that no entry knows, it is another."""
    try:
        return print_of(value) == seen
    except NotPortable:
        return False


def resolve(rows: list[tuple], frame: Frame) -> list[Any]:
    """The objects of a table in this process, for a frame.

    Raises Missing where one is not there, is another than it was, or is one with another.
    """
    out: list[Any] = []
    for place, arguments, seen, links in rows:
        value = place_value(place, arguments, frame, out)
        if value is ABSENT:
            raise Missing(f"nothing at {place} {arguments}")
        if place != "handed" and not still(value, seen):
            raise Missing(f"{place} {arguments} is not what it was")
        linked = () if place == "handed" else links_of(value)
        if len(linked) != len(links) or any(x is not out[i] for x, i in zip(linked, links, strict=True)):
            raise Missing(f"{place} {arguments} stands for others than it did")
        out.append(value)
    if len({id(v) for v in out}) != len(out):
        raise Missing("two objects have become one")
    return out
