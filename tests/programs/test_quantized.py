"""Quantized models on the CPU: torch.ao's dynamic linear layers and torchao's tensors, one graph each, at changing sizes."""

from __future__ import annotations

import copy
import gc
import importlib
import weakref

import pytest
import torch
from torch import nn

import pliant
from pliant.guards import quantized

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*quantized tensor creation functions"),
    pytest.mark.filterwarnings("ignore:.*ao.quantization"),
    pytest.mark.filterwarnings("ignore:.*Enum subclass"),
]
LENGTHS = (3, 7, 12, 20, 33)


class Block(nn.Module):
    """A layer of a transformer, without norms."""

    def __init__(self, width: int = 64, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, w = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, n, w))
        return x + self.down(nn.functional.gelu(self.up(x)))


def dynamic(model: nn.Module) -> nn.Module:
    return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=torch.qint8)


def in_one_graph(model: nn.Module, inputs: list, tolerance: float = 0.02) -> None:
    """One capture serves all inputs. A number that lies between two steps may be rounded the other way, hence the tolerance."""
    compiled = pliant.compile(model, fullgraph=True)
    before = pliant.stats()
    with torch.no_grad():
        for x in inputs:
            want, got = model(x), compiled(x)
            assert got.dtype is want.dtype
            assert got.stride() == want.stride()
            assert (got - want).abs().max() <= tolerance * want.abs().max(), x.shape
    after = pliant.stats()
    assert after["captures"] - before["captures"] == 1
    assert after["graph_breaks"] == before["graph_breaks"]


def texts(width: int = 64) -> list:
    return [torch.randn(2, n, width) for n in LENGTHS]


def test_dynamic_linear_layers():
    torch.manual_seed(0)
    in_one_graph(dynamic(nn.Sequential(Block(), Block()).eval()), texts())


def test_a_layer_gets_other_weights():
    """The object that holds them is another one: its parts are read anew, and nothing is captured again."""
    torch.manual_seed(0)
    one, two = (dynamic(nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 4))) for _ in range(2))
    compiled = pliant.compile(one)
    x = torch.randn(5, 16)
    assert torch.equal(compiled(x), one(x))
    captures = pliant.stats()["captures"]
    one[0].set_weight_bias(*two[0]._weight_bias())
    assert torch.equal(compiled(x), one(x))
    assert torch.equal(one(x), nn.Sequential(two[0], nn.ReLU(), one[2])(x))
    assert pliant.stats()["captures"] == captures


def test_other_sizes_bias_and_range():
    """What the graph relied on of a layer is guarded."""
    torch.manual_seed(0)

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = dynamic(nn.Sequential(nn.Linear(16, 8)))[0]
            self.reduced = True

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.ops.quantized.linear_dynamic(x, self.layer._packed_params._packed_params, self.reduced) + 1

    model = Holder()
    compiled = pliant.compile(model)
    x = torch.randn(6, 16)
    for change in (
        lambda: None,
        lambda: setattr(model, "reduced", False),
        lambda: setattr(model, "layer", dynamic(nn.Sequential(nn.Linear(16, 8, bias=False)))[0]),
        lambda: setattr(model, "layer", dynamic(nn.Sequential(nn.Linear(16, 12)))[0]),
    ):
        change()
        assert torch.equal(compiled(x), model(x))


def test_weights_of_every_scheme():
    torch.manual_seed(0)
    per_channel = torch.ao.quantization.per_channel_dynamic_qconfig
    model = nn.Sequential(nn.Linear(32, 16), nn.Linear(16, 8))
    q = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear: per_channel}, dtype=torch.qint8)
    in_one_graph(q, [torch.randn(n, 32) for n in LENGTHS], 1e-6)


