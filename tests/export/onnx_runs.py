"""Running exported programs in ONNX Runtime, and comparing."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import torch

from pliant.export import export
from pliant.export.onnx import to_onnx
from pliant.export.signature import Caller, SignatureError

ort_options = onnxruntime.SessionOptions()
ort_options.intra_op_num_threads = 1
ort_options.log_severity_level = 3


def array(v: Any) -> Any:
    """A value as ONNX Runtime takes it."""
    if isinstance(v, torch.Tensor):
        v = v.detach()
        return v.view(torch.int16).numpy().view(ml_dtypes.bfloat16) if v.dtype is torch.bfloat16 else v.numpy()
    return np.array(v)


def tensor(a: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(a).view(np.int16).copy()).view(torch.bfloat16) if a.dtype == ml_dtypes.bfloat16 else torch.tensor(a)


class Session:
    """A program, its file, and ONE session that runs it."""

    def __init__(self, fn: Callable, args: tuple, folder: pathlib.Path, kwargs: dict | None = None, **given: Any) -> None:
        self.program = export(fn, args, kwargs, **given)
        self.path = folder / "m.onnx"
        to_onnx(self.program, self.path)
        onnx.checker.check_model(self.path, full_check=True)
        self.session = onnxruntime.InferenceSession(self.path, ort_options, providers=["CPUExecutionProvider"])

    def flat(self, args: tuple, kwargs: dict | None = None) -> dict[str, Any]:
        caller = Caller(self.program)
        return caller.flat(caller.bind(args, kwargs or {}))

    def fits(self, args: tuple, kwargs: dict | None = None) -> bool:
        """Whether the program says that it runs these."""
        caller = Caller(self.program)
        try:
            caller.check(caller.flat(caller.bind(args, kwargs or {})))
        except SignatureError:
            return False
        return True

    def run(self, args: tuple, kwargs: dict | None = None) -> list[torch.Tensor]:
        """The outputs of kind "user"."""
        return list(self.outputs(args, kwargs).values())[: len(self.program.user_outputs)]

    def outputs(self, args: tuple, kwargs: dict | None = None) -> dict[str, torch.Tensor]:
        """All outputs, by name."""
        given = self.flat(args, kwargs)
        feeds = {i.name: array(given[i.name] if i.name in given else self.program.state[i.name]) for i in self.session.get_inputs()}
        if any(v.dtype == ml_dtypes.bfloat16 for v in feeds.values()) or any("bfloat16" in o.type for o in self.session.get_outputs()):
            return self.bound(feeds)
        names = [o.name for o in self.session.get_outputs()]
        return dict(zip(names, map(tensor, self.session.run(None, feeds)), strict=True))

    def bound(self, feeds: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The same with values that NumPy has no dtype for."""
        values = {k: onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(v.view(np.int16), onnx.TensorProto.BFLOAT16)
                  if v.dtype == ml_dtypes.bfloat16 else onnxruntime.OrtValue.ortvalue_from_numpy(v) for k, v in feeds.items()}  # fmt: skip
        outs = self.session.run_with_ort_values(None, values)
        made = {}
        for o, v in zip(self.session.get_outputs(), outs, strict=True):
            made[o.name] = torch.utils.dlpack.from_dlpack(v._ortvalue.to_dlpack()) if "bfloat16" in o.type else tensor(v.numpy())
        return made


def leaves(value: Any) -> list[Any]:
    """Tensors and numbers, in order."""
    if isinstance(value, (torch.Tensor, int, float)):
        return [value]
    return [leaf for v in (value.values() if isinstance(value, dict) else value) for leaf in leaves(v)]


def compare(want: list[Any], got: list[torch.Tensor], where: str, half: bool = False) -> None:
    """Dtypes, shapes and values; a nan is a nan."""
    assert len(want) == len(got), where
    for k, (w, g) in enumerate(zip(want, got)):
        if not isinstance(w, torch.Tensor):
            w = torch.tensor(w, dtype=torch.float64 if isinstance(w, float) else None)
        assert w.dtype is g.dtype and w.shape == g.shape, (
            f"{where}: output {k} is {g.dtype}{list(g.shape)}, eager's {w.dtype}{list(w.shape)}"
        )
        tolerance = 2e-2 if half and w.dtype in (torch.float16, torch.bfloat16) else 2e-5 if w.dtype is not torch.float64 else 1e-6
        torch.testing.assert_close(g, w, rtol=tolerance, atol=tolerance, equal_nan=True, msg=lambda m: f"{where}: output {k}: {m}")  # noqa: B023
