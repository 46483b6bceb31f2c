"""Guard programs as data: what the native engine runs at once, and, apart from it, the guards as they were written.

The first half is decoded whenever an entry is taken up; the second only when somebody asks why a guard failed.
"""

from __future__ import annotations

import functools
import marshal
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pliant import native
from pliant.guards import source as S
from pliant.guards.guard import Guard, Site, TensorSpec
from pliant.guards.program import ONE_OTHER, OP, Compiler, Describe, Why, others, shares_as_told
from pliant.guards.question import Cached, Question, Raised, Subclasses, is_value
from pliant.guards.source import Source
from pliant.guards.views import NAMES as NAMES_OF_VIEWS
from pliant.guards.views import VIEWS
from pliant.interpret.capture import UNSET
from pliant.interpret.contextvars_ import Holds
from pliant.jit.persist.frames import is_made
from pliant.jit.persist.names import Writer, class_attr, inner_code
from pliant.jit.persist.tensors import decode_example, encode_example
from pliant.jit.persist.values import ATOMS, NotPortable, decode, encode, encode_held, encode_members
from pliant.symbolic import maths

PREDICATES = (Holds, Question, Cached, Subclasses)
NAMES = {number: name for name, number in OP.items()}
PLAIN = frozenset("LOCAL GLOBAL ATTR KEY CONTAINS IS_TYPE IS_OBJECT EQ KEYS LACKS CONST SET_EQ DISTINCT OVERLAP".split())
"""Instructions whose operand is encoded as the value that it is."""


# -- instructions ---------------------------------------------------------------------------------------------------------------
def encode_operand(op: str, arg: Any, guard: Guard | None, table: Writer) -> Any:
    """The operand of an instruction. Raises NotPortable."""
    if op in ("CONST", "IS_OBJECT"):
        return encode_held(arg, table.refer)
    if op == "SET_EQ":
        return encode_members(arg, table.refer)
    if op in PLAIN:
        return encode(arg, table.refer)
    if op == "APPLY":
        return NAMES_OF_VIEWS[arg]
    if op == "TENSOR":
        t, pytype, *rest = arg
        return (encode_example(t), table.refer(pytype), *(encode(x, table.refer) for x in rest))
    if op == "TYPE_ATTRS":
        owner = table.refer(guard.source.arg.obj) if guard is not None and guard.source.op == "const" else None
        return owner, tuple([(name, how, encode_held(v, table.refer)) for name, (how, v) in arg.items()])
    if op == "FUNCTION" and guard is not None and guard.source.op == "const":
        return table.refer(guard.source.arg.obj)
    if op == "FUNCTION" and arg[1] is None and arg[2] is None:
        return ("code", table.refer(arg[0]))
    if op == "STATE" or arg is None:
        return None
    raise NotPortable(f"a guard of kind {op}")


def decode_operand(op: str, arg: Any, objects: Any) -> Any:
    seen = objects.__getitem__
    if op in PLAIN:
        return decode(arg, seen)
    if op == "APPLY":
        return VIEWS[arg]
    if op == "TENSOR":
        row, pytype, *rest = arg
        return (decode_example(row), objects[pytype], *(decode(x, seen) for x in rest))
    if op == "TYPE_ATTRS":
        owner, rows = arg
        return {name: (how, standing(decode(v, seen), None if owner is None else objects[owner], name)) for name, how, v in rows}
    if op == "FUNCTION":
        if type(arg) is tuple:
            return objects[arg[1]], None, None
        fn = objects[arg]
        return fn.__code__, fn.__defaults__, fn.__kwdefaults__
    return native.global_state() if op == "STATE" else None


def standing(value: Any, cls: Any, name: str) -> Any:
    """The object that a class has here, if it is like `value`, which was told by what it is: the engine compares identities."""
    if type(value) not in ATOMS or cls is None:
        return value
    found = class_attr(cls, name)
    return found if type(found) is type(value) and (found == value or found != found) and repr(found) == repr(value) else value


def encode_program(c: Compiler, table: Writer) -> tuple:
    """The program of a compiled guard."""
    code: list[tuple] = []
    pool: dict[bytes, int] = {}
    operands: list[Any] = []
    for (number, dst, src, n, arg), why in zip(c.code, c.why, strict=True):
        op = NAMES[number]
        guard = c.guards[why] if why is not None and why >= 0 else None
        if op == "TENSOR_SLOW" or (op in ("SIZE", "STRIDE", "OFFSET") and n < 0):
            raise NotPortable("a tensor whose metadata PyTorch is asked for")
        operand = encode_operand(op, arg, guard, table)
        shared = marshal.dumps((op if op not in PLAIN else "", operand), 2)  # most are alike; told apart by type as well
        at = pool.setdefault(shared, len(operands))
        if at == len(operands):
            operands.append((op, operand))
        code.append((number, dst, src, n, at))
    asked = [(encode_predicate(fn, why, c, table), slots) for (fn, slots), why in zip(c.predicates, c.predicate_why, strict=True)]
    return tuple(code), tuple(operands), c.native_relations, (c.nregs, c.nvars, c.nargs), c.out, c.visible, asked


