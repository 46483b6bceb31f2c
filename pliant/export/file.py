"""Saved programs: a zip of readable text, weights and a signature. Nothing in it is code, and nothing of it is run to read it.

    program.txt         the operations (`text.py`)
    signature.json      how arguments become inputs and outputs become a result
    weights.safetensors parameters, buffers and constants, stored (not compressed) at a multiple of 64 bytes, mapped when loaded

docs/program-format.md has the details. Whatever is wrong with a file is a `FormatError` in one sentence.
"""

from __future__ import annotations

import collections
import json
import math
import mmap
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export.program import Check, Program, Put
from pliant.export.signature import CHECKS, READ
from pliant.export.signature import CONSTANTS as PLAIN
from pliant.export.text import SPACES, VERSION, FormatError, Reader, program_text
from pliant.export.trees import KINDS, LEAVES, Tree, class_name, class_of
from pliant.lower import liveness
from pliant.lower.text import NAMED

TEXT, SIGNATURE, WEIGHTS = "program.txt", "signature.json", "weights.safetensors"
BOUNDARY = 64
DATE = (2020, 1, 1, 0, 0, 0)
"""Of the members: the same program gives the same file."""
MOST_TEXT = 1 << 28
DTYPES = {
    "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16, "I64": torch.int64, "I32": torch.int32,
    "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8, "BOOL": torch.bool, "F8_E4M3": torch.float8_e4m3fn,
    "F8_E5M2": torch.float8_e5m2, "C64": torch.complex64, "U16": torch.uint16, "U32": torch.uint32, "U64": torch.uint64,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in DTYPES.items()}


# -- writing ----------------------------------------------------------------------------------------------------------------
def save(p: Program, path: Any, parts: Mapping[str, bytes] | None = None) -> None:
    """Write `p` to `path`, whole or not at all. PliantError for what a file cannot hold (custom operators' objects, sparse weights).

    `parts`: further members, stored as they are, by name (`aot.py`).
    """
    path = Path(path)
    signature = json.dumps(signature_of(p), indent=1, allow_nan=True)
    text = program_text(p)
    handle, temporary = tempfile.mkstemp(dir=path.parent or ".", prefix=path.name, suffix=".part")
    try:
        with os.fdopen(handle, "wb") as out, zipfile.ZipFile(out, "w") as z:
            z.writestr(zipfile.ZipInfo(TEXT, DATE), text, zipfile.ZIP_DEFLATED)
            z.writestr(zipfile.ZipInfo(SIGNATURE, DATE), signature, zipfile.ZIP_DEFLATED)
            write_weights(z, p.state)
            for name, data in (parts or {}).items():
                z.writestr(zipfile.ZipInfo(name, DATE), data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def write_weights(z: zipfile.ZipFile, state: dict[str, torch.Tensor]) -> None:
    """The safetensors file, its first byte of data at a multiple of `BOUNDARY`."""
    header: dict[str, Any] = {}
    at = 0
    tensors = []
    for name, t in state.items():
        if t.layout is not torch.strided or t.dtype not in NAMES or t.is_quantized:
            raise PliantError(f"{name} cannot be saved: it is a {t.layout} tensor of {t.dtype}")
        size = t.numel() * t.element_size()
        at += -at % BOUNDARY
        header[name] = {"dtype": NAMES[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + size]}
        tensors.append((at, t))
        at += size
    text = json.dumps(header).encode()
    assert z.fp is not None
    info = zipfile.ZipInfo(WEIGHTS, DATE)
    start = z.fp.tell() + 30 + len(WEIGHTS) + 20 + 8  # behind the local header with its 20 bytes for large files, and the length
    text += b" " * (-(start + len(text)) % BOUNDARY)
    with z.open(info, "w", force_zip64=True) as f:
        f.write(struct.pack("<Q", len(text)))
        f.write(text)
        done = 0
        for place, t in tensors:
            f.write(bytes(place - done))
            data = t.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1).view(torch.uint8)
            for i in range(0, data.numel(), 1 << 26):
                f.write(data[i : i + (1 << 26)].numpy().data)
            done = place + data.numel()


