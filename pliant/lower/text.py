"""Programs and kernels as text. At level "graph", and of kernels, the text is complete: `read_program` and `read_kernel` make them again.

    program region
      symbol s0 = 5 in [2, inf] backed
      input %0: f32 [s0, 64] strides [64, 1]
      %1: f32 [64, s0] strides [1, 64] of %0 = aten.t.default(%0)
      assert s0 <= 512
      output [%1, s0]

    kernel k0(n0, n1) loops [n0, n1], 1 reduced
      buffer b0: f32
      buffer b1: f32 written
      %0 = load b0 strides [n1, 1] offset 0: f32
      %1 = reduce "sum" %0: f32
      store b1 strides [1] offset 0 = %1

Sizes are expressions (`symbolic/parser.py`); `of %0` tells whose memory a tensor sees. Reading evaluates nothing but literals.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import torch

from pliant.graph.dispatch import is_dense, set_bits
from pliant.graph.originals import ORIGINAL
from pliant.graph.record import Bind, Op
from pliant.graph.symnode import to_sym
from pliant.graph.trace import Trace
from pliant.graph.traced import TracedTensor, make
from pliant.lower import liveness
from pliant.lower.kernels import Launch
from pliant.lower.loops import Buffer, Kernel, Node, Store
from pliant.lower.program import CALLS, GRAPH, GROUPS, INSTRUCTIONS, RUNS, Group, Instruction, Program, SegmentCall
from pliant.symbolic.expr import Expr
from pliant.symbolic.parser import built, parse
from pliant.symbolic.scope import Scope

SHORT = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8", torch.int16: "i16",
    torch.int32: "i32", torch.int64: "i64", torch.uint8: "u8", torch.bool: "bool",
}  # fmt: skip
LONG = {name: dtype for dtype, name in SHORT.items()}
NAMED = {
    str(v): v
    for v in vars(torch).values()
    if isinstance(v, (torch.dtype, torch.layout, torch.memory_format))
}  # fmt: skip


# -- values --------------------------------------------------------------------------------------------------------------------
def size_text(value: Any) -> str:
    e = liveness.number(value)
    return e.python() if e is not None else str(value)


def sizes_text(sizes: Any) -> str:
    return f"[{', '.join(map(size_text, sizes))}]"


def value_text(value: Any) -> str:
    """An argument, as `read_value` reads it."""
    if type(value) is TracedTensor:
        return f"%{value.vid}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(value_text, value))}]"
    if isinstance(value, torch.device):
        return f"device('{value}')"
    if type(value) is float and value not in (float("inf"), float("-inf")) and value == value:
        return repr(value)
    if type(value) in (float, complex):
        return f"{type(value).__name__}('{value}')"
    e = liveness.number(value)
    if e is not None:
        return f"({e.python()})"
    return repr(value) if type(value) in (int, bool, str, type(None)) else str(value)


def symbol_text(s: Expr) -> str:
    """What is known of a symbol from its birth, as `Reader.symbol` reads it."""
    lo, hi = (x if x is not None else f for x, f in ((s.info.lo, "-inf"), (s.info.hi, "inf")))
    hint = "" if s.info.hint is None else f" = {s.info.hint}"
    how = ("backed" if s.info.backed else "unbacked") + (" size" if s.info.size_like else "") + f" {s.kind.__name__}"
    return f"symbol {s.name}{hint} in [{lo}, {hi}] {how}"


def tensor_text(t: TracedTensor, owners: dict[int, int]) -> str:
    """A tensor where it is made. `owners`: storage -> the first tensor with it."""
    owner = owners.setdefault(t.storage_id, t.vid)
    parts = [f"%{t.vid}: {SHORT.get(t.dtype, str(t.dtype))} {sizes_text(t.sizes)} strides {sizes_text(t.strides)}"]
    if size_text(t.offset) != "0":
        parts.append(f"offset {size_text(t.offset)}")
    if owner != t.vid:
        parts.append(f"of %{owner}")
    if t.device.type != "cpu":
        parts.append(f"on {t.device}")
    parts += [word for word, bit in (("conj", ORIGINAL.is_conj(t)), ("neg", ORIGINAL.is_neg(t))) if bit]
    return " ".join(parts)


def op_text(op: Op, owners: dict[int, int], known: set[int]) -> str:
    left = outs_text(op, owners, known)
    shown = ", ".join([*map(value_text, op.args), *(f"{k}={value_text(v)}" for k, v in (op.kwargs or {}).items())])
    spec = "" if op.out_spec is None else " many"
    return f"{left} = {op.target}({shown}){finds_text(op)}{spec}"


def outs_text(op: Op, owners: dict[int, int], known: set[int]) -> str:
    """The results of an operation, tensors where they are made."""
    outs = []
    for o in op.outs:
        if type(o) is not TracedTensor:
            outs.append(value_text(o))
        elif o.vid in known:
            outs.append(f"%{o.vid}")
        else:
            known.add(o.vid)
            outs.append(tensor_text(o, owners))
    return "; ".join(outs)


def finds_text(op: Op) -> str:
    """The symbols that an operation makes known."""
    return "".join(f" finds {liveness.number(b.symbol).name} at {b.out}" + ("" if b.dim is None else f" size {b.dim}") for b in op.binds)


# -- programs ------------------------------------------------------------------------------------------------------------------
def program_text(p: Program) -> str:
    """The program, one step a line."""
    owners: dict[int, int] = {}
    known: set[int] = set()
    lines = [f"program {p.name}" + ("" if p.level == GRAPH else f" at level {p.level}")]
    lines += [f"  {symbol_text(s)}" for s in p.scope.symbols.values()]
    for slot in p.inputs:
        if type(slot) is TracedTensor:
            if slot.vid not in known:
                known.add(slot.vid)
                lines.append(f"  input {tensor_text(slot, owners)}")
        else:
            lines.append(f"  input {slot if isinstance(slot, str) else slot.name}")
    if p.level == GRAPH:
        for t in {t.vid: t for op in p.steps for t in liveness.op_inputs(op) if t.constant is not None}.values():
            known.add(t.vid)
            lines.append(f"  constant {tensor_text(t, owners)}")
    lines += [f"  {line}" for step in p.steps for line in STEPS[p.level](p, step, owners, known)]
    lines += [f"  assert {size_text(e)}" for e in p.asserts]
    lines.append(f"  output {value_text(p.outputs)}")
    return "\n".join(lines)


def graph_step(p: Program, op: Op, owners: dict[int, int], known: set[int]) -> list[str]:
    return [op_text(op, owners, known)]


def group_step(p: Program, g: Group, owners: dict[int, int], known: set[int]) -> list[str]:
    ops = p.fact("groups").ops
    names = ", ".join(str(ops[i].target) for i in g.ops)
    if g.nest is None:
        return [f"group {g.index}: opaque {names}" + (f", as {type(g.library[0]).__name__}" if g.library else "")]
    stores = ", ".join(f"%{q.root}" for q in g.nest.stores)
    return [f"group {g.index}: loops {sizes_text(g.nest.dims)}, {g.nest.reduced} reduced, stores {stores}, of {names}"]


def instruction_step(p: Program, item: Instruction, owners: dict[int, int], known: set[int]) -> list[str]:
    made, reads = (", ".join(f"%{t.vid}" for t in ts) for ts in (item.made, item.reads))
    what = ", ".join(s.kernel.name if isinstance(s, Launch) else type(s).__name__.lower() for s in item.steps)
    either = f"{what} or {item.op.target}" if what and item.op is not None else what or str(item.op.target)
    return [f"{made or '-'} = {either}({reads})"]


def run_step(p: Program, run: Any, owners: dict[int, int], known: set[int]) -> list[str]:
    head = f"run of {len(run.instructions)} {'native' if run.native else 'ATen'}"
    return [head, *(f"  {line}" for item in run.instructions for line in instruction_step(p, item, owners, known))]


def call_step(p: Program, op: Op, owners: dict[int, int], known: set[int]) -> list[str]:
    lines = [op_text(op, owners, known)]
    if type(op.target) is SegmentCall:
        s = op.target.segment
        for step in s.steps:
            name = step.kernel.name if isinstance(step, Launch) else type(step).__name__.lower()
            lines.append(f"  {name}({', '.join(f'%{t.vid}' for t in step.buffers)})")
        places = ", ".join(f"%{t.vid} in {k if k >= 0 else f'result {-1 - k}'}" for t, k in zip(s.inner, s.plan.place, strict=True))
        lines.append(f"  arena of {len(s.plan.slots)} slots: {places or 'nothing'}")
    return lines


STEPS = {GRAPH: graph_step, GROUPS: group_step, INSTRUCTIONS: instruction_step, RUNS: run_step, CALLS: call_step}

TENSOR = re.compile(
    r"%(?P<vid>\d+): (?P<dtype>\S+) \[(?P<sizes>[^\]]*)\] strides \[(?P<strides>[^\]]*)\]"
    r"(?: offset (?P<offset>.+?))?(?: of %(?P<owner>\d+))?(?: on (?P<device>\S+))?(?P<conj> conj)?(?P<neg> neg)?"
)
SYMBOL = re.compile(r"symbol (\w+)(?: = (\S+))? in \[(\S+), (\S+)\] (backed|unbacked)( size)? (\w+)")
CALL = re.compile(
    r"(?P<outs>.*?) = (?P<target>\w+\.\w+\.\w+)\((?P<args>.*)\)(?P<binds>(?: finds \w+ at \d+(?: size \d+)?)*)(?P<many> many)?"
)
BIND = re.compile(r" finds (\w+) at (\d+)(?: size (\d+))?")


class Reader:
    """Reads one program at level "graph"."""

    dim: Any = None  # what is promised of the sizes

    def __init__(self) -> None:
        self.scope = Scope()
        self.trace = Trace(self.scope)
        self.names: dict[str, Any] = {}
        self.tensors: dict[str, TracedTensor] = {}

    def read(self, text: str) -> Program:
        head, *lines = [line.strip() for line in text.strip().splitlines()]
        if not re.fullmatch(r"program \w+", head):
            raise ValueError(f"line 1: not a program at level graph: {head!r}")
        p = Program(head.split()[1], self.scope, [], [], [])
        for number, line in enumerate(lines, 2):
            try:
                self.line(p, line)
            except (ValueError, KeyError, SyntaxError, AttributeError, RuntimeError) as e:
                raise ValueError(f"line {number}: {e}: {line!r}") from e
        return p

    def line(self, p: Program, line: str) -> None:
        word, _, rest = line.partition(" ")
        if word == "symbol":
            self.symbol(line)
        elif word == "input":
            p.inputs.append(self.tensor(rest) if rest.startswith("%") else self.names[rest])
        elif word == "assert":
            p.asserts.append(parse(rest, self.names))
        elif word == "output":
            p.outputs = self.value(rest)
        elif word == "constant":
            raise ValueError("constants have no text")
        elif word:
            p.steps.append(self.operation(line))

    def symbol(self, line: str) -> None:
        found = SYMBOL.fullmatch(line)
        if found is None:
            raise ValueError("not a symbol")
        name, hint, lo, hi, backed, size, kind = found.groups()
        of = {"int": int, "float": float, "bool": bool}[kind]
        number = {"True": True, "False": False}.get(hint, None) if hint in ("True", "False") else of(hint) if hint else None
        ends = [None if x in ("-inf", "inf") else of(x) for x in (lo, hi)]
        make_symbol = self.scope.backed if backed == "backed" else self.scope.unbacked
        more = {"dim": self.dim} if backed == "backed" and size else {}
        self.names[name] = make_symbol(name, hint=number, lo=ends[0], hi=ends[1], size_like=bool(size), kind=of, **more)  # type: ignore[arg-type]

    def size(self, text: str) -> Any:
        value = parse(text, self.names)
        return to_sym(self.scope, value) if type(value) is Expr else value

    def sizes(self, text: str) -> tuple:
        tree = ast.parse(f"[{text}]", mode="eval").body
        found = [built(e, self.names) for e in tree.elts]  # type: ignore[attr-defined]
        return tuple(to_sym(self.scope, v) if type(v) is Expr else v for v in found)

    def tensor(self, text: str) -> TracedTensor:
        found = TENSOR.fullmatch(text)
        if found is None:
            raise ValueError(f"not a tensor: {text!r}")
        sizes, strides = self.sizes(found["sizes"]), self.sizes(found["strides"])
        dtype = LONG.get(found["dtype"]) or NAMED[found["dtype"]]
        offset = self.size(found["offset"]) if found["offset"] else 0
        owner = self.tensors[found["owner"]].storage_id if found["owner"] else None
        device = torch.device(found["device"] or "cpu")
        t = make(self.trace, sizes, strides, dtype, offset, owner, device, is_dense(sizes, strides))
        if found["conj"] and not dtype.is_complex:
            raise ValueError("only complex tensors are conjugated")
        set_bits(self.trace, t, found["conj"] is not None, found["neg"] is not None)
        if found["vid"] in self.tensors:
            raise ValueError(f"%{found['vid']} is made twice")
        self.tensors[found["vid"]] = t
        return t

    def operation(self, line: str) -> Op:
        found = CALL.fullmatch(line)
        if found is None:
            raise ValueError("not an operation")
        space, name, overload = found["target"].split(".")
        target = getattr(getattr(getattr(torch.ops, space), name), overload)
        tree = ast.parse(f"f({self.marked(found['args'])})", mode="eval").body
        args = tuple(self.literal(a) for a in tree.args)  # type: ignore[attr-defined]
        kwargs = {k.arg: self.literal(k.value) for k in tree.keywords}  # type: ignore[attr-defined]
        spec = "flat" if found["many"] else None
        return Op(target, args, kwargs, self.results(found["outs"]), spec, None, -1, self.binds(found["binds"]))

    def results(self, text: str) -> list[Any]:
        return [self.result(t) for t in text.split("; ") if t]

    def binds(self, text: str) -> list[Bind]:
        return [Bind(self.names[s], int(i), int(d) if d else None) for s, i, d in BIND.findall(text)]

    def result(self, text: str) -> Any:
        if not text.startswith("%"):
            return self.value(text)
        return self.tensor(text) if ":" in text else self.tensors[text[1:]]

    @staticmethod
    def marked(text: str) -> str:
        return re.sub(r"%(\d+)", r"_tensor\1", text)

    def value(self, text: str) -> Any:
        return self.literal(ast.parse(self.marked(text), mode="eval").body)

    def literal(self, tree: ast.expr) -> Any:
        if isinstance(tree, ast.List):
            return [self.literal(e) for e in tree.elts]
        if isinstance(tree, ast.Constant) and isinstance(tree.value, (str, type(None))):
            return tree.value
        if isinstance(tree, ast.Name) and tree.id.startswith("_tensor"):
            return self.tensors[tree.id.removeprefix("_tensor")]
        words = ast.unparse(tree)
        if words in NAMED:
            return NAMED[words]
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "device" and len(tree.args) == 1:
            return torch.device(ast.literal_eval(tree.args[0]))
        if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id == "complex" and len(tree.args) == 1:
            return complex(ast.literal_eval(tree.args[0]))
        value = built(tree, self.names)
        return to_sym(self.scope, value) if type(value) is Expr else value


def read_program(text: str) -> Program:
    """The program at level "graph" that `program_text` wrote, in a scope and a trace of its own. ValueError names a line that is wrong."""
    return Reader().read(text)


# -- kernels -------------------------------------------------------------------------------------------------------------------
def keys_text(sizes: Any) -> str:
    return f"[{', '.join(map(str, sizes))}]"


def kernel_text(k: Kernel) -> str:
    """The kernel in loop IR, one node a line."""
    lines = [f"kernel {k.name}({', '.join(map(str, k.sizes))}) loops {keys_text(k.dims)}, {k.reduced} reduced"]
    lines += [f"  hint {name} {value}" for name, value in k.hints.items()]
    for i, b in enumerate(k.buffers):
        lines.append(f"  buffer b{i}: {b.dtype}{' written' if b.written else ''}{'' if b.unique else ' shared'}")
    names: dict[int, str] = {}
    for n in k.nodes():
        names[id(n)] = f"%{len(names)}"
        lines.append(f"  {names[id(n)]} = {node_text(n, names)}: {n.dtype}")
    for s in k.stores:
        index = "".join(f" at {names[id(i)]} step {step}" for i, step in zip(s.index, s.index_strides, strict=True))
        where = "" if s.predicate is None else f" where {names[id(s.predicate)]}"
        place = f"b{s.buffer} strides {keys_text(s.strides)} offset {s.offset}"
        lines.append(f"  store {s.mode} {place}{index}{where} = {names[id(s.node)]}")
    return "\n".join(lines)


def node_text(n: Node, names: dict[int, str]) -> str:
    args = " ".join(names[id(a)] for a in n.args)
    if n.op == "load":
        place = f"b{n.buffer} strides {keys_text(n.strides)} offset {n.offset} steps {keys_text(n.attrs[3])}"
        return f"load {place}{' predicated' if n.predicated else ''} ({args})"
    attrs = " ".join(repr(a) if type(a) is not float else a.hex() for a in n.attrs)
    return f"{n.op} ({attrs}) ({args})"


KERNEL = re.compile(r"kernel (\w+)\((.*)\) loops \[(.*)\], (\d+) reduced")
BUFFER = re.compile(r"buffer b(\d+): (\w+)( written)?( shared)?")
LOAD = re.compile(r"(%\d+) = load b(\d+) strides \[(.*?)\] offset (\S+) steps \[(.*?)\]( predicated)? \((.*)\): (\w+)")
NODE = re.compile(r"(%\d+) = (\w+) \((.*?)\) \((.*)\): (\w+)")
STORE = re.compile(r"store (\w+) b(\d+) strides \[(.*?)\] offset (\S+)((?: at %\d+ step \S+)*)(?: where (%\d+))? = (%\d+)")
AT = re.compile(r" at (%\d+) step (\S+)")


def key(text: str) -> Any:
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def keys(text: str) -> tuple:
    return tuple(key(t) for t in text.split(", ")) if text else ()


def attribute(text: str) -> Any:
    if "0x" in text or text in ("inf", "-inf", "nan"):
        return float.fromhex(text)
    return ast.literal_eval(text)


def read_kernel(text: str) -> Kernel:
    """The kernel that `kernel_text` wrote. ValueError names the line that is none."""
    head, *lines = [line.strip() for line in text.strip().splitlines()]
    found = KERNEL.fullmatch(head)
    if found is None:
        raise ValueError(f"line 1: not a kernel: {head!r}")
    name, sizes, dims, reduced = found.groups()
    k = Kernel(name, keys(dims), int(reduced), [], [], keys(sizes))
    nodes: dict[str, Node] = {}
    for number, line in enumerate(lines, 2):
        try:
            kernel_line(k, line, nodes)
        except (ValueError, KeyError, SyntaxError, TypeError) as e:
            raise ValueError(f"line {number}: {e}: {line!r}") from e
    return k


def kernel_line(k: Kernel, line: str, nodes: dict[str, Node]) -> None:
    def args(text: str) -> tuple[Node, ...]:
        return tuple(nodes[t] for t in text.split())

    if line.startswith("hint "):
        _, name, value = line.split()
        k.hints[name] = int(value)
    elif (found := BUFFER.fullmatch(line)) is not None and int(found[1]) == len(k.buffers):
        k.buffers.append(Buffer(found[2], bool(found[3]), not found[4]))
    elif (found := LOAD.fullmatch(line)) is not None:
        attrs: tuple = (int(found[2]), keys(found[3]), key(found[4]), keys(found[5]))
        nodes[found[1]] = Node("load", args(found[7]), found[8], (*attrs, True) if found[6] else attrs)
    elif (found := NODE.fullmatch(line)) is not None:
        nodes[found[1]] = Node(found[2], args(found[4]), found[5], tuple(attribute(a) for a in found[3].split()))
    elif (found := STORE.fullmatch(line)) is not None:
        mode, buffer, strides, offset, at, where, node = found.groups()
        index = AT.findall(at)
        k.stores.append(
            Store(int(buffer), keys(strides), key(offset), nodes[node], tuple(nodes[i] for i, _ in index), tuple(key(s) for _, s in index),
                  nodes[where] if where else None, mode)
        )  # fmt: skip
    else:
        raise ValueError("neither a buffer, a node nor a store")
