"""One program under perturbation: a change, an eager call, a compiled call, the change undone, a compiled call again.

What differs from eager is looked at again before it counts: eager must say the same twice, a difference of floats must be worse than
eager's own against float64, and a compiler that has forgotten everything shows whether a guard was missing (*stale*) or the translation
of this very program is wrong (*translation*).
"""

from __future__ import annotations

import collections
import contextlib
import copy
import ctypes
import dataclasses
import faulthandler
import importlib
import io
import logging
import os
import random
import re
import signal
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch._refs  # some changes lead there, and a first import takes longer than a call may
import torch.utils._sympy.functions
from torch import is_autocast_enabled, is_grad_enabled, set_autocast_enabled  # a change may put another function in its place
from torch._higher_order_ops import utils as hop
from torch.utils._pytree import tree_leaves

import pliant
from benchmarks.perturb import changes, settings
from benchmarks.perturb.changes import Change
from benchmarks.perturb.description import ADDRESS, Description, difference, message
from benchmarks.perturb.places import Place, Walk, is_library
from benchmarks.perturb.state import World, plain
from benchmarks.perturb.subjects import Call, Subject
from benchmarks.perturb.values import SKIP
from pliant.errors import FakeKernelError, PliantError

EAGER_S = 1.0  # a changed program may never end
COMPILED_S = 20.0
HANGS_S = 30.0  # beyond that, by the clock, the process ends: a kernel that is at work hears of no signal
NOWHERE = open(os.devnull, "w")  # noqa: SIM115
M_PERTURB = -6  # of glibc's mallopt
ENTRIES = 12  # after so many entries the compiler forgets, lest the program ends up in eager at its limit


class TimeUp(BaseException):
    """The call took too long."""


class Unsteady(Exception):
    """Eager does not answer the same twice, so nothing can be compared with it."""


@contextlib.contextmanager
def grad_mode(on: bool) -> Iterator[None]:
    """Gradients on or off, and afterwards as they were, whatever the program or a change did to the names of this."""
    before = is_grad_enabled()
    torch._C._set_grad_enabled(on)
    try:
        yield
    finally:
        torch._C._set_grad_enabled(before)


class Rang:
    """Whether the call's time was up: who catches that is not believed."""

    now = False


def alarm(*_: Any) -> None:
    Rang.now = True
    raise TimeUp


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raises TimeUp after so many seconds of processor time, or ten times as many by the clock: other programs may be busy."""
    Rang.now = False
    timers = ((signal.SIGPROF, signal.ITIMER_PROF, seconds), (signal.SIGALRM, signal.ITIMER_REAL, 10 * seconds))
    for number, timer, most in timers:
        signal.signal(number, alarm)
        signal.setitimer(timer, most, 0.5)
    faulthandler.dump_traceback_later(10 * seconds + HANGS_S, exit=True, file=NOWHERE)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        for _, timer, _ in timers:
            signal.setitimer(timer, 0)


@contextlib.contextmanager
def memory_of(byte: int) -> Iterator[None]:
    """What C allocates and frees is full of this byte: eager answers otherwise then where it reads what nobody has written, as some kernels
    do of tensors without elements."""
    mallopt = ctypes.CDLL(None).mallopt
    mallopt(M_PERTURB, byte)
    try:
        yield
    finally:
        mallopt(M_PERTURB, 0)


class Dynamo:
    """How often eager ran TorchDynamo, as `torch.cond`, scans and `map` do: it sees replaced functions and hooks its way, or refuses."""

    runs = 0


def heard(run: Callable[..., Any]) -> Callable[..., Any]:
    def told_of(*args: Any, **kwargs: Any) -> Any:
        Dynamo.runs += 1
        return run(*args, **kwargs)

    return told_of


hop._hop_compile_and_call = heard(hop._hop_compile_and_call)  # what `cond` and others have of it they look up when they run

scans: Any = importlib.import_module("torch._higher_order_ops.associative_scan")  # (its package has a function of that name)


class Scans:
    """Whether an associative scan of eager was given a function that is not associative: nobody promises in which order that is done."""

    strayed = False


def associates(combine: Callable[..., Any], leaves: list[torch.Tensor]) -> bool:
    """Whether it comes to the same for the first three rows, however they are put together."""
    if len(leaves[0]) < 3:
        return True
    a, b, c = ([x[i : i + 1].detach() for x in leaves] for i in range(3))

    def both(x: list, y: list) -> list:
        return tree_leaves(combine(*x, *y))

    with torch.no_grad():
        left, right = both(both(a, b), c), both(a, both(b, c))
    return all(torch.allclose(x, y, 1e-4, 1e-5, equal_nan=True) for x, y in zip(left, right, strict=True))


@contextlib.contextmanager
def scans_watched(on: bool) -> Iterator[None]:
    """Eager's scans are looked at while the program runs."""
    run = scans.generic_associative_scan

    def looked_at(combine: Any, leaves: Any, *more: Any, **kwargs: Any) -> Any:
        with contextlib.suppress(Exception):
            Scans.strayed |= not associates(combine, leaves)
        return run(combine, leaves, *more, **kwargs)

    Scans.strayed = False
    if on:
        scans.generic_associative_scan = looked_at
    try:
        yield
    finally:
        scans.generic_associative_scan = run


