"""The program IR: one graph on its way from captured ATen operations to calls of machine code.

A `Program` is a straight line of typed steps over traced tensors, whose dtypes, sizes and strides (expressions) they carry. It is lowered
level by level (progressive lowering, as MLIR calls it), and each level has its own type of step:

    level          step            what it is
    graph          Op              an ATen operation (`graph/record.py`), as captured
    groups         Group           operations fused to one loop nest, or one operation that no nest computes (opaque)
    instructions   Instruction     what a processor runs: kernels or library calls, or the ATen call, or either
    runs           Run             instructions that follow each other in one native function (a segment), or a single one
    calls          Op              ATen calls and views, `Alloc`, `KernelCall`, `SegmentCall`, `REUSE`: what `codegen/aten.py` prints

`lower/pipeline.py` has the passes, `lower/verify.py` the rules that hold after each, `lower/text.py` the text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pliant.graph.record import Op
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.lower.aliases import Aliases
from pliant.lower.attention import Attention
from pliant.lower.conv import Convolution
from pliant.lower.gemm import Gemm
from pliant.lower.int8 import DynamicLinear, Int8Product
from pliant.lower.kernels import Launch
from pliant.lower.loop_nest import Facts, LoopNest, TensorStore

GRAPH, GROUPS, INSTRUCTIONS, RUNS, CALLS = LEVELS = ("graph", "groups", "instructions", "runs", "calls")

LibraryCall = Gemm | Attention | Convolution | Int8Product | DynamicLinear
"""A routine of pliant's own library (`native/`), or of a BLAS, that native code calls."""
NativeStep = Launch | LibraryCall


@dataclass(slots=True, eq=False)
class Group:
    """Operations that run together: one loop nest, or one opaque operation (`nest` is None).

    `ops` are positions in the graph. `reads`: root (by vid) -> the group that had written it last, -1 for nobody here. `library`: what may
    run in place of an opaque operation.
    """

    index: int
    nest: LoopNest | None
    ops: list[int]
    deps: set[int] = field(default_factory=set)
    reads: dict[int, int] = field(default_factory=dict)
    fused: bool = False  # it became one kernel out of several operations, or swallowed values computed elsewhere
    library: list[NativeStep] = field(default_factory=list)
    stores: list[TensorStore] = field(default_factory=list)  # those that somebody else reads


@dataclass(slots=True, eq=False)
class Instruction:
    """What runs: kernels or library calls (`steps`), or the ATen call `op`, or either of the two, as its neighbours are.

    `ops` are the operations that it stands for. `reads` and `written` (memory from before) and `made` are root tensors.
    """

    steps: list[NativeStep]
    op: Any
    ops: list[Any]
    reads: list[TracedTensor] = field(default_factory=list)
    made: list[TracedTensor] = field(default_factory=list)
    written: list[TracedTensor] = field(default_factory=list)
    index: int = -1
    deps: set[int] = field(default_factory=set)

    @property
    def native(self) -> bool:
        return bool(self.steps)

    @property
    def only_checks(self) -> bool:
        effects = [op for op in self.ops if liveness.has_effect(op)]
        return bool(effects) and all(op.outs and liveness.only_checks(op.target) and not liveness.sized_by_data(op) for op in effects)

    @property
    def has_effect(self) -> bool:
        """Of kernels: they check indices."""
        return any(map(liveness.has_effect, self.ops))


@dataclass(slots=True, eq=False)
class Run:
    """Instructions that follow each other, all of them native or none. `segment` is the native function that they become, if they do."""

    instructions: list[Instruction]
    segment: Any = None

    @property
    def native(self) -> bool:
        return self.instructions[0].native


class Alloc(Op):
    """Memory that is made for kernels to write."""

    __slots__ = ()


class KernelCall:
    """The target of an operation that is a kernel. `launcher` is set when it has been compiled."""

    __slots__ = ("checks", "fails", "launch", "launcher")

    def __init__(self, launch: Launch, checks: list[Any] | None = None, fails: bool = True) -> None:
        self.launch = launch
        self.launcher: Callable[..., None] | None = None
        self.checks = checks or []  # operations that tell which of its checks fails first (`rechecks.py`)
        self.fails = fails  # whether it checks data at all

    def __str__(self) -> str:
        return self.launch.kernel.name


