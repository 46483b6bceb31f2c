"""Functions of Python's own of numbers from data, called by the graph: `round(x, 2)`, `math.hypot(x, y)`, `sorted([x, y, z])`.

What no operator of expressions is, but gives a number for numbers, needs no graph break: the numbers become tensors without dims, the
operator calls the very function on what is in them, and its result is read like every other number from data. So the answers, NaN and -0.0
among them, and the errors are CPython's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.data_errors import CHECKS_DATA
from pliant.graph.originals import math, torch
from pliant.graph.own_operators import register_fake
from pliant.graph.seeding import LIBRARY
from pliant.graph.traced import TracedTensor
from pliant.interpret import globalstate
from pliant.interpret.calls import LOOKASIDES, call, graph_call, native
from pliant.interpret.capture import UNSET
from pliant.interpret.comparisons import of_data
from pliant.interpret.state import by_value, vm
from pliant.interpret.types.tensors import item
from pliant.symbolic.magnitude import WORD, bits

KINDS: dict[type, type] = {int: int, float: float, torch.SymInt: int, torch.SymFloat: float}
DTYPES = {int: torch.int64, float: torch.float64}

TOTAL = ("round", "asinh", "atan2", "cbrt", "copysign", "erf", "erfc", "fabs", "hypot")
"""Functions of `math`, and `round`, that give a float for all numbers."""
PARTIAL = ("acosh", "atanh", "exp2", "expm1", "fmod", "gamma", "lgamma", "log10", "log1p", "pow", "remainder")
"""Those that raise for some."""
FUNCTIONS: dict[str, Callable] = {
    **{name: getattr(math, name) for name in (*TOTAL, *PARTIAL) if hasattr(math, name)},
    "round": round, "gcd": math.gcd, "isqrt": math.isqrt, "power": pow,
}  # fmt: skip


def operator(schema: str, fn: Callable[..., Any], dtype: torch.dtype, *, many: bool = False, raises: bool = False) -> Any:
    """An operator that calls `fn` on the numbers in its tensors, for a number, or as many as the first tensor has. `raises`: on some."""
    name = schema.partition("(")[0]
    shape = (lambda x: x.shape) if many else lambda x: ()
    LIBRARY.define(schema)
    LIBRARY.impl(name, lambda *args: torch.tensor(fn(*map(plain, args)), dtype=dtype, device="cpu"), "CPU")
    register_fake(LIBRARY, name, lambda *args: torch.empty(shape(args[0]), dtype=dtype, device="cpu"))
    made = getattr(torch.ops.pliant, name).default
    if raises:
        CHECKS_DATA.add(made)
    return made


def plain(x: Any) -> Any:
    return x.tolist() if isinstance(x, torch.Tensor) else [plain(t) for t in x] if isinstance(x, (list, tuple)) else x


def named(name: str, x: list[Any]) -> Any:
    return FUNCTIONS[name](*x)


SCHEMA = "(str name, Tensor[] x) -> Tensor"
OPERATORS: dict[tuple[type, bool], Any] = {
    (kind, raises): operator(f"number_{kind.__name__}{'_raises' * raises}{SCHEMA}", named, DTYPES[kind], raises=raises)
    for kind in (int, float) for raises in (False, True)
}  # fmt: skip


def kind_of(values: Any) -> type | None:
    """The one type that all of these have, int or float, if graphs may have tensors of them."""
    kinds = {KINDS.get(type(v)) for v in values}
    kind = kinds.pop() if len(kinds) == 1 else None
    return kind if kind is not None and all(map(fits, values)) else None


def fits(v: Any) -> bool:
    """Whether a number is one of 64 bits."""
    if type(v) is int:
        return v.bit_length() <= WORD
    return type(v) is not torch.SymInt or bits(v.node.expr) <= WORD


def may_be_called() -> bool:
    """Whether the graph may make tensors of numbers here, of which the program knows nothing."""
    return vm.trace is not None and not vm.asking and not globalstate.user_modes() and not by_value()


def tensor_of(values: Any, kind: type) -> Any:
    """A number, or a list of them, as a tensor on the CPU."""
    return call(torch.tensor, (values,), {"dtype": DTYPES[kind], "device": "cpu"})


def asked(name: str, values: tuple, kind: type, raises: bool) -> Any:
    """What the function gives for these numbers, or UNSET."""
    if not any(map(of_data, values)) or not all([type(v) in KINDS and fits(v) for v in values]) or not may_be_called():
        return UNSET
    return item(graph_call(OPERATORS[kind, raises], (name, [tensor_of(v, KINDS[type(v)]) for v in values]), {}))


def function(name: str) -> Callable:
    """What stands for a function of `math` that gives floats."""
    fn = FUNCTIONS[name]

    def look(args: tuple, kw: dict) -> Any:
        if not kw and any([type(v) is TracedTensor for v in args]) and may_be_called():
            args = tuple([LOOKASIDES[float]((v,), {}) if type(v) is TracedTensor else v for v in args])
        found = asked(name, args, float, name in PARTIAL) if not kw else UNSET
        return found if found is not UNSET else native(fn, args, kw)

    return look


def rounded(args: tuple, kw: dict) -> Any:
    """`round(x, n)` of a float from data."""
    if not kw and len(args) == 2 and type(args[0]) is torch.SymFloat and type(args[1]) is int and args[1].bit_length() <= 16:
        found = asked("round", args, float, args[1] < 0)
        if found is not UNSET:
            return found
    return native(round, args, kw)


def whole(name: str, fits_word: Callable[[tuple], bool], raises: Callable[[tuple], bool], before: Callable) -> Callable:
    """What stands for a function of integers that gives one. `fits_word`: whether that has no more bits than a word; `raises`: whether it
    may raise."""

    def look(args: tuple, kw: dict) -> Any:
        fit = not kw and all([KINDS.get(type(v)) is int for v in args]) and fits_word(args)
        found = asked(name, args, int, raises(args)) if fit else UNSET
        return found if found is not UNSET else before(args, kw)

    return look


def known_natural(v: Any) -> bool:
    return type(v) is int and v > 0


LOOKASIDES[round] = rounded
for _name in (*TOTAL, *PARTIAL):
    if _name != "round" and _name in FUNCTIONS:
        LOOKASIDES[FUNCTIONS[_name]] = function(_name)
def plainly(fn: Any) -> Callable:
    return lambda args, kw: native(fn, args, kw)


def some_natural(args: tuple) -> bool:
    return any(map(known_natural, args))


LOOKASIDES[math.gcd] = whole("gcd", some_natural, lambda args: False, plainly(math.gcd))
LOOKASIDES[math.isqrt] = whole("isqrt", lambda args: len(args) == 1, lambda args: True, plainly(math.isqrt))
LOOKASIDES[pow] = whole("power", lambda args: len(args) == 3, lambda args: not all(map(known_natural, args[1:])), LOOKASIDES[pow])
