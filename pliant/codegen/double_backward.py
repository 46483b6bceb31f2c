"""Differentiating twice: the forward part of a training region, run again under PyTorch's own autograd.

The node of a region is a black box to autograd: its backward part is a program without a history. When gradients are themselves to be
differentiated (`create_graph=True`), the operations of the forward part run once more on the inputs that the node was given, with the
C++ engine recording, and `torch.autograd.grad` does the rest. That is slower than the compiled backward part, and exact to any order;
from the third time on, a graph of its own does it (`recipe_source.py`).

Where running again would not give what was computed (random numbers, inputs that are written, a `torch.autograd.Function` of the
program's own) a program for the second gradients comes from the tape of the capture (`second_backward.py`); where there is none either,
the region says so when somebody asks.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass, replace
from typing import Any

import torch

from pliant import native
from pliant.codegen.batched_gradients import each, is_legacy, is_wrapped, samples, told
from pliant.codegen.heard import of_gradients
from pliant.codegen.recipe_source import Repeated
from pliant.graph import lstm, recurrent, recurrent_gradients
from pliant.graph.arriving import Arrived
from pliant.graph.originals import ORIGINAL, gradients, is_grad_enabled
from pliant.graph.read_later import CHANGED_SINCE
from pliant.graph.traced import TracedTensor, Untraceable, leaves
from pliant.lower import liveness
from pliant.lower.autograd import AUTOCAST, Plan
from pliant.lower.leaves import nodes_under
from pliant.symbolic import maths
from pliant.symbolic.expr import Expr

ALIAS, DETACH = torch.ops.aten.alias.default, torch.ops.aten.detach.default
OWN_STATISTICS = frozenset(f"aten::{name}" for name in ("native_batch_norm", "_native_batch_norm_legit", "cudnn_batch_norm"))
"""Operators that write running statistics which they do not read (in training): given copies, they can run again."""
DECOMPOSITIONS = {lstm.LAYER: (lstm.as_pytorch_s, 3), recurrent_gradients.ONEDNN: (recurrent_gradients.as_library_s, 4)}
"""Operators of ours that PyTorch's can stand for: how (arguments to an operator and its arguments), and how many results that gives."""


