"""Traces: factories, constants, in-place operators, data-dependent sizes, the tripwire, autograd, going back."""

from __future__ import annotations

import operator

import pytest
import torch

from pliant.errors import InternalError, Tripwire
from pliant.graph import symnode
from pliant.graph.fxgraph import readable, to_fx, torch_level
from pliant.graph.rules.shape import is_packed
from pliant.graph.symnode import expr_of, to_sym
from pliant.graph.trace import Trace, tolist
from pliant.graph.traced import TracedTensor, Untraceable, is_limit
from pliant.symbolic import DataDependent, Scope
from tests.graph.harness import Captured, bind, describe_all, holds, replay
from tests.graph.verify import verify_module, verify_trace

aten = torch.ops.aten
F = torch.nn.functional


def every(x, d, s):
    return True


def same_at(captured, fn, *inputs):
    """Replay a capture on other inputs and compare with eager, values and metadata."""
    env: dict = {}
    assert all([bind(t, r, env) for (t, _), r in zip(captured.inputs, inputs)]), "the inputs do not fit"
    reals = {t.vid: r.clone() for (t, _), r in zip(captured.inputs, inputs)}
    torch.manual_seed(0)
    got = replay(captured.trace, reals, env, captured.out)
    torch.manual_seed(0)
    want = fn(*[r.clone() for r in inputs])
    assert holds(captured.scope, env)
    assert describe_all(captured.out, env) == describe_all(want, {})
    torch.testing.assert_close(got, want)
    verify_trace(captured.trace, outputs=captured.out)


# what is recorded ----------------------------------------------------------------------------------
def test_factories_are_recorded_and_our_helpers_are_not():
    def fn(x):
        n = x.shape[0]
        return x + torch.arange(n) + torch.zeros(n) + torch.ones(1) + torch.tensor(2.0)

    c = Captured(fn, [torch.randn(5)], dynamic=every)
    names = [op.target._schema.name[6:] for op in c.trace.ops if op.target is not aten.detach.default]  # PyTorch detaches what it makes
    assert names == ["arange", "add", "zeros", "add", "ones", "add", "lift_fresh_copy", "add"]
    same_at(c, fn, torch.randn(9))


def test_a_constant_is_made_anew_on_every_run():
    def fn(x):
        c = torch.tensor([1.0, 2.0])
        c += x
        return c

    c = Captured(fn, [torch.randn(2)])
    for _ in range(2):
        same_at(c, fn, torch.ones(2))


def test_default_dtype_is_that_of_the_capture():
    torch.set_default_dtype(torch.float64)
    c = Captured(lambda x: (torch.zeros(2), torch.arange(2.0), torch.tensor(1.5), x + 1.5), [torch.ones(2, dtype=torch.int64)])
    assert [o.dtype for o in c.out] == [torch.float64] * 4


def test_random_operators_use_the_same_stream():
    fn = lambda x: F.dropout(x, 0.5) + torch.rand(x.shape[0]) + torch.randn_like(x)
    same_at(Captured(fn, [torch.ones(6)], dynamic=every), fn, torch.ones(11))


def test_numbers_promote_as_in_eager():
    fn = lambda x, i: (x * 2, i * 2, i * 2.0, i / 2, i + True, 3 - i, x + i.sum(), i.sum() + 1.5)
    c = Captured(fn, [torch.ones(3), torch.ones(3, dtype=torch.int32)], dynamic=every)
    same_at(c, fn, torch.ones(4), torch.ones(4, dtype=torch.int32))


def test_in_place_operators_return_their_argument_and_write_through_views():
    def fn(x):
        y = x * 1
        z = y[1:]
        assert z.add_(1) is z
        y.t_() if y.dim() == 2 else None
        y.unsqueeze_(0)
        y.squeeze_(0)
        return y, z

    c = Captured(fn, [torch.ones(3, 4)], dynamic=every)
    assert c.out[0].storage_id == c.out[1].storage_id != c.inputs[0][0].storage_id
    same_at(c, fn, torch.ones(6, 5))


def test_views_share_memory_and_copies_do_not():
    c = Captured(lambda x: (x[1:], x.view(-1), x.detach(), x.clone(), x + 1, x.contiguous()), [torch.ones(3, 4)], dynamic=every)
    x = c.inputs[0][0]
    assert [o.storage_id == x.storage_id for o in c.out] == [True, True, True, False, False, True]


