"""Judging the compiler from outside: run a program eagerly and compiled, and compare everything a user could see.

    check(fn, (torch.ones(3),), (torch.ones(5),))           # two calls, shapes change in between
    check_world(factory, ...)                               # `factory()` makes a fresh world: a function, or (function, state)

Each side gets its own deep copy of the arguments (aliasing inside one argument set is kept) or its own world. After every call are
compared:
the value, the state of arguments and world, which objects and storages are the same ones, printed and logged output, exceptions
and the user's line in their traceback, random-number state, torch's global state and, with `grad=True`, gradients.

With PLIANT_TEST_IDENTITY=1 the "compiled" side is eager too: that checks the programs themselves (valid, deterministic).
"""

from __future__ import annotations

import array
import collections
import contextlib
import copy
import dataclasses
import datetime
import decimal
import enum
import fractions
import functools
import gc
import io
import itertools
import logging
import os
import pathlib
import random
import re
import sys
import traceback
import types
import uuid
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
import torch

from pliant.config import DEFAULT_BACKEND
from pliant.symbolic.scope import UNFIT

IDENTITY = os.environ.get("PLIANT_TEST_IDENTITY") == "1"

if IDENTITY:  # a proxy with the same doors: programs can be validated without the compiler

    def _same(fn: Any = None, **_: Any) -> Any:
        return fn if fn is not None else _same

    pliant: Any = types.SimpleNamespace(
        compile=_same,
        disable=_same,
        allow_in_graph=_same,
        skip=_same,
        inline=_same,
        graph_break=lambda *_: None,
        is_compiling=lambda: False,
        reset=lambda: None,
        stats=lambda: dict.fromkeys(("captures", "recompiles", "graph_breaks", "fallbacks", "entries", "calls"), 0),
    )
else:
    import pliant  # type: ignore[no-redef]

def interpreted(module: torch.fx.GraphModule, example_inputs: list) -> Callable:
    """A Dynamo-style backend that runs the graph node by node, as many of the field's own do."""

    def run(*args: Any) -> Any:
        interpreter = torch.fx.Interpreter(module)
        interpreter.extra_traceback = False
        return interpreter.run(*args)

    return run


#: PLIANT_TEST_BACKEND sends every test that uses `compiled` through another backend: "eager", "aot_eager", "checked" (`interpreted`)...
#: Graphs for backends that are not pliant's own are held to `codegen/graph_contract.py`.
NAMED = os.environ.get("PLIANT_TEST_BACKEND", DEFAULT_BACKEND)
BACKEND: Any = interpreted if NAMED == "checked" else NAMED
OWN_BACKEND = NAMED in ("native", "aten")
LINES = OWN_BACKEND or NAMED == "eager"  # what somebody else runs does not tell the user's line, where it cannot run again
own_backend = pytest.mark.skipif(not OWN_BACKEND, reason="it looks at what only pliant's own backends do")


def compiled(fn: Any, **options: Any) -> Any:
    """`pliant.compile` as the tests use it: strict, with the backend that is to be tested."""
    return pliant.compile(fn, **{"backend": BACKEND, "strict": True, **options})


class Mismatch(AssertionError):
    """The compiled program did something that the eager program did not."""


@dataclasses.dataclass(frozen=True)
class Call:
    """One set of arguments, with keywords."""

    args: tuple
    kwargs: dict


def alive(kind: type) -> list:
    """The objects of class `kind` that the collector knows, once it has run: those that other tests left behind too."""
    gc.collect()
    return [o for o in gc.get_objects() if type(o) is kind]


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


# ---------------------------------------------------------------------------------------------------------------- comparing
ATOMS = (type(None), bool, int, str, bytes, type, type(Ellipsis), torch.dtype, torch.device, torch.layout, torch.memory_format, range,
    slice)
