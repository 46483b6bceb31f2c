"""Small functions that emitted code calls: making objects without running their constructors, replaying writes, calling things."""

from __future__ import annotations

import builtins
import collections
import contextlib
import itertools
import random
import types
import weakref
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from pliant.bytecode import kinds as K
from pliant.bytecode.assemble import Span, encode_exception_table, ins, on_line
from pliant.bytecode.version import CALLABLE_FIRST
from pliant.graph.originals import ORIGINAL, gc, torch
from pliant.interpret.runtime import FUTURE
from pliant.interpret.type_names import type_name
from pliant.jit.unwinding import forgetting
from pliant.jit.weak_ids import WeakIdDict
from pliant.native.iterators import set_state

#: Plain constructors, by the name that emitted code shows.
BUILDERS: dict[str, Any] = {
    "slice": slice,
    "range": range,
    "property": property,
    "staticmethod": staticmethod,
    "classmethod": classmethod,
}


def generator_at(state: tuple) -> random.Random:
    """A generator of Python's in this state."""
    made = random.Random()
    made.setstate(state)
    return made


ELSEWHERE: dict[type, Callable[[Any], Any]] = {}
"""Classes of tensors whose data are elsewhere (`pliant.remote`), and what makes another object for the same data."""


CLASS = object.__dict__["__class__"]


def of_inference(x: torch.Tensor, on: bool) -> torch.Tensor:
    """The memory of `x` as an inference tensor, or as one that is none."""
    with torch._C.DisableTorchFunctionSubclass(), torch._C._InferenceMode(on):  # type: ignore[attr-defined]
        if type(x) in ELSEWHERE:
            return ELSEWHERE[type(x)](x)  # type: ignore[no-any-return]
        y = torch.empty(0, dtype=x.dtype, device=x.device)
        ORIGINAL.set_(y, ORIGINAL.untyped_storage(x), ORIGINAL.storage_offset(x), ORIGINAL.size(x), ORIGINAL.stride(x))
    if not on:
        torch._C._autograd._unsafe_set_version_counter((y,), (0,))  # type: ignore[attr-defined]
    return y


def of_class(x: torch.Tensor, cls: type) -> torch.Tensor:
    """A new plain tensor as one of this class, in place: what comes from it keeps its history. (`as_subclass` makes a view.)"""
    if type(x) is not torch.Tensor:
        return ORIGINAL.as_subclass(x, cls)  # type: ignore[no-any-return]
    CLASS.__set__(x, cls)
    return x


def with_version(x: torch.Tensor, version: int) -> torch.Tensor:
    """The memory of `x` as a tensor with a version counter of its own, which says this."""
    y = x.data
    if version:
        torch._C._autograd._unsafe_set_version_counter((y,), (version,))  # type: ignore[attr-defined]
    return y


def instance_dict(obj: Any) -> dict:
    """The dictionary of an instance, whatever the class says about attributes."""
    return object.__getattribute__(obj, "__dict__")


def fill_dict(obj: Any, items: dict) -> None:
    """Set the instance dictionary, whatever the class says about attributes."""
    object.__getattribute__(obj, "__dict__").update(items)


def set_instance_dict(obj: Any, d: dict) -> None:
    """`obj.__dict__ = d`, likewise."""
    object.__setattr__(obj, "__dict__", d)


def fill_items(d: dict, pairs: tuple) -> None:
    dict.update(d, pairs)


def fill_ordered(d: collections.OrderedDict, pairs: tuple) -> None:
    put = collections.OrderedDict.__setitem__
    for k, v in pairs:
        put(d, k, v)


def new_exception(cls: type, base: type, given: tuple, args: tuple) -> BaseException:
    """An exception with `args`; the fields that the C constructor `base` derives from what it was `given` (errno, value, …) are set."""
    e = base.__new__(cls, *given)
    try:
        base.__init__(e, *given)  # type: ignore[misc]
    except TypeError:  # args do not fit the C constructor: the class sets them itself
        pass
    e.args = args
    return e


def new_deque(cls: type, maxlen: int | None) -> collections.deque:
    d = collections.deque.__new__(cls)
    collections.deque.__init__(d, (), maxlen)
    return d


def with_state(it: Any, state: Any) -> Any:
    set_state(it, state)
    return it


