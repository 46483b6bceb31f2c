"""Views: what a guard may make of an object before it looks at it, one function a row.

An array of NumPy enters the graph as a tensor over the same memory, a scalar of NumPy as the number that it is. The guard program makes
them (instruction APPLY), checks them like any other tensor or number, and hands them to the graph. A view reads its object alone, has no
effects, and raises what it likes where there is none: then the guard does not hold.
"""

from __future__ import annotations

import contextvars
import io
import typing
from collections.abc import Callable
from itertools import chain
from typing import Any

from pliant import native
from pliant.graph import originals
from pliant.graph.originals import ORIGINAL, gc, gradients, torch
from pliant.native.iterators import state_of

VIEWS: dict[str, Callable[[Any], Any]] = {}
NAMES: dict[Callable[[Any], Any], str] = {}


def view(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Enter a function under its own name."""
    VIEWS[fn.__name__] = fn
    NAMES[fn] = fn.__name__
    return fn


@view
def kind_of_tensor(t: Any) -> Any:
    """What of a tensor that no graph takes is not told by its class. No mode of the program is asked."""
    with torch._C.DisableTorchFunction():
        nested = ', nested' if t.is_nested else ''
        return f"{t.layout} on {t.device.type}{', quantized' if t.is_quantized else ''}{nested}"


@view
def is_of_texts(items: Any) -> bool:
    """Whether a list holds strings alone."""
    return bool(items) and {*map(type, items)} == {str}


STREAMS = (io.TextIOWrapper, io.StringIO)
WRITES, FLUSHES = ([getattr(cls, name) for cls in STREAMS] for name in ("write", "flush"))
BUFFERS = {io.BytesIO, io.FileIO, io.BufferedWriter, io.BufferedRandom}
RAW = {io.BytesIO, io.FileIO}


@view
def only_writes(stream: Any) -> bool:
    """Whether writing text to a stream (None writes nothing) runs no code of the program's: it is C's own, or what notebooks have."""
    if type(stream) not in STREAMS:  # guards of each call ask
        write, flush = getattr(type(stream), "write", None), getattr(type(stream), "flush", None)
        if getattr(write, "__module__", None) == "ipykernel.iostream" or stream is None:
            return True
        if write not in WRITES or flush not in FLUSHES:
            return False
    own = stream.__dict__
    if "flush" in own or "write" in own and not getattr(own["write"], "only_writes", False):  # what verification writes with says so
        return False
    if isinstance(stream, io.StringIO):
        return True
    try:
        below = stream.buffer
        return type(below) in BUFFERS and (type(below) in RAW or type(below.raw) in RAW)
    except ValueError:  # it was detached
        return False


@view
def form_of_wrapper(t: Any) -> Any:
    """What a tensor that wraps others is beside its class, its sizes and its attributes."""
    with torch._C.DisableTorchFunction():
        grad = f"{', with gradients' if t.requires_grad else ''}{'' if t.is_leaf else ', not a leaf'}"
        return f"{t.dtype} on {t.device}, {t.layout}{grad}, {torch._C._dispatch_keys(t)}"


@view
def form_of_distributed(t: Any) -> Any:
    """How a distributed tensor is placed on its mesh, whichever that is."""
    spec = t._spec
    return f"{spec.placements} {spec.shard_order} {spec.use_strided_shard_as_shard_order} {getattr(t, '_is_param', False)}"


class Awaited(torch.autograd.Function):
    """A tensor that waits when it is used, waited for."""

    @staticmethod
    def forward(ctx: Any, t: Any) -> Any:
        return ORIGINAL.detach(t.trigger_wait())

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        return g


@view
def awaited(t: Any) -> Any:
    """What a tensor that waits when it is used has waited for."""
    with torch._C.DisableTorchFunction():
        if not t.requires_grad:
            return t.trigger_wait()
        with gradients(True):
            return Awaited.apply(t)


@view
def text_of_placement(p: Any) -> Any:
    """How one of a distributed tensor's placements says it: those that are equal say the same."""
    return repr(p)


@view
def sizes_of_wrapper(t: Any) -> Any:
    """Sizes, strides and offset of a tensor that wraps others."""
    with torch._C.DisableTorchFunction():
        return (*ORIGINAL.size(t), *ORIGINAL.stride(t), ORIGINAL.storage_offset(t))


@view
def behind_view(v: Any) -> Any:
    """The dict of which it shows the keys, values or items."""
    return next(o for o in gc.get_referents(v) if isinstance(o, dict))


MEMBERS: Any = getattr(typing, "_get_protocol_attrs", None)  # up to 3.11, where no class keeps them


@view
def protocol_members(cls: Any) -> str:
    """The names that a protocol asks for, in order."""
    return "\n".join(sorted(MEMBERS(cls)))


@view
def referent(ref: Any) -> Any:
    """What a weak reference refers to: None, which no guard on an object takes, if that is gone."""
    return ref()


PLAIN_ITEMS = frozenset((int, float, str, bytes, bool, type(None)))


@view
def items_left(it: Any) -> int:
    """How many items an iterator over a list, a tuple or a range has before it. -1: it lets go of more than plain values at its end, so
    code of the program may run there."""
    walked = it.__reduce__()[1][0]
    plain = type(walked) is range or type(walked) in (list, tuple) and all([type(v) in PLAIN_ITEMS for v in walked])
    return it.__length_hint__() if plain else -1


SUM, MAX, MIN = sum, max, min  # a program may put functions of its own in their place


def plain_numbers(items: Any) -> Any:
    """A list of ints, or of floats, and of nothing else. Raises ValueError where it is another, or empty."""
    if {*map(type, items)} not in ({int}, {float}):
        raise ValueError("no list of numbers of one type")
    return items


@view
def sum_of_numbers(items: Any) -> Any:
    """What `sum` says of a list of numbers."""
    return SUM(plain_numbers(items))


@view
def largest_of_numbers(items: Any) -> Any:
    """What `max` says of it."""
    return MAX(plain_numbers(items))


@view
def smallest_of_numbers(items: Any) -> Any:
    """What `min` says of it."""
    return MIN(plain_numbers(items))


@view
def count_next(it: Any) -> Any:
    """What an `itertools.count` gives next."""
    return state_of(it)[1][0]


@view
def count_step(it: Any) -> Any:
    """By how much it counts."""
    return (*state_of(it)[1], 1)[1]


MOST = 1 << 23  # f32 counts further, by a little more than anybody adds in one call


@view
def takes_gradients_in_place(t: Any) -> bool:
    """Whether a graph may write to this tensor with gradients flowing: no leaf, and no view, for which autograd asks more."""
    with torch._C.DisableTorchFunction():
        return t._base is None and not t.is_leaf


@view
def is_leaf(t: Any) -> bool:
    """Whether a tensor has no history."""
    with torch._C.DisableTorchFunction():
        return originals.has_no_history(t)


@view
def is_view_of_gradients(t: Any) -> bool:
    """Whether this is a view of a tensor that has gradients."""
    with torch._C.DisableTorchFunction():
        return t._base is not None and bool(t._base.requires_grad)


@view
def count_held(t: Any) -> Any:
    """The whole number in a tensor of one element, a float or int, in memory of its own.

    Raises where it is none, or too large to be counted exactly.
    """
    with torch._C.DisableTorchFunction():
        n = ORIGINAL.item(t) if ORIGINAL.untyped_storage(t).nbytes() == t.itemsize else MOST
    if not -MOST < n < MOST or n != n // 1:
        raise ValueError("no count")
    return n


@view
def world_group(members: Any) -> Any:
    """The default process group, None before it is made and after it is destroyed."""
    return members.WORLD


@view
def group_identity(group: Any) -> str:
    """The name of a process group, which leads to it, and its size. Raises if its name leads elsewhere."""
    name = group.group_name
    if torch._C._distributed_c10d._resolve_process_group(name) is not group:  # type: ignore[attr-defined]
        raise ValueError("another group has this name")
    return f"{name} of {group.size()}"


@view
def generator_state(g: Any) -> Any:
    """The state of a generator of the CPU that is not the one that all share."""
    if g is torch.default_generator or g.device.type != "cpu":
        raise ValueError("another kind of generator")
    with torch.inference_mode(False):  # a guard asks in front of the frame, a capture wherever the generator comes up
        return g.get_state()


VALUES = (int, str, bytes, bool, float, complex, type(None))


@view
def walked(s: Any) -> tuple:
    """The members of a set in the order in which it is walked, objects by what tells them apart; and where they lie in its table."""
    return (*[x if type(x) in VALUES else id(x) for x in held_by_set(s)], native.places_in_set(s))


def held_by_set(s: Any) -> Any:
    """The members, whatever the class makes of iteration."""
    return (frozenset if issubclass(type(s), frozenset) else set).__iter__(s)


@view
def frozen(s: Any) -> frozenset:
    """The members of a set of a subclass."""
    return frozenset(held_by_set(s))


@view
def proxied(p: Any) -> Any:
    """The dict that a mapping proxy shows."""
    (under,) = gc.get_referents(p)
    return under


try:
    import numpy
except ImportError:  # torch works without it
    numpy = None  # type: ignore[assignment]

SMALL = 1 << 31  # sums and products of two such ints are no news to 64 bits


class Interface:
    """Gives the memory of an array to who asks for it, as if it could be written to. It keeps the array alive."""

    __slots__ = ("__array_interface__", "array")

    def __init__(self, array: Any) -> None:
        self.array = array
        self.__array_interface__ = {**array.__array_interface__, "data": (array.__array_interface__["data"][0], False)}


if numpy is not None:
    from numpy import array, asarray, geterr  # a program may put functions of its own in their place
    from torch import empty, from_numpy

    NAMES_OF_KINDS = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
    KINDS = {id(numpy.dtype(name)): getattr(torch, name) for name in NAMES_OF_KINDS}

    ALIGNED, WRITEABLE = 0x100, 0x400  # in `flags.num`: NPY_ARRAY_ALIGNED, NPY_ARRAY_WRITEABLE
    READY = ALIGNED | WRITEABLE

    @view
    def array_tensor(a: Any) -> Any:
        """A tensor over the memory of an array that may be written to. Raises where torch has no such tensor."""
        if a.flags.num & READY != READY or id(a.dtype) not in KINDS:
            raise ValueError("an array that torch does not know")
        return from_numpy(a) if a.size else empty(a.shape, dtype=KINDS[id(a.dtype)])

    @view
    def frozen_array_tensor(a: Any) -> Any:
        """A tensor over the memory of an array that may only be read: the graph does not write to it."""
        if a.flags.num & READY != ALIGNED or id(a.dtype) not in KINDS:
            raise ValueError("an array that torch does not know")
        return from_numpy(asarray(Interface(a))) if a.size else empty(a.shape, dtype=KINDS[id(a.dtype)])

    KIND_OF_NUMBERS: dict[frozenset[type], numpy.dtype] = {
        frozenset[type](kinds): numpy.dtype(name)
        for name, *of in (
            ("bool", (bool,)),
            ("int64", (int,), (int, bool)),
            ("float64", (float,), (float, int), (float, bool), (float, int, bool)),  # as in PyTorch, where one is a float
        )
        for kinds in of
    }
    ROWS = ({list}, {tuple}, {list, tuple})
    INFINITE = float("inf")
    DEEPEST = 4  # lists in lists

    @view
    def numbers_tensor(items: Any) -> Any:
        """A tensor of the numbers in a list, or in lists of one length: bools, ints that 64 bits hold, or floats. Raises where it holds
        others, or none."""
        kinds, within = {*map(type, items)}, items
        for _ in range(DEEPEST):  # a list may hold itself
            if kinds not in ROWS:
                break
            within = [*chain.from_iterable(within)]
            kinds = {*map(type, within)}
        made = array(items, KIND_OF_NUMBERS[frozenset(kinds)])
        if int in kinds and float in kinds:
            sizes = abs(made)
            if ((sizes >= 2.0**63) & (sizes < INFINITE)).any():
                raise OverflowError  # an int that 64 bits do not hold, perhaps: NumPy makes an array of objects of it
        return from_numpy(made)

    @view
    def scalar_number(s: Any) -> Any:
        """The Python number that a scalar is."""
        return s.item()

    @view
    def small_scalar_number(s: Any) -> Any:
        """The Python int that a scalar is, if 31 bits hold it."""
        n = s.item()
        if not -SMALL <= n < SMALL:
            raise OverflowError
        return n

    @view
    def scalar_text(s: Any) -> Any:
        """The text that a `str_` or `bytes_` is."""
        return s.item()

    try:
        from numpy._core.umath import _extobj_contextvar as ERRORS  # what `np.errstate` sets
    except ImportError:
        ERRORS = contextvars.ContextVar("none", default=None)  # type: ignore[arg-type, misc]
    PLAIN_ERRORS = ERRORS.get() if set(geterr().values()) <= {"warn", "ignore"} else None

    @view
    def lenient_errors(module: Any) -> bool:
        """Whether floating-point errors raise nothing and call nobody: `np.errstate`, `np.seterr`."""
        now = ERRORS.get()
        return (now is not None and now is PLAIN_ERRORS) or set(geterr().values()) <= {"warn", "ignore"}


NAME, QUALNAME = type.__dict__["__name__"].__get__, type.__dict__["__qualname__"].__get__


@view
def class__name(cls: Any) -> Any:
    """The name of a class whose metaclass has ways to attributes of its own."""
    return NAME(cls)


@view
def class__qualname(cls: Any) -> Any:
    """Its qualified name."""
    return QUALNAME(cls)
