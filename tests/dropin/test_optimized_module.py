"""What `torch.compile` gives for a module while pliant is installed is an `OptimizedModule` for libraries that ask."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
import torch._dynamo
from torch import nn
from torch._dynamo import OptimizedModule
from torch.distributed.checkpoint.state_dict import get_model_state_dict

import pliant


class Scaled(nn.Module):
    """With a method that a trainer calls, one that makes another module, and a list of who was told of subclasses."""

    told: list[str] = []

    def __init__(self, by: float = 2.0) -> None:
        super().__init__()
        self.by = nn.Parameter(torch.tensor(by))

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        Scaled.told.append(cls.__name__)

    def forward(self, x):
        return x * self.by

    def training_step(self, x):
        return (self(x) + x.sin()).sum()

    def another(self, by):
        return self.__class__(by)


@pytest.fixture
def installed():
    with pliant.install():
        yield


X = torch.tensor([1.0, 3.0])


def test_it_is_one_and_keeps_its_own_class(installed):
    model = Scaled()
    made = torch.compile(model)
    assert isinstance(made, OptimizedModule) and isinstance(made, Scaled) and isinstance(made, nn.Module)
    assert made.__class__.__name__ == "Scaled" and issubclass(made.__class__, Scaled)
    assert made.__class__ is made.__class__ and made._orig_mod is model
    assert torch.equal(made(X), X * 2) and type(made).forward is Scaled.forward
    assert not isinstance(model, OptimizedModule)
    assert bool(made) and not hasattr(made, "__len__")
    assert list(made.state_dict()) == ["by"] and list(get_model_state_dict(made)) == ["by"]


def test_what_pliant_compiles_for_itself_is_none():
    assert not isinstance(pliant.compile(Scaled()), OptimizedModule)


@pytest.mark.parametrize("make", [lambda made, by: type(made)(by), lambda made, by: made.__class__(by), lambda made, by: made.another(by)])
@pytest.mark.parametrize("compile", [pliant.compile, torch.compile])
def test_another_one_of_its_class_is_not_compiled_and_itself(installed, compile, make):
    if compile is not pliant.compile:
        compile = torch.compile
    made = compile(Scaled())
    made(X)
    other = make(made, 5.0)
    assert type(other) is Scaled and torch.equal(other(X), X * 5) and torch.equal(made(X), X * 2)


def test_one_that_is_not_initialised(installed):
    made = torch.compile(Scaled())
    bare = made.__class__.__new__(made.__class__)  # as `accelerate` makes one
    bare.__dict__.update(copy.deepcopy(made._orig_mod).__dict__)
    assert type(bare) is Scaled and torch.equal(bare(X), X * 2)


def test_classes_of_the_program_hear_of_no_other(installed):
    Scaled.told.clear()
    torch.compile(Scaled())(X)
    isinstance(torch.compile(Scaled()), OptimizedModule)
    assert Scaled.told == []

    class Own(type(torch.compile(Scaled()))):
        pass

    assert Scaled.told == ["Own"]


def test_other_functions_are_compiled_alike(installed):
    model = Scaled()
    made = torch.compile(model)
    before = pliant.stats()["captures"]
    model.training_step = made.dynamo_ctx(model.training_step)
    want = (X * 2 + X.sin()).sum()
    torch.testing.assert_close(model.training_step(X), want)
    assert pliant.stats()["captures"] == before + 1


def test_compiled_again(installed):
    made = torch.compile(Scaled(), fullgraph=True, dynamic=True)
    assert made._compile_kwargs == {"fullgraph": True, "dynamic": True}
    again = torch.compile(made._orig_mod, **made._compile_kwargs)
    assert isinstance(again, OptimizedModule) and torch.equal(again(X), X * 2)
    made._compile_kwargs = {}
    assert made._compile_kwargs == {}


def test_as_a_decorator(installed):
    assert isinstance(torch.compile(dynamic=True)(Scaled()), OptimizedModule)


@pytest.mark.parametrize("way", [copy.copy, copy.deepcopy, lambda made: pickle.loads(pickle.dumps(made))])
def test_copies_are_ones(installed, way):
    made = way(torch.compile(Scaled()))
    assert isinstance(made, OptimizedModule) and torch.equal(made(X), X * 2)


def test_given_another_module(installed):
    made = torch.compile(Scaled())
    made(X)
    made._orig_mod = made._orig_mod
    assert torch.equal(made(X), X * 2)
    other = Scaled(7.0)
    made._orig_mod = other
    assert torch.equal(made(X), X * 7) and made.by is other.by and made._orig_mod is other
    with pytest.raises(TypeError, match="compile that one"):
        made._orig_mod = nn.Linear(1, 1)


def test_given_another_class(installed):
    made = torch.compile(Scaled())

    class Mixed(made.__class__):
        def extra(self):
            return 3

    assert isinstance(made, OptimizedModule)
    made.__class__ = Mixed
    assert made.extra() == 3 and torch.equal(made(X), X * 2) and isinstance(made, Scaled)


def test_inside_of_what_is_compiled(installed):
    made = torch.compile(Scaled())

    def f(x):
        told = (isinstance(made, Scaled), isinstance(made, OptimizedModule), type(made) is Scaled, len(made.__class__.__name__))
        return made(x) + sum(told), told

    assert torch.compile(f, fullgraph=True)(X)[1] == f(X)[1] == (True, True, False, 6)
    assert torch.equal(torch.compile(f)(X)[0], f(X)[0])


class Doubled(nn.Module):
    def forward(self, w):
        return w * 2


@pytest.mark.parametrize("compile", ["pliant", "torch"])
def test_parametrized(installed, compile):
    model = nn.Linear(2, 2)
    made = (pliant.compile if compile == "pliant" else torch.compile)(model)
    weight, plain = model.weight.detach().clone(), made(X)
    torch.nn.utils.parametrize.register_parametrization(made, "weight", Doubled())
    want = nn.functional.linear(X, weight * 2, model.bias)
    assert torch.equal(made.weight, weight * 2) and torch.nn.utils.parametrize.is_parametrized(made, "weight")
    torch.testing.assert_close(made(X), want)
    torch.testing.assert_close(model(X), want)
    torch.nn.utils.parametrize.remove_parametrizations(made, "weight", leave_parametrized=False)
    assert type(model) is nn.Linear and torch.equal(made.weight, weight)
    torch.testing.assert_close(made(X), plain)
