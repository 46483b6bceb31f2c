"""Programs as text: what `print(program)` shows, and the file `program.txt` of a saved one. Reading evaluates nothing but literals.

    pliant program 1: M, form core
    symbol s0 = 5 in [0, inf] backed size int
    input parameter fc.weight %1: f32 [4, 4] strides [4, 1]
    input user x %0: f32 [s0, 4] strides [4, 1]
    input user k s6
    %2: f32 [s0, 4] strides [4, 1] = aten.add.Tensor(%0, 1)  # model.py:12 in M.forward
    require s0 <= 512  # model.py:14 in M.forward
    assert u0 >= 0  # why
    branch u1 > 0  # model.py:15 in M.forward
    output user logits %2
    output mutation cache.k.out of cache.k %7

Values, operations and symbols are written as in `lower/text.py`.
"""

from __future__ import annotations

import keyword
import re
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export import naming, rederive
from pliant.export.program import Input, Output, Program, Relation
from pliant.graph.traced import TracedTensor
from pliant.guards.guard import Site
from pliant.lower import liveness
from pliant.lower import text as lowered
from pliant.symbolic.dims import OPEN
from pliant.symbolic.expr import Expr
from pliant.symbolic.minimize import without_declared
from pliant.symbolic.relation import normal
from pliant.symbolic.scope import BRANCH, SymGuard

VERSION = 1
HEAD = re.compile(r"pliant program (\d+): (\w+), form (\w+)")
KINDS = frozenset(("user", "parameter", "buffer", "constant", "mutation", "gradient"))
INPUT = re.compile(r"input (\w+)( written)? (\S+) (.+)")
OUTPUT = re.compile(r"output (\w+) (\S+)(?: of (\S+))? (\S.*)")
NAME = re.compile(r"[a-z]\d{1,9}|[A-Za-z]\w*_size(_\d+)?")
MARK = "  # "
SITE = re.compile(r"(.*):(\d{1,9}) in (.*)")

SPACES = frozenset(("aten", "prims", "pliant_numpy"))
DENIED = frozenset(("from_file", "save", "load", "_print", "set_", "set_data", "data", "__torch__"))
"""Operators of ATen that reach outside of their operands."""


class FormatError(PliantError, ValueError):
    """A file, or a text, that is no program that this version can read."""


# -- writing ----------------------------------------------------------------------------------------------------------------
def program_text(p: Program) -> str:
    """The program, a line each; its variants one after the other."""
    return "".join(map(one_text, (p, *p.variants)))


def one_text(p: Program) -> str:
    owners: dict[int, int] = {}
    known: set[int] = set()
    lines = [f"pliant program {VERSION}: {p.name}, form {p.form}"]
    lines += [lowered.symbol_text(s) for s in needed_symbols(p)]
    for i in p.inputs:
        written = " written" if i.written else ""
        if i.is_tensor:
            known.add(i.value.vid)
            lines.append(f"input {i.kind}{written} {quoted(i.name)} {lowered.tensor_text(i.value, owners)}")
        else:
            lines.append(f"input {i.kind}{written} {quoted(i.name)} {i.value.name}")
    for op in p.ops:
        lines.append(lowered.op_text(op, owners, known) + marked("" if op.site is None else str(naming.user_site(op.site))))
    lines += [f"require {r.expr.python()}" + marked(r.site) for r in p.relations if r.expr.const is None]
    for r in p.asserts:
        word, words = ("branch", r.site) if r.why == BRANCH else ("assert", r.site or r.why)
        lines.append(f"{word} {r.expr.python()}{marked(words)}")
    for o in p.outputs:
        of = f" of {quoted(o.of)}" if o.of else ""
        lines.append(f"output {o.kind} {quoted(o.name)}{of} {lowered.value_text(o.value)}")
    return renumbered(lines)


