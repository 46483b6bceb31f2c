"""`pliant.export`: one call of a function, captured whole, as a `Program`.

The frame that is captured is `call` below, whatever the target is: so every input has a path from `args` or `kwargs`, and all else that
the program reads (parameters, buffers, tensors in closures and globals) is its state. What comes back is told from a dry run of the
function that `jit/emit.py` prints for the capture: its graph gives tokens, and where a token shows up in the result, an output goes.
"""

from __future__ import annotations

import contextlib
import copy
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant import events
from pliant.codegen.aten import Executable
from pliant.config import Config
from pliant.errors import GraphBreakError, PliantError
from pliant.export import effects, flows, forms, naming, signature, variants
from pliant.export.program import CONSTANT, FORMS, USER, Input, Program, Relation, error_name
from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.guards.guard import Site
from pliant.guards.program import compiled
from pliant.guards.source import Source
from pliant.interpret import CaptureFailed, UserError, capture
from pliant.interpret.breaks import format_break
from pliant.interpret.capture import BreakExit, Capture, Return
from pliant.interpret.state import session, vm
from pliant.interpret.types.numbers import through_attribute
from pliant.jit import dims, resume
from pliant.jit.compile import compile
from pliant.jit.emit import Context, emit
from pliant.jit.history import History, Sites
from pliant.jit.reconstruct import CannotReconstruct
from pliant.lower import liveness
from pliant.symbolic.dims import OPEN, check
from pliant.symbolic.expr import Expr
from pliant.symbolic.scope import SymGuard


def call(target: Any, args: tuple, kwargs: dict) -> Any:
    """The frame that is captured."""
    return target(*args, **kwargs)


class Open(History):
    """The policy of an export: every size and number of the arguments is symbolic, 0 and 1 too, until the program itself pins it."""

    open_dim = OPEN
    loops_by_value = True  # see `flows.Canonical`

    def __init__(self, path: variants.Path, keeps_ones: bool = False, whole_loops: bool = True, counts_rounds: bool = True) -> None:
        super().__init__(Sites())
        self.whole_loops = whole_loops
        self.counts_rounds = counts_rounds
        self.counted = False  # whether a loop over a symbolic range has become an operation, or its list has no items yet
        self.path = path
        self.keeps_ones = keeps_ones

    def oracle(self) -> Any:
        return self.path.answers()

    def takes_whole(self, site: Site, likely: bool) -> bool:
        return False  # an argument's items are inputs of the program, each

    def is_static(self, source: Source) -> bool:
        return not naming.of_argument(source)

    def is_dynamic(self, source: Source) -> bool:
        of = source.base if source.op in ("size", "stride", "offset") and source.base is not None else source
        return not self.is_static(of) and (of is not source or not through_attribute(source))


def whole(f: Any, args: tuple, kwargs: dict, dynamic: Any, form: str) -> Program:
    """The program of the call `f(*args, **kwargs)`. See `pliant.export`."""
    if form not in FORMS:
        raise PliantError(f"form={form!r}: a program has one of the forms {', '.join(FORMS)}")
    if not callable(f):
        raise PliantError(f"pliant.export needs a function, a module or a callable object, not {type(f).__name__}")
    f = getattr(f, "_pliant_original", f)
    args, kwargs = told_apart(f, args, kwargs)
    parameters = naming.Parameters(f, args, kwargs)
    config = Config(dynamic=declarations(f, parameters, dynamic), fullgraph=True, strict=True, backend="aten")

    def again(args: tuple, kwargs: dict, path: variants.Path) -> Program:
        return captured(f, parameters, args, kwargs, config, form, path)

    try:
        p = variants.explored(args, kwargs, again, dynamic is not False)
    except Broken as e:
        raise breaks(f, args, kwargs, e.exit) from None
    scope = p.cache.pop("scope", p.scope)
    check(scope, [SymGuard(e, site, "", e) for e, site in variants.needed(p, scope)])
    return p


