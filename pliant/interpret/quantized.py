"""`torch.ao`'s dynamic linear layers: their packed weights enter the graph as tensors (`guards/quantized.py`)."""

from __future__ import annotations

from typing import Any

from pliant.graph.originals import torch
from pliant.graph.quantized import DYNAMIC_LINEAR
from pliant.graph.traced import TracedTensor
from pliant.guards.quantized import LEVELS, REDUCED, packed_linear
from pliant.guards.views import NAMES
from pliant.interpret.calls import graph_call
from pliant.interpret.lookasides import lookaside
from pliant.interpret.state import Break, vm

PLAIN, RELU = torch.ops.quantized.linear_dynamic, torch.ops.quantized.linear_relu_dynamic
PARAMETERS = ("X", "W_prepack", "reduce_range")


def dynamic_linear(args: tuple, kw: dict) -> Any:
    given = {"reduce_range": False} | dict(zip(PARAMETERS, args)) | kw
    x, packed, reduced = given.get("X"), given.get("W_prepack"), given["reduce_range"]
    if len(args) + len(kw) > 3 or set(given) != set(PARAMETERS) or type(x) is not TracedTensor or type(reduced) is not bool:
        raise Break("PL0034", "linear_dynamic of other arguments than a tensor, a packed weight and a bool", clean=True)
    source = vm.world.source_of(packed)
    if type(packed) is not torch.ScriptObject or source is None:
        raise Break("PL0034", "linear_dynamic with a weight that the program packed itself", clean=True)
    if x.dtype is not torch.float32 or len(x.sizes) < 2 or x.device.type != "cpu" or x.requires_grad and torch.is_grad_enabled():
        raise Break("PL0034", "linear_dynamic of something else than f32 of at least two dims, without gradients, on the CPU", clean=True)
    try:
        with vm.trace.paused():
            parts = packed_linear(packed)
    except (ValueError, RuntimeError) as e:
        raise Break("PL0034", f"linear_dynamic: {e}", clean=True) from None
    weight, scale, sums, bias, reduces, fused, whole = vm.world.locate(parts, source.apply(NAMES[packed_linear]))
    levels = REDUCED if reduced and reduces else LEVELS
    if levels == LEVELS and not whole:
        raise Break("PL0034", "linear_dynamic of the whole range of bytes, whose sums this processor's engine cuts to 16 bits", clean=True)
    return graph_call(DYNAMIC_LINEAR, (x, weight, scale, sums, bias, levels, fused), {})


@lookaside(PLAIN, PLAIN.default)
def l_linear_dynamic(args: tuple, kw: dict) -> Any:
    return dynamic_linear(args, kw)


@lookaside(RELU, RELU.default)
def l_linear_relu_dynamic(args: tuple, kw: dict) -> Any:
    return graph_call(torch.relu, (dynamic_linear(args, kw),), {})
