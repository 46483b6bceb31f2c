"""The arithmetic of measuring (never the times themselves)."""

from __future__ import annotations

from pliant.cli.timing import interleaved, medians, timed


def test_medians_are_per_call():
    assert medians([[1.0, 10.0], [3.0, 30.0], [2.0, 90.0]]) == [2.0, 30.0]


def test_timed_returns_the_result():
    seconds, result = timed(lambda: 42)
    assert result == 42 and seconds >= 0


def test_interleaved_calls_everything_once_a_round_and_changes_the_order():
    log = []
    times = interleaved(
        3,
        2,
        (lambda i: log.append(("a", i)), lambda i: log.append(("b", i))),
        begin=lambda: log.append("begin"),
        tick=lambda: log.append("tick"),
    )
    assert [len(t) for t in times] == [3, 3]
    assert log.count("begin") == 2 and log.count("tick") == 6
    rounds = [log[1 : log.index("begin", 1)], log[log.index("begin", 1) + 1 :]]
    for events in rounds:
        for i in range(3):
            assert sorted(events[3 * i : 3 * i + 2]) == [("a", i), ("b", i)] and events[3 * i + 2] == "tick"
    assert [r[0] for r in rounds] == [("b", 0), ("a", 0)]  # who goes first alternates
