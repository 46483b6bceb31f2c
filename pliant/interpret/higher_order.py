"""`torch.cond` and `torch.while_loop`: branches and loops that the program itself spells so, as operations of the trace.

The functions are captured like any code, closures and modules included; results may have other sizes on each side. What PyTorch refuses
(results of other kinds or of shared memory, writes to operands), and what gradients flow through, is left to PyTorch: the graph breaks.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable
from typing import Any

from torch._higher_order_ops._invoke_quant import InvokeQuant, InvokeQuantTracer
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder, mark_compile_region
from torch._higher_order_ops.map import map as torch_map
from torch._higher_order_ops.register_hook import RegisterHookOp
from torch.utils import _pytree as pytree

from pliant.graph.control_flow import Branch, Flow, Leave, number_of, record_flow
from pliant.graph.originals import torch
from pliant.graph.record import Bind
from pliant.graph.symnode import SYMS, expr_of
from pliant.graph.traced import LOOPS_OF_OTHERS, TracedTensor, tensors_of
from pliant.interpret import in_torch, late_errors, policy, shadows
from pliant.interpret.calls import call, graph_call, inline
from pliant.interpret.carried_values import alike, equal, is_new, join, merged
from pliant.interpret.effects import effects_of
from pliant.interpret.flow_gradients import differentiable
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, current_site, vm, whole_loops
from pliant.interpret.subprograms import Open, explore, settled, tree
from pliant.interpret.world import TENSOR_TYPES
from pliant.symbolic import ops

C: Any = torch._C._functorch
COND = ("pred", "true_fn", "false_fn", "operands")
WHILE = ("cond_fn", "body_fn", "carried_inputs")
CARRIED = (TracedTensor, int, torch.SymInt)


def flattened(values: Any) -> tuple[list[Any], Any]:
    """The leaves of what the program hands over, and its structure. What is in containers from outside is located."""
    shadows.read_deep(vm.world, values)
    return pytree.tree_flatten(values)


@lookaside(torch.cond)
def l_cond(args: tuple, kw: dict) -> Any:
    given = {"operands": ()} | dict(zip(COND, args)) | kw
    pred, sides, operands = given["pred"], (given["true_fn"], given["false_fn"]), given["operands"]
    shadows.read_deep(vm.world, operands)
    if type(pred) is torch.SymBool and is_data(pred):
        pred = graph_call(torch.full, ((), pred), {"dtype": torch.bool})
    if type(pred) is not TracedTensor:  # PyTorch runs the one side
        return call(sides[0] if vm.truth(pred) else sides[1], tuple(operands), {})
    if type(operands) not in (tuple, list) or not all([type(x) is TracedTensor for x in flattened(operands)[0]]):
        raise Break("PL0030", "torch.cond of operands that are no tensors")
    if pred.dtype is not torch.bool or not all([type(n) is int and n == 1 for n in pred.sizes]):
        raise Break("PL0030", "torch.cond with a condition that is no single truth value")
    if vm.world.levels.entered and all([level.key() == C.TransformType.Vmap for level in C.get_interpreter_stack() or ()]):
        return chosen(pred, sides, tuple(operands))

    def run() -> Leave:
        return Leave(False, [call(sides[0] if vm.truth(pred) else sides[1], tuple(operands), {})])

    return whole("torch.cond", lambda: HigherOrder().branch(run), others=True)


def is_data(condition: torch.SymBool) -> bool:
    """Whether only the run knows a condition over numbers."""
    e = vm.scope.simplify(expr_of(condition, vm.scope))
    return e.const is None and not all([s.backed for s in e.symbols()]) and not (vm.scope.known_true(e) or vm.scope.known_false(e))


def chosen(pred: Any, sides: tuple, operands: tuple) -> Any:
    """A branch in `vmap`, whose condition may be another for each slice: both sides, and what each slice takes of them."""
    before = len(effects_of(vm.world))
    made = [pytree.tree_flatten(call(side, operands, {})) for side in sides]
    if len(effects_of(vm.world)) != before:
        raise Break("PL0030", "torch.cond in vmap with a side that changes what is outside of it")
    (yes, spec), (no, other) = made
    if spec != other or not all([type(x) is TracedTensor for x in (*yes, *no)]):
        raise Break("PL0030", "torch.cond in vmap with sides that give other things than tensors, or several structures")
    if any([a.dtype is not b.dtype or len(a.sizes) != len(b.sizes) or not all(map(same_size, a.sizes, b.sizes)) for a, b in zip(yes, no)]):
        raise Break("PL0030", "torch.cond in vmap with sides that give several dtypes or sizes")
    return pytree.tree_unflatten([graph_call(torch.where, (pred, a, b), {}) for a, b in zip(yes, no)], spec)


@lookaside(torch.while_loop)
def l_while_loop(args: tuple, kw: dict) -> Any:
    given = dict(zip(WHILE, args)) | kw
    test, body, carried = (given.get(name) for name in WHILE)
    leaves = flattened(carried)[0]
    if type(carried) not in (tuple, list) or not leaves or not all([type(x) in CARRIED for x in leaves]):
        raise Break("PL0030", "torch.while_loop that carries other things than tensors and integers")
    return whole("torch.while_loop", lambda: HigherOrder().loop(test, body, carried), others=LOOPS_OF_OTHERS not in vm.refused)


@lookaside(torch_map)
def l_map(args: tuple, kw: dict) -> Any:
    """Every slice at once, as `vmap` does it; there are no other results, whatever order the slices are taken in."""
    f, xs, *rest = args
    leaves = flattened(xs)[0]
    if kw or not leaves or not all([type(x) is TracedTensor and x.sizes for x in leaves]):
        raise Break("PL0030", "map over other things than tensors", clean=True)
    if any([type(x) is TracedTensor and x.pytype not in TENSOR_TYPES for x in (*leaves, *flattened(rest)[0])]):
        raise Break("PL0030", "map with tensors of a class, of which the results are", clean=True)
    if not vm.truth(leaves[0].sizes[0] > 0) or not all([vm.truth(x.sizes[0] == leaves[0].sizes[0]) for x in leaves]):
        raise Break("PL0030", "map over nothing, or over tensors of several lengths", clean=True)
    try:
        out = inline(in_torch.mapped, (f, xs, tuple(rest)), {})
    except (RuntimeError, ValueError) as e:  # results that are no tensors, random numbers, writes to what each slice sees
        raise Break("PL0030", f"map: {e}") from None
    return pytree.tree_map(lambda t: graph_call(torch.clone, (t,), {"memory_format": torch.contiguous_format}), out)


@lookaside(invoke_subgraph_placeholder)
def l_nested_region(args: tuple, kw: dict) -> Any:
    """`torch.compiler.nested_compile_region`: captured like any function; repeated code is pliant's own business (`blocks.py`)."""
    return call(args[0], args[1:], kw)


