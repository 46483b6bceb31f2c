"""Programs with state that crosses kinds: modules, optimizers, generators of random numbers and memory, each changed between calls.

`python -m tests.differential.stateful 1000 500` runs 500 programs from number 1000 on, the four families by turns: modules that are
called in some 40 ways, asked and changed, and get other members, parameters, hooks and parametrizations between calls; steps of training
(optimizers, schedulers, forwards, losses, backwards) whose groups, flags and gradients change; random numbers of every generator, under
what may wrap them; and views of views of overlapping, expanded, negated or empty inputs that are written through. Each program is called
eight times, with sizes that change. What it gives back, raises and prints, and all that can be reached from its arguments and objects
must be eager's: values, types, strides, which memory and which objects are one, gradients, hooks, the states of generators and settings.
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import random
import re
import sys
import types
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import pliant
from pliant.errors import InternalError
from tests.differential import numbered
from tests.differential.stateful_tables import (
    AROUND,
    ASKED,
    BACKWARDS,
    BETWEEN,
    CALLED,
    DONE,
    DRAW_CHANGES,
    DRAWS,
    FORWARDS,
    FOUND,
    LAYOUTS,
    LOSSES,
    MEMORY,
    MODULE_CHANGES,
    MODULE_KINDS,
    MODULES,
    NUMBERS_DRAWN,
    OPTIMIZERS,
    READS,
    REPLACED,
    SCHEDULERS,
    STATES,
    STEP_CHANGES,
    STEPS,
    TRAINING,
    VIEWS,
    WRITES,
)

SIZES = (3, 3, 2, 5, 1, 3, 4, 2)
CALLS = len(SIZES)
NO_HOOKS = torch.utils.hooks.RemovableHandle


@dataclasses.dataclass
class Program:
    """`world` is run once for each side, `source` defines `program(...)` and sets it up; `changes[i]` is run before call i."""

    label: str
    world: str
    source: str
    changes: list[str | None]
    arguments: Callable[[int, dict], tuple]
    backward: bool = False
    backend: str = "aten"


def rows(table: str) -> list[str]:
    return [r.strip() for line in table.strip().splitlines() for r in line.split(" ; ") if r.strip()]


# -- comparing ---------------------------------------------------------------------------------------------------------------
ADDRESS = re.compile(r" at 0x\w+|grad_fn=<[^>]*>")


def said(v: Any, met: dict) -> Any:
    """What there is to see of a value. Tensors' data are kept as they are, to be compared within rounding."""
    t = type(v)
    if t in (int, bool, bytes, type(None), torch.dtype, torch.device):
        return t.__name__, v
    if t is float or isinstance(v, np.floating):
        return "data", torch.tensor(float(v), dtype=torch.float64)
    if t is str:
        return ADDRESS.sub("", v)
    if id(v) in met:
        return "met", met[id(v)][0]
    if t is tuple and all([type(e) in (int, str, float, bool, type(None)) for e in v]):
        return "tuple", [said(e, met) for e in v]
    met[id(v)] = len(met), v
    if isinstance(v, torch.Tensor):
        return of_tensor(v, met)
    if t is NO_HOOKS or isinstance(v, types.FunctionType | types.BuiltinFunctionType | type | types.ModuleType | torch.autograd.graph.Node):
        return t.__name__, getattr(v, "__qualname__", "")
    if isinstance(v, BaseException):
        return "raised", t.__name__, ADDRESS.sub("", str(v)).split("\n")[0]
    if isinstance(v, torch.Generator):
        return "generator", v.get_state().sum().item(), v.initial_seed()
    if isinstance(v, np.ndarray):
        return "array", str(v.dtype), v.shape, ("data", torch.from_numpy(v.copy()))
    if isinstance(v, OrderedDict) and v and all([type(k) is int for k in v]):  # hooks, by numbers that all handles share
        return "hooks", [said(e, met) for e in v.values()]
    if isinstance(v, dict):
        return t.__name__, [(said(k, met), said(e, met)) for k, e in dict.items(v)]
    if isinstance(v, set | frozenset):
        return t.__name__, sorted([repr(e) for e in v if isinstance(e, str | int)]), len(v)
    if isinstance(v, list | tuple | deque):
        return t.__name__, [said(e, met) for e in v]
    own = getattr(v, "__dict__", None)
    if type(own) is dict:
        return t.__name__, [(k, said(e, met)) for k, e in own.items() if k != "_compiled_call_impl"]
    return t.__name__, ADDRESS.sub("", repr(v))


