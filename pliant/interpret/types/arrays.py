"""NumPy's arrays, scalars, dtypes and functions. Without NumPy there is nothing to enter."""

from __future__ import annotations

from typing import Any

try:
    import numpy as np
except ImportError:  # torch works without it
    np = None  # type: ignore[assignment]

if np is not None:
    from pliant.graph.originals import operator, torch
    from pliant.interpret import number_lists
    from pliant.interpret.arrays import drawing, errstate, indexing, making, methods, operators, outside, sampling, torch_side, ufuncs
    from pliant.interpret.arrays.dtypes import CANON, SCALARS
    from pliant.interpret.arrays.operands import asarray, to
    from pliant.interpret.arrays.proxies import ArrayMethod, TracedArray, TracedScalar, whole_array
    from pliant.interpret.arrays.reductions import all_, amax, amin, any_, cumprod, cumsum, none, one_axis, ordered, prod
    from pliant.interpret.arrays.reductions import sum as total
    from pliant.interpret.arrays.table import CODE, compute, without_tensors
    from pliant.interpret.arrays.ufuncs import t
    from pliant.interpret.calls import SYMBOLIC, UNTRACED
    from pliant.interpret.gate import OTHER_NUMBERS, name_of
    from pliant.interpret.state import Break
    from pliant.interpret.types.row import row
    from pliant.interpret.world import SOURCED, World

    SOURCED.update((TracedArray, TracedScalar))
    SYMBOLIC.update((TracedArray, TracedScalar))
    UNTRACED.add(np.ndarray)
    OTHER_NUMBERS.update(SCALARS, (TracedScalar,))
    KEEPS = {"append", "appendleft", "insert", "callable", "setitem", "__setitem__", "add", "sum", "max", "min", "sorted"}
    """What may be given a proxy: what only holds it, and what asks it through its operators."""

    def plain_getattr(o: Any, name: str) -> Any:
        return getattr(o, name)

    def array_type(a: Any) -> type:
        return np.ndarray

    def scalar_type(s: Any) -> type:
        return s.dtype.type

    def held(fn: Any, o: Any) -> Any:
        if name_of(fn) not in KEEPS:
            raise Break(CODE, f"{name_of(fn)} would read an array", clean=True)
        return o

    def no_items(o: Any, k: Any) -> None:
        raise Break(CODE, "an item of an array is deleted, which raises", clean=True)

    def constant_index(s: Any) -> Any:
        return operator.index(s)

    BOOLS = tuple(c for c, dt in SCALARS.items() if dt.kind == "b")
    INTS = tuple(c for c, dt in SCALARS.items() if dt.kind in "iu")
    FLOATS = tuple(c for c, dt in SCALARS.items() if dt.kind in "fc")

    row(
        name="array", located=(np.ndarray,), stands=(TracedArray,), locate=outside.locate_array, type=array_type,
        getattr=methods.array_getattr, setattr=methods.set_attribute, delattr=methods.set_attribute, getitem=indexing.getitem,
        setitem=indexing.setitem, delitem=no_items, contains=methods.contains, iter=methods.iterate, length=methods.length_of,
        truth=methods.truth,
        index=methods.index_of, number=methods.number, hashed=methods.unhashable, text=methods.text, format=methods.formatted,
        unary=operators.unary, binary=operators.binary, compare=operators.compare, rank=30, method=methods.call_on, to_c=held,
        to_graph=torch_side.array_for,
    )  # fmt: skip
    row(
        name="scalar of NumPy", stands=(TracedScalar,), type=scalar_type, getattr=methods.scalar_getattr, setattr=methods.set_attribute,
        delattr=methods.set_attribute, delitem=no_items, truth=methods.scalar_truth,
        index=methods.index_of, number=methods.number, hashed=methods.hashed,
        text=methods.text, format=methods.formatted, unary=operators.unary, binary=operators.binary, compare=operators.compare, rank=20,
        method=methods.call_on, to_c=held, to_graph=torch_side.scalar_for,
    )  # fmt: skip
    CONSTANT = {
        "plain": True, "getattr": plain_getattr, "unary": operators.unary, "binary": operators.binary, "compare": operators.compare,
        "rank": 20,
    }  # fmt: skip
    row(name="bool of NumPy", located=BOOLS, stands=BOOLS, locate=outside.locate_scalar, **CONSTANT)
    row(name="int of NumPy", located=INTS, stands=INTS, locate=outside.locate_scalar, index=constant_index, **CONSTANT)
    row(name="float of NumPy", located=FLOATS, stands=FLOATS, locate=outside.locate_scalar, **CONSTANT)
    row(name="text of NumPy", located=outside.TEXTS, stands=outside.TEXTS, plain=True, locate=outside.locate_text, getattr=plain_getattr)
    row(name="method of an array", stands=(ArrayMethod,), call=methods.call, to_c=held)
    DTYPES = tuple({type(dt): None for dt in CANON.values()})
    row(name="dtype of NumPy", located=DTYPES, stands=DTYPES, plain=True, locate=outside.locate_dtype, getattr=plain_getattr)
    LIMITS = (np.finfo, np.iinfo)
    row(name="limits of a dtype", stands=LIMITS, plain=True, getattr=plain_getattr)

    # -- functions ----------------------------------------------------------------------------------------------------------
    DISPATCHERS = (type(np.sum),)
    REDUCERS = {
        (np.add, "reduce"): total, (np.multiply, "reduce"): prod, (np.maximum, "reduce"): amax, (np.minimum, "reduce"): amin,
        (np.logical_and, "reduce"): all_, (np.logical_or, "reduce"): any_,
    }  # fmt: skip

    def reduced(fn: Any, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        more = {} if dtype is None else {"dtype": dtype}
        return fn(array, axis, out=out, keepdims=keepdims, **more)

    def scanned(fn: Any, array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
        return fn(array, axis, dtype, out)

    def running(fn: Any) -> Any:
        def compute_running(array: Any, axis: Any, dtype: Any, out: Any) -> Any:
            a = asarray(array)
            none(out, dtype)
            return whole_array(to(t(fn, ordered(a), one_axis(axis, a.ndim))[0], a.dtype))

        return compute_running

    def outer(uf: Any, a: Any, b: Any) -> Any:
        x, y = asarray(a), asarray(b)
        return ufuncs.apply(uf, whole_array(t(torch.reshape, x.tensor, (*x.sizes, *[1] * y.ndim))), y)

    ADD = np.add
    SCANS = {
        (ADD, "accumulate"): cumsum, (np.multiply, "accumulate"): cumprod, (np.maximum, "accumulate"): running(torch.cummax),
        (np.minimum, "accumulate"): running(torch.cummin),
    }  # fmt: skip

    def ufunc_method(uf: Any, name: str, args: tuple, kw: dict) -> Any:
        without_tensors(f"np.{uf.__name__}.{name}", args, kw)
        if (uf, name) in SCANS:
            return compute(f"np.{uf.__name__}.{name}", scanned, (SCANS[uf, name], *args), kw)
        if name == "outer" and uf.nin == 2:
            return compute(f"np.{uf.__name__}.outer", outer, (uf, *args), kw)
        if uf is ADD and name == "at":
            return compute("np.add.at", indexing.add_at, args, kw)
        fn = REDUCERS.get((uf, name))
        if fn is None:
            raise Break(CODE, f"np.{uf.__name__}.{name}", clean=True)
        return compute(f"np.{uf.__name__}.{name}", reduced, (fn, *args), kw)

    row(name="function of NumPy", located=DISPATCHERS, stands=DISPATCHERS, locate=World.identity)
    row(name="universal function", located=(np.ufunc,), stands=(np.ufunc,), locate=World.identity, method=ufunc_method)
    row(name="missing argument", located=(type(np._NoValue),), stands=(type(np._NoValue),), plain=True, locate=World.identity)
    row(
        name="np.errstate", stands=(errstate.Errors,), type=errstate.seen_type,
        getattr=errstate.getattr_, setattr=errstate.setattr_, to_c=held,
    )  # fmt: skip
    row(name="method of np.errstate", stands=(errstate.ErrorsMethod,), call=errstate.call, to_c=held)
    number_lists.enter()
    _ = drawing, making, sampling
