"""What one guard says. A guard is data; `program.py` compiles a list of them for the native engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pliant.guards.source import Source


# Not frozen, since that makes them four times as slow to make, and a capture makes thousands. Nobody changes them once it is done.
@dataclass(slots=True, unsafe_hash=True, weakref_slot=True)
class Site:
    """The user's instruction that needed the guard: the innermost frame first."""

    filename: str
    lineno: int
    function: str
    offset: int = -1
    code: Any = None
    outer: Site | None = None

    def here(self) -> tuple[str, str, int]:
        return self.filename, self.code.co_name, self.lineno

    def calls(self) -> tuple[tuple[str, str, int], ...]:
        """The line, and the calls that lead to it, the outermost first."""
        found: list[tuple[str, str, int]] = []
        site: Site | None = self
        while site is not None and site.code is not None:
            found.append(site.here())
            site = site.outer
        return tuple(reversed(found))

    def __str__(self) -> str:
        return f"{self.filename}:{self.lineno} in {self.function}"


@dataclass(slots=True, eq=False)
class TensorSpec:
    """What TENSOR_MATCH demands. `sizes`/`strides`/`offset` hold an int (static) or None (dynamic).

    A dynamic dim has its symbol bound from the source's `size(i)`; see `Program.symbols`.
    A stride of None that has no symbol is unconstrained (a size-0/1 dim).
    """

    pytype: type
    dtype: Any
    device: Any
    requires_grad: bool
    ndim: int
    sizes: tuple[int | None, ...]
    strides: tuple[int | None, ...]
    example: Any  # the tensor it was made from: dispatch keys, layout, conj/neg bits come from it

    def bare(self) -> TensorSpec:
        """Without the example, which would keep its memory alive."""
        return TensorSpec(self.pytype, self.dtype, self.device, self.requires_grad, self.ndim, self.sizes, self.strides, None)


@dataclass(slots=True, eq=False)
class Guard:
    """`kind` is a row of `KINDS`; the guard holds when the value read at `source` satisfies it."""

    source: Source
    kind: str
    value: Any = None
    site: Site | None = None


KINDS = {
    "TYPE_MATCH": "type(x) is value",
    "ID_MATCH": "x is value",
    "EQ_MATCH": "type(x) is type(value) and x == value (floats bitwise; tuples, frozensets item by item with types)",
    "LENGTH": "len(x) == value, x a list / tuple / dict / set / deque",
    "EMPTY": "type(x) is value, a container, and it has no items",
    "DICT_KEYS": "list(x) == value, same order, keys compared by identity or type and ==",
    "DICT_CONTAINS": "(key in x) == flag, value = (key, flag)",
    "DICT_LACKS_ITEM": "the object read at source `value`, known by its identity, or a text, is no key of x",
    "DICT_LACKS": "value is {name: None or a type}: for each, the name is not in x; or a dict of that very type is there, and empty",
    "SET_EQUALS": "x == value, an exact set/frozenset of constants",
    "TENSOR_MATCH": "value is a TensorSpec",
    "INT": "type(x) is int and fits in 64 bits; binds the symbol of this source, value = None",
    "FLOAT": "type(x) is float; the value reaches the graph as a slot",
    "BOOL": "type(x) is bool; truth is not constrained",
    "ALIAS": "x is the object read at source `value`",
    "NOT_ALIAS": "x and the objects at the sources in `value` (a tuple) are pairwise distinct",
    "STORAGE_OVERLAP": "tensors at sources `value[0]` share memory exactly as the flags in `value[1]` say",
    "GLOBAL_STATE": "torch's global state equals `value` (grad mode, autocast, default dtype/device, ...)",
    "TYPE_ATTRS": "value is {name: object}: for each, the class at `source` looks that very object up in its MRO (None: nothing);"
    " under `<mro>`, the classes of the MRO after the class itself",
    "FUNCTION": "value is (code, defaults, kwdefaults): the function at `source` still has those very objects",
    "ANSWER": "value is a question: the function at `source`, called with its arguments, answers as it did (asked when all else has held)",
    "PREDICATE": "value(x) is true: a Python callable, for the rare case",
}
