"""From a capture to a Python function: call the graph, replay the effects, return or go on in resume functions.

The function is printed as source text and compiled by CPython, so its bytecode is right on every version and people can read it:

    def __compiled_fn_0(x, n, _s0):
        _g0, = _graph(x, _s0)
        _r = _print(_g0)
        _st0 = [x, n, _g0, _r]
        _g0 = _r = None
        return _resume_at_34_1(_st0)

It is called with the frame's arguments and the slots that the guard filled. In tracebacks it looks like the user's frame: same
file, same name, the line where the graph broke.
"""

from __future__ import annotations

import bisect
import builtins
import collections
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from pliant import native
from pliant.bytecode.assemble import Span, on_line
from pliant.codegen.effects import cannot_repeat
from pliant.graph import wrapped
from pliant.graph.control_flow import FLOWS
from pliant.graph.leaving import GRADIENTS, LEAVE, MARK, WAYS, Elsewhere, Left, exit_of
from pliant.graph.originals import make_leaf
from pliant.graph.symnode import SYMS
from pliant.graph.traced import TRANSFORMS, Reconsider, TracedTensor, leaves
from pliant.interpret import runtime, set_order
from pliant.interpret.capture import AND_NULL, NULL, BreakExit, Capture, Effect, FrameState, LastI, LoopBack, Return, Start
from pliant.interpret.code_shapes import of_while
from pliant.interpret.decode import decode
from pliant.interpret.execute import suspend
from pliant.interpret.state import vm
from pliant.interpret.world import TENSOR_TYPES
from pliant.jit import refused_views, region_loops, resume, rows, stored_early, support
from pliant.jit.emitted_functions import beginning, note_emitted, place_of
from pliant.jit.failing import Again, Failing
from pliant.jit.frame_liveness import GONE, letting_go
from pliant.jit.jump_threading import HEADER, RETURN, Place, inside, iterated, thread_jump
from pliant.jit.nested_frames import calls_python
from pliant.jit.reconstruct import Builder, CannotReconstruct, Name, identifier
from pliant.jit.resume import Cache
from pliant.jit.unwinding import forgetting
from pliant.lower import liveness
from pliant.lower.sections import functions_under, history_of, leaves_of_functions

_serial = itertools.count()
PAD = "    "
METADATA = ("size", "stride", "offset")
PASSED_ON = "_slots"
MANY = 8


@dataclass(slots=True, weakref_slot=True)
class Emitted:
    """An emitted function. `slots` lists what the guard must hand over: sources and names of symbols, in order."""

    fn: FunctionType
    source: str
    slots: list[Any]
    executable: Any  # codegen's, or None if there is nothing to compute
    outputs: list[Any] = field(default_factory=list)  # the traced values that the graph returns, until the logs have shown them
    branches: list[Any] = field(default_factory=list)  # the branches on data at which it ends, or may be left
    sides: list[bool | None] = field(default_factory=list)  # of an entry from the disk: the side on which it goes on at each of these
    exits: list[Any] = field(default_factory=list)  # the ways out (`side_exits.SideExit`)
    repeats: bool = False  # it computes and returns, and does nothing else


@dataclass(slots=True)
class Context:
    """What emission needs from its region: where resume codes are kept, what their entry points call, how graphs are compiled."""

    cache: Cache
    miss: Callable
    build: Callable[[Capture, list[Any], list[Any], str], Any]  # (capture, inputs, outputs, name) -> Executable
    again: Again  # leaves if a frame whose graph has raised may run anew, in CPython
    below: Callable[[Any, tuple], tuple] | None = None  # asked about the Python frames below a break (`jit.below`)
    all_symbols: bool = False  # the backend wants every size as an input of its own
    torch_level: bool = False  # it gets the calls that the program made, not the operations that they came to
    numbers_from_graph: bool = False  # every symbolic number of the result is an output of the graph
    stores: bool = False  # its graphs may make some effects themselves (`stored_early.py`)
    branches: Any = None  # the region's branches on data (`jit/branches.py`), where they may be side exits


def emit(capture: Capture, fn: Any, context: Context, *, start: Start | None = None) -> Emitted:
    """Print and compile the function for `capture`, a capture of `fn`. Raises CannotReconstruct and CannotResume."""
    emitter = Emitter(capture, fn, context, start)
    try:
        return emitter.finish()
    finally:
        del emitter.builder  # they know each other: left alone, only the garbage collector would free them, and the capture with them


