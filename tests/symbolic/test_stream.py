"""Questions of real captures, written down and asked again; what another engine (ShapeEnv) knew when they were recorded, we prove."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pliant.symbolic import Scope, ops
from pliant.symbolic.stream import On, recording, replay

STREAMS = sorted(Path(__file__).with_name("streams").glob("*.json"))


@pytest.mark.parametrize("file", STREAMS, ids=lambda f: f.stem)
def test_recorded_questions_get_the_same_answers(file: Path) -> None:
    recorded = json.loads(file.read_text())
    known = set(recorded["known"])
    scope = Scope()
    asked = 0
    for i, (step, operands, ask) in enumerate(replay(recorded["steps"], On(scope))):
        _, verb, op, _, answer = step
        if i in known and op:
            c = ops.DOORS[op](*operands)
            assert scope.known_true(c) or scope.known_false(c), f"{verb} {c}: known before it was asked"
        if i in known and not op:
            assert scope.simplify(operands[0]).const is not None, f"{verb} {operands[0]}"
        assert ask() == answer, step
        asked += 1
    assert asked > 30 and len(known) > 30


def test_what_is_recorded_is_what_was_asked() -> None:
    with recording() as streams:
        scope = Scope()
        s = scope.backed("s", hint=6, lo=2, size_like=True)
        u = scope.unbacked("u", size_like=True)
        token = scope.snapshot()
        scope.decide(s > 4)
        scope.rollback(token)
        scope.assume(u * 2 <= s)
        scope.known_true(u <= s)
        scope.decide_or_false(u == 1)
        assert scope.decide(s * u == u * s) and s > 0
        scope.specialize(s * 3)
    plain = Scope()
    plain.backed("s", hint=6, lo=2)
    (steps,) = streams  # the scope made outside is not recorded
    asked = [(step[1], step[2], step[4]) for step in steps if step[0] == "ask"]
    assert asked == [
        ("assume", "le", True),
        ("known_true", "le", True),
        ("decide_or_false", "eq", False),
        ("decide", "eq", True),
        ("decide", "gt", True),
        ("specialize", "", 18),
    ]
    assert type(plain) is Scope and Scope.born is None
    again = Scope()
    answers = [ask() for _, _, ask in replay(json.loads(json.dumps(steps)), On(again))]
    assert answers == [a for _, _, a in asked]
    assert [str(g.expr) for g in again.guards] == [str(g.expr) for g in scope.guards]
    assert [str(a.expr) for a in again.asserts] == [str(a.expr) for a in scope.asserts]
