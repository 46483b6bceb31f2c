"""LSTM, GRU and plain recurrent networks, padded and packed: one graph for every length, forward and backward."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.checkpoint import checkpoint

import pliant
from pliant.codegen.cpu import runtime
from pliant.codegen.cpu.backend import CPU
from pliant.graph import lstm
from tests.helpers import check

NETWORKS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn": nn.RNN}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {}, "both": {"bidirectional": True, "num_layers": 2}, "no bias": {"bias": False}, "batch second": {"batch_first": False},
    "double": {"dtype": torch.float64}, "bfloat16": {"dtype": torch.bfloat16}, "dropout": {"dropout": 0.5, "num_layers": 2},
}  # fmt: skip


def network(name: str, options: dict[str, Any]) -> nn.Module:
    torch.manual_seed(0)
    return NETWORKS[name](4, 5, **{"batch_first": True, **options})


def padded(m: nn.Module, n: int, t: int) -> torch.Tensor:
    shape = (n, t, 4) if m.batch_first else (t, n, 4)
    return torch.randn(*shape, dtype=m.weight_ih_l0.dtype, generator=torch.Generator().manual_seed(n * 100 + t))


def lengths(n: int, t: int, ordered: bool) -> torch.Tensor:
    drawn = random.Random(n * t).choices(range(1, t + 1), k=n)
    return torch.tensor(sorted(drawn, reverse=True) if ordered else drawn)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("name", NETWORKS)
def test_one_graph_for_all_lengths(name: str, options: str, mode: Any) -> None:
    m = network(name, OPTIONS[options])
    with mode():
        check(lambda x: m(x), *[(padded(m, n, t),) for n, t in ((2, 3), (4, 6), (3, 2), (7, 9))], captures=1, breaks=0)


@pytest.mark.parametrize("name", NETWORKS)
def test_states_of_the_callers(name: str) -> None:
    m = network(name, {"num_layers": 2})

    def fn(x: torch.Tensor, h: torch.Tensor) -> Any:
        out, last = m(x, (h, h * 2) if name == "lstm" else h)
        return out.transpose(0, 1)[-1], last

    with torch.no_grad():
        check(fn, *[(padded(m, n, t), torch.randn(2, n, 5)) for n, t in ((2, 3), (4, 6), (3, 2))], captures=1, breaks=0)
        check(fn, (padded(m, 2, 3), torch.randn(2, 3, 5)))  # a wrong batch: PyTorch's own error


@pytest.mark.parametrize("ordered", [True, False])
@pytest.mark.parametrize("options", ["plain", "both", "batch second"])
@pytest.mark.parametrize("name", NETWORKS)
def test_packed_sequences_are_one_graph(name: str, options: str, ordered: bool) -> None:
    m = network(name, OPTIONS[options])
    dim = 1 if m.batch_first else 0

    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        out, last = m(pack_padded_sequence(x, n, batch_first=m.batch_first, enforce_sorted=ordered))
        whole, again = pad_packed_sequence(out, batch_first=m.batch_first, total_length=x.shape[dim])
        short, _ = pad_packed_sequence(out, batch_first=m.batch_first, padding_value=-1.0)
        return whole + x.sum(), short, again, last

    calls = [(padded(m, n, t), lengths(n, t, ordered)) for n, t in ((2, 3), (4, 6), (3, 5), (7, 9), (5, 2))]
    with torch.no_grad():
        check(fn, *calls, captures=1, breaks=0)


def test_lengths_that_do_not_fit() -> None:
    m = network("gru", {})

    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        packed = pack_padded_sequence(x, n, batch_first=True)
        return m(packed)[1]

    x = padded(m, 3, 4)
    with torch.no_grad():
        check(fn, (x, torch.tensor([4, 2, 1])), (x, torch.tensor([5, 2, 1])), (x, torch.tensor([4, 2, 0])), (x, torch.tensor([1, 2, 4])))
        check(lambda x, n: x + 1 if pack_padded_sequence(x, n, batch_first=True) else x, (x, torch.tensor([4, 2, 0])))


def test_batch_sizes_that_were_written_are_read_again() -> None:
    m = network("gru", {})

    def fn(x: torch.Tensor, n: torch.Tensor) -> Any:
        data, sizes, *_ = pack_padded_sequence(x, n, batch_first=True)
        sizes = sizes.clone()
        sizes[0] += 0
        whole, n = torch._VF._pad_packed_sequence(data, sizes, True, 0.0, -1)
        return whole, n

    with torch.no_grad():
        check(fn, (padded(m, 3, 4), torch.tensor([4, 2, 1])), (padded(m, 2, 6), torch.tensor([5, 2])))


class Trained(nn.Module):
    """A network behind a layer, told how to use it."""

    def __init__(self, name: str, options: dict[str, Any], use: Any) -> None:
        super().__init__()
        self.layers, self.use = network(name, options), use
        self.scale = nn.Parameter(torch.ones(4, dtype=options.get("dtype")))

    def forward(self, x: torch.Tensor, *rest: Any) -> Any:
        return self.use(self.layers, x * self.scale, *rest)


def leaves(m: nn.Module, sizes: Any = ((2, 3), (4, 6), (3, 2))) -> list[tuple]:
    return [(padded(m, n, t).requires_grad_(),) for n, t in sizes]


EXACT = {"dtype": torch.float64}
TRAINED = {
    "both": {"bidirectional": True, "num_layers": 2, **EXACT}, "no bias": {"bias": False, **EXACT},
    "batch second": {"batch_first": False, **EXACT}, "dropout": {"dropout": 0.5, "num_layers": 2, **EXACT},
    "relu": {"nonlinearity": "relu"}, "projected": {"proj_size": 3, "num_layers": 2, "bidirectional": True, **EXACT},
    "float": {"num_layers": 2, "bidirectional": True},
    "float, no bias, dropout": {"bias": False, "num_layers": 2, "dropout": 0.5},
}  # fmt: skip
FITS = {"projected": ["lstm"], "relu": ["rnn"], "float": ["lstm"], "float, no bias, dropout": ["lstm"]}  # else sums differ in the last bits


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(("name", "options"), [(n, o) for o in TRAINED for n in FITS.get(o, NETWORKS)])
def test_training_is_one_graph(name: str, options: str) -> None:
    m = Trained(name, TRAINED[options], lambda layers, x: layers(x))
    check(m, *leaves(m.layers), captures=1, breaks=0, grad=True)


@pytest.mark.filterwarnings("ignore:LSTM with projections")
@pytest.mark.parametrize(("name", "options", "ordered"), [
    *[(n, "both", False) for n in NETWORKS], ("gru", "batch second", True), ("rnn", "dropout", False), ("lstm", "projected", False)
])  # fmt: skip
def test_training_on_packed_sequences_is_one_graph(name: str, options: str, ordered: bool) -> None:
    def use(layers: nn.Module, x: torch.Tensor, n: torch.Tensor) -> Any:
        out, last = layers(pack_padded_sequence(x, n, batch_first=layers.batch_first, enforce_sorted=ordered))
        return *pad_packed_sequence(out, batch_first=layers.batch_first, padding_value=-1.0), last

    m = Trained(name, TRAINED[options], use)
    calls = [(x, lengths(*x.shape[:2] if m.layers.batch_first else x.shape[1::-1], ordered)) for x, in leaves(m.layers)]
    check(m, *calls, captures=1, breaks=0, grad=True)


def written(layers: nn.Module, x: torch.Tensor) -> torch.Tensor:
    out = layers(x)[0]
    out[:, 0].mul_(2.0)
    out.relu_()
    return out.sum()


def carried(layers: nn.Module, x: torch.Tensor, *h: torch.Tensor) -> Any:
    out, last = layers(x, h if len(h) > 1 else h[0])
    return layers(x, last), out


def twice_differentiated(layers: nn.Module, x: torch.Tensor) -> torch.Tensor:
    g = torch.autograd.grad(layers(x)[0].sin().sum(), x, create_graph=True)[0]
    return (g * g).sum()


def checkpointed(layers: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(lambda x: layers(x)[0].sin(), x, use_reentrant=False)


def stepped(layers: nn.Module, x: torch.Tensor) -> torch.Tensor:
    layers(x)[0].sum().backward()
    return x * 1


def last_alone(layers: nn.Module, x: torch.Tensor) -> Any:
    return layers(x)[1]


def stacked(layers: nn.Module, x: torch.Tensor) -> Any:
    return layers(layers(x)[0][..., :4])


@pytest.mark.parametrize("use", [written, checkpointed, stepped, last_alone, stacked])
@pytest.mark.parametrize("name", NETWORKS)
def test_uses_in_training(name: str, use: Any) -> None:
    m = Trained(name, EXACT, use)
    check(m, *leaves(m.layers), breaks=0, captures=(1, 2), grad=use is not stepped)


@pytest.mark.parametrize("name", NETWORKS)
def test_states_that_have_gradients(name: str) -> None:
    m = Trained(name, EXACT, carried)
    states = 2 if name == "lstm" else 1
    calls = [(x, *[torch.ones(1, len(x), 5, dtype=torch.float64).requires_grad_() for _ in range(states)]) for x, in leaves(m.layers)]
    check(m, *calls, breaks=0, captures=1, grad=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_some_parameters_are_frozen(name: str) -> None:
    m = Trained(name, EXACT, lambda layers, x: layers(x))
    m.layers.weight_hh_l0.requires_grad_(False)
    check(m, *leaves(m.layers)[:2], breaks=0, captures=1, grad=True)
    m.layers.requires_grad_(False)
    check(m, *leaves(m.layers), breaks=0, captures=1, grad=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_differentiated_twice(name: str) -> None:
    m = network(name, EXACT)
    check(lambda x: twice_differentiated(m, x), *leaves(m)[:2], grad=True)
    m = Trained(name, EXACT, lambda layers, x: layers(x)[0].sin().sum())
    run, found = pliant.compile(m), []
    for f in (m, run):
        (x,) = leaves(m.layers)[1]
        g = torch.autograd.grad(f(x), x, create_graph=True)[0]
        found.append(torch.autograd.grad((g * g).sum(), [x, *m.layers.parameters()]))
    torch.testing.assert_close(*found)


def test_what_the_library_keeps_must_not_be_written() -> None:
    """oneDNN's derivative of an LSTM reads its result; eager says so when the gradients are asked for."""
    m = Trained("lstm", {}, written)
    check(m, *leaves(m.layers), grad=True)


