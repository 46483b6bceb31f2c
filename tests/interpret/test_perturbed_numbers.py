"""What perturbations found in numbers of operators, classes of numbers, protocols and functions of NumPy's."""

from __future__ import annotations

import decimal
import fractions
import functools
import inspect
import io
import itertools
import logging
import math
import operator
import typing
import warnings

import numpy as np
import pytest
import torch

from pliant.jit.persist.tensors import decode_tensor, encode_tensor
from tests.helpers import check, compiled, pliant

F = torch.nn.functional


def twelve(cls, func, kinds, args=(), kwargs=None):
    return 12


@pytest.mark.parametrize("base, value", [(int, 2), (float, 1.5)])
@pytest.mark.parametrize("fn", [lambda x, n: x * n, lambda x, n: n + x, lambda x, n: torch.add(x, n), lambda x, n: x.mul(n)])
def test_a_class_of_numbers_gets_a_torch_function(base, value, fn):
    kind = type("Kind", (base,), {})
    program = lambda x: fn(x, kind(value))  # noqa: E731
    compiled = pliant.compile(program)
    x = torch.ones(3)
    assert torch.equal(compiled(x), program(x))
    kind.__torch_function__ = classmethod(twelve)
    assert program(x) == compiled(x) == 12
    del kind.__torch_function__
    assert torch.equal(compiled(x), program(x))


def test_a_class_of_numbers_gets_a_conversion():
    kind = type("Kind", (float,), {})
    program = lambda x: torch.full((2,), kind(1.5)) + x  # noqa: E731
    compiled = pliant.compile(program)
    x = torch.ones(2)
    assert torch.equal(compiled(x), program(x))
    kind.__float__ = lambda self: 7.0
    assert torch.equal(compiled(x), program(x))


def test_a_protocol_is_no_longer_checked_at_runtime():
    @typing.runtime_checkable
    class Has(typing.Protocol):
        def f(self):
            ...

    class Thing:
        def f(self):
            return 1

    program = lambda x: (x + 1, isinstance(Thing(), Has))  # noqa: E731
    compiled = pliant.compile(program)
    x = torch.ones(2)
    assert compiled(x)[1] is program(x)[1] is True
    Has._is_runtime_protocol = None
    for fn in (program, compiled):
        with pytest.raises(TypeError):
            fn(x)
    Has._is_runtime_protocol = True
    assert compiled(x)[1] is True


def test_functions_of_numpy_that_are_replaced_by_what_calls_them(monkeypatch):
    program = lambda x: (x + 1, np.issubdtype("int8", np.number))  # noqa: E731
    compiled = pliant.compile(program)
    x = torch.ones(2)
    assert compiled(x)[1] is True
    before = np.issubdtype
    monkeypatch.setattr(np, "issubdtype", lambda a, b: not before(a, b))
    assert compiled(x)[1] is program(x)[1] is False


@pytest.mark.parametrize("fn", [F.dropout, F.alpha_dropout])
def test_dropout_of_nothing_is_its_argument(fn):
    program = lambda x, p: fn(x, p, True)  # noqa: E731
    compiled = pliant.compile(program)
    for p in (0.5, 0.25, 0.125):
        compiled(torch.ones(3), p)
    x = torch.ones(0, 3)
    assert compiled(x, 0.3) is x


def test_numbers_beyond_float32_are_refused_as_in_eager():
    program = lambda x, v: F.threshold(x, v, 0.0)  # noqa: E731
    sets = [(torch.linspace(-1, 1, 4).requires_grad_(), v) for v in (0.1, 0.2, 0.3, 1e300, 0.4)]
    check(program, *sets, grad=True)


def test_orders_of_norms_out_of_bounds():
    orders = (1.5, 1.7, 2.5, 5e-324, 300.0)
    check(lambda x, p: F.pairwise_distance(x, x + 1, p), *[(torch.ones(2, 3, requires_grad=True), p) for p in orders],
        grad=True)


def test_tensors_of_changing_numbers_on_the_device_that_is_named():
    program = lambda x: (torch.tensor([x.shape[0]], device="cpu"), x.new_tensor([x.shape[0], 1.5]))  # noqa: E731
    compiled = pliant.compile(program)
    for n in (3, 4):
        x = torch.ones(n)
        with torch.device("meta"):
            for want, got in zip(program(x), compiled(x), strict=True):
                assert got.device == want.device and torch.equal(got, want)


