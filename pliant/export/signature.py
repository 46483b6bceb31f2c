"""The signature of a program: what a call must give, checked before anything runs, and how results are put together.

A tensor is checked for class, dtype, device, dims and sizes; sizes tell the values of symbols, and relations between them are checked
next. What is no tensor must be what the program relied on (`CHECKS`). Each failure is one sentence with the name, what was promised,
what came, and the line of the program that needs it.
"""

from __future__ import annotations

import enum
import operator
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch

from pliant.errors import PliantError
from pliant.export import naming, trees
from pliant.export.program import MUTATION, USER, Check, Input, Output, Program
from pliant.export.trees import Tree
from pliant.guards.guard import Guard
from pliant.lower import liveness
from pliant.native import share_memory
from pliant.symbolic import maths

CONSTANTS = (type(None), bool, int, float, str)
IMMUTABLE = (*CONSTANTS, type, torch.dtype, torch.device)


class SignatureError(PliantError, ValueError):
    """A call of a program does not fit its signature. Nothing has run."""


# -- results ------------------------------------------------------------------------------------------------------------------
class Results:
    """Reads outputs off the result of the dry run."""

    def __init__(self, writer: Any, given: dict[int, Any]) -> None:
        self.writer = writer
        self.given = given
        self.names = naming.Names(None)
        self.outputs: list[Output] = []

    def read(self, value: Any) -> tuple[list[Output], Tree]:
        """The outputs of kind "user", and the tree of the result. Raises PliantError for an object that cannot be taken apart."""
        return self.outputs, trees.taken_apart(value, self.leaf)

    def leaf(self, path: tuple[Any, ...], value: Any) -> Tree | None:
        """A leaf, if `value` is one."""
        traced = self.given.get(id(value))
        if traced is not None:
            name = ".".join(map(str, path)) or "output"
            self.outputs.append(Output(self.names.unique(name), USER, traced))
            return Tree("output", len(self.outputs) - 1)
        source = self.writer.found.world.sources.get(id(value))
        if source is not None and naming.of_argument(source) and not isinstance(value, IMMUTABLE):
            return Tree("argument", self.writer.path(source))
        if isinstance(value, torch.Tensor):
            raise PliantError(
                f"the result of {naming.title(self.writer.f)} holds a tensor that the program does not compute: {'.'.join(map(str, path))}"
            )
        return None


# -- checks ---------------------------------------------------------------------------------------------------------------------
def type_name(t: type) -> str:
    return f"{t.__module__}.{t.__qualname__}"


def equal(value: Any, promised: Any) -> bool:
    """The same type and value; floats to the bit."""
    if type(value) is not type(promised):
        return False
    if isinstance(value, (tuple, list)):
        return len(value) == len(promised) and all(map(equal, value, promised))
    return value == promised or (value != value and promised != promised)


CHECKS: dict[str, tuple[Callable[[Any, Any], bool], str]] = {
    "type": (lambda v, t: type_name(type(v)) == t, "a {}"),
    "length": (lambda v, n: len(v) == n, "of length {}"),
    "keys": (lambda v, keys: [*v] == [*keys], "a dict with the keys {}"),
    "equal": (equal, "{!r}"),
    "named": (lambda v, name: name_of(v) == name, "{}"),
    "distinct": (lambda v, _: len({id(x) for x in v}) == len(v), "another object than {}"),
    "has": (lambda v, kf: (kf[0] in v) == kf[1], "with/without the key {}"),
}
"""What may be promised of an argument: the test, and the words. `distinct` has the paths of others, and is given the objects of all."""


def checks(guards: Iterable[Guard], path: Callable[[Any], tuple] | None = None) -> list[Check]:
    """The promises about arguments among the guards of a capture."""
    out: list[Check] = []
    for g in guards:
        if not naming.of_argument(g.source) or g.source.base is None or path is None:
            continue
        try:
            made = distinct(g, path) if g.kind == "NOT_ALIAS" else check_of(g)
            if made is not None:
                out.append(Check(path(g.source), *made))
        except PliantError:
            continue  # about classes and the inside of containers: their elements are checked themselves
    return out


