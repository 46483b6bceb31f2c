"""Attributes of classes of tensors that have other bases, and descriptors of their own; caches keyed by functions of C."""

from __future__ import annotations

import functools

import torch

from tests import helpers


class Meta:
    """What some libraries put beside `torch.Tensor`: a class of Python has a `__dict__` descriptor of its own."""

    def copy_from(self, other):
        held = other.__dict__
        keys = held.keys()
        self.__dict__.update({k: held[k] for k in keys})
        self.names = sorted(keys)
        return self


class Image(Meta, torch.Tensor):
    @staticmethod
    def __new__(cls, x, meta=None):
        return torch.as_tensor(x).as_subclass(cls)

    def __init__(self, x, meta=None):
        self.meta = meta or {"n": 1}
        self.copy_from(self)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, Image):
            out.__dict__.update({"meta": {"n": 2}})
        return out


def test_the_dict_of_a_tensor_is_not_that_of_a_class():
    def fn(x):
        m = Image(x)
        y = m * 2
        return y.as_subclass(torch.Tensor), m.meta, y.meta, sorted(m.__dict__), m.names, vars(m)["meta"], Image(y, {"n": 3}).meta

    compiled = helpers.compiled(fn)
    for n in (3, 4, 5, 1):
        x = torch.randn(n)
        got, want = compiled(x), fn(x)
        assert torch.equal(got[0], want[0]) and got[1:] == want[1:]


class Tripled:
    def __get__(self, obj, cls):
        return None if obj is None else obj.sum() * 3


class Described(torch.Tensor):
    tripled = Tripled()
    twice = functools.cached_property(lambda self: self * 2)
    plus = torch.Tensor.add
    times_four = functools.partialmethod(torch.Tensor.mul, 4)
    number = 7


def test_descriptors_of_a_class_of_tensors():
    def fn(x):
        return x.tripled + 1, x.twice, x.times_four(), x.plus(2), x.number

    compiled = helpers.compiled(fn)
    for n in (3, 4, 5):
        x = torch.randn(n).as_subclass(Described)
        got, want = compiled(x), fn(x)
        assert [type(v) for v in got] == [type(v) for v in want]
        torch.testing.assert_close([torch.as_tensor(v) for v in got], [torch.as_tensor(v) for v in want])


@functools.lru_cache(None)
def named(fn):
    return fn.__name__


def test_caches_keyed_by_functions_of_c():
    def fn(x, f):
        return f(x), named(f)

    compiled = helpers.compiled(fn)
    for i in range(12):
        f = (torch.sin, torch.Tensor.cos, torch.Tensor.exp, torch.relu)[i % 4]
        x = torch.randn(3 + i % 3)
        got, want = compiled(x, f), fn(x, f)
        torch.testing.assert_close(got[0], want[0])
        assert got[1] == want[1]
