"""The table of functions: NumPy function -> what computes it in the graph. What a row raises breaks the graph around that one call."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

from pliant.errors import PliantError
from pliant.graph.originals import numpy as np
from pliant.graph.originals import torch
from pliant.graph.traced import TracedTensor
from pliant.guards import source as S
from pliant.guards.views import VIEWS
from pliant.interpret import output, process_state, shadows
from pliant.interpret.arrays.dtypes import SCALARS, Unsure
from pliant.interpret.arrays.memory_order import settled
from pliant.interpret.calls import LOOKASIDES
from pliant.interpret.state import Break, vm

CODE = "PL0026"
FUNCTIONS: dict[Any, Callable[..., Any]] = {}
"""Functions of NumPy, and what they are in the graph: called with the program's arguments, proxies among them."""

PLAIN = {bool, int, float, complex, str, bytes, type(None), type(Ellipsis), *SCALARS}
ERRORS = S.const(sys.modules["numpy"]).apply("lenient_errors")


def ready() -> None:
    """Nothing may come between a function of NumPy and its operators; floating-point errors and warnings must raise nothing."""
    if torch._C._len_torch_function_stack() or torch._C._is_any_autocast_enabled():
        raise Unsure("a mode of torch is on")
    world = vm.world
    if (ERRORS, "EQ_MATCH", None) not in world.guards:
        if not VIEWS["lenient_errors"](np):
            raise Unsure("floating-point errors raise (np.errstate)")
        if process_state.some_warning_raises():
            raise Unsure("NumPy's warnings may raise")
        process_state.question(process_state.some_warning_raises, (), {}, False)
        world.guard(ERRORS, "EQ_MATCH", True)
    if output.heard():
        raise Unsure("NumPy's warnings may be heard")


def compute(name: str, impl: Callable[..., Any], args: tuple, kw: dict) -> Any:
    """`impl(*args, **kw)`, or a graph break around the call of NumPy that it stands for."""
    try:
        ready()
        return settled(name, impl(*args, **kw), args, kw)
    except PliantError:
        raise
    except Exception as e:
        reason = str(e).splitlines()[0] if str(e) else type(e).__name__
        raise Break(CODE, f"{name}: {reason}", clean=True) from e


def told_by(run: Callable[[], Any]) -> list[tuple[str, type[Warning]]]:
    """What NumPy warns of, in its own words."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        run()
    return [(str(w.message), w.category) for w in told]


WRAPPED = told_by(lambda: np.add(torch.zeros(1, device="cpu"), np.zeros(1)))
"""A ufunc's answer is made a tensor."""
COPIED = told_by(lambda: np.array(torch.zeros(1, device="cpu")))
"""An array of its own is asked of a tensor."""


def warn(told: list[tuple[str, type[Warning]]]) -> None:
    """Each call of the program warns so."""
    for words in told:
        output.l_warn(words, {})


def name_of(fn: Any) -> str:
    name = getattr(fn, "__name__", None) or type(fn).__name__
    module = getattr(fn, "__module__", None) or "numpy"
    return f"{module}.{name}"


OF_TENSORS = {np.array, np.asarray, np.asanyarray, np.ascontiguousarray, np.where, np.isclose, np.allclose, np.array_equal, np.sort,
    np.angle, np.median, np.percentile, np.quantile, np.unique, np.diff, np.atleast_1d, np.atleast_2d, np.expand_dims, np.roll, np.tile,
    np.interp, np.einsum, np.average, np.linalg.norm}  # fmt: skip
"""Functions that make an array of a tensor, and go on with that."""


def without_tensors(name: str, args: tuple, kw: dict) -> None:
    """Raises Break for a tensor: most functions ask it for a method (`np.sum`), or make a tensor of their answer (`__array_wrap__`)."""
    if any([type(v) is TracedTensor for v in (*args, *kw.values())]):
        raise Break(CODE, f"{name} of a tensor: NumPy asks the tensor's own methods", clean=True)


def enter(fn: Any, impl: Callable[..., Any]) -> None:
    name = name_of(fn)
    FUNCTIONS[fn] = impl

    def call(args: tuple, kw: dict) -> Any:
        if fn not in OF_TENSORS:
            without_tensors(name, args, kw)
        return compute(name, impl, args, kw)

    LOOKASIDES[fn] = call


def function(*fns: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a row. Arguments have NumPy's names; those that the row lacks, `out` and `where` mostly, break the graph."""

    def register(impl: Callable[..., Any]) -> Callable[..., Any]:
        for fn in fns:
            enter(fn, impl)
        return impl

    return register


def constant(v: Any, depth: int = 4) -> bool:
    """Whether a value is known now, through and through: NumPy can be asked at once."""
    t = type(v)
    if t in PLAIN or isinstance(v, np.dtype) or (isinstance(v, type) and issubclass(v, (np.generic, int, float, bool, complex))):
        return True
    if t is list or t is tuple:
        if t is list and id(v) in vm.world.by_copy:
            shadows.read_deep(vm.world, v)
        return depth > 0 and all([constant(x, depth - 1) for x in v])
    return t is slice and constant((v.start, v.stop, v.step))


def asked(fn: Callable[..., Any], *args: Any, **kw: Any) -> Any:
    """NumPy's own answer about constants: a scalar or other plain value. Raises Unsure where it warns, as it would on each call."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            r = fn(*args, **kw)
        except Warning as e:
            raise Unsure(str(e)) from None
    if type(r) not in PLAIN and not (type(r) is tuple and all([type(x) in PLAIN for x in r])):
        raise Unsure(f"a {type(r).__name__} made of constants")
    return r