def distinct(g: Guard, path: Callable[[Any], tuple]) -> tuple[str, Any] | None:
    """The arguments that are other objects. PyTorch's own layers ask for a shorter way to the same answer (is the query the key?)."""
    if g.site is not None and g.site.filename.startswith(naming.TORCH):
        return None
    others = [s for s in g.value if s.base is not None and naming.of_argument(s)]
    return ("distinct", tuple(map(path, others))) if others else None


def check_of(g: Guard) -> tuple[str, Any] | None:
    if g.kind == "TYPE_MATCH":
        return "type", type_name(g.value)
    if g.kind == "LENGTH":
        return "length", g.value
    if g.kind == "DICT_KEYS":
        return ("keys", list(g.value)) if all(isinstance(k, (str, int)) for k in g.value) else None
    if g.kind == "EQ_MATCH" and isinstance(g.value, (*CONSTANTS, tuple)):
        return "equal", g.value
    if g.kind == "ID_MATCH" and (g.value is None or isinstance(g.value, bool)):
        return "equal", g.value
    if g.kind in ("ID_MATCH", "EQ_MATCH") and (name := name_of(g.value)):
        return "named", name
    return None


def name_of(v: Any) -> str:
    """What a member of an enum, a class, a function, or a setting of PyTorch's is called; nothing for other objects."""
    if isinstance(v, enum.Enum):
        return f"{type_name(type(v))}.{v.name}"
    if isinstance(v, NAMED):
        return f"{v.__module__}.{v.__qualname__}"
    return repr(v) if isinstance(v, SETTINGS) else ""


NAMED = (type, types.FunctionType, types.MethodType, types.BuiltinFunctionType)
SETTINGS = (torch.dtype, torch.device, torch.layout, torch.memory_format)


# -- calls ------------------------------------------------------------------------------------------------------------------------
READ: dict[str, Callable[[Any, Any], Any]] = {
    "index": operator.getitem,
    "key": operator.getitem,
    "attr": getattr,
    "view": lambda v, _: torch.from_numpy(v),
}


def readable(t: torch.Tensor) -> bool:
    """Whether machine code finds the elements where the tensor says that they lie: not of one that stands for others.

    (What `torch.func` hands to a function, fakes, wrappers of tensors, tensors of a mesh, zeros that are not there.)
    """
    if type(t).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ or torch._C._functorch.is_functorch_wrapped_tensor(t):
        return False
    return not (torch._is_functional_tensor(t) or torch._is_zerotensor(t))


