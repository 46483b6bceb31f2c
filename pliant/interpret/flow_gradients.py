"""Gradients through a branch on data: another branch on the same condition, which works out each side again and goes back through it.

The sides of a branch are captured once (`higher_order.py`). For its backward part the operations of each side are run again on leaves in
the place of what the branch captured, and the autograd engine goes back from their results: what is recorded meanwhile is that side of
the backward branch. So nothing of a side is kept but what it was given, and random numbers are drawn anew, as PyTorch in eager draws them.
The branch itself is a node of the region's tape.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.control_flow import FLOWS, RANDOM_FLOW, Block, Branch, Flow, FlowOp, Leave, captures, number_of, record_flow
from pliant.graph.dispatch import same
from pliant.graph.originals import ORIGINAL, gradients, is_grad_enabled, torch
from pliant.graph.schema import op_info
from pliant.graph.symnode import SYMS, to_sym
from pliant.graph.trace import engine_gradients
from pliant.graph.traced import TracedTensor, make
from pliant.interpret.state import current_site, vm
from pliant.interpret.subprograms import Open, explore, settled, tree
from pliant.symbolic import maths


def wanted(block: Block) -> list[TracedTensor]:
    """What a branch with this body captures that has gradients."""
    return [t for t in captures(Flow([], block), vm.scope.simplify) if type(t) is TracedTensor and t.requires_grad]


def made_like(x: TracedTensor) -> TracedTensor:
    """A new tensor with the layout of `x`, which no operation of the trace gives yet."""
    return make(vm.trace, x.sizes, x.strides, x.dtype, 0, None, x.device, x.dense)


def like_all(column: tuple[TracedTensor, ...]) -> TracedTensor:
    """One of what the sides of a branch give in one place, if they are laid out alike."""
    first = column[0]
    for x in column:
        if not all(map(same, (*x.sizes, *x.strides), (*first.sizes, *first.strides))) or not same(x.offset, 0):
            raise Open("gradients are laid out in several ways")
    return first


def laid_out(g: TracedTensor, like: TracedTensor) -> TracedTensor:
    """`g` with the layout of `like`."""
    if all(map(same, g.strides, like.strides)) and same(g.offset, like.offset):
        return g
    return torch.ops.aten.copy_.default(torch.ops.aten.empty_strided.default(like.sizes, like.strides, dtype=g.dtype, device=g.device), g)


def own(g: Any, like: TracedTensor, begin: int, others: list[Any]) -> TracedTensor:
    """A gradient with memory of its own, which is neither from before its side of the branch (`begin`) nor that of another one."""
    if g.storage_id < begin or any([g.storage_id == o.storage_id for o in others]):
        g = torch.clone(g)
    return laid_out(g, like)


def leaves_of(sources: list[TracedTensor]) -> list[TracedTensor]:
    """Leaves in the place of these, on which a side is worked out again."""
    found = []
    for t in sources:
        with gradients(False):
            leaf = torch.ops.aten.detach.default(t)
        with torch._C._DisableTorchDispatch():
            ORIGINAL.requires_grad_(leaf)
        found.append(leaf)
    return found


def gradients_of(heads: list[Any], leaves: list[TracedTensor], tangents: Any) -> Any:
    """The gradients of leaves, None where no path leads to them."""
    pairs = [(o, g) for o, g in zip(heads, tangents, strict=True) if g is not None and type(o) is TracedTensor and o.requires_grad]
    return engine_gradients([o for o, _ in pairs], leaves, [g for _, g in pairs]) if pairs else [None] * len(leaves)


class Replay:
    """Runs recorded operations again. `known`: what stands for a tensor, by vid; `numbers`: for a symbol, by name.
    `quiet`: nothing has a history."""

    def __init__(self, known: dict[int, TracedTensor], numbers: dict[str, Any] | None = None, quiet: bool = False) -> None:
        self.known = known
        self.numbers = numbers or {}
        self.quiet = quiet

    def run(self, block: Block) -> Leave:
        """The block, and those behind it on the way that the scope's oracle takes."""
        while True:
            if block.asserts:
                raise Open("gradients flow through an assertion")
            for op in block.ops:
                self.op(op)
            if isinstance(block.end, Leave):
                return Leave(False, [self.value(v) for v in block.end.values])
            block = block.end.yes if self.truth(block.end) else block.end.no

    def truth(self, end: Branch) -> bool:
        names = {s.name: self.numbers.get(s.name, s) for s in end.test.symbols()}
        found = {name: to_sym(vm.scope, e) if e is not None else e for name, e in names.items()}
        return bool(eval(end.test.python(), {"math": maths, **vars(maths), **found}))  # noqa: S307

    def op(self, op: Any) -> None:
        if isinstance(op, FlowOp):
            if op.flow.loops or op.flow.entry is not None:
                raise Open("gradients flow through a loop")
            drawn = op.target is RANDOM_FLOW and is_grad_enabled() and op.grad
            for old, new in zip(op.outs, self.drawn(op.flow.body) if drawn else self.run(op.flow.body).values, strict=True):
                self.bind(old, new)
            return
        info = op_info(op.target)
        if info.custom and op.target not in FLOWS:
            raise Open(f"gradients flow through {op.target}")
        with gradients(op.grad and not self.quiet):
            out = op.target(*self.value(op.args), **self.value(op.kwargs))
        outs = list(out) if isinstance(out, (tuple, list)) else [out]
        if len(outs) != len(op.outs):
            raise Open(f"{op.target} gives other results when it is run again")
        for old, new in zip(op.outs, outs, strict=True):
            self.bind(old, new)

    def drawn(self, block: Block) -> list[Any]:
        """The results of a branch in the branch that draws random numbers. Its own backward part works it out once more, and so draws
        other ones, after all that is drawn until then: as in eager, where each branch is a node of its own."""
        given = {t.vid: self.value(t) for t in captures(Flow([], block), vm.scope.simplify) if type(t) is TracedTensor}
        sources = {vid: t for vid, t in given.items() if t.requires_grad}  # asked here: a branch in a branch was captured without a tape
        begin = vm.trace.next_vid
        with gradients(False):
            made = Replay(dict(self.known), dict(self.numbers), quiet=True).run(block).values
        if not sources or self.quiet:
            return made
        if not all([type(v) is TracedTensor and v.storage_id >= begin and (v.dtype.is_floating_point or v.dtype.is_complex) for v in made]):
            raise Open("gradients flow through a branch in a branch that gives numbers, integers, or what it was given")
        known, numbers, work = dict(self.known), dict(self.numbers), [made]
        del made

        class Drawn(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, *given: TracedTensor) -> Any:
                ctx.set_materialize_grads(False)
                return tuple(work.pop())

            @staticmethod
            def backward(ctx: Any, *tangents: Any) -> Any:
                leaves = leaves_of(list(sources.values()))
                with gradients(True):
                    end = Replay(known | dict(zip(sources, leaves)), dict(numbers)).run(block)
                return tuple(gradients_of(end.values, leaves, tangents))

        return list(Drawn.apply(*sources.values()))

    def bind(self, old: Any, new: Any) -> None:
        if type(old) is TracedTensor:
            self.known[old.vid] = new
        elif isinstance(old, SYMS):
            e = number_of(old)
            if e.op == "sym":
                self.numbers[e.name] = number_of(new)

    def value(self, v: Any) -> Any:
        if type(v) is TracedTensor:
            return self.known.get(v.vid, v)
        if type(v) in (list, tuple):
            return type(v)([self.value(x) for x in v])
        if type(v) is dict:
            return {k: self.value(x) for k, x in v.items()}
        e = number_of(v)
        if e is not None and any([s.name in self.numbers for s in e.symbols()]):
            raise Open("gradients flow through what has a size that only the run knows")
        return v


