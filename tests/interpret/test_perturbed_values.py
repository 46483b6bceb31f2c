"""What perturbations found in values of NumPy's and of C's own: numbers beyond a dtype, casts, fields of exceptions, tuples of C."""

from __future__ import annotations

import datetime
import operator
import random
import types
import warnings
import weakref

import numpy as np
import pytest
import torch

from pliant.errors import GraphBreakError
from tests.helpers import pliant


def said(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as e:
        return type(e).__name__, str(e)


def compiled(fn):
    return pliant.compile(fn, strict=True, backend="aten")


@pliant.disable
def breaks():
    pass


def compare(program, *calls):
    run = compiled(program)
    for make in calls:
        assert said(run, *make()) == said(program, *make()), make()


# -- numbers beyond what a dtype holds ----------------------------------------------------------------------------------------
def written(a, v):
    a[0] = v
    return a


def masked(a, v):
    a[a > 1] = v
    return a


def filled(a, v):
    a.fill(v)
    return a


NUMBERS_IN = [
    written, masked, filled, lambda a, v: np.full(3, v, dtype=a.dtype), lambda a, v: np.array([v, 1.0], dtype=a.dtype), lambda a, v: a + v,
    lambda a, v: np.where(a > 1, a, v), lambda a, v: a.clip(0, v), lambda a, v: np.maximum(a, v), lambda a, v: np.full_like(a, v),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("program", NUMBERS_IN)
def test_numbers_that_are_larger_than_the_dtype_become_infinite(program, dtype):
    numbers = (0.5, 1.5, 1e300, 2.5, -1e300, 3.4028235677973366e38, float("inf"), 1e39, float("nan"), 70000.0)
    compare(program, *[lambda v=v: (np.arange(3).astype(dtype), v) for v in numbers])


# -- floats as integers -------------------------------------------------------------------------------------------------------
FLOATS = [
    0.5, 300.7, 70000.2, 1e10, -1e10, 2.0**31, 2.0**32, 2.0**32 + 5, 1e300, -1e300, float("nan"), float("inf"), -3.5, 2.0**63, 2.0**64,
    -(2.0**31) - 1,
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", "int8 int16 int32 int64 uint8 uint16 uint32 uint64 bool".split())
def test_floats_that_no_integer_is_are_cast_as_by_numpy(dtype):
    for source in ("float64", "float32"):
        calls = [lambda n=n: (np.array(FLOATS * n, dtype=source),) for n in (1, 2, 1)]  # noqa: B023
        compare(lambda a: (a.astype(dtype), np.abs(a).astype(dtype)), *calls)


# -- whose attribute is missing -----------------------------------------------------------------------------------------------
def missed(a):
    b = a + 1
    try:
        b.nothing  # noqa: B018
    except AttributeError as e:
        return b, str(e), e.name, e.obj is b


def missed_behind_a_break(a):
    try:
        a.nothing  # noqa: B018
    except AttributeError as e:
        breaks()
        return a + 1, str(e), e.name, e.obj is a


def of_the_class(a):
    return a + 1, [hasattr(a, n) for n in ("mro", "__name__", "__mro__", "__bases__", "__dict__", "item", "x")], str(getattr(a, "mro", 5))


@pytest.mark.parametrize("make", [np.ones, np.float64, np.float32, torch.ones], ids=["array", "float64", "float32", "tensor"])
@pytest.mark.parametrize("program", [missed, missed_behind_a_break, of_the_class])
def test_an_attribute_that_an_array_does_not_have(program, make):
    compare(program, *[lambda n=n: (make(n),) for n in (2, 3, 2)])


# -- tuples that only C makes -------------------------------------------------------------------------------------------------
class Ending(tuple):
    """No copy of it can be made: that would end, too."""

    def __del__(self):
        pass


TOLD = [
    lambda x, w: (x + 1, repr(w), str(w), f"{w}"),
    lambda x, w: (x + 1, hash(w), w == (2020, 1, 5), w < (2020, 1, 5), w in [(2020, 1, 5)]),
    lambda x, w: (x + 1, w[2], list(w), max(w), tuple(w)),
    lambda x, w: (x + 1, {w: 1}, "%s %s %s" % w, sum(w)),
]


@pytest.mark.parametrize("make", [lambda d: datetime.date(2020, 1, d).isocalendar(), lambda d: Ending((2020, 1, d))], ids=["C", "Python"])
@pytest.mark.parametrize("program", TOLD)
def test_a_tuple_of_which_no_copy_is_made_changes(program, make):
    compare(program, *[lambda d=d: (torch.ones(2), make(d)) for d in (3, 4, 5, 6, 3, 5, 7)])


# -- which of equal values are one --------------------------------------------------------------------------------------------
def another(v):
    """An equal object, if there can be one."""
    if type(v) is str:
        return "".join(list(v))
    return type(v)(repr(v)) if type(v) in (int, float) and v == v else v


HOLDER = types.SimpleNamespace(n=None)


def one_that_is_held(x, n, m):
    HOLDER.n = n
    return x + 1, HOLDER.n is n, HOLDER.n is m


ONE = [
    lambda x, n, m: (x + 1, n is m),
    lambda x, n, m: (x + 1, operator.is_(n, m), operator.is_not(n, m), [p is q for p, q in zip([n, m], [m, n], strict=True)]),
    lambda x, n, m: x + 1 if n is m else x * 2,
    one_that_is_held,
]


@pytest.mark.parametrize("program", ONE)
@pytest.mark.parametrize("seed", range(4))
def test_which_of_two_equal_values_are_one(program, seed):
    rng = random.Random(seed)
    values = [1, 2, 300, 301, 0.5, float("nan"), 2**70, True, None, "ab cd", "x"]
    fresh = types.FunctionType(program.__code__.replace(co_name=f"program_{seed}"), program.__globals__)
    run = compiled(fresh)
    for _ in range(24):
        n = rng.choice(values)
        m = rng.choice([n, another(n), another(n), rng.randrange(3)])
        assert said(run, torch.ones(2), n, m) == said(program, torch.ones(2), n, m), (n, m, n is m)


# -- what CPython alone can answer --------------------------------------------------------------------------------------------
def dead(x):
    r = weakref.ref(x * 2)
    return r() is None, x + 1


def deleted(x):
    y = x * 2
    z = y + 1
    r = weakref.ref(y)
    alive = r() is not None
    del y
    return alive, r() is None, z.detach()


@pytest.mark.parametrize("program", [dead, deleted])
def test_weak_references_to_tensors_with_gradients_that_have_ended(program):
    run = compiled(program)
    for k, wanted in enumerate((False, True, True, False, True, True, False)):
        x = torch.ones(3 + k, requires_grad=wanted)
        assert said(run, x) == said(program, x)


def test_a_frame_that_cpython_alone_can_answer_is_told_of():
    run = pliant.compile(dead, backend="aten", fullgraph=True)
    with pytest.raises(GraphBreakError, match="runs in CPython"):
        run(torch.ones(3, requires_grad=True))


def test_a_frame_that_is_given_up_raises_nothing_where_warnings_are_errors(monkeypatch):
    def program(x):
        return x + 1

    def fails(*args, **kwargs):
        raise RuntimeError("planted")

    monkeypatch.setattr("pliant.jit.region.emit", fails)
    run = pliant.compile(program, backend="aten", strict=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(run(torch.ones(3)), torch.full((3,), 2.0))


# -- images resized by numbers of NumPy's ---------------------------------------------------------------------------------------
IMAGES = [
    lambda: torch.linspace(0, 1, 16).reshape(1, 1, 4, 4), lambda: torch.arange(16).reshape(1, 1, 4, 4), lambda: torch.ones(1, 0, 4, 4),
    lambda: torch.ones(0, 1, 4, 4), lambda: torch.ones(2, 3, 4, 5), lambda: torch.ones(1, 1, 4, 4, dtype=torch.complex64),
    lambda: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last), lambda: torch.ones(1, 1, 4, 4, dtype=torch.bool),
]  # fmt: skip


@pytest.mark.parametrize("factor", [np.float64(1.5), np.float32(1.5), np.int64(2), 1.5], ids=repr)
@pytest.mark.parametrize("program", [
    lambda x, s: torch.nn.functional.interpolate(x, scale_factor=s),
    lambda x, s: torch._C._nn.upsample_nearest2d(x, None, [float(s)] * 2),
])  # fmt: skip
def test_images_are_resized_by_numbers_of_numpy(program, factor):
    run = compiled(lambda x: program(x, factor))
    for make in IMAGES:
        x = make()
        want, got = (said(lambda x: (o := fn(x), o.stride()), x) for fn in (lambda x: program(x, factor), run))  # noqa: B023
        assert want == got, make


# -- numbers beyond float32 -----------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("option", ["alpha", "beta", "k"])
def test_numbers_beyond_float32_across_channels(option):
    layer = torch.nn.CrossMapLRN2d(6, 0.3, 0.5, 2)
    run = compiled(lambda x: layer(x))

    def gradient(fn):
        x = torch.linspace(-1, 1, 96).reshape(4, 6, 2, 2).requires_grad_()
        try:
            out = fn(x)
            out.sum().backward()
        except Exception as e:
            return type(e).__name__, str(e)
        return out.detach(), x.grad

    for n in (0.5, 0.25, 1e300, 1e39, float("inf"), 0.5, 10**400):
        setattr(layer, option, n)
        want, got = gradient(layer), gradient(run)
        if type(want[0]) is str:
            assert got == want, n
        else:
            torch.testing.assert_close(got, want, equal_nan=True)


@pytest.mark.parametrize("make", [
    torch.tensor, torch.as_tensor, lambda n: torch.tensor([n, 1.0]), lambda n: torch.ones(2).new_tensor(n),
    lambda n: torch.tensor(n, dtype=torch.float16), lambda n: torch.tensor(n, dtype=torch.complex64),
])  # fmt: skip
def test_tensors_of_a_number_that_has_become_too_large(make):
    run = compiled(make)
    for n in (0.5, 0.25, 1e300, -1e39, 3.4028236e38, 0.75):
        assert said(run, n) == said(make, n), n


# -- functions of libraries that are replaced -----------------------------------------------------------------------------------
def test_the_index_of_a_scalar_of_numpy_while_another_index_is_in_its_place(monkeypatch):
    before = operator.index
    monkeypatch.setattr(operator, "index", lambda a: before(a) + 1)

    def program(x, n):
        return x + operator.index(np.uint8(3)), operator.index(np.uint8(n))

    run = compiled(program)
    for n in (3, 4, 5):
        assert said(run, torch.ones(2), n) == said(program, torch.ones(2), n)


# -- tensors without sizes, and sizes that no memory has --------------------------------------------------------------------------
def test_a_nested_tensor_where_a_plain_one_was():
    run = compiled(lambda x: x * 2)
    for x in (torch.ones(3), torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), torch.ones(4)):
        want, got = x * 2, run(x)
        assert want.is_nested == got.is_nested
        for a, b in zip(want.unbind(), got.unbind(), strict=True):
            assert torch.equal(a, b)


def test_sizes_beyond_memory_with_gradients():
    pool = torch.nn.AdaptiveMaxPool3d((2, None, 1))
    run = compiled(lambda x: pool(x))
    images = [torch.rand(2, 2, *sizes, requires_grad=True) for sizes in ((4, 6, 5), (5, 6, 4), (4, 6, 5))]
    for size in (2, 3, 2**62 + 2, 2):
        pool.output_size = (size, None, 1)
        for x in images:
            want, got = said(pool, x), said(run, x)
            assert want[:1] == got[:1], size  # one is a text, the other says how much was asked for


class Held:
    def __init__(self, value=None):
        self.value = value


@pytest.mark.parametrize("made", [
    lambda i: float(f"{i}.5"), lambda i: int(f"{i}000001"), lambda i: "".join(["a b", str(i)]), lambda i: bytes(bytearray([65, i])),
    lambda i: complex(f"{i}j"), lambda i: int(f"{i + 1}{'0' * 30}"),
], ids=["float", "int", "text", "bytes", "complex", "large"])  # fmt: skip
@pytest.mark.parametrize("found", [
    lambda x, v, o, d: v, lambda x, v, o, d: o.value, lambda x, v, o, d: d["k"], lambda x, v, o, d: [v, x][0],
    lambda x, v, o, d: (setattr(o, "other", v), o.other)[1], lambda x, v, o, d: Held(v).value, lambda x, v, o, d: d.pop("k"),
    lambda x, v, o, d: (print(end=""), v)[1], lambda x, v, o, d: (x * 2, v)[1],
], ids=["argument", "attribute", "item", "of a list", "stored", "of an object", "taken out", "behind a break", "by a graph"])  # fmt: skip
def test_numbers_and_texts_given_back_are_those_given(made, found):
    compiled = pliant.compile(lambda x, v, o, d: (x + 1, found(x, v, o, d))[1])
    for i in (1, 1, 2, 3, 1):
        v = made(i)
        assert compiled(torch.ones(2), v, Held(v), {"k": v}) is v


def added(n, m):
    s = set()
    s.add(n)
    s.add(m)
    return s


def updated(n, m):
    s = {"b"}
    s.update([n, "c"])
    s |= {m, 100}
    return s


@pytest.mark.parametrize("make", [added, updated, lambda n, m: frozenset({n}.union((m,))), lambda n, m: {"b", n} ^ {m}])
def test_sets_of_numbers_that_change_are_walked_as_eager_walks_them(make):
    """7 and 15 want one place of a small table: which of them gets it is a matter of order."""

    def fn(x, n, m):
        s = make(n, m)
        return x + 1, list(s), s

    compiled = pliant.compile(fn, backend="aten", strict=True)
    x = torch.ones(1)
    for n, m in ((7, 15), (15, 7), (23, 7), (7, 23), (1, 2)):
        want, got = fn(x, n, m), compiled(x, n, m)
        assert got[1] == want[1] and list(got[2]) == list(want[2])
