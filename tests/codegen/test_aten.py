"""The straight-line executable: what it prints, what it keeps alive, symbols, assertions, constants, aliasing."""

from __future__ import annotations

import functools
import weakref

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from pliant.codegen.aten import build
from pliant.errors import InternalError
from pliant.graph.trace import tolist
from tests.codegen.tracing import Captured, tensors_of


def capture(fn, *examples, **options):
    return Captured(fn, *examples, compiler=build, **options)


def check(fn, *cases, **options):
    """Same values, types, strides and aliasing as eager, for every tuple of arguments."""
    with torch.no_grad():
        captured = capture(fn, *[v.clone() if isinstance(v, torch.Tensor) else v for v in cases[0]], **options)
        for args in cases:
            assert captured.guards_hold(*args)
            mine, eagers = ([v.clone() if isinstance(v, torch.Tensor) else v for v in args] for _ in "ab")
            torch.manual_seed(1)
            got = captured(*mine)
            torch.manual_seed(1)
            want = fn(*eagers)
            compare(got, want)
            compare(mine, eagers)
            for a, b in zip(tensors_of(mine), tensors_of(eagers), strict=True):
                assert (a._version > 0) == (b._version > 0)
            flat_got, flat_want = tensors_of([mine, got]), tensors_of([eagers, want])
            for side in range(len(flat_got)):
                assert [t.untyped_storage()._cdata == flat_got[side].untyped_storage()._cdata for t in flat_got] == [
                    t.untyped_storage()._cdata == flat_want[side].untyped_storage()._cdata for t in flat_want
                ]
                assert [t is flat_got[side] for t in flat_got] == [t is flat_want[side] for t in flat_want]
    return captured


def compare(got, want):
    if isinstance(want, (list, tuple)):
        assert type(got) is type(want) and len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            compare(g, w)
    elif isinstance(want, torch.Tensor):
        assert got.shape == want.shape and got.dtype is want.dtype and got.stride() == want.stride()
        assert got._is_view() == want._is_view()
        torch.testing.assert_close(got, want, rtol=0, atol=0, equal_nan=True)
    else:
        assert type(got) is type(want) and got == want


def r(*shape):
    return torch.randn(*shape)