def test_new_tensor_of_a_class():
    kind = type("Kind", (torch.Tensor,), {})
    program = lambda x: x.new_tensor([x.shape[0]])  # noqa: E731
    compiled = pliant.compile(program)
    for n in (3, 4):
        assert type(compiled(torch.ones(n).as_subclass(kind))) is type(program(torch.ones(n).as_subclass(kind)))


class Valued:
    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return self.n == other.n

    def __hash__(self):
        return 1


class Says:
    def __call__(self, *args):
        return False


NEVER = [
    property(lambda self: lambda *_: False), Says(), functools.partial(lambda *_: False), staticmethod(lambda *_: False),
    classmethod(lambda *_: False),
]  # fmt: skip


@pytest.mark.parametrize("how", NEVER)
@pytest.mark.parametrize("program", [
    lambda x: (x + 1, Valued(1) in [Valued(1)]), lambda x: (x + 1, Valued(1) in {Valued(1): 2}), lambda x: (x + 1, Valued(1) == Valued(1)),
    lambda x: (x + 1, [Valued(1)].count(Valued(1))), lambda x: (x + 1, (Valued(1),) == (Valued(1),)),
    lambda x: (x + 1, [[Valued(1)]] != [[Valued(1)]]),
    lambda x: (x + 1, len({Valued(1), Valued(1)})), lambda x: (x + 1, {1: Valued(1)} == {1: Valued(1)}),
])  # fmt: skip
def test_equality_of_containers_is_guarded_whatever_it_is(program, how, monkeypatch):
    x = torch.ones(2)
    for start in (False, True):
        compiled = pliant.compile(program)
        usual = Valued.__eq__
        if start:
            assert compiled(x)[1] == program(x)[1]
        monkeypatch.setattr(Valued, "__eq__", how)
        assert compiled(x)[1] == program(x)[1]
        monkeypatch.setattr(Valued, "__eq__", usual)
        assert compiled(x)[1] == program(x)[1]


@pytest.mark.parametrize("default", [[1], {"a": 1}, Says(), (1, [2])])
def test_defaults_read_through_a_signature_are_the_objects_themselves(default):
    def fn(x, k=default):
        return x

    program = lambda x: (x + 1, inspect.signature(fn).parameters["k"].default, inspect.getfullargspec(fn).defaults[0])  # noqa: E731
    compiled = pliant.compile(program)
    for _ in range(2):
        assert compiled(torch.ones(2))[1] is compiled(torch.ones(2))[2] is default


def test_constants_come_from_the_disk_whatever_the_program_has_replaced(monkeypatch):
    encoded = encode_tensor(torch.tensor([[1.0, 2.0]]))
    usual = torch.Tensor.clone
    monkeypatch.setattr(torch.Tensor, "clone", lambda self, *args, **kwargs: usual(self, *args, **kwargs) + 1)
    with torch.device("meta"):
        found = decode_tensor(*encoded)
    assert found.device.type == "cpu" and found.tolist() == [[1.0, 2.0]]


# -- what padding is told --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("options", [(True,), (1.5,), (1,), ("x",), (True, 2), (True, 0.5, 5.0), (True, 0.5, 5)])
@pytest.mark.parametrize("recorded", [False, True])
def test_padding(options, recorded):
    rnn = torch.nn.utils.rnn
    lengths = torch.tensor([4, 3, 1])

    def program(x):
        packed = rnn.pack_padded_sequence(x, lengths, batch_first=True)
        try:
            return rnn.pad_packed_sequence(packed, *options)[0].detach().tolist()
        except (TypeError, ValueError) as e:
            return type(e), str(e)

    x = torch.randn(3, 4, 2, requires_grad=recorded)
    assert compiled(program)(x) == program(x)


class Pair:
    """Two numbers that programs read, of several types."""


PAIR = Pair()


def operated(op):
    def program(x):
        try:
            r = op(PAIR.a, PAIR.b)
        except TypeError as e:
            return x + 1, str(e)
        return x + 1, r

    return program


