"""ONNX: a program as a model file that runs at every size. The package needs onnx-ir; `onnx_session` needs ONNX Runtime."""

from __future__ import annotations

from pliant.export.onnx.model import OPSET, to_onnx

__all__ = ["OPSET", "to_onnx"]