class Again:
    """How to run the forward part of `plan` again; `refusal` says why that is impossible, or is empty.

    `reads` is what the node saves for its backward part: of that, what has no gradient (a dropout mask) is taken and not computed again.
    `places`: those of the inputs that are read.
    """

    def __init__(self, plan: Plan, reads: Sequence[TracedTensor]) -> None:
        self.plan = plan
        self.reads = reads
        own = {t.vid for t in (*plan.slots, *plan.kept_views.aliases.values())}
        own |= {t.vid for op in plan.program for t in liveness.op_outputs(op) if t.requires_grad}  # `reads` may have it by another object
        self.saved = {t.vid for t in reads if not t.requires_grad and t.vid not in own and settled(plan.program, t)}
        self.ops = needed(rejoined(plan.program), plan.differentiable, self.saved)
        memory = {t.storage_id for op in self.ops for t in liveness.op_inputs(op)}
        self.places = tuple([i for i, t in enumerate(plan.inputs) if isinstance(t, TracedTensor) and t.storage_id in memory])
        self.refusal = self.why_not()

    def why_not(self) -> str:
        read = {t.storage_id for op in self.ops for t in liveness.op_inputs(op)} & {t.storage_id for t in self.plan.slots}
        if self.plan.trace.hooked:
            return "a hook has its say in its gradients"
        known = {t.vid for t in self.plan.slots} | self.saved
        if self.plan.rebased:
            return "it writes to an input that has gradients"
        for op in self.plan.program:  # what is needed, and what comes behind it: the slots are as they are in the end
            name = op.target._schema.name
            if not (name in OWN_STATISTICS and trains(op)) and any(t.storage_id in read for t in liveness.written(op)):
                return f"it writes to an input ({name})"
        for op in self.ops:
            name = op.target._schema.name
            if liveness.draws(op.target) and not recurrent.draws_nothing(op):
                return f"it draws random numbers ({name})"
            if not name.startswith("aten::") and op.target not in DECOMPOSITIONS:
                return f"it calls {name}"
            if not op.grad and any(t.requires_grad for t in liveness.op_outputs(op)):
                return "it uses a torch.autograd.Function, or writes with gradients to what was made without"
            if any(t.vid not in known and t.constant is None for t in liveness.op_inputs(op)):
                return "it reads a tensor that is not among its inputs"
            known.update(t.vid for t in liveness.op_outputs(op))
        return ""

    @functools.cached_property
    def recipe(self) -> Recipe:
        """What has to be run, as data."""
        simplify = self.plan.trace.scope.simplify
        wanted = {t.vid for t in self.plan.wanted}
        written = {t.storage_id for op in self.ops for t in liveness.written(op)}

        def number(value: Any) -> Number:
            e = simplify(liveness.number(value))
            return Number(e.python(), tuple(s.name for s in e.symbols()))

        def told(value: Any) -> Any:
            if isinstance(value, TracedTensor):
                return Value(value.vid) if value.vid in made else value.constant
            if isinstance(value, (list, tuple)):
                return [told(v) for v in value]
            return value if liveness.number(value) is None else number(value)

        def slot(s: Any) -> Slot | str:
            if not isinstance(s, TracedTensor):
                return s.name if isinstance(s, Expr) else s
            read = [e.name if (e := liveness.number(n)) is not None and e.op == "sym" else None for n in (*s.sizes, *s.strides, s.offset)]
            return Slot(s.vid, tuple(read), s.vid in wanted, s.storage_id in written, not s.requires_grad)

        slots = tuple(map(slot, self.plan.inputs))
        made = {s.vid for s in slots if isinstance(s, Slot)} | self.saved
        steps = []
        for op in self.ops:
            target, args, kwargs = op.target, told(op.args), {k: told(v) for k, v in op.kwargs.items()}
            outs = tuple([o.vid if isinstance(o, TracedTensor) else None for o in op.outs])
            if target in DECOMPOSITIONS:
                decomposed, count = DECOMPOSITIONS[target]
                (target, args), outs = decomposed(*args), outs[:count]
            binds = tuple([(liveness.number(b.symbol).name, b.out, b.dim) for b in op.binds])
            steps.append(Step(target, args, kwargs, outs, op.out_spec is None, binds, op.grad))
            made.update(vid for vid in outs if vid is not None)
        taken = tuple([t.vid if t.vid in self.saved else None for t in self.reads])
        heads = tuple([(h.vid, h.requires_grad) for h in self.plan.heads])
        read = {t.vid: i for i, t in enumerate(self.reads)}
        results = tuple([(h.vid, read[h.vid]) for h in self.plan.differentiable if h.vid in read and h.vid in made])
        return Recipe(slots, taken, tuple(steps), heads, tuple([t.vid for t in self.plan.wanted]), results)


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that was made before, by number."""

    vid: int


@dataclass(frozen=True, slots=True)
class Number:
    """An expression over symbols, as Python text."""

    text: str
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Slot:
    """A tensor that the node is given. `read`: the symbols that its sizes, strides and offset tell; `bare`: it had no gradients."""

    vid: int
    read: tuple[str | None, ...]
    wanted: bool
    written: bool
    bare: bool


@dataclass(frozen=True, slots=True)
class Step:
    """An operation; `outs` are numbers of tensors, `binds` symbols with the result (and its dim) that tells them."""

    target: Any
    args: Any
    kwargs: dict[str, Any]
    outs: tuple[int | None, ...]
    single: bool
    binds: tuple[tuple[str, int, int | None], ...]
    grad: bool


@dataclass(frozen=True, slots=True)
class Recipe:
    """The forward part as data: what the node is given, what is taken from what it saved, operations, heads (and whether they have
    gradients), the inputs whose gradients are wanted, and those of the heads that the node saved (and where): its formulas read them."""

    slots: tuple[Slot | str, ...]
    taken: tuple[int | None, ...]
    steps: tuple[Step, ...]
    heads: tuple[tuple[int, bool], ...]
    wanted: tuple[int, ...]
    results: tuple[tuple[int, int], ...]

    def passage(self, saved: Sequence[Any], given: Sequence[Any], used: Set[int] | None) -> Passage | None:
        """To those of the results that the node saved which a gradient arrives at; of these to `used`, if that is known."""
        on = {vid for (vid, _), g in zip(self.heads, given, strict=False) if g is not None} if saved else set()
        real = {vid: saved[i] for vid, i in self.results if vid in on and (used is None or vid in used)}
        real = {vid: seen(t) for vid, t in real.items() if t.grad_fn is not None}
        return Passage(real) if real else None

    def gradients(self, slots: Sequence[Any], saved: Sequence[Any], given: Sequence[Any], passage: Passage | None = None) -> list[Any]:
        """The gradients of `wanted`, themselves differentiable.

        `saved` goes with the tensors that the node saved; `given` holds a gradient or None for each head.
        """
        with gradients(True), torch._C._ExcludeDispatchKeyGuard(AUTOCAST):
            env, numbers = self.bind(slots)
            targets = [env[vid] for vid in self.wanted]
            env.update((vid, v) for vid, v in zip(self.taken, saved, strict=True) if vid is not None)
            for step in self.steps:
                self.run(step, env, numbers, passage)
            used = [(env[vid], g) for (vid, grad), g in zip(self.heads, given, strict=False) if g is not None and grad]
            used = [(h, g) for h, g in used if h.requires_grad]
            if not used:
                return [None] * len(targets)
            for vid, now in self.turned(slots).items():
                with torch.autograd._unsafe_preserve_version_counter(env[vid]):
                    Turned.apply(env[vid], now)  # type: ignore[no-untyped-call]
            heads, tangents = zip(*used, strict=True)
            found = list(torch.autograd.grad(heads, targets, tangents, create_graph=True, allow_unused=True))
            if passage is not None:
                passage.close(env, found)
            return found

    def turned(self, values: Sequence[Any]) -> dict[int, Any]:
        """The inputs that had no gradients when the forward part ran, and have by now, by number."""
        given = zip(self.slots, values, strict=True)
        return {s.vid: v for s, v in given if not isinstance(s, str) and s.bare and not s.wanted and v.requires_grad}

    def bind(self, values: Sequence[Any]) -> tuple[dict[int, Any], dict[str, Any]]:
        """Tensors by number, and the values of symbols.

        Each wanted input is given a name of its own: one input may have been made from another outside of the region, and that is not
        this node's business.
        """
        env: dict[int, Any] = {}
        numbers: dict[str, Any] = {}
        for slot, value in zip(self.slots, values, strict=True):
            if isinstance(slot, str):
                numbers[slot] = value
                continue
            if slot.vid in env:
                continue
            for name, real in zip(slot.read, (*value.shape, *ORIGINAL.stride(value), ORIGINAL.storage_offset(value))):
                if name is not None:
                    numbers.setdefault(name, real)
            if slot.wanted:
                env[slot.vid] = torch.ops.aten.alias.default(value)
            else:
                env[slot.vid] = ORIGINAL.clone(ORIGINAL.detach(value)) if slot.written else ORIGINAL.detach(value)
        return env, numbers

    def run(self, step: Step, env: dict[int, Any], numbers: dict[str, Any], passage: Passage | None) -> None:
        given = env if passage is None else passage.above(step, env)

        def real(value: Any) -> Any:
            if type(value) is Value:
                return given[value.vid]
            if type(value) is list:
                return [real(v) for v in value]
            if type(value) is Number:
                return eval(value.text, {"math": maths}, {name: numbers[name] for name in value.names})  # our own text
            return value

        with gradients(step.grad):
            result = step.target(*map(real, step.args), **{k: real(v) for k, v in step.kwargs.items()})
        outs = [result] if step.single else liveness.leaves(result)
        for vid, made in zip(step.outs, outs, strict=True):
            if vid is not None:
                env[vid] = made
        for name, out, dim in step.binds:
            numbers[name] = outs[out] if dim is None else ORIGINAL.size(outs[out], dim)


class Passage:
    """From a result as it is computed again to the real one.

    Where formulas read a result (that of `exp`), a gradient depends on it, and eager's second gradients arrive at that very tensor: whoever
    asks for them there finds them, hooks on it hear of them, and they go on through its history. So what arrives at the second one, in
    whatever pass, is held up there, and comes out below the operation that has made it, as the gradient of the first one.
    """

    def __init__(self, real: dict[int, torch.Tensor]) -> None:
        self.real = real
        self.held: dict[int, Any] = {}
        self.used: set[int] = set()  # the results that the gradients depend on

    def above(self, step: Step, env: dict[int, Any]) -> dict[int, Any]:
        """What stands for the operands of an operation that makes results."""
        results = [vid for vid in step.outs if vid in self.real]
        if not results or step.target._schema.is_mutable:
            return env
        vids = [v.vid for v in leaves([step.args, step.kwargs]) if type(v) is Value]
        vids = list(dict.fromkeys([vid for vid in vids if env[vid].requires_grad]))
        real = [self.real[vid] for vid in results]
        made = Below.apply(self.held, tuple(results), len(vids), *[env[vid] for vid in vids], *real) if vids else ()  # type: ignore[no-untyped-call]
        return {**env, **dict(zip(vids, made, strict=True))}

    def close(self, env: dict[int, Any], found: Sequence[Any]) -> None:
        """The gradients are there: what arrives from now on is of gradients of theirs."""
        under = nodes_under([g.grad_fn for g in found if g is not None])
        for vid in self.real:
            node = env[vid].grad_fn
            if node in under:
                self.used.add(vid)
                node.register_prehook(functools.partial(hold, self.held, vid, env[vid].output_nr))


def seen(result: torch.Tensor) -> torch.Tensor:
    """A result that a node has saved, as the program has it: a node of its own may stand above it (`autograd_region.FIRST`)."""
    node = result.grad_fn
    known = getattr(node, "above", {}).get(result.output_nr)
    t: torch.Tensor | None = known() if known is not None else None
    if t is None or t.grad_fn is None or t._version != result._version:
        return result
    return t if t.grad_fn.next_functions == ((node, result.output_nr),) else result


def hold(held: dict[int, Any], vid: int, at: int, arriving: tuple) -> tuple:
    held[vid] = arriving[at]
    return (*arriving[:at], None, *arriving[at + 1 :])


class Below(torch.autograd.Function):
    """Operands as they are. Their node comes, in a pass of the engine, behind that of the operation."""

    @staticmethod
    def forward(ctx: Any, held: dict[int, Any], vids: tuple[int, ...], n: int, *tensors: torch.Tensor) -> tuple:
        ctx.held, ctx.vids = held, vids
        ctx.set_materialize_grads(False)
        return tuple([ORIGINAL.view_as(t, t) for t in tensors[:n]])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        return None, None, None, *grads, *[ctx.held.pop(vid, None) for vid in ctx.vids]


class Turned(torch.autograd.Function):
    """What operations have kept as they do an input, with the history of that input as it is now: `w.requires_grad_()` behind the forward
    part of eager has the gradients depend on `w` where their formulas read it, and nothing that was computed before."""

    @staticmethod
    def forward(ctx: Any, kept: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(kept)
        return kept

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple:
        return None, grad


TWICE = "this compiled region can be differentiated once, not twice (create_graph=True): {}. Decorate the function with pliant.disable"
FREED = (  # PyTorch's words
    "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). "
    "Specify retain_graph=True "
    "if you need to backward through the graph a second time or if you need to access saved tensors after calling backward."
)


@dataclass(slots=True)
class Twice:
    """The backward part under `create_graph=True`: gradients that can be differentiated; and of gradients that a transform has wrapped.

    `gives`: for each input, which of the wanted gradients is its own. Where the forward part cannot run again (`refusal`): first-order
    gradients, and a clear error for whoever differentiates them, or what `second` gives for the gradients of all results, if it is there
    (`second_backward.py`). `backward` is the compiled backward part. `placed`: for gradients of distributed
    results (`placed_gradients.py`). `bare`: the inputs that had no gradients; such a program takes them
    for constants. `read`: those that running again reads, which may not have been written since, or given other data; `direct`: those that
    the backward part reads, of which compiled code knows the layout. `dtypes`: of the inputs that had gradients.
    """

    refusal: str
    recipe: Callable[[], Recipe]
    gives: tuple[int | None, ...]
    repeated: Repeated
    bare: tuple[int, ...]
    read: tuple[int, ...]
    direct: tuple[int, ...]
    backward: Callable[..., tuple] | None = None
    second: Callable[[Any, Callable[..., tuple], Sequence[Any]], tuple | None] | None = None
    placed: Callable[..., tuple] | None = None
    dtypes: tuple[tuple[int, Any], ...] = ()

    def __call__(self, ctx: Any, *grads: Any) -> tuple:
        slots = ctx.slots
        if slots is None:
            raise RuntimeError(FREED)
        assert self.backward is not None
        if self.placed is not None and any([type(g) is Arrived for g in grads]):
            return self.placed(ctx, *grads)
        if told() and any([g is not None and type(g) is not torch.Tensor for g in grads]):
            with torch._C.DisableTorchFunctionSubclass():  # the engine asks no class of tensors
                return (self if is_grad_enabled() else self.backward)(ctx, *grads)
        odd = any(g is not None and (is_wrapped(g) or is_legacy(g)) for g in grads)
        given = samples(grads) if odd and (self.refusal or not is_grad_enabled()) else None
        if given is not None:
            with gradients(False):
                return each(self.backward, ctx, given)
        if odd and self.refusal:
            raise RuntimeError(TWICE.format(self.refusal))
        refusal = self.refusal or ("an input was written, or given other data, since" if self.written(ctx) else "")
        if not refusal:
            recipe = self.recipe()
            found = self.repeated.gradients(recipe, slots, ctx.saved_tensors if recipe.taken else (), grads)
            return tuple(None if i is None else found[i] for i in self.gives)
        if not self.moved(ctx) and self.second is not None and (made := self.second(ctx, self.backward, grads)) is not None:
            return made
        return self.refused(ctx, self.backward, refusal, grads)

    def anew(self, ctx: Any, backward: Callable, second: Any, grads: tuple) -> tuple:
        """The gradients by `backward`, which was traced anew for this run; they may be differentiated as far as `second` has a program."""
        if ctx.slots is None:
            raise RuntimeError(FREED)
        made: tuple | None = None if self.moved(ctx) else second(ctx, backward, grads)
        return self.refused(ctx, backward, CHANGED_SINCE, grads) if made is None else made

    def moved(self, ctx: Any) -> bool:
        """Whether an input is another to autograd than when the forward part ran, or its data has another layout."""
        late = any([ctx.slots[i].requires_grad for i in self.bare])
        late |= any([ctx.slots[i].dtype is not t for i, t in self.dtypes])  # which has another node that takes its gradients now
        return late or self.relaid(ctx)

    @staticmethod
    def refused(ctx: Any, backward: Callable, refusal: str, grads: tuple) -> tuple:
        """The gradients, which refuse to be differentiated."""
        slots = ctx.slots
        with gradients(False):
            out = backward(ctx, *grads)
        if any([type(g) is Arrived for g in out]):
            raise RuntimeError(TWICE.format("a gradient is placed otherwise than what it is for"))
        tensors = [g for g in out if g is not None]
        sources = [x for x in (*slots, *grads) if isinstance(x, torch.Tensor) and x.requires_grad]
        refusing = iter(Refuse.apply(TWICE.format(refusal), len(tensors), *tensors, *sources))
        return tuple(None if g is None else next(refusing) for g in out)

    def written(self, ctx: Any) -> bool:
        """Whether running again would read what was written since, or other data."""
        read = [ctx.slots[i] for i in self.read]
        return versions(read) != ctx.versions or native.places(*read) != ctx.places

    def relaid(self, ctx: Any) -> bool:
        """Whether the data of an input that is read has another layout than when the forward part ran."""
        return bool(self.direct) and native.layouts(*[ctx.slots[i] for i in self.direct]) != ctx.layouts


def versions(slots: Sequence[Any]) -> tuple[int, ...]:
    """How often each of these tensors was written."""
    return tuple([x._version for x in slots if isinstance(x, torch.Tensor)])


@of_gradients
class Refuse(torch.autograd.Function):
    """Gradients that raise when they are differentiated with respect to anything that they depend on."""

    @staticmethod
    def forward(ctx: Any, why: str, n: int, *tensors: Any) -> tuple:
        ctx.why = why
        return tuple(ORIGINAL.detach(t) for t in tensors[:n])

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> tuple:
        raise RuntimeError(ctx.why)


def freed_above(result: torch.Tensor, *leaves: torch.Tensor) -> torch.Tensor:
    """A result whose history is gone, which says so also where gradients with respect to one of these are asked for."""
    return freed([result], leaves)[0]


def freed(results: Sequence[torch.Tensor], leaves: Sequence[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Results that say so where gradients are asked for, with respect to these or to what they came from."""
    with gradients(True):
        made: tuple[torch.Tensor, ...] = Refuse.apply(FREED, len(results), *results, *leaves)  # type: ignore[no-untyped-call]
    return made


