"""Sub-programs: code of the program captured as blocks of a `Flow`, every way through its branches on data.

`explore` runs a piece of the program again and again, one way after the other: the scope's oracle answers what only the run can tell, and
what it answered is a branch of the tree. Each way begins with the same numbers for tensors and symbols, so those with the same beginning
agree on what they call it. Nothing of a way stays but what it read of the outside: its operations move to the blocks, facts are forgotten.
Who explores runs until nothing new is read (`settled`), and sees to it that the program changed nothing (`World` effects, `Unchanged`).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import random
import types
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from pliant.graph import casts
from pliant.graph.control_flow import FLOWS, Block, Branch, Leave, number_of
from pliant.graph.dispatch import apply_metadata
from pliant.graph.growing import READERS
from pliant.graph.originals import gradients
from pliant.graph.schema import op_info, written
from pliant.graph.symnode import SYMS
from pliant.graph.traced import WALKED, TracedTensor, held_in, leaves, tensors_of
from pliant.interpret import globalstate, late_reads
from pliant.interpret.effects import effects_of
from pliant.interpret.generators import Generator
from pliant.interpret.grown_lists import Grown
from pliant.interpret.state import Break, Frame, LoopBackSignal, Restart, current_site, vm
from pliant.native import iterators
from pliant.symbolic.expr import Expr
from pliant.symbolic.scope import BRANCH

WAYS = 24
"""More ways through a piece of the program than this are too many."""
LENGTH = 4000
"""Operations of all ways together."""
FRAMES = 4000
"""Calls on all ways together: the number that a recursion goes by may be known to be large and no more, and each call may be two."""
RUNS = 64
"""Runs of ways within one branch, those of the branches inside of its ways included: each level of nesting multiplies them."""

ELSEWHERE = 1 << 40
"""From here on frames are numbered that no restart is about."""


class Open(Exception):
    """What is explored is not closed over tensors and numbers, for this reason.

    `changed`: the lists that it has changed, if that is all: they are as they were before, again. `written`: the memory from before that
    it has written to; `known_as`: the tensor from before by which it knows that memory, if there is only one. `filled`: the local that was
    empty before a round and is not behind it.
    """

    changed: tuple[Any, ...] = ()
    written: int | None = None
    known_as: TracedTensor | None = None
    filled: int | None = None


class TooMany(Open):
    """There are more than so many ways through it."""


class TooNested(Open):
    """The branches inside of its ways, each with ways of its own, have taken more than so many runs. It is the outermost branch's."""


class Unsteady(Open):
    """Two ways began alike, and did not go on alike: the first has read what was new."""


@dataclass(slots=True)
class Way:
    """One run: what it recorded, the decisions (test, answer, operations and assertions before it), and its end."""

    ops: list[Any]
    asserts: list[Any]
    decisions: list[tuple[Expr, bool, int, int]] = field(default_factory=list)
    end: Leave | None = None
    frames: int = 0


def explore(run: Callable[[], Leave], most: int = WAYS, gradients: bool = False, carried: Container[int] = ()) -> list[Way]:
    """All ways through `run`, which says how each ends. Raises `Open`. `gradients`: they may flow through its operations. `carried`:
    storages from before that it may write to."""
    trace = vm.trace
    begin = highest = (trace.next_vid, trace.next_unbacked)
    inputs = len(trace.inputs)
    script: list[bool] = []
    ways: list[Way] = []
    while True:
        trace.next_vid, trace.next_unbacked = begin
        try:
            ways.append(one_way(run, script, most, gradients, carried, FRAMES - sum([w.frames for w in ways])))
        except Open as e:
            if e.written is not None:
                for watch in vm.unchanged:
                    watch.check()
            raise
        for watch in vm.unchanged if len(ways) == 1 else vm.unchanged[-1:]:  # each: what two of them change may be as before again
            watch.check()
        if sum([len(w.ops) for w in ways]) > LENGTH:
            raise Open("all ways through it together are too long")
        highest = (max(highest[0], trace.next_vid), max(highest[1], trace.next_unbacked))
        if len(trace.inputs) > inputs:  # they stay, and keep their numbers; all ways are run again
            begin, inputs = (highest[0], begin[1]), len(trace.inputs)
        answers = [d[1] for d in ways[-1].decisions]
        while answers and not answers[-1]:
            answers.pop()
        if not answers:
            break
        script = [*answers[:-1], False]
        if len(ways) >= most:
            raise TooMany(f"there are more than {most} ways through it")
    trace.next_vid, trace.next_unbacked = highest
    return ways


