"""Branches on data, both sides in one graph: where both are closed over tensors and numbers, the branch is an operation of the trace.

The sides end where they meet, or return. Every way through them is captured as a block (`subprograms.py`), and what the frame has at the
end of each (locals that are still read, the stack, items of lists that a side appends to) is a result where it is another on another
way (`graph/control_flow.py`). Where the sides are small and cannot fail, both run, and each result is selected (`selects.py`).
What has an effect, or leaves things of several kinds, stays a side exit or a graph break.
"""

from __future__ import annotations

import contextlib
from typing import Any

from pliant import events
from pliant.bytecode import kinds as K
from pliant.graph.control_flow import Block, Flow, Leave, number_of, record_flow
from pliant.graph.record import Bind
from pliant.graph.symnode import SYMS, to_sym
from pliant.graph.traced import TracedTensor
from pliant.interpret import late_errors
from pliant.interpret.capture import UNSET
from pliant.interpret.carried_values import equal, flat, is_new, merged, of_the_call, parts, rebuilt
from pliant.interpret.code_shapes import Key, Sides, Stopped, is_cell, of_while, sides_of
from pliant.interpret.grown_lists import NUMBERS, PLAIN, Grown
from pliant.interpret.late_items import are_made_late, text_of
from pliant.interpret.late_text import LateText, Piece
from pliant.interpret.opaque import Opaque
from pliant.interpret.opcodes import Lazy, force
from pliant.interpret.runtime import call_if
from pliant.interpret.selects import condition, selected
from pliant.interpret.shadows import Shadow, index, item, unwrite, writes_to
from pliant.interpret.state import LEAVE, Frame, Restart, current_site, vm
from pliant.interpret.subprograms import Open, TooMany, TooNested, Unchanged, explore, settled, tree
from pliant.interpret.walks import RESTART
from pliant.symbolic import ops

RETURNED = "what it returns"
SHOWN = (bytes, Opaque, *SYMS)
"""What a call that waits may show besides text, and numbers from before."""


def joined(f: Frame, v: Any) -> bool:
    """The frame is about to branch on `v`, which only the run can tell: whether both sides were done, and it stands behind them."""
    key = (id(f.code), f.pc - 1)
    history = vm.history
    if not getattr(history, "joins", False) or key in vm.joining or vm.joins.get(key) is LEAVE:
        return False
    site = current_site()
    if not (vm.joins_inside if vm.scope.oracle is not None else history.joins_at(site)):
        return False
    sides = sides_of(Key(f.decoded), f.pc - 1)
    if sides is None:
        vm.joins[key] = LEAVE
        return False
    unchanged = Unchanged()
    if not vm.joining:
        vm.ways_run = 0
    vm.joining.append(key)
    try:
        Join(f, sides).capture(v)
    except Open as e:
        if isinstance(e, TooNested):
            if len(vm.joining) > 1:
                raise  # alone it may well be closed
            history.branch_at(site).nested = True
        events.emit("branch_open", where=str(site), why=str(e))
        vm.joins[key] = LEAVE
        vm.loop_codes.append(f.code)
        try:
            unchanged.check()
        except Open:
            raise Restart(RESTART, len(vm.loop_codes), "PL0001", "a branch on data") from None
        f.moved = -1  # the code of both sides has run, and nothing has come of it
        return False
    finally:
        vm.joining.remove(key)
    return True


def unjoined(branch: tuple) -> Restart:
    """Capture again, and leave this branch what it is."""
    key, code = branch
    vm.joins[key] = LEAVE
    vm.loop_codes.append(code)
    return Restart(RESTART, len(vm.loop_codes), "PL0001", "a branch on data")


vm.unjoined = unjoined


def told_on(c: Any, told: list[list]) -> list[tuple]:
    """The calls of both sides of a branch, each on the condition."""
    taken = (c, not c) if type(c) is bool else (to_sym(vm.scope, c), to_sym(vm.scope, ops.not_(c)))
    return [(call_if, (taken[way], fn, args, kwargs), {}) for way, calls in enumerate(told) for fn, args, kwargs in calls]


