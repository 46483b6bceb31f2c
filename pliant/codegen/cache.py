"""Compiled objects on disk, named by everything that they depend on.

A file is a header, a checksum of the rest, and the object. It is written beside its place and moved there, so that readers never see
half of one and writers may race. What doesn't check out is taken away and built again. The directory is `PLIANT_CACHE_DIR`, else `pliant`
in the user's cache directory; beyond the limits the files not used for longest go. An unusable directory only costs time.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import tempfile

MAGIC = b"pliant object 1\n"
LIMIT_BYTES = 512 << 20
LIMIT_FILES = 20_000  # a look at so many takes a fifth of a second
SWEEP_EVERY = 64  # writes, of all processes together, between looks at the size of the directory


def directory() -> pathlib.Path:
    chosen = os.environ.get("PLIANT_CACHE_DIR")
    if chosen:
        return pathlib.Path(chosen) / "cpu"
    root = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return pathlib.Path(root).expanduser() / "pliant" / "cpu"


def key(text: str, made_for: object) -> str:
    """The name of the object of a text; `made_for`: what else it depends on, the machine above all."""
    return hashlib.sha256(repr(made_for).encode() + b"\0" + text.encode()).hexdigest()


def read(name: str) -> bytes | None:
    """The object, or None. A file that is not what it says is removed."""
    path = directory() / name[:2] / name
    try:
        data = path.read_bytes()
    except OSError:
        return None
    body = len(MAGIC) + 32
    if data[: len(MAGIC)] != MAGIC or data[len(MAGIC) : body] != checksum(name, data[body:]):
        with contextlib.suppress(OSError):
            path.unlink()
        return None
    with contextlib.suppress(OSError):
        os.utime(path)  # used now
    return data[body:]


def checksum(name: str, code: bytes) -> bytes:
    """Of the object and its name: a file under another name is as bad as a torn one."""
    return hashlib.sha256(name.encode() + b"\0" + code).digest()


def write(name: str, code: bytes) -> None:
    path = directory() / name[:2] / name
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(MAGIC + checksum(name, code) + code)
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError:
        return
    if int(name[:4], 16) % SWEEP_EVERY == 0:  # names are hashes: one in so many, with no count that processes would have to share
        shrink()


def shrink(limit: int | None = None) -> None:
    """Remove the files not used for longest until three quarters of the limits are left, if there is more than that of bytes or files."""
    most = LIMIT_BYTES if limit is None else limit
    found = files()
    total, left = sum(size for _, size, _ in found), len(found)
    if total <= most and left <= LIMIT_FILES:
        return
    for _, size, path in sorted(found):
        with contextlib.suppress(OSError):
            os.unlink(path)
            total, left = total - size, left - 1
        if total <= most * 3 // 4 and left <= LIMIT_FILES * 3 // 4:
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
