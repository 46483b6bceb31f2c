"""`mode=` and `options=` of `pliant.compile`.

They mean what they mean for `torch.compile`: a mode is a name for a trade of compile time against speed, options are settings of the
backend. pliant's own backends take the options in `OPTIONS`, and every mode of `MODES` alike: their kernels need no choice between
compiling soon and running fast, and there are no recorded launches to switch on or off. Any other backend is handed both, as
`torch.compile` hands them over: `backend(graph_module, example_inputs, mode=…, options=…)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from pliant.codegen import backends
from pliant.errors import PliantError

MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class Value:
    """Makes any value a part of a hashable configuration. Equal values are equal, as far as they can be compared."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return type(other) is Value and type(other.value) is type(self.value) and bool(other.value == self.value)

    def __hash__(self) -> int:
        return hash(type(self.value))


class Option(NamedTuple):
    """What a value must be, in words and as a test."""

    wanted: str
    admits: Callable[[Any], bool]
    meaning: str


OPTIONS: dict[str, Option] = {
    "entry_limit": Option(
        "a whole number above 0",
        lambda v: type(v) is int and v > 0,
        "compiled versions of one code object; calls that fit none of them run in eager PyTorch",
    ),
    "below": Option(
        "True or False",
        lambda v: type(v) is bool,
        "compile the functions that are called by what a graph break leaves to CPython",
    ),
}


def settings(backend: Any, mode: str | None, options: dict[str, Any] | None) -> dict[str, Any]:
    """The fields of `Config` that these arguments set. Raises PliantError, naming the choices, for what is not known."""
    if mode is not None and options:
        raise PliantError("give either mode= or options=, not both")
    if mode not in MODES:
        raise PliantError(f"unknown mode {mode!r}: use one of {', '.join(map(repr, MODES))}")
    if callable(backend) or backend not in backends.OWN:
        return {"mode": mode if mode != "default" else None, "options": tuple((k, Value(v)) for k, v in sorted((options or {}).items()))}
    for name, value in (options or {}).items():
        option = OPTIONS.get(name)
        if option is None:
            known = "; ".join(f"{k} ({o.wanted}): {o.meaning}" for k, o in OPTIONS.items())
            raise PliantError(f"unknown option {name!r} of the backend {backend!r}. Known: {known}")
        if not option.admits(value):
            raise PliantError(f"the option {name!r} must be {option.wanted}, not {value!r}")
    return dict(options or {})


def for_backend(config: Any) -> dict[str, Any]:
    """The keywords that a backend which is not pliant's is called with."""
    given = {"mode": config.mode, "options": {k: v.value for k, v in config.options}}
    return {k: v for k, v in given.items() if v}
