"""Products with weights of int8 as operators of the graph: `pliant::dynamic_linear`, which `quantized::linear_dynamic` becomes, and
`pliant::int8_mm`, which a product of floats with a weight that was bytes becomes (`lower/pattern_fusion.py`).

PyTorch's operator takes a packed object, which no graph holds; this one takes its parts. `most` is how many steps the range of the input
is cut into, `fused` whether the bias is added by one rounding with the product. The kernel is registered by `guards/quantized.py`.
"""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.rules.shape import new, require_equal
from pliant.graph.rules.table import rule
from pliant.graph.traced import TracedTensor

LIBRARY = torch.library.Library("pliant", "FRAGMENT")
LIBRARY.define("dynamic_linear(Tensor x, Tensor weight, Tensor scale, Tensor sums, Tensor? bias, int most, bool fused) -> Tensor")
LIBRARY.define("int8_mm(Tensor x, Tensor weight) -> Tensor")
INT8_MM = torch.ops.pliant.int8_mm.default
"""x @ weight.t().to(x.dtype), of matrices."""
DYNAMIC_LINEAR = torch.ops.pliant.dynamic_linear.default
"""y = dequantize(quantize(x) @ weight.t()) + bias. `scale` of the rows of the weight, `sums` of its rows."""


def int8_mm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return torch.mm(x, ORIGINAL.to(ORIGINAL.t(weight), x.dtype))


LIBRARY.impl("int8_mm", int8_mm, "CPU")


@rule("pliant::dynamic_linear")
def dynamic_linear(trace: Any, x: TracedTensor, weight: TracedTensor, *rest: Any) -> Any:
    if len(x.sizes) < 2 or x.dtype is not torch.float32 or not require_equal(trace, x.sizes[-1], weight.sizes[1]):
        return NotImplemented
    return new(trace, (*x.sizes[:-1], weight.sizes[0]), torch.float32, x.device)


@rule("_int_mm")
def int_mm(trace: Any, a: TracedTensor, b: TracedTensor) -> Any:
    if len(a.sizes) != 2 or len(b.sizes) != 2 or a.device.type != "cpu" or b.dtype is not torch.int8:
        return NotImplemented
    if a.dtype not in (torch.int8, torch.uint8) or not require_equal(trace, a.sizes[1], b.sizes[0]):
        return NotImplemented
    return new(trace, (a.sizes[0], b.sizes[1]), torch.int32, a.device)
