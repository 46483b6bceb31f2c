"""Compiled objects on disk, named by everything that they depend on.

A file is a header, a checksum of the rest, and the object. It is written beside its place and moved there, so that readers never see
half of one and writers may race. What doesn't check out is taken away and built again. The directory is `PLIANT_CACHE_DIR`, else `pliant`
in the user's cache directory; beyond the limits the files not used for longest go. An unusable directory only costs time.

What is read here is run. So a folder or file counts only if it belongs to this user or to root, and no one else may write to it.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import pathlib
import re
import stat
import tempfile
import warnings

from pliant import events

MAGIC = b"pliant object 1\n"
LIMIT_BYTES = 512 << 20
LIMIT_FILES = 20_000  # a look at so many takes a fifth of a second
NAME = re.compile(r"[0-9a-f]{40,64}(?:-[0-9a-f]{16}-[0-9a-f]{24}|\+)?")
"""Names of objects: hashes, of entries with when they were made and what they hold (`jit/persist`)."""
SWEEP_EVERY = 64  # writes, of all processes together, between looks at the size of the directory


def directory() -> pathlib.Path:
    return directory_for(os.environ.get("PLIANT_CACHE_DIR"), os.path.expanduser(os.environ.get("XDG_CACHE_HOME") or "~/.cache"))


@functools.lru_cache(maxsize=8)
def directory_for(chosen: str | None, root: str) -> pathlib.Path:
    """The one that was chosen, else the one in the user's directory of caches."""
    return pathlib.Path(chosen, "cpu") if chosen else pathlib.Path(root, "pliant", "cpu")


def key(text: str, made_for: object) -> str:
    """The name of the object of a text; `made_for`: what else it depends on, the machine above all."""
    return hashlib.sha256(repr(made_for).encode() + b"\0" + text.encode()).hexdigest()


used: dict[str, None] = {}
"""Names of what this process has read or written, in that order."""
_told: set[str] = set()


def not_trusted(status: os.stat_result) -> str:
    """Why what has this status is not used; empty if it may be."""
    if status.st_uid not in (os.geteuid(), 0):
        return f"it belongs to user {status.st_uid}"
    return "others may write to it" if status.st_mode & 0o022 else ""


def refusal(*folders: str) -> str:
    """Why nothing is read from or written to the cache, or these folders of it; empty if it is used, or not there. Told once."""
    for looked_at in (directory(), *folders):
        try:
            why = not_trusted(os.stat(looked_at))
        except OSError:
            return ""
        if why:
            text = f"the cache {looked_at} is not used: {why}. `chmod go-w` it if it is yours, or choose another by PLIANT_CACHE_DIR"
            if text not in _told:
                _told.add(text)
                events.count("cache_refused")
                events.emit("warning", id="cache", text=text)
                warnings.warn(f"pliant: {text}", RuntimeWarning, stacklevel=2)
            return text
    return ""


def place(name: str) -> tuple[str, str]:
    """Where an object is: its folder and its file. Raises ValueError for what is no name."""
    if NAME.fullmatch(name) is None:
        raise ValueError(f"{name!r} is no name of a compiled object")
    folder = os.path.join(directory(), name[:2])
    return folder, os.path.join(folder, name)


def content(path: str | pathlib.Path) -> bytes | None:
    """What is in a file that no one else may write to; None if it is not there, or is not such a file."""
    try:
        with open(path, "rb", buffering=0) as file:
            status = os.fstat(file.fileno())
            return file.read() if stat.S_ISREG(status.st_mode) and not not_trusted(status) else None
    except OSError:
        return None


def read(name: str) -> bytes | None:
    """The object, or None. A file that is not what it says is removed."""
    folder, path = place(name)
    if refusal(folder):
        return None
    data = content(path)
    if data is None:
        return None
    body = len(MAGIC) + 32
    if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : body] != checksum(name, data[body:]):
        remove(name)
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now
    used[name] = None
    return data[body:]


def remove(name: str) -> None:
    unlink(place(name)[1])


def unlink(path: str) -> None:
    with contextlib.suppress(OSError):  # another process was faster
        os.unlink(path)


def beginning_with(prefix: str, more: str) -> list[str]:
    """Names of objects that begin with `prefix + more`, in their order."""
    folder = os.path.join(directory(), prefix[:2])
    found: list[str] = []
    if not refusal(folder):
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            found = [e.name for e in entries if e.name.startswith(prefix + more)]
    return sorted(filter(NAME.fullmatch, found))


def is_empty() -> bool:
    """Is there nothing at all?"""
    try:
        with os.scandir(directory()) as folders:
            return next(folders, None) is None
    except OSError:
        return True


def checksum(name: str, code: bytes) -> bytes:
    """Of the object and its name: a file under another name is as bad as a torn one."""
    return hashlib.sha256(name.encode() + b"\0" + code).digest()


def write(name: str, code: bytes) -> bool:
    """Keep an object. False if it could not be written."""
    folder, path = place(name)
    try:
        directory().mkdir(mode=0o700, parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, mode=0o700)
        if refusal(folder):
            return False
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + checksum(name, code) + code)
            os.replace(temporary, path)
        except BaseException:
            unlink(temporary)
            raise
    except OSError:
        return False
    used[name] = None
    if int(name[:4], 16) % SWEEP_EVERY == 0:  # names are hashes: one in so many, with no count that processes would have to share
        shrink()
    return True


def shrink(limit: int | None = None, share: float = 0.75) -> None:
    """Remove the files not used for longest until this share of the limits is left, if there is more than that of bytes or files."""
    most = LIMIT_BYTES if limit is None else limit
    found = files()
    total, left = sum(size for _, size, _ in found), len(found)
    if total <= most and left <= LIMIT_FILES:
        return
    for _, size, path in sorted(found):
        unlink(path)
        total, left = total - size, left - 1
        if total <= most * share and left <= LIMIT_FILES * share:
            return


def files() -> list[tuple[float, int, str]]:
    """When each file was last used, its size, and where it is."""
    found = []
    with contextlib.suppress(OSError), os.scandir(directory()) as folders:
        for folder in folders:
            with contextlib.suppress(OSError), os.scandir(folder.path) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        status = entry.stat()
                        found.append((status.st_mtime, status.st_size, entry.path))
    return found