def nothing_done(capture: Any, last: Any) -> None:
    """What is noted on a way before something that may raise too late. Raises Break where the way has done anything by then."""
    if vm.journal or len(vm.world.calls) > vm.told:
        raise Break("PL0041", "an operation that may raise, behind a write and what a side of a branch has done")


def remembered(trace: Any) -> tuple[dict, dict, dict, set, dict, set]:
    """Copies of what the trace knows of memory: `known`, `masks`, `items`, `stale`, `frozen`, `flow_results`. What a way makes is gone
    behind it, and the next one has its names; what it read from before is an operand of the flow that it becomes a part of."""
    masks, items = ({m: dict(of) for m, of in memory.items()} for memory in (trace.masks, trace.items))
    frozen = {storage: set(of) for storage, of in trace.frozen.items()}
    return dict(trace.known), masks, items, set(trace.stale), frozen, set(trace.flow_results)


def keep_guards_alone(scope: Any, token: tuple, names: set[str]) -> None:
    """Forget what was learnt since the snapshot, but for guards and what was read outside. `names`: of the symbols there were by then."""
    relied = scope.guards_since(token)
    read = {name: s for name, s in scope.symbols.items() if name not in names and s.info.backed}
    scope.rollback(token)
    scope.symbols.update(read)
    for g in relied:
        scope.keep(g)


def one_way(
    run: Callable[[], Leave], script: list[bool], most: int, gradients: bool, carried: Container[int], frames: int = FRAMES
) -> Way:
    """One run, its decisions those of the script, then True. The trace and the scope are as before, but for what is from outside."""
    trace, scope, world = vm.trace, vm.scope, vm.world
    if vm.joining:
        vm.ways_run += 1
        if vm.ways_run > RUNS:
            raise TooNested(f"the branches in it take more than {RUNS} runs")
    way = Way([], [])
    n, calls, changes, asserts = len(trace.ops), len(trace.torch_ops), len(trace.journal), len(scope._asserts)
    names, memory, computes = set(scope.symbols), remembered(trace), world.computes
    token, oracle, made, depth, exc = scope.snapshot(), scope.oracle, vm.frames_made, vm.depth, vm.exc
    asking, hashing = vm.asking, vm.hashing
    settings = globalstate.save()
    first = trace.next_vid
    vm.frames_made = ELSEWHERE
    frames_most, vm.frames_most = vm.frames_most, ELSEWHERE + frames
    make_exit, vm.make_exit = vm.make_exit, None  # a way begins at each branch, and none leaves the graph
    make_behind, vm.make_behind = vm.make_behind, vm.make_behind and nothing_done  # what may raise in it is looked at as an operation
    undoes, vm.undoes = vm.undoes, False

    def answer(c: Expr, site: Any) -> bool:
        i = len(way.decisions)
        if i >= most:  # each has another side, so there are more ways than that; or a loop goes round here without end
            raise TooMany(f"there are more than {most} ways through it")
        said = script[i] if i < len(script) else True
        way.decisions.append((c, said, len(trace.ops) - n, len(plain(scope._asserts[asserts:]))))
        return said

    scope.oracle = answer
    try:
        way.end = run()
        if globalstate.save() != settings or vm.exc is not exc:
            raise Open("it changes a setting of torch, or handles an exception")
    except Break as e:
        raise Open(f"the graph would break in it: {e.code}: {e.reason}") from None
    except Restart as e:
        if e.serial < 0:
            raise
        raise Open(f"the graph would break in it: {e.code}: {e.reason}") from None
    except LoopBackSignal:
        raise Open("it goes on to a loop further out") from None
    except Exception as e:
        if isinstance(e, Open) or vm.internal_error(e):
            raise
        raise Open(f"it raises {type(e).__name__}: {e}") from None
    finally:
        scope.oracle = oracle
        vm.make_exit, vm.make_behind, vm.undoes = make_exit, make_behind, undoes
        vm.pending = None
        way.frames = vm.frames_made - ELSEWHERE
        vm.frames_made, vm.frames_most, vm.depth, vm.exc, vm.asking, vm.hashing = made, frames_most, depth, exc, asking, hashing
        way.ops, way.asserts = trace.ops[n:], plain(scope.asserts[asserts:])
        for x, sizes, strides, offset in reversed(trace.journal[changes:]):
            if x.vid < first:
                apply_metadata(trace, x, sizes, strides, offset)
        del trace.ops[n:], trace.torch_ops[calls:], trace.journal[changes:]
        world.computes = computes
        casts.forget()
        trace.known, trace.masks, trace.items, trace.stale, trace.frozen, trace.flow_results = memory
        keep_guards_alone(scope, token, names)
        globalstate.restore(settings)
    check_memory(way, first, gradients, carried)
    world.keep.append(way)
    return way


