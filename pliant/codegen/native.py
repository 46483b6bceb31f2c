"""The backend `"native"`: fused CPU kernels between ATen calls.

The operations of a graph are grouped by `lower/fuse.py`; each group becomes one kernel, compiled once for all sizes (`codegen/cpu`), and
one line of the straight-line program that `codegen/aten.py` prints. What no kernel computes stays the ATen call that it was. Kernels that
follow each other, with the matrix products between them, become one native function (`lower/segments.py`): no Python runs inside, and what
only they read lies in an arena.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable
from itertools import count
from typing import Any

import torch

from pliant import native
from pliant.codegen.alone import worth_a_kernel
from pliant.codegen.aten import TAKE, Executable
from pliant.codegen.cpu import debug, runtime
from pliant.codegen.cpu.segment import compile_module, identity_of
from pliant.codegen.failures import place_of
from pliant.codegen.region import compile_region
from pliant.graph.record import Op
from pliant.lower import liveness
from pliant.lower.accumulate import accumulated
from pliant.lower.attention import Attention, attention_steps
from pliant.lower.conv import Convolution, convolution_steps
from pliant.lower.fuse import Fuser, Unit
from pliant.lower.gemm import Gemm, Products
from pliant.lower.kernels import Finisher, Launch
from pliant.lower.loops import DTYPES
from pliant.lower.recompose import recompose
from pliant.lower.repeats import without_repeated_results
from pliant.lower.segments import Item, Segment, arrange, item_of_steps, make_segment, runs

aten = torch.ops.aten
ALLOCATIONS = frozenset((aten.empty.memory_format, aten.empty_strided.default, TAKE))
_serial = count()
_compiled: dict[Hashable, native.Launcher] = {}
_addresses: dict[Hashable, int] = {}
_lock = threading.Lock()


use_segments = debug.folder() is None
"""Off: every kernel is called from Python. For dumps, for the search for a kernel that departs from eager, and for tests."""


def compile_native(trace: Any, inputs: list[Any], outputs: Any, *, name: str = "region") -> Executable:
    """The executable of a captured region with fused kernels; arguments as for `compile_region`."""
    return compile_region(trace, inputs, outputs, name=name, lower=lower)


def lower(ops: list[Any], kept: list[Any], scope: Any) -> list[Any]:
    """The operations of a program with groups of them replaced by kernels, in an order that keeps all dependencies."""
    ops = accumulated(recompose(ops, kept, scope), kept, scope)
    if any([liveness.restrides(op) for op in ops]):
        return ops
    idle = [op for op in ops if op.target._schema.name in liveness.METADATA_WRITERS]  # only who gets their tensors sees what they do
    ops = [op for op in ops if op.target._schema.name not in liveness.METADATA_WRITERS] if idle else ops
    return restrided(Program(Fuser(without_repeated_results(ops, kept), kept, scope)).emit(), idle, kept)


def restrided(ops: list[Any], idle: list[Any], kept: list[Any]) -> list[Any]:
    """`ops`, after which results have the strides that `idle` operations gave them: those that ATen calls made do not."""
    allocated = {op.outs[0].vid for op in ops if op.target in ALLOCATIONS}
    seen = {t.vid for t in liveness.tensors(kept)}
    return ops + [op for op in idle if op.outs[0].vid in seen - allocated]


class Program:
    """Kernels, segments of them, and ATen calls, from the groups of a `Fuser`."""

    def __init__(self, fuser: Fuser) -> None:
        self.fuser = fuser
        self.units = fuser.run()
        self.made_views: set[int] = set()
        self.out: list[Any] = []
        self.launches: list[Launch] = []
        self.segments: list[SegmentCall] = []
        self.own: dict[int, Any] = {}  # what others than the segment that made it read, by vid
        self.shares = Counter(i for u in self.units for i in u.ops)  # operations of which several nests were made

    def is_kernel(self, u: Unit) -> bool:
        if u.nest is None:
            return False
        return u.fused or len(u.ops) > 1 or worth_a_kernel(self.fuser.ops[u.ops[0]])

    def may_join(self, u: Unit) -> bool:
        """Is it an ATen call that may be a kernel, where that makes a segment longer? Concatenations are PyTorch's."""
        alone = u.nest is not None and len(u.ops) == 1 and self.shares[u.ops[0]] == 1
        return use_segments and alone and not any(n.predicated for n in u.nest.loads())  # type: ignore[union-attr]

    def needs(self) -> list[tuple[Unit, list[Any]]]:
        """The groups that must run, each with the puts that somebody else reads (none for an ATen call)."""
        f = self.fuser
        wanted = {f.roots.get(t.vid, t.vid) for t in f.kept}
        kept: list[tuple[Unit, list[Any]]] = []
        for u in reversed(self.units):
            kernel = self.is_kernel(u)
            if kernel or self.may_join(u):
                assert u.nest is not None
                puts = u.nest.checking([p for p in u.nest.puts if not p.fresh or p.root in wanted])
                if not puts:
                    continue
                kept.append((u, puts))
                nest = u.nest.only(puts)
                wanted |= {n.attrs[0] for n in nest.loads()} | {p.root for p in puts if not p.fresh}
                if not kernel:
                    wanted |= {f.roots.get(t.vid, t.vid) for t in liveness.op_inputs(f.ops[u.ops[0]])}
            else:
                (position,) = u.ops
                op = f.ops[position]
                made = liveness.op_outputs(op)
                unread = not any(f.roots.get(t.vid, t.vid) in wanted for t in made)
                if u.nest is not None and unread and not liveness.written(op) and not liveness.has_effect(op):
                    continue
                kept.append((u, []))
                wanted |= {f.roots.get(t.vid, t.vid) for t in liveness.op_inputs(op)}
        kept.reverse()
        return kept

    def items(self) -> list[Item]:
        """What must run, in order."""
        f = self.fuser
        dtypes = runtime.product_dtypes() if use_segments else None
        products = Products(f.facts, lambda t: f.tensors[f.roots[t.vid]], dtypes) if dtypes else None
        items = []
        done: set[int] = set()  # operations of which several nests were made run once
        for u, puts in self.needs():
            ops = [f.ops[i] for i in u.ops]
            if puts:
                launch = Finisher(f.facts, f.tensors, u.nest, puts, f"k{next(_serial)}").finish()
                items.append(item_of_steps([launch], ops, None if self.is_kernel(u) else ops[0]))
            elif u.ops[0] not in done:
                done.add(u.ops[0])
                op = ops[0]
                steps: list[Any] | None = None
                if products is not None:
                    steps = products.steps(op) or (attention_steps(products, op, f.builder.read) if runtime.own_bits() else None)
                    if steps is None and runtime.own_convolutions():
                        steps = convolution_steps(products, op)
                if steps is not None:
                    items.append(item_of_steps(steps, ops, op))
                else:
                    items.append(Item([], op, ops, liveness.op_inputs(op), liveness.op_outputs(op), liveness.written(op)))
        return items

    def emit(self) -> list[Any]:
        """The new list of operations."""
        f = self.fuser
        items = self.items()
        parts = runs(arrange(items, f), f) if use_segments else [[item] for item in items]
        readers = self.readers(parts)
        for k, part in enumerate(parts):
            segment = self.segment(part, {root for root, who in readers.items() if who != {k}}, self.dying(readers, parts, k))
            if segment is not None:
                self.out += self.segmented(segment, part)
                continue
            for item in part:
                if item.op is not None:
                    self.make_views(liveness.op_inputs(item.op))
                    self.out.append(item.op)
                else:
                    (launch,) = item.steps
                    assert isinstance(launch, Launch)
                    self.launches.append(launch)
                    self.out += self.launched(launch, item.ops)
        self.make_views(f.kept)
        if self.segments:
            compile_all(self.launches, self.segments)
        else:
            compile_all(self.launches)
        return self.out

    def readers(self, parts: list[list[Item]]) -> dict[int, set[int]]:
        """Root (by vid) -> the parts of the program that touch it; -1 is whoever gets the results."""
        f = self.fuser
        out: dict[int, set[int]] = {f.roots.get(t.vid, t.vid): {-1} for t in f.kept}
        for k, part in enumerate(parts):
            for item in part:
                for t in (*item.reads, *item.made, *item.written):
                    out.setdefault(f.roots.get(t.vid, t.vid), set()).add(k)
        return out

    def dying(self, readers: dict[int, set[int]], parts: list[list[Item]], k: int) -> list[Any]:
        """What segments before this part made, and it alone still reads: only native code ever knew of it."""
        return [t for vid, t in self.own.items() if max(readers[vid]) == k and all(p >= 0 and parts[p][0].native for p in readers[vid])]

    def segment(self, part: list[Item], outside: set[int], dying: list[Any]) -> Segment | None:
        """One function for a run of kernels, if it is one, and long enough."""
        worth = any(item.op is None or isinstance(item.steps[-1], Gemm | Attention | Convolution) for item in part if item.steps)
        if len(part) == 1:  # a product alone, where ours beat PyTorch's
            worth = bool(part[0].steps) and isinstance(part[0].steps[-1], Gemm | Convolution) and runtime.own_products()
        if not use_segments or not part[0].native or not worth:
            return None
        return make_segment(f"segment{next(_serial)}", part, outside, self.fuser.facts, dying)

    def make_views(self, tensors: list[Any]) -> None:
        """The view operations that tensors need which an ATen call or the caller gets."""
        f = self.fuser
        for t in tensors:
            chain = []
            while t.vid in f.steps:
                step = f.steps[t.vid]
                if id(step.op) in self.made_views:
                    break
                self.made_views.add(id(step.op))
                chain.append(step.op)
                t = step.base
            self.out += reversed(chain)

    def launched(self, launch: Launch, ops: list[Any]) -> list[Any]:
        """The allocations and the call of one kernel."""
        site = raising_site(ops)
        lines = [allocation(launch.buffers[i], site) for i in launch.made]
        written = [t for t, b in zip(launch.buffers, launch.kernel.buffers, strict=True) if b.written]
        lines.append(Op(Call(launch), (*launch.buffers, *launch.sizes), {}, written, "flat", site, -1))
        return lines

    def segmented(self, segment: Segment, part: list[Item]) -> list[Any]:
        """The allocations of what others read, and the call of a segment."""
        site = raising_site([op for item in part for op in item.ops])
        fresh = {t.vid for item in part for t in item.made}
        written = fresh | {t.vid for item in part for t in item.written}
        lines = []
        for t in segment.outer:
            if t.vid in fresh:
                old = segment.taken.get(t.vid)
                lines.append(allocation(t, site) if old is None else Op(TAKE, (old,), {}, [t], None, site, -1))
                self.own[t.vid] = t
        call = SegmentCall(segment)
        self.segments.append(call)
        outs = [t for t in segment.outer if t.vid in written]
        lines.append(Op(call, (*segment.outer, *segment.leaves), {}, outs, "flat", site, -1))
        return lines


