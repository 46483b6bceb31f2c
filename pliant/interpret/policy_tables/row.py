"""What a row of the call policy says, and how the names in it are found.

A row names functions by *where they live* (`space`: a module, a class, or an object such as `torch._C._VariableFunctions`) and
gives all of them one kind. Names that this Python or torch does not have are passed over, so one table serves several versions.
A module that was never imported is not imported for the table's sake: its rows wait until it is there.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any, NamedTuple

KINDS = {
    "graph": "a torch function: run on traced tensors and recorded at Torch level",
    "native": "CPython runs it on the real objects: pure on what it is given; a symbolic int that it needs as an int is specialized",
    "symint": "native, and made for symbolic ints as well: it only calls their operators, or only holds them",
    "inline": "its Python code is interpreted",
    "native_python": "Python code that CPython runs: plumbing whose answer depends on its arguments alone",
    "constant": "its answer does not change while the process runs, or is guarded with torch's global state: called once, now",
    "skip": "it acts on the world, or nobody vouched for it: the graph breaks at the call",
}


RUN = {"native", "symint", "native_python", "constant"}
"""Kinds that are run while capturing, outside of the graph: what they read of the world would be baked in, unless somebody guards it."""

READS = {
    "arguments": "nothing but what it is given, and that has been through the gate (`interpret/gate.py`)",
    "process": "what stays as it is while the process runs: versions, what is built in or installed, the machine",
    "capture": "whether the program is being compiled, traced, scripted or exported: capturing is the answer",
    "torch": "PyTorch's state that every graph's guards compare (GLOBAL_STATE)",
    "autocast": "autocast's state: of the CPU and of CUDA in GLOBAL_STATE, of other devices asked again",
    "itself": "the very setting that it answers: each call's guards ask it again (ANSWER)",
    "decimal": "the decimal context of the thread, which is asked again",
    "kernels": "which kernels of attention, convolution and normalization are allowed: their switches are asked again",
    "device": "the current device, which is asked again",
    "trees": "which classes are registered with optree as containers: their number is asked again",
    "caches": "a cache or registry of its own that only saves time, or in which asking makes what is not there",
    "asserted": "whatever it likes: the user asserts that its result stays the same (`torch.compiler.assume_constant_result`)",
    "writes": "nothing: it sets state, which is put back at the end of a capture and set again by emitted code",
}
"""What functions read beyond their arguments. `interpret/process_state.py` says how each is guarded."""


class Row(NamedTuple):
    """`names` is a list of names separated by blanks; `*` stands for every callable of the space that no other row names."""

    space: str
    kind: str
    names: str
    code: str = ""  # graph-break code of a skip
    why: str = ""  # what the break says; empty: the title of its code
    returns: str = "new"  # "new", or "outside": the result belongs to the world before the capture and is looked up there
    reads: str = ""  # a row of `READS`: what it looks at beyond its arguments; of what runs outside of the graph, each row says so


class Policy(NamedTuple):
    """How to call something. `explicit` is False where no table names it and a default decided."""

    kind: str
    returns: str = "new"
    code: str = ""
    why: str = ""
    explicit: bool = True
    reads: str = "arguments"


def member(space: Any, name: str) -> Any:
    """`space.name` without running code: a module's lazy attributes are not asked for (they would import things)."""
    if isinstance(space, ModuleType):
        return vars(space).get(name)
    return getattr(space, name, None)


def is_unfinished(module: ModuleType) -> bool:
    """Whether a module is being imported: its functions are yet to come."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def find_space(path: str) -> Any:
    """The module, class or object that a row's `space` means; None while its module is not imported or has no such part."""
    parts = path.split(".")
    for n in range(len(parts), 0, -1):
        obj: Any = sys.modules.get(".".join(parts[:n]))
        if obj is not None:
            if is_unfinished(obj):
                return None
            for name in parts[n:]:
                obj = member(obj, name)
                if obj is None:
                    return None
            return obj
    return None


def policy_of(row: Row) -> Policy:
    """The policy that a row gives to its names."""
    return Policy(row.kind, row.returns, row.code, row.why, reads=row.reads)


def skips(code: str, why: str, rows: dict[str, str]) -> list[Row]:
    """Rows `{space: names}` that break with one code and one sentence."""
    return [Row(space, "skip", names, code, why) for space, names in rows.items()]


def rows(kind: str, table: dict[str, str], returns: str = "new", reads: str = "") -> list[Row]:
    """Rows `{space: names}` of one kind."""
    return [Row(space, kind, names, returns=returns, reads=reads) for space, names in table.items()]
