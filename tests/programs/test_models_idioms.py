"""Idioms of other people's models, met by `benchmarks.crawl`: what each needed of pliant, without their libraries."""

from __future__ import annotations

import collections

import pytest

from tests.programs.registry import cases, each, program


class Factory(collections.OrderedDict):
    """Makes what is asked for: what it holds is not what it gives (activations of transformers)."""

    def __getitem__(self, key):
        cls, scale = super().__getitem__(key)
        return cls(scale)


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    def __call__(self, x):
        return x * self.scale


@program(*each(4, 5, 1, n=1), world=True, captures=(1, 2), breaks=0)
def dict_that_makes_its_values():
    table = Factory(a=(Scaled, 2), b=(Scaled, 3))

    def run(x):
        return table["a"](x) + table["b"](x)

    return run, table


class Counting(dict):
    """A dict whose stores count, and which lists its keys backwards."""

    def __setitem__(self, key, value):
        super().__setitem__(key, value)
        super().__setitem__("stores", self.get("stores", 0) + 1)

    def __iter__(self):
        return reversed(list(super().__iter__()))


@program(*each(4, 5, 6, n=1), world=True, breaks=0)
def dict_that_counts_its_stores():
    table = Counting(a=1)

    def run(x):
        table["a"] = x.shape[0]
        return x + len(table) + table["stores"]

    return run, table


class Reversed(list):
    def __iter__(self):
        return reversed(list(super().__iter__()))


@program(*each(4, 5, n=1), world=True)
def list_that_goes_backwards():
    steps = Reversed([1, 2, 3])

    def run(x):
        for s in steps:
            x = x * 2 + s
        return x

    return run, steps


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_idiom(case):
    case.run()
