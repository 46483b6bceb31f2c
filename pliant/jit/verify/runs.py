"""The runs of a verified call: compiled, eager, eager once more, and eager in float64. Each begins in the state of the snapshot."""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Callable, Iterator
from typing import Any

from pliant import native
from pliant.graph.originals import ORIGINAL, of_own_tensors, tensors_as_they_were, torch
from pliant.graph.traced import held_in
from pliant.jit.verify import contents, floats
from pliant.jit.verify.ambient import Ambient, random_states_kept, recorded
from pliant.jit.verify.compare import FLOATS, WHOLE, Comparer, Difference, Outcome, own_dict
from pliant.jit.verify.snapshot import Snapshot, State

HOOKS = frozenset(("register_hook", "register_post_accumulate_grad_hook", "register_full_backward_hook", "register_full_backward_pre_hook",
    "register_backward_hook", "register_prehook", "register_multi_grad_hook", "set_multithreading_enabled"))  # fmt: skip
DRAWN = ("torch's random state", "CUDA's random state", "Python's random state", "NumPy's random state")
DEEP = 6


def perform(call: Callable[[], Any], snapshot: Snapshot, context: contextvars.Context | None, shown: bool) -> Outcome:
    """Run it, and see what it leaves. In `context`, a copy, or in the context at hand."""
    out = Outcome()
    with recorded(shown) as text:
        try:
            out.value = call() if context is None else context.run(call)
        except BaseException as e:
            out.error = e
            e.__traceback__ = behind(e.__traceback__)
    out.printed = "".join(text)
    out.ambient = Ambient().told(context)
    out.state = snapshot.now()
    return out


def behind(tb: Any) -> Any:
    """A traceback without the frames of this file, which hold the copies."""
    while tb is not None and tb.tb_frame.f_code.co_filename == __file__:
        tb = tb.tb_next
    return tb


def eagerly(fn: Any, args: tuple, kwargs: dict) -> Callable[[], Any]:
    def run() -> Any:
        native.push_disabled()
        try:
            return fn(*args, **kwargs)
        finally:
            native.pop_disabled()

    return run


# -- gradients --------------------------------------------------------------------------------------------------------------------
@of_own_tensors
def differentiate(out: Outcome, snapshot: Snapshot, eager: bool) -> None:
    """Add the gradients of what was returned to the outcome, for a fixed cotangent. Not where it would run Python code of the program's."""
    reach = snapshot.reach
    if out.error is not None or reach.hooks or not HOOKS.isdisjoint(reach.names):
        return
    outs = [t for t in tensors_in(out.value, snapshot) if t.grad_fn is not None and t.is_floating_point()]
    inputs = [t for t in reach.tensors if t.is_floating_point() and untouched(t, snapshot.face_of(t))]
    if not outs or not inputs or (eager and runs_python([t.grad_fn for t in outs])):
        return
    seeds = [torch.linspace(0.5, 1.5, t.numel(), dtype=t.dtype, device=t.device).reshape(t.shape) for t in outs]
    with random_states_kept(), torch._C.DisableTorchFunction():
        try:
            out.gradients = list(torch.autograd.grad(outs, inputs, seeds, retain_graph=True, allow_unused=True))
        except Exception as e:
            out.gradients = e.with_traceback(None)


def untouched(t: torch.Tensor, was: contents.Face) -> bool:
    """Required it gradients before the call, and is it still what it was?"""
    return was.requires_grad and t.requires_grad and t.grad_fn is was.grad_fn


def tensors_in(value: Any, snapshot: Snapshot, depth: int = 0) -> list[torch.Tensor]:
    """New tensors in what a call returned."""
    if isinstance(value, torch.Tensor):
        return [] if snapshot.is_old(value) or value.layout is not torch.strided else [value]
    if depth == DEEP or (snapshot.is_old(value) and not isinstance(value, tuple)):
        return []
    if isinstance(value, (list, tuple)):
        parts = list(held_in(value))
    elif isinstance(value, dict):
        parts = list(dict.values(value))
    else:
        parts = list((own_dict(value) or {}).values())
    return [t for p in parts for t in tensors_in(p, snapshot, depth + 1)]


def runs_python(nodes: list[Any]) -> bool:
    """Is a `torch.autograd.Function` of the program's, or a hook, in this graph?"""
    seen, todo = set(), list(nodes)
    while todo:
        node = todo.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return True
        todo += [n for n, _ in node.next_functions]
    return False


