"""Capturing one frame: set the scene, interpret, and hand over what was learned. The world is left as it was."""

from __future__ import annotations

import contextlib
import enum
import functools
import importlib
from collections.abc import Iterator
from dataclasses import replace
from types import FunctionType
from typing import Any

from torch.utils import _pytree as pytree

from pliant import native as engine
from pliant.errors import ConstraintViolation, PliantError
from pliant.graph import casts, changing_numbers, decompositions, derivatives, emptiness, implemented, layout, recurrent, resizing, symnode
from pliant.graph.light_shapes import shape_functions
from pliant.graph.operands import op_inputs
from pliant.graph.originals import ORIGINAL, SPELLED, gc, torch
from pliant.graph.record import FAILED, PENDING, TorchOp
from pliant.graph.rules import outs
from pliant.graph.schema import as_schema, written
from pliant.graph.symnode import SYMS
from pliant.graph.trace import Trace
from pliant.graph.traced import (
    CALLS_REFUSED,
    KEYS,
    LAYOUTS,
    LEAF_VIEWS,
    NO_DERIVATIVE,
    NOT_TAKEN,
    READ_BEFORE,
    READS,
    REBASED,
    SYMBOLIC_REFUSED,
    UNBACKED,
    UNCUT,
    Reconsider,
    TracedTensor,
    Untraceable,
    is_limit,
    limit_of,
    tensors_of,
    unless_relaid,
)
from pliant.guards import source as S
from pliant.guards.guard import Guard
from pliant.interpret import (  # noqa: F401  (they register themselves)
    callbacks,
    callers_variables,
    checkpoints,
    checks,
    classes,
    comparisons,
    compiler_settings,
    contextvars_,
    copies,
    data_lists,
    data_loops,
    datafield,
    decomposed,
    defaults,
    execute,
    exits,
    globalstate,
    gradients,
    graph_ends,
    hashes,
    heard_warnings,
    higher_order,
    hooks,
    imports,
    instances,
    interrupts,
    jagged,
    late_errors,
    library,
    lifetimes,
    lookasides,
    math_functions,
    meshes,
    modules,
    needed,
    nested_lists,
    opcodes,
    opcodes_build,
    opcodes_newer,
    output,
    overridable,
    pickles,
    policy,
    quantized,
    random_state,
    scans,
    sequential_scans,
    set_versions,
    shadows,
    strided_views,
    subclass_making,
    sums,
    templates,
    tensor_inputs,
    tensor_subclasses,
    told_by_c,
    tracebacks,
    transforms,
    waiting,
    wrapper_gradients,
)
from pliant.interpret import capture as C
from pliant.interpret.attributes import lookup
from pliant.interpret.binding import make_frame, with_defaults
from pliant.interpret.calls import BY_CODE, guard_function, inline, new_frame
from pliant.interpret.capture import CaptureFailed, FirstCall, LeftToPython, UserError
from pliant.interpret.decode import decode
from pliant.interpret.effects import effects_of
from pliant.interpret.gate import answered, captured_call, readable, through_c
from pliant.interpret.late_lists import check_late_lists
from pliant.interpret.late_text import LateText, TextNeeded, check_forgotten
from pliant.interpret.opaque import Opaque
from pliant.interpret.opcodes import Lazy
from pliant.interpret.state import UNSET, Break, Frame, LoopBackSignal, ReplayFailed, Restart, current_site, site_of, tries_loop, vm
from pliant.interpret.subprograms import Open, reachable
from pliant.interpret.types import (  # noqa: F401  (they fill the table of types)
    arrays,
    constants,
    containers,
    count_iterators,
    decimals,
    dict_views,
    functions,
    global_names,
    numbers,
    proxies,
    random_generators,
    subclasses,
    tensors,
    thread_locals,
    traceback_frames,
)
from pliant.interpret.world import SOURCED, World
from pliant.interpret.wrappers import on_wrappers, unwind, wrapper_of
from pliant.symbolic import DataDependent, Scope

MAX_RESTARTS = 64