class Emitter:
    """One use: prints one function."""

    def __init__(self, capture: Capture, fn: Any, context: Context, start: Start | None) -> None:
        self.capture = capture
        self.fn = fn
        self.context = context
        self.start = start
        self.code: CodeType = fn.__code__
        self.params = parameter_names(self.code)
        self.builder = Builder(rows, capture.world, capture.trace.scope, self.params, start is not None, self.generator)
        self.builder.numbers_from_graph = context.numbers_from_graph
        self.tail: list[str] = []  # effects and exit, behind the values
        self.apart: list[str] = []  # what takes wrappers with gradients apart, before the graph
        self.whole: set[str] = set()  # the variables that these are in
        self.passed_on: set[str] = set()  # slots that go to the graph as one tuple
        self.carried: set[int] = set()  # ids of what goes on with a frame
        self.states: dict[str, str] = {}  # variable -> the list of what a frame goes on with
        self.going_on: dict[str, int] = {}  # what goes on with a suspended frame -> the frame's number, in the order of the calls
        self.branches: list[Any] = []
        self.exits: list[Any] = []
        self.ends: list[int] = []  # for each effect: how many lines the effects have up to it
        self.replayed: list[str] = []  # the lines of the effects
        self.stored: dict[int, Any] = {}  # effects, by number, that the graph makes itself
        self.name = f"__compiled_fn_{next(_serial)}"

    # -- the whole ------------------------------------------------------------------------------------------------------
    def finish(self) -> Emitted:
        b, capture = self.builder, self.capture
        for effect in capture.effects:
            EFFECTS[effect.kind](self, effect)
            self.ends.append(len(self.tail))
        # what the exit needs is made after the effects: an iterator half way through a list that has grown must find it grown
        made, self.replayed = len(b.lines), self.tail
        self.tail = []
        place = beginning(self.code)
        exit_ = capture.exit
        if isinstance(exit_, Return):
            self.tail.append(f"return {b.ref(exit_.value)}")
        elif isinstance(exit_, LoopBack):
            self.tail.append(f"return {self.loop_back(exit_.frame)}")
        else:
            place = place_of(exit_.frames[0])
            self.break_(exit_)
        self.gradients_of_leaves()
        head, executable = self.graph()
        replayed = [line for i, line in enumerate(self.replayed) if bisect.bisect_right(self.ends, i) not in self.stored]
        before, behind = stored_early.without_tuples(self, b.lines[:made]), stored_early.without_tuples(self, b.lines[made:])
        goes_on = isinstance(exit_, BreakExit)  # then others run while this function is not done
        body = [*head, *before, *replayed, *behind, *(self.emptied() if goes_on else ()), *self.tail]
        if goes_on:
            body = letting_go(body, len(body) - len(self.tail), self.states, (*b.items.values(), *b.slots.values()))
        zones = self.zones()
        named = list(b.slots.values())  # all that is read is known by now
        body = [*self.unpacked(), *body]
        if self.stored or goes_on and any(type(key) is not str and name not in self.passed_on for key, name in b.slots.items()):
            body.insert(0, f"{b.constant(native.take_slots)}()")
        if self.passed_on:
            named = [name for name in named if name not in self.passed_on] + [f"*{PASSED_ON}"]
        text = f"def {self.name}({', '.join([*self.params, *named])}):\n" + "".join(f"{PAD}{x}\n" for x in body)
        outputs = [value for value, _ in b.outputs.values()]
        kept = (self.params[0], len(self.start.slots)) if self.start is not None else None
        alone = isinstance(exit_, Return) and not (replayed or self.apart or self.exits or self.branches or capture.trace.marks)
        slots = sorted(b.slots, key=lambda key: b.slots[key] in self.passed_on)  # in the order of the parameters
        made = Emitted(self.compile(text, place, zones, kept), text, slots, executable, outputs, self.branches, exits=self.exits)
        made.repeats = alone and not (capture.world.made_leaves or capture.world.own_gradients)
        return made

    def gradients_of_leaves(self) -> None:
        """The `.grad` of leaves that the program has made, and that are there behind the graph."""
        b = self.builder
        for t, g in list(self.capture.world.own_gradients.values()):
            if id(t) in b.outputs:
                b.lines.append(f"{b.ref(t)}.grad = {b.ref(g)}")

    def graph(self) -> tuple[list[str], Any]:
        """The call of the graph; its inputs become slots."""
        b, capture = self.builder, self.capture
        trace = capture.trace
        outputs = [value for value, _ in b.outputs.values()]
        if any([type(v) is TracedTensor and v.owner is not trace.ref for v in outputs]):
            raise Reconsider(self.name, "what a function transform has wrapped outlives the graph", TRANSFORMS)
        if not trace.ops and not outputs and not trace.scope.asserts:
            return [], None
        tensors, symbols = self.needed(outputs)
        self.branches += [op.flow.counter for op in trace.ops if op.target in FLOWS and op.flow.counter is not None]
        given = {number: self.given(trace.exits[number].way) for number in self.left_at()}  # before what only the graph reads
        marked = {number: self.given(trace.marks[number].way) for number in self.marked_at()}
        inputs, texts = self.arguments(tensors, symbols)
        executable = self.context.build(capture, inputs, outputs, self.name.replace("__compiled_fn", "region"))
        asked = [PAD + line for line in refused_views.lines(trace, b, self.passed_on, PASSED_ON)]
        if not (outputs or executable.n_ops or trace.scope.asserts or asked):
            return [], executable
        call = f"{b.constant(support.without_modes(executable.fn) if capture.under_modes else executable.fn, 'graph')}({', '.join(texts)})"
        names = [name for _, name in b.outputs.values()]
        line = f"{', '.join(names)}{',' if len(names) == 1 else ''} = {call}" if names else call
        if trace.assumed:
            memory = {t.storage_id for t in trace.inputs}
            if any([cannot_repeat(op, memory) for op in trace.ops]):
                raise Reconsider(self.name, "the graph assumes the side of a branch, and writes to memory of others", GRADIENTS)
        failing = b.constant(Failing(self.code, self.context.again, bool(trace.assumed)), "failed")
        handler = [*self.elsewhere(failing), f"except {b.constant(Exception)} as _e:", *self.done_first(failing, marked), f"{PAD}raise"]
        leaves = [f"{b.constant(make_leaf)}({b.ref(t)})" for t in capture.world.made_leaves.values()]
        return [*self.apart, *leaves, "try:", *asked, PAD + line, *self.ways_out(given), *handler], executable

    def left_at(self) -> list[int]:
        """The numbers of the graph's side exits."""
        return [op.args[1] for op in self.capture.trace.ops if op.target is LEAVE]

    def marked_at(self) -> list[int]:
        """The numbers of the graph's marks."""
        return [op.args[0] for op in self.capture.trace.ops if op.target is MARK]

    def done_first(self, failing: str, marked: dict[int, list[str]]) -> list[str]:
        """What is done where the graph has raised, and the frame cannot run anew: the effects that the program had by then."""
        b, lines = self.builder, []
        for number, given in marked.items():
            mark = self.capture.trace.marks[number]
            values = f"*{b.constant(mark.after, f'after_mark_{number}')}(*_r[1])"
            # the program handles no exception there
            way = b.constant(mark.way.fn, f"mark_{number}")
            run = f"{b.constant(support.handling)}(None, {way}, ([{', '.join([*given, values])}],), {{}})"
            lines.append(f"{PAD * 2}{'if' if not lines else 'elif'} _r[0] == {number}: {run}")
        return [f"{PAD}_r = {failing}(_e)", f"{PAD}if _r is not None:", *lines] if lines else [f"{PAD}{failing}(_e)"]

    def given(self, way: Any) -> list[str]:
        """What a function gives to one that goes on at a side exit, besides results of the graph."""
        return [GIVEN[kind](self, what) for kind, what in way.given]

    def ways_out(self, given: dict[int, list[str]]) -> list[str]:
        """What is done where the graph was left at a side exit."""
        b, trace = self.builder, self.capture.trace
        lines = []
        for number in self.left_at():
            exit_ = trace.exits[number]
            way = exit_.way
            self.exits.append(way)
            self.branches.append(way.branch)
            after = b.constant(exit_.after, f"after_{number}")
            lines.append(f"if _e.args[0] == {number}:")
            lines.append(f"{PAD}_st = [{', '.join([*given[number], f'*{after}(*_e.args[1])'])}]")
            lines += [PAD + line for line in self.emptied()]
            lines.append(f"{PAD}{b.constant(way.branch, 'branch')}.leaves()")
            lines.append(f"{PAD}raise {b.constant(native.Leave)}({b.constant(way.fn, f'exit_{number}')}, _st)")
        return [f"except {b.constant(Left)} as _e:", *(PAD + line for line in lines), f"{PAD}raise"] if lines else []

    def elsewhere(self, failing: str) -> list[str]:
        """What is done where a run takes another side of a branch than the graph assumes."""
        b, lines = self.builder, []
        for number, branch in enumerate(self.capture.trace.assumed):
            self.branches.append(branch)
            lines.append(f"{PAD}if _e.args[0] == '{number}': {b.constant(branch, 'branch')}.leaves()")
        return [f"except {b.constant(Elsewhere)} as _e:", *lines, f"{PAD}{failing}(_e)", f"{PAD}raise"] if lines else []

    def emptied(self) -> list[str]:
        """Empties the state that this function was given, where no graph can fail any more and have CPython run the frame."""
        return [f"{self.params[0]}.clear()"] if self.start is not None and self.params else []

    def arguments(self, tensors: list[Any], symbols: list[Any]) -> tuple[list[Any], list[str]]:
        """The graph's inputs and how its call spells them. Many slots that only it reads are handed on as one tuple: a third quicker."""
        b = self.builder
        before = set(b.slots)
        lines, texts = self.taken_apart(tensors)
        if self.context.stores:
            self.stored = stored_early.stores(self, tensors)
            self.capture.trace.stores = list(self.stored.values())
            handed, handed_texts, names = stored_early.handing(self, self.capture.trace.stores)
            lines, texts = lines + handed, texts | handed_texts
            self.whole.update(names)
        spelled = [(t, texts.get(t.vid) or self.as_input(t)) for t in tensors] + [(s, b.slot(s.name)) for s in symbols]
        self.apart = lines
        new = {name for key, name in b.slots.items() if key not in before} - self.whole
        own = [item for item in spelled if item[1] not in new]
        if len(new) < MANY or len(spelled) != len(own) + len(new):
            return [value for value, _ in spelled], [text for _, text in spelled]
        self.passed_on = new
        inputs = [value for value, _ in own] + [value for value, text in spelled if text in new]
        return inputs, [*(text for _, text in own), f"*{PASSED_ON}"]

    def as_input(self, t: Any) -> str:
        """An input as the graph gets it: the memory alone of a tensor whose class would be told of torch functions."""
        text = self.builder.outside(t.source)
        return text if t.pytype in TENSOR_TYPES else f"{self.builder.constant(wrapped.plain)}({text})"

    def taken_apart(self, tensors: list[Any]) -> tuple[list[str], dict[int, str]]:
        """Lines that take wrappers with gradients apart, if gradients flow out of the graph, and what each part is called then."""
        b, parts = self.builder, self.capture.world.parts
        lines, texts = list[str](), dict[int, str]()
        if not parts or not any([type(v) is TracedTensor and v.requires_grad for v, _ in b.outputs.values()]):
            return lines, texts
        by_wrapper: dict[Any, tuple] = {}
        for t in tensors:
            if t.vid in parts:
                source, names, name, placement = parts[t.vid]
                own = by_wrapper.setdefault(source, (names, {n: b.fresh("p") for n in names}, placement))[1]
                texts[t.vid] = own[name]
        for source, (names, own, placement) in by_wrapper.items():
            whole = b.outside(source)
            self.whole.add(whole)
            placed = None if placement is None else b.constant(placement, "placement")
            lines.append(f"{', '.join(own.values())}, = {b.constant(wrapped.lowered, 'lowered')}({whole}, {names!r}, {placed})")
        return lines, texts

    def needed(self, outputs: list[Any]) -> tuple[list[Any], list[Any]]:
        """The traced inputs that the graph reads or writes, and the symbols that it cannot read off their metadata."""
        trace, world = self.capture.trace, self.capture.world
        # what leaves at a side exit is an output of the program, which keeps what is written to its memory behind that
        left = [exit_of(trace, op).values for op in trace.ops if op.target in WAYS]
        wanted = [*outputs, *left, *(check.expr for check in trace.scope.asserts)]
        live = liveness.live_ops(trace.ops, wanted, trace.inputs)
        vids = {t.vid for op in live for t in liveness.op_inputs(op)} | {t.vid for t in liveness.tensors_of(outputs)}
        called = list(leaves([(op.args, op.kwargs) for op in trace.torch_ops])) if self.context.all_symbols else []
        if self.context.torch_level:
            vids.update(t.vid for t in called if type(t) is TracedTensor)
        given = leaves_of_functions([t for t in liveness.tensors_of(outputs) if t.requires_grad])
        if (python := self.python_behind(outputs)) or trace.zeros:  # it may read what was made of them and kept; so may products with zeros
            vids |= {t.vid for op in trace.ops for t in liveness.op_inputs(op)} | {t.vid for read in trace.behind.values() for t in read}
        tensors = [t for t in trace.inputs if t.vid in vids or trace.leaves.get(t.vid, t).vid in given]
        read = {t.source for t in tensors}
        mentioned: dict[str, Any] = {}
        # a backward part may need the sizes of what is made
        sizes = {id(t.sizes): t.sizes for op in trace.ops for t in op.outs if type(t) is TracedTensor}  # layers that are alike share theirs
        made = {s.node.expr: None for dims in sizes.values() for s in dims if type(s) is not int}
        # a backward part needs sizes of inputs, too, and what one is equal to may be the size of a tensor that is left out
        sized = tensors if self.context.all_symbols or any([t.requires_grad for t in liveness.tensors_of(outputs)]) else []
        inputs = [(t.sizes, t.strides, t.offset) for t in sized]
        whole = [(tuple(m.shape), tuple(m.stride)) for _, m in trace.wholes.values()]
        seen: set[Any] = set()
        asked: set[Any] = set()  # not `seen`: what an expression simplifies to is not what its parts, met before, do
        told = [e for value in liveness.leaves([wanted, called, inputs, whole]) if (e := liveness.number(value)) is not None]
        for e in (*told, *made, *[e for op in live for e in liveness.op_numbers(op)]):
            if e not in asked:
                asked.add(e)
                mentioned.update((s.name, s) for x in (e, trace.scope.simplify(e)) for s in liveness.new_symbols(x, seen))
        symbols = [
            mentioned[name] for name, source in world.symbols.items()
            if name in mentioned and (self.context.all_symbols or not (source.op in METADATA and source.base in read))
        ]  # fmt: skip
        unread = [trace.scope.symbols[name] for name, s in world.symbols.items() if name not in mentioned and s.op not in METADATA]
        return tensors, symbols + unread if unread and python else symbols

    def python_behind(self, outputs: list[Any]) -> bool:
        """Whether a backward part may call code of the program's, a hook or an `autograd.Function`: nobody knows yet what that reads."""
        heads = [history_of(t) for t in liveness.tensors_of(outputs) if t.requires_grad]
        if self.capture.trace.hooked or not heads:
            return bool(heads)
        return bool(functions_under(heads))

    def compile(self, text: str, place: Span, zones: list[tuple[str, set[str]]], kept: tuple[str, int] | None) -> FunctionType:
        """The printed function. `zones`: what `self.zones` gives. `kept`: its parameter that holds a state, and how many items of it are
        the user's locals."""
        code = self.code
        namespace = dict(self.builder.env, __builtins__=builtins.__dict__)
        if "__name__" in self.fn.__globals__:  # what looks at its caller's module
            namespace["__name__"] = self.fn.__globals__["__name__"]
        exec(compile(text, code.co_filename, "exec", code.co_flags & runtime.FUTURE, dont_inherit=True), namespace)
        made: FunctionType = namespace.pop(self.name)
        name = code.co_name if self.start is None else self.start.code.co_name
        made.__code__ = on_line(made.__code__, *place).replace(co_name=name, co_qualname=name)
        made.__name__ = made.__qualname__ = self.name
        made.__module__ = self.fn.__module__  # since 3.12 this is what `sys._getframemodulename` and C code ask
        return note_emitted(forgetting(made, zones, kept))

    def zones(self) -> list[tuple[str, set[str]]]:
        """Which variables a traceback may hold: the locals of the user's frames that stand still."""
        exit_ = self.capture.exit
        frames = exit_.frames if isinstance(exit_, BreakExit) else ()
        held: list[set[str]] = [set()]
        for frame in frames:
            names = {self.builder.ref(v) for v in frame.fast if id(v) in self.carried}
            held.append(held[-1] | {name.partition("[")[0] for name in names})
        if not frames:
            return [("", set(self.params))]
        return [("", held[-1]), *((name, held[depth]) for name, depth in self.going_on.items())]

    # -- effects --------------------------------------------------------------------------------------------------------
    def target(self, obj: Any) -> str:
        source = self.capture.world.source_of(obj)
        if source is not None:
            return self.builder.outside(source)
        return self.builder.ref(obj)

    # -- exits ----------------------------------------------------------------------------------------------------------
    def own_loops(self, depth: int, header: int | None = None) -> tuple[int, ...]:
        """Region loops that frame number `depth` (0: the compiled one) is in; at the header of a loop, none of those inside of it."""
        return region_loops.around(self.start, header) if depth == 0 and self.start is not None else ()

    def plan(self, frame: FrameState, depth: int, offset: int | None = None, stack: list | None = None) -> tuple[str, str]:
        """The call that goes on with `frame`: `_resume_at_…((state…))`, as (function, arguments)."""
        p = resume.plan(
            frame, offset=offset, stack=stack, loops=self.own_loops(depth), lasti=instruction_index(frame.code), cache=self.context.cache
        )
        entry = region_loops.entry_point(p.resume, frame.globals, self.context.miss)
        name = self.builder.constant(entry, p.resume.code.co_name.strip("_"))
        self.going_on[name] = max(depth, self.going_on.get(name, 0))
        return name, self.named_state(p.items)

    def state(self, items: list) -> str:
        """A list of what a frame goes on with, which whoever goes on with it empties."""
        self.carried.update(map(id, items))
        return f"[{self.builder.refs(items)}]"

    def named_state(self, items: list) -> str:
        name = f"_st{len(self.states)}"
        self.states[name] = self.state(items)
        return name

    def unpacked(self) -> list[str]:
        """What this function reads of the state that it was given."""
        b = self.builder
        if self.start is None or not b.items:
            return []
        state, names = self.params[0], [name for _, name in sorted(b.items.items())]
        if len(names) == len(self.start.slots) + (self.start.handling is not None) + sum([type(s) is int for s in self.start.stack]):
            return [f"[{', '.join(names)}] = {state}"]
        return [f"{name} = {state}[{i}]" for i, name in b.items.items()]

    def header(self, frame: FrameState, depth: int, offset: int) -> bool | None:
        """Whether a region loop begins, or goes round, at this header of a loop. None: it is one further out."""
        own = self.own_loops(depth, offset)
        if offset in own:
            return True if offset == own[-1] else None
        history = self.capture.world.history
        return history is not None and history.is_loop(frame.code, offset)

    def loop_back(self, frame: FrameState) -> str:
        """What the body of a region loop returns at its header."""
        b = self.builder
        context = self.context
        loop, items = region_loops.loop_of(
            frame, self.own_loops(0, frame.offset), context.cache, context.miss, instruction_index(frame.code), context.below
        )
        return f"{b.constant(region_loops.LoopState)}({b.constant(loop, f'loop_{loop.header}')}, {self.state(items)})"

    def break_(self, exit_: BreakExit) -> None:
        BreakWriter(self, exit_).write()

    # -- generators -----------------------------------------------------------------------------------------------------
    def generator(self, b: Builder, g: Any) -> str:
        """A generator in whatever state it is in."""
        f = g.frame
        if g.done:
            return f"{b.constant(support.exhausted)}{g.names!r}"
        if g.running:
            raise CannotReconstruct(f"the running generator {f.code.co_qualname}")
        if g.left is not None:
            return f"{b.constant(g.left.fn)}(*{b.tuple(g.left.args)}, **{b.ref(g.left.kwargs)})"
        frame = suspend(f, 0, f.decoded.offsets[f.pc])
        mode = resume.YIELD if g.started else resume.START
        p = resume.plan(frame, mode=mode, loops=(), lasti=instruction_index(f.code), cache=self.context.cache)
        make = resume.generator_function(p.resume, frame.globals, g.names)
        text = f"{b.constant(make, f'generator_{f.code.co_name}')}([{b.refs(p.items)}])"
        return f"{b.constant(support.prime)}({text})" if g.started else text