PROGRAMS = {
    "pointwise": (lambda x: torch.relu(x * 2 + 1) - x.sigmoid(), [(3, 4), (5, 7)]),
    "sizes": (lambda x: (x.shape[0] * x.shape[1], x.new_zeros(x.shape[0] + 1, x.shape[1] // 2), x.numel()), [(3, 4), (5, 9)]),
    "float sizes": (lambda x: (x / x.shape[0] ** 0.5, x.shape[1] / 2), [(3, 4), (5, 9)]),
    "views": (lambda x: (x.t(), x[1:], x.view(-1), x.unsqueeze(0).expand(2, -1, -1)), [(3, 4), (5, 7)]),
    "view of intermediate": (lambda x: ((x + 1).t(), (x * 2)[0]), [(3, 4), (5, 7)]),
    "base and its views": (lambda x: (lambda y: (y, y[0], y.t()[1:]))(x.exp().neg().exp().neg()), [(3, 4), (5, 7)]),
    "in place on input": (lambda x: x.add_(1).mul_(2).neg_().abs_().sum(), [(3, 4), (5, 7)]),
    "in place through a view": (lambda x: (x[0].zero_(), x[:, 1].fill_(3), x.neg().neg().neg())[2], [(3, 4), (5, 7)]),
    "returned input": (lambda x: (x, x.add_(1), x), [(3, 4)]),
    "same value twice": (lambda x: ((x + 1), (x + 1), (x + 1).t()), [(3, 4)]),
    "same view twice": (lambda x: (x.t(), x.t(), x), [(3, 4)]),
    "constants": (lambda x: (x + torch.tensor([1.0, 2.0, 3.0, 4.0]), torch.tensor([5.0]), torch.tensor(2).add_(1)), [(3, 4), (5, 4)]),
    "several results": (lambda x: (*torch.max(x, 1), *torch.topk(x, 2), torch.sort(x)[1]), [(3, 4), (5, 7)]),
    "one of several results": (lambda x: torch.max(x, 1)[1] + torch.var_mean(x, 1)[1].long(), [(3, 4), (5, 7)]),
    "random": (lambda x: (torch.rand(x.shape[0]), torch.randn_like(x), F.dropout(x, 0.5)), [(3, 4), (5, 7)]),
    "unused random draws": (lambda x: (torch.rand(3), torch.rand(2))[1] + x[0, 0], [(3, 4)]),
    "cat, stack, split": (lambda x: (torch.cat([x, x * 2], 1), torch.stack([x, -x]), x.split(1, 1)[0]), [(3, 4), (5, 4)]),
    "indexing": (lambda x: (x[torch.arange(2)], x[:, [0, 1]], x[..., None], x[1, 1], x[x.argmax(1)]), [(4, 4), (7, 7)]),
    "dtypes": (lambda x: (x.double(), x.to(torch.bfloat16).float(), x.int(), x > 0, (x > 0).sum(dtype=torch.int32)), [(3, 4)]),
    "infinities": (lambda x: (x.masked_fill(x > 0, float("-inf")), x.clamp(min=-0.5, max=float("inf")), x + float("nan")), [(3, 4)]),
    "linear 2-d": (lambda x: F.linear(F.linear(x, torch.ones(5, 4), torch.ones(5)), torch.ones(3, 5)), [(3, 4), (6, 4)]),
    "shared weight": (lambda x: (lambda w: x @ w.t() + (x * 2) @ w.t())(torch.ones(5, 4)), [(3, 4), (6, 4)]),
    "layer norm": (lambda x: F.layer_norm(x, (x.shape[1],)), [(3, 4)]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_program(name):
    fn, shapes = PROGRAMS[name]
    check(fn, *[(r(*s),) for s in shapes])


@pytest.mark.parametrize("guard", [True, False])
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_in_either_state(name, guard):
    fn, shapes = PROGRAMS[name]
    x = r(*shapes[0])
    captured = Captured(fn, x.clone(), compiler=lambda *a: build(*a, guard=guard))
    torch.manual_seed(1)
    got = captured(x.clone())
    torch.manual_seed(1)
    compare(got, fn(x.clone()))


def matmul_4d(q, k):
    return q @ k.transpose(-1, -2)


def test_matmul_and_linear_are_whole():
    cases = [(r(2, 3, n, 8), r(2, 3, n + 1, 8)) for n in (4, 6)]
    source = check(matmul_4d, *cases).executable.source
    assert "matmul" in source and "bmm" not in source
    w, b = r(5, 8), r(5)
    captured = check(lambda x, w, b: F.linear(x, w, b).relu(), (r(2, 3, 8), w, b), (r(4, 7, 8), w, b), static=(1, 2))
    assert "_nn_linear" in captured.executable.source and "addmm" not in captured.executable.source


def test_parts_of_linear_that_are_used_stay():
    def fn(x, w, b):
        h = torch.addmm(b, x, w.t())
        return h.relu(), w.t() * 2

    check(fn, (r(3, 8), r(5, 8), r(5)), (r(4, 8), r(5, 8), r(5)), static=(1, 2))

    def written(x, w, b):
        h = F.linear(x, w, b)
        w.add_(1)
        return h.relu(), F.linear(x, w, b)

    check(written, (r(2, 3, 8), r(5, 8), r(5)), static=(1, 2))


def test_values_are_dropped_after_their_last_use():
    captured = capture(lambda x: ((x + 1) * 2 - 3).exp().sum(), r(3, 4))
    lines = captured.executable.source.splitlines()
    made = [line.split("=")[0].strip() for line in lines if " = " in line]
    dropped = " ".join(line for line in lines if line.strip().startswith("del "))
    assert all(name in dropped for name in made[:-2])


def test_memory_is_released_as_in_eager():
    alive = []

    class Probe(torch.utils._python_dispatch.TorchDispatchMode):
        def __init__(self):
            super().__init__()
            self.refs = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out = func(*args, **(kwargs or {}))
            alive.append(sum(1 for ref in self.refs if ref() is not None))
            if isinstance(out, torch.Tensor):
                self.refs.append(weakref.ref(out))
            return out

    def fn(x):
        for _ in range(10):
            x = (x + 1).sin()
        return x

    captured = capture(fn, r(3, 4))
    with Probe():
        captured(r(3, 4))
    assert max(alive) <= 2


def test_dead_operations_are_removed_but_effects_stay():
    def fn(x):
        unused = x.exp().sin()
        scratch = x.clone()
        scratch.add_(unused)
        torch.rand(3)
        x.add_(1)
        return x * 2

    source = check(fn, (r(3, 4),)).executable.source
    assert "exp" not in source and "clone" not in source and "rand" in source and "add_" in source


def test_repeated_sizes_are_computed_once():
    source = check(lambda x: (x.view(-1) + 1).view(-1, 2).sum(1) * x.numel() // x.numel(), (r(3, 4),), (r(5, 6),)).executable.source
    # once more in the assertion, and in its message
    assert source.count("n0 = ") == 1 and source.count("s0*s1") + source.count("s1*s0") == 3


# symbols that only the run knows --------------------------------------------------------------------------
def test_unbacked_sizes():
    def fn(x):
        kept = x[x > 0]
        where = torch.nonzero(x)
        return kept * 2, kept.shape[0], where.shape[0] + 1, torch.zeros(kept.shape[0]), torch.unique(x.round()).numel()

    captured = check(fn, (r(3, 4),), (r(5, 7),))
    empty = captured(-torch.ones(4, 4))
    assert empty[0].shape == (0,) and empty[1] == 0


def prefixes(lengths):
    """As many ones as all lengths so far sum to, for each length."""
    end, ones, ends = 0, [], []
    for n in tolist(lengths):
        torch._check(n >= 0)
        end = end + n
        ones.append(torch.ones(end))
        ends.append(end)
    return ones, ends


def test_prefix_sums_take_text_linear_in_their_number():
    texts = {}
    for count in (24, 96):
        lengths = torch.arange(count) % 5
        captured = Captured(prefixes, lengths, static=(0,))
        texts[count] = captured.executable.source
        for drawn in (lengths, lengths.flip(0)):
            ones, ends = captured(drawn)
            assert ends == drawn.cumsum(0).tolist() == [x.numel() for x in ones]
    assert len(texts[96]) < 5 * len(texts[24])


def test_numbers_from_data():
    def fn(x, i, flag):
        n = i.sum().item()
        return n + 1, x * n, x.sum().item(), flag.any().item(), x[:, 0].max().item() * 2

    captured = check(fn, (r(3, 4), torch.tensor([2, 3]), torch.tensor([True])), static=(1, 2))
    out = captured(torch.ones(5, 5), torch.tensor([4, 4]), torch.tensor([False]))
    assert out[0] == 9 and out[2] == 25.0 and out[3] is False and out[4] == 2.0


def test_runtime_assertions():
    def fn(x, n):
        k = n.item()
        torch._check(k > 2, lambda: "k must be large")
        return x * k

    captured = capture(fn, r(3, 4), torch.tensor(5))
    assert captured.scope.asserts
    torch.testing.assert_close(captured(torch.ones(2, 2), torch.tensor(3)), torch.full((2, 2), 3.0))
    with pytest.raises(RuntimeError):
        captured(torch.ones(2, 2), torch.tensor(1))


def test_symbols_without_a_slot_are_read_from_the_tensors():
    captured = capture(lambda x: (x * x.shape[0], x.shape[1]), r(3, 4))
    only_tensors = [s for s in captured.slots if isinstance(s, torch.Tensor)]
    fn = build(captured.trace, only_tensors, captured.nested).fn
    got = fn(torch.ones(5, 7))
    assert got[1] == 7 and got[0][0, 0] == 5


def test_missing_inputs_are_an_error():
    captured = capture(lambda x, y: x + y, r(3, 4), r(3, 4))
    with pytest.raises(InternalError):
        build(captured.trace, captured.slots[:3], captured.nested)


def test_a_symbol_may_not_shadow_generated_names():
    captured = capture(lambda x: x + 1, r(3, 4))
    with pytest.raises(InternalError, match="v3"):
        build(captured.trace, ["v3", *captured.slots], captured.nested)


def test_constants_are_fresh_on_every_call():
    captured = capture(lambda x: (torch.tensor([1.0, 2.0]), x + torch.tensor([1.0]).add_(1)), r(3, 4))
    first = captured(torch.zeros(2, 2))
    first[0].fill_(7)
    second = captured(torch.zeros(2, 2))
    assert second[0].tolist() == [1.0, 2.0] and second[1][0, 0] == 2.0


def test_exceptions_of_kernels_come_through_and_leave_the_state():
    captured = capture(lambda x, i: F.embedding(i, x).sin().cos().exp().sum(), r(5, 4), torch.tensor([1, 2]), static=(0,))
    with pytest.raises(IndexError):
        captured(r(5, 4), torch.tensor([1, 99]))
    y = torch.ones(2, requires_grad=True) * 2
    assert y.requires_grad and y.grad_fn is not None


def test_traceback_shows_the_generated_line():
    captured = capture(lambda x, i: F.embedding(i, x).exp(), r(5, 4), torch.tensor([1, 2]), static=(0,))
    try:
        captured(r(5, 4), torch.tensor([99]))
    except IndexError as e:
        tb = e.__traceback__
        while tb.tb_next is not None:
            tb = tb.tb_next
        import linecache

        assert "_embedding(" in linecache.getline(tb.tb_frame.f_code.co_filename, tb.tb_lineno)


UNARY = [
    torch.sin,
    torch.relu,
    torch.neg,
    lambda t: t.t(),
    lambda t: t * 2,
    lambda t: t.clone(),
    lambda t: t.contiguous(),
    lambda t: t.detach(),
]
IN_PLACE = [lambda t: t.add_(1), lambda t: t.mul_(0.5), lambda t: t[0].zero_(), lambda t: t.t().neg_(), lambda t: t.view(-1)[:2].fill_(2)]


@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 5)), min_size=1, max_size=12), st.integers(0, 2**8 - 1))
def test_random_programs_with_views_and_writes(steps, kept):
    """Any mix of views, copies and in-place writes keeps values and aliasing."""

    def fn(x):
        values = [x]
        for op, at in steps:
            t = values[at % len(values)]
            if op < len(UNARY):
                values.append(UNARY[op](t))
            elif t.is_contiguous() or op != len(UNARY) + 4:
                IN_PLACE[op - len(UNARY)](t)
        return tuple(v for i, v in enumerate(values) if kept >> (i % 8) & 1)

    check(fn, (r(3, 4),))


def test_numbers_that_are_known_after_versions_are_bumped():
    def program(x, y):
        torch.relu_(x)
        n = (x <= y).sum().item() % 5
        return n, n

    with torch.no_grad():
        captured = Captured(program, torch.randn(4), torch.randn(4), compiler=functools.partial(build, guard=True))
        x, y = torch.randn(4), torch.randn(4)
        assert tuple(captured(x.clone(), y)) == program(x, y)
