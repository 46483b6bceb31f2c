"""Names: of inputs by the path from their parameter, of parameters and buffers as their module calls them."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable
from typing import Any

import torch

from pliant.guards.source import Source
from pliant.symbolic.dims import Dim, promised

STATE = frozenset(("_parameters", "_buffers", "_modules", "__closure__", "cell_contents"))
PARAMETERS = ("args", "kwargs")
"""Of the frame that an export captures (`capture.call`)."""


def of_argument(source: Source) -> bool:
    """Whether a path begins at what the user gives, not at the program's state."""
    root = source.root
    return root.op == "local" and root.arg[1] in PARAMETERS


def title(f: Any) -> str:
    """What messages call an exported function or module."""
    name = type(f).__name__ if isinstance(f, torch.nn.Module) else getattr(f, "__name__", None) or type(f).__name__
    return re.sub(r"\W", "_", name)


def path_name(path: Iterable[Any]) -> str:
    """`("cache", ("attr", "layers"), ("index", 0), ("attr", "keys"))` as `cache.layers.0.keys`."""
    first, *steps = path
    return str(first) + "".join(f".{k}" if re.fullmatch(r"\w+", str(k)) else f"[{k!r}]" for op, k in steps if op != "view")


class Parameters:
    """The parameters of the exported function, and which of them the example gave by position."""

    def __init__(self, f: Any, args: tuple, kwargs: dict) -> None:
        target = f.forward if isinstance(f, torch.nn.Module) else f
        try:
            self.declared = list(inspect.signature(target).parameters.values())
        except (TypeError, ValueError):  # a builtin: nobody knows its parameters' names
            self.declared = [inspect.Parameter(f"arg{i}", inspect.Parameter.POSITIONAL_ONLY) for i in range(len(args))]
        self.names = [p.name for p in self.declared]
        positional = [p for p in self.declared if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        self.positional = [p.name for p in positional]
        self.keywords = [p.name for p in self.declared if p.kind is p.KEYWORD_ONLY]
        self.keywords += [k for k in kwargs if k not in self.names]  # of `**kwargs`
        self.defaults = {p.name: p.default for p in self.declared if isinstance(p.default, (bool, int, float, str, type(None)))}
        self.rest = next((p.name for p in self.declared if p.kind is p.VAR_POSITIONAL), None)

    def path(self, holder: str, steps: list[tuple[str, Any]]) -> tuple:
        """The path of what the frame finds by `steps` in its `args` or `kwargs`."""
        (_, first), *more = steps
        if holder == "kwargs":
            return (first, *more)
        if first < len(self.positional):
            return (self.positional[first], *more)
        return (self.rest or f"arg{first}", ("index", first - len(self.positional)), *more)

    def place(self, path: tuple) -> tuple:
        """Where an input stands among the others: by parameter, then as it was met."""
        name = path[0]
        return (self.names.index(name) if name in self.names else len(self.names), name)


class Names:
    """Gives each input a name of its own."""

    def __init__(self, f: Any) -> None:
        self.taken: set[str] = set()
        self.known: dict[int, tuple[str, str]] = {}
        if isinstance(f, torch.nn.Module):
            self.learn(f, "")
        elif isinstance(getattr(f, "__self__", None), torch.nn.Module):
            self.learn(f.__self__, "")

    def learn(self, module: torch.nn.Module, prefix: str) -> None:
        for name, p in module.named_parameters(remove_duplicate=False):
            self.known.setdefault(id(p), ("parameter", prefix + name))
        for name, b in module.named_buffers(remove_duplicate=False):
            self.known.setdefault(id(b), ("buffer", prefix + name))

    def unique(self, name: str) -> str:
        """This name, or with a number behind it if it is taken."""
        found, n = name, 0
        while found in self.taken:
            n += 1
            found = f"{name}_{n}"
        self.taken.add(found)
        return found

    def of_state(self, real: torch.Tensor, source: Source) -> tuple[str, str]:
        """(kind, name) of a tensor that is no argument: as its module calls it, else after where it was found."""
        known = self.known.get(id(real))
        if known is not None:
            return known[0], self.unique(known[1])
        kind = "parameter" if isinstance(real, torch.nn.Parameter) else "buffer" if through_buffers(source) else "constant"
        return kind, self.unique(source_name(source))


def through_buffers(source: Source) -> bool:
    s: Source | None = source
    while s is not None:
        if s.arg == "_buffers":
            return True
        s = s.base
    return False


def source_name(source: Source) -> str:
    """A readable name for a tensor of a closure, of a global or of some object."""
    words: list[str] = []
    s: Source | None = source
    while s is not None:
        word = s.arg[1] if s.op == "local" else s.arg
        if isinstance(word, (str, int)) and type(word) is not bool and s.op not in ("cell",) and word not in STATE and word != "target":
            words.append(str(word))
        s = s.base
    return ".".join(re.sub(r"\W", "_", w) for w in reversed(words)) or "tensor"


TORCH = os.path.dirname(torch.__file__)


def user_site(site: Any) -> Any:
    """The innermost line that is not PyTorch's own; the innermost at all where there is none."""
    s = site
    while s is not None and s.filename.startswith(TORCH):
        s = s.outer
    return site if s is None else s


def dims(scope: Any, inputs: Iterable[Any]) -> dict[str, str]:
    """What people call the symbols: a declared dim by its name, others by the input whose size they are."""
    out: dict[str, str] = {}
    for s in scope.symbols.values():
        if promised(s) and isinstance(s.info.dim, Dim):
            out[s.name] = s.info.dim.name
    for i in inputs:
        if not i.is_tensor:
            out.setdefault(i.value.name, i.name)
    return out