def of_tensor(v: torch.Tensor, met: dict) -> Any:
    kind = type(v).__name__
    if isinstance(v, torch.nn.parameter.UninitializedTensorMixin):
        return kind, "uninitialized", v.requires_grad
    try:
        storage, plain = v.untyped_storage(), v.detach()
        memory = met.setdefault(("memory", storage.data_ptr()), (len(met), storage))[0] if storage.data_ptr() and v.numel() else None
        strides = [s for s, n in zip(v.stride(), v.shape, strict=True) if n > 1] if v.numel() else []
        place = strides, v.storage_offset() if v.numel() else 0, memory, v.is_conj(), v.is_neg()
        flags = v.requires_grad, v.is_leaf, v.is_inference(), len(v._backward_hooks or ()), v.retains_grad
        grad = of_gradient(v.grad, met) if v.is_leaf or v.retains_grad else None
        return kind, str(v.dtype), tuple(v.shape), place, flags, ("data", plain.clone()), grad, said(vars(v), met)
    except RuntimeError as e:
        return kind, str(e).split("\n")[0][:60]


def of_gradient(g: torch.Tensor | None, met: dict) -> Any:
    """Not where in memory: eager hands on a part of a larger gradient, or a sum."""
    return None if g is None else (of_tensor(g, met)[:3], "met" if id(g) in met else "", ("data", g.detach().clone()))


LIMITS = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float32: 2e-5, torch.complex64: 2e-5}


def close(a: torch.Tensor, b: torch.Tensor, least: float) -> bool:
    if a.dtype is not b.dtype or a.shape != b.shape:
        return False
    if torch.equal(a, b):
        return True
    if not (a.is_floating_point() or a.is_complex()) or not torch.equal(a.isnan(), b.isnan()):
        return False
    kind = torch.complex128 if a.is_complex() else torch.float64
    x, y = a.to(kind).nan_to_num(), b.to(kind).nan_to_num()
    return bool((x - y).abs().max() <= max(LIMITS.get(a.dtype, 2e-6), least) * x.abs().max().clamp_min(0.05))


def differ(want: Any, got: Any, least: float, path: str = "") -> str:
    """What differs; `least`: of the largest value of a tensor, what rounding explains in any dtype."""
    if isinstance(want, list | tuple) and type(want) is type(got) and len(want) == len(got):
        if len(want) == 2 and isinstance(want[1], torch.Tensor) and isinstance(got[1], torch.Tensor):
            words = f"{path}: want {want[1].flatten()[:5].tolist()}, got {got[1].flatten()[:5].tolist()}"
            return "" if close(want[1], got[1], least) else words
        for i, (a, b) in enumerate(zip(want, got, strict=True)):
            if found := differ(a, b, least, f"{path}.{a[0] if isinstance(a, tuple) and a and type(a[0]) is str else i}"):
                return found
        return ""
    return "" if want == got or want != want and got != got else f"{path}: want {want!r:.200}, got {got!r:.300}"


def states() -> tuple:
    numpys = np.random.get_state()
    modes = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"), str(torch.get_default_dtype())
    return torch.get_rng_state().sum().item(), hash(random.getstate()), int(numpys[1].sum()), numpys[2], modes


def seed(number: int) -> None:
    torch.manual_seed(number)
    random.seed(number)
    np.random.seed(number % 2**32)


def side(p: Program) -> dict:
    """A world of its own."""
    seed(1)
    module = types.ModuleType("stateful")
    sys.modules["stateful"] = module
    exec(compile(p.world, "<world>", "exec"), module.__dict__)
    exec(compile(p.source, "<program>", "exec"), module.__dict__)
    return module.__dict__


