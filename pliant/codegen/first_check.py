"""A native call that checks more than once, behind a write: should it raise, ATen tells which check is the first (`lower/rechecks.py`)."""

from __future__ import annotations

from typing import Any

from pliant.codegen.effects import cannot_repeat
from pliant.lower import liveness


def told(writer: Any, op: Any, call: str, reads: set[str]) -> list[str]:
    """The lines of the call `call` of native code, which `op` is."""
    checks = op.target.checks
    memory = {t.storage_id for t in writer.inputs}
    if not checks or not is_behind(writer.ops, op, memory):
        return [call]
    made = {t.vid for o in checks for t in liveness.op_outputs(o)}
    slots = {t.vid: t for o in checks for t in liveness.op_inputs(o) if t.vid not in made and t.constant is None}
    names = [writer.names.get(vid, "") for vid in slots]
    numbers = [e for o in checks for e in liveness.op_numbers(o)]
    symbols = list(dict.fromkeys(s.name for e in numbers for x in (e, writer.scope.simplify(e)) for s in x.symbols()))
    if not writer.known.issuperset(symbols) or not all([name in reads or name[:1] == "p" for name in names]):
        return [call]
    name = f"{writer.name}_{op.target}_checks"
    again = type(writer)(name, writer.scope, [*slots.values(), *symbols], [], checks, []).finish(True)
    writer.globals[f"_{name}"] = again.fn
    return [f"try: {call}", "except (IndexError, RuntimeError):", f"    _{name}({', '.join([*names, *symbols])})", "    raise"]


def is_behind(ops: list[Any], last: Any, memory: set[int]) -> bool:
    """Whether the frame could not run anew should `last` raise."""
    for op in ops:
        if cannot_repeat(op, memory):
            return True
        if op is last:
            return False
    return False
