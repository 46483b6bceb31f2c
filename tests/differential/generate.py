"""From the grammar to programs: a typed walk over the tables, decided by hypothesis or by a seed (`benchmarks.fuzz`)."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import linecache
import random
import re
from collections.abc import Callable
from types import CodeType
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from tests.differential import (
    grammar_bundles,
    grammar_guises,
    grammar_keepers,
    grammar_loops,
    grammar_memory,
    grammar_outside,
    grammar_python,
    grammar_ragged,
    grammar_states,
    grammar_users,
    prelude,
)
from tests.differential.grammar import EXPRESSIONS, STATEMENTS
from tests.helpers import Call, Observed

STATES = grammar_states.THEMES | grammar_memory.THEMES | grammar_guises.THEMES
STATES |= grammar_outside.THEMES | grammar_bundles.THEMES | grammar_keepers.THEMES | grammar_ragged.THEMES
DIFFERENTIATED = ("grad", "history", "training", "names", "guises", "transforms")
AROUND = tuple(name for name, theme in STATES.items() if theme.use is not None)
USERS = ("users", "training", "loops", "reports")
LOOPS = {
    "loops": (grammar_loops.LOOP_EXPRESSIONS, grammar_loops.LOOP_STATEMENTS),
    "reports": (grammar_loops.REPORT_EXPRESSIONS, grammar_loops.REPORT_STATEMENTS),
}
SIZE = 18  # statements in a program, at most
HOLE = re.compile(r"<(?:(new|loc|fn):)?([A-Z]|ret|=\d)(?::(var|own))?>")
ARGUMENTS = "x, y, n, flag, items, table, vec, k, thing"
LEAVES = {
    "T": "x",
    "R": "x.sum(0)",
    "C": "x.sum()",
    "A": "x.reshape(-1)",
    "M": "(x > 0)",
    "I": "n",
    "F": "0.5",
    "B": "flag",
    "S": "'ab'",
    "L": "items",
    "N": "[n, 2]",
    "D": "table",
    "Q": "collections.deque([x])",
    "O": "Box(x, n)",
    "P": "(x, n)",
    "V": "vec",
    "W": "vec[0]",
    "J": "k",
    "X": "thing",
    "G": "vec",
    "H": "hs[0]",
    "E": "x[:1]",
    "U": "marks(x)",
    "Y": "[x[:1], x]",
}
INITIAL = {"x": "T", "y": "T", "n": "I", "flag": "B", "items": "L", "table": "D", "BOX": "O"}  # arguments of `fn`, and one global
FOREIGN = {"vec": "V", "k": "J", "thing": "X", "UNIT": "I"}  # the others, for the theme that has NumPy's values and objects of all kinds
NUMBERS = {"vec": "V", "k": "W", "thing": "F"}  # what they are for `USERS`
EXTRA = {"arrays": {"vec": "V"}, "guises": {"vec": "G"}}


class Drawn:
    """Decisions by hypothesis, which makes what fails small."""

    def __init__(self, draw: Callable) -> None:
        self.draw = draw

    def number(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def one(self, values: list) -> Any:
        return self.draw(st.sampled_from(values))


class Diced:
    """Decisions by a seed: a hundred times as fast."""

    def __init__(self, seed: Any) -> None:
        dice = random.Random(seed)
        self.number, self.one = dice.randint, dice.choice


@dataclasses.dataclass
class Variable:
    name: str
    kind: str
    level: int  # which function's local it is


class Writer:
    """Writes one program. `pick` decides; `budget` bounds the number of statements."""

    def __init__(self, pick: Drawn | Diced, theme: str, size: int) -> None:
        self.pick = pick
        self.breaks = theme not in ("pure", "exits", "leaves")
        self.statements = STATEMENTS["*"] + (STATEMENTS["inplace"] if theme not in (*DIFFERENTIATED, *AROUND) else [])
        if theme == "breaks":
            self.statements = self.statements + STATEMENTS["break"] * 3
        if theme == "foreign":
            self.statements = self.statements + STATEMENTS["foreign"] * 2
        if theme in ("exits", "leaves"):
            self.statements = self.statements + STATEMENTS["exits"] * 3
        if theme in ("leaves", "history"):
            self.statements = self.statements + STATEMENTS[theme] * 3
        if theme == "python":
            self.statements = self.statements + grammar_python.STATEMENTS * 3
        if theme in USERS:
            self.statements = self.statements + grammar_users.STATEMENTS * (1 if theme in LOOPS else 3)
        if theme in LOOPS:
            self.statements = self.statements + LOOPS[theme][1] * 6
        if theme in STATES:
            self.statements = self.statements + STATES[theme].statements * 6
        kept = {"#": self.breaks, "@": theme in ("foreign", "arrays"), "!": theme in ("exits", "leaves")}
        left_out = {c for c, on in kept.items() if not on}
        self.expressions = {k: [r.lstrip("#@!") for r in rows if r[0] not in left_out] for k, rows in EXPRESSIONS.items()}
        if theme == "python":
            self.expressions = {k: rows + grammar_python.EXPRESSIONS.get(k, []) * 2 for k, rows in self.expressions.items()}
        if theme in USERS:
            self.expressions = {k: rows + grammar_users.EXPRESSIONS.get(k, []) * 2 for k, rows in self.expressions.items()}
        if theme in LOOPS:
            self.expressions = {k: rows + LOOPS[theme][0].get(k, []) * 3 for k, rows in self.expressions.items()}
        if theme in STATES:
            own = STATES[theme].expressions
            self.expressions = {k: self.expressions.get(k, []) + own.get(k, []) * 3 for k in dict.fromkeys([*self.expressions, *own])}
        self.use = STATES[theme].use if theme in STATES else None
        self.budget = size
        self.level = 0
        self.comprehensions = 0
        self.pending: list[tuple[str, Variable]] = []
        self.inner_result = "t"
        self.names = itertools.count()
        there = INITIAL | (FOREIGN if theme == "foreign" else NUMBERS if theme in USERS else EXTRA.get(theme, {}))
        self.scopes: list[list[Variable]] = [[Variable(n, k, -1 if n.isupper() else 0) for n, k in there.items()]]
        self.ret = "(<T>, <P>, <O>)"

    # ------------------------------------------------------------------------------------------------ expressions
    def variables(self, kind: str, own: bool = False) -> list[str]:
        return [v.name for scope in self.scopes for v in scope if v.kind == kind and (not own or v.level == self.level)]

    def expression(self, kind: str, depth: int) -> str:
        known = self.variables(kind)
        if depth <= 0 or (known and self.pick.number(0, 2) == 0):
            return self.pick.one(known) if known else LEAVES[kind]
        row = self.pick.one(self.expressions[kind])
        if ":=" in row and self.comprehensions:  # not allowed in a comprehension's iterable
            row = f"<{kind}:var>"
        self.comprehensions += " for " in row
        text = HOLE.sub(lambda m: self.hole(m, depth - 1, []), row)
        self.comprehensions -= " for " in row
        return text if re.fullmatch(r"[\w.]+|\w+\([^()]*\)|[\[{(][^()\[\]{}]*[\]})]", text) else f"({text})"

    def hole(self, m: re.Match, depth: int, declared: list[Variable]) -> str:
        what, kind, which = m.groups()
        if kind == "ret":
            return HOLE.sub(lambda h: self.hole(h, 1, declared), self.ret)
        if kind[0] == "=":
            return declared[int(kind[1:]) - 1].name
        if what:
            v = Variable(f"{kind.lower()}{next(self.names)}" if what != "fn" else f"f{next(self.names)}", kind if what != "fn"
                else "fn", self.level)
            v_scope = "loc" if what == "loc" else "new"
            declared.append(v)
            self.pending.append((v_scope, v))
            return v.name
        if which:
            known = self.variables(kind, which == "own")
            if known:
                return self.pick.one(known)
            if which == "own":
                raise LookupError(kind)
            return LEAVES[kind]
        return self.expression(kind, depth)

    # ------------------------------------------------------------------------------------------------ statements
    def block(self, indent: str, loop: bool, at_least: int = 1) -> list[str]:
        self.scopes.append([])
        lines: list[str] = []
        n = self.pick.number(at_least, 3)
        for _ in range(n):
            lines += self.statement(indent, loop)
        self.scopes.pop()
        return lines or [indent + "pass"]

    def statement(self, indent: str, loop: bool) -> list[str]:
        if self.budget <= 0 or len(indent) > 16:
            return [indent + "pass"]
        self.budget -= 1
        rows = self.statements + (STATEMENTS["loop"] * 4 if loop else [])
        row = self.pick.one(rows)
        declared: list[Variable] = []
        self.scopes.append([])  # for the template's own locals
        lines: list[str] = []
        names, scopes = self.level, [list(s) for s in self.scopes]
        try:
            for line in row.splitlines():
                lines += self.line(line, indent, declared, loop)
        except LookupError:  # nothing here may be rebound
            self.level, self.scopes = names, scopes
            lines = [indent + "pass"]
        self.scopes.pop()
        return lines

    def line(self, line: str, indent: str, declared: list[Variable], loop: bool) -> list[str]:
        body = line.lstrip()
        indent = indent + line[: len(line) - len(body)]
        if body in ("<block>", "<loop>"):
            return self.block(indent, loop=body == "<loop>")
        if body == "<func>":
            return self.function(indent)
        if body.startswith("case "):  # what another case has bound is not there
            self.scopes[-1].clear()
        inside = "<ret>" in body and any(v.kind == "fn" for v in declared) and line != body
        self.pending = []
        if inside:
            text = HOLE.sub(lambda m: f"({self.inner_result})" if m[2] == "ret" else self.hole(m, 2, declared), body)
        else:
            self.comprehensions += " for " in body
            text = HOLE.sub(lambda m: self.hole(m, 2, declared), body)
            self.comprehensions -= " for " in body
        for where, v in self.pending:
            self.scopes[-1 if where == "loc" else -2].append(v)
        self.pending = []
        return [indent + text]

    def function(self, indent: str) -> list[str]:
        """The body of a nested function of `t`: its own locals, the outer ones read only."""
        ret, self.ret = self.ret, "<T>"
        self.level += 1
        self.scopes.append([Variable("t", "T", self.level)])
        lines = self.block(indent, loop=False)
        self.inner_result = self.expression("T", 1)
        self.scopes.pop()
        self.level -= 1
        self.ret = ret
        return lines

    def program(self) -> str:
        lines = [f"def fn({ARGUMENTS}):"]
        count = self.pick.number(1, 8 if self.use is None else 5)
        for _ in range(count):
            self.scopes.append([])
            added = self.statement("    ", loop=False)
            extra = self.scopes.pop()
            self.scopes[0] += extra
            lines += added
        kinds = [v for v in self.scopes[0] if v.kind in "TRCAMIFBSLNDQOPVWJXGEUY" and len(v.kind) == 1]
        result = ", ".join(dict.fromkeys(v.name for v in kinds[-12:]))
        lines.append(f"    return {result}, {HOLE.sub(lambda m: self.hole(m, 2, []), '<T>')}")
        return "\n".join(lines + self.around()) + "\n"

    def around(self) -> list[str]:
        """The function `use`, which nobody compiles, if there is one: `fn` among what else a program does."""
        if self.use is None:
            return []
        entrances, calls, after, self.expressions = self.use
        self.scopes, self.budget = [[Variable("n", "I", 0)]], SIZE
        lines = ["", f"def use(fn, {ARGUMENTS}):"]
        given, found = [f"args = {ARGUMENTS}"], ["hs = heads(args, r)"]
        for rows, low, high in ((entrances, 1, 3), (given, 1, 1), (calls, 1, 1), (found, 1, 1), (after, 2, 6)):
            self.statements = rows
            for _ in range(self.pick.number(low, high)):
                lines += self.statement("    ", loop=False)
        return [*lines, "    return r"]


@dataclasses.dataclass
class Sizes:
    """What distinguishes one argument set from the next. `alias`: 1: items[0] is x, 2: y is x, 3: y is a view of x."""

    rows: int
    cols: int
    n: int
    flag: bool
    items: int
    alias: int


@dataclasses.dataclass
class Program:
    """A program and the argument sets to call it with, in order."""

    source: str
    sizes: list[Sizes]
    grad: bool = False
    python: bool = False  # it needs the classes of `grammar_python`, too
    users: bool = False  # it needs the module, optimizers and settings of `grammar_users`
    loops: bool = False  # and what `grammar_loops` has
    state: str | None = None  # the theme of `grammar_states`, `grammar_memory` or `grammar_guises` whose world it lives in

    def __repr__(self) -> str:
        return "\n".join(["", *(f"# {s}" for s in self.sizes), *(["# differentiated"] if self.grad else []), self.source])

    @property
    def between(self) -> bool:
        """Whether gradients of results are to be compared: hooks that it sets on one run behind those of whoever is given it; and no
        sections are made, which is a known difference, where it goes backward itself, or may raise behind writes to a module."""
        own = r"register_hook|retain_grad|\.backward\(|minimise\(|NET|nested_state|TIED|scaled|accumulate|penalty|loss_of"
        own += r"|LAYER|layer\(|leaf_grad"
        return not re.search(own, self.source)

    def world(self) -> tuple[Any, Observed]:
        """A fresh namespace with the program in it, observed through what the program can write to."""
        space: dict[str, Any] = {"__name__": prelude.__name__}  # dataclasses want the module to exist
        exec(PRELUDE_CODE, space)
        if self.python:
            exec(PYTHON_CODE, space)
        if self.users:
            exec(USERS_CODE, space)
        if self.loops:
            exec(LOOPS_CODE, space)
        if self.state is not None:
            exec(STATES_CODE[self.state], space)
        exec(compiled_source(self.source), space)
        space["BOX"] = space["Child"](torch.zeros(1), 0)

        def seen() -> list:
            own = STATES[self.state].names if self.state is not None else ()
            names = ("SEEN", "TABLE", "COUNT", "BOX", "UNIT", "memo", *grammar_users.NAMES, *grammar_loops.NAMES, *own)
            return [space[k] for k in names if k in space] + [space["Box"].made]

        return space["fn"], Observed(seen, space)

    def drive(self, fn: Any, world: Observed) -> Any:
        """What calls `fn`: itself, or the function around it."""
        return functools.partial(world.space["use"], fn) if "use" in world.space else fn

    def arguments(self) -> list[Call]:
        own = STATES[self.state].arguments if self.state is not None else None
        return [own(s) if own else arguments(s, self.grad, self.users) for s in self.sizes]

    def before(self, i: int, world: Observed) -> None:
        """Globals and a class change between calls."""
        s = self.sizes[i]
        world.space["UNIT"] = s.n % 3
        world.space["Thing"].unit = s.rows
        world.space["Number"].__bool__ = (lambda self: True) if s.flag else (lambda self: False)
        world.space["BOX"].t = tensor(s, 20, self.grad)
        world.space["BOX"].k = s.n
        if self.users:
            settings = world.space["SETTINGS"]
            settings.rate, settings.limit, world.space["NET"].training = s.n / 8, s.rows * 2, s.flag
            world.space["RAGGED"][:] = [(torch.arange(i * s.n % 4, dtype=torch.float32) - 1) / 2 for i in range(s.items + 1)]
        if self.state is not None and "between" in world.space:
            world.space["between"](i, s.n)


def fixed(text: str, name: str) -> CodeType:
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    return compile(text, name, "exec")


PRELUDE_CODE = fixed(prelude.PRELUDE, "<prelude>")
PYTHON_CODE = fixed(grammar_python.PRELUDE, "<prelude of python>")
USERS_CODE = fixed(grammar_users.PRELUDE, "<prelude of users>")
LOOPS_CODE = fixed(grammar_loops.PRELUDE, "<prelude of loops>")
STATES_CODE = {name: fixed(theme.prelude, f"<prelude of {name}>") for name, theme in STATES.items()}


def compiled_source(source: str) -> Any:
    name = f"<program {abs(hash(source)) % 10**8}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    return compile(source, name, "exec")


def tensor(s: Sizes, seed: int, grad: bool) -> torch.Tensor:
    """Values are fixed, exact in binary, of both signs."""
    flat = (torch.arange(s.rows * s.cols, dtype=torch.float32) * 7 + seed * 5) % 13 - 6
    return (flat / 4).reshape(s.rows, s.cols).requires_grad_(grad)


def arguments(s: Sizes, grad: bool = False, users: bool = False) -> Call:
    """The arguments of `fn`, from their sizes alone."""
    x = tensor(s, 0, grad)
    y = {2: lambda: x, 3: lambda: x.t().t()}.get(s.alias, lambda: tensor(s, 1, grad))()
    items = [tensor(s, i + 2, grad) for i in range(s.items)]
    if s.alias == 1:
        items[0] = x
    table = {"a": tensor(s, 10, grad), "b": tensor(s, 11, grad)}
    others = (vector(s), number(s), s.n / 4 - 0.5) if users else (vector(s), index(s), prelude.Thing(s.n))
    return Call((x, y, s.n, s.flag, items, table, *others), {})


def vector(s: Sizes) -> np.ndarray:
    """A NumPy array of a type, a length and, now and then, strides of its own."""
    dtype = (np.float64, np.int64, np.float32, np.int32, np.uint8, np.bool_)[(s.n + s.items) % 6]
    values = (np.arange(s.rows * 2) * 7 + s.n) % 11
    return values.astype(dtype)[:: 2 if s.flag else 1][: s.rows]


def index(s: Sizes) -> Any:
    """Something that can be an index: a number or an object."""
    n = s.n % 3
    kinds = (n, np.int64(n), prelude.Index(n), prelude.Level(n + 1), np.uint8(n), torch.tensor(n), bool(n % 2), np.int32(n))
    return kinds[(s.rows + s.cols) % 8]


def number(s: Sizes) -> Any:
    """A number of NumPy's or of Python's."""
    return (np.float64, np.int64, float, np.float32, int, np.int32)[(s.rows + s.n) % 6](s.n - 1)


SIZES = ([2, 3, 4, 5, 1], [3, 2, 4, 1])  # rows and columns: the usual ones first
RAGGED = ([2, 3, 4, 5, 1, 0], [3, 2, 4, 1, 0])  # those of `USERS` and `guises`


@st.composite
def programs(draw: Callable, theme: str = "mixed") -> Program:
    """A random program of a theme: `pure` never breaks the graph, `mixed` sometimes, `breaks` often, `grad` is differentiated too;
    `exits` branches on data at every turn, `leaves` has more writes, prints, random numbers and generators around them; `history` has
    gradients of gradients, hooks and writes among what is differentiated; `users` and `training` (differentiated too) have modules with
    state, optimizers, settings that change and ragged sizes, 0 among them; `loops` has training loops of all kinds and `reports` what is
    made of results: records, dicts, texts; those of `STATES` are told of where their grammar is; `foreign` has NumPy's values, objects with
    protocols of their own, and a world that changes."""
    source = Writer(Drawn(draw), theme, size=SIZE).program()
    alias = st.integers(0, 2 if theme in DIFFERENTIATED and theme != "guises" else 3)
    rows, cols = map(st.sampled_from, RAGGED if theme in (*USERS, "guises") else SIZES)
    sizes = st.builds(Sizes, rows, cols, st.integers(0, 7), st.booleans(), st.integers(1, 3), alias)
    how = (theme in DIFFERENTIATED, theme == "python", theme in USERS, theme in LOOPS, theme if theme in STATES else None)
    return Program(source, draw(st.lists(sizes, min_size=3, max_size=4)), *how)


def seeded(theme: str, seed: int) -> Program:
    """The program of that number."""
    pick = Diced(f"{theme} {seed}")
    source = Writer(pick, theme, size=SIZE).program()
    last = 2 if theme in DIFFERENTIATED and theme != "guises" else 3

    def one() -> Sizes:
        rows, cols = map(pick.one, RAGGED if theme in (*USERS, "guises") else SIZES)
        return Sizes(rows, cols, pick.number(0, 7), bool(pick.number(0, 1)), pick.number(1, 3), pick.number(0, last))

    how = (theme in DIFFERENTIATED, theme == "python", theme in USERS, theme in LOOPS, theme if theme in STATES else None)
    return Program(source, [one() for _ in range(pick.number(3, 4))], *how)
