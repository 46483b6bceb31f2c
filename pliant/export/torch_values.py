"""What nodes of an `ExportedProgram` are said to give: fake tensors, and SymInts of a `ShapeEnv` made for it.

The environment answers no question of pliant's: its symbols get the ranges that the program has proved, and values (only there to decide
what PyTorch's later passes ask) that are no 0, no 1 and no two alike where the program's relations allow it, so that nothing specializes
because of the example.
"""

from __future__ import annotations

import math
import operator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental import symbolic_shapes as shapes
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from pliant.codegen.variants import Named
from pliant.errors import PliantError
from pliant.export.openings import holds
from pliant.export.program import Input, Program
from pliant.graph.builder import FUNCTIONS
from pliant.graph.symnode import SYMS, SymNode
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr, postorder

TRIED = (7, 11, 13, 5, 17, 3, 19, 23, 2, 29, 6, 10, 8, 12, 16, 24, 32, 48, 64, 31, 37, 4, 9, 128, 256)
"""Values for symbols, the first that fit."""


def floored(x: Any) -> Any:
    return torch.sym_int(operator.floordiv(x, 1.0))


#: Operators of numbers that ExportedPrograms may call; others are spelled by these (`Nodes.apply`).
CALLED: dict[str, Any] = {
    **{k: v for k, v in FUNCTIONS.items() if k not in ("abs", "floor", "ceil", "trunc")}, "fadd": operator.add, "fsub": operator.sub,
    "fmul": operator.mul, "fdiv": operator.truediv, "fneg": operator.neg, "fpow": operator.pow, "ffloordiv": operator.floordiv,
    "fmod": operator.mod, "fmin": torch.sym_min, "fmax": torch.sym_max, "bit_and": operator.and_, "bit_or": operator.or_,
    "lshift": operator.lshift, "rshift": operator.rshift, "sqrt": torch.sym_sqrt,
    **{"f" + n: FUNCTIONS[n] for n in ("eq", "ne", "lt", "le", "gt", "ge")},
}  # fmt: skip

class Mark:
    """The value of a node that is worked out from its arguments'."""


COMPUTED = Mark()
TRUTH = Mark()
"""Of a node that finds a bool, as an int."""


SIZE = shapes.CallMethodKey("size")
"""A step from a tensor to its sizes, in the place where a run finds a number."""


