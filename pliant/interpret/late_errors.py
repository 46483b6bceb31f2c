"""Operations that may raise only when the graph runs, behind a write to memory of others.

A graph that raises runs again in CPython if nothing had been written by then (`codegen/failures.py`): handlers, effects and words are
eager's. Behind a write that cannot be done twice the exception leaves the frame. Where a handler of the program waits, the graph ends
before. Else a mark stands there in the graph (`graph/leaving.py: MARK`): what the program has printed and stored by then is printed
as a function, which emitted code calls before it lets the exception go on. There is none where nothing was done since the last one.
Graphs that others run have no marks: what they have written is put back (`codegen/graph_wrapper.py`), and the frame runs again.
"""

from __future__ import annotations

import builtins
import contextlib
import os
import sysconfig
from collections.abc import Iterator
from types import CodeType, MethodType, ModuleType, SimpleNamespace
from typing import Any

import torch
from torch import Tag
from torch.fx.graph_module import _WrappedCall

from pliant import native
from pliant.bytecode import kinds as K
from pliant.bytecode.kinds import Kind
from pliant.graph import implemented
from pliant.graph.control_flow import FLOWS
from pliant.graph.data_errors import cannot_undo, leaves_a_part, may_raise, of_others, sized_by_data
from pliant.graph.handlers import is_written
from pliant.graph.leaving import MARK, exit_of, mark
from pliant.graph.operands import number, op_inputs
from pliant.graph.originals import in_memory
from pliant.graph.schema import op_info, written
from pliant.graph.traced import TracedTensor
from pliant.interpret import globalstate, raised_before
from pliant.interpret.attributes import getattr_
from pliant.interpret.capture import NULL, UNSET, Capture, Effect, Return
from pliant.interpret.decode import decode
from pliant.interpret.effects import written_so_far
from pliant.interpret.state import Break, current_site, vm

LIBRARIES = tuple({sysconfig.get_paths()[p] + os.sep for p in ("stdlib", "purelib", "platlib")})


def check(trace: Any, n: int, f: Any) -> None:
    """What the operations from the `n`-th on may raise when the frame cannot run anew: Raises Break where the program of frame `f` would
    see that; else it is noted what was done before."""
    for i in range(n, len(trace.ops)):
        op = trace.ops[i]
        writes, may = op_info(op.target).writes, raises(op)
        if writes:
            check_apart(trace, op)
        if op.site is not None and (may or op.binds):
            raised_before.check(op.site, op.target._schema.name)
        dirty = is_dirty(trace, i)
        if not dirty and not (may or op.binds or writes):
            continue
        if not (dirty or is_written(trace, op) and leaves_a_part(trace.ops, i)):
            continue
        raising = may or implemented.untold(op)
        if not raising and not op.binds:
            continue
        if raising and (caught_from_others(f) if of_others(op.target) else caught(f)):
            raise Break("PL0041", f"{op.target._schema.name} may raise inside a try block, behind a write")
        if handles(f):
            raise Break("PL0041", f"{op.target._schema.name} may raise while an exception is handled, behind a write")
        try:
            note(trace, n)
        except Break:
            if may:
                raise
            continue  # a number is told, which raises nothing: if something is asserted of it, that breaks (`before_assertion`)
        return


def check_apart(trace: Any, op: Any) -> None:
    """Two inputs may share memory: then PyTorch refuses to write to the one what it reads of the other. Where they do now, the graph
    breaks; where they do not, that is guarded if it would be too late when the graph raises (`keep_apart`). (Not for lists.)"""
    targets = written(op)
    own = {t.storage_id: t for t in trace.inputs} if len(targets) == 1 else {}
    if not own or targets[0].storage_id not in own:
        return
    target = own[targets[0].storage_id]
    for x in op_inputs(op):
        other = own.get(x.storage_id, target)
        real = [vm.world.real.get(id(v)) for v in (target, other)]
        if other is target or None in real or not all(map(in_memory, real)):
            continue
        if native.share_memory(*real):
            raise Break("PL0041", f"{op.target._schema.name} reads what it may write: two inputs share memory")
        vm.world.apart[target.storage_id, other.storage_id] = target, other


