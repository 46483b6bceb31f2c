"""`DTensor`: PyTorch's own class of wrappers around the part of a tensor that this process holds.

PyTorch's code for it is run as it is, on real objects (`tensor_subclasses.py`): its C++ code asks the propagation of shardings how an operator
is done in parts, redistributes what has to be, and calls the operator on the parts, which are traced tensors. Sizes of the whole are symbols of
their own. What is answered here: the sizes and strides of results of the whole, if any are symbols (PyTorch would ask its fake tensors),
and that collectives are waited for in the graph.

A mesh is known by identity, and never changes; groups and this process's place in them are asked again by the guards of each call.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pliant.graph.originals import ORIGINAL, gradients
from pliant.graph.traced import make

API = "torch.distributed.tensor._api"
SPECS = "torch.distributed.tensor._dtensor_spec"
PROPAGATION = "torch.distributed.tensor._sharding_prop"
REDISTRIBUTION = "torch.distributed.tensor._redistribute"
COLLECTIVES = "torch.distributed._functional_collectives"
LOCAL = "_local_tensor"


def api() -> Any:
    return sys.modules.get(API)


def is_distributed(cls: Any) -> bool:
    module = api()
    return module is not None and cls is module.DTensor


def placement_classes() -> tuple[type, ...]:
    """Those without state: they are equal if what they say is."""
    t: Any = sys.modules["torch.distributed.tensor.placement_types"]
    return t.Shard, t.Replicate, t.Partial, t._StridedShard


def fits(v: Any) -> bool:
    """Whether a tensor from outside is one around a plain part, placed in a way that nothing else has a say in."""
    spec, local = v._spec, v._local_tensor
    meta = spec.tensor_meta
    return (
        type(local) in (torch.Tensor, torch.nn.Parameter)
        and local.layout is torch.strided
        and local.device.type != "meta"
        and not local.requires_grad
        and all([type(p) in placement_classes() for p in spec.placements])
        and meta is not None
        and (tuple(meta.shape), tuple(meta.stride), meta.dtype) == (tuple(ORIGINAL.size(v)), tuple(ORIGINAL.stride(v)), v.dtype)
    )


def placed(spec: Any) -> tuple:
    """What a spec says beside sizes, strides and dtype."""
    strided = spec.use_strided_shard_as_shard_order
    return spec.mesh, spec.placements, None if strided else spec.shard_order, strided


def build(cls: Any, form: tuple, sizes: Any, strides: Any, dtype: Any, local: Any, requires_grad: bool = False) -> Any:
    """A distributed tensor whose part here is `local`. `form`: `placed` of its spec."""
    specs: Any = sys.modules[SPECS]
    mesh, placements, order, strided = form
    meta = specs.TensorMeta(torch.Size(sizes), tuple(strides), dtype)
    spec = specs.DTensorSpec(mesh, placements, meta, shard_order=order, use_strided_shard_as_shard_order=strided)
    return cls(local, spec, requires_grad=requires_grad)


# -- gradients ---------------------------------------------------------------------------------------------------------
class Placement:
    """How the gradient of an input is placed, which the rehearsal of the backward part finds out."""

    __slots__ = ("form",)

    def __init__(self) -> None:
        self.form: tuple | None = None

    def agrees(self, g: Any) -> bool:
        """Whether a gradient is placed as others were before it."""
        form = placed(g._spec)
        if self.form is None:
            self.form = form
        return bool(self.form == form)


def of_gradient(w: Any, placement: Placement | None = None) -> tuple:
    """What `__tensor_unflatten__` makes the gradient of `w` of beside its part; that of what is yet to be summed is whole in every process."""
    form, meta = placed(w._spec), w._spec.tensor_meta
    if placement is not None and placement.form is not None:
        form = placement.form
    elif any([p.is_partial() for p in form[1]]):
        whole = sys.modules["torch.distributed.tensor.placement_types"].Replicate()
        form = (form[0], tuple([whole if p.is_partial() else p for p in form[1]]), None, form[3])
    return form[1], meta, form[2], False


def placed_like(g: Any, rest: tuple) -> Any:
    """A gradient, placed as the backward part expects it (`of_gradient`)."""
    return g if g._spec.placements == rest[0] else g.redistribute(placements=rest[0])


# -- what PyTorch's code is answered -------------------------------------------------------------------------------------
def meta_of_results(trace: Any, schema: Any) -> Any:
    """Sizes, strides and dtypes of what an operator makes of whole tensors whose sizes are symbols: of traced ones that nobody keeps."""
    specs: Any = sys.modules[SPECS]

    def whole(x: Any) -> Any:
        if isinstance(x, specs.DTensorSpec):
            m = x.tensor_meta
            return make(trace, tuple(m.shape), tuple(m.stride), m.dtype, 0, None, torch.device(x.mesh.device_type), True)
        return type(x)(map(whole, x)) if type(x) in (list, tuple) else x

    def meta(t: Any) -> Any:
        return specs.TensorMeta(ORIGINAL.size(t), ORIGINAL.stride(t), t.dtype) if isinstance(t, torch.Tensor) else None

    n = len(trace.ops)
    with gradients(False):
        out = schema.op(*map(whole, schema.args_schema), **{k: whole(x) for k, x in schema.kwargs_schema.items()})
    del trace.ops[n:]
    return type(out)(map(meta, out)) if isinstance(out, (list, tuple)) else meta(out)


@contextmanager
def answers(trace: Any) -> Iterator[None]:
    """While inside, PyTorch's code is answered for tensors of this trace, in this thread."""
    propagation, functional = sys.modules.get(PROPAGATION), sys.modules.get(COLLECTIVES)
    if propagation is None or functional is None:
        yield
        return
    cls, own = propagation.ShardingPropagator, threading.get_ident()
    propagate, compiling = cls._propagate_tensor_meta_non_cached, functional.is_torchdynamo_compiling

    def propagated(self: Any, schema: Any) -> Any:
        return meta_of_results(trace, schema) if threading.get_ident() == own else propagate(self, schema)

    cls._propagate_tensor_meta_non_cached = propagated
    functional.is_torchdynamo_compiling = lambda: threading.get_ident() == own or compiling()
    try:
        yield
    finally:
        cls._propagate_tensor_meta_non_cached, functional.is_torchdynamo_compiling = propagate, compiling