def advance(it: Any, n: int) -> Any:
    """`it` after `n` items."""
    next(itertools.islice(it, n, n), None)
    return it


class Given:
    """An iterator for one of C that is made again, which was given it before: it is not asked for its iterator a second time."""

    __slots__ = ("it",)

    def __init__(self, it: Any) -> None:
        self.it = it

    def __iter__(self) -> Any:
        return self.it


GROWING: dict[Any, Any] = {
    dict: lambda d: d.update({1: 1}),
    collections.OrderedDict: lambda d: d.update({1: 1}),
    set: lambda s: s.add(1),
    collections.deque: lambda q: q.append(1),
}


@contextlib.contextmanager
def of_size(d: dict, n: int) -> Iterator[None]:
    """The dict with its first `n` items, or with some more behind its own."""
    last = [d.popitem() for _ in range(len(d) - n)]
    more = range(n - len(d))
    d.update([(object(), None) for _ in more])
    try:
        yield
    finally:
        for _ in more:
            d.popitem()  # (it leaves no hole, as `del` does)
        d.update(reversed(last))


FEW = 16
"""How many items more or less are tried."""


def when_it_began(it: Any, d: dict) -> tuple[int, int] | None:
    """(how many items the dict had when this iterator over it was made, how many of these it has given), now that it has more or less."""
    if type(d) is not dict or not all([type(k) in (str, int) for k in d]):  # whose hash is nobody's code
        return None
    for n in range(max(len(d) - FEW, 0), len(d) + FEW):
        with of_size(d, n):
            try:
                return n, n - len(it.__reduce__()[1][0])
            except RuntimeError:
                continue
    return None


def as_it_began(view: Any, d: dict, size: int, given: int) -> Any:
    """An iterator over the dict that was made when it had another size."""
    with of_size(d, size):
        return advance(view(d), given)


def stale(view: Any, kind: Any = dict) -> Any:
    """An iterator over a container that has changed its size."""
    c = kind({0: 0})
    it = view(c)
    GROWING[kind](c)
    return it


def dead_reference() -> weakref.ref:
    """A weak reference to what is gone."""
    return weakref.ref(set())


def referents(obj: Any) -> list:
    return gc.get_referents(obj)


def viewed(view: Any) -> Any:
    """The dict behind a view of its keys, values or items."""
    return next(o for o in gc.get_referents(view) if isinstance(o, dict))


def mapping_of(proxy: types.MappingProxyType) -> Any:
    return gc.get_referents(proxy)[0]


def prime(gen: Any) -> Any:
    """Run a rebuilt generator up to the point where it was suspended."""
    gen.send(None)
    return gen


def exhausted(name: str, qualname: str) -> Any:
    """A generator that has ended."""

    def ended() -> Any:
        return
        yield

    ended.__name__, ended.__qualname__ = name, qualname
    g = ended()
    g.close()
    return g


def read_only(array: Any) -> Any:
    """A view that must not be written to."""
    array.flags.writeable = False
    return array


# -- writes -----------------------------------------------------------------------------------------------------------------


def raw_setattr(obj: Any, under_modes: bool = False) -> Any:
    """The C-level `__setattr__` of this object's class: the capture has already done what Python code does around it."""
    put = _slot(obj, "__setattr__")
    quiet = under_modes and isinstance(obj, torch.Tensor)  # the engine's `.grad`: where a mode is told, the graph breaks
    return without_modes(put) if quiet else put


def raw_delattr(obj: Any) -> Any:
    return _slot(obj, "__delattr__")


def _slot(obj: Any, name: str) -> Any:
    for c in type(obj).__mro__:
        found = c.__dict__.get(name)
        if type(found) is types.WrapperDescriptorType:
            return found
    return getattr(object, name)


def dict_replace(d: dict, pairs: tuple) -> None:
    (collections.OrderedDict.clear if isinstance(d, collections.OrderedDict) else dict.clear)(d)
    (fill_ordered if isinstance(d, collections.OrderedDict) else fill_items)(d, pairs)


def list_splice(xs: list, start: int, stop: int, items: list) -> None:
    list.__setitem__(xs, slice(start, stop), items)


def deque_replace(d: collections.deque, items: list) -> None:
    d.clear()
    d.extend(items)


def cell_del(cell: Any) -> None:
    del cell.cell_contents


ABSENT = object()