BY_IDENTITY = (types.ModuleType, types.BuiltinFunctionType, torch._C._VariableFunctionsClass, staticmethod, classmethod)
BY_VALUE = (fractions.Fraction, decimal.Decimal, array.array, bytearray, memoryview)
EQUAL_IF_SAME = (datetime.date, datetime.time, datetime.timedelta, datetime.tzinfo, pathlib.PurePath, uuid.UUID, re.Pattern)
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))
ITERATORS = tuple({type(iter(o)) for o in ([], (), "", b"", range(0), {}, {}.values(), {}.items(), set(), collections.deque())} | {
    type(reversed([])), type(reversed({})), enumerate, zip, map, filter,
    *[c for c in vars(itertools).values() if isinstance(c, type) and c not in (itertools.count, itertools.cycle, itertools.repeat)]})
UNREADABLE = (types.GeneratorType, types.CoroutineType, types.FrameType, types.TracebackType)


def drained(it: Iterable) -> list:
    """What an iterator has left, an exception that it ends with included."""
    out: list[Any] = []
    try:
        out += itertools.islice(it, 1000)
    except Exception as e:
        out.append((type(e), str(e)))
    return out


def same_array(want: np.ndarray, got: np.ndarray) -> bool:
    if want.dtype.names:
        return all([same_array(want[name], got[name]) for name in want.dtype.names])
    exact = want.dtype.kind not in "fc"
    return bool(np.array_equal(want, got) if exact else np.allclose(want, got, rtol=1e-5, atol=1e-6, equal_nan=True))


