"""What tensors hold in their `__dict__`: attributes set, read, deleted, taken together; of tensors from outside, made here, of classes."""

from __future__ import annotations

import copy

import pytest
import torch

import pliant


class Noted(torch.Tensor):
    """A class as medical libraries have them: what is known of a picture goes along with it."""

    unit = "mm"

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, Noted):
            out.carry([a for a in args if isinstance(a, Noted)])
        return out

    def carry(self, others):
        for other in others[:1]:
            self.__dict__.update({k: copy.copy(v) for k, v in other.__dict__.items()})

    def note(self):
        return self.__dict__.get("_note", "nothing")


def noted(n, **held):
    x = torch.arange(float(n)).as_subclass(Noted)
    x.__dict__.update(held)
    return x


def plain(n, **held):
    x = torch.arange(float(n))
    x.__dict__.update(held)
    return x


def read_whole(x):
    return x * x.__dict__["scale"], sorted(x.__dict__)


def of_vars(x):
    return x + vars(x).get("shift", 1)


def updated(x):
    y = x + 1
    y.__dict__.update({"a": 2, "b": x})
    return y * y.a, y, y.b is x


def given(x):
    y = x * 2
    y.__dict__ = {k: v for k, v in x.__dict__.items()}
    y.more = 3
    return y


def given_and_kept(x):
    d = {"a": 1}
    y = x * 2
    y.__dict__ = d
    d["b"] = 2
    return y, y.b, d, y.__dict__ is d


def the_dict_itself(x):
    y = x * 2
    d = y.__dict__
    d["a"] = x
    y.b = y
    return y, d, d is y.__dict__


def written_from_outside(x):
    x.__dict__["calls"] = x.__dict__.get("calls", 0) + 1
    x.last = x.sum()
    return x + 1


def deleted(x):
    y = x + 1
    y.a, y.b = 1, 2
    del y.a
    del x.scale
    return y, hasattr(y, "a"), hasattr(x, "scale"), hasattr(y, "b")


def deleted_twice(x):
    y = x + 1
    y.a = 1
    del y.a
    try:
        del y.a
    except AttributeError as e:
        return y, str(e)


def only_temporaries(x):
    y = x + 1
    y.tag = "between"
    return y * 2


def method_hidden(x):
    y = x + 1
    y.sum = lambda: 7
    return y.sum(), x.sum()


def through_a_break(x):
    y = x + 1
    y.__dict__.update({"a": 2})
    pliant.graph_break()
    y.__dict__["c"] = y.a + 1
    return y * y.c, y


def on_one_side(x):
    y = x + 1
    if x.sum() > 2:
        y.big = True
    return y, hasattr(y, "big")


def carried(x):
    return (x + 1) * 2, x.note(), x.unit


PROGRAMS = {f.__name__: f for f in (
    read_whole, of_vars, updated, given, given_and_kept, the_dict_itself, written_from_outside, deleted, deleted_twice, only_temporaries,
    method_hidden, through_a_break, on_one_side,
)}  # fmt: skip
HELD = {"scale": 3, "_note": ["taken", 1]}


def shown(v, seen=()):
    """A value and what its tensors hold."""
    if isinstance(v, torch.Tensor):
        held = None if id(v) in seen else shown(v.__dict__, (*seen, id(v)))
        return type(v), v.as_subclass(torch.Tensor).tolist(), held
    if isinstance(v, dict):
        return {k: shown(x, seen) for k, x in v.items() if not callable(x)}
    return [shown(x, seen) for x in v] if isinstance(v, (list, tuple)) else v


@pytest.mark.parametrize("make", [plain, noted])
@pytest.mark.parametrize("name", PROGRAMS)
def test_attributes_of_tensors(name, make):
    f = PROGRAMS[name]
    compiled = pliant.compile(f, strict=True)
    for n, held in ((3, HELD), (5, HELD), (4, {"scale": 2, "shift": 4}), (3, HELD), (1, HELD)):
        mine, theirs = make(n, **held), make(n, **held)
        assert shown(compiled(mine)) == shown(f(theirs))
        assert shown(mine) == shown(theirs)


UNBROKEN = "read_whole of_vars updated given given_and_kept the_dict_itself only_temporaries deleted".split()


@pytest.mark.parametrize("name", UNBROKEN)
def test_without_graph_breaks(name):
    f = PROGRAMS[name]
    pliant.reset()
    compiled = pliant.compile(f, strict=True, fullgraph=True)
    for n in (3, 5, 4):
        compiled(plain(n, **HELD))
    assert pliant.stats()["captures"] == 1


def test_a_class_that_carries_its_notes():
    pliant.reset()
    compiled = pliant.compile(carried, strict=True, fullgraph=True)
    for n, held in ((3, HELD), (5, HELD), (4, {"_note": ["other"]}), (3, {})):
        assert shown(compiled(noted(n, **held))) == shown(carried(noted(n, **held)))
    assert pliant.stats()["graph_breaks"] == 0


def test_an_attribute_hides_what_the_class_has():
    """Whether it does is guarded."""

    def f(x):
        return x + 1, x.unit

    compiled = pliant.compile(f, strict=True)
    assert compiled(noted(3))[1] == "mm"
    assert compiled(noted(3, unit="cm"))[1] == "cm"
    assert compiled(noted(3))[1] == "mm"


class Box:
    def __init__(self, a):
        self.a = a


@pytest.mark.parametrize("make", [lambda a: Box(a), lambda a: plain(2, a=a)])
def test_a_dict_met_before_its_owner(make):
    """Reading an owner's dict as a dict first does not take it for the owner's in later calls."""

    def f(x, d, owner):
        return x * d["a"] + owner.a

    compiled = pliant.compile(f, strict=True)
    x, one, two = torch.ones(3), make(2), make(7)
    for owner in (one, two):
        for other in (one, two, one):
            assert torch.equal(compiled(x, other.__dict__, owner), f(x, other.__dict__, owner))


def to_parts(x):
    c = torch.zeros(x.shape[0], dtype=torch.complex64)
    c.real = x
    c.imag = x * 2
    return c, c.abs()


def to_itself(x):
    x.real = 3
    return x + 1


def numbers(x):
    c = torch.zeros(x.shape[0], dtype=torch.complex64)
    c.real = 2.5
    c.imag = True
    return c * x


def of_no_complex(x):
    x.imag = x
    return x


def of_another_shape(x):
    c = torch.zeros(3, dtype=torch.complex64)
    c.real = x
    return c


def of_what_has_gradients(x):
    c = torch.complex(x, x) * 1
    c.imag = x**2
    return (c * c.conj()).real.sum()


@pytest.mark.parametrize("fn", [to_parts, to_itself, numbers, of_no_complex, of_another_shape, of_what_has_gradients])
def test_parts_of_complex_tensors_are_assigned(fn):
    compiled, before = pliant.compile(fn, backend="aten"), pliant.stats()["graph_breaks"]
    for n in (3, 4, 5):
        x = torch.linspace(-1, 2, n, requires_grad=fn is of_what_has_gradients)
        y = x.detach().clone().requires_grad_(x.requires_grad)
        found = []
        for f, v in ((fn, x), (compiled, y)):
            try:
                found.append(f(v))
            except RuntimeError as e:
                found.append(str(e))
        assert repr(found[0]) == repr(found[1]) or x.requires_grad and torch.equal(*found)
        assert torch.equal(x, y) and x._version == y._version
        if x.requires_grad:
            [r.backward() for r in found]
            assert torch.equal(x.grad, y.grad)
    assert pliant.stats()["graph_breaks"] == before
