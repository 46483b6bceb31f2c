"""Sources: where a value of the outside world came from, and how to read it again.

A `Source` is a path from a root (an argument of the frame, a global, an object held by
reference) to a value. Guards are attached to sources, graph inputs are named by them and the
emitted code reloads outside objects through them. Sources are interned, so `is` compares paths.
"""

from __future__ import annotations

import weakref
from types import ModuleType
from typing import Any

from pliant.guards.words import name_of, value_text


class Ref:
    """A strong reference that compares by identity (the key of a `const` source)."""

    __slots__ = ("obj",)

    def __init__(self, obj: Any) -> None:
        self.obj = obj

    def __eq__(self, other: object) -> bool:
        return type(other) is Ref and other.obj is self.obj

    def __hash__(self) -> int:
        return id(self.obj)


class Source:
    """One step of a path. `op` is a row of `OPS`; `base` is the path before it; `arg` its operand.

    | op        | arg            | reads                                                          |
    |-----------|----------------|----------------------------------------------------------------|
    | local     | (index, name)  | argument `index` of the frame (flattened: varargs is one tuple) |
    | global    | name           | `f_globals[name]`, else builtins                               |
    | func      |                | the function object of the frame (for its closure)             |
    | const     | Ref(obj)       | the object itself, held by the entry                           |
    | attr      | name           | `getattr(base, name)` (C-level attributes only)                |
    | dict      |                | `base.__dict__`                                                |
    | key       | constant       | `base[key]` of an exact dict / OrderedDict / subclass          |
    | item      | Source         | `base[what is there]` of a dict, where that is known by its identity |
    | index     | int            | `base[index]` of an exact list or tuple                        |
    | cell      | int            | `base.__closure__[int].cell_contents`                          |
    | contents  |                | `base.cell_contents` of a cell                                 |
    | type      |                | `type(base)`                                                   |
    | size      | int            | `base.size(int)`, an int                                       |
    | stride    | int            | `base.stride(int)`, an int                                     |
    | offset    |                | `base.storage_offset()`, an int                                |
    | length    |                | how many items a list, tuple or dict stores, an int            |
    | apply     | row of VIEWS   | what that function of `guards.views` makes of base: a new object |
    """

    __slots__ = ("op", "base", "arg", "root", "holds", "_name", "_keys", "_steps", "__weakref__")

    def __init__(self, op: str, base: Source | None, arg: Any) -> None:
        self.op = op
        self.base = base
        self.arg = arg
        self._name: str | None = None
        self.root: Source = base.root if base is not None else self
        self.holds: bool = (base.holds if base is not None else op == "const") or op == "item" and arg.holds  # an object by reference
        self._keys: dict[str, Source] = {}  # the steps from here that read a name of a dict, which most do
        self._steps: dict[tuple, Source] = {}  # the others

    @property
    def name(self) -> str:
        """How the logs print it, e.g. `L['x'].layers[0].weight` (Dynamo's notation)."""
        if self._name is None:
            self._name = PRINTERS[self.op](self.base.name if self.base is not None else "", self.arg)
        return self._name

    def __repr__(self) -> str:
        return self.name

    # constructors of the next step -------------------------------------------------
    def attr(self, name: str) -> Source:
        return make("attr", self, name)

    def dict(self) -> Source:
        return make("dict", self, None)

    def key(self, key: Any) -> Source:
        if type(key) is not str:
            return make("key", self, key)
        s = self._keys.get(key)
        if s is None:
            s = self._keys[key] = Source("key", self, key)
        return s

    def item(self, key: Source) -> Source:
        return make("item", self, key)

    def index(self, i: int) -> Source:
        return make("index", self, i)

    def cell(self, i: int) -> Source:
        return make("cell", self, i)

    def contents(self) -> Source:
        return make("contents", self, None)

    def type(self) -> Source:
        return make("type", self, None)

    def size(self, dim: int) -> Source:
        return make("size", self, dim)

    def stride(self, dim: int) -> Source:
        return make("stride", self, dim)

    def offset(self) -> Source:
        return make("offset", self, None)

    def length(self) -> Source:
        return make("length", self, None)

    def apply(self, view: str) -> Source:
        return make("apply", self, view)




def const_name(v: Any) -> str:
    return v.__name__ if type(v) is ModuleType else name_of(v) or hex(id(v))


PRINTERS = {
    "local": lambda b, a: f"L[{a[1]!r}]",
    "global": lambda b, a: f"G[{a!r}]",
    "func": lambda b, a: "F",
    "const": lambda b, a: f"<{type(a.obj).__name__} {const_name(a.obj)}>",
    "attr": lambda b, a: f"{b}.{a}",
    "dict": lambda b, a: f"{b}.__dict__",
    "key": lambda b, a: f"{b[:-9]}.{a}" if b.endswith(".__dict__") and isinstance(a, str) else f"{b}[{value_text(a)}]",
    "item": lambda b, a: f"{b}[{a.name}]",
    "index": lambda b, a: f"{b}[{a}]",
    "cell": lambda b, a: f"{b}.__closure__[{a}].cell_contents",
    "contents": lambda b, a: f"{b}.cell_contents",
    "type": lambda b, a: f"type({b})",
    "size": lambda b, a: f"{b}.size()[{a}]",
    "stride": lambda b, a: f"{b}.stride()[{a}]",
    "offset": lambda b, a: f"{b}.storage_offset()",
    "length": lambda b, a: f"len({b})",
    "apply": lambda b, a: f"{a}({b})",
}