MOST_PAIRS = 8
"""So many are guarded; of more (the step of an optimizer) it is not worth the time."""


def keep_apart(world: Any, effects: list[Effect]) -> None:
    """Guard that inputs lie apart of which an operation reads one and writes the other, if what was done before would be lost."""
    if not effects or len(world.apart) > MOST_PAIRS or not is_dirty(world.trace, len(world.trace.ops) - 1):
        return
    for pair in world.apart.values():
        world.guard(pair[0].source, "STORAGE_OVERLAP", (tuple([t.source for t in pair]), (False,)))


def raises(op: Any) -> bool:
    """Whether the operation may raise when it runs."""
    if op.target in FLOWS:
        return any([b.asserts or any(map(raises, b.ops)) for b in op.flow.blocks()])
    return may_raise(op) or sized_by_data(op)


def is_dirty(trace: Any, n: int) -> bool:
    """Whether the frame could not run again from its beginning behind the first `n` operations. Each is looked at once."""
    at, looked, latest = trace.first_write
    ops = trace.ops
    if looked > len(ops) or looked and ops[looked - 1] is not latest:  # some were taken back
        at, looked = None, 0
    while at is None and looked < len(ops):
        at = looked if is_written(trace, ops[looked]) else None
        looked += 1
    trace.first_write = at, looked, ops[looked - 1] if looked else None
    return at is not None and at < n


# -- what was done before -------------------------------------------------------------------------------------------------------------
def note(trace: Any, n: int) -> None:
    """Note, before operation `n`, what the program has done so far, if it has done more than was noted before."""
    if vm.undoes:
        undo(trace)
        return
    at, last = last_mark(trace, n)
    way = so_far(None if last is None else last.way)
    if way is not None and (last is None or way is not last.way or rewritten(trace, at, n, last)):
        mark(trace, n, way.values, way, current_site())


def undo(trace: Any) -> None:
    """See to it that the graph is undone where it raises, if the program has done anything by now. Raises Break where it cannot be."""
    if trace.undone and not anything_lasting(trace) or vm.rehearsing or not done_so_far():
        return
    if anything_lasting(trace):
        if vm.config.fullgraph or vm.world.error_on_break:
            return
        raise Break("PL0041", "an operation that may raise, behind other effects and a write that cannot be undone")
    trace.undone = True


def anything_lasting(trace: Any) -> bool:
    memory = {t.storage_id for t in trace.inputs}
    return any([cannot_undo(op, memory) for op in trace.ops])


def done_so_far() -> list[Effect]:
    """What the program has done so far besides operations."""
    return written_so_far(vm.world, []) + settings_that_stay(vm.frame)


def may_replay(trace: Any, block: list[Any]) -> bool:
    """Whether these operations of an earlier call may be recorded again, as they are: nothing would have to be noted before one of them."""
    if getattr(vm.history, "ended", None):
        return False
    if vm.make_behind is None and not vm.undoes or not any([raises(op) or op.binds for op in block]):
        return True
    if not is_dirty(trace, len(trace.ops)) and not any([is_written(trace, op) for op in block]):
        return True
    if caught(vm.frame):
        return False
    if vm.undoes:
        return not done_so_far()
    _, last = last_mark(trace, len(trace.ops))
    known = None if last is None else last.way
    try:
        return so_far(known) in (None, known)
    except Break:
        return False


def so_far(last: Any) -> Any:
    """What jit makes of the effects so far, `last` if that is the same. None: there are none. Raises Break where they cannot be noted."""
    if vm.make_behind is None or vm.rehearsing:
        return None
    world = vm.world
    effects = done_so_far()
    if not effects and last is None:
        return None
    try:
        with vm.trace.paused():
            return vm.make_behind(Capture(world.code, vm.trace, world, [], effects, Return(None)), last)
    except Break:
        if vm.config.fullgraph or world.error_on_break:  # rather an exception without them than none of the program
            return None
        raise


