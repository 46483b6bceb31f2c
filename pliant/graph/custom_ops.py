"""Custom operators: shapes from the fake kernels that `torch.library.register_fake` keeps, and what those are held to.

A fake kernel runs on the traced tensors themselves, in a stretch of the trace that is cut off again: only the metadata of what it
returns is kept. `torch.library.get_ctx().new_dynamic_size()` gives an unbacked symbol, which the run reads off the result.

Nobody has proved that a fake kernel tells the truth, so the compiled program checks what the operator really returned (`fitted`):
other strides are mended by a copy, other sizes or types are an error that names the operator.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Any

from torch._library.fake_impl import set_ctx_getter
from torch._library.simple_registry import singleton

from pliant.errors import FakeKernelError, PliantError
from pliant.graph import casts
from pliant.graph.layout import contiguous_strides
from pliant.graph.originals import ORIGINAL, torch
from pliant.graph.record import Bind
from pliant.graph.schema import argument, op_info
from pliant.graph.symclasses import quiet
from pliant.graph.symnode import SYMS, to_sym
from pliant.graph.traced import TracedTensor, Untraceable, make
from pliant.symbolic.expr import Expr
from pliant.symbolic.scope import DataDependent


class SizeContext:
    """What `torch.library.get_ctx()` gives to a fake kernel during a capture."""

    def __init__(self, trace: Any, func: Any) -> None:
        self.trace = trace
        self.func = func
        self.made: list[Expr] = []

    def new_dynamic_size(self, *, min: int = 0, max: int | None = None) -> Any:
        """A size that only the run knows, between `min` and `max`. Raises ValueError for bounds that are not plain numbers from 0 up."""
        if isinstance(min, torch.SymInt) or isinstance(max, torch.SymInt) or min < 0:
            raise ValueError(f"new_dynamic_size(min={min}, max={max}): the bounds must be plain numbers, and `min` not negative")
        if not self.trace.allow_unbacked:
            raise Untraceable(self.func, "its result depends on the data of a tensor", "data-dependent")
        symbol = self.trace.unbacked(int, size_like=True, lo=min, hi=max)
        self.made.append(symbol)
        return to_sym(self.trace.scope, symbol)

    def create_unbacked_symint(self, *, min: int = 2, max: int | None = None) -> Any:
        """The old name. Its old minimum of 2 was a limit of the compiler, not a promise of the operator."""
        return self.new_dynamic_size(min=0 if min == 2 else min, max=max)


def fake_kernel(func: Any) -> Callable[..., Any] | None:
    """The newest fake kernel of an operator that is not PyTorch's own; None if it has none."""
    entry = singleton.get(func.name())
    kernel = entry.fake_impl.kernel if entry is not None else None
    if kernel is None and not func._schema.returns and func._schema.is_mutable:
        return nothing  # it writes into its arguments, whose metadata a custom operator must leave alone
    return kernel


def nothing(*args: Any, **kwargs: Any) -> None:
    """The fake kernel of an operator without results."""


