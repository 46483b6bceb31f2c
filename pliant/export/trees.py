"""Trees: the result of a program as a nest of containers and objects, whose leaves are outputs, constants and arguments.

Containers and classes that are registered with PyTorch's pytree (or optree's global namespace) are taken apart as registered. Any other
object is taken apart by its attributes, where these are all that it is: instances of a Python class with a plain `__dict__`. In a file
such a class is a name; a process that does not have it gives outputs by name only.
"""

from __future__ import annotations

import collections
import enum
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from pliant.errors import PliantError
from pliant.interpret.policy import HEAPTYPE

LEAVES = ("output", "constant", "argument")
PLAIN = (type(None), bool, int, float, str, bytes, complex, torch.dtype, torch.device, torch.layout, torch.memory_format, enum.Enum, range)
HELD = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)


@dataclass(slots=True)
class Tree:
    """A node. `kind`: one of `LEAVES`; "node" (registered with pytree), "optree" (with optree) or "object" (taken apart by attributes).

    `value`: of leaves, the number of the output, the constant, or the path of the argument; else (class, context).
    """

    kind: str
    value: Any
    children: tuple[Tree, ...] = ()

    def walk(self) -> Iterator[Tree]:
        yield self
        for c in self.children:
            yield from c.walk()


class Missing:
    """A class, by its name, that this process does not have."""

    def __init__(self, name: str) -> None:
        self.name = name


def taken_apart(value: Any, leaf: Callable[[tuple, Any], Tree | None], path: tuple = (), above: tuple[int, ...] = ()) -> Tree:
    """The tree of `value`; `leaf` is asked first. PliantError for what cannot be taken apart."""
    found = leaf(path, value)
    if found is not None:
        return found
    if isinstance(value, PLAIN) or isinstance(value, HELD) or type(value) is torch.Size:
        return Tree("constant", value)
    if id(value) in above:
        raise PliantError(f"the result holds {type(value).__name__} that holds itself, at {'.'.join(map(str, path))}")
    for kind, (apart, _) in KINDS.items():
        parts = apart(value)
        if parts is not None:
            context, children, keys = parts
            made = [taken_apart(c, leaf, (*path, k), (*above, id(value))) for c, k in zip(children, keys, strict=True)]
            return Tree(kind, (type(value), context), tuple(made))
    raise PliantError(
        f"the result holds a {type(value).__name__} at {'.'.join(map(str, path)) or 'its root'}, which is no pytree: register it with "
        "torch.utils._pytree.register_pytree_node, or return its tensors."
    )


def put_together(tree: Tree, leaf: Callable[[Tree], Any]) -> Any:
    """The value of a tree; `leaf` gives those of outputs and arguments."""
    if tree.kind == "constant":
        return tree.value
    if tree.kind in LEAVES:
        return leaf(tree)
    cls, context = tree.value
    if isinstance(cls, Missing):
        raise LookupError(cls.name)
    return KINDS[tree.kind][1](cls, context, [put_together(c, leaf) for c in tree.children])


def paths(tree: Tree) -> list[tuple]:
    """Where the leaves are, in the order of `walk`."""
    found: list[tuple] = []

    def leaf(path: tuple, value: Any) -> Tree | None:
        if type(value) is Leaf:
            found.append(path)
        return Tree("constant", None) if type(value) is Leaf else None

    def marked(t: Tree) -> Tree:
        return Tree("output", 0) if t.kind in LEAVES else Tree(t.kind, t.value, tuple(map(marked, t.children)))

    taken_apart(put_together(marked(tree), lambda t: Leaf()), leaf)
    return found


class Leaf:
    """Stands for a leaf."""


def outputs(tree: Tree, value: Any) -> dict[int, Any]:
    """What stands in `value` where `tree` has outputs, by number. ValueError where they are not alike."""
    if tree.kind == "output":
        return {tree.value: value}
    found: dict[int, Any] = {}
    if tree.children:
        parts = KINDS[tree.kind][0](value)
        if parts is None or len(parts[1]) != len(tree.children):
            raise ValueError(f"a {type(value).__name__} is not what the program gives there")
        for c, x in zip(tree.children, parts[1], strict=True):
            found |= outputs(c, x)
    return found


