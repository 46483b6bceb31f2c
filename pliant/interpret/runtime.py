"""Small functions that emitted code calls to do what one instruction does (no tensors, no capture state)."""

from __future__ import annotations
import __future__

import abc
import logging
import sys
import types
import typing
import warnings
from _abc import _abc_init
from typing import Any

from pliant.bytecode.assemble import keyword_merger
from pliant.graph.originals import operator
from pliant.interpret.type_names import missed_special, type_name


def call_if(taken: bool, fn: Any, args: tuple, kwargs: dict) -> None:
    """A call that waits for the end of the graph, of one side of a branch in it. Emitted code has it as a statement of its own."""
    if taken:
        fn(*args, **kwargs)


def warn_at(fn: types.FunctionType, line: int, message: Any, category: Any) -> None:
    """`warnings.warn` from a line of a function of the program's."""
    warned(fn.__globals__, fn.__code__.co_filename, line, message, category)


def warn_in(module: str, filename: str, line: int, message: Any, category: Any) -> None:
    """`warnings.warn` from a line of a module of PyTorch's."""
    warned(vars(sys.modules[module]), filename, line, message, category)


def warned(space: dict, filename: str, line: int, message: Any, category: Any) -> None:
    """A warning about a line of code that has these globals: they hold what was shown once."""
    registry = space.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category or UserWarning, filename, line, space.get("__name__", "<string>"), registry)


def log_at(
    filename: str, name: str, line: int, logger: Any, level: int, message: Any, *args: Any, exc_info: Any = None, extra: Any = None
) -> None:  # fmt: skip
    """`logger.log(level, message, *args)` from a line of a function of the program's. `exc_info`: the exception in three parts, if any."""
    if logger.isEnabledFor(level):
        logger.handle(logger.makeRecord(logger.name, level, filename, line, message, args, exc_info, name, extra, None))


def log_from(filename: str, name: str, line: int, method: Any, level: int | None, logger: Any, *args: Any, **kw: Any) -> None:
    """`method(logger, *args, **kw)`, a method that logs, from a line of a function of the program's."""
    cls = type(logger)
    own = not isinstance(logger, logging.Logger) or any([getattr(cls, n) is not getattr(logging.Logger, n) for n in ("_log", "findCaller")])
    if level is not None:  # as the library's own function reads it
        level = vars(logging).get(method.__name__.upper())
        own = own or level is None
    fits = len(args) > (level is None) and (level is not None or isinstance(args[0], int))
    if own or not fits:
        method(logger, *args, **kw)
        return
    error = kw.get("exc_info")
    if isinstance(error, BaseException):
        error = (type(error), error, error.__traceback__)
    elif error and not isinstance(error, tuple):
        error = sys.exc_info()
    log_at(filename, name, line, logger, *(args if level is None else (level, *args)), exc_info=error, extra=kw.get("extra"))


def call_ex(fn: Any, args: Any, kwargs: Any) -> Any:
    return fn(*args, **kwargs)


def not_contains(container: Any, item: Any) -> bool:
    return not operator.contains(container, item)


def truth_of(compare: Any, a: Any, b: Any) -> bool:
    return bool(compare(a, b))


MISSING = object()


def unpack_ex(value: Any, before: int, after: int) -> tuple:
    """The `before + 1 + after` values that `a, *b, c = value` binds."""
    if not hasattr(type(value), "__iter__") and not hasattr(type(value), "__getitem__"):
        raise TypeError(f"cannot unpack non-iterable {type_name(type(value))} object")
    it = iter(value)
    first = [v for v in [next(it, MISSING) for _ in range(before)] if v is not MISSING]
    if len(first) < before:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {len(first)})")
    rest = list(it)
    if len(rest) < after:
        raise ValueError(f"not enough values to unpack (expected at least {before + after}, got {before + len(rest)})")
    return (*first, rest[: len(rest) - after], *rest[len(rest) - after :])


def build_string(*parts: str) -> str:
    """BUILD_STRING."""
    return "".join(parts)


def format_value(value: Any, conversion: int, spec: str) -> str:
    if conversion:
        value = (str, repr, ascii)[conversion - 1](value)
    return format(value, spec)


def import_from(module: Any, name: str) -> Any:
    try:
        return getattr(module, name)
    except AttributeError:
        pass
    return submodule(module, name)


def submodule(module: Any, name: str) -> Any:
    """What IMPORT_FROM finds where a module has no such attribute. Raises ImportError."""
    package = getattr(module, "__name__", None)
    if isinstance(package, str):
        found = sys.modules.get(f"{package}.{name}")
        if found is not None:
            return found
    path = getattr(module, "__file__", None)
    path = path if isinstance(path, str) else None
    starting = getattr(getattr(module, "__spec__", None), "_initializing", False)
    begun, why = ("partially initialized module ", " (most likely due to a circular import)") if starting and path else ("", "")
    text = f"cannot import name {name!r} from {begun}{package or '<unknown module name>'!r}{why} ({path or 'unknown location'})"
    raise ImportError(text, name=package, path=path)