GIVEN: dict[str, Callable[[Emitter, Any], str]] = {
    "param": lambda e, name: name,
    "item": lambda e, i: e.builder.items.setdefault(i, f"_i{i}"),
    "slot": lambda e, key: e.builder.slot(key),
}
"""How an emitted function spells what it gives to one that goes on at a side exit."""

Choices = list[tuple[str, int | None, list]]  # (condition or "", offset, stack) of each way to go on; the last has no condition


class BreakWriter:
    """Prints the end of a function whose graph breaks: the action, then every suspended frame from the innermost outwards.

    Without handlers this is straight-line code. Where some frame's instruction is covered by a `try`, the exception goes to `_x`, and
    that frame is resumed at its handler instead.
    """

    def __init__(self, emitter: Emitter, exit_: BreakExit) -> None:
        self.emitter = emitter
        self.b = emitter.builder
        self.exit = exit_
        self.frames = exit_.frames
        self.out = emitter.tail

    def write(self) -> None:
        depth = len(self.frames) - 1
        innermost, action = self.frames[depth], self.exit.action
        if action[0] == "loop" and action[1] in self.emitter.own_loops(depth, action[1]):  # a driver further out has begun it
            self.out.append(f"return {self.emitter.loop_back(at_offset(innermost, action[1]))}")
            return
        if action[0] == "loop":  # the driver runs the rest of this frame, so only the frames outside of it are resumed here
            call = self.loop(innermost, depth, action[1])
            if depth == 0:
                self.out.append(f"return {call}")
                return
            self.guarded([f"_r = {call}"], self.handled(depth))
        else:
            lines, choices = ACTIONS[action[0]](self, innermost, action)
            self.guarded(lines, self.handled(depth + 1))
            self.step(innermost, depth, choices)
        for d in range(depth - 1, -1, -1):
            self.step(self.frames[d], d, [("", None, [*self.frames[d].stack, Name("_r")])])

    def handled(self, depth: int) -> bool:
        """Is there a handler in a frame outside of frame number `depth`?"""
        return any(f.handler is not None for f in self.frames[:depth])

    def guarded(self, lines: list[str], catching: bool) -> None:
        if catching:
            self.out += ["_x = None", *self.caught(lines)]
        else:
            self.out += lines

    def caught(self, lines: list[str]) -> list[str]:
        return ["try:", *(PAD + x for x in lines or ["pass"]), f"except {self.b.constant(BaseException)} as _e:", f"{PAD}_x = _e"]

    def step(self, frame: FrameState, depth: int, choices: Choices) -> None:
        """Resume one frame: at its handler if `_x` holds an exception, else at one of `choices`."""
        lines = self.normal(frame, depth, choices)
        if frame.handler is not None:
            call, state = self.handler(frame, depth)
            # the exception's traceback holds this frame, and its state the exception
            at_handler = [f"{PAD}try:", f"{PAD * 2}{call}", f"{PAD}finally:", f"{PAD * 2}_x = {state} = None"]
            lines = ["if _x is not None:", *at_handler, "else:", *(PAD + x for x in lines)]
        elif self.handled(depth):
            lines = ["if _x is None:", *(PAD + x for x in lines)]
        self.out += self.caught(lines) if self.handled(depth) else lines

    def leaving(self, depth: int) -> str:
        return "return" if depth == 0 else "_r ="

    def normal(self, frame: FrameState, depth: int, choices: Choices) -> list[str]:
        ways = [(condition, self.going_on(frame, depth, offset, stack)) for condition, offset, stack in choices]
        if len(ways) == 1:
            return ways[0][1]
        return [f"if {ways[0][0]}:", *(PAD + x for x in ways[0][1]), "else:", *(PAD + x for x in ways[1][1])]

    def going_on(self, frame: FrameState, depth: int, offset: int | None, stack: list) -> list[str]:
        """The rest of `frame`: what it has let go of on the way to where it goes on is held until then."""
        emitter = self.emitter
        start = frame.offset if offset is None else offset
        place = thread_jump(frame, start, stack, lambda at: emitter.header(frame, depth, at), emitter.capture.world)
        gone = self.let_go(place)
        line = f"{self.leaving(depth)} {self.rest(place, frame, depth)}"
        return [GONE + " ".join(gone), line] if gone else [line]

    def let_go(self, place: Place) -> list[str]:
        """Variables of what a frame was given in its state, or by what broke the graph, and holds no more at `place`, in their order."""
        kept = {id(v) for v in ((place.value,) if place.kind == RETURN else (*place.frame.fast, *place.frame.stack))}
        world = self.emitter.capture.world
        names: dict[str, None] = {}
        for v in place.gone:
            if id(v) in kept:
                continue
            for x in inside(v):
                shadow = world.by_copy.get(id(x))
                source = world.source_of(x if shadow is None else shadow.orig)
                name = x.text if type(x) is Name else None
                if source is not None and source.root.op == "local" and source.root.arg[1] == "state":
                    name = self.b.outside(source)
                if name is not None:  # of what it held twice, the last time counts
                    names.pop(name, None)
                    names[name] = None
        return list(names)

    def rest(self, place: Place, frame: FrameState, depth: int) -> str:
        """What the rest of a frame returns from this place, as an expression."""
        emitter = self.emitter
        if place.kind == RETURN:
            return self.b.ref(place.value)
        if place.kind == HEADER:
            own = emitter.own_loops(depth, place.frame.offset)
            return emitter.loop_back(place.frame) if place.frame.offset in own else self.loop(place.frame, depth, place.frame.offset)
        return self.call(depth - 1, *emitter.plan(place.frame, depth))

    def handler(self, frame: FrameState, depth: int) -> tuple[str, str]:
        """(the statement that resumes `frame` at its handler, the variable of its state)"""
        assert frame.handler is not None
        target, keep, lasti = frame.handler
        stack = frame.stack[:keep] + ([LastI(frame.lasti)] if lasti else []) + [Name("_x")]
        fn, state = self.emitter.plan(frame, depth, target, stack)
        return f"{self.leaving(depth)} {self.call(depth - 1, fn, state)}", state

    def call(self, depth: int, fn: str, args: str, kwargs: str = "", handling: int | None = None) -> str:
        """`fn(args)` called from frame `depth`: with that frame's exception being handled (or with what the frames before number `handling`
        handle), and with the inlined frames in the traceback."""
        if not args and kwargs == "":
            plain = f"{fn}()"
        else:
            plain = f"{fn}({', '.join(x for x in (args, kwargs) if x)})"
        frames = self.frames[: depth + 1 if handling is None else handling]
        handled = next((f.exc_info for f in reversed(frames) if f.exc_info is not None), None)
        hops = [self.hop(f) for f in self.frames[1 : depth + 1]]
        if handled is None and not hops:
            return plain
        chain = [*hops, fn]
        inner = ", ".join([*chain[1:], *([args] if args else [])])
        if handled is None:
            return f"{chain[0]}({', '.join(x for x in (inner, kwargs) if x)})"
        keywords = f"{self.b.constant(dict)}({kwargs})" if kwargs else "{}"
        return f"{self.b.constant(support.handling)}({self.b.ref(handled)}, {chain[0]}, ({inner}{',' if inner else ''}), {keywords})"

    def below(self, python: bool, fn: str, args: str) -> tuple[str, str]:
        """The breaking call as (function, arguments). If it starts Python frames, these may be compiled: it is made in run mode."""
        ask = self.emitter.context.below
        if not python or ask is None:
            return fn, args
        inner = ", ".join(x for x in (self.b.constant(ask, "below"), fn, args) if x)
        return self.b.constant(native.call_below), inner

    def hop(self, frame: FrameState) -> str:
        code, _ = resume.origin_of(frame.code)
        hop = support.hop(code, place_of(frame), frame.globals.get("__name__"))
        return self.b.constant(hop, f"frame_{code.co_name}")

    def loop(self, frame: FrameState, depth: int, header: int) -> str:
        within = (*self.emitter.own_loops(depth, header), header)
        context = self.emitter.context
        frame = at_offset(frame, header)
        loop, items = region_loops.loop_of(frame, within, context.cache, context.miss, instruction_index(frame.code), context.below)
        state = self.emitter.named_state(items)
        name = self.b.constant(region_loops.run_loop)
        self.emitter.going_on[name] = depth
        return self.call(depth, name, f"{self.b.constant(loop, f'loop_{header}')}, {state}", handling=depth)