def renumbered(lines: list[str]) -> str:
    """The text with tensors numbered as they appear, so that it does not depend on how the program came about."""
    numbers: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return numbers.setdefault(found[0], f"%{len(numbers)}")

    out = []
    for line in lines:
        body, mark, words = line.partition(MARK)
        out.append(re.sub(r"(?<![\w.])%\d+\b", number, body) + mark + words)
    return "\n".join(out) + "\n"


def quoted(name: str) -> str:
    """A name without spaces."""
    return re.sub(r"[^\w.\[\]'\-/:]", lambda m: f"${ord(m.group()):x};", name)


def unquoted(name: str) -> str:
    return re.sub(r"\$([0-9a-f]{1,6});", lambda m: chr(int(m.group(1), 16)), name)


def marked(words: str) -> str:
    return MARK + " ".join(words.split()) if words else ""


def site_of(words: str) -> Site | None:
    found = SITE.fullmatch(words)
    return None if found is None else Site(found[1], int(found[2]), found[3])


def needed_symbols(p: Program) -> list[Expr]:
    """The symbols that anything of the program speaks of, in the order of the scope."""
    seen: set[str] = set()

    def note(x: Any) -> None:
        for leaf in liveness.leaves(x):
            if type(leaf) is TracedTensor:
                note([*leaf.sizes, *leaf.strides, leaf.offset])
            elif (e := liveness.number(leaf)) is not None:
                seen.update(s.name for s in e.symbols())

    for i in p.inputs:
        note(i.value)
    for op in p.ops:
        note([op.args, op.kwargs, op.outs, [b.symbol for b in op.binds]])
    note([o.value for o in p.outputs])
    note([r.expr for r in (*p.relations, *p.asserts)])
    return [s for s in p.scope.symbols.values() if s.name in seen]


# -- reading ----------------------------------------------------------------------------------------------------------------
UNREADABLE = (
    ValueError, KeyError, SyntaxError, AttributeError, RuntimeError, TypeError, IndexError, OverflowError, RecursionError, ArithmeticError,
    PliantError, MemoryError, AssertionError,
)  # fmt: skip


