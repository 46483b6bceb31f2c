"""A program as a function of jax arrays.

The function calls the program's StableHLO module, as a `jax.export.Exported` whose shapes are symbolic: jax refines it for the sizes of
each use, under `jax.jit`, and keeps it open under `jax.export` with symbolic dims. So there is one set of lowerings, and what jax runs is
the module that was verified and compared with eager, dtypes and rounding included; operators evaluated one by one with `jax.numpy` would
be a second set, with jax's promotion instead of PyTorch's. What that costs: no `jax.grad` through it (export the form "training"), no
`jax.vmap`, and jax's own assumption that a symbolic size is at least 1.

jax has no 64-bit types unless `jax_enable_x64` is set. Without it the function takes and gives int32 and float32 where the program says
int64 and float64; inside nothing is narrowed.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import jax
import jax.export
import jaxlib._jax as _jax
import numpy as np
import torch
from jax._src import core
from jaxlib.mlir import ir, passmanager
from jaxlib.mlir.dialects import func
from jaxlib.mlir.dialects import stablehlo as hlo

from pliant.errors import PliantError
from pliant.export.program import Program
from pliant.export.signature import Caller, SignatureError
from pliant.export.stablehlo import module, run
from pliant.graph.traced import TracedTensor
from pliant.lower import liveness
from pliant.symbolic.expr import Expr

DTYPES: dict[Any, Any] = {
    torch.float32: np.float32, torch.float64: np.float64, torch.float16: np.float16, torch.bfloat16: jax.numpy.bfloat16,
    torch.int8: np.int8, torch.int16: np.int16, torch.int32: np.int32, torch.int64: np.int64, torch.uint8: np.uint8, torch.bool: np.bool_,
    torch.complex64: np.complex64, torch.complex128: np.complex128,
    int: np.int64, float: np.float64, bool: np.bool_,
}  # fmt: skip
NARROW = {np.int64: np.int32, np.float64: np.float32, np.complex128: np.complex64}
LEGALISE = "builtin.module(func.func(chlo-legalize-to-stablehlo,shape-legalize-to-stablehlo),canonicalize)"


class JaxFunction:
    """Calls of a program from jax: `f(x, y)` with its inputs in order, or `f({"x": x, "y": y})`; outputs by name.

    `state`: its parameters, buffers and constants as jax arrays, by name; `apply(state, inputs)` takes others. `exported`: the
    `jax.export.Exported` behind it, with state first and then the inputs, for all sizes (None where jax has no words for one of them).
    Where an assertion of the program about data fails, a call raises RuntimeError; under `jax.jit` a callback of the compiled code does.
    """

    def __init__(self, groups: list[list[Program]], numbers: Mapping[str, Any], wide: bool, checked: bool) -> None:
        programs, *rest = groups
        p = programs[0]
        self.sides = len(programs)
        made = module.build(programs)
        self.others = [JaxFunction([group], numbers, wide, checked) for group in rest]  # for other sides of branches on sizes
        fixed = set(numbers)
        missing = [i.name for i in p.inputs if not i.is_tensor and i.value.name in made.shaped_by and i.name not in fixed]
        if missing:
            raise PliantError(
                f"sizes of {p.name} are made of {', '.join(missing)}: jax compiles for shapes, so say which:"
                f" to_jax(numbers={{{missing[0]!r}: ...}})"
            )
        if made.shaped_by_data:
            raise PliantError(f"{p.name} makes tensors whose sizes only data tell ({', '.join(made.shaped_by_data)}): jax cannot run it")
        self.program = p
        if set(numbers) - {i.name for i in p.inputs if not i.is_tensor}:
            raise PliantError(f"numbers= names what is no number input of {p.name}: {', '.join(sorted(numbers))}")
        self.checked = checked
        self.assertions = made.assertions
        self.given = module.inputs_of(programs)
        self.inputs = [i for i in self.given if i.name not in fixed]
        self.users = [i.name for i in self.inputs if i.kind == "user"]
        self.wide = wide
        device = jax.devices()[0]
        with jax.enable_x64(wide):
            self.state = {i.name: jax.device_put(run.to_array(p.state[i.name], device), device) for i in self.inputs if i.kind != "user"}
            if not wide:
                self.state = {k: v.astype(NARROW.get(v.dtype.type, v.dtype)) for k, v in self.state.items()}
        self.numbers = dict(numbers)
        self.text = made.text
        self.caller = Caller(p)
        self.static: OrderedDict[tuple, Any] = OrderedDict()
        self.closed = ""  # why sizes cannot be left open
        self.exported: Any = None
        try:
            self.exported = exported(self, dimensions(p), artifact(self, made.text))
        except NoWords as e:
            self.closed = str(e)

    def __call__(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        given = dict(args[0]) if len(args) == 1 and isinstance(args[0], Mapping) else dict(zip(self.users, args))
        return self.apply(self.state, given | kwargs)

    def apply(self, state: Mapping[str, Any], inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The outputs by name. Pure: state comes in, and new values of what the program writes go out."""
        wrong = sorted(set(inputs) - {i.name for i in self.inputs})
        missing = [n for n in self.users if n not in inputs]
        if wrong or missing:
            what = f"has no input {', '.join(wrong)}" if wrong else f"needs {', '.join(missing)}"
            raise PliantError(f"{self.program.name} {what}: its inputs are {', '.join(self.users)}")
        given = [jax.numpy.asarray(inputs[i.name] if i.name in inputs else state[i.name], dtype=self.dtype(i)) for i in self.inputs]
        try:
            chosen = self.chosen([x.shape for x in given])
        except SignatureError:
            for other in self.others:
                with contextlib.suppress(SignatureError):
                    return other.apply(state, inputs)
            raise
        out = chosen.call(*given)
        n = len(self.program.outputs)
        for text, ok in zip(self.assertions, out[n:]):
            if not self.checked:
                continue
            if isinstance(ok, jax.core.Tracer):
                jax.debug.callback(Complaint(text), ok)
            else:
                Complaint(text)(ok)
        return {o.name: v for o, v in zip(self.program.outputs, out[:n])}

    def dtype(self, i: Any) -> Any:
        return dtype_of(i.value, self.wide)

    def chosen(self, shapes: list[tuple]) -> Any:
        """What answers for these shapes: the one for all sizes; where jax has no words for a size, or one is 0, one for these alone."""
        concrete = all(type(n) is int for shape in shapes for n in shape)
        env = self.sizes(shapes) if concrete else {}
        if not concrete or (self.exported is not None and not any(n == 0 for shape in shapes for n in shape)):
            if self.exported is None:
                raise PliantError(f"{self.program.name} cannot be traced by jax with open sizes: {self.closed}")
            return self.exported
        key = tuple(shapes)
        found = self.static.get(key)
        if found is None:
            types = [self.argument_type(i, env) for i in self.given]
            fixed = {n: self.numbers[i.name] for n, i in enumerate(self.given) if i.name in self.numbers}
            text = run.refined(self.text, types, fixed)
            found = self.static[key] = exported(self, env, artifact(self, text))
            if len(self.static) > run.MOST:
                self.static.popitem(last=False)
        self.static.move_to_end(key)
        return found

    def sizes(self, shapes: list[tuple]) -> dict[str, int]:
        """The values of symbols in a call with these shapes. PliantError where they contradict the signature."""
        env = {self.program.input(n).value.name: v for n, v in self.numbers.items()}
        exact = [(i.name, d, e, n) for i, shape in zip(self.inputs, shapes) if i.is_tensor
                 for d, (e, n) in enumerate(zip(map(liveness.number, i.value.sizes), shape)) if e is not None]  # fmt: skip
        env |= {e.name: n for _, _, e, n in reversed(exact) if e.op == "sym"}
        for name, d, e, n in exact:
            if e.evaluate(env) != n:
                raise PliantError(f"size {d} of {name} must be {e}, but it is {n}")
        for r, _ in self.caller.relations:
            if all(s.name in env for s in r.expr.symbols()) and not r.expr.evaluate(env):
                raise SignatureError(self.caller.broken(r, env))
        run.check_asserts(self.program, env, self.sides)
        return env

    def argument_type(self, i: Any, env: dict[str, int]) -> str:
        if not i.is_tensor:
            return f"tensor<{run.NAMES[i.value.kind]}>"
        return f"tensor<{''.join(f'{n}x' for n in shape_of(self.program, i.value, env))}{run.NAMES[i.value.dtype]}>"


