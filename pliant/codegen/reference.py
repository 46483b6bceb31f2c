"""The reference target: kernels evaluated by NumPy, every node of the loop IR on the whole grid, then the stores. No schedule: slow, plain.

What it says is what a kernel means: compiled code is compared with it in tests, and `report/bisect.py` asks it whether the program or its
code is wrong. It is portable, and the smallest example of a target (`PLIANT_TARGET=reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

from pliant.codegen.target import Target
from pliant.errors import InternalError
from pliant.graph.originals import ORIGINAL, math, torch
from pliant.graph.originals import numpy as np
from pliant.lower.kernels import Launch
from pliant.lower.loops import DTYPES, FAILURES, Kernel, Node, Store
from pliant.lower.program import SegmentCall
from pliant.lower.text import kernel_text

NUMPY = {
    "f32": np.float32, "f64": np.float64, "bf16": np.uint16, "f16": np.float16, "i8": np.int8, "i16": np.int16, "i32": np.int32,
    "i64": np.int64, "u8": np.uint8, "bool": np.bool_,
}  # fmt: skip
"""What memory of each dtype is for NumPy; of bf16 its bits."""


class OutOfRange(IndexError):
    """An index that is none; `args` has the code of the failure."""


def from_bf16(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def to_bf16(values: np.ndarray) -> np.ndarray:
    bits = np.array(values, np.float32, order="C").view(np.uint32)
    rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def value_type(dtype: str) -> Any:
    """Halves are f32 arrays of representable values."""
    return np.float32 if dtype in ("bf16", "f16") else NUMPY[dtype]


def rounded(values: np.ndarray, dtype: str) -> np.ndarray:
    if dtype == "bf16":
        return from_bf16(to_bf16(values.astype(np.float32)))
    if dtype == "f16":
        return values.astype(np.float32).astype(np.float16).astype(np.float32)
    return values.astype(value_type(dtype))


def wide(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """A function in float64, rounded once."""
    return lambda *a: f(*(x.astype(np.float64) for x in a)).astype(a[0].dtype)


def special(f: Callable[[torch.Tensor], torch.Tensor]) -> Callable[..., np.ndarray]:
    """A function that NumPy has not, by PyTorch's."""
    return lambda a: f(torch.from_numpy(np.array(a))).numpy()