class Environment:
    """The `ShapeEnv` of an exported program, and what it promises of its symbols."""

    def __init__(self) -> None:
        self.env = shapes.ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.ranges: dict[Any, ValueRanges] = {}

    def range(self, s: Any, lo: Any, hi: Any, size: bool = False) -> None:
        """What the program promises of a symbol; to the environment, sizes are 2 or more, as torch.export has it: its passes ask less."""
        low, high = (end if n is None or math.isinf(n) else int(n) for n, end in ((lo, -int_oo), (hi, int_oo)))
        self.ranges[s] = ValueRanges(low, high)
        self.env.var_to_range[s] = ValueRanges(max(low, 2) if size and high >= 2 else low, high)


    def unbacked(self, kind: type) -> Any:
        """A number that a run finds."""
        env = self.env
        with env.ignore_fresh_unbacked_symbols():
            makers: Any = {int: env.create_unbacked_symint, float: env.create_unbacked_symfloat, bool: env.create_unbacked_symbool}
            return makers[kind]()

    def either(self, some: list[Any], others: list[Any]) -> tuple[list[Any], dict[Any, tuple]]:
        """What may be the ones or the others: tensors whose sizes, where they do not agree, are found by the run; and their places."""
        values: list[Any] = []
        found: dict[Any, tuple] = {}
        for k, (a, b) in enumerate(zip(some, others, strict=True)):
            if a.dtype != b.dtype or a.dim() != b.dim():
                raise PliantError(
                    f"to_torch_export: the sides of a branch give {a.dtype} with {a.dim()} dims, and {b.dtype} with {b.dim()}: torch.cond"
                    " takes the same of both"
                )
            sizes: list[Any] = []
            for d, (x, y) in enumerate(zip(a.shape, b.shape, strict=True)):
                if same(x, y) and not found_by_run(x):
                    sizes.append(x)
                    continue
                new = self.unbacked(int)
                self.range(new.node.expr, 0, None)
                self.env.size_like.add(new.node.expr)
                found[new.node.expr] = (pytree.SequenceKey(k), SIZE, pytree.SequenceKey(d))
                sizes.append(new)
            with self.env.ignore_fresh_unbacked_symbols(), self.mode:
                values.append(torch.empty(sizes, dtype=a.dtype, device=a.device))
        return values, found


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are one expression."""
    return a == b if type(a) is int and type(b) is int else type(a) is type(b) and a.node.expr == b.node.expr


def found_by_run(size: Any) -> bool:
    return type(size) is not int and bool(shapes.free_unbacked_symbols(size))


class Values:
    """The values of one graph. `numbers`: expressions of the program as SymInts of the environment. `asks`: the graph asks whether data
    are as the program needs them, so numbers from data are not known to be so; `raw`: nor are sizes."""

    def __init__(self, p: Program, around: Environment, asks: bool = False, raw: bool = False) -> None:
        self.p = p
        self.asks = asks
        self.raw = raw
        self.around = around
        self.env = around.env
        self.numbers: dict[Expr, Any] = {}
        self.fakes: dict[int, FakeTensor] = {}
        self.done: set[torch.fx.Node] = set()

    def fill(self, graph: torch.fx.Graph) -> None:
        """`meta["val"]` of every node."""
        with self.env.ignore_fresh_unbacked_symbols(), self.around.mode, torch.no_grad():
            for node in graph.nodes:
                if node in self.done:
                    continue
                self.done.add(node)
                for e in node.meta.pop("opens", ()):
                    self.find(e)
                for inner in node.meta.pop("inside", ()):
                    self.fill(inner)
                for e, _ in node.meta.get("finds", ()):
                    self.find(e)
                if node.meta.get("val") is TRUTH:
                    node.meta["val"] = made = self.around.unbacked(int)
                    self.around.range(made.node.expr, 0, 1)
                    node.meta["unbacked_bindings"] = {made.node.expr: ()}
                elif "val" in node.meta:
                    node.meta["val"] = self.value(node, node.meta["val"])
                if found := node.meta.pop("finds", None):
                    node.meta["unbacked_bindings"] = {self.numbers[e].node.expr: path for e, path in found}
                if (e := node.meta.pop("is", None)) is not None:
                    self.numbers[e] = node.meta["val"]
                node.meta.pop("site", None)
                node.meta.pop("source", None)

    def symbols(self, order: list[Input], hints: dict[str, Any]) -> None:
        """A symbol of the environment for each of the inputs'."""
        for at, i in enumerate(order):
            if not isinstance(i.value, TracedTensor):
                self.symbol(self.p.scope.simplify(i.value), f"L['flat_args'][{at}]", False, hints)
        for at, i in enumerate(order):
            if isinstance(i.value, TracedTensor):
                for d, s in enumerate(i.value.sizes):
                    e = liveness.number(s)
                    for symbol in self.p.scope.simplify(e).symbols() if e is not None else ():
                        self.symbol(symbol, f"L['flat_args'][{at}].size()[{d}]", True, hints)
        self.strides()

    def strides(self) -> None:
        """Strides of inputs that are no products of sizes: as of row-major ones."""
        for i in self.p.inputs:
            if isinstance(i.value, TracedTensor):
                step: Any = 1
                for size, stride in zip(reversed(i.value.sizes), reversed(i.value.strides)):
                    e = liveness.number(stride)
                    if e is not None and e.op == "sym" and e not in self.numbers:
                        self.numbers[e] = step
                    step = step * self.size(size)
                e = liveness.number(i.value.offset)
                if e is not None and e.op == "sym":
                    self.numbers.setdefault(e, 0)

    def symbol(self, e: Expr, name: str, size: bool, hints: dict[str, Any]) -> None:
        if e in self.numbers or e.op != "sym":
            return
        lo, hi = self.p.scope.range(e) or (None, None)
        value = hints[e.name]
        source = Named(name)
        if size or e.kind is int:
            positive = True if size and (value >= 2 or (lo is not None and lo > 0)) else None
            s = self.env.create_symbol(value, source, shapes.DimDynamic.DYNAMIC, None, positive, True)
            self.numbers[e] = self.env.create_symintnode(s, hint=value, source=source)
            self.around.range(s, lo, hi, size and value >= 2)
        else:
            s = self.env.create_unspecified_symbol(value, source, shapes.DimDynamic.DYNAMIC)
            self.numbers[e] = self.env.create_symfloatnode(s, hint=value, source=source)
            self.around.ranges[s] = ValueRanges(-float("inf"), float("inf"))

    def find(self, e: Expr) -> None:
        """A symbol that an operation defines."""
        if e in self.numbers:
            return
        made = self.numbers[e] = self.around.unbacked(e.kind)
        if e.kind is int:
            lo, hi = (e.info.lo, e.info.hi) if self.asks else self.p.scope.range(e) or (None, None)
            self.around.range(made.node.expr, lo, hi)
            if lo is not None and lo >= 0:
                self.env.size_like.add(made.node.expr)

    def value(self, node: torch.fx.Node, v: Any) -> Any:
        if v is COMPUTED:
            args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda a: a.meta["val"])
            return node.target(*args, **kwargs)  # type: ignore[operator]
        if isinstance(v, TracedTensor):
            return self.fake(v)
        if isinstance(v, (tuple, list)):
            return type(v)([self.value(node, x) for x in v])
        return self.size(v) if isinstance(v, Expr) or (isinstance(v, SYMS) and type(v.node) is SymNode) else v

    def size(self, s: Any) -> Any:
        e = liveness.number(s)
        if e is None:
            return s
        e = e if self.raw else self.p.scope.simplify(e)
        if e.const is not None:
            return e.const
        for n in postorder(e, done=self.numbers):
            if n in self.numbers:
                continue
            self.numbers[n] = self.made(n)
        return self.numbers[e]

    def made(self, n: Expr) -> Any:
        if n.const is not None:
            return n.const
        if n.op == "sym":
            equal = self.p.scope.simplify(n)
            if equal is not n:
                return self.size(equal)
            hint = n.info.hint
            if n.info.backed and isinstance(hint, (int, float)):
                return hint  # a stride that nothing tells
            raise PliantError(f"to_torch_export: no input and no operation tells {n}")
        if n.op == "sum":
            total: Any = 0
            for mono, c in n.terms:
                term: Any = c
                for atom in mono:
                    term = term * self.numbers[atom]
                total = total + term
            return total
        args = [self.numbers[a] for a in n.args]
        if n.op in ("abs", "fabs"):
            return torch.sym_max(args[0], -args[0])
        if n.op == "floor":
            return floored(args[0])
        if n.op == "ceil":
            return -floored(-args[0])
        if n.op == "trunc":
            return torch.sym_int(args[0])
        if n.op == "bool_to_int":
            return torch.sym_ite(args[0], 1, 0)
        if n.op == "subtotal":
            return args[0]
        if n.op == "where" and type(args[1]) is not type(args[2]):
            return args[2] + torch.sym_ite(args[0], 1, 0) * (args[1] - args[2])
        fn = CALLED[n.op]
        if len(args) > 2 and n.op != "where":
            out = args[0]
            for b in args[1:]:
                out = fn(out, b)
            return out
        return fn(*args)

    def fake(self, t: TracedTensor) -> FakeTensor:
        found = self.fakes.get(t.vid)
        if found is None:
            sizes, strides = [at_least_0(self.size(s)) for s in t.sizes], [at_least_0(self.size(s)) for s in t.strides]
            found = torch.empty_strided(sizes, strides, dtype=t.dtype, device=t.device)  # type: ignore[assignment]
            assert isinstance(found, FakeTensor)
            self.fakes[t.vid] = found
        return found


