"""Side exits: at a branch on data the graph goes on along the hot side, and is left where the run takes the other one.

What the cold side needs is written down at once, by jit (`vm.make_exit`): the frames, what is on their stacks, and the effects so far, as a
graph break before this instruction would have them. Later instructions change lists, dicts and shadows. Where that cannot be written down,
the branch stays a graph break.
"""

from __future__ import annotations

from typing import Any

from pliant.bytecode import kinds as K
from pliant.graph.leaving import Elsewhere, leave
from pliant.graph.originals import torch
from pliant.graph.symnode import SYMS, truth
from pliant.interpret import globalstate
from pliant.interpret.actions import native_action
from pliant.interpret.capture import BreakExit, Capture, FrameState
from pliant.interpret.code_shapes import of_while
from pliant.interpret.effects import effects_of
from pliant.interpret.execute import TAIL_OPERANDS, suspend
from pliant.interpret.state import LEAVE, Break, Frame, Restart, site_of, vm
from pliant.interpret.types.tensors import item
from pliant.interpret.walks import RESTART
from pliant.symbolic import ops
from pliant.symbolic.expr import Expr

BRANCHES = {K.JUMP_IF_TRUE, K.JUMP_IF_FALSE, K.JUMP_IF_TRUE_OR_POP, K.JUMP_IF_FALSE_OR_POP}
MOST = 16
"""Side exits of one graph."""


class NotNow(Break):
    """This capture cannot be left here, though another might: gradients are recorded."""


class Way:
    """A branch behind which the graph goes on: the side, and what jit made of the other one. None: a run that takes that one is run by
    CPython from the begin of the frame, where gradients are recorded: what the other side needs would be torn from its history."""

    __slots__ = ("made", "side")

    def __init__(self, side: bool, made: Any) -> None:
        self.side = side
        self.made = made


def way_on(v: Any) -> Way | None:
    """Of the branch on `v` that the program has come to: the hot side, if there is one and the other can be an exit."""
    f = vm.frame
    if vm.make_exit is None or vm.rehearsing or f is None or f.decoded.kinds[f.pc - 1] not in BRANCHES or f.stack[-1] is not v:
        return None
    site = site_of(f)
    side = vm.history.hot_side(site)
    if side is None:
        return None
    try:
        return Way(side, prepared(f, side))
    except NotNow:
        return Way(side, None) if may_run_anew() else None
    except Break as b:
        vm.history.refuse_exit(site, b.reason)
        if vm.history.joins and vm.joins.get((id(f.code), f.pc - 1)) is not LEAVE:  # perhaps one operation, then
            vm.loop_codes.append(f.code)
            raise Restart(RESTART, len(vm.loop_codes), "PL0001", "a branch on data") from None
        return None


def may_run_anew() -> bool:
    """Whether runs that take the other side may begin again (jit refuses a graph that has done anything by then)."""
    return not (globalstate.user_modes() or vm.pending is not None or vm.world.in_transform)


def prepared(f: Frame, side: bool) -> Any:
    """What jit makes of the other side. Raises Break where it cannot."""
    if len(vm.trace.exits) + len(vm.trace.assumed) >= MOST:
        raise refusal(f"more than {MOST} side exits in one graph")
    if of_while(f.decoded, f.pc - 1):
        raise refusal("the test of a `while` loop, or inside of one")
    if torch.is_grad_enabled() and any(t.requires_grad for t in vm.trace.inputs) and not vm.trace.freed:
        raise NotNow("PL0001", "gradients may flow through the graph")
    if f.moved == f.pc or globalstate.user_modes() or vm.pending is not None:
        raise refusal("code of the program is running below")
    if vm.late_texts and any(ref() is not None for ref in vm.late_texts):
        raise refusal("a text without pieces is alive")
    frames = suspended(f, side)
    world = vm.world
    effects = effects_of(world) + globalstate.differences(world.entry_state)
    exit_ = BreakExit(frames, ("none",), "PL0001", "the other side of a branch", site_of(f), 0)  # type: ignore[arg-type]
    with vm.trace.paused():
        return vm.make_exit(Capture(world.code, vm.trace, world, [], effects, exit_))


def refusal(why: str) -> Break:
    return Break("PL0001", why)


def suspended(f: Frame, side: bool) -> list[FrameState]:
    """The frames, the outermost first, at the other side of the branch. Raises Break where one cannot be left here."""
    action, operands, _, _ = native_action(f)
    _, _, yes, no, stack_yes, stack_no = action
    frames = [suspend(f, operands, no if side else yes)]
    frames[0].stack = list(stack_no if side else stack_yes)
    inner = f
    while True:
        if inner.decoded.is_generator:
            raise refusal("in a generator")
        outer = inner.parent
        if outer is None:
            break
        n: Any = TAIL_OPERANDS.get(outer.decoded.kinds[outer.pc - 1])
        if not inner.is_tail or n is None:
            raise refusal("code of the program that C code has called")
        frames.append(suspend(outer, n(outer) if callable(n) else n, outer.decoded.offsets[outer.pc]))
        inner = outer
    if not inner.top:
        raise refusal("code of the program that C code has called")
    frames.reverse()
    return frames


def taken(way: Way, c: Expr, site: Any) -> bool:
    """The graph is left where `c` is not the hot side; the side."""
    if way.made is None:
        vm.scope.stake(c, way.side, site, f"{len(vm.trace.assumed)}", Elsewhere)
        vm.trace.assumed.append(vm.history.branch_at(site))
        return way.side
    leave(vm.trace, c if way.side else ops.not_(c), way.made.values, way.made, site)
    vm.scope.take(c, way.side)
    return way.side


def of_tensor(t: Any) -> bool | None:
    """The side of a branch on a tensor of one element. None: the graph ends here."""
    way = way_on(t)
    if way is None:
        return None
    n = item(t)
    if not isinstance(n, SYMS):
        return bool(n)
    c = truth(n.node.expr)
    for side, known in ((True, vm.scope.known_true), (False, vm.scope.known_false)):
        if known(c):
            return side
    return taken(way, c, site_of(vm.frame))


def of_number(c: Expr, site: Any) -> bool | None:
    """`Scope.exits`: the side of a branch on a number that only the run knows."""
    f = vm.frame
    v = f.stack[-1] if f is not None and f.stack else None
    if not isinstance(v, SYMS) or truth(v.node.expr) is not c:
        return None
    way = way_on(v)
    return taken(way, c, site_of(f)) if way is not None else None


vm.side_on_data = of_tensor
