"""A program as a `torch.export.ExportedProgram`, built by hand: for torch.export.save, run_decompositions, AOTInductor, torch.onnx.

The format keeps sizes in a `ShapeEnv`. This one is made for the exported program and answers no question of pliant's: its symbols get the
ranges that the program has proved, and values (only there to decide what PyTorch's later passes ask) that are no 0, no 1 and no two alike
where the program's relations allow it, so that nothing specializes because of the example. What ranges cannot say is asserted in the graph.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export import graph_signature as gs
from torch.fx.experimental import symbolic_shapes as shapes
from torch.utils import _pytree as pytree
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from pliant.errors import PliantError
from pliant.export.openings import holds
from pliant.export.program import BUFFER, CONSTANT, GRADIENT, MUTATION, PARAMETER, USER, Input, Output, Program
from pliant.export.trees import Tree
from pliant.graph.builder import FUNCTIONS, SYMS, Builder
from pliant.graph.record import Bind, Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr, postorder

aten = torch.ops.aten


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

TRIED = (7, 11, 13, 5, 17, 3, 19, 23, 2, 29, 6, 10, 8, 12, 16, 24, 32, 48, 64, 31, 37, 4, 9, 128, 256)
"""Values for symbols, the first that fit."""


def to_torch_export(program: Program, *, keywords: bool = False) -> ExportedProgram:
    """The program as an ExportedProgram, with dynamic sizes open, sizes that come from data, and assertions.

    Its arguments are those of the exported function that are, or hold, tensors or changing numbers, by position as far as the parameters
    allow (`keywords`: all by keyword; the format takes no argument either way). What else was passed is part of the program. Where such a
    value is held by an object, there is one argument: a dict of all inputs, by their names. A result that holds objects is a tuple of the
    program's outputs. Of a program with variants (the sides of its branches), this is the first: calls for the others fail its assertions.
    Raises `PliantError` for what the format cannot say.
    """
    return Writer(program).program(keywords)


class Nodes(Builder):
    """Grows the FX graph. Symbols are read off the inputs' sizes where they are first needed."""

    def __init__(self, p: Program) -> None:
        super().__init__(p.trace)
        self.p = p
        self.read: dict[Expr, tuple[torch.fx.Node, int, int, int]] = {}  # symbol -> (input, dim, c, k): size is c * symbol + k
        self.exact = False  # conditions that the scope takes for true are written out

    def placeholder(self, value: Any) -> None:
        raise NotImplementedError

    def taken(self, name: str, value: Any) -> torch.fx.Node:
        node = self.graph.placeholder(name)
        node.meta["val"] = value
        return node

    def number(self, e: Expr) -> Any:
        if not self.exact or e.op == "sym":
            e = self.trace.scope.simplify(e)
        if e.op == "sym" and e not in self.symbols and e in self.read:
            of, d, c, k = self.read[e]
            size = self.put(aten.sym_size.int, (of, d), c * e + k)
            if k:
                size = self.put(operator.sub, (size, k), c * e)
            if c != 1:
                size = self.put(operator.floordiv, (size, c), e)
            size.name = self.graph._graph_namespace.create_name(self.p.dims.get(e.name, e.name), None)
            self.symbols[e] = size
        new = e not in self.symbols
        node = super().number(e)
        if new and e.op != "sym" and isinstance(node, torch.fx.Node):
            node.meta["val"] = COMPUTED
        return node

    def put(self, fn: Any, args: tuple, val: Any) -> torch.fx.Node:
        node = self.graph.call_function(fn, args)
        node.meta["val"] = val
        return node

    def call(self, fn: Any, *args: Any) -> torch.fx.Node:
        """A node on numbers, whose value is worked out from theirs later on."""
        return self.put(fn, args, COMPUTED)

    def total(self, e: Expr) -> Any:
        out: Any = None
        for mono, c in e.terms:
            term: Any = c if c != 1 or not mono else None
            for atom in mono:
                node = self.number(atom)
                term = node if term is None else self.call(operator.mul, term, node)
            out = term if out is None else self.call(operator.add, out, term)
        return out

    def apply(self, e: Expr) -> Any:
        args = [self.number(a) for a in e.args]
        a = args[0]
        if e.op in ("abs", "fabs"):
            return self.call(torch.sym_max, a, self.call(operator.neg, a))
        if e.op == "floor":
            return self.call(torch.sym_int, self.call(operator.floordiv, a, 1.0))
        if e.op == "ceil":
            down = self.call(operator.floordiv, self.call(operator.neg, a), 1.0)
            return self.call(operator.neg, self.call(torch.sym_int, down))
        if e.op == "trunc":
            return self.call(torch.sym_int, a)
        if e.op == "bool_to_int":
            return self.call(torch.sym_ite, a, 1, 0)
        if e.op == "subtotal":
            return a
        fn = CALLED.get(e.op)
        if fn is None:
            raise PliantError(f"to_torch_export: an ExportedProgram has no `{e.op}` of numbers, in {e}")
        if len(args) > 2 and e.op != "where":
            out = a
            for b in args[1:]:
                out = self.call(fn, out, b)
            return out
        return self.call(fn, *args)

    def operation(self, op: Op) -> torch.fx.Node:
        node = super().operation(op)
        node.target = LOOSER.get(op.target, op.target)
        if op.site is not None:
            node.meta["stack_trace"] = f'  File "{op.site.filename}", line {op.site.lineno}, in {op.site.function}\n'
        return node

    def bind(self, op: Op, b: Bind) -> None:
        super().bind(op, b)
        e = liveness.number(b.symbol)
        assert e is not None
        self.symbols[e] = self.symbols.pop(b.symbol) if b.symbol is not e else self.symbols[e]
        node = self.numbers[0]
        path: tuple = () if b.dim is None else (shapes.CallMethodKey("size"), pytree.SequenceKey(b.dim))
        if op.out_spec is not None:  # the symbol is found by the operation, of one of its results
            whole = self.numbers[b.out].args[0]
            assert isinstance(whole, torch.fx.Node)
            node, path = whole, (pytree.SequenceKey(b.out), *path)
        node.meta.setdefault("finds", []).append((e, path))