@lookaside(torch.compiler.nested_compile_region)
def l_nested_compile_region(args: tuple, kw: dict) -> Any:
    return inline(mark_compile_region, args, kw)


policy.register(mark_compile_region().__code__, policy.INLINE)
policy.register(mark_compile_region(lambda: None).__code__, policy.INLINE)


@lookaside(InvokeQuant.__call__)
def l_invoke_quant(args: tuple, kw: dict) -> Any:
    """A hint to compilers, around a function that is called."""
    return call(args[1], args[2:], {k: v for k, v in kw.items() if k != "scheme"})


@lookaside(InvokeQuantTracer.__call__)
def l_invoke_quant_packed(args: tuple, kw: dict) -> Any:
    """The same as an operator of PyTorch's, which has gradients for what it is given alone."""
    _, fn, *operands = args
    if not kw.keys() <= {"scheme", "quant_options"} or not all([type(x) is TracedTensor for x in operands]):
        raise Break("PL0030", "invoke_quant of other things than tensors", clean=True)
    if torch.is_grad_enabled() and (type(fn) is not types.FunctionType or fn.__closure__):
        raise Break("PL0030", "invoke_quant, with gradients, of a function that may use other tensors than it is given", clean=True)
    out = call(fn, tuple(operands), {})
    if type(out) is not tuple or not all([type(x) is TracedTensor for x in out]):
        raise Break("PL0030", "invoke_quant of a function that returns no tuple of tensors")
    return out


@lookaside(RegisterHookOp.__call__)
def l_register_hook(args: tuple, kw: dict) -> Any:
    _, tensor, body, *others = args
    hook = inline(in_torch.hook_of, (body, tuple(others)), {}) if others else body
    call(vm.getattr(tensor, "register_hook"), (hook,), {})
    return tensor


@lookaside(torch.fx.traceback.annotate)
def l_annotate(args: tuple, kw: dict) -> Any:
    """Notes for nodes of somebody else's graph."""
    return call(contextlib.nullcontext, (), {})


def whole(what: str, capture: Callable[[], Any], others: bool = False) -> Any:
    """`others`: graphs for other backends may have it, too (`graph/torch_branches.py`)."""
    if vm.asking or not (others or whole_loops()):
        raise Break("PL0030", f"{what} for a backend that is not pliant's own")
    if vm.world.levels.entered:
        raise Break("PL0030", f"{what} in a function transform")
    try:
        return capture()
    except Open as e:
        raise Break("PL0030", f"{what}: {e}") from None


