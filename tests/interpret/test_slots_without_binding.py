"""Special methods that are no descriptors: a partial, None, any object. Nothing is bound to them."""

from __future__ import annotations

import functools

import pytest
import torch

import pliant


class Answering:
    def __call__(self, *args):
        return len(args) == 1


def same(self, other=None):
    return other is None


@pytest.mark.parametrize("method", [functools.partial(same), None, Answering()], ids=["partial", "None", "object"])
def test_comparison(method):
    class C:
        __eq__ = method
        __hash__ = object.__hash__

    def fn(x, a, b):
        try:
            return x + 1 if a == b else x - 1
        except TypeError as e:
            return str(e)

    compiled = pliant.compile(fn)
    for _ in range(3):
        x, a, b = torch.ones(2), C(), C()
        mine, theirs = compiled(x, a, b), fn(x, a, b)
        assert type(mine) is type(theirs)
        assert mine == theirs if type(theirs) is str else torch.equal(mine, theirs)
