"""What Python or PyTorch refuses of a number that changes, where nobody reads what would come of it: powers, floats, sizes, texts."""

from __future__ import annotations

import math

import pytest
import torch

import pliant

F = torch.nn.functional
FLOATS = (0.5, 2.0, 3.5, -1.0, 0.0, -0.0, math.inf, math.nan, 710.5, 1e300, -1e300, 0.25)
INTS = (2, 3, 4, 1, 0, -1, -2, 20, 50, 1000, 65, 10**6, 10**300, 5)
SIZES = (2, 3, 4, 1, 0, -1, -2, -3, 5, 3)

OF_FLOATS = {
    "square": lambda f: f**2,
    "power": lambda f: pow(f, 2.5),
    "reciprocal": lambda f: f**-1,
    "exponent": lambda f: 2.0**f,
    "exponent of an int": lambda f: 2**f,
    "its own": lambda f: abs(f) ** abs(f),
    "exp": lambda f: math.exp(f),
    "product": lambda f: f * 10**400,
}
OF_INTS = {
    "negative power": lambda n: n**-2,
    "root": lambda n: n**-0.5,
    "of zero": lambda n: 0.0**n,
    "of a bool": lambda n: (n > 2) ** -1,
    "large": lambda n: 1e200**n,
    "float": lambda n: float(n**300),
    "quotient": lambda n: n**300 / 3,
    "quotient that fits": lambda n: (n**300 + 1) / (abs(n) ** 299 + 1),
    "product": lambda n: n**300 * 0.5,
    "compared": lambda n: n**300 < 0.5,
    "root of a power": lambda n: math.sqrt(abs(n**300)),
    "logarithm": lambda n: math.log(abs(n**300) + 1),
    "shift": lambda n: float(1 << abs(n) * 60),
    "character": lambda n: f"{n:c}",
    "character of a template": lambda n: "{:c}".format(n),
    "no text": lambda n: f"{n:s}",
    "digits": lambda n: f"{1.5:.{min(n, 9)}f}",
    "text": lambda n: f"{n!r:d}",
}
OF_SIZES = {
    "zeros": lambda n, x: torch.zeros(n, 2),
    "sum": lambda n, x: torch.zeros(n + 1).sum(),
    "bits": lambda n, x: torch.ones((min(n, 7) ^ 1) + 1),
    "full": lambda n, x: torch.full((2, n), 1.0),
    "new": lambda n, x: x.new_empty(n),
    "eye": lambda n, x: torch.eye(n),
    "random": lambda n, x: torch.rand(n),
    "order": lambda n, x: torch.randperm(n),
    "repeat": lambda n, x: x.repeat(n),
    "expand": lambda n, x: x[:1].expand(n),
    "broadcast": lambda n, x: torch.broadcast_to(x[:1], (n,)),
    "view": lambda n, x: x.view(2, n),
    "narrow": lambda n, x: x.narrow(0, 0, n),
    "pad": lambda n, x: F.pad(x[:2], (n, 0)),
    "top": lambda n, x: x.topk(n),
}


def outcome(fn, *args):
    try:
        return fn(*args)
    except Exception as error:
        return type(error), error.args


def same_calls(fn, calls):
    compiled = pliant.compile(fn, background=False)
    raised = 0
    for call in calls:
        want, got = (str(outcome(f, call, torch.ones(6))) for f in (fn, compiled))
        assert got == want, call
        raised += "Error" in want
    return raised


@pytest.mark.parametrize("table, calls, use", [(t, c, u) for t, c in ((OF_FLOATS, FLOATS), (OF_INTS, INTS)) for u in t])
def test_of_a_number(table, calls, use):
    made = table[use]
    same_calls(lambda n, x: (made(n), x + 1)[1], calls)


def test_of_a_number_from_data():
    raised = same_calls(lambda f, x: ((x[0].double() * f).abs().item() ** 2, x + 1)[1], FLOATS)
    raised += same_calls(lambda f, x: (2.0 ** (x[0].double() * f).item(), x + 1)[1], FLOATS)
    assert raised == 3


def test_a_handler_is_told():
    def fn(f, x):
        try:
            f**3  # noqa: B018
        except OverflowError as error:
            return x - 1, error.args
        return x + 1

    same_calls(fn, FLOATS)