IN_PLACE = {"&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift}
OF_TWO = {"&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, "**": pow, "divmod": divmod, "%": operator.mod}


@pytest.mark.parametrize("name", [*OF_TWO, *IN_PLACE])
def test_operators_that_numbers_of_a_type_do_not_have(name):
    """The program handles what they raise, in CPython's words, also where one of the numbers is symbolic."""
    program = operated((OF_TWO | IN_PLACE)[name])
    run, x = pliant.compile(program, backend="aten"), torch.ones(2)
    for a, b in [(2, 1), (3, 2), (4, 3), (5, 2.0), (3, 1.5), (2.5, 2), (4, None), ("a", 2.0), ("a", 3), (7, 2)]:
        PAIR.a, PAIR.b = a, b
        assert run(x)[1] == program(x)[1]


def test_levels_of_loggers_that_are_no_ints():
    """A logger keeps what it has answered for an equal number."""
    logger = logging.getLogger("tests.levels")
    held = {"level": 40}

    def program(x):
        return x + 1, logger.isEnabledFor(held["level"])

    run, x = pliant.compile(program, backend="aten"), torch.ones(2)
    for level in (40, np.int32(40), np.uint8(40), True, 40):
        held["level"] = level
        want, got = program(x)[1], run(x)[1]
        assert type(want) is type(got) and want == got


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("name", ["debug", "warning", "exception"])
def test_levels_of_the_library_that_are_others(monkeypatch, name, breaks):
    out, logger = io.StringIO(), logging.Logger("tests.levels", 1)
    handler = logging.StreamHandler(out)
    handler.setFormatter(logging.Formatter("%(levelname)s:%(levelno)s:%(message)s:%(lineno)d:%(funcName)s"))
    logger.addHandler(handler)

    def program(x):
        y = x + 1
        if breaks:
            pliant.graph_break()
        getattr(logger, name)("rows %d", x.shape[0])
        return y * 2

    def written(fn):
        out.seek(0), out.truncate()
        return said(fn, torch.ones(2)), out.getvalue()

    run, constant = pliant.compile(program, strict=True, backend="aten"), {"exception": "ERROR"}.get(name, name.upper())
    before = getattr(logging, constant)
    for level in (before, 12, before, 10.5, None, True, before):
        monkeypatch.setattr(logging, constant, level)
        assert written(run) == written(program), level


def said(fn, *args):
    try:
        return repr(fn(*args))
    except Exception as e:
        return type(e).__name__, str(e)


def test_a_learning_rate_that_is_a_tensor_beside_the_number_of_the_step():
    """Divided by that number it stays a float32: the step's own tensor, as a float64, made it wider."""
    sides = []
    for fn in (lambda f: f, lambda f: pliant.compile(f, backend="aten", strict=True)):
        torch.manual_seed(0)
        m = torch.nn.Linear(4, 3).double()
        o = torch.optim.AdamW(m.parameters(), torch.tensor(0.1), foreach=False, capturable=False)

        def step(x, m=m, o=o):
            o.zero_grad()
            m(x).square().mean().backward()
            o.step()

        run = fn(step)
        for _ in range(3):
            run(torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4))
        sides.append(m.weight.detach())
    assert torch.equal(*sides)


@pytest.mark.parametrize("pool, dims", [(torch.nn.LPPool1d, 1), (torch.nn.LPPool2d, 2), (torch.nn.LPPool3d, 3)])
def test_orders_of_pooling_that_change(pool, dims):
    m = pool(2.0, 2)
    run, x = pliant.compile(lambda x: m(x), backend="aten"), torch.rand(1, *[4] * dims)
    for n in (2, 3.0, 2.5, 0, 0.0, float("inf"), -float("inf"), 4):
        m.norm_type = n
        if n == 0:
            with pytest.raises(ZeroDivisionError):
                run(x)
        else:
            torch.testing.assert_close(run(x), m(x))


class Kept(torch.Tensor):
    pass


@pytest.mark.parametrize("kind", [torch.Tensor, Kept])
def test_sizes_as_data_of_a_class(kind):
    program = lambda x: torch._shape_as_tensor(x)  # noqa: E731
    x = torch.ones(2, 3).as_subclass(kind)
    want, got = program(x), pliant.compile(program, backend="aten", strict=True)(x)
    assert type(want) is type(got) and want.tolist() == got.tolist()


def test_sizes_with_integers_that_a_break_has_left_unknown():
    class Passing(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    def program(x):
        s = torch.Size([np.int64(2), x.shape[0]])
        return [type(n) for n in s], torch.zeros(s).shape

    with Passing():
        assert pliant.compile(program, backend="aten", strict=True)(torch.ones(3)) == program(torch.ones(3))


def test_data_of_leaves_made_here_under_autocast():
    def program(x):
        w = torch.nn.Parameter(torch.ones(4))
        w.data.mul_(3)
        return w * x, w

    with torch.autocast("cpu", dtype=torch.bfloat16):
        want, got = program(torch.ones(4)), pliant.compile(program, strict=True)(torch.ones(4))
    torch.testing.assert_close(got, want)


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("numbers", [(1.5, 0.3, 5e-324, 2.5, 2.0000000001, 16777217.0, 3.0, -1e-46), (3, 5, 16777217, -16777219, 2)])
def test_exponents_that_float32_holds_otherwise(numbers, backend):
    x = -torch.linspace(1, 2, 9)
    of = lambda x, p: (x * 2).pow(p) + 1  # noqa: E731
    compiled = pliant.compile(of, backend=backend)
    for p in numbers:
        fixed = pliant.compile(lambda x, p=p: (x * 2).pow(p) + 1, backend=backend)
        for got in (compiled(x, p), fixed(x)):
            torch.testing.assert_close(got, of(x, p), equal_nan=True)


UNPOOLED = [((2, 2), (2, 2)), ((np.int64(2), 2), (2, 2)), (2, np.int32(2)), ((2, 2), (True, 2))]


@pytest.mark.parametrize("kernel, stride", UNPOOLED)
def test_numbers_of_numpy_in_functions_of_torch_that_count_with_sizes(kernel, stride):
    def program(x):
        y, where = F.max_pool2d(x, 2, 2, return_indices=True)
        return F.max_unpool2d(y, where, kernel, stride)

    run = pliant.compile(program, strict=True, backend="aten")
    for n in (4, 6):
        said = []
        for f in (program, run):
            try:
                said.append(f(torch.arange(2.0 * n * n).reshape(1, 2, n, n)).tolist())
            except (TypeError, RuntimeError) as e:
                said.append((type(e), str(e)))
        assert said[0] == said[1]


OPTIONS = [
    lambda x, y, p, a: F.poisson_nll_loss(x, y, eps=p, log_input=a),
    lambda x, y, p, a: F.smooth_l1_loss(x, y, size_average=a, beta=p),
    lambda x, y, p, a: F.margin_ranking_loss(x, y, torch.ones_like(x), p, a),
    lambda x, y, p, a: F.triplet_margin_loss(x, y, x + 1, p, swap=a),
]


@pytest.mark.parametrize("option", [None, True, False, 0, 1])
@pytest.mark.parametrize("fn", OPTIONS)
def test_options_of_losses_whose_number_changes(fn, option):
    x, y = torch.rand(4, 3), torch.rand(4, 3)
    run = pliant.compile(fn, strict=True, backend="aten")
    for p in (0.5, 0.3, 0.7):
        said = []
        for f in (fn, run):
            try:
                said.append(f(x, y, p, option))
            except (TypeError, RuntimeError) as e:
                said.append(str(e))
        if isinstance(said[0], str):
            assert said[0] == said[1]
        else:
            torch.testing.assert_close(said[1], said[0])


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.float64, np.int32, np.bool_])
def test_items_of_tensors_that_are_numbers_of_numpy(kind):
    def program(a, v):
        a[0] = v
        return a + 1

    run = pliant.compile(program, strict=True, backend="aten")
    for n in (0, 1, 3):
        for make in (lambda: np.ones(3, np.float32), lambda: torch.ones(3)):
            said = []
            for f in (program, run):
                try:
                    said.append(f(make(), kind(n)).tolist())
                except TypeError as e:
                    said.append(str(e))
            assert said[0] == said[1]


