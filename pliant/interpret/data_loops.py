"""`while` loops on data, whole: one that is closed over tensors and numbers becomes an operation of the trace (`graph/control_flow.py`).

At the first test of such a loop (`enter_at_test`), or at its header where the test is further inside (`at_header`; the capture starts again
to get there), the locals that are still read are what the loop carries. They are tried as they are; what is another after a round becomes
a fresh symbol or a tensor whose size is one, until a round changes nothing more. Every way through a round is captured as a block; ways end
at the header or where all ways out of the loop meet. A loop that writes to anything from before, whose carried values change their type,
or in which the graph would break, is left to `jit/region_loops.py`: the capture starts again and knows it.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CellType, CodeType
from typing import Any

from pliant import events
from pliant.bytecode import kind_at
from pliant.bytecode import kinds as K
from pliant.graph.control_flow import Block, Flow, Leave, number_of, record_flow
from pliant.graph.growing import new_list, new_size
from pliant.graph.originals import torch
from pliant.graph.record import Bind
from pliant.graph.symnode import SYMS, to_sym, truth
from pliant.graph.traced import TracedTensor, tensors_of
from pliant.interpret import globalstate, late_errors
from pliant.interpret.calls import graph_call
from pliant.interpret.capture import UNSET
from pliant.interpret.carried_values import alike, apart, equal, flat, is_new, join, merged, of_the_call, parts, rebuilt, tensor
from pliant.interpret.checks import raised
from pliant.interpret.code_shapes import Key, Shape, Stopped, begins, is_cell, live_where_nothing_raises, loop_of, shape_of
from pliant.interpret.data_ranges import RANGES, DataIterator, DataRange
from pliant.interpret.decode import Decoded
from pliant.interpret.grown_lists import NUMBERS, Grown, Like
from pliant.interpret.joins import joined
from pliant.interpret.loop_memory import Memory
from pliant.interpret.opcodes import Lazy, force
from pliant.interpret.state import LEAVE, TRY, Break, Frame, Restart, by_value, current_site, vm, whole_loops
from pliant.interpret.subprograms import Open, TooMany, TooNested, Way, alone, explore, frames, settled, tree
from pliant.interpret.walks import RESTART, Counter, place

ALONE = 2
"""References to what a local variable alone holds, when `sys.getrefcount` is asked."""
CHANGING = "this decision kept changing, so both sides are compiled"
TRIES = 8
"""How often a round is captured before what it carries must have settled."""


Wide = dict[Any, tuple | None]
"""By slot, what changes of what a loop carries: the dims of a tensor (their number: its offset), None for a number."""


READS_CELLS = {K.LOAD_DEREF, K.LOAD_CELL, K.LOAD_CLASS_DEREF, K.LOAD_FROM_DICT_OR_DEREF, K.LOAD_LOCAL, K.DELETE_DEREF}
COUNTER, RETURNED = "its counter", "what it returns"
RangeIterator = type(iter(range(0)))
ITERATORS = (RangeIterator, DataIterator)


def rest_of(it: Any, f: Frame) -> Any:
    """What an iterator has yet to give. `Open` if it is none over a range, if anybody else has it, or if it is from outside: how far such
    a one has come is not guarded."""
    held = [v for g in frames() for v in (*g.fast, *g.stack)]
    if type(it) not in ITERATORS or sum([v is it for v in held]) > 1 or id(it) in vm.world.outside:
        raise Open("it walks something else than a range of its own")
    if type(it) is DataIterator:
        return it.over
    state: Any = it.__reduce__()  # (iter, (range,)[, how many are done])
    over = state[1][0]
    done = state[2] or 0 if len(state) > 2 else 0
    return range(over.start + done * over.step, over.stop, over.step)


# -- when -------------------------------------------------------------------------------------------------------------------------
def enabled() -> bool:
    return whole_loops() and not vm.asking and not vm.rehearsing and not globalstate.user_modes()


def on_data(v: Any) -> bool:
    """Whether only the run can tell if `v` is true."""
    if type(v) is TracedTensor:
        return all([type(n) is int and n == 1 for n in v.sizes])
    if type(v) in SYMS:
        e = truth(v.node.expr)
        return e.const is None and not e.backed and not vm.scope.known_true(e) and not vm.scope.known_false(e)
    return False


def at_branch(f: Frame, v: Any) -> bool:
    """The frame is about to branch on `v`: if that tests for the first time whether to begin a loop, the loop is done here, and the frame
    stands behind it."""
    if type(v) in SYMS and keeps_changing(f):
        return at_varying(f, v)
    if not enabled() or not on_data(v) or (type(v) in SYMS and raised(f, f.pc) is not None):
        return False
    if f.held:
        return held_below(f) and joined(f, v)
    header = begins(f.decoded, f.pc - 1)
    if header in f.stops:  # `continue` goes to the first test
        return False
    if header is not None and vm.loops.get((id(f.code), header)) is not LEAVE:
        return whole(f, header, v)
    mark(f)
    return joined(f, v)


def keeps_changing(f: Frame) -> bool:
    """Whether what the frame is about to branch on was another in call after call (`History`)."""
    return f.watched and vm.history.breaks_at(f.code, f.decoded.offsets[f.pc - 1])


def at_varying(f: Frame, v: Any) -> bool:
    """A branch on a number that is known before the graph runs and keeps changing: both sides are one operation, or the graph ends."""
    c = truth(v.node.expr)
    scope, offset = vm.scope, f.decoded.offsets[f.pc - 1]
    if scope.known_true(c) or scope.known_false(c):
        return False
    scope.varying.add(c)
    if enabled() and held_below(f) and raised(f, f.pc) is None and joined(f, v):
        vm.history.joined.add((id(f.code), offset))
        return True
    if scope.oracle is not None:
        return False  # on a way through this branch, or one around it
    raise Break("PL0015", CHANGING, clean=True)


def held_below(f: Frame) -> bool:
    """Whether all objects at whose end code may run are on the stack, as the iterators of loops are: a branch leaves them there."""
    return all([any([v is o for o in f.stack[:-1]]) for v in f.held])


def innermost(d: Decoded, i: int) -> int | None:
    """The header of the innermost loop that instruction `i` is in."""
    return max([h for h in d.loop_headers if h <= i and i in loop_of(Key(d), h)], default=None)


def mark(f: Frame | None) -> None:
    """The branch is in the middle of a loop, of this frame or of one that called it: the capture starts again, to do the loop whole."""
    while f is not None:
        header = innermost(f.decoded, f.pc - 1)
        if header is not None:
            key = (id(f.code), header)
            if header in f.stops or f.decoded.kinds[header] is K.FOR_ITER and not any([type(v) in ITERATORS for v in f.stack]):
                return
            if key not in vm.loops and shape_of(Key(f.decoded), header) is not None and not under_way(f, header):
                raise again(f, header, TRY)
            return
        if f.decoded.is_generator:
            return
        f = f.parent


def under_way(f: Frame, header: int) -> bool:
    """Whether the frame goes on in a round of this loop, behind a graph break: it does not come by the header before the branch."""
    return f.top and vm.world.resumed_at in loop_of(Key(f.decoded), header)


def decides(site: Any) -> bool:
    """Whether a branch of the program is at this site."""
    code = getattr(site, "code", None)
    return code is not None and 0 <= site.offset < len(code.co_code) and kind_at(code, site.offset).branch


def again(f: Frame, header: int, what: str | Wide) -> Restart:
    """The signal to capture again, with this said of a loop."""
    vm.loops[(id(f.code), header)] = what
    if what is LEAVE and f.decoded.kinds[header] is K.FOR_ITER:
        vm.loops[RANGES] = LEAVE
    vm.loop_codes.append(f.code)
    return Restart(RESTART, len(vm.loop_codes), "PL0002", "a loop on data")


def at_header(f: Frame) -> None:
    """Before each instruction of a frame whose code has a loop that is to be done whole: do it, if the frame is there."""
    if f.pc in f.stops:
        if f.count:
            raise Stopped
        return
    if f.pc not in f.decoded.loop_headers or f.held or not enabled():
        return
    if (id(f.code), f.pc) in vm.exploring:
        raise Open("it goes on to a loop further out")
    if vm.loops.get((id(f.code), f.pc), LEAVE) is not LEAVE:
        whole(f, f.pc)
        if f.pc in f.stops:  # where the loop ends, the way does
            raise Stopped


def next_of_data(it: DataIterator) -> Any:
    """The next item of a range over data is asked for: the capture starts again, to do the loop whole, or without such ranges."""
    f = vm.frame
    header = f.pc - 1
    tried = f.decoded.kinds[header] is K.FOR_ITER and (id(f.code), header) not in vm.loops and shape_of(Key(f.decoded), header) is not None
    if tried and enabled() and not f.held:
        raise again(f, header, TRY)
    vm.loops[RANGES] = LEAVE
    raise again(f, header, LEAVE)


def whole(f: Frame, header: int, v: Any = UNSET) -> bool:
    """Do the loop with this header, and stand behind it. `v`: what is about to be tested before it. False: it is no such loop."""
    shape = shape_of(Key(f.decoded), header)
    if shape is None:
        raise again(f, header, LEAVE)
    key = (id(f.code), header)
    vm.exploring.append(key)
    try:
        Whole(f, shape, v).capture()
    except Open as e:
        if e.changed and len(vm.exploring) > 1 or isinstance(e, TooNested):
            raise  # what a loop further out has, which may carry it; or a branch that it is in
        events.emit("loop_open", where=str(current_site()), why=str(e))
        raise again(f, header, LEAVE) from None
    finally:
        vm.exploring.remove(key)
    return True


# -- the loop ---------------------------------------------------------------------------------------------------------------------
@dataclass(slots=True)
class End:
    """What a way had at its end, by slot: the live locals and the stack, or what it returned. `parts`: the leaves of these."""

    again: bool
    values: dict[Any, Any]
    parts: dict[Any, Any] = field(default_factory=dict)
    memory: dict[int, TracedTensor] | None = None  # what `Memory` has made of memory from before, by storage


Found = tuple[Block, list[End]]


class Whole:
    """One loop of one frame. `slots` are the names of what a frame has: the number of a local, `("stack", i)` or RETURNED."""

    def __init__(self, f: Frame, shape: Shape, v: Any) -> None:
        self.f = f
        self.shape = shape
        self.tested = v is not UNSET
        self.exits: frozenset[Any] = self.live(shape.behind) if shape.behind is not None else frozenset()
        for i in self.live(shape.header) | self.exits:
            if type(f.fast[i]) is Lazy and self.touches(i):
                force(f, i)
        self.own = {i for i in self.live(shape.header) if type(f.fast[i]) in (list, Grown) and sys.getrefcount(f.fast[i]) <= ALONE}
        live = self.live(shape.header)
        self.first: dict[Any, Any] = {i: f.fast[i] for i in live if f.fast[i] is not UNSET or self.wanted(i)}
        # Those that a comprehension of the loop takes over (since 3.12) and gives back: they are empty at the end of each round, too.
        self.empty = {i for i, v in self.first.items() if v is UNSET and self.cleared(i)}
        for i in self.empty:
            del self.first[i]
        self.exits -= self.empty
        self.left_out = live - self.first.keys()
        self.cells = self.own_cells()
        self.first |= {slot: inside_of(f.fast[i]) for slot, i in self.cells.items()}
        self.exits |= {slot for slot, i in self.cells.items() if self.read_behind(i)}
        self.stack = f.stack[:-1] if self.tested else list(f.stack)
        self.range: Any = range(0)
        if f.decoded.kinds[shape.header] is K.FOR_ITER:
            self.range = rest_of(self.stack.pop(), f)
            self.first[COUNTER] = self.range.start
            kind, (_, item) = f.decoded.kinds[shape.header + 1], f.decoded.ins[shape.header + 1]
            if kind is K.STORE_LOCAL and type(self.range) is range and self.range and self.first.get(item) is UNSET:
                self.first[item] = self.range.start  # nobody sees it before the first round has stored to it
        # Locals that the first round is to set. No round reads what the one before has left (it would raise, and `run` sees that nothing is
        # caught), and behind the last they are there.
        self.counted = type(self.range) is range and bool(self.range) and not by_value()
        self.late = {slot for slot, v in self.first.items() if v is UNSET and slot not in self.cells and self.counted}
        self.copied: set[Any] = set()  # slots of tensors that a round writes to: it begins with a copy of each
        self.grown: dict[Any, Grown] = {}  # of results: what stands for a list behind the loop
        self.before = set(vm.scope.symbols)
        self.begin = vm.trace.next_vid
        known = vm.loops.get((id(f.code), shape.header))
        self.known: Wide = known if type(known) is dict else {}
        self.params: dict[Any, Any] = {}  # slot -> what stands for it in a round
        for slot, what in self.known.items():
            first = self.first.get(slot)
            if type(first) in NUMBERS if what is None else type(first) is TracedTensor and len(first.sizes) >= max(what, default=0):
                self.params[slot] = self.wide(first, what)
        self.memory = Memory(self.begin)
        if type(self.range) is DataRange:
            self.params[COUNTER] = to_sym(vm.scope, place(self.range))

    def wide(self, first: Any, what: tuple | None) -> Any:
        """What stands for a value that an earlier capture has seen to change."""
        if what is None:
            return to_sym(vm.scope, vm.trace.unbacked(NUMBERS[type(first)]))
        sizes = tuple([new_size(vm.trace) if i in what else n for i, n in enumerate(first.sizes)])
        return tensor(first, sizes, new_size(vm.trace) if len(first.sizes) in what else first.offset)

    def widths(self) -> Wide:
        """What changes of what is carried."""
        found: Wide = {}
        for slot, p in self.params.items():
            found[slot] = None
            if type(p) is TracedTensor:
                found[slot] = tuple([i for i, n in enumerate((*p.sizes, p.offset)) if is_new(n, self.before)])
        return found

    def live(self, i: int) -> frozenset[int]:
        bits, f = self.shape.live[i], self.f
        n = f.code.co_nlocals
        return frozenset(k for k in range(n) if bits >> k & 1 and not is_cell(f.fast[k]))

    def wanted(self, i: int) -> bool:
        """Whether a local may be read behind the loop, or before a round has stored to it, but by a handler of exceptions."""
        bits = live_where_nothing_raises(Key(self.f.decoded))[self.shape.header]
        return bool(bits >> i & 1) or i in self.exits

    def own_cells(self) -> dict[str, int]:
        """Variables that inner functions read, of which none is left: slot -> place in the frame."""
        f, found = self.f, {}
        caught = catches(f.decoded, self.shape.inside) or any([c.co_exceptiontable for c in inner(f.code)])
        for i in range(len(f.fast)):
            if is_cell(f.fast[i]) and id(f.fast[i]) not in vm.world.cells and sys.getrefcount(f.fast[i]) <= ALONE:
                v = inside_of(f.fast[i])
                if type(v) is not Lazy and not (v is UNSET and caught):  # each round begins without it: see `late`
                    found[f"cell {i}"] = i
        return found

    def read_behind(self, i: int) -> bool:
        """Whether a variable of inner functions may be read behind the loop."""
        d, header = self.f.decoded, self.shape.header
        if any([h != header and header in loop_of(Key(d), h) for h in d.loop_headers]):
            return True  # this loop itself may be entered again
        outside = set(range(len(d.kinds))) - self.shape.inside
        return any([d.kinds[k] in READS_CELLS and d.ins[k][1] == i for k in outside])

    def touches(self, i: int) -> bool:
        d = self.f.decoded
        return any([d.kinds[k] in (K.LOAD_LOCAL, K.STORE_LOCAL) and d.ins[k][1] == i for k in self.shape.inside])

    def cleared(self, i: int) -> bool:
        d = self.f.decoded
        return any([d.kinds[k] is K.LOAD_LOCAL_AND_CLEAR and d.ins[k][1] == i for k in self.shape.inside])

    def sets(self, slot: int | None) -> bool:
        """A round has set this local, which was empty. Whether that is all: the first round may do that."""
        if slot is None or not self.counted:
            return False
        self.empty.discard(slot)
        self.first[slot] = UNSET
        self.late.add(slot)
        if self.shape.behind is not None:
            self.exits |= self.live(self.shape.behind) & {slot}
        return True

    def capture(self) -> None:
        for slot, v in self.first.items():
            if v is UNSET and slot not in self.late and slot not in self.cells:
                raise Open(f"{self.name(slot)} may not be there yet")
        guards = relied = len(vm.scope.all_guards)
        for _ in range(TRIES + len(self.first)):
            relied = len(vm.scope.all_guards)
            try:
                found: list[Found] = settled(self.explored)
                if not self.widened([end for end in found[0][1] if end.again]):
                    break
            except TooMany:
                if vm.joins_inside:
                    raise
                vm.joins_inside = True
            except Open as refusal:
                if not self.taken(refusal):
                    raise
        else:
            raise Open("what it carries is another in every round")
        if not self.known and any([decides(g.site) for g in vm.scope.all_guards[guards:relied]]):
            raise again(self.f, self.shape.header, self.widths())  # branches on what the first round has, which is another later
        leave = [end for _, own in found for end in own if not end.again]
        for slot in self.cells.keys() & self.exits:  # those that are empty before are so at the beginning of each round
            if self.first[slot] is UNSET and any([end.values.get(slot) is UNSET for end in leave]):
                if any([end.values[slot] is not UNSET for end in found[0][1] if end.again]):
                    raise Open(f"{self.name(slot)} may not be there yet")
        if not leave:
            raise Open("no way out of it was found")
        for end in leave:  # those from before the first round have the lists as they were
            end.values.update((slot, p) for slot, p in self.lists().items() if end.values.get(slot, UNSET) is self.first[slot])
        results, outs, binds = self.results(leave)
        for k, (block, _) in enumerate(found):
            for last in block.leaves():
                was: End = last.values[0]
                last.values = [was.parts[s] for s in results] if not was.again else [] if k else [parts(was.values[s]) for s in self.params]
                last.values += [] if was.again and k else self.memory.ended(was.memory)
        params: list[Any] = [number_of(p) if type(p) in SYMS else p.token if type(p) is Grown else p for p in self.params.values()]
        params += self.memory.params()
        written = self.memory.results()
        late = frozenset(self.params[slot].vid for slot in self.late if type(self.params.get(slot)) is TracedTensor)
        flow = Flow(params, found[0][0], found[1][0] if self.tested else None, frozenset(vm.trace.flow_sizes - self.before), late=late)
        carried = [*[parts(self.first[slot]) for slot in self.params], *self.memory.initial()]
        n = len(vm.trace.ops)
        record_flow(vm.trace, flow, carried, [*outs, *written], binds, current_site())
        late_errors.check(vm.trace, n, vm.frame)
        self.memory.put_back(written)
        self.stand_behind(leave[0], results)

    def taken(self, refusal: Open) -> bool:
        """Whether what was refused can be had by carrying more: memory that rounds write to, copies of it, lists."""
        memory = refusal.written
        if self.memory.gives_up(memory):
            return self.copies(memory)
        return self.sets(refusal.filled) or self.memory.takes(refusal) or self.grows(refusal.changed) or self.copies(memory)

    def copies(self, memory: int | None) -> bool:
        """A round writes to this memory. If the frame alone has it, by one variable, nobody sees that each round has memory of its own."""
        for slot, first in self.first.items():
            v = self.params.get(slot, first)
            if memory is None or slot in self.cells or type(v) is not TracedTensor or v.storage_id != memory or slot in self.copied:
                continue
            if type(first) is not TracedTensor or not alone(first):
                return False
            self.copied.add(slot)
            return True
        return False

    def unshared(self, end: End) -> None:
        """Raises `Open` if what a round would write to is memory that others have."""
        held = [t for v in end.values.values() for x in flat(v)[0] for t in tensors_of(x.more if type(x) is Grown else x)]
        for slot in self.copied:
            v = end.values[slot]
            if type(v) is not TracedTensor or v.storage_id < self.begin or sum([t.storage_id == v.storage_id for t in held]) > 1:
                raise Open(f"{self.name(slot)} is written to, and shares its memory")

    def lists(self) -> dict[Any, Grown]:
        """The carried lists."""
        return {slot: p for slot, p in self.params.items() if type(p) is Grown}

    def grows(self, changed: tuple[Any, ...]) -> bool:
        """A round has changed these lists. Those that nobody but the frame has are carried from now on: whether that is all."""
        slots = [slot for slot in self.own - self.params.keys() if any([v is self.first[slot] for v in changed])]
        if not slots or len(slots) != len(changed) or by_value():
            return False
        for slot in sorted(slots):
            v = self.first[slot]
            like, items = (v.like, v.more) if type(v) is Grown else (Like(), v)
            for x in items:
                like = like.joined(x, self.outer)
            self.params[slot] = Grown(new_list(vm.trace), like)
        return True

    # -- ways ----------------------------------------------------------------------------------------------------------------------
    def explored(self) -> list[Found]:
        """A round, and what comes before the first."""
        f, header = self.f, self.shape.header
        found = [self.ways(header, {**self.first, **self.params}, self.stack, self.memory.in_blocks)]
        if self.tested:
            found.append(self.ways(f.pc - 1, dict(enumerate(f.fast)), f.stack, self.memory.of_entry))
            for end in found[1][1]:
                if end.again and not all([equal(v, self.first[slot]) for slot, v in end.values.items()]):
                    raise Open("its first test changes a local")
        return found

    def ways(self, start: int, fast: dict[Any, Any], stack: list[Any], own_memory: Callable[[list[Way]], list[Way]]) -> Found:
        found = own_memory(explore(lambda: self.run(start, fast, stack), carried=self.memory.cells))
        return tree(found), [w.end.values[0] for w in found if w.end is not None]

    def run(self, start: int, fast: dict[Any, Any], stack: list[Any]) -> Leave:
        """One way from instruction `start`. Its end is the only value."""
        f, shape = self.f, self.shape
        g = Frame(f.decoded, f.func, [v if is_cell(v) else UNSET for v in f.fast], f.globals)
        g.pc, g.stack, g.parent, g.watched = start, list(stack), f.parent, True
        counter: Any = None
        for slot, v in fast.items():
            if slot in self.cells:
                continue
            if slot == COUNTER:
                counter = Counter(v, self.range, lambda: self.copy_written(g))
                g.stack.append(counter)
            elif slot in self.late:
                g.fast[slot] = UNSET
            else:
                g.fast[slot] = Grown(v.token, v.like) if slot in self.lists() and v is self.params[slot] else v
        for name, i in self.cells.items():
            v = fast.get(name, self.first[name])
            g.fast[i] = CellType(v) if v is not UNSET else CellType()
        if start == shape.header and counter is None:
            self.copy_written(g)
        g.stops = (shape.header, *shape.ends)
        g.handling, g.loop_header, g.outer_site = list(f.handling), f.loop_header, f.outer_site
        if f.loop_header == shape.header:
            g.loop_header = -1
        returned: Any = UNSET
        with contextlib.suppress(Stopped):
            returned = vm.run(g)
        if g.caught and (self.late or self.left_out):
            raise Open("it catches an exception, and may read a variable that has no value yet")
        if returned is not UNSET:
            if shape.behind is not None or g.yielded:
                raise Open("it returns from the middle")
            return Leave(False, [End(False, {RETURNED: returned})])
        again = g.pc == shape.header
        if again and counter is not None:
            g.stack.pop()
        behind = frozenset() if again or shape.behind is None else self.live(shape.behind)
        for slot in self.empty if again else self.empty & behind:
            if g.fast[slot] is not UNSET:
                self.refuse_set(slot)
        for slot in self.late if again else self.late & self.exits:
            if g.fast[slot] is UNSET:
                if again or counter.now is not fast[COUNTER]:
                    raise Open(f"{self.name(slot)} may not be there yet")
                g.fast[slot] = self.params.get(slot, UNSET)
        values = {slot: self.held(g, slot, counter) for slot in (self.first if again else self.exits)}
        if again:
            if len(g.stack) != len(self.stack) or any([a is not b for a, b in zip(g.stack, self.stack, strict=True)]):
                raise Open("it walks an iterator that is not its own")
        else:
            values |= {("stack", i): v for i, v in enumerate(g.stack)}
        return Leave(again, [End(again, values)])

    def refuse_set(self, slot: int) -> None:
        refusal = Open(f"{self.name(slot)} may not be there yet")
        refusal.filled = slot
        try:
            raise refusal
        finally:
            del refusal  # it holds this frame

    def copy_written(self, g: Frame) -> None:
        """At the beginning of a round, in the block that is to write: copies of the tensors that it writes to."""
        for slot in sorted(self.copied):
            g.fast[slot] = graph_call(torch.clone, (g.fast[slot],), {})

    def held(self, g: Frame, slot: Any, counter: Any) -> Any:
        """What a frame has at the end of a way."""
        if slot == COUNTER:
            return counter.now
        if slot not in self.cells:
            return g.fast[slot]
        v = inside_of(g.fast[self.cells[slot]])
        if v is UNSET and self.first[slot] is not UNSET:
            raise Open(f"{self.name(slot)} may not be there yet")
        return v

    # -- what is carried -----------------------------------------------------------------------------------------------------------
    def widened(self, rounds: list[End]) -> bool:
        """Whether a round has left other values than it began with, which are carried from now on."""
        changed = False
        for end in rounds:
            apart(end.values.values())
            self.unshared(end)
            for slot, first in self.first.items():
                now, stands = end.values[slot], self.params.get(slot, first)
                if equal(now, stands) or first is UNSET and slot in self.cells:
                    continue
                self.first[slot], end.values[slot] = first, now = of_the_call(first), of_the_call(now)
                self.memory.check([first, stands, now])
                if slot in self.late and slot not in self.params:
                    self.params[slot], changed = self.fresh(now, slot), True
                    continue
                if type(stands) is Grown and slot in self.params:
                    like = self.appended(stands, now, slot)
                    if not like.same_as(stands.like):
                        self.params[slot], changed = Grown(stands.token, like), True
                    continue
                p = join(stands if slot in self.late else first, stands, now, slot in self.params, self.name(slot), self.before)
                if p is not stands:
                    self.params[slot], changed = p, True
        return changed

    def fresh(self, v: Any, slot: Any) -> Any:
        """What stands for a value that the round before has left, where there was none before the loop."""
        if type(v) is not TracedTensor:
            return join(v, v, v, False, self.name(slot), self.before)
        if not v.dense and not all(map(self.outer, (*v.sizes, *v.strides))):
            raise Open(f"{self.name(slot)} changes its strides")
        alike(v, v, self.name(slot))
        sizes = tuple([n if self.outer(n) else new_size(vm.trace) for n in v.sizes])
        return tensor(v, sizes, v.offset if self.outer(v.offset) else new_size(vm.trace))

    def appended(self, stands: Grown, now: Any, slot: Any) -> Like:
        """What is said of the items of a list after a round. Raises `Open` if more than that they became more has happened to it."""
        if type(now) is not Grown or now.token is not stands.token and now.token.vid < self.begin:
            raise Open(f"{self.name(slot)} is another list in the next round")
        like = stands.like.merged(now.like.outside(self.outer))
        for v in now.more:
            like = like.joined(v, self.outer)
        return like

    def name(self, slot: Any) -> str:
        if slot in self.cells:
            code, i = self.f.code, self.cells[slot]
            names = [*code.co_varnames, *[v for v in code.co_cellvars if v not in code.co_varnames], *code.co_freevars]
            return names[i]
        return self.f.code.co_varnames[slot] if type(slot) is int else str(slot)

    # -- behind it -------------------------------------------------------------------------------------------------------------------
    def results(self, leave: list[End]) -> tuple[dict[Any, Any], list[Any], list[Bind]]:
        """What is known behind the loop only: by slot and place in it, as a list, and the symbols that these results define."""
        found: dict[Any, Any] = {}
        for end in leave:
            apart(end.values.values())
        for slot in leave[0].values:
            if any([slot not in end.values for end in leave]):
                raise Open("its ways out leave different stacks")
            shown = [flat(end.values[slot]) for end in leave]
            if any([kinds != shown[0][1] for _, kinds in shown]):
                raise Open(f"{self.name(slot)} is of different kinds behind it")
            for i, column in enumerate(zip(*[leaves for leaves, _ in shown], strict=True)):
                where, grown = (slot, i), type(column[0]) is Grown
                if all([v is column[0] if grown else equal(v, column[0]) for v in column]) and self.outer(column[0]):
                    continue
                column = tuple(map(of_the_call, column))
                for end, v in zip(leave, column, strict=True):
                    end.parts[where] = parts(v)
                if grown:
                    found[where] = self.list_behind(column, where)
                else:
                    self.memory.check(list(column))
                    found[where] = merged(list(column), self.name(slot), self.outer)
        binds: list[Bind] = []
        for at, r in enumerate(found.values()):
            if type(r) is not TracedTensor:
                binds.append(Bind(number_of(r), at))
                continue
            for d, s in enumerate(r.sizes):
                if is_new(s, self.before):
                    binds.append(Bind(number_of(s), at, d))
        return found, list(found.values()), binds

    def list_behind(self, column: tuple, place: Any) -> TracedTensor:
        """What is known behind the loop of a list that it has appended to."""
        if any([v.token.vid < self.begin for v in column]):
            raise Open("it gives back one list or another")
        like = Like()
        for v in column:
            like = like.merged(v.like.outside(self.outer))
            for x in v.more:
                like = like.joined(x, self.outer)
        self.grown[place] = Grown(new_list(vm.trace), like)
        return self.grown[place].token

    def outer(self, v: Any) -> bool:
        """Whether a value is known before the loop."""
        if type(v) in (TracedTensor, Grown):
            return (v.token if type(v) is Grown else v).vid < self.begin
        e = number_of(v)
        return e is None or all([s.info.backed or s.name in self.before for s in e.symbols()])

    def stand_behind(self, end: End, results: dict[Any, Any]) -> None:
        f = self.f
        values, known = {}, results | self.grown
        for slot, v in end.values.items():
            leaves = [known.get((slot, i), x) for i, x in enumerate(flat(v)[0])]
            values[slot] = rebuilt(v, leaves)
        for i, v in enumerate(f.fast):
            if i < f.code.co_nlocals and not is_cell(v):
                f.fast[i] = values.get(i, UNSET)
        for slot, i in self.cells.items():
            if values.get(slot, UNSET) is not UNSET:
                f.fast[i].cell_contents = values[slot]
        if self.shape.behind is None:
            f.stack = [values[RETURNED]]
            f.pc = f.decoded.kinds.index(K.RETURN)
        else:
            f.stack = [values[("stack", i)] for i in range(sum(type(slot) is tuple for slot in values))]
            f.pc = self.shape.behind


def catches(d: Decoded, inside: frozenset[int]) -> bool:
    """Whether some of these instructions have a handler in this frame."""
    return any([start <= i < stop for start, stop, *_ in d.table for i in inside])


def inner(code: CodeType) -> Iterator[CodeType]:
    """The code of the functions inside of a function."""
    for c in code.co_consts:
        if type(c) is CodeType:
            yield c
            yield from inner(c)


def inside_of(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return UNSET


vm.at_branch = at_branch
vm.next_of_data = next_of_data
__all__ = ["CHANGING", "RESTART", "Stopped", "at_header"]
