"""What perturbations found: each a thing that changed, or a break where something still had to happen behind it."""

from __future__ import annotations

import functools

import pytest
import torch

from tests.helpers import check, check_world, compiled, pliant
from tests.programs.registry import t


def test_keyword_only_defaults_are_read_again():
    """Their dict can be written; FUNCTION guards which dict it is."""

    class Own:
        def __call__(self, x, *, mode="a", k=2):
            return x * k, mode

    own = Own()
    fn = compiled(lambda x: own(x))
    assert fn(t(3))[1] == "a"
    Own.__call__.__kwdefaults__["mode"] = "b"
    assert fn(t(3))[1] == "b"
    Own.__call__.__kwdefaults__["k"] = 5
    assert torch.equal(fn(t(3))[0], t(3) * 5)
    del Own.__call__.__kwdefaults__["k"]
    with pytest.raises(TypeError):
        fn(t(3))


class Cached:
    def __init__(self, x):
        self.x = x

    @functools.cached_property
    def twice(self):
        pliant.graph_break()
        return self.x * 2


def test_cached_property_that_breaks_is_kept():
    def fn(x):
        c = Cached(x)
        return c.twice, c.twice is c.twice, list(c.__dict__)

    check(fn, (t(3),), (t(4),))


class Fallback:
    @property
    def here(self):
        pliant.graph_break()
        raise AttributeError("not here")

    def __getattr__(self, name):
        return name + "!"


def test_getattr_after_a_property_that_breaks():
    check(lambda x: (x + 1, Fallback().here), (t(3),))


def test_output_before_a_write_to_shared_memory():
    """PyTorch refuses to write to an expanded tensor: what the program did before that has happened."""

    def fn(x):
        print("before")
        x.add_(1)
        return x

    check_world(lambda: (fn, ()), (t(3),), (t(1).expand(3),))


@pytest.mark.parametrize("make", [lambda x: x.long(), lambda x: x.bool(), lambda x: x[:, :0], lambda x: x.to(torch.complex64)])
def test_resizing_what_kernels_refuse(make):
    def fn(x, s):
        return torch.nn.functional.interpolate(x, scale_factor=s, mode="bilinear") * 2

    check(fn, (t(1, 1, 4, 4), 1.5), (make(t(1, 1, 4, 4)), 1.5))


def test_strides_of_copies_of_nothing():
    """A tensor without elements counts as dense, whatever its strides are."""

    def fn(x):
        return torch.empty_like(x).stride(), x.clone().stride(), x.double().stride(), x.clone()

    check(fn, (torch.ones(3, 4).t().narrow(0, 0, 0).clone(),))


def test_method_of_tensors_replaced_by_one_that_calls_it(monkeypatch):
    original = torch.Tensor.sum
    fn = lambda x: x.sum(-1) * x.dim()  # noqa: E731
    run = compiled(fn)
    x = t(2, 3)
    assert torch.equal(run(x), fn(x))
    monkeypatch.setattr(torch.Tensor, "sum", lambda self, *args: original(self, *args) + 1)
    assert torch.equal(run(x), fn(x))
    monkeypatch.undo()
    assert torch.equal(run(x), fn(x))


def test_absolute_value_of_a_tensor():
    check(lambda x: abs(x), (t(3),))


def test_refused_operators_name_the_types_of_the_program():
    def fn(x, n, f):
        said = []
        for op in (lambda: None * n, lambda: f - "s", lambda: n < "s", lambda: None >= f, lambda: "s" + n):
            try:
                op()
            except TypeError as e:
                said.append(str(e))
        return x + n, said

    check(fn, *[(t(3), n, n / 2) for n in (2, 3, 4, 5)])


class Left:
    pass


class Right:
    def go(self, x):
        return x + 1


class Both(Left, Right):
    def go(self, x):
        return super().go(x) * 2


def test_super_passes_over_a_class_that_may_be_given_the_method(monkeypatch):
    both = Both()
    fn = compiled(lambda x: both.go(x))
    assert torch.equal(fn(t(3)), (t(3) + 1) * 2)
    monkeypatch.setattr(Left, "go", lambda self, x: x * 7, raising=False)
    assert torch.equal(fn(t(3)), t(3) * 14)
    monkeypatch.undo()
    assert torch.equal(fn(t(3)), (t(3) + 1) * 2)


def test_super_after_other_bases():
    class A:
        def go(self, x):
            return x + 1

    class B:
        def go(self, x):
            return x - 5

    class Own:
        pass

    class C(Own, A):
        def go(self, x):
            return super().go(x)

    c = C()
    fn = compiled(lambda x: c.go(x))
    assert torch.equal(fn(t(3)), t(3) + 1)
    C.__bases__ = (Own, B)
    assert torch.equal(fn(t(3)), t(3) - 5)


def test_hook_of_subclasses_given_later():
    seen = []

    class Base:
        pass

    def fn(x):
        class Made(Base):
            pass

        return x + 1

    run = compiled(fn)
    run(t(3))
    Base.__init_subclass__ = classmethod(lambda cls, **k: seen.append(cls.__name__))
    run(t(3))
    assert seen == ["Made"]
