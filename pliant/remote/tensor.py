"""`RemoteTensor`: a tensor whose data lie on the workers of a mesh.

To PyTorch it is a tensor on the CPU of its global size. An operator on it becomes a program of that one operator, run where the data are
(`eager.py`); inside of `pliant.compile(..., on=mesh)` it is an input of the captured graph. What asks for its values (`item`, `print`,
`cpu`, `float`, a branch) fetches them, and says so in an event.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch

from pliant import events
from pliant.graph.originals import gradients
from pliant.interpret.arrays.operands import LENT
from pliant.interpret.state import vm
from pliant.interpret.types.row import LOCATED
from pliant.interpret.world import TENSOR_TYPES
from pliant.jit.support import ELSEWHERE
from pliant.remote.placements import OnWorker, Placement, RemoteError, each


class Handle:
    """What the controller holds of a tensor on the workers; they drop theirs when nobody holds it any more."""

    __slots__ = ("beside", "copy", "id", "laid", "memory", "mesh", "__weakref__")
    laid: bool  # whether the tensor lies in memory on the workers as the controller says (whole ones; of pieces nothing is known)
    beside: tuple[int, ...]  # of what says whether an operator has succeeded: the handles of its other results

    def __init__(self, mesh: Any, id_: int, memory: int | None = None, copy: bool = False, laid: bool = True) -> None:
        self.mesh, self.id, self.copy, self.laid, self.beside = mesh, id_, copy, laid, ()  # a copy that should be a view of `memory`
        self.memory = id_ if memory is None else memory  # the same for tensors that may share memory
        mesh.live[id_] = None
        if copy:
            mesh.copied[self.memory] += 1

    def becomes_copy_of(self, other: Handle) -> None:
        """Its tensor, whose memory nobody else has, should be a view of that of `other`."""
        self.memory, self.copy = other.memory, True
        self.mesh.copied[self.memory] += 1

    def __del__(self) -> None:
        if self.copy:
            self.mesh.copied[self.memory] -= 1
        self.mesh.drop(self.id)


class RemoteTensor(torch.Tensor):
    """A tensor of a mesh. `placement` says which worker has what of it, `mesh` whose they are."""

    handle: Handle
    placement: Placement
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    #: Set by `eager.py`.
    operator: Any = None

    @staticmethod
    def make(handle: Handle, placement: Placement, sizes: Any, strides: Any, dtype: torch.dtype, offset: Any = 0) -> RemoteTensor:
        x = torch.Tensor._make_wrapper_subclass(RemoteTensor, sizes, strides=strides, storage_offset=offset, dtype=dtype)
        x.handle, x.placement = handle, placement
        return x

    def another(self) -> RemoteTensor:
        """Another object for the same tensor."""
        return RemoteTensor.make(self.handle, self.placement, self.shape, self.stride(), self.dtype, self.storage_offset())

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:  # type: ignore[override]
        return cls.operator(func, args, kwargs or {})

    @property
    def mesh(self) -> Any:
        return self.handle.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        """A placement for each dim of the mesh."""
        return each(self.placement, self.mesh.ndim)

    def fetched(self, why: str) -> torch.Tensor:
        """Its value, as a tensor of this process. `RemoteError` if it could not be computed."""
        where = str(self.placement)
        events.emit("fetch", why=why, sizes=tuple(self.shape), dtype=str(self.dtype), placement=where)
        events.count("fetches")
        return self.mesh.fetch(self)

    def cpu(self, *_: Any, **__: Any) -> torch.Tensor:  # type: ignore[override]
        """Its value, as a tensor of this process; gradients go back to the workers."""
        return Fetched.apply(self) if self.requires_grad and torch.is_grad_enabled() else self.fetched("cpu()")

    full_tensor = cpu

    def to_worker(self, rank: int) -> RemoteTensor:
        """The same tensor on one worker; gradients go back to where it was."""
        return self.mesh.placed(self, OnWorker(rank))

    def numpy(self, *, force: bool = False) -> Any:
        if self.requires_grad and torch.is_grad_enabled() and not force:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        return self.fetched("numpy()").numpy()

    def __array__(self, dtype: Any = None, **_: Any) -> Any:
        return self.fetched("__array__").detach().numpy().astype(dtype) if dtype is not None else self.fetched("__array__").detach().numpy()

    def tolist(self) -> Any:
        return self.fetched("tolist()").tolist()

    def item(self) -> Any:  # type: ignore[override]
        if self.numel() != 1:
            raise RuntimeError(f"a Tensor with {self.numel()} elements cannot be converted to Scalar")
        return self.fetched("item()").item()

    def __float__(self) -> float:
        return float(self.fetched("float()"))

    def __int__(self) -> int:
        return int(self.fetched("int()"))

    def __index__(self) -> int:
        return self.fetched("index()").__index__()

    def __bool__(self) -> bool:
        return bool(self.fetched("a branch"))

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        with gradients(False):
            text = repr(self.fetched("print").detach())
        grad = ", requires_grad=True" if self.requires_grad else ""
        return f"Remote{text[:1].upper()}{text[1:-1]}, placement={self.placement}{grad})"

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __deepcopy__(self, memo: Any) -> RemoteTensor:
        found = memo.get(id(self))
        if found is None:
            with gradients(False):
                found = torch.clone(self.detach())
            if isinstance(self, torch.nn.Parameter):
                found = torch.nn.Parameter(found, self.requires_grad)
            else:
                found.requires_grad_(self.requires_grad)
            memo[id(self)] = found
        return found

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise RemoteError("a remote tensor cannot be pickled: use .cpu(), or mesh.checkpoint")


class Moved(torch.autograd.Function):
    """A tensor placed otherwise, on another mesh perhaps; its gradient goes back."""

    @staticmethod
    def forward(ctx: Any, x: RemoteTensor, mesh: Any, placement: Placement) -> RemoteTensor:
        ctx.mesh, ctx.placement = x.mesh, x.placement
        found = mesh.moved(x, placement)
        return found.another() if found is x else found

    @staticmethod
    def backward(ctx: Any, grad: RemoteTensor) -> Any:
        return ctx.mesh.placed(grad, ctx.placement), None, None


class Sent(torch.autograd.Function):
    """A tensor of this process on the workers; its gradient comes back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mesh: Any, placement: Placement) -> RemoteTensor:
        return mesh.put(x.detach(), placement)

    @staticmethod
    def backward(ctx: Any, grad: RemoteTensor) -> Any:
        return grad.cpu(), None, None


class Fetched(torch.autograd.Function):
    """The value of a remote tensor; its gradient goes back."""

    @staticmethod
    def forward(ctx: Any, x: RemoteTensor) -> torch.Tensor:
        ctx.mesh, ctx.placement = x.mesh, x.placement
        return x.fetched("cpu()")

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return ctx.mesh.placed(grad, ctx.placement)


TENSOR_TYPES.add(RemoteTensor)
LENT.add(RemoteTensor)
ELSEWHERE[RemoteTensor] = RemoteTensor.another


def locate(world: Any, v: RemoteTensor, source: Any) -> Any:
    """A traced input stands for a remote tensor. Another backend would look for its elements where there are none: no capture."""
    if getattr(world.history, "on_mesh", False):
        return AS_TENSOR(world, v, source)
    raise vm.capture_failed("it reads a tensor of a mesh, and was compiled (or is exported) without on=mesh: its operators run one by one")


AS_TENSOR: Any = LOCATED[torch.Tensor].locate
LOCATED[RemoteTensor] = dataclasses.replace(LOCATED[torch.Tensor], located=(RemoteTensor,), stands=(), locate=locate)
Operator = Callable[[Any, tuple, dict], Any]
