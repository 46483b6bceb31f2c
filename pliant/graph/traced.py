"""`TracedTensor`: the proxy for a tensor while a program is captured.

It has no data. PyTorch's C++ code sees an ordinary strided tensor on the right device, with symbolic sizes: composite operators
decompose themselves and the autograd engine builds its tape on it. Every ATen operator that reaches it is handed to
`dispatch.py`, which works out the metadata of the results and appends an operation to the trace.
"""

from __future__ import annotations

import collections
import functools
import operator
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pliant.errors import PliantError
from pliant.graph.layout import note_loose
from pliant.graph.originals import ORIGINAL, torch

CPU = torch.device("cpu")
OVERFLOW = "Overflow when unpacking"  # of sizes or strides beyond 64 bits


class Printing:
    """Whether `str(symint)` is the program's (then it shows the number, pinned) or a library's or a log's (the symbol)."""

    recording = 0
    library = 0


make_wrapper = torch.Tensor._make_wrapper_subclass
make_subclass = torch.Tensor._make_subclass

# C++ asks Python about every symbolic size that it is handed, so tensors of sizes met before are aliases of a tensor that nobody else
# has. Made below autograd and transforms, they have a history and a version of their own.
CLONED = ("cpu", "cuda")
ABOVE_KERNELS = functools.reduce(
    operator.or_,
    [
        torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, name))
        for name in (
            "Python PythonTLSSnapshot ADInplaceOrView AutogradCPU AutogradCUDA FuncTorchDynamicLayerFrontMode FuncTorchDynamicLayerBackMode"
        ).split()
    ],
)


class Untraceable(PliantError):
    """An operator that cannot be captured. The interpreter turns it into a graph break.

    `op` names the operator; `kind` is "data-dependent" or "unsupported".
    """

    def __init__(self, op: Any, reason: str, kind: str = "unsupported") -> None:
        super().__init__(f"{op}: {reason}")
        self.op = op
        self.reason = reason
        self.kind = kind


#: What PyTorch's C++ code says when it wanted data, or plain integers, of a tensor that has none.
NO_MEMORY, WANTS_NUMBERS = "it looks at the memory of a tensor, which has none yet", "its C++ code wants sizes that are plain numbers"
LIMITS = {
    "data is not allocated yet": NO_MEMORY,
    "with symbolic sizes/strides": WANTS_NUMBERS,
    "expected to contain only concrete integers": WANTS_NUMBERS,
    "dispatch_on_subclass called with NO overloaded args": "it does not know the tensor's class",
    "Cannot access data pointer": NO_MEMORY,
    "Cannot access storage": NO_MEMORY,
    "Expected IntList but got GenericList": WANTS_NUMBERS,
    "setStorage: sizes": NO_MEMORY,
    "is not supported for tensor subclasses": "it is not for subclasses of tensors",
}


#: How C++ code without symbolic sizes refuses them.
SYMBOLIC_REFUSED = ("concrete integers", "with symbolic sizes")

NO_DERIVATIVE = "no derivative of "
NOT_TAKEN = "what another's compiler does not take: "
LEAF = "leaf"
FLAGS = "a parameter without gradients for a while"
LEAF_VIEWS = "views without gradients of what has some"
TRANSFORMS = "transforms"
HOOKS = "hooks"
REBASED = "inputs written with gradients"
UNCUT = "writes with gradients, between results that come from each other"
READ_BEFORE = "writes to what gradients were to be made of"
READS = "what reads a result that others come from: "
"""And the number of that tensor in the trace, which the same program in the same state gives it again."""
RETAINED = "retained gradients"
INFERENCE = "inference mode"
DATA = "writes through .data"
WRAPPED = "gradients of wrappers"
MAKES_WRAPPERS = "a function of autograd that makes wrappers:"
MASKED = "a plain input whose gradient is masked: "
PYTHON_BACKWARD = "Python code that autograd calls"
WRITTEN_TO = "writes to what Python code reads that autograd calls"
REPLAYED = "operations in place of Python code that autograd calls"
SEEDS_OF_OTHERS = "states of generators, by another's compiler"
LOOPS_OF_OTHERS = "loops on data, by another's compiler"
PARTS = "tensors over parts of arrays"
CHECKPOINTS = "checkpoints of which autograd says more than their derivatives"
KEYS = "writes to dicts whose keys are objects"
LAYOUTS = "layouts of views changed in place"
UNWRITTEN = "a call that no graph for another's compiler says"
CALLS_REFUSED = "what PyTorch refuses of proxies"
UNBACKED = "unbacked"  # sizes that only the run knows: a backend cannot compile them, or what was assumed of them did not hold


