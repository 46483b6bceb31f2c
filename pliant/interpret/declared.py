"""What the user declared of input sizes: where it is looked up, and the symbols that it makes.

Three ways to declare: `pliant.mark_dynamic(tensor, dim)` and its like leave marks on a tensor; so do `torch._dynamo.mark_dynamic` and its
like; `pliant.compile(fn, dynamic={...})` says it of parameters. All are read here, when a capture first meets the tensor or the number.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL
from pliant.graph.symnode import to_sym
from pliant.guards.source import Source
from pliant.interpret.state import current_site
from pliant.symbolic.dims import FREE, Derived, Dim, Mark, declare

#: The attribute of a marked tensor: `{dim: Dim | Derived | Mark}`.
MARKS = "_pliant_dims"

#: Sizes and numbers that get no symbol unless something is declared of them or they changed: programs branch on them as a rule.
SPECIALIZED_INTS = (0, 1)

#: Attributes that PyTorch's own marks leave on a tensor, each a set of dims, and what they say. Of a dim named twice the later row holds.
#: Its ranges are hints there (a size outside of them is compiled anew), and so they promise nothing here.
TORCH_MARKS = {
    "_dynamo_weak_dynamic_indices": Mark.MAYBE,
    "_dynamo_dynamic_indices": Mark.DYNAMIC,
    "_dynamo_unbacked_indices": Mark.UNBACKED,
    "_dynamo_strict_unbacked_indices": Mark.UNBACKED,
    "_dynamo_static_indices": Mark.STATIC,
}

Declared = Dim | Derived | Mark
#: Steps from a parameter to a value: its name, then `("index", 0)`, `("key", "ids")`...
Path = tuple[Any, ...]


def path_of(source: Source) -> Path | None:
    """The path of a source that leads from a parameter through containers; None for all others."""
    steps: list[Any] = []
    s = source
    while s.op in ("index", "key") and s.base is not None:
        steps.append((s.op, s.arg))
        s = s.base
    return (s.arg[1], *reversed(steps)) if s.op == "local" else None


def marks_of(declared: Any, v: Any, source: Source) -> dict[int, Declared]:
    """What is declared of the dims of tensor `v` (`declared`: by path, from `compile`); what `compile` was told comes first."""
    marks = torch_marks(v) if hasattr(v, "_has_dynamo_dim_marking") else {}
    marks |= getattr(v, MARKS, None) or {}
    if declared:
        for d, mark in declared.get(path_of(source)) or ():
            if d is not None:
                marks[d + ORIGINAL.dim(v) if d < 0 else d] = mark
    return marks


def torch_marks(v: Any) -> dict[int, Declared]:
    """What PyTorch's own functions declared of the dims of tensor `v`."""
    n = ORIGINAL.dim(v)
    return {d % n: mark for name, mark in TORCH_MARKS.items() for d in getattr(v, name, ()) if -n <= d < n}


def number_mark(declared: Any, source: Source) -> Declared | None:
    """What is declared of an int parameter."""
    found = declared.get(path_of(source)) or ()
    return next((mark for d, mark in found if d is None), None)


def symbol(world: Any, mark: Declared, hint: int, source: Source) -> Any:
    """The size (or int) read at `source` as the mark wants it: a `torch.SymInt`, or a number."""
    scope = world.scope
    if mark is Mark.STATIC:
        return hint
    if isinstance(mark, Mark):
        name = world.new_symbol(source)
        if mark is Mark.UNBACKED:
            return to_sym(scope, scope.unbacked(name, lo=0, size_like=True, source=source))
        if mark is Mark.DYNAMIC:
            return to_sym(scope, scope.backed(name, hint=hint, lo=0, source=source, size_like=True, dim=FREE))
        return to_sym(scope, scope.backed(name, hint=hint, lo=0, source=source, size_like=True))
    base = mark.base if isinstance(mark, Derived) else mark
    before = len(scope.symbols)
    expr = declare(scope, mark, hint, source, current_site(), name=f"{base.name}_size")
    for name in list(scope.symbols)[before:]:
        world.symbols[name] = scope.symbols[name].info.source
    return to_sym(scope, expr)
