"""The Torch-level record of a capture as a graph: the program as the user wrote it, before decomposition and autograd.

This is what Dynamo-style backends get, so it keeps what TorchDynamo promises of its graphs (`codegen/graph_contract.py` has the table):

- an int is a placeholder of its own, every symbol of an input's sizes and strides is such an int; a float arrives as a 0-d float64
  tensor on the CPU, of which the graph takes the `item()`: backends bake numbers in, but not the data of tensors;
- an assertion is a node, `aten._assert_scalar`, as soon as what it asks about is known;
- what has an effect besides its result is kept, what has none and is not read is not;
- every node knows the line of the user's program, as a stack trace.

A call whose record does not lead on stands for itself no longer: its ATen operations take its place. That is so where it raised, where
its arguments cannot be written down, and where something of its inside (a symbol, a tensor) is used outside of it. Operations that were
recorded between two calls stand where they were recorded.
"""

from __future__ import annotations

import enum
import keyword
import linecache
from collections.abc import Callable, Iterable
from typing import Any

from torch import fx

from pliant.graph import torch_branches
from pliant.graph.builder import Builder, Undefined
from pliant.graph.control_flow import FlowOp
from pliant.graph.operands import op_inputs
from pliant.graph.originals import data_of, is_grad_enabled, new_parameter, operator, torch
from pliant.graph.record import FAILED, PENDING, Op, TorchOp
from pliant.graph.seeding import OWN, own_generator
from pliant.graph.symnode import SYMS, SymNode
from pliant.graph.trace import Trace
from pliant.graph.traced import LEAF, UNWRITTEN, Reconsider, TracedTensor, Untraceable, leaves, qualified, tensors_of
from pliant.symbolic.expr import Expr

ASSERT = torch.ops.aten._assert_scalar.default
SET_GRAD = torch._C._set_grad_enabled
PLAIN = (
    type(None), bool, int, float, complex, str, type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format,
)  # fmt: skip
"""What the printer of graphs writes down so that it can be read again."""

PURE = frozenset({
    "dim", "size", "stride", "is_contiguous", "storage_offset", "numel", "broadcast_shapes", "_canonical_mask", "_none_or_dtype",
    "is_floating_point", "is_complex", "get_device", "type", "to", "contiguous", "dropout", "result_type", "is_same_size",
})  # fmt: skip
"""Calls that came to no operation and do nothing else, by name. Others that came to none, switches among them, are kept."""

#: What makes tensors of symbolic numbers has to be written in Python there.
FROM_NUMBERS = {torch.tensor: torch._refs.tensor, torch.as_tensor: torch._refs.tensor, torch.asarray: torch._refs.tensor,
                torch.scalar_tensor: torch._refs.tensor}  # fmt: skip
#: Settings for tensors of subclasses: in a graph are none.
OF_SUBCLASSES: Any = torch._C._set_torch_function_state  # type: ignore[attr-defined]


