"""What a graph handed to a Dynamo-style backend promises, as a table: one row a rule, each checked on every graph that is handed over.

Existing backends rely on these promises without saying so: a number that prints as the name of a symbol, a size that the printed code
frees too early, a float that arrives as a float all give wrong answers later, or none. A graph that breaks a rule is a bug of pliant, so
it raises `InternalError`: with `strict=True` the user sees it, else the frame runs in eager PyTorch.
"""

from __future__ import annotations

import ast
import enum
import keyword
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import fx

from pliant.codegen.dynamo_graph import Handed, Number, SymbolInfo, TensorSlot
from pliant.errors import InternalError
from pliant.graph.torch_graph import ASSERT, PLAIN
from pliant.graph.traced import leaves

CONSTANTS = (*PLAIN, torch._ops.OpOverload)
Complaints = Iterator[str]


class Rule(NamedTuple):
    name: str
    promise: str
    complaints: Callable[[Handed], Complaints]


def nodes_of(h: Handed, *ops: str) -> list[fx.Node]:
    return [n for n in h.module.graph.nodes if not ops or n.op in ops]


# order and names -----------------------------------------------------------------------------------------------------------
def placeholders_first(h: Handed) -> Complaints:
    kinds = [n.op for n in nodes_of(h)]
    n = kinds.count("placeholder")
    if kinds[:n] != ["placeholder"] * n:
        yield "a placeholder stands behind other nodes"
    if kinds.count("output") != 1 or kinds[-1:] != ["output"]:
        yield "the last node is not the one output"


def no_submodules(h: Handed) -> Complaints:
    yield from (f"{n.name} calls a module" for n in nodes_of(h, "call_module"))


def defined_before_use(h: Handed) -> Complaints:
    seen: set[fx.Node] = set()
    for n in nodes_of(h):
        yield from (f"{n.name} reads {a.name}, which is not defined before it" for a in n.all_input_nodes if a not in seen)
        seen.add(n)


def legal_names(h: Handed) -> Complaints:
    seen: set[str] = set()
    for n in nodes_of(h):
        if not n.name.isidentifier() or keyword.iskeyword(n.name):
            yield f"{n.name!r} is not a name"
        if n.name in seen:
            yield f"two nodes are called {n.name}"
        seen.add(n.name)


# inputs --------------------------------------------------------------------------------------------------------------------
def one_placeholder_each(h: Handed) -> Complaints:
    found = nodes_of(h, "placeholder")
    if not len(found) == len(h.at) == len(h.inputs):
        yield f"{len(found)} placeholders for {len(h.at)} arguments"
    if len(set(h.at)) != len(h.at):
        yield "two placeholders stand for one argument"
    if len({n.target for n in found}) != len(found):
        yield "two placeholders have one name"


def known_inputs(h: Handed) -> Complaints:
    for n, spec in zip(nodes_of(h, "placeholder"), h.inputs):
        if not isinstance(spec, (TensorSlot, SymbolInfo)) or (isinstance(spec, SymbolInfo) and spec.kind not in (int, float)):
            yield f"{n.name} is neither a tensor nor an int nor a float"


def floats_are_tensors(h: Handed) -> Complaints:
    for n, spec in zip(nodes_of(h, "placeholder"), h.inputs):
        if isinstance(spec, SymbolInfo) and spec.kind is float and not all(u.op == "call_method" and u.target == "item" for u in n.users):
            yield f"the float {n.name} is used other than by item()"


def sizes_are_inputs(h: Handed) -> Complaints:
    given = {spec.name for spec in h.inputs if isinstance(spec, SymbolInfo)}
    for spec in h.inputs:
        if isinstance(spec, TensorSlot):
            for text in (spec.sizes, spec.strides, spec.offset):
                yield from (f"the symbol {s} of an input's {text} is no input" for s in sorted(names_in(text) - given))


def inputs_are_used(h: Handed) -> Complaints:
    yield from (f"nothing reads the tensor {n.name}" for n, s in zip(nodes_of(h, "placeholder"), h.inputs)
                if isinstance(s, TensorSlot) and not n.users)  # fmt: skip


