"""Compile a list of guards into one program for the native engine.

Guards that share a path share its reads: the sources form a tree, every node of it is read once. Sizes, strides and Python ints
are bound to variables where they are met, and a relation over them runs as soon as its last variable is bound. The order is
cheap and discriminating first: torch's global state, then argument by argument, then what compares several objects, and predicates
written in Python at the very end, when all that they need is owned.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from pliant import native
from pliant.graph.originals import ORIGINAL, torch
from pliant.guards.guard import Guard, TensorSpec
from pliant.guards.source import Source
from pliant.guards.views import VIEWS
from pliant.guards.words import ATOMS, clip, object_text, type_text, value_text
from pliant.symbolic import maths

OP = {name: i for i, name in enumerate(native.OPS)}
POSTFIX = {name.lower(): i for name, i in native.POSTFIX.items()}
INT_SOURCES = {"size": OP["SIZE"], "stride": OP["STRIDE"], "offset": OP["OFFSET"], "length": OP["LEN"]}
# What protects the other checks of a node comes first.
ORDER = {"TYPE_MATCH": 0, "ID_MATCH": 1, "TENSOR_MATCH": 1, "INT": 2}
ONE_OTHER = {"ALIAS": "ALIAS", "DICT_LACKS_ITEM": "LACKS_ITEM"}
"""Guards over an object and the one that is read at a source, and their instructions."""
CROSS = {*ONE_OTHER, "NOT_ALIAS", "STORAGE_OVERLAP"}
INT64 = range(-(2**63), 2**63)
NAMED = {op: OP[op.upper()] for op in ("key", "attr", "dict", "global", "func", "contents", "type")}
"""The reads whose operand goes into the program as it is."""


def check_order(check: tuple[int, Guard]) -> int:
    return ORDER.get(check[1].kind, 3)


class Node:
    """A source in the tree: its checks and what is read from it."""

    __slots__ = ("checks", "children", "first", "numbers", "reg", "source", "tensor", "var", "wants_var")

    def __init__(self, source: Source) -> None:
        self.source = source
        self.first = -1  # the first guard here or below
        self.numbers = False  # sizes, strides or the offset are read from it
        self.checks: list[tuple[int, Guard]] = []
        self.children: list[Node] = []
        self.reg = -1
        self.var = -1
        self.wants_var = False
        self.tensor: bool | None = None  # TENSOR_MATCH seen: may its metadata be read from memory?


class Compiler:
    """One use: `Compiler(...).build()`."""

    def __init__(self, guards: Sequence[Guard], symbols: dict[str, Source], relations: Sequence[Any], slots: Sequence[Any]) -> None:
        self.guards = guards
        self.symbols = symbols
        self.relations = relations
        self.slots = slots
        self.nodes: dict[Source, Node] = {}
        self.roots: list[Node] = []
        self.code: list[tuple] = []
        self.why: list[int | None] = []  # per instruction: the guard; -1 - the relation; None for a read
        self.reader: dict[int, Node] = {}  # instruction -> what it reads
        self.int_vars: dict[int, int] = {}  # guard -> the variable that it checks
        self.nregs = self.nvars = self.nargs = 0
        self.native_relations: list[list[tuple[int, int]]] = []
        self.relation_vars: list[tuple[str, ...]] = []
        self.out: list[tuple[bool, int]] = []
        self.visible = 0
        self.predicates: list[tuple[Any, tuple[int, ...]]] = []
        self.predicate_why: list[int | None] = []
        self.cross: list[tuple[int, Guard]] = []
        self.keyed: list[tuple[Node, Node]] = []  # items of dicts (and these), whose keys are not read yet
        self.state: list[tuple[int, Guard]] = []
        self.asked: list[tuple[int, Guard]] = []  # PREDICATE guards
        self.questions: list[tuple[int, Guard]] = []  # ANSWER guards
        self.waiting: dict[Source, list[int]] = {}  # relations over a source, and how many of their sources are not yet bound
        self.missing: list[int] = []
        self.late: list[int] = []  # relations that Python evaluates
        self.boxed: set[Source] = set()  # floats and bools: their symbols are objects for Python, no 64-bit variables

    # ---- the tree ----

    def node(self, source: Source) -> Node:
        nodes = self.nodes
        n = nodes.get(source)
        if n is None:
            above = source.base
            n = Node(source)
            if above is None:
                self.roots.append(n)
            else:
                base = nodes.get(above) or self.node(above)
                base.children.append(n)
                if source.op in INT_SOURCES:
                    base.numbers = True
                elif source.op == "item":
                    self.node(source.arg)
            nodes[source] = n
        return n

    def collect(self) -> None:
        nodes = self.nodes
        for index, guard in enumerate(self.guards):
            kind, source = guard.kind, guard.source
            if kind == "GLOBAL_STATE":
                self.state.append((index, guard))
                continue
            if kind == "ANSWER":
                self.questions.append((index, guard))
                continue
            n = nodes.get(source) or self.node(source)
            above = n
            while above.first < 0:
                above.first = index
                base = above.source.base
                if base is not None:
                    above = nodes[base]
            if kind in CROSS:
                self.cross.append((index, guard))
                for other in others(guard):
                    self.node(other)
            elif kind == "PREDICATE":
                self.asked.append((index, guard))
            else:
                n.checks.append((index, guard))
                if kind == "TENSOR_MATCH":
                    n.tensor = fast_tensor(guard.value)
                elif kind == "FLOAT" or kind == "BOOL":
                    self.boxed.add(guard.source)
        for source in self.symbols.values():
            self.node(source).wants_var = True
        for slot in self.slots:
            if isinstance(slot, Source):
                self.node(slot)

    # ---- emission ----

    def emit(self, op: str, dst: int, src: int, number: int, arg: Any, why: int | None) -> None:
        self.code.append((OP[op], dst, src, number, arg))
        self.why.append(why)

    def visit(self, n: Node, base: Node | None) -> None:
        code, why = self.code, self.why
        source = n.source
        plain = NAMED.get(source.op)
        if plain is not None:  # `read`, of nearly all
            self.reader[len(code)] = n
            n.reg = reg = self.nregs
            self.nregs = reg + 1
            code.append((plain, reg, base.reg if base is not None else -1, 0, source.arg))
            why.append(None)
        else:
            self.read(n, base)
            reg = n.reg
        checks = n.checks
        if len(checks) > 1:
            checks.sort(key=check_order)
        for index, guard in checks:
            simple = SIMPLE.get(guard.kind)
            if simple is not None and reg >= 0:
                op, convert = simple
                code.append((op, -1, reg, 0, guard.value if convert is None else convert(guard.value)))
                why.append(index)
            else:
                self.check(n, index, guard)
        if n.wants_var and n.var < 0 and source.op not in INT_SOURCES and source not in self.boxed:
            self.bind_object(n, None)
        if n.numbers:  # before anything else below a tensor: most misses are seen there
            n.children.sort(key=lambda c: c.source.op not in INT_SOURCES)
        for child in n.children:
            if child.source.op == "item" and self.nodes[child.source.arg].reg < 0:
                self.keyed.append((child, n))
            else:
                self.visit(child, n)

    def read(self, n: Node, base: Node | None) -> None:
        op, arg = n.source.op, n.source.arg
        self.reader[len(self.code)] = n
        src = base.reg if base is not None else -1
        if op in INT_SOURCES:
            dim = arg or 0
            n.var = self.variable()
            # A tensor without TENSOR_MATCH, or of unknown layout, is asked through Python (a negative number says so).
            number = dim if op == "length" or base is not None and base.tensor else -1 - dim
            self.code.append((INT_SOURCES[op], n.var, src, number, None))
            self.why.append(None)
            self.bound(n)
            return
        n.reg = self.nregs
        self.nregs += 1
        if op == "local":
            self.nargs = max(self.nargs, arg[0] + 1)
            self.emit("LOCAL", n.reg, -1, arg[0], None, None)
        elif op == "const":
            self.emit("CONST", n.reg, -1, 0, arg.obj, None)
        elif op == "item":
            self.emit("ITEM", n.reg, src, self.nodes[arg].reg, None, None)
        elif op == "apply":
            self.emit("APPLY", n.reg, src, 0, VIEWS[arg], None)
        else:
            self.emit(op.upper(), n.reg, src, arg, None, None)

    def variable(self) -> int:
        self.nvars += 1
        return self.nvars - 1

    def bind_object(self, n: Node, why: int | None) -> None:
        n.var = self.variable()
        self.emit("BIND_INT", n.var, n.reg, 0, None, why)
        self.bound(n)

    def bound(self, n: Node) -> None:
        for r in self.waiting.get(n.source, ()):
            self.missing[r] -= 1
            if not self.missing[r]:
                self.relation(r)

    def check(self, n: Node, index: int, guard: Guard) -> None:
        kind, value, reg, why = guard.kind, guard.value, n.reg, index
        if reg < 0:
            self.int_vars[index] = n.var
            self.check_int(n, kind, value, why)
        elif kind == "INT":
            if n.var < 0:
                self.bind_object(n, why)
        elif kind in ("FLOAT", "BOOL"):
            self.emit("IS_TYPE", -1, reg, 0, float if kind == "FLOAT" else bool, why)
        elif kind == "TENSOR_MATCH":
            self.check_tensor(n, value, why)
        elif kind == "LENGTH":
            self.emit("LENGTH", -1, reg, value, None, why)
        elif kind == "EMPTY":
            self.emit("IS_TYPE", -1, reg, 0, value, why)
            self.emit("LENGTH", -1, reg, 0, None, why)
        elif kind == "TYPE_ATTRS":
            self.emit(kind, -1, reg, 0, {name: (absence(n.source, name, v), v) for name, v in value.items()}, why)
        else:
            raise ValueError(f"unknown guard kind {kind}")

    def check_int(self, n: Node, kind: str, value: Any, why: int) -> None:
        if kind == "EQ_MATCH":
            matches = type(value) is int and value in INT64
            self.emit("VAR_EQ", -1, n.var, value if matches else 0, None, why)
            if not matches:  # an int never equals a value of another type
                self.emit("VAR_EQ", -1, n.var, 1, None, why)
        elif kind not in ("INT", "TYPE_MATCH"):
            raise ValueError(f"a guard of kind {kind} on the integer {n.source}")

    def check_tensor(self, n: Node, spec: TensorSpec, why: int) -> None:
        t = spec.example
        if n.tensor:
            sizes = tuple(-1 if s is None else s for s in spec.sizes)
            strides = tuple(-1 if s is None else s for s in spec.strides)
            offset = getattr(spec, "offset", None)
            arg = (t, spec.pytype, spec.requires_grad, spec.ndim, sizes, strides, -1 if offset is None else offset)
            self.emit("TENSOR", -1, n.reg, 0, arg, why)
            return
        keys = native.torch._C._dispatch_keys(t).raw_repr()
        self.emit("TENSOR_SLOW", -1, n.reg, 0, (spec.bare(), keys, t.layout, ORIGINAL.is_conj(t), ORIGINAL.is_neg(t)), why)

    def check_cross(self, index: int, guard: Guard) -> None:
        reg = self.nodes[guard.source].reg
        regs = tuple(self.nodes[s].reg for s in others(guard))
        if guard.kind in ONE_OTHER:
            self.emit(ONE_OTHER[guard.kind], -1, reg, regs[0], None, index)
        elif guard.kind == "NOT_ALIAS":
            self.emit("DISTINCT", -1, -1, 0, (tuple(dict.fromkeys((reg, *regs))), ()), index)
        else:
            self.overlap(index, guard, regs)

    def overlap(self, index: int, guard: Guard, regs: tuple[int, ...]) -> None:
        nodes = [self.nodes[s] for s in others(guard)]
        flags = tuple(bool(f) for f in guard.value[1])
        if len(flags) != len(regs) * (len(regs) - 1) // 2:
            raise ValueError("STORAGE_OVERLAP takes one flag for each pair of sources, in the order of itertools.combinations")
        specs = [next((g.value for _, g in n.checks if g.kind == "TENSOR_MATCH"), None) for n in nodes]
        if all(n.tensor and s is not None for n, s in zip(nodes, specs)):
            numbers = (*(s.dtype.itemsize for s in specs if s is not None), *flags)
            self.emit("OVERLAP", -1, -1, 0, (regs, numbers), index)
            return
        self.predicates.append((shares_as_told(flags), tuple(self.hidden(n) for n in nodes)))
        self.predicate_why.append(index)

    # ---- relations ----

    def prepare_relations(self) -> None:
        for r, expr in enumerate(self.relations):
            names = tuple(s.name for s in expr.symbols())
            self.relation_vars.append(names)
            sources = {self.symbols[name] for name in names}
            self.missing.append(len(sources))
            for s in sources:
                self.waiting.setdefault(s, []).append(r)
            self.boxed.update(self.symbols[s.name] for s in expr.symbols() if s.kind is not int)

    def relation(self, r: int) -> None:
        names = self.relation_vars[r]
        nodes = [self.nodes[self.symbols[name]] for name in names]
        index = {name: n.var for name, n in zip(names, nodes, strict=True)}
        steps = self.relations[r].postfix(index) if all(v >= 0 for v in index.values()) else None
        if steps is None or any(s[0] == "const" and s[1] not in INT64 for s in steps):
            self.late.append(r)
            return
        self.native_relations.append([(POSTFIX[s[0]], int(s[1]) if len(s) > 1 else 0) for s in steps])
        self.emit("RELATION", -1, -1, len(self.native_relations) - 1, None, -1 - r)

    def python_relation(self, r: int) -> None:
        """A relation over floats, or with operators that the engine lacks: a Python function over the values."""
        names = self.relation_vars[r]
        holds = eval(f"lambda {', '.join(names)}: {self.relations[r].python()}", {"math": maths})
        args = tuple(self.hidden(self.nodes[self.symbols[name]]) for name in names)
        self.predicates.append((holds, args))
        self.predicate_why.append(-1 - r)

    # ---- slots ----

    def slot(self, n: Node) -> tuple[bool, int]:
        return (True, n.var) if n.reg < 0 else (False, n.reg)

    def hidden(self, n: Node) -> int:
        """The index of a slot behind the visible ones that holds this node for a predicate."""
        self.out.append(self.slot(n) if n.var < 0 else (True, n.var))
        return len(self.out) - 1

    def build(self) -> native.Guard:
        self.prepare_relations()
        self.collect()
        for index, guard in self.state:
            self.emit("STATE", -1, -1, 0, guard.value, index)
        for r, count in enumerate(self.missing):
            if not count:
                self.relation(r)
        for root in self.roots:
            self.visit(root, None)
        while self.keyed:  # a key that is an item itself comes in its turn
            n, base = self.keyed.pop(0)
            if self.nodes[n.source.arg].reg < 0:
                self.keyed.append((n, base))
            else:
                self.visit(n, base)
        for index, guard in self.cross:
            if guard.kind != "STORAGE_OVERLAP":
                self.check_cross(index, guard)
        for slot in self.slots:
            if isinstance(slot, Source):
                self.out.append(self.slot(self.nodes[slot]))
            else:
                n = self.nodes[self.symbols[slot if isinstance(slot, str) else slot.name]]
                self.out.append((True, n.var) if n.var >= 0 else self.slot(n))
        visible = self.visible = len(self.out)
        for index, guard in self.cross:
            if guard.kind == "STORAGE_OVERLAP":
                self.check_cross(index, guard)
        self.late += [r for r, count in enumerate(self.missing) if count > 0]  # over floats and bools, which bind no variable
        for r in dict.fromkeys(self.late):
            self.python_relation(r)
        for index, guard in self.asked:
            self.predicates.append((guard.value, (self.hidden(self.nodes[guard.source]),)))
            self.predicate_why.append(index)
        for index, guard in self.questions:
            self.predicates.append((guard.value, ()))
            self.predicate_why.append(index)
        counts = (self.nregs, self.nvars, self.nargs)
        describe = Describe(self)
        return native.Guard(self.code, self.native_relations, counts, self.out, visible, self.predicates, describe)


#: Guards that are one instruction over a register: its number, and what becomes of the value (None: nothing).
SIMPLE: dict[str, tuple[int, Any]] = {
    "TYPE_MATCH": (OP["IS_TYPE"], None),
    "ID_MATCH": (OP["IS_OBJECT"], None),
    "EQ_MATCH": (OP["EQ"], None),
    "DICT_KEYS": (OP["KEYS"], tuple),
    "DICT_CONTAINS": (OP["CONTAINS"], tuple),
    "DICT_LACKS": (OP["LACKS"], None),
    "SET_EQUALS": (OP["SET_EQ"], None),
    "FUNCTION": (OP["FUNCTION"], tuple),
}


def shares_as_told(flags: tuple[bool, ...]) -> Callable[..., bool]:
    """Whether tensors share memory as `flags` say, one for each pair of them."""

    def holds(*tensors: Any) -> bool:
        return all(native.share_memory(a, b) == f for (a, b), f in zip(itertools.combinations(tensors, 2), flags, strict=True))

    return holds


def absence(source: Source, name: str, value: Any) -> int:
    """0: the class attribute is `value`; 1: there is none. Both are written as None: the class itself tells, if it is known."""
    if value is not None:
        return 0  # for `<mro>`: the MRO, the class itself aside
    if source.op != "const":
        return 2
    return 0 if any(name in c.__dict__ for c in source.arg.obj.__mro__) else 1


def others(guard: Guard) -> tuple[Source, ...]:
    """The further sources that a guard over several objects compares."""
    if guard.kind in ONE_OTHER:
        return (guard.value,)
    if guard.kind == "STORAGE_OVERLAP":
        return tuple(guard.value[0])
    return tuple(guard.value)


def fast_tensor(spec: TensorSpec) -> bool:
    t = spec.example
    if torch._C._len_torch_function_stack():  # no mode of the program is asked
        with torch._C.DisableTorchFunction():
            return is_plain(t, spec)
    return is_plain(t, spec)


def is_plain(t: Any, spec: TensorSpec) -> bool:
    return native.plain_tensor(t) and t.dtype is spec.dtype and t.device == spec.device and t.ndim == spec.ndim


class Why(NamedTuple):
    """Why a guard did not hold: the number of the guard or of the relation that failed, in words, what could not be read, and of a list
    the length that was expected and the one that it has (of a dict: the keys).
    """

    guard: int | None
    relation: int | None
    text: str
    unread: Source | None = None
    walked: tuple[Any, Any] | None = None


class Describe:
    """Why a program failed, in words: called by `Guard.explain` with the failing instruction, the value seen, the variables.

    Texts are made when somebody asks, and nothing here keeps alive what the guard holds weakly.
    """

    def __init__(self, c: Compiler) -> None:
        # numbers and parallel lists, no tuples: there would be thousands of them for the collector to walk over. Sources are named when
        # asked, but those whose path holds an object, which must not live for this
        sources = [g.source for g in c.guards]
        self.labels = [s.name if s.holds else s for s in sources]
        self.kinds = [g.kind for g in c.guards]
        self.expected = [g.value if g.kind == "DICT_LACKS" else expectation(g) for g in c.guards]
        self.relations = tuple(c.relations)
        self.relation_vars = c.relation_vars
        self.vars = {name: c.nodes[s].var for name, s in c.symbols.items()}
        self.int_vars = c.int_vars
        self.why = c.why
        self.predicate_why = c.predicate_why
        self.readers: dict[int, Source | str] = {}
        self.roots: set[int] = set()
        self.firsts: dict[int, int] = {}
        for i, n in c.reader.items():
            source = n.source
            self.readers[i] = source.name if source.holds else source
            if source.base is None:
                self.roots.add(i)
            if n.first >= 0:
                self.firsts[i] = n.first

    def __call__(self, instruction: int, seen: Any, variables: tuple[int, ...]) -> Why:
        late = instruction - len(self.why) - 1  # the program ends with one instruction of its own
        index = self.why[instruction] if late < 0 else self.predicate_why[late]
        if index is None:
            if instruction not in self.readers:
                return Why(None, None, f"a 64-bit int was expected, saw {short(seen, 'INT')}")
            before = "it is gone" if instruction in self.roots else f"the {type_text(type(seen))} before it has none"
            source = self.readers[instruction]
            text = f"{name_of(source)} cannot be read: {before}"
            return Why(self.firsts.get(instruction), None, text, None if isinstance(source, str) else source)
        if index < 0:
            index = -1 - index
            names = self.relation_vars[index]
            values = seen if late >= 0 else [variables[self.vars[n]] for n in names]
            shown = ", ".join(f"{n} = {v!r}" for n, v in zip(names, values, strict=True))
            return Why(None, index, f"{self.relations[index]} is false: {shown}")
        source, kind, value = self.labels[index], self.kinds[index], self.expected[index]
        if kind in MESSAGES:
            return Why(index, None, f"{kind} failed: {MESSAGES[kind]}")
        if kind == "DICT_LACKS":
            return Why(index, None, f"{name_of(source)}: {too_much(value, seen)}")
        if kind == "ANSWER":
            return Why(index, None, f"ANSWER failed: {value} any more")
        var = self.int_vars.get(index)
        now = str(variables[var]) if var is not None else short(seen[0] if late >= 0 else seen, kind)
        text = f"{name_of(source)}: {kind} expected {text_of(kind, value)}, saw {now}"
        return Why(index, None, text, walked=walked(kind, value, seen))


def walked(kind: str, value: Any, seen: Any) -> tuple[Any, Any] | None:
    """The two lengths, or the two lists of keys, where another was seen than was expected; never by a class's own `__len__`."""
    if kind == "LENGTH" and type(seen) in (list, tuple, dict):
        return value, len(seen)
    if kind == "DICT_KEYS" and value is not None and type(seen) is dict and set(map(type, seen)) <= {str}:
        return tuple(value), tuple(seen)
    return None


