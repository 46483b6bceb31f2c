"""The form "torch": the calls that the function made of the torch API, as a `torch.fx.GraphModule` with its parameters and buffers.

It is a module like the one that was exported, without its Python: it has its state dict, trains, and takes every size. That is what
people read, and what graph-mode quantization (`aten_calls`) starts from.
"""

from __future__ import annotations

import re
from typing import Any

import torch
from torch import fx

from pliant.errors import PliantError
from pliant.export.program import MUTATION, USER, Program
from pliant.export.trees import LEAVES, put_together
from pliant.graph.torch_graph import torch_level
from pliant.lower import liveness


def put(p: Program, writer: Any) -> None:
    """Set `p.module`. PliantError where the function writes what a module cannot (objects among its arguments)."""
    if any(o.kind == MUTATION for o in p.outputs):
        names = ", ".join(o.of for o in p.outputs if o.kind == MUTATION)
        raise PliantError(f'form="torch": {p.name} puts tensors into {names}; use form="core", where they are outputs')
    slots = [i.value for i in p.inputs]
    outputs = [o.value for o in p.outputs]
    graph = torch_level(p.trace, [*slots, *size_symbols(p)], outputs, name=p.name)
    p.module = with_state(p, graph if isinstance(graph, fx.GraphModule) else graph.module)


def size_symbols(p: Program) -> list[Any]:
    """The symbols of sizes, each an input of the graph that `with_state` replaces by a look at a tensor."""
    seen: dict[str, Any] = {}
    for i in p.inputs:
        if i.is_tensor:
            for x in (*i.value.sizes, *i.value.strides, i.value.offset):
                e = liveness.number(x)
                if e is not None:
                    seen.update((s.name, s) for s in e.symbols())
    own = {i.value.name for i in p.inputs if not i.is_tensor}
    return [s for name, s in seen.items() if name not in own]


def with_state(p: Program, module: fx.GraphModule) -> fx.GraphModule:
    """The graph with parameters and buffers as attributes, sizes read off its inputs, and the user's inputs as placeholders."""
    graph = module.graph
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    kept: list[fx.Node] = []
    for i, node in zip(p.inputs, placeholders):
        if i.kind == USER:
            rename(graph, node, i.name)
            kept.append(node)
            continue
        place_state(module, i, p.state[i.name])
        with graph.inserting_before(node):
            new = graph.get_attr(attribute(i.name))
            new.meta.update(node.meta)
        node.replace_all_uses_with(new)
        graph.erase_node(node)
    users = [i for i in p.inputs if i.kind == USER]
    for node in placeholders[len(p.inputs) :]:
        read_size(graph, node, users, kept)
    give_result(p, graph)
    graph.eliminate_dead_code(lambda n: n.op != "call_function" and n.op != "call_method" or n.is_impure())
    graph.lint()
    module.recompile()
    return module


def rename(graph: fx.Graph, node: fx.Node, name: str) -> None:
    node._rename(re.sub(r"\W", "_", name))
    node.target = node.name


def give_result(p: Program, graph: fx.Graph) -> None:
    """Let the graph return what the function returns, where that is made of tuples, lists and dicts; else the outputs in a tuple."""
    output = next(n for n in graph.nodes if n.op == "output")
    values = list(output.args[0])  # type: ignore[arg-type]
    plain = all(
        t.kind != "object" and (t.kind in LEAVES or t.value[0] in (tuple, list, dict)) and t.kind != "argument" for t in p.result.walk()
    )
    found = put_together(p.result, lambda t: values[t.value]) if plain else tuple(values)
    output.args = (found,)


def attribute(name: str) -> str:
    """A dotted name that modules can have."""
    return ".".join(f"_{w}" if w[:1].isdigit() and "." not in name else w for w in name.split("."))


def place_state(root: torch.nn.Module, i: Any, value: torch.Tensor) -> None:
    *path, last = attribute(i.name).split(".")
    for word in path:
        if not hasattr(root, word):
            root.add_module(word, torch.nn.Module())
        root = getattr(root, word)
    if i.kind == "parameter":
        root.register_parameter(last, value if isinstance(value, torch.nn.Parameter) else torch.nn.Parameter(value, value.requires_grad))
    else:
        root.register_buffer(last, value)


def read_size(graph: fx.Graph, node: fx.Node, users: list[Any], kept: list[fx.Node]) -> None:
    """Replace a size symbol by `x.size(d)` of the first input that has it as it is."""
    if not node.users:
        graph.erase_node(node)
        return
    name = liveness.number(node.meta["val"]).name if liveness.number(node.meta["val"]) is not None else node.name
    last = kept[-1]
    for i, at in zip(users, kept):
        if not i.is_tensor:
            continue
        for method, values in (("size", i.value.sizes), ("stride", i.value.strides)):
            for d, x in enumerate(values):
                e = liveness.number(x)
                if e is not None and e.op == "sym" and e.name == name:
                    with graph.inserting_after(last):
                        new = graph.call_method(method, (at, d))
                        new.meta.update(node.meta)
                    node.replace_all_uses_with(new)
                    graph.erase_node(node)
                    return
    raise PliantError(f'form="torch": the size {name} cannot be read off an input')