def signature_of(p: Program) -> dict[str, Any]:
    return {
        "format": VERSION,
        "inputs": {i.name: path_data(i.path) for i in p.inputs if i.path},
        "outputs": {o.name: path_data(o.path) for o in p.outputs if o.path},
        "checks": [[path_data(c.path), c.kind, value_data(c.value)] for c in p.checks],
        "puts": [[path_data(c.path), value_data(c.value), c.after] for c in p.puts],
        "parameters": p.parameters,
        "keywords": p.keywords,
        "rest": p.rest,
        "defaults": {k: value_data(v) for k, v in p.defaults.items()},
        "dims": p.dims,
        "notes": p.notes,
        "result": result_data(p),
        "variants": [signature_of(q) for q in p.variants],
    }


def result_data(p: Program) -> Any:
    """None where a file cannot hold the tree: outputs of the loaded program come by name."""
    try:
        return None if p.result is None else tree_data(p.result)
    except (PliantError, KeyError):
        return None


def tree_data(tree: Tree) -> Any:
    """The tree of a result as JSON. PliantError for a constant or a context that a file cannot hold."""
    if tree.kind == "argument":
        return [tree.kind, path_data(tree.value)]
    if tree.kind in LEAVES:
        return [tree.kind, value_data(tree.value)]
    cls, context = tree.value
    if cls is collections.defaultdict:
        context = [FACTORIES[context[0]], context[1]]
    return [tree.kind, class_name(cls), None if context is cls else value_data(context), [tree_data(c) for c in tree.children]]


FACTORIES: dict[Any, str] = {None: "None", int: "int", float: "float", list: "list", dict: "dict", set: "set", str: "str", tuple: "tuple"}


def read_tree(data: Any, outputs: int) -> Tree:
    """A tree; classes that this process does not have are `Missing`. Nothing is imported."""
    kind, value, *more = data
    if kind == "argument":
        return Tree(kind, read_path(value))
    if kind in LEAVES:
        value = read_value(value)
        if kind == "output" and not (type(value) is int and 0 <= value < outputs):
            raise FormatError(f"the result of the program has the output {value!r}, which there is not")
        return Tree(kind, value)
    if kind not in KINDS:
        raise FormatError(f"the signature has a node that this pliant does not know: {kind}")
    cls, context = class_of(value, kind), read_value(more[0])
    if cls is collections.defaultdict:
        context = [{v: k for k, v in FACTORIES.items()}[context[0]], context[1]]
    elif isinstance(cls, type) and issubclass(cls, tuple) and hasattr(cls, "_fields"):
        context = cls
    return Tree(kind, (cls, context), tuple([read_tree(c, outputs) for c in more[1]]))


def path_data(path: Iterable[Any]) -> list[Any]:
    first, *steps = path
    return [first, *[[op, value_data(arg)] for op, arg in steps]]


def value_data(v: Any) -> Any:
    """A constant as JSON: floats that JSON lacks, and tuples, are marked."""
    if isinstance(v, tuple):
        return {"tuple": [value_data(x) for x in v]}
    if isinstance(v, list):
        return [value_data(x) for x in v]
    if type(v) in WRITTEN:
        return {type(v).__name__: str(v)}
    if isinstance(v, type):
        return {"class": class_name(v)}
    if type(v) is float and not math.isfinite(v):
        return {"float": repr(v)}
    if type(v) is int and abs(v) >= 1 << 53:
        return {"int": str(v)}
    if isinstance(v, (bool, int, float, str, type(None))):
        return v
    raise PliantError(f"a program that relies on the {type(v).__name__} {v!r} cannot be saved")


