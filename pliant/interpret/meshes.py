"""Distributed tensors in the interpreter: their functions are run as they are, their meshes are known by identity.

`graph/distributed_tensors.py` has what PyTorch's code is answered meanwhile. Nobody changes a mesh; what it says of the processes is
asked again by the guards of each call (how many a group has, and which of them this one is), and so is whether PyTorch's dispatcher of
such tensors is as it comes: whatever else is switched on in it breaks the graph.
"""

from __future__ import annotations

import functools
import pathlib
import sys
import types
import zlib
from typing import Any

from torch.distributed.device_mesh import DeviceMesh
from torch.utils import _python_dispatch as python_dispatch

from pliant.graph import distributed_tensors
from pliant.graph.originals import operator, torch
from pliant.graph.traced import TracedTensor, Untraceable
from pliant.guards import views
from pliant.guards.source import Source
from pliant.interpret import policy, process_state
from pliant.interpret.attributes import lookup
from pliant.interpret.calls import LOOKASIDES
from pliant.interpret.collectives import asked, group_rank, group_size, refused
from pliant.interpret.gate import captured_call
from pliant.interpret.state import Break, Restart, vm, whole_loops
from pliant.interpret.tensor_subclasses import among, class_of, metadata_of, refuse_gradients, stands_for, with_gradients
from pliant.interpret.types.row import ROWS, read, row
from pliant.interpret.world import World
from pliant.interpret.wrappers import on_wrappers, wrapper_of
from pliant.symbolic.scope import DataDependent

PLAIN = (int, bool, float, str, type(None), torch.dtype, torch.Size, torch.SymInt)
METHODS = ("from_local", "to_local", "redistribute", "full_tensor")
PROPERTIES = ("placements", "device_mesh")
OF_MESHES = ("size", "get_local_rank", "get_coordinate", "get_rank")
PROPERTIES_OF_MESHES = ("ndim", "shape", "mesh_dim_names", "device_type")


# -- what it is given ------------------------------------------------------------------------------------------------------
def dispatcher() -> tuple[int, int, int] | None:
    """How many operators have rules for their shardings; None if something changes what the dispatcher does."""
    d: Any = distributed_tensors.api().DTensor._op_dispatcher
    utils: Any = sys.modules["torch.distributed.tensor._utils"]
    own = all([h.__module__ in OWN_HANDLERS for h in d._custom_op_handlers.values()])
    explicit = getattr(utils.ExplicitRedistributionContext._local, "_active", None)
    debugs = sys.modules["torch.utils._debug_mode"].get_active_debug_mode() is not None
    if not own or debugs or explicit is not None or d._allow_implicit_replication:
        return None
    p = d.sharding_propagator
    return len(p.op_to_rules), len(p.op_strategy_funcs), len(p.op_single_dim_strategy_funcs)


def rules() -> int | None:
    """What PyTorch's rules for shardings are called, which an entry on disk asks once; None where some are the program's."""
    p: Any = distributed_tensors.api().DTensor._op_dispatcher.sharding_propagator
    tables = (p.op_to_rules, p.op_strategy_funcs, p.op_single_dim_strategy_funcs)
    named: list[str] = []
    known: dict[int, str] = {}
    for table in tables:
        for op, rule in table.items():
            if id(rule) not in known:
                fn: Any = rule if isinstance(rule, (types.FunctionType, functools.partial)) else rule.func
                if not is_torchs(fn):
                    return None
                known[id(rule)] = f"{fn.__module__}.{fn.__qualname__}:{fn.__code__.co_firstlineno}"
            named += op._name, known[id(rule)]
        named.append("")
    return zlib.crc32("\n".join(named).encode())


def is_torchs(fn: Any) -> bool:
    """Whether a function, and those that it holds, are written in PyTorch's files."""
    if type(fn) is not types.FunctionType or not str(fn.__code__.co_filename).startswith(TORCH):
        return False
    held = [c.cell_contents for c in fn.__closure__ or () if callable(c.cell_contents)]
    return all([is_torchs(f) for f in held if type(f) not in (type, torch._ops.OpOverload, torch._ops.OpOverloadPacket)])


TORCH = str(pathlib.Path(torch.__file__).parent)
OWN_HANDLERS = tuple([f"torch.distributed.tensor.{name}" for name in ("_dispatch", "_tp_conv", "_nonlinear_redux")])


def of_mesh(mesh: Any) -> Any:
    """A mesh, as PyTorch's code is given it, and what it relies on of this process."""
    world = vm.world
    if id(mesh) not in world.sources:
        raise refused("a mesh that is made here")
    if mesh.device_type != "cpu":
        raise refused("a mesh of devices that are not the CPU")
    world.known_by_identity(mesh)
    world.guard(world.sources[id(mesh)], "ID_MATCH", mesh)  # what is placed on it leads to it
    for name in mesh._dim_group_names:
        asked(group_size, name)
        asked(group_rank, name)
    if process_state.note("itself", dispatcher, (), {}, dispatcher()) is None:
        raise refused("a distributed tensor, while something changes what its operators do")
    if not any([fn is rules for fn, *_ in world.asked]):
        found = rules()
        world.bound_here = world.bound_here or ("its shardings follow rules of the program's" if found is None else "")
        process_state.note("process", rules, (), {}, found)
    return mesh