class NoWords(PliantError):
    """A size that jax's symbolic dims cannot say."""


class Complaint:
    """Raises where an assertion is false."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __call__(self, ok: Any) -> None:
        if not bool(ok):
            raise RuntimeError(self.text)


def dtype_of(value: Any, wide: bool) -> Any:
    if type(value) is TracedTensor:
        found = DTYPES[value.dtype]
    else:
        e = liveness.number(value)
        found = DTYPES[e.kind if e is not None else type(value)]
    return found if wide else NARROW.get(found, found)


def exported(f: JaxFunction, dims: dict[str, Any], artifact_: bytes) -> Any:
    """The module as jax knows exported functions. `dims`: jax's variables, or numbers, for the symbols."""
    p, wide = f.program, f.wide
    with jax.enable_x64(wide):
        in_avals = tuple(core.ShapedArray(shape_of(p, i.value, dims), np.dtype(f.dtype(i))) for i in f.inputs)
        outs = [core.ShapedArray(shape_of(p, o.value, dims), np.dtype(dtype_of(o.value, wide))) for o in p.outputs]
        out_avals = (*outs, *[core.ShapedArray((), np.dtype(np.bool_)) for _ in f.assertions])
    none_in, none_out = (None,) * len(in_avals), (None,) * len(out_avals)
    return jax.export.Exported(
        fun_name=p.name, in_tree=jax.tree_util.tree_structure((in_avals, {})), in_avals=in_avals,
        out_tree=jax.tree_util.tree_structure(list(out_avals)), out_avals=out_avals, _has_named_shardings=True,
        _in_named_shardings=none_in, _out_named_shardings=none_out, in_shardings_hlo=none_in, out_shardings_hlo=none_out, nr_devices=1,
        platforms=platforms(), ordered_effects=(), unordered_effects=(), disabled_safety_checks=(), mlir_module_serialized=artifact_,
        calling_convention_version=jax.export.maximum_supported_calling_convention_version,
        module_kept_var_idx=tuple(range(len(in_avals))), uses_global_constants=True, _get_vjp=None,
    )  # fmt: skip


