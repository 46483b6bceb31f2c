"""`pliant export`: inputs from the command line, files, checks at several sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import pliant
from pliant.cli.export import Inputs
from pliant.cli.main import main
from pliant.errors import PliantError

MODEL = """
import torch
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(4, 3)
    def forward(self, x, mask, scale=2):
        return {"y": self.fc(x).masked_fill(mask[..., None], 0.0) * scale}
def example():
    return (torch.randn(2, 5, 4), torch.zeros(2, 5, dtype=torch.bool)), {"scale": 3}
def wrong(x):
    return x.view(7, 3)
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.py"
    path.write_text(MODEL)
    return path


def run(capsys: Any, *words: str) -> tuple[int, str]:
    status = main(["export", *words])
    out = capsys.readouterr()
    return status, out.out + out.err


def test_exports_and_checks(model: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "net"
    inputs = ("float32[batch=2,n=5,4]", "mask=bool[batch,n]", "scale=3")
    status, text = run(capsys, f"{model}:Net()", *inputs, "--check", "1,2,7", "-o", str(out), "--show")
    assert status == 0, text
    assert "eager's answer at 4 sizes" in " ".join(text.split()) and "aten.addmm" in text
    p = pliant.load(f"{out}.pliant")
    x, mask = torch.randn(3, 6, 4), torch.rand(3, 6) > 0.5
    assert p(x, mask, scale=5)["y"].shape == (3, 6, 3)


def test_example_from_a_function(model: Path, tmp_path: Path, capsys: Any) -> None:
    status, text = run(capsys, f"{model}:Net()", "--inputs", f"{model}:example", "--check", "-o", str(tmp_path / "net"))
    assert status == 0 and "eager's answer at 1 sizes" in " ".join(text.split()), text


@pytest.mark.parametrize("words, said", [
    (("nothing",), "names no object"),
    (("{}:Missing", "3"), "has no Missing"),
    (("{}:Net()", "float33[2]"), "is no input"),
    (("{}:Net()", "float32[2,x y]"), "is no size"),
    (("{}:Net()", "float32[n]"), "no example size"),
    (("{}:Net()", "3", "--to", "coreml"), "no format coreml"),
])  # fmt: skip
def test_wrong_words(model: Path, capsys: Any, words: tuple[str, ...], said: str) -> None:
    status, text = run(capsys, *(w.format(model) for w in words))
    assert status == 1 and said in " ".join(text.split()), text


def test_named_dims_are_shared() -> None:
    inputs = Inputs(["float32[b=2,3]", "int64[b,7]<5", "k=true"])
    (x, ids), kwargs = inputs.made({"b": 6})
    assert x.shape == (6, 3) and ids.shape == (6, 7) and int(ids.max()) < 5 and kwargs == {"k": True}
    assert {d.name for row in inputs.dynamic(lambda x, ids: None, (x, ids)).values() for d in row.values()} == {"b"}
    with pytest.raises(PliantError):
        Inputs(["float32[2"])


def test_numbers_keep_their_dtype_in_other_formats(tmp_path: Path, capsys: Any) -> None:
    pytest.importorskip("onnxruntime")
    source = tmp_path / "numbers.py"
    source.write_text("def f(x, s, n):\n    return x * s + n\n")
    words = ("float32[b=2,3]", "0.5", "3", "--to", "onnx", "--check", "1,7", "-o", str(tmp_path / "f"))
    status, text = run(capsys, f"{source}:f", *words)
    assert status == 0 and "eager's answer at 3 sizes" in " ".join(text.split()), text