class Comparer:
    """Walks two object graphs side by side. Identities (of mutable objects, tensors, storages) map one to one, over a whole check."""

    drains = False  # whether iterators are asked for what is left in them: they are empty from then on

    def __init__(self, exact: bool = False) -> None:
        self.exact = exact
        self.there: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.storages: tuple[dict, dict] = ({}, {})
        self.alive: list[Any] = []  # ids must not be reused while we compare

    def __call__(self, want: Any, got: Any, path: str) -> None:
        self.walk(want, got, path, set())

    def fail(self, path: str, what: str, want: Any, got: Any) -> None:
        raise Mismatch(f"{path}: {what}: eager {want!r}, compiled {got!r}")

    def expect(self, ok: bool, path: str, what: str, want: Any, got: Any) -> None:
        if not ok:
            self.fail(path, what, want, got)

    def same_identity(self, want: Any, got: Any, path: str) -> None:
        a, b = self.there.setdefault(id(want), id(got)), self.back.setdefault(id(got), id(want))
        self.alive += (want, got)
        if a != id(got) or b != id(want):
            raise Mismatch(f"{path}: identity differs: the {type(want).__name__} here is not the object that it is in eager")

    def same_storage(self, want: torch.Tensor, got: torch.Tensor, path: str) -> None:
        held = want.untyped_storage(), got.untyped_storage()
        self.alive += held
        a, b = (s.data_ptr() or s._cdata for s in held)  # a tensor over an array has a storage of its own, over memory that others may have
        if self.storages[0].setdefault(a, b) != b or self.storages[1].setdefault(b, a) != a:
            raise Mismatch(f"{path}: aliasing differs: this tensor does not share memory with the same tensors as in eager")

    def walk(self, want: Any, got: Any, path: str, seen: set) -> None:
        if isinstance(want, type) and isinstance(got, type):
            self.expect(want.__qualname__ == got.__qualname__, path, "class", want, got)
            return
        tw, tg = type(want), type(got)
        self.expect(tw is tg or (tw.__qualname__ == tg.__qualname__ and tw.__module__ == tg.__module__), path, "type", tw, tg)
        if isinstance(want, np.generic):
            same = want.dtype == got.dtype and (want == got or want != want or (want.dtype.kind in "fc" and np.allclose(want, got)))
            self.expect(bool(same), path, "scalar", want, got)
        elif isinstance(want, float):
            self.expect(self.close(want, got), path, "value", want, got)
        elif isinstance(want, BY_VALUE):
            self.expect(want == got, path, "value", want, got)
        elif isinstance(want, complex):
            self.expect(self.close(want.real, got.real) and self.close(want.imag, got.imag), path, "value", want, got)
        elif isinstance(want, ATOMS) and not isinstance(want, enum.Enum):
            self.expect(want == got, path, "value", want, got)
        elif isinstance(want, enum.Enum):
            self.expect(want.name == got.name, path, "value", want, got)
        elif isinstance(want, EQUAL_IF_SAME):
            self.expect(want == got, path, "value", want, got)
        elif isinstance(want, BY_IDENTITY):
            self.expect(want is got or want == got, path, "object", want, got)
        elif isinstance(want, np.ndarray):
            self.same_identity(want, got, path)
            a, b = [(x.dtype, x.shape, x.flags.writeable) for x in (want, got)]
            self.expect(a == b, path, "array", a, b)
            self.expect(same_array(want, got), path, "array values", want, got)
        else:
            self.walk_object(want, got, path, seen)

    def walk_object(self, want: Any, got: Any, path: str, seen: set) -> None:
        if not isinstance(want, tuple | frozenset):
            self.same_identity(want, got, path)
        if id(want) in seen:
            return
        seen.add(id(want))
        self.alive += (want, got)
        if isinstance(want, torch.Tensor):
            self.walk_tensor(want, got, path, seen)
        if isinstance(want, weakref.ReferenceType):
            self.walk(want(), got(), path + "()", seen)
            return
        if isinstance(want, VIEWS):
            self.walk(list(want), list(got), path + ".items", set()) if list(want) else self.expect(not list(got), path, "view", want, got)
            return
        if isinstance(want, ITERATORS) or type(want) is types.GeneratorType and want.gi_frame is not None:
            if self.drains:
                self.alive += (made := (drained(want), drained(got)))
                self.expect(len(made[0]) == len(made[1]), path, "items left", *made)
                [self.walk(a, b, f"{path}.item{i}", seen) for i, (a, b) in enumerate(zip(*made, strict=True))]
            return
        if isinstance(want, random.Random):
            self.expect(want.getstate() == got.getstate(), path, "state", want, got)
        if isinstance(want, torch.Generator):
            self.expect(torch.equal(want.get_state(), got.get_state()), path, "state", want, got)
            return
        if isinstance(want, re.Match):
            self.expect((want.regs, want.groupdict(), want.string) == (got.regs, got.groupdict(), got.string), path, "match", want, got)
        if isinstance(want, UNREADABLE):
            return
        if isinstance(want, BaseException):
            self.walk(want.args, got.args, path + ".args", seen)
        if isinstance(want, types.MethodType):
            self.walk(want.__func__, got.__func__, path + ".__func__", seen)
            self.walk(want.__self__, got.__self__, path + ".__self__", seen)
            return
        if isinstance(want, types.FunctionType):
            self.walk_function(want, got, path, seen)
            return
        if isinstance(want, functools.partial):
            self.walk((want.func, want.args, want.keywords), (got.func, got.args, got.keywords), path + ".partial", seen)
        if isinstance(want, types.CellType):
            self.walk_cells((want,), (got,), path, seen)
            return
        if isinstance(want, collections.abc.Mapping):
            self.expect([self.key(k) for k in want] == [self.key(k) for k in got], path, "keys", list(want), list(got))
            for k, j in zip(list(want), list(got), strict=True):
                self.walk(want[k], got[j], f"{path}[{k!r}]", seen)
        elif isinstance(want, list | tuple | collections.deque) and not isinstance(want, torch.Size):
            self.expect(len(want) == len(got), path, "length", len(want), len(got))
            for i, (a, b) in enumerate(zip(list(want), list(got), strict=True)):
                self.walk(a, b, f"{path}[{i}]", seen)
        elif isinstance(want, set | frozenset):
            a, b = sorted(map(repr, map(self.key, want))), sorted(map(repr, map(self.key, got)))
            self.expect(a == b, path, "set", a, b)
        elif isinstance(want, torch.Size):
            self.expect(tuple(want) == tuple(got), path, "size", want, got)
        self.walk_attributes(want, got, path, seen)

    def walk_attributes(self, want: Any, got: Any, path: str, seen: set) -> None:
        a, b = getattr(want, "__dict__", None), getattr(got, "__dict__", None)
        if isinstance(a, dict) and isinstance(b, dict):
            if isinstance(want, BaseException):
                a, b = without_advice(a), without_advice(b)
            if isinstance(want, torch.Tensor):  # what AOTAutograd leaves
                a, b = [{k: v for k, v in d.items() if not k.startswith("_dynamo")} for d in (a, b)]
            self.expect(list(a) == list(b), path, "attributes", list(a), list(b))
            for k in a:
                if k.endswith("hooks") or k.startswith("_forward_hooks"):  # their keys are numbers that count up in the process
                    self.expect(len(a[k] or ()) == len(b[k] or ()), f"{path}.{k}", "number of hooks", a[k], b[k])
                else:
                    self.walk(a[k], b[k], f"{path}.{k}", seen)
        for cls in type(want).__mro__:
            slots = cls.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and type(want).__module__.split(".")[0] != "torch":
                    missing = object()
                    u, v = getattr(want, name, missing), getattr(got, name, missing)
                    self.expect((u is missing) == (v is missing), f"{path}.{name}", "slot is set", u is not missing, v is not missing)
                    if u is not missing:
                        self.walk(u, v, f"{path}.{name}", seen)

    def walk_function(self, want: types.FunctionType, got: types.FunctionType, path: str, seen: set) -> None:
        for name in ("__name__", "__qualname__", "__defaults__", "__kwdefaults__", "__doc__", "__dict__"):
            self.walk(getattr(want, name), getattr(got, name), f"{path}.{name}", seen)
        self.walk_cells(want.__closure__ or (), got.__closure__ or (), path, seen)

    def walk_cells(self, want: tuple, got: tuple, path: str, seen: set) -> None:
        self.expect(len(want) == len(got), path, "cells", len(want), len(got))
        for i, (a, b) in enumerate(zip(want, got, strict=True)):
            self.expect(bool(a == types.CellType()) == bool(b == types.CellType()), path, "empty cell", a, b)
            if a != types.CellType():
                self.walk(a.cell_contents, b.cell_contents, f"{path}.cell{i}", seen)

    def walk_tensor(self, want: torch.Tensor, got: torch.Tensor, path: str, seen: set) -> None:
        lost = said_of_history(want), said_of_history(got)
        self.expect(lost[0] == lost[1], path, "what the tensor says of its history", *lost)
        if lost[0] is not None:
            return
        for name in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf"):
            self.expect(getattr(want, name) == getattr(got, name), path, name, getattr(want, name), getattr(got, name))
        self.expect(want.is_inference() == got.is_inference(), path, "is_inference", want.is_inference(), got.is_inference())
        for what in (lambda x: x.retains_grad, lambda x: len(x._backward_hooks or ())):
            self.expect(what(want) == what(got), path, "keeps its gradient, hooks", what(want), what(got))
        if want.layout is torch.strided:
            self.expect(strides(want, path) == strides(got, path), path, "stride", want.stride(), got.stride())
            bits = (want.is_conj(), want.is_neg()), (got.is_conj(), got.is_neg())
            self.expect(bits[0] == bits[1], path, "conj/neg bits", *bits)
            if not path.endswith(".grad"):  # where in which memory a gradient lies is the engine's business
                offsets = want.storage_offset(), got.storage_offset()
                self.expect(offsets[0] == offsets[1], path, "storage_offset", *offsets)
                self.same_storage(want, got, path)
        with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
            a, b = want.detach(), got.detach()
            if want.layout is not torch.strided:
                a, b = a.to_dense(), b.to_dense()
            if self.exact or not (a.is_floating_point() or a.is_complex()):
                ok = torch.equal(a, b)
            else:
                size = a[a.isfinite()].abs().max().item() if path.endswith(".grad") and a.isfinite().any() else 1.0
                ok = torch.allclose(a, b, rtol=1e-5, atol=1e-6 * max(size, 1.0), equal_nan=True)  # a sum rounds as its largest terms do
        self.expect(ok, path, "values", want, got)
        if want.is_leaf and got.is_leaf and (want.grad is not None or got.grad is not None):
            self.walk(want.grad, got.grad, path + ".grad", seen)

    @staticmethod
    def close(a: float, b: float) -> bool:
        return a == b or (a != a and b != b) or abs(a - b) <= 1e-6 + 1e-5 * abs(a)

    @staticmethod
    def key(k: Any) -> Any:
        if isinstance(k, tuple):
            return tuple(map(Comparer.key, k))
        return (type(k).__name__, k if isinstance(k, int | float | str | bytes | type(None)) else getattr(k, "__qualname__", None)
            or type(k).__qualname__)