class Mark:
    """The value of a node that is worked out from its arguments'."""


COMPUTED = Mark()


class Writer:
    """Writes one program."""

    def __init__(self, p: Program) -> None:
        if p.form == "torch":
            raise PliantError('to_torch_export takes ATen operations: export the program with form="core"')
        self.p = p
        self.nodes = Nodes(p)
        self.env = shapes.ShapeEnv(duck_shape=False)
        self.mode = FakeTensorMode(shape_env=self.env, allow_non_fake_inputs=True)
        self.numbers: dict[Expr, Any] = {}  # expressions as SymInts of the environment
        self.ranges: dict[Any, ValueRanges] = {}
        self.fakes: dict[int, FakeTensor] = {}
        self.placeholders: dict[str, torch.fx.Node] = {}  # by the input's name
        self.specs: list[gs.InputSpec] = []
        self.constants: dict[str, Any] = {}
        self.hints: dict[str, Any] = {}
        self.state: dict[str, torch.Tensor] = {}

    def program(self, keywords: bool) -> ExportedProgram:
        p = self.p
        users = arranged(p, keywords)
        with torch._C._DisableTorchDispatch():
            out_specs = self.grow(users)
        self.values(users.order)
        calls = ModuleCallSignature(inputs=[], outputs=[], in_spec=users.spec, out_spec=result_spec(p), forward_arg_names=users.names)
        return ExportedProgram(
            root=torch.nn.Module(), graph=self.nodes.graph, graph_signature=gs.ExportGraphSignature(self.specs, out_specs),
            state_dict=self.state, range_constraints=self.ranges, module_call_graph=[ModuleCallEntry(fqn="", signature=calls)],
            constants=self.constants, example_inputs=self.example(users),
        )  # fmt: skip

    def example(self, users: Arranged) -> tuple[tuple, dict]:
        """Inputs of the sizes that stand for all, which AOTInductor asks for. They are zeros."""
        values = [self.example_of(i) for i in users.order]
        return pytree.tree_unflatten(values, users.spec)

    def example_of(self, i: Input) -> Any:
        if not isinstance(i.value, TracedTensor):
            return self.hints[i.value.name]
        sizes = [s if type(s) is int else liveness.number(s).evaluate(self.hints) for s in i.value.sizes]
        return torch.zeros(sizes, dtype=i.value.dtype, device=i.value.device)

    def grow(self, users: Arranged) -> list[gs.OutputSpec]:
        """The nodes, whose values are still the trace's; returns what the outputs are."""
        p = self.p
        for i in p.inputs:
            if i.kind != USER:
                self.take_state(i)
        for i in users.order:
            self.take_user(i)
        self.assertions(p.relations)
        for op in p.ops:
            if op.target not in CHECKS:
                self.nodes.operation(op)
        self.assertions(p.asserts)
        results, specs = self.outputs()
        self.nodes.graph.output(tuple(results))
        return specs

    # inputs --------------------------------------------------------------------------------------------------------------------
    def take_state(self, i: Input) -> None:
        kind = BUFFER if i.kind == CONSTANT and i.written else i.kind
        letter = {PARAMETER: "p", BUFFER: "b", CONSTANT: "c"}[kind]
        value = self.p.state[i.name]
        assert isinstance(i.value, TracedTensor)
        node = self.nodes.taken(f"{letter}_{re.sub(r'[^0-9A-Za-z]', '_', i.name)}", i.value)
        self.nodes.values[i.value.vid] = node
        self.placeholders[i.name] = node
        ordinary = i.kind != CONSTANT and re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", i.name)  # a constant may be called as a method of modules
        target = i.name if ordinary else node.name
        argument = gs.TensorArgument(node.name)
        if kind == PARAMETER:
            self.state[target] = value if isinstance(value, torch.nn.Parameter) else torch.nn.Parameter(value, value.requires_grad)
            self.specs.append(gs.InputSpec(gs.InputKind.PARAMETER, argument, target))
        elif kind == BUFFER:
            self.state[target] = value
            self.specs.append(gs.InputSpec(gs.InputKind.BUFFER, argument, target, persistent=True))
        else:
            self.constants[target] = value
            self.specs.append(gs.InputSpec(gs.InputKind.CONSTANT_TENSOR, argument, target))

    def take_user(self, i: Input) -> None:
        name = re.sub(r"\W", "_", i.name)
        node = self.nodes.taken(name if re.match(r"[A-Za-z_]", name) else f"input_{name}", i.value)
        self.placeholders[i.name] = node
        argument: Any = gs.TensorArgument(node.name)
        if isinstance(i.value, TracedTensor):
            self.nodes.values[i.value.vid] = node
            for d, s in enumerate(i.value.sizes):
                e = liveness.number(s)
                e = self.p.scope.simplify(e) if e is not None else None
                if e is not None and e.const is None and (found := linear(e)) is not None:
                    self.nodes.read.setdefault(found[0], (node, d, *found[1:]))
        else:
            self.nodes.symbols[i.value] = node
            argument = {int: gs.SymIntArgument, float: gs.SymFloatArgument, bool: gs.SymBoolArgument}[i.value.kind](node.name)
        self.specs.append(gs.InputSpec(gs.InputKind.USER_INPUT, argument, None))

    # what must hold ------------------------------------------------------------------------------------------------------------
    def assertions(self, relations: Iterable[Any]) -> None:
        """Nodes for the relations that ranges and shared symbols do not say."""
        known = {s for s in self.nodes.read} | set(self.nodes.symbols)
        for r in relations:
            e = rebuilt(r.expr, self.p.scope)
            if not isinstance(e, Expr) or e.const is not None or bounds_one(e):
                continue
            if any(s not in known for s in e.symbols()):
                continue  # of strides: the operators themselves refuse what they cannot view
            self.nodes.exact = True
            test = self.nodes.number(e)
            self.nodes.exact = False
            site = f", needed at {r.site}" if r.site else ""
            self.nodes.put(aten._assert_scalar.default, (test, f"{e.python(self.p.dims)} must hold{site}"), None)

    # outputs -------------------------------------------------------------------------------------------------------------------
    def outputs(self) -> tuple[list[Any], list[gs.OutputSpec]]:
        results: list[Any] = []
        specs: list[gs.OutputSpec] = []
        p = self.p
        for o in p.outputs:
            if o.kind == MUTATION:
                kind, target = self.mutation(o)
                node = self.nodes.argument(o.value)
                results.append(node)
                specs.append(gs.OutputSpec(kind, gs.TensorArgument(node.name), target))
            elif o.kind == GRADIENT:
                raise PliantError('to_torch_export: gradients are no outputs of this format; export the program with form="core"')
        for leaf in result_leaves(p):
            if leaf.kind == "constant":
                results.append(leaf.value)
                specs.append(gs.OutputSpec(gs.OutputKind.USER_OUTPUT, gs.ConstantArgument("", leaf.value), None))
                continue
            value = p.user_outputs[leaf.value].value if leaf.kind == "output" else self.at_path(leaf.value)
            e = liveness.number(value)
            node = self.nodes.argument(value if e is None else e)
            results.append(node)
            if not isinstance(node, torch.fx.Node):
                argument: Any = gs.ConstantArgument("", node)
            elif type(value) is TracedTensor:
                argument = gs.TensorArgument(node.name)
            else:
                assert e is not None
                argument = {int: gs.SymIntArgument, float: gs.SymFloatArgument, bool: gs.SymBoolArgument}[e.kind](node.name)
            specs.append(gs.OutputSpec(gs.OutputKind.USER_OUTPUT, argument, None))
        return results, specs

    def at_path(self, path: tuple) -> Any:
        for i in self.p.user_inputs:
            if i.path == path:
                return i.value
        raise PliantError(f"to_torch_export: the result holds the argument {path[0]}, which the program does not take")

    def mutation(self, o: Output) -> tuple[Any, str]:
        i = self.p.input(o.of)
        node = self.placeholders[i.name]
        spec = next(s for s in self.specs if s.arg.name == node.name)  # type: ignore[union-attr]
        if i.kind == USER:
            return gs.OutputKind.USER_INPUT_MUTATION, node.name
        assert spec.target is not None
        return (gs.OutputKind.PARAMETER_MUTATION if spec.kind is gs.InputKind.PARAMETER else gs.OutputKind.BUFFER_MUTATION), spec.target

    # values --------------------------------------------------------------------------------------------------------------------
    def values(self, order: list[Input]) -> None:
        """`meta["val"]` of every node: fake tensors, and SymInts of the environment."""
        self.symbols(order)
        with self.env.ignore_fresh_unbacked_symbols(), self.mode, torch.no_grad():
            for node in self.nodes.graph.nodes:
                for e, _ in node.meta.get("finds", ()):
                    self.find(e)
                if "val" in node.meta:
                    node.meta["val"] = self.value(node, node.meta["val"])
                if found := node.meta.pop("finds", None):
                    node.meta["unbacked_bindings"] = {self.numbers[e].node.expr: path for e, path in found}
                node.meta.pop("site", None)
                node.meta.pop("source", None)

    def symbols(self, order: list[Input]) -> None:
        hints = self.hints = chosen(self.p)
        for at, i in enumerate(order):
            if not isinstance(i.value, TracedTensor):
                self.symbol(self.p.scope.simplify(i.value), f"L['flat_args'][{at}]", False, hints)
        for at, i in enumerate(order):
            if isinstance(i.value, TracedTensor):
                for d, s in enumerate(i.value.sizes):
                    e = liveness.number(s)
                    for symbol in self.p.scope.simplify(e).symbols() if e is not None else ():
                        self.symbol(symbol, f"L['flat_args'][{at}].size()[{d}]", True, hints)
        for i in self.p.inputs:  # strides of inputs that are no products of sizes: as of row-major ones
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
            positive = True if size and lo is not None and lo > 0 else None
            s = self.env.create_symbol(value, source, shapes.DimDynamic.DYNAMIC, None, positive, True)
            self.numbers[e] = self.env.create_symintnode(s, hint=value, source=source)
            self.range(s, lo, hi, size and value >= 2)
        else:
            s = self.env.create_unspecified_symbol(value, source, shapes.DimDynamic.DYNAMIC)
            self.numbers[e] = self.env.create_symfloatnode(s, hint=value, source=source)
            self.ranges[s] = ValueRanges(-float("inf"), float("inf"))

    def range(self, s: Any, lo: Any, hi: Any, size: bool = False) -> None:
        """What the program promises of a symbol; to the environment, sizes are 2 or more, as torch.export has it: its passes ask less."""
        low, high = (end if n is None or math.isinf(n) else int(n) for n, end in ((lo, -int_oo), (hi, int_oo)))
        self.ranges[s] = ValueRanges(low, high)
        self.env.var_to_range[s] = ValueRanges(max(low, 2) if size and high >= 2 else low, high)

    def find(self, e: Expr) -> None:
        """A symbol that an operation defines."""
        if e in self.numbers:
            return
        if e.kind is int:
            made: Any = self.env.create_unbacked_symint()
            lo, hi = self.p.scope.range(e) or (None, None)
            self.range(made.node.expr, lo, hi)
            if lo is not None and lo >= 0:
                self.env.size_like.add(made.node.expr)
        elif e.kind is float:
            made = self.env.create_unbacked_symfloat()
        else:
            made = self.env.create_unbacked_symbool()
        self.numbers[e] = made

    def value(self, node: torch.fx.Node, v: Any) -> Any:
        if v is COMPUTED:
            args = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in node.args]
            return node.target(*args)  # type: ignore[operator]
        if isinstance(v, TracedTensor):
            return self.fake(v)
        if isinstance(v, (tuple, list)):
            return type(v)([self.value(node, x) for x in v])
        return self.size(v) if isinstance(v, (*SYMS, Expr)) else v

    def size(self, s: Any) -> Any:
        e = liveness.number(s)
        if e is None:
            return s
        e = self.p.scope.simplify(e)
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
            sizes, strides = [self.size(s) for s in t.sizes], [self.size(s) for s in t.strides]
            found = torch.empty_strided(sizes, strides, dtype=t.dtype, device=t.device)  # type: ignore[assignment]
            assert isinstance(found, FakeTensor)
            self.fakes[t.vid] = found
        return found


