"""How arrays and scalars of NumPy are made again: an outside array is itself, another one lies over the memory of a result of the graph."""

from __future__ import annotations

from typing import Any

import numpy as np

from pliant.graph.originals import ORIGINAL, torch
from pliant.interpret.arrays.dtypes import CANON, SCALARS
from pliant.interpret.arrays.errstate import Errors, ErrorsMethod, entered
from pliant.interpret.arrays.proxies import ArrayMethod, TracedArray, TracedScalar
from pliant.jit import support
from pliant.jit.reconstruct import CONSTANT, Builder, Row


def to_numpy(t: torch.Tensor) -> Any:
    """The array over the memory of a result. Of a mesh, where it is elsewhere: what the workers have, fetched."""
    if type(t) is not torch.Tensor:
        return t.numpy()
    if torch._C._len_torch_function_stack():  # of an array that came out of arithmetic no mode is told
        with torch._C.DisableTorchFunction():
            return ORIGINAL.numpy(t)
    return ORIGINAL.numpy(t)


def array(b: Builder, a: TracedArray) -> str:
    """Once for each proxy."""
    if a.source is not None:
        return b.outside(a.source)
    found = b.memo.get(id(a))
    return b.make(a, ARRAY) if found is None else b.revisit(found)


def array_literal(b: Builder, a: TracedArray) -> str:
    if a.how is not None:
        base, method, args = a.how
        text = f"{b.constant(getattr)}({b.ref(base)}, {method!r})({b.refs(args)})"
    else:
        text = f"{b.constant(to_numpy)}({b.output(a.found)})"
    return text if a.writeable or (a.how is not None) else f"{b.constant(support.read_only)}({text})"


ARRAY = Row(array_literal)


def scalar(b: Builder, s: TracedScalar) -> str:
    if s.source is not None:
        return b.outside(s.source)
    if s.number is not None:
        return f"{b.constant(s.dtype.type)}({b.number(s.number)})"
    return f"{b.constant(to_numpy)}({b.output(s.found)})[()]"


def method(b: Builder, m: ArrayMethod | ErrorsMethod) -> str:
    return f"{b.constant(getattr)}({b.ref(m.owner)}, {m.name!r})"


def constant_scalar(b: Builder, s: Any) -> str:
    """Made anew on each call, as NumPy does; one from outside is itself (`Builder.ref` has seen to it)."""
    return f"{b.constant(type(s))}({b.simple(s.item())})"


def errors_literal(b: Builder, e: Errors) -> str:
    return f"{b.constant(entered if e.entered else np.errstate)}(**{e.settings!r})"


SPECIAL: dict[type, Any] = {TracedArray: array, TracedScalar: scalar, ArrayMethod: method, ErrorsMethod: method}
ROWS: dict[type, Row] = dict.fromkeys(
    (np.str_, np.bytes_, *{type(dt) for dt in CANON.values()}, np.finfo, np.iinfo, np.ufunc, type(np.sum), type(np._NoValue)),
    CONSTANT,
)
ROWS[Errors] = Row(errors_literal)
ROWS |= dict.fromkeys(SCALARS, Row(constant_scalar))