def raising_site(ops: list[Any]) -> Any:
    """Where native code that stands for `ops` raises, if it does: at one of those that check data, at best one inside a handler."""
    checks = [op.site for op in ops if liveness.has_effect(op)]
    handled = [s for s in checks if (place := place_of(s, {})) is not None and place.handled]
    return (handled or checks or [ops[-1].site])[-1]


def allocation(t: Any, site: Any) -> Op:
    """The operation that makes memory for `t`."""
    options = {"dtype": t.dtype, "device": t.device}
    if t.dense:
        return Op(aten.empty.memory_format, (t.sizes,), options, [t], None, site, -1)
    return Op(aten.empty_strided.default, (t.sizes, t.strides), options, [t], None, site, -1)


class Call:
    """The target of an operation that is a kernel. `launcher` is there when the kernels of the graph have been compiled."""

    __slots__ = ("launch",)

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @property
    def launcher(self) -> Callable[..., None]:
        run, into = _compiled[self.launch.key], debug.folder()
        return run if into is None else debug.dumping(run, self.launch, into)

    def __str__(self) -> str:
        return self.launch.kernel.name


class SegmentCall:
    """The target of an operation that is a segment. `launcher` is set when it has been compiled."""

    __slots__ = ("launcher", "segment")

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.launcher: native.Launcher | None = None

    def __str__(self) -> str:
        return self.segment.name


