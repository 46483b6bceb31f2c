"""The backend `"native"`: fused CPU kernels between ATen calls.

The operations of a graph are grouped by `lower/fuse.py`; each group becomes one kernel, compiled once for all sizes (`codegen/cpu`), and
one line of the straight-line program that `codegen/aten.py` prints. What no kernel computes stays the ATen call that it was.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable
from itertools import count
from typing import Any

import torch

from pliant import native
from pliant.codegen.aten import Executable
from pliant.codegen.cpu.compile import compile_kernels
from pliant.codegen.region import compile_region
from pliant.graph.record import Op
from pliant.lower import liveness
from pliant.lower.fuse import Fuser, Unit
from pliant.lower.kernels import Finisher, Launch
from pliant.lower.loops import DTYPES
from pliant.lower.recompose import recompose

aten = torch.ops.aten
_serial = count()
_compiled: dict[Hashable, native.Launcher] = {}
_lock = threading.Lock()

ALONE = frozenset(
    getattr(aten, name).default
    for name in (
        "_softmax", "_log_softmax", "native_layer_norm", "native_layer_norm_backward", "_softmax_backward_data",
        "_log_softmax_backward_data", "gelu", "gelu_backward", "silu", "silu_backward", "tanh", "erf", "mish", "logsumexp",
        "_native_batch_norm_legit_no_training", "native_batch_norm",
    )
)  # fmt: skip
"""Operations that are worth a kernel of their own: PyTorch's takes several passes or slower mathematics."""


def compile_native(trace: Any, inputs: list[Any], outputs: Any, *, name: str = "region") -> Executable:
    """The executable of a captured region with fused kernels; arguments as for `compile_region`."""
    return compile_region(trace, inputs, outputs, name=name, lower=lower)


def lower(ops: list[Any], kept: list[Any], scope: Any) -> list[Any]:
    """The operations of a program with groups of them replaced by kernels, in an order that keeps all dependencies."""
    ops = recompose(ops, kept, scope)
    if any(op.target._schema.name in liveness.METADATA_WRITERS for op in ops):
        return ops
    return Program(Fuser(ops, kept, scope)).emit()


class Program:
    """Kernels and ATen calls, from the groups of a `Fuser`."""

    def __init__(self, fuser: Fuser) -> None:
        self.fuser = fuser
        self.units = fuser.run()
        self.made_views: set[int] = set()
        self.out: list[Any] = []

    def is_kernel(self, u: Unit) -> bool:
        return u.nest is not None and (u.fused or len(u.ops) > 1 or self.fuser.ops[u.ops[0]].target in ALONE)

    def needs(self) -> list[tuple[Unit, list[Any]]]:
        """The groups that must run, each with the puts that somebody else reads (none for an ATen call)."""
        f = self.fuser
        wanted = {f.roots.get(t.vid, t.vid) for t in f.kept}
        kept: list[tuple[Unit, list[Any]]] = []
        for u in reversed(self.units):
            if self.is_kernel(u):
                assert u.nest is not None
                puts = [p for p in u.nest.puts if not p.fresh or p.root in wanted]
                if not puts:
                    continue
                kept.append((u, puts))
                nest = type(u.nest)(u.nest.dims, u.nest.reduced, puts, u.nest.ops)
                wanted |= {n.attrs[0] for n in nest.loads()} | {p.root for p in puts if not p.fresh}
            else:
                (position,) = u.ops
                op = f.ops[position]
                made = liveness.op_outputs(op)
                if u.nest is not None and not liveness.written(op) and not any(f.roots.get(t.vid, t.vid) in wanted for t in made):
                    continue
                kept.append((u, []))
                wanted |= {f.roots.get(t.vid, t.vid) for t in liveness.op_inputs(op)}
        kept.reverse()
        return kept

    def emit(self) -> list[Any]:
        """The new list of operations."""
        f = self.fuser
        launches = []
        done: set[int] = set()  # operations of which several nests were made run once
        for u, puts in self.needs():
            if puts:
                launch = Finisher(f.facts, f.tensors, u.nest, puts, f"k{next(_serial)}").finish()
                launches.append(launch)
                self.out += self.launched(launch, [f.ops[i] for i in u.ops])
            elif u.ops[0] not in done:
                done.add(u.ops[0])
                self.make_views(liveness.op_inputs(f.ops[u.ops[0]]))
                self.out.append(f.ops[u.ops[0]])
        self.make_views(f.kept)
        compile_all(launches)
        return self.out

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
        site = ops[-1].site
        lines = []
        for i in launch.made:
            t = launch.buffers[i]
            options = {"dtype": t.dtype, "device": t.device}
            if t.dense:
                lines.append(Op(aten.empty.memory_format, (t.sizes,), options, [t], None, site, -1))
            else:
                lines.append(Op(aten.empty_strided.default, (t.sizes, t.strides), options, [t], None, site, -1))
        written = [t for t, b in zip(launch.buffers, launch.kernel.buffers, strict=True) if b.written]
        lines.append(Op(Call(launch), (*launch.buffers, *launch.sizes), {}, written, "flat", site, -1))
        return lines


class Call:
    """The target of an operation that is a kernel. `launcher` is there when the kernels of the graph have been compiled."""

    __slots__ = ("launch",)

    def __init__(self, launch: Launch) -> None:
        self.launch = launch

    @property
    def launcher(self) -> native.Launcher:
        return _compiled[self.launch.key]

    def __str__(self) -> str:
        return self.launch.kernel.name


def compile_all(launches: list[Launch]) -> None:
    """Compile what was not compiled before in this process, all of it in one module."""
    with _lock:
        new: dict[Hashable, Launch] = {}
        for launch in launches:
            if launch.key not in _compiled:
                new.setdefault(launch.key, launch)
        if not new:
            return
        addresses = compile_kernels([launch.kernel for launch in new.values()])
        for (key, launch), address in zip(new.items(), addresses, strict=True):
            itemsizes = bytes(DTYPES[b.dtype].bits // 8 for b in launch.kernel.buffers)
            _compiled[key] = native.Launcher(address, itemsizes, len(launch.sizes), launch.kernel.name)


