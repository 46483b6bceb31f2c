"""One handler per kind of instruction: calls, attributes, items, building containers, functions, imports, patterns."""

from __future__ import annotations

import ctypes
import types
from collections.abc import Callable
from typing import Any

import torch

from pliant.bytecode import kinds as K
from pliant.bytecode.version import CALLABLE_FIRST
from pliant.graph.originals import ORIGINAL
from pliant.graph.traced import TracedTensor
from pliant.interpret import mappings, runtime, shadows
from pliant.interpret.attributes import delattr_, getattr_, lookup, say_whose, setattr_
from pliant.interpret.calls import call, graph_call, native
from pliant.interpret.capture import NULL, UNSET
from pliant.interpret.decode import op
from pliant.interpret.grown_lists import Grown
from pliant.interpret.iteration import ask_length, drain
from pliant.interpret.late_text import formatted, joined, of_item
from pliant.interpret.opaque import Opaque
from pliant.interpret.slips import slipped
from pliant.interpret.slots import delitem, get_iter, get_next, getitem, hashable, length, setitem, unpack
from pliant.interpret.state import Break, taken, vm
from pliant.interpret.type_names import function_text, type_name
from pliant.interpret.types import tensors
from pliant.native import made_in_python

CellType, FunctionType, MethodType = types.CellType, types.FunctionType, types.MethodType

# -- attributes and items ------------------------------------------------------------------------------


@op(K.LOAD_ATTR)
def load_attr(f: Any, name: str) -> None:
    s = f.stack
    f.tail = True
    try:
        r = getattr_(s[-1], name)
    except AttributeError as e:
        say_whose(e, s[-1], name)
        raise
    f.tail = False
    s[-1] = r


@op(K.LOAD_METHOD)
def load_method(f: Any, name: str) -> None:
    s = f.stack
    o = s[-1]
    try:
        r = getattr_(o, name)
    except AttributeError as e:
        say_whose(e, o, name)
        raise
    s.pop()
    push_method(s, r, o)


def push_method(s: list, r: Any, o: Any) -> None:
    """What was read from `o` to be called, as CPython has it on the stack: a function and `o`, or one item and NULL."""
    if type(r) is MethodType and r.__self__ is o:
        s += (r.__func__, o)
    elif CALLABLE_FIRST:
        s += (r, NULL)
    else:
        s += (NULL, r)


@op(K.STORE_ATTR)
def store_attr(f: Any, name: str) -> None:
    s = f.stack
    setattr_(s[-1], name, s[-2])
    del s[-2:]


@op(K.DELETE_ATTR)
def delete_attr(f: Any, name: str) -> None:
    delattr_(f.stack[-1], name)
    f.stack.pop()


@op(K.LOAD_ITEM)
def binary_subscr(f: Any, a: Any) -> None:
    s = f.stack
    f.tail = True
    r = getitem(s[-2], s[-1])
    f.tail = False
    s.pop()
    s[-1] = r


@op(K.STORE_ITEM)
def store_subscr(f: Any, a: Any) -> None:
    s = f.stack
    setitem(s[-2], s[-1], s[-3])
    del s[-3:]


@op(K.DELETE_ITEM)
def delete_subscr(f: Any, a: Any) -> None:
    s = f.stack
    delitem(s[-2], s[-1])
    del s[-2:]


# -- calls ------------------------------------------------------------------------------------------------


@op(K.KEYWORDS)
def kw_names(f: Any, names: tuple) -> None:
    f.kw = names


def call_operands(f: Any, n: int) -> tuple[Any, tuple, dict]:
    """What a CALL instruction is about to call; the stack is left as it is."""
    s = f.stack
    base = len(s) - n
    args = tuple(s[base:])
    fn, first = s[base - 2], s[base - 1]
    if CALLABLE_FIRST:
        if first is not NULL:
            args = (first, *args)
    elif fn is NULL:
        fn = first
    else:
        args = (first, *args)
    k = f.kw
    if k:
        nk = len(k)
        return fn, args[:-nk], dict(zip(k, args[-nk:], strict=True))
    return fn, args, {}


