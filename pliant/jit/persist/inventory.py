"""What is in the cache on the disk, for people: `pliant cache`."""

from __future__ import annotations

import hashlib
import marshal
import os
import pathlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

from pliant.codegen import cache
from pliant.jit.persist import dependencies, environment
from pliant.jit.persist.names import Missing

ENTRY, REFUSAL, CODE = "entry", "not kept", "code"
PARTS = 12
"""Of what `entries.Written` makes."""
ABOUT = ("made by", "function", "file", "line", "ends", "why")
OTHERS = "of another version of pliant, PyTorch or Python"


@dataclass(frozen=True, slots=True)
class Item:
    """A file of the cache. `state` is empty if it is whole and of use; of a refusal it is the reason."""

    name: str
    path: pathlib.Path
    kind: str
    size: int
    used: float  # seconds since it was last used
    function: str = ""
    file: str = ""
    line: int = 0
    ends: str = ""
    state: str = ""
    damaged: bool = False


def whole(name: str, path: pathlib.Path) -> tuple[bytes | None, str]:
    """The object in a file, and what is wrong with it."""
    if cache.NAME.fullmatch(name) is None:
        return None, "no object of the cache"
    data = cache.content(path)
    if data is None:
        return None, "it is not read: it is gone, belongs to another user, or others may write to it"
    body = len(cache.MAGIC) + 32
    if data[: len(cache.MAGIC)] != cache.MAGIC or data[len(cache.MAGIC) : body] != cache.checksum(name, data[body:]):
        return None, "torn, or not what its name says"
    return data[body:], ""


def item(path: pathlib.Path, size: int, used: float) -> Item:
    name = path.name
    kind = ENTRY if "-" in name else REFUSAL if name.endswith("+") else CODE
    data, wrong = whole(name, path)
    if data is None or kind == CODE:
        return Item(name, path, kind, size, used, state=wrong, damaged=bool(wrong))
    try:
        parts = marshal.loads(data) if kind == REFUSAL or sound(name, data) else None
    except (ValueError, EOFError, TypeError):
        parts = None
    if type(parts) is not tuple:
        return Item(name, path, kind, size, used, state="not what its name says that it holds", damaged=True)
    if len(parts) != (PARTS if kind == ENTRY else 1) or len(parts[0]) != len(ABOUT):
        return Item(name, path, kind, size, used, state=OTHERS)
    made_by, function, file, line, ends, why = parts[0]
    others = made_by != environment.always_print()
    return Item(name, path, kind, size, used, function, file, line, ends, OTHERS if others else why or stale(parts))


def sound(name: str, data: bytes) -> bool:
    """Whether an entry is what its name says that it holds."""
    return hashlib.sha256(data).hexdigest().startswith(name.rpartition("-")[2])


def stale(parts: tuple) -> str:
    """Why an entry is not used any more, as far as that can be seen without the program."""
    _, files, *_, modules, _ = parts
    try:
        dependencies.same_files(files)
    except Missing as e:
        return str(e)
    lost = [name for name, _, _ in modules if not os.path.exists(cache.place(name)[1])]
    return f"{len(lost)} modules of its machine code are gone" if lost else ""


def items() -> Iterator[Item]:
    """Everything in the cache, what was used last first."""
    now = time.time()
    for used, size, path in sorted(cache.files(), reverse=True):
        if not os.path.basename(path).startswith(".new-"):
            yield item(pathlib.Path(path), size, max(now - used, 0.0))


def prune(older_s: float | None, most_bytes: int | None) -> tuple[int, int]:
    """Remove what is damaged or stale (other versions' is neither), what was not used for `older_s` seconds, then what was not used for
    longest beyond `most_bytes` or the limits of the cache. Returns how many files went, and their bytes."""
    before = cache.files()
    for found in list(items()):
        if found.damaged or (found.kind == ENTRY and found.state not in ("", OTHERS)) or (older_s is not None and found.used > older_s):
            cache.unlink(str(found.path))
    cache.shrink(most_bytes, 1.0)
    after = {path for _, _, path in cache.files()}
    gone = [size for _, size, path in before if path not in after]
    return len(gone), sum(gone)
