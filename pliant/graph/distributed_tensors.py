"""`DTensor`: PyTorch's own class of wrappers around the part of a tensor that this process holds.

PyTorch's code for it is run as it is, on real objects (`interpret/meshes.py`): its C++ code asks the propagation of shardings how an
operator is done in parts, redistributes what has to be, and calls the operator on the parts, which are traced tensors. Sizes of the whole
are symbols of their own. What is answered here: sizes and strides of results of the whole (PyTorch would ask its fake tensors), what is
known of sizes, and that collectives are waited for in the graph.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from pliant.graph.answering import answering
from pliant.graph.originals import ORIGINAL, gradients, torch
from pliant.graph.symnode import SYMS
from pliant.graph.traced import TracedTensor, Untraceable, leaves, make
from pliant.symbolic.expr import Expr

PACKAGE = "torch.distributed.tensor"
API = "torch.distributed.tensor._api"
SPECS = "torch.distributed.tensor._dtensor_spec"
PROPAGATION = "torch.distributed.tensor._sharding_prop"
REDISTRIBUTION = "torch.distributed.tensor._redistribute"
COLLECTIVES = "torch.distributed._functional_collectives"
SHAPES = "torch.fx.experimental.symbolic_shapes"
LOCAL = "_local_tensor"
FOUND: list[Any] = []


def api() -> Any:
    """The module of the class; None before the program has imported it, and where PyTorch's dispatch of such tensors is not C++ yet."""
    if not FOUND:
        package = sys.modules.get(PACKAGE)
        if package is None or getattr(package.__spec__, "_initializing", False) or not hasattr(torch.Tensor, "_dtensor__new__"):
            return None
        FOUND.append(sys.modules[API])
    return FOUND[0]


def is_distributed(cls: Any) -> bool:
    module = api()
    return module is not None and cls is module.DTensor


def is_mesh(cls: Any) -> bool:
    return cls is getattr(sys.modules.get("torch.distributed.device_mesh"), "DeviceMesh", None)


def is_spec(cls: Any) -> bool:
    """Whether this is the class of what says how such a tensor is placed."""
    return api() is not None and cls is sys.modules[SPECS].DTensorSpec  # type: ignore[attr-defined]


def placement_classes() -> tuple[type, ...]:
    """Those without state: they are equal if what they say is."""
    t: Any = sys.modules["torch.distributed.tensor.placement_types"]
    of_norms: Any = sys.modules["torch.distributed.tensor._ops._math_ops"]
    return t.Shard, t.Replicate, t.Partial, t._StridedShard, of_norms._NormPartial


def is_placement(cls: type) -> bool:
    return api() is not None and cls in placement_classes()


def parts_of_value(v: Any) -> tuple | None:
    """What a placement, or another value that says how a tensor is placed, is made of; None for what is none of them."""
    t = type(v)
    if t is Placement:
        return (v.form,)
    if api() is None:
        return None
    specs, (shard, replicate, partial, strided, _) = sys.modules[SPECS], placement_classes()
    if t in (specs.TensorMeta, specs.ShardOrderEntry):
        return tuple(v)
    if t in (shard, strided):
        return (v.dim,) if t is shard else (v.dim, v.split_factor)
    return () if t is replicate else (v.reduce_op,) if t is partial else None


def waits(t: Any) -> bool:
    """Whether a tensor is the result of a collective that waits for it when it is used."""
    return type(t) is getattr(sys.modules.get(COLLECTIVES), "AsyncCollectiveTensor", None)


