"""Training regions against eager: values, gradients, autograd metadata, aliasing, versions, in-place writes, hooks."""

from __future__ import annotations

import copy
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from pliant.graph.traced import Untraceable
from tests.codegen.tracing import Captured, tensors_of


def leaf(*shape, grad=True, dtype=torch.float32):
    return torch.randn(*shape, dtype=dtype).requires_grad_(grad)


def fresh(value):
    """A copy that stands in the same relation to autograd: a leaf stays a leaf, a non-leaf gets a history."""
    if not isinstance(value, torch.Tensor):
        return copy.deepcopy(value)
    out = value.detach().clone(memory_format=torch.preserve_format).requires_grad_(value.requires_grad)
    return out if value.is_leaf else out * 1.0


def describe(outputs, inputs):
    """What a user can see of autograd and memory, apart from values."""
    flat = tensors_of(outputs)
    storages = {}
    for t in (*inputs, *flat):
        storages.setdefault(t.untyped_storage()._cdata, len(storages))
    return [
        (
            t.requires_grad, t.is_leaf, t.grad_fn is None, t.dtype, t.shape, t.stride(), t.storage_offset(), t._is_view(),
            storages[t.untyped_storage()._cdata],
            [i for i, x in enumerate(inputs) if x is t], [i for i, x in enumerate(flat) if x is t],
            t._base is not None and [i for i, x in enumerate((*inputs, *flat)) if x is t._base],
        )
        for t in flat
    ]  # fmt: skip


def loss_of(outputs):
    total = 0
    for i, t in enumerate(tensors_of(outputs)):
        if t.requires_grad:
            total = total + (t * (i + 1)).sum() + (t * t).sum()
    return total


def check(fn, example, *others, static=(), after=None, expect_node=True):
    """Capture on `example`, then compare with eager on it and on `others` (argument tuples of other sizes)."""
    captured = Captured(fn, *[fresh(v) for v in example], static=static)
    for args in (example, *others):
        assert captured.guards_hold(*args)
        sides = []
        for run in (fn, captured):
            mine = [fresh(v) for v in args]
            tensors = [v for v in mine if isinstance(v, torch.Tensor)]
            originals = [v if v.is_leaf else v.grad_fn.next_functions[0][0].variable for v in tensors if v.requires_grad]
            torch.manual_seed(0)
            out = run(*mine)
            if after is not None:
                after(out, mine)
            described = describe(out, tensors)
            loss = loss_of(out)
            if torch.is_tensor(loss):
                loss.backward()
            sides.append((out, described, [t.grad for t in originals], tensors))
        (want, want_desc, want_grads, want_inputs), (got, got_desc, got_grads, got_inputs) = sides
        assert got_desc == want_desc
        for g, w in zip(tensors_of(got), tensors_of(want), strict=True):
            torch.testing.assert_close(g, w)
        assert [g is None for g in got_grads] == [w is None for w in want_grads]
        for g, w in zip(got_grads, want_grads, strict=True):
            if w is not None:
                torch.testing.assert_close(g, w)
                assert g.stride() == w.stride()
        for g, w in zip(got_inputs, want_inputs, strict=True):
            torch.testing.assert_close(g, w)
            assert g.requires_grad == w.requires_grad and g.is_leaf == w.is_leaf
            assert (g._version > 0) == (w._version > 0)
    return captured


def p(*shape):
    return nn.Parameter(torch.randn(*shape))


# whole blocks ------------------------------------------------------------------------------------------
def mlp(x, w1, b1, w2, b2):
    return F.linear(F.gelu(F.linear(x, w1, b1)), w2, b2)


def test_mlp():
    weights = (p(16, 8), p(16), p(4, 16), p(4))
    check(mlp, (leaf(3, 5, 8), *weights), (leaf(2, 9, 8), *weights), (leaf(7, 2, 8), *weights))


def batch_norm(x, w, b, mean, var, steps):
    steps.add_(1)
    return F.batch_norm(x, mean, var, w, b, training=True, momentum=0.1).relu()


def test_batch_norm_updates_its_statistics():
    def case(n, h):
        return (leaf(n, 6, h, h), p(6), p(6), torch.zeros(6), torch.ones(6), torch.tensor(0))

    check(batch_norm, case(3, 4), case(5, 7), case(2, 3), static=(3, 4))


def embed(ids, table, w):
    h = F.embedding(ids, table)
    return F.layer_norm(h, (8,)).mean(1) @ w


def test_embedding():
    table, w = p(20, 8), p(8, 3)
    check(embed, *[(torch.randint(0, 20, s), table, w) for s in ((2, 5), (4, 3), (3, 11))])