class Caller:
    """Checks the calls of one program: from arguments to slots."""

    readable = staticmethod(readable)

    def __init__(self, p: Program) -> None:
        self.p = p
        self.users = p.user_inputs
        self.known = {i.name: i for i in p.inputs}
        self.shown = shown_names(p)
        self.relations: list[tuple[Any, Any]] = []
        self.prepare()

    def prepare(self) -> None:
        """What each size, stride and offset says: a number to be checked, a symbol to be bound, or an expression to be checked later; and
        which inputs may not share memory, for the program writes one of them."""
        tensors = [i for i in self.p.inputs if i.is_tensor]
        self.pairs = [(i, o) for i in tensors if i.written for o in tensors if o is not i and USER in (i.kind, o.kind)]
        self.later: list[tuple[Any, Input, int]] = []
        bound: set[str] = set()
        self.binds: list[tuple[Input, list[tuple[str, int, str]]]] = []
        for i in self.users:
            rows: list[tuple[str, int, str]] = []
            if i.is_tensor:
                for d, size in enumerate(i.value.sizes):
                    e = liveness.number(size)
                    if e is not None and e.op == "sym" and e.name not in bound:
                        bound.add(e.name)
                        rows.append(("size", d, e.name))
                for d, stride in enumerate(i.value.strides):
                    e = liveness.number(stride)
                    if e is not None and e.op == "sym" and e.name not in bound:
                        bound.add(e.name)
                        rows.append(("stride", d, e.name))
                e = liveness.number(i.value.offset)
                if e is not None and e.op == "sym" and e.name not in bound:
                    bound.add(e.name)
                    rows.append(("offset", 0, e.name))
            self.binds.append((i, rows))
        known = bound | {i.value.name for i in self.users if not i.is_tensor}
        for r in (*self.p.relations, *self.p.asserts):
            if r.expr.const is None and all(s.name in known for s in r.expr.symbols()):
                self.relations.append((r, code_of(r.expr)))

    # -- from arguments to the flat form ------------------------------------------------------------------------------------------
    def bind(self, args: tuple, kwargs: dict) -> dict[str, Any]:
        """Arguments by parameter; what is left over goes to `*rest`."""
        names = self.p.parameters
        if len(args) > len(names) and not self.p.rest:
            raise SignatureError(f"{self.p.name} takes {len(names)} arguments by position, but {len(args)} came.")
        given = dict(zip(names, args))
        if len(args) > len(names) and self.p.rest:
            given[self.p.rest] = args[len(names) :]
        for k, v in kwargs.items():
            if k in given:
                raise SignatureError(f"{self.p.name} got the argument {k} twice.")
            if k not in names and k not in self.p.keywords:
                known = ", ".join([*names, *self.p.keywords])
                raise SignatureError(f"{self.p.name} has no argument {k}, or had none in the exported call. Its arguments are: {known}.")
            given[k] = v
        return self.p.defaults | given

    def flat(self, given: dict[str, Any]) -> dict[str, Any]:
        """Inputs by name, found in the arguments."""
        for c in self.p.checks:
            value = self.walk(c.path, given)
            test, words = CHECKS[c.kind]
            if c.kind == "distinct":
                if not test([value, *[self.walk(p, given) for p in c.value]], c.value):
                    others = words.format(" and ".join(map(naming.path_name, c.value)))
                    raise SignatureError(f"{naming.path_name(c.path)} must be {others}, as in the exported call: the program asks.")
                continue
            try:
                fits = test(value, c.value)
            except (TypeError, ValueError, AttributeError):
                fits = False
            if not fits:
                raise SignatureError(
                    f"{naming.path_name(c.path)} must be {words.format(c.value)}, as in the exported call, but it is {short(value)}."
                )
        return {i.name: self.walk(i.path, given) for i in self.users}

    def walk(self, path: tuple, given: dict[str, Any]) -> Any:
        first, *steps = path
        if first not in given:
            raise SignatureError(f"the argument {first} of {self.p.name} is missing.")
        value = given[first]
        for n, (op, arg) in enumerate(steps):
            try:
                value = READ[op](value, arg)
            except (KeyError, IndexError, AttributeError, TypeError) as e:
                raise SignatureError(
                    f"{naming.path_name((first, *steps[: n + 1]))} is missing: {naming.path_name((first, *steps[:n]))} is {short(value)}."
                ) from e
        return value

    # -- what must hold -------------------------------------------------------------------------------------------------------
    def check(self, values: dict[str, Any]) -> dict[str, Any]:
        """The values of symbols. SignatureError where an input does not fit."""
        env: dict[str, Any] = {}
        for i, rows in self.binds:
            if i.name not in values:
                raise SignatureError(f"the input {i.name} of {self.p.name} is missing: it is {self.promise(i)}.")
            value = values[i.name]
            if not i.is_tensor:
                env[i.value.name] = self.number(i, value)
                continue
            self.tensor(i, value)
            for what, d, name in rows:
                env[name] = value.shape[d] if what == "size" else value.stride()[d] if what == "stride" else value.storage_offset()
        extra = values.keys() - self.known.keys()
        if extra:
            raise SignatureError(
                f"{self.p.name} has no input {', '.join(sorted(extra))}: its inputs are {', '.join(i.name for i in self.users)}."
            )
        for i in self.users:
            if i.is_tensor:
                self.sizes(i, values[i.name], env)
        self.apart(values)
        for r, code in self.relations:
            try:
                fits = eval(code, {"math": maths}, env)  # our own text
            except (ArithmeticError, ValueError):
                fits = False
            if not fits:
                raise SignatureError(self.broken(r, env))
        return env

    def tensor(self, i: Input, value: Any) -> None:
        t = i.value
        if not isinstance(value, torch.Tensor):
            raise SignatureError(f"{i.name} must be {self.promise(i)}, but it is {short(value)}.")
        if (
            value.dtype is not t.dtype
            or value.device.type != t.device.type
            or value.dim() != len(t.sizes)
            or value.layout is not torch.strided
        ):
            raise SignatureError(f"{i.name} must be {self.promise(i)}, but a {describe(value)} came.")
        if not self.readable(value):
            raise SignatureError(f"{i.name} must be {self.promise(i)} in memory, but a {type(value).__name__} came that holds others.")

    def apart(self, values: dict[str, Any]) -> None:
        """No memory that the program writes is another input's, too: it was captured for inputs that are apart."""
        for i, o in self.pairs:
            a, b = (values[x.name] if x.kind == USER else self.p.state[x.name] for x in (i, o))
            if meet(a, b):
                raise SignatureError(f"{i.name} and {o.name} share memory, and the program writes {i.name}: give it a copy.")

    def number(self, i: Input, value: Any) -> Any:
        kind = i.value.kind
        if isinstance(value, torch.Tensor) and value.dim() == 0:
            value = value.item()
        if type(value) is not kind or (kind is int and not -(2**63) <= value < 2**63):
            raise SignatureError(f"{i.name} must be {self.promise(i)}, but it is {short(value)}.")
        return value

    def sizes(self, i: Input, value: torch.Tensor, env: dict[str, Any]) -> None:
        for d, size in enumerate(i.value.sizes):
            want = size if type(size) is int else liveness.number(size).evaluate(env)
            if value.shape[d] != want:
                shown = "" if type(size) is int else f" = {self.text(liveness.number(size))}"
                raise SignatureError(f"size {d} of {i.name} must be {want}{shown}, but it is {value.shape[d]}.")

    def broken(self, r: Any, env: dict[str, Any]) -> str:
        values = ", ".join(f"{self.shown.get(s.name, s.name)} = {env[s.name]}" for s in r.expr.symbols())
        where = f", because of {r.site}" if r.site else f" ({r.why})" if r.why not in ("", "declared", "decide") else ""
        return f"{self.p.name} needs {self.text(r.expr)}{where}, but {values}."

    # -- words ----------------------------------------------------------------------------------------------------------------
    def text(self, e: Any) -> str:
        return e.python(self.shown)

    def promise(self, i: Input) -> str:
        if not i.is_tensor:
            return f"a Python {i.value.kind.__name__}"
        sizes = ", ".join(str(s) if type(s) is int else self.text(liveness.number(s)) for s in i.value.sizes)
        on = "" if i.value.device.type == "cpu" else f" on {i.value.device.type}"
        return f"a tensor {str(i.value.dtype).removeprefix('torch.')}[{sizes}]{on}"