@pytest.mark.parametrize("source", ["argument", "data"])
@pytest.mark.parametrize("use", OF_SIZES)
def test_of_a_size(use, source):
    made, of_data = OF_SIZES[use], source == "data"

    def fn(n, x):
        made((x[1] * n).int().item() if of_data else n, x)
        return x + 1

    assert same_calls(fn, SIZES)


@pytest.mark.parametrize("source", ["argument", "data"])
def test_a_size_that_stays_as_it_is(source):
    of_data = source == "data"

    def fn(n, x):
        wide = x[:1].expand((x[1] * n).int().item() if of_data else n)
        return wide, wide.shape[0] * 2, wide.numel()

    same_calls(fn, SIZES)


AS_LARGE_AS_NUMBERS_ARE = {
    "expand": lambda n, x: x[:1].view(1, 1).expand(n, 3).shape,
    "expand twice": lambda n, x: x[:1].view(1, 1, 1).expand(n, n, 1).shape,
    "broadcast": lambda n, x: torch.broadcast_to(x[:1].view(1, 1), (n, 4)).shape,
    "meta": lambda n, x: torch.empty(n, 3, device="meta").shape,
    "pad": lambda n, x: F.pad(x.new_zeros(0, 1), (0, n)).shape,
    "repeat": lambda n, x: x[:0].repeat(n, 1).shape,
    "tile": lambda n, x: x[:0].tile(n).shape,
    "roll": lambda n, x: x.roll(n).shape,
    "begin": lambda n, x: x.as_strided((0,), (1,), n).shape,
    "as_strided": lambda n, x: x.as_strided((n, 2), (0, 0)).shape,
    "empty_strided": lambda n, x: torch.empty_strided((2,), (n,)).shape if n > 2**59 else 3,
    "new_empty_strided": lambda n, x: x.new_empty_strided((2, 1, 3), (1, n, n)).shape if n > 2**59 else 3,
}


@pytest.mark.parametrize("use", AS_LARGE_AS_NUMBERS_ARE)
def test_of_numbers_that_sizes_cannot_be(use):
    made = AS_LARGE_AS_NUMBERS_ARE[use]
    calls = (2, 3, 4, 2**63 - 1, 5, 2**62, -(2**63), 6, 2**61, -(2**62))
    raised = same_calls(lambda n, x: (made(n, x), x + 1)[1], calls)
    assert same_calls(lambda n, x: (made(n, x), x + 1), calls) == raised > 0


BEYOND = {
    "full": lambda n: torch.full((2,), n).dtype,
    "full of integers": lambda n: torch.full((2,), n, dtype=torch.int64).dtype,
    "full of floats": lambda n: torch.full((2,), n, dtype=torch.float32).dtype,
    "fill_": lambda n: torch.zeros(2, dtype=torch.int64).fill_(n).dtype,
    "scalar_tensor": lambda n: torch.scalar_tensor(n, dtype=torch.int64).dtype,
    "begin and end": lambda n: torch.arange(n, n).dtype,
    "end of bytes": lambda n: torch.arange(n, n, dtype=torch.uint8).dtype,
    "step": lambda n: torch.arange(0, 4, n).dtype if n else 0,
    "float": lambda n: torch.arange(0.0, float(n), n * 2.0, dtype=torch.int64).dtype if n else 0,
}


@pytest.mark.parametrize("use", BEYOND)
def test_of_numbers_beyond_64_bits(use):
    made = BEYOND[use]
    calls = (2, 3, 4, 2**63, 5, 2**63 - 1, -(2**63), 6, 2**64, -(2**63) - 1)
    raised = same_calls(lambda n, x: (made(n), x + 1)[1], calls)
    assert same_calls(lambda n, x: (made(n), x + 1), calls) == raised > 0


@pytest.mark.parametrize("n", [2**63 - 1, 2**62])
def test_more_pieces_than_can_be_counted(n):
    def fn(x):
        return len(x.chunk(n)), x[:2].unsafe_chunk(n, 0)

    compiled = pliant.compile(fn)
    for size in (6, 7, 8):
        assert str(outcome(compiled, torch.ones(size))) == str(outcome(fn, torch.ones(size)))


