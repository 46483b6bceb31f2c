"""A program as a `torch.export.ExportedProgram`, built by hand: for torch.export.save, run_decompositions, AOTInductor, torch.onnx.

Sizes are symbols of a `ShapeEnv` (`torch_values.py`). What its ranges cannot say of them is asserted in the graph. Variants are the sides
of `torch.cond` (`torch_branches.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import torch
from torch.export import ExportedProgram, ModuleCallEntry, ModuleCallSignature
from torch.export import graph_signature as gs
from torch.utils import _pytree as pytree

from pliant.errors import PliantError
from pliant.export.program import BUFFER, CONSTANT, GRADIENT, MUTATION, PARAMETER, USER, Input, Output, Program
from pliant.export.torch_branches import Branches, Graph, common
from pliant.export.torch_nodes import CHECKS, Nodes, linear
from pliant.export.torch_values import Environment, Values, chosen
from pliant.export.trees import Tree
from pliant.export.variants import SIZE_BRANCH
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness

ARGUMENTS: dict[Any, Any] = {torch.Tensor: gs.TensorArgument, int: gs.SymIntArgument, float: gs.SymFloatArgument, bool: gs.SymBoolArgument}


def to_torch_export(program: Program, *, keywords: bool = False) -> ExportedProgram:
    """The program as an ExportedProgram, with dynamic sizes open, sizes that come from data, and assertions.

    Its arguments are those of the exported function that are, or hold, tensors or changing numbers, by position as far as the parameters
    allow (`keywords`: all by keyword; the format takes no argument either way). What else was passed is part of the program. Where such a
    value is held by an object, there is one argument: a dict of all inputs, by their names. A result that holds objects is a tuple of the
    program's outputs. Variants (the sides of its branches) are the sides of a `torch.cond`, whose results are row-major, and without
    gradients where the branches are on sizes. PyTorch's passes that trace again (`run_decompositions`, AOTInductor) do so with one set of
    sizes, and raise where a side cannot be traced with these. Raises `PliantError` for what the format cannot say.
    """
    return Writer(program).program(keywords)


class Writer:
    """Writes one program."""

    def __init__(self, p: Program) -> None:
        if p.form == "torch":
            raise PliantError('to_torch_export takes ATen operations: export the program with form="core"')
        self.parts = [p, *p.variants]
        self.p = common(p) if p.variants else p
        self.nodes = Nodes(self.p)
        self.around = Environment()
        self.values = Values(self.p, self.around)
        self.hints = chosen(self.p)
        self.root = self.nodes.root
        self.placeholders: dict[str, torch.fx.Node] = {}  # by the input's name
        self.specs: list[gs.InputSpec] = []
        self.constants: dict[str, Any] = {}
        self.state: dict[str, torch.Tensor] = {}

    def program(self, keywords: bool) -> ExportedProgram:
        p = self.p
        users = arranged(p, keywords)
        with torch._C._DisableTorchDispatch():
            self.take(users)
            out_specs = self.grow() if len(self.parts) == 1 else None
        self.values.symbols(users.order, self.hints)
        with self.around.env.suppress_guards():  # the program asserts what it needs: what the hints happen to be is no guard
            self.values.fill(self.nodes.graph)
            if out_specs is None:
                out_specs = self.branch()
        calls = ModuleCallSignature(inputs=[], outputs=[], in_spec=users.spec, out_spec=result_spec(p), forward_arg_names=users.names)
        return ExportedProgram(
            root=self.root, graph=self.nodes.graph, graph_signature=gs.ExportGraphSignature(self.specs, out_specs),
            state_dict=self.state, range_constraints=self.around.ranges, module_call_graph=[ModuleCallEntry(fqn="", signature=calls)],
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

    def take(self, users: Arranged) -> None:
        for i in self.p.inputs:
            if i.kind != USER:
                self.take_state(i)
        for i in users.order:
            self.take_user(i)

    def grow(self) -> list[gs.OutputSpec]:
        """The nodes, whose values are still the trace's; returns what the outputs are."""
        p = self.p
        self.nodes.assertions(p.relations)
        for op in p.ops:
            if op.target not in CHECKS:
                self.nodes.operation(op)
        self.nodes.assertions(p.asserts, bounds=True)
        return self.outputs([self.node_of(o.value) for o in p.outputs])

    def branch(self) -> list[gs.OutputSpec]:
        """The same for a program with variants."""
        g = Graph(self.around, self.nodes.graph, dict(self.placeholders), self.root)
        if any(r.why == SIZE_BRANCH for q in self.parts for r in q.relations):
            self.detached(g)
        made = Branches(self.p.name).choice(self.parts, g)
        columns = [[q.outputs[k].value for q in self.parts] for k in range(len(made))]
        return self.outputs([g.number_of(node, column) for node, column in zip(made, columns, strict=True)])

    def detached(self, g: Graph) -> None:
        """Parameters without gradients: for these, `torch.cond` traces both sides at the sizes of a call, which are those of one only."""
        for i in self.p.inputs:
            node = g.given[i.name]
            if i.kind != USER and node.meta["val"].is_floating_point():
                g.given[i.name] = g.call(torch.ops.aten.detach.default, (node,), node.meta["val"])

    def node_of(self, value: Any) -> tuple[Any, Any]:
        """The node that computes it, and what it is: torch.Tensor, or a kind of numbers; or a number itself."""
        e = liveness.number(value)
        if e is not None:
            return self.nodes.argument(e), e.kind
        return self.nodes.argument(value), torch.Tensor

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
            argument = ARGUMENTS[i.value.kind](node.name)
        self.specs.append(gs.InputSpec(gs.InputKind.USER_INPUT, argument, None))

    # outputs -------------------------------------------------------------------------------------------------------------------
    def outputs(self, made: list[tuple[Any, Any]]) -> list[gs.OutputSpec]:
        """Ends the graph. `made`: of each output of the program, `node_of`."""
        results: list[Any] = []
        specs: list[gs.OutputSpec] = []
        p = self.p
        for o, (node, _) in zip(p.outputs, made, strict=True):
            if o.kind == MUTATION:
                kind, target = self.mutation(o)
                results.append(node)
                specs.append(gs.OutputSpec(kind, gs.TensorArgument(node.name), target))
            elif o.kind == GRADIENT:
                raise PliantError('to_torch_export: gradients are no outputs of this format; export the program with form="core"')
        users = [m for o, m in zip(p.outputs, made, strict=True) if o.kind == USER]
        for leaf in result_leaves(p):
            if leaf.kind == "constant":
                results.append(leaf.value)
                specs.append(gs.OutputSpec(gs.OutputKind.USER_OUTPUT, gs.ConstantArgument("", leaf.value), None))
                continue
            node, kind = users[leaf.value] if leaf.kind == "output" else self.node_of(self.at_path(leaf.value))
            results.append(node)
            argument = ARGUMENTS[kind](node.name) if isinstance(node, torch.fx.Node) else gs.ConstantArgument("", node)
            specs.append(gs.OutputSpec(gs.OutputKind.USER_OUTPUT, argument, None))
        self.nodes.graph.output(tuple(results))
        return specs

    def at_path(self, path: tuple) -> Any:
        return next(i.value for i in self.p.user_inputs if i.path == path)

    def mutation(self, o: Output) -> tuple[Any, str]:
        i = self.p.input(o.of)
        node = self.placeholders[i.name]
        spec = next(s for s in self.specs if s.arg.name == node.name)  # type: ignore[union-attr]
        if i.kind == USER:
            return gs.OutputKind.USER_INPUT_MUTATION, node.name
        assert spec.target is not None
        return (gs.OutputKind.PARAMETER_MUTATION if spec.kind is gs.InputKind.PARAMETER else gs.OutputKind.BUFFER_MUTATION), spec.target


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


def arguments(p: Program, values: dict[str, Any], keywords: bool = False) -> tuple[tuple, dict]:
    """The arguments of the exported program of `p` for inputs by name."""
    users = arranged(p, keywords)
    return pytree.tree_unflatten([values[i.name] for i in users.order], users.spec)


def user_outputs(p: Program, result: Any) -> list[Any]:
    """The user's outputs of `p`, in order, of what its exported program gave."""
    found = {t.value: v for t, v in zip(result_leaves(p), pytree.tree_leaves(result), strict=True) if t.kind == "output"}
    return [found[n] for n in range(len(p.user_outputs))]


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
    """Whether the result is made of what the format can write down: where it is not, its outputs are given as a tuple."""
    if p.result is None:
        return False
    taken = {i.path for q in (p, *p.variants) for i in q.user_inputs}
    said: dict[str, Callable[[Any], bool]] = {
        "output": lambda value: True,
        "constant": lambda value: isinstance(value, (int, float, bool, str, type(None))),
        "argument": lambda path: path in taken,
        "node": lambda node: node[0] in (tuple, list, dict) or registered(node[0]),
    }
    return all(t.kind in said and said[t.kind](t.value) for t in p.result.walk())


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
