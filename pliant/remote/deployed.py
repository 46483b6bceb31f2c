"""An exported program (`pliant.export`, `pliant.load`) on a mesh: its weights lie there, and a call of it is one message a worker."""

from __future__ import annotations

from typing import Any

import torch

from pliant.export import Program
from pliant.export.program import USER
from pliant.export.run import Runner, result, strides_of
from pliant.export.signature import Caller
from pliant.remote import backend
from pliant.remote.placements import RemoteError
from pliant.remote.tensor import RemoteTensor


class Anywhere(Caller):
    """Takes tensors wherever their elements are."""

    @staticmethod
    def readable(t: torch.Tensor) -> bool:
        return type(t) is RemoteTensor or Caller.readable(t)


class Deployed(Runner):
    """Called as the program is, with tensors of the mesh, or of this process. `place(name, tensor)` puts its weights there."""

    lower = staticmethod(backend.lower)

    def __init__(self, p: Program, place: Any) -> None:
        if p.variants:
            raise RemoteError(f"{p.name} has branches on data, of which a mesh would need all sides: put the module there")
        if other := next((o for o in p.outputs if o.kind != USER), None):
            raise RemoteError(
                f"{p.name} has a {other.kind}, {other.name}: on a mesh, an exported program has results alone; put the module there"
            )
        super().__init__(p)
        self.caller = Anywhere(p)
        self.state = {name: place(name, t) for name, t in p.state.items()}

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.caller.bind(args, kwargs)
        return result(self.p, self.caller, given, self.flat(self.caller.flat(given)))

    def laid_out(self, i: Any, v: torch.Tensor, env: dict[str, Any], back: list) -> torch.Tensor:
        """As it is; packed, if it lies otherwise than in the exported call."""
        if v.stride() == strides_of(i.value, env) or not v.numel():
            return v
        return v.clone(memory_format=torch.contiguous_format)