def tensors_in(v: Any) -> list[torch.Tensor]:
    if isinstance(v, torch.Tensor):
        return [v]
    return [t for e in (v.values() if isinstance(v, dict) else v) for t in tensors_in(e)] if isinstance(v, dict | list | tuple) else []


def backward(result: Any) -> str:
    found = {id(t): t for t in tensors_in(result) if t.requires_grad and t.is_floating_point()}
    try:
        if found:
            torch.stack([(t.float() * torch.linspace(0.5, 1.5, t.numel()).reshape(t.shape)).sum() for t in found.values()]).sum().backward()
    except InternalError:
        raise
    except Exception as e:
        return type(e).__name__
    return "done"


def outcome(run: Callable, p: Program, i: int, space: dict, number: int) -> Any:
    """What one call did, and what is there behind it."""
    printed, watched = io.StringIO(), lambda met: [said(space.get(name), met) for name in ("HELD", *space["WATCH"])]
    with contextlib.redirect_stdout(printed), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        space["i"] = i
        seed(number * 100 + i)
        if (change := p.changes[i]) is not None:
            try:
                exec(change, space)
            except Exception as e:
                print("the change raised", type(e).__name__)
        given = p.arguments(i, space)
        seed(number * 100 + i + 50)
        try:
            try:
                result: Any = "gave", run(*given)
            except InternalError:
                raise
            except Exception as e:
                result = "raised", e
            met: dict = {}
            told = [said(list(result), met), said(list(given), met), watched(met), states()]
            if p.backward and result[0] == "gave":
                told.append(how := backward(result[1]))
                if how == "done":  # what one that raises leaves may differ
                    met = {}
                    told += [said(list(result), met), said(list(given), met), watched(met)]
        except InternalError as e:
            return "an internal error", str(e)
    return told, ADDRESS.sub("", printed.getvalue())


def examine(number: int) -> str | None:
    """What program `number` does wrong, in words."""
    return examined(FAMILIES[number % len(FAMILIES)](random.Random(number)), number)


def examined(p: Program, number: int) -> str | None:
    """What this program does wrong, in words."""
    pliant.reset()
    eager, space = side(p), side(p)
    compiled = pliant.compile(space["program"], backend=p.backend, strict=True, background=False)
    least = 3e-2 if "bfloat16" in p.label else 0.0
    try:
        for i in range(CALLS):
            want, got = outcome(eager["program"], p, i, eager, number), outcome(compiled, p, i, space, number)
            if found := str(got[1]) if got[0] == "an internal error" else differ(want, got, least):
                return f"{number}: {p.label}\n    {p.changes}\n    call {i}: {found:.600}"
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
    return None


def changing(r: random.Random, table: list[str], names: str = "") -> list[str | None]:
    """One or two changes that come up now and again."""
    few = [r.choice(table) for _ in range(r.choice((1, 2, 2, 3)))]
    order = [r.choice([None, *few, *few]) for _ in range(CALLS - 1)]
    return [None, *[c and names + c for c in order]]


def body(lines: list[str], tried: bool) -> str:
    lines = [part for line in lines for part in line.split("\n")]
    if not tried:
        return "".join([f"    {line}\n" for line in lines])
    inner = "".join([f"        {line}\n" for line in lines])
    return f"    try:\n{inner}    except Exception as e: return type(e), str(e).split('\\n')[0], R\n"

# -- programs ----------------------------------------------------------------------------------------------------------------
ONLY = {
    "m.ls": "lists", "m.md": "lists", "m.which": "lists", "m.ps": "own", "m.pd": "own", "m.seen": "keeps", "m.last": "keeps",
    "m[": "seq bn drop ln tied", "m.append": "seq bn drop", "m.insert": "seq", "m.pop": "seq", "m.extend": "seq", "m.buf": "net dyn",
    "m.p": "net dyn described", "m.items": "net dyn", "m.opts": "net dyn", "m.a": "net dyn described", "m.b": "net dyn", "m.act": "net dyn",
    "parametrizations.weight": "par", "remove_parametrizations": "par pwn", "prune.remove": "prune", "remove_weight_norm": "wn",
    "remove_spectral": "sn", "momentum": "bn", "running": "bn", "m.flag": "net dyn", "m.scale": "net dyn", "m.d ": "described",
}  # fmt: skip
"""Which kinds have what a statement names."""