def name_of(source: Source | str) -> str:
    return source if isinstance(source, str) else source.name


def expectation(guard: Guard) -> Any:
    """What is needed to say later what the guard wanted, without holding on to objects; `text_of` makes the words."""
    v, kind = guard.value, guard.kind
    if kind == "TYPE_MATCH":
        return weakref.ref(v)
    if kind == "DICT_CONTAINS" and type(v[0]) is str or kind == "EQ_MATCH" and type(v) in ATOMS or kind == "LENGTH":
        return v
    if kind == "DICT_KEYS" and set(map(type, v)) <= {str}:
        return v
    if kind == "TENSOR_MATCH":
        return v.pytype.__name__, v.dtype, v.device, v.requires_grad, v.sizes, v.strides
    if kind == "ID_MATCH":
        return object_text(v)
    if kind in ONE_OTHER:
        return f"the object at {v.name}" if kind == "ALIAS" else f"no item {v.name}"
    if kind == "EMPTY":
        return f"an empty {v.__name__}"
    if kind == "TYPE_ATTRS":
        return f"the same class attributes {', '.join(v)}"
    if kind == "ANSWER":
        return v.told()
    return FIXED[kind] if kind in FIXED else clip(value_text(v))


def text_of(kind: str, value: Any) -> str:
    if kind == "TENSOR_MATCH":
        return tensor_text(*value)
    if kind == "TYPE_MATCH":
        t = value()
        return type_text(t) if t is not None else "a class that is gone"
    return value if type(value) is str else clip(value_text(value))


