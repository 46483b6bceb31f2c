"""Straight-line Python that calls ATen: the executable of a captured graph when no kernels are compiled.

`build` prints one statement per operation, with the cheapest binding of each overload (`fastops`), sizes as integer arithmetic,
and every intermediate dropped right after its last use, as eager would; then it lets CPython compile the text:

    def region(p0, p1, s0):
        with _below():
            v2 = p1.t()
            v3 = _mm(p0, v2)
            del v2
            ...
        v9 = v8.view(s0, 4)
        return (v9,)

The dispatcher runs below autograd's keys, which makes views 40% cheaper. The views among the outputs are made outside, where autograd
keeps book of them. Whoever needs gradients puts a differentiable node around such a program (`codegen/autograd_region.py`).
"""

from __future__ import annotations

import linecache
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from pliant import native, turns
from pliant.codegen import early_stores, fastops, first_check, layouts
from pliant.codegen.early_stores import EarlyStore
from pliant.codegen.effects import cannot_repeat, draws, is_kernel, written_by
from pliant.codegen.failures import DRAWN, KEPT, NEVER, Place, Places, drawn_from, place_of, remember, states
from pliant.codegen.flow import FlowWriter, passes_views
from pliant.codegen.generated import compile_text
from pliant.codegen.version_counters import counted, of_results, written_slots
from pliant.errors import InternalError
from pliant.graph import custom_ops, growing
from pliant.graph.control_flow import FLOWS
from pliant.graph.data_errors import leaves_a_part
from pliant.graph.handlers import BATCH_NORM
from pliant.graph.leaving import LEAVE, MARK, MARKS, SIDE_EXITS, WAYS, Left, exit_of
from pliant.graph.originals import ORIGINAL, is_grad_enabled, math, operator, torch
from pliant.graph.schema import op_info
from pliant.graph.seeding import OWN, own_generator
from pliant.graph.symnode import to_sym
from pliant.graph.traced import DATA, Reconsider, TracedTensor
from pliant.lower import liveness, pipeline, views
from pliant.lower.program import REUSE, ExternalCall, Program
from pliant.symbolic import maths
from pliant.symbolic.expr import Expr, postorder
from pliant.symbolic.printers import text_of

GUARD_PAYS = 4
"""From this many operations on, skipping autograd's keys for the whole graph costs less than passing through them each time."""

Lowering = Callable[[Program], Program]
"""From level "graph" to what the `Writer` prints: level "calls", or ATen calls alone."""

SHOWN = 8
"""How many sizes the message of a failed assertion shows."""


@dataclass(slots=True)
class Executable:
    """A compiled graph: `fn(*slots)` returns the tuple of outputs. `source` is what people may read."""

    fn: Callable[..., tuple]
    source: str
    n_ops: int
    globals: dict[str, Any] = field(default_factory=dict, repr=False)
    node: Any = None  # of a differentiable region: what it was put together from (`autograd_region.Node`)
    later: Callable[[], Executable] | None = field(default=None, repr=False)  # makes the one that takes its place (`native.two_tiers`)


def build(
    trace: Any,
    inputs: list[Any],
    outputs: Any,
    *,
    name: str = "region",
    ops: list[Any] | None = None,
    guard: bool | str | None = None,
    keep_effects: bool = True,
    asserts: Iterable[Any] | None = None,
    lower: Lowering = pipeline.call_aten,
    stores: Sequence[EarlyStore] = (),
) -> Executable:
    """Compile `ops` (default: all of the trace) into a function of `inputs` that returns `outputs`, flattened.

    `inputs`: slots in order, a `TracedTensor` each or a symbol (an `Expr` or its name); a tensor made from a constant may be
    left out. `outputs`: nested lists, tuples and dicts of traced tensors, symbolic numbers, expressions and constants.
    `guard` forces or forbids running below autograd and autocast (None: when it pays). `asserts` are the runtime assertions
    (default: those of the trace's scope); each is checked as soon as its symbols are known and raises `RuntimeError`. `lower` may
    replace operations by others with the same results. `stores`: effects that it makes itself.
    """
    ops = list(trace.ops) if ops is None else list(ops)
    flat, slots = list(liveness.leaves(outputs)), list(liveness.tensors_of(inputs))
    exits, ops = ways_out(trace, ops, slots, name)
    checks = list(trace.scope.asserts if asserts is None else asserts)
    steps = views.output_steps(ops, flat)
    if guard is not False and passes_views(ops, steps) and not (guard and any([views.hides_gradient(s.op) for s in steps.values()])):
        guard = SEEN if guard else False
    if guard in (False, SEEN) and trace.data_memory:
        raise Reconsider(name, "writes through .data, which autograd is not to count, beside views that it is to see made", DATA)
    guard = False if views.outlived(ops, steps, bool(trace.data_memory)) else guard
    replay, heads = [], [*flat, *exits]
    if guard not in (False, SEEN):
        roots = [views.root(v, steps) if isinstance(v, TracedTensor) else v for v in flat]
        replay = views.chain(liveness.tensors_of(flat), steps, {t.vid for t in slots}, ops)
        heads = roots + exits + [v for op in replay for v in liveness.leaves([op.args, op.kwargs]) if liveness.number(v) is not None]
    p = Program(name, trace.scope, inputs, heads, ops, asserts=[c.expr for c in checks], keep_effects=keep_effects, closed=False)
    p = pipeline.run(p, pipeline.SIMPLIFY)
    written = written_slots(p.steps, slots)
    if guard is None and (written and any(op.target is LEAVE for op in ops) or trace.data_memory):
        guard = True  # a way out bumps version counters, and writes through `.data` must not
    w = Writer(name, trace.scope, inputs, flat, lower(p).steps, checks, replay=replay, written=counted(written), lower=lower)
    w.stores = list(stores)
    if not any(op.target is LEAVE for op in ops):
        w.versions = of_results(trace, slots, list(liveness.tensors_of(flat)))
    return w.finish(guard)


