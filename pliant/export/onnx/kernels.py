"""Which dtypes ONNX Runtime's CPU kernels take at the opset that is written: an operand of another one is cast there and back.

Read off `onnxruntime`'s own list of kernels (`get_all_opkernel_def`) for opset 23. Absent operators take every dtype.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

NAMES = {
    "f32": torch.float32, "f64": torch.float64, "f16": torch.float16, "bf16": torch.bfloat16, "i8": torch.int8, "i16": torch.int16,
    "i32": torch.int32, "i64": torch.int64, "u8": torch.uint8, "bool": torch.bool,
}  # fmt: skip

WIDER = {
    torch.float16: (torch.float32,),
    torch.bfloat16: (torch.float32,),
    torch.float64: (torch.float32,),  # narrower: the model's metadata say where that was done
    torch.bool: (torch.uint8, torch.int32, torch.int64, torch.float32),
    torch.uint8: (torch.int32, torch.int64, torch.float32),
    torch.int8: (torch.int32, torch.int64, torch.float32),
    torch.int16: (torch.int32, torch.int64, torch.float32),
    torch.int32: (torch.int64, torch.float64, torch.float32),
    torch.int64: (torch.float64,),
    torch.float32: (),
}


@dataclass(frozen=True, slots=True)
class Kernel:
    """`dtypes` of the operands at the places `at` (None: all of them). `same`: the first result has their dtype."""

    dtypes: frozenset[torch.dtype]
    at: tuple[int, ...] | None
    same: bool = True


def _rows(dtypes: str, names: str, at: tuple[int, ...] | None = None, same: bool = True) -> dict[str, Kernel]:
    kernel = Kernel(frozenset(NAMES[n] for n in dtypes.split()), at, same)
    return dict.fromkeys(names.split(), kernel)


FLOATS, NUMBERS = "f32 f64", "f32 f64 i8 i16 i32 i64 u8"
KERNELS: dict[str, Kernel] = {
    **_rows(NUMBERS, "Abs Add Sub Mul Div"),
    **_rows("f32", "Acos Acosh Asin Asinh Atan Atanh Cosh Sinh Tan Erf Elu Celu Selu LeakyRelu HardSigmoid Gelu Softplus"),
    **_rows("f32", "AveragePool Conv ConvTranspose PRelu Col2Im"),
    **_rows("bool", "And Or Xor Not"),
    **_rows("i8 i16 i32 i64 u8", "BitwiseAnd BitwiseOr BitwiseXor BitwiseNot"),
    **_rows(FLOATS, "Ceil Floor Cos Sin Exp Log Reciprocal Sqrt Sigmoid Tanh Softmax LogSoftmax Gemm GridSample BatchNormalization"),
    **_rows("f32 f64", "LayerNormalization"),
    **_rows("f32 f64 f16", "Round"),
    **_rows("f32 f64 i8 i16 i32 i64", "Neg"),
    **_rows("f32 f64 f16 i8 i32 i64 u8", "Clip Max Min"),
    **_rows("f32 f64 i32 i64", "MatMul Pow Einsum"),
    **_rows("f32 f64 i32 i64", "ReduceSum ReduceMean ReduceProd ReduceL1 ReduceL2 ReduceSumSquare ReduceLogSumExp", (0,)),
    **_rows("f32 f64 i8 i32 i64 u8 bool", "ReduceMax ReduceMin", (0,)),
    **_rows("f32 f64 f16 i8 i16 i32 i64 u8", "Mod"),
    **_rows("f32 f64 i32 i64", "CumSum", (0,)),
    **_rows("f32 f64 i8 i32 i64 u8", "ArgMax ArgMin", (0,), False),
    **_rows("f32 f64 i8 i16 i32 i64 u8 bool", "Equal", None, False),
    **_rows(NUMBERS, "Greater GreaterOrEqual Less LessOrEqual", None, False),
    **_rows("f32 f64 f16 i8 i16 i32 i64 u8 bool", "Expand", (0,)),
    **_rows("f32 f64 f16 bf16", "IsInf IsNaN", None, False),
    **_rows("f32 i32 i64 u8 bool", "NonZero", None, False),
    **_rows("f32 f64 bf16 i8 i32 i64 u8 bool", "Pad", (0, 2)),
    **_rows("f32 f64 i16 i32 i64", "Range"),
    **_rows("f32 f64 i8 u8", "MaxPool", (0,)),
    **_rows("f32 f64 f16 bf16 i8 i16 i32 i64 u8", "Sign", (0,)),
    **_rows("f32 f64 i8 i16 i32 i64 u8 bool", "Tile", (0,)),
    **_rows(NUMBERS, "TopK", (0,)),
    **_rows("f32 f64 i32 i64 bool", "Trilu", (0,)),
    **_rows("f32 f64 i8 i64", "Unique", (0,)),
    **_rows("f32 f64 i8 i32 i64 u8", "Where", (1, 2)),
    **_rows(FLOATS, "DFT", (0,)),
}  # fmt: skip


def carrier(op: str, dtype: torch.dtype) -> torch.dtype | None:
    """The dtype in which `op` is computed for operands of `dtype`; None if there is none."""
    row = KERNELS.get(op)
    if row is None or dtype in row.dtypes:
        return dtype
    return next((d for d in WIDER.get(dtype, ()) if d in row.dtypes), None)
