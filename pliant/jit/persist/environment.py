"""What every entry of a process rests on and no guard says: part of the name under which entries are looked up.

pliant's own files, the versions of PyTorch, Python and LLVM, the machine, PyTorch's settings, and that nobody replaced functions in the
namespaces of PyTorch that captured code calls without looking. Where something is not surely known, entries are neither kept nor
looked up: `key` is None.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import hashlib
import os
import pathlib
import sys
import time
import types
import zlib
from collections.abc import Callable
from typing import Any

import torch

from pliant import native, turns
from pliant.codegen import cache, target
from pliant.errors import PliantError
from pliant.graph import operators
from pliant.graph.originals import operator
from pliant.interpret import policy
from pliant.interpret.calls import BY_CODE, LOOKASIDES, METHOD_LOOKASIDES
from pliant.jit.persist.names import path_of
from pliant.jit.persist.prints import code_print
from pliant.lower import pipeline, search
from pliant.symbolic import event

try:
    from numpy import __version__ as NUMPY  # what runs in the graph is what this version does
except ImportError:
    NUMPY = ""

with contextlib.suppress(PliantError):  # which the first call tells
    target.current()  # imported with pliant, not in the first call

FORMAT = 2
HOME = pathlib.Path(__file__).parents[2]
TORCH = os.path.dirname(torch.__file__) + os.sep
BEGUN = time.time_ns() - 10**9  # clocks of file systems lag

Signature = tuple[int, int, int]


def signature(status: os.stat_result) -> Signature:
    """Equal ones are the same content: the time of the last change of status is the system's, and nobody can set it back."""
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