def platforms() -> tuple[str, ...]:
    """The one that this process computes on: a module for several would take the platform as an argument."""
    return (jax.default_backend().replace("gpu", "cuda"),)


# -- shapes ------------------------------------------------------------------------------------------------------------------------
def dimensions(p: Program) -> dict[str, Any]:
    """jax's dimension variable for each symbol that a size of an input tells."""
    sizes = [liveness.number(n) for i in p.inputs if i.is_tensor for n in i.value.sizes]
    names = sorted({s.name for e in sizes if e is not None for s in e.symbols()})
    scope = jax.export.SymbolicScope()
    return dict(zip(names, jax.export.symbolic_shape(", ".join(names), scope=scope))) if names else {}


def shape_of(p: Program, value: Any, dims: dict[str, Any]) -> tuple[Any, ...]:
    if type(value) is not TracedTensor:
        return ()
    return tuple(dimension(p, n, dims) for n in value.sizes)


def dimension(p: Program, n: Any, dims: dict[str, Any]) -> Any:
    """A size in jax's own expressions."""
    e = liveness.number(n)
    if e is None:
        return n
    e = p.scope.simplify(e)
    if e.const is not None:
        return e.const
    if all(type(dims.get(s.name)) in (int, bool, float) for s in e.symbols()):
        return e.evaluate(dims)
    return of_parts(e, dims)