_roots: dict[tuple, Source] = {}
_of_objects: weakref.WeakValueDictionary[tuple, Source] = weakref.WeakValueDictionary()
"""Paths whose operand is an object that equals itself alone: they hold it, so they live no longer than the guards that are about it."""

PLAIN = frozenset((str, int, bool, float, tuple, bytes, type(None)))


def identity(arg: Any) -> int | None:
    """The id of an operand that is known by its identity (a tensor as a key, too, whose `==` is another thing); else None."""
    if type(arg) is Ref:
        return id(arg.obj)
    return id(arg) if type(arg).__hash__ is object.__hash__ or hasattr(type(arg), "__torch_function__") else None


def make(op: str, base: Source | None, arg: Any) -> Source:
    """The one `Source` of this path (`Source.key` makes those that read a name). Keys of different types (1, True, 1.0) stay apart."""
    if type(arg) not in PLAIN and (number := identity(arg)) is not None:
        of_object = (op, base, type(arg), number)
        s = _of_objects.get(of_object)
        if s is None:
            s = _of_objects[of_object] = Source(op, base, arg)
        return s
    known = _roots if base is None else base._steps
    key = (op, type(arg), arg)
    s = known.get(key)
    if s is None:
        s = known[key] = Source(op, base, arg)
    return s


def local(index: int, name: str) -> Source:
    return make("local", None, (index, name))


def global_(name: str) -> Source:
    return make("global", None, name)


def func() -> Source:
    return make("func", None, None)


def const(obj: Any) -> Source:
    return make("const", None, Ref(obj))


class WeakPath:
    """A path from an object, or by one, that it does not keep alive."""

    __slots__ = ("root", "steps")

    def __init__(self, source: Source) -> None:
        root = source.root
        self.root: Any = weakref.ref(root.arg.obj) if root.op == "const" else root  # raises TypeError where it cannot be
        steps: list[tuple[str, Any]] = []
        while source.base is not None:
            steps.append((source.op, faded(source.arg) if source.op == "item" else source.arg))
            source = source.base
        self.steps = steps[::-1]

    def source(self) -> Source | None:
        """The path itself. None: its object is gone."""
        found = self.root
        if type(found) is weakref.ref:
            obj = found()
            if obj is None:
                return None
            found = const(obj)
        for op, arg in self.steps:
            if op == "item" and (arg := unfaded(arg)) is None:
                return None
            found = found.key(arg) if op == "key" else make(op, found, arg)
        return found


def faded(source: Source) -> Source | WeakPath:
    """The same path, which keeps no object alive that can be referenced weakly."""
    if not source.holds:
        return source
    try:
        return WeakPath(source)
    except TypeError:
        return source


def unfaded(path: Source | WeakPath) -> Source | None:
    """The path that has faded. None: its object is gone."""
    return path if isinstance(path, Source) else path.source()


def holder(source: Source) -> Source | None:
    """The first object on a path from an argument whose attributes are read: `x` for `x.a.b[0]`; None if there is none."""
    found, s = None, source
    while s.base is not None:
        if s.op in ("dict", "attr"):
            found = s.base
        s = s.base
    return found if s.op == "local" else None


def ending(source: Source) -> tuple | None:
    """The path from the last attribute of an object on, whatever the places in lists: of `L['self'].log[3][0]`, and of the same object
    found elsewhere. None if there is no attribute."""
    steps: list[tuple] = []
    s = source
    while s.base is not None and s.op in ("key", "index", "attr", "item"):
        steps.append((s.op,) if s.op == "index" else (s.op, ending(s.arg) if s.op == "item" else s.arg))
        if s.op == "attr" or s.base.op == "dict":
            return tuple(steps)
        s = s.base
    return None


def places(source: Source) -> list[tuple]:
    """The path with one of its places in lists left open, for each of them: the items of a list are at one place, and so are the fields
    of one name (of one number) of its items."""
    steps: list[tuple] = []
    s = source
    while s.base is not None and s.op in ("key", "index", "attr"):
        steps.append((s.op, s.arg))
        s = s.base
    return [(s, *steps[:i], None, *steps[i + 1 :]) for i, (op, _) in enumerate(steps) if op == "index"]


def clear_interned() -> None:
    """Forget interned paths (they hold their `const` roots alive): `pliant.reset()` calls this."""
    _roots.clear()
    _of_objects.clear()
