"""When what runs code at its end is let go of: generators half way through, objects with a `__del__`, on either side of graph breaks.

The order of `SEEN` is the test: a `finally` in a generator runs where the program drops it, not where the compiled function returns.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import copy
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.helpers import compiled, pliant

SEEN: list[Any] = []


def ends(x: Any) -> Any:
    try:
        yield x
        yield x + 1
    finally:
        SEEN.append("closed")


def ends_with_a_break(x: Any) -> Any:
    try:
        yield x
        yield x + 1
    finally:
        pliant.graph_break()
        SEEN.append("closed")


def begins_with_a_break(x: Any) -> Any:
    try:
        pliant.graph_break()
        yield x
        yield x + 1
    finally:
        SEEN.append("closed")


@pliant.disable
def made(gen: Callable, x: Any) -> Any:
    return gen(x)


class Ending:
    def __del__(self) -> None:
        SEEN.append("deleted")


def left_by_break(x, gen):
    for _ in gen(x):
        break
    SEEN.append(1)
    return x + 1


def left_by_exception(x, gen):
    try:
        for _ in gen(x):
            raise ValueError
    except ValueError:
        SEEN.append(2)
    return x + 1


def overwritten(x, gen):
    g = gen(x)
    next(g)
    g = None
    SEEN.append(3)
    return x + 1, g


def deleted(x, gen):
    g = gen(x)
    next(g)
    del g
    SEEN.append(3)
    return x + 1


def overwritten_behind_a_break(x, gen):
    g = gen(x)
    next(g)
    pliant.graph_break()
    SEEN.append(0)
    g = None
    SEEN.append(3)
    return x + 1, g


def deleted_behind_a_break(x, gen):
    g = gen(x)
    next(g)
    pliant.graph_break()
    del g
    SEEN.append(3)
    return x + 1


def loop_left_by_break(x, gen):
    for _ in gen(x):
        pliant.graph_break()
        SEEN.append(0)
        break
    SEEN.append(3)
    return x + 1


def loop_left_by_exception(x, gen):
    try:
        for _ in gen(x):
            pliant.graph_break()
            SEEN.append(0)
            raise ValueError
    except ValueError:
        SEEN.append(3)
    return x + 1


def loop_left_for_good(x, gen):
    for _ in gen(x):
        pliant.graph_break()
        SEEN.append(0)
        raise ValueError


def holds(x, gen):
    g = gen(x)
    next(g)
    pliant.graph_break()
    SEEN.append("inner")
    return x


def local_of_another(x, gen):
    y = holds(x, gen)
    SEEN.append("outer")
    return y + 1


def raises(x, gen):
    for _ in gen(x):
        pliant.graph_break()
        raise ValueError


def exception_of_another(x, gen):
    try:
        raises(x, gen)
    except ValueError:
        SEEN.append("caught")
    SEEN.append("outer")
    return x + 1


def enumerated(x, gen):
    for i, _ in enumerate(gen(x)):
        pliant.graph_break()
        SEEN.append(i)
        break
    SEEN.append(3)
    return x + 1


def zipped(x, gen):
    for _ in zip([1, 2], gen(x), strict=False):
        pliant.graph_break()
        break
    SEEN.append(3)
    return x + 1


def made_elsewhere(x, gen):
    for _ in made(gen, x):
        SEEN.append(0)
        break
    SEEN.append(3)
    return x + 1


def made_elsewhere_left_by_exception(x, gen):
    try:
        for _ in made(gen, x):
            raise KeyError
    except KeyError:
        SEEN.append(0)
    SEEN.append(3)
    return x + 1


def operand(x, gen):
    y = next(gen(x)) + len(SEEN)
    SEEN.append(1)
    return y


def returns_out_of_it(x, gen):
    for t in gen(x):
        pliant.graph_break()
        return t


def called(x, gen):
    y = returns_out_of_it(x, gen)
    SEEN.append("after")
    return y


def now_and_then(x, gen):
    g = gen(x)
    n = 0
    while n < 3:
        for _ in range(int(x.sum().item()) % 3):
            pass
        pliant.graph_break()
        if n == 1:
            g = None
        elif g is not None:
            next(g, None)
        SEEN.append(n)
        n += 1
    return x


def in_finally(x, gen):
    try:
        raises(x, gen)
    finally:
        SEEN.append("finally")


def in_with(x, gen):
    with contextlib.suppress(ValueError):
        raises(x, gen)
    SEEN.append("behind")
    return x


def error_of_python(x, gen):
    try:
        for _ in gen(x):
            pliant.graph_break()
            x.missing()
    except AttributeError:
        SEEN.append("caught")
    return x + 1


def an_object(x, gen):
    o = Ending()
    pliant.graph_break()
    o = None
    SEEN.append(1)
    return x, o


def two_names(x, gen):
    g = gen(x)
    h = g
    next(g)
    pliant.graph_break()
    g = None
    SEEN.append(1)
    y = next(h)
    h = None
    SEEN.append(2)
    return y, g, h


def one_in_another(x, gen):
    for t in gen(x):
        for _ in gen(t):
            pliant.graph_break()
            break
        SEEN.append("inner")
        break
    SEEN.append("outer")
    return x


PROGRAMS = [
    left_by_break, left_by_exception, overwritten, deleted, overwritten_behind_a_break, deleted_behind_a_break, loop_left_by_break,
    loop_left_by_exception, loop_left_for_good, local_of_another, exception_of_another, enumerated, zipped, made_elsewhere,
    made_elsewhere_left_by_exception, operand, called, now_and_then, in_finally, in_with, error_of_python, an_object, two_names,
    one_in_another,
]  # fmt: skip


def outcome(fn: Callable, i: int, gen: Callable) -> tuple:
    SEEN.clear()
    try:
        result: Any = str(fn(torch.arange(3.0) + i, gen))
    except Exception as e:
        result = type(e)
    return result, list(SEEN)


@pytest.mark.parametrize("gen", [ends, ends_with_a_break, begins_with_a_break], ids=lambda f: f.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_order(program, gen):
    target = compiled(program)
    for i in range(4):
        assert outcome(target, i, gen) == outcome(program, i, gen)


class Named:
    def __init__(self, name: Any) -> None:
        self.name = name

    def __del__(self) -> None:
        SEEN.append(self.name)


WATCHES: list[weakref.ref] = []


class Plain:
    pass


@pliant.disable
def named(name: Any) -> Named:
    return Named(name)


@pliant.disable
def watched(name: Any) -> Plain:
    o = Plain()
    WATCHES.append(weakref.ref(o, lambda _: SEEN.append(name)))
    return o


@pliant.disable
def say(word: Any) -> None:
    SEEN.append(word)


def held_over_the_last_call(x, give):
    try:
        a = give("a")
        b = give("b")
    except ValueError:
        pass
    else:
        say("else")
    say("last")
    return x


def a_result_that_nobody_keeps(x, give):
    try:
        a = give("a")
        give("b")
    except ValueError:
        x = x * 2


def overwritten_in_a_loop(x, give):
    for i in range(2):
        try:
            a, b = give("a"), give("b")
        except ValueError:
            continue
        SEEN.append(i)
    return x


def of_an_inner_frame(x, give):
    def inner(x):
        try:
            a = give("a")
            b = give("b")
            del a
            c = give("c")
        finally:
            SEEN.append("finally")
        return x * 2

    y = 5
    try:
        y = inner(x)
    except ValueError:
        say("caught")
    SEEN.append("outer")
    return x, y


def in_lists(x, give):
    n = len([give("a"), give("b")])
    SEEN.append(n)
    kept = [give("c"), (give("d"), {"k": give("e")})]
    SEEN.append(len(kept))
    kept = None
    SEEN.append("gone")
    return x + n, kept


def of_a_with(x, give):
    o = give("o")
    with contextlib.suppress(ValueError):
        a = give("a")
        give("b")
        raise ValueError
    say("behind")
    return x


HELD = [held_over_the_last_call, a_result_that_nobody_keeps, overwritten_in_a_loop, of_an_inner_frame, in_lists, of_a_with]


@pytest.mark.parametrize("give", [named, watched], ids=lambda f: f.__name__)
@pytest.mark.parametrize("program", HELD, ids=lambda f: f.__name__)
def test_results_of_breaking_calls_end_in_their_turn(program, give):
    test_order(program, give)
    WATCHES.clear()


def counted_references(x, gen):
    try:
        a = named("a")
        b = named("b")
        SEEN.append(sys.getrefcount(a) - sys.getrefcount(b))
        say(sys.getrefcount(a))
    finally:
        SEEN.append("finally")
    return x


def test_references_are_counted_alike():
    test_order(counted_references, ends)


def telling(name):
    try:
        yield name
        yield name
    finally:
        SEEN.append(name)


def begun(name):
    g = telling(name)
    next(g)
    return g


def locals_of_one_frame(x, gen):
    a, b = begun("a"), begun("b")
    c = enumerate(begun("c"))
    next(c)
    d = [begun("d"), begun("e")]
    return x + 1


def locals_of_an_inner_frame(x, gen):
    def inner(x):
        a, b = begun("a"), begun("b")
        return x * 2

    y = inner(x)
    SEEN.append("outer")
    return y


def locals_of_a_generator(x, gen):
    def items():
        a, b = begun("a"), begun("b")
        yield x
        yield x

    total = 0
    for v in items():
        total = total + v
    SEEN.append("done")
    other = items()
    next(other)
    other.close()
    SEEN.append("closed")
    return total


def behind_a_break(x, gen):
    a, b = begun("a"), begun("b")
    pliant.graph_break()
    c = begun("c")
    return x + 1


def in_a_cell(x, gen):
    a, b = begun("a"), begun("b")
    c = lambda: a  # noqa: E731
    d = begun("d")
    return x + 1


ONE_GRAPH = [locals_of_one_frame, locals_of_an_inner_frame, locals_of_a_generator, behind_a_break, in_a_cell]


@pytest.mark.parametrize("program", ONE_GRAPH, ids=lambda f: f.__name__)
def test_generators_of_one_graph_end_in_their_turn(program):
    test_order(program, ends)


def v0(x):
    return x + 1


def r(x):
    return x * 2


def state(x):
    return x * 3


def st0(x):
    return x * 4


@pytest.mark.parametrize("names", [("v0", "r", "state"), ("st0",)])
def test_functions_with_names_of_emitted_variables(names):
    off = [pliant.disable(globals()[name]) for name in names]

    def program(x, gen):
        total = x
        for fn in off:
            total = total + fn(x)
        for _ in gen(x):
            total = off[0](total)
            break
        return total

    target = compiled(program)
    for i in range(3):
        assert outcome(target, i, ends) == outcome(program, i, ends)


def walked(kind, args):
    ended = []

    class Mine(kind):
        def __del__(self):
            ended.append(1)

    it = iter(Mine(*args))
    with contextlib.suppress(StopIteration):
        next(it)
    pliant.graph_break()
    gc.collect()
    return len(ended)


def walks(kind, args):
    n = walked(kind, args)
    return n, it_is(n)


def it_is(n):
    pliant.graph_break()
    return n == 1


@pytest.mark.usefixtures("young_heap")
@pytest.mark.parametrize("kind, args", [(list, ()), (dict, ()), (set, ()), (frozenset, ()), (tuple, ()), (array.array, ("b",))])
def test_what_a_call_gave_before_the_next_is_held_by_nobody(kind, args):
    target = compiled(walks)
    for _ in range(3):
        assert target(kind, args) == walks(kind, args) == (1, True)


class EndingTuple(tuple):
    def __del__(self):
        SEEN.append("deleted")


def made_by_new(x, gen):
    one = object.__new__(Ending)
    two = tuple.__new__(EndingTuple, (x, 1))
    del one, two
    return len(SEEN)


def copied(x, gen):
    one = Ending()
    two = copy.copy(one)
    del one, two
    return len(SEEN)


def of_another(x, gen):
    return KEPT[0] + len(KEPT), len(SEEN)


KEPT = EndingTuple((1, 2))
atexit.register(globals().pop, "KEPT", None)


@pytest.mark.parametrize("program", [made_by_new, copied, of_another], ids=lambda f: f.__name__)
def test_nothing_else_is_made_of_what_ends(program):
    test_order(program, ends)


@pliant.disable
def given(x: Any) -> Any:
    return x


@pliant.disable
def fails(x: Any) -> Any:
    raise ValueError(x)


@pytest.mark.parametrize("caught", [True, False])
def test_a_generator_in_a_loop_that_an_exception_leaves(caught: bool) -> None:
    """It ends before the handler runs, each time: whoever began the loop holds no state of it."""
    seen: list[Any] = []

    def items(x: Any) -> Any:
        try:
            yield seen.append("first") or given(x)
            yield (x, x)
        finally:
            seen.append("closed")

    @contextlib.contextmanager
    def scope() -> Any:
        try:
            yield
        except TypeError:
            seen.append("out")

    def fn(x: Any) -> Any:
        if caught:
            try:
                for v in items(x):
                    v = torch.relu(v)
            except TypeError:
                seen.append("handler")
        else:
            with scope():
                for v in items(x):
                    v = v.relu() if len(v) == 3 else torch.relu(v)
        return x + 1

    run = pliant.compile(fn, strict=True)
    said = []
    for f in (fn, run, run, run):
        seen.clear()
        f(torch.ones(3))
        said.append(list(seen))
    assert said[1:] == said[:1] * 3


def test_a_generator_in_a_loop_behind_an_exception_that_is_kept() -> None:
    """The traceback of an exception that the program keeps holds no iterator of a loop."""
    seen: list[Any] = []

    def items(x: Any) -> Any:
        try:
            yield given(x)
            yield (1, 2)
        finally:
            seen.append("closed")

    def refuse(n: int) -> None:
        if n % 3 == 0:
            raise ValueError(n)

    def fn(x: Any) -> Any:
        for v in items(x):
            try:
                refuse(len(v[torch.ones_like(x, dtype=torch.bool)]))
            except ValueError as e:
                kept = e
        return kept

    run = pliant.compile(fn, strict=True)
    said = []
    for f in (fn, run, run, run):
        seen.clear()
        try:
            f(torch.ones(3))
        except TypeError:
            said.append(list(seen))
    assert said == [["closed"]] * 4


def test_handlers_behind_breaks_leave_no_cycles() -> None:
    class Held:
        pass

    made: list[Any] = []

    def fn(x: Any) -> Any:
        held = Held()
        made.append(weakref.ref(held))
        try:
            return fails(x)
        except ValueError:
            return x + 1

    run = pliant.compile(fn, strict=True)
    gc.disable()
    try:
        for _ in range(3):
            run(torch.ones(3))
    finally:
        gc.enable()
    assert [ref() for ref in made] == [None] * 3


def overwritten(x: Any) -> Any:
    t = x * 2
    ref = weakref.ref(t, lambda r: SEEN.append("gone"))
    SEEN.append("held")
    t = x + 1
    SEEN.append("after")
    return t, ref


def deleted_behind_a_loop(x: Any) -> Any:
    refs = []
    for i in range(3):
        t = x * i
        refs.append(weakref.ref(t, lambda r, i=i: SEEN.append(i)))
    del t
    SEEN.append("after")
    return x + 1, refs


def rows_let_go_of(x: Any) -> Any:
    refs = []
    for t in x:
        refs.append(weakref.ref(t, lambda r: SEEN.append(len(SEEN))))
    t = None
    SEEN.append("after")
    return x + 1, refs, t


@pytest.mark.parametrize("f", [overwritten, deleted_behind_a_loop, rows_let_go_of])
def test_tensors_whose_end_is_heard(f: Callable) -> None:
    said = []
    for run in (f, compiled(f)):
        for n in (3, 3, 4):
            SEEN.clear()
            out = run(torch.ones(n))
            SEEN.append("returned")
            del out
            said.append(list(SEEN))
    assert said[:3] == said[3:]


class Told:
    def __init__(self, name: str) -> None:
        self.name = name

    def __del__(self) -> None:
        SEEN.append(self.name)


def locals_in_order(x: Any) -> Any:
    second = None
    first, second, third = Told("first"), Told("second"), Told("third")
    SEEN.append("end")
    return x + 1 if first and third else second


def a_reference_behind_what_it_watches(x: Any) -> Any:
    t = x * 2
    ref = weakref.ref(t, lambda r: SEEN.append("gone"))
    SEEN.append("end")
    return x + 1 if ref else t


def in_a_method_and_its_caller(x: Any) -> Any:
    class Layer:
        def run(self, x: Any) -> Any:
            first, second = Told("inner first"), Told("inner second")
            ref = weakref.ref(first, lambda r: SEEN.append("gone"))
            return x * 2 if second and ref else x

    outer, layer = Told("outer"), Layer()
    last = Told("last")
    y = layer.run(x)
    SEEN.append("end")
    return y + 1 if outer and last else y


@pytest.mark.parametrize("f", [locals_in_order, a_reference_behind_what_it_watches, in_a_method_and_its_caller])
def test_a_frame_lets_go_of_its_locals_in_order(f: Callable) -> None:
    said = []
    for run in (f, compiled(f)):
        for n in (3, 3, 4):
            SEEN.clear()
            run(torch.ones(n))
            said.append(list(SEEN))
    assert said[:3] == said[3:]
