"""What raises on bad data or a dtype raises where nobody reads its result, and in its turn among writes."""

from __future__ import annotations

import pytest
import torch

import pliant


def divides(x, d):
    x.add_(1)
    (d + 1) // d  # noqa: B018
    return x + 1


def divides_in_place(x, d):
    d = d.clone()
    d //= 0
    return x


def remainder_of_a_number(x, d):
    n = d.sum().item() * 0
    d % n  # noqa: B018
    return x


def negative_power(x, d):
    d ** -d.sum().item()  # noqa: B018
    return x


def fills(x, d):
    torch.full_like(x.to(torch.uint8), -1.5)
    return x


def fills_with_what_is_large(x, d):
    torch.full_like(d, 1e30)
    return x


def deviation(x, d):
    x.add_(1)
    s = (d * 2).std()
    x.mul_(2)
    return s


def divides_between_writes(x, d):
    a = x.flip(0)
    q = torch.div(d.bool(), d, rounding_mode="trunc")
    x.add_(-128)
    return a, q


def unknown_approximation(x, d):
    x.add_(1)
    torch.nn.functional.gelu(x, approximate="no")
    return x


def unknown_approximation_in_place(x, d):
    y = x + 1
    torch._C._nn.gelu_(y, approximate="no")
    return y


PUTS = {
    "index_add": lambda z, x, d: z.index_add(0, d, x),
    "index_add_": lambda z, x, d: z.index_add_(0, d, x),
    "index_copy": lambda z, x, d: z.index_copy(0, d, x),
    "index_fill_": lambda z, x, d: z.index_fill_(0, d, 1.0),
    "index_put_": lambda z, x, d: z.index_put_((d,), x),
    "index_reduce": lambda z, x, d: z.index_reduce(0, d, x, "mean"),
    "put": lambda z, x, d: z.put(d, x),
    "scatter_": lambda z, x, d: z.scatter_(0, d, x),
    "scatter_add": lambda z, x, d: z.scatter_add(0, d, x),
    "scatter_reduce": lambda z, x, d: z.scatter_reduce(0, d, x, "sum"),
    "masked_scatter_": lambda z, x, d: z.masked_scatter_(z == 0, x),
}


def puts(how):
    def fn(x, d):
        PUTS[how](x.new_zeros(4), x, d)
        return x + 1

    return fn


def outcome(fn):
    x, d = torch.ones(3), torch.tensor([0, 9, 1])
    try:
        return [fn(x, d), x]
    except Exception as e:
        return [type(e), str(e), x]


@pytest.mark.parametrize("backend", ["native", "aten"])
@pytest.mark.parametrize("fn", [
    divides, divides_in_place, remainder_of_a_number, negative_power, fills, fills_with_what_is_large, deviation, divides_between_writes,
    unknown_approximation, unknown_approximation_in_place,
    *map(puts, PUTS),
])  # fmt: skip
@pytest.mark.filterwarnings("ignore:index_reduce")
def test_it_raises(fn, backend):
    compiled = pliant.compile(fn, background=False, backend=backend)
    want = outcome(fn)
    assert isinstance(want[0], type)
    for _ in range(2):
        got = outcome(compiled)
        assert got[:-1] == want[:-1] and torch.equal(got[-1], want[-1])


def test_a_write_waits_for_checks_of_other_memory():
    def fn(x, y, d, e):
        x[d] = 1.0
        y[e] = 2.0
        return x.sum()

    compiled = pliant.compile(fn, background=False)
    for bad in (7, 1):
        both = []
        for f in (fn, compiled):
            x, y, d, e = torch.zeros(3), torch.zeros(3), torch.tensor([bad]), torch.tensor([0])
            try:
                f(x, y, d, e)
            except IndexError as error:
                both.append((str(error), x.tolist(), y.tolist()))
            else:
                both.append((x.tolist(), y.tolist()))
        assert both[0] == both[1]


def test_squeeze_of_a_size_from_data():
    def fn(b):
        rows = b.nonzero()
        return rows, rows.squeeze(0) + 1

    compiled = pliant.compile(fn, background=False)
    for b in ([True, True, False], [False, True, False], [False, False, False]):
        for want, got in zip(fn(torch.tensor(b)), compiled(torch.tensor(b)), strict=True):
            assert torch.equal(want, got)


def test_a_concatenation_that_could_compute_its_operands_reads_them():
    def fn(x):
        joined = torch.cat([x, x + 1], -1)
        rows = torch.einsum("...i,...i->...", x, x)
        top = rows[None, ..., 0]
        flat = x.reshape(-1)
        return joined, top.log2() // (top + flat * flat), torch.maximum(flat, top).sort(0).values

    compiled = pliant.compile(fn, background=False)
    for shape in ((3, 4), (1, 8), (17, 4), (1, 5)):
        x = torch.randint(-9, 9, shape, dtype=torch.int8)
        for want, got in zip(fn(x), compiled(x), strict=True):
            assert torch.equal(want.nan_to_num(), got.nan_to_num())