def test_a_pad_takes_away_no_more_than_there_is():
    """What it adds on the other side is not there to be taken away."""
    compiled = pliant.compile(lambda x, a, b: (F.pad(x, (a, b)), x + 1))
    raised = 0
    for size in (4, 0, 1, 3):
        for a in (2, -1, -4, 3, 0):
            for b in (1, -2, -4, 5):
                want = outcome(lambda x: (F.pad(x, (a, b)), x + 1), torch.arange(float(size)))
                assert str(outcome(compiled, torch.arange(float(size)), a, b)) == str(want)
                raised += type(want[0]) is type
    assert raised > 20


def test_as_many_classes_as_the_data_has_after_others():
    compiled = pliant.compile(F.one_hot)
    for values, n in (([0, 2], 4), ([0, 2], 3), ([1, 2, 0], 5), ([0, 3], -1), ([0, 1], -1), ([0, 2], 6), ([0, 2], 2), ([0], -2)):
        t = torch.tensor(values)
        assert str(outcome(compiled, t, n)) == str(outcome(F.one_hot, t, n))


@pytest.mark.parametrize("read", [True, False])
def test_as_many_classes_as_data_says(read):
    """It may say -1: as many as the other data has."""

    def fn(x, t):
        made = F.one_hot(t, int(x[0].item()))
        return made if read else x + 1

    compiled = pliant.compile(fn)
    for n in (4, 3, -1, 5, -2, 0, -1, 2):
        for values in ([0, 2], [], [[1], [3]]):
            given = torch.tensor([float(n)]), torch.tensor(values, dtype=torch.int64)
            want, got = outcome(fn, *given), outcome(compiled, *given)
            assert str(got) == str(want) if type(want) is torch.Tensor else got[0] is want[0], (n, values)


CONVERTED = {
    "full": lambda n, d: torch.full((2,), n, dtype=d),
    "scalar": lambda n, d: torch.tensor(n, dtype=d),
    "fill_": lambda n, d: torch.zeros(2, dtype=d).fill_(n),
    "masked_fill": lambda n, d: torch.zeros(2, dtype=d).masked_fill(torch.tensor([True, False]), n),
    "clamp": lambda n, d: torch.zeros(2, dtype=d).clamp(max=n),
    "where": lambda n, d: torch.where(torch.tensor([True, False]), torch.zeros(2, dtype=d), n),
}


@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize("use", CONVERTED)
def test_of_data_that_a_dtype_has_not(use, kind):
    """What only the run knows: a kernel must not wrap it, and eager raises, whoever reads the result."""
    made = CONVERTED[use]
    for dtype in (torch.uint8, torch.int16, torch.int32, torch.float16, torch.int64):
        for fn in (
            lambda x, dtype=dtype: (made(kind(x[0].item()), dtype), x + 1),
            lambda x, dtype=dtype: (made(kind(x[0].item()), dtype), x + 1)[1],
        ):
            compiled = pliant.compile(fn, background=False)
            for value in (1.0, 3.0, 300.0, 1e5, 2.0, 5e9):
                x = torch.full((2,), value)
                want, got = outcome(fn, x), outcome(compiled, x)
                assert str(got) == str(want) if want[0] is not RuntimeError else got[0] is RuntimeError, (dtype, value)


def test_sizes_in_tensors_of_functions_that_are_tried_in_other_ways():
    """The first way had read the number, was taken back, and the next one took it for read."""

    def fn(x, size, mode):
        return F.interpolate(x, size=[size, size], mode=mode)

    for mode in ("bilinear", "nearest", "bicubic"):
        compiled = pliant.compile(fn, strict=True, background=False)
        for n in (5, 6, 9):
            args = torch.rand(2, 3, 8, 8), torch.tensor([n], dtype=torch.int32), mode
            torch.testing.assert_close(compiled(*args), fn(*args))
        assert pliant.stats()["graph_breaks"] == 0


BEYOND_FLOATS = [(1.0, 1), (2.0**53, 2**53 + 1)]
BEYOND_FLOATS += [(2.0**53 + 2, 2**53 + 1), (2.0**63, 2**63 - 1), (-(2.0**63), -(2**63)), (math.nan, 2**53 + 1)]
BEYOND_FLOATS += [(math.inf, 2**63 - 1), (-math.inf, -(2**63)), (-0.0, 0), (2.0**53, 2**53 - 1)]


