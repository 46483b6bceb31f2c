"""Compiled programs as data: the bytecode of what was printed, the objects that it names, and the machine code that it calls.

Machine code itself stays where it is on the disk, under its module's name (`codegen/linked.py`); what is kept here says which modules
to link and which of their functions a program calls.
"""

from __future__ import annotations

import builtins
import functools
import linecache
import marshal
import types
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

import torch

from pliant import native
from pliant.codegen import aten, generated, linked, target
from pliant.codegen.aten import Executable
from pliant.codegen.autograd_region import Node, checkpoint_globals
from pliant.codegen.batched_gradients import ASKED
from pliant.codegen.double_backward import Twice
from pliant.codegen.failures import PLACES, Place, Places, remember
from pliant.codegen.freed_results import Freed
from pliant.codegen.nodes import Later, Part, node_of, watching
from pliant.codegen.recipe_source import Repeated
from pliant.codegen.region import Chain
from pliant.codegen.second_backward import SecondPart, Seconds
from pliant.codegen.variants import Variants
from pliant.graph import arriving
from pliant.jit.branches import Branch
from pliant.jit.emit import Emitted
from pliant.jit.emitted_functions import is_emitted, note_emitted
from pliant.jit.failing import Failing
from pliant.jit.persist import gradients
from pliant.jit.persist.guards import Weakly
from pliant.jit.persist.names import Missing, Writer
from pliant.jit.persist.tensors import decode_tensor, encode_tensor
from pliant.jit.persist.values import NotPortable, decode, encode, encode_held

OWN = "aten", "prims", "pliant", "pliant_numpy", "pliant_collectives"


class Linker:
    """Numbers the modules of machine code that an entry needs."""

    def __init__(self) -> None:
        self.rows: list[tuple] = []
        self.known: dict[int, int] = {}
        self.keep: list[linked.Module] = []

    def refer(self, module: linked.Module) -> int:
        i = self.known.get(id(module))
        if i is None:
            callees = [(name, self.refer(other), symbol) for name, (other, symbol) in module.known.items()]
            i = self.known[id(module)] = len(self.rows)
            self.rows.append((module.name, module.names, callees))
            self.keep.append(module)
        return i


def link(rows: list[tuple]) -> list[dict[str, int]]:
    """The addresses of the functions of each module, by name. Raises Missing where the disk has lost one."""
    out: list[dict[str, int]] = []
    for name, names, callees in rows:
        found = target.current().link(name, list(names), {symbol: out[i][callee] for symbol, i, callee in callees})
        if found is None:
            raise Missing("machine code that is no longer on the disk")
        out.append(found)
    return out


# -- what a program names -------------------------------------------------------------------------------------------------------
def overload_of(name: str, raw: Any) -> Any:
    """The overload of which `fastops.plain` took the handle `raw`, by the global's name. Raises NotPortable."""
    for space in OWN:
        words = name.removeprefix(f"_op_{space}_").split("_") if name.startswith(f"_op_{space}_") else []
        for n in range(1, len(words)):
            packet = getattr(getattr(torch.ops, space), "_".join(words[:n]), None)
            found = getattr(packet, "_".join(words[n:]), None)
            if found is not None and getattr(found, "_op", None) is raw:
                return found
    raise NotPortable(f"the global {name}")


UNCOUNTED = types.SimpleNamespace(counting=False)
"""Stands for a branch of which both sides are one operation: what comes from the disk stays what it is."""


def encode_global(name: str, value: Any, table: Writer, linker: Linker) -> tuple:
    if type(value) is native.Launcher:
        place = linked.place_of(value.address)
        if place is None:
            raise NotPortable("machine code that has no name on the disk")
        return "launcher", linker.refer(place[0]), place[1], value.itemsizes, value.sizes, str(value.owner)
    if type(value) is native.Empty:
        return "empty", name.removeprefix("_empty_")
    if value is native.number:
        return ("number",)
    if isinstance(value, torch.Tensor):
        return "tensor", *encode_tensor(value)
    if value is aten.AUTOGRAD_AND_AUTOCAST or value is aten.AUTOCAST:
        return "keys", value is aten.AUTOCAST
    if type(value) is Branch:
        return ("uncounted",)
    if is_printed(value):
        return "printed", *encode_printed(value, table, linker)
    if is_placing(value):
        return "placed", *[encode(x, table.refer) for x in value.args]
    if name.startswith("_op_"):
        return "operator", table.refer(overload_of(name, value))
    return "value", encode_held(value, table.refer)