AS_DYNAMO_SEES_IT = ("library", "setting", "name", "call")  # kinds of change

HANDLER = logging.StreamHandler()
HANDLER.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
LOGGER = logging.getLogger("program")


@contextlib.contextmanager
def recorded() -> Iterator[io.StringIO]:
    """What is printed and logged."""
    out = io.StringIO()
    if HANDLER not in LOGGER.handlers:  # (once: each change of a logger empties the caches of all)
        LOGGER.addHandler(HANDLER)
        LOGGER.setLevel(logging.DEBUG)
    HANDLER.stream = out
    with contextlib.redirect_stdout(out):
        yield out


def process_state() -> tuple:
    """Settings that a call may have written."""
    return (is_grad_enabled(), torch.is_inference_mode_enabled(), torch.get_default_dtype(), torch.is_autocast_enabled("cpu"),
        torch.are_deterministic_algorithms_enabled(), torch._C._len_torch_function_stack(), torch._C._len_torch_dispatch_stack(),
        bytes(torch.get_rng_state().numpy()), random.getstate(), np.random.get_state()[1].tobytes())


def hooks_on_saved() -> Any:
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


def let_go(hooks: Any) -> None:
    """Take hooks on saved tensors away until these are on top: an error of strict mode in a frame behind a break, within the `with` block
    of another one, leaves them (the default would run the frame), and every program after it would meet them."""
    while (top := hooks_on_saved()) is not None and not (hooks is not None and top[0] is hooks[0] and top[1] is hooks[1]):
        torch._C._autograd._pop_saved_tensors_default_hooks()


def seed() -> None:
    torch.default_generator.manual_seed(11)  # (`torch.manual_seed` goes through much Python)
    random.seed(11)
    np.random.seed(11)


@dataclasses.dataclass
class Outcome:
    """What a call did: a description, and whether it raised."""

    rows: list
    error: BaseException | None
    seconds: float = 0.0
    dynamo: bool = False  # it ran TorchDynamo
    strayed: bool = False  # it scanned with a function that is not associative


@dataclasses.dataclass
class Found:
    """A difference from eager."""

    program: str
    kind: str
    name: str
    path: str
    old: str
    new: str
    what: str
    verdict: str  # stale, translation, error, back, base
    index: int


