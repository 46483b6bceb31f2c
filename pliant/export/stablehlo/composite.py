"""`stablehlo.composite`: an operator under its own name, with its decomposition as a function beside `main`.

The function takes the operator's tensors and, as scalars, the sizes that its arithmetic asks for. Whoever knows the name may take the
composite whole; for others it is a call (`stablehlo-legalize-composite-to-call`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jaxlib.mlir import ir
from jaxlib.mlir.dialects import func

from pliant.export.stablehlo.builder import Value
from pliant.export.stablehlo.sizes import scalar_type


def composite(
    b: Any, fresh: Callable[[], Any], fn: Callable[..., Any], target: Any, args: list[Any], kwargs: dict[str, Any]
) -> list[Value | None]:
    """The results of `fn(child, *args, **kwargs)`, made in a function of its own and called from `b`. `fresh`: makes a child, a builder."""
    operands: list[Value] = []

    def collect(a: Any) -> None:
        if type(a) is Value and not any(a is o for o in operands):
            operands.append(a)
        for x in a if isinstance(a, list) else ():
            collect(x)

    collect([*args, *kwargs.values()])
    name = f"{target._schema.name.removeprefix('aten::').replace('::', '_')}_{next(b.counts)}"
    body = Body(b, name, operands, lambda child, moved: fn(child, *map(moved, args), **{k: moved(v) for k, v in kwargs.items()}))
    asked = body.make(fresh(), {})[2]  # once to hear which sizes it asks for: XLA wants them to be the first arguments
    body.made.operation.erase()
    given = {symbol: b.sources[symbol]() for symbol in asked}
    child = fresh()
    results, kept, _ = body.make(child, {symbol: bits for symbol, (_, bits) in given.items()})
    b.shaped_by_data |= child.shaped_by_data
    attributes = dict(
        name=ir.StringAttr.get(target._schema.name.replace("::", ".")), decomposition=ir.FlatSymbolRefAttr.get(name),
        composite_attributes=ir.DictAttr.get(settings(target, args, kwargs)),
        version=ir.IntegerAttr.get(ir.IntegerType.get_signless(32), 1),
    )  # fmt: skip
    call = ir.Operation.create("stablehlo.composite", results, [*[v for v, _ in given.values()], *[v.ir for v in operands]], attributes)
    made = iter(call.results)
    return [None if v is None else Value(next(made), v.sizes, v.dtype) for v in kept]


class Body:
    """The function of one composite."""

    def __init__(self, b: Any, name: str, operands: list[Value], work: Callable[..., Any]) -> None:
        self.b = b
        self.name = name
        self.operands = operands
        self.work = work
        self.made: Any = None

    def make(self, child: Any, sizes: dict[str, int]) -> tuple[list[Any], list[Value | None], list[str]]:
        """The types of its results, these, and the symbols beyond `sizes`, its first arguments, that it asked for."""
        b = self.b
        types = [*map(scalar_type, sizes.values()), *[v.ir.type for v in self.operands]]
        with ir.InsertionPoint(b.body):
            self.made = func.FuncOp(self.name, (types, []), visibility="private")  # type: ignore[call-arg]
        block = self.made.add_entry_block()
        n = len(sizes)
        inner = [Value(a, v.sizes, v.dtype) for a, v in zip(list(block.arguments)[n:], self.operands)]
        asked: list[str] = []
        known = {s: (block.arguments[i], bits) for i, (s, bits) in enumerate(sizes.items())}
        for symbol, source in b.sources.items():
            child.bind(symbol, Asked(symbol, block, source, known, asked), symbol in b.of_data)
        child.outs, child.used, child.name, child.operand = b.outs, b.used, b.name, b.operand

        def moved(a: Any) -> Any:
            if type(a) is Value:
                return next(i for i, o in zip(inner, self.operands) if o is a)
            return [moved(x) for x in a] if isinstance(a, list) else a

        with ir.InsertionPoint(block):
            found = self.work(child, moved)
            found = found if isinstance(found, list) else [found]
            kept = [None if v is None else child.shaped(v, o.sizes) for v, o in zip(found, b.outs)]
            func.ReturnOp([v.ir for v in kept if v is not None])
        results = [v.ir.type for v in kept if v is not None]
        self.made.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get([a.type for a in block.arguments], results))
        return results, kept, asked


class Asked:
    """The value of a symbol inside: an argument, a further one where nobody knew that it would be asked for."""

    def __init__(self, symbol: str, block: Any, source: Callable[[], tuple[Any, int]], known: dict[str, Any], asked: list[str]) -> None:
        self.symbol = symbol
        self.block = block
        self.source = source
        self.known = known
        self.asked = asked

    def __call__(self) -> tuple[Any, int]:
        if self.symbol not in self.known:
            self.asked.append(self.symbol)
            self.known[self.symbol] = self.block.add_argument(scalar_type(32), ir.Location.unknown()), 32
        return self.known[self.symbol]


def settings(target: Any, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments that are constants, by the names of the schema."""
    names = [a.name for a in target._schema.arguments]
    given = dict(zip(names, args)) | kwargs
    out: dict[str, Any] = {}
    for name, v in given.items():
        if isinstance(v, bool):
            out[name] = ir.BoolAttr.get(v)
        elif isinstance(v, int):
            out[name] = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), v)
        elif isinstance(v, float):
            out[name] = ir.FloatAttr.get(ir.F64Type.get(), v)
        elif isinstance(v, str):
            out[name] = ir.StringAttr.get(v)
        elif isinstance(v, list) and v and all(type(n) is int for n in v):
            out[name] = ir.DenseI64ArrayAttr.get(v)
    return out
