"""ONNX: a program as a model file that runs at every size. The package needs onnx-ir, and `onnx_session` ONNX Runtime."""

from __future__ import annotations

import importlib
import os
import pathlib
import tempfile
from typing import Any

from pliant.export.onnx.model import OPSET, to_onnx
from pliant.export.program import Program


def onnx_session(model: Program | str | os.PathLike, *, threads: int = 1) -> Any:
    """A session of ONNX Runtime on the CPU, of a program or of a file: it runs every size."""
    ort = importlib.import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3  # it warns where it finds a size of its own name for one of ours
    if not isinstance(model, Program):
        return ort.InferenceSession(os.fspath(model), options, providers=["CPUExecutionProvider"])
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "model.onnx"
        to_onnx(model, path)
        return ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])


__all__ = ["OPSET", "onnx_session", "to_onnx"]