class Trial:
    """A program, its world, and what eager says of the unchanged one."""

    def __init__(self, subject: Subject, backend: str = "aten", rng: random.Random | None = None,
            kinds: frozenset[str] = frozenset()) -> None:
        self.subject, self.backend, self.kinds = subject, backend, kinds
        self.rng = rng or random.Random(0)
        self.begins: Callable[[str], None] = lambda side: None  # hears which side is about to be called
        self.fn, self.calls = subject.make()
        self.call = self.calls[0]
        self.copied = self.can_copy()
        self.places = Walk().go([*(Place(f"args[{i}]", v, self.put_argument(i)) for i, v in enumerate(self.call.args)),
            *(Place(f"kwargs[{k!r}]", v, self.put_keyword(k)) for k, v in self.call.kwargs.items()), Place("fn", self.fn, None)])
        self.world = World(self.places)
        self.counts: collections.Counter = collections.Counter()
        self.compiled: Callable = self.fn
        self.base = self.eager(self.call)
        again = self.eager(self.call)
        if isinstance(self.base.error, TimeUp) or difference(self.base.rows, again.rows) is not None:
            raise Unsteady(difference(self.base.rows, again.rows) or "slow")

    def can_copy(self) -> bool:
        try:
            for c in self.calls:
                copy.deepcopy((c.args, c.kwargs))
        except Exception:  # generators, tensors with a history: they are used as they are
            return False
        return True

    def put_argument(self, i: int) -> Callable[[Any], Callable[[], None]]:
        def put(new: Any) -> Callable[[], None]:
            old = self.call.args[i]
            self.call.args[i] = new
            return lambda: self.call.args.__setitem__(i, old)

        return put

    def put_keyword(self, k: str) -> Callable[[Any], Callable[[], None]]:
        def put(new: Any) -> Callable[[], None]:
            old = self.call.kwargs[k]
            self.call.kwargs[k] = new
            return lambda: self.call.kwargs.__setitem__(k, old)

        return put

    # ------------------------------------------------------------------------------------------------------------------- calls
    def perform(self, fn: Callable, call: Call, extra: list[World], tight: Change | None, seconds: float, double: bool = False) -> Outcome:
        """One call on fresh copies of the arguments, described; the world is put back."""
        args, kwargs = copy.deepcopy((call.args, call.kwargs)) if self.copied else (list(call.args), dict(call.kwargs))
        own = World(Walk().go([*(Place(f"args[{i}]", v, None) for i, v in enumerate(args)),
            *(Place(f"kwargs[{k!r}]", v, None) for k, v in kwargs.items())])) if self.copied else None
        worlds = [self.world, *extra, *([own] if own else [])]
        undo_double = self.as_double(worlds) if double else None
        value, error, state, backward, hooks, dynamo = None, None, (), None, hooks_on_saved(), Dynamo.runs
        seed()
        undo: Any = None
        around = tight.around if tight is not None else None
        start, autocast = time.perf_counter(), is_autocast_enabled("cpu")
        with recorded() as printed, scans_watched(fn is self.fn):
            try:
                undo = tight.apply() if tight is not None else None
                hooks = hooks_on_saved()
                with limit(seconds), grad_mode(not self.subject.no_grad and is_grad_enabled()) if tight is None \
                        or tight.name != "inference mode" else contextlib.nullcontext():
                    value = (fn if around is None else around(fn))(*args, **kwargs)
            except KeyboardInterrupt:
                raise
            except BaseException as e:  # programs may raise anything
                error = let_go_of_frames(e)
            if Rang.now and not isinstance(error, TimeUp):
                error = TimeUp()
            state = process_state()
            let_go(hooks)
            differentiated = self.subject.grad and error is None and is_grad_enabled()
            if differentiated and tight is not None and tight.kind == "library":  # it stays replaced
                backward = type(self.backward(value)).__name__
            if undo is not None and undo is not SKIP:
                undo()
        took = time.perf_counter() - start
        set_autocast_enabled("cpu", autocast)  # the other side begins with the same
        while torch._C._len_torch_function_stack():
            torch._C._pop_torch_function_stack()
        description = Description(worlds)
        with warnings_ignored():
            if differentiated:
                description.add("backward", said := backward or type(self.backward(value)).__name__)
                description.grads = said == "NoneType"  # where it raised, nobody promises which are there
            if self.copied:
                for i, v in enumerate(args):
                    description.root(f"args[{i}]", v)
                for k, v in kwargs.items():
                    description.root(f"kwargs[{k!r}]", v)
            if error is None:
                description.walk("result", value)
            else:
                description.add("exception", (type(error).__qualname__, told(error)))
            description.add("printed", ADDRESS.sub("0x", printed.getvalue()))
            description.add("process", state)
            changed = [(world, world.changed()) for world in worlds if world is not own]
            for _, things in changed:
                for k in things:
                    if not (k.path.startswith("globals(") and k.path.endswith(")") and is_library(k.path[8:-1])):
                        description.root(k.path, k.contents())
        if undo_double is not None:
            undo_double()
        for world, things in changed:
            world.restore(None if double else things)
        random.seed(11)
        return Outcome(description.rows, error, took, Dynamo.runs > dynamo, Scans.strayed)

    @staticmethod
    def backward(value: Any) -> BaseException | None:
        """A fixed, non-uniform loss of every differentiable output, differentiated once."""
        outs = [t for t in tensors_in(value) if t.requires_grad and t.is_floating_point() and t.grad_fn is not None]
        try:
            if outs:
                sum((t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape)).sum() for t in outs).backward()
        except Exception as e:  # hooks may raise anything
            return e
        return None

    @staticmethod
    def as_double(worlds: list[World]) -> Callable[[], None]:
        """Every float32 tensor of these worlds in float64, for as long as it takes to ask eager what is right."""
        old = []
        for w in worlds:
            for obj in w.alive:
                if isinstance(obj, torch.Tensor) and obj.dtype is torch.float32 and obj.is_leaf and plain(obj):
                    old.append((obj, obj.data))
                    obj.data = obj.data.double()
        dtype = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)

        def undo() -> None:
            torch.set_default_dtype(dtype)
            for t, data in old:
                t.data = data

        return undo

    def eager(self, call: Call, extra: list[World] = [], tight: Change | None = None, double: bool = False) -> Outcome:  # noqa: B006
        return self.perform(self.fn, call, extra, tight, EAGER_S, double)

    def ours(self, call: Call, extra: list[World] = [], tight: Change | None = None) -> Outcome:  # noqa: B006
        return self.perform(self.compiled, call, extra, tight, COMPILED_S)

    # -------------------------------------------------------------------------------------------------------------- forgetting
    def fresh(self) -> None:
        """A compiler that knows nothing of the program."""
        self.account()
        pliant.reset()
        self.compiled = pliant.compile(self.fn, backend=self.backend, strict=True)
        self.seen = dict(pliant.stats())

    def account(self) -> None:
        if hasattr(self, "seen"):
            now = pliant.stats()
            for k in ("captures", "recompiles", "graph_breaks", "fallbacks", "calls"):
                self.counts[k] += now[k] - self.seen[k]
            self.seen = dict(now)

    # -------------------------------------------------------------------------------------------------------------- the trials
    def candidates(self, most: int) -> list[Change]:
        """Changes, an equal share of each kind, in an order that the seed decides."""
        groups: dict[str, list[Change]] = collections.defaultdict(list)
        for change in (*changes.changes(self.places), *settings.of_settings(), *settings.of_code(self.places),
                *settings.of_names(self.places)):
            if not self.kinds or change.kind in self.kinds:
                one = change.kind in ("setting", "call")
                groups[change.kind if one else f"{change.kind}: {change.name.split(' args')[0]}"].append(change)
        for group in groups.values():
            self.rng.shuffle(group)
        kinds = sorted(groups)
        self.rng.shuffle(kinds)
        out: list[Change] = []
        while kinds and len(out) < most:
            kinds = [k for k in kinds if groups[k]]
            out += [groups[k].pop() for k in kinds]
        return out[:most]

    def begin(self) -> Found | None:
        """A new compiler, and whether it is right about the unchanged program (and other calls of it)."""
        self.fresh()
        for call in [self.call, *self.calls[1 : 1 + self.rng.randrange(len(self.calls))], self.call]:
            want = self.base if call is self.call else self.eager(call)
            found = self.judge(Change("base", "nothing changed", "", lambda: None), call, want, self.ours(call), [], "base", -1)
            if found is not None:
                return found
        return None

    def one(self, change: Change, index: int) -> Found | None | str:
        """Try one change: what was found, None if all is well, or why it does not count."""
        undo: Any = None
        if not change.tight:
            try:
                with warnings_ignored():
                    undo = change.apply()
            except Exception:  # what cannot be set (a read-only attribute, a class that refuses)
                return "not possible"
            if undo is SKIP:
                return "nothing to do"
        forget: Any = None
        try:
            forget = self.world.adopt() if undo is not None else None
            extra = [World(Walk().go([Place(f"new {change.path}", change.new, None)]))] if change.new is not None else []
            self.begins("eager")
            want = self.eager(self.call, extra, change if change.tight else None)
            self.begins("compiled")
            if isinstance(want.error, TimeUp | MemoryError):
                return "eager does not end"
            got = self.ours(self.call, extra, change if change.tight else None)
            found = self.judge(change, self.call, want, got, extra, "", index)
        except Exception as e:  # what cannot be copied, described or put back
            self.counts[f"not comparable: {type(e).__name__} {str(e)[:60]}"] += 1
            return "not comparable"
        finally:
            if undo is not None:
                with warnings_ignored():
                    undo()
            if forget is not None:
                forget()
                self.world.restore()
        if found is None:
            found = self.judge(change, self.call, self.base, self.ours(self.call), [], "back", index)
        return found

    def judge(self, change: Change, call: Call, want: Outcome, got: Outcome, extra: list[World], when: str, index: int) -> Found | None:
        """None if both calls did the same; else what was different, after a second look."""
        apart = difference(want.rows, got.rows)
        if apart is None:
            return None
        refused = any(type(o.error).__module__.startswith("torch._dynamo") for o in (want, got))  # what it did before may decide
        if want.dynamo and (refused or change.kind in AS_DYNAMO_SEES_IT):
            self.counts["eager runs TorchDynamo"] += 1
            return None
        if want.strayed:
            self.counts["scans of functions that are not associative"] += 1
            return None
        tight = change if change.tight and when == "" else None
        for byte in (0x41, 0xBE):
            if want.dynamo:  # what it has compiled before may decide what eager answers now
                torch._dynamo.reset()
            with memory_of(byte):
                again = self.eager(call, extra, tight)
            if difference(want.rows, again.rows) is not None:
                self.counts["unsteady"] += 1
                return None
        sentence, far = apart
        if type(want.error).__module__.startswith("torch._dynamo"):  # PyTorch's eager runs TorchDynamo there, which refuses the change
            self.counts["TorchDynamo refuses"] += 1
            return None
        if isinstance(got.error, FakeKernelError):  # a promise that the program made to compilers alone, and that the change breaks
            self.counts["fake kernels that do not fit"] += 1
            return None
        if isinstance(got.error, PliantError) and f"; CPython raised {type(want.error).__name__}" in str(got.error):
            self.counts["both raise"] += 1  # by another type or in other words, which strict mode alone tells
            return None
        if of_the_inner(want.error, got.error):
            self.counts["words of the AttributeError in a property"] += 1
            return None
        if far != float("inf"):
            exact = self.eager(call, extra, tight, double=True)
            if within_rounding(want, got, exact):
                self.counts["rounding"] += 1
                return None
        verdict = when or self.verdict(call, want, extra, tight)
        if isinstance(got.error, PliantError) and not isinstance(want.error, PliantError):
            verdict = "error"
        if isinstance(got.error, TimeUp):
            verdict = "slow"
        held = short(change.old), short(change.new)
        return Found(self.subject.name, change.kind, change.name, change.path, *held, sentence, verdict, index)

    def verdict(self, call: Call, want: Outcome, extra: list[World], tight: Change | None) -> str:
        """Does a compiler that knows nothing yet come to the right answer?"""
        self.fresh()
        return "stale" if difference(want.rows, self.ours(call, extra, tight).rows) is None else "translation"

    def run(self, most: int, seconds: float, skip: int = 0, report: Callable[[int, Change], None] = lambda i, c: None,
            ) -> Iterator[Found]:
        """Try changes until there are `most`, or time is up. Yields what differs from eager."""
        found = self.begin()
        if found is not None:
            yield found
            return
        end = time.monotonic() + seconds
        bad = 0
        for i, change in enumerate(self.candidates(most * 2)):
            if time.monotonic() > end or self.counts["perturbations"] >= most or bad > 25:
                break
            if i < skip:
                continue
            report(i, change)
            result = self.one(change, i)
            if isinstance(result, str):
                self.counts[result] += 1
                continue
            self.counts["perturbations"] += 1
            self.counts[f"kind: {change.kind}"] += 1
            if isinstance(result, Found):
                bad += result.verdict != "error"
                yield result
            if result is not None or pliant.stats()["entries"] > ENTRIES or self.rng.random() < 0.03:
                base = self.eager(self.call)
                leak = difference(self.base.rows, base.rows)
                if leak is not None:
                    self.counts["leaks"] += 1
                    raise Unsteady(f"after {change.kind}, {change.name} at {change.path}: {leak[0]}")
                found = self.begin()
                if found is not None:
                    yield found
                    return
        self.account()
        pliant.reset()


