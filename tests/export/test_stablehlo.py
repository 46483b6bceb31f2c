"""Programs as StableHLO modules: what is in them, what they refuse, how they run."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

pytest.importorskip("jaxlib")

from jaxlib.mlir import ir  # noqa: E402
from jaxlib.mlir.dialects import stablehlo as hlo  # noqa: E402

import pliant  # noqa: E402
from pliant.export import export  # noqa: E402
from pliant.export.signature import Caller, SignatureError  # noqa: E402
from pliant.export.stablehlo import module, to_stablehlo  # noqa: E402
from pliant.export.stablehlo.run import Refused, Runner, refined  # noqa: E402


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.mix = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation="gelu")
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        self.seen.add_(ids.shape[1])
        return self.mix(self.embed(ids)).mean(1)


class Pictures(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1), nn.Conv2d(8, 8, 3, padding=1, groups=4),
            nn.GroupNorm(2, 8),
        )
        self.head = nn.Linear(8, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.adaptive_avg_pool2d(F.silu(self.body(x)), 1).flatten(1))


def test_one_module_for_all_sizes() -> None:
    def f(x, y):
        b, s, d = x.shape
        return y.expand(b * 2 - b, s, d) + x

    static = {"x": {1: False, 2: False}, "y": {2: False}}
    text = to_stablehlo(export(f, (torch.randn(2, 1, 768), torch.randn(1, 1, 768)), dynamic=static)).text()
    assert "tensor<?x1x768xf32>" in text
    assert text.count("get_dimension_size %arg0, dim = 0") == 1  # once, and shared
    assert "dynamic_broadcast_in_dim" in text


def test_inputs_and_outputs_carry_their_names() -> None:
    m = Net().eval()
    p = export(m, (torch.randint(0, 11, (2, 5)),))
    text = to_stablehlo(p).text()
    head = next(line for line in text.splitlines() if "@main" in line)
    names = [part.split('"')[1] for part in head.split("pliant.name = ")[1:]]
    assert names == [i.name for i in p.inputs] + [o.name for o in p.outputs]
    assert "embed.weight" in names and "ids" in names and "seen.out" in names
    assert "dense_resource" not in text  # weights are arguments


def test_parameters_of_now_are_used() -> None:
    m = nn.Linear(3, 2)
    s = to_stablehlo(export(m, (torch.randn(4, 3),)))
    x = torch.randn(5, 3)
    for _ in range(2):
        with torch.no_grad():
            assert torch.allclose(s.run({"input": x})["output"], m(x), atol=1e-6)
            m.weight.mul_(2)


@pytest.mark.parametrize("shape", [(2, 5), (3, 2), (7, 3), (33, 9)])
def test_a_transformer_at_all_sizes(shape) -> None:
    torch.manual_seed(0)
    m = Net().eval()
    s = to_stablehlo(export(m, (torch.randint(0, 11, (2, 5)),)))
    ids = torch.randint(0, 11, shape)
    before = m.seen.clone()
    out = s.run({"ids": ids})
    with torch.no_grad():
        torch.testing.assert_close(out["output"], m(ids), rtol=1e-5, atol=1e-5)
    assert out["seen.out"] == before + shape[1]


@pytest.mark.parametrize("shape", [(2, 32, 32), (1, 33, 47), (7, 64, 32)])
def test_a_convolutional_network_at_all_sizes(shape) -> None:
    torch.manual_seed(0)
    m = Pictures().eval()
    s = to_stablehlo(export(m, (torch.randn(2, 3, 32, 40),)))
    x = torch.randn(shape[0], 3, *shape[1:])
    with torch.no_grad():
        torch.testing.assert_close(s.run({"x": x})["output"], m(x), rtol=1e-4, atol=1e-5)


def test_empty_tensors() -> None:
    def f(x):
        return x.softmax(-1), x.sum(0), x.cumsum(0), torch.cat([x, x]), x[:, :2], x.flatten()

    s = to_stablehlo(export(f, (torch.randn(3, 4),)))
    x = torch.randn(0, 4)
    for a, b in zip(s.run({"x": x}).values(), f(x)):
        assert a.shape == b.shape and torch.equal(a, b)


# -- bytecode ----------------------------------------------------------------------------------------------------------------------
def test_the_artifact_is_portable(tmp_path) -> None:
    s = to_stablehlo(export(lambda x: (F.gelu(x), x.topk(2).values, x.erfinv()), (torch.rand(3, 4),)))
    assert "chlo" in s.text()
    s.save(tmp_path / "m.mlirbc")
    s.save(tmp_path / "m.mlir")
    data = (tmp_path / "m.mlirbc").read_bytes()

    def read(context):
        assert hlo.deserialize_portable_artifact(context, s.bytecode(hlo.get_current_version())) is not None
        return str(hlo.deserialize_portable_artifact(context, data))

    text = module.in_context(read)
    assert "chlo" not in text and 'pliant.name = "x"' in text and "?x?x" in text
    refined(text, ["tensor<5x4xf32>"])
    assert module.in_context(lambda c: ir.Module.parse((tmp_path / "m.mlir").read_text()).operation.verify())


# -- what must hold ----------------------------------------------------------------------------------------------------------------
def test_relations_are_assertions_with_text() -> None:
    p = export(lambda x: x * 2 if x.shape[0] % 4 == 0 else x, (torch.randn(12),))
    text = to_stablehlo(p).text()
    assert "@shape_assertion" in text and "x.size(0) % 4 == 0" in text and "test_stablehlo.py" in text
    assert "stablehlo" in refined(text, ["tensor<8xf32>"])
    with pytest.raises(Refused, match=r"needs x.size\(0\) % 4 == 0, .*but x.size\(0\) = 10"):
        refined(text, ["tensor<10xf32>"])


def test_a_call_checks_the_signature_first() -> None:
    s = to_stablehlo(export(lambda x, y: x @ y, (torch.randn(3, 4), torch.randn(4, 5))))
    with pytest.raises(SignatureError, match="but"):
        s.run({"x": torch.randn(3, 4), "y": torch.randn(5, 5)})
    with pytest.raises(SignatureError, match="float32"):
        s.run({"x": torch.randn(3, 4).double(), "y": torch.randn(4, 5)})
    with pytest.raises(SignatureError, match="% 6 == 0"):
        to_stablehlo(export(lambda x: x.reshape(2, -1, 3), (torch.randn(12),))).run({"x": torch.randn(10)})


def test_assertions_about_data_are_results() -> None:
    def f(x, t):
        n = t.item()
        torch._check(n >= 0, lambda: "n is negative")
        return x * n

    s = to_stablehlo(export(f, (torch.randn(3), torch.tensor(4))))
    assert "assert: " in s.text()
    assert torch.equal(s.run({"x": torch.ones(2), "t": torch.tensor(5)})["output"], torch.full((2,), 5.0))
    with pytest.raises(RuntimeError):
        s.run({"x": torch.ones(2), "t": torch.tensor(-5)})


def test_maxima_become_bounds_behind_a_flag() -> None:
    def f(x):
        return F.softmax(x @ x.T, -1).cumsum(0), torch.cat([x, x[:, :2]], 1)[1:]

    p = export(f, (torch.randn(5, 4),), dynamic={"x": {0: pliant.Dim("n", min=2, max=64), 1: False}})
    assert "bounds" not in to_stablehlo(p).text()
    s = to_stablehlo(p, bounded=True)
    assert "tensor<?x4xf32, #stablehlo.bounds<64, ?>>" in s.text() and "#stablehlo.bounds<63, ?>" in s.text()
    x = torch.randn(7, 4)
    for a, b in zip(s.run({"x": x}).values(), f(x)):
        torch.testing.assert_close(a, b)
    assert len(s.bytecode()) > 0


def test_composites() -> None:
    def f(x, w):
        q = F.gelu(F.layer_norm(x @ w, (8,)), approximate="tanh")
        return F.scaled_dot_product_attention(q[:, None], q[:, None], q[:, None], is_causal=True), F.group_norm(q.mT, 2)

    p = export(f, (torch.randn(2, 5, 4), torch.randn(4, 8)))
    assert "stablehlo.composite" not in to_stablehlo(p).text()
    s = to_stablehlo(p, composites=True)
    for name in ("gelu", "native_layer_norm", "scaled_dot_product_attention", "native_group_norm"):
        assert f'stablehlo.composite "aten.{name}"' in s.text()
    x, w = torch.randn(3, 7, 4), torch.randn(4, 8)
    for a, b in zip(s.run({"x": x, "w": w}).values(), f(x, w)):
        torch.testing.assert_close(a, b)


# -- numbers -----------------------------------------------------------------------------------------------------------------------
def test_numbers_are_arguments() -> None:
    s = to_stablehlo(export(lambda x, k, a: (x * k + a, k * 2 // 3, x.shape[0] % 5), (torch.randn(3), 4, 0.5)))
    assert "tensor<i64> {pliant.name" in s.text() and "tensor<f64> {pliant.name" in s.text()
    for k in (7, -7):
        out = list(s.run({"x": torch.ones(4), "k": k, "a": 0.25}).values())
        assert torch.equal(out[0], torch.full((4,), k + 0.25)) and out[1] == k * 2 // 3 and out[2] == 4
    assert len(s.runner.compiled) == 1  # the same code for every number


def test_numbers_that_sizes_are_made_of() -> None:
    s = to_stablehlo(export(lambda x, k: (x[:k], x.new_zeros(k * 2)), (torch.randn(8), 3)))
    for k in (2, 5):
        a, b = s.run({"x": torch.arange(8.0), "k": k}).values()
        assert torch.equal(a, torch.arange(float(k))) and b.shape == (2 * k,)


@pytest.mark.parametrize("divisor", [3, -3])
def test_sizes_divide_as_python_does(divisor) -> None:
    def f(x, n):
        return x.new_zeros((n - 7) // divisor + 9, (n - 7) % divisor + 3)

    s = to_stablehlo(export(f, (torch.randn(2), 4)))
    for n in range(1, 14):
        assert s.run({"x": torch.randn(2), "n": n})["output"].shape == ((n - 7) // divisor + 9, (n - 7) % divisor + 3)


def test_products_of_sizes_are_wide_where_they_are_divided() -> None:
    def f(x):
        return x.reshape(x.shape[0], x.shape[1] * x.shape[2] // 4, 4)

    text = to_stablehlo(export(f, (torch.randn(2, 3, 8),))).text()
    assert "multiply" in text and "tensor<i64>" in text
    s = to_stablehlo(export(f, (torch.randn(2, 3, 8),)))
    assert s.run({"x": torch.randn(3, 6, 2)})["output"].shape == (3, 3, 4)


# -- refusals ----------------------------------------------------------------------------------------------------------------------
def test_an_unknown_operator_is_refused_with_its_line() -> None:
    p = export(lambda x: torch.linalg.qr(x)[0], (torch.randn(3, 3),))
    with pytest.raises(module.ExportError, match=r"aten\.linalg_qr\.default at .*test_stablehlo\.py:\d+.*has no StableHLO"):
        to_stablehlo(p)


def test_sizes_from_data_are_refused_with_the_reason() -> None:
    with pytest.raises(module.ExportError, match=r"nonzero.*known only from data"):
        to_stablehlo(export(lambda x: x.nonzero(), (torch.randn(3),)))


def test_a_size_made_of_data_exports_but_does_not_run() -> None:
    def f(t):
        n = t.item()
        torch._check(n >= 0)
        return torch.zeros(n, 2)

    s = to_stablehlo(export(f, (torch.tensor(3),)))
    assert "tensor<?x2xf32>" in s.text()
    with pytest.raises(Refused, match="only data tell"):
        s.run({"t": torch.tensor(3)})


def test_random_numbers_are_refused() -> None:
    with pytest.raises(module.ExportError, match="aten.rand"):
        to_stablehlo(export(lambda x: x + torch.rand_like(x), (torch.randn(3),)))


# -- branches ----------------------------------------------------------------------------------------------------------------------
def test_a_branch_on_data_is_a_case() -> None:
    def f(x):
        if x.sum() > 0:
            return x * 2, x.amax()
        return x.abs() + 1, x.amin()

    s = to_stablehlo(export(f, (torch.ones(3, 4),)))
    assert "stablehlo.case" in s.text()
    for x in (torch.ones(2, 5), -torch.ones(3, 1)):
        for a, b in zip(s.run({"x": x}).values(), f(x)):
            assert torch.equal(a, b)


def test_the_sides_of_a_branch_on_sizes_are_modules() -> None:
    def f(x):
        return x.reshape(2, -1) if x.shape[0] % 2 == 0 else x * 3

    s = to_stablehlo(export(f, (torch.ones(4),)))
    assert len(s.others) == 1
    for n in (6, 5):
        assert torch.equal(s.run({"x": torch.arange(float(n))})["output"], f(torch.arange(float(n))))


# -- the cache ---------------------------------------------------------------------------------------------------------------------
def test_executables_are_kept_and_bounded() -> None:
    p = export(lambda x: x + 1, (torch.randn(3),))
    r = Runner([p], module.build([p]), most=2)
    for n in (2, 3, 2, 4, 2):
        r({"x": torch.zeros(n)})
    assert [k[0] for k in r.compiled] == [("tensor<4xf32>",), ("tensor<2xf32>",)]


def test_the_table_names_real_operators() -> None:
    from pliant.export.stablehlo.table import LOWERINGS

    missing = []
    for name in LOWERINGS:
        space, _, rest = name.partition("::")
        if space != "aten":
            continue  # a library's, which need not be here
        packet, _, overload = rest.rpartition(".")
        found = getattr(getattr(torch.ops, space), packet, None)
        if found is None or not hasattr(found, overload):
            missing.append(name)
    assert len(LOWERINGS) > 400
    assert missing == []


def test_flat_inputs_come_from_the_caller() -> None:
    p = export(lambda d: {"sum": d["a"] + d["b"][0]}, ({"a": torch.ones(3), "b": [torch.ones(3)]},))
    c = Caller(p)
    out = to_stablehlo(p).run(c.flat(c.bind(({"a": torch.ones(5), "b": [torch.ones(5)]},), {})))
    assert torch.equal(out["sum"], torch.full((5,), 2.0))