class HigherOrder:
    """One branch or loop."""

    def __init__(self) -> None:
        self.begin = vm.trace.next_vid
        self.before = set(vm.scope.symbols)

    def outer(self, v: Any) -> bool:
        if type(v) is TracedTensor:
            return v.vid < self.begin
        e = number_of(v)
        return e is None or all([s.info.backed or s.name in self.before for s in e.symbols()])

    def branch(self, run: Callable[[], Leave]) -> Any:
        inside, vm.differentiates = vm.differentiates, True
        try:
            block = settled(lambda: tree(explore(run, gradients=True)))
            out, results, binds = self.results(block.leaves())
        finally:
            vm.differentiates = inside

        def record() -> None:
            n = len(vm.trace.ops)
            record_flow(vm.trace, Flow([], block), [], results, binds, current_site())
            late_errors.check(vm.trace, n, vm.frame)

        if inside:  # the branch around it goes through this one, too
            record()
            return out
        with_history = differentiable(block, results, record)
        return pytree.tree_map(lambda v: next((new for old, new in zip(results, with_history) if old is v), v), out)

    def loop(self, test: Any, body: Any, carried: Any, written: int | None = None) -> Any:
        """`written`: the functions are pliant's own, and so many of what they carry, the last ones, are tensors that nobody else has, which
        the body writes to in place."""
        first, spec = pytree.tree_flatten(carried)
        run = call if written is None else lambda fn, values, _: fn(*values)
        written = written or 0
        params = [join(x, x, x, False, "what it carries", self.before) for x in first]

        def going(values: list[Any]) -> bool:
            answer = run(test, tuple(pytree.tree_unflatten(values, spec)), {})
            if type(answer) is TracedTensor and (answer.sizes or answer.dtype is not torch.bool):
                raise Open("its condition is no truth value")
            return bool(vm.truth(answer))

        def enter() -> Leave:
            if going(first):
                return Leave(True, [])
            return Leave(False, [graph_call(torch.clone, (x,), {}) if type(x) is TracedTensor else x for x in first])

        def around() -> Leave:
            made = run(body, tuple(pytree.tree_unflatten(params, spec)), {})
            out, now = pytree.tree_flatten(made)
            if type(made) not in (tuple, list) or len(out) != len(params) or not all([type(x) in CARRIED for x in out]):
                raise Open("its body returns another structure than it takes")
            for p, x in zip(params, out, strict=True):
                if (type(p) is TracedTensor) is not (type(x) is TracedTensor):
                    raise Open("its body returns other types than it takes")
                if type(p) is not TracedTensor:
                    continue
                alike(p, x, "what it carries")
                if not all(map(same_size, p.sizes, x.sizes)):
                    raise Open("its body returns other sizes than it takes")
            kept = len(out) - written
            if any([x is not p for x, p in zip(out[kept:], params[kept:], strict=True)]):
                raise Open("its body gives back other tensors than those that it writes to")
            self.apart([x for x in out[:kept] if type(x) is TracedTensor])
            return Leave(True, out) if going(out) else Leave(False, list(out))

        vm.written = {p.storage_id for p in params[len(params) - written :]}
        entry, block = settled(lambda: (tree(explore(enter)), tree(explore(around))))
        found = [*entry.leaves(), *block.leaves()]
        leave = [end for end in found if not end.again]
        out, results, binds = self.results([Leave(False, [tuple(end.values)]) for end in leave])
        if len(results) != len(first):
            raise Open("it gives back what it is given")
        sizes = frozenset(vm.trace.flow_sizes - self.before)
        held = [p if type(p) is TracedTensor else number_of(p) for p in params]
        flow = Flow(held, block, entry if isinstance(entry.end, Branch) or not entry.end.again or entry.ops else None, sizes)
        n = len(vm.trace.ops)
        record_flow(vm.trace, flow, first, results, binds, current_site())
        late_errors.check(vm.trace, n, vm.frame)
        return pytree.tree_unflatten(list(out), spec)

    def results(self, leave: list[Leave]) -> tuple[Any, list[Any], list[Bind]]:
        """(what is returned, the results of the flow, the symbols that they define). The ways out are made to give these results."""
        shown = [pytree.tree_flatten(end.values[0]) for end in leave]
        if any([spec != shown[0][1] for _, spec in shown]):
            raise Open("its sides return different structures")
        out: list[Any] = []
        results: list[Any] = []
        for end, (leaves, _) in zip(leave, shown, strict=True):
            self.apart(leaves)
            end.values = []
        for column in zip(*[leaves for leaves, _ in shown], strict=True):
            if type(column[0]) not in (TracedTensor, int, *SYMS) and not all([v is column[0] for v in column]):
                raise Open("its sides return different things")
            if all([equal(v, column[0]) for v in column]) and self.outer(column[0]):
                out.append(column[0])
                continue
            r = merged(list(column), "a result", self.outer)
            out.append(r)
            results.append(r)
            for end, v in zip(leave, column, strict=True):
                end.values.append(v)
        binds: list[Bind] = []
        for at, r in enumerate(results):
            if type(r) is not TracedTensor:
                binds.append(Bind(number_of(r), at))
                continue
            binds += [Bind(number_of(s), at, d) for d, s in enumerate(r.sizes) if is_new(s, self.before)]
        return pytree.tree_unflatten(out, shown[0][1]), results, binds

    def apart(self, leaves: list[Any]) -> None:
        """PyTorch refuses results that share memory with each other or with operands."""
        found = tensors_of(leaves)
        if any([t.storage_id < self.begin for t in found]) or len({t.storage_id for t in found}) != len(found):
            raise Open("a result shares memory with an operand or another result")


def same_size(m: Any, n: Any) -> bool:
    """Whether two sizes are the same one; guarded where the call decides."""
    return equal(m, n) or vm.scope.decide_or_false(ops.eq(expr_of(m, vm.scope), expr_of(n, vm.scope)), current_site())