def decode_global(data: tuple, objects: list[Any], modules: list[dict[str, int]]) -> Any:
    kind, *rest = data
    if kind == "value":
        return decode(rest[0], objects.__getitem__)
    if kind == "placed":
        return functools.partial(arriving.given, *[decode(x, objects.__getitem__) for x in rest])
    if kind == "launcher":
        module, symbol, itemsizes, sizes, owner = rest
        return native.Launcher(modules[module][symbol], itemsizes, sizes, owner)
    if kind == "tensor":
        return decode_tensor(*rest)
    if kind == "printed":
        return decode_printed(*rest, objects, modules)
    if kind == "empty":
        return native.empty_of(getattr(torch, rest[0]))
    if kind == "number":
        return native.number
    if kind == "uncounted":
        return UNCOUNTED
    if kind == "keys":
        return aten.AUTOCAST if rest[0] else aten.AUTOGRAD_AND_AUTOCAST
    return objects[rest[0]]._op


def is_printed(value: Any) -> bool:
    """A program, or a flow (`codegen/flow.py`), that another one calls."""
    own = type(value) is types.FunctionType and value.__globals__.get(value.__name__) is value
    return own and value.__code__.co_filename.startswith(generated.GENERATED) and value.__code__.co_filename in linecache.cache


def encode_printed(fn: Any, table: Writer, linker: Linker) -> tuple:
    """Such a function. Raises NotPortable."""
    source = "".join(linecache.cache[fn.__code__.co_filename][2])
    if fn.__code__.co_filename in PLACES:
        return "program", encode_program(Executable(fn, source, 0, fn.__globals__), table, linker, frozenset())
    if fn.__closure__:
        raise NotPortable("a flow that is more than what was printed")
    ours = {k: v for k, v in fn.__globals__.items() if k != "__builtins__" and v is not fn}
    names = {k: encode_global(k, v, table, linker) for k, v in ours.items()}
    return "flow", (fn.__name__, marshal.dumps(fn.__code__), source, names)


def decode_printed(kind: str, data: tuple, objects: list[Any], modules: list[dict[str, int]]) -> Any:
    if kind == "program":
        return decode_program(data, objects, modules, {}).fn
    name, code, source, names = data
    namespace = {k: decode_global(v, objects, modules) for k, v in names.items()}
    return generated.loaded_text(source, name, marshal.loads(code), namespace)


# -- executables ----------------------------------------------------------------------------------------------------------------
def encode_executable(made: Executable, table: Writer, linker: Linker) -> tuple:
    """A compiled graph. Raises NotPortable."""
    if type(made.node) is Chain:
        return "chain", encode_chain(made.node, table, linker)
    if type(made.node) is Freed:
        f = made.node
        return "freed", (encode_program(f.program, table, linker, frozenset()), f.at, f.through, f.bare)
    if type(made.node) is Variants:
        raise NotPortable("its graph was handed to another backend")
    if made.node is not None:
        return "node", encode_node(made.node, table, linker)
    return "plain", encode_program(made, table, linker, frozenset())


def decode_executable(data: tuple, objects: list[Any], modules: list[dict[str, int]]) -> Executable:
    kind, content = data
    if kind == "chain":
        return decode_chain(content, objects, modules)
    if kind == "freed":
        program, *places = content
        return Freed(decode_program(program, objects, modules, {}), *places).executable()
    return decode_node(content, objects, modules) if kind == "node" else decode_program(content, objects, modules, {})


def encode_chain(chain: Chain, table: Writer, linker: Linker) -> tuple:
    """A region in sections. Raises NotPortable."""
    parts = [encode_executable(p, table, linker) for p in chain.parts]
    return parts, encode_program(chain.around, table, linker, frozenset(Chain.calling(chain.parts)))


def decode_chain(data: tuple, objects: list[Any], modules: list[dict[str, int]]) -> Executable:
    encoded, around = data
    parts = tuple([decode_executable(p, objects, modules) for p in encoded])
    return Chain(parts, decode_program(around, objects, modules, Chain.calling(parts))).executable()


