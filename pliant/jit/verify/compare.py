"""What two runs of one call gave, side by side: results, exceptions, printed text, and all that they left behind in what they could reach.

Both runs begin in the same state with the very same objects, so an object of before must be the same object on both sides; what is new is
compared by content, and identities and memory of new objects must correspond one to one.
"""

from __future__ import annotations

import collections
import enum
import functools
import types
import weakref
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pliant.graph.originals import numpy as np
from pliant.graph.originals import of_own_tensors, torch
from pliant.interpret.immutable import HEAPTYPE
from pliant.jit.verify import contents, floats
from pliant.jit.verify.reach import ATOMS
from pliant.jit.verify.snapshot import Snapshot, State, Storage, equal_bytes
from pliant.native.iterators import state_of
from pliant.symbolic.scope import UNFIT

FLOATS, WHOLE, STRUCTURE = "floats", "whole numbers", "structure"
MOST = 50


@dataclass(slots=True)
class Outcome:
    """What one run gave."""

    value: Any = None
    error: BaseException | None = None
    printed: str = ""
    state: State = field(default_factory=State)
    ambient: dict[str, Any] = field(default_factory=dict)  # random states, torch's flags, context variables
    gradients: list[torch.Tensor | None] | BaseException | None = None


class Difference(NamedTuple):
    """`kind`: what may still be excused. The pair is kept for that."""

    path: str
    what: str
    kind: str
    want: Any = None
    got: Any = None

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"


