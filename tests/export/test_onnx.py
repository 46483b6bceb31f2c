"""`to_onnx`: files, names, sizes, mutations, refusals; one session for all sizes."""

from __future__ import annotations

import json
import pathlib
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

from pliant import Dim  # noqa: E402
from pliant.errors import PliantError  # noqa: E402
from pliant.export import export  # noqa: E402
from pliant.export.onnx import OPSET, onnx_session, to_onnx  # noqa: E402
from tests.export.onnx_runs import Session, compare, leaves  # noqa: E402


class Encoder(torch.nn.Module):
    def __init__(self, d: int = 16) -> None:
        super().__init__()
        self.embed = torch.nn.Embedding(50, d)
        self.layer = torch.nn.TransformerEncoderLayer(d, 4, 32, batch_first=True, dropout=0.0)
        self.head = torch.nn.Linear(d, 3)
        self.register_buffer("seen", torch.zeros((), dtype=torch.int64))

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        self.seen += ids.shape[0]
        x = self.layer(self.embed(ids), src_key_padding_mask=mask)
        return {"logits": self.head(x), "best": self.head(x).argmax(-1)}


def ids_of(batch: int, seq: int) -> tuple[torch.Tensor, torch.Tensor]:
    ids = torch.arange(batch * seq).reshape(batch, seq) % 50
    return ids, (torch.arange(seq) >= seq - seq // 3).expand(batch, -1).contiguous()


def test_one_session_runs_every_size_of_a_model(tmp_path):
    model = Encoder().eval()
    batch, seq = Dim("batch", min=2), Dim("seq", min=2)  # the library's attention asks whether they are 1
    s = Session(model, ids_of(2, 5), tmp_path, dynamic={"ids": {0: batch, 1: seq}, "mask": {0: batch, 1: seq}})
    names = {i.name: i.shape for i in s.session.get_inputs()}
    assert names["ids"] == ["batch", "seq"] and names["mask"] == ["batch", "seq"]
    assert [(o.name, o.shape) for o in s.session.get_outputs()] == [
        ("logits", ["batch", "seq", 3]),
        ("best", ["batch", "seq"]),
        ("seen.out", []),
    ]
    for size in ((2, 2), (7, 7), (3, 33)):
        with torch.no_grad():
            want = model(*ids_of(*size))
        compare(leaves(want), s.run(ids_of(*size)), f"{size}")


def test_buffers_that_are_written_are_inputs_and_outputs(tmp_path):
    model = Encoder().eval()
    s = Session(model, ids_of(2, 5), tmp_path)
    assert int(s.outputs(ids_of(4, 6))["seen.out"]) == 4 + int(s.program.state["seen"])


def test_inputs_that_are_written_are_outputs(tmp_path):
    def f(x, y):
        x[1:] += y
        return x * 2

    s = Session(f, (torch.ones(4), torch.ones(3)), tmp_path)
    out = s.outputs((torch.ones(6), torch.full((5,), 2.0)))
    assert list(out) == [s.program.outputs[0].name, "x.out"]
    assert out["x.out"].tolist() == [1, 3, 3, 3, 3, 3] and out[s.program.outputs[0].name].tolist() == [2, 6, 6, 6, 6, 6]


def test_numbers_are_scalars(tmp_path):
    def f(x, n, p):
        return x[:n] * p, n * 3 - x.shape[0], x.shape[0] // 4

    s = Session(f, (torch.arange(9.0), 4, 0.5), tmp_path)
    assert {i.name: i.type for i in s.session.get_inputs()} == {"x": "tensor(float)", "n": "tensor(int64)", "p": "tensor(double)"}
    compare(leaves(f(torch.arange(30.0), 7, -2.25)), s.run((torch.arange(30.0), 7, -2.25)), "numbers")


def test_sizes_of_data(tmp_path):
    """A detector's end: boxes over a threshold, sorted, with their classes; none of them is a size, too."""

    def f(scores, boxes):
        best, label = scores.max(-1)
        keep = best > 0.5
        best, label, boxes = best[keep], label[keep], boxes[keep]
        order = best.argsort(descending=True)
        return best[order], label[order], boxes[order].clamp(0, 1), torch.unique(label), keep.sum().item()

    s = Session(f, (torch.rand(9, 4), torch.rand(9, 4)), tmp_path)
    for n in (9, 1, 50, 200):
        g = torch.Generator().manual_seed(n)
        args = (torch.rand(n, 4, generator=g), torch.randn(n, 4, generator=g))
        compare(leaves(f(*args)), s.run(args), f"{n} boxes")
    args = (torch.zeros(5, 4), torch.rand(5, 4))
    compare(leaves(f(*args)), s.run(args), "no box")


@dataclass
class Jagged:
    values: torch.Tensor
    lengths: torch.Tensor


def test_tensors_in_objects_go_by_their_names(tmp_path):
    def f(j):
        rows = torch.repeat_interleave(torch.arange(j.lengths.shape[0]), j.lengths)
        return torch.zeros(j.lengths.shape[0], j.values.shape[1]).index_add(0, rows, j.values)

    s = Session(f, (Jagged(torch.randn(6, 2), torch.tensor([2, 1, 3])),), tmp_path)
    assert {i.name for i in s.session.get_inputs()} == {"j.values", "j.lengths"}
    for lengths in ([4, 1], [0, 0, 5, 0], [1]):
        j = Jagged(torch.randn(sum(lengths), 2), torch.tensor(lengths))
        compare([f(j)], s.run((j,)), f"{lengths}")


def test_branches_on_data_and_on_sizes(tmp_path):
    def f(x):
        if x.sum() > 0:
            return x * 2, x.shape[0]
        return (x - 1).cumsum(0), 7

    def g(x):
        return x.sum(0) if x.shape[0] > 10 else x[0] * 2

    s = Session(f, (torch.ones(3, 4),), tmp_path)
    assert "If" in [n.op_type for n in onnx.load(s.path).graph.node]
    for x in (torch.ones(5, 2), -torch.ones(5, 2), torch.zeros(1, 1)):
        compare(leaves(f(x)), s.run((x,)), "data")
    s = Session(g, (torch.ones(3, 4),), tmp_path)
    for n in (1, 10, 11, 40):
        x = torch.randn(n, 3)
        compare([g(x)], s.run((x,)), f"size {n}")


def test_derived_dims(tmp_path):
    n = Dim("n", min=1)

    def f(x, y):
        return x + y[1::2]

    s = Session(f, (torch.randn(4), torch.randn(9)), tmp_path, dynamic={"x": {0: n}, "y": {0: 2 * n + 1}})
    assert [i.shape for i in s.session.get_inputs()] == [["n"], ["2*n + 1"]]
    compare([f(torch.ones(7), torch.arange(15.0))], s.run((torch.ones(7), torch.arange(15.0))), "7")


def test_only_a_derived_dim_tells_a_size(tmp_path):
    n = Dim("n", min=2)
    s = Session(lambda y: y.new_ones(y.shape[0] // 2), (torch.randn(9),), tmp_path, dynamic={"y": {0: 2 * n + 1}})
    assert s.run((torch.randn(21),))[0].shape == (10,)


def test_large_weights_are_in_a_file_of_their_own(tmp_path):
    big = torch.nn.Linear(1024, 600)
    s = Session(big, (torch.randn(2, 1024),), tmp_path)
    assert (tmp_path / "m.onnx.data").stat().st_size >= 4 * 1024 * 600 and s.path.stat().st_size < 20_000
    x = torch.randn(5, 1024)
    compare([big(x).detach()], s.run((x,)), "big")
    names = {i.name: i for i in onnx.load(s.path, load_external_data=False).graph.initializer}
    assert names["weight"].data_location == onnx.TensorProto.EXTERNAL and names["bias"].dims == [600]


def test_what_must_hold_is_told(tmp_path):
    def f(x, y):
        if x.shape[0] > 3:
            return x.view(-1, 2).sum(1) + y
        return y

    s = Session(f, (torch.randn(8), torch.randn(4)), tmp_path)
    told = {p.key: json.loads(p.value) for p in onnx.load(s.path).metadata_props}
    assert any("s0" in line and "3" in line and "test_onnx.py" in line for line in told["pliant.relations"]), told


def test_nodes_tell_the_line(tmp_path):
    s = Session(lambda x: torch.special.xlogy(x, x) + 1, (torch.rand(3),), tmp_path)
    sites = {p.value for n in onnx.load(s.path).graph.node for p in n.metadata_props}
    assert any("test_onnx.py" in site for site in sites)


def test_equal_size_arithmetic_is_one_node(tmp_path):
    def f(x):
        return [x.new_ones((x.shape[0] * 3 + 1) // 2) * k for k in range(5)]

    s = Session(f, (torch.randn(7),), tmp_path)
    kinds = [n.op_type for n in onnx.load(s.path).graph.node]
    assert kinds.count("Div") == 1 and kinds.count("Shape") == 1


def test_unknown_operators_are_refused_with_their_line(tmp_path):
    with pytest.raises(PliantError, match=r"to_onnx knows no form of aten\.linalg_inv_ex.* at .*test_onnx\.py"):
        to_onnx(export(lambda x: torch.linalg.inv(x), (torch.eye(3),)), tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()


def test_unknown_dtypes_are_refused(tmp_path):
    with pytest.raises(PliantError, match="complex64"):
        to_onnx(export(lambda x: x * 2, (torch.ones(3, dtype=torch.complex64),)), tmp_path / "m.onnx")


def test_unknown_opsets_are_refused(tmp_path):
    with pytest.raises(PliantError, match="opset=7"):
        to_onnx(export(lambda x: x * 2, (torch.ones(3),)), tmp_path / "m.onnx", opset=7)


@pytest.mark.parametrize("opset", [21, 22, 23, 24, 25])
def test_opsets(tmp_path, opset):
    program = export(lambda x: F.layer_norm(F.gelu(x), (4,)).cumsum(0).amax(1), (torch.randn(3, 4),))
    to_onnx(program, tmp_path / "m.onnx", opset=opset)
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    assert onnx.load(tmp_path / "m.onnx").opset_import[0].version == opset
    x = torch.randn(6, 4)
    got = onnx_session(tmp_path / "m.onnx").run(None, {"x": x.numpy()})
    compare(list(program.run({"x": x}).values()), [torch.tensor(v) for v in got], f"opset {opset}")


def test_a_session_of_a_program():
    x = torch.randn(5, 3)
    assert OPSET == 23
    got = onnx_session(export(lambda x: x.relu(), (torch.randn(2, 3),))).run(None, {"x": x.numpy()})
    assert torch.equal(torch.tensor(got[0]), x.relu())


def test_an_output_that_is_an_input(tmp_path):
    s = Session(lambda x: (x, x + 1, x), (torch.randn(3),), tmp_path)
    x = torch.randn(6)
    compare([x, x + 1, x], s.run((x,)), "inputs given back")


def test_convolution_with_same_padding(tmp_path):
    m = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3, padding="same"), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.MaxPool2d(2)
    ).eval()
    s = Session(m, (torch.randn(2, 3, 8, 9),), tmp_path)
    for h, w in ((8, 9), (5, 31), (64, 2)):
        x = torch.randn(1, 3, h, w)
        if s.fits((x,)):
            compare([m(x).detach()], s.run((x,)), f"{h} x {w}")
    assert s.fits((torch.randn(3, 3, 20, 10),))


def test_paths_may_be_text(tmp_path):
    to_onnx(export(torch.neg, (torch.ones(2),)), str(tmp_path / "m.onnx"))
    assert pathlib.Path(tmp_path / "m.onnx").exists()


def test_a_cast_there_and_back_is_read_within_a_loop(tmp_path):
    def f(x):
        t, n = x.double().float(), 0
        while t.abs().sum() > 1.5 and n < 6:
            t, n = torch.tanh(t) * 0.5, n + 1
        return t, n, x.double().float(), x.half().float()

    s = Session(f, (torch.randn(3, 4),), tmp_path)
    for x in (torch.randn(3, 4), torch.randn(5, 2) * 9, torch.zeros(1, 1)):
        compare(leaves(f(x)), s.run((x,)), "")