def truncated(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    safe = np.where(b == 0, 1, b).astype(b.dtype)
    q = a // safe
    return q + ((q < 0) & (q * safe != a)).astype(a.dtype)


def safely(f: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    """Integer division by 0 gives anything: by 1 here, as the kernels do for 64-bit integers."""
    return lambda a, b: f(a, np.where(b == 0, 1, b).astype(b.dtype) if b.dtype.kind in "iu" else b)


def floor_divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return safely(np.floor_divide)(a, b)
    mod = np.fmod(a, b)
    div = (a - mod) / b
    div = np.where((mod != 0) & ((b < 0) != (mod < 0)), div - 1, div)
    down = np.floor(div)
    down = np.where(div - down > 0.5, down + 1, down)
    return np.where(b == 0, a / b, np.where(div != 0, down, np.copysign(0, a / b))).astype(a.dtype)


def python_remainder(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    if a.dtype.kind != "f":
        return safely(np.remainder)(a, b)
    mod = np.fmod(a, b)
    return np.where((mod != 0) & ((b < 0) != (mod < 0)), mod + b, mod).astype(a.dtype)


def shifted(f: Callable[..., np.ndarray], signed_fill: bool) -> Callable[..., np.ndarray]:
    def shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        bits = a.dtype.itemsize * 8
        beyond = (b < 0) | (b >= bits) if b.dtype.kind == "i" else b >= bits
        kept = f(a, np.where(beyond, bits - 1 if signed_fill and a.dtype.kind == "i" else 0, b).astype(b.dtype))
        return kept if signed_fill and a.dtype.kind == "i" else np.where(beyond, 0, kept).astype(a.dtype)

    return shift


OPS: dict[str, Callable[..., np.ndarray]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "neg": np.negative, "abs": np.abs,
    "fma": wide(lambda a, b, c: a * b + c),
    "maximum": np.maximum, "minimum": np.minimum, "fmax": np.fmax, "fmin": np.fmin,
    "floordiv": floor_divide, "truncdiv": truncated, "remainder": python_remainder, "fmod": safely(np.fmod),
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.rint,
    "sign": lambda a: np.where(np.isnan(a), 0, np.sign(a)).astype(a.dtype) if a.dtype.kind == "f" else np.sign(a),
    "sqrt": np.sqrt, "rsqrt": wide(lambda a: 1 / np.sqrt(a)), "reciprocal": lambda a: (1 / a).astype(a.dtype),
    "exp": wide(np.exp), "exp2": wide(np.exp2), "expm1": wide(np.expm1), "log": wide(np.log), "log2": wide(np.log2),
    "log10": wide(np.log10), "log1p": wide(np.log1p), "sin": wide(np.sin), "cos": wide(np.cos), "tan": wide(np.tan),
    "asin": wide(np.arcsin), "acos": wide(np.arccos), "atan": wide(np.arctan), "atan2": wide(np.arctan2), "sinh": wide(np.sinh),
    "cosh": wide(np.cosh), "tanh": wide(np.tanh), "erf": wide(special(torch.special.erf)), "erfc": wide(special(torch.special.erfc)),
    "sigmoid": wide(special(torch.special.expit)), "pow": wide(np.power),
    "isnan": np.isnan, "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not,
    "shl": shifted(np.left_shift, False), "shr": shifted(np.right_shift, True), "where": np.where,
}  # fmt: skip


def convert(values: np.ndarray, source: str, to: str) -> np.ndarray:
    if to == "bool":
        return values != 0
    if DTYPES[source].kind == "f" and DTYPES[to].kind in "iu":
        middle = np.int64 if to in ("i64", "u8") else np.int32
        return np.trunc(values).astype(middle).astype(NUMPY[to])
    return rounded(values, to)


class Evaluation:
    """Evaluates one kernel over `memory`. `sizes` are the values of its size arguments, `begins` where each buffer begins in its memory."""

    def __init__(self, kernel: Kernel, memory: list[np.ndarray], sizes: Mapping[Any, int], begins: Sequence[int] = ()) -> None:
        self.kernel, self.memory, self.sizes = kernel, memory, sizes
        self.begins = begins or [0] * len(memory)
        self.dims = [self.size(d) for d in kernel.dims]
        self.values: dict[int, np.ndarray] = {}
        rank = len(self.dims)
        self.counters = [np.arange(n).reshape([n if i == j else 1 for j in range(rank)]) for i, n in enumerate(self.dims)]

    def size(self, s: Any) -> int:
        return s if isinstance(s, int) else self.sizes[s]

    def address(self, buffer: int, strides: tuple, offset: Any, index: tuple[Node, ...], steps: tuple) -> np.ndarray:
        at = np.full([1] * len(self.dims), self.begins[buffer] + self.size(offset), np.int64)
        for stride, counter in zip(strides, self.counters):
            if self.size(stride):  # else it is the same at all points
                at = at + self.size(stride) * counter
        for node, stride in zip(index, steps):
            at = at + self.values[id(node)] * self.size(stride)
        return at

    def run(self) -> None:
        with np.errstate(all="ignore"):
            for n in self.kernel.nodes():
                self.values[id(n)] = self.node(n)
            for s in self.kernel.stores:
                self.store(s)

    def node(self, n: Node) -> np.ndarray:
        args = [self.values[id(a)] for a in n.args]
        if n.op == "load":
            return self.load(n)
        if n.op == "const":
            return rounded(np.full([1] * len(self.dims), n.attrs[0]), n.dtype)
        if n.op == "size":
            return np.full([1] * len(self.dims), self.size(n.attrs[0]), np.int64)
        if n.op == "index":
            return self.counters[n.attrs[0]].astype(np.int64)
        if n.op == "cast":
            return convert(args[0], n.args[0].dtype, n.dtype)
        if n.op == "bitcast":
            return np.array(args[0], order="C").view(NUMPY[n.dtype])
        if n.op == "bounded":
            at = np.where(args[0] < 0, args[0] + self.size(n.attrs[0]), args[0]) if n.attrs[1] else args[0]
            if (((at < 0) | (at >= self.size(n.attrs[0]))) & (args[1] if len(args) > 1 else True)).any():
                raise OutOfRange(n.attrs[2])
            return at
        if n.op == "reduce":
            return self.reduce(n, args[0])
        if n.op == "scan":
            return self.scan(n, args[0])
        if n.op == "where":
            return np.where(args[0], args[1], args[2])
        out = OPS[n.op](*args)
        return out if out.dtype == np.bool_ else rounded(out, n.dtype)

    def load(self, n: Node) -> np.ndarray:
        index, predicate = (n.args[:-1], n.args[-1]) if n.predicated else (n.args, None)
        at = self.address(n.buffer, n.strides, n.offset, index, n.attrs[3])
        memory = self.memory[n.buffer]
        if predicate is not None:
            on = self.values[id(predicate)]
            on, at = np.broadcast_arrays(on, at)
            at = np.where(on, at, 0)
        if at.size:
            assert at.min() >= 0, "reads before its memory"
        out = memory[at] if memory.size else np.zeros(at.shape, memory.dtype)
        if n.dtype == "bf16":
            out = from_bf16(out)
        out = out.astype(value_type(n.dtype))
        return out if predicate is None else np.where(on, out, np.zeros((), out.dtype))

    def reduce(self, n: Node, v: np.ndarray) -> np.ndarray:
        kind, outer = n.attrs[0], len(self.dims) - self.kernel.reduced
        v = np.broadcast_to(v, self.dims)
        flat = v.reshape(*v.shape[:outer], math.prod(v.shape[outer:]))
        if kind == "sum":
            if DTYPES[n.dtype].kind == "f":
                out = flat.sum(-1, dtype=np.float64)
            else:
                out = flat.sum(-1, dtype=NUMPY[n.dtype])
        elif kind == "prod":
            out = flat.prod(-1, dtype=np.float64 if DTYPES[n.dtype].kind == "f" else NUMPY[n.dtype])
        elif kind in ("any", "all"):
            out = getattr(flat != 0, kind)(-1)
        elif kind in ("max", "min"):
            out = getattr(flat, kind)(-1)
        else:
            out = getattr(flat, kind)(-1).astype(np.int64)
        return rounded(np.asarray(out), n.dtype).reshape(*self.dims[:outer], *[1] * self.kernel.reduced)

    def scan(self, n: Node, v: np.ndarray) -> np.ndarray:
        outer = len(self.dims) - self.kernel.reduced
        flat = np.broadcast_to(v, self.dims).reshape(*self.dims[:outer], math.prod(self.dims[outer:]))
        dtype = np.float64 if DTYPES[n.dtype].kind == "f" else NUMPY[n.dtype]
        out = (np.cumsum if n.attrs[0] == "sum" else np.cumprod)(flat, -1, dtype=dtype)
        return rounded(out, n.dtype).reshape(self.dims)

    def store(self, s: Store) -> None:
        kernel = self.kernel
        shape = list(self.dims)
        if kernel.reduced and len(s.strides) < len(kernel.dims):
            shape[len(s.strides) :] = [1] * kernel.reduced
        at = np.broadcast_to(self.address(s.buffer, s.strides, s.offset, s.index, s.index_strides), shape)
        value = np.broadcast_to(self.values[id(s.node)], shape)
        on = np.broadcast_to(self.values[id(s.predicate)], shape) if s.predicate is not None else np.ones(shape, bool)
        memory, dtype = self.memory[s.buffer], s.node.dtype
        at, value = at[on], value[on]
        if at.size:
            assert at.min() >= 0 and at.max() < memory.size, "writes outside its memory"
        if s.mode != "set":
            for i, v in zip(at.tolist(), value):
                old = from_bf16(memory[i : i + 1])[0] if dtype == "bf16" else memory[i].astype(value_type(dtype))
                new = np.asarray(OPS[s.mode](old, v), value_type(dtype))
                memory[i] = to_bf16(new[None])[0] if dtype == "bf16" else new.astype(NUMPY[dtype])
        else:
            memory[at] = to_bf16(value) if dtype == "bf16" else value.astype(NUMPY[dtype])


class Reference:
    """Stands in for a compiled kernel: `run(*tensors, *sizes)` writes what the kernel would write."""

    def __init__(self, kernel: Kernel) -> None:
        self.kernel = kernel

    def __call__(self, *args: Any) -> None:
        k = self.kernel
        n = len(k.buffers)
        tensors, sizes = args[:n], dict(zip(k.sizes, args[n:], strict=True))
        try:
            Evaluation(k, [memory_of(t) for t in tensors], sizes, [ORIGINAL.storage_offset(t) for t in tensors]).run()
        except OutOfRange as e:
            error, words = FAILURES[e.args[0]]
            raise error(words) from None


def memory_of(t: torch.Tensor) -> np.ndarray:
    """All elements of a tensor's storage, in place."""
    dtype = torch.uint16 if t.dtype is torch.bfloat16 else t.dtype
    return torch.empty(0, dtype=dtype).set_(ORIGINAL.untyped_storage(ORIGINAL.detach(t))).numpy()


class ReferenceTarget(Target):
    """A processor that has kernels and nothing else: no segments, no library."""

    name = "reference"

    def __init__(self) -> None:
        self.launchers: dict[Hashable, Reference] = {}

    def supports(self, device: torch.device) -> bool:
        return device.type == "cpu"

    def worth_a_kernel(self, op: Any) -> bool:
        return True

    def compile(self, launches: list[Launch], segments: list[SegmentCall]) -> None:
        if segments:
            raise InternalError("the reference target has no segments")
        for launch in launches:
            self.launchers.setdefault(launch.key, Reference(launch.kernel))

    def launcher(self, launch: Launch) -> Callable[..., None]:
        return self.launchers[launch.key]

    def link(self, name: str, names: list[str], known: dict[str, int]) -> dict[str, int] | None:
        return None

    def listing(self, kernel: Kernel, kind: str) -> str:
        return kernel_text(kernel)

    def fingerprint(self) -> tuple:
        return (self.name,)

    def keeps_code(self) -> bool:
        return False
