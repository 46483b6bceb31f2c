"""Attributes that types themselves tell: of classes, methods, tensors and parameters, objects of C."""

from __future__ import annotations

import collections
import functools
import operator
import re
import types

import pytest
import torch

from tests.helpers import compiled
from tests.programs.registry import cases, each, program, t

ROWS = each(3, 5, 2, tail=(4,))


class Scaled:
    """Scales."""

    def __init__(self, v):
        self.v = v

    def times(self, x):
        """Times it."""
        return x * self.v

    @classmethod
    def named(cls, x):
        return cls.__name__, x


HELD = Scaled(3)
PARAMETER = torch.nn.Parameter(torch.ones(2))
TENSOR = torch.ones(2)


# -- methods: what their type has comes before what their function has -----------------------------------------------------
@program(*ROWS, breaks=0)
def methods_called_by_their_slot(x):
    return HELD.times.__call__(x), Scaled(x).times.__call__(x), Scaled.named.__call__(x), HELD.times.__get__(1)(x)


@program(*ROWS, breaks=0)
def classes_of_methods(x):
    return x, HELD.times.__class__, Scaled(x).times.__class__.__name__, isinstance(Scaled.named, HELD.times.__class__)


@program(*ROWS, breaks=0)
def methods_compared_by_their_slot(x):
    return x, HELD.times.__eq__(HELD.times), HELD.times.__ne__(HELD.named), HELD.times.__eq__(1), HELD.times == HELD.times


@program(*ROWS, breaks=0)
def what_methods_have_of_their_function(x):
    m = Scaled(x).times
    return x, m.__name__, m.__doc__, m.__qualname__, m.__module__, m.__defaults__, m.__dict__, m.__func__ is Scaled.times


@program(*ROWS)
def texts_of_methods(x):
    return x, Scaled.named.__repr__(), Scaled.named.__str__(), repr(Scaled.named), HELD.times.__hash__() == hash(HELD.times)


@program(*ROWS, breaks=0)
def methods_that_are_wrapped(x):
    @functools.wraps(HELD.times)
    def f(v):
        return HELD.times(v) + 1

    return f(x), f.__name__, f.__doc__, f.__wrapped__.__class__.__name__


# -- tensors: nothing of what stands for them ------------------------------------------------------------------------------
@program(*ROWS, breaks=0)
def what_classes_tell_of_tensors(x):
    made = x + 1
    told = [(v.__module__, v.__doc__, sorted(v.__annotations__), v.__torch_dispatch__) for v in (x, made, TENSOR)]
    return made, told, PARAMETER.__module__, PARAMETER.__doc__[:9], hasattr(x, "__slots__"), hasattr(PARAMETER, "__slots__")


@program(*ROWS, breaks=0)
def functions_of_tensors(x):
    return x, x.__torch_function__.__func__ is torch.Tensor.__torch_function__.__func__, PARAMETER.__torch_function__


@program(*ROWS)
def texts_of_tensors(x):
    return x, TENSOR.__str__(), TENSOR.__repr__(), PARAMETER.__str__(), PARAMETER.__repr__(), f"{PARAMETER}", x.__str__()


@program(*ROWS)
def tensors_taken_apart(x):
    return x, PARAMETER.__reduce_ex__(2)[0].__name__, TENSOR.__reduce_ex__(2)[0].__name__


@program(*ROWS)
def parameters_copied_by_their_slot(x):
    memo = {}
    made = PARAMETER.__deepcopy__(memo)
    return x + made[0], type(made), made.requires_grad, len(memo)


def documented():
    v = torch.ones(2)
    v.__doc__ = "held"
    return v


@program((documented(), t(2)), (t(2), documented()), (documented(), documented()), (t(2), t(2)))
def tensors_that_hold_one_themselves(x, y):
    return x.__doc__, y.__doc__, x + y


@program(*ROWS, breaks=0)
def what_newer_classes_tell_of_tensors(x):
    told = [getattr(v, name, None) for v in (x, x + 1, PARAMETER) for name in ("__firstlineno__", "__static_attributes__")]
    return x, told, sorted(PARAMETER.__annotations__)


@program(*ROWS)
def what_modules_with_a_hook_do_not_have(x):
    return x, [hasattr(m, name) for m in (types, torch, operator) for name in ("__module__", "__qualname__", "mro", "__base__", "nothing")]


# -- objects of C are named with their modules where they have no such attribute --------------------------------------------
@program(*ROWS)
def what_is_not_there(x):
    things = (
        collections.deque([1]), collections.OrderedDict(a=1), collections.defaultdict(int), functools.partial(len), re.compile("a"),
        operator.itemgetter(1), HELD, collections.Counter("a"), [1], functools.lru_cache(len), (1).__add__,
    )  # fmt: skip
    said = []
    for o in things:
        try:
            said.append(o.nothing)
        except AttributeError as e:
            said.append(str(e))
    return said, x + 1


@pytest.mark.parametrize("case", cases(__name__), ids=repr)
def test_program(case):
    case.run()


class NamedByHand:
    __name__ = "torch"
    __module__ = "mine"
    __doc__ = "words"
    mro = 3


class Under(NamedByHand):
    pass


class Meta(type):
    other = "of the class of the class"

    @property
    def tag(cls):
        return "told by the class of the class"


class OfMeta(metaclass=Meta):
    tag = "of the class"
    other = "of the class"


def test_names_that_classes_of_classes_have_too():
    """What an instance is told of `__name__` and the like lies in its class, whatever the class itself is told of them."""

    def fn(o, x):
        t = type(o)
        if isinstance(o, OfMeta):
            return x + 1, o.tag, o.other, t.tag, t.other, Meta.other
        return x + o.mro, o.__name__, o.__doc__, o.__module__, t.__name__, t.__doc__

    run = compiled(fn, backend="aten")
    changes = [
        (NamedByHand, "__doc__", "other words"), (NamedByHand, "mro", 9), (Meta, "other", "meta"), (OfMeta, "other", "class"),
        (NamedByHand, "__module__", "elsewhere"), (NamedByHand, "__name__", "Renamed"), (Under, "__name__", "Under2"), (Under, "mro", 4),
    ]  # fmt: skip
    for cls, name, value in [(object, "", ""), *changes]:
        if name:
            setattr(cls, name, value)
        for o in (NamedByHand(), Under(), OfMeta()):
            want, got = fn(o, torch.ones(3)), run(o, torch.ones(3))
            assert torch.equal(want[0], got[0]) and want[1:] == got[1:]