SOURCED.add(Lazy)
decompositions.DECOMPOSITIONS.update(recurrent.DECOMPOSITIONS | derivatives.DECOMPOSITIONS)
opcodes.OPAQUE_TYPES.add(Opaque)
vm.late_types = {TracedTensor, LateText, Opaque, torch.SymInt, torch.SymFloat, torch.SymBool}
vm.capture_failed = CaptureFailed
vm.first_call = FirstCall
vm.left_to_python = LeftToPython
needed.known()  # imported with pliant, not in the first capture


def internal_error(e: BaseException) -> bool:
    """Errors of pliant itself never reach the user's `except` clauses."""
    return isinstance(e, (CaptureFailed, UserError, ConstraintViolation, Open))


def record_torch(fn: Any, args: tuple, kwargs: dict, method: str | None) -> Any:
    """Run a torch function on proxies under recording; note it in the Torch-level record."""
    modes = torch._C._len_torch_function_stack() and globalstate.user_modes()
    if vm.world.has_subclasses:
        tensors = tensor_subclasses.among([args, kwargs], [])
        if tensors:
            return tensor_subclasses.call_torch(tensors, record_plain, fn, args, kwargs, bool(modes))
    if modes:
        return through_modes(fn, args, kwargs)
    return record_plain(fn, args, kwargs)


def record_plain(fn: Any, args: tuple, kwargs: dict) -> Any:
    """`record_torch` of traced tensors alone."""
    trace = vm.trace
    if vm.world.in_transform:
        return on_wrappers(lambda a, k: unnamed(trace, fn, a, k), args, kwargs)
    rec = trace.torch_call(fn, args, kwargs)
    try:
        return run_recorded(trace, rec, fn, args, kwargs)
    except BaseException as e:
        vm.world.torch_error = id(e)
        if rec.out is PENDING:
            rec.out = FAILED
        raise


def unnamed(trace: Trace, fn: Any, args: tuple, kwargs: dict) -> Any:
    """A torch call inside a transform, which the Torch-level record does not tell."""
    fn = transforms.decomposed(fn, args, kwargs)
    try:
        return run_recorded(trace, TorchOp(fn, args, kwargs, site=current_site(), begin=len(trace.ops)), fn, args, kwargs)
    except BaseException as e:
        vm.world.torch_error = id(e)
        raise


def run_recorded(trace: Trace, rec: TorchOp, fn: Any, args: tuple, kwargs: dict) -> Any:
    """Run `fn` on proxies; what it returns goes into its record."""
    n, first_vid = len(trace.ops), trace.next_vid
    args, kwargs = as_schema(fn, args, kwargs)
    guesses = layout.Framework.guesses
    try:
        way = emptiness.careful(fn, args, kwargs) if fn in emptiness.CAREFUL else None
        with layout.framework(swept=getattr(fn, "__name__", None) in emptiness.GENERAL):
            out = decompositions.decompose(fn, args, kwargs, trace) if way is None else NotImplemented
            if out is NotImplemented:
                out = changing_numbers.decompose(fn, args, kwargs, trace)
            if out is NotImplemented:
                out = fn(*args, **kwargs) if way is None else way(fn, args, kwargs)
            for op in trace.ops[n:]:
                implemented.refuse(op)
            casts.refuse(trace.ops, n)
            rec.out, rec.vids = out, (first_vid, trace.next_vid)
    except Exception as e:
        if interrupts.is_one(e):
            raise
        out = rec.out = run_otherwise(rec, n, guesses, unless_relaid(trace, fn, e))
    if "out" in kwargs:
        outs.check_written(trace.ops[n:], kwargs["out"])
    if vm.refused:
        check_operators(trace.ops[n:])
        if LEAF_VIEWS in vm.refused:
            tensor_inputs.check_views(trace, n)
        if LAYOUTS in vm.refused and any([op.before is not None for op in trace.ops[n:]]):
            raise Break("PL0011", "another layout of a tensor object, in a graph with gradients")
        if REBASED in vm.refused:
            tensor_inputs.check_rebased(trace, n)
        if UNCUT in vm.refused and any([t.requires_grad for op in trace.ops[n:] for t in written(op)]):
            raise Break("PL0011", UNCUT)
        if READ_BEFORE in vm.refused:
            tensor_inputs.check_read(trace, n)
        if not vm.refused.isdisjoint([f"{READS}{t.vid}" for op in trace.ops[n:] for t in op_inputs(op)]):
            raise Break("PL0011", READS + "the graph cannot be cut there")
    late_errors.check(trace, n, vm.frame)
    if vm.world.data_views:
        datafield.follow(trace.ops[n:])
    return out


