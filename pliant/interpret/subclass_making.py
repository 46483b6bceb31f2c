"""How programs make tensors of subclasses that hold their data themselves, switch `__torch_function__` off; helpers for wrappers."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _python_dispatch as python_dispatch

from pliant.graph.schema import argument, op_info
from pliant.graph.traced import TracedTensor
from pliant.graph.wrapped import ALIAS
from pliant.interpret import globalstate, in_torch
from pliant.interpret.calls import LOOKASIDES, METHOD_LOOKASIDES, call, graph_call
from pliant.interpret.capture import UNSET
from pliant.interpret.gradients import switch
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm, whole_loops
from pliant.interpret.tensor_subclasses import BUILT_IN, has_slots, wraps
from pliant.interpret.wrappers import is_stand, is_wrapped

Tensor: Any = torch.Tensor
METACLASSES = (type(Tensor), type(torch.nn.Parameter))
STATES: Any = torch._C._TorchFunctionState  # type: ignore[attr-defined]


def checked(cls: Any, data: Any) -> None:
    """Raises Break where a tensor of `cls` cannot be made of `data`."""
    if type(data) is not TracedTensor or is_stand(data) or is_wrapped(data) or not whole_loops():
        raise Break("PL0011", "a tensor is made through a class", clean=True)
    if not isinstance(cls, type) or not issubclass(cls, Tensor) or type(cls) not in METACLASSES:
        raise Break("PL0011", "a tensor of what is no plain class", clean=True)
    if cls is not Tensor and (cls in BUILT_IN or wraps(cls) or has_slots(cls)):
        raise Break("PL0011", f"a {cls.__name__} is made of a tensor", clean=True)


def of_class(cls: Any, data: Any, keeps_history: bool) -> Any:
    """The same memory as a tensor of `cls`."""
    checked(cls, data)
    with torch._C.DisableTorchFunction():  # no mode is told of it either
        y = graph_call(ALIAS, (data,), {}) if keeps_history else graph_call(Tensor.detach, (data,), {}, "detach")
    y.pytype = cls
    vm.world.has_subclasses = vm.world.has_subclasses or cls is not Tensor
    return y


def as_subclass(t: Any, args: tuple, kw: dict) -> Any:
    if len(args) + len(kw) != 1:
        raise Break("PL0011", "as_subclass() with other arguments", clean=True)
    (cls,) = (*args, *kw.values())
    return of_class(cls, t, True)


def make_subclass(args: tuple, kw: dict) -> Any:
    """`torch.Tensor._make_subclass(cls, data, require_grad=False)`."""
    given = dict(zip(("cls", "data", "require_grad"), args)) | kw
    if len(args) > 3 or given.keys() - {"cls", "data", "require_grad"} or given.get("require_grad", False) is not False:
        raise Break("PL0011", "a leaf of a subclass is made", clean=True)
    return of_class(given.get("cls"), given.get("data"), False)


def new(args: tuple, kw: dict) -> Any:
    """`torch.Tensor.__new__(cls, data)`, which is what `super().__new__` comes to."""
    if len(args) != 2 or kw or args[0] is Tensor:
        raise Break("PL0011", "a tensor is made through a class", clean=True)
    return of_class(args[0], args[1], True)


METHOD_LOOKASIDES[(torch.Tensor, "as_subclass")] = as_subclass
LOOKASIDES[Tensor._make_subclass] = make_subclass
LOOKASIDES[Tensor.__new__.__self__, "__new__"] = new
vm.new_tensor_of_class = lambda cls, args, kw: new((cls, *args), kw)


# -- switching it off ------------------------------------------------------------------------------------------------------
switch(globalstate.TORCH_FUNCTIONS[1], globalstate.TORCH_FUNCTIONS[0])


@lookaside(torch._C.DisableTorchFunctionSubclass)
def l_subclasses_off(args: tuple, kw: dict) -> Any:
    return call(in_torch.FunctionsOff, (STATES.SUBCLASSES_DISABLED,), {})


@lookaside(torch._C.DisableTorchFunction)
def l_off(args: tuple, kw: dict) -> Any:
    return call(in_torch.FunctionsOff, (STATES.ALL_DISABLED,), {})


# -- PyTorch's helpers -------------------------------------------------------------------------------------------------------
@lookaside(python_dispatch.return_and_correct_aliasing)
def l_aliasing(args: tuple, kw: dict) -> Any:
    """What an operator that writes returns is what it was given. (That memory of views is shared, the parts know.)"""
    func, given, named, out = (*args, *kw.values())[:4]
    info = op_info(func)
    if info.inplace_view:
        raise Break("PL0011", f"{func} of a wrapper, which changes its sizes in place")
    wanted = [argument(info, given, named, alias[0]) if alias is not None and alias[1] else UNSET for alias in info.returns]
    if not any([x is not UNSET for x in wanted]):
        return out
    return wanted[0] if len(wanted) == 1 else type(out)(wanted)