def meet(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether two tensors have an element in common; what is between their elements (columns of one matrix) does not count."""
    if not share_memory(a, b):
        return False
    size, at = a.element_size(), a.storage_offset()
    if b.element_size() != size or a.untyped_storage().data_ptr() != b.untyped_storage().data_ptr():
        return True
    first = min(at, b.storage_offset())
    n = max(t.storage_offset() + 1 + sum((k - 1) * s for k, s in zip(t.shape, t.stride(), strict=True)) for t in (a, b)) - first
    marks = torch.zeros(n, dtype=torch.bool)
    marks.as_strided(a.shape, a.stride(), at - first).fill_(True)
    return bool(marks.as_strided(b.shape, b.stride(), b.storage_offset() - first).any())


def code_of(e: Any) -> Any:
    return compile(e.python(), "<relation>", "eval")


def shown_names(p: Program) -> dict[str, str]:
    """How messages call symbols: by the dim that the user declared, else by the input that it is or whose size it is."""
    out = dict(p.dims)
    for i in p.inputs:
        if i.is_tensor:
            for d, size in enumerate(i.value.sizes):
                e = liveness.number(size)
                if e is not None and e.op == "sym":
                    out.setdefault(e.name, f"{i.name}.size({d})")
    return out


def describe(t: torch.Tensor) -> str:
    on = "" if t.device.type == "cpu" else f" on {t.device.type}"
    layout = "" if t.layout is torch.strided else f" ({t.layout})"
    return f"tensor {str(t.dtype).removeprefix('torch.')}[{', '.join(map(str, t.shape))}]{on}{layout}"


def short(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"a {describe(value)}"
    text = repr(value)
    return f"a {type(value).__name__}" if len(text) > 60 else f"{text} (a {type(value).__name__})"


__all__ = ["CHECKS", "MUTATION", "READ", "Caller", "Results", "SignatureError", "checks"]