def encode_program(made: Executable, table: Writer, linker: Linker, given: frozenset[str]) -> tuple:
    """One straight-line program; who puts it together gives it the globals in `given`. Raises NotPortable."""
    fn = made.fn
    if type(fn) is not types.FunctionType or fn.__globals__ is not made.globals or fn.__closure__:
        raise NotPortable("a program that is more than what was printed")
    ours = {k: v for k, v in made.globals.items() if k != "__builtins__" and k not in given and v is not fn}
    names = {k: encode_global(k, v, table, linker) for k, v in ours.items()}
    places = PLACES[fn.__code__.co_filename]
    unique = {p: i for i, p in enumerate(dict.fromkeys(places.lines.values()))}
    lines = {line: unique[p] for line, p in places.lines.items()}
    where = ([(p.calls, p.handled) for p in unique], lines, places.effects_from, places.writes, places.entrance)
    return fn.__name__, marshal.dumps(fn.__code__), made.source, made.n_ops, names, where


def decode_program(data: tuple, objects: list[Any], modules: list[dict[str, int]], given: dict[str, Any]) -> Executable:
    name, code, source, n_ops, names, (unique, lines, *rest) = data
    namespace = {k: decode_global(v, objects, modules) for k, v in names.items()} | given
    fn = generated.loaded_text(source, name, marshal.loads(code), namespace)
    places = [Place(calls, handled) for calls, handled in unique]
    remember(fn, Places({line: places[i] for line, i in lines.items()}, *rest))
    return Executable(fn, source, n_ops, namespace)


def is_placing(value: Any) -> bool:
    """Whether this says how the gradient of a distributed input is placed."""
    return type(value) is functools.partial and value.func is arriving.given and not value.keywords


def encode_node(node: Node, table: Writer, linker: Linker) -> tuple:
    """A differentiable region. Raises NotPortable."""
    refusal = node.twice.refusal
    if node.heads > 1 and refusal:  # for gradients of some results only, another backward part would have to be traced
        raise NotPortable(f"several results have gradients, and {refusal}")
    if node.heads > 1 and any([is_placing(v) for p in node.parts for v in p.backward.globals.values()]):
        raise NotPortable("several results have gradients, and one of an input is placed otherwise than it")
    if any([p.twice.placed is not None and p.twice.placed.arrives() for p in node.parts]):
        raise NotPortable("how gradients of its distributed results are placed is known when they arrive, and a capture is needed then")
    recipe = None if refusal else gradients.encode_recipe(node.twice.recipe(), table)
    given = frozenset(("_twice", "_partial", "_relaid", *ASKED))
    backwards = [(p.heads, p.slots, p.through, encode_program(p.backward, table, linker, given)) for p in node.parts]
    parts = [(*b, *seconds_of(p, table, linker), relaid_of(p, table)) for b, p in zip(backwards, node.parts, strict=True)]
    later = node.later.watch, node.later.nodes, node.shared
    forward = encode_program(node.forward, table, linker, frozenset())
    around = encode_program(node.around, table, linker, frozenset(("_apply", "_on", "_kept")))
    twice = node.twice.gives, node.twice.repeated.backend, node.twice.bare, node.twice.read, node.twice.direct
    return node.name, forward, parts, around, refusal, recipe, twice, node.grad_on, node.heads, node.results, later, node.kept


def seconds_of(part: Part, table: Writer, linker: Linker) -> tuple:
    """The results of a node, and its program for gradients of gradients of all of these, if it has one."""
    found = part.twice.second
    if type(found) is not Seconds:
        return (), None
    whole = found.known.get((True,) * len(found.heads))
    if whole is None:
        return found.heads, None
    told = {name: getattr(whole, name) for name in TOLD} | {"begins": tuple([tuple(sorted(b)) for b in whole.begins])}
    return found.heads, (encode_program(whole.program, table, linker, frozenset()), told)


TOLD = tuple([f.name for f in fields(SecondPart) if f.name != "program"])


def relaid_of(part: Part, table: Writer) -> bytes | None:
    """The backward program for inputs whose data has another layout by then, of ATen's calls; read when it is asked for."""
    found, linker = part.backward.globals.get("_relaid"), Linker()
    if found is None:
        return None
    data = encode_program(found.program, table, linker, frozenset())
    if linker.rows:
        raise NotPortable("machine code in a program of ATen's calls")
    return marshal.dumps(data)


class Relaid:
    """Such a program from the disk."""

    def __init__(self, data: bytes, objects: list[Any]) -> None:
        self.data = data
        self.objects = Weakly(objects)

    @functools.cached_property
    def program(self) -> Executable:
        return decode_program(marshal.loads(self.data), self.objects, [], {})

    def __call__(self, ctx: Any, kept: tuple, *grads: Any) -> tuple:
        return self.program.fn(ctx, kept, *grads)  # type: ignore[no-any-return]


