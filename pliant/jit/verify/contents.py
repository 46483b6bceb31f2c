"""What an object holds itself, and how to make it hold that again: one row for each kind of object that can change.

A verified call runs twice from one state (`verifier.py`). For every object that it can reach (`reach.py`), `save` takes the object's own
content: references and bytes, not copies of what it refers to. `same` compares two contents by identity, `put` writes one back into the
very object. So nobody's identity changes, and whatever refers to an object sees what it held before.
"""

from __future__ import annotations

import array
import collections
import types
from collections.abc import Callable
from typing import Any, NamedTuple

from pliant.graph.originals import ORIGINAL, operator, torch
from pliant.graph.originals import numpy as np


class CannotPut(Exception):
    """This content cannot be written back."""


class Row(NamedTuple):
    """`save(obj)` gives the content, `put(obj, content)` restores it, `same(a, b)` tells whether two contents are one.

    `still(obj, content)`, where there is it, tells at once that an object holds what it held: most do.
    """

    name: str
    save: Callable[[Any], tuple]
    put: Callable[[Any, tuple], None]
    same: Callable[[tuple, tuple], bool]
    still: Callable[[Any, tuple], bool] | None = None


class Missing:
    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


def identical(a: list, b: list) -> bool:
    return len(a) == len(b) and all(map(operator.is_, a, b))


def same_lists(a: tuple, b: tuple) -> bool:
    """Contents made of lists of objects."""
    return len(a) == len(b) and all(map(identical, a, b))


def same_values(a: tuple, b: tuple) -> bool:
    return a == b


# -- dictionaries -----------------------------------------------------------------------------------------------------------------
def save_dict(d: dict) -> tuple:
    return list(dict.keys(d)), list(dict.values(d))


def put_dict(d: dict, content: tuple) -> None:
    dict.clear(d)
    dict.update(d, zip(*content, strict=True))


def still_dict(d: dict, content: tuple) -> bool:
    keys, values = content
    if len(d) != len(keys):
        return False
    return not keys or (all(map(operator.is_, dict.values(d), values)) and all(map(operator.is_, dict.keys(d), keys)))


def save_ordered(d: collections.OrderedDict) -> tuple:
    if not d:
        return [], []
    keys = list(collections.OrderedDict.keys(d))
    return keys, [dict.__getitem__(d, k) for k in keys]


def still_ordered(d: collections.OrderedDict, content: tuple) -> bool:
    return not d and not content[0]


def put_ordered(d: collections.OrderedDict, content: tuple) -> None:
    collections.OrderedDict.clear(d)
    for k, v in zip(*content, strict=True):
        collections.OrderedDict.__setitem__(d, k, v)


def save_defaultdict(d: collections.defaultdict) -> tuple:
    return *save_dict(d), [d.default_factory]


def put_defaultdict(d: collections.defaultdict, content: tuple) -> None:
    put_dict(d, content[:2])
    d.default_factory = content[2][0]


REGISTRY = "__warningregistry__"  # a warning that was shown once is not shown again


def save_namespace(d: dict) -> tuple:
    kept = [(k, v) for k, v in dict.items(d) if k != REGISTRY]
    return [k for k, _ in kept], [v for _, v in kept]


def put_namespace(d: dict, content: tuple) -> None:
    """What imports bound stays, as the second run finds the modules imported; so does what compilers leave for the code they make."""
    keys, values = content
    wanted = dict(zip(keys, values, strict=True))
    for k in [k for k, v in d.items() if k not in wanted and not stays(k, v)]:
        del d[k]
    for k, v in wanted.items():
        if d.get(k, MISSING) is not v:
            d[k] = v


def stays(name: Any, value: Any) -> bool:
    return type(value) is types.ModuleType or (type(name) is str and name.startswith("__"))


def same_namespace(a: tuple, b: tuple) -> bool:
    if same_lists(a, b):
        return True
    one, other = dict(zip(*a, strict=True)), dict(zip(*b, strict=True))
    return all(one.get(k, MISSING) is other.get(k, MISSING) or (k not in one and stays(k, other[k])) for k in one.keys() | other.keys())


# -- the attributes of classes ----------------------------------------------------------------------------------------------------
UNWRITABLE = frozenset(("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl", "__doc__", "__module__"))


def save_class(cls: type) -> tuple:
    kept = [(k, v) for k, v in vars(cls).items() if k not in UNWRITABLE]
    return [k for k, _ in kept], [v for _, v in kept]


