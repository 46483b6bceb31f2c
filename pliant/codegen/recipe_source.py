"""A recipe as a function in Python, which is captured like a program's: the forward part of a region and its gradients, as one graph.

Where gradients are themselves differentiated (`create_graph=True`), or some results alone go backward and no program is there for that,
the forward part of a region runs again under PyTorch's autograd (`double_backward.py`), an operation at a time. That is right
and slow. Who does it again and again gets a graph for it: the recipe is printed as straight-line code that ends in
`torch.autograd.grad`, and what captures programs captures that: its sizes are symbols, its guards are checked, and it is
differentiable in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import TYPE_CHECKING, Any

from pliant.codegen.heard import of_gradients
from pliant.graph.originals import ORIGINAL, gradients, is_grad_enabled, torch
from pliant.symbolic import maths

if TYPE_CHECKING:
    from pliant.codegen.double_backward import Recipe

PATIENCE = 2
"""So often a recipe runs an operation at a time first: it may have been for once."""
capturing: list[Callable[[FunctionType, str], Callable]] = []
"""What makes a compiled function of one, for a backend. The room above, which captures, puts its own in."""
PLAIN = frozenset({int, float, bool, str, type(None)})


class Unprinted(Exception):
    """A recipe with something that has no text."""


class Printer:
    """The text of one recipe, and the objects that it names."""

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.globals: dict[str, Any] = {"math": maths, "grad": torch.autograd.grad, "no_grad": torch.no_grad}
        self.globals |= {n: getattr(ORIGINAL, n) for n in ("detach", "clone", "size", "stride", "storage_offset")}
        self.lines: list[str] = []
        self.used: set[str] = set()

    def named(self, value: Any) -> str:
        name = f"const{len(self.globals)}"
        self.globals[name] = value
        return name

    def told(self, value: Any) -> str:
        kind = type(value).__name__
        if kind == "Value":
            return f"v{value.vid}"
        if kind == "Number":
            self.used.update(value.names)
            return f"({value.text})"
        if type(value) is list:
            return f"[{', '.join(map(self.told, value))}]"
        if type(value) is float and not maths.isfinite(value):
            return self.named(value)
        return repr(value) if type(value) in PLAIN else self.named(value)

    def step(self, s: Any) -> None:
        call = f"{self.named(s.target)}({', '.join([*map(self.told, s.args), *(f'{k}={self.told(v)}' for k, v in s.kwargs.items())])})"
        made = [f"v{vid}" if vid is not None else "_" for vid in s.outs]
        if not s.single and any([r.type.kind() == "ListType" for r in s.target._schema.returns]) and len(s.target._schema.returns) > 1:
            raise Unprinted("lists among the results")
        if s.single and not s.target._schema.returns:
            made = []
        text = f"{made[0]} = {call}" if s.single and made else f"{', '.join(made)}, = {call}" if made else call
        inside = [text] + [f"{name} = {made[out]}" if dim is None else f"{name} = size({made[out]}, {dim})" for name, out, dim in s.binds]
        if any([m == "_" for m in made for _, out, _ in s.binds if m is made[out]]):
            raise Unprinted("a number that no tensor tells")
        self.lines += inside if s.grad else ["with no_grad():", *("    " + line for line in inside)]

    def function(self, differentiable: bool) -> FunctionType:
        """`again(*slots, *saved, *given)`: the gradients of what is wanted."""
        r = self.recipe
        for s in r.steps:
            self.step(s)
        params, opening, seen, known = [], [], set(), set()
        for i, slot in enumerate(r.slots):
            if isinstance(slot, str):
                params.append(slot)
                known.add(slot)
                continue
            params.append(f"slot{i}")
            if slot.vid in seen:
                continue
            seen.add(slot.vid)
            dims = range(len(slot.read) // 2)
            x = f"slot{i}"
            reads = [*(f"size({x}, {d})" for d in dims), *(f"stride({x}, {d})" for d in dims), f"storage_offset({x})"]
            for name, read in zip(slot.read, reads, strict=True):
                if name in self.used and name not in known:
                    known.add(name)
                    opening.append(f"{name} = {read}")
            kept = f"clone(detach(slot{i}))" if slot.written else f"detach(slot{i})"
            opening.append(f"v{slot.vid} = {f'alias(slot{i})' if slot.wanted else kept}")
        params += [f"v{vid}" if vid is not None else f"unused{i}" for i, vid in enumerate(r.taken)]
        params += [f"given{i}" for i in range(len(r.heads))]
        opening.append(f"targets = [{', '.join(f'v{vid}' for vid in r.wanted)}]")
        closing = ["heads, tangents = [], []"]
        for i, (vid, on) in enumerate(r.heads):
            if on:
                closing.append(f"if given{i} is not None and v{vid}.requires_grad:")
                closing += [f"    heads.append(v{vid})", f"    tangents.append(given{i})"]
        closing += [
            "if not heads:", f"    return (None,) * {len(r.wanted)}",
            f"return grad(heads, targets, tangents, create_graph={differentiable}, allow_unused=True)",
        ]  # fmt: skip
        self.globals["alias"] = torch.ops.aten.alias.default
        body = "\n".join("    " + line for line in [*opening, *self.lines, *closing])
        exec(compile(f"def again({', '.join(params)}):\n{body}\n", "<gradients of a region>", "exec"), self.globals)
        made: FunctionType = self.globals["again"]
        return made


@of_gradients
class Watched(torch.autograd.Function):
    """A gradient as it is, which notices if its own gradients are to be differentiated. Each has a node of its own: what one of them
    depends on is not what others do."""

    @staticmethod
    def forward(ctx: Any, repeated: Repeated, found: Any) -> Any:
        ctx.repeated = repeated
        ctx.set_materialize_grads(False)
        return ORIGINAL.clone(found)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> tuple:
        ctx.repeated.deep = ctx.repeated.deep or is_grad_enabled()
        return None, grad


class Repeated:
    """How gradients of a recipe come, differentiable or not: an operation at a time, later from a graph. `deep`: they are differentiated
    more than once. Then they stay as they are: each further graph would compute once more what those below it have."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.times = 0
        self.deep = False
        self.compiled: dict[bool, Callable | None] = {}
        self.read: dict[tuple[bool, ...], set[int]] = {}  # which results of the region the gradients depend on, by what has gradients

    def gradients(
        self, recipe: Recipe, slots: Sequence[Any], saved: Sequence[Any], given: Sequence[Any], differentiable: bool = True
    ) -> list[Any]:
        """As `Recipe.gradients`."""
        passing = self.results_read(recipe, slots, saved, given)
        if self.deep or passing or not capturing or odd_state() or recipe.turned(slots):
            return recipe.gradients(slots, saved, given, recipe.passage(saved, given, passing))
        self.times += 1
        if self.times <= PATIENCE:
            return self.watched(recipe.gradients(slots, saved, given))
        if differentiable not in self.compiled:
            try:
                self.compiled[differentiable] = capturing[0](Printer(recipe).function(differentiable), self.backend)
            except Unprinted:
                self.compiled[differentiable] = None
        again = self.compiled[differentiable]
        if again is None:
            return recipe.gradients(slots, saved, given)
        given = [*given[: len(recipe.heads)], *(None for _ in range(len(recipe.heads) - len(given)))]
        with gradients(True):
            return list(again(*slots, *saved, *given))

    def results_read(self, recipe: Recipe, slots: Sequence[Any], saved: Sequence[Any], given: Sequence[Any]) -> set[int]:
        """The results that the node has saved and these gradients of inputs depend on. It is tried once."""
        passage = recipe.passage(saved, given, None)
        if passage is None:
            return set()
        key = (*(g is not None for g in given), *(isinstance(x, torch.Tensor) and x.requires_grad for x in slots))
        if key not in self.read:
            recipe.gradients(slots, saved, given, passage)
            self.read[key] = passage.used
        return self.read[key]

    def watched(self, found: list[Any]) -> list[Any]:
        made = {id(g): Watched.apply(self, g) for g in found if g is not None and g.requires_grad}  # type: ignore[no-untyped-call]
        return [made.get(id(g), g) for g in found]


def odd_state() -> bool:
    """Whether something is on that the operations of a graph would meet a second time, or that wraps tensors."""
    c = torch._C
    return bool(c._is_any_autocast_enabled() or c._functorch.maybe_current_level() is not None or c._len_torch_dispatch_stack())