def plain(asserts: list[Any]) -> list[Any]:
    """The assertions that are no branches."""
    return [a for a in asserts if (a[2] if type(a) is tuple else a.message) != BRANCH]


def check_memory(way: Way, first: int, gradients: bool, carried: Container[int]) -> None:
    """What is written was made in the same block, or is carried by the loop, and no gradients flow. New tensors count from `first`."""
    made: set[int] = set()
    begins = {n for _, _, n, _ in way.decisions}
    for i, op in enumerate(way.ops):
        if i in begins:
            made = set()
        info = op_info(op.target)
        for t in written(op):
            if t.storage_id not in made and t.storage_id not in vm.written and t.storage_id not in carried:
                refusal = Open(f"{op.target} writes to memory from before")
                refusal.written, refusal.known_as = t.storage_id, name_before(way, t.storage_id, first)
                try:
                    raise refusal
                finally:
                    del refusal  # it holds this frame
        old = {t.storage_id for t in tensors_of([op.args, op.kwargs])}
        made.update(t.storage_id for t in tensors_of(op.outs) if t.storage_id not in old)
        if not gradients and op.grad and any([t.requires_grad for t in tensors_of(op.outs)]):  # with gradients off: views of parameters
            raise Open("gradients flow through it")
        if info.custom and op.target not in FLOWS and op.target not in READERS:
            raise Open(f"{op.target} may do anything")


def name_before(way: Way, storage: int, first: int) -> TracedTensor | None:
    """The tensor from before the way by which it knows this memory, if there is only one."""
    found = {t.vid: t for op in way.ops for t in tensors_of([op.args, op.kwargs]) if t.storage_id == storage and t.vid < first}
    return next(iter(found.values())) if len(found) == 1 else None


def tree(ways: list[Way], depth: int = 0, ops: int = 0, asserts: int = 0) -> Block:
    """The blocks of ways that agree up to decision number `depth`."""
    first = ways[0]
    for w in ways[1:]:
        if [called(op) for op in w.ops[:ops]] != [called(op) for op in first.ops[:ops]]:
            raise Unsteady("it does not run the same way twice")
    if len(first.decisions) == depth:
        if len(ways) > 1 or first.end is None:
            raise Unsteady("it does not run the same way twice")
        return Block(first.ops[ops:], first.asserts[asserts:], first.end)
    if any([len(w.decisions) <= depth for w in ways]):  # a guard of one way decides what another one was asked
        raise Unsteady("it does not run the same way twice")
    test, _, until, checked = first.decisions[depth]
    sides = []
    for answer in (True, False):
        same_side = [w for w in ways if w.decisions[depth][1] is answer]
        if not same_side:
            raise Open("a side of a branch was not seen")
        sides.append(tree(same_side, depth + 1, until, checked))
    return Block(first.ops[ops:until], first.asserts[asserts:checked], Branch(test, *sides))