# -- LSTMs of float32, which have kernels of our own -------------------------------------------------------------------------------
FLOATS = {
    "plain": {}, "batch second": {"batch_first": False}, "both": {"bidirectional": True}, "layers": {"num_layers": 3, "bias": False},
    "both, batch second": {"bidirectional": True, "batch_first": False, "num_layers": 2},
}  # fmt: skip
owned = pytest.mark.skipif(not lstm.available(), reason="products are PyTorch's on this processor")


def by_library(monkeypatch: Any) -> None:
    """As on processors where products are PyTorch's."""
    monkeypatch.setattr(lstm, "provider", [])
    monkeypatch.setattr(CPU, "lstm_kernels", lambda _: None)


def through_packed(layers: nn.Module, x: torch.Tensor) -> Any:
    n = torch.tensor([3, 2, 1]) if layers.batch_first else torch.tensor([3, 3, 2, 1])
    out, last = layers(pack_padded_sequence(x, n[: x.shape[0 if layers.batch_first else 1]], batch_first=layers.batch_first))
    return (out.data * 1, *last)


@owned
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_kernels_of_our_own_are_called(packed: bool, grad: bool, monkeypatch: Any) -> None:
    called: list[str] = []
    forward, backward = runtime.lstm_kernels()
    both = (lambda *given: (called.append("forward"), forward(*given))), (lambda *given: (called.append("back"), backward(*given)))
    monkeypatch.setattr(lstm, "kernels", lambda: both)
    m = network("lstm", {})
    run = pliant.compile(lambda x: through_packed(m, x) if packed else m(x))
    with torch.set_grad_enabled(grad):
        out = run(torch.randn(3, 4, 4, requires_grad=grad))
        if grad:
            out[0].sum().backward()
    assert called == ["forward", "back"] if grad else called == ["forward"]