# -- calls ------------------------------------------------------------------------------------------------------------------


def enter(manager: Any) -> tuple[Any, Any]:
    """What BEFORE_WITH does: (bound `__exit__`, result of `__enter__`)."""
    cls = type(manager)
    found = [next((c.__dict__[name] for c in cls.__mro__ if name in c.__dict__), ABSENT) for name in ("__enter__", "__exit__")]
    for fn, missed in zip(found, ("", " (missed __exit__ method)"), strict=True):
        if fn is ABSENT:
            raise TypeError(f"{type_name(cls)!r} object does not support the context manager protocol{missed}")
    enter_fn, exit_fn = found
    return bind(exit_fn, manager, cls), bind(enter_fn, manager, cls)()


def without_modes(fn: Any) -> Any:
    """`fn` with torch-function modes off."""

    def graph(*slots: Any) -> Any:
        with torch._C.DisableTorchFunction():
            return fn(*slots)

    return graph


def bind(fn: Any, obj: Any, cls: type) -> Any:
    get = getattr(type(fn), "__get__", None)
    return get(fn, obj, cls) if get is not None else fn


def _make_handling() -> FunctionType:
    """`handling(exc, fn, args, kwargs)`: call `fn` as if inside the `except` block that handles `exc`.

    Written in bytecode, because `raise` and `except` would leave their marks on the exception.
    """

    def handling(exc: BaseException, fn: Any, args: tuple, kwargs: dict) -> Any: ...

    head = ins(K.RESUME, 0) + ins(K.LOAD_LOCAL, 0) + ins(K.PUSH_EXC_INFO) + ins(K.POP)
    callee = [ins(K.LOAD_LOCAL, 1), ins(K.PUSH_NULL)]
    call = b"".join(callee if CALLABLE_FIRST else reversed(callee)) + ins(K.LOAD_LOCAL, 2) + ins(K.LOAD_LOCAL, 3) + ins(K.CALL_EX, 1)
    leave = ins(K.SWAP, 2) + ins(K.POP_EXCEPT)
    raw = head + call + leave + ins(K.RETURN)
    target = len(raw)
    raw += leave + ins(K.RERAISE, 0)
    table = encode_exception_table([(len(head), len(head) + len(call), target, 1, False)])
    code = handling.__code__
    line = bytes((0x80 | 13 << 3 | 7, 0)) + bytes((0x80 | 13 << 3 | 7, 0)) * (len(raw) // 16)
    handling.__code__ = code.replace(
        co_flags=code.co_flags & ~FUTURE, co_code=raw, co_stacksize=8, co_exceptiontable=table, co_linetable=line
    )
    handling.__qualname__ = "handling"  # where it is found
    return forgetting(handling)  # type: ignore[arg-type]


handling = _make_handling()
Hop = tuple[str, str, str, int, str | None, int, int | None, int | None, int | None]
"""File, name, qualified name and `__future__` flags of a code object, the module, the place."""
_hops: dict[Hop, Any] = {}
_hop_of: WeakIdDict[Hop] = WeakIdDict()


def hop(code: CodeType, place: Span, module: str | None = None) -> Any:
    """`hop(fn, *args, **kwargs)` calls `fn`, and in a traceback looks like a frame of `code`, which is in `module`, at `place`."""
    return hop_like((code.co_filename, code.co_name, code.co_qualname, code.co_flags & FUTURE, module, *place))


def hop_like(key: Hop) -> Any:
    """The hop of these words; one for each."""
    found = _hops.get(key)
    if found is None:

        def call(fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            return fn(*args, **kwargs) if kwargs else fn(*args)  # C code can tell no keywords from none given (`gmpy2.mpz`)

        filename, name, qualname, flags, module, *place = key
        made = on_line(call.__code__, *place).replace(
            co_filename=filename, co_name=name, co_qualname=qualname, co_flags=call.__code__.co_flags & ~FUTURE | flags
        )
        namespace = {"__builtins__": builtins.__dict__}  # C code that imports looks for `__import__` there
        if module is not None:
            namespace["__name__"] = module
        found = _hops[key] = forgetting(FunctionType(made, namespace, name))
        _hop_of[found] = key
    return found


def words_of_hop(fn: Any) -> Hop | None:
    """What `hop_like` makes this function of; None if it is no hop."""
    return _hop_of.get(fn)