def attention(x, wq, wk, wv, wo):
    b, s, d = x.shape
    q, k, v = (F.linear(x, w).view(b, s, 2, d // 2).transpose(1, 2) for w in (wq, wk, wv))
    a = torch.softmax(q @ k.transpose(-1, -2) / 2.0, -1) @ v
    return x + F.linear(a.transpose(1, 2).reshape(b, s, d), wo)


def test_attention():
    weights = tuple(p(8, 8) for _ in range(4))
    check(attention, *[((leaf(b, s, 8)), *weights) for b, s in ((2, 5), (3, 7), (4, 2))])


def sdpa(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def test_sdpa():
    check(sdpa, *[tuple(leaf(2, 3, n, 8) for _ in "qkv") for n in (4, 9)], static=())


def conv(x, w, b):
    return F.max_pool2d(F.conv2d(x, w, b, padding=1).relu(), 2).flatten(1).sum(1)


def test_conv():
    w, b = p(4, 3, 3, 3), p(4)
    check(conv, (leaf(2, 3, 8, 8), w, b), (leaf(5, 3, 8, 8), w, b))


def cross_entropy(x, w, target):
    return F.cross_entropy(x @ w, target)


def test_cross_entropy():
    w = p(6, 5)
    check(cross_entropy, *[(leaf(n, 6), w, torch.randint(0, 5, (n,))) for n in (4, 7)])


def test_dropout_draws_what_eager_draws():
    check(lambda x: F.dropout(x, 0.5) * 2, (leaf(6, 8),), (leaf(3, 5),))


# outputs: identity, views, duplicates -------------------------------------------------------------------
OUTPUTS = {
    "input itself": lambda x, y: (x, x * y),
    "same output twice": lambda x, y: (lambda z: (z, z))(x * y),
    "view of input": lambda x, y: (x.t(), x * y),
    "view of a view of an input": lambda x, y: (x.t()[0], x * y),
    "view of an intermediate": lambda x, y: (x * y).t(),
    "two views of an intermediate": lambda x, y: (lambda z: (z[0], z[1:]))(x * y),
    "base and view": lambda x, y: (lambda z: (z, z.t()))(x * y),
    "split": lambda x, y: (x * y).split(2),
    "split of an input": lambda x, y: x.split(2),
    "unbind": lambda x, y: (x * y).unbind(1),
    "detached": lambda x, y: (lambda z: (z, z.detach(), x.detach()))(x * y),
    "no grad": lambda x, y: (x * y, x.detach() * 2, (x > 0).sum()),
    "integers and constants": lambda x, y: (x * y, x.argmax(), x.shape[0], 3.0, None),
    "nested": lambda x, y: {"a": [x * y, (x + y, y)], "b": x.sum()},
    "only one input has a gradient": lambda x, y: x * y.detach(),
    "expanded": lambda x, y: (x * y).sum().expand(3),
    "unused output": lambda x, y: (x.exp(), y.exp()),
    "new constant": lambda x, y: (x * y, torch.tensor([1.0, 2.0]), torch.zeros(3)),
    "in place on an intermediate": lambda x, y: (x * y).add_(1).mul_(2),
    "in place on a view of an intermediate": lambda x, y: in_place_view(x, y),
    "write into a new tensor": lambda x, y: write_into_zeros(x, y),
    "view made without gradients": lambda x, y: hidden_view(x, y),
    "computed without gradients": lambda x, y: hidden_product(x, y),
    "channels last": lambda x, y: (x * y).view(1, 2, 2, -1).contiguous(memory_format=torch.channels_last),
    "complex view": lambda x, y: torch.view_as_complex((x * y).view(-1, 2)).real,
}


def in_place_view(x, y):
    z = x * y
    z[0].mul_(3)
    return z, z[0]


def write_into_zeros(x, y):
    z = torch.zeros(4, 4)
    z[1:3] = (x * y)[:2, :4]
    return z


def hidden_view(x, y):
    z = x * y
    with torch.no_grad():
        v = z.t()
    return z, v


def hidden_product(x, y):
    with torch.no_grad():
        c = x * y
    return x * c, c


@pytest.mark.parametrize("name", OUTPUTS)
def test_outputs(name):
    static = (0, 1) if name in ("split", "split of an input", "unbind", "write into a new tensor", "channels last", "complex view") else ()
    args = [(leaf(4, 4), leaf(4, 4))]
    if not static:
        args.append((leaf(5, 6), leaf(5, 6)))
    check(OUTPUTS[name], *args, static=static)


@pytest.mark.parametrize("name", ["input itself", "view of input", "two views of an intermediate", "base and view", "detached", "nested"])
def test_outputs_of_non_leaf_inputs(name):
    check(OUTPUTS[name], (leaf(4, 4) * 1, leaf(4, 4) * 1), (leaf(5, 6) * 1, leaf(5, 6) * 1))


def test_in_place_on_outputs_afterwards():
    def after(out, args):
        out[0].mul_(2)  # a view: its base, and the other view, must see it

    check(OUTPUTS["two views of an intermediate"], (leaf(4, 4), leaf(4, 4)), after=after)
    check(OUTPUTS["base and view"], (leaf(4, 4), leaf(4, 4)), after=after)
    check(lambda x: (x.t(), x + 1), (leaf(4, 4) * 1,), after=after)


def test_multi_output_views_refuse_in_place_as_in_eager():
    captured = Captured(lambda x: (x * 2).split(2), leaf(4, 4), static=(0,))
    with pytest.raises(RuntimeError, match="modified inplace"):
        captured(leaf(4, 4))[0].mul_(2)


# gradients ------------------------------------------------------------------------------------------------
def test_gradients_that_eager_leaves_none():
    def fn(x, a, b):
        return x @ a, x @ b

    x, a, b = leaf(3, 4), p(4, 4), p(4, 4)
    captured = Captured(fn, x, a, b)
    for pick, reached, missed in ((0, a, b), (1, b, a)):
        a.grad = b.grad = None
        captured(x, a, b)[pick].sum().backward()
        want = torch.autograd.grad(fn(x, a, b)[pick].sum(), reached)[0]
        torch.testing.assert_close(reached.grad, want)
        assert missed.grad is None


def test_gradients_accumulate():
    x, w = leaf(3, 4), p(4, 4)
    captured = Captured(lambda x, w: x @ w, x, w)
    for n in range(1, 4):
        captured(x, w).sum().backward()
        torch.testing.assert_close(w.grad, n * x.sum(0)[:, None].expand(4, 4).detach())


def test_retain_graph_and_second_backward():
    x = leaf(3, 4)
    captured = Captured(lambda x: x.exp(), x)
    y = captured(x).sum()
    y.backward(retain_graph=True)
    y.backward()
    torch.testing.assert_close(x.grad, 2 * x.exp().detach())
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_saved_input_modified_before_backward():
    w = p(4, 4)
    captured = Captured(lambda x, w: (x @ w).exp(), leaf(3, 4) * 1, w)
    x = leaf(3, 4) * 1
    y = captured(x, w)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    y = captured(leaf(3, 4) * 1, w)
    y.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_hooks_on_outputs_and_retain_grad():
    x = leaf(3, 4)
    captured = Captured(lambda x: (x * 2, (x * 3).t()), x)
    a, b = captured(x)
    seen = []
    a.register_hook(lambda g: seen.append("a") or g * 10)
    b.register_hook(lambda g: seen.append("b"))
    b.retain_grad()
    (a.sum() + b.sum()).backward()
    assert sorted(seen) == ["a", "b"]
    torch.testing.assert_close(x.grad, torch.full_like(x, 23))
    torch.testing.assert_close(b.grad, torch.ones(4, 3))


def test_saved_tensor_hooks():
    x, packed = leaf(3, 4), []
    captured = Captured(lambda x: x.exp().sin(), x)

    def pack(t):
        packed.append(t.shape)
        return t.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = captured(x)
    (got,) = torch.autograd.grad(y.sum(), x)
    torch.testing.assert_close(got, torch.autograd.grad(x.exp().sin().sum(), x)[0])
    assert packed


def test_tangents_of_any_layout():
    x = leaf(3, 4)
    fn = lambda x: (x * x).sin()
    captured = Captured(fn, x)
    for g in (torch.ones(()).expand(3, 4), torch.randn(4, 3).t(), torch.randn(6, 8)[::2, ::2]):
        torch.testing.assert_close(torch.autograd.grad(captured(x), x, g)[0], torch.autograd.grad(fn(x), x, g)[0])


def test_differentiating_twice_runs_the_forward_part_again():
    x = leaf(3, 4)
    captured = Captured(lambda x: x**3, x)
    (g,) = torch.autograd.grad(captured(x).sum(), x, create_graph=True)
    torch.testing.assert_close(g, 3 * x**2)
    g.sum().backward()
    torch.testing.assert_close(x.grad, 6 * x)


def test_differentiating_twice_what_draws_random_numbers():
    def program(x):
        return F.rrelu(x, training=True) * x

    x = leaf(3, 4)
    found = []
    for fn in (program, Captured(program, x)):
        torch.manual_seed(0)
        (g,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        found.append(torch.autograd.grad(g.sum() + x.sum(), x))
    torch.testing.assert_close(*found)


def test_differentiating_twice_is_refused_where_it_would_be_wrong():
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, g):
            return g.clamp(-1, 1)

    x = leaf(3, 4)
    (g,) = torch.autograd.grad(Captured(lambda x: Clipped.apply(x * x), x)(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match=r"autograd\.Function.*pliant\.disable"):
        torch.autograd.grad(g.sum() + x.sum(), x, allow_unused=True)


def test_inputs_are_dropped_with_the_graph():
    x = leaf(3, 4)
    captured = Captured(lambda x: x.exp(), x)
    inner = x * 2
    out = captured(inner).sum()
    watched = weakref.ref(inner)
    del inner
    out.backward()
    assert watched() is None


def test_engine_decides_with_inputs_argument():
    x, w = leaf(3, 4), p(4, 4)
    captured = Captured(lambda x, w: x @ w, x, w)
    captured(x, w).sum().backward(inputs=[w])
    assert x.grad is None and w.grad is not None


def test_shared_parameter_and_outer_graph():
    def fn(x, w):
        return F.linear(x, w).relu()

    x, w = leaf(3, 4), p(4, 4)
    captured = Captured(fn, x, w)

    def model(step):
        return step(step(x, w) + x, w).sum() + (w * w).sum()

    torch.testing.assert_close(torch.autograd.grad(model(captured), (x, w)), torch.autograd.grad(model(fn), (x, w)))


# writes to inputs ---------------------------------------------------------------------------------------
def test_input_written_with_gradients():
    def fn(x, y):
        x.mul_(y)
        return x + 1

    check(fn, (leaf(3, 4) * 1, leaf(3, 4)), (leaf(5, 2) * 1, leaf(5, 2)))


def test_buffer_written_with_gradients():
    def fn(buffer, y):
        buffer.copy_(y * 2)
        return buffer.sin(), buffer

    check(fn, (leaf(3, 4, grad=False), leaf(3, 4)), (leaf(5, 2, grad=False), leaf(5, 2)))


def test_view_of_input_written():
    def fn(x, y):
        x[0].mul_(y)
        return x * 2, x[0]

    check(fn, (leaf(3, 4) * 1, leaf(4)), (leaf(5, 2) * 1, leaf(2)))


def test_input_that_is_a_view_written():
    captured = Captured(lambda x, y: x.mul_(y).sum(), (leaf(6, 4) * 1)[1:4], leaf(3, 4), static=(0,))
    grads = []
    for run in (captured, lambda x, y: x.mul_(y).sum()):
        torch.manual_seed(3)
        base, y = leaf(6, 4), leaf(3, 4)
        whole = base * 1
        run(whole[1:4], y)
        grads.append(torch.autograd.grad((whole * whole).sum(), (base, y)))
    torch.testing.assert_close(*grads)


def test_input_written_without_gradients():
    def fn(x, count):
        count.add_(x.shape[0])
        return x * 2

    check(fn, (leaf(3, 4), torch.zeros(())), (leaf(5, 2), torch.zeros(())))


def test_leaf_written_under_no_grad():
    def fn(w, g):
        with torch.no_grad():
            w.sub_(g * 0.1)
        return (w * g).sum()

    check(fn, (leaf(3, 4), leaf(3, 4, grad=False)), (leaf(5, 6), leaf(5, 6, grad=False)))


# without gradients --------------------------------------------------------------------------------------
def test_nothing_requires_grad():
    captured = check(lambda x: (x * 2, x.t()), (leaf(3, 4, grad=False),), (leaf(5, 6, grad=False),))
    assert "_apply" not in captured.executable.source


def test_no_grad_capture_is_called_directly():
    with torch.no_grad():
        captured = Captured(lambda x, w: x @ w, leaf(3, 4), p(4, 4))
        out = captured(leaf(5, 4), p(4, 4))
    assert "_apply" not in captured.executable.source and not out.requires_grad


def test_gradients_turned_on_inside():
    def fn(x):
        with torch.enable_grad():
            return x * x

    with torch.no_grad():
        captured = Captured(fn, leaf(3, 4))
        x = leaf(3, 4)
        y = captured(x)
    y.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_gradient_from_nowhere_is_refused():
    def fn(x):
        return torch.ones(3, requires_grad=True) * x

    with pytest.raises(Untraceable):
        Captured(fn, leaf(3, grad=False))


def test_data_dependent_sizes():
    def fn(x):
        kept = x[x > 0]
        return kept * 2, kept.shape[0], kept.view(-1, 1)

    captured = Captured(fn, leaf(4, 4))
    for n in (4, 7):
        x = leaf(n, n)
        got, want = captured(x), fn(x)
        assert got[1] == want[1]
        torch.testing.assert_close(torch.autograd.grad(loss_of(got), x), torch.autograd.grad(loss_of(want), x))


@pytest.mark.parametrize("enabled", [True, False])
def test_autocast_inside_and_outside(enabled):
    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            return (x @ w).float().sin()

    x, w = leaf(3, 4), p(4, 4)
    for outer in (True, False):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=outer):
            captured = Captured(fn, x, w)
            got, want = captured(x, w), fn(x, w)
        torch.testing.assert_close(got, want, rtol=0, atol=0)
        torch.testing.assert_close(torch.autograd.grad(got.sum(), (x, w)), torch.autograd.grad(want.sum(), (x, w)))