class Comparer:
    """Compares the outcome `got` with `want` (eager's). `probe`: only collects what `want` has at these paths."""

    def __init__(self, snapshot: Snapshot, want: Outcome, got: Outcome, probe: frozenset[str] | None = None) -> None:
        self.snapshot = snapshot
        self.want, self.got = want, got
        self.probe = probe
        self.probed: dict[str, Any] = {}
        self.old: dict[str, torch.Tensor] = {}  # tensors of before that were written, by the path of their difference
        self.differences: list[Difference] = []
        self.there: dict[int, int] = {}
        self.back: dict[int, int] = {}
        self.memory: tuple[dict[int, int], dict[int, int]] = ({}, {})
        self.kept: list[Any] = []
        self.todo: list[tuple[Any, Any, str]] = []

    @of_own_tensors
    def run(self) -> list[Difference]:
        want, got = self.want, self.got
        with torch._C.DisableTorchFunction(), torch.no_grad():
            self.errors(want.error, got.error, "exception")
            if want.error is None and got.error is None:
                self.push(want.value, got.value, "result")
            self.drain()
            self.text(want.printed, got.printed, "printed text")
            self.states()
            self.drain()
            for name in want.ambient.keys() | got.ambient.keys():
                self.push(want.ambient.get(name), got.ambient.get(name), name)
            self.drain()
            self.gradients(want.gradients, got.gradients)
        return self.differences

    # -- the walk -----------------------------------------------------------------------------------------------------------
    def push(self, want: Any, got: Any, path: str) -> None:
        if want is not got:
            self.todo.append((want, got, path))

    def drain(self) -> None:
        while self.todo and (len(self.differences) < MOST or self.probe is not None):
            self.pair(*self.todo.pop())
        self.todo.clear()

    def differ(self, path: str, what: str, want: Any, got: Any, kind: str = STRUCTURE) -> None:
        self.differences.append(Difference(path, f"{what}: eager {shown(want)}, compiled {shown(got)}", kind, want, got))

    def pair(self, want: Any, got: Any, path: str) -> None:
        if want is got:
            return
        if self.probe is not None and path in self.probe:
            self.probed[path] = self.value(want, self.want) if isinstance(want, torch.Tensor) else want
        tw, tg = type(want), type(got)
        if tw is not tg and not self.same_class(tw, tg):
            self.differ(path, "type", tw, tg)
        elif isinstance(want, torch.Tensor):
            if self.identity(want, got, path):
                self.tensor(want, got, path)
        elif isinstance(want, enum.Enum):
            self.expect(self.same_class(tw, tg) and want.name == got.name, path, "value", want, got)
        elif isinstance(want, type):
            self.expect(self.same_class(want, got), path, "class", want, got)
        elif isinstance(want, SCALARS):
            self.scalar(want, got, path)
        elif isinstance(want, np.ndarray):
            if self.identity(want, got, path):
                self.array(want, got, path)
        elif tw is weakref.ref:
            self.push(want(), got(), path)
        elif tw in ATOMS:
            self.expect(bool(want == got), path, "value", want, got)
        elif isinstance(want, (tuple, frozenset)) or self.identity(want, got, path):
            self.inside(want, got, path)

    def same_class(self, a: type, b: type) -> bool:
        """The same class, or two that one statement made."""
        if a is b:
            return True
        return (a.__module__, a.__qualname__) == (b.__module__, b.__qualname__) and not (self.snapshot.is_old(a) or self.snapshot.is_old(b))

    def expect(self, ok: bool, path: str, what: str, want: Any, got: Any, kind: str = STRUCTURE) -> None:
        if not ok:
            self.differ(path, what, want, got, kind)

    def scalar(self, want: Any, got: Any, path: str) -> None:
        if isinstance(want, float):
            self.expect(floats.close_numbers(want, got), path, "value", want, got, FLOATS)
        elif isinstance(want, complex):
            ok = floats.close_numbers(want.real, got.real) and floats.close_numbers(want.imag, got.imag)
            self.expect(ok, path, "value", want, got, FLOATS)
        elif isinstance(want, str):
            self.text(want, got, path)
        else:
            self.expect(bool(want == got), path, "value", want, got, WHOLE if isinstance(want, int) else STRUCTURE)
        if type(want).__flags__ & HEAPTYPE:
            self.attributes(want, got, path)

    def text(self, want: str, got: str, path: str) -> None:
        self.expect(floats.close_texts(want, got), path, "text", want, got)

    def identity(self, want: Any, got: Any, path: str) -> bool:
        """Both new, and met as a pair before or for the first time. True if they are to be compared inside."""
        if self.snapshot.is_old(want) or self.snapshot.is_old(got):
            which = ("eager has the object of before, compiled another one", "compiled has the object of before, eager another one")
            self.differences.append(Difference(path, which[not self.snapshot.is_old(want)], STRUCTURE))
            return False
        known = id(want) in self.there
        a, b = self.there.setdefault(id(want), id(got)), self.back.setdefault(id(got), id(want))
        self.kept += (want, got)
        if a != id(got) or b != id(want):
            self.differences.append(Difference(path, "identity: not the same object as elsewhere on one side alone", STRUCTURE))
            return False
        return not known

    def inside(self, want: Any, got: Any, path: str) -> None:
        t = type(want)
        for kinds, of in CONTENT:
            if isinstance(want, kinds):
                of(self, want, got, path)
                break
        else:
            if hasattr(t, "__next__"):
                self.iterator(want, got, path)
            elif not t.__flags__ & HEAPTYPE and t not in (object, types.SimpleNamespace) and t.__eq__ is not object.__eq__:
                self.expect(bool(want == got), path, "value", want, got)
        if t.__flags__ & HEAPTYPE or t is types.SimpleNamespace:
            self.attributes(want, got, path)

    def attributes(self, want: Any, got: Any, path: str) -> None:
        a, b = own_dict(want), own_dict(got)
        if a is not None and b is not None:
            if isinstance(want, BaseException):
                a, b = without_notes(a), without_notes(b)
            self.mapping(a, b, path, ".{}")
        for d, e in zip(slot_descriptors(type(want)), slot_descriptors(type(got)), strict=False):
            self.push(read(d, want), read(e, got), f"{path}.{d.__name__}")

    def mapping(self, want: Any, got: Any, path: str, form: str = "[{!r}]") -> None:
        keys, others = list(want), list(got)
        self.keys(keys, others, path)
        for k, j in zip(keys, others, strict=False):
            self.push(want[k], got[j], path + form.format(k))

    def keys(self, want: list, got: list, path: str) -> None:
        if len(want) != len(got):
            self.differ(path, "keys", want, got)
            return
        for k, j in zip(want, got, strict=True):
            self.push(k, j, f"{path}, key {shown(k)}")

    def sequence(self, want: Any, got: Any, path: str) -> None:
        if len(want) != len(got):
            self.differ(path, "length", len(want), len(got))
            return
        for i, (a, b) in enumerate(zip(list(want), list(got), strict=True)):
            self.push(a, b, f"{path}[{i}]")

    def sets(self, want: Any, got: Any, path: str) -> None:
        self.expect(members(want) == members(got), path, "members", want, got)

    def function(self, want: types.FunctionType, got: types.FunctionType, path: str) -> None:
        for name in ("__code__", "__name__", "__qualname__", "__defaults__", "__kwdefaults__", "__dict__"):
            self.push(getattr(want, name), getattr(got, name), f"{path}.{name}")
        self.push(want.__closure__ or (), got.__closure__ or (), f"{path}.__closure__")

    def cell(self, want: types.CellType, got: types.CellType, path: str) -> None:
        self.push(contents.save_cell(want)[0][0], contents.save_cell(got)[0][0], path)

    def error(self, want: BaseException, got: BaseException, path: str) -> None:
        self.push(want.args, got.args, f"{path}.args")

    def iterator(self, want: Any, got: Any, path: str) -> None:
        if isinstance(want, types.GeneratorType):
            self.expect(want.__qualname__ == got.__qualname__, path, "generator", want, got)
            return
        try:
            a, b = state_of(want), state_of(got)
        except Exception:  # it cannot say where it stands: an iterator of some library
            return
        if type(want) is filter and {a[1][0], b[1][0]} == {None, bool}:  # which means the same
            a, b = a[1][1], b[1][1]
        self.push(a, b, path)

    # -- tensors and arrays -------------------------------------------------------------------------------------------------
    def tensor(self, want: torch.Tensor, got: torch.Tensor, path: str) -> None:
        for name in ("shape", "dtype", "device", "layout", "requires_grad", "is_leaf"):
            a, b = getattr(want, name), getattr(got, name)
            if a != b:
                self.differ(path, name, a, b)
                return
        if want.is_inference() != got.is_inference():
            self.differ(path, "is_inference", want.is_inference(), got.is_inference())
        if want.layout is not torch.strided or want.is_nested or want.is_quantized:
            if want.layout is not torch.strided and not want.is_nested:
                self.values(want.detach().to_dense(), got.detach().to_dense(), path)
            return
        visible = [i for i, n in enumerate(want.shape) if n > 1] if want.numel() else []
        strides = [want.stride(i) for i in visible], [got.stride(i) for i in visible]
        self.expect(strides[0] == strides[1], path, "strides", want.stride(), got.stride())
        bits = (want.is_conj(), want.is_neg()), (got.is_conj(), got.is_neg())
        self.expect(bits[0] == bits[1], path, "conjugate and negative bits", *bits)
        self.same_memory(want.untyped_storage(), got.untyped_storage(), path)
        self.expect(want.storage_offset() == got.storage_offset(), path, "offset in memory", want.storage_offset(), got.storage_offset())
        if want.device.type != "meta":
            self.values(self.value(want, self.want), self.value(got, self.got), path)
        if want.is_leaf and (want.grad is not None or got.grad is not None):
            self.push(want.grad, got.grad, f"{path}.grad")
        if want.__dict__ or got.__dict__:
            self.mapping(want.__dict__, got.__dict__, path, ".{}")

    def value(self, t: torch.Tensor, side: Outcome) -> torch.Tensor:
        """The numbers of a tensor as its side left them: memory of before has been written by the other side since."""
        if t.layout is not torch.strided:
            return t.detach()
        bytes_ = self.snapshot.bytes_of(t.untyped_storage()._cdata, side.state)
        return t.detach() if bytes_ is None else viewed(bytes_, t)

    def values(self, want: torch.Tensor, got: torch.Tensor, path: str) -> None:
        if floats.close(want, got):
            return
        if want.is_floating_point() or want.is_complex():
            apart = (floats.wide(want) - floats.wide(got)).abs()
            self.differ(path, f"values, apart by at most {float(apart.nan_to_num().max()):.3g}", want, got, FLOATS)
        else:
            self.differ(path, f"values, {int((want != got).sum())} of {want.numel()}", want, got, WHOLE)

    def same_memory(self, want: Storage, got: Storage, path: str) -> None:
        self.kept += (want, got)
        addresses = {want._cdata, got._cdata}
        if not (addresses.isdisjoint(self.snapshot.storages) and addresses.isdisjoint(self.snapshot.watched)):
            ok = want._cdata == got._cdata
        else:
            a = self.memory[0].setdefault(want._cdata, got._cdata)
            b = self.memory[1].setdefault(got._cdata, want._cdata)
            ok = a == got._cdata and b == want._cdata
        if not ok:
            self.differences.append(Difference(path, "aliasing: it does not share memory with the same tensors as in eager", STRUCTURE))

    def array(self, want: np.ndarray, got: np.ndarray, path: str) -> None:
        a, b = (want.dtype, want.shape, want.flags.writeable), (got.dtype, got.shape, got.flags.writeable)
        if a != b or want.dtype.hasobject:
            self.expect(a == b, path, "array", a, b)
        elif want.dtype.kind in "fc":
            self.values(torch.from_numpy(np.array(want)), torch.from_numpy(np.array(got)), path)
        else:
            self.expect(want.tobytes() == got.tobytes(), path, "array", want, got, WHOLE)

    # -- what they left behind ----------------------------------------------------------------------------------------------
    def states(self) -> None:
        snapshot = self.snapshot
        a, b = self.want.state, self.got.state
        self.expect(a.lost == b.lost, "parameters", "written", a.lost, b.lost)
        for number in sorted(a.contents.keys() | b.contents.keys()):
            row, obj, _ = snapshot.records[number]
            path = snapshot.reach.path(obj).removeprefix(" at ") or type(obj).__qualname__
            want, got = snapshot.content(number, a), snapshot.content(number, b)
            STATES.get(row.name, Comparer.lists)(self, want, got, path, obj)
        if self.probe is None:
            for address in a.storages.keys() | b.storages.keys():
                self.storage(address)

    def lists(self, want: tuple, got: tuple, path: str, obj: Any) -> None:
        for a, b in zip(want, got, strict=True):
            if type(a) is list:
                self.sequence(a, b, path)
            else:
                self.push(a, b, path)

    def namespace(self, want: tuple, got: tuple, path: str, obj: Any) -> None:
        a, b = (dict(zip(*content, strict=True)) for content in (want, got))
        for k in a.keys() | b.keys():
            u, v = a.get(k, contents.MISSING), b.get(k, contents.MISSING)
            if (u is contents.MISSING and contents.stays(k, v)) or (v is contents.MISSING and contents.stays(k, u)):
                continue
            self.push(u, v, f"{path}.{k}")

    def items(self, want: tuple, got: tuple, path: str, obj: Any) -> None:
        self.keys(want[0], got[0], path)
        for k, a, b in zip(want[0], want[1], got[1], strict=False):
            self.push(a, b, f"{path}[{k!r}]" if not isinstance(k, str) else f"{path}.{k}")
        self.lists(want[2:], got[2:], path, obj)

    def set_content(self, want: tuple, got: tuple, path: str, obj: Any) -> None:
        self.sets(set(want[0]), set(got[0]), path)

    def opaque(self, want: tuple, got: tuple, path: str, obj: Any) -> None:
        if isinstance(obj, np.ndarray):
            self.array(want[0], got[0], path)
        else:
            self.expect(repr(want) == repr(got), path, "content", want, got)

    def face(self, want: contents.Face, got: contents.Face, path: str, obj: Any) -> None:
        a, b = want.layout, got.layout
        self.expect(a[:4] + a[5:] == b[:4] + b[5:], path, "size, strides, offset, dtype", a, b)
        if a[4] != b[4]:
            self.same_memory(want.alias.untyped_storage(), got.alias.untyped_storage(), path)
            if a[:4] == b[:4]:
                self.values(self.value(want.alias, self.want), self.value(got.alias, self.got), path)
        self.expect(want.requires_grad == got.requires_grad, path, "requires_grad", want.requires_grad, got.requires_grad)
        self.expect((want.grad_fn is None) == (got.grad_fn is None), path, "grad_fn", want.grad_fn, got.grad_fn)
        self.push(want.grad, got.grad, f"{path}.grad")
        if id(obj) not in self.snapshot.reach.grads:
            was = self.snapshot.face_of(obj).version
            self.expect((want.version > was) == (got.version > was), path, "written in place", want.version > was, got.version > was)

    def storage(self, address: int) -> None:
        """Memory of before that one side or both wrote: looked at through the tensors that were there."""
        snapshot = self.snapshot
        want, got = snapshot.bytes_of(address, self.want.state), snapshot.bytes_of(address, self.got.state)
        assert want is not None and got is not None
        if equal_bytes(want, got):
            return
        for row, obj, was in snapshot.records:
            if row is contents.TENSOR and was[1][4] == address:
                path = f"{snapshot.reach.path(obj).removeprefix(' at ') or 'a tensor'} (written in place)"
                if want.nbytes() != got.nbytes():
                    self.differ(path, "bytes of memory", want.nbytes(), got.nbytes())
                    return
                if max(was[1][2] * obj.element_size(), 0) < want.nbytes():
                    self.old[path] = obj
                    self.values(viewed(want, was[0]), viewed(got, was[0]), path)

    def errors(self, want: BaseException | None, got: BaseException | None, path: str) -> None:
        if want is got:
            return
        if want is None or got is None or not self.same_class(type(want), type(got)):
            self.differ(path, "raised", told(want), told(got))
            return
        self.text(str(want), str(got), f"{path}, its text")
        a, b = want.__cause__ or want.__context__, got.__cause__ or got.__context__
        self.expect(self.same_class(type(a), type(b)), path, "cause or context", a, b)
        self.push(want, got, path)

    def gradients(self, want: Any, got: Any) -> None:
        if isinstance(want, list) and isinstance(got, list):
            for i, (a, b) in enumerate(zip(want, got, strict=True)):
                path = f"gradient {i}"
                if self.probe is not None and path in self.probe:
                    self.probed[path] = a
                if a is None or b is None:
                    zero = a if a is not None else b
                    self.expect(zero is None or not bool(zero.any()), path, "is there", a is not None, b is not None)
                elif a.shape != b.shape or a.dtype != b.dtype:
                    self.differ(path, "shape and dtype", (a.shape, a.dtype), (b.shape, b.dtype))
                else:
                    self.values(a, b, path)
        elif isinstance(want, list) and isinstance(got, BaseException):
            self.differ("gradients", "differentiated", "something", told(got))


