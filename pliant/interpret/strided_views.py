"""`as_strided` by the program: views of any layout, over memory of which a graph knows no more than the elements that it sees.

PyTorch raises where a layout goes beyond the memory, also if nobody reads the view; a kernel would read on. So the graph breaks in front of
one that is not known to stay among the elements of the tensor that it is asked of: there may be more memory, or none.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.traced import TracedTensor
from pliant.interpret.calls import METHOD_LOOKASIDES, graph_call
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm
from pliant.interpret.wrappers import is_stand, is_wrapped

OF_LAYOUT = ("size", "stride", "storage_offset")
SIZES = (tuple, list, torch.Size)


def check(t: Any, args: tuple, kw: dict) -> None:
    values: dict[str, Any] = dict(zip(OF_LAYOUT, args, strict=False)) | kw
    size: Any = values.get("size")
    stride: Any = values.get("stride")
    offset: Any = values.get("storage_offset")
    if type(t) is not TracedTensor or is_stand(t) or is_wrapped(t) or type(size) not in SIZES or type(stride) not in SIZES:
        return
    offset = t.offset if offset is None else offset
    if len(size) != len(stride) or not all([type(n) in (int, torch.SymInt) for n in (*size, *stride, offset)]):
        return  # it is refused, or what is no number yet becomes one
    if any([type(n) is int and n == 0 for n in size]):
        return
    if any([vm.truth(n < 0) for n in (*stride, offset)]) or any([vm.truth(n == 0) for n in t.sizes]):
        raise Break("PL0039", "as_strided() of a tensor without elements, or with strides below 0", clean=True)
    if not vm.truth(last_place(size, stride, offset) <= last_place(t.sizes, t.strides, t.offset)):
        raise Break("PL0039", "as_strided() beyond the elements of a tensor", clean=True)


def last_place(sizes: Any, strides: Any, offset: Any) -> Any:
    """The furthest element in memory that a layout reaches."""
    return offset + sum([(n - 1) * step for n, step in zip(sizes, strides, strict=True)])


def method(name: str) -> Any:
    original = getattr(ORIGINAL, name)

    def strided(t: Any, args: tuple, kw: dict) -> Any:
        check(t, args, kw)
        return graph_call(original, (t, *args), kw, name)

    return strided


for _name in ("as_strided", "as_strided_"):
    METHOD_LOOKASIDES[(torch.Tensor, _name)] = method(_name)


def function(fn: Any) -> None:
    @lookaside(fn)
    def l_as_strided(args: tuple, kw: dict) -> Any:
        if args:
            check(args[0], args[1:], kw)
        return graph_call(fn, args, kw)


for _fn in (torch.as_strided, torch.as_strided_copy):
    function(_fn)