def action_call(w: BreakWriter, frame: FrameState, action: tuple) -> tuple[list[str], Choices]:
    _, fn, args, kwargs = action
    b = w.b
    if all(type(k) is str and identifier(k) for k in kwargs):
        keywords = ", ".join(f"{k}={b.ref(v)}" for k, v in kwargs.items())
    else:
        keywords = f"**{{{b.pairs(kwargs)}}}"
    target, values = fn, b.refs(args)
    if fn is runtime.call_ex and type(args[1]) is tuple and type(args[2]) is dict:  # from this frame: the callee may look at its caller
        target, values, keywords = args[0], b.refs(args[1]), f"**{b.ref(args[2])}"
    name, values = w.below(calls_python(fn, args, kwargs), b.ref(target), values)
    call = w.call(len(w.frames) - 1, name, values, keywords)
    if w.exit.pushes:
        behind, apart = iterated(frame, fn)
        if behind is not None:
            return [f"_r = {b.constant(iter)}({call})" if apart else f"_r = {call}"], [("", behind, [*frame.stack, Name("_r")])]
        return [f"_r = {call}"], [("", None, [*frame.stack, Name("_r"), *([NULL] if w.exit.pushes == AND_NULL else [])])]
    return [call], [("", None, frame.stack)]


def action_branch(w: BreakWriter, frame: FrameState, action: tuple) -> tuple[list[str], Choices]:
    _, value, yes, no, stack_yes, stack_no = action
    call = w.call(len(w.frames) - 1, w.b.constant(bool), w.b.ref(value))
    return [f"_r = {call}", *counted(w, value)], [("_r", yes, stack_yes), ("", no, stack_no)]