def run_otherwise(rec: TorchOp, n: int, guesses: int, e: Exception) -> Any:
    """A torch call that raised `e` on proxies, tried in the other ways there are; else what `e` means to the program.

    C++ names no codes: what it refuses is told by its words (`traced.py` has them all).
    """
    try:
        trace = vm.trace
        for applies, way in OTHER_WAYS:
            if not applies(rec, e):
                continue
            casts.take_back(trace, n)  # whatever the first try recorded
            try:
                out = way(rec)
                casts.refuse(trace.ops, n)
                return out
            except Exception as again:
                e = again
        fn = rec.fn
        if is_limit(e) or refuses_symbols(rec, e):
            raise Break("PL0011", f"{getattr(fn, '__name__', fn)}: {limit_of(e)}") from e
        if layout.Framework.guesses != guesses and not isinstance(e, (DataDependent, PliantError)):
            # what was asked of sizes that only the run knows was no short cut but a check
            raise Break("PL0002", f"{getattr(fn, '__name__', fn)}: {str(e).splitlines()[0]}") from e
        if not isinstance(e, (DataDependent, Untraceable, PliantError)) and checks.handled(vm.frame):
            # the program may look at the exception: let the real call raise the real one
            raise Break("PL0041", f"{type(e).__name__} raised by {getattr(fn, '__name__', fn)} inside a try block") from e
        if CALLS_REFUSED in vm.refused and not isinstance(e, (DataDependent, PliantError)):
            raise Break("PL0011", f"PyTorch's own shape function of {getattr(fn, '__name__', fn)}: {str(e).splitlines()[0]}") from e
        raise e
    finally:
        del e  # its traceback holds this frame


def refuses_symbols(rec: TorchOp, e: Exception) -> bool:
    """Whether a C++ decomposition has no symbolic sizes."""
    return any(text in str(e) for text in SYMBOLIC_REFUSED)


def wants_numbers(rec: TorchOp, e: Exception) -> bool:
    """Whether the schema of an operator wants plain numbers."""
    return any(t in str(e) for t in ("SymInt", "SymBool")) and any(type(a) in SYMS for a in pytree.tree_leaves((rec.args, rec.kwargs)))


def decomposed_in_python(rec: TorchOp) -> Any:
    """PyTorch's own decomposition in Python takes symbolic sizes."""
    fn, args, kwargs = rec.fn, rec.args, rec.kwargs
    vm.world.decomposed = True
    if fn in resizing.UPSAMPLING and resizing.unsure(args, kwargs):
        raise Break("PL0011", "the kernels may refuse what PyTorch's code for symbolic sizes takes")
    if fn is torch.nn.functional.interpolate:
        if resizing.stays_whole(args, kwargs):
            with layout.framework():
                return resizing.whole(args, kwargs)
        if resizing.refused(args, kwargs):
            raise Break("PL0011", "the kernels may refuse what PyTorch's code for symbolic sizes takes")
        with layout.framework():
            args, kwargs = (), resizing.settled(args, kwargs)
    with shape_functions(), layout.framework(last_try=True):
        out = fn(*args, **kwargs)
        if fn is not torch.nn.functional.interpolate and fn not in resizing.UPSAMPLING:
            return out
        if any([resizing.to_nothing(out, n) for n in out.shape[2:]]):
            raise Break("PL0011", "the kernels refuse to resize to nothing")
        return resizing.packed(out)


def with_plain_numbers(rec: TorchOp) -> Any:
    rec.args, rec.kwargs = pytree.tree_map_only(SYMS, symnode.concrete, (rec.args, rec.kwargs))
    with layout.framework():
        return rec.fn(*rec.args, **rec.kwargs)


