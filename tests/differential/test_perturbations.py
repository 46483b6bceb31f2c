"""A part of `python -m benchmarks.perturb`: nothing that a program can see may change without the compiled program noticing.

The whole of it is a matter of hours; here are twenty programs, and the harness is shown to find what it is there to find.
"""

from __future__ import annotations

import random

import pytest
import torch

import pliant
from benchmarks.perturb.description import Description, difference
from benchmarks.perturb.places import Place, Walk
from benchmarks.perturb.state import World
from benchmarks.perturb.subjects import Call, Subject, subjects
from benchmarks.perturb.trial import Found, Trial

PROGRAMS = """
patterns/list length
patterns/interpolate scale
test-patterns/fresh_closures
test-patterns/step_counter
tests/after_breaks/handlers_in_handlers
tests/breaks/data_dependent_branches
tests/containers/dict_argument_mutated
tests/control/match_classes
tests/effects/output_before_error
tests/effects/strided_inputs
tests/functions/closures
tests/functions/deep_inlining
tests/generators/delegated_counts_that_change
tests/modules/methods_and_dict_results
tests/modules/train_and_eval
tests/modules/forward_hooks
tests/objects/dataclass_argument
tests/objects/enums
tests/objects/instance_argument
tests/objects/operators
""".strip().splitlines()
MOST = 24
# (program, change): differences that are known, with their reasons in docs/soundness.md. Each is to go.
KNOWN = {
    ("tests/effects/strided_inputs", "Tensor.t answers otherwise"),
    ("tests/modules/train_and_eval", "made in inference mode"),
}
WRONG = ("stale", "back", "translation", "base")


def tried(subject: Subject, most: int, seed: int = 0) -> tuple[Trial, list[Found]]:
    trial = Trial(subject, "aten", random.Random(seed))
    return trial, [f for f in trial.run(most, 60.0) if f.verdict in WRONG]


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name: str) -> None:
    trial, wrong = tried(subjects([name])[name], MOST)
    assert trial.counts["perturbations"] >= MOST // 2
    wrong = [f for f in wrong if (f.program, f.name) not in KNOWN]
    assert not wrong, "\n".join(map(str, wrong))


# -------------------------------------------------------------------------------------------------- the harness itself
class Scale:
    by = 2


def scaled(x, flag=True):
    return x * Scale.by if flag else x


def test_finds_a_missing_guard(monkeypatch):
    """A compiler that keeps the first answer of everything is found out."""

    def forgetful(fn, **_):
        kept = {}

        def compiled(*args, **kwargs):
            key = tuple(a.shape for a in args if isinstance(a, torch.Tensor))
            if key not in kept:
                kept[key] = fn(*args, **kwargs)
            return kept[key].clone()

        return compiled

    subject = Subject("own/scaled", lambda: (scaled, [Call([torch.ones(3)], {})]))
    assert not tried(subject, 60)[1]
    monkeypatch.setattr(pliant, "compile", forgetful)
    kinds = {f.kind for f in tried(subject, 60)[1]}
    assert {"tensor values", "number"} <= kinds, kinds


def test_world_is_put_back():
    shared = {"seen": [], "t": torch.zeros(2), "n": 1}
    walk = Walk().go([Place("shared", shared, None)])
    world = World(walk)
    part, t = shared["seen"], shared["t"]
    part.append(3)
    shared["n"] = 7
    shared["new"] = object()
    t.add_(1)
    assert {k.path for k in world.changed()} == {"shared", "shared['seen']", "shared['t']"}
    world.restore()
    assert shared == {"seen": [], "t": t, "n": 1} and shared["seen"] is part and torch.equal(t, torch.zeros(2))
    assert not world.changed()


def described(value, known=()):
    d = Description(list(known))
    d.walk("result", value)
    return d.rows


def test_descriptions_tell_identity_aliasing_and_rounding():
    x = torch.arange(4.0)
    assert difference(described([x, x]), described([x.clone()] * 2)) is None
    assert difference(described([x, x]), described([x, x.clone()])) is not None
    assert difference(described([x, x[1:]]), described([x, x[1:].clone()])) is not None
    assert difference(described([x, x.t()]), described([x, x.t()])) is None
    assert difference(described(x), described(x + 1e-7)) is None
    assert difference(described(x), described(x + 1e-2)) is not None
    assert difference(described({"a": 1, "b": 2}), described({"b": 2, "a": 1})) is not None
    assert difference(described([1]), described([True])) is not None
    a = []
    b = []
    world = World(Walk().go([Place("a", a, None), Place("b", b, None)]))
    assert difference(described(a, [world]), described(b, [world])) is not None