def counted(w: BreakWriter, value: Any) -> list[str]:
    """Tells a branch on data which side the run takes: it may be a side exit later."""
    branches, site = w.emitter.context.branches, w.exit.site
    data = type(value) is TracedTensor or type(value) in SYMS and not value.node.expr.backed  # behind a change of sizes no graph goes on
    if branches is None or vm.make_exit is None or not data or site.code is None:
        return []
    branch = branches.at(site)
    d = decode(site.code)
    if branch.decided or branch.hot is not None or of_while(d, d.index(site.offset)):
        return []
    w.emitter.branches.append(branch)
    return [f"{w.b.constant(branch, 'takes')}(_r)"]


def action_branch_none(w: BreakWriter, frame: FrameState, action: tuple) -> tuple[list[str], Choices]:
    _, value, yes, no, stack_yes, stack_no = action
    return [f"_r = {w.b.ref(value)} is None"], [("_r", yes, stack_yes), ("", no, stack_no)]


def unpacked(n: int) -> tuple[str, list]:
    names = [f"_u{i}" for i in range(n)]
    return f"[{', '.join(names)}]", [Name(x) for x in reversed(names)]


def action_unpack(w: BreakWriter, frame: FrameState, action: tuple) -> tuple[list[str], Choices]:
    _, value, n = action
    targets, pushed = unpacked(n)
    return [f"{targets} = {w.b.ref(value)}"], [("", None, [*frame.stack, *pushed])]


