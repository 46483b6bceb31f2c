"""PyTorch's functions as they were when pliant was imported.

A program may put a function of its own in the place of `torch.Tensor.item` or `torch.is_grad_enabled`. Where the program calls it, it is
interpreted; what pliant itself asks for, and what captured operators are printed as, is PyTorch's. So rooms that are at work while programs
run have their `torch`, `operator`, `math`, `numpy` and `gc` from here.
"""

from __future__ import annotations

import functools
import importlib
import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch import get_default_dtype, is_grad_enabled, is_inference_mode_enabled

if TYPE_CHECKING:
    import gc
    import math
    import operator

    import numpy
    import torch
else:

    class Library(types.SimpleNamespace):
        """The names of a module as they were when pliant was imported; those that it was given later are read there."""

        def __init__(self, name):
            self.of_now = importlib.import_module(name)
            super().__init__(**vars(self.of_now))

        def __getattr__(self, name):
            return getattr(self.of_now, name)

    gc, math, operator, torch, numpy = map(Library, ("gc", "math", "operator", "torch", "numpy"))
    torch._C = Library("torch._C")

ORIGINAL: Any = types.SimpleNamespace(**{name: getattr(torch.Tensor, name) for name in dir(torch.Tensor) if name != "__class__"})
"""The methods of tensors."""

SPELLED = (
    "view permute expand repeat t transpose unsqueeze squeeze to item __add__ __radd__ __sub__ __rsub__ __mul__ __rmul__ __truediv__"
    " __rtruediv__ __getitem__"
).split()
"""Methods and operators as which generated code spells some operations of ATen (`codegen.fastops.FORMS`)."""

of_now = importlib.import_module("torch")
Inside = tuple[dict[str, Any], str, Any]  # (namespace, name, what it held)
_inside: dict[Any, list[Inside]] = {}


def in_place_of(table: dict[Any, Any]) -> dict[Any, Any]:
    """A table of what is called in the place of PyTorch's own functions: what those written in Python call themselves is kept in mind."""
    for fn in [f for f in table if type(f) is types.FunctionType]:
        todo, seen = [fn], set()
        _inside[fn] = found = []
        while todo:
            f = todo.pop()
            seen.add(f)
            for space in (f.__globals__, vars(of_now), vars(of_now._C._nn)):
                for name in set(f.__code__.co_names) & space.keys():
                    held = space[name]
                    if type(held) in (types.FunctionType, types.BuiltinFunctionType):
                        found.append((space, name, held))
                    if type(held) is types.FunctionType and held.__module__ == f.__module__ and held not in seen:
                        todo.append(held)
    return table


def as_it_was(fn: Any) -> bool:
    """Whether the program has put nothing in the place of what a function of PyTorch's calls."""
    return all([space.get(name) is held for space, name, held in _inside.get(fn, ())])


_set_grad_enabled = torch._C._set_grad_enabled


class gradients:  # noqa: N801
    """`torch.set_grad_enabled(on)` as a context, which asks nothing that a program may have replaced."""

    __slots__ = ("before", "on")

    def __init__(self, on: bool) -> None:
        self.on = on

    def __enter__(self) -> None:
        self.before = is_grad_enabled()
        _set_grad_enabled(self.on)

    def __exit__(self, *_: object) -> None:
        _set_grad_enabled(self.before)


def make_leaf(t: torch.Tensor) -> None:
    """A tensor of the program's has gradients from now on. Called by emitted code."""
    ORIGINAL.requires_grad_(t)


def new_leaf(t: torch.Tensor) -> torch.Tensor:
    """A tensor that the graph has made, of which the program has made a leaf. Called by emitted code."""
    return ORIGINAL.requires_grad_(t)


def new_leaf_of_data(t: torch.Tensor) -> torch.Tensor:
    """The same of a tensor that was given the memory of another: it counts its own versions."""
    return ORIGINAL.requires_grad_(ORIGINAL.data.__get__(t))


def new_parameter(t: torch.Tensor, requires_grad: bool = True) -> torch.Tensor:
    """The parameter over the memory of a tensor that the graph has made. Called by emitted code, and by compilers on proxies."""
    if type(t) is not torch.Tensor:
        return ORIGINAL.requires_grad_(ORIGINAL.detach(t), requires_grad)
    return ORIGINAL._make_subclass(torch.nn.Parameter, t, requires_grad)