@functools.cache
def own_files(root: pathlib.Path = HOME) -> tuple | None:
    """pliant's files; None where one was written after this process had begun, so that it may not be what runs."""
    found = []
    folders = [str(root)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for e in entries:
                if e.name.endswith((".py", ".so")):
                    status = e.stat()
                    if status.st_ctime_ns > BEGUN:
                        return None
                    found.append((e.path, *signature(status)))
                elif e.name != "__pycache__" and e.is_dir():
                    folders.append(e.path)
    return tuple(sorted(found))


@functools.cache
def own_content() -> str | None:
    """A hash of what pliant's files contain, the same on every machine; None as for `own_files`. The disk remembers it."""
    files = own_files()
    if files is None:
        return None
    name = hashlib.sha256(repr(files).encode()).hexdigest()
    known = cache.read(name)
    if known is None:
        known = hashlib.sha256(repr([hashed(path) for path, *_ in files]).encode()).hexdigest().encode()
        cache.write(name, known)
    return known.decode()


def hashed(path: str) -> tuple[str, str]:
    """The name of one of them and a hash of what it contains."""
    turns.rest()
    with open(path, "rb", buffering=0) as file:
        return os.path.relpath(path, HOME), hashlib.sha256(file.read()).hexdigest()


def looks_up() -> bool:
    """Can the disk hold something for this process? Where it holds nothing, the hash of 400 files is made behind the first answer."""
    return always_print.cache_info().currsize > 0 or not cache.is_empty()


WATCHED: tuple[Any, ...] = (torch, torch.nn.functional, torch.functional, torch.Tensor, torch.nn.Module, builtins, torch._VF)
"""Namespaces whose Python functions are taken to be PyTorch's own: run inside of operators, or read without a guard."""


def foreign() -> tuple:
    """Which functions stand under which names there; those that are not PyTorch's in full."""
    for spaces, functions, known in _seen:
        if all([native.same_names(*space) for space in spaces]) and native.same_code(*functions):
            return known
    held = [(space if isinstance(space, type) else vars(space), tuple(vars(space)), tuple(vars(space).values())) for space in WATCHED]
    own = tuple([v for *_, values in held for v in values if type(v) is types.FunctionType])
    codes = tuple(map(CODE, own))
    found = looked_at()
    _seen[:] = [(held, (own, codes), found)]
    return found


CODE = operator.attrgetter("__code__")
_seen: list[tuple[list, tuple, tuple]] = []
"""One row: the names and values there when they were last looked at, the functions among them, their codes, what all that came to."""


def looked_at() -> tuple:
    found: list[Any] = []
    seen: list[Any] = []
    for space in WATCHED:
        for name, v in vars(space).copy().items():
            t = type(v)
            if t is types.FunctionType:
                c = v.__code__
                seen += name, c.co_firstlineno
                if not c.co_filename.startswith(TORCH):
                    found.append((name, c.co_filename, c.co_firstlineno, zlib.crc32(c.co_code)))
            elif t in NAMED:
                seen += name, v.__name__
    return zlib.crc32("\0".join(map(str, seen)).encode()), tuple(found)


NAMED = frozenset((types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, type))


def settings() -> tuple:
    """PyTorch's settings that decide what an operator becomes, beyond those that guards compare (`native.global_state`)."""
    c = torch._C
    return (
        c._get_mkldnn_enabled(), c._get_flash_sdp_enabled(), c._get_mem_efficient_sdp_enabled(), c._get_math_sdp_enabled(),
        c._get_cudnn_sdp_enabled(), c._get_float32_matmul_precision(), c._get_cpu_capability(), c._get_nnpack_enabled(),
        c._get_cudnn_enabled(), c._get_mkldnn_deterministic(),
        c._get_overrideable_sdp_enabled(), torch.cuda.is_available(),
    )  # fmt: skip


@functools.cache
def fixed() -> tuple | None:
    """What does not change while the process runs."""
    files = own_content()
    if files is None:
        return None
    versions = (FORMAT, sys.version, sys.implementation.cache_tag, torch.__version__, torch.version.git_version, NUMPY)
    return files, versions


@functools.cache
def lengths() -> tuple:
    """Of the tables of functions, as they are when entries are first looked up: some grow when a library is imported."""
    return len(LOOKASIDES), len(METHOD_LOOKASIDES), len(BY_CODE), len(policy.ROWS)


def state() -> tuple | None:
    """torch's global state as data; None where it has no portable form (modes that are on)."""
    told: tuple | None
    for then, told in _state:
        if then.matches():
            return told
    now, found = native.global_state(), native.slow_state()
    functions, dispatch = found[-1]
    told = None if functions or dispatch else tuple([str(x) if not isinstance(x, tuple) else repr(x) for x in found[:-1]])
    _state[:] = [(now, told)]
    return told


_state: list[tuple[native.GlobalState, tuple | None]] = []
"""That state when it was last told, and what it came to: one pair."""


NO_NAMES: tuple[tuple[str, Callable[[], Any]], ...] = (
    ("machine code is not kept", lambda: not target.current().keeps_code()),
    ("events of sizes are recorded", lambda: event.RECORD),
    ("schedules are searched for", search.searching),
    ("pliant's files were written after this process had begun", lambda: own_files() is None),
)
"""What no name says, and what says that it is so."""


def said() -> tuple | None:
    """What the program says of functions, in words that mean the same in every process; None where one has no name."""
    found = policy.by_the_program()
    known = {id(of) for of, _ in found}
    rows = set()
    for of, kind in found:
        if type(of) is types.CodeType:
            rows.add(repr((code_print(of), kind)))
        elif type(of) is types.FunctionType:  # its code tells
            if id(of.__code__) not in known:
                return None
        else:
            place = path_of(of)
            if place is None:
                return None
            rows.add(repr((place, kind)))
    return tuple(sorted(rows))


def key(config: Any) -> bytes | str:
    """What may change in the environment, in 32 bytes; as a str, why entries are neither kept nor looked up."""
    why = next((text for text, so in NO_NAMES if so()), "")
    if why or not isinstance(config.backend, str):
        return why or "the backend is an object"
    to, now = target.current(), state()
    if now is None:
        return "modes are on"
    words = said()
    if words is None:
        return "the program says how functions are treated that have no name (pliant.skip, inline, allow_in_graph)"
    tables = (operators.fingerprint(), *lengths(), tuple(sorted(pipeline.off)), words)
    return hashlib.sha256(repr((to.fingerprint(), now, settings(), foreign(), tables, config)).encode()).digest()


@functools.cache
def always_print() -> str:
    """What the environment is for as long as the process runs. On an empty disk it takes 15 ms."""
    return hashlib.sha256(repr(fixed()).encode()).hexdigest()