def action_unpack_call(w: BreakWriter, frame: FrameState, action: tuple) -> tuple[list[str], Choices]:
    _, fn, args, n = action
    targets, pushed = unpacked(n)
    return [f"{targets} = {w.call(len(w.frames) - 1, w.b.ref(fn), w.b.refs(args))}"], [("", None, [*frame.stack, *pushed])]


def action_enter(w: BreakWriter, frame: FrameState, action: tuple) -> tuple[list[str], Choices]:
    call = w.call(len(w.frames) - 1, w.b.constant(support.enter), w.b.ref(action[1]))
    return [f"_u0, _r = {call}"], [("", None, [*frame.stack, Name("_u0"), Name("_r")])]


def action_none(w: BreakWriter, frame: FrameState, action: tuple) -> tuple[list[str], Choices]:
    return [], [("", None, [*frame.stack, *([None] if w.exit.pushes else [])])]


ACTIONS: dict[str, Callable[[BreakWriter, FrameState, tuple], tuple[list[str], Choices]]] = {
    "call": action_call,
    "branch": action_branch,
    "branch_none": action_branch_none,
    "unpack": action_unpack,
    "unpack_call": action_unpack_call,
    "enter": action_enter,
    "none": action_none,
    "stand": action_none,
}


# -- effects ---------------------------------------------------------------------------------------------------------------
def effect_call(text: Callable[[Emitter, Effect], str]) -> Callable[[Emitter, Effect], None]:
    def write(e: Emitter, effect: Effect) -> None:
        e.tail.append(text(e, effect))

    return write


