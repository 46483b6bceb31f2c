"""Loops that stay in Python: what their state holds, how many bodies they have, what is done where they begin and end."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch

from pliant.jit.region import called_regions
from tests.helpers import compiled, own_backend, pliant

LOG: list[Any] = []


class Ends:
    """Says when it ends."""

    def __init__(self, name: Any) -> None:
        self.name = name

    def __del__(self) -> None:
        LOG.append(("ends", self.name))


def items(xs):
    try:
        yield from enumerate(xs)
    finally:
        LOG.append("generator ends")


def told(x):
    pliant.graph_break()
    return x


def read_behind(xs):
    for i, x in enumerate(xs):
        y = told(x) * 2
    return i, x, y


def read_by_a_handler(xs):
    n = 0
    try:
        for i, x in enumerate(xs):
            n = i
            y = told(x) + 1
            if i == 2:
                raise KeyError(i)
    except KeyError as e:
        return n, y, e.args
    return n


def unbound_behind(xs):
    for x in xs[5:]:
        y = told(x)
    try:
        return y
    except UnboundLocalError as e:
        return str(e)


def deleted(xs):
    out = []
    for i, x in enumerate(xs):
        z = told(x) + i
        out.append(z)
        if i % 2:
            del z
    try:
        return out, z
    except UnboundLocalError as e:
        return out, str(e)


def deleted_in_the_next_round(xs):
    out, z = [], 0
    for i, x in enumerate(xs):
        del z
        z = told(x) * i
        out.append(z)
    return out


def set_in_some_rounds(xs):
    last = None
    for i, x in enumerate(xs):
        if i % 2 == 0:
            last = told(x) * 2
        else:
            x = last + told(x)
    return last, x


def looks_at_its_names(xs):
    found = []
    for i, x in enumerate(xs):
        found.append(sorted(locals()))
        y = told(x) + i
    return found, y


def closes_over(xs):
    out = []
    for i, x in enumerate(xs):
        y = told(x) * i
        out.append(lambda: y + i)
    return [f() for f in out]


def nested(xs):
    out = []
    for i, x in enumerate(xs):
        s = told(x) * 0
        for j, z in enumerate(xs[: i + 1]):
            if j > 1:
                continue
            s = s + told(z) * j
        else:
            s = s - 1
        out.append(s)
    return out, j


def broken_off(xs):
    found = -1
    for i, x in enumerate(xs):
        t = told(x).sum()
        if i == 1:
            found = t
            break
    else:
        found = 5
    return found, i


def returned_from_within(xs):
    for i, x in enumerate(xs):
        t = told(x) + 1
        if i == 1:
            return t, i
    return None


def in_a_while(xs):
    k, y = 0, xs[0]
    while k < len(xs):
        x = told(xs[k]) * 2
        w = x + y
        y = w
        k += 1
    return y, k


def ends_in_a_round(xs):
    for i, x in enumerate(xs):
        one = Ends(i)
        LOG.append(("round", i, one.name))
        y = told(x) + 1
        LOG.append(("after", i))
    LOG.append("behind")
    return y


def ends_in_a_list(xs):
    for i, x in enumerate(xs):
        held = [Ends(i)]
        y = told(x) + len(held)
        LOG.append(("after", i))
    LOG.append("behind")
    return y


def walks_a_generator(xs):
    out = []
    for _i, x in items(xs):
        out.append(told(x) * 2)
    LOG.append("behind")
    return out


def leaves_a_generator(xs):
    out = []
    for i, x in items(xs):
        out.append(told(x) * 2)
        if i == 1:
            break
    LOG.append("behind")
    return out


def remembered(xs):
    kept, seen = weakref.WeakValueDictionary(), []
    for i, x in enumerate(xs):
        before = kept.get(i - 1)
        seen.append(before is None)
        y = told(x) * 2
        kept[i] = y
        pliant.graph_break()
    return seen, len(kept)


def sometimes_from_before(xs):
    out = []
    for i, x in enumerate(xs):
        y = xs[0] if i % 3 == 1 else told(x) * 2
        z = i if i % 2 else None
        out.append((y.sum(), z))
        told(x)
    return out


def targets_set_elsewhere(xs):
    out, x = [], xs[-1]
    for x in xs:
        out.append(told(x) + 1)
        x = None
    for i in range(len(xs)):
        for x in xs[:2]:
            w = told(x) * i
        out.append(w)
    x = 5
    return out, x, i


def comprehensions(xs):
    return [told(x) * 2 for x in xs], {i: told(x) for i, x in enumerate(xs)}, [told(x) + i for i, x in zip(range(9), xs) if i != 1]


def walks_what_was_made(xs):
    out = []
    for i in sorted([3, 1, 2], key=lambda k: -k):
        out.append(told(xs[0]) * i)
    for x, i in zip(xs, list(range(len(xs)))):
        out.append(told(x) * i)
    for x in map(told, xs):
        out.append(x + 1)
    for x in filter(lambda t: t.sum() > 1, xs):
        out.append(told(x))
    for k in set([4]):
        out.append(told(xs[0]) + k)
    for x in list(xs):
        out.append(told(x))
    return out


def returned_at_the_end(xs):
    total = torch.zeros(3)
    for x in xs:
        total = total + told(x)
    return total


def raises_in_a_round(xs):
    for i, x in enumerate(xs):
        y = told(x) / 1
        if i == 2:
            raise ValueError(i)
    return y


PROGRAMS = [
    read_behind, read_by_a_handler, unbound_behind, deleted, deleted_in_the_next_round, set_in_some_rounds, looks_at_its_names, closes_over,
    nested, broken_off, returned_from_within, in_a_while, ends_in_a_round, ends_in_a_list, walks_a_generator, leaves_a_generator,
    remembered, sometimes_from_before, targets_set_elsewhere, comprehensions, walks_what_was_made, returned_at_the_end, raises_in_a_round,
]  # fmt: skip


def outcome(fn, xs):
    LOG.clear()
    try:
        value = fn(xs)
    except Exception as e:
        value = type(e), str(e)
    said = [*LOG]
    gc.collect()
    return value, said


@pytest.mark.usefixtures("young_heap")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_loops_that_stay_in_python(program):
    fn = compiled(program)
    for n in (3, 4, 2, 5, 1):
        xs = [torch.full((3,), float(k)) for k in range(n)]
        want, said = outcome(program, xs)
        got, heard = outcome(fn, xs)
        assert said == heard
        assert repr(want) == repr(got)


def stayed(xs, names):
    out = {}
    for i, x in enumerate(xs):
        x = x.relu() + 1
        out[names[i]] = x * 2
    return out


@pytest.mark.skipif(not own_backend(), reason="pliant's own loops")
def test_the_first_round_has_the_body_of_the_others():
    """In front of it `i` and `x` are not bound, behind a round they are; nobody reads them."""
    fn = compiled(stayed)
    for n in (2, 9, 4, 11, 3, 12, 9, 10, 7):
        xs, names = [torch.ones(k + 2) for k in range(n)], [f"{n}.{k}" for k in range(n)]
        assert repr(fn(xs, names)) == repr(stayed(xs, names))
    codes = {code.co_name for region in called_regions() for ref in region.codes if (code := ref()) is not None}
    assert len([name for name in codes if name.startswith("__resume_at")]) == 2  # the body, and what is behind the loop