def given(v: Any) -> Any:
    """What PyTorch's code is given for an argument of a function of distributed tensors."""
    t = type(v)
    if t is TracedTensor or t in PLAIN or t in distributed_tensors.placement_classes():
        return v
    if t is DeviceMesh:
        return of_mesh(v)
    if t in (list, tuple):
        return t(map(given, v))
    raise Break("PL0028", f"a function of distributed tensors is given a {t.__name__}", clean=True)


# -- from outside ------------------------------------------------------------------------------------------------------
def locate(world: World, v: Any, source: Source) -> Any:
    """The proxy for a distributed tensor from outside."""
    cls, spec = type(v), v._spec
    world.guard(source, "TYPE_MATCH", cls)
    with python_dispatch._disable_current_modes():
        for view in (views.form_of_wrapper, views.form_of_distributed):
            world.guard(source.apply(view.__name__), "EQ_MATCH", view(v))
    of_mesh(world.locate(spec.mesh, source.attr("_spec").attr("mesh")))
    for name in (*METHODS, *PROPERTIES):
        lookup(cls, name)
    part = world.locate(v._local_tensor, source.attr(distributed_tensors.LOCAL))
    if type(part) is not TracedTensor:
        raise refused("a distributed tensor around one that waits, which no graph takes")
    sizes, strides, _ = metadata_of(world, v, source, [part])
    form = distributed_tensors.placed(spec)

    def build() -> Any:
        return distributed_tensors.build(cls, form, sizes, strides, v.dtype, part)

    vm.trace.wrapping.add(cls)
    placement = distributed_tensors.Placement()
    w = with_gradients(source, [distributed_tensors.LOCAL], [part], build, placement) if v.requires_grad else build()
    return stands_for(world, w, v, source)


# -- calls -----------------------------------------------------------------------------------------------------------------
def state(w: Any) -> tuple:
    return w.grad_fn, distributed_tensors.placed(w._spec), tuple(w._spec.tensor_meta.shape)


EACH = {torch._foreach_addcdiv_: torch.Tensor.addcdiv_, torch._foreach_addcmul_: torch.Tensor.addcmul_}
"""With a number for each tensor, which C++ code wants as it is: done one by one, as ATen does it on CPUs."""


def one_by_one(fn: Any, args: tuple) -> None:
    """Versions of distributed tensors stay as they are, as PyTorch leaves them where it is given lists."""
    versions = tuple([t._version for t in args[0]])
    for *tensors, number in zip(*args, strict=True):
        captured_call(EACH[fn], tuple(tensors), {"value": number})
    torch._C._autograd._unsafe_set_version_counter(tuple(args[0]), versions)  # type: ignore[attr-defined]


def run(fn: Any, args: tuple, kwargs: dict) -> Any:
    """A function of distributed tensors. Whatever PyTorch's code raises, it may raise of what is traced alone: eager says what it says."""
    refuse_gradients(fn, args, kwargs)
    outside = [t for t in among([args, kwargs], []) if distributed_tensors.is_distributed(class_of(t)) and id(t) in vm.world.real]
    before = [(t, wrapper_of(t)._version, state(wrapper_of(t))) for t in outside]
    try:
        listed = fn in EACH and len(args) == 4 and not kwargs and all([type(a) in (list, tuple) for a in args])
        out = on_wrappers(lambda a, k: one_by_one(fn, a) if listed else captured_call(fn, a, k), args, kwargs)
        for t, version, was in before:
            w = wrapper_of(t)
            if not all(map(operator.eq, state(w), was)):
                raise Break("PL0028", f"{getattr(fn, '__name__', fn)} of a distributed tensor from outside, which is another one after it")
            if w._version != version:
                vm.world.calls.append((torch.autograd.graph.increment_version, (t,), {}))
        return out
    except (Break, Restart):
        raise
    except Exception as e:
        if vm.internal_error(e):
            raise
        behind: BaseException | None = e
        while behind is not None and not isinstance(behind, (Break, Restart, Untraceable, DataDependent)):
            behind = behind.__cause__ or behind.__context__  # PyTorch's code raises another one in its place
        if behind is not None:
            raise behind from None
        said = str(e).strip().partition("\n")[0]
        raise Break("PL0028", f"{getattr(fn, '__name__', fn)} of distributed tensors: {type(e).__name__}: {said}") from e