def helper(fn: Any) -> Callable[[Emitter, Effect], None]:
    return effect_call(lambda e, x: f"{e.builder.constant(fn, fn.__name__)}({e.target(x.target)}, {e.builder.refs(x.args)})")


def effect_setattr(e: Emitter, x: Effect) -> None:
    put = e.builder.constant(support.raw_setattr(x.target, e.capture.under_modes), f"setattr_{type(x.target).__name__}")
    e.tail.append(f"{put}({e.target(x.target)}, {e.builder.refs(x.args)})")


def effect_delattr(e: Emitter, x: Effect) -> None:
    drop = e.builder.constant(support.raw_delattr(x.target), f"delattr_{type(x.target).__name__}")
    e.tail.append(f"{drop}({e.target(x.target)}, {e.builder.refs(x.args)})")


def effect_real_call(e: Emitter, x: Effect) -> None:
    b = e.builder
    args, kwargs = x.args
    fn, test = x.target, ""
    if fn is runtime.call_if:  # of one side of a branch
        taken, fn, args, kwargs = args
        test = f"if {b.ref(taken)}: "
    keywords = f", **{{{b.pairs(kwargs)}}}" if kwargs else ""
    e.tail.append(f"{test}{b.ref(fn)}(*{b.tuple(args)}{keywords})")