class Named(torch._guards.Source):
    """Where a symbol comes from: a name is all that messages and guards need."""

    _text: str

    def __init__(self, name: str) -> None:
        object.__setattr__(self, "_text", name)

    @property
    def name(self) -> str:
        return self._text

    @property
    def _name_template(self) -> str:
        return self._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and other._text == self._text


LOOSER = {aten.view.default: aten.reshape.default, aten._unsafe_view.default: aten.reshape.default}
"""Operands may lie otherwise than in the capture (PyTorch's decomposition of attention does that to its result): a view could fail."""

CHECKS = frozenset((aten.sym_constrain_range.default, aten.sym_constrain_range_for_size.default))


def linear(e: Expr) -> tuple[Expr, int, int] | None:
    """(symbol, c, k) of c * symbol + k."""
    if e.op == "sym":
        return e, 1, 0
    symbol, c, k = None, 0, 0
    for mono, n in e.terms if e.op == "sum" else ():
        if not mono:
            k = n
        elif len(mono) == 1 and mono[0].op == "sym" and symbol is None:
            symbol, c = mono[0], n
        else:
            return None
    return (symbol, c, k) if symbol is not None and c > 0 else None


def rebuilt(e: Any, scope: Any) -> Any:
    """A relation over the symbols that the inputs tell: of equal ones, the one that stands for the others. It is not simplified further."""
    done: dict[Expr, Any] = {}
    for n in postorder(e):
        if n.const is not None or n.op == "sym":
            done[n] = scope.simplify(n) if n.op == "sym" else n.const
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


