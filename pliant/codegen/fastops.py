"""The cheapest Python call that runs exactly one given ATen overload.

`torch.ops.aten.X.overload(...)` matches a schema and boxes its arguments: about 1 µs more than the generated
bindings behind `torch.X`, `torch._C._nn.X` and `Tensor.X`, which are the same for a launched graph except that they
choose the overload from the arguments. So a binding is used only after a *probe* has shown that, for arguments of
these very types, it dispatches first of all to the wanted overload with the wanted arguments. Probes run no kernel
(a dispatch mode records the call and aborts it), cost some 20 µs, and are remembered per overload and argument types.

For the commonest calls the spelling is known beforehand (`known_bindings.py`). What is tried otherwise, in this order: a row of
`FORMS` (operators and methods that need their own spelling), then the overload's base name in each of `NAMESPACES`,
then `torch.ops` itself, which is always right.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes

from pliant.codegen import known_bindings
from pliant.graph.operators import Column, overload
from pliant.graph.originals import ORIGINAL, is_own, torch
from pliant.graph.traced import TracedTensor

NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("", torch._C._VariableFunctions),
    ("nn_", torch._C._nn),
    ("T_", torch._C.TensorBase),
    ("linalg_", torch._C._linalg),
    ("special_", torch._C._special),
    ("fft_", torch._C._fft),
)
"""Where generated bindings live: (prefix of the global's name in generated code, namespace object)."""


Renderer = Callable[[str, list[str], list[str], list, dict], str | None]
"""(name, texts of positionals, texts of keywords `k=v`, values, keyword values) -> expression, or None: does not apply."""


def _method(name: str, args: list[str], kwargs: list[str], values: list, keywords: dict) -> str:
    """`x.name(a, b)`."""
    return f"{args[0]}.{name}({', '.join(args[1:] + kwargs)})"


def _sizes(name: str, args: list[str], kwargs: list[str], values: list, keywords: dict) -> str | None:
    """`x.view(a, b)`: the list argument spelled as separate integers, which saves building a tuple (0.3 µs)."""
    if len(args) != 2 or kwargs or not values[1]:
        return None
    return f"{args[0]}.{name}({args[1][1:-1].rstrip(',')})"


def _infix(symbol: str, args: list[str], kwargs: list[str], values: list, keywords: dict) -> str | None:
    """`a + b` of two tensors or a tensor and a number."""
    return f"{args[0]} {symbol} {args[1]}" if len(args) == 2 and not kwargs else None


def _slice(name: str, args: list[str], kwargs: list[str], values: list, keywords: dict) -> str | None:
    """`x[:, a:b]`: indexing reaches `aten.slice` with the same operands, and knows its short cuts."""
    texts = dict(zip(("self", "dim", "start", "end", "step"), args, strict=False))
    dim = values[1] if len(values) > 1 else 0
    if kwargs or type(dim) is not int or not 0 <= dim <= 4:
        return None
    default = {"start": ("0",), "end": (str(_INT64_MAX),)}
    bounds = ["" if texts.get(k) in (None, "None", *default[k]) else texts[k] for k in default]
    if "step" in texts:
        bounds.append(texts["step"])
    return f"{args[0]}[{':, ' * dim}{':'.join(bounds)}]"


def _index(name: str, args: list[str], kwargs: list[str], values: list, keywords: dict) -> str | None:
    """`x[:, i]`. A 0-dim index would be read as an integer, which is another operator."""
    if any(v is not None and (ORIGINAL.dim(v) == 0 or v.dtype == torch.uint8) for v in values[1]):
        return None
    items = args[1][1:-1].rstrip(",").split(", ")
    return f"{args[0]}[{', '.join(':' if i == 'None' else i for i in items)}{',' if len(items) == 1 else ''}]"


def _to(name: str, args: list[str], kwargs: list[str], values: list, keywords: dict) -> str | None:
    """`x.to(dtype, False, True)`: a copy in another dtype, perhaps on a named device, and nothing else."""
    texts = {k: text[len(k) + 1 :] for k, text in zip(keywords, kwargs, strict=True)}
    if keywords.keys() == {"dtype"}:
        return f"{args[0]}.to({texts['dtype']}, False, True)"
    if keywords.keys() == {"dtype", "device"}:
        return f"{args[0]}.to({texts['device']}, {texts['dtype']}, False, True)"
    return None


_INT64_MAX = 2**63 - 1
SPELT: dict[str, tuple[str, Renderer]] = {
    "view": ("view", _sizes),
    "permute": ("permute", _sizes),
    "expand": ("expand", _sizes),
    "repeat": ("repeat", _sizes),
    "t": ("t", _method),
    "transpose.int": ("transpose", _method),
    "unsqueeze": ("unsqueeze", _method),
    "squeeze.dim": ("squeeze", _method),
    "add.Tensor": ("+", _infix),
    "sub.Tensor": ("-", _infix),
    "mul.Tensor": ("*", _infix),
    "div.Tensor": ("/", _infix),
    "slice.Tensor": ("slice", _slice),
    "index.Tensor": ("index", _index),
    "_to_copy": ("to", _to),
    "_local_scalar_dense": ("item", _method),
}
FORMS = Column("binding")
FORMS.update({overload(name): form for name, form in SPELT.items()})
"""Spellings that beat a function call, or that exist only as a method: overload -> (name, renderer)."""

NEEDS = {
    "+": ("__add__", "__radd__"), "-": ("__sub__", "__rsub__"), "*": ("__mul__", "__rmul__"), "/": ("__truediv__", "__rtruediv__"),
    "slice": ("__getitem__",), "index": ("__getitem__",),
}  # fmt: skip
"""The methods of tensors that a form of that name calls, where it is not the one so called: a program may have replaced them."""

EQUIVALENT: dict[str, Any] = {
    f"aten::{name}.Scalar": getattr(torch.ops.aten, name).Tensor for name in ("add", "sub", "mul", "div", "add_", "sub_", "mul_", "div_")
}
"""Overloads that ATen itself implements as another overload on the same operands (a number is wrapped as a 0-dim tensor)."""


@dataclass(frozen=True, slots=True)
class Call:
    """How generated code spells one call of an overload.

    `render(name, arg texts, kwarg texts, values, keyword values)` gives the expression, `globals` the names that it needs;
    `trim` tells `normalize` whether defaults may be left out.
    """

    render: Renderer
    name: str
    globals: dict[str, Any]
    fast: bool
    trim: bool = True

    def text(self, args: list[str], kwargs: list[str], values: list, keywords: dict) -> str | None:
        return self.render(self.name, args, kwargs, values, keywords)


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one call was spelled: `lookup` and `normalize` of `args` and `kwargs` gave `call`, the first `positional` and the `keywords`."""

    call: Call
    args: tuple
    kwargs: dict[str, Any]
    positional: int
    keywords: tuple[str, ...]

    def serves(self, args: tuple, kwargs: dict) -> bool:
        """Whether they give the same for these: the same constants, tensors of the same dtypes, as many dims as `_kind` looks at."""
        if len(args) != len(self.args) or kwargs.keys() != self.kwargs.keys():
            return False
        for a, b in (*zip(args, self.args, strict=True), *((v, self.kwargs[k]) for k, v in kwargs.items())):
            if a is not b and not (type(a) is type(b) is TracedTensor and a.dtype is b.dtype and bool(a.sizes) is bool(b.sizes)):
                return False
        return True


def _function(name: str, args: list[str], kwargs: list[str], values: list, keywords: dict) -> str:
    return f"{name}({', '.join(args + kwargs)})"


class _Stop(Exception):
    """Aborts a probed call before any kernel runs."""


class _Probe(TorchDispatchMode):
    """Records the first overload dispatched to, with its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: tuple | None = None

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or PyTorch wraps the method, and imports TorchDynamo (and sympy) to do so: half a second

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        self.seen = (func, args, kwargs or {})
        raise _Stop


_MISSING = object()
_calls: dict[tuple, Call] = {}
_meta: dict[tuple, torch.Tensor] = {}


@cache
def _schema(target: Any) -> list[tuple[str, bool, Any]]:
    """(name, keyword-only, default or _MISSING) of each argument."""
    return [(a.name, a.kwarg_only, a.default_value if a.has_default_value() else _MISSING) for a in target._schema.arguments]


@cache
def required(target: Any) -> int:
    """The number of leading positional arguments that have no default."""
    return sum(1 for _, kwarg_only, default in _schema(target) if not kwarg_only and default is _MISSING)


def same(a: Any, b: Any) -> bool:
    """Equal as arguments of an operator: type and value, item by item; lists and tuples are alike, tensors by identity."""
    if isinstance(a, (list, tuple)) or isinstance(b, (list, tuple)):
        return (
            isinstance(a, (list, tuple))
            and isinstance(b, (list, tuple))
            and len(a) == len(b)
            and all(same(x, y) for x, y in zip(a, b, strict=True))
        )
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return a is b
    if type(a) is float and type(b) is float and a != a and b != b:
        return True
    return type(a) is type(b) and a == b


def normalize(target: Any, args: tuple, kwargs: dict, trim: bool = True) -> tuple[list, dict]:
    """The call with every argument where the schema has it: positionals in order, then keyword-only ones.

    With `trim`, keywords and trailing positionals that equal their defaults are left out.
    """
    positional: list = []
    keywords: dict[str, Any] = {}
    needed = 0
    count = len(args)
    if trim and not kwargs and count == required(target):
        return list(args), keywords
    for i, (name, kwarg_only, default) in enumerate(_schema(target)):
        value = args[i] if i < count else kwargs.get(name, default)
        keep = default is _MISSING or not (_is_plain(value) and same(value, default)) or name == "reduction"
        if kwarg_only:
            if keep:
                keywords[name] = value
        else:
            positional.append(value)
            if keep or not trim:
                needed = len(positional)
    return positional[:needed], keywords


def _is_plain(value: Any) -> bool:
    """True for values whose equality is decided by Python alone (no tensor, no symbolic number inside)."""
    if isinstance(value, (list, tuple)):
        return all(_is_plain(v) for v in value)
    return not isinstance(value, (torch.Tensor, torch.SymInt, torch.SymFloat, torch.SymBool))


def _kind(value: Any) -> Any:
    """The part of an argument's type that may decide which overload a binding picks."""
    if isinstance(value, torch.Tensor):
        return ("T", ORIGINAL.dim(value) == 0, value.dtype)
    if isinstance(value, (list, tuple)):
        return ("L", min(len(value), 2), *dict.fromkeys(_kind(v) for v in value))
    if isinstance(value, torch.SymInt):
        return int
    if isinstance(value, torch.SymFloat):
        return float
    if isinstance(value, torch.SymBool):
        return bool
    if value is None or isinstance(value, (str, torch.memory_format, torch.layout)):
        return value
    return type(value)


def _proxy(value: Any) -> Any:
    """A probe argument of the same kind: a fresh meta tensor per tensor, a small number per symbolic number."""
    if isinstance(value, torch.Tensor):
        key = (ORIGINAL.dim(value), value.dtype)
        if key not in _meta:
            _meta[key] = torch.empty((7,) * ORIGINAL.dim(value), dtype=value.dtype, device="meta")
        return ORIGINAL.detach(_meta[key])
    if isinstance(value, (list, tuple)):
        return tuple(_proxy(v) for v in value)
    if isinstance(value, torch.SymInt):
        return 1
    if isinstance(value, torch.SymFloat):
        return 1.5
    if isinstance(value, torch.SymBool):
        return True
    return value


def _probe(target: Any, call: Callable[[], Any], args: list, kwargs: dict, below_autograd: bool) -> bool:
    """Does `call` dispatch to `target` first, with exactly these arguments?"""
    probe = _Probe()
    try:
        with probe:
            if below_autograd:
                with torch._C._AutoDispatchBelowAutograd():
                    call()
            else:
                call()
    except Exception:  # whatever the binding's parser raises, it is not the call that we want
        pass
    if probe.seen is None or probe.seen[0] is not target:
        return False
    _, seen_args, seen_kwargs = probe.seen
    for i, (name, _, default) in enumerate(_schema(target)):
        want = args[i] if i < len(args) else kwargs.get(name, default)
        got = seen_args[i] if i < len(seen_args) else seen_kwargs.get(name, default)
        if not (same(want, got) or _harmless(target, i, name, want, got)):
            return False
    return True


def _harmless(target: Any, index: int, name: str, want: Any, got: Any) -> bool:
    """Differences that bindings introduce and kernels cannot see."""
    if name == "pin_memory":
        return want is None and got is False
    if name == "layout":
        return want is None and got is torch.strided and not target._schema.name.endswith("_like")
    if name == "memory_format":
        return want is None and got is torch.preserve_format
    if name in ("start", "end") and target is torch.ops.aten.slice.Tensor:
        return want is None and got == (0 if name == "start" else _INT64_MAX)
    if type(want) in (int, float) and type(got) in (int, float):  # (a Scalar must keep its type)
        return want == got and str(target._schema.arguments[index].type) in ("float", "Optional[float]")
    return False


def _candidates(target: Any) -> Iterator[tuple[Call, bool]]:
    """The spellings to try, best first, each with the mode its probe runs in (below autograd or not)."""
    full, base = target._schema.name, target._schema.name.split("::")[1]
    if target in FORMS:
        form_name, render = FORMS[target]
        # `item` and `to` are composite: they reach the wanted overload only when autograd's key is not skipped
        yield Call(render, form_name, {}, True), form_name not in ("item", "to")
    if full.startswith("aten::"):
        for trim in (True, False):
            for prefix, namespace in NAMESPACES:
                binding = getattr(namespace, base, None)
                if callable(binding):
                    symbol = f"_{base}" if base.startswith(prefix) else f"_{prefix}{base}"
                    yield Call(_function, symbol, {symbol: binding}, True, trim), True


def plain(target: Any) -> Call:
    """The call through the operator's own handle (`torch.ops` without its Python layer): always right, never the fastest."""
    symbol = "_op_" + target._schema.name.replace("::", "_").replace(".", "_") + "_" + target._overloadname
    return Call(_function, symbol, {symbol: getattr(target, "_op", target)}, False)


def lookup(target: Any, args: tuple | list, kwargs: dict) -> Call:
    """The spelling of `target(*args, **kwargs)`. Of tensors, real or traced, only dtype and number of dims are looked at."""
    args, kwargs = normalize(target, tuple(args), kwargs)
    key = (target, tuple(map(_kind, args)), tuple((k, _kind(v)) for k, v in kwargs.items()))
    call = _calls.get(key)
    if call is None:
        call = _calls[key] = _choose(target, args, kwargs)
    if call.render is not _function and not all(map(is_own, NEEDS.get(call.name, (call.name,)))):
        return plain(target)
    return call


def _choose(target: Any, args: list, kwargs: dict) -> Call:
    if known_bindings.is_known(target, args, kwargs):
        return next(_candidates(target))[0]
    return _try(target, args, kwargs)


def _try(target: Any, args: list, kwargs: dict) -> Call:
    name = f"{target._schema.name}.{target._schema.overload_name}"
    if name in EQUIVALENT and len(args) == 2 and not kwargs:
        call = lookup(EQUIVALENT[name], args, kwargs)
        return call if call.fast else plain(target)
    if target is torch.ops.aten.slice.Tensor:  # indexing skips a slice that takes everything: probe with one that does not
        args[2:4] = [value if value is None else at for value, at in zip(args[2:4], (1, 2), strict=False)]
    with _disable_current_modes() if torch._C._len_torch_dispatch_stack() else nullcontext():
        for call, below in _candidates(target):
            values, keywords = normalize(target, tuple(map(_proxy, args)), {k: _proxy(v) for k, v in kwargs.items()}, call.trim)
            if call.render is _function:
                thunk = partial(call.globals[call.name], *map(_spelled, values), **keywords)
            else:
                names = {f"a{i}": v for i, v in enumerate(values)} | {f"k_{k}": v for k, v in keywords.items()}
                text = call.text([_spell(f"a{i}", v) for i, v in enumerate(values)], [f"{k}=k_{k}" for k in keywords], values, keywords)
                if text is None:
                    continue
                thunk = eval(f"lambda: {text}", {**call.globals, **names})  # our own text
            if _probe(target, thunk, values, keywords, below):
                return call
    return plain(target)


def asked(name: str, read: str, into: dict[str, Any]) -> str:
    """How to read something of a tensor at run time, whatever a program has put in the place of the method that tells it."""
    method, _, rest = read.partition("(")
    if method == "__len__":  # of a list
        return f"{name}.{read}"
    into[f"_{method}"] = getattr(ORIGINAL, method)
    return f"_{method}({name}, {rest}"


def _spelled(value: Any) -> Any:
    """A probe argument as the text of `_spell` gives it: lists become tuples."""
    return tuple(map(_spelled, value)) if isinstance(value, (list, tuple)) else value


def _spell(name: str, value: Any) -> str:
    """A probe argument as text: lists item by item and None as itself, as generated code spells them."""
    if isinstance(value, (list, tuple)):
        items = [_spell(f"{name}[{i}]", v) for i, v in enumerate(value)]
        return "(" + ", ".join(items) + ("," if len(items) == 1 else "") + ")"
    return "None" if value is None else name
