"""`pliant.save_cache` and `pliant.load_cache`: what a process compiled, as one file.

The file is a line that says what it is, each object of the cache with its name, and a hash of all that. Reading needs nothing but
lengths: nothing is unpickled or unmarshalled, names are hashes and nothing else, so no object leaves the cache's directory.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import struct
from collections.abc import Iterator

from pliant import events
from pliant.codegen import cache
from pliant.errors import PliantError

MAGIC = b"pliant cache 1\n"
LENGTHS = struct.Struct("<HQ")  # of a name and of its object
DIGEST = hashlib.sha256().digest_size


def save_cache(path: str | os.PathLike[str]) -> int:
    """Write what this process has compiled, or found on the disk and used, to one file. Returns how many objects are in it.

    They are entries (guards, bytecode) and machine code: `load_cache` makes them available to other processes, on this machine or on others
    with the same versions, processor, and paths of source files. Raises PliantError where there is nothing, or the file cannot be written.
    """
    found = {name: code for name in list(cache.used) if not name.endswith("+") and (code := cache.read(name)) is not None}
    if not any("-" in name for name in found):
        raise PliantError("save_cache: nothing that this process has compiled is on the disk (is PLIANT_ENTRIES=0, or the cache refused?)")
    body = MAGIC + b"".join([LENGTHS.pack(len(name), len(code)) + name.encode() + code for name, code in found.items()])
    target = pathlib.Path(path)
    temporary = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with open(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644), "wb") as file:
            file.write(body + hashlib.sha256(body).digest())
        os.replace(temporary, target)
    except OSError as e:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise PliantError(f"save_cache: {target} cannot be written: {e}") from e
    return len(found)


def load_cache(path: str | os.PathLike[str]) -> int:
    """Put what `save_cache` wrote into the cache on this machine's disk. Returns how many objects were new there.

    **Load only files that you trust**: they hold bytecode and machine code, which run when a compiled function is called that they fit. A
    file that belongs to another user, or that others may write to, is refused, and so is one that was torn or changed on its way. What is
    stale (another source, version or processor) is never used: names and guards say so, as for everything in the cache.
    Raises PliantError.
    """
    place = pathlib.Path(path)
    try:
        with open(place, "rb") as file:
            why = cache.not_trusted(os.fstat(file.fileno()))
            if why:
                raise PliantError(f"load_cache: {place} is not read: {why}")
            data = file.read()
    except OSError as e:
        raise PliantError(f"load_cache: {place} cannot be read: {e}") from e
    body = data[:-DIGEST]
    if not data.startswith(MAGIC) or hashlib.sha256(body).digest() != data[-DIGEST:]:
        raise PliantError(f"load_cache: {place} is no file of save_cache, or not whole")
    found = dict(objects(body, place))
    if why := cache.refusal():
        raise PliantError(f"load_cache: {why}")
    new = [name for name in found if cache.read(name) is None]
    for name in new:
        cache.write(name, found[name])
    lost = sum(cache.read(name) is None for name in new)
    if lost:
        raise PliantError(f"load_cache: {lost} of {len(new)} objects could not be written to {cache.directory()}")
    events.emit("policy", what=f"{len(new)} objects were loaded into the cache", where=str(place))
    return len(new)


def objects(body: bytes, place: pathlib.Path) -> Iterator[tuple[str, bytes]]:
    """The objects in a file, by name. Raises PliantError."""
    at = len(MAGIC)
    while at < len(body):
        try:
            words, size = LENGTHS.unpack_from(body, at)
            name = body[at + LENGTHS.size : at + LENGTHS.size + words].decode("ascii")
        except (struct.error, UnicodeDecodeError):
            raise PliantError(f"load_cache: {place} is not whole") from None
        at += LENGTHS.size + words + size
        code = body[at - size : at]
        digest = name.rpartition("-")[2] if "-" in name else ""
        if cache.NAME.fullmatch(name) is None or at > len(body) or not hashlib.sha256(code).hexdigest().startswith(digest):
            raise PliantError(f"load_cache: {place} holds something that is no object of a cache")
        yield name, code