# -- reading ----------------------------------------------------------------------------------------------------------------
def load(path: Any, *, libraries: Iterable[str] = ()) -> Program:
    """The program in the file `path`. FormatError for a file that is damaged, foreign, or of another version; OSError if it cannot be read.

    Nothing in a file is code: an untrusted one can do nothing but fail. `libraries`: namespaces of custom operators that it may call.
    """
    path = Path(path)
    try:
        with open(path, "rb") as f:  # whether it can be read at all
            f.read(1)
    except IsADirectoryError:
        raise FormatError(f"{path.name} is a folder") from None
    try:
        with zipfile.ZipFile(path) as z:
            names = set(z.namelist())
            missing = [n for n in (TEXT, SIGNATURE, WEIGHTS) if n not in names]
            if missing:
                raise FormatError(f"{path.name} is a zip file but no saved program: it lacks {', '.join(missing)}")
            text, signature = read_text(z, TEXT), read_text(z, SIGNATURE)
            state = read_weights(path, z)
    except zipfile.BadZipFile as e:
        raise FormatError(f"{path.name} is no saved program, or is damaged: {str(e)[:200]}") from e
    except (NotImplementedError, zipfile.LargeZipFile, EOFError, struct.error) as e:
        raise FormatError(f"{path.name} is damaged: {str(e)[:200]}") from e
    except Exception as e:
        if isinstance(e, PliantError):
            raise
        raise FormatError(f"{path.name} is damaged: {type(e).__name__}: {str(e)[:200]}") from e
    p = Reader.whole(text, SPACES | frozenset(libraries))
    try:
        data = json.loads(signature)
        for q, part in zip((p, *p.variants), [data, *data["variants"]], strict=True):
            q.state = state
            put_signature(q, part)
    except FormatError:
        raise
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RecursionError) as e:
        raise FormatError(f"the signature of {path.name} cannot be read: {type(e).__name__}: {e}") from e
    for q in (p, *p.variants):
        check_state(q)
    return p


def read_text(z: zipfile.ZipFile, name: str) -> str:
    if z.getinfo(name).file_size > MOST_TEXT:
        raise FormatError(f"{name} is larger than {MOST_TEXT >> 20} MiB")
    try:
        return z.read(name).decode()
    except UnicodeDecodeError as e:
        raise FormatError(f"{name} is no text: {e}") from e


def read_weights(path: Path, z: zipfile.ZipFile) -> dict[str, torch.Tensor]:
    """Tensors over the mapped file; writing to one changes this process only."""
    info = z.getinfo(WEIGHTS)
    if info.compress_type != zipfile.ZIP_STORED:
        raise FormatError(f"{WEIGHTS} is compressed: it is mapped, so it must be stored")
    with open(path, "rb") as f:
        f.seek(info.header_offset)
        head = f.read(30)
        if len(head) < 30 or head[:4] != b"PK\x03\x04":
            raise FormatError(f"{path.name} is damaged: no header for {WEIGHTS}")
        n, m = struct.unpack("<HH", head[26:30])
        start, size = info.header_offset + 30 + n + m, info.file_size
        if start + size > os.fstat(f.fileno()).st_size or size < 8:
            raise FormatError(f"{path.name} is truncated")
        mapped = mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_COPY)
    (length,) = struct.unpack("<Q", mapped[start : start + 8])
    if length > size - 8 or length > MOST_TEXT:
        raise FormatError(f"{WEIGHTS} is damaged: its header does not fit")
    try:
        header = json.loads(mapped[start + 8 : start + 8 + length])
    except (ValueError, RecursionError) as e:
        raise FormatError(f"{WEIGHTS} is damaged: {e}") from e
    if not isinstance(header, dict):
        raise FormatError(f"{WEIGHTS} is damaged: its header is no table")
    data, room = start + 8 + length, size - 8 - length
    return {name: one_tensor(mapped, name, row, data, room) for name, row in header.items() if name != "__metadata__"}


def one_tensor(mapped: mmap.mmap, name: str, row: Any, data: int, room: int) -> torch.Tensor:
    fits = (
        isinstance(row, dict)
        and row.get("dtype") in DTYPES
        and isinstance(row.get("shape"), list)
        and isinstance(row.get("data_offsets"), list)
    )
    if (
        not fits
        or len(row["data_offsets"]) != 2
        or not all(type(n) is int and 0 <= n < 1 << 62 for n in [*row["shape"], *row["data_offsets"]])
    ):
        raise FormatError(f"{WEIGHTS} is damaged: its row for {name!r}")
    dtype, shape, (begin, end) = DTYPES[row["dtype"]], row["shape"], row["data_offsets"]
    count = math.prod(shape)
    if begin > end or end > room or count * dtype.itemsize != end - begin or len(shape) > 64:
        raise FormatError(f"{WEIGHTS} is damaged: {name!r} does not fit")
    if not count:
        return torch.empty(shape, dtype=dtype)
    if (data + begin) % dtype.itemsize:  # written by others: PyTorch's kernels want aligned memory
        return torch.frombuffer(bytearray(mapped[data + begin : data + end]), dtype=dtype).reshape(shape)
    return torch.frombuffer(mapped, dtype=dtype, count=count, offset=data + begin).reshape(shape)