def too_much(lacking: dict[str, type | None], seen: Any) -> str:
    """What a dict holds that a DICT_LACKS did not expect."""
    if not issubclass(type(seen), dict):
        return f"a dict was expected, saw {type_text(type(seen))}"
    for name, kind in lacking.items():
        there = dict.__contains__(seen, name)
        value = dict.get(seen, name)
        found = clip(value_text(value)) if there else "nothing"
        if kind is None and there:
            return f"DICT_LACKS expected no {name!r}, saw {found}"
        if kind is not None and (type(value) is not kind or value):
            return f"DICT_LACKS expected an empty {kind.__name__} as {name!r}, saw {found}"
    return "DICT_LACKS failed"


MESSAGES = {
    "NOT_ALIAS": "two inputs that were different objects are now the same",
    "STORAGE_OVERLAP": "inputs share memory differently",
    "GLOBAL_STATE": "torch's global state (grad mode, autocast, default dtype or device, determinism, modes) has changed",
}


FIXED = {
    "INT": "a 64-bit int",
    "FLOAT": "a float",
    "BOOL": "a bool",
    "PREDICATE": "a value that satisfies it",
    "FUNCTION": "the same code and defaults",
    "NOT_ALIAS": "",
    "STORAGE_OVERLAP": "",
    "GLOBAL_STATE": "",
}


