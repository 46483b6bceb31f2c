"""Who is told of torch functions, as code of PyTorch asks: `torch.overrides.has_torch_function` and its like.

They read `__torch_function__` of each object as any attribute is read: its class may have it, or itself, or a `__getattr__`; an error
counts as none. Tensors and their classes are those of `tensor_subclasses.py`.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import torch
from pliant.interpret import globalstate
from pliant.interpret.attributes import getattr_
from pliant.interpret.calls import LOOKASIDES, PASSED, inline, native
from pliant.interpret.gate import told_by_class
from pliant.interpret.state import Break, vm
from pliant.interpret.tensor_subclasses import among, in_order, lookaside
from pliant.interpret.told_of_methods import refuse_replaced

NEVER = PASSED | {tuple, list, dict, set, frozenset, type(NotImplemented), slice}
"""Types of which PyTorch knows that they have none."""
NO_FUNCTION = torch._C._disabled_torch_function_impl


def tells_itself(o: Any) -> bool:
    """Whether an object that is no tensor has a `__torch_function__`."""
    t = type(o)
    if t in NEVER:
        return False
    if told_by_class(o):
        vm.world.has_subclasses = True
        vm.world.tensor_likes.add(t)
        return False  # it is one of those that are known by their class
    try:
        return getattr_(o, "__torch_function__") is not NO_FUNCTION
    except Exception as e:
        if vm.internal_error(e):
            raise
        return False


def answers(fn: Any, sequence: bool) -> None:
    """`fn`, of objects or of a sequence of such."""

    def has(args: tuple, kw: dict) -> Any:
        given: Any = args[0] if sequence and args else args
        if type(given) not in (tuple, list) or kw:
            return native(fn, args, kw)
        if any([tells_itself(o) for o in given]):
            return torch._C._is_torch_function_enabled()
        if not vm.world.has_subclasses or not among(list(args), []):  # what else there is: modes, and the number of arguments
            nothing = (None,) * len(given)
            return native(fn, (nothing,) if sequence else nothing, {})
        order = in_order(among(list(args), [])) if torch._C._is_torch_function_enabled() else []
        if order:
            refuse_replaced("")
        return bool(order)

    LOOKASIDES[fn] = has


for _fn in (torch._C._has_torch_function, torch._C._has_torch_function_unary, torch._C._has_torch_function_variadic):
    answers(_fn, _fn is torch._C._has_torch_function)


@lookaside(torch.overrides.handle_torch_function)
def l_handle(args: tuple, kw: dict) -> Any:
    """What a torch function written in Python does first where a class asks to be told."""
    func = args[0]
    if torch._C._len_torch_function_stack() and torch._C._is_torch_function_mode_enabled():
        if vm.world.has_subclasses:
            raise Break("PL0011", f"{func.__name__} of tensors of subclasses while a mode is on")
        if torch._C._get_function_stack_at(torch._C._len_torch_function_stack() - 1) is globalstate.default_context():
            # Off while it is told, which no graph break inside could say: `function modes` leave the default device out.
            raise Break("PL0037", f"{func.__name__}, of which a default device is told", clean=True)
    return inline(torch.overrides.handle_torch_function, args, kw)