@pytest.mark.parametrize("library", [False, True])
@pytest.mark.parametrize("options", FLOATS)
def test_floats_in_training(options: str, library: bool, monkeypatch: Any) -> None:
    if library:
        by_library(monkeypatch)
    m = Trained("lstm", FLOATS[options], lambda layers, x: layers(x))
    check(m, *leaves(m.layers, ((2, 3), (4, 6), (20, 2), (3, 1), (1, 5))), captures=(1, 3), breaks=0, grad=True)
    m = Trained("lstm", FLOATS[options], lambda layers, x: through_packed(layers, x)[0])
    check(m, *leaves(m.layers, ((3, 4), (2, 4), (3, 6))), captures=1, breaks=0, grad=True)


@pytest.mark.parametrize("options", FLOATS)
def test_floats_without_gradients(options: str) -> None:
    m = network("lstm", FLOATS[options])
    with torch.no_grad():
        check(lambda x: m(x), *[(padded(m, n, t),) for n, t in ((2, 3), (17, 2), (3, 1), (40, 3), (1, 9))], captures=(1, 3), breaks=0)


def input_written(layers: nn.Module, x: torch.Tensor) -> Any:
    x = x * 1
    out = layers(x)[0].sum()
    x.mul_(2)
    return out + x.sum()