def ways_out(trace: Any, ops: list[Any], slots: list[TracedTensor], name: str) -> tuple[list[TracedTensor], list[Any]]:
    """(what side exits and marks need of the graph, the operations with that in their place), the `after` of each being made.

    As for outputs: views are made outside, of their roots, and version counters of slots that were written are bumped (where the graph
    raises, `failures.bump` does that).
    """
    ways = [op for op in ops if op.target in WAYS]
    if not ways:
        return [], ops
    if any(op.target._schema.name in liveness.METADATA_WRITERS for op in ops):
        what = SIDE_EXITS if any(op.target is LEAVE for op in ways) else MARKS
        raise Reconsider(name, f"an operation changes the layout of a tensor object, and the graph has {what}", what)
    kept: dict[int, TracedTensor] = {}
    out = list(ops)
    for i, op in enumerate(ops):
        if op.target not in WAYS:
            continue
        *condition, number, _, numbers = op.args
        exit_ = exit_of(trace, op)
        before = ops[:i]
        tensors = list(liveness.tensors_of(exit_.values))
        steps = views.output_steps(before, tensors)
        replay = views.chain(tensors, steps, {t.vid for t in slots}, before)
        by_vid = {t.vid: t for t in slots}
        needed = {t.vid: t for t in (stopped(v, steps, by_vid) for v in tensors)}
        kept |= needed
        written = written_slots(before, slots, exit_.versions) if op.target is LEAVE else []
        given = list((needed | {t.vid: t for t in written}).values())
        told = [*map(liveness.number, numbers if op.target is LEAVE else ()), *(e for step in replay for e in liveness.op_numbers(step))]
        told += [e for v in exit_.values if (e := liveness.number(v)) is not None]
        symbols = list(dict.fromkeys(s for e in told for x in (e, trace.scope.simplify(e)) for s in x.symbols()))
        numbers = tuple(to_sym(trace.scope, s) for s in symbols)
        slots_ = [*given, *symbols]
        title = f"{name}_{'exit' if op.target is LEAVE else 'mark'}{number}"
        after = Writer(title, trace.scope, slots_, exit_.values, [], [], replay=replay, written=written)
        exit_.after = after.finish(True).fn
        out[i] = replace(op, args=(*condition, number, tuple(given), numbers))
    return list(kept.values()), out


def stopped(t: TracedTensor, steps: dict[int, views.ViewStep], slots: dict[int, TracedTensor]) -> TracedTensor:
    """What a chain of views is made of: a slot, or the tensor at its bottom."""
    while t.vid in steps and t.vid not in slots:
        t = steps[t.vid].base
    return t


RECORDED = "gradients are recorded"
"""Autograd records each operation as it comes (`codegen/recorded.py`): in the grad mode that the program was in."""
SEEN = "views are seen"
"""No gradients are recorded, but a flow gives back the very view that it was given: autograd has to see that made, and count writes."""


def torch_state_guard(n_ops: int, force: bool | str | None) -> tuple[str, dict[str, Any]] | None:
    """The context that a graph runs in: no autograd keys (but for `force` False), and no autocast (captured operators are already cast)."""
    autocast = torch.is_autocast_enabled("cpu") or (torch.cuda.is_available() and torch.is_autocast_enabled("cuda"))
    if autocast and (force or n_ops):
        keys = {False: AUTOCAST, RECORDED: AUTOCAST, SEEN: AUTOGRAD_SEEN_AND_AUTOCAST}.get(force, AUTOGRAD_AND_AUTOCAST)  # type: ignore[arg-type]
        return "_without(_keys)", {"_without": torch._C._ExcludeDispatchKeyGuard, "_keys": keys}
    if force in (False, RECORDED):
        return None
    if force == SEEN:
        return "_seen()", {"_seen": torch._C._AutoDispatchBelowAutograd}
    if force or n_ops >= GUARD_PAYS:
        return "_below()", {"_below": torch._C._AutoDispatchBelowADInplaceOrView}
    return None


