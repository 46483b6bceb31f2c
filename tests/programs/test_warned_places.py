"""Warnings of a program and of PyTorch's Python code: their category, text, file and line, and how often each filter lets them through."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from tests.helpers import compiled, pliant
from tests.programs.registry import t


class Own(UserWarning):
    pass


def plain(x):
    y = x * 2
    warnings.warn("plain")
    warnings.warn("plain")  # another line: another warning
    return y


def of_a_class(x):
    warnings.warn(f"size {x.shape[0]}", DeprecationWarning)
    warnings.warn("positional", RuntimeWarning, 1)
    return x + 1


def an_object(x):
    warnings.warn(Own("object"))
    return x + 1


def of_the_caller(x):
    def inner():
        def innermost():
            warnings.warn("two up", stacklevel=2)
            warnings.warn("three up", category=Own, stacklevel=3)

        innermost()

    inner()
    return x + 1


def beyond(x):
    warnings.warn("whoever calls", stacklevel=2)
    return x + 1


def on_size(x):
    if x.shape[0] > 3:
        warnings.warn("big", RuntimeWarning)
    return x + 1


def on_data(x):
    if x.sum() > 0:
        warnings.warn("positive", RuntimeWarning)
    return x + 1


def in_a_loop(x):
    for i in range(3):
        warnings.warn(f"round {i}")
        x = x + i
    return x


def behind_a_break(x):
    pliant.graph_break()
    warnings.warn("behind")
    return x + 1


def recorded(x):
    with warnings.catch_warnings(record=True) as kept:
        warnings.simplefilter("always")
        warnings.warn("recorded")
    return x + 1, len(kept), str(kept[0].message), kept[0].lineno


def raised(x):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            warnings.warn("raised")
        except UserWarning as e:
            return x + 1, str(e)


def wrong(x):
    try:
        warnings.warn("wrong", int)
    except TypeError as e:
        return x + 1, str(e)


def by_generator(x):
    def items():
        warnings.warn("first")
        yield x
        warnings.warn("second", stacklevel=2)
        yield x + 1

    return sum(items())


def of_torch(x):
    return F.softmax(x), F.mse_loss(x, x[:1]), F.dropout2d(x.view(1, -1), 0.0)


def of_a_scheduler(x):
    optimizer = torch.optim.SGD([torch.nn.Parameter(x.clone())], 0.1)
    torch.optim.lr_scheduler.StepLR(optimizer, 1).step()
    return x


PROGRAMS = [plain, of_a_class, an_object, of_the_caller, beyond, on_size, on_data, in_a_loop, behind_a_break, recorded, raised, wrong]
PROGRAMS += [by_generator, of_torch, of_a_scheduler]


@pytest.mark.parametrize("mode", ["always", "default", "module", "once", "ignore", "error"])
@pytest.mark.parametrize("run", PROGRAMS)
def test_places(run, mode):
    told = []
    for fn in (run, compiled(run)):
        for space in (globals(), vars(F), vars(torch.optim.lr_scheduler)):
            space.pop("__warningregistry__", None)
        calls: list[Any] = []
        with warnings.catch_warnings(record=True) as heard:
            warnings.resetwarnings()
            warnings.simplefilter(mode)
            for x in (t(4), t(4) + 1, t(2), t(6)):
                try:
                    r = [str(v) for v in fn(x)]
                except Exception as e:
                    r = [type(e).__name__, str(e)]
                calls.append((r, [(w.category, str(w.message), w.filename, w.lineno) for w in heard]))
                heard.clear()
        told.append(calls)
    assert told[0] == told[1]