def test_identity_that_is_replaced_under_symbolic_numbers(monkeypatch):
    identity = operator.is_

    def program(x, n):
        m = n + 0
        return x + 1, operator.is_(n, m), operator.is_not(n, 3), n * 2 - m

    run = pliant.compile(program, strict=True, backend="aten")
    for n in (1, 5, 200):
        assert repr(run(torch.ones(2), n)) == repr(program(torch.ones(2), n))
    monkeypatch.setattr(operator, "is_", lambda a, b: not identity(a, b))
    for n in (1, 5, 7):
        assert repr(run(torch.ones(2), n)) == repr(program(torch.ones(2), n))


# -- floats that no integer is ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("whole", [int, math.floor, math.ceil, math.trunc, round, lambda v: int(v) % 13, lambda v: range(int(v))])
@pytest.mark.parametrize("of_data", [True, False])
def test_integers_that_nobody_reads(whole, of_data):
    """Python raises where a float is none, whoever reads the integer."""
    def program(x, v):
        whole(x.sum().item() if of_data else v)
        return x + 1

    def handled(x, v):
        try:
            whole(x.sum().item() if of_data else v)
        except (ValueError, OverflowError) as e:
            return x - 1, str(e)
        return x * 2

    for fn in (program, handled):
        for first in (2.0, float("nan")):
            run = pliant.compile(fn, strict=True, backend="aten")
            for v in (first, 3.0, float("inf"), 1.5, float("nan"), -float("inf"), -0.5):
                x = torch.tensor([v])
                assert said(run, x, v) == said(fn, x, v), (first, v)