def call(fn: Any, args: tuple, kw: dict) -> Any:
    """A function of PyTorch about distributed tensors."""
    if not whole_loops():
        raise Break("PL0028", "a distributed tensor, for a backend that is not pliant's own", clean=True)
    args, kw = tuple(map(given, args)), {k: given(v) for k, v in kw.items()}
    vm.trace.wrapping.add(distributed_tensors.api().DTensor)
    vm.world.has_subclasses = True
    if fn.__name__ == "to_local" and isinstance(vm.world.real.get(id(args[0])), torch.nn.Parameter):
        raise Break("PL0028", "the part of a distributed parameter, which is marked as one", clean=True)
    return run(fn, args, kw)


def of_spec(fget: Any, args: tuple, kw: dict) -> Any:
    """What a distributed tensor's spec says."""
    (t,) = args
    return fget(wrapper_of(t))


def mesh_says(fn: Any, args: tuple, kw: dict) -> Any:
    """What a mesh says of itself, and of this process in it: numbers and names."""
    mesh, *rest = args
    for v in (*rest, *kw.values()):
        if type(v) not in (int, str, type(None)):
            raise Break("PL0028", f"{fn.__name__} of a mesh, of a {type(v).__name__}", clean=True)
    if type(mesh) is not DeviceMesh:
        raise Break("PL0028", "a mesh of a class of its own", clean=True)
    return fn(of_mesh(mesh), *rest, **kw)


# -- placements --------------------------------------------------------------------------------------------------------------
def question(name: str) -> Any:
    """`placement.is_shard(dim)` and its like: C functions that say what the placement is."""

    def ask(placement: Any, *args: Any) -> Any:
        return getattr(placement, name)(*args)

    LOOKASIDES[ask] = lambda args, kw: ask(*args, *kw.values())
    return ask


QUESTIONS = {name: question(name) for name in ("is_shard", "is_replicate", "is_partial")}


def attribute(o: Any, name: str) -> Any:
    return types.MethodType(QUESTIONS[name], o) if name in QUESTIONS else read(o, name)


def placement(cls: Any, args: tuple, kw: dict) -> Any:
    """`Shard(0)`: what never changes."""
    for v in (*args, *kw.values()):
        if type(v) not in (int, str):
            raise Break("PL0028", f"{cls.__name__} of a {type(v).__name__}", clean=True)
    return cls(*args, **kw)


def locate_placement(world: World, v: Any, source: Source) -> Any:
    world.guard(source, "TYPE_MATCH", type(v))
    world.guard(source.apply("text_of_placement"), "EQ_MATCH", views.text_of_placement(v))
    return v


def compared(fn: Any, a: Any, b: Any) -> Any:
    return fn(a, b) if type(a) in ROWS and type(b) in ROWS else NotImplemented


# -- once PyTorch's modules are there --------------------------------------------------------------------------------------
@functools.cache
def enter(cls: type) -> None:
    """Functions and types about distributed tensors. `cls`: their class."""
    api = distributed_tensors.api()
    for name in METHODS:
        raw: Any = cls.__dict__[name]
        fn = raw if type(raw) is types.FunctionType else raw.__func__
        LOOKASIDES[fn] = functools.partial(call, fn)
    for name in PROPERTIES:
        fget: Any = cls.__dict__[name].fget
        LOOKASIDES[fget] = functools.partial(of_spec, fget)
    for name in OF_MESHES:
        fn = vars(DeviceMesh)[name]
        LOOKASIDES[fn] = functools.partial(mesh_says, fn)
    for name in PROPERTIES_OF_MESHES:
        fget = vars(DeviceMesh)[name].fget
        LOOKASIDES[fget] = functools.partial(mesh_says, fget)
    for module in (api, sys.modules[distributed_tensors.REDISTRIBUTION]):
        for function in vars(module).values():
            if isinstance(function, type) and issubclass(function, torch.autograd.Function) and function.__module__ == module.__name__:
                LOOKASIDES[function.backward] = functools.partial(captured_call, function.backward)  # the engine gets what it gives
    for code in api.distribute_module.__code__.co_consts:
        if type(code) is types.CodeType:  # the hooks that it registers: they call what they were given
            policy.set_kind(code, "inline", own=True)
    for made in vars(sys.modules[distributed_tensors.SPECS].DTensorSpec).values():
        if type(made) is types.FunctionType and made.__code__.co_filename == "<string>":  # of a dataclass
            policy.GENERATED.add(made.__code__)
    kinds = distributed_tensors.placement_classes()
    for kind in kinds[:3]:
        LOOKASIDES[kind] = functools.partial(placement, kind)
    row(name="placement", located=kinds, stands=kinds, plain=True, locate=locate_placement, getattr=attribute, compare=compared)


def known() -> None:
    """Before a capture: PyTorch's modules for distributed tensors may have been imported since the last one."""
    module = distributed_tensors.api()
    if module is not None:
        enter(module.DTensor)


vm.locate_distributed, vm.call_distributed = locate, run