def reads_numbers(rec: TorchOp, e: Exception) -> bool:
    """Whether C++ code wants the number in a tensor, as of sizes: `torch.zeros(t[0], t[1])`."""
    return "Cannot call numel() on tensor" in str(e)


def with_numbers_of_tensors(rec: TorchOp) -> Any:
    """Integers in tensors are read first, as that code would."""
    kept = 1 if rec.args and isinstance(rec.args[0], TracedTensor) and rec.fn not in OF_SIZES else 0
    args, kwargs = pytree.tree_map_only(TracedTensor, number_in, (rec.args[kept:], rec.kwargs))
    read = replace(rec, args=(*rec.args[:kept], *args), kwargs=kwargs)
    try:
        with layout.framework():
            out = decompositions.decompose(read.fn, read.args, kwargs, vm.trace)
            return read.fn(*read.args, **kwargs) if out is NotImplemented else out
    except Exception as e:
        for applies, way in OTHER_WAYS[1:]:
            if applies(read, e):
                return way(read)
        raise


OF_SIZES = frozenset((torch.zeros, torch.ones, torch.empty, torch.rand, torch.randn))
"""What may be given sizes as its first arguments."""


def number_in(t: TracedTensor) -> Any:
    whole = not t.sizes and not t.dtype.is_floating_point and not t.dtype.is_complex and t.dtype is not torch.bool
    return ORIGINAL.item(t) if whole else t


OTHER_WAYS = (
    (reads_numbers, with_numbers_of_tensors), (refuses_symbols, decomposed_in_python), (wants_numbers, with_plain_numbers),
    (refuses_symbols, decomposed_in_python),
)  # fmt: skip


def check_operators(ops: list) -> None:
    """An operator without a derivative, of what has gradients: an earlier capture of this code could not make its backward part. Or one
    that the backend has not taken."""
    for op in ops:
        name = op.target._schema.name.removeprefix("aten::")
        made = [*op.outs, *written(op)]  # those that write to lists give nothing back
        if NO_DERIVATIVE + name in vm.refused and any([isinstance(o, TracedTensor) and o.requires_grad for o in made]):
            raise Break("PL0011", f"the derivative of {name} is not implemented, or cannot be captured")
        if NOT_TAKEN + name in vm.refused:
            raise Break("PL0011", f"the backend does not take {name}")