def called(op: Any) -> tuple:
    """An operation, and what its results are called."""
    return (str(op.target), *map(name, op.outs))


def name(value: Any) -> Any:
    return value.vid if type(value) is TracedTensor else str(value.node.expr) if isinstance(value, SYMS) else None


# -- what the program has read and changed ------------------------------------------------------------------------------------------
def read_so_far() -> tuple:
    """How much of the outside the capture has read, and relied on."""
    world, scope, trace = vm.world, vm.scope, vm.trace
    backed = sum(s.info.backed for s in scope.symbols.values())
    return len(trace.inputs), len(scope._guards), backed, len(world.shadows), len(world.reads), len(world.cells), len(world.relations)


PASSES = 5


def settled(explored: Callable[[], Any]) -> Any:
    """What `explored` gives once it reads nothing new, so that all ways began alike. Raises `Open` if it changes anything."""
    unchanged = Unchanged()
    vm.unchanged.append(unchanged)
    try:
        for _ in range(PASSES):
            before = read_so_far()
            try:
                found = explored()
            except Unsteady:
                if read_so_far() == before:
                    raise
                continue
            unchanged.check()
            if read_so_far() == before:
                return found
        raise Open("it reads something new each time")
    finally:
        vm.unchanged.remove(unchanged)


class Unchanged:
    """What the program could change: effects on the outside, and the content of the objects that it made."""

    def __init__(self) -> None:
        self.effects = told(effects_of(vm.world))
        self.of_tensors = held_by_tensors()
        self.held = [(v, inside) for v, inside in reachable() if id(v) not in vm.world.by_copy]

    def check(self) -> None:
        if told(effects_of(vm.world)) != self.effects:
            raise Open("it has an effect on the outside")
        if held_by_tensors() != self.of_tensors:
            raise Open("it gives a tensor attributes")
        # of what was found outside meanwhile, what is written is an effect
        held = [(v, before) for v, before in self.held if id(v) not in vm.world.outside]
        moved = [(v, before) for v, before in held if not as_before(v, before) and not kernels_found(v)]
        if not moved:
            return
        other = [v for v, _ in moved if type(v) is not list and type(v) is not Grown]
        if other:
            raise Open(f"it changes a {type(other[0]).__name__}")
        for v, before in moved:
            if type(v) is Grown:
                v.more[:] = before[1:]
            else:
                v[:] = before
        refusal = Open("it changes a list")
        refusal.changed = tuple([v for v, _ in moved])
        try:
            raise refusal
        finally:
            del refusal  # it holds this frame


def rehearsed(
    code: str, what: str, run: Callable[[], Any], held: list[Any] | None = None, node: Any = None, replay: Any = None
) -> Any:
    """Interpret what autograd will call, on made-up tensors, for the sake of its guards; what it recorded is forgotten.

    CPython runs it when the gradients are worked out. Proxies that it holds (`held`: the function, its context, what it is about) mean
    the same then; what else it reads outside is what it really is. So such a number is pinned, and such a tensor is refused. (Without
    `held` the caller sees to that.) What it reads from before is noted (`trace.behind`), under its
    `node` if it has one. `replay` (`replayed.py`) learns its operations, which are done in its place.
    Raises Break with this code if it changes anything: it would have happened now, and not when the gradients are worked out.
    """
    trace, scope = vm.trace, vm.scope
    n, n_torch, unchanged = len(trace.ops), len(trace.torch_ops), Unchanged()
    names, vids, copies = proxies(held or [])
    heard = late_reads.Heard(code, what, copies) if held is not None else None
    first = trace.next_vid
    token, before, asserts = scope.snapshot(), set(scope.symbols), len(scope.asserts)
    memory = remembered(trace)
    vm.rehearsing += 1
    try:
        with gradients(False), heard or contextlib.nullcontext():
            out = run()
    except (Break, Restart, LoopBackSignal):
        raise
    except Exception as e:
        if vm.internal_error(e):
            raise
        raise Break(code, f"{what} raises {type(e).__name__}") from None  # or would, if it came to gradients
    finally:
        vm.rehearsing -= 1
    ops = trace.ops[n:]
    if heard is not None:
        heard.settle(replay is not None)
    if replay is not None:
        replay.learn(ops, out, len(scope.asserts) - asserts)
    del trace.ops[n:], trace.torch_ops[n_torch:]
    casts.forget()
    trace.known, trace.masks, trace.items, trace.stale, trace.frozen, trace.flow_results = memory
    keep_guards_alone(scope, token, before)  # what is assumed of numbers that are found there goes: whoever runs it checks that
    try:
        unchanged.check()
    except Open as e:
        raise Break(code, f"{what} changes what is outside of it: {e}") from None
    reads = [t for t in tensors_of([out, *[(op.args, op.kwargs) for op in ops]]) if t.vid < first]
    if reads or node is not None:
        trace.behind[len(trace.behind) if node is None else node] = reads
    if held is None:
        return out
    bound = {b.symbol.name for op in ops for b in op.binds}
    for v in leaves([[op.args, op.kwargs] for op in ops]):
        if type(v) is TracedTensor and id(v) in vm.world.real and v.vid not in vids:
            raise Break(code, f"{what} reads a tensor from outside")
        number = number_of(v)
        for s in () if number is None else vm.scope.simplify(number).symbols():
            if s.name not in names and s.name not in bound and s.backed:
                vm.scope.specialize(s, current_site())
    return out