class SegmentCall:
    """The target of an operation that is a segment. `launcher` is set when it has been compiled."""

    __slots__ = ("checks", "fails", "launcher", "segment")

    def __init__(self, segment: Any, checks: list[Any] | None = None, fails: bool = True) -> None:
        self.segment = segment
        self.launcher: Callable[..., None] | None = None
        self.checks = checks or []
        self.fails = fails

    def __str__(self) -> str:
        return self.segment.name


class Reuse:
    """The target of an operation whose result takes the memory of its operand, which nobody reads any more once it is written."""

    def __str__(self) -> str:
        return "reuse"


class ExternalCall:
    """The target of an operation that somebody else runs: `run(*operands)` gives its results (`pliant.remote`). It writes to `writes`."""

    __slots__ = ("name", "run", "writes")

    def __init__(self, name: str, run: Callable[..., tuple], writes: list[TracedTensor]) -> None:
        self.name, self.run, self.writes = name, run, writes

    def __str__(self) -> str:
        return self.name


REUSE = Reuse()


OURS = frozenset((KernelCall, SegmentCall, ExternalCall, Reuse))


def is_aten(target: Any) -> bool:
    """An operator of PyTorch or of a library for it, rather than something of ours."""
    return type(target) not in OURS


@dataclass(slots=True, eq=False)
class Program:
    """A graph on its way down.

    `inputs`: the slots, a traced tensor or a symbol each; other tensors that the steps read and nobody makes are given too (what was saved
    for a backward pass, gradients). `outputs`: values that are wanted: traced tensors, symbolic numbers, constants. `asserts`: expressions
    that are checked at run time. `closed`: dead code has gone, so that nothing is read but what is given. `deferred`: operations on tensor
    objects alone, to be done when all else is. `target`: the processor (`codegen/target.py`), None where only ATen is called.
    """

    name: str
    scope: Any
    inputs: list[Any]
    outputs: list[Any]
    steps: list[Any]
    level: str = GRAPH
    asserts: list[Any] = field(default_factory=list)
    keep_effects: bool = True
    closed: bool = True
    deferred: list[Op] = field(default_factory=list)
    target: Any = None
    facts: dict[str, Any] = field(default_factory=dict)

    def fact(self, name: str) -> Any:
        """What `FACTS` says of this program, worked out once; a pass invalidates all that it does not name as kept."""
        found = self.facts.get(name)
        if found is None:
            found = self.facts[name] = FACTS[name](self)
        return found

    @property
    def sizes(self) -> Facts:
        """What is known of sizes."""
        return self.fact("sizes")

    def replaced(self, steps: list[Any], level: str = "", keeps: Iterable[str] = (), **other: Any) -> Program:
        """The program with these steps. What is known of sizes stays true; of other facts, those in `keeps` do."""
        kept = {name: self.facts[name] for name in ("sizes", *keeps) if name in self.facts}
        fields = {
            "name": self.name, "scope": self.scope, "inputs": self.inputs, "outputs": self.outputs, "asserts": self.asserts,
            "keep_effects": self.keep_effects, "closed": self.closed, "deferred": self.deferred, "target": self.target, **other,
        }  # fmt: skip
        return Program(steps=steps, level=level or self.level, facts=kept, **fields)


FACTS: dict[str, Callable[[Program], Any]] = {
    "sizes": lambda p: Facts(p.scope),
    "aliases": lambda p: Aliases(p.steps, p.outputs),
    "uses": lambda p: Counter(t.vid for op in p.steps for t in liveness.op_inputs(op)),
    "readers": lambda p: {t.vid: op for op in p.steps for t in liveness.op_inputs(op)},
    "makers": lambda p: {op.outs[0].vid: op for op in p.steps if len(op.outs) == 1 and isinstance(op.outs[0], TracedTensor)},
    "dirty": lambda p: liveness.dirty_memory(p.steps),
}
"""Facts of a program at level "graph", by name: how often each tensor is read, by whom (the last one), who makes it, what is written."""