@pytest.mark.parametrize("of_data", [True, False])
def test_floor_division_of_floats(of_data):
    def program(x, v):
        n = x[0].item() if of_data else v
        return x + n // 0.1, n // 0.1, 1.0 // n, -n // 3.0, n // n

    run = pliant.compile(program, strict=True, backend="aten")
    for v in (0.5, 0.25, 1.0, 0.3, -0.7, float("inf"), float("nan"), 0.0, -1.0):
        x = torch.tensor([v], dtype=torch.float64)
        assert said(run, x, v) == said(program, x, v), v


SIZED = {
    "size": lambda x, n, f: x.shape[0], "int": lambda x, n, f: n, "float": lambda x, n, f: f, "negative": lambda x, n, f: -n,
    "comparison": lambda x, n, f: n > 3, "product": lambda x, n, f: f * n,
}  # fmt: skip
BESIDE = {
    "decimal": decimal.Decimal("1.5"), "fraction": fractions.Fraction(3, 2), "float32": np.float32(1.5), "int64": np.int64(3),
    "bytes": b"a", "none": None, "list": [1], "nan": float("nan"), "float": 2.5, "minus two": -2,
}  # fmt: skip
USES = {
    "largest": max, "smallest": min, "counted": lambda a, b: [a, b].count(a), "in a tuple": lambda a, b: (a, 1) < (b, 2),
    "member": lambda a, b: a in [b], "rounded": lambda a, b: round(a, b), "power": lambda a, b: a**a, "quotient": divmod,
    "compared": lambda a, b: a < b,
}  # fmt: skip


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("beside", BESIDE)
def test_symbolic_numbers_beside_others_in_c_code(use, beside):
    for number, turned in itertools.product(SIZED.values(), (False, True)):

        def f(x, n, k, number=number, turned=turned):
            a, b = number(x, n, k), BESIDE[beside]
            return USES[use](b, a) if turned else USES[use](a, b)

        compiled = pliant.compile(f, backend="aten")
        for size, n, k in ((3, 3, 0.5), (5, 4, 1.5), (2, 7, -2.0), (3, 3, 0.5)):
            answers = []
            for g in (f, compiled):
                try:
                    answers.append(repr(g(torch.ones(size), n, k)).replace("np.True_", "True").replace("np.False_", "False"))
                except (TypeError, ValueError, ArithmeticError) as e:
                    answers.append(type(e))
            assert answers[0] == answers[1]


@pytest.mark.parametrize("kind", [np.float32, np.float64, np.int64, np.uint8, np.bool_], ids=lambda k: k.__name__)
@pytest.mark.parametrize("use", [
    lambda x, n, b: (b, 1) < (n, 2), lambda x, n, b: [b] >= [n % 3], lambda x, n, b: (x.shape[0] / 2,) > (b,), lambda x, n, b: sum([b, n]),
    lambda x, n, b: (n, b) <= (n, n > 2), lambda x, n, b: sum([b, n > 2]), lambda x, n, b: sum([n * 0.5, b]),
])  # fmt: skip
def test_what_numpys_numbers_say_within_sequences(kind, use):
    made, b = compiled(use), kind(2)
    for n in (3, 4, 7, 3, 0, 1):
        want, got = use(torch.ones(n, 2), n, b), made(torch.ones(n, 2), n, b)
        assert (type(got), got) == (type(want), want)


