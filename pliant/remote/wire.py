"""Messages between controller and workers: a line that says the format, JSON, then the bytes of tensors. No code, no pickle.

    PLIANT-REMOTE 2\\n
    4 bytes: how long the JSON is (little-endian)
    JSON: {"seq": number of the first command, "do": commands or answers, "tensors": [[dtype, sizes], ...]}
    for each tensor: zeros up to a multiple of 64 bytes, then its elements, row-major

The commands are the methods of `worker.COMMANDS`; docs/remote.md lists them. A message of another version is refused.
"""

from __future__ import annotations

import json
import struct
from typing import Any

import torch

from pliant.export import file
from pliant.remote.placements import RemoteError

VERSION = 2
HEAD = b"PLIANT-REMOTE %d\n"
BOUNDARY = 64
DTYPES = {**file.DTYPES, "C128": torch.complex128}
"""As in safetensors, and what there is no name of there."""
NAMES = {dtype: name for name, dtype in DTYPES.items()}


class WireError(RemoteError):
    """A message that cannot be read."""


def raw(t: torch.Tensor) -> Any:
    """The bytes of a tensor, row-major."""
    if t.dtype not in NAMES or t.layout is not torch.strided:
        raise WireError(f"a {t.layout} tensor of {t.dtype} cannot travel")
    flat = t.detach().resolve_conj().resolve_neg().reshape(-1)
    if flat.stride(0) != 1:  # also of a single element
        flat = torch.empty(flat.shape, dtype=t.dtype).copy_(flat)
    data: Any = flat.view(torch.uint8).numpy() if flat.numel() else b""
    return memoryview(data)


def encode(seq: int, commands: Any, tensors: list[torch.Tensor] | tuple[()] = ()) -> bytes:
    """A message."""
    told: dict[str, Any] = {"seq": seq, "do": commands}
    if not tensors:
        text = json.dumps(told, separators=(",", ":")).encode()
        return b"".join((HEAD % VERSION, struct.pack("<I", len(text)), text))
    told["tensors"] = [[NAMES.get(t.dtype, str(t.dtype)), list(t.shape)] for t in tensors]
    text = json.dumps(told, separators=(",", ":")).encode()
    parts = [HEAD % VERSION, struct.pack("<I", len(text)), text]
    at = sum(map(len, parts))
    for t in tensors:
        data = raw(t)
        pad = -at % BOUNDARY
        parts += [bytes(pad), data]
        at += pad + len(data)
    return b"".join(parts)


def decode(message: bytes) -> tuple[int, Any, list[torch.Tensor]]:
    """(number of the first command, commands, tensors). WireError for what is no message of this version."""
    head = HEAD % VERSION
    if not message.startswith(head):
        first = bytes(message[:40]).split(b"\n")[0]
        raise WireError(f"this is no message of version {VERSION}: it begins with {first!r}")
    try:
        (n,) = struct.unpack_from("<I", message, len(head))
        at = len(head) + 4
        told = json.loads(bytes(message[at : at + n]))
        at += n
        tensors = []
        for name, sizes in told.get("tensors", ()):
            dtype = DTYPES[name]
            count = 1
            for s in sizes:
                count *= s
            at += -at % BOUNDARY
            if count:
                t = torch.frombuffer(bytearray(message[at : at + count * dtype.itemsize]), dtype=dtype, count=count).reshape(sizes)
            else:
                t = torch.empty(sizes, dtype=dtype)
            at += count * dtype.itemsize
            tensors.append(t)
        return told["seq"], told["do"], tensors
    except (KeyError, ValueError, struct.error, TypeError, RuntimeError) as e:
        raise WireError(f"a damaged message: {type(e).__name__}: {e}") from e