def states_written(layers: nn.Module, x: torch.Tensor) -> Any:
    batch, ways = x.shape[0 if layers.batch_first else 1], 2 if layers.bidirectional else 1
    h, c = (torch.ones(layers.num_layers * ways, batch, 5) * x.sum() for _ in range(2))
    out, last = layers(x, (h, c))
    h.mul_(2)
    for t in last:
        t.mul_(3)
    return out.sum() + h.sum() + sum(t.sum() for t in last)


@pytest.mark.parametrize("use", [written, input_written, states_written])
@pytest.mark.parametrize("options", FLOATS)
def test_what_is_written_behind_floats(options: str, use: Any) -> None:
    """Eager says so where the library's derivative reads it; where PyTorch made a copy of it, it does not."""
    m = Trained("lstm", FLOATS[options], use)
    check(m, *leaves(m.layers), grad=True)


@pytest.mark.parametrize("library", [False, True])
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("options", FLOATS)
def test_floats_are_differentiated_twice(options: str, packed: bool, library: bool, monkeypatch: Any) -> None:
    if library:
        by_library(monkeypatch)
    m = Trained("lstm", FLOATS[options], lambda layers, x: (through_packed(layers, x) if packed else layers(x))[0].sin().sum())
    run, found = pliant.compile(m, strict=True), []
    for f in (m, run, run):
        (x,) = leaves(m.layers, ((3, 4),))[0]
        g = torch.autograd.grad(f(x), x, create_graph=True)[0]
        found.append([g, *torch.autograd.grad((g * g).sum(), [x, *m.layers.parameters()])])
    for got in found[1:]:
        torch.testing.assert_close(got, found[0])
    if not packed:
        check(lambda x: twice_differentiated(m.layers, x), *leaves(m.layers)[:2], grad=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_twice_where_the_batch_is_second(name: str) -> None:
    """The result of the layer is what the region returns, and what its derivative reads."""
    m = network(name, {"batch_first": False, **EXACT})
    run, found = pliant.compile(lambda x: m(x)[0]), []
    for f in (lambda x: m(x)[0], run):
        (x,) = leaves(m)[1]
        g = torch.autograd.grad(f(x).sin().sum(), x, create_graph=True)[0]
        found.append(torch.autograd.grad((g * g).sum(), [x, *m.parameters()]))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("size", [(16, 12, 8), (48, 33, 20)])
def test_errors_of_floats_are_those_of_eager(size: tuple, packed: bool) -> None:
    width, t, batch = size
    torch.manual_seed(0)
    m = nn.LSTM(width, width, num_layers=2, bidirectional=True)
    exact, n = copy.deepcopy(m).double(), torch.linspace(t, 1, batch).long()

    def use(m: nn.Module, x: torch.Tensor) -> Any:
        out, last = m(pack_padded_sequence(x, n) if packed else x)
        return (out.data if packed else out, *last)

    x, found = torch.randn(t, batch, width), []
    for f, of in ((use, exact), (use, m), (pliant.compile(use, strict=True), m)):
        at = x.to(of.weight_ih_l0.dtype).requires_grad_()
        results = f(of, at)
        found.append([*results, *torch.autograd.grad([r.sin().sum() for r in results], [at, *of.parameters()])])
    for want, eager, ours in zip(*found, strict=True):
        theirs, mine = ((v.double() - want).square().mean().sqrt().item() for v in (eager, ours))
        assert mine <= 2 * theirs + 2**-25 * want.abs().max()  # half a unit of the largest


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_floats_without_the_library() -> None:
    """With oneDNN switched off PyTorch's own kernels run, whose results may be written."""
    with torch.backends.mkldnn.flags(enabled=False):
        for use in (written, input_written, lambda layers, x: layers(x)):
            m = Trained("lstm", {}, use)
            check(m, *leaves(m.layers), grad=True)


def test_empty_and_single(recwarn: Any) -> None:
    for name in NETWORKS:
        m = Trained(name, EXACT, lambda layers, x: layers(x))
        check(m, *leaves(m.layers, ((2, 3), (0, 3), (4, 1), (1, 1))), grad=True)


@pytest.mark.parametrize("name", NETWORKS)
def test_gradients_of_halves_are_as_good_as_eager_s(name: str) -> None:
    m = network(name, {"dtype": torch.bfloat16, "num_layers": 2})
    exact = copy.deepcopy(m).double()
    grads = []
    for f, of in ((exact, exact), (m, m), (pliant.compile(m), m)):
        of.zero_grad()
        x = padded(m, 4, 6).to(of.weight_ih_l0.dtype).requires_grad_()
        f(x)[0].sum().backward()
        grads.append([g.double().clone() for g in (x.grad, *[p.grad for p in of.parameters()])])
    for exact, eager, ours in zip(*grads, strict=True):
        assert (ours - exact).abs().max() <= 1.5 * (eager - exact).abs().max() + 1e-3


@pytest.mark.parametrize("name", ["gru", "rnn"])
def test_under_autocast(name: str) -> None:
    def use(layers: nn.Module, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            return layers(x)[0].float()

    m = Trained(name, {}, use)
    check(m, *leaves(m.layers)[:2])


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("name", NETWORKS)
def test_exports(name: str, packed: bool, tmp_path: Any) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = network(name, {"num_layers": 2, "bidirectional": True})

        def forward(self, x: torch.Tensor, n: torch.Tensor) -> Any:
            if not packed:
                return self.layers(x)
            out, last = self.layers(pack_padded_sequence(x, n, batch_first=True, enforce_sorted=False))
            return (*pad_packed_sequence(out, batch_first=True), last)

    m = Model().eval()
    calls = [(padded(m.layers, n, t), lengths(n, t, False)) for n, t in ((3, 6), (1, 1), (2, 1), (1, 7), (5, 9))]
    with torch.no_grad():
        p = pliant.export(m, calls[0])
        p.save(tmp_path / "m.pliant")
        q = pliant.load(tmp_path / "m.pliant")
        for call in calls:
            torch.testing.assert_close(p(*call), m(*call))
            torch.testing.assert_close(q(*call), m(*call))
        runtime = pytest.importorskip("onnxruntime")
        p.to_onnx(tmp_path / "m.onnx")
        session = runtime.InferenceSession(tmp_path / "m.onnx")
        for call in calls:
            given = {i.name: v.numpy() for i, v in zip(session.get_inputs(), call)}
            want = torch.utils._pytree.tree_leaves(m(*call))
            torch.testing.assert_close([torch.from_numpy(v) for v in session.run(None, given)], want)


# -- what PyTorch's spelling in Python does not do ---------------------------------------------------------------------------
@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.enable_grad])
def test_dropout_that_changes(name, mode):
    m = network(name, {"num_layers": 2})
    fn = lambda x: m(x)[0]  # noqa: E731
    run = pliant.compile(fn)
    x = padded(m, 2, 3)
    for p in (0.0, 0.25, 0.0, 0.5, 0.25, 0.7):
        m.dropout = p
        said = []
        for f in (fn, run):
            torch.manual_seed(3)
            with mode():
                said.append((f(x), torch.get_rng_state().tolist()))
        torch.testing.assert_close(said[1][0], said[0][0])
        assert said[1][1] == said[0][1]


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("option, value", [("dropout", 2.0), ("dropout", -1.0), ("bias", 1), ("batch_first", 1)])
def test_options_that_are_refused(name, option, value):
    m = network(name, {"num_layers": 2})
    setattr(m, option, value)
    for f in (m, pliant.compile(lambda x: m(x))):
        with pytest.raises((RuntimeError, TypeError, ValueError)):
            f(padded(m, 2, 3))