class Reader(lowered.Reader):
    """Reads one program. `spaces`: namespaces of operators that the file may name."""

    dim = OPEN  # as in the capture: what is recorded anew must be right for all sizes

    def __init__(self, spaces: frozenset[str] = SPACES) -> None:
        super().__init__()
        self.spaces = spaces
        self.inputs: list[Input] = []
        self.outputs: list[Output] = []
        self.ops: list[Any] = []
        self.relations: list[Relation] = []
        self.asserts: list[Relation] = []

    @classmethod
    def whole(cls, text: str, spaces: frozenset[str] = SPACES) -> Program:
        """The program and its variants, without signatures and weights."""
        parts = re.split(r"(?m)^(?=pliant program )", text)
        p, *p.variants = [cls(spaces).program(part) for part in parts[1:] or parts]
        if parts[0] and parts[1:]:
            raise FormatError(f"this is no program: it begins with {parts[0][:60]!r}")
        return p

    def program(self, text: str, checked: bool = True) -> Program:
        """The program without its signature and weights. FormatError names a line that is wrong. Unless `checked`, the text is believed."""
        head, *lines = text.splitlines() or [""]
        found = HEAD.fullmatch(head)
        if found is None or not found[2].isidentifier() or keyword.iskeyword(found[2]):
            raise FormatError(f"this is no program: it begins with {head[:60]!r}")
        if int(found[1]) != VERSION:
            raise FormatError(f"this program has format {found[1]}; this pliant reads format {VERSION}")
        with self.trace.paused():
            for number, line in enumerate(lines, 2):
                try:
                    self.entry(line)
                except FormatError:
                    raise
                except UNREADABLE as e:
                    raise FormatError(f"line {number} of the program cannot be read ({type(e).__name__}: {e}): {line[:120]!r}") from e
        self.ranges()
        p = Program(
            name=found[2], form=found[3], trace=self.trace, inputs=self.inputs, outputs=self.outputs, ops=self.ops,
            relations=self.relations, asserts=self.asserts, checks=[], result=None, state={},
        )  # fmt: skip
        numbers = [int(found[1]) for name in self.names if (found := re.fullmatch(r"u(\d{1,9})", name))]
        self.trace.next_unbacked = max(numbers, default=-1) + 1
        try:
            if checked:
                rederive.check(p)
        except UNREADABLE as e:
            raise FormatError(f"the program contradicts itself ({type(e).__name__}: {e})") from e
        return p

    def entry(self, line: str) -> None:
        body, _, words = line.partition(MARK)
        word, _, rest = body.partition(" ")
        if word == "symbol":
            name = rest.split(" ", 1)[0]
            if name in self.names or not NAME.fullmatch(name):
                raise ValueError(f"{name} is declared twice, or is no name that a symbol can have")
            self.symbol(body)
        elif word == "input":
            self.read_input(body)
        elif word == "output":
            self.read_output(body)
        elif word == "require":
            self.require(rest, words)
        elif word == "branch":
            self.asserts.append(Relation(self.truth(rest), words, BRANCH))
        elif word == "assert":
            self.asserts.append(Relation(self.truth(rest), *((words, "") if SITE.fullmatch(words) else ("", words))))
        elif word:
            op = self.operation(body)
            op.site = site_of(words)
            self.ops.append(op)

    def truth(self, text: str) -> Any:
        e = lowered.parse(text, self.names)
        return e if type(e) is Expr else self.scope.ctx.lift(bool(e))

    def require(self, words: str, site: str) -> None:
        """A condition of the inputs. The range of a symbol is simply true by its declaration: as a condition it stands as it is."""
        e = self.truth(words)
        if e.const is True:
            e = next((g.user_form for g in self.scope.declared_guards() if g.user_form.python() == words), e)
        if e.const is not True:
            self.relations.append(Relation(e, site, "declared" if self.scope.known_true(e) else ""))

    def ranges(self) -> None:
        """What the declared ranges of inputs ask for, where no condition does."""
        asked = [SymGuard(normal(r.expr), None, "", r.expr) for r in self.relations if r.expr.const is None]
        known = {r.expr for r in self.relations}
        missing = [g for g in self.scope.declared_guards() if g.user_form not in known]
        self.relations += [Relation(g.user_form, "", g.why) for g in without_declared(missing, asked)]

    def read_input(self, line: str) -> None:
        found = INPUT.fullmatch(line)
        if found is None or found[1] not in KINDS:
            raise ValueError("not an input")
        name = unquoted(found[3])
        if any(i.name == name for i in self.inputs):
            raise ValueError(f"the input {name} is declared twice")
        value = self.tensor(found[4]) if found[4].startswith("%") else self.names[found[4]]
        self.inputs.append(Input(name, found[1], value, written=bool(found[2])))

    def read_output(self, line: str) -> None:
        found = OUTPUT.fullmatch(line)
        if found is None or found[1] not in KINDS:
            raise ValueError("not an output")
        self.outputs.append(Output(unquoted(found[2]), found[1], self.value(found[4]), of=unquoted(found[3] or "")))

    def operation(self, line: str) -> Any:
        found = lowered.CALL.fullmatch(line)
        if found is None:
            raise ValueError("not an operation")
        allowed(found["target"], self.spaces)
        return super().operation(line)


def allowed(target: str, spaces: frozenset[str]) -> None:
    """Raises FormatError for an operator that a file may not name."""
    space, name, overload = target.split(".")
    if space not in spaces:
        raise FormatError(f"the operator {target} is of a library that this file was not allowed to use: load(..., libraries=[{space!r}])")
    if name in DENIED or (
        space in SPACES and not torch._C._dispatch_has_kernel(f"{space}::{name}" + ("" if overload == "default" else f".{overload}"))
    ):
        raise FormatError(f"{target} is no operator that a program may have")