def decode_program(data: tuple, objects: list[Any], describe: Callable) -> native.Guard:
    """The guard of what `encode_program` made."""
    code, operands, relations, counts, out, visible, asked = data
    made = [decode_operand(op, arg, objects) for op, arg in operands]
    program = [(op, dst, src, n, made[at]) for op, dst, src, n, at in code]
    predicates = [(decode_predicate(p, objects), slots) for p, slots in asked]
    return native.Guard(program, relations, counts, out, visible, predicates, describe)


def encode_predicate(fn: Any, why: int | None, c: Compiler, table: Writer) -> tuple:
    if type(fn) is Holds:
        return ("holds",) if fn.value is UNSET else ("holds", encode(fn.value, table.refer))
    if isinstance(fn, Question):
        if type(fn.answer) is Raised or not is_value(fn.answer):
            raise NotPortable("an answer that is an object")
        parts = [encode(x, table.refer) for x in (fn.args, fn.kwargs, fn.answer)]
        return "cached" if type(fn) is Cached else "question", table.refer(fn.fn), *parts
    if type(fn) is Subclasses:
        return ("subclasses", [(table.refer(t()), table.refer(cls()), answer) for t, cls, answer in fn.answers])
    if why is not None and why < 0:
        r = -1 - why
        return ("relation", f"lambda {', '.join(c.relation_vars[r])}: {c.relations[r].python()}")
    if why is not None and c.guards[why].kind == "STORAGE_OVERLAP":
        return ("overlap", tuple(bool(f) for f in c.guards[why].value[1]))
    raise NotPortable("a guard that is a function")


def decode_predicate(data: tuple, objects: Any) -> Any:
    kind, *rest = data
    if kind == "holds":
        return Holds(decode(rest[0], objects.__getitem__) if rest else UNSET)
    if kind in ("question", "cached"):
        fn, *rest = rest
        return (Cached if kind == "cached" else Question)(objects[fn], *(decode(x, objects.__getitem__) for x in rest))
    if kind == "subclasses":
        return Subclasses.of([(objects[t], objects[cls], answer) for t, cls, answer in rest[0]])
    if kind == "relation":
        return eval(rest[0], {"math": maths})  # printed by us, as trusted as the machine code beside it
    return shares_as_told(rest[0])


# -- guards, to be explained ----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True)
class KeptRelation:
    """A relation over sizes, of which only what people read is left, and the values it needs."""

    text: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return self.text


class Paths:
    """Numbers sources and sites."""

    def __init__(self, table: Writer, codes: dict[int, tuple[Any, tuple]]) -> None:
        self.table = table
        self.codes = codes
        self.rows: list[tuple] = []
        self.known: dict[Source, int] = {}
        self.sites: list[tuple] = []
        self.site_numbers: dict[int, int] = {}

    def source(self, s: Source) -> int:
        i = self.known.get(s)
        if i is None:
            base = -1 if s.base is None else self.source(s.base)
            arg = self.source(s.arg) if s.op == "item" else s.arg.obj if s.op == "const" else s.arg
            i = self.known[s] = len(self.rows)
            self.rows.append((s.op, base, (encode_held if s.op == "const" else encode)(arg, self.table.refer)))
        return i

    def code(self, code: Any) -> tuple | None:
        """A code object, as (row, way to it from there); None if no name leads to it."""
        owner, way = self.codes.get(id(code), (code, ()))
        if owner is None:
            return None
        try:
            return self.table.refer(owner), way
        except NotPortable:
            return None

    def site(self, s: Site | None) -> int:
        if s is None:
            return -1
        i = self.site_numbers.get(id(s))
        if i is None:
            outer = self.site(s.outer)
            code = self.code(s.code)
            i = self.site_numbers[id(s)] = len(self.sites)
            self.sites.append((s.filename, s.lineno, s.function, s.offset, code, outer))
        return i


def guard_value(g: Guard, paths: Paths) -> Any:
    """What a guard wants, as data."""
    refer, v = paths.table.refer, g.value
    if g.kind == "TENSOR_MATCH":
        return (encode_example(v.example), refer(v.pytype), v.requires_grad, v.ndim, encode(v.sizes, refer), encode(v.strides, refer))
    if g.kind in ONE_OTHER:
        return paths.source(v)
    if g.kind == "NOT_ALIAS":
        return tuple(map(paths.source, others(g)))
    if g.kind == "STORAGE_OVERLAP":
        return tuple(map(paths.source, v[0])), tuple(bool(f) for f in v[1])
    if g.kind == "GLOBAL_STATE":
        return None
    if g.kind in ("PREDICATE", "ANSWER"):
        return encode_predicate(v, None, None, paths.table) if type(v) in PREDICATES else ()  # type: ignore[arg-type]
    if g.kind == "FUNCTION":
        return (refer(g.source.arg.obj),) if g.source.op == "const" else refer(v[0])
    if g.kind == "TYPE_ATTRS":
        return ("{", *[x for name, found in v.items() for x in (name, encode_held(found, refer))])
    if g.kind == "SET_EQUALS":
        return encode_members(v, refer)
    return encode_held(v, refer) if g.kind == "ID_MATCH" else encode(v, refer)