@pytest.mark.parametrize("name", NETWORKS)
def test_autocast(name):
    m = network(name, {})
    run = pliant.compile(lambda x: m(x)[0])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for t in (3, 4):
            try:
                want = m(padded(m, 2, t))[0]
            except RuntimeError as e:
                pytest.skip(f"not on this processor, says eager: {e}")
            got = run(padded(m, 2, t))
            assert got.dtype is want.dtype
            torch.testing.assert_close(got, want)


@pytest.mark.parametrize("which", ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0"])
@pytest.mark.parametrize("name", ["LSTM", "GRU", "RNN"])
def test_gradients_of_weights_of_another_rank(name: str, which: str) -> None:
    """Some kernels take a flat weight: its gradient is flat, too."""
    m = getattr(nn, name)(8, 5, batch_first=True)
    own = getattr(m, which).detach()
    m._parameters[which] = nn.Parameter(own.reshape(-1) if own.dim() == 2 else own.reshape(1, -1))
    m._flat_weights = [m._parameters[n] for n in m._flat_weights_names]
    check(lambda x: m(x)[0], (torch.ones(2, 3, 8),), (torch.ones(2, 4, 8),), grad=True)


@pytest.mark.parametrize("kind", ["relu", "tanh"])
@pytest.mark.parametrize("where", ["weight", "state", "gradient"])
def test_gradients_of_numbers_that_are_none(kind: str, where: str) -> None:
    """What passes `relu` backward is what is not zero or less: a NaN passes, and an infinite gradient is 0 where it does not."""
    torch.manual_seed(0)
    module = torch.nn.RNN(4, 3, 2, nonlinearity=kind)
    if where == "weight":
        module.weight_ih_l0.data[0, 0] = float("nan")
    run, said = pliant.compile(lambda x, h: module(x, h), backend="aten"), []
    for fn in (module, run):
        torch.manual_seed(1)
        x, h = torch.randn(5, 2, 4), torch.randn(2, 2, 3)
        h[0, 0, 0] = float("inf") if where == "state" else 1.0
        x.requires_grad_()
        module.zero_grad()
        out, last = fn(x, h)
        g = torch.randn(out.shape)
        g[3, 1, 1] = float("inf") if where == "gradient" else 1.0
        torch.autograd.backward([out, last], [g, torch.ones_like(last)])
        said.append([out.detach(), x.grad, *[p.grad.clone() for p in module.parameters()]])
    for want, got in zip(*said, strict=True):
        torch.testing.assert_close(got, want, equal_nan=True)