def test_conjugate_and_negative_bits():
    def fn(x):
        c = x.conj()
        return c, c + 1, c.imag, c @ x.t(), torch.view_as_real(c.resolve_conj()), c.t()[1:].imag + 1

    same_at(Captured(fn, [torch.randn(3, 4, dtype=torch.complex64)]), fn, torch.randn(3, 4, dtype=torch.complex64))


def test_inference_mode_decomposes_too():
    def fn(x, w):
        with torch.inference_mode():
            return F.linear(x, w)

    c = Captured(fn, [torch.randn(2, 3, 4), torch.randn(5, 4)], dynamic=every)
    assert not any("linear" in str(op.target) for op in c.trace.ops)


# data-dependent results -------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.nonzero(),
        lambda x: x[x > 0],
        lambda x: x[x > 0] * 2 + 1,
        lambda x: torch.masked_select(x, x > 0).sum(),
        lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
        lambda x: torch.unique_consecutive(x.round()),
        lambda x: torch.repeat_interleave(x, (x > 0).long(), dim=0),
        lambda x: torch.bincount((x > 0).long(), minlength=4),
        lambda x: torch.zeros((x > 0).sum().item()) + 1,
        lambda x: torch.where(x > 0)[0] + 1,
        lambda x: x[: (x > 0).sum().item()],
        lambda x: torch.arange((x > 0).sum().item()) * 2,
        lambda x: x * x.sum().item(),
        lambda x: torch.cat([x[x > 0], x[x <= 0]]),
        lambda x: torch.ops.aten.unique_dim(x[:, None], 0, True, True, True),
    ],
)
def test_sizes_from_data(fn):
    c = Captured(fn, [torch.randn(8)], dynamic=every)
    for n in (8, 5, 3):
        same_at_unbacked(c, fn, torch.randn(n))


def same_at_unbacked(captured, fn, x):
    env: dict = {}
    assert bind(captured.inputs[0][0], x, env)
    got = replay(captured.trace, {captured.inputs[0][0].vid: x}, env, captured.out)
    want = fn(x)
    assert holds(captured.scope, env), (env, captured.scope.asserts)
    assert describe_all(captured.out, env) == describe_all(want, {})
    torch.testing.assert_close(got, want)
    verify_trace(captured.trace, outputs=captured.out)


def test_two_dim_masks():
    fn = lambda x: (x[x > 0], x[x[:, 0] > 0])
    c = Captured(fn, [torch.randn(4, 5)], dynamic=every)
    same_at_unbacked(c, fn, torch.randn(7, 3))


def test_deciding_on_data_is_an_error_that_breaks_the_graph():
    with pytest.raises(DataDependent):
        Captured(lambda x: x + 1 if x.sum() > 0 else x, [torch.ones(3)])
    with pytest.raises(DataDependent):
        Captured(lambda x: x if torch.allclose(x, x) else x, [torch.ones(3)])


def test_without_unbacked_sizes_they_are_refused():
    t = Trace(Scope(), allow_unbacked=False)
    x = t.input(torch.ones(3), None, (3,))
    for fn in (lambda: x.nonzero(), lambda: x.sum().item(), lambda: x[x > 0]):
        with t.recording(), pytest.raises(Untraceable) as e:
            fn()
        assert e.value.kind == "data-dependent"


def test_tolist_and_constants_known_while_capturing():
    c = Captured(lambda x: x.split(tolist(torch.tensor([2, 3]))), [torch.ones(5)])
    assert [o.sizes for o in c.out] == [(2,), (3,)]
    assert not c.scope.asserts

    def fn(lengths, values):
        return values.split(tolist(lengths))

    c = Captured(fn, [torch.tensor([2, 3]), torch.ones(5)])
    assert len(c.out) == 2 and all(type(o.sizes[0]) is torch.SymInt for o in c.out)


def test_a_written_constant_is_no_longer_known():
    def fn(x):
        c = torch.tensor(3)
        c.add_(x)
        return c.item()

    c = Captured(fn, [torch.tensor(4)])
    assert isinstance(c.out, torch.SymInt)
    assert Captured(lambda x: torch.tensor(3).item(), [torch.tensor(4)]).out == 3