def tensors_of(outcome: Outcome) -> Iterator[tuple[tuple[str, int], torch.Tensor]]:
    """The tensors of a description: their paths, counted, and their values."""
    counts: collections.Counter = collections.Counter()
    for path, _, data in outcome.rows:
        if isinstance(data, torch.Tensor):
            counts[path] += 1
            yield (path, counts[path]), data


def within_rounding(want: Outcome, got: Outcome, exact: Outcome) -> bool:
    """Whether the compiled answer is as near to float64's as eager's is (within four times)."""
    rows = dict(tensors_of(exact))  # (what is float64 already is described in another place there, behind what has become so)
    for (place, a), (_, b) in zip(tensors_of(want), tensors_of(got), strict=False):
        right = rows.get(place)
        if not (a.is_floating_point() or a.is_complex()) or torch.equal(a, b):
            continue
        if right is None or right.shape != a.shape:
            return False
        scale = float(right.abs().nan_to_num(0).max()) * 1e-6 if right.numel() else 0.0
        theirs, mine = (float((x.to(right.dtype) - right).abs().nan_to_num(0).max()) for x in (a, b))
        if mine > 4 * theirs + scale:
            return False
    return True


def let_go_of_frames(error: BaseException) -> BaseException:
    """The exception without its frames: generators half way through that they hold end now, not in the midst of another call."""
    seen, todo = set(), [error]
    while todo:
        e = todo.pop()
        if e is not None and id(e) not in seen:
            seen.add(id(e))
            e.__traceback__ = None
            todo += [e.__context__, e.__cause__]
    return error


def of_the_inner(want: BaseException | None, got: BaseException | None) -> bool:
    """Whether a property raised an AttributeError: eager tells of the property, the compiled call of what it lacked; a known difference."""
    if type(want) is not AttributeError or type(got) is not AttributeError or not isinstance(want.obj, torch.nn.Module):
        return False
    return isinstance(getattr(type(want.obj), want.name or "", None), property) and (got.obj is not want.obj or got.name != want.name)


C_FRAMES = re.compile(r"\nException raised from .*", re.DOTALL)  # the C++ frames that PyTorch puts behind some words


def told(error: BaseException) -> str:
    if isinstance(error, RecursionError):
        return ""
    return ADDRESS.sub("0x", " ".join(C_FRAMES.sub("", message(error)).split()))


def tensors_in(value: Any) -> list[torch.Tensor]:
    return [obj for _, obj in Walk().go([Place("", value, None)]).objects if isinstance(obj, torch.Tensor)]


@contextlib.contextmanager
def warnings_ignored() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def short(value: Any) -> str:
    try:
        text = " ".join(repr(value).split())
    except Exception:
        text = type(value).__name__
    return text if len(text) < 120 else text[:117] + "..."