def keyset(*names: str) -> Any:
    """The dispatch key set of these names."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.Undefined)
    for key_name in names:
        keys = keys | torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, key_name))
    return keys


AUTOCAST = keyset("AutocastCPU", "AutocastCUDA")
AUTOGRAD_SEEN_AND_AUTOCAST = AUTOCAST | keyset("AutogradFunctionality", "AutogradOther", "AutogradNestedTensor")
AUTOGRAD_AND_AUTOCAST = AUTOGRAD_SEEN_AND_AUTOCAST | keyset("ADInplaceOrView")


@dataclass(slots=True)
class Step:
    """Some lines of the program, with the variables that they read and make (for the deletions)."""

    lines: list[str]
    reads: set[str] = field(default_factory=set)
    makes: list[str] = field(default_factory=list)
    outside: bool = False  # of the state guard
    dispatches: bool = True  # a call of PyTorch's, which goes through its dispatcher


class Writer:
    """Prints one executable. Names: `p0..` tensor slots, `v<vid>` tensors, `n0..` shared sizes, symbols as themselves."""

    def __init__(
        self,
        name: str,
        scope: Any,
        inputs: list[Any],
        outputs: list[Any],
        ops: list[Any],
        checks: list[Any],
        *,
        leading: tuple[str, ...] = (),
        preamble: Callable[[Writer], list[str]] | None = None,
        closing: Callable[[Writer, list[str]], list[str]] | None = None,
        replay: list[Any] | None = None,
        written: list[TracedTensor] | None = None,
        lower: Lowering = pipeline.call_aten,
    ) -> None:
        """`ops` run below autograd, `replay` after them and outside: the view operations that make outputs.

        The version counters of the slots in `written` are bumped, because below autograd nobody does. The rest is for programs that
        are not plain functions of their slots.

        `leading`: parameters before the slots. `preamble(self)`: lines to run first, outside of the state guard; it may name tensors
        and symbols. `closing(self, texts of the outputs)`: the last lines, instead of a `return` of the outputs as a tuple.
        """
        self.lower = lower
        self.flows: list[str] = []  # the sources of branches and loops on data
        self.replay = replay or []
        self.written = written or []
        self.bumped: dict[int, str] = {}  # memory of slots that is written -> the variable of one of them, where versions are bumped here
        self.stores: list[EarlyStore] = []
        self.versions: list[tuple[TracedTensor, int]] = []  # results that the program has written to, and how often
        self.name = name
        self.leading = leading
        self.preamble = preamble
        self.closing = closing
        self.scope = scope
        self.outputs = outputs
        self.ops = ops
        self.checks = checks
        self.globals: dict[str, Any] = {"math": maths}
        self.names: dict[int, str] = {}  # vid -> variable
        self.known: set[str] = set()  # symbols bound so far
        self.unbound: dict[str, list[int]] = {}  # symbol -> assertions (by their index) that wait for it
        self.waits = [0] * len(checks)  # for how many symbols each assertion waits
        self.due: list[int] = []  # assertions that wait for nothing more
        self.uses: dict[Any, int] = {}  # expression -> how often it is printed
        self.shared: dict[Any, str] = {}  # expression -> variable that holds it
        self.pending: list[str] = []  # assignments of shared expressions, to go before the current statement
        self.constants: dict[Any, str] = {}
        self.check_sites: dict[str, Any] = {}  # the text of an assertion -> its site
        self.spelled: dict[Any, fastops.Spelling] = {}  # operator and instruction -> how it was called there last
        for i, check in enumerate(checks):
            self.wait(i, check)
        self.params = [self.param(i, slot) for i, slot in enumerate(inputs)]
        self.inputs = [slot for slot in inputs if isinstance(slot, TracedTensor)]
        self.output_vids = {t.vid for t in liveness.tensors_of(outputs)}
        self.watched = {t.storage_id for op in ops if is_kernel(op.target) for t in liveness.op_inputs(op)}
        self.read_vids = self.output_vids | {t.vid for op in (*ops, *self.replay) for t in liveness.op_inputs(op)}

    def finish(self, guard: bool | str | None) -> Executable:
        """Print, compile, and wrap up."""
        self.count_expressions()
        preamble = self.preamble(self) if self.preamble is not None else []
        preamble += early_stores.unpacked(self.stores, self.names)
        steps = [Step(self.bind_from_inputs() + self.due_checks())]
        steps += [self.statement(op) for op in self.ops]
        if guard == RECORDED:
            self.in_their_modes(steps)
        self.note_state(steps)
        stored = early_stores.insert(self, steps)
        n_calls = sum(1 for step in steps[1:] if step.lines)
        if self.written and any(is_kernel(op.target) for op in self.ops):
            guard = True  # kernels never bump version counters
        if guard is None and any(op.target is BATCH_NORM for op in self.ops):
            guard = True  # nor does batch normalization, as the program calls it
        without = {id(op) for op in self.replay if not op.grad} if is_grad_enabled() else set()  # inside of a `no_grad`: autograd notes it
        if guard is None and without:
            guard = True
        context = torch_state_guard(sum(1 for step in steps[1:] if step.lines and step.dispatches), guard)
        hidden = context is not None and guard not in (False, SEEN, RECORDED)  # from autograd
        if hidden and self.written:
            self.bumped = {t.storage_id: self.names[t.vid] for t in self.written}
            self.globals["_bump"] = torch._C._increment_version
            steps.append(Step([f"_bump({tuple_text([self.names[t.vid] for t in self.written])})"], outside=True))
        for op in self.replay:
            made = [t.vid for t in op.outs if isinstance(t, TracedTensor) and t.vid in self.names]
            if made and not hidden:
                continue
            for vid in made:  # below autograd, for what reads it there: to autograd that one is no view
                del self.names[vid]
            steps.append(self.statement(op))
            steps[-1].outside = True
            hides = views.hides_gradient(op)
            if hides or id(op) in without:
                seen = any([ORIGINAL._is_view(t) for t in op.outs if isinstance(t, TracedTensor)])
                below = hides and not seen  # autograd has not seen it made
                name = "_hidden" if below else "_no_grad"
                self.globals[name] = torch._C._AutoDispatchBelowADInplaceOrView if below else torch.no_grad
                steps[-1].lines[-1] = f"with {name}(): {steps[-1].lines[-1]}"
        if self.versions:
            self.globals["_versions"] = torch._C._autograd._unsafe_set_version_counter  # type: ignore[attr-defined]
            names, counts = [self.tensor(t) for t, _ in self.versions], [str(n) for _, n in self.versions]
            steps.append(Step([*self.take_pending(), f"_versions({tuple_text(names)}, {tuple_text(counts)})"], set(names), outside=True))
        returned: set[str] = set()
        items = [self.text(v, returned) for v in self.outputs]
        closing = self.closing(self, items) if self.closing is not None else [f"return {tuple_text(items)}"]
        steps.append(Step(self.take_pending(), returned, outside=bool(steps) and steps[-1].outside))  # the block is left for good
        if any(self.waits):
            left = ", ".join(str(c.expr) for c, n in zip(self.checks, self.waits, strict=True) if n)
            raise InternalError(f"{self.name}: assertions over symbols that no operation makes known: {left}")
        guarded = context is not None and n_calls > 0
        text = [f"def {self.name}({', '.join((*self.leading, *self.params))}):"]
        text += [f"    {line}" for line in preamble]
        if guarded:
            self.globals.update(context[1])
            text.append(f"    with {context[0]}:")
        starts = []
        for step, lines in zip(steps, with_deletions(steps, returned), strict=True):
            pad = "        " if guarded and not step.outside else "    "
            starts.append(len(text) + 1)
            text += [pad + line for line in lines]
        starts.append(len(text) + 1)
        text += [f"    {line}" for line in closing]
        source = "\n".join(text) + "\n"
        fn = compile_text(source, self.name, self.globals)
        remember(fn, self.places(text, starts, stored))
        return Executable(fn, "\n".join((source, *self.flows)), n_calls, self.globals)

    def places(self, text: list[str], starts: list[int], stored: int | None) -> Places:
        """Where the lines come from; `starts` are the first lines of the steps, of which the first binds symbols. `stored`: the first step
        that makes an effect."""
        lines: dict[int, Place] = {}
        effects_from = NEVER if stored is None else starts[stored + 1]
        writes: list[tuple[int, str]] = []
        memory = {t.storage_id for t in self.inputs}
        known: dict[int, Place] = {}
        for n, (op, start, stop) in enumerate(zip(self.ops, starts[1:], starts[2:])):
            place = place_of(op.site, known)
            lines.update(dict.fromkeys(range(start, stop), place) if place is not None else {})
            if start < effects_from or self.bumped:
                at_once = not is_kernel(op.target) and not op_info(op.target).custom  # as ATen, which counts a write when it is done
                if start < effects_from and cannot_repeat(op, memory):
                    whole = type(op.target) is ExternalCall or (at_once and not leaves_a_part(self.ops, n))  # what it raises tells more
                    effects_from = min(effects_from, stop if whole else start)
                heard = [t for t in written_by(op) if t.storage_id in self.bumped and not op.unheard]
                writes += [(stop if at_once else start, self.bumped[t.storage_id]) for t in heard]
        for i, line in enumerate(text, 1):
            place = place_of(self.check_sites.get(line.strip()), known) if self.check_sites else None
            if place is not None:
                lines[i] = place
        return Places(lines, effects_from, tuple(writes))

    # values -----------------------------------------------------------------------
    def param(self, i: int, slot: Any) -> str:
        if isinstance(slot, TracedTensor):
            self.names.setdefault(slot.vid, f"p{i}")
            return f"p{i}"
        name = slot if isinstance(slot, str) else slot.name
        if RESERVED.fullmatch(name):
            raise InternalError(f"{self.name}: a symbol may not be called {name}: generated code uses that name")
        self.learn(name)
        return name

    def tensor(self, t: TracedTensor) -> str:
        name = self.names.get(t.vid)
        if name is None:
            if t.constant is None:
                raise InternalError(f"{self.name}: {t!r} is used before it is made")
            name = self.names[t.vid] = f"k{t.vid}"
            self.globals[name] = t.constant
        return name

    def text(self, value: Any, reads: set[str]) -> str:
        """`value` as source text; the variables it mentions are added to `reads`."""
        if isinstance(value, TracedTensor):
            name = self.tensor(value)
            reads.add(name)
            return name
        if isinstance(value, (list, tuple)):
            items = [self.text(v, reads) for v in value]
            return tuple_text(items)
        if value is None or type(value) in (bool, int, str):
            return text_of(value)
        if type(value) is float:
            return repr(value) if math.isfinite(value) else f"float('{value}')"
        e = liveness.number(value)
        return self.number(e) if e is not None else self.constant(value)

    def constant(self, value: Any) -> str:
        """An object as a global: dtypes and the like under their own name, others as `c0`..."""
        if type(value) is torch.Generator and value._cdata == OWN._cdata:  # type: ignore[attr-defined]
            self.globals["_own"] = own_generator
            return "_own()"
        named = isinstance(value, (torch.dtype, torch.memory_format, torch.layout))
        key = value if named or isinstance(value, torch.device) else id(value)
        name = self.constants.get(key)
        if name is None:
            name = self.constants[key] = str(value).removeprefix("torch.") if named else f"c{len(self.constants)}"
            self.globals[name] = value
        return name

    # sizes ------------------------------------------------------------------------
    @cached_property
    def mentioned(self) -> list[Any]:
        """Every symbolic number in the arguments and outputs."""
        found: list[Any] = []
        looked = (o for op in self.ops for o in (liveness.op_outputs(op) if is_held(op.target) else self.uncertain(op)))
        held = [[o.sizes, o.strides] for o in looked]
        for op in (*self.ops, *self.replay):
            found += liveness.op_numbers(op)
        found += [liveness.number(value) for value in liveness.leaves([*held, *self.outputs]) if isinstance(value, SYMBOLIC)]
        return [*map(self.scope.simplify, found)]

    def count_expressions(self) -> None:
        for e in self.mentioned:
            if e.const is None and e.op != "sym":
                self.uses[e] = self.uses.get(e, 0) + 1

    def number(self, e: Any) -> str:
        """A size as text. An expression printed more than once is computed once."""
        e = self.scope.simplify(e)
        if e.const is not None:
            return self.text(e.const, set())
        if e in self.shared:
            return self.shared[e]
        text = self.printed(e)
        if e.op in ("sym", "subtotal"):
            return text
        return self.share(e, text) if self.uses.get(e, 0) > 1 else f"({text})"

    def printed(self, e: Any) -> str:
        """An expression over the symbols and the shared variables. The subtotals of long sums become such variables.

        So the prefixes of 500 lengths, each of which extends the one before, take text linear in their number.
        """
        nodes = postorder(e, done=self.shared)
        missing = [n.name for n in nodes if n.op == "sym" and n.name not in self.known]
        if missing:
            raise InternalError(f"{self.name}: `{e}` is used before {', '.join(missing)} is known")
        for n in nodes:
            if n.op == "subtotal":
                self.share(n, n.args[0].python(named=self.shared))
        return e.python(named=self.shared)

    def share(self, e: Any, text: str) -> str:
        """A variable that holds `e`."""
        name = self.shared[e] = f"n{len(self.shared)}"
        self.pending.append(f"{name} = {text}")
        return name

    def bind_from_inputs(self) -> list[str]:
        """Symbols that are not slots themselves are read off the sizes, strides and offsets of the tensor slots."""
        seen: set[Expr] = set()
        wanted = {s.name for e in (*self.mentioned, *(c.expr for c in self.checks)) for s in liveness.new_symbols(e, seen)}
        return [line for t in self.inputs for line in self.bind(t, self.names[t.vid], wanted)]

    def bind(self, t: TracedTensor, name: str, wanted: set[str] | None = None) -> list[str]:
        """Lines that bind the symbols (those in `wanted`) first seen in the metadata of `t`, which is in variable `name`."""
        lines = []
        for read, s in metadata(t):
            e = liveness.number(s)
            if e is not None and e.op == "sym" and e.name not in self.known and (wanted is None or e.name in wanted):
                self.learn(e.name)
                lines.append(f"{e.name} = {fastops.asked(name, read, self.globals)}")
        return lines

    # assertions -------------------------------------------------------------------
    def wait(self, i: int, check: Any) -> None:
        """Assertion `i` is due as soon as its symbols are known."""
        names = [s.name for s in check.expr.symbols()]
        self.waits[i] = len(names)
        for name in names:
            self.unbound.setdefault(name, []).append(i)
        if not names:
            self.due.append(i)

    def learn(self, *names: str) -> None:
        """These symbols are bound from here on."""
        for name in names:
            self.known.add(name)
            for i in self.unbound.pop(name, ()):
                self.waits[i] -= 1
                if not self.waits[i]:
                    self.due.append(i)

    def due_checks(self) -> list[str]:
        """The assertions that can be evaluated by now and were not yet."""
        lines = []
        for i in sorted(self.due):
            c = self.checks[i]
            if c.expr.const is not True:
                text = self.printed(c.expr)
                lines += [*self.take_pending(), f"if not ({text}): {self.failure(c)}"]
                self.check_sites[lines[-1]] = c.site
        self.due.clear()
        return lines

    def failure(self, check: Any) -> str:
        """The statement that raises what a failed assertion says, with the values of this run (of the first symbols, if there are many)."""
        self.globals[check.error.__name__] = check.error
        symbols = check.expr.symbols()
        values = [f"{s.name} = {{{s.name}}}" for s in symbols[:SHOWN]] + ["…"] * (len(symbols) > SHOWN)
        shown = f" + f' ({', '.join(values)})'" if values and not check.message else ""
        line = f" + {source_line(check.site)!r}" if not check.message else ""
        return f"raise {check.error.__name__}({check.text!r}{shown}{line})"

    # operations -------------------------------------------------------------------
    def statement(self, op: Any) -> Step:
        turns.rest()
        target, args, kwargs = op.target, op.args, op.kwargs or {}
        if target is REUSE:
            (old,), (new,) = args, op.outs
            self.names[new.vid] = f"v{new.vid}"
            return Step([f"{self.names[new.vid]} = {self.tensor(old)}"], {self.tensor(old)}, [self.names[new.vid]])
        if type(target) is ExternalCall:
            return self.external(op)
        if is_kernel(target):
            return self.launch(op)
        if target in WAYS:
            return self.leave(op)
        outs = list(liveness.leaves(op.outs))
        if target is UNSAFE_VIEW and outs[0].vid not in self.output_vids:
            target = torch.ops.aten.view.default  # the same memory; only autograd's bookkeeping of views tells them apart
        reads: set[str] = set()
        if target in FLOWS:
            expression = self.flow(op, reads)
            lines, makes = self.assign(op, outs, expression)
            return Step([*self.take_pending(), *lines, *self.due_checks()], reads, makes)
        own = self.memory(target, args, kwargs) or self.read(target, args, reads)
        expression = own or self.routine(target, args, reads) or self.call(op.site, target, args, kwargs, reads)
        before = self.take_pending()
        lines, makes = self.assign(op, outs, expression)
        if is_held(target):
            lines += self.fits(target, outs, makes)
        elif self.watched:
            lines += [*self.due_checks(), *self.laid(op, makes)]  # what is laid out has sizes by what is assumed
        return Step([*before, *lines, *self.due_checks()], reads, makes, dispatches=not own)

    def flow(self, op: Any, reads: set[str]) -> str:
        """The call of a branch or loop on data, which is a function of its own."""
        name = f"{self.name}_flow{len(self.flows)}"
        guard = torch_state_guard(GUARD_PAYS, True) if op.flow.loops else None  # of a branch, each block has its own where that pays
        writer = FlowWriter(op, name, self.scope, build, self.lower, guard)
        source = writer.text()
        self.flows += [source, *writer.sources]
        self.globals[f"_{name}"] = compile_text(source, name, writer.globals)
        return f"_{name}({', '.join(self.text(v, reads) for operands in (*op.args, writer.late) for v in operands)})"

    def leave(self, op: Any) -> Step:
        """The program is left where the condition is false; a mark is noted, should it raise."""
        *condition, number, values, numbers = op.args
        reads: set[str] = set()
        texts = [self.text(v, reads) for v in (*values, *numbers)]
        if op.target is MARK:
            return Step([*self.take_pending(), f"{KEPT} = {number}, {tuple_text(texts)}"], reads, dispatches=False)
        test = self.text(condition[0], reads)
        self.globals["_Left"] = Left
        return Step([*self.take_pending(), f"if not {test}: raise _Left({number}, {tuple_text(texts)})"], reads, dispatches=False)

    def in_their_modes(self, steps: list[Step]) -> None:
        """Operations of a `no_grad` are in one again."""
        for op, step in zip(self.ops, steps[1:], strict=True):
            if not op.grad:
                self.globals["_no_grad"] = torch.no_grad
                step.lines = ["with _no_grad():", *[f"    {line}" for line in step.lines]]

    def note_state(self, steps: list[Step]) -> None:
        """What the generators' state is before anything is drawn: should the graph raise, the frame draws anew."""
        for op, step in zip(self.ops, steps[1:], strict=True):
            if draws(op):
                self.globals["_states"] = states
                step.lines.insert(0, f"{DRAWN} = _states{drawn_from(self.ops)}")
                return

    def read(self, target: Any, args: tuple, reads: set[str]) -> str:
        """`x.item()` of a plain tensor on the CPU, read from memory; "" for every other operation."""
        x = args[0] if target is ITEM and native.FAST_TENSORS else None
        if x is None or x.device.type != "cpu" or ORIGINAL.is_neg(x) or ORIGINAL.is_conj(x):
            return ""
        self.globals["_number"] = native.number
        return f"_number({self.text(args[0], reads)})"

    def routine(self, target: Any, args: tuple, reads: set[str]) -> str:
        """What reads a list that a loop has grown, or says where a mask is true; "" for every other operation."""
        if target is NONZERO and args[0].dtype is torch.bool and args[0].device.type == "cpu":
            text, names = "_mask_positions({})", {"_mask_positions": native.mask_positions}
        elif target in growing.CALLS:
            text, names = growing.CALLS[target]
        else:
            return ""
        self.globals.update(names)
        return text.format(*[self.text(v, reads) for v in args])

    def memory(self, target: Any, args: tuple, kwargs: dict) -> str:
        """New memory on the CPU, asked for without `torch.empty`; "" where that does more (fill it) or is asked for more."""
        if target is not EMPTY or kwargs.keys() != {"dtype", "device"} or kwargs["device"].type != "cpu" or not native.FAST_EMPTY:
            return ""
        if torch.are_deterministic_algorithms_enabled() or kwargs["dtype"] not in native.DTYPES:
            return ""
        name = f"_empty_{str(kwargs['dtype']).removeprefix('torch.')}"
        self.globals[name] = native.empty_of(kwargs["dtype"])
        return f"{name}({', '.join(self.text(n, set()) for n in args[0])})"

    def launch(self, op: Any) -> Step:
        """The call of a kernel, which writes to operands and returns nothing."""
        name = f"_{op.target}"
        self.globals[name] = op.target.launcher
        reads: set[str] = set()
        texts = [self.text(v, reads) for v in op.args]
        return Step([*self.take_pending(), *first_check.told(self, op, f"{name}({', '.join(texts)})", reads)], reads, dispatches=False)

    def external(self, op: Any) -> Step:
        """The call of what somebody else runs, which gives a tuple."""
        name = f"_{op.target}"
        self.globals[name] = op.target.run
        reads: set[str] = set()
        expression = f"{name}({', '.join([self.text(v, reads) for v in op.args])})"
        before = self.take_pending()
        lines, makes = self.assign(op, list(op.outs), expression)
        return Step([*before, *lines, *self.due_checks()], reads, makes, dispatches=False)

    def take_pending(self) -> list[str]:
        lines, self.pending = self.pending, []
        return lines

    def call(self, site: Any, target: Any, args: tuple, kwargs: dict, reads: set[str]) -> str:
        """The text of a call of ATen."""
        expression = self.rendered(*self.spelling(site, target, args, kwargs), reads)
        if expression is None:
            call = fastops.plain(target)
            expression = self.rendered(call, *fastops.normalize(target, args, kwargs, call.trim), reads)
        return expression or ""

    def spelling(self, site: Any, target: Any, args: tuple, kwargs: dict) -> tuple[fastops.Call, list, dict]:
        """How the call is spelled, and its arguments by position and by name: found once for the alike calls of an instruction."""
        place = (id(target), id(site.code), site.offset) if site is not None else (id(target),)
        known = self.spelled.get(place)
        if known is not None and known.serves(args, kwargs):
            return known.call, list(args[: known.positional]), {k: kwargs[k] for k in known.keywords}
        call = fastops.lookup(target, args, kwargs)
        values, keywords = fastops.normalize(target, args, kwargs, call.trim)
        if len(values) <= len(args) and all(map(operator.is_, values, args)) and all([kwargs.get(k) is v for k, v in keywords.items()]):
            self.spelled[place] = fastops.Spelling(call, args, kwargs, len(values), tuple(keywords))
        return call, values, keywords

    def rendered(self, call: fastops.Call, values: list, keywords: dict, reads: set[str]) -> str | None:
        texts = [self.text(v, reads) for v in values]
        self.globals.update(call.globals)
        return call.text(texts, [f"{k}={self.text(v, reads)}" for k, v in keywords.items()], values, keywords)

    def assign(self, op: Any, outs: list[Any], expression: str) -> tuple[list[str], list[str]]:
        """(the statement and the bindings of symbols that it makes known, the variables it makes)."""
        lines: list[str] = []
        numbers: dict[int, str] = {}
        sized: set[int] = set()
        for b in op.binds:
            symbol = liveness.number(b.symbol).name
            if symbol in self.known:
                continue
            self.learn(symbol)
            if b.dim is None:
                numbers[b.out] = symbol
            else:
                sized.add(b.out)
                out = outs[b.out]
                read = growing.read_length(out) if growing.is_list(out) else f"size({b.dim})"
                lines.append(f"{symbol} = {fastops.asked(f'v{out.vid}', read, self.globals)}")
        targets = [numbers.get(i) or self.target(out, i in sized) for i, out in enumerate(outs)]
        wanted = [t for t in targets if t]
        if not wanted:
            return [expression, *lines], []
        if is_single(op):
            return [f"{wanted[0]} = {expression}", *lines], wanted
        if len(wanted) == 1:
            return [f"{wanted[0]} = {expression}[{targets.index(wanted[0])}]", *lines], wanted
        targets = [t or f"x{i}" for i, t in enumerate(targets)]
        return [f"{', '.join(targets)} = {expression}", *lines], targets

    def fits(self, target: Any, outs: list[Any], makes: list[str]) -> list[str]:
        """What a custom operator returned is held to what its fake kernel said."""
        self.globals["_fitted"] = custom_ops.fitted
        lines = []
        for out, name, sizes, strides in self.described(outs, makes):
            strict = any(o.target in AS_STRIDED and o.args[0].storage_id == out.storage_id for o in (*self.ops, *self.replay))
            dtype = self.constant(out.dtype)
            lines += self.take_pending()
            lines.append(f"{name} = _fitted({name}, {sizes}, {strides}, {dtype}, {target.name()!r}, {strict})")
        return lines

    def described(self, outs: list[Any], makes: list[str]) -> Iterator[tuple[Any, str, str, str]]:
        """Those of a statement's results whose sizes and strides are known by now: (tensor, variable, sizes, strides), as text."""
        for out in outs:
            name = self.names.get(out.vid) if isinstance(out, TracedTensor) else None
            if name in makes and all(v in self.known for s in (*out.sizes, *out.strides) for v in liveness.symbols_of(s)):
                yield out, name, self.text(out.sizes, set()), self.text(out.strides, set())

    def uncertain(self, op: Any) -> list[Any]:
        """The results whose sizes and strides a kernel relies on, and PyTorch chose."""
        if is_kernel(op.target) or not self.watched or layouts.is_certain(op.target):
            return []
        old = {t.storage_id for t in liveness.op_inputs(op)}
        return [o for o in liveness.op_outputs(op) if o.sizes and o.storage_id in self.watched and o.storage_id not in old]

    def laid(self, op: Any, makes: list[str]) -> list[str]:
        """What PyTorch returned is held to how many elements, and to which strides, kernels will read it by."""
        lines = []
        for out, name, sizes, strides in self.described(self.uncertain(op), makes):
            self.globals["_laid"] = layouts.laid
            n = self.text(math.prod(out.sizes), set())
            lines += self.take_pending()
            self.globals["_astray"] = layouts.astray
            test = f"_astray({name}, {n}, {None if out.dense else strides})"
            lines.append(f"if {test}: {name} = _laid({name}, {sizes}, {strides}, {op.target.name()!r})")
        return lines

    def target(self, out: Any, needed: bool) -> str:
        """The variable that a result goes to, or "" if nobody reads it."""
        if not isinstance(out, TracedTensor) or out.vid in self.names:  # an in-place operator returns its operand
            return ""
        if not needed and out.vid not in self.read_vids:
            return ""
        name = self.names[out.vid] = f"v{out.vid}"
        return name