# the tripwire -------------------------------------------------------------------------------------------
REAL = torch.ones(3)


@pytest.mark.parametrize(
    "smuggle",
    [
        lambda x: x + REAL,
        lambda x: REAL.sum(),
        lambda x, default=torch.ones(3): x * default,
        lambda x: torch.cat([x, REAL]),
        lambda x: x.add_(REAL),
        lambda x: torch.where(x > 0, x, REAL),
        lambda x: torch.from_numpy(REAL.numpy()) + x,
        lambda x: REAL.add_(1),
        lambda x: x[REAL.long()],
        lambda x: torch.bincount(x.long(), weights=REAL),
    ],
)
def test_a_real_tensor_without_a_source_is_an_error(smuggle):
    before = REAL.clone()
    with pytest.raises(Tripwire):
        Captured(smuggle, [torch.ones(3)])
    assert torch.equal(REAL, before)


def test_tensors_of_another_capture_are_an_error():
    old = Captured(lambda x: x, [torch.ones(3)])
    with pytest.raises(Tripwire):
        Captured(lambda x: x + old.out, [torch.ones(3)])


def test_use_outside_of_recording_is_refused():
    c = Captured(lambda x: x, [torch.ones(3)])
    with pytest.raises(Untraceable):
        c.out + 1
    assert "float32[3]" in repr(c.out)


@pytest.mark.parametrize(
    "fn", [lambda x: x.resize_(4), lambda x: x.set_(x), lambda x: x.to_sparse(), lambda x: x.pin_memory(), lambda x: x.data_ptr()]
)
def test_what_cannot_be_captured_says_so(fn):
    with pytest.raises((Untraceable, RuntimeError)) as e:
        Captured(fn, [torch.ones(3)])
    assert isinstance(e.value, Untraceable) or is_limit(e.value)


@pytest.mark.parametrize("real", [torch.ones(3).to_sparse(), torch.quantize_per_tensor(torch.ones(3), 1.0, 0, torch.qint8)])
def test_unusual_inputs_are_refused(real):
    with pytest.raises(Untraceable):
        Trace(Scope()).input(real, None, (3,))


# sizes ---------------------------------------------------------------------------------------------------
def a_symbol(value=5, lo=2):
    scope = Scope()
    return scope, to_sym(scope, scope.backed("s", hint=value, lo=lo, size_like=True))


