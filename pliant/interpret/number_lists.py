"""Lists of numbers from outside that become tensors: each is one input of the graph, as an array is.

`torch.tensor(rewards)` of a list that an argument, an object or a graph break brings would be a guard or a symbol for each item, and a
graph for each length. Where a tensor (an array, an index) is made of the list, and the program has not written to it before, the
guard program makes the tensor (`views.numbers_tensor`): its length is a size like others, its dtype says of what kind the items are.
Which lists that is, `jit/whole_lists.py` says. What `sum`, `max` and `min` say of such a list the guards ask, too: a number like others.
Whatever else asks for items of the list reads them one by one, as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pliant.graph.originals import ORIGINAL, get_default_dtype, torch
from pliant.guards import views
from pliant.interpret.calls import LOOKASIDES, call, graph_call
from pliant.interpret.globalstate import user_modes
from pliant.interpret.shadows import NUMBERS_TENSOR, Shadow, as_it_was
from pliant.interpret.state import vm
from pliant.interpret.tensor_inputs import make_tensor
from pliant.interpret.types.numbers import floating, integer, through_attribute

FEW = 8  # of more, items and lengths are taken to change before they were seen to


def lifted(o: Any) -> Any:
    """The tensor of all numbers in `o`, with the dtype of their kind (int64, float64 or bool): an input of the graph. None: `o` is no list
    from outside, or has to be read item by item."""
    world, h = vm.world, list_of(o)
    if h is None:
        return None
    found = made_of(h)
    if found is None or not as_it_was(h) or found.ndim > 1 and any_written() or not takes_whole(h):
        return None
    source = h.source.apply(NUMBERS_TENSOR)
    known = world.reads.get((source, NUMBERS_TENSOR))
    if known is None:
        world.unusual()
        known = world.reads[source, NUMBERS_TENSOR] = make_tensor(world, found, source)
    return known


def list_of(o: Any) -> Shadow | None:
    """The list from outside that `o` stands for, if inputs may be made of such."""
    world = vm.world
    h = world.by_copy.get(id(o))
    if h is None or type(h.orig) is not list or not h.orig or vm.asking or vm.rehearsing or world.dynamic is False or world.declared:
        return None
    return h


NUMBER_OF = {sum: views.sum_of_numbers, max: views.largest_of_numbers, min: views.smallest_of_numbers}


def number_of(fn: Any, o: Any) -> Any:
    """What `fn` says of the list `o` of ints, or of floats: a number that the guards ask it for. None: `o` is read item by item."""
    world, h = vm.world, list_of(o)
    if h is None or {*map(type, h.orig)} not in ({int}, {float}) or not as_it_was(h) or not takes_whole(h):
        return None
    source = h.source.apply(NUMBER_OF[fn].__name__)
    if source in world.opaque:
        return None
    world.unusual()
    n = NUMBER_OF[fn](h.orig)
    return integer(world, n, source, changes=True) if type(n) is int else floating(world, n, source, changes=True)


def asker(fn: Any) -> None:
    """`sum`, `max` and `min` of one list."""
    before: Callable = LOOKASIDES[fn]

    def look(args: tuple, kw: dict) -> Any:
        found = number_of(fn, args[0]) if len(args) == 1 and not kw and type(args[0]) is list else None
        return before(args, kw) if found is None else found

    LOOKASIDES[fn] = look


def takes_whole(h: Shadow) -> bool:
    """Whether this list is worth an input: it is long, or another one was there."""
    f, history = vm.frame, vm.history
    if f is None or history is None or history.on_mesh:
        return False
    likely = h.source.root.op == "local" and not through_attribute(h.source) and len(h.orig) > FEW
    return history.takes_whole(f.decoded.site(f.pc - 1 if f.pc else 0), likely)


def made_of(h: Shadow) -> Any:
    """The tensor that the guard will make, or None."""
    if torch._C._len_torch_function_stack() or torch.utils._device.CURRENT_DEVICE is not None:
        return None
    try:
        with vm.trace.paused(), torch._C._InferenceMode(vm.world.begun_in_inference):  # as it is where guards run
            return views.VIEWS[NUMBERS_TENSOR](h.orig)
    except (KeyError, OverflowError, TypeError, ValueError):
        return None


def any_written() -> bool:
    """Whether the program has written to some list from outside: it may be one of those in a list of lists, which nobody has met."""
    return not all([as_it_was(h) for h in vm.world.shadows.values() if issubclass(type(h.orig), list)])


# -- what is made of them ---------------------------------------------------------------------------------------------------------------
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
EXACT = {
    torch.bool: (torch.bool, torch.int64, torch.uint8, torch.int32, *FLOATS), torch.int64: (torch.int64, *FLOATS), torch.float64: FLOATS,
}  # fmt: skip
"""By kind, the dtypes that hold such numbers as `torch.tensor` stores them. It refuses some numbers of others."""


def tensor_of(o: Any, dtype: Any) -> Any:
    """`torch.tensor(o, dtype=dtype)` of a list that is an input, or None."""
    found = lifted(o)
    if found is None:
        return None
    kind = found.dtype
    if dtype is None:
        dtype = get_default_dtype() if kind is torch.float64 else kind
    if dtype not in EXACT[kind]:
        return None
    if kind is torch.int64 and dtype is not kind:  # each goes by way of a float of C
        found = graph_call(ORIGINAL.to, (found, torch.float64), {}, "to")
    if found.dtype is dtype:
        return graph_call(torch.clone, (found,), {}) if kind is dtype else found
    return graph_call(ORIGINAL.to, (found, dtype), {}, "to")


def maker(fn: Any) -> None:
    """`torch.tensor` and `torch.as_tensor`."""
    before: Callable = LOOKASIDES[fn]

    def look(args: tuple, kw: dict) -> Any:
        data = args[0] if len(args) == 1 else kw.get("data") if not args else None
        if type(data) is list and on_cpu(kw.get("device")) and kw.keys() <= {"data", "dtype", "device", "requires_grad"}:
            dtype = kw.get("dtype")
            if (dtype is None or type(dtype) is torch.dtype) and kw.get("requires_grad", False) is False:
                made = tensor_of(data, dtype)
                if made is not None:
                    return made
        return before(args, kw)

    LOOKASIDES[fn] = look


def on_cpu(device: Any) -> bool:
    return device is None or type(device) in (str, torch.device) and str(device) == "cpu"


def enter() -> None:
    """These are asked before all others that replace `torch.tensor`, `torch.as_tensor`, `sum`, `max` and `min`."""
    for fn in (torch.tensor, torch.as_tensor):
        maker(fn)
    for asked in NUMBER_OF:
        asker(asked)


def as_index(k: list) -> Any:
    """What a tensor is indexed with in the place of a list: the tensor of its ints, if it is an input."""
    if k and torch.SymInt in {*map(type, k)} <= {int, torch.SymInt} and not vm.asking and not user_modes():  # C++ would pin them
        return call(torch.tensor, (k,), {"dtype": torch.int64, "device": "cpu"})
    if not k or not {*map(type, k)} <= {int}:
        return k
    found = lifted(k)
    return k if found is None else found


def as_array(x: list, dtype: Any) -> Any:
    """The tensor behind `np.asarray(x, dtype)` of a list that is an input, or None. `dtype`: as PyTorch names it, or None."""
    found = lifted(x)
    if found is None or dtype not in (None, found.dtype, torch.float64):
        return None
    return graph_call(torch.clone, (found,), {}) if dtype in (None, found.dtype) else graph_call(ORIGINAL.to, (found, dtype), {}, "to")