def last_mark(trace: Any, n: int) -> tuple[int, Any]:
    """(where, the last mark before operation `n`), or (-1, None)."""
    if trace.marks:
        for i in range(n - 1, -1, -1):
            if trace.ops[i].target is MARK:
                return i, exit_of(trace, trace.ops[i])
    return -1, None


def rewritten(trace: Any, at: int, n: int, last: Any) -> bool:
    """Whether something that a mark holds was written to since."""
    memory = {t.storage_id for t in last.values if type(t) is TracedTensor}
    return bool(memory) and any([t.storage_id in memory for op in trace.ops[at:n] for t in written(op)])


def put_back_grad(scope: Any, now: dict[str, Any]) -> dict[str, Any]:
    return {"grad mode": getattr_(scope, "prev")}


def put_back_autocast(scope: Any, now: dict[str, Any]) -> dict[str, Any]:
    device, nesting = getattr_(scope, "device"), now["autocast nesting"] - 1
    own = {"autocast cache": getattr_(scope, "prev_cache_enabled"), "autocast nesting": nesting}
    return own | {f"autocast {device}": getattr_(scope, "prev"), f"autocast dtype {device}": getattr_(scope, "prev_fastdtype")}


SCOPES = {"no_grad": put_back_grad, "enable_grad": put_back_grad, "set_grad_enabled": put_back_grad, "autocast": put_back_autocast}
"""What of the settings each context manager of PyTorch's puts back when it is left; of others, all is as it was for the frame.
(What it has noted when it was entered is read as the program would read it: the capture may have entered it, or a call before this one.)"""


def settings_that_stay(f: Any) -> list[Effect]:
    """Settings of torch as an exception leaves them on its way out of frame `f`: those that are not as they were when it was entered,
    which for a frame that was resumed may be inside of a context manager that has been left since."""
    before, state = vm.world.entry_state, globalstate.save()
    for leave in managers(f):
        put_back = SCOPES.get(type(leave.__self__).__name__)
        if put_back is None:
            return []
        state.update(put_back(leave.__self__, state))
    return [Effect("global_state", put, (state[name],)) for name, (_, put) in globalstate.ROWS.items() if state[name] != before[name]]


def managers(f: Any) -> list[Any]:
    """The `__exit__` of PyTorch's context managers that an exception raised now would pass."""
    return [leave for _, _, _, leave in handlers(f) if leave is not None and of_torch(leave)]


# -- assertions -----------------------------------------------------------------------------------------------------------------------
def before_assertion(error: type[Exception], asked: Any) -> None:
    """Raises Break where an assertion may fail when it is too late: the program would handle that, or has done something since the run
    could check it, which is as soon as its numbers are known."""
    trace = vm.trace
    if vm.frame is None:
        return
    raised_before.check(current_site(), error.__name__)
    if not is_dirty(trace, len(trace.ops)):
        return
    if caught(vm.frame, (error,)):
        raise Break("PL0041", f"{error.__name__} may be raised inside a try block, behind a write")
    if vm.undoes:
        undo(trace)
    if vm.make_behind is None or vm.config.fullgraph or vm.world.error_on_break:
        return
    names = {s.name for s in asked.symbols() if not s.info.backed}
    at = next((i for i in range(len(trace.ops) - 1, -1, -1) if any([number(b.symbol).name in names for b in trace.ops[i].binds])), -1)
    if not is_dirty(trace, at + 1):
        return  # the frame runs anew
    last = last_mark(trace, at + 1)[1]
    if any([is_written(trace, op) or Tag.nondeterministic_seeded in op.target.tags for op in trace.ops[at + 1 :]]):
        raise Break("PL0041", f"{error.__name__} may be raised behind a write that comes after the number")
    known = None if last is None else last.way
    if so_far(known) not in (None, known):
        raise Break("PL0041", f"{error.__name__} may be raised behind what was done after the number was known")