@pytest.mark.parametrize(
    ("fn", "symbolic"),
    [
        (lambda s: {s: 1}[5], False),
        (lambda s: {5: 1}[s], False),
        (lambda s: f"{s:d}", False),
        (lambda s: f"{s:>4}", False),
        (lambda s: "%d" % s, False),
        (lambda s: [0, 1, 2, 3, 4, 5][s], False),
        (lambda s: range(10)[s], False),
        (lambda s: int(s), False),
        (lambda s: round(s, -1), True),
        (lambda s: s.bit_length(), False),
        (lambda s: divmod(s, 3), True),
        (lambda s: divmod(17, s), True),
        (lambda s: 2**s, True),
        (lambda s: s**2, True),
        (lambda s: s & 6, True),
        (lambda s: s | 8, True),
        (lambda s: s ^ 3, True),
        (lambda s: s >> 1, True),
        (lambda s: s << 2, True),
        (lambda s: 1 << s, True),
        (lambda s: ~s, True),
        (lambda s: -s, True),
        (lambda s: abs(s - 9), True),
        (lambda s: s / 2, True),
        (lambda s: s // 2, True),
        (lambda s: -s // 2, True),
        (lambda s: s % 3, True),
        (lambda s: 7 % s, True),
        (lambda s: s * 1.5, True),
        (lambda s: (s * 1.5).__floor__(), True),
        (lambda s: int(s * 1.5), False),
        (lambda s: torch.sym_max(s, 3), True),
        (lambda s: torch.sym_min(s, 3), True),
        (lambda s: torch.sym_sum([s, s, 1]), True),
        (lambda s: torch.sym_float(s), True),
        (lambda s: torch.sym_not(s > 3), True),
        (lambda s: torch.sym_ite(s > 3, s, s + 1), True),
        (lambda s: torch.sym_sqrt(s), True),
        (lambda s: (s > 3) & (s < 9), True),
        (lambda s: (s > 3) + 1, True),
        (lambda s: operator.index(s), False),
        (lambda s: hash(s), False),
        (lambda s: s.bit_count(), False),
    ],
)
def test_numbers_stay_symbolic_or_leave_a_guard(fn, symbolic):
    scope, s = a_symbol()
    got, want = fn(s), fn(5)
    flat = got if isinstance(got, tuple) else (got,)
    for g, w in zip(flat, want if isinstance(want, tuple) else (want,)):
        e = g.node.expr if isinstance(g, (torch.SymInt, torch.SymFloat, torch.SymBool)) else None
        assert (e.evaluate({"s": 5}) if e is not None else g) == w
    pinned = any(g.why != "declared" for g in scope.guards)
    assert symbolic or pinned or scope.known_true(expr_of(s, scope) == 5), "the number was used and nothing recorded it"
    if symbolic:
        assert any(isinstance(g, (torch.SymInt, torch.SymFloat, torch.SymBool)) for g in flat)
        for n in (4, 7):
            if holds(scope, {"s": n}):
                again = fn(n)
                for g, w in zip(flat, again if isinstance(again, tuple) else (again,)):
                    assert (g.node.expr.evaluate({"s": n}) if hasattr(g, "node") else g) == w


def test_printing_pins_the_number_only_for_the_program():
    t = Trace(Scope())
    s = to_sym(t.scope, t.scope.backed("s", hint=5, lo=2))
    assert str(s) == "s" and not [g for g in t.scope.guards if g.why != "declared"]
    with t.recording():
        assert f"{s}" == "5"
    assert t.scope.simplify(expr_of(s, t.scope)).const == 5


def test_the_site_of_a_guard_is_the_interpreters(monkeypatch):
    monkeypatch.setattr(symnode, "site_hook", lambda: "line 7")
    c = Captured(lambda x: x + 1 if x.shape[0] > 4 else x, [torch.ones(5)], dynamic=every)
    assert [g.site for g in c.scope.guards if g.why == "decide"] == ["line 7"]
    assert c.trace.ops[0].site == "line 7"


def test_contiguity_is_proved_or_guarded():
    scope = Scope()
    t = Trace(scope)
    a, b, stride = (to_sym(scope, scope.backed(n, hint=h, lo=2, size_like=True)) for n, h in (("a", 3), ("b", 4), ("t", 4)))
    plain = t.input(torch.ones(3, 4), None, (a, b))
    assert plain.is_contiguous() and plain.t().is_contiguous() is False if t.depth else plain.is_contiguous()
    assert not [g for g in scope.guards if g.why != "declared"]
    odd = t.input(torch.ones(3, 4), None, (a, b), (stride, 1))
    assert odd.is_contiguous()
    assert [str(g.user_form) for g in scope.guards if g.why != "declared"] == ["t == b"]


def test_unbacked_sizes_are_never_claimed_contiguous():
    scope = Scope()
    t = Trace(scope)
    u, v = (to_sym(scope, scope.unbacked(n, lo=0, size_like=True)) for n in ("u", "v"))
    x = t.input(torch.ones(3, 4), None, (u, 4), (v, 1))
    with t.recording():
        y = (x + 1).clone()
    assert not is_packed(x) and y.sizes == x.sizes and not scope.asserts
    assert is_packed(t.input(torch.ones(3, 4), None, (u, 4)))


# autograd ------------------------------------------------------------------------------------------------
def test_backward_is_recorded_behind_forward():
    scope = Scope()
    t = Trace(scope)
    n = to_sym(scope, scope.backed("n", hint=3, lo=2, size_like=True))
    w_real, x_real = torch.nn.Parameter(torch.randn(5, 4)), torch.randn(3, 4)
    w, x = t.input(w_real, None, (5, 4)), t.input(x_real, None, (n, 4))
    assert w.pytype is torch.nn.Parameter and w.requires_grad and w.is_leaf
    with t.recording():
        y = F.gelu(F.linear(x, w)).softmax(-1)
    (tangent,), grads = t.backward([y], [w, x])
    assert 0 < t.n_forward < len(t.ops) and grads[1] is None and grads[0].sizes == (5, 4)
    verify_trace(t, [w, x, tangent, expr_of(n, scope)], (y, grads[0]))
    for rows in (3, 8):
        real, up = torch.randn(rows, 4), torch.randn(rows, 5)
        got = replay(t, {w.vid: w_real.detach(), x.vid: real, tangent.vid: up}, {"n": rows}, grads[0])
        want = torch.autograd.grad(F.gelu(F.linear(real, w_real)).softmax(-1), w_real, up)[0]
        torch.testing.assert_close(got, want)


def test_an_input_with_history_is_not_a_leaf():
    a = torch.randn(3, requires_grad=True)
    real = a * 2
    t = Trace(Scope())
    x = t.input(real, None, (3,))
    assert not x.is_leaf and x.requires_grad
    with t.recording():
        y = x.mul_(3) + 1
    (tangent,), (g,) = t.backward([y], [x])
    got = replay(t, {x.vid: torch.ones(3), tangent.vid: torch.ones(3)}, {}, g)
    assert torch.equal(got, torch.full((3,), 3.0))


def test_grad_called_by_the_program_and_double_backward():
    def fn(x, w):
        w = w.detach().requires_grad_()
        (g,) = torch.autograd.grad((x * w**3).sum(), w, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), w)
        return g.detach(), h

    c = Captured(fn, [torch.randn(3), torch.randn(3)], dynamic=every)
    same_at(c, fn, torch.randn(5), torch.randn(5))


# going back ------------------------------------------------------------------------------------------------
def test_rollback_forgets_operations_guards_and_metadata():
    c = Captured(lambda x: x * 2, [torch.ones(3, 4)], dynamic=every)
    t, y = c.trace, c.out
    token, ops, shape = t.snapshot(), len(t.ops), y.shape
    with t.recording():
        y.t_()
        assert y.shape != shape
        y.add_(1)
        int(y.shape[0])
        torch.tensor(3)
    t.rollback(token)
    assert len(t.ops) == ops and y.shape == shape and y.sizes == tuple(shape) and not t.constants
    assert not [g for g in t.scope.guards if g.why != "declared"]


def test_rollback_refuses_what_it_cannot_undo():
    t = Trace(Scope())
    x = t.input(torch.nn.Parameter(torch.ones(3)), None, (3,))
    with t.recording():
        y = x * 2
        token = t.snapshot()
        y.add_(1)
    with pytest.raises(Untraceable):
        t.rollback(token)


# graphs -----------------------------------------------------------------------------------------------------
def test_graph_module_computes_what_the_program_computes():
    def fn(x, y):
        n = x.shape[0]
        z = torch.cat([x, y]) + torch.tensor(1.0)
        return z.reshape(2, -1).chunk(2, 1), z.sum().item(), z[z > 0], n // 2 + n * n

    c = Captured(fn, [torch.randn(4, 6), torch.randn(2, 6)], dynamic=every)
    backed = [s for s in c.scope.symbols.values() if s.info.backed]
    g = to_fx(c.trace, [*[t for t, _ in c.inputs], *backed], c.out)
    verify_module(g)
    x, y = torch.randn(6, 5), torch.randn(4, 5)
    env: dict = {}
    assert all([bind(t, r, env) for (t, _), r in zip(c.inputs, (x, y))])
    torch.testing.assert_close(g(x, y, *[env[s.name] for s in backed]), fn(x, y))
    assert "aten.cat.default" in readable(g) and "placeholder" in readable(g)


def test_torch_level_graph():
    t = Trace(Scope())
    x = t.input(torch.ones(3), "x", (3,))
    with t.recording():
        call = t.torch_call(F.softmax, (x, 0), {})
        call.out = F.softmax(x, 0)
        second = t.torch_call(torch.Tensor.relu, (call.out,), {})
        second.out = call.out.relu()
    g = torch_level(t, [x], (second.out,))
    assert [n.op for n in g.graph.nodes] == ["placeholder", "call_function", "call_method", "output"]
    assert torch.equal(g(torch.ones(3))[0], torch.full((3,), 1 / 3).relu())
    assert [op.torch_index for op in t.ops] == [0, 1]


def test_the_verifier_finds_planted_errors():
    c = Captured(lambda x: (x + 1) * 2, [torch.ones(3)], dynamic=every)
    verify_trace(c.trace, outputs=c.out)
    first, second = c.trace.ops
    c.trace.ops[:] = [second]
    with pytest.raises(InternalError, match="before it is defined"):
        verify_trace(c.trace)
    c.trace.ops[:] = [first, second, second]
    with pytest.raises(InternalError, match="defined twice"):
        verify_trace(c.trace)
    c.trace.ops[:] = [first, second]
    first.args = (first.args[0], torch.ones(3))
    with pytest.raises(InternalError, match="real Tensor"):
        verify_trace(c.trace)
    assert type(first.outs[0]) is TracedTensor


# whole layers ------------------------------------------------------------------------------------------------
LAYERS = {
    "transformer": (lambda: torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True), (3, 5, 16), (2, 9, 16)),
    "convnet": (
        lambda: torch.nn.Sequential(
            torch.nn.Conv2d(3, 4, 3, padding=1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Conv2d(4, 8, 3, stride=2), torch.nn.GroupNorm(2, 8), torch.nn.SiLU(), torch.nn.AdaptiveAvgPool2d(1),
            torch.nn.Flatten(),
        ),
        (2, 3, 16, 12),
        (3, 3, 20, 24),
    ),
    "mlp": (lambda: torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.GELU(), torch.nn.LayerNorm(8)), (4, 6), (9, 6)),
    "attention": (lambda: Attention(), (2, 5, 8), (3, 7, 8)),
}  # fmt: skip