def new_parameter_of_data(t: torch.Tensor) -> torch.Tensor:
    """The same, of memory that another tensor has: it counts its own versions."""
    return new_parameter(ORIGINAL.data.__get__(t))


def data_of(t: torch.Tensor) -> torch.Tensor:
    """`t.data`, as graphs for other backends call it."""
    return ORIGINAL.data.__get__(t)


def set_data(t: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
    """`t.data = u`, as graphs for other backends call it."""
    ORIGINAL.data.__set__(t, u)
    return t


def give_memory(t: torch.Tensor, u: torch.Tensor, written: int) -> None:
    """`t.data = u` of a tensor of the program's, which has written to it so often since. Called by emitted code."""
    with torch._C.DisableTorchFunction():  # modes have been told by then
        ORIGINAL.data.__set__(t, u)
        for _ in range(written):
            torch._C._increment_version((t,))  # type: ignore[attr-defined]


def hook_set(t: torch.Tensor, method: str, hook: Any, removed: bool) -> Any:
    """The handle of a hook that is set on a tensor of the program's, and perhaps taken away again. Called by emitted code."""
    with torch._C.DisableTorchFunction():  # modes have been told by then
        handle = getattr(ORIGINAL, method)(t, hook)
    if removed:
        handle.remove()
    return handle


def needed(value: Any) -> None:
    """Emitted code that has made `value` to call this has done what its making does."""


OWN = dict(vars(of_now.Tensor))


class tensors_as_they_were:  # noqa: N801
    """Within, the methods of tensors are PyTorch's: its Python code for shapes asks tensors that are not the program's."""

    __slots__ = ("replaced",)

    def __enter__(self) -> None:
        now, tensor = vars(of_now.Tensor), of_now.Tensor
        changed = [n for n, v in now.items() if OWN.get(n) is not v] + [n for n in OWN if n not in now]
        self.replaced = [(n, now.get(n, OWN)) for n in changed if n in OWN or hasattr(of_now._C.TensorBase, n)]
        for name, _ in self.replaced:
            setattr(tensor, name, OWN[name]) if name in OWN else delattr(tensor, name)

    def __exit__(self, *_: object) -> None:
        for name, theirs in self.replaced:
            delattr(of_now.Tensor, name) if theirs is OWN else setattr(of_now.Tensor, name, theirs)


def of_own_tensors(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of pliant's that asks tensors as PyTorch has them, and runs no code of the program's."""

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        with tensors_as_they_were():
            return fn(*args, **kwargs)

    return run


def is_own(method: str) -> bool:
    """Whether a method of tensors is PyTorch's."""
    return getattr(torch.Tensor, method) is getattr(ORIGINAL, method)


__all__ = [
    "ORIGINAL", "SPELLED", "data_of", "get_default_dtype", "give_memory", "gradients", "hook_set", "is_grad_enabled",
    "is_inference_mode_enabled", "is_own", "make_leaf", "math", "needed", "new_leaf", "new_leaf_of_data", "new_parameter",
    "new_parameter_of_data", "of_own_tensors", "operator", "set_data", "tensors_as_they_were", "torch",
]  # fmt: skip


CREATED, FOLLOWED = torch._C._autograd._get_creation_meta, torch._C._autograd.CreationMeta.DEFAULT


def has_no_history(t: Any) -> bool:
    """Whether a tensor from outside is a leaf.

    A view of what was written with gradients since it was made gets its history when somebody asks, and PyTorch refuses to write to one
    that nobody has asked: so it is not asked.
    """
    base = t._base
    try:
        if base is None or not t.requires_grad or not base.requires_grad:
            return bool(t.is_leaf)
        late = not base.is_leaf and CREATED(t) == FOLLOWED
        return not late and bool(t.is_leaf)
    except RuntimeError:  # a view made without gradients, of what was written since: PyTorch does not say
        return True


def in_memory(t: Any) -> bool:
    """Whether the data of a tensor from outside are in this process: those of one on a mesh are not, and a wrapper has none."""
    try:
        ORIGINAL.untyped_storage(t).data_ptr()
    except RuntimeError:
        return False
    return True