# arguments and targets ---------------------------------------------------------------------------------------------------------
def arguments_are_plain(h: Handed) -> Complaints:
    for n in nodes_of(h):
        if n.op in ("placeholder", "get_attr"):
            continue
        for a in leaves((n.args, n.kwargs)):
            if isinstance(a, (torch.SymInt, torch.SymFloat, torch.SymBool)):
                yield f"{n.name} is given the number {a.node}, which no node computes"
            elif isinstance(a, torch.Tensor):
                yield f"{n.name} is given a {type(a).__name__}"
            elif not isinstance(a, fx.Node) and type(a) not in CONSTANTS and not isinstance(a, (enum.Enum, torch._ops.OpOverload)):
                yield f"{n.name} is given a {type(a).__name__}, which cannot be written down"


def targets_can_be_called(h: Handed) -> Complaints:
    for n in nodes_of(h):
        named = isinstance(n.target, torch._ops.OpOverload) or getattr(n.target, "__name__", "").isidentifier()
        if n.op == "call_function" and not (callable(n.target) and named):
            yield f"{n.name} calls {n.target!r}, which is no named function"
        elif n.op == "call_method" and not (isinstance(n.target, str) and callable(getattr(torch.Tensor, n.target, None))):
            yield f"{n.name} calls {n.target!r}, which is no method of tensors"
        elif n.op == "call_method" and not (n.args and isinstance(n.args[0], fx.Node)):
            yield f"{n.name} calls a method of {n.args[:1]}"


def attributes_are_constants(h: Handed) -> Complaints:
    read = {n.target for n in nodes_of(h, "get_attr")}
    for name in sorted(map(str, read)):
        held = getattr(h.module, name, None)
        if isinstance(held, fx.GraphModule):  # a side of a branch
            continue
        if not isinstance(held, torch.Tensor):
            yield f"the attribute {name} is not a tensor"
        elif held.requires_grad or isinstance(held, torch.nn.Parameter):
            yield f"the attribute {name} has gradients: it must be an input"
    held_ones = {*h.module._parameters, *h.module._buffers, *h.module._modules}
    yield from (f"the module holds {name}, which nothing reads" for name in sorted(held_ones - read))


# results -----------------------------------------------------------------------------------------------------------------------
def outputs_are_computed(h: Handed) -> Complaints:
    out = nodes_of(h)[-1]
    values = out.args[0] if len(out.args) == 1 else None
    if not isinstance(values, (tuple, list)):
        yield "the output is not a tuple"
        return
    for v in values:
        if not isinstance(v, fx.Node):
            yield f"the output {v!r} is no result of a node"
        elif v.op == "placeholder":
            yield f"the output {v.name} is an input"
    results = [v for v in values if isinstance(v, fx.Node) and isinstance(h.values.get(v.name), TensorSlot)]
    if len(set(results)) != len(results):
        yield "a tensor is given twice"


def assertions_are_nodes(h: Handed) -> Complaints:
    found = [n for n in nodes_of(h, "call_function") if n.target is ASSERT]
    if [n.args[1] for n in found] != [check.text for check, _ in h.checks]:
        yield f"{len(h.checks)} assertions, {len(found)} nodes that check them, or in another order"
    done = {check.expr for check, _ in h.checks}
    lost = [c for c in h.facts.asserts if c.expr not in done and h.facts.known.issuperset(c.expr.symbols())]
    yield from (f"the assertion `{c.expr}` is not in the graph" for c in lost)


def effects_are_kept(h: Handed) -> Complaints:
    kept = {id(op) for ops in h.facts.ops for op in ops}
    yield from (f"{op.target} has an effect, and no node does it" for op in h.facts.effects if id(op) not in kept)


# what people and programs read ---------------------------------------------------------------------------------------------------
def lines_are_known(h: Handed) -> Complaints:
    if len(h.sites) != len(nodes_of(h)):
        yield f"{len(nodes_of(h))} nodes, {len(h.sites)} lines"
    for n, site in zip(nodes_of(h), h.sites):
        if site is not None and not n.meta.get("stack_trace"):
            yield f"{n.name} does not tell its line"