SIGNED = [
    "abs(f)", "-abs(f)", "abs(f) ** 3", "f // -2", "n // -2.0", "-n // 0.1", "0.0 // (n + 1)", "-0.0 // (n + 9)", "0.0 % -(n + 9)", "f * n",
    "n * -0.0",
    "divmod(f, -2)", "divmod(n - 3, -2.0)",
    "divmod(-0.0, n + 9)", "round(f, 0)", "min(f, 0.0)", "max(-0.0, f)", "math.copysign(n, f)",
    "math.fmod(f, 2)", "float(n - 3) * -1.0", "(n - 3) / -7", "sum([f, -0.0])", "abs(x[0].item())",
    "0.0 // (x[0].item() + 9)", "x[0].item() % -2",
]  # fmt: skip


@pytest.mark.parametrize("use", SIGNED)
def test_the_sign_of_zero(use):
    def signs(v):
        return [math.copysign(1, e) for e in (v if type(v) is tuple else v.tolist() if isinstance(v, torch.Tensor) else (v,))]

    names = {"math": math}
    exec(f"def fn(x, f, n):\n    r = {use}\n    return r, x + (r[0] if type(r) is tuple else r)", names)
    fn = names["fn"]
    made = compiled(fn)
    for f, n in ((0.5, 3), (-2.5, 2), (0.0, 3), (-0.0, 5), (-0.4, 0), (-0.0, 7), (0.0, 3), (1.0, -3), (-4.0, -7), (-0.0, 2)):
        for want, got in zip(fn(x := torch.full((2,), f, dtype=torch.float64), f, n), made(x, f, n), strict=True):
            assert (str(got), signs(got)) == (str(want), signs(want)), (f, n)


NUMPYS = (np.int8, np.uint8, np.int16, np.uint16, np.int32, np.uint32, np.int64, np.uint64, np.float16, np.float32, np.float64, np.bool_)
MADE = {
    "unread": lambda cls, n, x: (cls(n), x + 1)[1],
    "read": lambda cls, n, x: cls(n),
    "used": lambda cls, n, x: cls(n) + cls(1),
    "negative": lambda cls, n, x: cls(-n),
    "an array": lambda cls, n, x: np.array([n], dtype=cls),
    "of NumPy's": lambda cls, n, x: cls(np.int64(n)),
    "of a size": lambda cls, n, x: cls(x.shape[0] * 100),
}


@pytest.mark.parametrize("cls", NUMPYS, ids=lambda c: c.__name__)
@pytest.mark.parametrize("how", MADE)
def test_numbers_that_a_dtype_does_not_hold(how, cls):
    def f(n, x):
        return x + 1, MADE[how](cls, n, x)

    def run(fn, n):
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                v = fn(n, torch.ones(4))[1]
                return str(v), type(v)
            except Exception as e:
                return type(e), str(e)

    compiled = pliant.compile(f, backend="aten")
    for n in (2, 3, 100, 200, 2**31 + 1, 2**62 + 2, 5):
        assert run(compiled, n) == run(f, n)


BESIDE_DECIMALS = {
    "largest": lambda n, d: max(np.int64(n), d),
    "sorted": lambda n, d: sorted([np.int64(n), d]),
    "tuples": lambda n, d: (d, np.int64(n)) < (np.int64(n), d),
    "equal": lambda n, d: (d == np.int64(n), [np.float32(n)] == [d], [d].count(np.int64(n))),
    "float": lambda n, d: d < np.float64(n),
    "made of": lambda n, d: decimal.Decimal(np.int64(n)),
}


@pytest.mark.parametrize("how", BESIDE_DECIMALS)
def test_numbers_of_numpy_beside_decimals(how):
    def f(n, x):
        return x + 1, BESIDE_DECIMALS[how](n, decimal.Decimal(2))

    def run(fn, n):
        try:
            return repr(fn(n, torch.ones(1))[1])
        except Exception as e:
            return repr(e)

    compiled = pliant.compile(f, backend="aten")
    for n in (2, 3, 4, 2):
        assert run(compiled, n) == run(f, n)
