"""Export: a captured program as a file, and in the formats of other runtimes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from pliant.export.program import Program, door


def export(
    f: Any, args: tuple = (), kwargs: Mapping[str, Any] | None = None, *, dynamic: Any = None, form: str = "core"
) -> Program:
    """The program that one call `f(*args, **kwargs)` runs, whole, for all sizes that it works for.

    `f` is a function, a module or a callable object. Every size of a tensor argument and every number is symbolic, 0 and 1 too, until
    the program itself pins it; `dynamic` says more, as for `pliant.compile`: dims by parameter (`{"x": {0: Dim("batch")}}`, or False
    for static ones), or False for all static. `form`: "core" (functional, PyTorch's Core ATen operators), "aten" (as recorded), "torch"
    (calls of the torch API, before autograd), "training" (with gradients). The call is not run: only its operations are recorded.

    Raises `GraphBreakError`, which lists every break with its line and fix, where the program is not one graph; `PliantError` for an
    effect or a result that a program cannot have; `ConstraintViolation` where a declared dim is pinned; what `f` itself raises.
    """
    return door("capture:whole")(f, tuple(args), dict(kwargs or {}), dynamic, form)


def load(path: Any, *, libraries: Iterable[str] = (), machine_code: bool = False) -> Any:
    """The program that `Program.save` or `Program.compile` wrote to `path`; see `file.load`. An untrusted file can do nothing but fail.

    `machine_code=True` runs the machine code that `Program.compile` put into the file: nothing is compiled then, but the file is trusted
    as any program is that one starts. A `Compiled` comes back, which is called as the program is.
    """
    if machine_code:
        return door("compiled:load")(path, libraries)
    return door("file:load")(path, libraries=libraries)


__all__ = ["Program", "export", "load"]