def examples_are_plain(h: Handed) -> Complaints:
    for n in nodes_of(h):
        for key, value in n.meta.items():
            if key not in ("stack_trace", "example_value"):
                yield f"{n.name} holds {key}, a {type(value).__name__}, which may keep the capture alive"
    ok = (TensorSlot, Number, type(None), bool, int, float, str)
    yield from (f"the example value of {name} is a {type(v).__name__}" for name, value in h.values.items()
                for v in leaves(value) if not isinstance(v, ok))  # fmt: skip


def code_can_be_read(h: Handed) -> Complaints:
    """The printed code defines each variable before it is read, and frees none that is read later."""
    try:
        code = h.module.graph.python_code("self")
        tree = ast.parse(code.src).body
    except Exception as e:
        yield f"the graph cannot be printed: {type(e).__name__}: {e}"
        return
    if h.module.code.strip() != code.src.strip():
        yield "the module was not compiled again after its graph was changed"
    (fn,) = [s for s in tree if isinstance(s, ast.FunctionDef)]
    alive = {a.arg for a in fn.args.args}
    outer = {*code.globals, *dir(__builtins__), *(__builtins__ if isinstance(__builtins__, dict) else ())}
    for statement in fn.body:
        freed: set[str] = set()
        bound: set[str] = set()
        for part in ast.walk(statement):
            if isinstance(part, ast.Name):
                if isinstance(part.ctx, ast.Load):
                    if part.id not in alive and part.id not in outer:
                        yield f"line {statement.lineno} of the printed code reads {part.id}, which is not defined (any more)"
                else:
                    bound.add(part.id)
        if isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Constant) and statement.value.value is None:
            freed = bound
        alive = (alive | bound) - freed


RULES = (
    Rule("placeholders-first", "placeholders, then calls, then one output", placeholders_first),
    Rule("no-submodules", "no node calls a module: parameters and buffers are inputs", no_submodules),
    Rule("defined-before-use", "a node reads only nodes before it", defined_before_use),
    Rule("legal-names", "nodes have different names, which are Python's", legal_names),
    Rule("one-placeholder-each", "one placeholder for each argument, in order", one_placeholder_each),
    Rule("known-inputs", "an input is a tensor, an int or a float", known_inputs),
    Rule("floats-are-tensors", "a float arrives as a 0-d float64 tensor, read by item() alone", floats_are_tensors),
    Rule("sizes-are-inputs", "each symbol in the sizes and strides of an input is an int input", sizes_are_inputs),
    Rule("inputs-are-used", "each tensor input is read", inputs_are_used),
    Rule("arguments-are-plain", "arguments are nodes and constants that print, in lists, tuples, dicts and slices", arguments_are_plain),
    Rule("targets-can-be-called", "functions have names, methods are those of tensors", targets_can_be_called),
    Rule("attributes-are-constants", "attributes are tensors made of the program's numbers, without gradients", attributes_are_constants),
    Rule("outputs-are-computed", "the output is a tuple of different nodes, none of them an input", outputs_are_computed),
    Rule("assertions-are-nodes", "each runtime assertion is a node that raises where it fails", assertions_are_nodes),
    Rule("effects-are-kept", "what writes, draws random numbers or raises is done, read or not", effects_are_kept),
    Rule("lines-are-known", "each call tells the user's line", lines_are_known),
    Rule("examples-are-plain", "what nodes carry is example values and lines, nothing of the capture", examples_are_plain),
    Rule("code-can-be-read", "the printed code compiles and frees nothing before its last use", code_can_be_read),
)


def violations(graph: Handed) -> list[str]:
    """What is wrong with a graph, as text: empty if nothing is."""
    found = []
    for rule in RULES:
        found += [f"{rule.name}: {text}" for text in rule.complaints(graph)]
    return found


def verify(graph: Handed) -> None:
    """Raises InternalError for a graph that breaks a rule."""
    found = violations(graph)
    if found:
        raise InternalError("malformed graph for a backend: " + "; ".join(found[:5]))


def names_in(text: str) -> set[str]:
    """The symbols in a printed expression."""
    tree = ast.parse(text, mode="eval")
    called = {id(c.func) for c in ast.walk(tree) if isinstance(c, ast.Call)}
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in called}
    return names - {"math", "min", "max"}