def put_class(cls: type, content: tuple) -> None:
    wanted = dict(zip(*content, strict=True))
    for k in [k for k in vars(cls) if k not in wanted and k not in UNWRITABLE]:
        type.__delattr__(cls, k)
    for k, v in wanted.items():
        if vars(cls).get(k, MISSING) is not v:
            type.__setattr__(cls, k, v)


def same_class(a: tuple, b: tuple) -> bool:
    return same_lists(a, b) or (len(a[0]) == len(b[0]) and same_namespace(a, b))


# -- other containers -------------------------------------------------------------------------------------------------------------
def put_list(x: list, content: tuple) -> None:
    list.__setitem__(x, slice(None), content[0])


def put_set(x: set, content: tuple) -> None:
    set.clear(x)
    set.update(x, content[0])


def same_sets(a: tuple, b: tuple) -> bool:
    return len(a[0]) == len(b[0]) and set(map(id, a[0])) == set(map(id, b[0]))


def put_deque(x: collections.deque, content: tuple) -> None:
    collections.deque.clear(x)
    collections.deque.extend(x, content[0])


def save_cell(c: types.CellType) -> tuple:
    try:
        return ([c.cell_contents],)
    except ValueError:
        return ([MISSING],)


def put_cell(c: types.CellType, content: tuple) -> None:
    (v,) = content[0]
    if v is not MISSING:
        c.cell_contents = v
    elif save_cell(c)[0][0] is not MISSING:
        del c.cell_contents


def save_function(f: types.FunctionType) -> tuple:
    return ([f.__code__, f.__defaults__, f.__kwdefaults__],)


def put_function(f: types.FunctionType, content: tuple) -> None:
    f.__code__, f.__defaults__, f.__kwdefaults__ = content[0]


def slots_row(descriptors: tuple) -> Row:
    """The values in the `__slots__` of one class and its bases."""

    def save(x: Any) -> tuple:
        return ([read(d, x) for d in descriptors],)

    def read(d: Any, x: Any) -> Any:
        try:
            return d.__get__(x)
        except AttributeError:
            return MISSING

    def put(x: Any, content: tuple) -> None:
        for d, v in zip(descriptors, content[0], strict=True):
            now = read(d, x)
            if v is MISSING and now is not MISSING:
                d.__delete__(x)
            elif v is not now:
                d.__set__(x, v)

    return Row("slots", save, put, same_lists)


def put_class_of(x: Any, content: tuple) -> None:
    object.__setattr__(x, "__class__", content[0][0])


def save_error(e: BaseException) -> tuple:
    return [e.__cause__, e.__context__, e.__traceback__, e.__suppress_context__], e.args


def put_error(e: BaseException, content: tuple) -> None:
    e.args = content[1]
    e.__cause__, e.__context__, e.__traceback__, e.__suppress_context__ = content[0]


# -- bytes and numbers ------------------------------------------------------------------------------------------------------------
def put_bytes(x: Any, content: tuple) -> None:
    x[:] = type(x)(content[0]) if type(x) is bytearray else array.array(x.typecode, content[0])


def save_ndarray(a: np.ndarray) -> tuple:
    return a.copy(), a.shape, a.strides, a.dtype, a.flags.writeable


def put_ndarray(a: np.ndarray, content: tuple) -> None:
    was, shape, strides, dtype, writeable = content
    if (a.shape, a.strides, a.dtype) != (shape, strides, dtype):
        raise CannotPut("an array whose shape was changed in place")
    if a.tobytes() != was.tobytes():
        if not a.flags.writeable:
            a.flags.writeable = True
        np.copyto(a, was)
    if a.flags.writeable is not writeable:
        a.flags.writeable = writeable


def same_ndarrays(a: tuple, b: tuple) -> bool:
    return a[1:] == b[1:] and a[0].tobytes() == b[0].tobytes()


# -- tensors: all but the numbers, which are with the storages (`snapshot.py`) ----------------------------------------------------
class Face(NamedTuple):
    """What a tensor is, apart from the bytes of its storage. `alias` shares its memory and keeps it alive."""

    alias: torch.Tensor
    layout: tuple  # size, strides, offset, dtype, storage, conjugate and negative bits
    requires_grad: bool
    grad: Any
    grad_fn: Any
    version: int