# -- kinds --------------------------------------------------------------------------------------------------------------------------
Parts = tuple[Any, list[Any], list[Any]]


def registered(value: Any) -> Parts | None:
    """(context, children, keys) of a class that pytree knows."""
    node = collections.namedtuple if pytree.is_namedtuple_instance(value) else type(value)
    found = pytree.SUPPORTED_NODES.get(node)  # type: ignore[arg-type]
    if found is None:
        return None
    children, context = found.flatten_fn(value)
    children = list(children)
    keys: list[Any] = list(range(len(children)))
    if found.flatten_with_keys_fn is not None:
        keys = [key_of(k) for k, _ in found.flatten_with_keys_fn(value)[0]]
    return context, children, keys


def key_of(key: Any) -> Any:
    for name in ("name", "key", "idx"):
        if hasattr(key, name):
            return getattr(key, name)
    return str(key).strip(".[]'")


def unregistered(cls: type, context: Any, children: list[Any]) -> Any:
    node = collections.namedtuple if cls not in pytree.SUPPORTED_NODES else cls
    return pytree.SUPPORTED_NODES[node].unflatten_fn(children, context)  # type: ignore[index]


def by_optree(value: Any) -> Parts | None:
    """The same for one that only optree knows."""
    optree = sys.modules.get("optree")
    entry = optree.register_pytree_node.get(type(value)) if optree is not None and hasattr(optree.register_pytree_node, "get") else None
    if entry is None:
        return None
    children, context, *more = entry.flatten_func(value)
    children = list(children)
    keys = list(more[0]) if more and more[0] is not None else list(range(len(children)))
    return context, children, keys


def from_optree(cls: type, context: Any, children: list[Any]) -> Any:
    return sys.modules["optree"].register_pytree_node.get(cls).unflatten_func(context, children)


def attributes(value: Any) -> Parts | None:
    """The same for an object that is nothing but its attributes."""
    cls = type(value)
    ordinary = cls.__flags__ & HEAPTYPE and cls.__basicsize__ == Ordinary.__basicsize__ and cls.__itemsize__ == 0
    if not ordinary or isinstance(value, (torch.nn.Module, BaseException)) or not hasattr(value, "__dict__"):
        return None
    d = vars(value)
    return tuple(d), list(d.values()), list(d)


class Ordinary:
    """A class as the class statement makes it."""


def with_attributes(cls: type, context: Any, children: list[Any]) -> Any:
    made: Any = object.__new__(cls)
    made.__dict__.update(zip(context, children, strict=True))
    return made


KINDS: dict[str, tuple[Callable[[Any], Parts | None], Callable[[type, Any, list[Any]], Any]]] = {
    "node": (registered, unregistered),
    "optree": (by_optree, from_optree),
    "object": (attributes, with_attributes),
}
"""How values are taken apart, the first that can, and put together again."""


# -- names of classes -----------------------------------------------------------------------------------------------------------------
def class_name(cls: Any) -> str:
    return cls.name if isinstance(cls, Missing) else f"{cls.__module__}:{cls.__qualname__}"


def class_of(name: str, kind: str) -> Any:
    """The class of this name, if this process has it; nothing is imported for it. A file may only name what was made to be taken apart:
    classes that are registered, and for "object" Python classes."""
    module, _, path = name.partition(":")
    found: Any = sys.modules.get(module)
    for word in path.split("."):
        found = getattr(found, word, None) if isinstance(found, (types.ModuleType, type)) else None
    if not isinstance(found, type) or class_name(found) != name:
        return Missing(name)
    if kind == "node":
        named = issubclass(found, tuple) and hasattr(found, "_fields")
        return found if found in pytree.SUPPORTED_NODES or named else Missing(name)
    ordinary = found.__flags__ & HEAPTYPE and found.__basicsize__ == Ordinary.__basicsize__
    return found if kind == "optree" or ordinary else Missing(name)