def settled(ops: list[Any], t: TracedTensor) -> bool:
    """Is the memory of `t` written only before anybody else reads it?"""
    used = False
    for op in ops:
        if any(w.storage_id == t.storage_id for w in liveness.written(op)):
            if used:
                return False
        elif any(x.storage_id == t.storage_id for x in liveness.op_inputs(op)):
            used = True
    return True


def needed(ops: list[Any], heads: list[Any], saved: set[int]) -> list[Any]:
    """The operations that `heads` depend on, writes to memory that they read included; no other effects, nothing behind `saved`."""
    vids = {h.vid for h in heads}
    memory = {h.storage_id for h in heads}
    symbols: set[str] = set()
    out: list[Any] = []
    for op in reversed(ops):
        binds = {liveness.number(b.symbol).name for b in op.binds}
        made = any(t.vid in vids for t in liveness.op_outputs(op)) or any(t.storage_id in memory for t in liveness.written(op))
        if not made and not binds & symbols:
            continue
        out.append(op)
        for t in liveness.op_inputs(op):
            if t.vid in saved:
                continue
            vids.add(t.vid)
            memory.add(t.storage_id)
        for value in liveness.leaves([op.args, op.kwargs]):
            e = liveness.number(value)
            if e is not None:
                symbols.update(s.name for s in e.symbols())
    return out[::-1]