def qualified(cls: type) -> str:
    """The end of a word for what an earlier capture refused of one class alone."""
    return f" of {cls.__module__}.{cls.__qualname__}"


class Reconsider(Untraceable):
    """The capture went too far: capture again without `what`, a word like `LEAF`, or `NO_DERIVATIVE` and an operator's name.
    `code`: that of the graph break which it should not have come to."""

    def __init__(self, op: Any, reason: str, what: str, code: str | None = None) -> None:
        super().__init__(op, reason)
        self.what, self.code = what, code


def unless_relaid(trace: Any, fn: Any, e: Exception) -> Exception:
    """`e`, which a call raised on proxies. Raises Reconsider where autograd may have raised it: it makes the histories of views anew, of a
    tensor that has another layout by now, and proxies have no memory."""
    if trace.relaid and not isinstance(e, Reconsider):
        raise Reconsider(fn, str(e), LAYOUTS) from e
    return e


class NoBackward(Exception):
    """The autograd engine raised `error` for a tape that it recorded itself: kernels refuse the program already going forward, mostly."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


def is_limit(error: BaseException) -> bool:
    """Whether an exception says that C++ code cannot work on a proxy (not that the program is wrong): a reason to break the graph."""
    if not isinstance(error, (RuntimeError, NotImplementedError)):
        return False
    said = [a for a in error.args if type(a) is str]  # (the program's own errors may hold anything)
    return any([text in a for a in said for text in LIMITS])


def limit_of(error: BaseException) -> str:
    """What an exception of C++ code that cannot work on a proxy means, in words for the program's author."""
    return next((reason for text, reason in LIMITS.items() if text in str(error)), str(error).splitlines()[0])


def unhandled(func: Any, args: tuple, kwargs: dict) -> Any:
    raise Untraceable(func, "a traced tensor was used while nothing was recording")


class TracedTensor(torch.Tensor):
    """A tensor of the trace.

    | slot       | holds                                                                                      |
    |------------|--------------------------------------------------------------------------------------------|
    | vid        | its number in the trace, unique                                                            |
    | owner      | a weak reference to its trace: a view holds its base in C++, where no collector finds cycles |
    | pytype     | the class that the program sees (`torch.Tensor`, `torch.nn.Parameter`)                      |
    | source     | for inputs: where the real tensor comes from, else None                                    |
    | sizes, strides, offset | metadata as Python ints and `SymInt`s                                          |
    | dense      | True when the strides are exactly those of a new row-major tensor of these sizes            |
    | storage_id | tensors with the same number share memory                                                  |
    | constant   | the real tensor, for data made in the capture from Python constants                          |
    | meta       | its twin on the meta device, made on demand                                                 |
    """

    __slots__ = ("vid", "owner", "pytype", "source", "sizes", "strides", "offset", "dense", "storage_id", "constant", "meta")
    vid: int
    owner: Callable[[], Any]
    pytype: type
    source: Any
    sizes: tuple
    strides: tuple
    offset: Any
    dense: bool
    storage_id: int
    constant: torch.Tensor | None
    meta: torch.Tensor | None
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    #: Set by `dispatch.py`.
    handler: Any = staticmethod(unhandled)

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:  # type: ignore[override]
        if len(types) > 1 and not all([t is TracedTensor for t in types]):
            return NotImplemented  # a wrapper of the program's takes the operator apart
        return cls.handler(func, args, kwargs or {})

    @property
    def trace(self) -> Any:
        """The `Trace` that it belongs to; None when that is gone."""
        return self.owner()

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        if not hasattr(self, "sizes"):
            return "TracedTensor(unfinished)"
        if Printing.recording and not Printing.library:
            raise Untraceable("Tensor.__repr__", "the text of a tensor")
        shape = ", ".join(map(str, map(shown, self.sizes)))
        return f"%{self.vid}: {str(self.dtype).removeprefix('torch.')}[{shape}]"

    __str__ = __repr__