def call_with(f: Any, operands: Callable[[Any, int], tuple[Any, tuple, dict]], operand: int, size: int) -> None:
    """Make the call that `operands` tells; its result takes the place of the upper `size` items of the stack."""
    fn, args, kw = operands(f, operand)
    f.tail = True
    f.moved = -1
    r = call(fn, args, kw)
    f.tail = False
    f.kw = ()
    s = f.stack
    del s[len(s) - size + 1 :], fn, args, kw
    s[-1] = r
    if vm.pending is not None:  # a generator among the operands has ended, and that broke the graph
        raise taken()


@op(K.CALL)
def op_call(f: Any, n: int) -> None:
    call_with(f, call_operands, n, n + 2)


def call_kw_operands(f: Any, n: int) -> tuple[Any, tuple, dict]:
    """As `call_operands`, of a CALL that finds the names of its keyword arguments on top of the stack."""
    f.kw = f.stack.pop()
    try:
        return call_operands(f, n)
    finally:
        f.stack.append(f.kw)
        f.kw = ()


@op(K.CALL_KW)
def call_kw(f: Any, n: int) -> None:
    call_with(f, call_kw_operands, n, n + 3)


def spread_operands(f: Any, flags: int) -> tuple[Any, Any, Any]:
    """What a call with `*` and `**` finds on the stack: (callable, positional arguments, keywords)."""
    s = f.stack
    at = len(s) - 1 - (flags & 1)
    return s[at - 2 if CALLABLE_FIRST else at - 1], s[at], s[-1] if flags & 1 and s[-1] is not NULL else {}


def call_ex_operands(f: Any, flags: int) -> tuple[Any, tuple, dict]:
    """(callable, positional arguments, keywords) of a call with `*` and `**`. What an iterator gave stands in its place on the stack from
    now on: the call itself may break the graph, and nothing gives it twice."""
    fn, args, kw = spread_operands(f, flags)
    if type(args) is not tuple:
        args = tuple(all_of(args, lambda: f"{function_text(fn)} argument after * must be an iterable, not {class_name(args)}"))
        f.stack[len(f.stack) - 1 - (flags & 1)] = args
    if flags & 1:
        entries = entries_of(kw, lambda: no_keywords(fn, kw), {})
        if type(kw) is not dict:
            f.stack[-1] = entries
        kw = dict(entries)
        if not all(isinstance(k, str) for k in kw):
            raise TypeError("keywords must be strings")
    return fn, args, kw


def entries_of(v: Any, refusal: Callable[[], str], known: dict | None = None) -> dict:
    """The items of a mapping, none of whose keys is in `known`, if that is given. Of an AttributeError CPython says that it is none."""
    if not mappings.is_mapping(v):
        raise TypeError(refusal())
    try:
        return mappings.entries(v, known)
    except AttributeError as e:
        if slipped(e):
            raise
    raise TypeError(refusal())


def no_keywords(fn: Any, v: Any) -> str:
    return f"{function_text(fn)} argument after ** must be a mapping, not {class_name(v)}"


def class_name(v: Any) -> str:
    return type_name(vm.type_of(v))


def iterator_of(v: Any, refusal: Callable[[], str]) -> Any:
    """`iter(v)`, with words of its own for what cannot be iterated at all."""
    t = vm.type_of(v)
    if lookup(t, "__iter__") in (UNSET, None):
        if lookup(t, "__iter__") is None or lookup(t, "__getitem__") is UNSET:
            raise TypeError(refusal())
        if not made_in_python(t) and not is_sequence(v):  # its subscripts are those of a mapping
            raise TypeError(refusal())
    return get_iter(v)


is_sequence = ctypes.pythonapi.PySequence_Check
is_sequence.argtypes = (ctypes.py_object,)


def all_of(v: Any, refusal: Callable[[], str]) -> list:
    """Its items, for a list or a tuple of them."""
    if type(v) in (list, tuple):
        return unpack(v)
    it = iterator_of(v, refusal)
    ask_length(v)
    return drain(it)


