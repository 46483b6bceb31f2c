"""Running a program in this process: its operations go through the backend "native", as a captured region's do."""

from __future__ import annotations

import collections
from typing import Any

import torch

from pliant.codegen import aten, native
from pliant.errors import PliantError
from pliant.export.decompose import Legalizer
from pliant.export.program import GRADIENT, MUTATION, Program
from pliant.export.signature import Caller, SignatureError
from pliant.export.text import site_of
from pliant.export.trees import Tree, put_together
from pliant.graph.layout import contiguous_strides
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.scope import BRANCH, Assert


class Runner:
    """Calls of one program: checked, compiled on the first."""

    lower = staticmethod(native.lower)

    def __init__(self, p: Program) -> None:
        self.p = p
        self.caller = caller_of(p)
        self.state = p.state  # shared by variants
        self.draws = any(liveness.draws(op.target) for op in p.ops)
        with torch.no_grad():
            self.fn = self.compile()

    def compile(self) -> Any:
        p = self.p
        legalizer = Legalizer(p.trace)
        for op in p.ops:
            legalizer.step(op)
        slots = [i.value for i in p.inputs]
        outputs = [legalizer.now(o.value) for o in p.outputs]
        asserts = [Assert(a.expr, site_of(a.site), a.why, a.raises) for a in p.asserts]
        return aten.build(p.trace, slots, outputs, name=p.name, ops=legalizer.ops, guard=True, asserts=asserts, lower=self.lower).fn

    def flat(self, values: dict[str, Any]) -> list[Any]:
        """The outputs for inputs by name, in order."""
        env = self.caller.check(values)
        slots: list[Any] = []
        back: list[tuple[torch.Tensor, torch.Tensor]] = []
        for i in self.p.inputs:
            v = self.state[i.name] if i.kind != "user" else values[i.name]
            if i.is_tensor and i.kind == "user":
                v = self.laid_out(i, v, env, back)
            slots.append(v)
        with torch.no_grad():
            try:
                return list(self.fn(*slots))
            finally:  # what was written before something failed is written
                for given, copy in back:
                    given.copy_(copy)

    def laid_out(self, i: Any, v: torch.Tensor, env: dict[str, Any], back: list) -> torch.Tensor:
        """The tensor with the strides that the program was captured with."""
        want = strides_of(i.value, env)
        offset = value_of(i.value.offset, env)
        conj, neg = i.value.is_conj(), i.value.is_neg()
        if (v.is_conj(), v.is_neg()) == (conj, neg) and v.storage_offset() == offset:
            if v.stride() == want or v.numel() == 0:
                return v
            if want == contiguous_strides(tuple(v.shape)) and v.is_contiguous() and not i.written:
                return v
        copy = torch.empty_strided(tuple(v.shape), want, dtype=v.dtype, device=v.device)
        copy = copy.conj() if conj else copy
        copy = (torch._neg_view(copy) if neg else copy).copy_(v)
        if i.written and self.p.form == "aten":
            back.append((v, copy))
        return copy


def value_of(x: Any, env: dict[str, Any]) -> Any:
    e = liveness.number(x)
    return x if e is None else e.evaluate(env)


def strides_of(t: TracedTensor, env: dict[str, Any]) -> tuple[int, ...]:
    return tuple([value_of(s, env) for s in t.strides])


def call(p: Program, args: tuple, kwargs: dict) -> Any:
    """The result of the exported function (form "training": and a dict of gradients by name); what it writes is written."""
    runner = runner_of(p)
    given = runner.caller.bind(args, kwargs)
    values = runner.caller.flat(given)
    took, outs = answered(p, values)
    apply_mutations(took, runner_of(took), given, values, outs)
    return result(p, runner.caller, given, outs)


def result(p: Program, caller: Caller, given: dict, outs: list[Any]) -> Any:
    """What the exported function returns, put together from the outputs."""
    if p.result is None:
        raise SignatureError(f"the result of {p.name} could not be written down in its file. Use program.run: it gives outputs by name.")

    def leaf(tree: Tree) -> Any:
        return outs[tree.value] if tree.kind == "output" else caller.walk(tree.value, given)

    gradients = {o.of: v for o, v in zip(p.outputs, outs, strict=True) if o.kind == GRADIENT}
    try:
        found = put_together(p.result, leaf)
        return (found, gradients) if p.form == "training" else found
    except LookupError as e:
        raise SignatureError(
            f"the result of {p.name} is or holds a {e.args[0]}, which this process does not have: import it before the program is loaded,"
            " or use program.run, which gives outputs by name."
        ) from None


def apply_mutations(p: Program, runner: Runner, given: dict, values: dict, outs: list[Any]) -> None:
    constants = collections.defaultdict(list)
    for c in p.puts:
        constants[c.after].append(c)

    def put_constants(after: str) -> None:
        for c in constants[after]:
            put(runner.caller.walk(c.path[:-1], given), c.path[-1], c.value)

    put_constants("")
    for o, value in zip(p.outputs, outs, strict=True):
        if o.kind != MUTATION:
            continue
        if o.of in runner.state:
            state = runner.state[o.of]
            if state.shape == value.shape:
                with torch.no_grad():
                    state.copy_(value)
            else:
                runner.state[o.of] = value
        elif o.of in values and o.path and values[o.of] is runner.caller.walk(o.path, given) and in_place(p, o):
            with torch.no_grad():
                values[o.of].copy_(value)
        else:
            put(runner.caller.walk(o.path[:-1], given), o.path[-1], value)
        put_constants(o.name)


def in_place(p: Program, o: Any) -> bool:
    """Whether the function wrote the tensor itself, rather than putting another in its place."""
    return any(i.name == o.of and i.written for i in p.inputs)


def put(holder: Any, step: tuple, value: Any) -> None:
    op, arg = step
    if op == "attr":
        setattr(holder, arg, value)
    else:
        holder[arg] = value


def answered(p: Program, values: dict[str, Any]) -> tuple[Program, list[Any]]:
    """The program among the variants of `p` that takes this call, and its outputs."""
    refused: list[SignatureError] = []
    for q in (p, *p.variants):
        runner = runner_of(q)
        before = torch.get_rng_state() if p.variants and runner.draws else None  # numbers that a side drew in vain are put back
        try:
            return q, runner.flat(values)
        except SignatureError as e:
            refused.append(e)
        except RuntimeError as e:
            if BRANCH not in str(e):
                raise
        if before is not None:
            torch.set_rng_state(before)
    if refused:
        raise refused[0]
    raise PliantError(f"no captured side of the branches of {p.name} takes this call: the function itself raises there")


def run(p: Program, values: dict[str, Any]) -> dict[str, Any]:
    """Outputs by name for inputs by name; nothing but the program's own state is written."""
    took, outs = answered(p, values)
    return {o.name: v for o, v in zip(took.outputs, outs, strict=True)}


def runner_of(p: Program) -> Runner:
    found = p.cache.get("runner")
    if found is None:
        found = p.cache["runner"] = Runner(p)
    return found


def caller_of(p: Program) -> Caller:
    """What checks the calls of `p`."""
    found = p.cache.get("caller")
    if found is None:
        found = p.cache["caller"] = Caller(p)
    return found


def inputs_of(p: Program, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The inputs of a call by name. SignatureError where no variant of the program takes them."""
    caller = caller_of(p)
    values = caller.flat(caller.bind(args, kwargs))
    refused: list[SignatureError] = []
    for q in (p, *p.variants):
        try:
            caller_of(q).check(values)
            return values
        except SignatureError as e:
            refused.append(e)
    raise refused[0]