def of_parts(e: Expr, dims: dict[str, Any]) -> Any:
    if e.const is not None:
        return e.const
    if e.op == "sym":
        if e.name not in dims:
            raise NoWords(f"a size depends on {e.name}, which no size of an input tells: jax has no words for it")
        return dims[e.name]
    if e.op == "sum":
        total: Any = 0
        for mono, c in e.terms:
            term: Any = c
            for atom in mono:
                term = term * of_parts(atom, dims)
            total = total + term
        return total
    if e.op == "subtotal":
        return of_parts(e.args[0], dims)
    fn = {"floordiv": lambda a, b: a // b, "mod": lambda a, b: a % b, "min": core.min_dim, "max": core.max_dim}.get(e.op)
    if fn is None:
        raise NoWords(f"the size {e} has no counterpart among jax's symbolic dims")
    first, *rest = [of_parts(a, dims) for a in e.args]
    for x in rest:
        first = fn(first, x)
    return first


# -- the module ------------------------------------------------------------------------------------------------------------------
def artifact(f: JaxFunction, text: str) -> bytes:
    """The module, its name marks removed, with a `main` that takes what jax hands over."""

    numbers, wide = f.numbers, f.wide

    def work(context: Any) -> bytes:
        m = ir.Module.parse(text)
        m.operation.attributes["jax.uses_shape_polymorphism"] = ir.BoolAttr.get(True)
        inner = next(op for op in m.body.operations if op.attributes["sym_name"].value == "main")  # type: ignore[attr-defined]
        for name in ("arg_attrs", "res_attrs"):
            del inner.attributes[name]
        inner.attributes["sym_name"] = ir.StringAttr.get("program")
        inner.attributes["sym_visibility"] = ir.StringAttr.get("private")
        types = ir.FunctionType(ir.TypeAttr(inner.attributes["function_type"]).value)
        kept = [t if wide else narrowed(t) for i, t in zip(f.given, types.inputs) if i.name not in numbers]
        with ir.InsertionPoint(m.body):
            main = func.FuncOp("main", (kept, [t if wide else narrowed(t) for t in types.results]), visibility="public")  # type: ignore[call-arg]
            with ir.InsertionPoint(main.add_entry_block()):  # type: ignore[attr-defined]
                rest = iter(main.arguments)  # type: ignore[attr-defined]
                given = [
                    constant(t, numbers[i.name]) if i.name in numbers else convert(next(rest), t) for i, t in zip(f.given, types.inputs)
                ]
                made_ = func.CallOp(list(types.results), "program", given)
                func.ReturnOp([convert(r, t if wide else narrowed(t)) for r, t in zip(made_.results, types.results)])
        passmanager.PassManager.parse(LEGALISE).run(m.operation)
        m.operation.verify()
        target = hlo.get_version_from_compatibility_requirement(hlo.StablehloCompatibilityRequirement.WEEK_4)
        return _jax.mlir.serialize_portable_artifact(m, target, False)

    return module.in_context(work)


def narrowed(t: Any) -> Any:
    t = ir.RankedTensorType(t)
    element = t.element_type
    if isinstance(element, ir.F64Type):
        element = ir.F32Type.get()
    elif isinstance(element, ir.ComplexType):
        element = ir.ComplexType.get(ir.F32Type.get())
    elif isinstance(element, ir.IntegerType) and element.width == 64:
        element = ir.IntegerType.get_signless(32)
    return ir.RankedTensorType.get(t.shape, element, t.encoding)


def convert(value: Any, t: Any) -> Any:
    return value if value.type == t else ir.Operation.create("stablehlo.convert", [t], [value]).results[0]


def constant(t: Any, value: Any) -> Any:
    return run.constant(ir.RankedTensorType(t), value)