def rejoined(ops: list[Any]) -> list[Any]:
    """The operations, with what autograd does to a saved result of its own node, where gradients were captured, as it is meant: it is kept
    without its history, and gets that back when it is read."""
    kept = {op.outs[0].storage_id for op in ops if op.target is DETACH}
    made: dict[Any, TracedTensor] = {}
    out = []
    for op in ops:
        results = [(t, maker_of(t)) for t in liveness.op_outputs(op) if t.storage_id in kept]
        found = [(t, (t.storage_id, node, t.output_nr)) for t, node in results if node is not None]
        if op.target is DETACH and found and found[0][1] in made:
            op = replace(op, target=ALIAS, args=(made[found[0][1]],))
        for t, key in found:
            made.setdefault(key, t)
        out.append(op)
    return out


def maker_of(t: TracedTensor) -> Any:
    """The node of the tape that made this tensor; None for a view whose history autograd would have to make anew, or refuses to."""
    try:
        return t.grad_fn
    except (Untraceable, RuntimeError):
        return None


def trains(op: Any) -> bool:
    """Does this batch norm use the statistics of the batch?"""
    names = [a.name for a in op.target._schema.arguments]
    at = names.index("training") if "training" in names else -1
    return at >= 0 and (op.args[at] if at < len(op.args) else op.kwargs.get("training")) is True