def said_of_history(t: torch.Tensor) -> str | None:
    """One of several views (`unbind`) whose memory was written without gradients since: PyTorch refuses to say where it comes from."""
    with torch._C.DisableTorchFunctionSubclass():
        error = failure(lambda: t.is_leaf)
    return None if error is None else str(error)


def strides(t: torch.Tensor, path: str) -> tuple:
    """Those that are compared. Of a gradient, not those of dims of 1: neither layout nor `is_contiguous` depend on them, and eager's own
    depend on what arrives first (docs/soundness.md, known differences)."""
    if not path.endswith(".grad"):
        return t.stride()
    return tuple(s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1) if t.numel() else ()


# ---------------------------------------------------------------------------------------------------------------- one side, one call
class Observed:
    """A world whose state must be read afresh for each comparison (globals that the program rebinds); `space` is for `before`."""

    def __init__(self, read: Callable[[], Any], space: Any = None) -> None:
        self.read = read
        self.space = space


def look(state: Any) -> Any:
    return state.read() if isinstance(state, Observed) else state


@dataclasses.dataclass
class Outcome:
    """All that one call did, except to its arguments and world (compared in place)."""

    value: Any
    error: BaseException | None
    printed: str
    state: dict[str, Any]
    bumped: list[bool]


def tensors_in(obj: Any, seen: set | None = None) -> Iterable[torch.Tensor]:
    """Every tensor reachable through containers and instance attributes, once each, in order."""
    seen = set() if seen is None else seen
    if id(obj) in seen or isinstance(obj, ATOMS + BY_IDENTITY + (float, types.FunctionType)):
        return
    seen.add(id(obj))
    if isinstance(obj, torch.Tensor):
        yield obj
        return
    parts: list[Any] = []
    if isinstance(obj, collections.abc.Mapping):
        parts += obj.values()
    elif isinstance(obj, list | tuple | set | frozenset | collections.deque):
        parts += obj
    parts += getattr(obj, "__dict__", {}).values()
    for part in parts:
        yield from tensors_in(part, seen)