def explanation(c: Compiler, relations: Sequence[tuple[Any, Site | None]], table: Writer, codes: dict[int, tuple[Any, tuple]]) -> bytes:
    """The guards as they were written, the relations and what the program's instructions are about: what `Explained` takes up."""
    paths = Paths(table, codes)
    guards = [(paths.source(g.source), g.kind, guard_value(g, paths), paths.site(g.site)) for g in c.guards]
    kept = [(str(e), names, paths.site(site)) for (e, site), names in zip(relations, c.relation_vars, strict=True)]
    symbols = {name: (paths.source(s), c.nodes[s].var) for name, s in c.symbols.items()}
    reader = {i: (paths.source(n.source), n.first) for i, n in c.reader.items()}
    return marshal.dumps((guards, kept, symbols, reader, c.int_vars, c.why, c.predicate_why, paths.rows, paths.sites))


WEAK = (type, types.FunctionType, types.CodeType)


class Weakly:
    """A table of objects that keeps nobody's functions and classes alive, nor what goes on behind breaks: no guard is about that."""

    def __init__(self, objects: list[Any]) -> None:
        self.held = [None if is_made(o) else weakref.ref(o) if isinstance(o, WEAK) else o for o in objects]

    def __getitem__(self, i: int) -> Any:
        o = self.held[i]
        return o() if type(o) is weakref.ref else o


def sources_of(rows: list[tuple], objects: Weakly) -> list[Source]:
    """The sources of what `Paths` has numbered."""
    out: list[Source] = []
    for op, base, arg in rows:
        value = decode(arg, objects.__getitem__)
        if base < 0:
            out.append(S.const(value) if op == "const" else S.make(op, None, value))
        elif op == "item":
            out.append(out[base].item(out[value]))
        else:
            out.append(out[base].key(value) if op == "key" else S.make(op, out[base], value))
    return out


class Explained:
    """The guards of an entry from the disk, read when they are asked for. Called like `guards.program.Describe`."""

    def __init__(self, data: bytes, objects: list[Any]) -> None:
        self.data = data
        self.objects = Weakly(objects)

    @functools.cached_property
    def content(self) -> Any:
        """What a compiler of guards knows when it is done, as far as `Describe` reads it, and the relations with their sites."""
        guards, kept, symbols, reader, int_vars, why, predicate_why, rows, site_rows = marshal.loads(self.data)
        paths = sources_of(rows, self.objects)
        sites: list[Site] = []
        for filename, lineno, function, offset, code, outer in site_rows:
            owner = None if code is None else inner_code(self.objects[code[0]], code[1])
            sites.append(Site(filename, lineno, function, offset, owner, sites[outer] if outer >= 0 else None))
        found = [Guard(paths[s], kind, self.value(kind, v, paths), sites[at] if at >= 0 else None) for s, kind, v, at in guards]
        relations = [(KeptRelation(text, names), sites[at] if at >= 0 else None) for text, names, at in kept]
        return types.SimpleNamespace(
            guards=found, relations=[r for r, _ in relations], relation_vars=[r.names for r, _ in relations], with_sites=tuple(relations),
            symbols={name: paths[s] for name, (s, _) in symbols.items()}, int_vars=int_vars, why=why, predicate_why=predicate_why,
            nodes={paths[s]: types.SimpleNamespace(var=var) for s, var in symbols.values()},
            reader={i: types.SimpleNamespace(source=paths[s], first=first) for i, (s, first) in reader.items()},
        )  # fmt: skip

    def value(self, kind: str, v: Any, paths: list[Source]) -> Any:
        seen = self.objects.__getitem__
        if kind == "TENSOR_MATCH":
            row, pytype, grad, ndim, sizes, strides = v
            t = decode_example(row)
            return TensorSpec(self.objects[pytype], t.dtype, t.device, grad, ndim, decode(sizes, seen), decode(strides, seen), t)
        if kind in ONE_OTHER:
            return paths[v]
        if kind == "NOT_ALIAS":
            return tuple([paths[i] for i in v])
        if kind == "STORAGE_OVERLAP":
            return tuple([paths[i] for i in v[0]]), v[1]
        if kind in ("PREDICATE", "ANSWER"):
            return decode_predicate(v, self.objects) if v else None
        if kind == "FUNCTION":
            fn = self.objects[v[0]] if type(v) is tuple else None
            return (self.objects[v], None, None) if fn is None else (fn.__code__, fn.__defaults__, fn.__kwdefaults__)
        return None if kind == "GLOBAL_STATE" else decode(v, seen)

    @functools.cached_property
    def describe(self) -> Describe:
        return Describe(self.content)

    def __call__(self, instruction: int, seen: Any, variables: tuple[int, ...]) -> Why:
        return self.describe(instruction, seen, variables)