def bounds_one(e: Expr) -> bool:
    """Whether a relation bounds one symbol from one side: ranges say so."""
    if e.op not in ("le", "ge", "lt", "gt") or len(e.symbols()) != 1:
        return False
    s = e.symbols()[0]
    return all(a.const is not None or a is s or (a.op == "sum" and linear_abs(a)) for a in e.args)


def linear_abs(e: Expr) -> bool:
    return all(not mono or (len(mono) == 1 and mono[0].op == "sym" and abs(c) == 1) for mono, c in e.terms)


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


# trees -------------------------------------------------------------------------------------------------------------------------------
class Arranged:
    """The arguments of the exported program: inputs in the order of the leaves of `spec`."""

    def __init__(self, order: list[Input], spec: pytree.TreeSpec, names: list[str]) -> None:
        self.order = order
        self.spec = spec
        self.names = names


def arranged(p: Program, keywords: bool) -> Arranged:
    """As the exported function takes them, where lists, tuples and dicts hold them; else as one dict, by name."""
    trees: dict[str, Any] = {}
    try:
        for i in p.user_inputs:
            plant(trees, i, i.path, p)
        made = {name: grown(t) for name, t in trees.items()}
    except LookupError:
        made = {}
        trees = {}
    if not made and p.user_inputs:
        spec = pytree.tree_structure((({i.name: 0 for i in p.user_inputs},), {}))
        return Arranged(p.user_inputs, spec, ["inputs"])
    leading = []
    for name in p.parameters:
        if name not in made or keywords:
            break
        leading.append(name)
    args = tuple(made[n] for n in leading)
    kwargs = {n: t for n, t in made.items() if n not in leading}
    leaves, spec = pytree.tree_flatten((args, kwargs))
    return Arranged([x.input for x in leaves], spec, [*leading, *kwargs])