def first_of(v: Any, n: int) -> tuple[list, Any]:
    """At most `n` items of what is unpacked, and its iterator."""
    it = iterator_of(v, lambda: f"cannot unpack non-iterable {class_name(v)} object")
    out: list[Any] = []
    while len(out) < n:
        try:
            out.append(get_next(it))
        except StopIteration:
            break
    return out, it


@op(K.CALL_EX)
def call_function_ex(f: Any, flags: int) -> None:
    call_with(f, call_ex_operands, flags, 3 + (flags & 1))


def entries(d: dict) -> dict:
    """A dict that a function is to hold. It may have come through a graph break: then all that is in it is read now."""
    shadows.read_all(vm.world, d)
    return d


@op(K.MAKE_FUNCTION)
def make_function(f: Any, flags: int) -> None:
    s = f.stack
    code = s.pop()
    closure = s.pop() if flags & 8 else None
    annotations = s.pop() if flags & 4 else None
    kwdefaults = s.pop() if flags & 2 else None
    defaults = s.pop() if flags & 1 else None
    if closure is None and code.co_freevars:
        closure = tuple(CellType() for _ in code.co_freevars)  # until an instruction of its own brings them
    fn = FunctionType(code, f.globals, code.co_name, defaults, closure)
    if kwdefaults:
        fn.__kwdefaults__ = entries(kwdefaults)
    if annotations:
        fn.__annotations__ = annotations if isinstance(annotations, dict) else dict(zip(annotations[::2], annotations[1::2], strict=True))
    fn.__qualname__ = code.co_qualname
    vm.world.own_functions[id(fn)] = fn
    s.append(fn)


@op(K.SET_FUNCTION_ATTRIBUTE)
def set_function_attribute(f: Any, flag: int) -> None:
    s = f.stack
    fn = s.pop()
    v = s.pop()
    if flag == 8:
        made = FunctionType(fn.__code__, f.globals, fn.__name__, None, v)
        made.__qualname__ = fn.__qualname__
        del vm.world.own_functions[id(fn)]
        vm.world.own_functions[id(made)] = fn = made
    elif flag == 4:
        fn.__annotations__ = v if isinstance(v, dict) else dict(zip(v[::2], v[1::2], strict=True))
    elif flag == 2:
        fn.__kwdefaults__ = entries(v)
    else:
        fn.__defaults__ = v
    s.append(fn)


# -- building --------------------------------------------------------------------------------------------


def take(s: list, n: int) -> list:
    if not n:
        return []
    r = s[-n:]
    del s[-n:]
    return r


@op(K.BUILD_TUPLE)
def build_tuple(f: Any, n: int) -> None:
    r = tuple(take(f.stack, n))
    f.stack.append(r)


@op(K.BUILD_LIST)
def build_list(f: Any, n: int) -> None:
    r = take(f.stack, n)
    f.stack.append(r)


@op(K.BUILD_SET)
def build_set(f: Any, n: int) -> None:
    s = f.stack
    r = native(set, ([hashable(x) for x in s[len(s) - n :]],), {}) if n else set()
    if n:
        del s[-n:]
    s.append(r)


@op(K.BUILD_MAP)
def build_map(f: Any, n: int) -> None:
    s = f.stack
    items = s[len(s) - 2 * n :] if n else []
    pairs = [(hashable(items[i]), items[i + 1]) for i in range(0, 2 * n, 2)]
    r = dict(pairs) if all(type(k) is str for k, _ in pairs) else native(dict, (pairs,), {})
    if n:
        del s[-2 * n :]
    s.append(r)


@op(K.BUILD_CONST_KEY_MAP)
def build_const_key_map(f: Any, n: int) -> None:
    s = f.stack
    keys = s.pop()
    r = dict(zip(keys, take(s, n), strict=True))
    s.append(r)


@op(K.BUILD_STRING)
def build_string(f: Any, n: int) -> None:
    s = f.stack
    parts = s[len(s) - n :]
    text = joined(parts)
    del s[len(s) - n :]
    s.append("".join(parts) if text is None else text)