def at_least_0(n: Any) -> Any:
    """A size as the environment takes it, also in a side of a branch that its values of symbols are not for."""
    return torch.sym_max(n, 0) if type(n) is torch.SymInt and n.node.has_hint() and n.node.hint < 0 else n


def rebuilt(e: Any, scope: Any) -> Any:
    """A relation over the symbols that the inputs tell: of equal ones, the one that stands for the others. It is not simplified further."""
    done: dict[Expr, Any] = {}
    for n in postorder(e):
        if n.const is not None or n.op == "sym":
            known = n.op == "sym" and n.info.backed  # what a run finds is not what the program needs it to be
            done[n] = scope.simplify(n) if known else n if n.op == "sym" else n.const
        elif n.op == "sum":
            done[n] = ops.sum_([product([c, *[done[a] for a in mono]]) for mono, c in n.terms])
        else:
            door = ops.DOORS[n.op]
            args = [done[a] for a in n.args]
            out = door(*args[:2]) if len(args) > 1 and n.op != "where" else door(*args)
            for b in args[2:] if n.op != "where" else ():
                out = door(out, b)
            done[n] = out
    return done[e]


def product(factors: list[Any]) -> Any:
    out = factors[0]
    for f in factors[1:]:
        out = ops.mul(out, f)
    return out


def chosen(p: Program) -> dict[str, Any]:
    """A value for every symbol of the inputs with which all relations hold: the example's, moved off 0, 1 and each other's."""
    scope = p.scope
    values = {s.name: s.info.hint for s in scope.symbols.values() if s.info.backed}
    tests = [rebuilt(r.expr, scope) for r in p.relations]
    tests = [t for t in tests if isinstance(t, Expr) and t.const is None and all(s.name in values for s in t.symbols())]
    sizes: dict[Expr, None] = {}
    for i in p.user_inputs:
        if isinstance(i.value, TracedTensor):
            for s in i.value.sizes:
                e = liveness.number(s)
                for symbol in scope.simplify(e).symbols() if e is not None else ():
                    sizes[symbol] = None
    used: set[Any] = {s for i in p.user_inputs if isinstance(i.value, TracedTensor) for s in i.value.sizes if type(s) is int}
    for symbol in sizes:
        if symbol.kind is not int or not symbol.info.backed:
            continue
        mine = [t for t in tests if any(s is symbol for s in t.symbols())]
        before = values[symbol.name]
        lo, hi = scope.range(symbol)
        for v in (before, *TRIED):
            if v in used or v < 2 or (lo is not None and v < lo) or (hi is not None and v > hi):
                continue
            values[symbol.name] = v
            if all(holds(t, values) for t in mine):
                break
        else:
            values[symbol.name] = before
        used.add(values[symbol.name])
    for s in scope.symbols.values():
        if s.info.backed and (equal := scope.simplify(s)) is not s:
            values[s.name] = equal.evaluate(values)
    return values