def save_tensor(t: torch.Tensor) -> tuple:
    grad = t.grad if t.is_leaf or t.retains_grad else None
    layout = t.size(), t.stride(), t.storage_offset(), t.dtype, t.untyped_storage()._cdata, t.is_conj(), t.is_neg()
    return Face(t.detach(), layout, t.requires_grad, grad, t.grad_fn, -1 if ORIGINAL.is_inference(t) else t._version)


def same_tensors(a: tuple, b: tuple) -> bool:
    return a[1:3] == b[1:3] and a[3] is b[3] and a[4] is b[4] and a[5] == b[5]


def put_tensor(t: torch.Tensor, content: tuple) -> None:
    was: Face = content  # type: ignore[assignment]
    now: Face = save_tensor(t)  # type: ignore[assignment]
    if now.grad_fn is not was.grad_fn:
        if was.grad_fn is not None or t._is_view():
            raise CannotPut("a tensor whose place in the autograd graph was changed by writing to it")
        t.detach_()
    if now.grad is not was.grad:
        t.grad = None
    if now.layout != was.layout:
        if (now.layout[5:], was.layout[5:]) != ((False, False), (False, False)):
            raise CannotPut("a conjugate view that was given other memory")
        t.data = was.alias
    if t.requires_grad is not was.requires_grad:
        t.requires_grad_(was.requires_grad)
    if now.grad is not was.grad:
        t.grad = was.grad
    if was.version >= 0 and t._version != was.version:
        torch._C._autograd._unsafe_set_version_counter((t,), (was.version,))


def unfit_to_put(t: torch.Tensor, was: tuple, now: tuple) -> str | None:
    """Why `put_tensor` would fail, told before anything is written."""
    if now[4] is not was[4] and (was[4] is not None or t._is_view()):
        return "it writes in place to a tensor that has a place in an autograd graph"
    if now[1] != was[1] and (any(now[1][5:]) or any(was[1][5:])):
        return "it gives a conjugate view other memory"
    return None


def put_cache(cached: Any, content: tuple) -> None:
    """A cache that was empty is made empty; what else it holds stays (see `Snapshot.filled`)."""
    if not content[0][0]:
        cached.cache_clear()


def save_cache(cached: Any) -> tuple:
    told = cached.cache_info()
    return ((told.currsize, told.misses),)


CACHE = Row("cache", save_cache, put_cache, same_values)
DICT = Row("dict", save_dict, put_dict, same_lists, still_dict)
ORDERED = Row("dict", save_ordered, put_ordered, same_lists, still_ordered)
DEFAULTDICT = Row("dict", save_defaultdict, put_defaultdict, same_lists)
NAMESPACE = Row("namespace", save_namespace, put_namespace, same_namespace)
CLASS = Row("namespace", save_class, put_class, same_class)
LIST = Row("list", lambda x: (list(list.__iter__(x)),), put_list, same_lists)
SET = Row("set", lambda x: (list(set.__iter__(x)),), put_set, same_sets)
DEQUE = Row("list", lambda x: (list(collections.deque.__iter__(x)),), put_deque, same_lists)
CELL = Row("cell", save_cell, put_cell, same_lists)
FUNCTION = Row("function", save_function, put_function, same_lists)
CLASS_OF = Row("class", lambda x: ([type(x)],), put_class_of, same_lists, lambda x, content: type(x) is content[0][0])
ERROR = Row("error", save_error, put_error, lambda a, b: identical(a[0], b[0]) and a[1] is b[1])
BYTES = Row("value", lambda x: (bytes(x),), put_bytes, same_values)
NDARRAY = Row("value", save_ndarray, put_ndarray, same_ndarrays)
TENSOR = Row("tensor", save_tensor, put_tensor, same_tensors)
GENERATOR = Row(
    "value", lambda g: (g.get_state().numpy().tobytes(),),
    lambda g, c: g.set_state(torch.frombuffer(bytearray(c[0]), dtype=torch.uint8)), same_values,
)  # fmt: skip
RANDOM = Row("value", lambda r: (r.getstate(),), lambda r, c: r.setstate(c[0]), same_values)
NUMPY_BITS = Row("value", lambda b: (b.state,), lambda b, c: setattr(b, "state", c[0]), lambda a, b: repr(a) == repr(b))
NUMPY_RANDOM = Row("value", lambda r: (r.get_state(),), lambda r, c: r.set_state(c[0]), lambda a, b: repr(a) == repr(b))