#: What pliant asks of traced tensors itself: as PyTorch answers it, whatever a program has put in the place of a method of `torch.Tensor`.
QUESTIONS = (
    "dim element_size is_complex is_conj is_contiguous is_floating_point is_inference is_neg numel size storage_offset stride"
).split()
for _name in QUESTIONS:
    setattr(TracedTensor, _name, getattr(ORIGINAL, _name))


def refused(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise Untraceable(f"Tensor.{name}", "it asks for the memory of a tensor that has none while capturing")

    method.__name__ = method.__qualname__ = name
    return method


#: Methods of tensors that read memory directly, without an operator.
for _name in (
    "data_ptr untyped_storage storage _typed_storage numpy __array__ __dlpack__ __dlpack_device__ share_memory_ is_shared"
    " __deepcopy__ __reduce_ex__ pin_memory resize_as_sparse_"
).split():
    setattr(TracedTensor, _name, refused(_name))


def shown(s: Any) -> Any:
    """A size for printing: the expression, never a decision."""
    return s if isinstance(s, (int, float)) else s.node.expr


def template_of(trace: Any, x: TracedTensor) -> TracedTensor | None:
    """The tensor that those of the sizes, strides and dtype of `x` are aliases of, if there is one (`make`)."""
    numbers = (*x.sizes, *x.strides, x.offset)
    if all([type(s) is int for s in numbers]):
        return None
    shape = [s if type(s) is int else s.node.expr.serial + 0.5 for s in numbers]
    device = x.device
    if x.storage_id in trace.of_inference:
        shape.append(OF_INFERENCE)
    found = trace.templates.get((x.dtype, device, *shape))
    return trace.templates.get((x.dtype, None, *shape)) if found is None and device == CPU else found


OF_INFERENCE = -1.0
"""At the end of the key of a template that is an inference tensor."""


@contextmanager
def inference(on: bool) -> Iterator[None]:
    """Inside, tensors are made that are inference tensors, or that are none."""
    if on is torch.is_inference_mode_enabled():
        yield
        return
    with torch._C._InferenceMode(on):
        yield


def copied(x: TracedTensor, template: TracedTensor, vid: int, storage_id: int) -> TracedTensor:
    """`make`, of another tensor like `x`, which has this template and no history, where `ABOVE_KERNELS` are excluded already."""
    y = make_subclass(TracedTensor, template, False)
    y.vid = vid
    y.owner = x.owner
    y.pytype = torch.Tensor
    y.source = None
    y.sizes = x.sizes
    y.strides = x.strides
    y.offset = x.offset
    y.dense = x.dense
    y.storage_id = storage_id
    y.constant = None
    y.meta = None
    return y


def make(
    trace: Any,
    sizes: tuple,
    strides: tuple,
    dtype: torch.dtype,
    offset: Any = 0,
    storage_id: int | None = None,
    device: Any = None,
    dense: bool = False,
    requires_grad: bool = False,
    of_inference: bool | None = None,
) -> TracedTensor:
    """A new tensor of `trace`. Without `storage_id` it has memory of its own.

    `of_inference`: whether it is an inference tensor; else what is made in inference mode is one, and what shares memory with one.
    """
    if trace.inference or trace.of_inference or of_inference:
        if of_inference is None:
            of_inference = trace.inference if storage_id is None else storage_id in trace.of_inference
        with inference(of_inference):
            x = made(trace, sizes, strides, dtype, offset, device, requires_grad, of_inference)
        if of_inference:
            trace.of_inference.add(trace.next_vid if storage_id is None else storage_id)
    else:
        x = made(trace, sizes, strides, dtype, offset, device, requires_grad)
    vid = trace.next_vid
    trace.next_vid = vid + 1
    x.vid = vid
    x.owner = trace.ref
    x.pytype = torch.Tensor
    x.source = None
    x.sizes = sizes
    x.strides = strides
    x.offset = offset
    x.dense = dense
    if not dense:
        note_loose(trace.scope, sizes)
    x.storage_id = vid if storage_id is None else storage_id
    x.constant = None
    x.meta = None
    return x


def made(
    trace: Any, sizes: tuple, strides: tuple, dtype: torch.dtype, offset: Any, device: Any, requires_grad: bool, of_inference: bool = False
) -> TracedTensor:
    """What C++ knows of a new tensor."""
    key: Any = None
    if device is None or device.type in CLONED:
        numbers = (*sizes, *strides, offset)
        for s in numbers:
            if type(s) is not int:
                key = (dtype, device, *[s if type(s) is int else s.node.expr.serial + 0.5 for s in numbers])
                if of_inference:
                    key = (*key, OF_INFERENCE)
                break
    x = trace.templates.get(key)
    if x is None:
        try:
            x = make_wrapper(
                TracedTensor,
                sizes,
                strides=strides,
                storage_offset=offset,
                dtype=dtype,
                device=device or CPU,
                requires_grad=requires_grad and key is None,
                storage_size=0,  # there is no memory; PyTorch would work out its size, in a dozen symbolic operations
            )
        except TypeError as e:
            if OVERFLOW not in str(e):
                raise
            raise RuntimeError(f"Storage size calculation overflowed with sizes={list(sizes)}") from e
        if key is not None:
            trace.templates[key] = x
    if key is not None:
        with torch._C._ExcludeDispatchKeyGuard(ABOVE_KERNELS):
            x = make_subclass(TracedTensor, x, requires_grad)
    return x


COMMON = frozenset((TracedTensor, int, float, bool, str, type(None), torch.SymInt, torch.dtype, torch.device))


def leaves(value: Any) -> list[Any]:
    """The leaves of nested lists, tuples, dicts and slices, in order."""
    out: list[Any] = []
    collect((value,), out)
    return out


WALKED: tuple[Any, ...] = (list, tuple, set, frozenset, collections.deque)


def held_in(value: Any) -> Any:
    """Iterate over what a list, tuple, set or deque holds, whatever its class makes of its iteration."""
    return next(b for b in WALKED if issubclass(type(value), b)).__iter__(value)


def collect(values: Iterable[Any], out: list[Any]) -> None:
    for v in values:
        t = type(v)  # `isinstance` believes a `__class__`
        if t in COMMON:
            out.append(v)
        elif t is list or t is tuple:
            collect(v, out)
        elif issubclass(t, (list, tuple)):
            collect(held_in(v), out)
        elif issubclass(t, dict):
            collect(dict.values(v), out)
        elif t is slice:
            collect((v.start, v.stop, v.step), out)
        else:
            out.append(v)


def tensors_of(value: Any) -> list[TracedTensor]:
    """The traced tensors among the leaves."""
    return [v for v in leaves(value) if type(v) is TracedTensor]


def is_lazy(t: torch.Tensor) -> bool:
    """Whether a conjugate or negative bit says that the elements are not what memory holds."""
    return ORIGINAL.is_neg(t) or ORIGINAL.is_conj(t)