def decode_second(heads: tuple, data: Any, objects: list[Any], modules: list[dict[str, int]]) -> Seconds | None:
    if data is None:
        return None
    program, told = data
    whole = SecondPart(decode_program(program, objects, modules, {}), **told | {"begins": tuple(map(frozenset, told["begins"]))})
    return Seconds(heads, {(True,) * len(heads): whole}, None)


def decode_node(data: tuple, objects: list[Any], modules: list[dict[str, int]]) -> Executable:
    name, forward, parts, around, refusal, recipe, (gives, backend, *inputs), grad_on, heads, results, (watch, nodes, shared), kept = data
    twice = Twice(refusal, gradients.Later(recipe, objects), gives, Repeated(backend), *inputs)
    first = decode_program(forward, objects, modules, {})
    made = []
    for own, slots, through, backward, heads_with_history, second, relaid in parts:
        again = replace(twice, second=decode_second(heads_with_history, second, objects, modules))
        given = {"_twice": again, "_partial": gradients.Partial(twice, heads, through), **ASKED}
        if relaid is not None:
            given["_relaid"] = Relaid(relaid, objects)
        made.append(Part(own, slots, through, decode_program(backward, objects, modules, given), again))
        again.backward = made[-1].backward.fn
    apply = node_of(name, first.fn, made, results)
    if watch:
        apply = watching(watch, apply, lambda: node_of(name, first.fn, gradients.parts_of(twice, nodes, shared), results))
    whole = decode_program(around, objects, modules, {"_apply": apply, **checkpoint_globals(kept, apply, first.fn)})
    later = Later(watch, nodes)
    return Node(name, first, tuple(made), whole, twice, grad_on, heads, results, later, shared, kept).executable()


# -- emitted functions ------------------------------------------------------------------------------------------------------------
def encode_emitted(emitted: Emitted, table: Writer) -> tuple:
    """The function that an entry runs; its graph is apart. Raises NotPortable."""
    run = emitted.executable.fn if emitted.executable is not None else None
    return *encode_function(emitted.fn, run, table), emitted.source, emitted.repeats


def encode_function(fn: Any, run: Any, table: Writer) -> tuple:
    """One that `emit` has printed: its name, bytecode and globals. `run`: what it calls the graph."""
    names: dict[str, Any] = {}
    for k, v in fn.__globals__.items():
        if k == "__builtins__":
            continue
        if run is not None and v is run:
            names[k] = ("graph",)
        elif type(v) is Failing:
            names[k] = ("failed", v.lenient)
        elif type(v) is Branch:
            names[k] = ("branch", table.refer(v), v.hot)
        elif type(v) is types.FunctionType and is_emitted(v):  # what runs behind a side exit
            names[k] = ("exit", encode_function(v, None, table))
        elif is_printed(v):  # what that one needs of the graph
            linker = Linker()
            names[k] = ("after", encode_printed(v, table, linker))
            if linker.rows:
                raise NotPortable("machine code outside of the graph")
        else:
            names[k] = ("value", encode_held(v, table.refer))
    return fn.__name__, fn.__module__, marshal.dumps(fn.__code__), names


def decode_emitted(data: tuple, objects: list[Any], executable: Executable | None, again: Any, code: types.CodeType) -> Emitted:
    *function, source, repeats = data
    made = Emitted(None, source, [], executable, repeats=repeats)  # type: ignore[arg-type]
    made.fn = decode_function(tuple(function), objects, made, functools.partial(Failing, code, again))
    return made


def decode_function(data: tuple, objects: list[Any], made: Emitted, failing: Callable[[bool], Failing]) -> Any:
    """`made`: the entry's own, whose `branches` and `sides` are filled."""
    name, module, body, names = data
    namespace: dict[str, Any] = {"__builtins__": builtins.__dict__}
    for k, (kind, *rest) in names.items():
        if kind == "graph":
            assert made.executable is not None
            namespace[k] = made.executable.fn
        elif kind == "branch":
            namespace[k] = objects[rest[0]]
            made.branches.append(objects[rest[0]])
            made.sides.append(rest[1])
        elif kind == "failed":
            namespace[k] = failing(rest[0])
        elif kind == "exit":
            namespace[k] = decode_function(rest[0], objects, made, failing)
        elif kind == "after":
            namespace[k] = decode_printed(*rest[0], objects, [])
        else:
            namespace[k] = decode(rest[0], objects.__getitem__)
    fn = types.FunctionType(marshal.loads(body), namespace, name)
    fn.__qualname__, fn.__module__ = name, module
    return note_emitted(fn)
