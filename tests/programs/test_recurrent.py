"""LSTM, GRU and plain recurrent networks, padded and packed: one graph for every length where no gradient is recorded."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import pliant
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


def test_with_gradients() -> None:
    """Taken apart by PyTorch's own code, or a break; the answers and gradients are eager's."""
    for name in NETWORKS:
        m = network(name, {})
        run = pliant.compile(m)
        for n, t in ((2, 3), (4, 6), (3, 2)):
            x = padded(m, n, t)
            got = []
            for f in (m, run):
                m.zero_grad()
                f(x)[0].square().sum().backward()
                got.append([p.grad.clone() for p in m.parameters()])
            torch.testing.assert_close(got[1], got[0])


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
