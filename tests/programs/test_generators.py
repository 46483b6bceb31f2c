"""Generators and graph breaks: suspended ones cross a break, breaks inside of one, in `yield from`, `try`, `with`, under C code."""

from __future__ import annotations

import contextlib

import pytest
import torch

from tests.helpers import pliant
from tests.programs.registry import cases, program, t

COUNTS = [(t(k), n) for k, n in ((3, 2), (4, 3), (5, 4), (3, 5), (4, 0), (4, 1), (2, 7), (2, 8))]
SOME = [(t(k), n) for k, n in ((3, 2), (4, 3), (5, 3))]


@pliant.disable
def op(v):
    return v


def gen(x, n):
    for i in range(n):
        got = yield x + i
        if got is not None:
            x = x * got
    return n


@program(*SOME)
def sent_what_a_break_gives(x, n):
    g = gen(x, 3)
    return next(g), g.send(op(2)), list(g)


@program(*SOME)
def methods_across_a_break(x, n):
    g = gen(x, 4)
    next(g)
    send, close, following = g.send, g.close, g.__next__
    out = [send(op(2)), following()]
    close()
    return out, list(g), send.__name__, type(g).__name__, iter(g) is g


@program(*COUNTS)
def delegated_counts_that_change(x, n):
    def chain():
        r = yield from gen(x, n)
        yield x * r
        yield from [x] * n

    return [v + 1 for v in chain()]


@program(*COUNTS)
def recursive_delegation(x, n):
    def chain(k):
        if k > 0:
            yield from chain(k - 1)
        yield x + k

    out = []
    for v in chain(n):
        out.append(op(v))
    return out


@program(*COUNTS)
def breaks_inside_delegation(x, n):
    def chain(k):
        for i in range(k):
            yield op(x + i)

    def both():
        yield from chain(n)
        yield from chain(n + 1)

    return list(both()), sum(both()), dict(enumerate(both()))


def deeper(x, n):
    return op(x) + n


@program(*COUNTS)
def breaks_in_what_a_generator_calls(x, n):
    def g():
        yield deeper(x, n)
        yield from [x, x + deeper(x, 1)]

    return list(g()), [v for v in g()]


@program(*COUNTS)
def several_at_once(x, n):
    for a, b in zip(gen(x, n), gen(x, n + 1), strict=False):
        x = x + op(a) + b
    return x


@program(*SOME)
def suspended_in_a_handler(x, n):
    seen = []

    def g():
        try:
            raise ValueError("in", n)
        except ValueError as e:
            seen.append(e.args)
            yield x
            try:
                raise
            except ValueError as again:
                yield again is e
        finally:
            seen.append("done")

    it = g()
    a = next(it)
    op(0)
    b = next(it)
    op(1)
    return a, b, list(it), seen


@program(*SOME)
def thrown_across_a_break(x, n):
    def g():
        while True:
            try:
                x2 = yield x
                op(x2)
            except KeyError as e:
                yield "caught", e.args

    it = g()
    next(it)
    op(0)
    a = it.throw(KeyError(n))
    op(1)
    return a, next(it), it.send(3)


@program(*SOME)
def dropped_after_a_break(x, n):
    seen = []

    def g():
        try:
            with contextlib.suppress(KeyError):
                yield x
                yield x + 1
        finally:
            seen.append(op(n))

    for v in g():
        op(v)
        break
    return v, seen


@program(*SOME)
def state_shared_with_a_closure(x, n):
    total = x

    def g():
        nonlocal total
        for i in range(n):
            total = total + i
            yield total

    it = g()
    a = next(it)
    total = total * op(2)
    return a, list(it), total


@program(*SOME)
def kept_by_an_object(x, n):
    class_like = {"it": gen(x, n), "again": (v * 2 for v in gen(x, n))}
    a = next(class_like["it"])
    b = next(class_like["again"])
    op(0)
    return a, b, list(class_like["it"]), list(class_like["again"])


@program(*SOME)
def exhausted_before_the_break(x, n):
    it = gen(x, 1)
    a = list(it)
    op(0)
    return a, list(it), next(it, None)


# -- an instruction breaks after a part of what it does ------------------------------------------------------------------------
FOUR = [(torch.tensor(v), []) for v in ([3.0, 1, 2, 0], [0.0, 1, 2, 3], [1.0, 1, 1, 1], [0.0, 3, 3, 0])]


@program(*FOUR)
def some_of_a_generator(x, seen):
    return any(v > 2 for v in x), all(v < 2 for v in x), any(map(lambda v: v > 2, x)), all([v < 3 for v in x])


@program(*FOUR)
def some_of_an_iterator(x, seen):
    it = iter([v > 2 for v in x])
    return any(it), len(list(it)), any(zip(x, x)), x + len(list(filter(lambda v: v > 2, x)))


@program(*FOUR)
def functions_that_are_called_before_the_break(x, seen):
    def note(v):
        seen.append(float(len(seen)))
        return v

    found = any(note(v) > 2 for v in x)
    first = next((v for v in map(note, x) if v > 1), None)
    return found, first, max((note(v) for v in x), key=lambda v: v), sorted(map(note, x), key=lambda v: -v), seen


class Compared:
    def __init__(self, v, seen):
        self.v, self.seen = v, seen

    def __eq__(self, other):
        self.seen.append(len(self.seen))
        return self.v == other.v


@program(*FOUR)
def comparisons_one_after_the_other(x, seen):
    a, b = ([Compared(v, seen) for v in y] for y in (x, x.flip(0)))
    return a == b, a[0] in b, a.index(b[-1]), a.count(b[0]), seen


@program(*FOUR)
def unpacked_half_way(x, seen):
    def halves():
        for v in x:
            seen.append(1)
            yield v if v > 1 else -v

    first, *rest = halves()
    return first, rest, [*halves()], dict.fromkeys(["a", "b"], sum(halves())), seen


class Stops:
    def __bool__(self):
        raise StopIteration("of the item")


@program(*SOME)
def truth_that_stops(x, n):
    out = []
    for f in (any, all):
        try:
            out.append(f([Stops()]))
        except StopIteration as e:
            out.append(str(e))
    return x + 1, out


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
