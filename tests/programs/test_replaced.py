"""Functions of PyTorch and of Python that a program replaces: the program sees its own, pliant goes by the library's.

A world's program is called with the library as it is, with the replacement, and with the library as it was.
"""

from __future__ import annotations

import copy
import functools
import math
import operator
import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from tests.helpers import compiled, pliant
from tests.programs import worlds
from tests.programs.registry import t
from tests.programs.worlds import attribute

world = functools.partial(worlds.world, back=True)


def more(fn):
    """Answers one more than `fn`, or the opposite."""

    @functools.wraps(fn)
    def changed(*args, **kwargs):
        r = fn(*args, **kwargs)
        return not r if isinstance(r, bool) else r + 1

    return changed


@world
def item():
    return lambda x: (x.sum().item(), int(x.abs().sum()), x.tolist(), float(x[0])), *attribute(
        torch.Tensor, "item", more(torch.Tensor.item))


@world
def floor():
    return lambda x: math.floor(x.sum().item() - 0.5), *attribute(math, "floor", more(math.floor))


@world
def transpose():
    return lambda x: (x * 2, x[None].t(), x.reshape(-1), x[1:]), *attribute(torch.Tensor, "t", more(torch.Tensor.t))


@world
def transpose_that_the_graph_spells():
    """The program does not call it."""
    w = torch.ones(4, 5)
    return lambda x: F.linear(x.sum() * torch.ones(2, 5), w), *attribute(torch.Tensor, "t", more(torch.Tensor.t))


@world
def view():
    return lambda x: (x.reshape(-1), F.linear(x.new_ones(2, 3, 4), torch.ones(2, 4), torch.ones(2))), *attribute(
        torch.Tensor, "view", more(torch.Tensor.view))


@world
def addition_under_a_mode():
    class Passing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, fn, kinds, args=(), kwargs=None):
            return fn(*args, **(kwargs or {}))

    def f(x):
        with Passing():
            return x + x

    return f, *attribute(torch.Tensor, "add", more(torch.Tensor.add))


@world
def interpolation():
    return lambda x: F.interpolate(x[None, None], scale_factor=float(x.shape[0])), *attribute(F, "interpolate", more(F.interpolate))


class Other:
    default = torch.ops.aten.exp.default
    cos = torch.ops.aten.cos


@world
def operator_in_its_namespace():
    return lambda x: torch.ops.aten.sin.default(x), *attribute(torch.ops.aten, "sin", Other)


@world
def overload_of_an_operator():
    return lambda x: torch.ops.aten.erf.default(x), *attribute(torch.ops.aten.erf, "default", Other.default)


@world
def namespace_of_operators():
    return lambda x: torch.ops.prims.cos(x), *attribute(torch.ops, "prims", Other)


@world
def all_operators():
    class Operators:
        aten = Other

    return lambda x: torch.ops.aten.cos(x) + 1, *attribute(torch, "ops", Operators)


@world
def deep_copies():
    return lambda x: copy.deepcopy({"a": [x.shape[0], 2]})["a"][0], *attribute(copy, "deepcopy", lambda v, memo=None: {"a": [5]})


@world
def tensors_of_arrays():
    a = np.ones(3, dtype=np.float32)
    return lambda x: (a + 1).sum() + x, *attribute(torch, "from_numpy", more(torch.from_numpy))


@world
def subscripts():
    return lambda x: (x[0], x[x.shape[0] - 1], [x][0]), *attribute(operator, "getitem", more(operator.getitem))


@world
def made_tensors():
    def f(x):
        random.seed(3)
        return x * random.random(), torch.nn.functional.dropout(x, 0.0), torch.take_along_dim(x, torch.zeros_like(x, dtype=torch.int64), 0)

    old = torch.tensor, torch.where, torch.empty, torch.Tensor.gather

    def put(names):
        torch.tensor, torch.where, torch.empty, torch.Tensor.gather = names

    return f, lambda: put(old), lambda: put([more(g) for g in old])