def held_in(h: Shadow, k: Any) -> Any:
    """What an object from outside has under a key."""
    return (item if isinstance(h.copy, dict) else index)(vm.world, h, k)


class Join:
    """One branch of one frame. Slots are the names of what a frame has at the end: the number of a local, `("stack", i)`, RETURNED, or
    `("item", k, i)`, item i of the k-th list that a side changes."""

    def __init__(self, f: Frame, sides: Sides) -> None:
        self.f = f
        self.sides = sides
        self.branch = (id(f.code), f.pc - 1), f.code
        bits = sides.live[sides.meet] if sides.meet is not None else 0
        for i in {f.decoded.ins[k][1] for k in sides.inside if f.decoded.kinds[k] in (K.LOAD_LOCAL, K.STORE_LOCAL)}:
            if type(f.fast[i]) is Lazy:  # else it is there on one side alone
                force(f, i)
        self.begin = vm.trace.next_vid  # behind what was read just now: it is known before the branch
        self.before = set(vm.scope.symbols)
        self.live = [i for i in range(f.code.co_nlocals) if bits >> i & 1 and not is_cell(f.fast[i])]
        self.calls: list[tuple] = []
        self.texts: dict[Any, tuple] = {}  # of slots that are one of several texts, these
        self.lists: list[tuple[list, list]] = []  # each with what was in it before
        self.held: dict[tuple, tuple[Shadow, Any]] = {}  # slots for what sides store in objects from outside: ("held", shadow, key)

    def capture(self, v: Any) -> None:
        block = self.explored()
        ends = [leave.values[0] for leave in block.leaves()]
        if len(ends) == 1:  # what it makes there stays as it is made, in whatever holds it
            raise Open("it is known which side the program takes")
        for slot, (h, k) in self.held.items():
            for end in ends:
                if slot not in end:
                    end[slot] = held_in(h, k)
                self.check_held(end[slot])
        self.number_texts(ends)
        told = [leave.values[1] for leave in block.leaves()]
        made = None
        if not any(told) or self.shows_what_is_known(told):
            results, outs, binds = self.results(block.leaves(), ends, [])
            made = selected(block, v, self.begin)
            if made is not None and any(told):
                self.calls = told_on(condition(v), told)
        if made is None:
            results, outs, binds = self.results(block.leaves(), ends, told)
            site = current_site()
            known = type(v) in SYMS and v.node.expr.backed  # before the graph runs: no exit
            counts = vm.make_exit is not None and not known and not of_while(self.f.decoded, self.f.pc - 1)
            counter = vm.history.counter_at(site) if counts else None
            n = len(vm.trace.ops)
            record_flow(vm.trace, Flow([], block, counter=counter), [], outs, binds, site)
            late_errors.check(vm.trace, n, vm.frame)
        results_now = dict(zip(results, outs if made is None else made, strict=True))
        self.stand_behind(ends[0], results_now)
        vm.world.calls += self.calls

    def number_texts(self, ends: list[dict]) -> None:
        """Texts that a variable is given by the sides, one or another: its result is which of them it is."""
        if not are_made_late():
            return
        for slot in ends[0]:
            texts = [end.get(slot) for end in ends]
            if slot not in self.held and all([type(x) is str for x in texts]) and len({*texts}) > 1:
                self.texts[slot] = tuple(dict.fromkeys(texts))
                for end, x in zip(ends, texts, strict=True):
                    end[slot] = self.texts[slot].index(x)

    def explored(self) -> Block:
        while True:
            try:
                return settled(lambda: tree(explore(self.run, gradients=vm.differentiates)))
            except TooMany:
                if vm.joins_inside:
                    raise
                vm.joins_inside = True
            except Open as e:
                new = [x for x in e.changed if type(x) is list and all([x is not held for held, _ in self.lists])]
                if not new or len(new) != len(e.changed):
                    raise
                self.lists += [(x, list(x)) for x in new]

    def run(self) -> Leave:
        """One way. Its end: by slot, what the frame has; and the calls that wait for the end of the graph (`print`)."""
        f, meet = self.f, self.sides.meet
        g = Frame(f.decoded, f.func, list(f.fast), f.globals)
        g.pc, g.stack, g.parent, g.watched = f.pc - 1, list(f.stack), f.parent, True
        g.held = list(f.held)
        g.stops = self.sides.ends
        g.handling, g.loop_header, g.outer_site = list(f.handling), f.loop_header, f.outer_site
        returned: Any = UNSET
        items: list[list] = []
        calls = vm.world.calls
        n = len(calls)
        around, vm.journal = vm.journal, []
        told_around, vm.told = vm.told, n
        stored: dict[Any, Any] = {}
        try:
            with contextlib.suppress(Stopped):
                returned = vm.run(g)
        finally:
            journal, vm.journal, vm.told = vm.journal, around, told_around
            stored = self.undo(journal)
            for held, was in self.lists:
                items.append(list(held))
                held[:] = was
            told = calls[n:]
            del calls[n:]
        if returned is not UNSET:
            if meet is not None or g.yielded:
                raise Open("it returns from the middle")
            values: dict[Any, Any] = {RETURNED: returned}
        else:
            values = dict([(i, g.fast[i]) for i in self.live])
            values.update([(("stack", i), x) for i, x in enumerate(g.stack)])
        if UNSET in stored.values():
            raise Open("it gives an object, or a dict, a name that it had not")
        values |= stored
        values |= {("item", k, i): x for k, now in enumerate(items) for i, x in enumerate(now)}
        return Leave(False, [values, told])

    def undo(self, journal: list[tuple]) -> dict[Any, Any]:
        """Take back what a way has stored in objects from outside. By slot, what it has stored; UNSET: there was nothing before."""
        stored: dict[Any, Any] = {}
        for h, k, before, located in reversed(journal):
            slot = ("held", id(h), k)
            self.held[slot] = (h, k)
            if slot not in stored:
                stored[slot] = h.copy[k] if type(h.copy) is list else dict.get(h.copy, k, UNSET)
            if before is UNSET:
                stored[slot] = UNSET
            unwrite(h, k, before, located)
        return stored

    def check_held(self, v: Any) -> None:
        if type(v) is TracedTensor and v.source is not None or type(v) not in (TracedTensor, *NUMBERS, *PLAIN):
            raise Open(f"it stores a {type(v).__name__} from before in an object, or something else there")

    def outer(self, v: Any) -> bool:
        """Whether a value is known before the branch."""
        if type(v) is TracedTensor:
            return v.vid < self.begin
        e = number_of(v)
        return e is None or all([s.info.backed or s.name in self.before for s in e.symbols()])

    def shows_what_is_known(self, told: list[list]) -> bool:
        """Whether calls that wait show nothing that a side has found out."""

        def known(x: Any) -> bool:
            if type(x) is LateText:
                return x.pieces is not None and all([known(p.value) for p in x.pieces if isinstance(p, Piece)])
            if isinstance(x, SYMS):
                return self.outer(x)
            return type(x) in PLAIN or type(x) in SHOWN or id(x) in vm.world.outside

        return all([known(x) for calls in told for _, args, kwargs in calls for x in (*args, *kwargs.values())])

    def results(self, leaves: list[Leave], ends: list[dict], told: list[list]) -> tuple[list[Any], list[Any], list[Bind]]:
        """(slots, and places in them, that are known behind the branch only; what they are; the symbols that they define). The ends of
        the block become these."""
        found: dict[Any, Any] = {}
        columns: list[tuple] = []
        for slot in ends[0]:
            if any([slot not in end for end in ends]) or any([len(end) != len(ends[0]) for end in ends]):
                raise Open("its sides leave lists of different lengths")
            shown = [flat(end[slot]) for end in ends]
            if any([kinds != shown[0][1] for _, kinds in shown]):
                raise Open(f"{self.name(slot)} is of different kinds behind it")
            for i, column in enumerate(zip(*[values for values, _ in shown], strict=True)):
                if all([x is column[0] for x in column]) and (type(column[0]) is not TracedTensor or self.outer(column[0])):
                    continue
                if any([type(x) is Grown for x in column]):
                    raise Open("it gives back one list or another")
                if not all([equal(x, column[0]) for x in column]) or not self.outer(column[0]):
                    column = tuple(map(of_the_call, column))
                    found[(slot, i)] = merged(list(column), self.name(slot), self.outer)
                    columns.append(column)
        self.calls = self.told(told, found, columns) if any(told) else []
        for n, leave in enumerate(leaves):
            leave.values = [parts(column[n]) for column in columns]
        binds: list[Bind] = []
        for at, r in enumerate(found.values()):
            if type(r) is not TracedTensor:
                binds.append(Bind(number_of(r), at))
                continue
            binds += [Bind(number_of(s), at, d) for d, s in enumerate(r.sizes) if is_new(s, self.before)]
        return list(found), list(found.values()), binds

    def told(self, told: list[list], found: dict[Any, Any], columns: list[tuple]) -> list[tuple]:
        """The calls of all ways, each on the condition that the run took its way. What they show becomes results."""
        which = found["its way"] = to_sym(vm.scope, vm.trace.unbacked(int))
        columns.append(tuple(range(len(told))))

        def shown(v: Any, way: int) -> Any:
            if type(v) is LateText:
                pieces = [Piece(shown(p.value, way), p.conversion, p.spec) if isinstance(p, Piece) else p for p in v.pieces or ()]
                return LateText(tuple(pieces), v.firm)
            if isinstance(v, SYMS) and not self.outer(v):
                kind = NUMBERS[type(v)]
                r = found[("shown", len(found))] = to_sym(vm.scope, vm.trace.unbacked(kind))
                columns.append(tuple([v if i == way else kind() for i in range(len(told))]))
                return r
            if type(v) not in PLAIN and type(v) not in SHOWN and id(v) not in vm.world.outside:
                raise Open(f"it shows a {type(v).__name__} that it makes")
            return v

        out: list[tuple] = []
        for way, calls in enumerate(told):
            taken = to_sym(vm.scope, ops.eq(number_of(which), way))
            for fn, args, kwargs in calls:
                given = (taken, fn, tuple([shown(a, way) for a in args]), {k: shown(a, way) for k, a in kwargs.items()})
                out.append((call_if, given, {}))
        return out

    def name(self, slot: Any) -> str:
        if slot in self.held:
            h, k = self.held[slot]
            return f"{h.source.name}[{k!r}]"
        return self.f.code.co_varnames[slot] if type(slot) is int else str(slot)

    def stand_behind(self, end: dict, results: dict[Any, Any]) -> None:
        f = self.f
        values = {slot: rebuilt(v, [results.get((slot, i), x) for i, x in enumerate(flat(v)[0])]) for slot, v in end.items()}
        for slot, texts in self.texts.items():
            values[slot] = text_of(texts, values[slot], self.branch)
        for k, (held, _) in enumerate(self.lists):
            held[:] = [values[slot] for slot in values if type(slot) is tuple and slot[:2] == ("item", k)]
        for slot, (h, k) in self.held.items():
            if values[slot] is not held_in(h, k):
                writes_to(h, k, h.located.get(k, UNSET))
                (dict if isinstance(h.copy, dict) else list).__setitem__(h.copy, k, values[slot])
        if self.sides.meet is None:
            f.stack = [values[RETURNED]]
            f.pc = next(i for i, kind in enumerate(f.decoded.kinds) if kind is K.RETURN)
            return
        for i in range(f.code.co_nlocals):
            if not is_cell(f.fast[i]):
                f.fast[i] = values.get(i, UNSET)
        f.stack = [values[("stack", i)] for i in range(sum(type(slot) is tuple and slot[0] == "stack" for slot in values))]
        f.pc = self.sides.meet