class Leaf:
    """An input in a tree: a leaf whatever pytree thinks of its value."""

    def __init__(self, i: Input) -> None:
        self.input = i


def plant(trees: dict[str, Any], i: Input, path: tuple, p: Program) -> None:
    name, *steps = path
    if name == p.rest or any(kind not in ("index", "key") for kind, _ in steps):
        raise LookupError(name)
    at = trees
    key: Any = name
    for n, (kind, arg) in enumerate(steps):
        held = at.setdefault(key, {"kind": kind, "type": type_at(p, (name, *steps[:n])), "items": {}})
        if isinstance(held, Leaf) or held["kind"] != kind:
            raise LookupError(name)
        at, key = held["items"], arg
    at[key] = Leaf(i)


def type_at(p: Program, path: tuple) -> str:
    return next((c.value for c in p.checks if c.kind == "type" and c.path == path), "")


def grown(t: Any) -> Any:
    """A tree as the lists, tuples and dicts that it describes. LookupError where a place in between holds no input."""
    if isinstance(t, Leaf):
        return t
    items = {k: grown(v) for k, v in t["items"].items()}
    if t["kind"] == "key":
        if t["type"] not in ("", "builtins.dict"):
            raise LookupError(t["type"])
        return items
    if sorted(items) != list(range(len(items))) or t["type"] not in ("", "builtins.list", "builtins.tuple"):
        raise LookupError(t["type"])
    values = [items[k] for k in sorted(items)]
    return values if t["type"] == "builtins.list" else tuple(values)


def result_leaves(p: Program) -> list[Tree]:
    if not plain_result(p):
        return [Tree("output", n) for n in range(len(p.user_outputs))]
    return [t for t in p.result.walk() if not t.children and t.kind in ("output", "constant", "argument")]


def plain_result(p: Program) -> bool:
    """Whether the result is made of what the format can write down."""
    known = (tuple, list, dict)
    return p.result is not None and all(
        t.kind in ("output", "constant", "argument") and (t.kind != "constant" or isinstance(t.value, (int, float, bool, str, type(None))))
        or (t.kind == "node" and (t.value[0] in known or registered(t.value[0])))
        for t in p.result.walk()
    )  # fmt: skip


def registered(cls: type) -> bool:
    return cls in pytree.SUPPORTED_NODES and cls in pytree.SUPPORTED_SERIALIZED_TYPES


def result_spec(p: Program) -> pytree.TreeSpec:
    if not plain_result(p):
        return pytree.tree_structure(tuple(range(len(p.user_outputs))))

    def build(t: Tree) -> Any:
        if t.kind in ("output", "constant", "argument"):
            return pytree.tree_structure(0)
        cls, context = t.value
        return pytree.TreeSpec(cls, context, [build(c) for c in t.children])

    return build(p.result)