@world
def floor_division():
    """A method of tensors written in Python, which calls the function by name."""
    return lambda x: (x // 2, 7 // (x.abs() + 1)), *attribute(torch, "floor_divide", more(torch.floor_divide))


@world
def is_inference():
    def f(x):
        with torch.inference_mode():
            y = x + 1
        return x * 2, y.is_inference(), torch.is_inference_mode_enabled()

    old = torch.Tensor.is_inference, torch.is_inference_mode_enabled

    def put(names):
        torch.Tensor.is_inference, torch.is_inference_mode_enabled = names

    return f, lambda: put(old), lambda: put([more(g) for g in old])


class Own(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return super().__torch_function__(func, types, args, kwargs or {})


@world
def as_subclass():
    def f(x):
        y = x.as_subclass(Own)
        return type(y), y.detach() * 2, y

    return f, *attribute(torch.Tensor, "as_subclass", more(torch.Tensor.as_subclass))


@world
def numpy():
    a = np.ones(3, dtype=np.float32)
    return lambda x: (a + 1, (a * 2).sum(), x + 1), *attribute(torch.Tensor, "numpy", lambda x: None)


@pytest.mark.parametrize("name", worlds.of(__name__))
def test_replaced(name):
    worlds.check(name)


def test_is_grad_enabled(monkeypatch):
    """Contexts of PyTorch ask it, too; what pliant does around a graph does not."""
    w = torch.ones(1, requires_grad=True)

    def fn(x):
        y = x * w
        with torch.no_grad():
            z = x * w
        return y, z, (w * x).sum(), w[:1]

    def face(f):
        try:
            return [(v.requires_grad, v._is_view()) for v in f(t(3))], really()
        finally:
            torch._C._set_grad_enabled(True)

    really = torch.is_grad_enabled
    run = compiled(fn)
    assert face(run) == face(fn)
    monkeypatch.setattr(torch, "is_grad_enabled", more(really))
    assert face(run) == face(fn)
    pliant.reset()
    assert face(run) == face(fn)
    monkeypatch.undo()
    assert face(run) == face(fn)


# -- what the compiler itself asks ---------------------------------------------------------------------------------------------
def placed(x):
    x.add_(1)
    asked = x.storage_offset(), x.numel(), x.is_conj(), x.is_neg(), x.is_contiguous()
    return x[1:].sum().reshape(1), x.as_strided((2,), (1,), x.storage_offset()), *asked


@pytest.mark.parametrize("name", "storage_offset is_conj is_neg numel is_contiguous is_floating_point element_size untyped_storage".split())
def test_methods_that_tell_of_a_tensor(name, monkeypatch):
    run = compiled(placed)
    own = getattr(torch.Tensor, name)

    def other(t):
        answer = own(t)
        return answer + 1 if type(answer) is int else not answer if type(answer) is bool else None

    for replaced in (False, True, True, False):
        with monkeypatch.context() as m:
            if replaced:
                m.setattr(torch.Tensor, name, other)
            want, got = (f(torch.arange(12.0).view(3, 4)) for f in (placed, run))
        assert [v.tolist() for v in want[:2]] == [v.tolist() for v in got[:2]] and want[2:] == got[2:]


def cast_inside(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        with torch.autocast("cpu", enabled=False):
            z = x @ x.t()
    return y.dtype, z.dtype, (x @ x.t()).dtype


@pytest.mark.parametrize("start", [True, False])
def test_whether_autocast_is_on(start, monkeypatch):
    own = torch.is_autocast_enabled
    run = compiled(cast_inside)
    x = torch.ones(3, 4)

    def both(replaced):
        said = []
        for f in (cast_inside, run):
            torch.set_autocast_enabled("cpu", start)
            with monkeypatch.context() as m:
                if replaced:
                    m.setattr(torch, "is_autocast_enabled", lambda device: not own(device))
                said.append((f(x), own("cpu")))
        return said

    try:
        for replaced in (True, False, True):
            want, got = both(replaced)
            assert want == got
    finally:
        torch.set_autocast_enabled("cpu", False)


def test_identity_of_another_kind(monkeypatch):
    fn = lambda x: (x * 2 + x.shape[0], operator.is_(x.shape[0], 3))  # noqa: E731
    run = compiled(fn)
    for other in (operator.is_, lambda a, b: None, lambda a, b: a is not b, operator.is_):
        with monkeypatch.context() as m:
            m.setattr(operator, "is_", other)
            for n in (3, 4, 5):
                want, got = fn(torch.ones(n)), run(torch.ones(n))
                assert want[0].tolist() == got[0].tolist() and want[1] is got[1]


@pytest.mark.parametrize("module, name, fn", [
    (F, "relu6", lambda x: F.relu6(x) * 2), (F, "group_norm", lambda x: F.group_norm(x.view(1, 3, 1), 1)),
    (copy, "deepcopy", lambda x: copy.deepcopy(x) * 2),
])  # fmt: skip
def test_a_name_of_a_module_that_comes_of_its_getattr(module, name, fn, monkeypatch):
    """Functions that name themselves, or are called for parts, are not where they were."""
    run = compiled(fn)
    own = getattr(module, name)
    for gone in (False, True, True, False, True):
        with monkeypatch.context() as m:
            if gone:
                m.delattr(module, name)
                m.setattr(module, "__getattr__", lambda asked: own, raising=False)
            torch.testing.assert_close(run(t(3)), fn(t(3)))


class OfAClass(torch.Tensor):
    """A class without code of its own: C++ tells the default function of the methods that are called."""


REPLACED = {
    "sum": lambda x: x.sum(), "view": lambda x: x.view(-1), "item": lambda x: x[0, 0].item(), "clone": lambda x: x.clone(),
    "to": lambda x: x.to(torch.float64), "size": lambda x: x.size(0), "numel": lambda x: x.numel(), "sub": lambda x: x - 2,
    "neg": lambda x: -x, "gt": lambda x: x > 0, "matmul": lambda x: x @ x.t(), "split": lambda x: x.split(1)[0], "norm": lambda x: x.norm(),
    "__float__": lambda x: float(x[0, 0]), "__bool__": lambda x: bool(x[0, 0]), "add": lambda x: x.exp() + 1,
}  # fmt: skip


@pytest.mark.parametrize("cls", [torch.Tensor, OfAClass])
@pytest.mark.parametrize("name", REPLACED)
def test_methods_that_classes_are_told_where_the_program_has_replaced_them(monkeypatch, name, cls):
    """The original that the replacement calls is told by its name, and so comes to the replacement once more."""
    program, original = REPLACED[name], getattr(torch.Tensor, name)

    def other(*args, **kwargs):
        out = original(*args, **kwargs)
        return tuple(v + 1 for v in out) if isinstance(out, tuple) else out + 1

    def outcome(fn):
        try:
            out = fn((torch.ones(2, 3) * 3).as_subclass(cls))
        except TypeError as e:
            return str(e)
        return (type(out), out.tolist()) if isinstance(out, torch.Tensor) else out

    run = compiled(program)
    assert outcome(run) == outcome(program)
    with monkeypatch.context() as m:
        m.setattr(torch.Tensor, name, other)
        want = outcome(program)
        assert outcome(run) == want
        assert outcome(compiled(lambda x: program(x))) == want
    assert outcome(run) == outcome(program)


ASKED = (
    "dim size stride numel is_contiguous is_floating_point is_complex is_conj storage_offset detach clone contiguous view reshape permute"
    " transpose t unsqueeze expand to copy_ new_empty new_zeros as_strided narrow requires_grad_"
).split()


ASKING = {
    "pool": lambda x: torch.max_pool1d(x, 2),
    "deviation": lambda x: torch.std(x),
    "chosen": lambda x: torch.masked_select(x, x > 0) * 2,
    "indices": lambda x: torch.nonzero(x) + 1,
    "window": lambda x: torch.hann_window(5) * 2,
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "reshaped": lambda x: torch.reshape(x, (2, -1)) * 2,
    "distances": lambda x: torch.cdist(x, x),
}


@pytest.mark.parametrize("use", ASKING)
@pytest.mark.parametrize("later", [False, True], ids=["before", "later"])
def test_pliant_asks_tensors_what_they_were_asked(use, later, monkeypatch):
    """What is counted is how often the program's own method is called: before anything is captured, or by entries that are there."""
    program, x = ASKING[use], torch.arange(48.0).reshape(6, 2, 4) - 20
    for method in ASKED:
        pliant.reset()
        made = compiled(program)
        if later:
            made(x), made(x)
        theirs, calls = getattr(torch.Tensor, method), []

        def counted(*args, _theirs=theirs, _calls=calls, **kwargs):
            _calls.append(1)
            return _theirs(*args, **kwargs)

        counts = []
        with monkeypatch.context() as patch:
            patch.setattr(torch.Tensor, method, counted)
            for fn in (program, made):
                calls.clear()
                fn(x)
                counts.append(len(calls))
        assert counts[0] == counts[1], method