def differentiable(block: Block, results: list[Any], record: Callable[[], Any]) -> list[Any]:
    """Record a branch, by `record`, as a node of the tape. Returns its results."""
    trace = vm.trace
    sources = wanted(block)
    heads = [r for r in results if type(r) is TracedTensor and (ORIGINAL.is_floating_point(r) or ORIGINAL.is_complex(r))]
    if not sources or not heads or not is_grad_enabled():
        record()
        return results
    if len(heads) != len(results) or any([not all([n.backed for n in map(number_of, r.sizes) if n is not None]) for r in heads]):
        raise Open("gradients flow through a branch that gives numbers, integers, or sizes that only the run knows")
    tangents = [trace.tangent(r) for r in heads]

    def back() -> Leave:
        begin, leaves = trace.next_vid, leaves_of(sources)
        end = Replay({t.vid: leaf for t, leaf in zip(sources, leaves)}).run(block)
        found = gradients_of(end.values, leaves, tangents)
        with gradients(False):
            made = [torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves)]
            return Leave(False, [own(g, leaf, begin, made[:i]) for i, (g, leaf) in enumerate(zip(made, leaves, strict=True))])

    backward = settled(lambda: tree(explore(back, gradients=True)))
    backward_results = [like_all(column) for column in zip(*[end.values for end in backward.leaves()], strict=True)]
    site = current_site()

    # The results hold the node, and the node this class: it must not hold them, or the trace, for the collector does not see that circle.
    work = [(record, results)]
    del record, results, heads

    class Branched(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, *given: TracedTensor) -> Any:
            make, made = work.pop()
            make()
            vm.trace.ops[-1].grad = True  # as the program has it: within this function gradients are off
            return tuple(made)

        @staticmethod
        def backward(ctx: Any, *given: TracedTensor) -> Any:
            outs = [made_like(t) for t in backward_results]
            record_flow(vm.trace, Flow(list(tangents), backward), [laid_out(g, t) for g, t in zip(given, tangents)], outs, [], site)
            return tuple(outs)

    return list(Branched.apply(*sources))


__all__ = ["differentiable"]
