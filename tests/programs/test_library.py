"""The standard library at work in compiled code: what asks its own caches, registries and frames for an answer.

PYTEST_DONT_REWRITE: the programs keep their own asserts.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import logging
import operator
import types
import typing
from collections import deque

import pytest
import torch

from tests.helpers import Observed
from tests.programs.registry import cases, each, program

ROWS = each(3, 5, 2, 3, tail=(4,))


@dataclasses.dataclass
class State:
    h: torch.Tensor
    step: int = 0
    log: list = dataclasses.field(default_factory=list)


@program(*ROWS, world=True, breaks=0)
def states_as_dicts():
    s, recent = State(torch.zeros(4)), deque(maxlen=2)

    def fn(x):
        s.h = s.h + x.sum(0)
        s.log.append(x.shape[0])
        recent.append(x.mean())
        return s.h, sum(recent), dataclasses.replace(s, step=5).step, dataclasses.asdict(s)["h"], dataclasses.astuple(s)[1]

    return fn, Observed(lambda: (s, recent))


@program(*ROWS, breaks=0)
def deep_copies_of_tensors(x):
    y = x + 1
    a = copy.deepcopy({"x": x, "rest": [y, y, 3]})
    a["x"].add_(1)
    a["rest"][0].mul_(2)
    return a, x, y, a["rest"][0] is a["rest"][1], a["x"] is x, copy.deepcopy(x), copy.deepcopy(y)


@program(*ROWS)
def deep_copies_of_memory(x):
    """What shares memory still shares it in the copy; what begins in the middle of its memory does so there."""
    a, b, c = copy.deepcopy([x, x.view(-1), x[1:]])
    a.add_(1)
    return a, b, c, copy.deepcopy(x[1:]), x


@program(*ROWS, breaks=0, captures=1)
def exit_stacks(x):
    log = []

    @contextlib.contextmanager
    def scope(n):
        log.append(f"in{n}")
        try:
            yield n
        except ValueError as e:
            log.append(str(e))
        finally:
            log.append(f"out{n}")

    with contextlib.ExitStack() as stack:
        values = [stack.enter_context(scope(i)) for i in range(3)]
        stack.callback(log.append, "called")
        x = x + values[2]
        raise ValueError("v")
    with contextlib.ExitStack() as stack:
        stack.push(lambda kind, e, tb: log.append(kind) or True)
        stack.enter_context(contextlib.suppress(KeyError))
        raise TypeError
    return x, log, values


@program(*ROWS, breaks=0)
def exceptions_out_of_stacks(x):
    def fails(n):
        raise RuntimeError(n)

    try:
        with contextlib.ExitStack() as stack:
            stack.callback(fails, 1)
            stack.callback(fails, 2)
            raise ValueError("inner")
    except RuntimeError as e:
        return x + 1, e.args, e.__context__.args, type(e.__context__.__context__), e.__context__.__context__.__context__


@functools.singledispatch
def kind(v):
    return "object"


@kind.register
def _(v: int):
    return "int", v + 1


@kind.register(list)
def _(v):
    return "list", [kind(x) for x in v]


@kind.register(torch.Tensor)
def _(v):
    return "tensor", v + 1


class Method:
    @functools.singledispatchmethod
    def of(self, v):
        return v

    @of.register
    def _(self, v: str):
        return v + "!"


@program(*ROWS, breaks=0, captures=1)
def single_dispatch(x):
    return kind(x), kind([x, 2]), kind(2), kind("s"), kind(True)


@program(*ROWS, breaks=0, captures=1)
def single_dispatch_of_methods(x):
    return Method().of("a"), Method().of(x)


class Further(Method):
    def of(self, v):
        return super().of(v), len(str(v))


METHOD = Method()


@program(*ROWS, breaks=0, captures=1)
def single_dispatch_through_super(x):
    try:
        Method().of()
    except (TypeError, IndexError) as e:  # an IndexError up to 3.12
        said = type(e), e.args
    return Further().of("a"), Further().of(3), METHOD.of(x), METHOD.of("b"), said


@program(*ROWS)
def single_dispatch_bound_and_kept(x):
    """3.13.0 binds an object once, by a dict of weak references; others each time."""
    f = METHOD.of
    return f("a"), f(x), f is METHOD.of, METHOD.of is METHOD.of, f.__name__


class Named:
    def __init__(self, log):
        self.log = log

    @functools.singledispatchmethod
    def of(self, v):
        return v

    def __hash__(self):
        self.log.append("hash")
        return 1


@program(*ROWS, world=True)
def single_dispatch_of_what_tells_its_hash():
    log = []
    o = Named(log)
    return lambda x: o.of(x), Observed(lambda: log)


T_ = typing.TypeVar("T_")


class Boxed(typing.Generic[T_]):
    def __init__(self, v):
        self.v = v


@program(*ROWS, breaks=0, captures=1)
def generic_classes_asked_by_name(x):
    try:
        Boxed.__class_getitem__((int, str))
    except TypeError as e:
        said = str(e)
    return Boxed.__class_getitem__(int)(x).v, Boxed[int](x).v, Boxed.__class_getitem__((int,)) == Boxed[int], said


@program(*ROWS, breaks=0)
def other_classes_asked_by_name(x):
    return list.__class_getitem__(int) == list[int], dict[str, int].__origin__ is dict, type[int].__args__ == (int,), x + 1


class Late:
    pass


def registering(i, state):
    state.space.more(i)


@program(*ROWS, world=True, breaks=0, before=registering)
def single_dispatch_registered_later():
    @functools.singledispatch
    def f(v):
        return "object"

    calls = []

    def fn(x):
        calls.append(x.shape[0])
        return f(Late()), f(x), x + 1

    def more(i):
        if i == 1:
            f.register(Late, lambda v: "late")
        if i == 2:
            f.register(torch.Tensor, lambda v: v * 2)

    return fn, Observed(lambda: calls, types.SimpleNamespace(more=more))


@program(*ROWS, breaks=0, captures=1)
def annotations(x):
    def f(v: int | None = None) -> typing.Optional[int]:  # noqa: UP045
        return v

    made = typing.Union[int, str]  # noqa: UP007
    return f(3), f.__annotations__, made == typing.Union[str, int], typing.get_args(made), typing.List[int], x + 1  # noqa: UP006, UP007


@program(*ROWS, breaks=0)
def loggers(x):
    logging.getLogger("program").info("n=%d", x.shape[0])
    log = logging.getLogger("program.inner")
    log.warning("rows")
    return x + 1, log.name, log is logging.getLogger("program.inner"), logging.getLogger("program.fresh").name


@program(*ROWS, breaks=0, captures=1)
def tables_of_characters(x):
    return "abc".translate(str.maketrans("ab", "xy", "c")), b"ab".translate(bytes.maketrans(b"a", b"z")), x + 1, operator.index(3)


@program(*ROWS)
def symbolic_numbers_in_what_c_code_reads(x):
    return x * len("abc".translate({97: x.shape[0] + 96, 98: None})), "b".translate({98: x.shape[0] + 96})


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()