SYMBOLIC = (torch.SymInt, torch.SymFloat, torch.SymBool, Expr)
RESERVED = re.compile(r"[cgknprvx]\d+|_.*|math|ctx")
AS_STRIDED = {torch.ops.aten.as_strided.default, torch.ops.aten.as_strided_copy.default, torch.ops.aten.as_strided_.default}
EMPTY = torch.ops.aten.empty.memory_format
ITEM = torch.ops.aten._local_scalar_dense.default
NONZERO = torch.ops.aten.nonzero.default
UNSAFE_VIEW = torch.ops.aten._unsafe_view.default


def source_line(site: Any) -> str:
    """The user's line at a site, as the last line of a message; empty where there is none to show."""
    code = getattr(site, "code", None)
    text = linecache.getline(code.co_filename, site.lineno).strip() if code is not None else ""
    return f"\n    {text}" if text else ""


def with_deletions(steps: list[Step], returned: set[str]) -> list[list[str]]:
    """The lines of each step; each variable is deleted after the step that reads it last."""
    last: dict[str, int] = {}
    for i, step in enumerate(steps):
        for name in (*step.reads, *step.makes):
            last[name] = i
    dying: dict[int, list[str]] = {}
    for name, i in last.items():
        if name not in returned and name[0] in "vx":
            dying.setdefault(i, []).append(name)
    out = []
    for i, step in enumerate(steps):
        dead = dying.get(i) if i < len(steps) - 1 else None
        out.append([*step.lines, f"del {', '.join(dead)}"] if dead else step.lines)
    return out


def tuple_text(items: list[str]) -> str:
    return f"({', '.join(items)}{',' if len(items) == 1 else ''})"


def metadata(t: TracedTensor) -> Iterable[tuple[str, Any]]:
    """(how to read it at run time, its traced value) for each size, stride and the offset."""
    if growing.is_list(t):
        yield growing.read_length(t), t.sizes[0]
        return
    for i, s in enumerate(t.sizes):
        yield f"size({i})", s
    for i, s in enumerate(t.strides):
        yield f"stride({i})", s
    yield "storage_offset()", t.offset


def is_held(target: Any) -> bool:
    """Is the operator described by a fake kernel, so that its results must be looked at?"""
    return not is_kernel(target) and op_info(target).custom and custom_ops.fake_kernel(target) is not None


def is_single(op: Any) -> bool:
    """Does the operator return one value (rather than a tuple or list)?"""
    return op.out_spec is None