@pytest.mark.parametrize("engine", ["onednn", "qnnpack"])
def test_other_engines(engine):
    if engine not in torch.backends.quantized.supported_engines:
        pytest.skip(f"no {engine}")
    torch.manual_seed(0)
    before = torch.backends.quantized.engine
    try:
        torch.backends.quantized.engine = engine
        in_one_graph(dynamic(nn.Sequential(nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 8))), [torch.randn(n, 32) for n in LENGTHS], 1e-5)
    finally:
        torch.backends.quantized.engine = before


def test_relu_of_a_dynamic_layer():
    torch.manual_seed(0)
    layer = dynamic(nn.Sequential(nn.Linear(16, 8)))[0]

    def fn(x):
        return torch.ops.quantized.linear_relu_dynamic(x, layer._packed_params._packed_params, True) * 2

    compiled = pliant.compile(fn, fullgraph=True)
    for n in LENGTHS:
        x = torch.randn(n, 16)
        assert torch.equal(compiled(x), fn(x))


def test_what_is_not_captured():
    """A break, and eager's answer or error."""
    layer = dynamic(nn.Sequential(nn.Linear(16, 8)))[0]
    half = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.Linear(16, 8)), {nn.Linear}, dtype=torch.float16)
    zeros = torch.quantize_per_tensor(torch.randn(8, 16), 0.02, 3, torch.qint8)
    shifted = torch.ops.quantized.linear_prepack(zeros, None)
    x = torch.randn(4, 16)
    assert torch.equal(pliant.compile(half)(x), half(x))

    def own(x):
        return torch.ops.quantized.linear_dynamic(x, shifted, True)

    assert torch.equal(pliant.compile(own)(x), own(x))
    for bad in (torch.randn(16), torch.randn(4, 15), torch.randn(4, 16, dtype=torch.float64)):
        with pytest.raises(RuntimeError) as want:
            layer(bad)
        with pytest.raises(RuntimeError) as got:
            pliant.compile(lambda x: layer(x))(bad)
        assert str(got.value).splitlines()[0] == str(want.value).splitlines()[0]


@pytest.mark.usefixtures("young_heap")
def test_parts_live_as_long_as_the_object():
    layer = dynamic(nn.Sequential(nn.Linear(16, 8)))[0]
    packed = layer._packed_params._packed_params
    parts = quantized.packed_linear(packed)
    assert quantized.packed_linear(packed) is parts
    alive, number = weakref.ref(parts[0]), id(packed)
    assert number in quantized._parts
    del packed, parts, layer
    gc.collect()
    assert number not in quantized._parts
    assert alive() is None


def test_operators_of_pt2e_graphs():
    importlib.import_module("torch.ao.quantization.fx._decomposed")  # defines them
    q = torch.ops.quantized_decomposed
    weight, scales, zeros = torch.randint(-127, 128, (8, 16), dtype=torch.int8), torch.rand(8), torch.zeros(8, dtype=torch.int64)

    class Converted(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            steps = (0.05, 3, -128, 127, torch.int8)
            x = q.dequantize_per_tensor.default(q.quantize_per_tensor.default(x, *steps), *steps)
            w = q.dequantize_per_channel.default(weight, scales, zeros, 0, -127, 127, torch.int8)
            return nn.functional.linear(x, w).relu()

    in_one_graph(Converted(), [torch.randn(n, 16) for n in LENGTHS], 1e-6)


CONFIGS = ("Int8DynamicActivationInt8WeightConfig", "Int8WeightOnlyConfig")


@pytest.mark.parametrize("config", CONFIGS)
def test_torchao(config):
    ao = pytest.importorskip("torchao.quantization")
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).eval()
    ao.quantize_(model, getattr(ao, config)())
    in_one_graph(model, texts())


def test_torchao_int4():
    pytest.importorskip("torchao.quantization")
    int4 = pytest.importorskip("torchao.prototype.quantization.int4")
    from torchao.quantization import quantize_

    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block()).eval()
    quantize_(model, int4.PrototypeInt4WeightOnlyConfig(group_size=32))
    in_one_graph(model, texts(), 1e-4)