@pytest.mark.parametrize("read", [False, True], ids=["unread", "read"])
@pytest.mark.parametrize("backend", ["native", "aten"])
@pytest.mark.parametrize("chosen", [
    lambda w: w.max(), lambda w: w.min(), lambda w: w.max(0).values, lambda w: w.amax(), lambda w: w.amin(0), lambda w: w.argmax(),
    lambda w: w.median(0).values, lambda w: w.mode().values, lambda w: torch.nanmedian(w, 0).values, lambda w: w.argmin(0),
    lambda w: w.norm(float("inf")), lambda w: torch.aminmax(w, dim=0).min, lambda w: w.median(),
])  # fmt: skip
def test_a_choice_among_no_elements(chosen, backend, read):
    def fn(x, y):
        w = x[x > 0.5] * 2
        y.add_(1)
        m = chosen(w)
        y *= -1
        return w, m if read else 0

    compiled = pliant.compile(fn, backend=backend, background=False)
    for n, value in ((4, 1.0), (3, 1.0), (3, 0.0), (5, 1.0), (0, 1.0)):
        both = []
        for f in (fn, compiled):
            x, y = torch.full((n,), value), torch.ones(2)
            try:
                both.append((str(f(x, y)), y.tolist()))
            except (RuntimeError, IndexError) as e:
                both.append((type(e), y.tolist()))
        assert both[0] == both[1]


@pytest.mark.parametrize("chosen", [torch.max, torch.min, torch.median, torch.mode], ids=lambda f: f.__name__)
def test_a_choice_along_a_dim_without_places(chosen):
    def fn(x, y):
        v = x * 2
        y.add_(1)
        m = chosen(v, -1).values
        y *= -1
        return m

    compiled = pliant.compile(fn, backend="native", background=False)
    for size in ((4, 3), (3, 0), (3, 0), (0, 3), (0, 0)):
        both = []
        for f in (fn, compiled):
            x, y = torch.ones(size), torch.ones(2)
            try:
                both.append((str(f(x, y)), y.tolist()))
            except IndexError as e:
                both.append((str(e), y.tolist()))
        assert both[0] == both[1]


@pytest.mark.parametrize("read", [False, True])
def test_comparisons_with_a_complex_number(read):
    seen = []

    def fn(x, y):
        seen.append("before")
        y.mul_(2)
        more = x > (-1) ** 0.5
        return (more, x + 1) if read else x + 1

    for side in (fn, pliant.compile(fn)):
        for n in (2, 3):
            y = torch.ones(n)
            seen.clear()
            with pytest.raises(NotImplementedError, match="gt_cpu"):
                side(torch.ones(n), y)
            assert seen == ["before"] and y.tolist() == [2] * n


@pytest.mark.parametrize("fill", [
    lambda x: x.fill_(x), lambda x: x.fill_(x[0, :1]), lambda x: x.masked_fill(x > 0, x[0]), lambda x: x.masked_fill_(x > 0, x),
    lambda x: x.fill_((-1) ** 0.5), lambda x: x.masked_fill(x > 0, 1j),
])  # fmt: skip
def test_filled_with_what_does_not_fit(fill):
    seen = []

    def fn(x, y):
        seen.append("before")
        y.mul_(2)
        fill(x)
        return x

    for side in (fn, pliant.compile(fn)):
        for n in (2, 3):
            y = torch.ones(n)
            seen.clear()
            with pytest.raises(RuntimeError, match="only supports|cannot be converted"):
                side(torch.ones(n, 2), y)
            assert seen == ["before"] and y.tolist() == [2] * n


UNREAD = {
    "cholesky": lambda x: torch.cholesky(x),
    "cholesky_inverse": lambda x: torch.cholesky_inverse(x * 0),
    "histc": lambda x: torch.histc(x * float("inf"), 4),
    "lstsq": lambda x: torch.linalg.lstsq(x * float("nan"), x),
    "pinv": lambda x: torch.linalg.pinv(x * float("nan")),
    "binary_cross_entropy": lambda x: torch.nn.functional.binary_cross_entropy(x + 9, x),
}