def through_modes(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A torch call while a torch-function mode is on: C hands it to the mode's own Python code, which is interpreted like any other. Python
    code of PyTorch's asks whether it is to do so: it is interpreted, since CPython would run the mode's with it."""
    if type(fn) is FunctionType:
        return inline(fn, args, kwargs)
    if type(fn) in CALLED_BY_C and not getattr(fn, "_has_torchbind_op_overload", False):
        fn = fn._op  # what their `__call__`, which CPython would run with the mode's code in it, calls
    return captured_call(fn, args, kwargs)


CALLED_BY_C = {torch._ops.OpOverload, torch._ops.OpOverloadPacket}


def globals_source(g: dict) -> S.Source:
    return S.const(g)


def global_source(g: dict, name: str) -> S.Source:
    if g is vm.top_globals:
        return S.global_(name)
    return S.const(g).key(name)


vm.internal_error = internal_error
vm.record_torch = record_torch
vm.globals_source = globals_source
vm.global_source = global_source


@contextlib.contextmanager
def scene(scope: Scope, trace: Trace, world: World) -> Iterator[None]:
    """The interpreter's state for one attempt; everything is put back, torch's global state too."""
    needed.known()
    vm.scope, vm.trace, vm.world = scope, trace, world
    vm.frame = vm.exc = vm.pending = None
    vm.depth = vm.frames_made = vm.asking = vm.hashing = 0
    state = globalstate.save()
    symnode.site_hook, scope.late = current_site, late_errors.before_assertion
    torch.compiler._is_compiling_flag, flag = True, torch.compiler._is_compiling_flag
    vm.active = True
    meshes.known()
    # inference mode, left where the graph breaks in it, puts back the dispatch keys that it was entered with: those of recording, too
    keys = torch._C._ForceDispatchKeyGuard(torch._C._dispatch_tls_local_include_set(), torch._C._dispatch_tls_local_exclude_set())
    try:
        with keys, jagged.answers():
            try:
                yield
            finally:
                defaults.unset(world)
    finally:
        vm.active = False
        torch.compiler._is_compiling_flag = flag
        symnode.site_hook, scope.late = symnode.no_site, None
        globalstate.restore(state)
        unwind(world.levels)
        hooks.unset(world)
        tracebacks.restore(world.raised_outside)
        world.passing.clear()  # their tracebacks hold the interpreter's frames, and these the world
        vm.frame = vm.exc = None


def capture(fn: Any, args: list, *, start: C.Start | None = None, history: Any = None, config: Any = None) -> C.Capture:
    """Interpret one call of `fn` whose flattened frame arguments are `args`.

    Returns what was learned. Raises UserError when the program itself raises, CaptureFailed when pliant cannot go on.
    """
    vm.history, vm.config = history, config
    try:
        with collection_paused():
            seen: set[tuple] = set()
            vm.late_texts = []
            for _ in range(MAX_RESTARTS):
                try:
                    return attempt(fn, args, start, history, config)
                except TextNeeded:
                    vm.late_texts = None
                except ReplayFailed:
                    vm.replays = False
                except Restart as r:
                    vm.late_texts = vm.late_texts and []
                    if (r.serial, r.count, r.place) in seen:
                        raise CaptureFailed(f"cannot break at {r.reason}") from None
                    seen.add((r.serial, r.count, r.place))
                    if r.serial == data_loops.RESTART:
                        continue
                    if r.serial == datafield.RESTART:
                        vm.break_at_data = True
                        continue
                    vm.break_serial, vm.break_count, vm.break_place = r.serial, r.count, r.place
                    vm.break_code, vm.break_reason = r.code, r.reason
            raise CaptureFailed("too many restarts")
    finally:
        vm.break_serial = -1


@contextlib.contextmanager
def collection_paused() -> Iterator[None]:
    """No cyclic garbage collection inside: it would walk the whole process again and again while nearly nothing can be freed yet.

    What was made inside is old afterwards: nearly all of it lives as long as the entry, so the young need not be walked for it.
    """
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            if not user_freezes():  # the user's own frozen objects stay so
                gc.freeze()
                gc.unfreeze()
            gc.enable()


def user_freezes() -> bool:
    """Whether the program has frozen objects. CPython counts them one by one: where there were some, it is asked every hundredth time."""
    if unasked[0]:
        unasked[0] -= 1
        return True
    found = gc.get_freeze_count() > 0
    unasked[0] = 100 if found else 0
    return found


unasked = [0]
"""How often it is still taken as known that objects are frozen."""


def attempt(fn: Any, args: list, start: C.Start | None, history: Any, config: Any) -> C.Capture:
    scope = Scope()
    if history is not None:
        scope.oracle = history.oracle()
    if vm.make_exit is not None:
        scope.exits = exits.of_number
    trace = Trace(scope, allow_unbacked=UNBACKED not in vm.refused)
    trace.by_value, trace.by_autograd = getattr(history, "counts_rounds", False), getattr(history, "joins", False)
    world = World(scope, trace, history, getattr(config, "dynamic", None))
    trace.entry_number = functools.partial(numbers.entry_number, world)
    vm.top_globals = fn.__globals__
    at_entry = engine.global_state()
    with scene(scope, trace, world), released_on_error(world):
        entry_state = world.entry_state = globalstate.save()
        world.code = fn.__code__
        world.error_on_break = compiler_settings.at_begin()
        for mode in globalstate.function_modes():  # GLOBAL_STATE holds their identity; what they hold is guarded as it is read
            world.adopt(mode, S.const(mode))
        try:
            frame = first_frame(fn, args, start)
        except Break as b:  # what a resumed frame was left with cannot be given to it
            raise CaptureFailed(f"{b.code}: {b.reason}") from b
        exit_: Any
        try:
            with trace.recording():
                exit_ = C.Return(vm.run(frame))
            if frame.yielded or frame.decoded.is_generator:
                raise CaptureFailed("a generator is not compiled")
            frame.ends()
        except Break as b:
            forget(b)
            b.frames.reverse()
            callers_variables.handed_on(b.frames, world.shown)
            exit_ = C.BreakExit(b.frames, b.action, b.code, b.reason, b.site, b.pushes)  # type: ignore[arg-type]
        except LoopBackSignal:
            exit_ = C.LoopBack(execute.suspend(frame, 0, frame.decoded.offsets[frame.loop_header]))
        except (Restart, CaptureFailed, ConstraintViolation):
            raise
        except BaseException as e:
            if tracebacks.from_outside(e):
                raise
            raise UserError(e, world.torch_error == id(e)) from e
        callers_variables.begin_again()
        broke = getattr(exit_, "code", None)
        graph_ends.check(world, fn, broke)
        try:
            with trace.recording():
                effects = effects_of(world)
        except Break as b:  # what was written to cannot be told from what it was
            if KEYS not in vm.refused:
                raise Reconsider(fn, "the graph breaks where a dict with such keys is written to", KEYS, broke) from b
            raise CaptureFailed(f"{b.code}: {b.reason}") from b
        late_errors.keep_apart(world, effects)
        if trace.wrapping:
            wrapper_gradients.rehearse(exit_, effects)
        if world.waiting:
            waiting.check()
        check_forgotten()
        if type(exit_) is C.Return:
            check_late_lists(reachable([[exit_.value, *[e.args for e in effects]]]))
        effects += globalstate.differences(entry_state)
        guards = final_guards(world, at_entry)
    return C.Capture(fn.__code__, trace, world, guards, effects, exit_, under_modes=globalstate.user_modes())


def forget(e: BaseException) -> None:
    """Frames of the interpreter hold a signal that they raise, and its traceback them: with them would live the objects of the program."""
    e.__traceback__ = e.__context__ = e.__cause__ = None


@contextlib.contextmanager
def released_on_error(world: World) -> Iterator[None]:
    """An attempt that comes to nothing keeps none of the program's objects."""
    try:
        yield
    except BaseException:
        tracebacks.restore(world.raised_outside)
        world.release()
        raise


def first_frame(fn: Any, args: list, start: C.Start | None) -> Frame:
    """The frame to interpret, its locals not yet looked at."""
    h = vm.history
    vm.world.loops_seen = h is not None and h.watches(fn.__code__ if start is None else start.code)
    vm.world.resumed = start is not None
    vm.world.in_loop = start is not None and bool(start.loops)
    if start is None:
        code = fn.__code__
        names = code.co_varnames
        f = make_frame(fn, [Lazy(v, S.local(i, names[i])) for i, v in enumerate(args)], func_source=S.func())
        for i, v in enumerate(args):  # *args and **kwargs are made by the call: nothing to guard but their content
            f.fast[i] = Lazy(v, S.local(i, names[i]))
    else:
        f = resumed_frame(fn, args, start)
    f.top = True
    f.watched = vm.world.loops_seen or tries_loop(f.code)
    f.serial = 1
    return f


def resumed_frame(fn: Any, args: list, start: C.Start) -> Frame:
    d = decode(start.code)
    state = args[0]
    root = S.local(0, "state")
    fast: list[Any] = [UNSET] * d.nlocalsplus
    cells = vm.world.cells
    held: dict[int, Any] = {}  # item of the state -> a value at whose end code may run
    names = start.code.co_varnames
    n_locals = len(names)
    for slot, item in start.slots:
        v = state[item]
        src = root.index(item)
        is_cell = slot >= n_locals or names[slot] in start.code.co_cellvars
        if is_cell and type(v).__name__ == "cell":
            cells[id(v)] = src.contents()
            vm.world.adopt(v, src)
            fast[slot] = v
        elif item in start.held or lifetimes.may_end(v):
            fast[slot] = held[item] = vm.world.locate(v, src)
        else:
            fast[slot] = Lazy(v, src)
    f = Frame(d, fn, fast, fn.__globals__)
    f.pc = vm.world.resumed_at = d.index(start.offset)
    if start.loops:
        f.loop_header = d.index(start.loops[-1])
    for s in start.stack:
        if s is C.NULL:
            f.stack.append(C.NULL)
        elif isinstance(s, C.LastI):
            f.stack.append(d.index(s.value * 2))
        else:
            f.stack.append(vm.world.locate(state[s], root.index(s)))
            if s in start.held or lifetimes.may_end(state[s]):
                held[s] = f.stack[-1]
    if start.handling is not None:
        vm.exc = vm.world.locate(state[start.handling], root.index(start.handling))
        f.handling.append(vm.exc)
    f.held = [v for item, v in held.items() if lifetimes.may_end(state[item])]
    return f


def final_guards(world: World, at_entry: Any) -> list[Guard]:
    """All guards, class look-ups and torch's global state included."""
    out = list(world.guards.values())
    if world.trace.ops:
        for name in SPELLED:  # generated code calls them
            lookup(torch.Tensor, name)
    for cls, names in world.type_attrs.items():
        found = {k: (None if v is UNSET else v) for k, v in names.items()}
        out.append(Guard(S.const(cls), "TYPE_ATTRS", found))
    for kind, sources in world.keys.items():
        known = [f for i, f in world.known_functions.items() if i not in world.outside] if kind is FunctionType else ()
        first, *others = [*sources, *map(S.const, known)]
        if others:
            out.append(Guard(first, "NOT_ALIAS", tuple(others)))
    out.append(Guard(S.func(), "GLOBAL_STATE", at_entry))
    return out


SYMBOL_HASH = torch.SymInt.__hash__.__code__  # PyTorch's own refuses to hash a symbolic number: `hashes.l_symbol_hash` pins it

REPLACED = (SYMBOL_HASH, *tensor_subclasses.REPLACED)
"""Code of PyTorch and of pliant for which a lookaside stands, whoever calls it."""

FIND_AND_LOAD = importlib._bootstrap._find_and_load  # type: ignore[attr-defined]
MAKE_SYMBOLS = frozenset(t.__init__.__code__ for t in (torch.SymInt, torch.SymFloat, torch.SymBool))
"""PyTorch's C++ code wraps a node of ours again: what it makes is no number yet, and so nothing that anybody may read."""


def classify(code: Any) -> int:
    """Whether a Python frame that C code starts during capture is run by CPython (1), or depends on what it is given (2)."""
    if code in MAKE_SYMBOLS:
        return 1
    if "handle_torch_function" in code.co_names:  # a mode's own code is behind it
        return 2
    return 1 if runs_as_it_is(code) and not policy.may_be_excluded(code) else 2


def runs_as_it_is(code: Any) -> bool:
    """Whether CPython runs it, whatever it is given."""
    return code not in REPLACED and policy.runs_natively(code) and not policy.reads_objects(code)


NUMBERS_FOR_C = frozenset("__index__ __int__ __float__ __bool__ __len__ __length_hint__ __hash__ __complex__".split())


def note_slot(fn: Any, args: list) -> None:
    """C code has found `fn`: on the class of an object, mostly, if it is a special method."""
    if id(fn) in vm.world.own_functions or id(fn) in vm.world.function_sources:
        return
    guard_function(fn)
    first = positional(fn, args)
    for name in roles(fn, type(first[0])) if first else ():
        lookup(type(first[0]), name)


def roles(fn: Any, t: type) -> list[str]:
    """The special methods that `fn` is of class `t`: `__hash__ = key` gives it one more than its own name says."""
    return [name for c in t.__mro__ for name, v in c.__dict__.items() if v is fn and name.startswith("__")]


def positional(fn: Any, args: list) -> list:
    """The positional arguments among those of a frame, which has the rest of them as a tuple."""
    code = fn.__code__
    given = args[: code.co_argcount]
    return [*given, *args[code.co_argcount + code.co_kwonlyargcount]] if code.co_flags & VARARGS else given


VARARGS = 4


def placed(fn: Any, args: list, given: list) -> list:
    """The arguments of the frame with other positional ones (`positional`)."""
    code = fn.__code__
    if not code.co_flags & VARARGS:
        return [*given, *args[code.co_argcount :]]
    rest = code.co_argcount + code.co_kwonlyargcount
    return [*given[: code.co_argcount], *args[code.co_argcount : rest], tuple(given[code.co_argcount :]), *args[rest + 1 :]]


def note_method(fn: Any) -> None:
    """What C code tells a mode, or a class of tensors, that was called: the method that it found on `torch.Tensor`."""
    name = getattr(fn, "__name__", None)
    if type(name) is str:
        lookup(torch.Tensor, name)


def without_proxies(args: list) -> list:
    """The arguments of a `__torch_function__`, which PyTorch has called, where there are no tensors of subclasses: the classes that it is
    told are those of the program. What is written in Python tells of plain tensors too, but not of classes that are never told."""
    if len(args) < 4 or type(args[2]) is not tuple:
        return args
    told = args[2]
    found = list(dict.fromkeys([t.pytype for t in tensors_of(args[3:])]))
    if any([cls is TracedTensor for cls in told]):
        if len(found) != 1:
            raise Break("PL0011", "a mode is told of tensors of several classes")
        told = tuple([*found, *[cls for cls in told if cls is not TracedTensor]])
    elif not told and type(args[1]) is FunctionType and torch.Tensor in found:
        told = (torch.Tensor,)
    return [*args[:2], told, *args[3:]]


def captured_frame(fn: Any, args: list) -> Any:
    """A Python frame that C code started during capture: interpret it."""
    look = lookasides.LOOKASIDES.get(fn)
    told = positional(fn, args)
    hears = told_by_c.stands_as(fn, told, "__torch_function__")
    given = told_by_c.in_frame(fn, told, hears) if vm.world.has_subclasses else None
    try:
        if given is not None:
            args = placed(fn, args, given)
        elif hears:
            args = placed(fn, args, without_proxies(told))
        if look is not None:
            return look(tuple(args), {})
        if vm.frame is not None:
            vm.frame.tail = False
        if policy.may_be_excluded(fn.__code__) and policy.python_kind(fn) == "skip":
            raise Break(*policy.break_of(fn))
        native_code = runs_as_it_is(fn.__code__) or policy.runs_natively(fn.__code__) and all(map(readable, args))
        if native_code and not globalstate.heard_of(fn):
            return engine.call_in_mode(engine.OFF, fn, *engine.spread(fn, tuple(args)))
        if fn is FIND_AND_LOAD and str(args[0]).partition(".")[0] == "torch":  # a part of PyTorch that its C++ code needs
            return engine.call_in_mode(engine.OFF, fn, tuple(args))
        if policy.python_kind(fn) == "skip":
            raise Break(*policy.break_of(fn))
        note_slot(fn, args)
        if hears:
            for called in positional(fn, args)[1:2]:
                note_method(called)
        special = BY_CODE.get(id(fn.__code__))
        if special is not None and len(args) == fn.__code__.co_argcount:
            return special(fn, tuple(args), {})
        f = new_frame(fn, with_defaults(fn, args))
        f.parent = vm.frame
        vm.depth += 1
        names = roles(fn, type(args[0])) if args and not fn.__name__.startswith("__") else (fn.__name__,)
        asks, hashes = not ASKED.isdisjoint(names), "__hash__" in names
        if hashes and not issubclass(type(args[0]), torch.Tensor | enum.Enum):
            shadows.hashed_by(args[0], args[0], "__class__")
        vm.asking += asks
        vm.hashing += hashes
        reader, vm.reader = vm.reader, None
        try:
            with layout.program(), heard_warnings.as_it_was():
                r = vm.run(f)
            if given is not None:
                return wrapper_of(r)
            # C code wants a real number of what it asks for one; from Python, a lookaside may ask and keep the symbol
            if type(r) in SYMS and args and not NUMBERS_FOR_C.isdisjoint((fn.__name__, *roles(fn, type(args[0])))):
                return symnode.concrete(r)
            return answered(reader, names, r)
        finally:
            vm.reader = reader
            vm.depth -= 1
            vm.asking -= asks
            vm.hashing -= hashes
    except (Break, Restart) as e:
        through_c(e)
        raise


ASKED = {"__hash__", "__eq__"}
"""What C code asks of the keys of a container."""

engine.set_capture_callback(captured_frame, classify)
__all__ = ["CaptureFailed", "UserError", "capture", "collection_paused", "opcodes_build", "opcodes_newer", "site_of"]