def versions(obj: Any) -> list[tuple[torch.Tensor, int]]:
    return [(t, t._version) for t in tensors_in(obj) if not t.is_inference()]


def global_state() -> dict[str, Any]:
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "default dtype": torch.get_default_dtype(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "autocast dtype": torch.get_autocast_dtype("cpu"),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "device": str(torch.get_default_device()),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "precision": torch.get_float32_matmul_precision(),
        "threads": torch.get_num_threads(),
        "autocast cache": torch.is_autocast_cache_enabled(),
        "layers": torch._C._functorch.peek_interpreter_stack() is None,
        "NumPy's errors": np.geterr(),
        "decimals": str(decimal.getcontext()),
        "environment": {k: v for k, v in os.environ.items() if not k.startswith(("TORCHINDUCTOR", "_TORCH", "TRITON", "PYTEST"))},
        "interpreter": (sys.getrecursionlimit(), gc.isenabled(), sys.exc_info()),
        "function modes": torch._C._len_torch_function_stack(),
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "torch rng": torch.get_rng_state().tolist(),
        "random": random.getstate(),
        "numpy rng": [a.tolist() if isinstance(a, np.ndarray) else a for a in np.random.get_state()],
    }


@contextlib.contextmanager
def recorded_output() -> Iterable[io.StringIO]:
    """print and logging go to one buffer, in their order."""
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s:%(name)s:%(message)s"))
    logger = logging.getLogger("program")
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with contextlib.redirect_stdout(out):
            yield out
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