SIZED = (list, tuple, dict, set, frozenset, str, bytes)


def short(seen: Any, kind: str) -> str:
    if issubclass(type(seen), native.torch.Tensor) and kind == "TENSOR_MATCH":
        with native.torch._C.DisableTorchFunction():
            if seen.is_nested:  # there are no sizes and strides of the whole
                return f"{type(seen).__name__}({seen.dtype}, {seen.device}, requires_grad={seen.requires_grad}, nested)"
            strides = ORIGINAL.stride(seen) if seen.layout is native.torch.strided else ()
            return tensor_text(type(seen).__name__, seen.dtype, seen.device, seen.requires_grad, tuple(seen.shape), strides)
    if kind in ("TYPE_MATCH", "FLOAT", "BOOL"):
        return type_text(type(seen))
    if kind == "ID_MATCH":
        return object_text(seen)
    if kind == "LENGTH":
        return str(len(seen)) if type(seen) in SIZED else type_text(type(seen))
    if kind == "DICT_KEYS":
        return clip(value_text(list(dict.keys(seen)))) if issubclass(type(seen), dict) else type_text(type(seen))
    return clip(value_text(seen))


def tensor_text(pytype: str, dtype: Any, device: Any, grad: bool, sizes: tuple, strides: tuple) -> str:
    show = lambda t: "[" + ", ".join("*" if x is None else str(x) for x in t) + "]"
    return f"{pytype}({dtype}, {device}, requires_grad={grad}, sizes={show(sizes)}, strides={show(strides)})"


def compile_guards(
    guards: Sequence[Guard], symbols: dict[str, Source] | None = None, relations: Sequence[Any] = (), slots: Sequence[Any] = ()
) -> native.Guard:
    """The native guard that holds exactly when all `guards` and `relations` do.

    `symbols` maps the names that occur in relations to the sources of their values (sizes, strides, offsets, Python numbers).
    `slots` lists what a successful check hands out, in order: a `Source` (the object there, or the int of a size) or the name of a symbol.
    Raises `ValueError` for a guard that no program can express, `KeyError` for a relation over a symbol without source.
    """
    return compiled(guards, symbols or {}, relations, slots)[0]


def compiled(
    guards: Sequence[Guard], symbols: dict[str, Source], relations: Sequence[Any], slots: Sequence[Any]
) -> tuple[native.Guard, Compiler]:
    """`compile_guards`, with the compiler that made it: it knows the program."""
    with native.torch._C.DisableTorchFunction():  # looking at example tensors runs no user code
        c = Compiler(guards, symbols, relations, slots)
        return c.build(), c
