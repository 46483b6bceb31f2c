"""The chosen spelling of each ATen call runs exactly that overload: swept over PyTorch's own operator samples."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from pliant.codegen import fastops, known_bindings
from pliant.graph.trace import Trace
from pliant.graph.traced import make
from pliant.symbolic import Scope
from tests.operator_samples import op_db, samples

aten = torch.ops.aten


class Recorder(TorchDispatchMode):
    """Collects one call for each overload and kind of arguments."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        a, k = fastops.normalize(func, args, kwargs)
        key = (func, tuple(map(fastops._kind, a)), tuple((n, fastops._kind(v)) for n, v in k.items()))
        if key not in self.calls:
            self.calls[key] = tree_map(
                lambda v: v.clone() if isinstance(v, torch.Tensor) and v.layout is torch.strided else v, (args, kwargs)
            )
        return func(*args, **kwargs)


def run(call, target, args, kwargs):
    """Evaluate the generated text of a call."""
    values, keywords = fastops.normalize(target, args, kwargs, call.trim)
    names = {f"a{i}": v for i, v in enumerate(values)} | {f"k_{n}": v for n, v in keywords.items()}
    text = call.text([fastops._spell(f"a{i}", v) for i, v in enumerate(values)], [f"{n}=k_{n}" for n in keywords], values, keywords)
    return eval(text, {**call.globals, **names})


def assert_same(got, want, rtol=0):
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert_same(g, w, rtol)
    elif isinstance(want, torch.Tensor):
        assert got.dtype is want.dtype and got.shape == want.shape and got.stride() == want.stride() and got._is_view() == want._is_view()
        torch.testing.assert_close(got, want, rtol=rtol, atol=rtol, equal_nan=True)
    else:
        assert type(got) is type(want) and (got == want or got != got)


UNINITIALIZED = ("empty", "new_empty", "_efficientzerotensor", "_ctc_loss")  # results hold memory that nobody wrote


def test_every_sample_of_every_operator():
    recorder = Recorder()
    for op in op_db:
        if op.name.startswith(("sparse", "to_sparse")):
            continue
        for sample in samples(op, torch.float32, 9):
            with torch.no_grad(), recorder:
                try:
                    op.op(sample.input, *sample.args, **sample.kwargs)
                except Exception:
                    break
    fast = set()
    for (target, *_), (args, kwargs) in recorder.calls.items():
        call = fastops.lookup(target, args, kwargs)
        if not call.fast or any(word in target._schema.name for word in UNINITIALIZED):
            continue
        fast.add(target)
        copies = [
            tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) and v.layout is torch.strided else v, (args, kwargs)) for _ in "ab"
        ]
        torch.manual_seed(0)
        try:
            with torch._C._AutoDispatchBelowAutograd():
                want = target(*copies[0][0], **copies[0][1])
        except Exception:
            continue
        torch.manual_seed(0)
        with torch._C._AutoDispatchBelowAutograd():
            got = run(call, target, *copies[1])
        if torch.Tag.nondeterministic_seeded in target.tags and "dropout" not in str(target):
            continue
        # LAPACK's sums depend on how memory is aligned: from one run to the next, not from one spelling to the other.
        rtol = 1e-5 if "linalg" in target._schema.name else 0
        try:
            assert_same(got, want, rtol)
            assert_same(copies[1][0], copies[0][0])  # what the operator writes
        except AssertionError as e:
            raise AssertionError(f"{target} spelled {call.name}: {str(e)[:400]}") from e
    assert len(fast) > 400


x = torch.arange(24, dtype=torch.float32).reshape(4, 6)

