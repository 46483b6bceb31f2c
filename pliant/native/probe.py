"""Find where `TensorImpl` keeps its metadata, then prove it on a battery of tensors.

No torch headers at build time means that field offsets are unknown until torch is imported. Each offset is found by looking
for values that only one field can hold, and accepted only if every tensor of the battery reads back what Python says. When
anything is unclear the layout stays unknown, and guards read tensors through Python attributes: slower, never wrong.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator

import torch

from pliant.native import _core

DTYPES = {
    torch.uint8: 0, torch.int8: 1, torch.int16: 2, torch.int32: 3, torch.int64: 4, torch.float16: 5, torch.float32: 6,
    torch.float64: 7, torch.complex64: 9, torch.complex128: 10, torch.bool: 11, torch.bfloat16: 15,
}  # fmt: skip
WINDOW = 320  # bytes of a TensorImpl that are looked at; the object is larger than that in no supported version
IMPL_WINDOW = 200
STORAGE_WINDOW = 64

LIB = os.path.join(os.path.dirname(torch.__file__), "lib")
LIBC10 = os.path.join(LIB, "libc10.so")
LIBTORCH = os.path.join(LIB, "libtorch_cpu.so")
LIBPYTHON = os.path.join(LIB, "libtorch_python.so")


def words(address: int, n: int) -> tuple[int, ...]:
    return struct.unpack(f"<{n}Q", _core.peek(address, n * 8))


def matching(samples: list[torch.Tensor], n: int, test: Callable[[torch.Tensor, tuple[int, ...], int], bool]) -> list[int]:
    """Byte offsets at which `test(sample, words, word index)` holds for every sample."""
    views = [(t, words(t._cdata, n)) for t in samples]
    return [i * 8 for i in range(n) if all(test(t, w, i) for t, w in views)]


def one(found: list[int], what: str) -> int:
    if len(found) != 1:
        raise LookupError(f"{what}: {len(found)} candidates")
    return found[0]


def battery() -> Iterator[torch.Tensor]:
    for dtype in DTYPES:
        yield torch.zeros(3, 4, dtype=dtype)
    base = torch.zeros(5000)
    for nd in range(9):
        shape = [2 + (i % 2) for i in range(nd)]
        yield torch.zeros(shape)
        yield torch.zeros(shape).permute(*reversed(range(nd))) if nd else torch.tensor(1.0)
    yield base.as_strided((7, 11, 3), (401, 31, 5), 17)
    yield base.as_strided((2, 2, 2, 2, 2, 2), (1, 3, 5, 7, 11, 13), 19)
    yield torch.zeros(2, 3, requires_grad=True)
    yield torch.zeros(2, 3, requires_grad=True) * 2
    yield torch.nn.Parameter(torch.zeros(4), requires_grad=False)
    yield torch.zeros(2, dtype=torch.complex64).conj()
    yield torch.zeros(2, dtype=torch.complex64).conj().imag
    yield torch.zeros(0, 3)
    yield torch.zeros(2, 3, device="meta")
    with torch.inference_mode():
        yield torch.zeros(2, 2)
    if torch.cuda.is_available():
        yield torch.zeros(2, 3, device="cuda")


def find() -> dict[str, int]:
    """Offsets by field name; raises `LookupError` when a field cannot be told apart."""
    n = IMPL_WINDOW // 8
    base = torch.zeros(40000)
    a = base.as_strided((7, 11, 13), (2003, 29, 5), 12345)
    b = torch.zeros(90000).as_strided((3, 17, 19, 2, 5), (1009, 37, 2, 41, 3), 6789)
    c = base.as_strided((2, 3, 2, 3, 2, 3), (1, 3, 5, 7, 11, 13), 23456)
    impl = [i * 8 for i, w in enumerate(words(id(a), torch.Tensor.__basicsize__ // 8)) if w == a._cdata]

    def sizes(t: torch.Tensor, w: tuple[int, ...], i: int) -> bool:
        if w[i] != t.ndim or i + 11 > len(w):
            return False
        if t.ndim <= 5:
            return w[i + 1 : i + 1 + t.ndim] == tuple(t.shape) and w[i + 6 : i + 6 + t.ndim] == t.stride()
        return 4096 < w[i + 1] < 1 << 47 and i + 1 < len(w) and words(w[i + 1], 2 * t.ndim) == (*t.shape, *t.stride())

    inline = matching([a, b], n, sizes)
    one(inline, "sizes")
    if not matching([c], n, sizes) == inline:
        raise LookupError("sizes out of line")

    def dtype(t: torch.Tensor, w: tuple[int, ...], i: int) -> bool:
        v = w[i]
        index = t.device.index if t.device.index is not None else -1
        kind = {"cpu": 0, "meta": 14, "cuda": 1}[t.device.type]
        want = DTYPES[t.dtype] | kind << 16 | (index & 0xFF) << 24 | 1 << 32
        return v & 0xFFFFFFFFFF == want

    typed = [torch.zeros(2, dtype=d) for d in DTYPES] + [torch.zeros(2, device="meta")]
    plain = [a, torch.zeros(2, dtype=torch.complex64).conj(), torch.zeros(2, device="meta")]
    storage = a.untyped_storage()
    inside = words(storage._cdata, STORAGE_WINDOW // 8)
    other = b.untyped_storage()
    data = [i * 8 for i, w in enumerate(inside) if w == storage.data_ptr() and words(other._cdata, i + 1)[i] == other.data_ptr()]
    return {
        "impl": one(impl, "impl"),
        "sizes": inline[0],
        "dtype": one(matching(typed, n, dtype), "dtype"),
        "keys": one(matching(plain, n, lambda t, w, i: w[i] == torch._C._dispatch_keys(t).raw_repr()), "keys"),
        "offset": one(matching([a, b, c], n, lambda t, w, i: w[i] == t.storage_offset()), "offset"),
        "storage": one(matching([a, b], n, lambda t, w, i: w[i] == t.untyped_storage()._cdata), "storage"),
        "data": data[0] if data else one(data, "data"),  # a data pointer is kept beside its context: the first is the pointer
    }


def agrees(t: torch.Tensor) -> bool:
    """Does reading `t` from memory give what Python says?"""
    seen = _core.read_tensor(t)
    index = t.device.index if t.device.index is not None else -1
    kind = {"cpu": 0, "meta": 14, "cuda": 1}[t.device.type]
    return seen == (
        tuple(t.shape), t.stride(), t.storage_offset(), DTYPES[t.dtype], kind, index, torch._C._dispatch_keys(t).raw_repr(),
        t.requires_grad, t.untyped_storage().data_ptr(),
    )  # fmt: skip


def install_allocator() -> bool:
    """Let the native core make tensors itself. True when what it makes is what `torch.empty` makes."""
    if not _core.set_allocator(LIBTORCH, LIBPYTHON):
        return False
    sizes = ((), (3,), (0, 4), (2, 3, 5))
    try:
        if all(facts(_core.Empty(n, refuse)(*s)) == facts(torch.empty(s, dtype=t, device="cpu")) for s in sizes for t, n in DTYPES.items()):
            return True
    except RuntimeError:  # imported in inference mode, whose tensors say less
        pass
    _core.set_allocator(None, None)
    return False


def refuse(sizes: tuple[int, ...]) -> None:
    """The fallback while it is tried out."""


def facts(t: torch.Tensor | None) -> tuple:
    if type(t) is not torch.Tensor:
        return ()
    return t.shape, t.stride(), t.dtype, t.device, t.requires_grad, t._version, t.storage_offset(), t.untyped_storage().nbytes()


def install_layout() -> bool:
    """Set the layout of the native core. True when the fast path may be used."""
    try:
        if not _core.set_layout(find(), LIBC10):
            return False
        if all(agrees(t) for t in battery()):
            return True
    except (LookupError, AttributeError, KeyError, RuntimeError, struct.error):
        pass
    _core.set_layout(None, LIBC10)
    return False