def possible(trace: Any) -> bool:
    """Whether what was captured so far may raise when it runs."""
    return bool(trace.scope.asserts) or any(map(raises, trace.ops))


RAISED = (IndexError, RuntimeError, torch.linalg.LinAlgError)
"""What PyTorch's own operators raise on data."""
ANYTHING = (Exception,)
"""What an operator of others may raise."""
NEVER_RAISED = (ImportError, StopIteration, StopAsyncIteration, GeneratorExit, KeyboardInterrupt, SystemExit)
"""Of these, what none does, as handlers go: libraries try imports."""


# -- handlers -------------------------------------------------------------------------------------------------------------------------
def handlers(f: Any) -> Iterator[tuple[Any, int, bool, Any]]:
    """What an exception raised now would come by: (frame, first instruction, whether it is one, the `__exit__` that it calls or None)."""
    while f is not None:
        d = f.decoded
        for i, depth in landings(d, f.pc - 1):
            is_handler = d.kinds[i] is K.PUSH_EXC_INFO
            yield f, i, is_handler, leaves_by(f, d.kinds[i + 1], depth) if is_handler else None
        f = f.parent


def landings(d: Any, i: int) -> Iterator[tuple[int, int]]:
    """Where an exception raised at instruction `i` comes by in this code: (first instruction, depth of the stack), the innermost first."""
    for _ in range(len(d.table)):
        entry = next(((target, depth) for start, stop, target, depth, _ in d.table if start <= i < stop), None)
        if entry is None:
            return
        yield entry
        i = entry[0]


def leaves_by(f: Any, kind: Kind, depth: int) -> Any:
    """The `__exit__` that a handler calls first, which lies below what raised; None if it does not."""
    if kind is K.EXIT:
        return f.stack[depth - 1]
    if kind is not K.EXIT_METHOD:
        return None
    fn, o = f.stack[depth - 2 : depth]
    return fn if o is NULL else MethodType(fn, o)


ONLY_TELLING = frozenset((_WrappedCall.__call__.__code__,))
"""Functions whose handlers let the same exception go on, and do no more than tell the user something: that of `GraphModule.__call__`
prints the line of the generated code."""


def caught(f: Any, errors: tuple[type[Exception], ...] = RAISED) -> bool:
    """Whether an exception raised now, of one of `errors`, meets an `except` that takes it; in the program's own code also a `finally`, or
    a context manager other than PyTorch's. (Those of libraries put back settings, mostly, and each operation below would end a graph.)"""
    for frame, i, is_handler, leave in handlers(f):
        if not is_handler or leave is not None and of_torch(leave) or frame.code in ONLY_TELLING:
            continue
        taken = takes(frame, i + 1, errors) if leave is None else suppresses(leave, errors)
        if taken or taken is None and not frame.code.co_filename.startswith(LIBRARIES):
            return True
    return False


def may_catch(world: Any, code: CodeType, offset: int) -> bool:
    """As `caught` of one frame, but told behind the capture, by its code and the managers it has entered: names may stand for anything."""
    d, in_library = decode(code), code.co_filename.startswith(LIBRARIES)
    frame = SimpleNamespace(decoded=d, globals={})
    for i, _ in landings(d, d.index(offset)):
        if d.kinds[i] is not K.PUSH_EXC_INFO or code in ONLY_TELLING:
            continue
        if d.kinds[i + 1] in (K.EXIT, K.EXIT_METHOD):
            entered = min(start for start, _, target, _, _ in d.table if target == i) - 1
            leaves = world.managers.get((id(code), entered), [None])
            taken = False if all([of_torch(leave) or suppresses(leave, RAISED) is False for leave in leaves]) else None
        else:
            taken = takes(frame, i + 1, RAISED)
        if taken or taken is None and not in_library:
            return True
    return False