CASES = [
    (aten.add.Tensor, (x, x), {}),
    (aten.add.Tensor, (x, x), {"alpha": 2}),
    (aten.add.Tensor, (x, 2), {}),
    (aten.add.Scalar, (x, 2.5), {}),
    (aten.mul.Scalar, (x, 2), {}),
    (aten.sub.Tensor, (x, x), {"alpha": 3}),
    (aten.div.Tensor_mode, (x, 3), {"rounding_mode": "floor"}),
    (aten.sum.dim_IntList, (x, [1]), {"dtype": torch.float64}),
    (aten.sum.default, (x,), {"dtype": torch.float64}),
    (aten._to_copy.default, (x,), {"dtype": torch.float64}),
    (aten._to_copy.default, (x,), {"dtype": torch.float64, "memory_format": torch.preserve_format}),
    (aten.slice.Tensor, (x, 1, 1, 3), {}),
    (aten.slice.Tensor, (x, 1, 0, 2**63 - 1), {}),
    (aten.slice.Tensor, (x, 0, None, 2), {}),
    (aten.slice.Tensor, (x, 1, -3, -1, 2), {}),
    (aten.index.Tensor, (x, [torch.tensor([0, 2])]), {}),
    (aten.index.Tensor, (x, [None, torch.tensor([0, 2])]), {}),
    (aten.index.Tensor, (x, [torch.tensor(1)]), {}),
    (aten.index.Tensor, (x, [torch.tensor([True, False, True, True])]), {}),
    (aten.view.default, (x, [6, 4]), {}),
    (aten.view.default, (x, [24]), {}),
    (aten.view.default, (x[0, 0], []), {}),
    (aten.view.dtype, (x, torch.int32), {}),
    (aten.permute.default, (x, [1, 0]), {}),
    (aten.expand.default, (x, [2, 4, 6]), {}),
    (aten.full.default, ([2, 3], 1.5), {"dtype": torch.float32, "device": torch.device("cpu")}),
    (aten.arange.start_step, (0, 4, 2), {"dtype": torch.int64, "device": torch.device("cpu"), "pin_memory": False}),
    (aten.arange.start_step, (0, 4), {"dtype": torch.int64, "device": torch.device("cpu")}),
    (aten.native_layer_norm.default, (x, [6], None, None, 1e-5), {}),
    (aten.where.self, (x > 3, x, torch.zeros(())), {}),
    (aten.pow.Tensor_Scalar, (x, 2), {}),
    (aten.pow.Scalar, (2, x), {}),
    (aten.clamp.default, (x, 1), {}),
    (aten.clamp.default, (x,), {"max": 3}),
    (aten.mse_loss.default, (x, x + 1), {}),
    (aten.mse_loss.default, (x, x + 1, 0), {}),
    (aten.cat.default, ([x, x], 1), {}),
    (aten.split.Tensor, (x, 2), {}),
    (aten.max.dim, (x, 1), {}),
    (aten.addmm.default, (x[0, :4], x, x.t()), {"beta": 2, "alpha": 0.5}),
    (aten._local_scalar_dense.default, (x[1, 1],), {}),
    (aten.fill_.Scalar, (x.clone(), 2), {}),
    (aten.fill_.Tensor, (x.clone(), torch.tensor(2.0)), {}),
    (aten.var.correction, (x, [1]), {"correction": 0, "keepdim": True}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda c: str(c[0]))
def test_call(case):
    target, args, kwargs = case
    call = fastops.lookup(target, args, kwargs)
    copies = [tree_map(lambda v: v.clone() if isinstance(v, torch.Tensor) else v, (args, kwargs)) for _ in "ab"]
    with torch._C._AutoDispatchBelowAutograd():
        want = target(*copies[0][0], **copies[0][1])
        got = run(call, target, *copies[1])
    if target is aten.slice.Tensor and want.shape == x.shape:
        torch.testing.assert_close(got, want)
    else:
        assert_same(got, want)


PROXIES = {"b": True, "i": 1, "f": 1.5, "s": "tanh", "-": None, "d": torch.float64, "D": torch.device("cpu")}
FORMATS = {str(f): f for f in (torch.contiguous_format, torch.channels_last, torch.preserve_format, torch.strided)}


def arguments(row, dtype):
    """Arguments of the kinds that a row of `known_bindings.ROWS` tells."""

    def one(text):
        if text.startswith("["):
            letters = text[1:-2] or ""
            return [one(x) for x in (letters * 2)[: int(text[-1])]]
        if text in "Tt":
            return torch.zeros([2, 3] if text == "T" else [], dtype=dtype)
        return PROXIES[text] if text in PROXIES else FORMATS[text]

    args, kwargs = [], {}
    for text in row.split():
        name, equals, kind = text.partition("=")
        if equals:
            kwargs[name] = one(kind)
        else:
            args.append(one(text))
    return args, kwargs


@pytest.mark.skipif(not torch.__version__.startswith(known_bindings.TORCH), reason="known of another PyTorch")
@pytest.mark.parametrize("name", known_bindings.ROWS)
def test_what_is_known_is_what_trying_finds(name):
    target = getattr(aten, name.partition(".")[0])
    target = getattr(target, name.partition(".")[2] or "default")
    for row in known_bindings.ROWS[name].split(" | "):
        for dtype in (torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64):
            args, kwargs = arguments(row, dtype)
            assert known_bindings.is_known(target, args, kwargs)
            found, first = fastops._try(target, args, kwargs), next(fastops._candidates(target))[0]
            assert (found.render, found.name, found.trim, found.fast) == (first.render, first.name, first.trim, True), (row, dtype)


def test_a_decomposition_is_not_mistaken_for_the_operator():
    """`torch.layer_norm` exists, but `native_layer_norm` is what was captured; and a composite is never entered by its parts."""
    call = fastops.lookup(aten.native_layer_norm.default, (x, [6], None, None, 1e-5), {})
    assert call.globals[call.name] is torch._C._VariableFunctions.native_layer_norm
    seen = []

    class Watch(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            seen.append(func)
            return func(*args, **(kwargs or {}))

    with Watch(), torch._C._AutoDispatchBelowAutograd():
        run(fastops.lookup(aten.mean.dim, (x, [1]), {}), aten.mean.dim, (x, [1]), {})
    assert seen == [aten.mean.dim]


def test_a_scalar_keeps_its_type():
    i = torch.arange(4)
    for value in (2, 2.0, True):
        call = fastops.lookup(aten.mul.Tensor, (i, value), {})
        assert run(call, aten.mul.Tensor, (i, value), {}).dtype is aten.mul.Tensor(i, value).dtype


def test_unknown_operators_go_through_their_own_handle():
    call = fastops.lookup(aten.threshold_backward.default, (x, x, 0), {})
    assert not call.fast
    assert_same(run(call, aten.threshold_backward.default, (x, x, 0), {}), aten.threshold_backward.default(x, x, 0))


def test_a_spelling_serves_calls_that_are_alike():
    trace = Trace(Scope())
    x, y = (make(trace, (3, 4), (4, 1), torch.float32) for _ in range(2))
    half, scalar = make(trace, (3, 4), (4, 1), torch.float16), make(trace, (), (), torch.float32)
    call = fastops.lookup(aten.add.Tensor, (x, y), {})
    known = fastops.Spelling(call, (x, y, 1), {"alpha": 2}, 2, ("alpha",))
    assert known.serves((y, x, 1), {"alpha": 2})
    for args, kwargs in (
        ((y, x, True), {"alpha": 2}),  # equal, and another type
        ((y, x, 2), {"alpha": 2}),
        ((y, half, 1), {"alpha": 2}),
        ((y, scalar, 1), {"alpha": 2}),
        ((y, 1.5, 1), {"alpha": 2}),
        ((y, x), {"alpha": 2}),
        ((y, x, 1), {"alpha": 3}),
        ((y, x, 1), {}),
        ((y, x, 1), {"other": 2}),
    ):
        assert not known.serves(args, kwargs)