@op(K.BUILD_SLICE)
def build_slice(f: Any, n: int) -> None:
    r = slice(*take(f.stack, n))
    f.stack.append(r)


BIG = 10**18  # the text of longer numbers may be refused: the process has a limit


def text_of_item(v: Any) -> Any:
    """The text of an integer in a tensor, in a loop on data, where it may say which module of a dict is called (experts)."""
    if type(v) is not TracedTensor or v.sizes or not vm.history.counts_rounds or vm.late_texts is None or v.pytype is not torch.Tensor:
        return None
    if v.dtype is torch.bool or v.dtype.is_floating_point or v.dtype.is_complex:
        return None
    return of_item(graph_call(ORIGINAL.item, (v,), {}, "item"))


@op(K.FORMAT)
def format_value(f: Any, flags: int) -> None:
    s = f.stack
    spec = s[-1] if flags & 4 else ""
    v = s[-2] if flags & 4 else s[-1]
    conversion = flags & 3
    text = text_of_item(v) if vm.exploring and not flags else None
    if text is None:
        text = formatted(v, conversion, spec, f.watched and vm.history.breaks_at(f.code, f.decoded.offsets[f.pc - 1]))
    if text is not None:
        del s[-1 - bool(flags & 4) :]
        s.append(text)
        return
    if conversion:
        v = vm.call((str, repr, ascii)[conversion - 1], (v,), {})
    plain = not spec and (type(v) in (str, float, bool) or (type(v) is int and -BIG < v < BIG))
    r = format(v, spec) if plain else vm.call(format, (v, spec), {})
    if flags & 4:
        s.pop()
    s[-1] = r


def growing(o: Any, what: str) -> Any:
    """The container on the stack that an instruction extends. One that came through graph breaks and was another each time is not known."""
    if type(o) is Opaque:
        raise Break("PL0017", f"{what} {o.source.name}, which changes on every call", clean=True)
    return o


@op(K.LIST_APPEND)
def list_append(f: Any, n: int) -> None:
    s = f.stack
    growing(s[-n - 1], "an item for").append(s[-1])
    s.pop()


@op(K.SET_ADD)
def set_add(f: Any, n: int) -> None:
    v = hashable(f.stack[-1])
    native(set.add, (f.stack[-n - 1], v), {})
    f.stack.pop()


@op(K.MAP_ADD)
def map_add(f: Any, n: int) -> None:
    s = f.stack
    k = hashable(s[-2])
    setitem(s[-n - 2], k, s[-1])
    del s[-2:]


@op(K.LIST_EXTEND)
def list_extend(f: Any, n: int) -> None:
    s = f.stack
    growing(s[-n - 1], "items for")
    if type(s[-1]) is Grown and type(s[-n - 1]) is list and not s[-n - 1]:
        s[-n - 1] = s[-1].copy()
        s.pop()
        return
    tensors.hinted(s[-1])
    items = all_of(s[-1], lambda: f"Value after * must be an iterable, not {class_name(s[-1])}")
    s.pop()
    s[-n].extend(items)


@op(K.SET_UPDATE)
def set_update(f: Any, n: int) -> None:
    s = f.stack
    items = [hashable(x) for x in unpack(s[-1])]
    kind = type(s[-1])  # C makes room for what it is told is coming, which the order of the set shows
    native(set.update, (s[-n - 1], s[-1] if kind in (set, frozenset) else dict.fromkeys(items) if kind is dict else items), {})
    s.pop()


def callee(s: list, n: int) -> Any:
    """What is about to be called with the keywords that are merged."""
    at = n + 3 + CALLABLE_FIRST
    return s[-at] if len(s) >= at else None


def merged(f: Any, n: int, unique: bool) -> None:
    s = f.stack
    v, target = s[-1], growing(s[-n - 1], "items for")
    if unique:
        items = entries_of(v, lambda: no_keywords(callee(s, n), v), target)
    else:
        items = entries_of(v, lambda: f"'{class_name(v)}' object is not a mapping")
    if id(target) in vm.world.by_copy:
        for k, x in items.items():
            setitem(target, k, x)
    else:
        target.update(items)
    s.pop()


