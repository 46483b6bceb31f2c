"""Every case of `onnx_cases.py`: exported once, one session of ONNX Runtime, compared with eager at every size."""

from __future__ import annotations

import pathlib

import pytest
import torch

pytest.importorskip("onnx_ir")
pytest.importorskip("onnxruntime")

from tests.export.onnx_cases import CASES  # noqa: E402
from tests.export.onnx_runs import Session, compare, leaves  # noqa: E402

SIZES = (5, 1, 2, 18)


@pytest.mark.parametrize("name", CASES)
def test_operators_agree_with_eager(name: str, tmp_path: pathlib.Path) -> None:
    fn, make = CASES[name]
    session = Session(fn, make(3), tmp_path)
    for n in SIZES:
        args = make(n)
        if not session.fits(args):
            assert n in (1, 2), f"size {n} is refused: {session.program.relations}"
            continue
        compare(leaves(fn(*args)), session.run(args), f"{name} at {n}", half="half" in name)
    assert isinstance(session.program.ops, list) and torch.is_grad_enabled()