def results(trace: Any, func: Any, kernel: Callable[..., Any], args: tuple, kwargs: dict) -> tuple[Any, list[Bind]]:
    """(what the operator returns, where its dynamic sizes and its numbers are read off at run time).

    Raises `Untraceable` if the kernel makes a dynamic size that no result shows, or returns something that is no tensor of the trace.
    """
    context = SizeContext(trace, func)
    asserts = len(trace.scope.asserts)
    n_ops, n_constants = len(trace.ops), len(trace.constants)
    try:
        with trace.mode, quiet(), set_ctx_getter(lambda: context):
            out = kernel(*args, **kwargs)
    except (PliantError, DataDependent):
        raise
    except Exception as e:  # eager does not run fake kernels: what they raise is not the program's answer
        raise Untraceable(func, f"its fake kernel raised {type(e).__name__}: {e}") from e
    finally:
        trace.take_back(n_ops)
        del trace.constants[n_constants:]
        casts.forget()
    info = op_info(func)
    several = type(out) is tuple and len(info.returns) == len(out) > 1
    flat = list(out) if isinstance(out, (tuple, list)) else [out]
    shown = {e for o in flat for e in size_exprs(o)}
    renamed: dict[Expr, Any] = {}
    if any(u not in shown for u in context.made):
        renamed = own_symbols(trace, context.made, shown)
        if not all(renamable(o, renamed) for o in flat) or len(trace.scope.asserts) != asserts:
            raise Untraceable(func, "its fake kernel makes a dynamic size that is not the size of a result")
    device = next((a.device for a in args if type(a) is TracedTensor), None)
    binds: dict[Expr, Bind] = {}
    unbound = {*context.made, *(s.node.expr for s in renamed.values())}

    def own(i: int, o: Any) -> Any:
        alias = info.returns[i] if several or len(info.returns) == 1 and i == 0 else None
        if o is None:
            return None
        if isinstance(o, (bool, int, float, *SYMS)):  # what an operator computes is data, whatever the fake kernel says
            kind = bool if isinstance(o, (bool, torch.SymBool)) else float if isinstance(o, (float, torch.SymFloat)) else int
            e: Any = o.node.expr if isinstance(o, SYMS) else None
            symbol = e if e in unbound and e not in binds else trace.unbacked(kind)
            binds[symbol] = Bind(symbol, i)
            return to_sym(trace.scope, symbol)
        if type(o) is not TracedTensor:
            raise Untraceable(func, f"its fake kernel returns a {type(o).__name__} that is not traced")
        base = argument(info, args, kwargs, alias[0]) if alias is not None else None
        if alias is not None and alias[1]:
            return base
        sizes = tuple(renamed.get(s.node.expr, s) if type(s) is torch.SymInt else s for s in o.sizes)
        strides = o.strides if all(map(is_, sizes, o.sizes)) else contiguous_strides(sizes)
        where = device if o.device.type == "meta" and device is not None else o.device
        x = make(trace, sizes, strides, o.dtype, o.offset, base.storage_id if type(base) is TracedTensor else None, where, o.dense)
        for d, s in enumerate(sizes):
            e = s.node.expr if type(s) is torch.SymInt else None
            if e in unbound and e not in binds:
                binds[e] = Bind(e, i, d)
        return x

    made = [own(i, o) for i, o in enumerate(flat)]
    return type(out)(made) if isinstance(out, (tuple, list)) else made[0], list(binds.values())


def size_exprs(o: Any) -> list[Expr]:
    """The expressions of the sizes of a result, or of the result itself if it is a number."""
    if isinstance(o, SYMS):
        return [o.node.expr]
    return [s.node.expr for s in o.sizes if type(s) is torch.SymInt] if type(o) is TracedTensor else []


def own_symbols(trace: Any, made: list[Expr], shown: set[Expr]) -> dict[Expr, Any]:
    """A symbol for each size such as `2 * u`, which does not show `u` itself."""
    names = {u.name for u in made}
    hidden = [e for e in shown if e.op != "sym" and names & {v.name for v in e.symbols()}]
    return {e: to_sym(trace.scope, trace.unbacked(int, size_like=True)) for e in hidden}


def renamable(o: Any, renamed: dict[Expr, Any]) -> bool:
    """Whether nothing but the sizes of a result rests on the renamed ones."""
    return type(o) is not TracedTensor or not any(e in renamed for e in size_exprs(o)) or (o.dense and o.offset == 0)


def fitted(out: Any, sizes: tuple, strides: tuple, dtype: torch.dtype, name: str, strict: bool = False) -> Any:
    """The result of a custom operator, as its fake kernel described it. Called by compiled programs.

    Raises `FakeKernelError` if sizes or dtype are others. Other strides are mended by a copy; `strict`: they are an error too, because
    the program goes on to read the memory by strides of its own.
    """
    if out.shape == sizes and out.dtype is dtype:
        given = ORIGINAL.stride(out)
        if given == strides or all(n < 2 or a == b for n, a, b in zip(sizes, given, strides)) or not ORIGINAL.numel(out):
            return out
        if not strict:
            return ORIGINAL.copy_(torch.empty_strided(sizes, strides, dtype=dtype, device=out.device), out)
    raise FakeKernelError(
        f"the operator {name} returned {out.dtype} of shape {tuple(out.shape)} and strides {ORIGINAL.stride(out)}, but its fake kernel "
        f"(torch.library.register_fake) says {dtype} of shape {sizes} and strides {strides}. The program was compiled on that word. "
        "Fix the fake kernel, or exclude the operator with pliant.skip."
    )
