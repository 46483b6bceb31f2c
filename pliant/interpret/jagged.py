"""Jagged nested tensors: PyTorch's own class of wrappers, whose ragged size is here a symbol of the capture.

PyTorch's code for them is run as it is, on real wrappers of traced tensors (`tensor_subclasses.py`). What it asks of the memory of
offsets is answered here: the ragged size of all that come from one tensor of offsets is one symbol, equal to nothing but itself, and the
longest and the shortest row are numbers that the run knows.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from pliant.graph.answering import answering
from pliant.graph.originals import gradients
from pliant.graph.symnode import concrete, to_sym
from pliant.graph.trace import tolist
from pliant.graph.traced import TracedTensor
from pliant.graph.wrapped import Whole
from pliant.interpret.state import vm

MODULE = "torch.nested._internal.nested_tensor"
ASKED = ("get_tensor_symint", "_get_sdpa_extreme_seqlen")


RAGGED = 1 << 60  # a ragged size is at least 2, and equal to no number: PyTorch's compares with none, and is above the small ones


def is_jagged(cls: Any) -> bool:
    module = sys.modules.get(MODULE)
    return module is not None and cls is module.NestedTensor


def class_() -> type:
    return importlib.import_module(MODULE).NestedTensor  # type: ignore[no-any-return]


def ragged_size(source: Any) -> Any:
    """The symbol for the ragged size of what has these offsets (or lengths)."""
    registry = sys.modules[MODULE]._tensor_symint_registry
    found = registry.get(source)
    if found is None:
        e = source.trace.unbacked(size_like=True, lo=RAGGED)
        found = registry[source] = to_sym(source.trace.scope, e)
        vm.world.ragged[e.name] = source
    return found


class NoStorage:
    """What the class is shown of the memory of a traced tensor: that there is none to be counted."""

    @staticmethod
    def size() -> int:
        return 0


REFUSED: Any = TracedTensor.untyped_storage


def untyped_storage(self: Any) -> Any:
    return NoStorage if sys._getframe(1).f_globals.get("__name__") == MODULE else REFUSED(self)


def numbers(self: Any) -> Any:
    """`Tensor.tolist`, which the class calls on lengths."""
    if len(self.sizes) != 1 or type(self.sizes[0]) is int:
        return tolist(self)
    return [self.select(0, i).item() for i in range(int(concrete(self.sizes[0])))]


TracedTensor.untyped_storage = untyped_storage  # type: ignore[method-assign]
TracedTensor.tolist = numbers  # type: ignore[method-assign]


def longest_or_shortest(func: Callable[..., Any], lengths: Any) -> Any:
    return func(lengths).item()


ANSWERS: dict[str, Callable[..., Any]] = {
    "get_tensor_symint": lambda tensor, *, coeff=1: ragged_size(tensor),
    "_get_sdpa_extreme_seqlen": longest_or_shortest,
}


def answer(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        own = any([type(a) is TracedTensor for a in args])
        return (ANSWERS[name] if own else original)(*args, **kwargs)

    return asked


def answers() -> AbstractContextManager[None]:
    """While inside, PyTorch's code is answered for traced tensors."""
    modules = [m for m in (sys.modules.get(MODULE), sys.modules.get("torch.nested._internal.ops")) if m is not None]
    return answering([(m, name, functools.partial(answer, name)) for m in modules for name in ASKED if hasattr(m, name)])


def held(v: Any) -> dict[str, Any]:
    """The tensors of a jagged tensor, by the way to each."""
    found = {name: v.__dict__[name] for name in ("_values", "_offsets", "_lengths")}
    return found | {key: v._metadata_cache.get(key) for key in ("min_seqlen", "max_seqlen")}


def build(cls: Any, parts: dict[str, Any], ragged_idx: int, requires_grad: bool = False) -> Any:
    cache = {key: parts[key] for key in ("min_seqlen", "max_seqlen") if parts[key] is not None}
    own: dict[str, Any] = {"lengths": parts["_lengths"], "_ragged_idx": ragged_idx, "_metadata_cache": cache}
    return cls(parts["_values"], parts["_offsets"], requires_grad=requires_grad, **own)


def differentiable(cls: Any, parts: dict[str, Any], ragged_idx: int, values: Any) -> Any:
    """The same of values that have a history."""
    with gradients(True):
        return Whole.apply(lambda own: build(cls, {**parts, "_values": own}, ragged_idx), ["_values"], values)


def size_of(source: Any) -> Any:
    """PyTorch's own number for the ragged size of what has these offsets."""
    return sys.modules[MODULE].get_tensor_symint(source)


def dummy() -> None:
    """PyTorch makes a tensor once, by which it finds its code: before anything records it."""
    sys.modules[MODULE]._nt_view_dummy()