def seed_torch(seed: int) -> None:
    """`torch.manual_seed`; it notes the stack for each accelerator that is not in use, which takes a millisecond."""
    if torch.cuda.is_available():
        torch.manual_seed(seed)
    else:
        torch.default_generator.manual_seed(seed)


class OutOfTime(KeyboardInterrupt):
    """Whoever compares says that a program takes too long: none of the program's own exceptions. (What it lets through is an interrupt.)"""


def perform(fn: Callable, c: Call, state: Any, seed: int) -> Outcome:
    seed_torch(seed)
    random.seed(seed)
    np.random.seed(seed)
    before = versions((c.args, c.kwargs, look(state)))
    value, error = None, None
    with recorded_output() as out:
        try:
            value = fn(*c.args, **c.kwargs)
        except BaseException as e:  # programs may raise anything
            if isinstance(e, OutOfTime) or type(e) is KeyboardInterrupt and not e.args:
                raise
            error = e
    bumped = [t._version != version for t, version in before]
    return Outcome(value, error, out.getvalue(), global_state(), bumped)


def differentiable(value: Any) -> list[torch.Tensor]:
    return [t for t in tensors_in(value) if t.requires_grad and t.is_floating_point() and t.grad_fn is not None]


def gradients_kept(value: Any) -> list[Any]:
    """What `backward` has left at each of the outputs: their own part in the loss, and that of the outputs which come from them."""
    return [t.grad for t in differentiable(value)]


def backward(value: Any) -> None:
    """A fixed, non-uniform loss of every differentiable output, which keep their gradients, differentiated once."""
    outs = differentiable(value)
    for t in outs:
        t.retain_grad()
    if outs:
        loss = sum((t * torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype).reshape(t.shape)).sum() for t in outs)
        loss.backward()


REFUSALS = ("Trying to backward through the graph a second time", "one of the variables needed for gradient computation has been")


def failure(fn: Callable, *args: Any) -> Exception | None:
    """What the call raises."""
    try:
        fn(*args)
    except Exception as e:
        return e
    return None


def user_lines(error: BaseException, filename: str) -> list[tuple[str, int]]:
    return [(f.name, f.lineno) for f in traceback.extract_tb(error.__traceback__) if f.filename == filename and f.lineno is not None]


def without_advice(attributes: dict) -> dict:
    """An exception's attributes without what the compiler notes on it: which of its facts the values of this run do not fit."""
    notes = [n for n in attributes.get("__notes__", ()) if UNFIT not in n]
    return {k: v for k, v in attributes.items() if k != "__notes__"} | ({"__notes__": notes} if notes else {})


REGION = re.compile(r"(?<=Pliant_region_)[\d_]+")  # the numbers of regions, in texts that show a graph


def compare_errors(want: BaseException | None, got: BaseException | None, filename: str | None, compare: Comparer, where: str) -> None:
    if want is None and got is None:
        return
    if want is None or got is None or type(want).__qualname__ != type(got).__qualname__:
        culprit = got if got is not None else want
        raise Mismatch(f"{where}: exceptions differ: eager {want!r}, compiled {got!r}\n" + "".join(
            traceback.format_exception(culprit)[-24:])) from got
    nodes = all([str(e).startswith(REFUSALS) for e in (want, got)])  # names and versions of what one of ours stands for
    if not nodes and REGION.sub("", str(want)) != REGION.sub("", str(got)):
        raise Mismatch(f"{where}: exception messages differ:\n  eager    {want}\n  compiled {got}") from got
    compare(want, got, f"{where}.exception") if not nodes else None
    a, b = want.__cause__ or want.__context__, got.__cause__ or got.__context__
    if type(a).__qualname__ != type(b).__qualname__:
        raise Mismatch(f"{where}: the exception's cause or context differs: eager {a!r}, compiled {b!r}") from got
    if filename is not None:
        lines = user_lines(want, filename)
        there = {n for _, n in user_lines(got, filename)}
        unbound = isinstance(want, UnboundLocalError)  # CPython 3.11, once warm, tells the line of the instruction before
        if lines and lines[-1][1] not in there and not unbound:
            tb = "".join(traceback.format_exception(got))
            raise Mismatch(f"{where}: line {lines[-1][1]} of the user's program is not in the traceback:\n{tb}") from got


