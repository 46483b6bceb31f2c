"""Custom operators with fake kernels: captured whole, dynamic sizes symbolic, and never wrong where the fake kernel is."""

from __future__ import annotations

import pytest
import torch

import pliant
from pliant.errors import FakeKernelError
from tests.helpers import check, compiled

library = torch.library
SIZES = (4, 6, 1, 9, 0)


def define(name: str, fn, fake=None, mutates=(), schema=None):
    op = library.custom_op(f"pliant_tests::{name}", fn, mutates_args=mutates, schema=schema)
    if fake is not None:
        op.register_fake(fake)
    return op


def positive(x):
    return x[x > 0].clone()


def some(x):
    return x.new_empty(library.get_ctx().new_dynamic_size())


def same(x):
    return torch.empty_like(x)


kept = define("kept", lambda x: positive(x), some, schema="(Tensor x) -> Tensor")
twice = define("twice", lambda x: torch.cat([positive(x)] * 2), lambda x: x.new_empty(2 * library.get_ctx().new_dynamic_size()),
               schema="(Tensor x) -> Tensor")  # fmt: skip
older = define("older", lambda x: positive(x), lambda x: x.new_empty(library.get_ctx().create_unbacked_symint()),
               schema="(Tensor x) -> Tensor")  # fmt: skip
how_many = define("how_many", lambda x: int((x > 0).sum()), lambda x: 3, schema="(Tensor x) -> SymInt")
sine = define("sine", lambda x: torch.sin(x), same, schema="(Tensor x) -> Tensor")
sine.register_autograd(
    lambda ctx, g: g * ctx.saved_tensors[0].cos(), setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
)
columns = define("columns", lambda x: x.t().clone(memory_format=torch.contiguous_format).t(), same, schema="(Tensor x) -> Tensor")
liar = define("liar", lambda x: torch.cat([x, x]), same, schema="(Tensor x) -> Tensor")
raising = define("raising", lambda x: x + 1, lambda x: x.no_such_attribute, schema="(Tensor x) -> Tensor")
bare = define("bare", lambda x: x * 2, schema="(Tensor x) -> Tensor")
bump = define("bump", lambda x, k: x.add_(k) and None, mutates={"x"}, schema="(Tensor(a!) x, float k) -> ()")
count_up = define("count_up", lambda n: torch.arange(n), lambda n: torch.empty(n, dtype=torch.int64), schema="(SymInt n) -> Tensor")


def both(x):
    y = positive(x)
    return torch.cat([y, y]), torch.stack([y, y])


def both_fake(x):
    n = library.get_ctx().new_dynamic_size(min=0, max=1 << 40)
    return x.new_empty(2 * n), x.new_empty(2, n)


pair = define("pair", both, both_fake, schema="(Tensor x) -> (Tensor, Tensor)")


def matrices():
    torch.manual_seed(0)
    return [(torch.randn(n, 3),) for n in SIZES]


def use_kept(x):
    y = kept(x * 2)
    return y + 1, y.shape[0] * 2, y.view(-1, 1).expand(y.shape[0], 3).sum()


def use_pair(x):
    a, b = pair(x)
    return a * 2, b.t() + 1, a.shape[0], b.shape[1]


def use_twice(x):
    a = twice(x)
    return a * 2, a.shape[0], a.reshape(2, -1).sum(0)


def use_older(x):
    return older(x) * 3


def use_count(x):
    n = how_many(x)
    return x + n, torch.zeros(n)


def use_columns(x):
    return columns(x).reshape(-1), columns(x).sum(0)


def use_bump(x):
    y = x * 1
    bump(y, 2.0)
    bump(x, 1.0)
    return y * x


def use_count_up(x):
    return count_up(x.shape[0]) * 2, count_up(x.numel() + 1)


PROGRAMS = [use_kept, use_pair, use_twice, use_older, use_count, use_columns, use_bump, use_count_up]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_one_graph(fn):
    check(fn, *matrices(), breaks=0, captures=3)  # sizes of 0 and 1 are versions of their own


def test_gradients():
    def fn(x):
        return sine(x * 2).sum() + sine(x).mean()

    check(fn, *[(x.requires_grad_(),) for (x,) in matrices()[:3]], grad=True, breaks=0)


@pytest.mark.parametrize("op", [bare, raising], ids=["no fake kernel", "a fake kernel that raises"])
def test_without_a_shape_the_graph_breaks(op):
    def fn(x):
        return op(x + 1) * 2

    check(fn, *matrices())
    assert pliant.stats()["graph_breaks"]


def test_a_wrong_shape_is_an_error_that_names_the_operator():
    with pytest.raises(FakeKernelError, match=r"pliant_tests::liar returned .*\(8, 3\).*fake kernel.*\(4, 3\)"):
        compiled(lambda x: liar(x) + 1)(torch.ones(4, 3))


def test_wrong_strides_under_as_strided_are_an_error():
    with pytest.raises(FakeKernelError, match="strides"):
        compiled(lambda x: torch.as_strided(columns(x), (2,), (1,)))(torch.ones(4, 3))


def test_bounds_of_a_dynamic_size_must_be_numbers():
    op = define("wrong_bounds", lambda x: x.clone(), lambda x: x.new_empty(library.get_ctx().new_dynamic_size(min=-1)),
                schema="(Tensor x) -> Tensor")  # fmt: skip
    check(lambda x: op(x) + 1, (torch.ones(3),))
    assert pliant.stats()["graph_breaks"]


@torch.library.custom_op("pliant_custom::turned", mutates_args=())
def turned(x: torch.Tensor, by: float) -> torch.Tensor:
    return x * by


turned.register_fake(lambda x, by: torch.empty_like(x))
turned.register_autograd(lambda ctx, g: (g * ctx.by, None), setup_context=lambda ctx, inputs, output: setattr(ctx, "by", inputs[1]))


@pytest.mark.parametrize("backend", ["aten", "native"])
@pytest.mark.parametrize("dtype", [torch.complex64, torch.float32])
def test_several_results_of_one_node_may_be_complex(dtype, backend):
    def program(x):
        return turned(x, 2.0), turned(x, 0.5), turned(x, 1.5) * x

    run = pliant.compile(program, backend=backend, strict=True)
    for n in (3, 4, 3):
        leaf = torch.arange(n, dtype=torch.float32).to(dtype).requires_grad_()
        pairs = list(zip(program(leaf), run(leaf), strict=True))
        for want, got in pairs:
            torch.testing.assert_close(got, want)
            assert got._version == want._version
        for want, got in pairs:
            a, b = (torch.autograd.grad(o.abs().square().sum(), leaf, create_graph=True)[0] for o in (want, got))
            torch.testing.assert_close(b, a)
            a, b = (torch.autograd.grad(g.abs().square().sum(), leaf, retain_graph=True)[0] for g in (a, b))
            torch.testing.assert_close(b, a)