# -- helpers ----------------------------------------------------------------------------------------------------------------------
SCALARS = (float, complex, int, str, bytes)

CONTENT: tuple[tuple[Any, Any], ...] = (
    ((dict, types.MappingProxyType), Comparer.mapping),
    ((list, tuple, collections.deque), Comparer.sequence),
    ((set, frozenset), Comparer.sets),
    (types.FunctionType, Comparer.function),
    (types.MethodType, lambda c, a, b, path: c.push((a.__func__, a.__self__), (b.__func__, b.__self__), path)),
    (types.CellType, Comparer.cell),
    (functools.partial, lambda c, a, b, path: c.push((a.func, a.args, a.keywords), (b.func, b.args, b.keywords), path)),
    (slice, lambda c, a, b, path: c.push((a.start, a.stop, a.step), (b.start, b.stop, b.step), path)),
    ((type({}.keys()), type({}.values()), type({}.items())), lambda c, a, b, path: c.push(list(a), list(b), path)),
    ((property, staticmethod, classmethod, types.CodeType, types.FrameType, types.TracebackType), lambda c, a, b, path: None),
    (BaseException, Comparer.error),
    ((bytearray, memoryview), lambda c, a, b, path: c.expect(bytes(a) == bytes(b), path, "bytes", a, b)),
)