def put_signature(p: Program, s: Any) -> None:
    if s["format"] != VERSION:
        raise FormatError(f"this program has format {s['format']}; this pliant reads format {VERSION}")
    for i in p.inputs:
        i.path = read_path(s["inputs"][i.name]) if i.name in s["inputs"] else ()
        if i.kind == "user" and not i.path:
            raise FormatError(f"the signature says nothing of the input {i.name}")
    for o in p.outputs:
        o.path = read_path(s["outputs"][o.name]) if o.name in s["outputs"] else ()
    p.checks = [Check(read_path(path), kind, read_promise(kind, v)) for path, kind, v in s["checks"] if known(kind)]
    p.puts = [Put(read_path(path), plain(read_value(v)), str(after)) for path, v, after in s.get("puts", [])]
    p.parameters, p.keywords, p.rest = texts(s["parameters"]), texts(s["keywords"]), s["rest"]
    p.defaults = {k: read_value(v) for k, v in s["defaults"].items()}
    p.dims = {str(k): str(v) for k, v in s["dims"].items()}
    p.notes = texts(s["notes"])
    p.result = None if s["result"] is None else read_tree(s["result"], len(p.outputs))


def known(kind: str) -> bool:
    if kind not in CHECKS:
        raise FormatError(f"the signature asks for a check that this pliant does not know: {kind}")
    return True


def read_promise(kind: str, v: Any) -> Any:
    promised = read_value(v)
    return tuple(map(read_path, promised)) if kind == "distinct" else promised


def plain(v: Any) -> Any:
    if not isinstance(v, PLAIN):
        raise FormatError(f"the signature puts a {type(v).__name__} into an argument")
    return v


def texts(values: Any) -> list[str]:
    return [str(v) for v in values]


def read_path(data: Any) -> tuple:
    first, *steps = data
    for op, arg in steps:
        if op not in READ:
            raise FormatError(f"the signature has a step that this pliant does not know: {op}")
        if op == "attr" and str(arg).startswith("__"):  # no way out of the arguments: to classes, globals, modules
            raise FormatError(f"the signature leads through the attribute {arg}")
    return (str(first), *((op, read_value(arg)) for op, arg in steps))


def read_value(v: Any) -> Any:
    if isinstance(v, dict):
        ((kind, x),) = v.items()
        if kind == "tuple":
            return tuple([read_value(y) for y in x])
        return CONSTANTS[kind](x)
    return [read_value(x) for x in v] if isinstance(v, list) else v


WRITTEN = (torch.dtype, torch.device, torch.layout, torch.memory_format)
CONSTANTS: dict[str, Callable[[Any], Any]] = {
    "float": float, "int": int, "device": torch.device, "class": lambda name: class_of(name, "object"),
    **dict.fromkeys(("dtype", "layout", "memory_format"), lambda text: NAMED[text]),
}  # fmt: skip


def check_state(p: Program) -> None:
    """Each input that is state has a tensor of its dtype and sizes, laid out as the operations expect it."""
    for i in p.inputs:
        if i.kind == "user":
            continue
        t = p.state.get(i.name)
        if t is None or not i.is_tensor:
            raise FormatError(f"the file has no weights for {i.name}")
        sizes = [liveness.number(s) is None and s for s in i.value.sizes]
        if t.dtype is not i.value.dtype or list(t.shape) != sizes:
            raise FormatError(
                f"the weights for {i.name} are {t.dtype} {list(t.shape)}, but the program wants {i.value.dtype} {list(i.value.sizes)}"
            )
        strides = tuple(i.value.strides)
        if not all(type(s) is int for s in strides):
            raise FormatError(f"the layout of {i.name} is not known")
        if t.stride() != strides:
            p.state[i.name] = torch.empty_strided(tuple(t.shape), strides, dtype=t.dtype).copy_(t)