def fits(v: Any) -> bool:
    """Whether a tensor from outside is one around a plain part, placed in a way that nothing else has a say in."""
    spec, local = v._spec, v._local_tensor
    meta = spec.tensor_meta
    return (
        (type(local) in (torch.Tensor, torch.nn.Parameter) or waits(local))
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


def kind_of(w: Any) -> tuple:
    """What `build` makes a distributed tensor like `w` of, beside its part."""
    meta = w._spec.tensor_meta
    return type(w), placed(w._spec), tuple(meta.shape), tuple(meta.stride), meta.dtype


def build(cls: Any, form: tuple, sizes: Any, strides: Any, dtype: Any, local: Any, requires_grad: bool = False) -> Any:
    """A distributed tensor whose part here is `local`. `form`: `placed` of its spec."""
    specs: Any = sys.modules[SPECS]
    mesh, placements, order, strided = form
    meta = specs.TensorMeta(torch.Size(sizes), tuple(strides), dtype)
    spec = specs.DTensorSpec(mesh, placements, meta, shard_order=order, use_strided_shard_as_shard_order=strided)
    return cls(local, spec, requires_grad=requires_grad)


# -- gradients ---------------------------------------------------------------------------------------------------------
class Placement:
    """How the gradient of an input is placed, which the rehearsal of the backward part finds out. (Others come as `arriving.Arrived`.)"""

    __slots__ = ("form",)

    def __init__(self, form: tuple | None = None) -> None:
        self.form = form

    def agrees(self, g: Any) -> bool:
        """Whether a gradient is placed as others were before it."""
        form = placed(g._spec)
        if self.form is None:
            self.form = form
        return bool(self.form == form)


def of_gradient(w: Any, placement: Placement | None = None) -> tuple:
    """What `__tensor_unflatten__` makes the gradient of `w` of beside its part. That of what is yet to be summed is whole everywhere."""
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


def local_sizes(form: tuple, sizes: Any) -> tuple:
    """The sizes of the part here of a tensor that is placed like `form`."""
    mesh, placements, *_ = form
    utils: Any = sys.modules["torch.distributed.tensor._utils"]
    return tuple(utils.compute_local_shape_and_global_offset(tuple(sizes), mesh, placements, skip_offset=True)[0])


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


def exprs_in(x: Any) -> Iterator[Expr]:
    """The expressions among sizes, numbers and tensors."""
    for v in leaves(x):
        if type(v) is Expr:
            yield v
        elif type(v) in SYMS:
            yield v.node.expr
        elif type(v) is TracedTensor:
            yield from exprs_in((v.sizes, v.strides))


def only_the_run_knows(x: Any) -> bool:
    """Whether there is a size among them that no guard can ask for."""
    return any([not s.backed for e in exprs_in(x) for s in e.symbols()])


def free_unbacked_symbols(x: Any) -> tuple:
    """`symbolic_shapes.free_unbacked_symbols`: there are none. Raises Untraceable where there are."""
    if only_the_run_knows(x):
        raise Untraceable("DTensor", "how it is sharded is a matter of sizes that only the run knows")
    return ()


def statically_known_true(c: Any) -> bool:
    """As of sizes that are numbers, which the guards make sure of: so the sharding is that of eager."""
    return bool(c)


ANSWERS: tuple[tuple[str, str, Any], ...] = (
    (SHAPES, "has_free_unbacked_symbols", only_the_run_knows),
    (SHAPES, "free_unbacked_symbols", free_unbacked_symbols),
    ("torch.distributed.tensor._ops._tensor_ops", "statically_known_true", statically_known_true),
    (COLLECTIVES, "get_proxy_mode", lambda: True),  # somebody traces: they are waited for at once
)
"""Functions of PyTorch's by module and name, and what stands for each."""


def answers(trace: Any) -> AbstractContextManager[None]:
    """While inside, PyTorch's code is answered for tensors of this trace, in this thread."""
    if api() is None:
        return nullcontext()
    own = threading.get_ident()

    def in_thread(answer: Any) -> Callable[[Any], Any]:
        return lambda original: lambda *args, **kwargs: (answer if threading.get_ident() == own else original)(*args, **kwargs)

    asked = [(sys.modules[module], name, in_thread(answer)) for module, name, answer in ANSWERS]
    meta = in_thread(lambda _, schema: meta_of_results(trace, schema))
    return answering([*asked, (sys.modules[PROPAGATION].ShardingPropagator, "_propagate_tensor_meta_non_cached", meta)])