def effect_global(e: Emitter, x: Effect) -> str:
    return e.builder.constant(x.target, "globals")


def item_effect(e: Emitter, x: Effect) -> str:
    """`d[k] = v` or `del d[k]` as the container itself does it, whatever its class has made of the operator."""
    name = "__delitem__" if x.kind == "dict_del" else "__setitem__"
    target, operands = e.target(x.target), [e.builder.ref(a) for a in x.args]
    own = getattr(type(x.target), name)
    if own in PLAIN_ITEMS:
        return f"del {target}[{operands[0]}]" if x.kind == "dict_del" else f"{target}[{operands[0]}] = {operands[1]}"
    plain = next(getattr(t, name) for t in (collections.OrderedDict, dict, list) if isinstance(x.target, t))
    return f"{e.builder.constant(plain, name)}({target}, {', '.join(operands)})"


PLAIN = (dict, collections.OrderedDict, list, collections.deque)
PLAIN_ITEMS = {getattr(t, name) for t in PLAIN for name in ("__setitem__", "__delitem__")}

EFFECTS: dict[str, Callable[[Emitter, Effect], None]] = {
    "setattr": effect_setattr,
    "delattr": effect_delattr,
    "dict_set": effect_call(item_effect),
    "dict_del": effect_call(item_effect),
    "dict_replace": effect_call(
        lambda e, x: f"{e.builder.constant(support.dict_replace)}({e.target(x.target)}, {e.builder.tuple([tuple(p) for p in x.args[0]])})"
    ),
    "list_splice": helper(support.list_splice),
    "list_extend": helper(list.extend),
    "set_replace": helper(set_order.become),
    "deque_replace": helper(support.deque_replace),
    "global_set": effect_call(lambda e, x: f"{effect_global(e, x)}[{e.builder.ref(x.args[0])}] = {e.builder.ref(x.args[1])}"),
    "global_del": effect_call(lambda e, x: f"{effect_global(e, x)}.pop({e.builder.ref(x.args[0])}, None)"),  # perhaps it was set here, too
    "cell_set": effect_call(lambda e, x: f"{e.target(x.target)}.cell_contents = {e.builder.ref(x.args[0])}"),
    "cell_del": effect_call(lambda e, x: f"{e.builder.constant(support.cell_del)}({e.target(x.target)})"),
    "call": effect_real_call,
    "global_state": effect_call(lambda e, x: f"{e.builder.constant(x.target)}({e.builder.refs(x.args)})"),
}


# -- helpers ---------------------------------------------------------------------------------------------------------------
def parameter_names(code: CodeType) -> list[str]:
    """Names for the frame's arguments that are valid and do not meet the emitter's own (which begin with `_`)."""
    n = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return [x if identifier(x) and re.match(r"[A-Za-z]", x) and x.isascii() else f"a{i}_" for i, x in enumerate(code.co_varnames[:n])]


def instruction_index(code: CodeType) -> Callable[[Any], int]:
    """The interpreter's stack holds indexes of decoded instructions where CPython's holds code units."""
    return lambda v: decode(code).offsets[v] // 2


def at_offset(frame: FrameState, offset: int) -> FrameState:
    return FrameState(
        frame.code, frame.globals, frame.function, frame.fast, frame.stack, offset, frame.exc_info, frame.handler, frame.lasti, frame.loop
    )


__all__ = ["NULL", "Context", "Emitted", "emit"]