# ---------------------------------------------------------------------------------------------------------------- checks
@dataclasses.dataclass
class Report:
    """What the checked calls cost: counts since the check began, and after each call."""

    captures: int
    recompiles: int
    graph_breaks: int
    fallbacks: int
    entries: int
    calls: int
    history: list[dict]
    values: list[Any]


Bound = int | tuple[int, int] | None


def left_to_python(fn: Any) -> bool:
    """Whether this program turned out to be Python alone, behind its graph breaks."""
    code = getattr(fn, "__code__", None)
    where = code and f"{code.co_filename}:{code.co_qualname}"
    return any("CPython goes on" in e.fields["what"] and e.fields["where"] == where for e in pliant.events.events("policy"))


def in_bound(n: int, bound: Bound) -> bool:
    if bound is None:
        return True
    lo, hi = (bound, bound) if isinstance(bound, int) else bound
    return lo <= n <= hi


def as_call(a: Any) -> Call:
    if isinstance(a, Call):
        return a
    return Call(a if type(a) is tuple else (a,), {})


def check_world(
    factory: Callable[[], Any],
    *arg_sets: Any,
    grad: bool = False,
    captures: Bound = None,
    breaks: Bound = None,
    entries: Bound = None,
    exact: bool = False,
    lines: bool = True,
    before: Callable[[int, Any], None] | None = None,
    must_compile: bool = True,
    between: bool = True,
    refused: bool = True,
    drive: Callable[[Callable, Any], Callable] | None = None,
    options: dict | None = None,
) -> Report:
    """Compare a program whose state lives outside its arguments. `factory()` returns a function or `(function, state)`, twice.

    `state` (default: the function itself, so its closure, defaults and, for a module, its attributes) is compared after each call.
    `before(i, state)` changes the world before call `i`, on both sides. `captures`, `breaks`, `entries` bound the compiler's counts:
    a number or (low, high).
    `between`: with `grad`, also the gradients of results, where others come from them.
    `refused`: also what is there behind a `backward()` that raises, which is how far it has come; else the comparison ends there.
    `drive(fn, state)`: what is called in place of the function, and calls it (not compiled, on both sides).
    `breaks` is about the first call alone: later, a branch that keeps changing sides may become a break by policy.
    """
    pliant.reset()
    start = pliant.stats()
    sides = []
    for _ in range(2):
        made = factory()
        sides.append(made if isinstance(made, tuple) else (made, made))
    (eager, eager_state), (fn, state) = sides
    filename = getattr(getattr(eager, "__code__", None), "co_filename", None)
    target = compiled(fn, **(options or {}))
    if drive is not None:
        eager, target = drive(eager, eager_state), drive(target, state)
    compare, history, values, answered, raised, stopped = Comparer(exact), [], [], False, False, False
    compare(look(eager_state), look(state), "initial state")
    for i, a in enumerate(map(as_call, arg_sets)):
        calls = copy.deepcopy(a), copy.deepcopy(a)
        if before is not None:
            before(i, eager_state)
            before(i, state)
        want = perform(eager, calls[0], eager_state, seed=i)
        got = perform(target, calls[1], state, seed=i)
        where = f"call {i}"
        compare_errors(want.error, got.error, filename if lines else None, compare, where)
        if not refused and want.error is not None and str(want.error).startswith(REFUSALS):
            history.append(dict(pliant.stats()))
            stopped = True
            break
        if want.printed != got.printed:
            raise Mismatch(f"{where}: printed output differs:\n--- eager\n{want.printed}\n--- compiled\n{got.printed}")
        compare((calls[0].args, calls[0].kwargs), (calls[1].args, calls[1].kwargs), f"{where}.arguments")
        compare(want.value, got.value, f"{where}.result")
        compare(look(eager_state), look(state), f"{where}.state")
        for k, v in want.state.items():
            if v != got.state[k]:
                raise Mismatch(f"{where}: {k} differs afterwards" + ("" if "r" in k and "rng" in k
                    else f": eager {v!r}, compiled {got.state[k]!r}"))
        if want.bumped != got.bumped:
            raise Mismatch(f"{where}: tensors written to in place (argument order): eager {want.bumped}, compiled {got.bumped}")
        if grad and want.error is None:
            failures, drawn = [], []
            for value in (want.value, got.value):
                seed_torch(i)
                failures.append(failure(backward, value))
                drawn.append(torch.get_rng_state())
            if not torch.equal(*drawn):
                raise Mismatch(f"{where}: backward: torch's random number generator differs afterwards")
            if type(failures[0]) is not type(failures[1]):  # not every operator has a derivative
                raise Mismatch(f"{where}: backward: eager {failures[0]!r}, compiled {failures[1]!r}")
            if not refused and failures[0] is not None:
                history.append(dict(pliant.stats()))
                stopped = True
                break
            compare((calls[0].args, calls[0].kwargs), (calls[1].args, calls[1].kwargs), f"{where}.arguments after backward")
            if between:
                compare(gradients_kept(want.value), gradients_kept(got.value), f"{where}.gradients of the result")
            compare(look(eager_state), look(state), f"{where}.state after backward")
        answered = answered or want.error is None
        raised = raised or want.error is not None
        ran = pliant.stats()["calls"] - (history[-1] if history else start)["calls"]
        history.append(dict(pliant.stats()))
        idle = must_compile and not raised and not ran and not IDENTITY  # (a program that raised may be left alone for a while)
        if idle and not left_to_python(eager):
            raise Mismatch(f"{where}: the program ran eagerly: an exception in the capture was taken for the program's own")
        values.append(got.value)
    compare.drains = True
    if arg_sets and want.error is None and not stopped:
        compare(want.value, got.value, f"{where}.result, to its end")
    return finish(start, history, values, captures, breaks, entries, must_compile and answered and not raised)


