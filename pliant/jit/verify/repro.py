"""The file that reproduces a difference: a script, and beside it the function, its arguments and the random states as data.

They lie in `verify/` of the cache directory (`PLIANT_CACHE_DIR`, else `~/.cache/pliant`), a folder for each difference. Functions and
classes that another process can import are named, others are written down with the globals that they mention. What pickles refuse, or
is larger than `LIMIT`, leaves the script without data: it still tells what differed, the guards and the emitted code.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import itertools
import marshal
import os
import pickle
import sys
import time
import types
from collections.abc import Sequence
from typing import Any

from pliant import native
from pliant.codegen import cache
from pliant.config import Config
from pliant.graph.originals import of_own_tensors, torch
from pliant.jit.verify.ambient import Ambient
from pliant.jit.verify.contents import MISSING, save_cell
from pliant.jit.verify.reach import names_in

LIMIT = 256 << 20
SKETCH_LIMIT = 1 << 20
_serial = itertools.count()


class TooLarge(Exception):
    pass


class Limited(io.BytesIO):
    """Refuses more than so many bytes."""

    def __init__(self, most: int) -> None:
        super().__init__()
        self.most = most

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > self.most:
            raise TooLarge
        return super().write(data)


def importable(obj: Any) -> bool:
    """Does its name lead another process to it?"""
    module = sys.modules.get(obj.__module__ or "")
    if module is None or obj.__module__ == "__main__" or "<locals>" in obj.__qualname__:
        return False
    found: Any = module
    for part in obj.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is obj


class Pickler(pickle.Pickler):
    """Writes down functions and classes that have no importable name, too. `bare`: tensors without their numbers."""

    def __init__(self, file: Any, bare: bool = False) -> None:
        super().__init__(file, protocol=5)
        self.bare = bare

    def reducer_override(self, obj: Any) -> Any:
        t = type(obj)
        if t is types.FunctionType and not importable(obj):
            mentioned = {n: obj.__globals__[n] for n in sorted(names_in(obj.__code__)) if n in obj.__globals__}
            state = (mentioned, obj.__defaults__, obj.__kwdefaults__, obj.__dict__, obj.__closure__)
            made = (marshal.dumps(obj.__code__), len(obj.__closure__ or ()), obj.__name__, obj.__qualname__, obj.__module__)
            return make_function, made, state, None, None, fill_function
        if isinstance(obj, type) and not importable(obj):
            content = {k: v for k, v in vars(obj).items() if k not in ("__dict__", "__weakref__", "__abstractmethods__", "_abc_impl")}
            slots = [d for d, v in content.items() if type(v) is types.MemberDescriptorType]
            parts = (t, obj.__name__, obj.__bases__, obj.__qualname__, content.get("__slots__"))
            return make_class, parts, {k: v for k, v in content.items() if k not in (*slots, "__slots__")}, None, None, fill_class
        if t is types.ModuleType:
            return importlib.import_module, (obj.__name__,)
        if t is types.CellType:
            (content,) = save_cell(obj)[0]
            return types.CellType, (), None if content is MISSING else (content,), None, None, fill_cell
        if t is native.EntryPoint:
            return same, (obj._origin or obj._fn,)
        if t in (property, staticmethod, classmethod):
            return t, ((obj.fget, obj.fset, obj.fdel) if t is property else (obj.__func__,))
        if isinstance(obj, torch.Tensor) and self.bare:
            return blank, (tuple(obj.shape), obj.stride(), obj.dtype, str(obj.device), obj.requires_grad)
        return NotImplemented


def same(x: Any) -> Any:
    return x


def blank(shape: tuple, strides: tuple, dtype: torch.dtype, device: str, requires_grad: bool) -> torch.Tensor:
    t = torch.empty_strided(shape, strides, dtype=dtype, device=device)
    (t.normal_() if dtype.is_floating_point else t.zero_())
    return t.requires_grad_(requires_grad)


_modules: dict[str | None, dict[str, Any]] = {}


def make_function(code: bytes, cells: int, name: str, qualname: str, module: str | None) -> types.FunctionType:
    globals_ = _modules.setdefault(module, {"__name__": module, "__builtins__": __builtins__})
    fn = types.FunctionType(marshal.loads(code), globals_, name, None, tuple(types.CellType() for _ in range(cells)) or None)
    fn.__qualname__ = qualname
    return fn


def fill_function(fn: types.FunctionType, state: tuple) -> None:
    mentioned, fn.__defaults__, fn.__kwdefaults__, own, cells = state
    fn.__globals__.update(mentioned)
    fn.__dict__.update(own)
    for mine, given in zip(fn.__closure__ or (), cells or (), strict=True):
        with contextlib.suppress(ValueError):
            mine.cell_contents = given.cell_contents


def make_class(meta: type, name: str, bases: tuple, qualname: str, slots: Any) -> type:
    return meta(name, bases, {"__qualname__": qualname} | ({"__slots__": slots} if slots is not None else {}))


def fill_class(cls: type, content: dict) -> None:
    for k, v in content.items():
        if k not in ("__qualname__", "__doc__"):
            type.__setattr__(cls, k, v)


def fill_cell(cell: types.CellType, content: tuple) -> None:
    (cell.cell_contents,) = content


# -- writing --------------------------------------------------------------------------------------------------------------------------
@of_own_tensors
def dumped(obj: Any, most: int, bare: bool = False) -> bytes | None:
    """As bytes; None if that cannot be."""
    file = Limited(most)
    try:
        with torch._C.DisableTorchFunction():
            Pickler(file, bare).dump(obj)
    except Exception:  # a pickle may fail in any way that objects choose
        return None
    return file.getvalue()


def sketch(args: tuple, kwargs: dict) -> bytes | None:
    """The arguments of a capture, tensors without their numbers: with other arguments, another entry might be made."""
    return dumped((args, kwargs), SKETCH_LIMIT, bare=True)


def write(
    text: str, fn: Any, args: tuple, kwargs: dict, first: bytes | None, config: Config, start: Ambient, ran: Sequence[Any]
) -> str | None:
    """Write the folder. Returns the script, or None if the disk takes nothing."""
    name = f"{fn.__name__.strip('<>')}-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}-{next(_serial)}"
    folder = cache.directory().parent / "verify" / name
    data = dumped((fn, args, kwargs, (start.torch, start.python, start.numpy), config), LIMIT)
    try:
        folder.mkdir(parents=True)
        if data is not None:
            (folder / "data.pkl").write_bytes(data)
            if first is not None:
                (folder / "first.pkl").write_bytes(first)
        (folder / "entries.txt").write_text("\n\n".join(map(entry_text, ran)))
        script = folder / "reproduce.py"
        script.write_text(script_text(text, fn, data is not None))
    except OSError:
        return None
    return str(script)


def entry_text(entry: Any) -> str:
    info = entry.info
    guards = "\n".join(f"  {g.source.name}  {g.kind}  {g.value!r:.200}" for g in [lesson.guard() for lesson in info.guards] if g)
    return f"entry [{info.frame_id}]\nguards\n{guards}\nemitted\n{info.emitted.source}"


def script_text(text: str, fn: Any, has_data: bool) -> str:
    try:
        source = inspect.getsource(fn)
    except (OSError, TypeError):
        source = "(not found)"
    told = "\n".join(f"# {line}".rstrip() for line in [*text.splitlines(), "", "The function:", *source.splitlines()])
    if not has_data:
        return f"{told}\n#\n# Its arguments could not be written down. The guards and the emitted code are in entries.txt.\n"
    return (
        f"{told}\n#\n# data.pkl: the function and its arguments. first.pkl: arguments like those of its capture, as far as known.\n"
        "# Run from where the program was run, so that its modules are found.\nimport pathlib\n\n"
        "from pliant.jit.verify.replay import replay\n\nreplay(pathlib.Path(__file__).parent)\n"
    )
