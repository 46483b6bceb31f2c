"""Frames that do nothing with tensors behind their graph breaks: CPython runs the rest, and answers stay eager's."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant import events
from tests import helpers

G = torch.Generator().manual_seed(3)
CALLS = [torch.randint(0, 4, (14,), generator=G) for _ in range(30)]


def run_lengths(x):
    runs: list[list[int]] = []
    for v in x.tolist():
        if runs and runs[-1][0] == v:
            runs[-1][1] += 1
        else:
            runs.append([v, 1])
    return runs


def behind_a_graph(x):
    out, previous = [], -1
    for token in torch.stack([x, x * 3 % 5], 1).argmax(-1).tolist():
        if token not in (previous, 0):
            out.append(token)
        previous = token
    return out


def worked_with(x):
    n = 0
    for v in x.tolist():
        if v > 2 and n % 3 != 1:
            n += v
        elif v == 0:
            n += 1
    return x * n


def left_to_cpython():
    return [e for e in events.events("policy") if "CPython goes on" in e.fields["what"]]


@pytest.mark.parametrize("fn", [run_lengths, behind_a_graph, worked_with], ids=lambda f: f.__name__)
def test_answers_and_captures_that_end(fn):
    compiled = helpers.compiled(fn)
    for _ in range(3):
        before = pliant.stats()["captures"]
        for x in CALLS:
            got, want = compiled(x), fn(x)
            assert got == want if type(want) is list else torch.equal(got, want)
    assert pliant.stats()["captures"] == before
    assert bool(left_to_cpython()) == (fn is not worked_with)


def test_what_is_in_front_stays_a_graph():
    compiled = helpers.compiled(behind_a_graph)
    for x in CALLS:
        compiled(x)
    before = pliant.stats()["calls"]
    compiled(CALLS[0])
    assert pliant.stats()["calls"] == before + 1


def test_a_frame_without_any_graph_is_left_whole():
    compiled = helpers.compiled(run_lengths)
    for x in CALLS:
        compiled(x)
    before = pliant.stats()["calls"]
    compiled(CALLS[0])
    assert pliant.stats()["calls"] == before


def test_prints_in_a_row_are_no_reason():
    def fn(x):
        y = x + 1
        for word in ("a", "b", "c", "d", "e", "f"):
            print(word, int(y.sum()))
        print("end", len(y))
        return y * 2

    compiled = helpers.compiled(fn)
    for x in CALLS[:4]:
        assert torch.equal(compiled(x), fn(x))
    assert not left_to_cpython()


class Distance:
    """Levenshtein's distance to one text, with the rows that it has worked out."""

    def __init__(self, reference):
        self.reference = reference
        self.rows = {}

    def __call__(self, words):
        row, at = [(i, "insert") for i in range(len(self.reference) + 1)], self.rows
        for i, word in enumerate(words, 1):
            if word in at:
                at, row = at[word]
                continue
            row = self.below(row, word, i)
            at[word] = ({}, row)
            at = at[word][0]
        return row[-1][0]

    def below(self, row, word, i):
        found = [(i, "delete")]
        for j, other in enumerate(self.reference, 1):
            same = row[j - 1][0] + (word != other)
            ways = ((same, "keep" if word == other else "replace"), (found[-1][0] + 1, "insert"), (row[j][0] + 1, "delete"))
            found.append(min(ways, key=lambda way: way[0]))
        return found


TEXTS = ["the cat is on the mat", "there is a dog on the log", "hello world", "one two three four five six", "a b a b a", "cat"]


def edit_rate(text, reference):
    distance = Distance(reference.split())
    total = torch.zeros(())
    for end in range(1, len(text.split()) + 1):
        total = total + distance(text.split()[:end])
    return total / len(reference.split())


def test_calls_between_the_pieces_are_no_reason_to_go_on_for_ever():
    compiled = helpers.compiled(edit_rate)
    pairs = [(a, b) for a in TEXTS for b in TEXTS[:3]]
    taken = []
    for _ in range(4):
        before = pliant.stats()["captures"]
        for a, b in pairs:
            assert torch.equal(compiled(a, b), edit_rate(a, b))
        taken.append(pliant.stats()["captures"] - before)
    assert taken[-1] == 0 and sum(taken) < 200, taken