def handles(f: Any) -> bool:
    """Whether the program handles an exception: it is the context of what is raised now. (Where no breaks are asked for, that has none.)"""
    if vm.exc is None or vm.config.fullgraph or vm.world.error_on_break:
        return False
    while f is not None and not f.handling:
        f = f.parent
    return f is not None and not f.code.co_filename.startswith(LIBRARIES)


def caught_from_others(f: Any) -> bool:
    """The same of whatever an operator of others may raise. Where the program asks for no breaks, only of an `except`."""
    no_breaks = vm.config.fullgraph or vm.world.error_on_break
    if not no_breaks:
        return caught(f, ANYTHING)
    found = [(frame, i, leave) for frame, i, is_handler, leave in handlers(f) if is_handler and frame.code not in ONLY_TELLING]
    return any([takes(frame, i + 1, ANYTHING) if leave is None else suppresses(leave, ANYTHING) for frame, i, leave in found])


def takes(f: Any, i: int, errors: tuple[type[Exception], ...]) -> bool | None:
    """Whether the clauses of the handler whose first instruction is `i` take one of these; None for what has no clauses."""
    d = f.decoded
    if d.kinds[i] is K.POP:  # `except:`
        return True
    while d.kinds[i] is not K.RERAISE:
        found = clause(f, i)
        if found is None:
            return None
        classes, i = found
        if any([takes_one(cls, errors) for cls in classes]):
            return True
        i = d.ins[i][1]
    return False


def clause(f: Any, i: int) -> tuple[list[Any], int] | None:
    """(what the clause that begins at instruction `i` names, UNSET for what is not known; the jump to what is behind it)."""
    d, stack = f.decoded, []
    while True:
        kind, operand = d.kinds[i], d.ins[i][1]
        if kind is K.LOAD_GLOBAL:
            stack.append(f.globals.get(operand[0], vars(builtins).get(operand[0], UNSET)))
        elif kind is K.LOAD_ATTR and stack:
            base = stack.pop()
            stack.append(vars(base).get(operand, UNSET) if type(base) is ModuleType else UNSET)
        elif kind in (K.LOAD_LOCAL, K.LOAD_DEREF):
            stack.append(UNSET)
        elif kind is K.BUILD_TUPLE and 0 < operand <= len(stack):
            stack[-operand:] = [tuple(stack[-operand:])]
        else:
            break
        i += 1
    if len(stack) != 1 or kind is not K.CHECK_EXC_MATCH or d.kinds[i + 1] is not K.JUMP_IF_FALSE:
        return None
    return list(stack[0]) if type(stack[0]) is tuple else stack, i + 1


def takes_one(cls: Any, errors: tuple[type[Exception], ...]) -> bool:
    """Whether a clause that names `cls` takes one of these."""
    if not isinstance(cls, type) or any([issubclass(e, cls) for e in errors]):
        return True
    return errors is ANYTHING and not issubclass(cls, NEVER_RAISED)


def suppresses(leave: Any, errors: tuple[type[Exception], ...]) -> bool | None:
    """Whether the manager with this `__exit__` keeps one of these from going on; None for one that may do anything else."""
    manager = leave.__self__ if type(leave) is MethodType else None
    if type(manager) is contextlib.nullcontext:
        return False
    if type(manager) is contextlib.suppress and vm.world.source_of(manager) is None:  # of another, what it suppresses is not guarded
        named = manager._exceptions  # type: ignore[attr-defined]
        return any([takes_one(cls, errors) for cls in (named if type(named) is tuple else (UNSET,))])
    return None


def of_torch(leave: Any) -> bool:
    """Whether this `__exit__` only puts back a setting of PyTorch, as that of `torch.no_grad()` does."""
    return type(leave) is MethodType and type(leave.__self__).__module__.partition(".")[0] == "torch"
