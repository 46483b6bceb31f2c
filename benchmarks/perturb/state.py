"""Remembering and restoring the world of a program.

Both sides of a comparison run on the same objects, one after the other: what the first call wrote is described (`description`) and put
back before the second.
"""

from __future__ import annotations

import collections
import enum
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from benchmarks.perturb.places import ATOMS, CLASS_NOISE, Walk, refill, slots

EMPTY = object()


def same(a: Any, b: Any) -> bool:
    """Whether a position still holds what it held: the same object, or an equal number or text."""
    return a is b or (type(a) is type(b) and isinstance(a, ATOMS) and (a == b or (a != a and b != b)))


def same_array(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype == object:
        return a.shape == b.shape and all(same(x, y) for x, y in zip(a.flat, b.flat, strict=True))
    return a.dtype == b.dtype and np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


# ------------------------------------------------------------------------------------------------------------------ restoring
def items(box: dict) -> list[tuple]:
    """What a dict holds, past what a subclass overrides."""
    return list(collections.OrderedDict.items(box) if isinstance(box, collections.OrderedDict) else dict.items(box))


BYTE = torch.uint8
"""As it was: a change may take the name away."""


def bytes_of(storage: torch.UntypedStorage) -> torch.Tensor:
    return torch.empty(0, dtype=BYTE).set_(storage)


def plain(t: torch.Tensor) -> bool:
    """Whether the tensor has memory that can be read (no wrapper subclass, no sparse or quantized one)."""
    return t.layout is torch.strided and t.device.type == "cpu" and not t.is_quantized and storage_of(t) is not None


def storage_of(t: torch.Tensor) -> torch.UntypedStorage | None:
    try:
        with torch._C.DisableTorchFunctionSubclass():
            storage = torch.Tensor.untyped_storage(t)
            return storage if storage.data_ptr() or not storage.nbytes() else None
    except (RuntimeError, NotImplementedError):
        return None


class Kept:
    """One mutable object: what it held, whether it holds that still, and how to make it so."""

    def __init__(self, path: str, obj: Any) -> None:
        self.path, self.obj = path, obj
        self.state = self.read()
        self.ids = [id(x) for x in self.state]

    def read(self) -> Any:
        raise NotImplementedError

    def changed(self) -> bool:
        now = self.read()
        if [*map(id, now)] == self.ids:
            return False
        return len(now) != len(self.state) or not all(same(a, b) for a, b in zip(now, self.state, strict=True))

    def restore(self) -> None:
        raise NotImplementedError

    def adopt(self) -> Callable[[], None]:
        """Take what is there now for what was there; returns how to go back."""
        before = dict(vars(self))
        self.__init__(self.path, self.obj)  # type: ignore[misc]
        return lambda: vars(self).update(before)

    def contents(self) -> Any:
        """What to describe when it has changed."""
        return self.read()


class KeptList(Kept):
    def read(self) -> list:
        return list.copy(self.obj)

    def restore(self) -> None:
        list.__setitem__(self.obj, slice(None), self.state)


class KeptDeque(Kept):
    def read(self) -> list:
        return list(self.obj)

    def restore(self) -> None:
        self.obj.clear()
        self.obj.extend(self.state)


class KeptSet(Kept):
    def read(self) -> list:
        return list(set.copy(self.obj))

    def changed(self) -> bool:
        return set.__ne__(self.obj, set(self.state))

    def restore(self) -> None:
        set.clear(self.obj)
        set.update(self.obj, self.state)

    def contents(self) -> Any:
        return set(self.obj)


class KeptDict(Kept):
    def read(self) -> list:
        return [x for pair in items(self.obj) for x in pair]

    def restore(self) -> None:
        refill(self.obj, list(zip(self.state[::2], self.state[1::2], strict=True)))


class KeptGlobals(Kept):
    """A module's names: never emptied, code may be running in it."""

    def __init__(self, path: str, obj: Any) -> None:
        super().__init__(path, obj)
        space = self.space()
        self.names, self.alive = [*space], [*space.values()]
        self.ids = [*map(id, self.alive)]

    def space(self) -> Any:
        return self.obj

    def read(self) -> Any:
        return dict(self.obj)

    def changed(self) -> bool:
        space = self.space()
        return ([*map(id, space.values())] != self.ids or [*space] != self.names) and bool(self.contents())

    def contents(self) -> dict:
        """What is other than it was, in the order of names."""
        now = self.read()
        names = {n for n in (*now, *self.state) if not same(now.get(n, EMPTY), self.state.get(n, EMPTY))}
        return {n: now.get(n, "gone") for n in sorted(names)}

    def restore(self) -> None:
        for name in self.contents():
            if name in self.state:
                self.obj[name] = self.state[name]
            else:
                del self.obj[name]


class KeptCell(Kept):
    def read(self) -> tuple:
        try:
            return (self.obj.cell_contents,)
        except ValueError:
            return ()

    def restore(self) -> None:
        if self.state:
            self.obj.cell_contents = self.state[0]
        else:
            del self.obj.cell_contents


class KeptInstance(Kept):
    """Class, slots and attributes."""

    def read(self) -> list:
        out: list[Any] = [type(self.obj)]
        for _, slot in slots(type(self.obj)):
            try:
                out.append(slot.__get__(self.obj))
            except AttributeError:
                out.append(EMPTY)
        try:
            out += [x for pair in object.__getattribute__(self.obj, "__dict__").items() for x in pair]
        except AttributeError:
            pass
        return out

    def restore(self) -> None:
        state = list(self.state)
        if type(self.obj) is not state[0]:
            object.__setattr__(self.obj, "__class__", state[0])
        here = slots(state[0])
        for (_, slot), value in zip(here, state[1:], strict=False):
            if value is not EMPTY:
                slot.__set__(self.obj, value)
            else:
                try:
                    slot.__delete__(self.obj)
                except AttributeError:
                    pass
        rest = state[1 + len(here) :]
        try:
            space = object.__getattribute__(self.obj, "__dict__")
        except AttributeError:
            return
        space.clear()
        space.update(zip(rest[::2], rest[1::2], strict=True))


class KeptFunction(Kept):
    NAMES = ("__defaults__", "__kwdefaults__", "__code__", "__name__", "__doc__")

    def read(self) -> list:
        return [getattr(self.obj, n) for n in self.NAMES] + [x for pair in self.obj.__dict__.items() for x in pair]

    def restore(self) -> None:
        for name, value in zip(self.NAMES, self.state, strict=False):
            setattr(self.obj, name, value)
        rest = self.state[len(self.NAMES) :]
        refill(self.obj.__dict__, list(zip(rest[::2], rest[1::2], strict=True)))


class KeptClass(KeptGlobals):
    def space(self) -> Any:
        return vars(self.obj)

    def read(self) -> Any:
        return {n: v for n, v in vars(self.obj).items() if n not in CLASS_NOISE}

    def restore(self) -> None:
        for name in self.contents():
            if name in self.state:
                type.__setattr__(self.obj, name, self.state[name])
            else:
                type.__delattr__(self.obj, name)


class KeptTensor(Kept):
    """Form, gradient and values (of tensors with memory of their own kind); memory is kept whole, as views overlap."""

    SMALL = 1 << 16

    def read(self) -> tuple:
        t = self.obj
        with torch._C.DisableTorchFunctionSubclass():
            form = (tuple(t.shape), t.dtype, tuple(t.stride()) if plain(t) else (), t.storage_offset() if plain(t) else 0, t.requires_grad)
            return (*form, t.grad if t.is_leaf else None, t._version if not t.is_inference() else 0)

    def __init__(self, path: str, obj: Any) -> None:
        super().__init__(path, obj)
        self.storage = storage_of(obj) if plain(obj) else None
        with torch.no_grad():
            self.bytes = None if self.storage is None else bytes_of(self.storage).clone()

    def changed(self) -> bool:
        if not all(same(a, b) or (isinstance(a, tuple) and a == b) for a, b in zip(self.read(), self.state, strict=True)):
            return True
        if self.storage is None:
            return False
        if storage_of(self.obj)._cdata != self.storage._cdata:
            return True
        return len(self.bytes) <= self.SMALL and not torch.equal(bytes_of(self.storage), self.bytes)

    def restore(self) -> None:
        shape, dtype, stride, offset, requires, grad, _ = self.state
        t = self.obj
        with torch.no_grad():
            if self.storage is not None:
                if storage_of(t)._cdata != self.storage._cdata or (tuple(t.shape), t.dtype, t.stride(), t.storage_offset()) != (
                        shape, dtype, stride, offset):
                    t.data = torch.empty(0, dtype=dtype).set_(self.storage, offset, shape, stride)
                if self.storage.nbytes() == len(self.bytes):
                    bytes_of(self.storage).copy_(self.bytes)
        if t.is_leaf:
            if t.requires_grad != requires:
                t.requires_grad_(requires)
            if t.grad is not grad:
                t.grad = grad
        self.state = self.read()  # (the version)

    def contents(self) -> Any:
        return self.obj


class KeptArray(Kept):
    def read(self) -> tuple:
        return (self.obj.shape, self.obj.dtype, self.obj.flags.writeable)

    def __init__(self, path: str, obj: Any) -> None:
        super().__init__(path, obj)
        self.copy = obj.copy()

    def changed(self) -> bool:
        return self.read() != self.state or not same_array(self.obj, self.copy)

    def restore(self) -> None:
        if self.obj.flags.writeable:
            np.copyto(self.obj, self.copy)

    def contents(self) -> Any:
        return self.obj


class KeptGenerator(Kept):
    def read(self) -> tuple:
        return (bytes(self.obj.get_state().numpy()),)

    def restore(self) -> None:
        self.obj.set_state(torch.frombuffer(bytearray(self.state[0]), dtype=BYTE))


def kept(path: str, obj: Any) -> list[Kept]:
    """What has to be kept of an object (a subclass of list has items and attributes)."""
    out: list[Kept] = []
    for base, cls in ((list, KeptList), (collections.deque, KeptDeque), (set, KeptSet), (dict, KeptDict), (torch.Tensor, KeptTensor),
            (np.ndarray, KeptArray), (torch.Generator, KeptGenerator), (types.CellType, KeptCell)):
        if isinstance(obj, base):
            out.append(cls(path, obj))
    if isinstance(obj, types.FunctionType):
        out.append(KeptFunction(path, obj))
    elif isinstance(obj, type):
        if not obj.__flags__ & (1 << 8) and not issubclass(obj, enum.Enum):
            out.append(KeptClass(path, obj))
    elif not isinstance(obj, types.ModuleType | enum.Enum | property | staticmethod | classmethod | torch.Generator | np.generic):
        if hasattr(type(obj), "__dictoffset__") and (type(obj).__dictoffset__ or slots(type(obj))):
            out.append(KeptInstance(path + ".__dict__", obj))
    return out


class World:
    """Objects that outlive a call: what they are called, and what they held."""

    def __init__(self, walk: Walk) -> None:
        self.labels: dict[int, str] = {}
        self.storages: dict[int, str] = {}
        self.kept: list[Kept] = []
        self.alive: list[Any] = []
        spaces: dict[int, tuple[str, dict]] = {}
        for path, obj in walk.objects:
            self.alive.append(obj)
            self.labels[id(obj)] = path
            self.kept += kept(path, obj)
            if isinstance(obj, types.FunctionType):
                for name, box in zip(obj.__code__.co_freevars, obj.__closure__ or (), strict=False):
                    self.kept.append(KeptCell(f"{path}<{name}>", box))
                if not is_shared(obj.__globals__):
                    spaces[id(obj.__globals__)] = (f"globals({obj.__globals__.get('__name__')})", obj.__globals__)
            if isinstance(obj, torch.Tensor) and plain(obj):
                self.storages.setdefault(storage_of(obj)._cdata, path)
        self.kept += [KeptGlobals(path, space) for path, space in spaces.values()]

    def changed(self) -> list[Kept]:
        return [k for k in self.kept if k.changed()]

    def restore(self, changed: list[Kept] | None = None) -> None:
        """Put back what has `changed` (None: look)."""
        for k in self.changed() if changed is None else changed:
            k.restore()

    def adopt(self) -> Callable[[], None]:
        """Take the world as it is now, a change made, for the one that calls begin with; returns how to go back."""
        undo = [k.adopt() for k in self.kept if k.changed()]
        return lambda: [u() for u in undo] and None


def is_shared(space: dict) -> bool:
    return space.get("__name__", "").split(".")[0] in ("torch", "numpy", "pliant", "functools", "contextlib", "transformers")