STATES: dict[str, Any] = {
    "cache": lambda c, a, b, path, obj: None,  # how often a cache was asked
    "dict": Comparer.items,
    "namespace": Comparer.namespace,
    "set": Comparer.set_content,
    "value": Comparer.opaque,
    "tensor": Comparer.face,
}


def viewed(bytes_: Storage, like: torch.Tensor) -> torch.Tensor:
    """A tensor with the layout of `like` over other memory."""
    t = torch.empty(0, dtype=like.dtype, device=bytes_.device)
    t = t.set_(bytes_, like.storage_offset(), like.size(), like.stride())  # type: ignore[call-overload]
    t = t.conj() if like.is_conj() else t
    return torch._neg_view(t) if like.is_neg() else t


def own_dict(obj: Any) -> dict | None:
    try:
        found = object.__getattribute__(obj, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def without_notes(d: dict) -> dict:
    """Attributes of an exception without what the compiler notes on it."""
    notes = [n for n in d.get("__notes__", ()) if UNFIT not in str(n)]
    return {k: v for k, v in d.items() if k != "__notes__"} | ({"__notes__": notes} if notes else {})


def slot_descriptors(t: type) -> list[Any]:
    return [d for c in t.__mro__ if c.__flags__ & HEAPTYPE for d in vars(c).values() if type(d) is types.MemberDescriptorType]


def read(descriptor: Any, obj: Any) -> Any:
    try:
        return descriptor.__get__(obj)
    except AttributeError:
        return contents.MISSING


def members(s: Any) -> collections.Counter:
    return collections.Counter((type(x).__qualname__, x if isinstance(x, (int, float, str, bytes, type(None))) else None) for x in s)


def told(e: BaseException | None) -> str:
    return "nothing" if e is None else f"{type(e).__name__}: {e}"


def shown(v: Any) -> str:
    try:
        text = f"{tuple(v.shape)} {v.dtype}" if isinstance(v, torch.Tensor) and v.numel() > 8 else repr(v)
    except Exception:
        text = f"a {type(v).__qualname__}"
    return text if len(text) <= 200 else f"{text[:200]}…"
