"""What runs behind a side exit: a function of its own, printed while the capture stands at the branch.

    def __exit_0(_e):
        [x, n, _g0] = _e
        _e.clear()
        _print(_g0)                         # the effects so far
        _st0 = [x, n, _g0]
        x = n = _g0 = None
        return _resume_at_34_1(_st0)        # the other side, as behind a graph break

The function that is being captured raises `native.Leave(__exit_0, [x, n, _g0])` when its graph was left there, so in a traceback there
is one frame of the user's, not two. It gets what that function has: arguments, items of the state, slots, and results of the graph.

What is done first where a graph raises (`graph/leaving.py: MARK`) is such a function, too: the effects alone.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from operator import is_
from typing import Any

from pliant.graph.originals import torch
from pliant.graph.traced import TracedTensor
from pliant.interpret.capture import Capture, Start
from pliant.interpret.exits import NotNow
from pliant.interpret.state import Break, vm
from pliant.jit import resume
from pliant.jit.branches import Branch
from pliant.jit.emit import EFFECTS, Context, Emitter
from pliant.jit.emitted_functions import beginning, place_of
from pliant.jit.frame_liveness import letting_go
from pliant.jit.reconstruct import CannotReconstruct
from pliant.jit.torn import went_backward_from
from pliant.lower.leaves import nodes_under

WORD = re.compile(r"[A-Za-z_]\w*")


@dataclass(slots=True, eq=False)
class SideExit:
    """`fn(list)`, which takes `given` (("param", name), ("item", number) or ("slot", key) each), then `values`, results of the graph."""

    fn: Any
    source: str
    given: list[tuple[str, Any]]
    values: list[Any]
    branch: Branch


def made(capture: Capture, fn: Any, context: Context, start: Start | None) -> SideExit:
    """The function for the other side of a branch. Raises Break where values of that side cannot be carried there."""
    writer = ExitWriter(capture, fn, context, start)
    try:
        return writer.exit()
    except (CannotReconstruct, resume.CannotResume) as e:
        raise Break("PL0035", str(e)) from e
    finally:
        del writer.builder


def went_backward(v: Any) -> bool:
    """Whether `backward()` has freed the history of a value, if that is a tensor with one: all that is left of it is that it is freed."""
    if type(v) is not TracedTensor or not v.requires_grad:
        return True
    trace = vm.trace
    plain = v.pytype is torch.Tensor and v.grad_fn is not None and not trace.hooked and not trace.data_memory
    return plain and id(v) not in vm.world.retained and not trace.freed.isdisjoint(nodes_under([v.grad_fn]))


@dataclass(slots=True, eq=False)
class Behind:
    """The effects that the program has had by some operation, as a function like that of a side exit. `body` and `env` are what it is
    printed from."""

    fn: Any
    body: list[str]
    env: dict[str, Any]
    given: list[tuple[str, Any]]
    values: list[Any]

    def same(self, body: list[str], env: dict[str, Any], values: list[Any]) -> bool:
        """Whether these are the same effects."""
        if self.body != body or self.env.keys() != env.keys() or len(self.values) != len(values):
            return False
        return all([v is env[k] for k, v in self.env.items()]) and all(map(is_, self.values, values))


def behind(capture: Capture, last: Behind | None, fn: Any, context: Context, start: Start | None) -> Behind:
    """The effects so far; `last` if nothing was added since. Raises Break where they cannot be carried there."""
    writer = BehindWriter(capture, fn, context, start)
    try:
        return writer.behind(last)
    except CannotReconstruct as e:
        raise Break("PL0035", str(e)) from e
    finally:
        del writer.builder


def not_behind(capture: Capture, last: Behind | None) -> Behind:
    """Where an earlier capture could not have marks in its graph: it ends before what may raise."""
    raise Break("PL0041", "an operation that may raise, behind a write and other effects")


class BehindWriter(Emitter):
    """Prints one such function."""

    def behind(self, last: Behind | None) -> Behind:
        b = self.builder
        self.name = self.name.replace("__compiled_fn", "__behind")
        for effect in self.capture.effects:
            EFFECTS[effect.kind](self, effect)
        body = [*b.lines, *self.tail]
        values = [value for value, _ in b.outputs.values()]
        if any(type(v) is TracedTensor and v.requires_grad for v in values):
            raise NotNow("PL0041", "an operation that may raise, behind a write, and what was stored before has gradients")
        words = set(WORD.findall("\n".join(body)))
        params = [] if self.start is not None else [name for name in self.params if name in words]
        given = [*(("param", name) for name in params), *(("item", i) for i in b.items), *(("slot", key) for key in b.slots)]
        names = [*params, *b.items.values(), *b.slots.values(), *(name for _, name in b.outputs.values())]
        body = [*([f"[{', '.join(names)}] = _e"] if names else []), "_e.clear()", *body]
        if last is not None and last.given == given and last.same(body, b.env, values):
            return last
        text = f"def {self.name}(_e):\n" + "".join(f"    {x}\n" for x in body)
        env = dict(b.env)
        return Behind(self.compile(text, beginning(self.code), [("", set())], kept=None), body, env, given, values)


class ExitWriter(Emitter):
    """Prints one such function. `capture` is what there is at the branch, its exit a break before it."""

    def exit(self) -> SideExit:
        b, exit_ = self.builder, self.capture.exit
        self.name = self.name.replace("__compiled_fn", "__exit")
        for effect in self.capture.effects:
            EFFECTS[effect.kind](self, effect)
        made, replayed = len(b.lines), self.tail
        self.tail = []
        self.break_(exit_)
        zones = self.zones()  # before it is listed what is given: it may read more
        body = [*b.lines[:made], *replayed, *b.lines[made:], *self.tail]
        values = [value for value, _ in b.outputs.values()]
        torn = [name for value, name in b.outputs.values() if type(value) is TracedTensor and value.requires_grad]
        if torn and (len(torn) > 1 or not all(map(went_backward, values))):  # of several, one may be the gradient of another
            raise NotNow("PL0001", "gradients flow through what the other side needs")
        words = set(WORD.findall("\n".join([*body, *self.states.values()])))
        params = [] if self.start is not None else [name for name in self.params if name in words]
        given = [*(("param", name) for name in params), *(("item", i) for i in b.items), *(("slot", key) for key in b.slots)]
        names = [*params, *b.items.values(), *b.slots.values(), *(name for _, name in b.outputs.values())]
        body = letting_go(body, len(body) - len(self.tail), self.states, names)
        without = [f"{name} = {b.constant(went_backward_from, 'went_backward_from')}({name})" for name in torn]
        body = [*([f"[{', '.join(names)}] = _e"] if names else []), "_e.clear()", *without, *body]
        text = f"def {self.name}(_e):\n" + "".join(f"    {x}\n" for x in body)
        assert exit_.site is not None and exit_.site.code is not None
        branch = self.context.branches.at(exit_.site)
        return SideExit(self.compile(text, place_of(exit_.frames[0]), zones, kept=None), text, given, values, branch)