def test_integers_beside_floats_are_compared_as_they_are():
    def of_data(call, _):
        x, n = call
        a, b = x.item(), n.item()
        return a == b, a != b, a < b, a <= b, a > b, a >= b, b == a, b < a, b <= a, b > a, a in (b, 0), (a, 1) == (b, 1)

    def of_one(call, _):
        x, n = call
        a, b = x.item(), n.item()
        return a < 2**53 + 1, b <= 2.0**53, b == 2.0**63, a == 2**63 - 1

    def of_arguments(call, _):
        a, n = call[0].item(), call[1]
        return a < n, a == n, n >= a, n <= a

    calls = [(torch.tensor(x, dtype=torch.float64), torch.tensor(n)) for x, n in BEYOND_FLOATS]
    same_calls(of_data, calls)
    same_calls(of_one, calls)
    same_calls(of_arguments, [(x, int(n)) for x, n in calls])


@pytest.mark.parametrize("divide", [lambda a, b: a // b, lambda a, b: a % b, lambda a, b: a / b, divmod])
@pytest.mark.parametrize("kind", [float, int, bool])
def test_words_of_a_division_by_zero(divide, kind):
    def of_both(call, y):
        x, n = call
        y.add_(1)  # behind it the frame cannot run again
        a, b = x.item(), n.item()
        try:
            return divide(a, b)
        except ZeroDivisionError as e:
            return str(e)

    def of_one(call, y):
        y.add_(1)
        try:
            return divide(7, call[1].item())
        except ZeroDivisionError as e:
            return str(e)

    def of_a_zero(call, y):
        try:
            return divide(call[0].item(), kind(0))
        except ZeroDivisionError as e:
            return str(e)

    dtype = {float: torch.float64, int: torch.int64, bool: torch.bool}[kind]
    calls = [(torch.tensor(x), torch.tensor(n, dtype=dtype)) for x, n in ((1.5, 1), (2.0, 0), (3.0, -2), (-0.0, 0))]
    same_calls(of_both, calls)
    same_calls(of_one, calls)
    for fn in (of_both, of_a_zero):
        same_calls(fn, [(x.to(torch.int64), n) for x, n in calls])
    same_calls(of_a_zero, calls)


BEYOND_WORDS = {
    "product": lambda v, y: y * v,
    "in place": lambda v, y: y.clone().add_(v),
    "subtracted from": lambda v, y: v - y,
    "compared": lambda v, y: y > v,
    "factor": lambda v, y: torch.add(y, y, alpha=v),
    "chosen": lambda v, y: torch.where(y > 0, y, v),
    "filled": lambda v, y: torch.full((2,), v),
    "filled in floats": lambda v, y: y.new_full((2,), v),
    "masked": lambda v, y: y.masked_fill(y > 0, v),
    "tensor": lambda v, y: torch.tensor([v, 1]),
    "range": lambda v, y: torch.arange(v, v + 2),
    "list": lambda v, y: torch._foreach_mul([y, y], [v, 2]),
}
MADE = {
    "int of a float": lambda x, n: int(x[0].item()),
    "product": lambda x, n: int(x[0].item()) * 3,
    "argument": lambda x, n: n * 2**40,
}


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("made", MADE)
def test_integers_that_pytorch_has_no_bits_for(made, backend):
    """Eager refuses them whoever reads the result, in its turn behind what the program has done."""
    log = []

    def unread(x, n, y, use):
        v = MADE[made](x, n)
        log.append(1)
        use(v, y)
        return 1

    def handled(x, n, y, use):
        v = MADE[made](x, n)
        try:
            log.append(2)
            use(v, y)
        except (OverflowError, ValueError, RuntimeError) as e:
            log.append(repr(e))
        return y

    def behind_a_write(x, n, y, use):
        y.add_(1)
        v = MADE[made](x, n)
        log.append(3)
        r = use(v, y)
        return None if r is None else y

    for fn in (unread, handled, behind_a_write):
        for name, use in BEYOND_WORDS.items():
            compiled = pliant.compile(fn, background=False, backend=backend)
            for number, n in ((3.0, 2), (4.0, 3), (1e300, 2**62), (-1e30, 7), (2.0**63, -(2**40)), (5.0, -(2**63)), (2.0**64, 2**31)):
                told = []
                for f in (fn, compiled):
                    log.clear()
                    y = torch.ones(2)
                    told.append((str(outcome(f, torch.tensor([number], dtype=torch.float64), n, y, use)), str(y), str(log)))
                assert told[0] == told[1], (fn.__name__, name, number, n)