def told_apart(f: Any, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
    """The example with a tensor of its own for each argument: one that stands in two places says nothing of other calls."""
    state = [*f.parameters(), *f.buffers()] if isinstance(f, torch.nn.Module) else []
    given = [x for x in pytree.tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
    if len({id(x) for x in (*state, *given)}) == len({id(x) for x in state}) + len(given):
        return args, kwargs
    seen = {id(x) for x in state}

    def own(x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return x
        if id(x) not in seen:
            seen.add(id(x))
            return x
        with torch.no_grad():
            return x.detach().clone().requires_grad_(x.requires_grad)

    return pytree.tree_map(own, (args, kwargs))


def captured(f: Any, parameters: naming.Parameters, args: tuple, kwargs: dict, config: Config, form: str, path: variants.Path) -> Program:
    """One capture. Where it fails, others: with gradients on, for what wants them inside; with sizes of 1 as they are, for what PyTorch
    cannot take in general (a product of batches, one of which is stretched); with loops over ranges unrolled, where one was not."""
    trains = form == "training"
    ways = [(trains, False), *([(True, False)] if not trains and torch.is_grad_enabled() else []), (trains, True)]
    first: Exception | None = None
    for counts_rounds in (True, False):
        counted = False
        for gradients, keeps_ones in ways:
            history = Open(path, keeps_ones, form != "torch", counts_rounds and form != "torch")
            try:
                with quiet(gradients):
                    return one(f, parameters, args, kwargs, config, form, history)
            except (RuntimeError, GraphBreakError) as e:
                first = first or e
            counted |= history.counted
        if not counted:
            break
    assert first is not None
    raise first


@contextlib.contextmanager
def quiet(gradients: bool) -> Iterator[None]:
    """The state in which programs are recorded: without gradients, if possible, and without kernels that only eager inference has."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with torch.set_grad_enabled(gradients):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def one(f: Any, parameters: naming.Parameters, args: tuple, kwargs: dict, config: Config, form: str, history: Open) -> Program:
    """One capture."""
    code = types.FunctionType(call.__code__.replace(), call.__globals__, "call")  # entries and events of its own
    frame = [f, args, kwargs]
    with session(history=history, config=config, refused=frozenset()):
        try:
            found = capture(code, frame, history=history, config=config)
            dims.check(found.trace.scope)
            if isinstance(found.exit, BreakExit):
                raise Broken(found.exit)
            return Writer(f, parameters, found, code, frame, form).program()
        except UserError as e:
            raise e.error from None
        except (CaptureFailed, CannotReconstruct, resume.CannotResume) as e:
            raise PliantError(f"{naming.title(f)} cannot be exported: {e}") from e
        finally:
            if vm.world is not None:
                vm.world.release()


def declarations(f: Any, parameters: naming.Parameters, dynamic: Any) -> Any:
    """`dynamic=` as the capture takes it. ValueError for a name that is no parameter."""
    if not isinstance(dynamic, Mapping):
        if dynamic not in (None, True, False):
            raise TypeError("dynamic= is None, True, False, or a dict from parameter names to declared dims")
        return None if dynamic is None else dynamic
    wrong = sorted(set(dynamic) - set(parameters.names))
    if wrong:
        known = ", ".join(parameters.names) or "none"
        raise ValueError(f"dynamic= declares {', '.join(map(repr, wrong))}, but the parameters of {naming.title(f)} are: {known}")
    return dims.spread(dims.table(dynamic), parameters.declared)


class Broken(GraphBreakError):
    """The first graph break of a capture."""

    def __init__(self, exit_: BreakExit) -> None:
        super().__init__(f"{exit_.code}: {exit_.reason}")
        self.exit = exit_


def breaks(f: Any, args: tuple, kwargs: dict, first: BreakExit) -> GraphBreakError:
    """Every reason why the program is not one graph, each with its line and its fix.

    To see those behind the first, the function is run: on a copy, so that nothing of the caller's changes. Without one, the first is told.
    """
    found: dict[tuple[str, str], tuple[str, str, Any]] = {}
    left: set[Any] = set()  # code of the frames that have broken

    def note(event: Any) -> None:
        code, reason, site = (event.fields[k] for k in ("code", "reason", "site"))
        frames = [*codes_of(site)]
        if not (follows(code, reason) and (code == CARRIED or left.intersection(frames[:1]))):
            found[(code, str(site))] = code, reason, site
        left.update(frames)

    try:
        g, given, named = copy.deepcopy((f, args, kwargs))
        if g is not f or not isinstance(f, torch.nn.Module):
            twin = types.FunctionType(call.__code__.replace(), call.__globals__, "call")
            stop = events.subscribe(note, ("graph_break",))
            try:
                compile(twin, backend="aten")(g, given, named)
            finally:
                stop()
    except Exception as e:  # the program raised on the way: what was met before it counts
        events.emit("warning", id="export", text=f"looking for all graph breaks ended with {type(e).__name__}: {e}")
    rows = list(found.values()) or [(first.code, first.reason, first.site)]
    n = len(rows)
    all_ = "; ".join(f"{reason.partition(' (/')[0]} at {line_of(site)}" for _, reason, site in rows)
    head = f"{naming.title(f)} is not one graph: {n} graph break{'s' if n > 1 else ''}, {all_}. A program is exported whole or not at all."
    return GraphBreakError("\n\n".join([head, *[format_break(*row) for row in rows]]))


CARRIED = "PL0035"


def follows(code: str, reason: str) -> bool:
    """Whether a graph breaks so only because it has broken before: what a loop walks, or another value, is not there behind a break."""
    return code == CARRIED or code == "PL0007" and "iterat" in reason


def codes_of(site: Any) -> Iterator[Any]:
    """The code of the frame of a site, and of those that have called it."""
    while site is not None:
        yield site.code
        site = site.outer


def line_of(site: Any) -> str:
    return "" if site is None else f"{site.filename.rpartition('/')[2]}:{site.lineno}"


class Token(int):
    """Stands for a number that the graph gives, in the dry run."""


class FloatToken(float):
    """The same for a float."""


class Writer:
    """Makes the program of one capture."""

    def __init__(self, f: Any, parameters: naming.Parameters, found: Capture, code: Any, frame: list, form: str) -> None:
        self.f = f
        self.parameters = parameters
        self.found = found
        self.code = code
        self.frame = frame
        self.form = form
        self.names = naming.Names(f)
        self.inputs: dict[int, Input] = {}  # by vid
        self.notes: list[str] = []
        self.examples: dict[str, int] = {}
        self.now: Callable[[Any], Any] = lambda v: v  # what a traced value has become
        self.of_blocks: list[TracedTensor] = []  # constants that loops and branches on data read

    def program(self) -> Program:
        found, world = self.found, self.found.world
        assert isinstance(found.exit, Return)
        kept, written = effects.sorted_out(self)
        value, given = self.dry_run((found.exit.value, [w.value for w in written]))
        state: dict[str, torch.Tensor] = {}
        stale, found.trace.stale = found.trace.stale, set()
        found.trace.frozen.clear()  # from here on operations are recorded anew, where each writes to memory of its own
        tensors = [self.tensor_input(t, state) for t in found.trace.inputs]
        ops, stands = self.operations()
        constants = [self.constant(t, state, stands.get(id(t.constant), t)) for t in self.constants()]
        numbers = self.number_inputs()
        outputs, tree = signature.Results(self, given).read(value[0])
        mutations, puts = effects.outputs(self, written, value[1], given)
        outputs += mutations
        for o in outputs:
            if type(o.value) is TracedTensor and o.value.storage_id in stale:
                raise GraphBreakError(f"{naming.title(self.f)} gives back what a loop on data made, which may be what was written to since")
            o.value = self.now(o.value)
        own = self.order([*tensors, *constants, *numbers])
        dims_ = naming.dims(found.trace.scope, own)
        p = Program(
            name=naming.title(self.f), form="aten", trace=found.trace, inputs=own, outputs=outputs, ops=ops,
            relations=[], asserts=[], checks=signature.checks(found.guards, self.path), result=tree,
            state=state, parameters=self.parameters.positional, keywords=self.parameters.keywords, rest=self.parameters.rest,
            defaults=self.parameters.defaults, dims=dims_, examples=self.examples, notes=self.notes, puts=puts,
        )  # fmt: skip
        world.release()
        p = forms.FORMS[self.form](p, self)
        p.relations, p.asserts = self.relations(), self.asserts()  # now: what its form recorded anew may need more of sizes
        return p

    # -- the result -----------------------------------------------------------------------------------------------------
    def dry_run(self, value: Any) -> tuple[Any, dict[int, Any]]:
        """What the printed function returns when its graph gives tokens, and which traced value each token stands for, by id."""
        found = self.found
        tokens: list[Any] = []
        given: dict[int, Any] = {}

        def build(_found: Any, _inputs: list, outputs: list, _name: str) -> Executable:
            for o in liveness.leaves(outputs):
                token = token_of(o)
                tokens.append(token)
                given[id(token)] = o
            return Executable(lambda *slots: tuple(tokens), "", 1)

        before = found.exit, found.effects
        found.exit, found.effects = Return(value), []
        try:
            context = Context(resume.Cache(), None, build, None, numbers_from_graph=True)  # type: ignore[arg-type]
            context.again = Nowhere().leave
            emitted = emit(found, self.code, context)
            relations = [g.expr for g in found.trace.scope.guards] + list(found.world.relations)
            guard, _ = compiled(found.guards, found.world.symbols, relations, emitted.slots)
            slots = guard.check(tuple(self.frame), self.code)
            if slots is None:
                why = guard.explain(tuple(self.frame), self.code)
                raise CaptureFailed(f"the guards do not hold for the example: {why.text if why else 'unknown'}")
            with torch.no_grad():
                made = emitted.fn(*self.frame, *slots)
        finally:
            found.exit, found.effects = before
        for t in found.trace.inputs:
            real = found.world.real.get(id(t))
            if real is not None:
                given.setdefault(id(real), t)
        self.tokens = tokens  # the ids in `given` are theirs
        return made, given

    # -- inputs ---------------------------------------------------------------------------------------------------------
    def order(self, inputs: list[Input]) -> list[Input]:
        """State first, then what the user gives, by parameter."""
        mine = [i for i in inputs if i.kind == USER]
        place = {id(i): self.parameters.place(i.path) for i in mine}
        return [i for i in inputs if i.kind != USER] + sorted(mine, key=lambda i: place[id(i)])

    def tensor_input(self, t: TracedTensor, state: dict[str, torch.Tensor]) -> Input:
        source = t.source
        real = self.found.world.real[id(t)]
        if naming.of_argument(source):
            path = self.path(source)
            made = Input(self.names.unique(naming.path_name(path)), USER, t, path)
            self.examples[made.name] = id(real)
        else:
            kind, name = self.names.of_state(real, source)
            made = Input(name, kind, t)
            state[name] = real
        self.inputs[t.vid] = made
        return made

    def path(self, source: Source) -> tuple:
        """The path of an input from its parameter."""
        steps: list[tuple[str, Any]] = []
        s = source
        while s.base is not None:
            b = s.base
            if s.op == "key" and b.op == "dict":
                steps.append(("attr", s.arg))
                s = b
            elif s.op in ("index", "key", "attr"):
                steps.append((s.op, s.arg))
            elif s.op == "apply" and s.arg == "array_tensor":
                steps.append(("view", s.arg))
            else:
                raise PliantError(
                    f"{naming.title(self.f)} reads {source.name}: a program cannot name such an input. Pass it as an argument."
                )
            s = s.base  # type: ignore[assignment]
        steps.reverse()
        return self.parameters.path(s.arg[1], steps)

    def operations(self) -> tuple[list[Op], dict[int, TracedTensor]]:
        """The operations, and what stands for constants, by the id of their data. Those of loops and branches on data are recorded anew."""
        trace = self.found.trace
        if not flows.has_flows(trace.ops):
            return list(trace.ops), {}
        c = flows.Canonical(trace)
        ops = c.run(trace.ops)
        self.now = c.now
        self.of_blocks = [t for t, _ in c.constants.values()]
        return ops, {key: new for key, (_, new) in c.constants.items()}

    def constants(self) -> list[TracedTensor]:
        seen: dict[int, TracedTensor] = {}
        for t in (*self.of_blocks, *(t for op in self.found.trace.ops for t in liveness.op_inputs(op))):
            if t.constant is not None and t.vid not in self.inputs:
                seen.setdefault(id(t.constant) if self.of_blocks else t.vid, t)
        return list(seen.values())

    def constant(self, t: TracedTensor, state: dict[str, torch.Tensor], stands: TracedTensor) -> Input:
        name = self.names.unique("constant")
        state[name] = t.constant  # type: ignore[assignment]
        made = self.inputs[stands.vid] = Input(name, CONSTANT, stands)
        return made

    def number_inputs(self) -> list[Input]:
        """Ints and floats among the arguments that are symbols."""
        out = []
        for name, source in self.found.world.symbols.items():
            if source.op in ("size", "stride", "offset"):
                continue
            if not naming.of_argument(source):
                raise PliantError(
                    f"{naming.title(self.f)} reads the changing number {source.name}, neither an argument nor a tensor: pass it in."
                )
            path = self.path(source)
            symbol = self.found.trace.scope.symbols[name]
            out.append(Input(self.names.unique(naming.path_name(path)), USER, symbol, path))
        return out

    # -- what must hold -------------------------------------------------------------------------------------------------
    def relations(self) -> list[Relation]:
        """Those about strides alone are not the user's business: inputs are laid out as the operations want them."""
        return [
            Relation(g.user_form, where_text(g.site), variants.why(g))
            for g in self.found.trace.scope.guards
            if not all(map(of_layout, g.expr.symbols()))
        ]

    def asserts(self) -> list[Relation]:
        found = [a for a in self.found.trace.scope.asserts if a.expr.const is not True]
        return [Relation(a.expr, where_text(a.site), a.message, error_name(a.error)) for a in found]


class Nowhere:
    """Owner of the method that the printed function calls where its graph raised: in a dry run none does."""

    def leave(self, error: BaseException, handled: bool, code: Any, calls: tuple) -> None:
        raise error


def of_layout(s: Expr) -> bool:
    return getattr(s.info.source, "op", None) in ("stride", "offset")


def where_text(site: Any) -> str:
    """The user's line."""
    return "" if site is None else str(naming.user_site(site))


def token_of(o: Any) -> Any:
    if type(o) is TracedTensor:
        return torch.empty(0)
    e = liveness.number(o)
    if e is None:
        return o
    hint = e.hint
    return FloatToken(hint if hint is not None else 0.0) if e.kind is float else Token(hint if hint is not None else 0)