# -- second thoughts --------------------------------------------------------------------------------------------------------------
class Judge:
    """Whether a difference is one: eager runs again, and in float64. The world is in the state of `two` before and after."""

    def __init__(self, snapshot: Snapshot, start: Ambient, context: contextvars.Context, call: Callable[[], Any]) -> None:
        self.snapshot = snapshot
        self.start = start
        self.context = context
        self.call = call

    def rerun(self, differentiated: bool) -> Outcome:
        self.start.restore()
        out = perform(self.call, self.snapshot, self.context.copy(), shown=False)
        if differentiated:
            differentiate(out, self.snapshot, True)
        return out

    def steady(self, two: Outcome) -> Difference | None:
        """Where eager differs from itself when it runs again: that is no fault of the compiled program's."""
        self.snapshot.change(two.state, State())
        again = self.rerun(isinstance(two.gradients, list))
        try:
            found = Comparer(self.snapshot, two, again).run()
            return found[0] if found else None
        finally:
            self.snapshot.change(again.state, two.state)

    def excused(self, one: Outcome, two: Outcome, found: list[Difference], old: dict[str, torch.Tensor]) -> list[Difference]:
        """The differences that float64 does not excuse."""
        if any(d.kind not in (FLOATS, WHOLE) for d in found):
            return [d for d in found if d.kind not in (FLOATS, WHOLE)]
        reference, alike = self.reference(one, two, found, old)
        return [d for d in found if not passes(d, reference.get(d.path), alike)]

    def reference(self, one: Outcome, two: Outcome, found: list[Difference], old: dict[str, torch.Tensor]) -> tuple[dict[str, Any], bool]:
        """What eager gives at these places if every float that it can reach is a float64 (nothing if that cannot be had).

        And whether it drew the same random numbers: of other types, others are drawn, and more of them.
        """
        snapshot = self.snapshot
        snapshot.change(two.state, State())
        values: dict[str, Any] = {}
        alike = False
        with widened(snapshot) as ok:
            if ok:
                out = self.rerun(isinstance(two.gradients, list))
                if out.error is None:
                    probe = Comparer(snapshot, out, one, frozenset(d.path for d in found))
                    probe.run()
                    alike = all(out.ambient[k] == two.ambient[k] for k in DRAWN)
                    values = probe.probed | {path: ORIGINAL.clone(ORIGINAL.detach(t)) for path, t in old.items()}
        snapshot.change(snapshot.now(), two.state)
        return values, alike


@contextlib.contextmanager
def widened(snapshot: Snapshot) -> Iterator[bool]:
    """Inside the block the tensors of before are float64, sharing memory as they do. False: they cannot be."""
    faces: list[tuple[torch.Tensor, Any]] = [(obj, was) for row, obj, was in snapshot.records if row is contents.TENSOR]
    wide: dict[int, torch.Tensor] = {}
    casts: list[tuple[torch.Tensor, Any, torch.Tensor]] = []
    ok = True
    with tensors_as_they_were(), torch._C.DisableTorchFunction(), torch.no_grad():
        for t, was in faces:
            if not t.dtype.is_floating_point or t.device.type == "meta":
                continue
            address, storage = was.layout[4], t.untyped_storage()
            if address not in wide:
                whole = torch.empty(0, dtype=t.dtype, device=t.device).set_(storage)  # type: ignore[call-overload]
                wide[address] = whole.double()
            base = wide[address]
            ok = ok and base.numel() == storage.nbytes() // t.element_size() and not ORIGINAL.is_inference(t)
            casts.append((t, was, base))
        default = torch.get_default_dtype()
        if ok:
            for t, was, base in casts:
                if was.grad is not None:
                    t.grad = None
                t.data = base.as_strided(*was.layout[:3])
            for t, was, _ in casts:
                if was.grad is not None:
                    t.grad = was.grad
    try:
        if ok:
            torch.set_default_dtype(torch.float64)
        yield ok
    finally:
        torch.set_default_dtype(default)
        with tensors_as_they_were(), torch._C.DisableTorchFunction(), torch.no_grad():
            for t, was, _ in casts if ok else ():
                t.grad = None
                t.data = was.alias


@of_own_tensors
def passes(d: Difference, reference: Any, drawn_alike: bool = False) -> bool:
    e, c = d.want, d.got
    if isinstance(e, torch.Tensor):
        verdict = floats.error_rule(e, c, reference, drawn_alike) if isinstance(reference, torch.Tensor) else None
        return floats.close(e, c, loose=True) if verdict is None else verdict
    if d.kind == FLOATS and isinstance(e, float):
        if isinstance(reference, float) and (drawn_alike or floats.close_numbers(reference, e, loose=True)):
            return abs(c - reference) <= floats.ERRORS * abs(e - reference) or floats.close_numbers(reference, c)
        return floats.close_numbers(e, c, loose=True)
    if d.kind == WHOLE and type(e) in (int, bool):
        return type(reference) is type(c) and bool(reference == c)
    return False