class Attention(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = torch.nn.Linear(8, 24)

    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)
        mask = torch.ones(n, n, dtype=torch.bool).tril()
        a = ((q @ k.transpose(-2, -1)) / 2.0).masked_fill(~mask, float("-inf")).softmax(-1)
        return (a @ v).transpose(1, 2).reshape(b, n, 8)


@pytest.mark.parametrize("name", list(LAYERS))
def test_training_a_layer_at_another_size(name):
    make, shape, other = LAYERS[name]
    torch.manual_seed(1)
    module = make()
    state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    start = {n: v.detach().clone() for n, v in state.items()}
    scope = Scope()
    t = Trace(scope)
    sizes = list(shape)
    for d, (a, b) in enumerate(zip(shape, other)):
        if a != b:
            sizes[d] = to_sym(scope, scope.backed(f"s{d}", hint=a, lo=2, size_like=True))
    x = t.input(torch.randn(shape), None, tuple(sizes))
    proxies = {n: t.input(v, None, tuple(v.shape)) for n, v in state.items()}
    with t.recording():
        y = torch.func.functional_call(module, proxies, (x,))
    names = [n for n, v in state.items() if v.requires_grad]
    (tangent,), grads = t.backward([y], [proxies[n] for n in names])
    verify_trace(t, [*t.inputs, *[s for s in scope.symbols.values()], tangent], (y, *grads))
    for now in (shape, other):
        real = torch.randn(now)
        want_state = {n: v.clone().requires_grad_(n in names) for n, v in start.items()}
        want = torch.func.functional_call(module, want_state, (real,))
        up = torch.randn_like(want)
        want_grads = torch.autograd.grad(want, [want_state[n] for n in names], up)
        env: dict = {}
        assert bind(x, real, env) and holds(scope, env)
        reals = {proxies[n].vid: v.clone() for n, v in start.items()} | {x.vid: real, tangent.vid: up}
        got, got_grads = replay(t, reals, env, (y, list(grads)))
        torch.testing.assert_close(got, want.detach())
        torch.testing.assert_close(got_grads, list(want_grads))
        assert describe_all((y, *grads), env) == describe_all((want, *want_grads), {})


def test_a_number_in_a_tensor_is_that_number_until_something_writes_there() -> None:
    captured = Captured(lambda x: x.shape[0], [torch.rand(5, 3)], dynamic=lambda x, d, s: d == 0)
    trace, n = captured.trace, captured.out

    def made() -> torch.Tensor:
        return torch.ops.aten.scalar_tensor.default(n, dtype=torch.int64)

    with trace.recording():
        first, before = made(), trace.snapshot()
        assert first.item().node.expr is n.node.expr
        undone = made()
        undone.add_(1)
        assert not undone.item().node.expr.backed
        trace.rollback(before)
        again, other = made(), made()  # at places that were looked at
        assert again.item().node.expr is other.item().node.expr is n.node.expr
        other.view(1).add_(1)
        assert not other.item().node.expr.backed
        assert first.item().node.expr is n.node.expr