@op(K.DICT_UPDATE)
def dict_update(f: Any, n: int) -> None:
    merged(f, n, False)


@op(K.DICT_MERGE)
def dict_merge(f: Any, n: int) -> None:
    merged(f, n, True)


@op(K.LIST_TO_TUPLE)
def list_to_tuple(f: Any, a: Any) -> None:
    shadows.read_all(vm.world, growing(f.stack[-1], "a tuple of"))  # the list may have come through a graph break
    f.stack[-1] = tuple(f.stack[-1])


@op(K.UNPACK_SEQUENCE)
def unpack_sequence(f: Any, n: int) -> None:
    s = f.stack
    v = s[-1]
    r = unpack(v) if type(v) in (list, tuple) else first_of(v, n + 1)[0]
    if len(r) > n:
        raise ValueError(f"too many values to unpack (expected {n})")
    if len(r) < n:
        raise ValueError(f"not enough values to unpack (expected {n}, got {len(r)})")
    s.pop()
    r.reverse()
    s.extend(r)


@op(K.UNPACK_EX)
def unpack_ex(f: Any, a: int) -> None:
    before, after = a & 255, a >> 8
    s = f.stack
    r, it = first_of(s[-1], before)
    if len(r) < before:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(r)})")
    r += unpack(it, hint=True)
    if len(r) < before + after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(r)})")
    s.pop()
    middle = r[before : len(r) - after]
    x = [*r[:before], middle, *r[len(r) - after :]] if after else [*r[:before], middle]
    x.reverse()
    s.extend(x)


# -- patterns -----------------------------------------------------------------------------------------------

MAPPING_FLAG, SEQUENCE_FLAG = 1 << 6, 1 << 5


@op(K.GET_LEN)
def get_len(f: Any, a: Any) -> None:
    f.stack.append(length(f.stack[-1]))


@op(K.MATCH_MAPPING)
def match_mapping(f: Any, a: Any) -> None:
    f.stack.append(bool(vm.type_of(f.stack[-1]).__flags__ & MAPPING_FLAG))


@op(K.MATCH_SEQUENCE)
def match_sequence(f: Any, a: Any) -> None:
    f.stack.append(bool(vm.type_of(f.stack[-1]).__flags__ & SEQUENCE_FLAG))


ABSENT = object()


@op(K.MATCH_KEYS)
def match_keys(f: Any, a: Any) -> None:
    keys, subject = f.stack[-1], f.stack[-2]
    values: list[Any] = []
    seen: list[Any] = []
    get = getattr_(subject, "get") if keys else None
    for k in keys:
        if k in seen:
            raise ValueError(f"mapping pattern checks duplicate key ({k!r})")
        seen.append(k)
        v = call(get, (k, ABSENT), {})
        if v is ABSENT:
            f.stack.append(None)
            return
        values.append(v)
    f.stack.append(tuple(values))


@op(K.MATCH_CLASS)
def match_class(f: Any, n: int) -> None:
    s = f.stack
    names, cls, subject = s[-1], s[-2], s[-3]
    found = attributes_matched(subject, cls, names, n)
    del s[-2:]
    s[-1] = found


def attributes_matched(subject: Any, cls: Any, names: tuple, n: int) -> tuple | None:
    """What the sub-patterns of a class pattern are matched with, `n` of them by position; None if it does not match."""
    if not isinstance(cls, type):
        raise TypeError("called match pattern must be a type")
    if not vm.isinstance(subject, cls):
        return None
    try:
        given = getattr_(cls, "__match_args__") if n else None
    except AttributeError:
        given = None
    return runtime.class_pattern(cls, n, names, given, subject, getattr_)


__all__ = ["UNSET", "call_ex_operands", "call_kw_operands", "call_operands", "push_method", "spread_operands"]