@pytest.mark.filterwarnings("ignore:torch.cholesky is deprecated")
@pytest.mark.parametrize("backend", ["native", "aten"])
@pytest.mark.parametrize("name", UNREAD)
def test_bad_data_is_told_before_what_is_written_behind_it(name, backend):
    def fn(x):
        x.add_(1)
        UNREAD[name](x)
        x.mul_(3)
        return x + 1

    compiled = pliant.compile(fn, background=False, backend=backend)
    want, got = torch.tensor([[1.0, 2.0], [3.0, -4.0]]), torch.tensor([[1.0, 2.0], [3.0, -4.0]])
    with pytest.raises(RuntimeError) as told:
        fn(want)
    for _ in range(2):
        got.copy_(torch.tensor([[1.0, 2.0], [3.0, -4.0]]))
        with pytest.raises(type(told.value)) as found:
            compiled(got)
        assert str(found.value) == str(told.value) and torch.equal(got, want)


F = torch.nn.functional
WINDOWS = {
    **{f"{of}_pool{n}d {k} {p}": lambda x, f=getattr(F, f"{of}_pool{n}d"), k=k, p=p: f(x, k, 2, p)
       for of in ("max", "avg") for n in (1, 2, 3) for k, p in ((2, 2), (3, -1))},
    "stride beyond an int": lambda x: F.avg_pool1d(x, 2, 2**31),
    "dilation beyond an int": lambda x: F.max_pool3d(x, 2, 1, 0, 2**40),
    "divisor": lambda x: F.avg_pool2d(x, 2, divisor_override=0),
    "unfold": lambda x: F.unfold(x[None], 2, padding=-1),
    "unfold, a method": lambda x: x.unfold(1, -1, 1),
    "padding of a convolution": lambda x: F.conv1d(x, torch.ones(2, 6, 2), padding=-1),
    "dilation of a convolution": lambda x: F.conv1d(x, torch.ones(2, 6, 2), dilation=-1),
    "no dilation": lambda x: F.conv1d(x, torch.ones(2, 6, 2), dilation=0),
    "stride of a convolution": lambda x: F.conv_transpose1d(x, torch.ones(6, 2, 2), stride=0),
    "bytes beyond 64 bits": lambda x: torch.zeros(2**61 + 1),
    "rows beyond 64 bits": lambda x: torch.zeros(2**40, 2**30, dtype=torch.int8),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_what_kernels_refuse_of_which_the_shape_alone_is_read(name):
    def fn(x):
        return x.sum(), WINDOWS[name](x).shape

    x = torch.ones(2, 6, 6) if "3" not in name else torch.ones(2, 2, 6, 6, 6)
    with pytest.raises(RuntimeError) as told:
        fn(x)
    with pytest.raises(RuntimeError) as found:
        pliant.compile(fn, backend="aten")(x)
    assert str(found.value) == str(told.value)


SPLITS = [lambda z: z.unbind(), lambda z: z.split(1), list, lambda z: z.chunk(z.shape[0]), lambda z: z.unsafe_split(1)]


@pytest.mark.parametrize("split", SPLITS)
def test_no_loop_over_more_results_than_there_is_memory_for(split):
    def fn(x, n):
        return len(split(torch.zeros(n, 2**30)[:, 0])) + x

    compiled = pliant.compile(fn, backend="aten")
    with pytest.raises(RuntimeError, match="can't allocate"):
        compiled(torch.ones(1), 2**25)


def test_layers_beyond_number():
    m = torch.nn.RNN(2, 3, 2)
    compiled = pliant.compile(lambda x: m(x)[0], backend="aten")
    x = torch.ones(4, 2)
    assert torch.equal(compiled(x), m(x)[0])
    m.num_layers = 2**62
    for side in (m, compiled):
        with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
            side(x)


def test_options_that_are_none_beside_numbers_that_change():
    def fn(x, y, eps, full):
        return torch.nn.functional.poisson_nll_loss(x, y, full=full, eps=eps)

    x, y = torch.rand(3), torch.rand(3)
    compiled = pliant.compile(fn, backend="aten")
    for eps in (1e-8, 1e-3, 1e-5):
        torch.testing.assert_close(compiled(x, y, eps, False), fn(x, y, eps, False))
    with pytest.raises(TypeError, match="must be bool"):
        compiled(x, y, 1e-5, None)


#: Operators, and what is right for them, and wrong: dtypes, numbers, texts and kinds that kernels refuse and shape functions pass.
REFUSED = {
    "complex of two precisions": (lambda x, v: torch.complex(x, v), torch.ones(3), torch.ones(3, dtype=torch.float64)),
    "polar of two precisions": (lambda x, v: torch.polar(x, v), torch.ones(3), torch.ones(3, dtype=torch.float64)),
    "heaviside of two precisions": (torch.heaviside, torch.ones(3), torch.ones(3, dtype=torch.bfloat16)),
    "cross of two precisions": (torch.linalg.cross, torch.ones(3), torch.ones(3, dtype=torch.float64)),
    "conv1d of two precisions": (lambda x, v: torch.conv1d(x[None, None], v), torch.ones(1, 1, 2), torch.ones(1, 1, 2).double()),
    "addbmm of two precisions": (
        lambda x, v: torch.addbmm(x[:, None], v, v.float()), torch.ones(1, 3, 3), torch.ones(1, 3, 3, dtype=torch.bfloat16)),
    "grid_sample of two precisions": (lambda x, v: torch.grid_sampler_2d(x.view(1, 1, 1, 3), v, 0, 0, False), torch.zeros(1, 2, 2, 2),
        torch.zeros(1, 2, 2, 2).double()),
    "a complex number among integers": (lambda x, v: x.long().masked_fill(x > 9, v), torch.tensor(2), torch.tensor(2j)),
    "softshrink": (torch.nn.functional.softshrink, 0.5, -0.5),
    "huber_loss": (lambda x, v: torch.nn.functional.huber_loss(x, x, delta=v), 0.5, -0.5),
    "norm": (lambda x, v: torch.linalg.vector_norm(x, dtype=v), torch.float64, torch.complex64),
    "rounding_mode": (lambda x, v: torch.div(x, x, rounding_mode=v), "floor", "up"),
    "roll, shifts": (lambda x, v: torch.roll(x, v, 0), 1, (1, 2)),
    "flip": (lambda x, v: torch.flip(x, v), (0,), (0, -1)),
    "slice_scatter": (lambda x, v: x.slice_scatter(x, 0, 0, 3, v), 1, 0),
    "diagonal_scatter": (lambda x, v: x.view(1, 3).diagonal_scatter(x[:1], v), 1, 50),
    "_softmax_backward_data": (lambda x, v: torch.ops.aten._softmax_backward_data(x, x, v, torch.float32), 0, 1),
    "a dim that is a float": (lambda x, v: torch.ops.aten._safe_softmax(x, v), 0, 0.5),
    "a count that is a float": (lambda x, v: torch.ops.aten.topk(x, v), 1, 1.5),
    "one_hot of no classes": (lambda x, v: torch.nn.functional.one_hot(x.long(), v), 3, 0),
    "one_hot of a dtype": (lambda x, v: torch.nn.functional.one_hot(x.long(), 3, **v), {}, {"dtype": torch.int8}),
    "item of more": (lambda x, v: x[0].item(**v), {}, {"memory_format": torch.contiguous_format}),
    "take_along_dim of None": (lambda x, v: torch.take_along_dim(x, v), torch.tensor([0]), None),
    "kron of a number": (lambda x, v: torch.kron(x, v), torch.ones(2), 2.5),
    "half of the statistics": (lambda x, v: torch.native_batch_norm(x[None], None, None, *v, True, 0.1, 1e-5), (None, None),
        (torch.ones(3), None)),
    "65 dims": (lambda x, v: x[:1].view(v).amax(0), (1, 1), (1,) * 65),
}  # fmt: skip


@pytest.mark.parametrize("first", [0, 1], ids=["right first", "wrong first"])
@pytest.mark.parametrize("name", REFUSED)
def test_dtypes_and_numbers_that_are_refused(name, first):
    of, right, wrong = REFUSED[name]

    def unread(x, v):
        of(x, v)
        return x + 1

    def tried(x, v):
        try:
            of(x, v)
        except (RuntimeError, TypeError, ValueError, IndexError) as e:
            return type(e).__name__, str(e)
        return x + 1

    for fn in (unread, tried):
        compiled, raised = pliant.compile(fn, background=False), 0
        for i in range(4):
            v, both = (right, wrong)[i + first & 1], []
            for f in (fn, compiled):
                try:
                    both.append(f(torch.ones(3), v))
                except (RuntimeError, TypeError, ValueError, IndexError) as e:
                    both.append((type(e).__name__, str(e)))
            raised += type(both[0]) is tuple
            assert repr(both[0]) == repr(both[1]), (i, both)
        assert raised >= 2


def test_a_setting_that_only_the_data_knows_is_looked_at():
    def fn(x, d):
        torch.nn.functional.softshrink(x, d.item())
        return x + 1

    compiled = pliant.compile(fn, background=False)
    for d in (0.5, -0.5, 0.25):
        both = []
        for f in (fn, compiled):
            try:
                both.append(f(torch.ones(3), torch.tensor(d)))
            except RuntimeError as e:
                both.append(str(e))
        assert repr(both[0]) == repr(both[1])


def test_a_result_is_written_where_it_is_asked_for():
    """PyTorch's C++ code for tensors of a class of Python's computes it elsewhere."""

    def fn(x, out):
        torch.linalg.matrix_rank(x, out=out)
        return out + 1

    compiled = pliant.compile(fn, background=False)
    for n in (3, 5, 3):
        out, x = torch.zeros((), dtype=torch.int64), torch.eye(n)
        assert compiled(x, out).item() == n + 1 and out.item() == n