def check(fn: Any, *arg_sets: Any, **options: Any) -> Report:
    """Compare `fn` (or a module, copied for each side) over the argument sets; see `check_world` for the options."""
    if isinstance(fn, torch.nn.Module):
        return check_world(lambda: copy.deepcopy(fn), *arg_sets, **options)
    return check_world(lambda: (fn, ()), *arg_sets, **options)


def finish(start: dict, history: list[dict], values: list, captures: Bound, breaks: Bound, entries: Bound, must_compile: bool) -> Report:
    last = history[-1] if history else start
    counts = {k: last[k] - start[k] for k in ("captures", "recompiles", "graph_breaks", "fallbacks", "calls")}
    report = Report(entries=last["entries"], history=history, values=values, **counts)
    if IDENTITY:
        return report
    if report.fallbacks:
        raise Mismatch(f"{report.fallbacks} frames were given up to eager")
    if must_compile and not report.captures:
        raise Mismatch("nothing was captured")
    first = history[0]["graph_breaks"] - start["graph_breaks"] if history else 0
    for name, n, bound in (("captures", report.captures, captures), ("graph breaks", first, breaks), ("entries", report.entries, entries)):
        if not in_bound(n, bound):
            raise Mismatch(f"{name}: {n}, expected {bound}")
    return report


def check_converges(factory: Callable[[], Any], arg_sets: list, bound: int, **options: Any) -> Report:
    """The pattern stays compiled: right answers, at most `bound` entries, none added while the second half runs, nothing given up."""
    report = check_world(factory, *arg_sets, **options)
    if not IDENTITY:
        middle = report.history[len(arg_sets) // 2]
        last = report.history[-1]
        if last["entries"] > bound:
            raise Mismatch(f"{last['entries']} entries, at most {bound} expected: {[h['entries'] for h in report.history]}")
        if last["captures"] != middle["captures"] or last["entries"] > middle["entries"]:
            raise Mismatch(f"still compiling in the second half: captures {[h['captures'] for h in report.history]}")
        if last["calls"] <= middle["calls"]:
            raise Mismatch("the frame no longer runs compiled")
    return report
