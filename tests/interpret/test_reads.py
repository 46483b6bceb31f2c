"""What code that CPython runs while capturing reads of the process: each row says it, and each kind of it is guarded."""

from __future__ import annotations

import pytest
import torch

from pliant.guards.question import Question, Raised, alike, is_value
from pliant.interpret import policy, process_state
from pliant.interpret.policy_tables import python_modules
from pliant.interpret.policy_tables.row import READS, RUN, find_space


def test_each_row_that_is_run_says_what_it_reads():
    assert [row for row in policy.ROWS if row.kind in RUN and row.reads not in READS] == []
    assert [name for name, rule in python_modules.MODULE_RULES.items() if rule.kind in RUN and rule.reads not in READS] == []


def test_each_kind_of_state_is_guarded_in_one_way():
    assert set(process_state.NOTES) == set(READS)
    assert set(process_state.WRITTEN) <= set(READS)


def test_a_row_that_answers_one_setting_asks_nothing_else():
    """What is asked again has to be a function of values: no method of an object, no `*`."""
    for row in policy.ROWS:
        if row.reads == "itself":
            assert "*" not in row.names.split(), row
            assert not isinstance(find_space(row.space), type), row


SETTERS = ["_get_cudnn_enabled", "_get_mkldnn_enabled", "get_num_threads", "_get_float32_matmul_precision", "_get_nnpack_enabled"]


@pytest.mark.parametrize("name", SETTERS)
def test_settings_of_torch_are_asked_again(name):
    assert policy.c_policy(getattr(torch._C, name)).reads == "itself"


def test_setters_break():
    for name in ("_set_cudnn_enabled", "_set_mkldnn_enabled", "set_num_threads", "_set_float32_matmul_precision", "_set_nnpack_enabled"):
        assert policy.c_policy(getattr(torch._C, name)).kind == "skip"


@pytest.mark.parametrize(("a", "b", "same"), [
    (1, 1, True), (1, True, False), (1, 1.0, False), (0.0, -0.0, False), (float("nan"), float("nan"), True), ("a", "a", True),
    ((1, 2), (1, 2), True), ((1, 2), (1, 2.0), False), ([1], [1], True), ([1], (1,), False), ({1: 2}, {1: 2}, True),
    ({1: 2, 3: 4}, {3: 4, 1: 2}, False), ({1, 2}, {2, 1}, True), (torch.float32, torch.float32, True), (None, False, False),
])  # fmt: skip
def test_answers_are_compared_as_a_program_sees_them(a, b, same):
    assert alike(a, b) is same


def test_objects_are_compared_by_identity():
    class Same:
        def __eq__(self, other):
            return True

    one, two = Same(), Same()
    assert alike(one, one) and not alike(one, two) and not is_value(one)


def test_a_question_asks_again_and_keeps_no_function_alive():
    state = [3]

    def ask(k):
        if state[0] < 0:
            raise ValueError("negative")
        return state[0] + k

    q = Question(ask, (1,), {}, 4)
    assert q()
    state[0] = 4
    assert not q()
    state[0] = -1
    assert not q()
    assert Question(ask, (1,), {}, Raised(ValueError, "negative"))()
    assert "answers 4" in q.told()
    del ask
    assert q.fn is None and not q()