def kind_for(r: random.Random, texts: list[str]) -> str:
    fit = [kinds for text in texts for part, kinds in ONLY.items() if part in text]
    return r.choice(r.choice(fit).split()) if fit and r.random() < 0.85 else r.choice(MODULE_KINDS)


def changing_modules(r: random.Random) -> Program:
    first = [r.choice(rows(REPLACED))] if r.random() < 0.25 else []
    others = [r.choice(rows(r.choice((ASKED, DONE)))) for _ in range(r.choice((0, 1, 1, 2)))]
    called, changes = r.choice(("y = m(x)", r.choice(rows(CALLED)))), changing(r, rows(MODULE_CHANGES), "m = HELD['m']\n")
    kind = kind_for(r, [*first, *others, *[c for c in changes if c]])
    if kind == "lazy" and "tf." in called:  # eager itself leaves parameters of a transform that is over
        called = "y = m(x)"
    at = r.randrange(len(others) + 1)
    lines = [r.choice(rows(FOUND)), *first, *others[:at], called, *others[at:]]
    lines = [part for line in lines for part in ((line, "R.append(r)") if line.startswith("r = ") else (line,))]
    if r.random() < 0.2:
        lines.insert(r.randrange(1, len(lines) + 1), "print('b', n)")
    leaf, tried = r.random() < 0.5, r.random() < 0.3
    returned = r.choice(("y, R", "y, R", "y, R, m"))
    source = f"def program(x, n, a):\n    R = []; r = y = h = None\n{body(lines, tried)}    return {returned}\nsetup({kind!r})\n"

    def arguments(i: int, space: dict) -> tuple:
        n, m = SIZES[i], space["HELD"]["m"]
        w = next(iter(m.parameters()), None)
        x = torch.arange(n * 3, dtype=torch.float32).reshape(n, 3) * 0.1 + i * 0.01
        x = x.to(w.dtype) if w is not None and w.dtype.is_floating_point else x
        return x.requires_grad_(leaf), n, m

    return Program(f"{kind}: {' | '.join(lines)}", MODULES, source, changes, arguments, r.random() < 0.6)


def training_steps(r: random.Random) -> Program:
    optimizer, scheduler, groups = r.choice(OPTIMIZERS), r.choice(SCHEDULERS), r.random() < 0.4
    usual = r.random() < 0.5
    step = "o.step()" if usual else r.choice(rows(STEPS))
    step = "R.append(o.step(closure))" if "lbfgs" in optimizer else step
    zero = r.choice(("o.zero_grad()", "o.zero_grad()", "pass", "m.zero_grad()", "o.zero_grad(set_to_none=False)"))
    forward, loss = r.choice(rows(FORWARDS)), r.choice(rows(LOSSES))
    lines = [zero, forward, loss, r.choice(rows(BACKWARDS)), "pass" if usual else r.choice(rows(BETWEEN)), step]
    share = r.random()
    lines = lines[:3] if share < 0.15 else lines[:4] if share < 0.3 else lines
    if share > 0.9:
        lines.insert(r.randrange(len(lines)), "print('b', n)")
    lines = [part.strip() for line in lines for part in line.split(" @@ ")]
    returned = r.choice(("loss, R", "y, R", "loss.item() if loss is not None else 0, R", "loss.detach() if loss is not None else 0, R"))
    source = (
        "def program(x, n, m):\n    R = []; o, s, gs, ema = HELD['o'], HELD['s'], HELD['gs'], HELD['ema']; loss = y = None\n"
        "    def closure():\n        o.zero_grad(); q = F.mse_loss(m(x), target(x)); q.backward(); LOG.append('c'); return q\n"
        f"{body(lines, r.random() < 0.25)}    return {returned}\nsetup({optimizer!r}, {scheduler!r}, {int(groups)})\n"
    )
    leaf = r.random() < 0.4

    def arguments(i: int, space: dict) -> tuple:
        x = torch.arange(SIZES[i] * 3, dtype=torch.float32).reshape(SIZES[i], 3) * 0.1 + i * 0.01
        return x.requires_grad_(leaf), SIZES[i], space["HELD"]["m"]

    changes = changing(r, rows(STEP_CHANGES), "m, o, s, gs = HELD['m'], HELD['o'], HELD['s'], HELD['gs']\n")
    return Program(f"{optimizer}, {scheduler}, {int(groups)}: {' | '.join(lines)}", TRAINING, source, changes, arguments, share < 0.15)