def proxies(values: list[Any]) -> tuple[set[str], set[int], set[int]]:
    """The symbols, the tensors by vid, and the copies of outside containers by id, that objects made in this capture hold; objects from
    outside are not entered."""
    names: set[str] = set()
    vids: set[int] = set()
    copies: set[int] = set()
    seen: set[int] = set()
    stack = list(values)
    while stack:
        v = stack.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        if id(v) in vm.world.by_copy:
            copies.add(id(v))
        if type(v) is TracedTensor:
            vids.add(v.vid)
            stack += [*v.sizes, *v.strides, v.offset]
        elif (e := number_of(v)) is not None:
            names |= {s.name for s in e.symbols()}
        elif isinstance(v, (tuple, list, set, frozenset)) and id(v) not in vm.world.by_copy:
            stack += v
        elif isinstance(v, dict) and id(v) not in vm.world.by_copy:
            stack += v.values()
        elif type(v) is types.FunctionType:
            if id(v) in vm.world.own_functions:
                stack += [c.cell_contents for c in v.__closure__ or () if c != types.CellType()]
                stack += [*(v.__defaults__ or ()), *(v.__kwdefaults__ or {}).values()]
        elif type(v) is types.MethodType:
            stack += [v.__func__, v.__self__]
        elif type(v) is functools.partial:
            stack += [v.func, *v.args, *v.keywords.values()]
        elif id(v) not in vm.world.outside and not isinstance(v, (type, types.ModuleType)) and hasattr(type(v), "__dict__"):
            stack += getattr(v, "__dict__", {}).values()
            if isinstance(v, torch.autograd.function.BackwardCFunction):
                stack += v.saved_tensors
    return names, vids, copies


def roots() -> list[Any]:
    """What the program has at hand."""
    return [v for f in frames() for v in (*f.fast, *f.stack)] + [h.copy for h in vm.world.shadows.values()]


def reachable(begin: list[Any] | None = None) -> Iterator[tuple[Any, list]]:
    """The objects that the program has made or looked into, each with what is in it: from what it has at hand, or from these."""
    seen: set[int] = set()
    stack = roots() if begin is None else begin
    while stack:
        v = stack.pop()
        if id(v) in seen:
            continue
        seen.add(id(v))
        inside = content(v)
        if inside is not None:
            yield v, inside
            stack += inside


def alone(t: TracedTensor) -> bool:
    """Whether this tensor is made here, and the program has it in one place, and no other that shares its memory."""
    trace, memory = vm.trace, t.storage_id
    if t.source is not None or t.constant is not None or not t.dense or t.pytype is not torch.Tensor or memory in trace.frozen:
        return False
    if any([i.storage_id == memory for i in trace.inputs]) or vm.trace.lazy_bits:
        return False
    told = [e.args for e in effects_of(vm.world)]
    places = roots() + [x for _, inside in reachable() for x in inside] + list(leaves(told))
    return sum([type(v) is TracedTensor and v.storage_id == memory for v in places]) == 1


