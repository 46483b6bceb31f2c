"""Running a module through XLA, on the CPU: refined for the sizes of each call, compiled, and kept.

XLA compiles static shapes. The module is refined for the shapes of a call (sizes are propagated and folded, the dynamic operations become
static ones, the assertions are checked) and compiled once for each; the last `MOST` executables are kept. Numbers that sizes are made of
are part of what it is refined for; other numbers, and data, are not. Results keep the dtypes of the program (int64 and float64 stay).
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
import torch
from jax._src import compiler, xla_bridge
from jaxlib import xla_client
from jaxlib.mlir import ir, passmanager

from pliant.errors import PliantError
from pliant.export.program import Program
from pliant.export.signature import Caller
from pliant.export.stablehlo.branches import NO_SIDE
from pliant.export.stablehlo.module import Made, in_context
from pliant.symbolic.scope import BRANCH

MOST = 32
"""Executables that one runner keeps."""

PIPELINE = (
    "func.func(stablehlo-legalize-composite-to-call),inline,stablehlo-refine-arguments{{types={types}}},stablehlo-refine-shapes,func.func(chlo-legalize-to-stablehlo),"
    "func.func(stablehlo-canonicalize-dynamism),stablehlo-refine-shapes,func.func(stablehlo-check-shape-assertions),"
    "canonicalize,cse"
)
NAMES = {
    torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16", torch.int8: "i8", torch.int16: "i16",
    torch.int32: "i32", torch.int64: "i64", torch.uint8: "ui8", torch.bool: "i1",
    torch.complex64: "complex<f32>", torch.complex128: "complex<f64>", int: "i64", float: "f64", bool: "i1",
}  # fmt: skip


BOUNDS = re.compile(r", #stablehlo\.bounds<[^>]*>")


class Refused(PliantError):
    """XLA cannot run the module for these inputs, or an assertion of the program failed."""


class OtherSide(RuntimeError):
    """Data are not as the sides of this module need them: another module of the program may take the call."""


def refined(text: str, types: Sequence[str], numbers: dict[int, Any] | None = None) -> str:
    """The module for static argument types. `numbers`: values of arguments that sizes are made of, by position. Raises `Refused`."""

    def work(context: Any) -> str:
        module = ir.Module.parse(text)
        main = next(op for op in module.body.operations if op.attributes["sym_name"].value == "main")  # type: ignore[attr-defined]
        block = main.regions[0].blocks[0]
        for i, value in (numbers or {}).items():
            with ir.InsertionPoint.at_block_begin(block):
                a = block.arguments[i]
                a.replace_all_uses_with(constant(ir.RankedTensorType(a.type), value))
        try:
            passmanager.PassManager.parse(f"builtin.module({PIPELINE.format(types=','.join(types))})").run(module.operation)
        except ir.MLIRError as e:
            raise Refused(f"the module cannot be refined for {', '.join(types)}: {diagnosis(e)}") from e
        result = str(module)
        if "tensor<?" in result or "x?x" in result:
            raise Refused(f"after refinement for {', '.join(types)} sizes are left open: {first_open(result)}")
        return result

    return in_context(work)


def constant(t: Any, value: Any) -> Any:
    """A number as a constant of a scalar type."""
    element = t.element_type
    attr = ir.FloatAttr.get(element, value) if isinstance(element, ir.F64Type) else ir.IntegerAttr.get(element, int(value))
    return ir.Operation.create("stablehlo.constant", [t], [], {"value": ir.DenseElementsAttr.get_splat(t, attr)}).results[0]


def diagnosis(e: Any) -> str:
    return "; ".join(d.message for d in e.error_diagnostics) or str(e)


def first_open(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if "?" in line and "tensor<" in line and "func" not in line), "")


class Runner:
    """Calls of one module: `runner({name: tensor or number})` gives the outputs by name."""

    def __init__(self, programs: list[Program], made: Made, most: int = MOST) -> None:
        p = self.p = programs[0]
        self.sides = len(programs)
        self.made = made
        self.text = BOUNDS.sub("", made.text)  # refinement does not see through bounds, and sizes are static after it
        self.most = most
        known = {i.name: i for q in reversed(programs) for i in q.inputs}
        self.inputs = [known[n] for n in made.inputs]
        self.caller = Caller(p)
        self.compiled: OrderedDict[tuple, Any] = OrderedDict()
        self.state: dict[str, tuple[torch.Tensor, int, Any]] = {}
        self.client = xla_bridge.get_backend("cpu")
        self.device = self.client.local_devices()[0]
        if made.shaped_by_data:
            raise Refused(
                f"{p.name} makes tensors whose sizes only data tell ({', '.join(made.shaped_by_data)}): its module is valid, but XLA"
                " compiles for shapes that arguments tell"
            )

    def __call__(self, values: dict[str, Any]) -> dict[str, Any]:
        """`SignatureError` for inputs that do not fit, `Refused` where XLA cannot, RuntimeError where an assertion about data fails."""
        p = self.p
        check_asserts(p, self.caller.check(values), self.sides)
        given = [p.state[i.name] if i.kind != "user" else values[i.name] for i in self.inputs]
        executable = self.executable(given)
        with jax.enable_x64(True):
            arrays = [self.array(i, v) for i, v in zip(self.inputs, given)]
            out = executable.execute_sharded(arrays).disassemble_into_single_device_arrays()
        found = [tensor(o[0]) for o in out]
        for text, ok in zip(self.made.assertions, found[len(p.outputs) :]):
            if not bool(ok):
                raise (OtherSide if BRANCH in text or text.startswith(NO_SIDE) else RuntimeError)(text)
        return {o.name: v if isinstance(o.value, torch.Tensor) else v.item() for o, v in zip(p.outputs, found)}

    def executable(self, given: Sequence[Any]) -> Any:
        """The code for these shapes, compiled if it is not there."""
        types = [type_of(v) for v in given]
        numbers = {n: v for n, (i, v) in enumerate(zip(self.inputs, given)) if not i.is_tensor and i.value.name in self.made.shaped_by}
        key = (tuple(types), tuple(map(repr, numbers.items())))
        found = self.compiled.get(key)
        if found is None:
            found = self.compiled[key] = self.compile(refined(self.text, types, numbers))
            if len(self.compiled) > self.most:
                self.compiled.popitem(last=False)
        self.compiled.move_to_end(key)
        return found

    def compile(self, text: str) -> Any:
        options = compiler.get_compile_options(1, 1)
        options.env_option_overrides = [("xla_allow_excess_precision", False)]  # halves are rounded where the program rounds them

        def work(context: Any) -> Any:
            module = ir.Module.parse(text)
            return compiler.backend_compile_and_load(self.client, module, xla_client.DeviceList((self.device,)), options, [])

        try:
            return in_context(work)
        except (RuntimeError, ValueError) as e:
            raise Refused(f"XLA does not compile {self.p.name}: {e}") from e

    def array(self, i: Any, value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return jax.device_put(np.asarray(value, {int: np.int64, float: np.float64, bool: np.bool_}[i.value.kind]), self.device)
        if i.kind == "user":
            return to_array(value, self.device)
        known = self.state.get(i.name)
        if known is None or known[0] is not value or known[1] != value._version:
            known = self.state[i.name] = (value, value._version, to_array(value, self.device))
        return known[2]


def check_asserts(p: Program, env: dict[str, Any], sides: int) -> None:
    """What the program asserts of sizes, said in its own words before XLA meets sizes that do not fit. RuntimeError as in eager. What a
    branch asked chooses among the sides."""
    for r in p.asserts:
        if (sides == 1 or BRANCH not in r.why) and all(s.name in env for s in r.expr.symbols()) and not r.expr.evaluate(env):
            raise (OtherSide if BRANCH in r.why else r.raises)(r.why or f"{p.name} needs {r.expr} at {r.site}")


def type_of(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return f"tensor<{NAMES[type(value)]}>"
    return f"tensor<{''.join(f'{n}x' for n in value.shape)}{NAMES[value.dtype]}>"


def to_array(t: torch.Tensor, device: Any) -> Any:
    """A tensor as a jax array, over the same memory where its layout allows it."""
    t = t.detach().resolve_conj().resolve_neg().contiguous()
    if t.numel() == 0 or t.dim() == 0:
        return jax.device_put(numpy_of(t), device)
    return jax.dlpack.from_dlpack(t)


def numpy_of(t: torch.Tensor) -> Any:
    if t.dtype == torch.bfloat16:
        return t.view(torch.int16).numpy().view(jax.numpy.bfloat16)
    return t.numpy()


def tensor(array: Any) -> torch.Tensor:
    if array.size == 0 or array.ndim == 0:
        data = np.asarray(array)
        if data.dtype == jax.numpy.bfloat16:
            return torch.from_numpy(data.view(np.int16).copy()).view(torch.bfloat16)
        return torch.from_numpy(np.array(data))
    return torch.from_dlpack(array)