def dict_update(target: dict, other: Any) -> None:
    merged = {**target, **other}
    target.clear()
    target.update(merged)  # which takes the hashes that a dict has stored: a key may have another by now


def dict_merge(target: dict, other: Any, callee: Any) -> None:
    keyword_merger(__file__)(callee, target, other)


def build_set(*items: Any) -> set:
    return set(items)


def build_map(*items: Any) -> dict:
    return dict(zip(items[::2], items[1::2], strict=True))


def call_method(obj: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    return getattr(obj, name)(*args, **kwargs)


def globals_of(fn: Any) -> dict:
    return fn.__globals__


def set_global(fn: Any, name: str, value: Any) -> None:
    fn.__globals__[name] = value


FUTURE = sum({getattr(__future__, name).compiler_flag for name in __future__.all_feature_names}) & ~0xFFFF
"""Flags of code that `eval`, `exec` and `compile` take over from the code that calls them."""


def evaluate(fn: Any, source: Any, frame_function: Any, names: Any, **kwargs: Any) -> Any:
    """`eval(source)` or `exec(source)` with the names, and the `__future__`, of the frame that the program wrote it in."""
    if isinstance(source, (str, bytes, bytearray, memoryview)):
        if fn is eval:
            source = bytes(source).lstrip(b" \t") if not isinstance(source, str) else source.lstrip(" \t")
        source = compile(source, "<string>", fn.__name__, frame_function.__code__.co_flags & FUTURE, dont_inherit=True)
    return fn(source, frame_function.__globals__, names, **kwargs)


# -- patterns -----------------------------------------------------------------------------------------------------


def is_mapping(subject: Any) -> bool:
    match subject:
        case {}:
            return True
    return False


def is_sequence(subject: Any) -> bool:
    match subject:
        case [*_]:
            return True
    return False


def match_keys(subject: Any, keys: tuple) -> tuple | None:
    """MATCH_KEYS: the values under `keys`; None if one is missing. A default dict makes none up."""
    missing = object()
    get = subject.get
    values = []
    for k in keys:
        value = get(k, missing)
        if value is missing:
            return None
        values.append(value)
    return tuple(values)


MATCHES_ITSELF = 1 << 22  # Py_TPFLAGS_MATCH_SELF: the one positional sub-pattern of `case int(n)` is matched with the subject


def match_class(subject: Any, cls: Any, n: int, names: tuple) -> tuple | None:
    """MATCH_CLASS: what the sub-patterns are matched with, `n` of them by position; None if the subject is no such instance."""
    if not isinstance(cls, type):
        raise TypeError("called match pattern must be a type")
    if not isinstance(subject, cls):
        return None
    return class_pattern(cls, n, names, getattr(cls, "__match_args__", None), subject, getattr)


def class_pattern(cls: type, n: int, names: tuple, given: Any, subject: Any, read: Any) -> tuple | None:
    """The values of a class pattern's sub-patterns, read by `read`; `given` is the class's `__match_args__`, None if it has none."""
    out = []
    if n:
        itself = given is None and bool(cls.__flags__ & MATCHES_ITSELF)
        given = () if given is None else given
        if type(given) is not tuple:
            raise TypeError(f"{cls.__name__}.__match_args__ must be a tuple (got {type_name(type(given))})")
        allowed = 1 if itself else len(given)
        if allowed < n:
            raise TypeError(f"{cls.__name__}() accepts {allowed} positional sub-pattern{'' if allowed == 1 else 's'} ({n} given)")
        if itself:
            out.append(subject)
        else:
            for name in given[:n]:
                if type(name) is not str:
                    raise TypeError(f"__match_args__ elements must be strings (got {type_name(type(name))})")
            names = (*given[:n], *names)
    seen = set()
    for name in names:
        if name in seen:
            raise TypeError(f"{cls.__name__}() got multiple sub-patterns for attribute {name!r}")
        seen.add(name)
        try:
            out.append(read(subject, name))
        except AttributeError:
            return None
    return tuple(out)


# -- classes ------------------------------------------------------------------------------------------------------


class _Quiet:
    """A first base whose `__init_subclass__` does nothing; one for each layout that the real bases may have."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


class _QuietSlots:
    __slots__ = ()
    __init_subclass__ = _Quiet.__dict__["__init_subclass__"]


class _QuietGeneric(typing.Generic[typing.TypeVar("_T")]):  # type: ignore[misc]
    __init_subclass__ = _Quiet.__dict__["__init_subclass__"]


class _QuietABC(abc.ABC):  # noqa: B024
    __init_subclass__ = _Quiet.__dict__["__init_subclass__"]


QUIET = (_QuietSlots, _Quiet, _QuietGeneric, _QuietABC)


def bare_class(meta: type, name: str, bases: tuple, ns: dict) -> Any:
    """A class, made without `__set_name__`, `__init_subclass__` and the metaclass's own code having run. None if that cannot be done."""
    late = {k: v for k, v in ns.items() if hasattr(type(v), "__set_name__")}
    ns = {k: None if k in late else v for k, v in ns.items()}
    cls = type.__new__(meta, name, bases, ns) if quiet(bases) else without_init_subclass(meta, name, bases, ns)
    if cls is not None:
        for k, v in late.items():
            type.__setattr__(cls, k, v)
        if issubclass(meta, abc.ABCMeta):
            abstract_base(cls)
    return cls


def abstract_base(cls: type) -> None:
    """What `ABCMeta` does to a new class, but for asking its attributes whether they are abstract (`classes.abstract_names`)."""
    if "__abc_tpflags__" in vars(cls):  # those of `collections.abc`
        _abc_init(cls)
    else:
        type.__setattr__(cls, "_abc_impl", AbstractBase())
        if "__abstractmethods__" not in vars(cls):
            type.__setattr__(cls, "__abstractmethods__", frozenset())


AbstractBase = type(vars(abc.ABC)["_abc_impl"])


def quiet(bases: tuple) -> bool:
    """Whether making a subclass runs nobody's code."""
    for b in bases:
        for c in b.__mro__:
            if "__init_subclass__" in c.__dict__:
                if c is not object:
                    return False
                break
    return True


def without_init_subclass(meta: type, name: str, bases: tuple, ns: dict) -> Any:
    classcell = ns.get("__classcell__")
    for shim in QUIET:
        try:
            cls = type.__new__(meta, name, (shim, *bases), dict(ns))  # type: ignore[var-annotated]
            cls.__bases__ = bases
        except TypeError:
            if type(classcell) is types.CellType:
                classcell.__init__()  # type: ignore[misc]
            continue
        return cls
    return None


def make_enum(meta: Any, name: str, bases: tuple, pairs: tuple, kw: dict) -> type:
    ns = meta.__prepare__(name, bases, **kw)
    for k, v in pairs:
        ns[k] = v
    return meta(name, bases, ns, **kw)


OWN = ("__dict__", "__weakref__", "_abc_impl")  # made with the class, unless they are the program's
MADE_WITH_CLASS = (types.GetSetDescriptorType, AbstractBase)


def class_content(cls: type) -> dict[str, Any]:
    """The attributes of a class that it was given, in order."""
    return {
        k: v for k, v in vars(cls).items()
        if not (k in OWN and type(v) in MADE_WITH_CLASS) and not (type(v) is types.MemberDescriptorType and v.__objclass__ is cls)
    }  # fmt: skip


def shell(meta: type, name: str, qualname: str, bases: tuple, names: tuple[str, ...], given: dict[str, Any]) -> type:
    """A class with all its attributes in order, the values of most yet to come (`fill_class`)."""
    cls = bare_class(meta, name, bases, {**dict.fromkeys(names), **given, "__qualname__": qualname})
    return cls


def fill_class(cls: type, content: dict[str, Any]) -> None:
    for k, v in content.items():
        type.__setattr__(cls, k, v)


def set_slot(obj: Any, cls: type, name: str, value: Any) -> None:
    """A slot of an instance, whatever its class says about attributes."""
    cls.__dict__[name].__set__(obj, value)


def super_attribute(fn: Any, cls: Any, obj: Any, name: str, two: bool) -> Any:
    """`super().name`, whatever `super` means to the program."""
    return getattr(fn(cls, obj) if two or fn is super else fn(), name)


def special_method(obj: Any, name: str) -> Any:
    """A method of a context manager, bound, as CPython finds it on the type."""
    t = type(obj)
    spaces = [c.__dict__ for c in t.__mro__]

    def found(name: str) -> Any:
        return next((space[name] for space in spaces if name in space), spaces)

    m = found(name)
    if m is spaces:
        raise TypeError(missed_special(t, name, lambda other: hasattr(type(found(other)), "__get__")))
    return type(m).__get__(m, obj, t) if hasattr(type(m), "__get__") else m


def chain(e: BaseException) -> None:
    """Give `e` the context that raising it here gives it."""
    held = sys.exc_info()[1]
    if held is None or held is e:
        return
    seen: set[int] = set()
    o: BaseException | None = held
    while o is not None and id(o) not in seen:
        seen.add(id(o))
        if o.__context__ is e:
            o.__context__ = None
        o = o.__context__
    e.__context__ = held