def kernels_found(v: Any) -> bool:
    """Whether it is where an operator of PyTorch's notes which kernels it has found, when it is called for the first time."""
    return type(v) is dict and all([type(k) is torch._C.DispatchKey for k in v])


def as_before(v: Any, before: list) -> bool:
    now = content(v)
    return now is not None and len(now) == len(before) and all(map(unmoved, now, before))


def unmoved(now: Any, before: Any) -> bool:
    return now is before or type(now) is type(before) and type(now) in (int, range, str) and now == before


def frames() -> Iterator[Frame]:
    f = vm.frame
    while f is not None:
        yield f
        f = f.parent


def told(effects: list[Any]) -> list[tuple]:
    return [(e.kind, id(e.target), key(keywords_flat(e.args) if e.kind == "call" else e.args)) for e in effects]


def keywords_flat(args: tuple) -> tuple:
    """Those of a call that is to be made, of which each list of effects has a dict of its own."""
    return tuple([tuple(a.items()) if type(a) is dict else a for a in args])


def key(v: Any) -> Any:
    """The same for what is put together from the same objects."""
    if type(v) in (tuple, list):
        return tuple(map(key, v))
    return (type(v), v) if type(v) in (int, str, bool) else id(v)


def held_by_tensors() -> list[tuple]:
    """The attributes of tensors that were made here."""
    return [(i, id(d), key(tuple(d.items()))) for i, (_, d, _) in vm.world.tensor_dicts.items() if d]


BUILT_IN: tuple[Any, ...] = ([], (), {}, set(), "", b"", range(0), {}.values(), {}.items(), collections.deque(), reversed([]))
ITERATORS: tuple[type, ...] = (*(type(iter(x)) for x in BUILT_IN), zip, map, enumerate, filter)


def content(v: Any) -> list | None:
    """What is in an object that may change; None for one that has nothing in it, or is not the program's own."""
    t = type(v)
    if t is TracedTensor or t in PLAIN or issubclass(t, (type, types.ModuleType, torch.Tensor)):  # `isinstance` believes a `__class__`
        return None
    if t is Grown:
        return [v.token, *v.more]
    if t is types.CellType:
        try:
            return [v.cell_contents]
        except ValueError:
            return [types.CellType]
    if t is Generator:
        return [v.frame.pc, *v.frame.fast, *v.frame.stack]
    if t is random.Random and id(v) not in vm.world.outside:
        return [str(v.getstate())]
    if issubclass(t, ITERATORS):
        try:
            return state_of(iterators.state_of(v))
        except RuntimeError:  # what it walks has another size now, and may have its own again: nobody knows how far it is
            return [object()]
    if issubclass(t, dict):
        return [*dict.keys(v), *dict.values(v), *own_fields(v)]
    if issubclass(t, WALKED):
        return [*held_in(v), *own_fields(v)]
    if t is types.FunctionType:
        return list(v.__closure__ or ()) if id(v) in vm.world.own_functions else None
    if t is types.MethodType:
        return [v.__self__]
    fields = own_fields(v)
    return fields if fields and id(v) not in vm.world.outside else None


PLAIN = frozenset((int, float, bool, str, bytes, type(None), complex, range, slice, torch.dtype, torch.device, torch.Size, *SYMS))


def own_fields(v: Any) -> list:
    try:
        fields = object.__getattribute__(v, "__dict__")
    except AttributeError:
        return []
    return [x for pair in fields.items() for x in pair] if type(fields) is dict else []


def state_of(value: Any) -> list:
    """The state of an iterator as its `__reduce__` tells it: what a dict's has yet to give is a new list each time."""
    if type(value) is tuple:
        return [x for v in value for x in (v if type(v) is list else state_of(v))]
    return [value]


__all__ = ["Open", "TooMany", "Unchanged", "Way", "explore", "rehearsed", "settled", "tree"]