#: `c += x` of a number `c` makes a value, and a graph says it by writing to the name of `c`.
OUT_OF_PLACE = {getattr(operator, "i" + name.rstrip("_")): getattr(operator, name) for name in (
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and_", "or_", "xor", "lshift", "rshift")}  # fmt: skip


class Unfit(Exception):
    """The arguments of this call cannot be written down in a graph."""


class TorchBuilder(Builder):
    """One attempt. `lowered` holds the numbers of the calls whose operations stand for them."""

    def __init__(self, trace: Trace, lowered: set[int], keeps: Callable[[Op], bool]) -> None:
        super().__init__(trace)
        self.lowered = lowered
        self.keeps = keeps
        self.offered = {t.vid for t in trace.inputs}
        self.grad = is_grad_enabled()
        self.autocast: dict[str, bool] = {"cpu": torch.is_autocast_enabled("cpu"), "cuda": torch.is_autocast_enabled("cuda")}
        self.floats: list[tuple[Expr, fx.Node]] = []
        self.checks = [c for c in trace.scope.asserts if c.expr.const is not True]
        self.known = -1  # how many symbols the last look at the assertions knew

    # inputs ---------------------------------------------------------------------------
    def placeholder(self, value: Any) -> None:
        super().placeholder(value)
        if isinstance(value, Expr) and value.kind is float:
            self.floats.append((value, self.symbols.pop(value)))
        elif type(value) is TracedTensor and value.vid in self.trace.leaves:
            self.values[self.trace.leaves[value.vid].vid] = self.values[value.vid]

    def unwrap_floats(self) -> None:
        for symbol, node in self.floats:
            item = self.symbols[symbol] = self.graph.call_method("item", (node,))
            item.meta["val"], node.meta["val"] = node.meta["val"], None

    def plain(self, x: Any) -> Any:
        if isinstance(x, enum.Enum) and isinstance(x, (int, str)):
            x = x.value
        if type(x) in PLAIN and (type(x) is not complex or abs(x) < float("inf")):
            return x
        if is_own(x):
            return self.graph.call_function(own_generator)
        raise Unfit(type(x).__name__)

    # steps ----------------------------------------------------------------------------
    def step(self, call: TorchOp | None, number: int, ops: list[Op]) -> None:
        """A call with its operations, or one operation between two calls."""
        if call is not None and call.fn is OF_SUBCLASSES:
            return
        if call is not None and call.decomposed and number not in self.lowered:
            self.lower(call, number)
        unwritten = call is not None and call.fn is data_of and not self.trace.data_memory  # then it is the same as what it comes to
        if call is None or unwritten or number in self.lowered or call.out in (PENDING, FAILED):
            for op in ops:
                self.in_its_state(op)
        elif not self.is_dead(tensors_of((call.args, call.kwargs)), ops, call.out):
            try:
                node = self.call(call)
            except Unfit as e:
                if not ops:
                    raise Untraceable(name_of(call.fn), f"an argument of type {e} cannot be written down in a graph") from e
                self.lower(call, number)
                for op in ops:
                    self.in_its_state(op)
            else:
                node.meta["ops"] = ops
                node.meta["keep"] = any(map(self.keeps, ops)) if ops else name_of(call.fn) not in PURE
        self.assert_what_is_known()

    def lower(self, call: TorchOp, number: int) -> None:
        """From now on the operations of this call stand for it."""
        cls = getattr(call.fn, "differentiates", None)
        if cls is not None and any([t.requires_grad for t in tensors_of(call.out)]):  # its operations have another derivative
            raise Reconsider(name_of(call.fn), "an autograd function whose call cannot be written down", UNWRITTEN + qualified(cls))
        if call.kwargs.get("requires_grad") is True:
            raise Reconsider(name_of(call.fn), "a leaf that is made here, by a call that cannot be written down in a graph", LEAF)
        self.lowered.add(number)

    def call(self, call: TorchOp) -> fx.Node:
        if any(map(keyword.iskeyword, call.kwargs)):  # `x.random_(**{"from": 1})`: no line of Python says so
            raise Unfit("keyword")
        args, kwargs = tuple(map(self.argument, call.args)), {k: self.argument(v) for k, v in call.kwargs.items()}
        if isinstance(call.fn, str) or is_method(call.fn):
            name = name_of(call.fn)
            if name == "new" and len(call.args) == 2 and type(call.args[1]) is torch.Size:
                name = "new_empty"  # in a graph a size is a tuple, and this would be the data
            node = self.graph.call_method(name, args, kwargs)
        else:
            if call.fn is torch.scalar_tensor or call.other_default and call.fn in FROM_NUMBERS and kwargs.get("dtype") is None:
                kwargs = {"dtype": call.out.dtype} | {k: v for k, v in kwargs.items() if v is not None}  # not that of the number
            fn = call.fn
            if fn in FROM_NUMBERS and any(isinstance(a, SYMS) for a in leaves((call.args, call.kwargs))):
                fn = FROM_NUMBERS[fn]
            elif fn in OUT_OF_PLACE and not isinstance(call.args[0], torch.Tensor):
                fn = OUT_OF_PLACE[fn]
            node = self.graph.call_function(fn, args, kwargs)
        node.meta["site"], node.meta["val"] = call.site, call.out
        self.define(node, call.out)
        if call.fn is new_parameter:
            self.values[call.out.vid] = node  # another object than what it was made of
        if call.fn is SET_GRAD:
            self.grad = call.args[0]
        elif call.fn is torch.set_autocast_enabled:
            *device, on = call.args
            self.autocast[device[0] if device else "cuda"] = on
        return node

    def in_its_state(self, op: Op) -> None:
        """An ATen operation, in the grad mode it was recorded in and below autocast. One of an input that is not given is dead."""
        if self.is_dead(op_inputs(op), [op], op.outs):
            return
        on = [device for device, is_on in self.autocast.items() if is_on]
        switches: list[tuple] = [(torch.set_autocast_enabled, (device, False), (device, True)) for device in on]
        if op.grad != self.grad:
            switches.append((SET_GRAD, (op.grad,), (self.grad,)))
        for switch, args, _ in switches:
            self.graph.call_function(switch, args).meta.update(keep=True, site=op.site)
        held = {k: v for k, v in op.kwargs.items() if type(v) is torch.Generator and not is_own(v)}
        if held:
            raise Untraceable(op.target, "a generator of random numbers cannot be written down in a graph")
        node = torch_branches.emit(self, op) if isinstance(op, FlowOp) else self.operation(op)
        node.meta.update(keep=self.keeps(op), ops=[op])
        for switch, _, args in switches:
            self.graph.call_function(switch, args).meta.update(keep=True, site=op.site)

    def is_dead(self, tensors: Iterable[Any], ops: list[Op], results: Any) -> bool:
        """Whether operations of these tensors are nobody's: one is an input that is not given, or comes of such."""
        if not any([t.vid in self.offered and t.vid not in self.values for t in tensors]) or any(map(self.keeps, ops)):
            return False
        self.offered.update([t.vid for t in tensors_of(results)])
        return True

    # results --------------------------------------------------------------------------
    def define(self, node: fx.Node, value: Any) -> None:
        """`node` has `value`: a tensor, a number, or a nest of them."""
        if type(value) is TracedTensor:
            self.result(value, node)
            for dim, size in enumerate(value.sizes):
                if type(size) is torch.SymInt and size.node.expr.op == "sym" and size.node.expr not in self.symbols:
                    self.symbols[size.node.expr] = at = self.graph.call_function(torch.ops.aten.sym_size.int, (node, dim))
                    at.meta["val"], at.meta["site"] = size, node.meta.get("site")
        elif isinstance(value, SYMS) and type(value.node) is SymNode:
            if value.node.expr.const is None:
                self.symbols.setdefault(value.node.expr, node)
        elif isinstance(value, (tuple, list)):
            for i, v in enumerate(value):
                if any(isinstance(leaf, (TracedTensor, *SYMS)) for leaf in leaves(v)):
                    part = self.graph.call_function(operator.getitem, (node, i))
                    part.meta["val"], part.meta["site"] = v, node.meta.get("site")
                    self.define(part, v)

    # assertions -----------------------------------------------------------------------
    def assert_what_is_known(self) -> None:
        if not self.checks or len(self.symbols) == self.known:
            return
        waiting = []
        for check in self.checks:
            if all(s in self.symbols for s in check.expr.symbols()):
                node = self.graph.call_function(ASSERT, (self.number(check.expr), check.text))
                node.meta.update(keep=True, site=check.site, check=check)
            else:
                waiting.append(check)
        self.checks, self.known = waiting, len(self.symbols)


def is_own(x: Any) -> bool:
    """Whether this stands for the generator of the thread, which goes on from the states that the graph holds."""
    return type(x) is torch.Generator and x._cdata == OWN._cdata  # type: ignore[attr-defined]


def steps_of(trace: Trace) -> Iterable[tuple[TorchOp | None, int, list[Op]]]:
    """The calls in order, each with its number and its operations; between them, without a call, what was recorded there."""
    own: dict[int, list[Op]] = {}
    alone: list[tuple[int, Op]] = []
    for at, op in enumerate(trace.ops[: trace.n_forward]):
        if op.torch_index >= 0:
            own.setdefault(op.torch_index, []).append(op)
        else:
            alone.append((at, op))
    alone.reverse()
    for number, call in enumerate(trace.torch_ops):
        while alone and alone[-1][0] < call.begin:
            yield None, -1, [alone.pop()[1]]
        yield call, number, own.get(number, [])
    while alone:
        yield None, -1, [alone.pop()[1]]


def assembled(
    trace: Trace, inputs: Iterable[Any], outputs: Any, name: str, keeps: Callable[[Op], bool]
) -> tuple[fx.GraphModule, set[Expr]]:
    """(the graph module, the symbols that it makes or is given).

    `meta` of its nodes has "val", "site", "ops" (the operations that a call came to) and "check" (an assertion).

    `keeps` tells of an operation whether it does more than its results show. Raises KeyError for a value that nothing defines, and
    Untraceable for what no graph can say.
    """
    lowered: set[int] = set()
    inputs, steps = list(inputs), list(steps_of(trace))
    with torch._C._DisableTorchDispatch():
        while True:
            b = TorchBuilder(trace, lowered, keeps)
            try:
                for i in inputs:
                    b.placeholder(i)
                b.unwrap_floats()
                b.assert_what_is_known()
                for step in steps:
                    b.step(*step)
                module = b.module(outputs, name)
            except Undefined as e:
                number = maker_of(trace, e.value)
                if number < 0 or number in lowered:
                    raise
                b.lower(trace.torch_ops[number], number)
            else:
                break
    module.graph.eliminate_dead_code(is_impure_node=lambda n: n.op in ("placeholder", "output") or bool(n.meta.get("keep")))
    module.recompile()
    return module, {e for e in b.symbols if e.op == "sym"}


def maker_of(trace: Trace, value: Any) -> int:
    """The number of the call inside of which this value (a traced tensor, a symbol) was made; -1 if there is none."""
    for op in trace.ops[: trace.n_forward]:
        if any(o is value for o in op.outs) or any(b.symbol is value for b in op.binds):
            return op.torch_index
    return -1


def torch_level(trace: Trace, inputs: Iterable[Any], outputs: Any, name: str = "TorchGraph") -> fx.GraphModule:
    """The Torch-level calls of `trace` as a graph module, all of them."""
    return assembled(trace, inputs, outputs, name, lambda op: True)[0]


def name_of(fn: Any) -> str:
    return fn if isinstance(fn, str) else getattr(fn, "__name__", str(fn))


def is_method(fn: Any) -> bool:
    """Whether `fn` is a method of Tensor: `x.relu()` is recorded as the descriptor `Tensor.relu`."""
    found = getattr(torch.Tensor, getattr(fn, "__name__", ""), None)
    return found is not None and found is fn


def stack_trace(site: Any) -> str:
    """The user's lines at a site as Python's tracebacks write them, the innermost last."""
    lines: list[str] = []
    while site is not None:
        shown = linecache.getline(site.filename, site.lineno).strip()
        lines.append(f'  File "{site.filename}", line {site.lineno}, in {site.function}\n' + (f"    {shown}\n" if shown else ""))
        site = site.outer
    return "".join(reversed(lines))
