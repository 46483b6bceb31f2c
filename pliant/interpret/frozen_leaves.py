"""`p.requires_grad_(False)` of a parameter from outside, until it is `requires_grad_(True)` again: adapters that are disabled for a while,
a critic that is held while its generator learns.

The proxy is a leaf like any other, so its own flag is what the program is told, and what decides whether autograd records. The nodes of a
graph are planned by the flags that its inputs come with: where one is another at the end of the capture, or an operation has read the
parameter with gradients on, the graph must need none, or the capture begins again, and breaks here.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.operands import op_inputs
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.traced import FLAGS
from pliant.interpret.capture import Effect
from pliant.interpret.state import Break, vm, whole_loops, writes
from pliant.interpret.tensor_inputs import is_leaf


def switch(t: Any, on: bool) -> bool:
    """Whether `t.requires_grad_(on)` was done. False: it is none of these."""
    frozen = vm.world.frozen_leaves
    if id(t) not in frozen:
        plain = not on and t.pytype is torch.nn.Parameter and FLAGS not in vm.refused and whole_loops()
        if not plain or vm.asking or vm.rehearsing or vm.exploring or vm.world.in_loop or vm.world.loops_seen or not is_leaf(t):
            return False
        vm.world.known_by_identity(t)
        frozen[id(t)] = (t, len(vm.trace.ops))
    elif vm.exploring:
        raise Break("PL0012", "requires_grad_() in a branch or loop on data", clean=True)
    writes()
    vm.world.unusual()
    with torch._C._DisableTorchDispatch():
        ORIGINAL.requires_grad_(t, on)
    return True


def refuse_gradients(leaves: list[Any]) -> None:
    """Raises Break where the autograd engine would come to a parameter that takes no gradients now."""
    frozen = vm.world.frozen_leaves
    if frozen and any([id(t) in frozen and not t.requires_grad for t in leaves]):
        raise Break("PL0020", "gradients of a parameter that takes none", clean=True)


def effects(world: Any) -> list[Effect]:
    return [Effect("call", set_flag, ((t, False), {})) for t, _ in world.frozen_leaves.values() if not t.requires_grad]


def set_flag(t: Any, on: bool) -> None:
    ORIGINAL.requires_grad_(t, on)


def whole(world: Any) -> bool:
    """Whether all flags are what they were, and nothing has read such a parameter with gradients on."""
    for t, begin in world.frozen_leaves.values():
        if not t.requires_grad or any([op.grad and any([x is t for x in op_inputs(op)]) for op in world.trace.ops[begin:]]):
            return False
    return True