def compile_all(launches: list[Launch], segments: list[SegmentCall] | tuple[()] = ()) -> None:
    """Compile the segments, and of the kernels what was not compiled before in this process, all of it in one module."""
    with _lock:
        every = [*launches, *(launch for call in segments for launch in call.segment.launches)]
        new = {launch.key: launch for launch in reversed(every) if launch.key not in _compiled}
        identities = [identity_of(call.segment) for call in segments]
        fresh = {i: call.segment for i, call in zip(identities, segments, strict=True) if i not in _addresses}
        if new or fresh:
            symbols: dict[Hashable, str] = {key: f"k{i}" for i, key in enumerate(new)}
            known: dict[str, int] = {}
            for _, called in fresh:
                for key in called:
                    if key not in symbols:
                        name = symbols[key] = f"x{len(known)}"
                        known[name] = _addresses[key]
            made = compile_module({key: launch.kernel for key, launch in new.items()}, fresh, symbols, known)
            for (key, launch), address in zip(new.items(), made.kernels, strict=True):
                itemsizes = bytes(DTYPES[b.dtype].bits // 8 for b in launch.kernel.buffers)
                _addresses[key] = address
                _compiled[key] = native.Launcher(address, itemsizes, len(launch.sizes), launch.kernel.name)
            _addresses.update(zip(fresh, made.segments, strict=True))
        for call, i in zip(segments, identities, strict=True):
            s = call.segment
            address = _addresses[i]
            call.launcher = native.Launcher(address, bytes(t.dtype.itemsize for t in s.outer), len(s.leaves), s.name)