def random_numbers(r: random.Random) -> Program:
    lines = []
    for _ in range(r.choice((1, 2, 2, 3, 4))):
        share = r.random()
        drawn = r.choice(AROUND).format(f"R.append({r.choice(rows(DRAWS))})")
        lines.append(r.choice(rows(STATES)) if share < 0.22 else "print('b')" if share < 0.28 else drawn.replace("\n    ", "\n"))
    text = "\n".join(lines)
    reads = {
        "set_rng_state(s)": "s = torch.get_rng_state()", "set_state(g)": "g = G.get_state()",
        "set_state(st)": "st = np.random.get_state()", "setstate(rs)": "rs = random.getstate()",
    }  # fmt: skip
    before = ["R = []", *[read for use, read in reads.items() if use in text]]
    source = f"def program(x, n, m, f, p, l):\n    {'; '.join(before)}\n{body(lines, r.random() < 0.2)}    return R\n"
    leaf = r.random() < 0.4

    def arguments(i: int, space: dict) -> tuple:
        n = (*SIZES[:-1], 0)[i]
        x = torch.arange(n * 4, dtype=torch.float32).reshape(n, 4) * 0.1 + i * 0.01
        p = torch.arange(12, dtype=torch.float32).reshape(3, 4) / 12
        return x.requires_grad_(leaf), n, SIZES[(i * 3 + 1) % 8], n + 0.5, p, [1, 2, 3, 4][: max(n, 1)]

    return Program(" | ".join(lines), NUMBERS_DRAWN, source, changing(r, rows(DRAW_CHANGES)), arguments, r.random() < 0.4)


def memory(r: random.Random) -> Program:
    layouts = [r.choice(LAYOUTS)] * CALLS
    if r.random() < 0.4:
        layouts = [r.choice((layouts[0], r.choice(LAYOUTS))) for _ in layouts]
    lines = [f"v = {r.choice(rows(VIEWS))}", f"u = {r.choice(rows(VIEWS))}"]
    for _ in range(r.choice((1, 2, 2, 3, 4))):
        share, around = r.random(), r.random()
        view, read = r.choice(rows(VIEWS)), f"R.append({r.choice(rows(READS))})"
        other = f"{r.choice('vvu')} = {view}" if share < 0.7 else read if share < 0.93 else "print('b')"
        line = r.choice(rows(WRITES)) if share < 0.55 else other
        lines.append(f"with torch.no_grad(): {line}" if around < 0.12 else f"if n > 2: {line}" if around < 0.18 else line)
    lines.append(f"R.append({r.choice(rows(READS))})")
    source = (
        "def program(x, y, n):\n    R = []; w = torch.empty(0); z = torch.empty(0, dtype=torch.long); v = u = x\n"
        f"{body(lines, r.random() < 0.25)}    return {r.choice(('R', 'R, v', 'R, v, u', 'v', 'R, x', 'R, v, v'))}\n"
    )

    def arguments(i: int, space: dict) -> tuple:
        return *space["given"](layouts[i], SIZES[i], i), SIZES[i]

    return Program(f"{layouts}: {' | '.join(lines)}", MEMORY, source, [None] * CALLS, arguments, r.random() < 0.4)


FAMILIES = (changing_modules, training_steps, random_numbers, memory)


if __name__ == "__main__":
    numbered.main(examine, CALLS)
