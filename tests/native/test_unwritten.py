"""`unwritten`: whether a program has stored anything in the copy of a dict, against what that means, word by word."""

from __future__ import annotations

import collections
import random

import pytest

from pliant.native import unwritten

MARK = object()


def told(original: dict, copy: dict, located: dict) -> bool:
    """The meaning: the same keys in order; each value is what was put there, or what was there before."""
    if [*map(id, original)] != [*map(id, copy)]:
        return False
    if any(put is MARK or k not in original or copy[k] is not put for k, put in located.items()):
        return False
    return all(k in located or copy[k] is v for k, v in original.items())


@pytest.mark.parametrize("seed", range(40))
def test_of_random_dicts(seed):
    rng = random.Random(seed)
    answers = set()
    for _ in range(50):
        keys = [*"abcdefg", 1, 2.5, None, (1, "a")][: rng.randint(0, 11)]
        rng.shuffle(keys)
        original = {k: object() for k in keys}
        copy, located = dict(original), {}
        for k in keys:
            if rng.random() < 0.4:
                located[k] = original[k] if rng.random() < 0.5 else object()
                copy[k] = located[k]
        if keys and rng.random() < 0.5:
            k = rng.choice(keys)
            match rng.randrange(6):
                case 0:
                    copy[k] = object()
                case 1:
                    located[k] = MARK
                case 2:
                    copy[k] = copy.pop(k)
                case 3:
                    del copy[k]
                case 4:
                    copy["new"] = None
                case 5:
                    copy[k] = original[k]
        answers.add(unwritten(original, copy, located, MARK))
        assert unwritten(original, copy, located, MARK) is told(original, copy, located)
    assert answers == {True, False}


def test_keys_that_raise_are_not_swallowed():
    class Key:
        def __init__(self) -> None:
            self.angry = False

        def __hash__(self) -> int:
            if self.angry:
                raise LookupError("no hash")
            return 1

    key, value = Key(), object()
    original, located = {key: value}, {key: value}
    copy = dict(original)
    key.angry = True
    with pytest.raises(LookupError):
        unwritten(original, copy, located, MARK)


def test_only_exact_dicts():
    with pytest.raises(TypeError):
        unwritten(collections.OrderedDict(), {}, {}, MARK)
