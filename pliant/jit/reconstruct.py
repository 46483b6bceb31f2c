"""Turning proxies into Python source text that makes the real values at run time.

`Builder.ref(value)` gives an expression; what the expression needs is appended to `Builder.lines` first. Values are memoized by
identity, so aliasing survives, and cycles are closed through the mutable objects on them: such an object is made empty first and
filled later. One row per type says how it is made: `rows.py`.
"""

from __future__ import annotations

import enum
import functools
import itertools
import keyword
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from pliant.graph.originals import math
from pliant.guards.source import Source
from pliant.interpret import jagged, runtime
from pliant.interpret.immutable import dict_of, slots_of
from pliant.jit import support
from pliant.symbolic import maths
from pliant.symbolic.printers import LONGEST

VARIABLE = re.compile(r"_(?:[a-z]\d+|st\d+|r|x|e|slots)")  # names that an emitted function gives its own variables
MAX_TEXT = 200  # longer literals are held as constants


class CannotReconstruct(Exception):
    """There is no way to make this value again outside of the capture. `kind`: its type, if it is that of which nothing is known."""

    def __init__(self, text: str, kind: type | None = None) -> None:
        super().__init__(text)
        self.kind = kind


class Name:
    """A value that the emitted code already has in a variable."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


@dataclass(slots=True)
class Pending:
    """A value being made. `name` is known from the start; `made` says whether the variable holds the object by now."""

    name: str
    mutable: bool
    made: bool = False
    deferred: list[Callable[[], None]] | None = None
    is_class: bool = False
    emptying: bool = False  # an instance that is being made empty: its class has to be there, and may be filled later


class Early(Exception):
    """A cycle: `target` must be made before its content is; it is filled when `until` (if any) is done."""

    def __init__(self, target: Pending, until: Pending | None) -> None:
        self.target = target
        self.until = until


@dataclass(slots=True)
class Row:
    """How values of a type are made.

    Immutable: `literal(builder, value)` gives the expression. Mutable: `empty` gives an expression for the empty object and `fill`
    emits what fills it; `literal`, if there is one, does both at once when there is no cycle. `after` runs when the object is complete.
    """

    literal: Callable[[Builder, Any], str] | None = None
    empty: Callable[[Builder, Any], str] | None = None
    fill: Callable[[Builder, Any, str], None] | None = None
    after: Callable[[Builder, Any, str], None] | None = None


NAMELIKE = re.compile(r"\w*", re.ASCII)

CONSTANT = Row()
"""The row of what the emitted function holds as it is."""


class Table(Protocol):
    """How values are made: see `rows.py`."""

    special: dict[type, Callable[[Builder, Any], str]]

    def row_of(self, b: Builder, value: Any) -> Row:
        """The row of a value that `special` does not have. Raises CannotReconstruct."""


PLACES = frozenset({"local", "attr", "key", "item", "index", "global", "contents"})
"""What a number from outside may be read from as it is: others (sizes) are made for who asks."""


class Builder:
    """Collects the text of one emitted function: `lines`, the constants in `env`, and what it asks of the guard and of the graph."""

    def __init__(
        self, table: Table, world: Any, scope: Any, params: list[str], state_param: bool, make_generator: Callable[[Builder, Any], str]
    ) -> None:
        self.table = table
        self.world = world
        self.scope = scope
        self.params = params
        self.state_param = state_param
        self.items: dict[int, str] = {}  # of the state: index -> variable
        self.make_generator = make_generator
        self.lines: list[str] = []
        self.env: dict[str, Any] = {}
        self.slots: dict[Any, str] = {}  # Source or symbol name -> variable, in order
        self.outputs: dict[int, tuple[Any, str]] = {}  # id -> (traced value, variable), in order
        self.memo: dict[int, Pending] = {}
        self.log: list[int] = []  # ids in `memo`, in order
        self.path: list[Pending] = []
        self.keep: list[Any] = []  # what `memo` is keyed by
        self.reductions: dict[int, tuple] = {}  # id of an iterator -> how `rows` took it apart
        self.constants: dict[int, str] = {}
        self.said: dict[str, str] = {}  # texts that the function spells out, and which object each is
        self.serial = itertools.count()
        self.numbers_from_graph = False  # whether every symbolic number is an output of the graph (export)

    # -- names ---------------------------------------------------------------------------------------------------------
    def fresh(self, prefix: str = "v") -> str:
        return f"_{prefix}{next(self.serial)}"

    def constant(self, obj: Any, hint: str | None = None) -> str:
        """A global of the emitted function that holds `obj`."""
        name = self.constants.get(id(obj))
        if name is None:
            hint = re.sub(r"\W", "_", hint or getattr(obj, "__name__", None) or type(obj).__name__)
            name = f"_{hint}"
            while name in self.env or name in self.params or VARIABLE.fullmatch(name):
                name = f"_{hint}_{next(self.serial)}"
            self.constants[id(obj)] = name
            self.env[name] = obj
        return name

    def emit(self, line: str) -> None:
        self.lines.append(line)

    # -- the outside ---------------------------------------------------------------------------------------------------
    def outside(self, source: Source) -> str:
        """The object at `source`: an argument, an item of the state, or a slot that the guard fills."""
        if source.op == "local":
            return self.params[source.arg[0]]
        if source.op == "const":
            return self.constant(source.arg.obj)
        if self.state_param and source.op == "index" and source.base is not None and source.base.op == "local":
            return self.items.setdefault(source.arg, f"_i{source.arg}")
        return self.slot(source)

    def slot(self, key: Any) -> str:
        name = self.slots.get(key)
        if name is None:
            name = self.slots[key] = f"_{key}" if type(key) is str else self.fresh("o")
        return name

    def number(self, value: Any) -> str:
        """A symbolic number: an expression over symbols, or an output of the graph if some symbol is known only there."""
        e = self.scope.simplify(value.node.expr)
        if e.const is not None:
            return self.simple(e.const)
        symbols = {s.name for s in e.symbols()}
        if symbols & self.world.ragged.keys():
            return self.ragged_number(e)
        if self.numbers_from_graph or not symbols <= self.world.symbols.keys():
            return self.output(value)
        source = self.world.symbols[e.name] if e.op == "sym" else None
        if source is not None and source.op in PLACES:
            return self.outside(source)  # the number that is there: who compares by `is` finds the same one
        text = e.python(lambda name: self.slot(getattr(name, "name", name)))
        if "math." in text:
            self.env.setdefault("math", maths)
        return text if e.op == "sym" else f"({text})"

    def ragged_number(self, e: Any) -> str:
        """A number made of the ragged size of a jagged tensor: it is PyTorch's own, which its offsets give."""
        ragged = self.world.ragged

        def named(symbol: Any) -> str:
            name = getattr(symbol, "name", symbol)
            return self.slot(name) if name not in ragged else f"{self.constant(jagged.size_of, 'ragged')}({self.ref(ragged[name])})"

        if not {s.name for s in e.symbols()} <= self.world.symbols.keys() | ragged.keys():
            raise CannotReconstruct("a number made of the size of a jagged tensor")
        return f"({e.python(named)})"

    def output(self, value: Any) -> str:
        found = self.outputs.get(id(value))
        if found is None:
            found = self.outputs[id(value)] = (value, f"_g{len(self.outputs)}")
        return found[1]

    # -- values --------------------------------------------------------------------------------------------------------
    def ref(self, value: Any) -> str:
        """An expression for `value`. Raises CannotReconstruct."""
        special = self.table.special.get(type(value))
        if special is not None:
            return special(self, value)
        found = self.memo.get(id(value))
        if found is not None:
            return self.revisit(found)
        world = self.world
        shadow = world.by_copy.get(id(value))
        if shadow is not None:
            value = shadow.orig
        source = world.source_of(value)
        if source is not None:
            return self.outside(source)
        row = self.table.row_of(self, value)
        return self.constant(value) if row is CONSTANT else self.make(value, row)

    def refs(self, values: Any) -> str:
        return ", ".join([self.ref(v) for v in values])

    def tuple(self, values: Any) -> str:
        items = [self.ref(v) for v in values]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"

    def pairs(self, d: Any) -> str:
        """The items of a dict, as the inside of a dict display."""
        return ", ".join([f"{self.key(k)}: {self.ref(v)}" for k, v in d.items()])

    def key(self, k: Any) -> str:
        """`ref` of a key or member of a set. Raises CannotReconstruct if its class, which may not be complete by then, hashes it."""
        self.hashes(k)
        return self.ref(k)

    def hashes(self, k: Any) -> None:
        t = type(k)
        if t is tuple or t is frozenset:
            for x in k:
                self.hashes(x)
        elif t.__hash__ is not object.__hash__ and id(t) in self.world.own_functions and not issubclass(t, enum.Enum):
            raise CannotReconstruct(f"a key whose class, {t.__qualname__}, is made here and hashes it")

    def simple(self, value: Any) -> str:
        found = self.world.constants_at.get(id(value))
        if found is not None and found[0] is value and found[1].op in PLACES:
            return self.outside(found[1])  # that of the call, which need not be the object that was there before
        if type(value) is int and value.bit_length() > LONGEST:
            return self.constant(value)  # of which Python may refuse to write the decimals
        text = repr(value)
        if type(value) is str and (NAMELIKE.fullmatch(value) is None or self.said.setdefault(text, value) is not value):
            return self.constant(value)  # CPython makes one object of all equal words alone; or it is not the one that was said before
        if type(value) is float and not math.isfinite(value):
            return self.constant(value, "nan" if value != value else "inf")
        if type(value) is complex or len(text) > MAX_TEXT:
            return self.constant(value)
        return f"({text})" if text[0] == "-" else text

    def revisit(self, found: Pending) -> str:
        if found.made:
            return found.name
        if found.mutable and not found.emptying:
            raise Early(found, None)
        for p in self.path[self.path.index(found) + 1 :]:
            if p.mutable and (p.is_class and p.made or not found.emptying):
                raise Early(p, found)
        raise CannotReconstruct("a cycle of immutable objects")

    def make(self, value: Any, row: Row) -> str:
        p = Pending(self.fresh(), row.empty is not None, is_class=issubclass(type(value), type))  # `isinstance` would ask the value
        self.memo[id(value)] = p
        self.log.append(id(value))
        self.keep.append(value)
        self.path.append(p)
        mark = len(self.lines), len(self.log)
        try:
            if row.literal is not None:
                try:
                    self.emit(f"{p.name} = {row.literal(self, value)}")
                    p.made = True
                except Early as e:
                    if e.target is not p:
                        raise
                    self.forget(mark)
                    self.create(value, row, p, e.until)
            else:
                self.create(value, row, p, None)
        finally:
            self.path.remove(p)
        for later in p.deferred or ():
            later()
        if row.after is not None:
            row.after(self, value, p.name)
        return p.name

    def create(self, value: Any, row: Row, p: Pending, until: Pending | None) -> None:
        """Make the object empty, then fill it, or leave that for when `until` is done."""
        assert row.empty is not None and row.fill is not None
        p.emptying = not p.is_class  # of which the names and bases have to be whole
        self.emit(f"{p.name} = {row.empty(self, value)}")
        p.made, p.emptying = True, False
        fill = functools.partial(row.fill, self, value, p.name)
        mark = len(self.lines), len(self.log)
        if until is None:
            try:
                fill()
                return
            except Early as e:
                if e.target is not p:
                    raise
                self.forget(mark)
                until = e.until
        if until is None:
            raise CannotReconstruct(f"a cycle through {type(value).__name__}")
        if until.deferred is None:
            until.deferred = []
        until.deferred.append(fill)

    def forget(self, mark: tuple[int, int]) -> None:
        """Undo what was emitted since `mark`: it is made again."""
        del self.lines[mark[0] :]
        for i in self.log[mark[1] :]:
            self.memo.pop(i, None)
        del self.log[mark[1] :]

    def attributes(self, value: Any, name: str) -> None:
        """Fill `__dict__` and slots of an instance of a Python class."""
        d = dict_of(value)
        if d:
            self.emit(f"{self.constant(support.fill_dict)}({name}, {{{self.pairs(d)}}})")
        for cls, attr, member, held in slots_of(value):
            if id(cls) in self.world.own_functions:
                self.emit(f"{self.constant(runtime.set_slot)}({name}, {self.ref(cls)}, {member.__name__!r}, {self.ref(held)})")
            else:
                self.emit(f"{self.constant(member, f'set_{attr}')}.__set__({name}, {self.ref(held)})")


def identifier(name: str) -> bool:
    """May `name` be written as a variable or keyword argument?"""
    return name.isidentifier() and not keyword.iskeyword(name)


def class_of(b: Builder, v: Any) -> str:
    """The class of a value: a constant, unless the program made it."""
    t = type(v)
    return b.ref(t) if id(t) in b.world.own_functions else b.constant(t)


def instance_empty(b: Builder, v: Any) -> str:
    return f"{b.constant(object.__new__, 'new')}({class_of(b, v)})"


INSTANCE = Row(None, instance_empty, Builder.attributes)
"""The row of an instance of a Python class."""
