"""Programs as text: what `print(program)` shows, and the file `program.txt` of a saved one. Reading evaluates nothing but literals.

    pliant program 1: M, form core
    symbol s0 = 5 in [0, inf] backed size int
    input parameter fc.weight %1: f32 [4, 4] strides [4, 1]
    input user x %0: f32 [s0, 4] strides [4, 1]
    input user k s6
    %2: f32 [s0, 4] strides [4, 1] = aten.add.Tensor(%0, 1)  # model.py:12 in M.forward
    require s0 <= 512  # model.py:14 in M.forward
    assert u0 >= 0 raises ValueError words  # where
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
from pliant.export.flows import all_ops
from pliant.export.program import Input, Output, Program, Relation, error_name, error_named
from pliant.graph.control_flow import FLOW, RANDOM_FLOW, Block, Branch, Flow, FlowOp, Leave, outputs_of
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.guards.guard import Site
from pliant.lower import liveness
from pliant.lower import text as lowered
from pliant.symbolic.dims import OPEN
from pliant.symbolic.expr import Expr
from pliant.symbolic.minimize import without_declared
from pliant.symbolic.relation import normal
from pliant.symbolic.scope import BRANCH, Assert, SymGuard

VERSION = 1
FLOW_WORD = "flow"
FLOW_LINE = re.compile(r"(?P<outs>.*?) = flow\((?P<args>.*)\)(?P<binds>(?: finds \w+ at \d+(?: size \d+)?)*)")
NOTHING = "()"
"""The results of a loop that nobody reads."""
DEEPEST = 40
"""Blocks in each other."""
HEAD = re.compile(r"pliant program (\d+): (\w+), form (\w+)")
KINDS = frozenset(("user", "parameter", "buffer", "constant", "mutation", "gradient"))
INPUT = re.compile(r"input (\w+)( written)? (\S+) (.+)")
OUTPUT = re.compile(r"output (\w+) (\S+)(?: of (\S+))? (\S.*)")
NAME = re.compile(r"[a-z]\d{1,9}|[A-Za-z]\w*_size(_\d+)?")
MARK = "  # "
RAISES = " raises "
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
        lines += op_lines(op, owners, known)
    lines += [f"require {r.expr.python()}" + marked(r.site) for r in p.relations if r.expr.const is None]
    for r in p.asserts:
        if r.why == BRANCH:
            lines.append(f"branch {r.expr.python()}{marked(r.site)}")
        else:
            lines.append(f"assert {r.expr.python()}{raising(r.error, r.why)}{marked(r.site)}")
    for o in p.outputs:
        of = f" of {quoted(o.of)}" if o.of else ""
        lines.append(f"output {o.kind} {quoted(o.name)}{of} {lowered.value_text(o.value)}")
    return renumbered(lines)


def op_lines(op: Op, owners: dict[int, int], known: set[int]) -> list[str]:
    """An operation; of a flow, its blocks too."""
    site = marked("" if op.site is None else str(naming.user_site(op.site)))
    if not isinstance(op, FlowOp):
        return [lowered.op_text(op, owners, known) + site]
    flow = op.flow
    carried = ", ".join(map(lowered.value_text, op.args[0]))
    inside = []
    for p in flow.params:
        if type(p) is TracedTensor:
            known.add(p.vid)
            inside.append(f"carried {lowered.tensor_text(p, owners)}")
        else:
            inside.append(f"carried {p.name}")
    if flow.sizes:
        inside.append(f"changing {', '.join(sorted(flow.sizes, key=natural))}")
    if flow.entry is not None:
        inside += ["entry", *indented(block_lines(flow.entry, owners, known))]
    inside += ["round" if flow.loops else "sides", *indented(block_lines(flow.body, owners, known))]
    made = lowered.outs_text(op, owners, known) or NOTHING
    return [f"{made} = {FLOW_WORD}({carried}){lowered.finds_text(op)}{site}", *indented(inside)]


def block_lines(b: Block, owners: dict[int, int], known: set[int]) -> list[str]:
    lines = [line for op in b.ops for line in op_lines(op, owners, known)]
    lines += [f"assert {a.expr.python()}{raising(error_name(a.error), a.message)}" for a in b.asserts if a.expr.const is None]
    if isinstance(b.end, Leave):
        return [*lines, f"{'again' if b.end.again else 'leave'} {lowered.value_text(b.end.values)}"]
    yes, no = (indented(block_lines(side, owners, known)) for side in (b.end.yes, b.end.no))
    return [*lines, f"branch {b.end.test.python()}", *yes, "else", *no]


def indented(lines: list[str]) -> list[str]:
    return ["  " + line for line in lines]


def natural(name: str) -> tuple[int, str]:
    return len(name), name


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


def raising(error: str, words: str) -> str:
    """What an assertion raises: RuntimeError is not named, nor are words that are not there."""
    return f"{RAISES}{error or 'RuntimeError'} {quoted(words)}".rstrip() if error or words else ""


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
    for op in all_ops(p.ops):
        note([op.args, op.kwargs, op.outs, [b.symbol for b in op.binds]])
        if isinstance(op, FlowOp):
            note([op.flow.params, *[[a.expr for a in b.asserts] for b in op.flow.blocks()], *map(outputs_of, op.flow.blocks())])
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
        self.lines: list[tuple[int, str]] = []  # with their numbers, the last first

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
            self.lines = [(number, line) for number, line in enumerate(lines, 2)][::-1]
            while self.lines:
                number, line = self.lines.pop()
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
            self.asserts.append(Relation(*self.assertion(rest, words)))
        elif word:
            self.ops.append(self.step(body, words, 0))

    def assertion(self, rest: str, words: str) -> tuple[Any, str, str, str]:
        """Its expression, line, words and exception."""
        rest, _, raised = rest.partition(RAISES)
        error, _, why = raised.partition(" ")
        site, why = (words, unquoted(why)) if raised or SITE.fullmatch(words) else ("", words)
        error_named(error)
        return self.truth(rest), site, why, error if error != "RuntimeError" else ""

    def step(self, body: str, words: str, depth: int) -> Op:
        """One operation; of a flow, the lines behind it too."""
        found = FLOW_LINE.fullmatch(body)
        op: Op = self.operation(body) if found is None else self.flow(found, depth + 1)
        op.site = site_of(words)
        return op

    # -- flows ------------------------------------------------------------------------------------------------------------------
    def inner(self, depth: int) -> tuple[str, str]:
        """The next line, if it is this deep; else two empty texts."""
        pad = "  " * depth
        if not self.lines or not self.lines[-1][1].startswith(pad) or depth > DEEPEST:
            return "", ""
        body, _, words = self.lines[-1][1].partition(MARK)
        return body[len(pad) :], words

    def taken(self, depth: int) -> tuple[str, str, str]:
        """The next line, taken: its first word, the rest, what is behind the mark."""
        body, words = self.inner(depth)
        if not body or body.startswith(" "):
            raise ValueError("a line of a loop or branch is missing, or not as deep as it should be")
        self.lines.pop()
        return (*body.partition(" ")[::2], words)  # type: ignore[return-value]

    def flow(self, found: re.Match[str], depth: int) -> FlowOp:
        carried = self.value(f"[{found['args']}]")
        params: list[Any] = []
        sizes: frozenset[str] = frozenset()
        entry = None
        while True:
            word, rest, _ = self.taken(depth)
            if word == "carried":
                params.append(self.tensor(rest) if rest.startswith("%") else self.names[rest])
            elif word == "changing":
                sizes = frozenset(self.names[name].name for name in rest.split(", "))
            elif word == "entry" and entry is None:
                entry = self.block(depth + 1)
            elif word in ("round", "sides"):
                break
            else:
                raise ValueError("not a part of a loop or branch")
        flow = Flow(params, self.block(depth + 1), entry, sizes)
        random = any(liveness.draws(op.target) for op in flow.ops())
        outs = [] if found["outs"] == NOTHING else self.results(found["outs"])
        target = RANDOM_FLOW if random else FLOW
        op = FlowOp(target, (carried, []), {}, outs, "flat", None, -1, self.binds(found["binds"]), flow=flow)
        return op

    def block(self, depth: int) -> Block:
        ops: list[Op] = []
        asserts: list[Assert] = []
        while True:
            word, rest, words = self.taken(depth)
            if word == "assert":
                expr, _, why, error = self.assertion(rest, words)
                asserts.append(Assert(expr, None, why, error_named(error)))
            elif word == "branch":
                test = self.truth(rest)
                yes = self.block(depth + 1)
                if self.taken(depth)[0] != "else":
                    raise ValueError("a branch has two sides")
                return Block(ops, asserts, Branch(test, yes, self.block(depth + 1)))
            elif word in ("again", "leave"):
                return Block(ops, asserts, Leave(word == "again", self.value(rest)))
            else:
                ops.append(self.step(f"{word} {rest}", words, depth))

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


OWN = ("pliant.dynamic_linear.default", "pliant.int8_mm.default")
"""Operators of pliant's own that any file may name: they only compute, and look at what they are given."""


def allowed(target: str, spaces: frozenset[str]) -> None:
    """Raises FormatError for an operator that a file may not name."""
    space, name, overload = target.split(".")
    if space not in spaces and target not in OWN and target not in spaces:
        raise FormatError(f"the operator {target} is of a library that this file was not allowed to use: load(..., libraries=[{space!r}])")
    if name in DENIED or (
        space in SPACES and not torch._C._dispatch_has_kernel(f"{space}::{name}" + ("" if overload == "default" else f".{overload}"))
    ):
        raise FormatError(f"{target} is no operator that a program may have")
